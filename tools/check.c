// heddle check: everything that can be said of a program without running it.
#include "commands.h"
#include "program.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

// The fewest and the most steps that a rank issues.
static hd_status count_steps(const hd_module *module, hd_diag *diag,
                             int64_t *least, int64_t *most)
{
    for (int rank = 0; rank < hd_module_ranks(module); rank++) {
        int64_t n;
        hd_status status = hd_module_steps(module, rank, diag, &n);

        if (status != HD_OK)
            return status;
        *least = rank == 0 || n < *least ? n : *least;
        *most = rank == 0 || n > *most ? n : *most;
    }
    return HD_OK;
}

static outcome report(const char *path, const hd_module *module, hd_diag *diag)
{
    int ranks = hd_module_ranks(module);
    int64_t least = 0, most = 0;
    hd_status status = count_steps(module, diag, &least, &most);

    if (status != HD_OK)
        return tell(diag, status, path);
    printf("%s: ok: %d rank%s, ", strcmp(path, "-") == 0 ? "<stdin>" : path,
           ranks, ranks == 1 ? "" : "s");
    if (least != most)
        printf("%" PRId64 " to ", least);
    printf("%" PRId64 " step%s%s\n", most, most == 1 ? "" : "s",
           ranks == 1 ? "" : " a rank");
    return FINE;
}

static outcome check_module(const char *path, hd_module *module,
                            const program_options *options, hd_diag *diag)
{
    if (hd_module_stage(module) != HD_STAGE_HOST)
        TRY(tell(diag, hd_lower(module, &options->lower, NULL, NULL, diag),
                 path));
    TRY(tell(diag, hd_check(module, diag), path));
    return report(path, module, diag);
}

static outcome check_file(const char *path, const program_options *options,
                          hd_diag *diag)
{
    hd_module *module;
    outcome result;

    TRY(program_open(path, options, diag, &module));
    result = check_module(path, module, options, diag);
    hd_module_destroy(module);
    return result;
}

typedef struct check {
    const char **paths; // owned; not the names
    int npaths;
    program_options options;
} check;

static outcome take_options(check *check, options *at)
{
    int id;

    while ((id = options_next(at)) != OPTIONS_END) {
        if (id == OPTIONS_OPERAND)
            check->paths[check->npaths++] = at->value;
        else
            TRY(program_option(&check->options, at, id));
    }
    if (check->npaths == 0)
        return complain(USAGE, "check needs a file; - is standard input");
    return FINE;
}

static outcome run_check(const command *command, int argc, char **argv)
{
    check check = {.paths = need((size_t)argc, sizeof *check.paths)};
    options at = {.command = command, .argc = argc, .argv = argv};
    hd_diag *diag = need_diag();
    outcome worst;

    program_options_init(&check.options);
    worst = take_options(&check, &at);
    // Every file is checked, whatever became of those before it.
    for (int i = 0; i < check.npaths && worst != USAGE; i++) {
        outcome result = check_file(check.paths[i], &check.options, diag);

        if (result > worst)
            worst = result;
    }
    program_options_free(&check.options);
    hd_diag_destroy(diag);
    free(check.paths);
    return worst;
}

const command check_command = {
    .name = "check",
    .operands = "FILE...",
    .summary = "Checks programs without running them; - is standard input.",
    .about = "A program that is not complete is lowered first.\n",
    .options = {PROGRAM_OPTIONS, {0, 0, NULL, NULL, NULL}},
    .run = run_check,
};
