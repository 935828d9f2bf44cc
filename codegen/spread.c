// The kernels that copy to peers: one contiguous range to several places, so
// that all their links are fed at once, or to one the rows of a range that are
// counted. A thread keeps several words in flight, since each takes a while to
// get there. Of the blocks the last to end tells the peers.
#include "base/diag.h"
#include "base/dtype.h"
#include "codegen/emit.h"

enum { BLOCKS = 32, THREADS = 512 };

static const char head[] = "typedef unsigned long long u64;\n"
                           "struct alignas(16) word {\n"
                           "    u64 a, b;\n"
                           "};\n";

// The number itself, or that of the tally there.
static void add_told(hd_text *out, bool tally)
{
    hd_text_printf(out,
                   "static inline unsigned told(u64 at)\n"
                   "{\n"
                   "    return %s;\n"
                   "}\n",
                   tally ? "*(volatile unsigned *)at" : "(unsigned)at");
}

static const char signature[] =
    "extern \"C\" __global__ void hd_kernel(const hd_kernel_args args)\n"
    "{\n";

static const char body[] =
    "    const u64 step = (u64)gridDim.x * blockDim.x;\n"
    "    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    const word *from = (const word *)args.at[COPIES];\n"
    "    u64 any = 0, start = 0;\n"
    "    for (int k = 0; k <= COPIES; k++)\n"
    "        any |= args.at[k];\n"
    "    if ((any & 15) == 0) {\n"
    "        u64 i = first;\n"
    "        for (; i + 3 * step < WORDS; i += 4 * step) {\n"
    "            word w[4];\n"
    "            for (int u = 0; u < 4; u++)\n"
    "                w[u] = from[i + u * step];\n"
    "            for (int k = 0; k < COPIES; k++)\n"
    "                for (int u = 0; u < 4; u++)\n"
    "                    ((word *)args.at[k])[i + u * step] = w[u];\n"
    "        }\n"
    "        for (; i < WORDS; i += step)\n"
    "            for (int k = 0; k < COPIES; k++)\n"
    "                ((word *)args.at[k])[i] = from[i];\n"
    "        start = WORDS * 16;\n"
    "    }\n"
    "    for (u64 i = start + first; i < BYTES; i += step)\n"
    "        for (int k = 0; k < COPIES; k++)\n"
    "            ((unsigned char *)args.at[k])[i] =\n"
    "                ((const unsigned char *)from)[i];\n";

static const char tail[] =
    "    __syncthreads();\n"
    "    if (FLAGS > 0 && threadIdx.x == blockDim.x - 1) {\n"
    "        unsigned *done = (unsigned *)args.at[COPIES + FLAGS + 2];\n"
    "        __threadfence_system();\n"
    "        if (atomicAdd(done, 1u) == gridDim.x - 1) {\n"
    "            *done = 0;\n"
    "            __threadfence_system();\n"
    "            for (int k = 0; k < FLAGS; k++)\n"
    "                *(volatile unsigned *)args.at[COPIES + 1 + k] =\n"
    "                    told(args.at[COPIES + FLAGS + 1]);\n"
    "        }\n"
    "    }\n"
    "}\n";

hd_status hd_emit_spread(int copies, int flags, bool tally, hd_length bytes,
                         hd_diag *diag, hd_text *out, hd_kernel_grid *grid)
{
    if (copies < 1 || copies + flags + 3 > HD_KERNEL_POINTERS)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "a copy to %d places that raises %d flags; a kernel "
                       "takes 1 place to %d of both",
                       copies, flags, HD_KERNEL_POINTERS - 3);
    hd_text_puts(out, head);
    hd_text_printf(out,
                   "enum { COPIES = %d, FLAGS = %d };\n"
                   "typedef struct hd_kernel_args {\n"
                   "    u64 at[COPIES + FLAGS + 3];\n",
                   copies, flags);
    hd_text_puts(out, bytes.sized ? "    u64 size[1];\n" : "");
    hd_text_puts(out, "} hd_kernel_args;\n");
    if (!bytes.sized)
        hd_text_printf(out,
                       "static constexpr u64 BYTES = %lldu, WORDS = BYTES / "
                       "16;\n",
                       (long long)bytes.now);
    add_told(out, tally);
    hd_text_puts(out, signature);
    if (bytes.sized)
        hd_text_puts(out, "    const u64 BYTES = args.size[0];\n"
                          "    const u64 WORDS = BYTES / 16;\n");
    hd_text_puts(out, body);
    hd_text_puts(out, tail);
    *grid = (hd_kernel_grid){.blocks = BLOCKS,
                             .threads = THREADS,
                             .pointers = copies + flags + 3,
                             .sizes = bytes.sized ? 1 : 0,
                             .size = {bytes.now}};
    return HD_OK;
}

// ------------------------------------------------------------- rows, by counts

// Blocks take the chunks of all slabs in turns, whatever slabs have: each adds
// up how many chunks those before have.
static const char rows_body[] =
    "static inline u64 rows_of(i64 count)\n"
    "{\n"
    "    return count < 0 ? 0 : (u64)count > ROOM ? ROOM : (u64)count;\n"
    "}\n"
    "static inline bool fits(i64 count)\n"
    "{\n"
    "    return (i64)rows_of(count) == count;\n"
    "}\n"
    "static inline void tell(const int *counts, u64 *told, u64 step,\n"
    "                        u64 first, u64 c)\n"
    "{\n"
    "    if (fits(counts[c]) ||\n"
    "        (told[0] != 0 && (told[0] != step + 1 || told[1] <= first + c)))\n"
    "        return;\n"
    "    for (u64 k = 0; k < c; k++)\n"
    "        if (!fits(counts[k]))\n"
    "            return;\n"
    "    told[1] = first + c;\n"
    "    told[2] = (u64)(i64)counts[c];\n"
    "    told[3] = ROOM;\n"
    "    told[0] = step + 1;\n"
    "}\n"
    "static inline void copy(char *to, const char *from, u64 bytes, bool "
    "wide)\n"
    "{\n"
    "    const u64 words = wide ? bytes / 16 : 0, step = blockDim.x;\n"
    "    for (u64 i = threadIdx.x; i < words; i += 4 * step) {\n"
    "        word w[4] = {};\n"
    "        for (int u = 0; u < 4; u++)\n"
    "            if (i + u * step < words)\n"
    "                w[u] = ((const word *)from)[i + u * step];\n"
    "        for (int u = 0; u < 4; u++)\n"
    "            if (i + u * step < words)\n"
    "                ((word *)to)[i + u * step] = w[u];\n"
    "    }\n"
    "    for (u64 i = words * 16 + threadIdx.x; i < bytes; i += step)\n"
    "        to[i] = from[i];\n"
    "}\n";

static const char rows_kernel[] =
    "    const int *counts = (const int *)args.at[FLAGS + 4];\n"
    "    const bool wide = ((args.at[0] | args.at[1] | SLAB) & 15) == 0;\n"
    "    u64 before = 0;\n"
    "    if (blockIdx.x == 0)\n"
    "        for (u64 c = threadIdx.x; c < SLABS / EACH; c += blockDim.x)\n"
    "            tell(counts, (u64 *)args.at[FLAGS + 5], args.at[FLAGS + 6],\n"
    "                 args.at[FLAGS + 7], c);\n"
    "    for (u64 slab = 0; slab < SLABS; slab++) {\n"
    "        const u64 bytes = rows_of(counts[slab / EACH]) * ROW;\n"
    "        char *to = (char *)args.at[0] + slab * SLAB;\n"
    "        const char *from = (const char *)args.at[1] + slab * SLAB;\n"
    "        u64 at = (blockIdx.x + gridDim.x - before % gridDim.x) %\n"
    "                 gridDim.x * CHUNK;\n"
    "        for (; at < bytes; at += gridDim.x * CHUNK)\n"
    "            copy(to + at, from + at,\n"
    "                 bytes - at < CHUNK ? bytes - at : CHUNK, wide);\n"
    "        before += (bytes + CHUNK - 1) / CHUNK;\n"
    "    }\n";

void hd_emit_rows(const hd_rows *rows, hd_dtype dtype, int flags, bool tally,
                  hd_text *out, hd_kernel_grid *grid)
{
    long long row = (long long)rows->row * (long long)hd_dtype_size(dtype);

    hd_text_puts(out, head);
    hd_text_printf(out,
                   "typedef long long i64;\n"
                   "enum { COPIES = 1, FLAGS = %d };\n"
                   "typedef struct hd_kernel_args {\n"
                   "    u64 at[FLAGS + %d];\n"
                   "} hd_kernel_args;\n"
                   "static constexpr u64 SLABS = %lldu, ROOM = %lldu, ROW = "
                   "%lldu, SLAB = ROOM * ROW, EACH = %lldu, CHUNK = %du;\n",
                   flags, HD_ROWS_POINTERS, (long long)rows->n,
                   (long long)rows->room, row, (long long)rows->each,
                   THREADS * 4 * 16);
    add_told(out, tally);
    hd_text_puts(out, rows_body);
    hd_text_puts(out, signature);
    hd_text_puts(out, rows_kernel);
    hd_text_puts(out, tail);
    *grid = (hd_kernel_grid){.blocks = BLOCKS,
                             .threads = THREADS,
                             .pointers = flags + HD_ROWS_POINTERS};
}
