// How ranks that a launcher has started find each other. Rank 0 listens where
// all of them look, the others call until they are accepted, and what is
// gathered goes to rank 0 and back: a star, which serves for the few hundred
// bytes that a group needs before it has lines of its own.
//
//   rank r       hello ->          -> accepted   once r is known
//                                  -> complete   once all are
//                data ->           -> data       each allgather
//
// Rank 0 sees who is missing and who is gone, and tells the others before it
// gives up; they wait for that word a little beyond their own deadline.
#include <heddle/launch.h>

#include "runtime/ranks/boot.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/diag.h"
#include "base/sized.h"
#include "runtime/ranks/callers.h"
#include "runtime/ranks/doorbell.h"
#include "runtime/ranks/list.h"

#define VERDICT_SECONDS 1.0

struct hd_boot {
    hd_place place;
    double timeout;
    hd_diag *diag; // borrowed, may be NULL
    hd_oob oob;
    uint64_t serial;          // allgathers so far
    hd_wire *wire;            // owned: rank 0's by rank; else one, to rank 0
    hd_callers callers;       // rank 0's
    struct pollfd *ask;       // owned: the ranks and the callers
    hd_status failed;         // HD_OK as long as all goes well
    char why[HD_FRAME_WORDS]; // what the others are told then
};

// Notes what went wrong, for whoever asks here and for the other ranks.
static hd_status fail(hd_boot *boot, hd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static hd_status fail(hd_boot *boot, hd_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(boot->why, sizeof boot->why, format, args);
    va_end(args);
    boot->failed = status;
    return hd_fail(boot->diag, status, "%s", boot->why);
}

static hd_status send_to(const hd_boot *boot, int fd, hd_frame_kind kind,
                         const void *payload, size_t bytes, int64_t deadline)
{
    hd_frame frame = {.kind = (uint32_t)kind,
                      .rank = (uint32_t)boot->place.rank,
                      .serial = boot->serial,
                      .bytes = bytes};

    return hd_wire_put(fd, frame, payload, deadline);
}

static void send_failed(const hd_boot *boot, int fd, hd_status status,
                        const char *text)
{
    hd_frame frame = {.kind = HD_FRAME_FAILED,
                      .rank = (uint32_t)boot->place.rank,
                      .status = (uint32_t)status,
                      .bytes = strlen(text)};
    // Whoever cannot be told will see us hang up.
    hd_ignore(hd_wire_put(fd, frame, text, hd_clock_after(0.1)));
}

static void tell_everyone(const hd_boot *boot)
{
    int nwires = boot->place.rank == 0 ? boot->place.nranks : 1;

    for (int i = 0; i < nwires; i++) {
        if (boot->wire[i].fd >= 0)
            send_failed(boot, boot->wire[i].fd, boot->failed, boot->why);
    }
}

// The words of a rank that gave up become ours. A status from outside that is
// none of ours stands for what it is about.
static hd_status take_failure(hd_boot *boot, const hd_wire *wire)
{
    uint32_t status = wire->frame.status;

    if (status == HD_OK || status > HD_ERROR_TIMEOUT)
        status = HD_ERROR_PEER;
    return fail(boot, (hd_status)status, "%.*s", (int)wire->frame.bytes,
                wire->payload.words);
}

// What a frame that should have come, and did not come whole, means.
static hd_status report_take(hd_boot *boot, int peer, hd_status status)
{
    if (status == HD_ERROR_ARGUMENT)
        return fail(boot, HD_ERROR_ARGUMENT,
                    "rank %d passes %llu bytes to allgather %llu, and rank %d "
                    "another number",
                    peer, (unsigned long long)boot->wire[peer].frame.bytes,
                    (unsigned long long)boot->serial, boot->place.rank);
    if (status == HD_ERROR_INVALID)
        return fail(boot, HD_ERROR_PEER, "rank %d sends what heddle does not",
                    peer);
    return fail(boot, HD_ERROR_PEER,
                "rank %d died before the ranks were connected", peer);
}

// The next frame of a rank, which is to be of this kind, or says that the rank
// gives up.
static hd_status take(hd_boot *boot, int peer, hd_frame_kind kind, void *data,
                      size_t bytes)
{
    hd_wire *wire = &boot->wire[peer];

    HD_TRY(hd_wire_take(wire, data, bytes, bytes));
    if (wire->frame.kind == HD_FRAME_FAILED)
        return take_failure(boot, wire);
    return wire->frame.kind == (uint32_t)kind &&
                   wire->frame.serial == boot->serial
               ? HD_OK
               : HD_ERROR_INVALID;
}

static hd_status take_if_there(hd_boot *boot, int peer, hd_frame_kind kind,
                               void *data, size_t bytes, bool *came)
{
    hd_status status = take(boot, peer, kind, data, bytes);

    *came = status == HD_OK;
    if (boot->failed != HD_OK)
        return status;
    return status == HD_OK || status == HD_ERROR_TIMEOUT
               ? HD_OK
               : report_take(boot, peer, status);
}

// ----------------------------------------------------- rank 0 connects

// False, with a message, of a rank of this job that does not fit in.
static bool fits(const hd_boot *boot, const hd_wire *caller,
                 char why[HD_FRAME_WORDS])
{
    uint32_t rank = caller->frame.rank, size = caller->payload.hello.size;

    if (size != (uint32_t)boot->place.nranks)
        snprintf(why, HD_FRAME_WORDS,
                 "rank %u was started as one of %u, and rank 0 as one of %d",
                 rank, size, boot->place.nranks);
    else if (rank == 0 || rank >= size)
        snprintf(why, HD_FRAME_WORDS, "a process calls rank 0 as rank %u of %u",
                 rank, size);
    else if (boot->wire[rank].fd >= 0)
        snprintf(why, HD_FRAME_WORDS, "there is a rank %u already", rank);
    else
        return true;
    return false;
}

// Ranks that do not fit in are told why, and are not the end of the others.
static void let_in(hd_boot *boot, hd_wire *caller)
{
    char why[HD_FRAME_WORDS];

    if (!fits(boot, caller, why))
        send_failed(boot, caller->fd, HD_ERROR_ARGUMENT, why);
    else if (hd_wire_answer(caller->fd, 0, hd_clock_after(0.1)) == HD_OK) {
        boot->wire[caller->frame.rank] = (hd_wire){.fd = caller->fd};
        return;
    }
    hd_wire_close(caller);
}

// Rank 0 has a descriptor for every rank, and many limits are 1024.
static hd_status report_full(hd_boot *boot)
{
    struct rlimit limit = {0};
    int error = errno;

    getrlimit(RLIMIT_NOFILE, &limit);
    return fail(
        boot, HD_ERROR_SYSTEM,
        "rank 0 of %d cannot accept another rank: %s (ulimit -n is %llu)",
        boot->place.nranks, strerror(error),
        (unsigned long long)limit.rlim_cur);
}

static int count_missing(const hd_boot *boot)
{
    int missing = 0;

    for (int i = 1; i < boot->place.nranks; i++)
        missing += boot->wire[i].fd < 0;
    return missing;
}

// The ranks that are not `here`, or with NULL not connected.
static hd_rank_list list_missing(const hd_boot *boot, const bool *here)
{
    hd_rank_list missing = {.n = 0};

    for (int i = 1; i < boot->place.nranks; i++) {
        if (here != NULL ? !here[i] : boot->wire[i].fd < 0)
            hd_rank_list_add(&missing, i);
    }
    return missing;
}

// A rank that is in says nothing before all are, unless it gives up or dies.
static hd_status watch_rank(hd_boot *boot, int peer)
{
    bool came = false;

    HD_TRY(take_if_there(boot, peer, HD_FRAME_HELLO, NULL, 0, &came));
    return came ? report_take(boot, peer, HD_ERROR_INVALID) : HD_OK;
}

// Those that are not open are left out, since poll refuses more than the
// process may have open.
static hd_status serve_callers(hd_boot *boot, int64_t deadline)
{
    struct pollfd *ask = boot->ask;
    int size = boot->place.nranks;
    hd_wire caller = {.fd = -1};
    int n = 0;

    for (int i = 0; i < size; i++) {
        if (boot->wire[i].fd >= 0)
            ask[n++] =
                (struct pollfd){.fd = boot->wire[i].fd, .events = POLLIN};
    }
    n += hd_callers_ask(&boot->callers, ask + n);
    hd_poll(ask, (nfds_t)n, deadline);
    n = 0;
    for (int i = 0; i < size; i++) {
        if (boot->wire[i].fd >= 0 && ask[n++].revents != 0)
            HD_TRY(watch_rank(boot, i));
    }
    if (hd_callers_accept(&boot->callers, &caller) != HD_OK)
        return report_full(boot);
    if (caller.fd >= 0)
        let_in(boot, &caller);
    return HD_OK;
}

static hd_status gather_ranks(hd_boot *boot)
{
    int64_t deadline = hd_clock_after(boot->timeout);

    HD_TRY(hd_address_listen(&boot->place, deadline, boot->diag,
                             &boot->callers.listener));
    while (count_missing(boot) > 0) {
        if (hd_clock() >= deadline) {
            hd_rank_list missing = list_missing(boot, NULL);

            return fail(boot, HD_ERROR_TIMEOUT,
                        "rank%s %s of %d did not come to rank 0 at %s within "
                        "%g s",
                        missing.n > 1 ? "s" : "", missing.text,
                        boot->place.nranks, hd_address_text(&boot->place),
                        boot->timeout);
        }
        HD_TRY(serve_callers(boot, deadline));
    }
    for (int i = 1; i < boot->place.nranks; i++) {
        hd_status status = send_to(boot, boot->wire[i].fd, HD_FRAME_COMPLETE,
                                   NULL, 0, deadline);

        if (status != HD_OK)
            return report_take(boot, i, HD_ERROR_PEER);
    }
    return HD_OK;
}

// ------------------------------------------------ another rank connects

static hd_status receive(hd_boot *boot, hd_frame_kind kind, void *data,
                         size_t bytes, int64_t deadline)
{
    hd_status status = take(boot, 0, kind, data, bytes);

    while (status == HD_ERROR_TIMEOUT && boot->failed == HD_OK &&
           hd_wait_for(boot->wire[0].fd, POLLIN, deadline))
        status = take(boot, 0, kind, data, bytes);
    return status;
}

// Once. HD_ERROR_INVALID if whoever listens there is not our rank 0,
// HD_ERROR_TIMEOUT if it does not answer, HD_ERROR_PEER if nobody can be
// called.
static hd_status call_rank_0(hd_boot *boot, int64_t deadline,
                             char why[HD_WHY_BYTES])
{
    hd_hello hello = {.secret = boot->place.job,
                      .size = (uint32_t)boot->place.nranks};
    hd_status status;
    int fd = hd_address_call(&boot->place, deadline, why);

    if (fd < 0)
        return HD_ERROR_PEER;
    boot->wire[0] = (hd_wire){.fd = fd};
    status = hd_wire_call(fd, boot->place.rank, hello, deadline);
    if (status == HD_OK)
        status = receive(boot, HD_FRAME_ACCEPTED, NULL, 0, deadline);
    if (status == HD_OK || boot->failed != HD_OK)
        return status;
    if (status != HD_ERROR_TIMEOUT)
        status = HD_ERROR_INVALID;
    snprintf(why, HD_WHY_BYTES, "%s",
             status == HD_ERROR_TIMEOUT
                 ? "whoever listens there says nothing"
                 : "another job, or another program, listens "
                   "there");
    hd_wire_close(&boot->wire[0]);
    return status;
}

static hd_status join_rank_0(hd_boot *boot)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    int64_t deadline = hd_clock_after(boot->timeout);
    char why[HD_WHY_BYTES] = "";
    char now[HD_WHY_BYTES] = "";
    hd_status status;

    while ((status = call_rank_0(boot, deadline, now)) != HD_OK) {
        if (boot->failed != HD_OK)
            return status;
        // A call that the deadline cut short tells less than one before it.
        if (*why == '\0' || hd_clock() < deadline)
            snprintf(why, sizeof why, "%s", now);
        nanosleep(&pause, NULL);
        // A call that has no time left would only say so.
        if (hd_clock() >= deadline)
            return fail(boot, HD_ERROR_TIMEOUT,
                        "rank %d found no rank 0 at %s within %g s: %s",
                        boot->place.rank, hd_address_text(&boot->place),
                        boot->timeout, why);
    }
    status = receive(boot, HD_FRAME_COMPLETE, NULL, 0,
                     hd_clock_after(boot->timeout + VERDICT_SECONDS));
    if (status == HD_OK || boot->failed != HD_OK)
        return status;
    if (status == HD_ERROR_TIMEOUT)
        return fail(boot, HD_ERROR_TIMEOUT,
                    "rank %d received no more from rank 0 within %g s",
                    boot->place.rank, boot->timeout);
    return report_take(boot, 0, status);
}

// ------------------------------------------------------------ gathering

static hd_status collect(hd_boot *boot, char *all, size_t bytes, bool *here,
                         int64_t deadline)
{
    int size = boot->place.nranks;

    for (int left = size - 1; left > 0;) {
        for (int i = 0; i < size; i++)
            boot->ask[i] = (struct pollfd){
                .fd = here[i] ? -1 : boot->wire[i].fd, .events = POLLIN};
        hd_poll(boot->ask, (nfds_t)size, deadline);
        for (int i = 1; i < size; i++) {
            if (boot->ask[i].revents == 0)
                continue;
            HD_TRY(take_if_there(boot, i, HD_FRAME_DATA,
                                 bytes > 0 ? all + (size_t)i * bytes : NULL,
                                 bytes, &here[i]));
            left -= here[i];
        }
        if (left > 0 && hd_clock() >= deadline) {
            hd_rank_list missing = list_missing(boot, here);

            return fail(boot, HD_ERROR_TIMEOUT,
                        "rank 0 waits for rank%s %s in allgather %llu, for "
                        "%g s now",
                        missing.n > 1 ? "s" : "", missing.text,
                        (unsigned long long)boot->serial, boot->timeout);
        }
    }
    return HD_OK;
}

static hd_status gather_at_0(hd_boot *boot, const void *mine, size_t bytes,
                             char *all)
{
    int64_t deadline = hd_clock_after(boot->timeout);
    size_t size = (size_t)boot->place.nranks;
    bool *here = calloc(size, sizeof *here);
    hd_status status;

    if (here == NULL)
        return fail(boot, HD_ERROR_NO_MEMORY,
                    "rank 0 has no memory for %zu ranks", size);
    if (bytes > 0)
        memmove(all, mine, bytes);
    here[0] = true;
    status = collect(boot, all, bytes, here, deadline);
    free(here);
    HD_TRY(status);
    for (int i = 1; i < boot->place.nranks; i++) {
        status = send_to(boot, boot->wire[i].fd, HD_FRAME_DATA, all,
                         size * bytes, deadline);
        if (status == HD_ERROR_TIMEOUT)
            return fail(boot, HD_ERROR_TIMEOUT,
                        "rank %d takes nothing from rank 0", i);
        if (status != HD_OK)
            return report_take(boot, i, HD_ERROR_PEER);
    }
    return HD_OK;
}

static hd_status gather_through_0(hd_boot *boot, const void *mine, size_t bytes,
                                  char *all)
{
    int64_t deadline = hd_clock_after(boot->timeout + VERDICT_SECONDS);
    hd_status status =
        send_to(boot, boot->wire[0].fd, HD_FRAME_DATA, mine, bytes, deadline);

    // What rank 0 said before it hung up is still to be heard.
    if (status == HD_OK || status == HD_ERROR_PEER)
        status = receive(boot, HD_FRAME_DATA, all,
                         bytes * (size_t)boot->place.nranks, deadline);
    if (status == HD_OK || boot->failed != HD_OK)
        return status;
    if (status == HD_ERROR_TIMEOUT)
        return fail(boot, HD_ERROR_TIMEOUT,
                    "rank %d waits for rank 0 in allgather %llu, for %g s now",
                    boot->place.rank, (unsigned long long)boot->serial,
                    boot->timeout);
    return report_take(boot, 0, status);
}

static hd_status gather(void *context, const void *mine, size_t bytes,
                        void *all)
{
    hd_boot *boot = context;
    hd_status status;

    if (boot->failed != HD_OK)
        return hd_fail(boot->diag, boot->failed, "%s", boot->why);
    boot->serial++;
    status = boot->place.rank == 0 ? gather_at_0(boot, mine, bytes, all)
                                   : gather_through_0(boot, mine, bytes, all);
    if (status != HD_OK)
        tell_everyone(boot);
    return status;
}

void hd_boot_explain(hd_boot *boot, hd_status status, const char *why)
{
    if (boot->failed != HD_OK)
        return; // and has been told
    if (boot->place.rank > 0) {
        hd_ignore(receive(boot, HD_FRAME_FAILED, NULL, 0, hd_clock_after(0.2)));
        return;
    }
    boot->failed = status;
    snprintf(boot->why, sizeof boot->why, "%s", why);
    tell_everyone(boot);
}

// ---------------------------------------------------- create, destroy

static hd_status check_place(const hd_place *place, double timeout,
                             hd_diag *diag)
{
    if (place->nranks < 1 || place->nranks > HD_MAX_RANKS || place->rank < 0 ||
        place->rank >= place->nranks || !(timeout > 0))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "rank %d of %d, and a timeout of %g s", place->rank,
                       place->nranks, timeout);
    if (memchr(place->address, '\0', sizeof place->address) == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "the address of rank 0 has no NUL in its %zu bytes",
                       sizeof place->address);
    if (place->nranks > 1 && place->address[0] == '\0' &&
        place->local_size != place->nranks)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "%s has %d ranks, and does not say that they are on one "
                       "host: set HEDDLE_ADDR to host:port of rank 0, the port "
                       "being any free one, or MASTER_ADDR and MASTER_PORT",
                       place->launcher != NULL ? place->launcher : "this place",
                       place->nranks);
    return HD_OK;
}

static hd_boot *new_boot(const hd_place *place, double timeout, hd_diag *diag)
{
    size_t nwires = place->rank == 0 ? (size_t)place->nranks : 1;
    hd_boot *boot = calloc(1, sizeof *boot);

    if (boot == NULL)
        return NULL;
    boot->place = *place;
    boot->timeout = timeout;
    boot->diag = diag;
    boot->oob =
        (hd_oob){sizeof(hd_oob), boot, place->rank, place->nranks, gather};
    hd_callers_init(&boot->callers, 0);
    boot->callers.secret = place->job;
    boot->wire = calloc(nwires, sizeof *boot->wire);
    boot->ask = calloc(1 + HD_CALLERS + nwires, sizeof *boot->ask);
    if (boot->wire == NULL || boot->ask == NULL) {
        free(boot->wire);
        free(boot->ask);
        free(boot);
        return NULL;
    }
    for (size_t i = 0; i < nwires; i++)
        boot->wire[i].fd = -1;
    return boot;
}

const hd_oob *hd_boot_oob(const hd_boot *boot)
{
    assert(boot != NULL);
    return &boot->oob;
}

void hd_boot_destroy(hd_boot *boot)
{
    if (boot == NULL)
        return;
    hd_callers_close(&boot->callers);
    for (int i = 0; i < (boot->place.rank == 0 ? boot->place.nranks : 1); i++)
        hd_wire_close(&boot->wire[i]);
    free(boot->wire);
    free(boot->ask);
    free(boot);
}

hd_status hd_boot_connect(const hd_place *place, double timeout, hd_diag *diag,
                          hd_boot **out)
{
    hd_place with = HD_EMPTY(hd_place);
    hd_status status = HD_OK;
    hd_boot *boot;

    HD_REQUIRE(diag, place);
    HD_REQUIRE(diag, out);
    HD_TRY(hd_sized_read("hd_boot_connect", place, sizeof with, diag, &with));
    HD_TRY(check_place(&with, timeout, diag));
    boot = new_boot(&with, timeout, diag);
    if (boot == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                       with.nranks);
    if (with.nranks > 1)
        status = with.rank == 0 ? gather_ranks(boot) : join_rank_0(boot);
    hd_callers_close(&boot->callers); // nobody calls any more
    if (status != HD_OK) {
        if (boot->failed != HD_OK)
            tell_everyone(boot);
        hd_boot_destroy(boot);
        return status;
    }
    *out = boot;
    return HD_OK;
}
