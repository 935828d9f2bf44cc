// Ways to do a statement of a tensor program, and the versions that there are
// of its tensors: what `place` chooses among, and writes out.
#ifndef HD_LOWER_VERSION_H
#define HD_LOWER_VERSION_H

#include "lower/lines.h"
#include "lower/pass.h"

HD_BEGIN_DECLS

// One way to do a statement.
typedef struct hd_way {
    hd_cut cut;
    hd_placement at[HD_MAX_VIEWS]; // what its views keep, then
    // Where the sums of parts are put at once, since more is done to them; only
    // if `ends`: else they are added up where they are first read.
    bool ends;
    hd_placement end;
    int64_t work;
    hd_moves arrives; // what comes while it is done, or behind it to be merged
    bool apart;       // what it accumulates is made elsewhere, and added where
                      // its results are
    bool names;       // its result is another name of its operand's values
    unsigned own; // views, as bits, of what one rank has of a dimension over
                  // ranks, which does the statement
} hd_way;

// Where one version of a tensor is. All of one have the same values.
typedef struct hd_placed {
    int tensor; // its buffer's id
    hd_placement at;
    int64_t since; // when it is there; of parts: when the product begins that
                   // makes them
    hd_buffer *buffer; // while it is written out; NULL of a fold not begun
    const hd_op *fold; // of such a one, by the views that it reads; NULL of
                       // parts that are there
} hd_placed;

typedef struct hd_versions {
    hd_placed *version;
    int n, room;
} hd_versions;

// Of each view of a statement, what of its moves is waited for.
typedef struct hd_waits {
    int64_t view[HD_MAX_VIEWS];
} hd_waits;

// Of a program: what its statements are and where its tensors are declared.
typedef struct hd_placing {
    hd_module *module;
    hd_arena *scratch;
    int nstmts;
    const hd_lines *lines; // of each statement
    const hd_way **way;    // chosen
    const int *joins; // of each: the product that adds its other operand if it
                      // adds parts, or -1; of that product this statement
    hd_placement *base; // by buffer id, of what is declared
    const int *last;    // by buffer id: the last statement that reads it, or
                        // that writes a part of an open one
    bool *open;         // by buffer id: the text does not say where it lies
    const bool *narrow; // by buffer id: the text says a narrow dtype, of which
                        // its values are
    const unsigned *pieces; // by buffer id, of open ones: dimensions of which
                            // statements write a part, so that they stay whole
    int nbuffers;           // of the text
    bool exact;             // no state was left out, and no way
    bool why;               // comments are wanted
    hd_diag *diag;
    const char **reason;   // of each statement then
    const hd_waits *waits; // of each statement
} hd_placing;

// Whether what is accumulated apart is merged with what is there.
bool hd_way_merges(const hd_way *way, const hd_op *op);
// Whether view `i` is read where the statement has it: what it adds to stays.
bool hd_way_brings(const hd_way *way, const hd_op *op, int i);

// A view's placement as its buffer's, and what a view keeps of a buffer's.
hd_placement hd_place_of_buffer(const hd_view *view, hd_placement kept);
hd_placement hd_place_of_view(const hd_view *view, hd_placement whole);
static inline bool hd_place_is_open(const hd_placing *p,
                                    const hd_buffer *buffer)
{
    return buffer->id < p->nbuffers && p->open[buffer->id];
}
static inline bool hd_place_is_narrow(const hd_placing *p,
                                      const hd_buffer *buffer)
{
    return buffer->id < p->nbuffers && p->narrow[buffer->id];
}
// Of an open one, whether statements write parts of it.
static inline bool hd_place_in_pieces(const hd_placing *p,
                                      const hd_buffer *buffer)
{
    return hd_place_is_open(p, buffer) && p->pieces[buffer->id] != 0;
}
// Where an open tensor lies of which a view is written: as the parts before it
// do, or as the first one is made, what statements write a part of aside.
hd_placement hd_place_of_pieces(const hd_placing *p,
                                const hd_versions *versions,
                                const hd_view *view, hd_placement made);
// One more, but where the tensor is declared, which is there without.
void hd_versions_add(const hd_placing *p, hd_versions *to, hd_placed v);
void hd_versions_drop(hd_versions *from, int i);
// All of a tensor.
void hd_versions_forget(hd_versions *from, int tensor);
// The version of a tensor that has parts there; -1 without one.
int hd_place_parts(const hd_versions *versions, int tensor, hd_placement at);
// The version to bring a tensor from, and what that takes; -1 of where it is
// declared.
int hd_place_source(const hd_placing *p, const hd_versions *versions,
                    const hd_buffer *tensor, hd_placement to, unsigned gathers,
                    hd_moves *out);
// Of what view `i` of a statement reads: dimensions of its buffer whose gather
// hides under it.
unsigned hd_place_gathers(const hd_lines *lines, int i);
// Whether a statement makes what is there under another name, as it is
// declared.
bool hd_place_is_name(const hd_placing *p, const hd_op *op);
// Moves of a product worth less than this, or of so many bytes, nobody is told
// of: a tenth of a millisecond on H200.
#define HD_PLACE_MUCH ((int64_t)32 << 20)

// What else is done to a product's sums.
bool hd_place_has_ends(const hd_op *op);
// Whether no more than a bias is added to them.
bool hd_place_adds_alone(const hd_op *op);
// Whether statement `n` as it is chosen is done to parts, and so by the product
// that it joins.
bool hd_place_joins(const hd_placing *p, int n);

HD_END_DECLS

#endif
