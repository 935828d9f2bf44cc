// Where all names of the bytes have one shape, a dimension that no part fixes
// takes no cells of its own. Where shapes differ, or parts keep ranges, a cell
// is as many elements as divide the start, length and distance of every
// contiguous range of every part; or if that would be many more, what lies
// between two places where ranges begin or end:
//
//     %x : f32[3, 5]    x[1]           |----|----|----|
//     %y : f32[5, 3]    y[3] of %x     |--------|--|--|    5 cells, not 15
#include "steps/cells.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

static int64_t *strides_of(const hd_cells *cells, int buffer)
{
    return &cells->stride[(int64_t)buffer * HD_MAX_DIMS];
}

static bool keeps(const hd_part *part, int d)
{
    return (part->kept >> d & 1) != 0;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

static int64_t elements(const hd_part_frame *frame)
{
    return frame->ndims > 0 ? frame->extent[0] * frame->stride[0] : 1;
}

// ---------------------------------------------------------------- one shape

// Marks, as a stride of 1, the dimensions that some part fixes.
static void mark_fixed(const hd_cells *cells, const hd_part *part)
{
    const hd_part_frame *frame = &cells->graph->frame[part->buffer];
    int64_t *stride = strides_of(cells, frame->root);

    for (int d = 0; d < frame->ndims; d++)
        if (!keeps(part, d))
            stride[d] = 1;
}

static void lay_grid(const hd_cells *cells, const hd_part_frame *frame)
{
    int64_t *stride = strides_of(cells, frame->root), next = 1;

    for (int d = frame->ndims - 1; d >= 0; d--)
        if (stride[d] != 0) {
            stride[d] = next;
            next *= frame->extent[d];
        }
    cells->unit[frame->root] = 1;
    cells->count[frame->root] = next;
}

// ------------------------------------------------------------- other shapes

static void narrow_unit(const hd_cells *cells, const hd_part *part)
{
    const hd_part_frame *frame = &cells->graph->frame[part->buffer];
    int64_t *unit = &cells->unit[frame->root], length = 1;
    int d = frame->ndims;
    bool whole = true; // a range ends what is contiguous

    *unit = gcd(*unit, part->offset);
    for (; d > 0 && whole && (keeps(part, d - 1) || frame->extent[d - 1] == 1);
         d--) {
        length *= hd_part_extent(frame, part, d - 1);
        whole = hd_part_extent(frame, part, d - 1) == frame->extent[d - 1];
    }
    *unit = gcd(*unit, length);
    for (; d > 0; d--)
        if (keeps(part, d - 1))
            *unit = gcd(*unit, frame->stride[d - 1]);
}

static void lay_line(const hd_cells *cells, const hd_part_frame *frame)
{
    cells->count[frame->root] = elements(frame) / cells->unit[frame->root];
}

// --------------------------------------------------------------------- cuts

enum { MOST_CUTS = 1 << 22, LATELY = 1 << 12 };

// Parts are the same step by step, so most of them have been looked at lately.
typedef struct sized {
    hd_part part;
    bool known;
    double size;
} sized;

typedef struct cutter {
    const hd_cells *cells;
    hd_diag *diag;
    int64_t *cut; // owned
    int64_t ncuts, room;
    int64_t added;
    int64_t base; // of the part's root
    hd_status status;
} cutter;

static sized *find_lately(sized *lately, const hd_part *part)
{
    uint64_t hash =
        (((uint64_t)part->offset << 8 | part->kept) * 31 + part->ranges) * 31 +
        (uint64_t)part->buffer;
    sized *found = &lately[(hash * 0x9e3779b97f4a7c15) >> 52];

    if (found->part.offset != part->offset ||
        found->part.buffer != part->buffer || found->part.kept != part->kept ||
        found->part.ranges != part->ranges)
        *found = (sized){.part = *part};
    return found;
}

static int compare_cuts(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;

    return (a > b) - (a < b);
}

static void sort_cuts(cutter *c)
{
    int64_t n = 0;

    qsort(c->cut, (size_t)c->ncuts, sizeof *c->cut, compare_cuts);
    for (int64_t i = 0; i < c->ncuts; i++)
        if (n == 0 || c->cut[n - 1] != c->cut[i])
            c->cut[n++] = c->cut[i];
    c->ncuts = n;
}

static void add_cut(cutter *c, int64_t at)
{
    if (c->ncuts == c->room && c->ncuts > 0)
        sort_cuts(c);
    if (c->status == HD_OK && 2 * c->ncuts >= c->room)
        c->status = hd_grow((void **)&c->cut, &c->room, 2 * c->ncuts + 2,
                            sizeof *c->cut, c->diag);
    if (c->status == HD_OK)
        c->cut[c->ncuts++] = at;
}

static void cut_run(void *context, int64_t low, int64_t high)
{
    cutter *c = context;

    add_cut(c, c->base + low);
    add_cut(c, c->base + high);
    c->added++;
}

// False if there are too many.
static bool cut_parts(cutter *c, sized *lately)
{
    const hd_graph *g = c->cells->graph;

    for (int64_t i = 0; i < g->nparts && c->status == HD_OK; i++) {
        const hd_part *part = &g->part[i];
        const hd_part_frame *frame = &g->frame[part->buffer];
        sized *seen;

        if (!c->cells->mixed[frame->root])
            continue;
        seen = find_lately(lately, part);
        if (seen->known)
            continue;
        seen->known = true;
        c->base = c->cells->base[frame->root];
        if (!hd_part_runs(frame, part, frame->stride, MOST_CUTS - c->added,
                          cut_run, c))
            return false;
    }
    return true;
}

static int64_t find_cut(const hd_cells *cells, int64_t low, int64_t high,
                        int64_t at)
{
    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (cells->cut[middle] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Of the roots whose cells of one size would be many more.
static void take_cuts(hd_cells *cells, int64_t ncuts)
{
    const hd_graph *g = cells->graph;

    for (const hd_buffer *b = g->module->buffers; b != NULL; b = b->next) {
        int64_t base = cells->base[b->id], low, high;

        if (b->of != NULL || !cells->mixed[b->id])
            continue;
        low = find_cut(cells, 0, ncuts, base);
        high = find_cut(cells, low, ncuts, base + elements(&g->frame[b->id]));
        if (2 * (high - low) >= cells->count[b->id])
            continue;
        cells->first_cut[b->id] = low;
        cells->count[b->id] = high - low;
        cells->unit[b->id] = 1;
    }
}

// Roots follow one another, each with a cut at its beginning and its end.
static void cut_roots(cutter *c)
{
    const hd_graph *g = c->cells->graph;
    int64_t base = 0;

    for (const hd_buffer *b = g->module->buffers; b != NULL; b = b->next) {
        c->cells->base[b->id] = base;
        c->cells->first_cut[b->id] = -1;
        if (b->of != NULL || !c->cells->mixed[b->id])
            continue;
        cut_run(c, base, base + elements(&g->frame[b->id]));
        base += elements(&g->frame[b->id]);
    }
}

static hd_status cut_cells(hd_cells *cells, sized *lately, hd_diag *diag)
{
    cutter c = {.cells = cells, .diag = diag};
    bool few;

    cut_roots(&c);
    few = cut_parts(&c, lately);
    if (c.status == HD_OK && few && c.ncuts > 0) {
        sort_cuts(&c);
        cells->cut = c.cut;
        take_cuts(cells, c.ncuts);
    } else {
        free(c.cut);
    }
    return c.status;
}

// ------------------------------------------------------------------- whole

static void find_shapes(const hd_cells *cells)
{
    const hd_graph *g = cells->graph;

    for (const hd_buffer *b = g->module->buffers; b != NULL; b = b->next) {
        const hd_part_frame *frame = &g->frame[b->id];
        const hd_part_frame *root = &g->frame[frame->root];

        cells->mixed[root->root] |=
            frame->shape != root->shape || frame->nlengths > 0;
        cells->unit[root->root] = elements(root);
    }
}

static void lay_cells(const hd_cells *cells)
{
    const hd_graph *g = cells->graph;

    find_shapes(cells);
    for (int64_t i = 0; i < g->nparts; i++) {
        if (cells->mixed[g->frame[g->part[i].buffer].root])
            narrow_unit(cells, &g->part[i]);
        else
            mark_fixed(cells, &g->part[i]);
    }
    for (const hd_buffer *b = g->module->buffers; b != NULL; b = b->next) {
        const hd_part_frame *frame = &g->frame[b->id];

        if (b->of != NULL || b->type.dtype == HD_DTYPE_EVENT)
            continue;
        if (cells->mixed[b->id])
            lay_line(cells, frame);
        else
            lay_grid(cells, frame);
    }
}

// Other names of a root have its strides, or their own if shapes differ.
static void copy_strides(const hd_cells *cells)
{
    const hd_graph *g = cells->graph;

    for (const hd_buffer *b = g->module->buffers; b != NULL; b = b->next) {
        const hd_part_frame *frame = &g->frame[b->id];
        const int64_t *from = cells->mixed[frame->root]
                                  ? frame->stride
                                  : strides_of(cells, frame->root);

        for (int d = 0; d < frame->ndims; d++)
            strides_of(cells, b->id)[d] = from[d];
    }
}

static hd_status number_cells(hd_cells *cells, hd_diag *diag)
{
    const hd_graph *g = cells->graph;

    for (const hd_buffer *b = g->module->buffers; b != NULL; b = b->next) {
        cells->first[b->id] = cells->ncells;
        cells->ncells += cells->count[b->id];
        if (cells->ncells * g->nstreams <= HD_MAX_CELLS)
            continue;
        return hd_error(diag, HD_E0105, b->loc,
                        "%%%s is used in %lld pieces; the limit is %lld of "
                        "all buffers, divided by streams",
                        b->name, (long long)cells->count[b->id],
                        (long long)HD_MAX_CELLS);
    }
    return HD_OK;
}

static void count_run(void *context, int64_t low, int64_t high)
{
    *(double *)context += (double)(high - low);
}

// How many cells a part is.
static double size_of(const hd_cells *cells, sized *lately, const hd_part *part)
{
    const hd_part_frame *frame = &cells->graph->frame[part->buffer];
    const int64_t *stride = strides_of(cells, part->buffer);
    sized *seen = find_lately(lately, part);
    double n = 1;

    if (cells->first_cut[frame->root] >= 0) {
        if (!seen->known)
            hd_cells_each(cells, part, count_run, &seen->size);
        seen->known = true;
        return seen->size;
    }
    for (int d = 0; d < frame->ndims; d++)
        if (keeps(part, d) && stride[d] != 0)
            n *= (double)hd_part_extent(frame, part, d);
    return n / (double)cells->unit[frame->root];
}

// All accesses of both runs come to so many cells, and a write to as many reads
// of each as there are streams.
static hd_status check_visits(const hd_cells *cells, sized *lately,
                              hd_diag *diag)
{
    const hd_graph *g = cells->graph;
    double n = 0;

    for (int64_t i = 0; i < g->nparts; i++) {
        const hd_part *part = &g->part[i];
        const hd_buffer *buffer = g->frame[part->buffer].buffer;
        double size = size_of(cells, lately, part);

        n += 2 * size * (hd_part_writes(part) ? g->nstreams : 1);
        if (n > HD_MAX_VISITS)
            return hd_error(diag, HD_E0105, buffer->loc,
                            "%%%s is used in %.0f pieces at once: steps of all "
                            "ranks that visit more than %.0f pieces are not "
                            "proven",
                            buffer->name, size, HD_MAX_VISITS);
    }
    return HD_OK;
}

static hd_status allocate(hd_cells *cells, hd_diag *diag)
{
    int64_t n = cells->graph->module->nbuffers;

    HD_TRY(
        hd_clear_array(n, sizeof *cells->first, diag, (void **)&cells->first));
    HD_TRY(
        hd_clear_array(n, sizeof *cells->count, diag, (void **)&cells->count));
    HD_TRY(
        hd_clear_array(n, sizeof *cells->mixed, diag, (void **)&cells->mixed));
    HD_TRY(hd_clear_array(n, sizeof *cells->unit, diag, (void **)&cells->unit));
    HD_TRY(hd_clear_array(n, sizeof *cells->base, diag, (void **)&cells->base));
    HD_TRY(hd_clear_array(n, sizeof *cells->first_cut, diag,
                          (void **)&cells->first_cut));
    return hd_clear_array(n * HD_MAX_DIMS, sizeof *cells->stride, diag,
                          (void **)&cells->stride);
}

// `lately` has LATELY parts.
static hd_status build(hd_cells *cells, sized *lately, hd_diag *diag)
{
    lay_cells(cells);
    HD_TRY(cut_cells(cells, lately, diag));
    copy_strides(cells);
    HD_TRY(number_cells(cells, diag));
    memset(lately, 0, sizeof *lately * LATELY);
    return check_visits(cells, lately, diag);
}

hd_status hd_cells_create(const hd_graph *graph, hd_diag *diag, hd_cells *out)
{
    hd_cells cells = {.graph = graph};
    sized *lately = NULL;
    hd_status status = allocate(&cells, diag);

    if (status == HD_OK)
        status = hd_clear_array(LATELY, sizeof *lately, diag, (void **)&lately);
    if (status == HD_OK)
        status = build(&cells, lately, diag);
    if (status == HD_OK)
        *out = cells;
    else
        hd_cells_free(&cells);
    free(lately);
    return status;
}

void hd_cells_free(hd_cells *cells)
{
    free(cells->first);
    free(cells->count);
    free(cells->mixed);
    free(cells->unit);
    free(cells->stride);
    free(cells->base);
    free(cells->cut);
    free(cells->first_cut);
    *cells = (hd_cells){0};
}

typedef struct scaled {
    int64_t first, unit;
    const hd_cells *cells;
    int64_t base, cut, last; // where cells are not of one size
    hd_run_fn *fn;
    void *context;
} scaled;

static void scale_run(void *context, int64_t low, int64_t high)
{
    const scaled *s = context;

    s->fn(s->context, s->first + low / s->unit, s->first + high / s->unit);
}

// Ranges come in ascending order.
static void look_up_run(void *context, int64_t low, int64_t high)
{
    scaled *s = context;
    int64_t from = find_cut(s->cells, s->cut, s->last, s->base + low);
    int64_t to = find_cut(s->cells, from, s->last, s->base + high);

    s->cut = to;
    s->fn(s->context, s->first + from, s->first + to);
}

void hd_cells_each(const hd_cells *cells, const hd_part *part, hd_run_fn *fn,
                   void *context)
{
    const hd_part_frame *frame = &cells->graph->frame[part->buffer];
    int64_t cut = cells->first_cut[frame->root];
    scaled s = {.first = cells->first[frame->root],
                .unit = cells->unit[frame->root],
                .cells = cells,
                .fn = fn,
                .context = context};

    if (cut >= 0) {
        s.base = cells->base[frame->root];
        s.cut = cut;
        s.last = cut + cells->count[frame->root];
        s.first -= cut;
    }
    hd_part_runs(frame, part, strides_of(cells, part->buffer), INT64_MAX,
                 cut >= 0 ? look_up_run : scale_run, &s);
}

static int64_t element_of(const hd_cells *cells, int root, int64_t cell)
{
    int64_t i = cell - cells->first[root], cut = cells->first_cut[root];

    return cut < 0 ? i * cells->unit[root]
                   : cells->cut[cut + i] - cells->base[root];
}

bool hd_cells_is_room(const hd_cells *cells, const hd_part_frame *root,
                      int64_t cell, int64_t rank)
{
    const int64_t *stride = strides_of(cells, root->root);
    int64_t at = element_of(cells, root->root, cell);

    for (int d = 0; d < root->ndims; d++) {
        hd_dim dim = root->buffer->type.dim[d];
        int64_t index = stride[d] != 0 ? at / stride[d] % root->extent[d] : 0;
        int64_t coord;

        if (!hd_dim_is_sharded(dim))
            continue;
        coord = hd_mesh_coord(cells->graph->module, rank, dim.mark);
        if (index >= hd_dim_block_length(dim, coord))
            return true;
    }
    return false;
}

void hd_cells_print(const hd_cells *cells, const hd_part_frame *root,
                    int64_t cell, hd_text *text)
{
    const int64_t *stride = strides_of(cells, root->root);
    int64_t at = element_of(cells, root->root, cell);
    int last = root->ndims;

    while (last > 0 && stride[last - 1] == 0)
        last--;
    hd_text_printf(text, "%%%s", root->buffer->name);
    for (int d = 0; d < last; d++) {
        hd_text_puts(text, d == 0 ? "[" : ", ");
        if (stride[d] == 0)
            hd_text_puts(text, ":");
        else
            hd_text_printf(text, "%lld",
                           (long long)(at / stride[d] % root->extent[d]));
    }
    hd_text_puts(text, last > 0 ? "]" : "");
}
