// runtime/cuda/vendor/api.h against the vendors' own headers, where those are
// installed: every number, every layout, every function's type. There is
// nothing to run; what compiles is right.
#include <type_traits>

#include <cublasLt.h>
#include <cuda.h>
#include <nccl.h>
#include <nvrtc.h>

#include "api.h"

typedef struct _nvrtcProgram *hd_nvrtc_program;

#if CUDA_VERSION >= 13000
// The driver has them still; its newest header names the next versions alone.
#undef cuGraphNodeGetDependencies
extern "C" CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode node,
                                                       CUgraphNode *out,
                                                       size_t *n);
extern "C" CUresult CUDAAPI cuStreamGetCaptureInfo_v2(
    CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
    CUgraph *graph, const CUgraphNode **last, size_t *n);
#endif

namespace
{

// As good as the same in a call: pointers all are, enums are their integers,
// structs have a size.
template <class A, class B> constexpr bool Passes()
{
    if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>)
        return std::is_pointer_v<A> && std::is_pointer_v<B>;
    else if constexpr (std::is_void_v<A> || std::is_void_v<B>)
        return std::is_void_v<A> && std::is_void_v<B>;
    else if constexpr (std::is_class_v<A> || std::is_class_v<B>)
        return std::is_class_v<A> && std::is_class_v<B> &&
               sizeof(A) == sizeof(B);
    else
        return sizeof(A) == sizeof(B) &&
               std::is_floating_point_v<A> == std::is_floating_point_v<B>;
}

template <class A, class B> struct Compare : std::false_type {
};

template <class R, class... P, class S, class... Q>
struct Compare<R (*)(P...), S (*)(Q...)> {
    static constexpr bool Value()
    {
        if constexpr (sizeof...(P) == sizeof...(Q))
            return Passes<R, S>() && (true && ... && Passes<P, Q>());
        else
            return false;
    }
    static constexpr bool value = Value();
};

typedef struct NvrtcTable {
#define HD_NVRTC(symbol, result, name, ...) result (*name)(__VA_ARGS__);
#include "codegen/nvrtc.def"
#undef HD_NVRTC
} NvrtcTable;

#define SAME_CALL(table, symbol, name)                                      \
    static_assert(Compare<decltype(table::name), decltype(&symbol)>::value, \
                  #symbol);
// Some names are macros for newer versions; those have the same type.
#define HD_CU(symbol, name, ...) SAME_CALL(hd_cu_api, symbol, name)
#include "runtime/cuda/vendor/cuda.def"
#define HD_LT(symbol, result, name, ...) SAME_CALL(hd_lt_api, symbol, name)
#include "runtime/cuda/vendor/cublaslt.def"
#define HD_NCCL(symbol, result, name, ...) SAME_CALL(hd_nccl_api, symbol, name)
#include "runtime/cuda/vendor/nccl.def"
#define HD_NVRTC(symbol, result, name, ...) SAME_CALL(NvrtcTable, symbol, name)
#include "codegen/nvrtc.def"

#define SAME(ours, theirs)                            \
    static_assert(static_cast<long long>(ours) ==     \
                      static_cast<long long>(theirs), \
                  #ours " is " #theirs);
SAME(HD_CU_SUCCESS, CUDA_SUCCESS)
SAME(HD_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)
SAME(HD_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE)
SAME(HD_CU_NOT_READY, CUDA_ERROR_NOT_READY)
SAME(HD_CU_PEER_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
SAME(HD_CU_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
SAME(HD_CU_CAPTURED_EVENT, CUDA_ERROR_CAPTURED_EVENT)
SAME(HD_CU_SM_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
SAME(HD_CU_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
SAME(HD_CU_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
SAME(HD_CU_P2P_RANK, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)
SAME(HD_CU_P2P_ACCESS, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)
SAME(HD_CU_P2P_ATOMICS, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)
SAME(HD_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING)
SAME(HD_CU_EVENT_DEFAULT, CU_EVENT_DEFAULT)
SAME(HD_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING)
SAME(HD_CU_IPC_LAZY_PEER_ACCESS, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
SAME(HD_CU_WAIT_GEQ, CU_STREAM_WAIT_VALUE_GEQ)
SAME(HD_CU_WAIT_AND, CU_STREAM_WAIT_VALUE_AND)
SAME(HD_CU_WRITE_DEFAULT, CU_STREAM_WRITE_VALUE_DEFAULT)
SAME(HD_CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE)
SAME(HD_CU_HOST_DEVICEMAP, CU_MEMHOSTALLOC_DEVICEMAP)
SAME(HD_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED)
SAME(HD_CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE)
SAME(HD_CU_NODE_KERNEL, CU_GRAPH_NODE_TYPE_KERNEL)
SAME(HD_CU_NODE_COPY, CU_GRAPH_NODE_TYPE_MEMCPY)
SAME(HD_CU_NODE_FILL, CU_GRAPH_NODE_TYPE_MEMSET)
SAME(HD_CU_NODE_WORDS, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP)
SAME(HD_CU_OP_WAIT_32, CU_STREAM_MEM_OP_WAIT_VALUE_32)
SAME(HD_CU_OP_WRITE_32, CU_STREAM_MEM_OP_WRITE_VALUE_32)
SAME(HD_CU_MAP_U8, CU_TENSOR_MAP_DATA_TYPE_UINT8)
SAME(HD_CU_MAP_F16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16)
SAME(HD_CU_MAP_BF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16)
SAME(HD_CU_MAP_PLAIN, CU_TENSOR_MAP_INTERLEAVE_NONE)
SAME(HD_CU_MAP_SWIZZLE_128, CU_TENSOR_MAP_SWIZZLE_128B)
SAME(HD_CU_MAP_L2_256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B)
SAME(HD_CU_MAP_ZEROS, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
SAME(HD_CU_FUNCTION_SHARED_BYTES,
     CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
static_assert(sizeof(hd_cu_tensor_map) == sizeof(CUtensorMap) &&
              alignof(hd_cu_tensor_map) == alignof(CUtensorMap));
SAME(HD_CU_LAUNCH_CLUSTER, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
SAME(HD_CU_LAUNCH_END, CU_LAUNCH_PARAM_END_AS_INT)
SAME(HD_CU_LAUNCH_BUFFER, CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT)
SAME(HD_CU_LAUNCH_BUFFER_SIZE, CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT)
SAME(HD_CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
SAME(HD_CU_POINTER_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID)
SAME(HD_CU_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
SAME(HD_CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE)
SAME(HD_CU_MEMORY_UNIFIED, CU_MEMORYTYPE_UNIFIED)

SAME(HD_LT_F32, CUDA_R_32F)
SAME(HD_LT_F64, CUDA_R_64F)
SAME(HD_LT_F16, CUDA_R_16F)
SAME(HD_LT_BF16, CUDA_R_16BF)
SAME(HD_LT_F8E4M3, CUDA_R_8F_E4M3)
SAME(HD_LT_F8E5M2, CUDA_R_8F_E5M2)
SAME(HD_LT_COMPUTE_32F, CUBLAS_COMPUTE_32F)
SAME(HD_LT_COMPUTE_64F, CUBLAS_COMPUTE_64F)
SAME(HD_LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA)
SAME(HD_LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB)
SAME(HD_LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE)
SAME(HD_LT_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER)
SAME(HD_LT_DESC_EPILOGUE_AUX_POINTER, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)
SAME(HD_LT_DESC_EPILOGUE_AUX_LD, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD)
SAME(HD_LT_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER)
SAME(HD_LT_DESC_B_SCALE_POINTER, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER)
SAME(HD_LT_DESC_SM_COUNT_TARGET, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET)
SAME(HD_LT_DESC_FAST_ACCUM, CUBLASLT_MATMUL_DESC_FAST_ACCUM)
SAME(HD_LT_DESC_BIAS_DATA_TYPE, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE)
SAME(HD_LT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT)
SAME(HD_LT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU)
SAME(HD_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS)
SAME(HD_LT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS)
SAME(HD_LT_EPILOGUE_GELU, CUBLASLT_EPILOGUE_GELU)
SAME(HD_LT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_BIAS)
SAME(HD_LT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX)
SAME(HD_LT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
SAME(HD_LT_PREF_MAX_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
SAME(HD_LT_PREF_REDUCTION_MASK, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
SAME(HD_LT_REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
SAME(HD_LT_REDUCTION_OUTPUT_TYPE, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)
SAME(HD_LT_REDUCTION_MASK, CUBLASLT_REDUCTION_SCHEME_MASK)
SAME(HD_LT_PREF_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
SAME(HD_LT_PREF_ALIGN_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES)
SAME(HD_LT_PREF_ALIGN_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES)
SAME(HD_LT_PREF_ALIGN_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES)
SAME(HD_LT_OP_N, CUBLAS_OP_N)
SAME(HD_LT_OP_T, CUBLAS_OP_T)

SAME(HD_NCCL_SUCCESS, ncclSuccess)
SAME(HD_NCCL_IN_PROGRESS, ncclInProgress)
SAME(HD_NCCL_I8, ncclInt8)
SAME(HD_NCCL_U8, ncclUint8)
SAME(HD_NCCL_I32, ncclInt32)
SAME(HD_NCCL_I64, ncclInt64)
SAME(HD_NCCL_F16, ncclFloat16)
SAME(HD_NCCL_F32, ncclFloat32)
SAME(HD_NCCL_F64, ncclFloat64)
SAME(HD_NCCL_BF16, ncclBfloat16)
SAME(HD_NCCL_SUM, ncclSum)
SAME(HD_NCCL_MAX, ncclMax)
SAME(HD_NCCL_MIN, ncclMin)

#define SAME_SIZE(ours, theirs)                         \
    static_assert(sizeof(ours) == sizeof(theirs) &&     \
                      alignof(ours) == alignof(theirs), \
                  #ours " is as large as " #theirs);
SAME_SIZE(hd_cu_ptr, CUdeviceptr)
SAME_SIZE(hd_cu_device, CUdevice)
SAME_SIZE(hd_cu_result, CUresult)
SAME_SIZE(hd_cu_ipc_handle, CUipcMemHandle)
SAME_SIZE(hd_cu_uuid, CUuuid)
SAME_SIZE(hd_cu_memop, CUstreamBatchMemOpParams)
SAME_SIZE(hd_cu_launch_config, CUlaunchConfig)
SAME_SIZE(hd_cu_launch_attribute, CUlaunchAttribute)
SAME_SIZE(hd_cu_kernel_node, CUDA_KERNEL_NODE_PARAMS_v2)
SAME_SIZE(hd_cu_copy_node, CUDA_MEMCPY3D)
SAME_SIZE(hd_cu_fill_node, CUDA_MEMSET_NODE_PARAMS)
SAME_SIZE(hd_cu_copy_2d, CUDA_MEMCPY2D)
SAME_SIZE(hd_cu_words_node, CUDA_BATCH_MEM_OP_NODE_PARAMS)
SAME_SIZE(hd_cu_update_result, CUgraphExecUpdateResultInfo)
SAME_SIZE(hd_lt_algo, cublasLtMatmulAlgo_t)
SAME_SIZE(hd_lt_heuristic, cublasLtMatmulHeuristicResult_t)
SAME_SIZE(hd_nccl_id, ncclUniqueId)

#define SAME_OFFSET(ours, field, theirs, field_of_theirs)                     \
    static_assert(offsetof(ours, field) == offsetof(theirs, field_of_theirs), \
                  #ours "." #field);
#define SAME_WORD(field)                                           \
    SAME_OFFSET(hd_cu_memop, word.field, CUstreamBatchMemOpParams, \
                waitValue.field)                                   \
    SAME_OFFSET(hd_cu_memop, word.field, CUstreamBatchMemOpParams, \
                writeValue.field)
SAME_WORD(operation)
SAME_WORD(address)
SAME_WORD(value)
SAME_WORD(value64)
SAME_WORD(flags)
SAME_WORD(alias)
#define SAME_CONFIG(ours, theirs) \
    SAME_OFFSET(hd_cu_launch_config, ours, CUlaunchConfig, theirs)
SAME_CONFIG(grid, gridDimX)
SAME_CONFIG(block, blockDimX)
SAME_CONFIG(shared_bytes, sharedMemBytes)
SAME_CONFIG(stream, hStream)
SAME_CONFIG(attribute, attrs)
SAME_CONFIG(nattributes, numAttrs)
SAME_OFFSET(hd_cu_launch_attribute, value, CUlaunchAttribute, value)
#define SAME_FOUND(ours, theirs) \
    SAME_OFFSET(hd_lt_heuristic, ours, cublasLtMatmulHeuristicResult_t, theirs)
#define SAME_KERNEL(ours, theirs) \
    SAME_OFFSET(hd_cu_kernel_node, ours, CUDA_KERNEL_NODE_PARAMS_v2, theirs)
SAME_KERNEL(function, func)
SAME_KERNEL(grid, gridDimX)
SAME_KERNEL(block, blockDimX)
SAME_KERNEL(shared_bytes, sharedMemBytes)
SAME_KERNEL(parameters, kernelParams)
SAME_KERNEL(extra, extra)
SAME_KERNEL(kernel, kern)
SAME_KERNEL(context, ctx)
#define SAME_COPY(ours, theirs)                                         \
    SAME_OFFSET(hd_cu_copy_node, from.ours, CUDA_MEMCPY3D, src##theirs) \
    SAME_OFFSET(hd_cu_copy_node, to.ours, CUDA_MEMCPY3D, dst##theirs)
SAME_COPY(x, XInBytes)
SAME_COPY(y, Y)
SAME_COPY(z, Z)
SAME_COPY(level, LOD)
SAME_COPY(memory, MemoryType)
SAME_COPY(host, Host)
SAME_COPY(device, Device)
SAME_COPY(array, Array)
SAME_COPY(pitch, Pitch)
SAME_COPY(height, Height)
#define SAME_WORDS(ours, theirs) \
    SAME_OFFSET(hd_cu_words_node, ours, CUDA_BATCH_MEM_OP_NODE_PARAMS, theirs)
SAME_WORDS(context, ctx)
SAME_WORDS(n, count)
SAME_WORDS(op, paramArray)
SAME_WORDS(flags, flags)
#define SAME_UPDATE(ours, theirs) \
    SAME_OFFSET(hd_cu_update_result, ours, CUgraphExecUpdateResultInfo, theirs)
SAME_UPDATE(result, result)
SAME_UPDATE(node, errorNode)
SAME_UPDATE(from, errorFromNode)
#define SAME_2D(ours, theirs) \
    SAME_OFFSET(hd_cu_copy_2d, ours, CUDA_MEMCPY2D, theirs)
SAME_2D(from_memory, srcMemoryType)
SAME_2D(from, srcDevice)
SAME_2D(from_pitch, srcPitch)
SAME_2D(to_memory, dstMemoryType)
SAME_2D(to, dstDevice)
SAME_2D(to_pitch, dstPitch)
SAME_2D(bytes, WidthInBytes)
SAME_2D(height, Height)
SAME_OFFSET(hd_cu_copy_node, bytes, CUDA_MEMCPY3D, WidthInBytes)
SAME_OFFSET(hd_cu_copy_node, height, CUDA_MEMCPY3D, Height)
SAME_OFFSET(hd_cu_copy_node, depth, CUDA_MEMCPY3D, Depth)
#define FILL(ours, theirs) \
    SAME_OFFSET(hd_cu_fill_node, ours, CUDA_MEMSET_NODE_PARAMS, theirs)
FILL(to, dst)
FILL(pitch, pitch)
FILL(value, value)
FILL(element_bytes, elementSize)
FILL(width, width)
FILL(height, height)
SAME_FOUND(algo, algo)
SAME_FOUND(workspace, workspaceSize)
SAME_FOUND(state, state)
SAME_FOUND(waves, wavesCount)
SAME_FOUND(reserved, reserved)

} // namespace
