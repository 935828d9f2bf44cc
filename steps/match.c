// What ranks must agree on. Rendezvous and pairs stand in the graph; where they
// do not agree, transfers are noted, those too that are not issued since they
// move nothing, and the notes sorted so that what should match lies side by
// side: sends and recvs by (sender, receiver, axis, seq), collectives by (line
// of the mesh, axis, seq).
#include "steps/match.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"

static int64_t elements_of(const hd_part_frame *frame, const hd_part *part)
{
    int64_t n = 1;

    for (int d = 0; d < frame->ndims; d++)
        n *= hd_part_length(frame, part, d);
    return n;
}

// Of the smaller side of a gather or scatter. What it is counted by, which may
// be less, is not moved.
static int64_t piece_elements(const hd_graph *g, const hd_node *node)
{
    int counts = hd_op_key_view(node->op, HD_KEY_COUNTS);
    int64_t least = INT64_MAX;

    for (int64_t i = node->part; i < node[1].part; i++) {
        const hd_part *part = &g->part[i];
        int64_t n = elements_of(&g->frame[part->buffer], part);

        least = n < least && (int)part->view != counts ? n : least;
    }
    return least;
}

static bool same_key(const hd_node *a, const hd_node *b, hd_key_code key)
{
    return a->op == b->op ||
           (hd_op_key(a->op, key) != NULL) == (hd_op_key(b->op, key) != NULL);
}

static hd_dtype dtype_of(const hd_op *op)
{
    return op->view[0].buffer->type.dtype;
}

static bool same_data(const hd_graph *g, const hd_node *a, const hd_node *b)
{
    return dtype_of(a->op) == dtype_of(b->op) &&
           piece_elements(g, a) == piece_elements(g, b);
}

// What is checked has blocks of one length: which one follows from where it
// begins.
static hd_dim_terms terms_of(const hd_graph *g, const hd_node *node,
                             const hd_part *part, int d)
{
    const hd_part_frame *frame = &g->frame[part->buffer];
    hd_dim dim = frame->buffer->type.dim[d];
    int64_t blocks = g->module->size[dim.size - 1].blocks, block = -1;

    if (hd_dim_is_sharded(dim))
        block = hd_mesh_coord(
            g->module, g->number[hd_graph_rank(g, node - g->node)], dim.mark);
    else if (hd_part_extent(frame, part, d) < dim.extent)
        block = hd_part_index(frame, part, d) / (dim.extent / blocks);
    return hd_dim_terms_of(dim, block, blocks);
}

// That a run says of the side whose elements are counted, or the one that lacks
// a dimension.
static hd_view_terms lengths_of(const hd_graph *g, const hd_node *node)
{
    const hd_part *part = &g->part[node->part];
    const hd_type *type;
    hd_view_terms l = {0};

    if (hd_op_info_get(node->op->code)->led == HD_ENDS_RESULT)
        part++;
    type = &g->frame[part->buffer].buffer->type;
    for (int d = 0; d < type->ndims; d++)
        if (hd_view_has_sized(&node->op->view[part->view], d))
            l.of[l.n++] = terms_of(g, node, part, d);
    return l;
}

static bool same_lengths(const hd_graph *g, const hd_node *a, const hd_node *b)
{
    hd_view_terms x, y;

    if (g->module->nsizes == 0 || a->part == a[1].part || b->part == b[1].part)
        return true;
    x = lengths_of(g, a);
    y = lengths_of(g, b);
    return hd_view_same_terms(&x, &y);
}

// What ranks move that each have a step of their own the walk has compared.
static bool is_measured(const hd_graph *g, const hd_node *node)
{
    return g->arc != NULL && hd_op_is_rooted(node->op);
}

static bool agree(const hd_graph *g, const hd_node *a, const hd_node *b)
{
    bool as_much = is_measured(g, a)
                       ? dtype_of(a->op) == dtype_of(b->op)
                       : same_data(g, a, b) && same_lengths(g, a, b);

    return as_much && same_key(a, b, HD_KEY_GET) &&
           hd_op_fold(a->op) == hd_op_fold(b->op);
}

// NULL are those that move nothing.
static bool same_collective(const hd_graph *g, const hd_node *a,
                            const hd_node *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    return a->op->code == b->op->code && a->peer == b->peer && agree(g, a, b);
}

// Of ranks that stand for others, pairs move as much.
static bool same_pair(const hd_graph *g, const hd_node *a, const hd_node *b)
{
    return g->folded ? dtype_of(a->op) == dtype_of(b->op) &&
                           same_key(a, b, HD_KEY_GET)
                     : agree(g, a, b);
}

static bool are_points_matched(const hd_graph *g)
{
    for (int64_t i = 0; i < g->first[g->nranks]; i++) {
        const hd_node *node = &g->node[i];

        if (node->kind != HD_NODE_SEND && node->kind != HD_NODE_RECV)
            continue;
        if (node->partner < 0)
            return false;
        if (node->kind == HD_NODE_SEND &&
            !same_pair(g, node, &g->node[g->first[node->peer] + node->partner]))
            return false;
    }
    return true;
}

// Where ranks of a line issue some of the steps each: one rank of each line
// that meets them does if the others do. Of one line the walk has put them
// together.
static bool is_issued_alike(const hd_graph *g, const hd_member *a,
                            const hd_member *b)
{
    return a->rank == b->rank ||
           hd_arc_equal(hd_graph_arc(g, hd_graph_node(g, a->rank, a->step)),
                        hd_graph_arc(g, hd_graph_node(g, b->rank, b->step)),
                        g->line);
}

static bool is_rendezvous_matched(const hd_graph *g, int64_t rendezvous)
{
    const hd_member *member = hd_graph_members(g, rendezvous);
    int64_t n = hd_graph_meets(g, rendezvous);
    const hd_node *first = NULL;

    for (int64_t i = 0; i < n; i++) {
        const hd_node *node;

        if (member[i].step < 0)
            return false;
        node = &g->node[g->first[member[i].rank] + member[i].step];
        first = i == 0 ? node : first;
        if (!same_collective(g, first, node) ||
            !is_issued_alike(g, &member[0], &member[i]))
            return false;
    }
    return true;
}

bool hd_graph_is_matched(const hd_graph *graph)
{
    if (!are_points_matched(graph))
        return false;
    for (int64_t i = 0; i < graph->nrendezvous; i++)
        if (!is_rendezvous_matched(graph, i))
            return false;
    return true;
}

// ------------------------------------------------------------------- notes

typedef struct note {
    int axis;
    int32_t from, to; // ranks; of a collective both the line's first rank
    int32_t seq;      // among those of its rank, axis and peer
    int32_t rank;     // who issues it
    int32_t step;
    const hd_node *node; // NULL: it moves nothing
    const hd_op *op;
} note;

// A send or recv that the other side does not answer, and how many of its kind
// that side has.
typedef struct lone {
    int64_t note; // its number
    int64_t theirs;
} lone;

// Two places of the text that were reported; the second may be none.
typedef struct told {
    const hd_op *a, *b;
} told;

enum { MOST_TOLD = 32 }; // more than a diag keeps

typedef struct matcher {
    const hd_graph *graph;
    const hd_module *module;
    hd_diag *diag;
    note *note; // owned
    int64_t nnotes, notes_room;
    lone *lone; // owned
    int64_t nlone, lone_room;
    // The last collective that was reported to differ, and the last one from
    // which on its line differs throughout.
    const note *differs, *shifted;
    told told[MOST_TOLD];
    int ntold;
    bool failed;
} matcher;

static bool is_point(const hd_op *op)
{
    return op->code == HD_OP_SEND || op->code == HD_OP_RECV;
}

static note note_of(const matcher *m, const hd_step *step)
{
    bool sends = step->op->code == HD_OP_SEND;
    note n = {.axis = step->op->axis,
              .seq = step->seq,
              .rank = step->rank,
              .step = step->index,
              .op = step->op};

    if (is_point(n.op)) {
        n.from = sends ? step->rank : step->peer;
        n.to = sends ? step->peer : step->rank;
    } else {
        n.from = n.to = (int32_t)hd_mesh_peer(m->module, n.rank, n.axis, 0);
    }
    return n;
}

#define ORDER(field)          \
    if (a->field != b->field) \
    return a->field < b->field ? -1 : 1

static int compare_notes(const void *x, const void *y)
{
    const note *a = x, *b = y;
    int point_a = is_point(a->op), point_b = is_point(b->op);

    ORDER(from);
    if (point_a != point_b)
        return point_a - point_b;
    ORDER(to);
    ORDER(axis);
    ORDER(seq);
    ORDER(rank);
    ORDER(step);
    return 0;
}

static const char *text_of(const hd_op *op)
{
    return hd_op_info_get(op->code)->text;
}

// A pair of places is reported once, for the first rank that has it.
static bool is_told(matcher *m, const hd_op *a, const hd_op *b)
{
    for (int i = 0; i < m->ntold; i++)
        if ((m->told[i].a == a && m->told[i].b == b) ||
            (m->told[i].a == b && m->told[i].b == a))
            return true;
    if (m->ntold == MOST_TOLD)
        return true;
    m->told[m->ntold++] = (told){a, b};
    return false;
}

static void say(matcher *m, hd_code code, const note *a, const char *what)
{
    hd_status failed =
        hd_error(m->diag, code, a->op->loc, "%s of rank %lld: %s",
                 text_of(a->op), (long long)a->rank, what);

    m->failed = failed != HD_OK;
}

// ", block 2 of 4 of m": what a run says the length of.
static void describe_lengths(const hd_graph *g, const note *n, char out[80])
{
    hd_view_terms l = {0};
    int at = 0;

    if (g->module->nsizes > 0 && n->node != NULL &&
        n->node->part < n->node[1].part)
        l = lengths_of(g, n->node);
    out[0] = '\0';
    for (int i = 0; i < l.n && at < 40; i++) {
        const hd_size *size = &g->module->size[l.of[i].size - 1];

        if (l.of[i].block < 0)
            at +=
                snprintf(out + at, 80 - (size_t)at, ", %.16s long", size->name);
        else
            at += snprintf(
                out + at, 80 - (size_t)at, ", block %lld of %lld of %.16s",
                (long long)l.of[i].block, (long long)size->blocks, size->name);
    }
}

// "4 elements of f32, max"
static void describe(const hd_graph *g, const note *n, char out[220])
{
    char terms[80];
    int64_t elements = n->node != NULL ? piece_elements(g, n->node) : 0;
    hd_key_code key;
    bool keyed = hd_fold_key(hd_op_fold(n->op), &key);

    describe_lengths(g, n, terms);
    snprintf(out, 220, "%lld element%s of %s%s%s%s%s", (long long)elements,
             elements == 1 ? "" : "s", hd_dtype_text(dtype_of(n->op)), terms,
             hd_op_key(n->op, HD_KEY_GET) != NULL ? ", get" : "",
             keyed ? ", " : "", keyed ? hd_key_info_get(key)->text : "");
}

// `b` is the other half.
static void report(matcher *m, hd_code code, const note *a, const note *b,
                   const char *what)
{
    char theirs[220];

    m->failed = true;
    if (is_told(m, a->op, b->op))
        return;
    describe(m->graph, b, theirs);
    say(m, code, a, what);
    hd_note(m->diag, b->op->loc, "%s of rank %lld: %s", text_of(b->op),
            (long long)b->rank, theirs);
}

static void compare_pair(matcher *m, const note *a, const note *b)
{
    char mine[220], what[280];

    if (a->node == NULL && b->node == NULL)
        return;
    if (a->node == NULL || b->node == NULL ||
        !same_data(m->graph, a->node, b->node) ||
        !same_lengths(m->graph, a->node, b->node)) {
        describe(m->graph, a, mine);
        snprintf(what, sizeof what, "%s do not match the other side", mine);
        report(m, HD_E0702, a, b, what);
    } else if (!same_key(a->node, b->node, HD_KEY_GET)) {
        report(m, HD_E0703, a, b, "one side has get, the other has not");
    }
}

static bool same_way(const note *a, const note *b)
{
    return is_point(a->op) && is_point(b->op) && a->axis == b->axis &&
           a->from == b->from && a->to == b->to;
}

static hd_status add_lone(matcher *m, int64_t i)
{
    const note *before =
        m->nlone > 0 ? &m->note[m->lone[m->nlone - 1].note] : NULL;
    const note *a = &m->note[i];

    HD_TRY(hd_grow((void **)&m->lone, &m->lone_room, m->nlone + 1,
                   sizeof *m->lone, m->diag));
    // The first one that is alone says how many the other side has.
    m->lone[m->nlone] = (lone){i, before != NULL && same_way(before, a)
                                      ? m->lone[m->nlone - 1].theirs
                                      : a->seq};
    m->nlone++;
    return HD_OK;
}

// Sends and recvs: notes i and i + 1 are a pair, or note i is alone.
static hd_status match_point(matcher *m, int64_t *i)
{
    const note *a = &m->note[*i], *b = a + 1;

    if (*i + 1 < m->nnotes && same_way(a, b) && a->seq == b->seq) {
        compare_pair(m, a, b);
        *i += 2;
        return HD_OK;
    }
    if (a->node != NULL)
        HD_TRY(add_lone(m, *i));
    ++*i;
    return HD_OK;
}

static bool is_send(const note *n)
{
    return n->op->code == HD_OP_SEND;
}

static int64_t peer_of(const note *n)
{
    return is_send(n) ? n->to : n->from;
}

// What the other rank may have meant for `a`: the opposite, alone too, by the
// rank that `a` names, or else one that names the rank of `a`.
static const note *find_meant(const matcher *m, const note *a)
{
    const note *second = NULL;

    for (int64_t i = 0; i < m->nlone; i++) {
        const note *b = &m->note[m->lone[i].note];

        if (is_send(b) == is_send(a))
            continue;
        if (b->rank == peer_of(a))
            return b;
        if (second == NULL && peer_of(b) == a->rank)
            second = b;
    }
    return second;
}

// Alone or not, each op is reported once.
static bool is_op_told(const matcher *m, const hd_op *op)
{
    for (int i = 0; i < m->ntold; i++)
        if (m->told[i].a == op || m->told[i].b == op)
            return true;
    return m->ntold == MOST_TOLD;
}

static void name_lone(const matcher *m, const lone *l, char out[160])
{
    const note *a = &m->note[l->note];

    snprintf(out, 160,
             is_send(a) ? "number %lld to rank %lld along %s, which receives "
                          "%lld from here"
                        : "number %lld from rank %lld along %s, which sends "
                          "%lld to here",
             (long long)a->seq + 1, (long long)peer_of(a),
             m->module->axis[a->axis].name, (long long)l->theirs);
}

// What the other rank has along that axis: the last one that is answered here,
// or another one.
static const note *find_beside(const matcher *m, const note *a)
{
    for (const note *b = a; b > m->note && same_way(b - 1, a); b--)
        if (b[-1].rank != a->rank)
            return &b[-1];
    for (int64_t i = 0; i < m->nnotes; i++) {
        const note *b = &m->note[i];

        if (is_point(b->op) && b->axis == a->axis && b->rank == peer_of(a) &&
            is_send(b) != is_send(a))
            return b;
    }
    return NULL;
}

static void report_lone(matcher *m, const lone *l)
{
    const note *a = &m->note[l->note], *b;
    char what[160];
    bool alone, heard;

    if (is_op_told(m, a->op))
        return;
    b = find_meant(m, a);
    heard = b != NULL && is_op_told(m, b->op);
    m->told[m->ntold++] = (told){a->op, b != NULL ? b->op : NULL};
    if (heard)
        return;
    name_lone(m, l, what);
    say(m, HD_E0701, a, what);
    alone = b != NULL;
    b = alone ? b : find_beside(m, a);
    if (b != NULL)
        hd_note(m->diag, b->op->loc,
                "%s of rank %lld%s: number %lld %s rank %lld", text_of(b->op),
                (long long)b->rank, alone ? " is alone, too" : "",
                (long long)b->seq + 1, is_send(b) ? "to" : "from",
                (long long)peer_of(b));
}

static void describe_difference(const matcher *m, const note *a, const note *b,
                                char *what, size_t size)
{
    char mine[220];
    int n;

    describe(m->graph, a, mine);
    n = snprintf(what, size,
                 "collective %lld along %s, of %s, is another on rank %lld",
                 (long long)a->seq + 1, m->module->axis[a->axis].name, mine,
                 (long long)b->rank);
    if (a->op->code == b->op->code && a->node != NULL && b->node != NULL &&
        a->node->peer != b->node->peer)
        snprintf(what + n, size - (size_t)n, ", root %lld and not %lld",
                 (long long)hd_mesh_coord(m->module, b->node->peer, a->axis),
                 (long long)hd_mesh_coord(m->module, a->node->peer, a->axis));
}

static bool same_line(const note *a, const note *b)
{
    return !is_point(a->op) && !is_point(b->op) && a->axis == b->axis &&
           a->from == b->from;
}

static bool is_among(const note *a, int64_t n, int64_t rank)
{
    for (int64_t i = 0; i < n; i++)
        if (a[i].rank == rank)
            return true;
    return false;
}

// "rank 2", "ranks 2, 3 and 5", "ranks 0, 1, 2, 3 and 12 more". Returns the
// first of those that lack the collective that notes a .. a + n are.
static int64_t name_missing(const matcher *m, const note *a, int64_t n,
                            char out[120])
{
    int64_t size = m->module->axis[a->axis].size, left = size - n, first = -1;
    int at = snprintf(out, 120, left == 1 ? "rank" : "ranks"), shown = 0;

    for (int64_t i = 0; i < size && shown < 4; i++) {
        int64_t rank = hd_mesh_peer(m->module, a->rank, a->axis, i);

        if (is_among(a, n, rank))
            continue;
        first = first < 0 ? rank : first;
        at += snprintf(out + at, 120 - (size_t)at, "%s%lld",
                       shown == 0                       ? " "
                       : shown + 1 == left && left <= 4 ? " and "
                                                        : ", ",
                       (long long)rank);
        shown++;
    }
    if (left > shown)
        snprintf(out + at, 120 - (size_t)at, " and %lld more",
                 (long long)(left - shown));
    return first;
}

static void report_missing(matcher *m, const note *a, int64_t n)
{
    char who[120], what[280];
    int64_t missing;

    m->failed = true;
    if (is_told(m, a->op, NULL))
        return;
    missing = name_missing(m, a, n, who);
    snprintf(what, sizeof what,
             "collective %lld along %s is issued by %lld of %lld ranks, not by "
             "%s",
             (long long)a->seq + 1, m->module->axis[a->axis].name, (long long)n,
             (long long)m->module->axis[a->axis].size, who);
    say(m, HD_E0705, a, what);
    for (const note *b = a; b > m->note && same_line(b - 1, a); b--)
        if (b[-1].rank == missing) {
            hd_note(m->diag, b[-1].op->loc,
                    "%s, the last one of rank %lld, is number %lld",
                    text_of(b[-1].op), (long long)missing,
                    (long long)b[-1].seq + 1);
            return;
        }
}

// Returns the number of the first note after them. Once ranks issue different
// kinds, or a different number, what follows on that line differs for it.
static int64_t match_collective(matcher *m, int64_t i)
{
    const note *a = &m->note[i], *other = NULL;
    int64_t n = 0;
    char what[260];

    for (; i + n < m->nnotes; n++) {
        const note *b = a + n;

        if (!same_line(a, b) || b->seq != a->seq)
            break;
        if (other == NULL && !same_collective(m->graph, a->node, b->node))
            other = b;
    }
    if (m->shifted != NULL && same_line(m->shifted, a))
        return i + n;
    if (other == NULL && a->node == NULL) // none of them moves anything
        return i + n;
    if (other != NULL) {
        describe_difference(m, a, other, what, sizeof what);
        report(m, HD_E0704, a, other, what);
        m->differs = a;
        m->shifted = other->op->code != a->op->code ? a : m->shifted;
    } else if (n != m->module->axis[a->axis].size) {
        if (m->differs == NULL || !same_line(m->differs, a))
            report_missing(m, a, n);
        m->shifted = a;
    }
    return i + n;
}

static hd_status match_notes(matcher *m)
{
    for (int64_t i = 0; i < m->nnotes;) {
        if (is_point(m->note[i].op))
            HD_TRY(match_point(m, &i));
        else
            i = match_collective(m, i);
    }
    for (int64_t i = 0; i < m->nlone; i++)
        report_lone(m, &m->lone[i]);
    m->failed |= m->nlone > 0;
    return HD_OK;
}

// ------------------------------------------------------------------- whole

static hd_status add_note(matcher *m, note n)
{
    HD_TRY(hd_grow((void **)&m->note, &m->notes_room, m->nnotes + 1,
                   sizeof *m->note, m->diag));
    m->note[m->nnotes++] = n;
    return HD_OK;
}

static hd_status note_steps(void *context, const hd_step *steps, int n)
{
    matcher *m = context;

    for (int i = 0; i < n; i++) {
        note note;

        if (!hd_op_is(steps[i].op, HD_UNIT_TRANSFER))
            continue;
        note = note_of(m, &steps[i]);
        note.node = hd_graph_node(m->graph, note.rank, note.step);
        HD_TRY(add_note(m, note));
    }
    return HD_OK;
}

static hd_status note_empty(void *context, const hd_step *steps, int n)
{
    (void)n; // one at a time
    return add_note(context, note_of(context, steps));
}

static hd_status put_in_words(matcher *m)
{
    for (int rank = 0; rank < m->graph->nranks; rank++)
        HD_TRY(
            hd_walk_all(m->module, rank, m->diag, note_steps, note_empty, m));
    qsort(m->note, (size_t)m->nnotes, sizeof *m->note, compare_notes);
    HD_TRY(match_notes(m));
    assert(m->failed);
    return HD_ERROR_INVALID;
}

hd_status hd_graph_match(const hd_graph *graph, hd_diag *diag)
{
    matcher m = {.graph = graph, .module = graph->module, .diag = diag};
    const hd_source *outer;
    hd_status status;

    if (hd_graph_is_matched(graph))
        return HD_OK;
    assert(graph->nranks == graph->module->nranks);
    outer = hd_diag_source(diag, &graph->module->source);
    status = put_in_words(&m);
    free(m.note);
    free(m.lone);
    hd_diag_source(diag, outer);
    return status;
}
