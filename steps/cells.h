// The bytes of every buffer cut into cells, as coarsely as the parts that a
// program touches allow: each part is some whole cells. A ring's gather buffer
// has one a shard; a buffer that is only used whole has one.
#ifndef HD_STEPS_CELLS_H
#define HD_STEPS_CELLS_H

#include "steps/graph.h"

HD_BEGIN_DECLS

// More cells, times streams, are an error: the checker keeps a number for each.
#define HD_MAX_CELLS ((int64_t)1 << 26)

// Nor may steps visit more of them, over all ranks and both runs, some seconds'
// worth; a write visits one a stream.
#define HD_MAX_VISITS 0x1p34

typedef struct hd_cells {
    const hd_graph *graph; // borrowed
    int64_t *first;        // owned, by id of the root: its first cell
    int64_t *count;        // owned, by id of the root: 0 of events
    bool *mixed;           // owned, by id of the root: names differ in shape,
                           // or have ranges
    int64_t *unit;         // owned, by id of the root: strides a cell
    int64_t *base;         // owned, by id of the root: elements of those before
    int64_t *cut;          // owned: where ranges begin and end, counted over
                           // all roots, ascending; NULL if that is not known
    int64_t *first_cut;    // owned, by id of the root: that of its first cell,
                           // -1 if all its cells are of one size
    int64_t *stride;       // owned, HD_MAX_DIMS by id of the buffer: of the
                           // cells along its dimensions, times the unit
    int64_t ncells;
} hd_cells;

hd_status hd_cells_create(const hd_graph *graph, hd_diag *diag, hd_cells *out);
void hd_cells_free(hd_cells *cells);

// Calls `fn` with the ranges of cells, from low to high, that the part is.
void hd_cells_each(const hd_cells *cells, const hd_part *part, hd_run_fn *fn,
                   void *context);

// Whether the cell is one of indices that the rank has room for alone.
bool hd_cells_is_room(const hd_cells *cells, const hd_part_frame *root,
                      int64_t cell, int64_t rank);

// "%c[3, :, 0]", or an element's number where names of other shapes share the
// bytes.
void hd_cells_print(const hd_cells *cells, const hd_part_frame *root,
                    int64_t cell, hd_text *text);

HD_END_DECLS

#endif
