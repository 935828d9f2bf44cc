// Any bytes: parsing ends in a module or in an error with a message. Nothing
// else is done with a module, so that this target is the fastest.
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = NULL;
    hd_status status =
        hd_parse("fuzz", (const char *)data, size, NULL, 0, diag, &module);

    must_explain(status, diag, "hd_parse");
    must((status == HD_OK) == (module != NULL), "a module is a success",
         "hd_parse");
    hd_module_destroy(module);
    hd_diag_destroy(diag);
    return 0;
}
