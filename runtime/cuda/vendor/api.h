// The parts of the CUDA driver's, cuBLASLt's, cuDNN's and NCCL's interfaces
// that the cuda driver calls, declared here so that no header of theirs is
// needed to build. Names, values and layouts are those of their own headers; a
// test compares them where those are installed. The tables are filled in from
// the .def files.
#ifndef HD_RUNTIME_CUDA_VENDOR_API_H
#define HD_RUNTIME_CUDA_VENDOR_API_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

// ------------------------------------------------------- the CUDA driver

typedef int hd_cu_result; // CUresult; 0 is success
typedef int hd_cu_device;
typedef uint64_t hd_cu_ptr; // CUdeviceptr
typedef struct CUctx_st *hd_cu_context;
typedef struct CUstream_st *hd_cu_stream;
typedef struct CUevent_st *hd_cu_event;
typedef struct CUmod_st *hd_cu_module;
typedef struct CUfunc_st *hd_cu_function;
typedef struct CUgraph_st *hd_cu_graph;
typedef struct CUgraphExec_st *hd_cu_graph_exec;
typedef struct CUgraphNode_st *hd_cu_node;

#define HD_CU_STREAM_LEGACY ((hd_cu_stream)1)
#define HD_CU_STREAM_PER_THREAD ((hd_cu_stream)2)

enum {
    HD_CU_SUCCESS = 0,
    HD_CU_OUT_OF_MEMORY = 2,
    HD_CU_NO_DEVICE = 100,
    HD_CU_NOT_READY = 600,
    HD_CU_PEER_ENABLED = 704,
    HD_CU_CAPTURE_IMPLICIT = 906,
    HD_CU_CAPTURED_EVENT = 907,
};

enum { // CUdevice_attribute
    HD_CU_SM_COUNT = 16,
    HD_CU_CAPABILITY_MAJOR = 75,
    HD_CU_CAPABILITY_MINOR = 76,
};

enum { // CUdevice_P2PAttribute
    HD_CU_P2P_RANK = 1,
    HD_CU_P2P_ACCESS = 2,
    HD_CU_P2P_ATOMICS = 3,
};

enum { // flags and kinds
    HD_CU_STREAM_NON_BLOCKING = 1,
    HD_CU_EVENT_DEFAULT = 0,
    HD_CU_EVENT_DISABLE_TIMING = 2,
    HD_CU_IPC_LAZY_PEER_ACCESS = 1,
    HD_CU_WAIT_GEQ = 0,
    HD_CU_WAIT_AND = 2,
    HD_CU_WRITE_DEFAULT = 0,
    HD_CU_HOST_PORTABLE = 1,
    HD_CU_HOST_DEVICEMAP = 2,
    HD_CU_CAPTURE_RELAXED = 2, // CUstreamCaptureMode
    HD_CU_CAPTURE_NONE = 0,    // CUstreamCaptureStatus
    HD_CU_CAPTURE_ACTIVE = 1,
    HD_CU_NODE_KERNEL = 0, // CUgraphNodeType
    HD_CU_NODE_COPY = 1,
    HD_CU_NODE_FILL = 2,
    HD_CU_NODE_WORDS = 12,
    HD_CU_OP_WAIT_32 = 1, // CUstreamBatchMemOpType
    HD_CU_OP_WRITE_32 = 2,
    HD_CU_POINTER_MEMORY_TYPE = 2, // CUpointer_attribute
    HD_CU_POINTER_BUFFER_ID = 7,
    HD_CU_POINTER_DEVICE_ORDINAL = 9,
    HD_CU_MEMORY_DEVICE = 2,  // CUmemorytype
    HD_CU_MEMORY_UNIFIED = 4, // wherever the address is
    HD_CU_LAUNCH_CLUSTER = 4, // CUlaunchAttributeID
    HD_CU_LAUNCH_EARLY = 6,   // programmatic stream serialization
    HD_CU_MAP_U8 = 0,         // CUtensorMapDataType
    HD_CU_MAP_F16 = 6,
    HD_CU_MAP_BF16 = 9,
    HD_CU_MAP_PLAIN = 0,             // CUtensorMapInterleave
    HD_CU_MAP_SWIZZLE_128 = 3,       // CUtensorMapSwizzle
    HD_CU_MAP_L2_256 = 3,            // CUtensorMapL2promotion
    HD_CU_MAP_ZEROS = 0,             // CUtensorMapFloatOOBfill
    HD_CU_FUNCTION_SHARED_BYTES = 8, // CUfunction_attribute
    HD_CU_SHARED_BYTES = 48 << 10,   // that a launch may have without it
    HD_CU_LAUNCH_END = 0,            // CU_LAUNCH_PARAM_..: of `extra`
    HD_CU_LAUNCH_BUFFER = 1,
    HD_CU_LAUNCH_BUFFER_SIZE = 2,
};

typedef struct hd_cu_ipc_handle {
    char reserved[64];
} hd_cu_ipc_handle;

typedef struct hd_cu_tensor_map {
    uint64_t opaque[16] __attribute__((aligned(128)));
} hd_cu_tensor_map;

typedef struct hd_cu_uuid {
    char bytes[16];
} hd_cu_uuid;

typedef union hd_cu_memop { // CUstreamBatchMemOpParams
    int operation;
    struct {
        int operation;
        hd_cu_ptr address;
        union {
            uint32_t value;
            uint64_t value64;
        };
        unsigned flags;
        hd_cu_ptr alias;
    } word; // of waits and writes alike
    uint64_t pad[6];
} hd_cu_memop;
_Static_assert(sizeof(hd_cu_memop) == 48, "CUstreamBatchMemOpParams");

typedef struct hd_cu_update_result { // CUgraphExecUpdateResultInfo
    int result;
    hd_cu_node node, from;
} hd_cu_update_result;

typedef struct hd_cu_launch_attribute { // CUlaunchAttribute
    int id;
    char pad[4];
    union {
        uint64_t room[8];
        unsigned cluster[3];
        int early;
    } value;
} hd_cu_launch_attribute;

typedef struct hd_cu_launch_config { // CUlaunchConfig
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    hd_cu_stream stream;
    hd_cu_launch_attribute *attribute;
    unsigned nattributes;
} hd_cu_launch_config;

typedef struct hd_cu_kernel_node { // CUDA_KERNEL_NODE_PARAMS_v2
    hd_cu_function function;
    unsigned grid[3], block[3];
    unsigned shared_bytes;
    void **parameters, **extra;
    void *kernel; // where `function` is NULL
    hd_cu_context context;
} hd_cu_kernel_node;

typedef struct hd_cu_fill_node { // CUDA_MEMSET_NODE_PARAMS_v1
    hd_cu_ptr to;
    size_t pitch; // of one row: anything
    unsigned value, element_bytes;
    size_t width, height; // elements, rows
} hd_cu_fill_node;

typedef struct hd_cu_copy_end { // half of CUDA_MEMCPY3D
    size_t x, y, z, level;
    int memory; // CUmemorytype
    const void *host;
    hd_cu_ptr device;
    void *array, *reserved;
    size_t pitch, height;
} hd_cu_copy_end;

typedef struct hd_cu_copy_node { // CUDA_MEMCPY3D
    hd_cu_copy_end from, to;
    size_t bytes, height, depth;
} hd_cu_copy_node;

typedef struct hd_cu_copy_2d { // CUDA_MEMCPY2D
    size_t from_x, from_y;
    int from_memory;
    const void *from_host;
    hd_cu_ptr from;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    int to_memory;
    void *to_host;
    hd_cu_ptr to;
    void *to_array;
    size_t to_pitch;
    size_t bytes, height;
} hd_cu_copy_2d;

typedef struct hd_cu_words_node { // CUDA_BATCH_MEM_OP_NODE_PARAMS
    hd_cu_context context;
    unsigned n;
    hd_cu_memop *op;
    unsigned flags;
} hd_cu_words_node;

typedef struct hd_cu_api {
#define HD_CU(symbol, name, ...) hd_cu_result (*name)(__VA_ARGS__);
#include "runtime/cuda/vendor/cuda.def"
#undef HD_CU
} hd_cu_api;

// ------------------------------------------------------------- cuBLASLt

typedef struct cublasLtContext *hd_lt_handle;
typedef struct hd_lt_desc_opaque *hd_lt_desc;
typedef struct hd_lt_layout_opaque *hd_lt_layout;
typedef struct hd_lt_preference_opaque *hd_lt_preference;

typedef struct hd_lt_algo {
    uint64_t data[8];
} hd_lt_algo;

typedef struct hd_lt_heuristic {
    hd_lt_algo algo;
    size_t workspace;
    int state; // cublasStatus_t
    float waves;
    int reserved[4];
} hd_lt_heuristic;

enum { // cudaDataType_t
    HD_LT_F32 = 0,
    HD_LT_F64 = 1,
    HD_LT_F16 = 2,
    HD_LT_BF16 = 14,
    HD_LT_F8E4M3 = 28,
    HD_LT_F8E5M2 = 29,
};
enum { HD_LT_COMPUTE_32F = 68, HD_LT_COMPUTE_64F = 70 }; // cublasComputeType_t
enum { // cublasLtMatmulDescAttributes_t
    HD_LT_DESC_TRANSA = 3,
    HD_LT_DESC_TRANSB = 4,
    HD_LT_DESC_EPILOGUE = 7,
    HD_LT_DESC_BIAS_POINTER = 8,
    HD_LT_DESC_EPILOGUE_AUX_POINTER = 11,
    HD_LT_DESC_EPILOGUE_AUX_LD = 12,
    HD_LT_DESC_A_SCALE_POINTER = 17,
    HD_LT_DESC_B_SCALE_POINTER = 18,
    HD_LT_DESC_SM_COUNT_TARGET = 15,
    HD_LT_DESC_FAST_ACCUM = 25,
    HD_LT_DESC_BIAS_DATA_TYPE = 26,
};
enum { // cublasLtEpilogue_t
    HD_LT_EPILOGUE_DEFAULT = 1,
    HD_LT_EPILOGUE_RELU = 2,
    HD_LT_EPILOGUE_BIAS = 4,
    HD_LT_EPILOGUE_RELU_BIAS = 6,
    HD_LT_EPILOGUE_GELU = 32,
    HD_LT_EPILOGUE_GELU_BIAS = 36,
    HD_LT_EPILOGUE_GELU_AUX = 160,
    HD_LT_EPILOGUE_GELU_AUX_BIAS = 164,
};
enum { // cublasLtMatmulPreferenceAttributes_t
    HD_LT_PREF_MAX_WORKSPACE = 1,
    HD_LT_PREF_REDUCTION_MASK = 3,
    HD_LT_PREF_ALIGN_A = 5,
    HD_LT_PREF_ALIGN_B = 6,
    HD_LT_PREF_ALIGN_C = 7,
    HD_LT_PREF_ALIGN_D = 8,
};
enum { // cublasLtReductionScheme_t
    HD_LT_REDUCTION_COMPUTE_TYPE = 2,
    HD_LT_REDUCTION_OUTPUT_TYPE = 4,
    HD_LT_REDUCTION_MASK = 7,
};
enum { HD_LT_OP_N = 0, HD_LT_OP_T = 1 };
enum {
    HD_LT_LAYOUT_BATCH_COUNT = 5,
    HD_LT_LAYOUT_STRIDED_BATCH_OFFSET = 6,
};

typedef struct hd_lt_api {
#define HD_LT(symbol, result, name, ...) result (*name)(__VA_ARGS__);
#include "runtime/cuda/vendor/cublaslt.def"
#undef HD_LT
} hd_lt_api;

// ---------------------------------------------------------------- cuDNN

typedef struct cudnnContext *hd_dnn_handle;
typedef void *hd_dnn_desc; // cudnnBackendDescriptor_t

enum { // cudnnStatus_t; of thousands of a kind the first
    HD_DNN_SUCCESS = 0,
    HD_DNN_NOT_SUPPORTED = 3000,
};
enum { // cudnnDataType_t
    HD_DNN_F32 = 0,
    HD_DNN_F16 = 2,
    HD_DNN_I32 = 4,
    HD_DNN_BF16 = 9,
    HD_DNN_BOOL = 11,
};
enum { // cudnnBackendAttributeType_t
    HD_DNN_TYPE_DATA_TYPE = 1,
    HD_DNN_TYPE_BOOL = 2,
    HD_DNN_TYPE_INT64 = 3,
    HD_DNN_TYPE_POINTER = 6,
    HD_DNN_TYPE_HEURISTIC = 8,
    HD_DNN_TYPE_POINTWISE = 14,
    HD_DNN_TYPE_DESC = 15,
    HD_DNN_TYPE_REDUCTION = 18,
    HD_DNN_TYPE_INT32 = 23,
    HD_DNN_TYPE_CHAR = 24,
};
enum { // cudnnBackendDescriptorType_t
    HD_DNN_POINTWISE = 0,
    HD_DNN_CONFIG = 3,
    HD_DNN_HEURISTIC = 4,
    HD_DNN_PLAN = 5,
    HD_DNN_POINTWISE_OP = 13,
    HD_DNN_GRAPH = 15,
    HD_DNN_PACK = 16,
    HD_DNN_TENSOR = 17,
    HD_DNN_MATMUL = 18,
    HD_DNN_MATMUL_OP = 19,
    HD_DNN_REDUCTION = 21,
    HD_DNN_REDUCTION_OP = 22,
    HD_DNN_RESHAPE_OP = 31,
    HD_DNN_DEVICE = 38,
};
enum { // cudnnBackendAttributeName_t
    HD_DNN_POINTWISE_MODE = 0,
    HD_DNN_POINTWISE_PRECISION = 1,
    HD_DNN_POINTWISE_AXIS = 9,
    HD_DNN_HEURISTIC_MODE = 200,
    HD_DNN_HEURISTIC_GRAPH = 201,
    HD_DNN_HEURISTIC_RESULTS = 202,
    HD_DNN_HEURISTIC_DEVICE = 204,
    HD_DNN_PLAN_CONFIG = 401,
    HD_DNN_PLAN_WORKSPACE = 402,
    HD_DNN_PLAN_JSON = 405,
    HD_DNN_PLAN_DEVICE = 407,
    HD_DNN_POINTWISE_OP_DESC = 750,
    HD_DNN_POINTWISE_OP_X = 751,
    HD_DNN_POINTWISE_OP_B = 752,
    HD_DNN_POINTWISE_OP_Y = 753,
    HD_DNN_POINTWISE_OP_T = 758,
    HD_DNN_GRAPH_OPS = 801,
    HD_DNN_TENSOR_ALIGNMENT = 900,
    HD_DNN_TENSOR_TYPE = 901,
    HD_DNN_TENSOR_DIMS = 902,
    HD_DNN_TENSOR_STRIDES = 903,
    HD_DNN_TENSOR_UID = 906,
    HD_DNN_TENSOR_VIRTUAL = 907,
    HD_DNN_TENSOR_BY_VALUE = 908,
    HD_DNN_PACK_UIDS = 1000,
    HD_DNN_PACK_POINTERS = 1001,
    HD_DNN_PACK_WORKSPACE = 1003,
    HD_DNN_MATMUL_TYPE = 1500,
    HD_DNN_MATMUL_OP_A = 1520,
    HD_DNN_MATMUL_OP_B = 1521,
    HD_DNN_MATMUL_OP_C = 1522,
    HD_DNN_MATMUL_OP_DESC = 1523,
    HD_DNN_REDUCTION_MODE = 1600,
    HD_DNN_REDUCTION_TYPE = 1601,
    HD_DNN_REDUCTION_OP_X = 1610,
    HD_DNN_REDUCTION_OP_Y = 1611,
    HD_DNN_REDUCTION_OP_DESC = 1612,
    HD_DNN_RESHAPE_OP_X = 2200,
    HD_DNN_RESHAPE_OP_Y = 2201,
    HD_DNN_DEVICE_ID = 2700,
};
enum { // cudnnPointwiseMode_t
    HD_DNN_ADD = 0,
    HD_DNN_MUL = 1,
    HD_DNN_DIV = 6,
    HD_DNN_SUB = 9,
    HD_DNN_EXP = 13,
    HD_DNN_LOG = 15,
    HD_DNN_IDENTITY = 21,
    HD_DNN_NOT_LESS = 303, // CMP_GE
    HD_DNN_INDEX = 501,    // GEN_INDEX
    HD_DNN_SELECT = 601,
};
enum { HD_DNN_REDUCE_ADD = 0, HD_DNN_REDUCE_MAX = 3 }; // cudnnReduceTensorOp_t
enum { HD_DNN_HEURISTIC_A = 3 };                       // cudnnBackendHeurMode_t

typedef struct hd_dnn_api {
#define HD_DNN(symbol, result, name, ...) result (*name)(__VA_ARGS__);
#include "runtime/cuda/vendor/cudnn.def"
#undef HD_DNN
} hd_dnn_api;

// ----------------------------------------------------------------- NCCL

typedef struct ncclComm *hd_nccl_comm;

typedef struct hd_nccl_id {
    char bytes[128];
} hd_nccl_id;

// ncclConfig_t as NCCL 2.18 had it. Later ones take what is not in it, by its
// size and version, as not said.
#define HD_NCCL_CONFIG_MAGIC 0xcafebeefu
#define HD_NCCL_CONFIG_VERSION 21800u
#define HD_NCCL_UNSAID INT_MIN
typedef struct hd_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
    int cluster, least_blocks, most_blocks;
    const char *network; // NULL: not said
    int split_share;     // what is split from it has its connections
} hd_nccl_config;

enum { HD_NCCL_SUCCESS = 0, HD_NCCL_IN_PROGRESS = 7 };
enum { // ncclDataType_t
    HD_NCCL_I8 = 0,
    HD_NCCL_U8 = 1,
    HD_NCCL_I32 = 2,
    HD_NCCL_I64 = 4,
    HD_NCCL_F16 = 6,
    HD_NCCL_F32 = 7,
    HD_NCCL_F64 = 8,
    HD_NCCL_BF16 = 9,
};
enum { HD_NCCL_SUM = 0, HD_NCCL_MAX = 2, HD_NCCL_MIN = 3 }; // ncclRedOp_t

typedef struct hd_nccl_api {
#define HD_NCCL(symbol, result, name, ...) result (*name)(__VA_ARGS__);
#include "runtime/cuda/vendor/nccl.def"
#undef HD_NCCL
} hd_nccl_api;

// ------------------------------------------------- cuBLASMp and NVSHMEM

typedef struct cublasMpHandle *hd_mp_handle;
typedef struct cublasMpGrid *hd_mp_grid;
typedef struct cublasMpMatrixDescriptor *hd_mp_matrix;
typedef struct cublasMpMatmulDescriptor *hd_mp_desc;

enum { HD_MP_SUCCESS = 0 };
enum { HD_MP_COLUMN_MAJOR = 0, HD_MP_ROW_MAJOR = 1 }; // cublasMpGridLayout_t
enum { // cublasMpMatmulDescriptorAttribute_t
    HD_MP_DESC_TRANSPOSE_A = 0,
    HD_MP_DESC_TRANSPOSE_B = 1,
    HD_MP_DESC_ALGORITHM = 3,
    HD_MP_DESC_EPILOGUE = 5,
    HD_MP_DESC_BIAS_POINTER = 6,
};
enum { // cublasMpMatmulAlgoType_t
    HD_MP_SPLIT_P2P = 1,
    HD_MP_NO_OVERLAP = 5,
};
enum { // cublasMpMatmulEpilogue_t
    HD_MP_EPILOGUE_DEFAULT = 0,
    HD_MP_EPILOGUE_ALL_REDUCE = 1,
    HD_MP_EPILOGUE_RELU = 2,
    HD_MP_EPILOGUE_BIAS = 4,
    HD_MP_EPILOGUE_GELU = 32,
};

typedef struct hd_mp_api {
#define HD_MP(symbol, result, name, ...) result (*name)(__VA_ARGS__);
#include "runtime/cuda/vendor/cublasmp.def"
#undef HD_MP
} hd_mp_api;

typedef struct hd_shmem_api {
#define HD_SHMEM(symbol, result, name, ...) result (*name)(__VA_ARGS__);
#include "runtime/cuda/vendor/nvshmem.def"
#undef HD_SHMEM
} hd_shmem_api;

#endif
