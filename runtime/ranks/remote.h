// Connections to ranks on other hosts: TCP, from each rank to all lower ones.
// callers.h has those who answer.
#ifndef HD_RUNTIME_RANKS_REMOTE_H
#define HD_RUNTIME_RANKS_REMOTE_H

#include "runtime/ranks/boot.h"
#include "runtime/ranks/frame.h"
#include "runtime/ranks/host.h"

HD_BEGIN_DECLS

// Where a rank listens, for the others.
typedef struct hd_remote_endpoint {
    uint32_t naddresses; // 0 if it could not listen
    uint32_t port;
    hd_host_address address[HD_HOST_ADDRESSES];
} hd_remote_endpoint;

// Listens on a port that the kernel picks. The caller closes the listener, also
// where the endpoint could not be filled in.
hd_status hd_remote_listen(int *listener, hd_diag *diag,
                           hd_remote_endpoint *out);

// Connects, as `rank`, to the one that `hello` wants, which is at one of the
// addresses of `endpoint`. Of a failure, HD_ERROR_PEER or HD_ERROR_TIMEOUT, the
// message is in `why`.
hd_status hd_remote_call(int rank, hd_hello hello,
                         const hd_remote_endpoint *endpoint, int64_t deadline,
                         char why[HD_WHY_BYTES], int *out);

HD_END_DECLS

#endif
