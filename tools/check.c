// heddle check: everything that can be said of a program without running it.
#include <heddle/simulate.h>

#include "choose.h"
#include "commands.h"
#include "json.h"
#include "plain.h"
#include "sweep.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct check {
    char **paths; // borrowed
    int npaths;
    program_options options;
    sweep sweep;
    int waiting_streams;
    const char *against; // a file of a tensor program, or NULL
    content tensor;      // owned: its text
    const content *host; // borrowed: that of the program at hand
    int64_t seed;        // of what --against draws; 0: another one each time
    bool json;
    hd_diag *diag;   // owned: of the program at hand
    cJSON *findings; // owned: what --json prints, one object a program
} check;

// What is said of one program that is fine.
typedef struct summary {
    int ranks;
    int64_t least, most; // steps that a rank issues
    bool first;          // of rank 0 alone: to count others' would take longer
                         // than to prove them all
} summary;

enum { MOST_COUNTED = 1 << 16 }; // steps of all ranks

static hd_status summarize(const hd_module *module, hd_diag *diag, summary *out)
{
    int64_t n = 0, last = 0, all;
    hd_status status = hd_module_steps(module, 0, diag, &n);
    summary zero = {.ranks = info_of(module).ranks, .least = n, .most = n};

    if (status == HD_OK)
        status = hd_module_steps(module, zero.ranks - 1, diag, &last);
    *out = zero;
    all = n;
    for (int rank = 1; rank < zero.ranks && status == HD_OK; rank++) {
        if (all > MOST_COUNTED ||
            (n < last ? last : n) > MOST_COUNTED / zero.ranks) {
            *out = zero;
            out->first = true;
            return HD_OK;
        }
        status = hd_module_steps(module, rank, diag, &n);
        all += n;
        out->least = n < out->least ? n : out->least;
        out->most = n > out->most ? n : out->most;
    }
    return status;
}

// What -D sets in one of two programs: not what the other one alone has. What
// neither has both are given, and refuse.
static hd_define *take_defines(const check *check, const content *text,
                               const content *other, size_t *n)
{
    const program_options *all = &check->options;
    hd_define *own = need(all->ndefines + 1, sizeof *own);

    *n = 0;
    for (size_t i = 0; i < all->ndefines; i++)
        if (!check->against || program_declares(text, all->defines[i].name) ||
            !program_declares(other, all->defines[i].name))
            own[(*n)++] = all->defines[i];
    return own;
}

static hd_status parse_tensor(const check *check, hd_module **out)
{
    size_t n;
    hd_define *own = take_defines(check, &check->tensor, check->host, &n);
    hd_status status =
        hd_parse(check->against, (const char *)check->tensor.bytes,
                 check->tensor.length, own, n, check->diag, out);

    free(own);
    return status;
}

static hd_status check_host(const check *check, const hd_module *module)
{
    hd_check_options how = program_check_options(&check->options);
    hd_module *tensor = NULL;
    hd_status status = HD_OK;

    if (check->against)
        status = parse_tensor(check, &tensor);
    how.waiting_streams = check->waiting_streams;
    how.against = tensor;
    how.seed = (uint64_t)check->seed;
    if (status == HD_OK)
        status = hd_check(module, &how, check->diag);
    hd_module_destroy(tensor);
    return status;
}

static hd_status check_module(const check *check, hd_module *module,
                              summary *out)
{
    hd_status status =
        hd_lower(module, &check->options.lower, NULL, NULL, check->diag);

    if (status == HD_OK)
        status = check_host(check, module);
    return status == HD_OK ? summarize(module, check->diag, out) : status;
}

// ------------------------------------------------------------------- text

// The program, and of several sets of defines which.
static void print_name(const check *check, const char *path, FILE *to)
{
    char *name = need_plain(program_name(path));

    fputs(name, to);
    free(name);
    for (size_t i = 0;
         sweep_count(&check->sweep) > 1 && i < check->options.ndefines; i++) {
        name = need_plain(check->options.defines[i].name);
        fprintf(to, " -D %s=%" PRId64, name, check->options.defines[i].value);
        free(name);
    }
}

static void print_summary(const check *check, const char *path,
                          const summary *s)
{
    print_name(check, path, stdout);
    printf(": ok: %d rank%s, ", s->ranks, s->ranks == 1 ? "" : "s");
    if (s->least != s->most)
        printf("%" PRId64 " to ", s->least);
    printf("%" PRId64 " step%s%s\n", s->most, s->most == 1 ? "" : "s",
           s->first        ? " on rank 0"
           : s->ranks == 1 ? ""
                           : " a rank");
}

static outcome print_program(const check *check, const char *path,
                             hd_status status, const summary *s)
{
    outcome result = tell(check->diag, status, path);

    if (result == FINE)
        print_summary(check, path, s);
    else if (sweep_count(&check->sweep) > 1) {
        print_name(check, path, stderr);
        fprintf(stderr, ": wrong\n");
    }
    return result;
}

// ------------------------------------------------------------------- json

static cJSON *put_message(cJSON *in, const hd_message *m)
{
    static const char *const severities[] = {"error", "warning", "note"};
    cJSON *object = json_object(in, NULL);

    json_text(object, "severity", severities[m->severity]);
    if (*m->code)
        json_text(object, "code", m->code);
    if (m->line > 0) {
        json_text(object, "file", m->file);
        json_number(object, "line", m->line);
        json_number(object, "column", m->column);
    }
    json_text(object, "text", m->text);
    return object;
}

// Notes lie in the finding that they belong to.
static void put_messages(cJSON *findings, const hd_diag *diag)
{
    cJSON *notes = NULL;

    for (size_t i = 0; i < hd_diag_count(diag); i++) {
        hd_message m = HD_EMPTY(hd_message);

        if (!hd_diag_message(diag, i, &m))
            continue;
        if (m.severity == HD_SEVERITY_NOTE && notes)
            put_message(notes, &m);
        else
            notes = json_array(put_message(findings, &m), "notes");
    }
}

static outcome put_program(const check *check, const char *path,
                           hd_status status, const summary *s)
{
    cJSON *object = json_object(check->findings, NULL), *defines;

    json_text(object, "file", program_name(path));
    defines = json_object(object, "defines");
    for (size_t i = 0; i < check->options.ndefines; i++) {
        const hd_define *define = &check->options.defines[i];
        char *name = need_utf8(define->name);

        json_integer(defines, name, define->value);
        free(name);
    }
    json_text(object, "status", hd_status_text(status));
    if (status == HD_OK) {
        json_number(object, "ranks", s->ranks);
        if (!s->first) {
            json_integer(object, "least_steps", s->least);
            json_integer(object, "most_steps", s->most);
        }
    }
    put_messages(json_array(object, "findings"), check->diag);
    hd_diag_clear(check->diag);
    return outcome_of(status);
}

// ---------------------------------------------------------------- command

static outcome check_text(check *check, const char *path,
                          const program_options *options)
{
    summary summary = {0};
    hd_module *module = NULL;
    hd_status status =
        hd_parse(path, (const char *)check->host->bytes, check->host->length,
                 options->defines, options->ndefines, check->diag, &module);

    if (status == HD_OK)
        status = check_module(check, module, &summary);
    hd_module_destroy(module);
    return check->json ? put_program(check, path, status, &summary)
                       : print_program(check, path, status, &summary);
}

static outcome check_combination(check *check, const char *path)
{
    program_options options = check->options;
    hd_lower_options given = options.lower; // also for the next one
    outcome result;

    options.defines =
        take_defines(check, check->host, &check->tensor, &options.ndefines);
    result = choose_best(path, check->host, &options);
    check->options.lower = options.lower;
    if (result == FINE)
        result = check_text(check, path, &options);
    check->options.lower = given;
    free(options.defines);
    return result;
}

// Every combination is checked, whatever became of those before it.
static outcome check_file(check *check, const char *path)
{
    content text;
    outcome worst = FINE;

    TRY(program_read(path, &text));
    check->host = &text;
    for (size_t i = 0; i < sweep_count(&check->sweep); i++) {
        outcome result;

        sweep_define(&check->sweep, i, &check->options);
        result = check_combination(check, path);
        worst = result > worst ? result : worst;
    }
    content_close(&text);
    return worst;
}

static outcome check_usage(const check *check)
{
    int dashes = is_dash(check->against);

    for (int i = 0; i < check->npaths; i++)
        dashes += is_dash(check->paths[i]);
    if (dashes > 1)
        return complain(USAGE, "standard input can be read only once");
    return FINE;
}

// Every file is checked, whatever became of those before it.
static outcome check_files(check *check)
{
    outcome worst = FINE;
    int fine = 0;

    for (int i = 0; i < check->npaths; i++) {
        outcome result = check_file(check, check->paths[i]);

        fine += result == FINE;
        worst = result > worst ? result : worst;
    }
    if (check->npaths > 1 && !check->json)
        printf("%d of %d files are ok\n", fine, check->npaths);
    return worst;
}

static outcome run_check(const command *command, int argc, char **argv)
{
    check check = {.paths = argv,
                   .waiting_streams = hd_check_defaults().waiting_streams,
                   .diag = need_diag(),
                   .findings = json_need(cJSON_CreateArray())};
    outcome worst;

    program_options_init(&check.options);
    worst = options_take(command, argc, argv, &check, &check.npaths);
    if (worst == FINE)
        worst = check_usage(&check);
    if (worst == FINE && check.against)
        worst = program_read(check.against, &check.tensor);
    if (worst == FINE)
        worst = check_files(&check);
    if (check.json && worst != USAGE)
        json_print(check.findings);
    else
        cJSON_Delete(check.findings);
    program_options_free(&check.options);
    sweep_free(&check.sweep);
    hd_diag_destroy(check.diag);
    content_close(&check.tensor);
    return worst;
}

static const option sweep_options[] = {
    {TAKEN, "define", "NAME=VALUE",
     "set a parameter or the size of a mesh axis;\nmay be repeated",
     .letter = 'D', INTO(check, sweep), .take = sweep_take},
    {.name = NULL},
};

static const option check_options[] = {
    {NUMBER, "waiting-streams", "N",
     "streams of a rank that may wait at once\nwithout a warning (default 7)",
     INTO(check, waiting_streams), .low = 1, .high = 65},
    {TEXT, "against", "FILE",
     "a tensor program: proves that outputs are made\nof the same inputs by "
     "the same operations",
     INTO(check, against)},
    {NUMBER, "seed", "N",
     "of the counts and the sizes of runs that\n--against draws (default: "
     "another each time)",
     INTO(check, seed), .low = 1, .high = UINT32_MAX},
    {FLAG, "json", NULL, "findings as JSON, on standard output",
     INTO(check, json)},
    {.name = NULL},
};

const command check_command = {
    .name = "check",
    .operands = "FILE...",
    .summary = "Checks programs without running them; - is standard input.",
    .about =
        "Proves a host program free of deadlocks and races on all ranks; a\n"
        "program that is not complete is lowered first. -D NAME=2,4,8 checks\n"
        "each value, and each combination where several names have a list.\n",
    .groups = {{program_transport_option, offsetof(check, options)},
               {sweep_options, 0},
               {program_transfer_option, offsetof(check, options)},
               {program_lower_options, offsetof(check, options)},
               {check_options, 0}},
    .run = run_check,
};
