// Whoever calls a rank that listens, until it has said who it is. A stranger,
// and anybody who says what ranks do not, is hung up on; silent ones keep
// nobody out.
#ifndef HD_RUNTIME_RANKS_CALLERS_H
#define HD_RUNTIME_RANKS_CALLERS_H

#include "runtime/ranks/frame.h"

HD_BEGIN_DECLS

// Callers that have not said who they are. One more sends the first away.
#define HD_CALLERS 64

typedef struct hd_callers {
    uint64_t secret;          // of our ranks
    int rank;                 // that is called here
    int listener;             // owned; -1 if not listening
    unsigned next;            // the one who gives way
    hd_wire wire[HD_CALLERS]; // owned
} hd_callers;

// In place, since it is too large for a small stack. What is open is closed by
// hd_callers_close alone.
void hd_callers_init(hd_callers *callers, int rank);
void hd_callers_close(hd_callers *callers);

// What is to be waited for, HD_CALLERS + 1 at most; returns how many.
int hd_callers_ask(const hd_callers *callers, struct pollfd *ask);
// The next one that has said a hello to us, without blocking: its connection is
// the caller's to close, and -1 if there is none. Who it says to be, and one of
// how many, is not looked at. HD_ERROR_SYSTEM with errno if this process has no
// descriptor for another one.
hd_status hd_callers_accept(hd_callers *callers, hd_wire *out);

HD_END_DECLS

#endif
