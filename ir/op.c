// The rows of ops.def as tables, and what follows from them for one op.
#include "ir/op.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "ir/module.h"

#define K(code) (UINT64_C(1) << HD_KEY_##code)

// What every row says.
#define ROW(text_, family_, level_, min_out, max_out, min_in, max_in, keys_,  \
            required_)                                                        \
    .text = text_, .family = HD_FAMILY_##family_, .level = HD_LEVEL_##level_, \
    .min_outputs = min_out, .max_outputs = max_out, .min_inputs = min_in,     \
    .max_inputs = max_in, .keys = keys_, .required = required_

static const hd_op_info op_info[HD_NOPS] = {
#define HD_OP(code, ...) [HD_OP_##code] = {ROW(__VA_ARGS__)},
#define HD_MAP(code, text, numbers_, shape_, inputs, keys, required)         \
    [HD_OP_##                                                                \
        code] = {ROW(text, MAP, BOTH, 1, 1, inputs, inputs, keys, required), \
                 .map = HD_MAP_##code, .numbers = HD_NUMBERS_##numbers_,     \
                 .linear = HD_LINEAR_##shape_},
#define HD_FOLD(code, text)                                               \
    [HD_OP_##code] = {ROW(text, FOLD, BOTH, 1, 1, 1, HD_MAX_OPERANDS - 1, \
                          K(DIM) | K(NUMBERS), 0),                        \
                      .fold = HD_FOLD_##code},
#define HD_PICK(code, text, outputs, inputs)                           \
    [HD_OP_##code] = {                                                 \
        ROW(text, PICK, BOTH, outputs, outputs, inputs, inputs, 0, 0), \
        .pick = HD_PICK_##code},
#define HD_ATTEND(code, text, outputs, inputs, keys, required, in_place_) \
    [HD_OP_##code] = {ROW(text, ATTEND, BOTH, outputs, outputs, inputs,   \
                          inputs, keys, required),                        \
                      .attend = HD_ATTEND_##code,                         \
                      .in_place = HD_IN_PLACE_##in_place_},
#define HD_MOVE(code, text, min_out, max_out, min_in, max_in, keys, required, \
                led_, touched_, in_place_, fold_)                             \
    [HD_OP_##code] = {ROW(text, MOVE, HOST, min_out, max_out, min_in, max_in, \
                          keys, required),                                    \
                      .move = HD_MOVE_##code,                                 \
                      .led = HD_ENDS_##led_,                                  \
                      .touched = HD_ENDS_##touched_,                          \
                      .in_place = HD_IN_PLACE_##in_place_,                    \
                      .fold = HD_FOLD_##fold_},
#define HD_SYNC(code, text, outputs, inputs)                        \
    [HD_OP_##code] = {ROW(text, SYNC, HOST, (outputs) > 0, outputs, \
                          (inputs) > 0, inputs, 0, 0),              \
                      .sync = HD_SYNC_##code},
#include "ir/ops.def"
};

static const hd_key_info key_info[HD_NKEYS] = {
#define HD_KEY(code, text, value) [HD_KEY_##code] = {text, HD_VALUE_##value},
#include "ir/ops.def"
};

static const char *const map_text[] = {
    [HD_MAP_NONE] = "none",
#define HD_OP(...)
#define HD_MAP(code, text, ...) [HD_MAP_##code] = text,
#include "ir/ops.def"
};

static const hd_opcode act_op[] = {
    [HD_ACT_RELU] = HD_OP_RELU,
    [HD_ACT_GELU] = HD_OP_GELU,
    [HD_ACT_GELU_ERF] = HD_OP_GELU_ERF,
    [HD_ACT_SILU] = HD_OP_SILU,
};

const hd_op_info *hd_op_info_get(hd_opcode code)
{
    return &op_info[code];
}

const hd_key_info *hd_key_info_get(hd_key_code code)
{
    return &key_info[code];
}

bool hd_key_names_dims(hd_key_code code)
{
    return code == HD_KEY_DIM || code == HD_KEY_DIM0 || code == HD_KEY_DIM1 ||
           code == HD_KEY_ORDER;
}

void hd_key_drop_dim(hd_key *key, int at)
{
    int n = 0;

    assert(hd_key_names_dims(key->code));
    key->number -= key->number > at;
    for (int i = 0; i < key->nints; i++)
        if (key->ints[i] != at)
            key->ints[n++] = key->ints[i] - (key->ints[i] > at);
    key->nints = n;
}

void hd_key_add_dim(hd_key *key, int at)
{
    assert(hd_key_names_dims(key->code));
    key->number += key->number >= at;
    for (int i = 0; i < key->nints; i++)
        key->ints[i] += key->ints[i] >= at;
    if (key->code != HD_KEY_ORDER)
        return;
    assert(at <= key->nints && key->nints < HD_MAX_DIMS);
    for (int i = key->nints++; i > at; i--)
        key->ints[i] = key->ints[i - 1];
    key->ints[at] = at;
}

static bool spells(const char *word, const char *text, size_t length)
{
    // Most words differ in their first letter.
    return length > 0 && *word == *text && strlen(word) == length &&
           memcmp(word, text, length) == 0;
}

// A few dozen words: a search is as quick as a hash of them would be.
bool hd_op_find(const char *text, size_t length, hd_opcode *out)
{
    for (int i = 0; i < HD_NOPS; i++)
        if (spells(op_info[i].text, text, length)) {
            *out = (hd_opcode)i;
            return true;
        }
    return false;
}

bool hd_key_find(const char *text, size_t length, hd_key_code *out)
{
    for (int i = 0; i < HD_NKEYS; i++)
        if (spells(key_info[i].text, text, length)) {
            *out = (hd_key_code)i;
            return true;
        }
    return false;
}

// HD_ACT_NONE is the absence of the key, not a word.
bool hd_act_find(const char *text, size_t length, hd_act *out)
{
    for (int i = HD_ACT_RELU; i <= HD_ACT_SILU; i++)
        if (spells(op_info[act_op[i]].text, text, length)) {
            *out = (hd_act)i;
            return true;
        }
    return false;
}

const char *hd_act_text(hd_act act)
{
    return act == HD_ACT_NONE ? "none" : op_info[act_op[act]].text;
}

hd_map hd_act_map(hd_act act)
{
    return act == HD_ACT_NONE ? HD_MAP_NONE : op_info[act_op[act]].map;
}

const char *hd_map_text(hd_map map)
{
    return map_text[map];
}

const hd_key *hd_op_key(const hd_op *op, hd_key_code code)
{
    for (int i = 0; i < op->nkeys; i++)
        if (op->key[i].code == code)
            return &op->key[i];
    return NULL;
}

hd_family hd_op_family(const hd_op *op)
{
    return op_info[op->code].family;
}

hd_unit hd_op_unit(const hd_op *op)
{
    switch (hd_op_family(op)) {
    case HD_FAMILY_COPY:
    case HD_FAMILY_MAP:
    case HD_FAMILY_FOLD:
    case HD_FAMILY_TRANSPOSE:
    case HD_FAMILY_TAKE:
    case HD_FAMILY_IOTA:
    case HD_FAMILY_PRODUCT:
    case HD_FAMILY_PICK:
    case HD_FAMILY_ATTEND:
    case HD_FAMILY_CALL:
        return HD_UNIT_COMPUTE;
    case HD_FAMILY_MOVE:
        return HD_UNIT_TRANSFER;
    case HD_FAMILY_SYNC:
        break;
    }
    return HD_UNIT_SYNC;
}

bool hd_op_is(const hd_op *op, hd_unit unit)
{
    return hd_op_unit(op) == unit;
}

bool hd_op_is_elementwise(const hd_op *op)
{
    switch (hd_op_family(op)) {
    case HD_FAMILY_COPY:
    case HD_FAMILY_MAP:
        return true;
    case HD_FAMILY_FOLD:
        return hd_op_key(op, HD_KEY_DIM) == NULL;
    case HD_FAMILY_TRANSPOSE:
    case HD_FAMILY_TAKE:
    case HD_FAMILY_IOTA:
    case HD_FAMILY_PRODUCT:
    case HD_FAMILY_PICK:
    case HD_FAMILY_ATTEND:
    case HD_FAMILY_CALL: // which need not go element by element
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        break;
    }
    return false;
}

hd_fold hd_op_fold(const hd_op *op)
{
    if (hd_op_key(op, HD_KEY_MAX) != NULL)
        return HD_FOLD_MAX;
    return hd_op_key(op, HD_KEY_MIN) != NULL ? HD_FOLD_MIN
                                             : op_info[op->code].fold;
}

bool hd_fold_key(hd_fold fold, hd_key_code *out)
{
    switch (fold) {
    case HD_FOLD_MAX:
        *out = HD_KEY_MAX;
        return true;
    case HD_FOLD_MIN:
        *out = HD_KEY_MIN;
        return true;
    case HD_FOLD_NONE:
    case HD_FOLD_SUM:
        break;
    }
    return false;
}

// The number that operand `k` is, NULL if it is a view; `before`: how many are
// ahead of it.
static const hd_scalar *find_scalar(const hd_op *op, int k, int *before)
{
    const hd_key *key = hd_op_key(op, HD_KEY_NUMBERS);
    int i = 0;

    while (key != NULL && i < key->nscalars && key->scalar[i].operand < k)
        i++;
    *before = i;
    return key != NULL && i < key->nscalars && key->scalar[i].operand == k
               ? &key->scalar[i]
               : NULL;
}

int hd_op_operands(const hd_op *op)
{
    const hd_key *key = hd_op_key(op, HD_KEY_NUMBERS);

    return op->ninputs + (key != NULL ? key->nscalars : 0);
}

int hd_op_operand(const hd_op *op, int k)
{
    int before;

    return find_scalar(op, k, &before) != NULL ? -1 : op->noutputs + k - before;
}

int hd_op_number_view(const hd_op *op)
{
    return op_info[op->code].numbers == HD_NUMBERS_TEST ? op->noutputs : 0;
}

double hd_op_number_written(const hd_op *op, int k)
{
    int before;

    return find_scalar(op, k, &before)->number;
}

double hd_op_number(const hd_op *op, int k)
{
    return hd_dtype_round(op->view[hd_op_number_view(op)].buffer->type.dtype,
                          hd_op_number_written(op, k));
}

unsigned hd_op_linear(const hd_op *op, int k)
{
    unsigned all = (1u << hd_op_operands(op)) - 1;

    switch (op_info[op->code].linear) {
    case HD_LINEAR_ALL:
        return k == 0 ? all : 0;
    case HD_LINEAR_EACH:
        return 1u << k;
    case HD_LINEAR_FIRST:
        return k == 0 ? 1 : 0;
    case HD_LINEAR_SECOND:
        return k == 1 ? 2 : 0;
    case HD_LINEAR_LATER:
        return k == 1 ? all & ~1u : 0;
    case HD_LINEAR_CURVED:
        break;
    }
    if (op_info[op->code].fold == HD_FOLD_SUM ||
        (op_info[op->code].family == HD_FAMILY_COPY && op->code != HD_OP_SET) ||
        op_info[op->code].family == HD_FAMILY_TRANSPOSE)
        return k == 0 ? all : 0;
    return 0;
}

hd_pick hd_op_pick(const hd_op *op)
{
    return op_info[op->code].pick;
}

hd_attend hd_op_attend(const hd_op *op)
{
    return op_info[op->code].attend;
}

int64_t hd_op_attend_columns(const hd_op *op, int64_t depth, int64_t wide)
{
    switch (hd_op_attend(op)) {
    case HD_ATTEND_ATTENTION:
        return depth + wide;
    case HD_ATTEND_ATTENTION_GRAD:
        return 3 * depth + 2 * wide;
    case HD_ATTEND_MERGE:
    case HD_ATTEND_NONE:
        break;
    }
    return 0;
}

bool hd_op_has_scales(const hd_op *op, int i)
{
    return i >= 0 && (i == hd_op_key_view(op, HD_KEY_SCALE_A) ||
                      i == hd_op_key_view(op, HD_KEY_SCALE_B));
}

static int number_of(const hd_op *op, hd_key_code code, int fallback)
{
    const hd_key *key = hd_op_key(op, code);

    return key != NULL ? (int)key->number : fallback;
}

int64_t hd_op_grain(const hd_op *op)
{
    return number_of(op, HD_KEY_GRAIN, 1);
}

int hd_op_dim(const hd_op *op)
{
    return number_of(op, HD_KEY_DIM, -1);
}

bool hd_op_may_start(int64_t start, int64_t n)
{
    return start >= 0 && start <= INT32_MAX && n - 1 <= INT32_MAX - start;
}

bool hd_op_starts(const hd_op *op, int view, int dim)
{
    hd_family family = hd_op_family(op);

    return dim == hd_op_dim(op) && ((family == HD_FAMILY_TAKE && view == 1) ||
                                    (family == HD_FAMILY_IOTA && view == 0));
}

bool hd_op_swaps(const hd_op *op, int ndims, int d)
{
    return op->code == HD_OP_TRANSPOSE &&
           (d == number_of(op, HD_KEY_DIM0, ndims - 2) ||
            d == number_of(op, HD_KEY_DIM1, ndims - 1));
}

void hd_op_order(const hd_op *op, int ndims, int8_t order[HD_MAX_DIMS])
{
    const hd_key *key = hd_op_key(op, HD_KEY_ORDER);
    int sum = number_of(op, HD_KEY_DIM0, ndims - 2) +
              number_of(op, HD_KEY_DIM1, ndims - 1);

    for (int d = 0; d < ndims; d++)
        order[d] = (int8_t)(key != NULL                 ? key->ints[d]
                            : hd_op_swaps(op, ndims, d) ? sum - d
                                                        : d);
}

int hd_op_over(const hd_op *op)
{
    return number_of(op, HD_KEY_OVER, 0);
}

const char *hd_op_callee(const hd_op *op)
{
    return hd_op_key(op, HD_KEY_NAME)->name;
}

bool hd_op_is_batched(const hd_op *op)
{
    return hd_op_family(op) == HD_FAMILY_PICK ||
           hd_op_family(op) == HD_FAMILY_ATTEND ||
           hd_op_family(op) == HD_FAMILY_CALL;
}

bool hd_op_says_shape(const hd_op *op)
{
    const hd_op_info *info = hd_op_info_get(op->code);

    return op->code == HD_OP_RESHAPE ||
           (info->max_inputs == 0 && (info->level & HD_LEVEL_TENSOR) != 0);
}

bool hd_op_meets_keys(const hd_op *op)
{
    return hd_op_attend(op) == HD_ATTEND_ATTENTION ||
           hd_op_attend(op) == HD_ATTEND_ATTENTION_GRAD;
}

bool hd_op_has_keys(const hd_op *op, int i)
{
    int keys = op->noutputs + 1;
    bool results = hd_op_attend(op) == HD_ATTEND_ATTENTION_GRAD;

    return hd_op_meets_keys(op) &&
           (i == keys || i == keys + 1 || (results && (i == 1 || i == 2)));
}

bool hd_op_has_blocks(const hd_op *op, int i)
{
    return hd_op_key(op, HD_KEY_BLOCKS) != NULL && hd_op_has_keys(op, i);
}

bool hd_op_has_sequences(const hd_op *op)
{
    return hd_op_meets_keys(op) && hd_op_key(op, HD_KEY_GROUPS) != NULL;
}

bool hd_op_has_counts(const hd_op *op)
{
    return hd_op_key(op, HD_KEY_COUNTS) != NULL ||
           hd_op_key(op, HD_KEY_COUNTS_OF_KEYS) != NULL;
}

int hd_op_said_views(const hd_op *op)
{
    int n = op->nviews;

    for (int i = 0; i < op->nkeys; i++)
        n -= hd_key_info_get(op->key[i].code)->value == HD_VALUE_BY;
    return n;
}

hd_move hd_op_move(const hd_op *op)
{
    return op_info[op->code].move;
}

hd_sync hd_op_sync(const hd_op *op)
{
    return op_info[op->code].sync;
}

hd_in_place hd_op_in_place(const hd_op *op)
{
    return hd_op_is_elementwise(op) ? HD_IN_PLACE_SAME
                                    : op_info[op->code].in_place;
}

bool hd_op_is_rooted(const hd_op *op)
{
    return (op_info[op->code].required & K(ROOT)) != 0;
}

bool hd_op_touches(const hd_op *op, int view, bool root)
{
    hd_ends side = view < op->noutputs ? HD_ENDS_RESULT : HD_ENDS_OPERAND;

    return root || !hd_op_is_rooted(op) || op_info[op->code].touched == side;
}

bool hd_op_moves_counted(const hd_op *op)
{
    hd_move move = hd_op_move(op);

    return move == HD_MOVE_SEND
               ? hd_op_key(op, HD_KEY_GET) == NULL
               : move != HD_MOVE_NONE && op_info[op->code].led == HD_ENDS_BOTH;
}

bool hd_op_is_collective(const hd_op *op)
{
    const hd_op_info *info = &op_info[op->code];

    return info->family == HD_FAMILY_MOVE &&
           (info->required & (K(ROOT) | K(TO) | K(FROM))) == 0;
}

bool hd_op_is_led(const hd_op *op, int i)
{
    hd_ends side = i < op->noutputs ? HD_ENDS_RESULT : HD_ENDS_OPERAND;

    return (op_info[op->code].led & side) != 0;
}

double hd_op_received(const hd_op *op, double ranks, double first)
{
    switch (hd_op_move(op)) {
    case HD_MOVE_ALL_GATHER:
    case HD_MOVE_ALL_TO_ALL:
        return first * (ranks - 1) / ranks;
    case HD_MOVE_REDUCE_SCATTER:
    case HD_MOVE_REDUCE: // the root
        return first * (ranks - 1);
    case HD_MOVE_ALL_REDUCE:
        return 2 * first * (ranks - 1) / ranks;
    case HD_MOVE_SEND:
    case HD_MOVE_RECV:
    case HD_MOVE_BROADCAST:
    case HD_MOVE_NONE:
        break;
    }
    return first;
}

hd_key_code hd_op_pieces_key(const hd_op *op, int i)
{
    if (!hd_op_is_led(op, i))
        return HD_NKEYS;
    return op_info[op->code].led != HD_ENDS_BOTH ? HD_KEY_DIM
           : i < op->noutputs                    ? HD_KEY_DIM1
                                                 : HD_KEY_DIM0;
}

int hd_op_touched(const hd_op *op)
{
    bool get = hd_op_key(op, HD_KEY_GET) != NULL;
    const hd_op_info *info = &op_info[op->code];

    if ((info->move == HD_MOVE_SEND && !get) ||
        (info->move == HD_MOVE_RECV && get))
        return -1;
    if (info->touched == HD_ENDS_RESULT)
        return op->noutputs > 0 ? 0 : -1;
    return info->touched == HD_ENDS_OPERAND ? op->noutputs : -1;
}

static hd_access access_of_output(const hd_op *op)
{
    if (op->code == HD_OP_RECORD)
        return HD_ACCESS_RECORD;
    if (hd_op_key(op, HD_KEY_ACCUMULATE) != NULL ||
        hd_op_key(op, HD_KEY_KEEP) != NULL)
        return HD_ACCESS_UPDATE;
    return HD_ACCESS_WRITE;
}

// `accumulate` says nothing of `aux`, which is only written.
static hd_access access_of_key(hd_key_code code)
{
    switch (key_info[code].value) {
    case HD_VALUE_WRITE:
        return HD_ACCESS_WRITE;
    case HD_VALUE_EVENT:
        return HD_ACCESS_RECORD;
    case HD_VALUE_FLAG:
    case HD_VALUE_EXPR:
    case HD_VALUE_READ:
    case HD_VALUE_FACTOR:
    case HD_VALUE_LEFT:
    case HD_VALUE_RIGHT:
    case HD_VALUE_COUNTS:
    case HD_VALUE_ACT:
    case HD_VALUE_BY:
    case HD_VALUE_INT:
    case HD_VALUE_INTS:
    case HD_VALUE_NAME:
    case HD_VALUE_NUMBERS:
        break;
    }
    return HD_ACCESS_READ;
}

hd_access hd_op_access(const hd_op *op, int i)
{
    const hd_key *key = op->key;

    if (i < op->noutputs)
        return access_of_output(op);
    if (i < op->noutputs + op->ninputs)
        return op->code == HD_OP_WAIT ? HD_ACCESS_WAIT : HD_ACCESS_READ;
    while (key->view != i)
        key++;
    return access_of_key(key->code);
}

int hd_op_key_view(const hd_op *op, hd_key_code code)
{
    const hd_key *key = hd_op_key(op, code);

    return key != NULL ? key->view : -1;
}

void hd_fold_neutral(hd_fold fold, hd_dtype dtype, double *value,
                     int64_t *whole)
{
    int64_t low = dtype == HD_DTYPE_U8    ? 0
                  : dtype == HD_DTYPE_I8  ? INT8_MIN
                  : dtype == HD_DTYPE_I32 ? INT32_MIN
                                          : INT64_MIN;
    int64_t high = dtype == HD_DTYPE_U8    ? UINT8_MAX
                   : dtype == HD_DTYPE_I8  ? INT8_MAX
                   : dtype == HD_DTYPE_I32 ? INT32_MAX
                                           : INT64_MAX;

    *value = fold == HD_FOLD_SUM   ? 0
             : fold == HD_FOLD_MAX ? -INFINITY
                                   : INFINITY;
    *whole = fold == HD_FOLD_SUM ? 0 : fold == HD_FOLD_MAX ? low : high;
}
