// Generated tensor programs under every pipeline and option: each lowers, or is
// refused for its chunks alone, checks clean, and prints and parses back.
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choices choices = {data, size, 0};
    hd_lower_options options = generate_lowering(&choices);
    char *text = NULL;
    hd_module *tensor = generate_module(&choices, false, &text);
    hd_module *host;

    must_reparse(tensor);
    host = lower_text(text, &options);
    if (host != NULL)
        must_reparse(host);
    hd_module_destroy(host);
    hd_module_destroy(tensor);
    free(text);
    return 0;
}
