// A job whose ranks a launcher has started: this process is one of them. Each
// reads or draws the whole inputs for itself; what the ranks bring forth goes
// to rank 0, which alone reports and writes.
#ifndef HD_TOOLS_RANKS_H
#define HD_TOOLS_RANKS_H

#include <heddle/launch.h>

#include "job.h"

// Looks for a launcher's variables. A launcher of one process is none: that
// process forks its ranks. Refuses standard input, which reaches one rank alone
// or all at once, as launchers please. `mine` becomes `place`, or stays as it
// is where there is none; `to`, where the report goes, becomes a file of the
// caller's that nobody reads, but on the first rank.
outcome ranks_find(hd_place *place, bool takes_input, const hd_place **mine,
                   FILE **to);

// Whether this process reports: it is alone, or `mine` is rank 0's.
static inline bool ranks_is_first(const hd_place *mine)
{
    return !mine || mine->rank == 0;
}

// Whether ranks are, or may be, on other hosts too.
static inline bool ranks_are_spread(const hd_place *mine)
{
    return mine && mine->local_size != mine->nranks;
}

// All ranks compute and compare the same answers, each at its own pace: others
// are waited for `timeout` seconds and ten times as long as this rank took
// since `start`, by seconds(). That one died is noticed at once; one that was
// stopped says nothing.
void ranks_be_patient(hd_group *group, double timeout, double start);

// The mesh must have as many ranks as there are processes.
outcome ranks_check(const hd_place *place, const hd_module *module);

// Computes what is expected, runs `fn` with `job` as this process's rank, then
// gathers: verdicts on every rank, everything else on rank 0. Says what went
// wrong.
outcome ranks_join(job *job, hd_rank_fn *fn);

#endif
