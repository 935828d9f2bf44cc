// Kernels that reduce over ranks and meet them by themselves: such a kernel
// tells the peers that this rank's operand is there, waits for theirs, reads
// operands where they lie, and ends when the peers have read this one. So one
// launch does what else are calls for words, a kernel and calls for words
// again.
//
//   one-shot   every rank reads all operands
//   two-shot   every rank reads its share of all operands, and puts what it
//              makes of it to all peers, who take it from their own memory
//
// One-shot, no block waits for another one of its own kernel: of the blocks the
// last to end tells the peers and waits for them. Two-shot, every block waits
// for the peers between its halves, and these for all blocks of this one, so
// that all blocks must be there at once. Both have no more of them than the
// device surely runs so.
#include "base/diag.h"
#include "codegen/body.h"
#include "codegen/emit.h"
#include "codegen/prelude.h"

enum { THREADS = 512, VECTOR = 16, FLIGHT = 8 };
enum { ONESHOT_BLOCKS = 64, TWOSHOT_BLOCKS = 32 };

static const char meeting[] =
    "enum { OVER = 2 }; // of a tally\n"
    "static inline void await_word(u64 address, u32 told, u64 value)\n"
    "{\n"
    "    volatile u32 *word = (volatile u32 *)address;\n"
    "    if (TURNS > 1) {\n"
    "        const u32 next = told >> (TURNS - 1) & 1 ? 1 : told << 1;\n"
    "        while ((*word & (told | next)) == 0)\n"
    "            __nanosleep(20);\n"
    "    } else {\n"
    "        volatile u32 *tally = (volatile u32 *)value;\n"
    "        while ((int)(*word - told) < 0 && (TURNS == 1 || tally[OVER] == "
    "0))\n"
    "            __nanosleep(20);\n"
    "    }\n"
    "}\n";

static const char signature[] =
    "extern \"C\" __global__ void HD_THREADS(THREADS)\n"
    "hd_kernel(const hd_kernel_args args)\n"
    "{\n";

static const char head[] =
    "    const u64 step = (u64)gridDim.x * blockDim.x;\n"
    "    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    const u64 value = args.at[VALUE];\n"
    "    const u32 told = TURNS > 0 ? (u32)value : *(volatile u32 *)value;\n"
    "    const u64 base = SHOTS > 1 ? args.at[VALUE + 2] : 0;\n"
    "    const u64 own = ELEMENTS - base < SHARE ? ELEMENTS - base : SHARE;\n"
    "    code *result = (code *)args.at[0];\n"
    "    u64 any = 0, start = 0;\n"
    "    if (threadIdx.x == 0) {\n"
    "        __threadfence_system();\n"
    "        for (int k = 0; blockIdx.x == 0 && k < RANKS - 1; k++)\n"
    "            *(volatile u32 *)args.at[READY + k] = told;\n"
    "        for (int k = 0; k < RANKS - 1; k++)\n"
    "            await_word(args.at[HEARD + k], told, value);\n"
    "        __threadfence_system();\n"
    "    }\n"
    "    __syncthreads();\n"
    "    for (int k = 0; k < READY; k++)\n"
    "        any |= args.at[k];\n"
    "    const bool fits = (any & (sizeof(vector) - 1)) == 0;\n"
    "    if (fits) {\n"
    "        const u64 n = own / LANES;\n"
    "        for (u64 i = first; i < n; i += FLIGHT * step) {\n"
    "            vector in[FLIGHT][RANKS], out;\n"
    "            for (int u = 0; u < FLIGHT; u++)\n"
    "                for (int k = 0; k < RANKS; k++)\n"
    "                    if (i + u * step < n)\n"
    "                        in[u][k].bits =\n"
    "                            ((const vector *)args.at[1 + k])[i + u * "
    "step].bits;\n"
    "            for (int u = 0; u < FLIGHT; u++) {\n"
    "                const u64 at = i + u * step;\n"
    "                if (at >= n)\n"
    "                    break;\n"
    "                for (int e = 0; e < LANES; e++) {\n"
    "                    code c[RANKS];\n"
    "                    for (int k = 0; k < RANKS; k++)\n"
    "                        c[k] = in[u][k].at[e];\n"
    "                    reduce(&out.at[e], c);\n"
    "                }\n"
    "                for (int k = 0; k < PUTS; k++)\n"
    "                    ((vector *)args.at[PUT + k])[at].bits = out.bits;\n"
    "                ((vector *)(result + base))[at].bits = out.bits;\n"
    "            }\n"
    "        }\n"
    "        start = n * LANES;\n"
    "    }\n"
    "    for (u64 i = start + first; i < own; i += step) {\n"
    "        code c[RANKS], out;\n"
    "        for (int k = 0; k < RANKS; k++)\n"
    "            c[k] = ((const code *)args.at[1 + k])[i];\n"
    "        reduce(&out, c);\n"
    "        for (int k = 0; k < PUTS; k++)\n"
    "            ((code *)args.at[PUT + k])[i] = out;\n"
    "        result[base + i] = out;\n"
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
    "            for (int k = 0; SHOTS == 1 && k < RANKS - 1; k++)\n"
    "                await_word(args.at[READ + k], told, value);\n"
    "        }\n"
    "    }\n";

// What is behind this rank's share follows what is before it. Both begin at a
// vector, and of the two only what is behind may end within one.
static const char second_half[] =
    "    if (threadIdx.x == 0) {\n"
    "        for (int k = 0; k < RANKS - 1; k++)\n"
    "            await_word(args.at[READ + k], told, value);\n"
    "        __threadfence_system();\n"
    "    }\n"
    "    __syncthreads();\n"
    "    const code *landed = (const code *)args.at[1 + RANKS];\n"
    "    const u64 rest = ELEMENTS - own;\n"
    "    start = 0;\n"
    "    if (fits) {\n"
    "        const u64 n = rest / LANES;\n"
    "        for (u64 i = first; i < n; i += COPIES * step) {\n"
    "            vector in[COPIES];\n"
    "            for (int u = 0; u < COPIES; u++) {\n"
    "                const u64 at = (i + u * step) * LANES;\n"
    "                if (i + u * step < n)\n"
    "                    in[u].bits = ((const vector *)(landed + at +\n"
    "                        (at < base ? 0 : own)))->bits;\n"
    "            }\n"
    "            for (int u = 0; u < COPIES; u++) {\n"
    "                const u64 at = (i + u * step) * LANES;\n"
    "                if (i + u * step < n)\n"
    "                    ((vector *)(result + at +\n"
    "                        (at < base ? 0 : own)))->bits = in[u].bits;\n"
    "            }\n"
    "        }\n"
    "        start = n * LANES;\n"
    "    }\n"
    "    for (u64 i = start + first; i < rest; i += step) {\n"
    "        const u64 at = i < base ? i : i + own;\n"
    "        result[at] = landed[at];\n"
    "    }\n";

int hd_oneshot_pointers(int ranks)
{
    return 5 * ranks - 1;
}

int hd_twoshot_pointers(int ranks)
{
    return 6 * ranks;
}

// ELEMENTS and SHARE: of the whole text, or of the kernel where a run says
// them.
static void add_lengths(hd_text *text, hd_length elements,
                        const hd_length *share)
{
    if (elements.sized)
        hd_text_printf(text,
                       "    const u64 ELEMENTS = args.size[0], "
                       "SHARE = args.size[%d];\n",
                       share != NULL ? 1 : 0);
    else
        hd_text_printf(
            text, "static constexpr u64 ELEMENTS = %lldu, SHARE = %lldu;\n",
            (long long)elements.now,
            (long long)(share != NULL ? share->now : elements.now));
}

// Two-shot where ranks have shares.
static void add_constants(hd_text *text, hd_dtype dtype, int ranks, int turns,
                          hd_length elements, const hd_length *share)
{
    bool twice = share != NULL;

    hd_text_printf(
        text,
        "enum { RANKS = %d, LANES = %d, FLIGHT = %d, TURNS = %d };\n"
        "enum { THREADS = %d, SHOTS = %d, COPIES = %d };\n"
        "enum { PUT = 2 + RANKS, PUTS = SHOTS > 1 ? RANKS - 1 : 0,\n"
        "       READY = SHOTS > 1 ? PUT + PUTS : 1 + RANKS,\n"
        "       HEARD = READY + RANKS - 1, DONE = HEARD + RANKS - 1,\n"
        "       READ = DONE + RANKS - 1, VALUE = READ + RANKS - 1 };\n",
        ranks, VECTOR / (int)hd_dtype_size(dtype),
        ranks < FLIGHT ? FLIGHT / ranks : 1, turns, THREADS, twice ? 2 : 1,
        FLIGHT);
    if (!elements.sized)
        add_lengths(text, elements, share);
    hd_text_printf(text,
                   "typedef %s code;\n"
                   "union alignas(16) vector {\n"
                   "    struct alignas(16) { u64 a, b; } bits;\n"
                   "    code at[LANES];\n"
                   "};\n",
                   hd_code_text(dtype));
}

// So many that each thread has a vector of the larger half, if they are few.
static unsigned blocks_of(hd_dtype dtype, int64_t elements, int64_t share)
{
    int64_t most = share > 0 ? TWOSHOT_BLOCKS : ONESHOT_BLOCKS;
    int64_t half = elements - share > share ? elements - share : share;
    int64_t vectors = half * (int64_t)hd_dtype_size(dtype) / VECTOR;
    int64_t n = (vectors + THREADS - 1) / THREADS;

    return (unsigned)(n < 1 ? 1 : n > most ? most : n);
}

static hd_status emit_meeting(hd_dtype dtype, hd_fold fold, int ranks,
                              int turns, hd_length elements,
                              const hd_length *share, int pointers,
                              hd_text *out, hd_kernel_grid *grid)
{
    int64_t half = share != NULL ? share->now : 0;
    int sizes = !elements.sized ? 0 : share != NULL ? 2 : 1;
    hd_text rest = {0};

    add_constants(&rest, dtype, ranks, turns, elements, share);
    hd_text_puts(&rest, "static inline void reduce(code *to, const code *c)\n"
                        "{\n");
    hd_body_reduce(&rest, dtype, fold, ranks, "c[%d]", 0, "*to");
    hd_text_puts(&rest, "}\n");
    hd_text_puts(&rest, meeting);
    hd_text_puts(&rest, signature);
    if (elements.sized)
        add_lengths(&rest, elements, share);
    hd_text_puts(&rest, head);
    hd_text_puts(&rest, share != NULL ? second_half : "");
    hd_text_puts(&rest, "}\n");
    HD_TRY(hd_prelude_finish(out, &rest, pointers, sizes));
    *grid = (hd_kernel_grid){.blocks = blocks_of(dtype, elements.now, half),
                             .threads = THREADS,
                             .pointers = pointers,
                             .sizes = sizes,
                             .size = {elements.now, half}};
    return HD_OK;
}

static hd_status check_ranks(int ranks, int most, hd_diag *diag)
{
    if (ranks >= 2 && ranks <= most)
        return HD_OK;
    return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                   "a reduction in one kernel over %d ranks; it takes 2 to %d",
                   ranks, most);
}

hd_status hd_emit_oneshot(hd_dtype dtype, hd_fold fold, int ranks, int turns,
                          hd_length elements, hd_diag *diag, hd_text *out,
                          hd_kernel_grid *grid)
{
    HD_TRY(check_ranks(ranks, (HD_KERNEL_POINTERS + 1) / 5, diag));
    return emit_meeting(dtype, fold, ranks, turns, elements, NULL,
                        hd_oneshot_pointers(ranks), out, grid);
}

hd_status hd_emit_twoshot(hd_dtype dtype, hd_fold fold, int ranks, int turns,
                          hd_length elements, hd_length share, hd_diag *diag,
                          hd_text *out, hd_kernel_grid *grid)
{
    HD_TRY(check_ranks(ranks, HD_KERNEL_POINTERS / 6, diag));
    return emit_meeting(dtype, fold, ranks, turns, elements, &share,
                        hd_twoshot_pointers(ranks), out, grid);
}
