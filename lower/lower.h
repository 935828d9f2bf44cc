// The passes that a module still needs, by a transfer that is named.
#ifndef HD_LOWER_LOWER_H
#define HD_LOWER_LOWER_H

#include "ir/module.h"

HD_BEGIN_DECLS

// HD_ERROR_ARGUMENT, with the option, of a value that is none.
hd_status hd_lower_judge(const hd_lower_options *options, hd_diag *diag);
// As hd_lower, of options that are complete.
hd_status hd_lower_by(hd_module *module, const hd_lower_options *options,
                      hd_lower_hook *hook, void *context, hd_diag *diag);

HD_END_DECLS

#endif
