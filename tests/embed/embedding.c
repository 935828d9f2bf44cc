// The C of docs/embedding.md, with what it leaves out: it compiles.
#include <heddle/call.h>
#include <stdio.h>

int launch_gelu(void *kernels, void *stream, void *to, const void *from,
                int ndims, const int64_t *extent, const int64_t *stride);
void take_calls(hd_session_options *out, void *kernels);

// clang-format off
static hd_status gelu_fused(void *context, const hd_call_site *site)
{
    const hd_call_view *y = &site->result[0], *x = &site->operand[0];
    int failed = launch_gelu(context, site->stream, y->address, x->address, x->ndims, x->extent, x->stride);

    if (failed)
        snprintf(site->why, site->nwhy, "no launch: error %d", failed);
    return failed ? HD_ERROR_SYSTEM : HD_OK;
}
// clang-format on

void take_calls(hd_session_options *out, void *kernels)
{
    hd_session_options options = *out;

    hd_call calls[] = {{sizeof(hd_call), "gelu_fused", gelu_fused, kernels}};
    options.calls = calls;
    options.ncalls = 1;
    *out = options;
    out->calls = NULL; // which were this function's
}
