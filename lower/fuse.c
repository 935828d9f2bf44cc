// --transfer fused: a gather and the one matmul that reads it become one
// launch, and so do a matmul and the sum over ranks that alone reads its
// result:
//
//     %g = all_gather %a[tp]          ->    launch {
//     ..                                        %g = all_gather %a[tp]
//     %c = matmul %g, %b                        %c = matmul %g, %b
//                                           }
//
// The one that is first moves to where the second is, so nothing in between may
// write what it reads. One walk over the statements knows for each buffer where
// it was written last.
#include "lower/build.h"
#include "lower/pack.h"
#include "lower/pass.h"

// What is known of a buffer, by id of its root.
typedef struct known {
    int nreads, nwrites; // in the whole program
    int written;         // the statement that did so last, from 1
    hd_stmt *by;         // it, if that is an op; NULL once it has been judged
} known;

typedef struct fuser {
    hd_module *module;
    hd_arena *scratch;
    hd_diag *diag;
    hd_effect *effect;
    known *known;
    bool *gone; // by number of the statement, from 1
    int now;
} fuser;

static known *known_of(const fuser *f, const hd_view *view)
{
    return &f->known[hd_buffer_root(view->buffer)->id];
}

static void count_uses(void *context, hd_op *op)
{
    const fuser *f = context;

    for (int i = 0; i < op->nviews; i++) {
        hd_access access = hd_op_access(op, i);

        known_of(f, &op->view[i])->nreads += (access & HD_ACCESS_READ) != 0;
        known_of(f, &op->view[i])->nwrites += (access & HD_ACCESS_WRITE) != 0;
    }
}

// ------------------------------------------------------------------ refusals

static const char *line_text(const fuser *f, const hd_op *op, const char *what)
{
    return hd_arena_printf(f->scratch, "'%s' in line %u %s",
                           hd_op_info_get(op->code)->text, op->loc.line, what);
}

// No provider works with one rank, which has all that there is to gather.
static const char *why_alone(const fuser *f, const hd_op *transfer)
{
    const hd_axis *axis = &f->module->axis[transfer->axis];

    return axis->size > 1
               ? NULL
               : hd_arena_printf(f->scratch, "%s has one rank", axis->name);
}

// Why what stands between the two is more than that: NULL if it is not.
static const char *why_kept(const fuser *f, const hd_buffer *between)
{
    const known *k = &f->known[hd_buffer_root((hd_buffer *)between)->id];

    if (between->role != HD_ROLE_TEMP)
        return hd_arena_printf(f->scratch, "%%%s is an argument",
                               between->said);
    if (between->of != NULL || k->nwrites != 1)
        return hd_arena_printf(f->scratch, "%%%s is written more than once",
                               between->said);
    if (k->nreads != 1)
        return hd_arena_printf(
            f->scratch,
            "%%%s is read %d times, and what is fused leaves it "
            "nowhere",
            between->said, k->nreads);
    return NULL;
}

static const char *why_rewritten(const fuser *f, const hd_op *first, int since)
{
    for (int i = first->noutputs; i < first->nviews; i++)
        if (known_of(f, &first->view[i])->written > since)
            return hd_arena_printf(
                f->scratch, "%%%s is written again before what it is for",
                first->view[i].buffer->said);
    return NULL;
}

// What no provider takes, which makes a launch ready for shapes that stay.
static const char *why_varies(const fuser *f, const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++) {
        const hd_buffer *x = op->view[i].buffer;

        if (hd_view_is_sized(&op->view[i]))
            return hd_arena_printf(
                f->scratch,
                "how many indices %%%s has is said by each run, and what is "
                "fused is made ready for one number",
                x->said);
        if (x->by != NULL)
            return hd_arena_printf(
                f->scratch,
                "%%%s says how many indices %%%s has, and what is fused takes "
                "no counts",
                x->by->said, x->said);
    }
    return NULL;
}

#define KEY(code) (UINT64_C(1) << HD_KEY_##code)

// Whose operand is gathered adds a bias once; whose result is summed would add
// one a rank.
static const char *why_key(const fuser *f, const hd_op *matmul, bool gathers)
{
    uint64_t keys = gathers ? KEY(TB) | KEY(SCALE) | KEY(BIAS) | KEY(ACT) |
                                  KEY(AUX) | KEY(ACCUMULATE)
                            : KEY(TA) | KEY(TB) | KEY(SCALE);

    for (int i = 0; i < matmul->nkeys; i++)
        if ((keys >> matmul->key[i].code & 1) == 0)
            return line_text(
                f, matmul,
                hd_arena_printf(f->scratch, "has the key '%s'",
                                hd_key_info_get(matmul->key[i].code)->text));
    return NULL;
}

// Why the two are not one launch, whichever is first.
static const char *why_unfit(const fuser *f, const hd_op *transfer,
                             const hd_op *matmul, bool gathers)
{
    const char *reason = why_varies(f, matmul);

    if (reason == NULL)
        reason = why_varies(f, transfer);
    return reason != NULL ? reason : why_key(f, matmul, gathers);
}

// A program of one rank in all is as good with any pipeline: nobody is told.
static void refuse(fuser *f, const hd_op *transfer, const char *reason)
{
    if (f->module->nranks == 1)
        f->effect->used |= HD_OPTION_TRANSFER;
    else
        hd_effect_none(f->effect, HD_OPTION_TRANSFER, f->diag, transfer->loc,
                       reason);
}

// ------------------------------------------------------------------- fusing

static void append(const fuser *f, hd_stmt *launch, hd_op *op)
{
    hd_stmt *stmt = hd_stmt_new(f->module, HD_STMT_OP, op->loc);

    stmt->op = op;
    hd_block_append(&launch->body, stmt);
}

// `stmt`, the second of the two, becomes them both, unless there is a reason
// why not.
static void settle(fuser *f, hd_stmt *stmt, const known *first,
                   const hd_op *transfer, const char *reason)
{
    hd_op *second = stmt->op;

    if (reason != NULL) {
        refuse(f, transfer, reason);
        return;
    }
    f->gone[first->written] = true;
    f->effect->used |= HD_OPTION_TRANSFER;
    stmt->kind = HD_STMT_LAUNCH;
    stmt->op = NULL;
    append(f, stmt, first->by->op);
    append(f, stmt, second);
}

static const char *why_packed(const fuser *f, const hd_op *transfer)
{
    return hd_needs_packing(f->module, transfer)
               ? "what it moves is no index of a first dimension, and is "
                 "packed by copies"
               : NULL;
}

// `stmt` is the first to read a gather's result since it was gathered.
static void judge_gather(fuser *f, hd_stmt *stmt, const hd_op *matmul, int view,
                         known *k)
{
    const hd_op *gather = k->by->op;
    const char *reason = why_alone(f, gather);

    if (reason == NULL)
        reason = why_packed(f, gather);
    if (reason == NULL)
        reason = why_kept(f, gather->view[0].buffer);
    if (reason == NULL && matmul->code != HD_OP_MATMUL)
        reason = line_text(f, matmul, "is no matmul");
    if (reason == NULL && view != 1)
        reason = line_text(f, matmul, "has it not as its first operand");
    if (reason == NULL && matmul->view[1].buffer != gather->view[0].buffer)
        reason = line_text(f, matmul, "has it in another shape");
    if (reason == NULL)
        reason = why_rewritten(f, gather, k->written);
    if (reason == NULL)
        reason = why_unfit(f, gather, matmul, true);
    settle(f, stmt, k, gather, reason);
    k->by = NULL;
}

static void judge_sum(fuser *f, hd_stmt *stmt)
{
    const hd_op *sum = stmt->op;
    known *k = known_of(f, &sum->view[1]);
    const char *reason = why_alone(f, sum);

    if (reason == NULL)
        reason = why_packed(f, sum);
    if (reason == NULL && hd_op_fold(sum) != HD_FOLD_SUM)
        reason = "it is no sum";
    if (reason == NULL && (k->by == NULL || k->by->op->code != HD_OP_MATMUL ||
                           k->by->op->view[0].buffer != sum->view[1].buffer))
        reason = "what it sums is not what a matmul makes, as it is";
    if (reason == NULL)
        reason = why_kept(f, sum->view[1].buffer);
    if (reason == NULL)
        reason = why_rewritten(f, k->by->op, k->written);
    if (reason == NULL)
        reason = why_unfit(f, sum, k->by->op, false);
    settle(f, stmt, k, sum, reason);
}

static void judge(fuser *f, hd_stmt *stmt)
{
    hd_op *op = stmt->op; // `stmt` may become a launch

    for (int i = 0; i < op->nviews; i++) {
        known *k = known_of(f, &op->view[i]);

        if (hd_op_reads(op, i) && k->by != NULL &&
            k->by->op->code == HD_OP_ALL_GATHER)
            judge_gather(f, stmt, op, i, k);
    }
    if (hd_op_is_collective(op) && hd_op_fold(op) != HD_FOLD_NONE)
        judge_sum(f, stmt);
    else if (op->code == HD_OP_ALL_TO_ALL)
        refuse(f, op, "a dimension that changes its axis is one all_to_all");
}

// Of an op, or of the loop of copies that packs or unpacks.
static void note_writes(void *context, hd_op *op)
{
    const fuser *f = context;

    for (int i = 0; i < op->nviews; i++) {
        known *k = known_of(f, &op->view[i]);

        if (hd_op_access(op, i) == HD_ACCESS_READ)
            continue;
        k->written = f->now;
        k->by = NULL;
    }
}

static void forget_gathers(void *context, hd_op *op)
{
    fuser *f = context;

    for (int i = op->noutputs; i < op->nviews; i++) {
        known *k = known_of(f, &op->view[i]);

        if (k->by != NULL && k->by->op->code == HD_OP_ALL_GATHER)
            refuse(f, k->by->op, "what it gathers is unpacked by copies");
        k->by = NULL;
    }
}

static void visit(fuser *f, hd_stmt *stmt)
{
    if (stmt->kind != HD_STMT_OP) {
        hd_stmt_each(stmt, forget_gathers, f);
        hd_stmt_each(stmt, note_writes, f);
        return;
    }
    judge(f, stmt);
    hd_stmt_each(stmt, note_writes, f);
    for (int i = 0; stmt->op != NULL && i < stmt->op->noutputs; i++)
        known_of(f, &stmt->op->view[i])->by = stmt;
}

// Gathers that nothing has read.
static void refuse_rest(fuser *f)
{
    for (const hd_buffer *b = f->module->buffers; b != NULL; b = b->next) {
        const hd_stmt *by = f->known[b->id].by;

        if (by != NULL && by->op->code == HD_OP_ALL_GATHER)
            refuse(f, by->op, "no matmul reads what it gathers");
    }
}

// The collective of a launch has its pieces as those outside get them later.
static void lead(hd_module *module, const hd_stmt *launch)
{
    for (hd_stmt *stmt = launch->body.first; stmt != NULL; stmt = stmt->next)
        if (hd_op_is(stmt->op, HD_UNIT_TRANSFER))
            hd_pack_lead(&(hd_build){module, NULL, stmt->loc}, stmt->op);
}

void hd_fuse(hd_module *module, hd_arena *scratch, hd_diag *diag,
             hd_effect *effect)
{
    fuser f = {.module = module,
               .scratch = scratch,
               .diag = diag,
               .effect = effect,
               .known = hd_new_array(scratch, known, module->nbuffers + 1)};
    hd_block left = {0};
    hd_stmt *next;
    int n = 0;

    for (hd_stmt *stmt = module->body.first; stmt != NULL; stmt = stmt->next)
        n++;
    f.gone = hd_new_array(scratch, bool, n + 1);
    hd_block_each(&module->body, hd_build_past_ones, module);
    hd_block_each(&module->body, count_uses, &f);
    for (hd_stmt *stmt = module->body.first; stmt != NULL; stmt = stmt->next) {
        f.now++;
        visit(&f, stmt);
    }
    refuse_rest(&f);
    f.now = 0;
    for (hd_stmt *stmt = module->body.first; stmt != NULL; stmt = next) {
        next = stmt->next;
        if (f.gone[++f.now])
            continue;
        if (stmt->kind == HD_STMT_LAUNCH)
            lead(module, stmt);
        hd_block_append(&left, stmt);
    }
    module->body = left;
}
