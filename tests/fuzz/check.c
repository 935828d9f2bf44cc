// The checker on arbitrary host programs: a host program, or a tensor program
// (generated, if there is no text) that was lowered, edited. It ends well or
// says why, and the same way twice; what it accepts executes to its end; and it
// accepts just what the oracle does, which executes two runs under every
// schedule that matters.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/simulate.h>
#include <heddle/verify.h>

#include "ir/verify.h"
#include "tests/fuzz/answer.h"
#include "tests/fuzz/mutate.h"
#include "tests/info.h"
#include "tests/match.h"
#include "tests/mutation/oracle.h"
#include "tests/second/verdict.h"

enum {
    MOST_STEPS = 200,   // of all ranks, for the oracle
    MOST_WORK = 300000, // and times the elements of all ranks
};

// The text, or where there is none a generated program, as a host program.
static hd_module *make_host(const uint8_t *data, size_t length,
                            choices *choices)
{
    hd_diag *diag = hd_diag_create();
    hd_lower_options options = generate_lowering(choices);
    hd_module *module = NULL;
    char *text = NULL;
    hd_status status = HD_OK;

    if (length == 0)
        module = generate_module(choices, true, &text);
    else
        status = hd_parse("fuzz", (const char *)data, length, NULL, 0, diag,
                          &module);
    if (status == HD_OK &&
        (!is_small(module) ||
         hd_lower(module, &options, NULL, NULL, diag) != HD_OK)) {
        hd_module_destroy(module);
        module = NULL;
    }
    free(text);
    hd_diag_destroy(diag);
    return module;
}

static void execute(const hd_module *module)
{
    arrays arrays;

    if (module_info(module).narguments > MAX_ARGUMENTS ||
        !has_reference(module))
        return;
    arrays = draw_arrays(module, 1);
    hd_reference_destroy(compute(module, &arrays));
    free_arrays(&arrays);
}

// The oracle runs all steps once for each step, on buffers of all ranks that it
// makes afresh.
static bool is_short(const hd_module *module)
{
    int64_t all = 0, elements = 0;

    for (int rank = 0; rank < module->nranks; rank++) {
        int64_t steps = 0;

        if (hd_module_steps(module, rank, NULL, &steps) != HD_OK)
            return false;
        all += steps;
    }
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        elements += hd_type_local_elements(&b->type) * module->nranks;
    return all <= MOST_STEPS && all * elements <= MOST_WORK;
}

// Launches the oracle takes for their steps alone.
static bool hangs(const hd_module *module, hd_diag *said)
{
    char *text = print_module(module);
    int hangs = second_hangs(text);

    hd_free(text);
    return hangs > 0 ||
           (hangs < 0 && strstr(hd_diag_text(said), "HD0706") != NULL);
}

// What the checker says of the module is true of it. Where runs are given sizes
// it is judged where all blocks are full, and what is accepted there is clean
// at every value.
static void ask_oracle(const hd_module *module, bool is_full, hd_status status,
                       hd_diag *said)
{
    char why[512] = "";
    oracle_verdict verdict;

    if (!is_short(module))
        return;
    verdict = oracle_judge(module, ORACLE_DELAY, 0, 0, why, sizeof why);
    if (verdict == ORACLE_CLEAN && is_full && hangs(module, said))
        verdict = ORACLE_DEADLOCK;
    if (verdict == ORACLE_TOO_LARGE ||
        (verdict == ORACLE_CLEAN) == (status == HD_OK) ||
        (verdict == ORACLE_CLEAN && !is_full))
        return;
    fprintf(stderr, "%s\noracle: %s: %s\nchecker: %s\n", print_module(module),
            oracle_text(verdict), why, hd_diag_text(said));
    must(verdict == ORACLE_CLEAN, "what the oracle fails is rejected", "");
    must(false, "what the oracle passes is accepted", "");
}

// `sizes` draws what a run is given.
static void check(const hd_module *module, uint64_t sizes)
{
    hd_diag *said = hd_diag_create();
    hd_status status = must_check_alike(module, NULL, said);

    if (module->stage == HD_STAGE_HOST && hd_verify(module, NULL) == HD_OK &&
        match_module(module, NULL) == HD_OK) {
        hd_module full = hd_module_full(module);
        hd_module drawn = full;

        give_sizes(&drawn, &drawn, sizes);
        ask_oracle(&full, true, status, said);
        if (module->nsizes > 0)
            ask_oracle(&drawn, false, status, said);
    }
    if (status == HD_OK)
        execute(module);
    hd_diag_destroy(said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t room[CHOICES_ROOM];
    choices choices, edits;
    size_t length = split_input(data, size, room, &choices);
    hd_module *module;

    edits = take_edits(&choices);
    module = make_host(data, length, &choices);
    if (module != NULL) {
        if (choices_pick(&edits, 4) > 0)
            mutate_module(module, &edits, 3);
        if (is_small(module))
            check(module, (uint64_t)choices_pick(&choices, 256));
    }
    hd_module_destroy(module);
    return 0;
}
