// Of a count three states matter: none, all and some. Each has a chance of a
// third in 368 of the draws, in each element of counts by itself: what shows in
// states of three of them at once is missed by all of them with a chance of
// (26/27)^368, less than 2^-20. Where one index is all that there is, there are
// two states. A size has three, too: some block is empty, one is partial, none.
//
// Single numbers are gone through: each combination of counts or of sizes where
// these are few, and else each value of each.
#include "check/draw.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/array.h"
#include "check/field.h"
#include "ir/causal.h"

enum {
    SURE = 5,            // draws of counts that are not random
    ANY = 368,           // with which each state has a chance of a third
    FEW_OR_MANY = 6,     // one of most elements
    MOST_TURNS = 128,    // of counts
    MOST_TOGETHER = 512, // combinations of sizes
    LEAST_SIZES = 64,    // that are looked at in any case
    MOST_APART = 4096,   // indices of a size that may all be told apart
    MOST_BLOCKS = 64,    // of a size of which each way to fill them occurs
    MOST_TIMES = 4,      // and so many multiples of it
    MOST_BOUNDS = 48,    // where masks begin or end to leave something
    MOST_ROWS = 8,       // of fixed rows, the first ones and the last
    KEY_DRAW = 700,
    KEY_SIZE,
    KEY_COUNT,
    KEY_COUNTED,
    KEY_ROOM,
    KEY_END,
};

// A whole number in place of a number of the field is less than this.
static const uint64_t whole = (uint64_t)1 << 40;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// ------------------------------------------------------------------ counts

static hd_status add_room(hd_draws *draws, int64_t room, hd_diag *diag)
{
    for (int64_t i = 0; i < draws->nrooms; i++)
        if (draws->room[i] == room)
            return HD_OK;
    HD_TRY(hd_grow((void **)&draws->room, &draws->rooms_room, draws->nrooms + 1,
                   sizeof *draws->room, diag));
    draws->room[draws->nrooms++] = room;
    return HD_OK;
}

static bool is_input(const hd_buffer *b)
{
    return b->role == HD_ROLE_IN || b->role == HD_ROLE_INOUT;
}

// Inputs hold what they count; of what is computed any number may count.
static hd_status find_rooms(hd_draws *draws, const hd_module *module,
                            hd_diag *diag)
{
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        int64_t room;

        if (b->by == NULL)
            continue;
        room = hd_dim_local(b->type.dim[b->counted]);
        draws->counts = true;
        draws->widest = most_of(draws->widest, room);
        if (!is_input(b->by))
            HD_TRY(add_room(draws, room, diag));
    }
    return HD_OK;
}

int64_t hd_draw_room(const hd_module *host, const hd_module *tensor,
                     const hd_buffer *input)
{
    const hd_module *module[] = {tensor, host};
    int64_t room = INT64_MAX;

    if (!is_input(input))
        return 0;
    for (int i = 0; i < 2; i++)
        for (const hd_buffer *b = module[i]->buffers; b != NULL; b = b->next)
            if (b->by != NULL && b->by->role != HD_ROLE_TEMP &&
                strcmp(b->by->name, input->name) == 0)
                room = least(
                    room, hd_module_extent(module[i], b->type.dim[b->counted]));
    return room < INT64_MAX ? room : 0;
}

static int64_t elements_of(const hd_buffer *b, int64_t most)
{
    int64_t n = 1;

    for (int d = 0; d < b->type.ndims; d++)
        n = least(n * least(b->type.dim[d].extent, most), most);
    return n;
}

// How many places there are within the first `room` indices.
static int64_t places_within(const int64_t *place, int64_t n, int64_t room)
{
    int64_t low = 0;

    while (low < n) {
        int64_t middle = low + (n - low) / 2;

        if (place[middle] < room)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

// How many numbers of indices there are to go through.
static int64_t turns_of(const int64_t *place, int64_t n, int64_t room)
{
    return room < MOST_TURNS ? room + 1 : 2 + places_within(place, n, room);
}

// How many combinations there are of what inputs count, if that is no more than
// MOST_TURNS, and the most turns that one of them takes.
static void count_turns(const hd_draws *draws, const hd_module *host,
                        const hd_module *tensor, int64_t *combinations,
                        int64_t *turns)
{
    *combinations = *turns = 1;
    for (const hd_buffer *b = tensor->buffers; b != NULL; b = b->next) {
        int64_t room = hd_draw_room(host, tensor, b);
        int64_t own = turns_of(draws->place, draws->nplaces, room);

        if (room == 0)
            continue;
        *turns = most_of(*turns, least(own, MOST_TURNS));
        for (int64_t n = elements_of(b, MOST_TURNS);
             n > 0 && *combinations <= MOST_TURNS; n--)
            *combinations *= room < MOST_TURNS ? own : MOST_TURNS + 1;
    }
}

uint64_t hd_draw_number(const hd_draw *draw, uint64_t x)
{
    return hd_field_mix(draw->seed, x);
}

// Any number between, or one at or behind any of the places.
static int64_t some_of(const hd_draw *draw, uint64_t number, int64_t room)
{
    uint64_t n = (uint64_t)places_within(draw->place, draw->nplaces, room);
    uint64_t rest = number / 4, k = rest % (n + 1);
    int64_t low = k > 0 ? draw->place[k - 1] : 1;
    int64_t past = k < n ? draw->place[k] : room;

    if (n == 0 || number % 2 == 0 || past == low)
        return 1 + (int64_t)(rest % (uint64_t)(room - 1));
    return number % 4 == 1
               ? low
               : low + (int64_t)(rest / (n + 1) % (uint64_t)(past - low));
}

// None, all or some, as the number says.
static int64_t any_of(const hd_draw *draw, uint64_t number, int64_t room)
{
    if (room == 1)
        return (int64_t)(number & 1);
    return number % 3 == 0   ? 0
           : number % 3 == 1 ? room
                             : some_of(draw, number / 3, room);
}

static int64_t count_of(const hd_draw *draw, uint64_t number, int64_t room,
                        int64_t all)
{
    bool most = number % 4 != 0;
    int64_t any;

    any = any_of(draw, number / 4, room);
    if (any == room)
        any = all;
    switch (draw->counted) {
    case HD_COUNTED_ALL:
        return all;
    case HD_COUNTED_NONE:
        return 0;
    case HD_COUNTED_HALF:
        return (room + 1) / 2;
    case HD_COUNTED_ONE:
        return 1;
    case HD_COUNTED_ALL_BUT_ONE:
        return room - 1;
    case HD_COUNTED_FEW:
        return most ? 0 : any;
    case HD_COUNTED_MANY:
        return most ? all : any;
    case HD_COUNTED_EACH:
    case HD_COUNTED_TOGETHER:
    case HD_COUNTED_ANY:
        break;
    }
    return any;
}

int64_t hd_draw_count(const hd_draw *draw, uint64_t x, int64_t room)
{
    return room > 0 ? count_of(draw, hd_draw_number(draw, x), room, room) : 0;
}

// Of a wide one none, all, and as many as there are ahead of each place.
int64_t hd_draw_next(const hd_draw *draw, uint64_t x, int64_t room,
                     uint64_t *turn)
{
    uint64_t n = (uint64_t)turns_of(draw->place, draw->nplaces, room);
    uint64_t own = *turn;

    if (draw->counted == HD_COUNTED_TOGETHER)
        *turn /= n;
    else if (draw->counted == HD_COUNTED_EACH)
        own += hd_field_mix(draw->whose, x);
    else
        return hd_draw_count(draw, x, room);
    own %= n;
    return room < MOST_TURNS || own == 0 ? (int64_t)own
           : own == 1                    ? room
                                         : draw->place[own - 2];
}

int64_t hd_draw_counted(const hd_draw *draw, uint64_t value)
{
    uint64_t number;

    if (value < whole)
        return (int64_t)value;
    if (value > HD_FIELD_PRIME - whole || draw->nrooms == 0)
        return 0;
    number = hd_draw_number(draw, hd_field_mix(KEY_COUNTED, value));
    return count_of(
        draw, number,
        draw->room[hd_field_mix(KEY_ROOM, number) % (uint64_t)draw->nrooms],
        INT64_MAX);
}

// ------------------------------------------------------------------ places

// Where views begin and end, what is counted up to there may be told from what
// is beyond: a mark for each of so many indices.
typedef struct marks {
    char *at; // borrowed
    int64_t n;
} marks;

static void mark(const marks *m, int64_t low, int64_t extent)
{
    if (low > 0 && low < m->n)
        m->at[low] = 1;
    if (low + extent > 0 && low + extent < m->n)
        m->at[low + extent] = 1;
}

// In the dimensions of its name, and of the buffer that this is a name of.
static void mark_part(const marks *m, const hd_graph *g, const hd_part *part)
{
    const hd_part_frame *frame = &g->frame[part->buffer];
    const hd_part_frame *root = &g->frame[frame->root];

    for (int d = 0; d < frame->ndims; d++) {
        int64_t low = hd_part_index(frame, part, d);
        int64_t extent = hd_part_extent(frame, part, d);

        if (extent == frame->extent[d])
            continue;
        mark(m, low, extent);
        for (int k = 0; frame != root && k < root->ndims; k++)
            mark(m, low * frame->stride[d] / root->stride[k] % root->extent[k],
                 extent * frame->stride[d] / root->stride[k]);
    }
}

static void mark_view(const marks *m, const hd_module *tensor,
                      const hd_view *view)
{
    for (int d = 0; d < view->nindex; d++) {
        const hd_range *range = hd_view_range(view, d);

        if (range != NULL || hd_view_picks(view, d))
            mark(m, hd_view_first(tensor, view, d),
                 range != NULL ? range->extent : 1);
    }
}

static void mark_all(const marks *m, const hd_graph *g, const hd_module *tensor)
{
    for (int64_t i = 0; i < g->nparts; i++)
        mark_part(m, g, &g->part[i]);
    for (const hd_stmt *s = tensor->body.first; s != NULL; s = s->next)
        for (int i = 0; i < s->op->nviews; i++)
            mark_view(m, tensor, &s->op->view[i]);
}

// Rows that see keys up to `causal` beyond their own number, and no more than
// `window`: with how many keys one has a key more, or no longer has them all.
static void mark_mask(const marks *m, const hd_op *op, int64_t causal)
{
    const hd_buffer *q = op->view[op->noutputs].buffer;
    hd_dim rows = q->type.dim[q->type.ndims - 2];
    int64_t n = hd_dim_is_sized(rows) ? 1 : rows.extent;
    const hd_key *key = hd_op_key(op, HD_KEY_WINDOW);
    int64_t window = key != NULL ? (int64_t)key->number : 0;

    if (causal == HD_SEES_ALL)
        return;
    mark(m, window, 1);
    mark(m, -causal, 1);
    for (int64_t i = 0; i < least(n, MOST_ROWS); i++) {
        int64_t row = i < MOST_ROWS - 1 ? i : n - 1, past = row + causal + 1;

        mark(m, past - 1, 1);
        mark(m, past, 1);
        mark(m, past - window - 1, 1);
        mark(m, past - window, 1);
    }
}

static bool has_mask(const hd_op *op)
{
    return hd_op_family(op) == HD_FAMILY_ATTEND &&
           hd_op_attend(op) != HD_ATTEND_MERGE;
}

static void mark_masks(const marks *m, const hd_graph *g,
                       const hd_module *tensor)
{
    hd_placed placed;

    for (int64_t i = 0; i < g->first[g->nranks]; i++)
        if (has_mask(g->node[i].op))
            mark_mask(m, g->node[i].op, hd_graph_causal(g, &g->node[i]));
    for (const hd_stmt *s = tensor->body.first; s != NULL; s = s->next)
        for (int64_t rank = 0; has_mask(s->op) && rank < tensor->nranks; rank++)
            if (hd_causal_place(tensor, s->op, rank, &placed))
                mark_mask(m, s->op, placed.causal[0]);
}

static hd_status find_places(hd_draws *draws, const hd_graph *g,
                             const hd_module *tensor, hd_diag *diag)
{
    marks m = {.n = draws->widest};
    hd_status status = HD_OK;

    HD_TRY(hd_clear_array(m.n, sizeof *m.at, diag, (void **)&m.at));
    mark_all(&m, g, tensor);
    mark_masks(&m, g, tensor);
    for (int64_t i = 0; i < m.n && status == HD_OK; i++)
        if (m.at[i] != 0) {
            status = hd_grow((void **)&draws->place, &draws->places_room,
                             draws->nplaces + 1, sizeof *draws->place, diag);
            if (status == HD_OK)
                draws->place[draws->nplaces++] = i;
        }
    free(m.at);
    return status;
}

// ------------------------------------------------------------------- sizes

static void add_size(hd_draws *draws, const hd_size *size, int i, int64_t value)
{
    int *n = &draws->nvalues[i];

    if (value < size->low || value > size->high || *n == HD_MOST_VALUES)
        return;
    for (int k = 0; k < *n; k++)
        if (draws->size[i][k] == value)
            return;
    draws->size[i][(*n)++] = value;
}

static int64_t blocks_of(const hd_size *size)
{
    return size->blocks > 0 ? size->blocks : 1;
}

// Of all magnitudes, half of them where all blocks are full. Beyond what may be
// told apart index by index all are, so that two stand for all of each.
static int64_t any_size(const hd_size *size, uint64_t number)
{
    uint64_t range = (uint64_t)(size->high - size->low), below = 2;
    int magnitudes = 0;
    int64_t value, rest;

    if (range == 0)
        return size->low;
    while (range >> magnitudes != 0)
        magnitudes++;
    below <<= number / 2 % (uint64_t)magnitudes;
    value = size->low +
            (int64_t)(hd_field_mix(KEY_SIZE, number) % below % (range + 1));
    rest = value % blocks_of(size);
    return value > MOST_APART || number % 2 == 0 ? value - rest : value;
}

// A size for each number of blocks that are full, with one that is partial
// behind them and without, of a dimension of `times` the size.
static void add_fillings(hd_draws *draws, const hd_size *size, int i,
                         int64_t times)
{
    bool seen[2 * MOST_BLOCKS + 2] = {false};

    if (size->blocks > MOST_BLOCKS)
        return;
    for (int64_t m = size->low; m <= least(size->high, MOST_APART); m++) {
        int64_t block = hd_block_size(times * m, blocks_of(size));
        int64_t full = block > 0 ? times * m / block : 0;
        int64_t way = 2 * full + (full * block < times * m);

        if (!seen[way])
            add_size(draws, size, i, m);
        seen[way] = true;
    }
}

static void add_all_fillings(hd_draws *draws, const hd_module *module, int i)
{
    int64_t seen[MOST_TIMES];
    int nseen = 0;

    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        for (int d = 0; d < b->type.ndims; d++) {
            hd_dim dim = b->type.dim[d];
            bool new = dim.size == i + 1 && nseen < MOST_TIMES;

            for (int k = 0; k < nseen; k++)
                new = new &&seen[k] != dim.times;
            if (!new)
                continue;
            seen[nseen++] = dim.times;
            add_fillings(draws, &module->size[i], i, dim.times);
        }
}

// Of keys in blocks, where a block has so many.
static void add_bounds(hd_draws *draws, const hd_size *size, int i,
                       const marks *m)
{
    int64_t blocks = blocks_of(size), n = 0, step;

    for (int64_t k = 0; k < m->n; k++)
        n += m->at[k];
    step = n / MOST_BOUNDS + 1;
    n = 0;
    for (int64_t k = 1; k < m->n; k++) {
        if (m->at[k] == 0 || n++ % step != 0)
            continue;
        add_size(draws, size, i, k);
        if (blocks > 1 && k <= MOST_APART / blocks) {
            add_size(draws, size, i, blocks * (k - 1) + 1);
            add_size(draws, size, i, blocks * k);
        }
    }
}

// Where masks begin or end that the size moves, the others being the greatest,
// or the least, and about there.
static void add_ends(hd_draws *draws, const hd_module *module, int i,
                     bool greatest)
{
    const hd_masks *masks = &draws->masks;
    int64_t n = masks->n * HD_MASK_ENDS, step = n / MOST_BOUNDS + 1, at;
    int64_t size[HD_MAX_SIZES];

    for (int k = 0; k < masks->nsizes; k++)
        size[k] = greatest ? module->size[k].high : module->size[k].low;
    for (int64_t k = 0; k < n; k++) {
        if (k % step != 0 || !hd_mask_solve(masks, &masks->mask[k % masks->n],
                                            (int)(k / masks->n), i, size, &at))
            continue;
        for (int64_t near = at - 2; near <= at + 1; near++)
            add_size(draws, &module->size[i], i, near);
    }
}

// The greatest first, then one for each way to fill blocks, those where masks
// begin or end, the least ones, those next to the greatest, and others.
static void find_sizes(hd_draws *draws, const hd_module *module, int i,
                       const marks *bounds)
{
    const hd_size *size = &module->size[i];
    int64_t blocks = blocks_of(size), range = size->high - size->low + 1;

    draws->least[i] = size->low;
    draws->blocks[i] = blocks;
    add_size(draws, size, i,
             size->high <= MOST_APART ? size->high
                                      : size->high - size->high % blocks);
    add_size(draws, size, i, size->low);
    for (int64_t k = 0; range <= HD_MOST_VALUES && k < range; k++)
        add_size(draws, size, i, size->low + k);
    add_all_fillings(draws, module, i);
    add_ends(draws, module, i, true);
    if (module->nsizes > 1)
        add_ends(draws, module, i, false);
    add_bounds(draws, size, i, bounds);
    for (int64_t k = 0; k < LEAST_SIZES; k++)
        add_size(draws, size, i, size->low + k);
    for (int64_t k = 0; k <= 2 && size->high <= MOST_APART; k++)
        add_size(draws, size, i, size->high - k);
    if (range > HD_MOST_VALUES)
        draws->known = (int)least(draws->known, draws->nvalues[i]);
    for (int k = 0; k < 16 * HD_MOST_VALUES; k++)
        add_size(
            draws, size, i,
            any_size(size, hd_field_mix(draws->seed, (uint64_t)(i + 16 * k))));
}

static uint64_t number_of_size(const hd_draw *draw, int i)
{
    return hd_draw_number(draw, hd_field_mix(KEY_SIZE, (uint64_t)i));
}

// How blocks are filled: some is empty, the last one is partial, all are full.
typedef enum filling { EMPTY, PARTIAL, FULL } filling;

static filling filling_of(int64_t blocks, int64_t size)
{
    int64_t block = hd_block_size(size, blocks);

    return (blocks - 1) * block >= size ? EMPTY
           : blocks * block > size      ? PARTIAL
                                        : FULL;
}

// Of three chances one for each filling, half of it for the greatest where that
// has it. What is not cut has its least, any, or the greatest or any.
static int64_t any_value(const hd_draws *draws, const hd_draw *draw, int i)
{
    uint64_t number = number_of_size(draw, i), which = number / 6;
    uint64_t n = (uint64_t)draws->nvalues[i];
    int64_t blocks = draws->blocks[i];
    filling wanted = (filling)(number % 3);

    if (number % 2 == 0 && filling_of(blocks, draws->size[i][0]) == wanted)
        return draws->size[i][0];
    if (wanted == EMPTY && blocks == 1)
        return draws->least[i];
    for (uint64_t k = 0; k < n && blocks > 1; k++) {
        int64_t value = draws->size[i][(which + k) % n];

        if (filling_of(blocks, value) == wanted)
            return value;
    }
    return draws->size[i][which % n];
}

// In every other draw one size takes a mask's end to where it begins to leave
// something, or about there, the other sizes being as drawn: of several sizes
// few combinations may be there.
static void meet_end(const hd_draws *draws, hd_draw *draw)
{
    const hd_masks *masks = &draws->masks;
    uint64_t number = hd_field_mix(KEY_END, draw->seed);
    int i = (int)(number / 2 % (uint64_t)most_of(draws->nsizes, 1));
    int64_t at;

    if (masks->n == 0 || number % 2 == 0)
        return;
    number /= 2 * (uint64_t)draws->nsizes;
    for (int k = 0; k < HD_MASK_ENDS; k++) {
        const hd_mask *mask =
            &masks->mask[(number / HD_MASK_ENDS / 4 + (uint64_t)k) %
                         (uint64_t)masks->n];
        int end = (int)((number + (uint64_t)k) % HD_MASK_ENDS);

        if (!hd_mask_solve(masks, mask, end, i, draw->size, &at))
            continue;
        at += (int64_t)(number / HD_MASK_ENDS % 4) - 2;
        draw->size[i] = most_of(least(at, masks->high[i]), masks->low[i]);
        return;
    }
}

static void draw_sizes(const hd_draws *draws, int number, hd_draw *draw)
{
    uint64_t turn = draw->turn;

    for (int i = 0; i < draws->nsizes; i++) {
        uint64_t n = (uint64_t)draws->nvalues[i];
        uint64_t own = turn;

        if (number < draws->nsure) {
            draw->size[i] =
                number % 2 == 0 ? draws->size[i][0] : draws->least[i];
            continue;
        }
        if (number >= draws->nsure + draws->nturns) {
            draw->size[i] = any_value(draws, draw, i);
            continue;
        }
        if (draws->together)
            turn /= n;
        else
            own += hd_field_mix(draw->whose, KEY_SIZE + (uint64_t)i);
        draw->size[i] = draws->size[i][own % n];
    }
    if (number >= draws->nsure + draws->nturns)
        meet_end(draws, draw);
}

// ------------------------------------------------------------------- whole

// Short enough to be typed.
static uint64_t new_seed(void)
{
    uint32_t seed;

    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != sizeof seed)
        seed = (uint32_t)time(NULL);
    return seed == 0 ? 1 : seed;
}

// How many draws there are of each kind.
static void plan(hd_draws *draws, const hd_module *host,
                 const hd_module *tensor)
{
    int64_t all = 1, most = 1, combinations, turns;
    bool counts = draws->counts;

    for (int i = 0; i < draws->nsizes; i++) {
        all = least(all * draws->nvalues[i], MOST_TOGETHER + 1);
        most = most_of(most, draws->nvalues[i]);
    }
    count_turns(draws, host, tensor, &combinations, &turns);
    if (counts)
        draws->together = draws->nsizes == 0 && combinations <= MOST_TURNS;
    else
        draws->together = draws->nsizes <= 1 || all <= MOST_TOGETHER;
    draws->nturns = (int)(!draws->together ? most_of(most, turns)
                          : counts         ? combinations
                                           : all);
    draws->n = draws->nturns;
    if (draws->together && !counts)
        return;
    draws->nsure = counts ? SURE : 2;
    draws->n += draws->nsure + ANY + (counts ? FEW_OR_MANY : 0);
}

static hd_status find_counts(hd_draws *draws, const hd_graph *graph,
                             const hd_module *tensor, hd_diag *diag)
{
    HD_TRY(find_rooms(draws, graph->module, diag));
    HD_TRY(find_rooms(draws, tensor, diag));
    return draws->counts ? find_places(draws, graph, tensor, diag) : HD_OK;
}

hd_status hd_draws_create(const hd_graph *graph, const hd_module *tensor,
                          uint64_t seed, hd_diag *diag, hd_draws *out)
{
    hd_draws draws = {.seed = seed != 0 ? seed : new_seed(),
                      .known = INT_MAX,
                      .nsizes = tensor->nsizes};
    char at[MOST_APART + 1] = {0};
    marks bounds = {at, MOST_APART + 1};
    hd_status status = find_counts(&draws, graph, tensor, diag);

    if (status == HD_OK)
        status = hd_masks_find(graph, tensor, diag, &draws.masks);
    if (status != HD_OK) {
        hd_draws_free(&draws);
        return status;
    }
    if (tensor->nsizes > 0)
        mark_masks(&bounds, graph, tensor);
    for (int i = 0; i < tensor->nsizes; i++)
        find_sizes(&draws, graph->module, i, &bounds);
    plan(&draws, graph->module, tensor);
    *out = draws;
    return HD_OK;
}

void hd_draws_free(hd_draws *draws)
{
    free(draws->room);
    free(draws->place);
    hd_masks_free(&draws->masks);
    *draws = (hd_draws){0};
}

static hd_counted counted_of(const hd_draws *draws, int number)
{
    static const hd_counted sure[SURE] = {
        HD_COUNTED_ALL, HD_COUNTED_ALL_BUT_ONE, HD_COUNTED_HALF, HD_COUNTED_ONE,
        HD_COUNTED_NONE};
    int rest = draws->n - number; // and so many follow, it among them

    return number < draws->nsure ? sure[number]
           : number < draws->nsure + draws->nturns
               ? draws->together ? HD_COUNTED_TOGETHER : HD_COUNTED_EACH
           : rest > FEW_OR_MANY ? HD_COUNTED_ANY
           : rest % 2 == 0      ? HD_COUNTED_FEW
                                : HD_COUNTED_MANY;
}

hd_draw hd_draws_get(const hd_draws *draws, int number)
{
    hd_draw draw = {.seed =
                        hd_field_mix(KEY_DRAW + draws->seed, (uint64_t)number),
                    .whose = hd_field_mix(KEY_COUNT, draws->seed),
                    .counts = draws->counts,
                    .counted = counted_of(draws, number),
                    .room = draws->room,
                    .nrooms = draws->nrooms,
                    .place = draws->place,
                    .nplaces = draws->nplaces};

    draw.turn = number < draws->nsure ? 0 : (uint64_t)(number - draws->nsure);
    draw.random = number >= draws->nsure + draws->nturns ||
                  (number >= draws->nsure && !draws->together) ||
                  number >= draws->known;
    draw_sizes(draws, number, &draw);
    return draw;
}
