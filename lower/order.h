// An order of statements in which what moves is under way sooner.
#ifndef HD_LOWER_ORDER_H
#define HD_LOWER_ORDER_H

#include "lower/version.h"

HD_BEGIN_DECLS

// By the ways that are chosen: products of the same rows, which are gathered,
// follow each other, and so do products that are added and their sum; if
// `early`, products come as soon as they may whose sum over ranks nothing
// reads. `stmt` has the program's statements; false if they stand so.
bool hd_place_order(const hd_placing *p, bool early, hd_stmt **stmt);

HD_END_DECLS

#endif
