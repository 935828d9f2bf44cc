// Walks a command line by the command's own rows.
#include <heddle/environment.h>

#include "options.h"

#include "file.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const command *command;
    int argc;
    char **argv;
    int at;           // the next word
    int operands;     // so many are at the front
    const char *word; // the option at hand as it was written
    char *into;
} reader;

// Row `i` of a command, and where in its struct the row's own one lies; NULL
// beyond the last.
static const option *row_at(const command *command, size_t i, size_t *at)
{
    for (const option_group *group = command->groups; group->rows; group++)
        for (const option *row = group->rows; row->name; row++)
            if (i-- == 0) {
                *at = group->at;
                return row;
            }
    return NULL;
}

const option *command_option(const command *command, size_t i)
{
    size_t at;

    return row_at(command, i, &at);
}

// ----------------------------------------------------------------- values

outcome option_choose(const char *word, const char *value,
                      const char *const *choices, int *out)
{
    char known[256] = "", guess[MEANT];
    int n = 0;

    for (; choices[n]; n++) {
        size_t length = strlen(known);

        if (strcmp(value, choices[n]) == 0) {
            *out = n;
            return FINE;
        }
        snprintf(known + length, sizeof known - length, "%s%s", n ? ", " : "",
                 choices[n]);
    }
    return complain(USAGE, "%s: '%s' is none of %s%s", word, value, known,
                    meant(value, choices, (size_t)n, guess));
}

static outcome take_list(const option *row, const char *word, const char *value,
                         bool *out)
{
    outcome result = FINE;

    for (const char *at = value; result == FINE; at++) {
        size_t length = strcspn(at, ",");
        char *one = need_format("%.*s", (int)length, at);
        int i = 0;

        result = option_choose(word, one, row->choices, &i);
        if (result == FINE && out[i])
            result = complain(USAGE, "%s: '%s' is listed twice", word, one);
        out[i] = true;
        free(one);
        at += length;
        if (!*at)
            break;
    }
    return result;
}

static outcome take_number(const option *row, const char *word,
                           const char *value, void *out)
{
    int64_t number;
    int narrow;

    if (!parse_integer(value, row->low, row->high, &number))
        return complain(USAGE,
                        "%s: '%s' is not a number from %" PRId64 " to %" PRId64,
                        word, value, row->low, row->high);
    narrow = (int)number;
    memcpy(out, row->size == sizeof number ? (void *)&number : &narrow,
           row->size);
    return FINE;
}

static outcome take_real(const option *row, const char *word, const char *value,
                         double *out)
{
    char *end;
    double number = strtod(value, &end);

    if (end == value || *end || !(number > 0) || number > (double)row->high)
        return complain(
            USAGE, "%s: '%s' is not a number of %s above 0, at most %" PRId64,
            word, value, row->value, row->high);
    *out = number;
    return FINE;
}

static outcome take_choice(const option *row, const char *word,
                           const char *value, void *out)
{
    int choice;

    TRY(option_choose(word, value, row->choices, &choice));
    memcpy(out, &choice, row->size);
    return FINE;
}

static outcome take_value(const option *row, const char *word,
                          const char *value, void *to)
{
    switch (row->kind) {
    case FLAG:
        *(bool *)to = true;
        return FINE;
    case NUMBER:
        return take_number(row, word, value, to);
    case REAL:
        return take_real(row, word, value, to);
    case CHOICE:
        return take_choice(row, word, value, to);
    case LIST:
        return take_list(row, word, value, to);
    case TEXT:
        *(const char **)to = value;
        return FINE;
    case OUTPUT:
        *(const char **)to = value;
        return file_writable(value);
    case TAKEN:
        return row->take(to, word, value);
    }
    return USAGE;
}

const char *const option_devices[] = {"cpu", "cuda", NULL};

outcome option_device(void *to, const char *word, const char *value)
{
    if (!hd_is_device(value))
        return complain(USAGE, "%s: '%s' is not cpu, cuda or cuda:N", word,
                        value);
    *(const char **)to = value;
    return FINE;
}

// ------------------------------------------------------------------ words

static outcome refuse(const reader *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static outcome refuse(const reader *at, const char *format, ...)
{
    const char *name = at->command->name;
    va_list args;
    char *text;

    va_start(args, format);
    text = need_vformat(format, args);
    va_end(args);
    put_line(stderr, "heddle %s: %s (heddle %s --help lists the options)", name,
             text, name);
    free(text);
    return USAGE;
}

static outcome refuse_unknown(const reader *at, const char *name)
{
    const char *names[MAX_OPTIONS + 1] = {"help"};
    const option *row;
    const char *guess;
    size_t n = 0, base;

    for (; (row = row_at(at->command, n, &base)) != NULL;
         names[++n] = row->name)
        assert(n < MAX_OPTIONS);
    guess = nearest(name, names, n + 1);
    if (guess)
        return refuse(at, "unknown option '--%s'; did you mean '--%s'?", name,
                      guess);
    return refuse(at, "unknown option '--%s'", name);
}

// `attached` is what followed `=` or the letter; NULL if nothing did.
static outcome take_row(reader *at, const option *row, size_t base,
                        const char *attached)
{
    char *group = at->into + base;

    if (!row->value && attached)
        return refuse(at, "option '%s' takes no value", at->word);
    if (row->value && !attached && at->at == at->argc)
        return refuse(at, "option '%s' needs a value: %s", at->word,
                      row->value);
    if (row->value && !attached)
        attached = at->argv[at->at++];
    if (row->mark)
        *(unsigned *)(group + row->marks) |= row->mark;
    return take_value(row, at->word, attached, group + row->to);
}

static outcome take_long(reader *at, char *word)
{
    char *equals = strchr(word, '=');
    const option *row;
    size_t base;

    // The word is cut at `=`, so that messages name the option alone.
    if (equals)
        *equals++ = 0;
    at->word = word;
    for (size_t i = 0; (row = row_at(at->command, i, &base)) != NULL; i++)
        if (strcmp(word + 2, row->name) == 0)
            return take_row(at, row, base, equals);
    return refuse_unknown(at, word + 2);
}

static outcome take_letter(reader *at, const char *word)
{
    const option *row;
    size_t base;

    at->word = word;
    for (size_t i = 0; (row = row_at(at->command, i, &base)) != NULL; i++)
        if (row->letter == word[1])
            return take_row(at, row, base,
                            word[2] ? word + 2 + (word[2] == '=') : NULL);
    return refuse(at, "unknown option '%s'", word);
}

// "[COMMAND]" is a command, "FILE..." a file.
static void name_operand(const char *operands, char out[16])
{
    size_t n = 0;

    for (; *operands && n < 15; operands++)
        if (isalpha((unsigned char)*operands))
            out[n++] = (char)tolower((unsigned char)*operands);
    out[n] = 0;
}

static outcome take_operand(reader *at, char *word)
{
    const char *operands = at->command->operands;
    char name[16];

    if (!*operands)
        return complain(USAGE, "%s takes no file, and '%s' is one",
                        at->command->name, word);
    if (at->operands > 0 && !strstr(operands, "...")) {
        name_operand(operands, name);
        return complain(USAGE, "%s takes one %s, and '%s' is a second",
                        at->command->name, name, word);
    }
    at->argv[at->operands++] = word;
    return FINE;
}

outcome options_take(const command *command, int argc, char **argv, void *into,
                     int *n)
{
    reader at = {.command = command, .argc = argc, .argv = argv, .into = into};
    bool ended = false;

    while (at.at < argc) {
        char *word = argv[at.at++];

        // A lone `-` is standard input.
        if (ended || word[0] != '-' || !word[1])
            TRY(take_operand(&at, word));
        else if (strcmp(word, "--") == 0)
            ended = true;
        else
            TRY(word[1] == '-' ? take_long(&at, word) : take_letter(&at, word));
    }
    if (at.operands == 0 && command->operands[0] == 'F')
        return complain(USAGE, "%s needs a file; - is standard input",
                        command->name);
    *n = at.operands;
    return FINE;
}

outcome options_take_one(const command *command, int argc, char **argv,
                         void *into, const char **operand)
{
    int n = 0;

    TRY(options_take(command, argc, argv, into, &n));
    *operand = n > 0 ? argv[0] : NULL;
    return FINE;
}

// ------------------------------------------------------------------- help

static void print_option(const option *o)
{
    char left[64];
    const char *help = o->help;

    snprintf(left, sizeof left, "%c%c%s--%s%s%s", o->letter ? '-' : ' ',
             o->letter ? o->letter : ' ', o->letter ? ", " : "  ", o->name,
             o->value ? " " : "", o->value ? o->value : "");
    // A line of help that goes on is indented below the first.
    printf("  %-32s", left);
    for (; *help; help++)
        if (*help == '\n')
            printf("\n%34s", "");
        else
            putchar(*help);
    putchar('\n');
}

void command_help(const command *command)
{
    const option *row = command_option(command, 0);

    printf("usage: heddle %s%s%s%s\n\n%s\n", command->name,
           row ? " [options]" : "", *command->operands ? " " : "",
           command->operands, command->summary);
    if (*command->about)
        printf("\n%s", command->about);
    if (row)
        printf("\noptions:\n");
    for (size_t i = 0; (row = command_option(command, i)) != NULL; i++)
        print_option(row);
}
