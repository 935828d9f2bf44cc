// Whether the transfers of a program match.
#ifndef HD_TESTS_MATCH_H
#define HD_TESTS_MATCH_H

#include "steps/match.h"

static inline hd_status match_module(const hd_module *module, hd_diag *diag)
{
    hd_graph graph;
    hd_status status = hd_graph_create(module, diag, &graph);

    if (status != HD_OK)
        return status;
    status = hd_graph_match(&graph, diag);
    hd_graph_free(&graph);
    return status;
}

#endif
