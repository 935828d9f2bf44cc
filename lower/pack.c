#include "lower/pack.h"

#include <string.h>

#include "lower/build.h"

enum { NONE = -1 };

// Dimensions of a buffer that have to stand in front, in this order, of which a
// transfer moves an index or a block, or has a piece of each rank.
typedef struct fronts {
    int n;
    int dim[HD_MAX_DIMS];
    int64_t pieces[HD_MAX_DIMS]; // into which each is cut
} fronts;

// ---------------------------------------------------------------- what packs

// How many blocks as long as each other the view has one of; 0 if it has none.
static int64_t blocks_of(const hd_view *view, int dim)
{
    const hd_range *range = hd_view_range(view, dim);
    hd_dim all = view->buffer->type.dim[dim];

    return range != NULL && range->block != HD_EXPR_NONE &&
                   !hd_dim_is_sharded(all) && !hd_dim_is_sized(all) &&
                   all.extent % range->blocks == 0
               ? range->blocks
               : 0;
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
    hd_type type = l->step[l->f.n - 1];

    for (int i = 0; i < type.ndims; i++)
        type.dim[i] = hd_dim_unstreamed(type.dim[i]);
    return hd_module_add_buffer(module, like->name, HD_ROLE_TEMP, &type);
}

// ------------------------------------------------- temporaries that lie so

typedef struct packer {
    hd_module *module;
    const hd_op *op; // whose view of `buffer` is moved
    hd_buffer *buffer, *packed;
    layout layout;
    bool fits; // all other views take a piece of each front
} packer;

// An index, or a block of as many as that.
static bool takes_piece(const hd_view *view, int dim, int64_t pieces)
{
    return view->buffer->type.dim[dim].extent == pieces
               ? hd_view_picks(view, dim)
               : blocks_of(view, dim) == pieces;
}

static void check_uses(void *context, hd_op *op)
{
    packer *p = context;
    const fronts *f = &p->layout.f;

    for (int i = 0; i < op->nviews; i++) {
        int led = op == p->op ? hd_op_pieces_dim(op, i) : NONE;

        for (int k = 0; k < f->n && op->view[i].buffer == p->buffer; k++)
            p->fits &= takes_piece(&op->view[i], f->dim[k], f->pieces[k]) ||
                       f->dim[k] == led;
    }
}

static void rename_uses(void *context, hd_op *op)
{
    const packer *p = context;

    for (int i = 0; i < op->nviews; i++) {
        int led = op == p->op ? hd_op_pieces_dim(op, i) : NONE;

        if (op->view[i].buffer != p->buffer)
            continue;
        op->view[i] = view_in(p->module, &p->layout, op->view[i], p->packed);
        if (led != NONE)
            hd_build_pieces_dim(p->module, op, i,
                                p->layout.at + p->layout.f.n - 1);
    }
}

// Nothing else than views knows how it lies.
static bool is_plain(const hd_module *module, const hd_buffer *buffer)
{
    if (buffer->role != HD_ROLE_TEMP || buffer->of != NULL ||
        buffer->by != NULL)
        return false;
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        if (b->of == buffer || b->by == buffer)
            return false;
    return true;
}

static void lay_temps(void *context, hd_op *op)
{
    hd_module *module = context;

    if (!hd_op_is(op, HD_UNIT_TRANSFER) || hd_op_fused(op) != HD_MOVE_NONE)
        return;
    for (int i = 0; i < op->noutputs + op->ninputs; i++) {
        fronts f = find_fronts(module, op, i);
        packer p = {module, op, op->view[i].buffer, .fits = f.n > 0};

        if (!p.fits || !is_plain(module, p.buffer))
            continue;
        p.layout = lay_out(&p.buffer->type, &f);
        hd_block_each(&module->body, check_uses, &p);
        if (!p.fits)
            continue;
        p.packed = add_packed(module, p.buffer, &p.layout);
        hd_block_each(&module->body, rename_uses, &p);
    }
}

// ------------------------------------------------------------------- copies

// Between a view and a packed one, which is read if `packs`; a piece of a rank
// after the other if dimension `led` has pieces, which `at` has of the packed
// one. The statements of a loop's iteration have no loop in them, for the sake
// of pipelines.
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

static void copy_pieces(hd_build *b, const packing *p)
{
    hd_build body = *b;
    hd_expr piece = HD_EXPR_NONE;

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
        layout l = lay_out(&op->view[i].buffer->type, &f);
        packing p = {.plain = op->view[i],
                     .led = hd_op_pieces_dim(op, i),
                     .at = l.at + f.n - 1,
                     .n = b->module->axis[op->axis].size,
                     .packs = i >= op->noutputs,
                     .in_loop = in_loop};

        if (f.n == 0)
            continue;
        p.packed = view_in(b->module, &l, p.plain,
                           add_packed(b->module, p.plain.buffer, &l));
        op->view[i] = p.packed;
        if (p.led != NONE)
            hd_build_pieces_dim(b->module, op, i, p.at);
        copy_pieces(b, &p);
    }
}

// -------------------------------------------------------------- collectives

// All that a view of a collective has begins with an index of each rank.
static void lead_pieces(hd_build *b, hd_op *op)
{
    for (int i = 0; i < 2 && hd_op_is_collective(op); i++) {
        const hd_type *type = &op->view[i].buffer->type;
        int64_t ranks = b->module->axis[op->axis].size;
        int dim = hd_op_pieces_dim(op, i);

        if (dim == NONE ||
            (type->ndims == HD_MAX_DIMS && type->dim[dim].extent != ranks))
            continue;
        op->view[i] = hd_build_pieces(b, op->view[i], dim, ranks);
        hd_build_pieces_dim(b->module, op, i, dim);
    }
}

static void pack_block(hd_module *module, hd_block *block, bool in_loop);

static void pack_stmt(hd_build *b, hd_stmt *stmt, bool in_loop)
{
    hd_op *op = stmt->op;

    in_loop |= stmt->kind == HD_STMT_FOR;
    if (stmt->kind != HD_STMT_OP || !hd_op_is(op, HD_UNIT_TRANSFER) ||
        hd_op_fused(op) != HD_MOVE_NONE) {
        if (stmt->kind != HD_STMT_GROUP) { // of what is one piece already
            pack_block(b->module, &stmt->body, in_loop);
            pack_block(b->module, &stmt->otherwise, in_loop);
        }
        hd_block_append(b->block, stmt);
        return;
    }
    copy_views(b, op, op->noutputs, op->noutputs + op->ninputs, in_loop);
    hd_block_append(b->block, stmt);
    copy_views(b, op, 0, op->noutputs, in_loop);
    lead_pieces(b, op);
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

void hd_pack(hd_module *module)
{
    hd_block_each(&module->body, hd_build_past_ones, module);
    hd_block_each(&module->body, lay_temps, module);
    pack_block(module, &module->body, false);
}
