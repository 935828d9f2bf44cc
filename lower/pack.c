#include "lower/pack.h"

#include <string.h>

#include "lower/pad.h"
#include "lower/placement.h"

enum { NONE = -1 };

// Dimensions of a buffer that have to stand in front, in this order, of which a
// transfer moves an index or a block, or has a piece of each rank.
typedef struct fronts {
    int n;
    int dim[HD_MAX_DIMS];
    int64_t pieces[HD_MAX_DIMS]; // into which each is cut
} fronts;

// ---------------------------------------------------------------- what packs

// Those of a dimension over ranks are a rank's own.
static int64_t blocks_of(const hd_view *view, int dim)
{
    return hd_dim_is_sharded(view->buffer->type.dim[dim])
               ? 0
               : hd_view_blocks(view, dim);
}

static bool keeps_all(const hd_view *view, int dim)
{
    const hd_range *range = hd_view_range(view, dim);
    hd_dim all = view->buffer->type.dim[dim];

    return range == NULL ||
           (range->extent == hd_dim_local(all) && !hd_dim_is_sized(all));
}

// Whether it is one piece of memory, but for gaps between those of ranks, which
// dimension `led` has one of each.
static bool is_dense(const hd_view *view, int led, int64_t ranks)
{
    const hd_type *type = &view->buffer->type;
    bool several = false; // indices of what stands ahead

    for (int i = 0; i < type->ndims; i++) {
        bool one = hd_dim_local(type->dim[i]) == 1;

        if (several && (i == led || (!one && (hd_view_picks(view, i) ||
                                              !keeps_all(view, i)))))
            return false;
        if (i == led)
            several = type->dim[i].extent != ranks;
        else
            several |= !one && !hd_view_picks(view, i);
    }
    return true;
}

// Whether pieces of a dimension have a name: what the caller brings in an inout
// goes by its own.
static bool has_name(const hd_view *view, int dim, int64_t pieces)
{
    return view->buffer->type.dim[dim].extent == pieces ||
           hd_buffer_root(view->buffer)->role != HD_ROLE_INOUT;
}

static void put_in_front(fronts *f, int dim, int64_t pieces)
{
    f->dim[f->n] = dim;
    f->pieces[f->n++] = pieces;
}

// Whether pieces of several indices have room, which take a dimension more
// each; what has none is refused as it is.
static bool has_room(const hd_type *type, const fronts *f)
{
    int ndims = type->ndims;

    for (int i = 0; i < f->n; i++)
        ndims += type->dim[f->dim[i]].extent != f->pieces[i];
    return ndims <= HD_MAX_DIMS;
}

// None where the view lies as it has to.
static fronts find_fronts(const hd_module *module, const hd_op *op, int i)
{
    const hd_view *view = &op->view[i];
    int led = hd_op_pieces_dim(op, i);
    int64_t ranks = module->axis[op->axis].size;
    fronts f = {0};

    if (is_dense(view, led, ranks) &&
        (led == NONE || has_name(view, led, ranks)))
        return f;
    if (hd_moves_uneven(module, op))
        return f;
    for (int d = 0; d < view->buffer->type.ndims; d++)
        if (hd_view_picks(view, d) && d != led &&
            hd_dim_local(view->buffer->type.dim[d]) > 1)
            put_in_front(&f, d, view->buffer->type.dim[d].extent);
        else if (blocks_of(view, d) > 0)
            put_in_front(&f, d, blocks_of(view, d));
    if (led != NONE)
        put_in_front(&f, led, ranks);
    return has_room(&view->buffer->type, &f) ? f : (fronts){0};
}

// Whether the dimension that view `i` says to have pieces of has room for them
// in front of it, or says so for nothing.
static bool may_lead(const hd_module *module, const hd_op *op, int i)
{
    const hd_type *type = &op->view[i].buffer->type;

    return type->ndims < HD_MAX_DIMS ||
           type->dim[hd_op_pieces_dim(op, i)].extent ==
               module->axis[op->axis].size;
}

bool hd_needs_packing(const hd_module *module, const hd_op *op)
{
    bool packed = hd_moves_uneven(module, op);

    for (int i = 0; i < op->noutputs + op->ninputs; i++)
        packed |= find_fronts(module, op, i).n > 0 ||
                  (hd_op_key(op, hd_op_pieces_key(op, i)) != NULL &&
                   !may_lead(module, op, i));
    return packed;
}

// ------------------------------------------------------------------ layouts

// The first dimension of which a rank has more than one index; the last, if it
// has one of each.
static int first_long_dim(const hd_type *type)
{
    int dim = 0;

    while (dim + 1 < type->ndims && hd_dim_local(type->dim[dim]) == 1)
        dim++;
    return dim;
}

// How a buffer becomes one that has its fronts there: one dimension after the
// other goes from where it stands then to the next place.
typedef struct layout {
    fronts f;
    int at; // where the first goes
    int from[HD_MAX_DIMS];
    hd_type step[HD_MAX_DIMS]; // the type behind each
} layout;

static layout lay_out(const hd_type *type, const fronts *f)
{
    layout l = {.f = *f, .at = first_long_dim(type)};

    memcpy(l.from, f->dim, sizeof l.from);
    for (int k = 0; k < f->n; k++)
        l.at = f->dim[k] < l.at ? f->dim[k] : l.at;
    for (int k = 0; k < f->n; k++) {
        const hd_type *before = k > 0 ? &l.step[k - 1] : type;

        l.step[k] =
            hd_type_in_pieces(before, l.from[k], f->pieces[k], l.at + k);
        for (int next = k + 1; next < f->n; next++)
            l.from[next] +=
                l.step[k].ndims > before->ndims || l.from[next] < l.from[k];
    }
    return l;
}

static hd_view view_in(hd_module *module, const layout *l, hd_view view,
                       hd_buffer *packed)
{
    hd_buffer step[HD_MAX_DIMS];

    for (int k = 0; k < l->f.n; k++) {
        step[k] = (hd_buffer){.type = l->step[k]};
        view = hd_view_in_pieces(module, view, &step[k], l->from[k], l->at + k);
    }
    view.buffer = packed;
    return view;
}

static hd_buffer *add_packed(hd_module *module, const hd_buffer *like,
                             const layout *l)
{
    hd_type type = hd_type_unstreamed(l->step[l->f.n - 1]);

    return hd_module_add_buffer(module, like->name, HD_ROLE_TEMP, &type);
}

// ------------------------------------------------- temporaries that lie so

typedef struct use {
    struct use *next;
    hd_op *op;
} use;

typedef struct packer {
    hd_module *module;
    hd_arena *scratch;
    // Of buffers, by id: what has views of them, and whether something else
    // than views knows how they lie.
    use **uses;
    bool *known;
    int nbuffers; // of those; later ones are packed
} packer;

static void note_uses(void *context, hd_op *op)
{
    const packer *p = context;

    for (int i = 0; i < op->nviews; i++) {
        use *u = hd_new(p->scratch, use);

        *u = (use){p->uses[op->view[i].buffer->id], op};
        p->uses[op->view[i].buffer->id] = u;
    }
}

static void note_all(packer *p)
{
    p->nbuffers = p->module->nbuffers;
    p->uses = hd_new_array(p->scratch, use *, p->nbuffers + 1);
    p->known = hd_new_array(p->scratch, bool, p->nbuffers + 1);
    hd_block_each(&p->module->body, note_uses, p);
    for (const hd_buffer *b = p->module->buffers; b != NULL; b = b->next) {
        p->known[b->id] |=
            b->role != HD_ROLE_TEMP || b->of != NULL || b->by != NULL;
        if (b->of != NULL)
            p->known[b->of->id] = true;
        if (b->by != NULL)
            p->known[b->by->id] = true;
    }
}

// An index, or a block of as many as that.
static bool takes_piece(const hd_view *view, int dim, int64_t pieces)
{
    return view->buffer->type.dim[dim].extent == pieces
               ? hd_view_picks(view, dim)
               : blocks_of(view, dim) == pieces;
}

// Whether the op takes a piece of each front of the buffer, or, if it is the
// one that `moves` it, all that ranks have.
static bool takes_pieces(const hd_op *op, bool moves, const hd_buffer *buffer,
                         const fronts *f)
{
    for (int i = 0; i < op->nviews; i++) {
        int led = moves ? hd_op_pieces_dim(op, i) : NONE;

        for (int k = 0; k < f->n && op->view[i].buffer == buffer; k++)
            if (f->dim[k] != led &&
                !takes_piece(&op->view[i], f->dim[k], f->pieces[k]))
                return false;
    }
    return true;
}

static void rename_views(hd_module *module, hd_op *op, bool moves,
                         const layout *l, const hd_buffer *buffer,
                         hd_buffer *packed)
{
    for (int i = 0; i < op->nviews; i++) {
        int led = moves ? hd_op_pieces_dim(op, i) : NONE;

        if (op->view[i].buffer != buffer)
            continue;
        op->view[i] = view_in(module, l, op->view[i], packed);
        if (led != NONE)
            hd_build_renumber_pieces(module, op, i, l->at + l->f.n - 1);
    }
}

// What view `i` of a transfer is of lies as that has to, if all that know it
// let it.
static void lay_temp(const packer *p, hd_op *op, int i)
{
    hd_buffer *buffer = op->view[i].buffer, *packed;
    fronts f = find_fronts(p->module, op, i);
    layout l;

    if (f.n == 0 || buffer->id >= p->nbuffers || p->known[buffer->id])
        return;
    for (const use *u = p->uses[buffer->id]; u != NULL; u = u->next)
        if (!takes_pieces(u->op, u->op == op, buffer, &f))
            return;
    l = lay_out(&buffer->type, &f);
    packed = add_packed(p->module, buffer, &l);
    for (const use *u = p->uses[buffer->id]; u != NULL; u = u->next)
        rename_views(p->module, u->op, u->op == op, &l, buffer, packed);
}

static void lay_temps(void *context, hd_op *op)
{
    if (!hd_op_is(op, HD_UNIT_TRANSFER))
        return;
    for (int i = 0; i < op->noutputs + op->ninputs; i++)
        lay_temp(context, op, i);
}

// ------------------------------------------------------------------- copies

// Between a view and a packed one, which is read if `packs`; if dimension `led`
// has pieces, which `at` has of the packed one, all of them by one statement.
// It is one for each of them where those have no name, or nothing turns them;
// and in a loop, whose iteration has no loop in it, for the sake of pipelines.
typedef struct packing {
    hd_view plain, packed;
    int led, at;
    int64_t n;
    bool packs, in_loop;
} packing;

static void copy_piece(hd_build *b, const packing *p, hd_expr piece)
{
    hd_view plain = p->plain, packed = p->packed;

    if (p->led != NONE) {
        plain = hd_view_block(b->module, plain, p->led, piece, p->n);
        packed = hd_view_at(packed, p->at, piece);
    }
    hd_build_unary(b, HD_OP_COPY, -1, p->packs ? packed : plain,
                   p->packs ? plain : packed);
}

// The first text form has nothing that does.
static bool may_turn(const hd_module *module, const packing *p)
{
    const hd_type *type = &p->plain.buffer->type;

    return module->form > 1 && !p->in_loop &&
           has_name(&p->plain, p->led, p->n) &&
           (type->dim[p->led].extent == p->n || type->ndims < HD_MAX_DIMS);
}

static void turn_pieces(hd_build *b, const packing *p)
{
    hd_view plain = hd_build_pieces(b, p->plain, p->led, p->n);
    int from = hd_view_kept_ahead(&plain, p->led);
    int to = hd_view_kept_ahead(&p->packed, p->at);

    if (p->packs)
        hd_build_moved(b, p->packed, plain, from, to);
    else
        hd_build_moved(b, plain, p->packed, to, from);
}

static void copy_pieces(hd_build *b, const packing *p)
{
    hd_build body = *b;
    hd_expr piece = HD_EXPR_NONE;

    if (p->led != NONE && may_turn(b->module, p)) {
        turn_pieces(b, p);
        return;
    }
    if (p->led == NONE || p->in_loop) {
        for (int64_t i = 0; i < (p->led == NONE ? 1 : p->n); i++)
            copy_piece(b, p, hd_expr_const(b->module, i));
        return;
    }
    body = hd_build_for(b, "i", hd_expr_const(b->module, p->n), &piece);
    copy_piece(&body, p, piece);
}

// The views from `i` to before `end` that are no one piece of memory.
static void copy_views(hd_build *b, hd_op *op, int i, int end, bool in_loop)
{
    for (; i < end; i++) {
        fronts f = find_fronts(b->module, op, i);
        packing p = {.plain = op->view[i],
                     .led = hd_op_pieces_dim(op, i),
                     .n = b->module->axis[op->axis].size,
                     .packs = i >= op->noutputs,
                     .in_loop = in_loop};
        hd_build here;
        layout l;

        if (f.n == 0)
            continue;
        l = lay_out(&op->view[i].buffer->type, &f);
        p.at = l.at + f.n - 1;
        p.packed = view_in(b->module, &l, p.plain,
                           add_packed(b->module, p.plain.buffer, &l));
        op->view[i] = p.packed;
        if (p.led != NONE)
            hd_build_renumber_pieces(b->module, op, i, p.at);
        // A pipeline's iteration has no branch, and peers that all have it.
        here = in_loop ? *b : hd_build_on_root(b, op, i);
        copy_pieces(&here, &p);
    }
}

// -------------------------------------------------------------- collectives

void hd_pack_lead(hd_build *b, hd_op *op)
{
    for (int i = 0; i < op->noutputs + op->ninputs; i++) {
        int dim = hd_op_pieces_dim(op, i);

        if (hd_op_key(op, hd_op_pieces_key(op, i)) == NULL ||
            !may_lead(b->module, op, i))
            continue;
        op->view[i] = hd_build_pieces(b, op->view[i], dim,
                                      b->module->axis[op->axis].size);
        hd_build_renumber_pieces(b->module, op, i, dim);
    }
}

// A dimension that each view of a collective has all of, ahead of the pieces of
// ranks.
typedef struct tiles {
    int dim[HD_MAX_VIEWS];
    int64_t n;
} tiles;

// The one view's only dimension of several indices ahead of its pieces.
static bool find_ahead(const hd_view *view, int led, int *out)
{
    int n = 0;

    for (int d = 0; d < led; d++)
        if (!hd_view_picks(view, d) &&
            hd_dim_local(view->buffer->type.dim[d]) > 1) {
            *out = d;
            n++;
        }
    return n == 1;
}

static bool find_tiles(const hd_module *module, const hd_op *op, tiles *out)
{
    int nviews = op->noutputs + op->ninputs, kept = NONE;

    for (int i = 0; i < nviews && kept < 0; i++) {
        int ahead;

        if (find_fronts(module, op, i).n == 0)
            continue;
        if (!find_ahead(&op->view[i], hd_op_pieces_dim(op, i), &ahead))
            return false;
        kept = hd_view_kept_ahead(&op->view[i], ahead);
        out->n = hd_dim_local(op->view[i].buffer->type.dim[ahead]);
    }
    for (int i = 0; i < nviews && kept >= 0; i++) {
        const hd_view *view = &op->view[i];
        int dim = hd_view_kept_dim(view, kept);

        out->dim[i] = dim;
        if (hd_dim_is_sharded(view->buffer->type.dim[dim]) ||
            !keeps_all(view, dim) || hd_view_range(view, dim) != NULL ||
            hd_dim_is_sized(view->buffer->type.dim[dim]) ||
            view->buffer->type.dim[dim].extent != out->n ||
            (hd_op_is_led(op, i) && hd_op_pieces_dim(op, i) <= dim))
            return false;
    }
    return kept >= 0;
}

static hd_op *build_tile(hd_build *b, const hd_op *op, const tiles *t,
                         hd_expr i)
{
    hd_op *tile = hd_build_copy(b, op);

    for (int k = 0; k < op->noutputs + op->ninputs; k++) {
        int led = hd_op_pieces_dim(op, k);

        tile->view[k] = hd_view_at(op->view[k], t->dim[k], i);
        if (led != NONE)
            hd_build_renumber_pieces(b->module, tile, k, led);
    }
    return tile;
}

// What packing touches, and what could arrive while tiles begin.
static bool packs_longer(const hd_module *module, const hd_op *op,
                         const tiles *t)
{
    int64_t bytes = 0;

    for (int i = 0; i < op->noutputs + op->ninputs; i++) {
        hd_type type = hd_view_type(&op->view[i]);

        if (find_fronts(module, op, i).n > 0)
            bytes += 2 * hd_type_local_bytes(&type);
    }
    return bytes / HD_COST_TOUCHED >= t->n * HD_COST_MOVE;
}

// A collective whose pieces stand behind one dimension has no gaps index by
// index of that: so it goes, if each moves much, and nothing is packed.
static bool move_tiles(hd_build *b, const hd_op *op)
{
    hd_block none = {0};
    hd_build body = {b->module, &none, b->loc};
    tiles t = {.n = 0};
    hd_expr i;

    if (!hd_op_is_collective(op) || !find_tiles(b->module, op, &t) ||
        !packs_longer(b->module, op, &t) ||
        hd_needs_packing(
            b->module, build_tile(&body, op, &t, hd_expr_const(b->module, 0))))
        return false;
    body = hd_build_for(b, "i", hd_expr_const(b->module, t.n), &i);
    hd_pack_lead(b, build_tile(&body, op, &t, i));
    return true;
}

static void pack_block(hd_module *module, hd_block *block, bool in_loop);

static void pack_stmt(hd_build *b, hd_stmt *stmt, bool in_loop)
{
    hd_op *op = stmt->op;

    in_loop |= stmt->kind == HD_STMT_FOR;
    if (stmt->kind != HD_STMT_OP || !hd_op_is(op, HD_UNIT_TRANSFER)) {
        if (stmt->kind != HD_STMT_GROUP && // of what is one piece already
            stmt->kind != HD_STMT_LAUNCH) {
            pack_block(b->module, &stmt->body, in_loop);
            pack_block(b->module, &stmt->otherwise, in_loop);
        }
        hd_block_append(b->block, stmt);
        return;
    }
    if (hd_moves_uneven(b->module, op)) {
        hd_build_uneven(b, stmt);
        return;
    }
    if (!in_loop && move_tiles(b, op))
        return;
    copy_views(b, op, op->noutputs, op->noutputs + op->ninputs, in_loop);
    hd_block_append(b->block, stmt);
    copy_views(b, op, 0, op->noutputs, in_loop);
    hd_pack_lead(b, op);
}

static void pack_block(hd_module *module, hd_block *block, bool in_loop)
{
    hd_block done = {0};
    hd_stmt *next;

    for (hd_stmt *stmt = block->first; stmt != NULL; stmt = next) {
        hd_build b = {module, &done, stmt->loc};

        next = stmt->next;
        pack_stmt(&b, stmt, in_loop);
    }
    *block = done;
}

void hd_pack(hd_module *module, hd_arena *scratch)
{
    packer p = {.module = module, .scratch = scratch};

    hd_block_each(&module->body, hd_build_past_ones, module);
    note_all(&p);
    hd_block_each(&module->body, lay_temps, &p);
    pack_block(module, &module->body, false);
}

// -------------------------------------------------------------------- parts

static bool has_part(const hd_op *op, int i)
{
    int led = i < op->noutputs + op->ninputs ? hd_op_pieces_dim(op, i) : NONE;

    return led != NONE && hd_op_key(op, hd_op_pieces_key(op, i)) != NULL &&
           hd_view_range(&op->view[i], led) != NULL;
}

static void find_parts(void *context, hd_op *op)
{
    bool *any = context;

    for (int i = 0; hd_op_is(op, HD_UNIT_TRANSFER) && i < op->nviews; i++)
        *any |= has_part(op, i);
}

typedef struct lifting {
    hd_build ahead, behind; // of what moves
} lifting;

// All of a temporary that has what the view has as ranges, and the same else.
static hd_view lift_ranges(hd_module *module, const hd_view *part)
{
    hd_type type = hd_type_unstreamed(part->buffer->type);
    hd_view all = *part;

    for (int d = 0; d < part->nindex; d++) {
        const hd_range *range = hd_view_range(part, d);

        if (range == NULL || range->block != HD_EXPR_NONE || range->extent < 1)
            continue;
        type.dim[d] = hd_dim_whole(range->extent);
        hd_view_keep_all(module, &all, d);
    }
    all.buffer =
        hd_module_add_buffer(module, part->buffer->name, HD_ROLE_TEMP, &type);
    all.buffer->said = part->buffer->said;
    all.buffer->loc = part->buffer->loc;
    return all;
}

static void lift_op(void *context, hd_op *op)
{
    lifting *l = context;
    bool any = false;

    find_parts(&any, op);
    for (int i = 0; any && i < op->noutputs + op->ninputs; i++) {
        hd_view part = op->view[i];

        op->view[i] = lift_ranges(l->ahead.module, &part);
        l->ahead.loc = l->behind.loc = op->loc;
        if (i < op->noutputs)
            hd_build_unary(&l->behind, HD_OP_COPY, -1, part, op->view[i]);
        else
            hd_build_unary(&l->ahead, HD_OP_COPY, -1, op->view[i], part);
    }
}

static void lift_block(hd_module *module, hd_block *block)
{
    hd_block made = {0};

    for (hd_stmt *s = block->first, *next; s != NULL; s = next) {
        hd_block ahead = {0}, behind = {0}, self = {s, s};
        lifting l = {{module, &ahead, s->loc}, {module, &behind, s->loc}};
        bool any = false;

        next = s->next;
        s->next = NULL;
        hd_stmt_each(s, find_parts, &any);
        if (any && s->kind == HD_STMT_LAUNCH) { // which has no room for copies
            self = s->body;
            lift_block(module, &self);
        } else if (any && (s->kind == HD_STMT_OP || s->kind == HD_STMT_GROUP)) {
            hd_stmt_each(s, lift_op, &l);
        } else if (any) {
            lift_block(module, &s->body);
            lift_block(module, &s->otherwise);
        }
        hd_block_append_all(&made, &ahead);
        hd_block_append_all(&made, &self);
        hd_block_append_all(&made, &behind);
    }
    *block = made;
}

void hd_lift_parts(hd_module *module)
{
    lift_block(module, &module->body);
}
