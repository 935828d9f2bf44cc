// Ranks for a message: "3, 5, 7", and how many more than there is room for.
#ifndef HD_RUNTIME_RANKS_LIST_H
#define HD_RUNTIME_RANKS_LIST_H

#include <stddef.h>

#include "base/status.h"

HD_BEGIN_DECLS

// Empty if all zero.
typedef struct hd_rank_list {
    char text[256];
    size_t length;
    int n; // of all
    int more;
} hd_rank_list;

void hd_rank_list_add(hd_rank_list *list, int rank);

HD_END_DECLS

#endif
