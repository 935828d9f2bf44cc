#include "ir/causal.h"

#include <assert.h>

#include "ir/signature.h"

// Beyond what rows and keys are apart. Not HD_SEES_ALL, which has no window.
enum { FARTHEST = HD_SEES_ALL - 1 };

int32_t hd_causal_of(int64_t offset)
{
    return offset > FARTHEST    ? FARTHEST
           : offset < -FARTHEST ? -FARTHEST
                                : (int32_t)offset;
}

bool hd_causal_is_among(hd_key_code code)
{
    return code == HD_KEY_ROW || code == HD_KEY_FIRST_KEY ||
           code == HD_KEY_ROOM;
}

bool hd_causal_is_place(hd_key_code code)
{
    return code == HD_KEY_CAUSAL || code == HD_KEY_STEP ||
           hd_causal_is_among(code);
}

const hd_key *hd_causal_key(const hd_op *op)
{
    const hd_key *causal = hd_op_key(op, HD_KEY_CAUSAL);

    return causal != NULL ? causal : hd_op_key(op, HD_KEY_ZIGZAG);
}

bool hd_causal_names(const hd_module *module, const hd_op *op, int axis)
{
    for (int i = 0; i < op->nkeys; i++)
        if ((hd_causal_is_place(op->key[i].code) ||
             op->key[i].code == HD_KEY_ZIGZAG) &&
            hd_expr_uses_coord(module, op->key[i].expr, axis))
            return true;
    return false;
}

hd_dim hd_causal_line(const hd_view *view)
{
    hd_type type = hd_view_type(view);

    return type.dim[type.ndims - 2];
}

static const hd_dim *find_inner(const hd_op *op, int which, hd_type *type)
{
    int keys = op->noutputs + 1;

    *type = hd_view_type(&op->view[keys]);
    return &type->dim[hd_op_batch(op, keys, type->ndims) + which];
}

int64_t hd_causal_blocks(const hd_op *op)
{
    hd_type type;

    return hd_op_has_blocks(op, op->noutputs + 1)
               ? find_inner(op, 0, &type)->extent
               : 1;
}

// How much less it is of each next block where nothing else is said: a number
// or, of as many keys as a run says, a size times one.
static hd_dim default_distance(const hd_op *op)
{
    hd_type type;

    if (hd_op_key(op, HD_KEY_ZIGZAG) != NULL)
        return hd_dim_whole(1);
    return hd_op_has_blocks(op, op->noutputs + 1) ? *find_inner(op, 2, &type)
                                                  : hd_dim_whole(0);
}

hd_expr hd_causal_of_block(hd_module *module, const hd_op *op, hd_expr block)
{
    const hd_key *key = hd_causal_key(op);
    const hd_key *step = hd_op_key(op, HD_KEY_STEP);
    hd_expr by;

    if (key == NULL)
        return HD_EXPR_NONE;
    // Of a step back the distance, so that what is printed reads well.
    by = step != NULL ? step->expr
                      : hd_module_count(module, default_distance(op));
    return hd_expr_binary(module, step != NULL ? HD_EXPR_ADD : HD_EXPR_SUB,
                          key->expr,
                          hd_expr_binary(module, HD_EXPR_MUL, block, by));
}

// Of each dimension over an axis that is named the rank's own index.
static void place_view(const hd_module *module, const hd_op *op, int view,
                       const hd_env *env, int64_t index[HD_MAX_DIMS])
{
    hd_type type = hd_view_type(&op->view[view]);

    for (int d = 0; d < type.ndims; d++) {
        hd_dim dim = type.dim[d];

        index[d] =
            hd_dim_is_sharded(dim) && hd_causal_names(module, op, dim.mark)
                ? env->coord[dim.mark]
                : -1;
    }
}

// Of three parts the first half of the rows and of the keys, the second half of
// the rows and the first of the keys, both second halves. A window of all of
// the sequence is none, but where there are several sequences.
int hd_causal_parts(const hd_op *op)
{
    const hd_key *window = hd_op_key(op, HD_KEY_WINDOW);
    int64_t rows = hd_causal_line(&op->view[op->noutputs]).extent;

    return hd_op_key(op, HD_KEY_ZIGZAG) != NULL &&
                   (hd_op_has_sequences(op) ||
                    (window != NULL &&
                     window->number < (double)(rows * hd_causal_blocks(op))))
               ? 3
               : 1;
}

int hd_causal_half(int part, bool of_keys)
{
    return part >= (of_keys ? 2 : 1);
}

// How many keys chunk `a` is behind chunk `b`.
static hd_expr chunks_apart(hd_module *module, hd_expr a, hd_expr b,
                            int64_t chunk)
{
    return hd_expr_binary(module, HD_EXPR_MUL,
                          hd_expr_binary(module, HD_EXPR_SUB, a, b),
                          hd_expr_const(module, chunk));
}

hd_expr hd_causal_of_part(hd_module *module, const hd_op *op, hd_expr block,
                          int part)
{
    int64_t chunk = hd_causal_line(&op->view[op->noutputs]).extent / 2;
    hd_expr own;

    if (hd_causal_parts(op) == 1)
        return hd_causal_of_block(module, op, block);
    own = hd_causal_key(op)->expr;
    if (part == 0)
        return chunks_apart(module, own, block, chunk);
    if (part == 2) // both from the end
        return chunks_apart(module, block, own, chunk);
    own = hd_expr_binary(module, HD_EXPR_SUB,
                         hd_expr_const(module, 2 * hd_causal_blocks(op) - 1),
                         own);
    return chunks_apart(module, own, block, chunk);
}

// ------------------------------------------------------- among sequences

hd_expr hd_causal_room(hd_module *module, const hd_op *op)
{
    const hd_key *room = hd_op_key(op, HD_KEY_ROOM);
    hd_dim keys = hd_causal_line(&op->view[op->noutputs + 1]);

    return room != NULL
               ? room->expr
               : hd_expr_binary(module, HD_EXPR_MUL,
                                hd_module_count(module, keys),
                                hd_expr_const(module, hd_causal_blocks(op)));
}

// Where the chunk begins that is half `which` of a block in zigzag.
static hd_expr chunk_at(hd_module *module, const hd_op *op, hd_expr block,
                        int which)
{
    int64_t last = 2 * hd_causal_blocks(op) - 1;
    int64_t chunk = hd_causal_line(&op->view[op->noutputs]).extent / 2;

    if (which != 0)
        block = hd_expr_binary(module, HD_EXPR_SUB, hd_expr_const(module, last),
                               block);
    return hd_expr_binary(module, HD_EXPR_MUL, block,
                          hd_expr_const(module, chunk));
}

static hd_expr key_or_zero(hd_module *module, const hd_op *op, hd_key_code code)
{
    const hd_key *key = hd_op_key(op, code);

    return key != NULL ? key->expr : hd_expr_const(module, 0);
}

hd_expr hd_causal_row(hd_module *module, const hd_op *op, int part)
{
    const hd_key *zigzag = hd_op_key(op, HD_KEY_ZIGZAG);

    return zigzag != NULL
               ? chunk_at(module, op, zigzag->expr, hd_causal_half(part, false))
               : key_or_zero(module, op, HD_KEY_ROW);
}

hd_expr hd_causal_first_key(hd_module *module, const hd_op *op, hd_expr block,
                            int part)
{
    hd_dim keys = hd_causal_line(&op->view[op->noutputs + 1]);

    if (hd_op_key(op, HD_KEY_ZIGZAG) != NULL)
        return chunk_at(module, op, block, hd_causal_half(part, true));
    return hd_expr_binary(module, HD_EXPR_ADD,
                          key_or_zero(module, op, HD_KEY_FIRST_KEY),
                          hd_expr_binary(module, HD_EXPR_MUL, block,
                                         hd_module_count(module, keys)));
}

int64_t hd_causal_room_now(const hd_module *module, const hd_op *op)
{
    const hd_key *key = hd_op_key(op, HD_KEY_ROOM);
    hd_dim keys = hd_causal_line(&op->view[op->noutputs + 1]);
    const hd_env none = {0};
    int64_t room;

    if (key == NULL)
        return hd_module_extent(module, keys) * hd_causal_blocks(op);
    return hd_expr_eval(module, key->expr, &none, &room) ? room : 0;
}

// 0 of an op without the key.
static bool eval_key(const hd_module *module, const hd_op *op, hd_key_code code,
                     const hd_env *env, int32_t *out)
{
    const hd_key *key = hd_op_key(op, code);
    int64_t value = 0;
    bool has = key == NULL || hd_expr_eval(module, key->expr, env, &value);

    *out = (int32_t)(value <= HD_MAX_AMONG ? value : HD_MAX_AMONG);
    return has && value >= 0 && value <= HD_MAX_AMONG;
}

bool hd_causal_among(const hd_module *module, const hd_op *op,
                     const hd_env *env, hd_among *out)
{
    int64_t room;

    *out = (hd_among){0};
    if (!hd_op_has_sequences(op))
        return true;
    room = hd_causal_room_now(module, op);
    out->room = (int32_t)(room <= HD_MAX_AMONG ? room : HD_MAX_AMONG);
    return room <= HD_MAX_AMONG &&
           eval_key(module, op, HD_KEY_ROW, env, &out->row) &&
           eval_key(module, op, HD_KEY_FIRST_KEY, env, &out->key);
}

bool hd_causal_is_said_among(const hd_op *op)
{
    for (int i = 0; i < op->nkeys; i++)
        if (hd_causal_is_among(op->key[i].code))
            return true;
    return false;
}

bool hd_causal_fits_among(const hd_module *module, const hd_key *key,
                          const hd_env *env)
{
    int64_t low, high;

    return hd_expr_bounds(module, key->expr, env, &low, &high) && low >= 0 &&
           high <= HD_MAX_AMONG;
}

// --------------------------------------------------------------- completing

enum { WIDEST = 1 << 30 }; // of both sides together is less than 2^31

// The axis by which ranks have rows that are one of the blocks of keys each:
// as many, and as long. -1 if there is none.
static hd_status find_own_block(const hd_op *op, const hd_key *why,
                                hd_diag *diag, int *out)
{
    bool window = why->code == HD_KEY_WINDOW;
    hd_type q = hd_view_type(&op->view[op->noutputs]), k;
    const hd_dim *keys = find_inner(op, 0, &k);

    *out = -1;
    if (!hd_dim_as_long(q.dim[q.ndims - 2], keys[2]))
        return HD_OK;
    for (int d = 0; d < q.ndims - 3; d++) {
        hd_dim dim = q.dim[d];

        if (hd_dim_is_cut(dim) || dim.extent != keys->extent)
            continue;
        if ((op->view[op->noutputs].buffer->open & HD_OPEN_PLACE) != 0 ||
            (hd_dim_is_sharded(dim) && *out >= 0))
            return hd_error(diag, HD_E0312, why->loc,
                            "%s of rows that may be any of %lld blocks, which "
                            "nothing says: '%s' does",
                            window ? "a window to both sides" : "sequences",
                            (long long)keys->extent, window ? "causal" : "row");
        if (hd_dim_is_sharded(dim))
            *out = dim.mark;
    }
    return HD_OK;
}

static void add_causal(hd_module *module, hd_op *op, hd_expr place)
{
    hd_key *key = hd_new_array(module->arena, hd_key, (size_t)op->nkeys + 1);
    int n = 0;

    for (int i = 0; i < op->nkeys; i++) {
        if (op->key[i].code == HD_KEY_WINDOW) {
            hd_expr last =
                hd_expr_const(module, (int64_t)op->key[i].number - 1);

            key[n++] = (hd_key){
                HD_KEY_CAUSAL, op->key[i].loc,
                hd_expr_binary(module, HD_EXPR_ADD, place, last), .view = -1};
        }
        key[n++] = op->key[i];
        if (op->key[i].code == HD_KEY_WINDOW)
            key[n - 1].number = 2 * op->key[i].number - 1;
    }
    op->key = key;
    op->nkeys = n;
}

// Where rows of sequences lie.
static void add_row(hd_module *module, hd_op *op, const hd_key *groups,
                    hd_expr place)
{
    hd_key *key = hd_new_array(module->arena, hd_key, (size_t)op->nkeys + 1);
    int n = 0;

    for (int i = 0; i < op->nkeys; i++) {
        key[n++] = op->key[i];
        if (&op->key[i] == groups)
            key[n++] = (hd_key){HD_KEY_ROW, op->key[i].loc, place, .view = -1};
    }
    op->key = key;
    op->nkeys = n;
}

// The key for which it is to be said where rows lie, which nothing says.
static const hd_key *find_unsaid(const hd_op *op)
{
    const hd_key *window = hd_op_key(op, HD_KEY_WINDOW);

    if (window != NULL && hd_causal_key(op) == NULL &&
        hd_op_key(op, HD_KEY_STEP) == NULL && window->number >= 1)
        return window;
    return hd_op_key(op, HD_KEY_BLOCKS) != NULL &&
                   hd_op_key(op, HD_KEY_ROW) == NULL &&
                   hd_op_key(op, HD_KEY_ZIGZAG) == NULL
               ? hd_op_key(op, HD_KEY_GROUPS)
               : NULL;
}

hd_status hd_causal_complete(hd_module *module, hd_op *op, hd_diag *diag)
{
    int q = op->noutputs, own = -1;
    hd_expr place = hd_expr_const(module, 0);
    const hd_key *key;

    if (!hd_op_meets_keys(op) || (key = find_unsaid(op)) == NULL)
        return HD_OK;
    if (key->code == HD_KEY_WINDOW && key->number > WIDEST)
        return hd_error(diag, HD_E0312, key->loc,
                        "a window of %.0f keys to both sides; it has 2^30 at "
                        "most",
                        key->number);
    if (op->ninputs > 1 && hd_op_has_blocks(op, q + 1) &&
        hd_view_type(&op->view[q]).ndims > 2 &&
        hd_view_type(&op->view[q + 1]).ndims > 3)
        HD_TRY(find_own_block(op, key, diag, &own));
    if (own >= 0)
        place = hd_expr_binary(
            module, HD_EXPR_MUL, hd_expr_coord(module, own),
            hd_module_count(module, hd_causal_line(&op->view[q])));
    if (key->code == HD_KEY_WINDOW)
        add_causal(module, op, place);
    key = find_unsaid(op);
    if (key != NULL && own >= 0)
        add_row(module, op, key, place);
    return HD_OK;
}

// --------------------------------------------------------------- evaluating

bool hd_causal_eval(const hd_module *module, const hd_op *op, const hd_env *env,
                    int32_t out[HD_MAX_KEY_BLOCKS])
{
    const hd_key *key = hd_causal_key(op);
    const hd_key *step = hd_op_key(op, HD_KEY_STEP);
    int64_t offset = 0, by = 0, far;

    if (key != NULL && !hd_expr_eval(module, key->expr, env, &offset))
        return false;
    if (step != NULL && !hd_expr_eval(module, step->expr, env, &by))
        return false;
    if (key != NULL && step == NULL)
        by = -hd_module_extent(module, default_distance(op));
    for (int64_t b = 0; b < hd_causal_blocks(op); b++) {
        if (__builtin_mul_overflow(b, by, &far) ||
            __builtin_add_overflow(offset, far, &far))
            return false;
        out[b] = key != NULL ? hd_causal_of(far) : HD_SEES_ALL;
    }
    return true;
}

bool hd_causal_is_bounded(const hd_module *module, const hd_op *op,
                          const hd_env *env)
{
    const hd_key *key = hd_causal_key(op);
    const hd_key *step = hd_op_key(op, HD_KEY_STEP);
    int64_t last = hd_causal_blocks(op) - 1;
    int64_t by[2] = {0}, offset[2] = {0}, far;

    if (key != NULL &&
        !hd_expr_bounds(module, key->expr, env, &offset[0], &offset[1]))
        return false;
    if (step != NULL &&
        !hd_expr_bounds(module, step->expr, env, &by[0], &by[1]))
        return false;
    if (key != NULL && step == NULL)
        by[0] = by[1] = -default_distance(op).extent;
    for (int i = 0; i < 4; i++)
        if (__builtin_mul_overflow(last, by[i % 2], &far) ||
            __builtin_add_overflow(offset[i / 2], far, &far))
            return false;
    return true;
}

bool hd_causal_is_sized(const hd_module *module, const hd_op *op)
{
    const hd_key *key = hd_causal_key(op);

    return key != NULL && hd_expr_uses_size(module, key->expr);
}

bool hd_causal_place(const hd_module *module, const hd_op *op, int64_t rank,
                     hd_placed *out)
{
    hd_env env = {0};

    for (int axis = 0; axis < module->naxes; axis++) {
        env.coord[axis] = hd_mesh_coord(module, rank, axis);
        if (env.coord[axis] > 0 && !hd_causal_names(module, op, axis))
            return false;
    }
    if (!hd_causal_eval(module, op, &env, out->causal) ||
        !hd_causal_among(module, op, &env, &out->among))
        return false;
    for (int i = 0; i < op->nviews; i++)
        place_view(module, op, i, &env, out->index[i]);
    return true;
}

// ------------------------------------------------------------------- sight

hd_sight hd_sight_of_op(const hd_op *op, int64_t rows, int64_t keys)
{
    const hd_key *window = hd_op_key(op, HD_KEY_WINDOW);

    return (hd_sight){
        // Of a step that a rank has halves are views of their own.
        .blocks = hd_op_key(op, HD_KEY_ZIGZAG) != NULL &&
                          hd_op_has_blocks(op, op->noutputs + 1)
                      ? hd_causal_blocks(op)
                      : 0,
        .window = window != NULL ? (int64_t)window->number : 0,
        .rows = rows,
        .keys = keys};
}

hd_sight hd_sight_of(const hd_step *step)
{
    int at = step->op->noutputs;
    const hd_span *q = &step->span[at], *k = &step->span[at + 1];
    hd_sight sight = hd_sight_of_op(step->op, q->extent[q->ndims - 2],
                                    k->extent[k->ndims - 2]);

    sight.causal = &step->causal;
    if (hd_op_has_blocks(step->op, at + 1))
        sight.causal = step->attended != NULL ? step->attended->causal : NULL;
    sight.among = hd_step_among(step);
    return sight;
}

// The place in the sequence of an index of a block: of chunk `block` from the
// start, or from the end.
static int64_t place_of(int64_t index, int64_t block, int64_t blocks,
                        int64_t chunk)
{
    return index < chunk ? block * chunk + index
                         : (2 * blocks - 2 - block) * chunk + index;
}

// How many keys of a block stand before place `end`.
static int64_t keys_before(int64_t end, int64_t block, int64_t blocks,
                           int64_t chunk)
{
    int64_t first = end - block * chunk;
    int64_t second = end - (2 * blocks - 1 - block) * chunk;

    first = first < 0 ? 0 : first > chunk ? chunk : first;
    second = second < 0 ? 0 : second > chunk ? chunk : second;
    return first + second;
}

void hd_sight_zigzag(const hd_sight *sight, int64_t row, int64_t block,
                     int64_t *from, int64_t *past)
{
    int64_t chunk = sight->keys / 2, n = sight->blocks;
    int64_t end = 1 + place_of(row, sight->causal[0], n, chunk);

    *past = keys_before(end, block, n, chunk);
    *from = sight->window > 0
                ? keys_before(end - sight->window, block, n, chunk)
                : 0;
}

int64_t hd_sight_row(const hd_sight *sight, int64_t row)
{
    return sight->blocks > 0
               ? place_of(row, sight->causal[0], sight->blocks, sight->keys / 2)
               : sight->among.row + row;
}

int64_t hd_sight_key(const hd_sight *sight, int64_t block, int64_t key)
{
    return sight->blocks > 0
               ? place_of(key, block, sight->blocks, sight->keys / 2)
               : sight->among.key + block * sight->keys + key;
}

// How many keys of a block stand before a number.
static int64_t keys_ahead(const hd_sight *sight, int64_t block, int64_t number)
{
    int64_t n = number - hd_sight_key(sight, block, 0);

    if (sight->blocks > 0)
        return keys_before(number, block, sight->blocks, sight->keys / 2);
    return n < 0 ? 0 : n > sight->keys ? sight->keys : n;
}

void hd_sight_within(const hd_sight *sight, int64_t first, int64_t end,
                     int64_t block, int64_t *from, int64_t *past)
{
    first = keys_ahead(sight, block, first);
    end = keys_ahead(sight, block, end);
    *from = *from < first ? first : *from;
    *past = *past > end ? end : *past;
}

void hd_sight_tile(const hd_sight *sight, int64_t row, int64_t n, int64_t *from,
                   int64_t *past)
{
    int64_t unused;

    assert(sight->blocks == 0);
    hd_sight_keys(sight, row, 0, from, &unused);
    hd_sight_keys(sight, row + n - 1, 0, &unused, past);
}

bool hd_sight_is_whole(const hd_sight *sight)
{
    int64_t from, past, unused;

    hd_sight_keys(sight, 0, 0, &unused, &past);
    hd_sight_keys(sight, sight->rows - 1, 0, &from, &unused);
    return from == 0 && past == sight->keys;
}

// The last row sees up to rows - 1 and that, the first one so many before it.
void hd_sight_range(const hd_sight *sight, int64_t *least, int64_t *past)
{
    *least = 1 - sight->rows;
    if (*least <= -FARTHEST) // what is further is as far
        *least = -INT64_MAX;
    *past = sight->window > 0 ? sight->keys + sight->window - 1 : INT64_MAX;
    if (*past > FARTHEST)
        *past = INT64_MAX;
}
