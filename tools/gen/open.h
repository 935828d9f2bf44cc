// Declarations of temporaries that say less than they could.
#ifndef HD_TOOLS_GEN_OPEN_H
#define HD_TOOLS_GEN_OPEN_H

#include "choices.h"

HD_BEGIN_DECLS

// The tensor program with some of its temporaries open, of the first 32; with
// `dtypes` all keep theirs. Takes the text, and gives one that the caller frees
// with free().
char *open_declarations(char *text, bool dtypes, choices *choices);

HD_END_DECLS

#endif
