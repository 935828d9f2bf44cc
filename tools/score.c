// See score.h.
#include <heddle/environment.h>

#include <heddle/verify.h>

#include "score.h"

#include "env.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// ------------------------------------------------------------------- machine

// What follows the colon in the first line of `path` that begins with `key`.
static bool read_field(const char *path, const char *key, char *out,
                       size_t size)
{
    FILE *file = fopen(path, "re");
    char line[512];
    bool found = false;

    while (file && !found && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');

        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(colon, "\n"), colon);
        found = true;
    }
    if (file)
        fclose(file);
    return found;
}

// The driver lists its GPUs there: "8 x NVIDIA H200".
static void find_gpus(char *out, size_t size)
{
    static const char folder[] = "/proc/driver/nvidia/gpus";
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    char model[128] = "";
    int n = 0;

    while (dir && (entry = readdir(dir))) {
        char path[512];

        snprintf(path, sizeof path, "%s/%s/information", folder, entry->d_name);
        n += read_field(path, "Model", model, sizeof model);
    }
    if (dir)
        closedir(dir);
    if (n > 0)
        snprintf(out, size, "%d x %s", n, model);
}

static void widen(const char *text, size_t *width)
{
    size_t length = strlen(text);

    *width = length > *width ? length : *width;
}

void score_open(scoreboard *board)
{
    time_t t = time(NULL);
    struct tm tm;
    char model[96] = "processor";

    gmtime_r(&t, &tm);
    strftime(board->date, sizeof board->date, "%Y-%m-%d %H:%M:%S UTC", &tm);
    read_field("/proc/cpuinfo", "model name", model, sizeof model);
    snprintf(board->host, sizeof board->host, "%ld x %s",
             sysconf(_SC_NPROCESSORS_ONLN), model);
    if (board->measure->cuda)
        find_gpus(board->devices, sizeof board->devices);
    board->width = strlen("shape");
    board->names = 20;
    for (int i = 0; i < board->measure->n; i++) {
        const contest *contest = &board->measure->contest[i];

        widen(contest->id, &board->width);
        for (int k = 0; k < contest->n; k++)
            widen(contest->contender[k].name, &board->names);
    }
}

void score_close(scoreboard *board)
{
    hd_environment_destroy(board->machine);
    board->machine = NULL;
}

// What is not known is left out: the times stand without it.
void score_libraries(scoreboard *board, FILE *to)
{
    const hd_environment *machine;

    if (!board->measure->cuda ||
        hd_environment_create(NULL, &board->machine) != HD_OK)
        return;
    machine = board->machine;
    fprintf(to, "\nheddle %s", hd_version());
    if (*machine->cuda.version)
        fprintf(to, ", CUDA %s", machine->cuda.version);
    for (int i = 0; i < machine->nlibraries; i++)
        if (*machine->library[i].version)
            fprintf(to, ", %s %s", machine->library[i].name,
                    machine->library[i].version);
    fputc('\n', to);
}

// --------------------------------------------------------------------- table

// bytes/s that a link carries, 0 if not known.
static double rate_of(const scoreboard *board)
{
    const contest *probe = board->measure->contest;

    if (!board->probed || !probe->score[0].ran)
        return 0;
    return probe->bytes_in / probe->score[0].median;
}

// The probe multiplies nothing, and so have contenders that were skipped.
static const char *library_of(const contest *contest)
{
    for (int i = 0; i < contest->n; i++)
        if (contest->score[i].library[0])
            return contest->score[i].library;
    return "none";
}

void score_head(const scoreboard *board, const contest *first, FILE *to)
{
    const measure *measure = board->measure;

    fprintf(to, "heddle %s, %s\n", hd_version(), board->date);
    fprintf(to, "command  %s\n", board->command);
    fprintf(to, "host     %s\n", board->host);
    fprintf(to, "device   %s%s%s%s, %d rank%s\n", measure->session.device,
            board->devices[0] ? " (" : "", board->devices,
            board->devices[0] ? ")" : "", measure->ranks,
            measure->ranks == 1 ? "" : "s");
    fprintf(to, "matmul   %s\n", library_of(first));
    if (rate_of(board) > 0)
        fprintf(to, "link     %.1f GB/s to a neighbour\n",
                rate_of(board) * 1e-9);
    fprintf(to,
            "samples  %" PRId64 " rounds of %" PRId64 ", each %" PRId64
            " run%s in a row\n\n",
            measure->rounds, measure->iters, measure->queue,
            measure->queue == 1 ? "" : "s");
    fprintf(to, "%-*s  %-*s  %10s  %10s  %10s  %10s  %9s  %12s  %10s\n",
            (int)board->width, "shape", (int)board->names, "candidate",
            "median ms", "p5", "p95", "alone ms", "issue us", "predicted ms",
            "floor/time");
}

// That nothing was compared, though something should have been, is a failure
// too.
static const char *verdict_text(const contender *contender, const score *score)
{
    if (!score->ran)
        return "skipped";
    if (contender->judge == JUDGE_NONE)
        return "not checked";
    return score->verdict.off > 0 || score->verdict.checked == 0 ? "FAILED"
                                                                 : "verified";
}

// Only what does both parts is held against the floor.
static void print_row(const scoreboard *board, const contest *contest, int i,
                      double floor, FILE *to)
{
    const score *s = &contest->score[i];
    const contender *c = &contest->contender[i];

    fprintf(to, "%-*s  %-*s  ", (int)board->width, contest->id,
            (int)board->names, c->name);
    if (!s->ran) {
        fprintf(to, "skipped: %s\n", s->why);
        return;
    }
    fprintf(to, "%10.4f  %10.4f  %10.4f  %10.4f  %9.1f  ", s->median * 1e3,
            s->p5 * 1e3, s->p95 * 1e3, s->alone * 1e3, s->issue * 1e6);
    if (c->predicted > 0)
        fprintf(to, "%12.4f  ", c->predicted * 1e3);
    else
        fprintf(to, "%12s  ", "-");
    if (floor > 0 && c->part == PART_WHOLE)
        fprintf(to, "%10.3f", floor / s->median);
    else
        fprintf(to, "%10s", "-");
    if (strcmp(verdict_text(c, s), "FAILED") == 0)
        fprintf(to, "  FAILED");
    fputc('\n', to);
}

void score_rows(const scoreboard *board, const contest *contest, FILE *to)
{
    double floor = contest_floor(contest, rate_of(board));

    if (floor > 0)
        fprintf(to, "%-*s  %-*s  %10.4f\n", (int)board->width, contest->id,
                (int)board->names, "floor", floor * 1e3);
    for (int i = 0; i < contest->n; i++)
        print_row(board, contest, i, floor, to);
    if (measure_apart(board->measure, contest))
        fprintf(to,
                "%s: the candidates need more than --memory together: they "
                "were measured one after the other\n",
                contest->id);
    fflush(to);
}

outcome score_verdicts(const scoreboard *board, FILE *to)
{
    const measure *measure = board->measure;
    outcome result = FINE;

    for (int k = 0; k < measure->n; k++)
        for (int i = 0; i < measure->contest[k].n; i++) {
            const contender *c = &measure->contest[k].contender[i];
            const score *s = &measure->contest[k].score[i];
            const finding *worst = &s->verdict.worst;

            if (strcmp(verdict_text(c, s), "FAILED") != 0)
                continue;
            fprintf(to,
                    "%s: %s: FAILED: %zu of %zu values are off; the worst is "
                    "%.9g and should be %.9g within %.3g, at rank %d, element "
                    "%zu\n",
                    measure->contest[k].id, c->name, s->verdict.off,
                    s->verdict.checked, worst->value, worst->expected,
                    worst->bound, worst->rank, worst->index);
            result = FAILED;
        }
    return result;
}

// ---------------------------------------------------------------------- JSON

static void put_candidate(cJSON *array, const contest *contest, int i,
                          double floor)
{
    const score *s = &contest->score[i];
    const contender *c = &contest->contender[i];
    cJSON *object = json_object(array, NULL);

    json_text(object, "name", c->name);
    if (*c->options)
        json_text(object, "options", c->options + 1);
    if (c->predicted > 0)
        json_number(object, "predicted", c->predicted);
    json_text(object, "check", verdict_text(c, s));
    if (!s->ran) {
        json_text(object, "why", s->why);
        return;
    }
    json_number(object, "median", s->median);
    json_number(object, "p5", s->p5);
    json_number(object, "p95", s->p95);
    json_number(object, "alone", s->alone);
    json_number(object, "issue", s->issue);
    json_number(object, "issue_alone", s->issue_alone);
    if (floor > 0 && c->part == PART_WHOLE)
        json_number(object, "floor_ratio", floor / s->median);
    if (s->verdict.checked > 0)
        json_number(object, "error_to_bound", s->verdict.worst.ratio);
}

static void put_shape(cJSON *object, const shape *shape)
{
    const attended *attention = &shape->attention;

    if (!shape_attends(shape)) {
        json_integer(object, "m", shape->m);
        json_integer(object, "n", shape->n);
        json_integer(object, "k", shape->k);
        return;
    }
    json_integer(object, "b", attention->batch);
    json_integer(object, "h", attention->heads);
    json_integer(object, "hkv", attention->kv_heads);
    json_integer(object, "s", attention->rows);
    json_integer(object, "d", attention->depth);
}

static void put_contest(cJSON *array, const scoreboard *board,
                        const contest *contest)
{
    cJSON *object = json_object(array, NULL);
    double floor = contest_floor(contest, rate_of(board));
    cJSON *candidates;

    json_text(object, "id", contest->id);
    if (!contest->program) {
        json_text(object, "kind", shape_kind_name(contest->shape.kind));
        json_text(object, "dtype", hd_dtype_text(contest->shape.dtype));
        put_shape(object, &contest->shape);
        json_number(object, "bytes_in", contest->bytes_in);
    }
    if (floor > 0)
        json_number(object, "floor", floor);
    json_flag(object, "interleaved", !measure_apart(board->measure, contest));
    candidates = json_array(object, "candidates");
    for (int i = 0; i < contest->n; i++)
        put_candidate(candidates, contest, i, floor);
}

static cJSON *make_json(const scoreboard *board)
{
    const measure *measure = board->measure;
    cJSON *root = json_need(cJSON_CreateObject());
    cJSON *shapes;

    json_text(root, "heddle", hd_version());
    json_text(root, "date", board->date);
    json_text(root, "command", board->command);
    json_text(root, "host", board->host);
    json_text(root, "device", measure->session.device);
    if (board->devices[0])
        json_text(root, "devices", board->devices);
    json_text(root, "matmul",
              library_of(&measure->contest[board->probed && measure->n > 1]));
    if (board->machine)
        env_libraries(root, board->machine);
    json_number(root, "ranks", measure->ranks);
    json_integer(root, "rounds", measure->rounds);
    json_integer(root, "iters", measure->iters);
    json_integer(root, "queue", measure->queue);
    json_number(root, "link_rate", rate_of(board));
    shapes = json_array(root, "shapes");
    for (int i = board->probed; i < measure->n; i++)
        put_contest(shapes, board, &measure->contest[i]);
    return root;
}

static outcome print_json(void *context, FILE *to)
{
    fprintf(to, "%s\n", (const char *)context);
    return FINE;
}

outcome score_json(const scoreboard *board, const char *path)
{
    cJSON *root = make_json(board);
    char *text = json_format(root);
    outcome result;

    cJSON_Delete(root);
    result = file_print(path, print_json, text);
    free(text);
    return result;
}

// ----------------------------------------------------------------------- CSV

// Ids and names hold no commas, so nothing is quoted.
static void print_rows(const scoreboard *board, const contest *contest,
                       FILE *to)
{
    double floor = contest_floor(contest, rate_of(board));

    for (int i = 0; i < contest->n; i++) {
        const score *s = &contest->score[i];
        const contender *c = &contest->contender[i];

        fprintf(to, "%s,%s,", contest->id, c->name);
        if (s->ran)
            fprintf(to, "%.6f,%.6f,%.6f,%.6f,%.3f,", s->median * 1e3,
                    s->p5 * 1e3, s->p95 * 1e3, s->alone * 1e3, s->issue * 1e6);
        else
            fputs(",,,,,", to);
        if (c->predicted > 0)
            fprintf(to, "%.6f", c->predicted * 1e3);
        fputc(',', to);
        if (s->ran && floor > 0 && c->part == PART_WHOLE)
            fprintf(to, "%.6f", floor / s->median);
        fprintf(to, ",%s\n", verdict_text(c, s));
    }
}

static outcome print_csv(void *context, FILE *to)
{
    const scoreboard *board = context;

    fputs("shape,candidate,median_ms,p5_ms,p95_ms,alone_ms,issue_us,"
          "predicted_ms,floor_ratio,check\n",
          to);
    for (int i = board->probed; i < board->measure->n; i++)
        print_rows(board, &board->measure->contest[i], to);
    return FINE;
}

outcome score_csv(scoreboard *board, const char *path)
{
    return file_print(path, print_csv, board);
}
