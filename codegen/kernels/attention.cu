// A thread has a row: codegen/attend.c says how.
#ifndef HD_TYPES
#include "codegen/kernels/attend.cu"
#define VIEWS                                    \
    float *v0 = (float *)args.at[0];             \
    float *v1 = (float *)args.at[1];             \
    const float *v2 = (const float *)args.at[2]; \
    const float *v3 = (const float *)args.at[3]; \
    const float *v4 = (const float *)args.at[4]; \
    (void)b; // b of the batch is what they are of
typedef struct hd_kernel_args {
    u64 at[5];
} hd_kernel_args;
#endif

extern "C" __global__ void HD_BOUNDS(4) hd_kernel(const hd_kernel_args args)
{
    const i64 step = (i64)gridDim.x * blockDim.x;
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    CHECK_COUNTS
    const lane scale = SCALE;
    for (i64 i = first; i < H * S * BATCH; i += step) {
        const i64 row = i % S, head = i / S % H;
        i64 b = i / S / H;
        VIEWS
        COUNTS
        const i64 shared = head / (H / HKV);
        lane q[D_ROOM], mean[W_ROOM];
        lane most = none(), sum = 0;
        SEE_KEYS(row)
        if (UPDATES && absent)
            continue;
        v0 += head * V0_H + row * V0_S;
        v1 += head * V1_H + row * V1_S;
        v2 += head * V2_H + row * V2_S;
        for (int d = 0; d < D; d++)
            q[d] = get_2(v2[d * V2_D]);
        for (int d = 0; d < W; d++)
            mean[d] = 0;
        for (i64 j = from; j < past; j += SOME) {
            const int n = past - j < SOME ? (int)(past - j) : SOME;
            const auto *k = v3 + shared * V3_H + j * V3_S;
            const auto *v = v4 + shared * V4_H + j * V4_S;
            lane weight[SOME], top = none();
            for (int c = 0; c < SOME; c++)
                weight[c] = 0;
#pragma unroll 4
            for (int d = 0; d < D; d++)
                for (int c = 0; c < SOME; c++)
                    if (c < n)
                        weight[c] += q[d] * get_3(k[c * V3_S + d * V3_D]);
            for (int c = 0; c < SOME; c++) {
                weight[c] *= scale;
                if (c < n && (weight[c] > top || weight[c] != weight[c]))
                    top = weight[c];
            }
            if (top > most || top != top) {
                const lane less = sees_nothing(most) ? 0 : EXP(most - top);
                sum *= less;
                for (int d = 0; d < W; d++)
                    mean[d] *= less;
                most = top;
            }
            for (int c = 0; c < SOME; c++)
                if (c < n) {
                    weight[c] = EXP(weight[c] - most);
                    sum += weight[c];
                }
#pragma unroll 4
            for (int d = 0; d < W; d++) {
                lane x = mean[d];
                for (int c = 0; c < SOME; c++)
                    if (c < n)
                        x += weight[c] * get_4(v[c * V4_S + d * V4_D]);
                mean[d] = x;
            }
        }
        const bool nothing = from >= past;
        const lane lse = nothing ? none() : most + LOG(sum);
        const lane before = UPDATES ? get_1(*v1) : none();
        const lane both = UPDATES ? lse_of_both(lse, before) : lse;
        const lane mine = UPDATES ? share(lse, both) : 1;
        const lane other = UPDATES ? share(before, both) : 0;
        for (int d = 0; d < W; d++) {
            lane x = nothing ? 0 : mean[d] / sum * mine;
            if (UPDATES && !sees_nothing(before))
                x += other * get_0(v0[d * V0_D]);
            v0[d * V0_D] = put_0(x);
        }
        *v1 = put_1(both);
    }
}
