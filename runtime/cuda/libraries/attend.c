// Attention: by cuDNN where it takes the step, else by a generated kernel.
//
// cuDNN has masks that begin at the first key or end at the last one, and one
// kernel for a rectangle without a mask is faster than one that is given keys
// that nobody sees. So a step is taken apart by its rows:
//
//              keys               causal -2         causal 1, more rows
//     rows   . . . . .           - - - - -   none        x x - -
//            . . . . .           - - - - -               x x x -  bottom
//            . . . . .           x - - - -               x x x x
//            . . . . .           x x - - -   top         x x x x  all
//                                x x x - -               x x x x
//
// and rows that see nothing are left as they are, or a generated kernel's. The
// batch is one dimension to cuDNN: the last ones, as far as they are evenly
// spaced in all operands; it is called for each index of the others.
//
// It writes results in the operands' dtype. What is to be f32, or joined with
// what is there, it writes to scratch, where one generated kernel takes it
// from. So it does with gradients; o and do that are f32 one converts first.
// Where a step's parts leave rows or keys out its gradients are cleared, and
// each part adds to them.
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "base/log.h"
#include "base/setting.h"
#include "codegen/dense.h"
#include "ir/signature.h"
#include "runtime/cuda/libraries/attends.h"

enum { MULTIPLE = 8, ALIGNMENT = 16 }; // elements of 16 bits, and bytes
enum { ROWS_MOST = 3 };                // parts that a step's rows come in
enum { REASON = 200 };

// What attends, for those who ask.
struct hd_cuda_attends {
    int ours, theirs;    // steps by generated kernels, by cuDNN
    char reason[REASON]; // why the first of ours is one
    char absent[REASON]; // why there is no cuDNN; "" if it was not asked for
    char text[480];
};

// -------------------------------------------------------------- choosing

typedef enum choice { EITHER, CUDNN, GENERATED } choice;

static hd_status read_choice(hd_diag *diag, choice *out)
{
    const char *text = hd_setting("HEDDLE_ATTENTION");

    if (text == NULL || *text == '\0')
        *out = EITHER;
    else if (strcmp(text, "cudnn") == 0)
        *out = CUDNN;
    else if (strcmp(text, "generated") == 0)
        *out = GENERATED;
    else
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "HEDDLE_ATTENTION is '%s', not cudnn or generated",
                       text);
    return HD_OK;
}

// ----------------------------------------------------------------- rows

// Some rows of a step, and the keys that they see.
typedef struct part {
    hd_step step;
    hd_span span[HD_MAX_VIEWS];
    hd_span before; // what it merges with, if it does
    hd_cuda_mask mask;
    bool blind; // they see none
} part;

// Which view of the step an operand is; -1: none.
static int view_of(const hd_step *step, int part)
{
    static const int8_t results[HD_CUDA_PARTS] = {
        [HD_CUDA_O] = 0,      [HD_CUDA_LSE] = 1, [HD_CUDA_Q] = 2,
        [HD_CUDA_K] = 3,      [HD_CUDA_V] = 4,   [HD_CUDA_DO] = -1,
        [HD_CUDA_DQ] = -1,    [HD_CUDA_DK] = -1, [HD_CUDA_DV] = -1,
        [HD_CUDA_DELTA] = -1, [HD_CUDA_SUM] = -1};
    static const int8_t gradients[HD_CUDA_PARTS] = {
        [HD_CUDA_DQ] = 0,     [HD_CUDA_DK] = 1,  [HD_CUDA_DV] = 2,
        [HD_CUDA_Q] = 3,      [HD_CUDA_K] = 4,   [HD_CUDA_V] = 5,
        [HD_CUDA_O] = 6,      [HD_CUDA_LSE] = 7, [HD_CUDA_DO] = 8,
        [HD_CUDA_DELTA] = -1, [HD_CUDA_SUM] = -1};

    return hd_op_attend(step->op) == HD_ATTEND_ATTENTION ? results[part]
                                                         : gradients[part];
}

static const hd_span *span_of(const hd_step *step, int part)
{
    return &step->span[view_of(step, part)];
}

// Of the dimensions of an operand that are of no batch, the second: rows, or
// keys. Ahead of it are heads.
static int line_of(const hd_step *step, int part)
{
    return hd_op_batch(step->op, view_of(step, part),
                       span_of(step, part)->ndims) +
           1;
}

static bool makes_results(const hd_step *step)
{
    return hd_op_attend(step->op) == HD_ATTEND_ATTENTION;
}

static bool updates(const hd_step *step)
{
    return hd_op_access(step->op, 0) == HD_ACCESS_UPDATE;
}

// A part of what is copied, or all of it, becomes where that is copied to.
static void move_there(const hd_step *copy, hd_span *span)
{
    const hd_span *to = &copy->span[0], *from = &copy->span[1];

    if (hd_span_equal(span, from)) {
        *span = *to;
        return;
    }
    span->offset += to->offset - from->offset; // both are dense
    span->buffer = to->buffer;
}

// Rows [first, end), which see some of the first `keys` keys.
static void take_rows(const hd_step *step, const hd_cuda_detour *detour,
                      int64_t first, int64_t end, int64_t keys, part *out)
{
    int results = makes_results(step) ? HD_CUDA_O : HD_CUDA_DQ;

    out->step = *step;
    out->step.span = out->span;
    memcpy(out->span, step->span,
           sizeof *step->span * (size_t)step->op->nviews);
    out->before = step->span[0];
    if (detour->result)
        move_there(detour->copy, &out->span[0]);
    if (detour->before)
        move_there(detour->copy, &out->before);
    out->before.offset += first * out->before.stride[line_of(step, results)];
    out->before.extent[line_of(step, results)] = end - first;
    for (int i = 0; i < HD_CUDA_PARTS; i++) {
        int view = view_of(step, i);
        hd_span *span;

        if (view < 0)
            continue;
        span = &out->span[view];
        if (hd_cuda_is_of_keys(i)) {
            span->extent[line_of(step, i)] = keys;
        } else {
            span->offset += first * span->stride[line_of(step, i)];
            span->extent[line_of(step, i)] = end - first;
        }
    }
    if (step->causal != HD_SEES_ALL)
        out->step.causal += (int32_t)first;
}

static int64_t between(int64_t least, int64_t n, int64_t most)
{
    return n < least ? least : n > most ? most : n;
}

// The parts of a step without a window; returns how many there are.
static int take_apart(const hd_step *step, const hd_cuda_detour *detour,
                      part out[ROWS_MOST])
{
    int64_t rows = span_of(step, HD_CUDA_Q)->extent[line_of(step, HD_CUDA_Q)];
    int64_t keys = span_of(step, HD_CUDA_K)->extent[line_of(step, HD_CUDA_K)];
    int64_t causal = step->causal, blind, all;
    int n = 0;

    if (causal == HD_SEES_ALL || causal > keys)
        causal = keys;
    blind = between(0, -causal, rows);
    // From this row on there is no key more to see.
    all = causal + blind == 0 ? rows : between(blind, keys - causal, rows);
    if (causal == keys - 1)
        all = blind;
    if (blind > 0) {
        out[n] = (part){.blind = true};
        take_rows(step, detour, 0, blind, keys, &out[n++]);
    }
    if (all > blind) {
        int64_t seen = between(0, all + causal, keys);

        out[n] = (part){.mask = causal + blind == 0 ? HD_CUDA_MASK_TOP
                                                    : HD_CUDA_MASK_BOTTOM};
        take_rows(step, detour, blind, all, seen, &out[n++]);
    }
    if (rows > all) {
        out[n] = (part){.mask = HD_CUDA_MASK_NONE};
        take_rows(step, detour, all, rows, keys, &out[n++]);
    }
    return n;
}

// --------------------------------------------------------------- shapes

// A part as cuDNN sees it: what `shape` is, once for each index of the first
// `outer` dimensions of the batch. Operands that are no views, and those that
// do not lie as cuDNN takes them, are in scratch memory, dense.
typedef struct job {
    hd_cuda_plan *plan;
    int stream;
    const hd_step *step; // all rows
    hd_diag *diag;
    const part *part;
    hd_cuda_attention shape;
    int outer;
    int64_t pieces;
    bool adds[HD_CUDA_PARTS]; // a gradient: to what the result holds
    bool gapped;              // there is memory of others' between rows of lse
    bool dense[HD_CUDA_PARTS];
    uint64_t offset[HD_CUDA_PARTS]; // in scratch memory
    uint64_t each[HD_CUDA_PARTS];   // bytes from one piece's to the next one's
    size_t scratch;                 // bytes of it
    int known;                      // cuDNN's plan of the shape
} job;

// How far apart indices of dimension `d` of the batch are, 0 where the operand
// repeats.
static int64_t batch_stride(const part *part, int operand, int d)
{
    const hd_step *step = &part->step;
    const hd_span *span = span_of(step, operand);
    int own = d - hd_op_batch(step->op, 0, step->span[0].ndims) +
              line_of(step, operand) - 1;

    return own < 0 || span->extent[own] == 1 ? 0 : span->stride[own];
}

// Whether the dimension goes on where the folded ones end, or begins them.
static bool folds(const part *part, const hd_cuda_attention *s, int d)
{
    bool fits = true;

    for (int i = 0; i < HD_CUDA_PARTS; i++)
        if (view_of(&part->step, i) >= 0)
            fits &= s->batch == 1 ? batch_stride(part, i, d) > 0
                                  : batch_stride(part, i, d) ==
                                        s->stride[i][0] * s->batch;
    return fits;
}

// A result has all of the batch.
static void fold_batch(job *j)
{
    const hd_span *whole = &j->part->span[0];
    hd_cuda_attention *s = &j->shape;
    int d = hd_op_batch(j->step->op, 0, whole->ndims) - 1;

    s->batch = 1;
    for (; d >= 0 && (whole->extent[d] == 1 || folds(j->part, s, d)); d--) {
        for (int i = 0; i < HD_CUDA_PARTS && s->batch == 1; i++)
            if (view_of(j->step, i) >= 0)
                s->stride[i][0] = batch_stride(j->part, i, d);
        s->batch *= whole->extent[d];
    }
    j->outer = d + 1;
    j->pieces = 1;
    for (d = 0; d < j->outer; d++)
        j->pieces *= whole->extent[d];
}

static int cudnn_type(hd_dtype dtype)
{
    return dtype == HD_DTYPE_BF16 ? HD_DNN_BF16 : HD_DNN_F16;
}

static int64_t heads_of(const hd_cuda_attention *s, int part)
{
    return hd_cuda_is_of_keys(part) ? s->shared : s->heads;
}

static int64_t rows_of(const hd_cuda_attention *s, int part)
{
    return hd_cuda_is_of_keys(part) ? s->keys : s->rows;
}

// Of a dimension of one index the stride is what it would be of a dense one, so
// that equal shapes are equal.
static void settle_strides(hd_cuda_attention *s, int part)
{
    int64_t heads = heads_of(s, part), rows = rows_of(s, part);
    int64_t *stride = s->stride[part];

    if (rows == 1)
        stride[2] = hd_cuda_attention_width(s, part);
    if (heads == 1)
        stride[1] = rows * stride[2];
    if (s->batch == 1)
        stride[0] = heads * stride[1] > rows * stride[2] ? heads * stride[1]
                                                         : rows * stride[2];
}

static void measure(job *j)
{
    const hd_step *step = &j->part->step;
    const hd_span *q = span_of(step, HD_CUDA_Q), *k = span_of(step, HD_CUDA_K);
    const hd_span *v = span_of(step, HD_CUDA_V);
    hd_cuda_attention *s = &j->shape;

    memset(s, 0, sizeof *s);
    fold_batch(j);
    s->type = cudnn_type(q->buffer->type.dtype);
    s->mask = (int32_t)j->part->mask;
    s->kind = makes_results(step) ? HD_CUDA_ATTEND_RESULTS
              : j->plan->device->binding.deterministic
                  ? HD_CUDA_ATTEND_GRADIENTS_ALIKE
                  : HD_CUDA_ATTEND_GRADIENTS;
    s->heads = q->extent[line_of(step, HD_CUDA_Q) - 1];
    s->shared = k->extent[line_of(step, HD_CUDA_K) - 1];
    s->rows = q->extent[line_of(step, HD_CUDA_Q)];
    s->keys = k->extent[line_of(step, HD_CUDA_K)];
    s->depth = q->extent[q->ndims - 1];
    s->wide = v->extent[v->ndims - 1];
    for (int i = 0; i < HD_CUDA_PARTS; i++) {
        if (view_of(step, i) < 0)
            continue;
        s->stride[i][1] = span_of(step, i)->stride[line_of(step, i) - 1];
        s->stride[i][2] = span_of(step, i)->stride[line_of(step, i)];
        settle_strides(s, i);
    }
}

// Whether it is in the dtype of queries, all its rows begin at multiples of 16
// bytes, and each lies side by side.
static bool fits(const job *j, int part)
{
    const hd_span *span = span_of(&j->part->step, part);
    bool whole = span->buffer->type.dtype ==
                     span_of(j->step, HD_CUDA_Q)->buffer->type.dtype &&
                 span->offset % MULTIPLE == 0 &&
                 span->stride[span->ndims - 1] == 1;

    for (int d = 0; d < span->ndims - 1; d++)
        whole &= span->extent[d] == 1 || span->stride[d] % MULTIPLE == 0;
    return whole;
}

// Whether every piece of lse begins at a multiple of 16 bytes.
static bool fits_lse(const job *j)
{
    const int64_t multiple = ALIGNMENT / (int64_t)sizeof(float);
    const hd_span *span = span_of(&j->part->step, HD_CUDA_LSE);
    bool whole =
        span->offset % multiple == 0 && j->shape.stride[HD_CUDA_LSE][2] == 1;

    for (int d = 0; d < j->outer; d++)
        whole &= batch_stride(j->part, HD_CUDA_LSE, d) % multiple == 0;
    return whole;
}

// Pieces begin at multiples of 16 bytes. What nobody asks for afterwards is
// there once, for one piece after the other.
static void make_dense(job *j, int part)
{
    hd_cuda_attention *s = &j->shape;
    int64_t *stride = s->stride[part];
    size_t bytes = hd_cuda_is_wide(part) ? sizeof(float) : sizeof(uint16_t);
    bool kept = part != HD_CUDA_DELTA && part != HD_CUDA_SUM;

    stride[2] = hd_cuda_attention_width(s, part);
    stride[1] = rows_of(s, part) * stride[2];
    stride[0] = heads_of(s, part) * stride[1];
    bytes *= (size_t)(s->batch * stride[0]);
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    j->dense[part] = true;
    j->each[part] = kept ? bytes : 0;
    j->offset[part] = j->scratch;
    j->scratch += kept ? bytes * (size_t)j->pieces : bytes;
}

static void place_results(job *j)
{
    if (!updates(j->step) && fits(j, HD_CUDA_O) && fits_lse(j))
        return;
    make_dense(j, HD_CUDA_O);
    make_dense(j, HD_CUDA_LSE);
}

static bool has_gaps(const hd_cuda_attention *s, int part)
{
    const int64_t *stride = s->stride[part];

    return stride[2] != hd_cuda_attention_width(s, part) ||
           stride[1] != rows_of(s, part) * stride[2] ||
           stride[0] != heads_of(s, part) * stride[1];
}

static void place_gradients(job *j)
{
    j->gapped = has_gaps(&j->shape, HD_CUDA_LSE);
    if (!fits_lse(j))
        make_dense(j, HD_CUDA_LSE);
    if (!fits(j, HD_CUDA_O))
        make_dense(j, HD_CUDA_O);
    if (!fits(j, HD_CUDA_DO))
        make_dense(j, HD_CUDA_DO);
    for (int part = HD_CUDA_DQ; part <= HD_CUDA_DV; part++)
        if (j->adds[part] || !fits(j, part))
            make_dense(j, part);
    make_dense(j, HD_CUDA_DELTA);
    if (hd_cuda_has_part(&j->shape, HD_CUDA_SUM))
        make_dense(j, HD_CUDA_SUM);
}

// Whether a step adds to the gradient that the operand is.
static bool adds_to(const hd_step *step, int part)
{
    return hd_step_access(step, view_of(step, part)) == HD_ACCESS_UPDATE;
}

// `whole`: the part is all of the step.
static job job_of(hd_cuda_plan *plan, int stream, const hd_step *step,
                  const part *part, bool whole, hd_diag *diag)
{
    job j = {.plan = plan,
             .stream = stream,
             .step = step,
             .diag = diag,
             .part = part};

    for (int i = HD_CUDA_DQ; i <= HD_CUDA_DV && !makes_results(step); i++)
        j.adds[i] = !whole || adds_to(step, i);
    measure(&j);
    if (j.shape.kind == HD_CUDA_ATTEND_RESULTS)
        place_results(&j);
    else
        place_gradients(&j);
    return j;
}

// -------------------------------------------------------------- refusals

static bool is_wide_by_run(const hd_step *step, int part)
{
    const hd_view *view = &step->op->view[view_of(step, part)];

    return hd_view_has_sized(view, view->buffer->type.ndims - 1);
}

// Why the step is not cuDNN's, as far as no part of it matters; NULL if it may
// be.
static const char *object(const hd_step *step)
{
    const hd_key *scale = hd_op_key(step->op, HD_KEY_SCALE);
    const hd_span *q = span_of(step, HD_CUDA_Q), *v = span_of(step, HD_CUDA_V);
    hd_dtype dtype = q->buffer->type.dtype;

    if (hd_op_has_counts(step->op))
        return "its rows or keys have counts";
    if (hd_op_has_sequences(step->op))
        return "its rows are of sequences that have counts";
    if (dtype != HD_DTYPE_BF16 && dtype != HD_DTYPE_F16)
        return "its operands are neither bf16 nor f16";
    if (hd_op_key(step->op, HD_KEY_WINDOW) != NULL)
        return "it has a window";
    if (scale != NULL && scale->view >= 0)
        return "its scale is in memory";
    if (is_wide_by_run(step, HD_CUDA_Q) || is_wide_by_run(step, HD_CUDA_V))
        return "each run says D or Dv";
    if (q->extent[q->ndims - 1] % MULTIPLE != 0 ||
        v->extent[v->ndims - 1] % MULTIPLE != 0)
        return "D or Dv is no multiple of 8";
    if (span_of(step, HD_CUDA_K)->extent[line_of(step, HD_CUDA_K)] == 0)
        return "it has no keys";
    return NULL;
}

// Whether what a kernel takes to scratch memory has a place for each piece.
static bool is_taken_whole(const job *j, int part)
{
    return !j->dense[part] ||
           hd_span_elements(span_of(&j->part->step, part)) ==
               j->pieces * j->shape.batch * j->shape.stride[part][0];
}

// The same of a part.
static const char *object_to(const job *j)
{
    if (!fits(j, HD_CUDA_Q) || !fits(j, HD_CUDA_K) || !fits(j, HD_CUDA_V))
        return "rows of its operands do not begin at multiples of 16 bytes, or "
               "do not lie side by side";
    if (j->shape.kind == HD_CUDA_ATTEND_RESULTS)
        return NULL;
    if (j->dense[HD_CUDA_LSE] && j->gapped)
        return "its lse does not begin at multiples of 16 bytes, and lies "
               "apart";
    if (!is_taken_whole(j, HD_CUDA_O) || !is_taken_whole(j, HD_CUDA_DO))
        return "o or do repeats, and is to be converted";
    return NULL;
}

// What a variant needs is within what the session's own steps do.
static bool has_room(const job *j)
{
    const hd_device *device = j->plan->device;

    return j->plan == device->whole ||
           (hd_cuda_has_room(j->plan, j->stream, j->scratch) &&
            device->stream[j->stream].need[HD_CUDA_WORKSPACE] >=
                hd_cuda_dnn_workspace(device, j->known));
}

// Finds cuDNN's plan, or the reason why there is none.
static hd_status find_plan(job *j, const char **reason)
{
    *reason = object_to(j);
    if (*reason != NULL)
        return HD_OK;
    HD_TRY(hd_cuda_dnn_find(j->plan, &j->shape, j->diag, &j->known, reason));
    if (j->known >= 0)
        *reason = has_room(j) ? NULL : "the session has no room for it";
    return HD_OK;
}

// -------------------------------------------------------------- commands

// Where element 0 of piece `i` of a view is.
static hd_cuda_at at_view(const job *j, int part, int64_t i)
{
    hd_span span = *span_of(&j->part->step, part);

    for (int d = j->outer - 1; d >= 0; d--) {
        int64_t n = j->part->span[0].extent[d];

        span.offset += i % n * batch_stride(j->part, part, d);
        i /= n;
    }
    return hd_cuda_at_span(&span);
}

// The same of an operand, which may be in scratch memory.
static hd_cuda_at at_piece(const job *j, int part, int64_t i,
                           hd_cuda_at scratch)
{
    if (!hd_cuda_has_part(&j->shape, part))
        return HD_CUDA_NOWHERE;
    if (!j->dense[part])
        return at_view(j, part, i);
    scratch.offset += j->offset[part] + (uint64_t)i * j->each[part];
    return scratch;
}

static double scale_of(const hd_step *step, int64_t depth)
{
    const hd_key *scale = hd_op_key(step->op, HD_KEY_SCALE);

    return scale != NULL ? scale->number : 1 / sqrt((double)depth);
}

// The attention of piece `i`, and the command that issues it.
static hd_status add_piece(const job *j, int64_t i, hd_cuda_at scratch)
{
    hd_cuda_plan *plan = j->plan;
    hd_cuda_attend *attend;
    hd_cuda_command *command;

    if (!hd_cuda_grow((void **)&plan->attend, plan->nattends,
                      &plan->attend_room, sizeof *plan->attend))
        return hd_cuda_no_room(j->plan->device, j->diag);
    attend = &plan->attend[plan->nattends];
    *attend =
        (hd_cuda_attend){.shape = j->shape,
                         .known = j->known,
                         .workspace = hd_cuda_need(
                             j->plan, j->stream, HD_CUDA_WORKSPACE,
                             hd_cuda_dnn_workspace(j->plan->device, j->known)),
                         .scale = (float)scale_of(j->step, j->shape.depth),
                         .nothing = -INFINITY,
                         .one = 1,
                         .rows = (int32_t)j->shape.rows,
                         .keys = (int32_t)j->shape.keys};
    for (int k = 0; k < HD_CUDA_PARTS; k++)
        attend->at[k] = at_piece(j, k, i, scratch);
    command = hd_cuda_add(j->plan, HD_CUDA_ATTEND, j->stream, j->step);
    if (command == NULL)
        return hd_cuda_no_room(j->plan->device, j->diag);
    command->first = plan->nattends++;
    return HD_OK;
}

// What makes results of those in scratch memory.
static hd_status add_join(const job *j, hd_cuda_at scratch)
{
    const hd_span *span = j->part->span;
    hd_cuda_at at[] = {hd_cuda_at_span(&span[0]), hd_cuda_at_span(&span[1]),
                       at_piece(j, HD_CUDA_O, 0, scratch),
                       at_piece(j, HD_CUDA_LSE, 0, scratch),
                       hd_cuda_at_span(&j->part->before)};
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    if (hd_emit_join(&j->part->step, &j->part->before,
                     j->shape.batch * j->shape.stride[HD_CUDA_LSE][0],
                     (int64_t)(j->each[HD_CUDA_LSE] / sizeof(float)), &text,
                     &grid) != HD_OK)
        return hd_cuda_no_room(j->plan->device, j->diag);
    return hd_cuda_add_kernel(j->plan, j->stream, j->step, &text, grid, at,
                              (int)(sizeof at / sizeof *at), j->diag);
}

// Between those of the operands that are in scratch memory and their views.
static hd_status add_moves(const job *j, const int *part, int n, bool take,
                           hd_cuda_at scratch)
{
    hd_dtype dtype = span_of(j->step, HD_CUDA_Q)->buffer->type.dtype;
    hd_dense_view view[3];
    hd_cuda_at at[3 * 3];
    hd_text text = {0};
    hd_kernel_grid grid = {0};
    int kept = 0;

    for (int i = 0; i < n; i++) {
        if (!j->dense[part[i]])
            continue;
        view[kept] = (hd_dense_view){span_of(&j->part->step, part[i]),
                                     take               ? HD_DENSE_TAKE
                                     : j->adds[part[i]] ? HD_DENSE_ADD
                                                        : HD_DENSE_STORE,
                                     NULL};
        if (part[i] == HD_CUDA_DQ)
            view[kept].before = &j->part->before;
        at[3 * kept] = hd_cuda_at_span(view[kept].span);
        at[3 * kept + 1] = at_piece(j, part[i], 0, scratch);
        at[3 * kept + 2] = part[i] == HD_CUDA_DQ
                               ? hd_cuda_at_span(&j->part->before)
                               : at[3 * kept];
        kept++;
    }
    if (kept == 0)
        return HD_OK;
    if (hd_emit_dense(view, kept, dtype, &text, &grid) != HD_OK)
        return hd_cuda_no_room(j->plan->device, j->diag);
    return hd_cuda_add_kernel(j->plan, j->stream, j->step, &text, grid, at,
                              3 * kept, j->diag);
}

// What gradients are made of, as far as it does not lie as cuDNN takes it.
static hd_status add_taking(const job *j, hd_cuda_at scratch)
{
    static const int taken[] = {HD_CUDA_O, HD_CUDA_DO};
    const hd_cuda_attention *s = &j->shape;
    uint64_t bytes = (uint64_t)(s->batch * s->heads * s->rows) * sizeof(float);

    for (int64_t i = 0; i < j->pieces && j->dense[HD_CUDA_LSE]; i++)
        HD_TRY(hd_cuda_add_copy(j->plan, j->stream, j->step,
                                at_piece(j, HD_CUDA_LSE, i, scratch),
                                at_view(j, HD_CUDA_LSE, i), bytes, j->diag));
    return add_moves(j, taken, 2, true, scratch);
}

static hd_status add_attention(const job *j)
{
    static const int made[] = {HD_CUDA_DQ, HD_CUDA_DK, HD_CUDA_DV};
    bool results = j->shape.kind == HD_CUDA_ATTEND_RESULTS;
    hd_cuda_at scratch = HD_CUDA_NOWHERE;

    if (j->scratch > 0)
        scratch = hd_cuda_need(j->plan, j->stream, HD_CUDA_SCRATCH, j->scratch);
    if (!results)
        HD_TRY(add_taking(j, scratch));
    for (int64_t i = 0; i < j->pieces; i++)
        HD_TRY(add_piece(j, i, scratch));
    if (!results)
        return add_moves(j, made, 3, false, scratch);
    return j->scratch > 0 ? add_join(j, scratch) : HD_OK;
}

// Rows that see nothing become nothing, or what they are.
static hd_status add_blind(const job *j)
{
    const hd_step *step = &j->part->step;
    hd_cuda_at at[HD_KERNEL_POINTERS];
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    if (updates(step))
        return HD_OK;
    for (int i = 0; i < step->op->nviews; i++)
        at[i] = hd_cuda_at_span(&step->span[i]);
    HD_TRY(hd_emit_step(step, j->diag, &text, &grid));
    return hd_cuda_add_kernel(j->plan, j->stream, j->step, &text, grid, at,
                              step->op->nviews, j->diag);
}

// Gradients that parts of the step add to, but not the step itself.
static hd_status add_clear(hd_cuda_plan *plan, int stream, const hd_step *step,
                           hd_diag *diag)
{
    hd_dense_view view[3];
    hd_cuda_at at[3 * 3];
    hd_text text = {0};
    hd_kernel_grid grid = {0};
    int n = 0;

    for (int i = HD_CUDA_DQ; i <= HD_CUDA_DV; i++) {
        if (adds_to(step, i))
            continue;
        view[n] = (hd_dense_view){span_of(step, i), HD_DENSE_CLEAR, NULL};
        at[3 * n] = at[3 * n + 1] = at[3 * n + 2] =
            hd_cuda_at_span(view[n].span);
        n++;
    }
    if (n == 0)
        return HD_OK;
    if (hd_emit_dense(view, n, span_of(step, HD_CUDA_Q)->buffer->type.dtype,
                      &text, &grid) != HD_OK)
        return hd_cuda_no_room(plan->device, diag);
    return hd_cuda_add_kernel(plan, stream, step, &text, grid, at, 3 * n, diag);
}

// ------------------------------------------------------------- the step

static hd_status open_attends(hd_device *device, hd_diag *diag)
{
    if (device->attends == NULL)
        device->attends = calloc(1, sizeof *device->attends);
    return device->attends != NULL
               ? HD_OK
               : hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for attention");
}

void hd_cuda_attends_close(hd_device *device)
{
    free(device->attends);
    hd_cuda_dnn_close(device);
}

// The library for those who ask, or why it has not all steps.
static void describe(hd_device *device)
{
    hd_cuda_attends *attends = device->attends;
    const char *dnn = hd_cuda_dnn_text(device);
    size_t room = sizeof attends->text;

    if (attends->ours == 0)
        snprintf(attends->text, room, "%s", dnn);
    else if (attends->theirs == 0)
        snprintf(attends->text, room, "generated kernels: %s", attends->reason);
    else
        snprintf(attends->text, room, "%s, %d of %d steps; others: %s", dnn,
                 attends->theirs, attends->theirs + attends->ours,
                 attends->reason);
}

const char *hd_cuda_attends_text(const hd_device *device)
{
    return device->attends != NULL ? device->attends->text : "";
}

static hd_status add_ours(hd_cuda_plan *plan, int stream, const hd_step *step,
                          const char *reason, hd_diag *diag)
{
    hd_device *device = plan->device;
    hd_cuda_attends *attends = device->attends;

    if (strcmp(attends->reason, reason) != 0)
        hd_log(HD_SEVERITY_NOTE,
               "rank %d: a generated kernel does attention in step %lld: %s",
               device->rank, (long long)step->index, reason);
    if (attends->ours == 0)
        snprintf(attends->reason, REASON, "%s", reason);
    if (plan == device->whole)
        attends->ours++;
    describe(device);
    return hd_cuda_add_step(plan, stream, step, diag);
}

// A step that is to be cuDNN's and is not.
static hd_status refuse(const hd_device *device, const hd_step *step,
                        const char *reason, hd_diag *diag)
{
    return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                   "rank %d: HEDDLE_ATTENTION is cudnn, and the attention in "
                   "step %lld (line %u) is not cuDNN's: %s",
                   device->rank, (long long)step->index, step->op->loc.line,
                   reason);
}

// Without cuDNN, or with one that is of no use here, generated kernels do, if
// they may.
static hd_status open_dnn(hd_device *device, choice choice, hd_diag *diag,
                          const char **reason)
{
    hd_cuda_attends *attends = device->attends;
    hd_message message = HD_EMPTY(hd_message);
    hd_diag *words;

    if (choice == CUDNN)
        return hd_cuda_dnn_open(device, diag);
    if (*attends->absent == '\0') {
        words = hd_diag_create();
        if (hd_cuda_dnn_open(device, words) != HD_OK) {
            if (words != NULL)
                hd_diag_message(words, 0, &message);
            snprintf(attends->absent, REASON, "%s",
                     message.text != NULL ? message.text : "no memory");
            hd_cuda_dnn_close(device);
        }
        hd_diag_destroy(words);
    }
    if (*attends->absent != '\0')
        *reason = attends->absent;
    return HD_OK;
}

// A step in parts that cuDNN does, unless there is a reason why it does not.
typedef struct attempt {
    part part[ROWS_MOST];
    job job[ROWS_MOST];
    int n;
    bool whole; // one part has all rows, which see all keys
    choice choice;
    const char *reason;
} attempt;

static bool is_whole(const hd_step *step, const part *part, int n)
{
    return n == 1 && !part->blind &&
           span_of(&part->step, HD_CUDA_K)->extent[line_of(step, HD_CUDA_K)] ==
               span_of(step, HD_CUDA_K)->extent[line_of(step, HD_CUDA_K)];
}

// Whether each of two parts would round what it adds to the same keys.
static bool rounds_twice(const hd_step *step, const part *part, int n)
{
    bool narrow = false;
    int parts = 0;

    for (int i = HD_CUDA_DK; i <= HD_CUDA_DV && !makes_results(step); i++)
        narrow |= adds_to(step, i) &&
                  hd_dtype_size(span_of(step, i)->buffer->type.dtype) == 2;
    for (int i = 0; i < n; i++)
        parts += !part[i].blind;
    return narrow && parts > 1;
}

static hd_status try_cudnn(hd_cuda_plan *plan, int stream, const hd_step *step,
                           const hd_cuda_detour *detour, hd_diag *diag,
                           attempt *out)
{
    *out = (attempt){.choice = EITHER};
    HD_TRY(read_choice(diag, &out->choice));
    HD_TRY(open_attends(plan->device, diag));
    // It is to do all of it at once, or the same in each run.
    plan->again |= out->choice == CUDNN || plan->device->binding.deterministic;
    out->reason = out->choice == GENERATED ? "HEDDLE_ATTENTION is generated"
                                           : object(step);
    if (out->reason == NULL)
        HD_TRY(open_dnn(plan->device, out->choice, diag, &out->reason));
    if (out->reason == NULL)
        out->n = take_apart(step, detour, out->part);
    out->whole = is_whole(step, out->part, out->n);
    for (int i = 0; i < out->n; i++)
        out->job[i] =
            job_of(plan, stream, step, &out->part[i], out->whole, diag);
    if (out->reason == NULL && rounds_twice(step, out->part, out->n))
        out->reason = "two parts of its rows add to dk or dv of 16 bits";
    for (int i = 0; i < out->n && out->reason == NULL; i++)
        if (!out->part[i].blind)
            HD_TRY(find_plan(&out->job[i], &out->reason));
    return HD_OK;
}

static hd_status add_theirs(hd_cuda_plan *plan, int stream, const hd_step *step,
                            const attempt *attempt, hd_diag *diag)
{
    hd_device *device = plan->device;

    if (!makes_results(step) && !attempt->whole)
        HD_TRY(add_clear(plan, stream, step, diag));
    for (int i = 0; i < attempt->n; i++) {
        if (!attempt->part[i].blind)
            HD_TRY(add_attention(&attempt->job[i]));
        else if (makes_results(step))
            HD_TRY(add_blind(&attempt->job[i]));
    }
    if (plan == device->whole)
        device->attends->theirs++;
    describe(device);
    return HD_OK;
}

hd_status hd_cuda_plan_attention(hd_cuda_plan *plan, int stream,
                                 const hd_step *step,
                                 const hd_cuda_detour *detour, hd_diag *diag)
{
    attempt attempt;

    HD_TRY(try_cudnn(plan, stream, step, detour, diag, &attempt));
    if (attempt.reason == NULL)
        return add_theirs(plan, stream, step, &attempt, diag);
    return attempt.choice == CUDNN
               ? refuse(plan->device, step, attempt.reason, diag)
               : add_ours(plan, stream, step, attempt.reason, diag);
}

// Rows that see nothing are not written where the step accumulates, so that
// they are in the result only if it is what the step merges with.
hd_status hd_cuda_attends_by(hd_cuda_plan *plan, int stream,
                             const hd_step *step, const hd_cuda_detour *detour,
                             hd_diag *diag, bool *out)
{
    attempt attempt;

    HD_TRY(try_cudnn(plan, stream, step, detour, diag, &attempt));
    *out = attempt.reason == NULL;
    if (!makes_results(step))
        *out &= attempt.whole || detour->copy == NULL;
    for (int i = 0; i < attempt.n && makes_results(step) && updates(step); i++)
        *out &= !attempt.part[i].blind;
    return HD_OK;
}
