// What the caller has of a device's memory for its arguments. As long as it has
// some, the group keeps its home there.
#include <stdlib.h>

#include "base/diag.h"
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/home.h"

struct hd_cuda_loan {
    hd_cuda_loan *next;
    hd_cu_ptr at;
};

static hd_status take(hd_device *device, size_t bytes, hd_diag *diag,
                      hd_cu_ptr *out)
{
    hd_cu_result result;
    int mode;

    HD_TRY(hd_cuda_enter(device, diag, &mode));
    result = device->cu.alloc(out, bytes > 0 ? bytes : 1);
    hd_cuda_leave(device, mode);
    return result == HD_CU_SUCCESS
               ? HD_OK
               : hd_cuda_error(device, result, diag, "alloc");
}

static hd_status lend(hd_device *device, size_t bytes, hd_diag *diag,
                      void **out)
{
    hd_cuda_home *home = device->home;
    hd_cuda_loan *new = calloc(1, sizeof *new);
    hd_status status = new == NULL ? hd_fail(diag, HD_ERROR_NO_MEMORY,
                                             "no memory for arguments")
                                   : take(device, bytes, diag, &new->at);

    if (status != HD_OK) {
        free(new);
        return status;
    }
    pthread_mutex_lock(&home->lock);
    new->next = home->loan;
    home->loan = new;
    pthread_mutex_unlock(&home->lock);
    *out = (void *)(uintptr_t) new->at;
    return HD_OK;
}

// A device that no session has stands for what the home is opened by.
static hd_device stand_in(hd_group *group, const char *where)
{
    return (hd_device){.binding = {.group = group, .where = where},
                       .rank = hd_group_rank(group),
                       .size = hd_group_size(group)};
}

hd_status hd_cuda_lend(hd_group *group, const char *where, size_t bytes,
                       hd_diag *diag, void **out)
{
    hd_device device = stand_in(group, where);
    hd_status status;

    HD_TRY(hd_cuda_home_open(&device, diag));
    status = lend(&device, bytes, diag, out);
    if (status != HD_OK)
        hd_cuda_home_leave(&device);
    return status;
}

// Whether the home has lent it: it has not any more.
static bool forget(hd_cuda_home *home, const void *memory)
{
    hd_cuda_loan **link = &home->loan, *found;

    pthread_mutex_lock(&home->lock);
    while (*link != NULL && (*link)->at != (hd_cu_ptr)(uintptr_t)memory)
        link = &(*link)->next;
    found = *link;
    if (found != NULL)
        *link = found->next;
    pthread_mutex_unlock(&home->lock);
    free(found);
    return found != NULL;
}

// Freeing would block if the device did not come to rest.
static void give(hd_device *device, void *memory)
{
    int mode;

    if (hd_cuda_is_stuck(device) || hd_cuda_enter(device, NULL, &mode) != HD_OK)
        return;
    device->cu.free((hd_cu_ptr)(uintptr_t)memory);
    hd_cuda_leave(device, mode);
}

bool hd_cuda_reclaim(hd_group *group, void *memory)
{
    hd_device device = stand_in(group, "");

    for (hd_kept *kept = *hd_group_kept(group); kept != NULL;
         kept = kept->next) {
        device.home = (hd_cuda_home *)kept;
        if (!forget(device.home, memory))
            continue;
        device.cu = device.home->cu;
        give(&device, memory);
        hd_cuda_home_leave(&device);
        return true;
    }
    return false;
}

void hd_cuda_loans_close(hd_cuda_home *home)
{
    while (home->loan != NULL) {
        home->cu.free(home->loan->at);
        forget(home, (void *)(uintptr_t)home->loan->at);
    }
}
