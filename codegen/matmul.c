// The product is the inner loop of a nest over the result, which ir/space.h
// lays out; what follows it is the body.
#include "codegen/matmul.h"

#include <stdio.h>

#include "codegen/body.h"
#include "codegen/nest.h"
#include "ir/product.h"

typedef struct kernel {
    hd_product product;
    hd_nest nest;
    int operand[HD_PRODUCT_PARTS]; // of the nest, where there is the part
    int scales[2];                 // likewise, of those that follow the product
    hd_lane lane;                  // of the epilogue
} kernel;

static bool is_wide(const hd_product *p, int part)
{
    return p->part[part].view >= 0 &&
           (p->integers ||
            p->part[part].span.buffer->type.dtype == HD_DTYPE_F64);
}

static hd_operand *add_part(kernel *k, const hd_step *step, int part)
{
    k->operand[part] = k->nest.n;
    return hd_nest_add_span(&k->nest, step, &k->product.space,
                            k->product.part[part].view);
}

// Scales of rows or columns follow the product, or are of what it sums.
static void add_scales(kernel *k, const hd_step *step, int side)
{
    const hd_scales *scales = &k->product.scales[side];
    int last = k->product.space.nparallel - 1,
        line = side == 0 ? last - 1 : last;
    hd_operand *o;

    k->scales[side] = -1;
    if (scales->view < 0)
        return;
    if (scales->deep_stride == 0)
        k->scales[side] = k->nest.n;
    o = hd_nest_add_span(&k->nest, step, &k->product.space, scales->view);
    if (line >= 0 && scales->line_stride > 0) {
        o->stride[line] = scales->line_stride;
        o->block[line] = scales->lines;
    }
    o->scales = scales->deep_stride > 0;
    o->deep = scales->deep;
    o->walk = scales->deep_stride;
}

// The result, then bias and aux where there are any, and scales.
static kernel kernel_of(const hd_step *step)
{
    kernel k = {.product = hd_product_of(step, 0), .lane = HD_LANE_FLOAT};
    hd_operand *o;

    k.nest = hd_nest_over(step, &k.product.space);
    k.nest.factor = k.product.scale != NULL ? k.product.scale->view : -1;
    for (int i = 0; i < HD_PRODUCT_PARTS; i++)
        if (is_wide(&k.product, i))
            k.lane = HD_LANE_DOUBLE;
    o = add_part(&k, step, HD_PRODUCT_C);
    o->write = true;
    o->read = k.product.accumulate;
    if (k.product.part[HD_PRODUCT_BIAS].view >= 0)
        add_part(&k, step, HD_PRODUCT_BIAS);
    if (k.product.part[HD_PRODUCT_AUX].view >= 0) {
        o = add_part(&k, step, HD_PRODUCT_AUX);
        o->write = true;
        o->read = false;
    }
    for (int i = 0; i < 2; i++)
        add_scales(&k, step, i);
    return k;
}

// The code of an operand of the nest.
static const char *name_of(const hd_nest *nest, int i, char name[16])
{
    snprintf(name, 16, "%sc%d", nest->operand[i].write ? "*" : "", i);
    return name;
}

static void join_value(hd_text *body, const kernel *k, int i, char how)
{
    char name[16];

    hd_text_printf(body, "    y = y %c ", how);
    hd_prelude_load(body, k->nest.operand[i].dtype, k->lane,
                    name_of(&k->nest, i, name));
    hd_text_puts(body, ";\n");
}

static void store_value(hd_text *body, const kernel *k, int part)
{
    int i = k->operand[part];
    char name[16];

    hd_text_printf(body, "    %s = ", name_of(&k->nest, i, name));
    hd_prelude_store_sum(body, k->nest.operand[i].dtype, k->lane, "y");
    hd_text_puts(body, ";\n");
}

// All that follows the product, which y is.
static hd_status emit_rest(kernel *k, hd_text *body, hd_text *out,
                           hd_kernel_grid *grid)
{
    const hd_product *p = &k->product;
    hd_status status;

    for (int i = 0; i < 2; i++)
        if (k->scales[i] >= 0)
            join_value(body, k, k->scales[i], '*');
    hd_body_scale(body, k->lane, p->scale, "f");
    if (p->part[HD_PRODUCT_BIAS].view >= 0)
        join_value(body, k, k->operand[HD_PRODUCT_BIAS], '+');
    if (p->part[HD_PRODUCT_AUX].view >= 0)
        store_value(body, k, HD_PRODUCT_AUX);
    if (p->act != HD_ACT_NONE)
        hd_body_map(body, k->lane, hd_act_map(p->act));
    if (p->accumulate)
        join_value(body, k, k->operand[HD_PRODUCT_C], '+');
    store_value(body, k, HD_PRODUCT_C);
    status = hd_body_emit(&k->nest, body, out, grid);
    hd_text_free(body);
    return status;
}

// Of nothing the sum is 0, whatever signs scales have.
static void sum_scaled(kernel *k)
{
    if (!k->nest.counts.inner && !k->nest.iterations.sized)
        return;
    for (int i = 0; i < 2; i++) {
        hd_operand *o;

        if (k->scales[i] < 0)
            continue;
        o = &k->nest.operand[k->scales[i]];
        o->scales = true;
        o->deep = k->nest.iterations.room;
        k->scales[i] = -1;
    }
}

hd_status hd_matmul_emit(const hd_step *step, hd_text *out,
                         hd_kernel_grid *grid)
{
    kernel k = kernel_of(step);
    hd_text body = {0};

    k.nest.inner = HD_INNER_DOT;
    k.nest.lane = k.product.wide ? HD_LANE_DOUBLE : HD_LANE_FLOAT;
    add_part(&k, step, HD_PRODUCT_A)->walked = true;
    add_part(&k, step, HD_PRODUCT_B)->walked = true;
    hd_nest_add_counts(&k.nest, step, &k.product.space);
    sum_scaled(&k);
    hd_text_printf(&body, "    %s y = x;\n", hd_lane_text(k.lane));
    return emit_rest(&k, &body, out, grid);
}

// The product in scratch memory is one more operand, dense.
hd_status hd_matmul_finish(const hd_step *step, hd_text *out,
                           hd_kernel_grid *grid)
{
    kernel k = kernel_of(step);
    hd_dtype dtype = k.product.wide ? HD_DTYPE_F64 : HD_DTYPE_F32;
    int64_t stride[HD_MAX_DIMS], next = 1;
    bool sized = false;
    hd_text body = {0};
    char name[16];

    for (int d = k.nest.ndims - 1; d >= 0; d--) {
        stride[d] = next;
        next *= k.nest.length[d].room;
        sized |= k.nest.length[d].sized;
    }
    hd_nest_add(&k.nest, step->op->nviews, dtype, stride)->dense = sized;
    k.nest.iterations = hd_length_fixed(0); // they are over
    hd_body_begin(&body, k.lane, dtype, name_of(&k.nest, k.nest.n - 1, name));
    return emit_rest(&k, &body, out, grid);
}
