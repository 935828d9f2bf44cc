// A host program and the tensor program that it should agree with, both
// evaluated on the same inputs: numbers of the field, one for each element that
// check/grain distinguishes.
#ifndef HD_CHECK_EVALUATE_H
#define HD_CHECK_EVALUATE_H

#include "check/value.h"

HD_BEGIN_DECLS

typedef struct hd_evaluation {
    const hd_graph *graph;      // borrowed: of the host program
    const hd_module *tensor;    // borrowed
    const hd_draw *draw;        // borrowed
    const hd_buffer **argument; // owned, by id of a tensor: the host program's
    hd_layout whole, host;      // owned: of `dense`, of `local`
    hd_values dense, local;     // owned
    hd_diag *diag;
} hd_evaluation;

// Which argument of the host program each of the tensor program's is, by id of
// the latter, unless `out` is NULL. HD_ERROR_INVALID, HD0902, where they
// differ.
hd_status hd_arguments_match(const hd_module *host, const hd_module *tensor,
                             hd_diag *diag, const hd_buffer **out);

// The arguments of the two are the same ones, and both have the sizes of a run.
// `keep`s what every step writes, to say later where a value came from.
hd_status hd_evaluate(const hd_graph *graph, const hd_module *tensor,
                      const hd_draw *draw, bool keep, hd_diag *diag,
                      hd_evaluation *out);
void hd_evaluation_free(hd_evaluation *e);

// The whole tensor's element that element `i` of a rank's shard is.
int64_t hd_evaluation_whole(const hd_evaluation *e, const hd_buffer *tensor,
                            int rank, int64_t i);

HD_END_DECLS

#endif
