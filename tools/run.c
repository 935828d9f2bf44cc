// heddle run: a program on all ranks of its mesh, one process each.
#include <heddle/launch.h>
#include <heddle/simulate.h>
#include <heddle/verify.h>

#include "choose.h"
#include "commands.h"
#include "inputs.h"
#include "npy.h"
#include "program.h"
#include "ranks.h"
#include "report.h"
#include "timeline.h"
#include "tune.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct run {
    const char *path;
    program_options options;
    bindings in, out;
    sizes sizes;
    unsigned counted; // whether --iters was given
    bool cast, verify, stats;
    unsigned seeded; // whether --seed was given
    bool unchecked;  // --no-check
    const char *trace, *svg;
    const char *against; // a file of a tensor program, or NULL
    hd_diag *diag;
    hd_module *module;  // what runs
    hd_module *program; // what is verified against: the tensor program, or NULL
                        // where there is none
    job job;
    at_hand here;
    bool tune;
    hd_place place; // where a launcher has started the ranks
    FILE *to;       // where the report goes; owned on ranks other than 0
} run;

static int count_path(const bindings *bindings, const char *path)
{
    int n = 0;

    for (size_t i = 0; i < bindings->n; i++)
        n += strcmp(bindings->binding[i].path, path) == 0;
    return n;
}

// What goes to standard output, beside the report.
static int count_dashes(const run *run)
{
    return count_path(&run->out, "-") + is_dash(run->trace) + is_dash(run->svg);
}

// The option that only cuda has, or NULL.
static const char *cuda_option(const hd_session_options *session)
{
    return session->graph ? "--graph"
           : session->axes || session->transport != HD_TRANSPORT_AUTO
               ? "--transport"
               : NULL;
}

static bool is_cuda(const run *run)
{
    return strncmp(run->job.session.device, "cuda", 4) == 0;
}

// Nothing that is read may be written over.
static outcome check_output(const run *run, const char *option,
                            const char *name)
{
    TRY(output_spares(option, name, run->path));
    TRY(output_spares(option, name, run->against));
    TRY(output_spares(option, name, run->options.machine));
    return bindings_spared(&run->in, option, name);
}

// No output may take another one's file, or one that is read.
static outcome check_outputs(const run *run)
{
    const binding *out = run->out.binding;

    TRY(outputs_apart("--trace", run->trace, "--svg", run->svg));
    TRY(check_output(run, "--trace", run->trace));
    TRY(check_output(run, "--svg", run->svg));
    for (size_t i = 0; i < run->out.n; i++) {
        TRY(check_output(run, "--out", out[i].path));
        TRY(outputs_apart("--out", out[i].path, "--trace", run->trace));
        TRY(outputs_apart("--out", out[i].path, "--svg", run->svg));
        for (size_t j = 0; j < i; j++)
            TRY(outputs_apart("--out", out[j].path, "--out", out[i].path));
    }
    return FINE;
}

static outcome check_usage(const run *run)
{
    const char *of_cuda = cuda_option(&run->job.session);

    if (!is_cuda(run) && of_cuda)
        return complain(USAGE, "%s needs --device cuda", of_cuda);
    if (run->cast && run->in.n == 0)
        complain(FINE, "--cast has no effect without --in");
    if (run->against && run->unchecked)
        return complain(USAGE, "--against is part of the check that --no-check "
                               "leaves out");
    if (count_path(&run->in, "-") + is_dash(run->path) + is_dash(run->against) >
        1)
        return complain(USAGE, "standard input can be read only once");
    if (count_dashes(run) > 1)
        return complain(USAGE, "standard output can be written only once");
    return check_outputs(run);
}

// What options say of others.
static void settle(run *run)
{
    job *job = &run->job;

    job->timeline = run->trace || run->svg;
    job->timed = run->stats || job->timeline;
    job->session.tune = run->tune && is_cuda(run);
    run->here.device = job->session.device;
    run->options.here = &run->here;
    job->session.transport = run->options.lower.transport;
    job->session.axes = run->options.lower.axes;
}

// What is no error is said by the first rank alone.
static outcome tell_first(const run *run, hd_status status)
{
    if (status == HD_OK && run->options.quiet)
        hd_diag_clear(run->diag);
    return tell(run->diag, status, run->path);
}

static outcome parse_against(run *run)
{
    content text;
    outcome result;

    TRY(program_read(run->against, &text));
    result = program_parse(run->against, &text, &run->options, run->diag,
                           &run->program);
    content_close(&text);
    return result;
}

// A tensor program is parsed twice: the lowering works in place, and the answer
// to compare with is that of the program as it was written.
static outcome parse_program(run *run, const content *text)
{
    hd_check_options how = program_check_options(&run->options);
    bool chosen = false;
    hd_stage stage;

    run->options.parts =
        program_parts(run->job.session.device, run->job.session.graph);
    if (run->tune)
        TRY(tune_best(run->path, text, &run->options, &run->job.session,
                      run->job.place, &chosen));
    if (!chosen)
        TRY(choose_best(run->path, text, &run->options));
    TRY(program_parse(run->path, text, &run->options, run->diag, &run->module));
    TRY(program_check_calls(run->path, run->module));
    stage = info_of(run->module).stage;
    if (run->tune && !chosen)
        tune_in_vain(&run->options, &run->job.session,
                     stage < HD_STAGE_TRANSFER
                         ? "--transfer names a pipeline"
                         : "there is no pipeline to choose");
    if (run->against)
        TRY(parse_against(run));
    else if (run->verify && stage == HD_STAGE_TENSOR)
        TRY(program_parse(run->path, text, &run->options, run->diag,
                          &run->program));
    TRY(tell_first(run, hd_lower(run->module, &run->options.lower, NULL, NULL,
                                 run->diag)));
    if (run->unchecked)
        return FINE;
    if (run->against)
        how.against = run->program;
    return tell_first(run, hd_check(run->module, &how, run->diag));
}

static outcome open_program(run *run)
{
    content text;
    outcome result;

    TRY(program_read(run->path, &text));
    result = parse_program(run, &text);
    content_close(&text);
    return result;
}

// Arrays in files have one shape.
static outcome check_sizes(run *run)
{
    TRY(sizes_check(&run->sizes, run->module));
    if (run->sizes.runs > 1 && run->in.n + run->out.n > 0)
        return complain(USAGE,
                        "--run: arrays of --in and --out are of one "
                        "size, not of %zu",
                        run->sizes.runs);
    if (run->sizes.runs > 0 && !run->counted)
        run->job.iters = (int64_t)run->sizes.runs;
    // Of several sizes arrays are drawn with room for the greatest.
    if (run->sizes.runs != 1)
        return FINE;
    return tell(run->diag, sizes_set(&run->sizes, run->module, 0, run->diag),
                run->path);
}

static outcome check_bindings(const run *run)
{
    TRY(bindings_check(&run->in, run->module));
    TRY(bindings_check(&run->out, run->module));
    for (size_t i = 0; i < run->out.n; i++)
        TRY(file_writable(run->out.binding[i].path));
    return FINE;
}

static void list_slots(run *run)
{
    job *job = &run->job;

    job->module = run->module;
    job->sizes = &run->sizes;
    job->diag = run->diag;
    job->nslots = info_of(run->module).narguments;
    job->slot = need(job->nslots, sizeof *job->slot);
    for (size_t i = 0; i < job->nslots; i++) {
        slot *slot = &job->slot[i];

        slot->about = HD_EMPTY(hd_argument);
        if (hd_module_argument(run->module, i, &slot->about)) {
            slot->given = bindings_find(&run->in, slot->about.name) != NULL;
            slot->wanted = bindings_find(&run->out, slot->about.name) != NULL;
        }
    }
}

static outcome read_inputs(run *run)
{
    for (size_t i = 0; i < run->job.nslots; i++) {
        slot *slot = &run->job.slot[i];

        if (slot->given)
            TRY(input_open(bindings_find(&run->in, slot->about.name),
                           &slot->about, run->cast, &slot->file,
                           &slot->whole[0]));
    }
    return FINE;
}

static bool is_drawn(const slot *slot)
{
    return slot->about.role != HD_ROLE_OUT && !slot->given &&
           slot->about.dtype != HD_DTYPE_EVENT;
}

static bool draws(const job *job)
{
    for (size_t i = 0; i < job->nslots; i++)
        if (is_drawn(&job->slot[i]))
            return true;
    return false;
}

// Where files and the seed both bring forth inputs, which is whose.
static void print_sources(const run *run)
{
    const char *before = "drawn: ";

    for (size_t i = 0; i < run->job.nslots; i++) {
        if (!is_drawn(&run->job.slot[i]))
            continue;
        fprintf(run->to, "%s%%%s", before, run->job.slot[i].about.name);
        before = ", ";
    }
    before = "; from files: ";
    for (size_t i = 0; i < run->job.nslots; i++) {
        if (!run->job.slot[i].given)
            continue;
        fprintf(run->to, "%s%%%s", before, run->job.slot[i].about.name);
        before = ", ";
    }
    fputc('\n', run->to);
}

static void print_head(const run *run)
{
    const job *job = &run->job;

    fprintf(run->to, "%s: %d rank%s on %s, %" PRId64 " run%s",
            info_of(run->module).name, job->ranks, job->ranks == 1 ? "" : "s",
            job->session.device, job->iters, job->iters == 1 ? "" : "s");
    if (draws(job))
        fprintf(run->to, ", seed %" PRIu64, job->seed);
    fputc('\n', run->to);
    if (draws(job) && run->in.n > 0)
        print_sources(run);
}

// Argument i of one is argument i of the other, placed in the same way.
static bool are_alike(const hd_module *x, const hd_module *y)
{
    size_t n = info_of(x).narguments;
    bool alike = n == info_of(y).narguments;

    for (size_t i = 0; i < n && alike; i++) {
        hd_argument a = HD_EMPTY(hd_argument), b = HD_EMPTY(hd_argument);

        alike = hd_module_argument(x, i, &a) && hd_module_argument(y, i, &b) &&
                strcmp(a.name, b.name) == 0 &&
                memcmp(a.axis, b.axis, sizeof *a.axis * (size_t)a.ndims) == 0;
    }
    return alike;
}

// The dense answer. Of a tensor program with its arguments elsewhere it is that
// of the host program, which makes the same values: they have been compared.
static hd_module *expected_of(const run *run)
{
    return run->program && are_alike(run->module, run->program) ? run->program
                                                                : run->module;
}

static outcome launch(run *run)
{
    job *job = &run->job;

    list_slots(run);
    if (run->seeded && !draws(job) && !run->options.quiet)
        complain(FINE, "--seed has no effect: no input is drawn");
    job->nsets = 1;
    job->judged =
        !run->unchecked && job->session.transport == HD_TRANSPORT_AUTO;
    if (run->verify)
        job->expected = expected_of(run);
    job->path = run->path;
    if (run->verify && draws(job))
        job->nsets = job->iters < FEW_SETS ? (int)job->iters : FEW_SETS;
    if (run->sizes.runs > 0)
        job->nsets = (int)run->sizes.runs;
    TRY(job_open(job));
    TRY(read_inputs(run));
    TRY(job_draw(job));
    print_head(run);
    return job_launch(job);
}

// Puts the shards together. Where every rank holds the whole, that of rank 0
// is it, without the room that it has for more.
static const void *gather(const job *job, size_t i, whole *out)
{
    const hd_argument *about = &job->slot[i].about;
    int ranks = is_sharded(about) ? job->ranks : 1;

    out->bytes = about->elements * hd_dtype_size(about->dtype);
    out->memory = memory_pages(out->bytes, false);
    for (int rank = 0; rank < ranks && out->memory; rank++)
        hd_unshard(job->module, i, rank, job_local(job, i, rank), out->memory);
    return out->memory;
}

static outcome no_memory_to_gather(const slot *slot, const whole *whole)
{
    return complain(FAILED, "no memory to gather the %zu bytes of %%%s",
                    whole->bytes, slot->about.name);
}

static outcome write_output(const job *job, size_t i, sink *sink)
{
    const hd_argument *about = &job->slot[i].about;
    whole whole = {0};
    const void *data = gather(job, i, &whole);
    size_t length;
    char *header;
    outcome result;

    if (!data)
        return no_memory_to_gather(&job->slot[i], &whole);
    header = npy_header(about, &length);
    result = sink_write(sink, header, length);
    if (result == FINE)
        result = sink_write(sink, data,
                            about->elements * hd_dtype_size(about->dtype));
    free(header);
    memory_free(whole.memory, whole.bytes);
    return result;
}

// All are written before the first one gets its name.
static outcome write_sinks(const run *run, sink *sinks)
{
    size_t n = 0;

    for (size_t i = 0; i < run->job.nslots; i++) {
        const char *path =
            bindings_find(&run->out, run->job.slot[i].about.name);

        if (!path)
            continue;
        TRY(sink_open(path, &sinks[n++]));
        TRY(write_output(&run->job, i, &sinks[n - 1]));
    }
    for (size_t i = 0; i < n; i++)
        TRY(sink_commit(&sinks[i]));
    return FINE;
}

static outcome write_outputs(const run *run)
{
    sink *sinks = need(run->out.n, sizeof *sinks);
    outcome result;

    for (size_t i = 0; i < run->out.n; i++)
        sinks[i].fd = -1;
    result = write_sinks(run, sinks);
    for (size_t i = 0; i < run->out.n; i++)
        sink_discard(&sinks[i]);
    free(sinks);
    return result;
}

// What is known of each step comes from a simulation of the program; its times
// are those of the last run.
static outcome draw_timeline(const run *run)
{
    hd_machine machine = HD_EMPTY(hd_machine);
    hd_machine_default(&machine);
    hd_simulation *simulation;
    char title[256];
    timeline t;
    outcome result;

    if (!run->trace && !run->svg)
        return FINE;
    TRY(tell(run->diag, hd_simulate(run->module, &machine, NULL, &simulation),
             "the timeline"));
    hd_simulation_measure(simulation, run->job.times);
    snprintf(title, sizeof title, "%s, run %" PRId64 " on %s",
             info_of(run->module).name, run->job.iters,
             run->job.session.device);
    t = timeline_of(simulation, title, run->job.ranks);
    result = timeline_draw(&t, run->trace, run->svg);
    timeline_free(&t);
    hd_simulation_destroy(simulation);
    return result;
}

// What nobody has judged is at least told, of outputs that are here: under a
// launcher other ranks send what --out names alone.
static outcome report_outputs(const run *run)
{
    const job *job = &run->job;

    for (size_t i = 0; i < job->nslots; i++) {
        const slot *slot = &job->slot[i];
        whole whole = {0};
        const void *data;

        if (!slot_is_output(slot) || (job->place && !slot->wanted))
            continue;
        data = gather(job, i, &whole);
        if (!data)
            return no_memory_to_gather(slot, &whole);
        report_values(&slot->about, data, run->to);
        memory_free(whole.memory, whole.bytes);
    }
    return FINE;
}

static outcome run_program(run *run)
{
    outcome written;
    bool takes_input = is_dash(run->path) || count_path(&run->in, "-") > 0;

    TRY(ranks_find(&run->place, takes_input, &run->job.place, &run->to));
    run->options.quiet = !ranks_is_first(run->job.place);
    run->here.spread = ranks_are_spread(run->job.place);
    TRY(open_program(run));
    if (run->job.place)
        TRY(ranks_check(run->job.place, run->module));
    TRY(check_sizes(run));
    TRY(check_bindings(run));
    TRY(launch(run));
    if (run->verify) {
        TRY(report_verdicts(&run->job, run->to));
        if (!run->program)
            fputs("the steps were judged by what the program itself says; "
                  "--against FILE judges what it should say\n",
                  run->to);
    }
    if (run->stats)
        report_stats(&run->job, run->to);
    if (!ranks_is_first(run->job.place))
        return FINE;
    if (!run->verify && run->sizes.runs <= 1)
        TRY(report_outputs(run));
    if (!run->stats)
        report_time(&run->job);
    // What was computed is kept even where its picture cannot be.
    written = write_outputs(run);
    return first_wrong(written, draw_timeline(run));
}

static void close_run(run *run)
{
    if (!ranks_is_first(run->job.place) && run->to)
        fclose(run->to);
    job_close(&run->job);
    hd_module_destroy(run->module);
    hd_module_destroy(run->program);
    hd_diag_destroy(run->diag);
    bindings_free(&run->in);
    bindings_free(&run->out);
    sizes_free(&run->sizes);
    program_options_free(&run->options);
}

static outcome run_run(const command *command, int argc, char **argv)
{
    run run = {
        .job = {.iters = 1, .seed = 1, .session = hd_session_defaults()}};
    outcome result;

    program_options_init(&run.options);
    run.diag = need_diag();
    result = options_take_one(command, argc, argv, &run, &run.path);
    if (result == FINE) {
        settle(&run);
        result = check_usage(&run);
    }
    // An array on standard output wants nothing beside it.
    run.to = count_dashes(&run) > 0 ? stderr : stdout;
    if (result == FINE)
        result = run_program(&run);
    close_run(&run);
    return result;
}

static const option run_options[] = {
    {TAKEN, "in", "NAME=FILE",
     "an input: x.npy, x.safetensors:TENSOR, or -\nfor an npy file on standard "
     "input",
     INTO(run, in), .take = bindings_take},
    {TAKEN, "out", "NAME=FILE", "write an output as npy; - is standard output",
     INTO(run, out), .take = bindings_take},
    {TAKEN, "run", "NAME=VALUE,..",
     "sizes that runs are given, one after the other; a\nsize that is not "
     "named has its greatest value",
     INTO(run, sizes), .take = sizes_take},
    {FLAG, "cast", NULL, "round inputs that hold another dtype",
     INTO(run, cast)},
    {FLAG, "verify", NULL,
     "compare every output on every rank with the\ndense answer in double "
     "precision; of a host program\nwithout --against, with its own answer",
     INTO(run, verify)},
    {TEXT, "against", "FILE",
     "a tensor program: proves first that outputs are\nmade of the same inputs "
     "by the same operations,\nand verifies with its answer",
     INTO(run, against)},
    {NUMBER, "iters", "N", "runs in a row (default 1, or what --run names)",
     INTO(run, job.iters), .low = 1, .high = 1000000,
     .marks = offsetof(run, counted), .mark = 1},
    {NUMBER, "seed", "N", "of random inputs (default 1)", INTO(run, job.seed),
     .high = INT64_MAX, .marks = offsetof(run, seeded), .mark = 1},
    {FLAG, "stats", NULL, "print counts and times", INTO(run, stats)},
    {REAL, "timeout", "SECONDS", "that a wait for a peer may take (default 30)",
     INTO(run, job.session.timeout), .high = 1000000},
    {TAKEN, "device", "NAME",
     "cpu (the default), cuda, or cuda:N to put all\nranks on one device",
     INTO(run, job.session.device), .choices = option_devices,
     .take = option_device},
    {FLAG, "graph", NULL, "replay runs as one CUDA graph",
     INTO(run, job.session.graph)},
    {FLAG, "tune", NULL,
     "run the best predictions, and on CUDA several of\ncuBLASLt's plans for "
     "each matmul, ahead of the\nfirst run, and keep the fastest on disk",
     INTO(run, tune)},
    {FLAG, "deterministic", NULL,
     "the same bits in each run, also where a library\nis faster without",
     INTO(run, job.session.deterministic)},
    {FLAG, "no-check", NULL, "run without proving the program first",
     INTO(run, unchecked)},
    {OUTPUT, "trace", "FILE",
     "write a trace of the last run, for\nchrome://tracing or Perfetto",
     INTO(run, trace)},
    {OUTPUT, "svg", "FILE", "draw the timeline of the last run",
     INTO(run, svg)},
    {.name = NULL},
};

const command run_command = {
    .name = "run",
    .operands = "FILE",
    .summary = "Runs a program, one process a rank; - is standard input.",
    .about = "A program that is not complete is lowered first. Arrays are .npy "
             "files or\ntensors of .safetensors files; inputs that are not "
             "given are random.\n",
    .groups = {{run_options, 0}, PROGRAM_GROUPS(run)},
    .run = run_run,
};
