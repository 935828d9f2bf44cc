#include "lower/pieces.h"

#include "ir/space.h"

typedef struct hd_piece_name {
    struct hd_piece_name *next;
    hd_buffer *buffer, *name;
    int dim;
    int64_t n;
} hd_piece_name;

// ------------------------------------------------------------- finding them

typedef struct search {
    const hd_stmt *loop;
    hd_piece_name found; // no name yet; no buffer: none is
    bool fits;           // each view has a piece
    bool mixed;          // one of a loop's pieces can have no name
} search;

static void check_use(void *context, hd_op *op)
{
    search *s = context;

    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].buffer == s->found.buffer)
            s->fits &= hd_view_blocks(&op->view[i], s->found.dim) == s->found.n;
}

// What the caller brings in an inout goes by its own name.
static bool has_name(hd_buffer *buffer)
{
    return buffer->by == NULL && buffer->type.ndims < HD_MAX_DIMS &&
           hd_buffer_root(buffer)->role != HD_ROLE_INOUT;
}

// Whether scales have other pieces than the operand that they are of, of which
// they may lack dimensions in front.
static bool scales_apart(const hd_op *op, int i)
{
    bool second = i == hd_op_key_view(op, HD_KEY_SCALE_B);
    const hd_view *scales = &op->view[i];
    const hd_view *of = &op->view[op->noutputs + second];
    int ahead = of->buffer->type.ndims - scales->buffer->type.ndims;
    bool apart = ahead < 0;

    for (int d = 0; d < of->buffer->type.ndims && !apart; d++)
        apart = (d < ahead ? 0 : hd_view_blocks(scales, d - ahead)) !=
                hd_view_blocks(of, d);
    return apart;
}

// Whether operand `i` repeats along pieces of the result, behind dimensions
// that would lie along the pieces' own; scales may, along those of an operand.
static bool repeats_behind(const hd_op *op, int i, int dim)
{
    int beside =
        hd_op_family(op) != HD_FAMILY_MOVE ? hd_space_beside(op, i, dim) : -1;

    if (hd_op_has_scales(op, i))
        return scales_apart(op, i);
    return (beside > 0 && op->view[i].buffer->type.dim[beside].extent == 1);
}

static void check_names(void *context, hd_op *op)
{
    search *s = context;

    for (int i = 0; i < op->nviews; i++)
        for (int d = 0; d < op->view[i].nindex; d++)
            if (hd_view_blocks(&op->view[i], d) > 0)
                s->mixed |= !has_name(op->view[i].buffer);
    for (int d = 0; d < op->view[0].nindex; d++)
        for (int i = 1; i < op->nviews; i++)
            if (hd_view_blocks(&op->view[0], d) > 0)
                s->mixed |= repeats_behind(op, i, d);
}

static bool fits(search *s, const hd_view *view, int dim)
{
    hd_buffer *buffer = view->buffer;

    s->found = (hd_piece_name){
        .buffer = buffer, .dim = dim, .n = hd_view_blocks(view, dim)};
    s->fits = s->found.n > 0 && has_name(buffer);
    if (s->fits)
        hd_stmt_each(s->loop, check_use, s);
    return s->fits;
}

static void look(void *context, hd_op *op)
{
    search *s = context;

    for (int i = 0; i < op->nviews; i++)
        for (int d = 0; d < op->view[i].nindex && !s->fits; d++)
            (void)fits(s, &op->view[i], d);
}

// ------------------------------------------------------------------- naming

typedef struct renaming {
    hd_module *module;
    const hd_piece_name *to;
} renaming;

static void rename_views(void *context, hd_op *op)
{
    const renaming *r = context;

    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].buffer == r->to->buffer)
            op->view[i] = hd_view_in_pieces(r->module, op->view[i], r->to->name,
                                            r->to->dim, r->to->dim);
}

// The name that the pieces have, in other loops, too.
static hd_piece_name *name_of(hd_pieces *all, const hd_piece_name *found)
{
    hd_piece_name *p = all->names;
    hd_type type;

    while (p != NULL && (p->buffer != found->buffer || p->dim != found->dim ||
                         p->n != found->n))
        p = p->next;
    if (p != NULL)
        return p;
    p = hd_new(all->scratch, hd_piece_name);
    *p = *found;
    type = hd_type_in_pieces(&p->buffer->type, p->dim, p->n, p->dim);
    p->name = hd_build_name(all->module, p->buffer, &type);
    p->next = all->names;
    all->names = p;
    return p;
}

void hd_pieces_name(hd_pieces *all, const hd_stmt *loop)
{
    search names = {.loop = loop};

    hd_stmt_each(loop, check_names, &names);
    while (!names.mixed) {
        search s = {.loop = loop};
        renaming r = {.module = all->module};

        hd_stmt_each(loop, look, &s);
        if (!s.fits)
            return;
        r.to = name_of(all, &s.found);
        hd_stmt_each(loop, rename_views, &r);
    }
}

// ------------------------------------------------------------------- undoing

// Whether the view picks one piece and has all of that.
static bool has_piece(const hd_view *view, int dim)
{
    return hd_view_picks(view, dim) && !hd_view_picks(view, dim + 1) &&
           hd_view_range(view, dim + 1) == NULL;
}

bool hd_pieces_join(const hd_pieces *all, hd_view *view, int dim)
{
    const hd_piece_name *p = all->names;

    while (p != NULL && (p->name != view->buffer || p->dim != dim))
        p = p->next;
    if (p == NULL || !has_piece(view, dim))
        return false;
    *view = hd_view_all_of(
        all->module, hd_view_without(all->module, *view, p->buffer, dim), dim);
    return true;
}

typedef struct undoing {
    hd_module *module;
    const hd_piece_name **by; // name, by its id
    bool *used;               // of buffers, by id
} undoing;

// A name may be of another name's buffer.
static void rename_back(void *context, hd_op *op)
{
    const undoing *u = context;

    for (int i = 0; i < op->nviews; i++) {
        hd_view *view = &op->view[i];
        const hd_piece_name *p = u->by[view->buffer->id];

        while (p != NULL && has_piece(view, p->dim)) {
            *view = hd_view_block(
                u->module, hd_view_without(u->module, *view, p->buffer, p->dim),
                p->dim, view->index[p->dim], p->n);
            p = u->by[p->buffer->id];
        }
        u->used[view->buffer->id] = true;
    }
}

void hd_pieces_undo(const hd_pieces *all)
{
    int room = all->module->nbuffers + 1;
    undoing u = {all->module,
                 hd_new_array(all->scratch, const hd_piece_name *, room),
                 hd_new_array(all->scratch, bool, room)};

    if (all->names == NULL)
        return;
    for (int i = 0; i < all->module->nbuffers; i++)
        u.used[i] = true;
    for (const hd_piece_name *p = all->names; p != NULL; p = p->next) {
        u.by[p->name->id] = p;
        u.used[p->name->id] = false;
    }
    hd_block_each(&all->module->body, rename_back, &u);
    hd_module_drop_temps(all->module, u.used);
}
