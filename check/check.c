// What can be said of a program without running it.
#include "check/prove.h"
#include "ir/verify.h"

hd_check_options hd_check_defaults(void)
{
    return (hd_check_options){.waiting_streams = 7,
                              .transport = HD_TRANSPORT_COPY};
}

static hd_status check_against(const hd_module *module,
                               const hd_module *against, hd_diag *diag)
{
    if (against == NULL)
        return HD_OK;
    if (against->stage != HD_STAGE_TENSOR)
        return hd_fail(diag, HD_ARGUMENT,
                       "values are compared with those of a tensor program; "
                       "%s is none",
                       against->name);
    if (module->stage != HD_STAGE_HOST)
        return hd_fail(diag, HD_ARGUMENT,
                       "values of a complete host program are compared; %s is "
                       "none",
                       module->name);
    return hd_check(against, diag);
}

hd_status hd_check_with(const hd_module *module,
                        const hd_check_options *options, hd_diag *diag)
{
    const hd_check_options usual = hd_check_defaults();
    const hd_source *outer;
    hd_status status;

    HD_REQUIRE(diag, module);
    if (options == NULL)
        options = &usual;
    if (hd_transport_text(options->transport) == NULL)
        return hd_fail(diag, HD_ARGUMENT, "there is no transport %d",
                       (int)options->transport);
    HD_TRY(check_against(module, options->against, diag));
    outer = hd_diag_source(diag, &module->source);
    status = hd_verify(module, diag);
    hd_diag_source(diag, outer);
    return status == HD_OK && module->stage == HD_STAGE_HOST
               ? hd_prove(module, options, diag)
               : status;
}

hd_status hd_check(const hd_module *module, hd_diag *diag)
{
    return hd_check_with(module, NULL, diag);
}
