// Where each statement is done. What the text says of arguments, and of what it
// declares, stays; for the rest statements are gone through in their order, and
// of all ways to do them the cheapest is taken. A state is which versions there
// are of the tensors that are still to be read; of equal states the cheaper one
// goes on, and of all the 32 cheapest, so that the answer is exact where there
// were never more.
//
// A statement's operands are brought to where it needs them, from the version
// that this costs the least from. A result with parts, of which each rank has
// one, is added up where it is first read, right into its reader's placement.
#include "lower/placed.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/dtype.h"
#include "ir/verify.h"
#include "lower/build.h"
#include "lower/order.h"
#include "lower/pace.h"

enum { NONE = -1, MOST_STATES = 32, MOST_CUTS = 1 << 14 };
enum { SLOW = 4 }; // of what moves, where links are slow

// -------------------------------------------------------------------- ways

// Those that may divide a statement, and those over which operands are parts.
typedef struct axes {
    unsigned used, parts;
} axes;

typedef struct ways {
    hd_way *way;
    int n, room;
    bool more; // than were looked at
} ways;

static void add_way(const hd_placing *p, ways *ways, const hd_way *way)
{
    ways->way =
        hd_arena_grow(p->scratch, ways->way, ways->n, &ways->room, sizeof *way);
    ways->way[ways->n++] = *way;
}

static const hd_buffer *result_of(const hd_op *op)
{
    return op->view[0].buffer;
}

// What an operand that lies along the last dimensions of the result is over.
static hd_placement along_result(const hd_placing *p, const hd_lines *lines,
                                 int i, hd_placement at)
{
    int lacks = lines->type[0].ndims - lines->type[i].ndims;
    hd_placement along = hd_placement_nowhere();

    for (int a = 0; a < p->module->naxes; a++)
        if (at.dim[a] >= lacks &&
            lines->type[i].dim[at.dim[a] - lacks].extent > 1)
            along.dim[a] = (int8_t)(at.dim[a] - lacks);
    return along;
}

// What is done to the sum is done where that ends; so the bias is there.
static void add_end(const hd_placing *p, const hd_lines *lines,
                    hd_placement end, const hd_way *way, ways *out)
{
    int bias = hd_op_key_view(lines->op, HD_KEY_BIAS);
    hd_way one = *way;

    one.ends = true;
    one.end = end;
    if (bias >= 0)
        one.at[bias] = along_result(p, lines, bias, end);
    add_way(p, out, &one);
}

// Of sums that more is done to, where that may be.
static void add_ends(const hd_placing *p, const hd_lines *lines, int axis,
                     const hd_way *way, ways *out)
{
    const hd_buffer *result = result_of(lines->op);
    hd_placement end = way->at[0];

    if (!hd_place_is_open(p, result)) {
        end = hd_place_of_view(&lines->op->view[0], p->base[result->id]);
        add_end(p, lines, end, way, out);
        return;
    }
    end.dim[axis] = HD_PLACED_NOWHERE;
    add_end(p, lines, end, way, out);
    for (int d = 0; d < lines->type[0].ndims; d++)
        if (hd_placement_axis(way->at[0], d) < 0 &&
            hd_dim_may_shard(p->module, lines->type[0].dim[d], axis)) {
            end.dim[axis] = (int8_t)d;
            add_end(p, lines, end, way, out);
        }
}

// Whether a sum takes the bias beside the product's result.
static bool may_add_bias(const hd_op *op)
{
    int bias = hd_op_key_view(op, HD_KEY_BIAS);
    hd_dtype made = result_of(op)->type.dtype, dtype;

    if (bias < 0)
        return true;
    dtype = op->view[bias].buffer->type.dtype;
    return dtype == HD_DTYPE_F32 || hd_dtype_holds(made, dtype);
}

// Whether a product adds to its own parts those of another one, and does no
// more. Parts that it multiplies, too, are added up for that.
static bool may_add_parts(const hd_lines *lines, int bias)
{
    const hd_op *op = lines->op;
    const hd_buffer *x = bias >= 0 ? op->view[bias].buffer : NULL;

    return x != NULL && hd_place_adds_alone(op) &&
           hd_lines_may_be_parts(lines, bias) && x != op->view[1].buffer &&
           x != op->view[2].buffer &&
           lines->type[bias].dtype == lines->type[0].dtype &&
           hd_type_same_dims(&lines->type[bias], &lines->type[0]);
}

// Whether what a statement accumulates is made where its results are.
static bool is_made_there(const hd_placing *p, const hd_lines *lines,
                          const hd_way *way)
{
    for (int a = 0; a < p->module->naxes; a++)
        if (hd_lines_splits(lines, way->cut.line[a]) ||
            hd_lines_merges(lines, way->cut.line[a]))
            return false;
    for (int i = 0; i < lines->op->noutputs; i++) {
        const hd_view *view = &lines->op->view[i];

        if (!hd_placement_same(hd_place_of_buffer(view, way->at[i]),
                               p->base[view->buffer->id]))
            return false;
    }
    return true;
}

// Whether what its results hold stays in part, which no other buffer has.
static bool keeps(const hd_op *op)
{
    return hd_op_reads(op, 0) && hd_op_key(op, HD_KEY_ACCUMULATE) == NULL;
}

// A way that makes no parts.
static void add_whole(const hd_placing *p, const hd_lines *lines, hd_way *way,
                      ways *out)
{
    const hd_op *op = lines->op;

    if (keeps(op) && !is_made_there(p, lines, way))
        return;
    way->apart = hd_op_key(op, HD_KEY_ACCUMULATE) != NULL &&
                 !is_made_there(p, lines, way);
    for (int i = 0; way->apart && i < op->noutputs; i++)
        way->work += 3 *
                     hd_placement_bytes(
                         p->module, &lines->type[i],
                         hd_place_of_view(&op->view[i],
                                          p->base[op->view[i].buffer->id])) /
                     HD_COST_TOUCHED;
    add_way(p, out, way);
}

// What is touched to name ranks in front of keys that the caller has in an
// inout, which have no other name.
static int64_t count_copied(const hd_placing *p, const hd_lines *lines,
                            const hd_way *way)
{
    int64_t bytes = 0;

    for (int i = 0; i < lines->op->nviews; i++)
        if (hd_op_has_keys(lines->op, i) && !hd_lines_are_values(lines, i) &&
            lines->op->view[i].buffer->role == HD_ROLE_INOUT)
            bytes +=
                2 * hd_placement_bytes(p->module, &lines->type[i], way->at[i]);
    return bytes / HD_COST_TOUCHED;
}

// Of results that each rank has of its own keys: all ranks get them merged, or
// each some samples, heads or rows; rows not of what is merged with what is
// there.
static void add_merged(const hd_placing *p, const hd_lines *lines, int axis,
                       const hd_way *way, ways *out)
{
    bool adds = hd_op_key(lines->op, HD_KEY_ACCUMULATE) != NULL;
    int last = lines->type[0].ndims - (adds ? 3 : 2);
    int64_t copied = count_copied(p, lines, way);

    for (int d = HD_PLACED_NOWHERE; d <= last; d++) {
        hd_way one = *way;

        if (d >= 0 && (hd_placement_axis(way->at[0], d) >= 0 ||
                       !hd_dim_splits(p->module, lines->type[0].dim[d], axis)))
            continue;
        for (int i = 0; i < lines->op->noutputs; i++)
            one.at[i].dim[axis] = (int8_t)d;
        one.work += copied;
        one.arrives = hd_lines_merge(p->module, lines, axis, one.at);
        add_whole(p, lines, &one, out);
    }
}

static void add_cut(const hd_placing *p, const hd_lines *lines, hd_cut cut,
                    ways *out)
{
    hd_way way = {.cut = cut};
    int parts;

    if (!hd_lines_divide(p->module, lines, cut, way.at))
        return;
    way.work = hd_lines_work(p->module, lines, cut);
    for (int a = 0; a < p->module->naxes; a++)
        if (hd_lines_merges(lines, cut.line[a])) {
            add_merged(p, lines, a, &way, out);
            return;
        }
    if (lines->rows >= 0)
        way.arrives = hd_lines_arrive(p->module, lines, cut, way.at);
    parts = hd_placement_parts(way.at[0]);
    if (parts >= 0 && !may_add_bias(lines->op))
        return;
    if (parts >= 0 && hd_place_has_ends(lines->op)) {
        int bias = hd_op_key_view(lines->op, HD_KEY_BIAS);

        add_ends(p, lines, parts, &way, out);
        if (may_add_parts(lines, bias)) {
            way.at[bias] = way.at[0];
            add_way(p, out, &way);
        }
    } else {
        add_whole(p, lines, &way, out);
    }
}

// What an axis may divide: the lines, and then groups of operands of which it
// has parts.
static int next_line(const hd_lines *lines, int line, bool parts)
{
    if (line <= HD_LINE_OF_PARTS(0))
        return line > HD_LINE_OF_PARTS(HD_MAX_GROUPS - 1) ? line - 1 : NONE;
    if (line + 1 < lines->n)
        return line + 1;
    return parts ? HD_LINE_OF_PARTS(0) : NONE;
}

// The next way to cut: the last axis another line, and once it has had all the
// one before. False behind the last.
static bool next_cut(const hd_placing *p, const hd_lines *lines, axes axes,
                     hd_cut *cut)
{
    for (int a = p->module->naxes; a-- > 0;) {
        if ((axes.used >> a & 1) == 0)
            continue;
        cut->line[a] =
            (int8_t)next_line(lines, cut->line[a], axes.parts >> a & 1);
        if (cut->line[a] != NONE)
            return true;
    }
    return false;
}

// As declarations have it, if they all do.
static bool find_declared(const hd_placing *p, const hd_lines *lines,
                          hd_way *way)
{
    const hd_op *op = lines->op;

    for (int i = 0; i < op->nviews; i++)
        if (hd_place_is_open(p, op->view[i].buffer))
            return false;
    way->cut = hd_lines_cut(
        p->module, lines, 0,
        hd_place_of_view(&op->view[0], p->base[result_of(op)->id]));
    if (!hd_lines_divide(p->module, lines, way->cut, way->at))
        return false;
    for (int i = 0; i < op->nviews; i++)
        if (!hd_placement_same(hd_place_of_buffer(&op->view[i], way->at[i]),
                               p->base[op->view[i].buffer->id]))
            return false;
    return true;
}

static ways list_ways(const hd_placing *p, const hd_lines *lines, axes axes)
{
    ways ways = {0};
    hd_way way = {.work = 0};
    hd_cut cut;

    memset(&way.cut, NONE, sizeof way.cut);
    memset(&cut, NONE, sizeof cut);
    if (lines->fixed) {
        add_way(p, &ways, &way);
    } else if (hd_place_is_name(p, lines->op)) {
        way.names = true;
        for (int i = 0; i < 2; i++)
            way.at[i] = p->base[result_of(lines->op)->id];
        add_way(p, &ways, &way);
    } else if (find_declared(p, lines, &way)) {
        add_whole(p, lines, &way, &ways);
    } else {
        // Four axes never have so many, and eight may have thousands as many.
        for (int n = 0; !ways.more; n++) {
            add_cut(p, lines, cut, &ways);
            if (!next_cut(p, lines, axes, &cut))
                break;
            ways.more = n == MOST_CUTS;
        }
    }
    return ways;
}

// ------------------------------------------------------------------ states

typedef struct cost {
    int64_t total; // what counts
    int64_t bytes; // that a rank receives, for what costs alike
    int moves;     // likewise
} cost;

static int compare_costs(const cost *a, const cost *b)
{
    if (a->total != b->total)
        return a->total < b->total ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return a->moves - b->moves;
}

typedef struct state {
    hd_versions versions; // of what is still to be read and not declared so
    hd_pace pace;
    cost cost;
    uint64_t hash;
    const struct state *from;
    const hd_way *way;
} state;

typedef struct search {
    hd_placing *p;
    unsigned used;     // axes
    int at;            // statement
    hd_versions trial; // room for those of a state that may not be kept
    hd_waits waits;    // of that
    int64_t begins;    // what makes the parts that it reads
} search;

static uint64_t hash_version(const hd_placed *v)
{
    int8_t key[sizeof v->tensor + sizeof v->at.dim];

    memcpy(key, &v->tensor, sizeof v->tensor);
    memcpy(key + sizeof v->tensor, v->at.dim, sizeof v->at.dim);
    return XXH3_64bits(key, sizeof key);
}

static void count_move(state *to, const hd_moves *move)
{
    to->cost.bytes += move->bytes;
    to->cost.moves += move->n;
    to->pace.serial += move->alone;
}

// Since when a tensor is there.
static int64_t since_of(const search *s, const hd_versions *versions,
                        const hd_buffer *x, int from)
{
    if (from >= 0)
        return versions->version[from].since;
    for (int i = 0; i < versions->n; i++)
        if (versions->version[i].tensor == x->id &&
            hd_placement_same(versions->version[i].at, s->p->base[x->id]))
            return versions->version[i].since;
    return 0;
}

// What moves beside a statement, and since when it may.
typedef struct arrival {
    int64_t bytes, since;
} arrival;

// Brings what is read to where it is needed.
static void read_view(search *s, hd_versions *versions, const hd_lines *lines,
                      int i, state *to, arrival *beside)
{
    const hd_view *view = &lines->op->view[i];
    hd_placed v = {.tensor = view->buffer->id,
                   .at = hd_place_of_buffer(view, to->way->at[i])};
    hd_moves move;
    int from = hd_place_source(s->p, versions, view->buffer, v.at,
                               hd_place_gathers(lines, i), &move);
    int64_t since = since_of(s, versions, view->buffer, from);

    if (hd_placement_parts(v.at) >= 0) { // which stay
        s->begins = since > s->begins ? since : s->begins;
        return;
    }
    hd_pace_wait(&to->pace, since);
    s->waits.view[i] = hd_pace_await(&to->pace, move.ahead, since);
    hd_pace_compute(&to->pace, move.work, 0);
    if (move.beside > 0) {
        beside->bytes += move.beside;
        beside->since = since > beside->since ? since : beside->since;
    }
    count_move(to, &move);
    if (from >= 0 && hd_placement_parts(versions->version[from].at) >= 0)
        hd_versions_drop(versions, from);
    v.since = to->pace.now;
    hd_versions_add(s->p, versions, v);
}

// What may move beside it does so, or did before; what is merged moves behind.
static void compute(search *s, const hd_lines *lines, state *to, arrival beside)
{
    int64_t work = to->way->work;
    int64_t under = beside.bytes < work ? beside.bytes : work;

    if (hd_pace_hides(&to->pace, beside.bytes, beside.since) > under)
        under = 0;
    s->waits.view[lines->op->noutputs] +=
        hd_pace_await(&to->pace, beside.bytes - under, beside.since);
    hd_pace_compute(&to->pace, work, under);
    hd_pace_await(&to->pace, to->way->arrives.ahead, to->pace.now);
    hd_pace_compute(&to->pace, to->way->arrives.work, 0);
}

// Where a tensor that is written in parts lies behind the statement.
static hd_placement pieces_of(const search *s, const hd_versions *versions,
                              const hd_lines *lines, int i, const hd_way *way)
{
    return hd_place_of_pieces(s->p, versions, &lines->op->view[i],
                              way->ends ? way->end : way->at[i]);
}

// What is declared is moved there at once.
static void write_view(search *s, hd_versions *versions, const hd_lines *lines,
                       int i, state *to)
{
    const hd_view *view = &lines->op->view[i];
    hd_buffer *x = view->buffer;
    bool product = hd_op_family(lines->op) == HD_FAMILY_PRODUCT;
    hd_placement made = hd_place_of_buffer(view, to->way->at[i]);
    int64_t begins = to->pace.now - (product ? to->way->work : 0);
    hd_placed v = {.tensor = x->id, .at = made, .since = to->pace.now};
    bool parts = hd_cut_parts(to->way->cut) >= 0;
    bool pieces = hd_place_in_pieces(s->p, x);
    hd_moves move = {0};

    if (parts)
        begins = s->begins;
    if (hd_placement_parts(made) >= 0 && !product && !parts && !pieces)
        v.fold = lines->op;
    if (pieces)
        v.at = pieces_of(s, versions, lines, i, to->way);
    hd_versions_forget(versions, x->id);
    if (!hd_place_is_open(s->p, x))
        v.at = s->p->base[x->id];
    else if (to->way->ends && !pieces)
        v.at = hd_place_of_buffer(view, to->way->end);
    if ((to->way->own >> i & 1) == 0 && !hd_placement_same(made, v.at))
        move = hd_placement_move(s->p->module, &x->type, made, v.at, 0);
    count_move(to, &move);
    s->waits.view[i] =
        hd_pace_owe(&to->pace, move.ahead,
                    hd_placement_parts(made) >= 0 ? begins : to->pace.now);
    hd_pace_compute(&to->pace, move.work, 0);
    if (move.ahead > 0)
        v.since = hd_pace_end(&to->pace);
    if (hd_placement_parts(v.at) >= 0)
        v.since = begins;
    hd_versions_add(s->p, versions, v);
}

// Where a statement that is done as it stands has a tensor.
static hd_placement declared(const search *s, const hd_versions *versions,
                             const hd_buffer *x)
{
    hd_placement at = hd_placement_nowhere();
    bool found = false;

    if (!hd_place_is_open(s->p, x))
        return s->p->base[x->id];
    for (int i = 0; i < versions->n && !found; i++) {
        found = versions->version[i].tensor == x->id;
        at = found ? versions->version[i].at : at;
    }
    if (hd_placement_parts(at) >= 0) // which are added up first
        at.dim[hd_placement_parts(at)] = HD_PLACED_NOWHERE;
    return at;
}

static bool is_counts(const hd_op *op, int i)
{
    return i == hd_op_key_view(op, HD_KEY_COUNTS) ||
           i == hd_op_key_view(op, HD_KEY_COUNTS_OF_KEYS);
}

// Whether a statement that is done as it stands has a view where it lies: what
// the text places, and counts and what has them, which lie alike.
static bool stays(const search *s, const hd_op *op, int i)
{
    const hd_buffer *x = op->view[i].buffer;

    return !hd_place_is_open(s->p, x) || is_counts(op, i) ||
           (x->by != NULL && !hd_op_writes(op, i));
}

// Whether it needs operands where its cut has them.
static bool needs_places(const hd_lines *lines)
{
    return lines->n > 0 && lines->op->code != HD_OP_SET;
}

// Whether it lies so where the statement is divided. Sums over ranks go
// anywhere.
static bool agree(const search *s, const hd_lines *lines, int axis,
                  const hd_placement *at, const hd_placement *to)
{
    for (int i = 0; i < lines->op->nviews; i++)
        if (stays(s, lines->op, i) && !is_counts(lines->op, i) &&
            to[i].dim[axis] != HD_PLACED_PARTS &&
            to[i].dim[axis] != at[i].dim[axis])
            return false;
    return true;
}

// Divides it along an axis as the first view that is over that, of those that
// stay or of others.
static bool divide_as(const search *s, const hd_lines *lines, int axis,
                      const hd_placement *at, bool stay, hd_cut *cut)
{
    hd_placement to[HD_MAX_VIEWS];

    for (int i = 0; i < lines->op->nviews; i++) {
        int dim = at[i].dim[axis];
        int line = dim >= 0 ? lines->at[i][dim] : NONE;

        if (stays(s, lines->op, i) != stay || line == NONE ||
            (line == lines->joined &&
             hd_op_family(lines->op) == HD_FAMILY_PRODUCT))
            continue;
        cut->line[axis] = (int8_t)line;
        if (hd_lines_divide(s->p->module, lines, *cut, to) &&
            agree(s, lines, axis, at, to))
            return true;
        cut->line[axis] = NONE;
    }
    return false;
}

// A statement that is done as it stands: what stays says where the rest is, and
// where none of that does what there is of it. It makes no parts.
static hd_way stand(const search *s, const hd_versions *versions,
                    const hd_lines *lines)
{
    const hd_op *op = lines->op;
    hd_way way = {.work = 0};
    hd_placement at[HD_MAX_VIEWS];
    bool divides;

    memset(&way.cut, NONE, sizeof way.cut);
    for (int i = 0; i < op->nviews; i++)
        at[i] =
            stays(s, op, i) || !hd_op_writes(op, i)
                ? hd_place_of_view(&op->view[i],
                                   declared(s, versions, op->view[i].buffer))
                : hd_placement_nowhere();
    for (int a = 0; a < s->p->module->naxes; a++)
        if (!divide_as(s, lines, a, at, true, &way.cut))
            divide_as(s, lines, a, at, false, &way.cut);
    divides = hd_lines_divide(s->p->module, lines, way.cut, way.at);
    for (int i = 0; i < op->nviews; i++) {
        int parts = hd_placement_parts(way.at[i]);
        bool open = hd_place_is_open(s->p, op->view[i].buffer);

        if (!open && hd_view_ranks(s->p->module, &op->view[i]).some)
            way.own |= 1u << i;
        if (stays(s, op, i) || !divides ||
            (!hd_op_writes(op, i) && !needs_places(lines)))
            way.at[i] = at[i];
        else if (parts >= 0)
            way.at[i].dim[parts] = HD_PLACED_NOWHERE;
    }
    return way;
}

static void forget_read(const search *s, hd_versions *versions)
{
    for (int i = versions->n; i-- > 0;)
        if (s->p->last[versions->version[i].tensor] <= s->at)
            hd_versions_drop(versions, i);
}

// On three machines together: one whose links are as fast as those of H200, one
// on which nothing moves while something is computed, and one whose links are
// so slow that what moves is all that counts.
static int64_t total_of(const hd_pace *pace, int64_t bytes)
{
    return hd_pace_end(pace) + pace->serial + bytes / SLOW;
}

// Whether operands of which it takes parts are so, and these are there.
static bool has_parts(const hd_versions *versions, const hd_lines *lines,
                      const hd_way *way)
{
    for (int i = 0; i < lines->op->nviews; i++) {
        int at;

        if (!hd_way_brings(way, lines->op, i) ||
            hd_placement_parts(way->at[i]) < 0)
            continue;
        at =
            hd_place_parts(versions, lines->op->view[i].buffer->id, way->at[i]);
        if (at < 0 || versions->version[at].fold != NULL)
            return false;
    }
    return true;
}

static void take(search *s, const state *from, const hd_lines *lines,
                 const hd_way *way, state *out)
{
    const hd_op *op = lines->op;
    hd_versions *versions = &s->trial;
    arrival beside = {way->arrives.beside, 0};

    *out = (state){
        .pace = from->pace, .cost = from->cost, .from = from, .way = way};
    s->begins = 0;
    versions->n = 0;
    while (versions->room < from->versions.n)
        versions->version =
            hd_arena_grow(s->p->scratch, versions->version, versions->room,
                          &versions->room, sizeof *versions->version);
    if (from->versions.n > 0)
        memcpy(versions->version, from->versions.version,
               sizeof *versions->version * (size_t)from->versions.n);
    versions->n = from->versions.n;
    count_move(out, &way->arrives);
    for (int i = 0; i < op->nviews; i++)
        if (hd_way_brings(way, op, i))
            read_view(s, versions, lines, i, out, &beside);
    compute(s, lines, out, beside);
    for (int i = 0; i < op->nviews; i++)
        if (hd_op_writes(op, i))
            write_view(s, versions, lines, i, out);
    forget_read(s, versions);
    for (int i = 0; i < versions->n; i++)
        out->hash ^= hash_version(&versions->version[i]);
    out->cost.total = total_of(&out->pace, out->cost.bytes);
}

typedef struct states {
    state *state;
    int n, room;
} states;

static void keep_state(const search *s, state *to, const state *new)
{
    *to = *new;
    to->versions = (hd_versions){.n = s->trial.n, .room = s->trial.n};
    if (s->trial.n > 0)
        to->versions.version =
            hd_arena_copy(s->p->scratch, s->trial.version,
                          sizeof *s->trial.version * (size_t)s->trial.n);
}

// The cheaper of two that are equal; else of too many the cheapest. What is new
// has the versions of the trial.
static void add_state(const search *s, states *to, const state *new)
{
    int worst = 0;

    for (int i = 0; i < to->n; i++) {
        if (to->state[i].hash == new->hash) {
            if (compare_costs(&new->cost, &to->state[i].cost) < 0)
                keep_state(s, &to->state[i], new);
            return;
        }
        if (compare_costs(&to->state[i].cost, &to->state[worst].cost) > 0)
            worst = i;
    }
    if (to->n < MOST_STATES) {
        keep_state(s, &to->state[to->n++], new);
        return;
    }
    s->p->exact = false;
    if (compare_costs(&new->cost, &to->state[worst].cost) < 0)
        keep_state(s, &to->state[worst], new);
}

// Whether a way costs so much that its state could not stay, whatever moves:
// there are as many cheaper ones as may be.
static bool is_too_dear(const search *s, const states *to, const state *from,
                        const hd_way *way)
{
    hd_pace least = from->pace;
    int64_t bytes = from->cost.bytes + way->arrives.bytes;

    if (to->n < MOST_STATES)
        return false;
    hd_pace_compute(&least, way->work, 0);
    least.serial += way->arrives.alone;
    for (int i = 0; i < to->n; i++)
        if (to->state[i].cost.total >= total_of(&least, bytes))
            return false;
    s->p->exact = false;
    return true;
}

// Which axes may divide the statement behind one of these states.
static axes find_axes(const search *s, const state *from, int n)
{
    const hd_lines *lines = &s->p->lines[s->at];
    axes axes = {s->used, 0};
    unsigned groups = 0;

    for (int k = 0; k < HD_MAX_GROUPS; k++)
        groups |= lines->group[k];
    for (int i = 0; i < lines->op->nviews && groups != 0; i++)
        for (int k = 0; k < n && (groups >> i & 1) != 0; k++)
            for (int v = 0; v < from[k].versions.n; v++) {
                const hd_placed *have = &from[k].versions.version[v];
                int axis = hd_placement_parts(have->at);

                if (have->tensor == lines->op->view[i].buffer->id &&
                    axis >= 0 && have->fold == NULL)
                    axes.parts |= 1u << axis;
            }
    return axes;
}

// Sums of parts that more is done to end where their tensor lies, if that is
// written in parts.
static bool ends_there(const search *s, const hd_versions *versions,
                       const hd_lines *lines, const hd_way *way)
{
    const hd_view *view = &lines->op->view[0];

    return !way->ends || !hd_place_in_pieces(s->p, view->buffer) ||
           hd_placement_same(
               hd_place_of_view(view, pieces_of(s, versions, lines, 0, way)),
               way->end);
}

static states go_on(search *s, const states *from)
{
    const hd_lines *lines = &s->p->lines[s->at];
    ways ways = list_ways(s->p, lines, find_axes(s, from->state, from->n));
    states to = {.state = hd_new_array(s->p->scratch, state, MOST_STATES)};
    state new;

    s->p->exact &= !ways.more;
    for (int i = 0; i < from->n; i++)
        for (int w = 0; w < ways.n; w++) {
            const hd_way *way = &ways.way[w];

            if (lines->fixed) {
                hd_way *own = hd_new(s->p->scratch, hd_way);

                *own = stand(s, &from->state[i].versions, lines);
                way = own;
            }
            if (!has_parts(&from->state[i].versions, lines, way) ||
                !ends_there(s, &from->state[i].versions, lines, way) ||
                is_too_dear(s, &to, &from->state[i], way))
                continue;
            take(s, &from->state[i], lines, way, &new);
            add_state(s, &to, &new);
        }
    return to;
}

// ------------------------------------------------------------------- entry

static unsigned find_used(const hd_placing *p)
{
    unsigned used = 0;

    for (const hd_buffer *b = p->module->buffers; b != NULL; b = b->next)
        for (int d = 0; d < b->type.ndims && !hd_place_is_open(p, b); d++)
            if (hd_dim_is_sharded(b->type.dim[d]))
                used |= 1u << b->type.dim[d].mark;
    return used;
}

// Of each buffer: the one statement that writes it, and how many views read it.
typedef struct use {
    int by, reads;
} use;

static const use *find_uses(const hd_placing *p)
{
    use *uses = hd_new_array(p->scratch, use, p->module->nbuffers + 1);

    for (int i = 0; i <= p->module->nbuffers; i++)
        uses[i].by = NONE;
    for (int n = 0; n < p->nstmts; n++) {
        const hd_op *op = p->lines[n].op;

        for (int i = 0; i < op->nviews; i++) {
            use *use = &uses[op->view[i].buffer->id];

            use->reads += hd_op_reads(op, i);
            if (hd_op_writes(op, i))
                use->by = use->by == NONE ? n : -2;
        }
    }
    return uses;
}

// Whether the product adds `x` to what it makes just as well: nothing else
// reads that, and `x` is made before.
static bool may_join(const hd_placing *p, const use *uses, const int *joins,
                     const hd_view *made, const hd_view *x)
{
    int product = uses[made->buffer->id].by, by = uses[x->buffer->id].by;
    const hd_op *op;

    if (product < 0 || by < 0 || uses[made->buffer->id].reads != 1)
        return false;
    op = p->lines[product].op;
    if (joins[by] >= 0 && by > joins[by]) // its sum is there sooner
        by = joins[by];
    return hd_op_family(op) == HD_FAMILY_PRODUCT && by < product &&
           !hd_place_has_ends(op) && hd_op_key(op, HD_KEY_GROUPS) == NULL &&
           op->view[0].nindex == 0;
}

// Additions of two tensors alike.
static const int *find_joins(const hd_placing *p)
{
    const use *uses = find_uses(p);
    int *joins = hd_new_array(p->scratch, int, p->nstmts + 1);

    for (int n = 0; n < p->nstmts; n++)
        joins[n] = NONE;
    for (int n = 0; n < p->nstmts; n++) {
        const hd_lines *lines = &p->lines[n];
        const hd_view *view = lines->op->view;

        if ((lines->op->code != HD_OP_ADD && lines->op->code != HD_OP_SUM) ||
            lines->op->ninputs != 2 || lines->op->nviews != 3 ||
            lines->group[0] != 6 ||
            !hd_type_same_dims(&lines->type[1], &lines->type[2]) ||
            lines->type[1].dtype != lines->type[2].dtype ||
            lines->type[1].dtype != lines->type[0].dtype)
            continue;
        for (int i = 2; i > 0 && joins[n] == NONE; i--)
            if (may_join(p, uses, joins, &view[i], &view[3 - i]))
                joins[n] = uses[view[i].buffer->id].by;
        if (joins[n] >= 0)
            joins[joins[n]] = n;
    }
    return joins;
}

// What is added to in parts is on all ranks.
static void find_pieces(const hd_op *op, bool *open, unsigned *pieces)
{
    for (int i = 0; i < op->nviews; i++) {
        const hd_view *view = &op->view[i];
        int x = view->buffer->id;

        if (!hd_op_writes(op, i) || view->nindex == 0)
            continue;
        for (int d = 0; d < view->nindex; d++)
            if (hd_view_picks(view, d) || hd_view_range(view, d) != NULL)
                pieces[x] |= 1u << d;
        open[x] &= !hd_op_reads(op, i);
    }
}

static void find_buffers(hd_placing *p)
{
    int n = p->module->nbuffers + 1;
    hd_placement *base = hd_new_array(p->scratch, hd_placement, n);
    bool *open = hd_new_array(p->scratch, bool, n);
    bool *narrow = hd_new_array(p->scratch, bool, n);

    for (const hd_buffer *b = p->module->buffers; b != NULL; b = b->next) {
        base[b->id] = hd_placement_of(&b->type);
        open[b->id] = (b->open & HD_OPEN_PLACE) != 0;
        narrow[b->id] = hd_buffer_is_narrow(b);
    }
    p->base = base;
    p->open = open;
    p->narrow = narrow;
    p->nbuffers = p->module->nbuffers;
}

static void find_statements(hd_placing *p)
{
    int *last = hd_new_array(p->scratch, int, p->module->nbuffers + 1);
    unsigned *pieces =
        hd_new_array(p->scratch, unsigned, p->module->nbuffers + 1);
    hd_lines *lines;
    int n = 0;

    find_buffers(p);
    p->nstmts = 0;
    for (const hd_stmt *s = p->module->body.first; s != NULL; s = s->next)
        p->nstmts++;
    lines = hd_new_array(p->scratch, hd_lines, p->nstmts + 1);
    for (int i = 0; i <= p->module->nbuffers; i++)
        last[i] = NONE;
    for (const hd_stmt *s = p->module->body.first; s != NULL;
         s = s->next, n++) {
        lines[n] = hd_lines_find(p->module, s->op);
        for (int i = 0; i < s->op->nviews; i++) {
            const hd_view *view = &s->op->view[i];

            if (hd_op_reads(s->op, i) ||
                (p->open[view->buffer->id] && view->nindex > 0))
                last[view->buffer->id] = n;
        }
        find_pieces(s->op, p->open, pieces);
    }
    p->lines = lines;
    p->last = last;
    p->pieces = pieces;
    p->way = hd_new_array(p->scratch, const hd_way *, p->nstmts + 1);
    p->joins = find_joins(p);
}

// ----------------------------------------------------------------- in words

// "tp over dimension 1 of %h", of each axis that divides something.
static const char *way_text(const search *s, const hd_lines *lines,
                            const hd_way *way)
{
    const hd_module *m = s->p->module;
    const char *text = NULL;

    for (int a = 0; a < m->naxes; a++) {
        const char *what = NULL;

        for (int i = 0; i < lines->op->nviews && what == NULL; i++)
            for (int d = 0; d < lines->type[i].ndims && what == NULL; d++)
                if (way->cut.line[a] >= 0 &&
                    (lines->at[i][d] == way->cut.line[a] ||
                     (hd_lines_merges(lines, way->cut.line[a]) &&
                      hd_op_has_keys(lines->op, i) && way->at[i].dim[a] == d)))
                    what =
                        hd_arena_printf(s->p->scratch, "dimension %d of %%%s",
                                        d, lines->op->view[i].buffer->said);
        if (way->cut.line[a] <= HD_LINE_OF_PARTS(0))
            what = "parts";
        if (what != NULL)
            text = hd_arena_printf(
                s->p->scratch, "%s%s%s over %s", text != NULL ? text : "",
                text != NULL ? ", " : "", what, m->axis[a].name);
    }
    return text != NULL ? text : "all of it on each rank";
}

// How much more another way would cost at this statement than the one that was
// chosen, in the mean of the two machines that count whole: it may be less,
// where others then cost that, or more.
static const char *show_more(const search *s, int64_t more)
{
    double mib = (double)(more < 0 ? -more : more) / 2 / 1048576;

    if (mib < .05)
        return "as much here";
    return hd_arena_printf(s->p->scratch, "%.1f MiB %s", mib,
                           more > 0 ? "more here"
                                    : "less here, but no less in all");
}

static bool same_cut(hd_cut a, hd_cut b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

// What was chosen of a statement, and what would have been next.
static const char *reason_of(search *s, const state *before, const state *after)
{
    const hd_lines *lines = &s->p->lines[s->at];
    ways ways = list_ways(s->p, lines, find_axes(s, before, 1));
    const hd_way *next = NULL;
    int64_t least = 0;
    state new;

    if (lines->fixed)
        return "as it stands";
    if (after->way->names)
        return "another place of what it copies";
    for (int w = 0; w < ways.n; w++) {
        if (same_cut(ways.way[w].cut, after->way->cut) ||
            !has_parts(&before->versions, lines, &ways.way[w]))
            continue;
        take(s, before, lines, &ways.way[w], &new);
        if (next != NULL && new.cost.total >= least)
            continue;
        next = &ways.way[w];
        least = new.cost.total;
    }
    if (next == NULL)
        return way_text(s, lines, after->way);
    return hd_arena_printf(
        s->p->scratch, "%s; next: %s, %s", way_text(s, lines, after->way),
        way_text(s, lines, next), show_more(s, least - after->cost.total));
}

static void explain(search *s, const state *last)
{
    s->p->reason = hd_new_array(s->p->scratch, const char *, s->p->nstmts + 1);
    for (s->at = s->p->nstmts; s->at-- > 0; last = last->from)
        s->p->reason[s->at] = reason_of(s, last->from, last);
    s->p->module->why = hd_arena_printf(
        s->p->module->arena, "place: %s",
        s->p->exact ? "all ways were tried"
                    : "the 32 cheapest states went on at each statement");
}

// ---------------------------------------------------------------- warnings

// Why no axis divides a dimension that some operand has over it.
static void note_uneven(const hd_placing *p, const hd_lines *lines, int axis)
{
    const hd_module *m = p->module;

    for (int i = 0; i < lines->op->nviews; i++)
        for (int d = 0; d < lines->type[i].ndims; d++) {
            int line = lines->at[i][d];
            hd_dim dim = lines->type[i].dim[d];

            if (line < 0 || hd_dim_splits(m, dim, axis) || dim.extent == 1 ||
                (line != lines->joined && line != lines->heads &&
                 line != lines->rows))
                continue;
            hd_note(p->diag, lines->op->view[i].loc,
                    "dimension %d of %%%s may be over %s where that divides "
                    "it: %lld over %lld",
                    d, lines->op->view[i].buffer->said, m->axis[axis].name,
                    (long long)dim.extent, (long long)m->axis[axis].size);
            return;
        }
}

// Of a product or an attention that all ranks of a used axis do.
static void tell_repeated(const hd_placing *p, const hd_lines *lines,
                          const hd_way *way, unsigned used)
{
    const hd_module *m = p->module;
    int64_t flops;

    if (lines->fixed)
        return;
    flops = hd_lines_flops(m, lines, way->cut);
    if (flops / HD_COST_FLOPS < HD_PLACE_MUCH)
        return;
    for (int a = 0; a < m->naxes; a++) {
        if ((used >> a & 1) == 0 || m->axis[a].size == 1 ||
            way->cut.line[a] >= 0)
            continue;
        hd_warning(p->diag, HD_E0507, lines->op->loc,
                   "all %lld ranks of %s do all of this %s: %.1f GFLOP each",
                   (long long)m->axis[a].size, m->axis[a].name,
                   hd_op_info_get(lines->op->code)->text, (double)flops / 1e9);
        note_uneven(p, lines, a);
    }
}

// Of a program that says where everything is.
static void judge_explicit(hd_placing *p)
{
    unsigned used;

    find_buffers(p);
    used = find_used(p);
    for (const hd_stmt *s = p->module->body.first; s != NULL; s = s->next) {
        hd_way way = {.work = 0};
        hd_lines lines;

        if (!hd_lines_have_flops(s->op))
            continue;
        lines = hd_lines_find(p->module, s->op);
        memset(&way.cut, NONE, sizeof way.cut);
        if (find_declared(p, &lines, &way))
            tell_repeated(p, &lines, &way, used);
    }
}

// The states that led to the last, and what their statements waited for.
static void settle(search *s, const state *last)
{
    hd_placing *p = s->p;
    hd_waits *waits = hd_new_array(p->scratch, hd_waits, p->nstmts + 1);
    for (s->at = p->nstmts; s->at-- > 0; last = last->from) {
        state again;

        p->way[s->at] = last->way;
        s->waits = (hd_waits){{0}};
        take(s, last->from, &p->lines[s->at], last->way, &again);
        waits[s->at] = s->waits;
    }
    p->waits = waits;
}

// NULL if there is no way.
static const state *choose(hd_placing *p)
{
    search s = {.p = p, .used = find_used(p)};
    states now = {.state = hd_new(p->scratch, state), .n = 1};
    const state *best;

    for (; s.at < p->nstmts && now.n > 0; s.at++)
        now = go_on(&s, &now);
    if (now.n == 0)
        return NULL;
    best = &now.state[0];
    for (int i = 1; i < now.n; i++)
        if (compare_costs(&now.state[i].cost, &best->cost) < 0)
            best = &now.state[i];
    settle(&s, best);
    return best;
}

static void put_in_order(hd_placing *p, hd_stmt *const *stmt)
{
    p->module->body = (hd_block){0};
    for (int n = 0; n < p->nstmts; n++) {
        stmt[n]->next = NULL;
        hd_block_append(&p->module->body, stmt[n]);
    }
}

// Likewise in another order, if that costs no more than `best`; gradients come
// early only if that moves no more: it stands on what hides.
static const state *try_order(hd_placing *p, bool early, const state *best)
{
    hd_stmt **before = hd_new_array(p->scratch, hd_stmt *, p->nstmts + 1);
    hd_stmt **stmt;
    hd_placing other = *p;
    const state *now;
    int n = 0, more;

    for (hd_stmt *s = p->module->body.first; s != NULL; s = s->next)
        before[n++] = s;
    stmt =
        hd_arena_copy(p->scratch, before, sizeof(hd_stmt *) * (size_t)(n + 1));
    if (!hd_place_order(p, early, stmt))
        return best;
    put_in_order(&other, stmt);
    find_statements(&other);
    other.exact = true;
    now = choose(&other);
    more = now != NULL ? compare_costs(&now->cost, &best->cost) : 1;
    if (more > 0 || (early && now->cost.bytes > best->cost.bytes)) {
        put_in_order(p, before);
        return best;
    }
    *p = other;
    return now;
}

static const state *choose_order(hd_placing *p)
{
    const state *best = choose(p);

    if (best == NULL)
        return NULL;
    best = try_order(p, false, best);
    return try_order(p, true, best);
}

// Of a dimension over ranks whose length a run says each rank takes from all,
// or numbers all: what it needs is better brought to it for all statements.
static void find_gathered(void *context, hd_op *op)
{
    bool *any = context;

    for (int i = 0; i < op->nviews; i++) {
        hd_type type = hd_view_type(&op->view[i]);

        for (int d = 0; d < type.ndims; d++)
            *any |= hd_dim_is_sharded(type.dim[d]) &&
                    hd_dim_is_sized(type.dim[d]) && hd_op_starts(op, i, d);
    }
}

// An explicit program is what it says.
static hd_status find_explicit(hd_module *module, bool *out)
{
    hd_status status = HD_OK;
    bool gathered = false;

    *out = module->form == 1;
    hd_block_each(&module->body, find_gathered, &gathered);
    if (!*out && gathered)
        return HD_OK;
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        if (b->open != 0)
            return HD_OK;
    if (!*out)
        status = hd_verify(module, NULL);
    *out |= status == HD_OK;
    return status == HD_ERROR_INVALID ? HD_OK : status;
}

hd_status hd_pass_place(hd_module *module, const hd_lower_options *options,
                        hd_arena *scratch, hd_diag *diag, hd_effect *effect)
{
    hd_placing p = {.module = module, .scratch = scratch, .exact = true};
    search told = {.p = &p};
    const state *best;
    bool is_explicit;
    hd_status status;

    (void)effect;
    p.diag = diag;
    p.why = options->why;
    if (module->placed)
        return HD_OK;
    module->placed = true;
    status = find_explicit(module, &is_explicit);
    if (status != HD_OK)
        return hd_fail(diag, status, "out of memory");
    if (is_explicit && p.why)
        module->why = "place: the program says where everything is";
    if (is_explicit) {
        judge_explicit(&p);
        return HD_OK;
    }
    find_statements(&p);
    best = choose_order(&p);
    if (best == NULL)
        return HD_OK;
    told.used = find_used(&p);
    if (p.why)
        explain(&told, best);
    for (int n = 0; n < p.nstmts; n++)
        tell_repeated(&p, &p.lines[n], p.way[n], told.used);
    hd_place_write(&p);
    return HD_OK;
}
