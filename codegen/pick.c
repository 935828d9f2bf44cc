// Kernels that read data and say by it what goes where. Blocks know nothing of
// one another: each reads all that what it writes depends on, so that the
// answer is the same however many there are.
#include "codegen/pick.h"

#include "codegen/batch.h"
#include "codegen/body.h"
#include "codegen/prelude.h"

// How many threads have a row of a top_k, and how many numbers of it they hold
// at most.
enum { WARP = 32, HELD = 512 };

// Of a route, at most; a thread reads so many entries, or more where it is one
// of the most.
enum { BLOCKS = 528, WARPS = 16, ENTRIES = 16 };

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

static int64_t within(int64_t n, int64_t most)
{
    return n < 1 ? 1 : n < most ? n : most;
}

static hd_status emit_route(const hd_step *step, hd_text *out,
                            hd_kernel_grid *grid)
{
    hd_batch k = {.step = step};
    int d = hd_batch_dims(&k);
    const hd_span *token = &step->span[0];
    int64_t batch, experts, entries;

    hd_text_printf(&k.text, "typedef %s index;\n#define MOST_WARPS %d\n",
                   is_short(&k, 1) && is_short(&k, 3) ? "int" : "i64", WARPS);
    add_entry(&k, "EXPERT", 3);
    add_entry(&k, "SLOT", 1);
    hd_text_printf(&k.text,
                   "#define TOKEN(c) v0[e * %lld + (c) * (i64)%lld]\n"
                   "#define COUNT v2[e * %lld]\n",
                   (long long)token->stride[d], (long long)token->stride[d + 1],
                   (long long)step->span[2].stride[d]);
    batch = hd_batch_begin(&k);
    experts = hd_batch_length(&k, "E", 0, d);
    hd_batch_length(&k, "CAP", 0, d + 1);
    entries = hd_batch_length(&k, "T", 3, d);
    entries *= hd_batch_length(&k, "K", 3, d + 1);
    HD_TRY(hd_batch_end(&k, hd_route_cu, 0, out, grid));
    grid->blocks = (unsigned)within(batch * experts, BLOCKS);
    grid->threads = WARP * (unsigned)within(entries / (WARP * ENTRIES), WARPS);
    return HD_OK;
}

// ------------------------------------------------------------------ top_k

static hd_status emit_top_k(const hd_step *step, hd_text *out,
                            hd_kernel_grid *grid)
{
    hd_batch k = {.step = step};
    hd_dtype dtype = step->span[2].buffer->type.dtype;
    hd_lane lane = hd_body_lane(dtype);
    int d = hd_batch_dims(&k);
    hd_length n = hd_length_of(step, 2, d);
    int64_t batch;

    hd_text_printf(&k.text,
                   "typedef %s code;\ntypedef %s lane;\n"
                   "#define HOLDS %d\n#define V_K %lldll\n#define I_K %lldll\n"
                   "#define X_N %lldll\n"
                   "static inline lane value(code x)\n{\n    return ",
                   hd_code_text(dtype),
                   dtype == HD_DTYPE_I32 || (lane == HD_LANE_INTEGER &&
                                             hd_dtype_size(dtype) == 1)
                       ? "int" // half as wide
                       : hd_lane_text(lane),
                   !n.sized && n.now > 0 && n.now <= HELD,
                   (long long)step->span[0].stride[d],
                   (long long)step->span[1].stride[d],
                   (long long)step->span[2].stride[d]);
    hd_prelude_load(&k.text, dtype, lane, "x");
    hd_text_puts(&k.text, ";\n}\n");
    batch = hd_batch_begin(&k);
    hd_batch_length(&k, "K", 0, d);
    hd_batch_length(&k, "N", 2, d);
    return hd_batch_end(&k, hd_top_k_cu, batch * WARP, out, grid);
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
