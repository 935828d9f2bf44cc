// The memory of a group: what its sessions need of it they share, since their
// runs follow one another on each rank. Opened when a session first needs some.
//
// Peers map one window a rank, once:
//
//   | words of session A | of session B | .. | what is shared in a run |
//
// Words are a session's own as long as it is alive on any rank: a peer may
// write them before this rank has begun the run that they are for. What is
// shared is touched within steps of this rank alone (docs/signals.md), so that
// one region does for all sessions; and so does one region that no peer sees.
// All three are as large as they may ever become, and cost the pages that were
// touched: nothing moves when a session needs more than those before it.
#ifndef HD_RUNTIME_RANKS_POOL_H
#define HD_RUNTIME_RANKS_POOL_H

#include <stdint.h>

#include "runtime/ranks/window.h"

HD_BEGIN_DECLS

typedef struct hd_pool hd_pool;

// What one session has. Owned by the pool.
typedef struct hd_hold {
    struct hd_hold *next;       // the one behind its words
    size_t words, bytes;        // where they are in the window
    size_t shared, own;         // bytes of the regions of runs
    size_t old_shared, old_own; // of them some session had before
    bool over;                  // on this rank
} hd_hold;

hd_pool *hd_pool_create(int rank, int size); // NULL if memory runs out
void hd_pool_destroy(hd_pool *pool);

// Bytes that each region of runs may have: this rank's part of the machine's
// memory, or less by the process's limits.
size_t hd_pool_room(const hd_pool *pool);

// Takes words, all 0, and as much of the regions of runs.
hd_status hd_pool_take(hd_pool *pool, size_t words, size_t shared, size_t own,
                       hd_diag *diag, hd_hold **out);
// The first 8 bytes of a session's words, this rank's or a peer's, are the
// pool's: this rank writes no more of them.
void hd_pool_leave(void *words);
// Gives them back. If `met` peers know of the words: they are kept until all
// ranks have left them.
void hd_pool_give(hd_pool *pool, hd_hold *hold, bool met);
// Gives back to the system what no session needs. Nobody waits for anybody.
hd_status hd_pool_trim(hd_pool *pool, hd_diag *diag);

// Memory for the caller's arguments, a window of its own, until it is reclaimed
// or the pool is destroyed; and whether it was the pool's.
hd_status hd_pool_lend(hd_pool *pool, size_t bytes, hd_diag *diag, void **out);
bool hd_pool_reclaim(hd_pool *pool, const void *memory);
// The window of what was lent that `memory` lies in, still the pool's: its base
// is NULL if that is none.
hd_window hd_pool_find_lent(hd_pool *pool, const void *memory);

// Of a pool from which something was taken: this rank's window, or that of a
// peer, which is mapped.
const hd_window *hd_pool_window(const hd_pool *pool, int rank);
size_t hd_pool_shared(const hd_pool *pool); // where that region is in it
char *hd_pool_own(const hd_pool *pool);     // the region that no peer sees

// Maps the window of a peer, unless it is. Takes `fd` over.
hd_status hd_pool_map(hd_pool *pool, int peer, int fd, size_t bytes,
                      hd_diag *diag);
// From now on all ranks have mapped the windows of all; and whether they have.
void hd_pool_meet(hd_pool *pool);
bool hd_pool_has_met(const hd_pool *pool);

HD_END_DECLS

#endif
