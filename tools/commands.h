// The commands; each is the last thing in its own file.
#ifndef HD_TOOLS_COMMANDS_H
#define HD_TOOLS_COMMANDS_H

#include "options.h"

extern const command dump_command;
extern const command check_command;
extern const command simulate_command;
extern const command run_command;
extern const command bench_command;
extern const command env_command;

#endif
