// Every element is one iteration of a grid-stride loop. Where each operand lies
// along the last dimension without gaps, a second loop before it moves 16
// bytes of each operand at a time, if at run time all addresses allow it; the
// plain loop then does what is left over.
//
// Lengths that a run says are variables of the kernel: n0, n1, .. of
// dimensions, n of all elements, and m of the inner loop. Where a step has
// counts, most is how many there are of them, of elements or of iterations.
#include "codegen/nest.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "codegen/arrange.h"
#include "codegen/counts.h"

hd_nest hd_nest_over(const hd_step *step, hd_space *space)
{
    hd_nest nest = {.factor = -1};
    hd_length length[HD_SPACE_DIMS];

    hd_length_space(step, space, length);
    nest.ndims = space->nparallel;
    memcpy(nest.length, length, sizeof *length * (size_t)nest.ndims);
    if (space->ndims > space->nparallel)
        nest.iterations = length[space->nparallel];
    return nest;
}

hd_operand *hd_nest_add(hd_nest *nest, int at, hd_dtype dtype,
                        const int64_t *stride)
{
    hd_operand *o = &nest->operand[nest->n++];

    assert(nest->n <= HD_KERNEL_POINTERS); // more than a step has views
    *o = (hd_operand){.at = at, .dtype = dtype, .read = true};
    memcpy(o->stride, stride, sizeof *stride * (size_t)nest->ndims);
    return o;
}

hd_operand *hd_nest_add_span(hd_nest *nest, const hd_step *step,
                             const hd_space *space, int i)
{
    int64_t stride[HD_SPACE_DIMS] = {0};
    hd_operand *o;

    assert(i >= 0 && i < step->op->nviews);
    hd_space_strides(space, i, step->span[i].stride, stride);
    o = hd_nest_add(nest, i, step->span[i].buffer->type.dtype, stride);
    o->walk = stride[space->nparallel]; // 0 where nothing is reduced
    return o;
}

void hd_nest_add_counts(hd_nest *nest, const hd_step *step,
                        const hd_space *space)
{
    hd_nest_counts *counts = &nest->counts;
    int view = hd_op_key_view(step->op, HD_KEY_COUNTS);

    if (view < 0)
        return;
    hd_nest_add_span(nest, step, space, view)->counts = true;
    counts->operand = nest->n - 1;
    counts->inner = space->counted >= space->nparallel;
    counts->folded = hd_space_folded(space, view) >= 0;
    counts->room = space->extent[space->counted];
    counts->times = 1;
    if (!counts->inner)
        counts->place[space->counted] = 1;
    counts->span = step->span[view];
    for (int d = 0; d < counts->span.ndims; d++)
        counts->length[d] = hd_length_of(step, view, d);
}

// -------------------------------------------------------------------- text

// The function has a parameter for it.
static bool is_passed(const hd_operand *o)
{
    return !o->walked && !o->counts && !o->picks && !o->scales && !o->place;
}

// All numbers of elements, and of an operand's elements, fit with room for one
// step of the grid.
static bool fits_u32(const hd_nest *nest)
{
    const int64_t limit = (int64_t)1 << 31, iterations = nest->iterations.room;

    for (int i = 0; i < nest->n; i++) {
        const hd_operand *o = &nest->operand[i];
        int64_t last = o->walked || o->counts ? o->walk * (iterations - 1) : 0;

        for (int d = 0; d < nest->ndims && !o->dense; d++)
            last += o->stride[d] * (nest->length[d].room - 1);
        if (last >= limit)
            return false;
    }
    return hd_nest_room(nest) < limit && iterations < limit;
}

static const char *index_type(const hd_nest *nest)
{
    return fits_u32(nest) ? "u32" : "u64";
}

static bool is_sized(const hd_nest *nest)
{
    for (int d = 0; d < nest->ndims; d++)
        if (nest->length[d].sized)
            return true;
    return false;
}

// The length of dimension `d`.
static void add_length(const hd_nest *nest, int d, hd_text *text)
{
    if (nest->length[d].sized)
        hd_text_printf(text, "n%d", d);
    else
        hd_text_printf(text, "%lldu", (long long)nest->length[d].room);
}

// How many vectors there are, or elements.
static void add_count(const hd_nest *nest, int width, hd_text *text)
{
    if (!is_sized(nest))
        hd_text_printf(text, "%lldu", (long long)(hd_nest_room(nest) / width));
    else if (width > 1)
        hd_text_printf(text, "n / %du", width);
    else
        hd_text_puts(text, "n");
}

static void add_iterations(const hd_nest *nest, hd_text *text)
{
    if (nest->counts.inner)
        hd_text_puts(text, "most");
    else if (nest->iterations.sized)
        hd_text_puts(text, "m");
    else
        hd_text_printf(text, "%lldu", (long long)nest->iterations.room);
}

// Declares the lengths that a run says. The grid has them in this order.
static void add_sizes(const hd_nest *nest, hd_text *text)
{
    const char *type = index_type(nest);
    int n = 0;

    for (int d = 0; d < nest->ndims; d++)
        if (nest->length[d].sized)
            hd_text_printf(text, "    const %s n%d = (%s)args.size[%d];\n",
                           type, d, type, n++);
    if (nest->iterations.sized)
        hd_text_printf(text, "    const %s m = (%s)args.size[%d];\n", type,
                       type, n++);
    hd_counts_sizes(nest, n, text);
    if (!is_sized(nest))
        return;
    hd_text_printf(text, "    const %s n = ", type);
    for (int d = 0; d < nest->ndims; d++) {
        hd_text_puts(text, d == 0 ? "" : " * ");
        add_length(nest, d, text);
    }
    hd_text_puts(text, ";\n");
}

static int list_sizes(const hd_nest *nest, int64_t size[HD_KERNEL_SIZES])
{
    int n = 0;

    for (int d = 0; d < nest->ndims; d++)
        if (nest->length[d].sized)
            size[n++] = nest->length[d].now;
    if (nest->iterations.sized)
        size[n++] = nest->iterations.now;
    for (int d = 0; d < nest->counts.span.ndims; d++)
        if (nest->counts.length[d].sized)
            size[n++] = nest->counts.length[d].now;
    return n;
}

// Of what the function gets of an inner loop.
static const char *inner_type(const hd_nest *nest)
{
    return nest->inner == HD_INNER_TAKE || nest->inner == HD_INNER_IOTA
               ? hd_code_text(nest->operand[0].dtype)
               : hd_lane_text(nest->lane);
}

static void add_function(const hd_nest *nest, const char *body, hd_text *text)
{
    const char *comma = "";

    hd_text_puts(text, "static inline void apply(");
    for (int i = 0; i < nest->n; i++) {
        const hd_operand *o = &nest->operand[i];

        if (!is_passed(o))
            continue;
        hd_text_printf(text, "%s%s %sc%d", comma, hd_code_text(o->dtype),
                       o->write ? "*" : "", i);
        comma = ", ";
    }
    if (nest->factor >= 0)
        hd_text_printf(text, "%sfloat f", comma);
    if (nest->inner != HD_INNER_NONE)
        hd_text_printf(text, "%s%s x", comma, inner_type(nest));
    hd_text_printf(text, ")\n{\n%s}\n", body);
}

// A type for `width` codes of each dtype there is; they are moved as one.
static void add_vectors(const hd_nest *nest, int width, hd_text *text)
{
    for (int i = 0; i < nest->n && width > 1; i++)
        hd_text_printf(text,
                       "struct alignas(16) vector%d {\n"
                       "    %s e[%d];\n"
                       "};\n",
                       i, hd_code_text(nest->operand[i].dtype), width);
}

// Declares where element i of each operand is: o0, o1, ..
static void add_offsets(const hd_nest *nest, hd_text *text)
{
    const char *type = index_type(nest);

    hd_text_printf(text, "        %s r = i;\n", type);
    for (int d = nest->ndims - 1; d >= 0; d--) {
        if (d == 0) {
            hd_text_printf(text, "        const %s i0 = r;\n", type);
            continue;
        }
        hd_text_printf(text, "        const %s i%d = r %% ", type, d);
        add_length(nest, d, text);
        hd_text_puts(text, ";\n        r /= ");
        add_length(nest, d, text);
        hd_text_puts(text, ";\n");
    }
    for (int i = 0; i < nest->n; i++) {
        bool dense = nest->operand[i].dense;

        hd_text_printf(text, "        const %s o%d = %s", type, i,
                       dense ? "i" : "0");
        for (int d = 0; d < nest->ndims && !dense; d++) {
            long long stride = (long long)nest->operand[i].stride[d];
            long long block = (long long)nest->operand[i].block[d];

            if (stride > 0 && block > 1)
                hd_text_printf(text, " + i%d / %lldu * %lldu", d, block,
                               stride);
            else if (stride == 1)
                hd_text_printf(text, " + i%d", d);
            else if (stride > 1)
                hd_text_printf(text, " + i%d * %lldu", d, stride);
        }
        hd_text_puts(text, ";\n");
    }
}

// Calls the function for one element: a variable, or number e of a vector.
static void add_call(const hd_nest *nest, bool vectors, hd_text *text)
{
    const char *comma = "";

    hd_text_puts(text, "apply(");
    for (int i = 0; i < nest->n; i++) {
        const hd_operand *o = &nest->operand[i];

        if (!is_passed(o))
            continue;
        hd_text_printf(text, "%s%sv%d%s", comma, o->write ? "&" : "", i,
                       vectors && !hd_nest_repeats(nest, o) ? ".e[e]" : "");
        comma = ", ";
    }
    if (nest->factor >= 0)
        hd_text_printf(text, "%sf", comma);
    if (nest->inner != HD_INNER_NONE)
        hd_text_printf(text, "%sx%s", comma, vectors ? "[e]" : "");
    hd_text_puts(text, ");\n");
}

static void add_loads(const hd_nest *nest, bool vectors, hd_text *text)
{
    for (int i = 0; i < nest->n; i++) {
        const hd_operand *o = &nest->operand[i];

        if (o->walked || o->counts || o->scales || o->place)
            continue;
        if (vectors && !hd_nest_repeats(nest, o)) {
            hd_text_printf(text, "        vector%d v%d", i, i);
            if (o->read)
                hd_text_printf(text, " = *(const vector%d *)(p%d + o%d)", i, i,
                               i);
        } else {
            hd_text_printf(text, "        %s v%d", hd_code_text(o->dtype), i);
            if (o->read)
                hd_text_printf(text, " = p%d[o%d]", i, i);
        }
        hd_text_puts(text, ";\n");
    }
}

static void add_stores(const hd_nest *nest, bool vectors, hd_text *text)
{
    for (int i = 0; i < nest->n; i++) {
        if (!nest->operand[i].write)
            continue;
        if (vectors)
            hd_text_printf(text, "        *(vector%d *)(p%d + o%d) = v%d;\n", i,
                           i, i, i);
        else
            hd_text_printf(text, "        p%d[o%d] = v%d;\n", i, i, i);
    }
}

// Where the element is along what is counted.
static void add_counted_place(const hd_nest *nest, hd_text *text)
{
    hd_text_puts(text, "0");
    for (int d = 0; d < nest->ndims; d++)
        if (nest->counts.place[d] != 0)
            hd_text_printf(text, " + i%d * %lldu", d,
                           (long long)nest->counts.place[d]);
}

// Leaves what is behind the elements that are counted, and clears results.
static void add_guard(const hd_nest *nest, bool vectors, hd_text *text)
{
    const hd_nest_counts *counts = &nest->counts;
    int at = counts->operand;

    if (at == 0 || counts->folded)
        return;
    hd_text_printf(
        text, "        const %s most = (%s)indices_of(p%d[o%d]) * %lldu;\n",
        index_type(nest), index_type(nest), at, at, (long long)counts->times);
    if (counts->inner)
        return;
    hd_text_puts(text, "        if (");
    add_counted_place(nest, text);
    hd_text_puts(text, " >= most) {\n");
    for (int i = 0; i < nest->n; i++) {
        if (!nest->operand[i].write || nest->operand[i].read)
            continue;
        if (vectors)
            hd_text_printf(text, "            *(vector%d *)(p%d + o%d) = {};\n",
                           i, i, i);
        else
            hd_text_printf(text, "            p%d[o%d] = 0;\n", i, i);
    }
    hd_text_puts(text, "            continue;\n        }\n");
}

static int find_walked(const hd_nest *nest, int from)
{
    while (!nest->operand[from].walked)
        from++;
    return from;
}

// How many iterations have all of their scales in common; 0: there are none.
static int64_t block_of_scales(const hd_nest *nest)
{
    int64_t block = 0;

    for (int i = 0; i < nest->n; i++) {
        const hd_operand *o = &nest->operand[i];

        if (o->scales && (block == 0 || o->deep < block))
            block = o->deep;
    }
    return block;
}

// Iterations b to before e have one product of their scales.
static void add_block(const hd_nest *nest, int64_t block, hd_text *text)
{
    const char *type = index_type(nest), *lane = hd_lane_text(nest->lane);

    hd_text_printf(text, "        for (%s b = 0; b < ", type);
    add_iterations(nest, text);
    hd_text_printf(text, "; b += %lldu) {\n        const %s e = b + %lldu < ",
                   (long long)block, type, (long long)block);
    add_iterations(nest, text);
    hd_text_printf(text, " ? b + %lldu : ", (long long)block);
    add_iterations(nest, text);
    hd_text_printf(text, ";\n        %s part = 0;\n", lane);
}

static void end_block(const hd_nest *nest, hd_text *text)
{
    hd_text_puts(text, "        x += part");
    for (int i = 0; i < nest->n; i++) {
        const hd_operand *o = &nest->operand[i];

        if (o->scales)
            hd_text_printf(text, " * (%s)p%d[o%d + b / %lldu * %lldu]",
                           hd_lane_text(nest->lane), i, i, (long long)o->deep,
                           (long long)o->walk);
    }
    hd_text_puts(text, ";\n        }\n");
}

static void add_dot(const hd_nest *nest, hd_text *text)
{
    int a = find_walked(nest, 0), b = find_walked(nest, a + 1);
    int64_t block = block_of_scales(nest);
    const char *type = index_type(nest);

    hd_text_printf(text, "        %s x = 0;\n", hd_lane_text(nest->lane));
    if (block > 0)
        add_block(nest, block, text);
    hd_text_printf(text, "        for (%s s = %s; s < ", type,
                   block > 0 ? "b" : "0");
    if (block > 0)
        hd_text_puts(text, "e");
    else
        add_iterations(nest, text);
    hd_text_printf(text,
                   "; s++)\n            %s += ", block > 0 ? "part" : "x");
    for (int i = 0; i < 2; i++) {
        const hd_operand *o = &nest->operand[i == 0 ? a : b];
        char code[64];

        snprintf(code, sizeof code, "p%d[o%d + s * %lldu]", i == 0 ? a : b,
                 i == 0 ? a : b, (long long)o->walk);
        hd_prelude_load(text, o->dtype, nest->lane, code);
        hd_text_puts(text, i == 0 ? " * " : ";\n");
    }
    if (block > 0)
        end_block(nest, text);
}

// What nothing is joined to is, where a run may have no iteration.
static void add_identity(const hd_nest *nest, bool vectors, hd_text *text)
{
    hd_text_puts(text, vectors ? "        for (int e = 0; e < W; e++)\n"
                                 "            x[e] = "
                               : "        x = ");
    hd_prelude_identity(text, nest->fold, nest->lane, nest->operand[0].dtype);
    hd_text_puts(text, ";\n");
}

// Leaves an iteration that does not count the element.
static void add_folded_guard(const hd_nest *nest, hd_text *text)
{
    int at = nest->counts.operand;

    hd_text_puts(text, "            if (");
    add_counted_place(nest, text);
    hd_text_printf(text,
                   " >= (%s)indices_of(p%d[o%d + s * %lldu]) * %lldu)\n"
                   "                continue;\n",
                   index_type(nest), at, at, (long long)nest->operand[at].walk,
                   (long long)nest->counts.times);
}

// The value of the first iteration, then each other one's joined to it.
static void add_reduction(const hd_nest *nest, int width, hd_text *text)
{
    int a = find_walked(nest, 0);
    const hd_operand *o = &nest->operand[a];
    bool vectors = width > 1;
    const char *lane = hd_lane_text(nest->lane);
    const char *type = index_type(nest);
    const char *each = vectors ? "for (int e = 0; e < W; e++)" : "";
    const char *x = vectors ? "x[e]" : "x";
    const char *code = vectors ? "v.e[e]" : "v";
    bool folded = nest->counts.folded;

    if (vectors)
        hd_text_printf(text, "        %s x[W];\n", lane);
    else
        hd_text_printf(text, "        %s x;\n", lane);
    if (nest->iterations.sized || nest->counts.inner || folded)
        add_identity(nest, vectors, text);
    if (folded)
        hd_text_puts(text, "        bool none = true;\n");
    hd_text_printf(text, "        for (%s s = 0; s < ", type);
    add_iterations(nest, text);
    hd_text_puts(text, "; s++) {\n");
    if (folded)
        add_folded_guard(nest, text);
    if (vectors)
        hd_text_printf(text,
                       "            const vector%d v = *(const vector%d *)(p%d "
                       "+ o%d + s * %lldu);\n",
                       a, a, a, a, (long long)o->walk);
    else
        hd_text_printf(text, "            const %s v = p%d[o%d + s * %lldu];\n",
                       hd_code_text(o->dtype), a, a, (long long)o->walk);
    hd_text_printf(
        text, "            %s {\n                const %s y = ", each, lane);
    hd_prelude_load(text, o->dtype, nest->lane, code);
    hd_text_printf(text, ";\n                %s = %s ? y : ", x,
                   folded ? "none" : "s == 0");
    hd_prelude_fold(text, nest->fold, nest->lane, x, "y");
    hd_text_printf(text, ";\n            }\n%s        }\n",
                   folded ? "            none = false;\n" : "");
}

// The index that operand `i` says, of those that there are.
static void add_index(const hd_nest *nest, int i, hd_text *text)
{
    if (nest->start > 0)
        hd_text_printf(text, "(%s)(v%d - %d)", index_type(nest), i,
                       (int)nest->start);
    else
        hd_text_printf(text, "(%s)v%d", index_type(nest), i);
}

// Where the element is: vectors have one place, unless they lie along it.
static void add_place(const hd_nest *nest, int width, hd_text *text)
{
    const char *code = inner_type(nest);
    int last = nest->ndims - 1, i = 0;

    while (!nest->operand[i].place)
        i++;
    if (width == 1) {
        hd_text_printf(text, "        const %s x = (%s)(o%d + %du);\n", code,
                       code, i, (unsigned)nest->start);
        return;
    }
    hd_text_printf(text,
                   "        %s x[W];\n#pragma unroll\n"
                   "        for (int e = 0; e < W; e++)\n"
                   "            x[e] = (%s)(o%d + %du%s);\n",
                   code, code, i, (unsigned)nest->start,
                   nest->operand[i].stride[last] > 0 ? " + e" : "");
}

// The code that the index says, or 0; of vectors all have one index.
static void add_taken(const hd_nest *nest, int width, hd_text *text)
{
    int a = find_walked(nest, 0), i = 0;
    const char *code = inner_type(nest);
    bool vectors = width > 1;

    while (!nest->operand[i].picks)
        i++;
    assert(!vectors || hd_nest_repeats(nest, &nest->operand[i]));
    hd_text_printf(text, "        %s x%s;\n        if (v%d >= %d && ", code,
                   vectors ? "[W] = {0}" : " = 0", i, (int)nest->start);
    add_index(nest, i, text);
    hd_text_puts(text, " < ");
    add_iterations(nest, text);
    hd_text_puts(text, vectors ? ") {\n" : ")\n");
    if (vectors)
        hd_text_printf(text,
                       "            const vector%d v = *(const vector%d *)(p%d "
                       "+ o%d",
                       a, a, a, a);
    else
        hd_text_printf(text, "            x = p%d[o%d", a, a);
    hd_text_puts(text, " + ");
    add_index(nest, i, text);
    hd_text_printf(text, " * %lldu", (long long)nest->operand[a].walk);
    hd_text_puts(text, vectors ? ");\n#pragma unroll\n"
                                 "            for (int e = 0; e < W; e++)\n"
                                 "                x[e] = v.e[e];\n"
                                 "        }\n"
                               : "];\n");
}

static void add_inner(const hd_nest *nest, int width, hd_text *text)
{
    switch (nest->inner) {
    case HD_INNER_NONE:
        return;
    case HD_INNER_DOT:
        add_dot(nest, text);
        return;
    case HD_INNER_FOLD:
        add_reduction(nest, width, text);
        return;
    case HD_INNER_TAKE:
        add_taken(nest, width, text);
        return;
    case HD_INNER_IOTA:
        add_place(nest, width, text);
        return;
    }
}

// One iteration of a loop.
static void add_iteration(const hd_nest *nest, int width, hd_text *text)
{
    bool vectors = width > 1;

    add_offsets(nest, text);
    add_guard(nest, vectors, text);
    add_loads(nest, vectors, text);
    add_inner(nest, width, text);
    hd_text_puts(text, vectors ? "#pragma unroll\n        "
                                 "for (int e = 0; e < W; e++)\n            "
                               : "        ");
    add_call(nest, vectors, text);
    add_stores(nest, vectors, text);
}

// Addresses that are all multiples of 16 let the vectors begin.
static void add_vector_loop(const hd_nest *nest, int width, hd_text *text)
{
    const char *type = index_type(nest), * or = "";

    hd_text_puts(text, "    if (((");
    for (int i = 0; i < nest->n; i++) {
        if (hd_nest_repeats(nest, &nest->operand[i]) || nest->operand[i].place)
            continue;
        hd_text_printf(text, "%sargs.at[%d]", or, nest->operand[i].at);
        or = " | ";
    }
    hd_text_printf(text,
                   ") & 15) == 0) {\n"
                   "    enum { W = %d };\n"
                   "    for (%s v = first; v < ",
                   width, type);
    add_count(nest, width, text);
    hd_text_printf(text,
                   "; v += step) {\n"
                   "        const %s i = v * %du;\n",
                   type, width);
    add_iteration(nest, width, text);
    hd_text_puts(text, "    }\n    start = ");
    if (is_sized(nest)) {
        add_count(nest, width, text);
        hd_text_printf(text, " * %du", width);
    } else {
        hd_text_printf(text, "%lldu",
                       (long long)(hd_nest_room(nest) / width * width));
    }
    hd_text_puts(text, ";\n    }\n");
}

// How many blocks a processor is to run at once. It has 65536 registers, so
// that 8 blocks leave 32 a thread: some 20 of them for what a vector, or an
// element, of each operand takes.
static int blocks_at_once(const hd_nest *nest, int width)
{
    size_t words = 0;

    for (int i = 0; i < nest->n; i++)
        words +=
            (hd_dtype_size(nest->operand[i].dtype) *
                 (size_t)(hd_nest_repeats(nest, &nest->operand[i]) ? 1
                                                                   : width) +
             3) /
            4;
    return !nest->roomy || words <= 20 ? 8 : words <= 48 ? 4 : 2;
}

static void add_kernel(const hd_nest *nest, int width, hd_text *text)
{
    const char *type = index_type(nest);

    hd_text_printf(text,
                   "extern \"C\" __global__ void HD_BOUNDS(%d) " HD_KERNEL_NAME
                   "(const hd_kernel_args args)\n{\n",
                   blocks_at_once(nest, width));
    for (int i = 0; i < nest->n; i++) {
        const hd_operand *o = &nest->operand[i];
        const char *code = hd_code_text(o->dtype);
        const char *constant = o->write ? "" : "const ";

        if (o->place)
            continue;
        hd_text_printf(text, "    %s%s *p%d = (%s%s *)args.at[%d];\n", constant,
                       code, i, constant, code, o->at);
    }
    if (nest->factor >= 0)
        hd_text_printf(text,
                       "    const float f = *(const float *)"
                       "args.at[%d];\n",
                       nest->factor);
    hd_text_printf(text,
                   "    const %s step = (%s)gridDim.x * blockDim.x;\n"
                   "    const %s first = (%s)blockIdx.x * blockDim.x + "
                   "threadIdx.x;\n"
                   "    %s start = 0;\n",
                   type, type, type, type, type);
    add_sizes(nest, text);
    hd_counts_check(nest, text);
    if (width > 1)
        add_vector_loop(nest, width, text);
    hd_text_printf(text, "    for (%s i = start + first; i < ", type);
    add_count(nest, 1, text);
    hd_text_puts(text, "; i += step) {\n");
    add_iteration(nest, 1, text);
    hd_text_puts(text, "    }\n}\n");
}

static int count_pointers(const hd_nest *nest)
{
    int n = nest->factor + 1;

    for (int i = 0; i < nest->n; i++)
        n = nest->operand[i].at >= n ? nest->operand[i].at + 1 : n;
    return nest->counts.operand > 0 ? n + HD_COUNTS_POINTERS : n;
}

static hd_kernel_grid grid_of(const hd_nest *nest, int width)
{
    hd_kernel_grid grid = hd_prelude_grid(hd_nest_elements(nest) / width,
                                          blocks_at_once(nest, width));

    grid.pointers = count_pointers(nest);
    grid.sizes = list_sizes(nest, grid.size);
    return grid;
}

hd_status hd_nest_emit(hd_nest *nest, const char *body, hd_text *out,
                       hd_kernel_grid *grid)
{
    hd_text rest = {0};
    int width = hd_nest_arrange(nest);
    hd_kernel_grid arranged = grid_of(nest, width);

    add_function(nest, body, &rest);
    add_vectors(nest, width, &rest);
    hd_counts_functions(nest, &rest);
    add_kernel(nest, width, &rest);
    HD_TRY(hd_prelude_finish(out, &rest, arranged.pointers, arranged.sizes));
    *grid = arranged;
    return HD_OK;
}
