// Random tensor programs, well formed by construction: every one parses. What
// is drawn are meshes, placements, stream dimensions, dtypes, operations and
// their keys; extents are small, so that all of a program can be executed.
#ifndef HD_TOOLS_GEN_GENERATE_H
#define HD_TOOLS_GEN_GENERATE_H

#include "choices.h"

HD_BEGIN_DECLS

enum { GENERATE_MAX_OPS = 1000, GENERATE_MAX_RANKS = 8 };

// Inputs of a program made with `integers` hold whole numbers no larger than
// this; every value that it computes is then a whole number that its dtype
// holds exactly, whatever the order of additions.
enum { GENERATE_INPUT = 3 };

typedef struct generate_options {
    bool integers;
    int ops; // how many operations; 0 lets the choices say
} generate_options;

// Bytes enough for a program of `ops` operations.
size_t generate_bytes(int ops);

// The text, which the caller frees with free(); NULL if memory runs out. Ends
// early where the choices do.
char *generate_program(choices *choices, const generate_options *options);

// A host program as the pass reshard, or stream, may leave it, of moves that
// name dimensions; and the tensor program that does the same, on whole numbers
// exactly. False if memory runs out. The caller frees both.
bool generate_stage(choices *choices, char **host, char **tensor);

// Any pipeline with any options.
hd_lower_options generate_lowering(choices *choices);

HD_END_DECLS

#endif
