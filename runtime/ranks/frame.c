// Packets travel on SOCK_SEQPACKET, so that one recvmsg yields one frame whole,
// with its own credentials and descriptor, or nothing. In a stream a frame's
// head tells how much belongs to it.
#include "runtime/ranks/frame.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/ranks/doorbell.h"

#define FRAME_MAGIC 0x32646568u // "hed2": another layout has another one

// ------------------------------------------------------------ waiting

int hd_poll(struct pollfd *ask, nfds_t n, int64_t deadline)
{
    int64_t left = deadline - hd_clock();
    int ready = -1;

    if (left > 0)
        ready =
            poll(ask, n, left < 1000000000 ? (int)(left / 1000000) + 1 : 1000);
    for (nfds_t i = 0; i < n && ready < 0; i++)
        ask[i].revents = 0;
    return left <= 0 ? -1 : ready < 0 ? 0 : ready;
}

bool hd_wait(struct pollfd *ask, nfds_t n, int64_t deadline)
{
    int ready;

    do
        ready = hd_poll(ask, n, deadline);
    while (ready == 0);
    return ready > 0;
}

bool hd_wait_for(int fd, short events, int64_t deadline)
{
    struct pollfd ask = {.fd = fd, .events = events};

    return hd_wait(&ask, 1, deadline);
}

// ------------------------------------------------------------- frames

// Room for the sender's credentials and one descriptor.
typedef union ancillary {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
} ancillary;

static uint64_t checksum_of(const hd_frame *frame, const void *payload)
{
    uint64_t head = XXH3_64bits(frame, offsetof(hd_frame, checksum));

    return XXH3_64bits_withSeed(payload, (size_t)frame->bytes, head);
}

static void seal(hd_frame *frame, const void *payload)
{
    frame->magic = FRAME_MAGIC;
    frame->pid = (uint32_t)getpid();
    frame->checksum = checksum_of(frame, payload);
}

// What sendmsg has refused may be tried again: soon, since an end that another
// thread has shut down wakes nobody who polls it.
static hd_status await_room(int fd, int64_t deadline)
{
    struct pollfd ask = {.fd = fd, .events = POLLOUT};
    int64_t soon = hd_clock_after(0.02);

    if (errno == EPIPE || errno == ECONNRESET)
        return HD_ERROR_PEER;
    if (errno == EINTR)
        return HD_OK;
    if (errno != EAGAIN && errno != ENOBUFS)
        return HD_ERROR_SYSTEM;
    return hd_poll(&ask, 1, soon < deadline ? soon : deadline) < 0
               ? HD_ERROR_TIMEOUT
               : HD_OK;
}

hd_frame hd_hello_frame(int rank)
{
    return (hd_frame){.kind = HD_FRAME_HELLO,
                      .rank = (uint32_t)rank,
                      .bytes = sizeof(hd_hello)};
}

bool hd_hello_fits(const hd_frame *frame, const hd_hello *hello,
                   uint64_t secret, int rank)
{
    return frame->kind == HD_FRAME_HELLO && frame->bytes == sizeof *hello &&
           hello->secret == secret && hello->wanted == (uint32_t)rank;
}

// ------------------------------------------------------------ packets

static void append_ancillary(struct msghdr *message, int type, const void *data,
                             size_t bytes)
{
    struct cmsghdr *header = (struct cmsghdr *)((char *)message->msg_control +
                                                message->msg_controllen);

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = type;
    header->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(header), data, bytes);
    message->msg_controllen += CMSG_SPACE(bytes);
}

hd_status hd_frame_send(int fd, hd_frame frame, const void *payload, int passed,
                        int64_t deadline)
{
    struct ucred self = {.pid = getpid(), .uid = geteuid(), .gid = getegid()};
    ancillary ancillary = {0};
    struct iovec part[2] = {{&frame, sizeof frame},
                            {(void *)payload, frame.bytes}};
    struct msghdr message = {
        .msg_iov = part, .msg_iovlen = 2, .msg_control = ancillary.bytes};

    seal(&frame, payload);
    append_ancillary(&message, SCM_CREDENTIALS, &self, sizeof self);
    if (passed >= 0)
        append_ancillary(&message, SCM_RIGHTS, &passed, sizeof passed);
    while (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        HD_TRY(await_room(fd, deadline));
    return HD_OK;
}

static bool frame_is_sound(const hd_frame *frame, const void *payload,
                           size_t got, pid_t pid, const struct ucred *sender)
{
    return got >= sizeof *frame && frame->magic == FRAME_MAGIC &&
           frame->bytes == got - sizeof *frame && frame->pid == (uint32_t)pid &&
           sender->pid == pid && sender->uid == geteuid() &&
           frame->checksum == checksum_of(frame, payload);
}

static void read_ancillary(struct msghdr *message, struct ucred *sender,
                           int *passed)
{
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at != NULL;
         at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level != SOL_SOCKET)
            continue;
        if (at->cmsg_type == SCM_CREDENTIALS)
            memcpy(sender, CMSG_DATA(at), sizeof *sender);
        if (at->cmsg_type == SCM_RIGHTS)
            memcpy(passed, CMSG_DATA(at), sizeof *passed);
    }
}

// A peer that closes while we still had unsent words to it leaves ECONNRESET
// behind, in front of the frames that it sent: those are read all the same.
static ssize_t receive_packet(int fd, struct msghdr *message)
{
    size_t room = message->msg_controllen;
    ssize_t got;

    do {
        message->msg_controllen = room;
        got = recvmsg(fd, message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
    return got;
}

hd_status hd_frame_receive(int fd, pid_t pid, hd_frame *frame, void *payload,
                           int *passed)
{
    struct ucred sender = {.pid = 0, .uid = (uid_t)-1, .gid = (gid_t)-1};
    ancillary ancillary = {0};
    struct iovec part[2] = {{frame, sizeof *frame}, {payload, HD_FRAME_ROOM}};
    struct msghdr message = {.msg_iov = part,
                             .msg_iovlen = 2,
                             .msg_control = ancillary.bytes,
                             .msg_controllen = sizeof ancillary.bytes};
    ssize_t got = receive_packet(fd, &message);

    *passed = -1;
    if (got < 0)
        return errno == EAGAIN ? HD_ERROR_TIMEOUT : HD_ERROR_SYSTEM;
    if (got == 0)
        return HD_ERROR_PEER;
    read_ancillary(&message, &sender, passed);
    // The kernel drops a descriptor for which this process has no room.
    if (*passed < 0 && (message.msg_flags & MSG_CTRUNC) != 0 &&
        frame_is_sound(frame, payload, (size_t)got, pid, &sender))
        return HD_ERROR_NO_MEMORY;
    if (!frame_is_sound(frame, payload, (size_t)got, pid, &sender) ||
        (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        if (*passed >= 0)
            close(*passed);
        *passed = -1;
        return HD_ERROR_INVALID;
    }
    return HD_OK;
}

// ------------------------------------------------------------ streams

// What is left of a frame of which `sent` bytes have gone.
static ssize_t send_rest(int fd, hd_frame *frame, const void *payload,
                         size_t sent)
{
    struct iovec part[2] = {{frame, sizeof *frame},
                            {(void *)payload, frame->bytes}};
    struct msghdr message = {.msg_iov = part, .msg_iovlen = 2};

    for (int i = 0; i < 2; i++) {
        size_t gone = sent < part[i].iov_len ? sent : part[i].iov_len;

        part[i].iov_base =
            gone < part[i].iov_len ? (char *)part[i].iov_base + gone : NULL;
        part[i].iov_len -= gone;
        sent -= gone;
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

hd_status hd_wire_put(int fd, hd_frame frame, const void *payload,
                      int64_t deadline)
{
    size_t sent = 0;

    seal(&frame, payload);
    while (sent < sizeof frame + frame.bytes) {
        ssize_t went = send_rest(fd, &frame, payload, sent);
        hd_status status = HD_OK;

        if (went >= 0)
            sent += (size_t)went;
        else
            status = await_room(fd, deadline);
        if (status == HD_ERROR_TIMEOUT && sent > 0)
            shutdown(fd, SHUT_WR);
        // Whatever a network says of its own, the peer is not to be reached.
        if (status != HD_OK)
            return status == HD_ERROR_TIMEOUT ? HD_ERROR_TIMEOUT
                                              : HD_ERROR_PEER;
    }
    return HD_OK;
}

static hd_status take_bytes(hd_wire *wire, char *to, size_t whole)
{
    while (wire->got < whole) {
        ssize_t came = recv(wire->fd, to, whole - wire->got, MSG_DONTWAIT);

        if (came < 0 && errno == EINTR)
            continue;
        if (came < 0 && errno == EAGAIN)
            return HD_ERROR_TIMEOUT;
        if (came <= 0)
            return came == 0 || errno == ECONNRESET ? HD_ERROR_PEER
                                                    : HD_ERROR_SYSTEM;
        wire->got += (size_t)came;
        to += came;
    }
    return HD_OK;
}

// Checked before any of the payload is taken, so that a length from outside
// never decides how much is written.
static hd_status check_head(const hd_wire *wire, size_t least, size_t most)
{
    const hd_frame *frame = &wire->frame;

    if (frame->magic != FRAME_MAGIC ||
        (wire->pid != 0 && frame->pid != (uint32_t)wire->pid))
        return HD_ERROR_INVALID;
    if (frame->kind == HD_FRAME_DATA)
        return frame->bytes >= least && frame->bytes <= most
                   ? HD_OK
                   : HD_ERROR_ARGUMENT;
    return frame->bytes <= sizeof wire->payload ? HD_OK : HD_ERROR_INVALID;
}

hd_status hd_wire_take(hd_wire *wire, void *data, size_t least, size_t most)
{
    const size_t head = sizeof wire->frame;
    hd_frame *frame = &wire->frame;
    char *payload;

    if (wire->got < head)
        HD_TRY(take_bytes(wire, (char *)frame + wire->got, head));
    HD_TRY(check_head(wire, least, most));
    payload = frame->kind == HD_FRAME_DATA ? data : wire->payload.words;
    if (frame->bytes > 0)
        HD_TRY(take_bytes(wire, payload + (wire->got - head),
                          head + (size_t)frame->bytes));
    wire->got = 0;
    return frame->checksum == checksum_of(frame, payload) ? HD_OK
                                                          : HD_ERROR_INVALID;
}

void hd_wire_close(hd_wire *wire)
{
    if (wire->fd >= 0)
        close(wire->fd);
    wire->fd = -1;
    wire->got = 0;
}

hd_status hd_wire_call(int fd, int rank, hd_hello hello, int64_t deadline)
{
    return hd_wire_put(fd, hd_hello_frame(rank), &hello, deadline);
}

hd_status hd_wire_answer(int fd, int rank, int64_t deadline)
{
    hd_frame frame = {.kind = HD_FRAME_ACCEPTED, .rank = (uint32_t)rank};

    return hd_wire_put(fd, frame, NULL, deadline);
}
