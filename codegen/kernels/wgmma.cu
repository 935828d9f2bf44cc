// Tiles by the tensor cores of sm_90a: one warp has slices of both operands
// brought to shared memory, which one or two groups of four warps multiply from
// there (wgmma). A finished tile waits in registers, rounded, and is stored
// while the next one is multiplied.
//
//     loader       wait empty[s] ─ load slice s ──┐            (TMA)
//     multipliers  wait full[s] <─────────────────┘ multiply ─ arrive empty[s]
//
// Blocks may be in clusters: tiles below each other have the second operand in
// common, those beside each other the first. Each of them loads a part of that
// for all.
//
// Groups of warps share a tile, or take tiles in turns (ALTERNATE): while one
// multiplies the other one stores. The result may be made turned, so that its
// rows are the tile's columns, of which there may be any multiple of 8.
//
// Of 8 bits (PROMOTED) what tensor cores add up is cut to some 14 bits, so that
// the products of a slice are added to the sums by themselves, times the scales
// that the slice has: another warp brings these.
//
// With SPLIT the last one to two tiles of each block are shared out by slices
// of the depth, or all tiles where there are fewer than blocks. The later parts
// of a tile are the first of their shares: their blocks leave the sums for the
// owner of the first part, which adds them in order.
#ifndef HD_TYPES
#define TENSOR 1
#define BM 128 // rows of a block's tile
#define BN 64
#define CLUSTER_M 2
#define CLUSTER_N 1
#define GROUPS_OF_WARPS 2 // that multiply
#define ALTERNATE 0       // a tile each, in turns
#define SIDEWAYS 0        // they share a tile by columns, else by rows
#define TURNED 0          // of the result, columns are the tile's rows
#define SLICES 4          // in shared memory at once
#define PANELS_OF_C 2     // of 64 by 64 of a tile, on their way to memory
#define STAGED 1          // stored by way of shared memory
#define MAPS 3            // of a product
#define PLAIN 0           // nothing follows the product
#define C_CODE 1          // 1: bf16, 2: f16, 0: another one
#define RAGGED 0          // slices that end within 64
#define PROMOTED 0        // of 8 bits
#define A_PIECE(p) (p)    // of the maps' third dimension
#define B_PIECE(p) (p)
#define C_PIECE(p) (p)
#define WGMMA                                                                 \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, "  \
    "%4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "   \
    "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, " \
    "%33, p, 1, 1, 0, 1;"
#define WGMMA_MORE "%34"
#define WGMMA_SUMS                                                          \
    "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), \
        "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]),        \
        "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),    \
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),    \
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),    \
        "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]),    \
        "+f"(d[31])
#include "codegen/kernels/tiles.cu"
#undef TILE_M
#undef TILE_N
#define TILE_M (BM * CLUSTER_M)
#define TILE_N (BN * CLUSTER_N)
#define PARTS 6 // of at[]: of tiles, and the words that tell of them
#endif

#define SLICE (128 / (int)sizeof(code_a)) // 128 bytes
#define CLUSTER (CLUSTER_M * CLUSTER_N)
#define PEERS (CLUSTER_M + CLUSTER_N - 1) // that have an operand in common
#define SHARERS (ALTERNATE ? 1 : GROUPS_OF_WARPS) // of a tile
#define GROUP_COLUMNS (BN / (SIDEWAYS ? SHARERS : 1))
#define BLOCK_ROWS (BM / (SIDEWAYS ? 64 : 64 * SHARERS)) // of 64, of a group
#define THREADS (128 * (GROUPS_OF_WARPS + 1))
#define PANELS ((BN + 63) / 64)
#define GROUP_PANELS ((GROUP_COLUMNS + 63) / 64)
static_assert(!SIDEWAYS || B_ALONG, "a group's columns begin within a panel");
#define A_BYTES (BM * 128)
#define B_BYTES ((B_ALONG ? BN : PANELS * 64) * 128)
#define SLICE_BYTES (A_BYTES + B_BYTES)
#define C_BYTES (GROUPS_OF_WARPS * PANELS_OF_C * 8192)
#define PARKED (BLOCK_ROWS * GROUP_PANELS) // of a tile that a group stores
// Slices of 8 bits have scales of their own, of rows and of panels.
#define SLICE_SCALES (PROMOTED && (SA_DEPTH || SB_DEPTH))
#define SCALE_BYTES ((BM + 4) * 4)
// It waits in registers, if there are any left.
#define KEPT (!ALTERNATE && !(PROMOTED && GROUP_COLUMNS > 160))

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
typedef struct map {
    u64 word[16];
} map;

// A wait that is longer than this is given up, and told: 4 s, and where tiles
// wait for words as long as these may.
#if WORDS
typedef i64 moment;
#define LONGEST (MOST_CYCLES * (PRODUCTS * WORDS + 1) + 8000000000ll)
#define now() clock64()
#else
typedef u32 moment;
#define LONGEST 4000000000u

static inline u32 now()
{
    u32 t;
    asm volatile("mov.u32 %0, %globaltimer_lo;" : "=r"(t));
    return t;
}
#endif

static inline bool is_late(moment since, i64 *told, i64 step)
{
    if (now() - since < LONGEST)
        return false;
    if (told[0] == 0) {
        told[1] = -1;
        told[0] = step + 1;
    }
    return true;
}

static inline bool has_turned(u32 barrier, u32 parity)
{
    u32 has;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, "
                 "[%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(has)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return has;
}

static inline void wait_for(u32 barrier, u32 parity, i64 *told, i64 step)
{
    if (has_turned(barrier, parity))
        return;
    const moment since = now();
    while (!has_turned(barrier, parity))
        if (is_late(since, told, step))
            break;
}

// One thread of a warp, which the compiler then knows to be one.
static inline bool is_elected()
{
    u32 is;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, "
                 "0, p; }"
                 : "=r"(is));
    return is;
}

static inline void expect(u32 barrier, u32 bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
        "r"(bytes)
        : "memory");
}

static inline void load(u32 to, const map *from, u32 barrier, int x, int y,
                        int z)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::"
                 "complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
                 "l"(from), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

// To the same place of those blocks of the cluster.
static inline void load_for(u32 blocks, u32 to, const map *from, u32 barrier,
                            int x, int y, int z)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::"
        "bytes.multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(
            to),
        "l"(from), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"((u16)blocks)
        : "memory");
}

static inline void store_panel(const map *to, u32 from, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, "
                 "{%2, %3, %4}], [%1];" ::"l"(to),
                 "r"(from), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

// Lines of 128 bytes, turned in eights. Along the depth these are rows; across
// it 64 of them are a panel of 64 rows, and panels lie behind one another.
static inline u64 matrix_at(u32 at, bool along)
{
    return (u64)(64u | 1u << 30) << 32 | (u64)(along ? 1 : 512) << 16 |
           (at >> 4 & 0x3fff);
}

static inline void multiply_add(float *d, u64 a, u64 b, u32 more)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, " WGMMA_MORE ", 0; " WGMMA " }"
                 : WGMMA_SUMS
                 : "l"(a), "l"(b), "r"(more));
}

static inline u32 pair_of(float low, float high)
{
    u32 pair;
#if C_CODE == 2
    asm volatile("cvt.rn.f16x2.f32 %0, %1, %2;"
                 : "=r"(pair)
                 : "f"(high), "f"(low));
#else
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;"
                 : "=r"(pair)
                 : "f"(high), "f"(low));
#endif
    return pair;
}

static inline void meet_cluster()
{
    __syncwarp();
#if CLUSTER > 1
    asm volatile("barrier.cluster.arrive.relaxed;\n"
                 "barrier.cluster.wait.acquire;" ::
                     : "memory");
#else
    __syncthreads();
#endif
}

// Nobody leaves while a peer may still arrive here.
#if CLUSTER > 1
#define LEAVE() meet_cluster()
#else
#define LEAVE()
#endif
#endif

// Which block of the cluster is the `i`th that has an operand in common with
// that of row `m` and column `n`: those of its column, and of its row.
static inline int peer_of(int i, int m, int n)
{
    const int j = i - CLUSTER_M;

    return i < CLUSTER_M ? n * CLUSTER_M + i : m + (j + (j >= n)) * CLUSTER_M;
}

// What is left of the tile for the block of a cluster that is `m` rows and `n`
// columns of blocks behind its first one.
static inline void take_part(tile *t, int m, int n)
{
    t->row += m * BM;
    t->column += n * BN;
    t->rows = within(t->rows - m * BM, BM);
    t->fill_rows = within(t->fill_rows - m * BM, BM);
    t->columns = within(t->columns - n * BN, BN);
    t->fill_columns = within(t->fill_columns - n * BN, BN);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// Tiles in their order: `from` and `past` are slices.
#if SPLIT
#define ALL_SLICES ((coord)((K + SLICE - 1) / SLICE))
#define EACH_TILE                                                              \
    share own = share_of(blockIdx.x / CLUSTER, gridDim.x / CLUSTER, ALL_TILES, \
                         ALL_SLICES);                                          \
    for (coord i, from, past;                                                  \
         next_share(&own, ALL_SLICES, &i, &from, &past) &&                     \
         find_tile(args, i, &w, &t);)
#else
#define EACH_TILE                                      \
    coord from = 0, past = 0;                          \
    for (coord i = blockIdx.x / CLUSTER;               \
         find_tile(args, i, &w, &t) &&                 \
         (past = (t.depth + SLICE - 1) / SLICE, true); \
         i += gridDim.x / CLUSTER)
#endif
// Those beside each other, of the first row of blocks.
#define COLUMN_OF_BLOCKS (((1u << CLUSTER) - 1) / ((1u << CLUSTER_M) - 1))
#define IS_EMPTY (t.fill_rows <= 0 || t.fill_columns <= 0)

// The loads of a slice of an operand, `SIDE` lines of it, from index `k` of the
// depth on: of as many parts as blocks have it in common each loads one.
template <bool ALONG, int SIDE, int BLOCKS>
static inline void load_side(u32 to, const map *from, u32 full, int line, int k,
                             int piece, int part, u32 blocks)
{
#pragma unroll
    for (int i = 0; i < (ALONG ? 1 : (SIDE + 63) / 64); i++) {
        const u32 panel = to + i * 8192;
        const int lines = (ALONG ? SIDE : 64) / BLOCKS; // of 128 bytes
        const int x = ALONG ? k : line + i * 64, y = ALONG ? line : k;

        if (BLOCKS > 1)
            load_for(blocks, panel + part * lines * 128, from, full, x,
                     y + part * lines, piece);
        else
            load(panel, from, full, x, y, piece);
    }
}

// Clears the lines of a slice from `depth` on, of all panels that the group of
// warps multiplies: a product with what is no number is none.
static inline void clear_lines(u32 slice, int group, int depth)
{
    const int thread = threadIdx.x & 127, each = (SLICE - depth) * 8;

    for (int i = thread; i < (BLOCK_ROWS + PANELS) * each; i += 128) {
        const int panel = i / each;
        const u32 at =
            slice + depth * 128 + i % each * 16 +
            (panel < BLOCK_ROWS ? (group * BLOCK_ROWS + panel) * 8192
                                : A_BYTES + (panel - BLOCK_ROWS) * 8192);
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at),
                     "r"(0)
                     : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
}

// One row of a panel that counts end: what there is of it.
static inline void store_row(const hd_kernel_args &args, const tile &t, u32 at,
                             int i, int j, int turn)
{
    u32 pair[4];

    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(pair[0]), "=r"(pair[1]), "=r"(pair[2]), "=r"(pair[3])
                 : "r"(at + (turn << 4)));
#if STAGED
    u16 *to = (u16 *)c_at(args, t, i, j);

    if (j + 8 <= t.fill_columns) {
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to),
                     "r"(pair[0]), "r"(pair[1]), "r"(pair[2]), "r"(pair[3])
                     : "memory");
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (j + e < t.fill_columns)
            to[e] = (u16)(pair[e / 2] >> e % 2 * 16);
#endif
}

#if PROMOTED
static_assert(BLOCK_ROWS == 1, "what is added up beside takes registers");
static_assert(CLUSTER == 1 && !SPLIT, "scales are of whole tiles of a block");
#if SLICE_SCALES
// Which of a tile's scales a lane brings to shared memory, where those of all
// rows are, then those of the panels: of each 32 rows one, and of a panel. Of
// rows and columns that are not there they are the last ones'.
typedef struct scale_lane {
    const float *row[BM / 32], *panel; // of the first slice
    float of_row[BM / 32], of_panel;   // of the next one
} scale_lane;

static inline void find_scales(const hd_kernel_args &args, const tile &t,
                               int lane_, scale_lane *out)
{
#if SA_DEPTH
#pragma unroll
    for (int i = 0; i < BM / 32; i++)
        out->row[i] =
            (const float *)args.at[SCALES_A] +
            SA_AT(0, (i64)(t.row + least(lane_ + 32 * i, t.fill_rows - 1)), 0);
#endif
#if SB_DEPTH
    out->panel =
        (const float *)args.at[SCALES_B] +
        SB_AT((i64)t.piece, (i64)least(t.column + lane_ * 64, (coord)N - 1), 0);
#endif
}

static inline void read_scales(scale_lane *of, coord k)
{
#pragma unroll
    for (int i = 0; i < BM / 32 && SA_DEPTH; i++)
        of->of_row[i] = of->row[i][k * SA_DEPTH];
    if (SB_DEPTH)
        of->of_panel = of->panel[k * SB_DEPTH];
}

static inline void leave_scale(u32 at, float scale)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(scale) : "memory");
}

static inline void leave_scales(const scale_lane *of, u32 at, int lane_)
{
#pragma unroll
    for (int i = 0; i < BM / 32 && SA_DEPTH; i++)
        leave_scale(at + (lane_ + 32 * i) * 4, of->of_row[i]);
    if (SB_DEPTH && lane_ < PANELS)
        leave_scale(at + (BM + lane_) * 4, of->of_panel);
}

static inline float scale_of(u32 at)
{
    float scale;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(scale) : "r"(at) : "memory");
    return scale;
}
#endif

// What the two rows of a thread are multiplied by in each panel.
typedef struct factors {
    float of[GROUP_PANELS][2];
} factors;

static inline void take_scales(factors *out, u32 at, int row)
{
#if SLICE_SCALES
    float of_row[2];

#pragma unroll
    for (int h = 0; h < 2; h++)
        of_row[h] = SA_DEPTH ? scale_of(at + (row + 8 * h) * 4) : 1;
#pragma unroll
    for (int p = 0; p < GROUP_PANELS; p++) {
        const float of_panel = SB_DEPTH ? scale_of(at + (BM + p) * 4) : 1;

#pragma unroll
        for (int h = 0; h < 2; h++)
            out->of[p][h] = of_row[h] * of_panel;
    }
#else
    float one;

    // Not known to the compiler, which else adds up the first slice in place.
    asm volatile("mov.f32 %0, 0f3f800000;" : "=f"(one));
#pragma unroll
    for (int p = 0; p < GROUP_PANELS; p++)
        out->of[p][0] = out->of[p][1] = one;
#endif
}

static inline void promote(float sum[GROUP_COLUMNS / 2],
                           const float part[GROUP_COLUMNS / 2],
                           const factors *by)
{
#pragma unroll
    for (int j = 0; j < GROUP_COLUMNS / 2; j++)
        sum[j] += part[j] * by->of[j / 32][j / 2 % 2];
}

// By the scales that all slices have in common.
static inline void scale_sums(const hd_kernel_args &args, const tile &t,
                              int row, float sum[GROUP_COLUMNS / 2])
{
    const coord last = (coord)N - 1 - t.column;

    if (!(SCALES_A && !SA_DEPTH) && !(SCALES_B && !SB_DEPTH))
        return;
#pragma unroll
    for (int j = 0; j < GROUP_COLUMNS / 2; j++) {
        const int column = j / 4 * 8 + (threadIdx.x & 3) * 2 + j % 2;
        const int i = least(row + j / 2 % 2 * 8, t.fill_rows - 1);

        if (!SB_DEPTH)
            sum[j] *= scale_b(args, t, least(column, last), 0);
        if (!SA_DEPTH)
            sum[j] *= scale_a(args, t, i, 0);
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    hd_kernel(const __grid_constant__ hd_kernel_args args)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const map *a = &((const map *)args.map)[0];
    const map *b = &((const map *)args.map)[1];
    i64 *told = (i64 *)args.at[TOLD];
    const i64 step = (i64)args.at[TOLD + 1];
    const int warp = __shfl_sync(~0u, threadIdx.x >> 5, 0),
              lane_ = threadIdx.x & 31;
    u32 base, rank = 0;
    walk w = {-1, 0, 0, 0};
    tile t = {0};

    asm("{ .reg .u64 at; cvta.to.shared.u64 at, %1; cvt.u32.u64 %0, at; }"
        : "=r"(base)
        : "l"(memory));
    base = (base + 1023) & ~1023u;
    const u32 parked = base + SLICES * SLICE_BYTES;
    const u32 full = parked + C_BYTES, empty = full + 8 * SLICES;
    const u32 order = empty + 8 * SLICES; // of groups that take turns
    const u32 scales = order + 16;
#if CLUSTER > 1
    asm volatile("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
#endif
    const int part_n = CLUSTER_N > 1 ? (int)rank / CLUSTER_M : 0;
    const int part_m = (int)rank - part_n * CLUSTER_M;
    if (threadIdx.x < SLICES) {
        const u32 i = threadIdx.x;

        if (i < 2)
            asm volatile("prefetch.tensormap [%0];" ::"l"(i > 0 ? b : a));
        asm volatile(
            "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(full + 8 * i),
            "r"(1 + 32 * SLICE_SCALES));
        asm volatile(
            "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * i),
            "r"(4 * SHARERS * PEERS));
        if (ALTERNATE && i < 2)
            asm volatile(
                "mbarrier.init.shared::cta.b64 [%0], 4;" ::"r"(order + 8 * i));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    meet_cluster();
    // The launch may begin before what its stream has before it has ended.
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    int s = 0;
    u32 turn = 0;
    if (warp < 4) {
#if GROUPS_OF_WARPS == 2
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
#endif
        if (warp == 1)
            check_counts(args, (i64)blockIdx.x * 32 + lane_,
                         (i64)gridDim.x * 32);
        if (warp == 0 && is_elected()) {
#if WORDS
            int heard = 0;
#endif
            EACH_TILE
            {
                if (IS_EMPTY)
                    continue;
                take_part(&t, part_m, part_n);
#if WORDS
                // What was waited for is read by another way than by loads.
                if (await_words(args, t.product, &heard))
                    asm volatile("fence.proxy.async;" ::: "memory");
#endif
                const map *a_ = a + t.product * MAPS,
                          *b_ = b + t.product * MAPS;
                for (; from < past; from++) {
                    const u32 to = base + s * SLICE_BYTES;
                    const int k = t.k + from * SLICE;

                    wait_for(empty + 8 * s, turn ^ 1, told, step);
                    expect(full + 8 * s, SLICE_BYTES);
                    load_side<A_ALONG, BM, CLUSTER_N>(
                        to, a_, full + 8 * s, t.row, k, A_PIECE(t.piece),
                        part_n, COLUMN_OF_BLOCKS << part_m);
                    load_side<B_ALONG, BN, CLUSTER_M>(
                        to + A_BYTES, b_, full + 8 * s, t.column, k,
                        B_PIECE(t.piece), part_m,
                        ((1u << CLUSTER_M) - 1) << part_n * CLUSTER_M);
                    if (++s == SLICES)
                        s = 0, turn ^= 1;
                }
#if !SPLIT
                from = 0;
#endif
            }
        }
#if SLICE_SCALES
        if (warp == 2) {
            EACH_TILE
            {
                scale_lane of;

                if (IS_EMPTY)
                    continue;
                find_scales(args, t, lane_, &of);
                read_scales(&of, 0);
                for (; from < past; from++) {
                    const scale_lane now = of;

                    if (from + 1 < past)
                        read_scales(&of, from + 1);
                    wait_for(empty + 8 * s, turn ^ 1, told, step);
                    leave_scales(&now, scales + s * SCALE_BYTES, lane_);
                    asm volatile(
                        "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(full +
                                                                         8 * s)
                        : "memory");
                    if (++s == SLICES)
                        s = 0, turn ^= 1;
                }
                from = 0;
            }
        }
#endif
        LEAVE();
        return;
    }
#if GROUPS_OF_WARPS == 2
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
#endif
    const int group = (warp >> 2) - 1, thread = threadIdx.x & 127;
    const int sharer = ALTERNATE ? 0 : group;
    // Of the tile the group's first row and column.
    const int row_of_group = SIDEWAYS ? 0 : sharer * BLOCK_ROWS * 64;
    const int column_of_group = SIDEWAYS ? sharer * GROUP_COLUMNS : 0;
    const int row_of_thread = (thread >> 5) * 16 + (lane_ >> 2);
    const float f = SCALE;
    u32 to = empty;
#if CLUSTER > 1
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(to)
                 : "r"(empty), "r"(peer_of(lane_ % PEERS, part_m, part_n)));
#define FREE(s)                                                                \
    do {                                                                       \
        if (lane_ < PEERS)                                                     \
            asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"( \
                             to + 8 * (s))                                     \
                         : "memory");                                          \
    } while (0)
#else
#define FREE(s)                                                                \
    do {                                                                       \
        if (lane_ == 0)                                                        \
            asm volatile(                                                      \
                "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(to + 8 * (s)) \
                : "memory");                                                   \
    } while (0)
#endif
#if STAGED
    const map *c = &((const map *)args.map)[2];
#if TURNED
#define STMATRIX "stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16"
    // Of 16 lines a thread's, and of 64 rows which 8.
    const u32 line_of = (lane_ >> 4) * 8 + (lane_ & 7);
    const u32 chunk_of = (thread >> 5) * 2 + (lane_ >> 3 & 1);
#else
#define STMATRIX "stmatrix.sync.aligned.m8n8.x4.shared::cta.b16"
    const u32 line_of = (thread >> 5) * 16 + (lane_ & 15);
    const u32 chunk_of = lane_ >> 4;
#endif
    u32 held[BLOCK_ROWS][GROUP_COLUMNS / 4];
    tile kept;
    bool pending = false;
    int buffer = 0;
    // A narrow last panel overlaps its neighbour: the same values twice.
    auto column_of = [](const int p) {
        return p * 64 + 64 <= GROUP_COLUMNS ? p * 64 : GROUP_COLUMNS - 64;
    };
    auto park = [&](const int i, const int p, const u32 at) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const u32 *d = held[i] + (column_of(p) + 16 * j) / 4;
            const u32 line = line_of + (TURNED ? 16 * j : 0);
            const u32 chunk = chunk_of + (TURNED ? 0 : 2 * j);

            asm volatile(STMATRIX " [%0], {%1, %2, %3, %4};" ::"r"(
                             at + line * 128 + (chunk ^ (line & 7)) * 16),
                         "r"(d[0]), "r"(d[1]), "r"(d[2]), "r"(d[3])
                         : "memory");
        }
    };
    // What threads have parked, for the tensor memory accelerator.
    auto show = [&]() {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
    };
    auto send = [&](const int i, const int p, const u32 at) {
        const int column = column_of_group + column_of(p);
        const int row = row_of_group + i * 64;
        bool whole = row < kept.rows && column < kept.columns;

#if GROUPED == 1 || COUNTED
        if (row + 64 > kept.fill_rows) {
            for (int q = thread; q < 512; q += 128)
                if (row + q / 8 < kept.fill_rows &&
                    column + q % 8 * 8 < kept.fill_columns)
                    store_row(args, kept, at + q / 8 * 128, row + q / 8,
                              column + q % 8 * 8, q % 8 ^ q / 8 & 7);
            whole = false;
        }
#endif
        if (thread == 0) {
            if (whole)
                store_panel(c + kept.product * MAPS, at,
                            TURNED ? kept.row + row : kept.column + column,
                            TURNED ? kept.column + column : kept.row + row,
                            C_PIECE(kept.piece));
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
    };
    auto put = [&](const int i, const int p) {
        const u32 at = parked + (group * PANELS_OF_C + buffer) * 8192;

        if (thread == 0)
            asm volatile(
                "cp.async.bulk.wait_group.read %0;" ::"n"(PANELS_OF_C - 1)
                : "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
        park(i, p, at);
        show();
        send(i, p, at);
        if (++buffer == PANELS_OF_C)
            buffer = 0;
    };
#endif
#if RAGGED
#define CLEAR_LINES(k)               \
    if (t.depth - (k)*SLICE < SLICE) \
    clear_lines(base + s * SLICE_BYTES, group, t.depth - (k)*SLICE)
#else
#define CLEAR_LINES(k) (void)0
#endif
#define A_STEP (A_ALONG ? 2 : 128)
#define B_STEP (B_ALONG ? 2 : 128)
#define ISSUE(first, k)                                                        \
    do {                                                                       \
        wait_for(full + 8 * s, turn, told, step);                              \
        CLEAR_LINES(k);                                                        \
        TAKE_SCALES();                                                         \
        const u32 at = base + s * SLICE_BYTES;                                 \
        const u64 left = matrix_at(at + row_of_group * 128, A_ALONG);          \
        const u64 right =                                                      \
            matrix_at(at + A_BYTES + column_of_group * 128, B_ALONG);          \
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                \
        _Pragma("unroll") for (int q = 0; q < 4; q++)                          \
            _Pragma("unroll") for (int i = 0; i < BLOCK_ROWS; i++)             \
                multiply_add(PRODUCT[i], left + A_STEP * q + 512 * i,          \
                             right + B_STEP * q, q || !(PROMOTED || (first))); \
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");         \
    } while (0)
#if PROMOTED
#define TAKE_SCALES() \
    take_scales(&by, scales + s * SCALE_BYTES, row_of_group + row_of_thread)
#define PRODUCT part
#define RETIRE(before, k)                                              \
    do {                                                               \
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); \
        __syncwarp(); /* all lanes have read the scales */             \
        FREE(s);                                                       \
        promote(sum[0], part[0], &by);                                 \
        if (++s == SLICES)                                             \
            s = 0, turn ^= 1;                                          \
    } while (0)
#else
#define TAKE_SCALES() (void)0
#define PRODUCT sum
#define RETIRE(before, k)                                              \
    do {                                                               \
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); \
        if (before)                                                    \
            FREE(last);                                                \
        last = s;                                                      \
        if (++s == SLICES)                                             \
            s = 0, turn ^= 1;                                          \
    } while (0)
#endif
#if ALTERNATE
    int tiles = 0;
#endif
    // All slices of the tile are here: the other group may wait for those of
    // the next one.
#define NEXT_GROUP()                                                       \
    do {                                                                   \
        if (ALTERNATE && lane_ == 0)                                       \
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"( \
                             order + 8 * (1 - group))                      \
                         : "memory");                                      \
    } while (0)
    EACH_TILE
    {
        // The first slice's product takes the place of what was there.
        float sum[BLOCK_ROWS][GROUP_COLUMNS / 2];
        int last = 0;

        if (IS_EMPTY) {
            take_part(&t, part_m, part_n);
            clear(args, t, group * 128 + thread, 128 * GROUPS_OF_WARPS);
            continue;
        }
        take_part(&t, part_m, part_n);
#if ALTERNATE
        // In turns: parities tell no more than one round of slices apart.
        if (tiles % 2 != group) {
            const int next = s + (int)(past - from);

            turn ^= next / SLICES & 1;
            s = next % SLICES;
            tiles++;
            continue;
        }
        if (tiles > 0)
            wait_for(order + 8 * group, (tiles / 2 + group + 1) & 1, told,
                     step);
        tiles++;
#endif
#if GROUPED == 1 || COUNTED
        // Rows that counts leave out are not multiplied.
        if (row_of_group >= t.fill_rows) {
#if STAGED
            if (pending) {
#pragma unroll
                for (int p = 0; p < PARKED; p++)
                    put(p / GROUP_PANELS, p % GROUP_PANELS);
                pending = false;
            }
#endif
            for (coord k = from; k < past; k++) {
                wait_for(full + 8 * s, turn, told, step);
                FREE(s);
                if (++s == SLICES)
                    s = 0, turn ^= 1;
            }
            clear(args, t, group * 128 + thread, 128 * GROUPS_OF_WARPS);
            continue;
        }
#endif
        coord k = from;
#if PROMOTED
        float part[1][GROUP_COLUMNS / 2];
        factors by;

#pragma unroll
        for (int j = 0; j < GROUP_COLUMNS / 2; j++)
            sum[0][j] = 0;
#endif
#if STAGED
        if (pending) {
            if (past - from >= PARKED) {
#pragma unroll
                for (int p = 0; p < PARKED; p++) {
                    ISSUE(p == 0, from + p);
                    put(p / GROUP_PANELS, p % GROUP_PANELS);
                    RETIRE(p > 0, from + p);
                }
                k = from + PARKED;
            } else {
#pragma unroll
                for (int p = 0; p < PARKED; p++)
                    put(p / GROUP_PANELS, p % GROUP_PANELS);
            }
            pending = false;
        }
#endif
        for (; k < past; k++) {
            ISSUE(k == from, k);
            RETIRE(k > from, k);
        }
        NEXT_GROUP();
#if PROMOTED
        scale_sums(args, t, row_of_group + row_of_thread, sum[0]);
#else
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        FREE(last);
#endif
#if SPLIT
        if (past - from < ALL_SLICES) {
            // Of a block and group of warps, which leave sums once at most.
#define PART_OF(unit) (((unit)*CLUSTER + (int)rank) * SHARERS + sharer)
#define SUMS_OF(part)           \
    ((float4 *)args.at[PARTS] + \
     (i64)(part) * (BLOCK_ROWS * GROUP_COLUMNS / 8 * 128) + thread)
            const coord units = gridDim.x / CLUSTER;
            coord unit = blockIdx.x / CLUSTER;
            u32 *ready = (u32 *)args.at[PARTS + 1];

            if (from > 0) {
                const int part = PART_OF(unit);
                float4 *left = SUMS_OF(part);

#pragma unroll
                for (int m = 0; m < BLOCK_ROWS; m++)
#pragma unroll
                    for (int j = 0; j < GROUP_COLUMNS / 8; j++)
                        __stcg(left + (m * (GROUP_COLUMNS / 8) + j) * 128,
                               make_float4(sum[m][4 * j], sum[m][4 * j + 1],
                                           sum[m][4 * j + 2],
                                           sum[m][4 * j + 3]));
                asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
                if (thread == 0)
                    asm volatile(
                        "fence.acq_rel.gpu;\n"
                        "st.relaxed.gpu.global.u32 [%0], 1;" ::"l"(ready + part)
                        : "memory");
                continue;
            }
            // Those of the blocks that have the rest of the tile, in order.
            const coord shared = ALL_TILES - own.whole;
            const coord rest = (i - own.whole + 1) * ALL_SLICES;

            for (coord end = own.end; end < rest;) {
                const coord before = end;

                end = end_of(++unit, units, shared, ALL_SLICES);
                if (end == before)
                    continue; // it has none
                const int part = PART_OF(unit);
                const float4 *left = SUMS_OF(part);

                if (thread == 0) {
                    const moment since = now();
                    for (u32 is = 0; is == 0 && !is_late(since, told, step);)
                        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                                     : "=r"(is)
                                     : "l"(ready + part)
                                     : "memory");
                    // The next launch begins with none.
                    asm volatile(
                        "st.relaxed.gpu.global.u32 [%0], 0;" ::"l"(ready + part)
                        : "memory");
                }
                asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
#pragma unroll
                for (int m = 0; m < BLOCK_ROWS; m++)
#pragma unroll
                    for (int j = 0; j < GROUP_COLUMNS / 8; j++) {
                        const float4 v =
                            __ldcg(left + (m * (GROUP_COLUMNS / 8) + j) * 128);

                        sum[m][4 * j] += v.x;
                        sum[m][4 * j + 1] += v.y;
                        sum[m][4 * j + 2] += v.z;
                        sum[m][4 * j + 3] += v.w;
                    }
            }
        }
#endif
#if STAGED
        kept = t;
        pending = KEPT;
#endif
#pragma unroll
        for (int m = 0; m < BLOCK_ROWS; m++)
#pragma unroll
            for (int j = 0; j < GROUP_COLUMNS / 4; j++) {
                const int row =
                    row_of_group + row_of_thread + m * 64 + j % 2 * 8;
                const int column = column_of_group + j / 2 * 8 + lane_ % 4 * 2;
                float low = sum[m][2 * j], high = sum[m][2 * j + 1];
#if STAGED
#if !PLAIN
                if (row < t.fill_rows && column < t.fill_columns) {
                    low = value_at(args, t, row, column, low, f);
                    if (column + 1 < t.fill_columns)
                        high = value_at(args, t, row, column + 1, high, f);
                }
#endif
#if !PLAIN
                // One pair after the other: no more registers at once.
                asm volatile("" : "+f"(low), "+f"(high)::"memory");
#endif
                held[m][j] = pair_of(low, high);
#if !KEPT
                if (j % 16 == 15 || j == GROUP_COLUMNS / 4 - 1)
                    put(m, j / 16);
#endif
#else
                if (row < t.fill_rows && column < t.fill_columns) {
                    store(args, t, row, column, low, f);
                    if (column + 1 < t.fill_columns)
                        store(args, t, row, column + 1, high, f);
                }
#endif
            }
#if GROUPED == 1 || COUNTED
        clear(args, t, group * 128 + thread, 128 * GROUPS_OF_WARPS);
#endif
#if !SPLIT
        from = 0;
#endif
    }
#if STAGED
#if KEPT
    // All slices are read: there is room for the last tile at once.
    asm volatile("bar.sync %0, %1;" ::"n"(1 + GROUPS_OF_WARPS),
                 "n"(128 * GROUPS_OF_WARPS)
                 : "memory");
    if (pending) {
        const u32 at = base + group * PARKED * 8192;

#pragma unroll
        for (int p = 0; p < PARKED; p++)
            park(p / GROUP_PANELS, p % GROUP_PANELS, at + p * 8192);
        show();
#pragma unroll
        for (int p = 0; p < PARKED; p++)
            send(p / GROUP_PANELS, p % GROUP_PANELS, at + p * 8192);
    }
#endif
    if (thread == 0)
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
    LEAVE();
}
#endif
