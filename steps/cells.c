// Where all names of the bytes have one shape, a dimension that no part fixes
// takes no cells of its own. Where shapes differ, a cell is as many elements as
// divide the start, length and distance of every stretch of every part.
#include "steps/cells.h"

#include <stdlib.h>

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

static int64_t elements(const hd_frame *frame)
{
    return frame->ndims > 0 ? frame->extent[0] * frame->stride[0] : 1;
}

// ---------------------------------------------------------------- one shape

// Marks, as a stride of 1, the dimensions that some part fixes.
static void mark_fixed(const hd_cells *cells, const hd_part *part)
{
    const hd_frame *frame = &cells->graph->frame[part->buffer];
    int64_t *stride = strides_of(cells, frame->root);

    for (int d = 0; d < frame->ndims; d++)
        if (!keeps(part, d))
            stride[d] = 1;
}

static void lay_grid(const hd_cells *cells, const hd_frame *frame)
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
    const hd_frame *frame = &cells->graph->frame[part->buffer];
    int64_t *unit = &cells->unit[frame->root], length = 1;
    int d = frame->ndims;

    *unit = gcd(*unit, part->offset);
    for (; d > 0 && (keeps(part, d - 1) || frame->extent[d - 1] == 1); d--)
        length *= frame->extent[d - 1];
    *unit = gcd(*unit, length);
    for (; d > 0; d--)
        if (keeps(part, d - 1))
            *unit = gcd(*unit, frame->stride[d - 1]);
}

static void lay_line(const hd_cells *cells, const hd_frame *frame)
{
    cells->count[frame->root] = elements(frame) / cells->unit[frame->root];
}

// ------------------------------------------------------------------- whole

static void find_shapes(const hd_cells *cells)
{
    const hd_graph *g = cells->graph;

    for (const hd_buffer *b = g->module->buffers; b != NULL; b = b->next) {
        const hd_frame *frame = &g->frame[b->id];
        const hd_frame *root = &g->frame[frame->root];

        cells->mixed[root->root] |= frame->shape != root->shape;
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
        const hd_frame *frame = &g->frame[b->id];

        if (b->of != NULL || b->type.dtype == HD_EVENT)
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
        const hd_frame *frame = &g->frame[b->id];
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
                        "%%%s is used in %lld pieces; at most %lld pieces of "
                        "all buffers, divided by streams, are proven",
                        b->name, (long long)cells->count[b->id],
                        (long long)HD_MAX_CELLS);
    }
    return HD_OK;
}

// How many cells a part is.
static double size_of(const hd_cells *cells, const hd_part *part)
{
    const hd_frame *frame = &cells->graph->frame[part->buffer];
    const int64_t *stride = strides_of(cells, part->buffer);
    double n = 1;

    for (int d = 0; d < frame->ndims; d++)
        if (keeps(part, d) && stride[d] != 0)
            n *= (double)frame->extent[d];
    return n / (double)cells->unit[frame->root];
}

// All accesses of both runs come to so many cells, and a write to as many reads
// of each as there are streams.
static hd_status check_visits(const hd_cells *cells, hd_diag *diag)
{
    const hd_graph *g = cells->graph;
    double n = 0;

    for (int64_t i = 0; i < g->nparts; i++) {
        const hd_part *part = &g->part[i];
        const hd_buffer *buffer = g->frame[part->buffer].buffer;

        n +=
            2 * size_of(cells, part) * (hd_part_writes(part) ? g->nstreams : 1);
        if (n > HD_MAX_VISITS)
            return hd_error(diag, HD_E0105, buffer->loc,
                            "%%%s is used in %.0f pieces at once: steps of all "
                            "ranks that visit more than %.0f pieces are not "
                            "proven",
                            buffer->name, size_of(cells, part), HD_MAX_VISITS);
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
    return hd_clear_array(n * HD_MAX_DIMS, sizeof *cells->stride, diag,
                          (void **)&cells->stride);
}

hd_status hd_cells_create(const hd_graph *graph, hd_diag *diag, hd_cells *out)
{
    hd_cells cells = {.graph = graph};
    hd_status status = allocate(&cells, diag);

    if (status == HD_OK) {
        lay_cells(&cells);
        copy_strides(&cells);
        status = number_cells(&cells, diag);
        if (status == HD_OK)
            status = check_visits(&cells, diag);
    }
    if (status != HD_OK)
        hd_cells_free(&cells);
    else
        *out = cells;
    return status;
}

void hd_cells_free(hd_cells *cells)
{
    free(cells->first);
    free(cells->count);
    free(cells->mixed);
    free(cells->unit);
    free(cells->stride);
    *cells = (hd_cells){0};
}

typedef struct scaled {
    int64_t first, unit;
    hd_run_fn *fn;
    void *context;
} scaled;

static void scale_run(void *context, int64_t low, int64_t high)
{
    const scaled *s = context;

    s->fn(s->context, s->first + low / s->unit, s->first + high / s->unit);
}

void hd_cells_each(const hd_cells *cells, const hd_part *part, hd_run_fn *fn,
                   void *context)
{
    const hd_frame *frame = &cells->graph->frame[part->buffer];
    scaled s = {cells->first[frame->root], cells->unit[frame->root], fn,
                context};

    hd_part_runs(frame, part, strides_of(cells, part->buffer), INT64_MAX,
                 scale_run, &s);
}

void hd_cells_print(const hd_cells *cells, const hd_frame *root, int64_t cell,
                    hd_text *text)
{
    const int64_t *stride = strides_of(cells, root->root);
    int64_t at = (cell - cells->first[root->root]) * cells->unit[root->root];
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
