// Products in tiles: which there are is said by codegen/kernels/tiles.cu, and
// multiply.cu, or wgmma.cu for the GPUs that have that, multiplies them.
#include "codegen/tiles.h"

#include <stdio.h>
#include <string.h>

#include "codegen/body.h"
#include "codegen/counts.h"
#include "ir/product.h"

enum {
    SLICE = 64, // of the depth, in shared memory
    STAGES = 3, // slices
    TENSOR_THREADS = 128,
    PLAIN_THREADS = 256,
    LEAST_SIDE = 8, // of a piece: below it most of a tile would be empty
    PANEL_SIDE = 64,
    LINE = 128, // bytes of the depth that a slice of sm_90a has
};

// Lengths in the order of the kernel's sizes; then those of the dimensions that
// number the pieces, and of the counts'.
enum { OF_M, OF_N, OF_K, OF_PIECES, OF_GROUPS, LENGTHS };
static const char *const names[LENGTHS] = {"M", "N", "K", "PIECES", "GROUPS"};

typedef struct kernel {
    const hd_step *step;
    hd_product product;
    hd_nest nest;       // of the counts alone
    hd_lane lane, rest; // of the product, and of what follows it
    int64_t length[LENGTHS], room[LENGTHS];
    int64_t tile_m, tile_n;
    int counted; // 1: of rows, 2: of columns, 3: of the depth
    int64_t times;
    bool tensor, sized;
    const hd_tiles_choice
        *choice;             // borrowed: of wgmma.cu; NULL: of multiply.cu
    const hd_tiles_row *row; // borrowed, with a choice
    bool mixed;              // its products have rows and columns of their own
    hd_text text;
    int64_t size[HD_KERNEL_SIZES];
    int sizes;
} kernel;

static bool has(const kernel *k, int part)
{
    return k->product.part[part].view >= 0;
}

static hd_dtype dtype_of(const kernel *k, int part)
{
    return k->product.part[part].span.buffer->type.dtype;
}

static int64_t size_of(const kernel *k, int part)
{
    return (int64_t)hd_dtype_size(dtype_of(k, part));
}

static int64_t cover(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// How far apart elements of an operand are along the result and the depth.
typedef struct sides {
    int64_t across, along;
} sides;

static sides sides_of(const kernel *k, int part)
{
    const hd_matrix *m = &k->product.part[part].matrix;
    bool turned = part == HD_PRODUCT_A ? !k->product.ta : k->product.tb;

    return turned ? (sides){m->row_stride, m->column_stride}
                  : (sides){m->column_stride, m->row_stride};
}

// The part that has a matrix a group.
static int matrices_of(const hd_product *p)
{
    return p->ta ? HD_PRODUCT_C : HD_PRODUCT_B;
}

static int products_of(const kernel *k)
{
    return k->row != NULL ? k->row->products : 1;
}

static int words_of(const kernel *k)
{
    return k->row != NULL ? k->row->words : 0;
}

// Addresses of all products' views.
static int views_of(const kernel *k)
{
    return k->step->op->nviews * products_of(k);
}

// ------------------------------------------------------------- analysis

static bool is_wide(const kernel *k, int part)
{
    return has(k, part) &&
           (k->product.integers || dtype_of(k, part) == HD_DTYPE_F64);
}

static int64_t rooms(const hd_length *length, int from, int to)
{
    int64_t n = 1;

    for (int d = from; d < to; d++)
        n *= length[d].room;
    return n;
}

static void set_lengths(kernel *k)
{
    const hd_product *p = &k->product;
    const int64_t now[LENGTHS] = {p->part[HD_PRODUCT_C].matrix.rows, p->n, p->k,
                                  p->pieces, p->groups};
    hd_length length[HD_SPACE_DIMS];
    hd_space space;
    int last = p->space.nparallel - 1;

    hd_length_space(k->step, &space, length);
    memcpy(k->length, now, sizeof now);
    k->room[OF_PIECES] = rooms(length, 0, p->outer);
    k->room[OF_M] = rooms(length, p->outer, last);
    k->room[OF_N] = length[last].room;
    k->room[OF_K] = length[last + 1].room;
    k->room[OF_GROUPS] =
        p->counts >= 0 ? hd_length_of(k->step, p->counts, 0).room : 0;
    for (int i = 0; i < k->step->op->nviews; i++)
        k->sized |= hd_view_is_sized(&k->step->op->view[i]);
}

// Which side the counts of a dimension end.
static void set_counts(kernel *k)
{
    const hd_space *space = &k->product.space;
    int last = space->nparallel - 1;

    k->times = 1;
    if (space->counted < 0 || k->product.counts >= 0)
        return;
    k->counted = space->counted < last ? 1 : space->counted == last ? 2 : 3;
    for (int d = space->counted + 1; d < last; d++)
        k->times *= space->extent[d];
}

// Sides of tiles are no longer than is there, and shorter where few tiles
// would leave processors without.
static void set_tiles(kernel *k)
{
    const hd_product *p = &k->product;
    int64_t rows = p->counts >= 0 && !p->ta
                       ? cover(k->room[OF_M], most(k->room[OF_GROUPS], 1))
                       : k->room[OF_M];
    int64_t times =
        most(1, p->counts >= 0 ? k->room[OF_GROUPS] : k->room[OF_PIECES]);

    k->tile_m = k->tile_n = k->tensor ? 128 : 64;
    while (k->tile_m > 32 && k->tile_m / 2 >= rows)
        k->tile_m /= 2;
    while (k->tile_n > 32 && k->tile_n / 2 >= k->room[OF_N])
        k->tile_n /= 2;
    while (k->tile_m > 64 &&
           cover(rows, k->tile_m) * cover(k->room[OF_N], k->tile_n) * times <
               HD_KERNEL_PROCESSORS)
        k->tile_m /= 2;
}

static bool is_scaled(const kernel *k)
{
    return k->product.scales[0].view >= 0 || k->product.scales[1].view >= 0;
}

// Tensor cores multiply numbers of 16 bits that lie side by side.
static bool is_tensor(const kernel *k)
{
    hd_dtype a = dtype_of(k, HD_PRODUCT_A), b = dtype_of(k, HD_PRODUCT_B);
    sides of_a = sides_of(k, HD_PRODUCT_A), of_b = sides_of(k, HD_PRODUCT_B);

    return a == b && !is_scaled(k) &&
           (a == HD_DTYPE_F16 || a == HD_DTYPE_BF16) &&
           (of_a.across == 1 || of_a.along == 1) &&
           (of_b.across == 1 || of_b.along == 1);
}

// Whether so many columns have one scale of a slice in common.
static bool has_panels(const kernel *k)
{
    const hd_scales *s = &k->product.scales[1];

    return s->deep_stride > 0 && s->line_stride > 0;
}

// Those of sm_90a multiply 8 bits, too, of groups' rows, where both operands
// are dense along the depth. What they add up of a slice is multiplied by its
// scales: one is of no less, nor of more.
static bool is_promoted(const kernel *k)
{
    const hd_product *p = &k->product;

    for (int i = 0; i < 2; i++)
        if (p->scales[i].deep_stride > 0 && p->scales[i].deep != LINE)
            return false;
    return hd_dtype_is_f8(dtype_of(k, HD_PRODUCT_A)) &&
           hd_dtype_is_f8(dtype_of(k, HD_PRODUCT_B)) && p->counts >= 0 &&
           !p->ta && sides_of(k, HD_PRODUCT_A).along == 1 &&
           sides_of(k, HD_PRODUCT_B).along == 1 &&
           (!has_panels(k) || p->scales[1].lines % PANEL_SIDE == 0);
}

static void swap(int64_t *a, int64_t *b)
{
    int64_t kept = *a;

    *a = *b;
    *b = kept;
}

// As the transpose of what it is: b' a'.
static void turn(kernel *k)
{
    hd_product *p = &k->product;
    hd_product_part a = p->part[HD_PRODUCT_A];
    bool ta = p->ta;

    p->part[HD_PRODUCT_A] = p->part[HD_PRODUCT_B];
    p->part[HD_PRODUCT_B] = a;
    p->ta = !p->tb;
    p->tb = !ta;
    for (int i = 0; i < HD_PRODUCT_PARTS; i++) {
        hd_matrix *m = &p->part[i].matrix;

        if (i != HD_PRODUCT_A && i != HD_PRODUCT_B) {
            swap(&m->rows, &m->columns);
            swap(&m->row_stride, &m->column_stride);
        }
    }
    swap(&k->length[OF_M], &k->length[OF_N]);
    swap(&k->room[OF_M], &k->room[OF_N]);
}

static kernel kernel_of(const hd_step *step, const hd_tiles_choice *choice)
{
    kernel k = {.step = step,
                .product = hd_product_of(step, HD_PRODUCT_PARTS),
                .choice = choice};

    k.lane = k.product.wide ? HD_LANE_DOUBLE : HD_LANE_FLOAT;
    k.rest = HD_LANE_FLOAT;
    for (int i = 0; i < HD_PRODUCT_PARTS; i++)
        if (is_wide(&k, i))
            k.rest = HD_LANE_DOUBLE;
    set_lengths(&k);
    set_counts(&k);
    k.tensor = is_tensor(&k);
    set_tiles(&k);
    if (choice != NULL && choice->turned)
        turn(&k);
    if (choice != NULL) {
        k.tile_m = choice->rows * choice->cluster_m;
        k.tile_n = choice->columns * choice->cluster_n;
    }
    return k;
}

// A count ends the rows of one piece, or is of what all pieces have alike.
bool hd_tiles_fit(const hd_step *step)
{
    kernel k = kernel_of(step, NULL);
    const hd_space *space = &k.product.space;

    return k.product.counts >= 0 ||
           (!is_scaled(&k) && k.room[OF_M] >= LEAST_SIDE &&
            k.room[OF_N] >= LEAST_SIDE &&
            (space->counted < 0 || space->counted >= k.product.outer));
}

// ------------------------------------------------------------------- text

// What products of a mixed row have each for itself.
enum { OWN_M, OWN_N, OWN_C, OWN_X, OWN_B, OWN };
static const char *const own_names[OWN] = {"M", "N", "C_M", "X_M", "B_K"};

static bool is_own(const char *name)
{
    for (int i = 0; i < OWN; i++)
        if (strcmp(name, own_names[i]) == 0)
            return true;
    return false;
}

static void define(kernel *k, const char *name, int64_t number)
{
    if (k->mixed && is_own(name))
        return;
    hd_text_printf(&k->text, "#define %s %lldll\n", name, (long long)number);
}

// A number, or what a run says.
static void add_length(kernel *k, const char *name, int64_t now)
{
    if (!k->sized) {
        define(k, name, now);
        return;
    }
    hd_text_printf(&k->text, "#define %s ((i64)args.size[%d])\n", name,
                   k->sizes);
    k->size[k->sizes++] = now;
}

// How many elements of the operand lie at a multiple of as many, wherever its
// tiles begin.
static int vector_of(const kernel *k, int part)
{
    const hd_product *p = &k->product;
    const hd_span *span = &p->part[part].span;
    sides of = sides_of(k, part);
    bool along = of.along == 1;
    uint64_t bits = 8 | (uint64_t)span->offset;

    // Where they are ragged groups begin anywhere.
    if (p->counts >= 0 && p->ta == along && (p->ta || part == HD_PRODUCT_A))
        return 1;
    bits |= (uint64_t)(along ? of.across : of.along);
    for (int d = 0; d < p->outer; d++)
        bits |= (uint64_t)span->stride[d];
    if (p->counts >= 0 && !p->ta && part == HD_PRODUCT_B)
        bits |= (uint64_t)p->to_group;
    return (int)(bits & -bits);
}

// Whether two neighbours of a row begin at a multiple of two.
static bool has_pairs(const kernel *k)
{
    const hd_product *p = &k->product;
    const hd_product_part *c = &p->part[HD_PRODUCT_C];
    int64_t bits = c->span.offset | c->matrix.row_stride;

    for (int d = 0; d < p->outer; d++)
        bits |= c->span.stride[d];
    if (p->counts >= 0 && p->ta)
        bits |= p->to_group;
    return c->matrix.column_stride == 1 && bits % 2 == 0;
}

static void add_matrix(kernel *k, const char *rows, const char *columns,
                       int part)
{
    const hd_matrix zero = {0},
                    *m = has(k, part) ? &k->product.part[part].matrix : &zero;

    define(k, rows, m->row_stride);
    define(k, columns, m->column_stride);
}

static void add_strides(kernel *k)
{
    sides a = sides_of(k, HD_PRODUCT_A), b = sides_of(k, HD_PRODUCT_B);

    define(k, "A_M", a.across);
    define(k, "A_K", a.along);
    define(k, "B_N", b.across);
    define(k, "B_K", b.along);
    add_matrix(k, "C_M", "C_N", HD_PRODUCT_C);
    add_matrix(k, "X_M", "X_N", HD_PRODUCT_AUX);
    add_matrix(k, "V_M", "V_N", HD_PRODUCT_BIAS);
    hd_text_printf(&k->text,
                   "#define A_ALONG %d\n#define B_ALONG %d\n"
                   "#define A_VECTOR %d\n#define B_VECTOR %d\n"
                   "#define C_PAIRS %d\n",
                   a.along == 1, b.along == 1,
                   k->tensor ? vector_of(k, HD_PRODUCT_A) : 1,
                   k->tensor ? vector_of(k, HD_PRODUCT_B) : 1, has_pairs(k));
}

// Where a piece begins, of strides along the dimensions that number them.
static void add_piece(kernel *k, const char *name, const int64_t *stride)
{
    bool is_one = !k->sized && k->room[OF_PIECES] == 1; // wherever others were

    hd_text_printf(&k->text, "#define PIECE_%s(p) (0", name);
    for (int d = k->product.outer - 1; d >= 0 && !is_one; d--) {
        if (stride == NULL || stride[d] == 0)
            continue;
        hd_text_puts(&k->text, " + (p)");
        for (int i = k->product.outer - 1; i > d; i--)
            hd_text_printf(&k->text, " / E%d", i);
        hd_text_printf(&k->text, " %% E%d * %lldll", d, (long long)stride[d]);
    }
    hd_text_puts(&k->text, ")\n");
}

static void add_pieces(kernel *k)
{
    static const char *const name[HD_PRODUCT_PARTS] = {[HD_PRODUCT_A] = "A",
                                                       [HD_PRODUCT_B] = "B",
                                                       [HD_PRODUCT_C] = "C",
                                                       [HD_PRODUCT_BIAS] = "V",
                                                       [HD_PRODUCT_AUX] = "X"};
    const hd_product *p = &k->product;
    hd_span counts;

    for (int d = 0; d < p->outer; d++) {
        char extent[16];

        snprintf(extent, sizeof extent, "E%d", d);
        add_length(k, extent, p->space.extent[d]);
    }
    for (int i = 0; i < HD_PRODUCT_PARTS; i++)
        if (p->counts >= 0 && (i == matrices_of(p) || i == HD_PRODUCT_BIAS))
            hd_text_printf(
                &k->text, "#define PIECE_%s(p) ((p) * %lldll)\n", name[i],
                (long long)(i == HD_PRODUCT_BIAS ? p->to_bias : p->to_group));
        else
            add_piece(k, name[i], has(k, i) ? p->part[i].span.stride : NULL);
    if (k->counted == 0)
        return;
    counts = hd_space_span(&p->space, k->step,
                           hd_op_key_view(k->step->op, HD_KEY_COUNTS));
    add_piece(k, "COUNT", counts.stride);
    add_length(k, "COUNT_TIMES", k->times);
}

// Of so long a product. Of groups as many as there may be.
static int64_t count_tiles(const kernel *k, const int64_t length[LENGTHS])
{
    const hd_product *p = &k->product;
    int64_t down = cover(length[OF_M], k->tile_m);
    int64_t across = cover(length[OF_N], k->tile_n);

    return p->counts < 0 ? down * across * length[OF_PIECES]
           : p->ta       ? down * across * length[OF_GROUPS]
                         : (down + length[OF_GROUPS]) * across;
}

// All lengths, and numbers of tiles, are within reach of an int.
static bool is_short(const kernel *k)
{
    return most(most(k->room[OF_M], k->room[OF_N]), k->room[OF_K]) <
               INT32_MAX / 2 &&
           count_tiles(k, k->room) < INT32_MAX / 2;
}

static void add_types(kernel *k)
{
    hd_dtype a = dtype_of(k, HD_PRODUCT_A);
    int aux = has(k, HD_PRODUCT_AUX) ? HD_PRODUCT_AUX : HD_PRODUCT_C;
    int bias = has(k, HD_PRODUCT_BIAS) ? HD_PRODUCT_BIAS : HD_PRODUCT_C;
    const hd_tiles_choice *c = k->choice;
    int band =
        c == NULL ? 8 : hd_tiles_band(hd_tiles_most(c), k->tile_m, k->tile_n);

    hd_text_printf(&k->text,
                   "#define TILE_M %lld\n#define TILE_N %lld\n#define BAND %d\n"
                   "#define SPLIT %d\n"
                   "#define STAGES %d\n#define TENSOR %d\n#define IS_F16 %d\n"
                   "#define GROUPED %d\n#define COUNTED %d\n",
                   (long long)k->tile_m, (long long)k->tile_n, band,
                   c != NULL && c->split, STAGES, k->tensor, a == HD_DTYPE_F16,
                   k->product.counts < 0 ? 0 : 1 + k->product.ta, k->counted);
    hd_text_printf(&k->text,
                   "typedef %s code_a;\ntypedef %s code_b;\n"
                   "typedef %s code_c;\ntypedef %s code_x;\n"
                   "typedef %s code_v;\ntypedef %s lane;\ntypedef %s rest;\n"
                   "typedef %s coord;\n",
                   hd_code_text(a), hd_code_text(dtype_of(k, HD_PRODUCT_B)),
                   hd_code_text(dtype_of(k, HD_PRODUCT_C)),
                   hd_code_text(dtype_of(k, aux)),
                   hd_code_text(dtype_of(k, bias)), hd_lane_text(k->lane),
                   hd_lane_text(k->rest), is_short(k) ? "int" : "i64");
}

static void list_own(const kernel *k, int64_t out[OWN])
{
    const hd_product_part *part = k->product.part;

    out[OWN_M] = k->length[OF_M];
    out[OWN_N] = k->length[OF_N];
    out[OWN_C] = part[HD_PRODUCT_C].matrix.row_stride;
    out[OWN_X] =
        has(k, HD_PRODUCT_AUX) ? part[HD_PRODUCT_AUX].matrix.row_stride : 0;
    out[OWN_B] = sides_of(k, HD_PRODUCT_B).along;
}

static bool is_mixed(const hd_tiles_row *row)
{
    int64_t first[OWN], other[OWN];

    for (int i = 0; i < row->products; i++) {
        kernel k = kernel_of(row->product[i], NULL);

        list_own(&k, i == 0 ? first : other);
        if (i > 0 && memcmp(first, other, sizeof first) != 0)
            return true;
    }
    return false;
}

// How many tiles all products have; of a mixed row behind what each has.
static void add_all_tiles(kernel *k)
{
    int64_t tiles = 0;

    for (int i = 0; k->mixed && i < k->row->products; i++) {
        kernel one = kernel_of(k->row->product[i], k->choice);

        list_own(&one, &k->size[k->sizes]);
        k->sizes += OWN;
        tiles += count_tiles(&one, one.length);
    }
    if (k->mixed) {
        hd_text_printf(&k->text, "#define ALL_TILES ((coord)args.size[%d])\n",
                       k->sizes);
        k->size[k->sizes++] = tiles;
    } else {
        hd_text_puts(&k->text, "#define ALL_TILES (TILES_OF(0) * PRODUCTS)\n");
    }
}

// By number of the product.
static void add_own(kernel *k)
{
    hd_text_printf(&k->text, "#define MIXED %d\n", k->mixed);
    for (int i = 0; i < OWN; i++) {
        const char *type = i < OWN_C ? "coord" : "i64";

        if (k->mixed)
            hd_text_printf(&k->text,
                           "#define %s_OF(p) ((%s)args.size[(p) * %d + %d])\n",
                           own_names[i], type, OWN, i);
        else
            hd_text_printf(&k->text, "#define %s_OF(p) ((%s)%s)\n",
                           own_names[i], type, own_names[i]);
    }
    add_all_tiles(k);
}

// Where in at[] things are.
static void add_places(kernel *k)
{
    const hd_product *p = &k->product;
    int aux = p->part[HD_PRODUCT_AUX].view,
        bias = p->part[HD_PRODUCT_BIAS].view;
    bool clears = p->counts >= 0 || (k->counted > 0 && k->counted < 3);

    hd_text_printf(
        &k->text,
        "#define AUX %d\n#define BIAS %d\n#define COUNTS %d\n#define TOLD %d\n"
        "#define CLEARS_C %d\n#define CLEARS_X %d\n",
        aux > 0 ? aux : 0, bias > 0 ? bias : 0,
        p->counts >= 0 ? p->counts : hd_op_key_view(k->step->op, HD_KEY_COUNTS),
        views_of(k), clears && !p->keep && !p->accumulate, clears && aux > 0);
    hd_text_printf(&k->text,
                   "#define PRODUCTS %d\n#define VIEWS %d\n"
                   "#define A_VIEW %d\n#define B_VIEW %d\n"
                   "#define TOGETHER %d\n#define WORDS %d\n",
                   products_of(k), k->step->op->nviews,
                   p->part[HD_PRODUCT_A].view, p->part[HD_PRODUCT_B].view,
                   k->choice != NULL && k->choice->together && !k->mixed,
                   words_of(k));
    if (p->scale != NULL && p->scale->view >= 0)
        hd_text_printf(&k->text, "#define SCALE *(const float *)args.at[%d]\n",
                       p->scale->view);
    else
        hd_text_puts(&k->text, "#define SCALE 1\n");
}

// Of a grouped product: along the result's rows and the depth, and its columns
// and the depth.
static void add_scales(kernel *k)
{
    for (int i = 0; i < 2; i++) {
        const hd_scales *s = &k->product.scales[i];
        char c = "AB"[i];

        hd_text_printf(
            &k->text, "#define SCALES_%c %d\n#define S%c_DEPTH %lldll\n", c,
            s->view >= 0 ? s->view : 0, c, (long long)s->deep_stride);
        if (s->view >= 0)
            hd_text_printf(&k->text,
                           "#define S%c_AT(p, line, k) ((p) * %lldll + (line) "
                           "/ %lldll * %lldll + (k) / %lldll * %lldll)\n",
                           c, (long long)s->to_group, (long long)s->lines,
                           (long long)s->line_stride, (long long)s->deep,
                           (long long)s->deep_stride);
    }
}

static void add_loads(kernel *k)
{
    static const char *const name[] = {"a", "b"};

    for (int i = 0; i < 2; i++) {
        hd_text_printf(&k->text,
                       "static inline lane take_%s(code_%s code)\n"
                       "{\n    return ",
                       name[i], name[i]);
        hd_prelude_load(&k->text, dtype_of(k, HD_PRODUCT_A + i), k->lane,
                        "code");
        hd_text_puts(&k->text, ";\n}\n");
    }
}

// What follows the product of one element.
static void add_finish(kernel *k)
{
    const hd_product *p = &k->product;
    hd_dtype c = dtype_of(k, HD_PRODUCT_C);
    hd_text *text = &k->text;

    hd_text_puts(text,
                 "static inline rest finish(lane sum, code_c c, code_x *x, "
                 "const code_v *v, float f)\n"
                 "{\n    rest y = sum;\n");
    hd_body_scale(text, k->rest, p->scale, "f");
    if (has(k, HD_PRODUCT_BIAS)) {
        hd_text_puts(text, "    y = y + ");
        hd_prelude_load(text, dtype_of(k, HD_PRODUCT_BIAS), k->rest, "*v");
        hd_text_puts(text, ";\n");
    }
    if (has(k, HD_PRODUCT_AUX))
        hd_body_store(text, k->rest, dtype_of(k, HD_PRODUCT_AUX), "*x");
    if (p->act != HD_ACT_NONE)
        hd_body_map(text, k->rest, hd_act_map(p->act));
    if (p->accumulate) {
        hd_text_puts(text, "    y = y + ");
        hd_prelude_load(text, c, k->rest, "c");
        hd_text_puts(text, ";\n");
    }
    hd_text_puts(text, "    return y;\n}\n"
                       "static inline code_c code_of(rest y)\n"
                       "{\n    return ");
    hd_prelude_store_sum(text, c, k->rest, "y");
    hd_text_puts(text, ";\n}\n");
}

// Counts of groups are the kernel's own to check.
static void add_check(kernel *k)
{
    hd_nest *nest = &k->nest;
    hd_space space;

    if (k->product.counts >= 0) {
        hd_text_printf(&k->text, "#define ROOM %s\n#define TO_COUNT %lldll\n",
                       k->product.ta ? "K" : "M",
                       (long long)k->step->span[k->product.counts].stride[0]);
        return;
    }
    *nest = hd_nest_over(k->step, &space);
    hd_nest_add_span(nest, k->step, &space, 0);
    hd_nest_add_counts(nest, k->step, &space);
    hd_counts_functions(nest, &k->text);
    hd_text_puts(&k->text,
                 "static inline void check_counts(const hd_kernel_args &args, "
                 "i64 first, i64 step)\n{\n");
    if (k->counted > 0) {
        hd_text_puts(&k->text,
                     "    const int *p1 = (const int *)args.at[COUNTS];\n");
        hd_counts_sizes(nest, k->sizes, &k->text);
        hd_counts_check(nest, &k->text);
    }
    for (int d = 0; d < nest->counts.span.ndims; d++)
        if (nest->counts.length[d].sized)
            k->size[k->sizes++] = nest->counts.length[d].now;
    hd_text_puts(&k->text, "}\n");
    if (k->counted > 0)
        define(k, "ROOM", nest->counts.room);
}

// -------------------------------------------------------------------- grid

// What tensor cores multiply lies in shared memory; elsewhere this is no more
// than another grid.
static hd_kernel_grid grid_of(const kernel *k)
{
    int64_t tiles = count_tiles(k, k->length);
    size_t slice = (size_t)((k->tile_m + k->tile_n) * SLICE) * 2;
    int64_t blocks = HD_KERNEL_PROCESSORS * (k->tensor ? 2 : 4);
    hd_kernel_grid grid = {
        .blocks = (unsigned)most(1, tiles < blocks ? tiles : blocks),
        .threads = k->tensor ? TENSOR_THREADS : PLAIN_THREADS,
        .shared = k->tensor ? (unsigned)(STAGES * slice) : 0,
        .pointers = k->step->op->nviews + (hd_kernel_tells(k->step) ? 2 : 0),
        .sizes = k->sizes};

    memcpy(grid.size, k->size, sizeof grid.size);
    return grid;
}

static void add_all(kernel *k)
{
    for (int i = 0; i < LENGTHS; i++)
        add_length(k, names[i], k->length[i]);
    add_pieces(k);
    add_types(k);
    add_strides(k);
    add_own(k);
    add_places(k);
    add_scales(k);
    add_loads(k);
    add_finish(k);
    add_check(k);
}

hd_status hd_tiles_emit(const hd_step *step, hd_text *out, hd_kernel_grid *grid)
{
    kernel k = kernel_of(step, NULL);

    add_all(&k);
    *grid = grid_of(&k);
    hd_prelude_add(&k.text, hd_tiles_cu);
    hd_prelude_add(&k.text, hd_mma_cu);
    hd_prelude_add(&k.text, hd_multiply_cu);
    return hd_prelude_finish_grid(out, &k.text, grid);
}

// ------------------------------------------------------------------ sm_90a

// Bytes of shared memory that a block of sm_90 may have, of which the first
// ones are left out up to a multiple of 1024.
enum {
    SHARED = 227 << 10,
    ALIGN = 1024,
    PANEL = PANEL_SIDE * PANEL_SIDE * 2,
    BARRIERS = 16
};
enum { ORDER = 16 }; // bytes, of the groups that take turns

// Whether its pieces lie evenly.
static bool has_step(const kernel *k, int part)
{
    const hd_product *p = &k->product;

    return p->counts >= 0 || p->outer < 2 ||
           hd_span_is_even(&p->part[part].span, 0, p->outer - 1);
}

// What the tensor memory accelerator brings in one go: a view of up to three
// dimensions whose first one is dense, and whose others lie at multiples of 16
// bytes.
static bool has_map(const kernel *k, int part)
{
    const hd_product *p = &k->product;
    const hd_span *span = &p->part[part].span;
    sides of = sides_of(k, part);
    uint64_t bits = (uint64_t)span->offset;

    bits |= (uint64_t)(of.along == 1 ? of.across : of.along);
    if (p->counts >= 0 && part == matrices_of(p))
        bits |= (uint64_t)p->to_group;
    for (int d = 0; d < p->outer; d++)
        bits |= (uint64_t)span->stride[d];
    return (int64_t)bits * size_of(k, part) % 16 == 0 && has_step(k, part);
}

// From one piece, or one group's matrix, to the next; 0 where all have the
// same.
static int64_t step_of(const kernel *k, int part)
{
    const hd_product *p = &k->product;
    int d = p->outer - 1;

    if (p->counts >= 0)
        return part == matrices_of(p) ? p->to_group : 0;
    while (d > 0 && p->space.extent[d] == 1)
        d--;
    return d >= 0 ? p->part[part].span.stride[d] : 0;
}

static hd_kernel_map map_of(const kernel *k, int part, int64_t inner,
                            int64_t lines, int64_t stride)
{
    int64_t step = step_of(k, part), size = size_of(k, part);
    uint32_t line = (uint32_t)(LINE / size);
    int64_t pieces =
        k->product.counts >= 0 ? k->length[OF_GROUPS] : k->length[OF_PIECES];

    return (hd_kernel_map){
        .pointer = k->product.part[part].view,
        .dtype = dtype_of(k, part),
        .extent = {inner, lines, step > 0 ? pieces : 1},
        .stride = {stride * size, step > 0 ? step * size : 16},
        .box = {line, line}};
}

static hd_kernel_map operand_map(const kernel *k, int part)
{
    bool left = part == HD_PRODUCT_A;
    const hd_tiles_choice *c = k->choice;
    int64_t depth = k->length[OF_K], lines = k->length[left ? OF_M : OF_N];
    int side = left ? c->rows : c->columns;
    int shared = left ? c->cluster_n : c->cluster_m; // by blocks of a cluster
    sides of = sides_of(k, part);
    hd_kernel_map map;

    if (of.along == 1) {
        map = map_of(k, part, depth, lines, of.across);
        map.box[1] = (uint32_t)(side / shared);
    } else {
        map = map_of(k, part, lines, depth, of.along);
        map.box[1] = (uint32_t)(SLICE / shared);
    }
    return map;
}

static bool is_turned(const kernel *k)
{
    return k->choice != NULL && k->choice->turned;
}

// From one row of the result, turned or not, to the next one.
static int64_t result_stride(const kernel *k)
{
    const hd_matrix *m = &k->product.part[HD_PRODUCT_C].matrix;

    return is_turned(k) ? m->column_stride : m->row_stride;
}

static bool is_staged(const kernel *k)
{
    const hd_product *p = &k->product;
    const hd_matrix *m = &p->part[HD_PRODUCT_C].matrix;
    hd_dtype dtype = dtype_of(k, HD_PRODUCT_C);

    return (dtype == HD_DTYPE_BF16 || dtype == HD_DTYPE_F16) &&
           (is_turned(k) ? m->row_stride : m->column_stride) == 1 &&
           result_stride(k) % 8 == 0 && step_of(k, HD_PRODUCT_C) % 8 == 0 &&
           p->part[HD_PRODUCT_C].span.offset % 8 == 0 &&
           has_step(k, HD_PRODUCT_C);
}

// Whether slices end within 64 of the depth, where those of others follow.
static bool is_ragged(const kernel *k)
{
    return k->product.counts >= 0 && k->product.ta;
}

// Of nothing there is no map: a run may say so.
static bool is_nothing(const kernel *k)
{
    for (int i = 0; i < OF_GROUPS; i++)
        if (k->length[i] == 0)
            return true;
    return k->product.counts >= 0 && k->length[OF_GROUPS] == 0;
}

bool hd_tiles_map(const hd_step *step)
{
    kernel k = kernel_of(step, NULL);

    return hd_tiles_fit(step) && (k.tensor || is_promoted(&k)) &&
           k.counted < 2 && !is_nothing(&k) && has_map(&k, HD_PRODUCT_A) &&
           has_map(&k, HD_PRODUCT_B) && k.rest == HD_LANE_FLOAT &&
           k.room[OF_M] >= HD_TILES_LEAST_SIDE &&
           k.room[OF_N] >= HD_TILES_LEAST_SIDE && is_short(&k) &&
           (!is_ragged(&k) || (sides_of(&k, HD_PRODUCT_A).along != 1 &&
                               sides_of(&k, HD_PRODUCT_B).along != 1));
}

static int panels_across(const hd_tiles_choice *c)
{
    return (c->columns + 63) / 64;
}

static int slice_bytes(const kernel *k)
{
    const hd_tiles_choice *c = k->choice;
    bool along = sides_of(k, HD_PRODUCT_B).along == 1;

    return (c->rows + (along ? c->columns : panels_across(c) * 64)) * LINE;
}

// Of a slice that has scales of its own: of each row, and of four panels.
static int scale_bytes(const kernel *k)
{
    const hd_scales *s = k->product.scales;

    return is_promoted(k) && (s[0].deep_stride > 0 || s[1].deep_stride > 0)
               ? (k->choice->rows + 4) * (int)sizeof(float)
               : 0;
}

// How many slices and panels of the result there is room for: a slice more is
// worth more than a panel, up to five.
static void share_memory(const kernel *k, int *slices, int *panels)
{
    int warps = k->choice->warps,
        each = slice_bytes(k) + BARRIERS + scale_bytes(k);
    int room = SHARED - ALIGN - ORDER, few = 0;

    *panels = 0;
    *slices = room / each;
    if (!is_staged(k))
        return;
    *panels = 2;
    *slices = (room - 2 * warps * PANEL) / each;
    few = (room - warps * PANEL) / each;
    if (few > *slices && *slices < 5) {
        *slices = few;
        *panels = 1;
    }
    while (*panels < 4 &&
           *slices * each + (*panels + 1) * warps * PANEL <= room)
        ++*panels;
}

static const char *wgmma_type(hd_dtype dtype)
{
    switch ((int)dtype) {
    case HD_DTYPE_F8E4M3:
        return "e4m3";
    case HD_DTYPE_F8E5M2:
        return "e5m2";
    case HD_DTYPE_F16:
        return "f16";
    default:
        return "bf16";
    }
}

static void add_wgmma(kernel *k)
{
    const hd_tiles_choice *c = k->choice;
    int columns = c->columns / (c->sideways ? c->warps : 1), sums = columns / 2;
    hd_text *text = &k->text;

    hd_text_printf(text,
                   "#define WGMMA \"wgmma.mma_async.sync.aligned.m64n%dk%d.f32."
                   "%s.%s {",
                   columns, 32 / (int)size_of(k, HD_PRODUCT_A),
                   wgmma_type(dtype_of(k, HD_PRODUCT_A)),
                   wgmma_type(dtype_of(k, HD_PRODUCT_B)));
    for (int i = 0; i < sums; i++)
        hd_text_printf(text, "%s%%%d", i > 0 ? ", " : "", i);
    hd_text_printf(text, "}, %%%d, %%%d, p, 1, 1", sums, sums + 1);
    if (!is_promoted(k)) // of 8 bits both lie along the depth
        hd_text_printf(text, ", %d, %d", sides_of(k, HD_PRODUCT_A).along != 1,
                       sides_of(k, HD_PRODUCT_B).along != 1);
    hd_text_printf(text,
                   ";\"\n#define WGMMA_MORE \"%%%d\"\n#define WGMMA_SUMS ",
                   sums + 2);
    for (int i = 0; i < sums; i++)
        hd_text_printf(text, "%s\"+f\"(d[%d])", i > 0 ? ", " : "", i);
    hd_text_puts(text, "\n");
}

static void add_choice(kernel *k)
{
    const hd_tiles_choice *c = k->choice;
    hd_dtype dtype = dtype_of(k, HD_PRODUCT_C);
    int slices, panels;

    share_memory(k, &slices, &panels);
    hd_text_printf(
        &k->text,
        "#define BM %d\n#define BN %d\n#define CLUSTER_M %d\n"
        "#define CLUSTER_N %d\n#define GROUPS_OF_WARPS %d\n"
        "#define ALTERNATE %d\n#define SIDEWAYS %d\n#define TURNED %d\n"
        "#define SLICES %d\n"
        "#define PANELS_OF_C %d\n#define STAGED %d\n#define MAPS %d\n"
        "#define PLAIN %d\n#define C_CODE %d\n#define RAGGED %d\n"
        "#define PROMOTED %d\n#define PARTS %d\n",
        c->rows, c->columns, c->cluster_m, c->cluster_n, c->warps, c->alternate,
        c->sideways, c->turned, slices, panels, is_staged(k),
        is_staged(k) ? 3 : 2, hd_product_is_plain(&k->product),
        dtype == HD_DTYPE_BF16  ? 1
        : dtype == HD_DTYPE_F16 ? 2
                                : 0,
        is_ragged(k), is_promoted(k), views_of(k) + 2);
    for (int i = 0; i < 3; i++)
        hd_text_printf(&k->text, "#define %c_PIECE(p) %s\n", "ABC"[i],
                       step_of(k, (const int[]){HD_PRODUCT_A, HD_PRODUCT_B,
                                                HD_PRODUCT_C}[i]) > 0
                           ? "(p)"
                           : "0");
    add_wgmma(k);
}

static void add_gate(kernel *k)
{
    hd_text_printf(&k->text,
                   "#define FIRST_WORD %d\n#define LIMIT %lldll\n"
                   "#define UNTOLD (%d)\n",
                   views_of(k) + 4, (long long)k->row->limit, HD_KERNEL_UNTOLD);
    hd_prelude_add(&k->text, hd_gate_cu);
}

// The maps of product `i`. Returns how many tiles it has.
static int64_t add_product(const kernel *k, int i, hd_kernel_grid *grid)
{
    int views = k->step->op->nviews, first = grid->maps;
    kernel one = kernel_of(k->row->product[i], k->choice);

    grid->map[grid->maps++] = operand_map(&one, HD_PRODUCT_A);
    grid->map[grid->maps++] = operand_map(&one, HD_PRODUCT_B);
    if (is_staged(&one))
        grid->map[grid->maps++] = map_of(
            &one, HD_PRODUCT_C, one.length[is_turned(&one) ? OF_M : OF_N],
            one.length[is_turned(&one) ? OF_N : OF_M], result_stride(&one));
    for (int m = first; m < grid->maps; m++)
        grid->map[m].pointer += i * views;
    return count_tiles(&one, one.length);
}

// Blocks stay, and take tiles in turns: a processor has one.
static hd_kernel_grid choice_grid(const kernel *k)
{
    const hd_tiles_choice *c = k->choice;
    int cluster = c->cluster_m * c->cluster_n, slices, panels;
    hd_kernel_grid grid = grid_of(k);
    int64_t tiles = 0;

    for (int i = 0; i < k->row->products; i++)
        tiles += add_product(k, i, &grid);
    share_memory(k, &slices, &panels);
    grid.blocks =
        (unsigned)(cluster *
                   hd_tiles_units(
                       c->split, tiles,
                       cover(k->length[OF_K], LINE / size_of(k, HD_PRODUCT_A)),
                       hd_tiles_most(c)));
    grid.threads = (unsigned)(128 * (c->warps + 1));
    grid.shared =
        (unsigned)(slices * (slice_bytes(k) + BARRIERS + scale_bytes(k)) +
                   panels * c->warps * PANEL + ORDER + ALIGN);
    grid.cluster = (unsigned)cluster;
    grid.early = true;
    grid.pointers = views_of(k) + 4;
    if (words_of(k) > 0)
        grid.pointers += products_of(k) * words_of(k) + 1;
    return grid;
}

hd_tiles_row hd_tiles_row_of(const hd_step *step)
{
    return (hd_tiles_row){.product = {step}, .products = 1};
}

hd_status hd_tiles_emit_choice(const hd_tiles_row *row,
                               const hd_tiles_choice *choice, hd_text *out,
                               hd_kernel_grid *grid)
{
    kernel k = kernel_of(row->product[0], choice);

    k.row = row;
    k.mixed = is_mixed(row);
    add_all(&k);
    add_choice(&k);
    *grid = choice_grid(&k);
    hd_prelude_add(&k.text, hd_tiles_cu);
    if (words_of(&k) > 0)
        add_gate(&k);
    hd_text_puts(&k.text, "#if defined(__CUDA_ARCH_FEAT_SM90_ALL)\n");
    hd_prelude_add(&k.text, hd_wgmma_cu);
    hd_text_puts(&k.text, "#else\n");
    hd_prelude_add(&k.text, hd_mma_cu);
    hd_prelude_add(&k.text, hd_multiply_cu);
    hd_text_puts(&k.text, "#endif\n");
    return hd_prelude_finish_grid(out, &k.text, grid);
}

// Those whose texts are one, but for what is each one's own.
bool hd_tiles_are_alike(const hd_step *a, const hd_step *b)
{
    const hd_tiles_choice any = {.rows = 128,
                                 .columns = 128,
                                 .cluster_m = 1,
                                 .cluster_n = 1,
                                 .warps = 2,
                                 .processors = 1};
    const hd_step *step[] = {a, b};
    hd_text text[2] = {{0}};
    bool alike = true;

    for (int i = 0; i < 2 && alike; i++) {
        kernel k = kernel_of(step[i], &any);

        alike = hd_tiles_map(step[i]) && !k.sized && k.counted == 0 &&
                k.product.counts < 0 &&
                (k.product.scale == NULL || k.product.scale->view < 0);
        k.row = &(const hd_tiles_row){.product = {a, b}, .products = 2};
        k.mixed = true;
        add_all(&k);
        add_choice(&k);
        text[i] = k.text;
        alike = alike && !k.text.failed;
    }
    alike = alike && text[0].length == text[1].length &&
            memcmp(text[0].bytes, text[1].bytes, text[0].length) == 0;
    hd_text_free(&text[0]);
    hd_text_free(&text[1]);
    return alike;
}

size_t hd_tiles_parts(const hd_tiles_choice *choice)
{
    return choice->split ? (size_t)choice->processors * (size_t)choice->rows *
                               (size_t)choice->columns * sizeof(float)
                         : 0;
}

// Of each block a word for each group of warps.
size_t hd_tiles_words(const hd_tiles_choice *choice)
{
    return choice->split ? (size_t)choice->processors * (size_t)choice->warps
                         : 0;
}

static hd_tiles_work work_of(const hd_step *step)
{
    kernel k = kernel_of(step, NULL);
    double groups = (double)most(1, k.room[OF_GROUPS]);
    hd_tiles_work w = {(double)k.room[OF_M],
                       (double)k.room[OF_N],
                       (double)(k.room[OF_K] * size_of(&k, HD_PRODUCT_A)) / 2,
                       (double)k.room[OF_PIECES],
                       k.product.counts < 0 && k.counted == 0,
                       k.product.counts >= 0 && !k.product.ta && groups > 1,
                       hd_product_is_plain(&k.product),
                       k.product.counts < 0 && k.counted == 0 && is_staged(&k),
                       {sides_of(&k, HD_PRODUCT_A).along == 1,
                        sides_of(&k, HD_PRODUCT_B).along == 1},
                       is_promoted(&k),
                       has_panels(&k)};

    if (k.product.counts < 0)
        return w;
    w.pieces = groups;
    if (k.product.ta)
        w.k /= groups;
    else
        w.m /= groups;
    return w;
}

int hd_tiles_choose(const hd_tiles_row *row, int processors, int room,
                    hd_tiles_choice *out)
{
    hd_tiles_job job = {.products = row->products, .mixed = is_mixed(row)};

    for (int i = 0; i < row->products; i++)
        job.work[i] = work_of(row->product[i]);
    for (int i = 0; job.mixed && i < row->products; i++)
        job.work[i].turns = false; // own rows and columns stay these
    memcpy(job.late, row->late, sizeof job.late);
    return hd_tiles_pick(&job, processors, room, out);
}
