// How threads and processes wait for each other: a doorbell in memory that they
// share. Whoever changes a word rings; whoever waits for one sleeps on the
// doorbell and looks again when it rang. One doorbell serves many words, so
// that a waiter may wait for any of them.
//
//   waiter                              signaller
//   seen = hd_doorbell_arm(bell)        word = value   (seq_cst)
//   if (word < value)                   hd_doorbell_ring(bell)
//       hd_doorbell_sleep(bell, seen, ns)
//   hd_doorbell_disarm(bell)
//
// No wake-up is lost: the word and the count of sleepers are written and read
// in one total order, so either the waiter sees the word or the signaller sees
// the sleeper, and then changes `rings`, on which the sleep is conditional.
#ifndef HD_RUNTIME_RANKS_DOORBELL_H
#define HD_RUNTIME_RANKS_DOORBELL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "runtime/ranks/clock.h"

// May lie in memory that several processes map. All zero is a doorbell.
typedef struct hd_doorbell {
    _Atomic uint32_t rings;
    _Atomic uint32_t sleepers;
} hd_doorbell;

// Locks until hd_clock is at `deadline`; false if it has not got the mutex by
// then. It looks again and again: libtsan does not know pthread_mutex_clocklock
// yet, and pthread_mutex_timedlock goes by a clock that jumps.
bool hd_lock_until(pthread_mutex_t *mutex, int64_t deadline);

// Starts a thread of the library's, which no signal of the program reaches.
// Returns 0, or an errno.
int hd_thread_start(void *(*fn)(void *), void *context, pthread_t *out);

void hd_doorbell_wake(hd_doorbell *doorbell);

// What was changed must have been stored with memory_order_seq_cst.
static inline void hd_doorbell_ring(hd_doorbell *doorbell)
{
    if (atomic_load_explicit(&doorbell->sleepers, memory_order_seq_cst) > 0)
        hd_doorbell_wake(doorbell);
}

uint32_t hd_doorbell_arm(hd_doorbell *doorbell);
// Sleeps until the doorbell rings after `seen`, or `ns` have passed; may return
// early.
void hd_doorbell_sleep(hd_doorbell *doorbell, uint32_t seen, int64_t ns);
void hd_doorbell_disarm(hd_doorbell *doorbell);

#endif
