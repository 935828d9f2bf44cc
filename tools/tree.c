// See tree.h. What an operation is called, and what stands behind a key, are
// rows of ir/ops.def: a new row is read as the others are.
#include "tree.h"

#include "scan.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// What stands behind a key, by its row.
typedef enum value_kind {
    VALUE_FLAG,
    VALUE_EXPR,
    VALUE_INT,
    VALUE_ACT,
    VALUE_FACTOR, // a number or a view
    VALUE_READ,   // a view, as these are
    VALUE_WRITE = VALUE_READ,
    VALUE_EVENT = VALUE_READ,
    VALUE_COUNTS = VALUE_READ,
    VALUE_BY = VALUE_READ,
    VALUE_NAME, // stands elsewhere
} value_kind;

typedef struct key_row {
    const char *text;
    value_kind value;
} key_row;

static const key_row keys[] = {
#define HD_KEY(code, text, value) {text, VALUE_##value},
#include "ir/ops.def"
};
enum { NKEYS = sizeof keys / sizeof *keys };

typedef struct op_row {
    const char *text;
    const char *family; // in capitals
} op_row;

static const op_row ops[] = {
#define HD_OP(code, text, family, ...) {text, #family},
#include "ir/ops.def"
};
enum { NOPS = sizeof ops / sizeof *ops };

typedef struct tree {
    scanner s;
    const hd_module *module;
    FILE *to;
} tree;

// ------------------------------------------------------------------ items

static void put_token(cJSON *in, const char *name, scanner *s)
{
    char *text = scan_text(s);

    json_text(in, name, text);
    free(text);
}

// From `from` to where the token before the present one ended.
static void put_source(cJSON *in, const scanner *s, const char *from)
{
    char *text = need_format("%.*s", (int)(s->before - from), from);

    json_text(in, "text", text);
    free(text);
}

// All digits as they stand; an item of its own.
static cJSON *take_number(scanner *s)
{
    bool negative = scan_take(s, "-");
    char *text;
    cJSON *item;

    if (s->kind != DIGITS) {
        scan_fail(s);
        return json_need(cJSON_CreateNull());
    }
    text = need_format("%s%.*s", negative ? "-" : "", (int)s->length, s->at);
    item = json_need(cJSON_CreateRaw(text));
    free(text);
    scan_next(s);
    return item;
}

static int64_t integer_of(const cJSON *number)
{
    int64_t value = 0;

    if (number && cJSON_IsRaw(number))
        parse_integer(number->valuestring, INT64_MIN, INT64_MAX, &value);
    return value;
}

// ------------------------------------------------------------ expressions

typedef struct operator_row {
    const char *text;
    int level; // what binds closer has a higher one
} operator_row;

enum { LOOSEST = 1, NEGATION = 3, COMPARISON = 4 };

static const operator_row operators[] = {
    {"or", LOOSEST},    {"and", 2},         {"==", COMPARISON},
    {"!=", COMPARISON}, {"<=", COMPARISON}, {">=", COMPARISON},
    {"<", COMPARISON},  {">", COMPARISON},  {"+", 5},
    {"-", 5},           {"*", 6},           {"/", 6},
    {"mod", 6},
};

static const operator_row *operator_at(const scanner *s)
{
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        if (scan_is(s, operators[i].text))
            return &operators[i];
    return NULL;
}

// ["mod", a, b]: `b` is NULL where there is one operand.
static cJSON *applied(const char *text, cJSON *a, cJSON *b)
{
    cJSON *list = json_need(cJSON_CreateArray());

    json_text(list, NULL, text);
    json_put(list, NULL, a);
    if (b)
        json_put(list, NULL, b);
    return list;
}

static cJSON *take_level(scanner *s, int least);

// What a name is: of a function if a parenthesis follows it.
static cJSON *take_name(scanner *s)
{
    char *name = scan_text(s);
    cJSON *item;

    if (scan_take(s, "(")) {
        cJSON *a = take_level(s, LOOSEST);

        scan_expect(s, ",");
        item = applied(name, a, take_level(s, LOOSEST));
        scan_expect(s, ")");
    } else {
        item = json_need(cJSON_CreateString(name));
    }
    free(name);
    return item;
}

static cJSON *take_atom(scanner *s)
{
    cJSON *item;

    if (s->kind == WORD)
        return take_name(s);
    if (!scan_take(s, "("))
        return take_number(s);
    item = take_level(s, LOOSEST);
    scan_expect(s, ")");
    return item;
}

static cJSON *take_level(scanner *s, int least)
{
    const operator_row *row;
    cJSON *left;

    if (least <= NEGATION && scan_take(s, "not"))
        left = applied("not", take_level(s, NEGATION), NULL);
    else
        left = take_atom(s);
    while ((row = operator_at(s)) != NULL && row->level >= least) {
        scan_next(s);
        left = applied(row->text, left, take_level(s, row->level + 1));
    }
    return left;
}

// A constant is a number, anything else its text and its tree.
static cJSON *take_expression(scanner *s)
{
    const char *from = s->first;
    cJSON *built = take_level(s, LOOSEST);
    cJSON *object;

    if (cJSON_IsRaw(built))
        return built;
    object = json_need(cJSON_CreateObject());
    put_source(object, s, from);
    json_put(object, "tree", built);
    return object;
}

static void put_expression(cJSON *in, const char *name, scanner *s)
{
    json_put(in, name, take_expression(s));
}

// ------------------------------------------------------------------ views

static void put_index(cJSON *in, scanner *s)
{
    cJSON *first, *object;

    if (scan_take(s, ":")) {
        json_text(in, NULL, NULL);
        return;
    }
    first = take_expression(s);
    if (!scan_is(s, "..") && !scan_is(s, "of")) {
        json_put(in, NULL, first);
        return;
    }
    object = json_object(in, NULL);
    if (scan_take(s, "..")) {
        json_put(object, "low", first);
        put_expression(object, "past", s);
    } else {
        scan_next(s);
        json_put(object, "block", first);
        put_expression(object, "blocks", s);
    }
}

static void put_view(cJSON *in, const char *name, scanner *s)
{
    cJSON *object = json_object(in, name);
    const char *from = s->first;
    cJSON *indices;

    if (s->kind != BUFFER) {
        scan_fail(s);
        return;
    }
    put_token(object, "buffer", s);
    indices = json_array(object, "index");
    // Of steps a key in brackets may follow, behind a blank.
    if (s->first == s->before && scan_take(s, "[")) {
        do
            put_index(indices, s);
        while (scan_take(s, ","));
        scan_expect(s, "]");
    }
    put_source(object, s, from);
}

// Those of line `line`, if there are any.
static void put_views(cJSON *in, const char *name, scanner *s, int line)
{
    cJSON *views = json_array(in, name);

    if (s->kind != BUFFER || s->line != line)
        return;
    do
        put_view(views, NULL, s);
    while (scan_take(s, ","));
}

// ------------------------------------------------------------- operations

// The name of a key, which may be in brackets; to be freed.
static char *take_key_name(scanner *s)
{
    const char *from = s->first;

    if (scan_take(s, "[")) {
        scan_next(s);
        scan_expect(s, "]");
    } else {
        scan_next(s);
    }
    return need_format("%.*s", (int)(s->before - from), from);
}

static value_kind value_of(const char *key)
{
    for (int i = 0; i < NKEYS; i++)
        if (strcmp(keys[i].text, key) == 0)
            return keys[i].value;
    return VALUE_NAME;
}

static void put_key(cJSON *in, scanner *s)
{
    char *name = take_key_name(s);

    switch (value_of(name)) {
    case VALUE_FLAG:
        json_flag(in, name, true);
        break;
    case VALUE_EXPR:
        put_expression(in, name, s);
        break;
    case VALUE_INT:
        json_put(in, name, take_number(s));
        break;
    case VALUE_ACT:
        put_token(in, name, s);
        break;
    case VALUE_FACTOR:
        if (s->kind == BUFFER)
            put_view(in, name, s);
        else
            json_put(in, name, take_number(s));
        break;
    case VALUE_READ:
        put_view(in, name, s);
        break;
    case VALUE_NAME:
        scan_fail(s);
    }
    free(name);
}

static const char *family_of(const char *op)
{
    for (int i = 0; i < NOPS; i++)
        if (strcmp(ops[i].text, op) == 0)
            return ops[i].family;
    return NULL;
}

// The axis of a transfer, which is not printed where the mesh has only one.
static void put_axis(cJSON *in, const tree *t, const char *family)
{
    hd_axis_info axis = HD_EMPTY(hd_axis_info);

    if (strcmp(family, "MOVE") == 0 && hd_module_axis(t->module, 0, &axis))
        json_text(in, "axis", axis.name);
}

static void put_op_name(cJSON *in, tree *t)
{
    char *name = scan_text(&t->s);
    const char *family = family_of(name);
    char lower[16] = "";

    json_text(in, "op", name);
    free(name);
    if (!family) {
        scan_fail(&t->s);
        return;
    }
    for (size_t i = 0; family[i] && i + 1 < sizeof lower; i++)
        lower[i] = (char)tolower((unsigned char)family[i]);
    json_text(in, "family", lower);
    if (scan_take(&t->s, "@"))
        put_token(in, "axis", &t->s);
    else
        put_axis(in, t, family);
}

// One statement is one line.
static void put_op(cJSON *in, tree *t)
{
    scanner *s = &t->s;
    bool results = s->kind == BUFFER;
    int line = s->line;
    cJSON *of;

    put_views(in, "results", s, line);
    if (results)
        scan_expect(s, "=");
    put_op_name(in, t);
    if (s->kind == QUOTED)
        put_token(in, "callee", s);
    put_views(in, "operands", s, line);
    of = json_object(in, "keys");
    while (s->line == line && s->kind != END)
        put_key(of, s);
}

// --------------------------------------------------------------- printing

// All of an object but the brace that ends it. Deletes it.
static void print_open(cJSON *object, FILE *to)
{
    char *text = cJSON_PrintUnformatted(object);

    if (!text)
        out_of_memory();
    fwrite(text, 1, strlen(text) - 1, to);
    free(text);
    cJSON_Delete(object);
}

// The end of the line before, and the blanks of a new one.
static void print_break(bool first, int depth, FILE *to)
{
    fprintf(to, "%s\n%*s", first ? "" : ",", depth, "");
}

static outcome judge(const tree *t)
{
    if (!t->s.wrong)
        return FINE;
    return complain(FAILED,
                    "the library %s prints what this command does not "
                    "know",
                    hd_version());
}

// ------------------------------------------------------------- statements

static void put_loop(cJSON *in, scanner *s)
{
    put_token(in, "name", s);
    scan_expect(s, "in");
    put_expression(in, "first", s);
    scan_expect(s, "..");
    put_expression(in, "past", s);
}

// What stands ahead of a statement's blocks; returns its kind.
static const char *put_statement(cJSON *in, tree *t)
{
    static const char *const kinds[] = {"let", "for", "if", "on", "group"};
    enum { LET, FOR, IF, ON, GROUP, OP };
    scanner *s = &t->s;
    int kind = LET;

    while (kind < OP && !scan_take(s, kinds[kind]))
        kind++;
    json_text(in, "kind", kind < OP ? kinds[kind] : "op");
    if (kind == LET) {
        put_token(in, "name", s);
        scan_expect(s, "=");
        put_expression(in, "value", s);
    } else if (kind == FOR) {
        put_loop(in, s);
    } else if (kind == IF) {
        put_expression(in, "condition", s);
    } else if (kind == ON) {
        scan_expect(s, "stream");
        put_expression(in, "stream", s);
    } else if (kind == OP) {
        put_op(in, t);
    }
    return kind < OP ? kinds[kind] : "op";
}

static void print_statement(tree *t, int depth);

// Up to the brace that ends the block.
static void print_block(tree *t, const char *name, int depth)
{
    bool first = true;

    fprintf(t->to, ",\"%s\":[", name);
    for (; !scan_is(&t->s, "}") && t->s.kind != END; first = false) {
        print_break(first, depth, t->to);
        print_statement(t, depth);
    }
    scan_expect(&t->s, "}");
    fputc(']', t->to);
}

// What stands behind `else` is a block, or another `if` alone.
static void print_otherwise(tree *t, int depth)
{
    if (scan_take(&t->s, "{")) {
        print_block(t, "otherwise", depth);
        return;
    }
    fprintf(t->to, ",\"otherwise\":[");
    print_break(true, depth, t->to);
    print_statement(t, depth);
    fputc(']', t->to);
}

static void print_statement(tree *t, int depth)
{
    cJSON *object = json_need(cJSON_CreateObject());
    int line = t->s.line;
    const char *kind = put_statement(object, t);

    json_number(object, "line", line);
    print_open(object, t->to);
    if (scan_take(&t->s, "{"))
        print_block(t, "body", depth + 1);
    if (strcmp(kind, "if") == 0 && scan_take(&t->s, "else"))
        print_otherwise(t, depth + 1);
    fputc('}', t->to);
}

// ---------------------------------------------------------------- buffers

// The greatest value of a size that runs are given; 1 if there is none.
static int64_t greatest(const tree *t, const char *name)
{
    hd_size_info size = HD_EMPTY(hd_size_info);

    for (size_t i = 0; hd_module_size(t->module, i, &size); i++)
        if (strcmp(size.name, name) == 0)
            return size.high;
    return 1;
}

// "64", "m" or "2 * m".
static void put_extent(cJSON *in, tree *t)
{
    scanner *s = &t->s;
    cJSON *times = NULL;
    char *name;

    if (s->kind == DIGITS)
        times = take_number(s);
    if (times && !scan_take(s, "*")) {
        json_put(in, "extent", times);
        return;
    }
    name = scan_text(s);
    json_integer(in, "extent",
                 (times ? integer_of(times) : 1) * greatest(t, name));
    json_text(in, "size", name);
    if (times)
        json_put(in, "times", times);
    free(name);
}

static void put_dim(cJSON *in, tree *t)
{
    cJSON *object = json_object(in, NULL);
    scanner *s = &t->s;
    const char *from = s->first;

    put_extent(object, t);
    if (scan_take(s, "in"))
        json_put(object, "blocks", take_number(s));
    if (scan_take(s, "@"))
        put_token(object, "mark", s);
    if (scan_take(s, "by"))
        put_token(object, "by", s);
    put_source(object, s, from);
}

static void put_type(cJSON *in, tree *t)
{
    scanner *s = &t->s;
    cJSON *dims;

    put_token(in, "dtype", s);
    dims = json_array(in, "dims");
    scan_expect(s, "[");
    if (!scan_is(s, "]"))
        do
            put_dim(dims, t);
        while (scan_take(s, ","));
    scan_expect(s, "]");
}

static void put_ranks(cJSON *in, scanner *s)
{
    cJSON *on = json_object(in, "on"), *low;

    put_token(on, "axis", s);
    low = json_put(on, "low", take_number(s));
    if (scan_take(s, ".."))
        json_put(on, "past", take_number(s));
    else
        json_integer(on, "past", integer_of(low) + 1);
}

// What a rank passes for argument `i`.
static void put_argument(cJSON *in, const tree *t, size_t i)
{
    hd_argument a = HD_EMPTY(hd_argument);
    cJSON *local;

    if (!hd_module_argument(t->module, i, &a))
        return;
    json_integer(in, "argument", (int64_t)i);
    local = json_array(in, "local");
    for (int d = 0; d < a.ndims; d++)
        json_integer(local, NULL, a.local[d]);
    json_integer(in, "local_bytes", (int64_t)a.local_bytes);
}

static bool at_role(const scanner *s)
{
    return scan_is(s, "in") || scan_is(s, "out") || scan_is(s, "inout") ||
           scan_is(s, "temp");
}

// Returns whether it is an argument, number `i`.
static bool print_buffer(tree *t, size_t i)
{
    cJSON *object = json_need(cJSON_CreateObject());
    scanner *s = &t->s;
    int line = s->line;
    bool argument = !scan_is(s, "temp");
    char *role = scan_text(s);

    put_token(object, "name", s);
    json_text(object, "role", role);
    free(role);
    scan_expect(s, ":");
    put_type(object, t);
    if (scan_take(s, "shared"))
        json_flag(object, "shared", true);
    if (scan_take(s, "of"))
        put_token(object, "of", s);
    if (scan_take(s, "on"))
        put_ranks(object, s);
    if (argument)
        put_argument(object, t, i);
    json_number(object, "line", line);
    print_open(object, t->to);
    fputc('}', t->to);
    return argument;
}

static void print_buffers(tree *t)
{
    size_t arguments = 0;

    fprintf(t->to, ",\n\"buffers\":[");
    for (bool first = true; at_role(&t->s); first = false) {
        print_break(first, 1, t->to);
        arguments += print_buffer(t, arguments);
    }
    fputc(']', t->to);
}

// ------------------------------------------------------------------- head

static void put_mesh(cJSON *in, const hd_module *module)
{
    cJSON *mesh = json_array(in, "mesh"), *of;
    hd_axis_info axis = HD_EMPTY(hd_axis_info);

    for (size_t i = 0; hd_module_axis(module, i, &axis); i++) {
        of = json_object(mesh, NULL);
        json_text(of, "name", axis.name);
        json_number(of, "size", axis.extent);
        json_number(of, "stride", axis.stride);
    }
}

static void put_sizes(cJSON *in, const hd_module *module)
{
    cJSON *sizes = json_array(in, "sizes"), *of;
    hd_size_info size = HD_EMPTY(hd_size_info);

    for (size_t i = 0; hd_module_size(module, i, &size); i++) {
        of = json_object(sizes, NULL);
        json_text(of, "name", size.name);
        json_integer(of, "low", size.low);
        json_integer(of, "high", size.high);
    }
}

static void print_head(const tree *t, const char *stage, const cJSON *params)
{
    cJSON *head = json_need(cJSON_CreateObject());
    hd_program_info info = info_of(t->module);

    json_number(head, "format", HD_FORMAT);
    json_text(head, "name", info.name);
    json_text(head, "stage", stage);
    json_number(head, "ranks", info.ranks);
    json_number(head, "streams", info.streams);
    put_mesh(head, t->module);
    json_put(head, "params", json_need(cJSON_Duplicate(params, true)));
    put_sizes(head, t->module);
    print_open(head, t->to);
}

// Of the canonical text, of which a line of the head begins with another word
// than a buffer does.
static void skip_head(scanner *s)
{
    int line = 0;

    for (; s->kind != END; scan_next(s)) {
        if (s->line != line && (at_role(s) || scan_is(s, "{")))
            return;
        line = s->line;
    }
}

// At the first buffer of the canonical text, which is to be freed.
static outcome open_text(tree *t, char **out)
{
    hd_status status = hd_print(t->module, out);

    if (status != HD_OK)
        return complain(FAILED, "%s", hd_status_text(status));
    t->s = scan(*out, strlen(*out));
    skip_head(&t->s);
    return FINE;
}

outcome tree_begin(const hd_module *module, const char *stage,
                   const cJSON *params, FILE *to)
{
    tree t = {.module = module, .to = to};
    char *text;

    TRY(open_text(&t, &text));
    print_head(&t, stage, params);
    print_buffers(&t);
    hd_free(text);
    return judge(&t);
}

outcome tree_body(const hd_module *module, FILE *to)
{
    tree t = {.module = module, .to = to};
    char *text;

    TRY(open_text(&t, &text));
    while (!scan_is(&t.s, "{") && t.s.kind != END)
        scan_next(&t.s);
    scan_expect(&t.s, "{");
    print_block(&t, "body", 1);
    hd_free(text);
    return judge(&t);
}

// ------------------------------------------------------------------ steps

// The rank at a coordinate of the axis, that else is where `rank` is.
static int64_t rank_at(const hd_module *module, int rank, const char *axis,
                       int64_t coordinate)
{
    hd_axis_info a = HD_EMPTY(hd_axis_info);

    for (size_t i = 0; hd_module_axis(module, i, &a); i++)
        if (strcmp(a.name, axis) == 0)
            return rank + (coordinate - rank / a.stride % a.extent) * a.stride;
    return rank;
}

// Whom a transfer is with, or who its root is, as a rank.
static void put_peer(cJSON *in, const hd_module *module, int rank)
{
    static const char *const names[] = {"to", "from", "root"};
    const cJSON *of = cJSON_GetObjectItem(in, "keys");
    const cJSON *axis = cJSON_GetObjectItem(in, "axis");

    for (int i = 0; axis && i < 3; i++) {
        const cJSON *peer = cJSON_GetObjectItem(of, names[i]);

        if (peer)
            json_integer(
                in, "peer",
                rank_at(module, rank, axis->valuestring, integer_of(peer)));
    }
}

// "caller", or an s with the number of a work stream.
static void put_stream(cJSON *in, scanner *s)
{
    char *name = scan_text(s);
    int64_t stream = -1;

    if (name[0] == 's')
        parse_integer(name + 1, 0, INT32_MAX, &stream);
    json_integer(in, "stream", stream);
    free(name);
}

// Members of a group are in braces, those between its first and its last one
// behind a bar; they have the number of the first.
static void put_group(cJSON *in, scanner *s, int64_t step, int64_t *group)
{
    if (scan_take(s, "{"))
        *group = step;
    else if (!scan_take(s, "|") && !scan_take(s, "}"))
        return;
    json_integer(in, "group", *group);
}

static void print_step(tree *t, int rank, int64_t *group)
{
    cJSON *object = json_need(cJSON_CreateObject());
    cJSON *number = take_number(&t->s);

    json_put(object, "step", number);
    put_stream(object, &t->s);
    put_group(object, &t->s, integer_of(number), group);
    put_op(object, t);
    put_peer(object, t->module, rank);
    print_open(object, t->to);
    fputc('}', t->to);
}

outcome tree_steps(const hd_module *module, int rank, const char *text,
                   bool first, FILE *to)
{
    tree t = {.module = module, .to = to};
    int64_t group = 0;

    fputs(first ? ",\n\"steps\":[" : "", to);
    print_break(first, 1, to);
    t.s = scan(text, strlen(text));
    fprintf(to, "{\"rank\":%d,\"steps\":[", rank);
    for (bool begun = false; t.s.kind != END; begun = true) {
        print_break(!begun, 2, to);
        print_step(&t, rank, &group);
    }
    fputs("]}", to);
    return judge(&t);
}

void tree_end(bool steps, FILE *to)
{
    fputs(steps ? "]}\n" : "}\n", to);
}

// -------------------------------------------------------------- parameters

// The value of -D, if there is one.
static bool defined(const program_options *options, const char *name,
                    int64_t *out)
{
    for (size_t i = 0; i < options->ndefines; i++)
        if (strcmp(options->defines[i].name, name) == 0) {
            *out = options->defines[i].value;
            return true;
        }
    return false;
}

// An integer as people write them, 4_096.
static int64_t take_written(scanner *s)
{
    bool negative = scan_take(s, "-");
    char *text = scan_text(s), *to = text;
    int64_t value = 0;

    for (const char *from = text; *from; from++)
        if (*from != '_')
            *to++ = *from;
    *to = 0;
    parse_integer(text, 0, INT64_MAX, &value);
    free(text);
    return negative ? -value : value;
}

static void put_param(cJSON *in, scanner *s, const program_options *options)
{
    char *name = scan_text(s);
    bool given = scan_take(s, "in");
    int64_t value = 0;
    cJSON *of;

    if (given) {
        take_written(s);
        scan_expect(s, "..");
        take_written(s);
    } else {
        scan_expect(s, "=");
        value = take_written(s);
    }
    if (defined(options, name, &value) || !given) {
        of = json_object(in, NULL);
        json_text(of, "name", name);
        json_integer(of, "value", value);
    }
    free(name);
}

cJSON *tree_params(const content *text, const program_options *options)
{
    cJSON *params = json_need(cJSON_CreateArray());
    scanner s = scan((const char *)text->bytes, text->length);

    while (s.kind != END && !scan_take(&s, "program"))
        scan_next(&s);
    scan_next(&s); // its name
    if (scan_take(&s, "after"))
        scan_next(&s);
    while (scan_take(&s, "param"))
        put_param(params, &s, options);
    return params;
}
