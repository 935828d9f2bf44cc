// heddle dump: the program as text, at any stage.
#include <heddle/simulate.h>

#include "choose.h"
#include "commands.h"
#include "program.h"

#include <stdlib.h>
#include <string.h>

static const char *const stages[] = {"tensor", "place",    "reshard",
                                     "stream", "transfer", "event",
                                     "host",   "steps",    NULL};
static const hd_stage stage_of[] = {
    HD_STAGE_TENSOR,   HD_STAGE_PLACE, HD_STAGE_RESHARD, HD_STAGE_STREAM,
    HD_STAGE_TRANSFER, HD_STAGE_EVENT, HD_STAGE_HOST,    HD_STAGE_HOST};
enum { NO_STAGE = -1, PLACE = 1, RESHARD = 2, HOST = 6, STEPS = 7 };
static const char *const passes[] = {"place",    "reshard", "stream",
                                     "transfer", "event",   "share",
                                     "launch",   "all",     NULL};
enum { EVERY_PASS = 7, NO_PASS = -1 };
static const char *const formats[] = {"text", "json", NULL};
enum { JSON = 1 };

typedef struct dump {
    const char *path;
    program_options options;
    int stage; // of stages, or NO_STAGE
    int after; // of passes, or NO_PASS
    int rank;  // -1: all
    bool why;
    int format; // of formats
    const char *output;
    hd_diag *diag;
    hd_module *module; // owned
    FILE *text;        // what is to be written
    bool hook_ran;     // the pass named by `after` did
    bool hook_empty;   // memory ran out in a hook
} dump;

static outcome print_module(dump *dump, const hd_module *module)
{
    char *text;
    hd_status status = dump->format == JSON ? hd_print_json(module, &text)
                                            : hd_print(module, &text);

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

    if (dump->after == NO_PASS ||
        (dump->after != EVERY_PASS && strcmp(passes[dump->after], pass) != 0))
        return;
    fprintf(dump->text, "%s// after %s\n", dump->hook_ran ? "\n" : "", pass);
    dump->hook_ran = true;
    if (print_module(dump, module) != FINE)
        dump->hook_empty = true;
}

// What a document of one rank's steps has around these.
static const char list_begin[] = "\n\"steps\":[", list_end[] = "]}\n";

// All ranks' documents as one, but for its end: of any but the first what
// stands in its list.
static void join_rank(dump *dump, const char *text, int rank)
{
    const char *from = text;

    if (rank > 0)
        from = strstr(text, list_begin) + strlen(list_begin);
    fputs(rank > 0 ? "," : "", dump->text);
    fwrite(from, 1, strlen(from) - strlen(list_end), dump->text);
}

static outcome print_rank(dump *dump, const hd_module *module, int rank)
{
    char *text;
    hd_status status =
        dump->format == JSON
            ? hd_print_steps_json(module, rank, dump->diag, &text)
            : hd_print_steps(module, rank, dump->diag, &text);

    TRY(tell(dump->diag, status, dump->path));
    if (dump->format == JSON && dump->rank < 0)
        join_rank(dump, text, rank);
    else
        fputs(text, dump->text);
    hd_free(text);
    return FINE;
}

static outcome print_steps(dump *dump, const hd_module *module)
{
    int ranks = info_of(module).ranks;

    if (dump->rank >= 0)
        return print_rank(dump, module, dump->rank);
    for (int rank = 0; rank < ranks && !ferror(dump->text); rank++) {
        if (dump->format != JSON)
            fprintf(dump->text, "%s// rank %d\n", rank ? "\n" : "", rank);
        TRY(print_rank(dump, module, rank));
    }
    fputs(dump->format == JSON ? list_end : "", dump->text);
    return FINE;
}

static outcome lower(dump *dump, hd_module *module)
{
    hd_lower_options *options = &dump->options.lower;
    hd_status status;

    if (info_of(module).stage >
        (options->until == HD_STAGE_PLACE ? HD_STAGE_TENSOR : options->until))
        return complain(WRONG, "%s is already past stage '%s'",
                        program_name(dump->path), stages[dump->stage]);
    if (info_of(module).stage == HD_STAGE_HOST &&
        (options->axes || options->transport != HD_TRANSPORT_AUTO))
        complain(FINE, "--transport has no effect: %s is lowered already",
                 program_name(dump->path));
    status = hd_lower(module, options, print_after, dump, dump->diag);
    TRY(tell(dump->diag, status, dump->path));
    return dump->hook_empty ? FAILED : FINE;
}

// What was printed before an error helps to find it, but a file is whole or
// not there.
static outcome print_program(void *context, FILE *to)
{
    dump *dump = context;
    hd_module *module = dump->module;

    dump->text = to;
    TRY(lower(dump, module));
    if (dump->rank >= info_of(module).ranks)
        return complain(USAGE, "--rank %d: %s has ranks 0 to %d", dump->rank,
                        program_name(dump->path), info_of(module).ranks - 1);
    if (dump->after != NO_PASS && !dump->hook_ran)
        return complain(WRONG, "--dump-after %s: no such pass ran on %s",
                        passes[dump->after], program_name(dump->path));
    if (dump->after != NO_PASS)
        return FINE;
    if (dump->stage == STEPS)
        return print_steps(dump, module);
    return print_module(dump, module);
}

static outcome open_program(dump *dump)
{
    content text;
    outcome result;

    dump->options.lower.until = stage_of[dump->stage];
    dump->options.lower.why = dump->why;
    TRY(program_read(dump->path, &text));
    result = choose_best(dump->path, &text, &dump->options);
    if (result == FINE)
        result = program_parse(dump->path, &text, &dump->options, dump->diag,
                               &dump->module);
    content_close(&text);
    return result;
}

static outcome dump_program(dump *dump)
{
    TRY(open_program(dump));
    return file_print(dump->output, print_program, dump);
}

static outcome check_usage(const dump *dump)
{
    if (dump->options.lower.asked != 0 && dump->stage <= RESHARD &&
        dump->after == NO_PASS)
        complain(FINE,
                 "options of lowering have no effect: --stage %s comes before "
                 "what they decide",
                 stages[dump->stage]);
    if (dump->why && (dump->stage != PLACE || dump->after != NO_PASS ||
                      dump->format == JSON))
        return complain(USAGE, "--why needs --stage place, as text");
    if (dump->rank >= 0 && dump->stage != STEPS)
        return complain(USAGE, "--rank needs --stage steps");
    if (dump->after != NO_PASS && dump->stage == STEPS)
        return complain(USAGE, "--dump-after and --stage steps exclude "
                               "each other");
    if (dump->after != NO_PASS && dump->format == JSON)
        return complain(USAGE, "--dump-after prints text: --format json takes "
                               "a --stage");
    TRY(output_spares("-o", dump->output, dump->options.machine));
    return output_spares("-o", dump->output, dump->path);
}

static outcome run_dump(const command *command, int argc, char **argv)
{
    dump dump = {
        .stage = NO_STAGE, .after = NO_PASS, .rank = -1, .output = "-"};
    outcome result;

    program_options_init(&dump.options);
    dump.diag = need_diag();
    result = options_take_one(command, argc, argv, &dump, &dump.path);
    if (dump.stage == NO_STAGE)
        dump.stage = dump.why ? PLACE : HOST;
    if (result == FINE)
        result = check_usage(&dump);
    if (result == FINE)
        result = dump_program(&dump);
    hd_module_destroy(dump.module);
    hd_diag_destroy(dump.diag);
    program_options_free(&dump.options);
    return result;
}

static const option dump_options[] = {
    {CHOICE, "stage", "NAME",
     "tensor, place, reshard, stream, transfer,\nevent, host or steps, the "
     "list that each rank\nissues (default host)",
     INTO(dump, stage), .choices = stages},
    {CHOICE, "dump-after", "PASS",
     "print what place, reshard, stream, transfer,\nevent, share, launch or "
     "all of them leave",
     INTO(dump, after), .choices = passes},
    {FLAG, "why", NULL,
     "of --stage place, which it means: say of each\nstatement why it is done "
     "so, in comments",
     INTO(dump, why)},
    {NUMBER, "rank", "R", "of --stage steps: this rank alone", INTO(dump, rank),
     .high = HD_MAX_MESH - 1},
    {CHOICE, "format", "NAME", "text (the default) or json", INTO(dump, format),
     .choices = formats},
    {TEXT, "output", "FILE", "write there (default -)", .letter = 'o',
     INTO(dump, output)},
    {.name = NULL},
};

const command dump_command = {
    .name = "dump",
    .operands = "FILE",
    .summary = "Prints a program at a stage of its lowering; - is standard "
               "input.",
    .about = "Text that is printed parses back, and goes on from that stage. "
             "What the JSON\nhas, docs/heddle-dump.schema.json says.\n",
    .groups = {{dump_options, 0}, PROGRAM_GROUPS(dump)},
    .run = run_dump,
};
