// What ranks that a launcher has started say to rank 0 and hear from it, before
// there is a group: frames on a stream socket, TCP or Unix. A frame carries
// magic, version, length and a checksum; whatever does not fit is refused.
#ifndef HD_RUNTIME_RANKS_BOOT_H
#define HD_RUNTIME_RANKS_BOOT_H

#include <stdint.h>

#include "base/status.h"

HD_BEGIN_DECLS

// ------------------------------------------------------------ address

#define HD_HOST_BYTES 256
#define HD_PORT_BYTES 8

// Takes "host:port" or "[host]:port" apart; a port is 1 to 65535.
bool hd_address_split(const char *text, char host[HD_HOST_BYTES],
                      char port[HD_PORT_BYTES]);

// What messages call the address: the host and port, or "a Unix socket".
const char *hd_address_text(const hd_place *place);

// Rank 0's non-blocking socket; the caller closes it.
hd_status hd_address_listen(const hd_place *place, int64_t deadline,
                            hd_diag *diag, int *out);
// Calls rank 0 once. A non-blocking socket, or -1 with errno's words, or the
// resolver's, in `why`.
#define HD_WHY_BYTES 128
int hd_address_call(const hd_place *place, int64_t deadline,
                    char why[HD_WHY_BYTES]);
// The next caller of `listener` on a non-blocking socket; -1 with errno if
// there is none, or it is another user's.
int hd_address_accept(const hd_place *place, int listener);

// A non-blocking socket that listens on all addresses of this host, on a port
// that the kernel picks; -1 with errno.
int hd_address_listen_anywhere(uint16_t *port);
// Small frames go at once, and a host that falls silent is noticed within
// HD_SILENCE seconds.
#define HD_SILENCE 20
void hd_address_hurry(int fd);

// ---------------------------------------------------------------- boot

// Where connecting the ranks failed after they had gathered: rank 0 tells the
// others why, for whom it has just hung up or never answers, and what they hear
// of it becomes words of theirs.
void hd_boot_explain(hd_boot *boot, hd_status status, const char *why);

// -------------------------------------------------------------- wire

#define HD_WIRE_TEXT 512

typedef enum hd_wire_kind {
    HD_WIRE_HELLO = 1, // to rank 0: who calls
    HD_WIRE_HEARD,     // from rank 0: you are in
    HD_WIRE_COMPLETE,  // from rank 0: everyone is
    HD_WIRE_DATA,      // a part of an allgather, or its result
    HD_WIRE_FAILED,    // the sender gives up
} hd_wire_kind;

typedef struct hd_wire_head {
    uint32_t magic;    // filled in by hd_wire_send, as are version and checksum
    uint32_t version;  // of the frames
    uint32_t kind;     // hd_wire_kind
    uint32_t rank;     // the sender's
    uint64_t serial;   // which allgather, from 1
    uint64_t bytes;    // of the payload
    uint64_t checksum; // of all of the above and the payload
} hd_wire_head;

// The payload of every frame but data.
typedef union hd_wire_words {
    struct {
        uint64_t job;
        uint32_t size;
    } hello;
    struct {
        uint32_t status;
        char text[HD_WIRE_TEXT];
    } failed;
} hd_wire_words;

typedef struct hd_wire {
    int fd;            // owned; -1 if not connected
    size_t got;        // bytes of the next frame that have come
    hd_wire_head head; // of that frame
    hd_wire_words words;
} hd_wire;

// Sends a frame whole. HD_TIMEOUT past `deadline` (hd_clock), HD_PEER if nobody
// reads any more.
hd_status hd_wire_send(int fd, hd_wire_head head, const void *payload,
                       int64_t deadline);
// Takes what has come. HD_OK when a frame is whole: its payload is in `data` if
// it is one of data, else in `words`. HD_TIMEOUT if more has to come, HD_PEER
// if the other end is closed, HD_INVALID if this is no frame of ours,
// HD_ARGUMENT if it is one of data and other than `bytes` long.
hd_status hd_wire_take(hd_wire *wire, void *data, size_t bytes);
void hd_wire_close(hd_wire *wire);

// Waits until `fd` has one of `events`; false past `deadline`.
bool hd_wire_wait(int fd, short events, int64_t deadline);

HD_END_DECLS

#endif
