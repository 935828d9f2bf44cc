// NVRTC: CUDA C to machine code, in this process, without a GPU.
#ifndef HD_CODEGEN_NVRTC_H
#define HD_CODEGEN_NVRTC_H

#include "base/library.h"
#include "base/text.h"

HD_BEGIN_DECLS

typedef struct hd_nvrtc hd_nvrtc;

extern const hd_library_info hd_nvrtc_library;

hd_status hd_nvrtc_open(hd_diag *diag, hd_nvrtc **out);
void hd_nvrtc_close(hd_nvrtc *nvrtc); // takes NULL
const char *hd_nvrtc_path(const hd_nvrtc *nvrtc);

// Compiles to a cubin for one architecture, "sm_90a"; the caller frees `*out`
// with free(). A compiler's error goes into the diag with its log's first
// lines.
hd_status hd_nvrtc_compile(const hd_nvrtc *nvrtc, const char *text,
                           const char *arch, hd_diag *diag, void **out,
                           size_t *bytes);

// All that a compilation comes out of: two of the same key make the same code.
void hd_nvrtc_key(const hd_nvrtc *nvrtc, const char *text, const char *arch,
                  hd_text *out);

HD_END_DECLS

#endif
