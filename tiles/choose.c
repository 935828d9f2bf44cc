// Which tiles a product of sm_90a is done in: all that there are, by how long
// they are expected to take. That is in cycles of a processor, which multiplies
// 2048 pairs of 16 bits in one.
#include <stdlib.h>
#include <string.h>

#include "tiles/choose.h"

// How groups of warps share the work: a tile by its rows, or by its columns, or
// tiles in turns.
typedef enum way { BY_ROWS, BY_COLUMNS, IN_TURNS } way;

// Of so many rows tiles of all numbers of columns in steps.
static const struct {
    int rows, least, most, step;
    way way;
} shapes[] = {
    {128, 64, 256, 16, BY_ROWS}, {256, 96, 128, 16, BY_ROWS},
    {64, 64, 256, 32, BY_ROWS},  {192, 128, 176, 16, BY_COLUMNS},
    {128, 64, 176, 8, IN_TURNS}, {192, 64, 112, 8, IN_TURNS},
};
enum { NSHAPES = sizeof shapes / sizeof *shapes, MOST_CANDIDATES = 64 };

// Blocks of one below each other have columns in common, those beside each
// other rows.
static const int clusters[][2] = {{2, 1}, {1, 1}, {1, 2}, {4, 1},
                                  {1, 4}, {2, 2}, {4, 2}, {2, 4}};
enum { NCLUSTERS = sizeof clusters / sizeof *clusters, BK = 64 };
enum { FEW_CLUSTERS = 3 }; // that are tried for products in a row

// Fitted to 2,280 times of 78 shapes on an H200, of which the chosen one is
// 1.4 % behind the best in the mean: bench/results/2026-11-29-h200-tiles.txt.
#define PAIRS_A_CYCLE (2048 * .9126)
#define ALTERNATE_PAIRS 2048. // of groups of warps that take turns
#define PROMOTED_CYCLES 150.  // that adding up a slice of 8 bits takes
#define LINES_A_CYCLE .4493   // of 128 bytes, to a processor
#define MISSING 4.21          // as many takes one that is not there
#define CACHED_A_CYCLE 103.5  // lines, to all processors
#define MEMORY_A_CYCLE 18.1   // likewise, from memory
#define LEAST_OF_A_SLICE 202. // cycles
#define BESIDE .1526          // what takes less than the longest adds of itself
#define UNEVEN .6116          // of lines that lie across two of 128 bytes
#define SHARED_COLUMNS .5     // of what a cluster saves of them
#define SHARED_ROWS .8317     // likewise
#define TALL 1.069            // that tiles of more than 128 rows take longer
#define CYCLES_OF_A_SUM .0297 // that each element of a tile takes at its end
#define ALTERNATE_SUM .0201   // likewise, but for those of the last one
#define SPLIT_TILES .1067     // that sharing the last ones takes, of one
#define SUMS_CYCLES 10997.    // until sums of others are there
#define SUMS_A_CYCLE 4.81     // that a processor takes then
#define START_CYCLES 3630.    // ahead of the first slice and behind the last
#define TOGETHER 1.03         // that products done so should save
#define LEAST_CYCLES (5e-6 * HD_TILES_HERTZ) // that a kernel takes
// Of copies between two H200s.
#define FIRST_COPY_CYCLES (11.8e-6 * HD_TILES_HERTZ)
#define COPY_CYCLES (2.9e-6 * HD_TILES_HERTZ)
#define LINK_A_CYCLE (350e9 / HD_TILES_HERTZ) // bytes

typedef hd_tiles_work work;

typedef struct candidate {
    hd_tiles_choice choice;
    double cycles;
} candidate;

static double cover(double n, double tile)
{
    return (double)(int64_t)((n + tile - 1) / tile);
}

// Of a group there may be fewer than a row in the mean.
static double at_least(double tiles)
{
    return tiles < 1 ? 1 : tiles;
}

static double tiles_of(const work *w, const hd_tiles_choice *c)
{
    double rows = c->rows * c->cluster_m;
    double down = w->ragged ? w->m / rows + (c->cluster_m > 1 ? .5 : .25)
                            : cover(w->m, rows);

    return down * cover(w->n, c->columns * c->cluster_n) * w->pieces;
}

// As the tiles have it.
static work turn(work w, const hd_tiles_choice *c)
{
    const work is = w;

    if (c->turned) {
        w.m = is.n;
        w.n = is.m;
        w.along[0] = is.along[1];
        w.along[1] = is.along[0];
    }
    return w;
}

// Products in a row, in one.
static work join(const work *w, int n)
{
    work all = w[0];

    for (int i = 1; i < n; i++) {
        all.m += w[i].m;
        all.n = all.n > w[i].n ? all.n : w[i].n;
    }
    return all;
}

static double area_of(const hd_tiles_choice *c)
{
    return (double)c->rows * c->columns;
}

// Lines of a slice that all blocks that are under way read, of `n` products one
// behind the other: of as many rows of tiles as a band has, and as many columns
// as there are then, or of all of a product and the next ones.
static double lines_of_all(const work *w, int n, const hd_tiles_choice *c,
                           double under_way)
{
    double rows = c->rows * c->cluster_m, columns = c->columns * c->cluster_n;
    double down = at_least(cover(w->m, rows)), across = cover(w->n, columns);
    double band =
        hd_tiles_band(hd_tiles_most(c), (int64_t)rows, (int64_t)columns);
    double products = cover(under_way, down * across);

    if (products > 1 && n > 1)
        return (products < n ? products : n) * (c->turned ? w->n : w->m) +
               (c->turned ? w->m : w->n);
    down = down < band ? down : band;
    across = cover(under_way, down);
    rows = down * rows < w->m ? down * rows : w->m;
    columns = across * columns < w->n ? across * columns : w->n;
    return rows + columns;
}

// How many times as long lines take to load for lying across two of 128 bytes,
// as all do but those that begin at a multiple of it.
static double uneven(const work *w)
{
    int64_t bytes = (int64_t)w->k * 2;
    double even = (double)(bytes & -bytes) / 128;

    return 1 + (even < 1 ? UNEVEN * (1 - even) : 0);
}

// As long as so many lines each block of a cluster takes to load its part of
// `n`, in the mean.
static double lines_of(double n, int side, int blocks)
{
    double there = n / (at_least(cover(n, side * blocks)) * blocks);

    return there + MISSING * (side - there);
}

// Of a cluster of so many blocks, of what one takes.
static double cluster_takes(const hd_tiles_choice *c)
{
    switch (c->cluster_m * c->cluster_n) {
    case 2:
        return .983;
    case 4:
        return 1.025;
    case 8:
        return 1.046;
    default:
        return 1;
    }
}

// Where `times` blocks share a tile.
static double slice_cycles(const work *w, int n, const hd_tiles_choice *c,
                           double under_way, double times)
{
    double rows = w->ragged ? c->rows : lines_of(w->m, c->rows, c->cluster_m);
    double columns = lines_of(w->n, c->columns, c->cluster_n);
    double of_cluster = c->rows * c->cluster_m + c->columns * c->cluster_n;
    double takes[] = {
        w->promoted ? area_of(c) * BK / ALTERNATE_PAIRS + PROMOTED_CYCLES
                    : area_of(c) * BK /
                          (c->alternate ? ALTERNATE_PAIRS : PAIRS_A_CYCLE),
        (rows / (1 + SHARED_ROWS * (c->cluster_n - 1)) +
         columns / (1 + SHARED_COLUMNS * (c->cluster_m - 1))) *
            uneven(w) / LINES_A_CYCLE,
        under_way * times * of_cluster * uneven(w) / CACHED_A_CYCLE,
        times * lines_of_all(w, n, c, under_way) / MEMORY_A_CYCLE};
    double longest = 0, sum = 0;

    for (int i = 0; i < 4; i++) {
        longest = longest > takes[i] ? longest : takes[i];
        sum += takes[i];
    }
    sum = BESIDE * (sum - longest);
    longest = longest > LEAST_OF_A_SLICE ? longest : LEAST_OF_A_SLICE;
    return (longest + sum) * cluster_takes(c) * (c->rows > 128 ? TALL : 1);
}

// Until the sums of so many other blocks are added.
static double sums_cycles(const hd_tiles_choice *c, double others)
{
    return SUMS_CYCLES + others * area_of(c) / SUMS_A_CYCLE;
}

static double end_cycles(const hd_tiles_choice *c)
{
    return area_of(c) * (c->alternate ? ALTERNATE_SUM : CYCLES_OF_A_SUM);
}

static double cycles_of(const work *w, const hd_tiles_choice *c)
{
    double units = (double)hd_tiles_most(c);
    double tiles = tiles_of(w, c), slices = cover(w->k, BK);
    double shares = tiles < units ? tiles : units;
    double turns = cover(tiles, units), ends = turns, sums = 0;

    if (c->split && tiles > units) {
        turns = tiles / units + SPLIT_TILES;
        ends++;
        sums = sums_cycles(c, 1);
    } else if (c->split && tiles < units) {
        shares = (double)hd_tiles_units(true, (int64_t)tiles, (int64_t)slices,
                                        (int64_t)units);
        turns = tiles / shares;
        if (shares > tiles)
            sums = sums_cycles(c, cover(shares, tiles));
    }
    if (c->alternate)
        ends--; // the last one's
    return START_CYCLES + ends * end_cycles(c) + sums +
           turns * slices *
               slice_cycles(w, 1, c, shares < tiles ? shares : tiles,
                            shares > tiles ? shares / tiles : 1);
}

// ------------------------------------------------------- products in a row

// What a block, or cluster, of those that do a row has done by when.
typedef struct course {
    int products;
    int64_t from[HD_TILES_PRODUCTS + 1]; // of its tiles the first one
    double due[HD_TILES_PRODUCTS];       // when its first operand is there
    double slice, end;                   // cycles
    bool together;
} course;

static int product_of(const course *c, int64_t tile)
{
    int product = 0;

    if (c->together)
        return (int)(tile % c->products);
    while (tile >= c->from[product + 1])
        product++;
    return product;
}

// So many slices of tiles of the product, one tile behind the other.
static double after(const course *c, double now, int product, int64_t tiles,
                    double slices)
{
    double due = c->due[product];

    if (tiles == 0)
        return now;
    return (now > due ? now : due) + slices * c->slice + (double)tiles * c->end;
}

// How many of `unit`, `unit` + `units`, .. are from `from` on, before `past`.
static int64_t turns_of(int64_t unit, int64_t units, int64_t from, int64_t past)
{
    int64_t before = from > unit ? (from - unit + units - 1) / units : 0;
    int64_t all = past > unit ? (past - unit + units - 1) / units : 0;

    return all > before ? all - before : 0;
}

// Of the first `whole` tiles those of a block. Together, all but its first one
// are taken for such as wait for all products.
static double whole_cycles(const course *c, int64_t unit, int64_t units,
                           int64_t whole, double slices)
{
    int n = c->products;
    int64_t tiles = turns_of(unit, units, 0, whole);
    double now = 0;

    if (c->together && tiles > 0) {
        now = after(c, now, (int)(unit % n), 1, slices);
        return after(c, now, n - 1, tiles - 1, (double)(tiles - 1) * slices);
    }
    for (int i = 0; i < n && c->from[i] < whole; i++) {
        int64_t past = c->from[i + 1] < whole ? c->from[i + 1] : whole;

        tiles = turns_of(unit, units, c->from[i], past);
        now = after(c, now, i, tiles, (double)tiles * slices);
    }
    return now;
}

// The last of `units` to end, as shares go (kernels/tiles.cu).
static double course_cycles(const course *c, int64_t units, int64_t slices,
                            bool split)
{
    int64_t tiles = c->from[c->products], whole = tiles, shared;
    double last = 0;

    if (split && tiles % units > 0)
        whole = tiles > units ? (tiles / units - 1) * units : 0;
    shared = (tiles - whole) * slices;
    for (int64_t unit = 0; unit < units; unit++) {
        int64_t at = shared * unit / units, end = shared * (unit + 1) / units;
        double now = whole_cycles(c, unit, units, whole, (double)slices);

        while (at < end) {
            int64_t past = (at / slices + 1) * slices;

            past = past < end ? past : end;
            now = after(c, now, product_of(c, whole + at / slices), 1,
                        (double)(past - at));
            at = past;
        }
        last = now > last ? now : last;
    }
    return last;
}

static void list_due(course *c, const hd_tiles_job *job)
{
    double at = 0;

    for (int i = 0; i < job->products; i++) {
        const work *w = &job->work[i];

        if (job->late[i])
            at += (at > 0 ? COPY_CYCLES : FIRST_COPY_CYCLES) +
                  2 * w->m * w->k / LINK_A_CYCLE;
        c->due[i] = at;
    }
}

static double row_cycles(const hd_tiles_job *job, const hd_tiles_choice *choice)
{
    work w[HD_TILES_PRODUCTS], all;
    int64_t units = hd_tiles_most(choice), tiles;
    int64_t slices = (int64_t)cover(job->work[0].k, BK);
    course c = {.products = job->products,
                .together = choice->together,
                .end = end_cycles(choice)};
    double sums = 0;

    for (int i = 0; i < job->products; i++) {
        w[i] = turn(job->work[i], choice);
        c.from[i + 1] = c.from[i] + (int64_t)tiles_of(&w[i], choice);
    }
    list_due(&c, job);
    tiles = c.from[job->products];
    units = hd_tiles_units(choice->split, tiles, slices, units);
    all =
        choice->together ? turn(join(job->work, job->products), choice) : w[0];
    c.slice = slice_cycles(&all, choice->together ? 1 : job->products, choice,
                           (double)(units < tiles ? units : tiles),
                           units > tiles ? (double)units / (double)tiles : 1);
    if (choice->split && tiles % units > 0)
        sums = sums_cycles(choice, cover((double)units, (double)tiles)) +
               (tiles > units ? SPLIT_TILES * (double)slices * c.slice : 0);
    return START_CYCLES + course_cycles(&c, units, slices, choice->split) +
           sums;
}

// ------------------------------------------------------------------ choosing

static int by_cycles(const void *a, const void *b)
{
    const candidate *x = a, *y = b;

    return (x->cycles > y->cycles) - (x->cycles < y->cycles);
}

// Whether they may be done together: they have the same rows and columns, which
// lie as far apart.
static bool are_alike(const hd_tiles_job *job)
{
    const work *w = job->work;

    for (int i = 1; i < job->products; i++)
        if (w[i].m != w[0].m || w[i].n != w[0].n)
            return false;
    return job->products > 1 && !job->mixed;
}

static double expect(const hd_tiles_job *job, const hd_tiles_choice *c)
{
    const work w = turn(job->work[0], c);

    return job->products == 1 ? cycles_of(&w, c) : row_cycles(job, c);
}

double hd_tiles_cycles(const hd_tiles_job *job, int first, int n,
                       const hd_tiles_choice *choice)
{
    hd_tiles_job some = {.products = n};
    double cycles;

    memcpy(some.work, &job->work[first], (size_t)n * sizeof *some.work);
    cycles = expect(&some, choice);
    return cycles > LEAST_CYCLES ? cycles : LEAST_CYCLES;
}

double hd_tiles_busy(const hd_tiles_work *is, const hd_tiles_choice *c)
{
    const work w = turn(*is, c);
    double units = (double)hd_tiles_most(c), tiles = tiles_of(&w, c);

    if (c->split)
        tiles = tiles > units ? units
                              : (double)hd_tiles_units(true, (int64_t)tiles,
                                                       (int64_t)cover(w.k, BK),
                                                       (int64_t)units);
    return tiles * c->cluster_m * c->cluster_n /
           (cover(tiles, units) * c->processors);
}

// Whether a block of each cluster has nothing to do.
static bool has_idle(const work *w, const hd_tiles_choice *c)
{
    return (c->cluster_m > 1 && w->m <= c->rows * (c->cluster_m - 1)) ||
           (c->cluster_n > 1 && w->n <= c->columns * (c->cluster_n - 1));
}

// Blocks of a cluster load lines in eights; of more than two it is not known
// how many are under way at once, as those must be that share tiles.
static bool may_be(const hd_tiles_job *job, const hd_tiles_choice *c)
{
    const work w = turn(job->work[0], c);

    return (!c->split || (c->cluster_m * c->cluster_n <= 2 && !c->sideways)) &&
           (!(c->split || c->alternate || c->sideways) || w.splits) &&
           (!w.promoted || c->cluster_m * c->cluster_n == 1) &&
           (!c->turned || w.turns) && (!c->sideways || w.along[1]) &&
           c->columns % (8 * c->cluster_m) == 0 &&
           c->rows % (8 * c->cluster_n) == 0 && !has_idle(&w, c);
}

// Of one shape each the best cluster, whether the last tiles are shared, the
// result turned, and products done together.
static candidate best_of(const hd_tiles_job *job, hd_tiles_choice choice)
{
    candidate best = {.cycles = -1};
    int n = job->products > 1 ? FEW_CLUSTERS : NCLUSTERS;
    int ways = n * 4 * (are_alike(job) ? 2 : 1);

    for (int i = 0; i < ways; i++) {
        double cycles;

        choice.cluster_m = clusters[i % n][0];
        choice.cluster_n = clusters[i % n][1];
        choice.split = i / n % 2 > 0;
        choice.turned = i / n / 2 % 2 > 0;
        choice.together = i / n / 4 > 0;
        if (!may_be(job, &choice))
            continue;
        cycles = expect(job, &choice) * (choice.together ? TOGETHER : 1);
        if (best.cycles < 0 || cycles < best.cycles)
            best = (candidate){choice, cycles};
    }
    return best;
}

// Beside what follows a product registers do not hold more columns of it; nor
// beside what each product of a row has of its own.
static int most_columns(const hd_tiles_job *job, int rows, way way)
{
    bool plain = job->work[0].plain;

    if (job->work[0].promoted)
        return way == BY_ROWS && rows <= 128 ? 192 : 0;
    if (way == BY_COLUMNS)
        return plain ? 176 : 144;
    if (way == IN_TURNS || rows > 128)
        return (plain ? 176 : 160) * 128 / rows;
    return !plain ? 208 : job->products == 1 || are_alike(job) ? 256 : 240;
}

int hd_tiles_pick(const hd_tiles_job *job, int processors, int room,
                  hd_tiles_choice *out)
{
    candidate all[MOST_CANDIDATES];
    int n = 0;

    for (int i = 0; i < NSHAPES; i++) {
        int rows = shapes[i].rows;
        int most = most_columns(job, rows, shapes[i].way);

        for (int columns = shapes[i].least;
             columns <= shapes[i].most && columns <= most;
             columns += shapes[i].step) {
            if (job->work[0].panels && columns % 64 != 0)
                continue;
            all[n] = best_of(
                job, (hd_tiles_choice){.rows = rows,
                                       .columns = columns,
                                       .warps = rows > 64 ? 2 : 1,
                                       .alternate = shapes[i].way == IN_TURNS,
                                       .sideways = shapes[i].way == BY_COLUMNS,
                                       .processors = processors});
            n += all[n].cycles >= 0;
        }
    }
    qsort(all, (size_t)n, sizeof *all, by_cycles);
    n = n < room ? n : room;
    for (int i = 0; i < n; i++)
        out[i] = all[i].choice;
    return n;
}
