// What can be said of a program without running it.
#include "check/prove.h"
#include "ir/verify.h"

hd_check_options hd_check_defaults(void)
{
    return (hd_check_options){.waiting_streams = 7};
}

hd_status hd_check_with(const hd_module *module,
                        const hd_check_options *options, hd_diag *diag)
{
    const hd_source *outer = hd_diag_source(diag, &module->source);
    hd_status status = hd_verify(module, diag);

    hd_diag_source(diag, outer);
    return status == HD_OK && module->stage == HD_STAGE_HOST
               ? hd_prove(module, options, diag)
               : status;
}

hd_status hd_check(const hd_module *module, hd_diag *diag)
{
    hd_check_options options = hd_check_defaults();

    return hd_check_with(module, &options, diag);
}
