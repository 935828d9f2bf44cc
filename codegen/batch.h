// The text of a kernel that does each element of a batch by itself, any number
// of threads an element: what its loop over these begins with.
#ifndef HD_CODEGEN_BATCH_H
#define HD_CODEGEN_BATCH_H

#include "codegen/emit.h"

HD_BEGIN_DECLS

// The text so far, and the lengths that a run says, which are parameters.
typedef struct hd_batch {
    const hd_step *step;
    hd_text text; // owned
    int64_t size[HD_KERNEL_SIZES];
    int sizes;
} hd_batch;

// How many dimensions the batch has.
int hd_batch_dims(const hd_batch *k);
// How long dimension `d` of a view is, by name; returns how long it is now.
int64_t hd_batch_length(hd_batch *k, const char *name, int view, int d);
// B0, B1, .. of the batch; returns how many elements it has now.
int64_t hd_batch_lengths(hd_batch *k);
// " * B0 * B1 ..", all of the batch.
void hd_batch_product(hd_batch *k);
// Counts of rows and of keys, where the step has any: the functions that take
// one for what it is and tell of what does not fit, the head's statements that
// do the latter, and `rows` and `keys` of element `b`, behind hd_batch_views:
// those that are counted, or all, S and N. COUNTED says whether any are.
void hd_batch_counts_functions(hd_batch *k);
void hd_batch_counts_check(hd_batch *k);
void hd_batch_counts(hd_batch *k);
// Counts of sequences, where the step has any: the functions that find one and
// tell of what does not fit, and the head's statements that do the latter.
// FIND_SEQUENCE(row) makes `from` and `past` those of the sequence that a row
// of element `b` is of, behind hd_batch_views, with past == from if it is of
// none; without sequences it does nothing. GROUPED says whether there are any.
void hd_batch_sequences_functions(hd_batch *k);
void hd_batch_sequences_check(hd_batch *k);
// Pointers v0, v1, .. to what the views have of element `b` of the batch, along
// which a view may repeat. `b` is 0 behind it.
void hd_batch_views(hd_batch *k);
// The kernel's head, with `first` and `step` of its threads.
void hd_batch_begin(hd_batch *k);
// Takes the text; so many threads have something to do.
hd_status hd_batch_end(hd_batch *k, int64_t threads, hd_text *out,
                       hd_kernel_grid *grid);

HD_END_DECLS

#endif
