// Completion for zsh: specifications that _arguments takes.
#include "page.h"

// Within single quotes, of which a text has none. What separates the parts of a
// specification stands behind a backslash.
static void print_help(const char *help)
{
    for (; *help; help++)
        if (*help == '\'')
            fputs("'\\''", stdout);
        else if (*help == '[' || *help == ']' || *help == ':')
            printf("\\%c", *help);
        else
            putchar(*help == '\n' ? ' ' : *help);
}

static void print_value(const option *row)
{
    printf(":%s:", row->value);
    if (row->kind == LIST)
        printf("_values -s , %s ", row->value);
    else if (row->choices)
        putchar('(');
    if (row->choices)
        page_choices(row->choices);
    else if (page_file(row->value))
        printf("_files");
    if (row->choices && row->kind != LIST)
        putchar(')');
}

static void print_option(const option *row)
{
    printf(" \\\n            ");
    // What gathers may be given again.
    if (row->kind == TAKEN)
        printf("'*'");
    else if (row->letter)
        printf("'(-%c --%s)'", row->letter, row->name);
    if (row->letter)
        printf("{-%c%s,--%s%s}", row->letter, row->value ? "+" : "", row->name,
               row->value ? "=" : "");
    else
        printf("--%s%s", row->name, row->value ? "=" : "");
    printf("'[");
    print_help(row->help);
    putchar(']');
    if (row->value)
        print_value(row);
    putchar('\'');
}

static void print_words(const command *command)
{
    printf(" \\\n            '1:word:(");
    command->words();
    printf(")'");
}

static void print_command(const command *command)
{
    const char *operands = command->operands;
    const option *row;

    printf("    %s)\n        _arguments -s '--help[explain it]'",
           command->name);
    for (size_t i = 0; (row = command_option(command, i)) != NULL; i++)
        print_option(row);
    if (page_file(operands))
        printf(" \\\n            '%s:file:_files'",
               operands[4] == '.' ? "*" : "1");
    else if (command->words)
        print_words(command);
    printf("\n        ;;\n");
}

void zsh_print(void)
{
    printf("#compdef heddle\n"
           "# made from the rows that --help prints\n"
           "_heddle()\n{\n    local -a names\n    names=(\n");
    for (int i = 0; commands[i]; i++) {
        printf("        '%s:", commands[i]->name);
        print_help(commands[i]->summary);
        printf("'\n");
    }
    printf("    )\n"
           "    if (( CURRENT == 2 )); then\n"
           "        _describe command names\n"
           "        return\n"
           "    fi\n"
           "    shift words\n"
           "    (( CURRENT-- ))\n"
           "    case $words[1] in\n");
    for (int i = 0; commands[i]; i++)
        print_command(commands[i]);
    printf("    esac\n}\n_heddle \"$@\"\n");
}
