#include "ir/suggest.h"

#include <string.h>

enum { LONGEST = 32 };

hd_suggestion hd_suggest(const char *word, size_t length)
{
    return (hd_suggestion){
        .word = word, .length = length, .distance = SIZE_MAX};
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

// Levenshtein's distance, one row at a time.
static size_t edits(const char *a, size_t na, const char *b, size_t nb)
{
    size_t row[LONGEST + 1];

    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t corner = row[0];

        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t above = row[j];

            row[j] = least(least(row[j - 1], above) + 1,
                           corner + (a[i - 1] != b[j - 1]));
            corner = above;
        }
    }
    return row[nb];
}

// Two neighbouring letters changed places: one slip, two edits.
static bool is_swap(const char *a, const char *b, size_t n)
{
    size_t i = 0;

    while (i < n && a[i] == b[i])
        i++;
    return i + 1 < n && a[i] == b[i + 1] && a[i + 1] == b[i] &&
           memcmp(a + i + 2, b + i + 2, n - i - 2) == 0;
}

enum { SHORT = 4 };

void hd_suggest_consider(hd_suggestion *suggestion, const char *candidate)
{
    size_t length = strlen(candidate);
    size_t apart = length > suggestion->length ? length - suggestion->length
                                               : suggestion->length - length;
    size_t distance;

    // Each letter that one word has more is an edit.
    if (length > LONGEST || suggestion->length > LONGEST ||
        3 * apart > suggestion->length + 1)
        return;
    distance = edits(suggestion->word, suggestion->length, candidate, length);
    if (length == suggestion->length &&
        is_swap(suggestion->word, candidate, length))
        distance = 1;
    else if (suggestion->strict && length == suggestion->length &&
             length <= SHORT)
        return;
    if (suggestion->strict && distance == suggestion->distance)
        suggestion->best = NULL;
    if (distance >= suggestion->distance ||
        3 * distance > suggestion->length + 1)
        return;
    suggestion->best = candidate;
    suggestion->distance = distance;
}
