// See scan.h.
#include "scan.h"

#include "tool.h"

#include <ctype.h>
#include <string.h>

static bool is_letter(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static bool is_digit(char c)
{
    return isdigit((unsigned char)c);
}

// The character that is `ahead` of `at`; a space beyond the end.
static char peek(const scanner *s, const char *at, ptrdiff_t ahead)
{
    return s->past - at > ahead ? at[ahead] : ' ';
}

static void skip_blanks(scanner *s)
{
    for (; s->rest < s->past; s->rest++) {
        if (*s->rest == '\n')
            s->line++;
        else if (peek(s, s->rest, 0) == '/' && peek(s, s->rest, 1) == '/')
            while (s->rest + 1 < s->past && s->rest[1] != '\n')
                s->rest++;
        else if (!isspace((unsigned char)*s->rest))
            return;
    }
}

// Where a number ends: 0..4 is two of them, 1e-3 is one.
static const char *digits_end(const scanner *s)
{
    const char *at = s->rest;
    bool hex = peek(s, at, 0) == '0' && peek(s, at, 1) == 'x';

    for (at += hex ? 2 : 1; at < s->past; at++) {
        bool fraction = *at == '.' && is_digit(peek(s, at, 1));
        bool sign = (*at == '-' || *at == '+') && !hex &&
                    (at[-1] == 'e' || at[-1] == 'E');

        if (!is_letter(*at) && !fraction && !sign)
            break;
    }
    return at;
}

static const char *word_end(const scanner *s, const char *at)
{
    while (at < s->past && is_letter(*at))
        at++;
    return at;
}

static const char *quote_end(const scanner *s)
{
    const char *at = s->rest + 1;

    while (at < s->past && *at != '"')
        at++;
    return at < s->past ? at + 1 : at;
}

static const char *mark_end(const scanner *s)
{
    char second = peek(s, s->rest, 1);
    bool two = *s->rest == '.' ? second == '.'
                               : second == '=' && strchr("=!<>", *s->rest);

    return s->rest + (two ? 2 : 1);
}

void scan_next(scanner *s)
{
    const char *end = s->rest;
    size_t skipped = 0, cut = 0;

    s->before = s->rest;
    skip_blanks(s);
    if (s->rest == s->past) {
        s->kind = END;
        end = s->rest;
    } else if (is_digit(*s->rest)) {
        s->kind = DIGITS;
        end = digits_end(s);
    } else if (is_letter(*s->rest)) {
        s->kind = WORD;
        end = word_end(s, s->rest);
    } else if (*s->rest == '%') {
        s->kind = BUFFER;
        skipped = 1;
        end = word_end(s, s->rest + 1);
    } else if (*s->rest == '"') {
        s->kind = QUOTED;
        end = quote_end(s);
        skipped = 1;
        cut = end - s->rest > 1 && end[-1] == '"';
    } else {
        s->kind = MARK;
        end = mark_end(s);
    }
    s->first = s->rest;
    s->at = s->rest + skipped;
    s->length = (size_t)(end - s->rest) - skipped - cut;
    s->rest = end;
}

scanner scan(const char *text, size_t length)
{
    scanner s = {.rest = text, .past = text + length, .line = 1};

    scan_next(&s);
    return s;
}

bool scan_is(const scanner *s, const char *text)
{
    return (s->kind == WORD || s->kind == MARK) && s->length == strlen(text) &&
           memcmp(s->at, text, s->length) == 0;
}

bool scan_take(scanner *s, const char *text)
{
    if (!scan_is(s, text))
        return false;
    scan_next(s);
    return true;
}

void scan_fail(scanner *s)
{
    s->wrong = true;
    s->rest = s->past;
    scan_next(s);
}

void scan_expect(scanner *s, const char *text)
{
    if (!scan_take(s, text))
        scan_fail(s);
}

char *scan_text(scanner *s)
{
    char *text = need_format("%.*s", (int)s->length, s->at);

    scan_next(s);
    return text;
}
