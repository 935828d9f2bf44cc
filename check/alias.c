// A step works on its views in an order of its own, on all ranks of a
// collective at once. So a result may share bytes with an operand only where
// each element of it needs that very element and no other: element by element,
// and in all_reduce, reduce and broadcast, over the same view; in
// reduce_scatter and all_gather over this rank's own piece. What views say for
// themselves the verifier finds; here indices have values.
#include "check/alias.h"

enum { MOST_REPORTED = 20 }; // as many errors are printed

typedef struct reported {
    const hd_op *op[MOST_REPORTED];
    int n;
} reported;

// A part, as its indices say it.
typedef struct box {
    const hd_part_frame *frame;
    int64_t offset, extent[HD_MAX_DIMS];
} box;

static box box_of(const hd_part_frame *frames, const hd_part *part)
{
    box b = {.frame = &frames[part->buffer], .offset = part->offset};

    for (int d = 0; d < b.frame->ndims; d++)
        b.extent[d] = hd_part_extent(b.frame, part, d);
    return b;
}

static bool has_lengths_of(const box *a, const box *b)
{
    for (int d = 0; d < a->frame->ndims; d++)
        if (a->extent[d] != b->extent[d])
            return false;
    return true;
}

// The elements from the first to the last, if that is all of them; otherwise 0.
static int64_t count_dense(const box *b)
{
    int64_t n = 1, last = 0;

    for (int d = 0; d < b->frame->ndims; d++) {
        n *= b->extent[d];
        last += (b->extent[d] - 1) * b->frame->stride[d];
    }
    return last + 1 == n ? n : 0;
}

// Both are one contiguous range with equal ends, or pick the same of one shape.
static bool are_same(const box *a, const box *b)
{
    if (a->offset != b->offset)
        return false;
    if (a->frame->shape == b->frame->shape)
        return has_lengths_of(a, b);
    return count_dense(a) > 0 && count_dense(a) == count_dense(b);
}

// `piece` is index `i` of the first dimension of `all`.
static bool is_piece(const hd_part_frame *frames, const hd_part *all, int64_t i,
                     const hd_part *piece)
{
    box own = box_of(frames, all), other = box_of(frames, piece);
    int d = 0;

    while (d < own.frame->ndims && (all->kept >> d & 1) == 0)
        d++;
    if (d == own.frame->ndims)
        return false;
    own.offset += i * own.frame->stride[d];
    own.extent[d] = 1;
    return are_same(&own, &other);
}

static bool is_same(const hd_part_frame *frames, const hd_part *a,
                    const hd_part *b)
{
    box x = box_of(frames, a), y = box_of(frames, b);

    return are_same(&x, &y);
}

static bool is_allowed(const hd_graph *graph, int rank, const hd_op *op,
                       const hd_part *result, const hd_part *operand)
{
    int64_t me = op->axis >= 0 ? hd_mesh_coord(graph->module,
                                               graph->number[rank], op->axis)
                               : 0;

    if (hd_part_writes(operand))
        return false;
    switch (hd_op_in_place(op)) {
    case HD_IN_PLACE_NEVER:
        break;
    case HD_IN_PLACE_SAME:
        return is_same(graph->frame, result, operand);
    case HD_IN_PLACE_PIECE:
        return hd_op_is_led(op, 0)
                   ? is_piece(graph->frame, result, me, operand)
                   : is_piece(graph->frame, operand, me, result);
    }
    return false;
}

static hd_status report(const hd_graph *graph, int rank, int64_t step,
                        const hd_part *result, const hd_part *operand,
                        hd_diag *diag)
{
    const hd_op *op = hd_graph_node(graph, rank, step)->op;
    hd_text to = {0}, from = {0};
    hd_status status;

    hd_part_print(&graph->frame[result->buffer], result, &to);
    hd_part_print(&graph->frame[operand->buffer], operand, &from);
    status = hd_error(diag, HD_E0809, op->view[result->view].loc,
                      "rank %d's %s (step %lld) writes %s over %s", rank,
                      hd_op_info_get(op->code)->text, (long long)step,
                      to.bytes != NULL ? to.bytes : "a result",
                      hd_part_writes(operand) ? "another result of its own"
                                              : "an operand of its own");
    hd_note(diag, op->view[operand->view].loc, "it %s %s here",
            hd_part_writes(operand) ? "writes" : "reads",
            from.bytes != NULL ? from.bytes : "it");
    hd_text_free(&to);
    hd_text_free(&from);
    return status;
}

// Each op is reported once, whatever its ranks and steps.
static bool is_reported(const reported *reported, const hd_op *op)
{
    for (int i = 0; i < reported->n; i++) {
        if (reported->op[i] == op)
            return true;
    }
    return reported->n == MOST_REPORTED;
}

// The first result of the step that is wrong, and what it lies over.
static bool find(const hd_graph *graph, int rank, const hd_node *node,
                 const hd_part **result, const hd_part **other)
{
    for (int64_t i = node->part; i < node[1].part; i++) {
        *result = &graph->part[i];
        for (int64_t k = node->part; k < node[1].part; k++) {
            *other = &graph->part[k];
            if (k != i && hd_part_writes(*result) &&
                hd_parts_overlap(graph->frame, *result, *other) &&
                !is_allowed(graph, rank, node->op, *result, *other))
                return true;
        }
    }
    return false;
}

hd_status hd_alias_check(const hd_graph *graph, hd_diag *diag)
{
    const hd_part *result, *other;
    hd_status status = HD_OK;
    reported reported = {.n = 0};

    for (int rank = 0; rank < graph->nranks; rank++) {
        for (int64_t i = 0; i < hd_graph_steps(graph, rank); i++) {
            const hd_node *node = hd_graph_node(graph, rank, i);

            if (!find(graph, rank, node, &result, &other) ||
                is_reported(&reported, node->op))
                continue;
            reported.op[reported.n++] = node->op;
            status = report(graph, rank, i, result, other, diag);
        }
    }
    return status;
}
