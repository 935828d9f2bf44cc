// The public way to lower: where no transfer is named, by the one that is
// chosen.
#include <heddle/simulate.h>

#include <stddef.h>

#include "base/sized.h"
#include "ir/module.h"
#include "ir/options.h"
#include "lower/lower.h"

// Whether the passes that are left make other programs by other options.
static bool has_choice(const hd_module *module, const hd_lower_options *with)
{
    return module->stage < HD_STAGE_TRANSFER && with->until > HD_STAGE_RESHARD &&
           module->nranks > 1 && module->nranks <= HD_CHOOSE_RANKS;
}

// What no pipeline fits a ring does not either, and says why.
static hd_status choose(const hd_module *module, hd_lower_options *with)
{
    hd_choose_options options = hd_choose_defaults();
    hd_choice *choice;
    hd_status status;

    options.lower = with;
    status = hd_choose(module, &options, NULL, &choice);
    if (status != HD_OK)
        return status == HD_ERROR_NO_MEMORY ? status : HD_OK;
    hd_choice_candidate(choice, 0, with, NULL, NULL);
    hd_choice_destroy(choice);
    return HD_OK;
}

hd_status hd_lower(hd_module *module, const hd_lower_options *options,
                   hd_lower_hook *hook, void *context, hd_diag *diag)
{
    hd_lower_options with = hd_lower_defaults();

    HD_REQUIRE(diag, module);
    HD_TRY(hd_sized_read("hd_lower", options, sizeof with, diag, &with));
    HD_TRY(hd_lower_judge(&with, diag));
    if (with.transfer == HD_TRANSFER_AUTO && has_choice(module, &with) &&
        choose(module, &with) != HD_OK)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    if (with.transfer == HD_TRANSFER_AUTO) {
        with.asked = hd_options_asked(&with);
        with.transfer = HD_TRANSFER_RING;
    }
    return hd_lower_by(module, &with, hook, context, diag);
}
