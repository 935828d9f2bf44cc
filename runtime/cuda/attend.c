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
// from.
#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "base/log.h"
#include "base/setting.h"
#include "runtime/cuda/attends.h"

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
    hd_cuda_mask mask;
    bool blind; // they see none
} part;

// Of the dimensions of a view that are of no batch, the second: rows, or keys.
static int line_of(const hd_step *step, int view)
{
    return hd_op_batch(step->op, view, step->span[view].ndims) + 1;
}

static void cut(const hd_step *step, part *part, int view, int64_t first,
                int64_t n)
{
    int d = line_of(step, view);

    part->span[view].offset += first * part->span[view].stride[d];
    part->span[view].extent[d] = n;
}

// Rows [first, end), which see some of the first `keys` keys.
static void take_rows(const hd_step *step, int64_t first, int64_t end,
                      int64_t keys, part *out)
{
    out->step = *step;
    out->step.span = out->span;
    memcpy(out->span, step->span,
           sizeof *step->span * (size_t)step->op->nviews);
    for (int i = 0; i < 3; i++)
        cut(step, out, i, first, end - first);
    for (int i = 3; i < 5; i++)
        cut(step, out, i, 0, keys);
    if (step->causal != HD_SEES_ALL)
        out->step.causal += (int32_t)first;
}

static int64_t between(int64_t least, int64_t n, int64_t most)
{
    return n < least ? least : n > most ? most : n;
}

// The parts of a step without a window; returns how many there are.
static int take_apart(const hd_step *step, part out[ROWS_MOST])
{
    int64_t rows = step->span[2].extent[line_of(step, 2)];
    int64_t keys = step->span[3].extent[line_of(step, 3)];
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
        take_rows(step, 0, blind, keys, &out[n++]);
    }
    if (all > blind) {
        int64_t seen = between(0, all + causal, keys);

        out[n] = (part){.mask = causal + blind == 0 ? HD_CUDA_MASK_TOP
                                                    : HD_CUDA_MASK_BOTTOM};
        take_rows(step, blind, all, seen, &out[n++]);
    }
    if (rows > all) {
        out[n] = (part){.mask = HD_CUDA_MASK_NONE};
        take_rows(step, all, rows, keys, &out[n++]);
    }
    return n;
}

// --------------------------------------------------------------- shapes

// A part as cuDNN sees it: what `shape` is, once for each index of the first
// `outer` dimensions of the batch.
typedef struct job {
    hd_device *device;
    int stream;
    const hd_step *step; // all rows
    hd_diag *diag;
    const part *part;
    hd_cuda_attention shape;
    int outer;
    int64_t pieces;
    bool scratched; // the results go to scratch, one piece after the other
    int known;      // cuDNN's plan of the shape
} job;

// How far apart indices of dimension `d` of the batch are, 0 where the view
// repeats.
static int64_t batch_stride(const part *part, int view, int d)
{
    const hd_span *span = &part->span[view];
    const hd_op *op = part->step.op;
    int own = d - hd_op_batch(op, 0, part->span[0].ndims) +
              hd_op_batch(op, view, span->ndims);

    return own < 0 || span->extent[own] == 1 ? 0 : span->stride[own];
}

// Whether the dimension goes on where the folded ones end, or begins them.
static bool folds(const part *part, const hd_cuda_attention *s, int d)
{
    bool fits = true;

    for (int i = 0; i < HD_CUDA_PARTS; i++)
        fits &= s->batch == 1
                    ? batch_stride(part, i, d) > 0
                    : batch_stride(part, i, d) == s->stride[i][0] * s->batch;
    return fits;
}

static void fold_batch(job *j)
{
    const hd_span *o = &j->part->span[0];
    hd_cuda_attention *s = &j->shape;
    int d = hd_op_batch(j->step->op, 0, o->ndims) - 1;

    s->batch = 1;
    for (; d >= 0 && (o->extent[d] == 1 || folds(j->part, s, d)); d--) {
        for (int i = 0; i < HD_CUDA_PARTS && s->batch == 1; i++)
            s->stride[i][0] = batch_stride(j->part, i, d);
        s->batch *= o->extent[d];
    }
    j->outer = d + 1;
    j->pieces = 1;
    for (d = 0; d < j->outer; d++)
        j->pieces *= o->extent[d];
}

static int cudnn_type(hd_dtype dtype)
{
    return dtype == HD_DTYPE_BF16 ? HD_DNN_BF16 : HD_DNN_F16;
}

// Of a dimension of one index the stride is what it would be of a dense one, so
// that equal shapes are equal.
static void settle_strides(hd_cuda_attention *s, int part, int64_t heads,
                           int64_t rows, int64_t width)
{
    int64_t *stride = s->stride[part];

    if (rows == 1)
        stride[2] = width;
    if (heads == 1)
        stride[1] = rows * stride[2];
    if (s->batch == 1)
        stride[0] = heads * stride[1] > rows * stride[2] ? heads * stride[1]
                                                         : rows * stride[2];
}

static void measure(job *j)
{
    const hd_span *span = j->part->span;
    hd_cuda_attention *s = &j->shape;

    memset(s, 0, sizeof *s);
    fold_batch(j);
    s->type = cudnn_type(span[2].buffer->type.dtype);
    s->mask = j->part->mask;
    s->heads = span[2].extent[line_of(j->step, 2) - 1];
    s->shared = span[3].extent[line_of(j->step, 3) - 1];
    s->rows = span[2].extent[line_of(j->step, 2)];
    s->keys = span[3].extent[line_of(j->step, 3)];
    s->depth = span[2].extent[span[2].ndims - 1];
    s->wide = span[4].extent[span[4].ndims - 1];
    for (int i = 0; i < HD_CUDA_PARTS; i++) {
        bool shared = i == HD_CUDA_K || i == HD_CUDA_V;

        s->stride[i][1] = span[i].stride[line_of(j->step, i) - 1];
        s->stride[i][2] = span[i].stride[line_of(j->step, i)];
        settle_strides(s, i, shared ? s->shared : s->heads,
                       shared ? s->keys : s->rows,
                       i == HD_CUDA_LSE                   ? 1
                       : i == HD_CUDA_Q || i == HD_CUDA_K ? s->depth
                                                          : s->wide);
    }
}

// Whether all rows of a view begin at multiples of 16 bytes, and each lies side
// by side.
static bool fits(const job *j, int view)
{
    const hd_span *span = &j->part->span[view];
    bool whole =
        span->offset % MULTIPLE == 0 && span->stride[span->ndims - 1] == 1;

    for (int d = 0; d < span->ndims - 1; d++)
        whole &= span->extent[d] == 1 || span->stride[d] % MULTIPLE == 0;
    return whole;
}

// Whether lse may be written where it belongs: every piece of it begins at a
// multiple of 16 bytes.
static bool fits_lse(const job *j)
{
    const int64_t multiple = ALIGNMENT / (int64_t)sizeof(float);
    const hd_span *span = &j->part->span[1];
    bool whole = span->offset % multiple == 0 && j->shape.stride[1][2] == 1;

    for (int d = 0; d < j->outer; d++)
        whole &= span->extent[d] == 1 || span->stride[d] % multiple == 0;
    return whole;
}

static bool is_scratched(const job *j)
{
    return hd_op_access(j->step->op, 0) == HD_ACCESS_UPDATE ||
           j->part->span[0].buffer->type.dtype !=
               j->part->span[2].buffer->type.dtype ||
           !fits(j, 0) || !fits_lse(j);
}

// Rows of a piece, with those that keep the next one's lse at a multiple of 16
// bytes.
static int64_t part_rows(const job *j)
{
    return j->shape.batch * j->shape.heads * j->shape.rows;
}

static int64_t padded_rows(const job *j)
{
    const int64_t multiple = ALIGNMENT / (int64_t)sizeof(float);

    return (part_rows(j) + multiple - 1) / multiple * multiple;
}

static size_t o_bytes(const job *j)
{
    return (size_t)(j->pieces * part_rows(j) * j->shape.wide) * 2;
}

static size_t scratch_bytes(const job *j)
{
    return o_bytes(j) + (size_t)(j->pieces * padded_rows(j)) * sizeof(float);
}

// The results of a piece are dense.
static void scratch_results(job *j)
{
    hd_cuda_attention *s = &j->shape;

    s->stride[HD_CUDA_O][2] = s->wide;
    s->stride[HD_CUDA_LSE][2] = 1;
    for (int i = HD_CUDA_O; i <= HD_CUDA_LSE; i++) {
        s->stride[i][1] = s->rows * s->stride[i][2];
        s->stride[i][0] = s->heads * s->stride[i][1];
    }
    j->scratched = true;
}

static job job_of(hd_device *device, int stream, const hd_step *step,
                  const part *part, hd_diag *diag)
{
    job j = {.device = device,
             .stream = stream,
             .step = step,
             .diag = diag,
             .part = part};

    measure(&j);
    if (is_scratched(&j))
        scratch_results(&j);
    return j;
}

// -------------------------------------------------------------- refusals

// Why the step is not cuDNN's, as far as no part of it matters; NULL if it may
// be.
static const char *object(const hd_step *step)
{
    const hd_key *scale = hd_op_key(step->op, HD_KEY_SCALE);
    hd_dtype dtype = step->span[2].buffer->type.dtype;

    if (dtype != HD_DTYPE_BF16 && dtype != HD_DTYPE_F16)
        return "its operands are neither bf16 nor f16";
    if (hd_op_key(step->op, HD_KEY_WINDOW) != NULL)
        return "it has a window";
    if (scale != NULL && scale->view >= 0)
        return "its scale is in memory";
    for (int i = 2; i < 5; i++)
        if (step->span[i].extent[step->span[i].ndims - 1] % MULTIPLE != 0)
            return "D or Dv is no multiple of 8";
    if (step->span[3].extent[line_of(step, 3)] == 0)
        return "it has no keys";
    return NULL;
}

// The same of a part.
static const char *object_to(const job *j)
{
    if (!fits(j, 2) || !fits(j, 3) || !fits(j, 4))
        return "rows of its operands do not begin at multiples of 16 bytes, or "
               "do not lie side by side";
    return NULL;
}

// What a variant needs is within what the session's own steps do.
static bool has_room(const job *j)
{
    const hd_device *device = j->device;

    return device->plan == device->whole ||
           (hd_cuda_has_room(device, j->stream,
                             j->scratched ? scratch_bytes(j) : 0) &&
            device->stream[j->stream].need[HD_CUDA_WORKSPACE] >=
                hd_cuda_dnn_workspace(device, j->known));
}

// Finds cuDNN's plan, or the reason why there is none.
static hd_status find_plan(job *j, const char **reason)
{
    *reason = object_to(j);
    if (*reason != NULL)
        return HD_OK;
    HD_TRY(hd_cuda_dnn_find(j->device, &j->shape, j->diag, &j->known, reason));
    if (j->known >= 0)
        *reason = has_room(j) ? NULL : "the session has no room for it";
    return HD_OK;
}

// -------------------------------------------------------------- commands

// Where element 0 of piece `i` of a view is.
static hd_cuda_at at_piece(const job *j, int view, int64_t i)
{
    hd_span span = j->part->span[view];

    for (int d = j->outer - 1; d >= 0; d--) {
        int64_t n = j->part->span[0].extent[d];

        span.offset += i % n * batch_stride(j->part, view, d);
        i /= n;
    }
    return hd_cuda_at_span(&span);
}

static double scale_of(const hd_step *step, int64_t depth)
{
    const hd_key *scale = hd_op_key(step->op, HD_KEY_SCALE);

    return scale != NULL ? scale->number : 1 / sqrt((double)depth);
}

// The attention of piece `i`, and the command that issues it.
static hd_status add_piece(const job *j, int64_t i, const hd_cuda_at *scratch)
{
    hd_cuda_plan *plan = j->device->plan;
    hd_cuda_attend *attend;
    hd_cuda_command *command;

    if (!hd_cuda_grow((void **)&plan->attend, plan->nattends,
                      &plan->attend_room, sizeof *plan->attend))
        return hd_cuda_no_room(j->device, j->diag);
    attend = &plan->attend[plan->nattends];
    *attend = (hd_cuda_attend){
        .shape = j->shape,
        .known = j->known,
        .workspace = hd_cuda_need(j->device, j->stream, HD_CUDA_WORKSPACE,
                                  hd_cuda_dnn_workspace(j->device, j->known)),
        .scale = (float)scale_of(j->step, j->shape.depth),
        .nothing = -INFINITY,
        .rows = (int32_t)j->shape.rows,
        .keys = (int32_t)j->shape.keys};
    for (int k = 0; k < HD_CUDA_PARTS; k++)
        attend->at[k] = at_piece(j, k, i);
    if (scratch != NULL) {
        attend->at[HD_CUDA_O] = attend->at[HD_CUDA_LSE] = *scratch;
        attend->at[HD_CUDA_O].offset +=
            (uint64_t)(i * part_rows(j) * j->shape.wide) * 2;
        attend->at[HD_CUDA_LSE].offset +=
            o_bytes(j) + (uint64_t)(i * padded_rows(j)) * sizeof(float);
    }
    command = hd_cuda_add(j->device, HD_CUDA_ATTEND, j->stream, j->step);
    if (command == NULL)
        return hd_cuda_no_room(j->device, j->diag);
    command->first = plan->nattends++;
    return HD_OK;
}

static hd_status add_join(const job *j, hd_cuda_at scratch)
{
    hd_cuda_at at[] = {hd_cuda_at_span(&j->part->span[0]),
                       hd_cuda_at_span(&j->part->span[1]), scratch, scratch};
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    at[3].offset += o_bytes(j);
    if (hd_emit_join(&j->part->step, part_rows(j), padded_rows(j), &text,
                     &grid) != HD_OK)
        return hd_cuda_no_room(j->device, j->diag);
    return hd_cuda_add_kernel(j->device, j->stream, j->step, &text, grid, at,
                              (int)(sizeof at / sizeof *at), j->diag);
}

static hd_status add_attention(const job *j)
{
    hd_cuda_at scratch = HD_CUDA_NOWHERE;

    if (j->scratched)
        scratch = hd_cuda_need(j->device, j->stream, HD_CUDA_SCRATCH,
                               scratch_bytes(j));
    for (int64_t i = 0; i < j->pieces; i++)
        HD_TRY(add_piece(j, i, j->scratched ? &scratch : NULL));
    return j->scratched ? add_join(j, scratch) : HD_OK;
}

// Rows that see nothing become nothing, or what they are.
static hd_status add_blind(const job *j)
{
    const hd_step *step = &j->part->step;
    hd_cuda_at at[HD_KERNEL_POINTERS];
    hd_text text = {0};
    hd_kernel_grid grid = {0};

    if (hd_op_access(step->op, 0) == HD_ACCESS_UPDATE)
        return HD_OK;
    for (int i = 0; i < step->op->nviews; i++)
        at[i] = hd_cuda_at_span(&step->span[i]);
    HD_TRY(hd_emit_step(step, j->diag, &text, &grid));
    return hd_cuda_add_kernel(j->device, j->stream, j->step, &text, grid, at,
                              step->op->nviews, j->diag);
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

static hd_status add_ours(hd_device *device, int stream, const hd_step *step,
                          const char *reason, hd_diag *diag)
{
    hd_cuda_attends *attends = device->attends;

    if (strcmp(attends->reason, reason) != 0)
        hd_log(HD_SEVERITY_NOTE,
               "rank %d: a generated kernel does attention in step %lld: %s",
               device->rank, (long long)step->index, reason);
    if (attends->ours == 0)
        snprintf(attends->reason, REASON, "%s", reason);
    if (device->plan == device->whole)
        attends->ours++;
    describe(device);
    return hd_cuda_add_step(device, stream, step, diag);
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

// Each of `n` parts as cuDNN does it, or the reason why it does not do one.
static hd_status find_plans(job *job, int n, const char **reason)
{
    for (int i = 0; i < n && *reason == NULL; i++) {
        if (!job[i].part->blind)
            HD_TRY(find_plan(&job[i], reason));
    }
    return HD_OK;
}

static hd_status add_theirs(hd_device *device, const job *job, int n)
{
    for (int i = 0; i < n; i++)
        HD_TRY(job[i].part->blind ? add_blind(&job[i])
                                  : add_attention(&job[i]));
    if (device->plan == device->whole)
        device->attends->theirs++;
    describe(device);
    return HD_OK;
}

hd_status hd_cuda_plan_attention(hd_device *device, int stream,
                                 const hd_step *step, hd_diag *diag)
{
    choice choice = EITHER;
    part part[ROWS_MOST];
    job job[ROWS_MOST];
    const char *reason;
    int n = 0;

    HD_TRY(read_choice(diag, &choice));
    HD_TRY(open_attends(device, diag));
    reason =
        choice == GENERATED ? "HEDDLE_ATTENTION is generated" : object(step);
    if (reason == NULL)
        HD_TRY(open_dnn(device, choice, diag, &reason));
    if (reason == NULL)
        n = take_apart(step, part);
    for (int i = 0; i < n; i++)
        job[i] = job_of(device, stream, step, &part[i], diag);
    HD_TRY(find_plans(job, n, &reason));
    if (reason == NULL)
        return add_theirs(device, job, n);
    return choice == CUDNN ? refuse(device, step, reason, diag)
                           : add_ours(device, stream, step, reason, diag);
}
