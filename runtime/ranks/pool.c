// One sparse window a rank, one sparse mapping that no peer sees, and the list
// of what sessions hold of them, in the order of their words.
#include "runtime/ranks/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/diag.h"

#define ALIGNMENT ((size_t)256)
#define BLOCK ((size_t)1 << 20) // a room is a multiple of it
#define MOST ((size_t)1 << 40)  // bytes of all rooms of a group
#define WORDS_PART 4            // of a room, for words
#define LIMIT_PART 4            // of `ulimit -v`, for all rooms

// What the caller has.
typedef struct lent {
    struct lent *next;
    hd_window window; // owned
} lent;

struct hd_pool {
    int rank, size;
    pthread_mutex_t lock; // guards the rest
    size_t room;          // bytes of each region of runs
    hd_window window;     // owned
    hd_window *peer;      // owned, by rank: theirs
    char *own;            // owned, of `room` bytes; NULL if not open
    size_t shared, owned; // bytes of both that sessions have had
    bool met;
    hd_hold *first; // owned
    lent *lent;     // owned
};

static size_t align_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

// What the process may have of a resource, as getrlimit, which returned
// `status`, has said.
static size_t limit_of(int status, const struct rlimit *limit)
{
    if (status != 0 || limit->rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    return (size_t)limit->rlim_cur;
}

// All windows of a group together are no more than the memory of its machine,
// and leave most of what `ulimit -v` allows; a file is no longer than `ulimit
// -f` allows.
static size_t room_for(int size)
{
    size_t all = least(MOST, (size_t)sysconf(_SC_PHYS_PAGES) * page_bytes());
    struct rlimit limit;
    size_t memory = limit_of(getrlimit(RLIMIT_AS, &limit), &limit);
    size_t file = limit_of(getrlimit(RLIMIT_FSIZE, &limit), &limit);
    size_t room = least(all, memory / LIMIT_PART) / (size_t)size;

    room = least(room, file / 2);
    return room < BLOCK ? BLOCK : room / BLOCK * BLOCK;
}

hd_pool *hd_pool_create(int rank, int size)
{
    hd_pool *pool = calloc(1, sizeof *pool);

    if (pool == NULL)
        return NULL;
    pool->peer = calloc((size_t)size, sizeof *pool->peer);
    if (pool->peer == NULL) {
        free(pool);
        return NULL;
    }
    for (int i = 0; i < size; i++)
        pool->peer[i] = (hd_window)HD_WINDOW_NONE;
    pool->window = (hd_window)HD_WINDOW_NONE;
    pool->rank = rank;
    pool->size = size;
    pool->room = room_for(size);
    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

// ------------------------------------------------------------------ lent

hd_status hd_pool_lend(hd_pool *pool, size_t bytes, hd_diag *diag, void **out)
{
    lent *new = calloc(1, sizeof *new);
    hd_status status;

    if (new == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for arguments");
    status = bytes > SIZE_MAX / 2
                 ? hd_fail(diag, HD_ERROR_NO_MEMORY,
                           "no memory for %zu bytes of arguments", bytes)
                 : hd_window_open(align_up(bytes > 0 ? bytes : 1, page_bytes()),
                                  diag, &new->window);
    if (status != HD_OK) {
        free(new);
        return status;
    }
    pthread_mutex_lock(&pool->lock);
    new->next = pool->lent;
    pool->lent = new;
    pthread_mutex_unlock(&pool->lock);
    *out = new->window.base;
    return HD_OK;
}

bool hd_pool_reclaim(hd_pool *pool, const void *memory)
{
    lent **link = &pool->lent, *found;

    pthread_mutex_lock(&pool->lock);
    while (*link != NULL && (*link)->window.base != memory)
        link = &(*link)->next;
    found = *link;
    if (found != NULL)
        *link = found->next;
    pthread_mutex_unlock(&pool->lock);
    if (found != NULL)
        hd_window_close(&found->window);
    free(found);
    return found != NULL;
}

hd_window hd_pool_find_lent(hd_pool *pool, const void *memory)
{
    hd_window found = HD_WINDOW_NONE;

    pthread_mutex_lock(&pool->lock);
    for (const lent *one = pool->lent; one != NULL; one = one->next) {
        uintptr_t base = (uintptr_t)one->window.base;

        if ((uintptr_t)memory >= base &&
            (uintptr_t)memory - base < one->window.bytes)
            found = one->window;
    }
    pthread_mutex_unlock(&pool->lock);
    return found;
}

void hd_pool_destroy(hd_pool *pool)
{
    if (pool == NULL)
        return;
    while (pool->first != NULL) {
        hd_hold *hold = pool->first;

        pool->first = hold->next;
        free(hold);
    }
    while (pool->lent != NULL)
        hd_pool_reclaim(pool, pool->lent->window.base);
    for (int i = 0; i < pool->size; i++)
        hd_window_close(&pool->peer[i]);
    hd_window_close(&pool->window);
    if (pool->own != NULL)
        munmap(pool->own, pool->room);
    pthread_mutex_destroy(&pool->lock);
    free(pool->peer);
    free(pool);
}

size_t hd_pool_room(const hd_pool *pool)
{
    return pool->room;
}

size_t hd_pool_shared(const hd_pool *pool)
{
    return pool->room / WORDS_PART;
}

const hd_window *hd_pool_window(const hd_pool *pool, int rank)
{
    return rank == pool->rank ? &pool->window : &pool->peer[rank];
}

char *hd_pool_own(const hd_pool *pool)
{
    return pool->own;
}

// --------------------------------------------------------------- opening

// The lock is held, here and below.
static hd_status open_pool(hd_pool *pool, hd_diag *diag)
{
    void *own;

    if (pool->window.base == NULL)
        HD_TRY(hd_window_open(hd_pool_shared(pool) + pool->room, diag,
                              &pool->window));
    if (pool->own != NULL)
        return HD_OK;
    own = mmap(NULL, pool->room, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (own == MAP_FAILED)
        return hd_system_error(diag, "mmap of %zu bytes", pool->room);
    pool->own = own;
    return HD_OK;
}

// What no peer sees may be used as far as it is promised, so that a system that
// promises no more than it has refuses here.
static hd_status promise(hd_pool *pool, size_t own, hd_diag *diag)
{
    size_t bytes = align_up(own, page_bytes());

    if (own <= pool->owned)
        return HD_OK;
    if (mprotect(pool->own, bytes, PROT_READ | PROT_WRITE) < 0)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %zu bytes",
                       own);
    return HD_OK;
}

// ----------------------------------------------------------------- words

// What words begin with.
typedef struct head {
    _Atomic uint64_t left; // ranks that write no more of them
} head;

static head *words_of(const hd_pool *pool, const hd_hold *hold)
{
    return (void *)((char *)pool->window.base + hold->words);
}

void hd_pool_leave(void *words)
{
    atomic_fetch_add_explicit(&((head *)words)->left, 1, memory_order_release);
}

// Frees what all ranks have left.
static void sweep(hd_pool *pool)
{
    for (hd_hold **at = &pool->first; *at != NULL;) {
        hd_hold *hold = *at;

        // Pairs with hd_pool_leave: each rank's last words are there.
        if (hold->over && atomic_load_explicit(&words_of(pool, hold)->left,
                                               memory_order_acquire) ==
                              (uint64_t)pool->size) {
            *at = hold->next;
            free(hold);
        } else {
            at = &hold->next;
        }
    }
}

// The first place that is large enough.
static hd_hold **find_place(hd_pool *pool, size_t bytes, size_t *words)
{
    hd_hold **at = &pool->first;

    *words = 0;
    while (*at != NULL && (*at)->words - *words < bytes) {
        *words = (*at)->words + (*at)->bytes;
        at = &(*at)->next;
    }
    return at;
}

static hd_status take(hd_pool *pool, hd_hold *hold, hd_diag *diag)
{
    hd_hold **at;

    HD_TRY(open_pool(pool, diag));
    HD_TRY(promise(pool, hold->own, diag));
    sweep(pool);
    at = find_place(pool, hold->bytes, &hold->words);
    if (hold->words + hold->bytes > hd_pool_shared(pool))
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "no memory for %zu bytes of words", hold->bytes);
    memset(words_of(pool, hold), 0, hold->bytes);
    hold->old_shared = least(hold->shared, pool->shared);
    hold->old_own = least(hold->own, pool->owned);
    pool->shared += hold->shared - hold->old_shared;
    pool->owned += hold->own - hold->old_own;
    hold->next = *at;
    *at = hold;
    return HD_OK;
}

hd_status hd_pool_take(hd_pool *pool, size_t words, size_t shared, size_t own,
                       hd_diag *diag, hd_hold **out)
{
    hd_hold *hold = calloc(1, sizeof *hold);
    hd_status status;

    if (hold == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a session");
    hold->bytes = align_up(words, ALIGNMENT);
    hold->shared = shared;
    hold->own = own;
    pthread_mutex_lock(&pool->lock);
    status = take(pool, hold, diag);
    pthread_mutex_unlock(&pool->lock);
    if (status != HD_OK) {
        free(hold);
        return status;
    }
    *out = hold;
    return HD_OK;
}

void hd_pool_give(hd_pool *pool, hd_hold *hold, bool met)
{
    hd_hold **at = &pool->first;

    pthread_mutex_lock(&pool->lock);
    hold->over = true;
    if (met) {
        sweep(pool);
    } else {
        while (*at != hold)
            at = &(*at)->next;
        *at = hold->next;
        free(hold);
    }
    pthread_mutex_unlock(&pool->lock);
}

// -------------------------------------------------------------- trimming

// The pages that lie wholly within window[from, to).
static hd_status punch(hd_pool *pool, size_t from, size_t to, hd_diag *diag)
{
    from = align_up(from, page_bytes());
    to = to / page_bytes() * page_bytes();
    if (from < to &&
        madvise((char *)pool->window.base + from, to - from, MADV_REMOVE) < 0)
        return hd_system_error(diag, "madvise of %zu bytes", to - from);
    return HD_OK;
}

static hd_status trim_words(hd_pool *pool, hd_diag *diag)
{
    size_t at = 0;

    for (const hd_hold *hold = pool->first; hold != NULL; hold = hold->next) {
        HD_TRY(punch(pool, at, hold->words, diag));
        at = hold->words + hold->bytes;
    }
    return punch(pool, at, hd_pool_shared(pool), diag);
}

static hd_status trim_own(hd_pool *pool, size_t own, hd_diag *diag)
{
    size_t from = align_up(own, page_bytes());

    if (from < pool->owned &&
        madvise(pool->own + from, pool->owned - from, MADV_DONTNEED) < 0)
        return hd_system_error(diag, "madvise of %zu bytes",
                               pool->owned - from);
    pool->owned = least(pool->owned, own);
    return HD_OK;
}

static hd_status trim(hd_pool *pool, hd_diag *diag)
{
    size_t shared = 0, own = 0;

    if (pool->own == NULL)
        return HD_OK;
    sweep(pool);
    for (const hd_hold *hold = pool->first; hold != NULL; hold = hold->next) {
        if (hold->over)
            continue;
        shared = hold->shared > shared ? hold->shared : shared;
        own = hold->own > own ? hold->own : own;
    }
    HD_TRY(trim_words(pool, diag));
    HD_TRY(
        punch(pool, hd_pool_shared(pool) + shared, pool->window.bytes, diag));
    pool->shared = least(pool->shared, shared);
    return trim_own(pool, own, diag);
}

hd_status hd_pool_trim(hd_pool *pool, hd_diag *diag)
{
    hd_status status;

    pthread_mutex_lock(&pool->lock);
    status = trim(pool, diag);
    pthread_mutex_unlock(&pool->lock);
    return status;
}

// ----------------------------------------------------------------- peers

hd_status hd_pool_map(hd_pool *pool, int peer, int fd, size_t bytes,
                      hd_diag *diag)
{
    hd_status status = HD_OK;

    pthread_mutex_lock(&pool->lock);
    if (pool->peer[peer].base == NULL)
        status = hd_window_map(fd, bytes, diag, &pool->peer[peer]);
    else if (fd >= 0)
        close(fd);
    pthread_mutex_unlock(&pool->lock);
    return status;
}

void hd_pool_meet(hd_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->met = true;
    if (pool->window.fd >= 0)
        close(pool->window.fd); // nobody is going to map it any more
    pool->window.fd = -1;
    pthread_mutex_unlock(&pool->lock);
}

bool hd_pool_has_met(const hd_pool *pool)
{
    return pool->met;
}
