// Which records and waits of a list of commands say what others say too. Each
// command is on a stream, and those of a stream follow each other; a wait holds
// up its stream until another stream has come to the record of its event.
// Stream 0 is whose list it is: what it did before counts as a work, and where
// it stands at the end matters.
#ifndef HD_RUNTIME_ORDER_H
#define HD_RUNTIME_ORDER_H

#include "base/status.h"

HD_BEGIN_DECLS

typedef enum hd_order_kind {
    HD_ORDER_WORK,
    HD_ORDER_RECORD,
    HD_ORDER_WAIT,
} hd_order_kind;

typedef struct hd_order {
    hd_order_kind kind;
    int stream;    // from 0
    int event;     // from 0; of RECORD and WAIT
    bool needless; // set by hd_order_reduce, which may also have a WAIT wait
                   // for another event that is recorded at the same place
} hd_order;

// Marks what can be left out: then every work, and stream 0 at its end, comes
// after just the works that it came after before. An event has one record,
// which is in the list before its waits. Vector clocks, one a stream and one
// an event; time and memory are n * nstreams. HD_ERROR_NO_MEMORY, and nothing
// is marked, if memory runs out.
hd_status hd_order_reduce(hd_order *order, int n, int nstreams, int nevents);

// Puts onto stream 0 what other streams do that take turns with it anyway: each
// of their commands comes after all that came before it there, and the other
// way around. No work then comes after others than it did before, and what
// ordered these streams is needless. Passes over what is marked; `out` is how
// many streams there were.
hd_status hd_order_join(hd_order *order, int n, int nstreams, int nevents,
                        int *out);

HD_END_DECLS

#endif
