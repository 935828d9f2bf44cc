// Pages of the manual, as troff reads them with the macros of man(7).
#include "page.h"

#include <ctype.h>
#include <stdlib.h>

// Prints text so that it is text. At the beginning of a line a dot or an
// apostrophe would be a request; \& is nothing, and stands before it.
static void print_text(const char *text)
{
    bool first = true;

    for (; *text; text++) {
        if (first && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        first = *text == '\n';
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
    }
    putchar('\n');
}

// The title and NAME, which is one line: the first part of `summary` with a
// small letter and without its full stop.
static void begin(const char *part, const char *summary)
{
    printf(".TH \"HEDDLE");
    for (const char *at = part; *at; at++)
        putchar(toupper((unsigned char)*at));
    printf("\" 1 \"\" \"heddle %s\" \"heddle\"\n.SH NAME\nheddle",
           hd_version());
    for (const char *at = part; *at; at++)
        printf(*at == '-' ? "\\-" : "%c", *at);
    printf(" \\- ");
    for (const char *at = summary; *at && *at != ';'; at++)
        if (at == summary)
            putchar(tolower((unsigned char)*at));
        else if (*at == '-')
            fputs("\\-", stdout);
        else if (*at != '.' || at[1])
            putchar(*at);
    putchar('\n');
}

static void print_exit_status(void)
{
    printf(".SH EXIT STATUS\n");
    for (int i = 0; outcome_meaning[i]; i++)
        printf(".TP\n.B %d\n%s\n", i, outcome_meaning[i]);
}

static void print_option(const option *row)
{
    printf(".TP\n");
    if (row->letter)
        printf("\\fB\\-%c\\fR, ", row->letter);
    printf("\\fB\\-\\-");
    page_line(row->name, "-", "\\");
    printf("\\fR");
    if (row->value)
        printf(" \\fI%s\\fR", row->value);
    putchar('\n');
    print_text(row->help);
}

static void print_overview(void)
{
    begin("", "A host-IR compiler and runtime for pipelined communication.");
    printf(".SH SYNOPSIS\n.B heddle\n.I COMMAND\n[options] [\\fIFILE\\fR]\n"
           ".SH DESCRIPTION\n"
           "Lowers programs over sharded tensors to the steps that each rank\n"
           "issues, proves these free of races and deadlocks, predicts what "
           "they\ntake, and runs them.\n"
           ".SH COMMANDS\n");
    for (int i = 0; commands[i]; i++) {
        printf(".TP\n.B %s\n", commands[i]->name);
        print_text(commands[i]->summary);
    }
    print_exit_status();
    printf(
        ".SH ENVIRONMENT\n.B heddle env\nlists the variables that are heeded, "
        "and which are set.\n.SH SEE ALSO\n");
    for (int i = 0; commands[i]; i++)
        if (*commands[i]->about)
            printf("%s.BR heddle\\-%s (1)", i ? ",\n" : "", commands[i]->name);
    putchar('\n');
}

static void print_command(const command *command)
{
    char *part = need_format("-%s", command->name);
    const option *row = command_option(command, 0);

    begin(part, command->summary);
    printf(".SH SYNOPSIS\n.B heddle %s\n%s", command->name,
           row ? "[options]\n" : "");
    if (*command->operands)
        printf(".I %s\n", command->operands);
    printf(".SH DESCRIPTION\n");
    print_text(command->summary);
    if (*command->about) {
        printf(".PP\n");
        print_text(command->about);
    }
    if (row)
        printf(".SH OPTIONS\n");
    for (size_t i = 0; (row = command_option(command, i)) != NULL; i++)
        print_option(row);
    print_exit_status();
    printf(".SH SEE ALSO\n.BR heddle (1)\n");
    free(part);
}

void man_print(const command *command)
{
    printf(".\\\" Made from the rows that --help prints.\n");
    if (command)
        print_command(command);
    else
        print_overview();
}
