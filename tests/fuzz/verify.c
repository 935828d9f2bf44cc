// Arbitrary modules: a parsed one, edited. Verifying ends well or says why;
// what it accepts prints and parses back, walks and matches without a crash, or
// lowers to a program that checks clean and has the same answer.
#include <heddle/simulate.h>
#include <heddle/verify.h>

#include "ir/verify.h"

#include <stdlib.h>
#include <string.h>

#include "ir/walk.h"
#include "tests/fuzz/answer.h"
#include "tests/fuzz/mutate.h"
#include "tests/info.h"
#include "tests/match.h"

static hd_status take_step(void *context, const hd_step *steps, int n)
{
    int64_t *left = context;

    must(n >= 1 && steps[0].op->nviews <= HD_MAX_VIEWS, "a step is one", "");
    *left -= n;
    return *left > 0 ? HD_OK : HD_ERROR_UNSUPPORTED;
}

// Every rank walks to its end or to an error that it says.
static void walk_ranks(const hd_module *module)
{
    for (int64_t rank = 0; rank < module->nranks; rank++) {
        hd_diag *diag = hd_diag_create();
        int64_t left = 4096;
        hd_status status = hd_walk(module, rank, diag, take_step, &left);

        if (status != HD_ERROR_UNSUPPORTED)
            must_explain(status, diag, "hd_walk");
        hd_diag_destroy(diag);
    }
}

// A tensor program's meaning is that of its dense form.
static void lower_tensor(hd_module *tensor, choices *choices)
{
    hd_lower_options options = generate_lowering(choices);
    char *text = print_module(tensor);
    hd_module *host = lower_text(text, &options);

    if (host != NULL && module_info(tensor).narguments <= MAX_ARGUMENTS &&
        has_reference(tensor)) {
        hd_reference *want, *have;
        arrays arrays;

        give_sizes(tensor, host, strlen(text));
        arrays = draw_arrays(tensor, strlen(text));
        want = compute(tensor, &arrays);
        have = compute(host, &arrays);

        must_agree(tensor, host, want, have, false);
        hd_reference_destroy(have);
        hd_reference_destroy(want);
        free_arrays(&arrays);
    }
    hd_module_destroy(host);
    hd_free(text);
}

// Counting looks at less than printing does; a step is a line.
static void print_steps(const hd_module *module, int rank)
{
    hd_diag *diag = hd_diag_create();
    char *text = NULL;
    int64_t steps = 0, lines = 0;

    if (hd_print_steps(module, rank, diag, &text) == HD_OK) {
        must(hd_module_steps(module, rank, diag, &steps) == HD_OK,
             "what prints counts", hd_diag_text(diag));
        for (const char *c = text; *c != '\0'; c++)
            lines += *c == '\n';
        must(lines == steps, "steps are as many as are printed", text);
    }
    hd_free(text);
    hd_diag_destroy(diag);
}

static void match_ranks(const hd_module *module)
{
    hd_diag *diag = hd_diag_create();
    hd_status status = match_module(module, diag);

    must_explain(status, diag, "hd_graph_match");
    hd_diag_destroy(diag);
}

static void use_module(hd_module *module, choices *choices)
{
    must_reparse(module);
    if (module->stage == HD_STAGE_TENSOR) {
        lower_tensor(module, choices);
    } else {
        walk_ranks(module);
        print_steps(module, choices_pick(choices, (int)module->nranks));
        match_ranks(module);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t room[CHOICES_ROOM];
    choices choices;
    size_t length = split_input(data, size, room, &choices);
    hd_diag *diag = hd_diag_create();
    hd_module *module = NULL;
    hd_status status =
        hd_parse("fuzz", (const char *)data, length, NULL, 0, diag, &module);

    if (status == HD_OK && is_small(module)) {
        mutate_module(module, &choices, 8);
        status = hd_verify(module, diag);
        must_explain(status, diag, "hd_verify");
        if (status == HD_OK && is_small(module))
            use_module(module, &choices);
    }
    hd_module_destroy(module);
    hd_diag_destroy(diag);
    return 0;
}
