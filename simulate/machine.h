// A machine whose numbers make sense.
#ifndef HD_SIMULATE_MACHINE_H
#define HD_SIMULATE_MACHINE_H

#include <heddle/simulate.h>

#include "base/diag.h"

HD_BEGIN_DECLS

// What a caller gave, or the default one where that is NULL.
// HD_ERROR_ARGUMENT, in the name of `function`, if it is wrong.
hd_status hd_machine_read(const char *function, const hd_machine *given,
                          hd_diag *diag, hd_machine *out);

HD_END_DECLS

#endif
