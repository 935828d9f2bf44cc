// Which known name a misspelt one may have meant.
#ifndef HD_IR_SUGGEST_H
#define HD_IR_SUGGEST_H

#include "base/status.h"

HD_BEGIN_DECLS

typedef struct hd_suggestion {
    const char *word; // what was written; `length` bytes
    size_t length;
    const char *best; // borrowed; NULL if nothing is near
    size_t distance;  // edits from the word to `best`
    bool strict;      // of words that mean something, where a near one may mean
                      // another: `sub` is not `sum`, nor `elu` `relu` or `gelu`
} hd_suggestion;

hd_suggestion hd_suggest(const char *word, size_t length);
// Keeps the candidate if it is nearer than those before, and near at all: at
// most one edit in two letters, two in five. If strict, a changed letter makes
// another word of one of four letters or fewer, and two that are as near are
// no suggestion.
void hd_suggest_consider(hd_suggestion *suggestion, const char *candidate);

HD_END_DECLS

#endif
