// Machine files: what the simulator asks of a machine, as JSON.
#ifndef HD_TOOLS_MACHINE_H
#define HD_TOOLS_MACHINE_H

#include <heddle/simulate.h>

#include "tool.h"

// Reads `path`; NULL is the default machine. Every key that is there must be
// known and every key but `matmul`'s must be there.
outcome machine_open(const char *path, hd_machine *out);

#endif
