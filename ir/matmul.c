// How the dimensions of a matmul's operands pair up.
#include <stdio.h>

#include "ir/verify.h"

static bool complain(char why[160], const char *format, long long x,
                     long long y) __attribute__((format(printf, 2, 0)));

static bool complain(char why[160], const char *format, long long x,
                     long long y)
{
    snprintf(why, 160, format, x, y);
    return false;
}

// Dimensions [0, n) of `a` from `at` on are those of `b`.
static bool same_dims(const hd_type *a, int at, const hd_type *b, int bt, int n)
{
    for (int i = 0; i < n; i++)
        if (!hd_dim_same(a->dim[at + i], b->dim[bt + i]))
            return false;
    return true;
}

static bool check_inner(const hd_type *a, const hd_type *b, bool ta, bool tb,
                        char why[160])
{
    hd_dim ka = a->dim[a->ndims - (ta ? 2 : 1)];
    hd_dim kb = b->dim[b->ndims - (tb ? 1 : 2)];

    if (ka.extent != kb.extent)
        return complain(why,
                        "the first operand contracts over %lld, the "
                        "second over %lld",
                        (long long)ka.extent, (long long)kb.extent);
    if (hd_dim_is_sharded(ka) || hd_dim_is_sharded(kb))
        return complain(why,
                        "the contracted dimension of %lld is sharded; "
                        "set it to a local one first",
                        (long long)ka.extent, 0);
    return true;
}

bool hd_matmul_result(const hd_type *a, const hd_type *b, bool ta, bool tb,
                      bool crossed, hd_type *out)
{
    int nbatch = crossed ? b->ndims - 2 : 0;

    if (a->ndims < (ta ? 2 : 1) || b->ndims < 2 ||
        nbatch + a->ndims > HD_MAX_DIMS)
        return false;
    *out = (hd_type){.dtype = a->dtype, .ndims = nbatch + a->ndims};
    for (int i = 0; i < nbatch; i++)
        out->dim[i] = b->dim[i];
    for (int i = 0; i < a->ndims - 1; i++)
        out->dim[nbatch + i] = a->dim[i];
    if (ta)
        out->dim[out->ndims - 2] = a->dim[a->ndims - 1];
    out->dim[out->ndims - 1] = b->dim[b->ndims - (tb ? 2 : 1)];
    return true;
}

bool hd_matmul_fits(const hd_type *out, const hd_type *a, const hd_type *b,
                    bool ta, bool tb, char why[160])
{
    int nbatch = b->ndims - 2;
    bool crossed = nbatch > 0 && out->ndims == a->ndims + nbatch;
    int first = 0; // dimension of the batch that does not pair
    int lead = crossed ? nbatch : 0; // where a's dimensions begin in out
    int rows = nbatch - lead;        // a's dimensions ahead of its rows
    hd_dim n;

    if (a->ndims < (ta ? 2 : 1) || b->ndims < 2)
        return complain(why,
                        "the operands have %lld and %lld dimensions; a "
                        "matrix has two",
                        a->ndims, b->ndims);
    if (!check_inner(a, b, ta, tb, why))
        return false;
    if (out->ndims != a->ndims && out->ndims != a->ndims + nbatch)
        return complain(why,
                        "the result has %lld dimensions, the first "
                        "operand %lld",
                        out->ndims, a->ndims);
    if (!crossed && a->ndims - (ta ? 2 : 1) < nbatch)
        return complain(why,
                        "the second operand has %lld leading dimensions, "
                        "more than the first can pair",
                        nbatch, 0);
    if (ta && a->ndims != 2 + rows)
        return complain(why,
                        "with ta the first operand has two dimensions "
                        "after the batch, not %lld",
                        a->ndims - nbatch, 0);
    while (first < nbatch && same_dims(out, first, b, first, 1) &&
           (crossed || same_dims(a, first, b, first, 1)))
        first++;
    if (first < nbatch)
        return complain(why,
                        "dimension %lld of the second operand differs in "
                        "extent or placement from dimension %lld of the first "
                        "or of the result, with which it pairs",
                        first, first);
    n = b->dim[b->ndims - (tb ? 2 : 1)];
    if (!hd_dim_same(out->dim[out->ndims - 1], n))
        return complain(why,
                        "the result has %lld columns, the product %lld "
                        "(or they are placed differently)",
                        (long long)out->dim[out->ndims - 1].extent,
                        (long long)n.extent);
    if (ta ? !hd_dim_same(out->dim[out->ndims - 2], a->dim[a->ndims - 1])
           : !same_dims(out, lead + rows, a, rows, a->ndims - 1 - rows))
        return complain(why,
                        "the rows of the result and of the first operand "
                        "differ in extent or placement",
                        0, 0);
    return true;
}
