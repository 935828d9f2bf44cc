// Operations: what ops.def says of each, and one instance in a program.
#ifndef HD_IR_OP_H
#define HD_IR_OP_H

#include "ir/expr.h"
#include "ir/type.h"

HD_BEGIN_DECLS

typedef enum hd_opcode {
#define HD_OP(code, ...) HD_OP_##code,
#include "ir/ops.def"
    HD_NOPS
} hd_opcode;

// What ops of one kind have in common. A `switch` over these, or over the ops
// of one family, has no `default`: the compiler finds what a new row misses.
typedef enum hd_family {
    HD_FAMILY_COPY,      // the same elements, perhaps as another dtype
    HD_FAMILY_MAP,       // each element of the operands' elements there
    HD_FAMILY_FOLD,      // operands, or the indices of a dimension, joined
    HD_FAMILY_TRANSPOSE, // dimensions change places
    HD_FAMILY_TAKE,      // indices of a dimension that other data say
    HD_FAMILY_IOTA,      // which index each element has
    HD_FAMILY_PRODUCT,   // a matmul and what follows it
    HD_FAMILY_PICK,      // data decides what goes where
    HD_FAMILY_ATTEND,    // means by weights that add up
    HD_FAMILY_CALL,      // what a function of the caller's makes of operands
    HD_FAMILY_MOVE,      // between ranks
    HD_FAMILY_SYNC,      // orders streams
} hd_family;

// The ops of family MAP, and how those of FOLD join two elements; NONE for
// those of other families.
typedef enum hd_map {
    HD_MAP_NONE,
#define HD_OP(...)
#define HD_MAP(code, ...) HD_MAP_##code,
#include "ir/ops.def"
} hd_map;

typedef enum hd_fold {
    HD_FOLD_NONE,
#define HD_OP(...)
#define HD_FOLD(code, ...) HD_FOLD_##code,
#include "ir/ops.def"
} hd_fold;

typedef enum hd_pick {
    HD_PICK_NONE,
#define HD_OP(...)
#define HD_PICK(code, ...) HD_PICK_##code,
#include "ir/ops.def"
} hd_pick;

typedef enum hd_attend {
    HD_ATTEND_NONE,
#define HD_OP(...)
#define HD_ATTEND(code, ...) HD_ATTEND_##code,
#include "ir/ops.def"
} hd_attend;

typedef enum hd_move {
    HD_MOVE_NONE,
#define HD_OP(...)
#define HD_MOVE(code, ...) HD_MOVE_##code,
#include "ir/ops.def"
} hd_move;

typedef enum hd_sync {
    HD_SYNC_NONE,
#define HD_OP(...)
#define HD_SYNC(code, ...) HD_SYNC_##code,
#include "ir/ops.def"
} hd_sync;

typedef enum hd_key_code {
#define HD_KEY(code, ...) HD_KEY_##code,
#include "ir/ops.def"
    HD_NKEYS
} hd_key_code;

typedef enum hd_level {
    HD_LEVEL_TENSOR = 1,
    HD_LEVEL_HOST = 2,
    HD_LEVEL_BOTH = 3,
} hd_level;

typedef enum hd_unit {
    HD_UNIT_COMPUTE,
    HD_UNIT_TRANSFER,
    HD_UNIT_SYNC,
} hd_unit;

typedef enum hd_value_kind {
    HD_VALUE_FLAG,
    HD_VALUE_EXPR,
    HD_VALUE_READ,
    HD_VALUE_WRITE,
    HD_VALUE_EVENT,
    HD_VALUE_FACTOR,
    HD_VALUE_LEFT,
    HD_VALUE_RIGHT,
    HD_VALUE_COUNTS,
    HD_VALUE_ACT,
    HD_VALUE_BY,
    HD_VALUE_INT,
    HD_VALUE_INTS,
    HD_VALUE_NAME,
    HD_VALUE_NUMBERS,
} hd_value_kind;

// What a matmul's `act` may be: some of the ops of one operand.
typedef enum hd_act {
    HD_ACT_NONE,
    HD_ACT_RELU,
    HD_ACT_GELU,
    HD_ACT_GELU_ERF,
    HD_ACT_SILU
} hd_act;

typedef enum hd_numbers {
    HD_NUMBERS_ANY,
    HD_NUMBERS_FLOAT,
    HD_NUMBERS_TEST,
    HD_NUMBERS_PICK,
    HD_NUMBERS_LOGIC,
} hd_numbers;

// In which operands an op of family MAP is linear, as ops.def has it.
typedef enum hd_linear {
    HD_LINEAR_CURVED,
    HD_LINEAR_ALL,
    HD_LINEAR_EACH,
    HD_LINEAR_FIRST,
    HD_LINEAR_SECOND,
    HD_LINEAR_LATER,
} hd_linear;

// The ends of a transfer, as bits.
typedef enum hd_ends {
    HD_ENDS_NONE = 0,
    HD_ENDS_RESULT = 1,
    HD_ENDS_OPERAND = 2,
    HD_ENDS_BOTH = 3,
} hd_ends;

// Where a result may lie on its rank.
typedef enum hd_in_place {
    HD_IN_PLACE_NEVER, // not over an operand
    HD_IN_PLACE_SAME,  // exactly over an operand
    HD_IN_PLACE_PIECE, // one is the own piece of the other, which leads
} hd_in_place;

// Results and operands of an op, at most, of family PICK or ATTEND.
#define HD_PICK_VIEWS 4
#define HD_ATTEND_VIEWS 9

typedef struct hd_op_info {
    const char *text;
    hd_family family;
    hd_level level;
    int min_outputs, max_outputs;
    int min_inputs, max_inputs;
    uint64_t keys, required; // bit hd_key_code
    hd_map map;
    hd_numbers numbers; // family MAP
    hd_linear linear;   // family MAP
    hd_fold fold;       // also of a transfer that reduces, without a key
    hd_pick pick;
    hd_attend attend;
    hd_move move;
    hd_ends led, touched; // family MOVE; `touched` of a send only with `get`,
                          // of a recv only without
    hd_in_place in_place; // MOVE and ATTEND; hd_op_in_place answers for all
    hd_sync sync;
} hd_op_info;

typedef struct hd_key_info {
    const char *text;
    hd_value_kind value;
} hd_key_info;

const hd_op_info *hd_op_info_get(hd_opcode code);
const hd_key_info *hd_key_info_get(hd_key_code code);
// Whether it names dimensions of the first operand.
bool hd_key_names_dims(hd_key_code code);
// False if the text names none.
bool hd_op_find(const char *text, size_t length, hd_opcode *out);
bool hd_key_find(const char *text, size_t length, hd_key_code *out);
bool hd_act_find(const char *text, size_t length, hd_act *out);
const char *hd_act_text(hd_act act);
// The op that does to a tensor what the activation does to a product.
hd_map hd_act_map(hd_act act);
const char *hd_map_text(hd_map map);

typedef struct hd_buffer hd_buffer;

// Some indices of a dimension, from `low` to before `past`; none where `past`
// is HD_EXPR_NONE. `extent` says how many, as that of an hd_dim, or 0.
typedef struct hd_range {
    hd_expr low, past;
    int64_t extent;
    // Where it is a block of the dimension: which one, and of how many; else
    // HD_EXPR_NONE.
    hd_expr block;
    int64_t blocks;
} hd_range;

// An alias of a part of a buffer, one expression a leading dimension:
// HD_EXPR_ALL keeps it, anything else picks an index and drops the dimension.
// Dimensions past nindex are kept.
typedef struct hd_view {
    hd_buffer *buffer;
    int nindex;
    hd_expr index[HD_MAX_DIMS];
    // NULL, or for each index the range that an HD_EXPR_ALL keeps of its
    // dimension.
    const hd_range *range;
    hd_loc loc;
} hd_view;

// A number in the place of an operand.
typedef struct hd_scalar {
    int operand; // which
    double number;
} hd_scalar;

typedef struct hd_key {
    hd_key_code code;
    hd_loc loc;
    hd_expr expr;  // EXPR; HD_EXPR_NONE for others
    int view;      // READ, WRITE, EVENT, FACTOR, LEFT, RIGHT, COUNTS, BY: which
                   // one; -1 for others
    double number; // FACTOR without a view, INT
    hd_act act;    // ACT
    const char *name; // NAME: the module's; NULL for others
    int nints;        // INTS: how many, and which
    int32_t ints[HD_MAX_DIMS];
    int nscalars; // NUMBERS: how many, and the module's
    const hd_scalar *scalar;
} hd_key;

#define HD_MAX_OPERANDS 16 // outputs and inputs together
#define HD_MAX_VIEWS 20    // and those of keys
#define HD_MAX_SCALARS 8   // in the place of operands

typedef struct hd_bound hd_bound; // ir/signature.h

typedef struct hd_op {
    hd_opcode code;
    int axis; // transfers: which axis of the mesh; others: -1
    int noutputs;
    int ninputs;
    int nviews;
    hd_view *view; // outputs, inputs, then those of keys in their order
    int nkeys;
    hd_key *key;    // in the order of ops.def, each at most once
    bool front;     // of the text form 1, whose products pair batches from the
                    // front
    hd_loc loc;     // the op's word, and its @axis
    hd_opcode said; // what the text has there: of a move that `place` wrote the
                    // statement that it is for
    hd_bound *bound; // as the verifier found it, of none before; NULL: it has
                     // no signature
} hd_op;

// Of a key that names dimensions: it names those that it did, of an operand
// that lacks dimension `at`, or has it again where the result has it.
void hd_key_drop_dim(hd_key *key, int at);
void hd_key_add_dim(hd_key *key, int at);
// NULL if the op does not carry it.
const hd_key *hd_op_key(const hd_op *op, hd_key_code code);
hd_family hd_op_family(const hd_op *op);
hd_unit hd_op_unit(const hd_op *op);
bool hd_op_is(const hd_op *op, hd_unit unit);
// Whether each element of the result is of the operands' elements there.
bool hd_op_is_elementwise(const hd_op *op);
// How the op joins elements, those of ranks too; HD_FOLD_NONE if it does not.
hd_fold hd_op_fold(const hd_op *op);
// The key by which a transfer folds so; false for a sum, which needs none.
bool hd_fold_key(hd_fold fold, hd_key_code *out);
// How many operands it has, views and numbers; which view operand `k` of these
// is, -1 of a number.
int hd_op_operands(const hd_op *op);
int hd_op_operand(const hd_op *op, int k);
// The view of whose dtype these numbers are, and what that makes of operand
// `k`: it is rounded once, as a cast rounds it.
int hd_op_number_view(const hd_op *op);
double hd_op_number(const hd_op *op, int k);
// The same as it is written.
double hd_op_number_written(const hd_op *op, int k);
// The operands, numbers among them, that it is linear in together while the
// others stay, and of which `k` is the first, as bits; 0 of none. Of floating
// point, and of an op that is no product.
unsigned hd_op_linear(const hd_op *op, int k);
hd_pick hd_op_pick(const hd_op *op);
hd_attend hd_op_attend(const hd_op *op);
// How wide the products of rows and keys are together, of heads of that depth
// whose values are so wide: scores and their mean of values; for gradients the
// scores, what these are multiplied by, and three sums; else 0.
int64_t hd_op_attend_columns(const hd_op *op, int64_t depth, int64_t wide);
// Whether it does each element of a batch by itself, with all of the last
// dimensions of every view: an op of family PICK, ATTEND or CALL.
bool hd_op_is_batched(const hd_op *op);
// Whether no operand says how long its result is, but `to` if no declaration.
bool hd_op_says_shape(const hd_op *op);
// Whether rows meet keys in it: an attention, or its gradients.
bool hd_op_meets_keys(const hd_op *op);
// Whether the rows of view `i` are keys or values of such an op, or gradients
// of these, and whether they come in blocks, a dimension behind those of the
// batch.
bool hd_op_has_keys(const hd_op *op, int i);
bool hd_op_has_blocks(const hd_op *op, int i);
// Whether those are of several sequences, one behind the other, which its key
// GROUPS counts: of each of as many first dimensions of the batch as that has.
bool hd_op_has_sequences(const hd_op *op);
// Whether it goes by counts of a dimension, as ir/counts.h gives it to read.
bool hd_op_has_counts(const hd_op *op);
// How many views its statement says: those of keys that no statement names come
// behind them, a view each.
int hd_op_said_views(const hd_op *op);
// Whether view `i` has scales of an operand of a product; of how many indices
// each of them may be, 1 without the key GRAIN.
bool hd_op_has_scales(const hd_op *op, int i);
int64_t hd_op_grain(const hd_op *op);
// The dimension that the key DIM names; -1 without it.
int hd_op_dim(const hd_op *op);
// Whether a `take` or an `iota` may have so many indices from `start` on: the
// last is 2^31 - 1.
bool hd_op_may_start(int64_t start, int64_t n);
// Whether its key START says where that dimension of a view begins in the
// whole's.
bool hd_op_starts(const hd_op *op, int view, int dim);
// Of family TRANSPOSE, whose operand has `ndims` dimensions: which of these
// each of the result's is. The verifier holds that there are those.
void hd_op_order(const hd_op *op, int ndims, int8_t order[HD_MAX_DIMS]);
// Whether dimension `d` of so many is one of the two that it swaps.
bool hd_op_swaps(const hd_op *op, int ndims, int d);
// Of a call: how many last dimensions belong together, and the function's name.
int hd_op_over(const hd_op *op);
const char *hd_op_callee(const hd_op *op);
hd_move hd_op_move(const hd_op *op);
// What changes nothing that it is folded with, as floating point and as an
// integer of the dtype: 0 of a sum, of a max what is below every number.
void hd_fold_neutral(hd_fold fold, hd_dtype dtype, double *value,
                     int64_t *whole);
// The transfer that the op joins with a matmul; HD_MOVE_NONE if it does not.
hd_sync hd_op_sync(const hd_op *op);
hd_in_place hd_op_in_place(const hd_op *op);
// Whether one rank of a line, the root, is not like the others. The side that
// peers do not touch is the root's alone.
bool hd_op_is_rooted(const hd_op *op);
// Whether a rank, the `root` or another, does anything with a view.
bool hd_op_touches(const hd_op *op, int view, bool root);
// Whether it writes a piece of its own for each rank that gets one, of which it
// may leave out what counts leave out.
bool hd_op_moves_counted(const hd_op *op);
// Whether all ranks of a line are alike in it: it names no root and no peer.
bool hd_op_is_collective(const hd_op *op);
// Whether view `i` leads with a dimension over the ranks of the op's axis, and
// the key that names that dimension where it stands further in.
bool hd_op_is_led(const hd_op *op, int i);
hd_key_code hd_op_pieces_key(const hd_op *op, int i);
// Of a transfer over an axis of `ranks`, how much one rank of them receives,
// the one that receives most, of what its first view has.
double hd_op_received(const hd_op *op, double ranks, double first);
// The number of the view whose memory peers touch, -1 if there is none.
int hd_op_touched(const hd_op *op);

typedef enum hd_access {
    HD_ACCESS_READ = 1,
    HD_ACCESS_WRITE = 2,
    HD_ACCESS_UPDATE = 3, // reads what it writes over: `accumulate`, `keep`
    HD_ACCESS_RECORD = 4, // of an event
    HD_ACCESS_WAIT = 8,   // of an event
} hd_access;

// What the op does with view `i`: that follows from where it stands.
hd_access hd_op_access(const hd_op *op, int i);
static inline bool hd_op_reads(const hd_op *op, int i)
{
    return (hd_op_access(op, i) & HD_ACCESS_READ) != 0;
}
static inline bool hd_op_writes(const hd_op *op, int i)
{
    return (hd_op_access(op, i) & HD_ACCESS_WRITE) != 0;
}
// Which view is the key's; -1 if the key is absent or names none.
int hd_op_key_view(const hd_op *op, hd_key_code code);

HD_END_DECLS

#endif
