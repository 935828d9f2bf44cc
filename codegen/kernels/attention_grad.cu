// Some threads have a row, and what all keys make of its dq, and the others a
// key, and what all rows make of its dk and dv: nothing is added by two.
#ifndef HD_TYPES
#include "codegen/kernels/attend.cu"
#define VIEWS                                    \
    float *v0 = (float *)args.at[0];             \
    float *v1 = (float *)args.at[1];             \
    float *v2 = (float *)args.at[2];             \
    const float *v3 = (const float *)args.at[3]; \
    const float *v4 = (const float *)args.at[4]; \
    const float *v5 = (const float *)args.at[5]; \
    const float *v6 = (const float *)args.at[6]; \
    const float *v7 = (const float *)args.at[7]; \
    const float *v8 = (const float *)args.at[8]; \
    (void)b; // b of the batch is what they are of
typedef struct hd_kernel_args {
    u64 at[9];
} hd_kernel_args;
#endif

// A product of a row with n others: `one` is element d of it, `other` that of
// the c-th.
#define DOTS(name, length, one, other)                   \
    lane name[SOME];                                     \
    for (int c = 0; c < SOME; c++)                       \
        name[c] = 0;                                     \
    _Pragma("unroll 4") for (int d = 0; d < length; d++) \
    {                                                    \
        const lane x = one;                              \
        for (int c = 0; c < SOME; c++)                   \
            if (c < n)                                   \
                name[c] += x * other;                    \
    }

// What those of n rows that `which` holds of add to a sum of rows by their
// factors.
#define TERMS(which, sum, length, factor, term)          \
    _Pragma("unroll 4") for (int d = 0; d < length; d++) \
    {                                                    \
        lane x = sum[d];                                 \
        for (int c = 0; c < SOME; c++)                   \
            if (which)                                   \
                x += factor[c] * term;                   \
        sum[d] = x;                                      \
    }

extern "C" __global__ void HD_BOUNDS(4) hd_kernel(const hd_kernel_args args)
{
    const i64 step = (i64)gridDim.x * blockDim.x;
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    CHECK_COUNTS
    const lane scale = SCALE;
    const i64 each = H * S + HKV * N;

    for (i64 i = first; i < each * BATCH; i += step) {
        const i64 at = i % each;
        i64 b = i / each;
        VIEWS
        COUNTS
        if (at < H * S) {
            const i64 row = at % S, head = at / S;
            const i64 shared = head / (H / HKV);
            const auto *q = v3 + head * V3_H + row * V3_S;
            const auto *o = v6 + head * V6_H + row * V6_S;
            const auto *g = v8 + head * V8_H + row * V8_S;
            const lane lse = get_7(v7[head * V7_H + row * V7_S]);
            lane delta = 0;
            SEE_KEYS(row)
            if (UPDATES && absent)
                continue;
            if (sees_nothing(lse))
                past = from;
            v0 += head * V0_H + row * V0_S;
            for (int d = 0; d < W; d++)
                delta += get_8(g[d * V8_D]) * get_6(o[d * V6_D]);
            lane dq[D_ROOM];
            for (int d = 0; d < D; d++)
                dq[d] = 0;
            for (i64 j = from; j < past; j += SOME) {
                const int n = past - j < SOME ? (int)(past - j) : SOME;
                const auto *k = v4 + shared * V4_H + j * V4_S;
                const auto *v = v5 + shared * V5_H + j * V5_S;
                DOTS(score, D, get_3(q[d * V3_D]),
                     get_4(k[c * V4_S + d * V4_D]))
                DOTS(up, W, get_8(g[d * V8_D]), get_5(v[c * V5_S + d * V5_D]))
                for (int c = 0; c < SOME; c++)
                    up[c] =
                        EXP(score[c] * scale - lse) * (up[c] - delta) * scale;
                TERMS(c < n, dq, D, up, get_4(k[c * V4_S + d * V4_D]))
            }
            for (int d = 0; d < D; d++) {
                auto *to = v0 + d * V0_D;
                *to = put_0(ADDS_0 ? get_0(*to) + dq[d] : dq[d]);
            }
            continue;
        }
        {
            const i64 key = (at - H * S) % N, shared = (at - H * S) / N;
            const auto *k = v4 + shared * V4_H + key * V4_S;
            const auto *v = v5 + shared * V5_H + key * V5_S;
            SEE_ROWS(key)
            if (UPDATES && absent)
                continue;
            v1 += shared * V1_H + key * V1_S;
            v2 += shared * V2_H + key * V2_S;
            lane dk[D_ROOM];
            for (int d = 0; d < D; d++)
                dk[d] = 0;
            lane dv[W_ROOM];
            for (int d = 0; d < W; d++)
                dv[d] = 0;
            for (i64 h = 0; h < H / HKV; h++)
                for (i64 i = from; i < past; i += SOME) {
                    const int n = past - i < SOME ? (int)(past - i) : SOME;
                    const i64 head = shared * (H / HKV) + h;
                    const auto *q = v3 + head * V3_H + i * V3_S;
                    const auto *o = v6 + head * V6_H + i * V6_S;
                    const auto *l = v7 + head * V7_H + i * V7_S;
                    const auto *g = v8 + head * V8_H + i * V8_S;
                    DOTS(score, D, get_4(k[d * V4_D]),
                         get_3(q[c * V3_S + d * V3_D]))
                    DOTS(up, W, get_5(v[d * V5_D]),
                         get_8(g[c * V8_S + d * V8_D]))
                    // `delta` has one term of each at a time, as `up` has. A
                    // row that saw nothing adds nothing, whatever is in it.
                    lane p[SOME], delta[SOME];
                    bool seen[SOME];
                    for (int c = 0; c < SOME; c++)
                        delta[c] = 0;
                    for (int d = 0; d < W; d++)
                        for (int c = 0; c < SOME; c++)
                            if (c < n)
                                delta[c] += get_8(g[c * V8_S + d * V8_D]) *
                                            get_6(o[c * V6_S + d * V6_D]);
                    for (int c = 0; c < SOME; c++) {
                        const lane lse = c < n ? get_7(l[c * V7_S]) : none();
                        seen[c] = !sees_nothing(lse);
                        p[c] = EXP(score[c] * scale - lse);
                        up[c] = p[c] * (up[c] - delta[c]) * scale;
                    }
                    TERMS(seen[c], dk, D, up, get_3(q[c * V3_S + d * V3_D]))
                    TERMS(seen[c], dv, W, p, get_8(g[c * V8_S + d * V8_D]))
                }
            for (int d = 0; d < D; d++) {
                auto *to = v1 + d * V1_D;
                *to = put_1(ADDS_1 ? get_1(*to) + dk[d] : dk[d]);
            }
            for (int d = 0; d < W; d++) {
                auto *to = v2 + d * V2_D;
                *to = put_2(ADDS_2 ? get_2(*to) + dv[d] : dv[d]);
            }
        }
    }
}
