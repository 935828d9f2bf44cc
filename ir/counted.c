// An op is done by the counts of its first view that has some, results ahead of
// operands, where all others have the same or none, and each count is of one
// slab of what the op iterates over. What a tensor program has beside that is
// taken apart here, as it is read:
//
//     %y = matmul %x, %w       %x_dense = copy %x       zeros behind the counts
//                              %y = matmul %x_dense, %w
#include "ir/counted.h"
#include "ir/counts.h"
#include "ir/infer.h"

#include <stdio.h>
#include <string.h>

static const char *op_text(const hd_op *op)
{
    return hd_op_info_get(op->code)->text;
}

// ------------------------------------------------------------- what is taken

typedef struct judge {
    const hd_module *module;
    const hd_op *op;
    const hd_bound *bound;
    char *why;    // NULL: nobody asks
    bool differs; // a view's counts are taken, but for those of another one
} judge;

#define REFUSE(j, i, ...)                                                    \
    ((j)->why != NULL ? snprintf((j)->why, HD_COUNTED_WHY, __VA_ARGS__) : 0, \
     (i))

enum { FITS = -1 };

static hd_type type_of(const hd_op *op, int i)
{
    return hd_view_type(&op->view[i]);
}

// Where the dimension that a view counts, and those of its counts, lie in what
// the op iterates over.
typedef struct laid {
    int dim, ndims;
    int along[HD_MAX_DIMS];
} laid;

// HD_ALONE, too, where the view repeats.
static int line_of(const judge *j, int i, int d)
{
    hd_type out = type_of(j->op, 0), own = type_of(j->op, i);
    int line = j->bound->along[i][d];

    return line >= 0 && line < out.ndims &&
                   own.dim[d].extent != out.dim[line].extent
               ? HD_ALONE
               : line;
}

static laid lay(const judge *j, int i)
{
    const hd_view *view = &j->op->view[i];
    laid c = {
        .dim = line_of(j, i, hd_view_kept_ahead(view, view->buffer->counted)),
        .ndims = hd_view_kept_ahead(view, view->buffer->by->type.ndims)};

    for (int d = 0; d < c.ndims; d++)
        c.along[d] = line_of(j, i, d);
    return c;
}

// Whether both have the same indices of the first `n` dimensions.
static bool same_part(const hd_view *x, const hd_view *y, int n)
{
    for (int d = 0; d < n; d++) {
        const hd_range *a = hd_view_range(x, d), *b = hd_view_range(y, d);

        if (hd_view_picks(x, d) != hd_view_picks(y, d) ||
            (hd_view_picks(x, d) && x->index[d] != y->index[d]) ||
            (a == NULL || b == NULL ? a != b
                                    : a->low != b->low || a->past != b->past))
            return false;
    }
    return true;
}

// The counts by which one view is cut are those of every other.
static bool same_counts(const judge *j, int i, const laid *a, int k,
                        const laid *b)
{
    const hd_view *x = &j->op->view[i], *y = &j->op->view[k];

    return x->buffer->by == y->buffer->by && a->dim == b->dim &&
           a->ndims == b->ndims &&
           memcmp(a->along, b->along, sizeof a->along) == 0 &&
           same_part(x, y, x->buffer->by->type.ndims);
}

// Whether it may have another value by the time that counts are read again.
static bool is_rewritten(const hd_buffer *counts)
{
    return counts->role == HD_ROLE_INOUT;
}

static bool is_whole(const hd_view *view)
{
    return view->nindex == 0;
}

// Whether `made` is `op` done to its counts, there or back: the same dimensions
// change places, and marks go from one side's to the other's.
static bool makes_counts_of(const hd_op *op, const hd_op *made)
{
    const hd_buffer *to = op->view[0].buffer->by,
                    *from = op->view[1].buffer->by;
    const hd_buffer *a = made->view[0].buffer, *b = made->view[1].buffer;
    bool there = a == to && b == from, so = true;
    int8_t order[HD_MAX_DIMS], other[HD_MAX_DIMS];

    if (made->code != op->code || !is_whole(&made->view[0]) ||
        !is_whole(&made->view[1]) || !(there || (a == from && b == to)))
        return false;
    if (op->code == HD_OP_SET)
        return true;
    hd_op_order(op, op->view[1].buffer->type.ndims, order);
    hd_op_order(made, from->type.ndims, other);
    for (int d = 0; d < from->type.ndims; d++)
        so &= there ? order[d] == other[d] : order[other[d]] == d;
    return so;
}

// Whether both sides of a `set` or a `transpose` have counts of which the one
// side's are what the same op, ahead of it, makes of the other's: the same
// counts, seen from elsewhere. Each has one value, since neither is an inout.
// Of a host program `--against` proves that.
static bool counts_follow(const judge *j)
{
    const hd_op *op = j->op;
    const hd_view *to = &op->view[0], *from = &op->view[1];
    bool tensor = j->module->stage == HD_STAGE_TENSOR;

    if ((op->code != HD_OP_SET && hd_op_family(op) != HD_FAMILY_TRANSPOSE &&
         (tensor || op->code != HD_OP_COPY)) ||
        to->buffer->by == NULL || from->buffer->by == NULL)
        return false;
    if (!tensor)
        return true;
    if (!is_whole(to) || !is_whole(from) || is_rewritten(to->buffer->by) ||
        is_rewritten(from->buffer->by))
        return false;
    for (const hd_stmt *s = j->module->body.first; s != NULL && s->op != op;
         s = s->next)
        if (s->kind == HD_STMT_OP && makes_counts_of(op, s->op))
            return true;
    return false;
}

// Whether it has some of the dimension that is counted, and not all.
static bool is_part(const hd_view *view)
{
    int d = view->buffer->counted;

    return hd_view_picks(view, d) || hd_view_range(view, d) != NULL;
}

// What is counted of an attention is its rows, or its keys, and each count is
// of elements of its batch, or of a block of keys of one.
static int judge_attended(const judge *j, int i)
{
    const hd_view *view = &j->op->view[i];
    const hd_buffer *x = view->buffer;
    int ahead = hd_op_batch(j->op, i, hd_view_type(view).ndims) +
                hd_op_has_blocks(j->op, i);

    if (i >= j->op->noutputs + j->op->ninputs ||
        hd_view_picks(view, x->counted) ||
        hd_view_kept_ahead(view, x->counted) != ahead + 1)
        return REFUSE(j, i,
                      "dimension %d of %%%s, which %%%s counts, is not that of "
                      "its %s: %s takes counts of no other",
                      x->counted, x->said, x->by->said,
                      hd_op_has_keys(j->op, i) ? "keys" : "rows",
                      op_text(j->op));
    if (hd_view_kept_ahead(view, x->by->type.ndims) > ahead)
        return REFUSE(j, i,
                      "%%%s has a count each of the heads of %%%s; %s takes "
                      "one for all heads",
                      x->by->said, x->said, op_text(j->op));
    return FITS;
}

// All that is counted is there, and each of the counts is of one slab of what
// the op makes, or of one index that it folds.
static int judge_view(const judge *j, int i)
{
    const hd_view *view = &j->op->view[i];
    const hd_buffer *x = view->buffer;
    bool takes = hd_op_family(j->op) == HD_FAMILY_TAKE;
    bool any =
        hd_op_family(j->op) == HD_FAMILY_FOLD || hd_op_has_keys(j->op, i);
    laid c;

    if (hd_op_family(j->op) == HD_FAMILY_ATTEND && judge_attended(j, i) != FITS)
        return i;
    if (is_part(view))
        return REFUSE(j, i,
                      "a part of dimension %d of %%%s, of which %%%s says how "
                      "many there are: %s takes all of it",
                      x->counted, x->said, x->by->said, op_text(j->op));
    c = lay(j, i);
    if (c.dim < 0)
        return REFUSE(j, i,
                      "dimension %d of %%%s, which %%%s counts, repeats in %s",
                      x->counted, x->said, x->by->said, op_text(j->op));
    for (int d = 0; d <= c.ndims && !any; d++) {
        bool own = d == c.ndims; // which a product may contract
        int along = !own ? c.along[d] : takes ? c.dim : 0;

        if (along >= j->bound->nparallel)
            return REFUSE(j, i, "%s %s dimension %d of %%%s, %s %%%s",
                          op_text(j->op), takes ? "takes from" : "contracts",
                          own ? x->counted : hd_view_kept_dim(view, d), x->said,
                          own ? "which has counts,"
                              : "each index of which has a count of",
                          x->by->said);
    }
    return FITS;
}

// The counts of view `i` are others than those of `first`.
static int counts_differ(judge *j, int i, const hd_buffer *first)
{
    const hd_op *op = j->op;
    const hd_buffer *x = op->view[i].buffer;
    bool rewritten = is_rewritten(x->by) || is_rewritten(first->by);
    char why[HD_COUNTED_WHY / 2 - 32];

    j->differs = true;
    if (hd_op_family(op) == HD_FAMILY_ATTEND)
        snprintf(why, sizeof why, "those of its %s are the same in all views",
                 hd_op_has_keys(op, i) ? "keys" : "rows");
    else if (op->code != HD_OP_SET && hd_op_family(op) != HD_FAMILY_TRANSPOSE)
        snprintf(why, sizeof why,
                 "those of an operation are the same ones, of one dimension");
    else if (rewritten)
        snprintf(why, sizeof why, "what is an inout may be others by then");
    else
        snprintf(why, sizeof why,
                 "the same %s is to make these of the others, `%%%.64s = %s "
                 "%%%.64s` ahead of it",
                 op_text(op), first->by->said, op_text(op), x->by->said);
    return REFUSE(j, i,
                  "%%%.64s has counts %%%.64s, and %%%.64s has %%%.64s: %s",
                  x->said, x->by->said, first->said, first->by->said, why);
}

// The key of an op that no view with counts goes with; NULL if it has none.
static const hd_key *find_alone(const hd_op *op)
{
    static const hd_key_code alone[] = {HD_KEY_ZIGZAG, HD_KEY_GROUPS};
    const hd_key *key = NULL;

    for (size_t i = 0; i < sizeof alone / sizeof *alone && key == NULL; i++)
        key = hd_op_key(op, alone[i]);
    return key;
}

static bool takes_counts(const hd_op *op)
{
    return hd_op_family(op) != HD_FAMILY_IOTA && find_alone(op) == NULL &&
           (!hd_op_is_batched(op) || hd_op_meets_keys(op));
}

static int refuse_all(const judge *j, int i)
{
    const hd_view *view = &j->op->view[i];
    const hd_key *alone = find_alone(j->op);
    bool attends = hd_op_meets_keys(j->op);

    return REFUSE(j, i, "%%%s has counts, %%%s: %s takes none%s%s",
                  view->buffer->said, view->buffer->by->said,
                  alone != NULL && !attends ? "a grouped matmul"
                                            : op_text(j->op),
                  attends ? " with " : "",
                  attends ? hd_key_info_get(alone->code)->text : "");
}

// Of an attention what counts rows, of which `first` is a view, or keys; of
// another op all counts.
static int judge_same(judge *j, int first)
{
    const hd_op *op = j->op;
    laid one, other;

    if (first < 0)
        return FITS;
    if (judge_view(j, first) != FITS)
        return first;
    one = lay(j, first);
    for (int i = first + 1; i < op->nviews; i++) {
        if (op->view[i].buffer->by == NULL ||
            hd_op_has_keys(op, i) != hd_op_has_keys(op, first))
            continue;
        if (judge_view(j, i) != FITS)
            return i;
        other = lay(j, i);
        if (!same_counts(j, first, &one, i, &other) &&
            !(counts_follow(j) && one.dim == other.dim &&
              one.ndims == other.ndims))
            return counts_differ(j, i, op->view[first].buffer);
    }
    return FITS;
}

// Which indices of what is counted a scale of several is of would be data.
static int judge_scales(const judge *j, hd_key_code code)
{
    const hd_key *key = hd_op_key(j->op, code);
    int counted = hd_op_counted(j->op), i = key != NULL ? key->view : -1, at;
    const hd_view *view;
    hd_type own, type;

    if (i < 0 || counted < 0)
        return FITS;
    view = &j->op->view[counted];
    at = hd_view_kept_ahead(view, view->buffer->counted);
    own = hd_view_type(view);
    type = type_of(j->op, i);
    for (int d = 0; d < type.ndims; d++)
        if (j->bound->along[i][d] == j->bound->along[counted][at] &&
            !hd_dim_is_one(type.dim[d]) &&
            !hd_dim_as_long(type.dim[d], own.dim[at]))
            return REFUSE(j, counted,
                          "dimension %d of %%%s has a scale for %lld indices "
                          "of what %%%s counts; there is one for each, or one "
                          "for all",
                          d, j->op->view[i].buffer->said,
                          (long long)hd_op_grain(j->op),
                          view->buffer->by->said);
    return FITS;
}

// A dimension that has counts stays, and all in front of it, by the same ones.
// A temporary need have nothing behind them.
static int judge_reshape(const judge *j)
{
    const hd_buffer *to = j->op->view[0].buffer, *from = j->op->view[1].buffer;
    const hd_buffer *x = from->by != NULL ? from : to;
    bool same = to->by == from->by &&
                (x->by == NULL ||
                 (to->counted == from->counted && to->role == HD_ROLE_TEMP));

    for (int d = 0; x->by != NULL && d <= x->counted && same; d++)
        same = hd_dim_as_long(to->type.dim[d], from->type.dim[d]);
    if (same)
        return FITS;
    return REFUSE(j, x == from,
                  "%%%s has counts, %%%s: reshape keeps that dimension and "
                  "those in front of it, in a temp with the same counts",
                  x->said, x->by->said);
}

static int judge_all(judge *j)
{
    int first = hd_op_counted(j->op), keys = hd_op_counted_keys(j->op), at;

    if (j->op->code == HD_OP_RESHAPE)
        return judge_reshape(j);
    if (first < 0 && keys < 0)
        return FITS;
    if (!takes_counts(j->op))
        return refuse_all(j, first >= 0 ? first : keys);
    if (judge_scales(j, HD_KEY_SCALE_A) != FITS ||
        judge_scales(j, HD_KEY_SCALE_B) != FITS)
        return first;
    at = judge_same(j, first);
    return at != FITS ? at : judge_same(j, keys);
}

int hd_counted_misfit(const hd_module *module, const hd_op *op,
                      const hd_bound *bound, char why[HD_COUNTED_WHY])
{
    judge j = {module, op, bound, why, false};

    return judge_all(&j);
}

// ------------------------------------------------------- what stands around

typedef struct settler {
    hd_module *module;
    hd_op *op;
    hd_block *block;
    hd_uncounted *known;
    hd_stmt *behind[HD_MAX_VIEWS]; // what is copied when the op is done
    int nbehind;
    bool several;  // counts of operands, so that none are the op's
    bool masked;   // rows that are not counted are cleared
    unsigned made; // results, as bits, that are made without their counts
    hd_view part;  // whose counts of a part `counts` are
    hd_buffer *counts;
    char why[HD_COUNTED_WHY];
    double bytes; // that are copied on a rank
} settler;

// As long as its view, but for all of what is counted.
static hd_view whole_rows(settler *s, const hd_view *view, hd_buffer *of)
{
    hd_view rows = *view;

    rows.buffer = of;
    if (is_part(view))
        hd_view_keep_all(s->module, &rows, view->buffer->counted);
    while (rows.nindex > 0 && !hd_view_picks(&rows, rows.nindex - 1) &&
           hd_view_range(&rows, rows.nindex - 1) == NULL)
        rows.nindex--;
    return rows;
}

// %to = op %from, of as many elements as the view has.
static hd_stmt *unary(settler *s, hd_opcode code, const hd_view *view,
                      hd_buffer *to, hd_buffer *from)
{
    hd_stmt *stmt = hd_stmt_op(s->module, code, -1, 1, 1, 0, s->op->loc);
    hd_type type;

    stmt->op->view[0] = whole_rows(s, view, to);
    stmt->op->view[1] = whole_rows(s, view, from);
    stmt->op->view[0].loc = stmt->op->view[1].loc = view->loc;
    hd_op_add_counts(s->module, stmt->op);
    type = hd_view_type(&stmt->op->view[0]);
    s->bytes += (double)hd_type_local_bytes(&type);
    return stmt;
}

static hd_stmt *copy_of(settler *s, const hd_view *view, hd_buffer *to,
                        hd_buffer *from)
{
    return unary(s, HD_OP_COPY, view, to, from);
}

// Where the buffer is, without its counts.
static hd_buffer *add_dense(settler *s, const hd_buffer *x, const char *word,
                            hd_loc loc)
{
    hd_type type = x->type;
    hd_buffer *dense;

    if ((x->open & HD_OPEN_PLACE) != 0)
        type = hd_type_unmarked(&type);
    dense = hd_module_add_buffer(
        s->module, hd_arena_printf(s->module->arena, "%s_%s", x->said, word),
        HD_ROLE_TEMP, &type);
    dense->open = x->open & HD_OPEN_PLACE;
    dense->on = x->on;
    dense->loc = loc;
    dense->said = x->said;
    dense->locs = hd_new(s->module->arena, hd_locs);
    return dense;
}

// As many elements of %y as a view has: those of %x and a number.
static hd_buffer *append_number(settler *s, hd_opcode code, const char *word,
                                const hd_view *view, hd_buffer *x,
                                double number)
{
    hd_stmt *stmt = hd_stmt_op(s->module, code, -1, 1, 1, 1, s->op->loc);
    hd_scalar scalar = {.operand = 1, .number = number};
    hd_buffer *made = add_dense(s, x, word, view->loc);

    made->by = x->by;
    made->counted = x->counted;
    stmt->op->view[0] = whole_rows(s, view, made);
    stmt->op->view[1] = whole_rows(s, view, x);
    stmt->op->key[0] = (hd_key){
        HD_KEY_NUMBERS,
        view->loc,
        HD_EXPR_NONE,
        .view = -1,
        .scalar = hd_arena_copy(s->module->arena, &scalar, sizeof scalar),
        .nscalars = 1};
    stmt->op->nkeys = 1;
    hd_op_add_counts(s->module, stmt->op);
    hd_block_append(s->block, stmt);
    return made;
}

// All of a tensor that keeps its value is copied once.
static hd_buffer **find_known(settler *s, const hd_view *view)
{
    hd_uncounted *known = s->known;
    const hd_buffer *x = view->buffer;
    int room = 2 * x->id + 16;

    if (whole_rows(s, view, view->buffer).nindex > 0 ||
        x->role == HD_ROLE_INOUT || hd_op_pick(s->op) == HD_PICK_ROUTE)
        return NULL;
    if (x->id >= known->room) {
        hd_buffer **of = hd_new_array(s->module->arena, hd_buffer *, room);

        if (known->room > 0)
            memcpy(of, known->of, sizeof *of * (size_t)known->room);
        *known = (hd_uncounted){of, room};
    }
    return &known->of[x->id];
}

// As it is, with counts, of what each rank then has all of.
static hd_buffer *add_counted(settler *s, const hd_buffer *x, const char *word,
                              hd_loc loc, hd_buffer *by, int counted)
{
    hd_buffer *made = add_dense(s, x, word, loc);

    made->type.dim[counted] = hd_dim_unmarked(made->type.dim[counted]);
    made->by = by;
    made->counted = counted;
    return made;
}

// Where counts of `x` leave nothing -infinity is added to the logarithms in
// `dense`: nothing was seen there.
static void unsee(settler *s, const hd_view *view, const hd_buffer *x,
                  hd_buffer *to, hd_buffer *dense, hd_stmt **out, int *n)
{
    hd_loc loc = view->loc;
    hd_buffer *one = add_counted(s, x, "one", loc, x->by, x->counted);
    hd_buffer *all = add_dense(s, x, "ones", loc);
    hd_buffer *never = add_dense(s, x, "never", loc);
    hd_stmt *fill = hd_stmt_op(s->module, HD_OP_FILL, -1, 1, 0, 1, loc);
    hd_stmt *add = hd_stmt_op(s->module, HD_OP_ADD, -1, 1, 2, 0, loc);

    fill->op->view[0] = whole_rows(s, view, one);
    fill->op->key[0] =
        (hd_key){HD_KEY_VALUE, loc, HD_EXPR_NONE, .view = -1, .number = 1};
    fill->op->nkeys = 1;
    hd_op_add_counts(s->module, fill->op);
    add->op->view[0] = whole_rows(s, view, to);
    add->op->view[1] = whole_rows(s, view, dense);
    add->op->view[2] = whole_rows(s, view, never);
    hd_op_add_counts(s->module, add->op);
    out[(*n)++] = fill;
    out[(*n)++] = copy_of(s, view, all, one);
    out[(*n)++] = unary(s, HD_OP_LOG, view, never, all);
    out[(*n)++] = add;
}

// What an op reads without counts: of nothing in a merge there is nothing, and
// an entry that is not counted wants no expert. Expert 0 is one, so that this
// is the zero of numbers that are one more.
static hd_buffer *append_dense(settler *s, const hd_view *view, int i)
{
    bool routes = hd_op_pick(s->op) == HD_PICK_ROUTE;
    bool merges =
        hd_op_attend(s->op) == HD_ATTEND_MERGE && hd_op_inner(s->op, i) == 2;
    hd_buffer **known = find_known(s, view), *x = view->buffer, *dense, *to;
    hd_stmt *behind[HD_MAX_VIEWS];
    int n = 0;

    if (known != NULL && *known != NULL && !routes && !merges)
        return *known;
    dense = add_dense(s, x, "dense", view->loc);
    if (known != NULL && !routes)
        *known = dense;
    if (routes)
        x = append_number(s, HD_OP_ADD, "more", view, x, 1);
    hd_block_append(s->block, copy_of(s, view, dense, x));
    if (routes)
        return append_number(s, HD_OP_SUB, "wanted", view, dense, 1);
    if (!merges)
        return dense;
    to = add_dense(s, x, "seen", view->loc);
    unsee(s, view, x, to, dense, behind, &n);
    for (int k = 0; k < n; k++)
        hd_block_append(s->block, behind[k]);
    return to;
}

// Whether view `i` counts the last dimension that belongs to each row or key.
static bool counts_columns(const hd_op *op, int i)
{
    const hd_view *view = &op->view[i];

    return i >= op->noutputs + op->ninputs ||
           (hd_op_inner(op, i) != 2 &&
            hd_view_kept_ahead(view, view->buffer->counted) + 1 ==
                hd_view_type(view).ndims);
}

// Whether zeros in place of what is not counted make something of it: of a row
// that is attended with, or picked from.
static bool masks(const hd_op *op, int i)
{
    return hd_op_meets_keys(op) ? !counts_columns(op, i)
                                : hd_op_pick(op) == HD_PICK_TOP_K;
}

// Where view `i`, which has counts, has what these count, view `k` has it; -1
// if it has it nowhere.
static int lies_in(const settler *s, int i, int k)
{
    const hd_view *x = &s->op->view[i], *y = &s->op->view[k];
    const hd_buffer *by = x->buffer->by;
    hd_type from = hd_view_type(x), to = hd_view_type(y);
    int at = hd_view_kept_ahead(x, x->buffer->counted), own;

    own = at + to.ndims - from.ndims;
    if (hd_op_family(s->op) == HD_FAMILY_ATTEND)
        own += hd_op_inner(s->op, i) - hd_op_inner(s->op, k);
    if (y->nindex > 0 || is_part(x) || own < by->type.ndims ||
        own >= to.ndims || !hd_dim_as_long(to.dim[own], from.dim[at]))
        return -1;
    for (int d = 0; d < by->type.ndims; d++)
        if (!hd_dim_as_long(y->buffer->type.dim[d], by->type.dim[d]) ||
            ((y->buffer->open & HD_OPEN_PLACE) == 0 &&
             !hd_dim_same(y->buffer->type.dim[d], by->type.dim[d])))
            return -1;
    return own;
}

static bool is_row(const hd_op *op, int i)
{
    return hd_op_family(op) == HD_FAMILY_PICK ? i < op->noutputs
                                              : !hd_op_has_keys(op, i);
}

// Results without counts are made with them, to be copied: what zeros make of
// rows that are not counted is none of them. Nor do gradients take it from
// other operands.
static bool may_mask(const settler *s, int i)
{
    const hd_op *op = s->op;
    bool grad = hd_op_attend(op) == HD_ATTEND_ATTENTION_GRAD, may = true;
    int from = grad ? op->noutputs : 0;
    int past = grad ? from + op->ninputs : op->noutputs;

    for (int k = from; k < past; k++)
        may &= !is_row(op, k) || op->view[k].buffer->by != NULL ||
               (s->made >> k & 1) != 0 || lies_in(s, i, k) >= 0;
    return may;
}

static void mask_result(settler *s, int i, int k)
{
    hd_view *view = &s->op->view[k];
    hd_buffer *y = view->buffer, *x = s->op->view[i].buffer;
    hd_buffer *made = add_dense(s, y, "dense", view->loc);
    hd_buffer *counted =
        add_counted(s, y, "counted", view->loc, x->by, lies_in(s, i, k));
    hd_buffer *masked = y;
    bool sums =
        hd_op_family(s->op) == HD_FAMILY_ATTEND && hd_op_inner(s->op, k) == 2;

    if (sums)
        masked = add_dense(s, y, "masked", view->loc);
    s->behind[s->nbehind++] = copy_of(s, view, counted, made);
    s->behind[s->nbehind++] = copy_of(s, view, masked, counted);
    if (sums)
        unsee(s, view, counted, y, masked, s->behind, &s->nbehind);
    view->buffer = made;
}

static void mask_all(settler *s, int i)
{
    hd_op *op = s->op;
    bool grad = hd_op_attend(op) == HD_ATTEND_ATTENTION_GRAD;
    int from = grad ? op->noutputs : 0;
    int past = grad ? from + op->ninputs : op->noutputs;

    for (int k = from; k < past; k++) {
        hd_view *view = &op->view[k];
        hd_buffer *x = op->view[i].buffer, *counted;

        if (!is_row(op, k) || view->buffer->by != NULL ||
            (s->made >> k & 1) != 0)
            continue;
        if (!grad) {
            mask_result(s, i, k);
            continue;
        }
        counted = add_counted(s, view->buffer, "counted", view->loc, x->by,
                              lies_in(s, i, k));
        hd_block_append(s->block, copy_of(s, view, counted, view->buffer));
        view->buffer = counted;
    }
    s->masked = true;
}

// In place of view `i`, and of others that are the same to the op.
static void make_dense(settler *s, int i)
{
    const hd_view view = s->op->view[i];
    hd_buffer *x = view.buffer, *dense;
    bool writes = hd_op_writes(s->op, i);

    if (!writes && masks(s->op, i) && !s->masked)
        mask_all(s, i);
    dense = hd_op_reads(s->op, i) ? append_dense(s, &view, i)
                                  : add_dense(s, x, "dense", view.loc);
    if (writes)
        s->behind[s->nbehind++] = copy_of(s, &view, x, dense);
    s->made |= (unsigned)writes << i;
    for (int k = i; k < s->op->nviews; k++)
        if (k == i ||
            (!writes && !hd_op_writes(s->op, k) && s->op->view[k].buffer == x &&
             s->op->view[k].nindex == view.nindex &&
             same_part(&s->op->view[k], &view, view.nindex)))
            s->op->view[k].buffer = dense;
    hd_op_add_counts(s->module, s->op);
}

// Whether the dimension of its operand that it folds is counted, or has counts.
static bool folds_counted(const hd_op *op)
{
    const hd_view *view = &op->view[1];
    int dim = hd_view_kept_dim(view, hd_op_dim(op));

    return dim == view->buffer->counted || dim < view->buffer->by->type.ndims;
}

// A zero adds nothing; but a key of zeros is seen as others are, and a number
// among others may be the greatest.
static bool may_be_zeros(const settler *s, int i)
{
    const hd_op *op = s->op;
    const hd_view *view = &op->view[i];

    if (!masks(op, i))
        return true;
    if (hd_op_family(op) == HD_FAMILY_PICK
            ? hd_view_kept_ahead(view, view->buffer->counted) + 1 ==
                  hd_view_type(view).ndims
            : hd_op_has_keys(op, i))
        return false;
    return s->masked || may_mask(s, i);
}

static bool may_settle(const settler *s, int i)
{
    const hd_op *op = s->op;

    if (hd_op_writes(op, i))
        return !is_part(&op->view[i]) && !hd_op_reads(op, i);
    switch (hd_op_family(op)) {
    case HD_FAMILY_FOLD: // a zero may be the greatest
        return op->code == HD_OP_SUM || hd_op_key(op, HD_KEY_DIM) == NULL ||
               !folds_counted(op);
    case HD_FAMILY_ATTEND:
    case HD_FAMILY_PICK:
        return may_be_zeros(s, i);
    case HD_FAMILY_COPY:
    case HD_FAMILY_MAP:
    case HD_FAMILY_TRANSPOSE:
    case HD_FAMILY_TAKE:
    case HD_FAMILY_IOTA:
    case HD_FAMILY_PRODUCT:
    case HD_FAMILY_CALL:
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        break;
    }
    return true;
}

// A part of what is counted has counts of its own, of which nothing is done as
// with zeros. None of those is of an index of several ranks.
static bool may_be_part(const settler *s, int i)
{
    const hd_op *op = s->op;
    const hd_view *view = &op->view[i];
    bool picks = hd_view_picks(view, view->buffer->counted);

    for (int d = 0; d < view->buffer->by->type.ndims; d++)
        if (hd_view_picks(view, d) || hd_view_range(view, d) != NULL)
            return false;
    return is_part(view) && !hd_op_writes(op, i) &&
           (hd_op_family(op) == HD_FAMILY_FOLD ||
            (hd_op_meets_keys(op) && !picks && find_alone(op) == NULL));
}

// How many heads of keys there are, of an attention that has a count of keys
// for each, of whose views each has all of its buffer and of the batch.
static int64_t heads_apart(const settler *s, int i)
{
    const hd_op *op = s->op;
    const hd_view *view = &op->view[i];
    hd_type keys = hd_view_type(view);
    bool apart = hd_op_meets_keys(op) && hd_op_has_keys(op, i) &&
                 find_alone(op) == NULL && !hd_op_has_blocks(op, i) &&
                 hd_op_access(op, 0) == HD_ACCESS_WRITE &&
                 keys.ndims < HD_MAX_DIMS &&
                 view->buffer->counted == keys.ndims - 2 &&
                 view->buffer->by->type.ndims == keys.ndims - 2;

    for (int k = 0; k < op->noutputs + op->ninputs; k++)
        apart &= op->view[k].nindex == 0 &&
                 op->view[k].buffer->type.ndims + (hd_op_inner(op, k) == 2) ==
                     keys.ndims;
    for (int k = 0; k < op->noutputs + op->ninputs && apart; k++) {
        hd_type type = op->view[k].buffer->type;

        apart =
            type.dim[type.ndims - (hd_op_inner(op, k) == 2 ? 2 : 3)].extent %
                keys.dim[keys.ndims - 3].extent ==
            0;
    }
    return apart ? keys.dim[keys.ndims - 3].extent : 0;
}

static hd_stmt *reshape_of(settler *s, hd_buffer *to, hd_buffer *from,
                           hd_loc loc)
{
    hd_stmt *stmt = hd_stmt_op(s->module, HD_OP_RESHAPE, -1, 1, 1, 0, loc);

    stmt->op->view[0] = hd_view_whole(to, loc);
    stmt->op->view[1] = hd_view_whole(from, loc);
    return stmt;
}

// [.., H, S, D] as [.., n, H / n, S, D].
static hd_type split_heads(const hd_type *type, int heads, int64_t n)
{
    hd_type split = *type;
    hd_dim own = type->dim[heads], outer = hd_dim_whole(n);

    outer.mark = own.mark;
    if (hd_dim_is_sharded(own))
        outer = hd_dim_cut(outer, hd_dim_blocks(own));
    split.dim[heads] = outer;
    return hd_type_with(&split, heads + 1, hd_dim_whole(own.extent / n));
}

// Heads of keys become one dimension more of the batch, of which each has one.
static void take_apart(settler *s, int64_t n)
{
    hd_op *op = s->op;

    for (int k = 0; k < op->noutputs + op->ninputs; k++) {
        hd_view view = op->view[k];
        hd_buffer *x = view.buffer, *from = x;
        hd_buffer *to = add_dense(s, x, "heads", view.loc), *counted;

        to->type = split_heads(
            &to->type, to->type.ndims - (hd_op_inner(op, k) == 2 ? 2 : 3), n);
        op->view[k].buffer = to;
        if (hd_op_writes(op, k)) {
            memmove(s->behind + 1, s->behind,
                    sizeof *s->behind * (size_t)s->nbehind++);
            s->behind[0] = reshape_of(s, x, to, view.loc);
            continue;
        }
        if (x->by != NULL)
            from = append_dense(s, &view, k);
        hd_block_append(s->block, reshape_of(s, to, from, view.loc));
        if (x->by == NULL)
            continue;
        counted =
            add_counted(s, to, "counted", view.loc, x->by, x->counted + 1);
        op->view[k].buffer = counted;
        hd_block_append(s->block, copy_of(s, &op->view[k], counted, to));
    }
    s->made = ~0u;
    hd_op_add_counts(s->module, op);
}

// The next view to be made without its counts; -1 if there is none. Of what is
// done element by element, with several counts and none of the result, no
// operand's are the op's.
static int find_next(settler *s, const hd_bound *bound)
{
    judge j = {s->module, s->op, bound, NULL, false};
    int i = judge_all(&j), first = hd_op_counted(s->op);

    s->several |= i >= 0 && hd_op_is_elementwise(s->op) &&
                  s->op->code != HD_OP_RESHAPE && first >= s->op->noutputs;
    if (s->several)
        return first;
    if (i >= 0 && j.differs && !may_settle(s, i)) // a result may change
        i = hd_op_has_keys(s->op, i) ? hd_op_counted_keys(s->op) : first;
    return i >= 0 && (may_settle(s, i) || may_be_part(s, i) ||
                      heads_apart(s, i) > 0)
               ? i
               : -1;
}

// %n of a part: from its first index on, and no more than it has.
static hd_buffer *append_counts(settler *s, const hd_view *view)
{
    int own = view->buffer->counted;
    const hd_view whole = hd_view_whole(view->buffer->by, view->loc);
    int64_t low = hd_view_first(s->module, view, own), n = 1;
    hd_buffer *counts = whole.buffer;

    if (!hd_view_picks(view, own))
        n = hd_view_type(view).dim[hd_view_kept_ahead(view, own)].extent;
    if (low > 0) {
        counts =
            append_number(s, HD_OP_MAX, "part", &whole, counts, (double)low);
        counts =
            append_number(s, HD_OP_SUB, "part", &whole, counts, (double)low);
    }
    return low + n == view->buffer->type.dim[own].extent
               ? counts
               : append_number(s, HD_OP_MIN, "part", &whole, counts, (double)n);
}

// A fold of an index is one of that range, of which the one number is summed.
static void keep_apart(settler *s, int i)
{
    hd_op *op = s->op;
    hd_view *view = &op->view[i];
    hd_key *key = &op->key[hd_op_key(op, HD_KEY_DIM) - op->key];
    hd_view made = op->view[0];
    int own = view->buffer->counted, at = hd_view_kept_ahead(view, own);
    int64_t low = hd_view_first(s->module, view, own);
    hd_type type = hd_view_type(&made);
    bool keeps = type.ndims == hd_view_type(view).ndims;
    hd_stmt *sum = hd_stmt_op(s->module, HD_OP_SUM, -1, 1, 1, 1, op->loc);
    hd_buffer *with = add_dense(s, made.buffer, "part", op->loc);

    hd_view_keep(s->module, view, own, hd_expr_const(s->module, low),
                 hd_expr_const(s->module, low + 1));
    key->number += key->number >= at;
    at -= !keeps && key->number < at;
    type = hd_type_with(&type, at, hd_dim_whole(1));
    with->type = type;
    sum->op->view[0] = made;
    sum->op->view[1] = hd_view_whole(with, op->loc);
    sum->op->key[0] =
        (hd_key){HD_KEY_DIM, op->loc, HD_EXPR_NONE, .view = -1, .number = at};
    sum->op->nkeys = 1;
    hd_op_add_counts(s->module, sum->op);
    op->view[0] = sum->op->view[1];
    s->behind[s->nbehind++] = sum;
}

// In place of view `i` a tensor of the part alone.
static void make_part(settler *s, int i)
{
    hd_view view = s->op->view[i];
    hd_buffer *x = view.buffer, *dense = append_dense(s, &view, i), *part;
    int own = x->counted;
    hd_stmt *copy;
    hd_type type;

    if (s->counts == NULL || s->part.buffer->by != x->by ||
        hd_view_first(s->module, &s->part, s->part.buffer->counted) !=
            hd_view_first(s->module, &view, own)) {
        s->part = view;
        s->counts = append_counts(s, &view);
    }
    if (hd_view_picks(&view, own)) {
        keep_apart(s, i);
        view = s->op->view[i];
    }
    type = hd_view_type(&view);
    part = add_dense(s, x, "part", view.loc);
    part->type =
        (x->open & HD_OPEN_PLACE) != 0 ? hd_type_unmarked(&type) : type;
    part->by = s->counts;
    part->counted = hd_view_kept_ahead(&view, own);
    copy = hd_stmt_op(s->module, HD_OP_COPY, -1, 1, 1, 0, s->op->loc);
    copy->op->view[0] = hd_view_whole(part, view.loc);
    copy->op->view[1] = view;
    copy->op->view[1].buffer = dense;
    hd_op_add_counts(s->module, copy->op);
    s->bytes += (double)hd_type_local_bytes(&type);
    hd_block_append(s->block, copy);
    s->op->view[i] = copy->op->view[0];
    hd_op_add_counts(s->module, s->op);
}

static void tell(const settler *s, hd_loc loc, hd_diag *diag)
{
    char bytes[32];

    hd_warning(diag, HD_E0321, loc, "%s; copies without counts take %s a rank",
               s->why, hd_bytes_text(s->bytes, bytes));
}

// Whether its views fit, or that is for the verifier to tell.
static bool bind(const hd_op *op, hd_bound *out)
{
    int ndims[HD_MAX_VIEWS];

    for (int i = 0; i < op->nviews; i++)
        ndims[i] = type_of(op, i).ndims;
    return op->code == HD_OP_RESHAPE || hd_bind(op, ndims, out, NULL);
}

static bool has_counts(const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].buffer->by != NULL)
            return true;
    return false;
}

void hd_counted_settle(hd_module *module, hd_stmt *stmt, hd_block *block,
                       hd_uncounted *known, hd_diag *diag)
{
    settler s = {
        .module = module, .op = stmt->op, .block = block, .known = known};
    hd_bound bound;
    int i, first;
    hd_loc loc;

    if (module->stage != HD_STAGE_TENSOR || !has_counts(s.op) ||
        !hd_op_is(s.op, HD_UNIT_COMPUTE) || hd_op_is_shapeless(s.op))
        return;
    if (!bind(s.op, &bound) ||
        (first = hd_counted_misfit(module, s.op, &bound, s.why)) < 0)
        return;
    loc = s.op->view[first].loc;
    while (bind(s.op, &bound) && (i = find_next(&s, &bound)) >= 0)
        if (may_settle(&s, i))
            make_dense(&s, i);
        else if (may_be_part(&s, i))
            make_part(&s, i);
        else
            take_apart(&s, heads_apart(&s, i));
    if (diag != NULL && s.bytes > 0 &&
        hd_counted_misfit(module, s.op, &bound, NULL) < 0)
        tell(&s, loc, diag);
    for (int k = 0; k < s.nbehind; k++) {
        hd_stmt *own = hd_stmt_new(module, HD_STMT_OP, stmt->loc);

        own->op = stmt->op;
        stmt->op = s.behind[k]->op;
        hd_block_append(block, own);
        if (stmt->op->code == HD_OP_RESHAPE)
            hd_counted_settle(module, stmt, block, known, NULL);
    }
}
