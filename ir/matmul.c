// How the dimensions of a matmul's operands pair up.
#include <stdio.h>

#include "ir/space.h"
#include "ir/verify.h"

static bool complain(char why[160], const char *format, long long x,
                     long long y) __attribute__((format(printf, 2, 0)));

static bool complain(char why[160], const char *format, long long x,
                     long long y)
{
    snprintf(why, 160, format, x, y);
    return false;
}

static bool check_inner(const hd_type *a, const hd_type *b, bool ta, bool tb,
                        char why[160])
{
    hd_dim ka = a->dim[a->ndims - (ta ? 2 : 1)];
    hd_dim kb = b->dim[b->ndims - (tb ? 1 : 2)];

    if (!hd_dim_as_long(ka, kb) &&
        (hd_dim_is_counted(ka) || hd_dim_is_counted(kb)))
        return complain(why,
                        "the operands contract over ranges that are not "
                        "known to be as long as each other",
                        0, 0);
    if (!hd_dim_as_long(ka, kb) && (hd_dim_is_sized(ka) || hd_dim_is_sized(kb)))
        return complain(why,
                        "the operands contract over dimensions that are not "
                        "as long as each other in every run",
                        0, 0);
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

static bool lies_along(hd_dim dim, const hd_type *in, int own)
{
    return own == HD_REPEATED || hd_dim_same(dim, in->dim[own]);
}

bool hd_matmul_fits(const hd_type *out, const hd_type *a, const hd_type *b,
                    bool ta, bool tb, char why[160])
{
    int nbatch = b->ndims - 2;
    bool crossed = nbatch > 0 && out->ndims == a->ndims + nbatch;
    int rows = crossed ? 0 : nbatch; // a's dimensions before its rows
    hd_space space;
    int misfit = 0; // dimension of the result
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
    hd_space_map_product(out->ndims, a->ndims, b->ndims, ta, tb, false, &space);
    while (misfit < out->ndims &&
           lies_along(out->dim[misfit], a, space.dim[1][misfit]) &&
           lies_along(out->dim[misfit], b, space.dim[2][misfit]))
        misfit++;
    if (misfit < nbatch)
        return complain(why,
                        "dimension %lld of the second operand differs in "
                        "extent or placement from dimension %lld of the first "
                        "or of the result, with which it pairs",
                        misfit, misfit);
    n = b->dim[space.dim[2][out->ndims - 1]];
    if (!hd_dim_same(out->dim[out->ndims - 1], n) &&
        (hd_dim_is_counted(n) || hd_dim_is_counted(out->dim[out->ndims - 1])))
        return complain(why,
                        "the columns of the result and of the product are "
                        "not known to be as many",
                        0, 0);
    if (!hd_dim_same(out->dim[out->ndims - 1], n))
        return complain(why,
                        "the result has %lld columns, the product %lld "
                        "(or they are placed differently)",
                        (long long)out->dim[out->ndims - 1].extent,
                        (long long)n.extent);
    if (misfit < out->ndims)
        return complain(why,
                        "the rows of the result and of the first operand "
                        "differ in extent or placement",
                        0, 0);
    return true;
}

// ----------------------------------------------------------------- groups

// What two views of a grouped product have alike.
typedef struct pairing {
    const char *what;
    hd_dim x, y;
} pairing;

static bool agree(const pairing *p, char why[160])
{
    bool counted = hd_dim_is_counted(p->x) || hd_dim_is_counted(p->y);

    if (p->x.extent != p->y.extent && !counted)
        snprintf(why, 160, "the %s differ: %lld and %lld", p->what,
                 (long long)p->x.extent, (long long)p->y.extent);
    else if (!hd_dim_same(p->x, p->y))
        snprintf(why, 160, "the %s differ in %s", p->what,
                 counted ? "extent" : "placement");
    else if (hd_dim_is_sharded(p->x))
        snprintf(why, 160,
                 "the %s are sharded; a grouped product has them on each rank: "
                 "set them to local ones first",
                 p->what);
    else
        return true;
    return false;
}

// `rows` is the other view of rows, `matrices` that of a matrix a group.
static bool check_groups(const hd_type *a, const hd_type *rows,
                         const hd_type *matrices, const hd_type *counts,
                         bool ta, bool tb, char why[160])
{
    const pairing pairs[] = {
        {"rows", a->dim[0], rows->dim[0]},
        {ta ? "columns of the first operand and rows of the matrices"
            : "contracted dimensions",
         a->dim[1], matrices->dim[tb ? 2 : 1]},
        {"counts and the matrices", counts->dim[0], matrices->dim[0]},
    };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!agree(&pairs[i], why))
            return false;
    return hd_dim_same(rows->dim[1], matrices->dim[tb ? 1 : 2]) ||
           complain(why, "the columns differ in extent or placement", 0, 0);
}

bool hd_groups_fit(const hd_type *out, const hd_type *a, const hd_type *b,
                   const hd_type *counts, bool ta, bool tb, char why[160])
{
    const hd_type *matrices = ta ? out : b, *rows = ta ? b : out;

    if (ta && tb)
        return complain(why, "with groups and ta there is no tb", 0, 0);
    if (a->ndims != 2 || rows->ndims != 2 || matrices->ndims != 3)
        return complain(why,
                        ta ? "with groups and ta it is of [rows, k] by "
                             "[rows, n] into [e, k, n]"
                           : "with groups it is of [rows, k] by [e, k, n], or "
                             "[e, n, k] with tb, into [rows, n]",
                        0, 0);
    return check_groups(a, rows, matrices, counts, ta, tb, why);
}
