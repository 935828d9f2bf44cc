// How a thread comes into a device's context, what its calls' errors are in
// words, and a copy that is waited for.
#include <stdlib.h>

#include "base/diag.h"
#include "runtime/cuda/device/device.h"

hd_status hd_cuda_error(hd_device *device, hd_cu_result result, hd_diag *diag,
                        const char *call)
{
    const char *name = NULL, *words = NULL;

    if (device->cu.error_name(result, &name) != HD_CU_SUCCESS || name == NULL)
        name = "an unknown error";
    if (device->cu.error_string(result, &words) != HD_CU_SUCCESS ||
        words == NULL)
        words = "the driver has no message for it";
    return hd_fail(
        diag,
        result == HD_CU_OUT_OF_MEMORY ? HD_ERROR_NO_MEMORY : HD_ERROR_SYSTEM,
        "rank %d: CUDA refused '%s': %s (%s)", device->rank, call, name, words);
}

// A thread's own capture, or one of another thread in the global mode, has CUDA
// refuse what asks the device for anything outside of streams, and end the
// capture too.
hd_status hd_cuda_enter(hd_device *device, hd_diag *diag, int *mode)
{
    hd_cu_result result;

    HD_CUDA_TRY(device, diag, context_push, device->home->context);
    *mode = HD_CU_CAPTURE_RELAXED;
    result = device->cu.capture_mode(mode);
    if (result == HD_CU_SUCCESS)
        return HD_OK;
    device->cu.context_pop(&(hd_cu_context){0});
    return hd_cuda_error(device, result, diag, "capture_mode");
}

void hd_cuda_leave(hd_device *device, int mode)
{
    device->cu.capture_mode(&mode);
    device->cu.context_pop(&(hd_cu_context){0});
}

bool hd_cuda_home_enter(const hd_cuda_home *home, int *mode)
{
    *mode = HD_CU_CAPTURE_RELAXED;
    if (home->cu.context_push(home->context) != HD_CU_SUCCESS)
        return false;
    home->cu.capture_mode(mode);
    return true;
}

void hd_cuda_home_exit(const hd_cuda_home *home, int mode)
{
    home->cu.capture_mode(&mode);
    home->cu.context_pop(&(hd_cu_context){0});
}

bool hd_cuda_add_device(hd_device *device, hd_text *key)
{
    char name[128] = "";
    int processors = 0, version = 0;

    if (device->cu.device_name(name, sizeof name - 1, device->home->ordinal) !=
            HD_CU_SUCCESS ||
        device->cu.device_attribute(&processors, HD_CU_SM_COUNT,
                                    device->home->ordinal) != HD_CU_SUCCESS ||
        device->cu.driver_version(&version) != HD_CU_SUCCESS)
        return false;
    hd_text_printf(key, "CUDA %d\n%s, %s, %d SMs\n", version, name,
                   device->home->arch, processors);
    return true;
}

hd_status hd_cuda_copy_now(hd_device *device, hd_cu_ptr to, hd_cu_ptr from,
                           size_t bytes, hd_diag *diag)
{
    HD_CUDA_TRY(device, diag, copy, to, from, bytes, device->home->rescue);
    HD_CUDA_TRY(device, diag, stream_synchronize, device->home->rescue);
    return HD_OK;
}

bool hd_cuda_grow(void **array, int n, int *room, size_t size)
{
    int more = *room * 2 + 16;
    void *grown;

    if (n < *room)
        return true;
    grown = realloc(*array, (size_t)more * size);
    if (grown == NULL)
        return false;
    *array = grown;
    *room = more;
    return true;
}
