// The watcher: one thread a group that reads every peer's socket. It sorts
// parts of collective calls into the peers' mail, and turns a peer's failure,
// leaving or death into the group's state. A peer that hangs up without having
// said goodbye is dead, and so is one whose watcher has ended otherwise than by
// its own doing: of the ranks of this host that is seen first. The group's own
// end comes by it too: what it takes to abort one, no signal handler may do.
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/ranks/mesh.h"

enum {
    ASKED = 64, // sockets that are asked of at once
    NAPS = 200, // of who waits for the watcher, at least
    LOOK = 50,  // milliseconds between looks whether peers live
};

typedef struct watch {
    hd_group *group;
    struct pollfd *ask; // owned: one a rank, then that of `wake`
    hd_frame frame;     // as packets bring it
    char payload[HD_FRAME_ROOM];
} watch;

// Once a part is lost, the ones after it are too: they would be taken for it.
static void keep_mail(hd_group *group, hd_link *link, const hd_frame *frame,
                      const char *payload, int fd)
{
    hd_mail *mail = link->lost ? NULL : malloc(sizeof *mail + frame->bytes);

    if (mail == NULL) {
        if (fd >= 0)
            close(fd);
        link->lost = true;
        hd_group_run_out(group);
        return;
    }
    mail->next = NULL;
    mail->frame = *frame;
    mail->fd = fd;
    memcpy(mail->payload, payload, frame->bytes);
    pthread_mutex_lock(&group->lock);
    if (link->last != NULL)
        link->last->next = mail;
    else
        link->first = mail;
    link->last = mail;
    pthread_cond_broadcast(&group->news);
    pthread_mutex_unlock(&group->lock);
}

static void note_left(hd_group *group, hd_link *link)
{
    pthread_mutex_lock(&group->lock);
    atomic_store_explicit(&link->left, true, memory_order_seq_cst);
    hd_group_wake(group);
    pthread_mutex_unlock(&group->lock);
}

static void note_failed(hd_group *group, const hd_frame *frame,
                        const char *payload)
{
    char text[HD_GROUP_TEXT];

    snprintf(text, sizeof text, "%.*s", (int)frame->bytes, payload);
    // First: who is told of the failure finds that no call does anything.
    if (frame->kind == HD_FRAME_ABORTED)
        atomic_store_explicit(&group->ended, true, memory_order_seq_cst);
    hd_group_note_failure(group, HD_ERROR_PEER, text);
}

// `lost` is an errno if the network cannot say more than that the peer's host
// has fallen silent.
static void note_death(hd_group *group, int peer, int lost)
{
    hd_link *link = &group->link[peer];
    char text[HD_GROUP_TEXT];

    link->open = false;
    if (atomic_load_explicit(&link->left, memory_order_relaxed))
        return;
    atomic_store_explicit(&link->told, true, memory_order_relaxed);
    if (!group->scattered)
        snprintf(text, sizeof text, "rank %d died (process %d)", peer,
                 link->wire.pid);
    else if (link->data == NULL || lost == 0)
        snprintf(text, sizeof text, "rank %d died (process %d on %s)", peer,
                 link->wire.pid, link->host);
    else
        snprintf(text, sizeof text,
                 "rank %d on %s does not answer any more: %s", peer, link->host,
                 strerror(lost));
    hd_group_note_failure(group, HD_ERROR_PEER, text);
}

static void take_frame(hd_group *group, int peer, const hd_frame *frame,
                       const char *payload, int passed)
{
    if (frame->kind == HD_FRAME_DATA) {
        keep_mail(group, &group->link[peer], frame, payload, passed);
        return;
    }
    if (passed >= 0)
        close(passed);
    if (frame->kind == HD_FRAME_FAILED || frame->kind == HD_FRAME_ABORTED)
        note_failed(group, frame, payload);
    else if (frame->kind == HD_FRAME_GOODBYE)
        note_left(group, &group->link[peer]);
}

static hd_status next_frame(watch *watch, hd_link *link, const hd_frame **frame,
                            const char **payload, int *passed)
{
    *passed = -1;
    if (link->data != NULL) {
        hd_status status =
            hd_wire_take(&link->wire, link->data, 0, HD_FRAME_ROOM);

        *frame = &link->wire.frame;
        *payload = link->wire.frame.kind == HD_FRAME_DATA
                       ? link->data
                       : link->wire.payload.words;
        return status == HD_ERROR_ARGUMENT ? HD_ERROR_INVALID : status;
    }
    *frame = &watch->frame;
    *payload = watch->payload;
    return hd_frame_receive(link->wire.fd, link->wire.pid, &watch->frame,
                            watch->payload, passed);
}

// Where a frame ends in a stream is not known once one did not make sense.
static void note_broken(hd_group *group, int peer, hd_status status)
{
    hd_link *link = &group->link[peer];
    char text[HD_GROUP_TEXT];

    link->open = link->data == NULL;
    if (status == HD_ERROR_NO_MEMORY)
        snprintf(text, sizeof text,
                 "rank %d cannot take the descriptor that rank %d passes: %s "
                 "(ulimit -n)",
                 group->rank, peer, strerror(EMFILE));
    else
        snprintf(text, sizeof text, "rank %d got a broken message from rank %d",
                 group->rank, peer);
    hd_group_fail(group, text);
}

// Reads all that is there, so that what a peer said last is heard before its
// hanging up is.
static void read_peer(watch *watch, int peer)
{
    hd_link *link = &watch->group->link[peer];

    while (link->open) {
        const hd_frame *frame;
        const char *payload;
        int passed;
        hd_status status = next_frame(watch, link, &frame, &payload, &passed);

        if (status == HD_ERROR_TIMEOUT)
            return;
        if (status == HD_OK)
            take_frame(watch->group, peer, frame, payload, passed);
        else if (status == HD_ERROR_INVALID || status == HD_ERROR_NO_MEMORY)
            note_broken(watch->group, peer, status);
        else
            note_death(watch->group, peer,
                       status == HD_ERROR_SYSTEM ? errno : 0);
    }
}

// What is read no socket has any more, and the group has not heard yet.
static void begin_look(hd_group *group)
{
    atomic_fetch_add_explicit(&group->looks, 1, memory_order_seq_cst);
}

static void end_look(hd_group *group)
{
    atomic_fetch_add_explicit(&group->looked, 1, memory_order_seq_cst);
}

// What a peer has said is heard first: all of that is there by now. Threads of
// one process die with it.
static void feel_pulses(watch *watch, hd_pulse *pulse)
{
    hd_group *group = watch->group;

    for (int i = 0; i < group->size; i++) {
        const hd_link *link = &group->link[i];

        if (!link->open || link->data != NULL || hd_group_is_near(group, i) ||
            !hd_pulse_has_stopped(&pulse[i]))
            continue;
        begin_look(group);
        read_peer(watch, i);
        if (link->open)
            note_death(group, i, 0);
        end_look(group);
    }
}

// Does what was asked for; false if that is to end: also whoever aborts a group
// and destroys it at once has aborted it, and peers hear of that. What is asked
// for after the eventfd is read makes it readable again.
static bool heed(hd_group *group)
{
    uint64_t times;
    ssize_t got = read(group->wake, &times, sizeof times);

    (void)got; // it was readable
    if (atomic_load_explicit(&group->aborted, memory_order_seq_cst))
        hd_group_give_in(group);
    return !atomic_load_explicit(&group->closing, memory_order_seq_cst);
}

static void free_watch(watch *watch)
{
    free(watch->ask);
    free(watch);
}

// poll takes no more descriptors than the process may open now, though all of
// them are open already: a host may lower its limit when it likes.
static void note_refused(hd_group *group, int code)
{
    char text[HD_GROUP_TEXT];

    snprintf(text, sizeof text,
             "rank %d cannot watch %d ranks any more: poll: %s (ulimit -n)",
             group->rank, group->size, strerror(code));
    hd_group_fail(group, text);
}

static void *watch_peers(void *context)
{
    watch *watch = context;
    hd_group *group = watch->group;
    nfds_t n = (nfds_t)group->size + 1;
    hd_pulse *mine = NULL;
    int ready;

    for (;;) {
        // Acquires what hd_pulse_share has prepared.
        hd_pulse *pulse =
            atomic_load_explicit(&group->pulse, memory_order_acquire);

        if (mine == NULL && pulse != NULL &&
            hd_pulse_begin(&pulse[group->rank])) {
            mine = &pulse[group->rank];
            atomic_store_explicit(&group->beats, true, memory_order_relaxed);
        }
        for (int i = 0; i < group->size; i++)
            watch->ask[i].fd =
                group->link[i].open ? group->link[i].wire.fd : -1;
        ready = poll(watch->ask, n, pulse != NULL ? LOOK : -1);
        if (ready < 0) {
            if (errno == EINTR)
                continue;
            note_refused(group, errno);
            break;
        }
        if (ready > 0)
            begin_look(group);
        for (int i = 0; i < group->size; i++) {
            if (watch->ask[i].fd >= 0 && watch->ask[i].revents != 0)
                read_peer(watch, i);
        }
        if (ready > 0)
            end_look(group);
        if (pulse != NULL)
            feel_pulses(watch, pulse);
        // Last: whoever aborts because a peer died is told of the peer.
        if (watch->ask[group->size].revents != 0 && !heed(group))
            break;
    }
    if (mine != NULL)
        hd_pulse_end(mine);
    free_watch(watch);
    return NULL;
}

static watch *prepare_watch(hd_group *group)
{
    watch *watch = malloc(sizeof *watch);

    if (watch == NULL)
        return NULL;
    watch->group = group;
    watch->ask = calloc((size_t)group->size + 1, sizeof *watch->ask);
    if (watch->ask == NULL) {
        free(watch);
        return NULL;
    }
    for (int i = 0; i <= group->size; i++)
        watch->ask[i].events = POLLIN;
    watch->ask[group->size].fd = group->wake;
    for (int i = 0; i < group->size; i++)
        group->link[i].open = i != group->rank;
    return watch;
}

hd_status hd_watch_start(hd_group *group, hd_diag *diag)
{
    watch *watch;
    int code;

    group->wake = eventfd(0, EFD_CLOEXEC);
    if (group->wake < 0)
        return hd_system_error(diag, "eventfd");
    watch = prepare_watch(group);
    if (watch == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                       group->size);
    code = hd_thread_start(watch_peers, watch, &group->watcher);
    if (code != 0) {
        free_watch(watch);
        errno = code;
        return hd_system_error(diag, "a thread that watches the ranks");
    }
    group->watching = true;
    return HD_OK;
}

// Whoever has left says nothing any more, though its socket can be read for
// ever.
static bool has_unread(const hd_group *group)
{
    struct pollfd ask[ASKED];
    nfds_t n = 0;

    for (int i = 0; i < group->size; i++) {
        if (group->link[i].wire.fd >= 0 && !hd_group_left(group, i))
            ask[n++] = (struct pollfd){group->link[i].wire.fd, POLLIN, 0};
        if (n == ASKED || (n > 0 && i == group->size - 1)) {
            if (poll(ask, n, 0) != 0) // or it cannot be told
                return true;
            n = 0;
        }
    }
    return false;
}

static unsigned count_looks(const atomic_uint *looks)
{
    return atomic_load_explicit(looks, memory_order_seq_cst);
}

static bool has_looked(const hd_group *group, unsigned since)
{
    return hd_group_failed(group) || count_looks(&group->looked) - since >= 2 ||
           (!has_unread(group) &&
            count_looks(&group->looks) == count_looks(&group->looked));
}

// The second look that ends from now on has begun after now. Sockets first:
// what none of them has is the watcher's, who then is in the middle of a look,
// or is through with it. Whoever was stopped, with the watcher, looks on for a
// while.
bool hd_group_catch_up(const hd_group *group, int64_t deadline)
{
    unsigned before = count_looks(&group->looked);
    int naps = hd_clock() < deadline ? 0 : NAPS;

    while (!has_looked(group, before)) {
        if (naps++ >= NAPS && hd_clock() >= deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return true;
}

void hd_watch_wake(hd_group *group)
{
    int before = errno;
    uint64_t one = 1;
    ssize_t wrote = write(group->wake, &one, sizeof one);

    (void)wrote; // it takes more of them than anybody could write
    errno = before;
}

void hd_watch_stop(hd_group *group)
{
    if (group->watching) {
        atomic_store_explicit(&group->closing, true, memory_order_seq_cst);
        hd_watch_wake(group);
        pthread_join(group->watcher, NULL);
        group->watching = false;
    }
    if (group->wake >= 0)
        close(group->wake);
}
