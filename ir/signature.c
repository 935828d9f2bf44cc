// Each view gives an equation: it has as many dimensions as its letters have
// together. Those with one unknown are solved until there is none. Where a
// group may be left out, both ways are tried: one of them fits at most.
#include "ir/signature.h"

#include <assert.h>
#include <string.h>

// A letter of a view: which one, and what is said of it there.
enum {
    LETTER = 63,
    GROUP = 64,    // any number of dimensions
    REPEATS = 128, // which may be missing in front, or have one index
    PERHAPS = 256, // all of them, or none
    JOINED = 512,
    FIRST = 1024,   // those in front, or all
    GRAINED = 2048, // an index along several
    WIDENS = 4096,  // each may have one index
    TURNED = 8192,  // in the op's order
    OVER = 16384,   // which may lie over ranks
};

// Of each letter what is one dimension, and any number of them.
enum {
    NO_LETTER,
#define HD_LETTER(name) name,
#include "ir/signature.def"
    NLETTERS,
    FIRST_LOWER = one,
#define HD_LETTER(name) name##_ = name | GROUP,
#include "ir/signature.def"
};

static const char *const letter_text[NLETTERS] = {
#define HD_LETTER(name) [name] = #name,
#include "ir/signature.def"
};

enum { MOST_LETTERS = 6, MOST_FORMS = 9 };

typedef struct form {
    uint16_t letter[MOST_LETTERS]; // NO_LETTER behind the last
    bool anyhow, joins, parts;
} form;

typedef struct signature {
    int family, op; // of all ops of a family, or of one; -1
    uint64_t keys;  // bit hd_key_code
    uint16_t ahead;
    int nviews;
    form view[MOST_FORMS], rest, counts, bias;
} signature;

#define K(code) (UINT64_C(1) << HD_KEY_##code)
// Beside keys: of the text form 1, or of those after it.
#define FRONT (UINT64_C(1) << 62)
#define BACK (UINT64_C(1) << 63)
_Static_assert(HD_NKEYS <= 62, "a bit a key");

static const signature signatures[] = {
#define OP(code) .family = -1, .op = HD_OP_##code
#define FAMILY(code) .family = HD_FAMILY_##code, .op = -1
#define Q(a) ((a) | REPEATS)
#define P(a) ((a) | PERHAPS)
#define J(a) ((a) | JOINED)
#define F(a) ((a) | FIRST)
#define W(a) ((a) | WIDENS)
#define T(a) ((a) | TURNED)
#define O(a) ((a) | OVER)
#define HD_SIG(ops, keys_, at, ...) {ops, .keys = keys_, at, __VA_ARGS__},
#include "ir/signature.def"
#undef Q
#undef P
#undef J
#undef F
#undef W
#undef T
#undef O
};

// Of the keys that the op has those that tell forms apart.
static uint64_t keys_of(const hd_op *op)
{
    const uint64_t telling = K(TA) | K(TB) | K(GROUPS) | K(BLOCKS) | K(DIM);
    uint64_t keys = 0;

    for (int i = 0; i < op->nkeys; i++)
        keys |= UINT64_C(1) << op->key[i].code & telling;
    return keys;
}

// The letters of a view, and what is said of them all; NULL: of none.
typedef struct letters {
    const uint16_t *at;
    uint16_t said;
    bool anyhow, joins, parts;
} letters;

static letters letters_of(const signature *row, const hd_op *op, int view)
{
    letters none = {0};

    if (view < row->nviews || view < op->noutputs) {
        const form *of = &row->view[view < row->nviews ? view : 0];

        return (letters){of->letter, 0, of->anyhow, of->joins, of->parts};
    }
    if (view < op->noutputs + op->ninputs)
        return (letters){.at = row->rest.letter};
    for (int i = 0; i < op->nkeys; i++) {
        if (op->key[i].view != view)
            continue;
        switch (hd_key_info_get(op->key[i].code)->value) {
        case HD_VALUE_READ:
            return (letters){.at = row->bias.letter[0] != NO_LETTER
                                       ? row->bias.letter
                                       : row->view[0].letter,
                             .said = REPEATS,
                             .parts = row->view[0].parts};
        case HD_VALUE_WRITE:
            return (letters){.at = row->view[0].letter,
                             .parts = row->view[0].parts};
        case HD_VALUE_LEFT:
            return (letters){.at = row->view[1].letter,
                             .said = REPEATS | GRAINED};
        case HD_VALUE_RIGHT:
            return (letters){.at = row->view[2].letter,
                             .said = REPEATS | GRAINED};
        case HD_VALUE_COUNTS:
            return (letters){.at = row->counts.letter};
        case HD_VALUE_FLAG:
        case HD_VALUE_EXPR:
        case HD_VALUE_EVENT:
        case HD_VALUE_FACTOR: // one element, of whatever dimensions
        case HD_VALUE_ACT:
        case HD_VALUE_BY:
        case HD_VALUE_INT:
        case HD_VALUE_INTS:
        case HD_VALUE_NAME:
        case HD_VALUE_NUMBERS:
            return none;
        }
    }
    return none;
}

static bool is_group(uint16_t letter)
{
    return (letter & GROUP) != 0 || (letter & LETTER) == one ||
           (letter & LETTER) == own;
}

// The next row of an op; NULL: there is none.
static const signature *row_from(const hd_op *op, const signature *from)
{
    const signature *end = signatures + sizeof signatures / sizeof *signatures;
    int code = (int)op->code, family = (int)hd_op_family(op);

    while (from < end && from->op != code && from->family != family)
        from++;
    return from < end ? from : NULL;
}

static bool is_of_text(const signature *row, const hd_op *op)
{
    return (row->keys & (op->front ? BACK : FRONT)) == 0;
}

// The first form that the op's keys have; NULL: it has none.
static const signature *row_of(const hd_op *op, const signature *from)
{
    uint64_t keys = keys_of(op);

    while ((from = row_from(op, from)) != NULL &&
           !((from->keys & ~(FRONT | BACK)) == keys && is_of_text(from, op)))
        from++;
    return from;
}

bool hd_op_is_of_text(const hd_op *op)
{
    const signature *row = row_from(op, signatures);
    bool is = row == NULL;

    for (; row != NULL && !is; row = row_from(op, row + 1))
        is = is_of_text(row, op);
    return is;
}

int hd_op_inner(const hd_op *op, int i)
{
    const signature *row = row_of(op, signatures);
    letters of;
    int inner = 0;

    assert(row != NULL && "the verifier has refused keys that have no form");
    of = letters_of(row, op, i);
    for (int k = 0; k < MOST_LETTERS && of.at[k] != NO_LETTER; k++)
        inner +=
            (of.at[k] & LETTER) == own ? hd_op_over(op) : !is_group(of.at[k]);
    return inner;
}

int hd_op_batch(const hd_op *op, int i, int ndims)
{
    int inner = i < op->noutputs + op->ninputs ? hd_op_inner(op, i) : ndims;

    return ndims > inner ? ndims - inner : 0;
}

int hd_op_lse(const hd_op *op)
{
    int i = 0;

    assert(hd_op_family(op) == HD_FAMILY_ATTEND);
    while (hd_op_inner(op, i) != 2)
        i++;
    return i;
}

// ---------------------------------------------------------------- binding

typedef struct binder {
    const signature *row;
    const hd_op *op;
    const int *ndims;
    bool leaves_out;        // what may be
    bool parts;             // of what is joined
    int8_t size[NLETTERS];  // how many dimensions; UNKNOWN
    int8_t begin[NLETTERS]; // what the first of them lies along; UNKNOWN
} binder;

enum { UNKNOWN = -1 };

static int size_of(const binder *b, uint16_t letter)
{
    if (b->leaves_out && (letter & PERHAPS) != 0)
        return 0;
    return is_group(letter) ? b->size[letter & LETTER] : 1;
}

// How many dimensions are known of a view, and the one letter that is not, or
// NO_LETTER; NLETTERS if there are several.
static int add_known(const binder *b, letters of, int *unknown)
{
    int known = of.parts && b->parts;

    *unknown = NO_LETTER;
    for (int i = 0; i < MOST_LETTERS && of.at[i] != NO_LETTER; i++) {
        int size = size_of(b, of.at[i]);

        if (size == UNKNOWN)
            *unknown = *unknown == NO_LETTER ? of.at[i] & LETTER : NLETTERS;
        else
            known += size;
    }
    return known;
}

// A call's own dimensions: an operand may have fewer.
static void find_own(binder *b, int view)
{
    int over = hd_op_over(b->op), ndims = b->ndims[view];

    b->size[own] =
        (int8_t)(view >= b->op->noutputs && ndims < over ? ndims : over);
}

// How many dimensions a view may lack of its letters.
static int add_loose(const binder *b, letters of)
{
    int loose = of.parts && b->parts && (of.said & REPEATS) != 0;

    for (int i = 0; i < MOST_LETTERS && of.at[i] != NO_LETTER; i++)
        if (((of.at[i] | of.said) & (REPEATS | FIRST)) != 0)
            loose += size_of(b, of.at[i]);
    return loose;
}

static bool is_loose(letters of)
{
    return ((of.at[0] | of.said) & (REPEATS | FIRST)) != 0;
}

static bool fail(hd_misfit *why, const hd_misfit *misfit)
{
    if (why != NULL)
        *why = *misfit;
    return false;
}

static bool fail_dims(const binder *b, int view, hd_misfit *why)
{
    const uint16_t *form = letters_of(b->row, b->op, view).at;

    return fail(why,
                &(hd_misfit){.kind = HD_MISFIT_DIMS,
                             .view = view,
                             .letter = form[1] == NO_LETTER && is_group(form[0])
                                           ? form[0]
                                           : 0,
                             .form = form});
}

// Solves what a view alone lacks, of the last operand first and of the first
// result before others, so that the latter are found not to be what the former
// make. `found` says whether anything was.
static bool solve_once(binder *b, bool *found, hd_misfit *why)
{
    int results = b->op->noutputs;

    *found = false;
    for (int at = b->op->nviews - 1; at >= 0; at--) {
        int i = at < results ? results - 1 - at : at;
        letters of = letters_of(b->row, b->op, i);
        int unknown, known;

        if (of.at == NULL || is_loose(of) || b->ndims[i] == HD_INFERRED)
            continue;
        find_own(b, i);
        known = add_known(b, of, &unknown);
        if (unknown == NO_LETTER || unknown == NLETTERS)
            continue;
        if (b->ndims[i] < known)
            return fail_dims(b, i, why);
        b->size[unknown] = (int8_t)(b->ndims[i] - known);
        *found = true;
    }
    return true;
}

static bool solve(binder *b, hd_misfit *why)
{
    bool found = true;

    while (found)
        if (!solve_once(b, &found, why))
            return false;
    return true;
}

// What keys say of dimensions; nothing of those of other ops.
static void find_dims(const hd_op *op, const int *ndims, int8_t *dim,
                      int8_t order[HD_MAX_DIMS])
{
    int n;

    *dim = (int8_t)hd_op_dim(op);
    memset(order, 0, HD_MAX_DIMS);
    // What lacks its operand the verifier refuses, behind what is inferred of
    // it, and what is no order.
    if (hd_op_family(op) != HD_FAMILY_TRANSPOSE || op->ninputs == 0)
        return;
    n = ndims[op->noutputs];
    hd_op_order(op, n, order);
    for (int d = 0; d < n; d++)
        if (order[d] < 0 || order[d] >= n)
            order[d] = (int8_t)d;
}

// What each of a view's dimensions lies along: those that it lacks are the
// first of its letters, or the last of a group that leads.
static bool lay(binder *b, int view, hd_bound *out, hd_misfit *why)
{
    letters of = letters_of(b->row, b->op, view);
    int8_t along[2 * HD_BOUND_DIMS];
    uint16_t letter[2 * HD_BOUND_DIMS];
    int all = 0, unknown, ndims = b->ndims[view], most;

    memset(out->along[view], HD_ALONE, sizeof out->along[view]);
    out->ndims[view] = ndims;
    out->anyhow[view] = of.anyhow;
    out->joins |= of.joins;
    if (of.at == NULL)
        return true;
    find_own(b, view);
    most = add_known(b, of, &unknown);
    if (ndims == HD_INFERRED)
        ndims = most;
    if (ndims > HD_MAX_DIMS)
        return fail(why, &(hd_misfit){.kind = HD_MISFIT_MOST, .ndims = ndims});
    if (unknown != NO_LETTER || ndims > most || ndims < most - add_loose(b, of))
        return fail_dims(b, view, why);
    if (of.parts && b->parts) {
        if (b->begin[S] == UNKNOWN)
            b->begin[S] = (int8_t)out->nlines++;
        along[all] = b->begin[S];
        letter[all++] = (uint16_t)(S | of.said);
    }
    for (int i = 0; i < MOST_LETTERS && of.at[i] != NO_LETTER; i++) {
        int8_t *begin = &b->begin[of.at[i] & LETTER];
        int size = size_of(b, of.at[i]);
        bool alone = (of.at[i] & LETTER) == own;

        if (size > 0 && *begin == UNKNOWN && !alone) {
            *begin = (int8_t)out->nlines;
            out->nlines += size;
        }
        if ((of.at[i] & FIRST) != 0)
            size -= most - ndims;
        for (int at = 0; at < size; at++) {
            int d = (of.at[i] & TURNED) != 0 ? out->order[at] : at;

            along[all + d] = (int8_t)(alone ? HD_ALONE : *begin + at);
            letter[all + d] = of.at[i] | of.said;
        }
        all += size;
    }
    out->ndims[view] = ndims;
    for (int at = 0; at < ndims; at++) {
        out->along[view][at] = along[all - ndims + at];
        out->letter[view][at] = letter[all - ndims + at];
    }
    return true;
}

static bool bind_form(binder *b, hd_bound *out, hd_misfit *why)
{
    const hd_op *op = b->op;

    memset(out, 0, sizeof *out); // as a whole it is compared
    memset(b->size, UNKNOWN, sizeof b->size);
    memset(b->begin, UNKNOWN, sizeof b->begin);
    if (b->row->ahead != NO_LETTER)
        b->size[b->row->ahead] = (int8_t)hd_op_dim(op);
    if (!solve(b, why))
        return false;
    if (b->size[one] != 1)
        b->size[one] = 0;
    out->nviews = op->nviews;
    out->grain = hd_op_grain(op);
    out->parts = b->parts;
    find_dims(op, b->ndims, &out->dim, out->order);
    for (int i = 0; i < out->nviews; i++) {
        if (!lay(b, i, out, why))
            return false;
        if (i == 0)
            out->nparallel = out->nlines;
        if (i <= 1)
            out->nspace = out->nlines;
    }
    assert(out->nlines <= HD_BOUND_DIMS);
    return true;
}

// Whether a binding will do, and the reason if not.
typedef bool judge_fn(void *context, const hd_bound *bound, hd_misfit *why);

// Each form with all that may be left out, and without.
static bool try_forms(binder *b, judge_fn *judge, void *context, hd_bound *out,
                      hd_misfit *first)
{
    b->row = row_of(b->op, signatures);
    for (; b->row != NULL; b->row = row_of(b->op, b->row + 1))
        for (int leaves_out = 0; leaves_out < 2; leaves_out++) {
            hd_misfit misfit = {.kind = HD_MISFIT_FORM};

            b->leaves_out = leaves_out > 0;
            if (b->parts && !b->row->view[0].parts)
                continue;
            if (bind_form(b, out, &misfit) &&
                (judge == NULL || judge(context, out, &misfit)))
                return true;
            if (first->kind == HD_MISFIT_FORM)
                *first = misfit;
        }
    return false;
}

// Of several reasons the first form's is told.
static bool find_form(const hd_op *op, const int *ndims, judge_fn *judge,
                      void *context, hd_bound *out, hd_misfit *why)
{
    hd_misfit first = {.kind = HD_MISFIT_FORM};
    binder b;

    b.op = op;
    b.ndims = ndims;
    for (int parts = 0; parts < 2; parts++) {
        b.parts = parts > 0;
        if (!try_forms(&b, judge, context, out, &first))
            continue;
        if (b.parts && why != NULL)
            *why = first;
        return true;
    }
    return fail(why, &first);
}

// Of a form with parts the reason is why it is none without.
bool hd_bind(const hd_op *op, const int *ndims, hd_bound *out, hd_misfit *why)
{
    return find_form(op, ndims, NULL, NULL, out, why);
}

hd_bound *hd_bound_room(hd_arena *arena, hd_opcode code)
{
    const hd_op op = {.code = code};

    return hd_op_is(&op, HD_UNIT_COMPUTE) ? hd_new(arena, hd_bound) : NULL;
}

static bool is_bound_so(const hd_bound *bound, const hd_op *op,
                        const int *ndims)
{
    bool so = bound != NULL && bound->nviews == op->nviews;
    int8_t dim, order[HD_MAX_DIMS];

    for (int i = 0; so && i < op->nviews; i++)
        so = bound->ndims[i] == ndims[i];
    if (!so)
        return false;
    find_dims(op, ndims, &dim, order);
    return bound->dim == dim && memcmp(bound->order, order, sizeof order) == 0;
}

const hd_bound *hd_bound_of(const hd_op *op, const int *ndims, hd_bound *room)
{
    if (is_bound_so(op->bound, op, ndims))
        return op->bound;
    if (!hd_bind(op, ndims, room, NULL))
        assert(false); // the verifier has seen to it
    return room;
}

// ---------------------------------------------------------------- fitting

// What a letter says of the dimension by itself. What is joined may lie over
// ranks where passes move it, and where nothing is kept of that.
static bool is_whole(const hd_bound *bound, uint16_t letter, bool tensor,
                     bool keeps)
{
    if ((letter & OVER) != 0)
        return false;
    if (tensor && (bound->parts || ((letter & JOINED) != 0 && bound->joins)))
        return false;
    return (letter & LETTER) >= FIRST_LOWER ||
           ((letter & JOINED) != 0 && (!tensor || keeps));
}

// Whether some dimension that is joined is over ranks.
static bool joins_ranks(const hd_bound *bound, const hd_type *type, int first)
{
    for (int i = first; i < bound->nviews; i++)
        for (int at = 0; at < bound->ndims[i]; at++)
            if ((bound->letter[i][at] & JOINED) != 0 &&
                hd_dim_is_sharded(type[i].dim[at]))
                return true;
    return false;
}

static bool keeps_one(const hd_bound *bound)
{
    for (int d = 0; d < bound->ndims[0]; d++)
        if ((bound->letter[0][d] & LETTER) == one)
            return true;
    return false;
}

bool hd_bound_is_grained(const hd_bound *bound, int view, int d)
{
    return (bound->letter[view][d] & GRAINED) != 0 &&
           (bound->letter[view][d] & LETTER) != B &&
           d >= bound->ndims[view] - 2;
}

// Whether dimension `d` of a view has an index for each `grain` of a dimension.
static bool is_in_grain(const hd_bound *bound, int view, int d, hd_dim dim,
                        hd_dim of)
{
    return hd_bound_is_grained(bound, view, d) && !hd_dim_is_sized(of) &&
           of.extent > 0 && !hd_dim_is_sized(dim) &&
           dim.extent == hd_block_size(of.extent, bound->grain);
}

// Whether each rank has the scales of what it has, some of each: of one alone
// a view would lack the dimension.
static bool is_grain_placed(const hd_bound *bound, hd_dim dim, hd_dim of)
{
    if (!hd_dim_is_sharded(dim) || !hd_dim_is_sharded(of))
        return hd_dim_is_sharded(dim) == hd_dim_is_sharded(of);
    return dim.mark == of.mark && hd_dim_is_cut(dim) && hd_dim_is_cut(of) &&
           hd_grain_fits(bound->grain, of);
}

int hd_bound_joined(const hd_bound *bound, int view)
{
    int line = HD_ALONE;

    for (int d = 0; d < bound->ndims[1]; d++)
        if ((bound->letter[1][d] & JOINED) != 0)
            line = bound->along[1][d];
    for (int d = 0; d < bound->ndims[view] && line != HD_ALONE; d++)
        if (bound->along[view][d] == line)
            return d;
    return -1;
}

// The dimension of parts, one for each block of what is joined.
static hd_dim dim_of_parts(const hd_bound *bound, const hd_type *type)
{
    hd_dim joined = type[1].dim[hd_bound_joined(bound, 1)];
    hd_dim parts = hd_dim_whole(hd_dim_blocks(joined));

    parts.mark = joined.mark;
    return parts;
}

// Each rank has a part of what it has some of, none of a length that a run
// says: of that a rank may have none in one run and some in another.
static bool fits_parts(const hd_bound *bound, const hd_type *type, int first,
                       bool tensor)
{
    hd_dim joined = type[1].dim[hd_bound_joined(bound, 1)];

    return tensor && hd_dim_is_sharded(joined) && !hd_dim_is_sized(joined) &&
           (first > 0 ||
            hd_dim_same(type[0].dim[0], dim_of_parts(bound, type)));
}

bool hd_bound_fits(const hd_bound *bound, const hd_type *type, int first,
                   bool tensor, hd_misfit *why)
{
    struct {
        int view, dim;
    } seen[HD_BOUND_DIMS] = {{0, 0}}; // the view from 1
    bool joins = bound->joins && joins_ranks(bound, type, first);

    // Of parts binding has told why they are no other form.
    if (bound->parts && !fits_parts(bound, type, first, tensor))
        return false;
    for (int i = first; i < bound->nviews; i++)
        for (int at = 0; at < bound->ndims[i]; at++) {
            uint16_t letter = bound->letter[i][at];
            int line = bound->along[i][at];
            hd_dim dim = type[i].dim[at], other;
            hd_misfit misfit = {.view = i, .dim = at, .letter = letter};

            if ((letter & (REPEATS | WIDENS)) != 0 && hd_dim_is_one(dim))
                continue;
            misfit.kind = HD_MISFIT_ONE;
            if ((letter & LETTER) == one && !hd_dim_is_one(dim))
                return fail(why, &misfit);
            misfit.kind = HD_MISFIT_WHOLE;
            if (hd_dim_is_sharded(dim) &&
                is_whole(bound, letter, tensor, keeps_one(bound)))
                return fail(why, &misfit);
            if (line == HD_ALONE)
                continue;
            if (seen[line].view == 0) {
                seen[line].view = i + 1;
                seen[line].dim = at;
                continue;
            }
            misfit.other = seen[line].view - 1;
            misfit.other_dim = seen[line].dim;
            other = type[misfit.other].dim[misfit.other_dim];
            misfit.kind = HD_MISFIT_GRAIN;
            if (is_in_grain(bound, i, at, dim, other) &&
                !hd_dim_as_long(dim, other)) {
                if (!is_grain_placed(bound, dim, other))
                    return fail(why, &misfit);
                continue;
            }
            misfit.kind = HD_MISFIT_LENGTH;
            misfit.blocks = hd_bound_is_grained(bound, i, at);
            if (!hd_dim_as_long(dim, other))
                return fail(why, &misfit);
            misfit.kind = HD_MISFIT_PLACE;
            if (tensor && joins && misfit.other == 0) {
                seen[line].view = i + 1; // operands are still alike
                seen[line].dim = at;
                continue;
            }
            if (!hd_dim_same(dim, other) &&
                !(tensor && (bound->anyhow[i] || bound->anyhow[misfit.other])))
                return fail(why, &misfit);
        }
    return true;
}

// The first dimension of views before `past` that has a letter; false if none
// has.
static bool find_letter(const hd_bound *bound, const hd_type *type, int past,
                        int letter, hd_dim *out)
{
    for (int i = 0; i < past; i++)
        for (int d = 0; d < bound->ndims[i]; d++)
            if ((bound->letter[i][d] & LETTER) == letter) {
                *out = type[i].dim[d];
                return true;
            }
    return false;
}

bool hd_bound_heads_fit(const hd_bound *bound, const hd_type *type,
                        int noutputs)
{
    hd_dim heads, shared;

    if (!find_letter(bound, type, bound->nviews, h, &heads) ||
        !find_letter(bound, type, bound->nviews, g, &shared))
        return true;
    if (!hd_dim_is_sharded(heads) || !hd_dim_is_sharded(shared))
        return !hd_dim_is_sharded(shared) &&
               (!hd_dim_is_sharded(heads) ||
                (shared.extent == 1 &&
                 !find_letter(bound, type, noutputs, g, &shared)));
    return heads.mark == shared.mark && heads.extent % shared.extent == 0 &&
           hd_dim_block(heads) ==
               heads.extent / shared.extent * hd_dim_block(shared);
}

bool hd_bound_picks(const hd_bound *bound, int dim)
{
    uint16_t letter = bound->letter[0][dim];

    return (letter & GROUP) != 0 || (letter & LETTER) == one;
}

bool hd_bound_parts(const hd_bound *bound, int line)
{
    for (int i = 0; i < bound->nviews; i++)
        for (int d = 0; d < bound->ndims[i]; d++)
            if (bound->along[i][d] == line &&
                (bound->letter[i][d] & LETTER) >= FIRST_LOWER)
                return false;
    return true;
}

bool hd_bound_makes(const hd_bound *bound, const hd_type *type, int i,
                    int first, hd_type *out)
{
    bool said = true;

    out->ndims = bound->ndims[i];
    for (int d = 0; d < out->ndims; d++) {
        int line = bound->along[i][d];
        bool any = (bound->letter[i][d] & LETTER) == one;

        out->dim[d] = hd_dim_whole(1);
        if ((bound->letter[i][d] & LETTER) == S) {
            out->dim[d] = dim_of_parts(bound, type);
            any = true;
        }
        for (int v = bound->nviews - 1; v >= first; v--)
            for (int k = 0; k < bound->ndims[v] && k < type[v].ndims; k++)
                if (line != HD_ALONE && bound->along[v][k] == line &&
                    (bound->letter[v][k] & GRAINED) == 0) {
                    any = true;
                    if (!hd_dim_is_one(type[v].dim[k]))
                        out->dim[d] = type[v].dim[k];
                }
        said &= any;
    }
    return said;
}

hd_type hd_bound_result(const hd_bound *bound, const hd_type *type)
{
    hd_type out = type[0];

    hd_bound_makes(bound, type, 0, 1, &out);
    return out;
}

typedef struct operands {
    const hd_type *type; // without marks
    const int *ndims;    // HD_INFERRED of what is to be made
    int first;           // operand
    int fewest;          // dimensions of the first result so far
    hd_bound best;
} operands;

// Takes none, so that all forms are seen.
static bool keep_fewest(void *context, const hd_bound *bound, hd_misfit *why)
{
    operands *o = context;
    hd_bound known = *bound;

    for (int i = 0; i < bound->nviews; i++)
        if (o->ndims[i] == HD_INFERRED)
            known.ndims[i] = 0;
    if (hd_bound_fits(&known, o->type, o->first, true, why) &&
        bound->ndims[0] < o->fewest) {
        o->fewest = bound->ndims[0];
        o->best = *bound;
    }
    return false;
}

bool hd_bind_operands(const hd_op *op, const int *ndims, const hd_type *type,
                      hd_bound *out, hd_misfit *why)
{
    operands o = {type, ndims, op->noutputs, HD_MAX_DIMS + 1, {0}};

    find_form(op, ndims, keep_fewest, &o, out, why);
    *out = o.best;
    return o.fewest <= HD_MAX_DIMS;
}

bool hd_signature_fits(const hd_op *op, const hd_type *type, bool tensor,
                       hd_bound *out, hd_misfit *why)
{
    int ndims[HD_MAX_VIEWS];
    hd_bound bound;

    out = out != NULL ? out : &bound;
    for (int i = 0; i < op->nviews; i++)
        ndims[i] = type[i].ndims;
    return hd_bind(op, ndims, out, why) &&
           hd_bound_fits(out, type, 0, tensor, why);
}

// ---------------------------------------------------------------- in words

const char *hd_letter_text(uint16_t letter)
{
    return is_group(letter) ? NULL : letter_text[letter & LETTER];
}

void hd_misfit_form(const hd_misfit *misfit, hd_text *text)
{
    const uint16_t *at = misfit->form;

    for (int i = 0; i < MOST_LETTERS && at[i] != NO_LETTER; i++) {
        bool perhaps = (at[i] & PERHAPS) != 0;

        hd_text_printf(text, "%s%s%s%s%s%s", i > 0 ? " " : "",
                       perhaps ? "(" : "", letter_text[at[i] & LETTER],
                       (at[i] & GROUP) != 0 ? ".." : "",
                       (at[i] & REPEATS) != 0  ? "?"
                       : (at[i] & WIDENS) != 0 ? "*"
                       : (at[i] & FIRST) != 0  ? "<"
                                               : "",
                       perhaps ? ")" : "");
    }
}
