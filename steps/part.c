// Where shapes differ, because one buffer renames the bytes of another, the
// ranges of the part that has fewer are looked up in the other one. That is
// exact; only past MANY_RUNS is overlap assumed.
#include "steps/part.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum { MANY_RUNS = 1 << 16 };

static void fill_frame(const hd_full *full, const hd_buffer *buffer,
                       hd_part_frame *frame)
{
    int64_t stride = 1;

    frame->buffer = buffer;
    frame->root = buffer->of != NULL ? buffer->of->id : buffer->id;
    frame->shape = buffer->id;
    frame->ndims = buffer->type.ndims;
    for (int d = frame->ndims - 1; d >= 0; d--) {
        frame->extent[d] = full != NULL ? hd_full_extent(full, buffer, d)
                                        : hd_dim_local(buffer->type.dim[d]);
        frame->stride[d] = stride;
        stride *= frame->extent[d];
    }
}

static bool same_shape(const hd_part_frame *a, const hd_part_frame *b)
{
    if (a->root != b->root || a->ndims != b->ndims)
        return false;
    for (int d = 0; d < a->ndims; d++)
        if (a->extent[d] != b->extent[d])
            return false;
    return true;
}

// Names of the same bytes are few as a rule, so each is compared with its root
// and with the one that was given last.
static void find_shape(hd_part_frame *frames, int *last, hd_part_frame *frame)
{
    const hd_part_frame *root = &frames[frame->root];
    const hd_part_frame *before = &frames[last[frame->root]];

    if (same_shape(root, frame))
        frame->shape = root->shape;
    else if (same_shape(before, frame))
        frame->shape = before->shape;
    last[frame->root] = frame->buffer->id;
}

hd_status hd_frames_create(const hd_module *module, const hd_full *full,
                           hd_diag *diag, hd_part_frame **out)
{
    hd_part_frame *frames;
    int *last;
    hd_status status = hd_clear_array(module->nbuffers + 1, sizeof *frames,
                                      diag, (void **)&frames);

    HD_TRY(status);
    status =
        hd_clear_array(module->nbuffers, sizeof *last, diag, (void **)&last);
    if (status != HD_OK) {
        free(frames);
        return status;
    }
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        hd_part_frame *frame = &frames[b->id];

        fill_frame(full, b, frame);
        if (b->of == NULL)
            last[b->id] = b->id;
        else
            find_shape(frames, last, frame);
    }
    free(last);
    *out = frames;
    return HD_OK;
}

void hd_frames_free(hd_part_frame *frames)
{
    for (hd_part_frame *f = frames; f != NULL && f->buffer != NULL; f++)
        free(f->lengths);
    free(frames);
}

hd_part hd_part_make(const hd_part_frame *frame, const hd_view *view,
                     const hd_span *span)
{
    hd_part part = {.offset = span->offset, .buffer = view->buffer->id};

    for (int d = 0; d < frame->ndims; d++)
        if (!hd_view_picks(view, d))
            part.kept |= 1u << d & 0xff;
    return part;
}

// From the last one back: steps one after the other have the same as a rule.
static int64_t find_lengths(const hd_part_frame *frame,
                            const hd_lengths *lengths)
{
    int64_t i = frame->nlengths;

    while (i > 0 && memcmp(&frame->lengths[i - 1], lengths, sizeof *lengths))
        i--;
    return i;
}

hd_status hd_part_of_view(hd_part_frame *frame, const hd_view *view,
                          const hd_span *span, hd_diag *diag, hd_part *out)
{
    hd_lengths lengths = {{0}};
    bool all = true;
    int64_t found;
    int kept = 0;

    *out = hd_part_make(frame, view, span);
    for (int d = 0; d < frame->ndims; d++) {
        lengths.extent[d] = hd_view_picks(view, d) ? 1 : span->extent[kept++];
        all &= hd_view_picks(view, d) || lengths.extent[d] == frame->extent[d];
    }
    if (all)
        return HD_OK;
    found = find_lengths(frame, &lengths);
    if (found == 0) {
        if (frame->nlengths + 1 == HD_MAX_LENGTHS)
            return hd_error(diag, HD_E0105, view->loc,
                            "ranges of %%%s of more than %d different lengths",
                            frame->buffer->name, HD_MAX_LENGTHS - 1);
        HD_TRY(hd_grow((void **)&frame->lengths, &frame->lengths_room,
                       frame->nlengths + 1, sizeof lengths, diag));
        frame->lengths[frame->nlengths++] = lengths;
        found = frame->nlengths;
    }
    out->ranges = (uint32_t)found & (HD_MAX_LENGTHS - 1);
    return HD_OK;
}

static bool keeps(const hd_part *part, int d)
{
    return (part->kept >> d & 1) != 0;
}

hd_span hd_part_span(const hd_part_frame *frame, const hd_part *part)
{
    const hd_buffer *buffer = frame->buffer;
    hd_span span = {.buffer = buffer->of != NULL ? buffer->of : buffer,
                    .offset = part->offset};

    for (int d = 0; d < frame->ndims; d++)
        if (keeps(part, d)) {
            span.extent[span.ndims] = hd_part_extent(frame, part, d);
            span.stride[span.ndims++] = frame->stride[d];
        }
    return span;
}

void hd_part_range(const hd_part_frame *frame, const hd_part *part,
                   int64_t *low, int64_t *high)
{
    int64_t last = part->offset;

    for (int d = 0; d < frame->ndims; d++)
        last += (hd_part_extent(frame, part, d) - 1) * frame->stride[d];
    *low = part->offset;
    *high = last + 1;
}

// ------------------------------------------------------------------- runs

// How many ranges; `tail` becomes the first dimension of one contiguous range.
// A dimension of no cells does not count.
static int64_t count_runs(const hd_part_frame *frame, const hd_part *part,
                          const int64_t *stride, int *tail, int64_t *length)
{
    int64_t n = 1, next = 1;
    int d = frame->ndims;

    for (; d > 0; d--) {
        if (stride[d - 1] == 0 || frame->extent[d - 1] == 1)
            continue;
        if (!keeps(part, d - 1) || stride[d - 1] != next)
            break;
        next *= hd_part_extent(frame, part, d - 1);
    }
    *tail = d;
    *length = next;
    for (; d > 0; d--)
        if (keeps(part, d - 1) && stride[d - 1] != 0) {
            if (n > INT64_MAX / frame->extent[d - 1])
                return INT64_MAX;
            n *= hd_part_extent(frame, part, d - 1);
        }
    return n;
}

// Counts up over the kept dimensions before `tail`; false past the last one.
static bool next_run(const hd_part_frame *frame, const hd_part *part,
                     const int64_t *stride, int tail, int64_t *index,
                     int64_t *at)
{
    for (int d = tail - 1; d >= 0; d--) {
        if (!keeps(part, d) || stride[d] == 0)
            continue;
        *at += stride[d];
        if (++index[d] < hd_part_extent(frame, part, d))
            return true;
        *at -= index[d] * stride[d];
        index[d] = 0;
    }
    return false;
}

bool hd_part_runs(const hd_part_frame *frame, const hd_part *part,
                  const int64_t *stride, int64_t limit, hd_run_fn *fn,
                  void *context)
{
    int64_t index[HD_MAX_DIMS] = {0}, at = 0, length, n;
    int tail;

    for (int d = 0; d < frame->ndims; d++)
        if ((!keeps(part, d) || part->ranges != 0) && stride[d] != 0)
            at += hd_part_index(frame, part, d) * stride[d];
    n = count_runs(frame, part, stride, &tail, &length);
    for (int64_t i = 0; i < n && i < limit; i++) {
        fn(context, at, at + length);
        next_run(frame, part, stride, tail, index, &at);
    }
    return n <= limit;
}

// ---------------------------------------------------------------- overlap

// The least sum of i_k * stride_k over the kept dimensions from d on that is at
// least `x`; -1 if there is none. What the inner dimensions reach together is
// less than one stride of the outer one.
static int64_t least_from(const hd_part_frame *frame, const hd_part *part,
                          int d, int64_t x)
{
    int64_t index, rest;

    while (d < frame->ndims && !keeps(part, d))
        d++;
    if (x <= 0)
        return 0;
    if (d == frame->ndims)
        return -1;
    index = x / frame->stride[d];
    if (index >= hd_part_extent(frame, part, d))
        return -1;
    rest = least_from(frame, part, d + 1, x - index * frame->stride[d]);
    if (rest >= 0)
        return index * frame->stride[d] + rest;
    return index + 1 < hd_part_extent(frame, part, d)
               ? (index + 1) * frame->stride[d]
               : -1;
}

typedef struct lookup {
    const hd_part_frame *frame;
    const hd_part *part;
    bool found;
} lookup;

static void look_up(void *context, int64_t low, int64_t high)
{
    lookup *l = context;
    int64_t least =
        l->found ? -1 : least_from(l->frame, l->part, 0, low - l->part->offset);

    l->found |= least >= 0 && l->part->offset + least < high;
}

// The parts have different shapes: `a` is looked up in `b`.
static bool overlap_by_runs(const hd_part_frame *frames, const hd_part *a,
                            const hd_part *b)
{
    const hd_part_frame *frame = &frames[a->buffer];
    lookup l = {.frame = &frames[b->buffer], .part = b};
    bool all = hd_part_runs(frame, a, frame->stride, MANY_RUNS, look_up, &l);

    return l.found || !all;
}

static int64_t runs_of(const hd_part_frame *frames, const hd_part *part)
{
    const hd_part_frame *frame = &frames[part->buffer];
    int64_t length;
    int tail;

    return count_runs(frame, part, frame->stride, &tail, &length);
}

// `fa` and `fb` are of one shape.
static bool overlap_in_shape(const hd_part_frame *fa, const hd_part *a,
                             const hd_part_frame *fb, const hd_part *b)
{
    bool ranges = a->ranges != 0 || b->ranges != 0;

    for (int d = 0; d < fa->ndims; d++) {
        int64_t i, k;

        if (!ranges && (keeps(a, d) || keeps(b, d)))
            continue;
        i = hd_part_index(fa, a, d);
        k = hd_part_index(fb, b, d);
        if (i + hd_part_extent(fa, a, d) <= k ||
            k + hd_part_extent(fb, b, d) <= i)
            return false;
    }
    return true;
}

bool hd_parts_overlap(const hd_part_frame *frames, const hd_part *a,
                      const hd_part *b)
{
    const hd_part_frame *fa = &frames[a->buffer], *fb = &frames[b->buffer];
    int64_t low_a, high_a, low_b, high_b;

    if (fa->root != fb->root)
        return false;
    if (fa->shape == fb->shape)
        return a->kept == b->kept && a->ranges == 0 && b->ranges == 0
                   ? a->offset == b->offset
                   : overlap_in_shape(fa, a, fb, b);
    hd_part_range(fa, a, &low_a, &high_a);
    hd_part_range(fb, b, &low_b, &high_b);
    if (low_a >= high_b || low_b >= high_a)
        return false;
    return runs_of(frames, a) <= runs_of(frames, b)
               ? overlap_by_runs(frames, a, b)
               : overlap_by_runs(frames, b, a);
}

void hd_part_print(const hd_part_frame *frame, const hd_part *part,
                   hd_text *text)
{
    int n = frame->ndims;

    while (n > 0 && keeps(part, n - 1) &&
           hd_part_extent(frame, part, n - 1) == frame->extent[n - 1])
        n--;
    hd_text_printf(text, "%%%s", frame->buffer->name);
    for (int d = 0; d < n; d++) {
        hd_text_puts(text, d == 0 ? "[" : ", ");
        if (keeps(part, d) && hd_part_extent(frame, part, d) < frame->extent[d])
            hd_text_printf(text, "%lld..%lld",
                           (long long)hd_part_index(frame, part, d),
                           (long long)(hd_part_index(frame, part, d) +
                                       hd_part_extent(frame, part, d)));
        else if (keeps(part, d))
            hd_text_puts(text, ":");
        else if (hd_dim_is_sharded(frame->buffer->type.dim[d]))
            hd_text_puts(text, "own");
        else
            hd_text_printf(text, "%lld",
                           (long long)hd_part_index(frame, part, d));
    }
    hd_text_puts(text, n > 0 ? "]" : "");
}
