// What ends a kernel that copies to peers: of its blocks the last tells them.
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
#define FLAGS 1
#define FIRST_FLAG 0 // of at[]; behind the flags: what is told, and a counter
#define TALLY 0      // what is told is the address of a tally
typedef struct hd_kernel_args {
    u64 at[FIRST_FLAG + FLAGS + 2];
} hd_kernel_args;
#endif

static inline void raise_flags(const hd_kernel_args &args)
{
    __syncthreads();
    if (FLAGS == 0 || threadIdx.x != blockDim.x - 1)
        return;
    const u64 value = args.at[FIRST_FLAG + FLAGS];
    u32 *done = (u32 *)args.at[FIRST_FLAG + FLAGS + 1];
    __threadfence_system();
    if (atomicAdd(done, 1u) != gridDim.x - 1)
        return;
    *done = 0;
    __threadfence_system();
    for (int k = 0; k < FLAGS; k++)
        *(volatile u32 *)args.at[FIRST_FLAG + k] =
            TALLY ? *(volatile u32 *)value : (u32)value;
}
