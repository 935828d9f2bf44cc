// The local rules of docs/semantics.md: a table-driven part that reads ops.def,
// and one function for each family of operations.
#include "ir/verify.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/dtype.h"
#include "ir/causal.h"
#include "ir/counted.h"
#include "ir/declare.h"
#include "ir/expand.h"
#include "ir/infer.h"
#include "ir/print.h"
#include "ir/signature.h"
#include "ir/space.h"
#include "ir/written.h"

enum {
    MAX_STREAMS = 64,
    TEXTS = 6,         // types, extents and buffers that one message names
    WHY = 256,         // bytes of a reason
    MOST_PARTS = 4096, // of a tensor that are written by themselves
};

typedef struct verifier {
    const hd_module *module;
    hd_diag *diag;
    bool failed;
    bool ran_out; // of memory
    bool on_stream, grouping, launching;
    bool pairing;        // the launch is a collective and its product
    int depth;           // of blocks in blocks
    hd_written *written; // owned, by buffer id: of a tensor program, so far
    hd_bound bound;      // of the op at hand,
    bool is_bound;       // where it has a signature
    hd_text text[TEXTS]; // owned: what type_text gave last
    int ntexts;
} verifier;

static bool is_tensor(const verifier *v)
{
    return v->module->stage == HD_STAGE_TENSOR;
}

// A part of what ranks divide, which is moved; one rank's index is its own.
static bool is_shared_part(const hd_view *view, int i)
{
    hd_dim dim = view->buffer->type.dim[i];

    return hd_dim_is_sharded(dim) &&
           (hd_view_range(view, i) != NULL ||
            (hd_view_picks(view, i) && hd_dim_is_cut(dim)));
}

// Whether something moves the view for a statement that is done as it stands.
static bool may_move(const hd_view *view)
{
    bool moves = (view->buffer->open & HD_OPEN_PLACE) != 0;

    for (int i = 0; i < view->buffer->type.ndims; i++)
        moves |= is_shared_part(view, i);
    return moves;
}

// Whether operands lie as the text has them, and not yet as their statement
// needs it.
static bool is_unplaced(const verifier *v, const hd_op *op)
{
    if (!is_tensor(v) || v->module->placed || v->module->form < 2)
        return false;
    for (int i = 0; i < op->nviews; i++)
        if (may_move(&op->view[i]))
            return true;
    return !hd_op_stands(v->module, op);
}

// "bf16[4@tp, 8]", for messages. Stands until TEXTS more are asked for.
static const char *type_text(verifier *v, const hd_type *type)
{
    hd_text *text = &v->text[v->ntexts++ % TEXTS];

    hd_text_free(text);
    hd_type_print(v->module, type, text);
    return text->failed ? "a type" : text->bytes;
}

// "4", "m - lo", likewise.
static const char *dim_text(verifier *v, hd_dim dim)
{
    hd_text *text = &v->text[v->ntexts++ % TEXTS];

    hd_text_free(text);
    hd_dim_print(v->module, dim, text);
    return text->failed ? "a number" : text->bytes;
}

static const char *op_text(const hd_op *op)
{
    return hd_op_info_get(op->code)->text;
}

// ----------------------------------------------------------------- counts

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

static hd_status check_count(verifier *v, const hd_op *op, int n, int least,
                             int most, const char *what)
{
    if (n >= least && n <= most)
        return HD_OK;
    if (least == most)
        return hd_error(v->diag, HD_E0301, op->loc, "%s has %d %s%s, not %d",
                        op_text(op), least, what, plural(least), n);
    return hd_error(v->diag, HD_E0301, op->loc, "%s has %d to %d %ss, not %d",
                    op_text(op), least, most, what, n);
}

// What goes with `groups`: whatever is of a row, a group, or of all alike.
static hd_status check_grouped_keys(verifier *v, const hd_op *op)
{
    const hd_key *keep = hd_op_key(op, HD_KEY_KEEP);
    bool ta = hd_op_key(op, HD_KEY_TA) != NULL;

    if (hd_op_key(op, HD_KEY_GROUPS) == NULL)
        return keep == NULL || hd_op_family(op) == HD_FAMILY_CALL
                   ? HD_OK
                   : hd_error(v->diag, HD_E0302, keep->loc,
                              "%s takes keep with groups only", op_text(op));
    if (keep != NULL && hd_op_key(op, HD_KEY_ACCUMULATE) != NULL)
        return hd_error(v->diag, HD_E0302, keep->loc,
                        "%s takes keep or accumulate, not both: what "
                        "accumulates keeps rows of no group",
                        op_text(op));
    for (int i = 0; i < op->nkeys; i++) {
        hd_key_code code = op->key[i].code;

        if (ta &&
            (code == HD_KEY_TB || code == HD_KEY_BIAS || code == HD_KEY_ACT ||
             code == HD_KEY_AUX || code == HD_KEY_KEEP))
            return hd_error(v->diag, HD_E0302, op->key[i].loc,
                            "%s takes no key %s with groups and ta",
                            op_text(op), hd_key_info_get(code)->text);
    }
    return HD_OK;
}

// What scales are of is said where there are any.
static hd_status check_grain(verifier *v, const hd_op *op)
{
    const hd_key *grain = hd_op_key(op, HD_KEY_GRAIN);

    if (grain == NULL)
        return HD_OK;
    if (hd_op_key(op, HD_KEY_SCALE_A) == NULL &&
        hd_op_key(op, HD_KEY_SCALE_B) == NULL)
        return hd_error(v->diag, HD_E0302, grain->loc,
                        "%s takes grain with scale_a or scale_b only",
                        op_text(op));
    if (!(grain->number >= 1))
        return hd_error(v->diag, HD_E0312, grain->loc,
                        "a grain of %.0f indices; a scale is of one at least",
                        grain->number);
    return HD_OK;
}

static hd_status check_keys(verifier *v, const hd_op *op)
{
    const hd_op_info *info = hd_op_info_get(op->code);
    const hd_key *min = hd_op_key(op, HD_KEY_MIN);

    for (int i = 0; i < op->nkeys; i++)
        if (hd_key_info_get(op->key[i].code)->value != HD_VALUE_BY &&
            (info->keys >> op->key[i].code & 1) == 0)
            return hd_error(v->diag, HD_E0302, op->key[i].loc,
                            "%s takes no key %s", info->text,
                            hd_key_info_get(op->key[i].code)->text);
    if (min != NULL && hd_op_key(op, HD_KEY_MAX) != NULL)
        return hd_error(v->diag, HD_E0302, min->loc,
                        "%s takes max or min, not both", info->text);
    for (hd_key_code code = 0; code < HD_NKEYS; code++)
        if ((info->required >> code & 1) != 0 && hd_op_key(op, code) == NULL)
            return hd_error(v->diag, HD_E0302, op->loc, "%s needs the key %s",
                            info->text, hd_key_info_get(code)->text);
    HD_TRY(check_grain(v, op));
    return check_grouped_keys(v, op);
}

// Whether numbers stand for operands that there are, in their order.
static bool numbers_stand(const hd_op *op, const hd_key *key)
{
    for (int i = 0; i < key->nscalars; i++)
        if (key->scalar[i].operand <
                (i > 0 ? key->scalar[i - 1].operand + 1 : 0) ||
            key->scalar[i].operand >= hd_op_operands(op))
            return false;
    return key->nscalars > 0;
}

// Shapes are those of views, of which there is one at least.
static hd_status check_operand_numbers(verifier *v, const hd_op *op)
{
    const hd_key *key = hd_op_key(op, HD_KEY_NUMBERS);
    bool mask = hd_op_info_get(op->code)->numbers == HD_NUMBERS_PICK, stand;

    if (key == NULL)
        return HD_OK;
    stand = numbers_stand(op, key);
    (void)stand; // of a release nothing asks
    assert(stand && "the parser counts them");
    if (mask && hd_op_operand(op, 0) < 0)
        return hd_error(v->diag, HD_E0301, key->loc,
                        "the mask of %s is a buffer", op_text(op));
    if (op->ninputs == 0)
        return hd_error(v->diag, HD_E0301, key->loc,
                        "%s of numbers alone: one operand at least is a "
                        "buffer, and 'fill' makes one of a number",
                        op_text(op));
    return HD_OK;
}

static hd_status check_form(verifier *v, const hd_op *op)
{
    const hd_op_info *info = hd_op_info_get(op->code);

    HD_TRY(check_count(v, op, op->noutputs, info->min_outputs,
                       info->max_outputs, "result"));
    HD_TRY(check_count(v, op, hd_op_operands(op), info->min_inputs,
                       info->max_inputs, "operand"));
    HD_TRY(check_keys(v, op));
    HD_TRY(check_operand_numbers(v, op));
    if (hd_op_is(op, HD_UNIT_TRANSFER) ? op->axis >= 0 : op->axis < 0)
        return HD_OK;
    if (op->axis >= 0)
        return hd_error(v->diag, HD_E0304, op->loc, "%s works on no axis",
                        info->text);
    if (v->module->naxes == 0)
        return hd_error(v->diag, HD_E0304, op->loc,
                        "%s works on an axis, and the program has no mesh",
                        info->text);
    return hd_error(v->diag, HD_E0304, op->loc, "%s needs an axis, as in %s@%s",
                    info->text, info->text, v->module->axis[0].name);
}

// ------------------------------------------------------------------ views

static bool is_coordinate(const verifier *v, hd_expr expr, int axis)
{
    const hd_expr_node *node = hd_expr_get(v->module, expr);

    return node->kind == HD_EXPR_COORD && node->a == axis;
}

// Of a sharded dimension a rank has its own block.
static hd_status check_own(verifier *v, const hd_view *view, int i,
                           const hd_range *range)
{
    hd_dim dim = view->buffer->type.dim[i];
    const char *axis;

    if (!hd_dim_is_sharded(dim) || (range->block != HD_EXPR_NONE &&
                                    is_coordinate(v, range->block, dim.mark) &&
                                    range->blocks == hd_dim_blocks(dim)))
        return HD_OK;
    axis = v->module->axis[dim.mark].name;
    return hd_error(v->diag, HD_E0307, view->loc,
                    "dimension %d of %%%s is sharded over %s: a rank has block "
                    "%s of %lld alone",
                    i, view->buffer->said, axis, axis,
                    (long long)hd_dim_blocks(dim));
}

static bool is_constant(const verifier *v, const hd_view *view, int i)
{
    const hd_range *range = hd_view_range(view, i);

    if (range != NULL)
        return hd_expr_is_const(v->module, range->low) &&
               hd_expr_is_const(v->module, range->past);
    return hd_expr_is_const(v->module, view->index[i]);
}

// "%x", but a buffer that a pass made, which stands nowhere in the text, by
// what it is for. Stands until TEXTS more are asked for.
static const char *buffer_text(verifier *v, const hd_buffer *buffer)
{
    hd_text *text = &v->text[v->ntexts++ % TEXTS];

    if (buffer->loc.line == 0)
        return "what ranks exchange for this statement";
    hd_text_free(text);
    hd_text_printf(text, "%%%s", buffer->said);
    return text->failed ? "a buffer" : text->bytes;
}

// Passes made the statement, of one that stands in the text.
static bool is_made(const verifier *v)
{
    return v->module->stage > v->module->written;
}

// Whoever wrote a move cannot mend the pieces that passes make of it, but what
// keeps it from being one: dimension `i` of the view, `beside` another one.
static hd_status refuse_pieces(verifier *v, const hd_view *view, int i,
                               const hd_size *beside)
{
    const hd_size *size = &v->module->size[view->buffer->type.dim[i].size - 1];

    return hd_error(
        v->diag, HD_E0318, view->loc,
        "%s would move in pieces whose number or length is known "
        "only when the program runs (dimension %d, %s in "
        "%lld..%lld%s%s): %sgive %s one number (-D %s=%lld)",
        buffer_text(v, view->buffer), i, size->name, (long long)size->low,
        (long long)size->high, beside != NULL ? ", beside " : "",
        beside != NULL ? beside->name : "",
        beside != NULL ? "" : "lay its dimensions in another order, or ",
        size->name, size->name, (long long)size->high);
}

// Of a dimension whose length a run says views keep all, or a block: those are
// there in every run. What is cut nowhere has the same indices in each.
static hd_status check_sized(verifier *v, const hd_view *view, int i)
{
    const hd_range *range = hd_view_range(view, i);
    const hd_size *size = &v->module->size[view->buffer->type.dim[i].size - 1];
    bool block = range != NULL && range->block != HD_EXPR_NONE;
    hd_text what = {0};
    hd_status status;

    if ((range == NULL && !hd_view_picks(view, i)) ||
        (block ? range->blocks == size->blocks : size->blocks <= 1))
        return HD_OK;
    if (is_made(v))
        return refuse_pieces(v, view, i, NULL);
    if (block)
        hd_text_printf(&what, "a block of %lld", (long long)range->blocks);
    else
        hd_text_puts(&what, range != NULL ? "a range" : "an index");
    hd_text_printf(&what, " of dimension %d of %s", i,
                   buffer_text(v, view->buffer));
    status = hd_refuse_cut(size, what.failed ? "a view" : what.bytes, view->loc,
                           v->diag);
    hd_text_free(&what);
    return status;
}

static const char *runs_text(hd_dim dim)
{
    return hd_dim_is_sized(dim) ? " in some runs" : "";
}

// What constants say of a range; the rest the walk finds.
static hd_status check_range(verifier *v, const hd_view *view, int i)
{
    const hd_range *range = hd_view_range(view, i);
    hd_dim dim = view->buffer->type.dim[i];

    HD_TRY(check_own(v, view, i, range));
    if (range->block != HD_EXPR_NONE)
        return HD_OK;
    if (is_constant(v, view, i) && hd_expr_value(v->module, range->past) <
                                       hd_expr_value(v->module, range->low))
        return hd_error(v->diag, HD_E0601, view->loc,
                        "indices %lld..%lld of %%%s, dimension %d: a range "
                        "that ends before it begins",
                        (long long)hd_expr_value(v->module, range->low),
                        (long long)hd_expr_value(v->module, range->past),
                        view->buffer->said, i);
    if (range->extent > hd_module_least(v->module, dim))
        return hd_error(
            v->diag, HD_E0601, view->loc,
            "%lld indices of %%%s; its dimension %d has extent %lld%s",
            (long long)range->extent, view->buffer->said, i,
            (long long)hd_module_least(v->module, dim), runs_text(dim));
    return HD_OK;
}

static hd_status check_index(verifier *v, const hd_view *view, int i)
{
    hd_dim dim = view->buffer->type.dim[i];
    const char *axis;

    if (hd_dim_is_sized(dim))
        HD_TRY(check_sized(v, view, i));
    if (hd_view_range(view, i) != NULL)
        return check_range(v, view, i);
    if (!hd_dim_is_sharded(dim))
        return HD_OK;
    axis = v->module->axis[dim.mark].name;
    if (hd_dim_is_cut(dim))
        return hd_error(v->diag, HD_E0307, view->loc,
                        "a rank has a block of dimension %d of %%%s, which is "
                        "sharded over %s: write '%s of %lld' for it",
                        i, view->buffer->said, axis, axis,
                        (long long)dim.blocks);
    if (!hd_view_picks(view, i) || is_coordinate(v, view->index[i], dim.mark))
        return HD_OK;
    return hd_error(v->diag, HD_E0307, view->loc,
                    "dimension %d of %%%s is sharded over %s and is indexed by "
                    "%s alone",
                    i, view->buffer->said, axis, axis);
}

static hd_status refuse_range(verifier *v, const hd_view *view, int i)
{
    const hd_range *range = hd_view_range(view, i);
    int64_t low = hd_expr_value(v->module, range->low);
    int64_t past = hd_expr_value(v->module, range->past);

    if (past <= low)
        return hd_error(v->diag, HD_E0306, view->loc,
                        "indices %lld..%lld of dimension %d of %%%s are none; "
                        "a part of a tensor has at least one",
                        (long long)low, (long long)past, i, view->buffer->said);
    return hd_error(
        v->diag, HD_E0601, view->loc,
        "indices %lld..%lld of %%%s; its dimension %d has extent %lld%s",
        (long long)low, (long long)past, view->buffer->said, i,
        (long long)hd_module_least(v->module, view->buffer->type.dim[i]),
        runs_text(view->buffer->type.dim[i]));
}

static hd_status check_bounds(verifier *v, const hd_view *view, int i)
{
    const hd_range *range = hd_view_range(view, i);
    int64_t first = hd_view_first(v->module, view, i);
    int64_t past =
        range != NULL ? hd_expr_value(v->module, range->past) : first + 1;

    if (first >= 0 && first < past &&
        past <= hd_module_least(v->module, view->buffer->type.dim[i]))
        return HD_OK;
    if (range != NULL)
        return refuse_range(v, view, i);
    return hd_error(
        v->diag, HD_E0601, view->loc,
        "index %lld of %%%s; its dimension %d has extent %lld%s",
        (long long)first, view->buffer->said, i,
        (long long)hd_module_least(v->module, view->buffer->type.dim[i]),
        runs_text(view->buffer->type.dim[i]));
}

// "pp 1", likewise.
static const char *ranks_text(verifier *v, hd_ranks ranks)
{
    hd_text *text = &v->text[v->ntexts++ % TEXTS];

    hd_text_free(text);
    hd_ranks_print(v->module, ranks, text);
    return text->failed ? "some ranks" : text->bytes;
}

// One index of a dimension over ranks is on the one rank that has it; of a
// tensor that is on some ranks of one axis that would be another axis.
static hd_status check_part_of_ranks(verifier *v, const hd_view *view, int i)
{
    hd_dim dim = view->buffer->type.dim[i];
    const char *axis = v->module->axis[dim.mark].name;
    bool another = !hd_ranks_are_all(view->buffer->on);

    for (int d = 0; d < i; d++)
        another |= hd_dim_is_sharded(view->buffer->type.dim[d]) &&
                   hd_view_picks(view, d);
    if (!hd_view_picks(view, i) || hd_dim_is_cut(dim) ||
        !is_constant(v, view, i))
        return hd_error(v->diag, HD_E0306, view->loc,
                        "a part of dimension %d of %%%s, which is sharded over "
                        "%s; `set` %%%s to a placement without %s first",
                        i, view->buffer->said, axis, view->buffer->said, axis);
    if (another)
        return hd_error(
            v->diag, HD_E0306, view->loc,
            "an index of dimension %d of %%%s, which is sharded "
            "over %s, beside ranks of another axis; `set` %%%s to a "
            "placement without %s first",
            i, view->buffer->said, axis, view->buffer->said, axis);
    return HD_OK;
}

// A part of a tensor is the same one on every rank, so that it is by constants,
// and of a dimension over ranks has all, or one rank's index.
static hd_status check_part(verifier *v, const hd_op *op, const hd_view *view,
                            int i, bool read)
{
    hd_dim dim = view->buffer->type.dim[i];
    const hd_range *range = hd_view_range(view, i);

    if (range == NULL && !hd_view_picks(view, i))
        return HD_OK;
    if (hd_dim_is_sized(dim))
        HD_TRY(check_sized(v, view, i));
    if (hd_dim_is_sharded(dim) &&
        !(read && is_unplaced(v, op) && is_shared_part(view, i)))
        HD_TRY(check_part_of_ranks(v, view, i));
    if (!is_constant(v, view, i))
        return hd_error(v->diag, HD_E0306, view->loc,
                        "a part of dimension %d of %%%s that is no constant; a "
                        "tensor program has the same on every rank",
                        i, view->buffer->said);
    return check_bounds(v, view, i);
}

static hd_status check_view(verifier *v, const hd_op *op, const hd_view *view,
                            bool read)
{
    const hd_type *type = &view->buffer->type;

    if (view->nindex > type->ndims)
        return hd_error(v->diag, HD_E0305, view->loc,
                        "%d ind%s of %%%s, which has %d dimension%s",
                        view->nindex, view->nindex == 1 ? "ex" : "ices",
                        view->buffer->said, type->ndims, plural(type->ndims));
    for (int i = 0; i < type->ndims; i++)
        HD_TRY(is_tensor(v) ? check_part(v, op, view, i, read)
                            : check_index(v, view, i));
    return HD_OK;
}

// ----------------------------------------------------------- written parts

// "%y[8, 0]". Stands until TEXTS more are asked for.
static const char *element_text(verifier *v, const hd_buffer *buffer,
                                const hd_box *at)
{
    hd_text *text = &v->text[v->ntexts++ % TEXTS];

    hd_text_free(text);
    hd_text_printf(text, "%%%s", buffer->said);
    for (int d = 0; d < buffer->type.ndims; d++)
        hd_text_printf(text, "%s%lld", d == 0 ? "[" : ", ",
                       (long long)at->low[d]);
    hd_text_puts(text, buffer->type.ndims > 0 ? "]" : "");
    return text->failed ? "an element" : text->bytes;
}

static hd_status refuse_twice(verifier *v, const hd_view *view,
                              const hd_box *before, const hd_box *common)
{
    hd_status status;

    if (hd_box_elements(common, view->buffer->type.ndims) ==
        hd_type_elements(&view->buffer->type))
        return hd_error(v->diag, HD_E0309, view->loc,
                        "%%%s is written twice; a tensor program writes "
                        "each tensor once",
                        view->buffer->said);
    status = hd_error(v->diag, HD_E0309, view->loc,
                      "%s is written twice; a tensor program writes each "
                      "element once",
                      element_text(v, view->buffer, common));
    hd_note(v->diag, before->loc, "it is written here before");
    return status;
}

// An inout has its elements from the caller, and may be written again.
static hd_status note_written(verifier *v, const hd_view *view)
{
    hd_written *w = &v->written[view->buffer->id];
    hd_box all = hd_box_of(v->module, view), common;

    if (view->buffer->role == HD_ROLE_INOUT)
        return HD_OK;
    for (int64_t i = 0; i < w->n; i++)
        if (hd_box_meet(&w->box[i], &all, view->buffer->type.ndims, &common))
            return refuse_twice(v, view, &w->box[i], &common);
    if (w->n == MOST_PARTS)
        return hd_error(v->diag, HD_E0105, view->loc,
                        "more than %d parts of %%%s are written", MOST_PARTS,
                        view->buffer->said);
    HD_TRY(hd_grow((void **)&w->box, &w->room, w->n + 1, sizeof all, v->diag));
    w->box[w->n++] = all;
    return HD_OK;
}

static hd_status check_write(verifier *v, const hd_view *view)
{
    hd_buffer *root = hd_buffer_root(view->buffer);

    if (root->role == HD_ROLE_IN)
        return hd_error(v->diag, HD_E0308, view->loc,
                        "%%%s is an input and may not be %s", root->name,
                        root->type.dtype == HD_DTYPE_EVENT ? "recorded"
                                                           : "written");
    return is_tensor(v) ? note_written(v, view) : HD_OK;
}

static hd_status check_read(verifier *v, const hd_view *view)
{
    const hd_buffer *buffer = view->buffer;
    const hd_written *w = &v->written[buffer->id];
    int ndims = buffer->type.ndims;
    hd_box all, first;

    if (!is_tensor(v) || buffer->role == HD_ROLE_IN ||
        buffer->role == HD_ROLE_INOUT)
        return HD_OK;
    all = hd_box_of(v->module, view);
    if (hd_written_has(w, &all, ndims))
        return HD_OK;
    first = hd_written_first_gap(w, &all, ndims);
    if (w->n == 0)
        return hd_error(v->diag, HD_E0310, view->loc,
                        "%%%s is read before it is written", buffer->said);
    return hd_error(v->diag, HD_E0310, view->loc,
                    "%s is read before it is written",
                    element_text(v, buffer, &first));
}

static hd_status check_event(verifier *v, const hd_view *view, bool wanted)
{
    bool is = view->buffer->type.dtype == HD_DTYPE_EVENT;
    hd_type type = hd_view_type(view);

    if (is != wanted)
        return hd_error(v->diag, HD_E0401, view->loc,
                        wanted ? "%%%s is no event"
                               : "%%%s holds events, not "
                                 "numbers",
                        view->buffer->said);
    if (is && type.ndims > 0)
        return hd_error(v->diag, HD_E0401, view->loc,
                        "one event at a time: %%%s has %d more dimension%s",
                        view->buffer->said, type.ndims, plural(type.ndims));
    return HD_OK;
}

// What a key keeps beside a result is a whole tensor.
static hd_status check_kept(verifier *v, const hd_op *op, int i)
{
    if (!is_tensor(v) || i < op->noutputs || op->view[i].nindex == 0)
        return HD_OK;
    return hd_error(v->diag, HD_E0306, op->view[i].loc,
                    "a part of %%%s: what %s keeps beside its result is all "
                    "of a tensor",
                    op->view[i].buffer->said, op_text(op));
}

static hd_status check_views(verifier *v, const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++) {
        hd_access access = hd_op_access(op, i);

        HD_TRY(check_view(v, op, &op->view[i], !hd_op_writes(op, i)));
        HD_TRY(
            check_event(v, &op->view[i],
                        (access & (HD_ACCESS_RECORD | HD_ACCESS_WAIT)) != 0));
        if ((access & HD_ACCESS_READ) != 0)
            HD_TRY(check_read(v, &op->view[i]));
    }
    for (int i = 0; i < op->nviews; i++)
        if ((hd_op_access(op, i) & (HD_ACCESS_WRITE | HD_ACCESS_RECORD)) != 0) {
            HD_TRY(check_kept(v, op, i));
            HD_TRY(check_write(v, &op->view[i]));
        }
    return HD_OK;
}

// ------------------------------------------------------------------ ranks

// What another rank has of a dimension is not on those that do the operation.
static hd_status check_shards(verifier *v, const hd_op *op, const hd_view *view,
                              hd_ranks place)
{
    hd_type type = hd_view_type(view);
    int dim = hd_type_axis_dim(&type, place.axis);

    if (hd_ranks_are_all(place) || dim < 0)
        return HD_OK;
    return hd_error(v->diag, HD_E0320, view->loc,
                    "%s makes %%%s on %s, and dimension %d of %%%s is sharded "
                    "over %s; `set` it to a placement without %s first",
                    op_text(op), op->view[0].buffer->said, ranks_text(v, place),
                    dim, view->buffer->said, v->module->axis[place.axis].name,
                    v->module->axis[place.axis].name);
}

// An operation is done by the ranks that have its results, with what they have;
// `set` alone moves.
static hd_status check_ranks(verifier *v, const hd_op *op)
{
    hd_ranks place;

    if (!is_tensor(v) || op->code == HD_OP_SET || op->noutputs == 0)
        return HD_OK;
    place = hd_view_ranks(v->module, &op->view[0]);
    for (int i = 1; i < op->nviews; i++) {
        const hd_view *view = &op->view[i];
        hd_ranks ranks = hd_view_ranks(v->module, view);
        bool result = hd_op_writes(op, i);

        if (result ? !hd_ranks_same(ranks, place)
                   : !hd_ranks_cover(ranks, place))
            return hd_error(
                v->diag, HD_E0320, view->loc,
                "%s makes %%%s on %s, and %s%%%s is on %s%s", op_text(op),
                op->view[0].buffer->said, ranks_text(v, place),
                hd_ranks_same(ranks, view->buffer->on) ? "" : "this index of ",
                view->buffer->said, ranks_text(v, ranks),
                result ? ": all results are on the same ranks"
                       : "; `set` it to them first");
        HD_TRY(check_shards(v, op, view, place));
    }
    return HD_OK;
}

// -------------------------------------------------------------- operations

static hd_type type_of(const hd_op *op, int i)
{
    return hd_view_type(&op->view[i]);
}

static hd_status shapes_differ(verifier *v, const hd_op *op, const hd_type *a,
                               const hd_type *b, const char *why)
{
    return hd_error(v->diag, HD_E0311, op->loc, "%s of %s into %s: %s",
                    op_text(op), type_text(v, b), type_text(v, a), why);
}

static const char *placement_text(const verifier *v, hd_dim dim)
{
    return hd_dim_is_sharded(dim) ? v->module->axis[dim.mark].name : "no axis";
}

static const char *mend_place(const verifier *v)
{
    return is_tensor(v) ? "; `set` one of them to the other's placement first"
                        : "; index it by the axis, or move it by a collective";
}

// Of an op whose result its operand decides.
static hd_status wrong_result(verifier *v, const hd_op *op, const hd_type *out,
                              const hd_type *in, const hd_type *want)
{
    char why[WHY];

    snprintf(why, sizeof why, "the result is %.200s", type_text(v, want));
    return shapes_differ(v, op, out, in, why);
}

// "k", or "dimension 2" of one of several that have one letter. Stands until
// TEXTS more are asked for.
static const char *letter_text(verifier *v, const hd_misfit *why, int dim)
{
    const char *letter = hd_letter_text(why->letter);
    hd_text *text = &v->text[v->ntexts++ % TEXTS];

    if (letter != NULL)
        return letter;
    hd_text_free(text);
    hd_text_printf(text, "dimension %d", dim);
    return text->failed ? "a dimension" : text->bytes;
}

// "B.. n R..", likewise.
static const char *form_text(verifier *v, const hd_misfit *why)
{
    hd_text *text = &v->text[v->ntexts++ % TEXTS];

    hd_text_free(text);
    hd_misfit_form(why, text);
    return text->failed ? "of another form" : text->bytes;
}

// Two dimensions that are to be one; those of results are named last.
static hd_status refuse_pair(verifier *v, const hd_op *op, hd_code code,
                             const hd_type *type, const hd_misfit *why)
{
    bool turned = why->other < op->noutputs;
    int a = turned ? why->view : why->other,
        i = turned ? why->dim : why->other_dim;
    int b = turned ? why->other : why->view,
        k = turned ? why->other_dim : why->dim;
    hd_dim x = type[a].dim[i], y = type[b].dim[k];
    bool placed = why->kind == HD_MISFIT_PLACE;
    bool one = i == k || hd_letter_text(why->letter) != NULL;

    return hd_error(
        v->diag, code, op->loc, "%s: %s is %s%s in %s and %s%s%s%s in %s%s",
        op_text(op), letter_text(v, why, i), placed ? "over " : "",
        placed ? placement_text(v, x) : dim_text(v, x),
        buffer_text(v, op->view[a].buffer), one ? "" : letter_text(v, why, k),
        one ? "" : " is ", placed ? "over " : "",
        placed ? placement_text(v, y) : dim_text(v, y),
        buffer_text(v, op->view[b].buffer), placed ? mend_place(v) : "");
}

static hd_status refuse_whole(verifier *v, const hd_op *op, hd_code code,
                              const hd_type *type, const hd_misfit *why)
{
    const hd_view *view = &op->view[why->view];
    hd_dim dim = type[why->view].dim[why->dim];

    return hd_error(v->diag, code, view->loc,
                    "%s needs all of %s on each rank: %s has %s@%s; %s",
                    op_text(op), letter_text(v, why, why->dim),
                    buffer_text(v, view->buffer), dim_text(v, dim),
                    placement_text(v, dim),
                    is_tensor(v) ? "`set` it to a local one first"
                    : hd_op_family(op) == HD_FAMILY_FOLD
                        ? "reduce over ranks by all_reduce or reduce_scatter"
                        : "gather it first");
}

// How many scales there may be along a dimension.
static hd_status refuse_scales(verifier *v, const hd_op *op, hd_code code,
                               const hd_type *type, const hd_misfit *why)
{
    const hd_view *view = &op->view[why->view];
    hd_dim x = type[why->other].dim[why->other_dim],
           y = type[why->view].dim[why->dim];
    int64_t grain = hd_op_grain(op);
    bool blocks = why->blocks && !hd_dim_is_sized(x) && !hd_dim_is_counted(x) &&
                  grain > 1 && grain < x.extent;
    char some[WHY] = "";

    if (blocks)
        snprintf(some, sizeof some, "%lld (one for %lld), ",
                 (long long)hd_block_size(x.extent, grain), (long long)grain);
    return hd_error(v->diag, code, view->loc,
                    "%s: %s is %s in %s and %s has %s scales along it; it may "
                    "have %s%s or 1%s",
                    op_text(op), letter_text(v, why, why->other_dim),
                    dim_text(v, x), buffer_text(v, op->view[why->other].buffer),
                    buffer_text(v, view->buffer), dim_text(v, y), some,
                    dim_text(v, x),
                    why->blocks && hd_op_key(op, HD_KEY_GRAIN) == NULL
                        ? ", and with `grain g` one for g indices each"
                        : "");
}

// Ranks have scales of what they have. Of one alone a view would drop the
// dimension.
static hd_status refuse_grain(verifier *v, const hd_op *op, hd_code code,
                              const hd_type *type, const hd_misfit *why)
{
    const hd_view *view = &op->view[why->view];
    hd_dim x = type[why->other].dim[why->other_dim],
           y = type[why->view].dim[why->dim];

    if (x.mark == y.mark && hd_dim_is_uneven(x))
        return hd_error(v->diag, code, view->loc,
                        "%s: ranks have blocks of %lld of %s of %s, the last "
                        "ones fewer, and one of %s is for %lld: all have as "
                        "many, a multiple of that",
                        op_text(op), (long long)hd_dim_block(x),
                        letter_text(v, why, why->other_dim),
                        buffer_text(v, op->view[why->other].buffer),
                        buffer_text(v, view->buffer),
                        (long long)hd_op_grain(op));
    if (x.mark == y.mark && !hd_grain_fits(hd_op_grain(op), x))
        return hd_error(v->diag, code, view->loc,
                        "%s: a rank has %lld of %s of %s, no multiple of the "
                        "%lld that one of %s is for",
                        op_text(op), (long long)hd_dim_block(x),
                        letter_text(v, why, why->other_dim),
                        buffer_text(v, op->view[why->other].buffer),
                        (long long)hd_op_grain(op),
                        buffer_text(v, view->buffer));
    if (x.mark == y.mark)
        return hd_error(v->diag, code, view->loc,
                        "%s: a rank has one of %s along %s of %s, and needs "
                        "two or more there; or give the ranks a dimension of "
                        "their own, [%lld@%s, ..]",
                        op_text(op), buffer_text(v, view->buffer),
                        letter_text(v, why, why->other_dim),
                        buffer_text(v, op->view[why->other].buffer),
                        (long long)hd_dim_blocks(x), placement_text(v, x));
    return hd_error(
        v->diag, code, view->loc,
        "%s: %s is over %s in %s, and its scales in %s over %s%s", op_text(op),
        letter_text(v, why, why->other_dim), placement_text(v, x),
        buffer_text(v, op->view[why->other].buffer),
        buffer_text(v, view->buffer), placement_text(v, y), mend_place(v));
}

// What keeps the views from being those of the op's signature.
static hd_status refuse_misfit(verifier *v, const hd_op *op, hd_code code,
                               const hd_type *type, const hd_misfit *why)
{
    const hd_view *view = &op->view[why->view];
    int n = type[why->view].ndims;
    int other = why->view == 0 && op->ninputs > 0 ? op->noutputs : 0;

    switch (why->kind) {
    case HD_MISFIT_LENGTH:
        if (hd_op_has_scales(op, why->view))
            return refuse_scales(v, op, code, type, why);
        return refuse_pair(v, op, code, type, why);
    case HD_MISFIT_PLACE:
        return refuse_pair(v, op, code, type, why);
    case HD_MISFIT_GRAIN:
        return refuse_grain(v, op, code, type, why);
    case HD_MISFIT_WHOLE:
        return refuse_whole(v, op, code, type, why);
    case HD_MISFIT_MOST:
        return hd_error(v->diag, HD_E0105, op->loc,
                        "%s has a result of %d dimensions; a tensor has at "
                        "most %d",
                        op_text(op), why->ndims, HD_MAX_DIMS);
    case HD_MISFIT_DIMS:
        if (why->letter != 0)
            return hd_error(
                v->diag, code, op->loc, "%s: %s has %d dimension%s and %s %d",
                op_text(op), buffer_text(v, view->buffer), n, plural(n),
                buffer_text(v, op->view[other].buffer), type[other].ndims);
        return hd_error(v->diag, code, op->loc,
                        "%s: %s has %d dimension%s and is [%s]", op_text(op),
                        buffer_text(v, view->buffer), n, plural(n),
                        form_text(v, why));
    case HD_MISFIT_ONE:  // what operands make is told
    case HD_MISFIT_FORM: // keys that have none are refused ahead
        break;
    }
    assert(false);
    return HD_ERROR_INVALID;
}

// Where operands lie is nothing to a statement that they are yet moved for.
static void types_of(const verifier *v, const hd_op *op,
                     hd_type type[HD_MAX_VIEWS])
{
    for (int i = 0; i < op->nviews; i++) {
        type[i] = type_of(op, i);
        if (is_unplaced(v, op))
            type[i] = hd_type_unmarked(&type[i]);
    }
}

static bool fits(verifier *v, const hd_op *op, const hd_type *type,
                 hd_misfit *why)
{
    v->is_bound = hd_signature_fits(op, type, is_tensor(v), &v->bound, why);
    return v->is_bound;
}

// Views whose dimensions are each other's.
static hd_status check_alike(verifier *v, const hd_op *op)
{
    hd_type type[HD_MAX_VIEWS];
    hd_misfit why;

    types_of(v, op, type);
    return fits(v, op, type, &why) ? HD_OK
                                   : refuse_misfit(v, op, HD_E0311, type, &why);
}

// Operands decide what the result is. `right` says whether its dtype is.
static hd_status check_result(verifier *v, const hd_op *op, bool right)
{
    int ndims[HD_MAX_VIEWS] = {HD_INFERRED};
    hd_type type[HD_MAX_VIEWS], want;
    hd_bound bound;
    hd_misfit why;

    types_of(v, op, type);
    if (fits(v, op, type, NULL) && right)
        return HD_OK;
    for (int i = 1; i < op->nviews; i++)
        ndims[i] = type[i].ndims;
    if (!hd_bind(op, ndims, &bound, &why) ||
        !hd_bound_fits(&bound, type, op->noutputs, is_tensor(v), &why))
        return refuse_misfit(v, op, HD_E0311, type, &why);
    want = hd_bound_result(&bound, type);
    want.dtype = type[right ? 0 : 1].dtype;
    type[0] = type_of(op, 0);
    type[1] = type_of(op, 1);
    return wrong_result(v, op, &type[0], &type[1], &want);
}

// Whether each number of one is a number of the other, of the same kind.
static bool is_wider(hd_dtype dtype, hd_dtype in)
{
    return hd_dtype_is_float(dtype) == hd_dtype_is_float(in) &&
           hd_dtype_holds(dtype, in);
}

// A factor leaves f32 as it is, or rounds to what is narrower. A fold takes
// what its result's dtype holds. A sum of several takes numbers of f32 among
// those of a narrower result, too, which it rounds once; and in a host program
// a sum of one, which ends one that ranks make in f32.
static bool takes_dtype(const verifier *v, const hd_op *op, hd_dtype dtype,
                        hd_dtype in)
{
    bool own = hd_op_operands(op) == 1 && !is_tensor(v);

    if (op->code == HD_OP_SCALE)
        return in == dtype || (in == HD_DTYPE_F32 && is_wider(in, dtype));
    if (in == dtype || hd_op_family(op) != HD_FAMILY_FOLD)
        return in == dtype;
    for (int i = 1; i <= op->ninputs; i++)
        own |= op->view[i].buffer->type.dtype == dtype;
    return is_wider(dtype, in) || (own && op->code == HD_OP_SUM &&
                                   in == HD_DTYPE_F32 && is_wider(in, dtype));
}

// Operands lie along the result, and may repeat along dimensions of it.
static hd_status check_operands(verifier *v, const hd_op *op, hd_dtype dtype,
                                int first)
{
    hd_type out = type_of(op, 0);

    HD_TRY(check_alike(v, op));
    for (int i = first; i < op->noutputs + op->ninputs; i++) {
        hd_type in = type_of(op, i);

        if (!takes_dtype(v, op, dtype, in.dtype))
            return shapes_differ(v, op, &out, &in,
                                 hd_op_family(op) == HD_FAMILY_FOLD
                                     ? "the result's dtype does not hold the "
                                       "operand's, and only `copy` and `set` "
                                       "cast"
                                     : "the dtypes differ, and only `copy` and "
                                       "`set` cast");
    }
    return HD_OK;
}

// A number beside integers is one of theirs.
static hd_status check_whole_numbers(verifier *v, const hd_op *op)
{
    const double most = 0x1p53; // up to which a double holds them all
    const hd_key *key = hd_op_key(op, HD_KEY_NUMBERS);
    hd_dtype dtype = op->view[hd_op_number_view(op)].buffer->type.dtype;

    for (int i = 0; key != NULL && i < key->nscalars; i++) {
        double number = key->scalar[i].number;

        if (!hd_dtype_is_integer(dtype) ||
            (fabs(number) <= most &&
             !(hd_dtype_round(dtype, number) < number) &&
             !(hd_dtype_round(dtype, number) > number)))
            continue;
        return hd_error(v->diag, HD_E0104, key->loc,
                        "%.17g is no number of %s%s", number,
                        hd_dtype_text(dtype),
                        dtype == HD_DTYPE_I64 && fabs(number) > most
                            ? " that an f64 tells apart: those are up to 2^53"
                            : "");
    }
    return HD_OK;
}

static hd_status refuse_dim(verifier *v, hd_loc loc, int dim, int ndims)
{
    return hd_error(v->diag, HD_E0312, loc,
                    "dimension %d of a tensor of %d dimension%s", dim, ndims,
                    plural(ndims));
}

// `fallback` is what the key says where it is absent.
static hd_status check_dim(verifier *v, const hd_op *op, hd_key_code code,
                           int ndims, int fallback)
{
    const hd_key *key = hd_op_key(op, code);
    int value = key != NULL ? (int)key->number : fallback;

    if (value >= 0 && value < ndims)
        return HD_OK;
    return refuse_dim(v, key != NULL ? key->loc : op->loc, value, ndims);
}

static hd_status check_reduction(verifier *v, const hd_op *op)
{
    hd_type out = type_of(op, 0), in = type_of(op, 1);

    if (hd_op_key(op, HD_KEY_DIM) == NULL)
        return check_operands(v, op, out.dtype, 1);
    HD_TRY(check_count(v, op, hd_op_operands(op), 1, 1, "operand with dim"));
    HD_TRY(check_dim(v, op, HD_KEY_DIM, in.ndims, -1));
    return check_result(v, op, takes_dtype(v, op, out.dtype, in.dtype));
}

// Each dimension is there once.
static hd_status check_order(verifier *v, const hd_op *op, const hd_key *key,
                             int ndims)
{
    unsigned seen = 0;

    if (key->nints != ndims)
        return hd_error(v->diag, HD_E0312, key->loc,
                        "an order of %d dimension%s; %%%s has %d", key->nints,
                        plural(key->nints), op->view[1].buffer->name, ndims);
    for (int i = 0; i < ndims; i++) {
        if (key->ints[i] < 0 || key->ints[i] >= ndims)
            return refuse_dim(v, key->loc, key->ints[i], ndims);
        if ((seen >> key->ints[i] & 1) != 0)
            return hd_error(v->diag, HD_E0312, key->loc,
                            "dimension %d twice in an order",
                            (int)key->ints[i]);
        seen |= 1u << key->ints[i];
    }
    return HD_OK;
}

static hd_status check_transpose(verifier *v, const hd_op *op)
{
    hd_type out = type_of(op, 0), in = type_of(op, 1);
    const hd_key *order = hd_op_key(op, HD_KEY_ORDER);

    if (order != NULL) {
        HD_TRY(check_order(v, op, order, in.ndims));
    } else {
        HD_TRY(check_dim(v, op, HD_KEY_DIM0, in.ndims, in.ndims - 2));
        HD_TRY(check_dim(v, op, HD_KEY_DIM1, in.ndims, in.ndims - 1));
    }
    return check_result(v, op, out.dtype == in.dtype);
}

// Who takes or makes view `i`: the op, or one of its keys.
static const char *taker_text(const hd_op *op, int i)
{
    for (int k = 0; k < op->nkeys; k++)
        if (op->key[k].view == i)
            return hd_key_info_get(op->key[k].code)->text;
    return op_text(op);
}

static hd_status check_either(verifier *v, const hd_op *op, int i,
                              hd_dtype dtype, hd_dtype or_else)
{
    const hd_buffer *b = op->view[i].buffer;

    if (b->type.dtype == dtype || b->type.dtype == or_else)
        return HD_OK;
    return hd_error(v->diag, HD_E0314, op->view[i].loc,
                    dtype == or_else ? "%%%s is %s; %s %s %s"
                                     : "%%%s is %s; %s %s %s or %s",
                    b->said, hd_dtype_text(b->type.dtype), taker_text(op, i),
                    i < op->noutputs ? "makes" : "takes", hd_dtype_text(dtype),
                    hd_dtype_text(or_else));
}

static hd_status check_dtype(verifier *v, const hd_op *op, int i,
                             hd_dtype dtype)
{
    return check_either(v, op, i, dtype, dtype);
}

// A tensor has one value, whoever asks. Where what view `i` has of the
// dimension begins in host programs, the walk judges.
static hd_status check_start(verifier *v, const hd_op *op, int i)
{
    const hd_key *key = hd_op_key(op, HD_KEY_START);
    int64_t past = type_of(op, i).dim[hd_op_dim(op)].extent, start = 0;

    if (!is_tensor(v))
        return HD_OK;
    if (key != NULL && !hd_expr_is_const(v->module, key->expr))
        return hd_error(v->diag, HD_E0302, key->loc,
                        "%s takes a constant start in tensor programs: what "
                        "each rank has of a dimension its marks say",
                        op_text(op));
    if (key != NULL)
        start = hd_expr_value(v->module, key->expr);
    if (hd_op_may_start(start, past))
        return HD_OK;
    return hd_error(v->diag, HD_E0312, key != NULL ? key->loc : op->view[i].loc,
                    "%s of %lld indices from %lld on; an index is 0 to %d",
                    op_text(op), (long long)past, (long long)start, INT32_MAX);
}

// Ranks of an axis divide what is taken from, or the indices, not both.
static hd_status check_ranks_alike(verifier *v, const hd_op *op)
{
    hd_type in = type_of(op, 1), index = type_of(op, 2);

    for (int axis = 0; axis < v->module->naxes; axis++) {
        int d = hd_type_axis_dim(&in, axis), e = hd_type_axis_dim(&index, axis);

        if (d >= 0 && e >= 0 && v->bound.along[1][d] != v->bound.along[2][e])
            return hd_error(v->diag, HD_E0311, op->loc,
                            "%s: %s and %s have different dimensions over %s",
                            op_text(op), buffer_text(v, op->view[1].buffer),
                            buffer_text(v, op->view[2].buffer),
                            v->module->axis[axis].name);
    }
    return HD_OK;
}

static hd_status check_take(verifier *v, const hd_op *op)
{
    hd_type out = type_of(op, 0), in = type_of(op, 1);

    HD_TRY(check_dim(v, op, HD_KEY_DIM, in.ndims, -1));
    HD_TRY(check_dtype(v, op, 2, HD_DTYPE_I32));
    HD_TRY(check_start(v, op, 1));
    HD_TRY(check_result(v, op, out.dtype == in.dtype));
    return is_tensor(v) && !is_unplaced(v, op) ? check_ranks_alike(v, op)
                                               : HD_OK;
}

static hd_status check_iota(verifier *v, const hd_op *op)
{
    hd_type out = type_of(op, 0);

    HD_TRY(check_dim(v, op, HD_KEY_DIM, out.ndims, -1));
    if (out.dtype != HD_DTYPE_I32 && out.dtype != HD_DTYPE_I64)
        return hd_error(v->diag, HD_E0314, op->view[0].loc,
                        "iota of %s: indices are i32 or i64; `copy` them to "
                        "others",
                        hd_dtype_text(out.dtype));
    HD_TRY(check_start(v, op, 0));
    return check_alike(v, op);
}

// The first one over ranks behind the one that leads, or else that one; NULL if
// there is none.
static const hd_dim *find_sharded(const hd_dim *dim, int n)
{
    for (int i = 1; i < n; i++)
        if (hd_dim_is_sharded(dim[i]))
            return &dim[i];
    return n > 0 && hd_dim_is_sharded(dim[0]) ? dim : NULL;
}

// Whether each rank has the same elements of both: a dimension over ranks leads
// the factors of its indices on both sides, and ranks have as many of them as
// each other, or those of the same blocks.
static bool same_share(const hd_dim *a, int na, const hd_dim *b, int nb)
{
    const hd_dim *x = find_sharded(a, na), *y = find_sharded(b, nb);

    if (x == NULL || y == NULL)
        return x == y;
    return x == a && y == b && x->mark == y->mark &&
           (x->extent == y->extent ||
            (!hd_dim_is_uneven(*x) && !hd_dim_is_uneven(*y)));
}

static hd_status refuse_reshape(verifier *v, const hd_op *op,
                                const hd_type *out, const hd_type *in,
                                bool of_result, int dim)
{
    const hd_type *type = of_result ? out : in;
    const char *axis = v->module->axis[type->dim[dim].mark].name;
    char why[WHY];

    snprintf(why, sizeof why,
             "dimension %d of the %s is over %.32s, and leads no dimension of "
             "the %s over %.32s with as much on each rank; %s",
             dim, of_result ? "result" : "operand", axis,
             of_result ? "operand" : "result", axis,
             of_result ? "reshape to a local one and `set` that"
                       : "`set` it to a local one first");
    return shapes_differ(v, op, out, in, why);
}

static hd_status check_shares(verifier *v, const hd_op *op, const hd_type *out,
                              const hd_type *in)
{
    int of_out[HD_MAX_DIMS], of_in[HD_MAX_DIMS], na, nb;
    hd_type a = hd_type_without_ones(out, of_out),
            b = hd_type_without_ones(in, of_in);

    for (int i = 0, k = 0; i < a.ndims || k < b.ndims; i += na, k += nb) {
        const hd_dim *x = a.dim + i, *y = b.dim + k;

        hd_dims_factor(x, a.ndims - i, y, b.ndims - k, &na, &nb);
        if (same_share(x, na, y, nb))
            continue;
        x = find_sharded(x, na);
        y = find_sharded(y, nb);
        return y != NULL
                   ? refuse_reshape(v, op, out, in, false, of_in[y - b.dim])
                   : refuse_reshape(v, op, out, in, true, of_out[x - a.dim]);
    }
    return HD_OK;
}

// What the parser makes of one that moves elements is none any more.
static hd_status check_sized_apart(verifier *v, const hd_op *op,
                                   const hd_type *out, const hd_type *in)
{
    int d = 0;
    hd_text what = {0};
    hd_status status;

    if (hd_reshape_stays(out, in, hd_module_uncut(v->module)))
        return HD_OK;
    if (!hd_reshape_fits(out, in))
        return shapes_differ(v, op, out, in,
                             "of one size of runs both have as many elements, "
                             "and of several each stays as it is");
    while (!hd_dim_is_sized(in->dim[d]))
        d++;
    hd_text_printf(&what, "reshape of %%%s to %%%s", op->view[1].buffer->said,
                   op->view[0].buffer->said);
    status =
        hd_refuse_cut(&v->module->size[in->dim[d].size - 1],
                      what.failed ? "reshape" : what.bytes, op->loc, v->diag);
    hd_text_free(&what);
    return status;
}

static hd_status check_reshape(verifier *v, const hd_op *op)
{
    hd_type out = type_of(op, 0), in = type_of(op, 1);
    char why[WHY];

    for (int i = 0; i < 2; i++)
        if (op->view[i].nindex > 0)
            return hd_error(v->diag, HD_E0306, op->view[i].loc,
                            "a part of %%%s: reshape takes all of a tensor; "
                            "`copy` the part to one of its own",
                            op->view[i].buffer->said);
    if (out.dtype != in.dtype)
        return shapes_differ(v, op, &out, &in,
                             "the dtypes differ, and only `copy` and `set` "
                             "cast");
    if (hd_type_elements(&out) == hd_type_elements(&in)) {
        HD_TRY(check_sized_apart(v, op, &out, &in));
        return is_unplaced(v, op) ? HD_OK : check_shares(v, op, &out, &in);
    }
    snprintf(why, sizeof why, "%lld elements for %lld",
             (long long)hd_type_elements(&in),
             (long long)hd_type_elements(&out));
    return shapes_differ(v, op, &out, &in, why);
}

// Operands alike, or both f8; the result may be another floating dtype.
static hd_status check_matmul_dtypes(verifier *v, const hd_op *op,
                                     const hd_type *out, const hd_type *a,
                                     const hd_type *b)
{
    const char *text = op_text(op);

    if (a->dtype == HD_DTYPE_I8 && b->dtype == HD_DTYPE_I8) {
        if (out->dtype == HD_DTYPE_I32 || out->dtype == HD_DTYPE_F32)
            return HD_OK;
        return hd_error(v->diag, HD_E0314, op->loc,
                        "%s of i8 into %s: its result is i32 or f32", text,
                        hd_dtype_text(out->dtype));
    }
    if (!hd_dtype_is_float(a->dtype) || !hd_dtype_is_float(b->dtype) ||
        !hd_dtype_is_float(out->dtype))
        return hd_error(v->diag, HD_E0314, op->loc,
                        "%s of %s by %s into %s: it works on floating "
                        "point, and i8 by i8",
                        text, hd_dtype_text(a->dtype), hd_dtype_text(b->dtype),
                        hd_dtype_text(out->dtype));
    if (a->dtype != b->dtype &&
        !(hd_dtype_is_f8(a->dtype) && hd_dtype_is_f8(b->dtype)))
        return hd_error(v->diag, HD_E0314, op->loc,
                        "%s of %s by %s: dtypes differ", text,
                        hd_dtype_text(a->dtype), hd_dtype_text(b->dtype));
    return HD_OK;
}

// What is no integer has no place in a sum of these.
static hd_status check_integer_keys(verifier *v, const hd_op *op)
{
    static const hd_key_code none[] = {HD_KEY_SCALE, HD_KEY_SCALE_A,
                                       HD_KEY_SCALE_B, HD_KEY_ACT, HD_KEY_AUX};

    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        const hd_key *key = hd_op_key(op, none[i]);

        if (key != NULL && hd_dtype_is_integer(type_of(op, 0).dtype))
            return hd_error(v->diag, HD_E0302, key->loc,
                            "%s into i32 takes no key %s; its result may be "
                            "f32",
                            op_text(op), hd_key_info_get(none[i])->text);
    }
    return HD_OK;
}

static hd_status check_bias_dtype(verifier *v, const hd_key *bias,
                                  hd_dtype dtype, hd_dtype out, hd_dtype a)
{
    bool as_out = out != HD_DTYPE_F32, as_a = a != HD_DTYPE_F32 && a != out;

    if (a == HD_DTYPE_I8 && dtype != out)
        return hd_error(v->diag, HD_E0314, bias->loc,
                        "a bias of %s; it is %s, as the result is",
                        hd_dtype_text(dtype), hd_dtype_text(out));
    if (dtype == out || dtype == a || dtype == HD_DTYPE_F32)
        return HD_OK;
    return hd_error(v->diag, HD_E0314, bias->loc,
                    "a bias of %s; it may be f32%s%s%s%s", hd_dtype_text(dtype),
                    as_out ? " or " : "", as_out ? hd_dtype_text(out) : "",
                    as_a ? " or " : "", as_a ? hd_dtype_text(a) : "");
}

static hd_status check_scales(verifier *v, const hd_op *op, hd_key_code code)
{
    const hd_key *key = hd_op_key(op, code);

    return key == NULL ? HD_OK : check_dtype(v, op, key->view, HD_DTYPE_F32);
}

// A shape that fits: of as many elements as the bias has, which a reshape
// makes, where that is one with an index for each of the ranks; else one for
// the columns alone.
static void hint_bias(verifier *v, const hd_op *op, int bias,
                      const hd_type *type)
{
    const hd_type *out = &type[0];
    int last = out->ndims - 1;
    int64_t elements = hd_type_elements(&type[bias]);
    hd_type ranks = *out, fits = *out;

    if (last < 0)
        return;
    for (int d = 0; d < last; d++)
        if (!hd_dim_is_sharded(out->dim[d]))
            ranks.dim[d] = hd_dim_whole(1);
    fits.ndims = 1;
    fits.dim[0] = out->dim[last];
    if (hd_type_elements(&fits) != elements &&
        hd_type_elements(&ranks) == elements)
        fits = ranks;
    fits.dtype = type[bias].dtype;
    hd_note(v->diag, op->view[bias].loc, "a bias of %s fits",
            type_text(v, &fits));
}

static void hint_group_bias(verifier *v, const hd_op *op, int bias,
                            const hd_type *type)
{
    hd_type each = type[0], all = each;

    each.dtype = all.dtype = type[bias].dtype;
    each.dim[0] = type[2].dim[0];
    all.ndims = 1;
    all.dim[0] = all.dim[1];
    hd_note(v->diag, op->view[bias].loc,
            "a bias of %s, a row for each group, or of %s fits",
            type_text(v, &each), type_text(v, &all));
}

// The same op with 'tb', or without.
static hd_op with_other_tb(const hd_op *op, hd_key key[HD_NKEYS])
{
    hd_op other = *op;

    other.key = key;
    other.nkeys = 0;
    other.bound = NULL;
    for (int i = 0; i < op->nkeys; i++)
        if (op->key[i].code != HD_KEY_TB)
            key[other.nkeys++] = op->key[i];
    if (hd_op_key(op, HD_KEY_TB) == NULL)
        key[other.nkeys++] = (hd_key){.code = HD_KEY_TB, .view = -1};
    return other;
}

// What the operands make in `ndims` dimensions; false if nothing.
static bool find_product(const verifier *v, const hd_op *op,
                         const hd_type *type, int ndims, hd_type *out)
{
    int n[3] = {ndims, type[1].ndims, type[2].ndims};
    hd_op product = *op;
    hd_bound bound;

    product.nviews = 3;
    if (ndims > HD_MAX_DIMS || !hd_bind(&product, n, &bound, NULL) ||
        !hd_bound_fits(&bound, type, 1, is_tensor(v), NULL))
        return false;
    *out = hd_bound_result(&bound, type);
    return true;
}

// Whether the second operand fits with one index for each of the rows'
// dimensions but the last one, as the text form 1 has them.
static bool fits_widened(const verifier *v, const hd_op *op,
                         const hd_type *type, hd_type *out)
{
    hd_type all[HD_MAX_VIEWS];
    int batch = type[2].ndims - 2;

    memcpy(all, type, sizeof *all * (size_t)op->nviews);
    while (!op->front && all[2].ndims < type[1].ndims)
        all[2] = hd_type_with(&all[2], batch, hd_dim_whole(1));
    *out = all[2];
    return out->ndims > type[2].ndims &&
           hd_signature_fits(op, all, is_tensor(v), NULL, NULL);
}

// What would fit, where something near does.
static void hint_matmul(verifier *v, const hd_op *op, const hd_type *type)
{
    bool tb = hd_op_key(op, HD_KEY_TB) != NULL;
    hd_key key[HD_NKEYS];
    hd_op other = with_other_tb(op, key);
    int a = type[1].ndims, b = type[2].ndims;
    hd_type fits;

    if (a == 0 || b < 2)
        return;
    if (hd_signature_fits(&other, type, is_tensor(v), NULL, NULL)) {
        hd_note(v->diag, op->loc,
                "it fits %s 'tb', which is for a second "
                "operand stored [N, K]",
                tb ? "without" : "with");
        return;
    }
    if (fits_widened(v, op, type, &fits)) {
        hd_note(v->diag, op->view[2].loc,
                "batches pair from their last dimension on; %s of %s fits",
                buffer_text(v, op->view[2].buffer), type_text(v, &fits));
        return;
    }
    if ((find_product(v, op, type, op->front || a > b ? a : b, &fits) ||
         find_product(v, op, type, a + b - 2, &fits)) &&
        !hd_type_same_dims(&fits, &type[0]))
        hd_note(
            v->diag, op->loc, "these operands give %s%s", type_text(v, &fits),
            type[0].ndims == fits.ndims - 1 && hd_dim_is_sharded(fits.dim[0])
                ? ", of which `sum` with dim 0 adds the ranks' parts"
                : "");
    else if (hd_dim_is_sharded(type[2].dim[b - (tb ? 1 : 2)]))
        hd_note(v->diag, op->loc,
                "for partial sums the result leads with the ranks that have "
                "parts of both operands: [M, K@axis] by [K@axis, N] gives "
                "[n@axis, M, N], and `sum` with dim 0 adds them");
}

static hd_status refuse_product(verifier *v, const hd_op *op,
                                const hd_type *type, const hd_misfit *why)
{
    int bias = hd_op_key_view(op, HD_KEY_BIAS);
    bool grouped = hd_op_key(op, HD_KEY_GROUPS) != NULL;
    hd_status status = refuse_misfit(v, op, HD_E0313, type, why);

    if (hd_op_has_scales(op, why->view))
        return status;
    if (bias >= 0 && why->view == bias)
        (grouped ? hint_group_bias : hint_bias)(v, op, bias, type);
    else if (!grouped)
        hint_matmul(v, op, type);
    return status;
}

// Parts are what a declaration says they are: of an operand that is yet moved
// there are none.
static bool fits_parts(verifier *v, const hd_op *op)
{
    hd_type type[HD_MAX_VIEWS];

    if (!is_unplaced(v, op))
        return false;
    for (int i = 0; i < op->nviews; i++)
        type[i] = type_of(op, i);
    return fits(v, op, type, NULL) && v->bound.parts;
}

// What is done to sums is done behind them, and a scale would be of a block.
static hd_status check_parts(verifier *v, const hd_op *op)
{
    for (int i = 0; i < op->nkeys; i++) {
        hd_key_code code = op->key[i].code;

        if (v->bound.parts && code != HD_KEY_TA && code != HD_KEY_TB &&
            code != HD_KEY_BIAS)
            return hd_error(v->diag, HD_E0313, op->key[i].loc,
                            "%s makes a part of the sums on each rank: it "
                            "takes ta, tb and bias then",
                            op_text(op));
    }
    return HD_OK;
}

static hd_status check_matmul(verifier *v, const hd_op *op)
{
    const hd_key *groups = hd_op_key(op, HD_KEY_GROUPS);
    const hd_key *bias = hd_op_key(op, HD_KEY_BIAS);
    const hd_key *aux = hd_op_key(op, HD_KEY_AUX);
    hd_type type[HD_MAX_VIEWS];
    hd_misfit why;

    types_of(v, op, type);
    if (groups != NULL)
        HD_TRY(check_dtype(v, op, groups->view, HD_DTYPE_I32));
    if (!fits(v, op, type, &why) && !fits_parts(v, op))
        return refuse_product(v, op, type, &why);
    HD_TRY(check_parts(v, op));
    HD_TRY(check_matmul_dtypes(v, op, &type[0], &type[1], &type[2]));
    HD_TRY(check_integer_keys(v, op));
    if (bias != NULL)
        HD_TRY(check_bias_dtype(v, bias, type[bias->view].dtype, type[0].dtype,
                                type[1].dtype));
    if (aux != NULL && !hd_dtype_is_float(type[aux->view].dtype))
        return hd_error(v->diag, HD_E0314, aux->loc,
                        "aux of %s: it keeps floating point",
                        hd_dtype_text(type[aux->view].dtype));
    HD_TRY(check_scales(v, op, HD_KEY_SCALE_A));
    return check_scales(v, op, HD_KEY_SCALE_B);
}

static bool has_counted(const hd_type *type)
{
    for (int i = 0; i < type->ndims; i++)
        if (hd_dim_is_counted(type->dim[i]))
            return true;
    return false;
}

// The factor of `scale`, a number or one f32: the same one on every rank.
static hd_status check_factor(verifier *v, const hd_op *op, hd_key_code code)
{
    const hd_key *key = hd_op_key(op, code);
    bool several = op->code == HD_OP_MATMUL; // it may have
    hd_type type;

    if (key == NULL || key->view < 0)
        return HD_OK;
    type = type_of(op, key->view);
    several &= type.dtype == HD_DTYPE_F32;
    if (type.dtype == HD_DTYPE_F32 && !has_counted(&type) &&
        (is_tensor(v) ? hd_type_elements(&type)
                      : hd_type_local_elements(&type)) == 1)
        return HD_OK;
    return hd_error(v->diag,
                    type.dtype != HD_DTYPE_F32 ? HD_E0314
                    : several                  ? HD_E0313
                                               : HD_E0311,
                    key->loc,
                    "a factor of %s; it is a number or one element of f32%s",
                    type_text(v, &type),
                    several ? "; scale_a and scale_b have one for each row, "
                              "column or block"
                            : "");
}

static bool same_range(const hd_view *a, const hd_view *b, int i)
{
    const hd_range *x = hd_view_range(a, i), *y = hd_view_range(b, i);

    return x == NULL || y == NULL ? x == y
                                  : x->low == y->low && x->past == y->past;
}

// An alias of its buffer's shape has the same elements at the same indices.
// These are interned: equal ones are the same number.
static bool same_view(const hd_view *a, const hd_view *b)
{
    if (hd_buffer_root(a->buffer) != hd_buffer_root(b->buffer) ||
        !hd_type_same_dims(&a->buffer->type, &b->buffer->type) ||
        a->nindex != b->nindex)
        return false;
    for (int i = 0; i < a->nindex; i++)
        if (a->index[i] != b->index[i] || !same_range(a, b, i))
            return false;
    return true;
}

// Of a record or a wait.
static hd_status check_list(verifier *v, const hd_op *op)
{
    int n = hd_op_is(op, HD_UNIT_SYNC) ? op->nviews : 0;

    for (int i = 1; i < n; i++)
        for (int k = 0; k < i; k++)
            if (same_view(&op->view[i], &op->view[k]))
                return hd_error(v->diag, HD_E0408, op->view[i].loc,
                                "%s names this event of %%%s twice",
                                op_text(op), op->view[i].buffer->said);
    return HD_OK;
}

// Whether two views of a buffer have elements in common; of a host program,
// whether indices leave no doubt of that.
static bool may_meet(const verifier *v, const hd_view *x, const hd_view *y)
{
    hd_box a, b, common;

    if (!is_tensor(v))
        return x->nindex == 0 || y->nindex == 0;
    a = hd_box_of(v->module, x);
    b = hd_box_of(v->module, y);
    return hd_box_meet(&a, &b, x->buffer->type.ndims, &common);
}

// A result may lie exactly over an operand where each element depends on that
// operand's alone. What indices decide is the checker's to find.
static hd_status check_overlap(verifier *v, const hd_op *op)
{
    bool elementwise = hd_op_in_place(op) == HD_IN_PLACE_SAME;

    for (int i = 0; i < op->nviews; i++)
        for (int k = 0; k < op->nviews; k++) {
            const hd_view *result = &op->view[i], *other = &op->view[k];
            hd_buffer *a = hd_buffer_root(result->buffer);

            if (i == k || hd_op_access(op, i) == HD_ACCESS_READ ||
                a != hd_buffer_root(other->buffer))
                continue;
            if (same_view(result, other)
                    ? elementwise && hd_op_access(op, k) == HD_ACCESS_READ
                    : !may_meet(v, result, other))
                continue;
            return hd_error(v->diag, HD_E0316, op->loc,
                            "%s writes %%%s, which it also uses otherwise%s",
                            op_text(op), a->name,
                            hd_op_family(op) == HD_FAMILY_CALL
                                ? "; with `keep` a call reads its results"
                                : "");
        }
    return HD_OK;
}

static hd_status check_map(verifier *v, const hd_op *op)
{
    hd_dtype dtype = op->view[0].buffer->type.dtype;

    switch (hd_op_info_get(op->code)->numbers) {
    case HD_NUMBERS_ANY:
        break;
    case HD_NUMBERS_FLOAT:
        if (!hd_dtype_is_float(dtype))
            return hd_error(v->diag, HD_E0314, op->loc,
                            "%s of %s: it works on floating point", op_text(op),
                            hd_dtype_text(dtype));
        break;
    case HD_NUMBERS_TEST:
        HD_TRY(check_dtype(v, op, 0, HD_DTYPE_U8));
        return check_operands(v, op, op->view[1].buffer->type.dtype, 1);
    case HD_NUMBERS_PICK:
        HD_TRY(check_dtype(v, op, 1, HD_DTYPE_U8));
        return check_operands(v, op, dtype, 2);
    case HD_NUMBERS_LOGIC:
        HD_TRY(check_dtype(v, op, 0, HD_DTYPE_U8));
        break;
    }
    return check_operands(v, op, dtype, 1);
}

// The views are token, slot, n and expert.
static hd_status check_route(verifier *v, const hd_op *op)
{
    hd_type token = type_of(op, 0), slot = type_of(op, 1);
    hd_type expert = type_of(op, 3);
    int64_t places;

    for (int i = op->nviews - 1; i >= 0; i--)
        HD_TRY(check_dtype(v, op, i, HD_DTYPE_I32));
    HD_TRY(check_alike(v, op));
    places = token.dim[token.ndims - 1].extent; // none, of an empty range
    if ((places > 0 &&
         token.dim[token.ndims - 2].extent > INT32_MAX / places) ||
        slot.dim[slot.ndims - 2].extent > INT32_MAX)
        return shapes_differ(v, op, &token, &expert,
                             "i32 numbers no more than 2147483647 places, or "
                             "tokens");
    return HD_OK;
}

// Whether one dimension has no more indices than another, in every run and on
// every rank.
static bool is_within(const verifier *v, const hd_view *in, hd_dim k, hd_dim n)
{
    int last = in->buffer->type.ndims - 1;
    const hd_range *range;

    while (hd_view_picks(in, last))
        last--;
    range = hd_view_range(in, last);
    if (hd_dim_is_counted(k) || hd_dim_is_counted(n) ||
        (range != NULL && range->block != HD_EXPR_NONE &&
         hd_dim_is_sized(in->buffer->type.dim[last])))
        return false;
    if (hd_dim_is_sized(n) && k.size == n.size)
        return k.times <= n.times;
    return k.extent <= (hd_dim_is_sized(n)
                            ? n.times * v->module->size[n.size - 1].low
                            : n.extent);
}

// The views are the greatest, where they were, and the operand.
static hd_status check_top_k(verifier *v, const hd_op *op)
{
    hd_type best = type_of(op, 0), in = type_of(op, 2);
    hd_dim k, n;
    char why[WHY];

    HD_TRY(check_dtype(v, op, 0, in.dtype));
    HD_TRY(check_dtype(v, op, 1, HD_DTYPE_I32));
    HD_TRY(check_alike(v, op));
    k = best.dim[best.ndims - 1];
    n = in.dim[in.ndims - 1];
    if (is_within(v, &op->view[2], k, n) && n.extent <= INT32_MAX)
        return HD_OK;
    if (n.extent > INT32_MAX)
        snprintf(why, sizeof why,
                 "the greatest of %.64s, which i32 does not number",
                 dim_text(v, n));
    else
        snprintf(why, sizeof why,
                 "the %.64s greatest of %.64s: there may be fewer",
                 dim_text(v, k), dim_text(v, n));
    return shapes_differ(v, op, &best, &in, why);
}

static hd_status check_pick(verifier *v, const hd_op *op)
{
    switch (hd_op_pick(op)) {
    case HD_PICK_TOP_K:
        return check_top_k(v, op);
    case HD_PICK_ROUTE:
        return check_route(v, op);
    case HD_PICK_NONE:
        break;
    }
    return HD_OK;
}

// Its results have one batch. Operands lie along that, or repeat; what it makes
// of them, whose last dimensions are its own affair, the declarations say.
static hd_status check_call(verifier *v, const hd_op *op)
{
    hd_type out = type_of(op, 0);
    int over = hd_op_over(op);

    if (over < 0 || over > out.ndims)
        return hd_error(v->diag, HD_E0312, hd_op_key(op, HD_KEY_OVER)->loc,
                        "over %d of a result of %d dimension%s", over,
                        out.ndims, plural(out.ndims));
    return check_alike(v, op);
}

// ---------------------------------------------------------------- attention

enum { HEADS, ROWS, DEPTH, MOST_DEPTH = 1024 };

// One of the dimensions that belong together in view `i`, behind that of
// blocks.
static hd_dim inner_dim(const hd_op *op, int i, int which)
{
    hd_type type = type_of(op, i);

    return type
        .dim[hd_op_batch(op, i, type.ndims) + hd_op_has_blocks(op, i) + which];
}

static bool is_attended(hd_dtype dtype)
{
    return dtype == HD_DTYPE_F16 || dtype == HD_DTYPE_BF16 ||
           dtype == HD_DTYPE_F32 || dtype == HD_DTYPE_F64;
}

// Whether each rank of an axis has one index of a dimension of the batch.
static bool is_index_of(const hd_op *op, int axis)
{
    hd_type type = type_of(op, 0);

    for (int d = 0; d < hd_op_batch(op, 0, type.ndims); d++)
        if (hd_dim_is_sharded(type.dim[d]) && type.dim[d].mark == axis &&
            !hd_dim_is_cut(type.dim[d]))
            return true;
    return false;
}

// A rank's rows are one of the blocks, and not what a step has of it, which is
// clamped.
static hd_status check_own_block(verifier *v, const hd_op *op,
                                 const hd_key *zigzag, const hd_env *env,
                                 int64_t rank)
{
    int64_t own = 0, last = hd_causal_blocks(op) - 1;

    if (hd_expr_eval(v->module, zigzag->expr, env, &own) && own >= 0 &&
        own <= last)
        return HD_OK;
    return hd_error(v->diag, HD_E0312, zigzag->loc,
                    "zigzag %lld on rank %lld: it says which block the rows "
                    "are, of 0 to %lld",
                    (long long)own, (long long)rank, (long long)last);
}

// A tensor program has the same on every rank, but for what is a rank's own.
static hd_status check_placed(verifier *v, const hd_op *op,
                              const hd_key *causal)
{
    hd_env env = {0};

    for (int axis = 0; axis < v->module->naxes; axis++)
        if (hd_causal_names(v->module, op, axis) && !is_index_of(op, axis))
            return hd_error(v->diag, HD_E0312, causal->loc,
                            "%s by %s, of which a rank has no index of the "
                            "result: none of its dimensions ahead of the last "
                            "three is [%lld@%s]",
                            hd_key_info_get(causal->code)->text,
                            v->module->axis[axis].name,
                            (long long)v->module->axis[axis].size,
                            v->module->axis[axis].name);
    for (int64_t rank = 0; rank < v->module->nranks; rank++) {
        for (int axis = 0; axis < v->module->naxes; axis++)
            env.coord[axis] = hd_mesh_coord(v->module, rank, axis);
        if (hd_causal_is_among(causal->code) &&
            !hd_causal_fits_among(v->module, causal, &env))
            return hd_error(v->diag, HD_E0312, causal->loc,
                            "%s is no number of a row on rank %lld, from 0 on",
                            hd_key_info_get(causal->code)->text,
                            (long long)rank);
        if (!hd_causal_is_bounded(v->module, op, &env))
            return hd_error(
                v->diag, HD_E0312, causal->loc, "%s has no value on rank %lld",
                hd_key_info_get(causal->code)->text, (long long)rank);
        if (causal->code == HD_KEY_ZIGZAG)
            HD_TRY(check_own_block(v, op, causal, &env, rank));
    }
    return HD_OK;
}

// Rows and keys are of all sequences, or it is said of which.
static hd_status check_sequences(verifier *v, const hd_op *op)
{
    const hd_key *groups = hd_op_key(op, HD_KEY_GROUPS);
    const hd_key *zigzag = hd_op_key(op, HD_KEY_ZIGZAG);

    for (int i = 0; i < op->nkeys; i++) {
        const hd_key *key = &op->key[i];

        if (!hd_causal_is_among(key->code))
            continue;
        if (groups == NULL || (zigzag != NULL && key->code != HD_KEY_ROOM))
            return hd_error(v->diag, HD_E0302, key->loc,
                            groups == NULL
                                ? "%s takes %s with groups only"
                                : "%s takes zigzag without %s: it says which "
                                  "rows and keys there are",
                            op_text(op), hd_key_info_get(key->code)->text);
    }
    return groups != NULL ? check_dtype(v, op, groups->view, HD_DTYPE_I32)
                          : HD_OK;
}

// Rows and keys are of one sequence, in as many chunks.
static hd_status check_zigzag(verifier *v, const hd_op *op,
                              const hd_key *zigzag)
{
    hd_dim rows = inner_dim(op, op->noutputs, ROWS),
           keys = inner_dim(op, op->noutputs + 1, ROWS);

    if (hd_op_key(op, HD_KEY_CAUSAL) != NULL ||
        hd_op_key(op, HD_KEY_STEP) != NULL)
        return hd_error(v->diag, HD_E0302, zigzag->loc,
                        "%s takes zigzag without causal and step: it is "
                        "causal, of the places that it says",
                        op_text(op));
    if (!is_tensor(v) && hd_op_key(op, HD_KEY_WINDOW) != NULL)
        return hd_error(v->diag, HD_E0302, zigzag->loc,
                        "%s takes zigzag with window in tensor programs only: "
                        "halves of rows see halves of keys by causal",
                        op_text(op));
    if (!is_tensor(v) && hd_op_has_sequences(op))
        return hd_error(v->diag, HD_E0302, zigzag->loc,
                        "%s takes zigzag with groups in tensor programs only: "
                        "halves of rows see halves of keys by causal",
                        op_text(op));
    if (is_tensor(v) && hd_op_key(op, HD_KEY_BLOCKS) == NULL)
        return hd_error(v->diag, HD_E0302, zigzag->loc,
                        "%s takes zigzag in tensor programs with blocks only",
                        op_text(op));
    if (hd_dim_is_sized(rows) || hd_dim_is_sized(keys) ||
        hd_dim_is_counted(rows) || rows.extent != keys.extent ||
        rows.extent % 2 != 0)
        return hd_error(v->diag, HD_E0312, zigzag->loc,
                        "zigzag of %s rows and of %s keys in a block; both "
                        "are as many, an even constant",
                        dim_text(v, rows), dim_text(v, keys));
    return is_tensor(v) ? check_placed(v, op, zigzag) : HD_OK;
}

// What is proven of the sizes that are drawn holds of all runs where a key says
// another number at each of them but one.
static hd_status check_linear(verifier *v, const hd_key *key)
{
    hd_text text = {0};
    hd_status status;

    if (key == NULL || hd_expr_is_linear(v->module, key->expr))
        return HD_OK;
    hd_expr_print(v->module, key->expr, &text);
    status = hd_error(v->diag, HD_E0318, key->loc,
                      "%s %s: what runs are given stands here in sums, and "
                      "times what is the same in every run",
                      hd_key_info_get(key->code)->text,
                      text.bytes != NULL ? text.bytes : "");
    hd_text_free(&text);
    return status;
}

static bool says_room(const hd_module *module, const hd_op *op)
{
    const hd_key *room = hd_op_key(op, HD_KEY_ROOM);
    const hd_env none = {0};
    int64_t low, high;

    if (room == NULL)
        return true;
    for (int axis = 0; axis < module->naxes; axis++)
        if (hd_expr_uses_coord(module, room->expr, axis))
            return false;
    for (hd_var var = 0; var < module->nvars; var++)
        if (hd_expr_uses_var(module, room->expr, var))
            return false;
    return hd_expr_bounds(module, room->expr, &none, &low, &high);
}

// Without a key that says where they are all rows are there, and all keys.
static hd_status check_among(verifier *v, const hd_op *op)
{
    const hd_key *groups = hd_op_key(op, HD_KEY_GROUPS);
    const hd_key *row = hd_op_key(op, HD_KEY_ROW);
    const hd_key *first = hd_op_key(op, HD_KEY_FIRST_KEY);
    hd_dim rows = inner_dim(op, op->noutputs, ROWS),
           keys = inner_dim(op, op->noutputs + 1, ROWS);

    if (groups == NULL)
        return HD_OK;
    if (row == NULL && hd_op_key(op, HD_KEY_ZIGZAG) == NULL &&
        (!hd_dim_as_long(rows, keys) || hd_causal_blocks(op) != 1))
        return hd_error(v->diag, HD_E0312, groups->loc,
                        "sequences of %s rows and of %s keys%s: 'row' says "
                        "where rows are that are some of all",
                        dim_text(v, rows), dim_text(v, keys),
                        hd_causal_blocks(op) != 1 ? " in each block" : "");
    HD_TRY(check_linear(v, row));
    HD_TRY(check_linear(v, first));
    HD_TRY(check_linear(v, hd_op_key(op, HD_KEY_ROOM)));
    if (!says_room(v->module, op))
        return hd_error(v->diag, HD_E0312, hd_op_key(op, HD_KEY_ROOM)->loc,
                        "room is of all sequences: the same on every rank, and "
                        "in every trip of a loop");
    if (hd_causal_room_now(v->module, op) > HD_MAX_AMONG)
        return hd_error(v->diag, HD_E0312, groups->loc,
                        "sequences of %lld rows; they have %lld at most",
                        (long long)hd_causal_room_now(v->module, op),
                        (long long)HD_MAX_AMONG);
    for (int i = 0; is_tensor(v) && i < op->nkeys; i++)
        if (hd_causal_is_among(op->key[i].code))
            HD_TRY(check_placed(v, op, &op->key[i]));
    return HD_OK;
}

static hd_status check_causal(verifier *v, const hd_op *op)
{
    const hd_key *causal = hd_op_key(op, HD_KEY_CAUSAL);
    const hd_key *window = hd_op_key(op, HD_KEY_WINDOW);
    const hd_key *blocks = hd_op_key(op, HD_KEY_BLOCKS);
    const hd_key *step = hd_op_key(op, HD_KEY_STEP);

    if (window != NULL && !(window->number >= 1))
        return hd_error(v->diag, HD_E0312, window->loc,
                        "a window of %.0f keys; it has one at least",
                        window->number);
    if (hd_op_key(op, HD_KEY_ZIGZAG) != NULL)
        return check_zigzag(v, op, hd_op_key(op, HD_KEY_ZIGZAG));
    if (step != NULL && (causal == NULL || blocks == NULL))
        return hd_error(v->diag, HD_E0302, step->loc,
                        "%s takes step with blocks and causal only",
                        op_text(op));
    HD_TRY(check_linear(v, causal));
    HD_TRY(check_linear(v, step));
    return causal != NULL && is_tensor(v) ? check_placed(v, op, causal) : HD_OK;
}

// Keys and values come in blocks in tensor programs: passes do a block after
// the other.
static hd_status check_has_blocks(verifier *v, const hd_op *op)
{
    const hd_key *key = hd_op_key(op, HD_KEY_BLOCKS);

    if (key == NULL || is_tensor(v))
        return HD_OK;
    return hd_error(v->diag, HD_E0302, key->loc,
                    "%s takes blocks in tensor programs only: here a block "
                    "is attended to after the other, with `accumulate`",
                    op_text(op));
}

static hd_status check_key_blocks(verifier *v, const hd_op *op)
{
    int keys = op->noutputs + 1;
    hd_type k;
    hd_dim n;

    if (hd_op_key(op, HD_KEY_BLOCKS) == NULL)
        return HD_OK;
    k = type_of(op, keys);
    n = k.dim[hd_op_batch(op, keys, k.ndims)];
    if (!hd_dim_is_sized(n) && n.extent <= HD_MAX_KEY_BLOCKS)
        return HD_OK;
    return hd_error(v->diag, HD_E0312, op->view[keys].loc,
                    "%s is of %s blocks of keys; %s takes a constant, %d "
                    "at most",
                    type_text(v, &k), dim_text(v, n), op_text(op),
                    HD_MAX_KEY_BLOCKS);
}

// How wide rows are the kernels know.
static hd_status check_depths(verifier *v, const hd_op *op)
{
    for (int i = 0; i < op->noutputs + op->ninputs; i++) {
        hd_type type = type_of(op, i);
        hd_dim last = type.dim[type.ndims - 1];

        if (hd_op_inner(op, i) <= DEPTH)
            continue;
        if (last.extent > MOST_DEPTH)
            return hd_error(v->diag, HD_E0312, op->view[i].loc,
                            "the last dimension of %s; %s takes %d at most",
                            type_text(v, &type), op_text(op), MOST_DEPTH);
    }
    return HD_OK;
}

// What is made of 16-bit numbers may be of 32 bits, and logarithms are.
static hd_dtype wide_of(hd_dtype dtype)
{
    return dtype == HD_DTYPE_F64 ? HD_DTYPE_F64 : HD_DTYPE_F32;
}

// q, k and v, from view `q` on, of which heads share.
static hd_status check_attended(verifier *v, const hd_op *op, int q)
{
    hd_dtype dtype = type_of(op, q).dtype;

    if (!is_attended(dtype))
        return hd_error(v->diag, HD_E0314, op->view[q].loc,
                        "%%%s is %s; %s takes f16, bf16, f32 or f64",
                        op->view[q].buffer->said, hd_dtype_text(dtype),
                        op_text(op));
    HD_TRY(check_dtype(v, op, q + 1, dtype));
    return check_dtype(v, op, q + 2, dtype);
}

// The heads of a view as its buffer has them, where it has a block of these as
// a rank does; else those that it keeps.
static hd_dim held_heads(const hd_op *op, int i, hd_expr *block)
{
    const hd_view *view = &op->view[i];
    hd_type type = type_of(op, i);
    int d = hd_view_kept_dim(view, hd_op_batch(op, i, type.ndims) +
                                       hd_op_has_blocks(op, i) + HEADS);
    const hd_range *range = hd_view_range(view, d);
    hd_dim dim = view->buffer->type.dim[d];

    *block = HD_EXPR_NONE;
    if (range == NULL || range->block == HD_EXPR_NONE)
        return inner_dim(op, i, HEADS);
    *block = range->block;
    dim.mark = HD_LOCAL;
    return hd_dim_cut(dim, range->blocks);
}

// Of blocks both are as long as many times in each, or there is one that all
// share.
static bool are_blocks_alike(const hd_op *op, int q)
{
    hd_expr block, other;
    hd_dim heads = held_heads(op, q, &block),
           shared = held_heads(op, q + 1, &other);

    if (other == HD_EXPR_NONE)
        return shared.extent == 1;
    return block == other && hd_dim_blocks(heads) == hd_dim_blocks(shared) &&
           heads.extent % shared.extent == 0 &&
           hd_dim_block(heads) ==
               heads.extent / shared.extent * hd_dim_block(shared);
}

// Of one over ranks a step has one.
static hd_dim heads_of(const verifier *v, const hd_op *op, int i)
{
    hd_dim heads = inner_dim(op, i, HEADS);

    return hd_dim_is_sharded(heads) && !is_tensor(v) ? hd_dim_whole(1) : heads;
}

static hd_status check_heads(verifier *v, const hd_op *op, int q)
{
    hd_type rows = type_of(op, q), keys = type_of(op, q + 1);
    hd_dim heads = heads_of(v, op, q), shared = heads_of(v, op, q + 1);
    hd_type type[HD_MAX_VIEWS];
    char why[WHY];

    if (hd_dim_is_sized(heads) || hd_dim_is_sized(shared) ||
        ((hd_dim_is_counted(heads) || hd_dim_is_counted(shared)) &&
         !are_blocks_alike(op, q)))
        return shapes_differ(v, op, &rows, &keys,
                             "how many heads there are is a constant");
    types_of(v, op, type);
    if (is_tensor(v) && !hd_bound_heads_fit(&v->bound, type, op->noutputs))
        return shapes_differ(
            v, op, &rows, &keys,
            "a rank has not the heads of keys that its heads of queries share; "
            "`set` them to local ones first");
    if (hd_dim_is_counted(heads) ||
        (shared.extent > 0 && heads.extent % shared.extent == 0))
        return HD_OK;
    snprintf(why, sizeof why,
             "%lld heads of queries are no multiple of %lld of keys",
             (long long)heads.extent, (long long)shared.extent);
    return shapes_differ(v, op, &rows, &keys, why);
}

static hd_status check_attention(verifier *v, const hd_op *op)
{
    hd_dtype dtype = type_of(op, 2).dtype;

    HD_TRY(check_attended(v, op, 2));
    HD_TRY(check_either(v, op, 0, dtype, wide_of(dtype)));
    return check_dtype(v, op, 1, wide_of(dtype));
}

static hd_status check_attention_grad(verifier *v, const hd_op *op)
{
    enum { DQ, DK, DV, Q, K, V, O, LSE, DO };
    static const int8_t others[] = {DQ, DK, DV, O, DO, LSE};
    hd_dtype dtype = type_of(op, Q).dtype, wide = wide_of(dtype);

    HD_TRY(check_attended(v, op, Q));
    for (size_t i = 0; i < sizeof others; i++)
        HD_TRY(check_either(v, op, others[i], others[i] == LSE ? wide : dtype,
                            wide));
    return HD_OK;
}

static hd_status check_merge(verifier *v, const hd_op *op)
{
    hd_dtype lse = type_of(op, 1).dtype;

    if (lse != HD_DTYPE_F32 && lse != HD_DTYPE_F64)
        return hd_error(v->diag, HD_E0314, op->view[1].loc,
                        "%%%s is %s; merge makes f32 or f64",
                        op->view[1].buffer->said, hd_dtype_text(lse));
    for (int i = 0; i < op->noutputs + op->ninputs; i++) {
        hd_type type = type_of(op, i);
        bool is_lse = i % 2 == 1;

        if (is_lse)
            HD_TRY(check_dtype(v, op, i, lse));
        else if (!is_attended(type.dtype) ||
                 (lse == HD_DTYPE_F32 && type.dtype == HD_DTYPE_F64))
            return hd_error(v->diag, HD_E0314, op->view[i].loc,
                            "%%%s is %s; merge %s f16, bf16 or %s",
                            op->view[i].buffer->said, hd_dtype_text(type.dtype),
                            i < op->noutputs ? "makes" : "takes",
                            hd_dtype_text(lse));
    }
    return HD_OK;
}

static hd_status check_attend_dtypes(verifier *v, const hd_op *op)
{
    switch (hd_op_attend(op)) {
    case HD_ATTEND_ATTENTION:
        return check_attention(v, op);
    case HD_ATTEND_MERGE:
        return check_merge(v, op);
    case HD_ATTEND_ATTENTION_GRAD:
        return check_attention_grad(v, op);
    case HD_ATTEND_NONE:
        break;
    }
    return HD_OK;
}

static hd_status check_attend(verifier *v, const hd_op *op)
{
    HD_TRY(check_sequences(v, op));
    HD_TRY(check_has_blocks(v, op));
    HD_TRY(check_attend_dtypes(v, op));
    HD_TRY(check_alike(v, op));
    HD_TRY(check_depths(v, op));
    if (!hd_op_meets_keys(op))
        return HD_OK;
    HD_TRY(check_key_blocks(v, op));
    HD_TRY(check_heads(v, op, op->noutputs));
    HD_TRY(check_among(v, op));
    return check_causal(v, op);
}

static hd_status check_counted(verifier *v, const hd_op *op)
{
    char why[HD_COUNTED_WHY];
    int i = hd_counted_misfit(v->module, op, &v->bound, why);

    if (i < 0)
        return HD_OK;
    return hd_error(v->diag, HD_E0319, op->view[i].loc, "%s%s", why,
                    hd_op_meets_keys(op)  ? ""
                    : hd_op_writes(op, i) ? "; make it without, and `copy` that"
                                          : "; `copy` to a tensor without");
}

static hd_status check_family(verifier *v, const hd_op *op)
{
    switch (hd_op_family(op)) {
    case HD_FAMILY_COPY:
        return op->code == HD_OP_RESHAPE ? check_reshape(v, op)
                                         : check_alike(v, op);
    case HD_FAMILY_MAP:
        return check_map(v, op);
    case HD_FAMILY_FOLD:
        return check_reduction(v, op);
    case HD_FAMILY_TRANSPOSE:
        return check_transpose(v, op);
    case HD_FAMILY_TAKE:
        return check_take(v, op);
    case HD_FAMILY_IOTA:
        return check_iota(v, op);
    case HD_FAMILY_PRODUCT:
        return check_matmul(v, op);
    case HD_FAMILY_PICK:
        return check_pick(v, op);
    case HD_FAMILY_ATTEND:
        return check_attend(v, op);
    case HD_FAMILY_CALL:
        return check_call(v, op);
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        break;
    }
    return HD_OK;
}

static hd_status check_compute(verifier *v, const hd_op *op)
{
    HD_TRY(check_overlap(v, op));
    HD_TRY(check_factor(v, op, HD_KEY_BY));
    HD_TRY(check_factor(v, op, HD_KEY_SCALE));
    HD_TRY(check_factor(v, op, HD_KEY_VALUE));
    HD_TRY(check_whole_numbers(v, op));
    HD_TRY(check_family(v, op));
    return check_counted(v, op);
}

// --------------------------------------------------------------- transfers

static hd_status check_shared(verifier *v, const hd_view *view)
{
    if (hd_buffer_root(view->buffer)->shared)
        return HD_OK;
    return hd_error(v->diag, HD_E0402, view->loc,
                    "%%%s is touched by peers and must be shared",
                    hd_buffer_root(view->buffer)->name);
}

static hd_status check_reach(verifier *v, const hd_op *op)
{
    int touched = hd_op_touched(op);

    return touched >= 0 ? check_shared(v, &op->view[touched]) : HD_OK;
}

// The next dimension from `i` on whose length a run says.
static int next_sized(const hd_type *type, int i)
{
    while (i < type->ndims && !hd_dim_is_sized(type->dim[i]))
        i++;
    return i;
}

// Of as many elements in every run.
static bool same_sizes(const hd_type *a, const hd_type *b)
{
    int i = next_sized(a, 0), k = next_sized(b, 0);

    while (i < a->ndims && k < b->ndims && hd_dim_same(a->dim[i], b->dim[k])) {
        i = next_sized(a, i + 1);
        k = next_sized(b, k + 1);
    }
    return i == a->ndims && k == b->ndims;
}

// What one rank holds of both is alike: a transfer moves nothing else.
static bool same_local_shape(const hd_type *a, const hd_type *b)
{
    if (a->ndims != b->ndims)
        return false;
    for (int i = 0; i < a->ndims; i++)
        if (hd_dim_local(a->dim[i]) != hd_dim_local(b->dim[i]))
            return false;
    return same_sizes(a, b);
}

// What a collective has of the pieces of ranks, by its key or in front, is one
// index, or as many as the longest has; of other blocks there is room for as
// many. None where it has no such pieces: no index of each of `n` ranks in
// front.
static hd_type piece_type(const verifier *v, const hd_op *op, int i, int64_t n)
{
    const hd_view *view = &op->view[i];
    const hd_key *key = hd_op_key(op, hd_op_pieces_key(op, i));
    hd_type type = type_of(op, i);

    for (int d = 0; d < view->nindex && v->module->stage < HD_STAGE_TRANSFER;
         d++) {
        const hd_range *range = hd_view_range(view, d);

        if (range != NULL && range->block != HD_EXPR_NONE)
            type.dim[hd_view_kept_ahead(view, d)] = hd_dim_whole(
                hd_block_size(view->buffer->type.dim[d].extent, range->blocks));
    }
    if (hd_op_is_led(op, i) && key == NULL)
        type.dim[0] =
            hd_dim_whole(type.ndims > 0 && !hd_dim_is_sized(type.dim[0]) &&
                         hd_dim_local(type.dim[0]) == n);
    else if (hd_op_is_led(op, i))
        type.dim[(int)key->number] = hd_dim_whole(
            hd_block_size(hd_dim_local(type.dim[(int)key->number]), n));
    type.ndims += hd_op_is_led(op, i) && type.ndims == 0;
    return type;
}

// A dimension that is cut into blocks which need not be as long as each other,
// and how many elements lie behind an index of it.
typedef struct cut {
    hd_dim dim;
    int64_t blocks, behind;
} cut;

// Of what ranks have pieces of, by the key, and of blocks that a view has; from
// the last one on. Returns how many.
static int find_cuts(const hd_op *op, int i, const hd_type *piece, int64_t n,
                     cut found[HD_MAX_DIMS])
{
    const hd_view *view = &op->view[i];
    int led = hd_op_key(op, hd_op_pieces_key(op, i)) != NULL
                  ? hd_op_pieces_dim(op, i)
                  : -1;
    int64_t behind = 1;
    int ncuts = 0;

    for (int d = view->buffer->type.ndims - 1; d >= 0; d--) {
        const hd_range *range = hd_view_range(view, d);
        hd_dim dim = d == led ? type_of(op, i).dim[hd_view_kept_ahead(view, d)]
                              : view->buffer->type.dim[d];
        int64_t blocks = d == led ? n
                         : range != NULL && range->block != HD_EXPR_NONE
                             ? range->blocks
                             : 0;

        if (hd_view_picks(view, d))
            continue;
        if (blocks > 0 && (hd_dim_is_sized(dim) || dim.extent % blocks != 0))
            found[ncuts++] = (cut){hd_dim_unmarked(dim), blocks, behind};
        behind *= hd_dim_local(piece->dim[hd_view_kept_ahead(view, d)]);
    }
    return ncuts;
}

// Whether both sides of a transfer are cut alike, before it is known how it
// moves: then as much moves of the longest block as of any.
static bool same_cuts(const verifier *v, const hd_op *op, const hd_type *to,
                      const hd_type *from, int64_t n)
{
    cut a[HD_MAX_DIMS], b[HD_MAX_DIMS];
    int count;

    if (v->module->stage >= HD_STAGE_TRANSFER)
        return true;
    count = find_cuts(op, 0, to, n, a);
    if (count != find_cuts(op, 1, from, n, b))
        return false;
    while (count-- > 0)
        if (!hd_dim_same(a[count].dim, b[count].dim) ||
            a[count].blocks != b[count].blocks ||
            a[count].behind != b[count].behind)
            return false;
    return true;
}

static bool has_pieces_key(const hd_op *op)
{
    return hd_op_key(op, hd_op_pieces_key(op, 0)) != NULL ||
           hd_op_key(op, hd_op_pieces_key(op, 1)) != NULL;
}

// The next dimension from `i` on whose length is no constant; `n` is times as
// many elements as those ahead of it have.
static int next_counted(const hd_type *type, int i, int64_t *n)
{
    for (; i < type->ndims && !hd_dim_is_counted(type->dim[i]); i++)
        *n *= hd_dim_local(type->dim[i]);
    return i;
}

// As many, and at least one where that is known.
static bool same_elements(const hd_type *a, const hd_type *b)
{
    int64_t n = 1, m = 1;
    int i = next_counted(a, 0, &n), k = next_counted(b, 0, &m);

    while (i < a->ndims && k < b->ndims &&
           a->dim[i].extent == b->dim[k].extent) {
        i = next_counted(a, i + 1, &n);
        k = next_counted(b, k + 1, &m);
    }
    return i == a->ndims && k == b->ndims && n == m && n > 0;
}

// Pieces match in number; how each side shapes them is its own affair, but
// where neither says in which dimension it has them.
static bool same_pieces(const hd_op *op, const hd_type *to, const hd_type *from)
{
    bool led = hd_op_is_led(op, 0);

    if (led == hd_op_is_led(op, 1) && !has_pieces_key(op))
        return (!led || to->dim[0].extent == 1) && same_local_shape(to, from);
    return same_sizes(to, from) && same_elements(to, from);
}

// Whether both may be as long where one's dimension is counted: of what one
// rank has and what it names of others only the walk knows.
static bool fits_counted(const hd_type *a, const hd_type *b)
{
    bool any = false;

    if (a->ndims != b->ndims)
        return false;
    for (int i = 0; i < a->ndims; i++) {
        bool counted =
            hd_dim_is_counted(a->dim[i]) || hd_dim_is_counted(b->dim[i]);

        any |= counted;
        if (!counted && hd_dim_local(a->dim[i]) != hd_dim_local(b->dim[i]))
            return false;
    }
    return any;
}

static hd_status pieces_differ(verifier *v, const hd_op *op, int64_t n)
{
    hd_type a = type_of(op, 0), b = type_of(op, 1);
    bool to = hd_op_is_led(op, 0), from = hd_op_is_led(op, 1);
    bool named = has_pieces_key(op);
    char why[WHY] = "both sides have one shape";

    if (to || from)
        snprintf(why, sizeof why, "%s %s%lld%s, %s",
                 to && from ? "each side"
                 : to       ? "the result"
                            : "the operand",
                 named ? "has " : "is [", (long long)n,
                 named ? " pieces of its dimension" : ", ..]",
                 to && from ? named ? "as much as the other" : "of one shape"
                 : to       ? "of each rank what it sends"
                            : "for each rank what it gets");
    return shapes_differ(v, op, &a, &b, why);
}

static hd_status check_collective(verifier *v, const hd_op *op)
{
    int64_t n = v->module->axis[op->axis].size;
    hd_type a, b, to, from;

    if (op->noutputs + op->ninputs < 2) // of a broadcast, perhaps none at all
        return HD_OK;
    a = type_of(op, 0);
    b = type_of(op, 1);
    to = piece_type(v, op, 0, n);
    from = piece_type(v, op, 1, n);
    if (!same_cuts(v, op, &to, &from, n))
        return pieces_differ(v, op, n);
    if (hd_op_is_rooted(op) && fits_counted(&a, &b) && a.dtype == b.dtype)
        return HD_OK;
    if (!same_pieces(op, &to, &from))
        return pieces_differ(v, op, n);
    return a.dtype == b.dtype
               ? HD_OK
               : shapes_differ(v, op, &a, &b, "the dtypes differ");
}

// Of a dimension that is cut into more blocks than it has indices each has one
// at most.
static bool keeps_several(hd_dim dim, const hd_range *range)
{
    if (range == NULL)
        return hd_dim_local(dim) > 1;
    return range->extent != 1 &&
           (range->block == HD_EXPR_NONE || dim.extent > range->blocks);
}

// A piece is one contiguous range of memory: behind a dimension of more than
// one index that is kept, none may be picked. `led` lets the first kept
// dimension be spaced, the one over ranks. The own block of a dimension is all
// of it where ranks have as many indices as they have room for.
static hd_status check_dense(verifier *v, const hd_view *view, bool led)
{
    const hd_type *type = &view->buffer->type;
    int kept = 0;

    for (int i = 0; i < type->ndims; i++) {
        const hd_range *range = hd_view_range(view, i);
        bool all =
            !hd_dim_is_sized(type->dim[i]) &&
            (range == NULL || range->extent == hd_dim_local(type->dim[i]));

        if (!hd_view_picks(view, i) && (all || kept <= (led ? 1 : 0))) {
            kept += keeps_several(type->dim[i], range) || (led && kept == 0);
            continue;
        }
        if (hd_dim_local(type->dim[i]) > 1 && kept > (led ? 1 : 0) &&
            is_made(v) && hd_dim_is_sized(type->dim[i]))
            return refuse_pieces(v, view, i, NULL);
        if (hd_dim_local(type->dim[i]) > 1 && kept > (led ? 1 : 0))
            return hd_error(v->diag, HD_E0407, view->loc,
                            "this view of %s is not contiguous in memory; "
                            "copy it first",
                            buffer_text(v, view->buffer));
    }
    return HD_OK;
}

// Of two dimensions whose lengths a run says one alone can stand in front of
// what is moved: behind it the other one's room is not filled.
static hd_status check_one_sized(verifier *v, const hd_op *op, int i)
{
    const hd_view *view = &op->view[i];
    int64_t n = v->module->axis[op->axis].size;
    bool leads = hd_op_key(op, hd_op_pieces_key(op, i)) != NULL;
    int first = -1;

    for (int d = 0; d < view->buffer->type.ndims; d++) {
        hd_dim dim = view->buffer->type.dim[d];
        bool one = leads && d == hd_op_pieces_dim(op, i) && dim.extent <= n;

        if (!hd_view_has_sized(view, d) || one ||
            !keeps_several(dim, hd_view_range(view, d)))
            continue;
        if (first >= 0)
            return refuse_pieces(v, view, first,
                                 &v->module->size[dim.size - 1]);
        first = d;
    }
    return HD_OK;
}

// Until pipelines are known moves name a dimension, and views of any stride.
static hd_status check_pieces(verifier *v, const hd_op *op)
{
    for (int i = 0; i < op->noutputs + op->ninputs; i++) {
        const hd_key *key = hd_op_key(op, hd_op_pieces_key(op, i));
        hd_type type = type_of(op, i);

        if (key == NULL)
            continue;
        if (v->module->stage >= HD_STAGE_TRANSFER)
            return hd_error(v->diag, HD_E0302, key->loc,
                            "%s takes the key %s until transfers have their "
                            "pipelines: what it moves lies with the dimension "
                            "over the ranks in front then",
                            op_text(op), hd_key_info_get(key->code)->text);
        HD_TRY(check_dim(v, op, key->code, type.ndims, 0));
        if (hd_dim_is_counted(type.dim[(int)key->number]))
            return pieces_differ(v, op, v->module->axis[op->axis].size);
    }
    if (v->module->stage < HD_STAGE_TRANSFER) {
        for (int i = 0; i < op->noutputs + op->ninputs &&
                        v->module->axis[op->axis].size > 1;
             i++)
            HD_TRY(check_one_sized(v, op, i));
        return HD_OK;
    }
    for (int i = 0; i < op->noutputs + op->ninputs; i++)
        HD_TRY(check_dense(v, &op->view[i], hd_op_is_led(op, i)));
    return HD_OK;
}

static hd_status check_transfer(verifier *v, const hd_op *op)
{
    HD_TRY(check_pieces(v, op));
    if (v->module->stage == HD_STAGE_HOST) // `share` has said what is shared
        HD_TRY(check_reach(v, op));
    return check_collective(v, op);
}

static hd_status check_sync(verifier *v, const hd_op *op)
{
    bool all = hd_op_sync(op) == HD_SYNC_FORK || hd_op_sync(op) == HD_SYNC_JOIN;

    if (all && v->on_stream)
        return hd_error(v->diag, HD_E0403, op->loc,
                        "%s stands outside on stream", op_text(op));
    if (all && v->module->streams == 0)
        return hd_error(v->diag, HD_E0404, op->loc,
                        "the program declares no streams");
    return HD_OK;
}

static bool reads_result(const hd_op *first, const hd_op *second)
{
    for (int i = second->noutputs; i < second->noutputs + second->ninputs; i++)
        if (first->noutputs > 0 && hd_buffer_root(second->view[i].buffer) ==
                                       hd_buffer_root(first->view[0].buffer))
            return true;
    return false;
}

// A collective that gathers, and the product that reads its result, or a
// product and the collective that reduces its result.
static bool is_pair(const hd_block *block)
{
    const hd_stmt *first = block->first, *last = block->last;
    const hd_op *collective, *product;
    bool reduces;

    if (first == NULL || first->next != last || first == last ||
        first->kind != HD_STMT_OP || last->kind != HD_STMT_OP)
        return false;
    reduces = hd_op_family(first->op) == HD_FAMILY_PRODUCT;
    collective = reduces ? last->op : first->op;
    product = reduces ? first->op : last->op;
    return hd_op_is_collective(collective) &&
           hd_op_family(product) == HD_FAMILY_PRODUCT &&
           (hd_op_fold(collective) != HD_FOLD_NONE) == reduces &&
           reads_result(first->op, last->op);
}

// Products, and what orders them on a stream that goes on; or a collective and
// the product beside it.
static bool may_be_launched(const verifier *v, const hd_op *op)
{
    return hd_op_family(op) == HD_FAMILY_PRODUCT ||
           (v->pairing ? hd_op_is_collective(op)
                       : hd_op_sync(op) == HD_SYNC_WAIT ||
                             hd_op_sync(op) == HD_SYNC_RECORD);
}

// Whether an op reads what has no shape; the first time, if nothing wrote that.
static bool reads_shapeless(verifier *v, const hd_op *op)
{
    bool any = false;

    for (int i = 0; i < op->nviews; i++) {
        const hd_buffer *x = op->view[i].buffer;
        if (!x->shapeless || hd_op_writes(op, i))
            continue;
        any = true;
        if (v->written[x->id].n == 0)
            hd_ignore(hd_error(v->diag, HD_E0310, op->view[i].loc,
                               "%%%s is read before it is written", x->said));
    }
    return any;
}

// Why its operands do not say what it makes. Of one that reads what has no
// shape it has been told.
static hd_status refuse_shapeless(verifier *v, const hd_op *op)
{
    hd_type type[HD_MAX_VIEWS];
    const hd_said said = {0};
    hd_bound bound;
    hd_misfit why;
    bool reads = reads_shapeless(v, op), fits;
    const hd_buffer *x;
    int first = 0;

    for (int i = 0; i < op->noutputs; i++)
        if (op->view[i].buffer->shapeless && op->view[i].nindex == 0)
            HD_TRY(note_written(v, &op->view[i]));
    if (reads)
        return HD_ERROR_INVALID;
    while (!op->view[first].buffer->shapeless)
        first++;
    x = op->view[first].buffer;
    fits = op->bound != NULL && hd_infer_bind(op, &said, type, &bound, &why);
    if (fits && (x->open & HD_OPEN_PLACE) == 0 &&
        x->type.ndims != bound.ndims[first])
        return hd_error(v->diag, HD_E0311, op->view[first].loc,
                        "%%%s is declared with %d dimension%s, and %s makes %d",
                        x->said, x->type.ndims, plural(x->type.ndims),
                        op_text(op), bound.ndims[first]);
    if (op->view[first].nindex == 0 && op->bound != NULL && !fits &&
        why.kind != HD_MISFIT_FORM && why.view >= op->noutputs)
        return hd_op_family(op) == HD_FAMILY_PRODUCT
                   ? refuse_product(v, op, type, &why)
                   : refuse_misfit(v, op, HD_E0311, type, &why);
    return hd_error(v->diag, HD_E0217, op->view[first].loc,
                    "the extents of %%%s are not declared, and %s does not say "
                    "them%s",
                    x->said,
                    op->view[first].nindex > 0 ? "a part of it" : op_text(op),
                    op->view[first].nindex == 0 && hd_op_says_shape(op)
                        ? ": 'to [m, n]' behind it does"
                        : "");
}

// What one of the other level would make counts as written: who reads that is
// right.
static hd_status check_level(verifier *v, const hd_op *op)
{
    hd_level level = is_tensor(v) ? HD_LEVEL_TENSOR : HD_LEVEL_HOST;
    const char *instead = "";

    if ((hd_op_info_get(op->code)->level & level) != 0)
        return HD_OK;
    if (is_tensor(v) && hd_op_is(op, HD_UNIT_TRANSFER))
        instead = hd_op_fold(op) == HD_FOLD_NONE
                      ? ": here operands are brought to where statements need "
                        "them, and 'set' places a tensor as its result is "
                        "declared"
                      : ": here products over a sharded dimension are added "
                        "up over ranks, and 'sum' does so of a tensor";
    for (int i = 0; i < op->noutputs; i++)
        if (op->view[i].buffer->shapeless && op->view[i].nindex == 0)
            HD_TRY(note_written(v, &op->view[i]));
    return hd_error(v->diag, HD_E0303, op->loc,
                    "%s stands in %s programs only%s", op_text(op),
                    is_tensor(v) ? "host" : "tensor", instead);
}

static hd_status check_op(verifier *v, const hd_op *op)
{
    HD_TRY(check_level(v, op));
    HD_TRY(check_form(v, op));
    if (hd_op_is_shapeless(op))
        return refuse_shapeless(v, op);
    HD_TRY(check_views(v, op));
    HD_TRY(check_ranks(v, op));
    HD_TRY(check_list(v, op));
    if (v->grouping && !hd_op_is(op, HD_UNIT_TRANSFER))
        return hd_error(v->diag, HD_E0405, op->loc,
                        "%s in a group: a group holds transfers", op_text(op));
    if (v->launching && !may_be_launched(v, op))
        return hd_error(v->diag, HD_E0409, op->loc,
                        "%s in a launch: a launch holds products, waits and "
                        "records%s",
                        op_text(op),
                        hd_op_is_collective(op)
                            ? ", or a collective and one product, which reads "
                              "what that gathers or makes what it reduces"
                            : "");
    switch (hd_op_unit(op)) {
    case HD_UNIT_COMPUTE:
        return check_compute(v, op);
    case HD_UNIT_TRANSFER:
        return check_transfer(v, op);
    case HD_UNIT_SYNC:
        break;
    }
    return check_sync(v, op);
}

// -------------------------------------------------------------- statements

static void check_block(verifier *v, const hd_block *block);

static hd_status check_on(verifier *v, const hd_stmt *stmt)
{
    if (v->on_stream || v->grouping || v->launching)
        return hd_error(v->diag, HD_E0406, stmt->loc,
                        "on stream inside another, or inside a group or a "
                        "launch");
    if (v->module->streams == 0)
        return hd_error(v->diag, HD_E0404, stmt->loc,
                        "the program declares no streams");
    v->on_stream = true;
    check_block(v, &stmt->body);
    v->on_stream = false;
    return HD_OK;
}

static hd_status check_group(verifier *v, const hd_stmt *stmt)
{
    if (v->grouping || v->launching)
        return hd_error(v->diag, HD_E0406, stmt->loc, "a group in a %s",
                        v->grouping ? "group" : "launch");
    v->grouping = true;
    check_block(v, &stmt->body);
    v->grouping = false;
    return HD_OK;
}

// What lowering goes on with has no launches but those that --transfer fused
// makes, by themselves: the last pass makes others.
static hd_status check_launch(verifier *v, const hd_stmt *stmt)
{
    bool pairs = is_pair(&stmt->body);

    if (v->module->stage != HD_STAGE_HOST &&
        !(pairs && v->depth == 1 && v->module->stage >= HD_STAGE_STREAM))
        return hd_error(v->diag, HD_E0406, stmt->loc,
                        "a launch in a program after %s: a launch stands in a "
                        "host program that is lowered to its end",
                        hd_stage_text(v->module->stage));
    if (v->grouping || v->launching)
        return hd_error(v->diag, HD_E0406, stmt->loc, "a launch in a %s",
                        v->grouping ? "group" : "launch");
    v->launching = true;
    v->pairing = pairs;
    check_block(v, &stmt->body);
    v->launching = v->pairing = false;
    return HD_OK;
}

// What was verified before, and may be read by others meanwhile, is left alone.
static void keep_bound(const verifier *v, const hd_op *op)
{
    if (v->is_bound && op->bound != NULL &&
        memcmp(op->bound, &v->bound, sizeof v->bound) != 0)
        memcpy(op->bound, &v->bound, sizeof v->bound);
}

static hd_status check_stmt(verifier *v, const hd_stmt *stmt)
{
    if (is_tensor(v) && stmt->kind != HD_STMT_OP)
        return hd_error(v->diag, HD_E0303, stmt->loc,
                        "a tensor program is a list of operations");
    switch (stmt->kind) {
    case HD_STMT_OP:
        v->is_bound = false;
        HD_TRY(check_op(v, stmt->op));
        keep_bound(v, stmt->op);
        return HD_OK;
    case HD_STMT_ON:
        return check_on(v, stmt);
    case HD_STMT_GROUP:
        return check_group(v, stmt);
    case HD_STMT_LAUNCH:
        return check_launch(v, stmt);
    case HD_STMT_LET:
    case HD_STMT_FOR:
    case HD_STMT_IF:
        break;
    }
    check_block(v, &stmt->body);
    check_block(v, &stmt->otherwise);
    return HD_OK;
}

// Without memory for what is written nothing after it can be judged.
static void check_block(verifier *v, const hd_block *block)
{
    v->depth++;
    for (const hd_stmt *stmt = block->first; stmt != NULL && !v->ran_out;
         stmt = stmt->next) {
        hd_status status = check_stmt(v, stmt);

        v->failed |= status != HD_OK;
        v->ran_out |= status == HD_ERROR_NO_MEMORY;
    }
    v->depth--;
}

static hd_status check_streams(verifier *v)
{
    if (v->module->streams >= 0 && v->module->streams <= MAX_STREAMS)
        return HD_OK;
    v->failed = true;
    return hd_error(v->diag, HD_E0105, v->module->streams_loc,
                    "streams %lld; a program has 0 to %d work streams",
                    (long long)v->module->streams, MAX_STREAMS);
}

static void check_output(verifier *v, const hd_buffer *b)
{
    const hd_written *w = &v->written[b->id];
    hd_view view = {.buffer = (hd_buffer *)b};
    hd_box all = hd_box_of(v->module, &view);

    if (hd_written_has(w, &all, b->type.ndims))
        return;
    v->failed = true;
    all = hd_written_first_gap(w, &all, b->type.ndims);
    hd_ignore(w->n == 0
                  ? hd_error(v->diag, HD_E0310, b->loc,
                             "%%%s is an output and is never written", b->name)
                  : hd_error(v->diag, HD_E0310, b->loc,
                             "%%%s is an output, and %s is never written",
                             b->name, element_text(v, b, &all)));
}

static void check_outputs(verifier *v)
{
    for (const hd_buffer *b = v->module->buffers; b != NULL; b = b->next)
        if (b->role == HD_ROLE_OUT && is_tensor(v))
            check_output(v, b);
}

hd_status hd_verify(const hd_module *module, hd_diag *diag)
{
    verifier v = {.module = module, .diag = diag};
    const hd_source *outer;

    v.written = calloc((size_t)module->nbuffers + 1, sizeof *v.written);
    if (v.written == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    outer = hd_diag_source(diag, &module->source);
    v.failed = hd_declare_verify(module, diag) != HD_OK;
    if (check_streams(&v) == HD_OK && !v.failed)
        check_block(&v, &module->body);
    if (!v.failed)
        check_outputs(&v);
    hd_diag_source(diag, outer);
    for (int i = 0; i < TEXTS; i++)
        hd_text_free(&v.text[i]);
    for (int i = 0; i < module->nbuffers; i++)
        free(v.written[i].box);
    free(v.written);
    return v.ran_out ? HD_ERROR_NO_MEMORY : v.failed ? HD_ERROR_INVALID : HD_OK;
}
