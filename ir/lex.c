#include "ir/lex.h"

#include <string.h>

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_letter(c) || is_digit(c);
}

hd_lexer hd_lexer_start(const hd_source *source)
{
    hd_lexer lexer = {.at = source->text,
                      .end = source->text + source->length,
                      .line_start = source->text,
                      .line = 1,
                      .fresh = true};

    // A byte order mark says nothing that UTF-8 does not.
    if (source->length >= 3 && memcmp(source->text, "\xef\xbb\xbf", 3) == 0)
        lexer.at += 3;
    return lexer;
}

static void skip_blank(hd_lexer *lexer)
{
    while (lexer->at < lexer->end) {
        char c = *lexer->at;

        if (c == '\n') {
            lexer->at++;
            lexer->line++;
            lexer->line_start = lexer->at;
            lexer->fresh = true;
        } else if (c == ' ' || c == '\t' || c == '\r') {
            lexer->at++;
        } else if (c == '/' && lexer->end - lexer->at > 1 &&
                   lexer->at[1] == '/') {
            const char *stop =
                memchr(lexer->at, '\n', (size_t)(lexer->end - lexer->at));
            lexer->at = stop != NULL ? stop : lexer->end;
        } else {
            return;
        }
    }
}

static const char *skip_words(const char *at, const char *end)
{
    while (at < end && is_word(*at))
        at++;
    return at;
}

static bool is_fraction(const char *at, const char *end)
{
    return end - at > 1 && *at == '.' && is_digit(at[1]);
}

// Digits, then perhaps a fraction and an exponent with its sign. `0..4` is an
// integer and two dots. Letters run on, so that `12abc` is one bad number.
static hd_token_kind scan_number(const char **at, const char *end)
{
    const char *start = *at;
    hd_token_kind kind = HD_TOKEN_INT;
    const char *p = start;

    if (end - p > 1 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X')) {
        *at = skip_words(p, end);
        return HD_TOKEN_INT;
    }
    while (p < end && (is_digit(*p) || *p == '_'))
        p++;
    if (is_fraction(p, end)) {
        kind = HD_TOKEN_NUMBER;
        p++;
        while (p < end && (is_digit(*p) || *p == '_'))
            p++;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        kind = HD_TOKEN_NUMBER;
        p++;
        if (p < end && (*p == '+' || *p == '-'))
            p++;
    }
    *at = skip_words(p, end);
    return kind;
}

static size_t mark_length(const char *at, const char *end)
{
    char next = at + 1 < end ? at[1] : '\0';

    switch (*at) {
    case '.':
        return next == '.' ? 2 : 0;
    case '!':
        return next == '=' ? 2 : 0;
    case '=':
    case '<':
    case '>':
        return next == '=' ? 2 : 1;
    case '{':
    case '}':
    case '[':
    case ']':
    case '(':
    case ')':
    case ',':
    case ':':
    case '@':
    case '+':
    case '-':
    case '*':
    case '/':
        return 1;
    default:
        return 0;
    }
}

static bool is_bad(const char *at, const char *end)
{
    return !is_word(*at) && *at != '%' && *at != '"' &&
           mark_length(at, end) == 0 && strchr(" \t\r\n", *at) == NULL;
}

// To the quote that closes it, on its line. Without one the rest of the line
// cannot stand here.
static hd_token_kind scan_string(hd_lexer *lexer)
{
    const char *at = lexer->at + 1;

    while (at < lexer->end && *at != '"' && *at != '\n')
        at++;
    if (at < lexer->end && *at == '"') {
        lexer->at = at + 1;
        return HD_TOKEN_STRING;
    }
    lexer->at = at;
    return HD_TOKEN_BAD;
}

static hd_token_kind scan(hd_lexer *lexer)
{
    const char *at = lexer->at;
    hd_token_kind kind;
    size_t length;

    if (is_letter(*at)) {
        lexer->at = skip_words(at, lexer->end);
        return HD_TOKEN_NAME;
    }
    if (is_digit(*at)) {
        kind = scan_number(&at, lexer->end);
        lexer->at = at;
        return kind;
    }
    if (*at == '%' && lexer->end - at > 1 && is_word(at[1])) {
        lexer->at = skip_words(at + 1, lexer->end);
        return HD_TOKEN_BUFFER;
    }
    if (*at == '"')
        return scan_string(lexer);
    length = mark_length(at, lexer->end);
    if (length > 0) {
        lexer->at = at + length;
        return HD_TOKEN_MARK;
    }
    do
        lexer->at++;
    while (lexer->at < lexer->end && is_bad(lexer->at, lexer->end));
    return HD_TOKEN_BAD;
}

hd_token hd_lexer_next(hd_lexer *lexer)
{
    hd_token token = {0};
    const char *start;

    skip_blank(lexer);
    start = lexer->at;
    token.first = lexer->fresh;
    token.loc.line = lexer->line;
    token.loc.column = (uint32_t)(start - lexer->line_start) + 1;
    token.kind = start < lexer->end ? scan(lexer) : HD_TOKEN_END;
    lexer->fresh = false;
    token.loc.length = (uint32_t)(lexer->at - start);
    if (token.loc.length == 0)
        token.loc.length = 1;
    token.text = start;
    token.length = (size_t)(lexer->at - start);
    if (token.kind == HD_TOKEN_BUFFER) {
        token.text++;
        token.length--;
    }
    if (token.kind == HD_TOKEN_STRING) {
        token.text++;
        token.length -= 2;
    }
    return token;
}
