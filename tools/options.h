// The command line as rows: what an option is called, what its value may be and
// where it goes. The parser, --help and tools/pages read the same rows.
#ifndef HD_TOOLS_OPTIONS_H
#define HD_TOOLS_OPTIONS_H

#include "tool.h"

typedef enum option_kind {
    FLAG,   // a bool; there is no value
    NUMBER, // an int or an int64_t, from `low` to `high`
    REAL,   // a double above 0, at most `high`
    CHOICE, // an int or an enum: which of `choices`
    LIST,   // bools: those of `choices` that are listed, "ring,direct"
    TEXT,   // a const char *
    OUTPUT, // as TEXT: a file that can be written
    TAKEN,  // whatever `take` makes of it
} option_kind;

typedef struct option {
    option_kind kind;
    const char *name;  // the long name, without dashes; NULL ends the rows
    const char *value; // what stands for its value in help; NULL for a flag
    const char *help;
    char letter;     // 0 if it has none
    size_t to, size; // the member that is set: see INTO
    int64_t low, high;
    // NULL ends them. Those of TAKEN are what a shell completes, and may not be
    // all.
    const char *const *choices;
    // `word` is the option as it was written, for messages.
    outcome (*take)(void *to, const char *word, const char *value);
    size_t marks;  // where an unsigned keeps `mark`, if that is not 0, of an
    unsigned mark; // option that was given
} option;

#define INTO(type, member) \
    .to = offsetof(type, member), .size = sizeof((type){0}.member)

// Rows whose members are those of a struct that lies at `at` in the command's.
typedef struct option_group {
    const option *rows;
    size_t at;
} option_group;

enum { MAX_GROUPS = 6, MAX_OPTIONS = 48 };

typedef struct command {
    const char *name;
    const char *operands; // "FILE", "[FILE]", "FILE..." or "", as help shows it
    const char *summary;  // one line
    const char *about;    // what --help says under the summary
    option_group groups[MAX_GROUPS]; // in the order of --help
    // NULL, or prints what its operand may be, for shells to complete: where
    // that is no file.
    void (*words)(void);
    outcome (*run)(const struct command *command, int argc, char **argv);
} command;

// Sets the members of `into`, and moves the operands to the front of `argv`:
// `n` of them, as many as the command takes. Of an option that is given twice
// the last value counts, unless it is one that gathers.
outcome options_take(const command *command, int argc, char **argv, void *into,
                     int *n);
// Of a command that takes one operand: NULL if it was left out.
outcome options_take_one(const command *command, int argc, char **argv,
                         void *into, const char **operand);

// Which of `choices` a value is.
outcome option_choose(const char *word, const char *value,
                      const char *const *choices, int *out);

// The value of --device, for TAKEN. Whether the device is there, the session
// says.
extern const char *const option_devices[];
outcome option_device(void *to, const char *word, const char *value);

// Row `i` of a command, in the order of --help; NULL beyond the last.
const option *command_option(const command *command, size_t i);
void command_help(const command *command);

#endif
