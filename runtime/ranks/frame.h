// One message between two ranks: who sent it and for what, with a checksum.
// Whatever does not fit together is refused whole, so that a stray or broken
// message is never acted upon.
//
// Within a host a frame is a packet of a Unix socket, with the kernel's word
// for the sender's credentials and at most one file descriptor. Between hosts,
// and where ranks that a launcher has started find each other, frames follow
// one another in a stream, and what recv yields is any part of one.
#ifndef HD_RUNTIME_RANKS_FRAME_H
#define HD_RUNTIME_RANKS_FRAME_H

#include <poll.h>
#include <sys/types.h>

#include "base/status.h"

HD_BEGIN_DECLS

#define HD_FRAME_ROOM ((size_t)32 * 1024) // bytes of payload in a packet
#define HD_FRAME_WORDS 512                // likewise, of what is no data

typedef enum hd_frame_kind {
    HD_FRAME_HELLO = 1, // opens a connection
    HD_FRAME_DATA,      // a part of a collective call
    HD_FRAME_FAILED,    // the sender gives up; the payload says why
    HD_FRAME_GOODBYE,   // the sender leaves in good order
    HD_FRAME_ACCEPTED,  // answers a hello: you are in
    HD_FRAME_COMPLETE,  // from rank 0: everyone is
    HD_FRAME_ABORTED, // as FAILED, for a caller who wants no more of the group
} hd_frame_kind;

typedef struct hd_frame {
    uint32_t magic;    // filled in when it is sent, as are pid and checksum
    uint32_t kind;     // hd_frame_kind
    uint32_t rank;     // the sender's
    uint32_t pid;      // likewise
    uint32_t call;     // which function's part this is
    uint32_t status;   // hd_status of a rank that gives up
    uint64_t serial;   // which collective call, from 1
    uint64_t bytes;    // of the payload
    uint64_t checksum; // of all of the above and the payload
} hd_frame;

// What opens a connection.
typedef struct hd_hello {
    uint64_t secret; // that the ranks of one group, or of one job, share
    uint32_t size;   // how many ranks there are
    uint32_t wanted; // the rank that is called
} hd_hello;

// The frame of a hello that `rank` says.
hd_frame hd_hello_frame(int rank);
// Whether what has come is a hello to `rank` from one that knows the secret.
// Who that is, and one of how many, is not looked at.
bool hd_hello_fits(const hd_frame *frame, const hd_hello *hello,
                   uint64_t secret, int rank);

// ------------------------------------------------------------ waiting

// poll, for a second at most and not beyond `deadline`: how many are ready, -1
// if the deadline is over. Of none the events are empty.
int hd_poll(struct pollfd *ask, nfds_t n, int64_t deadline);
// Polls until one is ready; false past `deadline`.
bool hd_wait(struct pollfd *ask, nfds_t n, int64_t deadline);
bool hd_wait_for(int fd, short events, int64_t deadline);

// ------------------------------------------------------------ packets

// Sends a frame on a non-blocking socket, with `passed` as a descriptor unless
// it is negative. HD_ERROR_TIMEOUT past `deadline` (hd_clock), HD_ERROR_PEER if
// nobody reads any more, HD_ERROR_SYSTEM with errno otherwise.
hd_status hd_frame_send(int fd, hd_frame frame, const void *payload, int passed,
                        int64_t deadline);

// Takes the next frame, without blocking, into `payload` of HD_FRAME_ROOM
// bytes; `passed` is a new descriptor or -1. Checks that `pid` of our own user
// sent it. HD_ERROR_PEER if the other end is closed, HD_ERROR_TIMEOUT if there
// is none, HD_ERROR_INVALID if it is no frame of ours, HD_ERROR_NO_MEMORY if
// this process may not have the descriptor that came with it, HD_ERROR_SYSTEM
// with errno otherwise.
hd_status hd_frame_receive(int fd, pid_t pid, hd_frame *frame, void *payload,
                           int *passed);

// ------------------------------------------------------------ streams

// One end of a stream, and how far the next frame has come.
typedef struct hd_wire {
    int fd;    // owned; -1 if not connected
    pid_t pid; // of whoever sends; 0 if that is not known
    size_t got;
    hd_frame frame;
    union { // the payload of what is no data
        hd_hello hello;
        char words[HD_FRAME_WORDS];
    } payload;
} hd_wire;

// As hd_frame_send. The connection is of no more use if the deadline cuts a
// frame short: the peer sees us hang up. One thread at a time.
hd_status hd_wire_put(int fd, hd_frame frame, const void *payload,
                      int64_t deadline);
// Takes what has come. HD_OK when a frame is whole: its payload is in `data` if
// it is one of data, else in the wire. HD_ERROR_TIMEOUT if more has to come,
// HD_ERROR_ARGUMENT if data is less than `least` or more than `most` bytes
// long; else as hd_frame_receive. After the last two nothing more is to be
// taken.
hd_status hd_wire_take(hd_wire *wire, void *data, size_t least, size_t most);
void hd_wire_close(hd_wire *wire);

// Calls, as `rank`; and answers whoever has called.
hd_status hd_wire_call(int fd, int rank, hd_hello hello, int64_t deadline);
hd_status hd_wire_answer(int fd, int rank, int64_t deadline);

HD_END_DECLS

#endif
