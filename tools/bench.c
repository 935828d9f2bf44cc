// heddle bench: how long programs take, beside the matmul and the transfers
// that they are made of.
#include <heddle/launch.h>

#include "commands.h"
#include "contest.h"
#include "measure.h"
#include "plain.h"
#include "ranks.h"
#include "score.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SAMPLES = 1000000 };

typedef struct bench {
    const char *path; // of a program
    const char *suite_path, *ids;
    const char *json, *csv;
    program_options options;
    contest_options make;
    measure measure;
    suite suite;
    contest *contest; // owned
    scoreboard board;
    at_hand here;
    hd_machine machine;
    hd_place place;
    bool headed; // the head of the table is printed
    FILE *to;    // where the table goes; owned on ranks other than 0
    hd_diag *diag;
} bench;

static const char *const kinds[KINDS + 1] = {PROGRAM_TRANSFERS, "nccl", "sm"};

// Nothing that is read may be written over.
static outcome check_output(const bench *bench, const char *option,
                            const char *name)
{
    TRY(output_spares(option, name, bench->path));
    TRY(output_spares(option, name, bench->suite_path));
    return output_spares(option, name, bench->options.machine);
}

static outcome check_usage(const bench *bench)
{
    if (!bench->path == !bench->suite_path)
        return complain(USAGE, "bench needs a file or --suite, and not both");
    if (bench->ids && !bench->suite_path)
        return complain(USAGE, "--ids needs --suite");
    if (is_dash(bench->json) && is_dash(bench->csv))
        return complain(USAGE, "standard output takes one of --json and --csv");
    TRY(outputs_apart("--json", bench->json, "--csv", bench->csv));
    TRY(check_output(bench, "--json", bench->json));
    TRY(check_output(bench, "--csv", bench->csv));
    if (bench->make.candidates > 0 && !bench->make.kind[KIND_AUTO])
        return complain(USAGE, "--candidates needs auto in --transfer");
    if (bench->make.graph && !bench->measure.cuda)
        return complain(USAGE, "--graph needs --device cuda");
    if (bench->options.lower.axes)
        return complain(USAGE,
                        "--transport %s: bench takes one transport, for all "
                        "axes",
                        bench->options.lower.axes);
    if (bench->options.lower.transport != HD_TRANSPORT_AUTO &&
        !bench->measure.cuda)
        return complain(USAGE, "--transport needs --device cuda");
    if (bench->measure.session.tune && !bench->measure.cuda)
        return complain(USAGE, "--tune needs --device cuda");
    for (int kind = KIND_NCCL; kind < KINDS && !bench->measure.cuda; kind++)
        if (bench->make.kind[kind])
            return complain(USAGE, "--transfer %s needs --device cuda",
                            kinds[kind]);
    if (bench->measure.rounds * bench->measure.iters > MOST_SAMPLES)
        return complain(USAGE, "--rounds times --iters is more than %d",
                        MOST_SAMPLES);
    for (size_t i = 0; bench->suite_path && i < bench->options.ndefines; i++)
        if (strcmp(bench->options.defines[i].name, "tp") != 0)
            return complain(USAGE, "-D %s: of a suite only tp can be set",
                            bench->options.defines[i].name);
    return FINE;
}

// What was not said: a GPU is fast and far away, so that runs are queued.
static void set_defaults(bench *bench)
{
    measure *measure = &bench->measure;
    bool *kind = bench->make.kind, all = true;
    bool cuda = strncmp(measure->session.device, "cuda", 4) == 0;

    measure->cuda = cuda;
    measure->iters = measure->iters ? measure->iters : (cuda ? 3 : 1);
    measure->rounds = measure->rounds ? measure->rounds : (cuda ? 10 : 5);
    measure->warmup = measure->warmup ? measure->warmup : (cuda ? 3 : 1);
    measure->queue = measure->queue ? measure->queue : (cuda ? 10 : 1);
    measure->memory *= 0x1p30;
    for (int i = 0; i < KINDS; i++)
        all = all && !kind[i];
    for (int i = 0; i < KINDS && all; i++)
        kind[i] =
            i <= HD_TRANSFER_RING || (i >= KIND_NCCL && cuda) || i == KIND_AUTO;
    bench->options.lower.transfer =
        kind[KIND_AUTO] ? HD_TRANSFER_AUTO : HD_TRANSFER_BULK;
    bench->here.device = measure->session.device;
    bench->options.here = &bench->here;
    bench->options.predicts = true;
    bench->options.parts =
        program_parts(measure->session.device, bench->make.graph);
}

// ---------------------------------------------------------------- contests

// As many ranks as are said, or were started, or the suite was made for.
static outcome count_ranks(bench *bench)
{
    const program_options *options = &bench->options;
    int64_t ranks = bench->suite.world;

    if (bench->measure.place)
        ranks = bench->place.nranks;
    for (size_t i = 0; i < options->ndefines; i++)
        ranks = options->defines[i].value;
    if (ranks == 0)
        return complain(USAGE,
                        "%s does not say for how many ranks it is: "
                        "-D tp=N does",
                        bench->suite_path);
    if (ranks < 1 || ranks > HD_MAX_RANKS)
        return complain(USAGE, "-D tp=%" PRId64 ": ranks are from 1 to %d",
                        ranks, HD_MAX_RANKS);
    bench->measure.ranks = (int)ranks;
    return FINE;
}

static outcome make_suite(bench *bench)
{
    enum { CUDA_PROBE = 128 << 20, CPU_PROBE = 8 << 20 };
    measure *measure = &bench->measure;
    int n = 0;

    TRY(suite_open(bench->suite_path, &bench->suite));
    if (bench->ids)
        TRY(suite_pick(&bench->suite, bench->suite_path, bench->ids));
    TRY(count_ranks(bench));
    bench->contest = need(bench->suite.n + 1, sizeof *bench->contest);
    measure->contest = bench->contest;
    bench->board.probed = measure->ranks > 1;
    if (bench->board.probed)
        TRY(contest_probe(measure->cuda ? CUDA_PROBE : CPU_PROBE, &bench->make,
                          measure->ranks, &bench->contest[n++]));
    for (size_t i = 0; i < bench->suite.n; i++) {
        measure->n = n + 1; // also what is made in part is closed
        TRY(contest_shape(&bench->suite.shape[i], &bench->make, measure->ranks,
                          &bench->contest[n++]));
    }
    return FINE;
}

static outcome make_text(bench *bench, const content *text)
{
    measure *measure = &bench->measure;

    bench->contest = need(1, sizeof *bench->contest);
    measure->contest = bench->contest;
    measure->n = 1;
    TRY(contest_file(bench->path, text, &bench->make, bench->contest));
    TRY(program_check_calls(bench->path, bench->contest->program));
    measure->ranks = info_of(bench->contest->program).ranks;
    return contest_expect(bench->contest, bench->path, measure->seed,
                          bench->diag);
}

// A pipe can be read only once.
static outcome make_file(bench *bench)
{
    content text;
    outcome result;

    TRY(program_read(bench->path, &text));
    result = make_text(bench, &text);
    content_close(&text);
    return result;
}

// ----------------------------------------------------------------- the report

// Rows appear as contests end: a long benchmark shows what it has.
static void show_contest(void *context, const contest *contest)
{
    bench *bench = context;

    if (bench->board.probed && contest == bench->contest)
        return;
    if (!bench->headed)
        score_head(&bench->board, contest, bench->to);
    bench->headed = true;
    score_rows(&bench->board, contest, bench->to);
}

static outcome report_scores(bench *bench)
{
    outcome result;

    if (!ranks_is_first(bench->measure.place))
        return score_verdicts(&bench->board, bench->to);
    if (bench->path)
        fprintf(bench->to,
                "\nno floor: what a program of a file computes and moves alone "
                "is not told apart; --suite measures that too\n");
    score_libraries(&bench->board, bench->to);
    // A wrong answer is told whatever becomes of the files.
    result = score_verdicts(&bench->board, bench->to);
    if (bench->json)
        result = first_wrong(result, score_json(&bench->board, bench->json));
    if (bench->csv)
        result = first_wrong(result, score_csv(&bench->board, bench->csv));
    return result;
}

// Pages that are promised and not there end a process without a word, so what
// is clearly too much is refused before it is asked for.
static outcome check_memory(const bench *bench)
{
    const measure *measure = &bench->measure;
    double have = memory_there();

    for (int i = 0; i < measure->n && !measure->cuda; i++)
        for (int k = 0; k < bench->contest[i].n; k++) {
            const contender *c = &bench->contest[i].contender[k];
            double want = c->bytes * measure->ranks;

            if (want > have)
                return complain(FAILED,
                                "%s: %s takes %.1f GiB on %d ranks, and this "
                                "machine has %.1f GiB",
                                bench->contest[i].id, c->name, want / 0x1p30,
                                measure->ranks, have / 0x1p30);
        }
    return FINE;
}

static outcome run_all(bench *bench)
{
    measure *measure = &bench->measure;

    TRY(ranks_find(&bench->place,
                   is_dash(bench->path) || is_dash(bench->suite_path),
                   &measure->place, &bench->to));
    bench->here.spread = ranks_are_spread(measure->place);
    TRY(choose_machine(&bench->options, &bench->machine));
    TRY(bench->path ? make_file(bench) : make_suite(bench));
    if (measure->place)
        TRY(ranks_check(measure->place, bench->contest->contender[0].module));
    // What a GPU has is not known before the launch: half of a large one's.
    if (measure->memory == 0)
        measure->memory =
            measure->cuda ? 0x1p36 : memory_there() / 4 / measure->ranks;
    TRY(check_memory(bench));
    score_open(&bench->board);
    TRY(measure_all(measure));
    return report_scores(bench);
}

static void close_bench(bench *bench)
{
    if (!ranks_is_first(bench->measure.place) && bench->to)
        fclose(bench->to);
    for (int i = 0; i < bench->measure.n; i++)
        contest_close(&bench->contest[i]);
    free(bench->contest);
    score_close(&bench->board);
    suite_close(&bench->suite);
    hd_diag_destroy(bench->diag);
    program_options_free(&bench->options);
}

// As it was typed, as far as it fits.
static char *join_words(int argc, char **argv)
{
    char *line = need_format("heddle bench");

    for (int i = 0; i < argc; i++) {
        char *longer = need_format("%s %s", line, argv[i]);

        free(line);
        line = longer;
    }
    return line;
}

static outcome run_bench(const command *command, int argc, char **argv)
{
    char *words = join_words(argc, argv), *line = need_plain(words);
    bench bench = {.diag = need_diag()};
    outcome result;

    program_options_init(&bench.options);
    bench.make.program = &bench.options;
    bench.make.machine = &bench.machine;
    bench.make.diag = bench.measure.diag = bench.diag;
    bench.measure.session = hd_session_defaults();
    bench.measure.seed = 1;
    bench.measure.done = show_contest;
    bench.measure.context = &bench;
    bench.board.measure = &bench.measure;
    bench.board.command = line;
    result = options_take_one(command, argc, argv, &bench, &bench.path);
    bench.to = is_dash(bench.json) || is_dash(bench.csv) ? stderr : stdout;
    if (result == FINE) {
        set_defaults(&bench);
        result = check_usage(&bench);
    }
    if (result == FINE)
        result = run_all(&bench);
    close_bench(&bench);
    free(line);
    free(words);
    return result;
}

static const option bench_options[] = {
    {TEXT, "suite", "FILE", "shapes to measure, in JSON",
     INTO(bench, suite_path)},
    {TEXT, "ids", "ID,..", "only these shapes of the suite", INTO(bench, ids)},
    {TAKEN, "device", "NAME",
     "cpu (the default), cuda, or cuda:N to put all\nranks on one device",
     INTO(bench, measure.session.device), .choices = option_devices,
     .take = option_device},
    {NUMBER, "iters", "N",
     "samples of each candidate in a round\n(default 3 on cuda, else 1)",
     INTO(bench, measure.iters), .low = 1, .high = 10000},
    {NUMBER, "rounds", "N",
     "times that all candidates take turns (default\n10 on cuda, else 5)",
     INTO(bench, measure.rounds), .low = 1, .high = 10000},
    {NUMBER, "warmup", "N", "runs before all that (default 3 or 1)",
     INTO(bench, measure.warmup), .low = 1, .high = 10000},
    {NUMBER, "queue", "N",
     "runs in a row that a sample is (default 10 on\ncuda, else 1)",
     INTO(bench, measure.queue), .low = 1, .high = 10000},
    {NUMBER, "candidates", "N",
     "with auto also those that are predicted to be the\nfastest, N in all",
     INTO(bench, make.candidates), .low = 1, .high = MOST_CANDIDATES},
    {FLAG, "graph", NULL, "measure each pipeline as a CUDA graph too",
     INTO(bench, make.graph)},
    {FLAG, "tune", NULL,
     "time several of cuBLASLt's plans for each matmul\nfirst, and keep the "
     "fastest on disk",
     INTO(bench, measure.session.tune)},
    {NUMBER, "seed", "N", "of random inputs (default 1)",
     INTO(bench, measure.seed), .high = INT64_MAX},
    {REAL, "memory", "GIB",
     "that all candidates of a shape may take on a\nrank; if they need more, "
     "they do not take turns",
     INTO(bench, measure.memory), .high = 1000000},
    {REAL, "timeout", "SECONDS", "that a wait for a peer may take (default 30)",
     INTO(bench, measure.session.timeout), .high = 1000000},
    {OUTPUT, "json", "FILE", "write JSON; times in seconds", INTO(bench, json)},
    {OUTPUT, "csv", "FILE", "write CSV; - is standard output",
     INTO(bench, csv)},
    {.name = NULL},
};

static const option kind_options[] = {
    {LIST, "transfer", "KIND,..",
     "only these of bulk, pipelined, broadcast, direct,\nring, fused, auto, "
     "nccl and sm (default all but\nfused)",
     INTO(bench, make.kind), .choices = kinds,
     .marks = offsetof(bench, options.lower.asked), .mark = HD_OPTION_TRANSFER},
    {.name = NULL},
};

const command bench_command = {
    .name = "bench",
    .operands = "[FILE]",
    .summary = "Measures programs beside their matmul and transfers alone.",
    .about =
        "A file is measured by each of its pipelines; a suite of shapes, "
        "such as\nbench/suite.json, also against its floor. --transfer "
        "takes a list here, of kinds and\nof nccl and sm (the collective by "
        "NCCL or by kernels, then the matmul);\nwithout it all but fused are "
        "measured.\n",
    .groups = {{bench_options, 0},
               {program_transport_option, offsetof(bench, options)},
               {program_define_option, offsetof(bench, options)},
               {kind_options, 0},
               {program_lower_options, offsetof(bench, options)}},
    .run = run_bench,
};
