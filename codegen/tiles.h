// Products in tiles, by tensor cores where these take them: with groups, with
// counts of a dimension, and plain ones of any strides and dtypes.
#ifndef HD_CODEGEN_TILES_H
#define HD_CODEGEN_TILES_H

#include "codegen/kernel.h"
#include "tiles/choose.h"

HD_BEGIN_DECLS

// Whether the step, a matmul, has pieces that tiles cover well, and no scales.
bool hd_tiles_fit(const hd_step *step);
hd_status hd_tiles_emit(const hd_step *step, hd_text *out,
                        hd_kernel_grid *grid);

// Whether that kernel takes the step.
bool hd_tiles_map(const hd_step *step);
// Products that one kernel does in their order, each behind words of its own
// and of those before it, which others write while it runs. They are alike.
enum { HD_TILES_WORDS = 4 }; // at most
typedef struct hd_tiles_row {
    const hd_step *product[HD_TILES_PRODUCTS]; // borrowed
    int products;
    int words; // that each waits for at most; 0: none does
    // Whether its first operand comes from elsewhere while the kernel runs,
    // behind those of the products ahead of it.
    bool late[HD_TILES_PRODUCTS];
    int64_t limit; // ns that a wait for one may take
} hd_tiles_row;

hd_tiles_row hd_tiles_row_of(const hd_step *step); // it alone

// Whether one kernel may do both, and others alike: they differ in rows and
// columns at most.
bool hd_tiles_are_alike(const hd_step *a, const hd_step *b);

// What is at hand for the row, the best of what is expected first, at most
// `room`: how many.
int hd_tiles_choose(const hd_tiles_row *row, int processors, int room,
                    hd_tiles_choice *out);
// Behind the addresses of all products' views, in their order, is that of an
// hd_kernel_miscount, and the first one's step's number. Behind these are those
// of memory for partial sums, of hd_tiles_parts bytes, and of hd_tiles_words
// words of 32 bits, all 0 before and after; there are none without `split`.
// Where products wait, `words` addresses of each follow, 0 for none, and what
// these words hold, or more, once they are told.
hd_status hd_tiles_emit_choice(const hd_tiles_row *row,
                               const hd_tiles_choice *choice, hd_text *out,
                               hd_kernel_grid *grid);
size_t hd_tiles_parts(const hd_tiles_choice *choice);
size_t hd_tiles_words(const hd_tiles_choice *choice);

HD_END_DECLS

#endif
