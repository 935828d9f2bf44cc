// See choose.h.
#include "choose.h"

#include "machine.h"

const char *choose_name(hd_transfer transfer)
{
    static const char *const names[] = {PROGRAM_TRANSFERS};

    return names[transfer];
}

bool candidate_get(const hd_choice *choice, size_t i, candidate *out)
{
    *out = (candidate){.lower = hd_lower_defaults(),
                       .prediction = HD_EMPTY(hd_prediction)};
    return hd_choice_candidate(choice, i, &out->lower, &out->prediction,
                               &out->also);
}

typedef struct shown {
    const char *path;
    double start;
    bool any; // something was shown
} shown;

// Of many ranks each takes seconds.
static void show_candidate(void *context, size_t i, size_t n,
                           const hd_lower_options *candidate)
{
    shown *s = context;

    s->any = seconds() - s->start > 1;
    if (s->any)
        progress("%s: predicting %zu of %zu: %s", program_name(s->path), i + 1,
                 n, choose_name(candidate->transfer));
}

outcome choose_all(const char *path, const hd_module *module,
                   const program_options *options, const hd_machine *machine,
                   hd_choice **out)
{
    hd_choose_options choose = hd_choose_defaults();
    shown shown = {.path = path, .start = seconds()};
    hd_diag *diag = need_diag();
    hd_status status;
    outcome result;

    choose.machine = machine;
    choose.lower = &options->lower;
    choose.hook = show_candidate;
    choose.context = &shown;
    status = hd_choose(module, &choose, diag, out);
    if (shown.any)
        progress_end();
    result = tell(diag, status, path);
    hd_diag_destroy(diag);
    return status != HD_OK && status != HD_ERROR_NO_MEMORY
               ? complain(WRONG, "%s: no pipeline fits this program",
                          program_name(path))
               : result;
}

// What was asked for in vain is a warning of lowering's.
static void ask_bulk(const hd_lower_options *given, hd_lower_options *best)
{
    if (best->transfer != HD_TRANSFER_BULK)
        return;
    *best = *given;
    best->transfer = HD_TRANSFER_BULK;
    if (!(given->asked & HD_OPTION_STREAMS))
        best->streams = 1;
    if (!(given->asked & HD_OPTION_CHUNKS))
        best->chunks = 1;
}

static void take_best(const char *path, program_options *options,
                      const hd_machine *machine, const candidate *best)
{
    hd_lower_options lower = best->lower;

    ask_bulk(&options->lower, &lower);
    options->lower = lower;
    options->lower.asked &= ~(unsigned)HD_OPTION_TRANSFER; // it was chosen
    if (options->quiet)
        return;
    put_line(stderr,
             "%s: auto: %s, %d stream%s, %d chunk%s%s: %.1f us predicted on %s",
             program_name(path), choose_name(lower.transfer), lower.streams,
             lower.streams == 1 ? "" : "s", lower.chunks,
             lower.chunks == 1 ? "" : "s",
             lower.comm_stream ? ", transfers on their own" : "",
             best->prediction.time * 1e6, machine->name);
}

static outcome choose_for(const char *path, const hd_module *module,
                          program_options *options)
{
    candidate best;
    hd_choice *choice;
    hd_machine machine;

    TRY(machine_open(options->machine, &machine));
    TRY(choose_all(path, module, options, &machine, &choice));
    candidate_get(choice, 0, &best);
    take_best(path, options, &machine, &best);
    hd_choice_destroy(choice);
    return FINE;
}

outcome choose_best(const char *path, const content *text,
                    program_options *options)
{
    hd_module *module = NULL;
    outcome result = FINE;

    // What does not parse is told when it is parsed in earnest.
    if (!options->automatic ||
        hd_parse(path, (const char *)text->bytes, text->length,
                 options->defines, options->ndefines, NULL, &module) != HD_OK)
        return FINE;
    if (info_of(module).stage != HD_STAGE_HOST)
        result = choose_for(path, module, options);
    hd_module_destroy(module);
    return result;
}
