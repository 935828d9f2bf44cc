// What a session asks of a device. A driver is one table, every method filled.
//
//   open -> alloc -> [tell, hear with every peer]
//   -> [export, import with every peer] -> prepare -> settle
//   then `run` as often as it is asked for, and `finish`; of a program that is
//   given sizes each run follows a variant that `vary` was told of before
//   close, at any point after open
//
// What `tell` says goes with the one message in which all ranks agree. Handles
// are exchanged only if on some rank the session needs more than the group has
// exchanged already; else all are agreed when that message has come, and
// `prepare` must not fail, unless `alloc` says that it may: what may fail
// belongs into `alloc`.
//
// `prepare` makes the program what the device repeats, so that a run names no
// step. It enqueues and returns: only `finish` and `await` block (and `run`, if
// the device's queue of runs is full). A step that fails later is reported by
// `finish`.
#ifndef HD_RUNTIME_DRIVER_H
#define HD_RUNTIME_DRIVER_H

#include "ir/transport.h"
#include "ir/walk.h"
#include "runtime/argument.h"
#include "runtime/call.h"
#include "runtime/range.h"

HD_BEGIN_DECLS

typedef struct hd_device hd_device; // each driver's own

// The sizes that runs may have had last, at most: more than runs that may be
// under way.
#define HD_VARIANTS 18

// What the device works for. Borrowed: outlives the device.
typedef struct hd_binding {
    hd_group *group;
    const hd_module *module; // with room for all sizes of runs
    const hd_steps *steps;   // of this rank, likewise
    const hd_ranges *ranges; // NULL if no tool listens
    const hd_callees *calls; // what the program calls
    double timeout;          // seconds that any wait for a peer may take
    double *times;           // NULL, or where steps note their start and end
    bool chaos;              // delay every stream at random
    uint64_t seed;           // by this
    const char *where; // what follows "NAME:" in the options' device, or ""
    hd_transport transport[HD_MAX_AXES]; // by axis of the mesh: none is AUTO
    bool graph;
    bool capturable;
    bool tune;
    bool deterministic;
    // NULL, or by argument its address in every run, NULL where that changes:
    // of the same arguments on all ranks.
    void *const *fixed;
} hd_binding;

// How a transfer travels.
static inline hd_transport hd_transport_of(const hd_binding *binding,
                                           const hd_step *step)
{
    return binding->transport[step->op->axis < 0 ? 0 : step->op->axis];
}

// Whether anything travels like this.
static inline bool hd_binding_uses(const hd_binding *binding,
                                   hd_transport transport)
{
    bool uses = false;

    for (int a = 0; a < binding->module->naxes; a++)
        uses |= binding->transport[a] == transport;
    return uses;
}

// Whether ranks that meet on an axis are on several hosts: the first two such.
bool hd_binding_spans(const hd_binding *binding, int axis, int *a, int *b);

// What a device of a session says before it has met its peers'.
typedef struct hd_fit {
    bool fits;       // it needs no handles of peers, nor they of it
    bool fails;      // `prepare` may fail all the same
    uint64_t digest; // of what passes between it and each peer, if it fits:
                     // those of all ranks add up to 0 if each two ranks say the
                     // same of what passes between them
} hd_fit;

#define HD_TOLD_BYTES 96

// What a rank tells a peer of where its session lies.
typedef struct hd_told {
    char bytes[HD_TOLD_BYTES]; // means something to the driver alone
} hd_told;

#define HD_HANDLE_BYTES 128

// How a peer gets at what this rank shares with it.
typedef struct hd_handle {
    char bytes[HD_HANDLE_BYTES]; // means something to the driver alone
    int fd;                      // -1 if it needs none
    int lease; // of a rank that sees who has it open (ranks/lease.h); or -1
} hd_handle;

typedef struct hd_driver {
    const char *name;
    hd_status (*open)(const hd_binding *binding, hd_diag *diag,
                      hd_device **out);
    // All memory that the program needs here.
    hd_status (*alloc)(hd_device *device, hd_diag *diag, hd_fit *out);
    void (*tell)(hd_device *device, int peer, hd_told *out);
    void (*hear)(hd_device *device, int peer, const hd_told *note);
    // The descriptors of `out` stay the device's.
    hd_status (*export_handle)(hd_device *device, int peer, hd_diag *diag,
                               hd_handle *out);
    // Takes those of `handle` over, whatever happens.
    hd_status (*import_handle)(hd_device *device, int peer,
                               const hd_handle *handle, hd_diag *diag);
    // Everything that can be settled before the first run.
    hd_status (*prepare)(hd_device *device, hd_diag *diag);
    // All ranks have prepared: from now on peers may write what is theirs, and
    // it is theirs until they are closed.
    void (*settle)(hd_device *device);
    // From now on variant `variant` is these sizes, with which `module` is the
    // program and `steps` its steps: those of the binding, some of other
    // lengths. No run that is under way has the variant; both are there until
    // the next call for it. `again`: an earlier run had these sizes, so that
    // what takes long to make is worth it; `better`: it would be, and was not
    // made.
    hd_status (*vary)(hd_device *device, int variant, const hd_module *module,
                      const hd_steps *steps, bool again, hd_diag *diag,
                      bool *better);
    // Memory in which argument `i` is dense: runs may be given it otherwise
    // from now on. A call for one that has it does nothing.
    hd_status (*pack)(hd_device *device, size_t i, hd_diag *diag);
    // `arguments` is one pointer an argument of the module, none of them NULL;
    // `passing`, for the call as they are, says how they lie: NULL if all are
    // dense, on the device. HD_ERROR_ARGUMENT refuses what was given: nothing
    // has begun. `variant` is -1 where runs are given no sizes. `captured` if
    // it is, or was to be, part of what the caller captures: then no run has
    // been issued.
    hd_status (*run)(hd_device *device, void *stream, void *const *arguments,
                     const hd_passing *passing, int variant, hd_diag *diag,
                     bool *captured);
    hd_status (*finish)(hd_device *device, hd_diag *diag);
    // Blocks until the first `run` runs are over, or the device has failed and
    // is at rest, which it returns: then it is `over`. Or until `deadline`
    // (hd_clock), or not at all if that is past. Any thread may call at any
    // time before close.
    hd_status (*await)(hd_device *device, uint64_t run, int64_t deadline,
                       hd_diag *diag, bool *over);
    // Fails the device in these words, unless it has failed already, and
    // returns what it has failed with, when it is at rest.
    hd_status (*fail)(hd_device *device, hd_status status, const char *text,
                      hd_diag *diag);
    // Memory for arguments, of a device that is prepared and at rest.
    hd_status (*take)(hd_device *device, size_t bytes, hd_diag *diag,
                      void **out);
    void (*give)(hd_device *device, void *memory);
    // Memory of the group's on such a device, of which peers can be told, until
    // it is reclaimed, or the group ends; and whether it was the driver's.
    hd_status (*lend)(hd_group *group, const char *where, size_t bytes,
                      hd_diag *diag, void **out);
    bool (*reclaim)(hd_group *group, void *memory);
    hd_status (*copy)(hd_device *device, void *to, const void *from,
                      size_t bytes, hd_diag *diag);
    // Adds what the device counts: allocations, host waits, bytes sent, matmul.
    void (*stats)(const hd_device *device, hd_stats *stats);
    // Takes a device that is open half way too.
    void (*close)(hd_device *device);
    // The number of its CUDA device; -1 on the cpu.
    int (*ordinal)(const hd_device *device);
} hd_driver;

extern const hd_driver hd_driver_cpu;
extern const hd_driver hd_driver_cuda;

// What a session on such a device runs on, NULL if there is none of that name;
// and what follows the colon of "cuda:3".
const hd_driver *hd_driver_find(const char *device);
const char *hd_driver_where(const char *device);

// The program of a session, and the number of its CUDA device, -1 on the cpu.
const hd_module *hd_session_module(const hd_session *session);
int hd_session_ordinal(const hd_session *session);

// hd_session_create on a driver of one's own.
hd_status hd_session_open(hd_group *group, const hd_module *module,
                          const hd_session_options *options,
                          const hd_driver *driver, hd_diag *diag,
                          hd_session **out);

HD_END_DECLS

#endif
