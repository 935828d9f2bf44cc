// heddle calibrate: measures what the simulator asks of a machine on the one at
// hand, and keeps it, so that runs are predicted on it.
#include <heddle/environment.h>
#include <heddle/launch.h>
#include <heddle/simulate.h>

#include "commands.h"
#include "file.h"
#include "fit.h"
#include "gauge.h"
#include "machine.h"
#include "program.h"
#include "quantile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_PROBES = 24, MOST_RANKS = 8 };

typedef enum device { DEVICE_CPU, DEVICE_CUDA } device;

static const char *const devices[] = {
    [DEVICE_CPU] = "cpu", [DEVICE_CUDA] = "cuda", NULL};

typedef struct calibrate {
    device device;
    int64_t ranks;
    double limit; // s
    const char *output;
    hd_diag *diag;
    double start;
    hd_env_kind kind;
    hd_machine shipped, machine;
    const probe *probe[MOST_PROBES]; // of the device
    const char *obstacle[MOST_PROBES];
    int n;
    const probe *taken[MOST_PROBES]; // those without an obstacle
    gauge gauge;                     // of these
    fit *fit;                        // owned: one a probe of the gauge
    FILE *to;                        // where the table goes
} calibrate;

// -------------------------------------------------------------------- before

typedef struct question {
    const char *device;
    hd_env_kind kind;
} question;

static outcome ask_kind(void *at)
{
    question *question = at;
    hd_diag *diag = need_diag();
    outcome result =
        tell(diag, hd_environment_kind(question->device, diag, &question->kind),
             question->device);

    hd_diag_destroy(diag);
    return result;
}

static outcome find_kind(calibrate *c)
{
    question *question = memory_pages(sizeof *question, true);
    outcome result;

    if (!question)
        return complain(FAILED, "no memory to ask what devices there are");
    question->device = devices[c->device];
    question->kind = HD_EMPTY(hd_env_kind);
    result = machine_apart(ask_kind, question);
    c->kind = question->kind;
    memory_free(question, sizeof *question);
    return result;
}

static outcome count_ranks(calibrate *c)
{
    int there = c->kind.devices;

    if (c->ranks == 0)
        c->ranks = there < MOST_RANKS ? there : MOST_RANKS;
    if (c->device == DEVICE_CPU && c->ranks < 2)
        c->ranks = 2; // what moves is measured too
    if (c->device == DEVICE_CUDA && c->ranks > there)
        return complain(USAGE,
                        "--ranks %d: there %s %d GPU%s, and each rank "
                        "has one of its own",
                        (int)c->ranks, there == 1 ? "is" : "are", there,
                        there == 1 ? "" : "s");
    return FINE;
}

// Each of a launcher's processes would measure beside the others.
static outcome refuse_launcher(calibrate *c)
{
    hd_place place = HD_EMPTY(hd_place);
    bool found = false;

    TRY(tell(c->diag, hd_place_find(c->diag, &found, &place), "calibrate"));
    if (found && place.nranks > 1)
        return complain(USAGE,
                        "calibrate starts its ranks by itself, and %s has "
                        "started %d processes of it",
                        place.launcher, place.nranks);
    return FINE;
}

// A minute is not spent on what can be kept nowhere.
static outcome check_output(calibrate *c)
{
    hd_machine_origin origin = HD_EMPTY(hd_machine_origin);
    hd_status status;

    if (c->output)
        return is_dash(c->output) ? FINE : file_writable(c->output);
    status = hd_machine_keep(c->kind.key, NULL, c->diag, &origin);
    TRY(tell(c->diag, status, "the cache"));
    return FINE;
}

// What the devices say of themselves, and what is measured is found from.
static void begin_machine(calibrate *c)
{
    hd_machine *m = &c->machine;
    int there = c->kind.multiprocessors;
    struct tm tm = {0};
    time_t now = time(NULL);
    char date[16] = "";

    c->shipped = HD_EMPTY(hd_machine);
    hd_machine_shipped(devices[c->device], &c->shipped);
    *m = c->shipped;
    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%Y-%m-%d", &tm);
    snprintf(m->name, sizeof m->name, "%.48s, %.10s", c->kind.name, date);
    if (c->device == DEVICE_CPU) {
        m->processors = c->kind.devices;
        return;
    }
    m->ranks_per_node = c->kind.devices;
    if (there <= 0)
        return;
    m->units = (int)lround((double)m->units * there / m->multiprocessors);
    m->units = m->units > 0 ? m->units : 1;
    if (strcmp(c->kind.capability, "9.0") != 0)
        m->multiprocessors = 0;
    else if (there < m->multiprocessors)
        m->multiprocessors = there;
}

// ------------------------------------------------------------------- measure

static void list_probes(calibrate *c)
{
    unsigned device = c->device == DEVICE_CUDA ? PROBE_CUDA : PROBE_CPU;

    for (const probe *p = probes; p->term; p++) {
        if (!(p->devices & device))
            continue;
        c->probe[c->n] = p;
        c->obstacle[c->n++] = probe_obstacle(p, (int)c->ranks);
    }
}

static outcome take_readings(calibrate *c)
{

    gauge *gauge = &c->gauge;

    gauge->session = hd_session_defaults();
    gauge->session.device = devices[c->device];
    gauge->cuda = c->device == DEVICE_CUDA;
    gauge->probe = c->taken;
    gauge->ranks = (int)c->ranks;
    gauge->start = c->start;
    gauge->limit = c->limit;
    gauge->diag = c->diag;
    for (int i = 0; i < c->n; i++)
        if (!c->obstacle[i])
            c->taken[gauge->n++] = c->probe[i];
    return gauge_all(gauge);
}

static double reading_at(const reading *sorted, double share)
{
    return quantile(sorted->more, (size_t)sorted->n, share);
}

static double value_of(const hd_machine *machine, const probe *probe)
{
    double value;

    memcpy(&value, (const char *)machine + probe->at, sizeof value);
    return value;
}

// To as many digits as mean anything.
static void round_term(hd_machine *machine, const probe *probe)
{
    char digits[32];
    double value;

    snprintf(digits, sizeof digits, "%.3e", value_of(machine, probe));
    value = strtod(digits, NULL);
    memcpy((char *)machine + probe->at, &value, sizeof value);
}

// Libraries multiply two f8e5m2 by nothing, and one like f8e4m3.
static void infer_rates(calibrate *c)
{
    double *rate = c->machine.matmul;

    if (rate[HD_DTYPE_F8E4M3] != c->shipped.matmul[HD_DTYPE_F8E4M3])
        rate[HD_DTYPE_F8E5M2] = rate[HD_DTYPE_F8E4M3];
}

static outcome fit_terms(calibrate *c)
{
    gauge *gauge = &c->gauge;

    c->fit = need((size_t)gauge->n, sizeof *c->fit);
    for (int i = 0; i < gauge->n; i++) {
        reading *reading = &gauge->reading[i];
        hd_status status = fit_open(gauge->probe[i], gauge->ranks,
                                    reading->level, c->diag, &c->fit[i]);

        TRY(tell(c->diag, status, "calibrate"));
        sort_doubles(reading->more, (size_t)reading->n);
        if (reading->n > 0)
            c->fit[i].measured = reading_at(reading, 0.5);
    }
    fit_all(c->fit, gauge->n, &c->machine);
    for (int i = 0; i < gauge->n; i++)
        if (c->fit[i].found)
            round_term(&c->machine, gauge->probe[i]);
    infer_rates(c);
    return FINE;
}

// -------------------------------------------------------------------- report

static const char *show_value(const probe *probe, double value, char out[32])
{
    switch (probe->in) {
    case UNIT_SECONDS:
        snprintf(out, 32, "%.3g us", value * 1e6);
        break;
    case UNIT_BYTES:
        snprintf(out, 32, "%.4g GB/s", value * 1e-9);
        break;
    case UNIT_OPERATIONS:
        snprintf(out, 32, "%.4g TFLOP/s", value * 1e-12);
        break;
    case UNIT_SHARE:
        snprintf(out, 32, "%.3g", value);
        break;
    }
    return out;
}

static double spread_of(const calibrate *c, int i)
{
    const reading *reading = &c->gauge.reading[i];

    return (reading_at(reading, 0.75) - reading_at(reading, 0.25)) /
           c->fit[i].measured;
}

static const char *why_shipped(const reading *reading)
{
    return *reading->why   ? reading->why
           : reading->late ? "time was up"
                           : "it makes no difference here";
}

// A dtype that the shipped machine does not have is multiplied as f32.
static double shipped_of(const calibrate *c, const probe *probe)
{
    double value = value_of(&c->shipped, probe);

    return probe->in == UNIT_OPERATIONS && value == 0
               ? c->shipped.matmul[HD_DTYPE_F32]
               : value;
}

static void print_found(const calibrate *c, int i)
{
    const probe *probe = c->gauge.probe[i];
    const reading *reading = &c->gauge.reading[i];
    double value = value_of(&c->machine, probe), usual = shipped_of(c, probe);
    char mine[32], shipped[32];

    fprintf(c->to, "%-20s %14s %14s %6.2f %8d %6.1f %%\n", probe->term,
            show_value(probe, value, mine), show_value(probe, usual, shipped),
            usual > 0 ? value / usual : 0, reading->n, 100 * spread_of(c, i));
}

static void print_shipped(const calibrate *c, const probe *probe,
                          const char *why)
{
    char shipped[32];

    put_line(c->to, "%-20s %14s %14s  as shipped: %s", probe->term, "-",
             show_value(probe, shipped_of(c, probe), shipped), why);
}

// Of half of them half of the readings are so far apart.
static void warn_if_busy(const calibrate *c)
{
    const double much = 0.25;
    int found = 0, far = 0;

    for (int i = 0; i < c->gauge.n; i++) {
        found += c->fit[i].found;
        far += c->fit[i].found && spread_of(c, i) > much;
    }
    if (2 * far > found)
        complain(FINE,
                 "readings of %d of %d terms are more than %.0f %% apart: "
                 "measure again when nothing else runs here",
                 far, found, much * 100);
}

static void print_table(const calibrate *c)
{
    put_line(c->to, "%s: %d rank%s on %s, %.1f s", c->machine.name,
             (int)c->ranks, c->ranks == 1 ? "" : "s", devices[c->device],
             seconds() - c->start);
    fprintf(c->to, "%-20s %14s %14s %6s %8s %8s\n", "term", "measured",
            "shipped", "ratio", "readings", "spread");
    for (int i = 0, taken = 0; i < c->n; i++) {
        if (c->obstacle[i])
            print_shipped(c, c->probe[i], c->obstacle[i]);
        else if (c->fit[taken].found)
            print_found(c, taken);
        else
            print_shipped(c, c->probe[i],
                          why_shipped(&c->gauge.reading[taken]));
        taken += !c->obstacle[i];
    }
    put_line(c->to, "%s; the rest is as in: %s",
             c->device == DEVICE_CPU
                 ? "processors are those there are"
                 : "ranks_per_node, units and multiprocessors are by the GPUs "
                   "there are",
             c->shipped.name);
}

// ------------------------------------------------------------------- outcome

static outcome print_machine(void *context, FILE *to)
{
    return fputs(context, to) < 0 ? FAILED : FINE;
}

static outcome write_machine(calibrate *c)
{
    char *text = NULL;
    outcome result = tell(
        c->diag, hd_machine_print(&c->machine, c->diag, &text), "calibrate");

    if (result == FINE)
        result = file_print(c->output, print_machine, text);
    hd_free(text);
    return result;
}

// Beside a file that was asked for it is no failure that nothing is kept.
static outcome keep_machine(calibrate *c)
{
    hd_machine_origin origin = HD_EMPTY(hd_machine_origin);
    hd_message message = HD_EMPTY(hd_message);
    hd_status status =
        hd_machine_keep(c->kind.key, &c->machine, c->diag, &origin);

    if (status == HD_OK)
        put_line(c->to, "kept for heddle run and bench: %s", origin.path);
    else if (c->output && hd_diag_message(c->diag, 0, &message))
        complain(FINE, "%s", message.text);
    else
        return tell(c->diag, status, "the cache");
    return FINE;
}

// What was measured before is not written over by what was not measured.
static outcome check_found(const calibrate *c)
{
    for (int i = 0; i < c->gauge.n; i++)
        if (c->fit[i].found)
            return FINE;
    return complain(FAILED, "nothing was measured in %g s: nothing is kept",
                    c->limit);
}

static outcome calibrate_all(calibrate *c)
{
    outcome written = FINE;

    TRY(refuse_launcher(c));
    TRY(find_kind(c));
    TRY(count_ranks(c));
    TRY(check_output(c));
    begin_machine(c);
    list_probes(c);
    TRY(take_readings(c));
    TRY(fit_terms(c));
    print_table(c);
    warn_if_busy(c);
    TRY(check_found(c));
    // What took a minute is kept even where the file cannot be written.
    if (c->output)
        written = write_machine(c);
    return first_wrong(written, keep_machine(c));
}

static outcome run_calibrate(const command *command, int argc, char **argv)
{
    calibrate c = {.limit = 60, .start = seconds(), .diag = need_diag()};
    outcome result;
    int n;

    result = options_take(command, argc, argv, &c, &n);
    c.to = is_dash(c.output) ? stderr : stdout;
    if (result == FINE)
        result = calibrate_all(&c);
    for (int i = 0; c.fit && i < c.gauge.n; i++)
        fit_close(&c.fit[i]);
    free(c.fit);
    gauge_close(&c.gauge);
    hd_diag_destroy(c.diag);
    return result;
}

static const option calibrate_options[] = {
    {OUTPUT, "output", "FILE",
     "write the machine there too, as --machine takes it;\n- is standard "
     "output",
     .letter = 'o', INTO(calibrate, output)},
    {CHOICE, "device", "NAME", "cpu (the default) or cuda",
     INTO(calibrate, device), .choices = devices},
    {NUMBER, "ranks", "N",
     "that measure (default: as many as there are GPUs,\nor processors, up to "
     "8; on the cpu at least 2)",
     INTO(calibrate, ranks), .low = 1, .high = 64},
    {REAL, "limit", "SECONDS",
     "that it may take (default 60; most machines take\nfewer)",
     INTO(calibrate, limit), .high = 3600},
    {.name = NULL},
};

const command calibrate_command = {
    .name = "calibrate",
    .operands = "",
    .summary = "Measures this machine, for auto to predict runs on.",
    .about =
        "What is measured is kept in the cache (heddle env says where), and "
        "heddle run and\nbench predict on it. Nothing else should run on the "
        "machine meanwhile.\n",
    .groups = {{calibrate_options, 0}},
    .run = run_calibrate,
};
