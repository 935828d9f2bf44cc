// Reads and hands out what --run says.
#include "sizes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static outcome read_values(const char *option, const char *word,
                           const char *text, size_values *out)
{
    char *end;

    for (;; text = end + 1) {
        if (out->n == MOST_SIZES)
            return complain(USAGE, "%s %s: more than %d values", option, word,
                            MOST_SIZES);
        out->value[out->n] =
            strtoll(text, &end, strncmp(text, "0x", 2) == 0 ? 16 : 10);
        if (end == text || (*end != ',' && *end != '\0'))
            return complain(USAGE, "%s needs NAME=VALUE,.., not '%s'", option,
                            word);
        out->n++;
        if (*end == '\0')
            return FINE;
    }
}

static size_t common_multiple(size_t a, size_t b)
{
    size_t x = a, y = b;

    while (y > 0) {
        size_t rest = x % y;

        x = y;
        y = rest;
    }
    return a / x * b;
}

outcome sizes_take(void *to, const char *option, const char *word)
{
    sizes *sizes = to;
    const char *equals = strchr(word, '=');
    size_values *grown, *last;

    if (!equals || equals == word)
        return complain(USAGE, "%s needs NAME=VALUE,.., not '%s'", option,
                        word);
    grown = sizes->size = need_more(sizes->size, sizes->n, 1, sizeof *grown);
    last = &grown[sizes->n++];
    last->name = need_format("%.*s", (int)(equals - word), word);
    TRY(read_values(option, word, equals + 1, last));
    for (size_t i = 0; i + 1 < sizes->n; i++)
        if (strcmp(grown[i].name, last->name) == 0)
            return complain(USAGE, "%s %s: %s is given twice", option, word,
                            last->name);
    sizes->runs = common_multiple(sizes->runs > 0 ? sizes->runs : 1, last->n);
    if (sizes->runs > MOST_SIZES)
        return complain(USAGE,
                        "%s %s: no two of %zu runs are alike; %d may differ",
                        option, word, sizes->runs, MOST_SIZES);
    return FINE;
}

void sizes_free(sizes *sizes)
{
    for (size_t i = 0; i < sizes->n; i++)
        free(sizes->size[i].name);
    free(sizes->size);
    *sizes = (struct sizes){0};
}

static const size_values *find_values(const sizes *sizes, const char *name)
{
    for (size_t i = 0; i < sizes->n; i++)
        if (strcmp(sizes->size[i].name, name) == 0)
            return &sizes->size[i];
    return NULL;
}

static outcome check_known(const size_values *values, const hd_module *module)
{
    size_t n = info_of(module).nsizes;
    const char **names = need(n, sizeof *names);
    const char *guess;
    hd_size_info about = HD_EMPTY(hd_size_info);
    bool known = false;

    for (size_t i = 0; i < n && hd_module_size(module, i, &about); i++) {
        names[i] = about.name;
        known |= strcmp(about.name, values->name) == 0;
    }
    guess = known ? NULL : nearest(values->name, names, n);
    free(names);
    if (known)
        return FINE;
    if (guess)
        return complain(USAGE,
                        "--run: runs of %s are given no size %s; did you mean "
                        "%s?",
                        info_of(module).name, values->name, guess);
    return complain(USAGE, "--run: runs of %s are given no size %s",
                    info_of(module).name, values->name);
}

outcome sizes_check(sizes *sizes, const hd_module *module)
{
    hd_size_info about = HD_EMPTY(hd_size_info);

    for (size_t i = 0; i < sizes->n; i++)
        TRY(check_known(&sizes->size[i], module));
    for (size_t i = 0; hd_module_size(module, i, &about); i++) {
        const size_values *values = find_values(sizes, about.name);

        for (size_t k = 0; values && k < values->n; k++)
            if (values->value[k] < about.low || values->value[k] > about.high)
                return complain(USAGE,
                                "--run: %s=%" PRId64 "; of %s it is in %" PRId64
                                "..%" PRId64,
                                about.name, values->value[k],
                                info_of(module).name, about.low, about.high);
    }
    return FINE;
}

void sizes_of_run(const sizes *sizes, const hd_module *module, int64_t run,
                  int64_t *out)
{
    hd_size_info about = HD_EMPTY(hd_size_info);

    for (size_t i = 0; hd_module_size(module, i, &about); i++) {
        const size_values *values = find_values(sizes, about.name);

        out[i] = values ? values->value[(size_t)run % values->n] : about.high;
    }
}

hd_status sizes_set(const sizes *sizes, hd_module *module, int64_t run,
                    hd_diag *diag)
{
    size_t n = info_of(module).nsizes;
    int64_t *size = need(n, sizeof *size);
    hd_status status;

    sizes_of_run(sizes, module, run, size);
    status = hd_module_resize(module, size, n, diag);
    free(size);
    return status;
}
