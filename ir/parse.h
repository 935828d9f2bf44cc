// Text to module. One grammar for both levels; docs/text-form.md has it.
#ifndef HD_IR_PARSE_H
#define HD_IR_PARSE_H

#include "ir/module.h"

HD_BEGIN_DECLS

// The body of hd_parse: parses into `module`, which is empty and guarded, and
// has `source` set. Recovers at statements, so that one error does not hide the
// next; does not verify.
hd_status hd_parse_module(hd_module *module, const hd_define *defines,
                          size_t ndefines, hd_diag *diag);

// What hd_parse does, with a copy of the source.
hd_status hd_parse_source(const hd_source *source, const hd_define *defines,
                          size_t ndefines, hd_diag *diag, hd_module **out);

HD_END_DECLS

#endif
