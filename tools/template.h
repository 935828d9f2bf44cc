// Texts of programs in which words stand for what is filled in: $X, X a letter.
#ifndef HD_TOOLS_TEMPLATE_H
#define HD_TOOLS_TEMPLATE_H

#include "tool.h"

enum { TEMPLATE_WORD = 32 }; // bytes that stand for a letter, at most

typedef void template_word(const void *context, char letter,
                           char out[TEMPLATE_WORD]);

// The program of this version of the text form; the caller frees it.
char *template_fill(const char *text, template_word *word, const void *context);

#endif
