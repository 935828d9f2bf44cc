// Kernels of a session: emitted text to a loaded function, each text once. They
// are loaded before the first run, since loading blocks while a stream waits.
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cuda.h"

static hd_status load(hd_device *device, const char *text,
                      hd_cuda_module *module, hd_diag *diag)
{
    void *image = NULL;
    size_t bytes = 0;
    hd_cu_result result;

    if (device->nvrtc == NULL)
        HD_TRY(hd_nvrtc_open(diag, &device->nvrtc));
    HD_TRY(hd_nvrtc_compile(device->nvrtc, text, device->arch, diag, &image,
                            &bytes));
    result = device->cu.module_load(&module->module, image);
    free(image);
    if (result != HD_CU_SUCCESS)
        return hd_cuda_error(device, result, diag, "module_load");
    HD_CUDA_TRY(device, diag, module_function, &module->function,
                module->module, HD_KERNEL_NAME);
    return HD_OK;
}

hd_status hd_cuda_kernel(hd_device *device, const char *text, hd_diag *diag,
                         hd_cu_function *out)
{
    hd_cuda_module *module;

    for (int i = 0; i < device->nmodules; i++) {
        if (strcmp(device->module[i].text, text) == 0) {
            *out = device->module[i].function;
            return HD_OK;
        }
    }
    if (!hd_cuda_grow((void **)&device->module, device->nmodules,
                      &device->module_room, sizeof(*module)))
        return hd_fail(diag, HD_NO_MEMORY, "no memory for a kernel");
    module = &device->module[device->nmodules];
    memset(module, 0, sizeof(*module));
    module->text = strdup(text);
    if (module->text == NULL)
        return hd_fail(diag, HD_NO_MEMORY, "no memory for a kernel");
    device->nmodules++;
    HD_TRY(load(device, text, module, diag));
    *out = module->function;
    return HD_OK;
}

void hd_cuda_kernel_free(hd_device *device)
{
    for (int i = 0; i < device->nmodules; i++) {
        if (device->module[i].module != NULL)
            device->cu.module_unload(device->module[i].module);
        free(device->module[i].text);
    }
    free(device->module);
}
