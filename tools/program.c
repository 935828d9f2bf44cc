// Programs from files, and the options that every command takes for them.
#include "program.h"

#include <stdlib.h>
#include <string.h>

static const char *const transfers[] = {"bulk",   "pipelined", "broadcast",
                                        "direct", "ring",      "auto"};
static const char *const protocols[] = {"put", "get"};

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

static outcome take_define(program_options *options, const char *word)
{
    const char *equals = strchr(word, '=');
    char *name;
    int64_t value;

    if (!equals || equals == word)
        return complain(USAGE, "-D needs NAME=VALUE, not '%s'", word);
    if (!parse_integer(equals + 1, INT64_MIN, INT64_MAX, &value))
        return complain(USAGE, "-D %s: '%s' is not an integer of 64 bits", word,
                        equals + 1);
    name = need_format("%.*s", (int)(equals - word), word);
    program_define(options, name, value);
    free(name);
    return FINE;
}

static outcome take_choice(const struct options *at, const char *const *names,
                           size_t n, int *out)
{
    const char *guess;

    for (size_t i = 0; i < n; i++)
        if (strcmp(at->value, names[i]) == 0) {
            *out = (int)i;
            return FINE;
        }
    guess = nearest(at->value, names, n);
    if (guess)
        return complain(USAGE, "%s: unknown kind '%s'; did you mean '%s'?",
                        at->word, at->value, guess);
    return complain(USAGE, "%s: unknown kind '%s'; heddle %s --help lists them",
                    at->word, at->value, at->command->name);
}

static outcome take_count(const struct options *at, int most, int *out)
{
    int64_t value;

    if (!parse_integer(at->value, 1, most, &value))
        return complain(USAGE, "%s: '%s' is not a number from 1 to %d",
                        at->word, at->value, most);
    *out = (int)value;
    return FINE;
}

// Which axes there are the program says.
static outcome take_transport(hd_lower_options *lower, const char *word)
{
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
                        "--transport: '%s' is none of %s, and no list such as "
                        "node=nccl,tp=copy",
                        word, known);
    lower->axes = word;
    return FINE;
}

outcome program_option(program_options *options, const struct options *at,
                       int id)
{
    hd_lower_options *lower = &options->lower;
    int choice = 0;

    switch (id) {
    case PROGRAM_DEFINE:
        return take_define(options, at->value);
    case PROGRAM_TRANSFER:
        options->automatic = strcmp(at->value, "auto") == 0;
        lower->asked |= HD_OPTION_TRANSFER;
        if (options->automatic)
            return FINE;
        TRY(take_choice(at, transfers, 6, &choice));
        lower->transfer = (hd_transfer)choice;
        return FINE;
    case PROGRAM_PROTOCOL:
        lower->asked |= HD_OPTION_PROTOCOL;
        TRY(take_choice(at, protocols, 2, &choice));
        lower->protocol = (hd_protocol)choice;
        return FINE;
    case PROGRAM_STREAMS:
        lower->asked |= HD_OPTION_STREAMS;
        return take_count(at, 64, &lower->streams);
    case PROGRAM_CHUNKS:
        lower->asked |= HD_OPTION_CHUNKS;
        return take_count(at, 4096, &lower->chunks);
    case PROGRAM_COPY_OWN:
        lower->asked |= HD_OPTION_COPY_OWN;
        lower->copy_own = true;
        return FINE;
    case PROGRAM_DEFER_SENDS:
        lower->asked |= HD_OPTION_DEFER_SENDS;
        lower->defer_sends = true;
        return FINE;
    case PROGRAM_COMM_STREAM:
        lower->asked |= HD_OPTION_COMM_STREAM;
        lower->comm_stream = true;
        return FINE;
    case PROGRAM_TRANSPORT:
        return take_transport(lower, at->value);
    case PROGRAM_MACHINE:
        options->machine = at->value;
        return FINE;
    default:
        return USAGE; // options_next has said why
    }
}

void program_predict(program_options *options)
{
    bool given = options->lower.asked & HD_OPTION_TRANSFER;

    options->automatic |= options->machine && !given;
}

void program_heed_machine(const program_options *options)
{
    if (options->machine && !options->automatic)
        complain(FINE, "--machine has no effect without --transfer auto");
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

hd_check_options program_check_options(const program_options *options)
{
    hd_check_options check = hd_check_defaults();

    check.transport = options->lower.transport;
    check.axes = options->lower.axes;
    return check;
}

hd_status program_judge(const hd_session *session, const hd_module *module,
                        hd_diag *diag)
{
    hd_check_options how = hd_check_defaults();
    hd_stats stats;

    hd_session_stats(session, &stats);
    how.axes = stats.transport;
    return strstr(stats.transport, "nccl") ? hd_check_with(module, &how, diag)
                                           : HD_OK;
}

hd_diag *need_diag(void)
{
    hd_diag *diag = hd_diag_create();

    if (!diag)
        out_of_memory();
    return diag;
}
