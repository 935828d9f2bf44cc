// Who meets whom in a transfer, and what each lets the other touch: the one
// place that knows how collectives are made of one-sided copies. Drivers follow
// it for the layout of what peers share and for what they issue.
//
// Two ranks number what passes between them alike: each rendezvous has a slot
// in the pair's list, the same on both sides.
#ifndef HD_RUNTIME_RENDEZVOUS_H
#define HD_RUNTIME_RENDEZVOUS_H

#include "runtime/driver.h"

HD_BEGIN_DECLS

// A buffer on one rank, by id.
typedef struct hd_root {
    const hd_buffer *buffer; // borrowed
    bool shared;             // it, or another name of its bytes
    size_t bytes;            // 0 for another name, and for what no step names
    size_t offset;           // where the driver has put it
    int argument;            // its position, -1 for a temp
    void *fixed; // of a shared argument: where it is in every run, or NULL
} hd_root;

// Where a peer finds a fixed argument is told as any place in the window is, by
// an offset: that of no window, for which the argument's number stands.
#define HD_FIXED_SHIFT 48
static inline uint64_t hd_fixed_offset(int argument)
{
    return (uint64_t)(argument + 1) << HD_FIXED_SHIFT;
}

// The argument that an offset lies in, -1 for the window; and where.
static inline int hd_offset_fixed(uint64_t offset)
{
    return (int)(offset >> HD_FIXED_SHIFT) - 1;
}

static inline uint64_t hd_offset_within(uint64_t offset)
{
    return offset & (((uint64_t)1 << HD_FIXED_SHIFT) - 1);
}

hd_status hd_roots_list(const hd_binding *binding, hd_diag *diag, hd_root **out,
                        int *narguments);

// A send that does not hold up its stream.
static inline bool hd_step_defers(const hd_step *step)
{
    return hd_op_key(step->op, HD_KEY_DONE) != NULL;
}

// Whether ranks bring operands that are joined.
static inline bool hd_step_joins(const hd_step *step)
{
    return hd_op_move(step->op) != HD_MOVE_NONE &&
           hd_op_fold(step->op) != HD_FOLD_NONE;
}

// Whether this rank joins them: of a reduce the root alone.
static inline bool hd_step_reduces(const hd_step *step)
{
    return hd_step_joins(step) &&
           (!hd_op_is_rooted(step->op) || step->peer == step->rank);
}

// A place in a buffer. Its address is settled by the run.
typedef struct hd_location {
    int buffer; // id of the root
    size_t offset;
} hd_location;

// Index `i` of a span whose first dimension counts the ranks of an axis, or the
// whole of it if `i` is -1.
typedef struct hd_piece {
    hd_location place;
    size_t bytes;
} hd_piece;
hd_piece hd_piece_of(const hd_span *span, int64_t i);
bool hd_pieces_overlap(hd_piece a, hd_piece b);

typedef enum hd_side {
    HD_SIDE_NONE,
    HD_SIDE_OFFER, // signals "ready", waits for "done": memory that a peer
                   // touches
    HD_SIDE_PUT,   // waits for "ready", copies to the peer, signals "done"
    HD_SIDE_PULL,  // waits for "ready", copies from the peer, signals "done"
    HD_SIDE_READ, // waits for "ready"; "done" is signalled once all are reduced
} hd_side;

// What passes between this rank and one peer in a transfer: one side of it. A
// collective has one or two with each peer.
typedef struct hd_rendezvous {
    hd_side side;
    int peer;
    bool collective;
    bool upward;       // from the lower to the higher rank
    uint64_t index;    // among the pair's of that kind
    hd_location place; // OFFER: what the peer may touch; PUT, PULL: ours
    size_t bytes;
    uint64_t kind; // what this side does
    uint64_t want; // what the other must do
} hd_rendezvous;

typedef hd_status hd_rendezvous_fn(hd_device *device, const hd_step *step,
                                   const hd_rendezvous *rendezvous,
                                   hd_diag *diag, void *context);

// Calls `fn` with each rendezvous of a transfer. The peers of a collective come
// in the order of their distance from this rank, so that all ranks put to
// different ones at a time. HD_ERROR_UNSUPPORTED if what moves is not one
// contiguous range of memory.
hd_status hd_rendezvous_each(hd_device *device, const hd_binding *binding,
                             const hd_step *step, hd_diag *diag,
                             hd_rendezvous_fn *fn, void *context);

// What one side of a rendezvous says of itself in its slot.
typedef struct hd_offer {
    uint64_t offset; // what the peer may touch: in its window, or fixed
    uint64_t bytes;  // likewise; 0 for nothing
    uint64_t kind;   // what this side does, for the peer to compare
} hd_offer;

// Ours, of a buffer that lies in the window or is fixed.
hd_status hd_offer_fill(const hd_root *roots, const hd_step *step,
                        const hd_rendezvous *rendezvous, hd_diag *diag,
                        hd_offer *out);

// HD_ERROR_INVALID unless both do the same, and HD_ERROR_PEER unless what is
// offered fits into so many bytes: of the other's window, or of its fixed
// argument.
hd_status hd_rendezvous_compare(int rank, const hd_step *step,
                                const hd_rendezvous *rendezvous,
                                const hd_offer *other, uint64_t room,
                                hd_diag *diag);

// Copies of this rank's own piece in a collective; false if it has none.
bool hd_rendezvous_own(const hd_binding *binding, const hd_step *step,
                       hd_piece *to, hd_piece *from);

// What passes between this rank and one peer in a run.
typedef struct hd_pair {
    uint64_t up, down;    // sends and recvs: lower to higher rank, and back
    uint64_t collectives; // that both take part in
} hd_pair;

// Counts a step into the pairs, by rank.
void hd_pair_count(const hd_binding *binding, const hd_step *step,
                   hd_pair *pairs);
uint64_t hd_pair_slots(const hd_pair *pair);
uint64_t hd_pair_slot(const hd_pair *pair, const hd_rendezvous *rendezvous);
// HD_ERROR_INVALID unless the peer counted the same; HD_ERROR_PEER unless its
// slots lie in its window of `bytes`, from `slots` on, behind the first `head`
// bytes.
hd_status hd_pair_compare(const hd_binding *binding, int peer,
                          const hd_pair *mine, const hd_pair *theirs,
                          hd_diag *diag);
hd_status hd_pair_check(const hd_pair *pair, int peer, uint64_t slots,
                        uint64_t bytes, uint64_t head, hd_diag *diag);
#define HD_SLOT_BYTES 64 // of each driver's

// What this rank and a peer must say alike of the lists that they have in
// common, and of one rendezvous in it: as numbers of which the peer's are the
// negatives.
uint64_t hd_pair_digest(int rank, int peer, const hd_pair *pair);
uint64_t hd_rendezvous_digest(int rank, const hd_rendezvous *rendezvous,
                              uint64_t slot);

HD_END_DECLS

#endif
