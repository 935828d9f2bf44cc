// A program grows one operation at a time from the tensors that there are;
// where an operation needs another operand, that is one of them, or it is made:
// an input, gathered from one, or a tensor that is placed otherwise. Each
// tensor carries a bound on its elements, which is what keeps `integers` exact,
// and whether they are all well above zero, as divisors and arguments of log
// are. In the end what nobody read becomes an output.
//
// Many operations begin from a `set` that turns a sharded dimension into a
// stream dimension, and go on from there, since that is what becomes a loop; or
// end where partial results with a stream dimension are reduced to the ranks.
#include "generate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "row.h"

enum {
    MAX_ELEMENTS = 4096, // of one tensor
    MAX_AXES = 6,
    MAX_SIZES = 3,
    MAX_SUMMANDS = 15,
    EVEN = 6, // an extent that 2 and 3 chunks divide
    TENSORS_PER_OP = 2 * MAX_SUMMANDS + 7, // at most
    BYTES_PER_OP = 64,
    MOST_VIEWS = MAX_SUMMANDS + 3,
    MOST_RESULTS = 3,
    UNKNOWN = -1,
    KEYS = 192, // bytes of a statement's
    NAME = 16,  // and of what a view is called
};

// What is positive is no less, a number of every floating format, so that no
// rounding goes below it.
static const double LEAST = 1.0 / 64;

enum { LOCAL = -1, STREAM = -2 }; // marks that are no axis

// From here on an extent stands for what a run says: MANY times the size's
// number, from 1, and how many times it. So extents are equal where they are
// in every run.
enum { MANY = 1 << 24 };

enum { MOST_START = 3 }; // of indices that are taken or made

typedef enum dtype {
    F64,
    F32,
    F16,
    BF16,
    F8E4M3,
    F8E5M2,
    I64,
    I32,
    U8,
    I8
} dtype;

// `exact`: whole numbers up to here are held exactly, and fp32 adds them up
// exactly. `large`: values up to here are far from overflow.
static const struct {
    const char *text;
    bool floating;
    double exact, large;
} dtypes[] = {
    {"f64", true, 1e15, 1e30}, {"f32", true, 4e6, 1e30},
    {"f16", true, 2048, 3e4},  {"bf16", true, 256, 1e30},
    {"f8e4m3", true, 16, 200}, {"f8e5m2", true, 8, 2e4},
    {"i64", false, 1e15, 1e9}, {"i32", false, 1e9, 1e9},
    {"u8", false, 255, 255},   {"i8", false, 127, 127},
};

// The ops that make a tensor element by element, and those that join several to
// one.
typedef enum map {
#define HD_OP(...)
#define HD_MAP(code, ...) MAP_##code = OP_##code,
#include "ir/ops.def"
} map;

static const op maps[] = {
#define HD_OP(...)
#define HD_MAP(code, ...) OP_##code,
#include "ir/ops.def"
};

static const op folds[] = {
#define HD_OP(...)
#define HD_FOLD(code, text) OP_##code,
#include "ir/ops.def"
};

enum { NMAPS = sizeof maps / sizeof *maps };

typedef struct dim {
    int extent;
    int mark;
    int blocks; // of a stream dimension, 0 for one an index
} dim;

// What runs are given, and into how many blocks all dimensions of it are cut,
// 0 for none.
typedef struct size {
    int low, high;
    int blocks;
} size;

typedef struct tensor {
    dtype dtype;
    int ndims;
    dim dim[HD_MAX_DIMS];
    double size;   // no element is larger
    bool positive; // none is less than LEAST
    char role;     // 'i'n, 'o'ut, 't'emp or inout, 'b'oth; 'p'art of another
    int read;      // the number of the operation that read it last; 0 for none
    int of;        // of a part, whose
    // And which: what stands behind the name. MAX_ELEMENTS bounds its numbers.
    char view[8 * HD_MAX_DIMS];
} tensor;

typedef struct maker {
    choices *choices;
    bool integers;
    int naxes;
    int axis[MAX_AXES]; // sizes
    int nsizes;
    size size[MAX_SIZES];
    bool streams; // stream dimensions may be drawn
    bool blocks;  // dimensions over ranks have any extent
    bool chain; // operations mostly go on from each other, as in one long loop
    int now;    // the number of the operation that is made, from 1
    int ntensors;
    tensor *tensor; // owned
    int nstreamed;
    int *streamed; // owned: what may be made in a loop
    FILE *body;    // owned
    // Tensors with counts, or on some ranks, which have names of their own, and
    // their declarations.
    int ncounted, nstaged;
    FILE *counted; // owned
} maker;

// Begins from %x, if it can.
typedef void (*maker_of)(maker *, int x);

static const char *const axis_names[MAX_AXES] = {"tp", "dp", "pp",
                                                 "ep", "cp", "node"};

static int pick(maker *m, int n)
{
    return choices_pick(m->choices, n);
}

// One time in `n`. Never where the choices have ended.
static bool once_in(maker *m, int n)
{
    return pick(m, n) == n - 1;
}

static op draw_fold(maker *m)
{
    return folds[pick(m, sizeof folds / sizeof *folds)];
}

// ----------------------------------------------------------------- shapes

// Which dimension streams; -1 if none does.
static int stream_dim(const tensor *t)
{
    for (int i = 0; i < t->ndims; i++)
        if (t->dim[i].mark == STREAM)
            return i;
    return -1;
}

static bool has_stream(const tensor *t)
{
    return stream_dim(t) >= 0;
}

static bool has_axis(const tensor *t, int axis)
{
    for (int i = 0; i < t->ndims; i++)
        if (t->dim[i].mark == axis)
            return true;
    return false;
}

static bool same_extents(const tensor *a, const tensor *b)
{
    if (a->ndims != b->ndims)
        return false;
    for (int i = 0; i < a->ndims; i++)
        if (a->dim[i].extent != b->dim[i].extent)
            return false;
    return true;
}

// Stream dimensions do not place data, so they count as local.
static bool same_dim(dim a, dim b)
{
    return a.extent == b.extent &&
           (a.mark == b.mark || (a.mark < 0 && b.mark < 0));
}

static bool same_dims(const tensor *a, const tensor *b)
{
    if (a->ndims != b->ndims)
        return false;
    for (int i = 0; i < a->ndims; i++)
        if (!same_dim(a->dim[i], b->dim[i]))
            return false;
    return true;
}

static void drop_dims(tensor *t, int from, int n)
{
    memmove(t->dim + from, t->dim + from + n,
            sizeof(dim) * (size_t)(t->ndims - from - n));
    t->ndims -= n;
}

// A tensor may have too many: see `fits`.
static void insert_dim(tensor *t, int at, dim d)
{
    if (t->ndims < HD_MAX_DIMS) {
        memmove(t->dim + at + 1, t->dim + at,
                sizeof(dim) * (size_t)(t->ndims - at));
        t->dim[at] = d;
    }
    t->ndims++;
}

static void append_dim(tensor *t, dim d)
{
    insert_dim(t, t->ndims, d);
}

// How many of its dimensions it has.
static int held(const tensor *t)
{
    return t->ndims < HD_MAX_DIMS ? t->ndims : HD_MAX_DIMS;
}

static bool is_constant(dim d)
{
    return d.mark == LOCAL && d.extent < MANY;
}

static bool one_axis_each(const tensor *t)
{
    for (int i = 0; i < held(t); i++)
        for (int j = 0; j < i; j++)
            if (t->dim[i].mark >= 0 && t->dim[i].mark == t->dim[j].mark)
                return false;
    return true;
}

// One stream dimension is enough.
static void keep_stream(tensor *t)
{
    bool seen = false;

    for (int i = 0; i < held(t); i++) {
        if (t->dim[i].mark != STREAM)
            continue;
        if (seen)
            t->dim[i].mark = LOCAL;
        seen = true;
    }
}

static const size *size_of(const maker *m, int extent)
{
    return extent < MANY ? NULL : &m->size[extent / MANY - 1];
}

// How many indices there are at most.
static int count_of(const maker *m, int extent)
{
    const size *size = size_of(m, extent);

    return size == NULL ? extent : extent % MANY * size->high;
}

static int draw_extent(maker *m)
{
    static const int extents[] = {1, 2, 3, 4, 5, 6, 8};

    if (m->nsizes > 0 && once_in(m, 2))
        return MANY * (1 + pick(m, m->nsizes)) + 1 + once_in(m, 4);
    if (m->chain && pick(m, 2) == 1)
        return EVEN;
    if (m->naxes > 0 && pick(m, 3) > 0)
        return m->axis[pick(m, m->naxes)];
    return extents[pick(m, 7)];
}

static bool can_shard(const maker *m, dim d, int axis)
{
    const size *size = size_of(m, d.extent);

    if (size != NULL)
        return d.mark < 0 && size->blocks == m->axis[axis];
    return d.mark < 0 && (m->blocks || d.extent == m->axis[axis]);
}

static bool can_stream(const maker *m, dim d)
{
    const size *size = size_of(m, d.extent);

    return d.mark == LOCAL && (size == NULL || size->blocks > 0);
}

// Without a stream dimension.
static tensor local_stream(tensor t)
{
    for (int d = 0; d < t.ndims; d++)
        if (t.dim[d].mark == STREAM)
            t.dim[d].mark = LOCAL;
    return t;
}

// A local dimension that the axis can shard; -1 if there is none.
static int find_local(maker *m, const tensor *t, int axis)
{
    int first = pick(m, t->ndims);

    for (int k = 0; k < t->ndims; k++) {
        int d = (first + k) % t->ndims;

        if (t->dim[d].mark == LOCAL && can_shard(m, t->dim[d], axis))
            return d;
    }
    return -1;
}

// Other axes may shard other dimensions than those that are placed already.
static void add_marks(maker *m, tensor *t)
{
    for (int axis = 0; axis < m->naxes; axis++) {
        int at = once_in(m, 3) ? find_local(m, t, axis) : -1;

        if (at >= 0 && !has_axis(t, axis))
            t->dim[at].mark = axis;
    }
}

static void draw_stream(maker *m, tensor *t)
{
    dim *d;

    *t = local_stream(*t);
    if (!m->streams || t->ndims == 0 || once_in(m, 4))
        return;
    d = &t->dim[pick(m, 2) * pick(m, t->ndims)];
    if (can_stream(m, *d))
        d->mark = STREAM;
}

// Any placement.
static void draw_marks(maker *m, tensor *t)
{
    for (int i = 0; i < t->ndims; i++)
        t->dim[i].mark = LOCAL;
    for (int axis = once_in(m, 4) ? m->naxes : 0; axis < m->naxes; axis++) {
        int at = pick(m, 2) * pick(m, t->ndims + 1);

        if (once_in(m, 3))
            continue;
        while (at < t->ndims && !can_shard(m, t->dim[at], axis))
            at++;
        if (at < t->ndims)
            t->dim[at].mark = axis;
    }
    draw_stream(m, t);
}

static dtype draw_dtype(maker *m)
{
    static const dtype exact[] = {F32, F32, F32, I32, F64, BF16, F16, I64};
    static const dtype all[] = {F32,    BF16,   F32, I32, F16, BF16, F64,
                                F8E4M3, F8E5M2, I64, U8,  F32, I8};

    return m->integers ? exact[pick(m, 8)] : all[pick(m, 13)];
}

// Whether each number of one dtype is one of another of the same kind.
static bool holds(dtype wide, dtype narrow)
{
    return dtypes[wide].floating == dtypes[narrow].floating &&
           (wide != U8 || narrow == U8) &&
           dtypes[wide].exact >= dtypes[narrow].exact &&
           dtypes[wide].large >= dtypes[narrow].large;
}

// One that holds the dtype, or one that it holds.
static dtype draw_held(maker *m, dtype of, bool wider)
{
    dtype any = (dtype)pick(m, sizeof dtypes / sizeof *dtypes);

    return (wider ? holds(any, of) : holds(of, any)) ? any : of;
}

// ---------------------------------------------------------------- tensors

static double limit_of(const maker *m, dtype dtype)
{
    return m->integers ? dtypes[dtype].exact : dtypes[dtype].large;
}

static bool fits(const maker *m, const tensor *t)
{
    int elements = 1;

    if (t->ndims > HD_MAX_DIMS)
        return false;
    for (int i = 0; i < t->ndims; i++) {
        elements *= count_of(m, t->dim[i].extent);
        if (elements > MAX_ELEMENTS)
            return false;
    }
    return t->size <= limit_of(m, t->dtype);
}

// What another one says of its elements.
static void hold_as(tensor *t, const tensor *other)
{
    t->size = other->size;
    t->positive = other->positive;
}

static int add_tensor(maker *m, const tensor *t, char role)
{
    m->tensor[m->ntensors] = *t;
    m->tensor[m->ntensors].role = role;
    m->tensor[m->ntensors].read = 0;
    if (role != 'p')
        m->tensor[m->ntensors].view[0] = '\0';
    return m->ntensors++;
}

static int add_input(maker *m, const tensor *like)
{
    int i = add_tensor(m, like, 'i');

    m->tensor[i].size = GENERATE_INPUT;
    m->tensor[i].positive = false;
    return i;
}

static int add_result(maker *m, const tensor *t, char role)
{
    int i = add_tensor(m, t, role);

    if (!has_stream(t) || (!m->chain && once_in(m, 5)))
        draw_stream(m, &m->tensor[i]);
    return i;
}

// An inout of this dtype and extents that the operation does not read, or -1.
// `placed` wants its placement to be that of `t`, too.
static int find_inout(const maker *m, const tensor *t, bool placed)
{
    for (int i = m->ntensors - 1; i >= 0; i--) {
        const tensor *other = &m->tensor[i];

        if (other->role == 'b' && other->read != m->now &&
            other->dtype == t->dtype &&
            (placed ? same_dims(other, t) : same_extents(other, t)))
            return i;
    }
    return -1;
}

// A tensor for the operations to come to go on from, in one loop perhaps.
static void go_on_from(maker *m, int i)
{
    if (has_stream(&m->tensor[i]))
        m->streamed[m->nstreamed++] = i;
}

// Adds an index or some of them, of a dimension of which there are `n`, to a
// part's view.
static void view_dim(tensor *part, int first, int count, int n, bool picks)
{
    size_t length = strlen(part->view);
    char *at = part->view + length;
    size_t room = sizeof part->view - length;
    const char *before = length == 0 ? "[" : ", ";

    if (picks)
        snprintf(at, room, "%s%d", before, first);
    else if (count == n)
        snprintf(at, room, "%s:", before);
    else
        snprintf(at, room, "%s%d..%d", before, first, first + count);
}

static int add_part(maker *m, const tensor *t, int of)
{
    int i = add_tensor(m, t, 'p');

    strcat(m->tensor[i].view, "]");
    m->tensor[i].of = of;
    hold_as(&m->tensor[i], &m->tensor[of]);
    return i;
}

// A tensor that has more than `like` in one place, which part of it is so, and
// the rest. False if that would have too many elements.
static bool draw_whole(maker *m, const tensor *like, tensor *whole,
                       tensor *part, tensor *rest)
{
    int at = pick(m, like->ndims + 1), more = 1 + pick(m, 3), n = 2;
    bool behind = once_in(m, 2);
    bool picks = at == like->ndims || like->dim[at].mark >= 0 ||
                 like->dim[at].extent >= MANY || once_in(m, 4);

    if (like->ndims == HD_MAX_DIMS)
        return false;
    *whole = *part = *rest = *like;
    part->view[0] = rest->view[0] = '\0';
    if (picks) {
        insert_dim(whole, at, (dim){n, LOCAL, 0});
        more = 1;
    } else {
        n = like->dim[at].extent + more;
        whole->dim[at] = (dim){n, like->dim[at].mark, 0};
        part->dim[at] = (dim){n - more, LOCAL, 0};
        rest->dim[at] = (dim){more, LOCAL, 0};
    }
    for (int d = 0; d < at; d++) {
        view_dim(part, 0, 1, 1, false);
        view_dim(rest, 0, 1, 1, false);
    }
    view_dim(part, behind ? more : 0, n - more, n, picks);
    view_dim(rest, behind ? 0 : n - more, more, n, picks);
    return fits(m, whole);
}

// A part of a new tensor, whose rest a statement before fills with a number; -1
// if it would have too many elements.
static int place_part(maker *m, const tensor *t)
{
    tensor whole, part, rest;
    int of, filled;

    if (!draw_whole(m, t, &whole, &part, &rest))
        return -1;
    whole.size = fmax(t->size, 2);
    of = add_tensor(m, &whole, 't');
    filled = add_part(m, &rest, of);
    fprintf(m->body, "    %%t%d = fill value 2\n", filled);
    return add_part(m, &part, of);
}

// Where a result goes once all operands are read: one time in six over an
// inout, which may have been read before; a new one if there is none.
static int place_whole(maker *m, const tensor *t, bool placed)
{
    bool over = once_in(m, 6);
    int found = over ? find_inout(m, t, placed) : -1;

    if (found < 0)
        found = add_result(m, t, over ? 'b' : 't');
    hold_as(&m->tensor[found], t);
    if (m->chain || once_in(m, 2))
        go_on_from(m, found);
    return found;
}

// Likewise, or to a part of a tensor.
static int place_any(maker *m, const tensor *t, bool placed, bool whole)
{
    int found = !whole && once_in(m, 10) ? place_part(m, t) : -1;

    if (found < 0)
        found = place_whole(m, t, placed);
    else if (m->chain || once_in(m, 2))
        go_on_from(m, found);
    return found;
}

static int place_result(maker *m, const tensor *t, bool placed)
{
    return place_any(m, t, placed, false);
}

static int read_tensor(maker *m, int i)
{
    m->tensor[i].read = m->now;
    if (m->tensor[i].role == 'p')
        m->tensor[m->tensor[i].of].read = m->now;
    return i;
}

// ------------------------------------------------------------------ parts

// How many indices there are in every run, of which some may be kept. None of
// what is cut somewhere.
static int least_of(const maker *m, dim d)
{
    const size *size = size_of(m, d.extent);

    if (d.mark >= 0 || (size != NULL && size->blocks > 0))
        return 0;
    return size == NULL ? d.extent : d.extent % MANY * size->low;
}

// Some of what a tensor has, by constants. An inout's elements may become
// larger than those of a part say.
static int draw_part(maker *m, int x)
{
    const tensor *whole = &m->tensor[x];
    tensor part = *whole;

    if (whole->role == 'p' || whole->role == 'b' || whole->ndims == 0)
        return x;
    part.ndims = 0;
    part.view[0] = '\0';
    for (int d = 0; d < whole->ndims; d++) {
        dim kept = whole->dim[d];
        int n = least_of(m, kept), first = 0;
        bool picks = n > 0 && once_in(m, 4);

        if (n > 0 && !picks && once_in(m, 2)) {
            kept = (dim){1 + pick(m, n), LOCAL, 0};
            first = pick(m, n - kept.extent + 1);
        } else if (picks) {
            first = pick(m, n);
        }
        view_dim(&part, first, kept.extent, whole->dim[d].extent, picks);
        if (!picks)
            append_dim(&part, kept);
    }
    return add_part(m, &part, x);
}

// A part of a new input that has more.
static int add_input_part(maker *m, const tensor *like)
{
    tensor whole, part, rest;

    if (!draw_whole(m, like, &whole, &part, &rest))
        return add_input(m, like);
    return add_part(m, &part, add_input(m, &whole));
}

// --------------------------------------------------------------- operands

static int emit_set(maker *m, int to, int x)
{
    fprintf(m->body, "    %%t%d = set %%t%d\n", to, read_tensor(m, x));
    return to;
}

// A dimension that an axis could shard, and the axis; mostly the stream
// dimension, if it can be that. False if there is none.
static bool find_shardable(maker *m, const tensor *t, int *at, int *axis)
{
    int stream = stream_dim(t);
    int first = stream < 0 || once_in(m, 3) ? pick(m, t->ndims) : stream;

    for (int k = 0; k < t->ndims; k++)
        for (*axis = 0; *axis < m->naxes; ++*axis) {
            *at = (first + k) % t->ndims;
            if (!has_axis(t, *axis) && can_shard(m, t->dim[*at], *axis))
                return true;
        }
    return false;
}

// Gathers x, whose dimension `at` is sharded, into a stream dimension.
static int gather_into(maker *m, int x, int at, bool fresh)
{
    tensor t = local_stream(m->tensor[x]);
    int to;

    t.dim[at].blocks = once_in(m, 4) ? 0 : m->axis[t.dim[at].mark];
    t.dim[at].mark = STREAM;
    read_tensor(m, x);
    to = fresh ? add_tensor(m, &t, 't') : place_result(m, &t, true);
    go_on_from(m, to);
    return emit_set(m, to, x);
}

// Gathered from a new input, if a dimension and an axis allow that.
static int add_gathered(maker *m, const tensor *like)
{
    tensor t = *like;
    int at, axis;

    if (!m->streams || !find_shardable(m, like, &at, &axis))
        return add_input(m, like);
    t.dim[at].mark = axis;
    return gather_into(m, add_input(m, &t), at, true);
}

// A late tensor that there is of this shape, and of this dtype and placement or
// such that it may become so; -1 if there is none.
static int find_alike(maker *m, const tensor *like, bool placed)
{
    int skip = pick(m, 3), found = -1;

    for (int i = m->ntensors - 1; i >= 0 && skip >= 0; i--) {
        const tensor *t = &m->tensor[i];

        if (placed ? t->dtype == like->dtype && same_dims(t, like)
                   : same_extents(t, like) &&
                         t->size <= limit_of(m, like->dtype)) {
            found = i;
            skip--;
        }
    }
    return found;
}

// One that there is, placed and typed like `like`, or -1.
static int place_alike(maker *m, const tensor *like)
{
    tensor t = *like;
    int found = find_alike(m, like, false);

    if (found < 0)
        return -1;
    hold_as(&t, &m->tensor[found]);
    return emit_set(m, add_tensor(m, &t, 't'), found);
}

// An operand of this shape, dtype and placement. Statements that make it are
// written here, so no result of the operation that wants it may be there yet.
static int supply(maker *m, const tensor *like)
{
    int how = pick(m, 8), found = -1;

    if (how >= 4)
        found = find_alike(m, like, true);
    else if (how == 3)
        found = place_alike(m, like);
    if (found < 0)
        found = how == 0   ? add_input(m, like)
                : how == 1 ? add_input_part(m, like)
                           : add_gathered(m, like);
    return read_tensor(m, found);
}

// ------------------------------------------------------------- statements

// A statement as it is drawn: which dimensions the letters of its row are, and
// which tensors its views, results first.
typedef struct statement {
    op op;
    const row *row;
    dtype of;        // of what it began from
    int over;        // an inout that the result goes to, or -1
    int inputs;      // operands
    double factor;   // what it multiplies by, at most
    bool keeps;      // one index of what is joined
    bool constant;   // what each rank has whole is as long in every run
    int n[NLETTERS]; // dimensions of each, or UNKNOWN
    dim lies[NLETTERS][HD_MAX_DIMS]; // of no extent: not known
    int tensor[MOST_VIEWS];
    char name[MOST_VIEWS][NAME];
    int numbered;  // the view in whose place a number is, or 0
    tensor number; // how large that is
    tensor result[MOST_RESULTS];
    char keys[KEYS];
    const char *word; // where that is not the op's
    const char *tail; // of what it is added to
} statement;

static bool is_attention(op op)
{
    return op == OP_ATTENTION || op == OP_ATTENTION_GRAD || op == OP_MERGE;
}

static int draw_summands(maker *m)
{
    int n = 1 + pick(m, 4);

    return n == 4 && once_in(m, 4) ? n + pick(m, MAX_SUMMANDS - 3) : n;
}

static statement start(maker *m, op op, dtype of)
{
    int n;
    const row *row = rows_of(op, &n);
    statement s = {op, row + pick(m, n), of, -1, ops[op].inputs, 1, .tail = ""};

    s.keeps = once_in(m, 3);
    if (ops[op].like == FAMILY_FOLD)
        s.inputs = row_has(s.row, KEY_DIM) ? 1 : draw_summands(m);
    s.constant =
        row_has(s.row, KEY_GROUPS) || op == OP_TOP_K || is_attention(op);
    for (int letter = 0; letter < NLETTERS; letter++) {
        s.n[letter] = UNKNOWN;
        for (int at = 0; at < HD_MAX_DIMS; at++)
            s.lies[letter][at].mark = LOCAL;
    }
    s.lies[LETTER_one][0].extent = 1;
    return s;
}

static bool takes(const statement *s, key key)
{
    return (ops[s->op].keys & UINT64_C(1) << key) != 0;
}

static const form *form_of(const statement *s, int view)
{
    return view < s->row->nviews ? &s->row->view[view] : &s->row->rest;
}

static int length_of(const statement *s, uint16_t letter)
{
    if (!s->keeps && letter == LETTER_one)
        return 0;
    return (letter & GROUP) != 0 ? s->n[letter & LETTER] : 1;
}

static dim first_of(const statement *s, uint16_t letter)
{
    return s->lies[letter & LETTER][0];
}

static int indices_of(const maker *m, const statement *s, uint16_t letter)
{
    return count_of(m, first_of(s, letter).extent);
}

// Whether ranks may have blocks of what a letter in lower case is: of what they
// make parts of, which is then added up, and of heads.
static bool may_divide(const statement *s, uint16_t letter, int extent)
{
    bool parts = s->row->view[0].parts && (letter & LETTER) == LETTER_k;
    bool joins = s->row->view[0].joins && (letter & JOINED) != 0;

    return joins && s->op == OP_TAKE
               ? true
               : extent < MANY && (parts || joins || (letter & OVER) != 0);
}

// Whether a run may say how long it is: rows, and keys.
static bool may_vary(const statement *s, uint16_t letter)
{
    return !s->constant || (letter & LETTER) == LETTER_s ||
           (letter & LETTER) == LETTER_t || (letter & LETTER) == LETTER_r;
}

// Whether a letter's dimension can be this one, which it then is.
static bool meet(statement *s, uint16_t letter, int at, dim d)
{
    bool whole =
        (letter & LETTER) > FIRST_LOWER && !may_divide(s, letter, d.extent);
    dim *known = &s->lies[letter & LETTER][at];

    if (whole && (d.mark >= 0 || (d.extent >= MANY && !may_vary(s, letter))))
        return false;
    if (known->extent > 0)
        return same_dim(*known, d);
    *known = d;
    if (whole)
        known->mark = LOCAL;
    return true;
}

// Whether a view of this form can be of this type; how many dimensions groups
// have is drawn where the form does not say it.
static bool bind(maker *m, statement *s, const form *form, const tensor *t)
{
    statement was = *s;
    int left = t->ndims, unknown = 0, d = 0;
    bool fits;

    for (const uint16_t *l = form->letter; *l != NO_LETTER; l++) {
        unknown += length_of(s, *l) == UNKNOWN;
        left -= length_of(s, *l) == UNKNOWN ? 0 : length_of(s, *l);
    }
    fits = unknown > 0 ? left >= 0 : left == 0;
    for (const uint16_t *l = form->letter; fits && *l != NO_LETTER; l++) {
        if (length_of(s, *l) == UNKNOWN) {
            s->n[*l & LETTER] = --unknown > 0 ? pick(m, left + 1) : left;
            left -= s->n[*l & LETTER];
        }
        for (int at = 0; fits && at < length_of(s, *l); at++)
            fits = meet(s, *l, at, t->dim[d++]);
    }
    if (!fits)
        *s = was;
    return fits;
}

static bool lies_over(const statement *s, int axis)
{
    for (int letter = 0; letter < NLETTERS; letter++)
        for (int at = 0; at < HD_MAX_DIMS; at++)
            if (s->lies[letter][at].mark == axis)
                return true;
    return false;
}

// Upper case perhaps on an axis that is not in use.
static dim draw_dim(maker *m, const statement *s, uint16_t letter)
{
    bool fixed = s->constant && (m->nsizes == 0 || !may_vary(s, letter));
    dim d = {fixed ? 1 + pick(m, 6) : draw_extent(m), LOCAL, 0};
    int axis = pick(m, m->naxes);

    if (((letter & LETTER) >= FIRST_LOWER &&
         !may_divide(s, letter, d.extent)) ||
        once_in(m, 2))
        return d;
    if (m->naxes > 0 && !lies_over(s, axis)) {
        if (!can_shard(m, d, axis))
            d.extent = m->axis[axis];
        d.mark = axis;
    } else if ((letter & GROUP) != 0 && m->streams && can_stream(m, d)) {
        d.mark = STREAM;
    }
    return d;
}

static void draw_letters(maker *m, statement *s, const form *form)
{
    for (const uint16_t *l = form->letter; *l != NO_LETTER; l++) {
        if (length_of(s, *l) == UNKNOWN)
            s->n[*l & LETTER] = pick(m, once_in(m, 4) ? 5 : 3);
        for (int at = 0; at < length_of(s, *l); at++)
            if (s->lies[*l & LETTER][at].extent == 0)
                s->lies[*l & LETTER][at] = draw_dim(m, s, *l);
    }
}

// A view's type; what is not known of its letters is drawn. What may repeat
// along it at times lacks dimensions in front, or has one index of some. False
// if it cannot be.
static bool lay(maker *m, statement *s, const form *form, dtype dtype,
                tensor *out)
{
    *out = (tensor){.dtype = dtype, .size = GENERATE_INPUT};
    draw_letters(m, s, form);
    for (const uint16_t *l = form->letter; *l != NO_LETTER; l++) {
        int n = length_of(s, *l), first = 0;
        bool repeats = (*l & (REPEATS | WIDENS)) != 0;

        if ((*l & REPEATS) != 0 && n > 0 && once_in(m, 3))
            first = 1 + pick(m, n);
        while ((*l & FIRST) != 0 && n > 0 && once_in(m, 4))
            n--;
        for (int at = first; at < n; at++)
            append_dim(out, repeats && once_in(m, 6)
                                ? (dim){1, LOCAL, 0}
                                : s->lies[*l & LETTER][at]);
    }
    keep_stream(out);
    return one_axis_each(out) && fits(m, out);
}

static void name_view(statement *s, int view, int tensor)
{
    s->tensor[view] = tensor;
    snprintf(s->name[view], NAME, "%%t%d", tensor);
}

static void add_key(statement *s, const char *format, ...)
{
    size_t length = strlen(s->keys);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(s->keys + length, KEYS - length, format, arguments);
    va_end(arguments);
}

// Counts are an input of their own: nothing else makes them fit.
static int add_counts(maker *m, const tensor *t)
{
    tensor n = local_stream(*t);

    return read_tensor(m, add_input(m, &n));
}

// ---------------------------------------------------------------- operands

static dtype widest(dtype dtype)
{
    return dtype == F64 ? F64 : F32;
}

// What a fold takes beside a dtype: one that it holds, and a sum f32.
static dtype draw_beside(maker *m, op op, dtype dtype)
{
    if (!once_in(m, 3))
        return dtype;
    return op == OP_SUM && dtypes[dtype].floating && once_in(m, 2)
               ? dtype == F64 ? F64 : F32
               : draw_held(m, dtype, false);
}

// What is known of an operand.
static const tensor *operand_of(const maker *m, const statement *s, int view)
{
    return view == s->numbered ? &s->number : &m->tensor[s->tensor[view]];
}

// Of logarithms, beside what has one dimension more.
static bool is_logarithm(const statement *s, int view)
{
    return is_attention(s->op) && form_of(s, view)->letter[3] == NO_LETTER;
}

static dtype draw_operand_dtype(maker *m, const statement *s, int view)
{
    int i = view - ops[s->op].outputs;

    if (is_logarithm(s, view))
        return widest(s->of);
    if (ops[s->op].numbers == NUMBERS_PICK && i == 0)
        return U8;
    if (s->op == OP_TAKE && i == 1)
        return I32;
    if (s->op == OP_MATMUL && dtypes[s->of].exact <= 16 && once_in(m, 2))
        return s->of == F8E4M3 ? F8E5M2 : F8E4M3;
    return ops[s->op].like == FAMILY_FOLD ? draw_beside(m, s->op, s->of)
                                          : s->of;
}

// A late tensor that there is and fits what is known, with what then is known;
// -1 if none does.
static int find_fitting(maker *m, statement *s, int view, dtype dtype)
{
    int skip = pick(m, 3), found = -1;
    statement fitting = *s;

    for (int i = m->ntensors - 1; i >= 0 && skip >= 0; i--) {
        statement with = *s;
        tensor result;

        if (m->tensor[i].dtype == dtype &&
            bind(m, &with, form_of(s, view), &m->tensor[i]) &&
            lay(m, &with, form_of(s, 0), F64, &result)) {
            fitting = with;
            found = i;
            skip--;
        }
    }
    *s = fitting;
    return found;
}

// What %x is where that is positive, and one number elsewhere.
static int keep_positive(maker *m, int x)
{
    static const char *const least[] = {"0.25", "0.5", "1", "2"};
    tensor t = m->tensor[x], one = {.dtype = t.dtype, .size = 2};
    int number, to;

    if (t.positive || !dtypes[t.dtype].floating)
        return x;
    t.positive = true;
    t.size = fmax(t.size, one.size);
    number = read_tensor(m, add_tensor(m, &one, 't'));
    to = add_tensor(m, &t, 't');
    fprintf(m->body, "    %%t%d = fill value %s\n", number, least[pick(m, 4)]);
    fprintf(m->body, "    %%t%d = max %%t%d, %%t%d\n", to, x, number);
    return read_tensor(m, to);
}

// Where an operand is to be positive.
static bool needs_positive(const statement *s, int view)
{
    return s->op == OP_DIV
               ? view == 2
               : s->op == OP_LOG || s->op == OP_SQRT || s->op == OP_RSQRT ||
                     (s->op == OP_POW && view == 1);
}

// An operand that has no name yet: one that there is, or of letters that are
// drawn. So both may have been gathered or computed in one loop. False if it
// cannot be.
static bool supply_view(maker *m, statement *s, int view)
{
    bool named = s->name[view][0] != '\0';
    dtype dtype = draw_operand_dtype(m, s, view);
    int x = named ? s->tensor[view] : -1;
    tensor t;

    if (x < 0 && once_in(m, m->chain ? 2 : 3))
        x = find_fitting(m, s, view, dtype);
    if (x < 0) {
        if (!lay(m, s, form_of(s, view), dtype, &t))
            return false;
        x = supply(m, &t);
    }
    read_tensor(m, x);
    if (needs_positive(s, view))
        x = keep_positive(m, x);
    if (!named || x != s->tensor[view])
        name_view(s, view, x);
    return true;
}

// Whether operand `view`, which is not the first, may be a number: not a mask,
// of no transfer.
static bool takes_number(const statement *s, int view)
{
    return takes(s, KEY_NUMBERS) && !row_has(s->row, KEY_DIM) &&
           s->numbered == 0 && s->name[view][0] == '\0' && view > 1;
}

static void draw_number(maker *m, statement *s, int view)
{
    static const struct {
        const char *text;
        double size;
    } whole[] = {{"2", 2}, {"6 / 2", 3}, {"1", 1}, {"0", 0}},
      any[] = {{"2", 2}, {"1 / 3", 1}, {"0.7", 1}, {"-1.5", 2}};
    bool floating = dtypes[s->of].floating;
    bool fraction = floating && !m->integers;
    int i = pick(m, needs_positive(s, view) ? 3 : 4);

    s->numbered = view;
    s->number = (tensor){.dtype = s->of,
                         .size = fraction ? any[i].size : whole[i].size,
                         .positive = floating && i < 3};
    snprintf(s->name[view], NAME, "%s", fraction ? any[i].text : whole[i].text);
}

// A number may stand first, too.
static void turn_numbers(maker *m, statement *s)
{
    char name[NAME];

    if (s->numbered != 2 || s->inputs != 2 || s->op == OP_DIV ||
        s->op == OP_POW || once_in(m, 2))
        return;
    memcpy(name, s->name[1], NAME);
    memcpy(s->name[1], s->name[2], NAME);
    memcpy(s->name[2], name, NAME);
    s->tensor[2] = s->tensor[1];
    s->numbered = 1;
}

// One f32 for all elements: a number, or a tensor of one element.
static void draw_factor(maker *m, statement *s, const char *key)
{
    static const struct {
        const char *text;
        double size;
    } whole[] = {{"2", 2}, {"-1", 1}, {"6 / 2", 3}, {"0", 1}};
    static const char *const any[] = {"1 / 2", "-1.5", "1e-3", "3 * (1 / 4)"};
    int i = pick(m, 5);

    if (i == 4) {
        tensor t = {.dtype = F32, .ndims = pick(m, 3)};

        t.dim[0] = t.dim[1] = (dim){1, LOCAL, 0};
        i = supply(m, &t);
        s->factor *= m->tensor[i].size;
        add_key(s, " %s %%t%d", key, i);
    } else {
        s->factor *= whole[i].size;
        add_key(s, " %s %s", key, m->integers ? whole[i].text : any[i]);
    }
}

static void draw_factors(maker *m, statement *s)
{
    static const struct {
        key key;
        const char *text;
    } keys[] = {{KEY_SCALE, "scale"}, {KEY_BY, "by"}, {KEY_VALUE, "value"}};

    for (int i = 0; i < 3; i++)
        if (takes(s, keys[i].key) &&
            ((ops[s->op].required & UINT64_C(1) << keys[i].key) != 0 ||
             once_in(m, is_attention(s->op) ? 2 : 4)))
            draw_factor(m, s, keys[i].text);
}

// ----------------------------------------------------------------- results

// A fold's holds what its operands do.
static dtype draw_fold_dtype(maker *m, const statement *s)
{
    dtype wider = draw_held(m, s->of, true);

    for (int i = 1; i <= s->inputs; i++)
        if (!holds(wider, operand_of(m, s, i)->dtype))
            return s->of;
    return wider;
}

static dtype draw_result_dtype(maker *m, const statement *s, int i)
{
    static const dtype any[] = {F32, F16, BF16, F64};

    if (is_logarithm(s, i))
        return widest(s->of);
    if (ops[s->op].numbers == NUMBERS_TEST)
        return U8;
    if (s->op == OP_TOP_K && i == 1)
        return I32;
    if (s->op == OP_MATMUL && s->of == I8) // a factor has no place in integers
        return strstr(s->keys, "scale") != NULL || once_in(m, 2) ? F32 : I32;
    if (s->op == OP_MATMUL && once_in(m, 18))
        return any[pick(m, 4)];
    if (s->op == OP_MATMUL && once_in(m, 3))
        return widest(s->of);
    if (s->op == OP_ATTENTION_GRAD && once_in(m, 2))
        return widest(s->of);
    if ((s->op == OP_SET || s->op == OP_COPY) && once_in(m, 5))
        return draw_dtype(m);
    if (ops[s->op].like == FAMILY_FOLD && s->over < 0)
        return draw_fold_dtype(m, s);
    return s->of;
}

// How large elements of an element-wise op's result may be, and whether they
// are positive.
static void bound_map(const maker *m, const statement *s, tensor *t)
{
    const tensor *x = operand_of(m, s, 1), *y = operand_of(m, s, 2);
    const tensor *z = operand_of(m, s, 3);
    double a = x->size, b = y->size;

    t->positive = false;
    t->size = a;
    switch ((map)s->op) {
    case MAP_ADD:
        t->positive = x->positive && y->positive;
        t->size = a + b;
        break;
    case MAP_SUB:
        t->size = a + b;
        break;
    case MAP_MUL:
        t->size = a * b;
        break;
    case MAP_DIV:
        t->size = dtypes[t->dtype].floating ? a / LEAST : a;
        break;
    case MAP_SELECT:
        t->positive = y->positive && z->positive;
        t->size = fmax(b, z->size);
        break;
    case MAP_FILL:
        t->size = s->factor;
        break;
    case MAP_SCALE:
        t->size = a * s->factor;
        break;
    case MAP_ABS:
    case MAP_RELU:
        t->positive = x->positive;
        break;
    case MAP_NEG:
    case MAP_GELU:
    case MAP_GELU_ERF:
    case MAP_SILU:
        break;
    case MAP_EXP:
        t->positive = a <= 4;
        t->size = exp(a);
        break;
    case MAP_LOG:
        t->size = fmax(fabs(log(a)), -log(LEAST));
        break;
    case MAP_SQRT:
        t->positive = true;
        t->size = sqrt(a);
        break;
    case MAP_RSQRT:
        t->positive = a <= 1 / (LEAST * LEAST);
        t->size = 1 / sqrt(LEAST);
        break;
    case MAP_SIGMOID:
        t->positive = a <= 4;
        t->size = 1;
        break;
    case MAP_FLOOR:
        t->size = a + 1;
        break;
    case MAP_POW: // drawn of few numbers
        t->positive = false;
        t->size = pow(fmax(a, 1 / LEAST), fmax(b, 1));
        break;
    case MAP_SIN:
    case MAP_COS:
    case MAP_AND:
    case MAP_OR:
    case MAP_XOR:
    case MAP_NOT:
    case MAP_LT:
    case MAP_LE:
    case MAP_GT:
    case MAP_GE:
    case MAP_EQ:
    case MAP_NE:
    case MAP_TANH:
        t->size = 1;
        break;
    case MAP_RELU_GRAD:
    case MAP_GELU_GRAD:
    case MAP_GELU_ERF_GRAD:
    case MAP_SILU_GRAD:
        t->size = 1.13 * b; // no slope is steeper
        break;
    }
    if ((t->dtype == U8 || t->dtype == I8) && ops[s->op].numbers == NUMBERS_ANY)
        t->size = dtypes[t->dtype].large; // it wraps
}

// What a sum of products adds up.
static double count_joined(const maker *m, const statement *s)
{
    double n = 1;

    for (const uint16_t *l = form_of(s, 1)->letter; *l != NO_LETTER; l++)
        n *= (*l & JOINED) != 0 ? indices_of(m, s, *l) : 1;
    return n;
}

// Of an attention's gradients. A weight is 1 at most, and there are 32 blocks
// of keys at most.
static double bound_gradient(const maker *m, const statement *s)
{
    const tensor *q = &m->tensor[s->tensor[3]], *k = &m->tensor[s->tensor[4]];
    const tensor *v = &m->tensor[s->tensor[5]], *o = &m->tensor[s->tensor[6]];
    double rows = indices_of(m, s, LETTER_h) * indices_of(m, s, LETTER_s);
    double up = indices_of(m, s, LETTER_e) * (v->size + o->size);

    return GENERATE_INPUT * (1 + up * (q->size + k->size)) *
           (rows + 32 * count_of(m, k->dim[k->ndims - 2].extent)) * s->factor;
}

static void bound_fold(const maker *m, const statement *s, tensor *t)
{
    t->size = 0;
    t->positive = true;
    for (int i = 1; i <= s->inputs; i++) {
        const tensor *x = operand_of(m, s, i);

        t->size = s->op == OP_SUM ? t->size + x->size : fmax(t->size, x->size);
        t->positive &= x->positive;
    }
    if (s->op == OP_SUM)
        t->size *= count_joined(m, s);
}

static double bound_route(const maker *m, const statement *s, int i)
{
    double places = indices_of(m, s, LETTER_c);

    return i == 0   ? indices_of(m, s, LETTER_t)
           : i == 1 ? places * indices_of(m, s, LETTER_e)
                    : places;
}

// How large elements of result `i` may be, and whether they are positive.
static void bound_result(const maker *m, const statement *s, int i, tensor *t)
{
    const tensor *x = &m->tensor[s->tensor[ops[s->op].outputs]];

    if (ops[s->op].like == FAMILY_MAP)
        bound_map(m, s, t);
    else if (ops[s->op].like == FAMILY_FOLD)
        bound_fold(m, s, t);
    else if (s->op == OP_ROUTE)
        t->size = bound_route(m, s, i);
    else if (s->op == OP_TOP_K && i == 1)
        t->size = indices_of(m, s, LETTER_n);
    else if (s->op == OP_IOTA)
        t->size = MOST_START + indices_of(m, s, LETTER_N);
    else if (s->op == OP_MATMUL)
        t->size = x[0].size * m->tensor[s->tensor[2]].size * s->factor *
                  count_joined(m, s);
    else if (s->op == OP_ATTENTION_GRAD)
        t->size = bound_gradient(m, s);
    else if (s->op == OP_ATTENTION)
        t->size = m->tensor[s->tensor[4]].size;
    else if (s->op == OP_MERGE)
        t->size = x->size + GENERATE_INPUT;
    else
        hold_as(t, x);
    // An index of none takes zeros, and what is no fraction is rounded.
    t->positive &= s->op != OP_TAKE && dtypes[t->dtype].floating;
}

// Sums of anything but f64 are in fp32, whatever the result is.
static bool fits_result(const maker *m, const statement *s, const tensor *t)
{
    return fits(m, t) &&
           (s->op != OP_MATMUL || s->of == F64 || t->size <= limit_of(m, F32));
}

// Whether a result may be placed in any way.
static bool is_moved(const statement *s, int i)
{
    const form *form = form_of(s, i);

    return (form->anyhow && !s->keeps) ||
           (form->joins && first_of(s, LETTER_n).mark >= 0);
}

// Whether no two of what letters stand for are over one axis, as ranks that
// have parts of all need it.
static bool axes_apart(const maker *m, const statement *s)
{
    for (int axis = 0; axis < m->naxes; axis++) {
        int n = 0;

        for (int letter = 0; letter < NLETTERS; letter++)
            for (int at = 0; at < HD_MAX_DIMS; at++)
                n += s->lies[letter][at].mark == axis;
        if (n > 1)
            return false;
    }
    return true;
}

static bool lay_results(maker *m, statement *s)
{
    if ((s->row->view[0].joins || s->row->view[0].parts) && !axes_apart(m, s))
        return false;
    for (int i = 0; i < ops[s->op].outputs; i++) {
        tensor *t = &s->result[i];

        if (!lay(m, s, form_of(s, i), draw_result_dtype(m, s, i), t))
            return false;
        if (is_moved(s, i))
            draw_marks(m, t);
        bound_result(m, s, i, t);
        if (s->op == OP_MATMUL && !fits_result(m, s, t))
            t->dtype = widest(s->of);
        if (!fits_result(m, s, t))
            return false;
    }
    return true;
}

// Whether its first operand has counts.
static bool is_counted(const statement *s)
{
    return s->name[ops[s->op].outputs][1] == 'c';
}

// It lies along the columns, and may along what else the result has, or the
// row has for it.
static void draw_bias(maker *m, statement *s)
{
    bool own = s->row->bias.letter[0] != NO_LETTER;
    bool there = own && !is_counted(s);
    const dtype choice[] = {F32, there ? m->tensor[s->tensor[1]].dtype : s->of,
                            s->result[0].dtype};
    dtype dtype = choice[s->of == I8 ? 2 : pick(m, 3)];
    tensor t = s->result[0];
    int bias;

    if (own) {
        if (!lay(m, s, &s->row->bias, dtype, &t))
            return;
    } else {
        t.dtype = dtype;
        drop_dims(&t, 0, once_in(m, 3) ? pick(m, t.ndims) : t.ndims - 1);
        for (int i = 0; i < t.ndims; i++)
            if (t.ndims > 1 && once_in(m, 2))
                t.dim[i] = (dim){1, LOCAL, 0};
    }
    bias = supply(m, &t);
    s->result[0].size += m->tensor[bias].size;
    add_key(s, " bias %%t%d", bias);
}

// What is kept of the product before its activation: a result or an inout,
// perhaps of another dtype.
static void draw_aux(maker *m, statement *s)
{
    static const dtype any[] = {F32, F16, BF16, F64};
    tensor t = s->result[0];
    int aux;

    if (once_in(m, 3))
        t.dtype = any[pick(m, 4)];
    if (!fits(m, &t))
        t.dtype = s->result[0].dtype;
    aux = place_whole(m, &t, true);
    if (m->tensor[aux].role == 'b')
        read_tensor(m, aux); // not the product's place too
    add_key(s, " aux %%t%d", aux);
}

// They lie along the operand; of its last dimensions, none of the batch, one
// may be of several indices.
static void draw_scales(maker *m, statement *s, int view, int grain)
{
    tensor t = m->tensor[s->tensor[view]];
    int scales;

    t.dtype = F32;
    t.size = GENERATE_INPUT;
    for (int d = 0; d < t.ndims; d++) {
        int extent = t.dim[d].extent;

        if (once_in(m, 3))
            t.dim[d] = (dim){1, LOCAL, 0};
        else if (d >= t.ndims - 2 && extent < MANY && t.dim[d].mark < 0 &&
                 extent > grain)
            t.dim[d] = (dim){(extent + grain - 1) / grain, LOCAL, 0};
    }
    scales = supply(m, &t);
    s->result[0].size *= m->tensor[scales].size;
    add_key(s, " scale_%c %%t%d", view == 1 ? 'a' : 'b', scales);
}

static void draw_all_scales(maker *m, statement *s)
{
    int grain = once_in(m, 2) ? 2 + pick(m, 3) : MANY, way = pick(m, 3);

    if (way != 1)
        draw_scales(m, s, 1, grain);
    if (way != 0)
        draw_scales(m, s, 2, grain);
    if (grain < MANY)
        add_key(s, " grain %d", grain);
}

// What a product takes beside its form's keys. Of groups of rows that are
// joined neither bias nor activation; of what is counted no scales.
// False if what is made may be too large.
static bool draw_product_keys(maker *m, statement *s)
{
    static const char *const acts[] = {"relu", "gelu", "gelu_erf", "silu"};
    bool groups = row_has(s->row, KEY_GROUPS);
    bool joins = groups && row_has(s->row, KEY_TA);
    bool counted = is_counted(s);
    bool whole = s->result[0].dtype == I32;

    if (!counted && !whole && once_in(m, 5))
        draw_all_scales(m, s);
    if (!joins && once_in(m, 3))
        draw_bias(m, s);
    if (!fits_result(m, s, &s->result[0]))
        return false;
    if (joins || whole)
        return true;
    if (once_in(m, 3))
        add_key(s, " act %s", acts[m->integers ? 0 : pick(m, 4)]);
    if (once_in(m, 3))
        draw_aux(m, s);
    return true;
}

// The inout that a result is added to, perhaps one that there is; -1 if the sum
// may be too large.
static int draw_target(maker *m, const statement *s, const tensor *result)
{
    // An attention's lies in no loop of its own: lowering cuts it in blocks.
    bool attends = is_attention(s->op);
    int to = attends ? -1 : find_inout(m, result, true);
    tensor t = *result;

    if (to < 0 || once_in(m, 2)) {
        t.size = GENERATE_INPUT;
        to = attends ? add_tensor(m, &t, 'b') : add_result(m, &t, 'b');
    }
    t.size = result->size + m->tensor[to].size;
    if (!fits_result(m, s, &t))
        return -1;
    m->tensor[to].size = t.size;
    m->tensor[to].positive = false;
    return to;
}

// Each is no other one's place. False if it is to be added to what cannot be.
static bool place_results(maker *m, statement *s)
{
    bool keeps = s->op == OP_MATMUL && row_has(s->row, KEY_GROUPS) &&
                 !row_has(s->row, KEY_TA) && once_in(m, 2);
    bool adds =
        takes(s, KEY_ACCUMULATE) &&
        once_in(m, s->op == OP_MATMUL && s->row->counts.letter[0] == NO_LETTER
                       ? 6
                       : 3);

    for (int i = 0; i < ops[s->op].outputs; i++) {
        const tensor *t = &s->result[i];
        int to = adds ? draw_target(m, s, t) : s->over;

        if (adds && to < 0 && i > 0)
            return false;
        adds = adds && to >= 0;
        if (to < 0)
            to = place_any(m, t, !is_moved(s, i), is_counted(s));
        if (s->over >= 0)
            hold_as(&m->tensor[to], t);
        if (m->tensor[to].role == 'b')
            read_tensor(m, to);
        name_view(s, i, to);
        if (is_logarithm(s, i))
            m->tensor[to].size = INFINITY; // of a row that sees nothing
    }
    s->tail = !adds ? "" : keeps ? " keep" : " accumulate";
    return true;
}

// What the keys of the form need is made, and they are written. False if it
// cannot be.
static bool draw_form(maker *m, statement *s)
{
    const row *row = s->row;
    tensor n;

    if (row_has(row, KEY_TA))
        add_key(s, " ta");
    if (row_has(row, KEY_TB))
        add_key(s, " tb");
    if (row_has(row, KEY_DIM))
        add_key(s, " dim %d", s->n[row->ahead & LETTER]);
    if (takes(s, KEY_START) && once_in(m, 3))
        add_key(s, " start %d", pick(m, MOST_START + 1));
    if (row_has(row, KEY_BLOCKS))
        add_key(s, " blocks");
    if (!row_has(row, KEY_GROUPS))
        return true;
    if (!lay(m, s, &row->counts, I32, &n))
        return false;
    add_key(s, " groups %%t%d", add_counts(m, &n));
    return true;
}

// An order of `n` numbers.
static void draw_order(maker *m, int n, int *order)
{
    for (int i = 0; i < n; i++) {
        int at = pick(m, i + 1);

        order[i] = order[at];
        order[at] = i;
    }
}

static const char *order_text(const int *order, int n, char text[KEYS])
{
    size_t length = (size_t)snprintf(text, KEYS, " order (");

    for (int i = 0; i < n; i++)
        length += (size_t)snprintf(text + length, KEYS - length, "%s%d",
                                   i > 0 ? ", " : "", order[i]);
    snprintf(text + length, KEYS - length, ")");
    return text;
}

static void permute(maker *m, statement *s)
{
    tensor *t = &s->result[0], of = *t;
    int order[HD_MAX_DIMS];
    char text[KEYS];

    draw_order(m, t->ndims, order);
    for (int i = 0; i < t->ndims; i++)
        t->dim[i] = of.dim[order[i]];
    add_key(s, "%s", order_text(order, t->ndims, text));
}

// Two dimensions change places, in either order, or one with itself. The last
// two need no word.
static void transpose(maker *m, statement *s)
{
    tensor *t = &s->result[0];
    int i = pick(m, t->ndims), j = pick(m, t->ndims);
    dim dim = t->dim[i];

    t->dim[i] = t->dim[j];
    t->dim[j] = dim;
    if (i + j != 2 * t->ndims - 3)
        add_key(s, " dim0 %d dim1 %d", i, j);
}

static void write_statement(maker *m, const statement *s)
{
    int results = ops[s->op].outputs;

    for (int i = 0; i < results; i++)
        fprintf(m->body, "%s%s", i == 0 ? "    " : ", ", s->name[i]);
    fprintf(m->body, " = %s", s->word != NULL ? s->word : ops[s->op].text);
    for (int i = 0; i < s->inputs; i++)
        fprintf(m->body, "%s%s", i == 0 ? " " : ", ", s->name[results + i]);
    fprintf(m->body, "%s%s\n", s->keys, s->tail);
}

// With operands and their keys. False if it cannot be.
static bool finish(maker *m, statement *s)
{
    if (!lay_results(m, s))
        return false;
    if (s->op == OP_MATMUL && !draw_product_keys(m, s))
        return false;
    if (s->op == OP_TRANSPOSE)
        transpose(m, s);
    if (s->op == OP_PERMUTE)
        permute(m, s);
    if (!place_results(m, s))
        return false;
    write_statement(m, s);
    return true;
}

static bool supply_all(maker *m, statement *s)
{
    for (int i = 0; i < s->inputs; i++) {
        int view = ops[s->op].outputs + i;

        if (takes_number(s, view) && once_in(m, 4))
            draw_number(m, s, view);
        else if (!supply_view(m, s, view))
            return false;
    }
    turn_numbers(m, s);
    draw_factors(m, s);
    return draw_form(m, s);
}

static dtype draw_heads_dtype(maker *m)
{
    dtype dtype = once_in(m, 3) ? F32 : draw_dtype(m);

    return dtype > BF16 ? BF16 : dtype;
}

// Whether it may begin from this.
static bool suits(op op, const tensor *x)
{
    return op == OP_ROUTE       ? x->dtype == I32
           : op == OP_MATMUL    ? dtypes[x->dtype].floating || x->dtype == I8
           : op == OP_TRANSPOSE ? x->ndims > 0
           : is_attention(op)   ? x->dtype <= BF16
                                : true;
}

// A form of the op of which %x can be the first operand. False if there is
// none.
static bool begin(maker *m, statement *s, op op, int x)
{
    int view = ops[op].outputs;

    for (int tries = 12; suits(op, &m->tensor[x]) && tries > 0; tries--) {
        *s = start(m, op, m->tensor[x].dtype);
        if (bind(m, s, form_of(s, view), &m->tensor[x])) {
            name_view(s, view, x);
            return true;
        }
    }
    return false;
}

// A product of groups of rows, which few operands can be: of new ones. False if
// none is drawn.
static bool begin_groups(maker *m, statement *s, const tensor *x)
{
    for (int tries = 12; suits(OP_MATMUL, x) && tries > 0; tries--) {
        *s = start(m, OP_MATMUL, x->dtype);
        if (row_has(s->row, KEY_GROUPS))
            return true;
    }
    return false;
}

// An op whose results its operands make.
static void make_any(maker *m, op op, int x)
{
    statement s;

    if (op == OP_TRANSPOSE && once_in(m, 2))
        op = OP_PERMUTE;
    if (!(op == OP_MATMUL && once_in(m, 8) &&
          begin_groups(m, &s, &m->tensor[x])) &&
        !begin(m, &s, op, x)) {
        if (op != OP_ROUTE && op != OP_MERGE)
            return;
        s = start(m, op, op == OP_ROUTE ? I32 : draw_heads_dtype(m));
    }
    s.keeps &= op != OP_SET && first_of(&s, LETTER_K).mark < 0;
    if (op == OP_SUM && row_has(s.row, KEY_DIM) && dtypes[s.of].floating &&
        !m->integers && once_in(m, 3))
        s.word = "mean";
    if (op == OP_TOP_K)
        s.lies[LETTER_k][0] =
            (dim){1 + pick(m, indices_of(m, &s, LETTER_n)), LOCAL, 0};
    if (supply_all(m, &s))
        finish(m, &s);
}

// ------------------------------------------------------------- operations

static void draw_extents(maker *m, tensor *t)
{
    for (int n = 2 + pick(m, 3); n > 0; n--)
        append_dim(t, (dim){draw_extent(m), LOCAL, 0});
    if (once_in(m, 12))
        for (int n = 1 + pick(m, HD_MAX_DIMS - t->ndims); n > 0; n--)
            append_dim(t, (dim){1 + once_in(m, 4), LOCAL, 0});
}

static void gather_input(maker *m)
{
    tensor t = {.dtype = draw_dtype(m), .size = GENERATE_INPUT};
    int axis = pick(m, m->naxes), at;

    draw_extents(m, &t);
    draw_marks(m, &t);
    for (int i = 0; i < t.ndims; i++)
        if (t.dim[i].mark == axis)
            t.dim[i].mark = LOCAL;
    at = once_in(m, 4) ? pick(m, t.ndims) : 0;
    t.dim[at].mark = LOCAL;
    if ((!m->blocks && t.dim[at].extent < MANY) ||
        !can_shard(m, t.dim[at], axis) || once_in(m, 3))
        t.dim[at].extent = m->axis[axis];
    t.dim[at].mark = axis;
    if (fits(m, &t))
        gather_into(m, add_input(m, &t), at, false);
}

// What can be pipelined: a dimension goes from sharded to stream. Of a new
// input, or of what there is.
static void make_gather(maker *m)
{
    int skip = once_in(m, 4) ? pick(m, 4) : -1;

    for (int x = m->ntensors - 1; x >= 0 && skip >= 0; x--)
        for (int at = 0; at < m->tensor[x].ndims; at++)
            if (m->tensor[x].dim[at].mark >= 0 && skip-- == 0) {
                gather_into(m, x, at, false);
                return;
            }
    gather_input(m);
}

// An input with a stream dimension beside one over ranks: what is computed on
// it has collectives a tile.
static void stream_input(maker *m)
{
    tensor t = {.dtype = draw_dtype(m), .size = GENERATE_INPUT};
    int axis = pick(m, m->naxes), at;

    draw_extents(m, &t);
    if (t.ndims == HD_MAX_DIMS)
        return;
    at = once_in(m, 3);
    insert_dim(&t, 0, t.dim[0]);
    t.dim[at] = (dim){m->axis[axis], axis, 0};
    t.dim[1 - at] = (dim){2 + pick(m, 4), STREAM, 0};
    if (once_in(m, 2))
        t.dim[2].extent = m->axis[axis]; // it may be sharded instead
    add_marks(m, &t);
    if (fits(m, &t))
        go_on_from(m, add_input(m, &t));
}

static void write_sized(maker *m, dim d, FILE *to)
{
    const size *size = size_of(m, d.extent);
    int times = d.extent % MANY;

    if (times > 1)
        fprintf(to, "%d * ", times);
    fprintf(to, "m%d", (int)(size - m->size));
    if (size->blocks > 0 && ((d.mark == STREAM && once_in(m, 2)) ||
                             (d.mark == LOCAL && once_in(m, 4))))
        fprintf(to, " in %d", size->blocks);
}

static void write_dim(maker *m, dim d, FILE *to)
{
    if (d.extent >= MANY)
        write_sized(m, d, to);
    else if (d.mark >= 0 && d.extent == m->axis[d.mark] && once_in(m, 4))
        fprintf(to, "size %s", axis_names[d.mark]);
    else
        fprintf(to, "%d", d.extent);
    if (d.extent < MANY && d.mark == STREAM && d.blocks > 0)
        fprintf(to, " in %d", d.blocks);
    if (d.mark != LOCAL)
        fprintf(to, " @%s", d.mark >= 0 ? axis_names[d.mark] : "stream");
}

// A declaration up to its type; dimension `counted` has counts, or none is -1.
static void write_type(maker *m, const char *name, int number, const tensor *t,
                       int counted, int counts, FILE *to)
{
    fprintf(to, " %%%s%d : %s[", name, number, dtypes[t->dtype].text);
    for (int d = 0; d < t->ndims; d++) {
        fprintf(to, "%s", d > 0 ? ", " : "");
        write_dim(m, t->dim[d], to);
        if (d == counted)
            fprintf(to, " by %%t%d", counts);
    }
    fprintf(to, "]");
}

// The ranks from `low` on of an axis.
typedef struct ranks {
    int axis, low, n;
} ranks;

static ranks draw_ranks(maker *m, int axis)
{
    int low = pick(m, m->axis[axis]);

    return (ranks){axis, low,
                   once_in(m, 3) ? 1 + pick(m, m->axis[axis] - low) : 1};
}

// On ranks of an axis, which does not shard it.
static int declare_staged(maker *m, tensor *t, ranks on)
{
    for (int d = 0; d < t->ndims; d++)
        if (t->dim[d].mark == on.axis)
            t->dim[d].mark = LOCAL;
    fprintf(m->counted, "temp");
    write_type(m, "s", m->nstaged, t, -1, 0, m->counted);
    fprintf(m->counted, " on %s %d", axis_names[on.axis], on.low);
    if (on.n > 1)
        fprintf(m->counted, "..%d", on.low + on.n);
    fprintf(m->counted, "\n");
    return m->nstaged++;
}

// Perhaps one rank's index of a dimension of which each has one: no tensor that
// others may read, as it is on that rank alone.
static tensor draw_index(maker *m, int x)
{
    tensor part = m->tensor[x];
    int at = 0, n = part.ndims;

    part.view[0] = '\0';
    while (at < n && (part.dim[at].mark < 0 ||
                      part.dim[at].extent != m->axis[part.dim[at].mark]))
        at++;
    if (at == n || !once_in(m, 3))
        return part;
    for (int d = 0; d < n; d++)
        view_dim(&part, d == at ? pick(m, part.dim[d].extent) : 0,
                 part.dim[d].extent, part.dim[d].extent, d == at);
    strcat(part.view, "]");
    drop_dims(&part, at, 1);
    return part;
}

// What is on some ranks is computed on there, or moved to others, mostly of the
// same axis.
static void go_on_staged(maker *m, tensor *t, ranks *on)
{
    int from = m->nstaged - 1;

    if (once_in(m, 2)) {
        fprintf(m->body, "    %%s%d = max %%s%d, %%s%d\n",
                declare_staged(m, t, *on), from, from);
        return;
    }
    *on = draw_ranks(m, once_in(m, 5) ? pick(m, m->naxes) : on->axis);
    if (once_in(m, 3))
        draw_marks(m, t);
    fprintf(m->body, "    %%s%d = set %%s%d\n", declare_staged(m, t, *on),
            from);
}

// In the end it is moved to all.
static void make_staged(maker *m, int x)
{
    ranks on;
    tensor t;

    if (m->naxes == 0 || m->tensor[x].role == 'p')
        return;
    on = draw_ranks(m, pick(m, m->naxes));
    t = draw_index(m, x);
    fprintf(m->body, "    %%s%d = set %%t%d%s\n", declare_staged(m, &t, on),
            read_tensor(m, x), t.view);
    for (int n = pick(m, 6); n > 0; n--)
        go_on_staged(m, &t, &on);
    if (!once_in(m, 3))
        draw_marks(m, &t);
    fprintf(m->body, "    %%t%d = set %%s%d\n", place_result(m, &t, false),
            m->nstaged - 1);
}

// Joins a dimension of %x; what is left is placed as `t` is.
static void join_dim(maker *m, int x, tensor t, int d, op op)
{
    t.dtype = draw_held(m, t.dtype, true);
    if (op == OP_SUM)
        t.size *= count_of(m, t.dim[d].extent);
    drop_dims(&t, d, 1);
    if (!fits(m, &t))
        return;
    read_tensor(m, x);
    fprintf(m->body, "    %%t%d = %s %%t%d dim %d\n", place_result(m, &t, true),
            ops[op].text, x, d);
}

// A collective over the axis of a sharded dimension that leaves the stream
// dimension where it is: that dimension is gathered, or changes places with
// another, or is reduced, perhaps to be scattered.
static void make_tiles(maker *m, int x)
{
    tensor t = m->tensor[x];
    bool reduces = once_in(m, 2), moves = once_in(m, 2);
    int d = 0, to;

    while (d < t.ndims && t.dim[d].mark < 0)
        d++;
    if (d == t.ndims) {
        if (m->naxes > 0 && m->streams)
            stream_input(m);
        return;
    }
    to = moves ? find_local(m, &t, t.dim[d].mark) : -1;
    if (to >= 0)
        t.dim[to].mark = t.dim[d].mark;
    t.dim[d].mark = LOCAL;
    read_tensor(m, x);
    if (reduces)
        join_dim(m, x, t, d, draw_fold(m));
    else
        emit_set(m, place_result(m, &t, true), x);
}

// ---------------------------------------------------------- element by element

// The result of an operand that repeats along it.
static void widen(maker *m, tensor *t)
{
    dim more = {draw_extent(m), LOCAL, 0};

    for (int i = 0; i < t->ndims; i++)
        if (t->dim[i].extent == 1 && t->dim[i].mark == LOCAL)
            t->dim[i].extent = draw_extent(m);
    if (t->ndims < HD_MAX_DIMS && !once_in(m, 2))
        insert_dim(t, 0, more);
}

// What can be of the tensor; with `integers` what is exact.
static bool allows(const maker *m, op op, const tensor *t, bool over)
{
    bool floating = dtypes[t->dtype].floating;

    if (m->integers && floating && op == OP_DIV)
        return false;
    switch (ops[op].numbers) {
    case NUMBERS_ANY:
    case NUMBERS_PICK:
        break;
    case NUMBERS_FLOAT:
        return floating &&
               (!m->integers || op == OP_RELU || op == OP_RELU_GRAD);
    case NUMBERS_TEST:
        return !over || t->dtype == U8;
    case NUMBERS_LOGIC:
        return t->dtype == U8;
    }
    return true;
}

// Of a result like `t`, operand `at` is %x.
static void finish_like(maker *m, statement *s, const tensor *t, int at, int x,
                        bool over)
{
    bind(m, s, form_of(s, 0), t);
    if (s->inputs > 0)
        name_view(s, 1 + at, x);
    if (over)
        s->over = x;
    if (supply_all(m, s))
        finish(m, s);
}

static void map_onto(maker *m, int x, bool over)
{
    tensor t = m->tensor[x];
    int at, k = pick(m, NMAPS);
    dtype of = t.dtype;
    statement s;

    while (!allows(m, maps[k], &t, over))
        k = (k + 1) % NMAPS;
    if (!over && once_in(m, 8))
        widen(m, &t);
    at = pick(m, ops[maps[k]].inputs);
    if (ops[maps[k]].numbers == NUMBERS_PICK && at == 0 && of == U8)
        of = over ? U8 : draw_dtype(m);
    else if (ops[maps[k]].numbers == NUMBERS_PICK && at == 0)
        at = 1;
    s = start(m, maps[k], of);
    finish_like(m, &s, &t, at, x, over);
}

// Several operands joined to one, of which %x is not always the first.
static void fold_onto(maker *m, int x, bool over)
{
    const tensor t = m->tensor[x];
    statement s = start(m, once_in(m, 2) ? draw_fold(m) : OP_SUM, t.dtype);
    int n;

    s.row = rows_of(s.op, &n); // and not along a dimension
    s.inputs = draw_summands(m);
    finish_like(m, &s, &t, once_in(m, 2) ? pick(m, s.inputs) : 0, x, over);
}

static void make_map(maker *m, int x)
{
    map_onto(m, x, false);
}

static void make_fold(maker *m, int x)
{
    fold_onto(m, x, false);
}

// An inout of what x is, perhaps one that there is.
static int draw_inout(maker *m, const tensor *like)
{
    tensor t = *like;
    int to = find_inout(m, &t, true);

    if (to >= 0)
        return to;
    t.size = GENERATE_INPUT;
    t.positive = false;
    return add_tensor(m, &t, 'b');
}

// Where elements of such a tensor are along a dimension.
static void make_iota(maker *m, int x)
{
    tensor t = m->tensor[x];
    statement s = start(m, OP_IOTA, once_in(m, 4) ? I64 : I32);

    t.dtype = s.of;
    if (t.ndims > 0)
        finish_like(m, &s, &t, 0, x, false);
}

// Element by element over itself: only an inout is written again and again.
static void make_update(maker *m, int x)
{
    int to = draw_inout(m, &m->tensor[x]);

    if (once_in(m, 3))
        fold_onto(m, to, true);
    else
        map_onto(m, to, true);
}

// Whether ranks have as many indices of it as each other.
static bool is_even(const maker *m, dim d)
{
    return d.mark < 0 || (d.extent < MANY && d.extent % m->axis[d.mark] == 0);
}

// Of what a run says the length of, the one dimension that nothing cuts, with
// constants.
static bool may_join(const maker *m, const tensor *t, dim a, dim b)
{
    const size *x = size_of(m, a.extent), *y = size_of(m, b.extent);
    int sized = 0;

    for (int d = 0; d < t->ndims; d++)
        sized += t->dim[d].extent >= MANY;
    if (x == NULL && y == NULL)
        return true;
    return sized == 1 && a.mark == LOCAL && b.mark == LOCAL &&
           (x != NULL ? x : y)->blocks == 0;
}

static int times(int a, int b)
{
    int many = (a >= MANY ? a : b) / MANY * MANY;

    return many + a % MANY * (b % MANY);
}

static void merge_dims(maker *m, tensor *t, int at)
{
    dim *d = &t->dim[at];

    if (at + 1 >= t->ndims || d[1].mark >= 0 || !may_join(m, t, *d, d[1]) ||
        (!is_even(m, *d) && d[1].extent > 1))
        return;
    *d = (dim){times(d->extent, d[1].extent), d->mark, 0};
    drop_dims(t, at + 1, 1);
}

static void split_dim(maker *m, tensor *t, int at)
{
    dim *d = &t->dim[at];
    int factor = 1 + pick(m, 4), many = d->extent / MANY * MANY;
    dim outer = {many + d->extent % MANY / factor, d->mark, 0};

    if (t->ndims == HD_MAX_DIMS || d->extent % MANY % factor != 0 ||
        (factor > 1 && many > 0 && !may_join(m, t, *d, (dim){1, LOCAL, 0})) ||
        (factor > 1 && !(is_even(m, *d) && is_even(m, outer))))
        return;
    if (factor == 1)
        outer.blocks = d->blocks;
    *d = outer;
    insert_dim(t, at + 1, (dim){factor, LOCAL, 0});
}

static void make_reshape(maker *m, int x)
{
    tensor t = m->tensor[x];

    if (t.role == 'p')
        return;
    for (int n = 1 + pick(m, 3); n > 0 && t.ndims > 0; n--)
        (once_in(m, 2) ? merge_dims : split_dim)(m, &t, pick(m, t.ndims));
    if (!fits(m, &t))
        return;
    read_tensor(m, x);
    fprintf(m->body, "    %%t%d = reshape %%t%d\n", place_whole(m, &t, true),
            x);
}

// ------------------------------------------------------ tensors with counts

// Which dimension has them, whose they are, of how many dimensions, and its own
// number.
typedef struct counting {
    tensor t;
    int dim, lead;
    int counts, number;
    int like; // a tensor whose elements are as large
} counting;

// A dimension that may have counts: local, and as long in every run; -1 if
// there is none.
static int find_countable(maker *m, const tensor *t)
{
    int first = pick(m, t->ndims);

    for (int k = 0; k < t->ndims; k++)
        if (is_constant(t->dim[(first + k) % t->ndims]))
            return (first + k) % t->ndims;
    return -1;
}

// Counts are of the first dimensions of the `most` that there are.
static void draw_lead(maker *m, counting *c, int most)
{
    for (c->lead = 0; c->lead < most && !once_in(m, 4); c->lead++)
        ;
}

static tensor counts_of(const counting *c)
{
    tensor n = {.dtype = I32};

    for (int d = 0; d < c->lead; d++)
        append_dim(&n, c->t.dim[d]);
    return n;
}

static void declare_counted(maker *m, const char *role, counting *c)
{
    c->number = m->ncounted++;
    fprintf(m->counted, "%s", role);
    write_type(m, "c", c->number, &c->t, c->dim, c->counts, m->counted);
    fprintf(m->counted, "\n");
}

// Of %x; of an argument if that is none.
static void begin_counted(maker *m, counting *c, int x)
{
    tensor n = counts_of(c);

    c->counts = add_counts(m, &n);
    c->like = x < 0 ? c->counts : x;
    c->t.positive = false;
    if (x < 0)
        c->t.size = GENERATE_INPUT;
    declare_counted(m, x < 0 ? "in" : "temp", c);
    if (x >= 0)
        fprintf(m->body, "    %%c%d = copy %%t%d\n", c->number,
                read_tensor(m, x));
}

// What is left of it: dense, placed otherwise or summed.
static void leave_counted(maker *m, counting *c)
{
    int over = pick(m, c->t.ndims);
    tensor t = c->t, sum = c->t;

    sum.dtype = draw_held(m, sum.dtype, true);
    sum.size *= count_of(m, sum.dim[over].extent);
    drop_dims(&sum, over, 1);
    if (once_in(m, 2) && fits(m, &sum)) {
        fprintf(m->body, "    %%t%d = sum %%c%d dim %d\n",
                place_result(m, &sum, false), c->number, over);
    } else if (once_in(m, 2)) {
        draw_marks(m, &t);
        fprintf(m->body, "    %%t%d = set %%c%d\n", place_result(m, &t, false),
                c->number);
    } else {
        fprintf(m->body, "    %%t%d = copy %%c%d\n", place_result(m, &t, true),
                c->number);
    }
}

static void make_counted(maker *m, int x)
{
    counting c = {.t = m->tensor[x]};

    c.dim = find_countable(m, &c.t);
    if (c.dim < 0)
        return;
    draw_lead(m, &c, c.dim);
    begin_counted(m, &c, x);
    if (once_in(m, 2)) {
        fprintf(m->body, "    %%c%d = max %%c%d, %%t%d\n", m->ncounted,
                c.number, x);
        declare_counted(m, "temp", &c);
    }
    leave_counted(m, &c);
}

static void make_copy(maker *m, int x)
{
    if (once_in(m, 4))
        make_counted(m, x);
    else
        make_any(m, OP_COPY, x);
}

static void make_reduction(maker *m, int x)
{
    make_any(m, draw_fold(m), x);
}

// One behind the other along a dimension that every rank has whole, all of it a
// number or all of it one size.
static void make_concat(maker *m, int x)
{
    tensor t = m->tensor[x], one = t;
    int n = 1 + pick(m, 3), d, more, other[3];

    if (t.ndims == 0)
        return;
    d = pick(m, t.ndims);
    if (t.dim[d].mark != LOCAL)
        return;
    more = t.dim[d].extent;
    read_tensor(m, x);
    for (int i = 0; i < n; i++) {
        one.dim[d].extent = more / MANY * MANY + 1 + pick(m, 3);
        t.dim[d].extent += one.dim[d].extent % MANY;
        if (!fits(m, &t))
            return;
        other[i] = supply(m, &one);
        t.size = fmax(t.size, m->tensor[other[i]].size);
        t.positive &= m->tensor[other[i]].positive;
    }
    if (once_in(m, 3))
        draw_marks(m, &t);
    fprintf(m->body, "    %%t%d = concat %%t%d", place_whole(m, &t, false), x);
    for (int i = 0; i < n; i++)
        fprintf(m->body, ", %%t%d", other[i]);
    fprintf(m->body, " dim %d\n", d);
}

// What experts have of each rank: the first two dimensions may be on one axis.
static tensor draw_slots(maker *m)
{
    tensor t = {.dtype = draw_dtype(m), .size = GENERATE_INPUT};
    int axis = pick(m, m->naxes);

    append_dim(&t, (dim){m->axis[axis], axis, 0});
    append_dim(&t, (dim){m->axis[axis], LOCAL, 0});
    for (int d = 0; m->blocks && d < 2; d++)
        t.dim[d].extent = 1 + pick(m, 7);
    append_dim(&t, (dim){1 + pick(m, 6), LOCAL, 0});
    append_dim(&t, (dim){1 + pick(m, 4), LOCAL, 0});
    add_marks(m, &t);
    t.dim[2].mark = LOCAL; // what is counted
    return t;
}

// A mark goes from one of the counts' dimensions to another, or any placement
// that leaves what is counted whole.
static void move_marks(maker *m, counting *c)
{
    tensor n = counts_of(c);
    int from = 0, to = -1, axis = LOCAL;

    while (from < n.ndims && n.dim[from].mark < 0)
        from++;
    if (from < n.ndims && !once_in(m, 4)) {
        axis = n.dim[from].mark;
        to = find_local(m, &n, axis);
    }
    if (to >= 0) {
        c->t.dim[from].mark = LOCAL;
        c->t.dim[to].mark = axis;
        return;
    }
    draw_marks(m, &c->t);
    c->t.dim[c->dim].mark = LOCAL;
}

// Both the counts and what they count are moved, or both are turned.
static void move_counted(maker *m, counting *c)
{
    counting from = *c;
    const char *op = "set", *keys = "", *all = "";
    char text[2][KEYS];
    int order[HD_MAX_DIMS];
    tensor n;

    if (c->lead > 1 && once_in(m, 4)) {
        draw_order(m, c->lead, order);
        for (int i = 0; i < c->t.ndims; i++) {
            order[i] = i < c->lead ? order[i] : i;
            c->t.dim[i] = from.t.dim[order[i]];
        }
        op = "permute";
        keys = order_text(order, c->lead, text[0]);
        all = order_text(order, c->t.ndims, text[1]);
        if (c->lead == 2 && once_in(m, 2)) {
            op = "transpose";
            keys = all = order[0] > 0 ? " dim0 0 dim1 1" : " dim0 1 dim1 1";
        }
    } else {
        move_marks(m, c);
    }
    n = local_stream(counts_of(c));
    c->counts = read_tensor(m, add_tensor(m, &n, 't'));
    declare_counted(m, once_in(m, 6) ? "out" : "temp", c);
    fprintf(m->body, "    %%t%d = %s %%t%d%s\n", c->counts, op, from.counts,
            keys);
    fprintf(m->body, "    %%c%d = %s %%c%d%s\n", c->number, op, from.number,
            all);
}

// Rows that are counted, each by a matrix. False if none fits.
static bool multiply_counted(maker *m, const counting *c)
{
    statement s = start(m, OP_MATMUL, c->t.dtype);
    int n;

    s.row = rows_of(OP_MATMUL, &n);
    s.n[LETTER_B] = 0;
    if (!suits(OP_MATMUL, &c->t) || c->dim == c->t.ndims - 1 ||
        !bind(m, &s, form_of(&s, 1), &c->t) ||
        first_of(&s, LETTER_k).mark >= 0) // it is done where it stands
        return false;
    name_view(&s, 1, c->like);
    snprintf(s.name[1], NAME, "%%c%d", c->number);
    return supply_all(m, &s) && finish(m, &s);
}

// What has counts is seen from elsewhere by counts that were moved alike.
static void make_moved(maker *m, int x)
{
    counting c = {.t = m->tensor[x]};

    if (m->naxes > 0 && !once_in(m, 3)) {
        c.t = draw_slots(m);
        c.dim = 2;
        if (!fits(m, &c.t))
            return;
        x = once_in(m, 3) ? -1 : add_input(m, &c.t);
    } else {
        c.dim = find_countable(m, &c.t);
    }
    if (c.dim < 1)
        return;
    c.lead = once_in(m, 5) ? 1 + pick(m, c.dim) : c.dim;
    begin_counted(m, &c, once_in(m, 4) ? -1 : x);
    for (int n = 1 + pick(m, 3); n > 0; n--)
        move_counted(m, &c);
    if (once_in(m, 3) && multiply_counted(m, &c))
        return;
    leave_counted(m, &c);
}

// Whether the numbers of an op may be zeros.
static bool takes_zeros(op op)
{
    return op != OP_DIV && op != OP_LOG && op != OP_SQRT && op != OP_RSQRT &&
           op != OP_POW;
}

// %c for the first operand of an op whose results are dense.
static void use_counted(maker *m, const counting *c, op op)
{
    statement s;
    int view = ops[op].outputs;

    if (op == OP_TOP_K && c->dim == c->t.ndims - 1)
        return; // of fewer there are none so many
    for (int tries = 12; suits(op, &c->t) && tries > 0; tries--) {
        s = start(m, op, c->t.dtype);
        if (!bind(m, &s, form_of(&s, view), &c->t) ||
            first_of(&s, LETTER_k).mark >= 0)
            continue;
        s.keeps &= first_of(&s, LETTER_K).mark < 0;
        name_view(&s, view, c->like);
        snprintf(s.name[view], NAME, "%%c%d", c->number);
        if (op == OP_TOP_K)
            s.lies[LETTER_k][0] =
                (dim){1 + pick(m, indices_of(m, &s, LETTER_n)), LOCAL, 0};
        if (supply_all(m, &s))
            finish(m, &s);
        return;
    }
}

static void map_counted(maker *m, const counting *c)
{
    int k = pick(m, NMAPS);

    while (!allows(m, maps[k], &c->t, false) || !takes_zeros(maps[k]) ||
           ops[maps[k]].numbers == NUMBERS_PICK || ops[maps[k]].inputs == 0)
        k = (k + 1) % NMAPS;
    use_counted(m, c, maps[k]);
}

// What some of it is, in a tensor without counts; a maximum of no rows is the
// least number, and nothing goes on from it. It has all that counts are of.
static void part_counted(maker *m, const counting *c)
{
    static const op each[] = {OP_COPY, OP_NEG, OP_ABS};
    tensor part = c->t;
    bool joins = once_in(m, 2);
    op op = joins ? draw_fold(m) : each[pick(m, 3)];
    int over;

    part.ndims = 0;
    part.view[0] = '\0';
    for (int d = 0; d < c->t.ndims; d++) {
        dim kept = c->t.dim[d];
        int n = joins && d < c->lead ? 0 : least_of(m, kept), first = 0;
        bool picks = n > 0 && c->t.ndims > 1 && once_in(m, 4);

        if (n > 0 && !picks && (d == c->dim || once_in(m, 3))) {
            kept = (dim){1 + pick(m, n), LOCAL, 0};
            first = pick(m, n - kept.extent + 1);
        } else if (picks) {
            first = pick(m, n);
        }
        view_dim(&part, first, kept.extent, c->t.dim[d].extent, picks);
        if (!picks)
            append_dim(&part, kept);
    }
    if (joins && part.ndims > 0) {
        over = pick(m, part.ndims);
        part.size *= count_of(m, part.dim[over].extent);
        drop_dims(&part, over, 1);
    } else {
        joins = false;
        op = OP_COPY;
    }
    part = local_stream(part);
    if (!fits(m, &part) || !one_axis_each(&part))
        return;
    fprintf(m->counted, "out");
    write_type(m, "c", m->ncounted, &part, -1, 0, m->counted);
    fprintf(m->counted, "\n");
    fprintf(m->body, "    %%c%d = %s %%c%d%s]", m->ncounted++, ops[op].text,
            c->number, part.view);
    if (joins)
        fprintf(m->body, " dim %d", over);
    fprintf(m->body, "\n");
}

// Element by element with what other counts count, by either's or by none.
static void join_counted(maker *m, counting *c, int x)
{
    static const op joins[] = {OP_ADD, OP_SUB, OP_MUL, OP_SUM, OP_MAX, OP_MIN};
    counting other = *c, result;
    op op = joins[pick(m, 6)];
    int kind;

    draw_lead(m, &other, c->dim);
    begin_counted(m, &other, once_in(m, 2) ? -1 : x);
    result = once_in(m, 2) ? *c : other;
    result.t.size =
        op == OP_MUL ? c->t.size * other.t.size : c->t.size + other.t.size;
    if (!fits(m, &result.t))
        return;
    kind = pick(m, 3);
    if (kind == 0) {
        int to = place_whole(m, &result.t, true);

        fprintf(m->body, "    %%t%d = %s %%c%d, %%c%d\n", to, ops[op].text,
                c->number, other.number);
        return;
    }
    declare_counted(m, kind == 1 ? "out" : "temp", &result);
    fprintf(m->body, "    %%c%d = %s %%c%d, %%c%d\n", result.number,
            ops[op].text, c->number, other.number);
    if (kind == 2)
        *c = result;
}

static void reshape_counted(maker *m, const counting *c)
{
    tensor t = c->t;

    for (int n = 1 + pick(m, 3); n > 0 && t.ndims > 0; n--)
        (once_in(m, 2) ? split_dim : merge_dims)(m, &t, pick(m, t.ndims));
    fprintf(m->body, "    %%t%d = reshape %%c%d\n", place_whole(m, &t, true),
            c->number);
}

// To what other counts count, perhaps elsewhere.
static void recount(maker *m, counting *c)
{
    static const char *const each[] = {"copy", "neg", "set"};
    counting other = *c;
    tensor n;
    int kind = pick(m, 3);

    if (kind == 2)
        move_marks(m, &other);
    draw_lead(m, &other, c->dim);
    n = local_stream(counts_of(&other));
    other.counts = read_tensor(m, add_input(m, &n));
    declare_counted(m, once_in(m, 3) ? "out" : "temp", &other);
    fprintf(m->body, "    %%c%d = %s %%c%d\n", other.number, each[kind],
            c->number);
    *c = other;
}

// Where what has counts is used as operations do not go by them, or by several.
static void make_uncounted(maker *m, int x)
{
    static const op uses[] = {OP_TAKE,   OP_TOP_K, OP_ROUTE, OP_MATMUL,
                              OP_MATMUL, OP_SUM,   OP_MAX,   OP_TRANSPOSE};
    counting c = {.t = local_stream(m->tensor[x])};

    c.dim = find_countable(m, &c.t);
    if (c.dim < 0)
        return;
    draw_lead(m, &c, c.dim);
    begin_counted(m, &c, once_in(m, 2) ? -1 : x);
    if (once_in(m, 3))
        join_counted(m, &c, x);
    if (once_in(m, 4))
        recount(m, &c);
    switch (pick(m, 6)) {
    case 0:
        map_counted(m, &c);
        break;
    case 1:
        part_counted(m, &c);
        break;
    case 2:
        reshape_counted(m, &c);
        break;
    case 3:
        leave_counted(m, &c);
        break;
    default:
        use_counted(m, &c, uses[pick(m, 8)]);
    }
}

// ---------------------------------------------------------------- attention

// The axis of which each rank has an index of the batch; -1 if there is none.
static int placed_axis(const maker *m, const statement *s)
{
    for (int at = 0; at < s->n[LETTER_B]; at++) {
        dim d = s->lies[LETTER_B][at];

        if (d.mark >= 0 && d.extent == m->axis[d.mark])
            return d.mark;
    }
    return -1;
}

// Whether rows are not one of the blocks of keys by two axes.
static bool knows_block(const maker *m, const statement *s)
{
    int blocks = s->lies[LETTER_n][0].extent, n = 0;

    for (int at = 0; at < s->n[LETTER_B]; at++) {
        dim d = s->lies[LETTER_B][at];

        n += d.mark >= 0 && d.extent == m->axis[d.mark] && d.extent == blocks;
    }
    return !row_has(s->row, KEY_BLOCKS) || n < 2;
}

// Which of so many blocks the rows are: all ranks' the same one, or each's
// another, in order or not.
static void draw_zigzag(maker *m, statement *s)
{
    int blocks = s->lies[LETTER_n][0].extent;
    int own = pick(m, blocks), axis = placed_axis(m, s);

    if (axis < 0 || once_in(m, 3))
        add_key(s, " zigzag %d", own);
    else if (m->axis[axis] <= blocks && once_in(m, 2))
        add_key(s, " zigzag %s", axis_names[axis]);
    else
        add_key(s, " zigzag (%d * %s + %d) mod %d", 1 + pick(m, 3),
                axis_names[axis], own, blocks);
    if (once_in(m, 3))
        add_key(s, " window %d",
                1 + pick(m, blocks * s->lies[LETTER_s][0].extent));
}

// To a number that a run may say.
static void add_size(maker *m, statement *s, int axis)
{
    if (m->nsizes == 0 || !once_in(m, 2))
        return;
    add_key(s, " + %d * ", pick(m, 5) - 2);
    if (axis >= 0 && once_in(m, 2))
        add_key(s, "%s * ", axis_names[axis]);
    add_key(s, "m%d", pick(m, m->nsizes));
}

// A mask that some rows may see nothing by, or keys about the row's own. Blocks
// of keys stand one behind the other, or in any other way.
static void draw_sight(maker *m, statement *s)
{
    int rows = indices_of(m, s, LETTER_s), axis = placed_axis(m, s);

    if (once_in(m, 2)) {
        if (once_in(m, 3) && knows_block(m, s))
            add_key(s, " window %d", 1 + pick(m, rows));
        return;
    }
    add_key(s, " causal %d", pick(m, 2 * rows + 1) - rows);
    if (axis >= 0 && once_in(m, 2))
        add_key(s, " + %d * %s", pick(m, 2 * rows + 1) - rows,
                axis_names[axis]);
    add_size(m, s, axis);
    if (row_has(s->row, KEY_BLOCKS) && once_in(m, 2)) {
        add_key(s, " step %d", pick(m, 2 * rows + 1) - rows);
        add_size(m, s, -1);
    }
    if (once_in(m, 3))
        add_key(s, " window %d", 1 + pick(m, rows));
}

// Whether the queries have all dimensions of the batch.
static bool has_batch(const maker *m, const statement *s)
{
    tensor q = m->tensor[s->tensor[2]];
    int d = 0;

    while (q.ndims - 3 == s->n[LETTER_B] && d < s->n[LETTER_B] &&
           same_dim(q.dim[d], s->lies[LETTER_B][d]))
        d++;
    return d == s->n[LETTER_B];
}

// Where rows and keys are among those of sequences: rows may be some that keys
// are not, or behind all of them.
static void draw_place(maker *m, statement *s)
{
    dim rows = s->lies[LETTER_s][0], keys = s->lies[LETTER_t][0];
    int axis = placed_axis(m, s), all = indices_of(m, s, LETTER_t), blocks = 1;
    bool own = same_dim(rows, keys);

    if (!row_has(s->row, KEY_GROUPS))
        return;
    if (row_has(s->row, KEY_BLOCKS)) {
        blocks = s->lies[LETTER_n][0].extent;
        own = own && axis >= 0 && m->axis[axis] == blocks &&
              knows_block(m, s) && has_batch(m, s);
    }
    if (own && once_in(m, 2))
        return;
    add_key(s, " row %d", pick(m, all * blocks + 1));
    if (axis >= 0 && once_in(m, 2))
        add_key(s, " + %d * %s", pick(m, indices_of(m, s, LETTER_s) + 1),
                axis_names[axis]);
    if (once_in(m, 4))
        add_key(s, " key %d", pick(m, all + 1));
    if (once_in(m, 4))
        add_key(s, " room %d", pick(m, all * blocks + 3));
}

// Queries or keys are copied to rows that are counted for each of the first
// dimensions of the batch, of which they then have all.
static void count_rows(maker *m, statement *s, int view)
{
    tensor t = m->tensor[s->tensor[view]];
    counting c = {.t = t, .dim = t.ndims - 2};
    int most = t.ndims - 3, d = 0;

    while (most == s->n[LETTER_B] && d < most &&
           same_dim(t.dim[d], s->lies[LETTER_B][d]))
        d++;
    if (!is_constant(t.dim[c.dim]))
        return;
    draw_lead(m, &c, d);
    begin_counted(m, &c, s->tensor[view]);
    snprintf(s->name[view], NAME, "%%c%d", c.number);
}

// How many heads, keys and blocks there are; these may be gathered from ranks.
static void draw_heads(maker *m, statement *s, bool zigzag)
{
    dim blocks = {1 + pick(m, 4), LOCAL, 0};

    draw_letters(m, s, form_of(s, 2));
    if (m->naxes > 0) {
        blocks.extent = m->axis[pick(m, m->naxes)];
        blocks.mark = m->streams && !once_in(m, 4) ? STREAM : LOCAL;
    }
    s->lies[LETTER_n][0] = blocks;
    s->lies[LETTER_g][0] =
        once_in(m, 2) ? (dim){1, LOCAL, 0} : s->lies[LETTER_h][0];
    if (zigzag)
        s->lies[LETTER_t][0] = s->lies[LETTER_s][0];
}

// Of an attention that there is; ranks that have some of the heads would have
// parts of those of one that these share.
static void make_gradients(maker *m, const statement *of)
{
    statement s = *of;
    int n;

    if (first_of(of, LETTER_h).mark >= 0 && first_of(of, LETTER_g).mark < 0)
        return;

    s.op = OP_ATTENTION_GRAD;
    s.inputs = ops[s.op].inputs;
    for (s.row = rows_of(s.op, &n); s.row->keys != of->row->keys; s.row++)
        ;
    for (int i = 0; i < 3; i++) {
        s.tensor[3 + i] = of->tensor[2 + i];
        memcpy(s.name[3 + i], of->name[2 + i], NAME);
    }
    for (int i = 0; i < 2; i++)
        name_view(&s, 6 + i, read_tensor(m, of->tensor[i]));
    name_view(&s, 8, read_tensor(m, add_input(m, &of->result[0])));
    finish(m, &s);
}

// Keys and values may be in blocks, or padded, or of several sequences.
static void make_attention(maker *m, int x)
{
    statement s;
    bool zigzag;

    if (!begin(m, &s, OP_ATTENTION, x))
        s = start(m, OP_ATTENTION, draw_heads_dtype(m));
    zigzag = row_has(s.row, KEY_BLOCKS) && !once_in(m, 4);
    draw_heads(m, &s, zigzag);
    zigzag = zigzag && is_constant(first_of(&s, LETTER_s)) &&
             first_of(&s, LETTER_s).extent % 2 == 0 && !once_in(m, 4);
    if (!supply_all(m, &s))
        return;
    if (!zigzag)
        draw_place(m, &s);
    (zigzag ? draw_zigzag : draw_sight)(m, &s);
    for (int i = 2; s.row->keys == 0 && i < 4; i++)
        if (once_in(m, 3))
            count_rows(m, &s, i);
    if (finish(m, &s) && once_in(m, 2))
        make_gradients(m, &s);
}

static void make_attend(maker *m, int x)
{
    if (m->integers)
        return;
    if (once_in(m, 3))
        make_any(m, OP_MERGE, x);
    else
        make_attention(m, x);
}

// --------------------------------------------------- reductions to the ranks

// Whether it is partial results: `over` is sharded, and there is a stream
// dimension with as many indices or blocks, of which each rank may get the sum
// of one.
static bool is_partial(const maker *m, const tensor *t, int *over)
{
    int s = stream_dim(t);
    const size *size = s >= 0 ? size_of(m, t->dim[s].extent) : NULL;

    for (*over = 0; s >= 0 && *over < t->ndims; ++*over)
        if (t->dim[*over].mark >= 0 &&
            (size != NULL ? size->blocks == m->axis[t->dim[*over].mark]
                          : t->dim[*over].extent == t->dim[s].extent ||
                                t->dim[s].blocks > 0))
            return true;
    return false;
}

// A late one of what was computed, or -1.
static int find_partial(maker *m, int *over)
{
    int skip = once_in(m, 3) ? pick(m, 3) : 0, found = -1, dim;

    for (int i = m->ntensors - 1; i >= 0 && skip >= 0; i--)
        if (m->tensor[i].role != 'i' && is_partial(m, &m->tensor[i], &dim)) {
            found = i;
            *over = dim;
            skip--;
        }
    return found;
}

// Made of a new input by an operation that a loop can take.
static void make_partial(maker *m)
{
    static const maker_of makers[] = {make_map, make_fold, make_copy,
                                      make_update};
    tensor t = {.dtype = draw_dtype(m)};
    int axis = pick(m, m->naxes);
    dim rows;

    append_dim(&t, (dim){m->axis[axis], axis, 0});
    if (once_in(m, 4))
        append_dim(&t, (dim){1, LOCAL, 0});
    rows = (dim){draw_extent(m), LOCAL, m->axis[axis]};
    if (!can_shard(m, rows, axis))
        rows = (dim){m->axis[axis], LOCAL, 0};
    rows.mark = STREAM;
    append_dim(&t, rows);
    for (int n = 1 + pick(m, 3); n > 0; n--)
        append_dim(&t, (dim){draw_extent(m), LOCAL, 0});
    add_marks(m, &t);
    if (!fits(m, &t))
        return;
    if (once_in(m, 2))
        make_any(m, OP_MATMUL, add_input(m, &t));
    else
        makers[pick(m, 4)](m, add_input(m, &t));
}

// The sum of what all ranks have of each index goes to the rank of that number,
// The sum of what all ranks have of each index goes to the rank of that number,
// or to every rank.
static void scatter(maker *m, int x, int over)
{
    tensor t = m->tensor[x];
    op op = once_in(m, 3) ? draw_fold(m) : OP_SUM;

    if (!once_in(m, 3))
        t.dim[stream_dim(&t)].mark = t.dim[over].mark;
    join_dim(m, x, t, over, op);
}

static void make_scatter(maker *m)
{
    int over, x = find_partial(m, &over);

    if (x < 0) {
        make_partial(m);
        if (once_in(m, 3)) // other operations go on from it first
            return;
        x = find_partial(m, &over);
    }
    if (x >= 0)
        scatter(m, x, over);
}

// --------------------------------------------------------------- programs

// Later ones of `n` are taken more often, so that chains grow long.
static int draw_late(maker *m, int n)
{
    int i = pick(m, n < 256 ? n : 256), j = pick(m, n < 256 ? n : 256);

    return n - 1 - (i < j ? i : j);
}

static int draw_operand(maker *m)
{
    int x = m->nstreamed > 0 && (m->chain || pick(m, 4) > 0)
                ? m->streamed[draw_late(m, m->nstreamed)]
                : draw_late(m, m->ntensors);

    return once_in(m, 8) ? draw_part(m, x) : x;
}

static void make_op(maker *m)
{
    // The first CHAIN of them can be in a loop.
    static const struct {
        maker_of make; // NULL: the op's operands make its results
        op op;
    } kinds[] = {{.op = OP_MATMUL},      {.make = make_map},
                 {.make = make_tiles},   {.op = OP_MATMUL},
                 {.make = make_fold},    {.make = make_map},
                 {.make = make_copy},    {.make = make_tiles},
                 {.make = make_update},  {.op = OP_TRANSPOSE},
                 {.make = make_map},     {.op = OP_MATMUL},
                 {.make = make_staged},  {.op = OP_SET},
                 {.make = make_map},     {.make = make_reduction},
                 {.op = OP_SET},         {.make = make_update},
                 {.op = OP_TRANSPOSE},   {.make = make_reshape},
                 {.make = make_reshape}, {.op = OP_ROUTE},
                 {.op = OP_TAKE},        {.op = OP_TOP_K},
                 {.make = make_moved},   {.make = make_attend},
                 {.make = make_iota},    {.make = make_uncounted},
                 {.make = make_concat},  {.make = make_uncounted}};
    enum { KINDS = sizeof kinds / sizeof kinds[0], CHAIN = 13 };
    int n = m->nstreamed < 4 && !m->chain ? 2 * m->nstreamed + 1 : 8;
    bool streams = m->streams && m->naxes > 0;

    m->now++;
    if (streams && once_in(m, 4))
        make_scatter(m);
    else if (streams && (m->nstreamed == 0 || pick(m, n) == 0))
        (pick(m, 2) == 1 ? stream_input : make_gather)(m);
    else {
        int kind = pick(m, m->chain ? CHAIN : KINDS), x = draw_operand(m);

        if (kinds[kind].make != NULL)
            kinds[kind].make(m, x);
        else
            make_any(m, kinds[kind].op, x);
    }
}

// Small ones, so that each value is often one that differs: a block or more
// without indices, the last one with fewer, all of them full.
static void draw_sizes(maker *m)
{
    static const int high[] = {3, 5, 9, 1, 2, 4, 7, 8};

    m->nsizes = 1 + pick(m, MAX_SIZES);
    for (int i = 0; i < m->nsizes; i++) {
        size *size = &m->size[i];

        size->high = high[pick(m, 8)];
        size->low = pick(m, 4);
        size->low = size->low == 3 ? 1 + pick(m, size->high) : size->low % 2;
        size->blocks = once_in(m, 3) ? 0
                       : m->naxes > 0 && !once_in(m, 4)
                           ? m->axis[pick(m, m->naxes)]
                           : pick(m, 5);
    }
}

static void draw_mesh(maker *m)
{
    static const int meshes[][MAX_AXES] = {
        {4, 0, 0}, {2, 0, 0}, {2, 2, 0},          {3, 0, 0},
        {2, 3, 0}, {3, 2, 0}, {1, 0, 0},          {0, 0, 0},
        {5, 0, 0}, {8, 0, 0}, {1, 2, 0},          {2, 2, 2},
        {4, 2, 0}, {2, 1, 4}, {2, 1, 2, 1, 1, 2}, {6, 0, 0}};
    const int *mesh = meshes[pick(m, 16)];
    int kind;

    while (m->naxes < MAX_AXES && mesh[m->naxes] > 0) {
        m->axis[m->naxes] = mesh[m->naxes];
        m->naxes++;
    }
    m->streams = !once_in(m, 4);
    m->chain = once_in(m, 2);
    kind = pick(m, 12); // one in three has blocks, one in four sizes
    m->blocks = kind % 3 == 2;
    if (kind >= 9)
        draw_sizes(m);
}

static void draw_first_input(maker *m)
{
    tensor t = {.dtype = draw_dtype(m)};

    draw_extents(m, &t);
    draw_marks(m, &t);
    if (!fits(m, &t))
        t.ndims = 2;
    add_input(m, &t);
}

static void write_declaration(maker *m, int i, FILE *to)
{
    tensor *t = &m->tensor[i];

    if (t->role == 't' && (t->read == 0 || once_in(m, 4)))
        t->role = 'o';
    fprintf(to, "%s",
            t->role == 'i'   ? "in"
            : t->role == 'o' ? "out"
            : t->role == 'b' ? "inout"
                             : "temp");
    write_type(m, "t", i, t, -1, 0, to);
    fprintf(to, "%s\n", once_in(m, 8) ? " shared" : "");
}

// Statements name a part by its number as they name tensors.
static void write_body(const maker *m, const char *body, FILE *to)
{
    while (*body != '\0') {
        const tensor *t = NULL;
        char *end = NULL;

        if (body[0] == '%' && body[1] == 't')
            t = &m->tensor[strtol(body + 2, &end, 10)];
        if (t != NULL && t->role == 'p') {
            fprintf(to, "%%t%d%s", t->of, t->view);
            body = end;
        } else {
            fputc(*body++, to);
        }
    }
}

static void write_program(maker *m, const char *body, const char *counted,
                          FILE *to)
{
    fprintf(to, "heddle 2\ntensor program generated\n");
    for (int i = 0; i < m->nsizes; i++)
        fprintf(to, "param m%d in %d..%d\n", i, m->size[i].low,
                m->size[i].high);
    for (int i = 0; i < m->naxes; i++)
        fprintf(to, "%s %s=%d", i == 0 ? "mesh" : ",", axis_names[i],
                m->axis[i]);
    fprintf(to, "\n");
    for (int i = 0; i < m->ntensors; i++)
        if (m->tensor[i].role != 'p')
            write_declaration(m, i, to);
    fprintf(to, "%s{\n", counted);
    write_body(m, body, to);
    fprintf(to, "}\n");
}

static char *print_program(maker *m, const char *body, const char *counted)
{
    char *text = NULL;
    size_t length;
    FILE *to = open_memstream(&text, &length);

    if (to == NULL)
        return NULL;
    write_program(m, body, counted, to);
    fclose(to);
    return text;
}

static char *make_program(maker *m, int nops)
{
    char *body = NULL, *counted = NULL, *text = NULL;
    size_t body_length, counted_length;

    m->body = open_memstream(&body, &body_length);
    m->counted = open_memstream(&counted, &counted_length);
    if (m->body != NULL && m->counted != NULL) {
        draw_mesh(m);
        draw_first_input(m);
        for (int i = 0; i < nops && (i == 0 || !choices_ended(m->choices)); i++)
            make_op(m);
    }
    if (m->body != NULL)
        fclose(m->body);
    if (m->counted != NULL)
        fclose(m->counted);
    if (body != NULL && counted != NULL)
        text = print_program(m, body, counted);
    free(body);
    free(counted);
    return text;
}

size_t generate_bytes(int ops)
{
    return 64 + BYTES_PER_OP * (size_t)ops;
}

char *generate_program(choices *choices, const generate_options *options)
{
    maker m = {.choices = choices, .integers = options->integers};
    int nops = options->ops > 0 ? options->ops : 1 + choices_pick(choices, 12);
    char *text = NULL;

    m.tensor = calloc((size_t)nops * TENSORS_PER_OP + 1, sizeof(tensor));
    m.streamed = calloc((size_t)nops * TENSORS_PER_OP + 1, sizeof(int));
    if (m.tensor != NULL && m.streamed != NULL)
        text = make_program(&m, nops);
    free(m.tensor);
    free(m.streamed);
    return text;
}

hd_lower_options generate_lowering(choices *choices)
{
    hd_lower_options o = hd_lower_defaults();
    int last;

    o.transfer = (hd_transfer)choices_pick(choices, 6);
    o.protocol =
        choices_pick(choices, 2) == 1 ? HD_PROTOCOL_GET : HD_PROTOCOL_PUT;
    o.streams = 1 + choices_pick(choices, 4);
    o.chunks = choices_pick(choices, 2) == 1 ? 1 + choices_pick(choices, 3) : 1;
    o.copy_own = choices_pick(choices, 2) == 1;
    o.defer_sends = choices_pick(choices, 2) == 1;
    o.comm_stream = choices_pick(choices, 2) == 1;
    last = choices_pick(choices, 8);
    o.wire = last % 2 == 1 ? HD_WIRE_F32 : HD_WIRE_RESULT;
    o.launch = last >= 6;
    return o;
}
