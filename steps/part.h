// Parts of buffers: what a step reads or writes, as few bytes as can say it. A
// view fixes some dimensions of a row-major shape and keeps the others, so a
// part is an offset and a bit a dimension; two parts of one shape overlap
// unless a dimension that both fix has different indices.
#ifndef HD_STEPS_PART_H
#define HD_STEPS_PART_H

#include "base/text.h"
#include "ir/walk.h"

HD_BEGIN_DECLS

// A declared buffer as parts see it.
typedef struct hd_frame {
    const hd_buffer *buffer;
    int root;  // id of the buffer whose bytes these are
    int shape; // id of the first buffer with the same bytes and extents
    int ndims;
    int64_t extent[HD_MAX_DIMS]; // local
    int64_t stride[HD_MAX_DIMS];
} hd_frame;

typedef struct hd_part {
    int64_t offset; // in elements
    int32_t buffer; // id of the declared buffer: its frame
    uint8_t kept;   // bit d: dimension d is kept whole
    uint8_t access; // hd_access: READ, WRITE or UPDATE
    uint8_t view;   // its number in the step
} hd_part;

// One frame a buffer, by id; the caller frees it.
hd_status hd_frames_create(const hd_module *module, hd_diag *diag,
                           hd_frame **out);
hd_part hd_part_make(const hd_frame *frame, const hd_view *view,
                     const hd_span *span);
// The span that it was made of.
hd_span hd_part_span(const hd_frame *frame, const hd_part *part);

static inline bool hd_part_writes(const hd_part *part)
{
    return (part->access & HD_ACCESS_WRITE) != 0;
}

static inline bool hd_part_reads(const hd_part *part)
{
    return (part->access & HD_ACCESS_READ) != 0;
}

// The index that the part picks of a dimension that it does not keep.
static inline int64_t hd_part_index(const hd_frame *frame, const hd_part *part,
                                    int d)
{
    return part->offset / frame->stride[d] % frame->extent[d];
}

// The range of the root from the first element to past the last one.
void hd_part_range(const hd_frame *frame, const hd_part *part, int64_t *low,
                   int64_t *high);
bool hd_parts_overlap(const hd_frame *frames, const hd_part *a,
                      const hd_part *b);

// The ranges of a part in a space where dimension d takes `stride[d]` cells
// an index, or none at all if that is 0. Calls `fn` with each from low to high;
// false if there are more than `limit`, after that many calls.
typedef void hd_run_fn(void *context, int64_t low, int64_t high);
bool hd_part_runs(const hd_frame *frame, const hd_part *part,
                  const int64_t *stride, int64_t limit, hd_run_fn *fn,
                  void *context);

// "%ag[3]"
void hd_part_print(const hd_frame *frame, const hd_part *part, hd_text *text);

HD_END_DECLS

#endif
