// Attention by cuDNN: shapes, and the plan that it has for each. What it does
// not take, and what no library is there for, is a generated kernel's.
#ifndef HD_RUNTIME_CUDA_LIBRARIES_ATTENDS_H
#define HD_RUNTIME_CUDA_LIBRARIES_ATTENDS_H

#include "runtime/cuda/commands/attention.h"
#include "runtime/cuda/commands/plan.h"

// How many elements rows of an operand have.
int64_t hd_cuda_attention_width(const hd_cuda_attention *shape, int part);

// -------------------------------------- cuda/libraries/cudnn.c

// Opens cuDNN for the session, once; HD_ERROR_UNSUPPORTED where there is none.
hd_status hd_cuda_dnn_open(hd_device *device, hd_diag *diag);
void hd_cuda_dnn_close(hd_device *device);
// The plan for the shape: made, found on disk, or that of an earlier step.
// `known` is -1 if cuDNN does not take it, and `reason`, which lasts as long as
// the session, says why.
hd_status hd_cuda_dnn_find(hd_cuda_plan *plan, const hd_cuda_attention *shape,
                           hd_diag *diag, int *known, const char **reason);
// No less than a byte: a session that calls a library has rooms.
size_t hd_cuda_dnn_workspace(const hd_device *device, int known);
hd_status hd_cuda_dnn_issue(const hd_cuda_plan *plan,
                            const hd_cuda_command *command, hd_cu_stream stream,
                            hd_diag *diag);
void hd_cuda_dnn_free(hd_device *device, hd_cuda_plan *plan);
// "cuDNN 9.19.0 (path)"; "" if it is not open.
const char *hd_cuda_dnn_text(const hd_device *device);

// ------------------------------------- cuda/libraries/attend.c

// `detour`: where the step's result goes, and what it is merged with.
hd_status hd_cuda_plan_attention(hd_cuda_plan *plan, int stream,
                                 const hd_step *step,
                                 const hd_cuda_detour *detour, hd_diag *diag);
// Whether cuDNN makes all rows of the result.
hd_status hd_cuda_attends_by(hd_cuda_plan *plan, int stream,
                             const hd_step *step, const hd_cuda_detour *detour,
                             hd_diag *diag, bool *out);
void hd_cuda_attends_close(hd_device *device);
// For those who ask what attends; "" if nothing does.
const char *hd_cuda_attends_text(const hd_device *device);

// ------------------------------------------- cuda/plan/zeros.c

// -------------------------------------------- cuda/plan/sums.c

#endif
