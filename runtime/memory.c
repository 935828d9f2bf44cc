// Memory of a group for arguments of its sessions: which device has it, the
// driver knows.
#include <assert.h>
#include <heddle/memory.h>

#include "base/diag.h"
#include "runtime/driver.h"
#include "runtime/ranks/group.h"

hd_status hd_group_alloc(hd_group *group, const char *device, size_t bytes,
                         hd_diag *diag, void **out)
{
    const hd_driver *driver = hd_driver_find(device);

    HD_REQUIRE(diag, group);
    HD_REQUIRE(diag, device);
    HD_REQUIRE(diag, out);
    HD_TRY(hd_group_check(group, diag));
    if (driver == NULL)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "there is no device '%s'; there are 'cpu', 'cuda' and "
                       "'cuda:N'",
                       device);
    return driver->lend(group, hd_driver_where(device), bytes, diag, out);
}

void hd_group_free(hd_group *group, void *memory)
{
    bool found;

    assert(group != NULL || memory == NULL);
    if (memory == NULL || hd_group_is_copy(group))
        return;
    found = hd_driver_cpu.reclaim(group, memory) ||
            hd_driver_cuda.reclaim(group, memory);
    assert(found); // what is none of the group's is the caller's bug
    (void)found;
}
