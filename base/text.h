// A growing text, for printers. Grows by realloc; when memory runs out it
// remembers that, drops what follows, and hd_text_take returns NULL.
#ifndef HD_BASE_TEXT_H
#define HD_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

HD_BEGIN_DECLS

typedef struct hd_text {
    char *bytes; // owned; always ends in NUL once anything was added
    size_t length;
    size_t room;
    bool failed;
} hd_text; // all zero is an empty text

void hd_text_add(hd_text *text, const char *bytes, size_t length);
void hd_text_puts(hd_text *text, const char *string);
void hd_text_printf(hd_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void hd_text_vprintf(hd_text *text, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

// "12.3 MB"
const char *hd_bytes_text(double bytes, char out[32]);

// Hands the text over (hd_free it), NULL if memory ran out; empties `text`.
char *hd_text_take(hd_text *text);
void hd_text_free(hd_text *text);

HD_END_DECLS

#endif
