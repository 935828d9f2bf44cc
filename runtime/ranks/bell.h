// How threads and processes wait for each other: a doorbell in memory that they
// share. Whoever changes a word rings; whoever waits for one sleeps on the bell
// and looks again when it rang. One bell serves many words, so that a waiter
// may wait for any of them.
//
//   waiter                              signaller
//   seen = hd_bell_arm(bell)            word = value   (seq_cst)
//   if (word < value)                   hd_bell_ring(bell)
//       hd_bell_sleep(bell, seen, ns)
//   hd_bell_disarm(bell)
//
// No wake-up is lost: the word and the count of sleepers are written and read
// in one total order, so either the waiter sees the word or the signaller sees
// the sleeper, and then changes `rings`, on which the sleep is conditional.
#ifndef HD_RUNTIME_RANKS_BELL_H
#define HD_RUNTIME_RANKS_BELL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

// May lie in memory that several processes map. All zero is a bell.
typedef struct hd_bell {
    _Atomic uint32_t rings;
    _Atomic uint32_t sleepers;
} hd_bell;

// Nanoseconds of a clock that never jumps; and the moment `seconds` from now,
// INT64_MAX if that is too far to say.
int64_t hd_clock(void);
int64_t hd_clock_after(double seconds);
// Locks until hd_clock is at `deadline`; false if it has not got the mutex by
// then. It looks again and again: libtsan does not know pthread_mutex_clocklock
// yet, and pthread_mutex_timedlock goes by a clock that jumps.
bool hd_lock_until(pthread_mutex_t *mutex, int64_t deadline);

void hd_bell_wake(hd_bell *bell);

// What was changed must have been stored with memory_order_seq_cst.
static inline void hd_bell_ring(hd_bell *bell)
{
    if (atomic_load_explicit(&bell->sleepers, memory_order_seq_cst) > 0)
        hd_bell_wake(bell);
}

uint32_t hd_bell_arm(hd_bell *bell);
// Sleeps until the bell rings after `seen`, or `ns` have passed; may return
// early.
void hd_bell_sleep(hd_bell *bell, uint32_t seen, int64_t ns);
void hd_bell_disarm(hd_bell *bell);

#endif
