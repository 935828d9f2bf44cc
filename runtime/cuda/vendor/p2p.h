// Whether two CUDA devices reach each other's memory in truth.
#ifndef HD_RUNTIME_CUDA_VENDOR_P2P_H
#define HD_RUNTIME_CUDA_VENDOR_P2P_H

#include <stdint.h>

#include "base/status.h"

HD_BEGIN_DECLS

#define HD_P2P_WORDS 65536u // of each buffer

// What a device takes part with; all of it is the caller's.
typedef struct hd_p2p_end {
    struct CUctx_st *context;
    uint64_t buffer; // device memory
    struct CUstream_st *stream;
} hd_p2p_end;

typedef struct hd_p2p_probe {
    const struct hd_cu_api *cu; // borrowed
    uint32_t *host;             // borrowed, pinned: HD_P2P_WORDS
    double patience;            // seconds that a copy may take
    uint32_t salt;
    bool stuck; // a copy did not end: nothing may be freed any more
} hd_p2p_probe;

// HD_ERROR_SYSTEM or HD_ERROR_TIMEOUT, with a message, unless what `from` puts
// into the memory of `to` arrives, and what it gets from there. Peer access is
// enabled for as long as that takes.
hd_status hd_p2p_verify(hd_p2p_probe *probe, const hd_p2p_end *from,
                        const hd_p2p_end *to, hd_diag *diag);

HD_END_DECLS

#endif
