// What is made of the commands' rows, besides --help: the man pages, and the
// completion of three shells.
#ifndef HD_TOOLS_PAGES_PAGE_H
#define HD_TOOLS_PAGES_PAGE_H

#include "commands.h"

// The page of one command, or of all for NULL.
void man_print(const command *command);
void bash_print(void);
void zsh_print(void);
void fish_print(void);

// Prints text of --help on one line, with `before` in front of each letter that
// is one of `special`.
void page_line(const char *text, const char *special, const char *before);
// Prints `choices`, with a space between each two.
void page_choices(const char *const *choices);
// Whether the value, or the operand, that --help shows so names a file.
bool page_file(const char *value);

#endif
