// Connections to ranks on other hosts: TCP, from each rank to all lower ones.
// callers.h has those who answer.
#ifndef HD_RUNTIME_RANKS_FAR_H
#define HD_RUNTIME_RANKS_FAR_H

#include "runtime/ranks/boot.h"
#include "runtime/ranks/frame.h"
#include "runtime/ranks/host.h"

HD_BEGIN_DECLS

// Where a rank listens, for the others.
typedef struct hd_far_card {
    uint32_t naddresses; // 0 if it could not listen
    uint32_t port;
    hd_host_address address[HD_HOST_ADDRESSES];
} hd_far_card;

// Listens on a port that the kernel picks. The caller closes the listener, also
// where the card could not be filled in.
hd_status hd_far_listen(int *listener, hd_diag *diag, hd_far_card *out);

// Connects, as `rank`, to the one that `hello` wants, which is at one of the
// addresses of `card`. Of a failure, HD_PEER or HD_TIMEOUT, the words are in
// `why`.
hd_status hd_far_call(int rank, hd_hello hello, const hd_far_card *card,
                      int64_t deadline, char why[HD_WHY_BYTES], int *out);

HD_END_DECLS

#endif
