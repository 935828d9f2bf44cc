// They are freed when that can be: whenever the process makes, trims or ends
// another home it looks. What it never frees goes with the process.
#include "runtime/cuda/keep.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/cuda/device/home.h"

// Their groups know nothing of each other: so the list is the process's.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards:
static hd_kept *first;

void hd_cuda_home_release(hd_cuda_home *home)
{
    if (home->retained)
        home->cu.primary_release(home->ordinal);
    if (home->chunks.lease != HD_LEASE_NONE)
        close(home->chunks.lease);
    hd_library_close(&home->library);
    pthread_mutex_destroy(&home->issue);
    pthread_mutex_destroy(&home->making);
    pthread_mutex_destroy(&home->lock);
    pthread_mutex_destroy(&home->failure.lock);
    free(home);
}

// A context of the caller's own may be gone when it could be freed: it goes
// with that.
void hd_cuda_keep(hd_cuda_home *home)
{
    if (!home->retained)
        return;
    pthread_mutex_lock(&lock);
    home->kept.next = first;
    first = &home->kept;
    pthread_mutex_unlock(&lock);
}

static bool has_freed(hd_cuda_home *home)
{
    bool all = false;
    int mode;

    if (hd_cuda_home_enter(home, &mode)) {
        all = hd_cuda_chunks_close(home, HD_CUDA_EVERY);
        hd_cuda_home_exit(home, mode);
    }
    return all;
}

bool hd_cuda_keep_look(void)
{
    bool all;

    if (pthread_mutex_trylock(&lock) != 0)
        return false; // another thread looks
    for (hd_kept **at = &first; *at != NULL;) {
        hd_cuda_home *home = (hd_cuda_home *)*at;

        if (has_freed(home)) {
            *at = home->kept.next;
            hd_cuda_home_release(home);
        } else {
            at = &home->kept.next;
        }
    }
    all = first == NULL;
    pthread_mutex_unlock(&lock);
    return all;
}
