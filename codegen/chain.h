// Chains: element-wise steps that follow each other in one stream and that one
// kernel does, all of them for one element before the next. What a step writes
// and a later one reads then stays in a register.
#ifndef HD_CODEGEN_CHAIN_H
#define HD_CODEGEN_CHAIN_H

#include "codegen/length.h"

HD_BEGIN_DECLS

#define HD_CHAIN_STEPS 16
#define HD_CHAIN_VALUES 24 // at least those of one step

// Elements that steps of a chain have in common: equal numbers of a chain's
// elements lie at equal places.
typedef struct hd_chain_value {
    const hd_span *span;         // borrowed: of the first step that names it
    int64_t stride[HD_MAX_DIMS]; // along the chain's dimensions; 0 repeats it
    bool loaded;                 // read before a step of the chain writes it
    bool written;
    bool stored; // false if nobody ever reads what is written
} hd_chain_value;

// Of how many indices a chain's dimension is, and where a run says it, by which
// terms; a block of them from -2 down is this rank's along an axis.
typedef struct hd_chain_dim {
    hd_length length;
    hd_dim_terms terms;
} hd_chain_dim;

typedef struct hd_chain {
    int nsteps;
    const hd_step *step[HD_CHAIN_STEPS]; // borrowed
    int ndims; // those that have one index in every run are dropped
    hd_chain_dim dim[HD_MAX_DIMS];
    int nvalues;
    hd_chain_value value[HD_CHAIN_VALUES];
    int of[HD_CHAIN_STEPS][HD_MAX_VIEWS]; // numbers of the steps' values
} hd_chain;

// The longest chain that begins with step number `start` of a rank's list; of
// one step, or of none, if nothing may join it. Steps of other streams may lie
// in between. The list is that of hd_module_full: what is a chain at room is
// one in every run, and so is said once for all of them.
void hd_chain_find(const hd_steps *steps, int64_t start, hd_chain *out);

// All chains of a rank: each begins with the first step that is in none yet.
typedef struct hd_chains {
    bool *joined; // owned, by step: a chain's, but not its first
    bool *read;   // owned, by buffer: something reads it from memory
} hd_chains;

// False if memory runs out.
bool hd_chains_collect(const hd_steps *steps, int nbuffers, hd_chains *out);
void hd_chains_free(hd_chains *chains);

// hd_chain_find, without stores into temporaries that nothing reads.
void hd_chains_find(const hd_chains *chains, const hd_steps *steps,
                    int64_t start, hd_chain *out);

// A chain of the steps at room, as it is in the same list `now`.
hd_chain hd_chain_now(const hd_chain *chain, const hd_steps *room,
                      const hd_steps *now);

HD_END_DECLS

#endif
