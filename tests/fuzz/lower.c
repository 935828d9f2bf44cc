// Generated tensor programs under every pipeline and option: each lowers, or is
// refused for its chunks alone, checks clean, and prints and parses back; with
// operations spelt as calls, too.
#include <stdlib.h>

#include "tests/fuzz/spell.h"

// The same with calls in place of operations.
static void lower_spelt(const char *text, const hd_lower_options *options,
                        uint64_t seed)
{
    char *spelt = spell_calls(text, seed);
    hd_module *host = spelt != NULL ? lower_text(spelt, options) : NULL;

    if (host != NULL)
        must_reparse(host);
    hd_module_destroy(host);
    free(spelt);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choices choices = {data, size, 0}, moves = choices;
    hd_lower_options options = generate_lowering(&choices);
    char *text = NULL;
    hd_module *tensor = generate_module(&choices, false, &text);
    hd_module *host;

    must_reparse(tensor);
    host = lower_text(text, &options);
    if (host != NULL)
        must_reparse(host);
    hd_module_destroy(host);
    lower_spelt(text, &options, size);
    hd_module_destroy(tensor);
    host = lower_moves(&moves, &options, &tensor);
    if (host != NULL)
        must_reparse(host);
    hd_module_destroy(host);
    hd_module_destroy(tensor);
    free(text);
    return 0;
}
