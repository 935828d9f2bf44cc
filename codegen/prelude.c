// The conversions are those of base/dtype.c, written for one element; a test
// compares them code by code. They are plain C on bits, so that the text needs
// no header and any compiler takes it.
#include "codegen/prelude.h"

#include <assert.h>
#include <string.h>

typedef struct snippet {
    const char *name;
    const char *text;
} snippet;

// Products and sums that are rounded for themselves: a compiler for GPUs makes
// one fma of a product and a sum of the operators.
#define ROUNDED(name, type, operator, intrinsic)                            \
    {                                                                       \
        name "_" #type, "static inline " #type " " name "_" #type "(" #type \
                        " x, " #type " y)\n"                                \
                        "{\n"                                               \
                        "#if defined(__CUDA_ARCH__)\n"                      \
                        "    return " #intrinsic "(x, y);\n"                \
                        "#else\n"                                           \
                        "    return x "                                     \
                        operator" y;\n"                                     \
                                "#endif\n"                                  \
                                "}\n"                                       \
    }

// Each may call those above it.
static const snippet snippets[] = {
    ROUNDED("product", float, "*", __fmul_rn),
    ROUNDED("product", double, "*", __dmul_rn),
    ROUNDED("total", float, "+", __fadd_rn),
    ROUNDED("total", double, "+", __dadd_rn),
    {"bits_of_float", "static inline u32 bits_of_float(float x)\n"
                      "{\n"
                      "    union { float x; u32 bits; } u;\n"
                      "    u.x = x;\n"
                      "    return u.bits;\n"
                      "}\n"},
    {"float_of_bits", "static inline float float_of_bits(u32 bits)\n"
                      "{\n"
                      "    union { u32 bits; float x; } u;\n"
                      "    u.bits = bits;\n"
                      "    return u.x;\n"
                      "}\n"},
    {"bits_of_double", "static inline u64 bits_of_double(double x)\n"
                       "{\n"
                       "    union { double x; u64 bits; } u;\n"
                       "    u.x = x;\n"
                       "    return u.bits;\n"
                       "}\n"},
    {"double_of_bits", "static inline double double_of_bits(u64 bits)\n"
                       "{\n"
                       "    union { u64 bits; double x; } u;\n"
                       "    u.bits = bits;\n"
                       "    return u.x;\n"
                       "}\n"},
    {"widen",
     "static inline float widen(u32 code, int fraction, int bias, u32 sign,\n"
     "                          u32 nan, u32 infinity)\n"
     "{\n"
     "    u32 magnitude = code & (sign - 1);\n"
     "    u32 minus = (code & sign) * (0x80000000u / sign);\n"
     "    float scale = float_of_bits((u32)(254 - bias) << 23);\n"
     "    float small = float_of_bits(magnitude << (23 - fraction));\n"
     "    u32 finite = bits_of_float(small * scale);\n"
     "    u32 special = 0x7f800000u | (magnitude - infinity) << (23 - "
     "fraction);\n"
     "    if (infinity == nan)\n"
     "        special = 0x7fc00000u;\n"
     "    return float_of_bits(minus | (magnitude >= infinity ? special\n"
     "                                                        : finite));\n"
     "}\n"},
    {"narrow_float",
     "static inline u32 narrow_float(float x, int fraction, int bias,\n"
     "                               u32 sign, u32 largest, u32 nan)\n"
     "{\n"
     "    int cut = 23 - fraction;\n"
     "    u32 bits = bits_of_float(x), magnitude = bits & 0x7fffffffu;\n"
     "    u32 minus = (bits >> 31) * sign;\n"
     "    u32 smallest = (u32)(128 - bias) << 23;\n"
     "    u32 magic = smallest + ((u32)cut << 23);\n"
     "    u32 odd = magnitude >> cut & 1;\n"
     "    u32 normal = ((magnitude + (1u << (cut - 1)) - 1 + odd) >> cut) -\n"
     "                 ((u32)(127 - bias) << fraction);\n"
     "    u32 subnormal = bits_of_float(float_of_bits(magnitude) +\n"
     "                                  float_of_bits(magic)) - magic;\n"
     "    u32 code = magnitude < smallest ? subnormal : normal;\n"
     "    code = code > largest ? largest : code;\n"
     "    code = magnitude > 0x7f800000u ? nan : code;\n"
     "    return minus | code;\n"
     "}\n"},
    {"narrow_double",
     "static inline u32 narrow_double(double x, int fraction, int bias,\n"
     "                                u32 sign, u32 largest, u32 nan)\n"
     "{\n"
     "    int cut = 52 - fraction;\n"
     "    u64 bits = bits_of_double(x);\n"
     "    u64 magnitude = bits & 0x7fffffffffffffffull;\n"
     "    u32 minus = (u32)(bits >> 63) * sign;\n"
     "    u64 smallest = (u64)(1024 - bias) << 52;\n"
     "    u64 magic = smallest + ((u64)cut << 52);\n"
     "    u64 odd = magnitude >> cut & 1;\n"
     "    u64 normal = ((magnitude + (1ull << (cut - 1)) - 1 + odd) >> cut) -\n"
     "                 ((u64)(1023 - bias) << fraction);\n"
     "    u64 subnormal = bits_of_double(double_of_bits(magnitude) +\n"
     "                                   double_of_bits(magic)) - magic;\n"
     "    u64 code = magnitude < smallest ? subnormal : normal;\n"
     "    code = code > largest ? largest : code;\n"
     "    code = magnitude > 0x7ff0000000000000ull ? nan : code;\n"
     "    return minus | (u32)code;\n"
     "}\n"},
    {"load_f16", "static inline float load_f16(u16 code)\n"
                 "{\n"
                 "    return widen(code, 10, 15, 0x8000, 0x7e00, 0x7c00);\n"
                 "}\n"},
    // The upper half of a float.
    {"load_bf16", "static inline float load_bf16(u16 code)\n"
                  "{\n"
                  "    return float_of_bits((u32)code << 16);\n"
                  "}\n"},
    {"load_f8e4m3", "static inline float load_f8e4m3(u8 code)\n"
                    "{\n"
                    "    return widen(code, 3, 7, 0x80, 0x7f, 0x7f);\n"
                    "}\n"},
    {"load_f8e5m2", "static inline float load_f8e5m2(u8 code)\n"
                    "{\n"
                    "    return widen(code, 2, 15, 0x80, 0x7e, 0x7c);\n"
                    "}\n"},
    {"store_f16_float",
     "static inline u16 store_f16_float(float x)\n"
     "{\n"
     "    return (u16)narrow_float(x, 10, 15, 0x8000, 0x7c00, 0x7e00);\n"
     "}\n"},
    // Exponents are the same, so that subnormals round like other numbers.
    {"store_bf16_float",
     "static inline u16 store_bf16_float(float x)\n"
     "{\n"
     "    u32 bits = bits_of_float(x);\n"
     "    u32 code = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;\n"
     "    return (u16)(x != x ? (bits >> 16 & 0x8000u) | 0x7fc0u : code);\n"
     "}\n"},
    {"store_f8e4m3_float",
     "static inline u8 store_f8e4m3_float(float x)\n"
     "{\n"
     "    return (u8)narrow_float(x, 3, 7, 0x80, 0x7e, 0x7f);\n"
     "}\n"},
    {"store_f8e5m2_float",
     "static inline u8 store_f8e5m2_float(float x)\n"
     "{\n"
     "    return (u8)narrow_float(x, 2, 15, 0x80, 0x7c, 0x7e);\n"
     "}\n"},
    {"store_f16_double",
     "static inline u16 store_f16_double(double x)\n"
     "{\n"
     "    return (u16)narrow_double(x, 10, 15, 0x8000, 0x7c00, 0x7e00);\n"
     "}\n"},
    {"store_bf16_double",
     "static inline u16 store_bf16_double(double x)\n"
     "{\n"
     "    return (u16)narrow_double(x, 7, 127, 0x8000, 0x7f80, 0x7fc0);\n"
     "}\n"},
    {"store_f8e4m3_double",
     "static inline u8 store_f8e4m3_double(double x)\n"
     "{\n"
     "    return (u8)narrow_double(x, 3, 7, 0x80, 0x7e, 0x7f);\n"
     "}\n"},
    {"store_f8e5m2_double",
     "static inline u8 store_f8e5m2_double(double x)\n"
     "{\n"
     "    return (u8)narrow_double(x, 2, 15, 0x80, 0x7c, 0x7e);\n"
     "}\n"},
    // 2^63 is a double, 2^63 - 1 is not: casts are right below the one.
    {"i64_of_double", "static inline i64 i64_of_double(double x)\n"
                      "{\n"
                      "    if (x != x)\n"
                      "        return 0;\n"
                      "    if (x >= 9223372036854775808.0)\n"
                      "        return 0x7fffffffffffffffll;\n"
                      "    if (x < -9223372036854775808.0)\n"
                      "        return -0x7fffffffffffffffll - 1;\n"
                      "    return (i64)rint(x);\n"
                      "}\n"},
    {"clamp_double",
     "static inline i64 clamp_double(double x, double least, double most)\n"
     "{\n"
     "    if (x != x)\n"
     "        return 0;\n"
     "    x = x < least ? least : x;\n"
     "    return (i64)rint(x > most ? most : x);\n"
     "}\n"},
    {"gelu_float",
     "static inline float gelu_float(float x)\n"
     "{\n"
     "    float cube = 0.044715f * x * x * x;\n"
     "    return product_float(0.5f * x, 1.0f + tanhf(0.797884561f *\n"
     "                                                (x + cube)));\n"
     "}\n"},
    {"gelu_double",
     "static inline double gelu_double(double x)\n"
     "{\n"
     "    double cube = 0.044715 * x * x * x;\n"
     "    return product_double(0.5 * x, 1.0 + tanh(0.79788456080286535588 *\n"
     "                                              (x + cube)));\n"
     "}\n"},
    // Where tanh is flat, x may be too large to be squared.
    {"gelu_slope_float",
     "static inline float gelu_slope_float(float x)\n"
     "{\n"
     "    float t = tanhf(0.797884561f * (x + 0.044715f * x * x * x));\n"
     "    float rest = 1.0f - t * t;\n"
     "    float bend = 0.5f * x * rest * 0.797884561f *\n"
     "                 (1.0f + 0.134145f * x * x);\n"
     "    return 0.5f * (1.0f + t) + (rest == 0 ? 0 : bend);\n"
     "}\n"},
    {"gelu_slope_double",
     "static inline double gelu_slope_double(double x)\n"
     "{\n"
     "    double t = tanh(0.79788456080286535588 *\n"
     "                    (x + 0.044715 * x * x * x));\n"
     "    double rest = 1.0 - t * t;\n"
     "    double bend = 0.5 * x * rest * 0.79788456080286535588 *\n"
     "                  (1.0 + 0.134145 * x * x);\n"
     "    return 0.5 * (1.0 + t) + (rest == 0 ? 0 : bend);\n"
     "}\n"},
    {"silu_slope_float", "static inline float silu_slope_float(float x)\n"
                         "{\n"
                         "    float s = 1.0f / (1.0f + expf(-x));\n"
                         "    return s * (1.0f + x * (1.0f - s));\n"
                         "}\n"},
    {"silu_slope_double", "static inline double silu_slope_double(double x)\n"
                          "{\n"
                          "    double s = 1.0 / (1.0 + exp(-x));\n"
                          "    return s * (1.0 + x * (1.0 - s));\n"
                          "}\n"},
    // Toward zero; by zero it is 0, and the smallest by -1 wraps.
    {"quotient", "static inline i64 quotient(i64 x, i64 y)\n"
                 "{\n"
                 "    if (y == 0)\n"
                 "        return 0;\n"
                 "    return y == -1 ? (i64)(0 - (u64)x) : x / y;\n"
                 "}\n"},
    {"silu_float", "static inline float silu_float(float x)\n"
                   "{\n"
                   "    return x / (1.0f + expf(-x));\n"
                   "}\n"},
    {"silu_double", "static inline double silu_double(double x)\n"
                    "{\n"
                    "    return x / (1.0 + exp(-x));\n"
                    "}\n"},
};

enum { NSNIPPETS = sizeof snippets / sizeof *snippets };

const char *hd_lane_text(hd_lane lane)
{
    static const char *const texts[] = {"float", "double", "i64"};

    return texts[lane];
}

const char *hd_code_text(hd_dtype dtype)
{
    switch (dtype) {
    case HD_DTYPE_F64:
        return "double";
    case HD_DTYPE_F32:
        return "float";
    case HD_DTYPE_F16:
    case HD_DTYPE_BF16:
        return "u16";
    case HD_DTYPE_I64:
        return "i64";
    case HD_DTYPE_I32:
        return "int";
    case HD_DTYPE_F8E4M3:
    case HD_DTYPE_F8E5M2:
    case HD_DTYPE_U8:
    case HD_DTYPE_EVENT:
        break;
    }
    return "u8";
}

static bool is_narrow(hd_dtype dtype)
{
    return dtype == HD_DTYPE_F16 || dtype == HD_DTYPE_BF16 ||
           dtype == HD_DTYPE_F8E4M3 || dtype == HD_DTYPE_F8E5M2;
}

void hd_prelude_load(hd_text *text, hd_dtype dtype, hd_lane lane,
                     const char *code)
{
    if (is_narrow(dtype))
        hd_text_printf(text, "(%s)load_%s(%s)", hd_lane_text(lane),
                       hd_dtype_text(dtype), code);
    else
        hd_text_printf(text, "(%s)%s", hd_lane_text(lane), code);
}

void hd_prelude_store(hd_text *text, hd_dtype dtype, hd_lane lane,
                      const char *value)
{
    bool integer = lane == HD_LANE_INTEGER;

    if (is_narrow(dtype)) {
        // Kernels compute in integers only what integers hold.
        assert(!integer);
        hd_text_printf(text, "store_%s_%s(%s)", hd_dtype_text(dtype),
                       hd_lane_text(lane), value);
    } else if (dtype == HD_DTYPE_F64 || dtype == HD_DTYPE_F32 || integer) {
        hd_text_printf(text, "(%s)%s", hd_code_text(dtype), value);
    } else if (dtype == HD_DTYPE_I64) {
        hd_text_printf(text, "i64_of_double(%s)", value);
    } else {
        hd_text_printf(text, "(%s)clamp_double(%s, %s)", hd_code_text(dtype),
                       value,
                       dtype == HD_DTYPE_I32 ? "-2147483648.0, 2147483647.0"
                                             : "0.0, 255.0");
    }
}

void hd_prelude_fold(hd_text *text, hd_fold fold, hd_lane lane, const char *x,
                     const char *y)
{
    switch (fold) {
    case HD_FOLD_SUM:
        if (lane == HD_LANE_INTEGER) // unsigned arithmetic wraps
            hd_text_printf(text, "(i64)((u64)%s + (u64)%s)", x, y);
        else
            hd_text_printf(text, "total_%s(%s, %s)", hd_lane_text(lane), x, y);
        return;
    case HD_FOLD_MAX: // a NaN on either side is it; of equal ones the later
        hd_text_printf(text, "%s > %s || %s != %s ? %s : %s", x, y, x, x, x, y);
        return;
    case HD_FOLD_MIN:
        hd_text_printf(text, "%s < %s || %s != %s ? %s : %s", x, y, x, x, x, y);
        return;
    case HD_FOLD_NONE:
        break;
    }
    assert(false && "it joins nothing");
}

// The least number of the dtype, or the greatest.
static const char *extreme(hd_lane lane, hd_dtype dtype, bool least)
{
    switch (lane) {
    case HD_LANE_FLOAT:
        return least ? "-float_of_bits(0x7f800000u)"
                     : "float_of_bits(0x7f800000u)";
    case HD_LANE_DOUBLE:
        return least ? "-double_of_bits(0x7ff0000000000000ull)"
                     : "double_of_bits(0x7ff0000000000000ull)";
    case HD_LANE_INTEGER:
        break;
    }
    if (dtype == HD_DTYPE_U8)
        return least ? "0" : "255";
    if (dtype == HD_DTYPE_I32)
        return least ? "-2147483647 - 1" : "2147483647";
    return least ? "-0x7fffffffffffffffll - 1" : "0x7fffffffffffffffll";
}

void hd_prelude_identity(hd_text *text, hd_fold fold, hd_lane lane,
                         hd_dtype dtype)
{
    assert(fold != HD_FOLD_NONE);
    hd_text_puts(text, fold == HD_FOLD_SUM
                           ? "0"
                           : extreme(lane, dtype, fold == HD_FOLD_MAX));
}

// The functions that the kernel calls.
static void add_snippets(hd_text *text, const char *kernel)
{
    bool wanted[NSNIPPETS];

    // From the last to the first, as callers stand below what they call.
    for (int i = NSNIPPETS - 1; i >= 0; i--) {
        wanted[i] = strstr(kernel, snippets[i].name) != NULL;
        for (int k = i + 1; k < NSNIPPETS && !wanted[i]; k++)
            wanted[i] =
                wanted[k] && strstr(snippets[k].text, snippets[i].name) != NULL;
    }
    for (int i = 0; i < NSNIPPETS; i++)
        if (wanted[i])
            hd_text_puts(text, snippets[i].text);
}

void hd_prelude_add(hd_text *text, const unsigned char *cu)
{
    hd_text_puts(text, (const char *)cu);
}

hd_status hd_prelude_finish(hd_text *out, hd_text *kernel, int pointers,
                            int sizes)
{
    hd_prelude_add(out, hd_types_cu);
    hd_text_printf(out,
                   "typedef struct hd_kernel_args {\n"
                   "    u64 at[%d];\n",
                   pointers);
    if (sizes > 0)
        hd_text_printf(out, "    u64 size[%d];\n", sizes);
    hd_text_puts(out, "} hd_kernel_args;\n");
    if (!kernel->failed) {
        add_snippets(out, kernel->bytes);
        hd_text_add(out, kernel->bytes, kernel->length);
    }
    out->failed |= kernel->failed;
    hd_text_free(kernel);
    if (!out->failed)
        return HD_OK;
    hd_text_free(out);
    return HD_ERROR_NO_MEMORY;
}

hd_kernel_grid hd_prelude_grid(int64_t threads, int at_once)
{
    enum { THREADS = 256, PROCESSORS = 132 };
    int64_t blocks = (threads + THREADS - 1) / THREADS;
    int64_t most = PROCESSORS * at_once;

    blocks = blocks < 1 ? 1 : blocks < most ? blocks : most;
    return (hd_kernel_grid){.blocks = (unsigned)blocks, .threads = THREADS};
}
