// Expressions are folded bottom up, operands piece by piece: where two of them
// overlap both are lines, and an operator of lines is one or a few of them.
#include "ir/along.h"

// Lines are such that their values stay far from what overflows.
#define MOST_FACTOR ((int64_t)1 << 31)
#define MOST_ADDED ((int64_t)1 << 60)
#define MOST_VALUE ((int64_t)1 << 61)

typedef hd_along_piece piece;

static bool eval(const hd_line *line, hd_expr expr, int64_t low, int64_t past,
                 hd_along *out);

// ----------------------------------------------------------------- pieces

static int64_t at(const piece *p, int64_t coord)
{
    return p->factor * coord + p->add;
}

static bool is_near(int64_t value, int64_t most)
{
    return -most <= value && value <= most;
}

// Behind those that are there.
static bool put(hd_along *out, piece p)
{
    piece *last = out->n > 0 ? &out->of[out->n - 1] : NULL;

    if (p.past <= p.low)
        return true;
    if (!is_near(p.factor, MOST_FACTOR) || !is_near(p.add, MOST_ADDED))
        return false;
    if (last != NULL && last->past == p.low && last->factor == p.factor &&
        last->add == p.add) {
        last->past = p.past;
        return true;
    }
    if (out->n == HD_MAX_PIECES)
        return false;
    out->of[out->n++] = p;
    return true;
}

static bool put_constant(hd_along *out, int64_t low, int64_t past,
                         int64_t value)
{
    return put(out, (piece){low, past, 0, value});
}

static int64_t floor_of(int64_t a, int64_t b)
{
    int64_t q = a / b;

    return q - (a % b != 0 && (a < 0) != (b < 0));
}

// The first coordinate from `low` on, before `past`, at which the line is at
// least `value` (rising) or less than it (falling); `past` if there is none.
static int64_t cross(const piece *p, int64_t value, int64_t low, int64_t past)
{
    int64_t c;

    if (p->factor > 0)
        c = -floor_of(-(value - p->add), p->factor);
    else if (p->factor < 0)
        c = floor_of(p->add - value, -p->factor) + 1;
    else
        c = past;
    return c < low ? low : c > past ? past : c;
}

// -------------------------------------------------------------- operators

static bool multiply(const piece *a, const piece *b, int64_t low, int64_t past,
                     hd_along *out)
{
    const piece *line = a->factor != 0 ? a : b;
    int64_t by = a->factor != 0 ? b->add : a->add, factor, add;

    if ((a->factor != 0 && b->factor != 0) ||
        __builtin_mul_overflow(line->factor, by, &factor) ||
        __builtin_mul_overflow(line->add, by, &add))
        return false;
    return put(out, (piece){low, past, factor, add});
}

// Rounded down, or what is left: a piece for each quotient.
static bool divide(hd_expr_kind kind, const piece *a, int64_t by, int64_t low,
                   int64_t past, hd_along *out)
{
    piece p = *a;

    if (kind == HD_EXPR_CDIV)
        p.add += by - 1;
    while (low < past) {
        int64_t q = floor_of(at(&p, low), by);
        int64_t end = p.factor > 0 ? cross(&p, (q + 1) * by, low, past)
                                   : cross(&p, q * by, low, past);
        bool done = kind == HD_EXPR_MOD
                        ? put(out, (piece){low, end, p.factor, p.add - q * by})
                        : put_constant(out, low, end, q);

        if (!done)
            return false;
        low = end;
    }
    return true;
}

// Where a - b is below, at and above zero.
static bool compare(hd_expr_kind kind, const piece *a, const piece *b,
                    int64_t low, int64_t past, hd_along *out)
{
    piece d = {low, past, a->factor - b->factor, a->add - b->add};
    int64_t first = cross(&d, d.factor > 0 ? 0 : 1, low, past);
    int64_t second = cross(&d, d.factor > 0 ? 1 : 0, low, past);
    int64_t cut[] = {low, first, second, past};

    for (int i = 0; i < 3; i++) {
        int64_t value;

        if (cut[i] >= cut[i + 1])
            continue;
        if (kind == HD_EXPR_MIN || kind == HD_EXPR_MAX) {
            const piece *less = at(&d, cut[i]) <= 0 ? a : b;
            const piece *line = kind == HD_EXPR_MIN ? less : less == a ? b : a;

            if (!put(out, (piece){cut[i], cut[i + 1], line->factor, line->add}))
                return false;
        } else if (!hd_expr_apply(kind, at(&d, cut[i]), 0, &value) ||
                   !put_constant(out, cut[i], cut[i + 1], value)) {
            return false;
        }
    }
    return true;
}

static bool combine(hd_expr_kind kind, const piece *a, const piece *b,
                    int64_t low, int64_t past, hd_along *out)
{
    int64_t value;

    if (past - low == 1 || (a->factor == 0 && b->factor == 0))
        return hd_expr_apply(kind, at(a, low), at(b, low), &value) &&
               put_constant(out, low, past, value);
    switch (kind) {
    case HD_EXPR_ADD:
        return put(out,
                   (piece){low, past, a->factor + b->factor, a->add + b->add});
    case HD_EXPR_SUB:
        return put(out,
                   (piece){low, past, a->factor - b->factor, a->add - b->add});
    case HD_EXPR_MUL:
        return multiply(a, b, low, past, out);
    case HD_EXPR_DIV:
    case HD_EXPR_MOD:
    case HD_EXPR_CDIV:
        return b->factor == 0 && b->add > 0 &&
               divide(kind, a, b->add, low, past, out);
    case HD_EXPR_LT:
    case HD_EXPR_LE:
    case HD_EXPR_EQ:
    case HD_EXPR_NE:
    case HD_EXPR_MIN:
    case HD_EXPR_MAX:
        return compare(kind, a, b, low, past, out);
    case HD_EXPR_AND:
    case HD_EXPR_OR:
    case HD_EXPR_CONST:
    case HD_EXPR_COORD:
    case HD_EXPR_VAR:
    case HD_EXPR_SIZE:
    case HD_EXPR_NOT:
        break;
    }
    return false;
}

// Both operands have a value on each rank, also where the first one decides.
static bool eval_binary(const hd_line *line, const hd_expr_node *node,
                        int64_t low, int64_t past, hd_along *out)
{
    hd_along a = {0}, b = {0};

    if (!eval(line, node->a, low, past, &a) ||
        !eval(line, node->b, low, past, &b))
        return false;
    for (int i = 0, k = 0; low < past;) {
        int64_t end = a.of[i].past < b.of[k].past ? a.of[i].past : b.of[k].past;

        if (!combine(node->kind, &a.of[i], &b.of[k], low, end, out))
            return false;
        i += a.of[i].past == end;
        k += b.of[k].past == end;
        low = end;
    }
    return true;
}

static bool eval_not(const hd_line *line, const hd_expr_node *node, int64_t low,
                     int64_t past, hd_along *out)
{
    hd_along a = {0};

    if (!eval(line, node->a, low, past, &a))
        return false;
    for (int i = 0; i < a.n; i++)
        if (a.of[i].factor != 0 ||
            !put_constant(out, a.of[i].low, a.of[i].past, a.of[i].add == 0))
            return false;
    return true;
}

// What is known of a let is of all ranks that come to it, or of more.
static bool eval_var(const hd_line *line, hd_var var, int64_t low, int64_t past,
                     hd_along *out)
{
    const hd_along *let = &line->let[var];
    int64_t known = low;

    if (let->n == 0)
        return put_constant(out, low, past, line->env->var[var]);
    while (known < past) {
        const piece *p = NULL;

        for (int i = 0; i < let->n && p == NULL; i++)
            if (let->of[i].low <= known && known < let->of[i].past)
                p = &let->of[i];
        if (p == NULL)
            return false;
        if (!put(out, (piece){known, p->past < past ? p->past : past, p->factor,
                              p->add}))
            return false;
        known = p->past;
    }
    return true;
}

static bool eval(const hd_line *line, hd_expr expr, int64_t low, int64_t past,
                 hd_along *out)
{
    const hd_expr_node *node = hd_expr_get(line->module, expr);
    int64_t value;

    switch (hd_expr_form_of(node->kind)) {
    case HD_FORM_COORD:
        if (node->a == line->axis)
            return put(out, (piece){low, past, 1, 0});
        break;
    case HD_FORM_VAR:
        return eval_var(line, node->a, low, past, out);
    case HD_FORM_NOT:
        return eval_not(line, node, low, past, out);
    case HD_FORM_BINARY:
        return eval_binary(line, node, low, past, out);
    case HD_FORM_CONST:
    case HD_FORM_SIZE:
        break;
    }
    return hd_expr_eval(line->module, expr, line->env, &value) &&
           put_constant(out, low, past, value);
}

// ------------------------------------------------------------------ whole

bool hd_along_eval(const hd_line *line, hd_expr expr, hd_arc arc, hd_along *out)
{
    int64_t past = (int64_t)arc.first + arc.n;
    hd_along along = {0};

    if (!eval(line, expr, arc.first, past < line->size ? past : line->size,
              &along) ||
        (past > line->size && !eval(line, expr, 0, past - line->size, &along)))
        return false;
    *out = along;
    return true;
}

bool hd_along_value(const hd_along *along, int64_t coord, int64_t *out)
{
    for (int i = 0; i < along->n; i++)
        if (along->of[i].low <= coord && coord < along->of[i].past) {
            *out = at(&along->of[i], coord);
            return true;
        }
    return false;
}

// Ranks `low` to `past`, behind those that are there.
static bool put_ranks(hd_arcs *arcs, int64_t low, int64_t past, int64_t size)
{
    hd_arc *last = arcs->n > 0 ? &arcs->of[arcs->n - 1] : NULL;

    if (past <= low)
        return true;
    if (last != NULL && (last->first + last->n) % size == low % size) {
        last->n += (int32_t)(past - low);
        return true;
    }
    if (arcs->n == HD_MAX_ARCS)
        return false;
    arcs->of[arcs->n++] = hd_arc_of(low, past - low);
    return true;
}

// Of all ranks of a line the last ones may be next to the first ones.
static void close(hd_arcs *arcs, int64_t size)
{
    hd_arc *first = &arcs->of[0], *last;

    if (arcs->n < 2)
        return;
    last = &arcs->of[arcs->n - 1];
    if ((last->first + last->n) % size != first->first)
        return;
    first->n += last->n;
    first->first = last->first;
    arcs->n--;
}

// The ranks `low` to `past`: those where both lines are at least 0, and others.
static bool split(const piece *x, const piece *y, int64_t low, int64_t past,
                  int64_t size, hd_arcs *in, hd_arcs *out)
{
    int64_t a = cross(x, 0, low, past), b = cross(y, 0, low, past);
    int64_t cut[] = {low, a < b ? a : b, a < b ? b : a, past};

    for (int i = 0; i < 3; i++) {
        bool is_in = at(x, cut[i]) >= 0 && at(y, cut[i]) >= 0;

        if (!put_ranks(is_in ? in : out, cut[i], cut[i + 1], size))
            return false;
    }
    return true;
}

static void close_both(hd_arc arc, int64_t size, hd_arcs *in, hd_arcs *out)
{
    if (arc.n < size)
        return;
    close(in, size);
    close(out, size);
}

static piece above(const piece *p, int64_t low)
{
    return (piece){p->low, p->past, p->factor, p->add - low};
}

static piece below(const piece *p, int64_t past)
{
    return (piece){p->low, p->past, -p->factor, past - 1 - p->add};
}

hd_along hd_along_coords(hd_arc arc, int64_t size)
{
    int64_t past = (int64_t)arc.first + arc.n;
    hd_along along = {0};

    (void)put(&along, (piece){arc.first, past < size ? past : size, 1, 0});
    (void)put(&along, (piece){0, past - size, 1, 0});
    return along;
}

bool hd_along_within(const hd_along *value, int64_t low, int64_t past,
                     hd_arc arc, int64_t size, hd_arcs *in, hd_arcs *out)
{
    *in = *out = (hd_arcs){0};
    low = low < -MOST_VALUE ? -MOST_VALUE : low;
    past = past > MOST_VALUE ? MOST_VALUE : past;
    for (int i = 0; i < value->n; i++) {
        const piece *p = &value->of[i];
        piece x = above(p, low), y = below(p, past);

        if (!split(&x, &y, p->low, p->past, size, in, out))
            return false;
    }
    close_both(arc, size, in, out);
    return true;
}

bool hd_along_between(const hd_along *from, const hd_along *to, int64_t value,
                      hd_arc arc, int64_t size, hd_arcs *in, hd_arcs *out)
{
    *in = *out = (hd_arcs){0};
    for (int i = 0, k = 0; i < from->n;) {
        const piece *a = &from->of[i], *b = &to->of[k];
        piece x = below(a, value + 1), y = above(b, value + 1);
        int64_t low = a->low > b->low ? a->low : b->low;
        int64_t past = a->past < b->past ? a->past : b->past;

        if (!split(&x, &y, low, past, size, in, out))
            return false;
        i += a->past == past;
        k += b->past == past;
    }
    close_both(arc, size, in, out);
    return true;
}

int64_t hd_along_alike(const hd_along *along)
{
    int64_t value = at(&along->of[0], along->of[0].low), n = 0;

    for (int i = 0; i < along->n; i++) {
        const piece *p = &along->of[i];

        if (at(p, p->low) != value)
            break;
        if (p->factor != 0 && p->past - p->low > 1)
            return n + 1;
        n += p->past - p->low;
    }
    return n;
}

void hd_along_bounds(const hd_along *along, int64_t *least, int64_t *most)
{
    *least = INT64_MAX;
    *most = INT64_MIN;
    for (int i = 0; i < along->n; i++) {
        int64_t x = at(&along->of[i], along->of[i].low);
        int64_t y = at(&along->of[i], along->of[i].past - 1);

        *least = x < *least ? x : *least;
        *least = y < *least ? y : *least;
        *most = x > *most ? x : *most;
        *most = y > *most ? y : *most;
    }
}

void hd_along_gap(const hd_along *from, const hd_along *to, int64_t *least,
                  int64_t *most)
{
    *least = INT64_MAX;
    *most = INT64_MIN;
    for (int i = 0, k = 0; i < from->n;) {
        const piece *a = &from->of[i], *b = &to->of[k];
        int64_t low = a->low > b->low ? a->low : b->low;
        int64_t past = a->past < b->past ? a->past : b->past;
        int64_t x = at(b, low) - at(a, low);
        int64_t y = at(b, past - 1) - at(a, past - 1);

        *least = x < *least ? x : *least;
        *least = y < *least ? y : *least;
        *most = x > *most ? x : *most;
        *most = y > *most ? y : *most;
        i += a->past == past;
        k += b->past == past;
    }
}

bool hd_along_turns(const hd_along *along, int64_t size, int64_t *k)
{
    int64_t least, most;

    hd_along_bounds(along, &least, &most);
    if (least < 0 || most >= size)
        return false;
    for (int i = 0; i < along->n; i++) {
        const piece *p = &along->of[i];
        int64_t by = (at(p, p->low) - p->low + size) % size;

        if ((p->past - p->low > 1 && (p->factor - 1) % size != 0) ||
            (i > 0 && by != *k))
            return false;
        *k = by;
    }
    return true;
}
