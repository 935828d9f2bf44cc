// A rank that a launcher has started joins the others: what hd_launch does in
// the processes that it forks.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/group.h"

// What a rank tells of its host. Names may be the same on two of them; what the
// kernel drew when it started is not.
typedef struct hd_host {
    char name[64];
    char boot[40];
} hd_host;

static void describe_host(hd_host *out)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    memset(out, 0, sizeof(*out));
    if (gethostname(out->name, sizeof(out->name) - 1) != 0)
        snprintf(out->name, sizeof(out->name), "a host");
    if (file == NULL)
        return;
    if (fgets(out->boot, sizeof(out->boot), file) == NULL)
        out->boot[0] = '\0';
    fclose(file);
}

static hd_status report_hosts(hd_diag *diag, const hd_host *first, int rank,
                              const hd_host *other)
{
    return hd_fail(diag, HD_UNSUPPORTED,
                   "ranks on several hosts: rank 0 is on %.64s and rank %d on "
                   "%.64s, and a group's must be on one",
                   first->name, rank, other->name);
}

// Collective: launchers do not always say how many ranks a host has.
static hd_status check_hosts(const hd_oob *oob, hd_diag *diag)
{
    hd_host mine, *all = calloc((size_t)oob->size, sizeof(*all));
    hd_status status;

    if (all == NULL)
        return hd_fail(diag, HD_NO_MEMORY, "no memory for %d ranks", oob->size);
    describe_host(&mine);
    status = oob->allgather(oob->context, &mine, sizeof(mine), all);
    for (int i = 1; i < oob->size && status == HD_OK; i++) {
        if (memcmp(all[i].boot, all[0].boot, sizeof(all[i].boot)) != 0)
            status = report_hosts(diag, &all[0], i, &all[i]);
    }
    free(all);
    return status;
}

static hd_status connect_group(const hd_place *place, double timeout,
                               hd_diag *diag, hd_group **out)
{
    hd_boot *boot;
    hd_status status;

    // Known beforehand, it need not wait for hosts to find each other.
    if (place->local_size > 0 && place->local_size < place->size)
        return hd_fail(diag, HD_UNSUPPORTED,
                       "ranks on several hosts: %s has %d of the %d ranks on "
                       "this one, and a group's must be on one",
                       place->launcher, place->local_size, place->size);
    HD_TRY(hd_boot_connect(place, timeout, diag, &boot));
    status = place->size > 1 ? check_hosts(hd_boot_oob(boot), diag) : HD_OK;
    if (status == HD_OK)
        status = hd_group_create(hd_boot_oob(boot), timeout, diag, out);
    hd_boot_destroy(boot);
    return status;
}

static void tell_peers(hd_group *group, hd_status status, const hd_diag *diag,
                       size_t said)
{
    const char *why = hd_status_text(status);
    char text[HD_GROUP_TEXT];
    hd_message message;

    if (diag != NULL && hd_diag_message(diag, said, &message))
        why = message.text;
    snprintf(text, sizeof(text), "rank %d failed: %.*s", hd_group_rank(group),
             HD_GROUP_TEXT - 32, why);
    hd_group_fail(group, text);
}

hd_status hd_join(const hd_place *place, double timeout, hd_rank_fn *fn,
                  void *context, hd_diag *diag)
{
    size_t said = diag != NULL ? hd_diag_count(diag) : 0;
    hd_group *group;
    hd_status status;

    HD_TRY(connect_group(place, timeout, diag, &group));
    status = fn(context, group);
    if (status != HD_OK)
        tell_peers(group, status, diag, said);
    hd_group_destroy(group);
    return status;
}
