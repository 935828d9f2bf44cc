// Walks a command line by the command's own table.
#include "options.h"

#include <stdlib.h>
#include <string.h>

static int refuse(const options *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int refuse(const options *at, const char *format, ...)
{
    const char *name = at->command->name;
    va_list args;
    char *text;

    va_start(args, format);
    text = need_vformat(format, args);
    va_end(args);
    say(need_format("heddle %s: %s (heddle %s --help lists the options)", name,
                    text, name));
    free(text);
    return OPTIONS_WRONG;
}

static int refuse_unknown(const options *at, const char *name)
{
    const char *names[MAX_OPTIONS + 1] = {"help"};
    size_t n = 1;
    const char *guess;

    for (const option *o = at->command->options; o->id; o++)
        names[n++] = o->name;
    guess = nearest(name, names, n);
    if (guess)
        return refuse(at, "unknown option '--%s'; did you mean '--%s'?", name,
                      guess);
    return refuse(at, "unknown option '--%s'", name);
}

// `attached` is what followed `=` or the letter; NULL if nothing did.
static int take_value(options *at, const option *o, const char *attached)
{
    at->value = attached;
    if (!o->value)
        return attached ? refuse(at, "option '%s' takes no value", at->word)
                        : o->id;
    if (!attached && at->at == at->argc)
        return refuse(at, "option '%s' needs a value: %s", at->word, o->value);
    if (!attached)
        at->value = at->argv[at->at++];
    return o->id;
}

static int take_long(options *at, char *word)
{
    char *equals = strchr(word, '=');

    // The word is cut at `=`, so that messages name the option alone.
    if (equals)
        *equals++ = 0;
    at->word = word;
    for (const option *o = at->command->options; o->id; o++)
        if (strcmp(word + 2, o->name) == 0)
            return take_value(at, o, equals);
    return refuse_unknown(at, word + 2);
}

static int take_letter(options *at, const char *word)
{
    at->word = word;
    for (const option *o = at->command->options; o->id; o++)
        if (o->letter == word[1])
            return take_value(at, o,
                              word[2] ? word + 2 + (word[2] == '=') : NULL);
    return refuse(at, "unknown option '%s'", word);
}

int options_next(options *at)
{
    while (at->at < at->argc) {
        char *word = at->argv[at->at++];

        if (!at->ended && strcmp(word, "--") == 0) {
            at->ended = true;
            continue;
        }
        // A lone `-` is standard input.
        if (at->ended || word[0] != '-' || !word[1]) {
            at->value = word;
            return OPTIONS_OPERAND;
        }
        return word[1] == '-' ? take_long(at, word) : take_letter(at, word);
    }
    return OPTIONS_END;
}

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

static bool is_device(const char *text)
{
    if (strcmp(text, "cpu") == 0 || strcmp(text, "cuda") == 0)
        return true;
    if (strncmp(text, "cuda:", 5) != 0 || text[5] == '\0')
        return false;
    return text[5 + strspn(text + 5, "0123456789")] == '\0';
}

outcome options_device(const options *at, const char **out)
{
    if (!is_device(at->value))
        return complain(USAGE, "--device: '%s' is not cpu, cuda or cuda:N",
                        at->value);
    *out = at->value;
    return FINE;
}

void command_help(const command *command)
{
    bool any = command->options[0].id;

    printf("usage: heddle %s%s%s%s\n\n%s\n", command->name,
           any ? " [options]" : "", *command->operands ? " " : "",
           command->operands, command->summary);
    if (*command->about)
        printf("\n%s", command->about);
    if (any)
        printf("\noptions:\n");
    for (const option *o = command->options; o->id; o++)
        print_option(o);
}
