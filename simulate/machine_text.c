// A machine from its text and back: one JSON object of numbers, a name, and an
// object of rates. The table of keys is the whole format, so this reads such
// objects and nothing else of JSON.
#include <heddle/simulate.h>
#include <heddle/verify.h>

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "base/locale.h"
#include "base/sized.h"
#include "base/text.h"
#include "ir/suggest.h"
#include "simulate/machine.h"
#include "tiles/choose.h"

enum {
    MOST_BYTES = 1 << 20,
    MOST_KEY = 48, // with its NUL; no key is nearly as long
    MOST_DIGITS = 64,
};

typedef struct field {
    const char *name;
    size_t offset; // in hd_machine
    bool whole;    // an int, else a double
    double low, high;
} field;

#define FIELD(name, whole, low, high)                       \
    {                                                       \
#name, offsetof(hd_machine, name), whole, low, high \
    }

static const field fields[] = {
    FIELD(ranks_per_node, true, 1, HD_MAX_RANKS),
    FIELD(processors, true, 0, 4096),
    FIELD(issue, false, 0, 1),
    FIELD(launch, false, 0, 1),
    FIELD(memory, false, 1, 1e18),
    FIELD(units, true, 0, 1 << 20),
    FIELD(tile_m, true, 1, 1 << 20),
    FIELD(tile_n, true, 1, 1 << 20),
    FIELD(hop, false, 0, 1),
    FIELD(copy_latency, false, 0, 1),
    FIELD(copy_bandwidth, false, 1, 1e18),
    FIELD(link, false, 1, 1e18),
    FIELD(collision, false, 0.001, 1),
    FIELD(collective_latency, false, 0, 1),
    FIELD(collective_bandwidth, false, 1, 1e18),
    FIELD(collective_units, false, 0, 0.999),
    FIELD(network_latency, false, 0, 1),
    FIELD(network_bandwidth, false, 1, 1e18),
    FIELD(reduction_latency, false, 0, 1), // the last five may be missing
    FIELD(multiprocessors, true, 0, HD_TILES_MULTIPROCESSORS),
    FIELD(event, false, 0, 1),
    FIELD(run, false, 0, 1),
    FIELD(attention, false, 0, 1),
};
enum {
    NFIELDS = sizeof fields / sizeof *fields,
    KEY_REDUCTION = NFIELDS - 5,
    KEY_MULTIPROCESSORS,
    KEY_EVENT,
    KEY_RUN,
    KEY_ATTENTION,
    KEY_NAME,
    KEY_MATMUL,
    NKEYS
};

static const char *key_name(int key)
{
    return key == KEY_NAME     ? "name"
           : key == KEY_MATMUL ? "matmul"
                               : fields[key].name;
}

typedef struct reader {
    hd_diag *diag;
    const char *start, *at, *end, *line_start;
    uint32_t line;
    hd_machine machine;
    bool seen[NKEYS];
} reader;

// The `length` bytes from `at` on, of the line that is read.
static hd_loc place(const reader *r, const char *at, size_t length)
{
    return (hd_loc){r->line, (uint32_t)(at - r->line_start) + 1,
                    length > 0 ? (uint32_t)length : 1};
}

static hd_status refuse(const reader *r)
{
    return hd_error(r->diag, HD_CODE_NONE, place(r, r->at, 1),
                    "not JSON, from byte %zu on", (size_t)(r->at - r->start));
}

static void skip_space(reader *r)
{
    for (; r->at < r->end && memchr(" \t\r\n", *r->at, 4) != NULL; r->at++)
        if (*r->at == '\n') {
            r->line++;
            r->line_start = r->at + 1;
        }
}

static bool accept(reader *r, char mark)
{
    skip_space(r);
    if (r->at == r->end || *r->at != mark)
        return false;
    r->at++;
    return true;
}

static hd_status expect(reader *r, char mark)
{
    return accept(r, mark) ? HD_OK : refuse(r);
}

// A string, cut to `size` bytes with the NUL; `\"`, `\\` and `\/` are the only
// escapes.
static hd_status read_string(reader *r, char *out, size_t size)
{
    size_t n = 0;

    HD_TRY(expect(r, '"'));
    for (; r->at < r->end && *r->at != '"'; r->at++) {
        if (*r->at == '\\' &&
            (r->end - r->at < 2 || memchr("\"\\/", *++r->at, 3) == NULL))
            return hd_error(r->diag, HD_CODE_NONE, place(r, r->at, 1),
                            "an escape other than \\\", \\\\ and \\/");
        if ((unsigned char)*r->at < ' ')
            return refuse(r);
        if (n + 1 < size)
            out[n++] = *r->at;
    }
    // Not in the middle of a character.
    while (n > 0 && n + 1 == size && ((unsigned char)out[n - 1] & 0x80) != 0)
        n--;
    out[n] = '\0';
    return expect(r, '"');
}

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

// Past a number of JSON; NULL if there is none.
static const char *skip_number(const char *at, const char *end)
{
    const char *digits = at += at < end && *at == '-';

    at = skip_digits(at, end);
    if (at == digits || (*digits == '0' && at > digits + 1))
        return NULL;
    if (at < end && *at == '.') {
        digits = at + 1;
        at = skip_digits(digits, end);
        if (at == digits)
            return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        digits = at + 1;
        digits += digits < end && (*digits == '-' || *digits == '+');
        at = skip_digits(digits, end);
        if (at == digits)
            return NULL;
    }
    return at;
}

static hd_status read_number(reader *r, const char *key, double low,
                             double high, bool whole, double *out)
{
    char digits[MOST_DIGITS];
    const char *past;
    locale_t before;
    hd_loc loc;
    size_t length;

    skip_space(r);
    past = skip_number(r->at, r->end);
    length = past != NULL ? (size_t)(past - r->at) : 0;
    loc = place(r, r->at, length);
    if (length == 0)
        return hd_error(r->diag, HD_CODE_NONE, loc, "%s is not a number", key);
    if (length >= sizeof digits)
        return hd_error(r->diag, HD_CODE_NONE, loc,
                        "%s is a number of %zu characters; it may have %d", key,
                        length, MOST_DIGITS - 1);
    memcpy(digits, r->at, length);
    digits[length] = '\0';
    r->at = past;
    before = hd_locale_enter();
    *out = strtod(digits, NULL);
    hd_locale_leave(before);
    if (!(*out >= low && *out <= high))
        return hd_error(r->diag, HD_CODE_NONE, loc,
                        "%s is %.15g; it lies between %.15g and %.15g", key,
                        *out, low, high);
    if (whole && *out != floor(*out))
        return hd_error(r->diag, HD_CODE_NONE, loc,
                        "%s is %.15g; it is a whole number", key, *out);
    return HD_OK;
}

static hd_status read_field(reader *r, const field *field)
{
    char *at = (char *)&r->machine + field->offset;
    double number = 0;

    HD_TRY(read_number(r, field->name, field->low, field->high, field->whole,
                       &number));
    if (field->whole) {
        int whole = (int)number;

        memcpy(at, &whole, sizeof whole);
    } else {
        memcpy(at, &number, sizeof number);
    }
    return HD_OK;
}

// A key and its colon; `loc` is where it stands.
static hd_status read_key(reader *r, char key[MOST_KEY], hd_loc *loc)
{
    const char *start;

    skip_space(r);
    start = r->at;
    HD_TRY(read_string(r, key, MOST_KEY));
    *loc = place(r, start, (size_t)(r->at - start));
    return expect(r, ':');
}

static hd_status read_rate(reader *r)
{
    char dtype[MOST_KEY], key[MOST_KEY + 8];
    int i = 0;
    hd_loc loc;

    HD_TRY(read_key(r, dtype, &loc));
    snprintf(key, sizeof key, "matmul.%s", dtype);
    while (i < HD_DTYPE_EVENT && strcmp(dtype, hd_dtype_text((hd_dtype)i)) != 0)
        i++;
    if (i == HD_DTYPE_EVENT)
        return hd_error(r->diag, HD_CODE_NONE, loc, "%s: no such dtype", key);
    if (r->machine.matmul[i] > 0)
        return hd_error(r->diag, HD_CODE_NONE, loc, "%s stands twice", key);
    return read_number(r, key, 1, 1e21, false, &r->machine.matmul[i]);
}

static hd_status read_rates(reader *r, hd_loc loc)
{
    memset(r->machine.matmul, 0, sizeof r->machine.matmul);
    if (!accept(r, '{'))
        return hd_error(r->diag, HD_CODE_NONE, loc,
                        "matmul is not an object of rates by dtype");
    do
        HD_TRY(read_rate(r));
    while (accept(r, ','));
    HD_TRY(expect(r, '}'));
    if (r->machine.matmul[HD_DTYPE_F32] > 0)
        return HD_OK;
    return hd_error(r->diag, HD_CODE_NONE, loc,
                    "matmul lacks f32, the rate of all dtypes that it does not "
                    "name");
}

static hd_status read_name(reader *r)
{
    hd_loc loc;

    skip_space(r);
    loc = place(r, r->at, 1);
    if (r->at == r->end || *r->at != '"')
        return hd_error(r->diag, HD_CODE_NONE, loc, "name is not a string");
    return read_string(r, r->machine.name, sizeof r->machine.name);
}

static hd_status unknown_key(const reader *r, const char *key, hd_loc loc)
{
    hd_suggestion near = hd_suggest(key, strlen(key));

    for (int i = 0; i < NKEYS; i++)
        hd_suggest_consider(&near, key_name(i));
    if (near.best == NULL)
        return hd_error(r->diag, HD_CODE_NONE, loc, "unknown key '%s'", key);
    return hd_error(r->diag, HD_CODE_NONE, loc,
                    "unknown key '%s'; did you mean '%s'?", key, near.best);
}

static hd_status read_member(reader *r)
{
    char key[MOST_KEY];
    int i = 0;
    hd_loc loc;

    HD_TRY(read_key(r, key, &loc));
    while (i < NKEYS && strcmp(key, key_name(i)) != 0)
        i++;
    if (i == NKEYS)
        return unknown_key(r, key, loc);
    if (r->seen[i])
        return hd_error(r->diag, HD_CODE_NONE, loc, "%s stands twice", key);
    r->seen[i] = true;
    if (i == KEY_NAME)
        return read_name(r);
    return i == KEY_MATMUL ? read_rates(r, loc) : read_field(r, &fields[i]);
}

static hd_status read_machine(reader *r)
{
    if (!accept(r, '{'))
        return hd_error(r->diag, HD_CODE_NONE, place(r, r->at, 1),
                        "a machine is a JSON object");
    if (!accept(r, '}')) {
        do
            HD_TRY(read_member(r));
        while (accept(r, ','));
        HD_TRY(expect(r, '}'));
    }
    skip_space(r);
    if (r->at < r->end)
        return refuse(r);
    for (int i = 0; i < NKEYS; i++)
        if (i != KEY_NAME && (i < KEY_REDUCTION || i > KEY_ATTENTION) &&
            !r->seen[i])
            return hd_error(r->diag, HD_CODE_NONE, place(r, r->at, 1),
                            "%s is missing", key_name(i));
    if (!r->seen[KEY_REDUCTION])
        r->machine.reduction_latency = r->machine.collective_latency;
    if (!r->seen[KEY_MULTIPROCESSORS])
        r->machine.multiprocessors = 0;
    if (!r->seen[KEY_EVENT])
        r->machine.event = 0;
    if (!r->seen[KEY_RUN])
        r->machine.run = 0;
    if (!r->seen[KEY_ATTENTION])
        r->machine.attention = 0;
    return HD_OK;
}

hd_status hd_machine_parse(const char *name, const char *text, size_t length,
                           hd_diag *diag, hd_machine *out)
{
    hd_source source = {.name = name, .text = text, .length = length};
    reader r = {.diag = diag, .line = 1, .machine = HD_EMPTY(hd_machine)};
    const hd_source *outer;
    hd_status status;

    HD_REQUIRE(diag, name);
    HD_REQUIRE(diag, out);
    if (length > 0)
        HD_REQUIRE(diag, text);
    if (length > MOST_BYTES)
        return hd_fail(diag, HD_ERROR_INVALID, "%s: longer than %d bytes", name,
                       MOST_BYTES);
    hd_machine_default(&r.machine);
    r.start = r.at = r.line_start = length > 0 ? text : "";
    r.end = r.start + length;
    snprintf(r.machine.name, sizeof r.machine.name, "%s", name);
    outer = hd_diag_source(diag, &source);
    status = read_machine(&r);
    hd_diag_source(diag, outer);
    if (status == HD_OK)
        hd_sized_write(&r.machine, sizeof r.machine, out);
    return status;
}

// ------------------------------------------------------------------ printing

// With as few digits as are read back as the same number.
static void print_number(hd_text *to, double number)
{
    char digits[MOST_DIGITS];

    for (int n = 6; n <= 17; n++) {
        snprintf(digits, sizeof digits, "%.*g", n, number);
        if (strtod(digits, NULL) == number)
            break;
    }
    hd_text_puts(to, digits);
}

// What a name from elsewhere has of control characters, the text form has not.
static void print_name(hd_text *to, const char *name)
{
    hd_text_puts(to, "{\n  \"name\": \"");
    for (; *name != '\0'; name++) {
        char one = (unsigned char)*name < ' ' ? '?' : *name;

        if (one == '"' || one == '\\')
            hd_text_puts(to, "\\");
        hd_text_add(to, &one, 1);
    }
    hd_text_puts(to, "\"");
}

static void print_field(hd_text *to, const hd_machine *machine,
                        const field *field)
{
    const char *at = (const char *)machine + field->offset;
    double number;
    int whole;

    hd_text_printf(to, ",\n  \"%s\": ", field->name);
    if (field->whole) {
        memcpy(&whole, at, sizeof whole);
        hd_text_printf(to, "%d", whole);
    } else {
        memcpy(&number, at, sizeof number);
        print_number(to, number);
    }
}

static void print_rates(hd_text *to, const hd_machine *machine)
{
    const char *between = "";

    hd_text_puts(to, ",\n  \"matmul\": {");
    for (int i = 0; i < HD_DTYPE_EVENT; i++) {
        if (machine->matmul[i] == 0)
            continue;
        hd_text_printf(to, "%s\"%s\": ", between, hd_dtype_text((hd_dtype)i));
        print_number(to, machine->matmul[i]);
        between = ", ";
    }
    hd_text_puts(to, "}");
}

hd_status hd_machine_print(const hd_machine *machine, hd_diag *diag, char **out)
{
    hd_machine m = HD_EMPTY(hd_machine);
    hd_text to = {0};
    locale_t before;
    char *text;

    HD_REQUIRE(diag, machine);
    HD_REQUIRE(diag, out);
    HD_TRY(hd_machine_read("hd_machine_print", machine, diag, &m));
    before = hd_locale_enter();
    print_name(&to, m.name);
    for (size_t i = 0; i < NFIELDS; i++)
        print_field(&to, &m, &fields[i]);
    print_rates(&to, &m);
    hd_locale_leave(before);
    hd_text_puts(&to, "\n}\n");
    text = hd_text_take(&to);
    if (text == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "no memory to print a machine");
    *out = text;
    return HD_OK;
}
