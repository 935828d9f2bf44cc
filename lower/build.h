// Short ways to write statements, for the passes.
#ifndef HD_LOWER_BUILD_H
#define HD_LOWER_BUILD_H

#include "ir/module.h"

HD_BEGIN_DECLS

// Where statements go and what they were made from.
typedef struct hd_build {
    hd_module *module;
    hd_block *block; // appended to
    hd_loc loc;
} hd_build;

// An op with these views, results first, and room for every key that it may
// have. `axis` is -1 for what is no transfer.
hd_op *hd_build_op(hd_build *b, hd_opcode code, int axis, int noutputs,
                   int ninputs, const hd_view *view);
hd_op *hd_build_unary(hd_build *b, hd_opcode code, int axis, hd_view out,
                      hd_view in);
// Dimension `d` of `out` is dimension `order[d]` of `in`.
hd_op *hd_build_ordered(hd_build *b, hd_view out, hd_view in,
                        const int8_t *order);
// `out` has `in` with what is dimension `from` of the view at `to`.
hd_op *hd_build_moved(hd_build *b, hd_view out, hd_view in, int from, int to);
// Another one, with views and keys of its own, at the place of the first.
hd_op *hd_build_copy(hd_build *b, const hd_op *op);
// In the order of ops.def.
void hd_build_key(hd_op *op, hd_key_code code, hd_expr expr);
// That by which a transfer folds so; none for a sum.
void hd_build_fold_key(hd_op *op, hd_fold fold);
void hd_build_drop_key(hd_op *op, hd_key_code code);
// One that is not there yet, in its place among the others.
hd_key *hd_build_put_key(hd_op *op, hd_key_code code);
// Says in which dimension of its buffer view `i` of a collective has the pieces
// of ranks, where it does not begin with an index of each.
void hd_build_pieces_dim(hd_module *module, hd_op *op, int i, int dim);
// The same once views have changed, where it was said: one that was not begins
// with an index of each still, and has no room for the key.
void hd_build_renumber_pieces(hd_module *module, hd_op *op, int i, int dim);
void hd_build_number(hd_op *op, hd_key_code code, double number);
void hd_build_key_view(hd_op *op, hd_key_code code, hd_view view);
// for VAR in 0..n: returns the body to build into, and the variable.
hd_build hd_build_for(hd_build *b, const char *name, hd_expr n, hd_expr *var);
hd_build hd_build_on(hd_build *b, hd_expr stream);
// if CONDITION: returns the body to build into, and the else.
hd_build hd_build_if(hd_build *b, hd_expr condition, hd_build *otherwise);
hd_build hd_build_group(hd_build *b);
// Where a rank packs or unpacks view `i` of a transfer: of what has a root, and
// of which others touch nothing, that alone does.
hd_build hd_build_on_root(hd_build *b, const hd_op *op, int i);
hd_expr hd_build_let(hd_build *b, const char *name, hd_expr value);
// Another name of a buffer's bytes.
hd_buffer *hd_build_name(hd_module *module, hd_buffer *buffer,
                         const hd_type *type);
// What stands ahead of a buffer's `said` where its dimensions are spoken of:
// one of a pass need not have those of what it is said to be.
const char *hd_build_part_of(const hd_buffer *buffer);
// A buffer of `n` events.
hd_buffer *hd_build_events(hd_module *module, const char *name, int64_t n,
                           hd_loc loc);
// A record or a wait, of one of them.
void hd_build_event(hd_build *b, hd_opcode code, hd_buffer *events,
                    hd_expr index);

// The view with dimension `dim` fixed; dimensions before it that it did not
// index are kept.
hd_view hd_view_at(hd_view view, int dim, hd_expr index);
// The view with all of dimension `dim`, of which it has an index or a block.
hd_view hd_view_all_of(hd_module *module, hd_view view, int dim);
// The view of one of as many blocks as dimension `dim` is cut into: where each
// is one index, that is fixed; else the block is kept.
hd_view hd_view_block(hd_module *module, hd_view view, int dim, hd_expr block,
                      int64_t blocks);
// What a rank has of what a view of a tensor program names: its own blocks, and
// its own index where one is picked of a dimension over ranks.
hd_view hd_view_own(hd_module *module, hd_view view);
// The index that is fixed of a dimension, or the block that is kept of it;
// HD_EXPR_ALL if neither.
hd_expr hd_view_index(const hd_view *view, int dim);
// The dimension, no stream dimension any more; how many blocks a size is cut
// into stays known.
hd_dim hd_dim_unstreamed(hd_dim dim);
hd_type hd_type_unstreamed(hd_type type);
// How many indices the view has room for of a dimension that it keeps: of a
// block those of the longest one.
int64_t hd_view_room(const hd_view *view, int dim);
// Whether some ranks or iterations have less than others of a dimension that it
// keeps, `but` aside.
bool hd_view_is_uneven(const hd_view *view, int but);
// Whether an index of the `along`-th dimension of its result can be picked, or
// a block of it, so that the op does that as it does all.
bool hd_op_has_parts(const hd_op *op, int along, bool block);
// Into how many blocks as long as each other, of several indices, a dimension
// is cut of which the view has one; 0 if it has none.
int64_t hd_view_blocks(const hd_view *view, int dim);
// The next dimension from `dim` on that the view keeps and of which a rank has
// more than one index; past the last one if there is none.
int hd_view_next_long(const hd_view *view, int dim);
// Whether the op has a view of the buffer, or writes one.
bool hd_op_uses(const hd_op *op, const hd_buffer *root, bool writing);
// Whether both touch the same, and one of them writes it.
bool hd_op_conflicts(const hd_op *a, const hd_op *b);
// Whether any view has a range that is no block.
bool hd_op_has_ranges(const hd_op *op);
// The view of a buffer that has one dimension more, at `dim`, of which it has
// that index, or all; the others are as they were.
hd_view hd_view_with(hd_module *module, hd_view view, hd_buffer *buffer,
                     int dim, hd_expr index);
// The view of a buffer that lacks dimension `dim`.
hd_view hd_view_without(hd_module *module, hd_view view, hd_buffer *buffer,
                        int dim);
// The view of a buffer in which dimension `from` stands at `to`, and the others
// lie as they did.
hd_view hd_view_moved(hd_module *module, hd_view view, hd_buffer *buffer,
                      int from, int to);

// A tensor whose dimension `dim` is cut into `n` pieces as long as each other,
// of one index or of more, and has these at `at`: [n, .., N / n, ..]. They stay
// a stream dimension.
hd_type hd_type_in_pieces(const hd_type *type, int dim, int64_t n, int at);
// The view by a buffer of that type: of one piece, if it has a block or an
// index of the dimension, or of all.
hd_view hd_view_in_pieces(hd_module *module, hd_view view, hd_buffer *buffer,
                          int dim, int at);

// What a view has, with `n` pieces of a dimension that it keeps all of: by
// another name of the bytes where they are of several indices.
hd_view hd_build_pieces(hd_build *b, hd_view view, int dim, int64_t n);

// Calls `fn` with every op, also in nested statements.
typedef void hd_op_fn(void *context, hd_op *op);
void hd_stmt_each(const hd_stmt *stmt, hd_op_fn *fn, void *context);
void hd_block_each(const hd_block *block, hd_op_fn *fn, void *context);
// A collective's views with an index of each dimension that has one and stands
// ahead of the pieces of ranks; of both sides of an exchange the same, so that
// pieces keep one shape.
hd_op_fn hd_build_past_ones;
// Whether any of it is `on stream`.
bool hd_stmt_has_stream(const hd_stmt *stmt);
// How many views there are of each buffer, by its id, and declarations of what
// it counts that have some.
int *hd_module_count_views(const hd_module *module, hd_arena *scratch);

HD_END_DECLS

#endif
