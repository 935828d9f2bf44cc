// How ranks find each other: each listens on an address in the abstract
// namespace that the kernel picks, all addresses travel through the caller's
// allgather, and every rank calls all lower ones. Nothing is named in the file
// system, and an address is gone with its socket.
//
// A connection counts only if the kernel says that the process at its other end
// is the one that announced the address, under our own user, and if that
// process then says the group's secret. Anyone else is hung up on.
//
// If those addresses come from several hosts, where each listens for the
// others' hosts goes round as well: remote.h has those connections.
#include "runtime/ranks/mesh.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/diag.h"
#include "runtime/ranks/callers.h"
#include "runtime/ranks/remote.h"

// What a rank tells all others of itself.
typedef struct hd_endpoint {
    uint32_t pid;
    uint32_t address_bytes; // 0 if it could not listen
    uint64_t secret;        // rank 0's is the group's
    char address[sizeof(struct sockaddr_un)];
    hd_host host;
} hd_endpoint;

#define LOOK 0.05 // seconds between questions of what is heard of a rank

// Too large for the small stack that a user may have.
typedef struct mesh {
    hd_group *group;
    hd_endpoint *endpoint;               // owned, by rank
    hd_remote_endpoint *remote_endpoint; // owned, by rank; NULL within one host
    int listener;                        // owned
    hd_callers callers;                  // from other hosts
    const hd_hearsay *hearsay;           // borrowed, may be NULL
    int64_t deadline;
    hd_diag *diag;
    union {
        hd_hello hello;
        char bytes[HD_FRAME_ROOM];
    } payload; // of the frame at hand
} mesh;

static hd_status open_socket(mesh *mesh, int *out)
{
    int on = 1;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return hd_system_error(mesh->diag, "socket");
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0) {
        hd_status status = hd_system_error(mesh->diag, "SO_PASSCRED");

        close(fd);
        return status;
    }
    *out = fd;
    return HD_OK;
}

static hd_status listen_anywhere(mesh *mesh, hd_endpoint *endpoint)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof address;

    HD_TRY(open_socket(mesh, &mesh->listener));
    // An address of its family alone asks for a free abstract name.
    if (bind(mesh->listener, (struct sockaddr *)&address,
             sizeof address.sun_family) < 0 ||
        listen(mesh->listener, SOMAXCONN) < 0 ||
        getsockname(mesh->listener, (struct sockaddr *)&address, &bytes) < 0)
        return hd_system_error(mesh->diag, "a socket to listen on");
    endpoint->address_bytes = bytes;
    memcpy(endpoint->address, &address, bytes);
    return HD_OK;
}

// Calls the caller's allgather, whose failure is this rank's own.
static hd_status gather(const mesh *mesh, const hd_oob *oob, const char *what,
                        const void *mine, size_t bytes, void *all)
{
    hd_status status =
        hd_group_status(oob->allgather(oob->context, mine, bytes, all),
                        "its allgather", oob->rank, mesh->diag);

    if (status == HD_OK)
        return HD_OK;
    return hd_fail(mesh->diag, status,
                   "rank %d: the %s could not be gathered: its allgather "
                   "failed (%s)",
                   oob->rank, what, hd_status_text(status));
}

// Collective. A rank that cannot listen still takes part, so that none waits.
static hd_status share_endpoints(mesh *mesh, const hd_oob *oob)
{
    hd_endpoint mine = {.pid = (uint32_t)getpid()};
    hd_status status = hd_host_find(mesh->diag, &mine.host);

    if (status == HD_OK)
        status = listen_anywhere(mesh, &mine);
    if (status == HD_OK &&
        getrandom(&mine.secret, sizeof mine.secret, 0) != sizeof mine.secret)
        status = hd_system_error(mesh->diag, "getrandom");
    HD_TRY(gather(mesh, oob, "ranks' addresses", &mine, sizeof mine,
                  mesh->endpoint));
    HD_TRY(status);
    if (mesh->endpoint[oob->rank].secret != mine.secret)
        return hd_fail(mesh->diag, HD_ERROR_ARGUMENT,
                       "rank %d: its allgather does not put what this rank "
                       "passes in place %d of %d",
                       oob->rank, oob->rank, oob->nranks);
    for (int i = 0; i < oob->nranks; i++) {
        if (mesh->endpoint[i].address_bytes == 0 ||
            mesh->endpoint[i].address_bytes > sizeof(struct sockaddr_un))
            return hd_fail(mesh->diag, HD_ERROR_PEER,
                           "rank %d could not listen", i);
    }
    return HD_OK;
}

// ------------------------------------------------------ several hosts

static void find_leaders(mesh *mesh)
{
    hd_group *group = mesh->group;

    for (int i = 0; i < group->size; i++) {
        hd_link *link = &group->link[i];

        while (!hd_host_same(&mesh->endpoint[link->leader].host,
                             &mesh->endpoint[i].host))
            link->leader++;
        memcpy(link->host, mesh->endpoint[i].host.name, sizeof link->host - 1);
        group->scattered |= link->leader > 0;
    }
}

static bool is_remote(const hd_group *group, int peer)
{
    return group->link[peer].leader != group->link[group->rank].leader;
}

static hd_status prepare_remote(mesh *mesh, hd_remote_endpoint *mine)
{
    hd_group *group = mesh->group;

    for (int i = 0; i < group->size; i++) {
        if (!is_remote(group, i))
            continue;
        group->link[i].data = malloc(HD_FRAME_ROOM);
        if (group->link[i].data == NULL)
            return hd_fail(mesh->diag, HD_ERROR_NO_MEMORY,
                           "no memory for %d ranks", group->size);
    }
    mesh->callers.secret = mesh->endpoint[0].secret;
    return hd_remote_listen(&mesh->callers.listener, mesh->diag, mine);
}

// Collective, as share_endpoints is.
static hd_status share_remote_endpoints(mesh *mesh, const hd_oob *oob)
{
    hd_remote_endpoint mine = {.naddresses = 0};
    hd_status status = prepare_remote(mesh, &mine);

    if (status != HD_OK)
        mine.naddresses = 0;
    HD_TRY(gather(mesh, oob, "hosts' addresses", &mine, sizeof mine,
                  mesh->remote_endpoint));
    HD_TRY(status);
    for (int i = 0; i < oob->nranks; i++) {
        if (mesh->remote_endpoint[i].naddresses == 0 ||
            mesh->remote_endpoint[i].naddresses > HD_HOST_ADDRESSES)
            return hd_fail(mesh->diag, HD_ERROR_PEER,
                           "rank %d could not listen to other hosts", i);
    }
    return HD_OK;
}

static hd_status share_hosts(mesh *mesh, const hd_oob *oob)
{
    find_leaders(mesh);
    if (!mesh->group->scattered)
        return HD_OK;
    mesh->remote_endpoint =
        calloc((size_t)oob->nranks, sizeof(hd_remote_endpoint));
    if (mesh->remote_endpoint == NULL)
        return hd_fail(mesh->diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                       oob->nranks);
    return share_remote_endpoints(mesh, oob);
}

static hd_hello hello_to(const mesh *mesh, int peer)
{
    return (hd_hello){.secret = mesh->endpoint[0].secret,
                      .size = (uint32_t)mesh->group->size,
                      .wanted = (uint32_t)peer};
}

static hd_status call_remote(mesh *mesh, int peer)
{
    hd_group *group = mesh->group;
    char why[HD_WHY_BYTES];
    hd_status status = hd_remote_call(
        group->rank, hello_to(mesh, peer), &mesh->remote_endpoint[peer],
        mesh->deadline, why, &group->link[peer].wire.fd);

    if (status == HD_OK)
        return HD_OK;
    return hd_fail(mesh->diag, status,
                   "rank %d on %s cannot be reached from rank %d on %s, at any "
                   "address of that host and port %u: %s",
                   peer, hd_group_host(group, peer), group->rank,
                   hd_group_host(group, group->rank),
                   mesh->remote_endpoint[peer].port, why);
}

static hd_status report_no_accept(const mesh *mesh)
{
    return hd_system_error(mesh->diag, "rank %d cannot accept another rank",
                           mesh->group->rank);
}

// Whether this is a rank above ours that has not called yet.
static bool is_awaited(const mesh *mesh, int peer, bool remote)
{
    const hd_group *group = mesh->group;

    return peer > group->rank && peer < group->size &&
           is_remote(group, peer) == remote && group->link[peer].wire.fd < 0;
}

static hd_status answer_remote(mesh *mesh, bool *found)
{
    hd_group *group = mesh->group;
    hd_wire caller = {.fd = -1};
    int peer;

    if (hd_callers_accept(&mesh->callers, &caller) != HD_OK)
        return report_no_accept(mesh);
    peer = (int)caller.frame.rank;
    if (caller.fd < 0 || !is_awaited(mesh, peer, true) ||
        caller.payload.hello.size != (uint32_t)group->size) {
        hd_wire_close(&caller);
        return HD_OK;
    }
    group->link[peer].wire.fd = caller.fd;
    *found = true;
    if (hd_wire_answer(caller.fd, group->rank, mesh->deadline) != HD_OK)
        return hd_fail(mesh->diag, HD_ERROR_PEER, "rank %d hung up", peer);
    return HD_OK;
}

// ----------------------------------------------------------- one host

// The process at the other end, if it runs under our user; else 0.
static pid_t peer_of(int fd)
{
    struct ucred other;
    socklen_t bytes = sizeof(other);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &bytes) < 0 ||
        other.uid != geteuid())
        return 0;
    return other.pid;
}

static hd_status say_hello(const mesh *mesh, int fd, int peer)
{
    hd_hello hello = hello_to(mesh, peer);

    return hd_frame_send(fd, hd_hello_frame(mesh->group->rank), &hello, -1,
                         mesh->deadline);
}

// The rank at the other end of `fd`, which process `pid` holds; -1 if it says
// nothing that fits.
static int receive_hello(mesh *mesh, int fd, pid_t pid)
{
    const hd_hello *hello = &mesh->payload.hello;
    hd_frame frame;
    int passed = -1;
    bool sound;

    if (!hd_wait_for(fd, POLLIN, mesh->deadline) ||
        hd_frame_receive(fd, pid, &frame, &mesh->payload, &passed) != HD_OK)
        return -1;
    sound = passed < 0 &&
            hd_hello_fits(&frame, hello, mesh->endpoint[0].secret,
                          mesh->group->rank) &&
            hello->size == (uint32_t)mesh->group->size &&
            frame.rank < hello->size;
    if (passed >= 0)
        close(passed);
    return sound ? (int)frame.rank : -1;
}

// The peer's queue may be full: of ranks, if there are more than the system
// lets wait (net.core.somaxconn), or of strangers, since anybody may call. So
// the kernel waits for room in it, where those who wait take turns. False, and
// errno, if there was none: EAGAIN.
static bool connect_within(int fd, const struct sockaddr_un *address,
                           socklen_t bytes, int64_t deadline)
{
    int flags = fcntl(fd, F_GETFL);
    int result;

    fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    do {
        int64_t left = deadline - hd_clock();
        int64_t us = left / 1000 + 1; // no time at all would be for ever
        struct timeval wait = {us / 1000000, us % 1000000};

        errno = EAGAIN;
        if (left <= 0)
            return false;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
        result = connect(fd, (const struct sockaddr *)address, bytes);
    } while (result < 0 && (errno == EINTR || errno == EAGAIN));
    fcntl(fd, F_SETFL, flags);
    return result == 0;
}

static hd_status report_unreached(const mesh *mesh, int peer)
{
    int rank = mesh->group->rank;
    uint32_t pid = mesh->endpoint[peer].pid;

    if (errno != EAGAIN)
        return hd_fail(mesh->diag, HD_ERROR_PEER,
                       "rank %d (process %u) cannot be reached from rank %d: "
                       "%s",
                       peer, pid, rank, strerror(errno));
    return hd_fail(mesh->diag, HD_ERROR_TIMEOUT,
                   "rank %d waits for room among those who call rank %d "
                   "(process %u): as many wait already as net.core.somaxconn "
                   "admits, which may be ranks or not, and none is accepted",
                   rank, peer, pid);
}

static hd_status call_near(mesh *mesh, int peer)
{
    const hd_endpoint *endpoint = &mesh->endpoint[peer];
    hd_link *link = &mesh->group->link[peer];
    struct sockaddr_un address;

    memcpy(&address, endpoint->address, endpoint->address_bytes);
    HD_TRY(open_socket(mesh, &link->wire.fd));
    if (!connect_within(link->wire.fd, &address, endpoint->address_bytes,
                        mesh->deadline))
        return report_unreached(mesh, peer);
    if (peer_of(link->wire.fd) != (pid_t)endpoint->pid)
        return hd_fail(mesh->diag, HD_ERROR_PEER,
                       "another process than %u answers for rank %d",
                       endpoint->pid, peer);
    if (say_hello(mesh, link->wire.fd, peer) != HD_OK)
        return hd_fail(mesh->diag, HD_ERROR_PEER, "rank %d hung up", peer);
    return HD_OK;
}

// Who called, of those that are awaited; -1 if it is nobody.
static int identify_caller(mesh *mesh, int fd)
{
    const hd_group *group = mesh->group;
    pid_t pid = peer_of(fd);
    bool known = false;
    int peer;

    for (int i = group->rank + 1; i < group->size; i++)
        known |= pid > 0 && (pid_t)mesh->endpoint[i].pid == pid;
    peer = known ? receive_hello(mesh, fd, pid) : -1;
    return is_awaited(mesh, peer, false) &&
                   (pid_t)mesh->endpoint[peer].pid == pid
               ? peer
               : -1;
}

static hd_status report_missing(const mesh *mesh)
{
    int peer = mesh->group->rank + 1;

    while (mesh->group->link[peer].wire.fd >= 0)
        peer++;
    return hd_fail(mesh->diag, HD_ERROR_TIMEOUT,
                   "rank %d has not called rank %d", peer, mesh->group->rank);
}

static hd_status ask_of_missing(const mesh *mesh)
{
    const hd_hearsay *hearsay = mesh->hearsay;
    const hd_group *group = mesh->group;

    for (int i = group->rank + 1; i < group->size; i++) {
        if (group->link[i].wire.fd < 0)
            HD_TRY(hearsay->ask(hearsay->context, i, mesh->diag));
    }
    return HD_OK;
}

// Whoever is heard of has called before, or does not any more: so callers are
// looked at once more after that.
static hd_status await_caller(const mesh *mesh, struct pollfd *ask, nfds_t n)
{
    while (hd_clock() < mesh->deadline) {
        int64_t look = hd_clock_after(LOOK);
        hd_status heard = HD_OK;

        if (mesh->hearsay == NULL || look > mesh->deadline)
            look = mesh->deadline;
        if (hd_wait(ask, n, look))
            return HD_OK;
        if (mesh->hearsay != NULL)
            heard = ask_of_missing(mesh);
        if (heard != HD_OK)
            return hd_poll(ask, n, hd_clock_after(LOOK)) > 0 ? HD_OK : heard;
    }
    return report_missing(mesh);
}

static hd_status answer_near(mesh *mesh, bool *found)
{
    int on = 1;
    int peer;
    int fd;

    fd = accept4(mesh->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
        return HD_OK;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0)
        return report_no_accept(mesh);
    peer = identify_caller(mesh, fd);
    if (peer < 0) {
        close(fd);
        return HD_OK;
    }
    mesh->group->link[peer].wire.fd = fd;
    *found = true;
    if (say_hello(mesh, fd, peer) != HD_OK)
        return hd_fail(mesh->diag, HD_ERROR_PEER, "rank %d hung up", peer);
    return HD_OK;
}

static hd_status answer_one(mesh *mesh, bool *found)
{
    struct pollfd ask[HD_CALLERS + 2] = {
        {.fd = mesh->listener, .events = POLLIN}};
    int n = 1 + hd_callers_ask(&mesh->callers, ask + 1);

    HD_TRY(await_caller(mesh, ask, (nfds_t)n));
    return ask[0].revents != 0 ? answer_near(mesh, found)
                               : answer_remote(mesh, found);
}

// Calls first and answers then, so that no rank waits for one that waits: who
// calls another host waits for the answer, but only of a lower rank.
static hd_status connect_all(mesh *mesh)
{
    hd_group *group = mesh->group;

    for (int peer = 0; peer < group->rank; peer++)
        HD_TRY(is_remote(group, peer) ? call_remote(mesh, peer)
                                      : call_near(mesh, peer));
    for (int missing = group->size - 1 - group->rank; missing > 0;) {
        bool found = false;

        HD_TRY(answer_one(mesh, &found));
        missing -= found;
    }
    for (int peer = 0; peer < group->rank; peer++) {
        pid_t pid = (pid_t)mesh->endpoint[peer].pid;

        if (is_remote(group, peer))
            continue;
        if (receive_hello(mesh, group->link[peer].wire.fd, pid) != peer)
            return hd_fail(mesh->diag, HD_ERROR_PEER,
                           "rank %d (process %d) did not answer rank %d", peer,
                           pid, group->rank);
    }
    for (int peer = 0; peer < group->size; peer++)
        group->link[peer].wire.pid = (pid_t)mesh->endpoint[peer].pid;
    return HD_OK;
}

static hd_status connect_ranks(mesh *mesh, const hd_oob *oob)
{
    hd_status status = share_endpoints(mesh, oob);

    if (status == HD_OK)
        status = share_hosts(mesh, oob);
    if (status == HD_OK)
        status = connect_all(mesh);
    return status;
}

hd_status hd_mesh_connect(hd_group *group, const hd_oob *oob,
                          const hd_hearsay *hearsay, int64_t deadline,
                          hd_diag *diag)
{
    mesh *mesh = calloc(1, sizeof *mesh);
    hd_endpoint *endpoint = calloc((size_t)group->size, sizeof(hd_endpoint));
    hd_status status;

    if (mesh == NULL || endpoint == NULL) {
        free(endpoint);
        free(mesh);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for %d ranks",
                       group->size);
    }
    mesh->group = group;
    mesh->endpoint = endpoint;
    mesh->listener = -1;
    mesh->hearsay = hearsay;
    mesh->deadline = deadline;
    mesh->diag = diag;
    hd_callers_init(&mesh->callers, group->rank);
    status = connect_ranks(mesh, oob);
    if (mesh->listener >= 0)
        close(mesh->listener);
    hd_callers_close(&mesh->callers);
    free(mesh->remote_endpoint);
    free(endpoint);
    free(mesh);
    return status;
}
