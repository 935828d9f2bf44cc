// Arrays of other libraries (PyTorch, JAX, CuPy, NumPy, ..) as arguments of
// runs, by DLPack, without a copy if they are dense. Include dlpack/dlpack.h,
// which is not needed here, for the structs.
#ifndef HEDDLE_DLPACK_H
#define HEDDLE_DLPACK_H

#include <heddle/heddle.h>

HD_BEGIN_DECLS

struct DLTensor;
struct DLManagedTensorVersioned;

// The address to pass for argument `i` in runs of the session: the array's
// data and byte_offset. Nothing is taken over: the array's memory must be there
// until the run has ended, the struct only for this call.
//
// HD_ERROR_ARGUMENT, with the argument, what the array has and what is needed,
// unless it is of the argument's dtype, with one lane; on the session's device
// (on cuda managed memory too, on the cpu what CUDA has pinned); of the shard's
// extents, hd_argument.local, where dimensions of one index may be missing in
// either; and dense, in row-major order: strides are compared where there is
// more than one index, and NULL is dense. An event is no array.
//
// `strides` may be NULL. Else it has room for HD_MAX_DIMS, the array need not
// be dense, and these are what to pass for it as hd_run_options.strides[i]: by
// dimension of the argument. Whether a run takes them hd_session_run says.
HD_API HD_MUST_USE hd_status hd_dlpack_argument(const hd_session *session,
                                                size_t i,
                                                const struct DLTensor *array,
                                                hd_diag *diag, int64_t *strides,
                                                void **out);

// As above, of what `__dlpack__(max_version=(1, 0))` returns:
// HD_ERROR_UNSUPPORTED if its major version is not 1, and HD_ERROR_ARGUMENT if
// it may only be read and the program writes it. Its deleter stays the
// caller's to call, once the run has ended.
HD_API HD_MUST_USE hd_status
hd_dlpack_managed(const hd_session *session, size_t i,
                  const struct DLManagedTensorVersioned *array, hd_diag *diag,
                  int64_t *strides, void **out);

HD_END_DECLS

#endif
