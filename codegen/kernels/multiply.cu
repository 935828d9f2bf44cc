// Tiles by the tensor cores of sm_80 and later, where the operands are of 16
// bits and one of each one's sides is dense: slices of both operands of 64
// along the depth come to shared memory in turns, and a quarter of the tile is
// a warp's. Elsewhere a thread has 4 by 4 elements of the tile.
#ifndef HD_TYPES
#include "codegen/kernels/tiles.cu"

#include "codegen/kernels/mma.cu"
#endif

// Where the tile's first row, or column, begins.
typedef struct operands {
    const code_a *a;
    const code_b *b;
    i64 b_k; // from one of the depth to the next
} operands;

static inline operands operands_of(const hd_kernel_args &args, const tile &t)
{
    const i64 b_k = B_K_OF(t.product);

    return {(const code_a *)args.at[view_of(t, A_VIEW)] +
                PIECE_A((i64)t.piece) + (i64)t.row * A_M + (i64)t.k * A_K,
            (const code_b *)args.at[view_of(t, B_VIEW)] +
                PIECE_B((i64)t.piece) + (i64)t.column * B_N + (i64)t.k * b_k,
            b_k};
}

#if TENSOR && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define THREADS 128
#define SLICE 64 // of the depth
#define A_BYTES (TILE_M * SLICE * 2)
#define SLICE_BYTES ((TILE_M + TILE_N) * SLICE * 2)
#define WARP_M (TILE_M / 2)
#define WARP_N (TILE_N / 2)
// A line of a slice is along the depth if the operand is dense there, else
// across it.

// `n` of 8 elements, the others 0.
template <int VECTOR>
static inline void fetch_chunk(u32 to, const u16 *from, int n)
{
#pragma unroll
    for (int i = 0; i < 8; i += VECTOR) {
        const int some = n - i < 0 ? 0 : n - i < VECTOR ? n - i : VECTOR;
        const u16 *at = from + (some > 0 ? i : 0);

        if (VECTOR == 8)
            fetch_sixteen(to, at, some * 2);
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
static inline void fetch(const operands &o, const tile &t, u32 shared, int s,
                         int slices)
{
    const u32 to = shared + s % STAGES * SLICE_BYTES;
    const int depth = (int)least(t.depth - s * SLICE, SLICE);
    const u16 *a = (const u16 *)o.a + (i64)s * SLICE * A_K;
    const u16 *b = (const u16 *)o.b + (i64)s * SLICE * o.b_k;

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
        fetch_lines<SLICE, TILE_N / 8, B_VECTOR>(to + A_BYTES, b, o.b_k, depth,
                                                 t.fill_columns);
#endif
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
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
static inline void store_pair(const hd_kernel_args &args, const tile &t, int i,
                              int j, const float *sum, float f)
{
    if (i >= t.fill_rows || j >= t.fill_columns)
        return;
#if C_PAIRS
    if (j + 1 < t.fill_columns) {
        struct alignas(2 * sizeof(code_c)) pair {
            code_c at[2];
        } c;

        for (int e = 0; e < 2; e++)
            c.at[e] = code_of(value_at(args, t, i, j + e, sum[e], f));
        *(pair *)c_at(args, t, i, j) = c;
        return;
    }
#endif
    store(args, t, i, j, sum[0], f);
    if (j + 1 < t.fill_columns)
        store(args, t, i, j + 1, sum[1], f);
}

static inline void multiply(const hd_kernel_args &args, const tile &t, float f,
                            u32 shared)
{
    const int warp = threadIdx.x / 32, lane_ = threadIdx.x & 31;
    const int row = warp % 2 * WARP_M, column = warp / 2 * WARP_N;
    const int slices = (int)((t.depth + SLICE - 1) / SLICE);
    const operands o = operands_of(args, t);
    float sum[WARP_M / 16][WARP_N / 8][4] = {};

    __syncthreads(); // the last tile's slices are read
    for (int s = 0; s < STAGES - 1; s++)
        fetch(o, t, shared, s, slices);
    for (int s = 0; s < slices; s++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        fetch(o, t, shared, s + STAGES - 1, slices);
        multiply_slice(sum, shared + s % STAGES * SLICE_BYTES, row, column);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
#pragma unroll
    for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
        for (int j = 0; j < WARP_N / 8; j++) {
            const int y = row + 16 * i + lane_ / 4;
            const int x = column + 8 * j + lane_ % 4 * 2;

            store_pair(args, t, y, x, sum[i][j], f);
            store_pair(args, t, y + 8, x, sum[i][j] + 2, f);
        }
}
#else
#define THREADS 256
enum { EACH_M = TILE_M / 4, EACH_N = TILE_N / 4 };

// The elements of a thread are as far apart as others are beside it, so that
// neighbours load neighbours.
static inline void multiply_few(const hd_kernel_args &args, const tile &t,
                                int row, int column, float f)
{
    const operands o = operands_of(args, t);
    lane sum[4][4] = {};

    for (i64 k = 0; k < t.depth; k++) {
        lane left[4], right[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int y =
                row + i * EACH_M < t.fill_rows ? row + i * EACH_M : row;
            left[i] = take_a(o.a[y * A_M + k * A_K]) * scale_a(args, t, y, k);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int x = column + j * EACH_N < t.fill_columns
                              ? column + j * EACH_N
                              : column;
            right[j] =
                take_b(o.b[k * o.b_k + x * B_N]) * scale_b(args, t, x, k);
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
                store(args, t, y, x, sum[i][j], f);
        }
}

static inline void multiply(const hd_kernel_args &args, const tile &t, float f,
                            u32 shared)
{
    for (int e = (int)threadIdx.x; e < EACH_M * EACH_N; e += (int)blockDim.x)
        if (e / EACH_N < t.fill_rows && e % EACH_N < t.fill_columns)
            multiply_few(args, t, e / EACH_N, e % EACH_N, f);
}
#endif

extern "C" __global__ void HD_THREADS(THREADS)
    hd_kernel(const hd_kernel_args args)
{
    const float f = SCALE;
    walk w = {-1, 0, 0, 0};
    tile t = {0};
    u32 shared = 0;
#if WORDS
    int told = 0;
#endif

#if THREADS == 128
    extern __shared__ __align__(128) unsigned char memory[];
    shared = shared_address(memory);
#endif
    check_counts(args, (i64)blockIdx.x * blockDim.x + threadIdx.x,
                 (i64)gridDim.x * blockDim.x); // tells of what does not fit
    for (coord i = blockIdx.x; find_tile(args, i, &w, &t); i += gridDim.x) {
#if WORDS
        await_words(args, t.product, &told);
#endif
        if (t.fill_rows > 0 && t.fill_columns > 0)
            multiply(args, t, f, shared);
        clear(args, t, threadIdx.x, blockDim.x);
    }
}
