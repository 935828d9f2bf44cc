// Completion for bash. Where it has no words, names of files are completed:
// that is what most operands and values are.
#include "page.h"

#include <stdio.h>

static const char top[] =
    "# bash completion for heddle, made from the rows that --help prints\n"
    "_heddle()\n"
    "{\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} head= words=\n"
    "    local before=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "\n"
    "    # --option=value is three words here.\n"
    "    if [ \"$word\" = = ]; then\n"
    "        word=\n"
    "    elif [ \"$before\" = = ] && [ \"$COMP_CWORD\" -gt 2 ]; then\n"
    "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    fi\n"
    "    [ \"$COMP_CWORD\" -gt 1 ] || before=\n"
    "    case ${COMP_WORDS[1]}:$before in\n"
    "    *:)\n"
    "        words=\"";

static const char bottom[] =
    "    esac\n"
    "    COMPREPLY=($(compgen -P \"$head\" -W \"$words\" -- \"$word\"))\n"
    "}\n"
    "complete -o default -F _heddle heddle\n";

// The words that follow an option; of a list the last one is completed.
static void print_values(const command *command, const option *row)
{
    printf("    %s:--%s", command->name, row->name);
    if (row->letter)
        printf(" | %s:-%c", command->name, row->letter);
    printf(")\n");
    if (row->kind == LIST)
        printf("        case $word in *,*) head=${word%%,*}, ;; esac\n"
               "        word=${word##*,}\n");
    if (row->choices) {
        printf("        words=\"");
        page_choices(row->choices);
        printf("\"\n");
    }
    printf("        ;;\n");
}

static void print_command(const command *command)
{
    const option *row;

    for (size_t i = 0; (row = command_option(command, i)) != NULL; i++)
        if (row->value)
            print_values(command, row);
    printf("    %s:*)\n", command->name);
    if (command->words) {
        printf("        words=\"");
        command->words();
        printf("\"\n");
    }
    printf("        case $word in -*) words=\"--help");
    for (size_t i = 0; (row = command_option(command, i)) != NULL; i++)
        printf(" --%s", row->name);
    printf("\" ;; esac\n        ;;\n");
}

void bash_print(void)
{
    fputs(top, stdout);
    help_command.words();
    printf("--help --version\"\n        ;;\n");
    for (int i = 0; commands[i]; i++)
        print_command(commands[i]);
    fputs(bottom, stdout);
}
