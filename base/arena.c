// A bump allocator over a list of blocks that double in size. What is handed
// out is zero; the rest of a block, which may be most of it, nobody touches.
#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct block {
    struct block *next;
    size_t used;
    size_t room;
    max_align_t bytes[];
} block;

struct hd_arena {
    block *blocks; // owned; the first one is filled
    size_t next_room;
    size_t bytes;
    jmp_buf *guard; // borrowed: where to go when memory runs out
};

enum {
    FIRST_ROOM = 16 << 10,
    LAST_ROOM = 1 << 20,
};

hd_arena *hd_arena_create(void)
{
    hd_arena *arena = calloc(1, sizeof *arena);

    if (arena != NULL)
        arena->next_room = FIRST_ROOM;
    return arena;
}

void hd_arena_destroy(hd_arena *arena)
{
    if (arena == NULL)
        return;
    for (block *b = arena->blocks, *next; b != NULL; b = next) {
        next = b->next;
        free(b);
    }
    free(arena);
}

_Noreturn static void run_out(const hd_arena *arena)
{
    if (arena->guard != NULL)
        longjmp(*arena->guard, 1);
    abort();
}

static block *add_block(hd_arena *arena, size_t bytes)
{
    size_t room = bytes > arena->next_room ? bytes : arena->next_room;
    block *b = malloc(sizeof *b + room);

    if (b == NULL)
        run_out(arena);
    *b = (block){.room = room};
    if (arena->next_room < LAST_ROOM)
        arena->next_room *= 2;
    // A block made for one big thing is full at once; what is left in the
    // current one stays in use.
    if (room == bytes && arena->blocks != NULL) {
        b->next = arena->blocks->next;
        arena->blocks->next = b;
    } else {
        b->next = arena->blocks;
        arena->blocks = b;
    }
    return b;
}

// Of whatever it holds.
static void *take(hd_arena *arena, size_t bytes)
{
    const size_t align = _Alignof(max_align_t);
    block *b = arena->blocks;
    void *memory;

    if (bytes > PTRDIFF_MAX / 2)
        run_out(arena);
    bytes = (bytes + align - 1) / align * align;
    if (b == NULL || b->room - b->used < bytes)
        b = add_block(arena, bytes);
    memory = (char *)b->bytes + b->used;
    b->used += bytes;
    arena->bytes += bytes;
    return memory;
}

void *hd_arena_alloc(hd_arena *arena, size_t bytes)
{
    return memset(take(arena, bytes), 0, bytes);
}

void *hd_arena_copy(hd_arena *arena, const void *from, size_t bytes)
{
    void *to = take(arena, bytes);

    if (bytes > 0)
        memcpy(to, from, bytes);
    return to;
}

void *hd_arena_grow(hd_arena *arena, void *array, int n, int *room, size_t size)
{
    void *grown;

    if (n < *room)
        return array;
    *room = *room > 0 ? 2 * *room : 16;
    grown = hd_arena_alloc(arena, size * (size_t)*room);
    if (n > 0)
        memcpy(grown, array, size * (size_t)n);
    return grown;
}

char *hd_arena_text(hd_arena *arena, const char *from, size_t length)
{
    char *to = hd_arena_alloc(arena, length + 1);

    if (length > 0)
        memcpy(to, from, length);
    return to;
}

char *hd_arena_printf(hd_arena *arena, const char *format, ...)
{
    va_list args;
    int length;
    char *text;

    va_start(args, format);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        run_out(arena);
    text = hd_arena_alloc(arena, (size_t)length + 1);
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}

size_t hd_arena_bytes(const hd_arena *arena)
{
    return arena->bytes;
}

jmp_buf *hd_arena_guard(hd_arena *arena, jmp_buf *guard)
{
    jmp_buf *outer = arena->guard;

    arena->guard = guard;
    return outer;
}
