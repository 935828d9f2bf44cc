// Which transport each axis of a mesh goes by, as callers say it: one for all,
// and a list of exceptions, "node=nccl,tp=copy". And what NCCL does not do by
// itself: the driver does it otherwise, the checker says where nothing does. And
// by which ways kernels reduce.
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

// Of an all_reduce by kernels over n ranks of a node, which takes 2 (n - 1) / n
// of an operand in over a rank's links: up to how many bytes it may be one kernel
// that meets the peers by itself; and how many must be saved, of the n - 1
// operands that it takes in else, for ranks to reduce a share each and fetch the
// others'.
#define HD_MEETING_MOST ((uint64_t)32 << 20)
#define HD_SHARES_SAVE ((uint64_t)8 << 20)

HD_END_DECLS

#endif
