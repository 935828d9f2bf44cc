// The symbols are the rows of the .def files; the names and folders are those
// of NVIDIA's Python packages for CUDA 13 and 12, and of the system's.
#include "runtime/cuda/vendor/library.h"

#include <stdio.h>

#include "runtime/cuda/vendor/api.h"

#define NONE ((const char *const[]){NULL})
#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SYMBOLS(symbols) \
    .symbol = (symbols), .nsymbols = sizeof(symbols) / sizeof(*(symbols))

static const hd_symbol cuda_symbols[] = {
#define HD_CU(symbol, name, ...) {#symbol, offsetof(hd_cu_api, name)},
#include "runtime/cuda/vendor/cuda.def"
#undef HD_CU
};

// Of the newest CUDA that it is for; needs neither cuInit nor a device.
static bool cuda_version(const void *table, char out[HD_LIBRARY_VERSION])
{
    int number = 0;

    if (((const hd_cu_api *)table)->driver_version(&number) != HD_CU_SUCCESS)
        return false;
    snprintf(out, HD_LIBRARY_VERSION, "%d.%d", number / 1000,
             number % 1000 / 10);
    return true;
}

// The driver is the system's, whatever Python has installed. Since 12.0 it has
// the stream memory operations as they are used here.
const hd_library_info hd_cuda_library = {.title = "the CUDA driver",
                                         .variable = "HEDDLE_CUDA_LIB",
                                         .names = NAMES("libcuda.so.1"),
                                         .folders = NONE,
                                         SYMBOLS(cuda_symbols),
                                         .version = cuda_version,
                                         .oldest = "12.0"};

static const hd_symbol lt_symbols[] = {
#define HD_LT(symbol, result, name, ...) {#symbol, offsetof(hd_lt_api, name)},
#include "runtime/cuda/vendor/cublaslt.def"
#undef HD_LT
};

static bool lt_version(const void *table, char out[HD_LIBRARY_VERSION])
{
    hd_library_write_version(((const hd_lt_api *)table)->version(), out);
    return true;
}

const hd_library_info hd_lt_library = {
    .title = "cuBLASLt",
    .variable = "HEDDLE_CUBLASLT_LIB",
    .names = NAMES("libcublasLt.so.13", "libcublasLt.so.12"),
    .folders = NAMES("nvidia/cu13/lib", "nvidia/cublas/lib"),
    SYMBOLS(lt_symbols),
    .bytes = sizeof(hd_lt_api),
    .use = "matmul on cuda",
    .install = "pip install nvidia-cublas",
    .version = lt_version,
    .oldest = "12"};

static const hd_symbol dnn_symbols[] = {
#define HD_DNN(symbol, result, name, ...) {#symbol, offsetof(hd_dnn_api, name)},
#include "runtime/cuda/vendor/cudnn.def"
#undef HD_DNN
};

static bool dnn_version(const void *table, char out[HD_LIBRARY_VERSION])
{
    hd_library_write_version(((const hd_dnn_api *)table)->version(), out);
    return true;
}

// Since 9.8 a plan is made from a device's properties, without a handle.
const hd_library_info hd_dnn_library = {
    .title = "cuDNN",
    .variable = "HEDDLE_CUDNN_LIB",
    .names = NAMES("libcudnn.so.9"),
    .folders = NAMES("nvidia/cudnn/lib"),
    SYMBOLS(dnn_symbols),
    .bytes = sizeof(hd_dnn_api),
    .use = "attention on cuda",
    .install = "pip install nvidia-cudnn-cu13",
    .instead = "generated kernels, which are far slower",
    .version = dnn_version,
    .oldest = "9.8"};

static const hd_symbol nccl_symbols[] = {
#define HD_NCCL(symbol, result, name, ...) \
    {#symbol, offsetof(hd_nccl_api, name)},
#include "runtime/cuda/vendor/nccl.def"
#undef HD_NCCL
};

static bool nccl_version(const void *table, char out[HD_LIBRARY_VERSION])
{
    int number = 0;

    if (((const hd_nccl_api *)table)->version(&number) != HD_NCCL_SUCCESS)
        return false;
    hd_library_write_version((size_t)number, out);
    return true;
}

// Communicators that do not block are of 2.14, and what they are split into is
// of 2.18.
const hd_library_info hd_nccl_library = {
    .title = "NCCL",
    .variable = "HEDDLE_NCCL_LIB",
    .names = NAMES("libnccl.so.2"),
    .folders = NAMES("nvidia/nccl/lib"),
    SYMBOLS(nccl_symbols),
    .bytes = sizeof(hd_nccl_api),
    .use = "transfers on cuda with --transport nccl",
    .install = "pip install nvidia-nccl-cu13",
    .version = nccl_version,
    .oldest = "2.18"};

static const hd_symbol mp_symbols[] = {
#define HD_MP(symbol, result, name, ...) {#symbol, offsetof(hd_mp_api, name)},
#include "runtime/cuda/vendor/cublasmp.def"
#undef HD_MP
};

static bool mp_version(const void *table, char out[HD_LIBRARY_VERSION])
{
    int number = 0;

    if (((const hd_mp_api *)table)->version(&number) != HD_MP_SUCCESS)
        return false;
    snprintf(out, HD_LIBRARY_VERSION, "%d.%d.%d", number / 1000,
             number / 100 % 10, number % 100);
    return true;
}

// What it needs of NCCL, NVSHMEM and cuBLAS is what its own package names, or
// what the process has of that name already.
const hd_library_info hd_mp_library = {
    .title = "cuBLASMp",
    .variable = "HEDDLE_CUBLASMP_LIB",
    .names = NAMES("libcublasmp.so.0"),
    .folders = NAMES("nvidia/cublasmp/cu13/lib"),
    SYMBOLS(mp_symbols),
    .bytes = sizeof(hd_mp_api),
    .use = "--transfer fused on cuda",
    .install = "pip install nvidia-cublasmp-cu13==0.7.0.125",
    .version = mp_version,
    .oldest = "0.7"};

static const hd_symbol shmem_symbols[] = {
#define HD_SHMEM(symbol, result, name, ...) \
    {#symbol, offsetof(hd_shmem_api, name)},
#include "runtime/cuda/vendor/nvshmem.def"
#undef HD_SHMEM
};

const hd_library_info hd_shmem_library = {
    .title = "NVSHMEM",
    .variable = "HEDDLE_NVSHMEM_LIB",
    .names = NAMES("libnvshmem_host.so.3"),
    .folders = NAMES("nvidia/nvshmem/lib"),
    SYMBOLS(shmem_symbols),
    .bytes = sizeof(hd_shmem_api),
    .use = "the memory of cuBLASMp",
    .install = "pip install nvidia-nvshmem-cu13"};
