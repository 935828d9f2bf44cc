// Which of a rank's memory peers have open, as locks of the kernel: each piece
// has a number, a byte of the owner's file, and whoever has the piece open
// holds that byte. No message says so, which could be lost or come late: a peer
// lets go when it says so to the kernel, or when it dies, and only then,
// whatever becomes of its group.
//
// Locks belong to open files, of which each rank has one of its own: ranks that
// are threads of one process have theirs apart. A process that a rank has
// forked has them too: what the rank lets go of is let go, but if it dies
// first, the locks are there until that process ends.
#ifndef HD_RUNTIME_RANKS_LEASE_H
#define HD_RUNTIME_RANKS_LEASE_H

#include <stdint.h>

#include "base/status.h"

HD_BEGIN_DECLS

#define HD_LEASE_NONE (-1)

// Opens the file of this rank's memory, a descriptor to pass to peers.
hd_status hd_lease_open(hd_diag *diag, int *out);
// Opens what a peer has passed, which is borrowed, for locks of one's own.
hd_status hd_lease_join(int passed, hd_diag *diag, int *out);
// The owner's piece `number` is open here. False if that has taken it back, or
// there are no locks.
bool hd_lease_hold(int lease, uint64_t number);
void hd_lease_let_go(int lease, uint64_t number);
// For the owner: nobody has the piece open, nor does anybody open it from now
// on. False if somebody has it.
bool hd_lease_take_back(int lease, uint64_t number);

HD_END_DECLS

#endif
