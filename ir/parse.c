// A parser by recursive descent, one function a rule of docs/text-form.md. It
// looks one token ahead, and two at a name in an expression. After an error it
// skips to the next line that can begin a statement or a declaration, so that
// each mistake is reported once.
#include "ir/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/locale.h"
#include "base/text.h"
#include "ir/causal.h"
#include "ir/counted.h"
#include "ir/counts.h"
#include "ir/declare.h"
#include "ir/expand.h"
#include "ir/infer.h"
#include "ir/lex.h"
#include "ir/print.h"
#include "ir/signature.h"
#include "ir/suggest.h"
#include "ir/verify.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

enum {
    MAX_DEPTH = 64,
    MAX_EXPR_DEPTH = HD_MAX_EXPR_DEPTH,
    MAX_TEXT = 16 << 20,
    STREAM_BLOCKS = 4, // of a size that nothing else cuts
};

typedef struct scope {
    const char *name;
    size_t length;
    hd_expr value; // a parameter's number, or the variable
    hd_loc loc;
    uint32_t hash;
    int next; // the name before it in its bucket, -1
} scope;

typedef struct parser {
    hd_module *module;
    hd_diag *diag;
    const hd_define *defines;
    size_t ndefines;
    bool *used; // which defines were
    hd_lexer lexer;
    hd_token token;     // the next one
    uint32_t last_line; // of the token before
    scope *names;       // parameters, then variables in scope
    int *bucket;        // as many as there is room for names: the last one, -1
    int nnames, names_room;
    int depth, expr_depth;
    hd_uncounted uncounted;
    bool in_body;   // coordinates may stand here
    bool sizes_may; // those of runs
    bool failed;    // a statement, or a declaration
    bool gave_up;   // past a limit nothing more is said
} parser;

// Most words and marks differ in their first letter.
static bool is_text(const hd_token *token, const char *word)
{
    return token->length > 0 && *token->text == *word &&
           token->length == strlen(word) &&
           memcmp(token->text, word, token->length) == 0;
}

static bool at_mark(const parser *p, const char *mark)
{
    return p->token.kind == HD_TOKEN_MARK && is_text(&p->token, mark);
}

static bool at_word(const parser *p, const char *word)
{
    return p->token.kind == HD_TOKEN_NAME && is_text(&p->token, word);
}

static void advance(parser *p)
{
    p->last_line = p->token.loc.line;
    p->token = hd_lexer_next(&p->lexer);
}

static bool accept_mark(parser *p, const char *mark)
{
    if (!at_mark(p, mark))
        return false;
    advance(p);
    return true;
}

static bool accept_word(parser *p, const char *word)
{
    if (!at_word(p, word))
        return false;
    advance(p);
    return true;
}

static const char *token_text(const parser *p)
{
    if (p->token.kind == HD_TOKEN_END)
        return "the end of the file";
    return hd_arena_printf(
        p->module->arena, "'%.*s'",
        (int)(p->token.loc.length > 40 ? 40 : p->token.loc.length),
        p->token.text - (p->token.kind == HD_TOKEN_BUFFER ||
                         p->token.kind == HD_TOKEN_STRING));
}

static hd_status expected(parser *p, const char *what)
{
    if (p->gave_up)
        return HD_ERROR_INVALID;
    if (p->token.kind == HD_TOKEN_BAD)
        return hd_error(p->diag, HD_E0102, p->token.loc,
                        "a character that cannot stand here; expected %s",
                        what);
    return hd_error(p->diag, HD_E0103, p->token.loc, "expected %s, found %s",
                    what, token_text(p));
}

// One error, and the rest of the text is skipped.
static hd_status give_up(parser *p, const char *what, int limit)
{
    hd_status status = hd_error(p->diag, HD_E0105, p->token.loc,
                                "%s nest deeper than %d", what, limit);

    p->gave_up = true;
    while (p->token.kind != HD_TOKEN_END)
        advance(p);
    return status;
}

// The one too many of what a program may have only so many of.
static hd_status too_many(parser *p, const char *what, int limit)
{
    return hd_error(p->diag, HD_E0105, p->token.loc, "more than %d %s", limit,
                    what);
}

// A name that nothing is called: says so, with the nearest one there is.
static hd_status unknown(parser *p, hd_code code, const char *what,
                         const char *sigil, const hd_suggestion *near)
{
    if (near->best == NULL)
        return hd_error(p->diag, code, p->token.loc, "unknown %s %s", what,
                        token_text(p));
    return hd_error(p->diag, code, p->token.loc,
                    "unknown %s %s; did you mean '%s%s'?", what, token_text(p),
                    sigil, near->best);
}

static hd_status expect_mark(parser *p, const char *mark, const char *what)
{
    return accept_mark(p, mark) ? HD_OK : expected(p, what);
}

// ------------------------------------------------------------------ names

static const scope *find_scope(const parser *p, const char *name, size_t length)
{
    uint32_t hash = hd_name_hash(name, length);

    if (p->names_room == 0)
        return NULL;
    for (int i = p->bucket[hash % (uint32_t)p->names_room]; i >= 0;
         i = p->names[i].next)
        if (p->names[i].hash == hash && p->names[i].length == length &&
            memcmp(p->names[i].name, name, length) == 0)
            return &p->names[i];
    return NULL;
}

static void link_scope(parser *p, int i)
{
    int *bucket = &p->bucket[p->names[i].hash % (uint32_t)p->names_room];

    p->names[i].next = *bucket;
    *bucket = i;
}

static void grow_scopes(parser *p)
{
    hd_arena *arena = p->module->arena;

    p->names = hd_arena_grow(arena, p->names, p->nnames, &p->names_room,
                             sizeof *p->names);
    p->bucket = hd_new_array(arena, int, p->names_room);
    memset(p->bucket, 0xff, sizeof *p->bucket * (size_t)p->names_room);
    for (int i = 0; i < p->nnames; i++)
        link_scope(p, i);
}

static void push_scope(parser *p, const hd_token *name, hd_expr value)
{
    if (p->nnames == p->names_room)
        grow_scopes(p);
    p->names[p->nnames] =
        (scope){.name = name->text,
                .length = name->length,
                .value = value,
                .loc = name->loc,
                .hash = hd_name_hash(name->text, name->length)};
    link_scope(p, p->nnames++);
}

// Forgets all but the first `n` names: each is the first of its bucket.
static void pop_scopes(parser *p, int n)
{
    while (p->nnames > n) {
        const scope *last = &p->names[--p->nnames];

        p->bucket[last->hash % (uint32_t)p->names_room] = last->next;
    }
}

// An axis of the mesh stands here.
static hd_status parse_axis_name(parser *p, int *out)
{
    hd_suggestion near = hd_suggest(p->token.text, p->token.length);
    int axis;

    if (p->token.kind != HD_TOKEN_NAME)
        return expected(p, "an axis of the mesh");
    axis = hd_module_find_axis(p->module, p->token.text, p->token.length);
    for (int i = 0; i < p->module->naxes; i++)
        hd_suggest_consider(&near, p->module->axis[i].name);
    if (axis < 0)
        return unknown(p, HD_E0209, "axis", "", &near);
    *out = axis;
    advance(p);
    return HD_OK;
}

static hd_status unknown_variable(parser *p)
{
    hd_suggestion near = hd_suggest(p->token.text, p->token.length);

    for (int i = 0; i < p->nnames && !hd_diag_is_full(p->diag); i++)
        hd_suggest_consider(&near,
                            hd_arena_text(p->module->arena, p->names[i].name,
                                          p->names[i].length));
    for (int i = 0; p->in_body && i < p->module->naxes; i++)
        hd_suggest_consider(&near, p->module->axis[i].name);
    return unknown(p, HD_E0208, p->in_body ? "variable" : "constant", "",
                   &near);
}

// The last -D for this name; NULL if there is none.
static const hd_define *find_define(parser *p, const hd_token *name)
{
    const hd_define *last = NULL;

    for (size_t i = 0; i < p->ndefines; i++)
        if (strlen(p->defines[i].name) == name->length &&
            memcmp(p->defines[i].name, name->text, name->length) == 0) {
            p->used[i] = true;
            last = &p->defines[i];
        }
    return last;
}

// What it says, or `value`.
static int64_t defined(parser *p, const hd_token *name, int64_t value)
{
    const hd_define *define = find_define(p, name);

    return define != NULL ? define->value : value;
}

// ------------------------------------------------------------ expressions

static hd_status parse_expr(parser *p, hd_expr *out);

enum { MAX_DIGITS = 80 };

// The number that stands here, without its `_`.
static hd_status copy_digits(parser *p, char digits[MAX_DIGITS])
{
    const hd_token *token = &p->token;
    size_t n = 0;

    if (token->length >= MAX_DIGITS) {
        return hd_error(p->diag, HD_E0104, token->loc,
                        "a number of %zu characters; it may have %d",
                        token->length, MAX_DIGITS - 1);
    }
    for (size_t i = 0; i < token->length; i++)
        if (token->text[i] != '_')
            digits[n++] = token->text[i];
    digits[n] = '\0';
    return HD_OK;
}

static hd_status parse_int(parser *p, int64_t *out)
{
    char digits[MAX_DIGITS];
    char *end;

    if (p->token.kind != HD_TOKEN_INT)
        return expected(p, "a whole number");
    HD_TRY(copy_digits(p, digits));
    errno = 0;
    *out =
        strtoll(digits, &end, digits[1] == 'x' || digits[1] == 'X' ? 16 : 10);
    if (errno != 0 || *end != '\0')
        return hd_error(p->diag, HD_E0104, p->token.loc,
                        "%s is no whole number below 2^63", token_text(p));
    advance(p);
    return HD_OK;
}

static hd_status parse_size(parser *p, hd_expr *out)
{
    int axis;

    advance(p);
    HD_TRY(parse_axis_name(p, &axis));
    *out = hd_expr_const(p->module, p->module->axis[axis].size);
    return HD_OK;
}

// What is issued does not depend on what a run is given.
static hd_status parse_known(parser *p, const scope *known, hd_expr *out)
{
    if (hd_expr_get(p->module, known->value)->kind == HD_EXPR_SIZE &&
        !p->sizes_may)
        return hd_error(p->diag, HD_E0208, p->token.loc,
                        "%s is known only when the program runs: it may be the "
                        "extent of a dimension, or in 'causal' and 'step'",
                        token_text(p));
    *out = known->value;
    advance(p);
    return HD_OK;
}

static hd_status parse_name(parser *p, hd_expr *out)
{
    const scope *known = find_scope(p, p->token.text, p->token.length);
    int axis;

    if (known != NULL)
        return parse_known(p, known, out);
    axis = hd_module_find_axis(p->module, p->token.text, p->token.length);
    if (axis >= 0 && !p->in_body) {
        return hd_error(p->diag, HD_E0208, p->token.loc,
                        "%s is a rank's own coordinate, and declarations are "
                        "the same on every rank; its size is 'size %.*s'",
                        token_text(p), (int)p->token.length, p->token.text);
    }
    if (axis < 0)
        return unknown_variable(p);
    *out = hd_expr_coord(p->module, axis);
    advance(p);
    return HD_OK;
}

// An operator, or a function of two arguments.
typedef struct infix {
    const char *text;
    hd_expr_kind kind;
    bool swapped; // a > b is b < a
} infix;

static const infix products[] = {{"*", HD_EXPR_MUL, false},
                                 {"/", HD_EXPR_DIV, false},
                                 {"mod", HD_EXPR_MOD, false}};
static const infix sums[] = {{"+", HD_EXPR_ADD, false},
                             {"-", HD_EXPR_SUB, false}};
static const infix comparisons[] = {
    {"==", HD_EXPR_EQ, false}, {"!=", HD_EXPR_NE, false},
    {"<=", HD_EXPR_LE, false}, {"<", HD_EXPR_LT, false},
    {">=", HD_EXPR_LE, true},  {">", HD_EXPR_LT, true}};
static const infix ands[] = {{"and", HD_EXPR_AND, false}};
static const infix ors[] = {{"or", HD_EXPR_OR, false}};

static const infix functions[] = {{"min", HD_EXPR_MIN, false},
                                  {"max", HD_EXPR_MAX, false},
                                  {"cdiv", HD_EXPR_CDIV, false}};

static const infix *accept_infix(parser *p, const infix *table, size_t n)
{
    if (p->token.kind != HD_TOKEN_MARK && p->token.kind != HD_TOKEN_NAME)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (is_text(&p->token, table[i].text)) {
            advance(p);
            return &table[i];
        }
    return NULL;
}

static hd_status fold(parser *p, const infix *op, hd_expr *left, hd_expr right)
{
    *left = op->swapped ? hd_expr_binary(p->module, op->kind, right, *left)
                        : hd_expr_binary(p->module, op->kind, *left, right);
    if (hd_expr_depth(p->module, *left) <= MAX_EXPR_DEPTH)
        return HD_OK;
    return hd_error(p->diag, HD_E0105, p->token.loc,
                    "an expression of more than %d nested operators",
                    MAX_EXPR_DEPTH);
}

// Whether the name that stands here is called: no other name has a parenthesis
// behind it, so that parameters, keys and operations may be called the same.
static bool at_call(const parser *p)
{
    hd_lexer ahead = p->lexer;
    hd_token next = hd_lexer_next(&ahead);

    return next.kind == HD_TOKEN_MARK && is_text(&next, "(");
}

static hd_status unknown_function(parser *p)
{
    hd_suggestion near = hd_suggest(p->token.text, p->token.length);

    for (size_t i = 0; i < COUNT(functions); i++)
        hd_suggest_consider(&near, functions[i].text);
    return unknown(p, HD_E0208, "function", "", &near);
}

static hd_status parse_call(parser *p, hd_expr *out)
{
    const infix *function = accept_infix(p, functions, COUNT(functions));
    hd_expr second;

    if (function == NULL)
        return unknown_function(p);
    HD_TRY(expect_mark(p, "(", "'('"));
    HD_TRY(parse_expr(p, out));
    HD_TRY(expect_mark(p, ",", "',' and a second argument"));
    HD_TRY(parse_expr(p, &second));
    HD_TRY(expect_mark(p, ")", "')'"));
    return fold(p, function, out, second);
}

static hd_status parse_atom(parser *p, hd_expr *out)
{
    int64_t value;

    if (at_word(p, "size"))
        return parse_size(p, out);
    if (p->token.kind == HD_TOKEN_NAME)
        return at_call(p) ? parse_call(p, out) : parse_name(p, out);
    if (p->token.kind == HD_TOKEN_INT) {
        HD_TRY(parse_int(p, &value));
        *out = hd_expr_const(p->module, value);
        return HD_OK;
    }
    if (!at_mark(p, "(")) {
        hd_status status = expected(p, "an expression");

        if (p->token.kind == HD_TOKEN_BUFFER &&
            p->token.loc.line == p->last_line && !p->gave_up)
            hd_note(p->diag, p->token.loc,
                    "data does not decide what is issued: expressions are made "
                    "of constants, variables and this rank's coordinates");
        return status;
    }
    advance(p);
    HD_TRY(parse_expr(p, out));
    return expect_mark(p, ")", "')'");
}

// A run of signs is one sign, however long.
static hd_status parse_unary(parser *p, hd_expr *out)
{
    bool negative = false;

    while (accept_mark(p, "-"))
        negative = !negative;
    HD_TRY(parse_atom(p, out));
    if (negative)
        *out = hd_expr_binary(p->module, HD_EXPR_SUB,
                              hd_expr_const(p->module, 0), *out);
    return HD_OK;
}

// An extent that silently lost its remainder would be a program for fewer rows;
// indices and loops may well mean to round down.
static hd_status check_quotient(parser *p, const infix *op, hd_expr left,
                                hd_expr right, hd_loc loc)
{
    int64_t a, b;

    if (p->in_body || op->kind != HD_EXPR_DIV ||
        !hd_expr_is_const(p->module, left) ||
        !hd_expr_is_const(p->module, right))
        return HD_OK;
    a = hd_expr_value(p->module, left);
    b = hd_expr_value(p->module, right);
    if (b <= 0 || a % b == 0)
        return HD_OK;
    return hd_error(p->diag, HD_E0213, loc,
                    "%" PRId64 " / %" PRId64 " leaves a remainder of %" PRId64
                    "; a declaration divides without one, and cdiv(%" PRId64
                    ", %" PRId64 ") rounds up",
                    a, b, a % b < 0 ? a % b + b : a % b, a, b);
}

static hd_status parse_chain(parser *p, const infix *table, size_t n,
                             hd_status (*parse_operand)(parser *, hd_expr *),
                             hd_expr *out)
{
    const infix *op;
    hd_expr right;
    hd_loc loc;

    HD_TRY(parse_operand(p, out));
    while (loc = p->token.loc, (op = accept_infix(p, table, n)) != NULL) {
        HD_TRY(parse_operand(p, &right));
        HD_TRY(check_quotient(p, op, *out, right, loc));
        HD_TRY(fold(p, op, out, right));
    }
    return HD_OK;
}

static hd_status parse_product(parser *p, hd_expr *out)
{
    return parse_chain(p, products, COUNT(products), parse_unary, out);
}

static hd_status parse_sum(parser *p, hd_expr *out)
{
    return parse_chain(p, sums, COUNT(sums), parse_product, out);
}

static hd_status parse_comparison(parser *p, hd_expr *out)
{
    const infix *op;
    hd_expr right;

    HD_TRY(parse_sum(p, out));
    op = accept_infix(p, comparisons, COUNT(comparisons));
    if (op == NULL)
        return HD_OK;
    HD_TRY(parse_sum(p, &right));
    return fold(p, op, out, right);
}

static hd_status parse_not(parser *p, hd_expr *out)
{
    int n = 0;

    while (accept_word(p, "not"))
        n = n == 1 ? 2 : 1;
    HD_TRY(parse_comparison(p, out));
    if (n == 1)
        *out = hd_expr_not(p->module, *out);
    if (n == 2) // an even number of them makes a truth of a number
        *out = hd_expr_binary(p->module, HD_EXPR_NE, *out,
                              hd_expr_const(p->module, 0));
    return HD_OK;
}

static hd_status parse_and(parser *p, hd_expr *out)
{
    return parse_chain(p, ands, COUNT(ands), parse_not, out);
}

static hd_status parse_expr(parser *p, hd_expr *out)
{
    hd_status status;

    if (++p->expr_depth > MAX_EXPR_DEPTH)
        return give_up(p, "parentheses", MAX_EXPR_DEPTH);
    status = parse_chain(p, ors, COUNT(ors), parse_and, out);
    p->expr_depth--;
    return status;
}

// ------------------------------------------------------------------ views

static hd_status unknown_buffer(parser *p)
{
    hd_suggestion near = hd_suggest(p->token.text, p->token.length);

    for (const hd_buffer *b = p->module->buffers;
         b != NULL && !hd_diag_is_full(p->diag); b = b->next)
        hd_suggest_consider(&near, b->name);
    return unknown(p, HD_E0201, "buffer", "%", &near);
}

static hd_status take_positive(parser *p, const char *what, hd_expr size,
                               hd_loc loc, int64_t *out)
{
    if (!hd_expr_is_const(p->module, size))
        return hd_error(p->diag, HD_E0202, loc, "%s has no value here", what);
    *out = hd_expr_value(p->module, size);
    if (*out >= 1)
        return HD_OK;
    return hd_error(p->diag, HD_E0202, loc,
                    "%s %" PRId64 "; it must be at least 1",
                    strchr(what, ' ') + 1, *out);
}

// Into how many blocks a dimension is cut.
static hd_status parse_positive(parser *p, const char *what, int64_t *out)
{
    hd_loc loc = p->token.loc;
    hd_expr size;

    HD_TRY(parse_sum(p, &size));
    return take_positive(p, what, size, loc, out);
}

// Of a dimension that a view has too many of, verify says so.
static hd_status parse_blocks(parser *p, hd_view *view, int dim)
{
    hd_expr block = view->index[dim];
    int64_t blocks;

    HD_TRY(parse_positive(p, "a number of blocks", &blocks));
    if (dim < view->buffer->type.ndims)
        hd_view_keep_block(p->module, view, dim, block, blocks);
    return HD_OK;
}

// What is picked of the next dimension, or kept: all of it, low .. past or a
// block.
static hd_status parse_index(parser *p, hd_view *view)
{
    int dim = view->nindex++;
    hd_expr past;

    if (accept_mark(p, ":")) {
        view->index[dim] = HD_EXPR_ALL;
        return HD_OK;
    }
    HD_TRY(parse_expr(p, &view->index[dim]));
    if (accept_word(p, "of"))
        return parse_blocks(p, view, dim);
    if (!accept_mark(p, ".."))
        return HD_OK;
    HD_TRY(parse_expr(p, &past));
    hd_view_keep(p->module, view, dim, view->index[dim], past);
    return HD_OK;
}

// What is written need not be declared in a tensor program.
static hd_buffer *add_undeclared(parser *p)
{
    const hd_type type = {.dtype = HD_DTYPE_F32};
    hd_buffer *buffer = hd_module_add_buffer(
        p->module,
        hd_arena_text(p->module->arena, p->token.text, p->token.length),
        HD_ROLE_TEMP, &type);

    buffer->loc = p->token.loc;
    buffer->locs = hd_new(p->module->arena, hd_locs);
    buffer->open = HD_OPEN_DTYPE | HD_OPEN_PLACE | HD_OPEN_SHAPE;
    buffer->shapeless = true;
    return buffer;
}

static bool may_be_open(const parser *p)
{
    return p->module->stage == HD_STAGE_TENSOR && p->module->form > 1;
}

static hd_status parse_view(parser *p, bool written, hd_view *out)
{
    hd_view view = {.loc = p->token.loc};

    if (p->token.kind != HD_TOKEN_BUFFER)
        return expected(p, "a buffer");
    view.buffer = hd_module_buffer(p->module, p->token.text, p->token.length);
    if (view.buffer == NULL && written && may_be_open(p))
        view.buffer = add_undeclared(p);
    if (view.buffer == NULL)
        return unknown_buffer(p);
    advance(p);
    if (accept_mark(p, "[")) {
        do {
            if (view.nindex == HD_MAX_DIMS)
                return too_many(p, "indices", HD_MAX_DIMS);
            HD_TRY(parse_index(p, &view));
        } while (accept_mark(p, ","));
        HD_TRY(expect_mark(p, "]", "',' or ']'"));
    }
    *out = view;
    return HD_OK;
}

static hd_status parse_views(parser *p, hd_view *views, int room, int *n)
{
    do {
        if (*n == room)
            return too_many(p, "results and operands", room);
        HD_TRY(parse_view(p, true, &views[*n]));
        ++*n;
    } while (accept_mark(p, ","));
    return HD_OK;
}

static hd_status parse_literal(parser *p, double *out)
{
    char digits[MAX_DIGITS];
    char *end;
    locale_t before;

    HD_TRY(copy_digits(p, digits));
    before = hd_locale_enter();
    *out = strtod(digits, &end);
    hd_locale_leave(before);
    if (*end != '\0')
        return expected(p, "a number");
    if (!isfinite(*out))
        return hd_error(p->diag, HD_E0104, p->token.loc,
                        "%s is no number that an f64 holds", token_text(p));
    advance(p);
    return HD_OK;
}

// What stands for one number: a parameter, the size of an axis, a function.
static hd_status parse_named(parser *p, double *out)
{
    hd_token token = p->token;
    hd_expr expr;

    HD_TRY(parse_atom(p, &expr));
    if (hd_expr_is_const(p->module, expr)) {
        *out = (double)hd_expr_value(p->module, expr);
        return HD_OK;
    }
    return hd_error(p->diag, HD_E0208, token.loc,
                    "'%.*s' is not the same on every rank and in every "
                    "iteration: a number here is of constants and parameters",
                    (int)token.length, token.text);
}

static hd_status parse_number(parser *p, double *out);

static hd_status parse_signed(parser *p, double *out)
{
    bool negative = false;

    while (accept_mark(p, "-"))
        negative = !negative;
    if (p->token.kind == HD_TOKEN_NUMBER || p->token.kind == HD_TOKEN_INT) {
        HD_TRY(parse_literal(p, out));
    } else if (accept_mark(p, "(")) {
        HD_TRY(parse_number(p, out));
        HD_TRY(expect_mark(p, ")", "')'"));
    } else if (p->token.kind == HD_TOKEN_NAME) {
        HD_TRY(parse_named(p, out));
    } else {
        return expected(p, "a number or a buffer");
    }
    *out = negative ? -*out : *out;
    return HD_OK;
}

static double calculate(char mark, double left, double right)
{
    return mark == '+'   ? left + right
           : mark == '-' ? left - right
           : mark == '*' ? left * right
                         : left / right;
}

static hd_status parse_calculation(parser *p, const char *marks,
                                   hd_status (*parse_part)(parser *, double *),
                                   double *out)
{
    HD_TRY(parse_part(p, out));
    while (p->token.kind == HD_TOKEN_MARK && p->token.length == 1 &&
           strchr(marks, *p->token.text) != NULL) {
        hd_token at = p->token;
        double left = *out, right;

        advance(p);
        HD_TRY(parse_part(p, &right));
        *out = calculate(*at.text, left, right);
        if (isfinite(*out))
            continue;
        return hd_error(p->diag, HD_E0104, at.loc,
                        "%g %c %g is no number that an f64 holds", left,
                        *at.text, right);
    }
    return HD_OK;
}

static hd_status parse_factors(parser *p, double *out)
{
    return parse_calculation(p, "*/", parse_signed, out);
}

// Numbers are no indices: 1 / 4 is a quarter.
static hd_status parse_number(parser *p, double *out)
{
    hd_status status;

    if (++p->expr_depth > MAX_EXPR_DEPTH)
        return give_up(p, "parentheses", MAX_EXPR_DEPTH);
    status = parse_calculation(p, "+-", parse_factors, out);
    p->expr_depth--;
    return status;
}

// The same on all ranks; which numbers an op takes is for verify to say.
static hd_status parse_whole(parser *p, hd_key_code code, int32_t *out)
{
    hd_loc loc = p->token.loc;
    hd_expr expr;

    HD_TRY(parse_sum(p, &expr));
    if (hd_expr_is_const(p->module, expr) &&
        hd_expr_value(p->module, expr) >= INT32_MIN &&
        hd_expr_value(p->module, expr) <= INT32_MAX) {
        *out = (int32_t)hd_expr_value(p->module, expr);
        return HD_OK;
    }
    return hd_error(p->diag, HD_E0312, loc, "%s takes a constant below 2^31",
                    hd_key_info_get(code)->text);
}

// (1, 0, 2)
static hd_status parse_ints(parser *p, hd_key *key)
{
    HD_TRY(expect_mark(p, "(", "numbers in parentheses, as in order (1, 0)"));
    if (accept_mark(p, ")"))
        return HD_OK;
    do {
        if (key->nints == HD_MAX_DIMS)
            return too_many(p, "numbers", HD_MAX_DIMS);
        HD_TRY(parse_whole(p, key->code, &key->ints[key->nints]));
        key->nints++;
    } while (accept_mark(p, ","));
    return expect_mark(p, ")", "',' or ')'");
}

// What rows see says no more of what is issued than lengths do.
static hd_status parse_key_expr(parser *p, hd_key *key)
{
    hd_status status;

    p->sizes_may = hd_causal_is_place(key->code);
    status = parse_expr(p, &key->expr);
    p->sizes_may = false;
    return status;
}

// Views follow the `n` that are there.
static hd_status parse_value(parser *p, hd_view *views, int *n, hd_key *key)
{
    int32_t whole;

    switch (hd_key_info_get(key->code)->value) {
    case HD_VALUE_FLAG:
    case HD_VALUE_BY:      // no text has it
    case HD_VALUE_NAME:    // nor that as a key
    case HD_VALUE_NUMBERS: // nor those
        return HD_OK;
    case HD_VALUE_INT:
        HD_TRY(parse_whole(p, key->code, &whole));
        key->number = whole;
        return HD_OK;
    case HD_VALUE_INTS:
        return parse_ints(p, key);
    case HD_VALUE_EXPR:
        return parse_key_expr(p, key);
    case HD_VALUE_READ:
    case HD_VALUE_WRITE:
    case HD_VALUE_EVENT:
    case HD_VALUE_LEFT:
    case HD_VALUE_RIGHT:
    case HD_VALUE_COUNTS:
        key->view = (*n)++;
        return parse_view(p, key->code == HD_KEY_AUX, &views[key->view]);
    case HD_VALUE_FACTOR:
        if (p->token.kind != HD_TOKEN_BUFFER)
            return parse_number(p, &key->number);
        key->view = (*n)++;
        return parse_view(p, false, &views[key->view]);
    case HD_VALUE_ACT:
        if (p->token.kind != HD_TOKEN_NAME ||
            !hd_act_find(p->token.text, p->token.length, &key->act))
            return expected(p, "relu, gelu, gelu_erf or silu");
        advance(p);
        return HD_OK;
    }
    return HD_OK;
}

// ------------------------------------------------------------- statements

enum { MAX_CALLEE = 255 };

// Names of C, of C++ with their types, of a path: whatever is seen.
static bool may_name_function(const hd_token *name)
{
    for (size_t i = 0; i < name->length; i++)
        if (name->text[i] <= ' ' || name->text[i] > '~' ||
            name->text[i] == '\\')
            return false;
    return name->length > 0 && name->length <= MAX_CALLEE;
}

// The function that is called, as the key that it becomes.
static hd_status parse_callee(parser *p, hd_key *key, int *n)
{
    hd_token name = p->token;

    if (name.kind == HD_TOKEN_BAD && *name.text == '"')
        return hd_error(p->diag, HD_E0216, name.loc,
                        "the name of a function without its closing quote");
    if (name.kind != HD_TOKEN_STRING)
        return expected(p, "the name of a function, as in call \"gelu\"");
    if (!may_name_function(&name))
        return hd_error(p->diag, HD_E0216, name.loc,
                        "%s names no function: a name is 1 to %d visible "
                        "characters of ASCII, none of them a quote or a "
                        "backslash",
                        token_text(p), MAX_CALLEE);
    *key = (hd_key){
        HD_KEY_NAME, name.loc, HD_EXPR_NONE, .view = -1,
        .name = hd_arena_text(p->module->arena, name.text, name.length)};
    *n = 1;
    advance(p);
    return HD_OK;
}

static int compare_keys(const void *a, const void *b)
{
    return (int)((const hd_key *)a)->code - (int)((const hd_key *)b)->code;
}

// Views stand as results, operands and keys do, whose order was another one.
static void keep_views(parser *p, hd_op *op, const hd_view *views)
{
    int n = op->noutputs + op->ninputs;

    op->view = hd_arena_copy(p->module->arena, views,
                             sizeof views[0] * (size_t)op->nviews);
    for (int i = 0; i < op->nkeys; i++)
        if (op->key[i].view >= 0) {
            op->view[n] = views[op->key[i].view];
            op->key[i].view = n++;
        }
}

static hd_status parse_extent(parser *p, hd_dim *out);

// What would be too much is one more than may be.
static void give_dim_room(const hd_module *module, hd_dim *dim)
{
    int64_t room = module->size[dim->size - 1].room;

    dim->extent = room <= HD_MAX_ELEMENTS / dim->times ? room * dim->times
                                                       : HD_MAX_ELEMENTS + 1;
}

// "reshape %x to [m, h, d]", "iota dim 0 to [n]"
static hd_status parse_shape(parser *p, hd_said *said)
{
    if (said->shaped)
        return expected(p, "each key once");
    advance(p);
    said->shaped = true;
    HD_TRY(expect_mark(p, "[", "'['"));
    if (accept_mark(p, "]"))
        return HD_OK;
    do {
        hd_type *shape = &said->shape;

        if (shape->ndims == HD_MAX_DIMS)
            return too_many(p, "dimensions", HD_MAX_DIMS);
        HD_TRY(parse_extent(p, &shape->dim[shape->ndims]));
        if (hd_dim_is_sized(shape->dim[shape->ndims]))
            give_dim_room(p->module, &shape->dim[shape->ndims]);
        shape->ndims++;
    } while (accept_mark(p, ","));
    return expect_mark(p, "]", "',' or ']'");
}

// `keys` has the first `n`.
static hd_status parse_keys(parser *p, hd_op *op, hd_view *views, hd_key *keys,
                            int n, hd_said *said)
{
    hd_key_code code;

    while (p->token.kind == HD_TOKEN_NAME &&
           hd_key_find(p->token.text, p->token.length, &code) &&
           !(p->token.first &&
             hd_op_find(p->token.text, p->token.length, &(hd_opcode){0}))) {
        hd_key key = {code, p->token.loc, HD_EXPR_NONE, .view = -1};

        if (code == HD_KEY_TO && may_be_open(p) && hd_op_says_shape(op)) {
            HD_TRY(parse_shape(p, said));
            continue;
        }
        for (int i = 0; i < n; i++)
            if (keys[i].code == code)
                return expected(p, "each key once");
        advance(p);
        HD_TRY(parse_value(p, views, &op->nviews, &key));
        keys[n++] = key;
    }
    qsort(keys, (size_t)n, sizeof *keys, compare_keys);
    op->key = hd_arena_copy(p->module->arena, keys, sizeof *keys * (size_t)n);
    op->nkeys = n;
    keep_views(p, op, views);
    return HD_OK;
}

static hd_status parse_axis(parser *p, hd_op *op)
{
    op->axis = -1;
    if (accept_mark(p, "@")) {
        HD_TRY(parse_axis_name(p, &op->axis));
    } else if (hd_op_is(op, HD_UNIT_TRANSFER) && p->module->naxes == 1) {
        op->axis = 0;
    }
    return HD_OK;
}

static const char *const statement_words[] = {"let",   "for",    "if",  "on",
                                              "group", "launch", "else"};

static bool begins_statement(const hd_token *token)
{
    hd_opcode code;

    for (size_t i = 0; i < COUNT(statement_words); i++)
        if (is_text(token, statement_words[i]))
            return true;
    return hd_op_find(token->text, token->length, &code);
}

static bool is_followed_by(const parser *p, const char *mark)
{
    hd_lexer ahead = p->lexer;
    hd_token next = hd_lexer_next(&ahead);

    return next.kind == HD_TOKEN_MARK && is_text(&next, mark);
}

// No operations of their own: take_mean, take_concat.
static const char MEAN[] = "mean", CONCAT[] = "concat";

// Operations that there were, and what is written in the place of each.
static const struct {
    const char *name, *now;
} former_ops[] = {
    {"all_gather_matmul", "{ %g = all_gather %a  %c = matmul %g, %b }"},
    {"matmul_reduce_scatter", "{ %p = matmul %a, %b  %c = reduce_scatter %p }"},
    {"matmul_all_reduce", "{ %p = matmul %a, %b  %c = all_reduce %p }"},
};

static bool is_number(const hd_token *token)
{
    return token->kind == HD_TOKEN_INT || token->kind == HD_TOKEN_NUMBER;
}

// `behind` another operation, of which a number may be meant as an operand.
static hd_status unknown_op(parser *p, bool behind)
{
    hd_suggestion near = hd_suggest(p->token.text, p->token.length);

    for (size_t i = 0; i < COUNT(former_ops); i++)
        if (is_text(&p->token, former_ops[i].name))
            return hd_error(p->diag, HD_E0210, p->token.loc,
                            "%s is a launch of its parts now, with a temporary "
                            "between them: 'launch %s'",
                            token_text(p), former_ops[i].now);

    if (p->token.kind == HD_TOKEN_BUFFER)
        return expected(p,
                        hd_arena_printf(p->module->arena,
                                        "an operation, as in 'copy %%%.*s'",
                                        (int)p->token.length, p->token.text));
    if (p->token.kind != HD_TOKEN_NAME)
        return expected(p, behind && is_number(&p->token)
                               ? "',' before another operand, a key or another "
                                 "statement"
                               : "an operation");
    if (is_followed_by(p, "=") || is_followed_by(p, ",")) {
        return hd_error(p->diag, HD_E0210, p->token.loc,
                        "unknown operation %s; a result is a buffer, and its "
                        "name begins with %%: '%%%.*s'",
                        token_text(p), (int)p->token.length, p->token.text);
    }
    near.strict = true;
    hd_suggest_consider(&near, MEAN);
    hd_suggest_consider(&near, CONCAT);
    for (int i = 0; i < HD_NOPS; i++)
        hd_suggest_consider(&near, hd_op_info_get((hd_opcode)i)->text);
    for (size_t i = 0; i < COUNT(statement_words); i++)
        hd_suggest_consider(&near, statement_words[i]);
    return unknown(p, HD_E0210, "operation", "", &near);
}

// A word after an operation, on its line, that is no key.
static hd_status unknown_key(parser *p, const hd_op *op)
{
    hd_suggestion near = hd_suggest(p->token.text, p->token.length);

    for (int i = 0; i < HD_NKEYS; i++)
        if (hd_op_info_get(op->code)->keys >> i & 1)
            hd_suggest_consider(&near, hd_key_info_get((hd_key_code)i)->text);
    if (hd_module_buffer(p->module, p->token.text, p->token.length))
        return hd_error(p->diag, HD_E0211, p->token.loc,
                        "unknown key %s; the buffer is '%%%.*s'", token_text(p),
                        (int)p->token.length, p->token.text);
    return unknown(p, HD_E0211, "key", "", &near);
}

// A buffer that begins a statement behind another one, and makes none of its
// line: it was to be an operand of that.
static hd_status missing_comma(parser *p, const hd_token *buffer)
{
    return hd_error(p->diag, HD_E0103, buffer->loc,
                    "expected ',' before '%%%.*s', or '=' and an operation "
                    "behind it",
                    (int)buffer->length, buffer->text);
}

static bool takes_numbers(const hd_op *op)
{
    return hd_op_info_get(op->code)->keys >> HD_KEY_NUMBERS & 1;
}

// Behind a comma a key of the op is no operand, unless it is a name, too.
static hd_status refuse_key(parser *p, const hd_op *op)
{
    hd_key_code key;

    if (p->token.kind != HD_TOKEN_NAME ||
        !hd_key_find(p->token.text, p->token.length, &key) ||
        (hd_op_info_get(op->code)->keys >> key & 1) == 0 ||
        find_scope(p, p->token.text, p->token.length) != NULL ||
        hd_module_find_axis(p->module, p->token.text, p->token.length) >= 0)
        return HD_OK;
    return hd_error(p->diag, HD_E0208, p->token.loc,
                    "unknown variable %s; it is a key, which no comma stands "
                    "ahead of",
                    token_text(p));
}

static hd_status parse_scalar(parser *p, int operand, hd_scalar *scalars,
                              int *n)
{
    if (*n == HD_MAX_SCALARS)
        return too_many(p, "numbers", HD_MAX_SCALARS);
    HD_TRY(parse_number(p, &scalars[*n].number));
    scalars[(*n)++].operand = operand;
    return HD_OK;
}

// Numbers among them become a key, one more of the `n` that are there.
static hd_status parse_operands(parser *p, hd_op *op, hd_view *views,
                                hd_key *keys, int *n)
{
    hd_key key = {HD_KEY_NUMBERS, .expr = HD_EXPR_NONE, .view = -1};
    hd_scalar scalars[HD_MAX_SCALARS];
    int k = 0;

    do {
        if (op->nviews + key.nscalars == HD_MAX_OPERANDS)
            return too_many(p, "results and operands", HD_MAX_OPERANDS);
        if (p->token.kind == HD_TOKEN_BUFFER || !takes_numbers(op)) {
            HD_TRY(parse_view(p, false, &views[op->nviews]));
            op->nviews++;
        } else {
            key.loc = key.nscalars == 0 ? p->token.loc : key.loc;
            HD_TRY(refuse_key(p, op));
            HD_TRY(parse_scalar(p, k, scalars, &key.nscalars));
        }
        k++;
    } while (accept_mark(p, ","));
    if (key.nscalars > 0) {
        key.scalar = hd_arena_copy(p->module->arena, scalars,
                                   sizeof *scalars * (size_t)key.nscalars);
        keys[(*n)++] = key;
    }
    return HD_OK;
}

// What may begin a number, and is no key.
static bool at_number(const parser *p)
{
    return p->token.kind == HD_TOKEN_NUMBER || p->token.kind == HD_TOKEN_INT ||
           at_mark(p, "-") || at_mark(p, "(") ||
           (p->token.kind == HD_TOKEN_NAME && !p->token.first &&
            !hd_key_find(p->token.text, p->token.length, &(hd_key_code){0}) &&
            !begins_statement(&p->token));
}

static bool at_operand(const parser *p, const hd_op *op)
{
    const hd_op_info *info = hd_op_info_get(op->code);

    return info->max_inputs > 0 &&
           (p->token.kind == HD_TOKEN_BUFFER ||
            (takes_numbers(op) && at_number(p)) ||
            (info->min_inputs > 0 && (p->token.kind == HD_TOKEN_NUMBER ||
                                      p->token.kind == HD_TOKEN_INT)));
}

// What a fold of one operand joins, before it is taken apart.
typedef struct folded {
    hd_view from;
    hd_type in;
    bool one;     // it is one operand
    bool all;     // its dimensions, all of them
    int dim;      // or one
    bool counted; // data says how many indices of that there are
} folded;

static bool folds_one(const hd_op *op)
{
    return hd_op_family(op) == HD_FAMILY_FOLD && op->noutputs == 1 &&
           op->ninputs == 1 && hd_op_operands(op) == 1;
}

// Without `dim`, in tensor programs, a fold of one operand is over all of its
// dimensions, into one element; a result that is declared as long as the
// operand has each of its elements.
static bool folds_all(const parser *p, const hd_op *op, bool mean)
{
    const hd_buffer *made = op->view[0].buffer;
    hd_type out = hd_view_type(&op->view[0]), in = hd_view_type(&op->view[1]);

    if (!may_be_open(p) || op->nkeys > 0 || op->view[1].buffer->shapeless ||
        in.ndims == 0)
        return false;
    if (made->shapeless)
        return mean || (made->open & HD_OPEN_PLACE) != 0 ||
               out.ndims != in.ndims;
    return mean || out.ndims == 0 ||
           (out.ndims == 1 && out.dim[0].extent == 1 &&
            (in.ndims > 1 || in.dim[0].extent > 1));
}

// Whether what is folded is what is counted, or has a count each.
static bool folds_counted(const hd_op *op, const folded *f)
{
    const hd_view *from = &op->view[1];
    const hd_buffer *x = from->buffer;

    return x->by != NULL &&
           (f->all || f->dim < hd_view_kept_ahead(from, x->by->type.ndims) ||
            f->dim == hd_view_kept_ahead(from, x->counted));
}

static folded find_folded(const parser *p, const hd_op *op, bool mean)
{
    folded f = {.one = folds_one(op)};

    if (!f.one)
        return f;
    f.from = op->view[1];
    f.in = hd_view_type(&f.from);
    f.all = folds_all(p, op, mean);
    if (hd_op_key(op, HD_KEY_DIM) != NULL)
        f.dim = hd_op_dim(op);
    else
        f.one = f.all;
    f.counted = folds_counted(op, &f);
    return f;
}

// Of sums those that hold what they are rounded to once, at the end.
static hd_dtype part_dtype(const hd_op *op)
{
    hd_dtype in = hd_view_type(&op->view[1]).dtype;
    const hd_buffer *made = op->view[0].buffer;
    hd_dtype out = (made->open & HD_OPEN_DTYPE) != 0 ? in : made->type.dtype;

    if (op->code != HD_OP_SUM)
        return in;
    return hd_dtype_is_float(out) && hd_dtype_holds(HD_DTYPE_F32, out) &&
                   hd_dtype_holds(out, in)
               ? HD_DTYPE_F32
               : out;
}

static void settle(parser *p, hd_stmt *stmt, hd_block *block)
{
    hd_op_add_counts(p->module, stmt->op);
    hd_counted_settle(p->module, stmt, block, &p->uncounted, p->diag);
}

static void append_settled(parser *p, hd_block *block, hd_stmt *stmt)
{
    settle(p, stmt, block);
    hd_block_append(block, stmt);
}

// Folds all dimensions but one, the last one at first, and leaves that to the
// statement. What is counted is ahead of all: a fold of nothing changes none
// behind it.
static void fold_all(parser *p, hd_op *op, hd_block *block)
{
    const hd_said said = {0};
    hd_type in = hd_view_type(&op->view[1]), type = {.dtype = part_dtype(op)};
    hd_buffer *made = op->view[0].buffer;
    const hd_view *from = &op->view[1];
    int counted = from->buffer->by != NULL && in.ndims > 0
                      ? hd_view_kept_ahead(from, from->buffer->counted)
                      : -1;

    if ((made->open & HD_OPEN_DTYPE) != 0 && type.dtype != in.dtype &&
        in.ndims > 1) { // whatever parts are of
        made->type.dtype = in.dtype;
        made->open &= ~(unsigned)HD_OPEN_DTYPE;
    }
    for (int left = in.ndims - 1; left >= 0; left--, counted = -1) {
        hd_key dim = {HD_KEY_DIM, op->loc, HD_EXPR_NONE, .view = -1,
                      .number = counted >= 0 ? counted : left};
        hd_stmt *first;

        if (left == 0) {
            op->key = hd_arena_copy(p->module->arena, &dim, sizeof dim);
            op->nkeys = 1;
            return;
        }
        first = hd_stmt_op(p->module, op->code, -1, 1, 1, 1, op->loc);
        first->op->view[0] =
            hd_view_whole(hd_expand_temp(p->module, op,
                                         hd_op_info_get(op->code)->text, &type),
                          op->loc);
        first->op->view[0].buffer->open = HD_OPEN_PLACE | HD_OPEN_SHAPE;
        first->op->view[0].buffer->shapeless = true;
        first->op->view[1] = op->view[1];
        first->op->key[0] = dim;
        first->op->nkeys = 1;
        hd_infer(first->op, &said);
        append_settled(p, block, first);
        op->view[1] = hd_view_whole(first->op->view[0].buffer, op->loc);
    }
}

static hd_status check_mean(parser *p, const hd_op *op)
{
    hd_dtype dtype = op->view[0].buffer->type.dtype;

    if (p->module->stage != HD_STAGE_TENSOR)
        return hd_error(p->diag, HD_E0303, op->loc,
                        "mean stands in tensor programs only: what a rank has "
                        "of a dimension may be some of it; write 'sum' and "
                        "'scale'");
    if (!hd_dtype_is_float(dtype))
        return hd_error(p->diag, HD_E0314, op->loc,
                        "mean of %s: it works on floating point",
                        hd_dtype_text(dtype));
    return HD_OK;
}

// A sum is written to a temporary, in f32 where the result is narrower, and the
// statement becomes what makes the result of that, rounded once.
static hd_op *end_sum(parser *p, hd_stmt *stmt, hd_block *block, hd_opcode code)
{
    hd_op *sum = stmt->op;
    hd_buffer *made = sum->view[0].buffer, *total;
    hd_type type = hd_view_type(&sum->view[0]);
    hd_stmt *first = hd_stmt_new(p->module, HD_STMT_OP, stmt->loc);
    hd_op *last = hd_stmt_op(p->module, code, -1, 1, 1, 1, sum->loc)->op;

    if (hd_dtype_holds(HD_DTYPE_F32, type.dtype))
        type.dtype = HD_DTYPE_F32;
    total =
        hd_expand_temp(p->module, sum, hd_op_info_get(sum->code)->text, &type);
    if ((made->open & HD_OPEN_PLACE) != 0)
        total->open = HD_OPEN_PLACE | HD_OPEN_SHAPE;
    made->open &= ~(unsigned)HD_OPEN_DTYPE; // the total's is wider
    last->view[0] = sum->view[0];
    last->view[1] = hd_view_whole(total, sum->loc);
    sum->view[0] = hd_view_whole(total, sum->view[0].loc);
    first->op = sum;
    append_settled(p, block, first);
    stmt->op = last;
    return last;
}

// Whether what it joins in the end is wider than its operand and its result.
static bool rounds_parts(const hd_op *op, const folded *f)
{
    hd_dtype in = op->view[1].buffer->type.dtype;
    hd_dtype out = op->view[0].buffer->type.dtype;

    return !op->view[0].buffer->shapeless && in != out &&
           hd_dtype_holds(in, out) && hd_dtype_holds(out, f->in.dtype);
}

// How many indices a run has of the dimensions that are folded: exactly, but
// for what it is rounded to in the end.
static hd_buffer *find_length(const hd_expansion *e, const folded *f,
                              hd_dtype dtype, double n)
{
    const hd_type one = {.dtype = HD_DTYPE_F64}, made = {.dtype = dtype};
    hd_buffer *all = NULL, *own, *length;
    hd_op *op;

    for (int d = 0; d < f->in.ndims; d++) {
        if ((!f->all && f->dim != d) || !hd_dim_is_sized(f->in.dim[d]))
            continue;
        own = hd_expand_length(e, f->in.dim[d], one.dtype, all == NULL ? n : 1);
        length = own;
        if (all != NULL) {
            op = hd_expand_op(e, HD_OP_MUL, &one, &length);
            hd_expand_read(op, all);
            hd_expand_read(op, own);
        }
        all = length;
    }
    if (dtype == one.dtype)
        return all;
    op = hd_expand_op(e, HD_OP_COPY, &made, &length);
    hd_expand_read(op, all);
    return length;
}

// As `total`, and where it is.
static hd_buffer *add_alike(parser *p, const hd_op *op, const char *word,
                            const hd_buffer *total, const hd_type *type)
{
    hd_buffer *part = hd_expand_temp(p->module, op, word, type);

    part->open = total->open;
    return part;
}

// How many indices each number of `f`, a fold of `op`, is of, of which each has
// `n`, and none one: the sum of a tensor that has the same counts.
static hd_buffer *count_folded(parser *p, const hd_op *op, const folded *f,
                               double n, const hd_buffer *total,
                               hd_block *block)
{
    const hd_view *from = &f->from;
    const hd_buffer *x = from->buffer;
    hd_type type = x->type, made = total->type;
    hd_stmt *fill = hd_stmt_op(p->module, HD_OP_FILL, -1, 1, 0, 1, op->loc),
            *sum = hd_stmt_op(p->module, HD_OP_SUM, -1, 1, 1, 1, op->loc),
            *least = hd_stmt_op(p->module, HD_OP_MAX, -1, 1, 1, 1, op->loc);
    hd_scalar one = {.operand = 1, .number = 1};
    hd_buffer *each;

    type.dtype = total->type.dtype;
    for (int d = x->counted + 1; d < type.ndims; d++)
        if (!hd_dim_is_sized(type.dim[d]))
            type.dim[d] = hd_dim_whole(1);
    for (int d = 0, k = 0; d < f->in.ndims; d++) {
        if (!f->all && hd_view_kept_dim(from, d) > x->counted &&
            !hd_dim_is_sized(f->in.dim[d]))
            made.dim[k] = hd_dim_whole(1);
        k += d != f->dim || made.ndims == f->in.ndims;
    }
    each = hd_expand_temp(p->module, op, "each", &type);
    each->on = x->on;
    each->open = x->open & HD_OPEN_PLACE;
    each->by = x->by;
    each->counted = x->counted;
    fill->op->view[0] = hd_view_whole(each, op->loc);
    fill->op->key[0] =
        (hd_key){HD_KEY_VALUE, op->loc, HD_EXPR_NONE, .view = -1, .number = n};
    fill->op->nkeys = 1;
    append_settled(p, block, fill);
    sum->op->view[0] =
        hd_view_whole(add_alike(p, op, "count", total, &made), op->loc);
    sum->op->view[1] = *from;
    sum->op->view[1].buffer = each;
    for (int d = x->counted + 1; d < from->nindex; d++) {
        hd_view *view = &sum->op->view[1];
        hd_expr *index = view->index;

        if (hd_view_picks(view, d))
            index[d] = hd_expr_const(p->module, 0);
        else
            hd_view_keep_all(p->module, view, d);
    }
    if (f->all) {
        fold_all(p, sum->op, block);
    } else {
        sum->op->key[0] = *hd_op_key(op, HD_KEY_DIM);
        sum->op->nkeys = 1;
    }
    append_settled(p, block, sum);
    least->op->view[0] =
        hd_view_whole(add_alike(p, op, "least", total, &made), op->loc);
    least->op->view[1] = sum->op->view[0];
    least->op->key[0] =
        (hd_key){HD_KEY_NUMBERS,
                 op->loc,
                 HD_EXPR_NONE,
                 .view = -1,
                 .scalar = hd_arena_copy(p->module->arena, &one, sizeof one),
                 .nscalars = 1};
    least->op->nkeys = 1;
    append_settled(p, block, least);
    return least->op->view[0].buffer;
}

// A mean of as many as a run or data says is a sum by that, rounded once in the
// end.
static void divide(parser *p, hd_stmt *stmt, hd_block *block, const folded *f,
                   double n)
{
    const hd_expansion e = {p->module, stmt->op, block};
    hd_op sum = *stmt->op, *last;
    const hd_view made = sum.view[0];
    hd_dtype dtype = hd_view_type(&made).dtype;
    bool narrow = dtype != HD_DTYPE_F32 && hd_dtype_holds(HD_DTYPE_F32, dtype);
    hd_buffer *total, *length;
    hd_stmt *quotient;

    sum.view = (hd_view[]){made, f->from};
    last = end_sum(p, stmt, block, narrow ? HD_OP_COPY : HD_OP_DIV);
    total = last->view[1].buffer;
    length = f->counted ? count_folded(p, &sum, f, n, total, block)
                        : find_length(&e, f, total->type.dtype, n);
    if (!narrow) {
        hd_expand_read(last, length);
        return;
    }
    quotient = hd_stmt_op(p->module, HD_OP_DIV, -1, 1, 2, 0, sum.loc);
    quotient->op->view[0] =
        hd_view_whole(add_alike(p, &sum, hd_op_info_get(HD_OP_DIV)->text, total,
                                &total->type),
                      sum.loc);
    quotient->op->view[1] = hd_view_whole(total, sum.loc);
    quotient->op->view[2] = hd_view_whole(length, sum.loc);
    append_settled(p, block, quotient);
    last->view[1] = quotient->op->view[0];
}

// A mean, which was read as a sum, is that and a factor.
static hd_status take_mean(parser *p, hd_stmt *stmt, hd_block *block,
                           const folded *f)
{
    hd_op *sum = stmt->op, *scale;
    bool sized = false;
    double n = 1;

    if (!f->one)
        return hd_error(p->diag, HD_E0301, sum->loc,
                        "mean has 1 result, 1 operand and the key dim, or is "
                        "of all of a tensor");
    HD_TRY(check_mean(p, sum));
    if (!f->all && (f->dim < 0 || f->dim >= f->in.ndims))
        return HD_OK; // which the verifier tells of the sum
    if (sum->view[0].buffer->shapeless)
        return HD_OK; // likewise
    for (int d = 0; d < f->in.ndims; d++) {
        hd_dim dim = f->in.dim[d];
        bool behind = f->counted &&
                      hd_view_kept_dim(&f->from, d) > f->from.buffer->counted;

        if ((!f->all && f->dim != d) || (f->counted && !behind))
            continue;
        sized |= hd_dim_is_sized(dim);
        if (!f->counted || !hd_dim_is_sized(dim))
            n *= hd_dim_is_sized(dim) ? (double)dim.times : (double)dim.extent;
    }
    if (f->counted || sized) {
        divide(p, stmt, block, f, n);
        return HD_OK;
    }
    scale = end_sum(p, stmt, block, HD_OP_SCALE);
    scale->key[0] = (hd_key){HD_KEY_BY, hd_op_key(sum, HD_KEY_DIM)->loc,
                             HD_EXPR_NONE, .view = -1, .number = 1 / n};
    scale->nkeys = 1;
    return HD_OK;
}

static hd_status check_concat(parser *p, const hd_op *op, int dim)
{
    hd_type first = hd_view_type(&op->view[1]);

    if (!may_be_open(p))
        return hd_error(p->diag, HD_E0303, op->loc,
                        "concat stands in tensor programs of form 2 only: "
                        "write a copy to each range of the result");
    if (dim < 0 || dim >= first.ndims)
        return hd_error(p->diag, HD_E0302, op->loc,
                        "concat along dimension %d of %d dimension%s", dim,
                        first.ndims, first.ndims == 1 ? "" : "s");
    for (int i = 1; i < op->nviews; i++) {
        const hd_view *view = &op->view[i];
        hd_type type = hd_view_type(view);

        if (type.ndims != first.ndims)
            return hd_error(p->diag, HD_E0311, view->loc,
                            "concat of %d and of %d dimensions", first.ndims,
                            type.ndims);
        if (type.dtype != first.dtype)
            return hd_error(p->diag, HD_E0314, view->loc, "concat of %s and %s",
                            hd_dtype_text(first.dtype),
                            hd_dtype_text(type.dtype));
        for (int d = 0; d < type.ndims; d++)
            if (d != dim && !hd_dim_as_long(type.dim[d], first.dim[d]))
                return hd_error(p->diag, HD_E0311, view->loc,
                                "concat along dimension %d of what differs in "
                                "dimension %d: %%%s and %%%s",
                                dim, d, op->view[1].buffer->name,
                                view->buffer->name);
        if (type.dim[dim].size != first.dim[dim].size)
            return hd_error(p->diag, HD_E0202, view->loc,
                            "concat along lengths whose sum is no number, nor "
                            "one times what a run is given: %%%s and %%%s",
                            op->view[1].buffer->name, view->buffer->name);
    }
    return HD_OK;
}

// As long as the pieces together.
static hd_dim concat_dim(const hd_op *op, int dim)
{
    hd_dim all = hd_dim_unmarked(hd_view_type(&op->view[1]).dim[dim]);

    for (int i = 2; i < op->nviews; i++) {
        hd_dim own = hd_view_type(&op->view[i]).dim[dim];

        all.extent += own.extent;
        all.times += own.times;
    }
    return all;
}

static hd_status check_length(parser *p, const hd_op *op, int dim)
{
    const hd_buffer *made = op->view[0].buffer;
    hd_dim all = concat_dim(op, dim);
    hd_text own = {0}, other = {0};
    hd_status status;

    if (hd_dim_as_long(made->type.dim[dim], all))
        return HD_OK;
    hd_dim_print(p->module, made->type.dim[dim], &own);
    hd_dim_print(p->module, all, &other);
    status = hd_error(p->diag, HD_E0311, op->view[0].loc,
                      "dimension %d of %%%s is of %s indices, and what concat "
                      "makes of %s",
                      dim, made->name, own.failed ? "other" : own.bytes,
                      other.failed ? "others" : other.bytes);
    hd_text_free(&own);
    hd_text_free(&other);
    return status;
}

// As long as its pieces together; it lies where `place` has it, if it is not
// declared.
static void say_concat(parser *p, hd_op *op, int dim)
{
    hd_buffer *made = op->view[0].buffer;
    hd_type shape = hd_view_type(&op->view[1]);
    hd_said said = {.shaped = true};
    hd_op *like = hd_stmt_op(p->module, HD_OP_FILL, -1, 1, 0, 0, op->loc)->op;

    for (int d = 0; d < shape.ndims; d++)
        shape.dim[d] =
            d == dim ? concat_dim(op, dim) : hd_dim_unmarked(shape.dim[d]);
    if ((made->open & HD_OPEN_DTYPE) != 0)
        made->type.dtype = shape.dtype;
    made->open &= ~(unsigned)HD_OPEN_DTYPE;
    said.shape = shape;
    like->view[0] = hd_view_whole(made, op->view[0].loc);
    hd_infer(like, &said);
    if (!made->shapeless)
        made->open &= ~(unsigned)HD_OPEN_SHAPE;
}

// What its pieces are copied to: the result, or a temporary where that is over
// ranks along them, or counted, or an operand, too.
static hd_buffer *concat_to(parser *p, const hd_op *op, int dim)
{
    hd_buffer *made = op->view[0].buffer, *to;
    hd_type type = hd_type_unmarked(&made->type);

    if (!hd_dim_is_sharded(made->type.dim[dim]) && made->by == NULL &&
        hd_op_read_view(op, made) < 0)
        return made;
    to = hd_expand_temp(p->module, op, CONCAT, &type);
    to->open = HD_OPEN_PLACE;
    return to;
}

static hd_stmt *copy_to(parser *p, const hd_op *op, hd_buffer *to,
                        const hd_view *from)
{
    hd_stmt *copy = hd_stmt_op(p->module, HD_OP_COPY, -1, 1, 1, 0, op->loc);

    copy->op->view[0] = hd_view_whole(to, op->view[0].loc);
    copy->op->view[1] = *from;
    return copy;
}

// `n` indices of dimension `dim` from `low`.
static void keep_piece(parser *p, hd_view *view, int dim, int64_t low,
                       int64_t n)
{
    view->nindex = dim + 1;
    for (int d = 0; d <= dim; d++)
        view->index[d] = HD_EXPR_ALL;
    hd_view_keep(p->module, view, dim, hd_expr_const(p->module, low),
                 hd_expr_const(p->module, low + n));
}

// A concat, which was read as a sum, is a copy of each operand to its range of
// the result.
static hd_status take_concat(parser *p, hd_stmt *stmt, hd_block *block)
{
    hd_op *all = stmt->op;
    hd_buffer *made = all->noutputs > 0 ? all->view[0].buffer : NULL;
    bool right = all->noutputs == 1 && all->ninputs > 0 && all->nkeys == 1 &&
                 hd_op_key(all, HD_KEY_DIM) != NULL &&
                 hd_op_operands(all) == all->ninputs;
    const hd_expansion e = {p->module, all, block};
    int dim = right ? hd_op_dim(all) : 0;
    int64_t low = 0;
    hd_stmt *copy = NULL;
    hd_buffer *to;

    if (!right || all->view[0].nindex > 0)
        return hd_error(p->diag, HD_E0301, all->loc,
                        "concat has 1 result, all of a tensor, operands, and "
                        "the key dim");
    for (int i = 1; i < all->nviews; i++)
        if (all->view[i].buffer->shapeless)
            return HD_OK; // which the verifier tells of the sum
    HD_TRY(check_concat(p, all, dim));
    if (made->shapeless)
        say_concat(p, all, dim);
    if (made->shapeless || made->type.ndims <= dim)
        return hd_error(
            p->diag, HD_E0311, all->view[0].loc,
            "%%%s is declared with %d dimension%s, and concat makes "
            "%d",
            made->name, made->type.ndims, made->type.ndims == 1 ? "" : "s",
            hd_view_type(&all->view[1]).ndims);
    HD_TRY(check_length(p, all, dim));
    if (hd_dim_is_sized(made->type.dim[dim])) {
        hd_expand_concat(&e, stmt, dim);
        return HD_OK;
    }
    to = concat_to(p, all, dim);
    for (int i = 1; i < all->nviews; i++) {
        int64_t n = hd_view_type(&all->view[i]).dim[dim].extent;

        copy = copy_to(p, all, to, &all->view[i]);
        keep_piece(p, &copy->op->view[0], dim, low, n);
        low += n;
        if (to != made || i + 1 < all->nviews)
            append_settled(p, block, copy);
    }
    if (to != made)
        copy = copy_to(p, all, made, &(hd_view){.buffer = to, .loc = all->loc});
    stmt->op = copy->op;
    return HD_OK;
}

static bool same_shape(const hd_type *a, const hd_type *b)
{
    for (int d = 0; d < a->ndims && d < b->ndims; d++)
        if (!hd_dim_as_long(a->dim[d], b->dim[d]))
            return false;
    return a->ndims == b->ndims;
}

// `keep` of a fold: no key of its row, but what it says of its result.
static hd_status take_keep(parser *p, hd_op *op, hd_said *said)
{
    const hd_key *keep = hd_op_key(op, HD_KEY_KEEP);
    const hd_buffer *made = op->view[0].buffer;

    if (hd_op_family(op) != HD_FAMILY_FOLD || keep == NULL ||
        hd_op_key(op, HD_KEY_DIM) == NULL || op->noutputs == 0 ||
        op->ninputs == 0)
        return HD_OK;
    if (!made->shapeless &&
        made->type.ndims != hd_view_type(&op->view[op->noutputs]).ndims)
        return hd_error(p->diag, HD_E0302, keep->loc,
                        "keep leaves %%%s a dimension of one index, and it is "
                        "declared without",
                        made->name);
    said->keep = true;
    op->nkeys--;
    for (int i = (int)(keep - op->key); i < op->nkeys; i++)
        op->key[i] = op->key[i + 1];
    return HD_OK;
}

// Of a stream dimension that says no number of blocks: as its size is cut
// elsewhere, or `otherwise`; a temporary's that is known too late stays whole.
static void cut_streams(hd_module *m, hd_buffer *b, int64_t otherwise)
{
    for (int i = 0; i < b->type.ndims; i++) {
        hd_dim *dim = &b->type.dim[i];
        hd_size *size;

        if (!hd_dim_is_sized(*dim) || dim->mark != HD_STREAM ||
            hd_dim_is_cut(*dim))
            continue;
        size = &m->size[dim->size - 1];
        if (size->blocks == 0 && otherwise > 0) {
            size->cut = b->locs->extent[i];
            size->blocks = otherwise;
        }
        dim->blocks = size->blocks;
        if (size->blocks == 0)
            dim->mark = HD_LOCAL;
    }
}

// Whether the index that it picks of a dimension is one.
static bool is_there(const parser *p, const hd_view *view, int dim)
{
    int64_t at;

    if (!hd_expr_is_const(p->module, view->index[dim]))
        return false;
    at = hd_expr_value(p->module, view->index[dim]);
    return at >= 0 && at < view->buffer->type.dim[dim].extent;
}

// A result that nothing declares is on the ranks that have another one.
static void take_ranks(parser *p, const hd_op *op)
{
    hd_ranks ranks = {0};

    for (int i = 0; i < op->noutputs && !ranks.some; i++) {
        const hd_view *view = &op->view[i];
        bool known = !view->buffer->shapeless;

        for (int d = 0; d < view->nindex && known; d++)
            known = !hd_view_picks(view, d) || is_there(p, view, d);
        if (known)
            ranks = hd_view_ranks(p->module, view);
    }
    for (int i = 0; i < op->noutputs; i++)
        if (op->view[i].buffer->shapeless && !op->view[i].buffer->on.some)
            op->view[i].buffer->on = ranks;
}

// What a statement says of its result in place of a declaration.
static hd_status take_said(parser *p, hd_op *op, hd_said *said)
{
    const hd_buffer *made = op->noutputs > 0 ? op->view[0].buffer : NULL;

    if (!may_be_open(p))
        return HD_OK;
    HD_TRY(take_keep(p, op, said));
    if (said->shaped && made != NULL && !made->shapeless &&
        !same_shape(&said->shape, &made->type))
        return hd_error(p->diag, HD_E0311, op->loc,
                        "%s to another shape than %%%s is declared with",
                        hd_op_info_get(op->code)->text, made->name);
    take_ranks(p, op);
    hd_infer(op, said);
    for (int i = 0; i < op->noutputs; i++)
        cut_streams(p->module, op->view[i].buffer, 0);
    return HD_OK;
}

// What the verifier refuses stays as it is.
static void take_reshape(parser *p, hd_stmt *stmt, hd_block *block)
{
    const hd_op *op = stmt->op;
    const hd_expansion e = {p->module, op, block};

    if (p->module->stage == HD_STAGE_TENSOR && op->noutputs == 1 &&
        op->ninputs == 1 && !op->view[0].buffer->shapeless &&
        !op->view[1].buffer->shapeless)
        hd_expand_reshape(&e, stmt);
}

static hd_status parse_op(parser *p, hd_stmt *stmt, hd_block *block)
{
    // Another operation stands before it.
    bool behind = block->last != NULL && block->last->kind == HD_STMT_OP;
    bool mean = false, concat = false;
    hd_view views[HD_MAX_OPERANDS + HD_NKEYS];
    hd_key keys[HD_NKEYS];
    hd_op *op = hd_new(p->module->arena, hd_op);
    const hd_op_info *info;
    hd_said said = {0};
    struct folded folded;
    int nkeys = 0;

    if (p->token.kind == HD_TOKEN_BUFFER) {
        hd_token buffer = p->token;

        HD_TRY(parse_views(p, views, HD_MAX_OPERANDS, &op->nviews));
        if (behind && !at_mark(p, "=") &&
            (!buffer.first || p->token.first || at_mark(p, "}")))
            return missing_comma(p, &buffer);
        HD_TRY(expect_mark(p, "=",
                           p->token.kind == HD_TOKEN_BUFFER && !p->token.first
                               ? "',' or '='"
                               : "'='"));
    }
    op->noutputs = op->nviews;
    op->loc = p->token.loc;
    mean = is_text(&p->token, MEAN);
    concat = is_text(&p->token, CONCAT);
    if (mean || concat)
        op->code = HD_OP_SUM;
    else if (p->token.kind != HD_TOKEN_NAME ||
             !hd_op_find(p->token.text, p->token.length, &op->code))
        return unknown_op(p, behind && op->noutputs == 0);
    op->said = op->code;
    op->front = p->module->form == 1;
    if (!hd_op_is_of_text(op))
        return hd_error(p->diag, HD_E0101, op->loc,
                        "the text form %d has no %s; a file that has it begins "
                        "with 'heddle %d'",
                        p->module->form, token_text(p), HD_FORMAT);
    op->bound = hd_bound_room(p->module->arena, op->code);
    info = hd_op_info_get(op->code);
    advance(p);
    HD_TRY(parse_axis(p, op));
    if (info->family == HD_FAMILY_CALL)
        HD_TRY(parse_callee(p, &keys[0], &nkeys));
    if (at_operand(p, op))
        HD_TRY(parse_operands(p, op, views, keys, &nkeys));
    op->ninputs = op->nviews - op->noutputs;
    stmt->op = op;
    HD_TRY(parse_keys(p, op, views, keys, nkeys, &said));
    if (concat) {
        if (take_concat(p, stmt, block) != HD_OK)
            p->failed = true;
        else
            settle(p, stmt, block);
        return HD_OK;
    }
    folded = find_folded(p, op, mean);
    if (folded.all)
        fold_all(p, op, block);
    HD_TRY(take_said(p, op, &said));
    if (hd_causal_complete(p->module, op, p->diag) != HD_OK)
        p->failed = true; // of a statement that is over
    hd_op_add_counts(p->module, op);
    if (p->token.kind == HD_TOKEN_NAME && !p->token.first &&
        !begins_statement(&p->token))
        return unknown_key(p, op);
    if (mean && take_mean(p, stmt, block, &folded) != HD_OK)
        p->failed = true; // likewise
    else if (!mean && folded.all && rounds_parts(op, &folded))
        end_sum(p, stmt, block, HD_OP_COPY);
    settle(p, stmt, block);
    if (stmt->op->code == HD_OP_RESHAPE)
        take_reshape(p, stmt, block);
    return HD_OK;
}

static hd_status parse_block(parser *p, hd_block *block);

static hd_status check_depth(parser *p)
{
    return p->depth < MAX_DEPTH ? HD_OK : give_up(p, "blocks", MAX_DEPTH);
}

static hd_status parse_variable(parser *p, hd_token *name)
{
    const scope *known = find_scope(p, p->token.text, p->token.length);
    int axis = hd_module_find_axis(p->module, p->token.text, p->token.length);
    hd_status status;

    if (p->token.kind != HD_TOKEN_NAME)
        return expected(p, "a name");
    if (hd_name_is_reserved(p->token.text, p->token.length))
        return hd_error(p->diag, HD_E0203, p->token.loc,
                        "%s is a reserved word", token_text(p));
    if (known != NULL || axis >= 0) {
        status = hd_error(p->diag, HD_E0203, p->token.loc,
                          "the name %s is taken", token_text(p));
        hd_note(p->diag, known != NULL ? known->loc : p->module->axis[axis].loc,
                "by this one");
        return status;
    }
    *name = p->token;
    advance(p);
    return HD_OK;
}

static void bind_variable(parser *p, const hd_token *name, hd_stmt *stmt)
{
    stmt->var =
        hd_module_declare_var(p->module, name->text, name->length, name->loc);
    push_scope(p, name, hd_expr_of_var(p->module, stmt->var));
}

static hd_status parse_let(parser *p, hd_stmt *stmt)
{
    hd_token name;

    HD_TRY(parse_variable(p, &name));
    HD_TRY(expect_mark(p, "=", "'='"));
    HD_TRY(parse_expr(p, &stmt->a));
    bind_variable(p, &name, stmt);
    return HD_OK;
}

static hd_status parse_for(parser *p, hd_stmt *stmt)
{
    hd_token name;
    int outer = p->nnames;
    hd_status status;

    HD_TRY(parse_variable(p, &name));
    if (!accept_word(p, "in"))
        return expected(p, "in");
    HD_TRY(parse_expr(p, &stmt->a));
    HD_TRY(expect_mark(p, "..", "'..'"));
    HD_TRY(parse_expr(p, &stmt->b));
    bind_variable(p, &name, stmt);
    status = parse_block(p, &stmt->body);
    pop_scopes(p, outer);
    return status;
}

static hd_status parse_if(parser *p, hd_stmt *stmt)
{
    hd_status status;

    HD_TRY(parse_expr(p, &stmt->a));
    HD_TRY(parse_block(p, &stmt->body));
    if (!accept_word(p, "else"))
        return HD_OK;
    if (at_word(p, "if")) {
        hd_stmt *other = hd_stmt_new(p->module, HD_STMT_IF, p->token.loc);

        advance(p);
        hd_block_append(&stmt->otherwise, other);
        HD_TRY(check_depth(p));
        p->depth++; // each else if is a block in the one before
        status = parse_if(p, other);
        p->depth--;
        return status;
    }
    return parse_block(p, &stmt->otherwise);
}

static hd_status parse_statement(parser *p, hd_block *block)
{
    static const struct {
        const char *word;
        hd_stmt_kind kind;
    } words[] = {{"let", HD_STMT_LET},     {"for", HD_STMT_FOR},
                 {"if", HD_STMT_IF},       {"on", HD_STMT_ON},
                 {"group", HD_STMT_GROUP}, {"launch", HD_STMT_LAUNCH}};
    hd_stmt *stmt = hd_stmt_new(p->module, HD_STMT_OP, p->token.loc);
    hd_status status = HD_ERROR_INVALID;

    for (size_t i = 0; i < COUNT(words); i++)
        if (accept_word(p, words[i].word)) {
            stmt->kind = words[i].kind;
            break;
        }
    switch (stmt->kind) {
    case HD_STMT_LET:
        status = parse_let(p, stmt);
        break;
    case HD_STMT_FOR:
        status = parse_for(p, stmt);
        break;
    case HD_STMT_IF:
        status = parse_if(p, stmt);
        break;
    case HD_STMT_ON:
        status = accept_word(p, "stream") ? parse_expr(p, &stmt->a)
                                          : expected(p, "stream");
        if (status == HD_OK)
            status = parse_block(p, &stmt->body);
        break;
    case HD_STMT_GROUP:
    case HD_STMT_LAUNCH:
        status = parse_block(p, &stmt->body);
        break;
    case HD_STMT_OP:
        status = parse_op(p, stmt, block);
    }
    if (status == HD_OK)
        hd_block_append(block, stmt);
    return status;
}

// To the next line that begins with something, or to the block's end.
static void skip_statement(parser *p)
{
    int depth = 0;

    while (p->token.kind != HD_TOKEN_END) {
        if (at_mark(p, "{"))
            depth++;
        if (at_mark(p, "}") && depth-- == 0)
            return;
        advance(p);
        if (depth <= 0 && p->token.first)
            return;
    }
}

static hd_status parse_block(parser *p, hd_block *block)
{
    int outer = p->nnames;

    HD_TRY(check_depth(p));
    HD_TRY(expect_mark(p, "{", "'{'"));
    p->depth++;
    while (!at_mark(p, "}") && p->token.kind != HD_TOKEN_END)
        if (parse_statement(p, block) != HD_OK) {
            p->failed = true;
            skip_statement(p);
        }
    p->depth--;
    pop_scopes(p, outer);
    return expect_mark(p, "}", "'}'");
}

// ----------------------------------------------------------- declarations

// An extent `m` or `2 * m`.
static bool is_sized(const hd_module *module, hd_expr extent, hd_dim *out)
{
    const hd_expr_node *node = hd_expr_get(module, extent);
    hd_expr a = extent, times = HD_EXPR_NONE;

    if (node->kind == HD_EXPR_MUL) {
        bool second = hd_expr_is_const(module, node->a);

        a = second ? node->b : node->a;
        times = second ? node->a : node->b;
        if (!hd_expr_is_const(module, times))
            return false;
        node = hd_expr_get(module, a);
    }
    if (node->kind != HD_EXPR_SIZE)
        return false;
    out->size = node->a + 1;
    out->times = times == HD_EXPR_NONE ? 1 : hd_expr_value(module, times);
    return true;
}

// The room that it has is known once it is known what it is cut into.
static hd_status parse_extent(parser *p, hd_dim *out)
{
    hd_loc loc = p->token.loc;
    hd_expr extent;
    hd_status status;
    int64_t high;

    p->sizes_may = true;
    status = parse_sum(p, &extent);
    p->sizes_may = false;
    HD_TRY(status);
    *out = hd_dim_whole(0);
    if (!is_sized(p->module, extent, out)) {
        if (hd_expr_is_const(p->module, extent) || p->module->nsizes == 0)
            return take_positive(p, "an extent", extent, loc, &out->extent);
        return hd_error(p->diag, HD_E0202, loc,
                        "an extent has no value here; of what a run is given "
                        "it may be one, or a number times one");
    }
    high = p->module->size[out->size - 1].high;
    if (out->times >= 1 && out->times <= HD_MAX_ELEMENTS / high) {
        out->extent = out->times * high;
        return HD_OK;
    }
    return hd_error(p->diag, HD_E0202, loc,
                    "extent %" PRId64 " * %s; it must be at least 1, and no "
                    "more than %" PRId64 " where %s is %" PRId64,
                    out->times, p->module->size[out->size - 1].name,
                    HD_MAX_ELEMENTS, p->module->size[out->size - 1].name, high);
}

// The first one that is cut says how all are: ir/declare.
static void cut_size(parser *p, hd_dim dim, hd_loc loc)
{
    hd_size *size = &p->module->size[dim.size - 1];

    if (dim.blocks == 0 || size->blocks > 0)
        return;
    size->cut = loc;
    size->blocks = dim.blocks;
}

static hd_status parse_mark(parser *p, hd_dim *out)
{
    int64_t blocks = 0;

    if (accept_word(p, "in"))
        HD_TRY(parse_positive(p, "a number of blocks", &blocks));
    if (!accept_mark(p, "@")) {
        *out = hd_dim_cut(*out, blocks);
        return HD_OK;
    }
    if (accept_word(p, "stream")) {
        out->mark = HD_STREAM;
    } else {
        HD_TRY(parse_axis_name(p, &out->mark));
        if (blocks == 0)
            blocks = p->module->axis[out->mark].size;
    }
    *out = hd_dim_cut(*out, blocks);
    return HD_OK;
}

// How many indices there are of the last dimension read.
static hd_status parse_by(parser *p, hd_buffer *buffer)
{
    hd_loc loc = p->token.loc;

    if (!accept_word(p, "by"))
        return HD_OK;
    if (buffer->by != NULL)
        return hd_error(p->diag, HD_E0214, loc,
                        "a second dimension with counts; a buffer has one");
    buffer->locs->by = p->token.loc;
    buffer->counted = buffer->type.ndims;
    if (p->token.kind != HD_TOKEN_BUFFER)
        return expected(p, "a buffer");
    buffer->by = hd_module_buffer(p->module, p->token.text, p->token.length);
    if (buffer->by == NULL)
        return unknown_buffer(p);
    advance(p);
    return HD_OK;
}

// An extent, or `:` of a temp whose extents what writes it says.
static hd_status parse_open_extent(parser *p, hd_buffer *buffer, hd_dim *out)
{
    bool open = buffer->role == HD_ROLE_TEMP && may_be_open(p);
    bool before = (buffer->open & HD_OPEN_SHAPE) != 0;

    if (!open || !at_mark(p, ":")) {
        if (before)
            return expected(p, "':', as the dimensions before have");
        return parse_extent(p, out);
    }
    if (buffer->type.ndims > 0 && !before)
        return expected(p, "an extent, as the dimensions before have");
    advance(p);
    buffer->open |= HD_OPEN_SHAPE;
    *out = hd_dim_whole(INT32_MAX); // as long as nothing is cut into
    return HD_OK;
}

static hd_status parse_dim(parser *p, hd_buffer *buffer)
{
    int i = buffer->type.ndims;
    hd_dim *dim = &buffer->type.dim[i];
    hd_loc *extent = &buffer->locs->extent[i];

    *extent = p->token.loc;
    HD_TRY(parse_open_extent(p, buffer, dim));
    buffer->locs->mark[i] = p->token.loc;
    HD_TRY(parse_mark(p, dim));
    if (hd_dim_is_sized(*dim))
        cut_size(p, *dim, *extent);
    HD_TRY(parse_by(p, buffer));
    buffer->type.ndims++;
    return HD_OK;
}

static hd_status parse_type(parser *p, hd_buffer *buffer)
{
    bool open = buffer->role == HD_ROLE_TEMP && may_be_open(p);

    if (open && at_mark(p, "["))
        buffer->open |= HD_OPEN_DTYPE;
    else if (p->token.kind != HD_TOKEN_NAME ||
             !hd_dtype_find(p->token.text, p->token.length,
                            &buffer->type.dtype))
        return expected(p, "a dtype");
    else
        advance(p);
    if (open && !at_mark(p, "[")) {
        buffer->open |= HD_OPEN_PLACE | HD_OPEN_SHAPE;
        return HD_OK;
    }
    HD_TRY(expect_mark(p, "[", "'['"));
    if (accept_mark(p, "]"))
        return HD_OK;
    do {
        if (buffer->type.ndims == HD_MAX_DIMS)
            return too_many(p, "dimensions", HD_MAX_DIMS);
        HD_TRY(parse_dim(p, buffer));
    } while (accept_mark(p, ","));
    return expect_mark(p, "]", "',' or ']'");
}

// A coordinate, which is a constant.
static hd_status parse_coordinate(parser *p, int64_t *out)
{
    hd_loc loc = p->token.loc;
    hd_expr value;

    HD_TRY(parse_sum(p, &value));
    if (hd_expr_is_const(p->module, value)) {
        *out = hd_expr_value(p->module, value);
        return HD_OK;
    }
    return hd_error(p->diag, HD_E0215, loc,
                    "a coordinate that has no value here");
}

// AXIS low, or low..past.
static hd_status parse_on(parser *p, hd_buffer *buffer)
{
    hd_ranks *on = &buffer->on;

    if (on->some)
        return hd_error(p->diag, HD_E0215, p->token.loc, "%%%s on ranks twice",
                        buffer->name);
    buffer->locs->on = p->token.loc;
    HD_TRY(parse_axis_name(p, &on->axis));
    HD_TRY(parse_coordinate(p, &on->low));
    // No axis is as large as the number behind which there is none.
    on->past = on->low < INT64_MAX ? on->low + 1 : on->low;
    if (accept_mark(p, ".."))
        HD_TRY(parse_coordinate(p, &on->past));
    on->some = true;
    return HD_OK;
}

static hd_status parse_of(parser *p, hd_buffer *buffer)
{
    hd_buffer *of;

    if (p->token.kind != HD_TOKEN_BUFFER)
        return expected(p, "a buffer");
    of = hd_module_buffer(p->module, p->token.text, p->token.length);
    if (of == NULL || of == buffer)
        return hd_error(p->diag, HD_E0207, p->token.loc,
                        "%%%s renames %s, which is not declared before",
                        buffer->name, token_text(p));
    buffer->of = of;
    advance(p);
    return HD_OK;
}

// Its extents are known, and `place` says where it lies.
static hd_status take_open(parser *p, hd_buffer *buffer, hd_loc loc)
{
    if (buffer->role != HD_ROLE_TEMP || !may_be_open(p))
        return hd_error(p->diag, HD_E0217, loc,
                        "%%%s is open: only a temp of a tensor program of form "
                        "2 may be",
                        buffer->name);
    if ((buffer->open & HD_OPEN_SHAPE) != 0)
        return hd_error(p->diag, HD_E0217, loc,
                        "%%%s is declared without extents: where it lies is "
                        "open without the word, or as its marks say",
                        buffer->name);
    for (int d = 0; d < buffer->type.ndims; d++)
        if (buffer->type.dim[d].mark != HD_LOCAL)
            return hd_error(
                p->diag, HD_E0217, loc,
                "%%%s is open, and its dimension %d has a mark that "
                "says where it lies",
                buffer->name, d);
    buffer->open |= HD_OPEN_PLACE;
    return HD_OK;
}

static hd_status parse_attributes(parser *p, hd_buffer *buffer)
{
    for (;;) {
        hd_loc loc = p->token.loc;

        if (accept_word(p, "shared"))
            buffer->shared = true;
        else if (accept_word(p, "open"))
            HD_TRY(take_open(p, buffer, loc));
        else if (accept_word(p, "on"))
            HD_TRY(parse_on(p, buffer));
        else if (accept_word(p, "of"))
            HD_TRY(parse_of(p, buffer));
        else
            return HD_OK;
    }
}

static bool accept_role(parser *p, hd_role *out)
{
    for (int i = HD_ROLE_IN; i <= HD_ROLE_TEMP; i++)
        if (accept_word(p, hd_role_text((hd_role)i))) {
            *out = (hd_role)i;
            return true;
        }
    return false;
}

static hd_status declared_twice(parser *p, const hd_token *name,
                                const hd_buffer *known)
{
    hd_status status;

    status = hd_error(p->diag, HD_E0203, name->loc, "%%%s is declared twice",
                      known->name);
    hd_note(p->diag, known->loc, "first here");
    return status;
}

static hd_status parse_declaration(parser *p)
{
    hd_token name;
    hd_buffer read = {.locs = hd_new(p->module->arena, hd_locs)};
    hd_buffer *buffer, *known;
    hd_status status;

    if (!accept_role(p, &read.role))
        return expected(p, p->module->naxes > 0 && p->module->nbuffers == 0 &&
                                   !p->token.first && is_followed_by(p, "=")
                               ? "',' and another axis, a declaration or '{'"
                               : "a declaration or '{'");
    name = p->token;
    if (name.kind == HD_TOKEN_NAME)
        return expected(p, hd_arena_printf(p->module->arena,
                                           "a buffer, as in '%%%.*s'",
                                           (int)name.length, name.text));
    if (name.kind != HD_TOKEN_BUFFER)
        return expected(p, "a buffer");
    advance(p);
    HD_TRY(expect_mark(p, ":", "':'"));
    status = parse_type(p, &read);
    known = hd_module_buffer(p->module, name.text, name.length);
    if (known != NULL)
        return declared_twice(p, &name, known);
    buffer = hd_module_add_buffer(
        p->module, hd_arena_text(p->module->arena, name.text, name.length),
        read.role, &read.type);
    buffer->loc = name.loc;
    buffer->locs = read.locs;
    buffer->open = read.open;
    buffer->shapeless = (read.open & HD_OPEN_SHAPE) != 0;
    if (buffer->record != NULL)
        buffer->record->loc = name.loc;
    HD_TRY(status); // declared all the same, so that its uses are no errors
    HD_TRY(parse_attributes(p, buffer));
    buffer->by = read.by; // of ranks that are known, or it would be judged
    buffer->counted = read.counted;
    return HD_OK;
}

static bool at_role(const parser *p)
{
    return at_word(p, "in") || at_word(p, "out") || at_word(p, "inout") ||
           at_word(p, "temp");
}

// To the next declaration; `start` is where this one began, so that at least
// one word is passed.
static void skip_declaration(parser *p, const char *start)
{
    if (p->token.text == start)
        advance(p);
    while (p->token.kind != HD_TOKEN_END && !at_mark(p, "{") && !at_role(p))
        advance(p);
}

// Blocks of one length, as many as it is cut into, hold each value of a size.
// There is room for two indices, so that what has room for one has it in every
// run, and repeats.
static void give_room(hd_module *m)
{
    for (int i = 0; i < m->nsizes; i++) {
        int64_t blocks = m->size[i].blocks > 0 ? m->size[i].blocks : 1;

        m->size[i].room = hd_block_size(m->size[i].high, blocks) * blocks;
        m->size[i].room = m->size[i].room > 1 ? m->size[i].room : 2;
    }
    for (hd_buffer *b = m->buffers; b != NULL; b = b->next)
        for (int i = 0; i < b->type.ndims; i++)
            if (hd_dim_is_sized(b->type.dim[i]))
                give_dim_room(m, &b->type.dim[i]);
}

static void parse_declarations(parser *p)
{
    hd_module *m = p->module;

    while (!at_mark(p, "{") && p->token.kind != HD_TOKEN_END) {
        const char *start = p->token.text;

        if (parse_declaration(p) != HD_OK) {
            p->failed = true;
            skip_declaration(p, start);
        }
    }
    for (hd_buffer *b = m->buffers; b != NULL; b = b->next)
        cut_streams(m, b, STREAM_BLOCKS);
    give_room(m);
    p->failed |= hd_declare_verify(m, p->diag) != HD_OK;
    for (hd_buffer *b = m->buffers; b != NULL; b = b->next)
        if (!hd_ranks_are_all(b->on))
            b->on = hd_ranks_of(m, b->on.axis, b->on.low, b->on.past);
}

// ----------------------------------------------------------------- header

static hd_status parse_stage(parser *p)
{
    for (int i = HD_STAGE_RESHARD; i < HD_STAGE_HOST; i++)
        if (accept_word(p, hd_stage_text((hd_stage)i))) {
            p->module->stage = (hd_stage)i;
            return HD_OK;
        }
    return expected(p, "reshard, stream, transfer or event");
}

static hd_status parse_form(parser *p)
{
    hd_module *m = p->module;
    bool named = accept_word(p, "heddle");

    for (m->form = HD_FORMAT; named && m->form > 0; m->form--)
        if (is_text(&p->token, hd_arena_printf(m->arena, "%d", m->form))) {
            advance(p);
            return HD_OK;
        }
    if (named && p->token.kind == HD_TOKEN_INT)
        return hd_error(p->diag, HD_E0101, p->token.loc,
                        "the text form %s is none that this version reads; "
                        "what it writes begins with 'heddle %d'",
                        token_text(p), HD_FORMAT);
    return hd_error(p->diag, HD_E0101, p->token.loc,
                    "a file begins with 'heddle %d'", HD_FORMAT);
}

static hd_status parse_program(parser *p)
{
    HD_TRY(parse_form(p));
    if (accept_word(p, "host"))
        p->module->stage = HD_STAGE_HOST;
    else if (!accept_word(p, "tensor"))
        return expected(p, "tensor program or host program");
    if (!accept_word(p, "program"))
        return expected(p, "program");
    if (p->token.kind != HD_TOKEN_NAME)
        return expected(p, "the program's name");
    p->module->name =
        hd_arena_text(p->module->arena, p->token.text, p->token.length);
    advance(p);
    if (accept_word(p, "after"))
        HD_TRY(parse_stage(p));
    p->module->written = p->module->stage;
    return HD_OK;
}

static void add_param(parser *p, const hd_token *name, int64_t value)
{
    hd_module *m = p->module;

    m->param = hd_arena_grow(m->arena, m->param, m->nparams, &m->params_room,
                             sizeof *m->param);
    m->param[m->nparams++] =
        (hd_define){hd_arena_text(m->arena, name->text, name->length), value};
    push_scope(p, name, hd_expr_const(m, value));
}

// What a run is given: `in`, its least and its greatest value. With -D it is
// one of these.
static hd_status parse_run_size(parser *p, const hd_token *name)
{
    hd_module *m = p->module;
    hd_size size = {0};
    hd_loc loc = p->token.loc;
    const hd_define *define;

    HD_TRY(parse_int(p, &size.low));
    HD_TRY(expect_mark(p, "..", "'..'"));
    HD_TRY(parse_int(p, &size.high));
    size.name = hd_arena_text(m->arena, name->text, name->length);
    size.now = size.room = size.high;
    if (size.high < 1 || size.high < size.low || size.high > HD_MAX_ELEMENTS) {
        return hd_error(p->diag, HD_E0202, loc,
                        "%s in %" PRId64 "..%" PRId64
                        "; the least value of a size, from 0 on, comes first, "
                        "and its greatest is 1 to %" PRId64,
                        size.name, size.low, size.high, HD_MAX_ELEMENTS);
    }
    define = find_define(p, name);
    if (define == NULL) {
        if (m->nsizes == HD_MAX_SIZES)
            return too_many(p, "sizes that runs are given", HD_MAX_SIZES);
        m->size[m->nsizes] = size;
        push_scope(p, name, hd_expr_size(m, m->nsizes++));
        return HD_OK;
    }
    if (define->value == 0 && size.low == 0) {
        add_param(p, name, 1);
        return hd_error(p->diag, HD_E0202, name->loc,
                        "-D %s=0: what -D says is so in every run, and at "
                        "least 1; `--run %s=0` gives one run 0",
                        size.name, size.name);
    }
    add_param(p, name, define->value);
    if (define->value >= size.low && define->value <= size.high)
        return HD_OK;
    return hd_error(p->diag, HD_E0202, name->loc,
                    "-D %s=%" PRId64 ": it is in %" PRId64 "..%" PRId64 " here",
                    size.name, define->value, size.low, size.high);
}

static hd_status parse_param(parser *p)
{
    hd_token name;
    int64_t value = 0;
    bool negative;

    HD_TRY(parse_variable(p, &name));
    if (accept_word(p, "in"))
        return parse_run_size(p, &name);
    HD_TRY(expect_mark(p, "=", "'='"));
    negative = accept_mark(p, "-");
    HD_TRY(parse_int(p, &value));
    add_param(p, &name, defined(p, &name, negative ? -value : value));
    return HD_OK;
}

static hd_status parse_constant(parser *p, const char *what, int64_t *out)
{
    hd_loc loc = p->token.loc;
    hd_expr expr;

    HD_TRY(parse_expr(p, &expr));
    if (!hd_expr_is_const(p->module, expr))
        return hd_error(p->diag, HD_E0608, loc,
                        "%s has no value: a divisor is not positive, or a "
                        "number is not below 2^63",
                        what);
    *out = hd_expr_value(p->module, expr);
    return HD_OK;
}

static hd_status parse_mesh(parser *p)
{
    hd_module *module = p->module;

    do {
        hd_axis *axis = &module->axis[module->naxes];
        hd_token name;

        if (module->naxes == HD_MAX_AXES)
            return too_many(p, "axes", HD_MAX_AXES);
        HD_TRY(parse_variable(p, &name));
        HD_TRY(expect_mark(p, "=", "'='"));
        HD_TRY(parse_constant(p, "the size of a mesh axis", &axis->size));
        axis->size = defined(p, &name, axis->size);
        axis->name = hd_arena_text(module->arena, name.text, name.length);
        axis->loc = name.loc;
        if (axis->size < 1 || axis->size > HD_MAX_MESH ||
            axis->size * module->nranks > HD_MAX_MESH)
            return hd_error(p->diag, HD_E0204, name.loc,
                            "a mesh has 1 to %d ranks, and %s=%" PRId64
                            " makes it too %s",
                            HD_MAX_MESH, axis->name, axis->size,
                            axis->size < 1 ? "small" : "large");
        module->nranks *= axis->size;
        module->naxes++;
    } while (accept_mark(p, ","));
    return HD_OK;
}

static hd_status parse_file(parser *p)
{
    HD_TRY(parse_program(p));
    while (accept_word(p, "param"))
        HD_TRY(parse_param(p));
    if (accept_word(p, "mesh"))
        HD_TRY(parse_mesh(p));
    if (accept_word(p, "streams")) {
        p->module->streams_loc = p->token.loc;
        HD_TRY(parse_constant(p, "the number of streams", &p->module->streams));
    }
    parse_declarations(p);
    p->in_body = true;
    HD_TRY(parse_block(p, &p->module->body));
    if (p->token.kind != HD_TOKEN_END)
        return expected(p, "the end of the file");
    return HD_OK;
}

// What there is to be set, by name: parameters, then axes.
static hd_status refuse_define(parser *p, const char *name)
{
    hd_suggestion near = hd_suggest(name, strlen(name));
    hd_module *m = p->module;
    const char *there = "";

    for (int i = 0; i < p->nnames + m->naxes; i++) {
        const char *one =
            i < p->nnames
                ? hd_arena_text(m->arena, p->names[i].name, p->names[i].length)
                : m->axis[i - p->nnames].name;

        hd_suggest_consider(&near, one);
        if (i < 8)
            there = hd_arena_printf(m->arena, "%s%s%s", there,
                                    i > 0 ? ", " : "", one);
        else if (i == 8)
            there = hd_arena_printf(m->arena, "%s, ..", there);
    }
    if (near.best != NULL)
        there = hd_arena_printf(m->arena, "; did you mean '%s'?", near.best);
    else if (*there != 0)
        there = hd_arena_printf(m->arena, "; there are %s", there);
    return hd_fail(p->diag, HD_ERROR_INVALID,
                   "-D %s: no parameter or axis has this name%s", name, there);
}

hd_status hd_parse_module(hd_module *module, const hd_define *defines,
                          size_t ndefines, hd_diag *diag)
{
    parser p = {.module = module,
                .diag = diag,
                .defines = defines,
                .ndefines = ndefines,
                .used = hd_new_array(module->arena, bool, ndefines + 1),
                .lexer = hd_lexer_start(&module->source)};
    hd_status status;

    advance(&p);
    status = parse_file(&p);
    for (size_t i = 0; status == HD_OK && i < ndefines; i++)
        if (!p.used[i])
            status = refuse_define(&p, defines[i].name);
    return status != HD_OK || p.failed ? HD_ERROR_INVALID : HD_OK;
}

// ------------------------------------------------------------- public call

static hd_status check_text(const char *name, const char *text, size_t length,
                            hd_diag *diag)
{
    if (name == NULL || (text == NULL && length > 0))
        return hd_fail(diag, HD_ERROR_ARGUMENT, "hd_parse: '%s' is NULL",
                       name == NULL ? "name" : "text");
    if (length > MAX_TEXT)
        return hd_fail(diag, HD_ERROR_INVALID,
                       "%s: %zu bytes of text; the limit is %d", name, length,
                       MAX_TEXT);
    return HD_OK;
}

static hd_status check_defines(const hd_define *defines, size_t ndefines,
                               hd_diag *diag)
{
    if (ndefines > 0)
        HD_REQUIRE(diag, defines);
    for (size_t i = 0; i < ndefines; i++)
        HD_REQUIRE(diag, defines[i].name);
    return HD_OK;
}

static hd_source copy_source(hd_arena *arena, const hd_source *from)
{
    hd_source to = *from;

    to.name = hd_arena_text(arena, from->name, strlen(from->name));
    to.text =
        hd_arena_text(arena, from->length > 0 ? from->text : "", from->length);
    if (from->cookie != NULL)
        to.cookie = hd_arena_copy(arena, from->cookie,
                                  sizeof *from->cookie * from->ncookies);
    return to;
}

hd_status hd_parse_source(const hd_source *source, const hd_define *defines,
                          size_t ndefines, hd_diag *diag, hd_module **out)
{
    hd_module *module;
    const hd_source *outer;
    jmp_buf guard;
    hd_status status;

    HD_TRY(check_text(source->name, source->text, source->length, diag));
    HD_TRY(check_defines(defines, ndefines, diag));
    HD_REQUIRE(diag, out);
    module = hd_module_create();
    if (module == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    outer = hd_diag_source(diag, NULL);
    if (setjmp(guard) != 0) {
        hd_diag_source(diag, outer);
        hd_module_destroy(module);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    }
    hd_arena_guard(module->arena, &guard);
    module->source = copy_source(module->arena, source);
    hd_diag_source(diag, &module->source);
    status = hd_parse_module(module, defines, ndefines, diag);
    if (status == HD_OK)
        status = hd_verify(module, diag);
    hd_diag_source(diag, outer);
    hd_arena_guard(module->arena, NULL);
    if (status != HD_OK)
        hd_module_destroy(module);
    else
        *out = module;
    return status;
}

hd_status hd_parse(const char *name, const char *text, size_t length,
                   const hd_define *defines, size_t ndefines, hd_diag *diag,
                   hd_module **out)
{
    hd_source source = {.name = name, .text = text, .length = length};

    return hd_parse_source(&source, defines, ndefines, diag, out);
}
