// A rank that a launcher has started joins the others: what hd_launch does in
// the processes that it forks.
#include <stdio.h>

#include <heddle/launch.h>

#include "base/diag.h"
#include "runtime/ranks/boot.h"
#include "runtime/ranks/group.h"

hd_status hd_group_join(const hd_place *place, double timeout, hd_diag *diag,
                        hd_group **out)
{
    size_t said = diag != NULL ? hd_diag_count(diag) : 0;
    char why[HD_GROUP_TEXT];
    hd_boot *boot;
    hd_status status;

    HD_REQUIRE(diag, place);
    HD_REQUIRE(diag, out);
    HD_TRY(hd_boot_connect(place, timeout, diag, &boot));
    status = hd_group_create(hd_boot_oob(boot), timeout, diag, out);
    if (status != HD_OK) {
        hd_group_reason(diag, said, status, why);
        hd_boot_explain(boot, status, why);
    }
    hd_boot_destroy(boot);
    return status;
}

hd_status hd_join(const hd_place *place, double timeout, hd_rank_fn *fn,
                  void *context, hd_diag *diag)
{
    size_t said = diag != NULL ? hd_diag_count(diag) : 0;
    hd_group *group;
    hd_status status;

    HD_REQUIRE(diag, place);
    if (fn == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "the rank has no function to run");
    HD_TRY(hd_group_join(place, timeout, diag, &group));
    status = hd_group_status(fn(context, group), "its function",
                             hd_group_rank(group), diag);
    if (status != HD_OK)
        hd_group_give_up(group, status, diag, said);
    hd_group_destroy(group);
    return status;
}
