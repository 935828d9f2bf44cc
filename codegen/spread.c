// The kernel that copies one contiguous range of memory to several places: of
// peers, so that all their links are fed at once. A thread keeps several words
// in flight, since each takes a while to get there. Of the blocks the last to
// end tells the peers.
#include "base/diag.h"
#include "codegen/emit.h"

enum { BLOCKS = 32, THREADS = 512 };

static const char head[] = "typedef unsigned long long u64;\n"
                           "struct alignas(16) word {\n"
                           "    u64 a, b;\n"
                           "};\n";

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
    "                ((const unsigned char *)from)[i];\n"
    "    __syncthreads();\n"
    "    if (FLAGS > 0 && threadIdx.x == blockDim.x - 1) {\n"
    "        unsigned *done = (unsigned *)args.at[COPIES + FLAGS + 2];\n"
    "        __threadfence_system();\n"
    "        if (atomicAdd(done, 1u) == gridDim.x - 1) {\n"
    "            *done = 0;\n"
    "            __threadfence_system();\n"
    "            for (int k = 0; k < FLAGS; k++)\n"
    "                *(volatile unsigned *)args.at[COPIES + 1 + k] =\n"
    "                    (unsigned)args.at[COPIES + FLAGS + 1];\n"
    "        }\n"
    "    }\n"
    "}\n";

hd_status hd_emit_spread(int copies, int flags, hd_length bytes, hd_diag *diag,
                         hd_text *out, hd_kernel_grid *grid)
{
    if (copies < 1 || copies + flags + 3 > HD_KERNEL_POINTERS)
        return hd_fail(diag, HD_UNSUPPORTED,
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
    hd_text_puts(out, signature);
    if (bytes.sized)
        hd_text_puts(out, "    const u64 BYTES = args.size[0];\n"
                          "    const u64 WORDS = BYTES / 16;\n");
    hd_text_puts(out, body);
    *grid = (hd_kernel_grid){.blocks = BLOCKS,
                             .threads = THREADS,
                             .pointers = copies + flags + 3,
                             .sizes = bytes.sized ? 1 : 0,
                             .size = {bytes.now}};
    return HD_OK;
}
