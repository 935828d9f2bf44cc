// Where rank 0 is to be found: a host and port, or within one host a socket in
// the abstract namespace, named by user and job, which is gone with its owner.
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <heddle/launch.h>

#include "base/diag.h"
#include "runtime/ranks/boot.h"
#include "runtime/ranks/doorbell.h"
#include "runtime/ranks/frame.h"

// How long an address may still belong to the boot before this one.
#define TAKEN_SECONDS 2.0

bool hd_address_split(const char *text, char host[HD_HOST_BYTES],
                      char port[HD_PORT_BYTES])
{
    const char *colon = strrchr(text, ':');
    size_t length = colon != NULL ? (size_t)(colon - text) : 0;

    if (length > 2 && text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    } else if (length > 0 && memchr(text, ':', length) != NULL) {
        return false; // a bare IPv6 address: which colon is the port's?
    }
    if (length == 0 || length >= HD_HOST_BYTES)
        return false;
    if (strlen(colon + 1) > 5 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        atoi(colon + 1) < 1 || atoi(colon + 1) > 65535)
        return false;
    memcpy(host, text, length);
    host[length] = '\0';
    snprintf(port, HD_PORT_BYTES, "%s", colon + 1);
    return true;
}

const char *hd_address_text(const hd_place *place)
{
    return place->address[0] != '\0' ? place->address : "a Unix socket";
}

static bool is_local(const hd_place *place)
{
    return place->address[0] == '\0';
}

static socklen_t name_socket(const hd_place *place, struct sockaddr_un *out)
{
    // A first byte of NUL makes the name abstract.
    int length =
        snprintf(out->sun_path + 1, sizeof out->sun_path - 1,
                 "heddle-%u-%016" PRIx64, (unsigned)geteuid(), place->job);

    out->sun_family = AF_UNIX;
    out->sun_path[0] = '\0';
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       (size_t)length);
}

static bool is_ours(int fd)
{
    struct ucred other;
    socklen_t bytes = sizeof(other);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &bytes) == 0 &&
           other.uid == geteuid();
}

void hd_address_hurry(int fd)
{
    int on = 1, idle = HD_SILENCE / 4, most = HD_SILENCE * 1000;

    // Without these it still works, later: small frames and dead hosts.
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle);
    // Of what is sent and not acknowledged, and of keepalives in vain.
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof most);
}

// ------------------------------------------------------------ listening

// Of what failed, errno stays.
static int close_failed(int fd)
{
    int error = errno;

    close(fd);
    errno = error;
    return -1;
}

static int try_listen(const struct sockaddr *address, socklen_t bytes)
{
    int on = 1, off = 0;
    int family = address->sa_family;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    if (family != AF_UNIX)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) // "any address" is then any IPv4 one too
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, address, bytes) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    return close_failed(fd);
}

static int listen_on_all(uint16_t port)
{
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6,
                                .sin6_addr = in6addr_any,
                                .sin6_port = htons(port)};
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = try_listen((const struct sockaddr *)&any6, sizeof any6);

    return fd >= 0 || errno == EADDRINUSE
               ? fd
               : try_listen((const struct sockaddr *)&any, sizeof any);
}

int hd_address_listen_anywhere(uint16_t *port)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    int fd = listen_on_all(0);

    if (fd < 0)
        return -1;
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) < 0)
        return close_failed(fd);
    *port = ntohs(address.ss_family == AF_INET6
                      ? ((const struct sockaddr_in6 *)&address)->sin6_port
                      : ((const struct sockaddr_in *)&address)->sin_port);
    return fd;
}

// localhost needs no hosts file.
static int look_up(const char *host, const char *port, int flags,
                   struct addrinfo **out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags};
    bool is_here = strcmp(host, "localhost") == 0;

    return getaddrinfo(is_here ? "127.0.0.1" : host, port, &hints, out);
}

// A number is listened on itself, and so is localhost. What a name stands for
// elsewhere is not known here (often 127.0.1.1), so for a name it is all
// addresses of the host.
static int listen_tcp(const char *host, const char *port)
{
    struct addrinfo *list;
    int fd = -1;

    if (look_up(host, port, AI_NUMERICHOST | AI_PASSIVE, &list) != 0)
        return listen_on_all((uint16_t)atoi(port));
    for (struct addrinfo *at = list; at != NULL && fd < 0; at = at->ai_next)
        fd = try_listen(at->ai_addr, at->ai_addrlen);
    freeaddrinfo(list);
    return fd;
}

static int listen_once(const hd_place *place)
{
    char host[HD_HOST_BYTES], port[HD_PORT_BYTES];
    struct sockaddr_un name;
    socklen_t bytes;

    if (!is_local(place)) {
        errno = EINVAL;
        return hd_address_split(place->address, host, port)
                   ? listen_tcp(host, port)
                   : -1;
    }
    bytes = name_socket(place, &name);
    return try_listen((const struct sockaddr *)&name, bytes);
}

hd_status hd_address_listen(const hd_place *place, int64_t deadline,
                            hd_diag *diag, int *out)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    int64_t patience = hd_clock_after(TAKEN_SECONDS);

    for (;;) {
        int fd = listen_once(place);
        int64_t now = hd_clock();

        if (fd >= 0) {
            *out = fd;
            return HD_OK;
        }
        if (errno != EADDRINUSE || now > patience || now > deadline)
            return hd_system_error(diag, "rank 0 cannot listen at %s",
                                   hd_address_text(place));
        nanosleep(&pause, NULL);
    }
}

// -------------------------------------------------------------- calling

int hd_address_start_call(const struct sockaddr *address, socklen_t bytes)
{
    int fd = socket(address->sa_family,
                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || connect(fd, address, bytes) == 0 || errno == EINPROGRESS)
        return fd;
    return close_failed(fd);
}

static int try_call(const struct sockaddr *address, socklen_t bytes,
                    int64_t deadline)
{
    int fd = hd_address_start_call(address, bytes);
    socklen_t length = sizeof(int);
    int error = ETIMEDOUT;

    if (fd < 0)
        return -1;
    if (hd_wait_for(fd, POLLOUT, deadline))
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    errno = error;
    return error == 0 ? fd : close_failed(fd);
}

// The resolver has limits of its own, some seconds, which no deadline shortens.
static int call_tcp(const char *address, int64_t deadline,
                    char why[HD_WHY_BYTES])
{
    char host[HD_HOST_BYTES], port[HD_PORT_BYTES];
    struct addrinfo *list;
    int fd = -1;
    int error;

    if (!hd_address_split(address, host, port)) {
        snprintf(why, HD_WHY_BYTES, "it is not host:port");
        return -1;
    }
    error = look_up(host, port, 0, &list);
    if (error != 0) {
        snprintf(why, HD_WHY_BYTES, "%s", gai_strerror(error));
        return -1;
    }
    for (struct addrinfo *at = list; at != NULL && fd < 0; at = at->ai_next)
        fd = try_call(at->ai_addr, at->ai_addrlen, deadline);
    if (fd < 0)
        snprintf(why, HD_WHY_BYTES, "%s", strerror(errno));
    else
        hd_address_hurry(fd);
    freeaddrinfo(list);
    return fd;
}

int hd_address_call(const hd_place *place, int64_t deadline,
                    char why[HD_WHY_BYTES])
{
    struct sockaddr_un name;
    socklen_t bytes;
    int fd;

    if (!is_local(place))
        return call_tcp(place->address, deadline, why);
    bytes = name_socket(place, &name);
    fd = try_call((const struct sockaddr *)&name, bytes, deadline);
    if (fd < 0) {
        snprintf(why, HD_WHY_BYTES, "%s", strerror(errno));
    } else if (!is_ours(fd)) {
        snprintf(why, HD_WHY_BYTES, "it is another user's");
        close(fd);
        fd = -1;
    }
    return fd;
}

int hd_address_accept(int listener)
{
    struct sockaddr_storage from = {.ss_family = AF_UNSPEC};
    socklen_t bytes = sizeof from;
    int fd = accept4(listener, (struct sockaddr *)&from, &bytes,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return -1;
    if (from.ss_family != AF_UNIX) {
        hd_address_hurry(fd);
        return fd;
    }
    errno = EPERM;
    return is_ours(fd) ? fd : close_failed(fd);
}
