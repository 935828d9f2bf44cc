// Integer expressions over loop variables, lets and this rank's coordinates.
// An hd_expr is an index into its module's table; equal expressions have equal
// indices, and constants are folded as they are built. Division rounds down and
// `mod` is never negative for a positive divisor, `cdiv` rounds up; comparisons
// and logic give 0 or 1.
#ifndef HD_IR_EXPR_H
#define HD_IR_EXPR_H

#include "base/diag.h"
#include "base/text.h"

HD_BEGIN_DECLS

typedef struct hd_module hd_module;

typedef int32_t hd_expr;
typedef int32_t hd_var; // a loop variable or a let; an index into the module

enum {
    HD_EXPR_NONE = -1, // no expression here
    HD_EXPR_ALL = -2,  // ':' in a view: the whole dimension
};

typedef enum hd_expr_kind {
    HD_EXPR_CONST, // value
    HD_EXPR_COORD, // a: axis
    HD_EXPR_VAR,   // a: variable
    HD_EXPR_SIZE,  // a: which of the module's sizes
    HD_EXPR_NOT,   // a: operand, likewise a and b below
    HD_EXPR_ADD,
    HD_EXPR_SUB,
    HD_EXPR_MUL,
    HD_EXPR_DIV,
    HD_EXPR_MOD,
    HD_EXPR_LT,
    HD_EXPR_LE,
    HD_EXPR_EQ,
    HD_EXPR_NE,
    HD_EXPR_AND,
    HD_EXPR_OR,
    HD_EXPR_MIN,
    HD_EXPR_MAX,
    HD_EXPR_CDIV,
} hd_expr_kind;

// All operators of two operands have one form; another kind is its own.
typedef enum hd_expr_form {
    HD_FORM_CONST = HD_EXPR_CONST,
    HD_FORM_COORD = HD_EXPR_COORD,
    HD_FORM_VAR = HD_EXPR_VAR,
    HD_FORM_SIZE = HD_EXPR_SIZE,
    HD_FORM_NOT = HD_EXPR_NOT,
    HD_FORM_BINARY = HD_EXPR_ADD,
} hd_expr_form;

typedef struct hd_expr_node {
    hd_expr_kind kind;
    int32_t depth; // operators above the deepest leaf
    int32_t a, b;
    int64_t value;
} hd_expr_node;

hd_expr_form hd_expr_form_of(hd_expr_kind kind);
hd_expr hd_expr_const(hd_module *module, int64_t value);
hd_expr hd_expr_coord(hd_module *module, int axis);
hd_expr hd_expr_of_var(hd_module *module, hd_var var);
hd_expr hd_expr_size(hd_module *module, int size);
hd_expr hd_expr_not(hd_module *module, hd_expr a);
// Any kind from HD_EXPR_ADD on. Folds constants and the identities x + 0,
// 0 + x, x * 1, 1 * x, x - 0, min(x, x), max(x, x); what overflows or divides
// by zero is left unfolded, for hd_expr_eval to report.
hd_expr hd_expr_binary(hd_module *module, hd_expr_kind kind, hd_expr a,
                       hd_expr b);
hd_expr hd_expr_mod(hd_module *module, hd_expr a, hd_expr b);
// Has it a divisor, which must be positive?
bool hd_expr_divides(hd_expr_kind kind);

const hd_expr_node *hd_expr_get(const hd_module *module, hd_expr expr);
// Functions here recurse this deep; the parser refuses more than the limit.
#define HD_MAX_EXPR_DEPTH 200
int hd_expr_depth(const hd_module *module, hd_expr expr);
bool hd_expr_is_const(const hd_module *module, hd_expr expr);
int64_t hd_expr_value(const hd_module *module, hd_expr expr); // of a constant
bool hd_expr_uses_var(const hd_module *module, hd_expr expr, hd_var var);
// `expr` with every use of `var` replaced.
hd_expr hd_expr_replace(hd_module *module, hd_expr expr, hd_var var,
                        hd_expr by);
// Likewise, and with every use of the coordinate on `axis`; neither in what the
// other has become.
hd_expr hd_expr_replace_at(hd_module *module, hd_expr expr, hd_var var,
                           hd_expr by, int axis, hd_expr coord);

// Where an expression is evaluated: this rank, and the variables in scope.
typedef struct hd_env {
    int64_t coord[HD_MAX_AXES];
    const int64_t *var; // by hd_var
} hd_env;

// Whether it names the coordinate on an axis.
bool hd_expr_uses_coord(const hd_module *module, hd_expr expr, int axis);
// Whether it has a size that runs are given.
bool hd_expr_uses_size(const hd_module *module, hd_expr expr);
// Whether it is a sum of sizes, each times what has none, and of what has none.
bool hd_expr_is_linear(const hd_module *module, hd_expr expr);
// Of a linear one the least and the most that it is in any run, each size by
// itself: it has a value in all of them. False if it, or a part of it, may have
// none.
bool hd_expr_bounds(const hd_module *module, hd_expr expr, const hd_env *env,
                    int64_t *low, int64_t *high);

// False if it overflows 64 bits or divides by zero or by a negative number. The
// second operand of `and` and `or` is evaluated only if the first leaves it
// open.
bool hd_expr_eval(const hd_module *module, hd_expr expr, const hd_env *env,
                  int64_t *out);

// Any kind from HD_EXPR_ADD on, of two numbers. False where there is no value.
// Logic takes anything but 0 for true.
bool hd_expr_apply(hd_expr_kind kind, int64_t a, int64_t b, int64_t *out);

// The word or mark of a kind from HD_EXPR_ADD on.
const char *hd_expr_operator(hd_expr_kind kind);
// As the parser reads it, with the fewest parentheses.
void hd_expr_print(const hd_module *module, hd_expr expr, hd_text *text);

HD_END_DECLS

#endif
