// What follows a library's attention: a row's threads take 8 elements each. All
// of them have read its lse when the last one writes it.
#ifndef HD_TYPES
#include "codegen/kernels/attend.cu"
#define get_before(x) (x)
typedef u32 index; // of a row
typedef float result;
typedef float code;
typedef float earlier;
#define EACH 8
#define THREADS 8 // a row
#define LINES 32  // rows a block
#define VECTORS 1 // a result's 8 elements lie side by side, or what was there
#define VECTORS_BEFORE 1
#define PART ((index)128) // rows of lse, and what they are padded to
#define PADDED 128ull
#define BEFORE_H 8192ll
#define BEFORE_S 64ll
#define BEFORE_D 1ll
#define STEP_BATCH (void)b; // pointers go to b of the batch
typedef struct hd_kernel_args {
    u64 at[5];
} hd_kernel_args;
#endif

struct alignas(16) word {
    u32 bits[4];
};

template <class T> union group {
    word at[EACH * sizeof(T) / sizeof(word)];
    T e[EACH];
};

template <class T> static inline group<T> load_group(const T *from)
{
    group<T> x;
    if (VECTORS_BEFORE)
        for (int w = 0; w < (int)(sizeof x / sizeof(word)); w++)
            x.at[w] = ((const word *)from)[w];
    else
        for (int e = 0; e < EACH; e++)
            x.e[e] = from[e * BEFORE_D];
    return x;
}

template <class T> static inline void store_group(T *to, group<T> x)
{
    if (VECTORS)
        for (int w = 0; w < (int)(sizeof x / sizeof(word)); w++)
            ((word *)to)[w] = x.at[w];
    else
        for (int e = 0; e < EACH; e++)
            to[e * V0_D] = x.e[e];
}

extern "C" __global__ void HD_BOUNDS(4) hd_kernel(const hd_kernel_args args)
{
    const unsigned mine = threadIdx.x % THREADS;
    const unsigned line = threadIdx.x / THREADS;
    for (index base = blockIdx.x * LINES; base < N; base += gridDim.x * LINES) {
        const index i = base + line;
        const bool works = line < LINES && i < N;
        result *v0 = (result *)args.at[0];
        float *v1 = (float *)args.at[1];
        const earlier *from = (const earlier *)args.at[4];
        float lse = none(), before = none();
        group<earlier> old;
        group<code> in;
        if (works) {
            const index row = i % S, head = i / S % H;
            index b = i / S / H;
            v0 += (i64)head * V0_H + (i64)row * V0_S + mine * EACH * V0_D;
            v1 += (i64)head * V1_H + (i64)row * V1_S;
            from += (i64)head * BEFORE_H + (i64)row * BEFORE_S +
                    mine * EACH * BEFORE_D;
            STEP_BATCH
            in = ((const group<code> *)args.at[2])[(u64)i * THREADS + mine];
            lse = ((const float *)
                       args.at[3])[(u64)(i / PART) * PADDED + i % PART];
            if (UPDATES) {
                before = *v1;
                old = load_group(from);
            }
        }
        if (UPDATES)
            __syncthreads();
        if (works) {
            const float both = UPDATES ? lse_of_both(lse, before) : lse;
            const float share_in = UPDATES ? share(lse, both) : 1;
            const float share_out = UPDATES ? share(before, both) : 0;
            group<result> out;
            for (int e = 0; e < EACH; e++) {
                float x = share_in * get_2(in.e[e]);
                if (UPDATES && !sees_nothing(before))
                    x += share_out * get_before(old.e[e]);
                out.e[e] = put_0(x);
            }
            store_group(v0, out);
            if (mine == THREADS - 1)
                *v1 = both;
        }
    }
}
