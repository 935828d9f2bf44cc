// What a machine offers: the parts of hd_environment_create.
#ifndef HD_RUNTIME_ENVIRONMENT_H
#define HD_RUNTIME_ENVIRONMENT_H

#include <heddle/environment.h>
#include <heddle/heddle.h>

HD_BEGIN_DECLS

// The words of the first error, and what is done instead unless that is NULL.
// Empties the diag.
void hd_environment_reason(hd_diag *diag, const char *instead,
                           char out[HD_REASON_TEXT]);

// Fills in the driver, devices and links. Opens the CUDA driver, tries every
// pair of devices, and closes it again.
hd_status hd_environment_cuda(hd_environment *environment);

// CUDA's part of hd_environment_kind.
hd_status hd_environment_cuda_kind(hd_diag *diag, hd_env_kind *out);
// A name as part of a file's: letters and digits, others as single dashes.
void hd_environment_slug(const char *name, char *out, size_t size);

HD_END_DECLS

#endif
