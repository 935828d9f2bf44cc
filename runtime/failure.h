// What a device's first failure said, and the lines that drivers write about
// those who wait.
#ifndef HD_RUNTIME_FAILURE_H
#define HD_RUNTIME_FAILURE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/diag.h"
#include "ir/walk.h"
#include "runtime/ranks/group.h"

#define HD_FAILURE_NOTES 4096 // bytes of who waits for whom

// A text that is cut off where its room ends; both move on.
typedef struct hd_line {
    char *at;
    size_t room;
} hd_line;

void hd_line_put(hd_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// "recv at ring.hd:17:21 (step 14, stream 0": of streams, 0 is the caller's and
// `helper` the one that makes deferred sends.
void hd_line_put_step(hd_line *line, const hd_module *module, hd_opcode code,
                      unsigned at_line, unsigned at_column, int64_t step,
                      int stream, int helper);
// Size `i` of run `run` where this rank and a peer were given others.
void hd_line_put_sizes(hd_line *line, const hd_module *module, uint64_t run,
                       int i, int rank, int64_t own, int peer, int64_t other);

typedef struct hd_failure {
    atomic_bool failed;   // written once, under the lock
    pthread_mutex_t lock; // guards the rest
    hd_status status;
    char text[HD_GROUP_TEXT];
    char notes[HD_FAILURE_NOTES]; // lines
} hd_failure;

// True for the first, which is kept. `text` names the rank at fault; `notes` is
// lines, may be empty.
bool hd_failure_set(hd_failure *failure, hd_status status, const char *text,
                    const char *notes);
// Stored before a ring of whatever doorbell its waiters have armed, and so in
// one order with that, memory_order_seq_cst.
static inline bool hd_failure_is_set(const hd_failure *failure)
{
    return atomic_load_explicit(&failure->failed, memory_order_seq_cst);
}
// Of one that is set; of `source` are the places that it names.
hd_status hd_failure_report(hd_failure *failure, const hd_source *source,
                            hd_diag *diag);

#endif
