// The symbols are the rows of the .def files; the names and folders are those
// of NVIDIA's Python packages for CUDA 13 and 12, and of the system's.
#include "runtime/cuda/library.h"

#include "runtime/cuda/api.h"

static const char *const no_folders[] = {NULL};

static const char *const cuda_names[] = {"libcuda.so.1", NULL};
static const hd_symbol cuda_symbols[] = {
#define HD_CU(symbol, name, ...) {#symbol, offsetof(hd_cu_api, name)},
#include "runtime/cuda/cuda.def"
#undef HD_CU
};

// The driver is the system's, whatever Python has installed.
const hd_library_info hd_cuda_library = {
    .title = "the CUDA driver",
    .variable = "HEDDLE_CUDA_LIB",
    .names = cuda_names,
    .folders = no_folders,
    .symbol = cuda_symbols,
    .nsymbols = sizeof(cuda_symbols) / sizeof(*cuda_symbols),
};

static const char *const lt_names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                       NULL};
static const char *const lt_folders[] = {"nvidia/cu13/lib", "nvidia/cublas/lib",
                                         NULL};
static const hd_symbol lt_symbols[] = {
#define HD_LT(symbol, result, name, ...) {#symbol, offsetof(hd_lt_api, name)},
#include "runtime/cuda/cublaslt.def"
#undef HD_LT
};

const hd_library_info hd_lt_library = {
    .title = "cuBLASLt",
    .variable = "HEDDLE_CUBLASLT_LIB",
    .names = lt_names,
    .folders = lt_folders,
    .symbol = lt_symbols,
    .nsymbols = sizeof(lt_symbols) / sizeof(*lt_symbols),
};

static const char *const nccl_names[] = {"libnccl.so.2", NULL};
static const char *const nccl_folders[] = {"nvidia/nccl/lib", NULL};
static const hd_symbol nccl_symbols[] = {
#define HD_NCCL(symbol, result, name, ...) \
    {#symbol, offsetof(hd_nccl_api, name)},
#include "runtime/cuda/nccl.def"
#undef HD_NCCL
};

const hd_library_info hd_nccl_library = {
    .title = "NCCL",
    .variable = "HEDDLE_NCCL_LIB",
    .names = nccl_names,
    .folders = nccl_folders,
    .symbol = nccl_symbols,
    .nsymbols = sizeof(nccl_symbols) / sizeof(*nccl_symbols),
};
