// The kernel that reduces over ranks and meets them by itself: it tells the
// peers that this rank's operand is there, waits for theirs, reads all operands
// where they lie, and ends when the peers have read this one. So one launch
// does what else are calls for words, a kernel and calls for words again.
//
// No more blocks than the device surely runs at once: each waits for the peers,
// none for another block of its own. Of the blocks the last to end tells the
// peers and waits for them.
#include "base/diag.h"
#include "codegen/body.h"
#include "codegen/emit.h"
#include "codegen/prelude.h"

enum { BLOCKS = 64, THREADS = 512, VECTOR = 16, FLIGHT = 8 };

static const char wait[] =
    "static inline void await_word(u64 address, u32 told)\n"
    "{\n"
    "    volatile u32 *word = (volatile u32 *)address;\n"
    "    const u32 next = told >> (TURNS - 1) & 1 ? 1 : told << 1;\n"
    "    if (TURNS > 1)\n"
    "        while ((*word & (told | next)) == 0)\n"
    "            __nanosleep(20);\n"
    "    else\n"
    "        while ((int)(*word - told) < 0)\n"
    "            __nanosleep(20);\n"
    "}\n";

static const char kernel[] =
    "extern \"C\" __global__ void HD_THREADS(THREADS)\n"
    "hd_kernel(const hd_kernel_args args)\n"
    "{\n"
    "    const u64 step = (u64)gridDim.x * blockDim.x;\n"
    "    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    const u32 told = (u32)args.at[VALUE];\n"
    "    u64 any = 0, start = 0;\n"
    "    if (threadIdx.x == 0) {\n"
    "        __threadfence_system();\n"
    "        for (int k = 0; blockIdx.x == 0 && k < RANKS - 1; k++)\n"
    "            *(volatile u32 *)args.at[READY + k] = told;\n"
    "        for (int k = 0; k < RANKS - 1; k++)\n"
    "            await_word(args.at[HEARD + k], told);\n"
    "        __threadfence_system();\n"
    "    }\n"
    "    __syncthreads();\n"
    "    for (int k = 0; k <= RANKS; k++)\n"
    "        any |= args.at[k];\n"
    "    if ((any & (sizeof(vector) - 1)) == 0) {\n"
    "        for (u64 i = first; i < VECTORS; i += FLIGHT * step) {\n"
    "            vector in[FLIGHT][RANKS], out;\n"
    "            for (int u = 0; u < FLIGHT; u++)\n"
    "                for (int k = 0; k < RANKS; k++)\n"
    "                    if (i + u * step < VECTORS)\n"
    "                        in[u][k].bits =\n"
    "                            ((const vector *)args.at[1 + k])[i + u * "
    "step].bits;\n"
    "            for (int u = 0; u < FLIGHT; u++) {\n"
    "                if (i + u * step >= VECTORS)\n"
    "                    break;\n"
    "                for (int e = 0; e < LANES; e++) {\n"
    "                    code c[RANKS];\n"
    "                    for (int k = 0; k < RANKS; k++)\n"
    "                        c[k] = in[u][k].at[e];\n"
    "                    reduce(&out.at[e], c);\n"
    "                }\n"
    "                ((vector *)args.at[0])[i + u * step].bits = out.bits;\n"
    "            }\n"
    "        }\n"
    "        start = VECTORS * LANES;\n"
    "    }\n"
    "    for (u64 i = start + first; i < ELEMENTS; i += step) {\n"
    "        code c[RANKS];\n"
    "        for (int k = 0; k < RANKS; k++)\n"
    "            c[k] = ((const code *)args.at[1 + k])[i];\n"
    "        reduce((code *)args.at[0] + i, c);\n"
    "    }\n"
    "    __syncthreads();\n"
    "    if (threadIdx.x == blockDim.x - 1) {\n"
    "        u32 *ended = (u32 *)args.at[VALUE + 1];\n"
    "        __threadfence_system();\n"
    "        if (atomicAdd(ended, 1u) == gridDim.x - 1) {\n"
    "            *ended = 0;\n"
    "            __threadfence_system();\n"
    "            for (int k = 0; k < RANKS - 1; k++)\n"
    "                *(volatile u32 *)args.at[DONE + k] = told;\n"
    "            for (int k = 0; k < RANKS - 1; k++)\n"
    "                await_word(args.at[READ + k], told);\n"
    "        }\n"
    "    }\n"
    "}\n";

int hd_oneshot_pointers(int ranks)
{
    return 5 * ranks - 1;
}

hd_status hd_emit_oneshot(hd_dtype dtype, hd_fold fold, int ranks, int turns,
                          int64_t elements, hd_diag *diag, hd_text *out,
                          hd_kernel_grid *grid)
{
    int lanes = VECTOR / (int)hd_dtype_size(dtype);
    int flight = ranks < FLIGHT ? FLIGHT / ranks : 1;
    int64_t most = (elements / lanes + THREADS - 1) / THREADS;
    hd_text rest = {0};

    if (ranks < 2 || hd_oneshot_pointers(ranks) > HD_KERNEL_POINTERS)
        return hd_fail(diag, HD_UNSUPPORTED,
                       "a reduction in one kernel over %d ranks; it takes 2 "
                       "to %d",
                       ranks, (HD_KERNEL_POINTERS + 1) / 5);
    hd_text_printf(
        &rest,
        "enum { RANKS = %d, LANES = %d, FLIGHT = %d, TURNS = %d };\n"
        "enum { THREADS = %d };\n"
        "enum { READY = 1 + RANKS, HEARD = READY + RANKS - 1,\n"
        "       DONE = HEARD + RANKS - 1, READ = DONE + RANKS - 1,\n"
        "       VALUE = READ + RANKS - 1 };\n"
        "static constexpr u64 ELEMENTS = %lldu, VECTORS = ELEMENTS / LANES;\n"
        "typedef %s code;\n"
        "union alignas(16) vector {\n"
        "    struct alignas(16) { u64 a, b; } bits;\n"
        "    code at[LANES];\n"
        "};\n",
        ranks, lanes, flight, turns > 1 ? turns : 1, THREADS,
        (long long)elements, hd_code_text(dtype));
    hd_text_puts(&rest, "static inline void reduce(code *to, const code *c)\n"
                        "{\n");
    hd_body_reduce(&rest, dtype, fold, ranks, "c[%d]", 0, "*to");
    hd_text_puts(&rest, "}\n");
    hd_text_puts(&rest, wait);
    hd_text_puts(&rest, kernel);
    if (!rest.failed) {
        hd_prelude_add(out, rest.bytes, hd_oneshot_pointers(ranks));
        hd_text_add(out, rest.bytes, rest.length);
    }
    out->failed |= rest.failed;
    hd_text_free(&rest);
    *grid = (hd_kernel_grid){(unsigned)(most < 1        ? 1
                                        : most > BLOCKS ? BLOCKS
                                                        : most),
                             THREADS, hd_oneshot_pointers(ranks)};
    return HD_OK;
}
