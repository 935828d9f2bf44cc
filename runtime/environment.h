// What a machine offers, as JSON text: hd_environment and its parts.
#ifndef HD_RUNTIME_ENVIRONMENT_H
#define HD_RUNTIME_ENVIRONMENT_H

#include <stdint.h>

#include "base/text.h"

HD_BEGIN_DECLS

// JSON, a member at a time: `name` is NULL for an element of an array. What
// came before decides about the comma.
void hd_json_open(hd_text *json, const char *name, char bracket);
void hd_json_close(hd_text *json, char bracket);
// NULL is null. Bytes that are no UTF-8 become question marks.
void hd_json_string(hd_text *json, const char *name, const char *value);
void hd_json_number(hd_text *json, const char *name, int64_t value);
void hd_json_flag(hd_text *json, const char *name, bool value);

// "reason": the words of the first error, and what is done instead unless that
// is NULL. Empties the diag.
void hd_json_reason(hd_text *json, const char *instead, hd_diag *diag);

// The members "cuda", "devices" and "links". Opens the CUDA driver, tries every
// pair of devices, and closes it again.
hd_status hd_environment_cuda(hd_text *json);

HD_END_DECLS

#endif
