// The rows of slabs that are counted. Blocks take the chunks of all slabs in
// turns, whatever slabs have: each adds up how many chunks those before have.
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
#define FLAGS 1
#define TALLY 1
#define SLABS 8ull // each with room for ROOM rows of ROW bytes
#define ROOM 12ull
#define ROW 32ull
#define EACH 1ull // slabs have a count together
#define CHUNK 32768u
typedef struct hd_kernel_args {
    u64 at[FLAGS + 8];
} hd_kernel_args;
#define FIRST_FLAG 2
#include "codegen/kernels/flags.cu"
#endif

#define SLAB (ROOM * ROW)

struct alignas(16) word {
    u64 a, b;
};

static inline u64 rows_of(i64 count)
{
    return count < 0 ? 0 : (u64)count > ROOM ? ROOM : (u64)count;
}

static inline bool fits(i64 count)
{
    return (i64)rows_of(count) == count;
}

static inline void tell(const int *counts, u64 *told, u64 step, u64 first,
                        u64 c)
{
    if (fits(counts[c]) ||
        (told[0] != 0 && (told[0] != step + 1 || told[1] <= first + c)))
        return;
    for (u64 k = 0; k < c; k++)
        if (!fits(counts[k]))
            return;
    told[1] = first + c;
    told[2] = (u64)(i64)counts[c];
    told[3] = ROOM;
    told[0] = step + 1;
}

static inline void copy(char *to, const char *from, u64 bytes, bool wide)
{
    const u64 words = wide ? bytes / 16 : 0, step = blockDim.x;
    for (u64 i = threadIdx.x; i < words; i += 4 * step) {
        word w[4] = {};
        for (int u = 0; u < 4; u++)
            if (i + u * step < words)
                w[u] = ((const word *)from)[i + u * step];
        for (int u = 0; u < 4; u++)
            if (i + u * step < words)
                ((word *)to)[i + u * step] = w[u];
    }
    for (u64 i = words * 16 + threadIdx.x; i < bytes; i += step)
        to[i] = from[i];
}

extern "C" __global__ void hd_kernel(const hd_kernel_args args)
{
    const int *counts = (const int *)args.at[FLAGS + 4];
    const bool wide = ((args.at[0] | args.at[1] | SLAB) & 15) == 0;
    u64 before = 0;
    if (blockIdx.x == 0)
        for (u64 c = threadIdx.x; c < SLABS / EACH; c += blockDim.x)
            tell(counts, (u64 *)args.at[FLAGS + 5], args.at[FLAGS + 6],
                 args.at[FLAGS + 7], c);
    for (u64 slab = 0; slab < SLABS; slab++) {
        const u64 bytes = rows_of(counts[slab / EACH]) * ROW;
        char *to = (char *)args.at[0] + slab * SLAB;
        const char *from = (const char *)args.at[1] + slab * SLAB;
        u64 at =
            (blockIdx.x + gridDim.x - before % gridDim.x) % gridDim.x * CHUNK;
        for (; at < bytes; at += gridDim.x * CHUNK)
            copy(to + at, from + at, bytes - at < CHUNK ? bytes - at : CHUNK,
                 wide);
        before += (bytes + CHUNK - 1) / CHUNK;
    }
    raise_flags(args);
}
