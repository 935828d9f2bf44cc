// heddle dump: the program as text, at any stage.
#include "choose.h"
#include "commands.h"

#include <stdlib.h>
#include <string.h>

enum { STAGE = 1, DUMP_AFTER, RANK, OUTPUT };

static const char *const stages[] = {"tensor", "reshard", "stream", "transfer",
                                     "event",  "host",    "steps"};
enum { STEPS = 6 };
static const char *const passes[] = {"reshard", "stream", "transfer",
                                     "event",   "place",  "all"};

typedef struct dump {
    const char *path;
    program_options options;
    int stage;         // hd_stage, or STEPS
    const char *after; // a pass, "all", or NULL
    int64_t rank;      // -1: all
    const char *output;
    hd_diag *diag;
    FILE *text;      // what is to be written
    bool hook_ran;   // the pass named by `after` did
    bool hook_empty; // memory ran out in a hook
} dump;

static outcome take_name(const options *at, const char *const *names, size_t n,
                         size_t *out)
{
    const char *guess;

    for (*out = 0; *out < n; ++*out)
        if (strcmp(at->value, names[*out]) == 0)
            return FINE;
    guess = nearest(at->value, names, n);
    if (guess)
        return complain(USAGE, "%s: unknown name '%s'; did you mean '%s'?",
                        at->word, at->value, guess);
    return complain(USAGE,
                    "%s: unknown name '%s'; heddle dump --help lists them",
                    at->word, at->value);
}

static outcome take_option(dump *dump, const options *at, int id)
{
    size_t found;

    switch (id) {
    case OPTIONS_OPERAND:
        if (dump->path)
            return complain(USAGE, "dump takes one file, and '%s' is a second",
                            at->value);
        dump->path = at->value;
        return FINE;
    case STAGE:
        TRY(take_name(at, stages, 7, &found));
        dump->stage = (int)found;
        return FINE;
    case DUMP_AFTER:
        TRY(take_name(at, passes, 6, &found));
        dump->after = passes[found];
        return FINE;
    case RANK:
        if (!parse_integer(at->value, 0, HD_MAX_RANKS - 1, &dump->rank))
            return complain(USAGE, "--rank: '%s' is not a number from 0 to %d",
                            at->value, HD_MAX_RANKS - 1);
        return FINE;
    case OUTPUT:
        dump->output = at->value;
        return FINE;
    default:
        return program_option(&dump->options, at, id);
    }
}

static outcome print_module(dump *dump, const hd_module *module)
{
    char *text;
    hd_status status = hd_print(module, &text);

    if (status != HD_OK)
        return complain(FAILED, "%s: %s", dump->path, hd_status_text(status));
    fputs(text, dump->text);
    hd_free(text);
    return FINE;
}

static void print_after(void *context, const char *pass,
                        const hd_module *module)
{
    dump *dump = context;

    if (!dump->after ||
        (strcmp(dump->after, "all") != 0 && strcmp(dump->after, pass) != 0))
        return;
    fprintf(dump->text, "%s// after %s\n", dump->hook_ran ? "\n" : "", pass);
    dump->hook_ran = true;
    if (print_module(dump, module) != FINE)
        dump->hook_empty = true;
}

static outcome print_rank(dump *dump, const hd_module *module, int rank)
{
    char *text;
    hd_status status = hd_print_steps(module, rank, dump->diag, &text);

    TRY(tell(dump->diag, status, dump->path));
    fputs(text, dump->text);
    hd_free(text);
    return FINE;
}

static outcome print_steps(dump *dump, const hd_module *module)
{
    int ranks = hd_module_ranks(module);

    if (dump->rank >= ranks)
        return complain(USAGE, "--rank %d: %s has ranks 0 to %d",
                        (int)dump->rank, program_name(dump->path), ranks - 1);
    if (dump->rank >= 0)
        return print_rank(dump, module, (int)dump->rank);
    for (int rank = 0; rank < ranks && !ferror(dump->text); rank++) {
        fprintf(dump->text, "%s// rank %d\n", rank ? "\n" : "", rank);
        TRY(print_rank(dump, module, rank));
    }
    return FINE;
}

static outcome lower(dump *dump, hd_module *module)
{
    hd_lower_options *options = &dump->options.lower;
    hd_status status;

    options->until =
        dump->stage == STEPS ? HD_STAGE_HOST : (hd_stage)dump->stage;
    if (hd_module_stage(module) > options->until)
        return complain(WRONG, "%s is already past stage '%s'",
                        program_name(dump->path), stages[dump->stage]);
    status = hd_lower(module, options, print_after, dump, dump->diag);
    TRY(tell(dump->diag, status, dump->path));
    return dump->hook_empty ? FAILED : FINE;
}

static outcome print_program(dump *dump, hd_module *module)
{
    TRY(lower(dump, module));
    if (dump->after && !dump->hook_ran)
        return complain(WRONG, "--dump-after %s: no such pass ran on %s",
                        dump->after, program_name(dump->path));
    if (dump->after)
        return FINE;
    if (dump->stage == STEPS)
        return print_steps(dump, module);
    return print_module(dump, module);
}

// What was printed before an error helps to find it, but a file is whole or
// not there.
static outcome write_program(dump *dump, hd_module *module, sink *sink)
{
    outcome result, written;

    TRY(sink_open(dump->output, sink));
    dump->text = sink_stream(sink);
    if (!dump->text)
        return WRONG;
    result = print_program(dump, module);
    written = sink_end(sink, dump->text);
    TRY(result);
    TRY(written);
    return sink_commit(sink);
}

static outcome open_program(dump *dump, hd_module **out)
{
    content text;
    outcome result;

    TRY(program_read(dump->path, &text));
    result = choose_best(dump->path, &text, &dump->options);
    if (result == FINE)
        result =
            program_parse(dump->path, &text, &dump->options, dump->diag, out);
    content_close(&text);
    return result;
}

static outcome dump_program(dump *dump)
{
    sink sink = {.fd = -1};
    hd_module *module = NULL;
    outcome result;

    TRY(open_program(dump, &module));
    result = write_program(dump, module, &sink);
    sink_discard(&sink);
    hd_module_destroy(module);
    return result;
}

static outcome check_usage(const dump *dump)
{
    if (!dump->path)
        return complain(USAGE, "dump needs a file; - is standard input");
    if (dump->rank >= 0 && dump->stage != STEPS)
        return complain(USAGE, "--rank needs --stage steps");
    if (dump->after && dump->stage == STEPS)
        return complain(USAGE, "--dump-after and --stage steps exclude "
                               "each other");
    TRY(output_spares("-o", dump->output, dump->options.machine));
    return output_spares("-o", dump->output, dump->path);
}

static outcome take_options(dump *dump, options *at)
{
    int id;

    while ((id = options_next(at)) != OPTIONS_END)
        TRY(take_option(dump, at, id));
    program_heed_machine(&dump->options);
    return check_usage(dump);
}

static outcome run_dump(const command *command, int argc, char **argv)
{
    dump dump = {.stage = HD_STAGE_HOST, .rank = -1, .output = "-"};
    options at = {.command = command, .argc = argc, .argv = argv};
    outcome result;

    program_options_init(&dump.options);
    dump.diag = need_diag();
    result = take_options(&dump, &at);
    if (result == FINE)
        result = dump_program(&dump);
    hd_diag_destroy(dump.diag);
    program_options_free(&dump.options);
    return result;
}

const command dump_command = {
    .name = "dump",
    .operands = "FILE",
    .summary = "Prints a program at a stage of its lowering; - is standard "
               "input.",
    .about = "What is printed parses back, and goes on from that stage.\n",
    .options =
        {
            {STAGE, 0, "stage", "NAME",
             "tensor, reshard, stream, transfer, event, host\n"
             "or steps, the list that each rank issues\n(default host)"},
            {DUMP_AFTER, 0, "dump-after", "PASS",
             "print what reshard, stream, transfer, event,\n"
             "place or all of them leave"},
            {RANK, 0, "rank", "R", "of --stage steps: this rank alone"},
            {OUTPUT, 'o', "output", "FILE", "write there (default -)"},
            PROGRAM_TRANSPORT_OPTION,
            PROGRAM_OPTIONS,
            {0, 0, NULL, NULL, NULL},
        },
    .run = run_dump,
};
