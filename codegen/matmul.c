// The product is the inner loop of a nest over the result, which ir/space.h
// lays out; what follows it is the body.
#include "codegen/matmul.h"

#include <stdio.h>

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
static hd_nest nest_of(const hd_step *step, const hd_space *space, parts *out)
{
    hd_nest nest = hd_nest_over(space);
    int bias = hd_op_key_view(step->op, HD_KEY_BIAS);
    int aux = hd_op_key_view(step->op, HD_KEY_AUX);
    hd_operand *o = hd_nest_add_span(&nest, step, space, 0);

    *out = (parts){-1, -1, HD_LANE_FLOAT};
    if (is_wide(step, 0) || is_wide(step, 1) || is_wide(step, bias) ||
        is_wide(step, aux))
        out->lane = HD_LANE_DOUBLE;
    o->write = true;
    o->read = hd_op_key(step->op, HD_KEY_ACCUMULATE) != NULL;
    if (bias >= 0) {
        out->bias = nest.n;
        hd_nest_add_span(&nest, step, space, bias);
    }
    if (aux >= 0) {
        out->aux = nest.n;
        o = hd_nest_add_span(&nest, step, space, aux);
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

    nest->factor = hd_op_key_view(step->op, HD_KEY_SCALE);
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

hd_status hd_matmul_emit(const hd_step *step, hd_text *out,
                         hd_kernel_grid *grid)
{
    parts parts;
    hd_space space;
    hd_nest nest;
    hd_text body = {0};

    hd_space_of_step(step, &space);
    nest = nest_of(step, &space, &parts);
    nest.inner = HD_INNER_DOT;
    nest.lane = product_lane(step);
    nest.trips = space.extent[space.nparallel];
    for (int i = 1; i <= 2; i++)
        hd_nest_add_span(&nest, step, &space, i)->walked = true;
    hd_text_printf(&body, "    %s y = x;\n", hd_lane_text(parts.lane));
    return emit_rest(step, &nest, &parts, &body, out, grid);
}

// The product in scratch memory is one more operand, dense.
hd_status hd_matmul_finish(const hd_step *step, hd_text *out,
                           hd_kernel_grid *grid)
{
    hd_dtype dtype = is_wide(step, 1) ? HD_F64 : HD_F32;
    int64_t stride[HD_MAX_DIMS], next = 1;
    parts parts;
    hd_space space;
    hd_nest nest;
    hd_text body = {0};
    char code[16];

    hd_space_of_step(step, &space);
    nest = nest_of(step, &space, &parts);
    for (int d = nest.ndims - 1; d >= 0; d--) {
        stride[d] = next;
        next *= nest.extent[d];
    }
    snprintf(code, sizeof code, "c%d", nest.n);
    hd_nest_add(&nest, step->nspans, dtype, stride);
    hd_body_begin(&body, parts.lane, dtype, code);
    return emit_rest(step, &nest, &parts, &body, out, grid);
}
