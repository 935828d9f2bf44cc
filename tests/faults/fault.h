// Faults on demand: the k-th request for memory, or to the operating system,
// fails. The linker sends the library's calls here first (see CMakeLists.txt),
// so it works under the sanitizers, and what the C++ library takes for the test
// itself neither counts nor fails.
#ifndef HD_TESTS_FAULTS_FAULT_H
#define HD_TESTS_FAULTS_FAULT_H

#include <stdbool.h>

#include <heddle/heddle.h>

HD_BEGIN_DECLS

enum {
    FAULT_MEMORY = 1, // malloc and its kin
    FAULT_SYSTEM = 2, // mmap, memfd_create, socket, fork, ...: see fault.c
    FAULT_LASTING = 4 // so does every request after the k-th
};

// From now on the requests of this thread, and of the threads that it starts,
// are counted, and the `k`-th one of these `kinds` fails; none if k is 0.
void fault_begin(long k, int kinds);

// As above, but of one process: the one that fork number `child`, from 0,
// starts from now on.
void fault_begin_in_child(long k, int kinds, int child);

// Ends it. True if a request failed.
bool fault_end(void);

// From now on the requests of this thread are none of the library's.
void fault_leave(void);

// Requests since fault_begin.
long fault_count(void);

// Blocks and mappings that the library holds, in all threads.
long fault_live(void);

HD_END_DECLS

#endif
