// What a rank tells the others of the host that it is on: which one that is,
// and under which addresses the ranks of other hosts may reach it.
#ifndef HD_RUNTIME_RANKS_HOST_H
#define HD_RUNTIME_RANKS_HOST_H

#include <stdint.h>

#include "base/status.h"

HD_BEGIN_DECLS

#define HD_HOST_NAME 64      // bytes, with the NUL
#define HD_HOST_ADDRESSES 32 // that are told, at most

// Names may be the same on two hosts; what the kernel drew when it started, or
// what HEDDLE_HOST says, is not.
typedef struct hd_host {
    char name[HD_HOST_NAME];
    char id[HD_HOST_NAME + 8];
} hd_host;

// HD_ERROR_ARGUMENT for a HEDDLE_HOST that is no name.
hd_status hd_host_find(hd_diag *diag, hd_host *out);
bool hd_host_same(const hd_host *a, const hd_host *b);

// In the byte order of the network.
typedef struct hd_host_address {
    uint32_t family; // AF_INET or AF_INET6
    uint8_t byte[16];
} hd_host_address;

// Those of this host's interfaces that are up; the loopback's only if there is
// no other. Returns how many.
int hd_host_addresses(hd_host_address out[HD_HOST_ADDRESSES]);

HD_END_DECLS

#endif
