// A set of numbers: what the checker remembers of a few of many.
#ifndef HD_CHECK_SET_H
#define HD_CHECK_SET_H

#include "base/diag.h"

HD_BEGIN_DECLS

typedef struct hd_set {
    uint64_t *slot; // owned: a number + 1, or 0
    int64_t room;   // a power of two, or 0
    int64_t n;
} hd_set;

hd_status hd_set_add(hd_set *set, uint64_t number, hd_diag *diag);
bool hd_set_has(const hd_set *set, uint64_t number);
void hd_set_clear(hd_set *set);
void hd_set_free(hd_set *set);

HD_END_DECLS

#endif
