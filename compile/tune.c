// Candidates take turns, so that what disturbs one disturbs all; a run is as
// long as on its slowest rank, and every rank hears all times, so that all
// decide alike.
#include <heddle/environment.h>
#include <heddle/tune.h>

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/disk.h"
#include "base/dtype.h"
#include "base/locale.h"
#include "base/sized.h"
#include "base/text.h"
#include "compile/key.h"
#include "ir/module.h"
#include "lower/lower.h"
#include "runtime/ranks/group.h"

enum { FEWEST_ROUNDS = 3, MOST_ROUNDS = 31, MOST_ROW = 20 };

// The options of a candidate without what they borrow, as rank 0 tells them.
typedef struct way {
    int32_t transfer, protocol, streams, chunks, wire;
    int32_t copy_own, defer_sends, comm_stream, launch;
    uint32_t asked;
    double predicted, time, slowest;
} way;

// What rank 0 knows before anything runs.
typedef struct plan {
    int32_t n, kept, tried;
    way way[HD_TUNE_MOST];
} plan;

// What a rank tells of a round.
typedef struct told {
    double time[HD_TUNE_MOST];
    int32_t last; // of rank 0: whether to end
} told;

typedef struct entry {
    hd_module *module;   // owned
    hd_session *session; // owned
    double time[MOST_ROUNDS];
} entry;

typedef struct tuner {
    hd_group *group;
    const hd_module *module;
    hd_tune_options options;
    hd_choose_options choose;
    hd_lower_options given;
    hd_machine machine;
    hd_session_options session;
    hd_diag *diag;
    hd_text key; // of rank 0; empty where nothing is kept
    plan plan;
    entry entry[HD_TUNE_MOST];
    plan *plans;     // owned: room for one of each rank
    told *told;      // likewise
    void **argument; // owned, and what they point at, the first entry's
    size_t narguments;
} tuner;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ------------------------------------------------------------------ options

static way way_of(const hd_lower_options *o, double predicted)
{
    return (way){.transfer = (int32_t)o->transfer,
                 .protocol = (int32_t)o->protocol,
                 .streams = o->streams,
                 .chunks = o->chunks,
                 .wire = (int32_t)o->wire,
                 .copy_own = o->copy_own,
                 .defer_sends = o->defer_sends,
                 .comm_stream = o->comm_stream,
                 .launch = o->launch,
                 .asked = o->asked,
                 .predicted = predicted};
}

static hd_lower_options options_of(const tuner *t, const way *way)
{
    hd_lower_options o = t->given;

    o.transfer = (hd_transfer)way->transfer;
    o.protocol = (hd_protocol)way->protocol;
    o.streams = way->streams;
    o.chunks = way->chunks;
    o.wire = (hd_wire_dtype)way->wire;
    o.copy_own = way->copy_own != 0;
    o.defer_sends = way->defer_sends != 0;
    o.comm_stream = way->comm_stream != 0;
    o.launch = way->launch != 0;
    o.asked = way->asked;
    return o;
}

// -------------------------------------------------------------- all together

// A word of each rank. On the stack, since a rank without memory says so, too.
typedef struct words {
    int32_t of[HD_MAX_RANKS];
} words;

static hd_status ask_all(const tuner *t, int32_t mine, words *out)
{
    return hd_group_allgather(t->group, &mine, sizeof mine, out->of, t->diag);
}

// That all are well: else it fails on each, with words.
static hd_status agree(const tuner *t, hd_status mine)
{
    words all;
    hd_status told = ask_all(t, (int32_t)mine, &all);

    if (mine != HD_OK)
        return mine;
    HD_TRY(told);
    for (int r = 0; r < hd_group_size(t->group); r++)
        if (all.of[r] != HD_OK)
            return hd_fail(t->diag, HD_ERROR_PEER, "rank %d cannot tune", r);
    return HD_OK;
}

// ------------------------------------------------------------- what is kept

static void put_way(hd_text *text, const way *w)
{
    hd_text_printf(text,
                   "transfer %d protocol %d streams %d chunks %d wire %d "
                   "copy_own %d defer_sends %d comm_stream %d launch %d asked "
                   "%u predicted %a time %a slowest %a",
                   w->transfer, w->protocol, w->streams, w->chunks, w->wire,
                   w->copy_own, w->defer_sends, w->comm_stream, w->launch,
                   w->asked, w->predicted, w->time, w->slowest);
}

static bool get_way(const char *text, way *w, int *tried)
{
    locale_t before = hd_locale_enter();
    int n = sscanf(
        text,
        "transfer %d protocol %d streams %d chunks %d wire %d copy_own %d "
        "defer_sends %d comm_stream %d launch %d asked %u predicted %la time "
        "%la slowest %la tried %d",
        &w->transfer, &w->protocol, &w->streams, &w->chunks, &w->wire,
        &w->copy_own, &w->defer_sends, &w->comm_stream, &w->launch, &w->asked,
        &w->predicted, &w->time, &w->slowest, tried);

    hd_locale_leave(before);
    return n == 14;
}

HD_KEY_HAS_ALL_OF(hd_session_options, deterministic);

static void write_key(tuner *t)
{
    const hd_session_options *s = &t->session;
    hd_env_kind kind = HD_EMPTY(hd_env_kind);
    char *text = NULL;

    if (hd_environment_kind(s->device, NULL, &kind) != HD_OK ||
        hd_print(t->module, &text) != HD_OK)
        return;
    hd_text_printf(&t->key, "heddle %s tuned on %s\n", hd_version(), kind.key);
    hd_key_lower(&t->key, &t->given);
    hd_key_choose(&t->key, &t->choose);
    hd_text_printf(&t->key, "of %d\nsession %d %d %d %d", t->options.most,
                   (int)s->transport, s->graph, s->tune, s->deterministic);
    hd_key_string(&t->key, s->device);
    hd_key_string(&t->key, s->axes);
    hd_key_string(&t->key, text);
    hd_free(text);
}

static bool find_kept(tuner *t)
{
    hd_disk disk;
    size_t bytes;
    void *found;
    char text[512];
    bool whole;

    if (t->key.length == 0 || t->key.failed)
        return false;
    hd_disk_open(&disk);
    if (!hd_disk_read(&disk, &t->key, &found, &bytes))
        return false;
    snprintf(text, sizeof text, "%.*s", (int)bytes, (const char *)found);
    free(found);
    whole = get_way(text, &t->plan.way[0], &t->plan.tried);
    t->plan.n = t->plan.kept = whole;
    return whole;
}

static void keep(const tuner *t, const way *best, int tried)
{
    hd_text text = {0};
    hd_disk disk;

    if (t->key.length == 0 || t->key.failed)
        return;
    put_way(&text, best);
    hd_text_printf(&text, " tried %d\n", tried);
    hd_disk_open(&disk);
    if (!text.failed)
        hd_disk_write(&disk, &t->key, text.bytes, text.length);
    hd_text_free(&text);
}

// ---------------------------------------------------------------- what runs

static bool can_run(const tuner *t)
{
    hd_argument about = HD_EMPTY(hd_argument);

    for (size_t i = 0; hd_module_argument(t->module, i, &about); i++)
        if (about.dtype == HD_DTYPE_EVENT)
            return false;
    return t->module->nsizes == 0 && t->session.ncalls == 0;
}

// The predicted best; where none fits, a ring.
static hd_status list_ways(tuner *t)
{
    hd_lower_options lower = t->given;
    hd_prediction p = HD_EMPTY(hd_prediction);
    int most = can_run(t) ? t->options.most : 1;
    hd_choice *choice;
    hd_status status = hd_choose(t->module, &t->choose, NULL, &choice);

    if (status == HD_ERROR_NO_MEMORY)
        return hd_fail(t->diag, status, "no memory for a choice");
    if (status == HD_ERROR_ARGUMENT)
        return hd_choose(t->module, &t->choose, t->diag, &choice);
    if (status != HD_OK) {
        lower.transfer = HD_TRANSFER_RING;
        t->plan.way[t->plan.n++] = way_of(&lower, 0);
        return HD_OK;
    }
    while (t->plan.n < most &&
           hd_choice_candidate(choice, (size_t)t->plan.n, &lower, &p, NULL)) {
        t->plan.way[t->plan.n] = way_of(&lower, p.time);
        t->plan.n++;
    }
    hd_choice_destroy(choice);
    return HD_OK;
}

static hd_status open_room(tuner *t)
{
    size_t size = (size_t)hd_group_size(t->group);

    if ((int)size != t->module->nranks)
        return hd_fail(t->diag, HD_ERROR_ARGUMENT,
                       "the mesh of '%s' has %d ranks, the group %d",
                       t->module->name, (int)t->module->nranks, (int)size);
    t->plans = calloc(size, sizeof *t->plans);
    t->told = calloc(size, sizeof *t->told);
    if (t->plans == NULL || t->told == NULL)
        return hd_fail(t->diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                       (int)size);
    return HD_OK;
}

// Rank 0 decides what is run, for all. `mine` is how this one is so far.
static hd_status make_plan(tuner *t, hd_status mine)
{
    if (mine == HD_OK)
        mine = open_room(t);
    if (mine == HD_OK && hd_group_rank(t->group) == 0) {
        write_key(t);
        if (!find_kept(t))
            mine = list_ways(t);
    }
    HD_TRY(agree(t, mine));
    HD_TRY(hd_group_allgather(t->group, &t->plan, sizeof t->plan, t->plans,
                              t->diag));
    t->plan = t->plans[0];
    return HD_OK;
}

static hd_status make_module(const tuner *t, const way *way, hd_module **out)
{
    hd_lower_options lower = options_of(t, way);
    hd_check_options check = hd_check_defaults();

    lower.until = HD_STAGE_HOST;
    check.transport = lower.transport;
    check.axes = lower.axes;
    HD_TRY(hd_module_clone(t->module, NULL, out));
    HD_TRY(hd_lower(*out, &lower, NULL, NULL, NULL));
    return hd_check(*out, &check, NULL);
}

static void close_entry(entry *e)
{
    hd_session_destroy(e->session);
    hd_module_destroy(e->module);
    *e = (entry){0};
}

// Which candidates all ranks can make, a bit each.
static hd_status make_modules(tuner *t, unsigned *out)
{
    unsigned mine = 0;
    words all;

    for (int i = 0; i < t->plan.n; i++)
        if (make_module(t, &t->plan.way[i], &t->entry[i].module) == HD_OK)
            mine |= 1u << i;
    HD_TRY(ask_all(t, (int32_t)mine, &all));
    for (int r = 0; r < hd_group_size(t->group); r++)
        mine &= (unsigned)all.of[r];
    *out = mine;
    return HD_OK;
}

// What a device does not do, or what is proven wrong, is tried no more. A
// session is made by all ranks or by none.
static hd_status open_entries(tuner *t)
{
    unsigned made = 0;

    HD_TRY(make_modules(t, &made));
    for (int i = 0; i < t->plan.n; i++) {
        entry *e = &t->entry[i];

        if ((made & 1u << i) == 0 ||
            hd_session_create(t->group, e->module, &t->session, NULL,
                              &e->session) != HD_OK) {
            close_entry(e);
            continue;
        }
        t->plan.way[t->plan.tried] = t->plan.way[i];
        if (i > t->plan.tried) {
            t->entry[t->plan.tried] = *e;
            *e = (entry){0};
        }
        t->plan.tried++;
    }
    return HD_OK;
}

// Counts that fill what they count, indices that are there, and numbers about
// 0.
static double draw(const hd_argument *a, size_t i, uint64_t *random)
{
    int64_t groups = a->ndims > 0 ? a->local[a->ndims - 1] : 1;

    *random = *random * 6364136223846793005u + 1442695040888963407u;
    if (a->grouped_rows > 0)
        return (double)(a->grouped_rows / (groups > 0 ? groups : 1));
    if (a->counted > 0)
        return (double)a->counted;
    if (a->taken_extent > 0)
        return (double)(i % (size_t)a->taken_extent);
    return hd_dtype_is_float(a->dtype)
               ? (double)(int64_t)(*random >> 33) / 0x1p30 - 1
               : 0;
}

enum { PART = 1 << 14 };

// Elements that are copied together.
typedef struct part {
    double drawn[PART];
    unsigned char bytes[PART * sizeof(double)];
} part;

// What is drawn repeats itself from the fifth part on.
static hd_status fill_by(part *part, const tuner *t, size_t i,
                         const hd_argument *a)
{
    size_t each = hd_dtype_size(a->dtype);
    uint64_t random = i + 1;

    for (size_t done = 0; done < a->local_elements; done += PART) {
        size_t left = a->local_elements - done, n = left < PART ? left : PART;

        for (size_t j = 0; j < n && done < 4 * PART; j++)
            part->drawn[j] = draw(a, done + j, &random);
        hd_dtype_store(a->dtype, part->drawn, n, part->bytes);
        HD_TRY(hd_session_copy(t->entry[0].session,
                               (unsigned char *)t->argument[i] + done * each,
                               part->bytes, n * each, t->diag));
    }
    return HD_OK;
}

static hd_status fill(const tuner *t, size_t i, const hd_argument *a)
{
    part *part = malloc(sizeof *part);
    hd_status status;

    if (part == NULL)
        return hd_fail(t->diag, HD_ERROR_NO_MEMORY, "out of memory");
    status = fill_by(part, t, i, a);
    free(part);
    return status;
}

static hd_status take_memory(tuner *t)
{
    hd_argument a = HD_EMPTY(hd_argument);
    size_t n = 0;

    while (hd_module_argument(t->module, n, &a))
        n++;
    t->argument = calloc(n + 1, sizeof *t->argument);
    if (t->argument == NULL)
        return hd_fail(t->diag, HD_ERROR_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        (void)hd_module_argument(t->module, i, &a);
        HD_TRY(hd_session_alloc(t->entry[0].session, a.local_bytes, t->diag,
                                &t->argument[i]));
        t->narguments++;
        if (a.role != HD_ROLE_OUT)
            HD_TRY(fill(t, i, &a));
    }
    return HD_OK;
}

static void close_all(tuner *t)
{
    for (size_t i = 0; i < t->narguments; i++)
        hd_session_free(t->entry[0].session, t->argument[i]);
    free(t->argument);
    for (int i = HD_TUNE_MOST - 1; i >= 0; i--)
        close_entry(&t->entry[i]);
    free(t->plans);
    free(t->told);
    hd_text_free(&t->key);
}

// ----------------------------------------------------------------- the race

static hd_status run_row(const tuner *t, const entry *e, int row, double *out)
{
    double begin;

    HD_TRY(hd_group_allgather(t->group, NULL, 0, NULL, t->diag));
    begin = now();
    for (int i = 0; i < row; i++)
        HD_TRY(hd_session_run(e->session, t->argument, t->narguments, NULL,
                              t->diag));
    HD_TRY(hd_session_finish(e->session, t->diag));
    *out = (now() - begin) / row;
    return HD_OK;
}

static hd_status share_round(tuner *t, int round, const told *mine, bool *last)
{
    HD_TRY(hd_group_allgather(t->group, mine, sizeof *mine, t->told, t->diag));
    for (int i = 0; i < t->plan.tried; i++)
        for (int r = 0; r < hd_group_size(t->group); r++)
            if (t->told[r].time[i] > t->entry[i].time[round])
                t->entry[i].time[round] = t->told[r].time[i];
    *last = t->told[0].last != 0;
    return HD_OK;
}

// As many in a row as take some 2 ms, as predicted: the same on all ranks.
static int count_row(const tuner *t)
{
    double predicted = t->plan.way[0].predicted;
    double row = predicted > 0 ? 2e-3 / predicted : 1;

    return strcmp(t->session.device, "cpu") == 0 || row < 1 ? 1
           : row < MOST_ROW                                 ? (int)row
                                                            : MOST_ROW;
}

static hd_status race(tuner *t, int *rounds)
{
    double start = now(), warm;
    int n = t->plan.tried, row = count_row(t);
    bool last = false;

    for (int i = 0; i < n; i++)
        HD_TRY(run_row(t, &t->entry[i], 1, &warm));
    for (*rounds = 0; !last && *rounds < MOST_ROUNDS; ++*rounds) {
        told mine = {.last = now() - start > t->options.seconds &&
                             *rounds + 1 >= FEWEST_ROUNDS};

        for (int i = 0; i < n; i++) {
            int k = (i + *rounds) % n;

            HD_TRY(run_row(t, &t->entry[k], row, &mine.time[k]));
        }
        HD_TRY(share_round(t, *rounds, &mine, &last));
    }
    return HD_OK;
}

static int compare_times(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;

    return (a > b) - (a < b);
}

static way *find_fastest(tuner *t, int rounds)
{
    way *best = &t->plan.way[0];
    double slowest = 0;

    for (int i = 0; i < t->plan.tried; i++) {
        double *time = t->entry[i].time;
        way *way = &t->plan.way[i];

        qsort(time, (size_t)rounds, sizeof *time, compare_times);
        way->time = time[rounds / 2];
        slowest = way->time > slowest ? way->time : slowest;
        if (way->time < best->time)
            best = way;
    }
    best->slowest = slowest;
    return best;
}

static hd_status run_all(tuner *t, way **best)
{
    int rounds = 0;

    HD_TRY(open_entries(t));
    HD_TRY(agree(t, t->plan.tried < 2 ? HD_OK : take_memory(t)));
    if (t->plan.tried < 2)
        return HD_OK;
    HD_TRY(race(t, &rounds));
    *best = find_fastest(t, rounds);
    if (hd_group_rank(t->group) == 0)
        keep(t, *best, t->plan.tried);
    return HD_OK;
}

// ------------------------------------------------------------------- public

static hd_status read_options(const hd_module *module, tuner *t,
                              const hd_tune_options *given, hd_diag *diag)
{
    t->options = hd_tune_defaults();
    t->choose = hd_choose_defaults();
    t->given = hd_lower_defaults();
    t->session = hd_session_defaults();
    t->machine = HD_EMPTY(hd_machine);
    hd_machine_default(&t->machine);
    HD_TRY(
        hd_sized_read("hd_tune", given, sizeof t->options, diag, &t->options));
    HD_TRY(hd_sized_read("hd_tune", t->options.choose, sizeof t->choose, diag,
                         &t->choose));
    HD_TRY(hd_sized_read("hd_tune", t->choose.lower, sizeof t->given, diag,
                         &t->given));
    HD_TRY(hd_sized_read("hd_tune", t->choose.machine, sizeof t->machine, diag,
                         &t->machine));
    HD_TRY(hd_sized_read("hd_tune", t->options.session, sizeof t->session, diag,
                         &t->session));
    t->choose.lower = &t->given;
    t->choose.machine = &t->machine;
    t->session.times = NULL;
    t->session.fixed = NULL;
    t->session.nfixed = 0;
    t->session.capturable = false;
    HD_TRY(hd_lower_judge(&t->given, diag));
    if (module->stage == HD_STAGE_HOST)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "'%s' is lowered already: there are no pipelines to "
                       "try",
                       module->name);
    if (t->options.most < 1 || t->options.most > HD_TUNE_MOST ||
        !(t->options.seconds >= 0))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "%d candidates and %g seconds; 1 to %d candidates and "
                       "at least 0 seconds are possible",
                       t->options.most, t->options.seconds, HD_TUNE_MOST);
    return HD_OK;
}

hd_status hd_tune(hd_group *group, const hd_module *module,
                  const hd_tune_options *options, hd_diag *diag, hd_tuned *out)
{
    tuner t = {.group = group, .module = module, .diag = diag};
    hd_tuned tuned = HD_EMPTY(hd_tuned);
    way *best = &t.plan.way[0];
    hd_status status;

    HD_REQUIRE(diag, group);
    HD_REQUIRE(diag, module);
    HD_REQUIRE(diag, out);
    status = make_plan(&t, read_options(module, &t, options, diag));
    if (status == HD_OK && t.plan.n > 1)
        status = run_all(&t, &best);
    tuned.lower = options_of(&t, best);
    tuned.time = best->time;
    tuned.slowest = best->slowest;
    tuned.predicted = best->predicted;
    tuned.tried = best->time > 0 ? t.plan.tried : 0;
    tuned.kept = t.plan.kept != 0;
    close_all(&t);
    if (status == HD_OK)
        hd_sized_write(&tuned, sizeof tuned, out);
    return status;
}
