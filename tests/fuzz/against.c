// The checker's proof of values on arbitrary host programs: a tensor program,
// the input's or a generated one, is lowered and edited, and sometimes so is
// the tensor program itself. Comparing the two ends well or says why, and the
// same way twice; and what is accepted has the answers of the tensor program on
// random data, by an evaluator that shares nothing with the library.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"
#include "tests/info.h"
#include "tests/second/verdict.h"

// Of inputs, counts and sizes: the least, the greatest, and others.
enum { DRAWS = 4 };

static hd_module *parse(const char *text, size_t length)
{
    hd_module *module = NULL;
    hd_status status = hd_parse("fuzz", text, length, NULL, 0, NULL, &module);

    return status == HD_OK ? module : NULL;
}

// NULL if the text is no tensor program that can be executed at once.
static hd_module *make_tensor(const uint8_t *data, size_t length,
                              choices *choices)
{
    char *text = NULL;
    hd_module *module = length > 0 ? parse((const char *)data, length)
                                   : generate_module(choices, true, &text);

    free(text);
    if (module != NULL &&
        (module_info(module).stage != HD_STAGE_TENSOR || !is_small(module))) {
        hd_module_destroy(module);
        module = NULL;
    }
    return module;
}

static hd_module *lower_copy(const hd_module *tensor,
                             const hd_lower_options *options)
{
    char *text = print_module(tensor);
    hd_module *host = parse(text, strlen(text));

    if (host != NULL && hd_lower(host, options, NULL, NULL, NULL) != HD_OK) {
        hd_module_destroy(host);
        host = NULL;
    }
    hd_free(text);
    return host;
}

static void edit(hd_module *tensor, hd_module *host, choices *edits)
{
    int how = choices_pick(edits, 16);

    if (how == 0)
        mutate_module(tensor, edits, 2);
    else if (how == 1)
        mutate_gently(tensor, edits, 2);
    if (how % 2 == 0)
        mutate_module(host, edits, 3);
    else
        mutate_gently(host, edits, 3);
}

static void compare_values(hd_module *tensor, const hd_module *host,
                           unsigned seed)
{
    char *want = print_whole(tensor), *have = print_module(host);
    char *where = second_difference(want, have, DRAWS, seed);

    if (where != NULL)
        fprintf(stderr, "%s\n%s", want, where);
    must(where == NULL, "what is accepted computes the tensor program", have);
    hd_free(have);
    hd_free(want);
}

static void check_against(hd_module *tensor, const hd_module *host,
                          uint64_t seed)
{
    hd_check_options options = hd_check_defaults();
    hd_diag *said = hd_diag_create();

    options.against = tensor;
    options.seed = seed + 1; // what is said twice is the same
    if (must_check_alike(host, &options, said) == HD_OK)
        compare_values(tensor, host, (unsigned)seed);
    hd_diag_destroy(said);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t room[CHOICES_ROOM];
    choices choices, edits;
    size_t length = split_input(data, size, room, &choices);
    hd_lower_options options;
    hd_module *tensor, *host = NULL;

    edits = take_edits(&choices);
    options = generate_lowering(&choices);
    tensor = make_tensor(data, length, &choices);
    if (tensor != NULL)
        host = lower_copy(tensor, &options);
    if (host != NULL) {
        edit(tensor, host, &edits);
        if (is_small(tensor) && is_small(host) && compares_soon(tensor))
            check_against(tensor, host, size);
    }
    hd_module_destroy(host);
    hd_module_destroy(tensor);
    return 0;
}
