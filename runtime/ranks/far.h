// Connections to ranks on other hosts: TCP, from each rank to all lower ones.
// A caller says the group's secret, who it is and whom it wants; whoever says
// anything else, or nothing, is hung up on.
#ifndef HD_RUNTIME_RANKS_FAR_H
#define HD_RUNTIME_RANKS_FAR_H

#include <poll.h>

#include "runtime/ranks/boot.h"
#include "runtime/ranks/host.h"

HD_BEGIN_DECLS

// Callers that have not said who they are. One more sends the first away.
#define HD_FAR_CALLERS 64

// Where a rank listens, for the others.
typedef struct hd_far_card {
    uint32_t naddresses; // 0 if it could not listen
    uint32_t port;
    hd_host_address address[HD_HOST_ADDRESSES];
} hd_far_card;

typedef struct hd_far {
    uint64_t secret; // the group's
    int rank, size;
    int listener;                   // owned; -1 if not listening
    hd_wire caller[HD_FAR_CALLERS]; // owned
    int next_caller;                // the one who gives way
} hd_far;

void hd_far_init(hd_far *far, int rank, int size);
// Listens on a port that the kernel picks.
hd_status hd_far_listen(hd_far *far, hd_diag *diag, hd_far_card *out);
void hd_far_close(hd_far *far);

// Connects to rank `peer`, which is at one of the addresses of `card`. Of a
// failure, HD_PEER or HD_TIMEOUT, the words are in `why`.
hd_status hd_far_call(const hd_far *far, int peer, const hd_far_card *card,
                      int64_t deadline, char why[HD_WHY_BYTES], int *out);

// What is to be waited for, HD_FAR_CALLERS + 1 at most; returns how many.
int hd_far_ask(const hd_far *far, struct pollfd *ask);
// Hears who has called, without blocking: the rank of one that has said hello,
// and its socket, which is the caller's; or -1.
int hd_far_hear(hd_far *far, int *out);
// Tells a rank that was heard that it is in.
hd_status hd_far_answer(const hd_far *far, int fd, int64_t deadline);

HD_END_DECLS

#endif
