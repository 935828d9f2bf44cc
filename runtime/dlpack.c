// Arrays that other libraries describe by DLPack 1.
#include <heddle/dlpack.h>

#include <inttypes.h>

#include "base/text.h"
#include "ir/module.h"
#include "runtime/driver.h"

// ------------------------------------------------- as DLPack 1 lays them out

enum { ON_CPU = 1, ON_CUDA = 2, ON_CUDA_HOST = 3, ON_CUDA_MANAGED = 13 };
enum { MAJOR = 1, READ_ONLY = 1 };

typedef struct dl_dtype {
    uint8_t code, bits;
    uint16_t lanes;
} dl_dtype;

struct DLTensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    dl_dtype dtype;
    const int64_t *shape, *strides; // in elements; strides may be NULL
    uint64_t byte_offset;
};

struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *context;
    void (*deleter)(struct DLManagedTensorVersioned *);
    uint64_t flags;
    struct DLTensor array;
};

// ------------------------------------------------------------------- checks

// Zero for what is no dtype of DLPack.
static dl_dtype dtype_of(hd_dtype dtype)
{
    enum { INT = 0, UINT = 1, FLOAT = 2, BFLOAT = 4, E4M3FN = 10, E5M2 = 12 };

    switch (dtype) {
    case HD_DTYPE_F64:
        return (dl_dtype){FLOAT, 64, 1};
    case HD_DTYPE_F32:
        return (dl_dtype){FLOAT, 32, 1};
    case HD_DTYPE_F16:
        return (dl_dtype){FLOAT, 16, 1};
    case HD_DTYPE_BF16:
        return (dl_dtype){BFLOAT, 16, 1};
    case HD_DTYPE_F8E4M3:
        return (dl_dtype){E4M3FN, 8, 1};
    case HD_DTYPE_F8E5M2:
        return (dl_dtype){E5M2, 8, 1};
    case HD_DTYPE_I64:
        return (dl_dtype){INT, 64, 1};
    case HD_DTYPE_I32:
        return (dl_dtype){INT, 32, 1};
    case HD_DTYPE_U8:
        return (dl_dtype){UINT, 8, 1};
    case HD_DTYPE_I8:
        return (dl_dtype){INT, 8, 1};
    case HD_DTYPE_EVENT:
        break;
    }
    return (dl_dtype){0};
}

static hd_status check_dtype(const hd_buffer *argument,
                             const struct DLTensor *array, hd_diag *diag)
{
    dl_dtype want = dtype_of(argument->type.dtype), have = array->dtype;

    if (want.lanes == 0)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "%%%s is an event: no array can be one", argument->name);
    if (have.code == want.code && have.bits == want.bits &&
        have.lanes == want.lanes)
        return HD_OK;
    return hd_fail(diag, HD_ERROR_ARGUMENT,
                   "%%%s is %s, in DLPack's terms code %d of %d bits and %d "
                   "lane; the array is code %d of %d bits and %d",
                   argument->name, hd_dtype_text(argument->type.dtype),
                   want.code, want.bits, want.lanes, have.code, have.bits,
                   have.lanes);
}

static hd_status check_device(const hd_session *session,
                              const hd_buffer *argument,
                              const struct DLTensor *array, hd_diag *diag)
{
    int ordinal = hd_session_ordinal(session);
    int32_t type = array->device.type;
    bool here = ordinal < 0
                    ? type == ON_CPU || type == ON_CUDA_HOST
                    : (type == ON_CUDA && array->device.id == ordinal) ||
                          type == ON_CUDA_MANAGED;

    if (here)
        return HD_OK;
    if (ordinal < 0)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "the session is on the cpu, DLPack's device type %d; "
                       "the array for %%%s is on type %" PRId32
                       ", number %" PRId32,
                       ON_CPU, argument->name, type, array->device.id);
    return hd_fail(diag, HD_ERROR_ARGUMENT,
                   "the session is on cuda:%d, DLPack's device type %d; the "
                   "array for %%%s is on type %" PRId32 ", number %" PRId32,
                   ordinal, ON_CUDA, argument->name, type, array->device.id);
}

static void put_extents(hd_text *text, const int64_t *extent, int n)
{
    hd_text_puts(text, "[");
    for (int d = 0; d < n; d++)
        hd_text_printf(text, "%s%" PRId64, d > 0 ? ", " : "", extent[d]);
    hd_text_puts(text, "]");
}

// Tells two lists of extents, or of strides.
static hd_status refuse(const hd_buffer *argument, const char *what,
                        const int64_t *want, int nwant, const int64_t *have,
                        int nhave, hd_diag *diag)
{
    hd_text text = {0};
    hd_status status = HD_ERROR_ARGUMENT;

    put_extents(&text, want, nwant);
    hd_text_printf(&text, "; the array's %s are ", what);
    put_extents(&text, have, nhave);
    if (text.failed)
        status = hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for a message");
    else
        status = hd_fail(diag, status, "%%%s: %s on this rank are %s",
                         argument->name, what, text.bytes);
    hd_text_free(&text);
    return status;
}

// From one list of extents to another with those of one index left out.
static int leave_out_ones(const int64_t *extent, int n, int64_t *out)
{
    int kept = 0;

    for (int d = 0; d < n; d++)
        if (extent[d] != 1)
            out[kept++] = extent[d];
    return kept;
}

static hd_status check_extents(const hd_buffer *argument,
                               const struct DLTensor *array, hd_diag *diag)
{
    int64_t local[HD_MAX_DIMS], want[HD_MAX_DIMS], have[HD_MAX_DIMS];
    int ndims = argument->type.ndims, nwant, nhave = 0;
    bool same;

    for (int d = 0; d < ndims; d++)
        local[d] = hd_dim_local(argument->type.dim[d]);
    nwant = leave_out_ones(local, ndims, want);
    for (int d = 0; d < array->ndim && nhave <= nwant; d++) {
        if (array->shape[d] == 1)
            continue;
        if (nhave < nwant)
            have[nhave] = array->shape[d];
        nhave++;
    }
    same = nhave == nwant;
    for (int d = 0; d < nwant && same; d++)
        same = have[d] == want[d];
    if (same)
        return HD_OK;
    return refuse(argument, "extents", local, ndims, array->shape, array->ndim,
                  diag);
}

// The extents are known to be right.
static hd_status check_strides(const hd_buffer *argument,
                               const struct DLTensor *array, hd_diag *diag)
{
    int64_t dense[HD_MAX_DIMS], have[HD_MAX_DIMS], stride = 1;
    int n = 0;
    bool same = true;

    if (array->strides == NULL)
        return HD_OK;
    for (int d = array->ndim - 1; d >= 0; d--) {
        if (array->shape[d] == 1)
            continue;
        dense[HD_MAX_DIMS - 1 - n] = stride;
        have[HD_MAX_DIMS - 1 - n++] = array->strides[d];
        same &= array->strides[d] == stride;
        stride *= array->shape[d];
    }
    // What has no element lies anywhere.
    if (same || stride == 0)
        return HD_OK;
    return refuse(argument, "strides", dense + HD_MAX_DIMS - n, n,
                  have + HD_MAX_DIMS - n, n, diag);
}

static hd_status check_array(const hd_session *session, size_t i,
                             const struct DLTensor *array, hd_diag *diag,
                             const hd_buffer **out)
{
    const hd_module *module = hd_session_module(session);

    if (i >= (size_t)module->narguments)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "'%s' takes %d arguments: there is none of number %zu",
                       module->name, module->narguments, i);
    *out = module->argument[i];
    if (array->ndim < 0 || (array->ndim > 0 && array->shape == NULL))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "the array for %%%s has no shape", (*out)->name);
    HD_TRY(check_dtype(*out, array, diag));
    HD_TRY(check_device(session, *out, array, diag));
    return check_extents(*out, array, diag);
}

// By dimension of the argument. The extents are known to be right.
static void tell_strides(const hd_buffer *argument,
                         const struct DLTensor *array, int64_t *out)
{
    int64_t dense = 1;
    int d = array->ndim;

    for (int i = argument->type.ndims - 1; i >= 0; i--) {
        int64_t local = hd_dim_local(argument->type.dim[i]);

        out[i] = dense;
        if (local == 1)
            continue;
        do
            d--;
        while (array->shape[d] == 1);
        if (array->strides != NULL)
            out[i] = array->strides[d];
        dense *= local;
    }
}

hd_status hd_dlpack_argument(const hd_session *session, size_t i,
                             const struct DLTensor *array, hd_diag *diag,
                             int64_t *strides, void **out)
{
    const hd_buffer *argument;

    HD_REQUIRE(diag, session);
    HD_REQUIRE(diag, array);
    HD_REQUIRE(diag, out);
    HD_TRY(check_array(session, i, array, diag, &argument));
    if (strides == NULL)
        HD_TRY(check_strides(argument, array, diag));
    if (array->data == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "the array for %%%s has no data", argument->name);
    if (strides != NULL)
        tell_strides(argument, array, strides);
    *out = (char *)array->data + array->byte_offset;
    return HD_OK;
}

hd_status hd_dlpack_managed(const hd_session *session, size_t i,
                            const struct DLManagedTensorVersioned *array,
                            hd_diag *diag, int64_t *strides, void **out)
{
    const hd_buffer *argument;

    HD_REQUIRE(diag, session);
    HD_REQUIRE(diag, array);
    HD_REQUIRE(diag, out);
    if (array->version.major != MAJOR)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "the array is described by DLPack %" PRIu32 ".%" PRIu32
                       "; heddle %s reads %d.*",
                       array->version.major, array->version.minor, HD_VERSION,
                       MAJOR);
    HD_TRY(check_array(session, i, &array->array, diag, &argument));
    if ((array->flags & READ_ONLY) && argument->role != HD_ROLE_IN)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "%%%s is written, and the array may only be read",
                       argument->name);
    return hd_dlpack_argument(session, i, &array->array, diag, strides, out);
}
