// What the public header tells of a module: its arguments, and how an array is
// cut into the shards that ranks hold.
#include "ir/module.h"

#include <heddle/call.h>
#include <heddle/verify.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "ir/causal.h"
#include "ir/space.h"

// The bytes that a rank has room for: of arguments, and of temps that are not
// names of other bytes.
static void sum_bytes(const hd_module *module, hd_program_info *out)
{
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        if (b->role != HD_ROLE_TEMP)
            out->argument_bytes += hd_type_local_bytes(&b->type);
        else if (b->of == NULL)
            out->temp_bytes += hd_type_local_bytes(&b->type);
    }
}

void hd_module_info(const hd_module *module, hd_program_info *out)
{
    hd_program_info info = {0};

    assert(module != NULL && out != NULL);
    info.name = module->name;
    info.stage = module->stage;
    info.ranks = (int)module->nranks;
    info.streams = (int)module->streams;
    info.naxes = (size_t)module->naxes;
    info.nsizes = (size_t)module->nsizes;
    info.narguments = (size_t)module->narguments;
    sum_bytes(module, &info);
    hd_sized_write(&info, sizeof info, out);
}

bool hd_module_axis(const hd_module *module, size_t i, hd_axis_info *out)
{
    hd_axis_info info = {.stride = 1};

    assert(module != NULL && out != NULL);
    if (i >= (size_t)module->naxes)
        return false;
    info.name = module->axis[i].name;
    info.extent = (int)module->axis[i].size;
    for (int j = (int)i + 1; j < module->naxes; j++)
        info.stride *= (int)module->axis[j].size;
    hd_sized_write(&info, sizeof info, out);
    return true;
}

// NULL if there are not so many.
static const hd_buffer *find_argument(const hd_module *module, size_t i)
{
    return i < (size_t)module->narguments ? module->argument[i] : NULL;
}

// Of how many the numbers in view `*view` now count or pick some; -1: they do
// neither.
typedef int64_t limit_fn(const hd_module *module, const hd_op *op, int *view);

static int64_t rows_of_counts(const hd_module *module, const hd_op *op,
                              int *view)
{
    *view = hd_op_key_view(op, HD_KEY_GROUPS);
    if (*view < 0)
        return -1;
    if (hd_op_has_sequences(op))
        return hd_causal_room_now(module, op);
    return hd_module_extent(module,
                            hd_view_type(&op->view[op->noutputs]).dim[0]);
}

static int64_t extent_of_indices(const hd_module *module, const hd_op *op,
                                 int *view)
{
    const hd_key *start = hd_op_key(op, HD_KEY_START);
    const hd_view *from;
    hd_type type;
    int64_t first = 0;

    if (hd_op_family(op) != HD_FAMILY_TAKE)
        return -1;
    *view = 2;
    from = &op->view[1];
    type = hd_view_type(from);
    if (start == NULL)
        return hd_module_extent(module, type.dim[hd_op_dim(op)]);
    if (hd_expr_is_const(module, start->expr))
        first = hd_expr_value(module, start->expr);
    // What each rank has of it, all have together.
    return first +
           hd_module_extent(
               module,
               from->buffer->type.dim[hd_view_kept_dim(from, hd_op_dim(op))]);
}

// The least of what ops say that have the buffer there; -1: there is none.
// Blocks nest as deep as the parser lets them.
static int64_t find_limit(const hd_module *module, const hd_block *block,
                          const hd_buffer *buffer, limit_fn *limit)
{
    int64_t least = -1;

    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        int view = -1;
        int64_t own = s->kind == HD_STMT_OP ? limit(module, s->op, &view) : -1;
        bool found =
            own >= 0 && hd_buffer_root(s->op->view[view].buffer) == buffer;
        int64_t limits[] = {
            found ? own : -1,
            find_limit(module, &s->body, buffer, limit),
            find_limit(module, &s->otherwise, buffer, limit),
        };

        for (int i = 0; i < 3; i++)
            if (limits[i] >= 0 && (least < 0 || limits[i] < least))
                least = limits[i];
    }
    return least;
}

// How many terms of a sum each have their share of it.
static int64_t count_terms(const hd_op *op)
{
    int64_t terms = 0;
    hd_space space;

    hd_space_of_op(op, &space);
    if (space.ndims > space.nparallel)
        terms = space.extent[space.nparallel];
    else
        for (int k = 0; k < hd_op_operands(op); k++)
            terms += hd_op_operand(op, k) >= 0;
    return terms > 0 ? terms : 1;
}

// What each operand's numbers may be at most so that the result's are `limit`
// or less; -1: that depends on others.
static int64_t limit_through(const hd_module *module, const hd_op *op,
                             int64_t limit)
{
    if (hd_op_family(op) == HD_FAMILY_COPY ||
        hd_op_family(op) == HD_FAMILY_TRANSPOSE)
        return limit;
    if (hd_op_family(op) == HD_FAMILY_MOVE)
        return hd_op_fold(op) == HD_FOLD_SUM
                   ? limit / module->axis[op->axis].size
                   : limit;
    if (hd_op_family(op) == HD_FAMILY_FOLD && hd_op_fold(op) != HD_FOLD_SUM)
        return limit;
    if (hd_op_family(op) != HD_FAMILY_FOLD && op->code != HD_OP_ADD)
        return -1;
    for (int k = 0; k < hd_op_operands(op); k++)
        if (hd_op_operand(op, k) < 0)
            limit -= (int64_t)hd_op_number(op, k);
    return limit > 0 ? limit / count_terms(op) : 0;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

// By buffer id, what numbers may be at most that count; -1: nothing says.
static void find_extents(const hd_module *module, int64_t *most)
{
    for (int i = 0; i <= module->nbuffers; i++)
        most[i] = -1;
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        if (b->by != NULL) {
            int64_t *at = &most[hd_buffer_root(b->by)->id];

            *at = least_of(*at, b->type.dim[b->counted].extent);
        }
}

// Likewise of what statements make numbers of that may be `made` at most.
static void find_made(const hd_module *module, const hd_block *block,
                      const int64_t *made, int64_t *most)
{
    for (const hd_stmt *s = block->first; s != NULL; s = s->next) {
        const hd_op *op = s->op;
        int64_t own = -1;

        find_made(module, &s->body, made, most);
        find_made(module, &s->otherwise, made, most);
        if (s->kind == HD_STMT_OP && op->noutputs > 0)
            own = made[hd_buffer_root(op->view[0].buffer)->id];
        if (own < 0)
            continue;
        own = limit_through(module, op, own);
        for (int i = op->noutputs; i < op->noutputs + op->ninputs; i++) {
            int64_t *at = &most[hd_buffer_root(op->view[i].buffer)->id];

            *at = least_of(*at, own);
        }
    }
}

enum { MOST_STATEMENTS = 4 }; // from an argument to what it counts

// The least extent of a dimension that the buffer counts, or that what is made
// of it does; -1: there is none, or no memory to look for it.
static int64_t find_counted(const hd_module *module, const hd_buffer *counts)
{
    size_t n = (size_t)module->nbuffers + 1;
    int64_t *room = calloc(2 * n, sizeof *room), *most = room, *next, found;

    if (room == NULL)
        return -1;
    find_extents(module, most);
    for (int i = 0; i < MOST_STATEMENTS; i++) {
        next = most == room ? room + n : room;
        find_extents(module, next);
        find_made(module, &module->body, most, next);
        most = next;
    }
    found = most[counts->id];
    free(room);
    return found;
}

// The argument that says how many indices a dimension of the buffer has; -1 if
// none does.
static int find_counts(const hd_module *module, const hd_buffer *buffer)
{
    for (int i = 0; i < module->narguments && buffer->by != NULL; i++)
        if (module->argument[i] == hd_buffer_root(buffer->by))
            return i;
    return -1;
}

bool hd_module_argument(const hd_module *module, size_t i, hd_argument *out)
{
    const hd_buffer *buffer;
    const hd_type *type;
    hd_argument told;

    assert(module != NULL && out != NULL);
    buffer = find_argument(module, i);
    if (buffer == NULL)
        return false;
    type = &buffer->type;
    told = (hd_argument){
        .name = buffer->name,
        .role = buffer->role,
        .dtype = type->dtype,
        .ndims = type->ndims,
        .elements = 1,
        .local_elements = (size_t)hd_type_local_elements(type),
        .grouped_rows = -1,
        .taken_extent = -1,
        .counted = -1,
        .counted_dim = buffer->by != NULL ? buffer->counted : -1,
        .counts = find_counts(module, buffer),
    };
    if (type->dtype == HD_DTYPE_I32) { // counts are, and indices
        told.grouped_rows =
            find_limit(module, &module->body, buffer, rows_of_counts);
        told.taken_extent =
            find_limit(module, &module->body, buffer, extent_of_indices);
        told.counted = find_counted(module, buffer);
    }
    told.local_bytes = (size_t)hd_type_local_bytes(type);
    for (int d = 0; d < type->ndims; d++) {
        told.extent[d] = hd_module_extent(module, type->dim[d]);
        told.elements *= (size_t)told.extent[d];
        told.local[d] = hd_dim_local(type->dim[d]);
        told.axis[d] = hd_dim_is_sharded(type->dim[d]) ? type->dim[d].mark : -1;
    }
    hd_sized_write(&told, sizeof told, out);
    return true;
}

bool hd_module_size(const hd_module *module, size_t i, hd_size_info *out)
{
    assert(module != NULL && out != NULL);
    if (i >= (size_t)module->nsizes)
        return false;
    hd_sized_write(&(hd_size_info){.name = module->size[i].name,
                                   .low = module->size[i].low,
                                   .high = module->size[i].high,
                                   .now = module->size[i].now},
                   sizeof(hd_size_info), out);
    return true;
}

hd_status hd_module_check_sizes(const hd_module *module, const int64_t *sizes,
                                size_t nsizes, hd_diag *diag)
{
    if (nsizes != (size_t)module->nsizes)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "a run of '%s' is given %d size%s, not %zu",
                       module->name, module->nsizes,
                       module->nsizes == 1 ? "" : "s", nsizes);
    if (nsizes > 0)
        HD_REQUIRE(diag, sizes);
    for (size_t i = 0; i < nsizes; i++) {
        const hd_size *size = &module->size[i];

        if (sizes[i] < size->low || sizes[i] > size->high)
            return hd_fail(diag, HD_ERROR_ARGUMENT,
                           "%s is %lld, and of '%s' it is in %lld..%lld",
                           size->name, (long long)sizes[i], module->name,
                           (long long)size->low, (long long)size->high);
    }
    return HD_OK;
}

hd_status hd_module_resize(hd_module *module, const int64_t *sizes,
                           size_t nsizes, hd_diag *diag)
{
    HD_REQUIRE(diag, module);
    HD_TRY(hd_module_check_sizes(module, sizes, nsizes, diag));
    for (size_t i = 0; i < nsizes; i++)
        module->size[i].now = sizes[i];
    return HD_OK;
}

// What a rank has of an array, there and in the whole, each with strides of
// its own, in bytes: the last ranks may have fewer indices than they have room
// for, or none, and so may all where a run says the length.
// What it has of the last sharded dimension, with all of those behind it, is
// dense in both: one contiguous range.
typedef struct shard {
    int ndims;
    size_t extent[HD_MAX_DIMS];
    size_t whole[HD_MAX_DIMS];
    size_t local[HD_MAX_DIMS];
    size_t range;
    size_t offset; // of the shard in the whole
} shard;

void hd_module_part(const hd_module *module, hd_dim dim, int rank,
                    int64_t *first, int64_t *count)
{
    hd_dim now = dim;
    int64_t coord;

    now.extent = hd_module_extent(module, dim);
    *first = 0;
    *count = now.extent;
    if (!hd_dim_is_sharded(dim))
        return;
    coord = hd_mesh_coord(module, rank, dim.mark);
    *count = hd_dim_block_length(now, coord);
    *first = *count > 0 ? coord * hd_dim_block(now) : 0;
}

bool hd_module_shard(const hd_module *module, size_t i, int rank,
                     int64_t *first, int64_t *count)
{
    const hd_buffer *buffer;

    assert(module != NULL && first != NULL && count != NULL);
    buffer = find_argument(module, i);
    if (buffer == NULL || rank < 0 || rank >= module->nranks)
        return false;
    for (int d = 0; d < buffer->type.ndims; d++)
        hd_module_part(module, buffer->type.dim[d], rank, &first[d], &count[d]);
    return true;
}

static shard find_shard(const hd_module *module, const hd_type *type, int rank)
{
    shard s = {.range = hd_dtype_size(type->dtype)};
    size_t whole, local;
    int d = type->ndims;

    // Trailing dimensions that no axis cuts are copied at one go.
    for (; d > 0 && !hd_dim_is_sharded(type->dim[d - 1]) &&
           !hd_dim_is_sized(type->dim[d - 1]);
         d--)
        s.range *= (size_t)type->dim[d - 1].extent;
    s.ndims = d;
    whole = local = s.range;
    while (d-- > 0) {
        hd_dim dim = type->dim[d];
        int64_t first, count;

        hd_module_part(module, dim, rank, &first, &count);
        s.extent[d] = (size_t)count;
        s.whole[d] = whole;
        s.local[d] = local;
        s.offset += whole * (size_t)first;
        whole *= (size_t)hd_module_extent(module, dim);
        local *= (size_t)hd_dim_local(dim);
    }
    // So is what the rank has of the dimension ahead of these.
    if (s.ndims > 0)
        s.range *= s.extent[--s.ndims];
    return s;
}

// Recursion is as deep as a buffer has dimensions: 8 at most.
static void copy_strided(const shard *s, int d, const size_t *from_stride,
                         const char *from, const size_t *to_stride, char *to)
{
    if (d == s->ndims) {
        memcpy(to, from, s->range);
        return;
    }
    for (size_t i = 0; i < s->extent[d]; i++)
        copy_strided(s, d + 1, from_stride, from + i * from_stride[d],
                     to_stride, to + i * to_stride[d]);
}

// The public functions take any numbers; events have no bytes to copy.
static bool can_shard(const hd_module *module, const hd_buffer *buffer,
                      int rank)
{
    return buffer != NULL && rank >= 0 && rank < module->nranks &&
           hd_dtype_size(buffer->type.dtype) > 0;
}

// Of no elements there need be no memory.
static bool is_nothing(const shard *s)
{
    bool nothing = s->range == 0;

    for (int d = 0; d < s->ndims; d++)
        nothing |= s->extent[d] == 0;
    return nothing;
}

void hd_buffer_copy(const hd_module *module, const hd_buffer *buffer, int rank,
                    const void *from, void *to)
{
    shard s = find_shard(module, &buffer->type, rank);

    copy_strided(&s, 0, s.local, from, s.local, to);
}

void hd_shard(const hd_module *module, size_t i, int rank, const void *whole,
              void *local)
{
    const hd_buffer *buffer;
    shard s;

    assert(module != NULL);
    buffer = find_argument(module, i);
    if (!can_shard(module, buffer, rank))
        return;
    s = find_shard(module, &buffer->type, rank);
    if (is_nothing(&s))
        return;
    assert(whole != NULL && local != NULL);
    copy_strided(&s, 0, s.whole, (const char *)whole + s.offset, s.local,
                 local);
}

void hd_unshard(const hd_module *module, size_t i, int rank, const void *local,
                void *whole)
{
    const hd_buffer *buffer;
    shard s;

    assert(module != NULL);
    buffer = find_argument(module, i);
    if (!can_shard(module, buffer, rank))
        return;
    s = find_shard(module, &buffer->type, rank);
    if (is_nothing(&s))
        return;
    assert(whole != NULL && local != NULL);
    copy_strided(&s, 0, s.local, local, s.whole, (char *)whole + s.offset);
}

// ------------------------------------------------------------------- calls

// The first call that `wanted` is true of; NULL if there is none.
static const hd_op *find_call(const hd_block *block,
                              bool (*wanted)(void *, const hd_op *),
                              void *context)
{
    const hd_op *found = NULL;

    for (const hd_stmt *s = block->first; s != NULL && found == NULL;
         s = s->next) {
        if (s->kind == HD_STMT_OP && hd_op_family(s->op) == HD_FAMILY_CALL &&
            wanted(context, s->op))
            return s->op;
        found = find_call(&s->body, wanted, context);
        if (found == NULL)
            found = find_call(&s->otherwise, wanted, context);
    }
    return found;
}

static bool has_name(void *context, const hd_op *op)
{
    return strcmp(context, hd_op_callee(op)) == 0;
}

typedef struct calls {
    const hd_module *module;
    size_t left; // names to pass over
    size_t n;    // that were seen
} calls;

// Whether it is the first of its name, and as many were passed over.
static bool is_next_name(void *context, const hd_op *op)
{
    calls *c = context;

    if (find_call(&c->module->body, has_name, (void *)hd_op_callee(op)) != op)
        return false;
    c->n++;
    return c->left-- == 0;
}

static const hd_op *nth_call(const hd_module *module, size_t i, size_t *n)
{
    calls c = {.module = module, .left = i};
    const hd_op *op = find_call(&module->body, is_next_name, &c);

    *n = c.n;
    return op;
}

size_t hd_module_calls(const hd_module *module)
{
    size_t n;

    assert(module != NULL);
    nth_call(module, SIZE_MAX, &n);
    return n;
}

bool hd_module_call(const hd_module *module, size_t i, hd_call_info *out)
{
    hd_call_info info = HD_EMPTY(hd_call_info);
    const hd_op *op;
    size_t n;

    assert(module != NULL && out != NULL);
    op = nth_call(module, i, &n);
    if (op == NULL)
        return false;
    info.name = hd_op_callee(op);
    info.line = (int)op->loc.line;
    info.cookie = hd_source_cookie(&module->source, op->loc.line);
    hd_sized_write(&info, sizeof info, out);
    return true;
}
