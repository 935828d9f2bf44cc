// How the ranks that make a session agree: on the program and the options, on
// whether all have done what each does alone, on where peers find what they
// touch, and on whether all are ready.
//
//   greet     one message to each peer: hashes of what must be the same, how
//             far this rank came, and what the driver tells
//   prepare   handles, if some rank needs any; then the drivers settle
//
// Either fails on all ranks or on none. Only where hashes differ is more
// exchanged: what differs, in words, is found together.
#ifndef HD_RUNTIME_AGREE_H
#define HD_RUNTIME_AGREE_H

#include "base/text.h"
#include "runtime/driver.h"
#include "runtime/ranks/group.h"

HD_BEGIN_DECLS

// What must be the same on all ranks.
typedef struct hd_bound {
    uint64_t program, options; // hashes
    uint64_t nlines;           // of the program's text; 0: nothing is known
} hd_bound;

// What a rank brings. All of it is borrowed, but for the text.
typedef struct hd_agreement {
    const hd_exchange *exchange;
    const hd_driver *driver;
    const hd_binding *binding;
    hd_device *device; // what has been allocated; else greet is given a failure
    hd_text text;      // owned: the program's
    hd_bound bound;
    hd_fit fit;                // this rank's; once all have met, that of all
    uint64_t handle_exchanges; // with peers
} hd_agreement;

// Takes down what must be the same. Without it greet says nothing of it.
hd_status hd_agree_bind(hd_agreement *agreement);
// The session is as `status` says on this rank: all ranks return HD_OK, or none
// does.
hd_status hd_agree_greet(hd_agreement *agreement, hd_status status);
// In its place where there is no memory for a session: needs none, and returns
// HD_ERROR_NO_MEMORY.
hd_status hd_agree_refuse(const hd_exchange *exchange, const char *why);
hd_status hd_agree_prepare(hd_agreement *agreement);
void hd_agree_end(hd_agreement *agreement);

HD_END_DECLS

#endif
