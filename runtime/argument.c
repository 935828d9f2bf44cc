// What was accepted once is not looked at again, so that a run that repeats the
// last one's addresses costs a comparison each.
#include "runtime/argument.h"

#include <stdlib.h>
#include <string.h>

#include "base/diag.h"

struct hd_given {
    const char *name; // borrowed
    size_t bytes;     // of a shard; 0 for an event
    bool written;
    const char *at; // in the last run that was looked at
};

hd_status hd_arguments_list(const hd_module *module, hd_diag *diag,
                            hd_arguments *out)
{
    size_t n = (size_t)module->nbuffers + 1;

    out->module = module;
    out->given = calloc(n, sizeof *out->given);
    out->order = calloc(2 * n, sizeof *out->order);
    if (out->given == NULL || out->order == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for the arguments");
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        if (b->role == HD_ROLE_TEMP)
            continue;
        out->order[out->n] = &out->given[out->n];
        out->given[out->n++] =
            (hd_given){.name = b->name,
                       .bytes = (size_t)hd_type_local_bytes(&b->type),
                       .written = b->role != HD_ROLE_IN};
    }
    return HD_OK;
}

void hd_arguments_free(hd_arguments *arguments)
{
    free(arguments->given);
    free(arguments->order);
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

        if (here->bytes == 0)
            continue;
        if (before != NULL && here->at < before->at + before->bytes)
            return hd_fail(diag, HD_ERROR_ARGUMENT,
                           "arguments %%%s and %%%s overlap, and '%s' writes "
                           "%%%s",
                           before->name, here->name, arguments->module->name,
                           here->written ? here->name : before->name);
        if (reach == NULL || here->at + here->bytes > reach->at + reach->bytes)
            reach = here;
        if (here->written &&
            (written == NULL ||
             here->at + here->bytes > written->at + written->bytes))
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
        arguments->given[i].at = address[i];
    }
    return check_overlaps(arguments, diag);
}

hd_status hd_arguments_check(hd_arguments *arguments, void *const *address,
                             size_t n, hd_diag *diag)
{
    hd_status status;

    if (n != arguments->n)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "'%s' takes %zu arguments, not %zu",
                       arguments->module->name, arguments->n, n);
    if (address == NULL && n > 0)
        return hd_fail(diag, HD_ERROR_ARGUMENT, "the arguments are NULL");
    // What was accepted once need not be looked at again.
    if (are_those_of_last_run(arguments, address))
        return HD_OK;
    status = look_at(arguments, address, diag);
    // Nothing is taken for a run's argument at NULL: the next is looked at.
    if (status != HD_OK)
        arguments->given[0].at = NULL;
    return status;
}
