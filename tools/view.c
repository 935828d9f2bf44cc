// heddle view: a program, what becomes of it and what is wrong with it, as a
// page to look at.
#include "choose.h"
#include "commands.h"
#include "machine.h"
#include "page.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct view {
    const char *path, *output;
    program_options options;
    hd_machine machine;
    bool complete;
    hd_diag *diag;             // owned
    hd_module *module;         // owned, as the next four; NULL if it is wrong
    char *host;                // what it is lowered to
    hd_simulation *simulation; // of a program that is right
    findings findings;
    links links;
} view;

// ------------------------------------------------------------------ stages

// The same findings again, of the host program's own text: they have places
// there, too.
static void locate(view *v, size_t first, const hd_check_options *how)
{
    hd_diag *diag = need_diag();
    hd_simulation *simulation = NULL;
    hd_module *module = NULL;
    hd_status status =
        hd_parse("host", v->host, strlen(v->host), NULL, 0, diag, &module);

    if (status == HD_OK)
        status = hd_check(module, how, diag);
    if (status == HD_OK)
        status = program_simulate(&v->options, &v->machine, module, diag,
                                  &simulation);
    if (status == HD_OK || status == HD_ERROR_INVALID)
        findings_locate(&v->findings, first, diag);
    hd_simulation_destroy(simulation);
    hd_module_destroy(module);
    hd_diag_destroy(diag);
}

static hd_status lower(view *v)
{
    hd_status status;

    v->complete = info_of(v->module).stage == HD_STAGE_HOST;
    status = hd_lower(v->module, &v->options.lower, NULL, NULL, v->diag);
    if (status == HD_OK)
        return hd_print(v->module, &v->host);
    // It may only be destroyed.
    hd_module_destroy(v->module);
    v->module = NULL;
    return status;
}

static hd_status prove(view *v)
{
    hd_check_options how = program_check_options(&v->options);
    size_t first = hd_diag_count(v->diag);
    hd_status status = hd_check(v->module, &how, v->diag);

    if (status == HD_OK)
        status = program_simulate(&v->options, &v->machine, v->module, v->diag,
                                  &v->simulation);
    v->findings = findings_of(v->diag);
    if (v->findings.n > first)
        locate(v, first, &how);
    return status;
}

// Whether there is something to show: a program, right or wrong.
static bool is_judged(hd_status status)
{
    return status == HD_OK || status == HD_ERROR_INVALID;
}

static hd_status judge(view *v, const content *text)
{
    hd_status linked,
        status = hd_parse(v->path, (const char *)text->bytes, text->length,
                          v->options.defines, v->options.ndefines, v->diag,
                          &v->module);

    if (status == HD_OK)
        status = lower(v);
    if (status != HD_OK) {
        v->findings = findings_of(v->diag);
        return status;
    }
    status = prove(v);
    if (!is_judged(status))
        return status;
    linked = links_make(text, v->host, v->simulation, v->diag, &v->links);
    return linked == HD_OK ? status : linked;
}

// -------------------------------------------------------------------- page

// "; ring, 2 streams, 1 chunk"
static void say_way(const view *v, char *out, size_t room)
{
    const hd_lower_options *lower = &v->options.lower;

    *out = 0;
    if (v->module && !v->complete)
        snprintf(out, room, "; %s, %d stream%s, %d chunk%s",
                 program_transfers[lower->transfer], lower->streams,
                 lower->streams == 1 ? "" : "s", lower->chunks,
                 lower->chunks == 1 ? "" : "s");
}

static outcome print_page(const view *v, const content *text)
{
    hd_prediction prediction = HD_EMPTY(hd_prediction);
    char way[64];
    timeline line = {0};
    page p = {.file = program_name(v->path),
              .source = text,
              .host = v->host,
              .complete = v->complete,
              .way = way,
              .findings = &v->findings,
              .machine = v->machine.name};
    outcome result;

    say_way(v, way, sizeof way);
    if (v->module) {
        p.name = info_of(v->module).name;
        p.ranks = info_of(v->module).ranks;
        p.links = &v->links;
    }
    if (v->simulation) {
        hd_simulation_predict(v->simulation, &prediction);
        p.prediction = &prediction;
        line = timeline_of(v->simulation, p.name, p.ranks);
        line.host = v->links.host;
        p.line = &line;
    }
    result = file_print(v->output, page_print, &p);
    timeline_free(&line);
    return result;
}

static outcome view_text(view *v, const content *text)
{
    hd_status status;
    outcome result;

    TRY(choose_best(v->path, text, &v->options));
    status = judge(v, text);
    result = tell(v->diag, status, v->path);
    return is_judged(status) ? first_wrong(result, print_page(v, text))
                             : result;
}

// ----------------------------------------------------------------- command

static outcome view_file(view *v)
{
    content text;
    outcome result;

    TRY(machine_open(v->options.machine, &v->machine));
    TRY(program_read(v->path, &text));
    result = view_text(v, &text);
    content_close(&text);
    return result;
}

static outcome check_usage(view *v)
{
    if (!v->output && isatty(STDOUT_FILENO))
        return complain(USAGE, "view needs -o FILE: a page is nothing for a "
                               "terminal");
    if (!v->output)
        v->output = "-";
    TRY(output_spares("-o", v->output, v->path));
    return output_spares("-o", v->output, v->options.machine);
}

static void close_view(view *v)
{
    links_free(&v->links);
    findings_free(&v->findings);
    hd_simulation_destroy(v->simulation);
    hd_free(v->host);
    hd_module_destroy(v->module);
    hd_diag_destroy(v->diag);
    program_options_free(&v->options);
}

static outcome run_view(const command *command, int argc, char **argv)
{
    view v = {.diag = need_diag()};
    outcome result;

    program_options_init(&v.options);
    v.options.predicts = true;
    result = options_take_one(command, argc, argv, &v, &v.path);
    if (result == FINE)
        result = check_usage(&v);
    if (result == FINE)
        result = view_file(&v);
    close_view(&v);
    return result;
}

static const option view_options[] = {
    {OUTPUT, "output", "FILE",
     "write there (default -, standard output, if that\nis no terminal)",
     .letter = 'o', INTO(view, output)},
    {.name = NULL},
};

const command view_command = {
    .name = "view",
    .operands = "FILE",
    .summary = "Shows a program, its pipeline and its timeline as a page.",
    .about = "One file of HTML that needs no network: the program beside the "
             "host program that\nit is lowered to, what each rank does in each "
             "trip, when, and what check finds.\nIts exit code is that of "
             "check; of a wrong program there is a page, too.\n",
    .groups = {{view_options, 0}, PROGRAM_GROUPS(view)},
    .run = run_view,
};
