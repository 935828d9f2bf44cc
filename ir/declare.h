// The rules of declarations: of a buffer by itself, and of what it names,
// whoever made it. The parser asks when it has read all of them, so that
// statements are read all the same, and hd_verify.
#ifndef HD_IR_DECLARE_H
#define HD_IR_DECLARE_H

#include "ir/module.h"

HD_BEGIN_DECLS

// Reports the first violation of each buffer; HD_ERROR_INVALID if there is one.
hd_status hd_declare_verify(const hd_module *module, hd_diag *diag);
// Of what is no block that a size is cut into, nor all of it.
hd_status hd_refuse_cut(const hd_size *size, const char *what, hd_loc loc,
                        hd_diag *diag);

HD_END_DECLS

#endif
