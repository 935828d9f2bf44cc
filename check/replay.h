// All ranks executed step by step without data, under the strongest blocking:
// sends wait for their receivers, collectives for all ranks, and a rank's
// transfers start in issue order. What a step waits for never depends on who is
// faster, so if one execution comes to its end all do, and if one is stuck all
// are, at the same steps.
//
// One run is executed: nothing in it waits for the next one, and once it is
// over the next one is like it.
#ifndef HD_CHECK_REPLAY_H
#define HD_CHECK_REPLAY_H

#include "steps/turns.h"

HD_BEGIN_DECLS

// Which launches may begin: any; none; those that are to go on to their end;
// one more of those that keep nothing from starting that is to, or of any, and
// then those again.
typedef enum hd_launches {
    HD_LAUNCHES_ALL,
    HD_LAUNCHES_NONE,
    HD_LAUNCHES_WHOLE,
    HD_LAUNCHES_LAST,
    HD_LAUNCHES_ONE,
} hd_launches;

// How far a replay may go, and whose processors launches have, while it is
// asked what those may keep from starting (check/launch.h).
typedef struct hd_hold {
    hd_launches launches;
    bool exclusive; // while a launch is under way nothing else that takes
                    // processors starts on its rank
    unsigned busy;  // a bit for each axis whose transfers take processors
    int32_t *limit; // by rank and stream: steps before this place may begin
    int32_t *last;  // by rank, twice: transfers before this step may start,
                    // what does not go by NCCL and what does
    int32_t *past;  // by rank and stream: steps before this place are to end
    int32_t *under_way; // by rank: the first step of a launch, -1
} hd_hold;

typedef struct hd_replay {
    hd_schedule schedule; // owned; `held` has the axes that NCCL serves
    hd_turns turns;       // owned: of what goes by NCCL
    // Owned, by rank: of all else no transfer before this step is unstarted.
    int64_t *unstarted;
    hd_hold *hold; // borrowed; NULL: all goes as far as it can
} hd_replay;

// `serial` has a bit for each axis that NCCL serves. A rank's calls of NCCL
// follow one another (steps/turns.h). Whether all came to their end,
// hd_schedule_is_over says.
hd_status hd_replay_run(const hd_graph *graph, unsigned serial, hd_diag *diag,
                        hd_replay *out);
// The same, of which nothing has begun: hd_schedule_run and hd_schedule_resume
// go on with it. It stays where it is, as its schedule refers to it.
hd_status hd_replay_open(const hd_graph *graph, unsigned serial, hd_hold *hold,
                         hd_diag *diag, hd_replay *out);
void hd_replay_free(hd_replay *replay);

// The first step of the launch that keeps a step from starting, -1 if none
// does.
int64_t hd_replay_launch(const hd_replay *replay, int rank, int64_t step);

// The transfer of the same rank, which has not started or has not ended, that
// this one may not start before; of its own group first. -1 if there is none,
// and itself if its stream has not come to it.
int64_t hd_replay_blocker(const hd_replay *replay, int rank, int64_t step);
// Likewise, of its own group alone; not itself.
int64_t hd_replay_ahead(const hd_replay *replay, int rank, int64_t step);

HD_END_DECLS

#endif
