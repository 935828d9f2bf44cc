// heddle fmt: programs laid out alike, in place.
#include "commands.h"
#include "file.h"
#include "program.h"

#include <string.h>

typedef struct fmt {
    bool check, upgrade;
    hd_diag *diag;
    const char *text; // what is to be written
} fmt;

static outcome print_text(void *context, FILE *to)
{
    const fmt *fmt = context;

    fputs(fmt->text, to);
    return FINE;
}

// Of a text that is not as it should be: names it, or writes it.
static outcome settle(fmt *fmt, const char *path, const content *before)
{
    bool same = strlen(fmt->text) == before->length &&
                memcmp(fmt->text, before->bytes, before->length) == 0;

    if (fmt->check && !same)
        put_line(stdout, "%s", program_name(path));
    if (fmt->check)
        return same ? FINE : WRONG;
    return same && !is_dash(path) ? FINE : file_print(path, print_text, fmt);
}

static outcome format_file(fmt *fmt, const char *path)
{
    content before;
    hd_status status;
    outcome result;
    char *text = NULL;

    TRY(program_read(path, &before));
    hd_diag_clear(fmt->diag);
    status = (fmt->upgrade ? hd_upgrade : hd_format)(
        path, (const char *)before.bytes, before.length, fmt->diag, &text);
    result = tell(fmt->diag, status, path);
    fmt->text = text;
    if (result == FINE)
        result = settle(fmt, path, &before);
    hd_free(text);
    content_close(&before);
    return result;
}

static outcome run_fmt(const command *command, int argc, char **argv)
{
    fmt fmt = {0};
    int npaths;
    outcome result = options_take(command, argc, argv, &fmt, &npaths);

    fmt.diag = need_diag();
    if (result == FINE && npaths == 0)
        result = complain(USAGE, "fmt: which file? - is standard input");
    for (int i = 0; i < npaths && result != USAGE; i++)
        result = first_wrong(result, format_file(&fmt, argv[i]));
    hd_diag_destroy(fmt.diag);
    return result;
}

static const option fmt_options[] = {
    {FLAG, "check", NULL,
     "write nothing, and name the files that are\nnot so: the exit code is "
     "then 1",
     INTO(fmt, check)},
    {FLAG, "upgrade", NULL,
     "to the newest text form; what would mean\nanother thing there is "
     "refused, "
     "with what to\nwrite",
     INTO(fmt, upgrade)},
    {.name = NULL},
};

const command fmt_command = {
    .name = "fmt",
    .operands = "FILE...",
    .summary = "Lays out programs alike; - is standard input, and goes out.",
    .about =
        "Comments stay, and so does one of several blank lines. A file that "
        "is so\nalready, or cannot be read, is not touched.\n",
    .groups = {{fmt_options, 0}},
    .run = run_fmt,
};
