// A fake of cuBLASLt: descriptors that remember what they are told, strict
// about what the real one takes on a GPU of capability 9.0, and a plain
// product. Matrices are column-major: D[m, n] = f(alpha op(A) op(B) + beta C +
// bias).
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include <heddle/verify.h>

#include "base/dtype.h"
#include "link.h"

#define EXPORT __attribute__((visibility("default")))

extern "C" {
#define HD_LT(symbol, result, name, ...) EXPORT result symbol(__VA_ARGS__);
#include "runtime/cuda/vendor/cublaslt.def"
#undef HD_LT
}

enum {
    SUCCESS = 0,
    INVALID_VALUE = 7,
    INTERNAL_ERROR = 14,
    NOT_SUPPORTED = 15,
};

constexpr size_t WORKSPACE = 8192;

// Where a plan rounds to D's type before the end: each half of a long k, which
// a preference forbids; and, where rows do not lie at multiples of 16 bytes,
// the product before a bias or gelu, or before a C that is not D is added. What
// the real one does with such a C is not known: the fake takes the worst.
enum { HALVES = 1, THE_PRODUCT = 2, AHEAD_OF_C = 4, LONG_K = 64 };

struct cublasLtContext {
    int unused;
};

struct hd_lt_desc_opaque {
    int compute, scale_type;
    int32_t transa = HD_LT_OP_N, transb = HD_LT_OP_N;
    uint32_t epilogue = HD_LT_EPILOGUE_DEFAULT;
    const void *bias = nullptr;
    void *aux = nullptr;
    int64_t aux_ld = 0;
    const float *scale_a = nullptr, *scale_b = nullptr;
    int32_t sm_count = 0;
    int8_t fast_accum = 0;
    int32_t bias_type = -1;
};

struct hd_lt_layout_opaque {
    int type;
    uint64_t rows, columns;
    int64_t ld;
    int32_t batch = 1;
    int64_t step = 0; // elements from one matrix of the batch to the next
};

struct hd_lt_preference_opaque {
    uint64_t workspace = 0;
    uint32_t reductions = HD_LT_REDUCTION_MASK;
    uint32_t align[4] = {256, 256, 256, 256}; // A, B, C, D
};

namespace
{

struct Matrix {
    const void *at;
    hd_lt_layout_opaque layout;
};

// A product as it was asked for: later changes to descriptors do not matter.
struct Product {
    hd_lt_desc_opaque desc;
    Matrix a, b, c;
    hd_lt_layout_opaque layout_d;
    void *d;
    double alpha, beta;
    uint64_t m, n, k;
    void *workspace;  // NULL if it was told that it needs none
    bool staged;      // A is there
    double seconds;   // that it takes on top, by the clock of events
    uint64_t rounds;  // what it rounds to D's type on the way
    std::string plan; // that it is counted for when it runs
};

uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text == nullptr ? otherwise : strtoull(text, nullptr, 0);
}

// ------------------------------------------------------------------ plans

uint64_t count_plans()
{
    return std::max<uint64_t>(setting("FAKE_CUBLASLT_PLANS", 1), 1);
}

double seconds_of(uint64_t plan)
{
    uint64_t fastest = setting("FAKE_CUBLASLT_FASTEST", 0);

    if (count_plans() == 1)
        return 0;
    return 100 * static_cast<double>(plan > fastest ? plan - fastest
                                                    : fastest - plan);
}

bool dtype_of(int type, hd_dtype *out)
{
    switch (type) {
    case HD_LT_F64:
        *out = HD_DTYPE_F64;
        return true;
    case HD_LT_F32:
        *out = HD_DTYPE_F32;
        return true;
    case HD_LT_F16:
        *out = HD_DTYPE_F16;
        return true;
    case HD_LT_BF16:
        *out = HD_DTYPE_BF16;
        return true;
    case HD_LT_F8E4M3:
        *out = HD_DTYPE_F8E4M3;
        return true;
    case HD_LT_F8E5M2:
        *out = HD_DTYPE_F8E5M2;
        return true;
    default:
        return false;
    }
}

size_t size_of(int type)
{
    hd_dtype dtype = HD_DTYPE_U8;

    return dtype_of(type, &dtype) ? hd_dtype_size(dtype) : 0;
}

bool is_f8(int type)
{
    return type == HD_LT_F8E4M3 || type == HD_LT_F8E5M2;
}

bool has_bias(uint32_t epilogue)
{
    return (epilogue & HD_LT_EPILOGUE_BIAS) != 0;
}

bool has_aux(uint32_t epilogue)
{
    return (epilogue & 128) != 0;
}

bool is_epilogue(uint32_t epilogue)
{
    switch (epilogue) {
    case HD_LT_EPILOGUE_DEFAULT:
    case HD_LT_EPILOGUE_RELU:
    case HD_LT_EPILOGUE_BIAS:
    case HD_LT_EPILOGUE_RELU_BIAS:
    case HD_LT_EPILOGUE_GELU:
    case HD_LT_EPILOGUE_GELU_BIAS:
    case HD_LT_EPILOGUE_GELU_AUX:
    case HD_LT_EPILOGUE_GELU_AUX_BIAS:
        return true;
    default:
        return false;
    }
}

size_t span_bytes(const hd_lt_layout_opaque &layout)
{
    return ((layout.columns - 1) * static_cast<uint64_t>(layout.ld) +
            layout.rows +
            static_cast<uint64_t>(layout.batch - 1) *
                static_cast<uint64_t>(layout.step)) *
           size_of(layout.type);
}

// ------------------------------------------------------------- checks

int check_shapes(Product &p)
{
    const hd_lt_layout_opaque &a = p.a.layout, &b = p.b.layout;
    const hd_lt_layout_opaque &c = p.c.layout, &d = p.layout_d;
    bool ta = p.desc.transa == HD_LT_OP_T, tb = p.desc.transb == HD_LT_OP_T;

    p.m = ta ? a.columns : a.rows;
    p.k = ta ? a.rows : a.columns;
    p.n = tb ? b.rows : b.columns;
    if (p.m == 0 || p.n == 0 || p.k == 0 || (tb ? b.columns : b.rows) != p.k ||
        d.rows != p.m || d.columns != p.n || c.rows != p.m || c.columns != p.n)
        return INVALID_VALUE;
    for (const hd_lt_layout_opaque *layout : {&a, &b, &c, &d}) {
        if (layout->ld < static_cast<int64_t>(layout->rows) ||
            layout->batch != d.batch || layout->step < 0)
            return INVALID_VALUE;
    }
    return d.batch > 1 && d.step == 0 ? INVALID_VALUE : SUCCESS;
}

// What is multiplied in f8 comes transposed, in multiples of 16 bytes.
bool takes_f8(const Product &p)
{
    int a = p.a.layout.type, b = p.b.layout.type, d = p.layout_d.type;

    if (!is_f8(a) || !is_f8(b) || (a == HD_LT_F8E5M2 && b == HD_LT_F8E5M2) ||
        p.desc.transa != HD_LT_OP_T || p.desc.transb != HD_LT_OP_N)
        return false;
    if (d != HD_LT_F32 && d != HD_LT_F16 && d != HD_LT_BF16)
        return false;
    return p.k % 16 == 0 && p.m % 16 == 0 && p.a.layout.ld % 16 == 0 &&
           p.b.layout.ld % 16 == 0 &&
           static_cast<size_t>(p.layout_d.ld) * size_of(d) % 16 == 0;
}

bool takes_types(const Product &p)
{
    int a = p.a.layout.type, b = p.b.layout.type, d = p.layout_d.type;

    if (p.c.layout.type != d)
        return false;
    if (p.desc.compute == HD_LT_COMPUTE_64F)
        return p.desc.scale_type == HD_LT_F64 && a == HD_LT_F64 &&
               b == HD_LT_F64 && d == HD_LT_F64;
    if (p.desc.compute != HD_LT_COMPUTE_32F || p.desc.scale_type != HD_LT_F32)
        return false;
    if (is_f8(a) || is_f8(b))
        return takes_f8(p);
    if (p.desc.scale_a != nullptr || p.desc.scale_b != nullptr)
        return false;
    return a == b && (d == a || d == HD_LT_F32) &&
           (a == HD_LT_F32 || a == HD_LT_F16 || a == HD_LT_BF16);
}

int bias_type(const Product &p)
{
    bool halved = is_f8(p.a.layout.type) && p.layout_d.type == HD_LT_F32;

    return halved ? HD_LT_BF16 : p.layout_d.type;
}

bool takes_epilogue(const Product &p)
{
    const hd_lt_desc_opaque &desc = p.desc;

    if (!is_epilogue(desc.epilogue))
        return false;
    if (has_bias(desc.epilogue) && desc.bias_type != -1 &&
        desc.bias_type != bias_type(p))
        return false;
    return !has_aux(desc.epilogue) ||
           (desc.aux_ld % 8 == 0 && desc.aux_ld >= static_cast<int64_t>(p.m));
}

int check(Product &p)
{
    int status = check_shapes(p);

    if (status != SUCCESS)
        return status;
    return takes_types(p) && takes_epilogue(p) ? SUCCESS : NOT_SUPPORTED;
}

// ------------------------------------------------------------ products

void load(int type, const void *from, size_t n, float *to)
{
    hd_dtype dtype = HD_DTYPE_F32;

    dtype_of(type, &dtype);
    hd_dtype_load_float(dtype, from, n, to);
}

void load(int type, const void *from, size_t n, double *to)
{
    hd_dtype dtype = HD_DTYPE_F64;

    dtype_of(type, &dtype);
    hd_dtype_load(dtype, from, n, to);
}

void store(int type, const float *from, size_t n, void *to)
{
    hd_dtype dtype = HD_DTYPE_F32;

    dtype_of(type, &dtype);
    hd_dtype_store_float(dtype, from, n, to);
}

void store(int type, const double *from, size_t n, void *to)
{
    hd_dtype dtype = HD_DTYPE_F64;

    dtype_of(type, &dtype);
    hd_dtype_store(dtype, from, n, to);
}

const char *column(const void *at, const hd_lt_layout_opaque &layout,
                   uint64_t j)
{
    return static_cast<const char *>(at) +
           j * static_cast<uint64_t>(layout.ld) * size_of(layout.type);
}

// Dense and column-major, transposed if asked for.
template <class T> std::vector<T> unpack(const Matrix &matrix, bool transposed)
{
    const hd_lt_layout_opaque &layout = matrix.layout;
    std::vector<T> out(layout.rows * layout.columns), one(layout.rows);

    for (uint64_t j = 0; j < layout.columns; j++) {
        load(layout.type, column(matrix.at, layout, j), layout.rows,
             one.data());
        for (uint64_t i = 0; i < layout.rows; i++)
            out[transposed ? i * layout.columns + j : j * layout.rows + i] =
                one[i];
    }
    return out;
}

template <class T> T gelu(T x)
{
    T inner = static_cast<T>(0.79788456080286535588) *
              (x + static_cast<T>(0.044715) * x * x * x);

    return static_cast<T>(0.5) * x * (1 + std::tanh(inner));
}

template <class T> void activate(uint32_t epilogue, std::vector<T> &sums)
{
    for (T &x : sums) {
        if ((epilogue & HD_LT_EPILOGUE_GELU) != 0)
            x = gelu(x);
        else if ((epilogue & HD_LT_EPILOGUE_RELU) != 0)
            x = x < 0 ? 0 : x;
    }
}

template <class T> void round_to(int type, std::vector<T> &values)
{
    std::vector<T> rounded(values.size());

    store(type, values.data(), values.size(), rounded.data());
    load(type, rounded.data(), values.size(), values.data());
}

// Column j of alpha op(A) op(B) is in `sums`.
template <class T>
void finish_column(const Product &p, uint64_t j, const std::vector<T> &bias,
                   std::vector<T> &sums)
{
    std::vector<T> old(p.m);

    if ((p.rounds & AHEAD_OF_C) != 0)
        round_to(p.layout_d.type, sums);
    if (p.beta != 0) {
        load(p.c.layout.type, column(p.c.at, p.c.layout, j), p.m, old.data());
        for (uint64_t i = 0; i < p.m; i++)
            sums[i] += static_cast<T>(p.beta) * old[i];
    }
    if ((p.rounds & THE_PRODUCT) != 0)
        round_to(p.layout_d.type, sums);
    for (uint64_t i = 0; i < bias.size(); i++)
        sums[i] += bias[i];
    if (has_aux(p.desc.epilogue)) {
        hd_lt_layout_opaque aux = {p.layout_d.type, p.m, p.n,
                                   p.desc.aux_ld,   1,   0};

        store(aux.type, sums.data(), p.m,
              const_cast<char *>(column(p.desc.aux, aux, j)));
    }
    activate(p.desc.epilogue, sums);
    store(p.layout_d.type, sums.data(), p.m,
          const_cast<char *>(column(p.d, p.layout_d, j)));
}

// sums[i] += a[i, x] b[x] for all x in order, four of them a pass.
template <class T>
void add_columns(uint64_t m, uint64_t k, const T *a, const T *b, T *sums)
{
    uint64_t x = 0;

    for (; x + 4 <= k; x += 4) {
        const T *a0 = a + x * m, *a1 = a0 + m, *a2 = a1 + m, *a3 = a2 + m;
        T b0 = b[x], b1 = b[x + 1], b2 = b[x + 2], b3 = b[x + 3];

        for (uint64_t i = 0; i < m; i++) {
            T sum = sums[i] + a0[i] * b0;

            sum += a1[i] * b1;
            sum += a2[i] * b2;
            sums[i] = sum + a3[i] * b3;
        }
    }
    for (; x < k; x++) {
        for (uint64_t i = 0; i < m; i++)
            sums[i] += a[x * m + i] * b[x];
    }
}

template <class T> void multiply(const Product &p)
{
    std::vector<T> a = unpack<T>(p.a, p.desc.transa == HD_LT_OP_T);
    std::vector<T> b = unpack<T>(p.b, p.desc.transb == HD_LT_OP_T);
    std::vector<T> bias(has_bias(p.desc.epilogue) ? p.m : 0), sums(p.m);
    T scale = static_cast<T>(p.alpha);

    if (p.desc.scale_a != nullptr)
        scale *= static_cast<T>(*p.desc.scale_a);
    if (p.desc.scale_b != nullptr)
        scale *= static_cast<T>(*p.desc.scale_b);
    if (!bias.empty())
        load(bias_type(p), p.desc.bias, p.m, bias.data());
    for (uint64_t j = 0; j < p.n; j++) {
        uint64_t half = (p.rounds & HALVES) != 0 ? p.k / 2 : 0;

        std::fill(sums.begin(), sums.end(), T(0));
        add_columns(p.m, half, a.data(), &b[j * p.k], sums.data());
        if (half > 0)
            round_to(p.layout_d.type, sums);
        add_columns(p.m, p.k - half, &a[half * p.m], &b[j * p.k + half],
                    sums.data());
        for (T &x : sums)
            x *= scale;
        finish_column(p, j, bias, sums);
    }
}

bool reaches(const void *at, size_t bytes)
{
    return fake::find_in_cuda<decltype(fake_cuda_reaches)>("fake_cuda_reaches")(
               at, bytes) != 0;
}

bool reaches_all(const Product &p)
{
    hd_lt_layout_opaque aux = {p.layout_d.type, p.m, p.n, p.desc.aux_ld, 1, 0};

    return reaches(p.a.at, span_bytes(p.a.layout)) &&
           reaches(p.b.at, span_bytes(p.b.layout)) &&
           (p.beta == 0 || reaches(p.c.at, span_bytes(p.c.layout))) &&
           reaches(p.d, span_bytes(p.layout_d)) &&
           (!has_bias(p.desc.epilogue) ||
            reaches(p.desc.bias, p.m * size_of(bias_type(p)))) &&
           (!has_aux(p.desc.epilogue) ||
            reaches(p.desc.aux, span_bytes(aux))) &&
           (p.desc.scale_a == nullptr || reaches(p.desc.scale_a, 4)) &&
           (p.desc.scale_b == nullptr || reaches(p.desc.scale_b, 4)) &&
           (p.workspace == nullptr || reaches(p.workspace, WORKSPACE));
}

// C is D, or they have no byte in common; their columns may lie between each
// other's.
bool is_apart(const Product &p)
{
    const hd_lt_layout_opaque &c = p.c.layout, &d = p.layout_d;
    int64_t step = c.ld * static_cast<int64_t>(size_of(c.type));
    int64_t width = static_cast<int64_t>(c.rows * size_of(c.type));

    if (p.beta == 0 || p.c.at == p.d)
        return true;
    for (uint64_t j = 0; j < d.columns; j++) {
        int64_t from = column(p.d, d, j) - static_cast<const char *>(p.c.at);
        int64_t i = std::max<int64_t>(from / step, 0);

        for (; i < static_cast<int64_t>(c.columns) && i * step < from + width;
             i++) {
            if (from < i * step + width)
                return false;
        }
    }
    return true;
}

bool is_to_be_wrong(const Product &p)
{
    static std::atomic<uint64_t> ran;

    return setting("FAKE_CUBLASLT_WRONG", 0) == p.m * p.n &&
           ran++ >= setting("FAKE_CUBLASLT_RIGHT", 0);
}

// Matrix `i` of each batch; they have a bias in common.
Product one_of(const Product &p, int i)
{
    Product one = p;

    for (auto [at, layout] : {std::make_pair(&one.a.at, &p.a.layout),
                              std::make_pair(&one.b.at, &p.b.layout),
                              std::make_pair(&one.c.at, &p.c.layout)})
        if (*at != nullptr)
            *at = static_cast<const char *>(*at) +
                  i * layout->step * int64_t(size_of(layout->type));
    one.d = static_cast<char *>(one.d) +
            i * p.layout_d.step * int64_t(size_of(p.layout_d.type));
    return one;
}

// The workspace is this product's alone while it runs; whoever else writes
// there is found.
int run_product(void *data)
{
    const Product &p = *static_cast<const Product *>(data);
    std::vector<uint64_t> mark(WORKSPACE / sizeof(uint64_t),
                               reinterpret_cast<uintptr_t>(&mark) ^
                                   reinterpret_cast<uintptr_t>(p.d));
    bool marks = p.workspace != nullptr && !p.staged;

    for (int i = 0; i < p.layout_d.batch; i++)
        if (!is_apart(one_of(p, i)))
            return 1;
    if (!reaches_all(p))
        return 1;
    (void)fake::fails(p.plan.c_str()); // counts it
    for (double end =
             fake::clock_now() + 1e-3 * setting("FAKE_CUBLASLT_SLEEP", 0);
         fake::clock_now() < end;)
        usleep(500);
    if (p.seconds > 0)
        fake::find_in_cuda<decltype(fake_cuda_spend)>("fake_cuda_spend")(
            p.seconds);
    if (marks)
        memcpy(p.workspace, mark.data(), WORKSPACE);
    for (int i = 0; i < p.layout_d.batch; i++)
        if (p.desc.compute == HD_LT_COMPUTE_64F)
            multiply<double>(one_of(p, i));
        else
            multiply<float>(one_of(p, i));
    if (is_to_be_wrong(p))
        *static_cast<unsigned char *>(p.d) ^= 0x40;
    return marks && memcmp(p.workspace, mark.data(), WORKSPACE) != 0;
}

int run_nothing(void *data)
{
    (void)data;
    return 0;
}

// What another kernel reads in A's place.
int run_stage(void *data)
{
    const Product &p = *static_cast<const Product *>(data);

    if (!reaches_all(p))
        return 1;
    memcpy(p.workspace, p.a.at, span_bytes(p.a.layout));
    return 0;
}

void free_product(void *data)
{
    delete static_cast<Product *>(data);
}

struct Kernel {
    int (*run)(void *data);
    Product product;
};

// Of two the first brings A into the workspace if there is room.
std::vector<Kernel> kernels_of(const Product &p)
{
    std::vector<Kernel> kernels{{run_product, p}};
    uint64_t n = setting("FAKE_CUBLASLT_KERNELS", 1);

    if (n > 1 && p.workspace != nullptr &&
        span_bytes(p.a.layout) <= WORKSPACE) {
        kernels.insert(kernels.begin(), {run_stage, p});
        kernels[1].product.a.at = p.workspace;
        kernels[1].product.staged = true;
    }
    while (kernels.size() < n)
        kernels.insert(kernels.begin(), {run_nothing, p});
    return kernels;
}

double number(int scale_type, const void *at)
{
    double wide;
    float narrow;

    memcpy(&narrow, at, sizeof(narrow));
    if (scale_type != HD_LT_F64)
        return narrow;
    memcpy(&wide, at, sizeof(wide));
    return wide;
}

// A product's mark in the algorithm: one for another product is not taken.
uint64_t likes_of(uint64_t extent)
{
    uint64_t power = 1;

    while (power < extent)
        power *= 2;
    return power;
}

// A way is one for products of about that size.
uint64_t mark_of(const Product &p)
{
    uint64_t mark = 0x68656464;

    for (uint64_t part : {likes_of(p.m), likes_of(p.n), likes_of(p.k),
                          static_cast<uint64_t>(p.a.layout.ld),
                          static_cast<uint64_t>(p.b.layout.ld),
                          static_cast<uint64_t>(p.c.layout.ld),
                          static_cast<uint64_t>(p.layout_d.ld),
                          static_cast<uint64_t>(p.layout_d.type),
                          static_cast<uint64_t>(p.a.layout.type),
                          likes_of(static_cast<uint64_t>(p.layout_d.batch)),
                          static_cast<uint64_t>(p.desc.epilogue)})
        mark = (mark ^ part) * 0x9e3779b97f4a7c15;
    return mark | 1;
}

// data[0] is the mark, data[1] the workspace's bytes, data[2..5] alignments,
// data[6] which plan it is, data[7] where it rounds.
bool is_for(const hd_lt_algo &algo, const Product &p, size_t workspace_bytes)
{
    const void *at[] = {p.a.at, p.b.at, p.c.at, p.d};

    if (algo.data[0] != mark_of(p) || algo.data[1] > workspace_bytes ||
        algo.data[6] >= count_plans())
        return false;
    for (int i = 0; i < 4; i++) {
        if (reinterpret_cast<uintptr_t>(at[i]) % algo.data[2 + i] != 0)
            return false;
    }
    return true;
}

uint64_t rounds_where(const Product &p, const hd_lt_preference_opaque &asked,
                      bool in_place)
{
    bool even = true, pass = p.desc.epilogue != HD_LT_EPILOGUE_DEFAULT &&
                             p.desc.epilogue != HD_LT_EPILOGUE_RELU;

    for (uint32_t align : asked.align)
        even &= align >= 16;
    for (const hd_lt_layout_opaque *layout :
         {&p.a.layout, &p.b.layout, &p.c.layout, &p.layout_d})
        even &=
            static_cast<size_t>(layout->ld) * size_of(layout->type) % 16 == 0;
    return ((asked.reductions & HD_LT_REDUCTION_OUTPUT_TYPE) != 0 &&
                    p.k >= LONG_K
                ? HALVES
                : 0) |
           (pass && !even ? THE_PRODUCT : 0) |
           (!in_place && !even ? AHEAD_OF_C : 0);
}

} // namespace

// ---------------------------------------------------------- entry points

size_t cublasLtGetVersion(void)
{
    return setting("FAKE_CUBLASLT_VERSION", 130000);
}

const char *cublasLtGetStatusString(int status)
{
    switch (status) {
    case SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case INTERNAL_ERROR:
        return "CUBLAS_STATUS_INTERNAL_ERROR";
    case NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "CUBLAS_STATUS unknown";
    }
}

#define ENTER()                    \
    do {                           \
        if (fake::fails(__func__)) \
            return INTERNAL_ERROR; \
    } while (0)

template <class T>
static int destroy(const char *symbol, T *object, const char *what)
{
    bool failing = fake::fails(symbol);

    if (object == nullptr)
        return INVALID_VALUE;
    delete object;
    fake::account(what, -1);
    return failing ? INTERNAL_ERROR : SUCCESS;
}

int cublasLtCreate(hd_lt_handle *out)
{
    ENTER();
    *out = new cublasLtContext{};
    fake::account("cublasLt handles", 1);
    return SUCCESS;
}

int cublasLtDestroy(hd_lt_handle handle)
{
    return destroy(__func__, handle, "cublasLt handles");
}

int cublasLtMatmulDescCreate(hd_lt_desc *out, int compute, int scale_type)
{
    ENTER();
    *out = new hd_lt_desc_opaque;
    (*out)->compute = compute;
    (*out)->scale_type = scale_type;
    fake::account("matmul descriptors", 1);
    return SUCCESS;
}

int cublasLtMatmulDescDestroy(hd_lt_desc desc)
{
    return destroy(__func__, desc, "matmul descriptors");
}

template <class T> static int set(T &field, const void *value, size_t bytes)
{
    if (value == nullptr || bytes != sizeof(T))
        return INVALID_VALUE;
    memcpy(&field, value, sizeof(T));
    return SUCCESS;
}

static int set_op(int32_t &field, const void *value, size_t bytes)
{
    int32_t op = 0;
    int status = set(op, value, bytes);

    if (status == SUCCESS && op != HD_LT_OP_N && op != HD_LT_OP_T)
        return INVALID_VALUE;
    field = op;
    return status;
}

int cublasLtMatmulDescSetAttribute(hd_lt_desc desc, int attribute,
                                   const void *value, size_t bytes)
{
    ENTER();
    switch (attribute) {
    case HD_LT_DESC_TRANSA:
        return set_op(desc->transa, value, bytes);
    case HD_LT_DESC_TRANSB:
        return set_op(desc->transb, value, bytes);
    case HD_LT_DESC_EPILOGUE:
        return set(desc->epilogue, value, bytes);
    case HD_LT_DESC_BIAS_POINTER:
        return set(desc->bias, value, bytes);
    case HD_LT_DESC_EPILOGUE_AUX_POINTER:
        return set(desc->aux, value, bytes);
    case HD_LT_DESC_EPILOGUE_AUX_LD:
        return set(desc->aux_ld, value, bytes);
    case HD_LT_DESC_A_SCALE_POINTER:
        return set(desc->scale_a, value, bytes);
    case HD_LT_DESC_B_SCALE_POINTER:
        return set(desc->scale_b, value, bytes);
    case HD_LT_DESC_SM_COUNT_TARGET:
        return set(desc->sm_count, value, bytes);
    case HD_LT_DESC_FAST_ACCUM:
        return set(desc->fast_accum, value, bytes);
    case HD_LT_DESC_BIAS_DATA_TYPE:
        return set(desc->bias_type, value, bytes);
    default:
        return INVALID_VALUE;
    }
}

int cublasLtMatrixLayoutCreate(hd_lt_layout *out, int type, uint64_t rows,
                               uint64_t columns, int64_t ld)
{
    ENTER();
    if (size_of(type) == 0)
        return INVALID_VALUE;
    *out = new hd_lt_layout_opaque{type, rows, columns, ld, 1, 0};
    fake::account("matrix layouts", 1);
    return SUCCESS;
}

int cublasLtMatrixLayoutSetAttribute(hd_lt_layout layout, int attribute,
                                     const void *value, size_t bytes)
{
    ENTER();
    switch (attribute) {
    case HD_LT_LAYOUT_BATCH_COUNT:
        return set(layout->batch, value, bytes);
    case HD_LT_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(layout->step, value, bytes);
    default:
        return INVALID_VALUE;
    }
}

int cublasLtMatrixLayoutDestroy(hd_lt_layout layout)
{
    return destroy(__func__, layout, "matrix layouts");
}

int cublasLtMatmulPreferenceCreate(hd_lt_preference *out)
{
    ENTER();
    *out = new hd_lt_preference_opaque;
    fake::account("matmul preferences", 1);
    return SUCCESS;
}

int cublasLtMatmulPreferenceDestroy(hd_lt_preference preference)
{
    return destroy(__func__, preference, "matmul preferences");
}

int cublasLtMatmulPreferenceSetAttribute(hd_lt_preference preference,
                                         int attribute, const void *value,
                                         size_t bytes)
{
    uint32_t align = 0;
    int status;

    ENTER();
    if (attribute == HD_LT_PREF_MAX_WORKSPACE)
        return set(preference->workspace, value, bytes);
    if (attribute == HD_LT_PREF_REDUCTION_MASK)
        return set(preference->reductions, value, bytes);
    if (attribute < HD_LT_PREF_ALIGN_A || attribute > HD_LT_PREF_ALIGN_D)
        return INVALID_VALUE;
    status = set(align, value, bytes);
    if (status != SUCCESS || align == 0 || (align & (align - 1)) != 0)
        return INVALID_VALUE;
    preference->align[attribute - HD_LT_PREF_ALIGN_A] = align;
    return SUCCESS;
}

static Product product_of(hd_lt_desc desc, hd_lt_layout a, hd_lt_layout b,
                          hd_lt_layout c, hd_lt_layout d)
{
    Product p{};

    p.desc = *desc;
    p.a.layout = *a;
    p.b.layout = *b;
    p.c.layout = *c;
    p.layout_d = *d;
    return p;
}

int cublasLtMatmulAlgoGetHeuristic(hd_lt_handle handle, hd_lt_desc desc,
                                   hd_lt_layout a, hd_lt_layout b,
                                   hd_lt_layout c, hd_lt_layout d,
                                   hd_lt_preference preference, int asked,
                                   hd_lt_heuristic *out, int *found)
{
    Product p = product_of(desc, a, b, c, d);
    int status;

    ENTER();
    *found = 0;
    if (handle == nullptr || asked < 1)
        return INVALID_VALUE;
    status = check(p);
    // Less aligned than 16 bytes, f8 has no way.
    for (uint32_t align : preference->align) {
        if (status == SUCCESS && align < (is_f8(a->type) ? 16u : 1u))
            status = NOT_SUPPORTED;
    }
    if (status != SUCCESS)
        return status;
    for (uint64_t plan = 0; plan < count_plans() && *found < asked;
         plan++, out++) {
        memset(out, 0, sizeof(*out));
        out->workspace = preference->workspace < WORKSPACE ? 0 : WORKSPACE;
        out->waves = 1;
        out->state = count_plans() > 1 && plan == count_plans() - 2
                         ? NOT_SUPPORTED
                         : SUCCESS;
        out->algo.data[0] = mark_of(p);
        out->algo.data[1] = out->workspace;
        for (int i = 0; i < 4; i++)
            out->algo.data[2 + i] = preference->align[i];
        out->algo.data[6] = plan;
        out->algo.data[7] = rounds_where(p, *preference, c == d);
        ++*found;
    }
    return SUCCESS;
}

int cublasLtMatmulAlgoCheck(hd_lt_handle handle, hd_lt_desc desc,
                            hd_lt_layout a, hd_lt_layout b, hd_lt_layout c,
                            hd_lt_layout d, const hd_lt_algo *algo,
                            hd_lt_heuristic *out)
{
    Product p = product_of(desc, a, b, c, d);
    int status;

    ENTER();
    if (handle == nullptr || algo == nullptr || out == nullptr)
        return INVALID_VALUE;
    status = check(p);
    if (status == SUCCESS && !is_for(*algo, p, algo->data[1]))
        status = NOT_SUPPORTED;
    if (status != SUCCESS)
        return status;
    memset(out, 0, sizeof(*out));
    out->algo = *algo;
    out->workspace = algo->data[1];
    out->waves = 1;
    return SUCCESS;
}

int cublasLtMatmul(hd_lt_handle handle, hd_lt_desc desc, const void *alpha,
                   const void *a, hd_lt_layout layout_a, const void *b,
                   hd_lt_layout layout_b, const void *beta, const void *c,
                   hd_lt_layout layout_c, void *d, hd_lt_layout layout_d,
                   const hd_lt_algo *algo, void *workspace,
                   size_t workspace_bytes, hd_cu_stream stream)
{
    ENTER();
    auto *enqueue =
        fake::find_in_cuda<decltype(fake_cuda_enqueue)>("fake_cuda_enqueue");
    Product p = product_of(desc, layout_a, layout_b, layout_c, layout_d);
    int status;

    p.a.at = a;
    p.b.at = b;
    p.c.at = c;
    p.d = d;
    p.alpha = number(desc->scale_type, alpha);
    p.beta = number(desc->scale_type, beta);
    status = check(p);
    if (status != SUCCESS)
        return status;
    if (handle == nullptr || a == nullptr || b == nullptr || d == nullptr ||
        enqueue == nullptr || (p.beta != 0 && c == nullptr) ||
        (has_bias(desc->epilogue) && desc->bias == nullptr) ||
        (has_aux(desc->epilogue) && desc->aux == nullptr) ||
        (c == d && layout_c != layout_d) ||
        (algo != nullptr && !is_for(*algo, p, workspace_bytes)))
        return INVALID_VALUE;
    if (algo != nullptr) {
        if (count_plans() > 1 && algo->data[6] == count_plans() - 1)
            return NOT_SUPPORTED;
        p.plan = "plan " + std::to_string(algo->data[6]);
        p.seconds = seconds_of(algo->data[6]);
        p.rounds = algo->data[7];
    }
    if (algo != nullptr && algo->data[1] != 0)
        p.workspace = workspace;
    for (const Kernel &kernel : kernels_of(p)) {
        if (enqueue(stream, kernel.run, new Product(kernel.product),
                    free_product, nullptr) != 0)
            return INTERNAL_ERROR;
    }
    return SUCCESS;
}
