// Processes for ranks: forked here, or started by a launcher such as torchrun.
#ifndef HEDDLE_LAUNCH_H
#define HEDDLE_LAUNCH_H

#include <heddle/heddle.h>

HD_BEGIN_DECLS

// Forks `nranks` processes on this host, calls `fn` in each and waits for all.
// They wait `timeout` seconds at most for each other to connect. When one dies
// or returns other than HD_OK the rest are given one second and then killed.
// Returns HD_OK if every rank did, else the status of the first that did not
// (HD_ERROR_PEER if a signal ended it, HD_ERROR_ARGUMENT if it returned what is
// no status). Ranks that still run after `deadline` seconds are killed, and it
// is HD_ERROR_TIMEOUT; one that is not above 0 means none. No process outlives
// the caller. Must be called while the process has one thread.
typedef hd_status hd_rank_fn(void *context, hd_group *group);
HD_API HD_MUST_USE hd_status hd_launch(int nranks, double timeout,
                                       double deadline, hd_rank_fn *fn,
                                       void *context, hd_diag *diag);

// Where a launcher (torchrun, Open MPI, PMI, Slurm) has put this process, as
// its environment says: docs/launch.md.
typedef struct hd_place {
    size_t size;
    const char *launcher; // "Open MPI"; NULL in messages is "this place"
    int rank, nranks;
    int local_rank, local_size; // among the ranks of this host; -1 and 0 where
                                // the launcher does not say
    uint64_t job;               // the same on all ranks of one launch
    char address[272];          // "host:port" where rank 0 is to be found, ""
                                // for a Unix socket within one host
} hd_place;

// Finds no place where no launcher has started this process: `found` says so.
// HD_ERROR_ARGUMENT for variables that are there in part, are no numbers, or
// contradict each other.
HD_API HD_MUST_USE hd_status hd_place_find(hd_diag *diag, bool *found,
                                           hd_place *out);

// Collective over the ranks that a launcher has started, on any hosts: connects
// each to rank 0, through which they then gather. `timeout`, in seconds, bounds
// this and every allgather, whose message goes to `diag`.
typedef struct hd_boot hd_boot;

HD_API HD_MUST_USE hd_status hd_boot_connect(const hd_place *place,
                                             double timeout, hd_diag *diag,
                                             hd_boot **out);
HD_API void hd_boot_destroy(hd_boot *boot);
HD_API const hd_oob *hd_boot_oob(const hd_boot *boot); // lives as long

// Collective likewise: a group of these ranks, which the caller destroys, with
// a connection that is there for as long as this takes.
HD_API HD_MUST_USE hd_status hd_group_join(const hd_place *place,
                                           double timeout, hd_diag *diag,
                                           hd_group **out);

// What hd_launch does in each of its processes, in one that a launcher has
// started: joins the group, calls `fn`, and tells the others if it fails.
// Ranks may be on several hosts.
HD_API HD_MUST_USE hd_status hd_join(const hd_place *place, double timeout,
                                     hd_rank_fn *fn, void *context,
                                     hd_diag *diag);

HD_END_DECLS

#endif
