// Programs evaluated: a tensor program on whole tensors, statement by
// statement; a host program on memory of each rank, step by step, in any order
// that it allows.
#ifndef HD_EVAL_EVALUATE_H
#define HD_EVAL_EVALUATE_H

#include "eval/compute.h"

HD_BEGIN_DECLS

hd_status hd_evaluate_tensor(const hd_evaluator *e);
// One step of a host program, by whose order the others stand in the memory;
// transfers when the last of those who take part has come to them.
hd_status hd_evaluate_step(const hd_evaluator *e, int rank, int64_t step);

HD_END_DECLS

#endif
