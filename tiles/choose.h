// Which tiles of sm_90a products are done in, and how long these take: what the
// driver plans by, and what it is predicted to take.
#ifndef HD_TILES_CHOOSE_H
#define HD_TILES_CHOOSE_H

#include <heddle/heddle.h>

HD_BEGIN_DECLS

// How the kernel for sm_90a does it.
typedef struct hd_tiles_choice {
    int rows, columns; // of a block's tile
    // Blocks of a cluster, below and beside each other.
    int cluster_m, cluster_n;
    int warps; // groups of four that multiply, of 64 rows or more
    // They take a tile each, in turns, or share one by its columns in place of
    // its rows: where no counts leave rows out.
    bool alternate, sideways;
    bool turned; // of the result, columns are the tile's rows
    // The last tiles are shared by the depth, or all if there are few: so many
    // slices of 64 at least.
    bool split;
#define HD_TILES_SLICES 4
    int processors;                   // of the device
#define HD_TILES_MULTIPROCESSORS 1024 // at most
#define HD_TILES_LEAST_SIDE 64        // rows and columns of a product
    // Of products that lie alike: tiles that have the second operand in common
    // follow each other, in place of those of one product.
    bool together;
} hd_tiles_choice;

// What a product is in numbers, at room: of a group those that it has where all
// are alike.
typedef struct hd_tiles_work {
    double m, n, k, pieces;
    bool splits;   // the depth of all tiles is known
    bool ragged;   // rows end within a tile, half of one on average
    bool plain;    // nothing follows the product
    bool turns;    // the result may be made turned
    bool along[2]; // each operand is dense along the depth
    // Of 8 bits: `k` is in twos, and what is added up of a slice stands beside
    // the sums. A tile has whole panels of 64 columns, of which each has a
    // scale.
    bool promoted, panels;
} hd_tiles_work;

// Products that one kernel does in their order; their depth is the same.
enum { HD_TILES_PRODUCTS = 16 }; // at most
typedef struct hd_tiles_job {
    int products;
    hd_tiles_work work[HD_TILES_PRODUCTS];
    // Whether its first operand comes from elsewhere while the kernel runs,
    // behind those of the products ahead of it.
    bool late[HD_TILES_PRODUCTS];
    bool mixed; // though of the same rows and columns, they lie unlike
} hd_tiles_job;

// How many blocks, or clusters, are under way at once. Those of more than two
// do not fit in everywhere: of an H200's 132 processors they have 120.
static inline int64_t hd_tiles_most(const hd_tiles_choice *choice)
{
    int cluster = choice->cluster_m * choice->cluster_n;
    int most = cluster > 2 ? choice->processors * 10 / 11 : choice->processors;

    return most < cluster ? 1 : most / cluster;
}

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

// What is at hand for the job, the best of what is expected first, at most
// `room`: how many.
int hd_tiles_pick(const hd_tiles_job *job, int processors, int room,
                  hd_tiles_choice *out);
// How many cycles, at HD_TILES_HERTZ, the first `n` products from `first` on
// take, of which none is late.
#define HD_TILES_HERTZ 1.57e9
double hd_tiles_cycles(const hd_tiles_job *job, int first, int n,
                       const hd_tiles_choice *choice);
// The share of the device that they keep busy while one product takes so long:
// what its last tiles leave idle another kernel can have.
double hd_tiles_busy(const hd_tiles_work *work, const hd_tiles_choice *choice);

HD_END_DECLS

#endif
