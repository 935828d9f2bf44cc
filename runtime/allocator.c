// What a caller's functions do wrong is told in words before it can do harm.
#include "runtime/allocator.h"

#include "base/diag.h"
#include "base/sized.h"
#include "runtime/ranks/mesh.h"

const hd_allocator *hd_group_allocator(const hd_group *group)
{
    return group->allocator.alloc != NULL ? &group->allocator : NULL;
}

static hd_status read_allocator(const hd_allocator *allocator, hd_diag *diag,
                                hd_allocator *out)
{
    if (allocator == NULL)
        return HD_OK;
    HD_TRY(hd_sized_read("hd_group_set_allocator", allocator, sizeof *out, diag,
                         out));
    if (out->alloc == NULL || out->free == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "hd_group_set_allocator: '%s' is NULL",
                       out->alloc == NULL ? "alloc" : "free");
    return HD_OK;
}

// What remains when all that nobody needs is given back is of the allocator
// before this one.
hd_status hd_group_set_allocator(hd_group *group, const hd_allocator *allocator,
                                 hd_diag *diag)
{
    hd_allocator new = HD_EMPTY(hd_allocator);

    HD_REQUIRE(diag, group);
    HD_TRY(hd_group_check(group, diag));
    HD_TRY(read_allocator(allocator, diag, &new));
    HD_TRY(hd_group_trim(group, diag));
    if (group->kept != NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "rank %d: its group has sessions or memory on a device: "
                       "an allocator is set before them",
                       hd_group_rank(group));
    group->allocator = new;
    return HD_OK;
}

hd_status hd_allocator_take(const hd_allocator *allocator, const char *device,
                            int rank, size_t bytes, hd_diag *diag, void **out)
{
    void *memory = NULL;
    hd_status returned =
        allocator->alloc(allocator->context, device, bytes, &memory);
    hd_status status =
        hd_group_status(returned, "the caller's allocator", rank, diag);

    if (status != returned)
        return status;
    if (status != HD_OK)
        return hd_fail(diag, status,
                       "the caller's allocator has no %zu bytes of %s: %s",
                       bytes, device, hd_status_text(status));
    if (memory != NULL && (uintptr_t)memory % HD_ALLOCATOR_ALIGNMENT == 0) {
        *out = memory;
        return HD_OK;
    }
    status =
        hd_fail(diag, HD_ERROR_ARGUMENT,
                "the caller's allocator gives %p of %s, which is %s", memory,
                device, memory == NULL ? "nothing" : "no multiple of 256");
    if (memory != NULL)
        hd_allocator_give(allocator, device, memory, bytes);
    return status;
}

void hd_allocator_give(const hd_allocator *allocator, const char *device,
                       void *memory, size_t bytes)
{
    allocator->free(allocator->context, device, memory, bytes);
}
