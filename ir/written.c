// Boxes that share no element, so that numbers of elements say whether they
// cover another one.
#include "ir/written.h"

hd_box hd_box_of(const hd_module *module, const hd_view *view)
{
    hd_box all = {.loc = view->loc};

    for (int d = 0; d < view->buffer->type.ndims; d++) {
        const hd_range *range = hd_view_range(view, d);
        int64_t n = range != NULL            ? range->extent
                    : hd_view_picks(view, d) ? 1
                                             : view->buffer->type.dim[d].extent;

        all.low[d] = hd_view_first(module, view, d);
        all.past[d] = all.low[d] + n;
    }
    return all;
}

bool hd_box_meet(const hd_box *a, const hd_box *b, int ndims, hd_box *out)
{
    for (int d = 0; d < ndims; d++) {
        out->low[d] = a->low[d] > b->low[d] ? a->low[d] : b->low[d];
        out->past[d] = a->past[d] < b->past[d] ? a->past[d] : b->past[d];
        if (out->low[d] >= out->past[d])
            return false;
    }
    return true;
}

int64_t hd_box_elements(const hd_box *all, int ndims)
{
    int64_t n = 1;

    for (int d = 0; d < ndims; d++)
        n *= all->past[d] - all->low[d];
    return n;
}

bool hd_written_has(const hd_written *w, const hd_box *part, int ndims)
{
    int64_t left = hd_box_elements(part, ndims);
    hd_box common;

    for (int64_t i = 0; i < w->n && left > 0; i++)
        if (hd_box_meet(&w->box[i], part, ndims, &common))
            left -= hd_box_elements(&common, ndims);
    return left == 0;
}

// The next index behind `at` at which a part begins or ends.
static int64_t next_edge(const hd_written *w, int d, int64_t at)
{
    int64_t next = INT64_MAX;

    for (int64_t i = 0; i < w->n; i++) {
        const hd_box *b = &w->box[i];

        if (b->low[d] > at && b->low[d] < next)
            next = b->low[d];
        if (b->past[d] > at && b->past[d] < next)
            next = b->past[d];
    }
    return next;
}

// Of indices between edges one is as good as another.
hd_box hd_written_first_gap(const hd_written *w, const hd_box *part, int ndims)
{
    hd_box one = *part;

    for (int d = 0; d < ndims; d++) {
        one.past[d] = one.low[d] + 1;
        while (hd_written_has(w, &one, ndims)) {
            one.low[d] = next_edge(w, d, one.low[d]);
            one.past[d] = one.low[d] + 1;
        }
    }
    return one;
}
