// The table of the commands, and the two that tell of it.
#include "commands.h"

#include <string.h>

static outcome run_version(const command *command, int argc, char **argv);
static outcome run_help(const command *command, int argc, char **argv);

static void command_words(void);

const command version_command = {
    .name = "version",
    .operands = "",
    .summary = "Prints the version of the tool and of the text form.",
    .about = "",
    .run = run_version,
};

const command help_command = {
    .name = "help",
    .operands = "[COMMAND]",
    .summary = "Explains a command, or lists them all.",
    .about = "",
    .words = command_words,
    .run = run_help,
};

const command *const commands[] = {
    &dump_command, &fmt_command,     &check_command,   &simulate_command,
    &view_command, &run_command,     &bench_command,   &calibrate_command,
    &env_command,  &explain_command, &version_command, &help_command,
    NULL,
};
enum { NCOMMANDS = sizeof commands / sizeof *commands - 1 };

const char *const outcome_meaning[] = {
    [FINE] = "fine",         [WRONG] = "a program or file is wrong",
    [USAGE] = "usage",       [FAILED] = "the run failed",
    [LATE] = "it timed out", NULL,
};

static void command_words(void)
{
    for (int i = 0; i < NCOMMANDS; i++)
        printf("%s ", commands[i]->name);
}

void command_overview(FILE *to)
{
    fprintf(to,
            "usage: heddle COMMAND [options] [FILE]\n\n"
            "A host-IR compiler and runtime for pipelined communication.\n\n"
            "commands:\n");
    for (int i = 0; i < NCOMMANDS; i++)
        fprintf(to, "  %-9s  %s\n", commands[i]->name, commands[i]->summary);
    fprintf(to, "\n'heddle help COMMAND' explains one, 'heddle explain CODE' "
                "what a message means.\nexit codes:");
    for (int i = 0; outcome_meaning[i]; i++)
        fprintf(to, "%s%d %s",
                i == 0   ? " "
                : i == 3 ? ",\n            "
                         : ", ",
                i, outcome_meaning[i]);
    fputc('\n', to);
}

outcome command_find(const char *name, const command **out)
{
    const char *names[NCOMMANDS];
    const char *guess;

    for (int i = 0; i < NCOMMANDS; i++) {
        names[i] = commands[i]->name;
        if (strcmp(name, names[i]) == 0) {
            *out = commands[i];
            return FINE;
        }
    }
    guess = nearest(name, names, NCOMMANDS);
    if (guess)
        return complain(USAGE, "unknown command '%s'; did you mean '%s'?", name,
                        guess);
    return complain(USAGE, "unknown command '%s'; 'heddle help' lists them",
                    name);
}

static outcome run_version(const command *command, int argc, char **argv)
{
    int n;

    TRY(options_take(command, argc, argv, NULL, &n));
    printf("heddle %s (text form %d)\n", hd_version(), HD_FORMAT);
    return FINE;
}

static outcome run_help(const command *command, int argc, char **argv)
{
    const char *name;

    TRY(options_take_one(command, argc, argv, NULL, &name));
    if (!name) {
        command_overview(stdout);
        return FINE;
    }
    TRY(command_find(name, &command));
    command_help(command);
    return FINE;
}
