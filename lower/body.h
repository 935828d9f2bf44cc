// The statements of a program's body, in an order in which as much as possible
// is computed while something travels. They are given in the order of the text:
// a loop that is ordered within, and everything else as it is.
#ifndef HD_LOWER_BODY_H
#define HD_LOWER_BODY_H

#include "lower/pass.h"

HD_BEGIN_DECLS

typedef struct hd_body hd_body;

// A loop that is ordered within.
typedef struct hd_ordered {
    hd_block block; // what begins it, and itself; its join is still to come
    bool forks;     // its streams wait for the caller's first
    bool moves;     // something travels
    bool syncs;     // it has events of the text's own
    hd_expr behind; // the stream of its last products, if those wait for
                    // nothing that travels; else HD_EXPR_NONE
} hd_ordered;

// Whether any collective stands outside of loops.
bool hd_body_has_collectives(const hd_module *module);
hd_body *hd_body_create(hd_module *module, hd_arena *scratch);
void hd_body_add(hd_body *body, hd_stmt *stmt);
void hd_body_add_loop(hd_body *body, const hd_ordered *loop);
// Makes them the module's body. With `split` collectives outside of loops go to
// the stream for transfers where something is computed beside them.
void hd_body_finish(hd_body *body, bool split, hd_effect *effect,
                    hd_diag *diag);

HD_END_DECLS

#endif
