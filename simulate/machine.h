// A machine whose numbers make sense.
#ifndef HD_SIMULATE_MACHINE_H
#define HD_SIMULATE_MACHINE_H

#include <heddle/simulate.h>

#include "base/diag.h"

HD_BEGIN_DECLS

hd_status hd_machine_check(const hd_machine *machine, hd_diag *diag);

HD_END_DECLS

#endif
