// See plain.h.
#include "plain.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tool.h"

// Bytes of the character at `at`, and its code point; 0 if it is not UTF-8.
// Overlong forms and halves of pairs are not.
static size_t decode(const unsigned char *at, size_t length, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = *at >= 0xf0 ? 4 : *at >= 0xe0 ? 3 : *at >= 0x80 ? 2 : 1;
    uint32_t point = n == 1 ? *at : *at & (0x7fu >> n);

    if (n > length || (*at >= 0x80 && *at < 0xc2) || *at > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (at[i] & 0x3fu);
    }
    *out = point;
    return point < least[n] || point > 0x10ffff ||
                   (point >= 0xd800 && point <= 0xdfff)
               ? 0
               : n;
}

static bool is_hidden(uint32_t point)
{
    static const uint32_t hidden[][2] = {
        {0, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},
        {0x200b, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
        {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0x10ffff},
    };

    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (point >= hidden[i][0] && point <= hidden[i][1])
            return true;
    return false;
}

size_t plain_character(const char *at, size_t length)
{
    uint32_t point;
    size_t n = decode((const unsigned char *)at, length, &point);

    return n > 0 && !is_hidden(point) ? n : 0;
}

static size_t utf8_character(const char *at, size_t length)
{
    uint32_t point;

    return decode((const unsigned char *)at, length, &point);
}

static char *escape(const char *text,
                    size_t (*character)(const char *at, size_t length))
{
    size_t left = strlen(text);
    char *out = need(4 * left + 1, 1), *to = out;

    while (left > 0) {
        size_t n = character(text, left);

        if (n > 0)
            memcpy(to, text, n);
        else
            snprintf(to, 5, "\\x%02x", (unsigned char)*text);
        to += n > 0 ? n : 4;
        text += n > 0 ? n : 1;
        left -= n > 0 ? n : 1;
    }
    return out;
}

char *need_plain(const char *text)
{
    return escape(text, plain_character);
}

char *need_utf8(const char *text)
{
    return escape(text, utf8_character);
}
