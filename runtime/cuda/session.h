// What makes and ends sessions on CUDA devices, and the homes that they share.
// The rooms of the driver, in the order in which they know one another, and are
// read: vendor, device, memory, commands, libraries, transfers, plan, issue,
// and what is here.
#ifndef HD_RUNTIME_CUDA_SESSION_H
#define HD_RUNTIME_CUDA_SESSION_H

#include "runtime/cuda/device/device.h"

// ------------------------------------------------- cuda/open.c

hd_status hd_cuda_open(const hd_binding *binding, hd_diag *diag,
                       hd_device **out);
void hd_cuda_close(hd_device *device);

// ----------------------------------------------- cuda/memory.c

hd_status hd_cuda_alloc(hd_device *device, hd_diag *diag);
void hd_cuda_free(hd_device *device);
// Whether peers have mapped the window that the session has a place in.
hd_fit hd_cuda_fit(const hd_device *device);
void hd_cuda_tell(hd_device *device, int peer, hd_told *out);
void hd_cuda_hear(hd_device *device, int peer, const hd_told *said);
void hd_cuda_settle_windows(hd_device *device);
hd_status hd_cuda_export(hd_device *device, int peer, hd_diag *diag,
                         hd_handle *out);
hd_status hd_cuda_import(hd_device *device, int peer, const hd_handle *handle,
                         hd_diag *diag);
// Finds the peers' windows, and whether the words that they wrote have come.
hd_status hd_cuda_check_probes(hd_device *device, hd_diag *diag);

// ------------------------------------------------- cuda/vary.c

// Where in their windows the buffers begin that peers offer parts of, while
// slots are as they told them.
hd_status hd_cuda_find_roots(hd_device *device, hd_diag *diag);
hd_status hd_cuda_vary(hd_device *device, int variant, const hd_module *module,
                       const hd_steps *steps, bool again, hd_diag *diag,
                       bool *better);

// ------------------------------------------------- cuda/home.c

// Finds the one that the session of `device` belongs to, or makes it.
hd_status hd_cuda_home_open(hd_device *device, hd_diag *diag);
void hd_cuda_home_leave(hd_device *device);
// Sees to it that there are streams up to place `n` - 1.
hd_status hd_cuda_home_need(hd_device *device, int n, hd_diag *diag);

// ------------------------------------------------- cuda/loan.c

// Memory for the caller's arguments, and whether it was of one of the homes.
hd_status hd_cuda_lend(hd_group *group, const char *where, size_t bytes,
                       hd_diag *diag, void **out);
bool hd_cuda_reclaim(hd_group *group, void *memory);

#endif
