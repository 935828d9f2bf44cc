#include "runtime/cuda/window.h"

#include <pthread.h>
#include <stdlib.h>

// Of this process, until its last user closes it.
typedef struct window {
    struct window *next;
    hd_cu_ptr at;
    uint64_t number;
    hd_cu_context context;
    hd_cu_device primary; // whose context is retained; -1 for the caller's
    int users;
} window;

// What one rank of this process has, others of it may use, whose sessions know
// nothing of each other: so the list is the process's.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards the rest
static window *windows;
static uint64_t opened;

static window **find(hd_cu_ptr at)
{
    window **link = &windows;

    while (*link != NULL && (*link)->at != at)
        link = &(*link)->next;
    return link;
}

static void note(window *new)
{
    pthread_mutex_lock(&lock);
    new->number = ++opened;
    new->next = windows;
    windows = new;
    pthread_mutex_unlock(&lock);
}

static hd_cu_result take_memory(const hd_cu_api *cu, size_t bytes, window *new,
                                const char **call)
{
    hd_cu_result result = cu->context_current(&new->context);
    hd_cu_context same;

    *call = "context_current";
    if (result != HD_CU_SUCCESS)
        return result;
    *call = "alloc";
    result = cu->alloc(&new->at, bytes);
    if (result != HD_CU_SUCCESS || new->primary < 0)
        return result;
    *call = "primary_retain";
    result = cu->primary_retain(&same, new->primary);
    if (result != HD_CU_SUCCESS)
        cu->free(new->at);
    return result;
}

hd_cu_result hd_cuda_window_open(const hd_cu_api *cu, hd_cu_device primary,
                                 size_t bytes, hd_cu_ptr *out,
                                 const char **call)
{
    window *new = calloc(1, sizeof *new);
    hd_cu_result result;

    *call = "alloc";
    if (new == NULL)
        return HD_CU_OUT_OF_MEMORY;
    new->users = 1;
    new->primary = primary;
    result = take_memory(cu, bytes, new, call);
    if (result != HD_CU_SUCCESS) {
        free(new);
        return result;
    }
    note(new);
    *out = new->at;
    return HD_CU_SUCCESS;
}

hd_cu_result hd_cuda_window_tell(const hd_cu_api *cu, hd_cu_ptr at, bool near,
                                 hd_cuda_reach *out)
{
    const window *own;

    if (!near)
        return cu->ipc_export(&out->ipc, at);
    pthread_mutex_lock(&lock);
    own = *find(at);
    out->near.context = own->context;
    out->near.at = at;
    out->near.number = own->number;
    pthread_mutex_unlock(&lock);
    return HD_CU_SUCCESS;
}

// False if its owner has closed it: then it may be freed at any moment.
static bool use(const hd_cuda_reach *reach)
{
    window *theirs;
    bool found;

    pthread_mutex_lock(&lock);
    theirs = *find(reach->near.at);
    found = theirs != NULL && theirs->number == reach->near.number;
    if (found)
        theirs->users++;
    pthread_mutex_unlock(&lock);
    return found;
}

hd_cu_result hd_cuda_window_enable(const hd_cu_api *cu, hd_cu_context theirs)
{
    hd_cu_context own;
    hd_cu_result result = cu->context_current(&own);

    if (result != HD_CU_SUCCESS || own == theirs)
        return result;
    result = cu->peer_enable(theirs, 0);
    return result == HD_CU_PEER_ENABLED ? HD_CU_SUCCESS : result;
}

hd_cu_result hd_cuda_window_map(const hd_cu_api *cu, const hd_cuda_reach *reach,
                                bool near, hd_cu_ptr *out)
{
    hd_cu_result result;

    if (!near)
        return cu->ipc_import(out, reach->ipc, HD_CU_IPC_LAZY_PEER_ACCESS);
    *out = 0;
    if (!use(reach))
        return HD_CU_SUCCESS;
    result = hd_cuda_window_enable(cu, reach->near.context);
    if (result == HD_CU_SUCCESS)
        *out = reach->near.at;
    else
        hd_cuda_window_close(cu, reach->near.at, true);
    return result;
}

// With the last of its users the window is nobody's.
static window *leave(hd_cu_ptr at)
{
    window **link, *left;

    pthread_mutex_lock(&lock);
    link = find(at);
    left = *link;
    if (--left->users == 0)
        *link = left->next;
    else
        left = NULL;
    pthread_mutex_unlock(&lock);
    return left;
}

void hd_cuda_window_close(const hd_cu_api *cu, hd_cu_ptr at, bool near)
{
    window *left;

    if (!near) {
        cu->ipc_close(at);
        return;
    }
    left = leave(at);
    if (left == NULL)
        return;
    // A context that the caller has destroyed has taken its memory along.
    if (cu->context_push(left->context) == HD_CU_SUCCESS) {
        cu->free(at);
        cu->context_pop(&(hd_cu_context){0});
    }
    if (left->primary >= 0)
        cu->primary_release(left->primary);
    free(left);
}
