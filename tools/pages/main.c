// Prints one of the pages that are installed. The build runs it; it is not
// installed itself.
#include "page.h"

#include <string.h>

void page_line(const char *text, const char *special, const char *before)
{
    for (; *text; text++) {
        // A newline ends a paragraph here no more than a space does.
        if (*text == '\n' && !text[1])
            break;
        if (strchr(special, *text))
            fputs(before, stdout);
        putchar(*text == '\n' ? ' ' : *text);
    }
}

void page_choices(const char *const *choices)
{
    for (int i = 0; choices[i]; i++)
        printf("%s%s", i ? " " : "", choices[i]);
}

bool page_file(const char *value)
{
    return strstr(value, "FILE") != NULL;
}

static outcome print_man(const char *name)
{
    const command *command = NULL;

    if (strcmp(name, "heddle") != 0)
        TRY(command_find(name, &command));
    man_print(command);
    return FINE;
}

int main(int argc, char **argv)
{
    const char *page = argc > 1 ? argv[1] : "";
    outcome result = FINE;

    if (argc == 3 && strcmp(page, "man") == 0)
        result = print_man(argv[2]);
    else if (argc == 2 && strcmp(page, "bash") == 0)
        bash_print();
    else if (argc == 2 && strcmp(page, "zsh") == 0)
        zsh_print();
    else if (argc == 2 && strcmp(page, "fish") == 0)
        fish_print();
    else
        result =
            complain(USAGE, "usage: heddle-pages man heddle|COMMAND, bash, "
                            "zsh or fish");
    if (fflush(stdout) != 0 || ferror(stdout))
        return WRONG;
    return (int)result;
}
