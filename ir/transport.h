// Which transport each axis of a mesh goes by, as callers say it: one for all,
// and a list of exceptions, "node=nccl,tp=copy".
#ifndef HD_IR_TRANSPORT_H
#define HD_IR_TRANSPORT_H

#include "ir/module.h"

HD_BEGIN_DECLS

// HD_ARGUMENT for a name that is no axis or no transport. What is not said is
// HD_TRANSPORT_AUTO; `axes` may be NULL.
hd_status hd_transports_read(const hd_module *module, hd_transport all,
                             const char *axes, hd_diag *diag,
                             hd_transport out[HD_MAX_AXES]);

HD_END_DECLS

#endif
