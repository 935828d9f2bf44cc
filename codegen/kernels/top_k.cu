// A warp has a row: the greatest of those that come after the one before, again
// and again. Each lane finds its own, and all of them the greatest of these.
#ifndef HD_TYPES
#include "codegen/kernels/prelude.cu"
typedef float code;
typedef float lane;
static inline lane value(code x)
{
    return x;
}
#define BATCH 4ll
#define K 2ll // of N
#define N 64ll
#define HOLDS 1
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

// Where there are no warps a thread has a row.
#if defined(__CUDA_ARCH__)
#define LANES 32
#else
#define LANES 1
#endif

// No key of a number is greater than a NaN's; zeros of both signs are equal.
static inline u32 key_of(float x)
{
    const u32 bits = x == 0 ? 0 : x != x ? 0x7fffffffu : bits_of_float(x);
    return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}

static inline u64 key_of(double x)
{
    const u64 most = 0x7fffffffffffffffull;
    const u64 bits = x == 0 ? 0 : x != x ? most : bits_of_double(x);
    return bits ^ (bits > most ? ~0ull : most + 1);
}

static inline u32 key_of(int x)
{
    return (u32)x ^ 0x80000000u;
}

static inline u64 key_of(i64 x)
{
    return (u64)x ^ 0x8000000000000000ull;
}

struct pick {
    decltype(key_of(lane())) key;
    int at;
};

static inline pick number(const code *row, i64 c)
{
    return {key_of(value(row[c * X_N])), (int)c};
}

// Of equal ones the first.
static inline bool is_before(pick a, pick b)
{
    return a.key > b.key || (a.key == b.key && a.at < b.at);
}

// The one, if it is behind the last and before the best.
static inline pick better(pick best, pick last, pick one)
{
    return is_before(last, one) && is_before(one, best) ? one : best;
}

static inline pick best_of_lanes(pick best)
{
#if defined(__CUDA_ARCH__)
    for (int o = LANES / 2; o > 0; o /= 2) {
        const pick other = {__shfl_xor_sync(0xffffffffu, best.key, o),
                            __shfl_xor_sync(0xffffffffu, best.at, o)};
        if (is_before(other, best))
            best = other;
    }
#endif
    return best;
}

extern "C" __global__ void HD_BOUNDS(4) hd_kernel(const hd_kernel_args args)
{
    const i64 step = (i64)gridDim.x * blockDim.x;
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const int own = (int)(first % LANES);
    const pick all = {(decltype(pick::key))-1, -1}, none = {0, 0x7fffffff};

    for (i64 i = first / LANES; i < BATCH; i += step / LANES) {
        i64 b = i;
        VIEWS
        pick last = all;
#if HOLDS
        pick held[(N + LANES - 1) / LANES];
#pragma unroll
        for (int u = 0; u < (N + LANES - 1) / LANES; u++)
            held[u] = own + u * LANES < N ? number(v2, own + u * LANES) : none;
#endif
        for (i64 j = 0; j < K; j++) {
            pick best = none;
#if HOLDS
#pragma unroll
            for (int u = 0; u < (N + LANES - 1) / LANES; u++)
                best = better(best, last, held[u]);
#else
#pragma unroll 8
            for (i64 c = own; c < N; c += LANES)
                best = better(best, last, number(v2, c));
#endif
            last = best_of_lanes(best);
            if (own == 0) {
                v0[j * V_K] = v2[last.at * X_N];
                v1[j * I_K] = last.at;
            }
        }
    }
}
