// Each rank's steps are visited after all that precede them, and every cell
// remembers who wrote it last and who has read it since: an access races if it
// conflicts with one of those and its clock has not counted that one's end.
// Accesses further back were compared when those were made.
//
// What a rank decides alone nearly always orders its steps, and is quick to
// find. Where it does not, the rank is visited again, peers are asked about
// what stays unordered, and only then is anything reported.
#include "check/race.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "check/past.h"
#include "check/repair.h"
#include "check/set.h"

// Steps are kept as number + 1, so that 0 is none.
typedef struct cell {
    int32_t write; // the last one
    int32_t name;  // id of the buffer that it was written through
    int32_t loose; // first of the loose sends that have read it since
    int32_t older; // first of the accesses before, that are some ranks' last
} cell;

typedef struct link {
    int32_t step;
    int32_t next; // 0 is the end
} link;

// An access that some ranks of a line have made since all of them wrote.
typedef struct older {
    int32_t step;
    int32_t next; // 0 is the end
    bool writes;
    hd_arc arc; // with all ranks that have
} older;

// Ranks of a line that have written a cell, and by the name that it was last
// written through.
typedef struct writers {
    hd_arc all, last;
} writers;

// An op that was reported, alone or with another.
typedef struct reported {
    hd_code code;
    const hd_op *first, *second;
} reported;

enum {
    MOST_REPORTED = 64, // more than a diag keeps
    MOST_OLDER = 64,    // of one cell; with more the line is not looked at
};

typedef struct access {
    int64_t step;
    const hd_part *part;
} access;

// Two accesses that are not ordered, x issued first.
typedef struct pair {
    hd_code code;
    access x, y;
} pair;

typedef enum phase {
    LOOK,   // is there anything that was not reported before?
    ORDER,  // report what is not ordered
    VALUES, // all is ordered: report what is read or left unwritten
} phase;

typedef struct scan {
    const hd_graph *graph;
    unsigned serial; // a bit for each axis that NCCL is to serve
    hd_cells cells;
    hd_diag *diag;
    int rank;
    phase phase;
    bool global;    // peers are asked
    bool found;     // something in this phase
    bool unordered; // some accesses, reported or not
    int64_t steps;  // of one run of the rank
    cell *cell;     // owned
    int32_t *read;  // owned, by cell and stream: the last step that read it
    // Where ranks of a line issue some of the steps each; else NULL.
    writers *written; // owned, by cell
    hd_arc *reader;   // owned, as `read`: who has read it by that stream
    older *older;     // owned: lists of them, from 1
    int64_t nolder, older_room;
    int32_t dropped; // the first of those that are free
    link *link;      // owned: lists of loose reads, from 1
    int64_t nlinks, links_room;
    int32_t *loose; // owned, by step of one run: its number or -1
    int64_t nloose; // of one run
    link *wait;     // owned: waits for a deferred send, from 1
    int64_t waits_room;
    int32_t *waits; // owned, by loose number: the first wait
    hd_set over;    // values that have ended in this run: see value_of
    reported reported[MOST_REPORTED];
    int nreported;
    pair pair[MOST_REPORTED]; // of this rank, to be reported
    int npairs;
    int32_t *end; // owned: the clock at the end of the first run, of its rank
                  // alone
    hd_past past; // owned: once peers are asked
    int64_t visits;
    hd_status status;
    // Of the access that is being compared.
    int64_t step;
    bool rewrites; // the step writes to a buffer that it reads
    const hd_part *part;
    const int32_t *clock;
} scan;

// ---------------------------------------------------------------- telling

static const hd_node *node_of(const scan *s, int64_t step)
{
    return hd_graph_node(s->graph, s->rank, step);
}

static const char *word_of(const scan *s, int64_t step)
{
    return hd_op_info_get(node_of(s, step)->op->code)->text;
}

static bool is_reported(const scan *s, hd_code code, const hd_op *first,
                        const hd_op *second)
{
    for (int i = 0; i < s->nreported; i++)
        if (s->reported[i].code == code && s->reported[i].first == first &&
            s->reported[i].second == second)
            return true;
    return s->nreported == MOST_REPORTED;
}

// Whether a finding is to be put into words now. What is not known for want of
// memory is none.
static bool report(scan *s, phase phase, hd_code code, const hd_op *first,
                   const hd_op *second)
{
    if (s->status == HD_ERROR_NO_MEMORY ||
        is_reported(s, code, first, second) ||
        (s->phase != LOOK && s->phase != phase))
        return false;
    s->found = true;
    if (s->phase == LOOK)
        return false;
    s->reported[s->nreported++] = (reported){code, first, second};
    return true;
}

static void say(scan *s, hd_code code, hd_loc loc, const char *words)
{
    hd_status status = hd_error(s->diag, code, loc, "%s", words);

    s->status = s->status == HD_OK ? status : s->status;
}

enum { WORDS = 400 };

static void name_stream(int stream, char out[40])
{
    if (stream == 0)
        snprintf(out, 40, "the caller's stream");
    else
        snprintf(out, 40, "stream %d", stream - 1);
}

static void name_part(const scan *s, const hd_part *part, char out[160])
{
    hd_text text = {0};

    hd_part_print(&s->graph->frame[part->buffer], part, &text);
    snprintf(out, 160, "%s", text.bytes != NULL ? text.bytes : "");
    hd_text_free(&text);
}

static const char *verb_of(const hd_part *part)
{
    return !hd_part_writes(part) ? "reads"
           : hd_part_reads(part) ? "updates"
                                 : "writes";
}

// "rank 1's recv, which writes %ag[3] (stream 0, step 4 of run 2)"
static void name_access(const scan *s, int64_t step, const hd_part *part,
                        char out[WORDS])
{
    char what[160], where[40];

    name_part(s, part, what);
    name_stream(node_of(s, step)->stream, where);
    snprintf(out, WORDS, "rank %d's %s, which %s %s (%s, step %lld of run %d)",
             s->rank, word_of(s, step), verb_of(part), what, where,
             (long long)(step < s->steps ? step : step - s->steps),
             step < s->steps ? 1 : 2);
}

static hd_loc view_loc(const scan *s, int64_t step, const hd_part *part)
{
    return node_of(s, step)->op->view[part->view].loc;
}

// The part of `step` that meets the one that is being compared: what conflicts
// with it, if anything does.
static const hd_part *part_of(const scan *s, int64_t step)
{
    const hd_node *node = node_of(s, step);
    const hd_part *found = &s->graph->part[node->part];

    for (int64_t i = node->part; i < node[1].part; i++) {
        const hd_part *part = &s->graph->part[i];

        if (!hd_parts_overlap(s->graph->frame, part, s->part))
            continue;
        found = part;
        if (hd_part_writes(part) || hd_part_writes(s->part))
            break;
    }
    return found;
}

// What is to be said of the two is known when the rank has been visited.
static void report_pair(scan *s, access x, access y)
{
    bool group = node_of(s, x.step)->head == node_of(s, y.step)->head &&
                 (x.step < s->steps) == (y.step < s->steps);
    hd_code code = group ? HD_E0802 : HD_E0801;

    if (is_reported(s, code, node_of(s, y.step)->op, node_of(s, x.step)->op) ||
        !report(s, ORDER, code, node_of(s, x.step)->op, node_of(s, y.step)->op))
        return;
    s->pair[s->npairs++] = (pair){code, x, y};
}

static void report_race(scan *s, int64_t step)
{
    access mine = {s->step, s->part}, other = {step, part_of(s, step)};

    s->unordered = true;
    if (other.step < mine.step)
        report_pair(s, other, mine);
    else
        report_pair(s, mine, other);
}

static const hd_buffer *root_of(const scan *s, const hd_part *part)
{
    return s->graph->frame[s->graph->frame[part->buffer].root].buffer;
}

// The caller has written it before the run.
static bool is_by_caller(const scan *s, const hd_part *part)
{
    hd_role role = root_of(s, part)->role;

    return role == HD_ROLE_IN || role == HD_ROLE_INOUT;
}

static void report_unwritten(scan *s, int64_t at)
{
    const hd_part_frame *frame = &s->graph->frame[s->part->buffer];
    char words[WORDS], what[160];
    hd_text text = {0};

    if (!report(s, VALUES, HD_E0803, node_of(s, s->step)->op, NULL))
        return;
    name_part(s, s->part, what);
    hd_cells_print(&s->cells, &s->graph->frame[frame->root], at, &text);
    snprintf(words, sizeof words,
             "rank %d's %s (step %lld) reads %s, and nothing has written %s",
             s->rank, word_of(s, s->step), (long long)s->step, what,
             text.bytes != NULL ? text.bytes : what);
    hd_text_free(&text);
    say(s, HD_E0803, view_loc(s, s->step, s->part), words);
}

static void report_lifetime(scan *s, const cell *c)
{
    const hd_buffer *other = s->graph->frame[c->name].buffer;
    int64_t writer = c->write - 1;
    char words[WORDS], what[160];

    if (!report(s, VALUES, HD_E0807, node_of(s, s->step)->op,
                node_of(s, writer)->op))
        return;
    name_part(s, s->part, what);
    snprintf(words, sizeof words,
             "rank %d's %s (step %lld) reads %s after its bytes became %%%s",
             s->rank, word_of(s, s->step), (long long)s->step, what,
             other->name);
    say(s, HD_E0807, view_loc(s, s->step, s->part), words);
    hd_note(s->diag, node_of(s, writer)->op->loc,
            "this %s (step %lld) writes %%%s over it", word_of(s, writer),
            (long long)writer, other->name);
}

// A step that records the event of the deferred send again, -1 for none.
static int64_t find_again(scan *s, int64_t send, int64_t end)
{
    int64_t again = -1;
    hd_status status =
        hd_repair_find_again(s->graph, s->rank, send, end, s->diag, &again);

    s->status = s->status == HD_OK ? status : s->status;
    return again;
}

static const char *event_of(const hd_node *send)
{
    int done = hd_op_key_view(send->op, HD_KEY_DONE);

    return send->op->view[done].buffer->name;
}

static void report_missing_end(scan *s, int64_t send)
{
    const hd_node *node = node_of(s, send);
    int64_t again = find_again(s, send, s->steps);

    if (again < 0)
        hd_note(s->diag, node->op->loc,
                "missing: a wait for %%%s, which it records, on the caller's "
                "stream at the end of the program",
                event_of(node));
    else
        hd_note(s->diag, node->op->loc,
                "missing: an event of its own, since step %lld records %%%s "
                "again, and a wait for that on the caller's stream at the end "
                "of the program",
                (long long)again, event_of(node));
}

static void report_unjoined(scan *s, int64_t step)
{
    const hd_node *node = node_of(s, step);
    char words[WORDS], where[40];

    if (!report(s, ORDER, HD_E0804, node->op, NULL))
        return;
    name_stream(node->stream, where);
    snprintf(words, sizeof words,
             "the run may end on rank %d while this %s (%s, step %lld) is "
             "still at work",
             s->rank, word_of(s, step), where, (long long)step);
    say(s, HD_E0804, node->op->loc, words);
    if (node->async)
        report_missing_end(s, step);
    else
        hd_note(s->diag, node->op->loc,
                "missing: a join at the end of the program, or a wait there "
                "for an event that %s records after it",
                where);
}

static void report_early(scan *s)
{
    char words[2 * WORDS], mine[WORDS];

    if (!report(s, ORDER, HD_E0806, node_of(s, s->step)->op, NULL))
        return;
    name_access(s, s->step, s->part, mine);
    snprintf(words, sizeof words,
             "%s may begin before the caller has come to that run", mine);
    say(s, HD_E0806, view_loc(s, s->step, s->part), words);
    hd_note(s->diag, node_of(s, s->step)->op->loc,
            "missing: a fork at the top of the program, or before it a wait "
            "for an event that the caller's stream records in the same run");
}

// --------------------------------------------------------------- ordering

static bool has_passed(const scan *s, int64_t step)
{
    return s->clock[node_of(s, step)->stream] >=
           hd_order_count(s->graph, s->rank, step);
}

// Whether the ranks that have come to where the clock is, and issue `step`,
// issue the wait.
static bool is_issued(const scan *s, int64_t wait, int64_t step)
{
    return hd_graph_within(s->graph, node_of(s, step), node_of(s, wait)) ||
           (s->step != HD_RUN_END &&
            hd_graph_within(s->graph, node_of(s, s->step), node_of(s, wait)));
}

// Some wait for the `done` event of a send has ended.
static bool is_waited_for(const scan *s, int64_t step, int32_t number)
{
    int64_t run = step < s->steps ? 0 : s->steps;

    for (int32_t i = s->waits[number]; i != 0; i = s->wait[i].next)
        if (has_passed(s, s->wait[i].step + run) &&
            is_issued(s, s->wait[i].step, step))
            return true;
    return false;
}

// The clock has counted the end of the step.
static bool is_counted(const scan *s, int64_t step)
{
    int32_t number = s->loose[step < s->steps ? step : step - s->steps];

    if (number >= 0 && s->global && hd_past_is_received(&s->past, step))
        return true;
    if (node_of(s, step)->async)
        return is_waited_for(s, step, number);
    return has_passed(s, step);
}

// Asks peers what they have seen of the steps that are as deep as this one.
static void learn(scan *s, int64_t step)
{
    hd_status status = hd_past_learn(&s->past, step);

    s->status = s->status == HD_OK ? status : s->status;
}

// The step had ended when the one that is being compared started.
static bool has_ended(scan *s, int64_t step)
{
    if (is_counted(s, step))
        return true;
    if (!s->global)
        return false;
    learn(s, step);
    return is_counted(s, step);
}

static void compare(scan *s, int32_t step_and_one)
{
    int64_t step = step_and_one - 1;

    if (step >= 0 && step != s->step && !has_ended(s, step))
        report_race(s, step);
}

// There is nothing to compare where no rank issues both.
static void compare_other(scan *s, int32_t step_and_one)
{
    if (step_and_one > 0 &&
        hd_graph_meet(s->graph, node_of(s, step_and_one - 1),
                      node_of(s, s->step)))
        compare(s, step_and_one);
}

// ------------------------------------------------------------------ pairs

// What has ended at the end of the first run precedes whatever follows the
// caller's stream in the second, so either of these orders them.
static void report_boundary(const scan *s, int64_t second)
{
    const hd_node *y = node_of(s, second);
    char on[40];

    name_stream(y->stream, on);
    hd_note(s->diag, y->op->loc,
            "this is across the boundary of two runs; missing: a fork at the "
            "top of the program, or on %s, before this %s, a wait for an "
            "event that the caller's stream records in the same run",
            on, word_of(s, second));
}

static void report_wait(scan *s, int64_t first, int64_t second)
{
    const hd_node *x = node_of(s, first), *y = node_of(s, second);
    int64_t again = x->async ? find_again(s, first, second % s->steps) : -1;
    char from[40], to[40];

    name_stream(x->stream, from);
    name_stream(y->stream, to);
    if (again >= 0)
        hd_note(s->diag, y->op->loc,
                "missing: an event of its own for that send, since step %lld "
                "records %%%s again, and on %s, before this %s, a wait for it",
                (long long)again, event_of(x), to, word_of(s, second));
    else if (x->async)
        hd_note(s->diag, y->op->loc,
                "missing: on %s, before this %s, a wait for %%%s, which that "
                "send records",
                to, word_of(s, second), event_of(x));
    else
        hd_note(s->diag, y->op->loc,
                "missing: on %s, before this %s, a wait for an event that %s "
                "records after that %s",
                to, word_of(s, second), from, word_of(s, first));
}

static void report_missing(scan *s, int64_t first, int64_t second)
{
    bool works = false;
    hd_status status = hd_repair_try_wait(s->graph, s->serial, s->rank, first,
                                          second, s->diag, &works);

    s->status = s->status == HD_OK ? status : s->status;
    if (works)
        report_wait(s, first, second);
    else
        hd_note(s->diag, node_of(s, second)->op->loc,
                "no event can order them as they stand: before this %s, a "
                "wait for that %s would never end; give each bytes of its own",
                word_of(s, second), word_of(s, first));
}

static bool is_boundary(const scan *s, const pair *p)
{
    return p->x.step < s->steps && p->y.step >= s->steps;
}

static void put_pair(scan *s, const pair *p)
{
    bool group = p->code == HD_E0802;
    char words[2 * WORDS], mine[WORDS], theirs[WORDS];

    name_access(s, p->y.step, p->y.part, mine);
    name_access(s, p->x.step, p->x.part, theirs);
    snprintf(words, sizeof words,
             group ? "members of a group conflict: %s" : "race: %s", mine);
    say(s, p->code, view_loc(s, p->y.step, p->y.part), words);
    hd_note(s->diag, view_loc(s, p->x.step, p->x.part), "%s is %s", theirs,
            group ? "in the same group, so neither waits for the other"
                  : "not ordered with it");
    if (!group && is_boundary(s, p))
        report_boundary(s, p->y.step);
    else if (!group)
        report_missing(s, p->x.step, p->y.step);
}

// What is still at work at the end of its run is reported as that.
static void put_pairs(scan *s)
{
    s->clock = s->global ? hd_past_go(&s->past, HD_RUN_END) : s->end;
    for (int i = 0; i < s->npairs; i++)
        if (!is_boundary(s, &s->pair[i]) || has_ended(s, s->pair[i].x.step))
            put_pair(s, &s->pair[i]);
}

// --------------------------------------------------------------- accesses

static bool make_room(scan *s, void **array, int64_t *room, int64_t n,
                      size_t size)
{
    hd_status status;

    if (s->status == HD_ERROR_NO_MEMORY)
        return false;
    status = hd_grow(array, room, n, size, s->diag);
    if (status != HD_OK)
        s->status = status;
    return status == HD_OK;
}

static void add_older(scan *s, older what, int32_t *first)
{
    int32_t free = s->dropped;

    if (free != 0)
        s->dropped = s->older[free].next;
    else if (make_room(s, (void **)&s->older, &s->older_room, s->nolder + 2,
                       sizeof *s->older))
        free = (int32_t)++s->nolder;
    else
        return;
    s->older[free] = what;
    *first = free;
}

static void drop_older(scan *s, cell *c)
{
    int32_t i = c->older;

    if (i == 0)
        return;
    while (s->older[i].next != 0)
        i = s->older[i].next;
    s->older[i].next = s->dropped;
    s->dropped = c->older;
    c->older = 0;
}

static void add_loose_read(scan *s, cell *c)
{
    if ((c->loose != 0 && s->link[c->loose].step == s->step + 1) ||
        !make_room(s, (void **)&s->link, &s->links_room, s->nlinks + 2,
                   sizeof *s->link))
        return;
    s->link[++s->nlinks] = (link){(int32_t)s->step + 1, c->loose};
    c->loose = (int32_t)s->nlinks;
}

static bool stands_for(const scan *s, int32_t a, int32_t b)
{
    const hd_node *x = node_of(s, a - 1), *y = node_of(s, b - 1);

    return a == b || (x->stream == y->stream && !x->async && !y->async &&
                      (a > s->steps) == (b > s->steps));
}

// Of a run of a stream the last access stands for those before it: where it has
// ended they have. A send that its stream does not wait for stands for itself.
static void keep_older(scan *s, cell *c, int32_t step, bool writes, hd_arc arc)
{
    int n = 0;

    if (step == 0)
        return;
    for (int32_t i = c->older; i != 0; i = s->older[i].next, n++) {
        older *o = &s->older[i];

        if (o->writes != writes || !stands_for(s, o->step, step))
            continue;
        o->step = o->step < step ? step : o->step;
        o->arc = hd_arc_cover(o->arc, arc, s->graph->line);
        return;
    }
    if (n < MOST_OLDER)
        add_older(s, (older){step, c->older, writes, arc}, &c->older);
    else
        s->found = true;
}

static void compare_older(scan *s, const cell *c, bool reads)
{
    hd_arc arc;

    if (c->older == 0)
        return;
    arc = hd_graph_arc(s->graph, node_of(s, s->step));
    for (int32_t i = c->older; i != 0; i = s->older[i].next)
        if ((s->older[i].writes || reads) &&
            hd_arc_meets(s->older[i].arc, arc, s->graph->line))
            compare(s, s->older[i].step);
}

// What a write of some ranks leaves is the last access of the others.
static void keep_all_older(scan *s, cell *c, const int32_t *read)
{
    const hd_node *by = node_of(s, s->step);
    const hd_arc *reader = &s->reader[read - s->read];

    if (hd_graph_arc(s->graph, by).n == s->graph->line) {
        drop_older(s, c);
        return;
    }
    if (c->write != 0)
        keep_older(s, c, c->write, true,
                   hd_graph_arc(s->graph, node_of(s, c->write - 1)));
    for (int k = 0; k < s->graph->nstreams; k++)
        keep_older(s, c, read[k], false, reader[k]);
    for (int32_t i = c->loose; i != 0; i = s->link[i].next)
        keep_older(s, c, s->link[i].step, false,
                   hd_graph_arc(s->graph, node_of(s, s->link[i].step - 1)));
}

// Of more than an arc the larger part is remembered.
static void add_writers(const scan *s, hd_arc arc, hd_arc *to)
{
    hd_arc all;

    if (hd_arc_join(*to, arc, s->graph->line, &all))
        *to = all;
    else if (arc.n > to->n)
        *to = arc;
}

static void note_written(const scan *s, const cell *c, writers *to)
{
    hd_arc arc = hd_graph_arc(s->graph, node_of(s, s->step));

    if (c->name != s->part->buffer)
        to->last.n = 0;
    add_writers(s, arc, &to->all);
    add_writers(s, arc, &to->last);
}

static bool is_within(const scan *s, hd_arc arc)
{
    return hd_arc_within(hd_graph_arc(s->graph, node_of(s, s->step)), arc,
                         s->graph->line);
}

static bool is_written(const scan *s, const cell *c)
{
    return s->written != NULL ? is_within(s, s->written[c - s->cell].all)
                              : c->write != 0;
}

// All that read it have written it last by the name that they read it by.
static bool is_named(const scan *s, const cell *c)
{
    return c->name == s->part->buffer &&
           (s->written == NULL || is_within(s, s->written[c - s->cell].last));
}

// The value that a cell has by the name of a buffer.
static uint64_t value_of(const scan *s, int64_t at, int buffer)
{
    return (uint64_t)at * (uint64_t)s->graph->module->nbuffers +
           (uint64_t)buffer;
}

static void check_value(scan *s, const cell *c, int64_t at)
{
    if (s->step >= s->steps)
        return;
    if (!is_written(s, c) && !is_by_caller(s, s->part))
        report_unwritten(s, at);
    else if (c->write != 0 && !is_named(s, c) &&
             hd_set_has(&s->over, value_of(s, at, s->part->buffer)))
        report_lifetime(s, c);
}

// What the cell held ends, if it had another name than it is now written by.
// What the caller wrote goes by the name of the root.
static void end_value(scan *s, const cell *c, int64_t at)
{
    int name = c->write != 0              ? c->name
               : is_by_caller(s, s->part) ? root_of(s, s->part)->id
                                          : s->part->buffer;
    hd_status status;

    if (name == s->part->buffer || s->step >= s->steps)
        return;
    status = hd_set_add(&s->over, value_of(s, at, name), s->diag);
    s->status = s->status == HD_OK ? status : s->status;
}

static void add_reader(scan *s, int64_t at)
{
    hd_arc arc = hd_graph_arc(s->graph, node_of(s, s->step));

    if (s->reader != NULL)
        s->reader[at] = s->read[at] != 0
                            ? hd_arc_cover(s->reader[at], arc, s->graph->line)
                            : arc;
    s->read[at] = (int32_t)s->step + 1;
}

static void compare_reader(scan *s, int64_t at)
{
    if (s->reader == NULL ||
        hd_arc_meets(s->reader[at], hd_graph_arc(s->graph, node_of(s, s->step)),
                     s->graph->line))
        compare(s, s->read[at]);
}

// What the step has written since keeps nothing of that.
static void note_read(scan *s, int64_t low, int64_t high)
{
    const hd_node *node = node_of(s, s->step);
    bool loose =
        s->loose[s->step < s->steps ? s->step : s->step - s->steps] >= 0;

    for (int64_t i = low; i < high; i++) {
        cell *c = &s->cell[i];

        if (c->write == s->step + 1)
            continue;
        if (loose)
            add_loose_read(s, c);
        else
            add_reader(s, i * s->graph->nstreams + node->stream);
    }
}

static void note_cells(void *context, int64_t low, int64_t high)
{
    note_read(context, low, high);
}

static void read_cells(void *context, int64_t low, int64_t high)
{
    scan *s = context;

    for (int64_t i = low; i < high; i++) {
        cell *c = &s->cell[i];

        compare_other(s, c->write);
        compare_older(s, c, false);
        check_value(s, c, i);
    }
    if (!s->rewrites)
        note_read(s, low, high);
}

static void write_cells(void *context, int64_t low, int64_t high)
{
    scan *s = context;
    int n = s->graph->nstreams;

    for (int64_t i = low; i < high; i++) {
        cell *c = &s->cell[i];
        int32_t *read = &s->read[i * n];

        compare_other(s, c->write);
        compare_older(s, c, true);
        for (int k = 0; k < n; k++)
            compare_reader(s, i * n + k);
        for (int32_t k = c->loose; k != 0; k = s->link[k].next)
            compare_other(s, s->link[k].step);
        end_value(s, c, i);
        if (s->written != NULL) {
            keep_all_older(s, c, read);
            note_written(s, c, &s->written[i]);
        }
        memset(read, 0, sizeof *read * (size_t)n);
        *c = (cell){.write = (int32_t)s->step + 1,
                    .name = s->part->buffer,
                    .older = c->older};
    }
}

static void visit_parts(scan *s, const hd_node *node, bool writes,
                        hd_run_fn *fn)
{
    for (int64_t i = node->part; i < node[1].part; i++) {
        s->part = &s->graph->part[i];
        if (writes ? hd_part_writes(s->part) : hd_part_reads(s->part))
            hd_cells_each(&s->cells, s->part, fn, s);
    }
}

static uint64_t bit_of_root(const scan *s, const hd_part *part)
{
    return (uint64_t)1 << s->graph->frame[part->buffer].root % 64;
}

// Whether the step writes to a buffer that it reads.
static bool rewrites(const scan *s, const hd_node *node)
{
    uint64_t all = 0; // some bits of the roots that it reads

    for (int64_t i = node->part; i < node[1].part; i++)
        if (hd_part_reads(&s->graph->part[i]))
            all |= bit_of_root(s, &s->graph->part[i]);
    for (int64_t i = node->part; i < node[1].part; i++)
        if (hd_part_writes(&s->graph->part[i]) &&
            (all & bit_of_root(s, &s->graph->part[i])) != 0)
            return true;
    return false;
}

// What it reads is noted behind what it writes: the reads of others in its
// group are to be compared with that, too.
static void visit_step(scan *s, const hd_node *node)
{
    s->rewrites = rewrites(s, node);
    visit_parts(s, node, false, read_cells);
    visit_parts(s, node, true, write_cells);
    if (s->rewrites)
        visit_parts(s, node, false, note_cells);
}

// In the second run, so that there is something on the caller's stream that
// must have ended: what the caller does between the runs.
static void check_begin(scan *s, const hd_node *node)
{
    int64_t turn = hd_order_turn(s->graph, s->rank);

    if (s->step < s->steps || s->clock[0] >= turn)
        return;
    if (s->global)
        learn(s, HD_RUN_END);
    if (s->clock[0] >= turn)
        return;
    for (int64_t i = node->part; i < node[1].part; i++) {
        s->part = &s->graph->part[i];
        if (root_of(s, s->part)->role != HD_ROLE_TEMP) {
            report_early(s);
            return;
        }
    }
}

// The last step of the stream that is at work when the run ends. What touches
// no bytes is no work, and a deferred send is looked for apart.
static void check_stream(scan *s, int stream)
{
    for (int64_t i = hd_graph_length(s->graph, s->rank, stream); i > 0; i--) {
        int64_t step = hd_graph_at(s->graph, s->rank, stream, i - 1);
        const hd_node *node = node_of(s, step);

        if (node->part == node[1].part || node->async)
            continue;
        if (!has_ended(s, step)) {
            report_unjoined(s, step);
            return;
        }
        if (s->loose[step] < 0)
            return;
    }
}

static void check_end(scan *s)
{
    const hd_node *node = node_of(s, 0);

    for (int stream = 1; stream < s->graph->nstreams; stream++)
        check_stream(s, stream);
    for (int64_t i = 0; i < s->steps; i++)
        if (node[i].async && !has_ended(s, i))
            report_unjoined(s, i);
}

static void visit(void *context, int64_t step, const int32_t *clock)
{
    scan *s = context;
    const hd_node *node;

    s->step = step;
    s->clock = clock;
    if (step == HD_RUN_END) {
        memcpy(s->end, clock, sizeof *s->end * (size_t)s->graph->nstreams);
        if (s->steps > 0)
            check_end(s);
        return;
    }
    node = node_of(s, step);
    if (node->part == node[1].part)
        return;
    if (node->stream > 0)
        check_begin(s, node);
    visit_step(s, node);
}

// ---------------------------------------------------------------- outputs

static void report_output(scan *s, const hd_buffer *buffer, const char *words)
{
    if (is_reported(s, HD_E0707, (const hd_op *)buffer, NULL))
        return;
    s->found = true;
    if (s->phase == LOOK)
        return;
    s->reported[s->nreported++] =
        (reported){HD_E0707, (const hd_op *)buffer, NULL};
    say(s, HD_E0707, buffer->loc, words);
}

static bool is_room(const scan *s, const hd_buffer *buffer, int64_t at,
                    int64_t rank)
{
    return hd_cells_is_room(&s->cells, &s->graph->frame[buffer->id], at, rank);
}

// Whether some rank has it and has not written it.
static bool is_hole(const scan *s, const hd_buffer *buffer, int64_t at)
{
    const hd_graph *g = s->graph;
    int rank = g->number[s->rank];

    if (s->written == NULL)
        return s->cell[at].write == 0 && !is_room(s, buffer, at, rank);
    for (int64_t i = s->written[at].all.n; i < g->line; i++) {
        int64_t coord = (s->written[at].all.first + i) % g->line;

        if (!is_room(s, buffer, at,
                     hd_mesh_peer(g->module, rank, g->axis, coord)))
            return true;
    }
    return false;
}

static void report_hole(scan *s, const hd_buffer *buffer, int64_t at)
{
    hd_text text = {0};
    char words[WORDS];

    hd_cells_print(&s->cells, &s->graph->frame[buffer->id], at, &text);
    snprintf(words, sizeof words,
             "output %%%s is not written whole on rank %d: nothing writes %s",
             buffer->name, s->rank, text.bytes != NULL ? text.bytes : "it all");
    hd_text_free(&text);
    report_output(s, buffer, words);
}

// Whoever waits for an event that this run never records goes on at once, or
// for ever.
static void check_recorded(scan *s, const hd_buffer *event)
{
    char words[WORDS];

    for (int64_t i = 0; i < s->steps; i++) {
        const hd_op *op = node_of(s, i)->op;

        if (hd_graph_arc(s->graph, node_of(s, i)).n < s->graph->line)
            continue; // not by all
        for (int k = 0; k < op->nviews; k++)
            if (op->view[k].buffer == event &&
                hd_op_access(op, k) == HD_ACCESS_RECORD)
                return;
    }
    snprintf(words, sizeof words, "output %%%s is not recorded on rank %d",
             event->name, s->rank);
    report_output(s, event, words);
}

static void check_outputs(scan *s)
{
    const hd_cells *cells = &s->cells;

    for (const hd_buffer *b = s->graph->module->buffers; b != NULL;
         b = b->next) {
        if (b->role != HD_ROLE_OUT || b->of != NULL || s->phase == ORDER)
            continue;
        if (b->type.dtype == HD_DTYPE_EVENT)
            check_recorded(s, b);
        for (int64_t i = 0; i < cells->count[b->id]; i++)
            if (is_hole(s, b, cells->first[b->id] + i)) {
                report_hole(s, b, cells->first[b->id] + i);
                break;
            }
    }
}

// ------------------------------------------------------------------ ranks

// Which steps wait for which deferred send.
static hd_status link_waits(scan *s)
{
    const hd_node *node = &s->graph->node[s->graph->first[s->rank]];
    int32_t n = 0;

    memset(s->waits, 0, sizeof *s->waits * (size_t)s->nloose);
    for (int32_t i = 0; i < s->steps; i++)
        for (int k = 0; node[i].kind == HD_NODE_WAIT && k < node[i].op->ninputs;
             k++) {
            int32_t send = hd_graph_records(s->graph, &node[i])[k].step;
            int32_t *first;

            if (send < 0 || !node[send].async)
                continue;
            first = &s->waits[s->loose[send]];
            HD_TRY(hd_grow((void **)&s->wait, &s->waits_room, n + 2,
                           sizeof *s->wait, s->diag));
            s->wait[++n] = (link){i, *first};
            *first = n;
        }
    return HD_OK;
}

static void begin_phase(scan *s, phase phase, bool global)
{
    s->phase = phase;
    s->global = global;
    s->found = s->unordered = false;
    s->nlinks = s->nolder = s->npairs = 0;
    s->dropped = 0;
    hd_set_clear(&s->over);
    memset(s->cell, 0, sizeof *s->cell * (size_t)s->cells.ncells);
    memset(s->read, 0,
           sizeof *s->read * (size_t)s->cells.ncells *
               (size_t)s->graph->nstreams);
    if (s->written != NULL)
        memset(s->written, 0, sizeof *s->written * (size_t)s->cells.ncells);
}

// All ranks are executed once, for the first rank whose peers are asked.
static hd_status visit_all(scan *s, const hd_watch *watch)
{
    if (s->past.graph == NULL)
        HD_TRY(hd_past_create(s->graph, &s->visits, s->diag, &s->past));
    return hd_past_each(&s->past, watch);
}

// Visits the rank in one phase. Clocks that would be too many are done without:
// then what peers order may be reported, too.
static hd_status visit_rank(scan *s, phase phase, bool global)
{
    hd_watch watch = {s->rank, s->nloose, s->loose, visit, s};
    hd_status status = HD_ERROR_UNSUPPORTED;

    begin_phase(s, phase, global);
    if (global)
        status = visit_all(s, &watch);
    if (status == HD_ERROR_UNSUPPORTED) {
        begin_phase(s, phase, false);
        status = hd_order_each(s->graph, 2, &watch, s->diag);
    }
    HD_TRY(status);
    put_pairs(s);
    check_outputs(s);
    return s->status == HD_ERROR_NO_MEMORY ? HD_ERROR_NO_MEMORY : HD_OK;
}

static hd_status look_at_rank(scan *s)
{
    s->steps = hd_graph_steps(s->graph, s->rank);
    s->nloose = hd_order_number_loose(s->graph, s->rank, s->loose);
    HD_TRY(link_waits(s));
    return visit_rank(s, LOOK, false);
}

static hd_status scan_rank(scan *s)
{
    HD_TRY(look_at_rank(s));
    if (!s->found)
        return HD_OK;
    HD_TRY(visit_rank(s, ORDER, true));
    return s->unordered ? HD_OK : visit_rank(s, VALUES, true);
}

static hd_status allocate(scan *s)
{
    int64_t most = 0, cells = s->cells.ncells;

    for (int rank = 0; rank < s->graph->nranks; rank++)
        if (most < hd_graph_steps(s->graph, rank))
            most = hd_graph_steps(s->graph, rank);
    HD_TRY(hd_clear_array(cells, sizeof *s->cell, s->diag, (void **)&s->cell));
    if (s->graph->arc != NULL) {
        HD_TRY(hd_clear_array(cells, sizeof *s->written, s->diag,
                              (void **)&s->written));
        HD_TRY(hd_clear_array(cells * s->graph->nstreams, sizeof *s->reader,
                              s->diag, (void **)&s->reader));
    }
    HD_TRY(hd_clear_array(cells * s->graph->nstreams, sizeof *s->read, s->diag,
                          (void **)&s->read));
    HD_TRY(hd_clear_array(most, sizeof *s->loose, s->diag, (void **)&s->loose));
    HD_TRY(hd_clear_array(most, sizeof *s->waits, s->diag, (void **)&s->waits));
    return hd_clear_array(s->graph->nstreams, sizeof *s->end, s->diag,
                          (void **)&s->end);
}

static void free_scan(scan *s)
{
    hd_cells_free(&s->cells);
    free(s->cell);
    free(s->read);
    free(s->written);
    free(s->reader);
    free(s->older);
    free(s->link);
    free(s->loose);
    free(s->wait);
    free(s->waits);
    free(s->end);
    hd_past_free(&s->past);
    hd_set_free(&s->over);
}

hd_status hd_race_check(const hd_graph *graph, unsigned serial, hd_diag *diag,
                        int64_t *visits)
{
    scan s = {.graph = graph, .serial = serial, .diag = diag};
    hd_status status = hd_cells_create(graph, diag, &s.cells);

    if (status == HD_OK)
        status = allocate(&s);
    for (; status == HD_OK && s.rank < graph->nranks; s.rank++)
        status = scan_rank(&s);
    if (visits != NULL)
        *visits = s.visits;
    free_scan(&s);
    return status == HD_OK ? s.status : status;
}

hd_status hd_race_look(const hd_graph *graph, hd_diag *diag, bool *found)
{
    scan s = {.graph = graph, .diag = diag};
    hd_status status = hd_cells_create(graph, diag, &s.cells);

    if (status == HD_OK)
        status = allocate(&s);
    for (; status == HD_OK && !s.found && s.rank < graph->nranks; s.rank++)
        status = look_at_rank(&s);
    *found = s.found;
    free_scan(&s);
    return status;
}
