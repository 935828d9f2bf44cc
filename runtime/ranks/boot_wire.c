// Frames on a stream: what recv yields is any part of one, so a wire remembers
// how far the frame in progress has come, and nobody waits for its rest.
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/ranks/bell.h"
#include "runtime/ranks/boot.h"

#define WIRE_MAGIC 0x6f6f6268u // "hboo"
#define WIRE_VERSION 1u

bool hd_wire_wait(int fd, short events, int64_t deadline)
{
    struct pollfd ask = {.fd = fd, .events = events};

    for (;;) {
        int64_t left = deadline - hd_clock();

        if (left <= 0)
            return false;
        left = left / 1000000 + 1;
        if (poll(&ask, 1, left > 1000 ? 1000 : (int)left) > 0)
            return true;
    }
}

static uint64_t checksum_of(const hd_wire_head *head, const void *payload)
{
    uint64_t hash = XXH3_64bits(head, offsetof(hd_wire_head, checksum));

    return XXH3_64bits_withSeed(payload, (size_t)head->bytes, hash);
}

static hd_status send_bytes(int fd, const void *bytes, size_t n,
                            int64_t deadline)
{
    const char *at = bytes;

    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);

        if (sent >= 0) {
            at += sent;
            n -= (size_t)sent;
        } else if (errno == EAGAIN) {
            if (!hd_wire_wait(fd, POLLOUT, deadline))
                return HD_TIMEOUT;
        } else if (errno != EINTR) {
            return HD_PEER;
        }
    }
    return HD_OK;
}

hd_status hd_wire_send(int fd, hd_wire_head head, const void *payload,
                       int64_t deadline)
{
    head.magic = WIRE_MAGIC;
    head.version = WIRE_VERSION;
    head.checksum = checksum_of(&head, payload);
    HD_TRY(send_bytes(fd, &head, sizeof(head), deadline));
    return send_bytes(fd, payload, (size_t)head.bytes, deadline);
}

// Checked before any of the payload is taken, so that a length from outside
// never decides how much is written.
static hd_status check_head(const hd_wire *wire, size_t bytes)
{
    const hd_wire_head *head = &wire->head;

    if (head->magic != WIRE_MAGIC || head->version != WIRE_VERSION)
        return HD_INVALID;
    if (head->kind == HD_WIRE_DATA)
        return head->bytes == bytes ? HD_OK : HD_ARGUMENT;
    return head->bytes <= sizeof(wire->words) ? HD_OK : HD_INVALID;
}

static hd_status receive(int fd, char *to, size_t n, size_t *got)
{
    ssize_t came;

    do
        came = recv(fd, to, n, MSG_DONTWAIT);
    while (came < 0 && errno == EINTR);
    if (came < 0)
        return errno == EAGAIN ? HD_TIMEOUT : HD_PEER;
    if (came == 0)
        return HD_PEER;
    *got += (size_t)came;
    return HD_OK;
}

hd_status hd_wire_take(hd_wire *wire, void *data, size_t bytes)
{
    const size_t start = sizeof(wire->head);
    char *payload;
    size_t whole;

    while (wire->got < start)
        HD_TRY(receive(wire->fd, (char *)&wire->head + wire->got,
                       start - wire->got, &wire->got));
    HD_TRY(check_head(wire, bytes));
    payload = wire->head.kind == HD_WIRE_DATA ? data : (char *)&wire->words;
    whole = start + (size_t)wire->head.bytes;
    while (wire->got < whole)
        HD_TRY(receive(wire->fd, payload + (wire->got - start),
                       whole - wire->got, &wire->got));
    wire->got = 0;
    if (wire->head.checksum != checksum_of(&wire->head, payload))
        return HD_INVALID;
    return HD_OK;
}

void hd_wire_close(hd_wire *wire)
{
    if (wire->fd >= 0)
        close(wire->fd);
    wire->fd = -1;
    wire->got = 0;
}
