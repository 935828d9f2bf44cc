// Splits a text into words. Every byte is accounted for: what cannot stand in a
// program becomes one HD_TOKEN_BAD a range, reported by the parser.
#ifndef HD_IR_LEX_H
#define HD_IR_LEX_H

#include "base/diag.h"

HD_BEGIN_DECLS

typedef enum hd_token_kind {
    HD_TOKEN_END,
    HD_TOKEN_NAME,   // letter or _, then letters, digits and _
    HD_TOKEN_BUFFER, // % and a name; text excludes the %
    HD_TOKEN_INT,
    HD_TOKEN_NUMBER, // with a fraction or an exponent
    HD_TOKEN_MARK,   // punctuation, one or two bytes
    HD_TOKEN_STRING, // of one line; text excludes the quotes
    HD_TOKEN_BAD,
} hd_token_kind;

typedef struct hd_token {
    hd_token_kind kind;
    hd_loc loc;
    const char *text; // into the source
    size_t length;
    bool first; // first of its line
} hd_token;

typedef struct hd_lexer {
    const char *at, *end;
    const char *line_start;
    uint32_t line;
    bool fresh; // no token of this line yet
} hd_lexer;

hd_lexer hd_lexer_start(const hd_source *source);
hd_token hd_lexer_next(hd_lexer *lexer);

HD_END_DECLS

#endif
