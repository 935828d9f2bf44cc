// The public way to lower: where no transfer is named, by the one that is
// chosen.
#include <heddle/simulate.h>

#include <stddef.h>

#include "base/sized.h"
#include "ir/module.h"
#include "ir/options.h"
#include "lower/lower.h"

hd_status hd_lower(hd_module *module, const hd_lower_options *options,
                   hd_lower_hook *hook, void *context, hd_diag *diag)
{
    hd_lower_options with = hd_lower_defaults();

    HD_REQUIRE(diag, module);
    HD_TRY(hd_sized_read("hd_lower", options, sizeof with, diag, &with));
    HD_TRY(hd_lower_judge(&with, diag));
    HD_TRY(hd_choose_lower(module, NULL, diag, &with));
    return hd_lower_by(module, &with, hook, context, diag);
}
