// Where rank 0 is found by ranks that a launcher has started, and how sockets
// are opened to listen and to call, TCP or Unix.
#ifndef HD_RUNTIME_RANKS_BOOT_H
#define HD_RUNTIME_RANKS_BOOT_H

#include <stdint.h>
#include <sys/socket.h>

#include <heddle/launch.h>

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
// Calls rank 0 once. A non-blocking socket, or -1 with errno's message, or the
// resolver's, in `why`.
#define HD_WHY_BYTES 128
int hd_address_call(const hd_place *place, int64_t deadline,
                    char why[HD_WHY_BYTES]);
// The next caller of `listener` on a non-blocking socket; -1 with errno if
// there is none, or it is another user's (EPERM).
int hd_address_accept(int listener);
// A non-blocking socket that begins to call an address; -1 with errno.
int hd_address_start_call(const struct sockaddr *address, socklen_t bytes);

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

HD_END_DECLS

#endif
