// A row has the largest score so far, the sum of exp(score - largest) and the
// sum of v by these weights, which are scaled down when a larger score comes.
// It takes some keys at a time, whose weights stay in registers, while its row
// of q and its mean, which may be long, do not. Of gradients some threads have
// a row, and what all keys make of its dq, and the others a key, and what all
// rows make of its dk and dv: nothing is added by two.
//
// Where operands are of 16 bits tensor cores do likewise with tiles of rows,
// and of keys, from shared memory: kernels/attention_tiles.cu.
#include "codegen/attend.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "codegen/batch.h"
#include "codegen/body.h"
#include "codegen/prelude.h"
#include "ir/signature.h"

static const hd_span *lse_of(const hd_step *step)
{
    return &step->span[hd_op_lse(step->op)];
}

// f32 unless the logarithms are f64.
static hd_lane lane_of(const hd_step *step)
{
    return hd_body_lane(lse_of(step)->buffer->type.dtype);
}

// get_V(x) and, of a result, put_V(x) of view V.
static void add_conversions(hd_batch *k)
{
    const hd_step *step = k->step;
    hd_lane lane = lane_of(step);

    for (int i = 0; i < step->op->nviews; i++) {
        hd_dtype dtype = step->span[i].buffer->type.dtype;

        hd_text_printf(&k->text,
                       "static inline lane get_%d(%s x)\n{\n    return ", i,
                       hd_code_text(dtype));
        hd_prelude_load(&k->text, dtype, lane, "x");
        hd_text_puts(&k->text, ";\n}\n");
        if (i >= step->op->noutputs)
            continue;
        hd_text_printf(&k->text,
                       "static inline %s put_%d(lane x)\n{\n    return ",
                       hd_code_text(dtype), i);
        hd_prelude_store(&k->text, dtype, lane, "x");
        hd_text_puts(&k->text, ";\n}\n");
    }
}

static void add_arithmetic(hd_batch *k)
{
    hd_lane lane = lane_of(k->step);
    bool wide = lane == HD_LANE_DOUBLE;

    hd_text_printf(&k->text,
                   "typedef %s lane;\n"
                   "#define EXP %s\n#define LOG %s\n"
                   "static inline lane none()\n{\n    return ",
                   hd_lane_text(lane), wide ? "exp" : "expf",
                   wide ? "log" : "logf");
    hd_prelude_identity(&k->text, HD_FOLD_MAX, lane,
                        lse_of(k->step)->buffer->type.dtype);
    hd_text_puts(&k->text, ";\n}\n");
    hd_prelude_add(&k->text, hd_attend_cu);
}

// How far apart heads, rows and elements are: V2_H, V2_S, V2_D.
static void add_strides(hd_batch *k)
{
    static const char letters[] = "HSD";
    const hd_step *step = k->step;

    for (int i = 0; i < step->op->noutputs + step->op->ninputs; i++) {
        const hd_span *span = &step->span[i];
        int own = hd_op_batch(step->op, i, span->ndims);

        for (int d = own; d < span->ndims; d++)
            hd_text_printf(&k->text, "#define V%d_%c %lldll\n", i,
                           letters[d - own], (long long)span->stride[d]);
    }
}

// SCALE is 1 / sqrt(D) unless the op says another.
static void add_scale(hd_batch *k)
{
    const hd_key *key = hd_op_key(k->step->op, HD_KEY_SCALE);
    int q = k->step->op->noutputs, last = k->step->span[q].ndims - 1;

    if (key != NULL && key->view >= 0)
        hd_text_printf(
            &k->text, "#define SCALE get_%d(*(const %s *)args.at[%d])\n",
            key->view,
            hd_code_text(k->step->span[key->view].buffer->type.dtype),
            key->view);
    else if (key == NULL && hd_length_of(k->step, q, last).sized)
        hd_text_puts(&k->text, "#define SCALE ((lane)(1 / sqrt((double)D)))\n");
    else
        hd_text_printf(&k->text, "#define SCALE ((lane)%.17e)\n",
                       key != NULL
                           ? key->number
                           : 1 / sqrt((double)k->step->span[q].extent[last]));
}

// Of the rows of a view, which threads have room for.
static void add_width(hd_batch *k, const char *name, int view)
{
    int last = k->step->span[view].ndims - 1;
    hd_length length = hd_length_of(k->step, view, last);

    if (length.sized)
        hd_batch_length(k, name, view, last);
    else
        hd_text_printf(&k->text, "#define %s %lld\n", name,
                       (long long)length.now);
    hd_text_printf(&k->text, "#define %s_ROOM %lld\n", name,
                   (long long)length.room);
}

// How wide rows of q and k and of v are, and what rows see.
static void add_constants(hd_batch *k)
{
    const hd_step *step = k->step;
    const hd_key *window = hd_op_key(step->op, HD_KEY_WINDOW);

    add_width(k, "D", step->op->noutputs);
    add_width(k, "W", step->op->noutputs + 2);
    hd_text_printf(
        &k->text,
        "#define SOME 16\n"
        "#define MASKED %d\n#define UPDATES %d\n#define WINDOW %.0fll\n",
        step->causal != HD_SEES_ALL,
        hd_op_access(step->op, 0) == HD_ACCESS_UPDATE,
        window != NULL ? window->number : 0);
    hd_batch_number(k, "CAUSAL", step->causal, step->varies);
}

// ------------------------------------------------------------------ tiles

enum {
    TILE_THREADS = 128,
    TILE_KEYS = 64,
    WIDEST = 256,            // of D and Dv
    NOTES_BYTES = 2176,      // of kernels/scores.cu
    SHARED_BYTES = 99 << 10, // that a block of any of these GPUs may have
};

static hd_dtype dtype_at(const hd_step *step, int view)
{
    return step->span[view].buffer->type.dtype;
}

static int64_t last_stride(const hd_span *span)
{
    return span->stride[span->ndims - 1];
}

static hd_length last_length(const hd_step *step, int view)
{
    return hd_length_of(step, view, step->span[view].ndims - 1);
}

// The second of the dimensions that are of no batch, behind heads: rows, or
// keys; in every run.
static hd_length lines_of(const hd_step *step, int view)
{
    return hd_length_of(
        step, view, hd_op_batch(step->op, view, step->span[view].ndims) + 1);
}

static hd_length heads_of(const hd_step *step, int view)
{
    return hd_length_of(step, view,
                        hd_op_batch(step->op, view, step->span[view].ndims));
}

static bool fits_tiles(const hd_length length)
{
    return !length.sized && length.room > 0 && length.room <= WIDEST;
}

// q, and behind it k and v, are what tensor cores multiply, and their lines are
// contiguous; of a gradient that of o, which is converted, has these, too.
static bool has_tiles(const hd_step *step)
{
    int q = step->op->noutputs;
    hd_dtype dtype = dtype_at(step, q);
    bool fits =
        (dtype == HD_DTYPE_BF16 || dtype == HD_DTYPE_F16) &&
        lane_of(step) == HD_LANE_FLOAT && fits_tiles(last_length(step, q)) &&
        fits_tiles(last_length(step, q + 2)) && heads_of(step, q + 1).room > 0;
    int64_t lines = heads_of(step, q).room * lines_of(step, q).room;

    for (int i = q; i < q + 3; i++)
        fits &= dtype_at(step, i) == dtype && last_stride(&step->span[i]) == 1;
    return fits && lines < INT32_MAX / 2 &&
           lines_of(step, q + 1).room < INT32_MAX / 2;
}

// Whether all lines lie at multiples of 8 elements, wherever the view does.
static bool has_vector_lines(const hd_step *step, int view)
{
    const hd_span *span = &step->span[view];
    int64_t bits = 0;

    for (int d = 0; d < span->ndims - 1; d++)
        bits |= span->stride[d];
    return bits % 8 == 0 && last_stride(span) == 1;
}

static void add_tiles(hd_batch *k)
{
    const hd_step *step = k->step;
    int q = step->op->noutputs;
    hd_dtype dtype = dtype_at(step, q);

    hd_text_printf(&k->text, "#define IS_F16 %d\n", dtype == HD_DTYPE_F16);
    for (int i = q; i < q + step->op->ninputs; i++)
        hd_text_printf(&k->text, "#define VECTORS_%d %d\n#define CODES_%d %d\n",
                       i, has_vector_lines(step, i), i,
                       dtype_at(step, i) == dtype &&
                           last_stride(&step->span[i]) == 1);
}

static int64_t cover(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile;
}

// Elements that a line of so many has room for in shared memory.
static int64_t line_room(int64_t width)
{
    return width <= 16 ? 16 : width <= 32 ? 32 : cover(width, 64) * 64;
}

// Bytes of so many lines.
static int64_t tile_bytes(int64_t lines, int64_t width)
{
    return lines * line_room(width) * 2;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// Of a GPU that has none the text is the plain one, on as many threads.
static hd_status finish_tiles(hd_batch *k, const unsigned char *tiles,
                              const unsigned char *plain, int64_t blocks,
                              int64_t shared, hd_text *out,
                              hd_kernel_grid *grid)
{
    enum { MOST_BLOCKS = 1 << 24 };

    assert(shared <= SHARED_BYTES);
    hd_text_printf(&k->text,
                   "#define NOTES %d\n#define SHARED %lld\n"
                   "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n",
                   NOTES_BYTES, (long long)shared);
    add_tiles(k);
    hd_prelude_add(&k->text, hd_mma_cu);
    hd_prelude_add(&k->text, hd_scores_cu);
    hd_prelude_add(&k->text, tiles);
    hd_text_puts(&k->text, "#else\n");
    hd_prelude_add(&k->text, plain);
    HD_TRY(hd_batch_end(k, (const unsigned char *)"#endif\n", 0, out, grid));
    grid->blocks = (unsigned)(blocks < 1             ? 1
                              : blocks < MOST_BLOCKS ? blocks
                                                     : MOST_BLOCKS);
    grid->threads = TILE_THREADS;
    grid->shared = (unsigned)shared;
    return HD_OK;
}

// -------------------------------------------------------------- attention

// Lengths, counts and the scale; returns how long the batch is.
static int64_t add_lengths(hd_batch *k)
{
    int q = k->step->op->noutputs;
    int own = hd_op_batch(k->step->op, q, k->step->span[q].ndims);
    int shared = hd_op_batch(k->step->op, q + 1, k->step->span[q + 1].ndims);
    int64_t batch = hd_batch_begin(k);

    hd_batch_length(k, "H", q, own);
    hd_batch_length(k, "S", q, own + 1);
    hd_batch_length(k, "HKV", q + 1, shared);
    hd_batch_length(k, "N", q + 1, shared + 1);
    hd_batch_counts(k);
    add_scale(k);
    return batch;
}

// What the step has now.
static int64_t count_lines(const hd_step *step, int view)
{
    return heads_of(step, view).now * lines_of(step, view).now;
}

// Lines of one head of keys, in tiles.
static int64_t count_tiles(const hd_step *step, int64_t tile)
{
    int q = step->op->noutputs;
    int64_t shared = heads_of(step, q + 1).now;

    return shared > 0 ? shared * cover(count_lines(step, q) / shared, tile) : 0;
}

static hd_status emit_attention(const hd_step *step, hd_text *out,
                                hd_kernel_grid *grid)
{
    hd_batch k = {.step = step};
    int64_t d = last_length(step, 2).room, w = last_length(step, 4).room;
    int64_t lines = d <= 192 && w <= 128 ? 128 : 64, batch;

    add_arithmetic(&k);
    add_conversions(&k);
    add_strides(&k);
    add_constants(&k);
    batch = add_lengths(&k);
    if (!has_tiles(step))
        return hd_batch_end(&k, hd_attention_cu, batch * count_lines(step, 2),
                            out, grid);
    hd_text_printf(&k.text, "#define EACH %lld\n#define KEYS %d\n",
                   (long long)lines / 64, TILE_KEYS);
    return finish_tiles(&k, hd_attention_tiles_cu, hd_attention_cu,
                        batch * count_tiles(step, lines),
                        NOTES_BYTES + tile_bytes(lines + TILE_KEYS, d) +
                            tile_bytes(TILE_KEYS, w),
                        out, grid);
}

static hd_status emit_merge(const hd_step *step, hd_text *out,
                            hd_kernel_grid *grid)
{
    enum { TOGETHER = 32 }; // divides a block
    hd_batch k = {.step = step};
    int own = hd_op_batch(step->op, 0, step->span[0].ndims);
    int64_t threads;

    add_arithmetic(&k);
    add_conversions(&k);
    add_strides(&k);
    hd_text_printf(&k.text, "#define TOGETHER %d\n", TOGETHER);
    threads = hd_batch_begin(&k) * TOGETHER;
    threads *= hd_batch_length(&k, "H", 0, own);
    threads *= hd_batch_length(&k, "S", 0, own + 1);
    hd_batch_length(&k, "D", 0, own + 2);
    return hd_batch_end(&k, hd_merge_cu, threads, out, grid);
}

// -------------------------------------------------------------- gradients

static hd_status emit_attention_grad(const hd_step *step, hd_text *out,
                                     hd_kernel_grid *grid)
{
    hd_batch k = {.step = step};
    int64_t d = last_length(step, 3).room, w = last_length(step, 5).room;
    int64_t lines = d <= 128 && w <= 128 ? 128 : 64;
    int64_t room = line_room(d) + line_room(w), keys = room <= 384 ? 32 : 16;
    int64_t few = room <= 256 ? 64 : keys, passes = d + w <= 320 ? 1 : 2, batch;

    add_arithmetic(&k);
    add_conversions(&k);
    add_strides(&k);
    add_constants(&k);
    for (int i = 0; i < step->op->noutputs; i++)
        hd_text_printf(&k.text, "#define ADDS_%d %d\n", i,
                       hd_step_access(step, i) == HD_ACCESS_UPDATE);
    batch = add_lengths(&k);
    if (!has_tiles(step))
        return hd_batch_end(
            &k, hd_attention_grad_cu,
            batch * (count_lines(step, 3) + count_lines(step, 4)), out, grid);
    hd_text_printf(&k.text,
                   "#define EACH %lld\n#define KEYS %lld\n#define FEW %lld\n"
                   "#define ALL_KEYS %d\n#define PASSES %lld\n",
                   (long long)lines / 64, (long long)keys, (long long)few,
                   TILE_KEYS, (long long)passes);
    return finish_tiles(
        &k, hd_attention_grad_tiles_cu, hd_attention_grad_cu,
        batch * (count_tiles(step, lines) +
                 passes * heads_of(step, 4).now *
                     cover(lines_of(step, 4).now, TILE_KEYS)),
        NOTES_BYTES + most(lines + 2 * keys, TILE_KEYS + 2 * few) * room * 2,
        out, grid);
}

// ------------------------------------------------------------------- join

// Whether groups of 8 elements lie at multiples of 16 bytes, as all memory
// does.
static bool has_vectors(const hd_span *o)
{
    int64_t multiple = 16 / (int64_t)hd_dtype_size(o->buffer->type.dtype);
    bool fits = o->stride[o->ndims - 1] == 1 && o->offset % multiple == 0;

    for (int d = 0; d < o->ndims - 1; d++)
        fits &= o->stride[d] % multiple == 0;
    return fits;
}

// Steps of the pointers along the batch, in row-major order.
static void add_batch_steps(hd_batch *k, const hd_span *before)
{
    const hd_span *o = &k->step->span[0], *lse = &k->step->span[1];

    hd_text_puts(&k->text, "#define STEP_BATCH");
    for (int d = hd_batch_dims(k) - 1; d >= 0; d--) {
        long long n = o->extent[d];

        hd_text_printf(&k->text,
                       " v0 += (i64)(b %% %lld) * %lld; v1 += (i64)(b %% %lld) "
                       "* %lld; from += (i64)(b %% %lld) * %lld; b /= %lld;",
                       n, (long long)o->stride[d], n, (long long)lse->stride[d],
                       n, (long long)before->stride[d], n);
    }
    hd_text_puts(&k->text, " (void)b;\n");
}

// What the result is merged with.
static void add_before(hd_batch *k, const hd_span *before)
{
    hd_dtype dtype = before->buffer->type.dtype;
    const int64_t *stride = &before->stride[before->ndims - 3];

    hd_text_printf(&k->text,
                   "typedef %s earlier;\n#define VECTORS_BEFORE %d\n"
                   "#define BEFORE_H %lldll\n#define BEFORE_S %lldll\n"
                   "#define BEFORE_D %lldll\n"
                   "static inline lane get_before(earlier x)\n{\n    return ",
                   hd_code_text(dtype), has_vectors(before),
                   (long long)stride[0], (long long)stride[1],
                   (long long)stride[2]);
    hd_prelude_load(&k->text, dtype, HD_LANE_FLOAT, "x");
    hd_text_puts(&k->text, ";\n}\n");
}

hd_status hd_emit_join(const hd_step *step, const hd_span *before, int64_t part,
                       int64_t padded, hd_text *out, hd_kernel_grid *grid)
{
    enum { EACH = 8, BLOCK = 256, AT_ONCE = 4 };
    hd_batch k = {.step = step};
    const hd_span *o = &step->span[0];
    int64_t wide = o->extent[o->ndims - 1];
    int64_t rows = hd_span_elements(&step->span[1]);
    int64_t threads = wide / EACH, lines = BLOCK / threads;

    assert(wide % EACH == 0 && threads <= BLOCK);
    add_arithmetic(&k);
    add_conversions(&k);
    add_strides(&k);
    add_batch_steps(&k, before);
    hd_text_printf(&k.text,
                   "typedef %s index;\ntypedef %s result;\ntypedef %s code;\n"
                   "#define EACH %d\n#define THREADS %lld\n#define LINES %lld\n"
                   "#define UPDATES %d\n#define VECTORS %d\n"
                   "#define H ((index)%lld)\n#define S ((index)%lld)\n"
                   "#define N ((index)%lld)\n#define PART ((index)%lld)\n"
                   "#define PADDED %lldull\n",
                   rows < INT32_MAX / 2 ? "u32" : "i64",
                   hd_code_text(o->buffer->type.dtype),
                   hd_code_text(step->span[2].buffer->type.dtype), EACH,
                   (long long)threads, (long long)lines,
                   hd_op_access(step->op, 0) == HD_ACCESS_UPDATE,
                   has_vectors(o), (long long)o->extent[o->ndims - 3],
                   (long long)o->extent[o->ndims - 2], (long long)rows,
                   (long long)part, (long long)padded);
    add_before(&k, before);
    hd_prelude_add(&k.text, hd_join_cu);
    HD_TRY(hd_prelude_finish(out, &k.text, 5, 0));
    *grid = hd_prelude_grid((rows + lines - 1) / lines * BLOCK, AT_ONCE);
    grid->pointers = 5;
    grid->sizes = 0;
    return HD_OK;
}

hd_status hd_attend_emit(const hd_step *step, hd_text *out,
                         hd_kernel_grid *grid)
{
    switch (hd_op_attend(step->op)) {
    case HD_ATTEND_ATTENTION:
        return emit_attention(step, out, grid);
    case HD_ATTEND_MERGE:
        return emit_merge(step, out, grid);
    case HD_ATTEND_ATTENTION_GRAD:
        return emit_attention_grad(step, out, grid);
    case HD_ATTEND_NONE:
        break;
    }
    return HD_ERROR_UNSUPPORTED; // hd_emit_step asks for ops of the family
                                 // alone
}
