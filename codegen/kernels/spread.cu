// One contiguous range to several places. A thread keeps several words in
// flight, since each takes a while to get there.
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
#define COPIES 3
#define FLAGS 2
#define TALLY 0
#define BYTES 1003ull // or args.size[0]
typedef struct hd_kernel_args {
    u64 at[COPIES + FLAGS + 3];
} hd_kernel_args;
#define FIRST_FLAG (COPIES + 1)
#include "codegen/kernels/flags.cu"
#endif

struct alignas(16) word {
    u64 a, b;
};

extern "C" __global__ void hd_kernel(const hd_kernel_args args)
{
    const u64 words = BYTES / 16;
    const u64 step = (u64)gridDim.x * blockDim.x;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const word *from = (const word *)args.at[COPIES];
    u64 any = 0, start = 0;
    for (int k = 0; k <= COPIES; k++)
        any |= args.at[k];
    if ((any & 15) == 0) {
        u64 i = first;
        for (; i + 3 * step < words; i += 4 * step) {
            word w[4];
            for (int u = 0; u < 4; u++)
                w[u] = from[i + u * step];
            for (int k = 0; k < COPIES; k++)
                for (int u = 0; u < 4; u++)
                    ((word *)args.at[k])[i + u * step] = w[u];
        }
        for (; i < words; i += step)
            for (int k = 0; k < COPIES; k++)
                ((word *)args.at[k])[i] = from[i];
        start = words * 16;
    }
    for (u64 i = start + first; i < BYTES; i += step)
        for (int k = 0; k < COPIES; k++)
            ((u8 *)args.at[k])[i] = ((const u8 *)from)[i];
    raise_flags(args);
}
