// Generated tensor programs of whole numbers, lowered in any way and executed:
// the answer is the dense one, exactly. The steps of all ranks run one at a
// time in this process; once in a while they run on the cpu driver too, each
// rank in a thread, and always where operations are spelt as calls. So it is
// where temporaries are left for `place`.
#include <stdlib.h>
#include <string.h>

#include <heddle/verify.h>

#include "ir/module.h"
#include "tests/fuzz/answer.h"
#include "tests/fuzz/open.h"
#include "tests/fuzz/rendezvous.h"
#include "tests/fuzz/spell.h"
#include "tests/info.h"

enum { RUNS = 2 };

// --------------------------------------------------------------- cpu driver

typedef struct seat {
    rendezvous_seat at;
    const hd_module *module;
    const arrays *arrays;
    const hd_reference *want;
} seat;

// The shards of this rank, which the caller frees one by one.
static void make_shards(const seat *seat, void **shard)
{
    for (size_t i = 0; i < seat->arrays->n; i++) {
        hd_argument a = argument_of(seat->module, i);

        shard[i] = malloc(a.local_bytes);
        memset(shard[i], 0x5a, a.local_bytes);
        if (a.role != HD_ROLE_OUT)
            hd_shard(seat->module, i, seat->at.rank, seat->arrays->whole[i],
                     shard[i]);
    }
}

static void check_shards(const seat *seat, void **shard)
{
    for (size_t i = 0; i < seat->arrays->n; i++) {
        hd_argument a = argument_of(seat->module, i);
        double *want = malloc(a.local_elements * sizeof(double));
        double *have = malloc(a.local_elements * sizeof(double));

        if (a.role == HD_ROLE_OUT || a.role == HD_ROLE_INOUT) {
            hd_reference_local(seat->want, i, seat->at.rank, want, NULL);
            hd_dtype_load(a.dtype, shard[i], a.local_elements, have);
            must_equal(want, have, &a, seat->module, "cpu driver");
        }
        free(want);
        free(have);
    }
}

// Two runs in the queue at once, on arguments of their own.
static void run_twice(const seat *seat, hd_session *session, hd_diag *diag)
{
    void *shard[RUNS][MAX_ARGUMENTS];
    int64_t sizes[HD_MAX_SIZES];
    hd_run_options with = HD_EMPTY(hd_run_options);
    hd_status status = HD_OK;

    with.sizes = sizes;
    with.nsizes = (size_t)seat->module->nsizes;
    for (int i = 0; i < seat->module->nsizes; i++)
        sizes[i] = seat->module->size[i].now;
    for (int run = 0; run < RUNS && status == HD_OK; run++) {
        make_shards(seat, shard[run]);
        status =
            hd_session_run(session, shard[run], seat->arrays->n, &with, diag);
    }
    if (status == HD_OK)
        status = hd_session_finish(session, diag);
    must(status == HD_OK, "a session runs", hd_diag_text(diag));
    for (int run = 0; run < RUNS; run++) {
        check_shards(seat, shard[run]);
        for (size_t i = 0; i < seat->arrays->n; i++)
            free(shard[run][i]);
    }
}

static void *run_rank(void *context)
{
    seat *seat = context;
    hd_oob oob = rendezvous_oob(&seat->at);
    hd_session_options options = hd_session_defaults();
    hd_diag *diag = hd_diag_create();
    hd_group *group = NULL;
    hd_session *session = NULL;

    options.calls = spell_table;
    options.ncalls = spell_count;
    must(hd_group_create(&oob, 20, diag, &group) == HD_OK, "ranks meet",
         hd_diag_text(diag));
    must(hd_session_create(group, seat->module, &options, diag, &session) ==
             HD_OK,
         "a session begins", hd_diag_text(diag));
    run_twice(seat, session, diag);
    hd_session_destroy(session);
    hd_group_destroy(group);
    hd_diag_destroy(diag);
    return NULL;
}

static void run_ranks(const hd_module *module, const arrays *arrays,
                      const hd_reference *want)
{
    rendezvous *m = rendezvous_create(module_info(module).ranks);
    pthread_t thread[GENERATE_MAX_RANKS];
    seat seat[GENERATE_MAX_RANKS];

    for (int rank = 0; rank < m->ranks; rank++) {
        seat[rank] = (struct seat){{m, rank}, module, arrays, want};
        must(pthread_create(&thread[rank], NULL, run_rank, &seat[rank]) == 0,
             "a thread starts", "");
    }
    for (int rank = 0; rank < m->ranks; rank++)
        pthread_join(thread[rank], NULL);
    free(m);
}

// Run `run` of sizes of their own, the first of the greatest ones.
static void execute(hd_module *tensor, hd_module *host, uint64_t seed,
                    uint64_t run, bool on_threads)
{
    arrays arrays;
    hd_reference *want, *have;

    give_sizes(tensor, host, run * (seed + 1));
    arrays = draw_arrays(tensor, seed);
    want = compute(tensor, &arrays);
    have = compute(host, &arrays);
    must_agree(tensor, host, want, have, true);
    if (on_threads)
        run_ranks(host, &arrays, want);
    hd_reference_destroy(have);
    hd_reference_destroy(want);
    free_arrays(&arrays);
}

// The same program with calls in place of operations, on threads: the answer is
// that of the operations.
static void execute_spelt(hd_module *tensor, const char *text,
                          const hd_lower_options *options, uint64_t seed)
{
    char *spelt = spell_calls(text, seed);
    hd_module *host = spelt != NULL ? lower_text(spelt, options) : NULL;
    hd_reference *want;
    arrays arrays;

    if (host != NULL) {
        give_sizes(tensor, host, seed);
        arrays = draw_arrays(tensor, seed);
        want = compute(tensor, &arrays);
        run_ranks(host, &arrays, want);
        hd_reference_destroy(want);
        free_arrays(&arrays);
    }
    hd_module_destroy(host);
    free(spelt);
}

// The same program with temporaries that `place` puts where it likes.
static void execute_open(hd_module *tensor, const char *text,
                         const hd_lower_options *options, uint64_t seed)
{
    char *opened = open_temps(text, seed);
    hd_module *host = opened != NULL ? lower_as(opened, text, options) : NULL;

    if (host != NULL)
        execute(tensor, host, seed, 0, false);
    hd_module_destroy(host);
    hd_free(opened);
}

// A host program of moves that name dimensions makes what its tensor program
// does.
static void execute_moves(choices choices, const hd_lower_options *options,
                          uint64_t seed, bool on_threads)
{
    hd_module *tensor, *host = lower_moves(&choices, options, &tensor);

    if (host != NULL)
        execute(tensor, host, seed, 0, on_threads);
    hd_module_destroy(host);
    hd_module_destroy(tensor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choices choices = {data, size, 0}, moves = choices;
    hd_lower_options options = generate_lowering(&choices);
    bool on_threads = size > 0 && data[size - 1] % 32 == 31;
    char *text = NULL;
    hd_module *tensor = generate_module(&choices, true, &text);
    hd_module *host = lower_text(text, &options);

    for (uint64_t run = 0; host != NULL && run < (tensor->nsizes ? 4 : 1);
         run++)
        execute(tensor, host, size, run, on_threads);
    execute_spelt(tensor, text, &options, size);
    execute_open(tensor, text, &options, size > 1 ? data[size - 2] : 0);
    execute_moves(moves, &options, size, on_threads);
    hd_module_destroy(host);
    hd_module_destroy(tensor);
    free(text);
    return 0;
}
