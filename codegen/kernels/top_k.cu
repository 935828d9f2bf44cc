// A thread has a row: the greatest of those that come after the one before,
// again and again.
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
typedef float code;
typedef float lane;
static inline lane value(code x)
{
    return x;
}
#define BATCH 4ll
#define K 2ll // of N
#define N 64ll
#define V_K 1ll // how far apart values, their indices and the row's are
#define I_K 1ll
#define X_N 1ll
#define VIEWS                              \
    code *v0 = (code *)args.at[0] + b * K; \
    int *v1 = (int *)args.at[1] + b * K;   \
    const code *v2 = (const code *)args.at[2] + b * N;
typedef struct hd_kernel_args {
    u64 at[3];
} hd_kernel_args;
#endif

// A NaN is greater than every number.
static inline bool is_greater(lane x, lane y)
{
    return x > y || (x != x && y == y);
}

extern "C" __global__ void HD_BOUNDS(4) hd_kernel(const hd_kernel_args args)
{
    const i64 step = (i64)gridDim.x * blockDim.x;
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    for (i64 i = first; i < BATCH; i += step) {
        i64 b = i;
        VIEWS
        lane last = 0, best = 0;
        i64 before = -1;
        for (i64 j = 0; j < K; j++) {
            i64 found = -1;
            for (i64 c = 0; c < N; c++) {
                const lane x = value(v2[c * X_N]);
                if (before >= 0 && (is_greater(x, last) ||
                                    (c <= before && !is_greater(last, x))))
                    continue;
                if (found < 0 || is_greater(x, best)) {
                    best = x;
                    found = c;
                }
            }
            v0[j * V_K] = v2[found * X_N];
            v1[j * I_K] = (int)found;
            last = best;
            before = found;
        }
    }
}
