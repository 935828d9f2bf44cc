// Host programs as the passes reshard and stream leave them: moves that name
// dimensions, of views with gaps, one after the other, with permutes and
// element-wise operations between them; and beside each the tensor program that
// does the same. The declarations are those of both.
#include <stdio.h>
#include <stdlib.h>

#include "generate.h"

enum { MOST_AXES = 2, MOST_DIMS = 5, MOST_ELEMENTS = 2000, LOCAL = -1 };

static const char *const axis_names[MOST_AXES] = {"tp", "dp"};

typedef struct place {
    int ndims;
    int extent[MOST_DIMS], mark[MOST_DIMS];
} place;

typedef struct maker {
    choices *choices;
    int naxes;
    int axis[MOST_AXES]; // sizes
    bool loops;          // that the pass stream writes
    const char *dtype;
    int n; // tensors
    place at;
    FILE *declared, *host, *tensor; // owned
} maker;

// A dimension that a loop has a block of, which views name by `j`.
typedef struct tile {
    int from, to; // in operand and result; LOCAL without a loop
    int blocks;
} tile;

static int pick(maker *m, int n)
{
    return choices_pick(m->choices, n);
}

static bool once_in(maker *m, int n)
{
    return pick(m, n) == n - 1;
}

static int elements(const place *p, int ndims)
{
    int n = 1;

    for (int i = 0; i < ndims; i++)
        n *= p->extent[i];
    return n;
}

static int dim_over(const place *p, int axis)
{
    for (int i = 0; i < p->ndims; i++)
        if (p->mark[i] == axis)
            return i;
    return LOCAL;
}

static bool divides(const maker *m, const place *p, int axis, int dim)
{
    return p->mark[dim] == LOCAL && p->extent[dim] % m->axis[axis] == 0;
}

// A dimension that the axis may be given; LOCAL if there is none.
static int find_dim(maker *m, const place *p, int axis)
{
    int first = pick(m, p->ndims);

    for (int i = 0; i < p->ndims; i++)
        if (divides(m, p, axis, (first + i) % p->ndims))
            return (first + i) % p->ndims;
    return LOCAL;
}

static place without(const place *p, int dim)
{
    place left = {.ndims = p->ndims - 1};

    for (int i = 0; i < left.ndims; i++) {
        left.extent[i] = p->extent[i + (i >= dim)];
        left.mark[i] = p->mark[i + (i >= dim)];
    }
    return left;
}

static place marked(place p, int dim, int mark)
{
    p.mark[dim] = mark;
    return p;
}

// ------------------------------------------------------------------- texts

static void declare(maker *m, const char *role)
{
    const place *p = &m->at;

    fprintf(m->declared, "%s %%t%d : %s[", role, m->n++, m->dtype);
    for (int i = 0; i < p->ndims; i++)
        fprintf(m->declared, "%s%d%s%s", i > 0 ? ", " : "", p->extent[i],
                p->mark[i] != LOCAL ? "@" : "",
                p->mark[i] != LOCAL ? axis_names[p->mark[i]] : "");
    fprintf(m->declared, "]\n");
}

// A rank's own of a tensor; of dimension `index`, of which it has one, that.
static void write_view(const maker *m, int number, const place *p, int index,
                       int looped, int blocks)
{
    fprintf(m->host, "%%t%d%s", number, p->ndims > 0 ? "[" : "");
    for (int i = 0; i < p->ndims; i++) {
        const char *comma = i > 0 ? ", " : "";

        if (p->mark[i] == LOCAL && i == looped)
            fprintf(m->host, "%sj of %d", comma, blocks);
        else if (p->mark[i] == LOCAL)
            fprintf(m->host, "%s:", comma);
        else if (i == index)
            fprintf(m->host, "%s%s", comma, axis_names[p->mark[i]]);
        else
            fprintf(m->host, "%s%s of %d", comma, axis_names[p->mark[i]],
                    m->axis[p->mark[i]]);
    }
    fprintf(m->host, "%s", p->ndims > 0 ? "]" : "");
}

// A dimension that neither side moves, to do it block by block.
static tile draw_tile(maker *m, const place *to, int lost, int moved)
{
    tile t = {LOCAL, LOCAL, 1};
    int from = m->at.ndims > 0 ? pick(m, m->at.ndims) : lost;
    int at = from - (lost != LOCAL && from > lost);

    if (!m->loops || from == lost || m->at.mark[from] != LOCAL ||
        to->mark[at] != LOCAL || at == moved || m->at.extent[from] < 2 ||
        once_in(m, 3))
        return t;
    return (tile){from, at,
                  m->at.extent[from] % 2 == 0 ? 2 : m->at.extent[from]};
}

// The next tensor, placed as `to` is, of the last one. `index` is the operand's
// dimension of which its view has one index, `lost` whether the result lacks
// it, and `moved` which of the result's dimensions takes part.
static void write_host(maker *m, const place *to, const char *op, int index,
                       bool lost, int moved, const char *keys)
{
    tile t = draw_tile(m, to, lost ? index : LOCAL, moved);

    if (t.from != LOCAL)
        fprintf(m->host, "for j in 0..%d { on stream j mod 2 {\n", t.blocks);
    write_view(m, m->n, to, LOCAL, t.to, t.blocks);
    fprintf(m->host, " = %s ", op);
    write_view(m, m->n - 1, &m->at, index, t.from, t.blocks);
    fprintf(m->host, "%s\n%s", keys, t.from != LOCAL ? "} }\n" : "");
}

static void write_tensor(const maker *m, const char *op, const char *keys)
{
    fprintf(m->tensor, "%%t%d = %s %%t%d%s\n", m->n, op, m->n - 1, keys);
}

static void next(maker *m, place to)
{
    m->at = to;
    declare(m, once_in(m, 4) ? "out" : "temp");
}

// ------------------------------------------------------------------- moves

// Each rank's one index is named so, or is its block.
static int index_of(maker *m, int axis, int dim)
{
    return m->at.extent[dim] == m->axis[axis] && pick(m, 2) == 1 ? dim : LOCAL;
}

static void gather(maker *m, int axis, int d)
{
    place to = marked(m->at, d, LOCAL);
    char op[32], keys[32];

    snprintf(op, sizeof op, "all_gather@%s", axis_names[axis]);
    snprintf(keys, sizeof keys, " dim %d", d);
    write_host(m, &to, op, index_of(m, axis, d), false, d, keys);
    write_tensor(m, "set", "");
    next(m, to);
}

static void exchange(maker *m, int axis, int d, int e)
{
    place to = marked(marked(m->at, d, LOCAL), e, axis);
    int index = index_of(m, axis, d);
    char op[32], keys[48];

    snprintf(op, sizeof op, "all_to_all@%s", axis_names[axis]);
    snprintf(keys, sizeof keys, " dim0 %d dim1 %d",
             e - (index != LOCAL && e > index), d);
    write_host(m, &to, op, index, false, d, keys);
    write_tensor(m, "set", "");
    next(m, to);
}

static void take_part(maker *m, int axis, int e)
{
    place to = marked(m->at, e, axis), from = m->at;

    m->at = to; // what a rank reads
    write_host(m, &to, "copy", LOCAL, false, e, "");
    m->at = from;
    write_tensor(m, "set", "");
    next(m, to);
}

// What ranks have an index of is added up, for the ranks or for all.
static void reduce(maker *m, int axis, int d)
{
    static const char *const folds[] = {"sum", "max", "min"};
    place to = without(&m->at, d);
    int fold = pick(m, 3), e = to.ndims > 0 ? find_dim(m, &to, axis) : LOCAL;
    char op[32], keys[32] = "", dim[16];
    const char *key = fold > 0 ? folds[fold] : "";

    if (e != LOCAL && !once_in(m, 3)) {
        snprintf(op, sizeof op, "reduce_scatter@%s", axis_names[axis]);
        snprintf(keys, sizeof keys, " dim %d %s", e, key);
        to.mark[e] = axis;
    } else {
        snprintf(op, sizeof op, "all_reduce@%s", axis_names[axis]);
        snprintf(keys, sizeof keys, " %s", key);
        e = LOCAL;
    }
    write_host(m, &to, op, d, true, e, keys);
    snprintf(dim, sizeof dim, " dim %d", d);
    write_tensor(m, folds[fold], dim);
    next(m, to);
}

static void move(maker *m)
{
    int axis = pick(m, m->naxes), d = dim_over(&m->at, axis), e;

    if (d == LOCAL) {
        e = m->at.ndims > 0 ? find_dim(m, &m->at, axis) : LOCAL;
        if (e != LOCAL)
            take_part(m, axis, e);
        return;
    }
    e = find_dim(m, &m->at, axis);
    if (m->at.extent[d] == m->axis[axis] && once_in(m, 3))
        reduce(m, axis, d);
    else if (e != LOCAL && !once_in(m, 3))
        exchange(m, axis, d, e);
    else
        gather(m, axis, d);
}

// ------------------------------------------------------------- what is local

static void permute(maker *m)
{
    place to = m->at;
    char keys[64];
    int order[MOST_DIMS], n = to.ndims, length = 0;

    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = pick(m, i + 1), was = order[i];

        order[i] = order[j];
        order[j] = was;
    }
    for (int i = 0; i < n; i++) {
        to.extent[i] = m->at.extent[order[i]];
        to.mark[i] = m->at.mark[order[i]];
        length += snprintf(keys + length, sizeof keys - (size_t)length, "%s%d",
                           i > 0 ? ", " : " order (", order[i]);
    }
    snprintf(keys + length, sizeof keys - (size_t)length, ")");
    write_view(m, m->n, &to, LOCAL, LOCAL, 1);
    fprintf(m->host, " = permute ");
    write_view(m, m->n - 1, &m->at, LOCAL, LOCAL, 1);
    fprintf(m->host, "%s\n", keys);
    write_tensor(m, "permute", keys);
    next(m, to);
}

static void compute(maker *m)
{
    const char *op = once_in(m, 2) ? "neg" : "abs";

    write_host(m, &m->at, op, LOCAL, false, LOCAL, "");
    write_tensor(m, op, "");
    next(m, m->at);
}

// Extents that an axis divides, most of them, with axes on some.
static void draw_first(maker *m)
{
    m->at.ndims = 1 + pick(m, 4);
    for (int i = 0; i < m->at.ndims; i++) {
        int size = m->axis[pick(m, m->naxes)];

        m->at.mark[i] = LOCAL;
        m->at.extent[i] =
            once_in(m, 4) ? 1 + pick(m, 4) : size * (1 + pick(m, 3));
        if (elements(&m->at, i + 1) > MOST_ELEMENTS)
            m->at.extent[i] = 1;
    }
    for (int axis = 0; axis < m->naxes; axis++) {
        int d = find_dim(m, &m->at, axis);

        if (d != LOCAL && !once_in(m, 4))
            m->at.mark[d] = axis;
    }
    declare(m, "in");
}

static void draw_mesh(maker *m)
{
    static const int meshes[][MOST_AXES] = {{2, 0}, {3, 0}, {4, 0}, {2, 2},
                                            {2, 3}, {1, 2}, {4, 2}, {5, 0}};
    static const char *const dtypes[] = {"f32", "i32", "f64", "f32"};
    const int *mesh = meshes[pick(m, 8)];

    for (; m->naxes < MOST_AXES && mesh[m->naxes] > 0; m->naxes++)
        m->axis[m->naxes] = mesh[m->naxes];
    m->dtype = dtypes[pick(m, 4)];
    m->loops = pick(m, 2) == 1;
}

static void make_statements(maker *m)
{
    int nops = 1 + pick(m, 6);

    draw_mesh(m);
    draw_first(m);
    for (int i = 0; i < nops; i++) {
        int kind = pick(m, 6);

        if (kind < 4)
            move(m);
        else
            (kind == 4 && m->at.ndims > 0 ? permute : compute)(m);
    }
    write_host(m, &m->at, "neg", LOCAL, false, LOCAL, "");
    write_tensor(m, "neg", "");
    declare(m, "out");
}

static char *print(const maker *m, const char *level, const char *after,
                   const char *declared, const char *body)
{
    char *text = NULL;
    size_t length;
    FILE *to = open_memstream(&text, &length);

    if (to == NULL)
        return NULL;
    fprintf(to, "heddle 2\n%s program generated%s\nmesh ", level, after);
    for (int i = 0; i < m->naxes; i++)
        fprintf(to, "%s%s=%d", i > 0 ? ", " : "", axis_names[i], m->axis[i]);
    if (*after != '\0' && m->loops)
        fprintf(to, "\nstreams 2");
    fprintf(to, "\n%s{\n%s}\n", declared, body);
    fclose(to);
    return text;
}

bool generate_stage(choices *choices, char **host, char **tensor)
{
    maker m = {.choices = choices};
    char *text[3] = {NULL, NULL, NULL};
    size_t length[3];
    FILE **files[] = {&m.declared, &m.host, &m.tensor};
    bool opened = true;

    for (int i = 0; i < 3; i++)
        opened &= (*files[i] = open_memstream(&text[i], &length[i])) != NULL;
    if (opened)
        make_statements(&m);
    for (int i = 0; i < 3; i++)
        if (*files[i] != NULL)
            fclose(*files[i]);
    *host = *tensor = NULL;
    if (opened) {
        *host = print(&m, "host", m.loops ? " after stream" : " after reshard",
                      text[0], text[1]);
        *tensor = print(&m, "tensor", "", text[0], text[2]);
    }
    for (int i = 0; i < 3; i++)
        free(text[i]);
    return *host != NULL && *tensor != NULL;
}
