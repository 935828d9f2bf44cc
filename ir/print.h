// Module to text, the inverse of ir/parse: what prints parses back the same.
#ifndef HD_IR_PRINT_H
#define HD_IR_PRINT_H

#include "base/text.h"
#include "ir/module.h"

HD_BEGIN_DECLS

void hd_module_print(const hd_module *module, hd_text *text);
// "after NAME" has it; "tensor" and "host" are of whole programs.
const char *hd_stage_text(hd_stage stage);
const char *hd_role_text(hd_role role);
// "stream", or the axis that shards a dimension.
const char *hd_mark_text(const hd_module *module, int mark);
// Whether what stands behind `else` is another `if` alone, on the same line.
bool hd_block_is_else_if(const hd_block *otherwise);
// A call's function stands ahead of the operands, numbers among these, and no
// text has counts.
bool hd_key_is_shown(hd_key_code code);

// With the fewest digits that read back equal.
void hd_number_print(double value, hd_text *text);
// Of a key that is a number.
void hd_key_number_print(const hd_key *key, hd_text *text);
// Of one that is several: "(1, 0, 2)" with these.
void hd_key_ints_print(const hd_key *key, const char *before,
                       const char *between, const char *after, hd_text *text);
// "%ag[3, :, low..past]"
void hd_view_print(const hd_module *module, const hd_view *view, hd_text *text);
// "64 in 4@stream by %n": a dimension as its declaration has it.
void hd_buffer_print_dim(const hd_module *module, const hd_buffer *buffer,
                         int dim, hd_text *text);
// Its extent, which may be an expression.
void hd_dim_print(const hd_module *module, hd_dim dim, hd_text *text);
// "pp 1", "pp 1..3" or "all ranks".
void hd_ranks_print(const hd_module *module, hd_ranks ranks, hd_text *text);
void hd_type_print(const hd_module *module, const hd_type *type, hd_text *text);
// Hands a text over to who calls the library, or lets go of it where what made
// it failed, and returns that.
hd_status hd_print_give(hd_status status, hd_text *text, hd_diag *diag,
                        char **out);

HD_END_DECLS

#endif
