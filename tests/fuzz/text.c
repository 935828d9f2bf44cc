// Any bytes: parsing ends in a module or in an error that says something, and
// what prints parses back to the same text. A tensor program that parses
// lowers, or is refused with an error; a host program can be checked.
#include <stdlib.h>
#include <string.h>

#include "heddle/heddle.h"

enum { MAX_RANKS = 64 }; // checking walks them all

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static char *print(const hd_module *module)
{
    char *text = NULL;

    must(hd_print(module, &text) == HD_OK);
    return text;
}

static void check_fixpoint(const hd_module *module)
{
    hd_diag *diag = hd_diag_create();
    char *first = print(module), *second;
    hd_module *again = NULL;

    must(hd_parse("again", first, strlen(first), NULL, 0, diag, &again) ==
         HD_OK);
    second = print(again);
    must(strcmp(first, second) == 0);
    hd_free(first);
    hd_free(second);
    hd_module_destroy(again);
    hd_diag_destroy(diag);
}

static void check_lowering(hd_module *module, uint8_t choice, hd_diag *diag)
{
    hd_lower_options options = hd_lower_defaults();
    hd_status status;

    options.transfer = (hd_transfer)(choice % 5);
    options.protocol = choice & 8 ? HD_GET : HD_PUT;
    options.streams = 1 + (choice >> 4) % 4;
    options.chunks = 1 + (choice >> 6) % 2;
    status = hd_lower(module, &options, NULL, NULL, diag);
    must(status == HD_OK || hd_diag_errors(diag) > 0);
    if (status == HD_OK)
        check_fixpoint(module);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = NULL;
    hd_status status =
        hd_parse("fuzz", (const char *)data, size, NULL, 0, diag, &module);

    must(status == HD_OK || hd_diag_errors(diag) > 0);
    must(hd_diag_text(diag) != NULL);
    if (status == HD_OK) {
        check_fixpoint(module);
        if (hd_module_ranks(module) <= MAX_RANKS) {
            check_lowering(module, size > 0 ? data[size - 1] : 0, diag);
        }
        hd_module_destroy(module);
    }
    hd_diag_destroy(diag);
    return 0;
}
