// A growing text. Room doubles, so that adding is linear in what is added.
#include "base/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/locale.h"

// Room for `length` more bytes and the NUL.
static bool make_room(hd_text *text, size_t length)
{
    size_t room = text->room > 0 ? text->room : 64;
    char *bytes;

    if (text->failed || length > PTRDIFF_MAX / 2 - text->length)
        text->failed = true;
    if (text->failed)
        return false;
    if (text->length + length < text->room)
        return true;
    while (room <= text->length + length)
        room *= 2;
    bytes = realloc(text->bytes, room);
    if (bytes == NULL) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->room = room;
    return true;
}

void hd_text_add(hd_text *text, const char *bytes, size_t length)
{
    if (!make_room(text, length))
        return;
    if (length > 0)
        memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

void hd_text_puts(hd_text *text, const char *string)
{
    hd_text_add(text, string, strlen(string));
}

static void render(hd_text *text, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
static void render(hd_text *text, const char *format, va_list args)
{
    enum { USUAL = 60 }; // most pieces are shorter, and are rendered once
    va_list again;
    size_t left;
    int length;

    if (!make_room(text, USUAL))
        return;
    left = text->room - text->length;
    va_copy(again, args);
    length = vsnprintf(text->bytes + text->length, left, format, again);
    va_end(again);
    if (length < 0 ||
        ((size_t)length >= left && !make_room(text, (size_t)length))) {
        text->failed |= length < 0;
        text->bytes[text->length] = '\0';
        return;
    }
    if ((size_t)length >= left)
        vsnprintf(text->bytes + text->length, (size_t)length + 1, format, args);
    text->length += (size_t)length;
}

void hd_text_vprintf(hd_text *text, const char *format, va_list args)
{
    locale_t before = hd_locale_enter();

    render(text, format, args);
    hd_locale_leave(before);
}

void hd_text_printf(hd_text *text, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    hd_text_vprintf(text, format, args);
    va_end(args);
}

char *hd_text_take(hd_text *text)
{
    char *bytes;

    hd_text_add(text, "", 0); // an empty text is a text too
    bytes = text->failed ? NULL : text->bytes;
    if (bytes != NULL)
        text->bytes = NULL;
    hd_text_free(text);
    return bytes;
}

const char *hd_bytes_text(double bytes, char out[32])
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    int unit = 0;

    for (; bytes >= 1000 && unit < 5; unit++)
        bytes /= 1000;
    snprintf(out, 32, "%.3g %s", bytes, units[unit]);
    return out;
}

void hd_text_free(hd_text *text)
{
    free(text->bytes);
    *text = (hd_text){0};
}
