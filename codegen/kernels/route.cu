// A thread has some of the entries for one expert: it counts those before them,
// and goes on from there. All threads count alike, so that each of them knows
// which places are left over.
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
typedef int index; // that all elements of a view are within reach of
#define PARTS 32   // threads an expert
#define BATCH 1ll
#define E 8ll // experts, of CAP places each
#define CAP 16ll
#define T 64ll // tokens, each of which wants K experts
#define K 2ll
#define VIEWS                                \
    int *v0 = (int *)args.at[0];             \
    int *v1 = (int *)args.at[1];             \
    int *v2 = (int *)args.at[2];             \
    const int *v3 = (const int *)args.at[3]; \
    (void)b;            // b of the batch is what they are of
#define EXPERT(j) v3[j] // of entry j, and where it goes
#define SLOT(j) v1[j]
#define TOKEN(c) v0[e * CAP + (c)] // at a place
#define COUNT v2[e]
typedef struct hd_kernel_args {
    u64 at[4];
} hd_kernel_args;
#endif

extern "C" __global__ void HD_BOUNDS(4) hd_kernel(const hd_kernel_args args)
{
    const i64 step = (i64)gridDim.x * blockDim.x;
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 experts = E > 0 ? E : 1;

    for (i64 i = first; i < PARTS * experts * BATCH; i += step) {
        const int part = (int)(i % PARTS);
        const i64 e = i / PARTS % experts;
        i64 b = i / PARTS / experts;
        VIEWS
        const index all = (index)(T * K);
        const index share = (all + PARTS - 1) / PARTS;
        const index from = part * share < all ? part * share : all;
        const index past = all - from < share ? all : from + share;
        index n = 0, j = 0;
#pragma unroll 8
        for (; j < from; j++)
            n += EXPERT(j) == e;
        for (; j < past; j++) {
            const index who = EXPERT(j);
            i64 place = -1;
            // Who wants no expert that there is, is told so by those of the
            // first one.
            const bool mine = who == e && e < E;
            if (!mine && (e > 0 || (who >= 0 && who < E)))
                continue;
            if (mine && n++ < CAP) {
                TOKEN(n - 1) = (int)(j / (index)K);
                place = e * CAP + n - 1;
            }
            SLOT(j) = (int)place;
        }
#pragma unroll 8
        for (; j < all; j++)
            n += EXPERT(j) == e;
        const i64 kept = n < CAP ? n : CAP;
        for (i64 c = kept + part; c < CAP && e < E; c += PARTS)
            TOKEN(c) = -1;
        if (part == 0 && e < E)
            COUNT = (int)kept;
    }
}
