// Groups: the ranks of a program as connected processes. Collective calls are
// numbered, and each part says which call and which function it belongs to, so
// that ranks that call in different order are told so rather than confused.
//
// Whoever waits for a peer waits for one of four things, and all of them end
// the wait: what it waits for, the group's failure, the peer's leaving, and the
// deadline.
#include "runtime/ranks/group.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/diag.h"
#include "base/sized.h"
#include "runtime/ranks/mesh.h"

#define NOTICE 0.1 // seconds that saying something to all peers may take
#define ABORT 1.0  // seconds that the watcher may take to hear of one

// ------------------------------------------------------------- processes

// How often the process that this is a copy of was forked: another number than
// a group's says that the group is another process's. Asking for the process's
// own number would be a system call each time.
static atomic_uint forks;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void begin_counting(void)
{
    // Where there is no memory for that, forks go unnoticed.
    (void)!pthread_atfork(NULL, NULL, count_fork);
}

static unsigned count_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, begin_counting);
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

bool hd_group_is_copy(const hd_group *group)
{
    return group->forks != atomic_load_explicit(&forks, memory_order_relaxed);
}

hd_status hd_group_check_process(const hd_group *group, hd_diag *diag)
{
    return hd_group_is_copy(group)
               ? hd_fail(diag, HD_ERROR_ARGUMENT,
                         "the group belongs to process %d, which has forked "
                         "this one, %d: a fork has none of its threads",
                         (int)group->pid, (int)getpid())
               : HD_OK;
}

int hd_group_rank(const hd_group *group)
{
    assert(group != NULL);
    return group->rank;
}

int hd_group_size(const hd_group *group)
{
    assert(group != NULL);
    return group->size;
}

int hd_group_leader(const hd_group *group, int rank)
{
    return group->link[rank].leader;
}

bool hd_group_is_near(const hd_group *group, int rank)
{
    const hd_link *link = &group->link[rank];

    return link->leader == group->link[group->rank].leader &&
           link->wire.pid == group->pid;
}

const char *hd_group_host(const hd_group *group, int rank)
{
    return group->link[rank].host;
}

void hd_group_set_timeout(hd_group *group, double timeout)
{
    assert(group != NULL);
    if (timeout > 0)
        group->timeout = timeout;
}

// ------------------------------------------------------------ sending

static hd_status send_frame(hd_group *group, int peer, hd_frame frame,
                            const void *payload, int fd, int64_t deadline)
{
    hd_link *link = &group->link[peer];
    hd_status status;

    if (link->data == NULL)
        return hd_frame_send(link->wire.fd, frame, payload, fd, deadline);
    // Unlike a packet, a frame on a stream may go in parts, which those of
    // another thread must not come between.
    if (!hd_lock_until(&link->sending, deadline))
        return HD_ERROR_TIMEOUT;
    status = hd_wire_put(link->wire.fd, frame, payload, deadline);
    pthread_mutex_unlock(&link->sending);
    return status;
}

// ------------------------------------------------------------ failure

bool hd_group_failed(const hd_group *group)
{
    return atomic_load_explicit(&group->failed, memory_order_seq_cst);
}

bool hd_group_left(const hd_group *group, int peer)
{
    return atomic_load_explicit(&group->link[peer].left, memory_order_seq_cst);
}

hd_status hd_group_failure(hd_group *group, char out[HD_GROUP_TEXT])
{
    hd_status status;

    pthread_mutex_lock(&group->lock);
    memcpy(out, group->failure, HD_GROUP_TEXT);
    status = group->status;
    pthread_mutex_unlock(&group->lock);
    return status;
}

void hd_group_wake(hd_group *group)
{
    pthread_cond_broadcast(&group->news);
    for (int i = 0; i < group->ndoorbells; i++)
        hd_doorbell_wake(group->doorbell[i]);
}

bool hd_group_note_failure(hd_group *group, hd_status status, const char *text)
{
    bool first;

    pthread_mutex_lock(&group->lock);
    first = !hd_group_failed(group);
    if (first) {
        snprintf(group->failure, sizeof group->failure, "%s", text);
        group->status = status;
        atomic_store_explicit(&group->failed, true, memory_order_seq_cst);
        hd_group_wake(group);
    }
    pthread_mutex_unlock(&group->lock);
    return first;
}

static hd_frame frame_of(const hd_group *group, hd_frame_kind kind,
                         const char *text)
{
    return (hd_frame){.kind = (uint32_t)kind,
                      .rank = (uint32_t)group->rank,
                      .bytes = strlen(text)};
}

static void note_told(hd_link *link)
{
    atomic_store_explicit(&link->told, true, memory_order_relaxed);
}

// A frame of this kind to every peer, as far as that goes in the time.
static void notify(hd_group *group, hd_frame_kind kind, const char *text,
                   double seconds)
{
    hd_frame frame = frame_of(group, kind, text);
    int64_t deadline = hd_clock_after(seconds);

    for (int i = 0; i < group->size; i++) {
        if (group->link[i].wire.fd < 0)
            continue;
        // A peer that cannot be told will see us hang up.
        if (send_frame(group, i, frame, text, -1, deadline) == HD_OK &&
            kind != HD_FRAME_GOODBYE)
            note_told(&group->link[i]);
    }
}

static void fail(hd_group *group, hd_status status, const char *text,
                 double seconds)
{
    if (hd_group_note_failure(group, status, text))
        notify(group, HD_FRAME_FAILED, text, seconds);
}

void hd_group_fail(hd_group *group, const char *text)
{
    fail(group, HD_ERROR_PEER, text, NOTICE);
}

static int poll_now(const hd_link *link, short events)
{
    struct pollfd ask = {.fd = link->wire.fd, .events = events};

    return poll(&ask, 1, 0) > 0 ? ask.revents : 0;
}

// All that was sent is in the peer's queue, or in its kernel, which has said
// so.
static bool has_come(const hd_link *link)
{
    int left = 0;

    return link->data == NULL ||
           (ioctl(link->wire.fd, SIOCOUTQ, &left) == 0 && left == 0);
}

// False while the peer takes nothing. One that has left does nothing any more,
// and one to which the link is dead will see that.
static bool tell(hd_group *group, int peer, hd_frame frame, const char *text)
{
    hd_link *link = &group->link[peer];
    bool near = link->data == NULL;
    hd_status status;

    if (link->wire.fd < 0 || hd_group_left(group, peer) ||
        (poll_now(link, 0) & (POLLHUP | POLLERR)) != 0)
        return true;
    if (atomic_load_explicit(&link->told, memory_order_relaxed))
        return has_come(link);
    // Of a stream this says that there is room for all of the frame.
    if (!near && (poll_now(link, POLLOUT) & POLLOUT) == 0)
        return false;
    status = send_frame(group, peer, frame, text, -1,
                        near ? 0 : hd_clock_after(NOTICE));
    if (status != HD_OK && status != HD_ERROR_PEER)
        return false;
    note_told(link);
    return has_come(link);
}

static bool tell_all(hd_group *group, hd_frame_kind kind, const char *text)
{
    hd_frame frame = frame_of(group, kind, text);
    bool all = true;

    for (int i = 0; i < group->size; i++)
        all = tell(group, i, frame, text) && all;
    return all;
}

void hd_group_pass_on(hd_group *group, const char *text)
{
    int64_t deadline = hd_clock_after(HD_GROUP_TELLING);
    char first[HD_GROUP_TEXT];

    hd_group_note_failure(group, HD_ERROR_PEER, text);
    hd_ignore(hd_group_failure(group, first));
    while (!tell_all(group,
                     hd_group_is_aborted(group) ? HD_FRAME_ABORTED
                                                : HD_FRAME_FAILED,
                     first) &&
           hd_clock() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

// Only what a signal handler may do: the watcher does the rest.
void hd_group_abort(hd_group *group)
{
    assert(group != NULL);
    if (hd_group_is_copy(group))
        return; // the descriptor that wakes the watcher is shared
    atomic_store_explicit(&group->aborted, true, memory_order_seq_cst);
    hd_watch_wake(group);
}

bool hd_group_is_aborted(const hd_group *group)
{
    return atomic_load_explicit(&group->aborted, memory_order_seq_cst) ||
           atomic_load_explicit(&group->ended, memory_order_seq_cst);
}

static void note_abort(hd_group *group)
{
    char text[HD_GROUP_TEXT];

    snprintf(text, sizeof text, "rank %d was aborted by its caller",
             group->rank);
    hd_group_note_failure(group, HD_ERROR_PEER, text);
}

// One that had failed before is aborted too: peers that do not know of that yet
// would take our hanging up for the cause. What is being sent to a peer that
// takes nothing ends last, a look of hd_frame_send's after all that could be
// told have been.
void hd_group_give_in(hd_group *group)
{
    note_abort(group);
    notify(group, HD_FRAME_ABORTED, group->failure, NOTICE / 2);
    for (int i = 0; i < group->size; i++) {
        if (group->link[i].wire.fd >= 0)
            shutdown(group->link[i].wire.fd, SHUT_WR);
    }
}

// Waits, with the group's lock, until there may be news: at most a second, so
// that whoever waits looks at hd_clock again, and not once `deadline` is over.
// False then.
static bool await_news(hd_group *group, int64_t deadline)
{
    int64_t left = deadline - hd_clock();
    struct timespec until;

    if (left <= 0)
        return false;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += left < 1000000000 ? left : 999999999;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&group->news, &group->lock, &until);
    return true;
}

// The watcher knows whether something else has failed the group before.
hd_status hd_group_end(hd_group *group, char out[HD_GROUP_TEXT])
{
    int64_t deadline = hd_clock_after(ABORT);

    pthread_mutex_lock(&group->lock);
    while (!hd_group_failed(group) && await_news(group, deadline))
        ;
    pthread_mutex_unlock(&group->lock);
    note_abort(group);
    return hd_group_failure(group, out);
}

hd_status hd_group_check(hd_group *group, hd_diag *diag)
{
    char text[HD_GROUP_TEXT];
    hd_status status;

    HD_TRY(hd_group_check_process(group, diag));
    if (!hd_group_is_aborted(group))
        return HD_OK;
    status = hd_group_end(group, text);
    return hd_fail(diag, status, "%s", text);
}

void hd_group_run_out(hd_group *group)
{
    char text[HD_GROUP_TEXT];

    snprintf(text, sizeof text, "rank %d failed: memory ran out", group->rank);
    fail(group, HD_ERROR_NO_MEMORY, text, NOTICE);
}

hd_status hd_group_status(hd_status returned, const char *whose, int rank,
                          hd_diag *diag)
{
    if (returned >= HD_OK && returned <= HD_ERROR_TIMEOUT)
        return returned;
    return hd_fail(diag, HD_ERROR_ARGUMENT,
                   "rank %d: %s has returned %d, which is no status", rank,
                   whose, (int)returned);
}

// -------------------------------------------------------------- doorbells

hd_status hd_group_add_doorbell(hd_group *group, hd_doorbell *doorbell)
{
    hd_status status = HD_ERROR_NO_MEMORY;
    hd_doorbell **grown;

    pthread_mutex_lock(&group->lock);
    grown = realloc(group->doorbell,
                    sizeof(hd_doorbell *) * ((size_t)group->ndoorbells + 1));
    if (grown != NULL) {
        group->doorbell = grown;
        group->doorbell[group->ndoorbells++] = doorbell;
        status = HD_OK;
    }
    pthread_mutex_unlock(&group->lock);
    return status;
}

void hd_group_remove_doorbell(hd_group *group, hd_doorbell *doorbell)
{
    pthread_mutex_lock(&group->lock);
    for (int i = 0; i < group->ndoorbells; i++) {
        if (group->doorbell[i] == doorbell) {
            group->doorbell[i] = group->doorbell[--group->ndoorbells];
            break;
        }
    }
    pthread_mutex_unlock(&group->lock);
}

hd_workers *hd_group_workers(hd_group *group)
{
    return group->workers;
}

hd_pool *hd_group_pool(hd_group *group)
{
    return group->pool;
}

hd_kept **hd_group_kept(hd_group *group)
{
    return &group->kept;
}

static void end_first(hd_kept **at)
{
    hd_kept *kept = *at;

    *at = kept->next;
    kept->end(kept);
}

static hd_status trim_kept(hd_group *group, hd_diag *diag)
{
    for (hd_kept **at = &group->kept; *at != NULL;) {
        bool over = false;

        HD_TRY((*at)->trim(*at, diag, &over));
        if (over)
            end_first(at);
        else
            at = &(*at)->next;
    }
    return HD_OK;
}

hd_status hd_group_trim(hd_group *group, hd_diag *diag)
{
    HD_REQUIRE(diag, group);
    HD_TRY(hd_group_check(group, diag));
    HD_TRY(hd_pool_trim(group->pool, diag));
    return trim_kept(group, diag);
}

// ----------------------------------------------------------- exchange

static const char *call_text(uint32_t call)
{
    switch (call) {
    case HD_CALL_GROUP:
        return "hd_group_create";
    case HD_CALL_ALLGATHER:
        return "hd_group_allgather";
    case HD_CALL_SESSION:
        return "hd_session_create";
    case HD_CALL_SPLIT:
        return "hd_group_split";
    }
    return "another version of heddle";
}

hd_exchange hd_exchange_begin(hd_group *group, hd_meeting call, double timeout,
                              hd_diag *diag)
{
    return (hd_exchange){.group = group,
                         .call = call,
                         .serial = ++group->serial,
                         .deadline = hd_clock_after(timeout),
                         .failed = hd_group_failed(group),
                         .diag = diag,
                         .said = diag != NULL ? hd_diag_count(diag) : 0};
}

static hd_status report_failure(const hd_exchange *exchange)
{
    char text[HD_GROUP_TEXT];
    hd_status status = hd_group_failure(exchange->group, text);

    return hd_fail(exchange->diag, status, "%s", text);
}

static hd_status report_left(const hd_exchange *exchange, int peer)
{
    return hd_fail(exchange->diag, HD_ERROR_PEER,
                   "rank %d has left the group, which rank %d waits for in %s",
                   peer, exchange->group->rank, call_text(exchange->call));
}

// A rank that has waited in vain leaves the call, and its parts of it lie in
// the others' mail: the group is of no use any more.
static hd_status report_late(const hd_exchange *exchange, int peer)
{
    char text[HD_GROUP_TEXT];

    snprintf(text, sizeof text, "rank %d waits for rank %d in %s, which %s",
             exchange->group->rank, peer, call_text(exchange->call),
             exchange->group->link[peer].received == exchange->serial
                 ? "has called it and is not as far"
                 : "has not called it");
    hd_group_fail(exchange->group, text);
    return hd_fail(exchange->diag, HD_ERROR_TIMEOUT, "%s", text);
}

static hd_status report_remote(const hd_exchange *exchange, int peer)
{
    const hd_group *group = exchange->group;

    return hd_fail(exchange->diag, HD_ERROR_UNSUPPORTED,
                   "rank %d on %s cannot share memory with rank %d on %s: they "
                   "are on several hosts",
                   group->rank, hd_group_host(group, group->rank), peer,
                   hd_group_host(group, peer));
}

hd_status hd_exchange_post(const hd_exchange *exchange, int peer,
                           const void *data, size_t bytes, int fd)
{
    hd_group *group = exchange->group;
    const char *at = data;
    char text[HD_GROUP_TEXT];
    size_t done = 0;

    if (exchange->failed)
        return report_failure(exchange);
    if (fd >= 0 && group->link[peer].data != NULL)
        return report_remote(exchange, peer);
    // A peer may be past this exchange, and fail then: that is no failure of
    // ours. What has come is taken, the collecting reports what will not come.
    if (hd_group_failed(group))
        return hd_group_failure(group, text) == HD_ERROR_PEER
                   ? HD_OK
                   : report_failure(exchange);
    do {
        size_t part =
            bytes - done < HD_FRAME_ROOM ? bytes - done : HD_FRAME_ROOM;
        hd_frame frame = {.kind = HD_FRAME_DATA,
                          .rank = (uint32_t)group->rank,
                          .call = (uint32_t)exchange->call,
                          .bytes = part,
                          .serial = exchange->serial};
        hd_status status = send_frame(group, peer, frame, at + done,
                                      done == 0 ? fd : -1, exchange->deadline);

        if (status == HD_ERROR_TIMEOUT)
            return report_late(exchange, peer);
        if (status == HD_ERROR_SYSTEM)
            return hd_system_error(exchange->diag, "sendmsg to rank %d", peer);
        // What it said before it hung up is in its mail, or will be soon: the
        // collecting of it reports.
        if (status == HD_ERROR_PEER)
            return HD_OK;
        done += part;
    } while (done < bytes);
    return HD_OK;
}

// The peer's next frame, NULL once there will be none.
static hd_mail *await_mail(const hd_exchange *exchange, int peer,
                           hd_status *status)
{
    hd_group *group = exchange->group;
    hd_link *link = &group->link[peer];
    hd_mail *mail = NULL;

    *status = HD_OK;
    pthread_mutex_lock(&group->lock);
    while (link->first == NULL && !hd_group_failed(group) &&
           !hd_group_left(group, peer) && *status == HD_OK) {
        if (!await_news(group, exchange->deadline))
            *status = HD_ERROR_TIMEOUT;
    }
    mail = link->first;
    if (mail != NULL) {
        link->first = mail->next;
        if (link->first == NULL)
            link->last = NULL;
    }
    pthread_mutex_unlock(&group->lock);
    return mail;
}

bool hd_exchange_has_mail(const hd_exchange *exchange, int peer)
{
    hd_group *group = exchange->group;
    bool has;

    pthread_mutex_lock(&group->lock);
    has = group->link[peer].first != NULL;
    pthread_mutex_unlock(&group->lock);
    return has;
}

static bool is_of(const hd_mail *mail, const hd_exchange *exchange)
{
    return mail->frame.call == (uint32_t)exchange->call &&
           mail->frame.serial == exchange->serial;
}

static hd_status check_mail(const hd_exchange *exchange, int peer,
                            const hd_mail *mail, size_t bytes)
{
    if (!is_of(mail, exchange))
        return hd_fail(exchange->diag, HD_ERROR_ARGUMENT,
                       "rank %d is in %s (call %llu of its group) where rank "
                       "%d is in %s (call %llu)",
                       peer, call_text(mail->frame.call),
                       (unsigned long long)mail->frame.serial,
                       exchange->group->rank, call_text(exchange->call),
                       (unsigned long long)exchange->serial);
    if (mail->frame.bytes != bytes)
        return hd_fail(exchange->diag, HD_ERROR_ARGUMENT,
                       "rank %d passes another number of bytes to %s than rank "
                       "%d does",
                       peer, call_text(exchange->call), exchange->group->rank);
    return HD_OK;
}

static hd_status collect_part(const hd_exchange *exchange, int peer, void *data,
                              size_t bytes, int *fd)
{
    hd_status status;
    hd_mail *mail = await_mail(exchange, peer, &status);

    if (mail == NULL) {
        if (hd_group_failed(exchange->group))
            return report_failure(exchange);
        return status == HD_OK ? report_left(exchange, peer)
                               : report_late(exchange, peer);
    }
    status = is_of(mail, exchange) || !hd_group_failed(exchange->group)
                 ? check_mail(exchange, peer, mail, bytes)
                 : report_failure(exchange);
    exchange->group->link[peer].received = mail->frame.serial;
    if (status == HD_OK && bytes > 0)
        memcpy(data, mail->payload, bytes);
    if (status == HD_OK && fd != NULL)
        *fd = mail->fd;
    else if (mail->fd >= 0)
        close(mail->fd);
    free(mail);
    return status;
}

hd_status hd_exchange_collect(const hd_exchange *exchange, int peer, void *data,
                              size_t bytes, int *fd)
{
    char *at = data;
    size_t done = 0;

    if (fd != NULL)
        *fd = -1;
    do {
        size_t part =
            bytes - done < HD_FRAME_ROOM ? bytes - done : HD_FRAME_ROOM;

        HD_TRY(collect_part(exchange, peer, at, part, done == 0 ? fd : NULL));
        if (part > 0)
            at += part;
        done += part;
    } while (done < bytes);
    return HD_OK;
}

hd_status hd_exchange_allgather(const hd_exchange *exchange, const void *mine,
                                size_t bytes, void *all)
{
    hd_group *group = exchange->group;

    for (int i = 0; i < group->size; i++) {
        if (i != group->rank)
            HD_TRY(hd_exchange_post(exchange, i, mine, bytes, -1));
    }
    for (int i = 0; i < group->size; i++) {
        char *slot = bytes > 0 ? (char *)all + (size_t)i * bytes : NULL;

        if (i != group->rank)
            HD_TRY(hd_exchange_collect(exchange, i, slot, bytes, NULL));
        else if (bytes > 0)
            memmove(slot, mine, bytes);
    }
    return HD_OK;
}

// How a rank comes out of a phase.
typedef struct verdict {
    int32_t status;
    char text[HD_GROUP_TEXT];
} verdict;

void hd_group_reason(const hd_diag *diag, size_t said, hd_status status,
                     char out[HD_GROUP_TEXT])
{
    hd_message message = HD_EMPTY(hd_message);

    snprintf(out, HD_GROUP_TEXT, "%s", hd_status_text(status));
    for (size_t i = said; diag != NULL && hd_diag_message(diag, i, &message);
         i++) {
        if (message.severity != HD_SEVERITY_ERROR)
            continue;
        if (message.line > 0)
            snprintf(out, HD_GROUP_TEXT, "%s:%d:%d: %s", message.file,
                     message.line, message.column, message.text);
        else
            snprintf(out, HD_GROUP_TEXT, "%s", message.text);
        return;
    }
}

// What the peers of a rank that fails are told.
static void word_failure(int rank, hd_status status, const hd_diag *diag,
                         size_t said, char out[HD_GROUP_TEXT])
{
    char why[HD_GROUP_TEXT];

    hd_group_reason(diag, said, status, why);
    snprintf(out, HD_GROUP_TEXT, "rank %d failed: %.*s", rank,
             HD_GROUP_TEXT - 32, why);
}

void hd_group_give_up(hd_group *group, hd_status status, const hd_diag *diag,
                      size_t said)
{
    char text[HD_GROUP_TEXT];

    word_failure(hd_group_rank(group), status, diag, said, text);
    hd_group_fail(group, text);
}

void *hd_exchange_room(const hd_exchange *exchange, size_t bytes)
{
    int size = exchange->group->size;
    void *room = calloc((size_t)size, bytes);

    if (room == NULL) {
        hd_group_run_out(exchange->group);
        hd_fail(exchange->diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                size);
    }
    return room;
}

hd_exchange hd_exchange_confess(const hd_exchange *exchange, hd_status status,
                                char why[HD_GROUP_TEXT])
{
    hd_exchange quiet = *exchange;

    hd_group_reason(exchange->diag, exchange->said, status, why);
    if (status != HD_OK)
        quiet.diag = NULL;
    return quiet;
}

// One by one, so that no rank needs memory for it.
hd_status hd_exchange_agree(const hd_exchange *exchange, hd_status status)
{
    const hd_group *group = exchange->group;
    verdict mine = {.status = (int32_t)status}, theirs;
    hd_exchange quiet = hd_exchange_confess(exchange, status, mine.text);
    hd_status first = status;

    for (int i = 0; i < group->size; i++) {
        hd_status posted = i == group->rank ? HD_OK
                                            : hd_exchange_post(&quiet, i, &mine,
                                                               sizeof mine, -1);

        if (posted != HD_OK)
            return status != HD_OK ? status : posted;
    }
    for (int i = 0; i < group->size; i++) {
        hd_status met =
            i == group->rank
                ? HD_OK
                : hd_exchange_collect(&quiet, i, &theirs, sizeof theirs, NULL);

        if (met != HD_OK)
            return first != HD_OK ? first : met;
        if (i == group->rank || first != HD_OK || theirs.status == HD_OK)
            continue;
        theirs.text[HD_GROUP_TEXT - 1] = '\0';
        first = hd_fail(exchange->diag, HD_ERROR_PEER, "rank %d failed: %s", i,
                        theirs.text);
        quiet.diag = NULL;
    }
    return first;
}

hd_status hd_group_allgather(hd_group *group, const void *mine, size_t bytes,
                             void *all, hd_diag *diag)
{
    hd_exchange exchange;
    char none = 0; // a barrier may pass NULL

    HD_REQUIRE(diag, group);
    HD_TRY(hd_group_check(group, diag));
    if (bytes > 0) {
        HD_REQUIRE(diag, mine);
        HD_REQUIRE(diag, all);
    }
    exchange =
        hd_exchange_begin(group, HD_CALL_ALLGATHER, group->timeout, diag);
    if (bytes == 0)
        return hd_exchange_allgather(&exchange, &none, 0, &none);
    return hd_exchange_allgather(&exchange, mine, bytes, all);
}

// --------------------------------------------------- create, destroy

static hd_group *new_group(const hd_oob *oob, double timeout)
{
    hd_group *group = calloc(1, sizeof *group);
    pthread_condattr_t attributes;

    if (group == NULL)
        return NULL;
    group->link = calloc((size_t)oob->nranks, sizeof *group->link);
    group->workers = hd_workers_create();
    group->pool = hd_pool_create(oob->rank, oob->nranks);
    if (group->link == NULL || group->workers == NULL || group->pool == NULL) {
        hd_pool_destroy(group->pool);
        hd_workers_destroy(group->workers);
        free(group->link);
        free(group);
        return NULL;
    }
    group->rank = oob->rank;
    group->size = oob->nranks;
    group->timeout = timeout;
    group->pid = getpid();
    group->forks = count_forks();
    group->wake = -1;
    group->pulses = (hd_window)HD_WINDOW_NONE;
    for (int i = 0; i < oob->nranks; i++) {
        group->link[i].wire.fd = -1;
        pthread_mutex_init(&group->link[i].sending, NULL);
    }
    pthread_mutex_init(&group->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&group->news, &attributes);
    pthread_condattr_destroy(&attributes);
    return group;
}

static hd_status check_oob(const hd_oob *oob, double timeout, hd_diag *diag)
{
    if (oob->nranks < 1 || oob->nranks > HD_MAX_RANKS || oob->rank < 0 ||
        oob->rank >= oob->nranks || (oob->nranks > 1 && oob->allgather == NULL))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "a group needs 1 to %d ranks, one of them mine, and an "
                       "allgather",
                       HD_MAX_RANKS);
    if (!(timeout > 0))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "a timeout of %g s is not above 0", timeout);
    return HD_OK;
}

hd_status hd_group_connect(const hd_oob *oob, double timeout,
                           const hd_hearsay *hearsay, hd_diag *diag,
                           hd_group **out)
{
    size_t said = diag != NULL ? hd_diag_count(diag) : 0;
    hd_oob with = HD_EMPTY(hd_oob);
    char text[HD_GROUP_TEXT];
    hd_group *group;
    hd_status status;
    int64_t deadline;

    HD_REQUIRE(diag, oob);
    HD_REQUIRE(diag, out);
    HD_TRY(hd_sized_read("hd_group_create", oob, sizeof with, diag, &with));
    HD_TRY(check_oob(&with, timeout, diag));
    group = new_group(&with, timeout);
    if (group == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                       with.nranks);
    deadline = hd_clock_after(timeout);
    status = group->size == 1
                 ? HD_OK
                 : hd_mesh_connect(group, &with, hearsay, deadline, diag);
    if (status == HD_OK)
        status = hd_watch_start(group, diag);
    if (status == HD_OK && group->size > 1)
        status = hd_pulse_share(group, deadline, diag);
    if (status != HD_OK)
        goto fail;
    *out = group;
    return HD_OK;

fail:
    word_failure(with.rank, status, diag, said, text);
    hd_group_note_failure(group, HD_ERROR_PEER, text);
    hd_group_destroy(group);
    return status;
}

hd_status hd_group_create(const hd_oob *oob, double timeout, hd_diag *diag,
                          hd_group **out)
{
    return hd_group_connect(oob, timeout, NULL, diag, out);
}

static void drop_mail(hd_link *link)
{
    while (link->first != NULL) {
        hd_mail *mail = link->first;

        link->first = mail->next;
        if (mail->fd >= 0)
            close(mail->fd);
        free(mail);
    }
}

// A rank that leaves a failed group passes the failure on: its hanging up must
// not be taken for the cause.
static void take_leave(hd_group *group)
{
    if (hd_group_is_aborted(group))
        notify(group, HD_FRAME_ABORTED, group->failure, NOTICE);
    else if (hd_group_failed(group))
        notify(group, HD_FRAME_FAILED, group->failure, NOTICE);
    else
        notify(group, HD_FRAME_GOODBYE, "", NOTICE);
}

static void close_link(hd_link *link)
{
    drop_mail(link);
    hd_wire_close(&link->wire);
    free(link->data);
    pthread_mutex_destroy(&link->sending);
}

// In a process that was forked since: no thread is there to be ended, no lock
// to be trusted, and the peers are the other process's. But connections that
// stay open here would hide its death.
static void let_go(hd_group *group)
{
    for (int i = 0; i < group->size; i++)
        hd_wire_close(&group->link[i].wire);
    if (group->wake >= 0)
        close(group->wake);
    group->wake = -1;
}

// Before a rank ends what it has together with peers, who then know that it
// waits for them. Of a failure there is more to say, once all is known of it.
static bool say_goodbye(hd_group *group)
{
    if (hd_group_is_aborted(group) || hd_group_failed(group))
        return false;
    notify(group, HD_FRAME_GOODBYE, "", NOTICE);
    return true;
}

void hd_group_destroy(hd_group *group)
{
    bool said;

    if (group == NULL)
        return;
    if (hd_group_is_copy(group)) {
        let_go(group);
        return;
    }
    said = group->kept != NULL && say_goodbye(group);
    while (group->kept != NULL)
        end_first(&group->kept);
    hd_workers_destroy(group->workers);
    hd_watch_stop(group);
    if (!said)
        take_leave(group);
    for (int i = 0; i < group->size; i++)
        close_link(&group->link[i]);
    hd_window_close(&group->pulses);
    hd_pool_destroy(group->pool);
    pthread_cond_destroy(&group->news);
    pthread_mutex_destroy(&group->lock);
    free(group->doorbell);
    free(group->link);
    free(group);
}
