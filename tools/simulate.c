// heddle simulate: how long a program takes on a machine, without running it.
#include <heddle/simulate.h>

#include "choose.h"
#include "commands.h"
#include "json.h"
#include "machine.h"
#include "timeline.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct simulate {
    const char *path;
    program_options options;
    const char *trace, *svg;
    bool compare, json;
    hd_diag *diag;
    hd_machine machine;
} simulate;

// "12.3 MB"
static const char *show_bytes(double bytes, char out[32])
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    int unit = 0;

    for (; bytes >= 1000 && unit < 5; unit++)
        bytes /= 1000;
    snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
    return out;
}

// ---------------------------------------------------------- critical path

// The steps of one line of the text on the critical path.
typedef struct share {
    const char *op;
    int line;
    int64_t steps;
    double seconds;
} share;

enum { SHOWN_SHARES = 4 };

static int compare_shares(const void *x, const void *y)
{
    const share *a = x, *b = y;

    return (a->seconds < b->seconds) - (a->seconds > b->seconds);
}

static int compare_lines(const void *x, const void *y)
{
    const share *a = x, *b = y;

    return a->line != b->line ? a->line - b->line : strcmp(a->op, b->op);
}

// The longest first; the caller frees them.
static share *find_shares(const hd_simulation *simulation, int64_t *out)
{
    int64_t all = hd_simulation_intervals(simulation), steps = 0, n = 0;
    share *shares = need((size_t)all + 1, sizeof *shares);

    for (int64_t i = 0; i < all; i++) {
        hd_interval v = HD_EMPTY(hd_interval);

        hd_simulation_interval(simulation, i, &v);
        if (v.critical && v.work != HD_WORK_SYNC)
            shares[steps++] = (share){v.op, v.line, 1, v.end - v.start};
    }
    qsort(shares, (size_t)steps, sizeof *shares, compare_lines);
    for (int64_t i = 0; i < steps; i++)
        if (n > 0 && compare_lines(&shares[n - 1], &shares[i]) == 0) {
            shares[n - 1].steps++;
            shares[n - 1].seconds += shares[i].seconds;
        } else {
            shares[n++] = shares[i];
        }
    qsort(shares, (size_t)n, sizeof *shares, compare_shares);
    *out = n;
    return shares;
}

static void print_prediction(const simulate *s, const hd_module *module,
                             const hd_simulation *simulation)
{
    // A picture on standard output wants nothing beside it.
    FILE *to = is_dash(s->trace) || is_dash(s->svg) ? stderr : stdout;
    hd_prediction p = HD_EMPTY(hd_prediction);
    int ranks = info_of(module).ranks;
    int64_t n;
    share *shares = find_shares(simulation, &n);
    char a[32], b[32], c[32];

    hd_simulation_predict(simulation, &p);
    fprintf(to, "%s: %d rank%s on %s\n", info_of(module).name, ranks,
            ranks == 1 ? "" : "s", s->machine.name);
    fprintf(to, "predicted time   %.1f us\n", p.time * 1e6);
    fprintf(to,
            "critical path    compute %.1f us, transfers %.1f us, waiting for "
            "the host %.1f us\n",
            p.compute * 1e6, p.transfer * 1e6, p.wait * 1e6);
    for (int64_t i = 0; i < n && i < SHOWN_SHARES; i++)
        fprintf(to, "                 %.1f us: %" PRId64 " x %s, line %d\n",
                shares[i].seconds * 1e6, shares[i].steps, shares[i].op,
                shares[i].line);
    free(shares);
    if (p.bytes_copied + p.bytes_gathered + p.bytes_networked > 0)
        fprintf(to, "overlap          %.0f %% of the time of transfers\n",
                p.overlap * 100);
    else
        fprintf(to, "overlap          nothing is transferred\n");
    fprintf(to,
            "bytes moved      %s by send and recv, %s by collectives, %s "
            "between nodes\n",
            show_bytes(p.bytes_copied, a), show_bytes(p.bytes_gathered, b),
            show_bytes(p.bytes_networked, c));
    fprintf(to, "memory           %s a rank\n", show_bytes(p.memory, a));
}

static void put_prediction(cJSON *object, const hd_prediction *p)
{
    json_number(object, "time", p->time);
    json_number(object, "critical_compute", p->compute);
    json_number(object, "critical_transfer", p->transfer);
    json_number(object, "critical_wait", p->wait);
    json_number(object, "overlap", p->overlap);
    json_number(object, "bytes_copied", p->bytes_copied);
    json_number(object, "bytes_gathered", p->bytes_gathered);
    json_number(object, "bytes_networked", p->bytes_networked);
    json_number(object, "memory", p->memory);
}

static void json_prediction(const simulate *s, const hd_module *module,
                            const hd_simulation *simulation)
{
    cJSON *object = json_need(cJSON_CreateObject());
    hd_prediction p = HD_EMPTY(hd_prediction);

    hd_simulation_predict(simulation, &p);
    json_text(object, "program", info_of(module).name);
    json_text(object, "machine", s->machine.name);
    json_number(object, "ranks", info_of(module).ranks);
    put_prediction(object, &p);
    json_print(object);
}

static outcome draw(const simulate *s, const hd_module *module,
                    const hd_simulation *simulation)
{
    char title[256];
    timeline t;
    outcome result;

    if (!s->trace && !s->svg)
        return FINE;
    snprintf(title, sizeof title, "%s, predicted on %s", info_of(module).name,
             s->machine.name);
    t = timeline_of(simulation, title, info_of(module).ranks);
    result = timeline_draw(&t, s->trace, s->svg);
    timeline_free(&t);
    return result;
}

static outcome simulate_module(simulate *s, hd_module *module)
{
    hd_check_options how = program_check_options(&s->options);
    hd_simulation *simulation = NULL;
    hd_status status = hd_lower(module, &s->options.lower, NULL, NULL, s->diag);
    outcome result;

    if (status == HD_OK)
        status = hd_check(module, &how, s->diag);
    if (status == HD_OK)
        status = program_simulate(&s->options, &s->machine, module, s->diag,
                                  &simulation);
    TRY(tell(s->diag, status, s->path));
    if (s->json)
        json_prediction(s, module, simulation);
    else
        print_prediction(s, module, simulation);
    result = draw(s, module, simulation);
    hd_simulation_destroy(simulation);
    return result;
}

// ---------------------------------------------------------------- compare

// The names of the other pipelines that make the same program.
static void put_also(cJSON *object, const candidate *c)
{
    cJSON *also = json_array(object, "also");

    for (int t = 0; t <= HD_TRANSFER_RING; t++)
        if (c->also & 1u << t)
            json_text(also, NULL, program_transfers[t]);
}

static void print_also(const candidate *c)
{
    for (int t = 0; t <= HD_TRANSFER_RING; t++)
        if (c->also & 1u << t)
            printf("  = %s", program_transfers[t]);
    putchar('\n');
}

static void compare_json(const simulate *s, const hd_choice *choice)
{
    cJSON *array = json_need(cJSON_CreateArray());
    candidate c;

    for (size_t i = 0; candidate_get(choice, i, &c); i++) {
        cJSON *object = json_object(array, NULL);

        json_text(object, "transfer", program_transfers[c.lower.transfer]);
        put_also(object, &c);
        json_number(object, "streams", c.lower.streams);
        json_number(object, "chunks", c.lower.chunks);
        json_flag(object, "comm_stream", c.lower.comm_stream);
        json_flag(object, "defer_sends", c.lower.defer_sends);
        json_flag(object, "launch", c.lower.launch);
        json_text(object, "wire", program_wires[c.lower.wire]);
        json_text(object, "machine", s->machine.name);
        put_prediction(object, &c.prediction);
    }
    json_print(array);
}

// Of the stream for transfers: whether sends are waited for there.
static const char *name_stream(const hd_lower_options *lower)
{
    bool sends = lower->transfer == HD_TRANSFER_DIRECT ||
                 lower->transfer == HD_TRANSFER_RING;

    return lower->launch                  ? "launch"
           : !lower->comm_stream          ? "-"
           : sends && !lower->defer_sends ? "ahead"
                                          : "own";
}

static void compare_table(const hd_choice *choice)
{
    double best = 0;
    char name[24];
    candidate c;

    printf("%-10s  %7s  %6s  %4s  %12s  %8s  %7s\n", "transfer", "streams",
           "chunks", "comm", "predicted us", "to best", "overlap");
    for (size_t i = 0; candidate_get(choice, i, &c); i++) {
        best = i == 0 ? c.prediction.time : best;
        snprintf(name, sizeof name, "%s%s", program_transfers[c.lower.transfer],
                 c.lower.wire == HD_WIRE_F32 ? " f32" : "");
        printf("%-10s  %7d  %6d  %4s  %12.1f  %8.2f  %5.0f %%", name,
               c.lower.streams, c.lower.chunks, name_stream(&c.lower),
               c.prediction.time * 1e6,
               // A program that does nothing takes no time by any of them.
               best > 0 ? c.prediction.time / best : 1,
               c.prediction.overlap * 100);
        print_also(&c);
    }
}

static outcome compare_pipelines(simulate *s, const hd_module *module)
{
    hd_choice *choice;

    TRY(choose_all(s->path, module, &s->options, &s->machine, &choice));
    if (s->json)
        compare_json(s, choice);
    else
        compare_table(choice);
    hd_choice_destroy(choice);
    return FINE;
}

// ---------------------------------------------------------------- command

static outcome simulate_text(simulate *s, const content *text)
{
    hd_module *module;
    outcome result;

    if (!s->compare)
        TRY(choose_best(s->path, text, &s->options));
    TRY(program_parse(s->path, text, &s->options, s->diag, &module));
    if (s->compare && info_of(module).stage == HD_STAGE_HOST)
        result = complain(WRONG,
                          "%s is lowered already: there are no pipelines to "
                          "compare",
                          program_name(s->path));
    else if (s->compare)
        result = compare_pipelines(s, module);
    else
        result = simulate_module(s, module);
    hd_module_destroy(module);
    return result;
}

// Nothing that is read may be written over.
static outcome check_output(const simulate *s, const char *option,
                            const char *name)
{
    TRY(output_spares(option, name, s->path));
    return output_spares(option, name, s->options.machine);
}

static outcome check_usage(simulate *s)
{
    if (is_dash(s->trace) + is_dash(s->svg) + s->json > 1)
        return complain(USAGE, "standard output takes one of --trace, --svg "
                               "and --json");
    TRY(outputs_apart("--trace", s->trace, "--svg", s->svg));
    TRY(check_output(s, "--trace", s->trace));
    TRY(check_output(s, "--svg", s->svg));
    if (s->compare && (s->trace || s->svg))
        return complain(USAGE, "--compare draws nothing: leave out --trace "
                               "and --svg");
    return FINE;
}

static outcome simulate_file(simulate *s)
{
    content text;
    outcome result;

    TRY(machine_open(s->options.machine, &s->machine));
    TRY(program_read(s->path, &text));
    result = simulate_text(s, &text);
    content_close(&text);
    return result;
}

static outcome run_simulate(const command *command, int argc, char **argv)
{
    simulate s = {.diag = need_diag()};
    outcome result;

    program_options_init(&s.options);
    s.options.predicts = true;
    result = options_take_one(command, argc, argv, &s, &s.path);
    if (result == FINE)
        result = check_usage(&s);
    if (result == FINE)
        result = simulate_file(&s);
    program_options_free(&s.options);
    hd_diag_destroy(s.diag);
    return result;
}

static const option simulate_options[] = {
    {OUTPUT, "trace", "FILE", "write a trace for chrome://tracing or Perfetto",
     INTO(simulate, trace)},
    {OUTPUT, "svg", "FILE", "draw the timeline", INTO(simulate, svg)},
    {FLAG, "compare", NULL,
     "predict every pipeline, and list them, best\nfirst",
     INTO(simulate, compare)},
    {FLAG, "json", NULL, "print JSON; times in seconds", INTO(simulate, json)},
    {.name = NULL},
};

const command simulate_command = {
    .name = "simulate",
    .operands = "FILE",
    .summary = "Predicts how long a program takes on a machine.",
    .about = "A program that is not complete is lowered first. The machine is "
             "a JSON file such\nas examples/machines/h200x8.json.\n",
    .groups = {PROGRAM_GROUPS(simulate), {simulate_options, 0}},
    .run = run_simulate,
};
