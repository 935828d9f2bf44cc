// Compares with the reference, each value against the bound of its own.
#include <heddle/verify.h>

#include "verify.h"

#include "file.h"

#include <inttypes.h>
#include <math.h>

static finding compare(double value, double expected, double bound)
{
    finding f = {.value = value, .expected = expected, .bound = bound};

    // The same infinity, or a NaN that has to be one, is no error.
    if (value == expected || (isnan(value) && isnan(expected)))
        return f;
    f.error = fabs(value - expected);
    if (isnan(f.error))
        f.error = INFINITY;
    f.ratio = f.error / bound;
    return f;
}

static void add_finding(verdict *verdict, const finding *f)
{
    // Anything would pass there, so nothing is known.
    if (isinf(f->bound) && f->error > 0) {
        verdict->unbounded++;
        return;
    }
    verdict->checked++;
    verdict->off += f->ratio > 1;
    if (verdict->checked == 1 || f->error > verdict->largest.error)
        verdict->largest = *f;
    if (verdict->checked == 1 || f->ratio > verdict->worst.ratio)
        verdict->worst = *f;
}

void verdict_values(verdict *verdict, hd_dtype dtype, const void *got,
                    const double *values, const double *bounds, size_t n,
                    const finding *place)
{
    enum { BATCH = 1024 };
    double batch[BATCH];

    for (size_t i = 0; i < n; i += BATCH) {
        size_t count = n - i < BATCH ? n - i : BATCH;

        hd_dtype_load(dtype, (const char *)got + i * hd_dtype_size(dtype),
                      count, batch);
        for (size_t j = 0; j < count; j++) {
            finding f = compare(batch[j], values[i + j], bounds[i + j]);

            if (bounds[i + j] < 0) // room that the rank has no element for
                continue;
            f.rank = place->rank;
            f.run = place->run;
            f.index = place->index + i + j;
            add_finding(verdict, &f);
        }
    }
}

void verdict_merge(verdict *verdict, const struct verdict *other)
{
    bool first = verdict->checked == 0;

    verdict->checked += other->checked;
    verdict->off += other->off;
    verdict->unbounded += other->unbounded;
    if (first || other->largest.error > verdict->largest.error)
        verdict->largest = other->largest;
    if (first || other->worst.ratio > verdict->worst.ratio)
        verdict->worst = other->worst;
}

// Values as `reference` has them, bounds as `rounding` has where it has any.
static hd_status compare_shard(const standard *standard,
                               const hd_reference *rounding, size_t i,
                               const finding *place, const void *local,
                               verdict *out)
{
    hd_argument argument = HD_EMPTY(hd_argument);
    size_t n, bytes;
    double *values;

    if (!hd_module_argument(standard->module, i, &argument))
        return HD_ERROR_ARGUMENT;
    n = argument.local_elements;
    bytes = 3 * n * sizeof *values;
    values = memory_pages(bytes, false);
    if (!values)
        return HD_ERROR_NO_MEMORY;
    hd_reference_local(rounding, i, place->rank, values, values + n);
    hd_reference_local(standard->reference, i, place->rank, values,
                       values + 2 * n);
    for (size_t k = n; k < 2 * n; k++)
        if (isinf(values[k]))
            values[k] = values[k + n];
    verdict_values(out, argument.dtype, local, values, values + n, n, place);
    memory_free(values, bytes);
    return HD_OK;
}

hd_status verdict_add(verdict *verdict, const standard *standard, size_t i,
                      int rank, int64_t run, const void *local, hd_diag *diag)
{
    finding place = {.rank = rank, .run = run};
    struct verdict found = {0}, rounded = {0};
    hd_status status =
        compare_shard(standard, standard->reference, i, &place, local, &found);

    if (status != HD_OK || found.off == 0 || !standard->own) {
        verdict_merge(verdict, &found);
        return status;
    }
    if (!*standard->own)
        status = hd_reference_create(standard->module, standard->whole, diag,
                                     standard->own);
    if (status == HD_OK)
        status =
            compare_shard(standard, *standard->own, i, &place, local, &rounded);
    verdict_merge(verdict, &rounded);
    return status;
}

// "rank 3 [0, 2, 5]": the index counts within the rank's shard.
static void print_place(const finding *f, const hd_argument *argument, FILE *to)
{
    int64_t index[HD_MAX_DIMS] = {0};
    size_t rest = f->index;
    char shown[SHAPE_TEXT];

    for (int i = argument->ndims - 1; i >= 0; i--) {
        index[i] = (int64_t)(rest % (size_t)argument->local[i]);
        rest /= (size_t)argument->local[i];
    }
    fprintf(to, "rank %d %s", f->rank,
            show_shape(argument->ndims, index, shown));
}

static void print_findings(const verdict *verdict, const hd_argument *argument,
                           FILE *to)
{
    const finding *largest = &verdict->largest, *worst = &verdict->worst;

    fprintf(to, "largest error %.3g in a value of %.4g (bound %.3g) at ",
            largest->error, largest->expected, largest->bound);
    print_place(largest, argument, to);
    fprintf(to, "; worst error/bound %.3g at ", worst->ratio);
    print_place(worst, argument, to);
    fputc('\n', to);
}

outcome verdict_report(const verdict *verdict, const hd_argument *argument,
                       FILE *to)
{
    const finding *worst = &verdict->worst;
    size_t all = verdict->checked + verdict->unbounded;

    fprintf(to, "%%%s: ", argument->name);
    if (verdict->off > 0)
        fprintf(to, "FAILED: ");
    else if (verdict->unbounded == 0)
        fprintf(to, "verified: ");
    else
        fprintf(to,
                "not verified: %zu of %zu values have no bound on their error, "
                "so that any would do%s",
                verdict->unbounded, all, verdict->checked > 0 ? "; " : "\n");
    if (verdict->checked > 0)
        print_findings(verdict, argument, to);
    if (verdict->off == 0)
        return FINE;
    fprintf(to,
            "%%%s: %zu of %zu values are off; the worst is %.9g and should be "
            "%.9g within %.3g, in run %" PRId64 "\n",
            argument->name, verdict->off, all, worst->value, worst->expected,
            worst->bound, worst->run);
    return FAILED;
}
