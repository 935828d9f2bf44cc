// What the commands share: outcomes, complaints, and small helpers. The tool
// uses the library through its public headers.
#ifndef HD_TOOLS_TOOL_H
#define HD_TOOLS_TOOL_H

#include <heddle/heddle.h>
#include <stdarg.h>
#include <stdio.h>

// How a command ends; the values are the exit codes of docs/cli.md.
typedef enum outcome {
    FINE = 0,
    WRONG = 1,  // the program, or a file, is wrong
    USAGE = 2,  // the command line is wrong
    FAILED = 3, // the run failed
    LATE = 4,   // the run timed out
} outcome;

#define TRY(call)                   \
    do {                            \
        outcome try_result_ = call; \
        if (try_result_ != FINE)    \
            return try_result_;     \
    } while (0)

// Prints a line. What would steer a terminal, or is not UTF-8, becomes \xNN,
// here and in the next two.
void put_line(FILE *to, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// Prints one line to standard error, "heddle: .." in front, and returns
// `result` to pass on.
outcome complain(outcome result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
// What is being done, on one line of a terminal that the next one writes over;
// nothing where standard error is none. progress_end clears it.
void progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void progress_end(void);

outcome outcome_of(hd_status status);

// Of two steps that were both taken: the first that is not FINE.
outcome first_wrong(outcome first, outcome second);

// Prints what `diag` gathered and returns the outcome of `status`. Where the
// library had no words, the status's own are printed after `what`.
outcome tell(hd_diag *diag, hd_status status, const char *what);

// Zeroed memory, or the end of the process: a command has nothing better to do
// when there is none. `need` is never called with sizes from outside that were
// not bounded before.
void out_of_memory(void) __attribute__((noreturn));
void *need(size_t count, size_t bytes);
// A copy of `n` things of so many bytes with room for `more`, zeroed; `old` is
// freed.
void *need_more(void *old, size_t n, size_t more, size_t bytes);
// Behind the next end of a line, or the end of the text.
const char *next_line(const char *at);
char *need_format(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
char *need_vformat(const char *format, va_list args)
    __attribute__((format(printf, 1, 0)));

// Text from a file, made safe and short enough for one line of a message.
#define SHOWN 96
const char *show(const char *text, size_t length, char out[SHOWN]);
// The same in `room` bytes.
const char *show_within(const char *text, size_t length, char *out,
                        size_t room);

// The shape "[8, 128]" for messages.
#define SHAPE_TEXT 200
const char *show_shape(int ndims, const int64_t *extent, char out[SHAPE_TEXT]);

// Of `names`, the one that `word` was probably meant to be; NULL if none is
// close.
const char *nearest(const char *word, const char *const *names, size_t n);

// "; did you mean 'NAME'?", or nothing: the end of a message.
#define MEANT 160
const char *meant(const char *word, const char *const *names, size_t n,
                  char out[MEANT]);

// How many letters must be inserted, dropped, changed or swapped with their
// neighbour to turn one word into the other; words over 127 bytes are cut.
int edit_distance(const char *a, const char *b);

// The whole of `text` is a number within the limits; hexadecimal after 0x.
bool parse_integer(const char *text, int64_t low, int64_t high, int64_t *out);

// Standard input, or output: "-". NULL is no path.
bool is_dash(const char *path);

// What hd_module_info tells, as a value.
hd_program_info info_of(const hd_module *module);

// Whether an axis of the mesh cuts the argument: else each rank has all of it.
// Numbers of elements do not tell: of a run's few rows one rank has room for
// all, and still only its block is in it.
bool is_sharded(const hd_argument *about);

// Whether this thread has written into a pipe that nobody reads any more. The
// signal waits for the end of the command, unless it is ignored.
bool pipe_is_broken(void);

// On the clock that nobody sets.
double seconds(void);

#endif
