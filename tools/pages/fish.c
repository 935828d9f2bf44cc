// Completion for fish: a line an option.
#include "page.h"

static void print_help(const char *help)
{
    printf(" -d '");
    page_line(help, "'\\", "\\");
    printf("'\n");
}

static void print_option(const command *command, const option *row)
{
    printf("complete -c heddle -n '__fish_seen_subcommand_from %s' -l %s",
           command->name, row->name);
    if (row->letter)
        printf(" -s %c", row->letter);
    // A value: -x is one that is no file, -r -F one that is.
    if (row->value)
        fputs(page_file(row->value) ? " -r -F" : " -x", stdout);
    if (row->choices) {
        printf(" -a '");
        page_choices(row->choices);
        putchar('\'');
    }
    print_help(row->help);
}

void fish_print(void)
{
    const option *row;

    printf("# fish completion for heddle, made from the rows that --help "
           "prints\n"
           "complete -c heddle -f\n");
    for (int i = 0; commands[i]; i++) {
        printf("complete -c heddle -n __fish_use_subcommand -a %s",
               commands[i]->name);
        print_help(commands[i]->summary);
    }
    for (int i = 0; commands[i]; i++) {
        if (page_file(commands[i]->operands))
            printf(
                "complete -c heddle -n '__fish_seen_subcommand_from %s' -F\n",
                commands[i]->name);
        if (commands[i]->words) {
            printf("complete -c heddle -n '__fish_seen_subcommand_from %s' "
                   "-a '",
                   commands[i]->name);
            commands[i]->words();
            printf("'\n");
        }
        for (size_t k = 0; (row = command_option(commands[i], k)) != NULL; k++)
            print_option(commands[i], row);
    }
}
