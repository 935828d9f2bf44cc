#include "runtime/ranks/callers.h"

#include <errno.h>
#include <string.h>

#include "runtime/ranks/boot.h"

void hd_callers_init(hd_callers *callers, int rank)
{
    memset(callers, 0, sizeof *callers);
    callers->rank = rank;
    callers->listener = -1;
    for (int i = 0; i < HD_CALLERS; i++)
        callers->wire[i].fd = -1;
}

void hd_callers_close(hd_callers *callers)
{
    hd_wire listener = {.fd = callers->listener};

    hd_wire_close(&listener);
    callers->listener = -1;
    for (int i = 0; i < HD_CALLERS; i++)
        hd_wire_close(&callers->wire[i]);
}

int hd_callers_ask(const hd_callers *callers, struct pollfd *ask)
{
    int n = 0;

    if (callers->listener < 0)
        return 0;
    ask[n++] = (struct pollfd){.fd = callers->listener, .events = POLLIN};
    for (int i = 0; i < HD_CALLERS; i++) {
        if (callers->wire[i].fd >= 0)
            ask[n++] =
                (struct pollfd){.fd = callers->wire[i].fd, .events = POLLIN};
    }
    return n;
}

static bool take_hello(hd_callers *callers, hd_wire *out)
{
    for (int i = 0; i < HD_CALLERS; i++) {
        hd_wire *wire = &callers->wire[i];
        hd_status status = HD_ERROR_TIMEOUT;

        if (wire->fd >= 0)
            status = hd_wire_take(wire, NULL, 0, 0);
        if (status == HD_OK && hd_hello_fits(&wire->frame, &wire->payload.hello,
                                             callers->secret, callers->rank)) {
            *out = *wire;
            wire->fd = -1;
            return true;
        }
        if (status != HD_ERROR_TIMEOUT)
            hd_wire_close(wire);
    }
    return false;
}

// Sends one away, whose place is free then: a rank calls again. NULL if there
// is none.
static hd_wire *send_away(hd_callers *callers)
{
    for (int i = 0; i < HD_CALLERS; i++) {
        hd_wire *wire = &callers->wire[callers->next++ % HD_CALLERS];

        if (wire->fd >= 0) {
            hd_wire_close(wire);
            return wire;
        }
    }
    return NULL;
}

static hd_wire *find_place(hd_callers *callers)
{
    for (int i = 0; i < HD_CALLERS; i++) {
        if (callers->wire[i].fd < 0)
            return &callers->wire[i];
    }
    return send_away(callers);
}

// HD_ERROR_TIMEOUT if nobody calls. To ask that of accept itself takes a
// descriptor to spare.
static hd_status accept_one(hd_callers *callers)
{
    struct pollfd ask = {.fd = callers->listener, .events = POLLIN};
    int fd;

    if (poll(&ask, 1, 0) <= 0) // nor does one that is not open have callers
        return HD_ERROR_TIMEOUT;
    fd = hd_address_accept(callers->listener);
    if (fd >= 0)
        *find_place(callers) = (hd_wire){.fd = fd};
    else if (errno != EMFILE && errno != ENFILE)
        return errno == EPERM ? HD_OK : HD_ERROR_TIMEOUT;
    else if (send_away(callers) == NULL)
        return HD_ERROR_SYSTEM;
    return HD_OK;
}

// Who is here and has said hello is taken before another one may send it away.
hd_status hd_callers_accept(hd_callers *callers, hd_wire *out)
{
    hd_status status = HD_OK;

    out->fd = -1;
    for (int i = 0; i <= HD_CALLERS && status == HD_OK; i++) {
        if (take_hello(callers, out))
            return HD_OK;
        status = accept_one(callers);
    }
    return status == HD_ERROR_SYSTEM ? HD_ERROR_SYSTEM : HD_OK;
}
