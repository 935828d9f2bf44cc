// Kernels of a session: emitted text to a loaded function, each text once. They
// are loaded before the first run, since loading blocks while a stream waits.
// What was compiled is kept on disk, and compiled anew only if it is not there
// or the driver does not take it.
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cuda.h"

static bool load_kept(hd_device *device, const hd_text *key,
                      hd_cuda_module *module)
{
    void *image = NULL;
    size_t bytes = 0;
    bool loaded;

    if (!hd_cache_read(&device->cache, key, &image, &bytes))
        return false;
    loaded = device->cu.module_load(&module->module, image) == HD_CU_SUCCESS;
    free(image);
    return loaded;
}

static hd_status compile(hd_device *device, const char *text,
                         const hd_text *key, hd_cuda_module *module,
                         hd_diag *diag)
{
    void *image = NULL;
    size_t bytes = 0;
    hd_cu_result result;

    HD_TRY(hd_nvrtc_compile(device->nvrtc, text, device->arch, diag, &image,
                            &bytes));
    result = device->cu.module_load(&module->module, image);
    if (result == HD_CU_SUCCESS)
        hd_cache_write(&device->cache, key, image, bytes);
    free(image);
    return result == HD_CU_SUCCESS
               ? HD_OK
               : hd_cuda_error(device, result, diag, "module_load");
}

static hd_status load(hd_device *device, const char *text,
                      hd_cuda_module *module, hd_diag *diag)
{
    hd_text key = {0};
    hd_status status = HD_OK;

    if (device->nvrtc == NULL)
        HD_TRY(hd_nvrtc_open(diag, &device->nvrtc));
    hd_text_puts(&key, "kernel\n");
    hd_nvrtc_key(device->nvrtc, text, device->arch, &key);
    if (!load_kept(device, &key, module))
        status = compile(device, text, &key, module, diag);
    hd_text_free(&key);
    HD_TRY(status);
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
