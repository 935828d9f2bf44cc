// One warp does words of one kind that follow each other at once, and kinds in
// their order. What the stream did before is there for who sees a word of ours,
// and what peers did before a word of theirs is there for what follows.
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
#define THREADS 32
#define ROOM 32 // words at most
#define WRITE 0 // kinds of words, HD_WORD_WRITE and on
#define WAIT 1
#define BEGIN 2
typedef struct hd_kernel_args {
    u64 at[1 + ROOM];
} hd_kernel_args;
#endif

#define KINDS 3ull        // the bits of an address that are the word's kind
enum { RUN, BUSY, OVER }; // of a tally

static inline void await_word(volatile u32 *word, u32 run, volatile u32 *tally)
{
    while ((int)(*word - run) < 0 && tally[OVER] == 0)
        __nanosleep(20);
}
extern "C" __global__ void HD_THREADS(THREADS)
    hd_kernel(const hd_kernel_args args)
{
    volatile u32 *tally = (volatile u32 *)args.at[0];
    const u64 *at = &args.at[1];
    u32 run = tally[RUN];
    __syncthreads();
    for (int i = 0, end; i < ROOM && at[i] != 0; i = end) {
        const u64 kind = at[i] & KINDS;
        for (end = i; end < ROOM && at[end] != 0; end++)
            if ((at[end] & KINDS) != kind)
                break;
        run += kind == BEGIN;
        if (kind == BEGIN && threadIdx.x == 0)
            tally[RUN] = run;
        if (kind >= BEGIN && threadIdx.x == 0)
            tally[BUSY] = kind == BEGIN;
        if (kind == WRITE)
            __threadfence_system();
        for (int k = i + threadIdx.x; k < end; k += blockDim.x) {
            volatile u32 *word = (volatile u32 *)(at[k] & ~KINDS);
            if (kind == WRITE)
                *word = run;
            else if (kind == WAIT)
                await_word(word, run, tally);
        }
        if (kind != WRITE)
            __threadfence_system();
        __syncthreads();
    }
}
