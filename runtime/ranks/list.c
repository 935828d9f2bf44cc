// What there is no room for is counted, so that a list says how long it is.
#include "runtime/ranks/list.h"

#include <stdio.h>

#define ROOM 32 // of one rank, and then of " and 4095 more"

void hd_rank_list_add(hd_rank_list *list, int rank)
{
    char *end = list->text + list->length;
    size_t room = sizeof list->text - list->length;

    if (room < ROOM)
        snprintf(end, room, " and %d more", ++list->more);
    else
        list->length +=
            (size_t)snprintf(end, room, "%s%d", list->n > 0 ? ", " : "", rank);
    list->n++;
}
