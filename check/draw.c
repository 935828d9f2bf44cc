// Of a count three states matter: none, all and some. Each has a chance of a
// third in 36 of the draws, in each element of counts by itself: what shows in
// one state of one of them is missed by all of them with a chance of (2/3)^36,
// less than 2^-20. Where one index is all that there is, there are two states.
//
// Sizes are drawn among multiples, so that blocks of many indices are still
// some pieces (check/grain).
#include "check/draw.h"

#include <sys/random.h>
#include <time.h>

#include "check/field.h"

enum {
    SURE = 5,          // draws of counts that are not random
    MOST_APART = 4096, // indices of a size that may all be told apart
    KEY_DRAW = 700,
    KEY_SHUFFLE,
    KEY_SIZE,
    KEY_COUNTED,
    KEY_ROOM,
};

// A whole number in place of a number of the field is less than this.
static const uint64_t whole = (uint64_t)1 << 40;

// ------------------------------------------------------------------ counts

static void add_room(hd_draws *draws, int64_t room)
{
    for (int i = 0; i < draws->nrooms; i++)
        if (draws->room[i] == room)
            return;
    if (draws->nrooms < HD_MOST_ROOMS)
        draws->room[draws->nrooms++] = room;
}

static void find_rooms(hd_draws *draws, const hd_module *module)
{
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next)
        if (b->by != NULL)
            add_room(draws, hd_dim_local(b->type.dim[b->counted]));
}

static hd_counted counted_of(int number)
{
    static const hd_counted sure[SURE] = {
        HD_COUNTED_ALL, HD_COUNTED_ALL_BUT_ONE, HD_COUNTED_HALF, HD_COUNTED_ONE,
        HD_COUNTED_NONE};

    return number < SURE      ? sure[number]
           : number % 11 == 4 ? HD_COUNTED_FEW
           : number % 11 == 5 ? HD_COUNTED_MANY
                              : HD_COUNTED_ANY;
}

uint64_t hd_draw_number(const hd_draw *draw, uint64_t x)
{
    return hd_field_mix(draw->seed, x);
}

// None, all or some, as the number says.
static int64_t any_of(uint64_t number, int64_t room)
{
    if (room == 1)
        return (int64_t)(number & 1);
    return number % 3 == 0   ? 0
           : number % 3 == 1 ? room
                             : 1 + (int64_t)(number / 3 % (uint64_t)(room - 1));
}

static int64_t count_of(const hd_draw *draw, uint64_t number, int64_t room,
                        int64_t all)
{
    bool most = number % 4 != 0;
    int64_t any;

    any = any_of(number / 4, room);
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
    case HD_COUNTED_ANY:
        break;
    }
    return any;
}

int64_t hd_draw_count(const hd_draw *draw, uint64_t x, int64_t room)
{
    return room > 0 ? count_of(draw, hd_draw_number(draw, x), room, room) : 0;
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

// ------------------------------------------------------------------- sizes

static void add_size(hd_draws *draws, const hd_size *size, int i, int64_t value)
{
    int *n = &draws->nvalues[i];

    if (value < size->low || value > size->high || *n == HD_MOST_DRAWS)
        return;
    for (int k = 0; k < *n; k++)
        if (draws->size[i][k] == value)
            return;
    draws->size[i][(*n)++] = value;
}

// Some blocks' worth and a few pieces.
static int64_t any_size(const hd_size *size, uint64_t number)
{
    uint64_t range = (uint64_t)(size->high - size->low) + 1;
    int64_t blocks = size->blocks > 0 ? size->blocks : 1, pieces, most;

    if (size->high <= MOST_APART || size->blocks < 2)
        return size->low + (int64_t)(number % range);
    pieces = 1 + (int64_t)(number % (uint64_t)(2 * blocks + 1));
    most = size->high / pieces;
    return most < 1 ? size->low
                    : pieces * (1 + (int64_t)(hd_field_mix(KEY_SIZE, number) %
                                              (uint64_t)most));
}

// The greatest first, then the least; those at which a block more has indices,
// or has fewer than others; and others.
static void find_sizes(hd_draws *draws, const hd_size *size, int i)
{
    int64_t blocks = size->blocks > 0 ? size->blocks : 1;
    int64_t all =
        size->high <= MOST_APART ? size->high : size->high / blocks * blocks;

    add_size(draws, size, i, all);
    add_size(draws, size, i, size->low);
    for (int64_t k = -1; k <= 1; k++) {
        add_size(draws, size, i, size->low + 1 + k);
        add_size(draws, size, i, blocks + k);
        add_size(draws, size, i, 2 * blocks + k);
        if (size->high <= MOST_APART)
            add_size(draws, size, i, size->high - 1 + k);
    }
    for (int k = 0; k < 16 * HD_MOST_DRAWS; k++)
        add_size(
            draws, size, i,
            any_size(size, hd_field_mix(draws->seed, (uint64_t)(i + 16 * k))));
}

// Of several sizes the first goes through its values in order.
static int64_t size_of(const hd_draws *draws, int i, int number)
{
    uint64_t turn = i == 0 || number < 2
                        ? 0
                        : hd_field_mix(KEY_SHUFFLE, draws->seed + (uint64_t)i);
    uint64_t n = (uint64_t)draws->nvalues[i];

    return draws->size[i][(turn % n + (uint64_t)number) % n];
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

hd_draws hd_draws_of(const hd_module *host, const hd_module *tensor,
                     uint64_t seed)
{
    hd_draws draws = {
        .seed = seed != 0 ? seed : new_seed(), .n = 1, .nsizes = host->nsizes};

    find_rooms(&draws, host);
    find_rooms(&draws, tensor);
    for (int i = 0; i < host->nsizes; i++) {
        find_sizes(&draws, &host->size[i], i);
        if (draws.nvalues[i] > draws.n)
            draws.n = draws.nvalues[i];
    }
    if (draws.nrooms > 0 || host->nsizes > 1)
        draws.n = HD_MOST_DRAWS;
    return draws;
}

hd_draw hd_draws_get(const hd_draws *draws, int number)
{
    hd_draw draw = {.seed =
                        hd_field_mix(KEY_DRAW + draws->seed, (uint64_t)number),
                    .random = number >= (draws->nrooms > 0 ? SURE : 2),
                    .counted = counted_of(number),
                    .nrooms = draws->nrooms};

    for (int i = 0; i < draws->nrooms; i++)
        draw.room[i] = draws->room[i];
    for (int i = 0; i < draws->nsizes; i++)
        draw.size[i] = size_of(draws, i, number);
    return draw;
}
