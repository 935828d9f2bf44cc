// The explicit program: each move a `set` or a `sum` of its own, each tensor
// declared where it lies. A product whose contracted dimension is over ranks
// has them in front, `[n@axis, .., k / n]` by as much gives `[n@axis, ..]`, of
// which a `sum` adds the parts; of uneven blocks, and where that would copy
// them, operands stay as they are. An attention whose rows are divided has them
// in its batch.
//
// What a gather makes whole, and what sums are scattered along, is worked on in
// pieces: it is a stream dimension, and so is what is made of it piece by
// piece. Rows of a product that are gathered behind it are in tiles, or in
// samples of a batch.
#include "lower/placed.h"

#include <assert.h>
#include <string.h>

#include "base/dtype.h"
#include "lower/build.h"
#include "lower/ends.h"

enum { NONE = -1, TILES = 4 };
#define TILE ((int64_t)1 << 20)  // bytes at least
#define PIECE ((int64_t)2 << 20) // likewise, for a loop's trip to be worth it
#define COLUMNS 256              // of a product's piece, likewise
#define LARGE ((int64_t)4 << 20) // of a rank's part of a tensor

// The dimension of a tensor of which a declaration behind it says that it comes
// piece by piece; NONE, or how many pieces.
typedef struct pieces {
    int dim;
    int64_t n;
} pieces;

typedef struct writer {
    hd_placing *p;
    hd_module *module;
    hd_build b;
    hd_versions have;
    const hd_lines *lines; // the statement at hand
    const hd_way *way;
    hd_stmt *stmt;
    hd_view view[HD_MAX_VIEWS]; // of it, what is read where it is needed
    int64_t waits;     // for what moves at hand, of its bytes; for words alone
    pieces *wanted;    // by buffer id, of the text's
    bool large;        // some tensor of the program is
    hd_buffer **parts; // that ranks have, ranks in front
    int nparts, room;
} writer;

// As the text has it.
static bool is_open(const writer *w, const hd_buffer *buffer)
{
    return hd_place_is_open(w->p, buffer);
}

static hd_view whole(const writer *w, hd_buffer *buffer)
{
    return hd_view_whole(buffer, w->b.loc);
}

// A temporary for what moves of a tensor, or is made on the way to it.
static hd_buffer *add_temp(const writer *w, const hd_buffer *like,
                           const hd_type *type)
{
    hd_buffer *temp =
        hd_module_add_buffer(w->module, like->said, HD_ROLE_TEMP, type);

    temp->said = like->said;
    temp->loc = like->loc;
    return temp;
}

// ----------------------------------------------------------------- streams

// Of a tensor that has a stream dimension already it stays that one.
static void stream(const writer *w, hd_type *type, int dim, int64_t n)
{
    hd_dim *d = &type->dim[dim];
    bool fits = hd_dim_is_sized(*d) ? w->module->size[d->size - 1].blocks == n
                                    : d->extent > 1;

    if (hd_type_stream_dim(type) >= 0 || hd_dim_is_sharded(*d) || !fits ||
        n < 2)
        return;
    *d = hd_dim_cut(*d, n);
    d->mark = HD_STREAM;
}

// A tensor along the pieces in which another version of it comes.
static void stream_as(const writer *w, hd_type *type, const hd_type *as)
{
    int dim = hd_type_stream_dim(as);

    if (dim >= 0)
        stream(w, type, dim, hd_dim_blocks(as->dim[dim]));
}

// Whether a piece of so many is less than is worth it, in a program that has
// larger things: what a loop's trips take is more than what they hide then.
static bool is_too_small(const writer *w, const hd_type *type, int64_t n)
{
    return w->large && hd_type_local_bytes(type) < n * PIECE;
}

// Who reads what is gathered: view `i` of a statement; without lines nobody in
// particular.
typedef struct reader {
    const hd_lines *lines;
    int i;
} reader;

// The dimension of the reader's view that is this one of the tensor; NONE.
static int read_dim(reader by, int dim)
{
    for (int d = 0; by.lines != NULL && d < by.lines->type[by.i].ndims; d++)
        if (hd_view_kept_dim(&by.lines->op->view[by.i], d) == dim)
            return d;
    return NONE;
}

// Whether pieces of a product's columns would be so few that it is slow then.
static bool is_narrow(const writer *w, const hd_type *type, int dim, int64_t n,
                      reader by)
{
    return w->large && by.lines != NULL &&
           hd_op_family(by.lines->op) == HD_FAMILY_PRODUCT &&
           by.i == by.lines->op->noutputs + 1 && read_dim(by, dim) >= 0 &&
           type->dim[dim].extent < n * COLUMNS;
}

// Of an operand of which a product adds up along what is gathered: in tiles of
// its rows, or of its columns. For each of these all of the other operand is
// read, so they are twice as wide.
static void stream_tiles(const writer *w, hd_type *type, reader by)
{
    const hd_lines *lines = by.lines;
    int second = by.i - lines->op->noutputs;
    int made = lines->type[0].ndims - 2 + second;

    for (int k = 0; made >= 0 && k < lines->type[by.i].ndims; k++) {
        int dim = hd_view_kept_dim(&lines->op->view[by.i], k);

        if (lines->at[by.i][k] >= 0 &&
            lines->at[by.i][k] == lines->at[0][made] &&
            lines->type[by.i].dim[k].extent % TILES == 0 &&
            !is_too_small(w, type, TILES) &&
            !is_narrow(w, type, dim, 2 * TILES, by))
            stream(w, type, dim, TILES);
    }
}

// What a product adds up along is no loop's: it works on tiles then, while the
// next ones are gathered; on those of its second operand, by which all of the
// first is read again, if it would wait for that.
static bool stream_across(const writer *w, hd_type *type, int gathered,
                          reader by)
{
    const hd_lines *lines = by.lines;
    int d = read_dim(by, gathered), second;

    if (d < 0 || hd_op_family(lines->op) != HD_FAMILY_PRODUCT ||
        lines->at[by.i][d] != lines->joined)
        return false;
    second = by.i - lines->op->noutputs;
    if (second > 1 || (second == 1 && w->waits == 0))
        return false;
    stream_tiles(w, type, by);
    return true;
}

// Along the first dimension that was gathered.
static void stream_gathered(const writer *w, hd_type *type, hd_placement from,
                            hd_placement to, reader by)
{
    for (int a = 0; a < w->module->naxes; a++) {
        int64_t n = w->module->axis[a].size;

        if (from.dim[a] < 0 || to.dim[a] != HD_PLACED_NOWHERE ||
            stream_across(w, type, from.dim[a], by) ||
            is_too_small(w, type, n) || is_narrow(w, type, from.dim[a], n, by))
            continue;
        stream(w, type, from.dim[a], n);
    }
}

// As its declaration says, or one behind it.
static pieces wanted_of(const writer *w, const hd_buffer *tensor)
{
    int dim = hd_type_stream_dim(&tensor->type);

    if (dim < 0 || is_open(w, tensor))
        return w->wanted[tensor->id];
    return (pieces){dim, hd_dim_blocks(tensor->type.dim[dim])};
}

// A version of the tensor, whose dimensions begin at `ahead` of the type.
static void stream_wanted(const writer *w, const hd_buffer *tensor,
                          hd_type *type, int ahead)
{
    pieces as = wanted_of(w, tensor);

    if (as.dim >= 0)
        stream(w, type, as.dim + ahead, as.n);
}

// What `made`, of a statement, comes in its operands come in, too, along the
// same line.
static void want(const writer *w, const hd_lines *lines, int made, pieces as)
{
    const hd_op *op = lines->op;
    hd_dim dim = lines->type[made].dim[as.dim];

    for (int i = 0; i < op->nviews; i++)
        for (int d = 0; d < lines->type[i].ndims; d++) {
            pieces *at = &w->wanted[op->view[i].buffer->id];

            if (hd_op_reads(op, i) && !hd_op_writes(op, i) && at->dim == NONE &&
                op->view[i].nindex == 0 &&
                lines->at[i][d] == lines->at[made][as.dim] &&
                hd_dim_as_long(lines->type[i].dim[d], dim))
                *at = (pieces){d, as.n};
        }
}

// From the last statement back.
static void want_all(writer *w)
{
    int n = 0;
    const hd_stmt **all =
        hd_new_array(w->p->scratch, const hd_stmt *, w->p->nstmts + 1);

    w->wanted = hd_new_array(w->p->scratch, pieces, w->p->nbuffers + 1);
    for (int i = 0; i < w->p->nbuffers; i++)
        w->wanted[i].dim = NONE;
    for (const hd_stmt *s = w->module->body.first; s != NULL; s = s->next)
        all[n++] = s;
    while (n-- > 0)
        for (int i = 0; i < all[n]->op->nviews; i++) {
            const hd_view *view = &all[n]->op->view[i];
            pieces as = wanted_of(w, view->buffer);

            if (hd_op_writes(all[n]->op, i) && view->nindex == 0 &&
                !w->p->lines[n].fixed && as.dim >= 0)
                want(w, &w->p->lines[n], i, as);
        }
}

static bool is_product(const writer *w, int n)
{
    return hd_op_family(w->p->lines[n].op) == HD_FAMILY_PRODUCT;
}

// Whether sums that all ranks get of what the product at hand makes, and
// nothing reads, hide under what is computed behind it, up to the next parts:
// whole they take less than in pieces.
static bool hides_behind(const writer *w, const hd_buffer *parts, int axis,
                         hd_placement to)
{
    const hd_placing *p = w->p;
    int n = (int)(w->lines - p->lines);
    hd_type type = hd_type_without(&parts->type, 0);
    hd_placement from = to;
    int64_t bytes;

    if (to.dim[axis] >= 0 || !is_product(w, n) ||
        p->last[w->lines->op->view[0].buffer->id] >= 0)
        return false;
    from.dim[axis] = HD_PLACED_PARTS;
    bytes = hd_placement_move(w->module, &type, from, to, 0).bytes;
    for (n++; n < p->nstmts && bytes > 0; n++) {
        bytes -= p->way[n]->work;
        if (is_product(w, n) && hd_placement_parts(p->way[n]->at[0]) >= 0)
            break;
    }
    return bytes <= 0;
}

// Parts that are scattered along a dimension; of sums that all ranks get along
// the rows of matrices, or else the first dimension that has enough indices.
static void stream_parts(const writer *w, hd_buffer *parts, int axis,
                         hd_placement to)
{
    hd_type *type = &parts->type;
    int64_t n = w->module->axis[axis].size;
    int dim = to.dim[axis] + 1, rows = type->ndims - 2;

    if (dim == 0 && rows > 0 && type->dim[rows].extent >= n)
        dim = rows;
    for (int d = 1; dim == 0 && d < type->ndims; d++)
        if (type->dim[d].extent >= n && !hd_dim_is_sharded(type->dim[d]))
            dim = d;
    if (dim > 0 && !is_too_small(w, type, n) &&
        !hides_behind(w, parts, axis, to))
        stream(w, type, dim, n);
}

// What all ranks get of the sums of parts comes in their pieces.
static void stream_sums(const writer *w, hd_type *type, hd_buffer *parts,
                        int axis, hd_placement to)
{
    int dim;

    stream_parts(w, parts, axis, to);
    dim = hd_type_stream_dim(&parts->type);
    if (dim > 0 && to.dim[axis] == HD_PLACED_NOWHERE)
        stream(w, type, dim - 1, hd_dim_blocks(parts->type.dim[dim]));
}

// Result `i`, whose dimensions begin at `ahead` of its type, along what its
// operands have in pieces; parts not along the bias, which comes behind them.
static void stream_along(const writer *w, int i, hd_type *type, int ahead)
{
    const hd_lines *lines = w->lines;

    for (int v = 0; v < lines->op->nviews; v++) {
        const hd_view *view = &w->view[v];

        if (hd_op_writes(lines->op, v) ||
            (w->way->ends && v == hd_op_key_view(lines->op, HD_KEY_BIAS)) ||
            hd_placement_parts(w->way->at[v]) >= 0)
            continue;
        for (int d = 0; d < lines->type[v].ndims; d++) {
            hd_dim from = view->buffer->type.dim[hd_view_kept_dim(view, d)];

            for (int k = 0; k < lines->type[i].ndims; k++)
                if (from.mark == HD_STREAM && lines->at[v][d] >= 0 &&
                    lines->at[i][k] == lines->at[v][d] &&
                    hd_dim_as_long(from, type->dim[k + ahead]))
                    stream(w, type, k + ahead, hd_dim_blocks(from));
        }
    }
}

// ------------------------------------------------------------------- moves

static hd_buffer *reshape(writer *w, hd_buffer *from, const hd_type *to)
{
    hd_buffer *made;

    if (hd_type_same_dims(&from->type, to))
        return from;
    made = add_temp(w, from, to);
    hd_build_unary(&w->b, HD_OP_RESHAPE, -1, whole(w, made), whole(w, from));
    return made;
}

// A fold of what is over ranks, or what is taken from that, right into its
// placement.
static void write_fold(writer *w, const hd_placed *v, hd_buffer *to)
{
    const hd_op *fold = v->fold;
    hd_type lacks = to->type;
    bool keeps = hd_op_family(fold) == HD_FAMILY_FOLD &&
                 to->type.ndims == hd_view_type(&fold->view[1]).ndims;
    hd_buffer *made = to;
    hd_view view[HD_MAX_VIEWS];
    hd_op *op;

    if (keeps) {
        lacks = hd_type_without(&to->type, hd_op_dim(fold));
        made = add_temp(w, to, &lacks);
    }
    memcpy(view, fold->view, sizeof *view * (size_t)fold->nviews);
    view[0] = whole(w, made);
    op = hd_build_op(&w->b, fold->code, -1, 1, fold->ninputs, view);
    op->loc = fold->loc;
    for (int i = 0; i < fold->nkeys; i++) // counts follow from the operands
        if (hd_key_info_get(fold->key[i].code)->value != HD_VALUE_BY)
            op->key[op->nkeys++] = fold->key[i];
    if (!keeps)
        return;
    lacks = to->type;
    lacks.dim[hd_op_dim(fold)] = hd_dim_whole(1);
    if (hd_type_same_dims(&lacks, &to->type)) {
        hd_build_unary(&w->b, HD_OP_RESHAPE, -1, whole(w, to), whole(w, made));
        return;
    }
    made = reshape(w, made, &lacks); // a rank has the one index
    hd_build_unary(&w->b, HD_OP_SET, -1, whole(w, to), whole(w, made));
}

// "all_gather over tp, 96.0 MiB", with what of it hides.
static const char *move_text(const writer *w, const hd_placed *v,
                             const hd_buffer *to, hd_placement at)
{
    const hd_module *m = w->module;
    const char *text = "";
    hd_placement now = v->at;
    hd_moves move = hd_placement_move(m, &to->type, v->at, at, 0);

    for (int a = 0; a < m->naxes; a++)
        if (now.dim[a] != at.dim[a] && (m->axis[a].size > 1 || move.n == 0))
            text = hd_arena_printf(
                m->arena, "%s%s%s over %s", text, *text != 0 ? ", " : "",
                now.dim[a] == HD_PLACED_PARTS
                    ? at.dim[a] >= 0 ? "reduce_scatter" : "all_reduce"
                : now.dim[a] < 0 ? "a slice"
                : at.dim[a] >= 0 ? "all_to_all"
                                 : "all_gather",
                m->axis[a].name);
    return hd_arena_printf(m->arena, "%s: %.1f MiB%s", text,
                           (double)move.bytes / 1048576,
                           move.n == 0 || w->waits >= move.ahead ? ""
                           : w->waits > 0 ? ", which hides in part"
                                          : ", which hides");
}

static void explain(writer *w, const char *why)
{
    if (w->p->why && w->b.block->last != NULL)
        w->b.block->last->why = why;
}

static void write_move(writer *w, const hd_placed *v, hd_buffer *to,
                       hd_placement at)
{
    int axis = hd_placement_parts(v->at);
    hd_op *op;

    if (axis < 0) {
        hd_build_unary(&w->b, HD_OP_SET, -1, whole(w, to), whole(w, v->buffer));
    } else if (v->buffer == NULL) {
        write_fold(w, v, to);
    } else {
        stream_parts(w, v->buffer, axis, at);
        op = hd_build_unary(&w->b, HD_OP_SUM, -1, whole(w, to),
                            whole(w, v->buffer));
        hd_build_number(op, HD_KEY_DIM, 0);
    }
    if (w->p->why)
        explain(w, move_text(w, v, to, at));
}

// A buffer for a version of a tensor: its own, where none has that yet.
static hd_buffer *version_buffer(writer *w, hd_buffer *tensor,
                                 const hd_type *type)
{
    if (tensor->open == 0 || !is_open(w, tensor))
        return add_temp(w, tensor, type);
    tensor->type = *type;
    tensor->open = 0;
    return tensor;
}

static hd_placed source_at(const writer *w, hd_buffer *tensor, int i)
{
    return i >= 0 ? w->have.version[i]
                  : (hd_placed){.tensor = tensor->id,
                                .at = w->p->base[tensor->id],
                                .buffer = tensor};
}

// Whether the product at hand works on what it reads piece by piece.
static bool comes_in_tiles(const writer *w, const hd_type *type)
{
    return hd_op_family(w->lines->op) == HD_FAMILY_PRODUCT &&
           hd_type_stream_dim(type) >= 0;
}

// Of what all ranks get while nothing hides it.
static void tell_gathered(const writer *w, const hd_buffer *tensor,
                          const hd_type *type, hd_placement from,
                          hd_placement to)
{
    hd_moves move = hd_placement_move(w->module, &tensor->type, from, to, 0);

    for (int a = 0; a < w->module->naxes; a++)
        if (from.dim[a] >= 0 && to.dim[a] == HD_PLACED_NOWHERE &&
            w->module->axis[a].size > 1 && w->waits >= move.ahead &&
            !comes_in_tiles(w, type) &&
            hd_placement_bytes(w->module, &tensor->type, to) >= HD_PLACE_MUCH)
            hd_warning(
                w->p->diag, HD_E0507, w->b.loc,
                "%%%s is gathered over %s for this %s, %.1f MiB on each "
                "rank, and nothing hides that",
                tensor->said, w->module->axis[a].name,
                hd_op_info_get(w->lines->op->code)->text,
                (double)hd_placement_bytes(w->module, &tensor->type, to) /
                    1048576);
}

// What a tensor is where it is needed.
static hd_buffer *bring(writer *w, hd_buffer *tensor, hd_placement to,
                        reader by)
{
    unsigned gathers = by.lines != NULL ? hd_place_gathers(by.lines, by.i) : 0;
    hd_moves move;
    int from = hd_place_source(w->p, &w->have, tensor, to, gathers, &move);
    hd_placed v = source_at(w, tensor, from);
    bool parts = hd_placement_parts(v.at) >= 0;
    hd_buffer *moved;
    hd_type type;

    if (hd_placement_same(v.at, to))
        return v.buffer;
    type = hd_type_unstreamed(hd_placement_type(w->module, &tensor->type, to));
    stream_wanted(w, tensor, &type, 0);
    stream_gathered(w, &type, v.at, to, by);
    tell_gathered(w, tensor, &type, v.at, to);
    if (!parts && is_open(w, tensor))
        stream_as(w, &v.buffer->type, &type);
    if (parts && v.buffer != NULL)
        stream_sums(w, &type, v.buffer, hd_placement_parts(v.at), to);
    if (parts)
        hd_versions_drop(&w->have, from);
    moved =
        parts ? version_buffer(w, tensor, &type) : add_temp(w, v.buffer, &type);
    write_move(w, &v, moved, to);
    hd_versions_add(w->p, &w->have,
                    (hd_placed){.tensor = v.tensor, .at = to, .buffer = moved});
    return moved;
}

// What of the moves of view `i` the statement at hand waits for.
static int64_t waits_for(const writer *w, int i)
{
    return w->p->waits[w->lines - w->p->lines].view[i];
}

static void read_view(writer *w, int i)
{
    const hd_view *view = &w->lines->op->view[i];

    w->waits = waits_for(w, i);
    w->view[i].buffer =
        bring(w, view->buffer, hd_place_of_buffer(view, w->way->at[i]),
              (reader){w->lines, i});
}

static void explain_statement(writer *w)
{
    if (w->p->why)
        explain(w, hd_arena_printf(w->module->arena, "%s",
                                   w->p->reason[w->lines - w->p->lines]));
}

// ----------------------------------------------------------------- results

// Takes the tensor from what was made, which is there now.
static void write_version(writer *w, hd_buffer *tensor, hd_placement at,
                          hd_buffer *buffer)
{
    hd_versions_add(
        w->p, &w->have,
        (hd_placed){.tensor = tensor->id, .at = at, .buffer = buffer});
}

// The axis over which a product has dimension `dim` of its result, which is
// declared as all that ranks have together; NONE.
static int gathered_axis(const writer *w, int dim)
{
    const hd_op *op = w->lines->op;
    const hd_buffer *x = op->view[0].buffer;
    hd_placement at = w->way->at[0];
    int axis = hd_placement_axis(at, dim);

    if (hd_op_family(op) != HD_FAMILY_PRODUCT || axis < 0 || is_open(w, x) ||
        x->role == HD_ROLE_INOUT || wanted_of(w, x).dim != NONE)
        return NONE;
    for (int i = 0; i < op->nkeys; i++)
        if (op->key[i].code != HD_KEY_TB && op->key[i].code != HD_KEY_ACT &&
            op->key[i].code != HD_KEY_BIAS)
            return NONE;
    for (int i = 0; i < 3; i++)
        if (op->view[i].nindex > 0)
            return NONE;
    at.dim[axis] = HD_PLACED_NOWHERE;
    return hd_placement_same(at, w->p->base[x->id]) ? axis : NONE;
}

// Whether each of so many tiles of what a rank has of the result is a mebibyte.
static bool fills_tiles(const writer *w, int64_t n)
{
    return hd_placement_bytes(w->module, &w->lines->type[0], w->way->at[0]) >=
           n * TILE;
}

// The axis over which a product of matrices makes rows that all ranks get, in
// tiles; NONE.
static int tiles_axis(const writer *w)
{
    hd_dim rows = w->lines->type[0].dim[0];
    int axis = gathered_axis(w, 0);

    for (int i = 0; i < 3; i++)
        if (w->lines->type[i].ndims != 2)
            return NONE;
    return axis >= 0 && hd_dim_splits(w->module, rows, axis) &&
                   rows.extent / w->module->axis[axis].size % TILES == 0 &&
                   fills_tiles(w, TILES)
               ? axis
               : NONE;
}

// Of a batch of products whose rows all ranks get each sample is a tile, or of
// many as many together; 0: none.
static int64_t count_samples(const writer *w)
{
    hd_type type = w->lines->type[0];
    int64_t n = type.dim[0].extent;

    if (type.ndims < 3 || gathered_axis(w, type.ndims - 2) < 0)
        return 0;
    if (n > 2 * TILES)
        n = n % TILES == 0 ? TILES : 0;
    return fills_tiles(w, n) ? n : 0;
}

// Of what dtype numbers are that results round, if they hold less.
static hd_dtype rounded_from(const writer *w)
{
    const hd_op *op = w->lines->op;
    int view =
        hd_op_family(op) == HD_FAMILY_ATTEND ? hd_op_lse(op) : op->noutputs;

    return w->lines->type[view].dtype;
}

// Whether view `i` is a result that is made apart.
static bool is_apart(const writer *w, int i)
{
    return w->way->apart && i < w->lines->op->noutputs;
}

// What the statement makes as view `i`: what is added to narrower numbers is
// rounded with them, once.
static hd_type made_type(const writer *w, int i)
{
    hd_type type = w->lines->type[i];

    if (!is_apart(w, i) || !hd_dtype_is_float(type.dtype))
        return type;
    if (hd_dtype_size(type.dtype) < hd_dtype_size(HD_DTYPE_F32))
        type.dtype = HD_DTYPE_F32;
    if (!hd_dtype_holds(type.dtype, rounded_from(w)))
        type.dtype = rounded_from(w);
    return type;
}

// Where result `i` is made: in its own buffer, or in one from which it is moved
// there.
static hd_view make_view(writer *w, int i)
{
    const hd_view *view = &w->lines->op->view[i];
    hd_buffer *x = view->buffer;
    hd_placement at = hd_place_of_buffer(view, w->way->at[i]);
    hd_view made = *view;
    int64_t samples;
    hd_type type;

    if ((w->way->own >> i & 1) != 0)
        return made;
    if (is_open(w, x)) {
        type = hd_placement_type(w->module, &x->type, at);
        stream_along(w, i, &type, 0);
        made.buffer = version_buffer(w, x, &type);
        write_version(w, x, at, made.buffer);
        return made;
    }
    if (hd_placement_same(at, w->p->base[x->id]) && !is_apart(w, i)) {
        if (x->role == HD_ROLE_OUT && view->nindex == 0)
            stream_along(w, i, &x->type, 0);
        return made;
    }
    type = made_type(w, i);
    type = hd_placement_type(w->module, &type, w->way->at[i]);
    stream_along(w, i, &type, 0);
    if (hd_type_stream_dim(&type) < 0) {
        samples = count_samples(w);
        stream(w, &type, 0, samples);
        stream(w, &x->type, 0, samples);
    }
    return whole(w, add_temp(w, x, &type));
}

static void write_result(writer *w, hd_view to, hd_view from)
{
    hd_placed v = {.at = hd_placement_of(&from.buffer->type)};

    hd_build_unary(&w->b, HD_OP_SET, -1, to, from);
    if (w->p->why && to.nindex == 0 && from.nindex == 0)
        explain(w, move_text(w, &v, to.buffer, w->p->base[to.buffer->id]));
}

static void write_add(writer *w, hd_view to, hd_view a, hd_view b)
{
    bool same = a.buffer->type.dtype == b.buffer->type.dtype;

    hd_build_op(&w->b, same ? HD_OP_ADD : HD_OP_SUM, -1, 1, 2,
                (hd_view[]){to, a, b});
}

// What was made apart, where its results are.
static hd_view bring_made(writer *w, int i, hd_view made)
{
    const hd_view *to = &w->lines->op->view[i];
    hd_placed v = {.at = w->way->at[i], .buffer = made.buffer};
    hd_placement at = hd_place_of_view(to, w->p->base[to->buffer->id]);
    hd_type type;

    if (hd_placement_same(v.at, at))
        return made;
    type = hd_type_unstreamed(made.buffer->type);
    type = hd_placement_type(w->module, &type, at);
    w->waits = waits_for(w, i);
    made = whole(w, add_temp(w, to->buffer, &type));
    write_move(w, &v, made.buffer, at);
    return made;
}

// Rows that have met more keys are merged with those that are there, where they
// were made; of keys in blocks in the dtype that these are joined in.
static void merge_made(writer *w, const hd_view *made)
{
    const hd_op *op = w->lines->op;
    hd_view views[HD_MAX_VIEWS] = {made[0]};
    bool blocks = hd_op_key(op, HD_KEY_BLOCKS) != NULL;
    int n = op->noutputs;

    for (int i = 0; i < n; i++) {
        hd_type type = made[i].buffer->type;

        if (!blocks)
            type.dtype = w->lines->type[i].dtype;
        views[i] = whole(w, add_temp(w, op->view[i].buffer, &type));
        views[n + i] = w->view[i];
        views[2 * n + i] = made[i];
    }
    hd_build_op(&w->b, HD_OP_MERGE, -1, n, 2 * n, views);
    for (int i = 0; i < n; i++)
        write_result(w, op->view[i], views[i]);
}

// To what holds less than what it is rounded from the sum is cast.
static void add_to(writer *w, int i, hd_view made)
{
    const hd_view *to = &w->lines->op->view[i];
    hd_type type = hd_view_type(to);
    hd_view wide, sum;

    if (hd_dtype_holds(type.dtype, rounded_from(w))) {
        write_add(w, *to, *to, made);
        return;
    }
    type.dtype = made.buffer->type.dtype;
    wide = whole(w, add_temp(w, to->buffer, &type));
    sum = whole(w, add_temp(w, to->buffer, &type));
    hd_build_unary(&w->b, HD_OP_COPY, -1, wide, *to);
    write_add(w, sum, wide, made);
    hd_build_unary(&w->b, HD_OP_COPY, -1, *to, sum);
}

// Adds it to what is there.
static void add_made(writer *w, const hd_view *made)
{
    const hd_op *op = w->lines->op;

    if (hd_way_merges(w->way, op)) {
        merge_made(w, made);
        return;
    }
    for (int i = 0; i < op->noutputs; i++)
        add_to(w, i, bring_made(w, i, made[i]));
}

// Moves what was made elsewhere to where its declaration has it.
static void end_view(writer *w, int i, hd_view made)
{
    const hd_view *view = &w->lines->op->view[i];

    w->waits = waits_for(w, i);
    if (made.buffer != view->buffer && !is_apart(w, i))
        write_result(w, *view, made);
    if (!is_open(w, view->buffer))
        write_version(w, view->buffer, w->p->base[view->buffer->id],
                      view->buffer);
}

// [.., k@axis, ..] as [.., n@axis, k / n, ..].
static hd_type split_type(const writer *w, const hd_type *type, int dim,
                          int axis)
{
    int64_t n = w->module->axis[axis].size;
    hd_type split = *type;
    hd_dim ranks = hd_dim_whole(n);

    ranks.mark = axis;
    split.dim[dim] = hd_dim_whole(type->dim[dim].extent / n);
    return hd_type_with(&split, dim, ranks);
}

// The statement itself, of what it reads and what it makes.
static void append_statement(writer *w, const hd_view *made)
{
    hd_op *op = w->stmt->op;
    hd_view old[HD_MAX_VIEWS];

    memcpy(old, op->view, sizeof *old * (size_t)op->nviews);
    for (int i = 0; i < op->nviews; i++)
        op->view[i] = hd_op_writes(op, i) ? made[i] : w->view[i];
    hd_block_append(w->b.block, w->stmt);
    explain_statement(w);
    // The lines name the statement's own views and keys still.
    w->stmt->op = hd_arena_copy(w->module->arena, op, sizeof *op);
    w->stmt->op->view = hd_arena_copy(w->module->arena, op->view,
                                      sizeof *old * (size_t)op->nviews);
    if (w->way->apart) {
        w->stmt->op->key = hd_arena_copy(w->module->arena, op->key,
                                         sizeof *op->key * (size_t)op->nkeys);
        hd_build_drop_key(w->stmt->op, HD_KEY_ACCUMULATE);
    }
    memcpy(op->view, old, sizeof *old * (size_t)op->nviews);
}

// Rows of ranks as [n@axis, tiles, rows of a tile, ..].
static hd_type tiled_type(const writer *w, const hd_type *type, int axis)
{
    hd_type tiled = hd_type_unstreamed(*type);
    hd_dim each;

    tiled = split_type(w, &tiled, 0, axis);
    each = hd_dim_whole(tiled.dim[1].extent / TILES);
    tiled.dim[1] = hd_dim_whole(TILES);
    return hd_type_with(&tiled, 2, each);
}

// Tiles are gathered while the next ones are computed.
static void write_tiles(writer *w, int axis)
{
    hd_op *op = w->stmt->op;
    hd_buffer *x = op->view[0].buffer;
    hd_placed v = {.at = w->way->at[0]};
    hd_type read = tiled_type(w, &w->view[1].buffer->type, axis);
    hd_type made = hd_placement_type(w->module, &x->type, v.at);
    hd_type all;
    hd_view given = op->view[0];
    hd_buffer *tiles, *gathered;

    made = tiled_type(w, &made, axis);
    made.dim[1].mark = HD_STREAM;
    all = made;
    all.dim[0] = hd_dim_whole(made.dim[0].extent);
    tiles = add_temp(w, x, &made);
    gathered = add_temp(w, x, &all);
    w->view[1] = whole(w, reshape(w, w->view[1].buffer, &read));
    append_statement(w, (hd_view[]){whole(w, tiles)});
    hd_build_unary(&w->b, HD_OP_SET, -1, whole(w, gathered), whole(w, tiles));
    if (w->p->why)
        explain(w, move_text(w, &v, x, w->p->base[x->id]));
    hd_build_unary(&w->b, HD_OP_RESHAPE, -1, given, whole(w, gathered));
    write_version(w, x, w->p->base[x->id], x);
}

// A bias that a wide result takes.
static void widen_bias(writer *w)
{
    const hd_op *op = w->lines->op;
    int bias = hd_op_key_view(op, HD_KEY_BIAS);
    hd_type type;
    hd_buffer *wide;

    if (bias < 0 || made_type(w, 0).dtype == w->lines->type[0].dtype)
        return;
    type = hd_view_type(&w->view[bias]);
    if (type.dtype == HD_DTYPE_F32 || type.dtype == w->lines->type[1].dtype)
        return;
    type.dtype = HD_DTYPE_F32;
    wide = add_temp(w, w->view[bias].buffer, &type);
    hd_build_unary(&w->b, HD_OP_COPY, -1, whole(w, wide), w->view[bias]);
    w->view[bias] = whole(w, wide);
}

static void write_plain(writer *w)
{
    hd_op *op = w->stmt->op;
    hd_view made[HD_MAX_VIEWS];

    widen_bias(w);
    for (int i = 0; i < op->nviews; i++)
        if (hd_op_writes(op, i))
            made[i] = make_view(w, i);
    if (op->code == HD_OP_COPY && op->nviews == 2 &&
        made[0].buffer != op->view[0].buffer) {
        write_result(w, op->view[0], w->view[1]);
        made[0] = op->view[0];
    } else {
        append_statement(w, made);
    }
    if (w->way->apart)
        add_made(w, made);
    for (int i = 0; i < op->nviews; i++)
        if (hd_op_writes(op, i))
            end_view(w, i, made[i]);
}

// -------------------------------------------------------- products of parts

// All of what a view has as a tensor of its own.
static hd_buffer *own_tensor(writer *w, const hd_view *view)
{
    hd_type type;
    hd_buffer *own;

    if (view->nindex == 0)
        return view->buffer;
    type = hd_view_type(view);
    own = add_temp(w, view->buffer, &type);
    hd_build_unary(&w->b, HD_OP_COPY, -1, whole(w, own), *view);
    return own;
}

// The tensor with dimension `from` at `to`.
static hd_buffer *move_dim(writer *w, hd_buffer *x, int from, int to)
{
    hd_type type = hd_type_moved(&x->type, from, to);
    hd_buffer *made;

    if (from == to)
        return x;
    made = add_temp(w, x, &type);
    hd_build_moved(&w->b, whole(w, made), whole(w, x), from, to);
    return made;
}

// An operand with the ranks in front. These are names of its bytes, and no loop
// makes them piece by piece.
static hd_view lead(writer *w, int i, int axis, int ndims)
{
    hd_buffer *x = own_tensor(w, &w->view[i]);
    int dim = w->way->at[i].dim[axis];
    hd_type type = hd_type_unstreamed(x->type), led;

    if (dim > 0) {
        type = split_type(w, &type, dim, axis);
        x = move_dim(w, reshape(w, x, &type), dim, 0);
    }
    led = hd_type_unstreamed(x->type);
    if (dim == 0) {
        led = hd_type_led(w->module, &led, 0, axis, ndims);
    } else {
        while (led.ndims < ndims)
            led = hd_type_with(&led, 1, hd_dim_whole(1));
    }
    return whole(w, reshape(w, x, &led));
}

// Parts of the result, ranks in front.
static hd_type parts_type(const writer *w, int axis)
{
    hd_placement at = w->way->at[0];
    hd_type type;

    at.dim[axis] = HD_PLACED_NOWHERE;
    type = hd_type_unstreamed(
        hd_placement_type(w->module, &w->lines->type[0], at));
    return hd_type_led(w->module, &type, NONE, axis, type.ndims + 1);
}

static hd_buffer *add_parts(writer *w, hd_type *type)
{
    const hd_view *view = &w->lines->op->view[0];
    hd_buffer *parts;

    if (view->nindex == 0)
        stream_wanted(w, view->buffer, type, 1);
    parts = hd_module_add_buffer(
        w->module,
        hd_arena_printf(w->module->arena, "%s_parts", view->buffer->name),
        HD_ROLE_TEMP, type);
    parts->said = view->buffer->said;
    parts->loc = view->buffer->loc;
    w->parts = hd_arena_grow(w->p->scratch, w->parts, w->nparts, &w->room,
                             sizeof(hd_buffer *));
    w->parts[w->nparts++] = parts;
    return parts;
}

// Parts of the result along what those of operand `i` have in pieces.
static void stream_along_parts(const writer *w, int i, hd_type *type)
{
    const hd_lines *lines = w->lines;

    for (int d = 0; d < lines->type[i].ndims; d++) {
        hd_dim from = w->view[i].buffer->type.dim[d + 1];

        for (int k = 0; k < lines->type[0].ndims; k++)
            if (from.mark == HD_STREAM && lines->at[i][d] >= 0 &&
                lines->at[0][k] == lines->at[i][d] &&
                hd_dim_as_long(from, type->dim[k + 1]))
                stream(w, type, k + 1, hd_dim_blocks(from));
    }
}

// Parts of operand `i`, ones behind the ranks where it has fewer dimensions.
static hd_view lead_parts(writer *w, int i, int ndims)
{
    hd_buffer *x = w->view[i].buffer;
    hd_type type = x->type;

    if (hd_op_family(w->lines->op) == HD_FAMILY_MAP ||
        w->lines->op->ninputs > 1)
        while (type.ndims < ndims)
            type = hd_type_with(&type, 1, hd_dim_whole(1));
    return whole(w, reshape(w, x, &type));
}

// The keys of the statement at hand that `leaves` does not have, with what is
// brought for their views.
static void copy_keys(const writer *w, hd_op *to,
                      bool (*leaves)(hd_key_code code))
{
    const hd_op *op = w->lines->op;

    for (int code = 0; code < HD_NKEYS; code++) { // in order
        const hd_key *from = hd_op_key(op, (hd_key_code)code);
        hd_key *key = &to->key[to->nkeys];

        if (from == NULL || (leaves != NULL && leaves(from->code)))
            continue;
        *key = *from;
        to->nkeys++;
        if (key->view < 0)
            continue;
        to->view[to->nviews] = w->view[key->view];
        key->view = to->nviews++;
    }
}

// Keys of a statement whose operands have the ranks in front.
static void lead_keys(const writer *w, hd_op *to)
{
    copy_keys(w, to, NULL);
    for (int i = 0; i < to->nkeys; i++)
        if (to->key[i].code == HD_KEY_DIM)
            to->key[i].number += 1;
}

static void lead_order(writer *w, const hd_view view[2])
{
    int ndims = w->lines->type[1].ndims;
    int8_t order[HD_MAX_DIMS], led[HD_MAX_DIMS] = {0};

    hd_op_order(w->lines->op, ndims, order);
    for (int d = 0; d < ndims; d++)
        led[d + 1] = (int8_t)(order[d] + 1);
    hd_build_ordered(&w->b, view[0], view[1], led);
}

// Whether the operands of a product that makes parts get the ranks in front.
// They stay as they lie where that would copy them, or lose their pieces.
static bool are_led(const writer *w, int axis)
{
    bool stay = false;

    for (int i = 1; i < 3; i++) {
        const hd_view *view = &w->view[i];

        stay |= view->nindex > 0 || view->buffer->role == HD_ROLE_INOUT ||
                hd_type_stream_dim(&view->buffer->type) >= 0;
    }
    return hd_lines_lead(w->module, w->lines, axis) &&
           !(stay &&
             hd_lines_make_parts(w->module, w->lines, axis, w->way->at));
}

// The product of what each rank has of the contracted dimension.
static hd_buffer *write_parts(writer *w, int axis)
{
    const hd_op *op = w->lines->op;
    int ndims = w->lines->type[0].ndims + 1;
    hd_type type = parts_type(w, axis);
    int bias = hd_op_key_view(op, HD_KEY_BIAS);
    hd_buffer *parts,
        *adds = bias >= 0 && !w->way->ends ? w->view[bias].buffer : NULL;
    bool led = are_led(w, axis);
    hd_view views[3];
    hd_op *product;

    stream_along(w, 0, &type, 1);
    for (int d = 1; adds != NULL && d < ndims; d++)
        if (adds->type.dim[d].mark == HD_STREAM)
            stream(w, &type, d, hd_dim_blocks(adds->type.dim[d]));
    parts = add_parts(w, &type);
    for (int i = 1; i < 3; i++)
        views[i] = led ? lead(w, i, axis, ndims) : w->view[i];
    views[0] = whole(w, parts);
    product = hd_build_op(&w->b, HD_OP_MATMUL, -1, 1, 2, views);
    product->loc = op->loc;
    explain_statement(w);
    copy_keys(w, product, hd_key_ends);
    if (adds != NULL)
        hd_build_key_view(product, HD_KEY_BIAS, whole(w, adds));
    return parts;
}

// A statement on parts, which makes parts.
static hd_buffer *write_linear(writer *w, int axis)
{
    const hd_op *op = w->lines->op;
    unsigned parts = hd_lines_parts(w->lines, w->way->cut);
    int ndims = w->lines->type[0].ndims + 1;
    bool folds = hd_op_dim(op) >= 0 && hd_op_family(op) == HD_FAMILY_FOLD;
    bool keeps = folds && w->lines->type[1].ndims == w->lines->type[0].ndims;
    hd_type type = parts_type(w, axis), made;
    hd_view view[HD_MAX_VIEWS];
    hd_buffer *to;

    for (int i = 0; i < op->nviews; i++)
        if ((parts >> i & 1) != 0)
            stream_along_parts(w, i, &type);
    to = add_parts(w, &type);
    made = type;
    if (keeps)
        made = hd_type_without(&type, hd_op_dim(op) + 1);
    for (int i = op->noutputs; i < op->noutputs + op->ninputs; i++)
        view[i] = (parts >> i & 1) != 0 ? lead_parts(w, i, ndims) : w->view[i];
    view[0] = whole(w, keeps ? add_temp(w, to, &made) : to);
    if (hd_op_family(op) == HD_FAMILY_TRANSPOSE)
        lead_order(w, view);
    else
        lead_keys(w, hd_build_op(&w->b, op->code, -1, 1, op->ninputs, view));
    w->b.block->last->op->loc = op->loc;
    explain_statement(w);
    if (keeps)
        hd_build_unary(&w->b, HD_OP_RESHAPE, -1, whole(w, to), view[0]);
    return to;
}

static hd_opcode opcode_of(hd_map map)
{
    int code = 0;

    while (hd_op_info_get((hd_opcode)code)->map != map)
        code++;
    return (hd_opcode)code;
}

// A tensor as the result is, where it ends.
static hd_buffer *add_like(const writer *w, hd_placement at)
{
    hd_type type = hd_placement_type(w->module, &w->lines->type[0], at);

    return add_temp(w, w->lines->op->view[0].buffer, &type);
}

static hd_buffer *add_bias(writer *w, hd_buffer *sum, int bias, hd_buffer *to)
{
    write_add(w, whole(w, to), whole(w, sum), w->view[bias]);
    return to;
}

// What `act` was applied to, kept where `aux` says.
static void keep_aux(writer *w, int aux, hd_buffer *now, hd_placement at)
{
    hd_buffer *kept = w->lines->op->view[aux].buffer;
    hd_type type = hd_placement_type(w->module, &kept->type, at);

    if (is_open(w, kept))
        kept = version_buffer(w, kept, &type);
    else
        at = w->p->base[kept->id];
    hd_build_unary(&w->b, HD_OP_SET, -1, whole(w, kept), whole(w, now));
    write_version(w, kept, at, kept);
}

// Sums of parts, and what else the statement does to them, of which the last
// makes its result.
static void write_ends(writer *w, hd_placed *parts)
{
    const hd_op *op = w->lines->op;
    hd_placement at = w->way->end;
    int bias = hd_op_key_view(op, HD_KEY_BIAS);
    int aux = hd_op_key_view(op, HD_KEY_AUX);
    const hd_key *act = hd_op_key(op, HD_KEY_ACT);
    bool adds = hd_op_key(op, HD_KEY_ACCUMULATE) != NULL;
    hd_view out = op->view[0];
    bool apart = out.nindex > 0 || adds;
    hd_buffer *now, *end;

    if (is_open(w, out.buffer)) {
        hd_type type = hd_placement_type(w->module, &out.buffer->type, at);

        out.buffer = version_buffer(w, out.buffer, &type);
        write_version(w, op->view[0].buffer, at, out.buffer);
    } else {
        write_version(w, out.buffer, w->p->base[out.buffer->id], out.buffer);
    }
    end = apart ? add_like(w, at) : out.buffer;
    now = bias < 0 && act == NULL ? end : add_like(w, at);
    write_move(w, parts, now, at);
    if (bias >= 0)
        now = add_bias(w, now, bias, act == NULL ? end : add_like(w, at));
    if (aux >= 0)
        keep_aux(w, aux, now, at);
    if (act != NULL) {
        hd_build_unary(&w->b, opcode_of(hd_act_map(act->act)), -1,
                       whole(w, end), whole(w, now));
        now = end;
    }
    if (adds)
        write_add(w, out, out, whole(w, now));
    else if (apart)
        hd_build_unary(&w->b, HD_OP_COPY, -1, out, whole(w, now));
}

// The statement by what it reads, which is where it needs that.
static const hd_op *fold_of(const writer *w)
{
    hd_op *op = hd_arena_copy(w->p->scratch, w->lines->op, sizeof *op);

    op->view = hd_arena_copy(w->p->scratch, op->view,
                             sizeof *op->view * (size_t)op->nviews);
    for (int i = op->noutputs; i < op->nviews; i++)
        op->view[i] = w->view[i];
    return op;
}

// What is written there is told of by what the text has.
static void note_said(hd_stmt *first, const hd_op *op)
{
    for (hd_stmt *s = first; s != NULL; s = s->next)
        if (s->op->loc.line == op->loc.line &&
            s->op->loc.column == op->loc.column)
            s->op->said = op->code;
}

// Parts are added up right behind what makes them, as who reads them first
// needs that, so that it is under way while others are done.
static void sum_at_once(writer *w, hd_buffer *x)
{
    const hd_placing *p = w->p;
    hd_stmt *last = w->b.block->last;
    hd_loc loc = w->b.loc;

    for (int n = (int)(w->lines - p->lines) + 1; n < p->nstmts; n++) {
        const hd_op *op = p->lines[n].op;

        for (int i = 0; i < op->nviews; i++) {
            hd_placement to;

            if (op->view[i].buffer != x)
                continue;
            to = hd_place_of_buffer(&op->view[i], p->way[n]->at[i]);
            w->waits = p->waits[n].view[i];
            w->b.loc = op->loc;
            if (hd_way_brings(p->way[n], op, i) && !p->way[n]->names &&
                hd_placement_parts(to) < 0)
                bring(w, x, to, (reader){&p->lines[n], i});
            note_said(last->next, op);
            w->b.loc = loc;
            return;
        }
    }
}

// What ranks have parts of: added up where it is declared, or where it is read.
static void write_sum(writer *w, int axis)
{
    const hd_op *op = w->lines->op;
    hd_buffer *x = op->view[0].buffer;
    hd_placed v = {.tensor = x->id,
                   .at = hd_place_of_buffer(&op->view[0], w->way->at[0])};

    if (hd_op_family(op) == HD_FAMILY_PRODUCT) {
        v.buffer = write_parts(w, axis);
    } else if (hd_cut_parts(w->way->cut) >= 0) {
        v.buffer = write_linear(w, axis);
    } else {
        v.fold = fold_of(w);
    }
    if (w->way->ends) {
        write_ends(w, &v);
    } else if (is_open(w, x)) {
        hd_versions_add(w->p, &w->have, v);
        if (v.buffer != NULL)
            sum_at_once(w, x);
    } else if (op->view[0].nindex > 0) {
        hd_buffer *sum =
            add_like(w, hd_place_of_view(&op->view[0], w->p->base[x->id]));

        write_move(w, &v, sum, hd_placement_of(&sum->type));
        hd_build_unary(&w->b, HD_OP_COPY, -1, op->view[0], whole(w, sum));
        write_version(w, x, w->p->base[x->id], x);
    } else {
        write_move(w, &v, x, w->p->base[x->id]);
        write_version(w, x, w->p->base[x->id], x);
    }
}

// ------------------------------------------------------ attention by rows

// Whether an axis divides rows, which the signature of an attention wants
// whole.
static bool splits(const writer *w, int axis)
{
    return hd_lines_splits(w->lines, w->way->cut.line[axis]);
}

static int rows_axis(const writer *w)
{
    for (int a = 0; a < w->module->naxes; a++)
        if (splits(w, a))
            return a;
    return NONE;
}

static bool is_keys(const writer *w, int i)
{
    return hd_op_has_keys(w->lines->op, i);
}

// The batch of a view before it is split.
static int batch_of(const writer *w, int i)
{
    return hd_op_batch(w->lines->op, i, w->lines->type[i].ndims);
}

// View `i` with an index for each rank that has rows behind its batch, or one
// index where it repeats; of keys blocks of rows are none of these.
static hd_buffer *split_view(writer *w, int i, hd_buffer *x)
{
    int batch = batch_of(w, i);

    for (int a = 0; a < w->module->naxes; a++) {
        int dim = w->way->at[i].dim[a];
        hd_type type = hd_type_unstreamed(x->type);

        if (!splits(w, a) || (is_keys(w, i) && batch == 0))
            continue;
        if (dim >= 0 && !is_keys(w, i)) {
            int now = dim + x->type.ndims - w->lines->type[i].ndims;

            type = split_type(w, &type, now, a);
            x = move_dim(w, reshape(w, x, &type), now, batch++);
        } else {
            type = hd_type_with(&type, batch++, hd_dim_whole(1));
            x = reshape(w, x, &type);
        }
    }
    return x;
}

// Keys of which each rank has a block, as blocks that all ranks get.
static hd_buffer *block_keys(writer *w, int i, hd_buffer *x, int axis)
{
    int dim = w->way->at[i].dim[axis] + x->type.ndims - w->lines->type[i].ndims;
    int heads = x->type.ndims - 3;
    hd_type type = hd_type_unstreamed(x->type);
    hd_buffer *all;

    type = split_type(w, &type, dim, axis);
    x = move_dim(w, reshape(w, x, &type), dim, heads);
    type = x->type;
    type.dim[heads] = hd_dim_whole(type.dim[heads].extent);
    stream(w, &type, heads, type.dim[heads].extent);
    all = add_temp(w, x, &type);
    hd_build_unary(&w->b, HD_OP_SET, -1, whole(w, all), whole(w, x));
    return all;
}

// Whether an axis is one of the batch of view `i` then: of keys rows become
// blocks.
static bool leads(const writer *w, int i, int axis)
{
    return splits(w, axis) && !is_keys(w, i);
}

// What the split statement makes of result `i`: of gradients of keys whose
// blocks all ranks have met, parts, with ranks in the batch, and blocks in
// front of the heads. Parts are not rounded.
static hd_type split_result(const writer *w, int i)
{
    hd_placement at = w->way->at[i];
    int rows = NONE, n = 0;
    hd_type type;

    for (int a = 0; a < w->module->naxes; a++)
        if (splits(w, a))
            at.dim[a] = HD_PLACED_NOWHERE;
    type = made_type(w, i);
    type = hd_type_unstreamed(hd_placement_type(w->module, &type, at));
    for (int a = 0; a < w->module->naxes; a++) {
        int dim = w->way->at[i].dim[a] + n;
        hd_dim ranks = hd_dim_whole(w->module->axis[a].size);

        if (!splits(w, a))
            continue;
        if (leads(w, i, a)) {
            type = split_type(w, &type, dim, a);
            type = hd_type_moved(&type, dim, batch_of(w, i) + n++);
        } else {
            ranks.mark = a;
            type = hd_type_with(&type, batch_of(w, i) + n++, ranks);
            rows = a;
        }
    }
    if (rows < 0)
        return type;
    type = split_type(w, &type, type.ndims - 2, rows);
    type = hd_type_moved(&type, type.ndims - 3, type.ndims - 4);
    type.dim[type.ndims - 4] = hd_dim_whole(w->module->axis[rows].size);
    stream(w, &type, type.ndims - 4, w->module->axis[rows].size);
    type.dtype = w->lines->type[hd_op_lse(w->lines->op)].dtype;
    return type;
}

// Parts of gradients of keys, added up where each rank has its block of them.
static hd_buffer *sum_blocks(writer *w, int i, hd_buffer *parts)
{
    int axis = rows_axis(w), dim = hd_type_axis_dim(&parts->type, axis);
    hd_type type = hd_type_without(&parts->type, dim);
    hd_dim blocks = hd_dim_unstreamed(type.dim[type.ndims - 4]);
    hd_buffer *sum;
    hd_op *op;

    blocks.mark = axis;
    type.dim[type.ndims - 4] = blocks;
    sum = add_temp(w, parts, &type);
    op = hd_build_unary(&w->b, HD_OP_SUM, -1, whole(w, sum), whole(w, parts));
    hd_build_number(op, HD_KEY_DIM, dim);
    if (type.dtype == w->lines->type[i].dtype)
        return sum;
    type.dtype = w->lines->type[i].dtype;
    parts = add_temp(w, sum, &type);
    hd_build_unary(&w->b, HD_OP_COPY, -1, whole(w, parts), whole(w, sum));
    return parts;
}

// With dimension `from`, of an axis, back in front of what it divides, at `to`,
// and joined with it.
static hd_buffer *join_axis(writer *w, hd_buffer *x, int from, int to, int axis,
                            const hd_view *last)
{
    hd_type type;

    x = move_dim(w, x, from, to);
    type = x->type;
    type.dim[to] =
        hd_dim_cut(hd_dim_whole(type.dim[to].extent * type.dim[to + 1].extent),
                   type.dim[to].extent);
    type.dim[to].mark = axis;
    type = hd_type_without(&type, to + 1);
    if (last == NULL || last->nindex > 0)
        x = reshape(w, x, &type);
    if (last != NULL)
        hd_build_unary(&w->b, last->nindex > 0 ? HD_OP_COPY : HD_OP_RESHAPE, -1,
                       *last, whole(w, x));
    return last != NULL ? last->buffer : x;
}

// The result as it was split, back to what it is.
static void join_result(writer *w, int i, hd_buffer *made, hd_view to)
{
    int batch = batch_of(w, i), at[HD_MAX_AXES], n = 0;
    bool blocks = is_keys(w, i) && rows_axis(w) >= 0;
    hd_buffer *x = blocks ? sum_blocks(w, i, made) : made;

    for (int a = 0; a < w->module->naxes; a++)
        if (leads(w, i, a))
            at[n++] = a;
    if (blocks)
        x = join_axis(w, x, x->type.ndims - 4,
                      w->way->at[i].dim[rows_axis(w)] + n, rows_axis(w),
                      n == 0 ? &to : NULL);
    while (n-- > 0)
        x = join_axis(w, x, batch + n, w->way->at[i].dim[at[n]] + n, at[n],
                      n == 0 ? &to : NULL);
}

static bool comes_behind(hd_key_code code)
{
    return code == HD_KEY_ACCUMULATE;
}

// How many rows, or keys, ranks that stand ahead on the axis have of view `i`:
// rows see that many keys further, or fewer.
static hd_expr shift_sight(const writer *w, hd_op *op, int i, int axis,
                           hd_expr_kind kind)
{
    hd_module *m = w->module;
    int64_t n = w->lines->type[i].dim[w->way->at[i].dim[axis]].extent;
    hd_expr ahead = hd_expr_binary(m, HD_EXPR_MUL, hd_expr_coord(m, axis),
                                   hd_expr_const(m, n / m->axis[axis].size));

    for (int k = 0; k < op->nkeys; k++)
        if (op->key[k].code == HD_KEY_CAUSAL)
            op->key[k].expr = hd_expr_binary(m, kind, op->key[k].expr, ahead);
    return ahead;
}

// Rows of a block see keys as far as the whole would, and are of sequences as
// they are in the whole.
static void shift_rows(const writer *w, hd_op *op, int axis)
{
    hd_expr ahead = shift_sight(w, op, 0, axis, HD_EXPR_ADD);

    if (hd_op_has_sequences(op))
        hd_build_put_key(op, HD_KEY_ROW)->expr = ahead;
}

static void split_keys(const writer *w, hd_op *to)
{
    int axis = rows_axis(w);

    copy_keys(w, to, comes_behind);
    if (axis < 0)
        return;
    shift_rows(w, to, axis);
    hd_build_put_key(to, HD_KEY_BLOCKS);
}

static void write_split(writer *w)
{
    const hd_op *op = w->lines->op;
    hd_view views[HD_MAX_VIEWS], made[HD_MAX_VIEWS];
    int axis = rows_axis(w);
    hd_op *split;

    for (int i = op->noutputs; i < op->noutputs + op->ninputs; i++) {
        hd_buffer *x;

        if (hd_lines_are_values(w->lines, i)) {
            views[i] = views[i - 1];
            continue;
        }
        x = split_view(w, i, own_tensor(w, &w->view[i]));
        if (axis >= 0 && is_keys(w, i))
            x = block_keys(w, i, x, axis);
        views[i] = whole(w, x);
    }
    for (int i = 0; i < op->noutputs; i++) {
        hd_type type = split_result(w, i);

        made[i] = make_view(w, i);
        views[i] = whole(w, add_temp(w, op->view[i].buffer, &type));
    }
    split = hd_build_op(&w->b, op->code, -1, op->noutputs, op->ninputs, views);
    split->loc = op->loc;
    explain_statement(w);
    split_keys(w, split);
    for (int i = 0; i < op->noutputs; i++) {
        join_result(w, i, views[i].buffer, made[i]);
        end_view(w, i, made[i]);
    }
    if (w->way->apart)
        add_made(w, made);
}

// ------------------------------------------------------ attention by keys

static int keys_axis(const writer *w)
{
    for (int a = 0; a < w->module->naxes; a++)
        if (hd_lines_merges(w->lines, w->way->cut.line[a]))
            return a;
    return NONE;
}

// The tensor's indices `low` to `past` along its first dimension.
static hd_view part_of(const writer *w, hd_buffer *x, int64_t low, int64_t past)
{
    hd_module *m = w->module;
    hd_view view = hd_view_at(
        whole(w, x), 0, past - low == 1 ? hd_expr_const(m, low) : HD_EXPR_ALL);

    if (past - low > 1)
        hd_view_keep(m, &view, 0, hd_expr_const(m, low),
                     hd_expr_const(m, past));
    return view;
}

static void parts_of(const writer *w, const hd_view *parts, int64_t low,
                     int64_t past, hd_view *out)
{
    for (int i = 0; i < w->lines->op->noutputs; i++)
        out[i] = part_of(w, parts[i].buffer, low, past);
}

// Two of what ranks made as one, in temporaries if it is not the last.
static void merge(writer *w, const hd_view *a, const hd_view *b,
                  const hd_view *last, hd_view *out)
{
    int n = w->lines->op->noutputs;
    hd_view view[HD_MAX_VIEWS];

    for (int i = 0; i < n; i++) {
        hd_type type = hd_view_type(&a[i]);

        view[i] =
            last != NULL ? last[i] : whole(w, add_temp(w, a[i].buffer, &type));
        view[n + i] = a[i];
        view[2 * n + i] = b[i];
    }
    hd_build_op(&w->b, HD_OP_MERGE, -1, n, 2 * n, view);
    memcpy(out, view, sizeof *out * (size_t)n);
}

// The first half with the second one until there is one; what is left of an odd
// number comes last.
static void write_merges(writer *w, hd_view *parts, const hd_view *made)
{
    hd_view first[HD_MAX_VIEWS], second[HD_MAX_VIEWS], rest[HD_MAX_VIEWS];
    bool left = false;

    for (int64_t n = parts[0].buffer->type.dim[0].extent; n > 1; n /= 2) {
        int64_t half = n / 2;

        if (n % 2 == 1) {
            parts_of(w, parts, n - 1, n, second);
            if (left)
                merge(w, rest, second, NULL, rest);
            else
                memcpy(rest, second, sizeof rest);
            left = true;
        }
        parts_of(w, parts, 0, half, first);
        parts_of(w, parts, half, 2 * half, second);
        merge(w, first, second, half == 1 && !left ? made : NULL, parts);
    }
    if (left)
        merge(w, parts, rest, made, rest);
}

// Whether each rank merges some of the rows, which a merge wants whole.
static bool merges_rows(const writer *w, int axis)
{
    return w->way->at[0].dim[axis] == w->lines->type[0].ndims - 2;
}

// What ranks made of result `i`, to where it is merged: rows of each rank with
// the ranks behind the parts.
static hd_view bring_unmerged(writer *w, int i, hd_buffer *parts, int axis)
{
    int dim = w->way->at[i].dim[axis] + 1;
    hd_placement at = hd_placement_of(&parts->type);
    hd_placed v = {.at = at};
    hd_type type = parts->type;
    hd_buffer *all;

    if (merges_rows(w, axis)) {
        hd_dim ranks = hd_dim_whole(w->module->axis[axis].size);

        type.dim[dim] = hd_dim_whole(type.dim[dim].extent / ranks.extent);
        type = hd_type_with(&type, dim, ranks);
        parts = reshape(w, parts, &type);
    }
    at.dim[axis] = (int8_t)(dim > 0 ? dim : HD_PLACED_NOWHERE);
    type = hd_placement_type(w->module, &type, at);
    all = add_temp(w, parts, &type);
    hd_build_unary(&w->b, HD_OP_SET, -1, whole(w, all), whole(w, parts));
    w->waits = INT64_MAX; // nothing is done meanwhile
    if (w->p->why)
        explain(w, move_text(w, &v, parts, at));
    return whole(w, merges_rows(w, axis) ? move_dim(w, all, dim, 1) : all);
}

// Result `i` as it is merged, with the ranks in front that have rows of it.
static hd_view merged_view(writer *w, int i, hd_view made, const hd_view *parts,
                           int axis)
{
    hd_type type = hd_type_without(&parts[i].buffer->type, 0);

    if (!merges_rows(w, axis))
        return made;
    type.dtype = made.buffer->type.dtype;
    return whole(w, add_temp(w, made.buffer, &type));
}

// Keys with the ranks in front of their batch: another name of all of a tensor.
// The caller's of an inout has no other name, and what of it is read is copied.
static hd_view keys_by_rank(writer *w, int i, int axis, int ndims)
{
    bool own = w->view[i].buffer->role == HD_ROLE_INOUT;
    hd_view view = own ? whole(w, own_tensor(w, &w->view[i])) : w->view[i];
    int dim = hd_view_kept_dim(&view, w->way->at[i].dim[axis]), to;
    hd_type type = hd_type_unstreamed(view.buffer->type);
    hd_buffer *x;

    type = split_type(w, &type, dim, axis);
    x = reshape(w, view.buffer, &type);
    view = hd_view_with(w->module, view, x, dim, HD_EXPR_ALL);
    to = hd_view_kept_dim(&view, 0);
    x = move_dim(w, x, dim, to);
    view = hd_view_moved(w->module, view, x, dim, to);
    for (int n = w->lines->type[i].ndims + 1; n < ndims; n++) {
        type = hd_type_with(&x->type, to + 1, hd_dim_whole(1));
        x = reshape(w, x, &type);
        view = hd_view_with(w->module, view, x, to + 1, HD_EXPR_ALL);
    }
    return view;
}

// Each rank attends to keys of its own.
static void write_by_keys(writer *w, int axis)
{
    const hd_op *op = w->lines->op;
    int ndims = w->lines->type[0].ndims + 1;
    hd_view views[HD_MAX_VIEWS], made[HD_MAX_VIEWS], parts[HD_MAX_VIEWS];
    hd_view merged[HD_MAX_VIEWS];
    hd_op *own;

    for (int i = op->noutputs; i < op->noutputs + op->ninputs; i++)
        if (!is_keys(w, i))
            views[i] = w->view[i];
        else if (hd_lines_are_values(w->lines, i))
            views[i] = views[i - 1];
        else
            views[i] = keys_by_rank(w, i, axis, ndims);
    for (int i = 0; i < op->noutputs; i++) {
        hd_type type =
            hd_lines_unmerged(w->module, w->lines, i, axis, w->way->at[i]);

        made[i] = make_view(w, i);
        views[i] = whole(w, add_temp(w, op->view[i].buffer, &type));
    }
    own = hd_build_op(&w->b, op->code, -1, op->noutputs, op->ninputs, views);
    own->loc = op->loc;
    explain_statement(w);
    copy_keys(w, own, comes_behind);
    (void)shift_sight(w, own, op->noutputs + 1, axis, HD_EXPR_SUB);
    for (int i = 0; i < op->noutputs; i++)
        parts[i] = bring_unmerged(w, i, views[i].buffer, axis);
    for (int i = 0; i < op->noutputs; i++)
        merged[i] = merged_view(w, i, made[i], parts, axis);
    write_merges(w, parts, merged);
    for (int i = 0; i < op->noutputs; i++) {
        if (merges_rows(w, axis))
            join_axis(w, merged[i].buffer, 0, w->way->at[i].dim[axis], axis,
                      &made[i]);
        end_view(w, i, made[i]);
    }
    if (w->way->apart)
        add_made(w, made);
}

// --------------------------------------------------------------- statements

// The values of a tensor where another one is declared, which has them too.
static void write_name(writer *w)
{
    const hd_op *op = w->lines->op;
    hd_buffer *to = op->view[0].buffer, *from = op->view[1].buffer;
    hd_placement at = w->p->base[to->id];
    hd_moves move;
    int i = hd_place_source(w->p, &w->have, from, at, 0, &move);
    hd_placed v = source_at(w, from, i);

    if (hd_placement_parts(v.at) < 0)
        stream_gathered(w, &to->type, v.at, at, (reader){0});
    else
        hd_versions_drop(&w->have, i);
    write_move(w, &v, to, at);
    write_version(w, from, at, to);
    hd_versions_forget(&w->have, to->id);
    write_version(w, to, at, to);
}

// A fold that nobody has read yet is of what was there: it is done before that
// is written over.
static void fold_before(writer *w, const hd_buffer *written)
{
    for (int i = w->have.n; i-- > 0;) {
        const hd_placed *v = &w->have.version[i];
        hd_placement to = v->at;
        hd_buffer *tensor;

        if (v->buffer != NULL || hd_op_read_view(v->fold, written) < 0)
            continue;
        tensor = v->fold->view[0].buffer;
        to.dim[hd_placement_parts(to)] = HD_PLACED_NOWHERE;
        bring(w, tensor, to, (reader){0});
    }
}

// An open tensor that is written in parts is declared where the first one has
// it.
static void settle_pieces(writer *w, int i)
{
    const hd_view *view = &w->lines->op->view[i];
    hd_buffer *x = view->buffer;

    if (!hd_place_in_pieces(w->p, x))
        return;
    w->p->base[x->id] = hd_place_of_pieces(
        w->p, &w->have, view, w->way->ends ? w->way->end : w->way->at[i]);
    w->p->open[x->id] = false;
    x->type = hd_placement_type(w->module, &x->type, w->p->base[x->id]);
}

static void write_moves(writer *w)
{
    const hd_op *op = w->lines->op;
    int axis = hd_placement_parts(w->way->at[0]);

    if (w->way->names) {
        write_name(w);
        return;
    }
    for (int i = 0; i < op->nviews; i++) {
        w->view[i] = op->view[i];
        if (hd_way_brings(w->way, op, i))
            read_view(w, i);
    }
    for (int i = 0; i < op->nviews; i++)
        if (hd_op_writes(op, i)) {
            fold_before(w, op->view[i].buffer);
            settle_pieces(w, i);
            hd_versions_forget(&w->have, op->view[i].buffer->id);
        }
    w->waits = waits_for(w, 0);
    if (axis >= 0)
        write_sum(w, axis);
    else if (rows_axis(w) >= 0)
        write_split(w);
    else if (keys_axis(w) >= 0)
        write_by_keys(w, keys_axis(w));
    else if (tiles_axis(w) >= 0)
        write_tiles(w, tiles_axis(w));
    else
        write_plain(w);
}

static void write_statement(writer *w)
{
    hd_stmt *last = w->b.block->last;

    write_moves(w);
    note_said(last != NULL ? last->next : w->b.block->first, w->lines->op);
}

// Whether what a statement makes piece by piece it reads so, too: one that
// touches each element once, and of parts that a product adds.
static bool comes_in_pieces(const hd_op *op, int i, const bool *parts)
{
    hd_family family = hd_op_family(op);

    if (family == HD_FAMILY_MAP || op->code == HD_OP_COPY)
        return true;
    return parts[op->view[i].buffer->id] &&
           (family != HD_FAMILY_PRODUCT ||
            i == hd_op_key_view(op, HD_KEY_BIAS));
}

// What is made for one that is made piece by piece is so, too, if its results
// were open, or are parts.
static void stream_back(writer *w, const hd_stmt *s, const bool *parts)
{
    hd_lines lines = hd_lines_find(w->module, s->op);
    const hd_type *made = &s->op->view[0].buffer->type;
    int dim = hd_type_stream_dim(made);

    if (dim < 0 || lines.fixed || s->op->view[0].nindex > 0)
        return;
    for (int i = s->op->noutputs; i < s->op->nviews; i++)
        for (int d = 0; d < lines.type[i].ndims; d++)
            if (lines.at[i][d] == lines.at[0][dim] &&
                comes_in_pieces(s->op, i, parts) &&
                (is_open(w, s->op->view[i].buffer) ||
                 parts[s->op->view[i].buffer->id]) &&
                hd_dim_as_long(lines.type[i].dim[d], lines.type[0].dim[dim]))
                stream(w, &s->op->view[i].buffer->type,
                       hd_view_kept_dim(&s->op->view[i], d),
                       hd_dim_blocks(made->dim[dim]));
}

// By buffer id: which are parts of a tensor.
static const bool *mark_parts(const writer *w)
{
    bool *parts = hd_new_array(w->p->scratch, bool, w->module->nbuffers + 1);

    for (int i = 0; i < w->nparts; i++)
        parts[w->parts[i]->id] = true;
    return parts;
}

static void stream_all_back(writer *w, const bool *parts)
{
    const hd_stmt **all;
    int n = 0;

    for (const hd_stmt *s = w->module->body.first; s != NULL; s = s->next)
        n++;
    all = hd_new_array(w->p->scratch, const hd_stmt *, n + 1);
    n = 0;
    for (const hd_stmt *s = w->module->body.first; s != NULL; s = s->next)
        all[n++] = s;
    while (n-- > 0)
        stream_back(w, all[n], parts);
}

// By buffer id: what has to arrive first, as a move or a sum over ranks makes
// it.
static const bool *mark_late(const writer *w, const bool *parts)
{
    bool *late = hd_new_array(w->p->scratch, bool, w->module->nbuffers + 1);

    for (const hd_stmt *s = w->module->body.first; s != NULL; s = s->next)
        late[s->op->view[0].buffer->id] =
            s->op->code == HD_OP_SET ||
            (s->op->code == HD_OP_SUM &&
             parts[s->op->view[s->op->noutputs].buffer->id]);
    return late;
}

// A temporary that another version took the place of, or that nothing wrote, is
// nothing.
static void drop_unused(const hd_placing *p)
{
    int *views = hd_module_count_views(p->module, p->scratch);
    bool *used = hd_new_array(p->scratch, bool, p->module->nbuffers + 1);

    for (const hd_buffer *b = p->module->buffers; b != NULL; b = b->next)
        used[b->id] = views[b->id] > 0;
    hd_module_drop_temps(p->module, used);
}

void hd_place_write(hd_placing *p)
{
    hd_block body = {0};
    writer w = {.p = p, .module = p->module, .b = {p->module, &body, {0}}};
    const bool *parts;
    hd_stmt *next;
    int n = 0;

    want_all(&w);
    for (const hd_buffer *b = p->module->buffers; b != NULL; b = b->next)
        w.large |= hd_type_local_bytes(&b->type) >= LARGE;
    for (hd_stmt *s = p->module->body.first; s != NULL; s = next, n++) {
        next = s->next;
        s->next = NULL;
        w.stmt = s;
        w.b.loc = s->op->loc;
        w.lines = &p->lines[n];
        w.way = p->way[n];
        write_statement(&w);
    }
    p->module->body = body;
    parts = mark_parts(&w);
    stream_all_back(&w, parts);
    hd_place_join_ends(p, mark_late(&w, parts));
    drop_unused(p);
    for (hd_buffer *b = p->module->buffers; b != NULL; b = b->next)
        b->open = 0;
}
