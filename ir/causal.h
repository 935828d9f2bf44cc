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
// Of a sequence in 2 n chunks block b may be chunks b and 2 n - 1 - b, and so
// may rows: `zigzag` says how many blocks rows are behind keys. The halves are
// chunks, so that the second half of the keys of a block before is behind all
// rows, and that of the rows behind all keys of a block that is not:
//
//     zigzag   rows          keys
//     > 0      all           of the first half, all
//       0      all           as by causal 0
//     < 0      second half   all
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
// What `causal` or `zigzag` is of a block, in the module's expressions;
// HD_EXPR_NONE of an op with neither.
hd_expr hd_causal_of_block(hd_module *module, const hd_op *op, hd_expr block);

// The key that says where rows lie, `causal` or `zigzag`; NULL if none does.
const hd_key *hd_causal_key(const hd_op *op);

// Whether a key of these names the coordinate on an axis.
bool hd_causal_names(const hd_module *module, const hd_op *op, int axis);

// Those of a tensor program's attention that one rank makes.
typedef struct hd_placed {
    int32_t causal[HD_MAX_KEY_BLOCKS]; // hd_causal_eval
    // Per view and dimension that it keeps: the one index of it, or -1 of all.
    int64_t index[HD_MAX_VIEWS][HD_MAX_DIMS];
} hd_placed;

// False where another rank, of a lower number, makes the same, and where the
// key has no value.
bool hd_causal_place(const hd_module *module, const hd_op *op, int64_t rank,
                     hd_placed *out);

HD_END_DECLS

#endif
