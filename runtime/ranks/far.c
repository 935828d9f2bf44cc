// A host has several addresses, and which of them another host can reach is not
// known beforehand: some belong to networks that are not connected, some to
// bridges that every host has under the same number. So a caller tries all of
// them at once, and takes the first at which the right rank answers.
//
//     rank r, lower     listens              <- heard, or hangs up
//     rank q, higher    hello ->  (to each address, "I am q, are you r?")
#include "runtime/ranks/far.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/ranks/bell.h"

void hd_far_init(hd_far *far, int rank, int size)
{
    // Not as one value: that would lie on the stack, which may be small.
    memset(far, 0, sizeof(*far));
    far->rank = rank;
    far->size = size;
    far->listener = -1;
    for (int i = 0; i < HD_FAR_CALLERS; i++)
        far->caller[i].fd = -1;
}

hd_status hd_far_listen(hd_far *far, hd_diag *diag, hd_far_card *out)
{
    uint16_t port = 0;

    far->listener = hd_address_listen_anywhere(&port);
    if (far->listener < 0)
        return hd_system_error(diag, "a port to listen on");
    out->port = port;
    out->naddresses = (uint32_t)hd_host_addresses(out->address);
    if (out->naddresses == 0)
        return hd_fail(diag, HD_SYSTEM, "this host has no network address");
    return HD_OK;
}

void hd_far_close(hd_far *far)
{
    if (far->listener >= 0)
        close(far->listener);
    far->listener = -1;
    for (int i = 0; i < HD_FAR_CALLERS; i++)
        hd_wire_close(&far->caller[i]);
}

// -------------------------------------------------------------- calling

// A call to one of a rank's addresses.
typedef struct hd_attempt {
    hd_wire wire;
    bool said; // connected, and hello is said
} hd_attempt;

static int start_call(const hd_host_address *address, uint32_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)port)};
    bool is6 = address->family == AF_INET6;
    int fd = socket(is6 ? AF_INET6 : AF_INET,
                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error;

    if (fd < 0)
        return -1;
    memcpy(&to.sin_addr, address->byte, sizeof(to.sin_addr));
    memcpy(&to6.sin6_addr, address->byte, sizeof(to6.sin6_addr));
    if (connect(fd, is6 ? (struct sockaddr *)&to6 : (struct sockaddr *)&to,
                is6 ? sizeof(to6) : sizeof(to)) == 0 ||
        errno == EINPROGRESS)
        return fd;
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

static hd_status say_hello(const hd_far *far, int fd, int peer,
                           int64_t deadline)
{
    hd_wire_words words;
    hd_wire_head head = {.kind = HD_WIRE_HELLO,
                         .rank = (uint32_t)far->rank,
                         .serial = (uint64_t)peer,
                         .bytes = sizeof(words)};

    memset(&words, 0, sizeof(words)); // the whole of it is sent
    words.hello.job = far->secret;
    words.hello.size = (uint32_t)far->size;
    return hd_wire_send(fd, head, &words, deadline);
}

// HD_OK once the peer has answered, HD_TIMEOUT while it has not; else the
// attempt is over.
static hd_status go_on(const hd_far *far, hd_attempt *attempt, int peer,
                       int64_t deadline, char why[HD_WHY_BYTES])
{
    socklen_t length = sizeof(int);
    hd_status status = HD_TIMEOUT;
    int error = 0;

    if (attempt->said) {
        status = hd_wire_take(&attempt->wire, NULL, 0);
        if (status == HD_OK && attempt->wire.head.kind != HD_WIRE_HEARD)
            status = HD_INVALID;
        if (status != HD_OK && status != HD_TIMEOUT)
            snprintf(why, HD_WHY_BYTES, "whoever listens there is not it");
        return status;
    }
    getsockopt(attempt->wire.fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0 && say_hello(far, attempt->wire.fd, peer, deadline) != HD_OK)
        error = ECONNRESET;
    attempt->said = true;
    if (error == 0)
        return HD_TIMEOUT;
    snprintf(why, HD_WHY_BYTES, "%s", strerror(error));
    return HD_PEER;
}

// Waits until some attempt may go on; the number of those that are open, or -1
// past the deadline.
static int await_any(const hd_attempt *attempt, int n, struct pollfd *ask,
                     int64_t deadline)
{
    int left = (int)((deadline - hd_clock()) / 1000000 + 1);
    int open = 0;

    for (int i = 0; i < n; i++) {
        ask[i] = (struct pollfd){.fd = attempt[i].wire.fd,
                                 .events = attempt[i].said ? POLLIN : POLLOUT};
        open += ask[i].fd >= 0;
    }
    if (open == 0)
        return 0;
    if (deadline <= hd_clock())
        return -1;
    if (poll(ask, (nfds_t)n, left > 1000 || left < 0 ? 1000 : left) < 0) {
        for (int i = 0; i < n; i++)
            ask[i].revents = 0;
    }
    return open;
}

static hd_status try_all(const hd_far *far, hd_attempt *attempt, int n,
                         int peer, int64_t deadline, char why[HD_WHY_BYTES],
                         int *out)
{
    struct pollfd ask[HD_HOST_ADDRESSES];
    int open;

    while ((open = await_any(attempt, n, ask, deadline)) > 0) {
        for (int i = 0; i < n; i++) {
            hd_wire *wire = &attempt[i].wire;
            hd_status status = HD_TIMEOUT;

            if (wire->fd >= 0 && ask[i].revents != 0)
                status = go_on(far, &attempt[i], peer, deadline, why);
            if (status == HD_OK) {
                *out = wire->fd;
                wire->fd = -1;
                return HD_OK;
            }
            if (status != HD_TIMEOUT)
                hd_wire_close(wire);
        }
    }
    if (open == 0)
        return HD_PEER;
    snprintf(why, HD_WHY_BYTES, "nobody answers");
    return HD_TIMEOUT;
}

hd_status hd_far_call(const hd_far *far, int peer, const hd_far_card *card,
                      int64_t deadline, char why[HD_WHY_BYTES], int *out)
{
    hd_attempt attempt[HD_HOST_ADDRESSES];
    int n = (int)card->naddresses;
    hd_status status;

    snprintf(why, HD_WHY_BYTES, "it has no address");
    for (int i = 0; i < n; i++) {
        attempt[i] = (hd_attempt){
            .wire = {.fd = start_call(&card->address[i], card->port)}};
        if (attempt[i].wire.fd < 0)
            snprintf(why, HD_WHY_BYTES, "%s", strerror(errno));
    }
    status = try_all(far, attempt, n, peer, deadline, why, out);
    for (int i = 0; i < n; i++)
        hd_wire_close(&attempt[i].wire);
    if (status == HD_OK)
        hd_address_hurry(*out);
    return status;
}

// ------------------------------------------------------------ answering

int hd_far_ask(const hd_far *far, struct pollfd *ask)
{
    int n = 0;

    if (far->listener < 0)
        return 0;
    ask[n++] = (struct pollfd){.fd = far->listener, .events = POLLIN};
    for (int i = 0; i < HD_FAR_CALLERS; i++) {
        if (far->caller[i].fd >= 0)
            ask[n++] =
                (struct pollfd){.fd = far->caller[i].fd, .events = POLLIN};
    }
    return n;
}

static bool accept_caller(hd_far *far)
{
    int fd = accept4(far->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    hd_wire *caller = NULL;

    if (fd < 0)
        return false;
    hd_address_hurry(fd);
    for (int i = 0; i < HD_FAR_CALLERS && caller == NULL; i++) {
        if (far->caller[i].fd < 0)
            caller = &far->caller[i];
    }
    if (caller == NULL) {
        caller = &far->caller[far->next_caller++ % HD_FAR_CALLERS];
        hd_wire_close(caller);
    }
    *caller = (hd_wire){.fd = fd};
    return true;
}

static bool fits(const hd_far *far, const hd_wire *caller)
{
    const hd_wire_head *head = &caller->head;

    return head->kind == HD_WIRE_HELLO &&
           head->bytes == sizeof(caller->words) &&
           caller->words.hello.job == far->secret &&
           caller->words.hello.size == (uint32_t)far->size &&
           head->serial == (uint64_t)far->rank &&
           head->rank < (uint32_t)far->size;
}

int hd_far_hear(hd_far *far, int *out)
{
    bool more = far->listener >= 0;

    for (int i = 0; i < HD_FAR_CALLERS && more; i++)
        more = accept_caller(far);
    for (int i = 0; i < HD_FAR_CALLERS; i++) {
        hd_wire *caller = &far->caller[i];
        hd_status status = HD_TIMEOUT;

        if (caller->fd >= 0)
            status = hd_wire_take(caller, NULL, 0);
        if (status == HD_OK && fits(far, caller)) {
            *out = caller->fd;
            caller->fd = -1;
            return (int)caller->head.rank;
        }
        if (status != HD_TIMEOUT)
            hd_wire_close(caller);
    }
    return -1;
}

hd_status hd_far_answer(const hd_far *far, int fd, int64_t deadline)
{
    hd_wire_head head = {.kind = HD_WIRE_HEARD, .rank = (uint32_t)far->rank};

    return hd_wire_send(fd, head, NULL, deadline);
}
