// Expressions as rows of one table, children before parents. A hash finds an
// equal row, so equal expressions are one and comparing them is comparing
// indices. Functions recurse over an expression; the parser refuses what is
// deeper than HD_MAX_EXPR_DEPTH, and passes only build small ones.
#include "ir/expr.h"

#include <string.h>

#include "ir/module.h"

static uint32_t hash_node(const hd_expr_node *node)
{
    uint64_t h = (uint64_t)node->value * 0x9e3779b97f4a7c15u;

    h = (h ^ (uint32_t)node->kind) * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint32_t)node->a) * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint32_t)node->b) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32);
}

static bool is_same(const hd_expr_node *x, const hd_expr_node *y)
{
    return x->kind == y->kind && x->a == y->a && x->b == y->b &&
           x->value == y->value;
}

// Where the node is in the index, or where it belongs.
static int32_t *find_slot(const hd_module *module, const hd_expr_node *node)
{
    uint32_t mask = (uint32_t)module->expr_index_room - 1;
    uint32_t i = hash_node(node) & mask;

    while (module->expr_index[i] >= 0 &&
           !is_same(&module->exprs[module->expr_index[i]], node))
        i = (i + 1) & mask;
    return &module->expr_index[i];
}

// Both arrays double; the index stays at most half full.
static void grow(hd_module *module)
{
    int32_t *index;
    int n;

    module->exprs = hd_arena_grow(module->arena, module->exprs, module->nexprs,
                                  &module->exprs_room, sizeof *module->exprs);
    n = 2 * module->exprs_room;
    index = hd_new_array(module->arena, int32_t, n);
    memset(index, -1, sizeof *index * (size_t)n);
    module->expr_index = index;
    module->expr_index_room = n;
    for (int i = 0; i < module->nexprs; i++)
        *find_slot(module, &module->exprs[i]) = i;
}

// The row that is equal to this one, which is added if there is none.
static hd_expr intern(hd_module *module, hd_expr_node node)
{
    int32_t *slot;

    if (module->nexprs == module->exprs_room)
        grow(module);
    slot = find_slot(module, &node);
    if (*slot < 0) {
        module->exprs[module->nexprs] = node;
        *slot = module->nexprs++;
    }
    return *slot;
}

const hd_expr_node *hd_expr_get(const hd_module *module, hd_expr expr)
{
    return &module->exprs[expr];
}

bool hd_expr_is_const(const hd_module *module, hd_expr expr)
{
    return expr >= 0 && module->exprs[expr].kind == HD_EXPR_CONST;
}

int64_t hd_expr_value(const hd_module *module, hd_expr expr)
{
    return module->exprs[expr].value;
}

int hd_expr_depth(const hd_module *module, hd_expr expr)
{
    return module->exprs[expr].depth;
}

bool hd_expr_divides(hd_expr_kind kind)
{
    return kind == HD_EXPR_DIV || kind == HD_EXPR_MOD || kind == HD_EXPR_CDIV;
}

// C rounds towards zero; the language rounds down, or up where it says so.
static bool divide(hd_expr_kind kind, int64_t a, int64_t b, int64_t *out)
{
    int64_t quotient, rest;

    if (b <= 0)
        return false;
    quotient = a / b;
    rest = a % b;
    if (rest < 0) {
        quotient--;
        rest += b;
    }
    if (kind == HD_EXPR_CDIV)
        quotient += rest > 0;
    *out = kind == HD_EXPR_MOD ? rest : quotient;
    return true;
}

hd_expr_form hd_expr_form_of(hd_expr_kind kind)
{
    return kind < HD_EXPR_ADD ? (hd_expr_form)kind : HD_FORM_BINARY;
}

bool hd_expr_apply(hd_expr_kind kind, int64_t a, int64_t b, int64_t *out)
{
    int64_t value = 0;

    switch (kind) {
    case HD_EXPR_ADD:
        if (__builtin_add_overflow(a, b, &value))
            return false;
        break;
    case HD_EXPR_SUB:
        if (__builtin_sub_overflow(a, b, &value))
            return false;
        break;
    case HD_EXPR_MUL:
        if (__builtin_mul_overflow(a, b, &value))
            return false;
        break;
    case HD_EXPR_DIV:
    case HD_EXPR_MOD:
    case HD_EXPR_CDIV:
        if (!divide(kind, a, b, &value))
            return false;
        break;
    case HD_EXPR_LT:
        value = a < b;
        break;
    case HD_EXPR_LE:
        value = a <= b;
        break;
    case HD_EXPR_EQ:
        value = a == b;
        break;
    case HD_EXPR_NE:
        value = a != b;
        break;
    case HD_EXPR_AND:
        value = a != 0 && b != 0;
        break;
    case HD_EXPR_OR:
        value = a != 0 || b != 0;
        break;
    case HD_EXPR_MIN:
        value = a < b ? a : b;
        break;
    case HD_EXPR_MAX:
        value = a > b ? a : b;
        break;
    case HD_EXPR_CONST:
    case HD_EXPR_COORD:
    case HD_EXPR_VAR:
    case HD_EXPR_SIZE:
    case HD_EXPR_NOT:
        return false;
    }
    *out = value;
    return true;
}

hd_expr hd_expr_const(hd_module *module, int64_t value)
{
    return intern(module,
                  (hd_expr_node){.kind = HD_EXPR_CONST, .value = value});
}

hd_expr hd_expr_coord(hd_module *module, int axis)
{
    return intern(module, (hd_expr_node){.kind = HD_EXPR_COORD, .a = axis});
}

hd_expr hd_expr_of_var(hd_module *module, hd_var var)
{
    return intern(module, (hd_expr_node){.kind = HD_EXPR_VAR, .a = var});
}

hd_expr hd_expr_size(hd_module *module, int size)
{
    return intern(module, (hd_expr_node){.kind = HD_EXPR_SIZE, .a = size});
}

hd_expr hd_expr_not(hd_module *module, hd_expr a)
{
    if (hd_expr_is_const(module, a))
        return hd_expr_const(module, hd_expr_value(module, a) == 0);
    return intern(module, (hd_expr_node){.kind = HD_EXPR_NOT,
                                         .depth = module->exprs[a].depth + 1,
                                         .a = a});
}

// Is it this constant?
static bool is_value(const hd_module *module, hd_expr expr, int64_t value)
{
    return hd_expr_is_const(module, expr) &&
           hd_expr_value(module, expr) == value;
}

// The operand that the expression is equal to, or HD_EXPR_NONE.
static hd_expr find_identity(const hd_module *module, hd_expr_kind kind,
                             hd_expr a, hd_expr b)
{
    bool is_sum = kind == HD_EXPR_ADD;
    bool is_product = kind == HD_EXPR_MUL;

    if ((kind == HD_EXPR_MIN || kind == HD_EXPR_MAX) && a == b)
        return a;
    if ((is_sum || kind == HD_EXPR_SUB) && is_value(module, b, 0))
        return a;
    if (is_product && is_value(module, b, 1))
        return a;
    if ((is_sum && is_value(module, a, 0)) ||
        (is_product && is_value(module, a, 1)))
        return b;
    return HD_EXPR_NONE;
}

hd_expr hd_expr_binary(hd_module *module, hd_expr_kind kind, hd_expr a,
                       hd_expr b)
{
    hd_expr same = find_identity(module, kind, a, b);
    int32_t depth_a = module->exprs[a].depth;
    int32_t depth_b = module->exprs[b].depth;
    int64_t value;

    if (same != HD_EXPR_NONE)
        return same;
    if (hd_expr_is_const(module, a) && hd_expr_is_const(module, b) &&
        hd_expr_apply(kind, hd_expr_value(module, a), hd_expr_value(module, b),
                      &value))
        return hd_expr_const(module, value);
    return intern(
        module,
        (hd_expr_node){.kind = kind,
                       .depth = (depth_a > depth_b ? depth_a : depth_b) + 1,
                       .a = a,
                       .b = b});
}

hd_expr hd_expr_mod(hd_module *module, hd_expr a, hd_expr b)
{
    return hd_expr_binary(module, HD_EXPR_MOD, a, b);
}

bool hd_expr_uses_var(const hd_module *module, hd_expr expr, hd_var var)
{
    const hd_expr_node *node;

    if (expr < 0)
        return false;
    node = &module->exprs[expr];
    if (node->kind == HD_EXPR_VAR)
        return node->a == var;
    if (node->kind < HD_EXPR_NOT)
        return false;
    return hd_expr_uses_var(module, node->a, var) ||
           (node->kind > HD_EXPR_NOT && hd_expr_uses_var(module, node->b, var));
}

// What a variable and the coordinate on an axis become; -1: of none.
typedef struct substitution {
    hd_var var;
    hd_expr var_by;
    int axis;
    hd_expr coord_by;
} substitution;

static hd_expr replace(hd_module *module, hd_expr expr, const substitution *s)
{
    hd_expr_node node; // a copy: building moves the table
    hd_expr a, b;

    if (expr < 0)
        return expr;
    node = module->exprs[expr];
    if (node.kind == HD_EXPR_VAR && node.a == s->var)
        return s->var_by;
    if (node.kind == HD_EXPR_COORD && node.a == s->axis)
        return s->coord_by;
    if (node.kind < HD_EXPR_NOT)
        return expr;
    a = replace(module, node.a, s);
    if (node.kind == HD_EXPR_NOT)
        return a == node.a ? expr : hd_expr_not(module, a);
    b = replace(module, node.b, s);
    if (a == node.a && b == node.b)
        return expr; // as it was, also where building it would fold
    return hd_expr_binary(module, node.kind, a, b);
}

hd_expr hd_expr_replace(hd_module *module, hd_expr expr, hd_var var, hd_expr by)
{
    return replace(module, expr,
                   &(substitution){.var = var, .var_by = by, .axis = -1});
}

hd_expr hd_expr_replace_at(hd_module *module, hd_expr expr, hd_var var,
                           hd_expr by, int axis, hd_expr coord)
{
    return replace(module, expr, &(substitution){var, by, axis, coord});
}

bool hd_expr_eval(const hd_module *module, hd_expr expr, const hd_env *env,
                  int64_t *out)
{
    const hd_expr_node *node = &module->exprs[expr];
    int64_t a, b;

    switch (hd_expr_form_of(node->kind)) {
    case HD_FORM_CONST:
        *out = node->value;
        return true;
    case HD_FORM_COORD:
        *out = env->coord[node->a];
        return true;
    case HD_FORM_VAR:
        *out = env->var[node->a];
        return true;
    case HD_FORM_SIZE:
        *out = module->size[node->a].now;
        return true;
    case HD_FORM_NOT:
        if (!hd_expr_eval(module, node->a, env, &a))
            return false;
        *out = a == 0;
        return true;
    case HD_FORM_BINARY:
        break;
    }
    if (!hd_expr_eval(module, node->a, env, &a))
        return false;
    // The second operand of logic is left alone where the first one decides,
    // so that `i > 0 and n / i < 4` says what it seems to.
    if ((node->kind == HD_EXPR_AND && a == 0) ||
        (node->kind == HD_EXPR_OR && a != 0)) {
        *out = a != 0;
        return true;
    }
    return hd_expr_eval(module, node->b, env, &b) &&
           hd_expr_apply(node->kind, a, b, out);
}

bool hd_expr_uses_coord(const hd_module *module, hd_expr expr, int axis)
{
    const hd_expr_node *node = hd_expr_get(module, expr);

    switch (hd_expr_form_of(node->kind)) {
    case HD_FORM_CONST:
    case HD_FORM_VAR:
    case HD_FORM_SIZE:
        return false;
    case HD_FORM_COORD:
        return node->a == axis;
    case HD_FORM_NOT:
        return hd_expr_uses_coord(module, node->a, axis);
    case HD_FORM_BINARY:
        break;
    }
    return hd_expr_uses_coord(module, node->a, axis) ||
           hd_expr_uses_coord(module, node->b, axis);
}

bool hd_expr_uses_size(const hd_module *module, hd_expr expr)
{
    const hd_expr_node *node = &module->exprs[expr];

    switch (hd_expr_form_of(node->kind)) {
    case HD_FORM_CONST:
    case HD_FORM_COORD:
    case HD_FORM_VAR:
        return false;
    case HD_FORM_SIZE:
        return true;
    case HD_FORM_NOT:
        return hd_expr_uses_size(module, node->a);
    case HD_FORM_BINARY:
        break;
    }
    return hd_expr_uses_size(module, node->a) ||
           hd_expr_uses_size(module, node->b);
}

bool hd_expr_is_linear(const hd_module *module, hd_expr expr)
{
    const hd_expr_node *node = &module->exprs[expr];

    if (node->kind == HD_EXPR_SIZE || !hd_expr_uses_size(module, expr))
        return true;
    if (node->kind == HD_EXPR_MUL && hd_expr_uses_size(module, node->a) &&
        hd_expr_uses_size(module, node->b))
        return false;
    return (node->kind == HD_EXPR_ADD || node->kind == HD_EXPR_SUB ||
            node->kind == HD_EXPR_MUL) &&
           hd_expr_is_linear(module, node->a) &&
           hd_expr_is_linear(module, node->b);
}

// Both ends of a sum, a difference or a product with one number.
static bool apply_bounds(hd_expr_kind kind, const int64_t a[2],
                         const int64_t b[2], int64_t *low, int64_t *high)
{
    int64_t end[4];

    for (int i = 0; i < 4; i++)
        if (!hd_expr_apply(kind, a[i % 2], b[i / 2], &end[i]))
            return false;
    *low = *high = end[0];
    for (int i = 1; i < 4; i++) {
        *low = end[i] < *low ? end[i] : *low;
        *high = end[i] > *high ? end[i] : *high;
    }
    return true;
}

bool hd_expr_bounds(const hd_module *module, hd_expr expr, const hd_env *env,
                    int64_t *low, int64_t *high)
{
    const hd_expr_node *node = &module->exprs[expr];
    int64_t a[2], b[2];

    if (!hd_expr_uses_size(module, expr)) {
        if (!hd_expr_eval(module, expr, env, low))
            return false;
        *high = *low;
        return true;
    }
    if (node->kind == HD_EXPR_SIZE) {
        *low = module->size[node->a].low;
        *high = module->size[node->a].room; // a run of which is looked at, too
        return true;
    }
    return hd_expr_bounds(module, node->a, env, &a[0], &a[1]) &&
           hd_expr_bounds(module, node->b, env, &b[0], &b[1]) &&
           apply_bounds(node->kind, a, b, low, high);
}

// How tightly an expression holds together, loosest first: the levels of the
// grammar in docs/text-form.md.
typedef enum level {
    LEVEL_OR,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_SUM,
    LEVEL_PRODUCT,
    LEVEL_UNARY,
    LEVEL_ATOM,
} level;

// Each side of an operator takes what holds at least this tightly. A function
// is an atom, and its arguments are anything.
typedef struct syntax {
    const char *text;
    level own, left, right;
} syntax;

static const syntax syntax_of[] = {
    [HD_EXPR_ADD] = {"+", LEVEL_SUM, LEVEL_SUM, LEVEL_PRODUCT},
    [HD_EXPR_SUB] = {"-", LEVEL_SUM, LEVEL_SUM, LEVEL_PRODUCT},
    [HD_EXPR_MUL] = {"*", LEVEL_PRODUCT, LEVEL_PRODUCT, LEVEL_UNARY},
    [HD_EXPR_DIV] = {"/", LEVEL_PRODUCT, LEVEL_PRODUCT, LEVEL_UNARY},
    [HD_EXPR_MOD] = {"mod", LEVEL_PRODUCT, LEVEL_PRODUCT, LEVEL_UNARY},
    [HD_EXPR_LT] = {"<", LEVEL_COMPARE, LEVEL_SUM, LEVEL_SUM},
    [HD_EXPR_LE] = {"<=", LEVEL_COMPARE, LEVEL_SUM, LEVEL_SUM},
    [HD_EXPR_EQ] = {"==", LEVEL_COMPARE, LEVEL_SUM, LEVEL_SUM},
    [HD_EXPR_NE] = {"!=", LEVEL_COMPARE, LEVEL_SUM, LEVEL_SUM},
    [HD_EXPR_AND] = {"and", LEVEL_AND, LEVEL_AND, LEVEL_NOT},
    [HD_EXPR_OR] = {"or", LEVEL_OR, LEVEL_OR, LEVEL_AND},
    [HD_EXPR_MIN] = {"min", LEVEL_ATOM, LEVEL_OR, LEVEL_OR},
    [HD_EXPR_MAX] = {"max", LEVEL_ATOM, LEVEL_OR, LEVEL_OR},
    [HD_EXPR_CDIV] = {"cdiv", LEVEL_ATOM, LEVEL_OR, LEVEL_OR},
};

const char *hd_expr_operator(hd_expr_kind kind)
{
    return syntax_of[kind].text;
}

static level level_of(const hd_expr_node *node)
{
    switch (hd_expr_form_of(node->kind)) {
    case HD_FORM_CONST:
        if (node->value == INT64_MIN)
            return LEVEL_SUM;
        return node->value < 0 ? LEVEL_UNARY : LEVEL_ATOM;
    case HD_FORM_COORD:
    case HD_FORM_VAR:
    case HD_FORM_SIZE:
        return LEVEL_ATOM;
    case HD_FORM_NOT:
        return LEVEL_NOT;
    case HD_FORM_BINARY:
        break;
    }
    return syntax_of[node->kind].own;
}

static void print_bare(const hd_module *module, const hd_expr_node *node,
                       hd_text *text);

static void print_at(const hd_module *module, hd_expr expr, level least,
                     hd_text *text)
{
    const hd_expr_node *node = &module->exprs[expr];
    bool parenthesise = level_of(node) < least;

    if (parenthesise)
        hd_text_puts(text, "(");
    print_bare(module, node, text);
    if (parenthesise)
        hd_text_puts(text, ")");
}

// As `a + b`, or as `min(a, b)`.
static void print_binary(const hd_module *module, const hd_expr_node *node,
                         hd_text *text)
{
    const syntax *s = &syntax_of[node->kind];
    bool calls = s->own == LEVEL_ATOM;

    if (calls)
        hd_text_printf(text, "%s(", s->text);
    print_at(module, node->a, s->left, text);
    hd_text_printf(text, calls ? ", " : " %s ", s->text);
    print_at(module, node->b, s->right, text);
    if (calls)
        hd_text_puts(text, ")");
}

static void print_bare(const hd_module *module, const hd_expr_node *node,
                       hd_text *text)
{
    switch (hd_expr_form_of(node->kind)) {
    case HD_FORM_CONST:
        // The smallest number has no positive counterpart to negate.
        if (node->value == INT64_MIN)
            hd_text_printf(text, "%lld - 1", (long long)-INT64_MAX);
        else
            hd_text_printf(text, "%lld", (long long)node->value);
        return;
    case HD_FORM_COORD:
        hd_text_puts(text, module->axis[node->a].name);
        return;
    case HD_FORM_VAR:
        hd_text_puts(text, module->vars[node->a].name);
        return;
    case HD_FORM_SIZE:
        hd_text_puts(text, module->size[node->a].name);
        return;
    case HD_FORM_NOT:
        hd_text_puts(text, "not ");
        print_at(module, node->a, LEVEL_COMPARE, text);
        return;
    case HD_FORM_BINARY:
        print_binary(module, node, text);
    }
}

void hd_expr_print(const hd_module *module, hd_expr expr, hd_text *text)
{
    print_at(module, expr, LEVEL_OR, text);
}
