// See compute.h.
#include "eval/compute.h"

#include <assert.h>
#include <stdlib.h>

#include "base/array.h"
#include "ir/counts.h"

typedef struct computation {
    const hd_evaluator *e;
    const hd_work_item *item;
    hd_space space;
    int64_t n; // elements of the result
} computation;

static computation computation_of(const hd_evaluator *e,
                                  const hd_work_item *item)
{
    computation c = {
        .e = e, .item = item, .n = hd_span_elements(&item->span[0])};

    hd_space_of_step(&item->step, &c.space);
    return c;
}

// An operand along the result.
static hd_span operand(const computation *c, int view)
{
    return hd_space_span(&c->space, &c->item->step, view);
}

// Operands in the order written, and where those that are numbers are.
typedef struct operands {
    int n;
    bool is_number[HD_MAX_OPERANDS];
    hd_span span[HD_MAX_OPERANDS];
    int64_t at[HD_MAX_OPERANDS];
} operands;

static void find_operands(const computation *c, operands *out)
{
    const hd_evaluator *e = c->e;
    const hd_op *op = c->item->step.op;
    hd_dtype dtype = c->item->span[hd_op_number_view(op)].buffer->type.dtype;
    int64_t free = e->spare;

    out->n = hd_op_operands(op);
    for (int k = 0; k < out->n; k++) {
        int view = hd_op_operand(op, k);

        out->is_number[k] = view < 0;
        if (view >= 0) {
            out->span[k] = operand(c, view);
            continue;
        }
        out->at[k] = free++;
        e->algebra->number(e->memory, out->at[k], dtype,
                           hd_op_number_written(op, k));
    }
}

static int64_t operand_at(const operands *all, int k, int64_t i)
{
    return all->is_number[k] ? all->at[k] : hd_span_place(&all->span[k], i);
}

static int64_t result_at(const computation *c, int64_t i)
{
    return hd_span_place(&c->item->span[0], i);
}

static void compute_map(const hd_evaluator *e, const hd_work_item *item)
{
    computation c = computation_of(e, item);
    operands in;
    int64_t from[HD_MAX_OPERANDS];

    find_operands(&c, &in);
    for (int64_t i = 0; i < c.n; i++) {
        for (int k = 0; k < in.n; k++)
            from[k] = operand_at(&in, k, i);
        e->algebra->map(e->memory, item, result_at(&c, i), from);
    }
}

// Of a fold the counts that each index of what is reduced has of its own.
typedef struct folded_counts {
    const hd_slabs *slabs; // borrowed; NULL: each index counts each element
    hd_span span;          // of the first index's counts, along the result
    int64_t inner; // elements of the result that lie behind one counted index
} folded_counts;

static folded_counts folded_counts_of(const computation *c,
                                      const hd_slabs *slabs)
{
    folded_counts counts = {.slabs = slabs, .inner = 1};

    if (slabs == NULL)
        return counts;
    counts.span = operand(c, slabs->view);
    for (int d = c->space.counted + 1; d < c->space.nparallel; d++)
        counts.inner *= c->space.extent[d];
    return counts;
}

// Whether index `k` of what is reduced counts element `i` of the result.
static bool is_counted(const computation *c, const folded_counts *counts,
                       int64_t i, int64_t k)
{
    const hd_slabs *slabs = counts->slabs;
    const hd_evaluator *e = c->e;

    return slabs == NULL ||
           i / counts->inner % slabs->room <
               e->algebra->count(e->memory,
                                 hd_span_place(&counts->span, i) +
                                     k * slabs->apart,
                                 slabs->room);
}

// Several operands, or the indices of the reduced dimension of one.
static hd_status compute_fold(const hd_evaluator *e, const hd_work_item *item,
                              const hd_slabs *slabs)
{
    computation c = computation_of(e, item);
    const hd_op *op = item->step.op;
    hd_dtype dtype = item->span[0].buffer->type.dtype;
    bool reduces = c.space.ndims > c.space.nparallel;
    int dim = reduces ? c.space.dim[1][c.space.nparallel] : 0;
    int64_t stride = item->span[1].stride[dim];
    hd_grain grain = reduces ? item->grain[1][dim] : (hd_grain){1, 0};
    int64_t n =
        reduces ? c.space.extent[c.space.nparallel] : hd_op_operands(op);
    folded_counts counts = folded_counts_of(&c, slabs);
    operands in;
    int64_t *from;

    assert(slabs == NULL || grain.unit == 1); // each is told apart
    HD_TRY(hd_clear_array(n, sizeof *from, e->diag, (void **)&from));
    find_operands(&c, &in);
    for (int64_t i = 0; i < c.n; i++) {
        int64_t first = operand_at(&in, 0, i), terms = 0;

        for (int k = 0; k < n; k++)
            if (is_counted(&c, &counts, i, k))
                from[terms++] =
                    reduces ? first + k * stride : operand_at(&in, k, i);
        e->algebra->join(e->memory, hd_op_fold(op), dtype, result_at(&c, i),
                         from, terms, grain);
    }
    free(from);
    return HD_OK;
}

static void compute_take(const hd_evaluator *e, const hd_work_item *item)
{
    computation c = computation_of(e, item);
    int dim = c.space.dim[1][c.space.nparallel];
    const hd_span *all = &item->span[1];
    hd_span from = operand(&c, 1), index = operand(&c, 2);

    for (int64_t i = 0; i < c.n; i++)
        e->algebra->take(e->memory, result_at(&c, i), hd_span_place(&index, i),
                         item->step.start, hd_span_place(&from, i),
                         all->stride[dim], all->extent[dim],
                         item->grain[1][dim]);
}

// Those that stand for a piece are its first and its last one.
static int64_t index_of(int64_t k, hd_grain grain)
{
    hd_piece piece = hd_grain_piece(grain, k);

    return piece.first + (piece.number == 0 ? 0 : piece.length - 1);
}

static void compute_iota(const hd_evaluator *e, const hd_work_item *item)
{
    computation c = computation_of(e, item);
    const hd_span *out = &item->span[0];
    int dim = hd_op_dim(item->step.op);
    int64_t inner = 1;

    for (int d = dim + 1; d < out->ndims; d++)
        inner *= out->extent[d];
    for (int64_t i = 0; i < c.n; i++)
        e->algebra->place(
            e->memory, result_at(&c, i),
            item->step.start +
                index_of(i / inner % out->extent[dim], item->grain[0][dim]));
}

static hd_status compute_all(const hd_evaluator *e, const hd_work_item *item)
{
    switch (hd_op_family(item->step.op)) {
    case HD_FAMILY_COPY:
    case HD_FAMILY_TRANSPOSE:
    case HD_FAMILY_MAP:
        compute_map(e, item);
        break;
    case HD_FAMILY_FOLD:
        return compute_fold(e, item, NULL);
    case HD_FAMILY_TAKE:
        compute_take(e, item);
        break;
    case HD_FAMILY_IOTA:
        compute_iota(e, item);
        break;
    case HD_FAMILY_PRODUCT:
        return e->algebra->multiply(e->memory, item);
    case HD_FAMILY_PICK:
    case HD_FAMILY_CALL:
        return e->algebra->pick(e->memory, item);
    case HD_FAMILY_ATTEND:
        return e->algebra->attend(e->memory, item);
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        break;
    }
    return HD_OK;
}

static void clear(const hd_evaluator *e, const hd_span *span)
{
    int64_t n = hd_span_elements(span);

    for (int64_t i = 0; i < n; i++)
        e->algebra->clear(e->memory, hd_span_place(span, i));
}

// Each slab has the indices that are counted, and zeros behind them. What is
// folded over slabs is, where none of them counts it, a fold of nothing.
static hd_status compute_slabs(const hd_evaluator *e, const hd_work_item *item)
{
    hd_slabs slabs = hd_slabs_of(&item->step);
    hd_work_item slab = *item;

    if (slabs.folded >= 0)
        return compute_fold(e, item, &slabs);
    slab.step.span = slab.span;
    for (int64_t i = 0; i < slabs.n; i++) {
        int64_t n =
            e->algebra->count(e->memory, hd_slab_count(&slabs, i), slabs.room);

        hd_slab_spans(&slabs, i, n, slabs.room, slab.span);
        for (int v = 0; v < item->step.op->nviews; v++)
            if (hd_slabs_clear(&slabs, v))
                clear(e, &slab.span[v]);
        hd_slab_spans(&slabs, i, 0, n, slab.span);
        if (hd_span_elements(&slab.span[0]) > 0)
            HD_TRY(compute_all(e, &slab));
    }
    return HD_OK;
}

hd_status hd_compute(const hd_evaluator *e, const hd_work_item *item)
{
    const hd_op *op = item->step.op;

    return hd_op_has_counts(op) && hd_op_family(op) != HD_FAMILY_ATTEND
               ? compute_slabs(e, item)
               : compute_all(e, item);
}
