// The commands; each is the last thing in its own file but for the two that
// tell of the others.
#ifndef HD_TOOLS_COMMANDS_H
#define HD_TOOLS_COMMANDS_H

#include "options.h"

extern const command dump_command;
extern const command fmt_command;
extern const command check_command;
extern const command simulate_command;
extern const command view_command;
extern const command run_command;
extern const command bench_command;
extern const command calibrate_command;
extern const command env_command;
extern const command explain_command;
extern const command version_command;
extern const command help_command;

extern const command *const commands[]; // NULL ends them

// What each exit code means, by its number; NULL ends them.
extern const char *const outcome_meaning[];

void command_overview(FILE *to);
// The command of that name, or a complaint that may name a similar one.
outcome command_find(const char *name, const command **out);

#endif
