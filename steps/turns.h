// In which order a rank's transfers go over NCCL: call by call, as they were
// issued, on whichever streams and along whichever axes, each when the one
// before it has ended. A group is several calls, turn by turn: axis by axis,
// and of an axis each collective, then in one call all that is sent and
// received. What of it does not go by NCCL comes last.
//
// `held` of the schedule has the axes that NCCL serves.
#ifndef HD_STEPS_TURNS_H
#define HD_STEPS_TURNS_H

#include "steps/schedule.h"

HD_BEGIN_DECLS

// How far the members of a group have come, in the order of their turns, and of
// a turn as they are issued. It only moves forward, so that large groups take
// time in proportion to their size.
typedef struct hd_front {
    int64_t head, end; // of the group: its first member, and past its last one
    int turn;
    int64_t at; // the first member of the turn that has not come so far
} hd_front;

typedef struct hd_turns {
    int n;             // of a group, by NCCL
    int64_t *undone;   // owned, by rank: of what NCCL serves all before this
                       // step has ended
    hd_front *ended;   // owned, by rank and stream: of the group it has come to
    hd_front *started; // owned, by rank: of the group whose turn it is
} hd_turns;

hd_status hd_turns_open(const hd_graph *graph, hd_diag *diag, hd_turns *out);
void hd_turns_close(hd_turns *turns);

// Of what NCCL serves of a rank the next step that may start now; -1 if there
// is none. The caller starts it by hd_schedule_meet before it asks again.
int64_t hd_turns_next(hd_turns *turns, const hd_schedule *schedule, int rank);
// A member of the step's own group that has to end before it may start; -1 if
// there is none. Of a transfer of any kind.
int64_t hd_turns_ahead(const hd_turns *turns, const hd_schedule *schedule,
                       int rank, int64_t step);

static inline bool hd_turns_serve(const hd_schedule *schedule,
                                  const hd_node *node)
{
    return (schedule->held >> node->op->axis & 1) != 0;
}

HD_END_DECLS

#endif
