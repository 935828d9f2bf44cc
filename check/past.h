// What has ended on a rank when one of its steps starts, also by way of other
// ranks: what hd_order_each leaves out. All ranks are executed once, which
// counts how deep each step is; what a rank is then asked for is looked up in
// the steps that are deeper than what it asks about.
#ifndef HD_CHECK_PAST_H
#define HD_CHECK_PAST_H

#include "check/depth.h"
#include "check/order.h"

HD_BEGIN_DECLS

typedef struct hd_past_event {
    int32_t rank;
    int32_t number;
} hd_past_event;

typedef struct hd_past {
    const hd_graph *graph; // borrowed
    hd_depth depth;        // owned
    // Of the rank that is visited.
    const hd_watch *watch; // borrowed
    int width;             // of a clock
    int32_t *column;       // owned, by loose send: its place in a clock
    int32_t *column_of;    // owned, by rank and stream: the same of a stream
                           // that receives loose sends, 0 for none
    int32_t *own;          // owned: what the rank decides alone, by step
    int64_t *order;        // owned: the order in which it is visited
    int32_t *known;        // owned, by stream: clocks that it has learned
    int32_t *clock;        // owned: that of the step that is visited
    int64_t step;          // that step
    // Clocks that have been found, and the most recent of each event.
    int32_t *found;       // owned, by event: its number + 1, 0 is none
    int32_t *kept;        // owned: a bound, and a clock that is right above it
    hd_past_event *event; // owned: of each one
    int64_t nkept, kept_room, events_room;
    bool full; // no more are found
    // Of the search that is under way.
    hd_past_event *stack; // owned
    int64_t nstack, stack_room;
    int64_t bound;
    int32_t *sum; // owned
    bool lacks;
    int64_t *visits; // borrowed: grows with each step that is looked at
    hd_diag *diag;
    hd_status status;
} hd_past;

// The graph's program does not deadlock. `visits` grows by the work that is
// done, here and later.
hd_status hd_past_create(const hd_graph *graph, int64_t *visits, hd_diag *diag,
                         hd_past *out);
void hd_past_free(hd_past *past);

// Visits the steps of both runs, each after all that precede it. Clocks have
// what the rank decides alone, as hd_order_each has it, and counts of loose
// sends behind it. HD_ERROR_UNSUPPORTED, without a word, if they would be too
// many.
hd_status hd_past_each(hd_past *past, const hd_watch *watch);

// Called by `fn`, or for what was visited last: completes the clock that it was
// given with what has come by way of peers, of steps (or HD_RUN_END) that are
// as deep as `since`, or deeper. Where that would take too much memory the
// clock stays as it is.
hd_status hd_past_learn(hd_past *past, int64_t since);

// Goes back to a step, or HD_RUN_END, with what the rank decides alone.
const int32_t *hd_past_go(hd_past *past, int64_t step);

// Whether the clock knows that the peer has received a loose send.
bool hd_past_is_received(const hd_past *past, int64_t send);

HD_END_DECLS

#endif
