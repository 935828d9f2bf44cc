// Some blocks have a tile of lines, and what all keys make of its dq, and the
// others one of keys, and what all lines make of its dk and dv: nothing is
// added by two. The next keys, or lines, are on the way meanwhile.
#ifndef HD_TYPES
#include "codegen/kernels/scores.cu"
#define VIEWS                                    \
    u16 *v0 = (u16 *)args.at[0];                 \
    u16 *v1 = (u16 *)args.at[1];                 \
    u16 *v2 = (u16 *)args.at[2];                 \
    const u16 *v3 = (const u16 *)args.at[3];     \
    const u16 *v4 = (const u16 *)args.at[4];     \
    const u16 *v5 = (const u16 *)args.at[5];     \
    const u16 *v6 = (const u16 *)args.at[6];     \
    const float *v7 = (const float *)args.at[7]; \
    const u16 *v8 = (const u16 *)args.at[8];     \
    (void)b; // b of the batch is what they are of
typedef struct hd_kernel_args {
    u64 at[9];
} hd_kernel_args;
#define SHARED 68224
#define EACH 2      // 16 lines of a warp
#define KEYS 32     // at once
#define FEW 64      // lines at once
#define ALL_KEYS 64 // of a tile
#define PASSES 1    // 2: dk and dv apart
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
enum {
    LINES = 64 * EACH,
    Q_BYTES = LINES * LINE(D) * 2,
    G_BYTES = LINES * LINE(W) * 2,
    K_BYTES = KEYS * LINE(D) * 2,
    KV_BYTES = K_BYTES + KEYS * LINE(W) * 2,
    ALL_K_BYTES = ALL_KEYS * LINE(D) * 2,
    ALL_V_BYTES = ALL_KEYS * LINE(W) * 2,
    FEW_Q_BYTES = FEW * LINE(D) * 2,
    FEW_BYTES = FEW_Q_BYTES + FEW * LINE(W) * 2,
};
static_assert(NOTES + Q_BYTES + G_BYTES + 2 * KV_BYTES <= SHARED &&
                  NOTES + ALL_K_BYTES + ALL_V_BYTES + 2 * FEW_BYTES <= SHARED,
              "it has room");

// What a block works on.
typedef struct work {
    notes *n;
    u32 memory; // behind the notes
    i64 shared; // head of keys
    float natural, scale;
} work;

// Lines of q and of o's gradient from `top` on, as far as `seen(line)` says.
template <int COUNT, class Q, class G, class Seen>
static inline void fetch_lines(u32 to_q, u32 to_g, const Q *q, const G *g,
                               i64 top, Seen seen)
{
    const bool vectors_q = VECTORS_3 && (u64)q % 16 == 0;
    const bool vectors_g = VECTORS_8 && (u64)g % 16 == 0;
    const auto find_g = [&](int line, bool *some) {
        const i64 i = top + line;
        *some = seen(line);
        return *some ? g + i % GROUP * V8_H + i / GROUP * V8_S : g;
    };

    fetch<COUNT, D>(to_q, vectors_q, [&](int line, bool *some) {
        const i64 i = top + line;
        *some = seen(line);
        return *some ? q + i % GROUP * V3_H + i / GROUP * V3_S : q;
    });
    if constexpr (CODES_8)
        fetch<COUNT, W>(to_g, vectors_g, find_g);
    else
        fetch_values<COUNT, W>(to_g, V8_D, vectors_g, find_g,
                               [](auto code) { return (float)get_8(code); });
}

// Of lines from `top` on, up to `end`, what they saw and delta, by four threads
// each. Whether one of this thread's saw nothing.
template <int COUNT, class O, class G, class L>
static inline bool find_deltas(notes *n, int slot, const O *o, const G *g,
                               const L *l, i64 top, i64 end)
{
    const bool vectors_o = VECTORS_6 && (u64)o % 16 == 0;
    const bool vectors_g = VECTORS_8 && (u64)g % 16 == 0;
    bool blind = false;

#pragma unroll
    for (int first = 0; first < COUNT; first += THREADS / 4) {
        const int line = first + (int)threadIdx.x / 4;
        const bool is_there = line < COUNT && top + line < end;
        const i64 i = is_there ? top + line : top;
        const i64 head = i % GROUP, row = i / GROUP;
        const float lse = get_7(l[head * V7_H + row * V7_S]);
        float delta = 0;

#pragma unroll
        for (int c = 0; c < (W + 31) / 32; c++) {
            const int d = (4 * c + (int)threadIdx.x % 4) * 8;
            const int some = lower(W - d, 8);
            O x[8];
            G y[8];

            if (some <= 0)
                continue;
            load_eight(x, o + head * V6_H + row * V6_S + d * V6_D, V6_D, some,
                       vectors_o);
            load_eight(y, g + head * V8_H + row * V8_S + d * V8_D, V8_D, some,
                       vectors_g);
#pragma unroll
            for (int e = 0; e < 8; e++)
                delta += get_8(y[e]) * get_6(x[e]);
        }
        delta += __shfl_xor_sync(~0u, delta, 1);
        delta += __shfl_xor_sync(~0u, delta, 2);
        const bool saw = is_there && !sees_nothing(lse);
        blind |= is_there && !saw;
        if (line < COUNT && threadIdx.x % 4 == 0) {
            n->lse[slot * FEW + line] = saw ? lse * LOG2E : -none();
            n->delta[slot * FEW + line] = saw ? delta : 0;
        }
    }
    return blind;
}

// Clears lines that saw nothing.
template <int COUNT>
static inline void clear_blind(u32 q, u32 g, const notes *n, int slot)
{
    const u32 zero[4] = {0, 0, 0, 0};
    const int line = threadIdx.x;

    if (line < COUNT && n->lse[slot * FEW + line] == -none()) {
        for (int c = 0; c < PAD(D) / 8; c++)
            store_sixteen(q + AT(line, c, LINE(D) / 8), zero);
        for (int c = 0; c < PAD(W) / 8; c++)
            store_sixteen(g + AT(line, c, LINE(W) / 8), zero);
    }
    __syncthreads();
}

// A line of a gradient of WIDE elements, or 0.
template <int WIDE, bool ADDS, class Code, class Get, class Put>
static inline void store_line(Code *to, i64 stride, const float (*sum)[4],
                              int h, bool nothing, Get get, Put put)
{
#pragma unroll
    for (int j = 0; j < PAD(WIDE) / 8; j++) {
        const int d = 8 * j + threadIdx.x % 4 * 2;
        float y[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            y[e] = nothing ? 0 : sum[j][2 * h + e];
            if (ADDS && d + e < WIDE)
                y[e] += get(to[(d + e) * stride]);
        }
        store_two<WIDE>(to, stride, d, put(y[0]), put(y[1]));
    }
}

#define STORE_LINE(view, wide, to, sum, h, nothing)        \
    store_line<wide, ADDS_##view>(                         \
        to, V##view##_D, sum, h, nothing,                  \
        [](auto code) { return (float)get_##view(code); }, \
        [](float x) { return put_##view(x); })

// What the block's part is of.
#define DECLARE_WORK                                             \
    const i64 shared = w.shared, lines = S * GROUP;              \
    notes *n = w.n;                                              \
    VIEWS                                                        \
    COUNTS                                                       \
    v3 += shared * GROUP * V3_H;                                 \
    v4 += shared * V4_H;                                         \
    v5 += shared * V5_H;                                         \
    v6 += shared * GROUP * V6_H;                                 \
    v7 += shared * GROUP * V7_H;                                 \
    v8 += shared * GROUP * V8_H;                                 \
    const bool vectors_k = VECTORS_4 && (u64)v4 % 16 == 0;       \
    const bool vectors_v = VECTORS_5 && (u64)v5 % 16 == 0;       \
    const int warp = threadIdx.x / 32, lane_ = threadIdx.x & 31; \
    (void)lines, (void)rows, (void)keys;

// dq of the lines from `top` on.
static inline void make_dq(const hd_kernel_args &args, const work &w, i64 b,
                           i64 top)
{
    DECLARE_WORK
    const u32 at_q = w.memory, at_g = at_q + Q_BYTES, at_k = at_g + G_BYTES;
    float dq[EACH][PAD(D) / 8][4];

    find_ranges<LINES>(n, [&](int line, i64 *out_from, i64 *out_past) {
        const i64 row = (top + line) / GROUP;
        *out_from = *out_past = NO_LINE;
        if (top + line >= lines)
            return;
        SEE_KEYS(row)
        if (UPDATES && absent)
            return;
        if (sees_nothing(get_7(v7[(top + line) % GROUP * V7_H + row * V7_S])))
            past = from;
        *out_from = from;
        *out_past = past;
    });
    const int least = n->all.least, most = n->all.most;
    const auto fetch_keys = [&](int at, u32 to) {
        fetch<KEYS, D>(to, vectors_k, [&](int line, bool *some) {
            *some = at + line < most;
            return v4 + (*some ? at + line : (i64)at) * V4_S;
        });
        fetch<KEYS, W>(to + K_BYTES, vectors_v, [&](int line, bool *some) {
            *some = at + line < most;
            return v5 + (*some ? at + line : (i64)at) * V5_S;
        });
    };

#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < PAD(D) / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                dq[i][j][e] = 0;
    if (least < most) {
        fetch_lines<LINES>(at_q, at_g, v3, v8, top, [&](int line) {
            return n->past[line] > n->from[line];
        });
        fetch_keys(least, at_k);
        find_deltas<LINES>(n, 0, v6, v8, v7, top,
                           COUNTED && rows * GROUP < lines ? rows * GROUP
                                                           : lines);
    }
    for (int at = least, slot = 0; at < most; at += KEYS, slot ^= 1) {
        const u32 now = at_k + slot * KV_BYTES;
        const bool masked = at < n->all.low || at + KEYS > n->all.high;
        float x[EACH][KEYS / 8][4], up[EACH][KEYS / 8][4];
        u32 weights[EACH][KEYS / 16][4];

        await_fetches(false);
        if (at + KEYS < most)
            fetch_keys(at + KEYS, at_k + (slot ^ 1) * KV_BYTES);
        if (GROUPED && masked)
            clear_unseen<LINES, KEYS, D>(now, n, at);
        dots<EACH, KEYS / 8, D>(x, at_q, warp * 16 * EACH, now);
        dots<EACH, KEYS / 8, W>(up, at_g, warp * 16 * EACH, now + K_BYTES);
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int line = warp * 16 * EACH + 16 * i + 8 * h + lane_ / 4;
                const float lse = n->lse[line], delta = n->delta[line];
                const int from = n->from[line], past = n->past[line];
#pragma unroll
                for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        const int key = at + 8 * j + lane_ % 4 * 2 + e;
                        const float p =
                            power(x[i][j][2 * h + e] * w.scale - lse);
                        float *term = &x[i][j][2 * h + e];

                        *term = p * (up[i][j][2 * h + e] - delta) * w.natural;
                        if (masked && (key < from || key >= past))
                            *term = 0;
                    }
            }
        pack_weights<EACH, KEYS / 8>(weights, x);
        add_weighted<EACH, KEYS / 16, D>(dq, weights, now);
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int line = warp * 16 * EACH + 16 * i + 8 * h + lane_ / 4;
            const i64 row = (top + line) / GROUP;
            const i64 head = shared * GROUP + (top + line) % GROUP;
            auto *to = v0 + head * V0_H + row * V0_S;

            if (n->from[line] != NO_LINE)
                STORE_LINE(0, D, to, dq[i], h, n->from[line] >= n->past[line]);
        }
}

// dk, dv or both, of the keys from `top` on.
template <bool DK, bool DV>
static inline void make_dk_dv(const hd_kernel_args &args, const work &w, i64 b,
                              i64 top)
{
    DECLARE_WORK
    const u32 at_k = w.memory, at_v = at_k + ALL_K_BYTES,
              at_q = at_v + ALL_V_BYTES;
    float dk[1][DK ? PAD(D) / 8 : 1][4], dv[1][DV ? PAD(W) / 8 : 1][4];

    find_ranges<ALL_KEYS>(n, [&](int line, i64 *out_from, i64 *out_past) {
        const i64 key = top + line;
        *out_from = *out_past = NO_LINE;
        if (key >= N)
            return;
        SEE_ROWS(key)
        if (UPDATES && absent)
            return;
        *out_from = from < rows ? from * GROUP : rows * GROUP;
        *out_past = past > 0 ? past * GROUP : 0;
    });
    const int least = n->all.least, most = n->all.most;
    const auto fetch_some = [&](int at, int slot) {
        const u32 to = at_q + slot * FEW_BYTES;

        fetch_lines<FEW>(to, to + FEW_Q_BYTES, v3, v8, at,
                         [&](int line) { return at + line < most; });
        return find_deltas<FEW>(n, slot, v6, v8, v7, at, most);
    };
    bool blind = false;

#pragma unroll
    for (int e = 0; e < 4; e++) {
#pragma unroll
        for (int j = 0; j < (DK ? PAD(D) / 8 : 1); j++)
            dk[0][j][e] = 0;
#pragma unroll
        for (int j = 0; j < (DV ? PAD(W) / 8 : 1); j++)
            dv[0][j][e] = 0;
    }
    if (least < most) {
        fetch<ALL_KEYS, D>(at_k, vectors_k, [&](int line, bool *some) {
            *some = n->past[line] > n->from[line];
            return v4 + (*some ? top + line : top) * V4_S;
        });
        fetch<ALL_KEYS, W>(at_v, vectors_v, [&](int line, bool *some) {
            *some = n->past[line] > n->from[line];
            return v5 + (*some ? top + line : top) * V5_S;
        });
        blind = fetch_some(least, 0);
    }
    for (int at = least, slot = 0; at < most; at += FEW, slot ^= 1) {
        const u32 now_q = at_q + slot * FEW_BYTES, now_g = now_q + FEW_Q_BYTES;
        const bool masked = at < n->all.low || at + FEW > n->all.high;
        float x[1][FEW / 8][4], up[1][FEW / 8][4];
        u32 weights[1][FEW / 16][4];

        const bool clears = await_fetches(blind);
        if (at + FEW < most)
            blind = fetch_some(at + FEW, slot ^ 1);
        if (clears)
            clear_blind<FEW>(now_q, now_g, n, slot);
        dots<1, FEW / 8, D>(x, at_k, warp * 16, now_q);
        if (DK)
            dots<1, FEW / 8, W>(up, at_v, warp * 16, now_g);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int key = warp * 16 + 8 * h + lane_ / 4;
            const int from = n->from[key], past = n->past[key];
#pragma unroll
            for (int j = 0; j < FEW / 8; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int line = 8 * j + lane_ % 4 * 2 + e;
                    float *p = &x[0][j][2 * h + e];

                    *p = power(*p * w.scale - n->lse[slot * FEW + line]);
                    if (masked && (at + line < from || at + line >= past))
                        *p = 0;
                    if (DK)
                        up[0][j][2 * h + e] =
                            *p == 0 ? 0
                                    : *p *
                                          (up[0][j][2 * h + e] -
                                           n->delta[slot * FEW + line]) *
                                          w.natural;
                }
        }
        if constexpr (DV) {
            pack_weights<1, FEW / 8>(weights, x);
            add_weighted<1, FEW / 16, W>(dv, weights, now_g);
        }
        if constexpr (DK) {
            pack_weights<1, FEW / 8>(weights, up);
            add_weighted<1, FEW / 16, D>(dk, weights, now_q);
        }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int key = warp * 16 + 8 * h + lane_ / 4;

        if (n->from[key] == NO_LINE)
            continue;
        const bool nothing = n->from[key] >= n->past[key];
        if constexpr (DK)
            STORE_LINE(1, D, v1 + shared * V1_H + (top + key) * V1_S, dk[0], h,
                       nothing);
        if constexpr (DV)
            STORE_LINE(2, W, v2 + shared * V2_H + (top + key) * V2_S, dv[0], h,
                       nothing);
    }
}

extern "C" __global__ void HD_THREADS(THREADS)
    hd_kernel(const hd_kernel_args args)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const i64 step = (i64)gridDim.x * blockDim.x;
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    CHECK_COUNTS
    const float natural = SCALE;
    const i64 of_keys = (N + ALL_KEYS - 1) / ALL_KEYS;
    const i64 of_lines = (S * GROUP + LINES - 1) / LINES;
    const i64 each = of_keys * PASSES + of_lines;
    work w = {(notes *)memory, shared_address(memory + NOTES), 0, natural,
              natural * LOG2E};

    for (i64 t = blockIdx.x; t < each * HKV * BATCH; t += gridDim.x) {
        i64 i, b;

        place_tile(t, each, HKV * BATCH, &i, &b);
        w.shared = b % HKV;
        b /= HKV;
        if (i < of_lines) {
            make_dq(args, w, b, (MASKED ? of_lines - 1 - i : i) * LINES);
            continue;
        }
        i -= of_lines;
        if (PASSES == 1)
            make_dk_dv<true, true>(args, w, b, i * ALL_KEYS);
        else if (i % 2 == 0)
            make_dk_dv<true, false>(args, w, b, i / 2 * ALL_KEYS);
        else
            make_dk_dv<false, true>(args, w, b, i / 2 * ALL_KEYS);
    }
}
#endif
