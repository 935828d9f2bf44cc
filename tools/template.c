// See template.h.
#include "template.h"

#include <string.h>

// Bytes that the filled text takes, at most.
static size_t room_for(const char *text)
{
    size_t room = strlen(text) + 64;

    for (; (text = strchr(text, '$')) != NULL; text++)
        room += TEMPLATE_WORD;
    return room;
}

char *template_fill(const char *text, template_word *word, const void *context)
{
    char *out = need(room_for(text), 1), *to = out;

    to += sprintf(to, "heddle %d\n", HD_FORMAT);
    for (; *text; text++) {
        if (*text != '$') {
            *to++ = *text;
            continue;
        }
        word(context, *++text, to);
        to += strlen(to);
    }
    return out;
}
