// The local rules: what can be said of each statement alone, whatever the rank.
// Run on every parsed module and after every pass.
#ifndef HD_IR_VERIFY_H
#define HD_IR_VERIFY_H

#include "ir/module.h"

HD_BEGIN_DECLS

// Reports every violation; HD_ERROR_INVALID if there was one.
hd_status hd_verify(const hd_module *module, hd_diag *diag);

HD_END_DECLS

#endif
