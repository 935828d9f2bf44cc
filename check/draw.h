// What two programs are evaluated on: values of inputs and, where the programs
// have them, what counts count and how long the run is. Where neither depends
// on such there is one draw, as numbers of the field tell all else apart; else
// there are some that are sure to be there, as all and none, and others at
// random. docs/checking.md has what they show.
#ifndef HD_CHECK_DRAW_H
#define HD_CHECK_DRAW_H

#include "check/mask.h"

HD_BEGIN_DECLS

enum { HD_MOST_VALUES = 128 }; // of a size that runs are given

// How many indices counts count.
typedef enum hd_counted {
    HD_COUNTED_ALL,
    HD_COUNTED_ALL_BUT_ONE,
    HD_COUNTED_HALF,
    HD_COUNTED_ONE,
    HD_COUNTED_NONE,
    HD_COUNTED_EACH,     // in turn each number
    HD_COUNTED_TOGETHER, // in turn each combination of numbers
    HD_COUNTED_ANY,      // of three one none, one all and one some
    HD_COUNTED_FEW,      // most of them none
    HD_COUNTED_MANY,     // most of them all
} hd_counted;

typedef struct hd_draw {
    uint64_t seed;  // another one in each draw
    uint64_t whose; // the same one in all draws
    bool random;    // not all of it is sure
    bool counts;    // something is counted
    hd_counted counted;
    uint64_t turn; // of those that go in turn
    // Borrowed: of how many indices the dimensions are that computed values
    // count, each number once.
    const int64_t *room;
    int64_t nrooms;
    const int64_t *place; // borrowed
    int64_t nplaces;
    int64_t size[HD_MAX_SIZES]; // of the run
} hd_draw;

typedef struct hd_draws {
    uint64_t seed;
    // First those that are sure, then those that go in turn, then the random.
    int n, nsure, nturns;
    bool together; // those in turn are combinations, and all that there are
    bool counts;
    int64_t widest; // of how many indices counted dimensions are, at most
    int64_t *room;  // owned
    int64_t nrooms, rooms_room;
    int64_t *place; // owned: where views begin and end, ascending
    int64_t nplaces, places_room;
    int nsizes;
    int known; // of a size that has more values: how many are not drawn
    int64_t size[HD_MAX_SIZES][HD_MOST_VALUES]; // values of each
    int nvalues[HD_MAX_SIZES];
    int64_t blocks[HD_MAX_SIZES]; // that it is cut into, from 1
    int64_t least[HD_MAX_SIZES];
    hd_masks masks; // owned: where what a run says is what rows see
} hd_draws;

// Of 0 a seed is drawn, too.
hd_status hd_draws_create(const hd_graph *graph, const hd_module *tensor,
                          uint64_t seed, hd_diag *diag, hd_draws *out);
void hd_draws_free(hd_draws *draws);
hd_draw hd_draws_get(const hd_draws *draws, int number);

// How many indices an input counts at most in any of the two programs, of all
// that it counts: more would be told of. 0 if it is none or counts nothing.
int64_t hd_draw_room(const hd_module *host, const hd_module *tensor,
                     const hd_buffer *input);
// Random numbers, another for each x.
uint64_t hd_draw_number(const hd_draw *draw, uint64_t x);
// How many of `room` indices the x-th of counts counts.
int64_t hd_draw_count(const hd_draw *draw, uint64_t x, int64_t room);
// The same of inputs, one after the other: `turn` begins as the draw's.
int64_t hd_draw_next(const hd_draw *draw, uint64_t x, int64_t room,
                     uint64_t *turn);
// How many indices a value counts, more than there are for all: itself if it is
// a whole number, and else, as a function of the value, any number.
int64_t hd_draw_counted(const hd_draw *draw, uint64_t value);

HD_END_DECLS

#endif
