// From regions of the graph to sessions of heddle's.
#pragma once

#include <heddle/build.h>
#include <heddle/cache.h>

#include <functional>
#include <memory>

#include "graph.h"

struct Failure {
    hd_status status;
};
// Exceptions end at the functions that heddle calls.
inline void Try(hd_status status)
{
    if (status != HD_OK)
        throw Failure{status};
}

template <auto destroy> struct Destroy {
    template <class T> void operator()(T *object) const
    {
        destroy(object);
    }
};
template <class T, auto destroy>
using Owned = std::unique_ptr<T, Destroy<destroy>>;
using Diag = Owned<hd_diag, hd_diag_destroy>;
using Module = Owned<hd_module, hd_module_destroy>;

// A region as a session of the cache's. The session is given back before its
// module is.
struct Step {
    const Region *region;
    std::vector<int> arguments; // nodes; the last is its result
    std::unique_ptr<const hd_module, std::function<void(const hd_module *)>>
        module;
    std::unique_ptr<hd_session, std::function<void(hd_session *)>> session;
};

struct Backend {
    Graph graph;
    hd_group *group;
    hd_cache *cache;
    hd_diag *diag;
    hd_session_options options;
    std::vector<Region> regions = {};
    const Region *at = nullptr; // that is being compiled or run

    // `own`: with the backend's own gelu.
    Module Build(const Region &region, bool own) const;
    Step Compile(const Region &region);
    // What heddle said, each message at the node that it is about.
    void Report() const;
};
std::vector<int> ArgumentsOf(const Region &region);
