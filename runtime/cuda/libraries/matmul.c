// Matmuls by cuBLASLt. It is column-major, so a row-major product goes to it
// with its operands exchanged: c^T[n,m] = b^T[n,k] a^T[k,m].
//
// Four ways, the first that fits: a kernel in tiles for groups, counts, and
// what cuBLASLt would do slowly or in two passes, where there is one; the
// product straight into the result, with cuBLASLt's own epilogues, or added to
// a matrix by itself; the product into scratch memory in f32, and a kernel for
// what follows it; a plain kernel for all of it, for what cuBLASLt does not
// take (strides, dtypes, f8 without `tb`).
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "ir/product.h"
#include "runtime/cuda/libraries/products.h"
#include "runtime/cuda/vendor/library.h"

static hd_status lt_error(const hd_device *device, int status, hd_diag *diag,
                          const char *call)
{
    return hd_fail(diag, HD_ERROR_SYSTEM, "rank %d: cuBLASLt refused '%s': %s",
                   device->rank, call,
                   device->products->lt.status_text(status));
}

#define LT_TRY(device, diag, name, ...)                         \
    do {                                                        \
        int status_ = (device)->products->lt.name(__VA_ARGS__); \
        if (status_ != 0)                                       \
            return lt_error((device), status_, (diag), #name);  \
    } while (0)

// The library's name for those who ask, with what was tuned.
static void describe_library(hd_cuda_plan *plan)
{
    hd_device *device = plan->device;
    const hd_library *library = &device->products->library;
    int tuned = 0, own = 0, n;

    n = snprintf(device->products->text, sizeof device->products->text,
                 "cuBLASLt %s (%.120s)", library->version, library->path);
    for (int i = 0; i < plan->nproducts; i++) {
        tuned += plan->product[i].tuned;
        own += plan->product[i].own.rows > 0;
    }
    if (tuned > 0)
        snprintf(device->products->text + n,
                 sizeof device->products->text - (size_t)n,
                 ", %d of %d plans tuned%s", tuned, plan->nproducts,
                 own > 0 ? ", and kernels of heddle's own" : "");
}

static hd_status open_lt(hd_cuda_plan *plan, hd_diag *diag)
{
    hd_device *device = plan->device;
    hd_cuda_products *products = device->products;

    if (products != NULL)
        return HD_OK;
    products = device->products = calloc(1, sizeof *products);
    if (products == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for products");
    HD_TRY(hd_library_open(&hd_lt_library, &products->lt, diag,
                           &products->library));
    LT_TRY(device, diag, create, &products->blas);
    describe_library(plan);
    return HD_OK;
}

const char *hd_cuda_products_text(const hd_device *device)
{
    return device->products != NULL ? device->products->text : "";
}

// ------------------------------------------------------------- products

static void free_product(hd_device *device, hd_cuda_product *product)
{
    for (int i = 0; i < 4; i++) {
        if (product->layout[i] != NULL)
            device->products->lt.layout_destroy(product->layout[i]);
    }
    if (product->desc != NULL)
        device->products->lt.desc_destroy(product->desc);
}

static hd_status describe_batch(hd_device *device,
                                const hd_cuda_product *product, hd_diag *diag)
{
    const hd_cuda_shape *s = &product->shape;
    int32_t batch = (int32_t)s->batch;

    for (int i = 0; i < HD_CUDA_MATRICES && batch > 1; i++) {
        if (product->layout[i] == NULL)
            continue;
        LT_TRY(device, diag, layout_set, product->layout[i],
               HD_LT_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
        LT_TRY(device, diag, layout_set, product->layout[i],
               HD_LT_LAYOUT_STRIDED_BATCH_OFFSET, &s->step[i],
               sizeof s->step[i]);
    }
    return HD_OK;
}

static hd_status describe(hd_device *device, hd_cuda_product *product,
                          hd_diag *diag)
{
    const hd_cuda_shape *s = &product->shape;
    bool bias = s->type_bias >= 0;

    LT_TRY(device, diag, desc_create, &product->desc,
           s->wide ? HD_LT_COMPUTE_64F : HD_LT_COMPUTE_32F,
           s->wide ? HD_LT_F64 : HD_LT_F32);
    LT_TRY(device, diag, desc_set, product->desc, HD_LT_DESC_TRANSA, &s->ta,
           sizeof s->ta);
    LT_TRY(device, diag, desc_set, product->desc, HD_LT_DESC_TRANSB, &s->tb,
           sizeof s->tb);
    LT_TRY(device, diag, desc_set, product->desc, HD_LT_DESC_EPILOGUE,
           &s->epilogue, sizeof s->epilogue);
    if (bias)
        LT_TRY(device, diag, desc_set, product->desc, HD_LT_DESC_BIAS_DATA_TYPE,
               &s->type_bias, sizeof s->type_bias);
    LT_TRY(device, diag, layout_create, &product->layout[0], s->type_a,
           (uint64_t)(s->ta ? s->k : s->m), (uint64_t)(s->ta ? s->m : s->k),
           s->lda);
    LT_TRY(device, diag, layout_create, &product->layout[1], s->type_b,
           (uint64_t)(s->tb ? s->n : s->k), (uint64_t)(s->tb ? s->k : s->n),
           s->ldb);
    LT_TRY(device, diag, layout_create, &product->layout[2], s->type_c,
           (uint64_t)s->m, (uint64_t)s->n, s->ldc);
    if (s->ld_addend > 0)
        LT_TRY(device, diag, layout_create, &product->layout[3], s->type_c,
               (uint64_t)s->m, (uint64_t)s->n, s->ld_addend);
    return describe_batch(device, product, diag);
}

static hd_status set_preference(hd_device *device, hd_lt_preference preference,
                                int64_t align, hd_diag *diag)
{
    uint64_t room = HD_CUDA_WORKSPACE_BYTES;
    uint32_t bytes = (uint32_t)align;
    uint32_t reductions = HD_LT_REDUCTION_COMPUTE_TYPE;

    LT_TRY(device, diag, preference_set, preference, HD_LT_PREF_MAX_WORKSPACE,
           &room, sizeof room);
    // Where k is split, the parts are added before they are rounded.
    LT_TRY(device, diag, preference_set, preference, HD_LT_PREF_REDUCTION_MASK,
           &reductions, sizeof reductions);
    for (int i = HD_LT_PREF_ALIGN_A; i <= HD_LT_PREF_ALIGN_D; i++)
        LT_TRY(device, diag, preference_set, preference, i, &bytes,
               sizeof bytes);
    return HD_OK;
}

// Up to `most` ways that cuBLASLt has, the one that it expects to be the
// fastest first.
static hd_status ask(hd_device *device, const hd_cuda_product *product,
                     int most, hd_diag *diag, hd_lt_heuristic *out, int *n)
{
    hd_lt_preference preference;
    hd_status status;
    int found = 0, answer = 0;

    *n = 0;
    LT_TRY(device, diag, preference_create, &preference);
    status = set_preference(device, preference, product->shape.align, diag);
    if (status == HD_OK)
        answer = device->products->lt.heuristic(
            device->products->blas, product->desc, product->layout[0],
            product->layout[1], hd_cuda_added(product), product->layout[2],
            preference, most, out, &found);
    device->products->lt.preference_destroy(preference);
    HD_TRY(status);
    for (int i = 0; i < found && answer == 0; i++) {
        if (out[i].state == 0)
            out[(*n)++] = out[i];
    }
    return HD_OK;
}

static int64_t power_of_two(int64_t n)
{
    int64_t power = 1;

    while (power < n)
        power *= 2;
    return power;
}

// The shapes that one choice is for, told by one of them.
static hd_cuda_shape likes_of(const hd_cuda_shape *shape)
{
    hd_cuda_shape likes = *shape;

    likes.m = power_of_two(shape->m);
    likes.n = power_of_two(shape->n);
    likes.k = power_of_two(shape->k);
    likes.lda = likes.ldb = likes.ldc = 0;
    likes.batch = power_of_two(shape->batch);
    memset(likes.step, 0, sizeof likes.step);
    likes.ld_addend = shape->ld_addend > 0;
    return likes;
}

static bool recall(hd_device *device, hd_cuda_product *product)
{
    hd_cuda_products *products = device->products;
    hd_cuda_shape likes = likes_of(&product->shape);

    for (unsigned i = 0; i < products->nchoices && i < HD_CUDA_CHOICES; i++) {
        hd_cuda_choice *choice = &products->choice[i];

        if (memcmp(&choice->shape, &likes, sizeof likes) == 0 &&
            hd_cuda_take(device, product, &choice->algo))
            return true;
    }
    return false;
}

static void remember(hd_device *device, const hd_cuda_product *product)
{
    hd_cuda_products *products = device->products;

    products->choice[products->nchoices++ % HD_CUDA_CHOICES] =
        (hd_cuda_choice){likes_of(&product->shape), product->algo};
}

// As cuBLASLt expects, or as it is found out.
static hd_status choose_anew(hd_cuda_plan *plan, hd_cuda_product *product,
                             const hd_step *step, hd_diag *diag, bool *found)
{
    hd_device *device = plan->device;
    hd_lt_heuristic way[HD_CUDA_PLANS];
    bool tune = device->binding.tune && plan == device->whole;
    int n = 0;

    *found = hd_cuda_tuned(device, product);
    if (*found)
        return HD_OK;
    HD_TRY(ask(device, product, tune ? HD_CUDA_PLANS : 1, diag, way, &n));
    *found = n > 0;
    if (!*found)
        return HD_OK;
    product->algo = way[0].algo;
    product->workspace = way[0].workspace;
    return tune ? hd_cuda_tune(device, product, step, way, n, diag) : HD_OK;
}

// `found` tells whether cuBLASLt has a way at all. A variant is made between
// runs: there nothing is timed, and what is known of its likes does.
static hd_status choose(hd_cuda_plan *plan, hd_cuda_product *product,
                        const hd_step *step, hd_diag *diag, bool *found)
{
    hd_device *device = plan->device;

    *found = plan != device->whole && recall(device, product);
    if (*found)
        return HD_OK;
    HD_TRY(choose_anew(plan, product, step, diag, found));
    if (*found)
        remember(device, product);
    return HD_OK;
}

// The product of this shape, or -1 if cuBLASLt has none.
static hd_status find_product(hd_cuda_plan *plan, const hd_cuda_shape *shape,
                              const hd_step *step, hd_diag *diag, int *out)
{
    hd_device *device = plan->device;
    hd_cuda_product product = {.shape = *shape};
    bool found = false;
    hd_status status;

    *out = -1;
    for (int i = 0; i < plan->nproducts; i++) {
        if (memcmp(&plan->product[i].shape, shape, sizeof *shape) == 0) {
            *out = i;
            return HD_OK;
        }
    }
    if (!hd_cuda_grow((void **)&plan->product, plan->nproducts,
                      &plan->product_room, sizeof(product)))
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a product");
    status = describe(device, &product, diag);
    if (status == HD_OK)
        status = choose(plan, &product, step, diag, &found);
    if (status != HD_OK || !found) {
        free_product(device, &product);
        return status;
    }
    plan->product[plan->nproducts] = product;
    *out = plan->nproducts++;
    if (plan == device->whole)
        describe_library(plan);
    return HD_OK;
}

void hd_cuda_products_free(hd_device *device, hd_cuda_plan *plan)
{
    for (int i = 0; i < plan->nproducts; i++)
        free_product(device, &plan->product[i]);
    free(plan->product);
}

void hd_cuda_products_close(hd_device *device)
{
    hd_cuda_products *products = device->products;

    if (products == NULL)
        return;
    if (products->blas != NULL)
        products->lt.destroy(products->blas);
    hd_library_close(&products->library);
    free(products);
}

// -------------------------------------------------------------- analysis

typedef struct job {
    hd_cuda_plan *plan;
    const hd_step *step;
    int stream;
    hd_diag *diag;
    hd_product product;
    // Of a piece, as cuBLASLt sees them: with the product's ta and tb.
    hd_matrix a, b, c, bias;
    bool fits;      // all strides are such as cuBLASLt takes
    bool adds;      // cuBLASLt's C is the bias, a matrix
    bool scratched; // the results go to scratch, one after the other
    bool batched;   // all pieces are one call of cuBLASLt's
} job;

static int lt_type(hd_dtype dtype)
{
    switch (dtype) {
    case HD_DTYPE_F64:
        return HD_LT_F64;
    case HD_DTYPE_F32:
        return HD_LT_F32;
    case HD_DTYPE_F16:
        return HD_LT_F16;
    case HD_DTYPE_BF16:
        return HD_LT_BF16;
    case HD_DTYPE_F8E4M3:
        return HD_LT_F8E4M3;
    case HD_DTYPE_F8E5M2:
        return HD_LT_F8E5M2;
    case HD_DTYPE_I64:
    case HD_DTYPE_I32:
    case HD_DTYPE_U8:
    case HD_DTYPE_I8: // whose products are a kernel's
    case HD_DTYPE_EVENT:
        break;
    }
    return -1;
}

// Where the columns are apart and the rows are not, it is the transposed that
// is stored.
static bool fit(hd_matrix *m, bool *transposed)
{
    if (m->column_stride != 1 && m->columns > 1 &&
        (m->row_stride == 1 || m->rows == 1) && transposed != NULL) {
        *m = (hd_matrix){m->columns, m->rows, m->column_stride, 1};
        *transposed = !*transposed;
    }
    if (m->rows == 1 || m->row_stride < 1)
        m->row_stride = m->rows == 1 ? m->columns : m->row_stride;
    return (m->column_stride == 1 || m->columns == 1) &&
           m->row_stride >= m->columns;
}

static bool has(const job *j, int part)
{
    return j->product.part[part].view >= 0;
}

static hd_dtype dtype_of(const job *j, int part)
{
    return j->product.part[part].span.buffer->type.dtype;
}

// The bias is one dense row, the same for all rows of all products.
static bool is_row(const job *j)
{
    const hd_span *span = &j->step->span[j->product.part[HD_PRODUCT_BIAS].view];
    int last = span->ndims - 1;
    int64_t n = j->product.n;

    return hd_span_elements(span) == n &&
           (n == 1 || (span->extent[last] == n && span->stride[last] == 1));
}

// Whether the bias is a matrix like the result, which the product is added to.
static bool fit_addend(job *j)
{
    const hd_product *p = &j->product;
    int outer = p->outer, last = p->space.nparallel - 1;

    if (!has(j, HD_PRODUCT_BIAS) || p->accumulate || p->act != HD_ACT_NONE ||
        dtype_of(j, HD_PRODUCT_BIAS) != dtype_of(j, HD_PRODUCT_C) || is_row(j))
        return false;
    j->bias = p->part[HD_PRODUCT_BIAS].matrix;
    return (last - 1 <= outer ||
            hd_span_is_even(&p->part[HD_PRODUCT_BIAS].span, outer, last - 1)) &&
           fit(&j->bias, NULL);
}

static job job_of(hd_cuda_plan *plan, int stream, const hd_step *step,
                  hd_diag *diag)
{
    job j = {.plan = plan,
             .step = step,
             .stream = stream,
             .diag = diag,
             .product = hd_product_of(step, HD_PRODUCT_BIAS)};

    j.a = j.product.part[HD_PRODUCT_A].matrix;
    j.b = j.product.part[HD_PRODUCT_B].matrix;
    j.c = j.product.part[HD_PRODUCT_C].matrix;
    j.fits = fit(&j.a, &j.product.ta);
    j.fits &= fit(&j.b, &j.product.tb);
    j.fits &= fit(&j.c, NULL);
    j.adds = fit_addend(&j);
    return j;
}

// --------------------------------------------------------------- commands

static uint64_t scratch_offset(const job *j, int64_t i)
{
    return (uint64_t)(i * j->c.rows * j->product.n) *
           (j->product.wide ? sizeof(double) : sizeof(float));
}

// The alignment that every operand of every product has: arguments begin at
// multiples of 16 bytes, buffers of the session at more.
static int64_t alignment(const job *j)
{
    uint64_t bits = 16;

    for (int64_t i = 0; i < j->product.pieces; i++)
        for (int k = HD_PRODUCT_C; k <= HD_PRODUCT_B + j->adds; k++)
            bits |= k == HD_PRODUCT_C && j->scratched
                        ? scratch_offset(j, i)
                        : (uint64_t)hd_product_offset(&j->product, k, i) *
                              hd_dtype_size(dtype_of(j, k));
    return (int64_t)(bits & -bits);
}

// Of cuBLASLt's matrices the operand that each is: rows are columns there.
static int part_of(int matrix)
{
    static const int part[HD_CUDA_MATRICES] = {[HD_CUDA_A] = HD_PRODUCT_B,
                                               [HD_CUDA_B] = HD_PRODUCT_A,
                                               [HD_CUDA_C] = HD_PRODUCT_C,
                                               [HD_CUDA_ADDEND] =
                                                   HD_PRODUCT_BIAS};

    return part[matrix];
}

// From the matrix of one piece to that of the next.
static int64_t step_of(const job *j, int matrix)
{
    int part = part_of(matrix);

    if (matrix == HD_CUDA_C && j->scratched)
        return j->c.rows * j->product.n;
    return has(j, part) ? hd_product_offset(&j->product, part, 1) -
                              hd_product_offset(&j->product, part, 0)
                        : 0;
}

// Whether all pieces lie evenly; a bias is one for all.
static bool is_batch(const job *j)
{
    int64_t n = j->product.pieces;

    for (int k = 0; k < HD_CUDA_MATRICES && n > 1; k++) {
        int part = part_of(k);
        int64_t step = step_of(j, k);

        if (!has(j, part) || (k == HD_CUDA_C && j->scratched))
            continue;
        if (step < 0 || (k == HD_CUDA_C && step == 0) ||
            (k == HD_CUDA_ADDEND && !j->adds && step != 0))
            return false;
        for (int64_t i = 1; i < n; i++)
            if (hd_product_offset(&j->product, part, i) !=
                hd_product_offset(&j->product, part, 0) + i * step)
                return false;
    }
    return n > 1 && n <= INT32_MAX;
}

static hd_cuda_shape shape_of(const job *j, int type_c, int64_t ldc,
                              int epilogue, int type_bias)
{
    hd_cuda_shape shape;

    shape.m = j->product.n;
    shape.n = j->c.rows;
    shape.k = j->product.k;
    shape.lda = j->b.row_stride;
    shape.ldb = j->a.row_stride;
    shape.ldc = ldc;
    shape.ld_addend = j->adds ? j->bias.row_stride : 0;
    shape.batch = j->batched ? j->product.pieces : 1;
    for (int i = 0; i < HD_CUDA_MATRICES; i++)
        shape.step[i] = j->batched ? step_of(j, i) : 0;
    shape.ta = j->product.tb ? HD_LT_OP_T : HD_LT_OP_N;
    shape.tb = j->product.ta ? HD_LT_OP_T : HD_LT_OP_N;
    shape.type_a = lt_type(dtype_of(j, HD_PRODUCT_B));
    shape.type_b = lt_type(dtype_of(j, HD_PRODUCT_A));
    assert(shape.type_a >= 0 && shape.type_b >= 0); // i8 has a kernel
    shape.type_c = type_c;
    shape.type_bias = type_bias;
    shape.epilogue = epilogue;
    shape.wide = j->product.wide;
    shape.align = alignment(j);
    return shape;
}

static bool has_even_rows(const hd_matrix *m, hd_dtype dtype)
{
    return m->row_stride * (int64_t)hd_dtype_size(dtype) % 16 == 0;
}

// Where rows lie at multiples of 16 bytes, cuBLASLt adds a bias and does gelu
// before it rounds. Elsewhere it rounds the product to 16 bits and does them
// in a pass of its own (seen with 13.1 on H200); a matrix is not added there
// either, lest it does the same with that. What it adds to a result of 16 bits
// it may round first wherever rows lie (likewise, of 131 rows by 800).
static bool rounds_once(const job *j)
{
    if (hd_dtype_size(dtype_of(j, HD_PRODUCT_C)) != 2)
        return true;
    if (j->product.accumulate)
        return false;
    return (!has(j, HD_PRODUCT_BIAS) && j->product.act != HD_ACT_GELU) ||
           (has_even_rows(&j->a, dtype_of(j, HD_PRODUCT_A)) &&
            has_even_rows(&j->b, dtype_of(j, HD_PRODUCT_B)) &&
            has_even_rows(&j->c, dtype_of(j, HD_PRODUCT_C)) &&
            (!j->adds ||
             has_even_rows(&j->bias, dtype_of(j, HD_PRODUCT_BIAS))) &&
            alignment(j) >= 16);
}

// The type of a bias that cuBLASLt's epilogue adds; -1 for none.
static int type_of_row(const job *j)
{
    return has(j, HD_PRODUCT_BIAS) && !j->adds
               ? lt_type(dtype_of(j, HD_PRODUCT_BIAS))
               : -1;
}

// Whether cuBLASLt's own epilogue is what the step asks for, and which it is.
static bool own_epilogue(const job *j, int *epilogue)
{
    const hd_product *p = &j->product;
    hd_dtype out = dtype_of(j, HD_PRODUCT_C);
    bool bias = has(j, HD_PRODUCT_BIAS) && !j->adds;

    if (!j->fits || has(j, HD_PRODUCT_AUX) || p->scales[0].view >= 0 ||
        p->scales[1].view >= 0 || (p->scale != NULL && p->scale->view >= 0) ||
        (p->accumulate && p->act != HD_ACT_NONE) ||
        (bias &&
         (p->wide || dtype_of(j, HD_PRODUCT_BIAS) != out || !is_row(j))) ||
        hd_dtype_size(out) == 1 || !rounds_once(j))
        return false;
    switch (p->act) {
    case HD_ACT_NONE:
        *epilogue = bias ? HD_LT_EPILOGUE_BIAS : HD_LT_EPILOGUE_DEFAULT;
        return true;
    case HD_ACT_RELU:
        *epilogue = bias ? HD_LT_EPILOGUE_RELU_BIAS : HD_LT_EPILOGUE_RELU;
        return !p->wide;
    case HD_ACT_GELU: // an approximation of tanh, good enough for 16 bits
        *epilogue = bias ? HD_LT_EPILOGUE_GELU_BIAS : HD_LT_EPILOGUE_GELU;
        return hd_dtype_size(out) == 2;
    case HD_ACT_GELU_ERF:
    case HD_ACT_SILU:
        break;
    }
    return false;
}

static hd_cuda_at at_part(const job *j, int part, int64_t i)
{
    hd_span span = j->product.part[part].span;

    span.offset = hd_product_offset(&j->product, part, i);
    return hd_cuda_at_span(&span);
}

// All products of the step with one plan. With `scratch` they go there, one
// after the other.
static hd_status add_products(const job *j, int product,
                              const hd_cuda_at *scratch)
{
    hd_cuda_at workspace = hd_cuda_need(j->plan, j->stream, HD_CUDA_WORKSPACE,
                                        HD_CUDA_WORKSPACE_BYTES);

    for (int64_t i = 0; i < (j->batched ? 1 : j->product.pieces); i++) {
        hd_cuda_command *command =
            hd_cuda_add(j->plan, HD_CUDA_PRODUCT, j->stream, j->step);

        if (command == NULL)
            return hd_fail(j->diag, HD_ERROR_NO_MEMORY,
                           "no memory for a product");
        command->product = product;
        command->a = at_part(j, HD_PRODUCT_B, i);
        command->b = at_part(j, HD_PRODUCT_A, i);
        command->c = at_part(j, HD_PRODUCT_C, i);
        command->alpha =
            j->product.scale != NULL ? j->product.scale->number : 1;
        command->beta = j->product.accumulate || j->adds;
        assert(scratch != NULL || j->product.scale == NULL ||
               j->product.scale->view < 0); // own_epilogue takes no others
        command->bias = has(j, HD_PRODUCT_BIAS) ? at_part(j, HD_PRODUCT_BIAS, i)
                                                : HD_CUDA_NOWHERE;
        command->workspace = workspace;
        if (scratch != NULL) {
            command->c = *scratch;
            command->c.offset += scratch_offset(j, i);
            command->alpha = 1;
            command->beta = 0;
        }
    }
    return HD_OK;
}

// Scales along what is contracted: what is left over are those of whole rows
// and columns, which follow the product.
static bool has_blocks(const hd_product *p)
{
    return p->scales[0].deep_stride > 0 || p->scales[1].deep_stride > 0;
}

static size_t scratch_bytes(const job *j)
{
    return (size_t)hd_span_elements(&j->step->span[0]) *
           (j->product.wide ? sizeof(double) : sizeof(float));
}

// The product that cuBLASLt does, all pieces at once if it can. -1: none.
static hd_status find(job *j, int type_c, int64_t ldc, int epilogue,
                      int type_bias, const hd_step *timed, int *out)
{
    hd_cuda_shape shape;

    j->batched = is_batch(j);
    shape = shape_of(j, type_c, ldc, epilogue, type_bias);
    HD_TRY(find_product(j->plan, &shape, timed, j->diag, out));
    if (*out >= 0 || !j->batched)
        return HD_OK;
    j->batched = false;
    shape = shape_of(j, type_c, ldc, epilogue, type_bias);
    return find_product(j->plan, &shape, timed, j->diag, out);
}

static hd_status add_scratched(const job *j, int product)
{
    hd_cuda_at at[HD_KERNEL_POINTERS];
    hd_text text = {0};
    hd_kernel_grid grid = {0};
    int n = j->step->op->nviews;
    hd_cuda_at scratch =
        hd_cuda_need(j->plan, j->stream, HD_CUDA_SCRATCH, scratch_bytes(j));

    HD_TRY(add_products(j, product, &scratch));
    for (int i = 0; i < n; i++)
        at[i] = hd_cuda_at_span(&j->step->span[i]);
    at[n] = scratch;
    HD_TRY(hd_emit_epilogue(j->step, j->diag, &text, &grid));
    return hd_cuda_add_kernel(j->plan, j->stream, j->step, &text, grid, at,
                              n + 1, j->diag);
}

// What cuBLASLt does in a second pass over the result, or slowly, since rows of
// the result lie at no multiples of 16 bytes (a tenth of its speed, seen with
// 13.1 on H200), tiles do at once.
static bool is_own_always(const job *j)
{
    hd_tiles_row row = hd_tiles_row_of(j->step);
    hd_tiles_choice best;
    int epilogue;

    return (!own_epilogue(j, &epilogue) ||
            !has_even_rows(&j->c, dtype_of(j, HD_PRODUCT_C))) &&
           hd_cuda_best_tiles(j->plan, j->stream, &row, &best);
}

// Whether tiles may be timed for it: one launch, the same in every run.
static bool may_be_own(const job *j)
{
    return j->product.pieces == 1 && j->plan->module->nsizes == 0;
}

// Whether they were faster, and take this step, too.
static bool is_own(const job *j, int product)
{
    hd_tiles_row row = hd_tiles_row_of(j->step);
    hd_tiles_choice best;

    return may_be_own(j) && j->plan->product[product].own.rows > 0 &&
           hd_cuda_choices(j->plan->device, &row, 1, &best) > 0;
}

hd_status hd_cuda_plan_matmul(hd_cuda_plan *plan, int stream,
                              const hd_step *step, hd_diag *diag)
{
    job j = job_of(plan, stream, step, diag);
    hd_tiles_row row = hd_tiles_row_of(step);
    int epilogue = 0, product = -1;

    if (j.product.counts >= 0 || hd_op_has_counts(step->op))
        return hd_cuda_add_tiles(plan, stream, step, diag);
    if (is_own_always(&j))
        return hd_cuda_add_tiles(plan, stream, step, diag);
    if (j.product.k == 0 || has_blocks(&j.product) ||
        lt_type(dtype_of(&j, HD_PRODUCT_A)) < 0 ||
        !hd_cuda_has_room(plan, stream, 0))
        return hd_cuda_add_step(plan, stream, step, diag);
    HD_TRY(open_lt(plan, diag));
    if (own_epilogue(&j, &epilogue)) {
        HD_TRY(find(&j, lt_type(dtype_of(&j, HD_PRODUCT_C)), j.c.row_stride,
                    epilogue, type_of_row(&j), may_be_own(&j) ? step : NULL,
                    &product));
        if (product >= 0)
            return is_own(&j, product)
                       ? hd_cuda_add_row(plan, stream, &row,
                                         &plan->product[product].own, NULL,
                                         diag)
                       : add_products(&j, product, NULL);
    }
    j.scratched = true;
    j.adds = false;
    j.c.row_stride = j.product.n;
    if (fit(&j.a, &j.product.ta) && fit(&j.b, &j.product.tb) &&
        hd_cuda_has_room(plan, stream, scratch_bytes(&j)))
        HD_TRY(find(&j, j.product.wide ? HD_LT_F64 : HD_LT_F32, j.product.n,
                    HD_LT_EPILOGUE_DEFAULT, -1, NULL, &product));
    return product >= 0 ? add_scratched(&j, product)
                        : hd_cuda_add_step(plan, stream, step, diag);
}

// --------------------------------------------------------------- running

static void *address(const hd_device *device, hd_cuda_at at)
{
    return (void *)(uintptr_t)hd_cuda_address(device, at);
}

hd_status hd_cuda_multiply(const hd_cuda_plan *plan,
                           const hd_cuda_command *command, hd_cu_stream stream,
                           hd_diag *diag)
{
    hd_device *device = plan->device;
    const hd_cuda_product *product = &plan->product[command->product];
    float alpha = (float)command->alpha, beta = (float)command->beta;
    bool wide = product->shape.wide;
    void *c = address(device, command->c);
    void *bias = address(device, command->bias);

    if (product->shape.type_bias >= 0)
        LT_TRY(device, diag, desc_set, product->desc, HD_LT_DESC_BIAS_POINTER,
               &bias, sizeof bias);
    LT_TRY(device, diag, matmul, device->products->blas, product->desc,
           wide ? (const void *)&command->alpha : &alpha,
           address(device, command->a), product->layout[0],
           address(device, command->b), product->layout[1],
           wide ? (const void *)&command->beta : &beta,
           product->shape.ld_addend > 0 ? bias : c, hd_cuda_added(product), c,
           product->layout[2], &product->algo,
           address(device, command->workspace), HD_CUDA_WORKSPACE_BYTES,
           stream);
    return HD_OK;
}
