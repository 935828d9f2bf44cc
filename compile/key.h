// Parts of the keys under which what is made of a program is kept, in memory or
// on disk: all that it depends on, as text that nothing else has.
#ifndef HD_COMPILE_KEY_H
#define HD_COMPILE_KEY_H

#include <heddle/simulate.h>

#include <stddef.h>

#include "base/text.h"

HD_BEGIN_DECLS

// What is new in a struct, behind its `last` member, is part of its key.
#define HD_KEY_HAS_ALL_OF(type, last)                                      \
    _Static_assert(sizeof(type) - offsetof(type, last) <=                  \
                       ((sizeof(((type *)0)->last) + 7) & ~(size_t)7) + 4, \
                   "a new member of " #type " belongs in the key")

void hd_key_bytes(hd_text *key, const char *bytes, size_t length);
void hd_key_string(hd_text *key, const char *string); // NULL is not ""
void hd_key_lower(hd_text *key, const hd_lower_options *options);
// What is chosen from, but for its `lower`; it has a machine.
void hd_key_choose(hd_text *key, const hd_choose_options *options);

HD_END_DECLS

#endif
