// Open addressing: a number lies at the first free slot from its hash on.
#include "check/set.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum { FIRST_ROOM = 64 };

static int64_t find(const hd_set *set, uint64_t number)
{
    uint64_t mask = (uint64_t)set->room - 1;
    uint64_t at = number * 0x9e3779b97f4a7c15u;

    for (at ^= at >> 32; set->slot[at & mask] != 0; at++)
        if (set->slot[at & mask] == number + 1)
            break;
    return (int64_t)(at & mask);
}

// No more than half of the slots are taken.
static hd_status make_room(hd_set *set, hd_diag *diag)
{
    hd_set larger = {.room = set->room > 0 ? 2 * set->room : FIRST_ROOM};

    if (2 * (set->n + 1) <= set->room)
        return HD_OK;
    HD_TRY(hd_clear_array(larger.room, sizeof *larger.slot, diag,
                          (void **)&larger.slot));
    for (int64_t i = 0; i < set->room; i++)
        if (set->slot[i] != 0)
            larger.slot[find(&larger, set->slot[i] - 1)] = set->slot[i];
    larger.n = set->n;
    free(set->slot);
    *set = larger;
    return HD_OK;
}

hd_status hd_set_add(hd_set *set, uint64_t number, hd_diag *diag)
{
    int64_t at;

    HD_TRY(make_room(set, diag));
    at = find(set, number);
    set->n += set->slot[at] == 0;
    set->slot[at] = number + 1;
    return HD_OK;
}

bool hd_set_has(const hd_set *set, uint64_t number)
{
    return set->n > 0 && set->slot[find(set, number)] != 0;
}

void hd_set_clear(hd_set *set)
{
    if (set->n > 0)
        memset(set->slot, 0, sizeof *set->slot * (size_t)set->room);
    set->n = 0;
}

void hd_set_free(hd_set *set)
{
    free(set->slot);
    *set = (hd_set){0};
}
