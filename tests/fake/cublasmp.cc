// A fake of cuBLASMp 0.7, of the forms that overlap and the sum on all ranks:
// what it cannot tell apart it refuses, as it does a workspace that is not
// NVSHMEM's. Data crosses ranks by the fake of NCCL.
#include <vector>

#include "base/dtype.h"
#include "link.h"

extern "C" {
#define HD_MP(symbol, result, name, ...) \
    __attribute__((visibility("default"))) result symbol(__VA_ARGS__);
#include "runtime/cuda/vendor/cublasmp.def"
#undef HD_MP
}

struct cublasMpHandle {
    hd_cu_stream stream;
};
struct cublasMpGrid {
    int64_t rows, columns;
    hd_nccl_comm comm;
};
struct cublasMpMatrixDescriptor {
    int64_t m, n, mb, nb, lld;
    int type;
    hd_mp_grid grid;
};
struct cublasMpMatmulDescriptor {
    int transpose_a = 0, transpose_b = 0, algorithm = 0, epilogue = 0;
    const void *bias = nullptr;
};

namespace
{

enum {
    SUCCESS = 0,
    INVALID_VALUE = 3,
    EXECUTION_FAILED = 5,
    NOT_SUPPORTED = 7
};

enum class Form { GATHER, SCATTER, REDUCE, NONE };

bool is(const cublasMpMatrixDescriptor &x, int64_t m, int64_t n, int64_t mb,
        int64_t nb, bool over_rows)
{
    return x.m == m && x.n == n && x.mb == mb && x.nb == nb && x.lld >= mb &&
           (over_rows ? x.grid->columns : x.grid->rows) == 1;
}

// D[m, n] = A[k, m]^T B[k, n] over p ranks.
Form form_of(const cublasMpMatmulDescriptor &desc, int64_t m, int64_t n,
             int64_t k, const cublasMpMatrixDescriptor &a,
             const cublasMpMatrixDescriptor &b,
             const cublasMpMatrixDescriptor &d)
{
    int64_t p = a.grid->rows * a.grid->columns;

    if (desc.transpose_a != HD_LT_OP_T || desc.transpose_b != HD_LT_OP_N)
        return Form::NONE;
    if (desc.epilogue == HD_MP_EPILOGUE_ALL_REDUCE)
        return desc.algorithm == HD_MP_NO_OVERLAP &&
                       is(a, k, m, k / p, m, true) &&
                       is(b, k, n, k / p, n, true) &&
                       is(d, m, n * p, m, n, false)
                   ? Form::REDUCE
                   : Form::NONE;
    if (desc.algorithm != HD_MP_SPLIT_P2P)
        return Form::NONE;
    if (is(a, k, m, k, m / p, false) && is(b, k, n, k, n / p, false) &&
        is(d, m, n, m / p, n / p, true))
        return Form::GATHER;
    if (desc.epilogue == HD_MP_EPILOGUE_DEFAULT &&
        is(a, k, m, k / p, m, true) && is(b, k, n, k / p, n / p, true) &&
        is(d, m, n, m, n / p, false))
        return Form::SCATTER;
    return Form::NONE;
}

// The product of what one rank has.
struct Work {
    const char *a, *b;
    char *d;
    int64_t m, n, k, lda, ldb, ldd;
    float alpha;
    int epilogue;
    hd_dtype dtype;
    const char *bias;
};

float read(hd_dtype dtype, const char *from, int64_t at)
{
    float value;

    hd_dtype_load_float(dtype, from + 2 * at, 1, &value);
    return value;
}

float act(int epilogue, float x)
{
    double y = 0.7978845608 * (x + 0.044715 * x * x * x);

    if ((epilogue & HD_MP_EPILOGUE_RELU) != 0)
        return x > 0 ? x : 0;
    return (epilogue & HD_MP_EPILOGUE_GELU) != 0
               ? static_cast<float>(0.5 * x * (1 + __builtin_tanh(y)))
               : x;
}

int multiply(void *data)
{
    const Work &w = *static_cast<Work *>(data);

    for (int64_t i = 0; i < w.m; i++)
        for (int64_t j = 0; j < w.n; j++) {
            float sum = 0;

            for (int64_t l = 0; l < w.k; l++)
                sum += read(w.dtype, w.a, l + i * w.lda) *
                       read(w.dtype, w.b, l + j * w.ldb);
            sum *= w.alpha;
            if ((w.epilogue & HD_MP_EPILOGUE_BIAS) != 0)
                sum += read(w.dtype, w.bias, i);
            sum = act(w.epilogue, sum);
            hd_dtype_store_float(w.dtype, &sum, 1, w.d + 2 * (i + j * w.ldd));
        }
    return 0;
}

void release(void *data)
{
    delete static_cast<Work *>(data);
}

int enqueue(hd_cu_stream stream, const Work &work)
{
    auto *put =
        fake::find_in_cuda<decltype(fake_cuda_enqueue)>("fake_cuda_enqueue");
    auto *own = new Work(work);

    if (put(stream, multiply, own, release, nullptr) == HD_CU_SUCCESS)
        return SUCCESS;
    return EXECUTION_FAILED;
}

// What is gathered, or a rank's part of what is summed.
size_t workspace(Form form, int64_t m, int64_t n, int64_t k)
{
    return 2 * static_cast<size_t>(form == Form::GATHER ? k * n : m * n);
}

int sum_ranks(Form form, int type, const Work &part, char *d, hd_nccl_comm comm,
              int64_t p, hd_cu_stream stream)
{
    auto *scatter = fake::find_in<int(const void *, void *, size_t, int, int,
                                      hd_nccl_comm, hd_cu_stream)>(
        "HEDDLE_NCCL_LIB",
        form == Form::SCATTER ? "ncclReduceScatter" : "ncclAllReduce");
    size_t all = static_cast<size_t>(part.m * part.n);

    return enqueue(stream, part) == SUCCESS &&
                   scatter(part.d, d,
                           form == Form::SCATTER ? all / size_t(p) : all, type,
                           HD_NCCL_SUM, comm, stream) == HD_NCCL_SUCCESS
               ? SUCCESS
               : EXECUTION_FAILED;
}

template <class T> int give(T *made, const char *what, T **out)
{
    *out = made;
    fake::account(what, 1);
    return SUCCESS;
}

template <class T> int take_back(T *made, const char *what)
{
    delete made;
    fake::account(what, -1);
    return SUCCESS;
}

} // namespace

int cublasMpGetVersion(int *out)
{
    const char *text = getenv("FAKE_CUBLASMP_VERSION");

    *out = text != nullptr ? atoi(text) : 700;
    return SUCCESS;
}

int cublasMpCreate(hd_mp_handle *out, hd_cu_stream stream)
{
    if (fake::fails("cublasMpCreate"))
        return EXECUTION_FAILED;
    return give(new cublasMpHandle{stream}, "cuBLASMp handle", out);
}

int cublasMpDestroy(hd_mp_handle handle)
{
    return take_back(handle, "cuBLASMp handle");
}

int cublasMpStreamSet(hd_mp_handle handle, hd_cu_stream stream)
{
    handle->stream = stream;
    return fake::fails("cublasMpStreamSet") ? EXECUTION_FAILED : SUCCESS;
}

int cublasMpGridCreate(int64_t rows, int64_t columns, int layout,
                       hd_nccl_comm comm, hd_mp_grid *out)
{
    (void)layout;
    if (fake::fails("cublasMpGridCreate") || comm == nullptr)
        return INVALID_VALUE;
    return give(new cublasMpGrid{rows, columns, comm}, "cuBLASMp grid", out);
}

int cublasMpGridDestroy(hd_mp_grid grid)
{
    return take_back(grid, "cuBLASMp grid");
}

int cublasMpMatrixDescriptorCreate(int64_t m, int64_t n, int64_t mb, int64_t nb,
                                   int64_t, int64_t, int64_t lld, int type,
                                   hd_mp_grid grid, hd_mp_matrix *out)
{
    if (type != HD_LT_BF16 && type != HD_LT_F16)
        return NOT_SUPPORTED;
    return give(new cublasMpMatrixDescriptor{m, n, mb, nb, lld, type, grid},
                "cuBLASMp matrix", out);
}

int cublasMpMatrixDescriptorDestroy(hd_mp_matrix matrix)
{
    return take_back(matrix, "cuBLASMp matrix");
}

int cublasMpMatmulDescriptorCreate(hd_mp_desc *out, int compute)
{
    if (compute != 68)
        return NOT_SUPPORTED;
    return give(new cublasMpMatmulDescriptor, "cuBLASMp product", out);
}

int cublasMpMatmulDescriptorDestroy(hd_mp_desc desc)
{
    return take_back(desc, "cuBLASMp product");
}

int cublasMpMatmulDescriptorAttributeSet(hd_mp_desc desc, int attribute,
                                         const void *value, size_t bytes)
{
    int *to = attribute == HD_MP_DESC_TRANSPOSE_A   ? &desc->transpose_a
              : attribute == HD_MP_DESC_TRANSPOSE_B ? &desc->transpose_b
              : attribute == HD_MP_DESC_ALGORITHM   ? &desc->algorithm
              : attribute == HD_MP_DESC_EPILOGUE    ? &desc->epilogue
                                                    : nullptr;

    if (attribute == HD_MP_DESC_BIAS_POINTER && bytes == sizeof(void *))
        memcpy(&desc->bias, value, bytes);
    else if (to != nullptr && bytes == sizeof *to)
        memcpy(to, value, bytes);
    else
        return INVALID_VALUE;
    return SUCCESS;
}

int cublasMpMatmul_bufferSize(hd_mp_handle, hd_mp_desc desc, int64_t m,
                              int64_t n, int64_t k, const void *, const void *,
                              int64_t, int64_t, hd_mp_matrix a, const void *,
                              int64_t, int64_t, hd_mp_matrix b, const void *,
                              const void *, int64_t, int64_t, hd_mp_matrix,
                              void *, int64_t, int64_t, hd_mp_matrix d,
                              size_t *device_bytes, size_t *host_bytes)
{
    Form form = form_of(*desc, m, n, k, *a, *b, *d);

    if (form == Form::NONE || fake::fails("cublasMpMatmul_bufferSize"))
        return NOT_SUPPORTED;
    *device_bytes = workspace(form, m, n, k);
    *host_bytes = 64;
    return SUCCESS;
}

int cublasMpMatmul(hd_mp_handle handle, hd_mp_desc desc, int64_t m, int64_t n,
                   int64_t k, const void *alpha, const void *a, int64_t,
                   int64_t, hd_mp_matrix matrix_a, const void *b, int64_t,
                   int64_t, hd_mp_matrix matrix_b, const void *beta,
                   const void *, int64_t, int64_t, hd_mp_matrix, void *d,
                   int64_t, int64_t, hd_mp_matrix matrix_d, void *device_work,
                   size_t device_bytes, void *host_work, size_t host_bytes)
{
    Form form = form_of(*desc, m, n, k, *matrix_a, *matrix_b, *matrix_d);
    int64_t p = matrix_a->grid->rows * matrix_a->grid->columns;
    int type = matrix_a->type == HD_LT_BF16 ? HD_NCCL_BF16 : HD_NCCL_F16;
    auto *given = fake::find_in<size_t(const void *)>("HEDDLE_NVSHMEM_LIB",
                                                      "fake_nvshmem_bytes");
    Work work = {static_cast<const char *>(a),
                 static_cast<const char *>(b),
                 static_cast<char *>(d),
                 form == Form::GATHER ? m / p : m,
                 n,
                 form == Form::GATHER ? k : k / p,
                 matrix_a->lld,
                 matrix_b->lld,
                 matrix_d->lld,
                 *static_cast<const float *>(alpha),
                 form == Form::GATHER ? desc->epilogue : 0,
                 matrix_a->type == HD_LT_BF16 ? HD_DTYPE_BF16 : HD_DTYPE_F16,
                 static_cast<const char *>(desc->bias)};

    if (fake::fails("cublasMpMatmul") || form == Form::NONE)
        return EXECUTION_FAILED;
    if (device_bytes < workspace(form, m, n, k) || given == nullptr ||
        given(device_work) < device_bytes || host_work == nullptr ||
        host_bytes < 64 || *static_cast<const float *>(beta) != 0)
        return INVALID_VALUE;
    if (form != Form::GATHER) {
        work.d = static_cast<char *>(device_work);
        work.ldd = m;
        return matrix_d->lld == m
                   ? sum_ranks(form, type, work, static_cast<char *>(d),
                               matrix_a->grid->comm, p, handle->stream)
                   : NOT_SUPPORTED;
    }
    auto *gather =
        fake::find_in<int(const void *, void *, size_t, int, hd_nccl_comm,
                          hd_cu_stream)>("HEDDLE_NCCL_LIB", "ncclAllGather");
    if (matrix_b->lld != k)
        return NOT_SUPPORTED;
    if (gather(b, device_work, static_cast<size_t>(k * n / p), type,
               matrix_b->grid->comm, handle->stream) != HD_NCCL_SUCCESS)
        return EXECUTION_FAILED;
    work.b = static_cast<const char *>(device_work);
    work.ldb = k;
    return enqueue(handle->stream, work);
}
