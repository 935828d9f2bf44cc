// The rows of ir/signature.def, as what draws statements reads them: which
// letters each view of an op has.
#ifndef HD_TOOLS_GEN_ROW_H
#define HD_TOOLS_GEN_ROW_H

#include <heddle/heddle.h>

HD_BEGIN_DECLS

// What is said of a letter where it stands, as ir/signature.def has it.
enum {
    LETTER = 63,
    GROUP = 64,
    REPEATS = 128,
    WIDENS = 256,
    JOINED = 512,
    FIRST = 1024,
    OVER = 2048,
};

enum {
    NO_LETTER,
#define HD_LETTER(name) LETTER_##name,
#include "ir/signature.def"
    NLETTERS,
    FIRST_LOWER = LETTER_one,
};

typedef enum key {
#define HD_KEY(code, ...) KEY_##code,
#include "ir/ops.def"
    NKEYS
} key;

// And the two families whose ops have the same rows.
typedef enum op {
#define HD_OP(code, ...) OP_##code,
#include "ir/ops.def"
    FAMILY_MAP,
    FAMILY_FOLD,
    NOPS
} op;

typedef enum numbers {
    NUMBERS_ANY,
    NUMBERS_FLOAT,
    NUMBERS_TEST,
    NUMBERS_PICK,
    NUMBERS_LOGIC
} numbers;

typedef struct op_info {
    const char *text;
    int outputs, inputs;     // at most
    uint64_t keys, required; // bits `key`
    op like;                 // what has its rows: itself, or its family
    enum numbers numbers;    // of a MAP
} op_info;

extern const op_info ops[];

enum { MOST_LETTERS = 6, MOST_FORMS = 9 };

typedef struct form {
    uint16_t letter[MOST_LETTERS]; // NO_LETTER behind the last
    bool anyhow;                   // of a result that may be placed in any way
    bool joins;                    // if what is joined is over ranks
    bool parts;                    // of what is joined, in front
} form;

typedef struct row {
    enum op op;
    uint64_t keys; // bits `key`
    uint16_t ahead;
    int nviews;
    form view[MOST_FORMS], rest, counts, bias;
} row;

// The rows of an op, of the newest text form; `n` is how many.
const row *rows_of(op op, int *n);
bool row_has(const row *row, key key);

HD_END_DECLS

#endif
