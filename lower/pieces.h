// Blocks of a loop as indices: where a dimension is cut into blocks as long as
// each other, another name of the buffer has one for them, [n, N / n] in place
// of [N]. So what plans a pipeline knows of indices alone.
//
//     %ag[j of 8] = broadcast ..            %ag_2[j] = broadcast ..
//     %c[j of 8] = matmul %ag[j of 8], ..   %c_2[j] = matmul %ag_2[j], ..
#ifndef HD_LOWER_PIECES_H
#define HD_LOWER_PIECES_H

#include "lower/build.h"

HD_BEGIN_DECLS

typedef struct hd_pieces {
    hd_module *module;
    hd_arena *scratch;
    struct hd_piece_name *names; // the last one first
} hd_pieces;

// Gives buffers other names where a loop has blocks of them alone: none that
// are arguments which a caller brings and gets, and none with counts.
void hd_pieces_name(hd_pieces *all, const hd_stmt *loop);
// In `view`, that picks a piece by dimension `dim` of its name, all of them
// instead, as the dimension that they are of; false if it does not.
bool hd_pieces_join(const hd_pieces *all, hd_view *view, int dim);
// Blocks again, wherever a view in the module has one piece; names that no view
// has any more are gone.
void hd_pieces_undo(const hd_pieces *all);

HD_END_DECLS

#endif
