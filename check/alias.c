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

static int64_t elements(const hd_frame *frame, const hd_part *part)
{
    int64_t n = 1;

    for (int d = 0; d < frame->ndims; d++)
        n *= hd_part_extent(frame, part, d);
    return n;
}

// Of one shape, and of each dimension as many indices.
static bool has_lengths_of(const hd_frame *fa, const hd_part *a,
                           const hd_frame *fb, const hd_part *b)
{
    for (int d = 0; d < fa->ndims; d++)
        if (hd_part_extent(fa, a, d) != hd_part_extent(fb, b, d))
            return false;
    return true;
}

// Both are one contiguous range with equal ends, or pick the same of one shape.
static bool are_same(const hd_frame *frames, const hd_part *a, const hd_part *b)
{
    const hd_frame *fa = &frames[a->buffer], *fb = &frames[b->buffer];
    int64_t low[2], high[2];

    if (fa->shape == fb->shape)
        return a->offset == b->offset && has_lengths_of(fa, a, fb, b);
    hd_part_range(fa, a, &low[0], &high[0]);
    hd_part_range(fb, b, &low[1], &high[1]);
    return low[0] == low[1] && high[0] == high[1] &&
           elements(fa, a) == high[0] - low[0] &&
           elements(fb, b) == high[1] - low[1];
}

// `piece` is index `i` of the first dimension of `all`.
static bool is_piece(const hd_frame *frames, const hd_part *all, int64_t i,
                     const hd_part *piece)
{
    const hd_frame *frame = &frames[all->buffer];
    hd_part own = *all;
    int d = 0;

    while (d < frame->ndims && (all->kept >> d & 1) == 0)
        d++;
    if (d == frame->ndims || all->ranges != 0)
        return false;
    own.offset += i * frame->stride[d];
    own.kept &= ~(1u << d) & 0xff;
    return are_same(frames, &own, piece);
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
        return are_same(graph->frame, result, operand);
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
