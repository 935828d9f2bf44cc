// What parses prints, what prints parses back, and to the same text; also with
// another size of an axis, and as it is formatted with any blanks and comments.
// A tensor program keeps that through every pass, and what is cloned there is
// the same program.
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

static char *must_format(const char *text, size_t length)
{
    hd_diag *diag = hd_diag_create();
    char *out = NULL;

    must(hd_format("fuzz", text, length, diag, &out) == HD_OK,
         "what parses is formatted", hd_diag_text(diag));
    hd_diag_destroy(diag);
    return out;
}

// What is laid out is the same program, and as it should be.
static void check_layout(const hd_module *module, const char *text,
                         size_t length)
{
    char *first = must_format(text, length);
    char *second = must_format(first, strlen(first));
    char *want = print_module(module), *got;
    hd_module *again = NULL;
    hd_diag *diag = hd_diag_create();

    must(strcmp(first, second) == 0, "formatting twice gives the same", first);
    must(hd_parse("again", first, strlen(first), NULL, 0, diag, &again) ==
             HD_OK,
         "what is formatted parses", hd_diag_text(diag));
    got = print_module(again);
    must(strcmp(got, want) == 0, "it is the same program", first);
    hd_free(first);
    hd_free(second);
    hd_free(want);
    hd_free(got);
    hd_module_destroy(again);
    hd_diag_destroy(diag);
}

// The same with other blanks, and with comments, wherever that is a program,
// too: a key at the beginning of a line may be an operation.
static void check_spaced(const uint8_t *data, size_t length, choices *choices)
{
    static const char *const blanks[] = {"  ",          "\t",     "\n",
                                         "\r\n",        "\n\n\n", " // c\n",
                                         "\n// own \n", " //\r\n"};
    hd_text text = {0};
    hd_module *module = NULL;

    for (size_t i = 0; i < length; i++)
        if (data[i] == ' ' && choices_pick(choices, 2) == 1)
            hd_text_puts(&text, blanks[choices_pick(choices, 8)]);
        else
            hd_text_add(&text, (const char *)&data[i], 1);
    if (!text.failed && hd_parse("spaced", text.bytes, text.length, NULL, 0,
                                 NULL, &module) == HD_OK)
        check_layout(module, text.bytes, text.length);
    hd_module_destroy(module);
    hd_text_free(&text);
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
        check_layout(module, (const char *)data, length);
        check_spaced(data, length, &choices);
        check_define(data, length, &choices);
        if (is_small(module))
            check_lowering(module, &choices, diag);
        hd_module_destroy(module);
    }
    hd_diag_destroy(diag);
    return 0;
}
