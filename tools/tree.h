// A program as JSON, which docs/json.md and docs/heddle-dump.schema.json
// describe: what its canonical text says, told apart, a line a statement.
#ifndef HD_TOOLS_TREE_H
#define HD_TOOLS_TREE_H

#include "json.h"
#include "program.h"

// The parameters of a program's own text, with the values that -D gives them;
// those that runs are given, and -D does not set, are the module's sizes.
cJSON *tree_params(const content *text, const program_options *options);

// What all stages begin with, up to the buffers.
outcome tree_begin(const hd_module *module, const char *stage,
                   const cJSON *params, FILE *to);
// Then its statements, or what ranks issue: `text` is hd_print_steps' of each.
outcome tree_body(const hd_module *module, FILE *to);
outcome tree_steps(const hd_module *module, int rank, const char *text,
                   bool first, FILE *to);
void tree_end(bool steps, FILE *to);

#endif
