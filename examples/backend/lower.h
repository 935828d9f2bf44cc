// From regions of the graph to sessions of heddle's.
#pragma once

#include <heddle/build.h>
#include <heddle/cache.h>

#include <memory>

#include "graph.h"

constexpr int kRanks = 4;
constexpr int64_t kMostRows = 4096;
constexpr int kHidden = 32; // columns, at most

// Exceptions end at the functions that heddle calls.
inline void Try(hd_status status)
{
    if (status != HD_OK)
        throw status;
}

// Names and cookies are places in the region, not nodes: so regions that are
// alike have the same text, and are one program of the cache's, whose cookies
// mean the same to each of them. That of no line is 0: places count from 1.
inline std::string NameOf(const Region &region, int node)
{
    auto at = std::find(region.nodes.begin(), region.nodes.end(), node);

    return "v" + std::to_string(at - region.nodes.begin() + 1);
}

inline void Declare(hd_builder *builder, const Node &node,
                    const std::string &name, hd_role role, uint64_t cookie)
{
    hd_build_buffer buffer = HD_EMPTY(hd_build_buffer);

    buffer.role = role;
    buffer.dtype = HD_DTYPE_F32;
    buffer.name = name.c_str();
    for (const Dim &dim : node.shape) {
        buffer.extent[buffer.ndims] = dim.extent;
        buffer.length[buffer.ndims] = dim.length;
        buffer.mark[buffer.ndims++] = dim.mark;
    }
    hd_builder_buffer(builder, &buffer, cookie);
}

// A tensor program, which `calls` the backend's own gelu, or has heddle's.
inline std::shared_ptr<hd_module>
Build(const Graph &graph, const Region &region, bool calls, hd_diag *diag)
{
    hd_builder *made = nullptr;
    hd_module *module = nullptr;
    hd_role role = HD_ROLE_IN;

    Try(hd_builder_create("region", HD_STAGE_TENSOR, diag, &made));
    std::shared_ptr<hd_builder> builder(made, hd_builder_destroy);
    hd_builder_axis(made, "tp", kRanks, 0);
    hd_builder_size(made, "m", 1, kMostRows, 0);
    for (size_t i = 0; i < region.nodes.size(); i++) {
        const Node &node = graph[region.nodes[i]];
        std::string name = NameOf(region, region.nodes[i]), words;

        if (i >= region.inputs)
            role = i + 1 < region.nodes.size() ? HD_ROLE_TEMP : HD_ROLE_OUT;
        Declare(made, node, name, role, i + 1);
        if (role == HD_ROLE_IN)
            continue;
        words = calls && node.op == kGelu ? "call \"gelu\"" : kNames[node.op];
        for (int from : node.from)
            words +=
                (from == node.from[0] ? " %" : ", %") + NameOf(region, from);
        words += node.op == kSum ? " dim 0" : "";
        hd_builder_line(made, ("%" + name + " = " + words).c_str(), i + 1);
    }
    Try(hd_builder_finish(made, diag, &module));
    return {module, hd_module_destroy};
}

// A region's session; none of what is no program. All ranks ask for the same
// regions in the same order, so that a cache on each finds what others find.
inline std::shared_ptr<hd_session>
Compile(const Graph &graph, const Region &region, hd_cache *cache,
        hd_group *group, const hd_session_options &options, hd_diag *diag)
{
    hd_cache_request request = HD_EMPTY(hd_cache_request);
    const hd_module *module = nullptr;
    hd_session *session = nullptr;

    if (region.nodes.size() == region.arguments.size())
        return nullptr;
    std::shared_ptr<hd_module> built = Build(graph, region, true, diag);
    request.module = built.get();
    request.against = true; // proven to make what the region says
    Try(hd_cache_get(cache, &request, diag, &module));
    hd_status status =
        hd_cache_session(cache, group, module, &options, diag, &session);
    hd_cache_release(cache, module); // which the session keeps
    Try(status);
    return {session,
            [cache](hd_session *s) { hd_cache_release_session(cache, s); }};
}
