// A block makes tiles of a product's results, one after the other: it looks up
// where a tile lies and what of it there is, multiplies, and stores what
// follows the product. What counts leave out is cleared.
//
//     pieces          a tile is of one piece, whose rows, columns or depth a
//                     count may end
//     GROUPED 1       of a group's rows, which meet its matrix
//     GROUPED 2       of a group's matrix, over that group's rows
//
// Where the operands are of 16 bits, and one of each one's sides is dense, the
// tensor cores of sm_80 and later multiply: slices of both operands of 64
// along the depth come to shared memory in turns, and a quarter of the tile is
// a warp's. Elsewhere a thread has 4 by 4 elements of the tile.
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
#define TILE_M 64
#define TILE_N 64
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
#define CLEARS_C 1 // what counts leave out
#define CLEARS_X 0
#define ROOM 100ll // as much as a count may say
typedef u16 code_a;
typedef u16 code_b;
typedef float code_c;
typedef float code_x;
typedef float code_v;
typedef float lane;
#define take_a(code) (float)(code)
#define take_b(code) (float)(code)
static inline code_c finish(lane sum, code_c c, code_x *x, const code_v *v,
                            float f)
{
    return sum * f + *v;
}
typedef struct hd_kernel_args {
    u64 at[6];
} hd_kernel_args;
static inline void check_counts(const hd_kernel_args &args)
{
}
#endif

#if TENSOR && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define BY_TENSOR 1
#else
#define BY_TENSOR 0
#endif

typedef struct tile {
    const code_a *a;
    const code_b *b;
    code_c *c;
    code_x *x;
    const code_v *v;
    int rows, columns;           // that there are of it
    int fill_rows, fill_columns; // that are products; the others are cleared
    i64 depth;
} tile;

static inline i64 least(i64 a, i64 b)
{
    return a < b ? a : b;
}

static inline i64 within(i64 n, i64 most)
{
    return n < 0 ? 0 : least(n, most);
}

// Of `down` by `across` tiles the `i`th: eight rows of tiles at a time, column
// by column, so that what several read is near.
static inline void place_tile(i64 i, i64 down, i64 across, i64 *row,
                              i64 *column)
{
    const i64 band = i / (8 * across), in = i % (8 * across);
    const i64 high = least(8, down - 8 * band);

    *row = (8 * band + in % high) * TILE_M;
    *column = in / high * TILE_N;
}

// Of `rows` of a piece, or up to the last one of a group.
static inline tile tile_at(const hd_kernel_args &args, i64 row, i64 column,
                           i64 rows, i64 a, i64 b, i64 c, i64 x, i64 v)
{
    tile t;

    t.a = (const code_a *)args.at[1] + a + row * A_M;
    t.b = (const code_b *)args.at[2] + b + column * B_N;
    t.c = (code_c *)args.at[0] + c + row * C_M + column * C_N;
    t.x = (code_x *)args.at[AUX] + x + row * X_M + column * X_N;
    t.v = (const code_v *)args.at[BIAS] + v + row * V_M + column * V_N;
    t.rows = t.fill_rows = (int)least(rows - row, TILE_M);
    t.columns = t.fill_columns = (int)least(N - column, TILE_N);
    t.depth = K;
    return t;
}

// How far a block has come: tiles are looked up in their order.
typedef struct walk {
    i64 group, from, past; // rows of the group
    i64 first;             // tile of it
} walk;

#if GROUPED == 0
static inline bool find_tile(const hd_kernel_args &args, i64 i, walk *w,
                             tile *out)
{
    const i64 down = (M + TILE_M - 1) / TILE_M;
    const i64 across = (N + TILE_N - 1) / TILE_N;
    const i64 piece = i / (down * across);
    i64 row, column;

    if (piece >= PIECES)
        return false;
    place_tile(i % (down * across), down, across, &row, &column);
    *out = tile_at(args, row, column, M, PIECE_A(piece), PIECE_B(piece),
                   PIECE_C(piece), PIECE_X(piece), PIECE_V(piece));
#if COUNTED
    const i64 n =
        within(((const int *)args.at[COUNTS])[PIECE_COUNT(piece)], ROOM) *
        COUNT_TIMES;
#if COUNTED == 1
    out->fill_rows = (int)within(n - row, out->rows);
#elif COUNTED == 2
    out->fill_columns = (int)within(n - column, out->columns);
#else
    out->depth = n;
#endif
#endif
    return true;
}
#elif GROUPED == 1
// Behind the last group are the rows of none.
static inline bool find_tile(const hd_kernel_args &args, i64 i, walk *w,
                             tile *out)
{
    const i64 across = (N + TILE_N - 1) / TILE_N;
    i64 down = (w->past - w->from + TILE_M - 1) / TILE_M, row, column;

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
    place_tile(i - w->first, down, across, &row, &column);
    *out = tile_at(args, w->from + row, column, w->past, 0,
                   least(w->group, GROUPS - 1) * TO_GROUP, 0, 0, 0);
    if (w->group == GROUPS)
        out->fill_rows = 0;
    return true;
}
#else
static inline bool find_tile(const hd_kernel_args &args, i64 i, walk *w,
                             tile *out)
{
    const i64 down = (M + TILE_M - 1) / TILE_M;
    const i64 across = (N + TILE_N - 1) / TILE_N;
    const i64 group = i / (down * across);
    i64 row, column;

    if (group >= GROUPS)
        return false;
    for (; w->group < group; w->group++) {
        w->from = w->past;
        w->past +=
            within(((const int *)args.at[COUNTS])[(w->group + 1) * TO_COUNT],
                   K - w->past);
    }
    place_tile(i % (down * across), down, across, &row, &column);
    *out = tile_at(args, row, column, M, w->from * A_K, w->from * B_K,
                   group * TO_GROUP, 0, 0);
    out->depth = w->past - w->from;
    if (out->depth == 0)
        out->fill_rows = 0;
    return true;
}
#endif

#if GROUPED
// The first count that is taken for another number, unless one of an
// earlier step is told already.
static inline void check_counts(const hd_kernel_args &args)
{
    const int *counts = (const int *)args.at[COUNTS];
    i64 *told = (i64 *)args.at[TOLD], from = 0;

    if (blockIdx.x > 0 || threadIdx.x > 0 || told[0] != 0)
        return;
    for (i64 g = 0; g < GROUPS; g++) {
        const i64 count = counts[g * TO_COUNT], left = ROOM - from;

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

static inline void store(const tile &t, int i, int j, lane sum, float f)
{
    code_c *c = t.c + i * C_M + j * C_N;

    *c = finish(sum, *c, t.x + i * X_M + j * X_N, t.v + i * V_M + j * V_N, f);
}

static inline void clear(const tile &t)
{
    if (t.fill_rows == t.rows && t.fill_columns == t.columns)
        return;
    for (int e = (int)threadIdx.x; e < t.rows * TILE_N; e += (int)blockDim.x) {
        const int i = e / TILE_N, j = e % TILE_N;

        if (j >= t.columns || (i < t.fill_rows && j < t.fill_columns))
            continue;
        if (CLEARS_C)
            t.c[i * C_M + j * C_N] = 0;
        if (CLEARS_X)
            t.x[i * X_M + j * X_N] = 0;
    }
}

#if BY_TENSOR
#define THREADS 128
#define SLICE 64 // of the depth
#define A_BYTES (TILE_M * SLICE * 2)
#define SLICE_BYTES ((TILE_M + TILE_N) * SLICE * 2)
#define WARP_M (TILE_M / 2)
#define WARP_N (TILE_N / 2)
// A line of a slice is along the depth if the operand is dense there, else
// across it. Which 16 bytes of it stand where is turned by the line, so that
// eight lines have eight places.
#define AT(line, chunk, chunks) \
    ((line) * (chunks)*16 +     \
     (((chunk) ^ ((line) & ((chunks) < 8 ? (chunks)-1 : 7))) << 4))

// `n` of 8 elements, the others 0.
template <int VECTOR>
static inline void fetch_chunk(u32 to, const u16 *from, int n)
{
#pragma unroll
    for (int i = 0; i < 8; i += VECTOR) {
        const int some = n - i < 0 ? 0 : n - i < VECTOR ? n - i : VECTOR;
        const u16 *at = from + (some > 0 ? i : 0);

        if (VECTOR == 8)
            asm volatile(
                "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                "l"(at), "r"(some * 2)
                : "memory");
        else if (VECTOR > 1)
            asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(
                             to + i * 2),
                         "l"(at), "r"(some * 2), "n"(VECTOR * 2)
                         : "memory");
        else
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(to + i * 2),
                         "h"(some > 0 ? *at : (u16)0)
                         : "memory");
    }
}

// A slice of an operand: lines of so many chunks of 8 elements, of which there
// are `lines`, with so many elements each. It is swizzled as its lines are
// wide.
template <int LINES, int CHUNKS, int VECTOR>
static inline void fetch_lines(u32 to, const u16 *from, i64 stride, int lines,
                               int elements)
{
    const int chunk = threadIdx.x % CHUNKS, first = threadIdx.x / CHUNKS;
    const int n = elements - chunk * 8;
    const u16 *at = from + first * stride + chunk * 8;

    if (VECTOR == 8 && lines == LINES && elements == CHUNKS * 8) {
#pragma unroll
        for (int i = 0; i < LINES; i += THREADS / CHUNKS)
            fetch_chunk<8>(to + AT(i + first, chunk, CHUNKS), at + i * stride,
                           8);
        return;
    }
#pragma unroll
    for (int i = 0; i < LINES; i += THREADS / CHUNKS) {
        const bool some = i + first < lines && n > 0;

        fetch_chunk<VECTOR>(to + AT(i + first, chunk, CHUNKS),
                            some ? at + i * stride : from,
                            some ? (n < 8 ? n : 8) : 0);
    }
}

// Slice `s`, if there is one.
static inline void fetch(const tile &t, u32 shared, int s, int slices)
{
    const u32 to = shared + s % STAGES * SLICE_BYTES;
    const i64 k = (i64)s * SLICE;
    const int depth = (int)least(t.depth - k, SLICE);
    const u16 *a = (const u16 *)t.a + k * A_K, *b = (const u16 *)t.b + k * B_K;

    if (s < slices) {
#if A_ALONG
        fetch_lines<TILE_M, SLICE / 8, A_VECTOR>(to, a, A_M, t.fill_rows,
                                                 depth);
#else
        fetch_lines<SLICE, TILE_M / 8, A_VECTOR>(to, a, A_K, depth,
                                                 t.fill_rows);
#endif
#if B_ALONG
        fetch_lines<TILE_N, SLICE / 8, B_VECTOR>(to + A_BYTES, b, B_N,
                                                 t.fill_columns, depth);
#else
        fetch_lines<SLICE, TILE_N / 8, B_VECTOR>(to + A_BYTES, b, B_K, depth,
                                                 t.fill_columns);
#endif
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

static inline void read_along(u32 *out, u32 at)
{
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
        : "r"(at));
}

static inline void read_across(u32 *out, u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, "
                 "%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at));
}

// 16 rows by 16 of the depth, from `row` and `k` of the slice on.
static inline void read_a(u32 *out, u32 slice, int row, int k)
{
    const int lane_ = threadIdx.x & 31;
#if A_ALONG
    read_along(out,
               slice + AT(row + (lane_ & 15), k / 8 + (lane_ >> 4), SLICE / 8));
#else
    read_across(out, slice + AT(k + (lane_ & 7) + (lane_ >> 4) * 8,
                                row / 8 + (lane_ >> 3 & 1), TILE_M / 8));
#endif
}

// 16 columns, the first 8 of which are out[0] and out[1].
static inline void read_b(u32 *out, u32 slice, int column, int k)
{
    const int lane_ = threadIdx.x & 31;
#if B_ALONG
    read_along(out, slice + AT(column + (lane_ & 7) + (lane_ >> 4) * 8,
                               k / 8 + (lane_ >> 3 & 1), SLICE / 8));
#else
    read_across(out, slice + AT(k + (lane_ & 15), column / 8 + (lane_ >> 4),
                                TILE_N / 8));
#endif
}

static inline void multiply_add(float *c, const u32 *a, const u32 *b)
{
#if IS_F16
#define OF "f16.f16"
#else
#define OF "bf16.bf16"
#endif
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." OF
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
                 "%2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),
                   "r"(b[1]));
}

static inline void multiply_slice(float sum[WARP_M / 16][WARP_N / 8][4],
                                  u32 slice, int row, int column)
{
#pragma unroll
    for (int k = 0; k < SLICE; k += 16) {
        u32 a[WARP_M / 16][4], b[WARP_N / 16][4];

#pragma unroll
        for (int i = 0; i < WARP_M / 16; i++)
            read_a(a[i], slice, row + 16 * i, k);
#pragma unroll
        for (int j = 0; j < WARP_N / 16; j++)
            read_b(b[j], slice + A_BYTES, column + 16 * j, k);
#pragma unroll
        for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
            for (int j = 0; j < WARP_N / 8; j++)
                multiply_add(sum[i][j], a[i], b[j / 2] + j % 2 * 2);
    }
}

// Two neighbours of a row.
static inline void store_pair(const tile &t, int i, int j, const float *sum,
                              float f)
{
    if (i >= t.fill_rows || j >= t.fill_columns)
        return;
#if C_PAIRS
    if (j + 1 < t.fill_columns) {
        struct alignas(2 * sizeof(code_c)) pair {
            code_c at[2];
        } *to = (pair *)(t.c + i * C_M + j), c = *to;

        for (int e = 0; e < 2; e++)
            c.at[e] = finish(sum[e], c.at[e], t.x + i * X_M + (j + e) * X_N,
                             t.v + i * V_M + (j + e) * V_N, f);
        *to = c;
        return;
    }
#endif
    store(t, i, j, sum[0], f);
    if (j + 1 < t.fill_columns)
        store(t, i, j + 1, sum[1], f);
}

static inline void multiply(const tile &t, float f, u32 shared)
{
    const int warp = threadIdx.x / 32, lane_ = threadIdx.x & 31;
    const int row = warp % 2 * WARP_M, column = warp / 2 * WARP_N;
    const int slices = (int)((t.depth + SLICE - 1) / SLICE);
    float sum[WARP_M / 16][WARP_N / 8][4] = {};

    __syncthreads(); // the last tile's slices are read
    for (int s = 0; s < STAGES - 1; s++)
        fetch(t, shared, s, slices);
    for (int s = 0; s < slices; s++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        fetch(t, shared, s + STAGES - 1, slices);
        multiply_slice(sum, shared + s % STAGES * SLICE_BYTES, row, column);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
#pragma unroll
    for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; j++) {
            const int y = row + 16 * i + lane_ / 4;
            const int x = column + 8 * j + lane_ % 4 * 2;

            store_pair(t, y, x, sum[i][j], f);
            store_pair(t, y + 8, x, sum[i][j] + 2, f);
        }
}
#else
#define THREADS 256
enum { EACH_M = TILE_M / 4, EACH_N = TILE_N / 4 };

// The elements of a thread are as far apart as others are beside it, so that
// neighbours load neighbours.
static inline void multiply_few(const tile &t, int row, int column, float f)
{
    lane sum[4][4] = {};

    for (i64 k = 0; k < t.depth; k++) {
        lane left[4], right[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int y = row + i * EACH_M;
            left[i] = take_a(t.a[(y < t.fill_rows ? y : row) * A_M + k * A_K]);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int x = column + j * EACH_N;
            right[j] =
                take_b(t.b[k * B_K + (x < t.fill_columns ? x : column) * B_N]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                sum[i][j] += left[i] * right[j];
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int y = row + i * EACH_M, x = column + j * EACH_N;
            if (y < t.fill_rows && x < t.fill_columns)
                store(t, y, x, sum[i][j], f);
        }
}

static inline void multiply(const tile &t, float f, u32 shared)
{
    for (int e = (int)threadIdx.x; e < EACH_M * EACH_N; e += (int)blockDim.x)
        if (e / EACH_N < t.fill_rows && e % EACH_N < t.fill_columns)
            multiply_few(t, e / EACH_N, e % EACH_N, f);
}
#endif

extern "C" __global__ void HD_THREADS(THREADS)
    hd_kernel(const hd_kernel_args args)
{
    const float f = SCALE;
    walk w = {-1, 0, 0, 0};
    tile t;
    u32 shared = 0;

#if BY_TENSOR
    extern __shared__ __align__(128) unsigned char memory[];
    asm("{ .reg .u64 at; cvta.to.shared.u64 at, %1; cvt.u32.u64 %0, at; }"
        : "=r"(shared)
        : "l"(memory));
#endif
    check_counts(args); // tells of one that does not fit
    for (i64 i = blockIdx.x; find_tile(args, i, &w, &t); i += gridDim.x) {
        if (t.fill_rows > 0 && t.fill_columns > 0)
            multiply(t, f, shared);
        clear(t);
    }
}
