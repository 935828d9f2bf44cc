// What an expression is on the ranks of a line of the mesh, which differ in
// their coordinate on one axis.
#ifndef HD_IR_ALONG_H
#define HD_IR_ALONG_H

#include "ir/arc.h"
#include "ir/module.h"

HD_BEGIN_DECLS

#define HD_MAX_PIECES 16
#define HD_MAX_ARCS 8

// With coordinate c, from `low` to before `past`: factor c + add.
typedef struct hd_along_piece {
    int64_t low, past;
    int64_t factor, add;
} hd_along_piece;

typedef struct hd_along {
    int n;
    hd_along_piece of[HD_MAX_PIECES];
} hd_along;

typedef struct hd_arcs {
    int n;
    hd_arc of[HD_MAX_ARCS];
} hd_arcs;

typedef struct hd_line {
    const hd_module *module;
    int axis;
    int64_t size;
    const hd_env *env;   // other coordinates, and loop variables
    const hd_along *let; // by variable; no pieces of one that is no let
} hd_line;

// Of the ranks of an arc, in their order. False if a rank has no value there,
// or where it takes too many pieces to say.
bool hd_along_eval(const hd_line *line, hd_expr expr, hd_arc arc,
                   hd_along *out);
// Of a rank that it is known of; false if it is not.
bool hd_along_value(const hd_along *along, int64_t coord, int64_t *out);
// The coordinate itself.
hd_along hd_along_coords(hd_arc arc, int64_t size);
// The ranks of `arc` with low <= value < past, and the others, in their order;
// it is known of all of them. False if they are too many arcs.
bool hd_along_within(const hd_along *value, int64_t low, int64_t past,
                     hd_arc arc, int64_t size, hd_arcs *in, hd_arcs *out);
// Likewise with from <= value < to.
bool hd_along_between(const hd_along *from, const hd_along *to, int64_t value,
                      hd_arc arc, int64_t size, hd_arcs *in, hd_arcs *out);
// Of how many ranks from the first one on it is one number.
int64_t hd_along_alike(const hd_along *along);
// The least and the greatest that it is.
void hd_along_bounds(const hd_along *along, int64_t *least, int64_t *most);
// The least and the greatest that `to` is more than `from`.
void hd_along_gap(const hd_along *from, const hd_along *to, int64_t *least,
                  int64_t *most);
// Whether it is (c + k) mod size on all those ranks, for one k; or, where they
// are one, whatever is from 0 to size - 1.
bool hd_along_turns(const hd_along *along, int64_t size, int64_t *k);

HD_END_DECLS

#endif
