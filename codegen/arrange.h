// In which order a nest's elements are taken.
#ifndef HD_CODEGEN_ARRANGE_H
#define HD_CODEGEN_ARRANGE_H

#include "codegen/nest.h"

HD_BEGIN_DECLS

// Rewrites the nest's dimensions. Returns how many elements along the last one
// are moved as one vector by an operand that does not repeat; 1: none are.
int hd_nest_arrange(hd_nest *nest);

// In no run more; and those of the step at hand.
int64_t hd_nest_room(const hd_nest *nest);
int64_t hd_nest_elements(const hd_nest *nest);

// The operand is the same along the last dimension.
static inline bool hd_nest_repeats(const hd_nest *nest, const hd_operand *o)
{
    return o->stride[nest->ndims - 1] == 0;
}

HD_END_DECLS

#endif
