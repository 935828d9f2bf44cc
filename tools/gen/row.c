// Letters have their own names here, which everywhere else are other things'.
#include "row.h"

enum {
    NONE,
#define HD_LETTER(name) name,
#include "ir/signature.def"
#define HD_LETTER(name) name##_ = name | GROUP,
#include "ir/signature.def"
};

#define K(code) (UINT64_C(1) << KEY_##code)
#define FRONT (UINT64_C(1) << 63)
#define BACK 0

enum { HD_MAX_OPERANDS = 16 }; // as ir/op.h has it

static const row rows[] = {
#define OP(code) .op = OP_##code
#define FAMILY(code) .op = FAMILY_##code
#define Q(a) ((a) | REPEATS)
#define P(a) (a) // of form 1 alone
#define W(a) ((a) | WIDENS)
#define J(a) ((a) | JOINED)
#define F(a) ((a) | FIRST)
#define T(a) (a) // whose order is drawn apart
#define O(a) ((a) | OVER)
#define HD_SIG(op, keys_, at, ...) {op, .keys = keys_, at, __VA_ARGS__},
#include "ir/signature.def"
    {.op = NOPS},
};

const op_info ops[] = {
#define HD_OP(code, text, family, level, most, outputs, least, inputs, keys, \
              required)                                                      \
    [OP_##code] = {text,     outputs,   inputs,     keys,                    \
                   required, OP_##code, NUMBERS_ANY},
#define HD_MAP(code, text, numbers, shape, inputs, keys, required) \
    [OP_##code] = {text,     1,          inputs,           keys,   \
                   required, FAMILY_MAP, NUMBERS_##numbers},
#define HD_FOLD(code, text)                                                   \
    [OP_##                                                                    \
        code] = {text, 1,           HD_MAX_OPERANDS - 1, K(DIM) | K(NUMBERS), \
                 0,    FAMILY_FOLD, NUMBERS_ANY},
#include "ir/ops.def"
};

const row *rows_of(op op, int *n)
{
    const row *row = rows;

    while (row->op != ops[op].like || (row->keys & FRONT) != 0)
        row++;
    for (*n = 1; row[*n].op == row->op; ++*n)
        ;
    return row;
}

bool row_has(const row *row, key key)
{
    return (row->keys & UINT64_C(1) << key) != 0;
}
