// A program as dump, check and run take it: a file, what -D sets in it, and how
// it is to be lowered.
#ifndef HD_TOOLS_PROGRAM_H
#define HD_TOOLS_PROGRAM_H

#include "file.h"
#include "options.h"

typedef struct program_options {
    hd_define *defines; // owned
    size_t ndefines;
    hd_lower_options lower;
    bool automatic;      // --transfer auto
    bool quiet;          // another process says what auto chose, and warns
    const char *machine; // borrowed: a file, or NULL for the default
} program_options;

// The rows of a command's table for these options; their ids are beyond those
// of the command's own.
enum {
    PROGRAM_DEFINE = 100,
    PROGRAM_TRANSFER,
    PROGRAM_PROTOCOL,
    PROGRAM_STREAMS,
    PROGRAM_CHUNKS,
    PROGRAM_COPY_OWN,
    PROGRAM_DEFER_SENDS,
    PROGRAM_COMM_STREAM,
    PROGRAM_MACHINE,
    PROGRAM_TRANSPORT,
};

// clang-format off
#define PROGRAM_OPTIONS                                                        \
    {PROGRAM_DEFINE, 'D', "define", "NAME=VALUE",                              \
     "set a parameter or the size of a mesh axis;\nmay be repeated"},          \
    {PROGRAM_TRANSFER, 0, "transfer", "KIND",                                  \
     "bulk, pipelined, broadcast, direct, ring\n(the default), or auto, what " \
     "is predicted to be\nfastest (the default of run and simulate\nwith "     \
     "--machine)"},                                                            \
    {PROGRAM_PROTOCOL, 0, "protocol", "KIND",                                  \
     "put: the sender writes; get: the receiver\nreads (default put)"},        \
    {PROGRAM_STREAMS, 0, "streams", "N",                                       \
     "work streams of a pipelined loop, 1 to 64\n(default 2)"},                \
    {PROGRAM_CHUNKS, 0, "chunks", "N",                                         \
     "chunks a shard travels in, 1 to 4096 (default 1)"},                                 \
    {PROGRAM_COPY_OWN, 0, "copy-own", NULL,                                    \
     "copy the local shard instead of computing on\nit in place"},               \
    {PROGRAM_DEFER_SENDS, 0, "defer-sends", NULL,                              \
     "wait for sends at the end of the loop"},                                 \
    {PROGRAM_COMM_STREAM, 0, "comm-stream", NULL,                              \
     "transfers on one more stream, before what\ncomputes"},                 \
    {PROGRAM_MACHINE, 0, "machine", "FILE",                                    \
     "what the device at hand costs, for --transfer\nauto and simulate "        \
     "(default 8 x H200)"}

// For commands of a program that is to go by certain transports.
#define PROGRAM_TRANSPORT_OPTION                                               \
    {PROGRAM_TRANSPORT, 0, "transport", "NAME",                                \
     "between CUDA devices: copy (engines) or sm\n(kernels), through CUDA "    \
     "IPC, or nccl; or by axis,\nnode=nccl,tp=copy. The default is copy "      \
     "within a\nhost, nccl between hosts"}
// clang-format on

void program_options_init(program_options *options);
void program_options_free(program_options *options);

// Takes the option that options_next just returned.
outcome program_option(program_options *options, const struct options *at,
                       int id);

// Once all options are taken: --machine describes the device at hand, so auto
// is the transfer where none was given.
void program_predict(program_options *options);
// The same of a command that only --transfer auto has a use for --machine in:
// says so where it was not given.
void program_heed_machine(const program_options *options);
// For the transports that it is lowered for.
hd_check_options program_check_options(const program_options *options);
// Where the session, not the command line, has settled on NCCL: whether the
// program runs there.
hd_status program_judge(const hd_session *session, const hd_module *module,
                        hd_diag *diag);

// Bytes of text that the library takes, and one more.
#define PROGRAM_LIMIT ((size_t)16 << 20)

// `text` must outlive nothing: a module does not need it once parsed.
// Sets what -D sets; a name that is set twice has the last value.
void program_define(program_options *options, const char *name, int64_t value);

// As messages name it: standard input has a name of its own.
const char *program_name(const char *path);

outcome program_read(const char *path, content *text);
outcome program_parse(const char *path, const content *text,
                      const program_options *options, hd_diag *diag,
                      hd_module **out);

hd_diag *need_diag(void);

#endif
