// What attention and its kin know of logarithms of sums of weights, of which
// one that is none() says that nothing is seen.
#ifndef HD_TYPES
#include "codegen/kernels/types.cu"
typedef float lane;
#define EXP expf
#define LOG logf
static inline lane none()
{
    return -1.0f / 0.0f;
}
// What the kernels' own instances have in common: values of elements of views,
// and of results back; how far apart heads, rows and elements are.
#define get_0(x) (x)
#define get_1(x) (x)
#define get_2(x) (x)
#define get_3(x) (x)
#define get_4(x) (x)
#define get_5(x) (x)
#define get_6(x) (x)
#define get_7(x) (x)
#define get_8(x) (x)
#define put_0(x) (x)
#define put_1(x) (x)
#define put_2(x) (x)
#define V0_H 8192ll
#define V0_S 64ll
#define V0_D 1ll
#define V1_H 8192ll
#define V1_S 64ll
#define V1_D 1ll
#define V2_H 8192ll
#define V2_S 64ll
#define V2_D 1ll
#define V3_H 8192ll
#define V3_S 64ll
#define V3_D 1ll
#define V4_H 8192ll
#define V4_S 64ll
#define V4_D 1ll
#define V5_H 8192ll
#define V5_S 64ll
#define V5_D 1ll
#define V6_H 8192ll
#define V6_S 64ll
#define V6_D 1ll
#define V7_H 128ll
#define V7_S 1ll
#define V8_H 8192ll
#define V8_S 64ll
#define V8_D 1ll
#define D 64 // elements of q and k, and of v
#define W 64
#define D_ROOM 64
#define W_ROOM 64
#define SOME 16   // keys at once
#define UPDATES 1 // what is there is merged with it
#define ADDS_0 1  // or a gradient is added to it
#define ADDS_1 1
#define ADDS_2 1
#define MASKED 1 // row i sees no key behind i + CAUSAL, of WINDOW if > 0
#define CAUSAL 0ll
#define WINDOW 0ll
#define SCALE (lane)0.125
#define BATCH 2ll
#define H 4ll // heads, of HKV of keys
#define HKV 2ll
#define S 128ll // rows, and keys
#define N 128ll
#define COUNTED 0 // not all rows and keys are there
#define GROUPED 0 // rows see keys of their sequence alone
#define CHECK_COUNTS
#define COUNTS          \
    const i64 rows = S; \
    const i64 keys = N;
#define FIND_KEYS(row)
#define FIND_ROWS(key)
#endif

static inline bool sees_nothing(lane lse)
{
    return lse == none();
}

static inline lane lse_of_both(lane x, lane y)
{
    const lane most = x > y || x != x ? x : y;
    if (sees_nothing(most) || most != most)
        return most;
    return most + LOG(EXP(x - most) + EXP(y - most));
}

static inline lane share(lane lse, lane both)
{
    return sees_nothing(lse) ? 0 : EXP(lse - both);
}

// From `from` to `past` the keys that a row sees, of `keys`; whether counts or
// sequences leave it out.
#define SEE_KEYS(row)                                                          \
    i64 from = 0, past = keys;                                                 \
    FIND_KEYS(row)                                                             \
    const bool absent = (COUNTED && row >= rows) || (GROUPED && past == from); \
    if (absent)                                                                \
        past = from;                                                           \
    if (MASKED) {                                                              \
        const i64 end = row + CAUSAL + 1;                                      \
        if (end < past)                                                        \
            past = end;                                                        \
        if (WINDOW > 0 && end - WINDOW > from)                                 \
            from = end - WINDOW;                                               \
    }

// Likewise the rows that see a key.
#define SEE_ROWS(key)                                                          \
    i64 from = 0, past = rows;                                                 \
    FIND_ROWS(key)                                                             \
    const bool absent = (COUNTED && key >= keys) || (GROUPED && past == from); \
    if (absent)                                                                \
        past = from;                                                           \
    if (MASKED) {                                                              \
        if (key - CAUSAL > from)                                               \
            from = key - CAUSAL;                                               \
        if (WINDOW > 0 && key - CAUSAL + WINDOW < past)                        \
            past = key - CAUSAL + WINDOW;                                      \
    }
