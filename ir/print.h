// Module to text, the inverse of ir/parse: what prints parses back the same.
#ifndef HD_IR_PRINT_H
#define HD_IR_PRINT_H

#include "base/text.h"
#include "ir/module.h"

HD_BEGIN_DECLS

void hd_module_print(const hd_module *module, hd_text *text);
// With the fewest digits that read back equal.
void hd_number_print(double value, hd_text *text);
// Its extent, which may be an expression.
void hd_dim_print(const hd_module *module, hd_dim dim, hd_text *text);
// "pp 1", "pp 1..3" or "all ranks".
void hd_ranks_print(const hd_module *module, hd_ranks ranks, hd_text *text);
void hd_type_print(const hd_module *module, const hd_type *type, hd_text *text);

HD_END_DECLS

#endif
