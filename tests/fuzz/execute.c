// Generated tensor programs, lowered in any way and executed: the answer is the
// dense one, exactly where all numbers are whole, which they are in three of
// four inputs. The steps of all ranks run one at a time in this process; once
// in a while they run on the cpu driver too, each rank in a thread, and always
// where operations are spelt as calls. So it is where temporaries are left for
// `place`. What shares nothing with the library (tests/second) computes some,
// too.
//
// With HEDDLE_FUZZ_LENGTHS only programs are executed of which some length is
// not fixed, and each has a line: which lengths, and whether it ran, or what
// refused it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/verify.h>

#include "ir/module.h"
#include "tests/fuzz/answer.h"
#include "tests/fuzz/open.h"
#include "tests/fuzz/rendezvous.h"
#include "tests/fuzz/spell.h"
#include "tests/info.h"
#include "tests/second/verdict.h"

enum { RUNS = 2, DRAWS = 3 };

// --------------------------------------------------------------- cpu driver

typedef struct seat {
    rendezvous_seat at;
    const hd_module *module;
    const arrays *arrays;
    const hd_reference *want, *own; // of the tensor program; its own
    bool exact;
} seat;

// The shards of this rank, which the caller frees one by one. What a rank has
// room for alone are NaNs.
static void make_shards(const seat *seat, void **shard)
{
    for (size_t i = 0; i < seat->arrays->n; i++) {
        hd_argument a = argument_of(seat->module, i);

        shard[i] = malloc(a.local_bytes);
        memset(shard[i], 0xff, a.local_bytes);
        if (a.role != HD_ROLE_OUT)
            hd_shard(seat->module, i, seat->at.rank, seat->arrays->whole[i],
                     shard[i]);
    }
}

// Values of the tensor program, within what the program's own steps round.
static void find_wanted(const seat *seat, size_t i, const hd_argument *a,
                        double *want, double *bound)
{
    double *dense = malloc(a->local_elements * sizeof(double));

    hd_reference_local(seat->own, i, seat->at.rank, want, bound);
    hd_reference_local(seat->want, i, seat->at.rank, want, dense);
    for (size_t k = 0; k < a->local_elements; k++)
        if (isinf(bound[k]))
            bound[k] = dense[k];
    free(dense);
}

static void check_shards(const seat *seat, void **shard)
{
    for (size_t i = 0; i < seat->arrays->n; i++) {
        hd_argument a = argument_of(seat->module, i);
        double *want = malloc(a.local_elements * sizeof(double));
        double *have = malloc(a.local_elements * sizeof(double));
        double *bound = malloc(a.local_elements * sizeof(double));

        if (a.role == HD_ROLE_OUT || a.role == HD_ROLE_INOUT) {
            find_wanted(seat, i, &a, want, bound);
            hd_dtype_load(a.dtype, shard[i], a.local_elements, have);
            (seat->exact ? must_equal : must_be_close)(
                want, have, bound, &a, seat->module, "cpu driver");
        }
        free(want);
        free(have);
        free(bound);
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
                      const hd_reference *want, const hd_reference *own,
                      bool exact)
{
    rendezvous *m = rendezvous_create(module_info(module).ranks);
    pthread_t thread[GENERATE_MAX_RANKS];
    seat seat[GENERATE_MAX_RANKS];

    for (int rank = 0; rank < m->ranks; rank++) {
        seat[rank] = (struct seat){{m, rank}, module, arrays, want, own, exact};
        must(pthread_create(&thread[rank], NULL, run_rank, &seat[rank]) == 0,
             "a thread starts", "");
    }
    for (int rank = 0; rank < m->ranks; rank++)
        pthread_join(thread[rank], NULL);
    free(m);
}

// What of an input is drawn beside its program.
typedef struct way {
    bool exact, on_threads;
    bool apart; // judged by tests/second, too
    bool again; // in other words, too
    uint64_t seed;
} way;

// Run `run` of sizes of their own, the first of the greatest ones.
static void execute(hd_module *tensor, hd_module *host, const way *way,
                    uint64_t run)
{
    arrays arrays;
    hd_reference *want, *have;

    give_sizes(tensor, host, run * (way->seed + 1));
    arrays = draw_arrays(tensor, way->seed + run);
    want = compute(tensor, &arrays);
    have = compute(host, &arrays);
    must_agree(tensor, host, want, have, way->exact);
    if (way->on_threads)
        run_ranks(host, &arrays, want, have, way->exact);
    hd_reference_destroy(have);
    hd_reference_destroy(want);
    free_arrays(&arrays);
}

// The same program with calls in place of operations, on threads: the answer is
// that of the operations, `of`, which rounds as often.
static void execute_spelt(hd_module *tensor, hd_module *of, const char *text,
                          const hd_lower_options *options, const way *way)
{
    char *spelt = spell_calls(text, way->seed);
    hd_module *host = spelt != NULL ? lower_text(spelt, options) : NULL;
    hd_reference *want, *have;
    arrays arrays;

    if (host != NULL) {
        give_sizes(tensor, host, way->seed);
        give_sizes(tensor, of, way->seed);
        arrays = draw_arrays(tensor, way->seed);
        want = compute(tensor, &arrays);
        have = compute(of, &arrays);
        run_ranks(host, &arrays, want, have, way->exact);
        hd_reference_destroy(have);
        hd_reference_destroy(want);
        free_arrays(&arrays);
    }
    hd_module_destroy(host);
    free(spelt);
}

// The same program with temporaries that `place` puts where it likes.
static void execute_open(hd_module *tensor, const char *text,
                         const hd_lower_options *options, way way)
{
    char *opened = open_temps(text, way.seed);
    hd_module *host = opened != NULL ? lower_as(opened, text, options) : NULL;

    way.on_threads = false;
    if (host != NULL)
        execute(tensor, host, &way, 0);
    hd_module_destroy(host);
    hd_free(opened);
}

// A host program of moves that name dimensions makes what its tensor program
// does.
static void execute_moves(choices choices, const hd_lower_options *options,
                          const way *way)
{
    hd_module *tensor, *host = lower_moves(&choices, options, &tensor);

    if (host != NULL)
        execute(tensor, host, way, 0);
    hd_module_destroy(host);
    hd_module_destroy(tensor);
}

static void judge_apart(hd_module *tensor, const hd_module *host,
                        const way *way)
{
    char *want = print_whole(tensor), *have = print_module(host);
    char *where = second_difference(want, have, DRAWS, (unsigned)way->seed);

    if (where != NULL)
        fprintf(stderr, "%s\n%s", want, where);
    must(where == NULL, "the program computes what its text says", have);
    hd_free(have);
    hd_free(want);
}

// ------------------------------------------------------------ what is drawn

static bool has_key(const hd_block *block, hd_key_code key)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next)
        if (s->kind == HD_STMT_OP && hd_op_key(s->op, key) != NULL)
            return true;
    return false;
}

static bool is_uneven(const hd_module *module)
{
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        for (int d = 0; d < b->type.ndims; d++)
            if (hd_dim_is_sharded(b->type.dim[d]) &&
                !hd_dim_is_sized(b->type.dim[d]) &&
                hd_dim_is_cut(b->type.dim[d]) &&
                b->type.dim[d].extent % b->type.dim[d].blocks != 0)
                return true;
    return false;
}

static const char *outcome_of(const char *text, const hd_module *host,
                              const hd_lower_options *options, char code[16])
{
    hd_diag *diag = hd_diag_create();
    hd_message message = HD_EMPTY(hd_message);
    hd_module *module = NULL;

    snprintf(code, 16, "%s", host != NULL ? "ran" : "refused");
    if (host == NULL &&
        hd_parse("generated", text, strlen(text), NULL, 0, diag, &module) ==
            HD_OK &&
        hd_lower(module, options, NULL, NULL, diag) != HD_OK)
        for (size_t i = 0; hd_diag_message(diag, i, &message); i++)
            if (message.severity == HD_SEVERITY_ERROR)
                snprintf(code, 16, "%s", message.code);
    hd_module_destroy(module);
    hd_diag_destroy(diag);
    return code;
}

typedef struct lengths {
    bool sized, counted, groups, uneven;
} lengths;

static lengths lengths_of(const hd_module *module, const char *text)
{
    return (lengths){.sized = module->nsizes > 0,
                     .counted = strstr(text, " by %") != NULL,
                     .groups = has_key(&module->body, HD_KEY_GROUPS),
                     .uneven = is_uneven(module)};
}

static void tell(const lengths *of, const char *outcome)
{
    printf("%s%s%s%s: %s\n", of->sized ? "sized " : "",
           of->counted ? "counted " : "", of->groups ? "groups " : "",
           of->uneven ? "uneven " : "", outcome);
    fflush(stdout);
}

static bool vary(const lengths *l)
{
    return l->sized || l->counted || l->groups;
}

// On its draws of sizes and counts, and in other words.
static void execute_all(hd_module *tensor, hd_module *host, const char *text,
                        const lengths *lengths, const hd_lower_options *options,
                        const way *way)
{
    for (uint64_t run = 0; host != NULL && run < (vary(lengths) ? 4 : 1); run++)
        execute(tensor, host, way, run);
    if (host != NULL && way->apart)
        judge_apart(tensor, host, way);
    if (host != NULL && way->again)
        execute_spelt(tensor, host, text, options, way);
    if (way->again)
        execute_open(tensor, text, options, *way);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bool alone = getenv("HEDDLE_FUZZ_LENGTHS") != NULL;
    choices choices = {data, size, 0}, moves = choices;
    hd_lower_options options = generate_lowering(&choices);
    uint8_t last = size > 0 ? data[size - 1] : 0;
    way way = {.exact = last % 4 != 2,
               .on_threads = last % 32 >= 30,
               .apart = last % 8 < 1,
               .again = !alone || last % 4 == 1,
               .seed = size > 1 ? size + data[size - 2] : size};
    char *text = NULL;
    hd_module *tensor = generate_module(&choices, way.exact, &text);
    lengths lengths = lengths_of(tensor, text);

    if (!alone || vary(&lengths) || lengths.uneven) {
        hd_module *host = lower_text(text, &options);
        char code[16];

        if (alone)
            tell(&lengths, outcome_of(text, host, &options, code));
        execute_all(tensor, host, text, &lengths, &options, &way);
        hd_module_destroy(host);
    }
    way.exact = true;
    if (!alone)
        execute_moves(moves, &options, &way);
    hd_module_destroy(tensor);
    free(text);
    return 0;
}
