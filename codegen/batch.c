#include "codegen/batch.h"

#include <stdio.h>

#include "codegen/prelude.h"

enum { BLOCKS_AT_ONCE = 4 };

int hd_batch_dims(const hd_batch *k)
{
    return hd_op_batch(k->step->op, 0, k->step->span[0].ndims);
}

int64_t hd_batch_length(hd_batch *k, const char *name, int view, int d)
{
    hd_length length = hd_length_of(k->step, view, d);

    if (length.sized) {
        hd_text_printf(&k->text, "    const i64 %s = (i64)args.size[%d];\n",
                       name, k->sizes);
        k->size[k->sizes++] = length.now;
    } else {
        hd_text_printf(&k->text, "    const i64 %s = %lld;\n", name,
                       (long long)length.now);
    }
    return length.now;
}

int64_t hd_batch_lengths(hd_batch *k)
{
    int64_t n = 1;

    for (int d = 0; d < hd_batch_dims(k); d++) {
        char name[16];

        snprintf(name, sizeof name, "B%d", d);
        n *= hd_batch_length(k, name, 0, d);
    }
    return n;
}

void hd_batch_product(hd_batch *k)
{
    for (int d = 0; d < hd_batch_dims(k); d++)
        hd_text_printf(&k->text, " * B%d", d);
}

// How far apart indices of dimension `d` of the batch are in a view, 0 where it
// repeats.
static int64_t stride_of(const hd_batch *k, int view, int d)
{
    const hd_span *span = &k->step->span[view];
    int own =
        d - hd_batch_dims(k) + hd_op_batch(k->step->op, view, span->ndims);
    hd_length length;

    if (own < 0)
        return 0;
    length = hd_length_of(k->step, view, own);
    return length.now == 1 && !length.sized ? 0 : span->stride[own];
}

void hd_batch_views(hd_batch *k)
{
    const hd_step *step = k->step;
    int n = step->op->nviews;

    for (int i = 0; i < n; i++) {
        const char *constant = i < step->op->noutputs ? "" : "const ";
        const char *code = hd_code_text(step->span[i].buffer->type.dtype);

        hd_text_printf(&k->text, "        %s%s *v%d = (%s%s *)args.at[%d];\n",
                       constant, code, i, constant, code, i);
    }
    for (int d = hd_batch_dims(k) - 1; d >= 0; d--) {
        for (int i = 0; i < n; i++)
            if (stride_of(k, i, d) != 0)
                hd_text_printf(&k->text, "        v%d += b %% B%d * %lld;\n", i,
                               d, (long long)stride_of(k, i, d));
        hd_text_printf(&k->text, "        b /= B%d;\n", d);
    }
}

void hd_batch_begin(hd_batch *k)
{
    hd_text_puts(&k->text,
                 "extern \"C\" __global__ void HD_BOUNDS(4) " HD_KERNEL_NAME
                 "(const hd_kernel_args args)\n"
                 "{\n"
                 "    const i64 step = (i64)gridDim.x * "
                 "blockDim.x;\n"
                 "    const i64 first = (i64)blockIdx.x * "
                 "blockDim.x + threadIdx.x;\n");
}

hd_status hd_batch_end(hd_batch *k, int64_t threads, hd_text *out,
                       hd_kernel_grid *grid)
{
    HD_TRY(hd_prelude_finish(out, &k->text, k->step->op->nviews, k->sizes));
    *grid = hd_prelude_grid(threads, BLOCKS_AT_ONCE);
    grid->pointers = k->step->op->nviews;
    grid->sizes = k->sizes;
    for (int i = 0; i < k->sizes; i++)
        grid->size[i] = k->size[i];
    return HD_OK;
}
