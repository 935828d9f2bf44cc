// The loops of a kernel: an index space, the operands that are walked with it,
// and what is done with one element of each.
#ifndef HD_CODEGEN_NEST_H
#define HD_CODEGEN_NEST_H

#include "codegen/kernel.h"
#include "codegen/prelude.h"
#include "ir/space.h"

HD_BEGIN_DECLS

// What an element's value is gathered by, before the function.
typedef enum hd_inner {
    HD_INNER_NONE,
    HD_INNER_FOLD, // over `walk` of one operand
    HD_INNER_DOT,  // the sum of the products of two, and of their scales
    HD_INNER_TAKE, // the code at the index along `walk` that another one says
    HD_INNER_IOTA, // where the element is along an operand
} hd_inner;

typedef struct hd_operand {
    int at; // number of its address
    hd_dtype dtype;
    bool write;  // the function gets a pointer to the code, else the code
    bool read;   // the code is loaded first; always, if it is not written
    bool walked; // by the inner loop, and the function does not get it
    bool picks;  // the i32 index of HD_INNER_TAKE; it does not get that either
    bool counts; // the nest's, which the function does not get
    bool dense;  // in the nest's order, whatever its lengths; no strides
    bool place;  // of HD_INNER_IOTA: no memory; its offset is that
    bool scales; // of HD_INNER_DOT: of so many iterations as `deep`; likewise
    int64_t stride[HD_MAX_DIMS]; // in elements; 0 repeats it
    int64_t block[HD_MAX_DIMS];  // of so many indices each; 0: of one
    int64_t walk;                // stride of the inner loop
    int64_t deep;
} hd_operand;

// How many indices of a dimension there are, of a step with the key COUNTS.
// Behind them nothing is read, and what is not read first is cleared.
typedef struct hd_nest_counts {
    int operand;   // of the nest: the count of each element; 0: there is none
    bool inner;    // of the inner loop
    bool folded;   // each iteration of that has a count of its own
    int64_t room;  // of the dimension
    int64_t times; // places that one index has: neighbours may be joined to it
    int64_t place[HD_MAX_DIMS];    // strides of an element's place
    hd_span span;                  // which counts the step reads, dimensions of
    hd_length length[HD_MAX_DIMS]; // so many
} hd_nest_counts;

typedef struct hd_nest {
    int ndims;
    hd_length length[HD_MAX_DIMS];
    int n;
    hd_operand operand[HD_KERNEL_POINTERS];
    int factor; // number of the address of an f32 that the function gets, or -1
    hd_inner inner;
    hd_fold fold;         // of HD_INNER_FOLD
    hd_length iterations; // of the inner loop
    int32_t start;        // the first index, of HD_INNER_TAKE and IOTA
    hd_lane lane;         // of the inner loop, and of the value that it yields
    bool roomy; // many operands: threads get more registers, if they need it
    hd_nest_counts counts;
} hd_nest;

// A nest over what the step's result has, with no operands yet, that reduces
// what the step does; and the space of it, at room.
hd_nest hd_nest_over(const hd_step *step, hd_space *space);
// Adds the operand of address `at` with strides along the nest's dimensions.
hd_operand *hd_nest_add(hd_nest *nest, int at, hd_dtype dtype,
                        const int64_t *stride);
// Adds span `i` of the step, whose address that is.
hd_operand *hd_nest_add_span(hd_nest *nest, const hd_step *step,
                             const hd_space *space, int i);
// Adds the counts of the step, if it has any, behind all other operands.
void hd_nest_add_counts(hd_nest *nest, const hd_step *step,
                        const hd_space *space);

// Writes the kernel that calls the function of body `body` for each element.
// Its parameters: c0, c1, .. for the operands but those walked and the counts;
// f, the factor, if there is one; x, the inner loop's value, if there is one.
hd_status hd_nest_emit(hd_nest *nest, const char *body, hd_text *out,
                       hd_kernel_grid *grid);

HD_END_DECLS

#endif
