// How long the dimensions of a step are: numbers in a kernel's text, or, where
// each run says them, parameters, so that one text does for all runs.
#ifndef HD_CODEGEN_LENGTH_H
#define HD_CODEGEN_LENGTH_H

#include "ir/space.h"

HD_BEGIN_DECLS

typedef struct hd_length {
    int64_t now;  // of the step at hand
    int64_t room; // in no run more
    int64_t unit; // in every run a multiple of it
    bool sized;   // a run says it; else all three are one number
} hd_length;

hd_length hd_length_fixed(int64_t n);
// So many times as long.
hd_length hd_length_times(hd_length length, int64_t n);

// How long dimension `d` of the step's span `i` is.
hd_length hd_length_of(const hd_step *step, int i, int d);
// Of `n` elements or bytes, which are some of those that the step has now.
hd_length hd_length_of_part(const hd_step *step, int64_t n);
// What the step iterates over in every run, and how long that is. The space's
// own extents are its room.
void hd_length_space(const hd_step *step, hd_space *space,
                     hd_length out[HD_SPACE_DIMS]);
// Whether span `i` is one contiguous range in every run.
bool hd_length_is_dense(const hd_step *step, int i);

HD_END_DECLS

#endif
