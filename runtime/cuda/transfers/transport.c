// The table of transports, and what is done with all of them.
#include "runtime/cuda/transfers/transport.h"

#include <assert.h>

#include "runtime/cuda/transfers/nccl.h"

// The helper starts a deferred send when its stream has come to it; a stream
// that did nothing since its last one need not say so again.
static hd_status plan_deferred(hd_cuda_plan *plan, const hd_step *step,
                               int *events, hd_diag *diag)
{
    int helper = hd_cuda_helper(plan->device);
    hd_cuda_stream *stream = &plan->device->stream[step->stream + 1];

    if (stream->handed == 0 || stream->handed != stream->planned)
        HD_TRY(hd_cuda_tie(plan, step->stream + 1, helper, step, diag));
    stream->handed = stream->planned;
    HD_TRY(hd_cuda_plan_batch(plan, step, 1, helper, true, diag));
    return hd_cuda_plan_record(plan, helper, step, events, diag);
}

static hd_status plan_windows(hd_cuda_plan *plan, const hd_step *steps, int n,
                              int *events, hd_diag *diag)
{
    (void)events;
    return hd_cuda_plan_batch(plan, steps, n, steps->stream + 1, false, diag);
}

const hd_cuda_transport hd_cuda_transports[] = {
    [HD_TRANSPORT_COPY] = {.windows = true,
                           .defer = plan_deferred,
                           .plan = plan_windows},
    [HD_TRANSPORT_SM] = {.windows = true,
                         .kernels = true,
                         .defer = plan_deferred,
                         .plan = plan_windows},
    [HD_TRANSPORT_NCCL] = {.hosts = true,
                           .open = hd_cuda_nccl_open,
                           .plan = hd_cuda_nccl_plan,
                           .check = hd_cuda_nccl_check,
                           .abort = hd_cuda_nccl_abort,
                           .close = hd_cuda_nccl_close},
    [HD_CUDA_BY_PROVIDER] = {.hosts = true,
                             .open = hd_cuda_fused_open,
                             .close = hd_cuda_fused_close},
};

enum { NTRANSPORTS = sizeof(hd_cuda_transports) / sizeof *hd_cuda_transports };

// A provider works with communicators of NCCL's.
static bool uses(const hd_device *device, int row)
{
    if (row >= HD_TRANSPORT_NCCL && hd_cuda_fused_axis(device) >= 0)
        return true;
    return row < HD_CUDA_BY_PROVIDER &&
           hd_binding_uses(&device->binding, (hd_transport)row);
}

hd_status hd_cuda_transports_open(hd_device *device, hd_diag *diag)
{
    HD_TRY(hd_cuda_fused_find(device, diag));
    for (int i = 0; i < NTRANSPORTS; i++) {
        if (hd_cuda_transports[i].open != NULL && uses(device, i))
            HD_TRY(hd_cuda_transports[i].open(device, diag));
    }
    return HD_OK;
}

static bool is_apart(const hd_device *device, const hd_step *step)
{
    return hd_step_defers(step) &&
           hd_cuda_transport_of(device, step)->defer != NULL;
}

// Sends that hold up nothing come first, so that they do not wait for the rest.
hd_status hd_cuda_transports_plan(hd_cuda_plan *plan, const hd_step *steps,
                                  int n, int *events, hd_diag *diag)
{
    hd_device *device = plan->device;
    const hd_cuda_transport *planned = NULL;

    for (int i = 0; i < n; i++) {
        if (is_apart(device, &steps[i]))
            HD_TRY(hd_cuda_transport_of(device, &steps[i])
                       ->defer(plan, &steps[i], events, diag));
    }
    // From the last row on: a library's calls go before waits for words.
    for (int t = NTRANSPORTS - 1; t >= 0; t--) {
        const hd_cuda_transport *row = &hd_cuda_transports[t];
        bool found = false;

        for (int i = 0; i < n; i++)
            found |= hd_cuda_transport_of(device, &steps[i]) == row &&
                     !is_apart(device, &steps[i]);
        assert(!found || row->plan != NULL); // a provider's are planned apart
        if (!found || (planned != NULL && planned->plan == row->plan))
            continue;
        HD_TRY(row->plan(plan, steps, n, events, diag));
        planned = row;
    }
    return HD_OK;
}

hd_status hd_cuda_transports_check(hd_device *device, int64_t deadline,
                                   hd_diag *diag, bool *told)
{
    *told = true;
    for (int i = 0; i < NTRANSPORTS && *told; i++) {
        if (hd_cuda_transports[i].check != NULL)
            HD_TRY(hd_cuda_transports[i].check(device, deadline, diag, told));
    }
    return HD_OK;
}

void hd_cuda_transports_abort(hd_device *device)
{
    for (int i = 0; i < NTRANSPORTS; i++) {
        if (hd_cuda_transports[i].abort != NULL)
            hd_cuda_transports[i].abort(device);
    }
}

// What works with another row's is closed before that.
void hd_cuda_transports_close(hd_device *device)
{
    for (int i = NTRANSPORTS - 1; i >= 0; i--) {
        if (hd_cuda_transports[i].close != NULL)
            hd_cuda_transports[i].close(device);
    }
}
