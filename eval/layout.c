// See layout.h.
#include "eval/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "ir/signature.h"

// ------------------------------------------------------------------- spans

// What the inner dimensions reach together is less than one stride of the outer
// one.
int64_t hd_span_find(const hd_span *span, int64_t at)
{
    int64_t rest = at - span->offset, i = 0;

    if (span->ndims < 0 || rest < 0)
        return -1;
    for (int d = 0; d < span->ndims; d++) {
        int64_t index = span->extent[d] > 1 ? rest / span->stride[d] : 0;

        if (index >= span->extent[d])
            return -1;
        rest -= index * span->stride[d];
        i = i * span->extent[d] + index;
    }
    return rest == 0 ? i : -1;
}

hd_span hd_span_slice(const hd_span *span, int d, int64_t i)
{
    hd_span part = *span;

    part.offset += i * span->stride[d];
    part.ndims--;
    for (; d < part.ndims; d++) {
        part.extent[d] = span->extent[d + 1];
        part.stride[d] = span->stride[d + 1];
    }
    return part;
}

int64_t hd_batch_elements(const hd_step *step)
{
    hd_span all = step->span[0];

    all.ndims = hd_op_batch(step->op, 0, all.ndims);
    return hd_span_elements(&all);
}

hd_span hd_batch_span(const hd_step *step, int view, int64_t b)
{
    const hd_span *all = &step->span[view], *out = &step->span[0];
    int batch = hd_op_batch(step->op, 0, out->ndims);
    int own = hd_op_batch(step->op, view, all->ndims);
    hd_span span = *all;

    for (int d = own - 1; d >= 0; d--) {
        int64_t extent = out->extent[d + batch - own];

        span = hd_span_slice(&span, d, all->extent[d] > 1 ? b % extent : 0);
        b /= extent;
    }
    return span;
}

// -------------------------------------------------------------------- places

hd_status hd_layout_place(hd_layout *layout, int64_t most, hd_diag *diag)
{
    HD_TRY(hd_clear_array(layout->module->nbuffers, sizeof *layout->at, diag,
                          (void **)&layout->at));
    for (const hd_buffer *b = layout->module->buffers; b != NULL; b = b->next) {
        layout->at[b->id] =
            b->of != NULL ? layout->at[b->of->id] : layout->share;
        if (b->of == NULL && layout->share <= most)
            layout->share += layout->sieve[b->id].elements;
    }
    return HD_OK;
}

void hd_layout_free(hd_layout *layout)
{
    free(layout->sieve);
    free(layout->at);
    *layout = (hd_layout){0};
}

static void add_dim(const hd_sieve *sieve, int d, int64_t first, int64_t n,
                    hd_span *span, hd_grain *grain)
{
    span->offset += hd_grain_kept(sieve->grain[d], first) * sieve->stride[d];
    span->extent[span->ndims] = hd_grain_kept(sieve->grain[d], n);
    span->stride[span->ndims] = sieve->stride[d];
    grain[span->ndims++] = sieve->grain[d];
}

static hd_span span_of_view(const hd_layout *l, const hd_view *view,
                            hd_grain *grain)
{
    const hd_sieve *sieve = &l->sieve[view->buffer->id];
    hd_type type = hd_view_type(view);
    hd_span span = {.buffer = view->buffer, .offset = l->at[view->buffer->id]};

    for (int d = 0; d < sieve->ndims; d++) {
        int64_t first = hd_view_first(l->module, view, d);

        if (hd_view_picks(view, d))
            span.offset += first * sieve->stride[d];
        else
            add_dim(sieve, d, first,
                    hd_module_extent(l->module, type.dim[span.ndims]), &span,
                    grain);
    }
    return span;
}

static hd_span span_of_part(const hd_layout *l, int rank, const hd_part *part,
                            hd_grain *grain)
{
    const hd_part_frame *frame = &l->graph->frame[part->buffer];
    const hd_sieve *sieve = &l->sieve[part->buffer];
    const hd_buffer *buffer = frame->buffer;
    hd_span span = {.buffer = buffer->of != NULL ? buffer->of : buffer,
                    .offset = rank * l->share + l->at[frame->root]};

    for (int d = 0; d < frame->ndims; d++) {
        int64_t first = hd_part_index(frame, part, d);

        if ((part->kept >> d & 1) == 0)
            span.offset += first * sieve->stride[d];
        else
            add_dim(sieve, d, first, hd_part_extent(frame, part, d), &span,
                    grain);
    }
    return span;
}

void hd_layout_step(const hd_layout *l, int rank, int64_t step,
                    hd_work_item *out)
{
    const hd_node *node = hd_graph_node(l->graph, rank, step);

    *out = (hd_work_item){.step = {.op = node->op,
                                   .span = out->span,
                                   .rank = rank,
                                   .causal = hd_graph_causal(l->graph, node),
                                   .attended = hd_graph_attends(l->graph, node),
                                   .stores = node->stores}};
    for (int64_t i = node->part; i < node[1].part; i++) {
        const hd_part *part = &l->graph->part[i];

        out->span[part->view] =
            span_of_part(l, rank, part, out->grain[part->view]);
    }
}

// What stands for a tensor's elements stands for those of its other shape, in
// the same order.
static hd_span flat_span(const hd_layout *l, const hd_view *view,
                         hd_grain *grain)
{
    int id = view->buffer->id;

    grain[0] = (hd_grain){1, 0};
    return (hd_span){.buffer = view->buffer,
                     .offset = l->at[id],
                     .ndims = 1,
                     .extent = {l->sieve[id].elements},
                     .stride = {1}};
}

void hd_layout_op(const hd_layout *l, const hd_op *op, hd_work_item *out)
{
    const hd_key *start = hd_op_key(op, HD_KEY_START);

    *out = (hd_work_item){.step = {.op = op, .span = out->span}};
    if (start != NULL)
        out->step.start = (int32_t)hd_expr_value(l->module, start->expr);
    for (int i = 0; i < op->nviews; i++)
        out->span[i] = op->code == HD_OP_RESHAPE
                           ? flat_span(l, &op->view[i], out->grain[i])
                           : span_of_view(l, &op->view[i], out->grain[i]);
}

hd_span hd_layout_piece(const hd_layout *l, int rank, int64_t step, bool result,
                        int64_t i)
{
    const hd_node *node = hd_graph_node(l->graph, rank, step);
    int view = result ? 0 : node->op->noutputs;
    int64_t at = node->part;
    hd_grain grain[HD_MAX_DIMS];
    hd_span span;

    while (at < node[1].part && l->graph->part[at].view != view)
        at++;
    if (at == node[1].part || (result && node->op->noutputs == 0))
        return (hd_span){.ndims = -1};
    span = span_of_part(l, rank, &l->graph->part[at], grain);
    return hd_op_is_led(node->op, view) ? hd_span_slice(&span, 0, i) : span;
}

int64_t hd_sieve_whole(const hd_module *module, const hd_type *type,
                       const hd_sieve *local, const hd_sieve *whole, int rank,
                       int64_t i)
{
    int64_t at = 0;

    for (int d = local->ndims - 1; d >= 0; d--) {
        hd_dim dim = type->dim[d];
        int64_t index = i % local->extent[d];
        int64_t n = hd_grain_kept(local->grain[d], local->whole[d]);

        if (index >= n)
            return -1;
        if (hd_dim_is_sharded(dim))
            index += hd_mesh_coord(module, rank, dim.mark) * n;
        if (index >= whole->extent[d])
            return -1;
        at += index * whole->stride[d];
        i /= local->extent[d];
    }
    return at;
}
