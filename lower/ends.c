// An addition behind a product is its bias, and an activation its `act`: what
// is done to an element while a product has it need not be stored for that, and
// read again.
//
// Where a product adds something already, what an addition behind it adds is
// for the first of those that add to each other:
//
//     %a = matmul ..              %a = matmul .. bias %r
//     %b = matmul ..              %b = matmul .. bias %a
//     %c = add %a, %b             %d = matmul .. bias %b
//     %d = matmul ..       =>
//     %e = add %c, %d
//     %f = add %e, %r
//
// So terms are added in another order, and rounded less often than the text has
// it: nothing else reads what is in between, and the text does not say that it
// is narrow.
#include "lower/ends.h"

#include "base/dtype.h"
#include "lower/build.h"

enum { NONE = -1, NEAR = 64 }; // statements further apart stay so

typedef struct ends {
    const hd_placing *p;
    hd_stmt **stmt; // in order, NULL of what a product does
    int n;
    int *by;          // by buffer id: which statement wrote it last, or NONE
    const int *views; // by buffer id: how many there are
    const bool *late; // likewise: it has yet to arrive
} ends;

static const hd_op *op_at(const ends *e, int n)
{
    return e->stmt[n]->op;
}

static bool are_alike(const hd_view *a, const hd_view *b)
{
    hd_type x = hd_type_unstreamed(hd_view_type(a));
    hd_type y = hd_type_unstreamed(hd_view_type(b));

    return x.dtype == y.dtype && hd_type_same_dims(&x, &y) &&
           hd_ranks_same(a->buffer->on, b->buffer->on);
}

// Whether more may be done to what the product makes, before that is stored.
static bool may_do_more(const hd_op *op)
{
    return op->code == HD_OP_MATMUL && hd_place_adds_alone(op) &&
           hd_op_key(op, HD_KEY_GROUPS) == NULL && !hd_op_has_counts(op) &&
           op->view[0].nindex == 0;
}

// Which product makes what a view has, all of it, for nothing but that; NONE.
static int maker_of(const ends *e, const hd_view *view)
{
    const hd_buffer *made = view->buffer;
    int n = e->by[made->id];

    return view->nindex == 0 && made->role == HD_ROLE_TEMP &&
                   made->of == NULL && e->views[made->id] == 2 && n >= 0 &&
                   !hd_place_is_narrow(e->p, made) && may_do_more(op_at(e, n))
               ? n
               : NONE;
}

// The first of the products that add to each other up to this one, which adds
// nothing yet; NONE where that is not one of them.
static int first_of(const ends *e, int n)
{
    while (n >= 0) {
        const hd_op *op = op_at(e, n);
        int bias = hd_op_key_view(op, HD_KEY_BIAS);

        if (bias < 0)
            return n;
        n = are_alike(&op->view[0], &op->view[bias])
                ? maker_of(e, &op->view[bias])
                : NONE;
    }
    return NONE;
}

// Whether a statement may be done where a product is that stands ahead of it.
static bool may_come(const ends *e, int n, int product)
{
    const hd_op *op = op_at(e, n);

    if (n - product > NEAR ||
        hd_op_uses(op_at(e, product), hd_buffer_root(op->view[0].buffer),
                   false))
        return false;
    for (int i = product + 1; i < n; i++)
        if (e->stmt[i] != NULL && hd_op_conflicts(op_at(e, i), op))
            return false;
    return true;
}

// Whether what statement `n` reads is there ahead of a product.
static bool is_there(const ends *e, const hd_view *view, int product, int n)
{
    const hd_buffer *root = hd_buffer_root(view->buffer);

    if (e->late[view->buffer->id] || n - product > NEAR)
        return false;
    for (int i = product; i < n; i++)
        if (e->stmt[i] != NULL && hd_op_uses(op_at(e, i), root, true))
            return false;
    return true;
}

// Whether it is added to each piece that the product makes: it has the same
// pieces, or none of its own.
static bool is_in_pieces_of(const hd_view *view, const hd_op *product)
{
    hd_type type = hd_view_type(view), made = hd_view_type(&product->view[0]);

    return hd_type_stream_dim(&type) < 0 || hd_type_same_dims(&type, &made);
}

// Another one with room for a key.
static hd_op *copy_at(const ends *e, int n)
{
    hd_block block = {0};
    hd_build b = {e->p->module, &block, e->stmt[n]->op->loc};

    e->stmt[n]->op = hd_build_copy(&b, e->stmt[n]->op);
    return e->stmt[n]->op;
}

// The product makes what statement `n` made of that.
static void take_result(ends *e, int n, int product)
{
    const hd_view *made = &op_at(e, n)->view[0];

    copy_at(e, product)->view[0] = *made;
    e->by[made->buffer->id] = product;
    e->stmt[n] = NULL;
}

// Operand `i` of an addition is what a product makes, and the other one its
// bias, or that of the first one that it adds to.
static bool join_sum(ends *e, int n, int i)
{
    const hd_op *sum = op_at(e, n);
    hd_view other = sum->view[3 - i];
    int product = maker_of(e, &sum->view[i]), first = first_of(e, product);

    if (first < 0 || !are_alike(&sum->view[i], &sum->view[0]) ||
        hd_view_type(&other).dtype != hd_view_type(&sum->view[i]).dtype ||
        hd_op_uses(sum, hd_buffer_root(other.buffer), true) ||
        !is_in_pieces_of(&other, op_at(e, first)) ||
        !is_there(e, &other, first, n) || !may_come(e, n, product))
        return false;
    hd_build_key_view(copy_at(e, first), HD_KEY_BIAS, other);
    take_result(e, n, product);
    return true;
}

static hd_act act_of(hd_map map)
{
    for (int act = HD_ACT_NONE + 1; act <= HD_ACT_SILU; act++)
        if (hd_act_map((hd_act)act) == map)
            return (hd_act)act;
    return HD_ACT_NONE;
}

// Whether it is a product of all that is contracted, not of a rank's part.
static bool is_whole(const hd_op *product)
{
    hd_type type[HD_MAX_VIEWS];
    hd_bound bound;

    for (int i = 0; i < product->nviews; i++)
        type[i] = hd_view_type(&product->view[i]);
    return hd_signature_fits(product, type, true, &bound, NULL) && !bound.parts;
}

// Whether it adds more than a row: with an activation behind that, cuBLASLt
// does it by way of memory, in f32.
static bool adds_matrix(const hd_op *product)
{
    int bias = hd_op_key_view(product, HD_KEY_BIAS);
    hd_type type;

    if (bias < 0)
        return false;
    type = hd_view_type(&product->view[bias]);
    return type.ndims > 1 &&
           hd_type_elements(&type) > type.dim[type.ndims - 1].extent;
}

static void join_act(ends *e, int n, hd_act act)
{
    const hd_view *view = op_at(e, n)->view;
    int product = maker_of(e, &view[1]);

    if (product < 0 || !are_alike(&view[0], &view[1]) ||
        !is_whole(op_at(e, product)) || adds_matrix(op_at(e, product)) ||
        !may_come(e, n, product))
        return;
    hd_build_put_key(copy_at(e, product), HD_KEY_ACT)->act = act;
    take_result(e, n, product);
}

static void join(ends *e, int n)
{
    const hd_op *op = op_at(e, n);
    hd_act act = hd_op_family(op) == HD_FAMILY_MAP && op->nviews == 2
                     ? act_of(hd_op_info_get(op->code)->map)
                     : HD_ACT_NONE;
    bool done = false;

    for (int i = 0; i < op->nviews; i++)
        if (hd_op_writes(op, i))
            e->by[op->view[i].buffer->id] = n;
    if (hd_op_has_counts(op))
        return;
    if (act != HD_ACT_NONE)
        join_act(e, n, act);
    else if ((op->code == HD_OP_ADD || op->code == HD_OP_SUM) &&
             op->ninputs == 2 && op->nviews == 3)
        for (int i = 2; i > 0 && !done; i--) // the later product, as a rule
            done = join_sum(e, n, i);
}

void hd_place_join_ends(const hd_placing *p, const bool *late)
{
    hd_module *module = p->module;
    ends e = {.p = p,
              .by = hd_new_array(p->scratch, int, module->nbuffers + 1),
              .views = hd_module_count_views(module, p->scratch),
              .late = late};

    for (const hd_stmt *s = module->body.first; s != NULL; s = s->next)
        e.n++;
    e.stmt = hd_new_array(p->scratch, hd_stmt *, e.n + 1);
    e.n = 0;
    for (hd_stmt *s = module->body.first; s != NULL; s = s->next)
        e.stmt[e.n++] = s;
    for (int i = 0; i <= module->nbuffers; i++)
        e.by[i] = NONE;
    for (int n = 0; n < e.n; n++)
        join(&e, n);
    module->body = (hd_block){0};
    for (int n = 0; n < e.n; n++)
        if (e.stmt[n] != NULL) {
            e.stmt[n]->next = NULL;
            hd_block_append(&module->body, e.stmt[n]);
        }
}
