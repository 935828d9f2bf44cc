// What the process's environment says, or hd_set has said in its place.
#ifndef HD_BASE_SETTING_H
#define HD_BASE_SETTING_H

#include <stdbool.h>

#include "base/status.h"

HD_BEGIN_DECLS

typedef struct hd_setting_info {
    const char *name;
    const char *meaning; // NULL for what names a library or is a launcher's
    bool cudas;          // CUDA reads it too: only the environment may set it
} hd_setting_info;

// The list of all that is read; NULL behind its end.
const hd_setting_info *hd_setting_get(int i);
// The value of one of them (a test holds that whatever is read is one), NULL if
// it is not set: until the next hd_set of it.
const char *hd_setting(const char *name);
// What hd_set has said; NULL if nothing.
const char *hd_setting_given(int i);
// Takes `value` over, which is NULL, or malloc's.
void hd_setting_give(int i, char *value);

HD_END_DECLS

#endif
