// What the caller has of a device's memory for its arguments. As long as it has
// some, the group keeps its home there. What it gives back is freed when no
// peer has it open (share.h).
#include <stdlib.h>

#include "base/diag.h"
#include "runtime/cuda/cuda.h"
#include "runtime/cuda/home.h"

struct hd_cuda_loan {
    hd_cuda_loan *next;
    hd_cu_ptr at;
    uint64_t number; // as a window has one
    bool given;      // back
};

static hd_status take(hd_device *device, size_t bytes, hd_diag *diag,
                      hd_cu_ptr *out)
{
    hd_cu_result result;
    int mode;

    HD_TRY(hd_cuda_enter(device, diag, &mode));
    hd_cuda_loans_free(device->home); // there may be more room then
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
    new->number = hd_cuda_share_number(home);
    pthread_mutex_lock(&home->making);
    new->next = home->loan;
    home->loan = new;
    pthread_mutex_unlock(&home->making);
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

// `making` is held.
static hd_cuda_loan *find(hd_cuda_home *home, hd_cu_ptr at)
{
    hd_cuda_loan *loan = home->loan;

    while (loan != NULL && (loan->at != at || loan->given))
        loan = loan->next;
    return loan;
}

uint64_t hd_cuda_loan_number(hd_cuda_home *home, hd_cu_ptr at)
{
    const hd_cuda_loan *loan;
    uint64_t number;

    pthread_mutex_lock(&home->making);
    loan = find(home, at);
    number = loan != NULL ? loan->number : 0;
    pthread_mutex_unlock(&home->making);
    return number;
}

static bool give(hd_cuda_home *home, const void *memory)
{
    hd_cuda_loan *loan;

    pthread_mutex_lock(&home->making);
    loan = find(home, (hd_cu_ptr)(uintptr_t)memory);
    if (loan != NULL)
        loan->given = true;
    pthread_mutex_unlock(&home->making);
    return loan != NULL;
}

// One that may be freed: it is the home's no more.
static hd_cuda_loan *take_one_back(hd_cuda_home *home)
{
    hd_cuda_loan **link = &home->loan, *found;

    pthread_mutex_lock(&home->making);
    while (*link != NULL &&
           !((*link)->given && hd_cuda_share_take_back(home, (*link)->number)))
        link = &(*link)->next;
    found = *link;
    if (found != NULL)
        *link = found->next;
    pthread_mutex_unlock(&home->making);
    return found;
}

bool hd_cuda_loans_free(hd_cuda_home *home)
{
    hd_cuda_loan *loan;
    bool all;

    while ((loan = take_one_back(home)) != NULL) {
        home->cu.free(loan->at);
        free(loan);
    }
    pthread_mutex_lock(&home->making);
    all = home->loan == NULL;
    pthread_mutex_unlock(&home->making);
    return all;
}

bool hd_cuda_reclaim(hd_group *group, void *memory)
{
    hd_device device = stand_in(group, "");
    int mode;

    for (hd_kept *kept = *hd_group_kept(group); kept != NULL;
         kept = kept->next) {
        device.home = (hd_cuda_home *)kept;
        if (!give(device.home, memory))
            continue;
        device.cu = device.home->cu;
        // Freeing would block if the device did not come to rest.
        if (!hd_cuda_is_stuck(&device) &&
            hd_cuda_enter(&device, NULL, &mode) == HD_OK) {
            hd_cuda_loans_free(device.home);
            hd_cuda_leave(&device, mode);
        }
        hd_cuda_home_leave(&device);
        return true;
    }
    return false;
}

void hd_cuda_loans_end(hd_cuda_home *home)
{
    pthread_mutex_lock(&home->making);
    for (hd_cuda_loan *loan = home->loan; loan != NULL; loan = loan->next)
        loan->given = true;
    pthread_mutex_unlock(&home->making);
}
