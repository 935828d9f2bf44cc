// What is reported to the reader of a program: messages with a place in the
// text, rendered with the source line and a caret. A message is copied out of
// the source when it is made, so a diag outlives modules and texts.
#ifndef HD_BASE_DIAG_H
#define HD_BASE_DIAG_H

#include <stdint.h>

#include "base/status.h"

HD_BEGIN_DECLS

// A range of a source text. Line and column count from 1, in bytes; line 0
// means no place. `length` is what the caret underlines, at least 1.
typedef struct hd_loc {
    uint32_t line;
    uint32_t column;
    uint32_t length;
} hd_loc;

// The text that locs point into. Nothing is owned.
typedef struct hd_source {
    const char *name; // as messages show it
    const char *text;
    size_t length;
    const uint64_t *cookie; // NULL, or what the caller knows each line by
    size_t ncookies;
} hd_source;

// The cookie of line `line`, from 1; 0 if it has none.
uint64_t hd_source_cookie(const hd_source *source, uint32_t line);
// That of the first place in this source that words name ("ring.hd:17:21").
uint64_t hd_source_cookie_told(const hd_source *source, const char *words);

// Codes are stable; each row of codes.def has a golden test and a line in
// docs/diagnostics.md. HD_E(0101) reads as the number in error[HD0101].
typedef enum hd_code {
    HD_CODE_NONE = 0,
#define HD_CODE(number, summary) HD_E##number = 1##number - 10000,
#include "base/codes.def"
#undef HD_CODE
} hd_code;

// The summary of codes.def.
const char *hd_code_summary(hd_code code);

// Which source the following messages point into; NULL for none. Returns the
// one before, so that it can be put back.
const hd_source *hd_diag_source(hd_diag *diag, const hd_source *source);

// The cookie of following messages that have no place; 0 for none. Returns the
// one before, so that it can be put back.
uint64_t hd_diag_cookie(hd_diag *diag, uint64_t cookie);

// Each adds one message and returns a status to pass on: HD_ERROR_INVALID for
// hd_error. After 20 errors one line says that the rest were dropped. A diag of
// NULL drops all. hd_note belongs to the message before it, and is dropped with
// it.
hd_status hd_error(hd_diag *diag, hd_code code, hd_loc loc, const char *format,
                   ...) __attribute__((format(printf, 4, 5)));
void hd_warning(hd_diag *diag, hd_code code, hd_loc loc, const char *format,
                ...) __attribute__((format(printf, 4, 5)));
void hd_note(hd_diag *diag, hd_loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

// While it is muted nothing is reported, or counted, of what may be wrong with
// a program: errors, warnings and notes are dropped. Failures are reported.
// Returns whether it was muted before, so that it can be put back.
bool hd_diag_mute(hd_diag *diag, bool mute);

// Further errors are only counted: messages for them need not be made.
bool hd_diag_is_full(const hd_diag *diag);

// For failures with no place in a text: returns `status`.
hd_status hd_fail(hd_diag *diag, hd_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// The same with errno's message appended (": No such file"): returns
// HD_ERROR_SYSTEM.
hd_status hd_system_error(hd_diag *diag, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Refuses a NULL that a public function was given, in that function. Public
// functions that have no status to refuse with assert.
#define HD_REQUIRE(diag, pointer)                                         \
    do {                                                                  \
        if ((pointer) == NULL)                                            \
            return hd_fail((diag), HD_ERROR_ARGUMENT, "%s: '%s' is NULL", \
                           __func__, #pointer);                           \
    } while (0)

HD_END_DECLS

#endif
