// What was written where and when, and what a step has taken it from.
#ifndef HD_CHECK_HISTORY_H
#define HD_CHECK_HISTORY_H

#include "check/evaluate.h"

HD_BEGIN_DECLS

// A step takes the element at `at`, when `event` happens.
typedef struct hd_reading {
    int rank;
    int64_t step;
    int view;
    int64_t at;
    int64_t event;
    uint64_t want; // what should be there
} hd_reading;

// An evaluation has kept its changes; they are put in order once, before all
// that follows.
void hd_history_sort(hd_evaluation *e);
// The last write of the place before the event, NULL if there was none.
const hd_change *hd_history_last(const hd_evaluation *e, int64_t at,
                                 int64_t event);
uint64_t hd_history_value(const hd_evaluation *e, int64_t at, int64_t event);
// Whose place it is.
int hd_history_rank(const hd_evaluation *e, int64_t at);
// The step that wrote, and when: what it read is the caller's to say.
hd_reading hd_history_write(const hd_evaluation *e, const hd_change *change);
// Where a step that moves took what it wrote from; false if it computed it.
// `want` is left as it is.
bool hd_history_source(const hd_evaluation *e, const hd_change *change,
                       hd_reading *out);

HD_END_DECLS

#endif
