// What was accepted once is not looked at again, so that a run that repeats the
// last one's addresses costs a comparison each.
#include "runtime/argument.h"

#include <stdlib.h>
#include <string.h>

#include "base/diag.h"

struct hd_given {
    const hd_buffer *buffer; // borrowed
    const char *name;        // its
    size_t bytes;            // of a shard; 0 for an event
    bool written;
    // In the last run that was looked at, and how far it reaches from there.
    const char *at;
    size_t reach; // 0 if it is on the host
};

hd_status hd_arguments_list(const hd_module *module, hd_diag *diag,
                            hd_arguments *out)
{
    size_t n = (size_t)module->nbuffers + 1;

    out->module = module;
    out->given = calloc(n, sizeof *out->given);
    out->order = calloc(2 * n, sizeof *out->order);
    out->passing = calloc(n, sizeof *out->passing);
    if (out->given == NULL || out->order == NULL || out->passing == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for the arguments");
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        if (b->role == HD_ROLE_TEMP)
            continue;
        out->order[out->n] = &out->given[out->n];
        out->given[out->n++] =
            (hd_given){.buffer = b,
                       .name = b->name,
                       .bytes = (size_t)hd_type_local_bytes(&b->type),
                       .written = b->role != HD_ROLE_IN};
    }
    return HD_OK;
}

hd_status hd_arguments_fix(hd_arguments *arguments, const hd_module *module,
                           void *const *fixed, size_t n, hd_diag *diag)
{
    size_t all = 0;

    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        all += b->role != HD_ROLE_TEMP;
    if (n == 0)
        return HD_OK;
    if (n != all)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "'%s' takes %zu arguments, and 'fixed' has %zu",
                       module->name, all, n);
    if (fixed == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT, "'fixed' is NULL");
    arguments->fixed = calloc(n, sizeof *arguments->fixed);
    if (arguments->fixed == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for the arguments");
    memcpy(arguments->fixed, fixed, n * sizeof *fixed);
    return HD_OK;
}

void hd_arguments_free(hd_arguments *arguments)
{
    free(arguments->given);
    free(arguments->fixed);
    free(arguments->order);
    free(arguments->passing);
}

static bool are_those_of_last_run(const hd_arguments *arguments,
                                  void *const *address)
{
    for (size_t i = 0; i < arguments->n; i++) {
        if (address[i] == NULL || arguments->given[i].at != address[i])
            return false;
    }
    return true;
}

// from[0 .. middle) and from[middle .. end) become to[0 .. end).
static void merge(const hd_given **from, size_t middle, size_t end,
                  const hd_given **to)
{
    size_t a = 0, b = middle;

    for (size_t i = 0; i < end; i++)
        to[i] = b == end || (a < middle && from[a]->at <= from[b]->at)
                    ? from[a++]
                    : from[b++];
}

// A run asks for no memory, as the C library's sort may.
static void sort_by_address(hd_arguments *arguments)
{
    size_t n = arguments->n;
    const hd_given **from = arguments->order, **to = from + n;

    for (size_t run = 1; run < n; run *= 2) {
        const hd_given **sorted = to;

        for (size_t i = 0; i < n; i += 2 * run)
            merge(from + i, run < n - i ? run : n - i,
                  2 * run < n - i ? 2 * run : n - i, to + i);
        to = from;
        from = sorted;
    }
    if (from != arguments->order)
        memcpy(arguments->order, from, n * sizeof *from);
}

// What a run writes overlaps no other argument. In order of addresses it is
// enough to know how far those before reach.
static hd_status check_overlaps(hd_arguments *arguments, hd_diag *diag)
{
    const hd_given *reach = NULL, *written = NULL;

    sort_by_address(arguments);
    for (size_t i = 0; i < arguments->n; i++) {
        const hd_given *here = arguments->order[i];
        const hd_given *before = here->written ? reach : written;

        if (here->reach == 0)
            continue;
        if (before != NULL && here->at < before->at + before->reach)
            return hd_fail(diag, HD_ERROR_ARGUMENT,
                           "arguments %%%s and %%%s overlap, and '%s' writes "
                           "%%%s",
                           before->name, here->name, arguments->module->name,
                           here->written ? here->name : before->name);
        if (reach == NULL || here->at + here->reach > reach->at + reach->reach)
            reach = here;
        if (here->written &&
            (written == NULL ||
             here->at + here->reach > written->at + written->reach))
            written = here;
    }
    return HD_OK;
}

static hd_status look_at(hd_arguments *arguments, void *const *address,
                         hd_diag *diag)
{
    for (size_t i = 0; i < arguments->n; i++) {
        if (address[i] == NULL)
            return hd_fail(diag, HD_ERROR_ARGUMENT, "argument %%%s is NULL",
                           arguments->given[i].name);
        if (arguments->fixed != NULL && arguments->fixed[i] != NULL &&
            arguments->fixed[i] != address[i])
            return hd_fail(diag, HD_ERROR_ARGUMENT,
                           "argument %%%s is at %p in this run, and the "
                           "session has it fixed at %p",
                           arguments->given[i].name, address[i],
                           arguments->fixed[i]);
        arguments->given[i].at = address[i];
        arguments->given[i].reach = arguments->given[i].bytes;
    }
    return HD_OK;
}

// ------------------------------------------------ what is passed otherwise

static hd_status pass_on_host(const hd_arguments *arguments, hd_given *given,
                              hd_diag *diag, hd_passing *out)
{
    const hd_type *type = &given->buffer->type;

    if (type->dtype == HD_DTYPE_EVENT)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "argument %%%s is an event: it has no value on the host",
                       given->name);
    if (given->written)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "argument %%%s cannot be on the host: '%s' writes it",
                       given->name, arguments->module->name);
    if (hd_type_local_elements(type) != 1)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "argument %%%s cannot be on the host: it has %lld "
                       "elements on this rank, not one",
                       given->name, (long long)hd_type_local_elements(type));
    out->on_host = true;
    given->reach = 0;
    return HD_OK;
}

// Dimensions that have more than one index here, by their strides.
static int sort_strides(const hd_type *type, const int64_t *stride,
                        int order[HD_MAX_DIMS])
{
    int n = 0;

    for (int d = 0; d < type->ndims; d++) {
        int at = n;

        if (hd_dim_local(type->dim[d]) <= 1)
            continue;
        for (; at > 0 && stride[order[at - 1]] > stride[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
        n++;
    }
    return n;
}

static hd_status refuse_stride(const hd_given *given, int d, int64_t stride,
                               const char *why, hd_diag *diag)
{
    return hd_fail(diag, HD_ERROR_ARGUMENT,
                   "argument %%%s has stride %lld in dimension %d: %s",
                   given->name, (long long)stride, d, why);
}

// Elements from the first to the last, and one. Each dimension steps over all
// that those of smaller strides reach, so that no two elements meet.
static hd_status measure_reach(const hd_given *given, const int64_t *stride,
                               hd_diag *diag, int64_t *out)
{
    const hd_type *type = &given->buffer->type;
    int order[HD_MAX_DIMS];
    int n = sort_strides(type, stride, order);
    int64_t reach = 1;

    for (int i = 0; i < n; i++) {
        int d = order[i];
        int64_t steps = hd_dim_local(type->dim[d]) - 1;

        if (stride[d] <= 0)
            return refuse_stride(given, d, stride[d], "it must be above 0",
                                 diag);
        if (stride[d] < reach)
            return refuse_stride(given, d, stride[d],
                                 "elements would lie over each other", diag);
        if (stride[d] > (HD_MAX_ELEMENTS - reach) / steps)
            return refuse_stride(given, d, stride[d],
                                 "it would reach beyond all memory", diag);
        reach += steps * stride[d];
    }
    *out = reach;
    return HD_OK;
}

static bool is_dense(const hd_type *type, const int64_t *stride)
{
    int64_t dense = 1;

    for (int d = type->ndims - 1; d >= 0; d--) {
        int64_t extent = hd_dim_local(type->dim[d]);

        if (extent > 1 && stride[d] != dense)
            return false;
        dense *= extent;
    }
    return true;
}

static hd_status pass_strided(hd_given *given, const int64_t *stride,
                              hd_diag *diag, hd_passing *out)
{
    const hd_type *type = &given->buffer->type;
    int64_t reach = 0;

    if (type->dtype == HD_DTYPE_EVENT)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "argument %%%s is an event: it has no strides",
                       given->name);
    HD_TRY(measure_reach(given, stride, diag, &reach));
    if (is_dense(type, stride))
        return HD_OK;
    out->strided = true;
    for (int d = 0; d < type->ndims; d++)
        out->stride[d] = stride[d];
    given->reach = (size_t)reach * hd_dtype_size(type->dtype);
    return HD_OK;
}

// True if any is passed otherwise.
static hd_status look_closely(hd_arguments *arguments,
                              const hd_run_options *options, hd_diag *diag,
                              bool *any)
{
    const int64_t *const *strides = options->strides;

    *any = false;
    for (size_t i = 0; i < arguments->n; i++) {
        hd_passing *passing = &arguments->passing[i];
        hd_given *given = &arguments->given[i];

        *passing = (hd_passing){0};
        if (options->on_host != NULL && options->on_host[i])
            HD_TRY(pass_on_host(arguments, given, diag, passing));
        else if (strides != NULL && strides[i] != NULL)
            HD_TRY(pass_strided(given, strides[i], diag, passing));
        if ((passing->on_host || passing->strided) &&
            arguments->fixed != NULL && arguments->fixed[i] != NULL)
            return hd_fail(diag, HD_ERROR_ARGUMENT,
                           "argument %%%s is fixed: each run has it there, "
                           "dense",
                           given->name);
        *any |= passing->on_host || passing->strided;
    }
    return HD_OK;
}

static hd_status check(hd_arguments *arguments, void *const *address,
                       const hd_run_options *options, hd_diag *diag, bool *any)
{
    HD_TRY(look_at(arguments, address, diag));
    if (options->on_host != NULL || options->strides != NULL)
        HD_TRY(look_closely(arguments, options, diag, any));
    return check_overlaps(arguments, diag);
}

hd_status hd_arguments_check(hd_arguments *arguments, void *const *address,
                             size_t n, const hd_run_options *options,
                             hd_diag *diag, const hd_passing **out)
{
    bool any = false;
    hd_status status;

    *out = NULL;
    if (n != arguments->n)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "'%s' takes %zu arguments, not %zu",
                       arguments->module->name, arguments->n, n);
    if (address == NULL && n > 0)
        return hd_fail(diag, HD_ERROR_ARGUMENT, "the arguments are NULL");
    // What was accepted once need not be looked at again.
    if (options->on_host == NULL && options->strides == NULL &&
        are_those_of_last_run(arguments, address))
        return HD_OK;
    status = check(arguments, address, options, diag, &any);
    // Nothing is taken for a run's argument at NULL: the next is looked at.
    if (status != HD_OK || any)
        arguments->given[0].at = NULL;
    if (any)
        *out = arguments->passing;
    return status;
}
