// The rows of ops.def as tables, and what follows from them for one op.
#include "ir/op.h"

#include <string.h>

#define K(code) (1u << HD_KEY_##code)

static const hd_op_info op_info[HD_NOPS] = {
#define HD_OP(code, text, level, unit, ...) \
    [HD_OP_##code] = {text, HD_LEVEL_##level, HD_UNIT_##unit, __VA_ARGS__},
#include "ir/ops.def"
#undef HD_OP
};

static const hd_key_info key_info[HD_NKEYS] = {
#define HD_KEY(code, text, value) [HD_KEY_##code] = {text, HD_VALUE_##value},
#include "ir/ops.def"
#undef HD_KEY
};

static const char *const act_text[] = {
    [HD_ACT_NONE] = "none",
    [HD_ACT_RELU] = "relu",
    [HD_ACT_GELU] = "gelu",
    [HD_ACT_SILU] = "silu",
};

const hd_op_info *hd_op_info_get(hd_opcode code)
{
    return &op_info[code];
}

const hd_key_info *hd_key_info_get(hd_key_code code)
{
    return &key_info[code];
}

static bool spells(const char *word, const char *text, size_t length)
{
    // Most words differ in their first letter.
    return length > 0 && *word == *text && strlen(word) == length &&
           memcmp(word, text, length) == 0;
}

// Two dozen words: a search is as quick as a hash of them would be.
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
        if (spells(act_text[i], text, length)) {
            *out = (hd_act)i;
            return true;
        }
    return false;
}

const char *hd_act_text(hd_act act)
{
    return act_text[act];
}

const hd_key *hd_op_key(const hd_op *op, hd_key_code code)
{
    for (int i = 0; i < op->nkeys; i++)
        if (op->key[i].code == code)
            return &op->key[i];
    return NULL;
}

bool hd_op_is(const hd_op *op, hd_unit unit)
{
    return op_info[op->code].unit == unit;
}

bool hd_op_is_elementwise(const hd_op *op)
{
    return hd_op_is(op, HD_UNIT_COMPUTE) && op->code != HD_OP_MATMUL &&
           op->code != HD_OP_TRANSPOSE && hd_op_key(op, HD_KEY_DIM) == NULL;
}

hd_act hd_op_act(hd_opcode code)
{
    switch (code) {
    case HD_OP_RELU:
        return HD_ACT_RELU;
    case HD_OP_GELU:
        return HD_ACT_GELU;
    case HD_OP_SILU:
        return HD_ACT_SILU;
    default:
        return HD_ACT_NONE;
    }
}

int hd_op_views(const hd_op *op, const hd_view **out)
{
    int n = 0;

    for (int i = 0; i < op->noutputs + op->ninputs; i++)
        out[n++] = &op->view[i];
    for (int i = 0; i < op->nkeys; i++)
        if (op->key[i].view.buffer != NULL)
            out[n++] = &op->key[i].view;
    return n;
}

static hd_access access_of_output(const hd_op *op)
{
    if (op->code == HD_OP_RECORD)
        return HD_ACCESS_RECORD;
    if (hd_op_key(op, HD_KEY_ACCUMULATE) != NULL)
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
    default:
        return HD_ACCESS_READ;
    }
}

// Counts in the order of hd_op_views.
hd_access hd_op_access(const hd_op *op, int view)
{
    if (view < op->noutputs)
        return access_of_output(op);
    view -= op->noutputs;
    if (view < op->ninputs)
        return op->code == HD_OP_WAIT ? HD_ACCESS_WAIT : HD_ACCESS_READ;
    view -= op->ninputs;
    for (int i = 0; i < op->nkeys; i++)
        if (op->key[i].view.buffer != NULL && view-- == 0)
            return access_of_key(op->key[i].code);
    return HD_ACCESS_READ;
}
