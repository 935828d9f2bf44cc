// Words of the text form, one after the other, for what tells of a program that
// the library has parsed: it judges nothing.
#ifndef HD_TOOLS_SCAN_H
#define HD_TOOLS_SCAN_H

#include <stdbool.h>
#include <stddef.h>

typedef enum token_kind {
    WORD,
    BUFFER, // %name, without the %
    DIGITS, // a number without a sign
    QUOTED, // without the quotes
    MARK,   // of one or two characters
    END,    // of the text
} token_kind;

typedef struct scanner {
    const char *rest, *past; // what follows the token, and where the text ends
    token_kind kind;         // of the token
    const char *at;          // what it is, of `length` bytes
    size_t length;
    const char *first;  // where it begins, with what `at` leaves out
    const char *before; // where the one before it ended
    int line;           // that it is in, from 1
    bool wrong;         // something else was expected: the rest is left out
} scanner;

// At the first token of `length` bytes of text, which must outlive it.
scanner scan(const char *text, size_t length);
void scan_next(scanner *s);
// Whether the token is this word or mark.
bool scan_is(const scanner *s, const char *text);
// Goes on if it is.
bool scan_take(scanner *s, const char *text);
// Where nothing else can stand. If something does, the text is of a library
// that knows more: there is no token but END then, and `wrong` is set.
void scan_expect(scanner *s, const char *text);
void scan_fail(scanner *s);
// The token as a text of its own, to be freed; goes on.
char *scan_text(scanner *s);

#endif
