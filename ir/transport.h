// Which transport each axis of a mesh goes by, as callers say it: one for all,
// and a list of exceptions, "node=nccl,tp=copy". And what NCCL does not do by
// itself: the driver does it otherwise, the checker says where nothing does.
#ifndef HD_IR_TRANSPORT_H
#define HD_IR_TRANSPORT_H

#include <heddle/environment.h>

#include "ir/module.h"

HD_BEGIN_DECLS

// HD_ERROR_ARGUMENT for a name that is no axis or no transport. What is not
// said is HD_TRANSPORT_AUTO; `axes` may be NULL.
hd_status hd_transports_read(const hd_module *module, hd_transport all,
                             const char *axes, hd_diag *diag,
                             hd_transport out[HD_MAX_AXES]);

// A bit for each axis along which ranks meet over NCCL, of transports that are
// read so. What is not said is none.
hd_status hd_transports_serial(const hd_module *module, hd_transport all,
                               const char *axes, hd_diag *diag, unsigned *out);

// Likewise, along which transfers are done by kernels: by NCCL or by `sm`.
hd_status hd_transports_busy(const hd_module *module, hd_transport all,
                             const char *axes, hd_diag *diag, unsigned *out);

// Whether NCCL only gathers what the transfer reduces, for a kernel to reduce
// it: its maximum and minimum lose a NaN of any rank but where all have one,
// and it adds no f8. Up to HD_NCCL_GATHERED ranks.
bool hd_nccl_only_gathers(const hd_op *op);
#define HD_NCCL_GATHERED 79

// The view of the collective whose pieces go by calls of their own where there
// are gaps between them, and by one call where there are none: so all ranks'
// must be alike. -1 for a transfer that goes one way only.
int hd_nccl_pieces(const hd_op *op);

HD_END_DECLS

#endif
