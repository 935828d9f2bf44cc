// --transfer fused: a gather and the one matmul that reads it become one op,
// and so do a matmul and the sum over ranks that alone reads its result:
//
//     %ag = all_gather %a[tp]         ->    %c = all_gather_matmul %a[tp], %b
//     %c = matmul %ag, %b
//     %p = matmul %a, %b              ->    %c[tp] = matmul_reduce_scatter
//     %c[tp] = reduce_scatter %p[tp]            %a[tp], %b[tp]
//
// The one that is first moves to where the second is, so nothing in between may
// write what it reads. One walk over the statements knows for each buffer where
// it was written last.
#include "ir/parts.h"
#include "ir/signature.h"
#include "ir/space.h"
#include "lower/build.h"
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
            "%%%s is read %d times, and a fused op leaves it "
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

static const char *why_sized(const fuser *f, const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        if (hd_view_is_sized(&op->view[i]))
            return hd_arena_printf(
                f->scratch,
                "how many indices %%%s has is said by each run, and a fused op "
                "is made ready for one number",
                op->view[i].buffer->said);
    return NULL;
}

static const char *why_counted(const fuser *f, const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].buffer->by != NULL)
            return hd_arena_printf(
                f->scratch,
                "%%%s says how many indices %%%s has, and a fused op takes no "
                "counts",
                op->view[i].buffer->by->said, op->view[i].buffer->said);
    return NULL;
}

// Why the two cannot be this op.
static const char *why_unfit(const fuser *f, const hd_op *op)
{
    hd_type type[3] = {[2] = hd_view_type(&op->view[2])};
    hd_op product = *op;
    const char *sized = why_sized(f, op);

    if (sized != NULL)
        return sized;
    for (int i = 1; i < op->nviews; i++)
        for (int k = 0; k < op->nviews; k++)
            if (i != k && (k == 0 || hd_op_access(op, k) != HD_ACCESS_READ) &&
                known_of(f, &op->view[i]) == known_of(f, &op->view[k]))
                return hd_arena_printf(f->scratch,
                                       "%%%s would be read and written",
                                       op->view[i].buffer->said);
    if (!hd_fused_types(f->module, op, &type[0], &type[1]))
        return "it would have too many dimensions";
    product.nviews = 3;
    if (!hd_signature_fits(&product, type, false, NULL, NULL))
        return "its views would have other shapes than a matmul's";
    return NULL;
}

static const char *why_key(const fuser *f, hd_opcode code, const hd_op *matmul)
{
    for (int i = 0; i < matmul->nkeys; i++)
        if ((hd_op_info_get(code)->keys >> matmul->key[i].code & 1) == 0)
            return line_text(
                f, matmul,
                hd_arena_printf(f->scratch, "has the key '%s'",
                                hd_key_info_get(matmul->key[i].code)->text));
    return NULL;
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

// A view that repeats along the dimension has one index there.
static hd_view pick(const fuser *f, const hd_view *view, int dim, hd_expr index)
{
    hd_dim own = view->buffer->type.dim[dim];

    if (hd_dim_is_one(own))
        index = hd_expr_const(f->module, 0);
    return hd_view_at(*view, dim, index);
}

// What is picked of view `from`, all views of the product pick along it: of its
// batch, or of one of the dimensions that make its rows. Returns what it is of,
// where it is of a matrix: without that, a batch would be taken for it.
static const char *pick_alike(const fuser *f, const hd_op *matmul, hd_op *op,
                              int from, const hd_view *picked)
{
    hd_shape shape[HD_MAX_VIEWS];
    hd_space space;

    for (int i = 0; i < op->nviews; i++)
        shape[i].ndims = hd_view_type(&op->view[i]).ndims;
    hd_space_map(op, shape, &space);
    for (int d = 0; d < space.ndims; d++) {
        int own = space.dim[from][d];

        if (own < 0 || !hd_view_picks(picked, own))
            continue;
        if (d == space.nparallel)
            return "contracts over what is picked";
        if (!hd_bound_picks(matmul->bound, d))
            return "has what is picked as the rows or columns of a matrix";
        for (int i = 0; i < op->nviews; i++)
            if (i != from && space.dim[i][d] >= 0)
                op->view[i] =
                    pick(f, &op->view[i],
                         hd_view_kept_dim(&matmul->view[i], space.dim[i][d]),
                         picked->index[own]);
    }
    return NULL;
}

// The matmul as the fused op, `picked` being what the transfer has of its view
// `at` and `other` what stands there instead.
static const char *fuse(const fuser *f, hd_opcode code, const hd_op *matmul,
                        int at, const hd_view *picked, const hd_view *other,
                        int axis, hd_op *out)
{
    const char *reason = why_counted(f, matmul);

    if (reason == NULL)
        reason = why_key(f, code, matmul);
    if (reason != NULL)
        return reason;
    for (int i = 0; i < matmul->nviews; i++)
        if (matmul->view[i].nindex > 0 &&
            (i == at || matmul->view[i].range != NULL))
            return line_text(f, matmul, "has a part of a tensor");
    *out = *matmul;
    out->bound = hd_bound_room(f->module->arena, code);
    out->view = hd_arena_copy(f->module->arena, matmul->view,
                              sizeof *matmul->view * (size_t)matmul->nviews);
    reason = pick_alike(f, matmul, out, at, picked);
    if (reason != NULL)
        return line_text(f, matmul, reason);
    out->code = code;
    out->axis = axis;
    out->view[at] = *other;
    return why_unfit(f, out);
}

// `stmt`, the second of the two, becomes them both, unless there is a reason
// why not.
static void settle(fuser *f, hd_stmt *stmt, const known *first,
                   const hd_op *transfer, hd_op *fused, const char *reason)
{
    if (reason != NULL) {
        refuse(f, transfer, reason);
        return;
    }
    f->gone[first->written] = true;
    f->effect->used |= HD_OPTION_TRANSFER;
    stmt->op = fused;
}

// What is fused begins with an index of each rank.
static const char *why_packed(const fuser *f, const hd_op *transfer)
{
    return hd_op_key(transfer, HD_KEY_DIM) != NULL
               ? hd_arena_printf(f->scratch,
                                 "what it moves is no index of a first "
                                 "dimension, and is packed by copies")
               : NULL;
}

// `stmt` is the first to read a gather's result since it was gathered.
static void judge_gather(fuser *f, hd_stmt *stmt, int view, known *k)
{
    const hd_op *gather = k->by->op, *matmul = stmt->op;
    hd_op *fused = hd_new(f->module->arena, hd_op);
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
        reason = fuse(f, HD_OP_ALL_GATHER_MATMUL, matmul, 1, &gather->view[0],
                      &gather->view[1], gather->axis, fused);
    k->by = NULL;
    settle(f, stmt, k, gather, fused, reason);
}

static void judge_sum(fuser *f, hd_stmt *stmt)
{
    const hd_op *sum = stmt->op;
    known *k = known_of(f, &sum->view[1]);
    hd_opcode code = sum->code == HD_OP_REDUCE_SCATTER
                         ? HD_OP_MATMUL_REDUCE_SCATTER
                         : HD_OP_MATMUL_ALL_REDUCE;
    hd_op *fused = hd_new(f->module->arena, hd_op);
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
        reason = fuse(f, code, k->by->op, 0, &sum->view[1], &sum->view[0],
                      sum->axis, fused);
    settle(f, stmt, k, sum, fused, reason);
}

static void judge(fuser *f, hd_stmt *stmt)
{
    for (int i = 0; i < stmt->op->nviews; i++) {
        known *k = known_of(f, &stmt->op->view[i]);

        if ((hd_op_access(stmt->op, i) & HD_ACCESS_READ) != 0 &&
            k->by != NULL && k->by->op->code == HD_OP_ALL_GATHER)
            judge_gather(f, stmt, i, k);
    }
    if (hd_op_is_collective(stmt->op) && hd_op_fold(stmt->op) != HD_FOLD_NONE)
        judge_sum(f, stmt);
    else if (stmt->op->code == HD_OP_ALL_TO_ALL)
        refuse(f, stmt->op,
               "a dimension that changes its axis is one all_to_all");
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
    note_writes(f, stmt->op);
    for (int i = 0; i < stmt->op->noutputs; i++)
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
        if (!f.gone[++f.now])
            hd_block_append(&left, stmt);
    }
    module->body = left;
}
