// The inside of a group: one socket a peer, Unix within a host and TCP between
// hosts, and one thread, the watcher, that reads them all. It sorts what
// arrives into the peers' mail, and so notices at once when a peer dies,
// whatever the group's user is busy with.
#ifndef HD_RUNTIME_RANKS_MESH_H
#define HD_RUNTIME_RANKS_MESH_H

#include <pthread.h>
#include <stdatomic.h>

#include <heddle/memory.h>

#include "runtime/ranks/doorbell.h"
#include "runtime/ranks/frame.h"
#include "runtime/ranks/group.h"
#include "runtime/ranks/host.h"
#include "runtime/ranks/pool.h"
#include "runtime/ranks/pulse.h"
#include "runtime/ranks/window.h"
#include "runtime/ranks/workers.h"

typedef struct hd_mail {
    struct hd_mail *next;
    hd_frame frame;
    int fd; // owned; -1 if none came with it
    char payload[];
} hd_mail;

typedef struct hd_link {
    hd_wire wire; // read by the watcher alone; of no peer for oneself
    char host[HD_HOST_NAME];
    int leader;              // the lowest rank of the peer's host
    char *data;              // owned, the watcher's; NULL within this host
    pthread_mutex_t sending; // held while a frame goes to another host
    bool open;               // the watcher still listens
    bool lost;         // the watcher's: there was no memory for what it said
    uint64_t received; // the last collective call of which something has come
    atomic_bool left;
    atomic_bool told; // that the group has failed: nothing of it is to be sent
    hd_mail *first, *last; // owned; guarded by the group's lock
} hd_link;

struct hd_group {
    int rank, size;
    pid_t pid;       // that made it
    unsigned forks;  // in a line before that
    double timeout;  // seconds, of the public calls
    uint64_t serial; // collective calls begun
    bool scattered;  // over several hosts
    hd_link *link;   // owned, by rank

    int wake; // owned eventfd: one of these two is set
    atomic_bool closing;
    atomic_bool aborted;
    pthread_t watcher;
    bool watching;
    hd_window pulses;          // of the ranks of this host
    _Atomic(hd_pulse *) pulse; // in them, by rank; NULL before they are there
    atomic_bool beats;         // the watcher has begun its own
    atomic_uint looks;         // that the watcher has begun
    atomic_uint looked;        // and those that it is through with

    pthread_mutex_t lock; // guards mail, failure and doorbells
    pthread_cond_t news;  // mail has come, or a peer's state has changed
    atomic_bool failed;   // written once, under the lock
    char failure[HD_GROUP_TEXT];
    hd_status status;       // what goes with `failure`
    atomic_bool ended;      // aborted on some rank, which is why, or was after
    hd_doorbell **doorbell; // owned array of borrowed doorbells
    int ndoorbells;

    hd_workers *workers;    // owned: of its sessions on the cpu
    hd_pool *pool;          // owned: likewise
    hd_kept *kept;          // owned: of its sessions on other devices
    hd_allocator allocator; // of these; its functions are NULL if there is none
};

// What else a rank may hear of one whose call it waits for. HD_OK as long as
// that may still come.
typedef struct hd_hearsay {
    void *context;
    hd_status (*ask)(void *context, int peer, hd_diag *diag);
} hd_hearsay;

// hd_group_create, whose waits for a rank to call end as `hearsay` says, which
// may be NULL: then at the deadline alone.
hd_status hd_group_connect(const hd_oob *oob, double timeout,
                           const hd_hearsay *hearsay, hd_diag *diag,
                           hd_group **out);
// Connects the ranks pairwise, wherever they are: fills in `link`. What is open
// when it fails is closed by hd_group_destroy.
hd_status hd_mesh_connect(hd_group *group, const hd_oob *oob,
                          const hd_hearsay *hearsay, int64_t deadline,
                          hd_diag *diag);

hd_status hd_watch_start(hd_group *group, hd_diag *diag);
void hd_watch_stop(hd_group *group);
// Has the watcher look at what it is asked for. A signal handler may call.
void hd_watch_wake(hd_group *group);
// What the watcher does of a group that is aborted: fails it, tells the peers,
// and ends what is being sent to one that takes nothing.
void hd_group_give_in(hd_group *group);

// Notes the group's first failure and wakes whoever waits; later ones are
// dropped. `status` is what this rank's calls end with. Returns whether this
// was the first.
bool hd_group_note_failure(hd_group *group, hd_status status, const char *text);
// Wakes whoever waits for mail or on a doorbell of the group. The lock is held.
void hd_group_wake(hd_group *group);

#endif
