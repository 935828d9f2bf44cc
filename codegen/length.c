// A view keeps all of a dimension whose length a run says, a block of it, or
// indices that each run has, and has strides of the room. So the room and the
// strides, which are the same in every run, say how a kernel is arranged.
#include "codegen/length.h"

hd_length hd_length_fixed(int64_t n)
{
    return (hd_length){n, n, n, false};
}

hd_length hd_length_times(hd_length length, int64_t n)
{
    return (hd_length){length.now * n, length.room * n, length.unit * n,
                       length.sized};
}

hd_length hd_length_of(const hd_step *step, int i, int d)
{
    const hd_view *view = &step->op->view[i];
    int own = hd_view_kept_dim(view, d);
    hd_dim dim = view->buffer->type.dim[own];
    const hd_range *range = hd_view_range(view, own);
    int64_t now = step->span[i].extent[d];

    if (!hd_view_has_sized(view, own))
        return hd_length_fixed(now);
    if (range != NULL)
        return (hd_length){now, hd_block_size(dim.extent, range->blocks), 1,
                           true};
    return (hd_length){now, hd_dim_local(dim),
                       hd_dim_is_sharded(dim) ? 1 : dim.times, true};
}

hd_length hd_length_of_part(const hd_step *step, int64_t n)
{
    hd_length length = hd_length_fixed(n);

    for (int i = 0; i < step->op->nviews; i++) {
        const hd_type *type = &step->op->view[i].buffer->type;
        int64_t room = hd_type_local_bytes(type);

        length.sized |= hd_view_is_sized(&step->op->view[i]);
        length.room = room > length.room ? room : length.room;
    }
    return length.sized ? (hd_length){n, length.room, 1, true}
                        : hd_length_fixed(n);
}

void hd_length_space(const hd_step *step, hd_space *space,
                     hd_length out[HD_SPACE_DIMS])
{
    hd_shape view[HD_MAX_VIEWS];

    for (int i = 0; i < step->op->nviews; i++) {
        view[i].ndims = step->span[i].ndims;
        for (int d = 0; d < view[i].ndims; d++)
            view[i].extent[d] = hd_length_of(step, i, d).room;
    }
    hd_space_of(step->op, view, space);
    for (int d = 0; d < space->ndims; d++)
        out[d] = d < space->nparallel ? hd_length_of(step, 0, d)
                                      : hd_length_of(step, 1, space->dim[1][d]);
}

// At room, and nothing with more than one index is in front of what a run may
// leave gaps behind.
bool hd_length_is_dense(const hd_step *step, int i)
{
    hd_span span = step->span[i];
    bool longer = false;

    for (int d = 0; d < span.ndims; d++) {
        hd_length length = hd_length_of(step, i, d);

        if (length.sized && longer)
            return false;
        longer |= length.sized || length.room != 1;
        span.extent[d] = length.room;
    }
    return hd_span_is_dense(&span);
}
