// See tune.h.
#include <heddle/tune.h>

#include "choose.h"
#include "tune.h"

#include <stdio.h>

typedef struct tuning {
    const hd_module *module;
    const hd_tune_options *how;
    hd_diag *diag;
    hd_tuned *tuned; // that all processes see
} tuning;

static hd_status tune_rank(void *context, hd_group *group)
{
    const tuning *tuning = context;
    hd_tuned tuned = HD_EMPTY(hd_tuned);
    hd_status status =
        hd_tune(group, tuning->module, tuning->how, tuning->diag, &tuned);

    if (status == HD_OK)
        *tuning->tuned = tuned; // the same from all
    return status;
}

static outcome tune_all(const char *path, tuning *tuning, const hd_place *place)
{
    const hd_session_options *session = tuning->how->session;
    int ranks = info_of(tuning->module).ranks;
    hd_status status;

    fflush(stdout); // ranks must not have it to print again
    if (place)
        status =
            hd_join(place, session->timeout, tune_rank, tuning, tuning->diag);
    else // what takes longer is stuck
        status = hd_launch(ranks, session->timeout,
                           tuning->how->seconds + 10 * session->timeout,
                           tune_rank, tuning, tuning->diag);
    return tell(tuning->diag, status, path);
}

static void show_tuned(const char *path, const hd_tuned *tuned,
                       const hd_machine *machine)
{
    char flags[CHOOSE_FLAGS];

    if (tuned->tried == 0) {
        choose_tell(path, &tuned->lower, tuned->predicted, machine, "");
        return;
    }
    choose_flags(&tuned->lower, flags);
    put_line(stderr,
             "%s: tuned:%s: %.1f us, the fastest of %d (slowest %.1f)%s; %.1f "
             "us predicted on %s",
             program_name(path), flags, tuned->time * 1e6, tuned->tried,
             tuned->slowest * 1e6, tuned->kept ? ", as measured before" : "",
             tuned->predicted * 1e6, machine->name);
}

// On CUDA products are tuned besides.
void tune_in_vain(const program_options *options,
                  const hd_session_options *session, const char *why)
{
    if (!options->quiet && !session->tune)
        complain(FINE, "--tune has no effect: %s", why);
}

static outcome tune_module(const char *path, const hd_module *module,
                           program_options *options,
                           const hd_session_options *session,
                           const hd_place *place)
{
    hd_tune_options how = hd_tune_defaults();
    hd_choose_options choose = hd_choose_defaults();
    tuning tuning = {.module = module, .how = &how, .diag = need_diag()};
    hd_machine machine;
    outcome result = choose_machine(options, &machine);

    choose.machine = &machine;
    choose.lower = &options->lower;
    choose.parts = options->parts;
    how.choose = &choose;
    how.session = session;
    tuning.tuned = memory_pages(sizeof *tuning.tuned, true);
    if (!tuning.tuned)
        out_of_memory();
    if (result == FINE)
        result = tune_all(path, &tuning, place);
    if (result == FINE && !options->quiet)
        show_tuned(path, tuning.tuned, &machine);
    if (result == FINE && tuning.tuned->tried == 0)
        tune_in_vain(options, session, "no two pipelines of it could be run");
    if (result == FINE)
        options->lower = tuning.tuned->lower;
    memory_free(tuning.tuned, sizeof *tuning.tuned);
    hd_diag_destroy(tuning.diag);
    return result;
}

outcome tune_best(const char *path, const content *text,
                  program_options *options, const hd_session_options *session,
                  const hd_place *place, bool *chosen)
{
    hd_module *module = NULL;
    outcome result = FINE;

    *chosen = choose_has(path, text, options, &module);
    if (!*chosen)
        return FINE;
    result = tune_module(path, module, options, session, place);
    hd_module_destroy(module);
    return result;
}
