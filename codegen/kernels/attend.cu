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
