// See choose.h.
#include "choose.h"

#include "machine.h"

#include <stdio.h>
#include <stdlib.h>

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
                 n, program_transfers[candidate->transfer]);
}

static hd_status choose(const char *path, const hd_module *module,
                        const program_options *options,
                        const hd_machine *machine, hd_diag *diag,
                        hd_choice **out)
{
    hd_choose_options choose = hd_choose_defaults();
    shown shown = {.path = path, .start = seconds()};
    hd_status status;

    choose.machine = machine;
    choose.lower = &options->lower;
    choose.parts = options->parts;
    choose.hook = show_candidate;
    choose.context = &shown;
    status = hd_choose(module, &choose, diag, out);
    if (shown.any)
        progress_end();
    return status;
}

outcome choose_all(const char *path, const hd_module *module,
                   const program_options *options, const hd_machine *machine,
                   hd_choice **out)
{
    hd_diag *diag = need_diag();
    hd_status status = choose(path, module, options, machine, diag, out);
    outcome result = tell(diag, status, path);

    hd_diag_destroy(diag);
    return status != HD_OK && status != HD_ERROR_NO_MEMORY
               ? complain(WRONG, "%s: no pipeline fits this program",
                          program_name(path))
               : result;
}

// What is typed for the same program.
void choose_flags(const hd_lower_options *lower, char out[CHOOSE_FLAGS])
{
    int n = sprintf(out, " --transfer %s", program_transfers[lower->transfer]);

    if (lower->protocol != HD_PROTOCOL_PUT)
        n += sprintf(out + n, " --protocol %s",
                     program_protocols[lower->protocol]);
    n += sprintf(out + n, " --streams %d --chunks %d", lower->streams,
                 lower->chunks);
    n += sprintf(out + n, "%s%s%s%s", lower->copy_own ? " --copy-own" : "",
                 lower->defer_sends ? " --defer-sends" : "",
                 lower->comm_stream ? " --comm-stream" : "",
                 lower->launch ? " --launch" : "");
    if (lower->wire != HD_WIRE_RESULT)
        sprintf(out + n, " --wire %s", program_wires[lower->wire]);
}

void choose_name(const hd_lower_options *lower, char out[CHOOSE_NAME])
{
    sprintf(out, "%s s%d c%d%s%s%s%s", program_transfers[lower->transfer],
            lower->streams, lower->chunks, lower->comm_stream ? " comm" : "",
            lower->defer_sends ? " defer" : "", lower->launch ? " launch" : "",
            lower->wire != HD_WIRE_RESULT ? " wide" : "");
}

void choose_tell(const char *path, const hd_lower_options *lower,
                 double predicted, const hd_machine *machine, const char *then)
{
    char flags[CHOOSE_FLAGS];

    choose_flags(lower, flags);
    put_line(stderr, "%s: auto:%s: %.1f us predicted on %s%s",
             program_name(path), flags, predicted * 1e6, machine->name, then);
}

// The next best that takes longer by what is shown; false if there is none.
static bool find_next(const hd_choice *choice, double best, candidate *out)
{
    for (size_t i = 1; candidate_get(choice, i, out); i++)
        if (out->prediction.time > best * 1.001)
            return true;
    return false;
}

static void show_best(const char *path, const hd_machine *machine,
                      const hd_choice *choice)
{
    candidate best, next;
    char others[CHOOSE_FLAGS];
    char *then = NULL;

    candidate_get(choice, 0, &best);
    if (find_next(choice, best.prediction.time, &next)) {
        choose_flags(&next.lower, others);
        then = need_format("; next%s: %.1f us", others,
                           next.prediction.time * 1e6);
    }
    choose_tell(path, &best.lower, best.prediction.time, machine,
                then ? then : "");
    free(then);
}

static outcome leave_as_it_is(const char *path, const hd_module *module,
                              program_options *options)
{
    options->lower.transfer = HD_TRANSFER_RING;
    if (!options->quiet)
        put_line(stderr,
                 "%s: --transfer ring, as there are %d ranks; auto, which "
                 "predicts all pipelines, takes long",
                 program_name(path), info_of(module).ranks);
    return FINE;
}

outcome choose_machine(const program_options *options, hd_machine *out)
{
    return options->here && !options->machine
               ? machine_here(options->here, out)
               : machine_open(options->machine, out);
}

// What no pipeline fits a ring does not either, and the command says why.
// Where a ring makes the same, auto said nothing.
static bool is_silent(const hd_choice *choice, const candidate *best)
{
    return hd_choice_count(choice) == 1 &&
           (best->lower.transfer == HD_TRANSFER_RING ||
            best->also & 1u << HD_TRANSFER_RING);
}

static outcome choose_for(const char *path, const hd_module *module,
                          program_options *options)
{
    bool asked = options->machine || options->lower.asked & HD_OPTION_TRANSFER;
    candidate best;
    hd_choice *choice;
    hd_machine machine;

    if (!asked && info_of(module).ranks > HD_CHOOSE_RANKS)
        return leave_as_it_is(path, module, options);
    if (!asked && info_of(module).ranks == 1) {
        options->lower.transfer = HD_TRANSFER_RING; // nothing moves
        return FINE;
    }
    TRY(choose_machine(options, &machine));
    if (choose(path, module, options, &machine, NULL, &choice) != HD_OK) {
        options->lower.transfer = HD_TRANSFER_RING;
        return FINE;
    }
    candidate_get(choice, 0, &best);
    if (!options->quiet && (asked || !is_silent(choice, &best)))
        show_best(path, &machine, choice);
    options->lower = best.lower;
    hd_choice_destroy(choice);
    return FINE;
}

bool choose_has(const char *path, const content *text,
                const program_options *options, hd_module **out)
{
    if (options->lower.transfer != HD_TRANSFER_AUTO ||
        options->lower.until <= HD_STAGE_RESHARD ||
        options->lower.until == HD_STAGE_PLACE ||
        hd_parse(path, (const char *)text->bytes, text->length,
                 options->defines, options->ndefines, NULL, out) != HD_OK)
        return false;
    if (info_of(*out).stage < HD_STAGE_TRANSFER)
        return true;
    hd_module_destroy(*out);
    return false;
}

outcome choose_best(const char *path, const content *text,
                    program_options *options)
{
    hd_module *module;
    outcome result;

    if (!choose_has(path, text, options, &module)) {
        if (options->machine && !options->predicts && !options->quiet)
            complain(FINE, "--machine has no effect: nothing is predicted");
        return FINE;
    }
    result = choose_for(path, module, options);
    hd_module_destroy(module);
    return result;
}
