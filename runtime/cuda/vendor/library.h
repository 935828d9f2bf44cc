// The vendor libraries that the cuda driver opens: what they are called and
// where they are looked for.
#ifndef HD_RUNTIME_CUDA_VENDOR_LIBRARY_H
#define HD_RUNTIME_CUDA_VENDOR_LIBRARY_H

#include "base/library.h"

HD_BEGIN_DECLS

// They fill in an hd_cu_api, an hd_lt_api, an hd_dnn_api, an hd_nccl_api, an
// hd_mp_api and an hd_shmem_api.
extern const hd_library_info hd_cuda_library;
extern const hd_library_info hd_lt_library;
extern const hd_library_info hd_dnn_library;
extern const hd_library_info hd_nccl_library;
extern const hd_library_info hd_mp_library;
extern const hd_library_info hd_shmem_library;

HD_END_DECLS

#endif
