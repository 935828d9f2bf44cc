// What is at a place and what belongs there: the values of the tensor program
// by number, the places of both programs by name.
#ifndef HD_CHECK_PLACES_H
#define HD_CHECK_PLACES_H

#include "check/evaluate.h"

HD_BEGIN_DECLS

// A value of the tensor program and where it is there first.
typedef struct hd_known {
    uint64_t value;
    int64_t order; // which of several is first
    int64_t at;
} hd_known;

// The statement that makes a tensor, the last of several: NULL and 0 for an
// input.
typedef struct hd_maker {
    const hd_op *op;
    int64_t order; // counted from 1
    bool parts;    // several make it, each a part
} hd_maker;

typedef struct hd_places {
    const hd_evaluation *e; // borrowed
    hd_known *known;        // owned: sorted by value
    int64_t nknown;
    int64_t zero;    // where a value that is 0 is looked for; -1: anywhere
    hd_maker *maker; // owned, by id of a tensor
    // Owned: tensors, and the buffers that hold a rank's places, as they lie.
    const hd_buffer **tensor, **root;
    int64_t ntensors, nroots;
} hd_places;

hd_status hd_places_create(const hd_evaluation *e, hd_places *out);
void hd_places_free(hd_places *places);

// Where the tensor program has the value first; -1 if it never does.
int64_t hd_places_find(const hd_places *places, uint64_t value);
// The tensor that is there, and the statement that makes it, NULL for an input.
const hd_buffer *hd_places_tensor(const hd_places *places, int64_t at);
const hd_op *hd_places_maker(const hd_places *places, int64_t at);
// The buffer of a rank's place.
const hd_buffer *hd_places_root(const hd_places *places, int64_t at);
// By its name the place is where the value belongs: a tensor of that name and
// shape has it there.
bool hd_places_belongs(const hd_places *places, int64_t at, uint64_t value);

// "%a of rank 2", "%ag[2]", "%h[1, 0..64]": an element of the tensor program.
void hd_places_print_tensor(const hd_places *places, int64_t at, hd_text *text);
// The element that has the value.
void hd_places_print_value(const hd_places *places, uint64_t value,
                           hd_text *text);
// A place of a rank, by the name that its bytes were declared with.
void hd_places_print(const hd_places *places, int64_t at, hd_text *text);

HD_END_DECLS

#endif
