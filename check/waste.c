// One rank after the other, in issue order: a step is of use if some of what it
// writes is read before it is written over, if somebody waits for its event, or
// if it waits for what its stream did not know of. A statement is reported if
// none of its steps is, or if on some rank data of one iteration is of no use
// where that of another is. One element that is received is taken for an
// acknowledgement: that it came is its use. So is an argument that no statement
// names.
#include "check/waste.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "check/order.h"
#include "steps/cells.h"

// What a step leaves, as far as the rank has come.
typedef struct left {
    bool read;
    const hd_op *over; // what writes over it unread, NULL if nothing does
} left;

// A statement. `over` is of a step that is of no use: the first one on a rank
// where others of it are, if `among`.
typedef struct seen {
    const hd_op *op;
    uint32_t useful; // a bit for each of its events; of other ops, the lowest
    bool issued;
    bool among;
    int used; // the last rank + 1 that reads what it leaves
    hd_member idle;
    const hd_op *over;
} seen;

typedef struct scan {
    const hd_graph *graph;
    hd_cells cells;
    hd_diag *diag;
    seen *seen; // owned: one a statement, by address of the op, and one for
                // the records that sends of nothing leave of an event's buffer
    int64_t nseen, room;
    left *left;      // owned, by step
    int32_t *writer; // owned, by cell: the last one's number + 1; 0 is none
    int64_t left_room;
    int rank;
    int64_t step;
    const hd_node *node;
} scan;

// --------------------------------------------------------------- statements

static hd_status list_op(scan *s, const hd_op *op, uint32_t useful)
{
    HD_TRY(hd_grow((void **)&s->seen, &s->room, s->nseen + 1, sizeof *s->seen,
                   s->diag));
    s->seen[s->nseen++] = (seen){.op = op, .useful = useful};
    return HD_OK;
}

static hd_status list_ops(scan *s, const hd_block *block)
{
    for (const hd_stmt *stmt = block->first; stmt != NULL; stmt = stmt->next) {
        if (stmt->kind == HD_STMT_OP)
            HD_TRY(list_op(s, stmt->op, 0));
        HD_TRY(list_ops(s, &stmt->body));
        HD_TRY(list_ops(s, &stmt->otherwise));
    }
    return HD_OK;
}

static int compare_seen(const void *x, const void *y)
{
    const hd_op *a = ((const seen *)x)->op, *b = ((const seen *)y)->op;

    return (a > b) - (a < b);
}

static seen *seen_of(const scan *s, const hd_op *op)
{
    seen key = {.op = op};

    return bsearch(&key, s->seen, (size_t)s->nseen, sizeof key, compare_seen);
}

static void use(const scan *s, const hd_op *op, int event)
{
    seen_of(s, op)->useful |= 1u << event;
}

// --------------------------------------------------------------------- data

static void read_cells(void *context, int64_t low, int64_t high)
{
    scan *s = context;

    for (int64_t i = low; i < high; i++)
        if (s->writer[i] != 0) {
            s->left[s->writer[i] - 1].read = true;
            s->writer[i] = 0; // once is enough
        }
}

static void write_cells(void *context, int64_t low, int64_t high)
{
    scan *s = context;

    for (int64_t i = low; i < high; i++) {
        if (s->writer[i] != 0)
            s->left[s->writer[i] - 1].over = s->node->op;
        s->writer[i] = (int32_t)s->step + 1;
    }
}

// What is stored where it would be added to zeros: these are of use to the
// statement.
static bool holds_zeros(const scan *s, const hd_part *part)
{
    return (s->node->stores >> part->view & 1) != 0;
}

static void visit_parts(scan *s)
{
    for (int64_t i = s->node->part; i < s->node[1].part; i++)
        if (hd_part_reads(&s->graph->part[i]) ||
            holds_zeros(s, &s->graph->part[i]))
            hd_cells_each(&s->cells, &s->graph->part[i], read_cells, s);
    for (int64_t i = s->node->part; i < s->node[1].part; i++)
        if (hd_part_writes(&s->graph->part[i]))
            hd_cells_each(&s->cells, &s->graph->part[i], write_cells, s);
}

// The caller reads what is in its arguments at the end.
static void read_arguments(scan *s)
{
    for (const hd_buffer *b = s->graph->module->buffers; b != NULL; b = b->next)
        if (b->of == NULL && b->role != HD_ROLE_TEMP &&
            b->type.dtype != HD_DTYPE_EVENT)
            read_cells(s, s->cells.first[b->id],
                       s->cells.first[b->id] + s->cells.count[b->id]);
}

// --------------------------------------------------------------------- order

// Whether the stream learns of a record by another event of the list, too: of
// those that one stream records the last one knows of all, and of one record's
// the first one is enough.
static bool is_known_beside(const scan *s, const hd_record *list, int event)
{
    int stream = hd_graph_node(s->graph, s->rank, list[event].step)->stream;

    for (int i = 0; i < s->node->op->ninputs; i++) {
        const hd_node *other;

        if (list[i].step < list[event].step ||
            (list[i].step == list[event].step && i >= event))
            continue;
        other = hd_graph_node(s->graph, s->rank, list[i].step);
        if (other->kind != HD_NODE_SEND && other->stream == stream)
            return true;
    }
    return false;
}

// An event is of use if its stream's clock does not know of the record; of the
// end of a send no stream knows.
static void take_wait(const scan *s, const int32_t *clock)
{
    const hd_record *list = hd_graph_records(s->graph, s->node);

    for (int i = 0; i < s->node->op->ninputs; i++) {
        const hd_node *node;

        if (list[i].step < 0) {
            use(s, s->node->op, i); // the caller's
            continue;
        }
        node = hd_graph_node(s->graph, s->rank, list[i].step);
        use(s, node->op, list[i].view);
        if (node->kind == HD_NODE_SEND || (clock[node->stream] <= node->place &&
                                           !is_known_beside(s, list, i)))
            use(s, s->node->op, i);
    }
}

// --------------------------------------------------------------------- steps

static bool leaves_data(const hd_op *op)
{
    return op->noutputs > 0 && op->view[0].buffer->type.dtype != HD_DTYPE_EVENT;
}

// What came is not meant to be read: that it came orders what follows.
static bool is_acknowledgement(const hd_op *op)
{
    hd_type type = hd_view_type(&op->view[0]);

    for (int d = 0; d < type.ndims; d++)
        if (hd_dim_local(type.dim[d]) != 1)
            return false;
    return op->code == HD_OP_RECV;
}

static bool is_reportable(const hd_op *op)
{
    switch (hd_op_sync(op)) {
    case HD_SYNC_FORK:
    case HD_SYNC_JOIN:
        return false;
    case HD_SYNC_RECORD:
    case HD_SYNC_WAIT:
        return true;
    case HD_SYNC_NONE:
        break;
    }
    // Who receives what is sent is reported.
    return op->noutputs > 0 && !is_acknowledgement(op);
}

static void visit_step(void *context, int64_t step, const int32_t *clock)
{
    scan *s = context;
    seen *seen;

    if (step == HD_RUN_END)
        return;
    s->step = step;
    s->node = hd_graph_node(s->graph, s->rank, step);
    seen = seen_of(s, s->node->op);
    seen->issued = true;
    if (!is_reportable(s->node->op))
        use(s, s->node->op, 0);
    visit_parts(s);
    if (s->node->kind == HD_NODE_WAIT)
        take_wait(s, clock);
}

// All ranks issue a collective, so on some it may be of no use.
static bool may_be_idle(const hd_op *op)
{
    return is_reportable(op) && leaves_data(op) &&
           (op->code == HD_OP_RECV || !hd_op_is(op, HD_UNIT_TRANSFER));
}

static void settle_step(const scan *s, int64_t step)
{
    const hd_op *op = hd_graph_node(s->graph, s->rank, step)->op;
    seen *seen = seen_of(s, op);

    if (s->left[step].read || seen->among || !leaves_data(op))
        return;
    seen->among = seen->used == s->rank + 1 && may_be_idle(op);
    seen->idle = (hd_member){s->rank, (int32_t)step};
    if (seen->among || seen->over == NULL)
        seen->over = s->left[step].over;
}

// What of the rank's data was read is known.
static void settle(const scan *s, int64_t n)
{
    for (int64_t step = 0; step < n; step++)
        if (s->left[step].read) {
            seen *seen = seen_of(s, hd_graph_node(s->graph, s->rank, step)->op);

            seen->useful = 1;
            seen->used = s->rank + 1;
        }
    for (int64_t step = 0; step < n; step++)
        settle_step(s, step);
}

static hd_status visit_rank(scan *s)
{
    int64_t n = hd_graph_steps(s->graph, s->rank);
    hd_watch watch = {.rank = s->rank, .fn = visit_step, .context = s};

    memset(s->writer, 0, sizeof *s->writer * (size_t)s->cells.ncells);
    HD_TRY(hd_grow((void **)&s->left, &s->left_room, n + 1, sizeof *s->left,
                   s->diag));
    memset(s->left, 0, sizeof *s->left * (size_t)n);
    HD_TRY(hd_order_each(s->graph, 1, &watch, s->diag));
    read_arguments(s);
    settle(s, n);
    return HD_OK;
}

// ------------------------------------------------------------------- telling

// Of several events each is told at its own place; an argument that is recorded
// is the caller's to wait for.
static void report_order(const scan *s, const seen *seen)
{
    const hd_op *op = seen->op;
    int n = op->nviews;

    for (int i = 0; i < n; i++) {
        hd_loc loc = n > 1 ? op->view[i].loc : op->loc;

        if ((seen->useful >> i & 1) != 0)
            continue;
        if (op->code == HD_OP_WAIT)
            hd_warning(s->diag, HD_E0813, loc,
                       "this wait orders nothing: its stream comes after that "
                       "record without it");
        else if (op->view[i].buffer->role == HD_ROLE_TEMP)
            hd_warning(s->diag, HD_E0813, loc, "nobody waits for this record");
    }
}

// Whether what was written over was: by a statement that the text has there.
// Two temporaries that passes let share bytes are not one of its.
static bool is_written_over(const scan *s, const seen *seen)
{
    const char *said = seen->op->view[0].buffer->said;

    if (seen->over == NULL || s->graph->module->written == HD_STAGE_HOST)
        return seen->over != NULL;
    for (int i = 0; i < seen->over->nviews; i++)
        if (hd_op_writes(seen->over, i) &&
            strcmp(seen->over->view[i].buffer->said, said) == 0)
            return true;
    return false;
}

static void report_data(const scan *s, const seen *seen)
{
    const hd_op *op = seen->op;
    const char *word = hd_op_info_get(op->code)->text;
    const char *name = op->view[0].buffer->name;
    char where[64] = "";

    if (seen->among)
        snprintf(where, sizeof where, " on rank %d (step %d)",
                 s->graph->number[seen->idle.rank], seen->idle.step);
    if (!is_written_over(s, seen)) {
        hd_warning(s->diag, HD_E0811, op->loc,
                   "nobody reads what this %s leaves in %%%s%s", word, name,
                   where);
        return;
    }
    hd_warning(s->diag, HD_E0812, op->loc,
               "what this %s leaves in %%%s%s is written over before anybody "
               "reads it",
               word, name, where);
    if (seen->over != op)
        hd_note(s->diag, seen->over->loc, "by this %s",
                hd_op_info_get(seen->over->code)->text);
}

// Of buffers by their own bytes; what stands for the records of sends that send
// nothing is no statement.
static void note_views(const hd_op *op, bool *named)
{
    for (int i = 0; i < op->nviews; i++) {
        hd_buffer *buffer = op->view[i].buffer;

        if (op != buffer->record)
            named[hd_buffer_root(buffer)->id] = true;
    }
}

// What the caller brings for nothing: no statement of any rank names it.
static hd_status report_inputs(const scan *s)
{
    const hd_module *module = s->graph->module;
    bool *named = NULL;

    HD_TRY(hd_clear_array(module->nbuffers, sizeof *named, s->diag,
                          (void **)&named));
    for (int64_t i = 0; i < s->nseen; i++)
        note_views(s->seen[i].op, named);
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        if ((b->role == HD_ROLE_IN || b->role == HD_ROLE_INOUT) &&
            !named[b->id])
            hd_warning(s->diag, HD_E0811, b->loc, "no statement uses %%%s",
                       b->name);
    free(named);
    return HD_OK;
}

static int compare_places(const void *x, const void *y)
{
    const hd_loc a = ((const seen *)x)->op->loc, b = ((const seen *)y)->op->loc;

    if (a.line != b.line)
        return a.line < b.line ? -1 : 1;
    return (a.column > b.column) - (a.column < b.column);
}

static hd_status look(scan *s)
{
    const hd_graph *g = s->graph;

    HD_TRY(list_ops(s, &g->module->body));
    for (const hd_buffer *b = g->module->buffers; b != NULL; b = b->next)
        if (b->record != NULL)
            HD_TRY(list_op(s, b->record, 1));
    if (s->nseen > 0)
        qsort(s->seen, (size_t)s->nseen, sizeof *s->seen, compare_seen);
    HD_TRY(hd_cells_create(g, s->diag, &s->cells));
    HD_TRY(hd_clear_array(s->cells.ncells, sizeof *s->writer, s->diag,
                          (void **)&s->writer));
    for (; s->rank < g->nranks; s->rank++)
        HD_TRY(visit_rank(s));
    HD_TRY(report_inputs(s));
    if (s->nseen > 0)
        qsort(s->seen, (size_t)s->nseen, sizeof *s->seen, compare_places);
    for (int64_t i = 0; i < s->nseen; i++) {
        const seen *seen = &s->seen[i];

        if (seen->issued && hd_op_is(seen->op, HD_UNIT_SYNC))
            report_order(s, seen);
        else if (seen->among || (seen->issued && seen->useful == 0))
            report_data(s, seen);
    }
    return HD_OK;
}

hd_status hd_waste_check(const hd_graph *graph, hd_diag *diag)
{
    scan s = {.graph = graph, .diag = diag};
    hd_status status = look(&s);

    hd_cells_free(&s.cells);
    free(s.seen);
    free(s.writer);
    free(s.left);
    return status;
}
