// Written to be read: plain loops over every element, no blocking but for the
// matmul's order of loops, nothing shared with the kernels it judges.
#include "oracle/numeric.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "ir/verify.h"

// How many standard deviations independent errors may add up to.
static const double LAMBDA = 6;

typedef struct item {
    double value, bound;
    int64_t whole; // of an integer dtype: the value, exactly
} item;

// ----------------------------------------------------------------- access

// The element of a span with row-major number i.
static int64_t place(const hd_span *span, int64_t i)
{
    int64_t at = span->offset;

    for (int d = span->ndims - 1; d >= 0; d--) {
        at += i % span->extent[d] * span->stride[d];
        i /= span->extent[d];
    }
    return at;
}

static item load(const hd_span *span, const hd_values *values, int64_t i)
{
    int64_t at = place(span, i);

    return (item){values->value[at], values->bound[at],
                  values->whole != NULL ? values->whole[at] : 0};
}

static double unit_of_compute(hd_dtype dtype)
{
    return dtype == HD_F64 ? 0x1p-53 : 0x1p-24;
}

// What is left of 64 bits in the width of an integer dtype.
static int64_t wrap(hd_dtype dtype, int64_t whole)
{
    if (dtype == HD_I32)
        return (int32_t)(uint32_t)(uint64_t)whole;
    return dtype == HD_U8 ? (uint8_t)(uint64_t)whole : whole;
}

// Half the distance between neighbours of the format at x: what one rounding
// may err there.
static double half_step(hd_dtype dtype, double x)
{
    int exponent;

    (void)frexp(x, &exponent); // x is in [2^(exponent - 1), 2^exponent)
    return hd_dtype_unit(dtype) * ldexp(1, exponent - 1) + hd_dtype_tiny(dtype);
}

// What storing in the dtype does: one rounding, which the bound takes in.
static void store(const hd_span *span, hd_values *values, int64_t i, item x)
{
    hd_dtype dtype = span->buffer->type.dtype;
    int64_t at = place(span, i);

    if (hd_dtype_is_integer(dtype)) {
        values->whole[at] = wrap(dtype, x.whole);
        x.value = (double)values->whole[at];
    } else {
        x.bound += half_step(dtype, fabs(x.value) + x.bound);
        if (dtype == HD_F8E4M3 && fabs(x.value) > 448)
            x.value = copysign(448, x.value);
    }
    values->value[at] = x.value;
    values->bound[at] = x.bound;
}

// ------------------------------------------------------------- arithmetic

static item add(item x, item y, double unit)
{
    double value = x.value + y.value;

    return (item){value, x.bound + y.bound + unit * fabs(value),
                  (int64_t)((uint64_t)x.whole + (uint64_t)y.whole)};
}

static item multiply(item x, item y, double unit)
{
    double value = x.value * y.value;

    return (item){value,
                  fabs(x.value) * y.bound + fabs(y.value) * x.bound +
                      x.bound * y.bound + unit * fabs(value),
                  (int64_t)((uint64_t)x.whole * (uint64_t)y.whole)};
}

static item larger(item x, item y)
{
    item result = x.value > y.value || isnan(x.value) ? x : y;

    result.bound = x.bound > y.bound ? x.bound : y.bound;
    result.whole = x.whole > y.whole ? x.whole : y.whole;
    return result;
}

static item join(hd_fold fold, item x, item y, double unit)
{
    switch (fold) {
    case HD_FOLD_SUM:
        return add(x, y, unit);
    case HD_FOLD_MAX:
        return larger(x, y);
    case HD_FOLD_NONE:
        break;
    }
    return x;
}

static item gelu(item x, double unit)
{
    static const double root = 0.79788456080286535588; // sqrt(2 / pi)
    double v = x.value;

    return (item){0.5 * v * (1 + tanh(root * (v + 0.044715 * v * v * v))),
                  1.13 * x.bound + 8 * unit * fabs(v), 0};
}

// What the map makes of x, and of a second operand y. Bounds take the largest
// slope: 1.13 of gelu, 1.1 of silu.
static item map_item(hd_map map, item x, item y, double unit)
{
    double v = x.value;

    switch (map) {
    case HD_MAP_NONE:
    case HD_MAP_SCALE: // `scaled`
        break;
    case HD_MAP_ADD:
        return add(x, y, unit);
    case HD_MAP_MUL:
        return multiply(x, y, unit);
    case HD_MAP_RELU:
        return (item){v < 0 ? 0 : v, x.bound, 0};
    case HD_MAP_GELU:
        return gelu(x, unit);
    case HD_MAP_SILU:
        return (item){v / (1 + exp(-v)), 1.1 * x.bound + 8 * unit * fabs(v), 0};
    }
    return x;
}

// The sum of n terms of which `total` is the value, `magnitude` the sum of
// their absolute values, and `square` that of their squared bounds, `straight`
// of their bounds.
static item summed(double total, double magnitude, double square,
                   double straight, int64_t n, double unit)
{
    double spread = LAMBDA * sqrt(square);

    return (item){total,
                  LAMBDA * sqrt((double)n) * unit * magnitude +
                      (spread < straight ? spread : straight),
                  0};
}

// ------------------------------------------------------------ element-wise

static int find_key_span(const hd_step *step, hd_key_code code)
{
    int i = step->op->noutputs + step->op->ninputs;

    for (int k = 0; k < step->op->nkeys; k++) {
        if (step->op->key[k].view.buffer == NULL)
            continue;
        if (step->op->key[k].code == code)
            return i;
        i++;
    }
    return -1;
}

static item factor_of(const hd_step *step, hd_key_code code,
                      hd_values *const *values)
{
    const hd_key *key = hd_op_key(step->op, code);
    int i = find_key_span(step, code);

    if (key == NULL)
        return (item){1, 0, 1};
    if (i < 0)
        return (item){key->number, 0, 0};
    return load(&step->span[i], values[i], 0);
}

static bool any_integer(const hd_step *step)
{
    return hd_dtype_is_integer(step->span[0].buffer->type.dtype);
}

// A cast to an integer rounds and saturates, as hd_dtype_store does.
static item cast(const hd_step *step, item x)
{
    hd_dtype to = step->span[0].buffer->type.dtype;

    if (hd_dtype_is_integer(to) &&
        !hd_dtype_is_integer(step->span[1].buffer->type.dtype)) {
        unsigned char bytes[8];

        hd_dtype_store(to, &x.value, 1, bytes);
        hd_dtype_load_integers(to, bytes, 1, &x.whole);
        x.bound = x.bound > 0 ? x.bound + 1 : 0;
    }
    return x;
}

// What is whole stays so: the fraction goes, and what no i64 holds is the
// nearest that one does.
static item scaled(item x, item factor, double unit)
{
    x = multiply(x, factor, unit);
    x.whole = x.value >= 0x1p63    ? INT64_MAX
              : x.value >= -0x1p63 ? (int64_t)x.value
                                   : INT64_MIN;
    return x;
}

static item compute_item(const hd_step *step, hd_values *const *values,
                         int64_t i)
{
    hd_fold fold = hd_op_fold(step->op);
    hd_map map = hd_op_info_get(step->op->code)->map;
    double unit = any_integer(step)
                      ? 0
                      : unit_of_compute(step->span[0].buffer->type.dtype);
    int n = step->op->noutputs + step->op->ninputs;
    item result = load(&step->span[1], values[1], i);

    for (int k = 2; k < n; k++) {
        // An operand that lacks leading dimensions repeats.
        int64_t at = i % hd_span_elements(&step->span[k]);
        item next = load(&step->span[k], values[k], at);

        result = fold != HD_FOLD_NONE ? join(fold, result, next, unit)
                                      : map_item(map, result, next, unit);
    }
    if (map == HD_MAP_SCALE)
        return scaled(result, factor_of(step, HD_KEY_BY, values), unit);
    return step->op->ninputs == 1 ? map_item(map, result, result, unit)
                                  : result;
}

static void compute_elementwise(const hd_step *step, hd_values *const *values)
{
    int64_t n = hd_span_elements(&step->span[0]);

    for (int64_t i = 0; i < n; i++)
        store(&step->span[0], values[0], i, compute_item(step, values, i));
}

static void compute_copy(const hd_step *step, hd_values *const *values)
{
    int64_t n = hd_span_elements(&step->span[0]);

    if (step->span[0].buffer->type.dtype == step->span[1].buffer->type.dtype) {
        hd_numeric_copy(&step->span[0], values[0], &step->span[1], values[1]);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        store(&step->span[0], values[0], i,
              cast(step, load(&step->span[1], values[1], i)));
}

void hd_numeric_copy(const hd_span *to, hd_values *to_values,
                     const hd_span *from, const hd_values *from_values)
{
    int64_t n = hd_span_elements(to);

    for (int64_t i = 0; i < n; i++) {
        int64_t at = place(to, i), source = place(from, i);

        to_values->value[at] = from_values->value[source];
        to_values->bound[at] = from_values->bound[source];
        if (to_values->whole != NULL)
            to_values->whole[at] = from_values->whole[source];
    }
}

hd_status hd_numeric_reduce(hd_fold fold, const hd_span *to,
                            hd_values *to_values, int n, const hd_span *from,
                            hd_values *const *from_values)
{
    hd_dtype dtype = to->buffer->type.dtype;
    double unit = hd_dtype_is_integer(dtype) ? 0 : unit_of_compute(dtype);
    int64_t elements = hd_span_elements(to);

    for (int64_t i = 0; i < elements; i++) {
        double total = 0, magnitude = 0, square = 0, straight = 0;
        item best = load(&from[0], from_values[0], i);
        uint64_t whole = 0; // wraps
        item sum;

        for (int k = 0; k < n; k++) {
            item x = load(&from[k], from_values[k], i);

            best = k > 0 ? join(fold, best, x, unit) : x;
            whole += (uint64_t)x.whole;
            total += x.value;
            magnitude += fabs(x.value);
            square += x.bound * x.bound;
            straight += x.bound;
        }
        sum = summed(total, magnitude, square, straight, n, unit);
        sum.whole = (int64_t)whole;
        store(to, to_values, i, fold == HD_FOLD_SUM ? sum : best);
    }
    return HD_OK;
}

static hd_span slice(const hd_span *span, int dim, int64_t index)
{
    hd_span part = *span;

    part.offset += index * span->stride[dim];
    part.ndims--;
    for (int d = dim; d < part.ndims; d++) {
        part.extent[d] = span->extent[d + 1];
        part.stride[d] = span->stride[d + 1];
    }
    return part;
}

static hd_status compute_reduction(const hd_step *step,
                                   hd_values *const *values)
{
    const hd_span *in = &step->span[1];
    int dim = step->dim[0];
    int64_t n = in->extent[dim];
    hd_span *parts = calloc((size_t)n, sizeof *parts);
    hd_values **from = calloc((size_t)n, sizeof *from);
    hd_status status = HD_NO_MEMORY;

    if (parts != NULL && from != NULL) {
        for (int64_t i = 0; i < n; i++) {
            parts[i] = slice(in, dim, i);
            from[i] = values[1];
        }
        status = hd_numeric_reduce(hd_op_fold(step->op), &step->span[0],
                                   values[0], (int)n, parts, from);
    }
    free(parts);
    free(from);
    return status;
}

static void compute_transpose(const hd_step *step, hd_values *const *values)
{
    hd_span in = step->span[1];
    int i = step->dim[0], j = step->dim[1];

    in.extent[i] = step->span[1].extent[j];
    in.stride[i] = step->span[1].stride[j];
    in.extent[j] = step->span[1].extent[i];
    in.stride[j] = step->span[1].stride[i];
    hd_numeric_copy(&step->span[0], values[0], &in, values[1]);
}

// ----------------------------------------------------------------- matmul

// One plain product of the batch, operands copied out densely: a [m, k], b [k,
// n].
typedef struct product {
    int64_t m, n, k;
    double *a, *da, *b, *db; // owned
    double *row;             // owned: five rows of n sums
    bool exact;              // all bounds are zero
} product;

static bool allocate(product *p)
{
    size_t a = (size_t)(p->m * p->k), b = (size_t)(p->k * p->n);

    p->a = calloc(a, sizeof(double));
    p->da = calloc(a, sizeof(double));
    p->b = calloc(b, sizeof(double));
    p->db = calloc(b, sizeof(double));
    p->row = calloc((size_t)p->n * 4, sizeof(double));
    return p->a != NULL && p->da != NULL && p->b != NULL && p->db != NULL &&
           p->row != NULL;
}

static void release(product *p)
{
    free(p->a);
    free(p->da);
    free(p->b);
    free(p->db);
    free(p->row);
}

// A matrix of `rows` x `columns` that is stored transposed if `t`: dimensions
// [first, ..) of the span, all but the last flattened to rows.
static void take_matrix(product *p, const hd_span *span,
                        const hd_values *values, int first, int64_t batch,
                        int64_t rows, int64_t columns, bool t, double *value,
                        double *bound)
{
    hd_span part = *span;
    int64_t outer = batch;

    for (int d = first - 1; d >= 0; d--) {
        part.offset += outer % span->extent[d] * span->stride[d];
        outer /= span->extent[d];
    }
    part.ndims -= first;
    memmove(part.extent, span->extent + first,
            sizeof(int64_t) * (size_t)part.ndims);
    memmove(part.stride, span->stride + first,
            sizeof(int64_t) * (size_t)part.ndims);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            item x = load(&part, values, t ? j * rows + i : i * columns + j);

            value[i * columns + j] = x.value;
            bound[i * columns + j] = x.bound;
            p->exact &= x.bound == 0;
        }
}

static void multiply_row(const product *p, int64_t i)
{
    double *total = p->row, *magnitude = total + p->n;
    double *square = magnitude + p->n, *straight = square + p->n;

    memset(p->row, 0, sizeof(double) * 4 * (size_t)p->n);
    for (int64_t k = 0; k < p->k; k++) {
        double a = p->a[i * p->k + k], da = p->da[i * p->k + k];
        const double *b = &p->b[k * p->n], *db = &p->db[k * p->n];

        for (int64_t j = 0; j < p->n; j++) {
            double x = a * b[j];

            total[j] += x;
            magnitude[j] += fabs(x);
        }
        for (int64_t j = 0; !p->exact && j < p->n; j++) {
            double from_a = da * (fabs(b[j]) + db[j]), from_b = fabs(a) * db[j];

            square[j] += from_a * from_a + from_b * from_b;
            straight[j] += from_a + from_b;
        }
    }
}

static void finish_row(const product *p, const hd_step *step,
                       hd_values *const *values, int64_t row)
{
    const hd_key *act = hd_op_key(step->op, HD_KEY_ACT);
    item factor = factor_of(step, HD_KEY_SCALE, values);
    bool accumulate = hd_op_key(step->op, HD_KEY_ACCUMULATE) != NULL;
    int bias = find_key_span(step, HD_KEY_BIAS);
    int aux = find_key_span(step, HD_KEY_AUX);
    double unit = unit_of_compute(step->span[1].buffer->type.dtype);

    for (int64_t j = 0; j < p->n; j++) {
        int64_t at = row * p->n + j;
        item x = summed(p->row[j], p->row[p->n + j], p->row[2 * p->n + j],
                        p->row[3 * p->n + j], p->k, unit);

        if (hd_op_key(step->op, HD_KEY_SCALE) != NULL)
            x = multiply(x, factor, unit);
        if (bias >= 0)
            x = add(x, load(&step->span[bias], values[bias], j), unit);
        if (aux >= 0)
            store(&step->span[aux], values[aux], at, x);
        if (act != NULL)
            x = map_item(hd_act_map(act->act), x, x, unit);
        if (accumulate)
            x = add(x, load(&step->span[0], values[0], at), unit);
        store(&step->span[0], values[0], at, x);
    }
}

static hd_type type_of(const hd_span *span, hd_dtype dtype)
{
    hd_type type = {.dtype = dtype, .ndims = span->ndims};

    for (int i = 0; i < span->ndims; i++)
        type.dim[i] = (hd_dim){span->extent[i], HD_LOCAL};
    return type;
}

static hd_status compute_matmul(const hd_step *step, hd_values *const *values)
{
    hd_type out = type_of(&step->span[0], HD_F32);
    hd_type a = type_of(&step->span[1], HD_F32);
    hd_type b = type_of(&step->span[2], HD_F32);
    bool ta = hd_op_key(step->op, HD_KEY_TA) != NULL;
    bool tb = hd_op_key(step->op, HD_KEY_TB) != NULL;
    hd_matmul_shape shape;
    char why[160];
    product p = {0};

    if (!hd_matmul_shape_of(&out, &a, &b, ta, tb, &shape, why))
        return HD_INVALID;
    p.m = shape.m;
    p.n = shape.n;
    p.k = shape.k;
    if (!allocate(&p)) {
        release(&p);
        return HD_NO_MEMORY;
    }
    for (int64_t batch = 0; batch < shape.batch; batch++) {
        p.exact = true;
        take_matrix(&p, &step->span[1], values[1],
                    shape.crossed ? 0 : shape.nbatch, batch, p.m, p.k, ta, p.a,
                    p.da);
        take_matrix(&p, &step->span[2], values[2], shape.nbatch, batch, p.k,
                    p.n, tb, p.b, p.db);
        for (int64_t i = 0; i < p.m; i++) {
            multiply_row(&p, i);
            finish_row(&p, step, values, batch * p.m + i);
        }
    }
    release(&p);
    return HD_OK;
}

hd_status hd_numeric_compute(const hd_step *step, hd_values *const *values)
{
    switch (hd_op_family(step->op)) {
    case HD_FAMILY_COPY:
        compute_copy(step, values);
        return HD_OK;
    case HD_FAMILY_MAP:
        compute_elementwise(step, values);
        return HD_OK;
    case HD_FAMILY_FOLD:
        if (step->dim[0] >= 0)
            return compute_reduction(step, values);
        compute_elementwise(step, values);
        return HD_OK;
    case HD_FAMILY_TRANSPOSE:
        compute_transpose(step, values);
        return HD_OK;
    case HD_FAMILY_PRODUCT:
        return compute_matmul(step, values);
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        break;
    }
    assert(!"no computation");
    return HD_UNSUPPORTED;
}
