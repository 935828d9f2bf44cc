// Where the rows of an attention lie among its keys. In a host program a rank
// says it of its own rows; in a tensor program `causal` may name coordinates,
// of axes that the batch of the result is sharded over, an index a rank: then
// it is said of each index by itself.
//
//     %o, %l = attention %q, %k, %v causal cp * 128    // %o : f32[4@cp, ..]
//
// Of keys in blocks it is said of the first block, and `step` of how much more
// it is of each next one: as many keys less where nothing else is said.
//
// `window n` by itself is to both sides of where rows lie: keys that are less
// than n before a row or behind it. It is short for `causal` with as many keys
// more and a `window` of both sides, which is what a module has:
//
//     window n               causal n - 1 window 2 * n - 1
//     blocks window n        causal cp * Sk + n - 1 window 2 * n - 1
//
// Of a sequence in 2 n chunks block b may be chunks b and 2 n - 1 - b, and so
// may rows: `zigzag` says how many blocks rows are behind keys. Keys of a block
// stand in the sequence's order, so that a row sees some in a row of them, as
// of other blocks: those up to its own place, or the last ones of these. The
// halves are chunks, so that without a window the second half of the keys of a
// block before is behind all rows, and that of the rows behind all keys of a
// block that is not:
//
//     zigzag   rows          keys
//     > 0      all           of the first half, all
//       0      all           as by causal 0
//     < 0      second half   all
//
// With a window each half meets halves as rows meet keys by `causal`: the first
// half of the rows sees none of the second of the keys of any block.
#ifndef HD_IR_CAUSAL_H
#define HD_IR_CAUSAL_H

#include "ir/walk.h"

HD_BEGIN_DECLS

#define HD_MAX_KEY_BLOCKS 4096

// What a step whose key says `offset` has as hd_step's `causal`: a mask.
int32_t hd_causal_of(int64_t offset);

// How many blocks the keys of a tensor program's attention are in: 1 without
// `blocks`.
int64_t hd_causal_blocks(const hd_op *op);
// What a step has of each block as `causal`, or what `zigzag` is of each. False
// where a key has no value, or that of a block has none.
bool hd_causal_eval(const hd_module *module, const hd_op *op, const hd_env *env,
                    int32_t out[HD_MAX_KEY_BLOCKS]);
// Whether hd_causal_eval is true in every run.
bool hd_causal_is_bounded(const hd_module *module, const hd_op *op,
                          const hd_env *env);
// Whether what runs are given says where rows lie among the keys of a step.
bool hd_causal_is_sized(const hd_module *module, const hd_op *op);
// What `causal` or `zigzag` is of a block, in the module's expressions;
// HD_EXPR_NONE of an op with neither.
hd_expr hd_causal_of_block(hd_module *module, const hd_op *op, hd_expr block);

// Says where rows lie of an op that has a window, or sequences and blocks, and
// does not say it.
hd_status hd_causal_complete(hd_module *module, hd_op *op, hd_diag *diag);

// In how many parts rows meet the keys of a block: 1, or by a window in zigzag
// halves meet halves.
int hd_causal_parts(const hd_op *op);
// Which halves are in a part: 0 the first, 1 the second.
int hd_causal_half(int part, bool of_keys);
// What `causal` is of a part of a block; hd_causal_of_block of the only one.
hd_expr hd_causal_of_part(hd_module *module, const hd_op *op, hd_expr block,
                          int part);

// Of an op with the key GROUPS: how many rows its sequences have together, and
// of a part of a block the numbers among them of the first row and the first
// key, in the module's expressions.
hd_expr hd_causal_room(hd_module *module, const hd_op *op);
int64_t hd_causal_room_now(const hd_module *module, const hd_op *op);
hd_expr hd_causal_row(hd_module *module, const hd_op *op, int part);
hd_expr hd_causal_first_key(hd_module *module, const hd_op *op, hd_expr block,
                            int part);
// The same as a step has them, of the first block; but in zigzag `row`, which
// has no one number. False where a key has no value. Of an op without that key
// all are 0.
bool hd_causal_among(const hd_module *module, const hd_op *op,
                     const hd_env *env, hd_among *out);
// Whether what a key says of it is one of these numbers, in every run.
bool hd_causal_fits_among(const hd_module *module, const hd_key *key,
                          const hd_env *env);

// Whether an op says where rows or keys of its sequences are, or how many these
// have.
bool hd_causal_is_said_among(const hd_op *op);

// Whether a key says where rows and keys of sequences are among these; or that,
// or where rows lie among keys: what runs are given may say it.
bool hd_causal_is_among(hd_key_code code);
bool hd_causal_is_place(hd_key_code code);

// The key that says where rows lie, `causal` or `zigzag`; NULL if none does.
const hd_key *hd_causal_key(const hd_op *op);

// Whether a key of these names the coordinate on an axis.
bool hd_causal_names(const hd_module *module, const hd_op *op, int axis);

// Those of a tensor program's attention that one rank makes.
typedef struct hd_placed {
    int32_t causal[HD_MAX_KEY_BLOCKS]; // hd_causal_eval
    hd_among among;                    // hd_causal_among
    // Per view and dimension that it keeps: the one index of it, or -1 of all.
    int64_t index[HD_MAX_VIEWS][HD_MAX_DIMS];
} hd_placed;

// False where another rank, of a lower number, makes the same, and where the
// key has no value.
bool hd_causal_place(const hd_module *module, const hd_op *op, int64_t rank,
                     hd_placed *out);

// The dimension of an operand that its rows, or its keys, are.
hd_dim hd_causal_line(const hd_view *view);

// Which keys each row of an attention sees.
typedef struct hd_sight {
    const int32_t *causal; // of each block of keys, as hd_step has it
    int64_t blocks;     // in zigzag: how many there are, and of each `causal`
                        // says how many blocks rows are behind it; else 0
    int64_t window;     // 0: none
    int64_t rows, keys; // keys in a block
    hd_among among;     // of sequences, as hd_step has it
} hd_sight;

// Of a step, which outlives it: of all rows and keys that its spans have.
hd_sight hd_sight_of(const hd_step *step);
// Of so many rows and keys, but where these lie among each other.
hd_sight hd_sight_of_op(const hd_op *op, int64_t rows, int64_t keys);
// Of a block in zigzag likewise, of a sequence.
void hd_sight_zigzag(const hd_sight *sight, int64_t row, int64_t block,
                     int64_t *from, int64_t *past);
// Row `row` sees keys [from, past) of a block; none where from >= past. Asked
// of each pair of a row and a key.
static inline void hd_sight_keys(const hd_sight *sight, int64_t row,
                                 int64_t block, int64_t *from, int64_t *past)
{
    int64_t causal = sight->causal[block], end = row + causal + 1;

    if (sight->blocks > 0) {
        hd_sight_zigzag(sight, row, block, from, past);
        return;
    }
    *from = 0;
    *past = sight->keys;
    if (causal == HD_SEES_ALL)
        return;
    if (end < *past)
        *past = end;
    if (sight->window > 0 && end > sight->window)
        *from = end - sight->window;
}

// The numbers of a row, and of a key of a block, among those of all sequences.
int64_t hd_sight_row(const hd_sight *sight, int64_t row);
int64_t hd_sight_key(const hd_sight *sight, int64_t block, int64_t key);
// Narrows [from, past) to keys of the block whose numbers are in [first, end).
void hd_sight_within(const hd_sight *sight, int64_t first, int64_t end,
                     int64_t block, int64_t *from, int64_t *past);

// Of the only block, and without zigzag: which keys some of `n` rows see lie in
// [from, past), likewise.
void hd_sight_tile(const hd_sight *sight, int64_t row, int64_t n, int64_t *from,
                   int64_t *past);
// Whether each row sees all keys.
bool hd_sight_is_whole(const hd_sight *sight);
// Some row sees a key where what `causal` says is in [least, past).
void hd_sight_range(const hd_sight *sight, int64_t *least, int64_t *past);

HD_END_DECLS

#endif
