// The text form as it is written, with its comments. Words and marks are put
// one behind the other again, and what stands between them is only asked for
// comments and blank lines. The parser says where statements begin, and which
// words are keys: that no word tells by itself.
//
// A statement or a declaration is a line. Declarations that no blank line and
// no comment parts are in columns.
#include <heddle/heddle.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "ir/lex.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/signature.h"
#include "ir/verify.h"

typedef struct piece {
    hd_token token;
    const char *begin, *end; // with the % or the quotes
    bool statement, key;     // it begins one, it is one
} piece;

typedef struct writer {
    hd_text text;
    piece *all;
    int n; // the last one is the end of the text
    int depth, brackets;
    int roles, names; // columns of the declarations at hand
    int pad;          // spaces ahead of what comes next on the line
    bool open;        // there is something on the line
    bool blank;       // a blank line may follow
} writer;

static bool is(const piece *p, const char *text)
{
    size_t length = (size_t)(p->end - p->begin);

    return length == strlen(text) && memcmp(p->begin, text, length) == 0;
}

static bool is_any(const piece *p, const char *const *texts)
{
    while (*texts != NULL && !is(p, *texts))
        texts++;
    return *texts != NULL;
}

// ------------------------------------------------------------------ pieces

static int piece_count(const hd_source *source)
{
    hd_lexer lexer = hd_lexer_start(source);
    int n = 1;

    while (hd_lexer_next(&lexer).kind != HD_TOKEN_END)
        n++;
    return n;
}

static void find_pieces(writer *w, hd_module *module)
{
    hd_lexer lexer = hd_lexer_start(&module->source);

    w->n = piece_count(&module->source);
    w->all = hd_new_array(module->arena, piece, w->n);
    for (int i = 0; i < w->n; i++) {
        piece *p = &w->all[i];
        hd_token_kind kind;

        p->token = hd_lexer_next(&lexer);
        kind = p->token.kind;
        p->begin = p->token.text -
                   (kind == HD_TOKEN_BUFFER || kind == HD_TOKEN_STRING);
        p->end =
            p->token.text + p->token.length + (kind == HD_TOKEN_STRING ? 1 : 0);
    }
}

static int compare_place(const void *a, const void *b)
{
    const hd_loc *x = &((const piece *)a)->token.loc;
    const hd_loc *y = &((const piece *)b)->token.loc;

    return x->line != y->line
               ? (x->line > y->line) - (x->line < y->line)
               : (x->column > y->column) - (x->column < y->column);
}

static piece *piece_at(const writer *w, hd_loc loc)
{
    const piece like = {.token = {.loc = loc}};
    piece *found =
        bsearch(&like, w->all, (size_t)w->n, sizeof like, compare_place);

    assert(found != NULL && "the parser has read these very words");
    return found;
}

static void mark_block(const writer *w, const hd_block *block)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        piece_at(w, s->loc)->statement = true;
        for (int i = 0; s->kind == HD_STMT_OP && i < s->op->nkeys; i++)
            if (hd_key_is_shown(s->op->key[i].code))
                piece_at(w, s->op->key[i].loc)->key = true;
        mark_block(w, &s->body);
        mark_block(w, &s->otherwise);
    }
}

// ------------------------------------------------------------------- lines

// Of a declaration its first word.
static bool declares(const writer *w, int i)
{
    static const char *const roles[] = {"in", "out", "inout", "temp", NULL};

    return w->depth == 0 && w->brackets == 0 && is_any(&w->all[i], roles) &&
           w->all[i + 1].token.kind == HD_TOKEN_BUFFER;
}

// heddle 2 / tensor program NAME / ..
enum { LEVEL = 2, NAME = 4 };

static bool begins_line(const writer *w, int i)
{
    static const char *const parts[] = {"param", "mesh", "streams", "{", NULL};
    const piece *p = &w->all[i];

    if (i <= NAME)
        return i == 0 || i == LEVEL;
    if (w->depth == 0)
        return is_any(p, parts) || declares(w, i);
    if (is(p, "}") || is(p - 1, "{"))
        return true;
    return is(p - 1, "}") ? !is(p, "else") : p->statement && !is(p - 1, "else");
}

// Whether a minus has nothing in front of it that it takes away from.
static bool is_sign(const writer *w, int i)
{
    static const char *const words[] = {"in", "if",  "mod",     "and",
                                        "or", "not", "stream",  "of",
                                        "by", "on",  "streams", NULL};
    const piece *before = &w->all[i - 1];

    if (!is(&w->all[i], "-"))
        return false;
    if (before->token.kind == HD_TOKEN_NAME)
        return before->key || is_any(before, words);
    return before->token.kind == HD_TOKEN_MARK && !is(before, ")") &&
           !is(before, "]");
}

// Whether the extent ahead of a mark is one word, beside which the mark stands.
static bool is_short(const writer *w, int i)
{
    static const char *const ahead[] = {"[", ",", "in", NULL};

    return is_any(&w->all[i - 2], ahead) && !is(&w->all[i - 1], ":");
}

static bool is_function(const piece *p)
{
    static const char *const functions[] = {"min", "max", "cdiv", NULL};

    return is_any(p, functions);
}

// Whether there is a space between what is ahead on the line and this.
static bool is_apart(const writer *w, int i)
{
    static const char *const opening[] = {"(", "[", "@", "..", NULL};
    static const char *const closing[] = {")", "]", ",", "..", "[", NULL};
    const piece *p = &w->all[i], *before = p - 1;

    // What a declaration has in place of a dtype, and a shape.
    if (is(p, "[") && w->brackets == 0 && (is(before, ":") || is(before, "to")))
        return true;
    if (is_any(before, opening) || is_any(p, closing) || is_sign(w, i - 1))
        return false;
    if (is(p, "@"))
        return w->brackets > 0 && !is_short(w, i);
    if (is(p, "=") || is(before, "="))
        return w->depth > 0;
    return !(is(p, "(") && is_function(before));
}

static void end_line(writer *w)
{
    if (w->open)
        hd_text_puts(&w->text, "\n");
    w->open = false;
    w->pad = 0;
}

static void begin_line(writer *w, int indent)
{
    hd_text_printf(&w->text, "%*s", 4 * indent, "");
    w->open = true;
}

// ---------------------------------------------------------------- comments

// The next comment from `at` on; NULL if there is none before `end`. Counts the
// lines that end ahead of it, or of `end`.
static const char *find_comment(const char *at, const char *end, int *lines)
{
    for (*lines = 0; at < end && *at != '/'; at++)
        *lines += *at == '\n';
    return at < end ? at : NULL;
}

// Where the line ends, without blanks.
static const char *comment_end(const char *at, const char *end)
{
    const char *stop = memchr(at, '\n', (size_t)(end - at));

    for (stop = stop != NULL ? stop : end; strchr(" \t\r", stop[-1]) != NULL;)
        stop--;
    return stop;
}

static void put_blank(writer *w, int lines)
{
    if (lines > 1 && w->blank)
        hd_text_puts(&w->text, "\n");
}

static const char *gap_of(const writer *w, int i, const char *start)
{
    return i > 0 ? w->all[i - 1].end : start;
}

// The comments ahead of a piece. Returns how many lines end behind the last.
static int put_comments(writer *w, int i, const char *start)
{
    const char *at = gap_of(w, i, start), *end = w->all[i].begin, *next;
    int lines;

    while ((next = find_comment(at, end, &lines)) != NULL) {
        at = comment_end(next, end);
        if (lines == 0 && w->open) {
            hd_text_puts(&w->text, " ");
        } else {
            end_line(w);
            put_blank(w, lines);
            begin_line(w, w->depth);
        }
        hd_text_add(&w->text, next, (size_t)(at - next));
        w->open = true;
        end_line(w);
        w->blank = true;
    }
    return lines;
}

// ----------------------------------------------------------------- columns

// Whether a blank line, or one of a comment alone, parts it from what is ahead.
static bool is_parted(const writer *w, int i)
{
    const char *at = w->all[i - 1].end, *end = w->all[i].begin, *next;
    int lines;

    next = find_comment(at, end, &lines);
    if (next != NULL && lines == 0)
        next = find_comment(comment_end(next, end), end, &lines);
    return next != NULL || lines > 1;
}

static int length_of(const piece *p)
{
    return (int)(p->end - p->begin);
}

// Of the declarations from this one on.
static void measure_columns(writer *w, int from)
{
    w->roles = w->names = 0;
    for (int i = from; i < w->n && !is(&w->all[i], "{"); i++) {
        if (!declares(w, i))
            continue;
        if (i > from && is_parted(w, i))
            return;
        if (length_of(&w->all[i]) > w->roles)
            w->roles = length_of(&w->all[i]);
        if (length_of(&w->all[i + 1]) > w->names)
            w->names = length_of(&w->all[i + 1]);
    }
}

// ----------------------------------------------------------------- writing

static void put_piece(writer *w, int i)
{
    const piece *p = &w->all[i];
    bool declared = declares(w, i), named = i > 0 && declares(w, i - 1);

    if (declared && (w->roles == 0 || is_parted(w, i)))
        measure_columns(w, i);
    hd_text_add(&w->text, p->begin, (size_t)length_of(p));
    w->pad = declared ? w->roles - length_of(p)
             : named  ? w->names - length_of(p)
                      : 0;
    w->brackets += is(p, "[") - is(p, "]");
    w->depth += is(p, "{") - is(p, "}");
}

// Whether a line goes on here that a comment has ended.
static int indent_of(const writer *w, int i)
{
    const piece *p = &w->all[i];

    return w->depth - is(p, "}") + !(begins_line(w, i) || is(p, "else"));
}

static void put_next(writer *w, int i, const char *start)
{
    const piece *p = &w->all[i];
    int lines = put_comments(w, i, start);

    if (p->token.kind == HD_TOKEN_END || begins_line(w, i))
        end_line(w);
    if (p->token.kind == HD_TOKEN_END)
        return;
    if (!w->open) {
        if (begins_line(w, i) && !is(p, "}"))
            put_blank(w, lines);
        begin_line(w, indent_of(w, i));
    } else if (is_apart(w, i)) {
        hd_text_printf(&w->text, "%*s", w->pad + 1, "");
    }
    put_piece(w, i);
    w->blank = !is(p, "{");
}

static void write_text(writer *w, hd_module *module)
{
    const char *start = module->source.text;

    find_pieces(w, module);
    mark_block(w, &module->body);
    if (w->all[0].begin - start >= 3 && memcmp(start, "\xef\xbb\xbf", 3) == 0)
        start += 3;
    for (int i = 0; i < w->n; i++)
        put_next(w, i, start);
}

// --------------------------------------------------------------- upgrading

// What form 2 means otherwise: a product whose batches pair with other
// dimensions of its result.
static hd_status compare_ops(const hd_module *module, const hd_op *op,
                             const hd_op *other, hd_diag *diag)
{
    const hd_bound *a = op->bound, *b = other->bound;
    hd_type type;
    hd_text text = {0};
    hd_status status;

    if (a == NULL || memcmp(a->along, b->along, sizeof a->along) == 0)
        return HD_OK;
    type = hd_view_type(&op->view[2]);
    while (type.ndims < hd_view_type(&op->view[1]).ndims)
        type = hd_type_with(&type, type.ndims - 2, hd_dim_whole(1));
    hd_type_print(module, &type, &text);
    status = hd_error(diag, HD_E0313, op->loc,
                      "%s: of form 2 the batch of %%%s would pair with other "
                      "dimensions; with %%%s of %s it would not",
                      hd_op_info_get(op->code)->text, op->view[2].buffer->name,
                      op->view[2].buffer->name, text.failed ? "" : text.bytes);
    hd_text_free(&text);
    return status;
}

static hd_status compare_blocks(const hd_module *module, const hd_block *block,
                                const hd_block *other, hd_diag *diag)
{
    const hd_stmt *o = other->first;
    hd_status status = HD_OK;

    for (const hd_stmt *s = block->first; s != NULL; s = s->next, o = o->next) {
        assert(o->kind == s->kind && "they are of one text");
        if (s->kind == HD_STMT_OP &&
            compare_ops(module, s->op, o->op, diag) != HD_OK)
            status = HD_ERROR_INVALID;
        if (compare_blocks(module, &s->body, &o->body, diag) != HD_OK ||
            compare_blocks(module, &s->otherwise, &o->otherwise, diag) != HD_OK)
            status = HD_ERROR_INVALID;
    }
    return status;
}

// Where the number of the form stands; past the end where none does.
static size_t place_of_form(const hd_source *source)
{
    hd_lexer lexer = hd_lexer_start(source);

    hd_lexer_next(&lexer);
    return (size_t)(hd_lexer_next(&lexer).text - source->text);
}

// The same words as form 2 must be right, and mean the same. Messages are of
// lines that both have.
static hd_status compare_forms(const hd_source *source, const char *newer,
                               hd_diag *diag)
{
    const hd_source text = {source->name, newer, source->length, NULL, 0};
    const hd_source *outer;
    hd_module *before = NULL, *after = NULL;
    hd_status status = hd_parse_source(source, NULL, 0, diag, &before);

    if (status == HD_OK)
        status = hd_parse_source(&text, NULL, 0, diag, &after);
    if (status == HD_OK) {
        outer = hd_diag_source(diag, source);
        status = compare_blocks(before, &before->body, &after->body, diag);
        hd_diag_source(diag, outer);
    }
    hd_module_destroy(before);
    hd_module_destroy(after);
    return status;
}

// ------------------------------------------------------------ public calls

static hd_status check_text(const char *name, const char *text, size_t length,
                            hd_diag *diag)
{
    size_t i = 0;

    HD_REQUIRE(diag, name);
    if (length > 0)
        HD_REQUIRE(diag, text);
    while (i < length && memchr(" \t\r\n", text[i], 4) != NULL)
        i++;
    return i < length && text[i] == '{'
               ? hd_fail(diag, HD_ERROR_INVALID,
                         "%s: this is JSON; it is the text form that is "
                         "formatted, as 'heddle dump' prints it",
                         name)
               : HD_OK;
}

// As it is read, not verified: what does not fit can be formatted, too.
static hd_status format_source(writer *w, const hd_source *source,
                               hd_diag *diag)
{
    hd_module *module = hd_module_create();
    const hd_source *outer;
    hd_status status;
    jmp_buf guard;

    if (module == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    outer = hd_diag_source(diag, source);
    if (setjmp(guard) != 0) {
        hd_diag_source(diag, outer);
        hd_module_destroy(module);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    }
    hd_arena_guard(module->arena, &guard);
    module->source = *source;
    status = hd_parse_module(module, NULL, 0, diag);
    if (status == HD_OK)
        write_text(w, module);
    hd_diag_source(diag, outer);
    hd_module_destroy(module);
    return status;
}

hd_status hd_format(const char *name, const char *text, size_t length,
                    hd_diag *diag, char **out)
{
    const hd_source source = {.name = name, .text = text, .length = length};
    writer w = {0};
    hd_status status;

    HD_REQUIRE(diag, out);
    HD_TRY(check_text(name, text, length, diag));
    status = format_source(&w, &source, diag);
    return hd_print_give(status, &w.text, diag, out);
}

hd_status hd_upgrade(const char *name, const char *text, size_t length,
                     hd_diag *diag, char **out)
{
    const hd_source source = {.name = name, .text = text, .length = length};
    char *newer;
    size_t at;
    hd_status status = hd_format(name, text, length, diag, out);

    HD_TRY(status);
    hd_free(*out);
    *out = NULL;
    newer = malloc(length);
    if (newer == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    memcpy(newer, text, length);
    at = place_of_form(&source);
    assert(at < length && "it has been read");
    newer[at] = '0' + HD_FORMAT;
    status = compare_forms(&source, newer, diag);
    if (status == HD_OK)
        status = hd_format(name, newer, length, diag, out);
    free(newer);
    return status;
}
