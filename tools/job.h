// A program, its arrays, and the processes that run it.
//
//     launcher   reads inputs, computes references    writes outputs
//                          | fork                          ^
//     ranks                '-> shard, run, compare, repeat-'
//
// Under a launcher each process is one rank and reads inputs for itself, and
// what ranks tell each other is gathered: ranks.h.
//
// Inputs and references are made before the fork and only read after it. What
// ranks tell the launcher - their shards of the outputs, verdicts, times - lies
// in shared pages.
#ifndef HD_TOOLS_JOB_H
#define HD_TOOLS_JOB_H

#include <stdatomic.h>

#include <heddle/launch.h>
#include <heddle/verify.h>

#include "array.h"
#include "sizes.h"
#include "verify.h"

// Inputs are drawn anew for each run that is verified, so that what an earlier
// run left behind shows; but a reference is large, so no more sets than this
// are kept, and used in turn. Runs of other sizes have sets of their own,
// verified or not: counts of groups fit the rows of theirs.
enum { FEW_SETS = 4, MOST_SETS = MOST_SIZES };

typedef struct slot {
    hd_argument about;
    bool given;             // by --in
    bool wanted;            // by --out
    array file;             // owned: behind `whole` where given
    whole whole[MOST_SETS]; // owned: input arrays; all the same where given
    unsigned char *local;   // owned, shared: each rank's shard, `stride` apart
    size_t stride;
} slot;

// Whether runs leave numbers in it.
bool slot_is_output(const slot *slot);

// What one rank counted.
typedef struct report {
    hd_stats first, last; // after the first run and after the last
    char matmul[256];
    char attention[512];
    char transport[256];
} report;

typedef struct job {
    hd_module *module;     // borrowed: complete
    const sizes *sizes;    // borrowed: what runs are given
    hd_diag *diag;         // borrowed; hd_launch brings a rank's messages here
    const hd_place *place; // borrowed: of this process, where a launcher has
                           // started the ranks; NULL where they are forked
    int ranks;
    slot *slot; // owned
    size_t nslots;
    uint64_t seed;
    int64_t iters;
    hd_session_options session;
    bool judged;        // where the session settles on NCCL, the program is
                        // judged by that before it runs
    bool timed;         // ranks begin each run together
    bool timeline;      // note when steps start and end, in the last run
    double *times;      // owned, shared: two a step, rank after rank
    size_t *first_step; // owned, by rank and one more
    int nsets;
    hd_module *expected; // borrowed: the program whose answers are the
                         // right ones; NULL if nothing is verified
    const char *path;    // borrowed: its file, for messages
    hd_reference *reference[MOST_SETS]; // owned; NULL if not verified
    hd_reference *rounding[MOST_SETS];  // owned: of the program as it is
                                        // lowered, once it is needed
    report *report;                     // owned, shared: one a rank
    verdict *verdict;                   // owned, shared: nslots for each rank
    _Atomic uint64_t *nanoseconds; // owned, shared: of the slowest rank, for
                                   // each run
    atomic_bool *told; // owned, shared: a rank has said what it was told
} job;

// What the options say, the module and the slots with what they are about are
// set by the caller; this makes room for everything. `job_close` takes a
// half-open one too.
outcome job_open(job *job);
void job_close(job *job);

// Draws what --in did not give.
outcome job_draw(job *job);
// Computes the answers that are expected, if any are.
outcome job_expect(job *job);
// Does so, forks the ranks and waits for them. Says what went wrong.
outcome job_launch(job *job);

// The shard of slot `i` that `rank` holds.
void *job_local(const job *job, size_t i, int rank);

#endif
