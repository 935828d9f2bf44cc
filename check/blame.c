// From a wrong element back, step by step, to what it was made of: a step that
// moves it, to where it was taken from; a step that computes, to the operand
// that differs from that of the tensor's operation; a sum, to the term that is
// too many. Each is a link of a chain, a reading with the value that should
// have been there. To blame is the link nearest to the output that had the
// right value at hand elsewhere; else the last one.
#include "check/blame.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "check/sums.h"
#include "ir/causal.h"

enum {
    MOST_LINKS = 512,
    MOST_EXCHANGED = 64,  // terms that are tried for each other
    MOST_LOOKS = 1 << 24, // places where values are looked for elsewhere
    CALLER = -1,          // in place of a step: the caller reads the output
};

typedef struct trail {
    hd_blame *blame;
    const hd_evaluation *e;
    const hd_places *places;
    hd_diag *diag;
    const hd_buffer *tensor; // the output that is wrong
    hd_reading link[MOST_LINKS];
    int nlinks;
    hd_sums sums; // of the sum at hand
} trail;

// ------------------------------------------------------------------ choices

// Where else the reader's rank has the wanted value at that time, in the bytes
// of the same buffer if `near`; -1 if nowhere, or if too many places have been
// looked at already.
static int64_t find_elsewhere(const trail *t, const hd_reading *l, bool near)
{
    const hd_evaluation *e = t->e;
    const hd_buffer *root = hd_places_root(t->places, l->at);
    int64_t first = l->rank * e->host.share, n = e->host.share;

    if (near) {
        first += e->host.at[root->id];
        n = e->host.sieve[root->id].elements;
    }
    if (n > t->blame->looks)
        return -1;
    t->blame->looks -= n;
    for (int64_t at = first; at < first + n; at++)
        if (hd_history_value(e, at, l->event) == l->want)
            return at;
    return -1;
}

// A rank on the transfer's axis that has the wanted value in the same place; -1
// if there is none.
static int find_peer(const hd_evaluation *e, const hd_reading *l)
{
    const hd_module *module = e->graph->module;
    const hd_op *op = hd_graph_node(e->graph, l->rank, l->step)->op;

    if (!hd_op_is(op, HD_UNIT_TRANSFER))
        return -1;
    for (int64_t i = 0; i < module->axis[op->axis].size; i++) {
        int peer = (int)hd_mesh_peer(module, l->rank, op->axis, i);
        int64_t at = l->at + (peer - l->rank) * e->host.share;

        if (hd_history_value(e, at, l->event) == l->want)
            return peer;
    }
    return -1;
}

// -------------------------------------------------------------------- words

static bool is_reported(hd_blame *blame, const hd_op *op)
{
    int most = (int)(sizeof blame->reported / sizeof *blame->reported);

    for (int i = 0; i < blame->nreported; i++)
        if (blame->reported[i] == op)
            return true;
    if (blame->nreported < most)
        blame->reported[blame->nreported++] = op;
    return false;
}

static const char *text_of(const hd_text *text)
{
    return text->bytes != NULL ? text->bytes : "";
}

static const hd_op *op_of(const trail *t, const hd_reading *l)
{
    return hd_graph_node(t->e->graph, l->rank, l->step)->op;
}

static hd_loc view_loc(const trail *t, const hd_reading *l)
{
    return op_of(t, l)->view[l->view].loc;
}

static const hd_part *part_of(const hd_evaluation *e, const hd_reading *l)
{
    const hd_node *node = hd_graph_node(e->graph, l->rank, l->step);

    for (int64_t i = node->part; i < node[1].part; i++)
        if (e->graph->part[i].view == l->view)
            return &e->graph->part[i];
    return &e->graph->part[node->part];
}

static void print_view(const hd_evaluation *e, const hd_reading *l,
                       hd_text *text)
{
    const hd_part *part = part_of(e, l);

    hd_part_print(&e->graph->frame[part->buffer], part, text);
}

// Where the tensor program makes the value.
static void note_tensor(const trail *t, uint64_t want)
{
    int64_t at = hd_places_find(t->places, want);
    const hd_op *op;
    const hd_source *outer;
    hd_text name = {0};

    if (at < 0)
        return;
    op = hd_places_maker(t->places, at);
    hd_places_print_tensor(t->places, at, &name);
    outer = hd_diag_source(t->diag, &t->e->tensor->source);
    hd_note(
        t->diag, op != NULL ? op->loc : hd_places_tensor(t->places, at)->loc,
        op != NULL ? "%s is made here" : "%s is declared here", text_of(&name));
    hd_diag_source(t->diag, outer);
    hd_text_free(&name);
}

// The step writes, or takes, what makes the output wrong. `words` say what.
static hd_status report(trail *t, const hd_reading *l, hd_loc loc,
                        const char *words)
{
    const hd_op *op = op_of(t, l);
    hd_text output = {0};
    hd_status status;

    hd_places_print(t->places, t->link[0].at, &output); // it shows there
    status =
        hd_error(t->diag, HD_E0901, loc,
                 "%s on rank %d is wrong: rank %d's %s (step %lld) %s",
                 text_of(&output), t->link[0].rank, l->rank,
                 hd_op_info_get(op->code)->text, (long long)l->step, words);
    hd_text_free(&output);
    note_tensor(t, l->want);
    return status;
}

// "takes %ag[2], which holds %a of rank 2; expected %a of rank 3"
static hd_status report_choice(trail *t, const hd_reading *l, int64_t elsewhere)
{
    hd_text words = {0}, hint = {0};
    int peer = elsewhere < 0 ? find_peer(t->e, l) : -1;
    hd_status status;

    if (is_reported(t->blame, op_of(t, l)))
        return HD_ERROR_INVALID;
    hd_text_puts(&words, "takes ");
    print_view(t->e, l, &words);
    hd_text_puts(&words, ", which holds ");
    hd_places_print_value(t->places, hd_history_value(t->e, l->at, l->event),
                          &words);
    hd_text_puts(&words, "; expected ");
    hd_places_print_value(t->places, l->want, &words);
    status = report(t, l, view_loc(t, l), text_of(&words));
    if (elsewhere >= 0)
        hd_places_print(t->places, elsewhere, &hint);
    else if (peer >= 0)
        hd_text_printf(&hint, "rank %d", peer);
    if (hint.bytes != NULL)
        hd_note(t->diag, view_loc(t, l), "%s holds it at that time",
                hint.bytes);
    hd_text_free(&words);
    hd_text_free(&hint);
    return status;
}

// The step has the right operands, or none that could be right.
static hd_status report_op(trail *t, const hd_reading *l, const char *words)
{
    hd_text text = {0};
    hd_status status;

    if (is_reported(t->blame, op_of(t, l)))
        return HD_ERROR_INVALID;
    hd_text_printf(&text, "%s; expected ", words);
    hd_places_print_value(t->places, l->want, &text);
    status = report(t, l, op_of(t, l)->loc, text_of(&text));
    hd_text_free(&text);
    return status;
}

static hd_status report_term(trail *t, const hd_term *extra)
{
    hd_text text = {0};
    hd_status status;
    hd_reading l = extra->from;

    if (is_reported(t->blame, op_of(t, &l)))
        return HD_ERROR_INVALID;
    hd_text_puts(&text, "adds ");
    hd_places_print_value(t->places, extra->value, &text);
    hd_text_puts(&text, " once more than the tensor program");
    l.want = t->link[t->nlinks - 1].want;
    status = report(t, &l, l.at >= 0 ? view_loc(t, &l) : op_of(t, &l)->loc,
                    text_of(&text));
    hd_text_free(&text);
    return status;
}

// The wanted value stands in the same output where another one belongs: who put
// it there. NULL if nobody did.
static const hd_change *find_misplaced(const trail *t)
{
    const hd_evaluation *e = t->e;
    const hd_buffer *mine = e->argument[t->tensor->id];
    int rank = t->link[0].rank;
    int64_t first = rank * e->host.share + e->host.at[mine->id];
    uint64_t want = t->link[0].want;

    for (int64_t i = 0; i < e->host.sieve[mine->id].elements; i++) {
        int64_t whole = hd_evaluation_whole(e, t->tensor, rank, i);

        if (whole >= 0 && e->local.value[first + i] == want &&
            e->dense.value[whole] != want)
            return hd_history_last(e, first + i, INT64_MAX);
    }
    return NULL;
}

static hd_status report_misplaced(trail *t, const hd_change *c)
{
    hd_reading l = hd_history_write(t->e, c);
    hd_text words = {0};
    hd_status status;

    if (is_reported(t->blame, op_of(t, &l)))
        return HD_ERROR_INVALID;
    l.want = t->link[0].want;
    hd_text_puts(&words, "writes that to ");
    hd_places_print(t->places, c->at, &words);
    status = report(t, &l, view_loc(t, &l), text_of(&words));
    hd_text_free(&words);
    return status;
}

// No step writes the output there: it holds what the caller brought.
static hd_status report_unwritten(trail *t)
{
    const hd_reading *output = &t->link[0];
    hd_text place = {0}, value = {0};
    hd_status status;

    hd_places_print(t->places, output->at, &place);
    hd_places_print_value(t->places, output->want, &value);
    status = hd_error(t->diag, HD_E0901, t->e->argument[t->tensor->id]->loc,
                      "%s on rank %d is wrong: no step writes it; expected %s",
                      text_of(&place), output->rank, text_of(&value));
    hd_text_free(&place);
    hd_text_free(&value);
    note_tensor(t, output->want);
    return status;
}

// The chain ends here: of its links the nearest one that had a better choice in
// the same buffer; who put the value elsewhere; the nearest that had a better
// choice at all, or would have had from another peer; else number `last`, or
// the last of all where that is the caller's.
static hd_status report_chain(trail *t, int last)
{
    const hd_change *misplaced = find_misplaced(t);

    for (int near = 1; near >= 0; near--) {
        for (int i = 0; i < t->nlinks; i++) {
            const hd_reading *l = &t->link[i];
            int64_t elsewhere;

            if (l->step == CALLER ||
                hd_places_belongs(t->places, l->at, l->want))
                continue;
            elsewhere = find_elsewhere(t, l, near != 0);
            if (elsewhere >= 0)
                return report_choice(t, l, elsewhere);
        }
        if (misplaced != NULL)
            return report_misplaced(t, misplaced);
    }
    for (int i = 0; i < t->nlinks; i++)
        if (t->link[i].step != CALLER && find_peer(t->e, &t->link[i]) >= 0)
            return report_choice(t, &t->link[i], -1);
    if (t->link[last].step == CALLER)
        last = t->nlinks - 1;
    return t->link[last].step == CALLER ? report_unwritten(t)
                                        : report_choice(t, &t->link[last], -1);
}

// -------------------------------------------------------------------- steps

// The view of the tensor's op that a view of the host's stands for; -1 if it
// has none.
static int same_view(const hd_op *host, int view, const hd_op *tensor)
{
    if (view < host->noutputs + host->ninputs)
        return view < tensor->noutputs + tensor->ninputs ? view : -1;
    for (int k = 0; k < host->nkeys; k++)
        if (host->key[k].view == view)
            return hd_op_key_view(tensor, host->key[k].code);
    return -1;
}

// The statement that makes what is at `there`, if it is what the step at `made`
// does to the element `at`; NULL if it is not.
static const hd_op *find_like(const trail *t, const hd_reading *made,
                              int64_t at, int64_t there)
{
    const hd_op *op = there >= 0 ? hd_places_maker(t->places, there) : NULL;
    hd_work_item item;

    hd_layout_step(&t->e->host, made->rank, made->step, &item);
    return op != NULL && op->code == item.step.op->code &&
                   hd_compute_find(&item, at) >= 0
               ? op
               : NULL;
}

// The first operand of the step that differs from that of the statement `op`.
static bool find_operand(const trail *t, const hd_reading *made, int64_t at,
                         const hd_op *op, int64_t there, hd_reading *out)
{
    hd_work_item item, dense;
    int64_t i, j;

    hd_layout_step(&t->e->host, made->rank, made->step, &item);
    hd_layout_op(&t->e->whole, op, &dense);
    i = hd_compute_find(&item, at);
    j = hd_compute_find(&dense, there);
    for (int view = op->noutputs; view < item.step.op->nviews; view++) {
        int other = same_view(item.step.op, view, op);
        int64_t n = hd_compute_terms(&item, view);

        if (!(hd_op_access(item.step.op, view) & HD_ACCESS_READ) || other < 0 ||
            hd_compute_terms(&dense, other) != n)
            continue;
        for (int64_t k = 0; k < n; k++) {
            *out = *made;
            out->view = view;
            out->at = hd_compute_place(&item, i, view, k);
            out->want =
                t->e->dense.value[hd_compute_place(&dense, j, other, k)];
            if (hd_history_value(t->e, out->at, out->event) != out->want)
                return true;
        }
    }
    return false;
}

// The step that wrote it takes what the tensor program makes that value of.
static bool has_operands(const trail *t, const hd_change *c, uint64_t want)
{
    hd_reading made = hd_history_write(t->e, c), other;
    int64_t there = hd_places_find(t->places, want);
    const hd_op *op = find_like(t, &made, c->at, there);

    return op != NULL && !find_operand(t, &made, c->at, op, there, &other);
}

static int64_t expr_of(const hd_module *module, const hd_key *key)
{
    return hd_key_info_get(key->code)->value == HD_VALUE_EXPR
               ? hd_expr_value(module, key->expr)
               : 0;
}

static bool is_sized(const hd_module *module, const hd_key *key)
{
    return hd_key_info_get(key->code)->value == HD_VALUE_EXPR &&
           hd_expr_uses_size(module, key->expr);
}

// As they are written, where a run says what they are: 'causal m', 'causal n'.
static bool print_sized(const trail *t, const hd_op *host, const hd_op *tensor,
                        hd_key_code code, hd_text *text)
{
    const hd_module *module[] = {t->e->graph->module, t->e->tensor};
    const hd_key *key[] = {hd_op_key(host, code), hd_op_key(tensor, code)};
    hd_text said[2] = {{0}, {0}};
    bool differ;

    if (key[0] == NULL || key[1] == NULL ||
        (!is_sized(module[0], key[0]) && !is_sized(module[1], key[1])))
        return false;
    for (int i = 0; i < 2; i++)
        hd_expr_print(module[i], key[i]->expr, &said[i]);
    differ = said[0].bytes != NULL && said[1].bytes != NULL &&
             strcmp(said[0].bytes, said[1].bytes) != 0;
    if (differ && text != NULL)
        hd_text_printf(text, "has '%s %s' where the tensor program has '%s %s'",
                       hd_key_info_get(code)->text, said[0].bytes,
                       hd_key_info_get(code)->text, said[1].bytes);
    hd_text_free(&said[0]);
    hd_text_free(&said[1]);
    return differ;
}

static bool same_scalars(const hd_key *a, const hd_key *b)
{
    bool same = a->nscalars == b->nscalars;

    for (int i = 0; same && i < a->nscalars; i++)
        same = a->scalar[i].operand == b->scalar[i].operand &&
               !(a->scalar[i].number < b->scalar[i].number) &&
               !(a->scalar[i].number > b->scalar[i].number);
    return same;
}

// Both have the key or lack it, and say the same with it.
static bool same_key(const trail *t, const hd_op *host, const hd_op *tensor,
                     hd_key_code code)
{
    const hd_key *a = hd_op_key(host, code), *b = hd_op_key(tensor, code);

    if (a == NULL || b == NULL)
        return a == b;
    return a->act == b->act && !(a->number < b->number) &&
           !(a->number > b->number) && same_scalars(a, b) &&
           expr_of(t->e->graph->module, a) == expr_of(t->e->tensor, b) &&
           !print_sized(t, host, tensor, code, NULL);
}

// The operands are read along other dimensions. The host's may have fewer than
// the tensor's; then dimensions that are given by number have other ones.
static bool turns(const trail *t, const hd_reading *made, const hd_op *tensor)
{
    static const hd_key_code codes[] = {HD_KEY_TA, HD_KEY_TB, HD_KEY_DIM,
                                        HD_KEY_DIM0, HD_KEY_DIM1};
    const hd_op *host = op_of(t, made);
    hd_work_item item;
    bool same;

    if (tensor->ninputs == 0 || host->ninputs == 0) // a fill
        return false;
    hd_layout_step(&t->e->host, made->rank, made->step, &item);
    same = item.span[host->noutputs].ndims ==
           hd_view_type(&tensor->view[tensor->noutputs]).ndims;
    for (size_t i = 0; i < (same ? sizeof codes / sizeof *codes : 2); i++)
        if (!same_key(t, host, tensor, codes[i]))
            return true;
    return false;
}

static const char *making(const hd_op *op)
{
    switch (hd_op_fold(op)) {
    case HD_FOLD_MAX:
        return "takes the maximum";
    case HD_FOLD_MIN:
        return "takes the minimum";
    case HD_FOLD_NONE:
    case HD_FOLD_SUM:
        break;
    }
    return "makes it";
}

// What differs in the step, if not its operands.
static void print_difference(const trail *t, const hd_op *host,
                             const hd_op *tensor, hd_text *text)
{
    if (hd_op_family(host) == HD_FAMILY_COPY && hd_op_has_counts(host)) {
        hd_text_printf(
            text, "goes by what %%%s counts, which the tensor program does not",
            host->view[hd_op_key_view(host, HD_KEY_COUNTS)].buffer->name);
        return;
    }
    if (hd_op_family(host) == HD_FAMILY_COPY) { // else it is a move
        hd_text_printf(text,
                       "rounds %s to %s, which the tensor program does not",
                       hd_dtype_text(host->view[1].buffer->type.dtype),
                       hd_dtype_text(host->view[0].buffer->type.dtype));
        return;
    }
    if (tensor == NULL || tensor->code != host->code) {
        hd_text_printf(text, "%s where the tensor program has %s", making(host),
                       tensor == NULL ? "an input"
                                      : hd_op_info_get(tensor->code)->text);
        return;
    }
    if (hd_op_family(host) == HD_FAMILY_CALL &&
        strcmp(hd_op_callee(host), hd_op_callee(tensor)) != 0) {
        hd_text_printf(text, "is of \"%s\" where the tensor program has \"%s\"",
                       hd_op_callee(host), hd_op_callee(tensor));
        return;
    }
    if (hd_op_has_blocks(tensor, tensor->noutputs + 1)) {
        hd_text_printf(text,
                       "does not leave what its rows make of the %lld blocks "
                       "of keys, each once and as far as they see it",
                       (long long)hd_causal_blocks(tensor));
        return;
    }
    for (hd_key_code code = 0; code < HD_NKEYS; code++) {
        const char *verb = hd_op_key(host, code) == NULL     ? "lacks"
                           : hd_op_key(tensor, code) == NULL ? "should not have"
                                                             : "has another";

        if (code == HD_KEY_ACCUMULATE || code == HD_KEY_AUX ||
            same_key(t, host, tensor, code))
            continue;
        if (print_sized(t, host, tensor, code, text))
            return;
        if (hd_key_info_get(code)->value == HD_VALUE_BY) // one has it alone
            hd_text_printf(text, "%s counts of %s", verb,
                           code == HD_KEY_COUNTS_OF_KEYS ? "its keys"
                                                         : "a dimension");
        else if (code == HD_KEY_NUMBERS)
            hd_text_printf(text, "%s%s number as operand", verb,
                           hd_op_key(host, code) == NULL ||
                                   hd_op_key(tensor, code) == NULL
                               ? " a"
                               : "");
        else
            hd_text_printf(text, "%s '%s'", verb, hd_key_info_get(code)->text);
        return;
    }
    hd_text_puts(text, "makes something else");
}

static hd_status report_maker(trail *t, const hd_reading *made, const hd_op *op)
{
    hd_text words = {0};
    hd_status status;

    print_difference(t, op_of(t, made), op, &words);
    status = report_op(t, made, text_of(&words));
    hd_text_free(&words);
    return status;
}

static hd_status go_on(trail *t, hd_reading next);

// The step at `made` computes what should be `made->want`.
static hd_status judge_maker(trail *t, const hd_reading *made, int64_t at)
{
    int64_t there = hd_places_find(t->places, made->want);
    const hd_op *op = find_like(t, made, at, there);
    hd_reading next;

    if (op != NULL && !turns(t, made, op) &&
        same_key(t, op_of(t, made), op, HD_KEY_BY) &&
        same_key(t, op_of(t, made), op, HD_KEY_NUMBERS) &&
        find_operand(t, made, at, op, there, &next))
        return go_on(t, next);
    return report_maker(t, made,
                        there >= 0 ? hd_places_maker(t->places, there) : NULL);
}

// An operand of the sum itself, which the right one stands beside.
static bool find_other_operand(const trail *t, const hd_reading *made,
                               int64_t there, int64_t at, hd_reading *out)
{
    const hd_op *op = find_like(t, made, at, there);

    return op != NULL && find_operand(t, made, at, op, there, out) &&
           find_elsewhere(t, out, true) >= 0;
}

// Who made the term's value, past all that only moved it.
static const hd_change *origin_of(const trail *t, const hd_term *term)
{
    hd_reading l = term->from;
    const hd_change *c;

    do
        c = hd_history_last(t->e, l.at, l.event);
    while (c != NULL && hd_history_source(t->e, c, &l));
    return c;
}

// A term of a value that the tensor program lacks, for one that is missing:
// what made it took the same operands, or put it where that one belongs.
static bool find_misshapen(const trail *t, hd_reading *out)
{
    for (int64_t i = 0; i < t->sums.have.n && i < MOST_EXCHANGED; i++) {
        const hd_term *extra = &t->sums.have.term[i];
        bool known =
            extra->from.at < 0 || hd_places_find(t->places, extra->value) >= 0;
        const hd_change *c = known ? NULL : origin_of(t, extra);

        for (int64_t k = 0; k < t->sums.want.n && k < MOST_EXCHANGED && c;
             k++) {
            *out = extra->from;
            out->want = t->sums.want.term[k].value;
            if (t->sums.want.term[k].extra &&
                (has_operands(t, c, out->want) ||
                 hd_places_belongs(t->places, c->at, out->want)))
                return true;
        }
    }
    return false;
}

// A term too many, and one that is missing and was at hand in the same buffer.
static bool find_exchanged(const trail *t, hd_reading *out)
{
    for (int64_t i = 0; i < t->sums.have.n && i < MOST_EXCHANGED; i++) {
        *out = t->sums.have.term[i].from;
        if (out->at < 0 || !t->sums.have.term[i].extra)
            continue;
        for (int64_t k = 0; k < t->sums.want.n && k < MOST_EXCHANGED; k++) {
            out->want = t->sums.want.term[k].value;
            if (t->sums.want.term[k].extra && find_elsewhere(t, out, true) >= 0)
                return true;
        }
    }
    return false;
}

// What no sum can make, whatever its operands.
static bool is_no_sum(const hd_op *op)
{
    const hd_op_info *info = hd_op_info_get(op->code);

    return info->map != HD_MAP_NONE
               ? info->linear == HD_LINEAR_CURVED
               : hd_op_fold(op) != HD_FOLD_NONE && !hd_op_is_sum(op);
}

static hd_status judge_sum(trail *t, const hd_reading *made, const hd_change *c)
{
    int64_t there = hd_places_find(t->places, made->want);
    const hd_term *extra, *missing;
    const hd_op *op;
    hd_text words = {0};
    hd_status status;
    hd_reading next;

    if (there < 0)
        return report_op(t, made, "makes something else");
    op = hd_places_maker(t->places, there);
    if (op != NULL &&
        (is_no_sum(op) || (op->code == op_of(t, made)->code &&
                           (turns(t, made, op) ||
                            !same_key(t, op_of(t, made), op, HD_KEY_NUMBERS)))))
        return report_maker(t, made, op);
    if (find_other_operand(t, made, there, c->at, &next))
        return go_on(t, next);
    status = hd_sums_compare(&t->sums, c, there);
    if (status == HD_ERROR_UNSUPPORTED)
        return report_op(t, made, "makes something else");
    HD_TRY(status);
    extra = hd_terms_extra(&t->sums.have);
    missing = hd_terms_extra(&t->sums.want);
    if (extra != NULL && missing != NULL) {
        if (!find_misshapen(t, &next) && !find_exchanged(t, &next)) {
            next = extra->from;
            next.want = missing->value;
        }
        return next.at >= 0 ? go_on(t, next) : judge_maker(t, &next, c->at);
    }
    if (extra != NULL)
        return report_term(t, extra);
    if (missing == NULL)
        return report_op(t, made, "makes something else");
    hd_text_puts(&words, "lacks ");
    hd_places_print_value(t->places, missing->value, &words);
    status = report_op(t, made, text_of(&words));
    hd_text_free(&words);
    return status;
}

// Looks at who wrote what the link reads. Where that is a value of the tensor
// program, though another one, its maker is right and it was taken wrongly.
static hd_status go_on(trail *t, hd_reading next)
{
    int first = t->nlinks;

    while (t->nlinks < MOST_LINKS) {
        const hd_change *c = hd_history_last(t->e, next.at, next.event);
        hd_reading made;

        t->link[t->nlinks++] = next;
        if (c == NULL)
            return report_chain(t, t->nlinks - 1);
        if (hd_history_source(t->e, c, &next))
            continue;
        if (t->link[first].step != CALLER &&
            hd_places_find(t->places, c->value) >= 0 &&
            !hd_places_belongs(t->places, c->at, next.want))
            return report_chain(t, first);
        made = hd_history_write(t->e, c);
        made.want = next.want;
        return hd_op_is_sum(op_of(t, &made)) ? judge_sum(t, &made, c)
                                             : judge_maker(t, &made, c->at);
    }
    return report_chain(t, first);
}

// -------------------------------------------------------------------- whole

hd_status hd_blame_create(hd_evaluation *e, hd_blame *out)
{
    *out = (hd_blame){.e = e, .looks = MOST_LOOKS};
    hd_history_sort(e);
    return hd_places_create(e, &out->places);
}

void hd_blame_free(hd_blame *blame)
{
    hd_places_free(&blame->places);
}

hd_status hd_blame_report(hd_blame *blame, const hd_buffer *tensor, int rank,
                          int64_t i, hd_diag *diag)
{
    const hd_evaluation *e = blame->e;
    const hd_source *outer = hd_diag_source(diag, &e->graph->module->source);
    hd_reading output = {.rank = rank, .step = CALLER, .event = INT64_MAX};
    trail *t = calloc(1, sizeof *t);
    int64_t there;
    hd_status status;

    if (t == NULL) {
        hd_diag_source(diag, outer);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    }
    t->blame = blame;
    t->e = e;
    t->places = &blame->places;
    t->diag = diag;
    t->tensor = tensor;
    t->sums = (hd_sums){.e = e, .places = t->places, .diag = diag};
    output.at =
        rank * e->host.share + e->host.at[e->argument[tensor->id]->id] + i;
    there = hd_evaluation_whole(e, tensor, rank, i);
    output.want = e->dense.value[there];
    blame->places.zero = output.want == 0 ? there : -1;
    status = go_on(t, output);
    hd_sums_free(&t->sums);
    free(t);
    hd_diag_source(diag, outer);
    return status == HD_ERROR_INVALID ? HD_OK : status;
}
