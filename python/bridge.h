// What Python needs and the public headers do not have: a whole run in one
// call, arrays of DLPack from their capsules, and the other way round.
//
// A capsule that has been taken from is renamed, as DLPack demands, only where
// its deleter changes hands. Here it does not: the caller keeps the capsule
// until the run has ended, and it frees what it holds by itself.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "dlpack.h"

typedef struct heddle_managed {
    struct DLTensor array;
    void *context;
    void (*deleter)(struct heddle_managed *managed);
    int64_t extent[HD_MAX_DIMS], stride[HD_MAX_DIMS]; // behind DLPack's own
} heddle_managed;

// The interpreter's lock is not held: these functions only compare a type and a
// name and read a pointer, of an object that the caller has.
static hd_status heddle_take(const hd_session *session, size_t i,
                             uintptr_t object, hd_diag *diag, int64_t *strides,
                             void **out)
{
    PyObject *capsule = (PyObject *)object;

    if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        return hd_dlpack_managed(
            session, i,
            (const struct DLManagedTensorVersioned *)PyCapsule_GetPointer(
                capsule, "dltensor_versioned"),
            diag, strides, out);
    // The older struct begins with the array itself.
    if (PyCapsule_IsValid(capsule, "dltensor"))
        return hd_dlpack_argument(
            session, i,
            (const struct DLTensor *)PyCapsule_GetPointer(capsule, "dltensor"),
            diag, strides, out);
    return HD_ERROR_ARGUMENT;
}

// Whether an array may be argument `i` in every run, dense as it then has to
// be.
static hd_status heddle_fits(const hd_session *session, size_t i,
                             uintptr_t capsule, hd_diag *diag)
{
    void *address;

    return heddle_take(session, i, capsule, diag, NULL, &address);
}

// Where the array of a capsule lies; NULL if it has no memory, or is no such
// capsule.
static void *heddle_address(uintptr_t object)
{
    PyObject *capsule = (PyObject *)object;
    const struct DLTensor *array = NULL;

    if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
        const struct heddle_versioned *versioned =
            (const struct heddle_versioned *)PyCapsule_GetPointer(
                capsule, "dltensor_versioned");

        array = versioned->version.major == 1 ? &versioned->array : NULL;
    } else if (PyCapsule_IsValid(capsule, "dltensor")) {
        array =
            (const struct DLTensor *)PyCapsule_GetPointer(capsule, "dltensor");
    }
    return array == NULL || array->data == NULL
               ? NULL
               : (char *)array->data + array->byte_offset;
}

// Issues a run of `n` arguments: of each a capsule, or 0 where addresses[i] and
// rows[i] are there already. `strides` has HD_MAX_DIMS for each, `rows` room
// for n pointers. HD_ERROR_ARGUMENT without a message: an object is no such
// capsule.
static hd_status heddle_run(hd_session *session, size_t n,
                            const uintptr_t *capsules, void **addresses,
                            int64_t *strides, const int64_t **rows,
                            const hd_run_options *options, hd_diag *diag)
{
    for (size_t i = 0; i < n; i++) {
        int64_t *row = strides + i * HD_MAX_DIMS;
        hd_status status;

        if (capsules[i] == 0)
            continue;
        status = heddle_take(session, i, capsules[i], diag, row, &addresses[i]);
        if (status != HD_OK)
            return status;
        rows[i] = row;
    }
    return hd_session_run(session, addresses, n, options, diag);
}

// ------------------------------------------------------------ arrays given out

// On any thread, and perhaps when there is no interpreter any more.
static void heddle_delete(heddle_managed *managed)
{
    PyObject *owner = (PyObject *)managed->context;

    if (owner != NULL && Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();

        Py_DecRef(owner);
        PyGILState_Release(state);
    }
    free(managed);
}

// The destructor of capsules with what heddle_export made: who has taken it has
// renamed the capsule, and frees it by itself.
static void heddle_free_capsule(void *capsule)
{
    if (PyCapsule_IsValid((PyObject *)capsule, "dltensor"))
        heddle_delete((heddle_managed *)PyCapsule_GetPointer(
            (PyObject *)capsule, "dltensor"));
}

// Code and bits of each dtype in DLPack's terms.
static const uint8_t heddle_dtypes[][2] = {
    [HD_DTYPE_F64] = {2, 64},    [HD_DTYPE_F32] = {2, 32},
    [HD_DTYPE_F16] = {2, 16},    [HD_DTYPE_BF16] = {4, 16},
    [HD_DTYPE_F8E4M3] = {10, 8}, [HD_DTYPE_F8E5M2] = {12, 8},
    [HD_DTYPE_I64] = {0, 64},    [HD_DTYPE_I32] = {0, 32},
    [HD_DTYPE_U8] = {1, 8},      [HD_DTYPE_I8] = {0, 8},
};

static PyObject *heddle_hold(uintptr_t object)
{
    PyGILState_STATE state = PyGILState_Ensure();

    Py_IncRef((PyObject *)object);
    PyGILState_Release(state);
    return (PyObject *)object;
}

// A view as DLPack has it, which keeps the object `owner`, or 0: then its
// memory is there for a call. NULL if memory runs out.
static void *heddle_export(const hd_call_view *view, int32_t device,
                           int32_t ordinal, uintptr_t owner)
{
    heddle_managed *managed = calloc(1, sizeof *managed);

    if (managed == NULL)
        return NULL;
    managed->context = owner == 0 ? NULL : heddle_hold(owner);
    memcpy(managed->extent, view->extent, sizeof managed->extent);
    memcpy(managed->stride, view->stride, sizeof managed->stride);
    managed->array.data = view->address;
    managed->array.device.type = device;
    managed->array.device.id = ordinal;
    managed->array.ndim = view->ndims;
    managed->array.dtype.code = heddle_dtypes[view->dtype][0];
    managed->array.dtype.bits = heddle_dtypes[view->dtype][1];
    managed->array.dtype.lanes = 1;
    managed->array.shape = managed->extent;
    managed->array.strides = managed->stride;
    managed->deleter = heddle_delete;
    return managed;
}

// ------------------------------------------------------------------ processes

// No rank outlives the process that launched it, however that ends.
static void heddle_die_with_parent(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}
