// Counts of a dimension: of `%x : bf16[e, cap by %n, k]` only the first `%n[i]`
// rows of index i hold anything. Counts are data, read when a step runs: what
// is issued and proven is of all the rows that there is room for.
//
// An op that has a view of such a buffer reads the counts, as its key COUNTS
// says, which no text has: the index of each of their dimensions is that of the
// view. They lie along the op as the view's own dimensions do, so that whatever
// asks who reads what, and of where, sees them. A step is done slab by slab, an
// index of the counts each, as if it had the rows alone that the count says. An
// attention has counts of its keys, too, and is done element by element of its
// batch, or sequence by sequence.
#ifndef HD_IR_COUNTS_H
#define HD_IR_COUNTS_H

#include "ir/space.h"

HD_BEGIN_DECLS

// Gives the op the key if a view asks for it, instead of the one it has.
void hd_op_add_counts(hd_module *module, hd_op *op);
void hd_module_add_counts(hd_module *module);

// A step with the key COUNTS, apart: each slab is of one count. Where a fold is
// over a dimension that they have, each index of it has a count of its own: a
// slab has these counts, and each of its elements is folded of the indices that
// count it.
typedef struct hd_slabs {
    const hd_step *step;
    int view; // the counts
    int64_t n;
    int64_t room;   // how many indices there are of the dimension
    int folded;     // the counts' dimension that is folded; -1: none is
    int64_t counts; // of a slab: how many it has, perhaps none; 1 if none is
    int64_t apart;  // from one of these to the next
    hd_span first;  // of each slab the first count
    hd_space space;
} hd_slabs;

hd_slabs hd_slabs_of(const hd_step *step);
// Which element of the counts' buffer has the first count of slab `i`.
int64_t hd_slab_count(const hd_slabs *slabs, int64_t i);
// The step's views of slab `i`, with indices [from, end) of the dimension, and
// all of what is folded.
void hd_slab_spans(const hd_slabs *slabs, int64_t i, int64_t from, int64_t end,
                   hd_span out[HD_MAX_VIEWS]);
// Whether view `v` has indices behind those counted to which nothing is written
// but zeros.
bool hd_slabs_clear(const hd_slabs *slabs, int v);

// How many rows an attention has of each element of its batch, which counts of
// the first dimensions say: by COUNTS of its rows, by COUNTS_OF_KEYS of its
// keys. Each element is done as if it had the rows and the keys alone that are
// counted.
typedef struct hd_row_counts {
    const hd_step *step;
    int view;       // the counts; -1: there are as many as there is room for
    int64_t n;      // counts
    int64_t room;   // rows
    int64_t blocks; // of keys, which have a count each; 1 if all have one
    hd_space space;
} hd_row_counts;

hd_row_counts hd_row_counts_of(const hd_step *step, hd_key_code code);
// Which is the first count that element `b` of the batch has, and which element
// of the counts' buffer count `i` is.
int64_t hd_row_counts_number(const hd_row_counts *counts, int64_t b);
int64_t hd_row_counts_at(const hd_row_counts *counts, int64_t i);

// The rows, and the keys, of an attention with the key GROUPS: of each element
// of its batch some of sequences one behind the other, of which each attends to
// itself.
typedef struct hd_sequences {
    const hd_span *counts; // borrowed: the step's; NULL: the step has no key
    int64_t n, each;       // counts, and those of an element of the batch
    int64_t room;          // rows that these have together, at most
    int64_t row, key;      // the numbers among these of the step's first ones
    int64_t beside;        // elements of the batch that have the same counts
} hd_sequences;

hd_sequences hd_sequences_of(const hd_step *step);
// Which is the first count that element `b` of the batch has, and which element
// of the counts' buffer count `i` is.
int64_t hd_sequences_number(const hd_sequences *sequences, int64_t b);
int64_t hd_sequences_at(const hd_sequences *sequences, int64_t i);

// What a transfer with the key COUNTS moves of its operand, or of the piece of
// it that goes to rank `piece` of a line: the first rows of slabs, which lie
// one behind the other, as many of each as its count says.
//
//     piece   [slab 0: counted | behind][slab 1: counted | behind] ..
typedef struct hd_rows {
    const hd_span *counts; // borrowed: the step's
    int dim;               // of the operand's span: the one that is counted
    int64_t n, room, row;  // slabs, rows that a slab has, elements of a row
    int64_t first, each; // slab of the operand it begins with; a count's slabs
} hd_rows;

// Which piece of its operand a transfer moves to a rank; -1 where that is all.
int64_t hd_rows_piece(const hd_module *module, const hd_op *op, int rank);
// `piece` is -1 of all of the operand.
hd_rows hd_rows_of(const hd_step *step, int64_t piece);
// Which count of those that the step reads slab `i` has, and which element of
// the counts' buffer that is.
int64_t hd_rows_number(const hd_rows *rows, int64_t i);
int64_t hd_rows_count(const hd_rows *rows, int64_t i);

HD_END_DECLS

#endif
