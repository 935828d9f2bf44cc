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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ELEMENTS = 4096, // of one tensor
    MAX_AXES = 4,
    MAX_SIZES = 3,
    MAX_SUMMANDS = 15,
    EVEN = 6, // an extent that 2 and 3 chunks divide
    TENSORS_PER_OP = 2 * MAX_SUMMANDS + 7, // at most
    BYTES_PER_OP = 64,
    MAX_INPUTS = 3, // of an element-wise op
    KEYS = 96,      // bytes of those of an attention
    NAME = 16,      // and of what its operands are called
};

// What is positive is no less, a number of every floating format, so that no
// rounding goes below it.
static const double LEAST = 1.0 / 64;

enum { LOCAL = -1, STREAM = -2 }; // marks that are no axis

// From here on an extent stands for what a run says: MANY times the size's
// number, from 1, and how many times it. So extents are equal where they are
// in every run.
enum { MANY = 1 << 24 };

typedef enum dtype { F64, F32, F16, BF16, F8E4M3, F8E5M2, I64, I32, U8 } dtype;

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
    {"u8", false, 255, 255},
};

typedef enum numbers { ANY, FLOAT, TEST, PICK } numbers;
typedef enum factor_key { NO_KEY, BY, VALUE } factor_key;

// The rows of ops.def that make a tensor element by element, and those that
// join several to one.
typedef enum map {
#define HD_OP(...)
#define HD_MAP(code, ...) MAP_##code,
#include "ir/ops.def"
    NMAPS
} map;

static const struct {
    const char *text;
    numbers numbers;
    int inputs;
    factor_key key;
} maps[] = {
#define K(key) key
#define HD_OP(...)
#define HD_MAP(code, text, numbers, shape, inputs, keys, required) \
    {text, numbers, inputs, required},
#include "ir/ops.def"
#undef K
};

typedef enum fold {
#define HD_OP(...)
#define HD_FOLD(code, ...) FOLD_##code,
#include "ir/ops.def"
    NFOLDS
} fold;

static const char *const folds[] = {
#define HD_OP(...)
#define HD_FOLD(code, text) text,
#include "ir/ops.def"
};

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

static const char *const axis_names[MAX_AXES] = {"tp", "dp", "pp", "ep"};

static int pick(maker *m, int n)
{
    return choices_pick(m->choices, n);
}

// One time in `n`. Never where the choices have ended.
static bool once_in(maker *m, int n)
{
    return pick(m, n) == n - 1;
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
static bool same_dims(const tensor *a, const tensor *b)
{
    if (!same_extents(a, b))
        return false;
    for (int i = 0; i < a->ndims; i++)
        if (a->dim[i].mark != b->dim[i].mark &&
            (a->dim[i].mark >= 0 || b->dim[i].mark >= 0))
            return false;
    return true;
}

static void drop_dims(tensor *t, int from, int n)
{
    memmove(t->dim + from, t->dim + from + n,
            sizeof(dim) * (size_t)(t->ndims - from - n));
    t->ndims -= n;
}

static void append_dim(tensor *t, dim d)
{
    t->dim[t->ndims++] = d;
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

static void draw_stream(maker *m, tensor *t)
{
    dim *d;

    for (int i = 0; i < t->ndims; i++)
        if (t->dim[i].mark == STREAM)
            t->dim[i].mark = LOCAL;
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
    for (int axis = 0; axis < m->naxes; axis++) {
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
    static const dtype all[] = {F32, BF16,   F32,    I32, F16, BF16,
                                F64, F8E4M3, F8E5M2, I64, U8,  F32};

    return m->integers ? exact[pick(m, 8)] : all[pick(m, 12)];
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
    m->tensor[i].size = m->tensor[of].size;
    m->tensor[i].positive = m->tensor[of].positive;
    return i;
}

// A part of a new tensor, whose rest a statement before fills with a number; -1
// if it would have too many elements.
static int place_part(maker *m, const tensor *t)
{
    tensor whole = *t, part = *t, rest = *t;
    int at = pick(m, t->ndims + 1), more = 1 + pick(m, 3);
    bool behind = once_in(m, 2);
    bool picks =
        at == t->ndims || t->dim[at].mark >= 0 || t->dim[at].extent >= MANY;
    int n, of, filled;

    if (t->ndims == HD_MAX_DIMS)
        return -1;
    if (picks) {
        memmove(whole.dim + at + 1, whole.dim + at,
                sizeof(dim) * (size_t)(whole.ndims++ - at));
        whole.dim[at] = (dim){2, LOCAL, 0};
    } else {
        whole.dim[at] = (dim){t->dim[at].extent + more, t->dim[at].mark, 0};
        part.dim[at] = (dim){t->dim[at].extent, LOCAL, 0};
        rest.dim[at] = (dim){more, LOCAL, 0};
    }
    if (!fits(m, &whole))
        return -1;
    n = whole.dim[at].extent;
    part.view[0] = rest.view[0] = '\0';
    for (int d = 0; d < at; d++) {
        view_dim(&part, 0, whole.dim[d].extent, whole.dim[d].extent, false);
        view_dim(&rest, 0, whole.dim[d].extent, whole.dim[d].extent, false);
    }
    more = picks ? 1 : more;
    view_dim(&part, behind ? more : 0, n - more, n, picks);
    view_dim(&rest, behind ? 0 : n - more, more, n, picks);
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
    m->tensor[found].size = t->size;
    m->tensor[found].positive = t->positive;
    if (m->chain || once_in(m, 2))
        go_on_from(m, found);
    return found;
}

// Likewise, or to a part of a tensor.
static int place_result(maker *m, const tensor *t, bool placed)
{
    int found = once_in(m, 10) ? place_part(m, t) : -1;

    if (found < 0)
        found = place_whole(m, t, placed);
    else if (m->chain || once_in(m, 2))
        go_on_from(m, found);
    return found;
}

static int read_tensor(maker *m, int i)
{
    m->tensor[i].read = m->now;
    if (m->tensor[i].role == 'p')
        m->tensor[m->tensor[i].of].read = m->now;
    return i;
}

// ------------------------------------------------------------------ parts

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
        int n = kept.extent, first = 0;
        bool some = kept.mark < 0 && n < MANY; // may be kept
        bool picks = some && once_in(m, 4);

        if (some && !picks && once_in(m, 2)) {
            kept = (dim){1 + pick(m, n), LOCAL, 0};
            first = pick(m, n - kept.extent + 1);
        } else if (picks) {
            first = pick(m, n);
        }
        view_dim(&part, first, kept.extent, n, picks);
        if (!picks)
            append_dim(&part, kept);
    }
    return add_part(m, &part, x);
}

// A part of a new input that has more.
static int add_input_part(maker *m, const tensor *like)
{
    tensor whole = *like, part = *like;
    int at = pick(m, like->ndims + 1), more = 1 + pick(m, 3);
    bool picks = like->ndims < HD_MAX_DIMS &&
                 (at == like->ndims || like->dim[at].mark >= 0 ||
                  like->dim[at].extent >= MANY || once_in(m, 2));

    if (picks) {
        memmove(whole.dim + at + 1, whole.dim + at,
                sizeof(dim) * (size_t)(whole.ndims++ - at));
        whole.dim[at] = (dim){1 + more, LOCAL, 0};
    } else if (at < like->ndims && like->dim[at].mark < 0 &&
               like->dim[at].extent < MANY) {
        whole.dim[at] = (dim){like->dim[at].extent + more, LOCAL, 0};
        part.dim[at] = (dim){like->dim[at].extent, LOCAL, 0};
    }
    if (!fits(m, &whole) || same_extents(&whole, like))
        return add_input(m, like);
    part.view[0] = '\0';
    for (int d = 0; d <= at; d++)
        view_dim(&part, d == at ? pick(m, more + 1) : 0,
                 d == at && !picks ? part.dim[d].extent : whole.dim[d].extent,
                 whole.dim[d].extent, picks && d == at);
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
    tensor t = m->tensor[x];
    int to;

    for (int i = 0; i < t.ndims; i++)
        if (t.dim[i].mark == STREAM)
            t.dim[i].mark = LOCAL;
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

// A tensor that there is of this shape, dtype and placement, or -1.
static int find_alike(maker *m, const tensor *like)
{
    int skip = pick(m, 3), found = -1;

    for (int i = m->ntensors - 1; i >= 0 && skip >= 0; i--)
        if (m->tensor[i].dtype == like->dtype &&
            same_dims(&m->tensor[i], like)) {
            found = i;
            skip--;
        }
    return found;
}

// A tensor that there is, placed and typed like `like`, or -1.
static int place_alike(maker *m, const tensor *like)
{
    tensor t = *like;
    int skip = pick(m, 3), found = -1;

    for (int i = m->ntensors - 1; i >= 0 && skip >= 0; i--)
        if (same_extents(&m->tensor[i], like) &&
            m->tensor[i].size <= limit_of(m, like->dtype)) {
            found = i;
            skip--;
        }
    if (found < 0)
        return -1;
    t.size = m->tensor[found].size;
    t.positive = m->tensor[found].positive;
    return emit_set(m, add_tensor(m, &t, 't'), found);
}

// An operand of this shape, dtype and placement. Statements that make it are
// written here, so no result of the operation that wants it may be there yet.
static int supply(maker *m, const tensor *like)
{
    int how = pick(m, 8), found = -1;

    if (how >= 4)
        found = find_alike(m, like);
    else if (how == 3)
        found = place_alike(m, like);
    if (found < 0)
        found = how == 0   ? add_input(m, like)
                : how == 1 ? add_input_part(m, like)
                           : add_gathered(m, like);
    return read_tensor(m, found);
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
    memmove(t.dim + 1, t.dim, sizeof(dim) * (size_t)t.ndims++);
    t.dim[at] = (dim){m->axis[axis], axis, 0};
    t.dim[1 - at] = (dim){2 + pick(m, 4), STREAM, 0};
    if (once_in(m, 2))
        t.dim[2].extent = m->axis[axis]; // it may be sharded instead
    if (fits(m, &t))
        go_on_from(m, add_input(m, &t));
}

static bool draw_cast(maker *m, tensor *t)
{
    if (once_in(m, 5))
        t->dtype = draw_dtype(m);
    t->positive &= dtypes[t->dtype].floating; // others round to zero
    return fits(m, t);
}

static void write_sized(maker *m, dim d, FILE *to)
{
    const size *size = size_of(m, d.extent);
    int times = d.extent % MANY;

    if (times > 1)
        fprintf(to, "%d * ", times);
    fprintf(to, "m%d", (int)(size - m->size));
    if (size->blocks > 0 &&
        (d.mark == STREAM || (d.mark == LOCAL && once_in(m, 4))))
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
    fprintf(m->counted, "temp %%s%d : %s[", m->nstaged, dtypes[t->dtype].text);
    for (int d = 0; d < t->ndims; d++) {
        if (t->dim[d].mark == on.axis)
            t->dim[d].mark = LOCAL;
        fprintf(m->counted, "%s", d > 0 ? ", " : "");
        write_dim(m, t->dim[d], m->counted);
    }
    fprintf(m->counted, "] on %s %d", axis_names[on.axis], on.low);
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

static void make_set(maker *m, int x)
{
    tensor t = m->tensor[x];

    if (once_in(m, 3)) {
        for (int i = 0; i < t.ndims; i++)
            t.dim[i].mark = LOCAL;
    } else {
        draw_marks(m, &t);
    }
    if (!draw_cast(m, &t))
        return;
    read_tensor(m, x);
    emit_set(m, place_result(m, &t, false), x);
}

// A dimension that may have counts: local, and as long in every run; -1 if
// there is none.
static int find_countable(maker *m, const tensor *t)
{
    int first = pick(m, t->ndims);

    for (int k = 0; k < t->ndims; k++) {
        int d = (first + k) % t->ndims;

        if (t->dim[d].mark == LOCAL && t->dim[d].extent < MANY)
            return d;
    }
    return -1;
}

static int declare_counted(maker *m, const char *role, const tensor *t, int d,
                           int counts)
{
    fprintf(m->counted, "%s %%c%d : %s[", role, m->ncounted,
            dtypes[t->dtype].text);
    for (int i = 0; i < t->ndims; i++) {
        fprintf(m->counted, "%s", i > 0 ? ", " : "");
        write_dim(m, t->dim[i], m->counted);
        if (i == d)
            fprintf(m->counted, " by %%t%d", counts);
    }
    fprintf(m->counted, "]\n");
    return m->ncounted++;
}

// What is left of a tensor with counts of `lead` dimensions: dense, placed
// otherwise or summed.
static void leave_counted(maker *m, tensor t, int c, int lead)
{
    int over = lead + pick(m, t.ndims - lead);
    tensor sum = t;

    sum.size *= count_of(m, t.dim[over].extent);
    drop_dims(&sum, over, 1);
    if (once_in(m, 2) && fits(m, &sum)) {
        fprintf(m->body, "    %%t%d = sum %%c%d dim %d\n",
                place_result(m, &sum, false), c, over);
    } else if (once_in(m, 2)) {
        draw_marks(m, &t);
        fprintf(m->body, "    %%t%d = set %%c%d\n", place_result(m, &t, false),
                c);
    } else {
        fprintf(m->body, "    %%t%d = copy %%c%d\n", place_result(m, &t, true),
                c);
    }
}

// The counts are an input of their own: nothing else makes them fit.
static void make_counted(maker *m, int x)
{
    tensor t = m->tensor[x], n = {.dtype = I32};
    int d = find_countable(m, &t), counts, c;

    if (d < 0)
        return;
    for (n.ndims = 0; n.ndims < d && !once_in(m, 4); n.ndims++) {
        n.dim[n.ndims] = t.dim[n.ndims];
        if (t.dim[n.ndims].mark == STREAM)
            n.dim[n.ndims].mark = LOCAL;
    }
    counts = read_tensor(m, add_input(m, &n));
    t.positive = false;
    c = declare_counted(m, "temp", &t, d, counts);
    fprintf(m->body, "    %%c%d = copy %%t%d\n", c, read_tensor(m, x));
    if (once_in(m, 2)) {
        fprintf(m->body, "    %%c%d = max %%c%d, %%t%d\n", m->ncounted, c, x);
        c = declare_counted(m, "temp", &t, d, counts);
    }
    leave_counted(m, t, c, n.ndims);
}

static void make_copy(maker *m, int x)
{
    tensor t = m->tensor[x];

    if (once_in(m, 4)) {
        make_counted(m, x);
        return;
    }
    if (!draw_cast(m, &t))
        return;
    read_tensor(m, x);
    fprintf(m->body, "    %%t%d = copy %%t%d\n", place_result(m, &t, true), x);
}

static void make_reduction(maker *m, int x)
{
    tensor t = m->tensor[x];
    int d = pick(m, t.ndims);
    fold fold = (enum fold)pick(m, NFOLDS);
    bool keeps;
    dim lost;

    if (t.ndims == 0)
        return;
    lost = t.dim[d];
    keeps = lost.mark < 0 && once_in(m, 3);
    if (keeps) {
        t.dim[d] = (dim){1, LOCAL, 0};
    } else {
        drop_dims(&t, d, 1);
        if (lost.mark >= 0 || once_in(m, 4))
            draw_marks(m, &t);
    }
    if (fold == FOLD_SUM)
        t.size *= count_of(m, lost.extent);
    if (!fits(m, &t))
        return;
    read_tensor(m, x);
    // What is kept is local, also where an axis has one rank.
    fprintf(m->body, "    %%t%d = %s %%t%d dim %d\n",
            place_result(m, &t, keeps), folds[fold], x, d);
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

// A collective over the axis of a sharded dimension that leaves the stream
// dimension where it is: that dimension is gathered, or changes places with
// another, or is reduced, perhaps to be scattered.
static void make_tiles(maker *m, int x)
{
    tensor t = m->tensor[x];
    bool reduces = once_in(m, 2), moves = once_in(m, 2);
    fold fold = (enum fold)pick(m, NFOLDS);
    int d = 0, axis, to;

    while (d < t.ndims && t.dim[d].mark < 0)
        d++;
    if (d == t.ndims) {
        if (m->naxes > 0 && m->streams)
            stream_input(m);
        return;
    }
    axis = t.dim[d].mark;
    to = moves ? find_local(m, &t, axis) : -1;
    if (to >= 0)
        t.dim[to].mark = axis;
    if (reduces && fold == FOLD_SUM)
        t.size *= count_of(m, t.dim[d].extent);
    t.dim[d].mark = LOCAL;
    if (reduces)
        drop_dims(&t, d, 1);
    if (!fits(m, &t))
        return;
    read_tensor(m, x);
    if (reduces)
        fprintf(m->body, "    %%t%d = %s %%t%d dim %d\n",
                place_result(m, &t, true), folds[fold], x, d);
    else
        emit_set(m, place_result(m, &t, true), x);
}

// ---------------------------------------------------------- element by element

// An operand for a result like `t`: it may lack leading dimensions, or have one
// index where `t` has more.
static int draw_operand_of(maker *m, const tensor *t, dtype dtype)
{
    tensor tail = *t;

    tail.dtype = dtype;
    if (once_in(m, 3) && t->ndims > 0)
        drop_dims(&tail, 0, 1 + pick(m, t->ndims));
    for (int i = 0; i < tail.ndims; i++)
        if (once_in(m, 6))
            tail.dim[i] = (dim){1, LOCAL, 0};
    return supply(m, &tail);
}

// The result of an operand that repeats along it.
static void widen(maker *m, tensor *t)
{
    dim more = {draw_extent(m), LOCAL, 0};

    for (int i = 0; i < t->ndims; i++)
        if (t->dim[i].extent == 1 && t->dim[i].mark == LOCAL)
            t->dim[i].extent = draw_extent(m);
    if (t->ndims == HD_MAX_DIMS || once_in(m, 2))
        return;
    memmove(t->dim + 1, t->dim, sizeof(dim) * (size_t)t->ndims++);
    t->dim[0] = more;
}

// One f32 for all elements: a number, or a tensor of one element.
static void draw_factor(maker *m, char text[24], double *size)
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
        *size *= m->tensor[i].size;
        snprintf(text, 24, "%%t%d", i);
    } else {
        *size *= whole[i].size;
        snprintf(text, 24, "%s", m->integers ? whole[i].text : any[i]);
    }
}

// What %x is where that is positive, and one number elsewhere.
static int keep_positive(maker *m, int x)
{
    static const char *const least[] = {"0.25", "0.5", "1", "2"};
    tensor t = m->tensor[x], one = {.dtype = t.dtype, .size = 2};
    int number, to;

    if (t.positive)
        return x;
    t.positive = true;
    t.size = fmax(t.size, one.size);
    number = read_tensor(m, add_tensor(m, &one, 't'));
    to = add_tensor(m, &t, 't');
    fprintf(m->body, "    %%t%d = fill value %s\n", number, least[pick(m, 4)]);
    fprintf(m->body, "    %%t%d = max %%t%d, %%t%d\n", to, x, number);
    return read_tensor(m, to);
}

// Where operand `i` is to be positive.
static bool needs_positive(map map, int i)
{
    return map == MAP_DIV
               ? i == 1
               : map == MAP_LOG || map == MAP_SQRT || map == MAP_RSQRT;
}

// What can be of the tensor; with `integers` what is exact.
static bool allows(const maker *m, map map, const tensor *t, bool over)
{
    bool floating = dtypes[t->dtype].floating;

    if (m->integers && floating && map == MAP_DIV)
        return false;
    switch (maps[map].numbers) {
    case ANY:
    case PICK:
        break;
    case FLOAT:
        return floating &&
               (!m->integers || map == MAP_RELU || map == MAP_RELU_GRAD);
    case TEST:
        return !over || t->dtype == U8;
    }
    return true;
}

// How large the result may be, and whether it is positive.
static void bound_map(map map, const tensor *x, double factor, tensor *t)
{
    double a = x[0].size, b = x[1].size;
    bool both = x[0].positive && x[1].positive;

    t->positive = false;
    switch (map) {
    case MAP_ADD:
        t->positive = both;
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
    case MAP_LT:
    case MAP_LE:
    case MAP_GT:
    case MAP_GE:
    case MAP_EQ:
    case MAP_NE:
        t->size = 1;
        break;
    case MAP_SELECT:
        t->positive = x[1].positive && x[2].positive;
        t->size = fmax(b, x[2].size);
        break;
    case MAP_FILL:
        t->size = factor;
        break;
    case MAP_SCALE:
        t->size = a * factor;
        break;
    case MAP_ABS:
    case MAP_RELU:
        t->positive = x[0].positive;
        t->size = a;
        break;
    case MAP_NEG:
    case MAP_GELU:
    case MAP_SILU:
        t->size = a;
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
    case MAP_TANH:
        t->size = 1;
        break;
    case MAP_SIGMOID:
        t->positive = a <= 4;
        t->size = 1;
        break;
    case MAP_RELU_GRAD:
    case MAP_GELU_GRAD:
    case MAP_SILU_GRAD:
        t->size = 1.13 * b; // no slope is steeper
        break;
    case NMAPS:
        break;
    }
    if (t->dtype == U8 && maps[map].numbers == ANY)
        t->size = dtypes[U8].large; // it wraps
}

// Operand `at` is %x, the others are drawn; what they hold goes to `out`.
static void draw_operands(maker *m, map map, const tensor *t, dtype of, int at,
                          int x, int operand[MAX_INPUTS],
                          tensor out[MAX_INPUTS])
{
    for (int i = 0; i < maps[map].inputs; i++) {
        bool mask = maps[map].numbers == PICK && i == 0;

        operand[i] =
            i == at ? read_tensor(m, x) : draw_operand_of(m, t, mask ? U8 : of);
        if (needs_positive(map, i) && dtypes[of].floating)
            operand[i] = keep_positive(m, operand[i]);
        out[i] = m->tensor[operand[i]];
    }
}

// Where a result goes: over %x, which is an inout, or anywhere.
static int place_over(maker *m, const tensor *t, int x, bool over)
{
    if (!over)
        return place_result(m, t, true);
    m->tensor[x].size = t->size;
    m->tensor[x].positive = t->positive;
    return x;
}

static void emit_operands(maker *m, int to, const char *op, int n,
                          const int *operand)
{
    fprintf(m->body, "    %%t%d = %s", to, op);
    for (int i = 0; i < n; i++)
        fprintf(m->body, "%s%%t%d", i > 0 ? ", " : " ", operand[i]);
}

static void map_onto(maker *m, int x, bool over)
{
    static const char *const keys[] = {"", " by ", " value "};
    tensor t = m->tensor[x], held[MAX_INPUTS] = {0};
    int operand[MAX_INPUTS], at, to;
    map map = (enum map)pick(m, NMAPS);
    dtype of = t.dtype;
    double factor = 1;
    char text[24] = "";

    while (!allows(m, map, &t, over))
        map = (map + 1) % NMAPS;
    if (!over && once_in(m, 8))
        widen(m, &t);
    at = pick(m, maps[map].inputs);
    if (maps[map].numbers == PICK && at == 0 && of == U8)
        of = over ? U8 : draw_dtype(m);
    else if (maps[map].numbers == PICK && at == 0)
        at = 1;
    t.dtype = maps[map].numbers == TEST ? U8 : of;
    t.size = 0;
    if (!fits(m, &t))
        return;
    draw_operands(m, map, &t, of, at, x, operand, held);
    if (maps[map].key != NO_KEY)
        draw_factor(m, text, &factor);
    bound_map(map, held, factor, &t);
    if (!fits(m, &t))
        return;
    to = place_over(m, &t, x, over);
    emit_operands(m, to, maps[map].text, maps[map].inputs, operand);
    fprintf(m->body, "%s%s\n", keys[maps[map].key], text);
}

// What a sum takes beside a dtype: f32, and beside that a narrower one.
static dtype draw_beside(maker *m, dtype dtype)
{
    bool fits = dtypes[dtype].floating && dtype != F64;

    if (!fits || !once_in(m, 3))
        return dtype;
    return dtype != F32 ? F32 : once_in(m, 2) ? BF16 : F16;
}

// Several operands joined to one.
static void fold_onto(maker *m, int x, bool over)
{
    tensor t = m->tensor[x];
    int operand[MAX_SUMMANDS];
    int n = 1 + pick(m, 4), at = 0;
    fold fold = once_in(m, 2) ? (enum fold)pick(m, NFOLDS) : FOLD_SUM;

    if (n == 4)
        n += once_in(m, 4) ? pick(m, MAX_SUMMANDS - 3) : 0;
    if (once_in(m, 2)) // not always what the operation began from is the first
        at = pick(m, n);
    t.size = 0;
    t.positive = true;
    for (int i = 0; i < n; i++) {
        const tensor *held;
        tensor like = m->tensor[x];

        if (i != at && fold == FOLD_SUM)
            like.dtype = draw_beside(m, t.dtype);
        operand[i] = i == at         ? read_tensor(m, x)
                     : once_in(m, 4) ? draw_operand_of(m, &like, like.dtype)
                                     : supply(m, &like);
        held = &m->tensor[operand[i]];
        t.size =
            fold == FOLD_SUM ? t.size + held->size : fmax(t.size, held->size);
        t.positive &= held->positive;
    }
    if (!fits(m, &t))
        return;
    emit_operands(m, place_over(m, &t, x, over), folds[fold], n, operand);
    fprintf(m->body, "\n");
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

// Element by element over itself: only an inout is written again and again.
static void make_update(maker *m, int x)
{
    int to = draw_inout(m, &m->tensor[x]);

    if (once_in(m, 3))
        fold_onto(m, to, true);
    else
        map_onto(m, to, true);
}

static void make_transpose(maker *m, int x)
{
    tensor t = m->tensor[x];
    int i = pick(m, t.ndims), j = pick(m, t.ndims);
    dim kept;

    if (i == j)
        return;
    kept = t.dim[i];
    t.dim[i] = t.dim[j];
    t.dim[j] = kept;
    read_tensor(m, x);
    fprintf(m->body, "    %%t%d = transpose %%t%d", place_result(m, &t, true),
            x);
    if (i + j != 2 * t.ndims - 3)
        fprintf(m->body, " dim0 %d dim1 %d", i, j);
    fprintf(m->body, "\n");
}

// Whether ranks have as many indices of it as each other.
static bool is_even(const maker *m, dim d)
{
    return d.mark < 0 || d.extent % m->axis[d.mark] == 0;
}

static void merge_dims(maker *m, tensor *t, int at)
{
    dim *d = &t->dim[at];

    if (at + 1 >= t->ndims || d[1].mark >= 0 || d->extent >= MANY ||
        d[1].extent >= MANY || (!is_even(m, *d) && d[1].extent > 1))
        return;
    *d = (dim){d->extent * d[1].extent, d->mark, 0};
    drop_dims(t, at + 1, 1);
}

static void split_dim(maker *m, tensor *t, int at)
{
    dim *d = &t->dim[at];
    int factor = 1 + pick(m, 4);
    dim outer = {d->extent / factor, d->mark, 0};

    if (t->ndims == HD_MAX_DIMS || d->extent >= MANY ||
        d->extent % factor != 0 ||
        (factor > 1 && !(is_even(m, *d) && is_even(m, outer))))
        return;
    if (factor == 1)
        outer.blocks = d->blocks;
    memmove(d + 1, d, sizeof(dim) * (size_t)(t->ndims++ - at));
    d[0] = outer;
    d[1] = (dim){factor, LOCAL, 0};
}

// A run says how long one of its dimensions is.
static bool is_many(const tensor *t)
{
    for (int i = 0; i < t->ndims; i++)
        if (t->dim[i].extent >= MANY)
            return true;
    return false;
}

static void make_reshape(maker *m, int x)
{
    tensor t = m->tensor[x];

    if (t.role == 'p' || is_many(&t))
        return;
    for (int n = 1 + pick(m, 3); n > 0 && t.ndims > 0; n--)
        (once_in(m, 2) ? merge_dims : split_dim)(m, &t, pick(m, t.ndims));
    read_tensor(m, x);
    fprintf(m->body, "    %%t%d = reshape %%t%d\n", place_whole(m, &t, true),
            x);
}

// ---------------------------------------------------------------- matmul

typedef struct product {
    tensor a, b, c;
    bool ta, tb, crossed;
} product;

static bool one_axis_each(const tensor *t)
{
    for (int i = 0; i < t->ndims; i++)
        for (int j = 0; j < i; j++)
            if (t->dim[i].mark >= 0 && t->dim[i].mark == t->dim[j].mark)
                return false;
    return true;
}

// One stream dimension is enough.
static void keep_stream(tensor *t)
{
    bool seen = false;

    for (int i = 0; i < t->ndims; i++) {
        if (t->dim[i].mark != STREAM)
            continue;
        if (seen)
            t->dim[i].mark = LOCAL;
        seen = true;
    }
}

static bool is_one(dim d)
{
    return d.extent == 1 && d.mark < 0;
}

// Dimension `i` of `n` that a batch has which may lack some in front.
static const dim *batch_dim(const tensor *t, int i, int n)
{
    int at = i - (n - (t->ndims - 2));

    return at < 0 ? NULL : &t->dim[at];
}

// The result's batch: the operands' from the last dimension on. An operand may
// have one index in one of them.
static bool pair_batches(product *p)
{
    int n = (p->a.ndims > p->b.ndims ? p->a.ndims : p->b.ndims) - 2;

    for (int i = 0; i < n; i++) {
        const dim *x = batch_dim(&p->a, i, n), *y = batch_dim(&p->b, i, n);

        if (x == NULL || (y != NULL && is_one(*x)))
            x = y;
        append_dim(&p->c, *x);
        if (y != NULL && !is_one(*y) &&
            (x->extent != y->extent ||
             (x->mark != y->mark && (x->mark >= 0 || y->mark >= 0))))
            return false;
    }
    return true;
}

// The result's dimensions. False if the operands do not fit each other.
static bool pair_operands(product *p)
{
    int na = p->a.ndims, nb = p->b.ndims, batch = nb - 2, rows = 0;
    int inner = p->ta ? 2 : 1; // dimensions of `a` that are no leading rows
    dim ka, kb;

    if (na < inner || batch < 0 ||
        (p->crossed ? na + batch > HD_MAX_DIMS || batch == 0
                    : batch > 0 && na < 2) ||
        (p->ta && p->crossed && na != 2))
        return false;
    ka = p->a.dim[na - inner];
    kb = p->b.dim[nb - (p->tb ? 1 : 2)];
    if (ka.extent != kb.extent || ka.mark >= 0 || kb.mark >= 0)
        return false;
    p->c = p->crossed ? p->b : p->a;
    p->c.ndims = p->crossed ? batch : 0;
    if (!p->crossed && batch > 0) {
        if (!pair_batches(p))
            return false;
        rows = na - 2;
    }
    for (int i = rows; i < na - inner; i++)
        append_dim(&p->c, p->a.dim[i]);
    if (p->ta)
        append_dim(&p->c, p->a.dim[na - 1]);
    append_dim(&p->c, p->b.dim[nb - (p->tb ? 2 : 1)]);
    keep_stream(&p->c);
    return one_axis_each(&p->c);
}

// A dimension that only `b` has, perhaps on an axis that is not in use.
static dim draw_free_dim(maker *m, const product *p)
{
    dim d = {draw_extent(m), LOCAL, 0};
    int axis = pick(m, m->naxes);

    if (m->naxes > 0 && !has_axis(&p->a, axis) && !has_axis(&p->b, axis) &&
        can_shard(m, d, axis) && once_in(m, 2))
        d.mark = axis;
    return d;
}

// A second operand's shape that goes with `a`: its batch is some of the last
// dimensions of that of `a`, perhaps with one index, or crosses all of `a`.
// False if there is none.
static bool draw_second_shape(maker *m, product *p)
{
    int n = p->a.ndims, batch = 0;
    dim k, columns;

    p->crossed = once_in(m, 5);
    if (p->crossed)
        batch = 1 + once_in(m, 3);
    else if (n >= 3 && once_in(m, 2))
        batch = pick(m, n - 1);
    p->tb = once_in(m, 2);
    p->ta = (p->crossed ? n == 2 : n >= 2) && once_in(m, 3);
    k = p->a.dim[n - (p->ta ? 2 : 1)];
    if (k.mark >= 0)
        return false;
    k.mark = LOCAL;
    p->b = (tensor){.dtype = p->a.dtype, .size = GENERATE_INPUT};
    for (int i = 0; i < batch; i++)
        append_dim(&p->b, p->crossed      ? draw_free_dim(m, p)
                          : once_in(m, 4) ? (dim){1, LOCAL, 0}
                                          : p->a.dim[n - 2 - batch + i]);
    columns = draw_free_dim(m, p);
    append_dim(&p->b, p->tb ? columns : k);
    append_dim(&p->b, p->tb ? k : columns);
    if (dtypes[p->a.dtype].exact <= 16 && once_in(m, 2))
        p->b.dtype = p->a.dtype == F8E4M3 ? F8E5M2 : F8E4M3;
    return pair_operands(p) && fits(m, &p->b);
}

// A tensor that there is, `a` itself too, to multiply `a` by: both operands may
// have been gathered or computed in one loop. -1 if none fits.
static int find_partner(maker *m, product *p)
{
    int skip = pick(m, 3), found = -1;

    p->crossed = once_in(m, 4);
    p->tb = !once_in(m, 3);
    p->ta = once_in(m, 4);
    for (int i = m->ntensors - 1; i >= 0 && skip >= 0; i--) {
        p->b = m->tensor[i];
        if (p->b.dtype == p->a.dtype && pair_operands(p)) {
            found = i;
            skip--;
        }
    }
    return found;
}

// The second operand, in the program and in `p`; -1 if there is none.
static int draw_partner(maker *m, product *p)
{
    int b = -1;

    if (once_in(m, m->chain ? 2 : 3))
        b = find_partner(m, p);
    if (b < 0) {
        if (!draw_second_shape(m, p))
            return -1;
        b = supply(m, &p->b);
    }
    p->b = m->tensor[b];
    return pair_operands(p) ? read_tensor(m, b) : -1;
}

// Sums of anything but f64 are in fp32, whatever the result is.
static bool fits_product(const maker *m, const product *p, dtype dtype)
{
    tensor t = p->c;

    t.dtype = dtype;
    return fits(m, &t) && (p->a.dtype == F64 || t.size <= limit_of(m, F32));
}

static void type_product(maker *m, product *p)
{
    static const dtype any[] = {F32, F16, BF16, F64};
    dtype other = p->a.dtype == F64 ? F64 : F32;

    p->c.positive = false;
    p->c.size = p->a.size * p->b.size *
                count_of(m, p->a.dim[p->a.ndims - (p->ta ? 2 : 1)].extent);
    if (once_in(m, 6))
        other = any[pick(m, 4)];
    p->c.dtype = p->a.dtype;
    if (once_in(m, 3) || !fits_product(m, p, p->c.dtype))
        p->c.dtype = other;
}

// It lies along the columns, and may along what else the result has.
static int draw_bias(maker *m, const product *p)
{
    const dtype choice[] = {F32, p->a.dtype, p->c.dtype};
    tensor t = p->c;

    t.dtype = choice[pick(m, 3)];
    drop_dims(&t, 0, once_in(m, 3) ? pick(m, t.ndims) : t.ndims - 1);
    for (int i = 0; i < t.ndims; i++)
        if (t.ndims > 1 && once_in(m, 2))
            t.dim[i] = (dim){1, LOCAL, 0};
    return supply(m, &t);
}

// They lie along the operand; of its last dimensions, none of the `batch`, one
// may be of several indices.
static void draw_scales(maker *m, product *p, char side, int batch, int grain,
                        FILE *keys)
{
    tensor t = side == 'a' ? p->a : p->b;
    int i;

    t.dtype = F32;
    t.size = GENERATE_INPUT;
    for (int d = 0; d < t.ndims; d++) {
        int extent = t.dim[d].extent;

        if (once_in(m, 3))
            t.dim[d] = (dim){1, LOCAL, 0};
        else if (d >= batch && d >= t.ndims - 2 && extent < MANY &&
                 t.dim[d].mark < 0 && extent > grain)
            t.dim[d] = (dim){(extent + grain - 1) / grain, LOCAL, 0};
    }
    i = supply(m, &t);
    p->c.size *= m->tensor[i].size;
    fprintf(keys, " scale_%c %%t%d", side, i);
}

static void draw_all_scales(maker *m, product *p, FILE *keys)
{
    int grain = once_in(m, 2) ? 2 + pick(m, 3) : MANY, way = pick(m, 3);
    int batch = p->b.ndims - 2;

    if (way != 1)
        draw_scales(m, p, 'a', p->crossed ? 0 : batch, grain, keys);
    if (way != 0)
        draw_scales(m, p, 'b', batch, grain, keys);
    if (grain < MANY)
        fprintf(keys, " grain %d", grain);
}

static void draw_keys(maker *m, product *p, FILE *keys)
{
    static const char *const acts[] = {"relu", "gelu", "silu"};
    char factor[24];
    int bias;

    fprintf(keys, "%s%s", p->ta ? " ta" : "", p->tb ? " tb" : "");
    if (once_in(m, 4)) {
        draw_factor(m, factor, &p->c.size);
        fprintf(keys, " scale %s", factor);
    }
    if (once_in(m, 5))
        draw_all_scales(m, p, keys);
    if (once_in(m, 3)) {
        bias = draw_bias(m, p);
        p->c.size += m->tensor[bias].size;
        fprintf(keys, " bias %%t%d", bias);
    }
    if (once_in(m, 3))
        fprintf(keys, " act %s", acts[m->integers ? 0 : pick(m, 3)]);
}

// What is kept of the product before its activation: a result or an inout,
// perhaps of another dtype.
static int draw_aux(maker *m, const product *p)
{
    static const dtype any[] = {F32, F16, BF16, F64};
    tensor t = p->c;
    int aux;

    if (once_in(m, 3))
        t.dtype = any[pick(m, 4)];
    if (!fits(m, &t))
        t.dtype = p->c.dtype;
    aux = place_whole(m, &t, true);
    if (m->tensor[aux].role == 'b')
        read_tensor(m, aux); // not the product's place too
    return aux;
}

// The inout that a product is added to, perhaps one that there is; -1 if the
// sum may be too large.
static int draw_target(maker *m, const product *p)
{
    int to = find_inout(m, &p->c, true);
    tensor t = p->c;

    if (to < 0 || once_in(m, 2)) {
        t.size = GENERATE_INPUT;
        to = add_result(m, &t, 'b');
    }
    t.size = p->c.size + m->tensor[to].size;
    if (!fits(m, &t) || t.size > limit_of(m, p->a.dtype == F64 ? F64 : F32))
        return -1;
    m->tensor[to].size = t.size;
    m->tensor[to].positive = false;
    return read_tensor(m, to);
}

// An operand of two dimensions that each rank has whole; another one, if `x` is
// none.
static int draw_rows(maker *m, int x)
{
    tensor t = m->tensor[x];

    if (t.ndims != 2 || t.dim[0].mark >= 0 || t.dim[1].mark >= 0) {
        t.ndims = 0;
        append_dim(&t, (dim){draw_extent(m), LOCAL, 0});
        append_dim(&t, (dim){draw_extent(m), LOCAL, 0});
        x = supply(m, &t);
    }
    return read_tensor(m, x);
}

// The shapes of the second operand and of the result, columns being over ranks
// or not.
static void draw_groups(maker *m, product *p, dim groups)
{
    dim columns = draw_free_dim(m, p), rows = p->a.dim[0], k = p->a.dim[1];

    rows.mark = k.mark = LOCAL;
    p->ta = once_in(m, 3);
    p->tb = !p->ta && once_in(m, 2);
    p->b = p->c = (tensor){.dtype = p->a.dtype, .size = GENERATE_INPUT};
    append_dim(p->ta ? &p->c : &p->b, groups);
    append_dim(&p->b, p->ta ? rows : p->tb ? columns : k);
    append_dim(&p->b, p->tb ? k : columns);
    append_dim(&p->c, p->ta ? k : rows);
    append_dim(&p->c, columns);
}

// The counts are an input of their own: nothing else makes them fit.
static void make_grouped(maker *m, int x)
{
    dim groups = {draw_extent(m), LOCAL, 0};
    tensor n = {.dtype = I32, .ndims = 1, .dim = {groups}};
    product p = {0};
    const char *act = once_in(m, 3) ? " act relu" : "";
    int b, to = -1, aux = -1, counts;
    bool keeps = once_in(m, 3), adds = once_in(m, 2);

    x = draw_rows(m, x);
    p.a = m->tensor[x];
    draw_groups(m, &p, groups);
    if (!fits(m, &p.b))
        return;
    b = supply(m, &p.b);
    p.b = m->tensor[b];
    p.c.size = p.a.size * p.b.size * p.a.dim[p.ta ? 0 : 1].extent;
    if (!fits_product(m, &p, p.c.dtype))
        return;
    if (keeps)
        to = draw_target(m, &p);
    keeps = to >= 0;
    if (!p.ta && once_in(m, 3))
        aux = draw_aux(m, &p);
    if (!keeps)
        to = place_result(m, &p.c, true);
    counts = add_input(m, &n);
    fprintf(m->body, "    %%t%d = matmul %%t%d, %%t%d%s%s%s", to, x, b,
            p.ta ? " ta" : "", p.tb ? " tb" : "", p.ta ? "" : act);
    if (aux >= 0)
        fprintf(m->body, " aux %%t%d", aux);
    fprintf(m->body, "%s groups %%t%d%s\n",
            keeps && (adds || p.ta) ? " accumulate" : "", counts,
            keeps && !adds && !p.ta ? " keep" : "");
}

// ------------------------------------------------------ counts from elsewhere

// A tensor with counts: which dimension has them, whose they are, of how many
// dimensions, and its own number.
typedef struct counting {
    tensor t;
    int dim, lead;
    int counts, number;
} counting;

// What counts of the first dimensions are, placed as these are.
static tensor counts_of(const counting *c)
{
    tensor n = {.dtype = I32, .ndims = c->lead};

    for (int d = 0; d < n.ndims; d++) {
        n.dim[d] = c->t.dim[d];
        if (n.dim[d].mark == STREAM)
            n.dim[d].mark = LOCAL;
    }
    return n;
}

// What experts have of each rank: the first two dimensions may be on one axis.
static tensor draw_slots(maker *m)
{
    tensor t = {.dtype = draw_dtype(m), .size = GENERATE_INPUT};
    int axis = pick(m, m->naxes);

    append_dim(&t, (dim){m->axis[axis], axis, 0});
    append_dim(&t, (dim){m->axis[axis], LOCAL, 0});
    if (m->blocks)
        t.dim[0].extent = 1 + pick(m, 7);
    if (m->blocks)
        t.dim[1].extent = 1 + pick(m, 7);
    append_dim(&t, (dim){1 + pick(m, 6), LOCAL, 0});
    append_dim(&t, (dim){1 + pick(m, 4), LOCAL, 0});
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

// Two of the counts' dimensions change places.
static void swap_dims(counting *c, int i, int j)
{
    dim kept = c->t.dim[i];

    c->t.dim[i] = c->t.dim[j];
    c->t.dim[j] = kept;
}

// Both the counts and what they count are moved, or both are transposed.
static void move_counted(maker *m, counting *c)
{
    counting from = *c;
    const char *op = "set";
    char keys[32] = "";
    tensor n;

    if (c->lead > 1 && once_in(m, 4)) {
        int i = pick(m, c->lead), j = (i + 1 + pick(m, c->lead - 1)) % c->lead;

        swap_dims(c, i, j);
        op = "transpose";
        snprintf(keys, sizeof keys, " dim0 %d dim1 %d", i, j);
    } else {
        move_marks(m, c);
    }
    n = counts_of(c);
    c->counts = read_tensor(m, add_tensor(m, &n, 't'));
    c->number = declare_counted(m, once_in(m, 6) ? "out" : "temp", &c->t,
                                c->dim, c->counts);
    fprintf(m->body, "    %%t%d = %s %%t%d%s\n", c->counts, op, from.counts,
            keys);
    fprintf(m->body, "    %%c%d = %s %%c%d%s\n", c->number, op, from.number,
            keys);
}

// Rows that are counted, each by a matrix. False if none fits.
static bool multiply_counted(maker *m, const counting *c)
{
    product p = {.a = c->t, .c = c->t};
    dim k = c->t.dim[c->t.ndims - 1], columns = {draw_extent(m), LOCAL, 0};
    int b;

    if (!dtypes[c->t.dtype].floating || c->dim == c->t.ndims - 1 || k.mark >= 0)
        return false;
    k.mark = LOCAL;
    p.b = (tensor){.dtype = c->t.dtype, .ndims = 2, .dim = {k, columns}};
    p.b.size = GENERATE_INPUT;
    if (!fits(m, &p.b))
        return false;
    b = supply(m, &p.b);
    p.b = m->tensor[b];
    p.c.dim[p.c.ndims - 1] = columns;
    type_product(m, &p);
    if (!fits_product(m, &p, p.c.dtype))
        return false;
    fprintf(m->body, "    %%t%d = matmul %%c%d, %%t%d\n",
            place_result(m, &p.c, true), c->number, b);
    return true;
}

// Of `x` or of an argument.
static void begin_counted(maker *m, counting *c, int x)
{
    tensor n = counts_of(c);
    bool argument = x < 0 || once_in(m, 4);

    c->counts = read_tensor(m, add_input(m, &n));
    c->t.positive = false;
    if (argument)
        c->t.size = GENERATE_INPUT;
    c->number =
        declare_counted(m, argument ? "in" : "temp", &c->t, c->dim, c->counts);
    if (!argument)
        fprintf(m->body, "    %%c%d = copy %%t%d\n", c->number,
                read_tensor(m, x));
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
    begin_counted(m, &c, x);
    for (int n = 1 + pick(m, 3); n > 0; n--)
        move_counted(m, &c);
    if (once_in(m, 3) && multiply_counted(m, &c))
        return;
    leave_counted(m, c.t, c.number, c.lead);
}

// What its experts are, an operand of i32 that ends with two dimensions that
// each rank has whole; another one, if `x` is none.
static int draw_experts(maker *m, int x)
{
    tensor t = m->tensor[x];
    bool fitting = t.dtype == I32 && t.ndims >= 2;

    while (t.ndims < 2)
        append_dim(&t, (dim){draw_extent(m), LOCAL, 0});
    for (int d = t.ndims - 2; d < t.ndims; d++) {
        fitting &= t.dim[d].mark < 0;
        t.dim[d].mark = LOCAL;
    }
    t.dtype = I32;
    t.size = GENERATE_INPUT;
    return fitting ? read_tensor(m, x) : fits(m, &t) ? supply(m, &t) : -1;
}

// A result that is no other one's place.
static int place_beside(maker *m, const tensor *t)
{
    int to = place_result(m, t, true);

    if (m->tensor[to].role == 'b')
        read_tensor(m, to);
    return to;
}

static void make_route(maker *m, int x)
{
    tensor token, slot, n;
    int last, to[3];

    x = draw_experts(m, x);
    if (x < 0)
        return;
    slot = token = m->tensor[x];
    slot.positive = token.positive = false;
    last = token.ndims - 1;
    token.size = count_of(m, token.dim[last - 1].extent);
    token.dim[last - 1] = (dim){draw_extent(m), LOCAL, 0};
    token.dim[last] = (dim){draw_extent(m), LOCAL, 0};
    n = token;
    drop_dims(&n, last, 1);
    n.size = count_of(m, token.dim[last].extent);
    slot.size = n.size * count_of(m, token.dim[last - 1].extent);
    if (!fits(m, &token) || !fits(m, &slot))
        return;
    to[0] = place_beside(m, &token);
    to[1] = place_beside(m, &slot);
    to[2] = place_beside(m, &n);
    fprintf(m->body, "    %%t%d, %%t%d, %%t%d = route %%t%d\n", to[0], to[1],
            to[2], x);
}

// The greatest of the last dimension, which each rank has whole.
static void make_top_k(maker *m, int x)
{
    tensor best = m->tensor[x], where;
    int last = best.ndims - 1, to[2];

    if (last < 0 || best.dim[last].mark >= 0 || best.dim[last].extent >= MANY)
        return;
    read_tensor(m, x);
    where = best;
    where.dtype = I32;
    where.size = best.dim[last].extent;
    where.positive = false;
    best.dim[last] = where.dim[last] =
        (dim){1 + pick(m, best.dim[last].extent), LOCAL, 0};
    to[0] = place_beside(m, &best);
    to[1] = place_beside(m, &where);
    fprintf(m->body, "    %%t%d, %%t%d = top_k %%t%d\n", to[0], to[1], x);
}

// ---------------------------------------------------------------- attention

// Whether the last `n` dimensions are on each rank whole, with constant
// extents.
static bool ends_whole(const tensor *t, int n)
{
    bool whole = t->ndims >= n;

    for (int d = t->ndims - n; whole && d < t->ndims; d++)
        whole = t->dim[d].mark == LOCAL && t->dim[d].extent < MANY;
    return whole;
}

// The axis of which each rank has an index of the batch; -1 if there is none.
static int placed_axis(const maker *m, const tensor *q)
{
    for (int d = 0; d < q->ndims - 3; d++)
        if (q->dim[d].mark >= 0 && q->dim[d].extent == m->axis[q->dim[d].mark])
            return q->dim[d].mark;
    return -1;
}

// A scale, and which of so many blocks the rows are: all ranks' the same one,
// or each's another, in order or not.
static void draw_zigzag(maker *m, const tensor *q, int blocks, char keys[KEYS])
{
    const char *scale = once_in(m, 2) ? " scale 0.125" : "";
    int own = pick(m, blocks), axis = placed_axis(m, q);

    if (axis < 0 || once_in(m, 3))
        snprintf(keys, KEYS, "%s zigzag %d", scale, own);
    else if (m->axis[axis] <= blocks && once_in(m, 2))
        snprintf(keys, KEYS, "%s zigzag %s", scale, axis_names[axis]);
    else
        snprintf(keys, KEYS, "%s zigzag (%d * %s + %d) mod %d", scale,
                 1 + pick(m, 3), axis_names[axis], own, blocks);
}

// A scale, and a mask that some rows may see nothing by. Blocks of keys stand
// one behind the other, or in any other way.
static void draw_sight(maker *m, const tensor *q, bool blocks, char keys[KEYS])
{
    int rows = q->dim[q->ndims - 2].extent, n = 0, axis = placed_axis(m, q);

    keys[0] = '\0';
    if (once_in(m, 2))
        n = snprintf(keys, KEYS, " scale 0.125");
    if (once_in(m, 2))
        return;
    n += snprintf(keys + n, KEYS - (size_t)n, " causal %d",
                  pick(m, 2 * rows + 1) - rows);
    if (axis >= 0 && once_in(m, 2))
        n += snprintf(keys + n, KEYS - (size_t)n, " + %d * %s",
                      pick(m, 2 * rows + 1) - rows, axis_names[axis]);
    if (blocks && once_in(m, 2))
        n += snprintf(keys + n, KEYS - (size_t)n, " step %d",
                      pick(m, 2 * rows + 1) - rows);
    if (once_in(m, 3))
        snprintf(keys + n, KEYS - (size_t)n, " window %d", 1 + pick(m, rows));
}

// Heads of rows, of a batch that may be over ranks.
static int add_heads(maker *m)
{
    tensor t = {.dtype = once_in(m, 3) ? F32 : draw_dtype(m)};

    if (t.dtype > BF16)
        t.dtype = BF16;
    if (m->naxes > 0 && once_in(m, 2)) {
        int axis = pick(m, m->naxes);

        append_dim(&t, (dim){m->axis[axis], axis, 0});
    }
    for (int i = 0; i < 3; i++)
        append_dim(&t, (dim){1 + pick(m, 5), LOCAL, 0});
    return add_input(m, &t);
}

// What holds o and lse, or what they are added to.
static void place_rows(maker *m, const tensor *o, const tensor *lse, bool keep,
                       int to[2])
{
    to[0] = keep ? add_tensor(m, o, 'b') : place_beside(m, o);
    to[1] = keep ? add_tensor(m, lse, 'b') : place_beside(m, lse);
    m->tensor[to[1]].size = INFINITY; // of a row that sees nothing
}

static tensor lse_of(const tensor *o)
{
    tensor lse = *o;

    drop_dims(&lse, o->ndims - 1, 1);
    lse.dtype = o->dtype == F64 ? F64 : F32;
    lse.size = GENERATE_INPUT;
    return lse;
}

// A dimension of blocks, ahead of the last three.
static void add_blocks(tensor *t, dim blocks)
{
    int at = t->ndims - 3;

    memmove(t->dim + at + 1, t->dim + at, sizeof(dim) * 3);
    t->dim[at] = blocks;
    t->ndims++;
}

// An attention, by the numbers of its tensors.
typedef struct attended {
    int q, k, v, o, lse;
    char rows[NAME], key_rows[NAME]; // what q and k are called
    bool blocks;                     // of keys
    char keys[KEYS];
} attended;

static int place_gradient(maker *m, const tensor *t, bool keep)
{
    return keep ? add_tensor(m, t, 'b') : place_beside(m, t);
}

// Of the whole batch, in `like`'s last dimensions. A weight is 1 at most, and
// there are 32 blocks of keys at most.
static tensor gradient_of(maker *m, const attended *a, int like)
{
    const tensor *q = &m->tensor[a->q], *k = &m->tensor[a->k];
    const tensor *v = &m->tensor[a->v], *o = &m->tensor[a->o];
    tensor t = *q;
    double rows = q->dim[q->ndims - 3].extent * q->dim[q->ndims - 2].extent;
    double keys = k->dim[k->ndims - 2].extent;
    double up = v->dim[v->ndims - 1].extent * (v->size + o->size);

    if (a->blocks && like != a->q)
        add_blocks(&t, t.dim[0]);
    for (int d = 1; d <= 3 + (a->blocks && like != a->q); d++)
        t.dim[t.ndims - d] = m->tensor[like].dim[m->tensor[like].ndims - d];
    t.dtype = once_in(m, 2) ? q->dtype : q->dtype == F64 ? F64 : F32;
    t.size =
        GENERATE_INPUT * (1 + up * (q->size + k->size)) * (rows + 32 * keys);
    t.positive = false;
    return t;
}

// Of queries that may be large, which no 16 bits hold.
static void make_gradients(maker *m, const attended *a)
{
    tensor dq = gradient_of(m, a, a->q), dk = gradient_of(m, a, a->k);
    tensor dv = gradient_of(m, a, a->v);
    bool keep = once_in(m, 3);
    int to[3], up;

    if (!fits(m, &dq) || !fits(m, &dk) || !fits(m, &dv))
        return;
    up = read_tensor(m, add_input(m, &m->tensor[a->o]));
    read_tensor(m, a->o);
    read_tensor(m, a->lse);
    to[0] = place_gradient(m, &dq, keep);
    to[1] = place_gradient(m, &dk, keep);
    to[2] = place_gradient(m, &dv, keep);
    fprintf(m->body,
            "    %%t%d, %%t%d, %%t%d = attention_grad %s, %s, %%t%d, "
            "%%t%d, %%t%d, %%t%d%s%s%s\n",
            to[0], to[1], to[2], a->rows, a->key_rows, a->v, a->o, a->lse, up,
            a->keys, keep ? " accumulate" : "", a->blocks ? " blocks" : "");
}

// What keys and values are in, if it is not one block.
static bool draw_blocks(maker *m, dim *blocks)
{
    *blocks = (dim){1 + pick(m, 4), LOCAL, 0};
    if (m->naxes > 0)
        blocks->extent = m->axis[pick(m, m->naxes)];
    return once_in(m, 2);
}

// Keys or values that are gathered from ranks, a block each, or an input.
static int add_keys(maker *m, const tensor *t, bool blocks)
{
    tensor shard = *t, all = *t;
    int at = t->ndims - 4, axis = -1, x;

    for (int i = 0; blocks && i < m->naxes; i++)
        if (m->axis[i] == t->dim[at].extent)
            axis = i;
    for (int d = 0; d < t->ndims && axis >= 0; d++)
        if (t->dim[d].mark == axis)
            axis = -1;
    if (axis < 0 || !m->streams || once_in(m, 4))
        return (once_in(m, 2) ? add_input : add_input_part)(m, t);
    shard.dim[at].mark = axis;
    all.dim[at].mark = STREAM;
    x = read_tensor(m, add_input(m, &shard));
    at = add_tensor(m, &all, 't');
    fprintf(m->body, "    %%t%d = set %%t%d\n", at, x);
    return at;
}

// What queries or keys are called: themselves, or a copy whose rows are counted
// for each of the first dimensions of the batch.
static void name_rows(maker *m, int x, bool counted, char out[NAME])
{
    tensor t = m->tensor[x], n = {.dtype = I32};
    dim rows = t.dim[t.ndims - 2];
    int counts;

    snprintf(out, NAME, "%%t%d", x);
    if (!counted || rows.mark != LOCAL || rows.extent >= MANY)
        return;
    for (; n.ndims < t.ndims - 3 && !once_in(m, 4); n.ndims++) {
        n.dim[n.ndims] = t.dim[n.ndims];
        if (n.dim[n.ndims].mark == STREAM)
            n.dim[n.ndims].mark = LOCAL;
    }
    counts = read_tensor(m, add_input(m, &n));
    t.positive = false;
    snprintf(out, NAME, "%%c%d",
             declare_counted(m, "temp", &t, t.ndims - 2, counts));
    fprintf(m->body, "    %s = copy %%t%d\n", out, x);
}

// Whether rows and keys may be of several sequences: as many of both, which
// counts say of each of the first dimensions of the batch.
static bool draw_sequences(maker *m, const tensor *q, bool blocks, tensor *n)
{
    *n = (tensor){.dtype = I32};
    if (blocks || !once_in(m, 4) || q->dim[q->ndims - 2].extent >= MANY)
        return false;
    for (; n->ndims < q->ndims - 3 && !once_in(m, 4); n->ndims++) {
        n->dim[n->ndims] = q->dim[n->ndims];
        if (n->dim[n->ndims].mark == STREAM)
            n->dim[n->ndims].mark = LOCAL;
    }
    append_dim(n, (dim){1 + pick(m, 4), LOCAL, 0});
    return true;
}

// Keys and values are of the queries' batch or of one for all, and may be in
// blocks, or padded, or of several sequences.
static void make_attention(maker *m, int x)
{
    tensor q, k, v, o, lse, n;
    attended a;
    int to[2];
    bool keep = once_in(m, 4), blocks, sequences, zigzag;
    dim count;

    if (!ends_whole(&m->tensor[x], 3) || m->tensor[x].dtype > BF16)
        x = add_heads(m);
    o = k = q = m->tensor[x];
    blocks = draw_blocks(m, &count) && q.ndims < HD_MAX_DIMS;
    if (once_in(m, 3))
        drop_dims(&k, 0, q.ndims - 3);
    sequences = draw_sequences(m, &q, blocks, &n);
    zigzag = blocks && q.dim[q.ndims - 2].extent % 2 == 0 && !once_in(m, 4);
    if (!sequences && !zigzag)
        k.dim[k.ndims - 2].extent = 1 + pick(m, 6);
    if (once_in(m, 2))
        k.dim[k.ndims - 3].extent = 1;
    if (blocks)
        add_blocks(&k, count);
    v = k;
    v.dim[v.ndims - 1].extent = 1 + pick(m, 5);
    o.dim[o.ndims - 1] = v.dim[v.ndims - 1];
    o.size = GENERATE_INPUT;
    o.positive = false;
    lse = lse_of(&o);
    if (!fits(m, &k) || !fits(m, &v) || !fits(m, &o))
        return;
    a.q = read_tensor(m, x);
    a.k = read_tensor(m, add_keys(m, &k, blocks));
    a.v = read_tensor(m, add_keys(m, &v, blocks));
    place_rows(m, &o, &lse, keep, to);
    a.o = to[0];
    a.lse = to[1];
    a.blocks = blocks;
    if (zigzag)
        draw_zigzag(m, &q, count.extent, a.keys);
    else
        draw_sight(m, &q, blocks, a.keys);
    if (sequences)
        snprintf(a.keys + strlen(a.keys), KEYS - strlen(a.keys),
                 " groups %%t%d", read_tensor(m, add_input(m, &n)));
    name_rows(m, a.q, !blocks && !sequences && once_in(m, 3), a.rows);
    name_rows(m, a.k, !blocks && !sequences && once_in(m, 3), a.key_rows);
    fprintf(m->body, "    %%t%d, %%t%d = attention %s, %s, %%t%d%s%s%s\n", a.o,
            a.lse, a.rows, a.key_rows, a.v, a.keys, keep ? " accumulate" : "",
            blocks ? " blocks" : "");
    if (once_in(m, 2))
        make_gradients(m, &a);
}

static void make_merge(maker *m, int x)
{
    tensor o, lse;
    int to[2], of[3];

    if (!ends_whole(&m->tensor[x], 3) || m->tensor[x].dtype > BF16)
        x = add_heads(m);
    o = m->tensor[x];
    o.positive = false;
    o.size += GENERATE_INPUT;
    lse = lse_of(&o);
    if (!fits(m, &o))
        return;
    read_tensor(m, x);
    of[0] = read_tensor(m, add_input(m, &lse));
    of[1] = read_tensor(m, (once_in(m, 2) ? add_input : add_input_part)(m, &o));
    of[2] = read_tensor(m, add_input(m, &lse));
    place_rows(m, &o, &lse, false, to);
    fprintf(m->body, "    %%t%d, %%t%d = merge %%t%d, %%t%d, %%t%d, %%t%d\n",
            to[0], to[1], x, of[0], of[1], of[2]);
}

static void make_attend(maker *m, int x)
{
    if (!m->integers)
        (once_in(m, 3) ? make_merge : make_attention)(m, x);
}

// ------------------------------------------------------- what indices say

// The dimension to take from, which each rank has whole; -1 if there is none.
static int draw_taken(maker *m, const tensor *t)
{
    int dim = t->ndims > 0 ? pick(m, t->ndims) : 0;

    while (dim < t->ndims && t->dim[dim].mark >= 0)
        dim++;
    return dim < t->ndims ? dim : -1;
}

// Indices that other data say, in place of one dimension. Those of an input are
// drawn so that most are in it.
static void make_take(maker *m, int x)
{
    tensor t = m->tensor[x], i = {.dtype = I32, .size = GENERATE_INPUT};
    tensor own = {0}, result = t;
    int at = draw_taken(m, &t), n = pick(m, 3), indices;

    if (at < 0 || t.ndims - 1 + n > HD_MAX_DIMS)
        return;
    while (own.ndims < n)
        append_dim(&own, (dim){draw_extent(m), LOCAL, 0});
    draw_marks(m, &own);
    for (int d = 0; d < at; d++)
        append_dim(&i, t.dim[d]);
    for (int d = 0; d < n; d++)
        append_dim(&i, own.dim[d]);
    result.ndims = 0;
    for (int d = 0; d < i.ndims; d++)
        append_dim(&result, i.dim[d]);
    for (int d = at + 1; d < t.ndims; d++)
        append_dim(&result, t.dim[d]);
    result.positive = false; // an index of none takes zeros
    keep_stream(&i);
    keep_stream(&result);
    if (!one_axis_each(&result) || !fits(m, &result) || !fits(m, &i))
        return;
    read_tensor(m, x);
    indices = once_in(m, 3) ? supply(m, &i) : read_tensor(m, add_input(m, &i));
    fprintf(m->body, "    %%t%d = take %%t%d, %%t%d dim %d\n",
            place_result(m, &result, true), x, indices, at);
}

static void make_matmul(maker *m, int x)
{
    product p = {.a = m->tensor[x]};
    char keys[128] = "";
    FILE *stream;
    int b, to = -1, aux = -1;
    bool accumulate;

    if (dtypes[p.a.dtype].floating && m->nsizes == 0 && once_in(m, 8)) {
        make_grouped(m, x);
        return;
    }
    if (!dtypes[p.a.dtype].floating || p.a.ndims < 1)
        return;
    read_tensor(m, x);
    b = draw_partner(m, &p);
    stream = b >= 0 ? fmemopen(keys, sizeof keys, "w") : NULL;
    if (stream == NULL)
        return;
    type_product(m, &p);
    draw_keys(m, &p, stream);
    fclose(stream);
    if (!fits_product(m, &p, p.c.dtype))
        return;
    if (once_in(m, 6))
        to = draw_target(m, &p);
    accumulate = to >= 0;
    if (once_in(m, 3))
        aux = draw_aux(m, &p);
    if (!accumulate)
        to = place_result(m, &p.c, true);
    fprintf(m->body, "    %%t%d = matmul %%t%d, %%t%d%s", to, x, b, keys);
    if (aux >= 0)
        fprintf(m->body, " aux %%t%d", aux);
    fprintf(m->body, "%s\n", accumulate ? " accumulate" : "");
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
    static void (*const ops[])(maker *, int) = {
        make_matmul, make_matmul, make_matmul, make_map,
        make_fold,   make_copy,   make_update};
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
    if (fits(m, &t))
        ops[pick(m, 7)](m, add_input(m, &t));
}

// The sum of what all ranks have of each index goes to the rank of that number,
// or to every rank.
static void scatter(maker *m, int x, int over)
{
    tensor t = m->tensor[x];
    fold fold = once_in(m, 3) ? (enum fold)pick(m, NFOLDS) : FOLD_SUM;

    if (!once_in(m, 3))
        t.dim[stream_dim(&t)].mark = t.dim[over].mark;
    if (fold == FOLD_SUM)
        t.size *= count_of(m, t.dim[over].extent);
    drop_dims(&t, over, 1);
    if (!fits(m, &t))
        return;
    read_tensor(m, x);
    fprintf(m->body, "    %%t%d = %s %%t%d dim %d\n", place_result(m, &t, true),
            folds[fold], x, over);
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
    static void (*const ops[])(maker *, int) = {
        make_matmul,  make_map,       make_tiles,     make_matmul,
        make_fold,    make_map,       make_copy,      make_tiles,
        make_update,  make_transpose, make_map,       make_matmul,
        make_staged,  make_set,       make_map,       make_reduction,
        make_set,     make_update,    make_transpose, make_reshape,
        make_reshape, make_route,     make_take,      make_top_k,
        make_moved,   make_attend};
    enum { OPS = sizeof ops / sizeof ops[0], CHAIN = 13 };
    int n = m->nstreamed < 4 && !m->chain ? 2 * m->nstreamed + 1 : 8;
    bool streams = m->streams && m->naxes > 0;

    m->now++;
    if (streams && once_in(m, 4))
        make_scatter(m);
    else if (streams && (m->nstreamed == 0 || pick(m, n) == 0))
        (pick(m, 2) == 1 ? stream_input : make_gather)(m);
    else
        ops[pick(m, m->chain ? CHAIN : OPS)](m, draw_operand(m));
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
        size->low = once_in(m, 4) ? 1 + pick(m, size->high) : 1;
        size->blocks = m->naxes > 0 && !once_in(m, 4)
                           ? m->axis[pick(m, m->naxes)]
                           : pick(m, 5);
    }
}

static void draw_mesh(maker *m)
{
    static const int meshes[][MAX_AXES] = {
        {4, 0, 0}, {2, 0, 0}, {2, 2, 0},    {3, 0, 0}, {2, 3, 0}, {3, 2, 0},
        {1, 0, 0}, {0, 0, 0}, {5, 0, 0},    {8, 0, 0}, {1, 2, 0}, {2, 2, 2},
        {4, 2, 0}, {2, 1, 4}, {2, 1, 2, 2}, {6, 0, 0}};
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
    fprintf(to, "%s %%t%d : %s[",
            t->role == 'i'   ? "in"
            : t->role == 'o' ? "out"
            : t->role == 'b' ? "inout"
                             : "temp",
            i, dtypes[t->dtype].text);
    for (int d = 0; d < t->ndims; d++) {
        fprintf(to, "%s", d > 0 ? ", " : "");
        write_dim(m, t->dim[d], to);
    }
    fprintf(to, "]%s\n", once_in(m, 8) ? " shared" : "");
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

    o.transfer = (hd_transfer)choices_pick(choices, 6);
    o.protocol =
        choices_pick(choices, 2) == 1 ? HD_PROTOCOL_GET : HD_PROTOCOL_PUT;
    o.streams = 1 + choices_pick(choices, 4);
    o.chunks = choices_pick(choices, 2) == 1 ? 1 + choices_pick(choices, 3) : 1;
    o.copy_own = choices_pick(choices, 2) == 1;
    o.defer_sends = choices_pick(choices, 2) == 1;
    o.comm_stream = choices_pick(choices, 2) == 1;
    o.wire = choices_pick(choices, 2) == 1 ? HD_WIRE_F32 : HD_WIRE_RESULT;
    return o;
}
