// Kernels of a home: emitted text to a loaded function, each text once. They
// are loaded before a session's first run, since loading blocks while a stream
// waits; so does unloading, and those that no session uses any more go where
// another is loaded, but for the last few.
// What was compiled is kept on disk, and compiled anew only if it is not there
// or the driver does not take it.
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "codegen/emit.h"
#include "codegen/nvrtc.h"
#include "runtime/cuda/device/device.h"

#define UNUSED_MOST 8 // that stay loaded

typedef struct hd_cuda_loaded {
    char *text;          // owned: what it was made from
    uint64_t hash;       // of the text
    hd_cu_module module; // owned
    hd_cu_function function;
    int users; // sessions
} kernel;

struct hd_cuda_kernels {
    hd_nvrtc *nvrtc; // owned
    kernel **kernel; // owned; those that were used last come last
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

    HD_TRY(hd_nvrtc_compile(device->home->kernels->nvrtc, text,
                            device->home->arch, diag, &image, &bytes));
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

    if (device->home->kernels->nvrtc == NULL)
        HD_TRY(hd_nvrtc_open(diag, &device->home->kernels->nvrtc));
    hd_text_puts(&key, "kernel\n");
    hd_nvrtc_key(device->home->kernels->nvrtc, text, device->home->arch, &key);
    if (!load_kept(device, &key, kernel))
        status = compile(device, text, &key, kernel, diag);
    hd_text_free(&key);
    HD_TRY(status);
    HD_CUDA_TRY(device, diag, module_function, &kernel->function,
                kernel->module, HD_KERNEL_NAME);
    return HD_OK;
}

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 14695981039346656037u;

    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211u;
    return hash;
}

static kernel *find_kernel(hd_cuda_kernels *all, const char *text,
                           uint64_t hash)
{
    for (int i = 0; i < all->n; i++) {
        if (all->kernel[i]->hash == hash &&
            strcmp(all->kernel[i]->text, text) == 0)
            return all->kernel[i];
    }
    return NULL;
}

static void unload(const hd_cuda_home *home, kernel *kernel)
{
    if (kernel->module != NULL)
        home->cu.module_unload(kernel->module);
    free(kernel->text);
    free(kernel);
}

// Those that were unused for longest.
static void unload_unused(const hd_cuda_home *home)
{
    hd_cuda_kernels *all = home->kernels;
    int unused = 0, kept = 0;

    for (int i = 0; i < all->n; i++)
        unused += all->kernel[i]->users == 0;
    for (int i = 0; i < all->n; i++) {
        kernel *kernel = all->kernel[i];

        if (kernel->users == 0 && unused-- > UNUSED_MOST)
            unload(home, kernel);
        else
            all->kernel[kept++] = kernel;
    }
    all->n = kept;
}

// One that cannot be loaded is not kept.
static hd_status add_kernel(hd_device *device, const char *text, uint64_t hash,
                            hd_diag *diag, kernel **out)
{
    hd_cuda_kernels *all = device->home->kernels;
    kernel *kernel;
    hd_status status;

    unload_unused(device->home);
    kernel = calloc(1, sizeof *kernel);
    if (kernel != NULL) {
        kernel->text = strdup(text);
        kernel->hash = hash;
    }
    if (kernel == NULL || kernel->text == NULL ||
        !hd_cuda_grow((void **)&all->kernel, all->n, &all->room,
                      sizeof *all->kernel)) {
        free(kernel != NULL ? kernel->text : NULL);
        free(kernel);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a kernel");
    }
    status = load(device, text, kernel, diag);
    if (status != HD_OK) {
        unload(device->home, kernel);
        return status;
    }
    *out = all->kernel[all->n++] = kernel;
    return HD_OK;
}

// The session uses it until it ends.
static hd_status use(hd_device *device, kernel *kernel, hd_diag *diag)
{
    for (int i = 0; i < device->nkernels; i++) {
        if (device->kernel[i] == kernel)
            return HD_OK;
    }
    if (!hd_cuda_grow((void **)&device->kernel, device->nkernels,
                      &device->kernel_room, sizeof *device->kernel))
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a kernel");
    device->kernel[device->nkernels++] = kernel;
    kernel->users++;
    return HD_OK;
}

static hd_status get_kernel(hd_device *device, const char *text, hd_diag *diag,
                            hd_cu_function *out)
{
    hd_cuda_home *home = device->home;
    uint64_t hash = hash_of(text);
    kernel *kernel;

    if (home->kernels == NULL)
        home->kernels = calloc(1, sizeof *home->kernels);
    if (home->kernels == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for kernels");
    kernel = find_kernel(home->kernels, text, hash);
    if (kernel == NULL)
        HD_TRY(add_kernel(device, text, hash, diag, &kernel));
    HD_TRY(use(device, kernel, diag));
    *out = kernel->function;
    return HD_OK;
}

static void move_last(hd_cuda_kernels *all, kernel *kernel)
{
    int i = 0;

    while (all->kernel[i] != kernel)
        i++;
    memmove(&all->kernel[i], &all->kernel[i + 1],
            sizeof *all->kernel * (size_t)(all->n - i - 1));
    all->kernel[all->n - 1] = kernel;
}

void hd_cuda_kernels_leave(hd_device *device)
{
    if (device->nkernels > 0) {
        pthread_mutex_lock(&device->home->making);
        for (int i = 0; i < device->nkernels; i++) {
            device->kernel[i]->users--;
            move_last(device->home->kernels, device->kernel[i]);
        }
        pthread_mutex_unlock(&device->home->making);
    }
    free(device->kernel);
    device->kernel = NULL;
    device->nkernels = 0;
}

hd_status hd_cuda_kernel(hd_device *device, const char *text, hd_diag *diag,
                         hd_cu_function *out)
{
    hd_status status;

    pthread_mutex_lock(&device->home->making);
    status = get_kernel(device, text, diag, out);
    pthread_mutex_unlock(&device->home->making);
    return status;
}

void hd_cuda_kernels_close(hd_cuda_home *home)
{
    hd_cuda_kernels *all = home->kernels;

    if (all == NULL)
        return;
    for (int i = 0; i < all->n; i++)
        unload(home, all->kernel[i]);
    hd_nvrtc_close(all->nvrtc);
    free(all->kernel);
    free(all);
}
