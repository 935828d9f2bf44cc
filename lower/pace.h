// How long a program takes, as `place` judges it: in bytes that links move
// meanwhile. Statements follow each other, and links are free while something
// is computed. What a statement needs may have moved then, as far back as it
// was there; what is left of it is waited for. What nothing needs yet moves
// while later statements are computed.
#ifndef HD_LOWER_PACE_H
#define HD_LOWER_PACE_H

#include "heddle/heddle.h"

HD_BEGIN_DECLS

typedef struct hd_pace {
    int64_t now;    // when what comes next may begin
    int64_t free;   // of that, while links moved nothing that was waited for
    int64_t lent;   // of `free`, while they moved what nothing needed yet
    int64_t owed;   // of that, what has yet to move
    int64_t serial; // what all takes one after the other
} hd_pace;

// While something is computed as much moves, for that.
void hd_pace_compute(hd_pace *pace, int64_t work, int64_t moves);
// How much could have moved by now of what is there since `since`.
int64_t hd_pace_hides(const hd_pace *pace, int64_t bytes, int64_t since);
// Something is needed that has to move, and is there since `since`. Returns
// what of it was waited for.
int64_t hd_pace_await(hd_pace *pace, int64_t bytes, int64_t since);
// Likewise, of something that is not needed yet.
int64_t hd_pace_owe(hd_pace *pace, int64_t bytes, int64_t since);
// Something is needed that arrives at `when`, of what is owed.
void hd_pace_wait(hd_pace *pace, int64_t when);
// When all has arrived.
int64_t hd_pace_end(const hd_pace *pace);

HD_END_DECLS

#endif
