// A bump allocator: everything in it is freed at once. Allocation never returns
// NULL: when memory runs out it jumps to the `hd_arena_guard` of the public
// entry point, so whoever allocates from an arena holds nothing else just then.
#ifndef HD_BASE_ARENA_H
#define HD_BASE_ARENA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include "base/status.h"

HD_BEGIN_DECLS

typedef struct hd_arena hd_arena;

hd_arena *hd_arena_create(void); // NULL if memory runs out
void hd_arena_destroy(hd_arena *arena);

// Zeroed, aligned for any type. `bytes` may be 0.
void *hd_arena_alloc(hd_arena *arena, size_t bytes);
void *hd_arena_copy(hd_arena *arena, const void *from, size_t bytes);
// An array with room for one more than `n` elements of `size` bytes: as it is,
// or copied to where it has twice the room.
void *hd_arena_grow(hd_arena *arena, void *array, int n, int *room,
                    size_t size);
char *hd_arena_text(hd_arena *arena, const char *from, size_t length);
char *hd_arena_printf(hd_arena *arena, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Bytes handed out so far: what memory bounds are tested against.
size_t hd_arena_bytes(const hd_arena *arena);

// Where to go when memory runs out. The guard is set by a public entry point:
//
//   jmp_buf guard;
//   if (setjmp(guard) != 0) { ... undo; return HD_ERROR_NO_MEMORY; }
//   jmp_buf *outer = hd_arena_guard(arena, &guard);
//   ... work ...
//   hd_arena_guard(arena, outer);
//
// Returns the guard that was set before. With none set, running out aborts,
// which only a bug of ours can reach.
jmp_buf *hd_arena_guard(hd_arena *arena, jmp_buf *guard);

#define hd_new(arena, type) ((type *)hd_arena_alloc((arena), sizeof(type)))
// The caller has bounded n.
#define hd_new_array(arena, type, n) \
    ((type *)hd_arena_alloc((arena), sizeof(type) * (size_t)(n)))

HD_END_DECLS

#endif
