// Ops of which data decides what goes where, an element of the batch at a time.
#ifndef HD_RUNTIME_CPU_PICK_H
#define HD_RUNTIME_CPU_PICK_H

#include "ir/walk.h"

HD_BEGIN_DECLS

// Computes one verified step of family PICK. base[i] is the address of the root
// buffer of span[i]. It needs no room.
void hd_cpu_pick(const hd_step *step, void *const *base);

HD_END_DECLS

#endif
