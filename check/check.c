// What can be said of a program without running it.
#include <heddle/environment.h>

#include "check/prove.h"

#include <string.h>

#include "base/sized.h"
#include "ir/verify.h"

static hd_status check_against(const hd_module *module,
                               const hd_module *against, hd_diag *diag)
{
    if (against == NULL)
        return HD_OK;
    if (against->stage != HD_STAGE_TENSOR)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "values are compared with those of a tensor program; "
                       "%s is none",
                       against->name);
    if (module->stage != HD_STAGE_HOST)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "values of a complete host program are compared; %s is "
                       "none",
                       module->name);
    return hd_check(against, NULL, diag);
}

// A dimension whose length a run says has as many indices in both.
static hd_status check_sizes(const hd_module *module, const hd_module *against,
                             hd_diag *diag)
{
    bool same = module->nsizes == against->nsizes;

    for (int i = 0; i < module->nsizes && same; i++) {
        const hd_size *a = &module->size[i], *b = &against->size[i];

        same = strcmp(a->name, b->name) == 0 && a->low == b->low &&
               a->high == b->high && a->room == b->room;
    }
    if (same)
        return HD_OK;
    return hd_fail(diag, HD_ERROR_ARGUMENT,
                   "runs of '%s' and of '%s' are not given the same sizes, or "
                   "these are cut into other numbers of blocks",
                   module->name, against->name);
}

// What holds where each block is full holds in every run: docs/checking.md.
hd_status hd_check(const hd_module *module, const hd_check_options *options,
                   hd_diag *diag)
{
    hd_check_options with = hd_check_defaults();
    const hd_source *outer;
    hd_module full, against;
    hd_status status;

    HD_REQUIRE(diag, module);
    HD_TRY(hd_sized_read("hd_check", options, sizeof with, diag, &with));
    if (hd_transport_text(with.transport) == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT, "there is no transport %d",
                       (int)with.transport);
    HD_TRY(check_against(module, with.against, diag));
    outer = hd_diag_source(diag, &module->source);
    status = hd_verify(module, diag);
    hd_diag_source(diag, outer);
    if (status != HD_OK || module->stage != HD_STAGE_HOST)
        return status;
    full = hd_module_full(module);
    if (with.against != NULL) {
        HD_TRY(check_sizes(module, with.against, diag));
        against = hd_module_full(with.against);
        with.against = &against;
    }
    return hd_prove(&full, &with, diag);
}
