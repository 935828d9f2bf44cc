// The caller's allocator, called as its contract says (memory.h).
#ifndef HD_RUNTIME_ALLOCATOR_H
#define HD_RUNTIME_ALLOCATOR_H

#include <heddle/memory.h>

HD_BEGIN_DECLS

// What a group's caller has set for it; NULL if nothing.
const hd_allocator *hd_group_allocator(const hd_group *group);

// Memory of `device`, which begins at a multiple of HD_ALLOCATOR_ALIGNMENT.
// What the caller gives otherwise is given back, and refused with words, as is
// what it returns that is no status.
hd_status hd_allocator_take(const hd_allocator *allocator, const char *device,
                            int rank, size_t bytes, hd_diag *diag, void **out);
void hd_allocator_give(const hd_allocator *allocator, const char *device,
                       void *memory, size_t bytes);

HD_END_DECLS

#endif
