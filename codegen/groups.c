// Grouped products, whose counts the kernel reads. A thread makes a small tile
// of the result: it adds the counts up to where its tile is, and multiplies
// what they say.
//
//     rows      a tile of [rows, N] may reach over several groups
//     with ta   a tile of [M, N] of one group contracts over that group's rows
//
// Columns of a tile are as far apart as there are threads across, so that
// neighbours load neighbours.
#include "codegen/matmul.h"

#include <string.h>

#include "codegen/body.h"
#include "codegen/emit.h"
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

// Lengths, in the order of the kernel's sizes. Where they are parameters, the
// functions take all but the last.
enum { LENGTHS = 7 };
_Static_assert(LENGTHS <= HD_KERNEL_SIZES, "each is a parameter");
static const char *const names[LENGTHS] = {"ROWS", "GROUPS", "M",    "N",
                                           "K",    "ACROSS", "TILES"};
static const char parameters[] =
    ",\n    i64 ROWS, i64 GROUPS, i64 M, i64 N, i64 K, i64 ACROSS";
static const char arguments[] = ", ROWS, GROUPS, M, N, K, ACROSS";

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
            hd_text_printf(text, "static constexpr i64 %s = %lld;\n",
                           all[i].name, (long long)all[i].number);
    hd_text_printf(
        text,
        "enum { TILE_M = %d, TILE_N = %d, KEEP = %d };\n"
        "typedef %s code_a;\ntypedef %s code_b;\n"
        "typedef %s code_c;\ntypedef %s code_x;\n"
        "typedef %s lane;\n",
        TILE_ROWS, TILE_COLUMNS, p->keep || p->accumulate,
        hd_code_text(dtype_of(k, HD_PRODUCT_A)),
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
                   "    if (!KEEP)\n"
                   "        *c = 0;\n"
                   "%s}\n",
                   has_aux(k) ? "    *x = 0;\n" : "");
}

static const char shared_text[] =
    // `m` rows of a tile, from where a, c and x point.
    "static inline void multiply(const code_a *a, const code_b *b,\n"
    "    code_c *c, code_x *x, float f, int m, i64 column, i64 k@)\n"
    "{\n"
    "    lane sum[TILE_M][TILE_N] = {};\n"
    "    for (i64 s = 0; s < k; s++) {\n"
    "        lane left[TILE_M], right[TILE_N];\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < TILE_M; i++)\n"
    "            left[i] = take_a(a[(i < m ? i : 0) * A_M + s * A_K]);\n"
    "#pragma unroll\n"
    "        for (int j = 0; j < TILE_N; j++) {\n"
    "            const i64 n = column + j * ACROSS;\n"
    "            right[j] = take_b(b[s * B_K + (n < N ? n : column) * B_N]);\n"
    "        }\n"
    "#pragma unroll\n"
    "        for (int i = 0; i < TILE_M; i++)\n"
    "#pragma unroll\n"
    "            for (int j = 0; j < TILE_N; j++)\n"
    "                sum[i][j] += left[i] * right[j];\n"
    "    }\n"
    "#pragma unroll\n"
    "    for (int i = 0; i < TILE_M; i++)\n"
    "#pragma unroll\n"
    "        for (int j = 0; j < TILE_N; j++) {\n"
    "            const i64 n = column + j * ACROSS;\n"
    "            if (i < m && n < N)\n"
    "                finish(sum[i][j], c + i * C_M + n * C_N,\n"
    "                       x + i * X_M + n * X_N, f);\n"
    "        }\n"
    "}\n"
    "static inline void clear_rows(code_c *c, code_x *x, int m,\n"
    "    i64 column@)\n"
    "{\n"
    "    for (int i = 0; i < m; i++)\n"
    "        for (i64 n = column; n < N; n += ACROSS)\n"
    "            clear(c + i * C_M + n * C_N, x + i * X_M + n * X_N);\n"
    "}\n"
    // What a count is taken for.
    "static inline i64 rows_of(i64 count, i64 left)\n"
    "{\n"
    "    return count < 0 ? 0 : count > left ? left : count;\n"
    "}\n"
    // The first count that is taken for another number, unless one of an
    // earlier step is told already.
    "static inline void check(const int *counts, i64 *told, i64 step@)\n"
    "{\n"
    "    i64 from = 0;\n"
    "    for (i64 g = 0; g < GROUPS && told[0] == 0; g++) {\n"
    "        const i64 count = counts[g * TO_COUNT];\n"
    "        const i64 rows = rows_of(count, ROWS - from);\n"
    "        if (rows != count) {\n"
    "            told[1] = g;\n"
    "            told[2] = count;\n"
    "            told[3] = ROWS - from;\n"
    "            told[0] = step + 1;\n"
    "        }\n"
    "        from += rows;\n"
    "    }\n"
    "}\n";

static const char rows_text[] =
    "static inline void make_tile(const code_a *a, const code_b *b,\n"
    "    code_c *c, code_x *x, float f, const int *counts, i64 tile@)\n"
    "{\n"
    "    const i64 column = tile % ACROSS, first = tile / ACROSS * TILE_M;\n"
    "    const i64 end = first + TILE_M < M ? first + TILE_M : M;\n"
    "    i64 row = first, group = -1, past = 0;\n"
    "    while (row < end) {\n"
    "        while (past <= row && group + 1 < GROUPS) {\n"
    "            group++;\n"
    "            past += rows_of(counts[group * TO_COUNT], ROWS - past);\n"
    "        }\n"
    "        if (past <= row) {\n"
    "            clear_rows(c + row * C_M, x + row * X_M, (int)(end - row),\n"
    "                       column$);\n"
    "            return;\n"
    "        }\n"
    "        const int m = (int)((past < end ? past : end) - row);\n"
    "        multiply(a + row * A_M, b + group * TO_GROUP, c + row * C_M,\n"
    "                 x + row * X_M, f, m, column, K$);\n"
    "        row += m;\n"
    "    }\n"
    "}\n";

static const char matrices_text[] =
    "static inline void make_tile(const code_a *a, const code_b *b,\n"
    "    code_c *c, code_x *x, float f, const int *counts, i64 tile@)\n"
    "{\n"
    "    const i64 column = tile % ACROSS, down = (M + TILE_M - 1) / TILE_M;\n"
    "    const i64 group = tile / ACROSS / down;\n"
    "    const i64 first = tile / ACROSS % down * TILE_M;\n"
    "    const int m = (int)(M - first < TILE_M ? M - first : TILE_M);\n"
    "    i64 from = 0, rows;\n"
    "    for (i64 g = 0; g < group; g++)\n"
    "        from += rows_of(counts[g * TO_COUNT], ROWS - from);\n"
    "    rows = rows_of(counts[group * TO_COUNT], ROWS - from);\n"
    "    c += group * TO_GROUP + first * C_M;\n"
    "    if (rows == 0)\n"
    "        clear_rows(c, x, m, column$);\n"
    "    else\n"
    "        multiply(a + from * A_K + first * A_M, b + from * B_K, c, x, f,\n"
    "                 m, column, rows$);\n"
    "}\n";

// The text with parameters for `@` and arguments for `$`.
static void add_functions(const kernel *k, const char *from, hd_text *text)
{
    for (; *from != '\0'; from++)
        if (*from != '@' && *from != '$')
            hd_text_add(text, from, 1);
        else if (k->sized)
            hd_text_puts(text, *from == '@' ? parameters : arguments);
}

static void add_kernel(const kernel *k, hd_text *text)
{
    const hd_product *p = &k->product;
    int n = k->step->op->nviews;
    const char *more = k->sized ? arguments : "";

    hd_text_printf(text,
                   "extern \"C\" __global__ void HD_BOUNDS(2) " HD_KERNEL_NAME
                   "(const hd_kernel_args args)\n"
                   "{\n"
                   "    const int *counts = (const int *)args.at[%d];\n"
                   "    const i64 step = (i64)gridDim.x * blockDim.x;\n"
                   "    const i64 first = (i64)blockIdx.x * blockDim.x + "
                   "threadIdx.x;\n",
                   p->counts);
    for (int i = 0; k->sized && i < LENGTHS; i++)
        hd_text_printf(text, "    const i64 %s = (i64)args.size[%d];\n",
                       names[i], i);
    if (p->scale != NULL && p->scale->view >= 0)
        hd_text_printf(text,
                       "    const float f = *(const float *)args.at[%d];\n",
                       p->scale->view);
    else
        hd_text_puts(text, "    const float f = 1;\n");
    hd_text_printf(text,
                   "    if (first == 0)\n"
                   "        check(counts, (i64 *)args.at[%d], "
                   "(i64)args.at[%d]%s);\n"
                   "    for (i64 tile = first; tile < TILES; tile += step)\n"
                   "        make_tile((const code_a *)args.at[1],\n"
                   "                  (const code_b *)args.at[2],\n"
                   "                  (code_c *)args.at[0],\n"
                   "                  (code_x *)args.at[%d], f, counts, "
                   "tile%s);\n"
                   "}\n",
                   n, n + 1, more,
                   has_aux(k) ? p->part[HD_PRODUCT_AUX].view : 0, more);
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
    add_functions(&k, shared_text, &rest);
    add_functions(&k, k.product.ta ? matrices_text : rows_text, &rest);
    add_kernel(&k, &rest);
    HD_TRY(hd_prelude_finish(out, &rest, pointers, sizes));
    *grid = hd_prelude_grid(k.tiles, BLOCKS_AT_ONCE);
    grid->pointers = pointers;
    grid->sizes = sizes;
    list_lengths(&k, grid->size);
    return HD_OK;
}
