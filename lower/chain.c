// Of two sets, one behind the other,
//
//     %g = set %x                           %y = set %x
//     %y = set %g                   ->
//
// the first is left out where nothing else reads %g, and %x and %y are over an
// axis that %g is not over: what all ranks would get, each has its part of, and
// an exchange moves that.
#include "base/dtype.h"
#include "lower/build.h"
#include "lower/pass.h"

// What is known of a buffer, by id of its root.
typedef struct known {
    int names;   // other ones
    int written; // the last statement that did so, from 1
    hd_op *by;   // it
} known;

typedef struct chains {
    hd_module *module;
    known *known;
    const int *uses; // views in the whole program, by id of the root
} chains;

static known *known_of(const chains *c, const hd_view *view)
{
    return &c->known[hd_buffer_root(view->buffer)->id];
}

static bool is_over(const hd_type *type, int axis)
{
    return hd_type_axis_dim(type, axis) >= 0;
}

// Whether an axis comes back that was given up between the two.
static bool comes_back(const hd_module *module, const hd_type *from,
                       const hd_type *between, const hd_type *to)
{
    for (int axis = 0; axis < module->naxes; axis++)
        if (is_over(from, axis) && !is_over(between, axis) && is_over(to, axis))
            return true;
    return false;
}

// Whether all ranks have all of a temporary, which nothing else names.
static bool is_passed_on(const chains *c, const hd_view *view)
{
    const hd_buffer *buffer = view->buffer;
    const known *k = known_of(c, view);

    return view->nindex == 0 && buffer->role == HD_ROLE_TEMP &&
           buffer->of == NULL && buffer->by == NULL &&
           hd_ranks_are_all(buffer->on) && c->uses[buffer->id] == 2 &&
           k->names == 0 && k->by != NULL && k->by->code == HD_OP_SET &&
           k->by->view[0].nindex == 0;
}

// Whether the first of two sets may be left out: what it reads is as it was,
// and no part of what the last one writes, and the dtype between rounds nothing
// that the last one's does not.
static bool joins(const chains *c, const hd_op *op)
{
    hd_type from, between, to;
    const known *k;

    if (op->code != HD_OP_SET)
        return false;
    k = known_of(c, &op->view[1]);
    if (!is_passed_on(c, &op->view[1]) || k->by->view[1].buffer->by != NULL ||
        known_of(c, &k->by->view[1]) == known_of(c, &op->view[0]) ||
        known_of(c, &k->by->view[1])->written > k->written)
        return false;
    from = hd_view_type(&k->by->view[1]);
    between = hd_view_type(&op->view[1]);
    to = hd_view_type(&op->view[0]);
    return comes_back(c->module, &from, &between, &to) &&
           (between.dtype == to.dtype ||
            hd_dtype_holds(between.dtype, from.dtype));
}

static void note_writes(const chains *c, hd_op *op, int now)
{
    for (int i = 0; i < op->nviews; i++) {
        known *k = known_of(c, &op->view[i]);

        if (hd_op_access(op, i) == HD_ACCESS_READ)
            continue;
        k->written = now;
        k->by = op;
    }
}

void hd_join_sets(hd_module *module, hd_arena *scratch)
{
    chains c = {module, hd_new_array(scratch, known, module->nbuffers + 1),
                hd_module_count_views(module, scratch)};
    hd_block left = {0};
    hd_stmt *next;
    int now = 0;

    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        if (b->of != NULL)
            c.known[b->of->id].names++;
    for (hd_stmt *stmt = module->body.first; stmt != NULL; stmt = stmt->next) {
        hd_op *op = stmt->op;

        if (joins(&c, op)) {
            hd_op *first = known_of(&c, &op->view[1])->by;

            op->view[1] = first->view[1];
            first->code = HD_NOPS; // left out below
        }
        note_writes(&c, op, ++now);
    }
    for (hd_stmt *stmt = module->body.first; stmt != NULL; stmt = next) {
        next = stmt->next;
        if (stmt->op->code != HD_NOPS)
            hd_block_append(&left, stmt);
    }
    module->body = left;
}
