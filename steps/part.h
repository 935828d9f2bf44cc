// Parts of buffers: what a step reads or writes, as few bytes as can say it. A
// view fixes some dimensions of a row-major shape and keeps the others, so a
// part is an offset and a bit a dimension; two parts of one shape overlap
// unless there is a dimension of which they have no index in common. Where
// views keep ranges, how long these are stands in a table of the buffer's, and
// the offset is that of their first indices.
#ifndef HD_STEPS_PART_H
#define HD_STEPS_PART_H

#include "base/text.h"
#include "ir/walk.h"

HD_BEGIN_DECLS

// A declared buffer as parts see it.
typedef struct hd_part_frame {
    const hd_buffer *buffer;
    int root;  // id of the buffer whose bytes these are
    int shape; // id of the first buffer with the same bytes and extents
    int ndims;
    int64_t extent[HD_MAX_DIMS]; // local
    int64_t stride[HD_MAX_DIMS];
    struct hd_lengths *lengths; // owned: what parts with ranges keep
    int64_t nlengths, lengths_room;
} hd_part_frame;

// Of each dimension, 1 where it is not kept.
typedef struct hd_lengths {
    int64_t extent[HD_MAX_DIMS];
} hd_lengths;

#define HD_MAX_LENGTHS (1 << 17) // of one buffer, less 1

typedef struct hd_part {
    int64_t offset;       // in elements
    int32_t buffer;       // id of the declared buffer: its frame
    uint32_t kept : 8;    // bit d: dimension d is kept
    uint32_t access : 2;  // hd_access: READ, WRITE or UPDATE
    uint32_t view : 5;    // its number in the step
    uint32_t ranges : 17; // 0: all of what it keeps; else one of its frame's
                          // lengths, from 1
} hd_part;

// One frame a buffer, by id, and one without a buffer at the end. `full` is
// NULL, or what a rank has that stands for others.
hd_status hd_frames_create(const hd_module *module, const hd_full *full,
                           hd_diag *diag, hd_part_frame **out);
void hd_frames_free(hd_part_frame *frames);
// Of a view that keeps all of its dimensions' indices.
hd_part hd_part_make(const hd_part_frame *frame, const hd_view *view,
                     const hd_span *span);
// Of any view.
hd_status hd_part_of_view(hd_part_frame *frame, const hd_view *view,
                          const hd_span *span, hd_diag *diag, hd_part *out);
// The span that it was made of.
hd_span hd_part_span(const hd_part_frame *frame, const hd_part *part);

static inline bool hd_part_writes(const hd_part *part)
{
    return (part->access & HD_ACCESS_WRITE) != 0;
}

static inline bool hd_part_reads(const hd_part *part)
{
    return (part->access & HD_ACCESS_READ) != 0;
}

// How many indices of a dimension the part has: 1 if it does not keep it.
static inline int64_t hd_part_extent(const hd_part_frame *frame,
                                     const hd_part *part, int d)
{
    if (part->ranges != 0)
        return frame->lengths[part->ranges - 1].extent[d];
    return (part->kept >> d & 1) != 0 ? frame->extent[d] : 1;
}

// How many of them there are on some rank, where blocks that turn count as
// full and all of them as many.
static inline int64_t hd_part_length(const hd_part_frame *frame,
                                     const hd_part *part, int d)
{
    int64_t n = hd_part_extent(frame, part, d);
    int64_t most = hd_dim_local(frame->buffer->type.dim[d]);

    return n < most ? n : most;
}

// The first index that the part has of a dimension.
static inline int64_t hd_part_index(const hd_part_frame *frame,
                                    const hd_part *part, int d)
{
    return part->offset / frame->stride[d] % frame->extent[d];
}

// The range of the root from the first element to past the last one.
void hd_part_range(const hd_part_frame *frame, const hd_part *part,
                   int64_t *low, int64_t *high);
bool hd_parts_overlap(const hd_part_frame *frames, const hd_part *a,
                      const hd_part *b);

// The ranges of a part in a space where dimension d takes `stride[d]` cells
// an index, or none at all if that is 0. Calls `fn` with each from low to high;
// false if there are more than `limit`, after that many calls.
typedef void hd_run_fn(void *context, int64_t low, int64_t high);
bool hd_part_runs(const hd_part_frame *frame, const hd_part *part,
                  const int64_t *stride, int64_t limit, hd_run_fn *fn,
                  void *context);

// "%ag[3]"
void hd_part_print(const hd_part_frame *frame, const hd_part *part,
                   hd_text *text);

HD_END_DECLS

#endif
