// Which way to lower a program is the fastest, by running those that are
// predicted to be.
#ifndef HEDDLE_TUNE_H
#define HEDDLE_TUNE_H

#include <heddle/simulate.h>

HD_BEGIN_DECLS

enum { HD_TUNE_MOST = 16 }; // candidates

typedef struct hd_tune_options {
    size_t size;
    // What is chosen from; NULL is hd_choose_defaults. Rank 0's counts, but for
    // `transport`, `axes` and `until` of `lower`, which all have alike.
    const hd_choose_options *choose;
    // Of the sessions that runs will have; NULL is hd_session_defaults.
    // `times`, `fixed` and `capturable` are not heeded: nothing is captured
    // here.
    const hd_session_options *session;
    int most;       // candidates that are run, the predicted best: at most
                    // HD_TUNE_MOST
    double seconds; // that runs may take, beside the time to make sessions and
                    // three runs of each
} hd_tune_options;

static inline hd_tune_options hd_tune_defaults(void)
{
    hd_tune_options options = HD_EMPTY(hd_tune_options);

    options.most = 4;
    options.seconds = 2;
    return options;
}

typedef struct hd_tuned {
    size_t size;
    hd_lower_options lower; // as hd_choice_candidate gives it
    double time;            // s: of a run on the slowest rank, the median; 0
                            // where none was run
    double slowest;         // s: likewise, of the slowest one that was run
    double predicted;       // s
    int tried;              // candidates that have run, now or when it was kept
    bool kept;              // an earlier call has found it
} hd_tuned;

// Collective over the group, which has the ranks of the program; the same on
// all of them. Runs the `most` best of what hd_choose lists in turns, on memory
// of its own with random numbers, and takes the fastest. Its answer is kept on
// disk, with kernels and tuned plans (docs/cuda.md), by the library's version,
// the program's text, the kind of the machine, and the options; rank 0 looks
// there first. A program that calls functions or has events is not run, nor one
// of which one candidate is left, or that is given sizes by each run: that is
// what is predicted. A program that no pipeline fits gets a ring, which says
// why. HD_ERROR_ARGUMENT for a program that is complete. It fails on all ranks
// or on none, with HD_ERROR_PEER where another one has failed.
HD_API HD_MUST_USE hd_status hd_tune(hd_group *group, const hd_module *module,
                                     const hd_tune_options *options,
                                     hd_diag *diag, hd_tuned *out);

HD_END_DECLS

#endif
