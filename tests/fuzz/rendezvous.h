// How the threads of one process that stand for ranks find each other: the
// allgather that hd_group_create asks its caller for.
#ifndef HD_TESTS_FUZZ_RENDEZVOUS_H
#define HD_TESTS_FUZZ_RENDEZVOUS_H

#include <pthread.h>

#include "tests/fuzz/fuzz.h"

typedef struct rendezvous {
    pthread_mutex_t lock;
    pthread_cond_t news;
    int ranks, arrived;
    uint64_t round;
    char data[2][GENERATE_MAX_RANKS * 1024]; // by round; two are in use at most
} rendezvous;

typedef struct rendezvous_seat {
    rendezvous *rendezvous; // borrowed
    int rank;
} rendezvous_seat;

// The caller frees it with free().
rendezvous *rendezvous_create(int ranks);

// An hd_oob of a seat, which is to outlive the call that it is for.
hd_oob rendezvous_oob(rendezvous_seat *seat);

#endif
