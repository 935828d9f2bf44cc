// A block has a tile of lines, and takes some keys at a time: while their
// scores are made their values are on the way, and while these are weighed the
// next keys are.
#ifndef HD_TYPES
#include "codegen/kernels/scores.cu"
#define VIEWS                                \
    u16 *v0 = (u16 *)args.at[0];             \
    float *v1 = (float *)args.at[1];         \
    const u16 *v2 = (const u16 *)args.at[2]; \
    const u16 *v3 = (const u16 *)args.at[3]; \
    const u16 *v4 = (const u16 *)args.at[4]; \
    (void)b; // b of the batch is what they are of
typedef struct hd_kernel_args {
    u64 at[5];
} hd_kernel_args;
#define SHARED 68224
#define EACH 2  // 16 lines of a warp
#define KEYS 64 // at once
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
enum {
    LINES = 64 * EACH,
    Q_BYTES = LINES * LINE(D) * 2,
    K_BYTES = KEYS * LINE(D) * 2,
    V_BYTES = KEYS * LINE(W) * 2,
};
static_assert(NOTES + Q_BYTES + K_BYTES + V_BYTES <= SHARED, "it has room");

// What a thread has of its lines.
typedef struct state {
    float most[EACH][2], sum[EACH][2];
    float mean[EACH][PAD(W) / 8][4];
} state;

static inline void turn(float x[EACH][KEYS / 8][4])
{
#pragma unroll
    for (int i = 0; i < EACH * KEYS / 2; i++)
        (&x[0][0][0])[i] *= -1;
}

// Scores of keys from `at` on become weights. Those are as the scores are times
// `scale`, which is greater than 0.
static inline void weigh(state *s, float x[EACH][KEYS / 8][4], const notes *n,
                         int at, bool masked, float scale)
{
    const int row = threadIdx.x / 32 * 16 * EACH + (threadIdx.x & 31) / 4;
    const int column = at + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = s->most[i][h], sum = 0;

            if (masked) {
                const int from = n->from[row + 16 * i + 8 * h];
                const int past = n->past[row + 16 * i + 8 * h];
#pragma unroll
                for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        const int key = column + 8 * j + e;
                        if (key < from || key >= past)
                            x[i][j][2 * h + e] = none();
                    }
            }
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    top = fmaxf(top, x[i][j][2 * h + e]);
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            const float base = top == none() ? 0 : top * scale;
            const float less = power(s->most[i][h] * scale - base);

            s->most[i][h] = top;
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float *score = &x[i][j][2 * h + e];

                    *score = power(*score * scale - base);
                    sum += *score;
                }
            s->sum[i][h] = s->sum[i][h] * less + sum;
            if (__ballot_sync(~0u, less != 1) != 0) {
#pragma unroll
                for (int j = 0; j < PAD(W) / 8; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        s->mean[i][j][2 * h + e] *= less;
            }
        }
}

extern "C" __global__ void HD_THREADS(THREADS)
    hd_kernel(const hd_kernel_args args)
{
    extern __shared__ __align__(128) unsigned char memory[];
    const i64 step = (i64)gridDim.x * blockDim.x;
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    CHECK_COUNTS
    const float given = SCALE * LOG2E;
    // What is masked stays so.
    const float scale = given == 0 ? 1e-30f : given < 0 ? -given : given;
    const i64 lines = S * GROUP, tiles = (lines + LINES - 1) / LINES;
    notes *n = (notes *)memory;
    const u32 at_q = shared_address(memory + NOTES);
    const u32 at_k = at_q + Q_BYTES, at_v = at_k + K_BYTES;

    for (i64 t = blockIdx.x; t < tiles * HKV * BATCH; t += gridDim.x) {
        i64 tile, b;
        place_tile(t, tiles, HKV * BATCH, &tile, &b);
        // Of rows that see those before them the last ones take longest.
        const i64 top = (MASKED ? tiles - 1 - tile : tile) * LINES;
        const i64 shared = b % HKV;
        b /= HKV;
        VIEWS
        COUNTS
        v2 += shared * GROUP * V2_H;
        v3 += shared * V3_H;
        v4 += shared * V4_H;
        find_ranges<LINES>(n, [&](int line, i64 *out_from, i64 *out_past) {
            const i64 row = (top + line) / GROUP;
            *out_from = *out_past = NO_LINE;
            if (top + line >= lines)
                return;
            SEE_KEYS(row)
            if (UPDATES && absent)
                return;
            *out_from = from;
            *out_past = past;
        });
        const int least = n->all.least, most = n->all.most;
        const bool vectors_k = VECTORS_3 && (u64)v3 % 16 == 0;
        const bool vectors_v = VECTORS_4 && (u64)v4 % 16 == 0;
        const int warp = threadIdx.x / 32, lane_ = threadIdx.x & 31;
        state s;

#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                s.most[i][h] = none();
                s.sum[i][h] = 0;
#pragma unroll
                for (int j = 0; j < PAD(W) / 8; j++)
                    s.mean[i][j][2 * h] = s.mean[i][j][2 * h + 1] = 0;
            }
        if (least < most) {
            fetch<LINES, D>(at_q, VECTORS_2 && (u64)v2 % 16 == 0,
                            [&](int line, bool *some) {
                                const i64 i = top + line;

                                *some = n->past[line] > n->from[line];
                                return *some ? v2 + i % GROUP * V2_H +
                                                   i / GROUP * V2_S
                                             : v2;
                            });
            fetch<KEYS, D>(at_k, vectors_k, [&](int line, bool *some) {
                *some = least + line < most;
                return v3 + (*some ? least + line : (i64)least) * V3_S;
            });
        }
        for (int at = least; at < most; at += KEYS) {
            float x[EACH][KEYS / 8][4];
            u32 weights[EACH][KEYS / 16][4];
            const bool masked = at < n->all.low || at + KEYS > n->all.high;

            await_fetches(false);
            fetch<KEYS, W>(at_v, vectors_v, [&](int line, bool *some) {
                *some = at + line < most;
                return v4 + (*some ? at + line : (i64)at) * V4_S;
            });
            dots<EACH, KEYS / 8, D>(x, at_q, warp * 16 * EACH, at_k);
            await_fetches(false);
            if (at + KEYS < most)
                fetch<KEYS, D>(at_k, vectors_k, [&](int line, bool *some) {
                    const int key = at + KEYS + line;

                    *some = key < most;
                    return v3 + (*some ? key : (i64)at) * V3_S;
                });
            if (GROUPED && masked)
                clear_unseen<LINES, KEYS, W>(at_v, n, at);
            if (given < 0)
                turn(x);
            weigh(&s, x, n, at, masked, scale);
            pack_weights<EACH, KEYS / 8>(weights, x);
            add_weighted<EACH, KEYS / 16, W>(s.mean, weights, at_v);
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int line = warp * 16 * EACH + 16 * i + 8 * h + lane_ / 4;
                const int from = n->from[line], past = n->past[line];
                const i64 row = (top + line) / GROUP;
                const i64 head = shared * GROUP + (top + line) % GROUP;
                auto *o = v0 + head * V0_H + row * V0_S;
                auto *l = v1 + head * V1_H + row * V1_S;
                const bool is_there = from != NO_LINE;
                const bool nothing = from >= past;
                float sum = s.sum[i][h];

                sum += __shfl_xor_sync(~0u, sum, 1);
                sum += __shfl_xor_sync(~0u, sum, 2);
                const float lse =
                    nothing ? none()
                            : (s.most[i][h] * scale + log2f(sum)) * LN2;
                const float before = UPDATES && is_there ? get_1(*l) : none();
                const float both = UPDATES ? lse_of_both(lse, before) : lse;
                const float mine = UPDATES ? share(lse, both) : 1;
                const float other = UPDATES ? share(before, both) : 0;
                const float factor = nothing ? 0 : mine / sum;

                __syncwarp(); // all have read it
                if (!is_there)
                    continue;
#pragma unroll
                for (int j = 0; j < PAD(W) / 8; j++) {
                    const int d = 8 * j + lane_ % 4 * 2;
                    float y[2] = {0, 0};
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        if (!nothing)
                            y[e] = s.mean[i][j][2 * h + e] * factor;
                        if (UPDATES && !sees_nothing(before) && d + e < W)
                            y[e] += other * get_0(o[(d + e) * V0_D]);
                    }
                    store_two<W>(o, V0_D, d, put_0(y[0]), put_0(y[1]));
                }
                if (lane_ % 4 == 0)
                    *l = put_1(both);
            }
    }
}
#endif
