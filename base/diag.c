// Messages, each rendered with its source line as it is made, since the text
// may be gone when somebody reads them. What is shown is safe on a terminal:
// control characters, invalid UTF-8 and marks that reorder text become '?'.
// When memory runs out, messages are lost but errors are still counted.
#include "base/diag.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "base/text.h"

enum {
    MAX_ERRORS = 20,
    MAX_WARNINGS = 20,
    MAX_LINE = 160, // bytes of a source line that are shown
};

typedef struct message {
    hd_severity severity;
    char code[8];
    hd_loc loc;
    char *file;    // owned; "" if there is none
    char *text;    // owned
    char *excerpt; // owned; the source line and its caret, or ""
    uint64_t cookie;
} message;

struct hd_diag {
    const hd_source *source; // borrowed: what the next messages point into
    message *messages;       // owned
    size_t nmessages;
    size_t room;
    size_t errors;
    size_t warnings;
    size_t dropped;  // errors past the limit
    bool dropping;   // the last error or warning was dropped: so are its notes
    bool lost;       // memory ran out for some message
    bool muted;      // errors, warnings and notes are dropped
    uint64_t cookie; // of messages without a place
    hd_text text;    // what hd_diag_text returned
};

hd_diag *hd_diag_create(void)
{
    return calloc(1, sizeof(hd_diag));
}

static void free_message(message *m)
{
    free(m->file);
    free(m->text);
    free(m->excerpt);
}

void hd_diag_clear(hd_diag *diag)
{
    const hd_source *source;
    uint64_t cookie;

    assert(diag != NULL);
    source = diag->source;
    cookie = diag->cookie;

    for (size_t i = 0; i < diag->nmessages; i++)
        free_message(&diag->messages[i]);
    free(diag->messages);
    hd_text_free(&diag->text);
    *diag = (hd_diag){.source = source, .cookie = cookie};
}

void hd_diag_destroy(hd_diag *diag)
{
    if (diag == NULL)
        return;
    hd_diag_clear(diag);
    free(diag);
}

const hd_source *hd_diag_source(hd_diag *diag, const hd_source *source)
{
    const hd_source *before;

    if (diag == NULL)
        return NULL;
    before = diag->source;
    diag->source = source;
    return before;
}

uint64_t hd_diag_cookie(hd_diag *diag, uint64_t cookie)
{
    uint64_t before;

    if (diag == NULL)
        return 0;
    before = diag->cookie;
    diag->cookie = cookie;
    return before;
}

uint64_t hd_source_cookie(const hd_source *source, uint32_t line)
{
    return line > 0 && line <= source->ncookies ? source->cookie[line - 1] : 0;
}

uint64_t hd_source_cookie_told(const hd_source *source, const char *words)
{
    size_t length = source->name != NULL ? strlen(source->name) : 0;

    if (length == 0 || source->ncookies == 0)
        return 0;
    for (const char *at = strstr(words, source->name); at != NULL;
         at = strstr(at + 1, source->name)) {
        unsigned line, column;

        if (sscanf(at + length, ":%u:%u", &line, &column) == 2)
            return hd_source_cookie(source, line);
    }
    return 0;
}

bool hd_diag_is_full(const hd_diag *diag)
{
    return diag == NULL || diag->errors >= MAX_ERRORS;
}

const char *hd_code_summary(hd_code code)
{
    switch (code) {
    case HD_CODE_NONE:
        break;
#define HD_CODE(number, summary) \
    case HD_E##number:           \
        return summary;
#include "base/codes.def"
#undef HD_CODE
    }
    return "";
}

// One character of UTF-8: how many bytes it takes, and its code point, which
// is -1 if the bytes are not UTF-8; then one byte is taken.
static size_t decode(const char *bytes, size_t length, int32_t *out)
{
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *b = (const unsigned char *)bytes;
    size_t n = b[0] < 0x80 ? 1 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
    int32_t point = n == 1 ? b[0] : b[0] & (0x7f >> n);
    bool ok = b[0] < 0x80 || (b[0] >= 0xc0 && b[0] < 0xf8);

    for (size_t i = 1; ok && i < n; i++) {
        ok = i < length && (b[i] & 0xc0) == 0x80;
        point = ok ? point << 6 | (b[i] & 0x3f) : -1;
    }
    ok = ok && point >= least[n] && point <= 0x10ffff &&
         (point < 0xd800 || point > 0xdfff);
    *out = ok ? point : -1;
    return ok ? n : 1;
}

static bool is_within(int32_t point, const int32_t (*range)[2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (point >= range[i][0] && point <= range[i][1])
            return true;
    return false;
}

// Columns that a character takes on a screen, -1 if it must not be shown:
// controls, and what is invisible or turns the direction of text.
static int columns_of(int32_t point)
{
    static const int32_t hidden[][2] = {
        {-1, 0x1f},       {0x7f, 0x9f},        {0xad, 0xad},
        {0x61c, 0x61c},   {0x180e, 0x180e},    {0x200b, 0x200f},
        {0x2028, 0x202e}, {0x2060, 0x206f},    {0xfeff, 0xfeff},
        {0xfff9, 0xfffb}, {0xe0000, 0x10ffff},
    };
    static const int32_t combining[][2] = {
        {0x300, 0x36f},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff},
        {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f},
    };
    static const int32_t wide[][2] = {
        {0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0xa4cf},
        {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},
        {0xff00, 0xff60},   {0xffe0, 0xffe6},   {0x1f300, 0x1f64f},
        {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd},
    };

    if (point >= ' ' && point <= '~') // nearly all
        return 1;
    if (is_within(point, hidden, sizeof hidden / sizeof *hidden))
        return -1;
    if (is_within(point, combining, sizeof combining / sizeof *combining))
        return 0;
    return is_within(point, wide, sizeof wide / sizeof *wide) ? 2 : 1;
}

// Adds one character and takes it off; returns the columns it takes.
static int add_character(hd_text *out, const char **bytes, size_t *length)
{
    int32_t point;
    size_t n = decode(*bytes, *length, &point);
    int columns = columns_of(point);

    if (point == '\t')
        hd_text_puts(out, " ");
    else if (columns < 0)
        hd_text_puts(out, "?");
    else
        hd_text_add(out, *bytes, n);
    *bytes += n;
    *length -= n;
    return columns < 0 ? 1 : columns;
}

// How many bytes from here on are plain: printable ASCII, a column each. Nearly
// all text is, and is added in ranges.
static size_t plain_range(const char *bytes, size_t length)
{
    size_t n = 0;

    while (n < length && bytes[n] >= ' ' && bytes[n] <= '~')
        n++;
    return n;
}

static void add_safely(hd_text *out, const char *bytes)
{
    size_t length = strlen(bytes);

    while (length > 0) {
        size_t n = plain_range(bytes, length);

        hd_text_add(out, bytes, n);
        bytes += n;
        length -= n;
        if (length > 0)
            add_character(out, &bytes, &length);
    }
}

// Line number `line`, without its end; NULL past the end of the text. Counting
// lines afresh for each message is nothing, as there are few.
static const char *find_line(const hd_source *source, uint32_t line,
                             size_t *length)
{
    const char *at = source->text, *end, *stop;

    if (at == NULL)
        return NULL;
    end = at + source->length;
    for (uint32_t i = 1; i < line; i++) {
        at = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
        if (at == NULL)
            return NULL;
        at++;
    }
    stop = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    *length = (size_t)((stop != NULL ? stop : end) - at);
    if (*length > 0 && at[*length - 1] == '\r')
        --*length;
    return at;
}

static bool continues_character(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

// The part of a long line that is shown: around `column` (from 0), never from
// or to the middle of a character.
static void cut_line(const char *line, size_t length, size_t column,
                     size_t *first, size_t *last)
{
    *first = 0;
    *last = length;
    if (length <= MAX_LINE)
        return;
    *first = column > MAX_LINE / 2 ? column - MAX_LINE / 2 : 0;
    if (*first > length - MAX_LINE)
        *first = length - MAX_LINE;
    *last = *first + MAX_LINE;
    // Invalid bytes may all look as if they went on: not more than three do.
    for (int i = 0; i < 3 && *first > 0 && continues_character(line[*first]);
         i++)
        --*first;
    for (int i = 0; i < 3 && *last < length && continues_character(line[*last]);
         i++)
        --*last;
}

// What stands under a line, in columns: bytes `from` to `to` of it are marked,
// the first column of them in any case.
typedef struct marks {
    size_t from, to;
    size_t blank; // before the caret
    size_t width; // of the caret and its tildes; 0 until one is placed
} marks;

// A character, the bytes from `at` to `next`.
static void mark_character(marks *m, size_t at, size_t next, int columns)
{
    if (columns == 0)
        return;
    if (next <= m->from)
        m->blank += (size_t)columns;
    else if (at < m->to)
        m->width += (size_t)columns;
    else if (m->width == 0)
        m->width = 1;
}

// A range of `n` bytes from `at` on, a column each.
static void mark_range(marks *m, size_t at, size_t n)
{
    size_t ahead = m->from > at ? m->from - at : 0;

    if (ahead > n)
        ahead = n;
    m->blank += ahead;
    at += ahead;
    n -= ahead;
    if (n > 0 && at < m->to)
        m->width += n < m->to - at ? n : m->to - at;
    else if (n > 0 && m->width == 0)
        m->width = 1;
}

// The line from byte `first` to `last`.
static void add_characters(hd_text *out, marks *marks, const char *line,
                           size_t first, size_t last)
{
    const char *at = line + first;
    size_t left = last - first;

    while (left > 0) {
        size_t start = (size_t)(at - line);
        size_t n = plain_range(at, left);
        int columns;

        hd_text_add(out, at, n);
        mark_range(marks, start, n);
        at += n;
        left -= n;
        if (left == 0)
            break;
        start += n;
        columns = add_character(out, &at, &left);
        mark_character(marks, start, (size_t)(at - line), columns);
    }
    if (marks->width == 0)
        marks->width = 1; // past the end of the line
}

static void add_repeated(hd_text *out, char byte, size_t n)
{
    char bytes[2 * MAX_LINE + 8]; // a character takes two columns at most

    memset(bytes, byte, sizeof bytes);
    hd_text_add(out, bytes, n < sizeof bytes ? n : sizeof bytes);
}

static void add_excerpt(hd_text *out, const hd_source *source, hd_loc loc)
{
    marks marks = {.from = loc.column > 0 ? loc.column - 1 : 0};
    size_t length, first, last;
    const char *line = find_line(source, loc.line, &length);

    if (line == NULL)
        return;
    marks.to = marks.from + loc.length;
    cut_line(line, length, marks.from, &first, &last);
    marks.blank = first > 0 ? 3 : 0;
    hd_text_printf(out, "%7u | %s", loc.line, first > 0 ? "..." : "");
    add_characters(out, &marks, line, first, last);
    hd_text_puts(out, last < length ? "...\n" : "\n");
    hd_text_puts(out, "        | ");
    add_repeated(out, ' ', marks.blank);
    hd_text_puts(out, "^");
    add_repeated(out, '~', marks.width - 1);
    hd_text_puts(out, "\n");
}

// Names come from users as texts do: they are made safe as well.
static char *render_file(const hd_diag *diag)
{
    hd_text file = {0};

    if (diag->source != NULL && diag->source->name != NULL) {
        bool is_stdin = strcmp(diag->source->name, "-") == 0;

        add_safely(&file, is_stdin ? "<stdin>" : diag->source->name);
    }
    return hd_text_take(&file);
}

static char *render_excerpt(const hd_diag *diag, hd_loc loc)
{
    hd_text excerpt = {0};

    if (diag->source != NULL && loc.line > 0)
        add_excerpt(&excerpt, diag->source, loc);
    return hd_text_take(&excerpt);
}

static bool make_room(hd_diag *diag)
{
    size_t room = diag->room > 0 ? 2 * diag->room : 8;
    message *messages;

    if (diag->nmessages < diag->room)
        return true;
    messages = realloc(diag->messages, room * sizeof *messages);
    if (messages == NULL)
        return false;
    diag->messages = messages;
    diag->room = room;
    return true;
}

// The text, made safe, in place of the one given, which it frees.
static char *make_safe(char *text)
{
    hd_text safe = {0};
    size_t length = strlen(text);

    if (plain_range(text, length) == length)
        return text;
    add_safely(&safe, text);
    free(text);
    return hd_text_take(&safe);
}

// Takes `text` over.
static void add_message(hd_diag *diag, hd_severity severity, hd_code code,
                        hd_loc loc, char *text)
{
    message m = {.severity = severity, .cookie = diag->cookie};

    if (diag->source != NULL) // a place in no text is none
        m.loc = loc;
    if (m.loc.line > 0)
        m.cookie = hd_source_cookie(diag->source, loc.line);
    if (code != HD_CODE_NONE)
        snprintf(m.code, sizeof m.code, "HD%04u", (unsigned)code % 10000);
    m.text = make_safe(text);
    m.file = render_file(diag);
    m.excerpt = render_excerpt(diag, loc);
    if (m.text == NULL || m.file == NULL || m.excerpt == NULL ||
        !make_room(diag)) {
        free_message(&m);
        diag->lost = true;
        return;
    }
    diag->messages[diag->nmessages++] = m;
}

// Counts it, and says whether it is to be shown.
static bool admit(hd_diag *diag, hd_severity severity)
{
    switch (severity) {
    case HD_SEVERITY_ERROR:
        diag->dropping = ++diag->errors > MAX_ERRORS;
        diag->dropped += diag->dropping;
        break;
    case HD_SEVERITY_WARNING:
        diag->dropping = ++diag->warnings > MAX_WARNINGS;
        break;
    case HD_SEVERITY_NOTE:
        break;
    }
    return !diag->dropping;
}

// `suffix` is appended: errno's message.
static void report(hd_diag *diag, hd_severity severity, hd_code code,
                   hd_loc loc, const char *suffix, const char *format,
                   va_list args) __attribute__((format(printf, 6, 0)));

static void report(hd_diag *diag, hd_severity severity, hd_code code,
                   hd_loc loc, const char *suffix, const char *format,
                   va_list args)
{
    hd_text text = {0};
    char *taken;

    if (diag == NULL || !admit(diag, severity))
        return;
    hd_text_vprintf(&text, format, args);
    hd_text_puts(&text, suffix);
    taken = hd_text_take(&text);
    if (taken == NULL)
        diag->lost = true;
    else
        add_message(diag, severity, code, loc, taken);
}

bool hd_diag_mute(hd_diag *diag, bool mute)
{
    bool before = diag != NULL && diag->muted;

    if (diag != NULL)
        diag->muted = mute;
    return before;
}

// The same of what a program may be to blame for.
static void report_wrong(hd_diag *diag, hd_severity severity, hd_code code,
                         hd_loc loc, const char *format, va_list args)
    __attribute__((format(printf, 5, 0)));

static void report_wrong(hd_diag *diag, hd_severity severity, hd_code code,
                         hd_loc loc, const char *format, va_list args)
{
    if (diag != NULL && !diag->muted)
        report(diag, severity, code, loc, "", format, args);
}

// Failures that no text is to blame for.
static const hd_loc nowhere = {0, 0, 0};

hd_status hd_error(hd_diag *diag, hd_code code, hd_loc loc, const char *format,
                   ...)
{
    va_list args;

    va_start(args, format);
    report_wrong(diag, HD_SEVERITY_ERROR, code, loc, format, args);
    va_end(args);
    return HD_ERROR_INVALID;
}

void hd_warning(hd_diag *diag, hd_code code, hd_loc loc, const char *format,
                ...)
{
    va_list args;

    va_start(args, format);
    report_wrong(diag, HD_SEVERITY_WARNING, code, loc, format, args);
    va_end(args);
}

void hd_note(hd_diag *diag, hd_loc loc, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    report_wrong(diag, HD_SEVERITY_NOTE, HD_CODE_NONE, loc, format, args);
    va_end(args);
}

hd_status hd_fail(hd_diag *diag, hd_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    report(diag, HD_SEVERITY_ERROR, HD_CODE_NONE, nowhere, "", format, args);
    va_end(args);
    return status;
}

hd_status hd_system_error(hd_diag *diag, const char *format, ...)
{
    char words[128];
    char suffix[160];
    va_list args;

    snprintf(suffix, sizeof suffix, ": %s",
             strerror_r(errno, words, sizeof words));
    va_start(args, format);
    report(diag, HD_SEVERITY_ERROR, HD_CODE_NONE, nowhere, suffix, format,
           args);
    va_end(args);
    return HD_ERROR_SYSTEM;
}

size_t hd_diag_count(const hd_diag *diag)
{
    assert(diag != NULL);
    return diag->nmessages;
}

size_t hd_diag_errors(const hd_diag *diag)
{
    assert(diag != NULL);
    return diag->errors;
}

bool hd_diag_message(const hd_diag *diag, size_t i, hd_message *out)
{
    const message *m;

    assert(diag != NULL && out != NULL);
    if (i >= diag->nmessages)
        return false;
    m = &diag->messages[i];
    hd_sized_write(&(hd_message){.severity = m->severity,
                                 .code = m->code,
                                 .file = m->file,
                                 .line = (int)m->loc.line,
                                 .column = (int)m->loc.column,
                                 .text = m->text,
                                 .cookie = m->cookie},
                   sizeof(hd_message), out);
    return true;
}

static void print_message(const message *m, hd_text *text)
{
    static const char *const word[] = {[HD_SEVERITY_ERROR] = "error",
                                       [HD_SEVERITY_WARNING] = "warning",
                                       [HD_SEVERITY_NOTE] = "note"};

    hd_text_puts(text, m->file[0] != '\0' ? m->file : "heddle");
    if (m->loc.line > 0)
        hd_text_printf(text, ":%u:%u", m->loc.line, m->loc.column);
    hd_text_printf(text, ": %s", word[m->severity]);
    if (m->code[0] != '\0')
        hd_text_printf(text, "[%s]", m->code);
    hd_text_printf(text, ": %s\n%s", m->text, m->excerpt);
}

// The old text is freed only once the new one is made from the messages.
const char *hd_diag_text(hd_diag *diag)
{
    hd_text text = {0};

    assert(diag != NULL);
    for (size_t i = 0; i < diag->nmessages; i++)
        print_message(&diag->messages[i], &text);
    if (diag->dropped > 0)
        hd_text_printf(&text, "heddle: error: %zu more error%s not shown\n",
                       diag->dropped, diag->dropped == 1 ? "" : "s");
    if (diag->lost)
        hd_text_puts(&text, "heddle: error: memory ran out for a message\n");
    hd_text_add(&text, "", 0);
    hd_text_free(&diag->text);
    if (text.failed) {
        hd_text_free(&text);
        return "heddle: error: out of memory\n";
    }
    diag->text = text;
    return diag->text.bytes;
}
