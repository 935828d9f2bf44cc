// Arithmetic is that of docs/numerics.md. A constant factor that no float holds
// multiplies in double precision, so that a result is off by no more than two
// roundings; it costs a memory-bound kernel nothing.
#include "codegen/body.h"

#include <stdio.h>
#include <string.h>

#include "base/dtype.h"

hd_lane hd_body_lane(hd_dtype dtype)
{
    return dtype == HD_F64              ? HD_LANE_DOUBLE
           : hd_dtype_is_integer(dtype) ? HD_LANE_INTEGER
                                        : HD_LANE_FLOAT;
}

void hd_body_begin(hd_text *body, hd_lane lane, hd_dtype dtype,
                   const char *code)
{
    hd_text_printf(body, "    %s y = ", hd_lane_text(lane));
    hd_prelude_load(body, dtype, lane, code);
    hd_text_puts(body, ";\n");
}

void hd_body_combine(hd_text *body, hd_lane lane, hd_dtype dtype,
                     hd_opcode code, int i)
{
    char operand[16];

    snprintf(operand, sizeof operand, "c%d", i);
    hd_text_printf(body, "    const %s z%d = ", hd_lane_text(lane), i);
    hd_prelude_load(body, dtype, lane, operand);
    // A NaN on either side is the maximum, so that none is lost.
    if (code == HD_OP_MAX)
        hd_text_printf(body, ";\n    y = y > z%d || y != y ? y : z%d;\n", i, i);
    else if (lane == HD_LANE_INTEGER) // unsigned arithmetic wraps
        hd_text_printf(body, ";\n    y = (i64)((u64)y %c (u64)z%d);\n",
                       code == HD_OP_MUL ? '*' : '+', i);
    else
        hd_text_printf(body, ";\n    y = y %c z%d;\n",
                       code == HD_OP_MUL ? '*' : '+', i);
}

int hd_body_find_span(const hd_step *step, hd_key_code code)
{
    int i = step->op->noutputs + step->op->ninputs;

    for (int k = 0; k < step->op->nkeys; k++) {
        if (step->op->key[k].view.buffer == NULL)
            continue;
        if (step->op->key[k].code == code)
            return i;
        i++;
    }
    return -1;
}

// The factor, which may be no decimal number, as its bits.
static void scale_by_number(hd_text *body, hd_lane lane, double factor)
{
    float narrow = (float)factor;
    unsigned long long bits;
    uint32_t narrow_bits;

    memcpy(&bits, &factor, sizeof bits);
    memcpy(&narrow_bits, &narrow, sizeof narrow_bits);
    if (lane == HD_LANE_FLOAT && (double)narrow == factor)
        hd_text_printf(body, "    y = y * float_of_bits(0x%xu);\n",
                       (unsigned)narrow_bits);
    else
        hd_text_printf(body,
                       "    y = (%s)((double)y * double_of_bits(0x%llxull));\n",
                       hd_lane_text(lane), bits);
}

void hd_body_scale(hd_text *body, hd_lane lane, const hd_step *step,
                   hd_key_code code, hd_nest *nest)
{
    const hd_key *key = hd_op_key(step->op, code);

    if (key == NULL)
        return;
    nest->factor = hd_body_find_span(step, code);
    if (nest->factor < 0)
        scale_by_number(body, lane, key->number);
    else if (lane == HD_LANE_FLOAT)
        hd_text_puts(body, "    y = y * f;\n");
    else
        hd_text_printf(body, "    y = (%s)((double)y * (double)f);\n",
                       hd_lane_text(lane));
}

void hd_body_activate(hd_text *body, hd_lane lane, hd_act act)
{
    const char *suffix = hd_lane_text(lane);

    switch (act) {
    case HD_ACT_NONE:
        return;
    case HD_ACT_RELU: // keeps a NaN
        hd_text_puts(body, "    y = y < 0 ? 0 : y;\n");
        return;
    case HD_ACT_GELU:
        hd_text_printf(body, "    y = gelu_%s(y);\n", suffix);
        return;
    case HD_ACT_SILU:
        hd_text_printf(body, "    y = silu_%s(y);\n", suffix);
        return;
    }
}

void hd_body_store(hd_text *body, hd_lane lane, hd_dtype dtype, const char *to)
{
    hd_text_printf(body, "    *%s = ", to);
    hd_prelude_store(body, dtype, lane, "y");
    hd_text_puts(body, ";\n");
}

hd_status hd_body_emit(hd_nest *nest, const hd_text *body, hd_text *out,
                       hd_kernel_grid *grid)
{
    if (body->failed)
        return HD_NO_MEMORY;
    return hd_nest_emit(nest, body->bytes, out, grid);
}
