// Arithmetic on shapes. Products saturate rather than overflow, so that the
// verifier can compare them with the limit.
#include "ir/type.h"

#include <assert.h>
#include <string.h>

bool hd_dim_as_long(hd_dim a, hd_dim b)
{
    return a.extent == b.extent && a.size == b.size && a.times == b.times;
}

bool hd_dim_same(hd_dim a, hd_dim b)
{
    int axis_a = hd_dim_is_sharded(a) ? a.mark : HD_LOCAL;
    int axis_b = hd_dim_is_sharded(b) ? b.mark : HD_LOCAL;

    return hd_dim_as_long(a, b) && axis_a == axis_b;
}

int64_t hd_dim_block_length(hd_dim dim, int64_t block)
{
    int64_t size = hd_dim_block(dim), low = block * size;
    int64_t rest = dim.extent > low ? dim.extent - low : 0;

    return rest < size ? rest : size;
}

static int64_t multiply(int64_t a, int64_t b)
{
    int64_t product;

    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t hd_type_elements(const hd_type *type)
{
    int64_t elements = 1;

    for (int i = 0; i < type->ndims; i++)
        elements = multiply(elements, type->dim[i].extent);
    return elements;
}

int64_t hd_type_local_elements(const hd_type *type)
{
    int64_t elements = 1;

    for (int i = 0; i < type->ndims; i++)
        elements = multiply(elements, hd_dim_local(type->dim[i]));
    return elements;
}

int64_t hd_type_local_bytes(const hd_type *type)
{
    return multiply(hd_type_local_elements(type),
                    (int64_t)hd_dtype_size(type->dtype));
}

int hd_type_axis_dim(const hd_type *type, int axis)
{
    for (int i = 0; i < type->ndims; i++)
        if (hd_dim_is_sharded(type->dim[i]) && type->dim[i].mark == axis)
            return i;
    return -1;
}

int hd_type_stream_dim(const hd_type *type)
{
    for (int i = 0; i < type->ndims; i++)
        if (type->dim[i].mark == HD_STREAM)
            return i;
    return -1;
}

bool hd_type_same_dims(const hd_type *a, const hd_type *b)
{
    for (int i = 0; i < a->ndims && i < b->ndims; i++)
        if (!hd_dim_same(a->dim[i], b->dim[i]))
            return false;
    return a->ndims == b->ndims;
}

static bool is_sized(const hd_type *type)
{
    for (int i = 0; i < type->ndims; i++)
        if (hd_dim_is_sized(type->dim[i]))
            return true;
    return false;
}

// The next dimension from `dim` on down that may have fewer indices than there
// is room for, -1 if none is left, and how far these are apart.
static int find_uneven(const hd_type *type, int dim, int64_t *stride)
{
    for (; dim >= 0; dim--) {
        hd_dim d = type->dim[dim];

        if (hd_dim_is_uneven(d) || hd_dim_is_sized(d))
            break;
        *stride *= hd_dim_local(d);
    }
    return dim;
}

// Whether as many are behind each index of a size that nothing cuts: then all
// that one has in a run lies where the other has it.
static bool is_scaled(hd_dim a, int64_t here, hd_dim b, int64_t there,
                      uint32_t uncut)
{
    return hd_dim_is_sized(a) && a.size == b.size &&
           (uncut >> (a.size - 1) & 1) != 0 &&
           multiply(a.times, here) == multiply(b.times, there);
}

bool hd_view_same_terms(const hd_view_terms *a, const hd_view_terms *b)
{
    bool same = a->n == b->n && a->elements == b->elements;

    for (int i = 0; i < a->n && same; i++)
        same = hd_dim_same_terms(a->of[i], b->of[i]);
    return same;
}

bool hd_type_same_room(const hd_type *a, const hd_type *b, uint32_t uncut)
{
    int i = a->ndims, k = b->ndims;
    int64_t here = 1, there = 1;
    bool same;

    do {
        i = find_uneven(a, i - 1, &here);
        k = find_uneven(b, k - 1, &there);
        if (i < 0 || k < 0)
            return i < 0 && k < 0;
        same = (here == there && hd_dim_same(a->dim[i], b->dim[k])) ||
               is_scaled(a->dim[i], here, b->dim[k], there, uncut);
        here *= hd_dim_local(a->dim[i]);
        there *= hd_dim_local(b->dim[k]);
    } while (same);
    return false;
}

bool hd_type_may_rename(const hd_type *a, const hd_type *b, uint32_t uncut)
{
    return (!is_sized(a) && !is_sized(b)) || hd_type_same_room(a, b, uncut);
}

hd_type hd_type_unmarked(const hd_type *type)
{
    hd_type plain = *type;

    for (int d = 0; d < plain.ndims; d++)
        plain.dim[d] = hd_dim_unmarked(plain.dim[d]);
    return plain;
}

hd_type hd_type_without_ones(const hd_type *type, int place[HD_MAX_DIMS])
{
    hd_type rest = {.dtype = type->dtype};

    for (int d = 0; d < type->ndims; d++)
        if (!hd_dim_is_one(type->dim[d])) {
            place[rest.ndims] = d;
            rest.dim[rest.ndims++] = type->dim[d];
        }
    return rest;
}

void hd_dims_factor(const hd_dim *a, int most_a, const hd_dim *b, int most_b,
                    int *na, int *nb)
{
    int64_t n, m;

    *na = most_a > 0;
    *nb = most_b > 0;
    n = most_a > 0 ? a->extent : 1;
    m = most_b > 0 ? b->extent : 1;
    while (n != m) {
        assert(n < m ? *na < most_a : *nb < most_b);
        if (n < m)
            n *= a[(*na)++].extent;
        else
            m *= b[(*nb)++].extent;
    }
}

hd_type hd_type_without(const hd_type *type, int dim)
{
    hd_type result = *type;

    result.ndims--;
    memmove(result.dim + dim, type->dim + dim + 1,
            sizeof(hd_dim) * (size_t)(result.ndims - dim));
    return result;
}

hd_type hd_type_with(const hd_type *type, int dim, hd_dim added)
{
    hd_type result = *type;

    memmove(result.dim + dim + 1, type->dim + dim,
            sizeof(hd_dim) * (size_t)(type->ndims - dim));
    result.dim[dim] = added;
    result.ndims++;
    return result;
}

hd_type hd_type_moved(const hd_type *type, int from, int to)
{
    hd_type rest = hd_type_without(type, from);

    return hd_type_with(&rest, to, type->dim[from]);
}
