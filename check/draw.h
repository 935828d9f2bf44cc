// What two programs are evaluated on: values of inputs and, where the programs
// have them, what counts count and how long the run is. Where neither depends
// on such there is one draw, as numbers of the field tell all else apart; else
// there are some that are sure to be there, as all and none, and others at
// random. docs/checking.md has what they show.
#ifndef HD_CHECK_DRAW_H
#define HD_CHECK_DRAW_H

#include "ir/module.h"

HD_BEGIN_DECLS

enum {
    HD_MOST_DRAWS = 48,
    HD_MOST_ROOMS = 8,
};

// How many indices counts count.
typedef enum hd_counted {
    HD_COUNTED_ALL,
    HD_COUNTED_ALL_BUT_ONE,
    HD_COUNTED_HALF,
    HD_COUNTED_ONE,
    HD_COUNTED_NONE,
    HD_COUNTED_FEW,  // most of them none
    HD_COUNTED_MANY, // most of them all
    HD_COUNTED_ANY,  // of three one none, one all and one some
} hd_counted;

typedef struct hd_draw {
    uint64_t seed; // another one in each draw
    bool random;   // not all of it is sure
    hd_counted counted;
    // Of how many indices the counted dimensions are, some of these numbers;
    // none if nothing is counted.
    int64_t room[HD_MOST_ROOMS];
    int nrooms;
    int64_t size[HD_MAX_SIZES]; // of the run
} hd_draw;

typedef struct hd_draws {
    uint64_t seed;
    int n;
    int64_t room[HD_MOST_ROOMS];
    int nrooms;
    int nsizes;
    int64_t size[HD_MAX_SIZES][HD_MOST_DRAWS]; // values of each
    int nvalues[HD_MAX_SIZES];
} hd_draws;

// Of 0 a seed is drawn, too.
hd_draws hd_draws_of(const hd_module *host, const hd_module *tensor,
                     uint64_t seed);
hd_draw hd_draws_get(const hd_draws *draws, int number);

// Random numbers, another for each x.
uint64_t hd_draw_number(const hd_draw *draw, uint64_t x);
// How many of `room` indices the x-th of counts counts.
int64_t hd_draw_count(const hd_draw *draw, uint64_t x, int64_t room);
// How many indices a value counts, more than there are for all: itself if it is
// a whole number, and else, as a function of the value, any number.
int64_t hd_draw_counted(const hd_draw *draw, uint64_t value);

HD_END_DECLS

#endif
