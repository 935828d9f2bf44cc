#include "runtime/ranks/pulse.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/ranks/mesh.h"

// Nobody waits for it: a peer that looks has it for a moment, in which it may
// be stopped, or die.
bool hd_pulse_begin(hd_pulse *pulse)
{
    int code = pthread_mutex_trylock(&pulse->lock);

    if (code == EOWNERDEAD)
        code = pthread_mutex_consistent(&pulse->lock);
    return code == 0;
}

void hd_pulse_end(hd_pulse *pulse)
{
    pthread_mutex_unlock(&pulse->lock);
}

// Whoever finds that the owner is dead leaves it so, for the other peers.
bool hd_pulse_has_stopped(hd_pulse *pulse)
{
    int code = pthread_mutex_trylock(&pulse->lock);

    if (code == 0 || code == EOWNERDEAD)
        pthread_mutex_unlock(&pulse->lock);
    return code == EOWNERDEAD || code == ENOTRECOVERABLE;
}

static hd_status prepare(hd_pulse *pulse, int n, hd_diag *diag)
{
    pthread_mutexattr_t kind;
    int code = 0;

    pthread_mutexattr_init(&kind);
    pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    for (int i = 0; i < n && code == 0; i++)
        code = pthread_mutex_init(&pulse[i].lock, &kind);
    pthread_mutexattr_destroy(&kind);
    if (code == 0)
        return HD_OK;
    errno = code;
    return hd_system_error(diag, "a lock that shows that a rank lives");
}

static hd_status open_all(const hd_exchange *exchange, size_t bytes)
{
    hd_group *group = exchange->group;

    HD_TRY(hd_window_open(bytes, exchange->diag, &group->pulses));
    HD_TRY(prepare(group->pulses.base, group->size, exchange->diag));
    for (int i = 0; i < group->size; i++) {
        if (i != group->rank && hd_group_leader(group, i) == group->rank)
            HD_TRY(hd_exchange_post(exchange, i, "", 0, group->pulses.fd));
    }
    close(group->pulses.fd);
    group->pulses.fd = -1;
    return HD_OK;
}

// Which all ranks of a host find alike.
static bool has_another_process(const hd_group *group)
{
    int leader = hd_group_leader(group, group->rank);

    for (int i = 0; i < group->size; i++) {
        if (i != group->rank && hd_group_leader(group, i) == leader &&
            !hd_group_is_near(group, i))
            return true;
    }
    return false;
}

hd_status hd_pulse_share(hd_group *group, int64_t deadline, hd_diag *diag)
{
    size_t bytes = (size_t)group->size * sizeof(hd_pulse);
    // Before the first of those that are numbered.
    hd_exchange exchange = {.group = group,
                            .call = HD_CALL_GROUP,
                            .serial = group->serial,
                            .deadline = deadline,
                            .diag = diag};
    int leader = hd_group_leader(group, group->rank), fd;

    if (!has_another_process(group))
        return HD_OK;
    if (leader == group->rank) {
        HD_TRY(open_all(&exchange, bytes));
    } else {
        HD_TRY(hd_exchange_collect(&exchange, leader, NULL, 0, &fd));
        HD_TRY(hd_window_map(fd, bytes, diag, &group->pulses));
    }
    // Releases them to the watcher.
    atomic_store_explicit(&group->pulse, group->pulses.base,
                          memory_order_release);
    hd_watch_wake(group);
    // A rank that is in its group has one, from the first. It can do without.
    while (!atomic_load_explicit(&group->beats, memory_order_relaxed) &&
           hd_clock() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    return HD_OK;
}
