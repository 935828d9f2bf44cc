// The nest is over the result's dimensions. The operands lie along some of
// them: with b of nbatch leading dimensions
//
//              batch            rows           columns   inner loop
//     a   paired, else none   its own            none    K
//     b        its own          none            its own  K
#include "codegen/matmul.h"

#include <stdio.h>
#include <string.h>

#include "codegen/body.h"
#include "codegen/nest.h"

// Operands of the nest.
typedef struct parts {
    int bias, aux; // -1: none
    hd_lane lane;  // of the epilogue
} parts;

static bool is_wide(const hd_step *step, int span)
{
    return span >= 0 && step->span[span].buffer->type.dtype == HD_F64;
}

static hd_lane product_lane(const hd_step *step)
{
    return is_wide(step, 1) ? HD_LANE_DOUBLE : HD_LANE_FLOAT;
}

// The result, then bias and aux where there are any.
static hd_nest nest_of(const hd_step *step, parts *out)
{
    const hd_span *c = &step->span[0];
    hd_nest nest = {.ndims = c->ndims, .factor = -1};
    int bias = hd_body_find_span(step, HD_KEY_BIAS);
    int aux = hd_body_find_span(step, HD_KEY_AUX);
    hd_operand *o;

    *out = (parts){-1, -1, HD_LANE_FLOAT};
    if (is_wide(step, 0) || is_wide(step, 1) || is_wide(step, bias) ||
        is_wide(step, aux))
        out->lane = HD_LANE_DOUBLE;
    memcpy(nest.extent, c->extent, sizeof nest.extent);
    o = hd_nest_add(&nest, 0, c);
    o->write = true;
    o->read = hd_op_key(step->op, HD_KEY_ACCUMULATE) != NULL;
    if (bias >= 0) {
        out->bias = nest.n;
        hd_nest_add(&nest, bias, &step->span[bias]);
    }
    if (aux >= 0) {
        out->aux = nest.n;
        o = hd_nest_add(&nest, aux, &step->span[aux]);
        o->write = true;
        o->read = false;
    }
    return nest;
}

static void add_value(hd_text *body, const hd_nest *nest, hd_lane lane, int i)
{
    char code[16];

    snprintf(code, sizeof code, "%sc%d", nest->operand[i].write ? "*" : "", i);
    hd_text_puts(body, "    y = y + ");
    hd_prelude_load(body, nest->operand[i].dtype, lane, code);
    hd_text_puts(body, ";\n");
}

// All that follows the product, which y is.
static hd_status emit_rest(const hd_step *step, hd_nest *nest,
                           const parts *parts, hd_text *body, hd_text *out,
                           hd_kernel_grid *grid)
{
    const hd_key *act = hd_op_key(step->op, HD_KEY_ACT);
    hd_lane lane = parts->lane;
    hd_status status;

    nest->factor = hd_body_find_span(step, HD_KEY_SCALE);
    hd_body_scale(body, lane, hd_op_key(step->op, HD_KEY_SCALE), "f");
    if (parts->bias >= 0)
        add_value(body, nest, lane, parts->bias);
    if (parts->aux >= 0) {
        char to[16];

        snprintf(to, sizeof to, "*c%d", parts->aux);
        hd_body_store(body, lane, nest->operand[parts->aux].dtype, to);
    }
    if (act != NULL)
        hd_body_map(body, lane, hd_act_map(act->act));
    if (nest->operand[0].read)
        add_value(body, nest, lane, 0);
    hd_body_store(body, lane, nest->operand[0].dtype, "*c0");
    status = hd_body_emit(nest, body, out, grid);
    hd_text_free(body);
    return status;
}

// An operand that lies along nothing yet.
static hd_operand *add_factor(hd_nest *nest, const hd_step *step, int span)
{
    hd_operand *o = &nest->operand[nest->n++];

    *o = (hd_operand){.at = span,
                      .dtype = step->span[span].buffer->type.dtype,
                      .read = true,
                      .walked = true};
    return o;
}

static void add_left(hd_nest *nest, const hd_step *step)
{
    const hd_span *a = &step->span[1];
    bool ta = hd_op_key(step->op, HD_KEY_TA) != NULL;
    // Where a's dimensions begin among the result's: behind b's batch, if each
    // of it meets the whole of a.
    int lead = nest->ndims - a->ndims;
    hd_operand *o = add_factor(nest, step, 1);

    for (int d = lead; d + 1 < nest->ndims; d++)
        o->stride[d] = a->stride[d - lead];
    if (ta)
        o->stride[nest->ndims - 2] = a->stride[a->ndims - 1];
    o->walk = a->stride[a->ndims - (ta ? 2 : 1)];
}

static void add_right(hd_nest *nest, const hd_step *step)
{
    const hd_span *b = &step->span[2];
    bool tb = hd_op_key(step->op, HD_KEY_TB) != NULL;
    hd_operand *o = add_factor(nest, step, 2);

    for (int d = 0; d < b->ndims - 2; d++)
        o->stride[d] = b->stride[d];
    o->stride[nest->ndims - 1] = b->stride[b->ndims - (tb ? 2 : 1)];
    o->walk = b->stride[b->ndims - (tb ? 1 : 2)];
}

hd_status hd_matmul_emit(const hd_step *step, hd_text *out,
                         hd_kernel_grid *grid)
{
    const hd_span *a = &step->span[1];
    bool ta = hd_op_key(step->op, HD_KEY_TA) != NULL;
    parts parts;
    hd_nest nest = nest_of(step, &parts);
    hd_text body = {0};

    nest.inner = HD_INNER_DOT;
    nest.lane = product_lane(step);
    nest.trips = a->extent[a->ndims - (ta ? 2 : 1)];
    add_left(&nest, step);
    add_right(&nest, step);
    hd_text_printf(&body, "    %s y = x;\n", hd_lane_text(parts.lane));
    return emit_rest(step, &nest, &parts, &body, out, grid);
}

// The product in scratch memory is one more operand, dense.
hd_status hd_matmul_finish(const hd_step *step, hd_text *out,
                           hd_kernel_grid *grid)
{
    hd_buffer buffer = {.type = {.dtype = is_wide(step, 1) ? HD_F64 : HD_F32}};
    hd_span product = step->span[0];
    parts parts;
    hd_nest nest = nest_of(step, &parts);
    hd_text body = {0};
    int64_t stride = 1;
    char code[16];

    product.buffer = &buffer;
    for (int d = product.ndims - 1; d >= 0; d--) {
        product.stride[d] = stride;
        stride *= product.extent[d];
    }
    snprintf(code, sizeof code, "c%d", nest.n);
    hd_nest_add(&nest, step->nspans, &product);
    hd_body_begin(&body, parts.lane, buffer.type.dtype, code);
    return emit_rest(step, &nest, &parts, &body, out, grid);
}
