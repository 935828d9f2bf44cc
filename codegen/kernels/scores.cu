// What attention's kernels for tensor cores have in common. Rows of all heads
// that share keys are lines of one matrix, heads of a row side by side: line i
// is of row i / GROUP. Of a tile of lines, or of keys, each sees those of the
// other kind in a range; what none of a tile sees is not loaded, as it may be
// anything, and becomes 0.
#ifndef HD_TYPES
#include "codegen/kernels/attend.cu"
#define IS_F16 0
#define NOTES 2176  // bytes ahead of tiles in shared memory
#define VECTORS_2 1 // lines of a view lie at multiples of 8 elements
#define VECTORS_3 1
#define VECTORS_4 1
#define VECTORS_5 1
#define VECTORS_6 1
#define VECTORS_8 1
#define CODES_8 1 // of the dtype that is multiplied
#include "codegen/kernels/mma.cu"
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define GROUP (H / HKV) // heads that share keys
#define THREADS 128
#define LOG2E 1.44269504088896341f
#define LN2 0.693147180559945309f
// Elements of a line that are multiplied, and that it has room for.
#define PAD(n) (((n) + 15) / 16 * 16)
#define LINE(n) ((n) <= 16 ? 16 : (n) <= 32 ? 32 : ((n) + 63) / 64 * 64)

// In shared memory: what each of a tile sees, and by warps what any of it does,
// least to most, and all that see something do, low to high. Of lines that are
// under way their logarithms to base 2, infinite where they saw nothing, and
// products of gradients and results.
typedef struct range {
    int least, most, low, high;
} range;
typedef struct notes {
    int from[128], past[128];
    range of[THREADS / 32], all;
    float lse[128], delta[128]; // of a tile, or of two times some
} notes;
enum { NO_LINE = -1 };
static_assert(sizeof(notes) <= NOTES && NOTES % 128 == 0, "tiles follow");

static inline int lower(int x, int y)
{
    return x < y ? x : y;
}

static inline int higher(int x, int y)
{
    return x > y ? x : y;
}

// Of the tile. `find(line, &from, &past)`, NO_LINE both if it is none.
template <int LINES, class Find>
static inline void find_ranges(notes *n, Find find)
{
    const int most = 0x7fffffff, line = threadIdx.x;
    range all = {most, 0, 0, most};

    __syncthreads(); // those of the last tile are read
    if (line < LINES) {
        i64 from = 0, past = 0;
        find(line, &from, &past);
        const bool sees = past > from;
        const int x = (int)from, y = sees ? (int)past : x;
        n->from[line] = x;
        n->past[line] = y;
        all.least = least_of(sees ? x : most);
        all.most = most_of(sees ? y : 0);
        all.low = most_of(sees ? x : 0);
        all.high = least_of(sees ? y : most);
        if (line % 32 == 0)
            n->of[line / 32] = all;
    }
    __syncthreads();
    if (line == 0) {
        for (int i = 1; i < LINES / 32; i++) {
            all.least = lower(all.least, n->of[i].least);
            all.most = higher(all.most, n->of[i].most);
            all.low = higher(all.low, n->of[i].low);
            all.high = lower(all.high, n->of[i].high);
        }
        n->all = all;
    }
    __syncthreads();
}

// Of heads of keys some at a time, whose tiles lie side by side: those that
// take longest come first.
static inline void place_tile(i64 t, i64 tiles, i64 heads, i64 *tile, i64 *head)
{
    enum { TOGETHER = MASKED ? 16 : 1 };
    const i64 first = t / (tiles * TOGETHER) * TOGETHER;
    const i64 in = t % (tiles * TOGETHER);
    const i64 n = heads - first < TOGETHER ? heads - first : TOGETHER;

    *tile = in / n;
    *head = first + in % n;
}

// Lines of WIDE elements: `find(line, &some)` is where one is, if it is to be
// loaded; wherever it is, that can be read from.
template <int LINES, int WIDE, class Find>
static inline void fetch(u32 to, bool vectors, Find find)
{
    enum { CHUNKS = PAD(WIDE) / 8 };
#pragma unroll
    for (int first = 0; first < LINES * CHUNKS; first += THREADS) {
        const int i = first + (int)threadIdx.x;
        if (LINES * CHUNKS % THREADS > 0 && i >= LINES * CHUNKS)
            return;
        const int line = i / CHUNKS, chunk = i % CHUNKS;
        const u32 there = to + AT(line, chunk, LINE(WIDE) / 8);
        bool some = true;
        const u16 *from = (const u16 *)find(line, &some);
        int n = WIDE - chunk * 8 < 8 ? WIDE - chunk * 8 : 8;

        if (!some || n < 0)
            n = 0;
        if (vectors) {
            fetch_sixteen(there, from + (n > 0 ? chunk * 8 : 0), n * 2);
        } else {
            u32 x[4] = {0, 0, 0, 0};
#pragma unroll
            for (int e = 0; e < 8; e++)
                if (e < n)
                    x[e / 2] |= (u32)from[chunk * 8 + e] << e % 2 * 16;
            store_sixteen(there, x);
        }
    }
}

// 8 elements, of which there are `n`.
template <class Code>
static inline void load_eight(Code *out, const Code *from, i64 stride, int n,
                              bool vectors)
{
    enum { ONE = 16 / sizeof(Code) };
    struct alignas(16) vector {
        Code at[ONE];
    };
    if (vectors && n == 8) {
#pragma unroll
        for (int e = 0; e < 8; e += ONE) {
            const vector x = *(const vector *)(from + e);
#pragma unroll
            for (int i = 0; i < ONE; i++)
                out[e + i] = x.at[i];
        }
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++)
        out[e] = e < n ? from[e * stride] : 0;
}

// Likewise of another dtype, whose values are `get(code)`.
template <int LINES, int WIDE, class Find, class Get>
static inline void fetch_values(u32 to, i64 stride, bool vectors, Find find,
                                Get get)
{
    enum { CHUNKS = PAD(WIDE) / 8 };
    for (int i = threadIdx.x; i < LINES * CHUNKS; i += THREADS) {
        const int line = i / CHUNKS, chunk = i % CHUNKS;
        bool some = true;
        const auto *from = find(line, &some);
        auto code = *from;
        decltype(code) codes[8];
        u32 x[4];

        load_eight(codes, from + chunk * 8 * stride, stride,
                   some ? lower(WIDE - chunk * 8, 8) : 0, vectors);
#pragma unroll
        for (int e = 0; e < 4; e++)
            x[e] = pack(get(codes[2 * e]), get(codes[2 * e + 1]));
        store_sixteen(to + AT(line, chunk, LINE(WIDE) / 8), x);
    }
}

// Clears those of COUNT keys from `at` on that no line of the tile sees, where
// others between which they lie are seen.
template <int LINES, int COUNT, int WIDE>
static inline void clear_unseen(u32 keys, const notes *n, int at)
{
    const u32 none[4] = {0, 0, 0, 0};
    bool seen = false;

    __syncthreads();
    if (threadIdx.x < COUNT) {
        const int key = at + (int)threadIdx.x;
        for (int i = 0; i < LINES; i++)
            seen |= key >= n->from[i] && key < n->past[i];
        for (int c = 0; c < PAD(WIDE) / 8 && !seen; c++)
            store_sixteen(keys + AT((int)threadIdx.x, c, LINE(WIDE) / 8), none);
    }
    __syncthreads();
}

// Of a thread, in a way that the compiler does not see: what follows from it,
// places in shared memory, would be made ahead of loops, in more registers than
// there are.
static inline int lane_anew()
{
    int lane_ = threadIdx.x & 31;
    asm volatile("" : "+r"(lane_));
    return lane_;
}

// Of 16 ROWS lines of a warp, from `row` on, with 8 COLUMNS others.
template <int ROWS, int COLUMNS, int WIDE>
static inline void dots(float sum[ROWS][COLUMNS][4], u32 a, int row, u32 b)
{
    const int lane_ = lane_anew();
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sum[i][j][e] = 0;
#pragma unroll
    for (int k = 0; k < PAD(WIDE) / 8; k += 2) {
        u32 x[ROWS][4];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            read_along(x[i], a + AT(row + 16 * i + (lane_ & 15),
                                    k + (lane_ >> 4), LINE(WIDE) / 8));
#pragma unroll
        for (int j = 0; j < COLUMNS / 2; j++) {
            u32 y[4];

            read_along(y, b + AT(16 * j + (lane_ & 7) + (lane_ >> 4) * 8,
                                 k + (lane_ >> 3 & 1), LINE(WIDE) / 8));
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                multiply_add(sum[i][2 * j], x[i], y);
                multiply_add(sum[i][2 * j + 1], x[i], y + 2);
            }
        }
    }
}

// Adds lines of WIDE elements by their weights, of which 16 ROWS lines have 16
// DEPTH.
template <int ROWS, int DEPTH, int WIDE>
static inline void add_weighted(float sum[ROWS][PAD(WIDE) / 8][4],
                                const u32 weight[ROWS][DEPTH][4], u32 lines)
{
    const int lane_ = lane_anew();
#pragma unroll
    for (int k = 0; k < DEPTH; k++)
#pragma unroll
        for (int j = 0; j < PAD(WIDE) / 8; j += 2) {
            u32 y[4];

            read_across(y, lines + AT(16 * k + (lane_ & 15), j + (lane_ >> 4),
                                      LINE(WIDE) / 8));
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                multiply_add(sum[i][j], weight[i][k], y);
                multiply_add(sum[i][j + 1], weight[i][k], y + 2);
            }
        }
}

// What dots are, made weights.
template <int ROWS, int COLUMNS>
static inline void pack_weights(u32 out[ROWS][COLUMNS / 2][4],
                                const float x[ROWS][COLUMNS][4])
{
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            out[i][j / 2][j % 2 * 2] = pack(x[i][j][0], x[i][j][1]);
            out[i][j / 2][j % 2 * 2 + 1] = pack(x[i][j][2], x[i][j][3]);
        }
}

// Elements d and d + 1 of a line.
template <int WIDE, class Code, class Value>
static inline void store_two(Code *to, i64 stride, int d, Value x, Value y)
{
    struct alignas(2 * sizeof(Code)) pair {
        Code at[2];
    };
    Code *at = to + d * stride;

    if (d >= WIDE)
        return;
    if (d + 1 < WIDE && stride == 1 && (u64)at % sizeof(pair) == 0) {
        *(pair *)at = {{(Code)x, (Code)y}};
        return;
    }
    *at = (Code)x;
    if (d + 1 < WIDE)
        at[stride] = (Code)y;
}
#endif
