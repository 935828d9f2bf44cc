// A product is cut into tiles whose operands BLAS can take: f32 and f64
// operands whose rows are evenly spaced are used where they lie, others are
// converted tile by tile into scratch memory. Where the result needs nothing
// but rounding-free storage BLAS writes it in place; else it goes through
// scratch, and one pass applies scale, bias, activation and the old value in
// double precision and rounds once. BLAS itself would add a long sum to the old
// value part by part, and round each time. A grouped product is one of these
// for each group that has rows.
#include <heddle/verify.h>

#include "runtime/cpu/matmul.h"

#include "runtime/cpu/map.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "ir/product.h"

enum { TILE_ROWS = 512, TILE_COLUMNS = 1024 };

// A matrix as BLAS wants it, or to be converted: `rows` rows of `columns`.
typedef struct matrix {
    hd_dtype dtype;
    size_t size;
    char *at;
    int64_t rows, columns;
    int64_t row_stride, column_stride; // in elements
    const char *scale;       // that of the first element; NULL: there is none
    const hd_scales *scales; // of rows of the result, or its columns
    int64_t first;           // row of what these are of
} matrix;

typedef struct job {
    hd_product product;
    hd_cpu_scratch *scratch;
    double factor;
} job;

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

// Sums of integers wrap.
static void store_values(hd_dtype dtype, const double *values, size_t n,
                         void *to)
{
    int64_t whole[TILE_COLUMNS];

    if (!hd_dtype_is_integer(dtype)) {
        hd_dtype_store(dtype, values, n, to);
        return;
    }
    for (size_t i = 0; i < n; i++)
        whole[i] = (int64_t)values[i];
    hd_dtype_store_integers(dtype, whole, n, to);
}

static void store_row(const matrix *m, int64_t row, int64_t from, size_t n,
                      const double *values)
{
    char *at = m->at + (row * m->row_stride + from * m->column_stride) *
                           (int64_t)m->size;

    if (m->column_stride == 1) {
        store_values(m->dtype, values, n, at);
        return;
    }
    for (size_t i = 0; i < n; i++)
        store_values(m->dtype, &values[i], 1,
                     at + (int64_t)i * m->column_stride * (int64_t)m->size);
}

// Nothing, of a matrix that there is not.
static void add_row(const matrix *m, int64_t row, int64_t from, size_t n,
                    double *to)
{
    double more[TILE_COLUMNS];

    if (m->at == NULL)
        return;
    load_row(m, row, from, n, more);
    for (size_t i = 0; i < n; i++)
        to[i] += more[i];
}

typedef struct tile {
    int64_t row, column; // where it begins in the product
    int64_t rows, columns;
} tile;

// `sums` is the tile's product, dense.
static void finish_tile(const job *job, const matrix *part, const tile *t,
                        const void *sums)
{
    const hd_product *p = &job->product;
    const matrix *c = &part[HD_PRODUCT_C], *aux = &part[HD_PRODUCT_AUX];
    double values[TILE_COLUMNS];
    size_t n = (size_t)t->columns;

    for (int64_t i = 0; i < t->rows; i++) {
        const char *row =
            (const char *)sums +
            (size_t)i * n * (p->wide ? sizeof(double) : sizeof(float));

        hd_dtype_load(p->wide ? HD_DTYPE_F64 : HD_DTYPE_F32, row, n, values);
        for (size_t j = 0; job->factor != 1 && j < n; j++)
            values[j] *= job->factor;
        add_row(&part[HD_PRODUCT_BIAS], t->row + i, t->column, n, values);
        if (aux->at != NULL)
            store_row(aux, t->row + i, t->column, n, values);
        hd_cpu_map_doubles(hd_act_map(p->act), 1, NULL, NULL, n, values);
        if (p->accumulate)
            add_row(c, t->row + i, t->column, n, values);
        store_row(c, t->row + i, t->column, n, values);
    }
}

// --------------------------------------------------------------- operands

static bool is_native(const hd_product *p, const matrix *m)
{
    return m->scale == NULL &&
           m->dtype == (p->wide ? HD_DTYPE_F64 : HD_DTYPE_F32) &&
           (m->column_stride == 1 || m->columns == 1) &&
           m->row_stride <= INT_MAX &&
           (m->row_stride >= m->columns || m->rows == 1);
}

static int64_t least(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static double scale_at(const matrix *m, int64_t line, int64_t k)
{
    float scale;

    memcpy(&scale,
           m->scale + hd_scales_at(m->scales, line, k) * (int64_t)sizeof scale,
           sizeof scale);
    return scale;
}

// `n` elements of a row, each times its scale, which f32 rounds once. Rows are
// of what is contracted, or columns are.
static void scale_row(const hd_product *p, const matrix *m, int64_t row,
                      int64_t column, int64_t n, bool deep, char *to)
{
    for (int64_t i = 0; i < n; i++) {
        double scale = deep ? scale_at(m, column + i, m->first + row)
                            : scale_at(m, m->first + row, column + i);

        if (p->wide)
            ((double *)(void *)to)[i] *= scale;
        else
            ((float *)(void *)to)[i] *= (float)scale;
    }
}

// `n` elements of a row in the type that BLAS multiplies.
static void convert_row(const hd_product *p, const matrix *m, int64_t row,
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
        hd_dtype_store(p->wide ? HD_DTYPE_F64 : HD_DTYPE_F32, values, part,
                       to + (size_t)at * lane);
    }
}

// A part of the matrix as BLAS can read it: where it lies, or converted.
// `deep`: its rows are of what is contracted.
static const void *take_part(const hd_product *p, const matrix *m, int64_t row,
                             int64_t column, int64_t rows, int64_t columns,
                             bool deep, char *scratch, int *stride)
{
    size_t lane = p->wide ? sizeof(double) : sizeof(float);

    if (is_native(p, m)) {
        *stride =
            (int)(m->row_stride > m->columns ? m->row_stride : m->columns);
        return m->at + (row * m->row_stride + column) * (int64_t)m->size;
    }
    *stride = (int)columns;
    for (int64_t i = 0; i < rows; i++) {
        char *to = scratch + (size_t)(i * columns) * lane;

        convert_row(p, m, row + i, column, columns, to);
        if (m->scale != NULL)
            scale_row(p, m, row + i, column, columns, deep, to);
    }
    return scratch;
}

// Where each operand's part of a tile is converted to.
typedef struct places {
    char *a, *b, *c;
} places;

// Of a piece of so many rows.
static size_t scratch_parts(const hd_product *p, int64_t rows, size_t parts[3])
{
    size_t lane = p->wide ? sizeof(double) : sizeof(float);
    size_t m = (size_t)least(rows, TILE_ROWS);
    size_t n = (size_t)least(p->n, TILE_COLUMNS);
    size_t k = (size_t)p->k;

    parts[0] = (m * k * lane + 63) & ~(size_t)63;
    parts[1] = (n * k * lane + 63) & ~(size_t)63;
    parts[2] = (m * n * lane + 63) & ~(size_t)63;
    return parts[0] + parts[1] + parts[2];
}

static bool writes_in_place(const hd_product *p, const matrix *part)
{
    return is_native(p, &part[HD_PRODUCT_C]) &&
           part[HD_PRODUCT_BIAS].at == NULL &&
           part[HD_PRODUCT_AUX].at == NULL && p->act == HD_ACT_NONE &&
           !p->accumulate;
}

static void run_gemm(const job *job, const hd_gemm *gemm, const void *a,
                     const void *b, void *c)
{
    if (job->product.wide)
        hd_cpu_blas_dgemm(job->scratch->blas, gemm, a, b, c);
    else
        hd_cpu_blas_sgemm(job->scratch->blas, gemm, a, b, c);
}

static void run_tile(const job *job, const matrix *part, const tile *t,
                     const places *to)
{
    const hd_product *p = &job->product;
    const matrix *a = &part[HD_PRODUCT_A], *b = &part[HD_PRODUCT_B];
    const matrix *c = &part[HD_PRODUCT_C];
    hd_gemm gemm = {.ta = p->ta,
                    .tb = p->tb,
                    .m = (int)t->rows,
                    .n = (int)t->columns,
                    .k = (int)p->k,
                    .alpha = 1};
    const void *pa, *pb;

    pa = p->ta
             ? take_part(p, a, 0, t->row, p->k, t->rows, true, to->a, &gemm.lda)
             : take_part(p, a, t->row, 0, t->rows, p->k, false, to->a,
                         &gemm.lda);
    pb = p->tb ? take_part(p, b, t->column, 0, t->columns, p->k, false, to->b,
                           &gemm.ldb)
               : take_part(p, b, 0, t->column, p->k, t->columns, true, to->b,
                           &gemm.ldb);
    if (writes_in_place(p, part)) {
        gemm.alpha = job->factor;
        gemm.ldc =
            (int)(c->row_stride > c->columns ? c->row_stride : c->columns);
        run_gemm(job, &gemm, pa, pb,
                 c->at +
                     (t->row * c->row_stride + t->column) * (int64_t)c->size);
        return;
    }
    gemm.ldc = gemm.n;
    run_gemm(job, &gemm, pa, pb, to->c);
    finish_tile(job, part, t, to->c);
}

// One piece. Tiles bound the scratch memory; where nothing needs converting
// there is one tile.
static void run_piece(const job *job, const matrix *part)
{
    const hd_product *p = &job->product;
    const matrix *c = &part[HD_PRODUCT_C];
    bool whole = is_native(p, &part[HD_PRODUCT_A]) &&
                 is_native(p, &part[HD_PRODUCT_B]) &&
                 writes_in_place(p, part) && c->rows <= INT_MAX &&
                 c->columns <= INT_MAX;
    int64_t tall = whole ? c->rows : TILE_ROWS;
    int64_t broad = whole ? c->columns : TILE_COLUMNS;
    size_t parts[3];
    places to;

    scratch_parts(p, p->part[HD_PRODUCT_C].matrix.rows, parts);
    // hd_cpu_matmul_need has seen the step.
    assert(parts[0] + parts[1] + parts[2] <= job->scratch->bytes);
    assert(p->k <= INT_MAX);
    to.a = job->scratch->memory;
    to.b = to.a + parts[0];
    to.c = to.b + parts[1];
    for (int64_t j = 0; j < c->columns; j += broad)
        for (int64_t i = 0; i < c->rows; i += tall) {
            tile t = {i, j, least(tall, c->rows - i),
                      least(broad, c->columns - j)};

            run_tile(job, part, &t, &to);
        }
}

// ----------------------------------------------------------------- groups

static void store_zeros(const matrix *m, int64_t from, int64_t end)
{
    static const double zeros[TILE_COLUMNS];

    for (int64_t i = from; m->at != NULL && i < end; i++)
        for (int64_t j = 0; j < m->columns; j += TILE_COLUMNS)
            store_row(m, i, j, (size_t)least(m->columns - j, TILE_COLUMNS),
                      zeros);
}

// What no row is multiplied for.
static void clear(const job *job, const matrix *part, int64_t from, int64_t end)
{
    if (!job->product.accumulate && !job->product.keep)
        store_zeros(&part[HD_PRODUCT_C], from, end);
    store_zeros(&part[HD_PRODUCT_AUX], from, end);
}

static void narrow(matrix *m, int64_t from, int64_t rows)
{
    m->at += from * m->row_stride * (int64_t)m->size;
    m->first += from;
    m->rows = rows;
}

// The rows of one group, by its matrix or into it. `whole` is of all rows and
// of the first matrix.
static void run_group(const job *job, const matrix *whole, int64_t group,
                      int64_t from, int64_t rows)
{
    bool ta = job->product.ta;
    int matrices = ta ? HD_PRODUCT_C : HD_PRODUCT_B;
    matrix part[HD_PRODUCT_PARTS];
    struct job own = *job;

    memcpy(part, whole, sizeof part);
    part[matrices].at +=
        group * job->product.to_group * (int64_t)part[matrices].size;
    if (part[HD_PRODUCT_BIAS].at != NULL)
        part[HD_PRODUCT_BIAS].at +=
            group * job->product.to_bias * (int64_t)part[HD_PRODUCT_BIAS].size;
    if (part[HD_PRODUCT_B].scale != NULL)
        part[HD_PRODUCT_B].scale +=
            group * job->product.scales[1].to_group * (int64_t)sizeof(float);
    if (ta && rows == 0) {
        clear(job, part, 0, part[HD_PRODUCT_C].rows);
        return;
    }
    narrow(&part[HD_PRODUCT_A], from, rows);
    narrow(&part[ta ? HD_PRODUCT_B : HD_PRODUCT_C], from, rows);
    if (part[HD_PRODUCT_AUX].at != NULL)
        narrow(&part[HD_PRODUCT_AUX], from, rows);
    if (ta)
        own.product.k = rows;
    run_piece(&own, part);
}

static int32_t count_of(const hd_span *counts, const char *base, int64_t group)
{
    int32_t count;

    memcpy(&count,
           base + (counts->offset + group * counts->stride[0]) *
                      (int64_t)sizeof count,
           sizeof count);
    return count;
}

// `part` is as run_group has it.
static void run_groups(const job *job, const matrix *part, const hd_step *step,
                       void *const *base)
{
    const hd_product *p = &job->product;
    int64_t from = 0;

    for (int64_t g = 0; g < p->groups; g++) {
        int64_t count = count_of(&step->span[p->counts], base[p->counts], g);
        int64_t rows = hd_miscount_clamp(&job->scratch->miscount, g, count,
                                         p->rows - from);

        if (rows > 0 || p->ta)
            run_group(job, part, g, from, rows);
        from += rows;
    }
    if (!p->ta)
        clear(job, part, from, p->rows);
}

// ------------------------------------------------------------------ entry

hd_status hd_cpu_matmul_need(const hd_step *step, size_t *bytes)
{
    hd_product p = hd_product_of(step, HD_PRODUCT_PARTS);
    int64_t rows = p.part[HD_PRODUCT_C].matrix.rows;
    size_t parts[3], need;

    // In a run of other sizes rows of several pieces may follow each other, and
    // be those of one.
    for (int i = 0; i < step->op->nviews; i++)
        if (hd_view_is_sized(&step->op->view[i]))
            rows = p.part[HD_PRODUCT_C].matrix.rows * p.pieces;
    need = scratch_parts(&p, rows, parts);

    if (p.k > INT_MAX)
        return HD_ERROR_UNSUPPORTED;
    if (*bytes < need)
        *bytes = need;
    return HD_OK;
}

// A part of piece `i`; all zeros if the product has none.
static matrix matrix_of(const hd_product *p, int part, int64_t i,
                        void *const *base)
{
    const hd_product_part *from = &p->part[part];
    matrix m = {0};

    if (from->view < 0)
        return m;
    m.dtype = from->span.buffer->type.dtype;
    m.size = hd_dtype_size(m.dtype);
    m.at = (char *)base[from->view] +
           hd_product_offset(p, part, i) * (int64_t)m.size;
    m.rows = from->matrix.rows;
    m.columns = from->matrix.columns;
    m.row_stride = from->matrix.row_stride;
    m.column_stride = from->matrix.column_stride;
    return m;
}

static void add_scales(const hd_product *p, int side, int64_t i,
                       void *const *base, matrix *m)
{
    const hd_scales *scales = &p->scales[side];

    if (scales->view < 0)
        return;
    m->scales = scales;
    m->scale = (const char *)base[scales->view] +
               hd_scales_offset(p, scales, i) * (int64_t)sizeof(float);
}

void hd_cpu_matmul(hd_cpu_scratch *scratch, const hd_step *step,
                   void *const *base)
{
    job job = {.product = hd_product_of(step, HD_PRODUCT_PARTS),
               .scratch = scratch,
               .factor = hd_cpu_factor(step, HD_KEY_SCALE, base)};
    matrix part[HD_PRODUCT_PARTS];
    bool grouped = job.product.counts >= 0;

    for (int64_t i = 0; i < (grouped ? 1 : job.product.pieces); i++) {
        for (int k = 0; k < HD_PRODUCT_PARTS; k++)
            part[k] = matrix_of(&job.product, k, i, base);
        add_scales(&job.product, 0, i, base, &part[HD_PRODUCT_A]);
        add_scales(&job.product, 1, i, base, &part[HD_PRODUCT_B]);
        if (grouped)
            run_groups(&job, part, step, base);
        else
            run_piece(&job, part);
    }
}
