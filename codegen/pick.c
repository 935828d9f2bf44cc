// Kernels that read data and say by it what goes where. Threads know nothing of
// one another: each reads all that what it writes depends on, so that the
// answer is the same whatever the grid is.
//
//     route   a thread has some of the entries for one expert: it counts those
//             before them, and goes on from there. All threads count alike, so
//             that each of them knows which places are left over.
//     top_k   a thread has a row: the greatest of those that come after the
//             one before, again and again.
#include "codegen/pick.h"

#include "codegen/batch.h"
#include "codegen/body.h"
#include "codegen/prelude.h"

enum { PARTS = 32 };

static const char *const names[HD_PICK_VIEWS] = {"v0", "v1", "v2", "v3"};

// All of a view's elements are within reach of an int.
static bool is_short(const hd_batch *k, int view)
{
    const hd_span *span = &k->step->span[view];
    int64_t last = 0;

    for (int d = hd_batch_dims(k); d < span->ndims; d++)
        last += (hd_length_of(k->step, view, d).room - 1) * span->stride[d];
    return last < INT32_MAX / 2;
}

// ------------------------------------------------------------------ route

// Entry `j` of the two dimensions that are last in view `i`.
static void add_entry(hd_batch *k, const char *name, int i)
{
    int d = hd_batch_dims(k);
    long long rows = k->step->span[i].stride[d];
    long long columns = k->step->span[i].stride[d + 1];
    hd_length across = hd_length_of(k->step, i, d + 1);

    if (!across.sized && rows == across.now * columns)
        hd_text_printf(&k->text, "#define %s(j) %s[(j) * (index)%lld]\n", name,
                       names[i], columns);
    else
        hd_text_printf(&k->text,
                       "#define %s(j) %s[(j) / (index)K * %lld + "
                       "(j) %% (index)K * %lld]\n",
                       name, names[i], rows, columns);
}

static const char route_text[] =
    "        const index all = (index)(T * K);\n"
    "        const index share = (all + PARTS - 1) / PARTS;\n"
    "        const index from = part * share < all ? part * share : all;\n"
    "        const index past = all - from < share ? all : from + share;\n"
    "        index n = 0, j = 0;\n"
    "#pragma unroll 8\n"
    "        for (; j < from; j++)\n"
    "            n += EXPERT(j) == e;\n"
    "        for (; j < past; j++) {\n"
    "            const index who = EXPERT(j);\n"
    "            i64 place = -1;\n"
    // Who wants no expert that there is, is told so by those of the first one.
    "            const bool mine = who == e && e < E;\n"
    "            if (!mine && (e > 0 || (who >= 0 && who < E)))\n"
    "                continue;\n"
    "            if (mine && n++ < CAP) {\n"
    "                TOKEN(n - 1) = (int)(j / (index)K);\n"
    "                place = e * CAP + n - 1;\n"
    "            }\n"
    "            SLOT(j) = (int)place;\n"
    "        }\n"
    "#pragma unroll 8\n"
    "        for (; j < all; j++)\n"
    "            n += EXPERT(j) == e;\n"
    "        const i64 kept = n < CAP ? n : CAP;\n"
    "        for (i64 c = kept + part; c < CAP && e < E; c += PARTS)\n"
    "            TOKEN(c) = -1;\n"
    "        if (part == 0 && e < E)\n"
    "            COUNT = (int)kept;\n"
    "    }\n"
    "}\n"
    "#undef EXPERT\n"
    "#undef SLOT\n"
    "#undef TOKEN\n"
    "#undef COUNT\n";

static hd_status emit_route(const hd_step *step, hd_text *out,
                            hd_kernel_grid *grid)
{
    hd_batch k = {.step = step};
    int d = hd_batch_dims(&k);
    const hd_span *token = &step->span[0];
    int64_t batch, experts;

    hd_text_printf(&k.text, "typedef %s index;\nenum { PARTS = %d };\n",
                   is_short(&k, 1) && is_short(&k, 3) ? "int" : "i64", PARTS);
    add_entry(&k, "EXPERT", 3);
    add_entry(&k, "SLOT", 1);
    hd_text_printf(&k.text,
                   "#define TOKEN(c) v0[e * %lld + (c) * (i64)%lld]\n"
                   "#define COUNT v2[e * %lld]\n",
                   (long long)token->stride[d], (long long)token->stride[d + 1],
                   (long long)step->span[2].stride[d]);
    hd_batch_begin(&k);
    batch = hd_batch_lengths(&k);
    experts = hd_batch_length(&k, "E", 0, d);
    hd_batch_length(&k, "CAP", 0, d + 1);
    hd_batch_length(&k, "T", 3, d);
    hd_batch_length(&k, "K", 3, d + 1);
    hd_text_puts(&k.text, "    const i64 ROWS = E > 0 ? E : 1;\n"
                          "    for (i64 i = first; i < PARTS * ROWS");
    hd_batch_product(&k);
    hd_text_puts(&k.text, "; i += step) {\n"
                          "        const int part = (int)(i % PARTS);\n"
                          "        const i64 e = i / PARTS % ROWS;\n");
    hd_text_puts(&k.text, d > 0 ? "        i64 b = i / PARTS / ROWS;\n" : "");
    hd_batch_views(&k);
    hd_text_puts(&k.text, route_text);
    return hd_batch_end(&k, batch * (experts > 0 ? experts : 1) * PARTS, out,
                        grid);
}

// ------------------------------------------------------------------ top_k

static const char greater_text[] =
    // A NaN is greater than every number.
    "static inline bool is_greater(lane x, lane y)\n"
    "{\n"
    "    return x > y || (x != x && y == y);\n"
    "}\n"
    "static inline lane value(code x)\n"
    "{\n"
    "    return ";

static const char top_k_text[] =
    "        lane last = 0, best = 0;\n"
    "        i64 before = -1;\n"
    "        for (i64 j = 0; j < K; j++) {\n"
    "            i64 found = -1;\n"
    "            for (i64 c = 0; c < N; c++) {\n"
    "                const lane x = value(v2[c * X_N]);\n"
    "                if (before >= 0 && (is_greater(x, last) ||\n"
    "                    (c <= before && !is_greater(last, x))))\n"
    "                    continue;\n"
    "                if (found < 0 || is_greater(x, best)) {\n"
    "                    best = x;\n"
    "                    found = c;\n"
    "                }\n"
    "            }\n"
    "            v0[j * V_K] = v2[found * X_N];\n"
    "            v1[j * I_K] = (int)found;\n"
    "            last = best;\n"
    "            before = found;\n"
    "        }\n"
    "    }\n"
    "}\n";

static hd_status emit_top_k(const hd_step *step, hd_text *out,
                            hd_kernel_grid *grid)
{
    hd_batch k = {.step = step};
    hd_dtype dtype = step->span[2].buffer->type.dtype;
    hd_lane lane = hd_body_lane(dtype);
    int d = hd_batch_dims(&k);
    int64_t batch;

    hd_text_printf(&k.text,
                   "typedef %s code;\ntypedef %s lane;\n"
                   "static constexpr i64 V_K = %lld, I_K = %lld, X_N = %lld;\n",
                   hd_code_text(dtype), hd_lane_text(lane),
                   (long long)step->span[0].stride[d],
                   (long long)step->span[1].stride[d],
                   (long long)step->span[2].stride[d]);
    hd_text_puts(&k.text, greater_text);
    hd_prelude_load(&k.text, dtype, lane, "x");
    hd_text_puts(&k.text, ";\n}\n");
    hd_batch_begin(&k);
    batch = hd_batch_lengths(&k);
    hd_batch_length(&k, "K", 0, d);
    hd_batch_length(&k, "N", 2, d);
    hd_text_puts(&k.text, "    for (i64 i = first; i < 1");
    hd_batch_product(&k);
    hd_text_puts(&k.text, "; i += step) {\n");
    hd_text_puts(&k.text, d > 0 ? "        i64 b = i;\n" : "");
    hd_batch_views(&k);
    hd_text_puts(&k.text, top_k_text);
    return hd_batch_end(&k, batch, out, grid);
}

hd_status hd_pick_emit(const hd_step *step, hd_text *out, hd_kernel_grid *grid)
{
    switch (hd_op_pick(step->op)) {
    case HD_PICK_ROUTE:
        return emit_route(step, out, grid);
    case HD_PICK_TOP_K:
        return emit_top_k(step, out, grid);
    case HD_PICK_NONE:
        break;
    }
    return HD_ERROR_UNSUPPORTED; // hd_emit_step asks for ops of the family
                                 // alone
}
