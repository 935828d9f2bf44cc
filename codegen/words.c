// The kernel that tells peers and waits for them where the run's number is the
// device's own: what a call for words does with numbers that the host gives.
// One warp does words of one kind that follow each other at once, and kinds in
// their order. What the stream did before is there for who sees a word of ours,
// and what peers did before a word of theirs is there for what follows.
#include "codegen/emit.h"
#include "codegen/prelude.h"

enum { THREADS = 32 };

static const char body[] =
    "static inline void await_word(volatile u32 *word, u32 run,\n"
    "                              volatile u32 *tally)\n"
    "{\n"
    "    while ((int)(*word - run) < 0 && tally[OVER] == 0)\n"
    "        __nanosleep(20);\n"
    "}\n"
    "extern \"C\" __global__ void HD_THREADS(THREADS)\n"
    "hd_kernel(const hd_kernel_args args)\n"
    "{\n"
    "    volatile u32 *tally = (volatile u32 *)args.at[0];\n"
    "    const u64 *at = &args.at[1];\n"
    "    u32 run = tally[RUN];\n"
    "    __syncthreads();\n"
    "    for (int i = 0, end; i < ROOM && at[i] != 0; i = end) {\n"
    "        const u64 kind = at[i] & KINDS;\n"
    "        for (end = i; end < ROOM && at[end] != 0; end++)\n"
    "            if ((at[end] & KINDS) != kind)\n"
    "                break;\n"
    "        run += kind == BEGIN;\n"
    "        if (kind == BEGIN && threadIdx.x == 0)\n"
    "            tally[RUN] = run;\n"
    "        if (kind >= BEGIN && threadIdx.x == 0)\n"
    "            tally[BUSY] = kind == BEGIN;\n"
    "        if (kind == WRITE)\n"
    "            __threadfence_system();\n"
    "        for (int k = i + threadIdx.x; k < end; k += blockDim.x) {\n"
    "            volatile u32 *word = (volatile u32 *)(at[k] & ~KINDS);\n"
    "            if (kind == WRITE)\n"
    "                *word = run;\n"
    "            else if (kind == WAIT)\n"
    "                await_word(word, run, tally);\n"
    "        }\n"
    "        if (kind != WRITE)\n"
    "            __threadfence_system();\n"
    "        __syncthreads();\n"
    "    }\n"
    "}\n";

hd_status hd_emit_words(hd_text *out, hd_kernel_grid *grid)
{
    hd_text rest = {0};

    hd_text_printf(
        &rest,
        "enum { RUN, BUSY, OVER, ROOM = %d, THREADS = %d };\n"
        "static constexpr u64 WRITE = %d, WAIT = %d, BEGIN = %d, KINDS = 3;\n",
        HD_WORDS_ROOM, THREADS, HD_WORD_WRITE, HD_WORD_WAIT, HD_WORD_BEGIN);
    hd_text_puts(&rest, body);
    HD_TRY(hd_prelude_finish(out, &rest, 1 + HD_WORDS_ROOM, 0));
    *grid = (hd_kernel_grid){
        .blocks = 1, .threads = THREADS, .pointers = 1 + HD_WORDS_ROOM};
    return HD_OK;
}
