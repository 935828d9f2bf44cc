// Which tiles a product of sm_90a is done in: all that there are, by how long
// they are expected to take. That is in cycles of a processor, which multiplies
// 2048 pairs of 16 bits in one.
#include <stdlib.h>
#include <string.h>

#include "tiles/choose.h"

typedef struct shape {
    int rows, columns, warps;
} shape;

static const shape shapes[] = {
    {128, 256, 2}, {128, 240, 2}, {128, 224, 2}, {128, 208, 2}, {128, 192, 2},
    {128, 176, 2}, {128, 160, 2}, {128, 144, 2}, {128, 128, 2}, {128, 112, 2},
    {128, 96, 2},  {128, 64, 2},  {64, 256, 1},  {64, 224, 1},  {64, 192, 1},
    {64, 160, 1},  {64, 128, 1},  {64, 96, 1},   {64, 64, 1},
};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

// Blocks of one below each other have columns in common, or beside each other
// rows.
static const int clusters[][2] = {{2, 1}, {1, 1}, {1, 2}};
enum { NCLUSTERS = sizeof clusters / sizeof *clusters, BK = 64 };

// Beside what follows a product registers do not hold more of it; nor beside
// what each product of a row has of its own.
enum { MOST_PLAIN = 256, MOST_OWN = 240, MOST_COLUMNS = 208 };

// Fitted to 2,900 times of 72 shapes on an H200, in cycles at 1.7 GHz, of which
// the chosen one is 2.5 % behind the best in the mean:
// bench/results/2026-11-29-h200-tiles.txt.
#define PAIRS_A_CYCLE (2048 * .91)
#define LINES_A_CYCLE (55 / 128.)    // of 128 bytes, to a processor
#define MEMORY_A_CYCLE (1770 / 128.) // likewise, from memory, to all of them
#define BESIDE .19          // what takes less than the longest adds of itself
#define UNEVEN 1.6          // lines that begin at no multiple of 128 bytes
#define SHARED_COLUMNS .54  // of what a cluster saves of them
#define SHARED_ROWS 1.      // likewise
#define BELOW 1.006         // that a cluster takes longer
#define ASIDE 1.085         // likewise
#define CYCLES_OF_A_SUM .06 // that each element of a tile takes at its end
#define SPLIT_TILES .145    // that sharing the last ones takes, of one
#define SUMS_CYCLES 13000.  // until sums of others are there
#define SUMS_A_CYCLE 10.    // that a processor takes then
#define TOGETHER 1.03       // that products done so should save
#define LEAST_CYCLES 8500.  // that a kernel takes
// Of copies between two H200s, at 1.7 GHz.
#define FIRST_COPY_CYCLES 20000.
#define COPY_CYCLES 5000.
#define LINK_A_CYCLE 206. // bytes

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

static int64_t units_of(int processors, const int cluster[2])
{
    int units = processors / (cluster[0] * cluster[1]);

    return units > 0 ? units : 1;
}

static double tiles_of(const work *w, const shape *s, const int cluster[2])
{
    double rows = s->rows * cluster[0];
    double down = w->ragged ? w->m / rows + (cluster[0] > 1 ? .5 : .25)
                            : cover(w->m, rows);

    return down * cover(w->n, s->columns * cluster[1]) * w->pieces;
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

// Lines of a slice that all blocks that are under way read, of `n` products one
// behind the other: of as many rows of tiles as a band has, and as many columns
// as there are then, or of all of a product and the next ones.
static double lines_of_all(const work *w, int n, const shape *s,
                           const int cluster[2], double under_way,
                           int processors)
{
    double rows = s->rows * cluster[0], columns = s->columns * cluster[1];
    double down = at_least(cover(w->m, rows)), across = cover(w->n, columns);
    double band = hd_tiles_band(units_of(processors, cluster), (int64_t)rows,
                                (int64_t)columns);
    double products = cover(under_way, down * across);

    if (products > 1 && n > 1)
        return (products < n ? products : n) * w->m + w->n;
    down = down < band ? down : band;
    across = cover(under_way, down);
    rows = down * rows < w->m ? down * rows : w->m;
    columns = across * columns < w->n ? across * columns : w->n;
    return rows + columns;
}

// Where `times` blocks share a tile.
static double slice_cycles(const work *w, int n, const shape *s,
                           const int cluster[2], double under_way, double times,
                           int processors)
{
    double rows = s->rows / (cluster[1] > 1 ? 1 + SHARED_ROWS : 1);
    double columns = s->columns / (cluster[0] > 1 ? 1 + SHARED_COLUMNS : 1);
    bool uneven = w->k * 2 / 128 != cover(w->k * 2, 128);
    double takes[] = {
        s->rows * s->columns * BK / PAIRS_A_CYCLE,
        (rows + columns) * (uneven ? UNEVEN : 1) / LINES_A_CYCLE,
        times * lines_of_all(w, n, s, cluster, under_way, processors) /
            MEMORY_A_CYCLE};
    double longest = 0, sum = 0;

    for (int i = 0; i < 3; i++) {
        longest = longest > takes[i] ? longest : takes[i];
        sum += takes[i];
    }
    sum = longest + BESIDE * (sum - longest);
    return sum * (cluster[0] > 1 ? BELOW : 1) * (cluster[1] > 1 ? ASIDE : 1);
}

// Until the sums of so many other blocks are added.
static double sums_cycles(const shape *s, double others)
{
    return SUMS_CYCLES + others * s->rows * s->columns / SUMS_A_CYCLE;
}

static double end_cycles(const shape *s)
{
    return s->rows * s->columns * CYCLES_OF_A_SUM;
}

static double cycles_of(const work *w, const shape *s, const hd_tiles_choice *c)
{
    const int cluster[2] = {c->cluster_m, c->cluster_n};
    double units = (double)units_of(c->processors, cluster);
    double tiles = tiles_of(w, s, cluster), slices = cover(w->k, BK);
    double shares = tiles < units ? tiles : units;
    double turns = cover(tiles, units), ends = turns, sums = 0;

    if (c->split && tiles > units) {
        turns = tiles / units + SPLIT_TILES;
        ends++;
        sums = sums_cycles(s, 1);
    } else if (c->split && tiles < units) {
        shares = (double)hd_tiles_units(true, (int64_t)tiles, (int64_t)slices,
                                        (int64_t)units);
        turns = tiles / shares;
        if (shares > tiles)
            sums = sums_cycles(s, cover(shares, tiles));
    }
    return turns * slices *
               slice_cycles(w, 1, s, cluster, shares < tiles ? shares : tiles,
                            shares > tiles ? shares / tiles : 1,
                            c->processors) +
           ends * end_cycles(s) + sums;
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

static double row_cycles(const hd_tiles_job *job, const shape *s,
                         const hd_tiles_choice *choice)
{
    const int cluster[2] = {choice->cluster_m, choice->cluster_n};
    const work *w = job->work;
    int64_t units = units_of(choice->processors, cluster), tiles;
    int64_t slices = (int64_t)cover(w->k, BK);
    course c = {.products = job->products,
                .together = choice->together,
                .end = end_cycles(s)};
    work all = choice->together ? join(w, job->products) : w[0];
    double sums = 0;

    for (int i = 0; i < job->products; i++)
        c.from[i + 1] = c.from[i] + (int64_t)tiles_of(&w[i], s, cluster);
    list_due(&c, job);
    tiles = c.from[job->products];
    units = hd_tiles_units(choice->split, tiles, slices, units);
    c.slice = slice_cycles(&all, choice->together ? 1 : job->products, s,
                           cluster, (double)(units < tiles ? units : tiles),
                           units > tiles ? (double)units / (double)tiles : 1,
                           choice->processors);
    if (choice->split && tiles % units > 0)
        sums = sums_cycles(s, cover((double)units, (double)tiles)) +
               (tiles > units ? SPLIT_TILES * (double)slices * c.slice : 0);
    return course_cycles(&c, units, slices, choice->split) + sums;
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
    const shape s = {c->rows, c->columns, c->warps};

    return job->products == 1 ? cycles_of(job->work, &s, c)
                              : row_cycles(job, &s, c);
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

// Whether a block of each cluster has nothing to do.
static bool has_idle(const work *w, const hd_tiles_choice *c)
{
    return (c->cluster_m > 1 && w->m <= c->rows) ||
           (c->cluster_n > 1 && w->n <= c->columns);
}

// Of one shape each the best cluster, whether the last tiles are shared, and
// products done together.
static candidate best_of(const hd_tiles_job *job, const shape *s,
                         int processors)
{
    const work *w = job->work;
    candidate best = {.cycles = -1};
    int ways = NCLUSTERS * 2 * (are_alike(job) ? 2 : 1);

    for (int i = 0; i < ways; i++) {
        const int *cluster = clusters[i % NCLUSTERS];
        hd_tiles_choice choice = {.rows = s->rows,
                                  .columns = s->columns,
                                  .cluster_m = cluster[0],
                                  .cluster_n = cluster[1],
                                  .warps = s->warps,
                                  .split = i / NCLUSTERS % 2 > 0,
                                  .together = i / NCLUSTERS / 2 > 0,
                                  .processors = processors};
        double cycles;

        if ((choice.split && !w->splits) || has_idle(w, &choice))
            continue;
        cycles = expect(job, &choice) * (choice.together ? TOGETHER : 1);
        if (best.cycles < 0 || cycles < best.cycles)
            best = (candidate){choice, cycles};
    }
    return best;
}

static int most_columns(const hd_tiles_job *job)
{
    if (!job->work[0].plain)
        return MOST_COLUMNS;
    return job->products == 1 || are_alike(job) ? MOST_PLAIN : MOST_OWN;
}

int hd_tiles_pick(const hd_tiles_job *job, int processors, int room,
                  hd_tiles_choice *out)
{
    candidate all[NSHAPES];
    int n = 0, most = most_columns(job);

    for (int i = 0; i < NSHAPES; i++)
        if (shapes[i].columns <= most)
            all[n++] = best_of(job, &shapes[i], processors);
    qsort(all, (size_t)n, sizeof *all, by_cycles);
    n = n < room ? n : room;
    for (int i = 0; i < n; i++)
        out[i] = all[i].choice;
    return n;
}
