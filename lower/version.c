#include "lower/version.h"

#include <assert.h>
#include <string.h>

enum { NONE = -1 };

bool hd_way_merges(const hd_way *way, const hd_op *op)
{
    return way->apart && hd_op_attend(op) == HD_ATTEND_ATTENTION;
}

bool hd_way_brings(const hd_way *way, const hd_op *op, int i)
{
    return hd_op_reads(op, i) && (way->own >> i & 1) == 0 &&
           (!hd_op_writes(op, i) || hd_way_merges(way, op));
}

hd_placement hd_place_of_buffer(const hd_view *view, hd_placement kept)
{
    for (int a = 0; a < HD_MAX_AXES; a++)
        if (kept.dim[a] >= 0)
            kept.dim[a] = (int8_t)hd_view_kept_dim(view, kept.dim[a]);
    return kept;
}

hd_placement hd_place_of_view(const hd_view *view, hd_placement whole)
{
    for (int a = 0; a < HD_MAX_AXES; a++)
        if (whole.dim[a] >= 0)
            whole.dim[a] =
                (int8_t)(hd_view_picks(view, whole.dim[a]) ||
                                 hd_view_range(view, whole.dim[a]) != NULL
                             ? HD_PLACED_NOWHERE
                             : hd_view_kept_ahead(view, whole.dim[a]));
    return whole;
}

unsigned hd_place_gathers(const hd_lines *lines, int i)
{
    const hd_view *view = &lines->op->view[i];
    unsigned dims = 0;

    for (int d = 0; i == lines->op->noutputs && d < lines->type[i].ndims; d++)
        if (lines->at[i][d] >= 0 && (lines->beside >> lines->at[i][d] & 1) != 0)
            dims |= 1u << hd_view_kept_dim(view, d);
    return dims;
}

bool hd_place_is_name(const hd_placing *p, const hd_op *op)
{
    const hd_buffer *to = op->view[0].buffer, *from;

    if (op->code != HD_OP_COPY && op->code != HD_OP_SET)
        return false;
    from = op->view[1].buffer;
    return op->view[0].nindex == 0 && op->view[1].nindex == 0 &&
           to->type.dtype == from->type.dtype && !hd_place_is_open(p, to) &&
           to->role != HD_ROLE_INOUT && op->nviews == 2;
}

bool hd_place_has_ends(const hd_op *op)
{
    bool any = false;

    for (int i = 0; i < op->nkeys; i++)
        any |= hd_key_ends(op->key[i].code);
    return any;
}

bool hd_place_adds_alone(const hd_op *op)
{
    bool alone = true;

    for (int i = 0; i < op->nkeys; i++)
        alone &=
            op->key[i].code == HD_KEY_BIAS || !hd_key_ends(op->key[i].code);
    return alone;
}

bool hd_place_joins(const hd_placing *p, int n)
{
    return p->joins[n] >= 0 && p->joins[n] < n &&
           hd_cut_parts(p->way[n]->cut) >= 0;
}

hd_placement hd_place_of_pieces(const hd_placing *p,
                                const hd_versions *versions,
                                const hd_view *view, hd_placement made)
{
    int x = view->buffer->id;
    hd_placement at = hd_place_of_buffer(view, made);

    for (int i = 0; i < versions->n; i++)
        if (versions->version[i].tensor == x)
            return versions->version[i].at;
    for (int a = 0; a < HD_MAX_AXES; a++)
        if (at.dim[a] == HD_PLACED_PARTS ||
            (at.dim[a] >= 0 && (p->pieces[x] >> at.dim[a] & 1) != 0))
            at.dim[a] = HD_PLACED_NOWHERE;
    return at;
}

void hd_versions_add(const hd_placing *p, hd_versions *to, hd_placed v)
{
    if (!p->open[v.tensor] && hd_placement_same(v.at, p->base[v.tensor]))
        return;
    for (int i = 0; i < to->n; i++)
        if (to->version[i].tensor == v.tensor &&
            hd_placement_same(to->version[i].at, v.at))
            return;
    to->version =
        hd_arena_grow(p->scratch, to->version, to->n, &to->room, sizeof v);
    to->version[to->n++] = v;
}

void hd_versions_drop(hd_versions *from, int i)
{
    memmove(&from->version[i], &from->version[i + 1],
            sizeof *from->version * (size_t)(--from->n - i));
}

void hd_versions_forget(hd_versions *from, int tensor)
{
    for (int i = from->n; i-- > 0;)
        if (from->version[i].tensor == tensor)
            hd_versions_drop(from, i);
}

// What can go on beside what needs it counts half.
static int compare_moves(const hd_moves *a, const hd_moves *b)
{
    int64_t x = 2 * (a->ahead + a->work) + a->beside;
    int64_t y = 2 * (b->ahead + b->work) + b->beside;

    if (x != y)
        return x < y ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return a->n - b->n;
}

int hd_place_parts(const hd_versions *versions, int tensor, hd_placement at)
{
    for (int i = 0; i < versions->n; i++)
        if (versions->version[i].tensor == tensor &&
            hd_placement_same(versions->version[i].at, at))
            return i;
    return NONE;
}

int hd_place_source(const hd_placing *p, const hd_versions *versions,
                    const hd_buffer *tensor, hd_placement to, unsigned gathers,
                    hd_moves *out)
{
    int best = NONE;
    bool found = !hd_place_is_open(p, tensor);

    *out = (hd_moves){0};
    if (hd_placement_parts(to) >= 0)
        return hd_place_parts(versions, tensor->id, to);
    if (found)
        *out = hd_placement_move(p->module, &tensor->type, p->base[tensor->id],
                                 to, gathers);
    for (int i = 0; i < versions->n; i++) {
        const hd_placed *v = &versions->version[i];
        hd_moves move;

        if (v->tensor != tensor->id)
            continue;
        move = hd_placement_move(p->module, &tensor->type, v->at, to, gathers);
        if (found && compare_moves(&move, out) >= 0)
            continue;
        found = true;
        best = i;
        *out = move;
    }
    assert(found && "what is read was written");
    return best;
}
