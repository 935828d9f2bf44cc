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
using Diag = std::unique_ptr<hd_diag, Destroy<hd_diag_destroy>>;
using Module = std::unique_ptr<hd_module, Destroy<hd_module_destroy>>;
using Cache = std::unique_ptr<hd_cache, Destroy<hd_cache_destroy>>;

// A region as a session of the cache's, and the nodes that are its arguments.
// The session is given back before its module is.
struct Step {
    std::vector<int> arguments; // the last is its result
    std::vector<size_t> bytes;  // that a rank has room for
    std::unique_ptr<const hd_module, std::function<void(const hd_module *)>>
        module;
    std::unique_ptr<hd_session, std::function<void(hd_session *)>> session;
};

struct Backend {
    hd_group *group;
    hd_cache *cache;
    hd_diag *diag;
    hd_session_options options;

    Step Compile(const Graph &graph, const Region &region) const;
};

// What heddle said, each message at the node that it is about.
void Report(const hd_diag *diag, const Graph &graph);
