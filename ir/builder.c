// Each kind of line has a text of its own, and beside it the cookies of its
// lines; hd_builder_finish joins them in the order of the grammar. What is
// wrong with a call is a line as well, of a text that is never parsed.
#include <heddle/build.h>

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "base/text.h"
#include "ir/parse.h"

typedef struct lines {
    hd_text text;
    hd_text cookies; // a uint64_t a line
} lines;

struct hd_builder {
    lines head, params, axes, streams, buffers, body; // as they are joined
    lines wrong;                                      // calls, and why
    hd_text name;
    hd_text open; // the cookies of the blocks that are open
    int naxes;
    bool finished;
};

static void end_line(lines *lines, uint64_t cookie)
{
    hd_text_puts(&lines->text, "\n");
    hd_text_add(&lines->cookies, (const char *)&cookie, sizeof cookie);
}

static void free_lines(lines *lines)
{
    hd_text_free(&lines->text);
    hd_text_free(&lines->cookies);
}

// ------------------------------------------------------------ what is wrong

enum { SHOWN = 40 };

// `text` as a message has it: cut, and on one line.
static void put_shown(hd_text *out, const char *text)
{
    size_t length = strlen(text);

    hd_text_puts(out, "'");
    for (size_t i = 0; i < length && i < SHOWN; i++)
        hd_text_add(out, text[i] == '\n' ? "?" : &text[i], 1);
    hd_text_puts(out, length > SHOWN ? "...'" : "'");
}

// "hd_builder_op: operand 1: 'a b' is no name"
static void refuse(hd_builder *b, const char *call, const char *what,
                   const char *text, const char *why, uint64_t cookie)
{
    hd_text *out = &b->wrong.text;

    hd_text_printf(out, "%s: %s ", call, what);
    if (text != NULL) {
        put_shown(out, text);
        hd_text_puts(out, " ");
    }
    hd_text_puts(out, why);
    end_line(&b->wrong, cookie);
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static size_t name_length(const char *text)
{
    size_t n = 0;

    while (is_letter(text[n]) || (n > 0 && text[n] >= '0' && text[n] <= '9'))
        n++;
    return n;
}

static bool take_name(hd_builder *b, const char *call, const char *what,
                      const char *name, uint64_t cookie)
{
    if (name == NULL)
        refuse(b, call, what, NULL, "is NULL", cookie);
    else if (*name == '\0' || name[name_length(name)] != '\0')
        refuse(b, call, what, name,
               "is no name: letters, digits and '_', no digit first", cookie);
    else
        return true;
    return false;
}

// Text that stays where it is put: what follows it is still read.
static bool take_text(hd_builder *b, const char *call, const char *what,
                      const char *text, uint64_t cookie)
{
    if (text == NULL)
        refuse(b, call, what, NULL, "is NULL", cookie);
    else if (strpbrk(text, "{}\n\r") != NULL || strstr(text, "//") != NULL)
        refuse(b, call, what, text,
               "has a brace, a comment or the end of a line", cookie);
    else
        return true;
    return false;
}

// What no name begins with: an operand that is a number.
static bool is_number(const char *operand)
{
    return *operand != '\0' && strchr("-.(0123456789", *operand) != NULL;
}

static bool take_view(hd_builder *b, const char *call, const char *what,
                      const char *view, uint64_t cookie)
{
    size_t n;

    if (!take_text(b, call, what, view, cookie))
        return false;
    if (is_number(view))
        return true;
    n = name_length(view);
    if (n > 0 && (view[n] == '\0' || view[n] == '['))
        return true;
    refuse(b, call, what, view, "is no view: a name, perhaps with indices",
           cookie);
    return false;
}

// What the caller's struct has of `bytes`; zeros follow. `size` leads it.
static bool take_struct(hd_builder *b, const char *call, const char *what,
                        const void *given, size_t bytes, void *out,
                        uint64_t cookie)
{
    if (given == NULL)
        refuse(b, call, what, NULL, "is NULL", cookie);
    else if (!hd_sized_take(given, bytes, out))
        refuse(b, call, what, NULL,
               "has no size, or says what this version does not know", cookie);
    else
        return true;
    return false;
}

// -------------------------------------------------------------- the header

hd_status hd_builder_create(const char *name, hd_stage stage, hd_diag *diag,
                            hd_builder **out)
{
    hd_builder *b;

    HD_REQUIRE(diag, name);
    HD_REQUIRE(diag, out);
    if (stage != HD_STAGE_TENSOR && stage != HD_STAGE_HOST)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "hd_builder_create: stage %d; a program is built as a "
                       "tensor program or a complete host program",
                       (int)stage);
    b = calloc(1, sizeof *b);
    if (b == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a builder");
    hd_text_puts(&b->name, name);
    if (take_name(b, "hd_builder_create", "name", name, 0)) {
        hd_text_printf(&b->head.text, "heddle %d", HD_FORMAT);
        end_line(&b->head, 0);
        hd_text_printf(&b->head.text, "%s program %s",
                       stage == HD_STAGE_TENSOR ? "tensor" : "host", name);
        end_line(&b->head, 0);
    }
    *out = b;
    return HD_OK;
}

void hd_builder_destroy(hd_builder *b)
{
    if (b == NULL)
        return;
    free_lines(&b->head);
    free_lines(&b->params);
    free_lines(&b->axes);
    free_lines(&b->streams);
    free_lines(&b->buffers);
    free_lines(&b->body);
    free_lines(&b->wrong);
    hd_text_free(&b->name);
    hd_text_free(&b->open);
    free(b);
}

void hd_builder_axis(hd_builder *b, const char *name, int64_t size,
                     uint64_t cookie)
{
    assert(b != NULL);
    if (!take_name(b, __func__, "name", name, cookie))
        return;
    hd_text_printf(&b->axes.text, "%s%s=%" PRId64,
                   b->naxes++ == 0 ? "mesh " : ", ", name, size);
    end_line(&b->axes, cookie);
}

void hd_builder_param(hd_builder *b, const char *name, int64_t value,
                      uint64_t cookie)
{
    assert(b != NULL);
    if (!take_name(b, __func__, "name", name, cookie))
        return;
    hd_text_printf(&b->params.text, "param %s = %" PRId64, name, value);
    end_line(&b->params, cookie);
}

void hd_builder_size(hd_builder *b, const char *name, int64_t low, int64_t high,
                     uint64_t cookie)
{
    assert(b != NULL);
    if (!take_name(b, __func__, "name", name, cookie))
        return;
    hd_text_printf(&b->params.text, "param %s in %" PRId64 "..%" PRId64, name,
                   low, high);
    end_line(&b->params, cookie);
}

void hd_builder_streams(hd_builder *b, int64_t streams, uint64_t cookie)
{
    assert(b != NULL);
    hd_text_printf(&b->streams.text, "streams %" PRId64, streams);
    end_line(&b->streams, cookie);
}

// ----------------------------------------------------------------- buffers

static bool take_dims(hd_builder *b, const hd_build_buffer *buffer,
                      uint64_t cookie)
{
    const char *call = "hd_builder_buffer";
    bool fine = true;

    if (buffer->ndims < 0 || buffer->ndims > HD_MAX_DIMS) {
        refuse(b, call, "'ndims' of", buffer->name, "is not 0 to 8", cookie);
        return false;
    }
    for (int i = 0; i < buffer->ndims; i++) {
        if (buffer->length[i] != NULL)
            fine &= take_text(b, call, "length", buffer->length[i], cookie);
        if (buffer->mark[i] != NULL)
            fine &= take_name(b, call, "mark", buffer->mark[i], cookie);
        if (buffer->by[i] != NULL)
            fine &= take_name(b, call, "by", buffer->by[i], cookie);
    }
    return fine;
}

static bool take_buffer(hd_builder *b, const hd_build_buffer *buffer,
                        uint64_t cookie)
{
    const char *call = "hd_builder_buffer";
    bool fine = take_name(b, call, "name", buffer->name, cookie);

    if ((unsigned)buffer->role > HD_ROLE_TEMP ||
        (unsigned)buffer->dtype > HD_DTYPE_EVENT) {
        refuse(b, call, "role or dtype of", buffer->name, "does not exist",
               cookie);
        fine = false;
    }
    if (buffer->untyped && buffer->unplaced) {
        refuse(b, call, "declaration of", buffer->name, "says nothing of it",
               cookie);
        fine = false;
    }
    if (buffer->unplaced && buffer->ndims > 0) {
        refuse(b, call, "'ndims' of", buffer->name, "is of what is unplaced",
               cookie);
        fine = false;
    }
    if (buffer->of != NULL)
        fine &= take_name(b, call, "of", buffer->of, cookie);
    if (buffer->on != NULL)
        fine &= take_text(b, call, "on", buffer->on, cookie);
    return take_dims(b, buffer, cookie) && fine;
}

static void put_dim(hd_text *out, const hd_build_buffer *buffer, int i)
{
    hd_text_puts(out, i > 0 ? ", " : "");
    if (buffer->length[i] != NULL)
        hd_text_puts(out, buffer->length[i]);
    else
        hd_text_printf(out, "%" PRId64, buffer->extent[i]);
    if (buffer->mark[i] != NULL)
        hd_text_printf(out, "@%s", buffer->mark[i]);
    if (buffer->by[i] != NULL)
        hd_text_printf(out, " by %%%s", buffer->by[i]);
}

void hd_builder_buffer(hd_builder *b, const hd_build_buffer *given,
                       uint64_t cookie)
{
    static const char *const roles[] = {"in", "out", "inout", "temp"};
    hd_text *out;
    hd_build_buffer buffer;

    assert(b != NULL);
    if (!take_struct(b, __func__, "buffer", given, sizeof buffer, &buffer,
                     cookie) ||
        !take_buffer(b, &buffer, cookie))
        return;
    out = &b->buffers.text;
    hd_text_printf(out, "%s %%%s : %s", roles[buffer.role], buffer.name,
                   buffer.untyped ? "" : hd_dtype_text(buffer.dtype));
    hd_text_puts(out, buffer.unplaced ? "" : "[");
    for (int i = 0; i < buffer.ndims; i++)
        put_dim(out, &buffer, i);
    hd_text_puts(out, buffer.unplaced ? "" : "]");
    hd_text_puts(out, buffer.shared ? " shared" : "");
    if (buffer.of != NULL)
        hd_text_printf(out, " of %%%s", buffer.of);
    if (buffer.on != NULL)
        hd_text_printf(out, " on %s", buffer.on);
    end_line(&b->buffers, cookie);
}

// -------------------------------------------------------------- statements

static void indent(hd_builder *b)
{
    int depth = 1 + (int)(b->open.length / sizeof(uint64_t));

    hd_text_printf(&b->body.text, "%*s", 4 * (depth < 64 ? depth : 64), "");
}

// `what` is one of `n` texts.
static bool take_list(hd_builder *b, const char *what, const char *const *list,
                      size_t n, bool views, uint64_t cookie)
{
    const char *call = "hd_builder_op";
    bool fine = true;

    if (list == NULL && n > 0) {
        refuse(b, call, what, NULL, "is NULL", cookie);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        fine &= views ? take_view(b, call, what, list[i], cookie)
                      : take_text(b, call, what, list[i], cookie);
    return fine;
}

static bool take_op(hd_builder *b, const hd_build_op *op, uint64_t cookie)
{
    const char *call = "hd_builder_op";
    bool fine = take_name(b, call, "op", op->op, cookie);

    if (op->axis != NULL)
        fine &= take_name(b, call, "axis", op->axis, cookie);
    if (op->callee != NULL && strchr(op->callee, '"') != NULL) {
        refuse(b, call, "callee", op->callee, "has a quote", cookie);
        fine = false;
    } else if (op->callee != NULL) {
        fine &= take_text(b, call, "callee", op->callee, cookie);
    }
    fine &= take_list(b, "result", op->results, op->nresults, true, cookie);
    fine &= take_list(b, "operand", op->operands, op->noperands, true, cookie);
    fine &= take_list(b, "attribute", op->attributes, op->nattributes, false,
                      cookie);
    return fine;
}

static void put_views(hd_text *out, const char *const *views, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hd_text_printf(out, "%s%s%s", i > 0 ? ", " : "",
                       is_number(views[i]) ? "" : "%", views[i]);
}

void hd_builder_op(hd_builder *b, const hd_build_op *given, uint64_t cookie)
{
    hd_text *out;
    hd_build_op op;

    assert(b != NULL);
    if (!take_struct(b, __func__, "op", given, sizeof op, &op, cookie) ||
        !take_op(b, &op, cookie))
        return;
    out = &b->body.text;
    indent(b);
    put_views(out, op.results, op.nresults);
    hd_text_printf(out, "%s%s", op.nresults > 0 ? " = " : "", op.op);
    if (op.axis != NULL)
        hd_text_printf(out, "@%s", op.axis);
    if (op.callee != NULL)
        hd_text_printf(out, " \"%s\"", op.callee);
    hd_text_puts(out, op.noperands > 0 ? " " : "");
    put_views(out, op.operands, op.noperands);
    for (size_t i = 0; i < op.nattributes; i++)
        hd_text_printf(out, " %s", op.attributes[i]);
    end_line(&b->body, cookie);
}

// The line that has just been indented and written opens a block.
static void open_block(hd_builder *b, uint64_t cookie)
{
    hd_text_puts(&b->body.text, " {");
    end_line(&b->body, cookie);
    hd_text_add(&b->open, (const char *)&cookie, sizeof cookie);
}

void hd_builder_for(hd_builder *b, const char *variable, const char *first,
                    const char *past, uint64_t cookie)
{
    bool fine;

    assert(b != NULL);
    fine = take_name(b, __func__, "variable", variable, cookie);
    fine &= take_text(b, __func__, "first", first, cookie);
    fine &= take_text(b, __func__, "past", past, cookie);
    indent(b);
    if (fine)
        hd_text_printf(&b->body.text, "for %s in %s..%s", variable, first,
                       past);
    open_block(b, cookie); // one that is refused is open, too
}

void hd_builder_block(hd_builder *b, const char *words, uint64_t cookie)
{
    assert(b != NULL);
    indent(b);
    if (take_text(b, __func__, "words", words, cookie))
        hd_text_puts(&b->body.text, words);
    open_block(b, cookie);
}

void hd_builder_end(hd_builder *b, uint64_t cookie)
{
    assert(b != NULL);
    if (b->open.length == 0) {
        if (!b->open.failed)
            refuse(b, __func__, "there is", NULL, "no block to end", cookie);
        return;
    }
    b->open.length -= sizeof cookie;
    indent(b);
    hd_text_puts(&b->body.text, "}");
    end_line(&b->body, cookie);
}

void hd_builder_line(hd_builder *b, const char *text, uint64_t cookie)
{
    assert(b != NULL);
    if (!take_text(b, __func__, "text", text, cookie))
        return;
    indent(b);
    hd_text_puts(&b->body.text, text);
    end_line(&b->body, cookie);
}

// ------------------------------------------------------------------ finish

static void refuse_open(hd_builder *b)
{
    uint64_t cookie;

    if (b->open.length == 0)
        return;
    memcpy(&cookie, b->open.bytes + b->open.length - sizeof cookie,
           sizeof cookie);
    refuse(b, "hd_builder_finish", "this block", NULL, "has no hd_builder_end",
           cookie);
}

static bool has_failed(const hd_builder *b)
{
    const lines *all[] = {&b->head,    &b->params, &b->axes, &b->streams,
                          &b->buffers, &b->body,   &b->wrong};
    bool failed = b->open.failed || b->name.failed;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        failed |= all[i]->text.failed || all[i]->cookies.failed;
    return failed;
}

// A message a line of what was refused.
static hd_status report(const hd_builder *b, hd_diag *diag)
{
    const char *line = b->wrong.text.bytes;
    size_t n = b->wrong.cookies.length / sizeof(uint64_t);
    uint64_t outer = hd_diag_cookie(diag, 0);

    for (size_t i = 0; i < n; i++) {
        size_t length = strcspn(line, "\n");
        uint64_t cookie;

        memcpy(&cookie, b->wrong.cookies.bytes + i * sizeof cookie,
               sizeof cookie);
        hd_diag_cookie(diag, cookie);
        hd_fail(diag, HD_ERROR_ARGUMENT, "%.*s", (int)length, line);
        line += length + 1;
    }
    hd_diag_cookie(diag, outer);
    return HD_ERROR_ARGUMENT;
}

static void add_lines(lines *to, const lines *from)
{
    hd_text_add(&to->text, from->text.bytes, from->text.length);
    hd_text_add(&to->cookies, from->cookies.bytes, from->cookies.length);
}

static void join(hd_builder *b, lines *out)
{
    add_lines(out, &b->head);
    add_lines(out, &b->params);
    add_lines(out, &b->axes);
    add_lines(out, &b->streams);
    add_lines(out, &b->buffers);
    hd_text_puts(&out->text, "{");
    end_line(out, 0);
    add_lines(out, &b->body);
    hd_text_puts(&out->text, "}");
    end_line(out, 0);
}

static hd_status parse_joined(const lines *all, const char *name, hd_diag *diag,
                              hd_module **out)
{
    hd_source source = {.name = name,
                        .text = all->text.bytes,
                        .length = all->text.length,
                        .cookie = (const uint64_t *)all->cookies.bytes,
                        .ncookies = all->cookies.length / sizeof(uint64_t)};

    return hd_parse_source(&source, NULL, 0, diag, out);
}

hd_status hd_builder_finish(hd_builder *b, hd_diag *diag, hd_module **out)
{
    lines all = {0};
    hd_status status;

    HD_REQUIRE(diag, b);
    HD_REQUIRE(diag, out);
    if (b->finished)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "hd_builder_finish: this builder has been finished");
    b->finished = true;
    refuse_open(b);
    join(b, &all);
    if (has_failed(b) || all.text.failed || all.cookies.failed)
        status = hd_fail(diag, HD_ERROR_NO_MEMORY,
                         "memory ran out for what was built");
    else if (b->wrong.text.length > 0)
        status = report(b, diag);
    else
        status = parse_joined(&all, b->name.bytes, diag, out);
    free_lines(&all);
    return status;
}
