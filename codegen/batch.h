// What the text of a kernel that does each element of a batch by itself, any
// number of threads an element, is told ahead: lengths, and where the views
// are.
#ifndef HD_CODEGEN_BATCH_H
#define HD_CODEGEN_BATCH_H

#include "codegen/kernel.h"

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
// A number by name: a parameter if each run says another one.
void hd_batch_number(hd_batch *k, const char *name, int64_t now, bool sized);
// BATCH, how many elements it has, and VIEWS, statements that declare pointers
// v0, v1, .. to what the views have of element `b`, along which a view may
// repeat. `b` is 0 behind them. Returns how many elements there are now.
int64_t hd_batch_begin(hd_batch *k);
// Of an attention, which may have counts of rows and of keys, or of sequences.
// COUNTED and GROUPED say whether there are any. CHECK_COUNTS, statements of
// the kernel's head behind `first` and `step`, tell of counts that do not fit.
// Behind VIEWS, COUNTS declare `rows` and `keys` of element `b`: those that are
// counted, or all, S and N; and FIND_KEYS(row) makes `from` and `past` those of
// the keys that are of the row's sequence, and FIND_ROWS(key) those of the rows
// that are of the key's, with past == from if there are none.
void hd_batch_counts(hd_batch *k);
// Takes the text, with a file of codegen/kernels behind it; so many threads
// have something to do.
hd_status hd_batch_end(hd_batch *k, const unsigned char *cu, int64_t threads,
                       hd_text *out, hd_kernel_grid *grid);

HD_END_DECLS

#endif
