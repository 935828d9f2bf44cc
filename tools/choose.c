// See choose.h.
#include "choose.h"

#include "machine.h"

#include <stdio.h>

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
    choose.parts = options->parts;
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

// Those of `which`, as they are typed.
static void write_options(const hd_lower_options *lower, unsigned which,
                          char out[160])
{
    size_t n = 0;

    *out = 0;
    if (which & HD_OPTION_TRANSFER)
        n += (size_t)sprintf(out + n, " --transfer %s",
                             choose_name(lower->transfer));
    if (which & HD_OPTION_PROTOCOL)
        n +=
            (size_t)sprintf(out + n, " --protocol %s",
                            lower->protocol == HD_PROTOCOL_GET ? "get" : "put");
    if (which & HD_OPTION_STREAMS)
        n += (size_t)sprintf(out + n, " --streams %d", lower->streams);
    if (which & HD_OPTION_CHUNKS)
        n += (size_t)sprintf(out + n, " --chunks %d", lower->chunks);
    if (which & HD_OPTION_COPY_OWN)
        n += (size_t)sprintf(out + n, " --copy-own");
    if (which & HD_OPTION_DEFER_SENDS)
        n += (size_t)sprintf(out + n, " --defer-sends");
    if (which & HD_OPTION_COMM_STREAM)
        n += (size_t)sprintf(out + n, " --comm-stream");
    if (which & HD_OPTION_LAUNCH)
        n += (size_t)sprintf(out + n, " --launch");
    if (which & HD_OPTION_WIRE)
        sprintf(out + n, " --wire %s",
                lower->wire == HD_WIRE_F32 ? "f32" : "result");
}

// Says what is typed for the same program, and what was given in vain.
static void show_best(const char *path, const hd_lower_options *given,
                      const hd_machine *machine, const candidate *best)
{
    const hd_lower_options *lower = &best->lower;
    unsigned shown = HD_OPTION_TRANSFER | HD_OPTION_STREAMS | HD_OPTION_CHUNKS;
    unsigned left =
        given->asked & ~lower->asked & ~(unsigned)HD_OPTION_TRANSFER;
    char flags[160], without[160];

    shown |= lower->protocol == HD_PROTOCOL_GET ? HD_OPTION_PROTOCOL : 0u;
    shown |= lower->copy_own ? HD_OPTION_COPY_OWN : 0u;
    shown |= lower->defer_sends ? HD_OPTION_DEFER_SENDS : 0u;
    shown |= lower->comm_stream ? HD_OPTION_COMM_STREAM : 0u;
    shown |= lower->wire == HD_WIRE_F32 ? HD_OPTION_WIRE : 0u;
    shown |= lower->launch ? HD_OPTION_LAUNCH : 0u;
    write_options(lower, shown, flags);
    write_options(given, left, without);
    put_line(stderr, "%s: auto:%s: %.1f us predicted on %s%s%s",
             program_name(path), flags, best->prediction.time * 1e6,
             machine->name, left ? "; no faster with" : "", without);
}

// Of more ranks predicting all pipelines takes seconds: who wants that asks.
enum { MOST_RANKS = 64 };

static outcome leave_as_it_is(const char *path, const hd_module *module,
                              const program_options *options)
{
    if (!options->quiet)
        put_line(stderr,
                 "%s: --transfer %s, as there are %d ranks; auto, which "
                 "predicts all pipelines, takes long",
                 program_name(path), choose_name(options->lower.transfer),
                 info_of(module).ranks);
    return FINE;
}

static outcome choose_for(const char *path, const hd_module *module,
                          program_options *options)
{
    bool asked = options->machine || options->lower.asked & HD_OPTION_TRANSFER;
    candidate best;
    hd_choice *choice;
    hd_machine machine;

    if (!asked && info_of(module).ranks == 1)
        return FINE; // nothing moves
    if (!asked && info_of(module).ranks > MOST_RANKS)
        return leave_as_it_is(path, module, options);
    TRY(options->here && !options->machine
            ? machine_here(options->here, &machine)
            : machine_open(options->machine, &machine));
    TRY(choose_all(path, module, options, &machine, &choice));
    candidate_get(choice, 0, &best);
    if (!options->quiet && (asked || hd_choice_count(choice) > 1))
        show_best(path, &options->lower, &machine, &best);
    options->lower = best.lower;
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
