// CUDA C for the steps that no vendor library does: element-wise operations,
// reductions over a dimension, transposes, what indices take, copies of any
// stride, reductions over ranks, plain matmuls of any dtype, and epilogues.
// Everything but addresses and lengths that a run says is a constant in the
// text - extents, strides, dtypes, factors - so that the compiler sees it all;
// no name of the program's ever gets there.
//
// A kernel is `extern "C" __global__ void hd_kernel(const hd_kernel_args
// args)`, whose one parameter is `struct { u64 at[pointers], size[sizes]; }` by
// value, without `size` where there are none. Its threads are independent, but
// for those of hd_emit_spread, hd_emit_rows, hd_emit_oneshot, hd_emit_twoshot,
// hd_emit_words, hd_emit_join, and those for tensor cores: they neither share
// memory nor wait for one another.
//
// The step of a program with sizes (codegen/length.h) has the same text at each
// of their values; the grid, and `size` in it, are those of the step at hand.
// Where it has no elements, one block finds nothing to do. A sum over no index
// is 0, a maximum the least number of the dtype, a minimum the greatest.
#ifndef HD_CODEGEN_EMIT_H
#define HD_CODEGEN_EMIT_H

#include "codegen/attend.h"
#include "codegen/chain.h"
#include "codegen/kernel.h"
#include "ir/counts.h"

HD_BEGIN_DECLS

// The kernel of one step of unit COMPUTE, matmuls included (plainly, an output
// element a thread). at[i] is the address of the first element of span i of the
// step (its offset included), a view each. Of one that reads counts at[nviews]
// is that of an hd_kernel_miscount, and at[nviews + 1] the step's number.
hd_status hd_emit_step(const hd_step *step, hd_diag *diag, hd_text *out,
                       hd_kernel_grid *grid);

// The kernel of all steps of a chain. at[i] is the address of the first element
// of value i.
hd_status hd_emit_chain(const hd_chain *chain, hd_text *out,
                        hd_kernel_grid *grid);

// What follows a matmul whose product went to scratch memory: dense f32 (f64
// for an f64 product), rows by columns, at at[step->op->nviews]. Applies
// `scale`, `bias`, `aux`, `act` and `accumulate` as docs/semantics.md says, and
// stores.
hd_status hd_emit_epilogue(const hd_step *step, hd_diag *diag, hd_text *out,
                           hd_kernel_grid *grid);

// at[0][i] = at[1 + k][i] over k < operands joined by `fold`, in that order,
// for `elements` elements; accumulated in f32 (f64 and integers in their own
// type) and rounded once. at[0] may be one of the operands.
hd_status hd_emit_reduce(hd_dtype dtype, hd_fold fold, int operands,
                         hd_length elements, hd_diag *diag, hd_text *out,
                         hd_kernel_grid *grid);

// Where the device counts runs by itself: in its memory, all 0 before the
// first.
typedef struct hd_kernel_tally {
    uint32_t run;  // the number of the run that began last
    uint32_t busy; // it has not ended
    uint32_t over; // nobody waits for peers any more, whatever words say
    uint32_t unused;
} hd_kernel_tally;

// What a kernel tells peers is given to it: the number of the run. Of these it
// may be given the address of an hd_kernel_tally, which has the number.
#define HD_TURNS_OF_TALLY 0 // in place of a number of turns

// at[k][i] = at[copies][i] for `bytes` bytes and k < copies, on few SMs. When
// all of that can be seen by every device, the `flags` words of 32 bits at
// at[copies + 1 + f] become at[copies + 1 + flags], or what the tally there
// says. The word of 32 bits at at[copies + 2 + flags], in this device's memory,
// is 0 before and after: blocks that are done are counted there.
hd_status hd_emit_spread(int copies, int flags, bool tally, hd_length bytes,
                         hd_diag *diag, hd_text *out, hd_kernel_grid *grid);

// Copies the rows that are counted, where they lie, from at[1] to at[0], as
// hd_emit_spread does with its words: at[2 ..] are `flags` flags, what they
// become, and the counter. Behind these stand the address of the first slab's
// count, of an hd_kernel_miscount, the step's number, and that of the count
// among those that the step reads.
enum { HD_ROWS_POINTERS = 8 }; // beside the flags
hd_status hd_emit_rows(const hd_rows *rows, hd_dtype dtype, int flags,
                       bool tally, hd_text *out, hd_kernel_grid *grid);

// at[0][i] = at[1 + k][i] over k < ranks joined as by hd_emit_reduce, by a
// kernel that meets the peers by itself, of few blocks. Each group of words
// below has one of 32 bits for each of the ranks - 1 peers, in the same order.
// What is told is at[5 * ranks - 3]: a number, and what is waited for is that
// or one beyond it; where turns > 1 one of so many bits, and what is waited for
// is it or the next; with HD_TURNS_OF_TALLY the number is a tally's.
//     at[1 + ranks ..]        of the peers: told when the kernel begins
//     at[2 * ranks ..]        of ours: waited for before an operand is read
//     at[3 * ranks - 1 ..]    of the peers: told when their operands were read
//     at[4 * ranks - 2 ..]    of ours: waited for at the end
// The word behind what is told, in this device's memory, is 0 before and after.
// at[0] may be this rank's own operand only where no peer reads that.
hd_status hd_emit_oneshot(hd_dtype dtype, hd_fold fold, int ranks, int turns,
                          hd_length elements, hd_diag *diag, hd_text *out,
                          hd_kernel_grid *grid);
// The same where every rank joins `share` elements, a multiple of 16 bytes, or
// what is left of them for the last ranks, and puts the result to all peers.
// at[0] is all of the result; the operands, and what they are put to, begin
// with this rank's share.
//     at[1 ..]                operands, by rank
//     at[1 + ranks]           where the peers put theirs: all of a result
//     at[2 + ranks ..]        of the peers: where they have that
//     at[1 + 2 * ranks ..]    words, as above; what is told, at 6 * ranks - 3
// Behind the counter stands which element the share begins with. at[0] may be
// this rank's own operand: no rank reads of it but its share, and what the
// others read is written when they have told so.
hd_status hd_emit_twoshot(hd_dtype dtype, hd_fold fold, int ranks, int turns,
                          hd_length elements, hd_length share, hd_diag *diag,
                          hd_text *out, hd_kernel_grid *grid);
// Of the kernels' at[].
int hd_oneshot_pointers(int ranks);
int hd_twoshot_pointers(int ranks);

// Writes words of 32 bits, and waits for some, in an order: at[0] is the
// address of an hd_kernel_tally, each of the others that of a word plus what is
// done with it; the first that is 0 ends the list. What is written is the
// tally's number; what is waited for is that, one beyond it, or the tally being
// `over`.
enum {
    HD_WORD_WRITE,
    HD_WORD_WAIT,
    HD_WORD_BEGIN, // of the tally's own address: the next run begins
    HD_WORD_END,   // and this one ends
    HD_WORDS_ROOM = 32,
};
hd_status hd_emit_words(hd_text *out, hd_kernel_grid *grid);

HD_END_DECLS

#endif
