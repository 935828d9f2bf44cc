#include "lower/pipe.h"

#include <assert.h>
#include <string.h>

#include "ir/signature.h"
#include "ir/space.h"

struct hd_alias {
    hd_alias *next;
    hd_buffer *buffer, *split;
    int dim;
};

// ------------------------------------------------------------- expressions

hd_expr hd_pipe_number(const hd_pipe *p, int64_t value)
{
    return hd_expr_const(p->module, value);
}

hd_expr hd_pipe_binary(const hd_pipe *p, hd_expr_kind kind, hd_expr a,
                       hd_expr b)
{
    return hd_expr_binary(p->module, kind, a, b);
}

hd_expr hd_pipe_rank(const hd_pipe *p)
{
    return hd_expr_coord(p->module, p->axis);
}

hd_expr hd_pipe_around(const hd_pipe *p, hd_expr_kind kind, hd_expr a,
                       hd_expr b)
{
    return hd_expr_mod(p->module, hd_pipe_binary(p, kind, a, b),
                       hd_pipe_number(p, p->ranks));
}

hd_expr hd_trip_step(const hd_trip *t)
{
    return t->step;
}

hd_expr hd_trip_shard(const hd_trip *t)
{
    return t->at.shard;
}

hd_expr hd_trip_shard_below(const hd_trip *t)
{
    return hd_pipe_around(t->p, HD_EXPR_SUB, t->at.shard,
                          hd_pipe_number(t->p, 1));
}

hd_expr hd_trip_right(const hd_trip *t)
{
    return hd_pipe_around(t->p, HD_EXPR_ADD, hd_pipe_rank(t->p),
                          hd_pipe_number(t->p, 1));
}

hd_expr hd_trip_left(const hd_trip *t)
{
    return hd_pipe_around(t->p, HD_EXPR_SUB, hd_pipe_rank(t->p),
                          hd_pipe_number(t->p, 1));
}

hd_expr hd_trip_is_first(const hd_trip *t)
{
    return t->p->chunks == 1
               ? hd_pipe_binary(t->p, HD_EXPR_EQ, t->j, hd_pipe_number(t->p, 0))
               : hd_pipe_binary(t->p, HD_EXPR_LT, t->j,
                                hd_pipe_number(t->p, t->p->chunks));
}

hd_expr hd_trip_is_before_end(const hd_trip *t)
{
    return hd_pipe_binary(t->p, HD_EXPR_LT, t->j,
                          hd_pipe_number(t->p, hd_pipe_end_of_exchanges(t->p)));
}

hd_expr hd_trip_is_past_end(const hd_trip *t)
{
    return hd_pipe_binary(t->p, HD_EXPR_LE,
                          hd_pipe_number(t->p, hd_pipe_end_of_exchanges(t->p)),
                          t->j);
}

// ------------------------------------------------------------------ chunks

// What has counts has them by its other name, too: their own, where a dimension
// of theirs is split. What they count is not.
static hd_buffer *split_buffer(hd_pipe *p, hd_buffer *buffer, int dim)
{
    hd_buffer *counts = buffer->by;
    hd_type type;
    hd_alias *a;

    for (a = p->aliases; a != NULL; a = a->next)
        if (a->buffer == buffer && a->dim == dim)
            return a->split;
    assert(dim >= 0 && buffer->type.dim[dim].extent % p->chunks == 0);
    if (counts != NULL && dim < counts->type.ndims)
        counts = split_buffer(p, counts, dim);
    type = hd_type_with(&buffer->type, dim, hd_dim_whole(p->chunks));
    type.dim[dim + 1].extent /= p->chunks;
    a = hd_new(p->scratch, hd_alias);
    *a = (hd_alias){.next = p->aliases, .buffer = buffer, .dim = dim};
    a->split = hd_module_add_buffer(
        p->module, hd_arena_printf(p->scratch, "%s_c", buffer->name),
        HD_ROLE_TEMP, &type);
    a->split->said = buffer->said;
    a->split->of = hd_buffer_root(buffer);
    a->split->by = counts;
    a->split->counted = buffer->counted + (dim < buffer->counted);
    p->aliases = a;
    return a->split;
}

bool hd_pipe_ends_in_trips(const hd_trips *s)
{
    return s->move != NULL && (s->to == NULL || s->relays);
}

bool hd_pipe_begins(const hd_pipe *p, const hd_op *op)
{
    for (int i = 0; i < p->nbegun; i++)
        if (p->begun[i] == op)
            return true;
    return false;
}

// What is begun is there twice.
int hd_pipe_count_uses(const hd_pipe *p, const hd_stmt *end,
                       const hd_buffer *buffer)
{
    int n = 0;

    for (const hd_stmt *s = p->ops; s != end; s = s->next)
        for (int i = 0; i < s->op->nviews; i++)
            if (hd_buffer_root(s->op->view[i].buffer) == buffer)
                n += 1 + hd_pipe_begins(p, s->op);
    return n;
}

// By this name, whether it is the buffer's own or one of its pieces.
bool hd_pipe_is_alone(const hd_pipe *p, hd_buffer *buffer)
{
    const hd_buffer *root = hd_buffer_root(buffer);

    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        for (int i = 0; i < s->op->nviews; i++)
            if (s->op->view[i].buffer != buffer &&
                hd_buffer_root(s->op->view[i].buffer) == root)
                return false;
    return root->role == HD_ROLE_TEMP &&
           hd_pipe_count_uses(p, NULL, root) == p->uses[root->id];
}

bool hd_pipe_is_reduced_once(const hd_pipe *p, const hd_moved *m)
{
    hd_buffer *partial = m->from->buffer;

    for (int i = 0; i < p->nmoved; i++)
        if (p->moved[i].op != m->op && p->moved[i].from->buffer == partial)
            return false;
    return hd_pipe_is_alone(p, partial);
}

// Whether trips use it, and what comes outside of them too, which names it
// whole.
static bool is_used_beyond(const hd_pipe *p, const hd_buffer *root)
{
    int in_trips = hd_pipe_count_uses(
        p, hd_pipe_ends_in_trips(p->schedule) ? NULL : p->behind, root);

    return in_trips > 0 && in_trips != p->uses[root->id];
}

// Whether chunks can split dimension `dim` of what the view is of.
static hd_status check_split(hd_pipe *p, const hd_view *view, int dim,
                             hd_loc loc)
{
    const hd_type *type = &view->buffer->type;
    const hd_buffer *root = hd_buffer_root(view->buffer);

    // Chunks go by a name of their own, and what the caller has brought by the
    // argument's, which thereby ends (HD0807).
    if (root->role == HD_ROLE_INOUT && is_used_beyond(p, root))
        return hd_error(p->diag, HD_E0502, loc,
                        "%lld chunks: %%%s is an inout argument that is also "
                        "used outside of this loop",
                        (long long)p->chunks, root->said);
    if (hd_view_range(view, dim) != NULL || hd_view_picks(view, dim))
        return hd_error(p->diag, HD_E0502, loc,
                        "%lld chunks: they would split dimension %d of "
                        "%s%%%s, of which this takes a part",
                        (long long)p->chunks, dim,
                        hd_build_part_of(view->buffer), view->buffer->said);
    if (dim >= type->ndims)
        return hd_error(p->diag, HD_E0502, loc,
                        "%lld chunks: %%%s has no dimension of several indices "
                        "after its stream dimension to split",
                        (long long)p->chunks, view->buffer->said);
    if (type->ndims == HD_MAX_DIMS)
        return hd_error(p->diag, HD_E0502, loc,
                        "%lld chunks: %%%s has %d dimensions already",
                        (long long)p->chunks, view->buffer->said, HD_MAX_DIMS);
    if (hd_dim_is_sized(type->dim[dim]))
        return hd_error(p->diag, HD_E0502, loc,
                        "%lld chunks: they would split dimension %d of "
                        "%s%%%s, whose length a run says",
                        (long long)p->chunks, dim,
                        hd_build_part_of(view->buffer), view->buffer->said);
    if (type->dim[dim].extent % p->chunks != 0)
        return hd_error(p->diag, HD_E0501, loc,
                        "%lld chunks do not divide dimension %d of %s%%%s, "
                        "which is %lld",
                        (long long)p->chunks, dim,
                        hd_build_part_of(view->buffer), view->buffer->said,
                        (long long)type->dim[dim].extent);
    return HD_OK;
}

hd_view hd_pipe_at_chunk(hd_pipe *p, hd_view view, int dim, hd_expr chunk)
{
    return chunk == HD_EXPR_NONE
               ? view
               : hd_view_with(p->module, view,
                              split_buffer(p, view.buffer, dim), dim, chunk);
}

int hd_pipe_index(const hd_pipe *p, const hd_view *view)
{
    for (int i = 0; i < view->nindex; i++) {
        hd_expr index = hd_view_index(view, i);

        if (index >= 0 && hd_expr_uses_var(p->module, index, p->loop->var))
            return i;
    }
    return -1;
}

int hd_pipe_chunk_dim(const hd_view *piece)
{
    return hd_view_next_long(piece, 0);
}

int hd_pipe_dim_of(const hd_view *piece, int dim, const hd_view *chunk)
{
    bool split = chunk->buffer->type.ndims > piece->buffer->type.ndims;

    return split && hd_pipe_chunk_dim(piece) < dim ? dim + 1 : dim;
}

enum { UNSPLIT = -1, NO_CHUNKS = -2, NOT_MADE = -3 };

// The dimension of an op's space that is its view `i`'s dimension `dim`; -1 if
// it has no such one.
static int along(const hd_op *op, const hd_space *space, int i, int dim)
{
    int own = hd_view_kept_ahead(&op->view[i], dim), d = 0;

    while (d < space->ndims && space->dim[i][d] != own)
        d++;
    return d < space->ndims ? d : -1;
}

// The dimension of view `i` that lies along `d` of an op's space.
static int dim_along(const hd_op *op, const hd_space *space, int i, int d)
{
    int dim = 0;

    if (space->dim[i][d] == HD_REPEATED)
        return UNSPLIT;
    while (hd_view_kept_ahead(&op->view[i], dim + 1) <= space->dim[i][d])
        dim++;
    return dim;
}

// The dimension of an op's space that it is done in chunks of: that of its
// result, or where this has none yet, of the first operand that has one; -1 if
// there is none.
static int chunks_along(const hd_pipe *p, const hd_op *op,
                        const hd_space *space)
{
    for (int i = 0; i < op->nviews; i++)
        if (p->split[op->view[i].buffer->id] >= 0)
            return along(op, space, i, p->split[op->view[i].buffer->id]);
    return -1;
}

// Names the chunks of what an op reads or makes after those of another view.
// True if that was not known.
static bool pass_on_chunks(hd_pipe *p, const hd_op *op)
{
    bool news = false;
    hd_space space;
    int d;

    hd_space_of_op(op, &space);
    d = chunks_along(p, op, &space);
    for (int i = 0; i < op->nviews && d >= 0; i++) {
        int *split = &p->split[op->view[i].buffer->id];

        if (*split != UNSPLIT)
            continue;
        *split = dim_along(op, &space, i, d);
        news |= *split != UNSPLIT;
    }
    return news;
}

// The first dimension of more than one index after that of the loop.
static int dim_after_loop(const hd_pipe *p, const hd_view *view)
{
    return hd_view_next_long(view, hd_pipe_index(p, view) + 1);
}

// Before any is named: what the loop makes, and what is moved, which leads.
static void start_splits(hd_pipe *p)
{
    p->split = hd_new_array(p->scratch, int, p->module->nbuffers);
    for (int i = 0; i < p->module->nbuffers; i++)
        p->split[i] = NOT_MADE;
    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        for (int i = 0; i < s->op->nviews; i++)
            if (hd_op_access(s->op, i) != HD_ACCESS_READ)
                p->split[s->op->view[i].buffer->id] = UNSPLIT;
    for (int i = 0; i < p->nmoved; i++)
        for (int k = p->flow->piece; k >= 0; k--) {
            const hd_view *piece = &p->moved[i].op->view[k];

            p->split[piece->buffer->id] = hd_pipe_chunk_dim(piece);
        }
}

// Until nothing more is known of it.
static void pass_on_all(hd_pipe *p)
{
    bool news = true;

    while (news) {
        news = false;
        for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
            if (hd_op_is(s->op, HD_UNIT_COMPUTE))
                news |= pass_on_chunks(p, s->op);
    }
}

// Chunks of what the loop makes are split as what is moved, of which or for
// which it is made; where it has nothing to do with that, after the loop's
// dimension, and so is what else is made of it or with it.
static void find_splits(hd_pipe *p)
{
    start_splits(p);
    pass_on_all(p);
    for (const hd_stmt *s = p->ops; s != NULL; s = s->next) {
        int *split = &p->split[s->op->view[0].buffer->id];

        if (*split != UNSPLIT || !hd_op_is(s->op, HD_UNIT_COMPUTE))
            continue;
        *split = dim_after_loop(p, &s->op->view[0]);
        pass_on_all(p);
    }
}

// Whether the op needs whole what is split along `d` of its space, or along
// what lies along nothing there: which rows and matrices go together, and what
// goes where in each element of a batch, is data; a call takes that as a whole.
static bool needs_whole(const hd_op *op, const hd_space *space, int d)
{
    return d >= 0
               ? d == space->counted || !hd_bound_parts(op->bound, d)
               : hd_op_is_batched(op) || hd_op_key(op, HD_KEY_GROUPS) != NULL;
}

// The dimension of view `i` that chunks split; where it has none along that it
// is UNSPLIT. NO_CHUNKS if that is not how chunks of what the loop gathers or
// makes come.
static int split_dim(const hd_pipe *p, const hd_op *op, int i)
{
    int made = p->split[op->view[i].buffer->id], d, dim;
    hd_space space;

    hd_space_of_op(op, &space);
    d = chunks_along(p, op, &space);
    if (made >= 0 && needs_whole(op, &space, d))
        return NO_CHUNKS;
    if (d < 0)
        return made;
    dim = dim_along(op, &space, i, d);
    return made < 0 || made == dim ? dim : NO_CHUNKS;
}

// Whether each chunk has scales of its own.
static bool splits_grain(const hd_pipe *p, const hd_op *op, int i)
{
    hd_space space;
    int d;

    if (!hd_op_has_scales(op, i))
        return false;
    hd_space_of_op(op, &space);
    d = chunks_along(p, op, &space);
    return d >= 0 && hd_space_is_grained(&space, i, d) &&
           space.extent[d] / p->chunks % hd_op_grain(op) != 0;
}

static hd_status check_view(hd_pipe *p, const hd_op *op, int i)
{
    const hd_buffer *buffer = op->view[i].buffer;
    int dim = split_dim(p, op, i);

    if (splits_grain(p, op, i))
        return hd_error(p->diag, HD_E0502, op->loc,
                        "%s cannot be done in %lld chunks: each of %%%s is for "
                        "%lld indices, of which a chunk has no multiple",
                        hd_op_info_get(op->code)->text, (long long)p->chunks,
                        buffer->said, (long long)hd_op_grain(op));
    if (dim == NO_CHUNKS)
        return hd_error(p->diag, HD_E0502, op->loc,
                        "%s cannot be done in %lld chunks: those of %s%%%s "
                        "split its dimension %d, which it needs whole",
                        hd_op_info_get(op->code)->text, (long long)p->chunks,
                        hd_build_part_of(buffer), buffer->said,
                        p->split[buffer->id]);
    return dim >= 0 ? check_split(p, &op->view[i], dim, op->loc) : HD_OK;
}

hd_status hd_pipe_check_chunks(hd_pipe *p)
{
    find_splits(p);
    for (int i = 0; i < p->nmoved; i++)
        for (int k = p->flow->piece; k >= 0; k--) {
            const hd_view *piece = &p->moved[i].op->view[k];

            HD_TRY(check_split(p, piece, hd_pipe_chunk_dim(piece),
                               p->moved[i].op->loc));
        }
    for (const hd_stmt *s = p->ops; s != NULL; s = s->next)
        for (int i = 0;
             hd_op_is(s->op, HD_UNIT_COMPUTE) && i < hd_op_said_views(s->op);
             i++)
            HD_TRY(check_view(p, s->op, i));
    return HD_OK;
}

// ------------------------------------------------------------------- views

static const hd_moved *moved_into(const hd_pipe *p, const hd_buffer *buffer)
{
    for (int i = 0; i < p->nmoved; i++)
        if (p->moved[i].to->buffer == buffer)
            return &p->moved[i];
    return NULL;
}

// In which dimension of view `i` shards lie, -1 if in none. Of an operand that
// repeats, all of them have its one index.
static int shard_dim(const hd_pipe *p, const hd_op *op, int i)
{
    const hd_view *view = &op->view[i];
    int dim = hd_pipe_index(p, view);

    if (dim >= 0)
        return dim;
    dim = hd_space_beside(op, i, hd_pipe_index(p, &op->view[0]));
    return dim >= 0 && dim < view->nindex &&
                   view->buffer->type.dim[dim].extent == 1
               ? dim
               : -1;
}

hd_view hd_pipe_at_shard(hd_pipe *p, hd_view view, int dim, hd_expr shard)
{
    if (shard == HD_EXPR_ALL && dim >= 0)
        hd_view_keep_all(p->module, &view, dim);
    for (int i = 0; i < view.nindex && shard != HD_EXPR_ALL; i++) {
        const hd_range *range = hd_view_range(&view, i);
        hd_expr index = hd_view_index(&view, i);

        if (index == HD_EXPR_ALL)
            continue;
        index = hd_expr_replace(p->module, index, p->loop->var, shard);
        if (range == NULL)
            view.index[i] = index;
        else
            hd_view_keep_block(p->module, &view, i, index, range->blocks);
    }
    return view;
}

hd_view hd_pipe_at_slot(const hd_moved *m, hd_view view,
                        const hd_trip_piece *at)
{
    if (m->slots != NULL) {
        assert(m->dim < view.nindex && "what is moved is picked by a number");
        view.buffer = m->slots;
        view.index[m->dim] = at->slot;
    }
    return view;
}

// A gathered view of the local shard, where it lies.
static hd_view own_view(hd_pipe *p, const hd_moved *m, hd_view view)
{
    hd_buffer *local = m->from->buffer;
    int dim = hd_type_axis_dim(&local->type, m->op->axis);

    assert(dim >= 0 && "what is gathered over an axis is sharded over it");
    return hd_view_block(p->module,
                         hd_view_moved(p->module, view, local, m->dim, dim),
                         dim, hd_pipe_rank(p), p->ranks);
}

// View `i` of a statement of the loop, for a piece.
static hd_view view_for(hd_pipe *p, const hd_op *op, int i,
                        const hd_trip_piece *at)
{
    const hd_view *view = &op->view[i];
    const hd_moved *m = moved_into(p, view->buffer);
    bool own = at->own && m != NULL && m->in_place;
    int split = at->chunk < 0 ? UNSPLIT
                : own         ? hd_pipe_chunk_dim(m->from)
                              : split_dim(p, op, i);
    hd_view result = own ? own_view(p, m, *view) : *view;

    result = hd_pipe_at_shard(p, result, shard_dim(p, op, i), at->shard);
    if (m != NULL && !own)
        result = hd_pipe_at_slot(m, result, at);
    return at->chunk >= 0 && split >= 0
               ? hd_pipe_at_chunk(p, result, split, at->chunk)
               : result;
}

// --------------------------------------------------------------- computing

// What the key is where the dimension of the loop, of which an index is picked,
// is kept. What turns that is not done so.
static hd_key key_of_all(const hd_pipe *p, const hd_op *op, hd_key key)
{
    const hd_view *in = &op->view[1];
    int s = hd_key_names_dims(key.code) ? hd_pipe_index(p, in) : -1;

    if (s >= 0 && hd_view_picks(in, s))
        hd_key_add_dim(&key, hd_view_kept_ahead(in, s));
    return key;
}

int hd_pipe_product_views(const hd_op *op)
{
    int n = 3;

    for (int i = 3; i < op->nviews; i++)
        if (hd_op_has_scales(op, i))
            n = i + 1;
    return n;
}

bool hd_pipe_is_product(const hd_op *op, const hd_view *view)
{
    hd_op product = *op;
    hd_type type[HD_MAX_VIEWS];

    product.nviews = hd_pipe_product_views(op);
    for (int i = 0; i < product.nviews; i++)
        type[i] = hd_view_type(&view[i]);
    return hd_op_key(op, HD_KEY_GROUPS) == NULL &&
           hd_signature_fits(&product, type, false, NULL, NULL);
}

enum { SHARDS = HD_BOUND_DIMS }; // a line that an op of one shard lacks

// Whether a line of an op of one shard, or SHARDS, is still the same one in the
// op of all. Distinct ones are: each is of a letter of its own, or the
// result's.
static bool keeps_line(int8_t *to, int one, int all)
{
    if (one == HD_ALONE)
        return all == HD_ALONE;
    if (to[one] == HD_ALONE)
        to[one] = (int8_t)all;
    return to[one] == all;
}

// The op of one shard and that of all, and for each view where it has these in
// place of an index; -1 where it has none.
static bool bind_all(hd_pipe *p, const hd_op *op, int shards[HD_MAX_VIEWS],
                     hd_bound *one, hd_bound *out)
{
    hd_type type[HD_MAX_VIEWS];
    int ndims[HD_MAX_VIEWS];
    hd_key key[HD_NKEYS];
    hd_op all = *op, said;

    all.key = key;
    all.nviews = hd_op_said_views(op);
    all.nkeys -= op->nviews - all.nviews;
    said = all;
    said.key = op->key;
    for (int i = 0; i < all.nkeys; i++)
        key[i] = key_of_all(p, op, op->key[i]);
    for (int i = 0; i < all.nviews; i++) {
        int dim = shard_dim(p, op, i);
        hd_view view = hd_pipe_at_shard(p, op->view[i], dim, HD_EXPR_ALL);

        type[i] = hd_view_type(&view);
        shards[i] = dim >= 0 && hd_view_picks(&op->view[i], dim)
                        ? hd_view_kept_ahead(&view, dim)
                        : -1;
        ndims[i] = type[i].ndims - (shards[i] >= 0);
    }
    return hd_bind(&said, ndims, one, NULL) &&
           hd_signature_fits(&all, type, false, out, NULL);
}

// Whether the op does all shards at once as it does one: its dimensions lie
// along each other as they did, and shards along those of the result, which has
// some where an operand has: forms have no dimension for them otherwise.
static bool computes_all(hd_pipe *p, const hd_op *op)
{
    int8_t to[SHARDS + 1];
    int shards[HD_MAX_VIEWS];
    hd_bound one, all;

    for (int i = 0; i < op->nkeys; i++)
        if (op->key[i].expr >= 0 &&
            hd_expr_uses_var(p->module, op->key[i].expr, p->loop->var))
            return false;
    if (!bind_all(p, op, shards, &one, &all))
        return false;
    memset(to, HD_ALONE, sizeof to);
    for (int i = 0; i < hd_op_said_views(op); i++)
        for (int d = 0; d < all.ndims[i]; d++) {
            int own = d - (shards[i] >= 0 && shards[i] < d);

            if (!keeps_line(to, d == shards[i] ? SHARDS : one.along[i][own],
                            all.along[i][d]))
                return false;
        }
    return true;
}

// Whether where an element is says nothing of its value.
static bool is_alike(const hd_op *op)
{
    switch (hd_op_family(op)) {
    case HD_FAMILY_COPY:
    case HD_FAMILY_MAP:
    case HD_FAMILY_FOLD:
    case HD_FAMILY_PRODUCT:
        return true;
    case HD_FAMILY_TRANSPOSE:
    case HD_FAMILY_TAKE:
    case HD_FAMILY_IOTA:
    case HD_FAMILY_PICK:
    case HD_FAMILY_ATTEND:
    case HD_FAMILY_CALL:
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        break;
    }
    return false;
}

// The views of all shards where these are pieces of a dimension, the same line
// of every view: with that in place of them, and of one.
static bool join_views(hd_pipe *p, const hd_op *op, const hd_trip_piece *at,
                       hd_view *out)
{
    int ndims[HD_MAX_VIEWS], line = HD_ALONE;
    hd_type type[HD_MAX_VIEWS];
    hd_bound bound;

    for (int i = 0; i < op->nviews; i++)
        ndims[i] = hd_view_type(&op->view[i]).ndims;
    if (!is_alike(op) || hd_op_has_counts(op) || at->chunk >= 0 ||
        p->slots > 0 || !hd_bind(op, ndims, &bound, NULL))
        return false;
    for (int i = 0; i < op->nviews; i++) {
        int dim = hd_pipe_index(p, &op->view[i]);
        int along = HD_ALONE;

        out[i] = op->view[i];
        if (dim >= 0 && !hd_pieces_join(p->pieces, &out[i], dim))
            return false;
        if (dim >= 0)
            along = bound.along[i][hd_view_kept_ahead(&op->view[i], dim)];
        line = i == 0 ? along : line;
        if (line == HD_ALONE || (dim >= 0 && along != line))
            return false;
        type[i] = hd_view_type(&out[i]);
    }
    return hd_signature_fits(op, type, false, NULL, NULL);
}

hd_op *hd_pipe_clone(hd_pipe *p, hd_build *b, const hd_op *op,
                     const hd_trip_piece *at)
{
    hd_op *copy = hd_build_copy(b, op);

    if (at->shard == HD_EXPR_ALL && hd_op_is(op, HD_UNIT_COMPUTE) &&
        !computes_all(p, op) && join_views(p, op, at, copy->view))
        return copy;
    for (int i = 0; i < copy->nviews; i++)
        copy->view[i] = view_for(p, op, i, at);
    for (int i = 0; i < copy->nkeys && at->shard == HD_EXPR_ALL; i++)
        copy->key[i] = key_of_all(p, op, copy->key[i]);
    for (int i = 0; i < copy->nkeys && at->shard >= 0; i++)
        if (copy->key[i].expr >= 0)
            copy->key[i].expr = hd_expr_replace(p->module, copy->key[i].expr,
                                                p->loop->var, at->shard);
    return copy;
}

static bool takes_all_shards(hd_pipe *p, const hd_op *op,
                             const hd_trip_piece *at)
{
    hd_view view[HD_MAX_VIEWS];

    switch (hd_op_unit(op)) {
    case HD_UNIT_COMPUTE:
        return computes_all(p, op) || join_views(p, op, at, view);
    case HD_UNIT_TRANSFER:
        return op->code == HD_OP_BROADCAST || op->code == HD_OP_REDUCE;
    case HD_UNIT_SYNC:
        break;
    }
    return true;
}

hd_build hd_pipe_open_shards(hd_pipe *p, hd_build *b, const hd_stmt *ops,
                             const hd_stmt *end, hd_trip_piece *at)
{
    bool all = true;

    for (const hd_stmt *s = ops; s != end && at->shard < 0; s = s->next)
        all &= takes_all_shards(p, s->op, at);
    return !all ? hd_build_for(b, "i", hd_pipe_number(p, p->ranks), &at->shard)
                : *b;
}

// ------------------------------------------------------------------- trips

int64_t hd_pipe_trips(const hd_pipe *p)
{
    return (p->schedule->shard != NULL ? p->ranks : 1) * p->chunks + p->late;
}

int64_t hd_pipe_first_exchange(const hd_pipe *p)
{
    return p->schedule->relays ? 0 : p->flow->first * p->chunks;
}

int64_t hd_pipe_end_of_exchanges(const hd_pipe *p)
{
    return hd_pipe_first_exchange(p) + (p->ranks - 1) * p->chunks;
}

hd_trip hd_trip_start(hd_pipe *p, hd_build *b, hd_expr j)
{
    const hd_trips *s = p->schedule;
    hd_trip t = {.p = p,
                 .j = j,
                 .step = j,
                 .at = {.shard = HD_EXPR_ALL,
                        .chunk = HD_EXPR_NONE,
                        .slot = HD_EXPR_NONE},
                 .own = HD_EXPR_NONE};
    hd_expr n = hd_pipe_number(p, p->chunks);

    if (p->chunks > 1 && s->shard == NULL) {
        t.at.chunk = j;
    } else if (p->chunks > 1) {
        t.at.chunk = hd_build_let(b, "k", hd_pipe_binary(p, HD_EXPR_MOD, j, n));
        t.step = hd_pipe_binary(p, HD_EXPR_DIV, j, n);
    }
    if (p->slots > 0)
        t.at.slot = hd_expr_mod(p->module, t.step, hd_pipe_number(p, p->slots));
    if (s->shard != NULL)
        t.at.shard = s->shard(&t);
    if (s->shard != NULL && t.at.shard != j && b != NULL)
        t.at.shard = hd_build_let(b, "i", t.at.shard);
    if (s->own != NULL)
        t.own = s->own(&t);
    return t;
}

hd_op *hd_pipe_transfer(const hd_pipe *p, hd_build *b, hd_opcode code,
                        hd_view what, hd_expr peer, bool get)
{
    bool sends = code == HD_OP_SEND;
    hd_op *op = hd_build_op(b, code, p->axis, !sends, sends, &what);

    hd_build_key(op, sends ? HD_KEY_TO : HD_KEY_FROM, peer);
    if (get)
        hd_build_key(op, HD_KEY_GET, HD_EXPR_NONE);
    return op;
}

void hd_trip_transfer(const hd_trip *t, hd_build *b, const hd_moved *m,
                      hd_opcode code, hd_view what)
{
    const hd_pipe *p = t->p;
    bool sends = code == HD_OP_SEND;
    hd_op *op = hd_pipe_transfer(
        p, b, code, what, sends ? p->schedule->to(t) : p->schedule->from(t),
        p->options->protocol == HD_PROTOCOL_GET);

    if (sends && m->sent != NULL)
        hd_build_key_view(op, HD_KEY_DONE,
                          hd_view_at(hd_view_whole(m->sent, op->loc), 0, t->j));
}
