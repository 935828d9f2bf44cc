// A host has several addresses, and which of them another host can reach is not
// known beforehand: some belong to networks that are not connected, some to
// bridges that every host has under the same number. So a caller tries all of
// them at once, and takes the first at which the right rank answers.
//
//     rank r, lower     listens              <- accepted, or hangs up
//     rank q, higher    hello ->  (to each address, "I am q, are you r?")
#include "runtime/ranks/remote.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/ranks/doorbell.h"

hd_status hd_remote_listen(int *listener, hd_diag *diag,
                           hd_remote_endpoint *out)
{
    uint16_t port = 0;

    *listener = hd_address_listen_anywhere(&port);
    if (*listener < 0)
        return hd_system_error(diag, "a port to listen on");
    out->port = port;
    out->naddresses = (uint32_t)hd_host_addresses(out->address);
    if (out->naddresses == 0)
        return hd_fail(diag, HD_ERROR_SYSTEM,
                       "this host has no network address");
    return HD_OK;
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

    memcpy(&to.sin_addr, address->byte, sizeof to.sin_addr);
    memcpy(&to6.sin6_addr, address->byte, sizeof to6.sin6_addr);
    return address->family == AF_INET6
               ? hd_address_start_call((struct sockaddr *)&to6, sizeof to6)
               : hd_address_start_call((struct sockaddr *)&to, sizeof to);
}

// HD_OK once the peer has answered, HD_ERROR_TIMEOUT while it has not; else the
// attempt is over.
static hd_status go_on(hd_attempt *attempt, int rank, hd_hello hello,
                       int64_t deadline, char why[HD_WHY_BYTES])
{
    socklen_t length = sizeof(int);
    hd_status status = HD_ERROR_TIMEOUT;
    int error = 0;

    if (attempt->said) {
        status = hd_wire_take(&attempt->wire, NULL, 0, 0);
        if (status == HD_OK && attempt->wire.frame.kind != HD_FRAME_ACCEPTED)
            status = HD_ERROR_INVALID;
        if (status != HD_OK && status != HD_ERROR_TIMEOUT)
            snprintf(why, HD_WHY_BYTES, "whoever listens there is not it");
        return status;
    }
    getsockopt(attempt->wire.fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error == 0 &&
        hd_wire_call(attempt->wire.fd, rank, hello, deadline) != HD_OK)
        error = ECONNRESET;
    attempt->said = true;
    if (error == 0)
        return HD_ERROR_TIMEOUT;
    snprintf(why, HD_WHY_BYTES, "%s", strerror(error));
    return HD_ERROR_PEER;
}

// Waits until some attempt may go on; the number of those that are open, or -1
// past the deadline.
static int await_any(const hd_attempt *attempt, int n, struct pollfd *ask,
                     int64_t deadline)
{
    int open = 0;

    for (int i = 0; i < n; i++) {
        ask[i] = (struct pollfd){.fd = attempt[i].wire.fd,
                                 .events = attempt[i].said ? POLLIN : POLLOUT};
        open += ask[i].fd >= 0;
    }
    return open > 0 && hd_poll(ask, (nfds_t)n, deadline) < 0 ? -1 : open;
}

static hd_status try_all(hd_attempt *attempt, int n, int rank, hd_hello hello,
                         int64_t deadline, char why[HD_WHY_BYTES], int *out)
{
    struct pollfd ask[HD_HOST_ADDRESSES];
    int open;

    while ((open = await_any(attempt, n, ask, deadline)) > 0) {
        for (int i = 0; i < n; i++) {
            hd_wire *wire = &attempt[i].wire;
            hd_status status = HD_ERROR_TIMEOUT;

            if (wire->fd >= 0 && ask[i].revents != 0)
                status = go_on(&attempt[i], rank, hello, deadline, why);
            if (status == HD_OK) {
                *out = wire->fd;
                wire->fd = -1;
                return HD_OK;
            }
            if (status != HD_ERROR_TIMEOUT)
                hd_wire_close(wire);
        }
    }
    if (open == 0)
        return HD_ERROR_PEER;
    snprintf(why, HD_WHY_BYTES, "nobody answers");
    return HD_ERROR_TIMEOUT;
}

hd_status hd_remote_call(int rank, hd_hello hello,
                         const hd_remote_endpoint *endpoint, int64_t deadline,
                         char why[HD_WHY_BYTES], int *out)
{
    hd_attempt attempt[HD_HOST_ADDRESSES];
    int n = (int)endpoint->naddresses;
    hd_status status;

    snprintf(why, HD_WHY_BYTES, "it has no address");
    for (int i = 0; i < n; i++) {
        attempt[i] = (hd_attempt){
            .wire = {.fd = start_call(&endpoint->address[i], endpoint->port)}};
        if (attempt[i].wire.fd < 0)
            snprintf(why, HD_WHY_BYTES, "%s", strerror(errno));
    }
    status = try_all(attempt, n, rank, hello, deadline, why, out);
    for (int i = 0; i < n; i++)
        hd_wire_close(&attempt[i].wire);
    if (status == HD_OK)
        hd_address_hurry(*out);
    return status;
}
