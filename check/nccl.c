// A collective is one call of NCCL's or several: what it only gathers for a
// kernel to reduce has a limit of ranks, and what goes piece by piece where
// there are gaps has to on all ranks.
#include "check/nccl.h"

#include "ir/transport.h"

enum { MOST_REPORTED = 20 }; // as many errors are printed

typedef struct reported {
    const hd_op *op[MOST_REPORTED];
    int n;
    hd_status status;
} reported;

// Each op is reported once, whatever its ranks and steps.
static bool is_new(reported *reported, const hd_op *op)
{
    for (int i = 0; i < reported->n; i++) {
        if (reported->op[i] == op)
            return false;
    }
    if (reported->n == MOST_REPORTED)
        return false;
    reported->op[reported->n++] = op;
    return true;
}

static const hd_node *node_of(const hd_graph *graph, const hd_member *member)
{
    return hd_graph_node(graph, member->rank, member->step);
}

static const char *pieces_of(const hd_op *op)
{
    return op->view[hd_nccl_pieces(op)].buffer->name;
}

static bool is_dense(const hd_graph *graph, const hd_node *node)
{
    const hd_part *part = &graph->part[node->part + hd_nccl_pieces(node->op)];
    hd_span span = hd_part_span(&graph->frame[part->buffer], part);

    return hd_span_is_dense(&span);
}

// `spaced` has gaps between its pieces, `dense` has none.
static hd_status report_pieces(const hd_graph *graph, const hd_member *spaced,
                               const hd_member *dense, hd_diag *diag)
{
    const hd_op *op = node_of(graph, spaced)->op;
    const hd_op *other = node_of(graph, dense)->op;
    hd_status status = hd_error(
        diag, HD_E0709, op->loc,
        "rank %d's %s (step %d) has gaps between the pieces of %%%s, and rank "
        "%d's has none: NCCL does not join them; make them alike, or use the "
        "copy transport",
        graph->number[spaced->rank], hd_op_info_get(op->code)->text,
        spaced->step, pieces_of(op), graph->number[dense->rank]);

    hd_note(diag, other->loc, "rank %d's %s (step %d) of %%%s has none",
            graph->number[dense->rank], hd_op_info_get(other->code)->text,
            dense->step, pieces_of(other));
    return status;
}

static int64_t ranks_of(const hd_graph *graph, const hd_op *op)
{
    return graph->module->axis[op->axis].size;
}

static hd_status report_ranks(const hd_graph *graph, const hd_member *first,
                              hd_diag *diag)
{
    const hd_op *op = node_of(graph, first)->op;

    return hd_error(
        diag, HD_E0709, op->loc,
        "rank %d's %s (step %d) of %s over %lld ranks: NCCL only gathers what "
        "is reduced here, and a kernel reduces at most %d ranks'",
        graph->number[first->rank], hd_op_info_get(op->code)->text, first->step,
        hd_dtype_text(op->view[0].buffer->type.dtype),
        (long long)ranks_of(graph, op), HD_NCCL_GATHERED);
}

static void check_rendezvous(const hd_graph *graph, const hd_member *member,
                             int64_t n, hd_diag *diag, reported *reported)
{
    const hd_member *spaced = NULL, *dense = NULL;
    const hd_op *op = node_of(graph, &member[0])->op;

    if (ranks_of(graph, op) > HD_NCCL_GATHERED && hd_nccl_only_gathers(op) &&
        is_new(reported, op))
        reported->status = report_ranks(graph, member, diag);
    if (hd_nccl_pieces(op) < 0)
        return;
    for (int64_t i = 0; i < n; i++) {
        if (is_dense(graph, node_of(graph, &member[i])))
            dense = dense == NULL ? &member[i] : dense;
        else
            spaced = spaced == NULL ? &member[i] : spaced;
    }
    if (spaced != NULL && dense != NULL &&
        is_new(reported, node_of(graph, spaced)->op))
        reported->status = report_pieces(graph, spaced, dense, diag);
}

hd_status hd_nccl_check(const hd_graph *graph, unsigned serial, hd_diag *diag)
{
    reported reported = {.status = HD_OK};

    for (int64_t i = 0; i < graph->nrendezvous; i++) {
        const hd_member *member = hd_graph_members(graph, i);
        int64_t n = hd_graph_meets(graph, i);

        if (n > 0 && (serial >> node_of(graph, member)->op->axis & 1) != 0)
            check_rendezvous(graph, member, n, diag, &reported);
    }
    return reported.status;
}
