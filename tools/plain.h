// Text from outside made safe: for a terminal, and for JSON.
#ifndef HD_TOOLS_PLAIN_H
#define HD_TOOLS_PLAIN_H

#include <stdbool.h>
#include <stddef.h>

// Bytes of the character at `at`, of which `length` are there; 0 if it is not
// UTF-8, or must not reach a terminal: controls, and what is invisible or turns
// the direction of text.
size_t plain_character(const char *at, size_t length);

// A copy, to be freed, with \xNN in place of each byte that is part of no such
// character.
char *need_plain(const char *text);
// As above, but only of what is not UTF-8: a writer of JSON escapes the rest.
char *need_utf8(const char *text);

#endif
