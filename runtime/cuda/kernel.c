// Kernels of a session: emitted text to a loaded function, each text once. They
// are loaded before the first run, since loading blocks while a stream waits.
// What was compiled is kept on disk, and compiled anew only if it is not there
// or the driver does not take it.
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "codegen/emit.h"
#include "codegen/nvrtc.h"
#include "runtime/cuda/plan.h"

typedef struct kernel {
    char *text;          // owned: what it was made from
    hd_cu_module module; // owned
    hd_cu_function function;
} kernel;

struct hd_cuda_kernels {
    hd_nvrtc *nvrtc; // owned
    kernel *kernel;  // owned
    int n, room;
};

static bool load_kept(hd_device *device, const hd_text *key, kernel *kernel)
{
    void *image = NULL;
    size_t bytes = 0;
    bool loaded;

    if (!hd_disk_read(&device->cache, key, &image, &bytes))
        return false;
    loaded = device->cu.module_load(&kernel->module, image) == HD_CU_SUCCESS;
    free(image);
    return loaded;
}

static hd_status compile(hd_device *device, const char *text,
                         const hd_text *key, kernel *kernel, hd_diag *diag)
{
    void *image = NULL;
    size_t bytes = 0;
    hd_cu_result result;

    HD_TRY(hd_nvrtc_compile(device->kernels->nvrtc, text, device->arch, diag,
                            &image, &bytes));
    result = device->cu.module_load(&kernel->module, image);
    if (result == HD_CU_SUCCESS)
        hd_disk_write(&device->cache, key, image, bytes);
    free(image);
    return result == HD_CU_SUCCESS
               ? HD_OK
               : hd_cuda_error(device, result, diag, "module_load");
}

static hd_status load(hd_device *device, const char *text, kernel *kernel,
                      hd_diag *diag)
{
    hd_text key = {0};
    hd_status status = HD_OK;

    if (device->kernels->nvrtc == NULL)
        HD_TRY(hd_nvrtc_open(diag, &device->kernels->nvrtc));
    hd_text_puts(&key, "kernel\n");
    hd_nvrtc_key(device->kernels->nvrtc, text, device->arch, &key);
    if (!load_kept(device, &key, kernel))
        status = compile(device, text, &key, kernel, diag);
    hd_text_free(&key);
    HD_TRY(status);
    HD_CUDA_TRY(device, diag, module_function, &kernel->function,
                kernel->module, HD_KERNEL_NAME);
    return HD_OK;
}

hd_status hd_cuda_kernel(hd_device *device, const char *text, hd_diag *diag,
                         hd_cu_function *out)
{
    hd_cuda_kernels *all = device->kernels;
    kernel *kernel;

    if (all == NULL)
        all = device->kernels = calloc(1, sizeof *all);
    for (int i = 0; all != NULL && i < all->n; i++) {
        if (strcmp(all->kernel[i].text, text) == 0) {
            *out = all->kernel[i].function;
            return HD_OK;
        }
    }
    if (all == NULL || !hd_cuda_grow((void **)&all->kernel, all->n, &all->room,
                                     sizeof *kernel))
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a kernel");
    kernel = &all->kernel[all->n];
    memset(kernel, 0, sizeof *kernel);
    kernel->text = strdup(text);
    if (kernel->text == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a kernel");
    all->n++;
    HD_TRY(load(device, text, kernel, diag));
    *out = kernel->function;
    return HD_OK;
}

void hd_cuda_kernels_close(hd_device *device)
{
    hd_cuda_kernels *all = device->kernels;

    if (all == NULL)
        return;
    for (int i = 0; i < all->n; i++) {
        if (all->kernel[i].module != NULL)
            device->cu.module_unload(all->kernel[i].module);
        free(all->kernel[i].text);
    }
    hd_nvrtc_close(all->nvrtc);
    free(all->kernel);
    free(all);
}
