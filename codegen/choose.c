// Which tiles a product of sm_90a is done in: all that there are, by how long
// they are expected to take. That is in cycles of a processor, which multiplies
// 2048 pairs of 16 bits in one.
#include <stdlib.h>

#include "codegen/tiles.h"

// Of the cycles that a tile needs, so many are for its products: expected, but
// where bench/results/2026-11-29-h200-tiles.txt says what was measured.
typedef struct shape {
    int rows, columns, warps;
    double rate;
} shape;

static const shape shapes[] = {
    {128, 256, 2, 1.00}, {128, 240, 2, .99}, {128, 224, 2, .99},
    {128, 208, 2, .985}, {128, 192, 2, .98}, {128, 176, 2, .975},
    {128, 160, 2, .97},  {128, 144, 2, .95}, {128, 128, 2, .93},
    {128, 112, 2, .90},  {128, 96, 2, .87},  {128, 64, 2, .75},
    {64, 256, 1, .95},   {64, 224, 1, .93},  {64, 192, 1, .91},
    {64, 160, 1, .88},   {64, 128, 1, .85},  {64, 96, 1, .75},
    {64, 64, 1, .60},
};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

static const int clusters[][2] = {{2, 1}, {1, 1}, {1, 2}};
enum { NCLUSTERS = sizeof clusters / sizeof *clusters, BK = 64 };

// Beside what follows a product registers do not hold more of it; nor beside
// what each product of a row has of its own.
enum { MOST_PLAIN = 256, MOST_OWN = 240, MOST_COLUMNS = 208 };

#define PAIRS_A_CYCLE 2048.
#define BYTES_A_CYCLE 2400. // of the device's memory
#define TILE_CYCLES 500.    // that begin and end a tile
#define SPLIT_TILES .5      // that sharing the last ones costs, of one
#define BYTES_OF_SUMS 32.   // of a tile's that a processor takes in a cycle
#define ALONE .015          // that blocks without a cluster take longer
#define UNEVEN .3           // likewise where lines begin at no multiple of 128
#define NARROW .3           // that tiles of 64 rows do: second operands' loads

typedef hd_tiles_work work;

typedef struct candidate {
    hd_tiles_choice choice;
    double cycles;
} candidate;

static double cover(double n, double tile)
{
    return (double)(int64_t)((n + tile - 1) / tile);
}

static double tiles_of(const work *w, const shape *s, const int cluster[2])
{
    double rows = s->rows * cluster[0];
    double down = w->ragged ? w->m / rows + (cluster[0] > 1 ? .5 : .25)
                            : cover(w->m, rows);

    return down * cover(w->n, s->columns * cluster[1]) * w->pieces;
}

// Of `n` products in a row, whose depth is the same.
static double cycles_of(const work *w, int n, const shape *s,
                        const int cluster[2], int processors, bool split)
{
    double tiles = 0, bytes = 0;
    double units = processors / (cluster[0] * cluster[1]);
    double turns, sums = 0;
    double tile =
        cover(w->k, BK) * BK * s->rows * s->columns / (PAIRS_A_CYCLE * s->rate);

    for (int i = 0; i < n; i++) {
        const work *p = &w[i];

        tiles += tiles_of(p, s, cluster);
        bytes += 2 * p->pieces * (p->m * p->k + p->n * p->k + p->m * p->n) /
                 BYTES_A_CYCLE;
    }
    if (split && tiles > units) {
        turns = tiles / units + SPLIT_TILES;
    } else if (split && tiles < units) {
        double shares = (double)hd_tiles_units(
            true, (int64_t)tiles, (int64_t)cover(w->k, BK), (int64_t)units);

        turns = tiles / shares;
        if (shares > tiles)
            sums =
                cover(shares, tiles) * s->rows * s->columns * 4 / BYTES_OF_SUMS;
    } else {
        turns = cover(tiles, units);
    }
    if (cluster[0] * cluster[1] == 1)
        tile *= 1 + ALONE;
    if (w->k * 2 / 128 != cover(w->k * 2, 128) && cluster[0] == 1)
        tile *= 1 + UNEVEN;
    if (s->rows == 64 && (w->m > 64 || w->ragged))
        tile *= 1 + NARROW;
    tile = turns * tile + (turns > 1 ? turns : 1) * TILE_CYCLES + sums;
    return (tile > bytes ? tile : bytes) + .05 * tile;
}

static int by_cycles(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    return (x->cycles > y->cycles) - (x->cycles < y->cycles);
}

// Of one shape each the best cluster, and whether the last tiles are shared.
static candidate best_of(const work *w, int n, const shape *s, int processors)
{
    candidate best = {.cycles = -1};

    for (int i = 0; i < NCLUSTERS; i++)
        for (int split = 0; split <= w->splits; split++) {
            double cycles =
                cycles_of(w, n, s, clusters[i], processors, split == 1);

            if (best.cycles >= 0 && cycles >= best.cycles)
                continue;
            best.cycles = cycles;
            best.choice = (hd_tiles_choice){
                s->rows,  s->columns, clusters[i][0], clusters[i][1],
                s->warps, split == 1, processors};
        }
    return best;
}

static int most_columns(const work *w, int n)
{
    if (!w[0].plain)
        return MOST_COLUMNS;
    for (int i = 1; i < n; i++)
        if (w[i].m != w[0].m || w[i].n != w[0].n)
            return MOST_OWN;
    return MOST_PLAIN;
}

int hd_tiles_choose(const hd_tiles_row *row, int processors, int room,
                    hd_tiles_choice *out)
{
    work w[HD_TILES_PRODUCTS] = {{0}};
    candidate all[NSHAPES];
    int n = 0, most;

    for (int i = 0; i < row->products; i++)
        w[i] = hd_tiles_work_of(row->product[i]);
    most = most_columns(w, row->products);
    for (int i = 0; i < NSHAPES; i++)
        if (shapes[i].columns <= most)
            all[n++] = best_of(w, row->products, &shapes[i], processors);
    qsort(all, (size_t)n, sizeof *all, by_cycles);
    n = n < room ? n : room;
    for (int i = 0; i < n; i++)
        out[i] = all[i].choice;
    return n;
}
