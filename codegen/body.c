// Arithmetic is that of docs/numerics.md. A constant factor that no float holds
// multiplies in double precision, so that a result is off by no more than two
// roundings; it costs a memory-bound kernel nothing. Products and sums are
// calls of the prelude's, which a compiler does not join to one: what a step
// stores is rounded, also where the next step takes it from a register.
#include "codegen/body.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"

hd_lane hd_body_lane(hd_dtype dtype)
{
    return dtype == HD_DTYPE_F64        ? HD_LANE_DOUBLE
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

void hd_body_join(hd_text *body, hd_lane lane, hd_dtype dtype, hd_fold fold,
                  const char *code)
{
    hd_text_printf(body, "    {\n    const %s z = ", hd_lane_text(lane));
    hd_prelude_load(body, dtype, lane, code);
    hd_text_puts(body, ";\n    y = ");
    hd_prelude_fold(body, fold, lane, "y", "z");
    hd_text_puts(body, ";\n    }\n");
}

void hd_body_second(hd_text *body, hd_lane lane, hd_dtype dtype,
                    const char *code)
{
    hd_text_printf(body, "    const %s z = ", hd_lane_text(lane));
    hd_prelude_load(body, dtype, lane, code);
    hd_text_puts(body, ";\n");
}

void hd_body_mask(hd_text *body, const char *code)
{
    hd_text_printf(body, "    const u8 m = %s;\n", code);
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
        hd_text_printf(body,
                       "    y = product_float(y, float_of_bits(0x%xu));\n",
                       (unsigned)narrow_bits);
    else
        hd_text_printf(body,
                       "    y = (%s)product_double((double)y, "
                       "double_of_bits(0x%llxull));\n",
                       hd_lane_text(lane), bits);
}

void hd_body_scale(hd_text *body, hd_lane lane, const hd_key *key,
                   const char *factor)
{
    if (key == NULL)
        return;
    if (key->view < 0)
        scale_by_number(body, lane, key->number);
    else if (lane == HD_LANE_FLOAT)
        hd_text_printf(body, "    y = product_float(y, %s);\n", factor);
    else
        hd_text_printf(body,
                       "    y = (%s)product_double((double)y, (double)%s);\n",
                       hd_lane_text(lane), factor);
}

// What y becomes, with a second operand z and a mask m: of floating point, and
// of integers, which wrap as unsigned arithmetic does. `$` stands for the lane,
// `@` for what the names of its functions end in.
typedef struct formula {
    const char *real, *whole;
} formula;

static formula formula_of(hd_map map)
{
    switch (map) {
    case HD_MAP_NONE:
    case HD_MAP_FILL:  // hd_body_fill
    case HD_MAP_SCALE: // hd_body_scale
        break;
    case HD_MAP_ADD:
        return (formula){"total_$(y, z)", "(i64)((u64)y + (u64)z)"};
    case HD_MAP_SUB:
        return (formula){"total_$(y, -z)", "(i64)((u64)y - (u64)z)"};
    case HD_MAP_MUL:
        return (formula){"product_$(y, z)", "(i64)((u64)y * (u64)z)"};
    case HD_MAP_DIV:
        return (formula){"y / z", "quotient(y, z)"};
    case HD_MAP_LT:
        return (formula){"y < z", "y < z"};
    case HD_MAP_LE:
        return (formula){"y <= z", "y <= z"};
    case HD_MAP_GT:
        return (formula){"y > z", "y > z"};
    case HD_MAP_GE:
        return (formula){"y >= z", "y >= z"};
    case HD_MAP_EQ:
        return (formula){"y == z", "y == z"};
    case HD_MAP_NE:
        return (formula){"y != z", "y != z"};
    case HD_MAP_AND:
        return (formula){NULL, "y != 0 && z != 0"};
    case HD_MAP_OR:
        return (formula){NULL, "y != 0 || z != 0"};
    case HD_MAP_XOR:
        return (formula){NULL, "(y != 0) != (z != 0)"};
    case HD_MAP_NOT:
        return (formula){NULL, "y == 0"};
    case HD_MAP_SELECT:
        return (formula){"m != 0 ? y : z", "m != 0 ? y : z"};
    case HD_MAP_NEG:
        return (formula){"-y", "(i64)(0 - (u64)y)"};
    case HD_MAP_ABS:
        return (formula){"fabs@(y)", "y < 0 ? (i64)(0 - (u64)y) : y"};
    case HD_MAP_SIN:
        return (formula){"sin@(y)", NULL};
    case HD_MAP_COS:
        return (formula){"cos@(y)", NULL};
    case HD_MAP_FLOOR:
        return (formula){"floor@(y)", NULL};
    case HD_MAP_POW:
        return (formula){"pow@(y, z)", NULL};
    case HD_MAP_EXP:
        return (formula){"exp@(y)", NULL};
    case HD_MAP_LOG:
        return (formula){"log@(y)", NULL};
    case HD_MAP_SQRT:
        return (formula){"sqrt@(y)", NULL};
    case HD_MAP_RSQRT:
        return (formula){"1 / sqrt@(y)", NULL};
    case HD_MAP_TANH:
        return (formula){"tanh@(y)", NULL};
    case HD_MAP_SIGMOID:
        return (formula){"1 / (1 + exp@(-y))", NULL};
    case HD_MAP_RELU: // keeps a NaN
        return (formula){"y < 0 ? 0 : y", NULL};
    case HD_MAP_GELU:
        return (formula){"gelu_$(y)", NULL};
    case HD_MAP_GELU_ERF:
        return (formula){"gelu_erf_$(y)", NULL};
    case HD_MAP_SILU:
        return (formula){"silu_$(y)", NULL};
    case HD_MAP_RELU_GRAD:
        return (formula){"y <= 0 ? 0 : z", NULL};
    case HD_MAP_GELU_GRAD:
        return (formula){"product_$(gelu_slope_$(y), z)", NULL};
    case HD_MAP_GELU_ERF_GRAD:
        return (formula){"product_$(gelu_erf_slope_$(y), z)", NULL};
    case HD_MAP_SILU_GRAD:
        return (formula){"product_$(silu_slope_$(y), z)", NULL};
    }
    return (formula){"y", "y"};
}

void hd_body_map(hd_text *body, hd_lane lane, hd_map map)
{
    formula formula = formula_of(map);
    const char *from = lane == HD_LANE_INTEGER ? formula.whole : formula.real;

    assert(from != NULL); // the verifier has refused integers
    hd_text_puts(body, "    y = ");
    for (; *from != '\0'; from++)
        if (*from == '$')
            hd_text_puts(body, hd_lane_text(lane));
        else if (*from != '@')
            hd_text_add(body, from, 1);
        else if (lane == HD_LANE_FLOAT)
            hd_text_puts(body, "f");
    hd_text_puts(body, ";\n");
}

void hd_body_fill(hd_text *body, const hd_key *key, const char *factor)
{
    unsigned long long bits;

    if (key->view >= 0) {
        hd_text_printf(body, "    double y = (double)%s;\n", factor);
        return;
    }
    memcpy(&bits, &key->number, sizeof bits);
    hd_text_printf(body, "    double y = double_of_bits(0x%llxull);\n", bits);
}

void hd_body_store(hd_text *body, hd_lane lane, hd_dtype dtype, const char *to)
{
    hd_text_printf(body, "    %s = ", to);
    hd_prelude_store(body, dtype, lane, "y");
    hd_text_puts(body, ";\n");
}

void hd_body_reduce(hd_text *body, hd_dtype dtype, hd_fold fold, int operands,
                    const char *format, int first, const char *to)
{
    hd_lane lane = hd_body_lane(dtype);

    for (int i = 0; i < operands; i++) {
        char code[16];

        snprintf(code, sizeof code, format, first + i);
        if (i == 0)
            hd_body_begin(body, lane, dtype, code);
        else
            hd_body_join(body, lane, dtype, fold, code);
    }
    hd_body_store(body, lane, dtype, to);
}

hd_status hd_body_emit(hd_nest *nest, const hd_text *body, hd_text *out,
                       hd_kernel_grid *grid)
{
    if (body->failed)
        return HD_ERROR_NO_MEMORY;
    return hd_nest_emit(nest, body->bytes, out, grid);
}
