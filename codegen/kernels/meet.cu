// A reduction over ranks that meets them by itself, where ranks have shares of
// it in two halves: codegen/meet.c says how.
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
#define RANKS 4
#define SHOTS 2  // 1: every rank joins all elements
#define TURNS 1  // of what is told, as codegen/emit.h has it
#define LANES 4  // elements of a vector
#define FLIGHT 2 // vectors of each operand that a thread has in flight
#define COPIES 8 // and in the second half
#define THREADS 512
#define ELEMENTS 1003ull // or args.size[0]
#define SHARE 252ull     // or args.size[1]
typedef float code;
typedef struct hd_kernel_args {
    u64 at[6 * RANKS];
} hd_kernel_args;
static inline void reduce(code *to, const code *c)
{
    *to = c[0] + c[1] + c[2] + c[3];
}
#endif

// Where in at[] what peers have, and words, begin.
enum {
    PUT = 2 + RANKS,
    PUTS = SHOTS > 1 ? RANKS - 1 : 0,
    READY = SHOTS > 1 ? PUT + PUTS : 1 + RANKS,
    HEARD = READY + RANKS - 1,
    DONE = HEARD + RANKS - 1,
    READ = DONE + RANKS - 1,
    VALUE = READ + RANKS - 1,
};
enum { OVER = 2 }; // of a tally

union alignas(16) vector {
    struct alignas(16) {
        u64 a, b;
    } bits;
    code at[LANES];
};

static inline void await_word(u64 address, u32 told, u64 value)
{
    volatile u32 *word = (volatile u32 *)address;
    if (TURNS > 1) {
        const u32 next = told >> (TURNS - 1) & 1 ? 1 : told << 1;
        while ((*word & (told | next)) == 0)
            __nanosleep(20);
    } else {
        volatile u32 *tally = (volatile u32 *)value;
        while ((int)(*word - told) < 0 && (TURNS == 1 || tally[OVER] == 0))
            __nanosleep(20);
    }
}

extern "C" __global__ void HD_THREADS(THREADS)
    hd_kernel(const hd_kernel_args args)
{
    const u64 step = (u64)gridDim.x * blockDim.x;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 value = args.at[VALUE];
    const u32 told = TURNS > 0 ? (u32)value : *(volatile u32 *)value;
    const u64 base = SHOTS > 1 ? args.at[VALUE + 2] : 0;
    const u64 own = ELEMENTS - base < SHARE ? ELEMENTS - base : SHARE;
    code *result = (code *)args.at[0];
    u64 any = 0, start = 0;
    if (threadIdx.x == 0) {
        __threadfence_system();
        for (int k = 0; blockIdx.x == 0 && k < RANKS - 1; k++)
            *(volatile u32 *)args.at[READY + k] = told;
        for (int k = 0; k < RANKS - 1; k++)
            await_word(args.at[HEARD + k], told, value);
        __threadfence_system();
    }
    __syncthreads();
    for (int k = 0; k < READY; k++)
        any |= args.at[k];
    const bool fits = (any & (sizeof(vector) - 1)) == 0;
    if (fits) {
        const u64 n = own / LANES;
        for (u64 i = first; i < n; i += FLIGHT * step) {
            vector in[FLIGHT][RANKS], out;
            for (int u = 0; u < FLIGHT; u++)
                for (int k = 0; k < RANKS; k++)
                    if (i + u * step < n)
                        in[u][k].bits =
                            ((const vector *)args.at[1 + k])[i + u * step].bits;
            for (int u = 0; u < FLIGHT; u++) {
                const u64 at = i + u * step;
                if (at >= n)
                    break;
                for (int e = 0; e < LANES; e++) {
                    code c[RANKS];
                    for (int k = 0; k < RANKS; k++)
                        c[k] = in[u][k].at[e];
                    reduce(&out.at[e], c);
                }
                for (int k = 0; k < PUTS; k++)
                    ((vector *)args.at[PUT + k])[at].bits = out.bits;
                ((vector *)(result + base))[at].bits = out.bits;
            }
        }
        start = n * LANES;
    }
    for (u64 i = start + first; i < own; i += step) {
        code c[RANKS], out;
        for (int k = 0; k < RANKS; k++)
            c[k] = ((const code *)args.at[1 + k])[i];
        reduce(&out, c);
        for (int k = 0; k < PUTS; k++)
            ((code *)args.at[PUT + k])[i] = out;
        result[base + i] = out;
    }
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) {
        u32 *ended = (u32 *)args.at[VALUE + 1];
        __threadfence_system();
        if (atomicAdd(ended, 1u) == gridDim.x - 1) {
            *ended = 0;
            __threadfence_system();
            for (int k = 0; k < RANKS - 1; k++)
                *(volatile u32 *)args.at[DONE + k] = told;
            for (int k = 0; SHOTS == 1 && k < RANKS - 1; k++)
                await_word(args.at[READ + k], told, value);
        }
    }
    // What is behind this rank's share follows what is before it. Both begin
    // at a vector, and of the two only what is behind may end within one.
    if (SHOTS > 1) {
        if (threadIdx.x == 0) {
            for (int k = 0; k < RANKS - 1; k++)
                await_word(args.at[READ + k], told, value);
            __threadfence_system();
        }
        __syncthreads();
        const code *landed = (const code *)args.at[1 + RANKS];
        const u64 rest = ELEMENTS - own;
        start = 0;
        if (fits) {
            const u64 n = rest / LANES;
            for (u64 i = first; i < n; i += COPIES * step) {
                vector in[COPIES];
                for (int u = 0; u < COPIES; u++) {
                    const u64 at = (i + u * step) * LANES;
                    if (i + u * step < n)
                        in[u].bits = ((const vector *)(landed + at +
                                                       (at < base ? 0 : own)))
                                         ->bits;
                }
                for (int u = 0; u < COPIES; u++) {
                    const u64 at = (i + u * step) * LANES;
                    if (i + u * step < n)
                        ((vector *)(result + at + (at < base ? 0 : own)))
                            ->bits = in[u].bits;
                }
            }
            start = n * LANES;
        }
        for (u64 i = start + first; i < rest; i += step) {
            const u64 at = i < base ? i : i + own;
            result[at] = landed[at];
        }
    }
}
