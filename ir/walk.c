// Unrolls a program for one rank. Blocks nest at most 64 deep (the parser's
// rule), so the walk recurses over blocks and loops over everything else.
// Nothing is allocated per step: spans are built in scratch memory that the
// callback reads during its call, and the members of a group gather there until
// the group ends.
#include "ir/walk.h"

#include "ir/along.h"
#include "ir/causal.h"
#include "ir/space.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "ir/signature.h"
#include "ir/zeros.h"

enum {
    MAX_EVENTS = 1 << 24,
    MOST_TURNED = 1 << 20, // values of keys that other ranks are asked for, and
                           // iterations of a loop of theirs
    MOST_CUT = 1 << 16,    // steps of ranks that have indices of their own
};

// A collective that some ranks of its line have come to.
typedef struct opened {
    const hd_op *op; // NULL: there is none
    hd_arc arc;
    int64_t root, next; // coordinate; the step that is to follow
    int32_t seq;
    int32_t group;
    int stream;
    hd_view_terms moved; // of one with a root
} opened;

// All ranks of a line, of which `arc` issue what is walked now. The walk is
// that of the first one of these, whose indices and peers are turned to
// coordinate 0.
typedef struct split {
    hd_line line;  // of no size: each rank is walked by itself
    hd_along *let; // owned: line.let
    hd_arc arc;
    hd_arc *member;    // owned, as the walker's
    int64_t room;      // of that
    hd_arc **recorded; // owned, by buffer id: who records each event last
    int64_t ncut;
    opened opened;
} split;

typedef struct walker {
    const hd_module *module;
    hd_diag *diag;
    hd_step_fn *fn;    // NULL: steps are only counted, or `full_fn` takes them
    hd_step_fn *empty; // NULL: nobody asks what is not issued
    hd_full_step_fn *full_fn, *full_empty;
    void *context;
    const hd_full *full; // NULL: the rank stands for itself
    split split;
    // Owned, of a rank that stands for others; else NULL: each let once, behind
    // those that it uses.
    const hd_stmt **let;
    bool *is_listed; // owned, by variable
    int nlets;
    int64_t rank;
    hd_env env;
    int64_t *vars; // owned: env.var
    int stream;
    hd_zeros zeros; // owned
    // `nunfilled`: fills that are no steps, as what they fill is stored.
    int64_t nsteps, nskipped, nunfilled, niterations, nidle;
    int ngroups;
    uint8_t launch, launched; // that of steps now, and of the last launch
    bool grouping;
    hd_step *member; // owned: the current step, or the group's so far
    hd_span *span;   // owned: HD_MAX_VIEWS a member
    int nmembers;
    int64_t members_room, spans_room;
    int32_t *sent, *received;    // owned: by axis and coordinate of the peer
    int first_peer[HD_MAX_AXES]; // of an axis in both
    int64_t nturned; // values of keys that other ranks were asked for
    int32_t collectives[HD_MAX_AXES];
    hd_record **recorded; // owned, by buffer id: each event's last one, its
                          // step counted from 1
    hd_record awaited[HD_MAX_VIEWS]; // of the current step
    hd_attended attended;            // likewise, which is in no group
} walker;

// Says which part of an expression that has no value is the one to blame: all
// below it have values.
static hd_status report_valueless(const walker *w, hd_expr expr, hd_loc loc)
{
    const hd_expr_node *node = hd_expr_get(w->module, expr);
    hd_text text = {0};
    int64_t value = 0;
    hd_status status;

    if (!hd_expr_eval(w->module, node->a, &w->env, &value))
        return report_valueless(w, node->a, loc);
    if (!hd_expr_eval(w->module, node->b, &w->env, &value))
        return report_valueless(w, node->b, loc);
    hd_expr_print(w->module, expr, &text);
    if (hd_expr_divides(node->kind))
        status = hd_error(w->diag, HD_E0608, loc,
                          "%s on rank %lld divides by %lld; it must be at "
                          "least 1",
                          text.bytes != NULL ? text.bytes : "an expression",
                          (long long)w->rank, (long long)value);
    else
        status = hd_error(w->diag, HD_E0608, loc,
                          "%s on rank %lld overflows 64 bits",
                          text.bytes != NULL ? text.bytes : "an expression",
                          (long long)w->rank);
    hd_text_free(&text);
    return status;
}

static hd_status evaluate(walker *w, hd_expr expr, hd_loc loc, int64_t *out)
{
    if (hd_expr_eval(w->module, expr, &w->env, out))
        return HD_OK;
    return report_valueless(w, expr, loc);
}

// Of a key that may have sizes of runs: it has a value in each.
static hd_status evaluate_key(walker *w, const hd_key *key, int64_t *out)
{
    int64_t low, high;
    hd_text text = {0};
    hd_status status;

    HD_TRY(evaluate(w, key->expr, key->loc, out));
    if (hd_expr_bounds(w->module, key->expr, &w->env, &low, &high))
        return HD_OK;
    hd_expr_print(w->module, key->expr, &text);
    status = hd_error(w->diag, HD_E0608, key->loc,
                      "%s on rank %lld overflows 64 bits in some run",
                      text.bytes != NULL ? text.bytes : "an expression",
                      (long long)w->rank);
    hd_text_free(&text);
    return status;
}

// ------------------------------------------------------- ranks walked at once

static bool is_split(const walker *w)
{
    return w->split.line.size > 0;
}

// To the first rank of the arc, where lets have the values that are known
// there.
static void come_to(walker *w, hd_arc arc)
{
    w->split.arc = arc;
    w->env.coord[w->split.line.axis] = arc.first;
    for (int i = 0; i < w->nlets; i++)
        (void)hd_along_value(&w->split.let[w->let[i]->var], arc.first,
                             &w->vars[w->let[i]->var]);
}

static hd_status evaluate_along(const walker *w, hd_expr expr, hd_along *out)
{
    return hd_along_eval(&w->split.line, expr, w->split.arc, out)
               ? HD_OK
               : HD_ERROR_INVALID;
}

// What turns with the coordinate, on all ranks of the arc, is what it is at
// coordinate 0.
static hd_status turn_back(const walker *w, hd_expr expr, int64_t *value)
{
    hd_along along;

    HD_TRY(evaluate_along(w, expr, &along));
    return hd_along_turns(&along, w->split.line.size, value) ? HD_OK
                                                             : HD_ERROR_INVALID;
}

static bool is_rooted_along(const walker *w, const hd_op *op)
{
    return is_split(w) && hd_op_is_rooted(op) && op->axis == w->split.line.axis;
}

static bool turns_along(const walker *w, const hd_buffer *buffer, int i)
{
    return is_split(w) &&
           (w->full->of[buffer->id].axes[i] >> w->split.line.axis & 1) != 0;
}

static hd_status bound_along(const walker *w, hd_expr expr, int64_t *least,
                             int64_t *most)
{
    hd_along along;

    HD_TRY(evaluate_along(w, expr, &along));
    hd_along_bounds(&along, least, most);
    return HD_OK;
}

// One number on all ranks of the arc.
static hd_status evaluate_alike(walker *w, hd_expr expr, hd_loc loc,
                                int64_t *out)
{
    int64_t least, most;

    HD_TRY(evaluate(w, expr, loc, out));
    if (!is_split(w) || hd_expr_is_const(w->module, expr))
        return HD_OK;
    HD_TRY(bound_along(w, expr, &least, &most));
    return least == most ? HD_OK : HD_ERROR_INVALID;
}

// What a dimension is picked by: where it turns as at coordinate 0.
static hd_status evaluate_index(walker *w, const hd_view *view, int i,
                                hd_expr expr, int64_t *out)
{
    if (!turns_along(w, view->buffer, i))
        return evaluate_alike(w, expr, view->loc, out);
    HD_TRY(evaluate(w, expr, view->loc, out));
    return turn_back(w, expr, out);
}

// ------------------------------------------------------------------ spans

// Of what a run says the length of, an index is there in every run.
static const char *runs_text(hd_dim dim)
{
    return hd_dim_is_sized(dim) ? " in some runs" : "";
}

static hd_status pick_index(walker *w, const hd_view *view, int i,
                            int64_t *index)
{
    hd_dim dim = view->buffer->type.dim[i];

    if (hd_dim_is_sharded(dim)) { // by the own coordinate: the only index here
        *index = 0;
        return HD_OK;
    }
    HD_TRY(evaluate_index(w, view, i, view->index[i], index));
    if (*index >= 0 && *index < hd_module_least(w->module, dim))
        return HD_OK;
    return hd_error(w->diag, HD_E0601, view->loc,
                    "index %lld of %%%s on rank %lld; its dimension %d has "
                    "extent %lld%s",
                    (long long)*index, view->buffer->name, (long long)w->rank,
                    i, (long long)hd_module_least(w->module, dim),
                    runs_text(dim));
}

static hd_status check_block(walker *w, const hd_view *view, int i,
                             const hd_range *range)
{
    int64_t block;

    HD_TRY(hd_dim_is_sharded(view->buffer->type.dim[i])
               ? evaluate(w, range->block, view->loc, &block)
               : evaluate_index(w, view, i, range->block, &block));
    if (block >= 0 && block < range->blocks)
        return HD_OK;
    return hd_error(w->diag, HD_E0601, view->loc,
                    "block %lld of dimension %d of %%%s on rank %lld; it has "
                    "blocks 0 to %lld",
                    (long long)block, i, view->buffer->name, (long long)w->rank,
                    (long long)range->blocks - 1);
}

static int64_t full_block(const walker *w, const hd_buffer *buffer, int i)
{
    return w->full != NULL ? w->full->of[buffer->id].block[i] : 0;
}

static int64_t room_of(const walker *w, const hd_buffer *buffer, int i)
{
    return w->full != NULL ? hd_full_extent(w->full, buffer, i)
                           : hd_dim_local(buffer->type.dim[i]);
}

// Which indices a range keeps, if any.
static hd_status keep_range(walker *w, const hd_view *view, int i,
                            const hd_range *range, int64_t *low, int64_t *n)
{
    hd_dim dim = view->buffer->type.dim[i];
    int64_t extent = range->block != HD_EXPR_NONE
                         ? hd_module_extent(w->module, dim)
                         : hd_module_least(w->module, dim);
    int64_t past;

    if (range->block != HD_EXPR_NONE)
        HD_TRY(check_block(w, view, i, range));
    if (range->block != HD_EXPR_NONE && full_block(w, view->buffer, i) > 0) {
        *n = full_block(w, view->buffer, i);
        *low = 0;
        if (!hd_dim_is_sharded(dim))
            HD_TRY(evaluate_index(w, view, i, range->block, low));
        *low *= *n;
        return HD_OK;
    }
    HD_TRY(evaluate_alike(w, range->low, view->loc, low));
    HD_TRY(evaluate_alike(w, range->past, view->loc, &past));
    if (*low >= 0 && *low <= past && past <= extent) {
        *n = past - *low;
        if (hd_dim_is_sharded(dim)) // the own block begins the rank's memory
            *low = 0;
        return HD_OK;
    }
    return hd_error(w->diag, HD_E0601, view->loc,
                    "indices %lld..%lld of %%%s on rank %lld%s; its dimension "
                    "%d has extent %lld%s",
                    (long long)*low, (long long)past, view->buffer->name,
                    (long long)w->rank,
                    *low <= past ? "" : ", which begin behind their end", i,
                    (long long)extent,
                    range->block == HD_EXPR_NONE ? runs_text(dim) : "");
}

static hd_status make_span(walker *w, const hd_view *view, hd_span *span)
{
    const hd_type *type = &view->buffer->type;
    int64_t stride[HD_MAX_DIMS];
    int64_t next = 1;

    span->buffer = hd_buffer_root(view->buffer);
    span->offset = 0;
    span->ndims = 0;
    for (int i = type->ndims - 1; i >= 0; i--) {
        stride[i] = next;
        next *= room_of(w, view->buffer, i);
    }
    for (int i = 0; i < type->ndims; i++) {
        const hd_range *range = hd_view_range(view, i);
        int64_t index = 0;

        if (hd_view_picks(view, i)) {
            HD_TRY(pick_index(w, view, i, &index));
            span->offset += index * stride[i];
            continue;
        }
        span->extent[span->ndims] =
            hd_dim_is_sharded(type->dim[i]) ||
                    full_block(w, view->buffer, i) > 0
                ? room_of(w, view->buffer, i)
                : hd_module_extent(w->module, type->dim[i]);
        if (range != NULL)
            HD_TRY(keep_range(w, view, i, range, &index,
                              &span->extent[span->ndims]));
        span->stride[span->ndims++] = stride[i];
        span->offset += index * stride[i];
    }
    return HD_OK;
}

// ------------------------------------------------------------------ steps

static hd_status find_peer(walker *w, const hd_op *op, hd_key_code code,
                           bool self, int32_t *peer)
{
    const hd_key *key = hd_op_key(op, code);
    const hd_axis *axis = &w->module->axis[op->axis];
    int64_t coord;

    HD_TRY(is_split(w) && op->axis != w->split.line.axis
               ? evaluate_alike(w, key->expr, key->loc, &coord)
               : evaluate(w, key->expr, key->loc, &coord));
    if (coord < 0 || coord >= axis->size)
        return hd_error(w->diag, HD_E0604, key->loc,
                        "%s %lld on rank %lld; %s has coordinates 0 to %lld",
                        hd_key_info_get(code)->text, (long long)coord,
                        (long long)w->rank, axis->name,
                        (long long)axis->size - 1);
    if (!self && coord == w->env.coord[op->axis])
        return hd_error(w->diag, HD_E0604, key->loc,
                        "rank %lld names itself here (%s is %lld)",
                        (long long)w->rank, axis->name, (long long)coord);
    if (is_split(w) && op->axis == w->split.line.axis) {
        if (code != HD_KEY_ROOT)
            HD_TRY(turn_back(w, key->expr, &coord));
        else
            coord = (coord + axis->size - w->env.coord[op->axis]) % axis->size;
    }
    *peer = (int32_t)hd_mesh_peer(w->module, w->rank, op->axis, coord);
    return HD_OK;
}

static hd_status measure_range(walker *w, const hd_view *view, int d,
                               const hd_range *range, hd_view_terms *out)
{
    hd_dim dim = view->buffer->type.dim[d];
    int64_t block = -1, low, past;

    if (range->block != HD_EXPR_NONE &&
        (hd_dim_is_sized(dim) || dim.extent % range->blocks != 0))
        HD_TRY(evaluate_alike(w, range->block, view->loc, &block));
    if (hd_view_has_sized(view, d)) {
        out->of[out->n++] = hd_dim_terms_of(dim, block, range->blocks);
        return HD_OK;
    }
    HD_TRY(evaluate(w, range->low, view->loc, &low));
    HD_TRY(evaluate(w, range->past, view->loc, &past));
    out->elements *= past - low;
    return HD_OK;
}

static hd_status measure_view(walker *w, const hd_view *view,
                              hd_view_terms *out)
{
    *out = (hd_view_terms){.elements = 1};
    for (int d = 0; d < view->buffer->type.ndims; d++) {
        hd_dim dim = view->buffer->type.dim[d];
        const hd_range *range = hd_view_range(view, d);

        if (hd_view_picks(view, d))
            continue;
        if (range != NULL)
            HD_TRY(measure_range(w, view, d, range, out));
        else if (is_split(w) && hd_dim_is_sharded(dim) && hd_dim_is_sized(dim))
            return HD_ERROR_INVALID; // of each rank as many as it has
        else if (hd_dim_is_sized(dim))
            out->of[out->n++] = hd_dim_terms_of(dim, -1, 0);
        else
            out->elements *= hd_dim_local(dim);
    }
    return HD_OK;
}

// What a root names twice is as long, also where it depends on the rank.
static hd_status check_sides(walker *w, const hd_step *step)
{
    const hd_op *op = step->op;
    hd_view_terms to, from;
    int64_t out, in;

    if (step->peer != w->rank || op->noutputs + op->ninputs < 2)
        return HD_OK;
    HD_TRY(measure_view(w, &op->view[0], &to));
    HD_TRY(measure_view(w, &op->view[1], &from));
    if (hd_view_same_terms(&to, &from))
        return HD_OK;
    out = hd_span_elements(&step->span[0]);
    in = hd_span_elements(&step->span[1]);
    if (out == in)
        return hd_error(w->diag, HD_E0606, op->loc,
                        "rank %lld is the root here, and its operand is not as "
                        "long as its result in every run",
                        (long long)w->rank);
    return hd_error(w->diag, HD_E0606, op->loc,
                    "rank %lld is the root here, and its operand has %lld "
                    "element%s where its result has %lld",
                    (long long)w->rank, (long long)in, in == 1 ? "" : "s",
                    (long long)out);
}

// The root of a broadcast sends and the others receive, of a reduce the other
// way round.
static hd_status check_root(walker *w, const hd_step *step)
{
    const hd_op *op = step->op;
    bool root = step->peer == w->rank;
    bool spreads = hd_op_fold(op) == HD_FOLD_NONE;

    if ((root == spreads ? op->ninputs : op->noutputs) == 1)
        return is_rooted_along(w, op) ? HD_OK // what all ranks move is measured
                                      : check_sides(w, step);
    return hd_error(w->diag, HD_E0606, op->loc,
                    "rank %lld is %sthe root here and names nothing to %s",
                    (long long)w->rank, root ? "" : "not ",
                    root && spreads ? "send" : "receive into");
}

// Peers differ from the rank in the coordinate along the axis alone.
static int64_t peer_of(const walker *w, const hd_step *step)
{
    int axis = step->op->axis;

    return w->first_peer[axis] + hd_mesh_coord(w->module, step->peer, axis);
}

// What a root names twice is as long, and what all ranks move.
static hd_status measure_rooted(walker *w, const hd_step *step, bool first,
                                hd_view_terms *out)
{
    const hd_op *op = step->op;
    hd_view_terms one;

    for (int i = 0; i < op->noutputs + op->ninputs; i++) {
        if (!hd_step_touches(step, i))
            continue;
        HD_TRY(measure_view(w, &op->view[i], &one));
        if (!first && !hd_view_same_terms(out, &one))
            return HD_ERROR_INVALID;
        *out = one;
        first = false;
    }
    return HD_OK;
}

// Ranks that issue a collective in steps of their own, which follow each other.
static hd_status number_opened(walker *w, hd_step *step)
{
    opened *o = &w->split.opened;
    bool first = o->op == NULL;
    int64_t size = w->split.line.size, root = -1;

    if (step->peer >= 0)
        root = (hd_mesh_coord(w->module, step->peer, step->op->axis) +
                w->env.coord[step->op->axis]) %
               size;
    if (o->op == NULL)
        *o = (opened){.op = step->op,
                      .root = root,
                      .next = w->nsteps,
                      .seq = w->collectives[step->op->axis]++,
                      .stream = step->stream,
                      .group = step->group};
    if (o->op->code != step->op->code || o->root != root ||
        o->stream != step->stream || o->group != step->group ||
        o->next != w->nsteps || hd_arc_meets(o->arc, w->split.arc, size) ||
        !hd_arc_join(o->arc, w->split.arc, size, &o->arc))
        return HD_ERROR_INVALID;
    if (hd_op_is_rooted(step->op))
        HD_TRY(measure_rooted(w, step, first, &o->moved));
    o->next++;
    step->seq = o->seq;
    if (o->arc.n == size)
        o->op = NULL;
    return HD_OK;
}

static hd_status number_transfer(walker *w, hd_step *step)
{
    const hd_op *op = step->op;

    switch (hd_op_move(op)) {
    case HD_MOVE_SEND:
        HD_TRY(find_peer(w, op, HD_KEY_TO, false, &step->peer));
        step->seq = w->sent[peer_of(w, step)]++;
        return HD_OK;
    case HD_MOVE_RECV:
        HD_TRY(find_peer(w, op, HD_KEY_FROM, false, &step->peer));
        step->seq = w->received[peer_of(w, step)]++;
        return HD_OK;
    case HD_MOVE_BROADCAST:
    case HD_MOVE_REDUCE:
        HD_TRY(find_peer(w, op, HD_KEY_ROOT, true, &step->peer));
        HD_TRY(check_root(w, step));
        break;
    case HD_MOVE_ALL_GATHER:
    case HD_MOVE_REDUCE_SCATTER:
    case HD_MOVE_ALL_REDUCE:
    case HD_MOVE_ALL_TO_ALL:
    case HD_MOVE_NONE:
        break;
    }
    if (is_split(w) && op->axis == w->split.line.axis)
        return number_opened(w, step);
    step->seq = w->collectives[op->axis]++;
    return HD_OK;
}

static hd_status find_recorded(walker *w, const hd_span *span, hd_record **out)
{
    int id = span->buffer->id;

    if (w->recorded[id] == NULL) {
        int64_t n = hd_type_local_elements(&span->buffer->type);

        if (n > MAX_EVENTS)
            return hd_error(w->diag, HD_E0607, span->buffer->loc,
                            "%lld events; the limit is %d", (long long)n,
                            MAX_EVENTS);
        w->recorded[id] = calloc((size_t)n, sizeof *w->recorded[id]);
        if (w->recorded[id] == NULL)
            return hd_fail(w->diag, HD_ERROR_NO_MEMORY, "out of memory");
        if (is_split(w))
            HD_TRY(hd_clear_array(n, sizeof **w->split.recorded, w->diag,
                                  (void **)&w->split.recorded[id]));
    }
    *out = &w->recorded[id][span->offset];
    return HD_OK;
}

// The first op of the block that records the event; NULL if there is none.
static const hd_op *find_record(const hd_block *block, const hd_buffer *event)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        int n = s->kind == HD_STMT_OP ? s->op->nviews : 0;
        const hd_op *found;

        for (int i = 0; i < n; i++)
            if (hd_op_access(s->op, i) == HD_ACCESS_RECORD &&
                hd_buffer_root(s->op->view[i].buffer) == event)
                return s->op;
        found = find_record(&s->body, event);
        if (found == NULL)
            found = find_record(&s->otherwise, event);
        if (found != NULL)
            return found;
    }
    return NULL;
}

static hd_status report_unrecorded(const walker *w, const hd_step *step, int i)
{
    const hd_buffer *event = step->span[i].buffer;
    const hd_op *record = find_record(&w->module->body, event);
    hd_text name = {0};
    hd_status status;

    hd_span_print(w->module, w->rank, &step->op->view[i], &step->span[i],
                  &name);
    status = hd_error(w->diag, HD_E0605, step->op->loc,
                      "rank %lld waits for %s, which nothing before records",
                      (long long)w->rank,
                      name.bytes != NULL ? name.bytes : event->name);
    hd_text_free(&name);
    if (record != NULL)
        hd_note(w->diag, record->loc, "events of %%%s are recorded here",
                event->name);
    return status;
}

// All ranks that wait do so for one record, the last one of each.
static hd_status resolve_along(const walker *w, const hd_span *span,
                               hd_access access)
{
    hd_arc *arc;

    if (!is_split(w))
        return HD_OK;
    arc = &w->split.recorded[span->buffer->id][span->offset];
    if (access == HD_ACCESS_RECORD)
        *arc = w->split.arc;
    else if (arc->n > 0 &&
             !hd_arc_within(w->split.arc, *arc, w->split.line.size))
        return HD_ERROR_INVALID;
    return HD_OK;
}

static hd_status resolve_events(walker *w, hd_step *step)
{
    hd_record *last = NULL;

    for (int i = 0; i < step->op->nviews; i++) {
        hd_access access = hd_op_access(step->op, i);

        if (access != HD_ACCESS_RECORD && access != HD_ACCESS_WAIT)
            continue;
        HD_TRY(find_recorded(w, &step->span[i], &last));
        HD_TRY(resolve_along(w, &step->span[i], access));
        if (access == HD_ACCESS_RECORD)
            *last = (hd_record){step->index + 1, i};
        else if (last->step == 0 && step->span[i].buffer->role != HD_ROLE_IN &&
                 step->span[i].buffer->role != HD_ROLE_INOUT)
            return report_unrecorded(w, step, i);
        else
            w->awaited[i] = (hd_record){last->step - 1, last->view};
    }
    if (step->op->code == HD_OP_WAIT)
        step->record = w->awaited;
    return HD_OK;
}

static hd_status reserve_member(walker *w)
{
    int64_t n = w->nmembers + 1, room = w->spans_room;

    HD_TRY(hd_grow((void **)&w->member, &w->members_room, n, sizeof *w->member,
                   w->diag));
    HD_TRY(hd_grow((void **)&w->span, &w->spans_room, n * HD_MAX_VIEWS,
                   sizeof *w->span, w->diag));
    if (is_split(w))
        HD_TRY(hd_grow((void **)&w->split.member, &w->split.room, n,
                       sizeof *w->split.member, w->diag));
    for (int i = 0; i < w->nmembers && room < w->spans_room; i++) // moved
        w->member[i].span = &w->span[i * HD_MAX_VIEWS];
    return HD_OK;
}

static hd_status hand_over(const walker *w, const hd_step *steps,
                           const hd_arc *arc, int n)
{
    return w->full_fn != NULL
               ? w->full_fn(w->context, steps, is_split(w) ? arc : NULL, n)
               : w->fn(w->context, steps, n);
}

static hd_status flush(walker *w)
{
    int n = w->nmembers;

    w->nmembers = 0;
    return n == 0 ? HD_OK : hand_over(w, w->member, w->split.member, n);
}

static bool only_counts(const walker *w)
{
    return w->fn == NULL && w->full_fn == NULL;
}

// What is skipped counts, too: it takes time.
static hd_status check_steps(const walker *w, const hd_op *op)
{
    if (w->nsteps + w->nskipped + w->nunfilled < HD_MAX_STEPS)
        return HD_OK;
    return hd_error(w->diag, HD_E0607, op->loc,
                    "rank %lld has more than %lld steps", (long long)w->rank,
                    (long long)HD_MAX_STEPS);
}

// ------------------------------------------------------------ what is empty

static bool has_ranges(const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].range != NULL)
            return true;
    return false;
}

static bool is_point(const hd_op *op)
{
    return hd_op_move(op) == HD_MOVE_SEND || hd_op_move(op) == HD_MOVE_RECV;
}

// A dimension that is joined has to have something to join, and a collective
// that all ranks bring something to has something to move.
static hd_status report_empty(walker *w, const hd_op *op, const hd_view *view)
{
    int64_t low = 0, past = 1;

    for (int i = 0; i < view->nindex && low < past; i++) {
        const hd_range *range = hd_view_range(view, i);

        if (range == NULL)
            continue;
        HD_TRY(evaluate(w, range->low, view->loc, &low));
        HD_TRY(evaluate(w, range->past, view->loc, &past));
    }
    return hd_error(
        w->diag, HD_E0601, view->loc,
        "indices %lld..%lld of %%%s on rank %lld are none; %s "
        "takes at least one%s",
        (long long)low, (long long)past, view->buffer->name, (long long)w->rank,
        hd_op_info_get(op->code)->text,
        hd_op_is(op, HD_UNIT_TRANSFER) ? "" : " where its result is not empty");
}

// Whether an op does nothing if this view has no elements: it is what the op
// would write or move.
static bool does_nothing_without(const hd_op *op, int view)
{
    return is_point(op) || hd_op_is_rooted(op) ||
           (hd_op_is(op, HD_UNIT_COMPUTE) && !hd_op_is_batched(op) &&
            hd_op_access(op, view) != HD_ACCESS_READ);
}

// Whether the view has no elements, whatever a run says: what is issued does
// not depend on that.
static bool is_empty(const hd_view *view, const hd_span *span)
{
    const hd_type *type = &view->buffer->type;
    int kept = 0;

    for (int d = 0; d < type->ndims; d++)
        if (!hd_view_picks(view, d) && span->extent[kept++] == 0 &&
            !hd_view_has_sized(view, d))
            return true;
    return false;
}

// Without elements of a batch there is nothing in any view, but for operands
// that repeat; what else a view has, it has one of at least.
static bool is_all_empty(const hd_step *step)
{
    bool picks = hd_op_family(step->op) == HD_FAMILY_PICK;
    int n = picks ? step->op->nviews : step->op->noutputs;

    for (int i = 0; i < n; i++)
        if (!is_empty(&step->op->view[i], &step->span[i]))
            return false;
    return true;
}

// How many indices of a view's range ranks that are walked at once have, at
// least and at most: of a block that counts as full some may have none.
static hd_status count_along(const walker *w, const hd_range *range,
                             int64_t *least, int64_t *most)
{
    hd_along low, past;

    HD_TRY(evaluate_along(w, range->low, &low));
    HD_TRY(evaluate_along(w, range->past, &past));
    hd_along_gap(&low, &past, least, most);
    return HD_OK;
}

static bool counts_as_full(const walker *w, const hd_view *view, int i)
{
    const hd_range *range = hd_view_range(view, i);

    return range != NULL && range->block != HD_EXPR_NONE &&
           full_block(w, view->buffer, i) > 0 && !hd_view_has_sized(view, i);
}

// Where an operand has no elements, whether the results have none on any rank.
static hd_status has_no_result(const walker *w, const hd_op *op, bool *none)
{
    int64_t least, most;

    for (int i = 0; i < op->noutputs && is_split(w); i++)
        for (int d = 0; d < op->view[i].nindex && !*none; d++) {
            if (!does_nothing_without(op, i) ||
                !counts_as_full(w, &op->view[i], d))
                continue;
            HD_TRY(
                count_along(w, hd_view_range(&op->view[i], d), &least, &most));
            *none = most <= 0;
        }
    return HD_OK;
}

static bool has_full_result(const walker *w, const hd_op *op)
{
    for (int i = 0; i < op->noutputs; i++)
        for (int d = 0; d < op->view[i].nindex; d++)
            if (counts_as_full(w, &op->view[i], d))
                return true;
    return false;
}

// Ranks that have results have operands. Where both are blocks that count as
// full they lack both.
static hd_status check_operands(const walker *w, const hd_op *op)
{
    int64_t least, most;

    if (!is_split(w) || hd_op_is(op, HD_UNIT_TRANSFER) ||
        has_full_result(w, op))
        return HD_OK;
    for (int i = op->noutputs; i < op->noutputs + op->ninputs; i++)
        for (int d = 0; d < op->view[i].nindex; d++) {
            if (!counts_as_full(w, &op->view[i], d))
                continue;
            HD_TRY(
                count_along(w, hd_view_range(&op->view[i], d), &least, &most));
            if (least <= 0)
                return HD_ERROR_INVALID;
        }
    return HD_OK;
}

// Whether none of the ranks has any of what it would send or receive, though
// its block counts as full.
static hd_status have_none(const walker *w, const hd_op *op, bool *none)
{
    const hd_view *view = &op->view[0];
    int64_t least, most;

    for (int d = 0; d < view->nindex && !*none; d++) {
        if (!counts_as_full(w, view, d) ||
            w->full->of[view->buffer->id].axes[d] != 1 << w->split.line.axis)
            continue;
        HD_TRY(count_along(w, hd_view_range(view, d), &least, &most));
        *none = most <= 0;
    }
    return HD_OK;
}

static hd_status find_empty(walker *w, const hd_step *step, bool *empty)
{
    const hd_op *op = step->op;

    *empty = hd_op_is_batched(op) && is_all_empty(step);
    if (is_split(w) && is_point(op))
        HD_TRY(have_none(w, op, empty));
    if (*empty)
        return HD_OK;
    for (int i = 0; i < op->nviews; i++) {
        if (!is_empty(&op->view[i], &step->span[i]) ||
            !hd_step_touches(step, i))
            continue;
        if (does_nothing_without(op, i)) {
            *empty = true;
            return HD_OK;
        }
        HD_TRY(has_no_result(w, op, empty));
        return *empty ? HD_OK : report_empty(w, op, &op->view[i]);
    }
    return check_operands(w, op);
}

static hd_step start_step(const walker *w, const hd_op *op)
{
    return (hd_step){.op = op,
                     .rank = (int32_t)w->rank,
                     .index = (int32_t)w->nsteps,
                     .stream = (int8_t)w->stream,
                     .group = w->grouping ? w->ngroups : 0,
                     .launch = w->launch,
                     .span = &w->span[w->nmembers * HD_MAX_VIEWS],
                     .peer = -1};
}

// Puts a step before the members of the group so far.
static hd_status shift_members(walker *w)
{
    for (int m = 0; m < w->nmembers; m++) {
        hd_step *step = &w->member[m];
        int done = hd_op_key_view(step->op, HD_KEY_DONE);
        hd_record *last;

        if (done >= 0) {
            HD_TRY(find_recorded(w, &step->span[done], &last));
            last->step += last->step == step->index + 1;
        }
        step->index++;
    }
    return HD_OK;
}

// What a send that sends nothing leaves of its `done`: the event is recorded
// ahead of the group, since nothing of the group stands before it. A member
// that records the same event does so after it.
static hd_status record_done(walker *w, const hd_step *send)
{
    int done = hd_op_key_view(send->op, HD_KEY_DONE);
    const hd_buffer *event = send->op->view[done].buffer;
    hd_span span = send->span[done];
    hd_step step = start_step(w, event->record);
    hd_record *last;

    w->nsteps++;
    if (only_counts(w))
        return HD_OK;
    step.index -= w->nmembers;
    step.group = 0;
    step.span = &span;
    HD_TRY(shift_members(w));
    HD_TRY(find_recorded(w, &span, &last));
    if (last->step <= step.index) {
        *last = (hd_record){step.index + 1, 0};
        HD_TRY(resolve_along(w, &span, HD_ACCESS_RECORD));
    }
    return hand_over(w, &step, &w->split.arc, 1);
}

// What ranks have of a collective that is not issued is compared by nobody but
// where it has a root.
static hd_status skip_step(walker *w, const hd_step *step)
{
    if (is_split(w) && w->split.arc.n < w->split.line.size &&
        hd_op_is(step->op, HD_UNIT_TRANSFER) && !is_point(step->op) &&
        !is_rooted_along(w, step->op))
        return HD_ERROR_INVALID;
    w->nskipped++;
    if (w->empty != NULL && hd_op_is(step->op, HD_UNIT_TRANSFER))
        HD_TRY(w->empty(w->context, step, 1));
    if (is_split(w) && is_point(step->op))
        HD_TRY(w->full_empty(w->context, step, &w->split.arc, 1));
    return hd_op_key(step->op, HD_KEY_DONE) != NULL ? record_done(w, step)
                                                    : HD_OK;
}

// Of the rows, or of the keys, the halves that see and are seen.
static void keep_half(const hd_step *step, hd_span *span, bool of_keys,
                      bool second)
{
    for (int i = 0; i < step->op->noutputs + step->op->ninputs; i++) {
        int line = hd_op_batch(step->op, i, span[i].ndims) + 1;

        if (hd_op_has_keys(step->op, i) != of_keys)
            continue;
        span[i].extent[line] /= 2;
        if (second)
            span[i].offset += span[i].extent[line] * span[i].stride[line];
    }
}

static hd_status report_left_out(walker *w, const hd_key *key, const char *what,
                                 int64_t offset)
{
    return hd_error(w->diag, HD_E0609, key->loc,
                    "zigzag %lld on rank %lld: %s, which nothing makes without "
                    "'accumulate'",
                    (long long)offset, (long long)w->rank, what);
}

static hd_status check_halves(walker *w, const hd_step *step, const hd_key *key,
                              int64_t offset)
{
    if (hd_op_access(step->op, 0) == HD_ACCESS_UPDATE)
        return HD_OK;
    if (offset < 0)
        return report_left_out(w, key, "the first half of the rows sees no key",
                               offset);
    if (offset > 0 && hd_op_attend(step->op) != HD_ATTEND_ATTENTION)
        return report_left_out(
            w, key, "no row sees the second half of the keys", offset);
    return HD_OK;
}

// A let that was walked comes behind those that it may use.
static void list_let(walker *w, const hd_stmt *stmt)
{
    if (w->let == NULL || w->is_listed[stmt->var])
        return;
    w->is_listed[stmt->var] = true;
    w->let[w->nlets++] = stmt;
}

// What lets are where the coordinates are now.
static hd_status follow_lets(walker *w)
{
    for (int i = 0; i < w->nlets; i++)
        HD_TRY(evaluate(w, w->let[i]->a, w->let[i]->loc,
                        &w->vars[w->let[i]->var]));
    return HD_OK;
}

// Whether a key, or a let, names the coordinate.
static bool names_axis(const walker *w, const hd_key *key, int axis)
{
    bool names = hd_expr_uses_coord(w->module, key->expr, axis);

    for (int i = 0; i < w->nlets && !names; i++)
        names = hd_expr_uses_coord(w->module, w->let[i]->a, axis);
    return names;
}

// The next rank that this one stands for, of those that differ along `axes`;
// the last one is itself.
static bool turn(walker *w, unsigned axes)
{
    for (int a = 0; a < w->module->naxes; a++) {
        if ((axes >> a & 1) == 0)
            continue;
        w->env.coord[a] = (w->env.coord[a] + 1) % w->module->axis[a].size;
        if (w->env.coord[a] != hd_mesh_coord(w->module, w->rank, a))
            return true;
    }
    return false;
}

// What is wrong below zero, or above, is so at the ends.
static hd_status check_halves_along(walker *w, const hd_step *step,
                                    const hd_key *key, unsigned axes)
{
    int64_t least, most;

    if ((axes & ~(1u << w->split.line.axis)) != 0)
        return HD_ERROR_INVALID;
    HD_TRY(bound_along(w, key->expr, &least, &most));
    HD_TRY(check_halves(w, step, key, least));
    return check_halves(w, step, key, most);
}

// Of all ranks that this one stands for.
static hd_status check_all_halves(walker *w, const hd_step *step,
                                  const hd_key *key)
{
    int64_t offset;
    unsigned axes = 0;
    bool more;

    if (hd_op_access(step->op, 0) == HD_ACCESS_UPDATE)
        return HD_OK;
    for (int a = 0; a < w->module->naxes; a++)
        if (w->full->turns[a] && names_axis(w, key, a))
            axes |= 1u << a;
    if (is_split(w))
        return check_halves_along(w, step, key, axes);
    do {
        w->nturned += 1 + w->nlets;
        if (w->nturned > MOST_TURNED)
            return HD_ERROR_INVALID; // all ranks are walked then
        more = turn(w, axes);
        HD_TRY(follow_lets(w));
        HD_TRY(evaluate(w, key->expr, key->loc, &offset));
        HD_TRY(check_halves(w, step, key, offset));
    } while (more);
    return HD_OK;
}

// The second half of rows before the keys, or the first half of keys before the
// rows, is all that there is to do.
static hd_status take_halves(walker *w, hd_step *step, const hd_key *key,
                             int64_t offset)
{
    step->causal = offset == 0 ? 0 : HD_SEES_ALL;
    HD_TRY(check_halves(w, step, key, offset));
    if (offset != 0)
        keep_half(step, &w->span[w->nmembers * HD_MAX_VIEWS], offset > 0,
                  offset < 0);
    return HD_OK;
}

// A number of rows or indices that ranks have each their own of.
static hd_status bound_places(const walker *w, hd_expr expr, int64_t *least,
                              int64_t *most)
{
    return hd_expr_uses_size(w->module, expr)
               ? HD_ERROR_INVALID
               : bound_along(w, expr, least, most);
}

// Where its rows and keys are among those of all sequences.
static hd_status place_among(walker *w, hd_step *step)
{
    const hd_op *op = step->op;
    int64_t value, least, most;

    if (!hd_op_has_sequences(op))
        return HD_OK;
    for (int i = 0; i < op->nkeys; i++) {
        const hd_key *key = &op->key[i];

        if (!hd_causal_is_among(key->code))
            continue;
        HD_TRY(evaluate_key(w, key, &value));
        if (is_split(w)) {
            HD_TRY(bound_places(w, key->expr, &least, &most));
            if (least < 0 || most > HD_MAX_AMONG)
                return HD_ERROR_INVALID;
        }
        if (!hd_causal_fits_among(w->module, key, &w->env))
            return hd_error(w->diag, HD_E0601, key->loc,
                            "%s %lld on rank %lld: rows of sequences are "
                            "counted from 0, and fewer than 2^31",
                            hd_key_info_get(key->code)->text, (long long)value,
                            (long long)w->rank);
    }
    (void)hd_causal_among(w->module, op, &w->env, &w->attended.among);
    step->attended = &w->attended;
    return HD_OK;
}

static hd_status place_rows(walker *w, hd_step *step)
{
    const hd_key *key = hd_causal_key(step->op);
    int64_t offset;

    step->causal = HD_SEES_ALL;
    if (key == NULL)
        return HD_OK;
    HD_TRY(evaluate_key(w, key, &offset));
    if (w->full != NULL && w->full->masks)
        return key->code == HD_KEY_ZIGZAG ? check_all_halves(w, step, key)
                                          : HD_OK;
    if (key->code == HD_KEY_ZIGZAG)
        return take_halves(w, step, key, offset);
    step->causal = hd_causal_of(offset);
    step->varies = hd_expr_uses_size(w->module, key->expr);
    return HD_OK;
}

// Where what an op has of a dimension begins in the whole's.
static hd_status place_indices(walker *w, hd_step *step)
{
    const hd_op *op = step->op;
    const hd_key *key = hd_op_key(op, HD_KEY_START);
    int i = hd_op_family(op) == HD_FAMILY_TAKE ? op->noutputs : 0;
    int64_t n = step->span[i].extent[hd_op_dim(op)], start = 0, least, most;

    if (key != NULL)
        HD_TRY(evaluate(w, key->expr, key->loc, &start));
    if (!hd_op_may_start(start, n))
        return hd_error(w->diag, HD_E0601,
                        key != NULL ? key->loc : op->view[i].loc,
                        "%s of %lld indices from %lld on, on rank %lld; an "
                        "index is 0 to %d",
                        hd_op_info_get(op->code)->text, (long long)n,
                        (long long)start, (long long)w->rank, INT32_MAX);
    step->start = (int32_t)start;
    if (!is_split(w) || key == NULL)
        return HD_OK;
    HD_TRY(bound_places(w, key->expr, &least, &most));
    return hd_op_may_start(least, n) && hd_op_may_start(most, n)
               ? HD_OK
               : HD_ERROR_INVALID;
}

// Whether a run says how many rows or keys there are.
static bool has_sized_lines(const hd_op *op)
{
    const hd_view *q = &op->view[op->noutputs];

    return hd_dim_is_sized(hd_causal_line(&q[0])) ||
           hd_dim_is_sized(hd_causal_line(&q[1]));
}

// What rows see, where no run says how many of both there are, or where.
static bool find_sight(const hd_step *step, hd_sight *out)
{
    *out = hd_sight_of(step);
    return step->causal != HD_SEES_ALL && !step->varies &&
           !has_sized_lines(step->op);
}

// Where no row is kept from any key there is no mask.
static void unmask_rows(hd_step *step)
{
    hd_sight sight;

    if (find_sight(step, &sight) && hd_sight_is_whole(&sight))
        step->causal = HD_SEES_ALL;
}

// Of keys that no row sees nothing is added to what rows have of others.
static bool adds_nothing(const hd_step *step)
{
    hd_sight sight;
    int64_t least, past;

    if (hd_op_access(step->op, 0) != HD_ACCESS_UPDATE ||
        !find_sight(step, &sight))
        return false;
    hd_sight_range(&sight, &least, &past);
    return step->causal < least || step->causal >= past;
}

// Which ranks of the line see a key; the others leave the step out. Where some
// have fewer rows or keys they see no more than with all of them.
static hd_status find_seeing(const walker *w, const hd_step *step, hd_arc *arc)
{
    const hd_key *key = hd_causal_key(step->op);
    hd_along offset;
    hd_arcs seeing, others;
    hd_sight sight;
    int64_t least, past;

    if (key == NULL || key->code != HD_KEY_CAUSAL ||
        hd_op_access(step->op, 0) != HD_ACCESS_UPDATE ||
        has_sized_lines(step->op) || hd_expr_uses_size(w->module, key->expr))
        return HD_OK;
    for (int a = 0; a < w->module->naxes; a++)
        if (a != w->split.line.axis && w->full->turns[a] &&
            names_axis(w, key, a))
            return HD_ERROR_INVALID; // the rank stands for others there
    sight = hd_sight_of(step);
    hd_sight_range(&sight, &least, &past);
    HD_TRY(evaluate_along(w, key->expr, &offset));
    if (!hd_along_within(&offset, least, past, *arc, w->split.line.size,
                         &seeing, &others) ||
        seeing.n > 1)
        return HD_ERROR_INVALID;
    *arc = seeing.n == 1 ? seeing.of[0] : (hd_arc){0};
    return HD_OK;
}

// Whether values decide if a step is issued.
static bool may_be_left_out(const hd_op *op)
{
    return has_ranges(op) || hd_causal_key(op) != NULL;
}

// Whether the next step is one, but for what it fills.
static bool count_step(walker *w, uint8_t zeros)
{
    bool fills = zeros == HD_ZEROS_NO_STEP;

    w->nunfilled += fills;
    w->nsteps += !fills;
    return !fills;
}

static hd_status walk_step(walker *w, const hd_op *op)
{
    bool counts = only_counts(w), empty;
    uint8_t zeros = hd_zeros_at(&w->zeros, w->nsteps + w->nunfilled);
    hd_arc arc = w->split.arc;
    hd_step *step;

    HD_TRY(check_steps(w, op));
    if (counts && !may_be_left_out(op)) {
        count_step(w, zeros);
        return HD_OK;
    }
    HD_TRY(reserve_member(w));
    step = &w->member[w->nmembers];
    *step = start_step(w, op);
    for (int i = 0; i < op->nviews; i++)
        HD_TRY(make_span(w, &op->view[i],
                         &w->span[w->nmembers * HD_MAX_VIEWS + i]));
    if (hd_op_is(op, HD_UNIT_TRANSFER))
        HD_TRY(number_transfer(w, step));
    if (hd_op_family(op) == HD_FAMILY_ATTEND) {
        HD_TRY(place_rows(w, step));
        HD_TRY(place_among(w, step));
    }
    HD_TRY(find_empty(w, step, &empty));
    if (is_rooted_along(w, op)) {
        empty = w->split.opened.moved.elements == 0;
        w->split.opened.next -= empty;
    }
    if (is_split(w) && hd_op_family(op) == HD_FAMILY_ATTEND)
        HD_TRY(find_seeing(w, step, &arc));
    if (empty || (is_split(w) && arc.n == 0) ||
        (hd_op_family(op) == HD_FAMILY_ATTEND && adds_nothing(step)))
        return skip_step(w, step);
    if (hd_op_family(op) == HD_FAMILY_TAKE ||
        hd_op_family(op) == HD_FAMILY_IOTA)
        HD_TRY(place_indices(w, step));
    if (!count_step(w, zeros) || counts)
        return HD_OK;
    step->stores = zeros;
    if (hd_op_family(op) == HD_FAMILY_ATTEND)
        unmask_rows(step);
    HD_TRY(resolve_events(w, step));
    if (is_split(w))
        w->split.member[w->nmembers] = arc;
    w->nmembers++;
    return w->grouping ? HD_OK : flush(w);
}

// The first ranks of an arc, of which the expression is one number.
static hd_status keep_alike(const walker *w, hd_expr expr, hd_arc *arc)
{
    hd_along along;
    int64_t n;

    if (hd_expr_is_const(w->module, expr))
        return HD_OK;
    if (!hd_along_eval(&w->split.line, expr, *arc, &along))
        return HD_ERROR_INVALID;
    n = hd_along_alike(&along);
    arc->n = n < arc->n ? (int32_t)n : arc->n;
    return HD_OK;
}

static hd_status keep_range_alike(const walker *w, const hd_view *view, int i,
                                  const hd_range *range, hd_arc *arc)
{
    if (range->block != HD_EXPR_NONE && !turns_along(w, view->buffer, i) &&
        !hd_dim_is_sharded(view->buffer->type.dim[i]))
        HD_TRY(keep_alike(w, range->block, arc));
    if (range->block != HD_EXPR_NONE && full_block(w, view->buffer, i) > 0)
        return HD_OK;
    HD_TRY(keep_alike(w, range->low, arc));
    return keep_alike(w, range->past, arc);
}

// The first ranks of an arc that have the same of a view, but for what turns.
static hd_status keep_view_alike(const walker *w, const hd_view *view,
                                 hd_arc *arc)
{
    for (int i = 0; i < view->nindex; i++) {
        const hd_range *range = hd_view_range(view, i);

        if (range != NULL)
            HD_TRY(keep_range_alike(w, view, i, range, arc));
        else if (hd_view_picks(view, i) && !turns_along(w, view->buffer, i) &&
                 !hd_dim_is_sharded(view->buffer->type.dim[i]))
            HD_TRY(keep_alike(w, view->index[i], arc));
    }
    return HD_OK;
}

// Ranks with other indices, which do not turn, have other steps.
static hd_status walk_alike(walker *w, const hd_op *op)
{
    hd_arc outer = w->split.arc, left = outer;
    bool apart = w->full->apart && is_point(op);

    while (left.n > 0) {
        hd_arc arc = apart ? hd_arc_of(left.first, 1) : left;

        for (int i = 0; i < op->nviews; i++)
            HD_TRY(keep_view_alike(w, &op->view[i], &arc));
        if (arc.n < left.n && ++w->split.ncut > MOST_CUT)
            return HD_ERROR_INVALID;
        if (arc.n < outer.n)
            come_to(w, arc);
        HD_TRY(walk_step(w, op));
        left = hd_arc_of((left.first + arc.n) % w->split.line.size,
                         left.n - arc.n);
    }
    come_to(w, outer);
    return HD_OK;
}

// The root does another step than the others.
static hd_status walk_rooted(walker *w, const hd_op *op)
{
    const hd_key *key = hd_op_key(op, HD_KEY_ROOT);
    hd_arc outer = w->split.arc;
    hd_along self = hd_along_coords(outer, w->split.line.size);
    hd_arcs part[2];
    int64_t root;

    HD_TRY(evaluate_alike(w, key->expr, key->loc, &root));
    if (!hd_along_within(&self, root, root + 1, outer, w->split.line.size,
                         &part[0], &part[1]))
        return HD_ERROR_INVALID;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < part[k].n; i++) {
            come_to(w, part[k].of[i]);
            HD_TRY(walk_alike(w, op));
        }
    come_to(w, outer);
    return HD_OK;
}

static hd_status walk_op(walker *w, const hd_op *op)
{
    if (!is_split(w))
        return walk_step(w, op);
    return is_rooted_along(w, op) ? walk_rooted(w, op) : walk_alike(w, op);
}

// ------------------------------------------------------------- statements

static hd_status walk_block(walker *w, const hd_block *block);

static hd_status walk_arcs(walker *w, const hd_arcs *arcs,
                           const hd_block *block)
{
    hd_arc outer = w->split.arc;

    for (int i = 0; i < arcs->n; i++) {
        come_to(w, arcs->of[i]);
        HD_TRY(walk_block(w, block));
    }
    come_to(w, outer);
    return HD_OK;
}

static hd_status walk_iteration(walker *w, const hd_stmt *stmt, int64_t i,
                                const hd_arcs *arcs)
{
    int64_t before = w->nsteps;

    if (++w->niterations > HD_MAX_ITERATIONS)
        return hd_error(w->diag, HD_E0607, stmt->loc,
                        "rank %lld makes more than %lld loop iterations",
                        (long long)w->rank, (long long)HD_MAX_ITERATIONS);
    w->vars[stmt->var] = i;
    HD_TRY(arcs != NULL ? walk_arcs(w, arcs, &stmt->body)
                        : walk_block(w, &stmt->body));
    w->nidle += w->nsteps == before;
    return HD_OK;
}

static hd_status walk_for(walker *w, const hd_stmt *stmt)
{
    int64_t first, last;

    HD_TRY(evaluate(w, stmt->a, stmt->loc, &first));
    HD_TRY(evaluate(w, stmt->b, stmt->loc, &last));
    for (int64_t i = first; i < last; i++)
        HD_TRY(walk_iteration(w, stmt, i, NULL));
    return HD_OK;
}

// Each iteration by the ranks that make it.
static hd_status walk_for_along(walker *w, const hd_stmt *stmt)
{
    int64_t size = w->split.line.size, first, last, other;
    hd_along from, to;
    hd_arcs in, out;

    HD_TRY(evaluate_along(w, stmt->a, &from));
    HD_TRY(evaluate_along(w, stmt->b, &to));
    hd_along_bounds(&from, &first, &other);
    hd_along_bounds(&to, &other, &last);
    if (first < INT32_MIN || last > INT32_MAX || last - first > MOST_TURNED)
        return HD_ERROR_INVALID;
    for (int64_t i = first; i < last; i++) {
        if (!hd_along_between(&from, &to, i, w->split.arc, size, &in, &out))
            return HD_ERROR_INVALID;
        HD_TRY(walk_iteration(w, stmt, i, &in));
    }
    return HD_OK;
}

static hd_status walk_if_along(walker *w, const hd_stmt *stmt)
{
    hd_along value;
    hd_arcs zero, others;

    HD_TRY(evaluate_along(w, stmt->a, &value));
    if (!hd_along_within(&value, 0, 1, w->split.arc, w->split.line.size, &zero,
                         &others))
        return HD_ERROR_INVALID;
    HD_TRY(walk_arcs(w, &others, &stmt->body));
    return walk_arcs(w, &zero, &stmt->otherwise);
}

static hd_status walk_let(walker *w, const hd_stmt *stmt)
{
    list_let(w, stmt);
    if (is_split(w))
        HD_TRY(evaluate_along(w, stmt->a, &w->split.let[stmt->var]));
    return evaluate(w, stmt->a, stmt->loc, &w->vars[stmt->var]);
}

static hd_status walk_on(walker *w, const hd_stmt *stmt)
{
    int outer = w->stream;
    int64_t stream;
    hd_status status;

    HD_TRY(evaluate_alike(w, stmt->a, stmt->loc, &stream));
    if (stream < 0 || stream >= w->module->streams)
        return hd_error(w->diag, HD_E0603, stmt->loc,
                        "stream %lld on rank %lld; the program has streams 0 "
                        "to %lld",
                        (long long)stream, (long long)w->rank,
                        (long long)w->module->streams - 1);
    w->stream = (int)stream;
    status = walk_block(w, &stmt->body);
    w->stream = outer;
    return status;
}

static hd_status walk_group(walker *w, const hd_stmt *stmt)
{
    w->grouping = true;
    w->ngroups++;
    HD_TRY(walk_block(w, &stmt->body));
    w->grouping = false;
    return flush(w);
}

static hd_status walk_launch(walker *w, const hd_stmt *stmt)
{
    int64_t before = w->nsteps;
    hd_status status;

    w->launch = w->launched == 1 ? 2 : 1;
    status = walk_block(w, &stmt->body);
    if (w->nsteps > before)
        w->launched = w->launch;
    w->launch = 0;
    return status;
}

static hd_status walk_stmt(walker *w, const hd_stmt *stmt)
{
    int64_t value;

    switch (stmt->kind) {
    case HD_STMT_OP:
        return walk_op(w, stmt->op);
    case HD_STMT_LET:
        return walk_let(w, stmt);
    case HD_STMT_FOR:
        return is_split(w) ? walk_for_along(w, stmt) : walk_for(w, stmt);
    case HD_STMT_IF:
        if (is_split(w))
            return walk_if_along(w, stmt);
        HD_TRY(evaluate(w, stmt->a, stmt->loc, &value));
        return walk_block(w, value != 0 ? &stmt->body : &stmt->otherwise);
    case HD_STMT_ON:
        return walk_on(w, stmt);
    case HD_STMT_GROUP:
        return walk_group(w, stmt);
    case HD_STMT_LAUNCH:
        return walk_launch(w, stmt);
    }
    return HD_OK;
}

static hd_status walk_block(walker *w, const hd_block *block)
{
    for (const hd_stmt *stmt = block->first; stmt != NULL; stmt = stmt->next)
        HD_TRY(walk_stmt(w, stmt));
    return HD_OK;
}

static hd_status start_split(walker *w)
{
    const hd_module *m = w->module;
    int axis = w->full != NULL ? w->full->split : -1;

    if (axis < 0)
        return HD_OK;
    HD_TRY(hd_clear_array(m->nvars + 1, sizeof *w->split.let, w->diag,
                          (void **)&w->split.let));
    HD_TRY(hd_clear_array(m->nbuffers + 1, sizeof *w->split.recorded, w->diag,
                          (void **)&w->split.recorded));
    w->split.line = (hd_line){.module = m,
                              .axis = axis,
                              .size = m->axis[axis].size,
                              .env = &w->env,
                              .let = w->split.let};
    come_to(w, hd_arc_all(m->axis[axis].size));
    return HD_OK;
}

static hd_status start(walker *w)
{
    size_t peers = 1;

    for (int i = 0; i < w->module->naxes; i++) {
        w->first_peer[i] = (int)peers;
        peers += (size_t)w->module->axis[i].size;
    }
    w->vars = calloc((size_t)w->module->nvars + 1, sizeof *w->vars);
    w->sent = calloc(2 * peers, sizeof *w->sent);
    w->recorded = calloc((size_t)w->module->nbuffers + 1, sizeof *w->recorded);
    if (w->full != NULL) {
        w->let = calloc((size_t)w->module->nvars + 1, sizeof *w->let);
        w->is_listed =
            calloc((size_t)w->module->nvars + 1, sizeof *w->is_listed);
    }
    if (w->vars == NULL || w->sent == NULL || w->recorded == NULL ||
        (w->full != NULL && (w->let == NULL || w->is_listed == NULL)))
        return hd_fail(w->diag, HD_ERROR_NO_MEMORY, "out of memory");
    w->received = w->sent + peers;
    w->env.var = w->vars;
    for (int i = 0; i < w->module->naxes; i++)
        w->env.coord[i] = hd_mesh_coord(w->module, w->rank, i);
    return start_split(w);
}

static void stop(walker *w)
{
    for (int i = 0; w->recorded != NULL && i < w->module->nbuffers; i++)
        free(w->recorded[i]);
    for (int i = 0; w->split.recorded != NULL && i < w->module->nbuffers; i++)
        free(w->split.recorded[i]);
    free(w->split.recorded);
    free(w->split.let);
    free(w->split.member);
    free(w->recorded);
    free(w->sent);
    free(w->vars);
    free(w->let);
    free(w->is_listed);
    free(w->member);
    free(w->span);
    hd_zeros_free(&w->zeros);
}

static hd_status walk_written(walker *w)
{
    const hd_source *outer = hd_diag_source(w->diag, &w->module->source);
    hd_status status = start(w);

    if (status == HD_OK)
        status = walk_block(w, &w->module->body);
    if (status == HD_OK && w->split.opened.op != NULL)
        status = HD_ERROR_INVALID; // not all ranks come to it
    stop(w);
    hd_diag_source(w->diag, outer);
    return status;
}

static hd_status walk_rank(walker *w)
{
    HD_TRY(hd_zeros_find(w->module, w->rank, w->diag, &w->zeros));
    return walk_written(w);
}

hd_status hd_walk_check_rank(const hd_module *module, int rank, hd_diag *diag)
{
    if (rank >= 0 && rank < module->nranks)
        return HD_OK;
    return hd_fail(diag, HD_ERROR_ARGUMENT, "rank %d of a mesh of %lld", rank,
                   (long long)module->nranks);
}

static walker walker_of(const hd_module *module, int64_t rank, hd_diag *diag)
{
    return (walker){.module = module,
                    .diag = diag,
                    .rank = rank,
                    .stream = HD_CALLER_STREAM};
}

hd_status hd_walk(const hd_module *module, int64_t rank, hd_diag *diag,
                  hd_step_fn *fn, void *context)
{
    return hd_walk_all(module, rank, diag, fn, NULL, context);
}

hd_status hd_walk_all(const hd_module *module, int64_t rank, hd_diag *diag,
                      hd_step_fn *fn, hd_step_fn *empty, void *context)
{
    walker w = walker_of(module, rank, diag);

    w.fn = fn;
    w.empty = empty;
    w.context = context;
    return walk_rank(&w);
}

hd_status hd_walk_as_written(const hd_module *module, int64_t rank,
                             hd_diag *diag, hd_step_fn *fn, void *context)
{
    walker w = walker_of(module, rank, diag);

    w.fn = fn;
    w.context = context;
    return walk_written(&w);
}

hd_status hd_walk_full(const hd_module *module, int64_t rank,
                       const hd_full *full, hd_diag *diag, hd_full_step_fn *fn,
                       hd_full_step_fn *empty, void *context)
{
    walker w = walker_of(module, rank, diag);

    w.full_fn = fn;
    w.full_empty = empty;
    w.context = context;
    w.full = full;
    return walk_written(&w);
}

hd_status hd_walk_count(const hd_module *module, int64_t rank, hd_diag *diag,
                        hd_tally *out)
{
    walker w = walker_of(module, rank, diag);

    HD_TRY(walk_rank(&w));
    *out = (hd_tally){w.nsteps, w.nidle};
    return HD_OK;
}
