// The command line as a table: each command lists its options once, and both
// the parser and --help read that list.
#ifndef HD_TOOLS_OPTIONS_H
#define HD_TOOLS_OPTIONS_H

#include "tool.h"

typedef struct option {
    int id;            // from 1; what options_next returns
    char letter;       // 0 if it has none
    const char *name;  // the long name, without dashes
    const char *value; // what stands for its value in help; NULL for a flag
    const char *help;
} option;

enum { MAX_OPTIONS = 32 };

typedef struct command {
    const char *name;
    const char *operands;        // "FILE", as help shows it
    const char *summary;         // one line
    const char *about;           // what --help says under the summary
    option options[MAX_OPTIONS]; // id 0 ends it
    outcome (*run)(const struct command *command, int argc, char **argv);
} command;

enum { // what options_next returns besides an option's id
    OPTIONS_END = 0,
    OPTIONS_OPERAND = -1, // `value` is the operand
    OPTIONS_WRONG = -2,   // it was said why

};

typedef struct options {
    const command *command;
    int argc;
    char **argv;
    int at;            // the next word
    bool ended;        // `--` was seen
    const char *value; // of the option or operand just returned
    const char *word;  // that option as it was written, for messages
} options;

int options_next(options *options);

// The value of --device: cpu, cuda or cuda:N. Whether the device is there, the
// library says.
outcome options_device(const options *at, const char **out);

void command_help(const command *command);

#endif
