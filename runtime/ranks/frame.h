// One message between two ranks: a packet of a Unix socket, or within a TCP
// connection if they are on several hosts, that says who sent it and for what,
// with a checksum, the kernel's word for the sender's credentials, and at most
// one file descriptor. Whatever does not fit together is refused whole, so that
// a stray or broken message is never acted upon.
#ifndef HD_RUNTIME_RANKS_FRAME_H
#define HD_RUNTIME_RANKS_FRAME_H

#include <sys/types.h>

#include "base/status.h"

HD_BEGIN_DECLS

#define HD_FRAME_ROOM ((size_t)32 * 1024) // bytes of payload in one frame

typedef enum hd_frame_kind {
    HD_FRAME_HELLO = 1, // opens a connection, and answers it
    HD_FRAME_DATA,      // a part of a collective call
    HD_FRAME_FAILED,    // the sender gives up; the payload says why
    HD_FRAME_GOODBYE,   // the sender leaves in good order
} hd_frame_kind;

typedef struct hd_frame {
    uint32_t magic;    // filled in by hd_frame_send, as are pid and checksum
    uint32_t kind;     // hd_frame_kind
    uint32_t rank;     // the sender's
    uint32_t pid;      // likewise
    uint32_t call;     // which function's part this is
    uint32_t bytes;    // of the payload
    uint64_t serial;   // which collective call of the group, from 1
    uint64_t checksum; // of all of the above and the payload
} hd_frame;

// Sends a frame on a non-blocking socket, with `passed` as a descriptor unless
// it is negative. HD_TIMEOUT past `deadline` (hd_clock), HD_PEER if nobody
// reads any more, HD_SYSTEM with errno otherwise.
hd_status hd_frame_send(int fd, hd_frame frame, const void *payload, int passed,
                        int64_t deadline);

// Takes the next frame, without blocking, into `payload` of HD_FRAME_ROOM
// bytes; `passed` is a new descriptor or -1. Checks that `pid` of our own user
// sent it. HD_PEER if the other end is closed, HD_TIMEOUT if there is none,
// HD_INVALID if it is no frame of ours, HD_NO_MEMORY if this process may not
// have the descriptor that came with it, HD_SYSTEM with errno otherwise.
hd_status hd_frame_receive(int fd, pid_t pid, hd_frame *frame, void *payload,
                           int *passed);

// Between hosts frames travel on TCP: without credentials, without descriptors,
// and what recv yields is any part of one. How far the next one has come:
typedef struct hd_frame_part {
    size_t got;
    hd_frame frame;
    char payload[HD_FRAME_ROOM];
} hd_frame_part;

// As hd_frame_send. The connection is of no more use if the deadline cuts a
// frame short: the peer sees us hang up. One thread at a time.
hd_status hd_frame_put(int fd, hd_frame frame, const void *payload,
                       int64_t deadline);
// Takes what has come. HD_OK when a frame is whole; HD_TIMEOUT if more has to
// come; else as hd_frame_receive, and after HD_INVALID nothing more is to be
// taken.
hd_status hd_frame_take(int fd, pid_t pid, hd_frame_part *part);

HD_END_DECLS

#endif
