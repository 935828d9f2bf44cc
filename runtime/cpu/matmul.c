// A product is cut into tiles whose operands BLAS can take: f32 and f64
// operands whose rows are evenly spaced are used where they lie, others are
// converted tile by tile into scratch memory. Where the result needs nothing
// but rounding-free storage BLAS writes it in place; else it goes through
// scratch, and one pass applies scale, bias, activation and the old value in
// double precision and rounds once.
#include "runtime/cpu/matmul.h"

#include "runtime/cpu/map.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "ir/space.h"
#include "ir/verify.h"

enum { TILE_ROWS = 512, TILE_COLUMNS = 1024 };

// A matrix as BLAS wants it, or to be converted: `rows` rows of `columns`.
typedef struct matrix {
    hd_dtype dtype;
    size_t size;
    char *at;
    int64_t rows, columns;
    int64_t row_stride, column_stride; // in elements
} matrix;

typedef struct product {
    const hd_step *step;
    hd_cpu_scratch *scratch;
    void *const *base;
    hd_matmul_shape shape;
    bool ta, tb, wide; // wide: f64
    const hd_span *c, *a, *b, *bias, *aux;
    void *bias_base, *aux_base;
    double factor;
    hd_act act;
    bool accumulate;
} product;

// --------------------------------------------------------------- epilogue

double hd_cpu_factor(const hd_step *step, hd_key_code code, void *const *base)
{
    const hd_key *key = hd_op_key(step->op, code);
    const hd_span *span;
    double factor;

    if (key == NULL)
        return 1;
    if (key->view < 0)
        return key->number;
    span = &step->span[key->view];
    hd_dtype_load(span->buffer->type.dtype,
                  (char *)base[key->view] +
                      span->offset *
                          (int64_t)hd_dtype_size(span->buffer->type.dtype),
                  1, &factor);
    return factor;
}

static void load_row(const matrix *m, int64_t row, int64_t from, size_t n,
                     double *to)
{
    const char *at = m->at + (row * m->row_stride + from * m->column_stride) *
                                 (int64_t)m->size;

    if (m->column_stride == 1) {
        hd_dtype_load(m->dtype, at, n, to);
        return;
    }
    for (size_t i = 0; i < n; i++)
        hd_dtype_load(m->dtype,
                      at + (int64_t)i * m->column_stride * (int64_t)m->size, 1,
                      &to[i]);
}

static void store_row(const matrix *m, int64_t row, int64_t from, size_t n,
                      const double *values)
{
    char *at = m->at + (row * m->row_stride + from * m->column_stride) *
                           (int64_t)m->size;

    if (m->column_stride == 1) {
        hd_dtype_store(m->dtype, values, n, at);
        return;
    }
    for (size_t i = 0; i < n; i++)
        hd_dtype_store(m->dtype, &values[i], 1,
                       at + (int64_t)i * m->column_stride * (int64_t)m->size);
}

static void add_row(const matrix *m, int64_t row, int64_t from, size_t n,
                    double *to)
{
    double more[TILE_COLUMNS];

    load_row(m, row, from, n, more);
    for (size_t i = 0; i < n; i++)
        to[i] += more[i];
}

typedef struct tile {
    int64_t row, column; // where it begins in the product
    int64_t rows, columns;
} tile;

// `sums` is the tile's product, dense.
static void finish_tile(const product *p, const matrix *c, const matrix *bias,
                        const matrix *aux, const tile *t, const void *sums)
{
    double values[TILE_COLUMNS];
    size_t n = (size_t)t->columns;

    for (int64_t i = 0; i < t->rows; i++) {
        const char *row =
            (const char *)sums +
            (size_t)i * n * (p->wide ? sizeof(double) : sizeof(float));

        hd_dtype_load(p->wide ? HD_F64 : HD_F32, row, n, values);
        for (size_t j = 0; p->factor != 1 && j < n; j++)
            values[j] *= p->factor;
        if (bias != NULL)
            add_row(bias, t->row + i, t->column, n, values);
        if (aux != NULL)
            store_row(aux, t->row + i, t->column, n, values);
        hd_cpu_map_doubles(hd_act_map(p->act), 1, NULL, NULL, n, values);
        if (p->accumulate)
            add_row(c, t->row + i, t->column, n, values);
        store_row(c, t->row + i, t->column, n, values);
    }
}

// --------------------------------------------------------------- operands

static bool is_native(const product *p, const matrix *m)
{
    return m->dtype == (p->wide ? HD_F64 : HD_F32) &&
           (m->column_stride == 1 || m->columns == 1) &&
           m->row_stride <= INT_MAX &&
           (m->row_stride >= m->columns || m->rows == 1);
}

static int64_t least(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

// `n` elements of a row in the type that BLAS multiplies.
static void convert_row(const product *p, const matrix *m, int64_t row,
                        int64_t column, int64_t n, char *to)
{
    size_t lane = p->wide ? sizeof(double) : sizeof(float);

    if (!p->wide && m->column_stride == 1) {
        hd_dtype_load_float(
            m->dtype, m->at + (row * m->row_stride + column) * (int64_t)m->size,
            (size_t)n, (float *)(void *)to);
        return;
    }
    for (int64_t at = 0; at < n; at += TILE_COLUMNS) {
        double values[TILE_COLUMNS];
        size_t part = (size_t)least(n - at, TILE_COLUMNS);

        load_row(m, row, column + at, part, values);
        hd_dtype_store(p->wide ? HD_F64 : HD_F32, values, part,
                       to + (size_t)at * lane);
    }
}

// A part of the matrix as BLAS can read it: where it lies, or converted.
static const void *take_part(const product *p, const matrix *m, int64_t row,
                             int64_t column, int64_t rows, int64_t columns,
                             char *scratch, int *stride)
{
    size_t lane = p->wide ? sizeof(double) : sizeof(float);

    if (is_native(p, m)) {
        *stride =
            (int)(m->row_stride > m->columns ? m->row_stride : m->columns);
        return m->at + (row * m->row_stride + column) * (int64_t)m->size;
    }
    *stride = (int)columns;
    for (int64_t i = 0; i < rows; i++)
        convert_row(p, m, row + i, column, columns,
                    scratch + (size_t)(i * columns) * lane);
    return scratch;
}

// Where each operand's part of a tile is converted to.
typedef struct places {
    char *a, *b, *c;
} places;

static size_t lane_size(const hd_step *step)
{
    return step->span[1].buffer->type.dtype == HD_F64 ? sizeof(double)
                                                      : sizeof(float);
}

static size_t scratch_parts(const product *p, size_t parts[3])
{
    size_t lane = p->wide ? sizeof(double) : sizeof(float);
    size_t m = (size_t)least(p->shape.m, TILE_ROWS);
    size_t n = (size_t)least(p->shape.n, TILE_COLUMNS);
    size_t k = (size_t)p->shape.k;

    parts[0] = (m * k * lane + 63) & ~(size_t)63;
    parts[1] = (n * k * lane + 63) & ~(size_t)63;
    parts[2] = (m * n * lane + 63) & ~(size_t)63;
    return parts[0] + parts[1] + parts[2];
}

static bool writes_in_place(const product *p, const matrix *c)
{
    return is_native(p, c) && p->bias == NULL && p->aux == NULL &&
           p->act == HD_ACT_NONE;
}

static void run_gemm(const product *p, const hd_gemm *gemm, const void *a,
                     const void *b, void *c)
{
    if (p->wide)
        hd_cpu_blas_dgemm(p->scratch->blas, gemm, a, b, c);
    else
        hd_cpu_blas_sgemm(p->scratch->blas, gemm, a, b, c);
}

static void run_tile(const product *p, const matrix *a, const matrix *b,
                     const matrix *c, const matrix *bias, const matrix *aux,
                     const tile *t, const places *to)
{
    hd_gemm gemm = {.ta = p->ta,
                    .tb = p->tb,
                    .m = (int)t->rows,
                    .n = (int)t->columns,
                    .k = (int)p->shape.k,
                    .alpha = 1};
    const void *pa, *pb;

    pa =
        p->ta
            ? take_part(p, a, 0, t->row, p->shape.k, t->rows, to->a, &gemm.lda)
            : take_part(p, a, t->row, 0, t->rows, p->shape.k, to->a, &gemm.lda);
    pb = p->tb ? take_part(p, b, t->column, 0, t->columns, p->shape.k, to->b,
                           &gemm.ldb)
               : take_part(p, b, 0, t->column, p->shape.k, t->columns, to->b,
                           &gemm.ldb);
    if (writes_in_place(p, c)) {
        gemm.alpha = p->factor;
        gemm.beta = p->accumulate ? 1 : 0;
        gemm.ldc =
            (int)(c->row_stride > c->columns ? c->row_stride : c->columns);
        run_gemm(p, &gemm, pa, pb,
                 c->at +
                     (t->row * c->row_stride + t->column) * (int64_t)c->size);
        return;
    }
    gemm.ldc = gemm.n;
    run_gemm(p, &gemm, pa, pb, to->c);
    finish_tile(p, c, bias, aux, t, to->c);
}

// One plain product. Tiles bound the scratch memory; where nothing needs
// converting there is one tile.
static void run_product(const product *p, const matrix *a, const matrix *b,
                        const matrix *c, const matrix *bias, const matrix *aux)
{
    bool whole = is_native(p, a) && is_native(p, b) && writes_in_place(p, c) &&
                 c->rows <= INT_MAX && c->columns <= INT_MAX;
    int64_t tall = whole ? c->rows : TILE_ROWS;
    int64_t broad = whole ? c->columns : TILE_COLUMNS;
    size_t parts[3];
    places to;

    scratch_parts(p, parts);
    to.a = p->scratch->memory;
    to.b = to.a + parts[0];
    to.c = to.b + parts[1];
    for (int64_t j = 0; j < c->columns; j += broad)
        for (int64_t i = 0; i < c->rows; i += tall) {
            tile t = {i, j, least(tall, c->rows - i),
                      least(broad, c->columns - j)};

            run_tile(p, a, b, c, bias, aux, &t, &to);
        }
}

// ------------------------------------------------------------------ batch

static matrix matrix_of(const hd_span *span, void *base, int64_t offset)
{
    matrix m = {.dtype = span->buffer->type.dtype};
    int n = span->ndims;

    m.size = hd_dtype_size(m.dtype);
    m.at = (char *)base + (span->offset + offset) * (int64_t)m.size;
    m.columns = span->extent[n - 1];
    m.column_stride = span->stride[n - 1];
    m.rows = n > 1 ? span->extent[n - 2] : 1;
    m.row_stride = n > 1 ? span->stride[n - 2] : m.columns;
    return m;
}

// The rows of one product are a's dimensions [first, ndims - 1); if they are
// evenly spaced in every operand they are one matrix, else one for each index
// of all but the last of them.
static void run_rows(const product *p, int64_t ia, int64_t ib, int64_t ic,
                     int64_t ibias, int64_t iaux, int first, int lead)
{
    const hd_span *a = p->a, *c = p->c;
    int last = a->ndims - 2;  // the last dimension of rows
    int shift = lead - first; // from a's dimensions to c's
    matrix b = matrix_of(p->b, p->base[2], ib);
    matrix bias, aux;
    int64_t outer = 1;
    bool even = p->ta || last <= first ||
                (hd_span_is_even(a, first, last) &&
                 hd_span_is_even(c, first + shift, last + shift) &&
                 (p->bias == NULL ||
                  hd_span_is_even(p->bias, first + shift, last + shift)) &&
                 (p->aux == NULL ||
                  hd_span_is_even(p->aux, first + shift, last + shift)));

    for (int d = first; d < last && !p->ta; d++)
        outer *= a->extent[d];
    for (int64_t i = 0; i < (even ? 1 : outer); i++) {
        matrix ma = matrix_of(
            a, p->base[1], ia + (even ? 0 : hd_span_offset(a, first, last, i)));
        matrix mc = matrix_of(
            c, p->base[0],
            ic +
                (even ? 0 : hd_span_offset(c, first + shift, last + shift, i)));

        if (even && !p->ta && last >= first)
            ma.rows = mc.rows = p->shape.m;
        if (!p->ta && last < first)
            ma.rows = mc.rows = 1;
        if (p->bias != NULL) {
            bias =
                matrix_of(p->bias, p->bias_base,
                          ibias + (even ? 0
                                        : hd_span_offset(p->bias, first + shift,
                                                         last + shift, i)));
            bias.rows = mc.rows;
        }
        if (p->aux != NULL) {
            aux = matrix_of(p->aux, p->aux_base,
                            iaux + (even ? 0
                                         : hd_span_offset(p->aux, first + shift,
                                                          last + shift, i)));
            aux.rows = mc.rows;
        }
        run_product(p, &ma, &b, &mc, p->bias != NULL ? &bias : NULL,
                    p->aux != NULL ? &aux : NULL);
    }
}

static hd_type type_of(const hd_step *step, int i)
{
    return hd_view_type(&step->op->view[i]);
}

static product product_of(hd_cpu_scratch *scratch, const hd_step *step)
{
    hd_type out = type_of(step, 0), a = type_of(step, 1), b = type_of(step, 2);
    product p = {.step = step, .scratch = scratch, .factor = 1};
    const hd_key *act = hd_op_key(step->op, HD_KEY_ACT);
    char why[160];

    p.ta = hd_op_key(step->op, HD_KEY_TA) != NULL;
    p.tb = hd_op_key(step->op, HD_KEY_TB) != NULL;
    p.wide = lane_size(step) == sizeof(double);
    p.accumulate = hd_op_key(step->op, HD_KEY_ACCUMULATE) != NULL;
    p.act = act != NULL ? act->act : HD_ACT_NONE;
    p.c = &step->span[0];
    p.a = &step->span[1];
    p.b = &step->span[2];
    // Verified: it cannot fail.
    (void)hd_matmul_shape_of(&out, &a, &b, p.ta, p.tb, &p.shape, why);
    return p;
}

hd_status hd_cpu_matmul_reserve(hd_cpu_scratch *scratch, const hd_step *step)
{
    product p = product_of(scratch, step);
    size_t parts[3];
    size_t bytes = scratch_parts(&p, parts);
    void *memory;

    if (p.shape.k > INT_MAX)
        return HD_UNSUPPORTED;
    if (bytes <= scratch->bytes)
        return HD_OK;
    memory = aligned_alloc(64, bytes);
    if (memory == NULL)
        return HD_NO_MEMORY;
    free(scratch->memory);
    scratch->memory = memory;
    scratch->bytes = bytes;
    return HD_OK;
}

void hd_cpu_scratch_free(hd_cpu_scratch *scratch)
{
    free(scratch->memory);
    scratch->memory = NULL;
    scratch->bytes = 0;
}

// The bias with the result's dimensions: strides of 0 where it repeats.
static hd_span spread_bias(const hd_step *step, int i)
{
    hd_span spread = step->span[0];
    int64_t stride[HD_SPACE_DIMS];
    hd_space space;

    hd_space_of_step(step, &space);
    hd_space_strides(&space, i, step->span[i].stride, stride);
    memcpy(spread.stride, stride, sizeof *stride * (size_t)spread.ndims);
    spread.buffer = step->span[i].buffer;
    spread.offset = step->span[i].offset;
    return spread;
}

void hd_cpu_matmul(hd_cpu_scratch *scratch, const hd_step *step,
                   void *const *base)
{
    product p = product_of(scratch, step);
    int nbatch = p.shape.nbatch;
    hd_span bias;
    int ibias = hd_op_key_view(step->op, HD_KEY_BIAS),
        iaux = hd_op_key_view(step->op, HD_KEY_AUX);

    p.base = base;
    p.factor = hd_cpu_factor(step, HD_KEY_SCALE, base);
    if (ibias >= 0) {
        bias = spread_bias(step, ibias);
        p.bias = &bias;
        p.bias_base = base[ibias];
    }
    if (iaux >= 0) {
        p.aux = &step->span[iaux];
        p.aux_base = base[iaux];
    }
    for (int64_t i = 0; i < p.shape.batch; i++)
        run_rows(&p, p.shape.crossed ? 0 : hd_span_offset(p.a, 0, nbatch, i),
                 hd_span_offset(p.b, 0, nbatch, i),
                 hd_span_offset(p.c, 0, nbatch, i),
                 p.bias != NULL ? hd_span_offset(p.bias, 0, nbatch, i) : 0,
                 p.aux != NULL ? hd_span_offset(p.aux, 0, nbatch, i) : 0,
                 p.shape.crossed ? 0 : nbatch, nbatch);
}
