// NVRTC by way of its table of symbols; every call is checked, and its name
// stands in the message.
#include "codegen/nvrtc.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"

typedef struct _nvrtcProgram *hd_nvrtc_program;

typedef struct api {
#define HD_NVRTC(symbol, result, name, ...) result (*name)(__VA_ARGS__);
#include "codegen/nvrtc.def"
#undef HD_NVRTC
} api;

struct hd_nvrtc {
    hd_library library;
    api api;
};

static const hd_symbol symbols[] = {
#define HD_NVRTC(symbol, result, name, ...) {#symbol, offsetof(api, name)},
#include "codegen/nvrtc.def"
#undef HD_NVRTC
};

static bool read_version(const void *table, char out[HD_LIBRARY_VERSION])
{
    int major, minor;

    if (((const api *)table)->version(&major, &minor) != 0)
        return false;
    snprintf(out, HD_LIBRARY_VERSION, "%d.%d", major, minor);
    return true;
}

const hd_library_info hd_nvrtc_library = {
    .title = "NVRTC",
    .variable = "HEDDLE_NVRTC_LIB",
    .names = (const char *const[]){"libnvrtc.so.13", "libnvrtc.so.12",
                                   "libnvrtc.so", NULL},
    .folders =
        (const char *const[]){"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", NULL},
    .symbol = symbols,
    .nsymbols = sizeof symbols / sizeof *symbols,
    .bytes = sizeof(api),
    .use = "element-wise and reducing steps on cuda",
    .install = "pip install nvidia-cuda-nvrtc",
    .version = read_version,
    .oldest = "12",
};

static hd_status check(const hd_nvrtc *nvrtc, hd_diag *diag, const char *call,
                       int result)
{
    if (result == 0)
        return HD_OK;
    return hd_fail(diag, HD_ERROR_SYSTEM, "%s of NVRTC %s: %s", call,
                   nvrtc->library.version, nvrtc->api.error_text(result));
}

hd_status hd_nvrtc_open(hd_diag *diag, hd_nvrtc **out)
{
    hd_nvrtc *nvrtc = calloc(1, sizeof *nvrtc);
    hd_status status;

    if (nvrtc == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    status =
        hd_library_open(&hd_nvrtc_library, &nvrtc->api, diag, &nvrtc->library);
    if (status != HD_OK) {
        hd_nvrtc_close(nvrtc);
        return status;
    }
    *out = nvrtc;
    return HD_OK;
}

void hd_nvrtc_close(hd_nvrtc *nvrtc)
{
    if (nvrtc == NULL)
        return;
    hd_library_close(&nvrtc->library);
    free(nvrtc);
}

const char *hd_nvrtc_path(const hd_nvrtc *nvrtc)
{
    return nvrtc->library.path;
}

// ------------------------------------------------------------- compilation

// Functions need no __device__; what the text does not use draws no warning.
// Products are contracted into sums, as numerics.md allows.
static const char *const fixed_options[] = {"-std=c++17", "-default-device",
                                            "-w"};
enum { NFIXED = sizeof fixed_options / sizeof *fixed_options };

void hd_nvrtc_key(const hd_nvrtc *nvrtc, const char *text, const char *arch,
                  hd_text *out)
{
    hd_text_printf(out, "NVRTC %s %s", nvrtc->library.version, arch);
    for (int i = 0; i < NFIXED; i++)
        hd_text_printf(out, " %s", fixed_options[i]);
    hd_text_printf(out, "\n%s", text);
}

// The log's first three lines as one. Empty if there is no log.
static void read_log(const hd_nvrtc *nvrtc, hd_nvrtc_program program,
                     char out[512])
{
    size_t size = 0, n = 0;
    char *log = NULL;
    int nlines = 0;

    out[0] = '\0';
    if (nvrtc->api.log_size(program, &size) != 0 || size == 0)
        return;
    log = calloc(1, size + 1);
    if (log != NULL && nvrtc->api.log(program, log) == 0)
        for (const char *c = log; *c != '\0' && n < 510 && nlines < 3; c++) {
            nlines += *c == '\n';
            out[n++] = (char)(*c == '\n' ? ' ' : *c);
        }
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
    free(log);
}

static hd_status compile(const hd_nvrtc *nvrtc, hd_nvrtc_program program,
                         const char *arch, hd_diag *diag)
{
    char target[64], log[512];
    const char *options[1 + NFIXED] = {target};
    int result;

    memcpy(options + 1, fixed_options, sizeof fixed_options);
    snprintf(target, sizeof target, "--gpu-architecture=%s", arch);
    result = nvrtc->api.compile(program, 1 + NFIXED, options);
    if (result == 0)
        return HD_OK;
    read_log(nvrtc, program, log);
    return hd_fail(diag, HD_ERROR_SYSTEM,
                   "nvrtcCompileProgram of NVRTC %s for %s: %s%s%s",
                   nvrtc->library.version, arch, nvrtc->api.error_text(result),
                   log[0] != '\0' ? ": " : "", log);
}

static hd_status take_cubin(const hd_nvrtc *nvrtc, hd_nvrtc_program program,
                            hd_diag *diag, void **out, size_t *bytes)
{
    size_t size = 0;
    void *cubin;
    hd_status status;

    HD_TRY(check(nvrtc, diag, "nvrtcGetCUBINSize",
                 nvrtc->api.cubin_size(program, &size)));
    if (size == 0)
        return hd_fail(diag, HD_ERROR_SYSTEM,
                       "nvrtcGetCUBINSize of NVRTC %s: no machine code",
                       nvrtc->library.version);
    cubin = malloc(size);
    if (cubin == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    status =
        check(nvrtc, diag, "nvrtcGetCUBIN", nvrtc->api.cubin(program, cubin));
    if (status != HD_OK) {
        free(cubin);
        return status;
    }
    *out = cubin;
    *bytes = size;
    return HD_OK;
}

hd_status hd_nvrtc_compile(const hd_nvrtc *nvrtc, const char *text,
                           const char *arch, hd_diag *diag, void **out,
                           size_t *bytes)
{
    hd_nvrtc_program program = NULL;
    hd_status status;

    HD_TRY(
        check(nvrtc, diag, "nvrtcCreateProgram",
              nvrtc->api.create(&program, text, "kernel.cu", 0, NULL, NULL)));
    status = compile(nvrtc, program, arch, diag);
    if (status == HD_OK)
        status = take_cubin(nvrtc, program, diag, out, bytes);
    (void)nvrtc->api.destroy(&program);
    return status;
}
