// Products in tiles, by tensor cores where these take them: with groups, with
// counts of a dimension, and plain ones of any strides and dtypes.
#ifndef HD_CODEGEN_TILES_H
#define HD_CODEGEN_TILES_H

#include "codegen/kernel.h"

HD_BEGIN_DECLS

// Whether the step, a matmul, has pieces that tiles cover well, and no scales.
bool hd_tiles_fit(const hd_step *step);
hd_status hd_tiles_emit(const hd_step *step, hd_text *out,
                        hd_kernel_grid *grid);

// How the kernel for sm_90a does it.
typedef struct hd_tiles_choice {
    int rows, columns;        // of a block's tile
    int cluster_m, cluster_n; // blocks of a cluster, below or beside each other
    int warps;                // groups of four that multiply, of 64 rows or 128
    // The last tiles are shared by the depth, or all if there are few: so many
    // slices of 64 at least.
    bool split;
#define HD_TILES_SLICES 4
    int processors; // of the device
    // Of products that lie alike: tiles that have the second operand in common
    // follow each other, in place of those of one product.
    bool together;
} hd_tiles_choice;

// Whether that kernel takes the step.
bool hd_tiles_map(const hd_step *step);
// Products that one kernel does in their order, each behind words of its own
// and of those before it, which others write while it runs. They are alike.
enum { HD_TILES_PRODUCTS = 16, HD_TILES_WORDS = 4 }; // at most
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

// What a product is in numbers, at room: of a group those that it has where all
// are alike.
typedef struct hd_tiles_work {
    double m, n, k, pieces;
    bool splits; // the depth of all tiles is known
    bool ragged; // rows end within a tile, half of one on average
    bool plain;  // nothing follows the product
} hd_tiles_work;
hd_tiles_work hd_tiles_work_of(const hd_step *step);

// How many blocks, or clusters, are worth having of so many: where tiles are
// shared a share is no shorter than some slices.
static inline int64_t hd_tiles_units(bool split, int64_t tiles, int64_t slices,
                                     int64_t most)
{
    int64_t shares = split ? tiles * slices / HD_TILES_SLICES : 0;

    tiles = tiles < shares ? shares : tiles;
    return tiles < 1 ? 1 : tiles < most ? tiles : most;
}

// How many rows of tiles, of so many rows and columns, those that are under way
// at once best have, `units` of them: as much of the one operand as of the
// other. It is a power of two.
static inline int hd_tiles_band(int64_t units, int64_t rows, int64_t columns)
{
    int band = 1;

    while (2 * rows * band * band < units * columns)
        band *= 2;
    return band;
}

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
