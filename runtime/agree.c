// What differs is searched for only where hashes say that something does. All
// ranks see the same hashes, and so take part in the same search.
#include "runtime/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/diag.h"
#include "ir/print.h"
#include "runtime/failure.h"

// ------------------------------------------------------------ differences

static hd_status print_program(const hd_module *module, hd_diag *diag,
                               hd_text *out)
{
    hd_module_print(module, out);
    return out->failed ? hd_fail(diag, HD_ERROR_NO_MEMORY,
                                 "no memory to print '%s'", module->name)
                       : HD_OK;
}

#define HD_BOUND_TEXT 256 // bytes of what is told of one rank

// By name as far as there is room, and by a number for all.
static void tell_fixed(const hd_binding *binding, hd_line *line)
{
    uint64_t hash = 0;
    int i = 0, n = 0;

    for (const hd_buffer *b = binding->module->buffers;
         b != NULL && binding->fixed != NULL; b = b->next) {
        if (b->role == HD_ROLE_TEMP)
            continue;
        if (binding->fixed[i++] == NULL)
            continue;
        hash = (hash + (uint64_t)i) * 1099511628211u;
        if (n++ < 4)
            hd_line_put(line, "%s%%%.24s", n == 1 ? ", fixed " : " ", b->name);
    }
    if (n > 4)
        hd_line_put(line, " and %d more (%x)", n - 4,
                    (unsigned)(hash ^ hash >> 32));
}

static void tell_options(const hd_agreement *agreement, char out[HD_BOUND_TEXT])
{
    const hd_binding *binding = agreement->binding;
    hd_line line = {out, HD_BOUND_TEXT};

    hd_line_put(&line, "%s%s", agreement->driver->name,
                binding->graph        ? ", graphs"
                : binding->capturable ? ", capturable"
                                      : "");
    for (int i = 0; i < binding->module->naxes; i++)
        hd_line_put(&line, "%s%s=%s", i == 0 ? ", " : ",",
                    binding->module->axis[i].name,
                    hd_transport_text(binding->transport[i]));
    tell_fixed(binding, &line);
}

hd_status hd_agree_bind(hd_agreement *agreement)
{
    hd_text *text = &agreement->text;
    hd_bound *bound = &agreement->bound;
    char options[HD_BOUND_TEXT] = "";

    HD_TRY(print_program(agreement->binding->module, agreement->exchange->diag,
                         text));
    tell_options(agreement, options);
    bound->program = XXH3_64bits(text->bytes, text->length);
    bound->options = XXH3_64bits(options, strlen(options));
    for (size_t i = 0; i < text->length; i++)
        bound->nlines += text->bytes[i] == '\n';
    return HD_OK;
}

// Where line `n` begins, from 0, or the text ends.
static size_t find_line(const hd_text *text, uint64_t n)
{
    size_t at = 0;

    for (; n > 0 && at < text->length; n--)
        at += strcspn(text->bytes + at, "\n") + 1;
    return at;
}

// Each rank's text of HD_BOUND_TEXT bytes; the caller frees it.
static hd_status gather_texts(const hd_exchange *exchange, const char *mine,
                              char **out)
{
    char *all = hd_exchange_room(exchange, HD_BOUND_TEXT);
    hd_status status;

    if (all == NULL)
        return HD_ERROR_NO_MEMORY;
    status = hd_exchange_allgather(exchange, mine, HD_BOUND_TEXT, all);
    if (status == HD_OK)
        *out = all;
    else
        free(all);
    return status;
}

// The first line that differs between rank 0 and `odd`, from 0: a binary search
// by hashes of the lines before. `all` has room for one of each rank.
static hd_status search_line(const hd_exchange *exchange, const hd_text *text,
                             int odd, hd_bound *all, uint64_t *out)
{
    uint64_t same = 0; // so many are the same, and before `past` one is not
    uint64_t past =
        all[0].nlines > all[odd].nlines ? all[0].nlines : all[odd].nlines;

    while (past - same > 1) {
        uint64_t middle = same + (past - same) / 2;
        hd_bound mine = {.program =
                             XXH3_64bits(text->bytes, find_line(text, middle))};

        HD_TRY(hd_exchange_allgather(exchange, &mine, sizeof mine, all));
        if (all[odd].program == all[0].program)
            same = middle;
        else
            past = middle;
    }
    *out = same;
    return HD_OK;
}

static hd_status tell_program(const hd_exchange *exchange, const hd_text *text,
                              int odd, hd_bound *all)
{
    char mine[HD_BOUND_TEXT] = "";
    char *lines = NULL;
    uint64_t n;
    size_t at;

    HD_TRY(search_line(exchange, text, odd, all, &n));
    at = find_line(text, n);
    snprintf(mine, sizeof mine, "%.*s", (int)strcspn(text->bytes + at, "\n"),
             text->bytes + at);
    HD_TRY(gather_texts(exchange, mine, &lines));
    hd_fail(exchange->diag, HD_ERROR_ARGUMENT,
            "rank %d binds another program than rank 0: line %llu of it is "
            "'%s', and '%s' on rank 0",
            odd, (unsigned long long)n + 1,
            lines + (size_t)odd * HD_BOUND_TEXT +
                strspn(lines + (size_t)odd * HD_BOUND_TEXT, " "),
            lines + strspn(lines, " "));
    free(lines);
    return HD_ERROR_ARGUMENT;
}

static hd_status tell_session_options(const hd_agreement *agreement, int odd)
{
    const hd_exchange *exchange = agreement->exchange;
    char mine[HD_BOUND_TEXT] = "";
    char *all = NULL;

    tell_options(agreement, mine);
    HD_TRY(gather_texts(exchange, mine, &all));
    hd_fail(exchange->diag, HD_ERROR_ARGUMENT,
            "rank %d binds with other options than rank 0: '%s', and '%s' on "
            "rank 0",
            odd, all + (size_t)odd * HD_BOUND_TEXT, all);
    free(all);
    return HD_ERROR_ARGUMENT;
}

// All ranks see the same hashes, and so agree on what is told; what differs is
// exchanged only then.
static hd_status tell_difference(const hd_agreement *agreement, hd_bound *all)
{
    const hd_exchange *exchange = agreement->exchange;
    int size = hd_group_size(exchange->group);

    for (int i = 1; i < size; i++) {
        if (all[i].program != all[0].program)
            return tell_program(exchange, &agreement->text, i, all);
        if (all[i].options != all[0].options)
            return tell_session_options(agreement, i);
    }
    return HD_OK;
}

// ------------------------------------------------------------- greetings

// What a rank tells each of the others when it has done what it can alone.
typedef struct greeting {
    hd_bound bound;
    hd_fit fit;
    hd_told told; // for that peer
    int32_t status;
    char text[HD_GROUP_TEXT]; // why that is not HD_OK
} greeting;

static hd_status exchange_greetings(const hd_agreement *agreement,
                                    const hd_exchange *exchange, greeting *mine,
                                    greeting *all)
{
    hd_group *group = exchange->group;
    int rank = hd_group_rank(group);

    for (int peer = 0; peer < hd_group_size(group); peer++) {
        if (peer == rank)
            continue;
        if (mine->status == HD_OK)
            agreement->driver->tell(agreement->device, peer, &mine->told);
        HD_TRY(hd_exchange_post(exchange, peer, mine, sizeof *mine, -1));
    }
    for (int peer = 0; peer < hd_group_size(group); peer++) {
        if (peer != rank)
            HD_TRY(hd_exchange_collect(exchange, peer, &all[peer], sizeof *all,
                                       NULL));
    }
    all[rank] = *mine;
    return HD_OK;
}

// A rank that has not come as far as to know its program can tell nothing of
// it.
static bool all_are_bound(const greeting *all, int size)
{
    bool known = true;

    for (int i = 0; i < size; i++)
        known = known && all[i].bound.nlines > 0;
    return known;
}

static hd_status compare_programs(const hd_agreement *agreement,
                                  const greeting *all, hd_bound *bounds)
{
    int size = hd_group_size(agreement->exchange->group);

    if (size < 2 || !all_are_bound(all, size))
        return HD_OK;
    for (int i = 0; i < size; i++)
        bounds[i] = all[i].bound;
    return tell_difference(agreement, bounds);
}

static hd_status find_failure(const hd_exchange *exchange, greeting *all)
{
    for (int i = 0; i < hd_group_size(exchange->group); i++) {
        all[i].text[HD_GROUP_TEXT - 1] = '\0';
        if (all[i].status != HD_OK)
            return hd_fail(exchange->diag, HD_ERROR_PEER, "rank %d failed: %s",
                           i, all[i].text);
    }
    return HD_OK;
}

// Whoever has failed has said why: that others have too is no news, but that
// they have other programs is.
static hd_status judge_greetings(const hd_agreement *agreement, greeting *all,
                                 hd_bound *bounds, hd_status status)
{
    HD_TRY(compare_programs(agreement, all, bounds));
    HD_TRY(status);
    return find_failure(agreement->exchange, all);
}

// What all ranks say together: whether any of them needs handles, and whether
// each two of them fit.
static hd_fit add_fits(const greeting *all, int size)
{
    hd_fit sum = {.fits = true};

    for (int i = 0; i < size; i++) {
        sum.fits = sum.fits && all[i].fit.fits;
        sum.fails = sum.fails || all[i].fit.fails;
        sum.digest += all[i].fit.digest;
    }
    return sum;
}

hd_status hd_agree_refuse(const hd_exchange *exchange, const char *why)
{
    hd_group *group = exchange->group;
    greeting mine = {.status = HD_ERROR_NO_MEMORY}, theirs;
    hd_status status = hd_fail(exchange->diag, HD_ERROR_NO_MEMORY, "%s", why);
    hd_exchange quiet = hd_exchange_confess(exchange, status, mine.text);
    hd_status met = HD_OK;

    for (int i = 0; i < hd_group_size(group) && met == HD_OK; i++)
        if (i != hd_group_rank(group))
            met = hd_exchange_post(&quiet, i, &mine, sizeof mine, -1);
    for (int i = 0; i < hd_group_size(group) && met == HD_OK; i++)
        if (i != hd_group_rank(group))
            met = hd_exchange_collect(&quiet, i, &theirs, sizeof theirs, NULL);
    return status;
}

static hd_status greet_with(hd_agreement *agreement, greeting *all,
                            hd_bound *bounds, hd_status status)
{
    const hd_exchange *exchange = agreement->exchange;
    int size = hd_group_size(exchange->group);
    greeting mine = {.bound = agreement->bound,
                     .fit = agreement->fit,
                     .status = (int32_t)status};
    hd_exchange quiet = hd_exchange_confess(exchange, status, mine.text);
    hd_status met = exchange_greetings(agreement, &quiet, &mine, all);

    if (met == HD_OK)
        status = judge_greetings(agreement, all, bounds, status);
    else if (status == HD_OK)
        status = met;
    for (int peer = 0; peer < size && status == HD_OK; peer++) {
        if (peer != hd_group_rank(exchange->group))
            agreement->driver->hear(agreement->device, peer, &all[peer].told);
    }
    agreement->fit = add_fits(all, size);
    return status;
}

hd_status hd_agree_greet(hd_agreement *agreement, hd_status status)
{
    const hd_exchange *exchange = agreement->exchange;
    size_t size = (size_t)hd_group_size(exchange->group);
    greeting *all = calloc(size, sizeof *all);
    hd_bound *bounds = calloc(size, sizeof *bounds);

    if (all != NULL && bounds != NULL)
        status = greet_with(agreement, all, bounds, status);
    else
        status = hd_agree_refuse(exchange, "no memory for the other ranks");
    free(bounds);
    free(all);
    return status;
}

// --------------------------------------------------------------- handles

// A frame brings one descriptor: that of the lease comes with a second one.
#define NO_HANDLE             \
    {                         \
        .fd = -1, .lease = -1 \
    }

static hd_status post_handles(const hd_agreement *agreement)
{
    const hd_exchange *exchange = agreement->exchange;
    hd_group *group = exchange->group;

    for (int peer = 0; peer < hd_group_size(group); peer++) {
        hd_handle handle = NO_HANDLE;

        if (peer == hd_group_rank(group))
            continue;
        HD_TRY(agreement->driver->export_handle(agreement->device, peer,
                                                exchange->diag, &handle));
        HD_TRY(hd_exchange_post(exchange, peer, handle.bytes,
                                sizeof handle.bytes, handle.fd));
        HD_TRY(hd_exchange_post(exchange, peer, handle.bytes, 0, handle.lease));
    }
    return HD_OK;
}

static void drop_handle(const hd_handle *handle)
{
    if (handle->fd >= 0)
        close(handle->fd);
    if (handle->lease >= 0)
        close(handle->lease);
}

static hd_status collect_handle(const hd_exchange *exchange, int peer,
                                hd_handle *out)
{
    hd_status status = hd_exchange_collect(exchange, peer, out->bytes,
                                           sizeof out->bytes, &out->fd);

    if (status == HD_OK)
        status =
            hd_exchange_collect(exchange, peer, out->bytes, 0, &out->lease);
    if (status != HD_OK)
        drop_handle(out);
    return status;
}

// Goes on after a handle that does not fit, so that all ranks get to the
// agreement; returns the first failure.
static hd_status collect_handles(hd_agreement *agreement)
{
    const hd_exchange *exchange = agreement->exchange;
    hd_group *group = exchange->group;
    hd_status status = HD_OK;

    for (int peer = 0; peer < hd_group_size(group); peer++) {
        hd_handle handle = NO_HANDLE;

        if (peer == hd_group_rank(group))
            continue;
        HD_TRY(collect_handle(exchange, peer, &handle));
        agreement->handle_exchanges++;
        if (status == HD_OK)
            status = agreement->driver->import_handle(agreement->device, peer,
                                                      &handle, exchange->diag);
        else
            drop_handle(&handle);
    }
    return status;
}

// All is agreed, so that a rank that fails all the same ends the group.
static hd_status prepare_agreed(const hd_agreement *agreement)
{
    const hd_exchange *exchange = agreement->exchange;
    hd_status status =
        agreement->driver->prepare(agreement->device, exchange->diag);

    if (status != HD_OK)
        hd_group_give_up(exchange->group, status, exchange->diag,
                         exchange->said);
    return status;
}

// With handles if some rank needs them.
static hd_status prepare_together(hd_agreement *agreement, bool fits)
{
    const hd_exchange *exchange = agreement->exchange;
    hd_status status;

    if (!fits) {
        HD_TRY(post_handles(agreement));
        status = collect_handles(agreement);
        HD_TRY(hd_exchange_agree(exchange, status));
    }
    status = agreement->driver->prepare(agreement->device, exchange->diag);
    return hd_exchange_agree(exchange, status);
}

hd_status hd_agree_prepare(hd_agreement *agreement)
{
    bool fits = agreement->fit.fits && agreement->fit.digest == 0;

    if (fits && !agreement->fit.fails)
        HD_TRY(prepare_agreed(agreement));
    else
        HD_TRY(prepare_together(agreement, fits));
    agreement->driver->settle(agreement->device);
    return HD_OK;
}

void hd_agree_end(hd_agreement *agreement)
{
    hd_text_free(&agreement->text);
}
