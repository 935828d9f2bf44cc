// The memory that programs are evaluated on: numbers of the field in one array,
// and what an op does to them.
#ifndef HD_CHECK_VALUE_H
#define HD_CHECK_VALUE_H

#include "check/draw.h"
#include "check/grain.h"
#include "eval/compute.h"

HD_BEGIN_DECLS

// A write, as it is kept to say later where a value came from.
typedef struct hd_change {
    int64_t at;
    int64_t event; // when: counts what happens
    int64_t node;  // of the graph: the step that wrote
    uint64_t before, value;
} hd_change;

// A number of 256ths, the greatest or the least one, if there is any.
typedef struct hd_best {
    bool any;
    int64_t number;
} hd_best;

// The maximum, or minimum, of several: any of them in any order, so `of` is the
// sum of a random function of each that is no known number, and `value` a
// random function of that and of the best of those that are.
typedef struct hd_maximum {
    uint64_t value, of;
    hd_best best;
    hd_fold fold;
} hd_maximum;

typedef struct hd_values {
    const hd_draw *draw; // borrowed
    uint64_t *value;     // owned
    int64_t n;
    hd_maximum *maximum; // owned: hashed by value; 0 is free
    int64_t nmaxima, maxima_room;
    bool keep;         // changes
    hd_change *change; // owned
    int64_t nchanges, changes_room;
    int64_t event, node; // of the changes being made
    int64_t nwrites;     // elements
    hd_diag *diag;       // borrowed
    hd_status status;    // the first that was not HD_OK
} hd_values;

// Random numbers, another each, and others by another key.
hd_status hd_values_create(const hd_draw *draw, int64_t n, uint64_t key,
                           hd_diag *diag, hd_values *out);
void hd_values_free(hd_values *values);
void hd_values_put(hd_values *values, int64_t at, uint64_t value);

// What a cast makes of it: itself, where that loses nothing, as of zero.
uint64_t hd_value_convert(hd_dtype from, hd_dtype to, uint64_t x);

// A random function of all counts, and of how many there is room for.
uint64_t hd_values_counts(const hd_values *values, uint64_t room,
                          hd_span counts);
// Of memories that are hd_values.
extern const hd_algebra hd_field;

// How many terms all its results have together.
double hd_compute_work(const hd_work_item *item);

// Which element of the result it is that lies there, or, of an op that
// does a batch, which of that; -1 if none does. What `aux` keeps is none.
int64_t hd_compute_find(const hd_work_item *item, int64_t at);
// What element `i` of a result is made of: of each view so many terms, those of
// the contracted or reduced dimension, and where the k-th of them lies.
int64_t hd_compute_terms(const hd_work_item *item, int view);
int64_t hd_compute_place(const hd_work_item *item, int64_t i, int view,
                         int64_t k);
// The op moves elements and does nothing to them.
bool hd_op_is_move(const hd_op *op);

HD_END_DECLS

#endif
