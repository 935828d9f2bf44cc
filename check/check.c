// What can be said of a program without running it.
#include "ir/verify.h"
#include "ir/walk.h"

hd_status hd_check(const hd_module *module, hd_diag *diag)
{
    const hd_source *outer = hd_diag_source(diag, &module->source);
    hd_status status = hd_verify(module, diag);

    hd_diag_source(diag, outer);
    return status == HD_OK && module->stage == HD_STAGE_HOST
               ? hd_match(module, diag)
               : status;
}
