// A block has an expert, and reads all entries, so that it waits for no other
// one: in parts of which each thread has up to 32, and each warp those that lie
// side by side. A warp gives its entries places behind those of the warps
// before, which all have counted.
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
typedef int index;    // that all elements of a view are within reach of
#define MOST_WARPS 16 // of a block
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

// Where there are no warps a thread is a block of its own.
#if defined(__CUDA_ARCH__)
#define LANES 32
#define WARPS (int)(blockDim.x / LANES)
#define MEMBER (int)threadIdx.x
#define MEMBERS (int)blockDim.x
#define BLOCK blockIdx.x
#define BLOCKS gridDim.x
#define SHARED __shared__
#define MEET __syncthreads()
#else
#define LANES 1
#define WARPS 1
#define MEMBER 0
#define MEMBERS 1
#define BLOCK (blockIdx.x * blockDim.x + threadIdx.x)
#define BLOCKS (gridDim.x * blockDim.x)
#define SHARED
#define MEET
#endif
#define EACH 32 // entries a thread, a bit each

static inline u32 vote(bool yes)
{
#if defined(__CUDA_ARCH__)
    return __ballot_sync(0xffffffffu, yes);
#else
    return yes;
#endif
}

static inline int bits_in(u32 bits)
{
#if defined(__CUDA_ARCH__)
    return __popc(bits);
#else
    return __builtin_popcount(bits);
#endif
}

static inline int first_of(u32 bits)
{
#if defined(__CUDA_ARCH__)
    return __ffs((int)bits) - 1;
#else
    return __builtin_ctz(bits);
#endif
}

static inline int sum_of_lanes(int n)
{
#if defined(__CUDA_ARCH__)
    for (int other = LANES / 2; other > 0; other /= 2)
        n += __shfl_xor_sync(0xffffffffu, n, other);
#endif
    return n;
}

static inline u32 all_of_lanes(u32 bits)
{
#if defined(__CUDA_ARCH__)
    for (int other = LANES / 2; other > 0; other /= 2)
        bits |= __shfl_xor_sync(0xffffffffu, bits, other);
#endif
    return bits;
}

// Which of a thread's entries, from `j` on, are for the expert.
static inline u32 find(const hd_kernel_args &args, const int *v3, int expert,
                       index j, index all)
{
    int who[EACH];
    u32 found = 0;
#pragma unroll
    for (int u = 0; u < EACH; u++)
        who[u] = j + u * LANES < all ? EXPERT(j + u * LANES) : -1;
#pragma unroll
    for (int u = 0; u < EACH; u++)
        found |= (u32)(who[u] == expert) << u;
    return found;
}

extern "C" __global__ void HD_THREADS(32 * MOST_WARPS)
    hd_kernel(const hd_kernel_args args)
{
    SHARED int counts[MOST_WARPS];
    const int warp = MEMBER / LANES, lane = MEMBER % LANES;

    for (i64 i = BLOCK; i < E * BATCH; i += BLOCKS) {
        const i64 e = i % E;
        i64 b = i / E;
        VIEWS
        const index all = (index)(T * K);
        index n = 0; // entries of parts that are done
        for (index part = 0; part < all; part += MEMBERS * EACH) {
            const index from = part + warp * LANES * EACH + lane;
            const u32 mine = find(args, v3, (int)e, from, all);
            const int own = sum_of_lanes(bits_in(mine));
            index next = n;
            if (lane == 0)
                counts[warp] = own;
            MEET;
            for (int w = 0; w < WARPS; w++) {
                next += w < warp ? counts[w] : 0;
                n += counts[w];
            }
            MEET; // before anyone counts the next part
            for (u32 left = all_of_lanes(mine); left != 0; left &= left - 1) {
                const int u = first_of(left);
                const bool wants = mine >> u & 1;
                const u32 votes = vote(wants);
                const index j = from + u * LANES;
                const index c = next + bits_in(votes & ((1u << lane) - 1));
                next += bits_in(votes);
                if (wants)
                    SLOT(j) = c < CAP ? (int)(e * CAP + c) : -1;
                if (wants && c < CAP)
                    TOKEN(c) = (int)(j / (index)K);
            }
        }
        const i64 kept = n < CAP ? n : CAP;
        for (i64 c = kept + MEMBER; c < CAP; c += MEMBERS)
            TOKEN(c) = -1;
        if (MEMBER == 0)
            COUNT = (int)kept;
        // Who wants no expert that there is, is told so: a share each.
        const i64 share = (all + E - 1) / E;
        const i64 past = all - e * share < share ? all : (e + 1) * share;
        for (i64 at = e * share + MEMBER; at < past; at += MEMBERS) {
            const index j = (index)at;
            const int who = EXPERT(j);
            if (who < 0 || who >= E)
                SLOT(j) = -1;
        }
    }
}
