// A few threads have a row together, so that what lies side by side is read by
// threads side by side. Results may lie over operands: all of them know the
// logarithms before the last one writes that of the result.
#ifndef HD_TYPES
#include "codegen/kernels/attend.cu"
#define TOGETHER 32 // threads a row; they divide a block
#define VIEWS                                    \
    float *v0 = (float *)args.at[0];             \
    float *v1 = (float *)args.at[1];             \
    const float *v2 = (const float *)args.at[2]; \
    const float *v3 = (const float *)args.at[3]; \
    const float *v4 = (const float *)args.at[4]; \
    const float *v5 = (const float *)args.at[5]; \
    (void)b; // b of the batch is what they are of
typedef struct hd_kernel_args {
    u64 at[6];
} hd_kernel_args;
#endif

extern "C" __global__ void HD_BOUNDS(4) hd_kernel(const hd_kernel_args args)
{
    const i64 step = (i64)gridDim.x * blockDim.x;
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 n = H * S * BATCH;

    for (i64 base = (first - threadIdx.x) / TOGETHER; base < n;
         base += step / TOGETHER) {
        const i64 line = base + threadIdx.x / TOGETHER;
        const bool works = line < n;
        const i64 i = works ? line : base;
        const i64 row = i % S, head = i / S % H;
        i64 b = i / S / H;
        VIEWS
        v0 += head * V0_H + row * V0_S;
        v1 += head * V1_H + row * V1_S;
        v2 += head * V2_H + row * V2_S;
        v4 += head * V4_H + row * V4_S;
        lane x = none(), y = none();
        if (works) {
            x = get_3(v3[head * V3_H + row * V3_S]);
            y = get_5(v5[head * V5_H + row * V5_S]);
        }
        __syncthreads();
        const lane both = lse_of_both(x, y);
        const lane mine = share(x, both), other = share(y, both);
        for (i64 d = threadIdx.x % TOGETHER; works && d < D; d += TOGETHER) {
            const lane a = sees_nothing(x) ? 0 : mine * get_2(v2[d * V2_D]);
            const lane c = sees_nothing(y) ? 0 : other * get_4(v4[d * V4_D]);
            v0[d * V0_D] = put_0(a + c);
        }
        if (works && threadIdx.x % TOGETHER == TOGETHER - 1)
            *v1 = put_1(both);
    }
}
