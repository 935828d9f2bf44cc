// A program grows one operation at a time from the tensors that there are;
// where an operation needs another operand, an input is made for it. Each
// tensor carries a bound on its elements, which is what keeps `integers` exact.
// In the end what nobody read becomes an output.
//
// Many operations begin from a `set` that turns a sharded dimension into a
// stream dimension, and go on from there, since that is what becomes a loop.
#include "generate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DIMS = 5,
    MAX_ELEMENTS = 4096, // of one tensor
    MAX_AXES = 3,
    TENSORS_PER_OP = 6, // at most
    BYTES_PER_OP = 48,
};

enum { LOCAL = -1, STREAM = -2 }; // marks that are no axis

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
    {"u8", false, 0, 255},
};

typedef struct dim {
    int extent;
    int mark;
} dim;

typedef struct tensor {
    dtype dtype;
    int ndims;
    dim dim[HD_MAX_DIMS];
    double size; // no element is larger
    char role;   // 'i'n, 'o'ut, 't'emp or inout, 'b'oth
    bool read;
} tensor;

typedef struct maker {
    choices *choices;
    bool integers;
    int naxes;
    int axis[MAX_AXES]; // sizes
    bool streams;       // stream dimensions may be drawn
    int ntensors;
    tensor *tensor; // owned
    int ngathered;
    int *gathered; // owned: what can be pipelined
    FILE *body;    // owned
} maker;

static const char *const axis_names[MAX_AXES] = {"tp", "dp", "pp"};

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

static bool has_stream(const tensor *t)
{
    for (int i = 0; i < t->ndims; i++)
        if (t->dim[i].mark == STREAM)
            return true;
    return false;
}

static bool has_axis(const tensor *t, int axis)
{
    for (int i = 0; i < t->ndims; i++)
        if (t->dim[i].mark == axis)
            return true;
    return false;
}

// Stream dimensions do not place data, so they count as local.
static bool same_dims(const tensor *a, const tensor *b)
{
    if (a->ndims != b->ndims)
        return false;
    for (int i = 0; i < a->ndims; i++)
        if (a->dim[i].extent != b->dim[i].extent ||
            (a->dim[i].mark != b->dim[i].mark &&
             (a->dim[i].mark >= 0 || b->dim[i].mark >= 0)))
            return false;
    return true;
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

static int draw_extent(maker *m)
{
    static const int extents[] = {1, 2, 3, 4, 5, 6, 8};

    if (m->naxes > 0 && pick(m, 3) > 0)
        return m->axis[pick(m, m->naxes)];
    return extents[pick(m, 7)];
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
    if (d->mark == LOCAL)
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
        while (at < t->ndims &&
               (t->dim[at].mark >= 0 || t->dim[at].extent != m->axis[axis]))
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

    if (t->ndims > MAX_DIMS)
        return false;
    for (int i = 0; i < t->ndims; i++) {
        elements *= t->dim[i].extent;
        if (elements > MAX_ELEMENTS)
            return false;
    }
    return t->size <= limit_of(m, t->dtype);
}

static int add_tensor(maker *m, const tensor *t, char role)
{
    m->tensor[m->ntensors] = *t;
    m->tensor[m->ntensors].role = role;
    m->tensor[m->ntensors].read = false;
    return m->ntensors++;
}

static int add_input(maker *m, const tensor *like)
{
    int i = add_tensor(m, like, 'i');

    m->tensor[i].size = GENERATE_INPUT;
    return i;
}

static int add_result(maker *m, const tensor *t, char role)
{
    int i = add_tensor(m, t, role);

    if (!has_stream(t) || once_in(m, 5))
        draw_stream(m, &m->tensor[i]);
    return i;
}

// An inout to write over, which may have been read before; a new one if there
// is none but `operand`. `placed` wants its placement to be that of `t`, too.
static int overwrite(maker *m, const tensor *t, int operand, bool placed)
{
    int found = -1;

    for (int i = 0; i < m->ntensors; i++) {
        tensor *other = &m->tensor[i];

        if (other->role == 'b' && i != operand && other->dtype == t->dtype &&
            (placed ? same_dims(other, t) : same_extents(other, t)))
            found = i;
    }
    if (found < 0)
        return add_result(m, t, 'b');
    m->tensor[found].size = t->size;
    return found;
}

// Where a result goes: one time in six over an inout.
static int place_result(maker *m, const tensor *t, int operand, bool placed)
{
    return once_in(m, 6) ? overwrite(m, t, operand, placed)
                         : add_result(m, t, 't');
}

static int read_tensor(maker *m, int i)
{
    m->tensor[i].read = true;
    return i;
}

// Another tensor of this shape, dtype and placement: one that there is, `x`
// itself too, or a new input.
static int find_alike(maker *m, int x)
{
    int skip = pick(m, 4);

    if (skip > 0) {
        for (int i = m->ntensors - 1; i >= 0; i--)
            if (m->tensor[i].dtype == m->tensor[x].dtype &&
                same_dims(&m->tensor[i], &m->tensor[x]) && --skip == 0)
                return i;
    }
    return add_input(m, &m->tensor[x]);
}

// ------------------------------------------------------------- operations

// What can be pipelined: a dimension goes from sharded to stream.
static void make_gather(maker *m)
{
    tensor t = {.dtype = draw_dtype(m), .size = GENERATE_INPUT};
    int axis = pick(m, m->naxes), at;
    int x, to;

    for (int n = 2 + pick(m, 3); n > 0; n--)
        append_dim(&t, (dim){draw_extent(m), LOCAL});
    draw_marks(m, &t);
    for (int i = 0; i < t.ndims; i++)
        if (t.dim[i].mark == axis || t.dim[i].mark == STREAM)
            t.dim[i].mark = LOCAL;
    at = once_in(m, 4);
    t.dim[at] = (dim){m->axis[axis], axis};
    if (!fits(m, &t))
        return;
    x = read_tensor(m, add_input(m, &t));
    t.dim[at].mark = STREAM;
    to = place_result(m, &t, x, true);
    m->gathered[m->ngathered++] = to;
    fprintf(m->body, "    %%t%d = set %%t%d\n", to, x);
}

static bool draw_cast(maker *m, tensor *t)
{
    if (once_in(m, 5))
        t->dtype = draw_dtype(m);
    return fits(m, t);
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
    fprintf(m->body, "    %%t%d = set %%t%d\n", place_result(m, &t, x, false),
            x);
}

static void make_copy(maker *m, int x)
{
    tensor t = m->tensor[x];

    if (!draw_cast(m, &t))
        return;
    read_tensor(m, x);
    fprintf(m->body, "    %%t%d = copy %%t%d\n", place_result(m, &t, x, true),
            x);
}

static void make_reduction(maker *m, int x)
{
    tensor t = m->tensor[x];
    int d = pick(m, t.ndims);
    dim lost;
    bool max = once_in(m, 3);

    if (t.ndims == 0)
        return;
    lost = t.dim[d];
    drop_dims(&t, d, 1);
    if (lost.mark >= 0)
        draw_marks(m, &t);
    if (!max)
        t.size *= lost.extent;
    if (!fits(m, &t))
        return;
    read_tensor(m, x);
    fprintf(m->body, "    %%t%d = %s %%t%d dim %d\n", add_result(m, &t, 't'),
            max ? "max" : "sum", x, d);
}

static void make_sums(maker *m, int x)
{
    tensor t = m->tensor[x];
    int operand[3];
    int n = pick(m, 4);
    bool max = once_in(m, 3);

    if (n == 3)
        n = 1 + pick(m, 3);
    for (int i = 0; i < n; i++) {
        operand[i] = find_alike(m, x);
        t.size += m->tensor[operand[i]].size;
    }
    if (!fits(m, &t))
        return;
    fprintf(m->body, "    %%t%d = %s %%t%d", add_result(m, &t, 't'),
            max ? "max" : "sum", read_tensor(m, x));
    for (int i = 0; i < n; i++)
        fprintf(m->body, ", %%t%d", read_tensor(m, operand[i]));
    fprintf(m->body, "\n");
}

// The second operand may lack leading dimensions.
static void make_binary(maker *m, int x)
{
    tensor t = m->tensor[x];
    bool mul = once_in(m, 2);
    int y;

    if (once_in(m, 3) && t.ndims > 0) {
        tensor tail = t;

        drop_dims(&tail, 0, 1 + pick(m, t.ndims));
        y = add_input(m, &tail);
    } else {
        y = find_alike(m, x);
    }
    t.size = mul ? t.size * m->tensor[y].size : t.size + m->tensor[y].size;
    if (!fits(m, &t))
        return;
    fprintf(m->body, "    %%t%d = %s %%t%d, %%t%d\n", add_result(m, &t, 't'),
            mul ? "mul" : "add", read_tensor(m, x), read_tensor(m, y));
}

// Element by element over itself: only an inout is written again and again.
static void make_update(maker *m, int x)
{
    tensor t = m->tensor[x];
    int to = -1, y;

    for (int i = 0; i < m->ntensors; i++)
        if (m->tensor[i].role == 'b' && m->tensor[i].dtype == t.dtype &&
            same_dims(&m->tensor[i], &t))
            to = i;
    if (to < 0) {
        t.size = GENERATE_INPUT;
        to = add_tensor(m, &t, 'b');
    }
    y = find_alike(m, x);
    t = m->tensor[to];
    t.size += m->tensor[y].size;
    if (!fits(m, &t))
        return;
    fprintf(m->body, "    %%t%d = add %%t%d, %%t%d\n", to, to,
            read_tensor(m, y));
    m->tensor[to].size = t.size;
}

// One f32 for all elements: a number, or an input of one element.
static void draw_factor(maker *m, char text[24], double *size)
{
    static const struct {
        const char *text;
        double size;
    } whole[] = {{"2", 2}, {"-1", 1}, {"3", 3}, {"0", 1}};
    static const char *const any[] = {"0.5", "-1.5", "1e-3", "0.75"};
    int i = pick(m, 5);

    if (i == 4) {
        tensor t = {.dtype = F32, .ndims = pick(m, 2)};

        t.dim[0] = (dim){1, LOCAL};
        *size *= GENERATE_INPUT;
        snprintf(text, 24, "%%t%d", add_input(m, &t));
    } else {
        *size *= whole[i].size;
        snprintf(text, 24, "%s", m->integers ? whole[i].text : any[i]);
    }
}

static void make_unary(maker *m, int x)
{
    static const char *const acts[] = {"relu", "gelu", "silu"};
    tensor t = m->tensor[x];
    int op = pick(m, 4);
    char factor[24] = "";

    if (!dtypes[t.dtype].floating || op == 3) {
        op = 3;
        draw_factor(m, factor, &t.size);
    } else if (m->integers) {
        op = 0;
    }
    if (!fits(m, &t))
        return;
    read_tensor(m, x);
    if (has_stream(&t) && once_in(m, 2))
        m->gathered[m->ngathered++] = m->ntensors;
    fprintf(m->body, "    %%t%d = %s %%t%d%s%s\n", add_result(m, &t, 't'),
            op == 3 ? "scale" : acts[op], x, op == 3 ? " by " : "", factor);
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
    fprintf(m->body, "    %%t%d = transpose %%t%d", add_result(m, &t, 't'), x);
    if (i + j != 2 * t.ndims - 3)
        fprintf(m->body, " dim0 %d dim1 %d", i, j);
    fprintf(m->body, "\n");
}

// ---------------------------------------------------------------- matmul

typedef struct product {
    tensor a, b, c;
    bool ta, tb;
} product;

// A dimension that only one operand has, perhaps on an axis that no dimension
// of the result uses yet.
static dim draw_free_dim(maker *m, const tensor *result)
{
    dim d = {draw_extent(m), LOCAL};
    int axis = pick(m, m->naxes);

    if (m->naxes > 0 && !has_axis(result, axis) && d.extent == m->axis[axis] &&
        once_in(m, 2))
        d.mark = axis;
    return d;
}

// Leading dimensions of b pair with those of a, or cross them.
static void draw_batch(maker *m, product *p, bool crossed, int batch)
{
    if (crossed) {
        dim d = draw_free_dim(m, &p->c);

        append_dim(&p->b, d);
        memmove(p->c.dim + 1, p->c.dim, sizeof(dim) * (size_t)p->c.ndims);
        p->c.dim[0] = d;
        p->c.ndims++;
    } else {
        memcpy(p->b.dim, p->a.dim, sizeof(dim) * (size_t)batch);
        p->b.ndims = batch;
    }
}

static void type_product(maker *m, product *p, int k)
{
    p->c.size = p->a.size * p->b.size * k;
    p->c.dtype = p->a.dtype;
    if (once_in(m, 3) || !fits(m, &p->c))
        p->c.dtype = p->a.dtype == F64 ? F64 : F32;
}

// Of `a` by itself transposed: both operands are what may have been gathered.
// False if that has no shape.
static bool square_product(maker *m, product *p)
{
    int n = p->a.ndims;
    dim rows = p->a.dim[n - 2], k = p->a.dim[n - 1];

    if (n < 3 || rows.mark != LOCAL || k.mark != LOCAL)
        return false;
    p->tb = true;
    p->b = p->c = p->a;
    p->c.dim[n - 1] = rows;
    type_product(m, p, k.extent);
    return true;
}

// Shapes of a product that begins from `a`. False if it has none.
static bool draw_product(maker *m, product *p)
{
    int n = p->a.ndims;
    bool crossed = once_in(m, 5) && n <= 3;
    int batch = crossed || n < 3 || once_in(m, 2) ? 0 : pick(m, n - 1);
    dim k, columns;

    p->tb = once_in(m, 2);
    p->ta = n == 2 + batch && once_in(m, 3);
    k = p->a.dim[p->ta ? n - 2 : n - 1];
    if (k.mark >= 0)
        return false;
    k.mark = LOCAL;
    p->c = p->a;
    if (p->ta)
        p->c.dim[n - 2] = p->a.dim[n - 1];
    p->c.ndims--;
    p->b = (tensor){.dtype = p->a.dtype, .size = GENERATE_INPUT};
    draw_batch(m, p, crossed, batch);
    columns = draw_free_dim(m, &p->c);
    append_dim(&p->c, columns);
    append_dim(&p->b, p->tb ? columns : k);
    append_dim(&p->b, p->tb ? k : columns);
    if (dtypes[p->a.dtype].exact <= 16 && once_in(m, 2))
        p->b.dtype = p->a.dtype == F8E4M3 ? F8E5M2 : F8E4M3;
    type_product(m, p, k.extent);
    return true;
}

static int draw_bias(maker *m, const product *p)
{
    const dtype choice[] = {F32, p->a.dtype, p->c.dtype};
    tensor t = {.dtype = choice[pick(m, 3)]};

    append_dim(&t, p->c.dim[p->c.ndims - 1]);
    if (t.dim[0].mark == STREAM)
        t.dim[0].mark = LOCAL;
    return read_tensor(m, add_input(m, &t));
}

static void draw_keys(maker *m, product *p, FILE *keys)
{
    static const char *const acts[] = {"relu", "gelu", "silu"};
    char factor[24];

    fprintf(keys, "%s%s", p->ta ? " ta" : "", p->tb ? " tb" : "");
    if (once_in(m, 4)) {
        draw_factor(m, factor, &p->c.size);
        fprintf(keys, " scale %s", factor);
    }
    if (once_in(m, 3)) {
        p->c.size += GENERATE_INPUT;
        fprintf(keys, " bias %%t%d", draw_bias(m, p));
    }
    if (once_in(m, 3))
        fprintf(keys, " act %s", acts[m->integers ? 0 : pick(m, 3)]);
    if (once_in(m, 4))
        fprintf(keys, " aux %%t%d", add_result(m, &p->c, 'o'));
}

static void make_matmul(maker *m, int x)
{
    product p = {.a = m->tensor[x]};
    char keys[128] = "";
    FILE *stream;
    bool accumulate = once_in(m, 6);
    int ntensors = m->ntensors, b = x, c;

    if (!dtypes[p.a.dtype].floating || p.a.ndims < 2)
        return;
    if (!once_in(m, 8) || !square_product(m, &p)) {
        if (!draw_product(m, &p) || !fits(m, &p.b))
            return;
        b = add_input(m, &p.b);
    }
    stream = fmemopen(keys, sizeof(keys), "w");
    if (stream == NULL)
        return;
    draw_keys(m, &p, stream);
    fclose(stream);
    if (accumulate)
        p.c.size += GENERATE_INPUT;
    if (!fits(m, &p.c)) {
        m->ntensors = ntensors;
        return;
    }
    c = accumulate ? add_result(m, &p.c, 'b') : place_result(m, &p.c, x, true);
    fprintf(m->body, "    %%t%d = matmul %%t%d, %%t%d%s%s\n", c,
            read_tensor(m, x), read_tensor(m, b), keys,
            accumulate ? " accumulate" : "");
}

// --------------------------------------------------------------- programs

// Later tensors are taken more often, so that chains grow long.
static int draw_operand(maker *m)
{
    int i = pick(m, m->ntensors < 256 ? m->ntensors : 256);
    int j = pick(m, m->ntensors < 256 ? m->ntensors : 256);

    if (m->ngathered > 0 && pick(m, 3) > 0)
        return m->gathered[m->ngathered - 1 -
                           pick(m, m->ngathered < 256 ? m->ngathered : 256)];
    return m->ntensors - 1 - (i < j ? i : j);
}

static void make_op(maker *m)
{
    static void (*const ops[])(maker *, int) = {
        make_matmul, make_set,  make_matmul,    make_reduction,
        make_sums,   make_set,  make_binary,    make_unary,
        make_set,    make_copy, make_transpose, make_update};

    if (m->streams && m->naxes > 0 &&
        pick(m, m->ngathered < 8 ? m->ngathered + 1 : 8) == 0)
        make_gather(m);
    else
        ops[pick(m, 12)](m, draw_operand(m));
}

static void draw_mesh(maker *m)
{
    static const int meshes[][MAX_AXES] = {
        {4, 0, 0}, {2, 0, 0}, {2, 2, 0}, {3, 0, 0}, {2, 3, 0}, {3, 2, 0},
        {1, 0, 0}, {0, 0, 0}, {5, 0, 0}, {8, 0, 0}, {1, 2, 0}, {2, 2, 2}};
    const int *mesh = meshes[pick(m, 12)];

    while (m->naxes < MAX_AXES && mesh[m->naxes] > 0) {
        m->axis[m->naxes] = mesh[m->naxes];
        m->naxes++;
    }
    m->streams = !once_in(m, 4);
}

static void draw_first_input(maker *m)
{
    tensor t = {.dtype = draw_dtype(m)};

    for (int n = 2 + pick(m, 3); n > 0; n--)
        append_dim(&t, (dim){draw_extent(m), LOCAL});
    draw_marks(m, &t);
    if (!fits(m, &t))
        t.ndims = 2;
    add_input(m, &t);
}

static void write_declaration(maker *m, int i, FILE *to)
{
    tensor *t = &m->tensor[i];

    if (t->role == 't' && (!t->read || once_in(m, 4)))
        t->role = 'o';
    fprintf(to, "%s %%t%d : %s[",
            t->role == 'i'   ? "in"
            : t->role == 'o' ? "out"
            : t->role == 'b' ? "inout"
                             : "temp",
            i, dtypes[t->dtype].text);
    for (int d = 0; d < t->ndims; d++) {
        int mark = t->dim[d].mark;

        fprintf(to, "%s", d > 0 ? ", " : "");
        if (mark >= 0 && once_in(m, 4))
            fprintf(to, "size %s", axis_names[mark]);
        else
            fprintf(to, "%d", t->dim[d].extent);
        if (mark != LOCAL)
            fprintf(to, " @%s", mark >= 0 ? axis_names[mark] : "stream");
    }
    fprintf(to, "]%s\n", once_in(m, 8) ? " shared" : "");
}

static void write_program(maker *m, const char *body, FILE *to)
{
    fprintf(to, "heddle 1\ntensor program generated\n");
    for (int i = 0; i < m->naxes; i++)
        fprintf(to, "%s %s=%d", i == 0 ? "mesh" : ",", axis_names[i],
                m->axis[i]);
    fprintf(to, "\n");
    for (int i = 0; i < m->ntensors; i++)
        write_declaration(m, i, to);
    fprintf(to, "{\n%s}\n", body);
}

static char *make_program(maker *m, int nops)
{
    char *body = NULL, *text = NULL;
    size_t length;
    FILE *to;

    m->body = open_memstream(&body, &length);
    if (m->body == NULL)
        return NULL;
    draw_mesh(m);
    draw_first_input(m);
    for (int i = 0; i < nops && (i == 0 || !choices_ended(m->choices)); i++)
        make_op(m);
    fclose(m->body);
    to = open_memstream(&text, &length);
    if (body != NULL && to != NULL)
        write_program(m, body, to);
    if (to != NULL)
        fclose(to);
    free(body);
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
    m.gathered = calloc((size_t)nops + 1, sizeof(int));
    if (m.tensor != NULL && m.gathered != NULL)
        text = make_program(&m, nops);
    free(m.tensor);
    free(m.gathered);
    return text;
}

hd_lower_options generate_lowering(choices *choices)
{
    hd_lower_options o = hd_lower_defaults();

    o.transfer = (hd_transfer)choices_pick(choices, 5);
    o.protocol = choices_pick(choices, 2) == 1 ? HD_GET : HD_PUT;
    o.streams = 1 + choices_pick(choices, 4);
    o.chunks = choices_pick(choices, 2) == 1 ? 1 + choices_pick(choices, 3) : 1;
    o.copy_own = choices_pick(choices, 2) == 1;
    o.defer_sends = choices_pick(choices, 2) == 1;
    o.comm_stream = choices_pick(choices, 2) == 1;
    return o;
}
