// What parses prints, what prints parses back, and to the same text; also with
// another size of an axis. A tensor program keeps that through every pass, and
// what is cloned there is the same program.
#include <string.h>

#include "tests/fuzz/fuzz.h"

static void must_clone(const hd_module *module)
{
    hd_module *clone = NULL;
    char *want, *text;

    must(hd_module_clone(module, NULL, &clone) == HD_OK, "no clone", "");
    want = print_module(module);
    text = print_module(clone);
    must(strcmp(text, want) == 0, "a clone is the same program", text);
    hd_free(want);
    hd_free(text);
    hd_module_destroy(clone);
}

static void check_pass(void *context, const char *pass, const hd_module *module)
{
    (void)context;
    (void)pass;
    must_reparse(module);
    must_clone(module);
}

static void check_lowering(hd_module *module, choices *choices, hd_diag *diag)
{
    hd_lower_options options = generate_lowering(choices);
    hd_status status = hd_lower(module, &options, check_pass, NULL, diag);

    must_explain(status, diag, "hd_lower");
}

// `-D tp=N`: another program, or an error.
static void check_define(const uint8_t *data, size_t length, choices *choices)
{
    hd_define define = {"tp", choices_pick(choices, 10) - 1};
    hd_diag *diag = hd_diag_create();
    hd_module *module = NULL;
    hd_status status = hd_parse("defined", (const char *)data, length, &define,
                                1, diag, &module);

    must_explain(status, diag, "hd_parse");
    if (status == HD_OK)
        must_reparse(module);
    hd_module_destroy(module);
    hd_diag_destroy(diag);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t room[CHOICES_ROOM];
    choices choices;
    size_t length = split_input(data, size, room, &choices);
    hd_diag *diag = hd_diag_create();
    hd_module *module = NULL;

    if (hd_parse("fuzz", (const char *)data, length, NULL, 0, diag, &module) ==
        HD_OK) {
        must_reparse(module);
        must_clone(module);
        check_define(data, length, &choices);
        if (is_small(module))
            check_lowering(module, &choices, diag);
        hd_module_destroy(module);
    }
    hd_diag_destroy(diag);
    return 0;
}
