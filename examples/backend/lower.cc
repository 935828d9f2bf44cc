#include "lower.h"

#include <algorithm>
#include <cstdio>

// ------------------------------------------------------------ from a graph

// Names and cookies are places in the region, not nodes: so regions that are
// alike have the same text, and are one program of the cache's, whose cookies
// mean the same to each of them. That of no line is 0: places count from 1.
static uint64_t PlaceOf(const Region &region, int node)
{
    auto at = std::find(region.nodes.begin(), region.nodes.end(), node);

    return static_cast<uint64_t>(at - region.nodes.begin()) + 1;
}

static std::string NameOf(const Region &region, int node)
{
    return "v" + std::to_string(PlaceOf(region, node));
}

// Rows that no rank has a block of are cut into as many blocks as there are
// ranks. Those that are gathered, or go into a sum, may be made block by block:
// "stream".
static void Declare(hd_builder *builder, const Graph &graph,
                    const Region &region, int id, hd_role role)
{
    const Node &node = graph[id];
    bool streamed = role != HD_ROLE_IN && (node.op == Op::all_gather ||
                                           node.shape[0].extent != kRows);
    std::string name = NameOf(region, id);
    std::string blocks = "m in " + std::to_string(kRanks);
    hd_build_buffer buffer = HD_EMPTY(hd_build_buffer);

    buffer.role = role;
    buffer.dtype = HD_DTYPE_F32;
    buffer.name = name.c_str();
    for (const Dim &dim : node.shape) {
        int n = buffer.ndims++;
        bool whole = dim.extent == kRows && !dim.split;

        buffer.extent[n] = dim.extent;
        if (dim.extent == kRows)
            buffer.length[n] = dim.split ? "m" : blocks.c_str();
        if (dim.split || (whole && streamed))
            buffer.mark[n] = dim.split ? "tp" : "stream";
    }
    hd_builder_buffer(builder, &buffer, PlaceOf(region, id));
}

static void Compute(hd_builder *builder, const Graph &graph,
                    const Region &region, int id, bool own)
{
    static const char *const ops[] = {"",    "set", "matmul", "sum",
                                      "sum", "add", "add",    "gelu"};
    const Node &node = graph[id];
    std::string name = NameOf(region, id);
    std::vector<std::string> names;
    std::vector<const char *> views;
    const char *result = name.c_str(), *over_ranks = "dim 0";
    hd_build_op op = HD_EMPTY(hd_build_op);

    for (int from : node.from)
        names.push_back(NameOf(region, from));
    for (const std::string &text : names)
        views.push_back(text.c_str());
    op.op = ops[static_cast<int>(node.op)];
    if (node.op == Op::gelu && own) {
        op.op = "call";
        op.callee = "backend::gelu";
    }
    op.results = &result;
    op.nresults = 1;
    op.operands = views.data();
    op.noperands = views.size();
    op.attributes = &over_ranks;
    op.nattributes = node.op == Op::reduce_scatter || node.op == Op::all_reduce;
    hd_builder_op(builder, &op, PlaceOf(region, id));
}

Module Backend::Build(const Region &region, bool own) const
{
    hd_builder *made = nullptr;
    hd_module *module = nullptr;

    Try(hd_builder_create(region.name.c_str(), HD_STAGE_TENSOR, diag, &made));
    Owned<hd_builder, hd_builder_destroy> builder(made);
    hd_builder_axis(made, "tp", kRanks, 0);
    hd_builder_size(made, "m", 1, kMostRows, 0);
    for (size_t i = 0; i < region.nodes.size(); i++) {
        bool in = i < region.inputs, last = i + 1 == region.nodes.size();

        Declare(made, graph, region, region.nodes[i],
                in     ? HD_ROLE_IN
                : last ? HD_ROLE_OUT
                       : HD_ROLE_TEMP);
        if (!in)
            Compute(made, graph, region, region.nodes[i], own);
    }
    Try(hd_builder_finish(made, diag, &module));
    return Module(module);
}

std::vector<int> ArgumentsOf(const Region &region)
{
    std::vector<int> arguments(region.nodes.begin(),
                               region.nodes.begin() + region.inputs);

    arguments.push_back(region.nodes.back());
    return arguments;
}

// -------------------------------------------------------- from the cache

// All ranks compile the same regions in the same order, so that a cache on each
// finds what the others find.
Step Backend::Compile(const Region &region)
{
    Step step = {&region, ArgumentsOf(region), nullptr, nullptr};
    hd_cache_request request = HD_EMPTY(hd_cache_request);
    hd_cache *from = cache;
    const hd_module *module = nullptr;
    hd_session *session = nullptr;

    at = &region;
    Module built = Build(region, options.ncalls > 0);
    request.module = built.get();
    request.choose = true;  // the way that is predicted to take the least
    request.against = true; // proven to make what the region says
    Try(hd_cache_get(cache, &request, diag, &module));
    step.module = {module,
                   [from](const hd_module *m) { hd_cache_release(from, m); }};
    Try(hd_cache_session(cache, group, module, &options, diag, &session));
    step.session = {
        session, [from](hd_session *s) { hd_cache_release_session(from, s); }};
    return step;
}

void Backend::Report() const
{
    hd_message message = HD_EMPTY(hd_message);

    for (size_t i = 0; hd_diag_message(diag, i, &message); i++) {
        if (message.cookie > 0) {
            int node = at->nodes[message.cookie - 1];

            std::fprintf(stderr, "node %d (%s): ", node, Name(graph[node].op));
        }
        std::fprintf(stderr, "%s %s\n", message.text, message.code);
    }
}
