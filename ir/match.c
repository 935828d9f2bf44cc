// What ranks must agree on. Every rank is walked, its transfers noted, and the
// notes sorted so that what should match lies side by side: sends and recvs by
// (sender, receiver, axis, seq), collectives by (line of the mesh, axis, seq).
// They are dealt out by sender first, so that each sort is of few.
#include <stdio.h>
#include <stdlib.h>

#include "ir/walk.h"

typedef struct note {
    int axis;
    int64_t from, to; // ranks; of a collective both the line's first rank
    int64_t seq;
    int64_t rank; // who issues it
    const hd_op *op;
    hd_dtype dtype;
    int64_t elements; // of one piece
    int root;
} note;

// Two places of the text that were told; the second may be none.
typedef struct told {
    const hd_op *a, *b;
} told;

enum { MOST_TOLD = 32 }; // more than a diag keeps

typedef struct matcher {
    const hd_module *module;
    hd_diag *diag;
    int64_t rank;
    note *note; // owned
    int64_t nnotes, room;
    const note *alone; // the first of its sends and recvs without a partner
    told told[MOST_TOLD];
    int ntold;
    bool failed;
} matcher;

static bool is_point(const hd_op *op)
{
    return op->code == HD_OP_SEND || op->code == HD_OP_RECV;
}

// The piece is the smaller side of a gather or scatter.
static int64_t piece_elements(const hd_step *step)
{
    int64_t n = hd_span_elements(&step->span[0]);

    for (int i = 1; i < step->op->noutputs + step->op->ninputs; i++) {
        int64_t other = hd_span_elements(&step->span[i]);

        n = other < n ? other : n;
    }
    return n;
}

static void fill_note(const matcher *m, const hd_step *step, note *n)
{
    bool send = step->op->code == HD_OP_SEND;

    *n = (note){.axis = step->op->axis,
                .seq = step->seq,
                .rank = m->rank,
                .op = step->op,
                .dtype = step->span[0].buffer->type.dtype,
                .elements = piece_elements(step),
                .root = step->peer};
    if (is_point(step->op)) {
        n->from = send ? m->rank : step->peer;
        n->to = send ? step->peer : m->rank;
    } else {
        n->from = n->to = hd_mesh_peer(m->module, m->rank, n->axis, 0);
    }
}

static hd_status take_steps(void *context, const hd_step *steps, int count)
{
    matcher *m = context;

    for (int i = 0; i < count; i++) {
        if (!hd_op_is(steps[i].op, HD_UNIT_TRANSFER))
            continue;
        if (m->nnotes == m->room) {
            int64_t room = m->room == 0 ? 256 : 2 * m->room;
            note *grown = realloc(m->note, sizeof *grown * (size_t)room);

            if (grown == NULL)
                return hd_fail(m->diag, HD_NO_MEMORY, "out of memory");
            m->note = grown;
            m->room = room;
        }
        fill_note(m, &steps[i], &m->note[m->nnotes++]);
    }
    return HD_OK;
}

#define ORDER(field)          \
    if (a->field != b->field) \
    return a->field < b->field ? -1 : 1

static int compare_notes(const void *x, const void *y)
{
    const note *a = x, *b = y;
    int point_a = is_point(a->op), point_b = is_point(b->op);

    if (point_a != point_b)
        return point_a - point_b;
    ORDER(from);
    ORDER(to);
    ORDER(axis);
    ORDER(seq);
    ORDER(rank);
    return 0;
}

static const char *text_of(const hd_op *op)
{
    return hd_op_info_get(op->code)->text;
}

// A pair of places is told once, for the first rank that has it.
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

// `b` is the other half, NULL if there is none.
static void report(matcher *m, hd_code code, const note *a, const note *b,
                   const char *what)
{
    hd_status ignored;

    m->failed = true;
    if (is_told(m, a->op, b != NULL ? b->op : NULL))
        return;
    ignored = hd_error(m->diag, code, a->op->loc, "%s of rank %lld: %s",
                       text_of(a->op), (long long)a->rank, what);
    (void)ignored;
    if (b == NULL)
        return;
    hd_note(m->diag, b->op->loc, "%s of rank %lld: %lld element%s of %s%s%s",
            text_of(b->op), (long long)b->rank, (long long)b->elements,
            b->elements == 1 ? "" : "s", hd_dtype_text(b->dtype),
            hd_op_key(b->op, HD_KEY_GET) != NULL ? ", get" : "",
            hd_op_key(b->op, HD_KEY_MAX) != NULL ? ", max" : "");
}

static bool same_flag(const note *a, const note *b, hd_key_code key)
{
    return (hd_op_key(a->op, key) != NULL) == (hd_op_key(b->op, key) != NULL);
}

static void compare_pair(matcher *m, const note *a, const note *b)
{
    char what[120];

    if (a->elements != b->elements || a->dtype != b->dtype) {
        snprintf(what, sizeof what,
                 "%lld element%s of %s do not match the other side",
                 (long long)a->elements, a->elements == 1 ? "" : "s",
                 hd_dtype_text(a->dtype));
        report(m, HD_E0702, a, b, what);
    } else if (!same_flag(a, b, HD_KEY_GET)) {
        report(m, HD_E0703, a, b, "one side has get, the other has not");
    }
}

static bool same_way(const note *a, const note *b)
{
    return is_point(a->op) && is_point(b->op) && a->axis == b->axis &&
           a->from == b->from && a->to == b->to;
}

// One side has issued them all; the first one that is alone says how many.
static void report_alone(matcher *m, const note *a)
{
    bool send = a->op->code == HD_OP_SEND;
    char what[160];

    if (m->alone == NULL || !same_way(m->alone, a))
        m->alone = a;
    snprintf(what, sizeof what,
             send ? "number %lld to rank %lld along %s, which receives %lld "
                    "from here"
                  : "number %lld from rank %lld along %s, which sends %lld to "
                    "here",
             (long long)a->seq + 1, (long long)(send ? a->to : a->from),
             m->module->axis[a->axis].name, (long long)m->alone->seq);
    report(m, HD_E0701, a, NULL, what);
}

// Sends and recvs: notes i and i + 1 are a pair, or note i is alone.
static int64_t match_point(matcher *m, int64_t i)
{
    const note *a = &m->note[i], *b = a + 1;

    if (i + 1 < m->nnotes && same_way(a, b) && a->seq == b->seq) {
        compare_pair(m, a, b);
        return i + 2;
    }
    report_alone(m, a);
    return i + 1;
}

static bool same_collective(const note *a, const note *b)
{
    return a->op->code == b->op->code && a->dtype == b->dtype &&
           a->elements == b->elements && a->root == b->root &&
           same_flag(a, b, HD_KEY_MAX);
}

static void describe_difference(const matcher *m, const note *a, const note *b,
                                char *what, size_t size)
{
    int n =
        snprintf(what, size, "collective %lld along %s is another on rank %lld",
                 (long long)a->seq + 1, m->module->axis[a->axis].name,
                 (long long)b->rank);

    if (a->op->code == b->op->code && a->root != b->root)
        snprintf(what + n, size - (size_t)n, ", root %lld and not %lld",
                 (long long)hd_mesh_coord(m->module, b->root, a->axis),
                 (long long)hd_mesh_coord(m->module, a->root, a->axis));
}

static int64_t match_collective(matcher *m, int64_t i)
{
    const note *a = &m->note[i];
    int64_t size = m->module->axis[a->axis].size, n = 0;
    char what[160];
    bool differ = false;

    for (; i + n < m->nnotes; n++) {
        const note *b = a + n;

        if (is_point(b->op) || b->axis != a->axis || b->from != a->from ||
            b->seq != a->seq)
            break;
        if (differ || same_collective(a, b))
            continue;
        differ = true;
        describe_difference(m, a, b, what, sizeof what);
        report(m, HD_E0704, a, b, what);
    }
    if (n != size && !differ) {
        snprintf(what, sizeof what,
                 "collective %lld along %s is issued by %lld of %lld ranks",
                 (long long)a->seq + 1, m->module->axis[a->axis].name,
                 (long long)n, (long long)size);
        report(m, HD_E0705, a, NULL, what);
    }
    return i + n;
}

// Deals the notes out by sender: first[r] .. first[r + 1] are those of r.
static hd_status deal_notes(matcher *m, int64_t *first)
{
    note *dealt = malloc(sizeof *dealt * ((size_t)m->nnotes + 1));

    if (dealt == NULL)
        return hd_fail(m->diag, HD_NO_MEMORY, "out of memory");
    for (int64_t i = 0; i < m->nnotes; i++)
        first[m->note[i].from + 1]++;
    for (int64_t r = 0; r < m->module->nranks; r++)
        first[r + 1] += first[r];
    for (int64_t i = 0; i < m->nnotes; i++)
        dealt[first[m->note[i].from]++] = m->note[i];
    for (int64_t r = m->module->nranks; r > 0; r--)
        first[r] = first[r - 1];
    first[0] = 0;
    free(m->note);
    m->note = dealt;
    return HD_OK;
}

static hd_status sort_notes(matcher *m)
{
    int64_t *first = calloc((size_t)m->module->nranks + 1, sizeof *first);
    hd_status status;

    if (first == NULL)
        return hd_fail(m->diag, HD_NO_MEMORY, "out of memory");
    status = deal_notes(m, first);
    for (int64_t r = 0; status == HD_OK && r < m->module->nranks; r++)
        qsort(m->note + first[r], (size_t)(first[r + 1] - first[r]),
              sizeof *m->note, compare_notes);
    free(first);
    return status;
}

hd_status hd_match(const hd_module *module, hd_diag *diag)
{
    matcher m = {.module = module, .diag = diag};
    const hd_source *outer = hd_diag_source(diag, &module->source);
    hd_status status = HD_OK;

    for (; status == HD_OK && m.rank < module->nranks; m.rank++)
        status = hd_walk(module, m.rank, diag, take_steps, &m);
    if (status == HD_OK)
        status = sort_notes(&m);
    for (int64_t i = 0; status == HD_OK && i < m.nnotes;)
        i = is_point(m.note[i].op) ? match_point(&m, i)
                                   : match_collective(&m, i);
    free(m.note);
    hd_diag_source(diag, outer);
    return status == HD_OK && m.failed ? HD_INVALID : status;
}
