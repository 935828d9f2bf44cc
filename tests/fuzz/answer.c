#include <heddle/call.h>
#include <heddle/verify.h>

#include "tests/fuzz/answer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/module.h"
#include "tests/info.h"

hd_argument argument_of(const hd_module *module, size_t i)
{
    hd_argument argument = HD_EMPTY(hd_argument);

    must(hd_module_argument(module, i, &argument), "an argument is there", "");
    return argument;
}

// Of groups that fit their rows, no larger than they were.
static void make_counts(const hd_argument *a, double *values)
{
    size_t groups = (size_t)a->extent[a->ndims - 1];
    double left = 0;

    for (size_t k = 0; k < a->elements; k++) {
        if (k % groups == 0)
            left = (double)a->grouped_rows;
        if (values[k] < 0)
            values[k] = 0;
        if (values[k] > left)
            values[k] = left;
        left -= values[k];
    }
}

// From one ahead of what is taken from to one behind it.
static void make_indices(const hd_argument *a, double *values)
{
    for (size_t k = 0; k < a->elements; k++)
        values[k] = (double)(((int64_t)values[k] + GENERATE_INPUT) %
                             (a->taken_extent + 2)) -
                    1;
}

// Of a dimension, from none to all of its indices.
static void make_lengths(const hd_argument *a, double *values)
{
    for (size_t k = 0; k < a->elements; k++) {
        double n = values[k] < 0 ? -values[k] : values[k];

        if (values[k] == -GENERATE_INPUT || n > (double)a->counted)
            n = (double)a->counted;
        values[k] = n;
    }
}

// What is behind a count may be anything, and reaches no result.
static void poison(const hd_argument *a, const int32_t *counts, size_t ncounts,
                   void *whole)
{
    double behind = a->dtype < HD_DTYPE_I64 ? (double)NAN : 101;
    size_t bytes = hd_dtype_size(a->dtype), row = 1;
    size_t cap = (size_t)a->extent[a->counted_dim];

    for (int d = a->counted_dim + 1; d < a->ndims; d++)
        row *= (size_t)a->extent[d];
    for (size_t k = 0; k < a->elements; k++)
        if (k / row % cap >= (size_t)counts[k / (a->elements / ncounts)])
            hd_dtype_store(a->dtype, &behind, 1, (char *)whole + k * bytes);
}

void give_sizes(hd_module *tensor, hd_module *host, uint64_t seed)
{
    uint8_t byte[HD_MAX_SIZES];

    choices_fill(seed, byte, sizeof byte);
    for (int i = 0; i < tensor->nsizes; i++) {
        hd_size *size = &tensor->size[i];

        size->now = seed == 0
                        ? size->high
                        : size->low + byte[i] % (size->high - size->low + 1);
        host->size[i].now = size->now;
    }
}

arrays draw_arrays(const hd_module *module, uint64_t seed)
{
    arrays arrays = {.n = module_info(module).narguments};

    must(arrays.n <= MAX_ARGUMENTS, "a program has few arguments", "");
    for (size_t i = 0; i < arrays.n; i++) {
        hd_argument a = argument_of(module, i);
        uint8_t *bytes = malloc(a.elements);
        double *values = malloc(a.elements * sizeof(double));

        choices_fill(seed + i * 1000003, bytes, a.elements);
        for (size_t k = 0; k < a.elements; k++)
            values[k] = bytes[k] % (2 * GENERATE_INPUT + 1) - GENERATE_INPUT;
        if (a.counted >= 0)
            make_lengths(&a, values);
        else if (a.grouped_rows >= 0)
            make_counts(&a, values);
        else if (a.taken_extent >= 0)
            make_indices(&a, values);
        arrays.whole[i] = malloc(a.elements * hd_dtype_size(a.dtype));
        hd_dtype_store(a.dtype, values, a.elements, arrays.whole[i]);
        free(values);
        free(bytes);
    }
    for (size_t i = 0; i < arrays.n; i++) {
        hd_argument a = argument_of(module, i);

        if (a.counts >= 0 && a.elements > 0 && a.role != HD_ROLE_OUT)
            poison(&a, arrays.whole[a.counts],
                   argument_of(module, (size_t)a.counts).elements,
                   arrays.whole[i]);
    }
    return arrays;
}

void free_arrays(arrays *arrays)
{
    for (size_t i = 0; i < arrays->n; i++)
        free(arrays->whole[i]);
}

bool has_reference(const hd_module *module)
{
    return hd_module_calls(module) == 0;
}

hd_reference *compute(const hd_module *module, const arrays *arrays)
{
    const void *whole[MAX_ARGUMENTS];
    hd_diag *diag = hd_diag_create();
    hd_reference *reference = NULL;
    hd_status status;

    for (size_t i = 0; i < arrays->n; i++)
        whole[i] = argument_of(module, i).role == HD_ROLE_OUT
                       ? NULL
                       : arrays->whole[i];
    status = hd_reference_create(module, whole, diag, &reference);
    must(status == HD_OK, "a program can be executed", hd_diag_text(diag));
    hd_diag_destroy(diag);
    return reference;
}

// Room has a bound below 0.
static bool is_equal(double want, double have, double bound)
{
    return want == have || bound < 0 || (isnan(want) && isnan(have));
}

void must_equal(const double *want, const double *have, const double *bound,
                const hd_argument *a, const hd_module *host, const char *where)
{
    for (size_t k = 0; k < a->local_elements; k++)
        if (!is_equal(want[k], have[k], bound[k])) {
            fprintf(stderr, "%s: %%%s element %zu is %g, not %g\n", where,
                    a->name, k, have[k], want[k]);
            must(false, "the answer is that of the dense program",
                 print_module(host));
        }
}

void must_be_close(const double *want, const double *have, const double *bound,
                   const hd_argument *a, const hd_module *host,
                   const char *where)
{
    for (size_t k = 0; k < a->local_elements; k++)
        if (isfinite(want[k]) && isfinite(bound[k]) && bound[k] >= 0 &&
            !(fabs(want[k] - have[k]) <= bound[k])) {
            fprintf(stderr, "%s: %%%s element %zu is %g, not %g within %g\n",
                    where, a->name, k, have[k], want[k], bound[k]);
            must(false, "the answer is near that of the dense program",
                 print_module(host));
        }
}

static void compare_argument(const hd_module *host, const hd_reference *want,
                             const hd_reference *have, size_t i, int rank,
                             const hd_argument *a, bool exact)
{
    double *values[4];

    for (int k = 0; k < 4; k++)
        values[k] = malloc(a->local_elements * sizeof(double));
    hd_reference_local(want, i, rank, values[0], values[2]);
    hd_reference_local(have, i, rank, values[1], values[3]);
    for (size_t k = 0; !exact && k < a->local_elements; k++)
        values[2][k] += values[2][k] < 0 ? 0 : values[3][k];
    (exact ? must_equal : must_be_close)(values[0], values[1], values[2], a,
                                         host, "interpreted");
    for (int k = 0; k < 4; k++)
        free(values[k]);
}

void must_agree(const hd_module *tensor, const hd_module *host,
                const hd_reference *want, const hd_reference *have, bool exact)
{
    for (size_t i = 0; i < module_info(tensor).narguments; i++) {
        hd_argument a = argument_of(tensor, i);

        if (a.role != HD_ROLE_OUT && a.role != HD_ROLE_INOUT)
            continue;
        for (int rank = 0; rank < module_info(tensor).ranks; rank++)
            compare_argument(host, want, have, i, rank, &a, exact);
    }
}
