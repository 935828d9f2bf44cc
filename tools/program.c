// Programs from files, and the options that every command takes for them.
#include <heddle/environment.h>

#include "program.h"

#include <ctype.h>
#include <heddle/call.h>
#include <stdlib.h>
#include <string.h>

void program_options_init(program_options *options)
{
    *options = (program_options){.lower = hd_lower_defaults()};
    options->lower.asked = 0; // what the command line names, and no more
    options->lower.transport = HD_TRANSPORT_AUTO;
}

void program_options_free(program_options *options)
{
    for (size_t i = 0; i < options->ndefines; i++)
        free((char *)options->defines[i].name);
    free(options->defines);
    memset(options, 0, sizeof *options);
}

void program_define(program_options *options, const char *name, int64_t value)
{
    hd_define *defines;

    for (size_t i = 0; i < options->ndefines; i++)
        if (strcmp(options->defines[i].name, name) == 0) {
            options->defines[i].value = value;
            return;
        }
    defines = need(options->ndefines + 1, sizeof *defines);
    if (options->ndefines > 0)
        memcpy(defines, options->defines, options->ndefines * sizeof *defines);
    free(options->defines);
    defines[options->ndefines++] = (hd_define){need_format("%s", name), value};
    options->defines = defines;
}

const char *program_define_value(const char *word)
{
    const char *equals = strchr(word, '=');

    if (equals && equals > word)
        return equals + 1;
    complain(USAGE, "-D needs NAME=VALUE, not '%s'", word);
    return NULL;
}

outcome program_read_define(const char *word, const char *value, int64_t *out)
{
    return parse_integer(value, INT64_MIN, INT64_MAX, out)
               ? FINE
               : complain(USAGE, "-D %s: '%s' is not an integer of 64 bits",
                          word, value);
}

static outcome take_define(void *to, const char *option, const char *word)
{
    const char *text = program_define_value(word);
    char *name;
    int64_t value = 0;

    (void)option; // by its letter, however it was written
    if (!text)
        return USAGE;
    TRY(program_read_define(word, text, &value));
    name = need_format("%.*s", (int)(text - 1 - word), word);
    program_define(to, name, value);
    free(name);
    return FINE;
}

const char *const program_transfers[] = {PROGRAM_TRANSFERS, NULL};

static outcome take_transfer(void *to, const char *word, const char *value)
{
    program_options *options = to;
    int kind;

    TRY(option_choose(word, value, program_transfers, &kind));
    options->lower.transfer = (hd_transfer)kind;
    return FINE;
}

// Which axes there are the program says.
static outcome take_transport(void *to, const char *option, const char *word)
{
    hd_lower_options *lower = to;
    char known[64] = "";
    const char *name;

    for (int i = HD_TRANSPORT_COPY;
         (name = hd_transport_text((hd_transport)i)) != NULL; i++) {
        if (strcmp(word, name) == 0) {
            lower->transport = (hd_transport)i;
            return FINE;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
                 *known ? ", " : "", name);
    }
    if (!strchr(word, '='))
        return complain(USAGE,
                        "%s: '%s' is none of %s, and no list such as "
                        "node=nccl,tp=copy",
                        option, word, known);
    lower->axes = word;
    return FINE;
}

// What was asked for, and not only meant by default, may be warned of.
#define ASKS(bit) .marks = offsetof(program_options, lower.asked), .mark = bit

const option program_define_option[] = {
    {TAKEN, "define", "NAME=VALUE",
     "set a parameter or the size of a mesh axis;\nmay be repeated",
     .letter = 'D', .take = take_define},
    {.name = NULL},
};

const option program_transfer_option[] = {
    {TAKEN, "transfer", "KIND",
     "bulk, pipelined, broadcast, direct, ring,\nfused, or auto, what is "
     "predicted to be fastest\nwith the other options (the default)",
     .choices = program_transfers, .take = take_transfer,
     ASKS(HD_OPTION_TRANSFER)},
    {.name = NULL},
};

const option program_transport_option[] = {
    {TAKEN, "transport", "NAME",
     "between CUDA devices: copy (engines) or sm\n(kernels), through CUDA IPC, "
     "or nccl; or by axis,\nnode=nccl,tp=copy. The default is copy within "
     "a\nhost, nccl between hosts",
     INTO(program_options, lower), .take = take_transport},
    {.name = NULL},
};

const char *const program_protocols[] = {"put", "get", NULL};
const char *const program_wires[] = {"result", "f32", NULL};

const option program_lower_options[] = {
    {CHOICE, "protocol", "KIND",
     "put: the sender writes; get: the receiver\nreads (default put)",
     INTO(program_options, lower.protocol), .choices = program_protocols,
     ASKS(HD_OPTION_PROTOCOL)},
    {NUMBER, "streams", "N",
     "work streams of a pipelined loop, 1 to 64\n(default 2 where the transfer "
     "is named)",
     INTO(program_options, lower.streams), .low = 1, .high = 64,
     ASKS(HD_OPTION_STREAMS)},
    {NUMBER, "chunks", "N",
     "chunks a shard travels in, 1 to 4096 (default 1\nwhere the transfer is "
     "named)",
     INTO(program_options, lower.chunks), .low = 1, .high = 4096,
     ASKS(HD_OPTION_CHUNKS)},
    {FLAG, "copy-own", NULL,
     "copy the local shard instead of computing on\nit in place",
     INTO(program_options, lower.copy_own), ASKS(HD_OPTION_COPY_OWN)},
    {FLAG, "defer-sends", NULL, "wait for sends at the end of the loop",
     INTO(program_options, lower.defer_sends), ASKS(HD_OPTION_DEFER_SENDS)},
    {FLAG, "comm-stream", NULL,
     "transfers on one more stream, before what\ncomputes",
     INTO(program_options, lower.comm_stream), ASKS(HD_OPTION_COMM_STREAM)},
    {FLAG, "launch", NULL,
     "products of a pipeline as one launch, on one\nstream, with --comm-stream",
     INTO(program_options, lower.launch), ASKS(HD_OPTION_LAUNCH)},
    {CHOICE, "wire", "DTYPE",
     "what a ring's partial sums travel as: result\n(the dtype of the result, "
     "the default of a named ring) or f32",
     INTO(program_options, lower.wire), .choices = program_wires,
     ASKS(HD_OPTION_WIRE)},
    {TEXT, "machine", "FILE",
     "what the device at hand costs, for --transfer\nauto and simulate "
     "(default 8 x H200)",
     INTO(program_options, machine)},
    {.name = NULL},
};

bool program_parts(const char *device, bool graph)
{
    return strcmp(device, "cuda") != 0 || graph;
}

const char *program_name(const char *path)
{
    return is_dash(path) ? "<stdin>" : path;
}

outcome program_read(const char *path, content *text)
{
    return content_open(path, PROGRAM_LIMIT, text);
}

outcome program_parse(const char *path, const content *text,
                      const program_options *options, hd_diag *diag,
                      hd_module **out)
{
    hd_status status = hd_parse(path, (const char *)text->bytes, text->length,
                                options->defines, options->ndefines, diag, out);

    return tell(diag, status, path);
}

// To the next word or mark, past blanks and comments.
static const char *skip_blanks(const char *at, const char *past)
{
    while (at < past) {
        if (past - at > 1 && at[0] == '/' && at[1] == '/')
            while (at < past && *at != '\n')
                at++;
        else if (isspace((unsigned char)*at))
            at++;
        else
            break;
    }
    return at;
}

// How long that is: `==` is one mark.
static size_t measure(const char *at, const char *past)
{
    const char *end = at;

    while (end < past && (isalnum((unsigned char)*end) || *end == '_'))
        end++;
    if (end == at)
        end += past - at > 1 && at[1] == '=' ? 2 : 1;
    return (size_t)(end - at);
}

static bool is_token(const char *at, size_t length, const char *text)
{
    return length == strlen(text) && memcmp(at, text, length) == 0;
}

// What stands ahead of the body: `param NAME`, or an axis, `NAME=`.
bool program_declares(const content *text, const char *name)
{
    const char *at = (const char *)text->bytes, *past = at + text->length;
    bool of_param = false, named = false;
    size_t length;

    at = skip_blanks(at, past);
    for (; at < past && *at != '{'; at = skip_blanks(at + length, past)) {
        length = measure(at, past);
        if (named && is_token(at, length, "="))
            return true;
        named = is_token(at, length, name);
        if (named && of_param)
            return true;
        of_param = is_token(at, length, "param");
    }
    return false;
}

outcome program_check_calls(const char *path, const hd_module *module)
{
    hd_call_info call = HD_EMPTY(hd_call_info);

    if (!hd_module_call(module, 0, &call))
        return FINE;
    return complain(WRONG,
                    "%s:%d: call \"%s\": the command line has no functions "
                    "that programs call; a program of yours gives them to its "
                    "session",
                    program_name(path), call.line, call.name);
}

hd_check_options program_check_options(const program_options *options)
{
    hd_check_options check = hd_check_defaults();

    check.transport = options->lower.transport;
    check.axes = options->lower.axes;
    return check;
}

hd_status program_simulate(const program_options *options,
                           const hd_machine *machine, const hd_module *module,
                           hd_diag *diag, hd_simulation **out)
{
    hd_simulate_options how = hd_simulate_defaults();

    how.machine = machine;
    how.transport = options->lower.transport;
    how.axes = options->lower.axes;
    return hd_simulate_over(module, &how, diag, out);
}

hd_status program_judge(const hd_session *session, const hd_module *module,
                        hd_diag *diag)
{
    hd_check_options how = hd_check_defaults();
    hd_stats stats = HD_EMPTY(hd_stats);

    hd_session_stats(session, &stats);
    how.axes = stats.transport;
    return strstr(stats.transport, "nccl") ? hd_check(module, &how, diag)
                                           : HD_OK;
}

hd_diag *need_diag(void)
{
    hd_diag *diag = hd_diag_create();

    if (!diag)
        out_of_memory();
    return diag;
}
