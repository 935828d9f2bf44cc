// Finds and reads the arrays that --in names.
#include "inputs.h"

#include "npy.h"
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

const char *bindings_find(const bindings *bindings, const char *name)
{
    for (size_t i = 0; i < bindings->n; i++)
        if (strcmp(bindings->binding[i].name, name) == 0)
            return bindings->binding[i].path;
    return NULL;
}

outcome bindings_take(void *to, const char *option, const char *word)
{
    bindings *bindings = to;
    const char *start = word + (word[0] == '%');
    const char *equals = strchr(start, '=');
    binding *grown;
    char *name;

    bindings->option = option;
    if (!equals || equals == start || !equals[1])
        return complain(USAGE, "%s needs NAME=FILE, not '%s'", option, word);
    name = need_format("%.*s", (int)(equals - start), start);
    if (bindings_find(bindings, name)) {
        complain(USAGE, "%s %s: %%%s is given twice", bindings->option, word,
                 name);
        free(name);
        return USAGE;
    }
    grown = bindings->binding =
        need_more(bindings->binding, bindings->n, 1, sizeof *grown);
    grown[bindings->n++] = (binding){name, equals + 1};
    return FINE;
}

void bindings_free(bindings *bindings)
{
    for (size_t i = 0; i < bindings->n; i++)
        free(bindings->binding[i].name);
    free(bindings->binding);
    bindings->binding = NULL;
    bindings->n = 0;
}

static bool fits(const bindings *bindings, const hd_argument *argument)
{
    hd_role other =
        strcmp(bindings->option, "--in") == 0 ? HD_ROLE_OUT : HD_ROLE_IN;

    return argument->role != other && argument->dtype != HD_DTYPE_EVENT;
}

static outcome refuse_name(const bindings *bindings, const hd_module *module,
                           const char *name)
{
    size_t n = info_of(module).narguments, nfitting = 0;
    const char **names = need(n, sizeof *names);
    const char *guess;
    hd_argument argument = HD_EMPTY(hd_argument);

    for (size_t i = 0; i < n; i++)
        if (hd_module_argument(module, i, &argument) &&
            fits(bindings, &argument))
            names[nfitting++] = argument.name;
    guess = nearest(name, names, nfitting);
    if (guess)
        complain(USAGE, "%s: %s has no argument %%%s; did you mean %%%s?",
                 bindings->option, info_of(module).name, name, guess);
    else
        complain(USAGE, "%s: %s has no argument %%%s", bindings->option,
                 info_of(module).name, name);
    free(names);
    return USAGE;
}

static outcome check_binding(const bindings *bindings, const hd_module *module,
                             const char *name)
{
    static const char *const roles[] = {"in", "out", "inout", "temp"};
    hd_argument argument = HD_EMPTY(hd_argument);

    for (size_t i = 0; hd_module_argument(module, i, &argument); i++) {
        if (strcmp(argument.name, name) != 0)
            continue;
        if (fits(bindings, &argument))
            return FINE;
        if (argument.dtype == HD_DTYPE_EVENT)
            return complain(USAGE, "%s: %%%s is an event, which has no bytes",
                            bindings->option, name);
        return complain(USAGE, "%s: %%%s is an '%s' argument", bindings->option,
                        name, roles[argument.role]);
    }
    return refuse_name(bindings, module, name);
}

outcome bindings_check(const bindings *bindings, const hd_module *module)
{
    for (size_t i = 0; i < bindings->n; i++)
        TRY(check_binding(bindings, module, bindings->binding[i].name));
    return FINE;
}

static outcome read_array(const char *path, const char *tensor, size_t limit,
                          array *out)
{
    TRY(content_open(path, limit, &out->content));
    if (out->content.cut)
        return complain(WRONG, "%s is longer than %zu bytes", out->name, limit);
    return tensor ? safetensors_parse(path, tensor, out) : npy_parse(out);
}

// What follows the name of a safetensors file, ":TENSOR" or nothing; NULL if
// `path` is none.
static const char *find_tensor(const char *path)
{
    static const char suffix[] = ".safetensors";
    const char *mark = strstr(path, suffix);
    const char *tensor = mark ? mark + strlen(suffix) : NULL;

    return tensor && (!*tensor || *tensor == ':') ? tensor : NULL;
}

outcome bindings_spared(const bindings *bindings, const char *option,
                        const char *name)
{
    outcome result = FINE;

    for (size_t i = 0; i < bindings->n && result == FINE; i++) {
        const char *path = bindings->binding[i].path;
        const char *tensor = find_tensor(path);
        char *file = need_format(
            "%.*s", (int)(tensor ? (size_t)(tensor - path) : strlen(path)),
            path);

        result = output_spares(option, name, file);
        free(file);
    }
    return result;
}

static outcome read_input(const char *path, size_t limit, array *out)
{
    const char *tensor = find_tensor(path);
    outcome result;
    char *cut;

    if (!tensor)
        return read_array(path, NULL, limit, out);
    if (!tensor[0] || !tensor[1])
        return complain(USAGE, "%s: which tensor? write %.*s:NAME", path,
                        (int)(tensor - path), path);
    cut = need_format("%.*s", (int)(tensor - path), path);
    result = read_array(cut, tensor + 1, limit, out);
    free(cut);
    return result;
}

outcome input_open(const char *path, const hd_argument *argument, bool cast,
                   array *file, whole *out)
{
    // Nothing in a file that fits takes more than eight bytes an element; the
    // rest of a safetensors file is only ever mapped.
    size_t limit = NPY_HEADER_LIMIT + 16 + argument->elements * 8;
    outcome result;

    *file = (array){.name = is_dash(path) ? "standard input" : path};
    result = read_input(path, limit, file);
    if (result == FINE)
        result = array_whole(file, argument, cast, out);
    if (result != FINE)
        array_close(file);
    return result;
}
