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

typedef struct matcher {
    const hd_module *module;
    hd_diag *diag;
    int64_t rank;
    note *note; // owned
    int64_t nnotes, room;
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

static void report(matcher *m, hd_code code, const note *a, const char *what)
{
    hd_status ignored =
        hd_error(m->diag, code, a->op->loc, "%s of rank %lld: %s",
                 text_of(a->op), (long long)a->rank, what);

    (void)ignored;
    m->failed = true;
}

static void note_other(matcher *m, const note *b)
{
    hd_note(m->diag, b->op->loc, "%s of rank %lld: %lld elements of %s",
            text_of(b->op), (long long)b->rank, (long long)b->elements,
            hd_dtype_text(b->dtype));
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
                 "%lld elements of %s do not match the other side",
                 (long long)a->elements, hd_dtype_text(a->dtype));
        report(m, HD_E0702, a, what);
        note_other(m, b);
    } else if (!same_flag(a, b, HD_KEY_GET)) {
        report(m, HD_E0703, a, "one side has get, the other has not");
        note_other(m, b);
    }
}

// Sends and recvs: notes i and i + 1 are a pair, or note i is alone.
static int64_t match_point(matcher *m, int64_t i)
{
    const note *a = &m->note[i], *b = a + 1;
    char what[120];

    if (i + 1 < m->nnotes && is_point(b->op) && a->axis == b->axis &&
        a->from == b->from && a->to == b->to && a->seq == b->seq) {
        compare_pair(m, a, b);
        return i + 2;
    }
    snprintf(what, sizeof what, "rank %lld never %s number %lld of these",
             (long long)(a->rank == a->from ? a->to : a->from),
             a->op->code == HD_OP_SEND ? "receives" : "sends",
             (long long)a->seq);
    report(m, HD_E0701, a, what);
    return i + 1;
}

static bool same_collective(const note *a, const note *b)
{
    return a->op->code == b->op->code && a->dtype == b->dtype &&
           a->elements == b->elements && a->root == b->root &&
           same_flag(a, b, HD_KEY_MAX);
}

static int64_t match_collective(matcher *m, int64_t i)
{
    const note *a = &m->note[i];
    int64_t size = m->module->axis[a->axis].size, n = 0;
    char what[120];
    bool differ = false;

    for (; i + n < m->nnotes; n++) {
        const note *b = a + n;

        if (is_point(b->op) || b->axis != a->axis || b->from != a->from ||
            b->seq != a->seq)
            break;
        if (differ || same_collective(a, b))
            continue;
        differ = true;
        snprintf(what, sizeof what,
                 "collective %lld along %s is another on rank %lld",
                 (long long)a->seq, m->module->axis[a->axis].name,
                 (long long)b->rank);
        report(m, HD_E0704, a, what);
        note_other(m, b);
    }
    if (n != size && !differ) {
        snprintf(what, sizeof what,
                 "collective %lld along %s is issued by %lld of %lld ranks",
                 (long long)a->seq, m->module->axis[a->axis].name, (long long)n,
                 (long long)size);
        report(m, HD_E0705, a, what);
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
