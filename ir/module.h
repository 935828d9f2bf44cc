// A program of either level: one data structure from parser to walker. All of
// it lives in the module's arena; passes build new nodes and drop old ones, and
// nothing is freed alone.
#ifndef HD_IR_MODULE_H
#define HD_IR_MODULE_H

#include "base/arena.h"
#include "base/diag.h"
#include "ir/op.h"

HD_BEGIN_DECLS

typedef struct hd_axis {
    const char *name;
    int64_t size;
    hd_loc loc;
} hd_axis;

// A number that each run is given: how many indices dimensions have. Their room
// is for `room`, which is `high` or a little more: as many blocks of one length
// as it is cut into, so that what is proven of that holds for every value.
#define HD_MAX_SIZES 16

typedef struct hd_size {
    const char *name;
    int64_t low, high; // its least and its greatest value
    int64_t blocks;    // how many each dimension of it is cut into; 0: none is
    hd_loc cut;        // the first one that is
    int64_t room;
    int64_t now; // with which the program is walked
} hd_size;

// The ranks whose coordinate on an axis is from `low` to before `past`; all
// ranks, where it is not of some.
typedef struct hd_ranks {
    bool some;
    int axis;
    int64_t low, past;
} hd_ranks;

// Where the text has parts of a declaration.
typedef struct hd_locs {
    hd_loc by, on;
    hd_loc extent[HD_MAX_DIMS], mark[HD_MAX_DIMS];
} hd_locs;

// What the text leaves to be found of a temp of a tensor program, as bits.
typedef enum hd_open {
    HD_OPEN_DTYPE = 1, // what the operation that writes it makes
    HD_OPEN_PLACE = 2, // where it lies, which `place` decides
    HD_OPEN_SHAPE = 4, // its extents: how long what is written there is. They
                       // are known once that statement is read, where its
                       // operands say them
} hd_open;

struct hd_buffer {
    const char *name; // without %
    // What words call it: of what a pass made, the name of what the text has it
    // for; else its own.
    const char *said;
    hd_role role;
    hd_type type;
    bool shared;    // peers may write to it (put) or read it (get)
    hd_buffer *of;  // NULL, or the buffer whose bytes this one renames: same
                    // dtype, and of a temp at most as many local elements as
                    // `of`, of an argument exactly as many; never chained
    hd_buffer *by;  // NULL, or how many indices of dimension `counted` there
    int counted;    // are: i32, its dimensions are the first ones of this
    hd_ranks on;    // of a temp of a tensor program: which ranks have it
    unsigned open;  // hd_open; 0 of what is declared whole
    bool shapeless; // OPEN_SHAPE of which no statement has said it
    int id;         // position in the order of declaration
    hd_op *record;  // of events: what a send of nothing leaves of its `done`
    hd_loc loc;
    hd_locs *locs; // NULL of what a pass made
    hd_buffer *next;
};

// Whether the text has a declaration of it.
static inline bool hd_buffer_is_declared(const hd_buffer *buffer)
{
    return (buffer->open & HD_OPEN_DTYPE) == 0 ||
           (buffer->open & HD_OPEN_PLACE) == 0;
}

typedef enum hd_stmt_kind {
    HD_STMT_OP,
    HD_STMT_LET,    // var = a, until the end of the enclosing block
    HD_STMT_FOR,    // var in a .. b, body
    HD_STMT_IF,     // a, body, otherwise
    HD_STMT_ON,     // on stream a, body
    HD_STMT_GROUP,  // body: its transfers are issued together, unordered
    HD_STMT_LAUNCH, // body: one kernel does its steps, each with its waits
} hd_stmt_kind;

typedef struct hd_stmt hd_stmt;

typedef struct hd_block {
    hd_stmt *first;
    hd_stmt *last;
} hd_block;

struct hd_stmt {
    hd_stmt_kind kind;
    hd_loc loc;      // the statement's first word
    const char *why; // NULL, or what a comment says of it
    hd_stmt *next;
    hd_op *op;
    hd_var var;
    hd_expr a, b;
    hd_block body;
    hd_block otherwise; // empty without an else
};

typedef struct hd_var_info {
    const char *name;
    hd_loc loc;
} hd_var_info;

// Names that are taken, and what has them: an open-addressed hash.
typedef struct hd_names {
    struct hd_named {
        const char *name; // NULL is free
        void *value;      // NULL where only the name matters
    } * slot;
    uint32_t room; // a power of two
    uint32_t used;
} hd_names;

struct hd_module {
    hd_arena *arena;  // owned
    hd_source source; // a copy of the text, in the arena
    int form;         // of the text, from 1 to HD_FORMAT
    const char *name;
    hd_stage stage;
    hd_stage written; // the stage of the text; later statements are of passes
    bool
        placed; // of a tensor program: each operand lies as its statement needs
    const char *why; // NULL, or what a comment says of all statements
    bool told_alone; // lowering has told what moves while nothing is computed
    int naxes;
    hd_axis axis[HD_MAX_AXES];
    int64_t nranks;   // product of the axes; 1 without a mesh
    hd_define *param; // parameters, as they were set, in their order
    int nparams, params_room;
    int nsizes; // that runs are given
    hd_size size[HD_MAX_SIZES];
    int64_t streams; // work streams; 0 if the program has none
    hd_loc streams_loc;
    hd_buffer *buffers;
    hd_buffer *last_buffer;
    int nbuffers;
    hd_buffer **argument; // the buffers that are no temps, in order
    int narguments, arguments_room;
    hd_names buffer_names;
    hd_var_info *vars;
    int nvars, vars_room;
    hd_names var_names;
    hd_expr_node *exprs;
    int nexprs, exprs_room;
    int32_t *expr_index; // open-addressed hash of exprs; -1 is free
    int expr_index_room; // a power of two
    hd_block body;
};

// Empty, with its own arena; NULL if memory runs out.
hd_module *hd_module_create(void);

hd_buffer *hd_module_buffer(const hd_module *module, const char *name,
                            size_t length); // NULL if there is none
// Appends a buffer. The name is copied; if it is taken, "_2", "_3" ... is
// added, so that passes may ask for the name they like, and it is said to be
// what has it.
hd_buffer *hd_module_add_buffer(hd_module *module, const char *name,
                                hd_role role, const hd_type *type);
// Drops the temps whose ids are not `used`, and renumbers the buffers. Names
// stay taken.
void hd_module_drop_temps(hd_module *module, const bool *used);
// Likewise a variable; unique among variables, axes and reserved words.
hd_var hd_module_add_var(hd_module *module, const char *name, hd_loc loc);
// A variable called exactly this, though another may be: for the parser, whose
// blocks may reuse names one after the other.
hd_var hd_module_declare_var(hd_module *module, const char *name, size_t length,
                             hd_loc loc);
// By which tables find names.
uint32_t hd_name_hash(const char *name, size_t length);
// A word of the language, which no parameter, axis or variable may be called.
bool hd_name_is_reserved(const char *name, size_t length);
int hd_module_find_axis(const hd_module *module, const char *name,
                        size_t length); // -1 if there is none

// Whether it says how many indices a dimension of some buffer has.
bool hd_module_counts_by(const hd_module *module, const hd_buffer *buffer);
// How many indices of a dimension there are now.
int64_t hd_module_extent(const hd_module *module, hd_dim dim);
// Which sizes nothing cuts, but into one block: a bit each.
uint32_t hd_module_uncut(const hd_module *module);
// How many there are at least, in every run.
int64_t hd_module_least(const hd_module *module, hd_dim dim);
// An expression of as many; `dim` is of a buffer.
hd_expr hd_module_count(hd_module *module, hd_dim dim);
// Which indices of a dimension a rank has, of as many as there are now.
void hd_module_part(const hd_module *module, hd_dim dim, int rank,
                    int64_t *first, int64_t *count);
// Copies what rank `rank` has of an argument, from memory that lies as its own
// does to another such: what is room alone is left as it was.
void hd_buffer_copy(const hd_module *module, const hd_buffer *buffer, int rank,
                    const void *from, void *to);
// HD_ERROR_ARGUMENT unless these are as many as it is given, each in its range.
hd_status hd_module_check_sizes(const hd_module *module, const int64_t *sizes,
                                size_t nsizes, hd_diag *diag);
// The same program with other sizes, in the order of the module's: everything
// but these is the module's, which it must not outlive.
hd_module hd_module_sized(const hd_module *module, const int64_t *sizes);
// With as many indices as there is room for: all that is issued has elements.
hd_module hd_module_full(const hd_module *module);

// The buffer whose bytes these are.
static inline hd_buffer *hd_buffer_root(hd_buffer *buffer)
{
    return buffer->of != NULL ? buffer->of : buffer;
}

// Ranks count row-major over the axes, the last one fastest.
int64_t hd_mesh_coord(const hd_module *module, int64_t rank, int axis);
// The rank that differs from `rank` only in its coordinate on `axis`.
int64_t hd_mesh_peer(const hd_module *module, int64_t rank, int axis,
                     int64_t coord);

// All ranks, where they are those of the whole axis.
hd_ranks hd_ranks_of(const hd_module *module, int axis, int64_t low,
                     int64_t past);
static inline bool hd_ranks_are_all(hd_ranks ranks)
{
    return !ranks.some;
}
bool hd_ranks_same(hd_ranks a, hd_ranks b);
// Whether each of `some` is one of `ranks`.
bool hd_ranks_cover(hd_ranks ranks, hd_ranks some);

// Statements. New ones carry `loc`, the place of what they were made from, so
// that findings in lowered programs point into the text the user wrote.
hd_stmt *hd_stmt_new(hd_module *module, hd_stmt_kind kind, hd_loc loc);
void hd_block_append(hd_block *block, hd_stmt *stmt);
// All of `from`, which has none of them then.
void hd_block_append_all(hd_block *block, const hd_block *from);
// After `at`; at the front if `at` is NULL.
void hd_block_insert(hd_block *block, hd_stmt *at, hd_stmt *stmt);
void hd_block_remove(hd_block *block, hd_stmt *before, hd_stmt *stmt);

// An op statement with room for its views and keys, to be filled in.
hd_stmt *hd_stmt_op(hd_module *module, hd_opcode code, int axis, int noutputs,
                    int ninputs, int nkeys, hd_loc loc);
hd_view hd_view_whole(hd_buffer *buffer, hd_loc loc);
// The dtype and the dimensions that the view keeps. One of which it keeps a
// range is as long as that or, if that is no constant, counted.
hd_type hd_view_type(const hd_view *view);
// The first operand, or view of a key, of the op that is of the buffer; -1.
int hd_op_read_view(const hd_op *op, const hd_buffer *buffer);
// How many indices it keeps of a dimension of which it picks none.
hd_expr hd_view_count(hd_module *module, const hd_view *view, int dim);
// Keeps a range of dimension `dim` of those that it has indices for.
void hd_view_keep(hd_module *module, hd_view *view, int dim, hd_expr low,
                  hd_expr past);
// Keeps block `block` of as many as its extent is cut into.
void hd_view_keep_block(hd_module *module, hd_view *view, int dim,
                        hd_expr block, int64_t blocks);
// Keeps all of the dimension.
void hd_view_keep_all(hd_module *module, hd_view *view, int dim);
// The first view of the op whose buffer has counts; -1 if none has. Of what
// moves between ranks the operand, where it is moved by them; of an attention
// one that has its rows, and of keys another one.
int hd_op_counted(const hd_op *op);
int hd_op_counted_keys(const hd_op *op);
// Of a fold whose result has no shape of its own in the text: the dimension
// that it folds stays, with one index.
bool hd_op_keeps_dim(const hd_op *op);
// The range that it keeps of a dimension, NULL if it keeps all of it or none.
const hd_range *hd_view_range(const hd_view *view, int dim);
// Whether it picks one index of the dimension, and in how many leading ones.
bool hd_view_picks(const hd_view *view, int dim);
// Of a view by constants the first index that it has of a dimension.
int64_t hd_view_first(const hd_module *module, const hd_view *view, int dim);
int hd_view_lead(const hd_view *view);
// Of a view of a tensor program the ranks that have what it names: those that
// its buffer is on, or the one whose index of a dimension over ranks it picks;
// what it picks of a dimension in blocks of several is brought to all.
hd_ranks hd_view_ranks(const hd_module *module, const hd_view *view);
// Whether a statement of a tensor program is done as it stands, where what is
// declared of it is: it has counts, names coordinates, or is of tensors
// that some ranks have.
bool hd_op_stands(const hd_module *module, const hd_op *op);
// How many dimensions the view keeps before its buffer's `dim`.
int hd_view_kept_ahead(const hd_view *view, int dim);
// The dimension of its buffer that is the `n`-th that the view keeps, from 0.
int hd_view_kept_dim(const hd_view *view, int n);
// The dimension of its buffer in which view `i` of a collective has a piece of
// each rank, -1 if that has one rank's.
int hd_op_pieces_dim(const hd_op *op, int i);
// Whether it keeps all of a dimension whose length a run says, or a block.
bool hd_view_has_sized(const hd_view *view, int dim);
// The next dimension of its buffer from `dim` on of which it does; past the
// last one if there is none.
int hd_view_next_sized(const hd_view *view, int dim);
bool hd_view_is_sized(const hd_view *view);

HD_END_DECLS

#endif
