// Attention, merges and gradients, of any algebra: which rows meet which keys,
// and in which order; what a row makes of them is the algebra's.
#ifndef HD_EVAL_ATTEND_H
#define HD_EVAL_ATTEND_H

#include "eval/evaluate.h"
#include "ir/causal.h"

HD_BEGIN_DECLS

// One sequence of several, by the numbers that rows have among those of all;
// none of no sequence.
typedef struct hd_sequence {
    int64_t from, past;
} hd_sequence;

// An element of a batch. Keys may be in blocks: views are of the first one.
typedef struct hd_attention {
    const hd_step *step; // borrowed
    int q;               // the number of the queries' view, before the keys
    int64_t depth, wide; // columns of keys, and of values
    int64_t nkeys;       // of all blocks
    int64_t group;       // heads of queries a head of keys
    hd_span view[HD_ATTEND_VIEWS];
    int64_t nblocks;
    int64_t apart[HD_ATTEND_VIEWS]; // of a view a block from the next
    hd_sight sight;
    int64_t rows;                    // how many are counted
    int64_t keys[HD_MAX_KEY_BLOCKS]; // likewise, of each block
    const hd_sequence *sequence;     // borrowed, by row; NULL of one, or where
                                     // which rows are of which is not known
    int64_t together; // with `sequence`: how many rows they all have
    bool updates;     // results hold what others made
} hd_attention;

// `own` is the algebra's. Blocks and their keys are numbered.
typedef struct hd_attend_rows {
    void (*begin)(void *own, int64_t b); // an element of the batch
    // A row of an attention, or of a merge.
    void (*row)(void *own, int64_t head, int64_t row);
    // Gradients: sums of the keys of a head, to which rows of some heads add;
    // each row meets keys unless `begin_row` says that it has none.
    void (*begin_keys)(void *own, int64_t head);
    bool (*begin_row)(void *own, int64_t head, int64_t row);
    void (*meet)(void *own, int64_t block, int64_t key);
    void (*end_row)(void *own, int64_t head, int64_t row);
    void (*end_head)(void *own); // of rows; may be NULL
    void (*end_key)(void *own, int64_t head, int64_t block, int64_t key);
} hd_attend_rows;

// Without what differs from element to element of the batch.
hd_attention hd_attention_of(const hd_step *step);
// Element by element of its batch.
void hd_attend_all(hd_attention *a, const hd_algebra *algebra, void *memory,
                   const hd_attend_rows *attend, void *own);

// The counts of the sequences of an element of the batch, whose first
// dimensions they have.
hd_span hd_attention_counts(const hd_step *step, int64_t b);
// Which keys of a block a row sees.
void hd_attention_sees(const hd_attention *a, int64_t row, int64_t block,
                       int64_t *from, int64_t *past);

static inline bool hd_attention_has_row(const hd_attention *a, int64_t row)
{
    return row < a->rows &&
           (a->sequence == NULL || hd_sight_row(&a->sight, row) < a->together);
}

// Where a row of a view is.
static inline int64_t hd_attention_row(const hd_attention *a, int view,
                                       int64_t head, int64_t row)
{
    const hd_span *span = &a->view[view];

    return span->offset + head * span->stride[0] + row * span->stride[1];
}

static inline int64_t hd_attention_key(const hd_attention *a, int view,
                                       int64_t head, int64_t block, int64_t key)
{
    return hd_attention_row(a, view, head, key) + block * a->apart[view];
}

// The number of a block's key among all of a head's.
static inline int64_t hd_attention_number(const hd_attention *a, int64_t block,
                                          int64_t key)
{
    return block * a->view[a->q + 1].extent[1] + key;
}

HD_END_DECLS

#endif
