// What the simulator asks of a machine: files, as JSON, and the one at hand.
#ifndef HD_TOOLS_MACHINE_H
#define HD_TOOLS_MACHINE_H

#include <heddle/simulate.h>

#include "tool.h"

// Reads `path`; NULL is the default machine. Every key that is there must be
// known and every key but `matmul`'s must be there.
outcome machine_open(const char *path, hd_machine *out);

// What is known of the machine at hand as far as a device goes, once somebody
// has asked.
typedef struct at_hand {
    const char *device; // borrowed
    bool spread;        // ranks are on other hosts too: what is measured here
                        // is not theirs, so it is the shipped machine
    bool known;
    hd_machine machine;
} at_hand;

// Calls `ask` in a process of its own, with memory that both see: where the
// driver of GPUs has started no ranks can be forked that use it.
outcome machine_apart(outcome (*ask)(void *at), void *shared);

// Says what is wrong with what is kept, and takes the shipped one.
outcome machine_here(at_hand *here, hd_machine *out);

#endif
