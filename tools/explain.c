// heddle explain: what a code means, and what an operation, a key, a pipeline
// or an option of lowering is. What it prints is docs/diagnostics.md, tables of
// codes and a section for some, and rows of docs/operations.md, semantics.md
// and lowering.md: the build puts these into the command.
#include "commands.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

// The texts of the pages, which end in NUL; embed.cmake makes them.
extern const unsigned char diagnostics_page[], operations_page[],
    semantics_page[], lowering_page[];

enum { MOST_NAMES = 256, WIDTH = 79, CODE_INDENT = 4, COLUMN = 10 };

// Some of the page.
typedef struct part {
    const char *at;
    size_t length;
} part;

// A row of a table: | HD0801 | what it means | what to do |
typedef struct row {
    int code;
    part what, remedy;
} row;

// Line by line; `next` is NULL behind the last one.
static part take_line(const char **next)
{
    part line = {*next, strcspn(*next, "\n")};
    const char *end = line.at + line.length;

    *next = *end ? end + 1 : NULL;
    return line;
}

static bool begins(part line, const char *with)
{
    return line.length >= strlen(with) &&
           memcmp(line.at, with, strlen(with)) == 0;
}

// What stands before the next bar, and goes on behind it.
static part take_cell(const char **at)
{
    const char *bar = strstr(*at, " |");
    part cell = {*at, (size_t)(bar - *at)};

    *at = bar + strlen(" | ");
    return cell;
}

static bool read_row(part line, row *out)
{
    const char *at = line.at + strlen("| HD");

    if (!begins(line, "| HD"))
        return false;
    out->code = (int)strtol(take_cell(&at).at, NULL, 10);
    out->what = take_cell(&at);
    out->remedy = take_cell(&at);
    return true;
}

// The row after the one at `*next`, which is the beginning of the page at
// first; false if there is none.
static bool next_row(const char **next, row *out)
{
    while (*next)
        if (read_row(take_line(next), out))
            return true;
    return false;
}

static const char *first_line(void)
{
    return (const char *)diagnostics_page;
}

// ------------------------------------------------------------------- text

// Bytes of a link, [name](place), and its name; 0 if there is none here.
static size_t link_at(part text, part *name)
{
    const char *close = memchr(text.at, ']', text.length);
    const char *end = memchr(text.at, ')', text.length);

    if (!text.length || *text.at != '[' || !close || !end || end < close ||
        close[1] != '(')
        return 0;
    *name = (part){text.at + 1, (size_t)(close - text.at - 1)};
    return (size_t)(end - text.at + 1);
}

// Text of which a link is its name alone; to be freed.
static char *plain_of(part text)
{
    char *out = need(text.length + 1, 1), *to = out;

    while (text.length > 0) {
        part name = {text.at, 1};
        size_t taken = link_at(text, &name);

        taken = taken ? taken : 1;
        memcpy(to, name.at, name.length);
        to += name.length;
        text.at += taken;
        text.length -= taken;
    }
    return out;
}

// Prints words, the first of them behind `column` characters of the line;
// returns where it stopped.
static size_t print_words(part text, size_t column)
{
    char *plain = plain_of(text);

    for (char *word = strtok(plain, " "); word; word = strtok(NULL, " ")) {
        size_t length = strlen(word);

        if (column > 0 && column + 1 + length > WIDTH) {
            putchar('\n');
            column = 0;
        }
        column += (size_t)printf("%s%s", column > 0 ? " " : "", word);
    }
    free(plain);
    return column;
}

static void end_paragraph(size_t *column)
{
    if (*column > 0)
        putchar('\n');
    *column = 0;
}

// Up to the next heading: paragraphs are filled, programs stand as they are.
static void print_text(const char *next)
{
    bool program = false, gap = false;
    size_t column = 0;

    while (next) {
        part line = take_line(&next);
        bool fence = begins(line, "```");

        if (!program && begins(line, "#"))
            break;
        if (fence || line.length == 0)
            end_paragraph(&column);
        if (!fence && line.length > 0 && gap)
            putchar('\n');
        gap = line.length == 0 || (gap && fence);
        program ^= fence;
        if (program && !fence && line.length > 0)
            printf("%*s%.*s\n", CODE_INDENT, "", (int)line.length, line.at);
        else if (!fence && line.length > 0)
            column = print_words(line, column);
    }
    end_paragraph(&column);
}

// --------------------------------------------------------------- explaining

static void print_section(int code)
{
    char *heading = need_format("### HD%04d", code);
    const char *next = first_line();

    while (next)
        if (begins(take_line(&next), heading))
            break;
    if (next)
        print_text(next);
    free(heading);
}

static void explain(const row *row)
{
    printf("HD%04d: %.*s\n\n", row->code, (int)row->what.length, row->what.at);
    print_words(row->remedy, (size_t)printf("What to do:"));
    putchar('\n');
    print_section(row->code);
}

// ------------------------------------------------------------- operations

// A cell without the marks of code and of what is needed; another line of it
// begins below the first.
static void print_cell(part cell)
{
    for (size_t i = 0; i < cell.length; i++) {
        part rest = {cell.at + i, cell.length - i};

        if (begins(rest, "<br>")) {
            printf("\n%*s", COLUMN, "");
            i += strlen("<br>") - 1;
        } else if (cell.at[i] != '`' && cell.at[i] != '*') {
            putchar(cell.at[i]);
        }
    }
    putchar('\n');
}

static void print_named(part name, part cell)
{
    char *plain = plain_of(cell);

    if (name.length < COLUMN)
        printf("%-*.*s", COLUMN, (int)name.length, name.at);
    else
        printf("%.*s\n%*s", (int)name.length, name.at, COLUMN, "");
    print_cell((part){plain, strlen(plain)});
    free(plain);
}

// Whether a row's name ends `at` there: with its quotes, or before a value.
static bool is_row(part line, size_t at)
{
    return at < line.length &&
           (line.at[at - 1] == '`' || line.at[at] == '`' || line.at[at] == ' ');
}

// The cells of a row behind its first, which has the name, a line each.
static void print_cells(part titles, part row)
{
    const char *title = titles.at + strlen("|"), *at = row.at + strlen("|");

    (void)take_cell(&title);
    (void)take_cell(&at);
    while (at < row.at + row.length) {
        part name = take_cell(&title), cell = take_cell(&at);

        if (cell.length > 0)
            print_named(name, cell);
    }
}

static bool is_of_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

// Whether the cell has the word, and not as a part of another.
static bool has_word(part cell, const char *word)
{
    size_t length = strlen(word);

    for (size_t i = 1; i + length < cell.length; i++)
        if (memcmp(cell.at + i, word, length) == 0 &&
            !is_of_word(cell.at[i - 1]) && !is_of_word(cell.at[i + length]))
            return true;
    return false;
}

// What an operation makes, from the first row of a table that shows it.
static void print_meaning(const char *word)
{
    const char *next = (const char *)semantics_page;

    while (next) {
        part line = take_line(&next);
        const char *at = line.at + strlen("| ");
        part shown, meaning;

        if (!begins(line, "| `"))
            continue;
        shown = take_cell(&at);
        if (!has_word(shown, word))
            continue;
        meaning = take_cell(&at);
        if (meaning.length > 0)
            print_named((part){"meaning", strlen("meaning")}, meaning);
        return;
    }
}

// Every row of a page that begins with `first`: `scale` is an operation, and a
// key of others.
static bool explain_rows(const unsigned char *page, const char *word,
                         const char *first)
{
    const char *next = (const char *)page;
    part heading = {0}, before = {0}, titles = {0};
    bool found = false;
    size_t marks;

    while (next) {
        part line = take_line(&next);

        if (begins(line, "## ") || begins(line, "### "))
            heading = line;
        if (begins(line, "|---"))
            titles = before;
        before = line;
        if (!begins(line, first) || !is_row(line, strlen(first)))
            continue;
        marks = strspn(heading.at, "# ");
        printf("%s%s, %.*s\n\n", found ? "\n" : "", word,
               (int)(heading.length - marks), heading.at + marks);
        print_cells(titles, line);
        if (page == operations_page && memcmp(heading.at, "## Keys", 7) != 0)
            print_meaning(word);
        found = true;
    }
    return found;
}

// An operation, a key, a pipeline such as ring, or an option such as --chunks.
static bool explain_word(const char *word)
{
    const char *bare = word + strspn(word, "-");
    char *name = need_format("| `%s`", word);
    char *option = need_format("| `--%s", bare);
    bool found = explain_rows(operations_page, word, name) ||
                 explain_rows(lowering_page, word, name) ||
                 explain_rows(lowering_page, word, option);

    free(name);
    free(option);
    return found;
}

// The names of the rows of a page, and where in `names` they end; each is freed
// by the caller.
static size_t list_names(const unsigned char *page, char *names[MOST_NAMES],
                         size_t n)
{
    const char *next = (const char *)page;

    while (next) {
        part line = take_line(&next);
        const char *word = line.at + strlen("| `");

        if (!begins(line, "| `") || n == MOST_NAMES)
            continue;
        word += strspn(word, "-");
        if (is_of_word(*word))
            names[n++] = need_format("%.*s", (int)strcspn(word, "` "), word);
    }
    return n;
}

static outcome refuse_word(const char *word)
{
    char *names[MOST_NAMES], guess[MEANT];
    size_t n =
        list_names(lowering_page, names, list_names(operations_page, names, 0));
    outcome result =
        complain(USAGE,
                 "'%s' is no code such as HD0801, which 'heddle explain' "
                 "lists, nor an operation, a key, a pipeline or an option of "
                 "lowering%s",
                 word, meant(word, (const char *const *)names, n, guess));

    while (n > 0)
        free(names[--n]);
    return result;
}

static void list_codes(void)
{
    const char *next = first_line(), *gap = "";

    while (next) {
        part line = take_line(&next);
        row row;

        if (begins(line, "## ")) {
            printf("%s%.*s\n", gap, (int)line.length - 3, line.at + 3);
            gap = "\n";
        } else if (read_row(line, &row))
            printf("  HD%04d  %.*s\n", row.code, (int)row.what.length,
                   row.what.at);
    }
}

// HD0801, hd0801, 0801 or 801.
static bool read_code(const char *word, int *out)
{
    int64_t code;

    if (strncasecmp(word, "HD", 2) == 0)
        word += 2;
    if (!isdigit((unsigned char)*word) || strlen(word) > 4 ||
        word[strspn(word, "0123456789")])
        return false;
    if (!parse_integer(word, 0, 9999, &code))
        return false;
    *out = (int)code;
    return true;
}

// Names the codes around the one that there is not.
static outcome refuse_code(int code)
{
    const char *next = first_line();
    int below = 0, above = 0;
    row row;

    while (!above && next_row(&next, &row))
        *(row.code < code ? &below : &above) = row.code;
    if (below && above)
        return complain(USAGE,
                        "there is no code HD%04d; near it are HD%04d and "
                        "HD%04d",
                        code, below, above);
    return complain(USAGE, "there is no code HD%04d; near it is HD%04d", code,
                    below ? below : above);
}

static outcome run_explain(const command *command, int argc, char **argv)
{
    const char *next = first_line(), *word;
    int code;
    row row;

    TRY(options_take_one(command, argc, argv, NULL, &word));
    if (!word) {
        list_codes();
        return FINE;
    }
    if (explain_word(word))
        return FINE;
    if (!read_code(word, &code))
        return refuse_word(word);
    while (next_row(&next, &row))
        if (row.code == code) {
            explain(&row);
            return FINE;
        }
    return refuse_code(code);
}

static void print_codes(void)
{
    const char *next = first_line();
    row row;

    while (next_row(&next, &row))
        printf("HD%04d ", row.code);
}

const command explain_command = {
    .name = "explain",
    .operands = "[CODE]",
    .summary = "Tells what the code of a message means, or lists all codes.",
    .about = "HD0801 may be written hd0801, 0801 or 801. Of an operation or a "
             "key, such as\nmatmul, it tells how that is written and what it "
             "means; of a pipeline, such as ring,\nor an option of lowering, "
             "such as chunks, what it does.\n",
    .words = print_codes,
    .run = run_explain,
};
