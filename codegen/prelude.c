// Which functions of codegen/kernels/prelude.cu a text calls, and its frame.
#include "codegen/prelude.h"

#include <assert.h>
#include <string.h>

#include "base/dtype.h"

typedef struct snippet {
    const char *text, *name; // borrowed
    size_t length, name_length;
} snippet;

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
    case HD_DTYPE_I8:
        return "i8";
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
           hd_dtype_is_f8(dtype);
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
                       dtype == HD_DTYPE_I32  ? "-2147483648.0, 2147483647.0"
                       : dtype == HD_DTYPE_I8 ? "-128.0, 127.0"
                                              : "0.0, 255.0");
    }
}

void hd_prelude_store_sum(hd_text *text, hd_dtype dtype, hd_lane lane,
                          const char *value)
{
    if (hd_dtype_is_integer(dtype))
        hd_text_printf(text, "(%s)(i64)%s", hd_code_text(dtype), value);
    else
        hd_prelude_store(text, dtype, lane, value);
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
    if (dtype == HD_DTYPE_I8)
        return least ? "-128" : "127";
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

enum { SNIPPETS = 64 };

// The functions of the file, in its order: each stands behind an empty line,
// and its name between a blank and the first parenthesis.
static int split(const char *file, snippet *out)
{
    const char *at = strstr(file, "\n\n");
    int n = 0;

    for (; at != NULL; n++) {
        snippet *one = &out[n];

        assert(n < SNIPPETS);
        one->text = at + 2;
        at = strstr(one->text, "\n\n");
        one->length =
            at != NULL ? (size_t)(at + 1 - one->text) : strlen(one->text);
        one->name = strchr(strstr(one->text, "static inline"), '(');
        for (one->name_length = 0; one->name[-1] != ' '; one->name_length++)
            one->name--;
    }
    return n;
}

static bool calls(const char *text, size_t length, const snippet *snippet)
{
    return memmem(text, length, snippet->name, snippet->name_length) != NULL;
}

// The functions that the kernel calls.
static void add_snippets(hd_text *text, const hd_text *kernel)
{
    snippet all[SNIPPETS];
    bool wanted[SNIPPETS];
    int n = split((const char *)hd_prelude_cu, all);

    // From the last to the first, as callers stand below what they call.
    for (int i = n - 1; i >= 0; i--) {
        wanted[i] = calls(kernel->bytes, kernel->length, &all[i]);
        for (int k = i + 1; k < n && !wanted[i]; k++)
            wanted[i] = wanted[k] && calls(all[k].text, all[k].length, &all[i]);
    }
    for (int i = 0; i < n; i++)
        if (wanted[i])
            hd_text_add(text, all[i].text, all[i].length);
}

void hd_prelude_add(hd_text *text, const unsigned char *cu)
{
    hd_text_puts(text, (const char *)cu);
}

hd_status hd_prelude_finish(hd_text *out, hd_text *kernel, int pointers,
                            int sizes)
{
    const hd_kernel_grid grid = {.pointers = pointers, .sizes = sizes};

    return hd_prelude_finish_grid(out, kernel, &grid);
}

hd_status hd_prelude_finish_grid(hd_text *out, hd_text *kernel,
                                 const hd_kernel_grid *grid)
{
    hd_prelude_add(out, hd_types_cu);
    hd_text_printf(out,
                   "typedef struct hd_kernel_args {\n"
                   "    u64 at[%d];\n",
                   grid->pointers);
    if (grid->sizes > 0)
        hd_text_printf(out, "    u64 size[%d];\n", grid->sizes);
    if (grid->maps > 0)
        hd_text_printf(out, "    alignas(%d) u64 map[%d][%d];\n",
                       HD_KERNEL_MAP_ALIGN, grid->maps,
                       HD_KERNEL_MAP_BYTES / (int)sizeof(uint64_t));
    hd_text_puts(out, "} hd_kernel_args;\n");
    if (!kernel->failed) {
        add_snippets(out, kernel);
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
    enum { THREADS = 256 };
    int64_t blocks = (threads + THREADS - 1) / THREADS;
    int64_t most = HD_KERNEL_PROCESSORS * at_once;

    blocks = blocks < 1 ? 1 : blocks < most ? blocks : most;
    return (hd_kernel_grid){.blocks = (unsigned)blocks, .threads = THREADS};
}
