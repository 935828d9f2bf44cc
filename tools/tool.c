// Outcomes, complaints and small helpers.
#include "tool.h"

#include "plain.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// In one piece, since ranks print side by side.
static void put(FILE *to, const char *before, const char *format, va_list args,
                const char *after)
{
    char *line = need_vformat(format, args), *plain = need_plain(line);

    fprintf(to, "%s%s%s", before, plain, after);
    free(plain);
    free(line);
}

void put_line(FILE *to, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put(to, "", format, args, "\n");
    va_end(args);
}

outcome complain(outcome result, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    put(stderr, "heddle: ", format, args, "\n");
    va_end(args);
    return result;
}

#define CLEAR "\r\033[K"

void progress(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (isatty(STDERR_FILENO))
        put(stderr, CLEAR, format, args, "");
    va_end(args);
}

void progress_end(void)
{
    if (isatty(STDERR_FILENO))
        fputs(CLEAR, stderr);
}

outcome first_wrong(outcome first, outcome second)
{
    return first != FINE ? first : second;
}

outcome outcome_of(hd_status status)
{
    switch (status) {
    case HD_OK:
        return FINE;
    case HD_ERROR_INVALID:
        return WRONG;
    case HD_ERROR_ARGUMENT:
        return USAGE;
    case HD_ERROR_TIMEOUT:
        return LATE;
    default:
        return FAILED;
    }
}

outcome tell(hd_diag *diag, hd_status status, const char *what)
{
    if (hd_diag_count(diag) > 0)
        fputs(hd_diag_text(diag), stderr);
    else if (status != HD_OK)
        complain(FAILED, "%s: %s", what, hd_status_text(status));
    hd_diag_clear(diag);
    return outcome_of(status);
}

void out_of_memory(void)
{
    // Without complain, which needs memory itself.
    fputs("heddle: out of memory\n", stderr);
    exit(FAILED);
}

void *need(size_t count, size_t bytes)
{
    void *memory = calloc(count ? count : 1, bytes ? bytes : 1);

    if (!memory)
        out_of_memory();
    return memory;
}

void *need_more(void *old, size_t n, size_t more, size_t bytes)
{
    void *grown = need(n + more, bytes);

    if (n > 0)
        memcpy(grown, old, n * bytes);
    free(old);
    return grown;
}

const char *next_line(const char *at)
{
    at += strcspn(at, "\n");
    return *at ? at + 1 : at;
}

char *need_vformat(const char *format, va_list args)
{
    char *text;

    if (vasprintf(&text, format, args) < 0)
        out_of_memory();
    return text;
}

char *need_format(const char *format, ...)
{
    va_list args;
    char *text;

    va_start(args, format);
    text = need_vformat(format, args);
    va_end(args);
    return text;
}

const char *show_within(const char *text, size_t length, char *out, size_t room)
{
    size_t n = 0;

    while (length > 0) {
        size_t taken = plain_character(text, length);
        size_t made = taken > 0 ? taken : 4;

        if (n + made > room - 4) {
            memcpy(out + n, "...", 4);
            return out;
        }
        if (taken > 0)
            memcpy(out + n, text, taken);
        else
            snprintf(out + n, 5, "\\x%02x", (unsigned char)*text);
        n += made;
        text += taken > 0 ? taken : 1;
        length -= taken > 0 ? taken : 1;
    }
    out[n] = 0;
    return out;
}

const char *show(const char *text, size_t length, char out[SHOWN])
{
    return show_within(text, length, out, SHOWN);
}

const char *show_shape(int ndims, const int64_t *extent, char out[SHAPE_TEXT])
{
    size_t n = 0;

    out[n++] = '[';
    for (int i = 0; i < ndims; i++)
        n += (size_t)snprintf(out + n, SHAPE_TEXT - n, "%s%" PRId64,
                              i ? ", " : "", extent[i]);
    out[n++] = ']';
    out[n] = 0;
    return out;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

// Three rows of the usual table are enough: a swap looks two rows back.
int edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 127 };
    size_t na = strnlen(a, LONGEST);
    size_t nb = strnlen(b, LONGEST);
    int row[3][LONGEST + 1];
    int *before = row[0], *last = row[1], *now = row[2];

    for (size_t j = 0; j <= nb; j++)
        last[j] = before[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int *oldest = before;

        now[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int change = last[j - 1] + (a[i - 1] != b[j - 1]);

            now[j] = least(least(last[j], now[j - 1]) + 1, change);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        before = last;
        last = now;
        now = oldest;
    }
    return last[nb];
}

const char *nearest(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    int limit = 1 + (int)(strnlen(word, 127) / 4);

    for (size_t i = 0; i < n; i++) {
        int distance = edit_distance(word, names[i]);

        if (distance <= limit) {
            limit = distance - 1;
            best = names[i];
        }
    }
    return best;
}

const char *meant(const char *word, const char *const *names, size_t n,
                  char out[MEANT])
{
    const char *guess = nearest(word, names, n);

    out[0] = 0;
    if (guess)
        snprintf(out, MEANT, "; did you mean '%s'?", guess);
    return out;
}

bool parse_integer(const char *text, int64_t low, int64_t high, int64_t *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    bool hex = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X');
    char *end;
    long long value;

    if (*digits < '0' || *digits > '9')
        return false;
    errno = 0;
    value = strtoll(text, &end, hex ? 16 : 10);
    if (errno || *end || value < low || value > high)
        return false;
    *out = value;
    return true;
}

bool is_dash(const char *path)
{
    return path && strcmp(path, "-") == 0;
}

hd_program_info info_of(const hd_module *module)
{
    hd_program_info info = HD_EMPTY(hd_program_info);

    hd_module_info(module, &info);
    return info;
}

bool is_sharded(const hd_argument *about)
{
    for (int d = 0; d < about->ndims; d++)
        if (about->axis[d] >= 0)
            return true;
    return false;
}

bool pipe_is_broken(void)
{
    struct sigaction action;
    sigset_t pending;

    return sigaction(SIGPIPE, NULL, &action) == 0 &&
           action.sa_handler != SIG_IGN && sigpending(&pending) == 0 &&
           sigismember(&pending, SIGPIPE) == 1;
}

double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
