// A program as dump, check and run take it: a file, what -D sets in it, and how
// it is to be lowered.
#ifndef HD_TOOLS_PROGRAM_H
#define HD_TOOLS_PROGRAM_H

#include <heddle/simulate.h>

#include "file.h"
#include "machine.h"
#include "options.h"

typedef struct program_options {
    hd_define *defines; // owned
    size_t ndefines;
    hd_lower_options lower;
    bool parts;          // launches would go as their parts: auto takes none
    bool predicts;       // the command has a use for a machine in any case
    bool quiet;          // another process says what auto chose, and warns
    const char *machine; // borrowed: a file, or NULL for the default
    at_hand *here;       // borrowed: what is the default where the program is
                         // run; NULL where the shipped one is
} program_options;

// The pipelines, and what stands for a choice among them.
#define PROGRAM_TRANSFERS \
    "bulk", "pipelined", "broadcast", "direct", "ring", "fused", "auto"
// As they are typed: by hd_transfer, hd_protocol and hd_wire_dtype; NULL ends
// each.
extern const char *const program_transfers[], *const program_protocols[],
                                                  *const program_wires[];

// Rows for a command that holds a program_options: of -D with one value, of
// --transfer with one kind, of --transport where a program is to go by certain
// ones, and the others.
extern const option program_define_option[], program_transfer_option[],
    program_transport_option[], program_lower_options[];

// All of them, for a `type` whose program_options are called `options`.
#define PROGRAM_GROUPS(type)                                \
    {program_transport_option, offsetof(type, options)},    \
        {program_define_option, offsetof(type, options)},   \
        {program_transfer_option, offsetof(type, options)}, \
    {                                                       \
        program_lower_options, offsetof(type, options)      \
    }

void program_options_init(program_options *options);
void program_options_free(program_options *options);

// Whether launches of a run go as their parts, whatever it goes by: on the cpu,
// where ranks are all on a device that is numbered, and in graphs.
bool program_parts(const char *device, bool graph);

// For the transports that it is lowered for.
hd_check_options program_check_options(const program_options *options);
hd_status program_simulate(const program_options *options,
                           const hd_machine *machine, const hd_module *module,
                           hd_diag *diag, hd_simulation **out);
// Where the session, not the command line, has settled on NCCL: whether the
// program runs there.
hd_status program_judge(const hd_session *session, const hd_module *module,
                        hd_diag *diag);

// Bytes of text that the library takes, and one more.
#define PROGRAM_LIMIT ((size_t)16 << 20)

// Sets what -D sets; a name that is set twice has the last value.
void program_define(program_options *options, const char *name, int64_t value);

// What follows the "=" of a -D, NAME=VALUE, NULL if it is none; and the number
// that a value is.
const char *program_define_value(const char *word);
outcome program_read_define(const char *word, const char *value, int64_t *out);

// As messages name it: standard input has a name of its own.
const char *program_name(const char *path);

outcome program_read(const char *path, content *text);
// `text` must outlive nothing: a module does not need it once parsed.
outcome program_parse(const char *path, const content *text,
                      const program_options *options, hd_diag *diag,
                      hd_module **out);

// Whether -D may set that name in it, as far as its words tell.
bool program_declares(const content *text, const char *name);

// A program that calls functions is run by who has them.
outcome program_check_calls(const char *path, const hd_module *module);

hd_diag *need_diag(void);

#endif
