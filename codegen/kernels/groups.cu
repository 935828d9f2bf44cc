// A thread makes a small tile of the result: it adds the counts up to where its
// tile is, and multiplies what they say.
//
//     rows      a tile of [rows, N] may reach over several groups
//     with ta   a tile of [M, N] of one group contracts over that group's rows
//
// Columns of a tile are as far apart as there are threads across, so that
// neighbours load neighbours.
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
#define TURNED 0 // ta
#define TILE_M 4
#define TILE_N 4
#define ROWS 128ll // all groups', whose counts are TO_COUNT apart
#define GROUPS 8ll
#define TO_COUNT 1ll
#define M 128ll // the result is M by N, of K, and groups' matrices lie apart
#define N 64ll
#define K 64ll
#define TO_GROUP 4096ll
#define A_M 64ll // how far apart elements are along each, those of aux as X
#define A_K 1ll
#define B_K 64ll
#define B_N 1ll
#define C_M 64ll
#define C_N 1ll
#define X_M 64ll
#define X_N 1ll
#define ACROSS 16ll // threads, of
#define TILES 512ll
#define LENGTHS      // where a run says lengths these are parameters,
#define GIVEN        // arguments,
#define TAKE_LENGTHS // and what the kernel takes from its own
typedef float code_a;
typedef float code_b;
typedef float code_c;
typedef float code_x;
typedef float lane;
#define take_a(code) (code)
#define take_b(code) (code)
static inline void finish(lane sum, code_c *c, code_x *x, float f)
{
    *c = sum * f; // x is c where there is no aux
}
static inline void clear(code_c *c, code_x *x)
{
    *c = 0;
}
#define COUNTS 3 // which of at[] these are
#define AUX 0
#define TOLD 4
#define SCALE 1 // or *(const float *)args.at[i]
typedef struct hd_kernel_args {
    u64 at[6];
} hd_kernel_args;
#endif

// `m` rows of a tile, from where a, c and x point.
static inline void multiply(const code_a *a, const code_b *b, code_c *c,
                            code_x *x, float f, int m, i64 column,
                            i64 k LENGTHS)
{
    lane sum[TILE_M][TILE_N] = {};
    for (i64 s = 0; s < k; s++) {
        lane left[TILE_M], right[TILE_N];
#pragma unroll
        for (int i = 0; i < TILE_M; i++)
            left[i] = take_a(a[(i < m ? i : 0) * A_M + s * A_K]);
#pragma unroll
        for (int j = 0; j < TILE_N; j++) {
            const i64 n = column + j * ACROSS;
            right[j] = take_b(b[s * B_K + (n < N ? n : column) * B_N]);
        }
#pragma unroll
        for (int i = 0; i < TILE_M; i++)
#pragma unroll
            for (int j = 0; j < TILE_N; j++)
                sum[i][j] += left[i] * right[j];
    }
#pragma unroll
    for (int i = 0; i < TILE_M; i++)
#pragma unroll
        for (int j = 0; j < TILE_N; j++) {
            const i64 n = column + j * ACROSS;
            if (i < m && n < N)
                finish(sum[i][j], c + i * C_M + n * C_N, x + i * X_M + n * X_N,
                       f);
        }
}

static inline void clear_rows(code_c *c, code_x *x, int m, i64 column LENGTHS)
{
    for (int i = 0; i < m; i++)
        for (i64 n = column; n < N; n += ACROSS)
            clear(c + i * C_M + n * C_N, x + i * X_M + n * X_N);
}

// What a count is taken for.
static inline i64 rows_of(i64 count, i64 left)
{
    return count < 0 ? 0 : count > left ? left : count;
}

// The first count that is taken for another number, unless one of an
// earlier step is told already.
static inline void check(const int *counts, i64 *told, i64 step LENGTHS)
{
    i64 from = 0;
    for (i64 g = 0; g < GROUPS && told[0] == 0; g++) {
        const i64 count = counts[g * TO_COUNT];
        const i64 rows = rows_of(count, ROWS - from);
        if (rows != count) {
            told[1] = g;
            told[2] = count;
            told[3] = ROWS - from;
            told[0] = step + 1;
        }
        from += rows;
    }
}

#if TURNED
static inline void make_tile(const code_a *a, const code_b *b, code_c *c,
                             code_x *x, float f, const int *counts,
                             i64 tile LENGTHS)
{
    const i64 column = tile % ACROSS, down = (M + TILE_M - 1) / TILE_M;
    const i64 group = tile / ACROSS / down;
    const i64 first = tile / ACROSS % down * TILE_M;
    const int m = (int)(M - first < TILE_M ? M - first : TILE_M);
    i64 from = 0, rows;
    for (i64 g = 0; g < group; g++)
        from += rows_of(counts[g * TO_COUNT], ROWS - from);
    rows = rows_of(counts[group * TO_COUNT], ROWS - from);
    c += group * TO_GROUP + first * C_M;
    if (rows == 0)
        clear_rows(c, x, m, column GIVEN);
    else
        multiply(a + from * A_K + first * A_M, b + from * B_K, c, x, f, m,
                 column, rows GIVEN);
}
#else
static inline void make_tile(const code_a *a, const code_b *b, code_c *c,
                             code_x *x, float f, const int *counts,
                             i64 tile LENGTHS)
{
    const i64 column = tile % ACROSS, first = tile / ACROSS * TILE_M;
    const i64 end = first + TILE_M < M ? first + TILE_M : M;
    i64 row = first, group = -1, past = 0;
    while (row < end) {
        while (past <= row && group + 1 < GROUPS) {
            group++;
            past += rows_of(counts[group * TO_COUNT], ROWS - past);
        }
        if (past <= row) {
            clear_rows(c + row * C_M, x + row * X_M, (int)(end - row),
                       column GIVEN);
            return;
        }
        const int m = (int)((past < end ? past : end) - row);
        multiply(a + row * A_M, b + group * TO_GROUP, c + row * C_M,
                 x + row * X_M, f, m, column, K GIVEN);
        row += m;
    }
}
#endif

extern "C" __global__ void HD_BOUNDS(2) hd_kernel(const hd_kernel_args args)
{
    const int *counts = (const int *)args.at[COUNTS];
    const i64 step = (i64)gridDim.x * blockDim.x;
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    TAKE_LENGTHS
    const float f = SCALE;

    if (first == 0)
        check(counts, (i64 *)args.at[TOLD], (i64)args.at[TOLD + 1] GIVEN);
    for (i64 tile = first; tile < TILES; tile += step)
        make_tile((const code_a *)args.at[1], (const code_b *)args.at[2],
                  (code_c *)args.at[0], (code_x *)args.at[AUX], f, counts,
                  tile GIVEN);
}
