// A thread takes 8 elements of a row: 16 bytes or 32 of a view, where they lie
// side by side at multiples of 16 bytes, as all memory does.
#include "codegen/dense.h"

#include <assert.h>

#include "base/dtype.h"
#include "codegen/prelude.h"

enum { EACH = 8, BLOCKS_AT_ONCE = 4 };

static bool has_vectors(const hd_span *span)
{
    int64_t multiple = 16 / (int64_t)hd_dtype_size(span->buffer->type.dtype);
    int last = span->ndims - 1;
    bool fits = span->stride[last] == 1 && span->offset % multiple == 0;

    for (int d = 0; d < last; d++)
        fits &= span->extent[d] == 1 || span->stride[d] % multiple == 0;
    return fits;
}

static void add_conversions(hd_text *text, const char *name, hd_dtype dtype)
{
    const char *code = hd_code_text(dtype);

    hd_text_printf(text, "static inline float get_%s(%s x)\n{\n    return ",
                   name, code);
    hd_prelude_load(text, dtype, HD_LANE_FLOAT, "x");
    hd_text_printf(text,
                   ";\n}\nstatic inline %s put_%s(float x)\n{\n    return ",
                   code, name);
    hd_prelude_store(text, dtype, HD_LANE_FLOAT, "x");
    hd_text_puts(text, ";\n}\n");
}

// Where group `n` of a view that begins at `at` begins, as `v`.
static void add_place(hd_text *text, const hd_span *span)
{
    int last = span->ndims - 1;

    hd_text_printf(text,
                   "        i64 b = n / %lld;\n"
                   "        v += n %% %lld * %lld;\n",
                   (long long)(span->extent[last] / EACH),
                   (long long)(span->extent[last] / EACH),
                   (long long)(EACH * span->stride[last]));
    for (int d = last - 1; d >= 0; d--)
        hd_text_printf(text,
                       "        v += b %% %lld * %lld;\n        b /= %lld;\n",
                       (long long)span->extent[d], (long long)span->stride[d],
                       (long long)span->extent[d]);
}

// Reads group `n` of a view to a register, or writes it.
static void add_mover(hd_text *text, const hd_span *span, bool load)
{
    hd_text_printf(text,
                   "static inline void %s(u64 at, i64 n, group &r)\n{\n"
                   "        code *v = (code *)at;\n",
                   load ? "load" : "store");
    add_place(text, span);
    if (has_vectors(span))
        hd_text_printf(text,
                       "        for (int w = 0; w < WORDS; w++)\n"
                       "            %s;\n",
                       load ? "r.w[w] = ((const word *)v)[w]"
                            : "((word *)v)[w] = r.w[w]");
    else
        hd_text_printf(text,
                       "        for (int e = 0; e < EACH; e++)\n"
                       "            %s;\n",
                       load ? "r.e[e] = v[e * APART]"
                            : "v[e * APART] = r.e[e]");
    hd_text_puts(text, "}\n");
}

// Of a view, in a namespace: what a group of it is, how it is read and written.
static void add_side(hd_text *text, const char *name, const hd_span *span)
{
    hd_dtype dtype = span->buffer->type.dtype;

    hd_text_printf(text, "namespace %s {\n", name);
    add_conversions(text, "view", dtype);
    hd_text_printf(text,
                   "typedef %s code;\n"
                   "enum { WORDS = %d };\n"
                   "static constexpr i64 APART = %lld;\n"
                   "union group { word w[WORDS]; code e[EACH]; };\n",
                   hd_code_text(dtype), (int)(EACH * hd_dtype_size(dtype) / 16),
                   (long long)span->stride[span->ndims - 1]);
    add_mover(text, span, true);
    add_mover(text, span, false);
    hd_text_puts(text, "}\n");
}

static const char *change(hd_dense what)
{
    switch (what) {
    case HD_DENSE_TAKE:
        return "p.e[e] = put_dense(to::get_view(r.e[e]))";
    case HD_DENSE_STORE:
        return "r.e[e] = to::put_view(get_dense(p.e[e]))";
    case HD_DENSE_ADD:
        return "r.e[e] = to::put_view(was::get_view(q.e[e]) + "
               "get_dense(p.e[e]))";
    case HD_DENSE_CLEAR:
        break;
    }
    return "r.e[e] = 0";
}

static void add_view(hd_text *text, int i, const hd_dense_view *view)
{
    const hd_span *span = view->span;
    bool adds = view->what == HD_DENSE_ADD;

    assert(span->extent[span->ndims - 1] % EACH == 0);
    hd_text_printf(text, "namespace view%d {\n", i);
    add_side(text, "to", span);
    if (view->before != NULL)
        add_side(text, "was", view->before);
    else
        hd_text_puts(text, "namespace was = to;\n");
    hd_text_printf(
        text,
        "static constexpr i64 GROUPS = %lld;\n"
        "static inline void move(u64 at, u64 side, u64 before, i64 first, "
        "i64 step)\n"
        "{\n"
        "    for (i64 n = first; n < GROUPS; n += step) {\n"
        "        to::group r;\n"
        "        dense p;\n",
        (long long)(hd_span_elements(span) / EACH));
    if (view->what == HD_DENSE_TAKE)
        hd_text_puts(text, "        to::load(at, n, r);\n");
    if (adds)
        hd_text_puts(text, "        was::group q;\n"
                           "        was::load(before, n, q);\n");
    if (adds || view->what == HD_DENSE_STORE)
        hd_text_puts(text, "        p = ((const dense *)side)[n];\n");
    hd_text_printf(text,
                   "        for (int e = 0; e < EACH; e++)\n            %s;\n",
                   change(view->what));
    hd_text_puts(text, view->what == HD_DENSE_TAKE
                           ? "        ((dense *)side)[n] = p;\n"
                           : "        to::store(at, n, r);\n");
    hd_text_puts(text,
                 "        (void)p;\n        (void)before;\n    }\n}\n}\n");
}

hd_status hd_emit_dense(const hd_dense_view *view, int n, hd_dtype dtype,
                        hd_text *out, hd_kernel_grid *grid)
{
    hd_text text = {0};
    int64_t most = 0;

    hd_text_printf(&text,
                   "enum { EACH = %d };\n"
                   "struct alignas(16) word {\n    u32 bits[4];\n};\n"
                   "struct alignas(16) dense {\n    %s e[EACH];\n};\n",
                   EACH, hd_code_text(dtype));
    add_conversions(&text, "dense", dtype);
    for (int i = 0; i < n; i++) {
        int64_t groups = hd_span_elements(view[i].span) / EACH;

        add_view(&text, i, &view[i]);
        most = groups > most ? groups : most;
    }
    hd_text_puts(&text,
                 "extern \"C\" __global__ void HD_BOUNDS(4) " HD_KERNEL_NAME
                 "(const hd_kernel_args args)\n"
                 "{\n"
                 "    const i64 step = (i64)gridDim.x * blockDim.x;\n"
                 "    const i64 first = (i64)blockIdx.x * blockDim.x + "
                 "threadIdx.x;\n");
    for (int i = 0; i < n; i++)
        hd_text_printf(
            &text,
            "    view%d::move(args.at[%d], args.at[%d], args.at[%d], first, "
            "step);\n",
            i, 3 * i, 3 * i + 1, 3 * i + 2);
    hd_text_puts(&text, "}\n");
    HD_TRY(hd_prelude_finish(out, &text, 3 * n, 0));
    *grid = hd_prelude_grid(most, BLOCKS_AT_ONCE);
    grid->pointers = 3 * n;
    grid->sizes = 0;
    return HD_OK;
}
