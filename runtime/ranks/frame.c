// Within a host frames travel on SOCK_SEQPACKET, so that one recvmsg yields one
// frame whole, with its own credentials and descriptor, or nothing; between
// hosts on TCP, where a frame's head tells how much belongs to it.
#include "runtime/ranks/frame.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/ranks/bell.h"

#define FRAME_MAGIC 0x68656464u // "hedd"

// Room for the sender's credentials and one descriptor.
typedef union hd_ancillary {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
} hd_ancillary;

static uint64_t checksum_of(const hd_frame *frame, const void *payload)
{
    uint64_t header = XXH3_64bits(frame, offsetof(hd_frame, checksum));

    return XXH3_64bits_withSeed(payload, frame->bytes, header);
}

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

static hd_status wait_for_room(int fd, int64_t deadline)
{
    struct pollfd ask = {.fd = fd, .events = POLLOUT};
    int64_t left = deadline - hd_clock();

    if (left <= 0)
        return HD_TIMEOUT;
    left = left / 1000000 + 1;
    if (poll(&ask, 1, left > 1000 ? 1000 : (int)left) < 0 && errno != EINTR)
        return HD_SYSTEM;
    return HD_OK;
}

hd_status hd_frame_send(int fd, hd_frame frame, const void *payload, int passed,
                        int64_t deadline)
{
    struct ucred self = {.pid = getpid(), .uid = geteuid(), .gid = getegid()};
    hd_ancillary ancillary = {0};
    struct iovec part[2] = {{&frame, sizeof(frame)},
                            {(void *)payload, frame.bytes}};
    struct msghdr message = {
        .msg_iov = part, .msg_iovlen = 2, .msg_control = ancillary.bytes};

    frame.magic = FRAME_MAGIC;
    frame.pid = (uint32_t)self.pid;
    frame.checksum = checksum_of(&frame, payload);
    append_ancillary(&message, SCM_CREDENTIALS, &self, sizeof(self));
    if (passed >= 0)
        append_ancillary(&message, SCM_RIGHTS, &passed, sizeof(passed));
    while (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EPIPE || errno == ECONNRESET)
            return HD_PEER;
        if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
            return HD_SYSTEM;
        HD_TRY(wait_for_room(fd, deadline));
    }
    return HD_OK;
}

static bool frame_is_sound(const hd_frame *frame, const void *payload,
                           size_t got, pid_t pid, const struct ucred *sender)
{
    return got >= sizeof(*frame) && frame->magic == FRAME_MAGIC &&
           frame->bytes == got - sizeof(*frame) &&
           frame->pid == (uint32_t)pid && sender->pid == pid &&
           sender->uid == geteuid() &&
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
            memcpy(sender, CMSG_DATA(at), sizeof(*sender));
        if (at->cmsg_type == SCM_RIGHTS)
            memcpy(passed, CMSG_DATA(at), sizeof(*passed));
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
    hd_ancillary ancillary = {0};
    struct iovec part[2] = {{frame, sizeof(*frame)}, {payload, HD_FRAME_ROOM}};
    struct msghdr message = {.msg_iov = part,
                             .msg_iovlen = 2,
                             .msg_control = ancillary.bytes,
                             .msg_controllen = sizeof(ancillary.bytes)};
    ssize_t got = receive_packet(fd, &message);

    *passed = -1;
    if (got < 0)
        return errno == EAGAIN ? HD_TIMEOUT : HD_SYSTEM;
    if (got == 0)
        return HD_PEER;
    read_ancillary(&message, &sender, passed);
    // The kernel drops a descriptor for which this process has no room.
    if (*passed < 0 && (message.msg_flags & MSG_CTRUNC) != 0 &&
        frame_is_sound(frame, payload, (size_t)got, pid, &sender))
        return HD_NO_MEMORY;
    if (!frame_is_sound(frame, payload, (size_t)got, pid, &sender) ||
        (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        if (*passed >= 0)
            close(*passed);
        *passed = -1;
        return HD_INVALID;
    }
    return HD_OK;
}

// -------------------------------------------------------- between hosts

// What is left of a frame of which `sent` bytes have gone.
static ssize_t send_rest(int fd, hd_frame *frame, const void *payload,
                         size_t sent)
{
    struct iovec part[2] = {{frame, sizeof(*frame)},
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

hd_status hd_frame_put(int fd, hd_frame frame, const void *payload,
                       int64_t deadline)
{
    size_t sent = 0;

    frame.magic = FRAME_MAGIC;
    frame.pid = (uint32_t)getpid();
    frame.checksum = checksum_of(&frame, payload);
    while (sent < sizeof(frame) + frame.bytes) {
        ssize_t went = send_rest(fd, &frame, payload, sent);
        hd_status status = HD_OK;

        if (went >= 0)
            sent += (size_t)went;
        else if (errno == EAGAIN || errno == ENOBUFS)
            status = wait_for_room(fd, deadline);
        else if (errno != EINTR)
            return HD_PEER;
        if (status != HD_OK) {
            if (sent > 0)
                shutdown(fd, SHUT_WR);
            return status;
        }
    }
    return HD_OK;
}

static hd_status fill(int fd, char *to, size_t want, size_t *got)
{
    ssize_t came;

    do
        came = recv(fd, to, want, MSG_DONTWAIT);
    while (came < 0 && errno == EINTR);
    if (came < 0 && errno == EAGAIN)
        return HD_TIMEOUT;
    if (came <= 0)
        return came == 0 || errno == ECONNRESET ? HD_PEER : HD_SYSTEM;
    *got += (size_t)came;
    return HD_OK;
}

// A length from outside is checked before anything is written by it.
hd_status hd_frame_take(int fd, pid_t pid, hd_frame_part *part)
{
    const size_t head = sizeof(part->frame);
    const hd_frame *frame = &part->frame;
    size_t whole;

    while (part->got < head)
        HD_TRY(fill(fd, (char *)&part->frame + part->got, head - part->got,
                    &part->got));
    if (frame->magic != FRAME_MAGIC || frame->bytes > HD_FRAME_ROOM ||
        frame->pid != (uint32_t)pid)
        return HD_INVALID;
    whole = head + frame->bytes;
    while (part->got < whole)
        HD_TRY(fill(fd, part->payload + (part->got - head), whole - part->got,
                    &part->got));
    part->got = 0;
    return frame->checksum == checksum_of(frame, part->payload) ? HD_OK
                                                                : HD_INVALID;
}
