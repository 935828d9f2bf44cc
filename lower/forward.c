// Reshard packs what a collective moves where the dimension over ranks is not
// the first, and unpacks it likewise. In a loop, whose iterations have one
// index of that dimension, those copies are not needed: a temporary that only
// the loop computes with may as well lie as the packed one does.
//
//     %packed[j] = broadcast ..             %packed[j] = broadcast ..
//     %xg[:, j] = copy %packed[j]     ->
//     %y[:, j] = matmul %xg[:, j], ..       %y[:, j] = matmul %packed[j], ..
//
// Likewise where the first iteration begins what the others add to.
#include "lower/build.h"
#include "lower/pass.h"

// A copy between a tensor and one that lies otherwise, in a loop over j.
typedef struct packing {
    hd_buffer *plain, *packed;
    int from, to; // where j stands in either
} packing;

typedef struct forwarder {
    hd_module *module;
    hd_block *body;
    hd_expr j;
    const int *uses; // by buffer id, in the whole program
} forwarder;

static int index_of(const hd_view *view, hd_expr j)
{
    for (int i = 0; i < view->nindex; i++)
        if (hd_view_index(view, i) == j)
            return i;
    return -1;
}

// The same but for the place of one dimension, or of the pieces of one.
static bool is_moved(const hd_type *from, const hd_type *to, int at, int goal)
{
    int64_t n = to->dim[goal].extent;
    bool pieces = n != from->dim[at].extent;
    hd_type moved;

    if (to->ndims != from->ndims + pieces) // this is a part
        return false;
    moved = hd_type_in_pieces(from, at, n, goal);
    return moved.dtype == to->dtype && hd_type_same_dims(&moved, to);
}

// How a body uses a buffer.
typedef struct usage {
    const forwarder *f;
    const hd_buffer *buffer;
    int dim; // where j stands in it
    int uses, writes;
    bool otherwise; // by what does not compute, or at another index
} usage;

static void count_use(void *context, hd_op *op)
{
    usage *u = context;

    for (int i = 0; i < op->nviews; i++) {
        const hd_view *view = &op->view[i];

        if (view->buffer != u->buffer)
            continue;
        u->otherwise |=
            !hd_op_is(op, HD_UNIT_COMPUTE) || index_of(view, u->f->j) != u->dim;
        u->uses++;
        u->writes += hd_op_access(op, i) != HD_ACCESS_READ;
    }
}

// Nothing but statements of the loop that compute knows the buffer, each its
// own index of it, and one of them writes it.
static bool is_plain(const forwarder *f, const hd_buffer *buffer, int dim)
{
    usage u = {.f = f, .buffer = buffer, .dim = dim};

    hd_block_each(f->body, count_use, &u);
    return buffer->role == HD_ROLE_TEMP && buffer->of == NULL && !u.otherwise &&
           u.uses == f->uses[buffer->id] && u.writes == 1;
}

// Whether view `i` of the copy is of a tensor that may lie as the other does,
// which nothing but the copy and one statement knows.
static bool find_packing(const forwarder *f, const hd_op *copy, int i,
                         packing *out)
{
    const hd_view *plain = &copy->view[i], *packed = &copy->view[1 - i];

    *out = (packing){plain->buffer, packed->buffer, index_of(plain, f->j),
                     index_of(packed, f->j)};
    return out->from >= 0 && out->to >= 0 && out->from != out->to &&
           is_plain(f, out->plain, out->from) &&
           out->packed->role == HD_ROLE_TEMP && f->uses[out->packed->id] == 2 &&
           is_moved(&out->plain->type, &out->packed->type, out->from, out->to);
}

typedef struct renaming {
    hd_module *module;
    const packing *p;
} renaming;

static void rename_views(void *context, hd_op *op)
{
    const renaming *r = context;

    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].buffer == r->p->plain)
            op->view[i] = hd_view_in_pieces(r->module, op->view[i],
                                            r->p->packed, r->p->from, r->p->to);
}

// What an iteration begins, or adds to: both compute on the same.
static bool begins(const forwarder *f, const hd_stmt *stmt)
{
    return stmt->kind == HD_STMT_IF && stmt->otherwise.first != NULL &&
           stmt->a == hd_expr_binary(f->module, HD_EXPR_EQ, f->j,
                                     hd_expr_const(f->module, 0));
}

// Nothing is renamed where some ranks do what others do not.
static bool has_branches(const forwarder *f)
{
    for (const hd_stmt *s = f->body->first; s != NULL; s = s->next)
        if (s->kind != HD_STMT_OP && !begins(f, s))
            return true;
    return false;
}

void hd_forward(hd_module *module, hd_block *body, hd_expr j, const int *uses)
{
    forwarder f = {module, body, j, uses};
    hd_stmt **link = &body->first;
    packing p;

    if (has_branches(&f))
        return;
    body->last = NULL;
    while (*link != NULL) {
        const hd_op *op = (*link)->op;

        if ((*link)->kind == HD_STMT_OP && op->code == HD_OP_COPY &&
            !hd_op_has_ranges(op) && !hd_op_has_counts(op) &&
            (find_packing(&f, op, 0, &p) || find_packing(&f, op, 1, &p))) {
            renaming to = {module, &p};

            hd_block_each(body, rename_views, &to);
            *link = (*link)->next;
        } else {
            body->last = *link;
            link = &(*link)->next;
        }
    }
}
