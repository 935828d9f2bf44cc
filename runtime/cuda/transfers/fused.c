// What all providers of fused ops have in common.
#include "runtime/cuda/transfers/fused.h"
#include "runtime/cuda/transfers/transport.h"

#include <assert.h>

#include "base/diag.h"

static const hd_cuda_provider *const providers[] = {&hd_cuda_cublasmp};
enum { NPROVIDERS = sizeof providers / sizeof *providers };

static const hd_step *first_fused(const hd_device *device)
{
    const hd_steps *steps = device->binding.steps;

    for (int64_t i = 0; i < steps->nsteps; i++)
        if (hd_op_fused(steps->step[i].op) != HD_MOVE_NONE)
            return &steps->step[i];
    return NULL;
}

int hd_cuda_fused_axis(const hd_device *device)
{
    const hd_step *first = first_fused(device);

    return first != NULL ? first->op->axis : -1;
}

hd_status hd_cuda_fused_refuse(const hd_step *step, hd_diag *diag,
                               const char *why)
{
    return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                   "'%s' (step %lld, line %u): %s; lower with another "
                   "--transfer",
                   hd_op_info_get(step->op->code)->text, (long long)step->index,
                   step->op->loc.line, why);
}

// A provider has one communicator and one workspace: what follows each other
// may share them.
static hd_status check_steps(const hd_device *device, hd_diag *diag)
{
    const hd_steps *steps = device->binding.steps;
    const hd_step *first = first_fused(device);

    if (device->binding.graph || device->binding.capturable)
        return hd_cuda_fused_refuse(first, diag,
                                    "no provider takes part in a graph");
    for (int64_t i = first->index; i < steps->nsteps; i++) {
        const hd_step *step = &steps->step[i];

        if (hd_op_fused(step->op) == HD_MOVE_NONE)
            continue;
        if (step->op->axis != first->op->axis)
            return hd_cuda_fused_refuse(
                step, diag, "fused ops of a program are of one axis on cuda");
        if (step->stream != first->stream)
            return hd_cuda_fused_refuse(
                step, diag, "fused ops of a program are on one stream on cuda");
    }
    return HD_OK;
}

void hd_cuda_fused_close(hd_device *device)
{
    if (device->provider != NULL)
        device->provider->close(device);
}

// Of several that do not take it, the last says why.
hd_status hd_cuda_fused_open(hd_device *device, hd_diag *diag)
{
    hd_status status = HD_ERROR_UNSUPPORTED;

    HD_TRY(check_steps(device, diag)); // alike on all ranks
    for (int i = 0; i < NPROVIDERS && status == HD_ERROR_UNSUPPORTED; i++) {
        hd_cuda_fused_close(device); // of the one before
        device->provider = providers[i];
        status = providers[i]->open(device, diag);
    }
    return status;
}

hd_status hd_cuda_fused_plan(hd_cuda_plan *plan, const hd_step *steps, int n,
                             int *events, hd_diag *diag)
{
    int stream = steps->stream + 1;
    hd_cuda_command *command = hd_cuda_add(plan, HD_CUDA_FUSED, stream, steps);

    assert(n == 1); // it is no member of a group
    (void)events;
    if (command == NULL)
        return hd_cuda_no_room(plan->device, diag);
    command->first = plan->nfused++;
    return hd_cuda_mark_nccl(plan, steps, n, stream, diag);
}

hd_status hd_cuda_fused_issue(hd_device *device, const hd_cuda_command *command,
                              hd_diag *diag)
{
    return device->provider->issue(device, command, diag);
}
