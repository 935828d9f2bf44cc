// How what crosses ranks travels: a row a transport. All else asks for a row's
// properties, so that another transport is another row.
#ifndef HD_RUNTIME_CUDA_TRANSFERS_TRANSPORT_H
#define HD_RUNTIME_CUDA_TRANSFERS_TRANSPORT_H

#include "runtime/cuda/commands/plan.h"
#include "runtime/cuda/transfers/fused.h"

// A function that is NULL has nothing to do.
typedef struct hd_cuda_transport {
    bool windows; // through the peers' windows, told by words in them
    bool kernels; // those that copy, in place of copy engines
    bool hosts;   // also between hosts
    // Collective, before the plan is made; refuses what the program has that
    // cannot travel like this.
    hd_status (*open)(hd_device *device, hd_diag *diag);
    // A deferred send, apart from its group; NULL if it holds up its stream as
    // others do.
    hd_status (*defer)(hd_cuda_plan *plan, const hd_step *step, int *events,
                       hd_diag *diag);
    // Of `n` steps, a group, the others that go by it. Transports of one
    // function are planned in one call.
    hd_status (*plan)(hd_cuda_plan *plan, const hd_step *steps, int n,
                      int *events, hd_diag *diag);
    // Whether what has run went well.
    hd_status (*check)(hd_device *device, int64_t deadline, hd_diag *diag,
                       bool *told);
    // Ends what its kernels wait for; called by the thread that watches.
    void (*abort)(hd_device *device);
    void (*close)(hd_device *device);
} hd_cuda_transport;

// What a launch that a provider has goes by, whatever the transport of its
// axis.
enum { HD_CUDA_BY_PROVIDER = HD_TRANSPORT_NCCL + 1 };

// By hd_transport, then that.
extern const hd_cuda_transport hd_cuda_transports[];

static inline const hd_cuda_transport *
hd_cuda_transport_of(const hd_device *device, const hd_step *step)
{
    return &hd_cuda_transports[hd_cuda_fused_has(device, step)
                                   ? HD_CUDA_BY_PROVIDER
                                   : (int)hd_transport_of(&device->binding,
                                                          step)];
}

hd_status hd_cuda_transports_open(hd_device *device, hd_diag *diag);
hd_status hd_cuda_transports_plan(hd_cuda_plan *plan, const hd_step *steps,
                                  int n, int *events, hd_diag *diag);
hd_status hd_cuda_transports_check(hd_device *device, int64_t deadline,
                                   hd_diag *diag, bool *told);
void hd_cuda_transports_abort(hd_device *device);
void hd_cuda_transports_close(hd_device *device);

// ----------------------------------- cuda/transfers/transfer.c

// Those of `n` steps, a group, that are deferred, or those that are not.
hd_status hd_cuda_plan_batch(hd_cuda_plan *plan, const hd_step *steps, int n,
                             int stream, bool deferred, hd_diag *diag);
// Which steps signal "ready" at the start of a run: peers->early.
void hd_cuda_find_early(hd_device *device);
// No stream of a plan has waited for what peers tell early.
void hd_cuda_hear_anew(hd_device *device);
hd_status hd_cuda_signal_early(hd_cuda_plan *plan, hd_diag *diag);

// -------------------------------- cuda/transfers/words.c

// Where the device counts its runs: one begins or ends, on the caller's stream.
hd_status hd_cuda_plan_count(hd_cuda_plan *plan, int operation, hd_diag *diag);
// Of `n` steps, a group, those that NCCL is given with the last command.
hd_status hd_cuda_mark_nccl(hd_cuda_plan *plan, const hd_step *steps, int n,
                            int stream, hd_diag *diag);
// Whether it may be this rank that the wait is for.
bool hd_cuda_waits_for(const hd_device *device, const hd_cuda_wait *wait,
                       int rank);

#endif
