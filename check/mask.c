#include "check/mask.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "ir/causal.h"

enum { MOST_MASKS = 256 };

// ------------------------------------------------------------------ finding

static bool has_mask(const hd_op *op)
{
    return hd_op_family(op) == HD_FAMILY_ATTEND && hd_causal_key(op) != NULL;
}

static bool says_runs(const hd_module *module, const hd_block *block)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next)
        if ((s->kind == HD_STMT_OP && has_mask(s->op) &&
             hd_causal_is_sized(module, s->op)) ||
            says_runs(module, &s->body) || says_runs(module, &s->otherwise))
            return true;
    return false;
}

// The last dimension but one that the view has.
static hd_mask_line line_of(const hd_view *view)
{
    int kept = -1, d;
    const hd_range *range;
    hd_dim dim;

    for (d = 0; d < view->buffer->type.ndims; d++)
        kept += !hd_view_picks(view, d);
    d = hd_view_kept_dim(view, kept - 1);
    dim = view->buffer->type.dim[d];
    range = hd_view_range(view, d);
    if (hd_view_has_sized(view, d))
        return (hd_mask_line){dim.times, range != NULL ? range->blocks : 0,
                              dim.size - 1};
    return (hd_mask_line){
        range != NULL && range->extent > 0 ? range->extent : dim.extent, 0, -1};
}

static bool is_same_line(hd_mask_line a, hd_mask_line b)
{
    return a.n == b.n && a.blocks == b.blocks && a.size == b.size;
}

static bool is_same(const hd_mask *a, const hd_mask *b)
{
    return a->first == b->first && a->window == b->window &&
           memcmp(a->times, b->times, sizeof a->times) == 0 &&
           is_same_line(a->rows, b->rows) && is_same_line(a->keys, b->keys);
}

// `causal` at the least sizes, and with each of these one more.
static hd_status add_mask(hd_masks *masks, const hd_op *op,
                          const int32_t causal[HD_MAX_SIZES + 1], hd_diag *diag)
{
    const hd_key *window = hd_op_key(op, HD_KEY_WINDOW);
    hd_mask mask = {.first = causal[0],
                    .rows = line_of(&op->view[op->noutputs]),
                    .keys = line_of(&op->view[op->noutputs + 1]),
                    .window = window != NULL ? (int64_t)window->number : 0};

    if (causal[0] == HD_SEES_ALL || masks->n == MOST_MASKS)
        return HD_OK;
    for (int i = 0; i < masks->nsizes; i++) {
        mask.times[i] = (int64_t)causal[i + 1] - causal[0];
        mask.first -= mask.times[i] * masks->low[i];
    }
    for (int64_t k = 0; k < masks->n; k++)
        if (is_same(&masks->mask[k], &mask))
            return HD_OK;
    HD_TRY(hd_grow((void **)&masks->mask, &masks->room, masks->n + 1,
                   sizeof *masks->mask, diag));
    masks->mask[masks->n++] = mask;
    return HD_OK;
}

// The module at the least sizes, of which number `more` is one more.
static hd_module at_least(const hd_masks *masks, const hd_module *module,
                          int more)
{
    int64_t size[HD_MAX_SIZES] = {0};

    for (int i = 0; i < masks->nsizes; i++)
        size[i] = masks->low[i] + (i == more && masks->low[i] < masks->high[i]);
    return hd_module_sized(module, size);
}

static hd_status find_of_op(hd_masks *masks, const hd_module *tensor,
                            const hd_op *op, int64_t rank, hd_diag *diag)
{
    int32_t causal[HD_MAX_KEY_BLOCKS][HD_MAX_SIZES + 1];
    hd_placed placed;

    for (int i = 0; i <= masks->nsizes; i++) {
        hd_module module = at_least(masks, tensor, i - 1);

        if (!hd_causal_place(&module, op, rank, &placed))
            return HD_OK;
        for (int64_t b = 0; b < hd_causal_blocks(op); b++)
            causal[b][i] = placed.causal[b];
    }
    for (int64_t b = 0; b < hd_causal_blocks(op); b++)
        HD_TRY(add_mask(masks, op, causal[b], diag));
    return HD_OK;
}

static hd_status find_of_tensor(hd_masks *masks, const hd_module *tensor,
                                hd_diag *diag)
{
    for (const hd_stmt *s = tensor->body.first; s != NULL; s = s->next)
        for (int64_t r = 0; has_mask(s->op) && r < tensor->nranks; r++)
            HD_TRY(find_of_op(masks, tensor, s->op, r, diag));
    return HD_OK;
}

// The same steps at each of the sizes.
static hd_status find_of_host(hd_masks *masks, const hd_graph *graph,
                              hd_diag *diag)
{
    hd_module module[HD_MAX_SIZES + 1];
    hd_graph at[HD_MAX_SIZES + 1];
    hd_status status = HD_OK;
    int n = 0;

    for (; n <= masks->nsizes && status == HD_OK; n++) {
        module[n] = at_least(masks, graph->module, n - 1);
        status = hd_graph_create(&module[n], diag, &at[n]);
        if (status != HD_OK)
            break;
    }
    for (int64_t i = 0; status == HD_OK && i < graph->first[graph->nranks];
         i++) {
        int32_t causal[HD_MAX_SIZES + 1];

        if (!has_mask(graph->node[i].op))
            continue;
        for (int k = 0; k < n; k++)
            causal[k] = hd_graph_causal(&at[k], &at[k].node[i]);
        status = add_mask(masks, graph->node[i].op, causal, diag);
    }
    while (n > 0)
        hd_graph_free(&at[--n]);
    return status;
}

hd_status hd_masks_find(const hd_graph *graph, const hd_module *tensor,
                        hd_diag *diag, hd_masks *out)
{
    hd_masks masks = {.nsizes = tensor->nsizes};
    hd_status status;

    if (!says_runs(tensor, &tensor->body) &&
        !says_runs(graph->module, &graph->module->body)) {
        *out = masks;
        return HD_OK;
    }
    for (int i = 0; i < tensor->nsizes; i++) {
        masks.low[i] = tensor->size[i].low;
        masks.high[i] = tensor->size[i].high;
    }
    status = find_of_tensor(&masks, tensor, diag);
    if (status == HD_OK)
        status = find_of_host(&masks, graph, diag);
    if (status != HD_OK) {
        hd_masks_free(&masks);
        return status;
    }
    *out = masks;
    return HD_OK;
}

void hd_masks_free(hd_masks *masks)
{
    free(masks->mask);
    *masks = (hd_masks){0};
}

// ------------------------------------------------------------------ solving

// In doubles, which are exact where it is near 0.
static double length_of(hd_mask_line line, const int64_t *sizes)
{
    int64_t n = line.size < 0 ? line.n : line.n * sizes[line.size];

    return (double)(line.blocks > 0 && n > 0 ? hd_block_size(n, line.blocks)
                                             : n);
}

// Whether the end is past the key: of the first row's keys or the last one's,
// of what causal or the window leaves, past the first key or behind the last.
static bool is_past(const hd_mask *mask, int end, const int64_t *sizes,
                    int nsizes)
{
    double at = (double)mask->first +
                ((end & 1) != 0 ? length_of(mask->rows, sizes) : 1);

    for (int i = 0; i < nsizes; i++)
        at += (double)mask->times[i] * (double)sizes[i];
    at -= (end & 2) != 0 ? length_of(mask->keys, sizes) : 0;
    return at - ((end & 4) != 0 ? (double)mask->window : 0) > 0;
}

bool hd_mask_solve(const hd_masks *masks, const hd_mask *mask, int end, int i,
                   const int64_t *sizes, int64_t *out)
{
    int64_t now[HD_MAX_SIZES] = {0};
    int64_t low = masks->low[i], high = masks->high[i];
    bool before;

    if ((end & 4) != 0 && mask->window == 0)
        return false;
    memcpy(now, sizes, sizeof *now * (size_t)masks->nsizes);
    now[i] = low;
    before = is_past(mask, end, now, masks->nsizes);
    now[i] = high;
    if (before == is_past(mask, end, now, masks->nsizes))
        return false;
    while (high - low > 1) {
        now[i] = low + (high - low) / 2;
        if (is_past(mask, end, now, masks->nsizes) == before)
            low = now[i];
        else
            high = now[i];
    }
    *out = high;
    return true;
}
