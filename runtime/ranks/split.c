// Groups of a part of a group's ranks. The ranks of each find one another as
// those of any group do, by an allgather out of band: here by the group that is
// split. All of it is one collective call of that group, so that its ranks
// agree on how it ends however many messages each part has exchanged.
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/ranks/mesh.h"

typedef struct choice {
    int32_t color, key;
    int32_t refused; // this rank's call is wrong
} choice;

// The ranks of one colour in their new order.
typedef struct part {
    const hd_exchange *exchange;
    int *member; // owned: ranks of the group that is split
    int size, rank;
} part;

static hd_status gather_part(void *context, const void *mine, size_t bytes,
                             void *all)
{
    const part *part = context;

    for (int i = 0; i < part->size; i++) {
        if (i != part->rank)
            HD_TRY(hd_exchange_post(part->exchange, part->member[i], mine,
                                    bytes, -1));
    }
    for (int i = 0; i < part->size; i++) {
        char *slot = (char *)all + (size_t)i * bytes;

        if (i == part->rank)
            memcpy(slot, mine, bytes);
        else
            HD_TRY(hd_exchange_collect(part->exchange, part->member[i], slot,
                                       bytes, NULL));
    }
    return HD_OK;
}

// A member that does not come into its part says so by the group that is split,
// as all do that are through with this, or fails it.
static hd_status hear_of(void *context, int peer, hd_diag *diag)
{
    const part *part = context;
    hd_group *group = part->exchange->group;
    char text[HD_GROUP_TEXT];
    hd_status status;

    if (hd_group_failed(group)) {
        status = hd_group_failure(group, text);
        return hd_fail(diag, status, "%s", text);
    }
    return hd_exchange_has_mail(part->exchange, part->member[peer])
               ? hd_fail(diag, HD_ERROR_PEER,
                         "rank %d has not come into its part of the group",
                         part->member[peer])
               : HD_OK;
}

// In order of keys, of equal ones in that of ranks.
static void list_members(const choice *all, int size, int rank, part *part)
{
    for (int peer = 0; peer < size; peer++) {
        int at = part->size;

        if (all[peer].color != all[rank].color)
            continue;
        for (; at > 0 && all[part->member[at - 1]].key > all[peer].key; at--)
            part->member[at] = part->member[at - 1];
        part->member[at] = peer;
        part->size++;
    }
    while (part->member[part->rank] != rank)
        part->rank++;
}

// What is wrong with one rank's call the others hear of here.
static hd_status check_choices(const choice *all, int size, int rank,
                               hd_diag *diag)
{
    if (all[rank].refused)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "hd_group_split: 'out' is NULL");
    for (int peer = 0; peer < size; peer++) {
        if (all[peer].refused)
            return hd_fail(diag, HD_ERROR_PEER,
                           "rank %d failed: hd_group_split: 'out' is NULL",
                           peer);
    }
    return HD_OK;
}

static hd_status create_part(hd_group *group, const choice *all, part *part,
                             hd_group **out)
{
    hd_oob oob = {
        .size = sizeof oob, .context = part, .allgather = gather_part};
    hd_hearsay hearsay = {part, hear_of};
    hd_diag *diag = part->exchange->diag;

    if (all[group->rank].color < 0)
        return HD_OK;
    list_members(all, group->size, group->rank, part);
    oob.rank = part->rank;
    oob.nranks = part->size;
    return hd_group_connect(&oob, group->timeout, &hearsay, diag, out);
}

hd_status hd_group_split(hd_group *group, int color, int key, hd_diag *diag,
                         hd_group **out)
{
    hd_exchange exchange;
    choice mine = {color, key, out == NULL}, *all;
    part part = {.exchange = &exchange};
    hd_group *made = NULL;
    hd_status status;

    HD_REQUIRE(diag, group);
    HD_TRY(hd_group_check(group, diag));
    exchange = hd_exchange_begin(group, HD_CALL_SPLIT, group->timeout, diag);
    all = calloc((size_t)group->size, sizeof *all);
    part.member = calloc((size_t)group->size, sizeof *part.member);
    if (all == NULL || part.member == NULL) {
        status = hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                         group->size);
        goto done;
    }
    status = hd_exchange_allgather(&exchange, &mine, sizeof mine, all);
    if (status == HD_OK)
        status = check_choices(all, group->size, group->rank, diag);
    if (status != HD_OK)
        goto done;
    status = create_part(group, all, &part, &made);
    if (status != HD_ERROR_NO_MEMORY)
        status = hd_exchange_agree(&exchange, status);

done:
    // The others may wait for messages that never come.
    if (status == HD_ERROR_NO_MEMORY)
        hd_group_run_out(group);
    if (status != HD_OK)
        hd_group_destroy(made);
    else
        *out = made;
    free(part.member);
    free(all);
    return status;
}
