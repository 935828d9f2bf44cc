// What ranks tell each other, from a peer that says anything. The first byte
// says which part of the wire format the rest is for:
//
//   frames   a packet of any bytes; one whose header is mended, so that what
//            is behind the checksum is reached; or that with one byte changed:
//            as packets, and in a stream as between hosts
//   endpoints    the address of another rank, as it came through allgather
//   windows  a descriptor that is said to be the memory of a peer
//   calls    parts of collective calls, and news of failures, from a peer that
//            is connected
//
// Whatever it is, it is taken whole or refused, and no descriptor leaks.
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "runtime/ranks/doorbell.h"
#include "runtime/ranks/frame.h"
#include "runtime/ranks/group.h"
#include "runtime/ranks/mesh.h"
#include "runtime/ranks/window.h"
#include "tests/fuzz/rendezvous.h"

// An endpoint ends with the host, which here is always ours: nobody on others
// is to be called.
enum { ENDPOINT_ROOM = 512, ENDPOINT_HOST = 16 + sizeof(struct sockaddr_un) };

// New descriptors take the lowest numbers that are free, so one that leaks is
// among the next few.
static int lowest_descriptor(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    must(fd >= 0, "/dev/null opens", "");
    close(fd);
    return fd;
}

static bool none_is_open(int first)
{
    for (int fd = first; fd < first + 8; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            return false;
    return true;
}

// ----------------------------------------------------------------- frames

static void mend_header(uint8_t *packet, size_t size)
{
    hd_frame frame;

    memcpy(&frame, packet, sizeof frame);
    frame.magic = 0x32646568u;
    frame.pid = (uint32_t)getpid();
    frame.bytes = size - sizeof frame;
    frame.checksum = XXH3_64bits(&frame, offsetof(hd_frame, checksum));
    frame.checksum = XXH3_64bits_withSeed(packet + sizeof frame, frame.bytes,
                                          frame.checksum);
    memcpy(packet, &frame, sizeof frame);
}

static void send_packet(int fd, const uint8_t *packet, size_t size, bool passes)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } ancillary = {.bytes = {0}};
    struct iovec part = {(void *)packet, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (passes) {
        message.msg_control = ancillary.bytes;
        message.msg_controllen = sizeof ancillary.bytes;
        ancillary.align.cmsg_level = SOL_SOCKET;
        ancillary.align.cmsg_type = SCM_RIGHTS;
        ancillary.align.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&ancillary.align), &fd, sizeof(int));
    }
    must(sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)size,
         "a packet is sent", "");
}

static void receive_packet(int fd, const uint8_t *packet, size_t size,
                           bool mended, bool passes)
{
    uint8_t *payload = malloc(HD_FRAME_ROOM);
    hd_frame frame;
    int passed = -1;
    hd_status status = hd_frame_receive(fd, getpid(), &frame, payload, &passed);

    if (status == HD_OK) {
        must(mended, "what no rank has sent is refused", "");
        must(size >= sizeof frame && frame.bytes == size - sizeof frame &&
                 memcmp(payload, packet + sizeof frame, frame.bytes) == 0,
             "a frame is what was sent", "");
        must((passed >= 0) == passes, "a descriptor comes with its frame", "");
    } else {
        must(status == HD_ERROR_INVALID, "a broken packet is refused", "");
        must(!mended, "a sound frame is taken", "");
        must(passed == -1, "what is refused brings no descriptor", "");
    }
    if (passed >= 0)
        close(passed);
    must(hd_frame_receive(fd, getpid(), &frame, payload, &passed) ==
             HD_ERROR_TIMEOUT,
         "a packet is taken whole", "");
    free(payload);
}

// The same on a stream, in two pieces. What is broken may look like the head of
// something longer, and what is no data is short.
static void take_stream(const uint8_t *packet, size_t size, bool mended,
                        size_t cut)
{
    hd_wire *wire = calloc(1, sizeof *wire);
    char *data = malloc(HD_FRAME_ROOM);
    const char *payload;
    hd_frame frame;
    hd_status status;
    int pair[2];

    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0,
         "sockets open", "");
    memset(&frame, 0, sizeof frame);
    memcpy(&frame, packet, size < sizeof frame ? size : sizeof frame);
    mended = mended && (frame.kind == HD_FRAME_DATA ||
                        frame.bytes <= sizeof wire->payload);
    wire->fd = pair[1];
    wire->pid = getpid();
    cut = size > 0 ? cut % size : 0;
    send_packet(pair[0], packet, cut, false);
    status = hd_wire_take(wire, data, 0, HD_FRAME_ROOM);
    must(status == HD_ERROR_TIMEOUT || !mended, "half a frame is none", "");
    if (status == HD_ERROR_TIMEOUT) {
        send_packet(pair[0], packet + cut, size - cut, false);
        status = hd_wire_take(wire, data, 0, HD_FRAME_ROOM);
    }
    payload = frame.kind == HD_FRAME_DATA ? data : wire->payload.words;
    must(status != HD_OK ||
             (wire->frame.bytes == size - sizeof frame &&
              memcmp(payload, packet + sizeof frame, wire->frame.bytes) == 0),
         "a frame is what was sent", "");
    must(mended == (status == HD_OK), "a frame is taken if it is sound", "");
    close(pair[0]);
    close(pair[1]);
    free(data);
    free(wire);
}

static void try_frame(choices *choices)
{
    int how = choices_pick(choices, 3);
    int broken = choices_pick(choices, (int)sizeof(hd_frame));
    bool mend = how > 0;
    bool passes = choices_pick(choices, 2) == 1;
    size_t size = choices->length - choices->at;
    uint8_t *packet = malloc(size + 1);
    int on = 1;
    int pair[2];

    memcpy(packet, choices->byte + choices->at, size);
    mend = mend && size >= sizeof(hd_frame) &&
           size <= sizeof(hd_frame) + HD_FRAME_ROOM;
    if (mend)
        mend_header(packet, size);
    if (mend && how == 2) {
        packet[broken] ^= 0x10;
        mend = false; // from here on it is to be refused
    }
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0 &&
             setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) == 0,
         "sockets open", "");
    if (size > 0) {
        send_packet(pair[0], packet, size, passes);
        receive_packet(pair[1], packet, size, mend, passes);
        if (size <= sizeof(hd_frame) + HD_FRAME_ROOM)
            take_stream(packet, size, mend, size * 7 / 11);
    }
    close(pair[0]);
    close(pair[1]);
    free(packet);
}

// ------------------------------------------------------------------ endpoints

// Rank 1 of two calls rank 0, whose endpoint is what the input says.
static hd_status tell_endpoint(void *context, const void *mine, size_t bytes,
                               void *all)
{
    choices *choices = context;
    uint8_t endpoint[ENDPOINT_ROOM] = {0};
    size_t left = choices->length - choices->at;

    must(bytes <= sizeof endpoint, "an endpoint is small", "");
    memcpy(endpoint, choices->byte + choices->at, left < bytes ? left : bytes);
    memcpy(all, endpoint, ENDPOINT_HOST);
    memcpy((char *)all + ENDPOINT_HOST, (const char *)mine + ENDPOINT_HOST,
           bytes - ENDPOINT_HOST);
    memcpy((char *)all + bytes, mine, bytes);
    return HD_OK;
}

static void try_endpoint(choices *choices)
{
    hd_oob oob = {sizeof oob, choices, 1, 2, tell_endpoint};
    hd_diag *diag = hd_diag_create();
    hd_group *group = NULL;
    hd_status status = hd_group_create(&oob, 0.01, diag, &group);

    must(status != HD_OK && group == NULL, "nobody answers", "");
    must_explain(status, diag, "hd_group_create");
    hd_diag_destroy(diag);
}

// ---------------------------------------------------------------- windows

static int make_memory(choices *choices, uint64_t *bytes, int *seals)
{
    static const int kinds[] = {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL,
                                F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL};
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    must(fd >= 0, "memory opens", "");
    *bytes = (uint64_t)choices_pick(choices, 256) << choices_pick(choices, 12);
    must(ftruncate(fd, (off_t)*bytes) == 0, "memory takes its size", "");
    *seals = kinds[choices_pick(choices, 4)];
    *seals |= kinds[choices_pick(choices, 4)];
    must(fcntl(fd, F_ADD_SEALS, *seals) == 0, "memory is sealed", "");
    return fd;
}

// Memory whose size may still change would let a peer make us fault.
static void try_window(choices *choices)
{
    uint64_t bytes = 0, claimed;
    int seals = 0;
    hd_window window = HD_WINDOW_NONE;
    hd_diag *diag = hd_diag_create();
    int fd = choices_pick(choices, 8) == 7
                 ? open("/dev/null", O_RDWR | O_CLOEXEC)
                 : make_memory(choices, &bytes, &seals);
    hd_status status;

    claimed = bytes + (uint64_t)choices_pick(choices, 3) *
                          (uint64_t)choices_pick(choices, 256);
    status = hd_window_map(fd, (size_t)claimed, diag, &window);
    must_explain(status, diag, "hd_window_map");
    if (status == HD_OK) {
        must(claimed == bytes && bytes > 0 &&
                 seals == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
             "only sealed memory of that size is mapped", "");
        memset(window.base, 0x5a, window.bytes);
        hd_window_close(&window);
    } else {
        must(claimed != bytes || bytes == 0 ||
                 seals != (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
             "sealed memory of that size is mapped", "");
    }
    hd_diag_destroy(diag);
}

// ------------------------------------------------------------------ calls

typedef struct member {
    rendezvous_seat seat;
    hd_group *group;
} member;

static void *join_group(void *context)
{
    member *member = context;
    hd_oob oob = rendezvous_oob(&member->seat);
    hd_diag *diag = hd_diag_create();
    hd_status status = hd_group_create(&oob, 20, diag, &member->group);

    must(status == HD_OK, "ranks meet", hd_diag_text(diag));
    hd_diag_destroy(diag);
    return NULL;
}

// Whether this is the part that the call below waits for.
static bool send_part(choices *choices, const hd_group *peer,
                      const char bytes[8])
{
    static const uint32_t kinds[] = {HD_FRAME_DATA,   HD_FRAME_DATA,
                                     HD_FRAME_FAILED, HD_FRAME_GOODBYE,
                                     HD_FRAME_HELLO,  99};
    hd_frame frame = {.kind = kinds[choices_pick(choices, 6)],
                      .rank = (uint32_t)choices_pick(choices, 3),
                      .call = (uint32_t)choices_pick(choices, 4),
                      .bytes = 8 - (uint64_t)choices_pick(choices, 4),
                      .serial = (uint64_t)choices_pick(choices, 4)};
    int passed = choices_pick(choices, 4) == 3 ? peer->wake : -1;
    hd_status status = hd_frame_send(peer->link[0].wire.fd, frame, bytes,
                                     passed, hd_clock() + INT64_C(1000000000));

    must(status == HD_OK || status == HD_ERROR_PEER, "a frame is sent", "");
    return frame.kind == HD_FRAME_DATA && frame.bytes == 8;
}

// Rank 0 calls; rank 1 says what the input says.
static void call_once(choices *choices, hd_group *group, const hd_group *peer)
{
    static const char mine[9] = "ABCDEFGH", theirs[9] = "abcdefgh";
    char all[16] = {0};
    hd_diag *diag = hd_diag_create();
    bool possible = false;
    hd_status status;

    for (int n = choices_pick(choices, 5); n > 0; n--)
        possible |= send_part(choices, peer, theirs);
    hd_group_set_timeout(group, 0.001);
    status = hd_group_allgather(group, mine, 8, all, diag);
    must_explain(status, diag, "hd_group_allgather");
    must(status != HD_OK || possible, "only a whole part is taken", "");
    must(status != HD_OK ||
             (memcmp(all, mine, 8) == 0 && memcmp(all + 8, theirs, 8) == 0),
         "what is gathered is what was sent", "");
    hd_diag_destroy(diag);
}

static void try_calls(choices *choices)
{
    rendezvous *m = rendezvous_create(2);
    member member[2] = {{{m, 0}, NULL}, {{m, 1}, NULL}};
    pthread_t thread;

    must(pthread_create(&thread, NULL, join_group, &member[1]) == 0,
         "a thread starts", "");
    join_group(&member[0]);
    pthread_join(thread, NULL);
    call_once(choices, member[0].group, member[1].group);
    hd_group_destroy(member[0].group);
    hd_group_destroy(member[1].group);
    free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choices choices = {data, size, 0};
    int first = lowest_descriptor();
    bool clean = none_is_open(first);

    switch (choices_pick(&choices, 5)) {
    case 2:
        try_endpoint(&choices);
        break;
    case 3:
        try_window(&choices);
        break;
    case 4:
        try_calls(&choices);
        break;
    default:
        try_frame(&choices);
    }
    must(!clean || none_is_open(first), "no descriptor leaks", "");
    return 0;
}
