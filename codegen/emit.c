// What one element of each operation is: a nest over the result's dimensions,
// and the body of the function that is called for each element of it. A chain's
// body is those of its steps, one after the other.
#include "codegen/emit.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/diag.h"
#include "base/dtype.h"
#include "codegen/body.h"
#include "codegen/matmul.h"
#include "codegen/nest.h"
#include "codegen/pick.h"
#include "codegen/tiles.h"

static hd_dtype dtype_of(const hd_step *step, int i)
{
    return step->span[i].buffer->type.dtype;
}

// The result alone.
static hd_nest nest_of(const hd_step *step, hd_space *space)
{
    hd_nest nest = hd_nest_over(step, space);
    hd_operand *o = hd_nest_add_span(&nest, step, space, 0);

    o->write = true;
    o->read = false;
    return nest;
}

// ---------------------------------------------------------------- one step

// How the body of a step names the codes of its spans, and its factor.
typedef struct names {
    char span[HD_MAX_VIEWS][16];
    const char *factor;
} names;

// A double holds every number but those of i64, whose casts go by way of it as
// on the CPU.
static hd_lane lane_of_cast(hd_dtype to, hd_dtype from)
{
    if (hd_dtype_is_integer(to) && hd_dtype_is_integer(from))
        return HD_LANE_INTEGER;
    return hd_dtype_is_integer(to) || from == HD_DTYPE_F64 ||
                   from == HD_DTYPE_I64 || from == HD_DTYPE_I32
               ? HD_LANE_DOUBLE
               : HD_LANE_FLOAT;
}

static void write_copy(const hd_step *step, const names *names, hd_text *body)
{
    hd_dtype to = dtype_of(step, 0), from = dtype_of(step, 1);
    hd_lane lane = lane_of_cast(to, from);

    if (to == from) {
        hd_text_printf(body, "    %s = %s;\n", names->span[0], names->span[1]);
        return;
    }
    hd_body_begin(body, lane, from, names->span[1]);
    hd_body_store(body, lane, to, names->span[0]);
}

// What the step computes an operand of: a view's code, or a number's.
typedef struct code {
    hd_dtype dtype;
    char text[48];
} code;

// As its bits, of which the text of a floating dtype's code is made.
static void print_number(hd_dtype dtype, double number, size_t room, char *out)
{
    int64_t whole = 0;
    uint64_t bits = 0;

    hd_dtype_store(dtype, &number, 1, &bits); // little-endian
    if (hd_dtype_is_integer(dtype)) {
        hd_dtype_load_integers(dtype, &bits, 1, &whole);
        snprintf(out, room, "(i64)%lldll", (long long)whole);
    } else if (dtype == HD_DTYPE_F64) {
        snprintf(out, room, "double_of_bits(0x%llxull)",
                 (unsigned long long)bits);
    } else if (dtype == HD_DTYPE_F32) {
        snprintf(out, room, "float_of_bits(0x%llxu)", (unsigned long long)bits);
    } else {
        snprintf(out, room, "0x%llxu", (unsigned long long)bits);
    }
}

static code code_of(const hd_step *step, const names *names, int k)
{
    int view = hd_op_operand(step->op, k);
    code code = {.dtype = dtype_of(
                     step, view >= 0 ? view : hd_op_number_view(step->op))};

    if (view >= 0)
        snprintf(code.text, sizeof code.text, "%s", names->span[view]);
    else
        print_number(code.dtype, hd_op_number(step->op, k), sizeof code.text,
                     code.text);
    return code;
}

static void write_fold(const hd_step *step, const names *names, hd_text *body)
{
    hd_dtype dtype = dtype_of(step, 0);
    hd_lane lane = hd_body_lane(dtype);

    for (int k = 0; k < hd_op_operands(step->op); k++) {
        code x = code_of(step, names, k);

        if (k == 0)
            hd_body_begin(body, lane, x.dtype, x.text);
        else
            hd_body_join(body, lane, x.dtype, hd_op_fold(step->op), x.text);
    }
    hd_body_store(body, lane, dtype, names->span[0]);
}

static void write_map(const hd_step *step, const names *names, hd_text *body)
{
    hd_map map = hd_op_info_get(step->op->code)->map;
    int n = hd_op_operands(step->op), first = n == 3; // after a mask
    hd_lane lane = HD_LANE_DOUBLE;

    if (map == HD_MAP_FILL) {
        hd_body_fill(body, hd_op_key(step->op, HD_KEY_VALUE), names->factor);
    } else {
        code x = code_of(step, names, first);

        lane = hd_body_lane(x.dtype);
        hd_body_begin(body, lane, x.dtype, x.text);
    }
    if (n >= 2) {
        code x = code_of(step, names, first + 1);

        hd_body_second(body, lane, x.dtype, x.text);
    }
    if (n == 3)
        hd_body_mask(body, names->span[1]);
    if (map == HD_MAP_SCALE)
        hd_body_scale(body, lane, hd_op_key(step->op, HD_KEY_BY),
                      names->factor);
    else
        hd_body_map(body, lane, map);
    hd_body_store(body, lane, dtype_of(step, 0), names->span[0]);
}

static void write_step(const hd_step *step, const names *names, hd_text *body)
{
    switch (hd_op_family(step->op)) {
    case HD_FAMILY_COPY:
    case HD_FAMILY_TRANSPOSE:
        write_copy(step, names, body);
        return;
    case HD_FAMILY_MAP:
        write_map(step, names, body);
        return;
    case HD_FAMILY_FOLD:
        write_fold(step, names, body);
        return;
    case HD_FAMILY_TAKE:
    case HD_FAMILY_IOTA:
    case HD_FAMILY_PRODUCT:
    case HD_FAMILY_PICK:
    case HD_FAMILY_ATTEND:
    case HD_FAMILY_CALL:
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        break;
    }
    assert(false && "a kernel of one element's function");
}

// The view of the number that the op scales by or fills with, or -1.
static int factor_of(const hd_op *op)
{
    int view = hd_op_key_view(op, HD_KEY_BY);

    return view >= 0 ? view : hd_op_key_view(op, HD_KEY_VALUE);
}

// Copies and transposes too: each element of the result is of one of each
// operand, wherever that lies.
static hd_status emit_elementwise(const hd_step *step, hd_text *out,
                                  hd_kernel_grid *grid)
{
    names names = {.factor = "f"};
    hd_space space;
    hd_nest nest;
    hd_text body = {0};
    hd_status status;

    nest = nest_of(step, &space);
    for (int i = 1; i <= step->op->ninputs; i++)
        hd_nest_add_span(&nest, step, &space, i);
    for (int i = 0; i <= step->op->ninputs; i++)
        snprintf(names.span[i], sizeof *names.span, i == 0 ? "*c%d" : "c%d", i);
    nest.factor = factor_of(step->op);
    hd_nest_add_counts(&nest, step, &space);
    write_step(step, &names, &body);
    status = hd_body_emit(&nest, &body, out, grid);
    hd_text_free(&body);
    return status;
}

// ------------------------------------------------------------------ chains

_Static_assert(HD_CHAIN_VALUES <= HD_KERNEL_POINTERS, "each has an address");

// What is neither loaded nor stored is a variable of the function, so that it
// is in a register alone.
static bool is_operand(const hd_chain_value *value)
{
    return value->loaded || value->stored;
}

static hd_nest nest_of_chain(const hd_chain *chain)
{
    hd_nest nest = {.ndims = chain->ndims, .factor = -1, .roomy = true};

    for (int d = 0; d < chain->ndims; d++)
        nest.length[d] = chain->dim[d].length;
    for (int i = 0; i < chain->nvalues; i++) {
        const hd_chain_value *value = &chain->value[i];
        hd_operand *o = &nest.operand[nest.n];

        if (!is_operand(value))
            continue;
        nest.n++;
        o->at = i;
        o->dtype = value->span->buffer->type.dtype;
        o->write = value->stored;
        o->read = value->loaded;
        memcpy(o->stride, value->stride, sizeof o->stride);
    }
    return nest;
}

// The names of the values, and the variables.
static void declare_values(const hd_chain *chain, char (*name)[16],
                           hd_text *body)
{
    int n = 0;

    for (int i = 0; i < chain->nvalues; i++) {
        const hd_chain_value *value = &chain->value[i];

        if (is_operand(value)) {
            snprintf(name[i], sizeof *name, value->stored ? "*c%d" : "c%d",
                     n++);
            continue;
        }
        snprintf(name[i], sizeof *name, "t%d", i);
        hd_text_printf(body, "    %s t%d;\n",
                       hd_code_text(value->span->buffer->type.dtype), i);
    }
}

static void write_chain(const hd_chain *chain, hd_text *body)
{
    char name[HD_CHAIN_VALUES][16];

    declare_values(chain, name, body);
    for (int k = 0; k < chain->nsteps; k++) {
        const hd_step *step = chain->step[k];
        names names;

        for (int i = 0; i < step->op->nviews; i++)
            memcpy(names.span[i], name[chain->of[k][i]], sizeof *names.span);
        names.factor = names.span[step->op->nviews - 1]; // a key's is the last
        hd_text_puts(body, "    {\n");
        write_step(step, &names, body);
        hd_text_puts(body, "    }\n");
    }
}

hd_status hd_emit_chain(const hd_chain *chain, hd_text *out,
                        hd_kernel_grid *grid)
{
    hd_nest nest = nest_of_chain(chain);
    hd_text body = {0};
    hd_status status;

    hd_text_puts(out, "//");
    for (int k = 0; k < chain->nsteps; k++)
        hd_text_printf(out, " %s",
                       hd_op_info_get(chain->step[k]->op->code)->text);
    hd_text_puts(out, "\n");
    write_chain(chain, &body);
    status = hd_body_emit(&nest, &body, out, grid);
    hd_text_free(&body);
    if (status != HD_OK)
        hd_text_free(out);
    return status;
}

// -------------------------------------------------------------- reductions

static hd_status emit_reduction(const hd_step *step, hd_text *out,
                                hd_kernel_grid *grid)
{
    hd_dtype dtype = dtype_of(step, 0);
    hd_space space;
    hd_nest nest;
    hd_text body = {0};
    hd_status status;

    nest = nest_of(step, &space);
    hd_nest_add_span(&nest, step, &space, 1)->walked = true;
    hd_nest_add_counts(&nest, step, &space);
    nest.inner = HD_INNER_FOLD;
    nest.fold = hd_op_fold(step->op);
    nest.lane = hd_body_lane(dtype);
    hd_text_printf(&body, "    %s y = x;\n", hd_lane_text(nest.lane));
    hd_body_store(&body, nest.lane, dtype, "*c0");
    status = hd_body_emit(&nest, &body, out, grid);
    hd_text_free(&body);
    return status;
}

// -------------------------------------------------------- what indices say

// Codes are moved as they are.
static hd_status emit_take(const hd_step *step, hd_text *out,
                           hd_kernel_grid *grid)
{
    hd_space space;
    hd_nest nest = nest_of(step, &space);

    hd_nest_add_span(&nest, step, &space, 1)->walked = true;
    hd_nest_add_span(&nest, step, &space, 2)->picks = true;
    hd_nest_add_counts(&nest, step, &space);
    nest.inner = HD_INNER_TAKE;
    nest.start = step->start;
    return hd_nest_emit(&nest, "    *c0 = x;\n", out, grid);
}

static hd_status emit_iota(const hd_step *step, hd_text *out,
                           hd_kernel_grid *grid)
{
    int64_t along[HD_SPACE_DIMS] = {0};
    hd_space space;
    hd_nest nest = nest_of(step, &space);

    along[hd_op_dim(step->op)] = 1;
    hd_nest_add(&nest, 0, dtype_of(step, 0), along)->place = true;
    nest.inner = HD_INNER_IOTA;
    nest.start = step->start;
    return hd_nest_emit(&nest, "    *c0 = x;\n", out, grid);
}

// ------------------------------------------------------------------- entry

hd_status hd_emit_reduce(hd_dtype dtype, hd_fold fold, int operands,
                         hd_length elements, hd_diag *diag, hd_text *out,
                         hd_kernel_grid *grid)
{
    hd_nest nest = {.ndims = 1, .length = {elements}, .factor = -1};
    const int64_t dense = 1;
    hd_text body = {0};
    hd_status status;

    if (operands < 1 || operands >= HD_KERNEL_POINTERS)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "a reduction over %d ranks; a kernel takes 1 to %d",
                       operands, HD_KERNEL_POINTERS - 1);
    for (int i = 0; i <= operands; i++)
        hd_nest_add(&nest, i, dtype, &dense);
    nest.operand[0].write = true;
    nest.operand[0].read = false;
    hd_body_reduce(&body, dtype, fold, operands, "c%d", 1, "*c0");
    status = hd_body_emit(&nest, &body, out, grid);
    hd_text_free(&body);
    return status;
}

hd_status hd_emit_step(const hd_step *step, hd_diag *diag, hd_text *out,
                       hd_kernel_grid *grid)
{
    switch (hd_op_family(step->op)) {
    case HD_FAMILY_COPY:
    case HD_FAMILY_MAP:
    case HD_FAMILY_TRANSPOSE:
        return emit_elementwise(step, out, grid);
    case HD_FAMILY_FOLD:
        return hd_op_dim(step->op) >= 0 ? emit_reduction(step, out, grid)
                                        : emit_elementwise(step, out, grid);
    case HD_FAMILY_TAKE:
        return emit_take(step, out, grid);
    case HD_FAMILY_IOTA:
        return emit_iota(step, out, grid);
    case HD_FAMILY_PRODUCT:
        return hd_tiles_fit(step) ? hd_tiles_emit(step, out, grid)
                                  : hd_matmul_emit(step, out, grid);
    case HD_FAMILY_PICK:
        return hd_pick_emit(step, out, grid);
    case HD_FAMILY_ATTEND:
        return hd_attend_emit(step, out, grid);
    case HD_FAMILY_CALL:
    case HD_FAMILY_MOVE:
    case HD_FAMILY_SYNC:
        break;
    }
    return hd_fail(diag, HD_ERROR_UNSUPPORTED, "%s is no operation of a kernel",
                   hd_op_info_get(step->op->code)->text);
}

hd_status hd_emit_epilogue(const hd_step *step, hd_diag *diag, hd_text *out,
                           hd_kernel_grid *grid)
{
    if (hd_op_family(step->op) != HD_FAMILY_PRODUCT)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED, "%s has no epilogue",
                       hd_op_info_get(step->op->code)->text);
    return hd_matmul_finish(step, out, grid);
}
