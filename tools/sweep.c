// See sweep.h.
#include "sweep.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static sweep_values *values_of(sweep *sweep, const char *name, size_t length)
{
    sweep_values *grown;

    for (size_t i = 0; i < sweep->n; i++)
        if (strlen(sweep->values[i].name) == length &&
            memcmp(sweep->values[i].name, name, length) == 0)
            return &sweep->values[i];
    grown = sweep->values =
        need_more(sweep->values, sweep->n, 1, sizeof *grown);
    grown[sweep->n].name = need_format("%.*s", (int)length, name);
    return &grown[sweep->n++];
}

static size_t count_words(const char *list)
{
    size_t n = 1;

    for (; *list; list++)
        n += *list == ',';
    return n;
}

static outcome take_values(sweep_values *values, const char *word,
                           const char *list)
{
    free(values->value);
    values->n = 0;
    values->value = need(count_words(list), sizeof *values->value);
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ",");
        char *text = need_format("%.*s", (int)length, at);
        outcome read =
            program_read_define(word, text, &values->value[values->n++]);

        free(text);
        TRY(read);
        at += length;
        if (!*at)
            return FINE;
    }
}

static outcome refuse_repeats(const sweep_values *values, const char *word)
{
    for (size_t i = 0; i < values->n; i++)
        for (size_t k = 0; k < i; k++)
            if (values->value[k] == values->value[i])
                return complain(USAGE, "-D %s: %" PRId64 " is listed twice",
                                word, values->value[i]);
    return FINE;
}

outcome sweep_take(void *to, const char *option, const char *word)
{
    sweep *sweep = to;
    const char *list = program_define_value(word);
    sweep_values *values;
    char shown[SHOWN];

    (void)option; // by its letter, however it was written
    if (!list)
        return USAGE;
    values = values_of(sweep, word, (size_t)(list - 1 - word));
    TRY(take_values(values, word, list));
    if (sweep_count(sweep) > SWEEP_LIMIT)
        return complain(USAGE,
                        "-D %s: that makes more than %d combinations of values",
                        show(word, strlen(word), shown), SWEEP_LIMIT);
    return refuse_repeats(values, word);
}

void sweep_free(sweep *sweep)
{
    for (size_t i = 0; i < sweep->n; i++) {
        free(sweep->values[i].name);
        free(sweep->values[i].value);
    }
    free(sweep->values);
    memset(sweep, 0, sizeof *sweep);
}

size_t sweep_count(const sweep *sweep)
{
    size_t n = 1;

    for (size_t i = 0; i < sweep->n && n <= SWEEP_LIMIT; i++)
        n *= sweep->values[i].n;
    return n;
}

void sweep_define(const sweep *sweep, size_t i, program_options *options)
{
    for (size_t k = sweep->n; k > 0; k--) {
        const sweep_values *values = &sweep->values[k - 1];

        program_define(options, values->name, values->value[i % values->n]);
        i /= values->n;
    }
}
