// Memory of a group, and not of one of its sessions: where it comes from, and
// memory for arguments, for callers who have none of their own, and for
// arguments that are at one place in every run (hd_session_options.fixed).
#ifndef HEDDLE_MEMORY_H
#define HEDDLE_MEMORY_H

#include <heddle/heddle.h>

HD_BEGIN_DECLS

#define HD_ALLOCATOR_ALIGNMENT 256

// Where the caller has device memory of its own to give, as frameworks do:
// `alloc` gives `bytes`, above 0, of `device` ("cuda:3"), at a multiple of
// HD_ALLOCATOR_ALIGNMENT, with no work under way in it on any stream; `free`
// takes it back, with as many bytes, when none of heddle's is, and it may go to
// another stream's work at once. A status of `alloc` other than HD_OK is what
// the call that needed the memory ends with.
//
// Both are called on the thread that is in a call of the group or its sessions,
// with the device's context current: `alloc` by hd_session_create, which then
// fails on all ranks, and by the first run that packs an argument
// (hd_run_options.strides), which is refused and has not begun; `free` by
// these, hd_session_destroy, hd_group_trim and hd_group_destroy, after which
// nothing is left. No other run calls them, and no thread of the library's.
// Where several threads have sessions of the group, or ranks are threads of one
// process with one `context`, several are in them at once, and one may give
// back what another took: they guard what they share. They must neither throw,
// nor call the group or its sessions, nor wait for other ranks. What a device
// that has failed may still be working with is never given back.
typedef struct hd_allocator {
    size_t size;
    void *context;
    hd_status (*alloc)(void *context, const char *device, size_t bytes,
                       void **out);
    void (*free)(void *context, const char *device, void *memory, size_t bytes);
} hd_allocator;

// From now on what sessions of this group on cuda need of memory that no peer
// touches is the caller's: buffers, what kernels and products work with, packed
// arguments. NULL: as before, the driver's. What peers touch stays the
// driver's: to map it they need whole allocations that can be exported, which
// frameworks' memory is parts of. So does memory of hd_group_alloc and
// hd_session_alloc, a few bytes of a capturable session, what NCCL and cuBLASMp
// ask for, what is tried with while a session is made (`tune`), and pinned
// memory of the host. On the cpu, for sessions or transfers, nothing is asked
// for: what no peer sees is there as it is touched, and peers map the rest.
// Local, copied, and not for groups that are split from this one.
// HD_ERROR_ARGUMENT while the group has sessions or memory on a device; what
// else it keeps there is given back first.
HD_API HD_MUST_USE hd_status hd_group_set_allocator(
    hd_group *group, const hd_allocator *allocator, hd_diag *diag);

// Takes `bytes` of a device by its name in hd_session_options, of which runs of
// any session of the group on it take arguments. Local: other ranks need not
// call it. It begins at a multiple of 256, and holds anything at first. It is
// there until hd_group_free, or its group is destroyed; no run may use it then,
// of this rank or, where it is fixed, of another. "cuda" is, as for a session,
// that of the context which is current now. On the cpu each takes whole pages
// and a descriptor, as peers may map it: for what one session works with
// hd_session_alloc takes none, and asks for no device.
HD_API HD_MUST_USE hd_status hd_group_alloc(hd_group *group, const char *device,
                                            size_t bytes, hd_diag *diag,
                                            void **out);
// What hd_group_alloc of this group has given, or NULL. On cuda, where a peer's
// session has it for a fixed argument, it is freed when that is gone.
HD_API void hd_group_free(hd_group *group, void *memory);

HD_END_DECLS

#endif
