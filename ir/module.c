// Building programs: names, buffers, variables, statements and views. All of it
// is made in the module's arena; names are found by a hash, as a program may
// have many thousands.
#include "ir/module.h"

#include <string.h>

#include "ir/signature.h"

hd_module *hd_module_create(void)
{
    hd_arena *volatile arena = hd_arena_create();
    hd_module *module;
    jmp_buf guard;

    if (arena == NULL)
        return NULL;
    if (setjmp(guard) != 0) {
        hd_arena_destroy(arena);
        return NULL;
    }
    hd_arena_guard(arena, &guard);
    module = hd_new(arena, hd_module);
    hd_arena_guard(arena, NULL);
    module->arena = arena;
    module->form = HD_FORMAT;
    module->name = "";
    module->nranks = 1;
    return module;
}

void hd_module_destroy(hd_module *module)
{
    if (module != NULL)
        hd_arena_destroy(module->arena); // the module is in it, too
}

uint32_t hd_name_hash(const char *name, size_t length)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < length; i++)
        h = (h ^ (unsigned char)name[i]) * 0x100000001b3u;
    return (uint32_t)(h ^ h >> 32);
}

// Is it this word, of which `name` need not end in NUL?
static bool spells(const char *word, const char *name, size_t length)
{
    return length > 0 && *word == *name && strncmp(word, name, length) == 0 &&
           word[length] == '\0';
}

// Where the name is, or where it belongs. The table has room.
static struct hd_named *find_name(const hd_names *names, const char *name,
                                  size_t length)
{
    uint32_t mask = names->room - 1;
    uint32_t i = hd_name_hash(name, length) & mask;

    while (names->slot[i].name != NULL &&
           !spells(names->slot[i].name, name, length))
        i = (i + 1) & mask;
    return &names->slot[i];
}

static bool is_taken(const hd_names *names, const char *name, size_t length)
{
    return names->room > 0 && find_name(names, name, length)->name != NULL;
}

static void grow_names(hd_arena *arena, hd_names *names)
{
    hd_names old = *names;

    names->room = old.room > 0 ? 2 * old.room : 32;
    names->slot = hd_new_array(arena, struct hd_named, names->room);
    for (uint32_t i = 0; i < old.room; i++)
        if (old.slot[i].name != NULL)
            *find_name(names, old.slot[i].name, strlen(old.slot[i].name)) =
                old.slot[i];
}

// The first one of a name keeps it.
static void add_name(hd_arena *arena, hd_names *names, const char *name,
                     void *value)
{
    struct hd_named *slot;

    if (2 * (names->used + 1) > names->room)
        grow_names(arena, names);
    slot = find_name(names, name, strlen(name));
    if (slot->name != NULL)
        return;
    *slot = (struct hd_named){name, value};
    names->used++;
}

bool hd_name_is_reserved(const char *name, size_t length)
{
    static const char *const words[] = {
        "tensor", "host", "program", "after", "param",  "mesh",  "streams",
        "in",     "out",  "inout",   "temp",  "shared", "of",    "let",
        "for",    "if",   "else",    "on",    "stream", "group", "mod",
        "and",    "or",   "not",     "size",
    };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (spells(words[i], name, length))
            return true;
    return false;
}

// What a free name is differs for buffers and for variables.
typedef bool is_free_fn(const hd_module *module, const char *name,
                        size_t length);

static bool is_free_with_suffix(const hd_module *module, const char *name,
                                uint32_t suffix, is_free_fn *is_free)
{
    char *tried = hd_arena_printf(module->arena, "%s_%u", name, suffix);

    return is_free(module, tried, strlen(tried));
}

// The name, or the name with a number. The search doubles and then halves, so
// that asking for one name a thousand times is not a million tries: where
// numbers were given in order, it finds the next one.
static const char *make_unique(const hd_module *module, const char *name,
                               is_free_fn *is_free)
{
    uint32_t taken = 1, free = 2;

    if (is_free(module, name, strlen(name)))
        return hd_arena_text(module->arena, name, strlen(name));
    while (!is_free_with_suffix(module, name, free, is_free)) {
        taken = free;
        free *= 2;
    }
    while (free - taken > 1) {
        uint32_t middle = taken + (free - taken) / 2;

        if (is_free_with_suffix(module, name, middle, is_free))
            free = middle;
        else
            taken = middle;
    }
    return hd_arena_printf(module->arena, "%s_%u", name, free);
}

hd_buffer *hd_module_buffer(const hd_module *module, const char *name,
                            size_t length)
{
    if (module->buffer_names.room == 0)
        return NULL;
    return find_name(&module->buffer_names, name, length)->value;
}

static bool is_free_buffer(const hd_module *module, const char *name,
                           size_t length)
{
    return !is_taken(&module->buffer_names, name, length);
}

static void add_argument(hd_module *module, hd_buffer *buffer)
{
    module->argument =
        hd_arena_grow(module->arena, module->argument, module->narguments,
                      &module->arguments_room, sizeof *module->argument);
    module->argument[module->narguments++] = buffer;
}

static void link_buffer(hd_module *module, hd_buffer *buffer)
{
    buffer->id = module->nbuffers++;
    if (module->last_buffer != NULL)
        module->last_buffer->next = buffer;
    else
        module->buffers = buffer;
    module->last_buffer = buffer;
}

// Of one event, whichever the step that has it says.
static hd_op *record_of(hd_module *module, hd_buffer *event)
{
    hd_op *op = hd_new(module->arena, hd_op);

    op->code = op->said = HD_OP_RECORD;
    op->axis = -1;
    op->noutputs = op->nviews = 1;
    op->view = hd_new(module->arena, hd_view);
    *op->view = hd_view_whole(event, event->loc);
    op->view->nindex = event->type.ndims;
    return op;
}

hd_buffer *hd_module_add_buffer(hd_module *module, const char *name,
                                hd_role role, const hd_type *type)
{
    hd_buffer *buffer = hd_new(module->arena, hd_buffer);
    const hd_buffer *taken = hd_module_buffer(module, name, strlen(name));

    buffer->name = make_unique(module, name, is_free_buffer);
    buffer->said = taken != NULL ? taken->said : buffer->name;
    buffer->role = role;
    buffer->type = *type;
    add_name(module->arena, &module->buffer_names, buffer->name, buffer);
    if (role != HD_ROLE_TEMP)
        add_argument(module, buffer);
    link_buffer(module, buffer);
    if (type->dtype == HD_DTYPE_EVENT)
        buffer->record = record_of(module, buffer);
    return buffer;
}

void hd_module_drop_temps(hd_module *module, const bool *used)
{
    hd_buffer *next = module->buffers;

    module->buffers = module->last_buffer = NULL;
    module->nbuffers = 0;
    while (next != NULL) {
        hd_buffer *buffer = next;

        next = buffer->next;
        buffer->next = NULL;
        if (buffer->role != HD_ROLE_TEMP || used[buffer->id])
            link_buffer(module, buffer);
        else
            find_name(&module->buffer_names, buffer->name, strlen(buffer->name))
                ->value = NULL;
    }
}

// The array doubles, and moves: nobody may hold a pointer into it.
static hd_var add_var(hd_module *module, const char *name, hd_loc loc)
{
    module->vars = hd_arena_grow(module->arena, module->vars, module->nvars,
                                 &module->vars_room, sizeof *module->vars);
    module->vars[module->nvars] = (hd_var_info){name, loc};
    add_name(module->arena, &module->var_names, name, NULL);
    return module->nvars++;
}

static bool is_free_var(const hd_module *module, const char *name,
                        size_t length)
{
    return !is_taken(&module->var_names, name, length) &&
           hd_module_find_axis(module, name, length) < 0 &&
           !hd_name_is_reserved(name, length);
}

hd_var hd_module_add_var(hd_module *module, const char *name, hd_loc loc)
{
    return add_var(module, make_unique(module, name, is_free_var), loc);
}

hd_var hd_module_declare_var(hd_module *module, const char *name, size_t length,
                             hd_loc loc)
{
    return add_var(module, hd_arena_text(module->arena, name, length), loc);
}

int hd_module_find_axis(const hd_module *module, const char *name,
                        size_t length)
{
    for (int i = 0; i < module->naxes; i++)
        if (spells(module->axis[i].name, name, length))
            return i;
    return -1;
}

// How many ranks apart neighbours on the axis are.
static int64_t axis_stride(const hd_module *module, int axis)
{
    int64_t stride = 1;

    for (int i = axis + 1; i < module->naxes; i++)
        stride *= module->axis[i].size;
    return stride;
}

int64_t hd_mesh_coord(const hd_module *module, int64_t rank, int axis)
{
    return rank / axis_stride(module, axis) % module->axis[axis].size;
}

int64_t hd_mesh_peer(const hd_module *module, int64_t rank, int axis,
                     int64_t coord)
{
    int64_t own = hd_mesh_coord(module, rank, axis);

    return rank + (coord - own) * axis_stride(module, axis);
}

bool hd_module_counts_by(const hd_module *module, const hd_buffer *buffer)
{
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        if (b->by == buffer)
            return true;
    return false;
}

int64_t hd_module_extent(const hd_module *module, hd_dim dim)
{
    return hd_dim_is_sized(dim) ? dim.times * module->size[dim.size - 1].now
                                : dim.extent;
}

uint32_t hd_module_uncut(const hd_module *module)
{
    uint32_t uncut = 0;

    for (int i = 0; i < module->nsizes; i++)
        uncut |= (uint32_t)(module->size[i].blocks <= 1) << i;
    return uncut;
}

int64_t hd_module_least(const hd_module *module, hd_dim dim)
{
    return hd_dim_is_sized(dim) ? dim.times * module->size[dim.size - 1].low
                                : dim.extent;
}

hd_expr hd_module_count(hd_module *module, hd_dim dim)
{
    return hd_dim_is_sized(dim)
               ? hd_expr_binary(module, HD_EXPR_MUL,
                                hd_expr_const(module, dim.times),
                                hd_expr_size(module, dim.size - 1))
               : hd_expr_const(module, dim.extent);
}

hd_module hd_module_sized(const hd_module *module, const int64_t *sizes)
{
    hd_module sized = *module;

    for (int i = 0; i < module->nsizes; i++)
        sized.size[i].now = sizes[i];
    return sized;
}

hd_module hd_module_full(const hd_module *module)
{
    hd_module full = *module;

    for (int i = 0; i < module->nsizes; i++)
        full.size[i].now = module->size[i].room;
    return full;
}

hd_ranks hd_ranks_of(const hd_module *module, int axis, int64_t low,
                     int64_t past)
{
    hd_ranks ranks = {true, axis, low, past};

    return low == 0 && past == module->axis[axis].size ? (hd_ranks){0} : ranks;
}

bool hd_ranks_same(hd_ranks a, hd_ranks b)
{
    return a.some == b.some && a.axis == b.axis && a.low == b.low &&
           a.past == b.past;
}

bool hd_ranks_cover(hd_ranks ranks, hd_ranks some)
{
    return hd_ranks_are_all(ranks) ||
           (!hd_ranks_are_all(some) && ranks.axis == some.axis &&
            ranks.low <= some.low && some.past <= ranks.past);
}

hd_stmt *hd_stmt_new(hd_module *module, hd_stmt_kind kind, hd_loc loc)
{
    hd_stmt *stmt = hd_new(module->arena, hd_stmt);

    stmt->kind = kind;
    stmt->loc = loc;
    stmt->var = -1;
    stmt->a = HD_EXPR_NONE;
    stmt->b = HD_EXPR_NONE;
    return stmt;
}

void hd_block_append(hd_block *block, hd_stmt *stmt)
{
    hd_block_insert(block, block->last, stmt);
}

void hd_block_append_all(hd_block *block, const hd_block *from)
{
    for (hd_stmt *s = from->first, *next; s != NULL; s = next) {
        next = s->next;
        hd_block_append(block, s);
    }
}

void hd_block_insert(hd_block *block, hd_stmt *at, hd_stmt *stmt)
{
    hd_stmt **link = at != NULL ? &at->next : &block->first;

    stmt->next = *link;
    *link = stmt;
    if (stmt->next == NULL)
        block->last = stmt;
}

void hd_block_remove(hd_block *block, hd_stmt *before, hd_stmt *stmt)
{
    hd_stmt **link = before != NULL ? &before->next : &block->first;

    *link = stmt->next;
    if (block->last == stmt)
        block->last = before;
    stmt->next = NULL;
}

hd_stmt *hd_stmt_op(hd_module *module, hd_opcode code, int axis, int noutputs,
                    int ninputs, int nkeys, hd_loc loc)
{
    hd_stmt *stmt = hd_stmt_new(module, HD_STMT_OP, loc);
    hd_op *op = hd_new(module->arena, hd_op);

    op->code = op->said = code;
    op->axis = axis;
    op->noutputs = noutputs;
    op->ninputs = ninputs;
    op->nviews = noutputs + ninputs;
    op->view = hd_new_array(module->arena, hd_view, op->nviews + nkeys);
    op->key = hd_new_array(module->arena, hd_key, nkeys);
    op->loc = loc;
    op->front = module->form == 1;
    op->bound = hd_bound_room(module->arena, code);
    stmt->op = op;
    return stmt;
}

hd_view hd_view_whole(hd_buffer *buffer, hd_loc loc)
{
    return (hd_view){.buffer = buffer, .loc = loc};
}

// past - low, which is written low + n where it has a name.
static hd_expr count_of(hd_module *module, hd_expr low, hd_expr past)
{
    const hd_expr_node *node = hd_expr_get(module, past);

    if (node->kind == HD_EXPR_ADD && node->a == low)
        return node->b;
    if (node->kind == HD_EXPR_ADD && node->b == low)
        return node->a;
    return hd_expr_binary(module, HD_EXPR_SUB, past, low);
}

// As that of an hd_dim; 0 for less than that, too, which the walk refuses.
static int64_t extent_of(const hd_module *module, hd_expr count)
{
    int64_t n;

    if (!hd_expr_is_const(module, count))
        return hd_dim_counted(count);
    n = hd_expr_value(module, count);
    return n < 0 ? 0 : n;
}

static void keep(hd_module *module, hd_view *view, int dim, hd_range kept)
{
    hd_range *range = hd_new_array(module->arena, hd_range, HD_MAX_DIMS);
    hd_expr count = count_of(module, kept.low, kept.past);

    kept.extent = extent_of(module, count);
    for (int i = 0; i < HD_MAX_DIMS; i++)
        range[i] = view->range != NULL ? view->range[i]
                                       : (hd_range){.past = HD_EXPR_NONE,
                                                    .block = HD_EXPR_NONE};
    range[dim] = kept;
    view->index[dim] = HD_EXPR_ALL;
    view->range = range;
}

void hd_view_keep(hd_module *module, hd_view *view, int dim, hd_expr low,
                  hd_expr past)
{
    keep(module, view, dim,
         (hd_range){.low = low, .past = past, .block = HD_EXPR_NONE});
}

void hd_view_keep_all(hd_module *module, hd_view *view, int dim)
{
    hd_range *range;

    view->index[dim] = HD_EXPR_ALL;
    if (hd_view_range(view, dim) == NULL)
        return;
    range = hd_new_array(module->arena, hd_range, HD_MAX_DIMS);
    memcpy(range, view->range, sizeof *range * HD_MAX_DIMS);
    range[dim].past = HD_EXPR_NONE;
    view->range = range;
}

// No operator is written where none is needed: in a dimension that blocks
// divide, none is shorter than the others; where each has an index at least,
// none begins past the end.
void hd_view_keep_block(hd_module *module, hd_view *view, int dim,
                        hd_expr block, int64_t blocks)
{
    hd_dim all = view->buffer->type.dim[dim];
    int64_t n = all.extent, each = hd_block_size(n, blocks);
    bool sized = hd_dim_is_sized(all);
    hd_expr end = hd_module_count(module, all);
    // The only block, whatever its number is called, is as long as all.
    hd_expr number = blocks == 1 ? hd_expr_const(module, 0) : block;
    hd_expr size = hd_expr_binary(module, HD_EXPR_CDIV, end,
                                  hd_expr_const(module, blocks));
    hd_expr low = hd_expr_binary(module, HD_EXPR_MUL, number, size);
    hd_expr past = hd_expr_binary(module, HD_EXPR_ADD, low, size);

    if (sized || n % blocks != 0)
        past = hd_expr_binary(module, HD_EXPR_MIN, past, end);
    if (sized || each * (blocks - 1) > n)
        low = hd_expr_binary(module, HD_EXPR_MIN, low, end);
    keep(module, view, dim, (hd_range){low, past, 0, block, blocks});
}

hd_expr hd_view_count(hd_module *module, const hd_view *view, int dim)
{
    const hd_range *range = hd_view_range(view, dim);

    return range != NULL ? count_of(module, range->low, range->past)
                         : hd_module_count(module, view->buffer->type.dim[dim]);
}

const hd_range *hd_view_range(const hd_view *view, int dim)
{
    return view->range != NULL && dim < view->nindex &&
                   view->range[dim].past != HD_EXPR_NONE
               ? &view->range[dim]
               : NULL;
}

bool hd_view_picks(const hd_view *view, int dim)
{
    return dim < view->nindex && view->index[dim] != HD_EXPR_ALL;
}

int64_t hd_view_first(const hd_module *module, const hd_view *view, int dim)
{
    const hd_range *range = hd_view_range(view, dim);

    if (range != NULL)
        return hd_expr_value(module, range->low);
    return hd_view_picks(view, dim) ? hd_expr_value(module, view->index[dim])
                                    : 0;
}

hd_ranks hd_view_ranks(const hd_module *module, const hd_view *view)
{
    const hd_buffer *buffer = view->buffer;

    for (int i = 0; i < view->nindex; i++) {
        hd_dim dim = buffer->type.dim[i];
        int64_t rank;

        if (!hd_dim_is_sharded(dim) || hd_dim_is_cut(dim) ||
            !hd_view_picks(view, i))
            continue;
        rank = hd_view_first(module, view, i);
        return hd_ranks_of(module, dim.mark, rank, rank + 1);
    }
    return buffer->on;
}

bool hd_op_stands(const hd_module *module, const hd_op *op)
{
    bool stands = false;

    for (int i = 0; i < op->nviews; i++)
        stands |= op->view[i].buffer->by != NULL ||
                  hd_view_ranks(module, &op->view[i]).some;
    for (int i = 0; i < op->nkeys; i++)
        stands |= op->key[i].expr != HD_EXPR_NONE &&
                  !hd_expr_is_const(module, op->key[i].expr);
    return stands;
}

int hd_op_read_view(const hd_op *op, const hd_buffer *buffer)
{
    for (int i = op->noutputs; i < op->nviews; i++)
        if (op->view[i].buffer == buffer)
            return i;
    return -1;
}

int hd_view_lead(const hd_view *view)
{
    int dim = 0;

    while (hd_view_picks(view, dim))
        dim++;
    return dim;
}

bool hd_op_keeps_dim(const hd_op *op)
{
    return hd_op_family(op) == HD_FAMILY_FOLD &&
           hd_op_key(op, HD_KEY_DIM) != NULL &&
           (op->view[0].buffer->open & HD_OPEN_SHAPE) != 0 &&
           op->view[0].buffer->type.ndims == hd_view_type(&op->view[1]).ndims;
}

// What is moved by counts is the first rows of each of its slabs, and each
// rank's piece has slabs of its own.
static bool moves_rows(const hd_op *op, int i)
{
    const hd_view *view = &op->view[i];
    const hd_buffer *x = view->buffer;

    return x->by != NULL && hd_op_moves_counted(op) &&
           !hd_view_picks(view, x->counted) &&
           hd_view_range(view, x->counted) == NULL &&
           (!hd_op_is_led(op, i) || hd_view_lead(view) < x->by->type.ndims);
}

int hd_op_counted(const hd_op *op)
{
    if (op->code == HD_OP_RESHAPE) // which leaves rows where they are
        return -1;
    if (!hd_op_is(op, HD_UNIT_COMPUTE))
        return op->ninputs > 0 && moves_rows(op, op->noutputs) ? op->noutputs
                                                               : -1;
    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].buffer->by != NULL && !hd_op_has_keys(op, i))
            return i;
    return -1;
}

int hd_op_counted_keys(const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        if (op->view[i].buffer->by != NULL && hd_op_has_keys(op, i))
            return i;
    return -1;
}

int hd_view_kept_ahead(const hd_view *view, int dim)
{
    int n = 0;

    for (int i = 0; i < dim; i++)
        n += !hd_view_picks(view, i);
    return n;
}

int hd_view_kept_dim(const hd_view *view, int n)
{
    int dim = 0;

    for (; n > 0 || hd_view_picks(view, dim); dim++)
        n -= !hd_view_picks(view, dim);
    return dim;
}

int hd_op_pieces_dim(const hd_op *op, int i)
{
    const hd_key *key = hd_op_key(op, hd_op_pieces_key(op, i));

    return !hd_op_is_led(op, i)
               ? -1
               : hd_view_kept_dim(&op->view[i],
                                  key == NULL ? 0 : (int)key->number);
}

// Marks stay with the dimensions that are kept whole.
hd_type hd_view_type(const hd_view *view)
{
    const hd_type *whole = &view->buffer->type;
    hd_type type = {.dtype = whole->dtype};

    for (int i = 0; i < whole->ndims; i++)
        if (!hd_view_picks(view, i)) {
            const hd_range *range = hd_view_range(view, i);

            type.dim[type.ndims] = whole->dim[i];
            if (range != NULL)
                type.dim[type.ndims] = hd_dim_whole(range->extent);
            type.ndims++;
        }
    return type;
}

bool hd_view_has_sized(const hd_view *view, int dim)
{
    const hd_range *range = hd_view_range(view, dim);

    return hd_dim_is_sized(view->buffer->type.dim[dim]) &&
           !hd_view_picks(view, dim) &&
           (range == NULL || range->block != HD_EXPR_NONE);
}

int hd_view_next_sized(const hd_view *view, int dim)
{
    const hd_type *type = &view->buffer->type;

    while (dim < type->ndims && !hd_view_has_sized(view, dim))
        dim++;
    return dim;
}

bool hd_view_is_sized(const hd_view *view)
{
    return hd_view_next_sized(view, 0) < view->buffer->type.ndims;
}
