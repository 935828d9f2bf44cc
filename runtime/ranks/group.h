// What the runtime asks of a group beyond the public header: collective calls
// that say which call they belong to and until when they wait, and the news of
// a peer that failed.
#ifndef HD_RUNTIME_RANKS_GROUP_H
#define HD_RUNTIME_RANKS_GROUP_H

#include <stdint.h>

#include "base/status.h"

HD_BEGIN_DECLS

typedef struct hd_doorbell hd_doorbell;
typedef struct hd_workers hd_workers;
typedef struct hd_pool hd_pool;

#define HD_GROUP_TEXT 512 // bytes of a failure's message, with the NUL

// Which function a part belongs to, so that ranks that call different ones are
// told so.
typedef enum hd_meeting {
    HD_CALL_GROUP,
    HD_CALL_ALLGATHER,
    HD_CALL_SESSION,
    HD_CALL_SPLIT,
} hd_meeting;

// One collective call in progress. Every rank begins the same ones in the same
// order.
typedef struct hd_exchange {
    hd_group *group; // borrowed
    hd_meeting call;
    uint64_t serial;
    int64_t deadline; // hd_clock
    bool failed;      // the group had, before the call
    hd_diag *diag;    // borrowed, may be NULL
    size_t said;      // messages that `diag` had before the call
} hd_exchange;

hd_exchange hd_exchange_begin(hd_group *group, hd_meeting call, double timeout,
                              hd_diag *diag);
// Sends `bytes` and, unless it is negative, a descriptor that stays ours: that
// is HD_ERROR_UNSUPPORTED to a rank on another host.
hd_status hd_exchange_post(const hd_exchange *exchange, int peer,
                           const void *data, size_t bytes, int fd);
// Takes the next part of `peer`, which must have posted as many bytes. `fd`,
// unless NULL, becomes the descriptor that came with it, or -1.
hd_status hd_exchange_collect(const hd_exchange *exchange, int peer, void *data,
                              size_t bytes, int *fd);
// Whether something of `peer` is there to be collected.
bool hd_exchange_has_mail(const hd_exchange *exchange, int peer);
hd_status hd_exchange_allgather(const hd_exchange *exchange, const void *mine,
                                size_t bytes, void *all);
// Room for `bytes` of each rank, zeroed, which the caller frees. NULL if there
// is none: that is said, and the group has failed, since the peers wait for
// this rank's part.
void *hd_exchange_room(const hd_exchange *exchange, size_t bytes);
// The exchange of what ranks end with, for one that ends with `status`: `why`
// becomes its reason. Whoever has failed has said so, and says no more of what
// becomes of the others.
hd_exchange hd_exchange_confess(const hd_exchange *exchange, hd_status status,
                                char why[HD_GROUP_TEXT]);
// Ends a phase that may fail on some ranks: all of them return HD_OK, or none
// does. A rank with `status` HD_OK gets HD_ERROR_PEER and another rank's
// message.
hd_status hd_exchange_agree(const hd_exchange *exchange, hd_status status);

// The first failure that this rank has noticed or was told of settles the
// group's fate: everything that waits for a peer then ends with HD_ERROR_PEER,
// or with HD_ERROR_NO_MEMORY where it was this rank's memory that ran out.
bool hd_group_failed(const hd_group *group);
// Its message, which names the rank at fault, and what a call of this rank ends
// with. Any thread may call.
hd_status hd_group_failure(hd_group *group, char out[HD_GROUP_TEXT]);
// Why a rank fails: the first error that `diag` has from message `said` on.
void hd_group_reason(const hd_diag *diag, size_t said, hd_status status,
                     char out[HD_GROUP_TEXT]);
// Whether the process that made the group has forked this one, which may do
// nothing with it. No system call.
bool hd_group_is_copy(const hd_group *group);
// HD_ERROR_ARGUMENT then.
hd_status hd_group_check_process(const hd_group *group, hd_diag *diag);
// Whether hd_group_abort was called, here or, as far as that is known, on
// another rank: the failure that follows from it may not be there yet.
bool hd_group_is_aborted(const hd_group *group);
// What a call of one that is aborted ends with, and why: the abort, unless the
// group had failed before.
hd_status hd_group_end(hd_group *group, char out[HD_GROUP_TEXT]);
// Whether calls of the group may do anything: neither in a process that was
// forked since, nor once it is aborted.
hd_status hd_group_check(hd_group *group, hd_diag *diag);
// Gives up, and tells every peer why. Any thread may call.
void hd_group_fail(hd_group *group, const char *text);
// As above, for a rank that fails with `status`: the reason is the first error
// that `diag`, which may be NULL, has from message `said` on. What is older is
// not the reason, nor is a warning.
void hd_group_give_up(hd_group *group, hd_status status, const hd_diag *diag,
                      size_t said);
// As above, for want of memory on this rank: the peers wait for its part.
void hd_group_run_out(hd_group *group);
// What a function of the caller's has returned; HD_ERROR_ARGUMENT, with `whose`
// in its words, if that is no status.
hd_status hd_group_status(hd_status returned, const char *whose, int rank,
                          hd_diag *diag);
// Seconds that telling may take: a host that says nothing for 20 is gone, and a
// process that takes nothing for as long, with its queue full, is taken for it.
#define HD_GROUP_TELLING 21.0
// As hd_group_fail, and tells every peer of what has failed the group before if
// something has. It returns when each of them has the message, in its queue on
// this host, or in its kernel on another, or the link to it is dead, or the
// time is over: what this rank does from now on, nobody meets that could not
// have heard of it.
void hd_group_pass_on(hd_group *group, const char *text);
// Until this rank has heard all that peers have told it by now; false if it has
// not at `deadline` (hd_clock), or some 10 ms later. That may be past, for a
// single look. Any thread may call.
bool hd_group_catch_up(const hd_group *group, int64_t deadline);
// The peer has left in good order: what it has not yet signalled never comes.
bool hd_group_left(const hd_group *group, int peer);

// Ranks of one host have the same leader, the lowest of them.
int hd_group_leader(const hd_group *group, int rank);
// Whether the rank is a thread of this process, by the kernel's word for who is
// at the other end of the connection.
bool hd_group_is_near(const hd_group *group, int rank);
// What the host of a rank is called.
const char *hd_group_host(const hd_group *group, int rank);

// Rings `doorbell` whenever one of the above changes. HD_ERROR_NO_MEMORY if it
// cannot be noted.
hd_status hd_group_add_doorbell(hd_group *group, hd_doorbell *doorbell);
void hd_group_remove_doorbell(hd_group *group, hd_doorbell *doorbell);

// Threads that sessions of this group share, where a device has no streams of
// its own.
hd_workers *hd_group_workers(hd_group *group);

// Memory that sessions of this group share, where a device has none of its own.
hd_pool *hd_group_pool(hd_group *group);

// What a driver keeps for the sessions of a group. The group ends it before
// anything of its own.
typedef struct hd_kept {
    struct hd_kept *next;
    // Gives back what no session needs; `over` if that is all, and `end` is
    // to follow.
    hd_status (*trim)(struct hd_kept *kept, hd_diag *diag, bool *over);
    void (*end)(struct hd_kept *kept);
} hd_kept;
// The first of them. Whoever makes one puts it in front. One thread at a time.
hd_kept **hd_group_kept(hd_group *group);

HD_END_DECLS

#endif
