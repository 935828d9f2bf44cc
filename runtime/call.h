// The functions of the caller's that a program calls, found before it runs, and
// how a step is handed to one.
#ifndef HD_RUNTIME_CALL_H
#define HD_RUNTIME_CALL_H

#include <heddle/call.h>

#include "ir/walk.h"
#include "runtime/ranks/group.h"

HD_BEGIN_DECLS

typedef struct hd_callee {
    const char *name; // borrowed from the module
    hd_call_fn *fn;
    void *context; // borrowed
} hd_callee;

typedef struct hd_callees {
    hd_callee *callee; // owned
    int n;
} hd_callees;

// Those of all calls of a module. One that the table lacks is
// HD_ERROR_ARGUMENT, with its line.
hd_status hd_callees_create(const hd_module *module, const hd_call *table,
                            size_t n, hd_diag *diag, hd_callees *out);
void hd_callees_free(hd_callees *callees);
// Which of them the op calls.
int hd_callees_find(const hd_callees *callees, const hd_op *op);

// Where a step is done.
typedef struct hd_call_place {
    const char *device;
    void *stream;
} hd_call_place;

// Calls it for the step, of which address[i] is view i's first element; not if
// there is nothing to do. `text` is what a failure says.
hd_status hd_callee_call(const hd_callee *callee, const hd_module *module,
                         const hd_step *step, hd_call_place place,
                         void *const *address, char text[HD_GROUP_TEXT]);

HD_END_DECLS

#endif
