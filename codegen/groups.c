// Grouped products, whose counts the kernel reads: codegen/kernels/groups.cu.
#include "codegen/matmul.h"

#include <string.h>

#include "codegen/body.h"
#include "codegen/prelude.h"
#include "ir/product.h"

enum { TILE_ROWS = 4, TILE_COLUMNS = 4, BLOCKS_AT_ONCE = 4 };

typedef struct kernel {
    const hd_step *step;
    hd_product product;
    hd_lane lane, rest; // of the product, and of what follows it
    int64_t across;     // threads
    int64_t tiles;
    bool sized; // a run says some length: all are parameters
} kernel;

// Lengths, in the order of the kernel's sizes. Where a run says them, functions
// take all but the last.
enum { LENGTHS = 7 };
_Static_assert(LENGTHS <= HD_KERNEL_SIZES, "each is a parameter");
static const char *const names[LENGTHS] = {"ROWS", "GROUPS", "M",    "N",
                                           "K",    "ACROSS", "TILES"};

static void list_lengths(const kernel *k, int64_t out[LENGTHS])
{
    const hd_product *p = &k->product;
    const int64_t lengths[LENGTHS] = {p->rows, p->groups, p->m,    p->n,
                                      p->k,    k->across, k->tiles};

    memcpy(out, lengths, sizeof lengths);
}

static bool is_length(const char *name)
{
    for (int i = 0; i < LENGTHS; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static hd_dtype dtype_of(const kernel *k, int part)
{
    return k->product.part[part].span.buffer->type.dtype;
}

static bool has_aux(const kernel *k)
{
    return k->product.part[HD_PRODUCT_AUX].view >= 0;
}

static int64_t cover(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile;
}

static kernel kernel_of(const hd_step *step)
{
    kernel k = {.step = step, .product = hd_product_of(step, 0)};
    const hd_product *p = &k.product;

    k.lane = p->wide ? HD_LANE_DOUBLE : HD_LANE_FLOAT;
    k.rest =
        p->wide || dtype_of(&k, HD_PRODUCT_C) == HD_DTYPE_F64 ||
                (has_aux(&k) && dtype_of(&k, HD_PRODUCT_AUX) == HD_DTYPE_F64)
            ? HD_LANE_DOUBLE
            : HD_LANE_FLOAT;
    k.across = cover(p->n, TILE_COLUMNS);
    k.tiles = cover(p->m, TILE_ROWS) * k.across * (p->ta ? p->groups : 1);
    for (int i = 0; i < step->op->nviews; i++)
        k.sized |= hd_view_is_sized(&step->op->view[i]);
    return k;
}

// ------------------------------------------------------------------- text

// Strides: of the operands along the result and the contracted dimension, and
// from one matrix of the groups to the next.
static void add_numbers(const kernel *k, hd_text *text)
{
    const hd_product *p = &k->product;
    const hd_matrix *a = &p->part[HD_PRODUCT_A].matrix;
    const hd_matrix *b = &p->part[HD_PRODUCT_B].matrix;
    const hd_matrix *c = &p->part[HD_PRODUCT_C].matrix;
    const hd_matrix *x = has_aux(k) ? &p->part[HD_PRODUCT_AUX].matrix : c;
    const struct {
        const char *name;
        int64_t number;
    } all[] = {
        {"ROWS", p->rows},
        {"GROUPS", p->groups},
        {"TO_COUNT", k->step->span[p->counts].stride[0]},
        {"M", p->m},
        {"N", p->n},
        {"K", p->k},
        {"TO_GROUP", p->to_group},
        {"A_M", p->ta ? a->column_stride : a->row_stride},
        {"A_K", p->ta ? a->row_stride : a->column_stride},
        {"B_K", p->tb ? b->column_stride : b->row_stride},
        {"B_N", p->tb ? b->row_stride : b->column_stride},
        {"C_M", c->row_stride},
        {"C_N", c->column_stride},
        {"X_M", x->row_stride},
        {"X_N", x->column_stride},
        {"ACROSS", k->across},
        {"TILES", k->tiles},
    };

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!k->sized || !is_length(all[i].name))
            hd_text_printf(text, "#define %s %lldll\n", all[i].name,
                           (long long)all[i].number);
    hd_text_printf(
        text,
        "#define TILE_M %d\n#define TILE_N %d\n#define TURNED %d\n"
        "typedef %s code_a;\ntypedef %s code_b;\n"
        "typedef %s code_c;\ntypedef %s code_x;\n"
        "typedef %s lane;\n",
        TILE_ROWS, TILE_COLUMNS, p->ta, hd_code_text(dtype_of(k, HD_PRODUCT_A)),
        hd_code_text(dtype_of(k, HD_PRODUCT_B)),
        hd_code_text(dtype_of(k, HD_PRODUCT_C)),
        hd_code_text(dtype_of(k, has_aux(k) ? HD_PRODUCT_AUX : HD_PRODUCT_C)),
        hd_lane_text(k->lane));
}

static void add_loads(const kernel *k, hd_text *text)
{
    static const char *const name[] = {"a", "b"};

    for (int i = 0; i < 2; i++) {
        hd_text_printf(text,
                       "static inline lane take_%s(code_%s code)\n"
                       "{\n    return ",
                       name[i], name[i]);
        hd_prelude_load(text, dtype_of(k, HD_PRODUCT_A + i), k->lane, "code");
        hd_text_puts(text, ";\n}\n");
    }
}

// What follows the product of one element, and what is there without one.
static void add_rest(const kernel *k, hd_text *text)
{
    const hd_product *p = &k->product;
    hd_dtype c = dtype_of(k, HD_PRODUCT_C);

    hd_text_printf(text,
                   "static inline void finish(lane sum, code_c *c, "
                   "code_x *x, float f)\n"
                   "{\n    %s y = sum;\n",
                   hd_lane_text(k->rest));
    hd_body_scale(text, k->rest, p->scale, "f");
    if (has_aux(k))
        hd_body_store(text, k->rest, dtype_of(k, HD_PRODUCT_AUX), "*x");
    if (p->act != HD_ACT_NONE)
        hd_body_map(text, k->rest, hd_act_map(p->act));
    if (p->accumulate) {
        hd_text_puts(text, "    y = y + ");
        hd_prelude_load(text, c, k->rest, "*c");
        hd_text_puts(text, ";\n");
    }
    hd_body_store(text, k->rest, c, "*c");
    hd_text_printf(text,
                   "}\n"
                   "static inline void clear(code_c *c, code_x *x)\n"
                   "{\n"
                   "%s%s}\n",
                   p->keep || p->accumulate ? "" : "    *c = 0;\n",
                   has_aux(k) ? "    *x = 0;\n" : "");
}

// Lengths that a run says are variables of the kernel, and of what it calls.
static void add_sizes(const kernel *k, hd_text *text)
{
    hd_text_puts(text, "#define LENGTHS ");
    for (int i = 0; k->sized && i < LENGTHS - 1; i++)
        hd_text_printf(text, ", i64 %s", names[i]);
    hd_text_puts(text, "\n#define GIVEN ");
    for (int i = 0; k->sized && i < LENGTHS - 1; i++)
        hd_text_printf(text, ", %s", names[i]);
    hd_text_puts(text, "\n#define TAKE_LENGTHS");
    for (int i = 0; k->sized && i < LENGTHS; i++)
        hd_text_printf(text, " const i64 %s = (i64)args.size[%d];", names[i],
                       i);
    hd_text_puts(text, "\n");
}

// Where in at[] things are.
static void add_places(const kernel *k, hd_text *text)
{
    const hd_product *p = &k->product;

    hd_text_printf(text, "#define COUNTS %d\n#define AUX %d\n#define TOLD %d\n",
                   p->counts, has_aux(k) ? p->part[HD_PRODUCT_AUX].view : 0,
                   k->step->op->nviews);
    if (p->scale != NULL && p->scale->view >= 0)
        hd_text_printf(text, "#define SCALE *(const float *)args.at[%d]\n",
                       p->scale->view);
    else
        hd_text_puts(text, "#define SCALE 1\n");
}

hd_status hd_groups_emit(const hd_step *step, hd_text *out,
                         hd_kernel_grid *grid)
{
    kernel k = kernel_of(step);
    int pointers = step->op->nviews + 2, sizes = k.sized ? LENGTHS : 0;
    hd_text rest = {0};

    add_numbers(&k, &rest);
    add_loads(&k, &rest);
    add_rest(&k, &rest);
    add_sizes(&k, &rest);
    add_places(&k, &rest);
    hd_prelude_add(&rest, hd_groups_cu);
    HD_TRY(hd_prelude_finish(out, &rest, pointers, sizes));
    *grid = hd_prelude_grid(k.tiles, BLOCKS_AT_ONCE);
    grid->pointers = pointers;
    grid->sizes = sizes;
    list_lengths(&k, grid->size);
    return HD_OK;
}
