// What a machine offers, as JSON.
#ifndef HD_TOOLS_ENV_H
#define HD_TOOLS_ENV_H

#include "json.h"

#include <heddle/environment.h>
#include <heddle/heddle.h>

// The member "libraries" of an object.
void env_libraries(cJSON *in, const hd_environment *environment);

#endif
