// What kernels for tensor cores of sm_80 and later do in one instruction:
// fragments of 16 rows by 16 of the depth, of 16 bits, times 8 columns, with
// sums in f32, and how these come to shared memory, whose addresses are of 32
// bits.
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
#define IS_F16 0 // of f16, else of bf16
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// Where chunk `chunk`, of 16 bytes, of a line of so many lies in shared memory:
// it is turned by the line, so that eight lines have eight places. Of chunks
// there are 2, 4 or a multiple of 8.
#define AT(line, chunk, chunks) \
    ((line) * (chunks)*16 +     \
     (((chunk) ^ ((line) & ((chunks) < 8 ? (chunks)-1 : 7))) << 4))

static inline u32 shared_address(const void *memory)
{
    u32 at;
    asm("{ .reg .u64 at; cvta.to.shared.u64 at, %1; cvt.u32.u64 %0, at; }"
        : "=r"(at)
        : "l"(memory));
    return at;
}

// The first `bytes` of 16, the others 0, which are there when they are awaited.
static inline void fetch_sixteen(u32 to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(from), "r"(bytes)
                 : "memory");
}

// All that the block has fetched. Whether any thread says so.
static inline bool await_fetches(bool x)
{
    asm volatile("cp.async.wait_all;" ::: "memory");
    return __syncthreads_or(x);
}

static inline void store_sixteen(u32 to, const u32 *x)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

// Four fragments of 8 lines: thread i of a warp says where line i % 8 of
// fragment i / 8 is, and gets two neighbours of line i / 4 of each; or, across,
// two neighbours of column i / 4.
static inline void read_along(u32 *out, u32 at)
{
    asm volatile(
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
        : "r"(at));
}

static inline void read_across(u32 *out, u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, "
                 "%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(at));
}

// Adds to 16 by 8 of which a thread has two neighbours of row i / 4, and two of
// that plus 8.
static inline void multiply_add(float *c, const u32 *a, const u32 *b)
{
#if IS_F16
#define OF "f16.f16"
#else
#define OF "bf16.bf16"
#endif
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." OF
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
                 "%2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]),
                   "r"(b[1]));
}

// 2 to the power of x.
static inline float power(float x)
{
    float out;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
    return out;
}

// Of the warp's threads.
static inline int least_of(int x)
{
    int out;
    asm("redux.sync.min.s32 %0, %1, 0xffffffff;" : "=r"(out) : "r"(x));
    return out;
}

static inline int most_of(int x)
{
    int out;
    asm("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(out) : "r"(x));
    return out;
}

// Two neighbours, the first one below.
static inline u32 pack(float x, float y)
{
    u32 out;
#if IS_F16
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(out) : "f"(x), "f"(y));
#else
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(out) : "f"(x), "f"(y));
#endif
    return out;
}
#endif
