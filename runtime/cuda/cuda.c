// The cuda driver: ranks have a device each, and peers reach each other's
// memory, across processes by CUDA IPC. This file is its table.
#include "runtime/cuda/device/device.h"
#include "runtime/cuda/issue/capture.h"
#include "runtime/cuda/transfers/fused.h"

#include <stdio.h>
#include <string.h>

#include "base/diag.h"
#include "base/setting.h"
#include "runtime/cuda/issue/pass.h"
#include "runtime/cuda/issue/run.h"
#include "runtime/cuda/libraries/attends.h"
#include "runtime/cuda/libraries/products.h"
#include "runtime/cuda/libraries/single.h"
#include "runtime/cuda/memory/peers.h"
#include "runtime/cuda/plan/make.h"
#include "runtime/cuda/session.h"
#include "runtime/cuda/transfers/transport.h"

// --------------------------------------------------------------- memory

static hd_status cuda_take(hd_device *device, size_t bytes, hd_diag *diag,
                           void **out)
{
    hd_cu_ptr at = 0;
    hd_cu_result result;
    int mode;

    HD_TRY(hd_cuda_enter(device, diag, &mode));
    result = device->cu.alloc(&at, bytes > 0 ? bytes : 1);
    hd_cuda_leave(device, mode);
    if (result == HD_CU_OUT_OF_MEMORY)
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "rank %d: no memory for %zu bytes on its device",
                       device->rank, bytes);
    if (result != HD_CU_SUCCESS)
        return hd_cuda_error(device, result, diag, "alloc");
    *out = (void *)(uintptr_t)at;
    return HD_OK;
}

static hd_status cuda_fail(hd_device *device, hd_status status,
                           const char *text, hd_diag *diag)
{
    hd_cuda_fail(device, status, text, "");
    return hd_cuda_report(device, diag);
}

static void cuda_give(hd_device *device, void *memory)
{
    int mode;

    // Freeing would block if the device did not come to rest.
    if (hd_cuda_is_stuck(device) || hd_cuda_enter(device, NULL, &mode) != HD_OK)
        return;
    device->cu.free((hd_cu_ptr)(uintptr_t)memory);
    hd_cuda_leave(device, mode);
}

static hd_status cuda_copy(hd_device *device, void *to, const void *from,
                           size_t bytes, hd_diag *diag)
{
    hd_status status = HD_OK;
    int mode;

    HD_TRY(hd_cuda_enter(device, diag, &mode));
    if (bytes > 0)
        status = hd_cuda_copy_now(device, (hd_cu_ptr)(uintptr_t)to,
                                  (hd_cu_ptr)(uintptr_t)from, bytes, diag);
    hd_cuda_leave(device, mode);
    return status;
}

// --------------------------------------------------- with the peers

static hd_status cuda_alloc(hd_device *device, hd_diag *diag, hd_fit *out)
{
    HD_TRY(hd_cuda_alloc(device, diag));
    *out = hd_cuda_fit(device);
    return HD_OK;
}

// -------------------------------------------------------------- prepare

// CUDA has calls that keep a context to themselves until its streams are done,
// those that make a graph ready among them. Where the streams of one rank wait
// for another's, whose calls wait for the context, nothing ends any more, nor
// can the thread that watches end it.
static hd_status check_beside(const hd_device *device, hd_diag *diag)
{
    const char *allowed = hd_setting("HEDDLE_SHARED_DEVICE");

    if (device->peers->beside < 0 ||
        (allowed != NULL && strcmp(allowed, "1") == 0))
        return HD_OK;
    return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                   "ranks %d and %d are threads of one process that have one "
                   "device, where CUDA may block one for the other for ever: "
                   "give each a device, or a process; HEDDLE_SHARED_DEVICE=1 "
                   "lets them",
                   device->rank, device->peers->beside);
}

static hd_status prepare(hd_device *device, hd_diag *diag)
{
    hd_status beside = check_beside(device, diag);
    hd_status status = hd_cuda_check_probes(device, diag);
    // Before anything else that may fail here: these are collective.
    hd_status met = hd_cuda_fixed_meet(device, diag);

    HD_TRY(hd_cuda_transports_open(device, diag));
    HD_TRY(beside);
    HD_TRY(status);
    HD_TRY(met);
    HD_TRY(hd_cuda_find_roots(device, diag));
    HD_TRY(hd_cuda_pass_open(device, diag));
    HD_TRY(hd_cuda_runs_open(device, diag));
    HD_TRY(hd_cuda_captures_open(device, diag));
    HD_TRY(hd_cuda_plan_make(device, diag));
    HD_TRY(hd_cuda_singles_open(device->whole, diag));
    return hd_cuda_watch_start(device, diag);
}

static hd_status cuda_prepare(hd_device *device, hd_diag *diag)
{
    char text[HD_GROUP_TEXT];
    int mode;
    hd_status status = hd_cuda_enter(device, diag, &mode);

    // The peers may wait for this rank in the middle of `prepare`.
    if (status != HD_OK) {
        snprintf(text, sizeof text,
                 "rank %d cannot enter the context of its device",
                 device->rank);
        hd_group_fail(device->binding.group, text);
        return status;
    }
    status = prepare(device, diag);
    hd_cuda_leave(device, mode);
    return status;
}

static void cuda_stats(const hd_device *device, hd_stats *stats)
{
    stats->allocations += device->allocations;
    stats->host_waits += device->host_waits;
    stats->plans += device->plans;
    stats->graphs += device->graphs;
    stats->patches += device->patches;
    stats->transport = device->transports;
    stats->attention = hd_cuda_attends_text(device);
    stats->matmul = hd_cuda_products_text(device);
    if (*stats->matmul == '\0' && hd_cuda_fused_axis(device) >= 0)
        stats->matmul = device->provider->text(device);
    hd_cuda_run_stats(device, stats);
}

static int cuda_ordinal(const hd_device *device)
{
    return device->home->ordinal;
}

const hd_driver hd_driver_cuda = {
    .name = "cuda",
    .open = hd_cuda_open,
    .alloc = cuda_alloc,
    .tell = hd_cuda_tell,
    .hear = hd_cuda_hear,
    .export_handle = hd_cuda_export,
    .import_handle = hd_cuda_import,
    .prepare = cuda_prepare,
    .settle = hd_cuda_settle_windows,
    .vary = hd_cuda_vary,
    .pack = hd_cuda_pack,
    .run = hd_cuda_run,
    .finish = hd_cuda_finish,
    .await = hd_cuda_await_runs,
    .fail = cuda_fail,
    .take = cuda_take,
    .give = cuda_give,
    .lend = hd_cuda_lend,
    .reclaim = hd_cuda_reclaim,
    .copy = cuda_copy,
    .stats = cuda_stats,
    .close = hd_cuda_close,
    .ordinal = cuda_ordinal,
};
