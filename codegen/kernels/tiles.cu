// Where the tiles of a product lie, and what there is of them: what the kernels
// that multiply them have in common. A block makes tiles of the result, one
// after the other, which it looks up in their order. What counts leave out is
// cleared.
//
//     pieces          a tile is of one piece, whose rows, columns or depth a
//                     count may end
//     GROUPED 1       of a group's rows, which meet its matrix
//     GROUPED 2       of a group's matrix, over that group's rows
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
#define TILE_M 64
#define TILE_N 64
#define BAND 8     // rows of tiles, or columns where it is negative
#define STAGES 3   // slices in shared memory
#define TENSOR 1   // tensor cores can multiply it
#define IS_F16 0   // of f16, else of bf16
#define A_ALONG 1  // lies dense along the depth, else along the rows
#define B_ALONG 0  // likewise, or along the columns
#define A_VECTOR 8 // elements that lie at a multiple of as many
#define B_VECTOR 8
#define C_PAIRS 1 // two neighbours are stored at once
#define GROUPED 0
#define COUNTED 1 // 1: of rows, 2: of columns, 3: of the depth; 0: all
#define SPLIT 1   // the last tiles of all are shared by slices of the depth
#define PIECES 4ll
#define M 100ll // of a piece, rows
#define N 72ll
#define K 64ll
#define A_M 64ll // how far apart elements are along each
#define A_K 1ll
#define B_K 72ll
#define B_N 1ll
#define C_M 72ll
#define C_N 1ll
#define X_M 72ll
#define X_N 1ll
#define V_M 0ll
#define V_N 1ll
#define PIECE_A(p) ((p)*6400ll) // where a piece begins
#define PIECE_B(p) ((p)*4608ll)
#define PIECE_C(p) ((p)*7200ll)
#define PIECE_X(p) ((p)*7200ll)
#define PIECE_V(p) 0
#define PIECE_COUNT(p) (p) // and its count lies
#define COUNT_TIMES 1ll    // rows for each that is counted
#define COUNTS 3           // which of at[] these are
#define AUX 0
#define BIAS 2
#define SCALE 1.f  // or *(const float *)args.at[i]
#define SCALES_A 0 // which of at[] those of the operands are; 0: none
#define SCALES_B 0
#define SA_DEPTH 0ll // how far apart they are along the depth
#define SB_DEPTH 0ll
#define CLEARS_C 1 // what counts leave out
#define CLEARS_X 0
#define ROOM 100ll         // as much as a count may say
#define PRODUCTS 1         // that the kernel does, one behind the other
#define MIXED 0            // which may have rows and columns of their own
#define M_OF(p) ((coord)M) // of a product, as may be where its rows lie
#define N_OF(p) ((coord)N)
#define C_M_OF(p) C_M
#define X_M_OF(p) X_M
#define B_K_OF(p) B_K
#define ALL_TILES TILES_OF(0) // of all products
#define VIEWS 4               // of at[], from one's addresses to the next one's
#define A_VIEW 1              // of these, the operands
#define B_VIEW 2
#define TOLD 4     // behind all of these: what is told, and the step's number
#define TOGETHER 0 // tiles of all of them that lie alike follow each other
#define WORDS 0    // that each waits for: gate.cu
typedef u16 code_a;
typedef u16 code_b;
typedef float code_c;
typedef float code_x;
typedef float code_v;
typedef float lane; // of the product
typedef float rest; // and of what follows it
typedef int coord;  // a row, a column, a tile
#define take_a(code) (float)(code)
#define take_b(code) (float)(code)
static inline rest finish(lane sum, code_c c, code_x *x, const code_v *v,
                          float f)
{
    return sum * f + *v;
}
static inline code_c code_of(rest y)
{
    return y;
}
typedef struct hd_kernel_args {
    u64 at[20];
    alignas(128) u64 map[3][16];
} hd_kernel_args;
static inline void check_counts(const hd_kernel_args &args, i64 first, i64 step)
{
}
#endif

typedef struct tile {
    int product;
    coord piece, row, column, k;
    int rows, columns;           // that there are of it
    int fill_rows, fill_columns; // that are products; the others are cleared
    coord depth;                 // from k on
} tile;

static inline coord least(coord a, coord b)
{
    return a < b ? a : b;
}

static inline coord within(coord n, coord most)
{
    return n < 0 ? 0 : least(n, most);
}

// Of `down` by `across` tiles the `i`th: some rows of tiles at a time, column
// by column, so that what several read is near; or some columns.
static inline void place_tile(coord i, coord down, coord across, tile *out)
{
    const coord lines = BAND > 0 ? down : across;
    const coord along = BAND > 0 ? across : down;
    const coord most = BAND > 0 ? BAND : -(BAND);
    const coord band = i / (most * along), in = i % (most * along);
    const coord high = least(most, lines - most * band);
    const coord line = most * band + in % high;

    out->row = (BAND > 0 ? line : in / high) * TILE_M;
    out->column = (BAND > 0 ? in / high : line) * TILE_N;
}

// Which of at[] the view's address is.
static inline int view_of(const tile &t, int view)
{
    return PRODUCTS > 1 ? t.product * VIEWS + view : view;
}

#define TILES_OF(p)                                                          \
    (((M_OF(p) + TILE_M - 1) / TILE_M) * ((N_OF(p) + TILE_N - 1) / TILE_N) * \
     (coord)PIECES)

// The product that the `i`th tile of all is of, which becomes that of it.
static inline int find_product(const hd_kernel_args &args, coord *i)
{
    int product = 0;

#if MIXED
    for (; product < PRODUCTS && *i >= TILES_OF(product); product++)
        *i -= TILES_OF(product);
#else
    const coord each = TILES_OF(0);

    if (*i >= each * PRODUCTS)
        return PRODUCTS;
    product = PRODUCTS == 1 ? 0 : TOGETHER ? *i % PRODUCTS : *i / each;
    if (PRODUCTS > 1)
        *i = TOGETHER ? *i / PRODUCTS : *i - product * each;
#endif
    return product;
}

// Of `rows` of a piece, or up to the last one of a group.
static inline void fill_tile(const hd_kernel_args &args, coord piece,
                             coord rows, coord depth, tile *out)
{
    out->piece = piece;
    out->k = 0;
    out->depth = depth;
    out->rows = out->fill_rows = least(rows - out->row, TILE_M);
    out->columns = out->fill_columns =
        least(N_OF(out->product) - out->column, TILE_N);
}

// How far a block has come: tiles are looked up in their order.
typedef struct walk {
    coord group, from, past; // rows of the group
    coord first;             // tile of it
} walk;

#if GROUPED == 0
static inline bool find_tile(const hd_kernel_args &args, coord i, walk *w,
                             tile *out)
{
    const int product = find_product(args, &i);

    if (product == PRODUCTS)
        return false;
    const coord down = (M_OF(product) + TILE_M - 1) / TILE_M;
    const coord across = (N_OF(product) + TILE_N - 1) / TILE_N;
    const coord piece = PIECES > 1 ? i / (down * across) : 0;

    out->product = product;
    place_tile(i - piece * (down * across), down, across, out);
    fill_tile(args, piece, M_OF(product), K, out);
#if COUNTED
    const coord n =
        within(((const int *)args.at[COUNTS])[PIECE_COUNT((i64)piece)], ROOM) *
        COUNT_TIMES;
#if COUNTED == 1
    out->fill_rows = within(n - out->row, out->rows);
#elif COUNTED == 2
    out->fill_columns = within(n - out->column, out->columns);
#else
    out->depth = n;
#endif
#endif
    return true;
}
#elif GROUPED == 1
// Behind the last group are the rows of none.
static inline bool find_tile(const hd_kernel_args &args, coord i, walk *w,
                             tile *out)
{
    const coord across = (N + TILE_N - 1) / TILE_N;
    coord down = (w->past - w->from + TILE_M - 1) / TILE_M;

    while (i - w->first >= down * across) {
        if (w->group == GROUPS)
            return false;
        w->first += down * across;
        w->from = w->past;
        if (++w->group < GROUPS)
            w->past +=
                within(((const int *)args.at[COUNTS])[w->group * TO_COUNT],
                       M - w->past);
        else
            w->past = CLEARS_C || CLEARS_X ? M : w->past;
        down = (w->past - w->from + TILE_M - 1) / TILE_M;
    }
    place_tile(i - w->first, down, across, out);
    out->row += w->from;
    fill_tile(args, w->group < GROUPS ? w->group : 0, w->past, K, out);
    if (w->group == GROUPS)
        out->fill_rows = 0;
    return true;
}
#else
static inline bool find_tile(const hd_kernel_args &args, coord i, walk *w,
                             tile *out)
{
    const coord down = (M + TILE_M - 1) / TILE_M;
    const coord across = (N + TILE_N - 1) / TILE_N;
    const coord group = i / (down * across);

    if (group >= GROUPS)
        return false;
    for (; w->group < group; w->group++) {
        w->from = w->past;
        w->past +=
            within(((const int *)args.at[COUNTS])[(w->group + 1) * TO_COUNT],
                   K - w->past);
    }
    place_tile(i - group * (down * across), down, across, out);
    fill_tile(args, group, M, w->past - w->from, out);
    out->k = w->from;
    if (out->depth == 0)
        out->fill_rows = 0;
    return true;
}
#endif

// What a block, or a cluster of them, does: whole tiles in turns, and its share
// of the last ones, or of all if there are fewer than blocks.
typedef struct share {
    coord tile, step, whole; // tiles that are done whole
    coord at, end;           // slices of the others
} share;

// Where the share of a block ends, of `tiles` that are shared.
static inline coord end_of(coord unit, coord units, coord tiles, coord slices)
{
    return (coord)((i64)tiles * slices * (unit + 1) / units);
}

static inline share share_of(coord unit, coord units, coord tiles, coord slices)
{
    share s = {unit, units, tiles, 0, 0};

    if (SPLIT && tiles % units > 0) {
        s.whole = tiles > units ? (tiles / units - 1) * units : 0;
        s.at = end_of(unit - 1, units, tiles - s.whole, slices);
        s.end = end_of(unit, units, tiles - s.whole, slices);
    }
    return s;
}

// The next tile, and which of its slices.
static inline bool next_share(share *s, coord slices, coord *tile, coord *from,
                              coord *past)
{
    if (s->tile < s->whole) {
        *tile = s->tile;
        *from = 0;
        *past = slices;
        s->tile += s->step;
        return true;
    }
    if (s->at >= s->end)
        return false;
    *tile = s->whole + s->at / slices;
    *from = s->at % slices;
    *past = least(slices, *from + s->end - s->at);
    s->at += *past - *from;
    return true;
}

#if GROUPED
// The first count that is taken for another number, unless one of an
// earlier step is told already. By `step` threads, of which this is one.
static inline void check_counts(const hd_kernel_args &args, i64 first, i64 step)
{
    const int *counts = (const int *)args.at[COUNTS];
    i64 *told = (i64 *)args.at[TOLD];
    coord from = 0;

    if (first > 0 || told[0] != 0)
        return;
    for (coord g = 0; g < GROUPS; g++) {
        const coord count = counts[g * TO_COUNT], left = ROOM - from;

        from += within(count, left);
        if (within(count, left) != count) {
            told[1] = g;
            told[2] = count;
            told[3] = left;
            told[0] = (i64)args.at[TOLD + 1] + 1;
            return;
        }
    }
}
#endif

static inline code_c *c_at(const hd_kernel_args &args, const tile &t, int i,
                           int j)
{
    return (code_c *)args.at[view_of(t, 0)] + PIECE_C((i64)t.piece) +
           (i64)(t.row + i) * C_M_OF(t.product) + (i64)(t.column + j) * C_N;
}

static inline code_x *x_at(const hd_kernel_args &args, const tile &t, int i,
                           int j)
{
    return (code_x *)args.at[view_of(t, AUX)] + PIECE_X((i64)t.piece) +
           (i64)(t.row + i) * X_M_OF(t.product) + (i64)(t.column + j) * X_N;
}

static inline const code_v *v_at(const hd_kernel_args &args, const tile &t,
                                 int i, int j)
{
    return (const code_v *)args.at[view_of(t, BIAS)] + PIECE_V((i64)t.piece) +
           (i64)(t.row + i) * V_M + (i64)(t.column + j) * V_N;
}

// What an element of the first operand is multiplied by, in row `i` of the tile
// and at index `k` of the depth; of the second one, in column `j`.
static inline float scale_a(const hd_kernel_args &args, const tile &t, int i,
                            coord k)
{
#if SCALES_A
    return ((const float *)
                args.at[SCALES_A])[SA_AT(0, (i64)(t.row + i), (i64)(t.k + k))];
#else
    return 1;
#endif
}

static inline float scale_b(const hd_kernel_args &args, const tile &t, int j,
                            coord k)
{
#if SCALES_B
    return ((const float *)args.at[SCALES_B])[SB_AT(
        (i64)t.piece, (i64)(t.column + j), (i64)(t.k + k))];
#else
    return 1;
#endif
}

static inline rest value_at(const hd_kernel_args &args, const tile &t, int i,
                            int j, lane sum, float f)
{
    return finish(sum, *c_at(args, t, i, j), x_at(args, t, i, j),
                  v_at(args, t, i, j), f);
}

static inline void store(const hd_kernel_args &args, const tile &t, int i,
                         int j, lane sum, float f)
{
    *c_at(args, t, i, j) = code_of(value_at(args, t, i, j, sum, f));
}

// By `threads` threads, of which this is one.
static inline void clear(const hd_kernel_args &args, const tile &t, int thread,
                         int threads)
{
    if (t.fill_rows == t.rows && t.fill_columns == t.columns)
        return;
    for (int e = thread; e < t.rows * TILE_N; e += threads) {
        const int i = e / TILE_N, j = e % TILE_N;

        if (j >= t.columns || (i < t.fill_rows && j < t.fill_columns))
            continue;
        if (CLEARS_C)
            *c_at(args, t, i, j) = 0;
        if (CLEARS_X)
            *x_at(args, t, i, j) = 0;
    }
}
