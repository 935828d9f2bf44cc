// Runs on tensors of PyTorch's that look like those of a run before: looked at,
// and issued, without Python between, which takes longer than a run takes to
// issue. PyTorch is not linked: it tells of tensors by DLPack's exchange API.
#define Py_LIMITED_API 0x03090000
#include <Python.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/heddle.h>

#include "dlpack.h"

enum { ALIGNED = 16 }; // bytes, of what a run on CUDA is given

typedef hd_status run_function(hd_session *, void *const *, size_t,
                               const hd_run_options *, hd_diag *);

// What one kind of run takes. Its session is NULL once that is closed.
typedef struct {
    // clang-format off
    PyObject_HEAD
    PyObject *keep; // what has `session` and `diag`
    // clang-format on
    PyObject *types;    // of tensors that are no subclass's
    PyObject *recent;   // a deque of the arrays of runs under way, or None
    PyObject *results;  // of each the arguments of new_empty_strided
    PyObject *watching; // functions: where one says yes, a run is no plain one
    PyObject *gradient; // None, True or the function that says whether tensors
                        // that need one are refused
    const struct heddle_exchange *exchange;
    run_function *run;
    hd_session *const *session;
    hd_diag *diag;
    Py_ssize_t n, ntensors, nresults;
    struct DLTensor *looks; // of tensors, with extents and strides of the
                            // plan's own, and no data
    Py_ssize_t *order; // of arguments, among tensors and then results
} Plan;

static PyObject *negative_name, *gradient_name, *empty_name, *exchange_name,
    *append_name, *pop_name;

static void forget(Plan *plan)
{
    PyObject *all[] = {plan->keep,    plan->types,    plan->recent,
                       plan->results, plan->watching, plan->gradient};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        Py_XDECREF(all[i]);
    for (Py_ssize_t i = 0; i < plan->ntensors; i++)
        free(plan->looks[i].shape);
    free(plan->looks);
    free(plan->order);
}

static void plan_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    forget((Plan *)self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static int set_order(Plan *plan, PyObject *order)
{
    Py_ssize_t all = plan->ntensors + plan->nresults;

    plan->n = PyTuple_Size(order);
    for (Py_ssize_t i = 0; i < plan->n; i++) {
        Py_ssize_t at = PyLong_AsSsize_t(PyTuple_GetItem(order, i));

        if (at < 0 || at >= all) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "an order of no arrays");
            return -1;
        }
        plan->order[i] = at;
    }
    return 0;
}

// Of the type of tensors; NULL with an exception.
static const struct heddle_exchange *find_exchange(PyObject *type)
{
    PyObject *capsule = PyObject_GetAttr(type, exchange_name);
    const struct heddle_exchange *found =
        capsule == NULL ? NULL
                        : (const struct heddle_exchange *)PyCapsule_GetPointer(
                              capsule, "dlpack_exchange_api");

    Py_XDECREF(capsule);
    while (found != NULL && found->version.major > 1)
        found = found->before;
    if (!PyErr_Occurred() &&
        (found == NULL || found->look == NULL || found->find_stream == NULL))
        PyErr_SetString(PyExc_ValueError,
                        "tensors that DLPack looks at slowly");
    return PyErr_Occurred() ? NULL : found;
}

static int set_looks(Plan *plan, PyObject *tensors)
{
    for (Py_ssize_t i = 0; i < PyList_Size(tensors); i++) {
        struct DLTensor *look = &plan->looks[i], seen;
        size_t bytes;

        if (plan->exchange->look(PyList_GetItem(tensors, i), &seen) != 0)
            return -1;
        if (seen.strides == NULL) {
            PyErr_SetString(PyExc_ValueError, "a tensor without strides");
            return -1;
        }
        bytes = sizeof(int64_t) * (size_t)seen.ndim;
        *look = seen;
        look->shape = malloc(2 * bytes + 1);
        if (look->shape == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        plan->ntensors = i + 1;
        look->strides = look->shape + seen.ndim;
        memcpy(look->shape, seen.shape, bytes);
        memcpy(look->strides, seen.strides, bytes);
    }
    return 0;
}

static int set_up(Plan *plan, PyObject *tensors, PyObject *order)
{
    Py_ssize_t n = PyList_Size(tensors), nresults = PyTuple_Size(plan->results);

    if (n == 0 || PyTuple_Size(plan->types) == 0) {
        PyErr_SetString(PyExc_ValueError, "a plan of no tensors");
        return -1;
    }
    plan->looks = calloc((size_t)n, sizeof *plan->looks);
    plan->order = calloc((size_t)PyTuple_Size(order) + 1, sizeof *plan->order);
    if (plan->looks == NULL || plan->order == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    plan->nresults = nresults;
    plan->exchange = find_exchange(PyTuple_GetItem(plan->types, 0));
    if (plan->exchange == NULL || set_looks(plan, tensors) != 0)
        return -1;
    return set_order(plan, order);
}

static PyObject *plan_new(PyTypeObject *type, PyObject *args, PyObject *names)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *keep, *recent, *types, *tensors, *results, *order, *watching,
        *gradient;
    unsigned long long run, session, diag;
    Plan *plan;

    (void)names;
    if (!PyArg_ParseTuple(
            args, "OOO!O!O!O!O!OKKK", &keep, &recent, &PyTuple_Type, &types,
            &PyList_Type, &tensors, &PyTuple_Type, &results, &PyTuple_Type,
            &order, &PyTuple_Type, &watching, &gradient, &run, &session, &diag))
        return NULL;
    plan = (Plan *)alloc(type, 0);
    if (plan == NULL)
        return NULL;
    Py_INCREF(plan->keep = keep);
    Py_INCREF(plan->recent = recent);
    Py_INCREF(plan->types = types);
    Py_INCREF(plan->results = results);
    Py_INCREF(plan->watching = watching);
    Py_INCREF(plan->gradient = gradient);
    plan->run = (run_function *)(uintptr_t)run;
    plan->session = (hd_session *const *)(uintptr_t)session;
    plan->diag = (hd_diag *)(uintptr_t)diag;
    if (set_up(plan, tensors, order) != 0) {
        Py_DECREF(plan);
        return NULL;
    }
    return (PyObject *)plan;
}

// ------------------------------------------------------- looking, 1 for yes, 0
// for no, -1 with an exception

static int is_one_of(PyObject *tensor, PyObject *types)
{
    for (Py_ssize_t i = 0; i < PyTuple_Size(types); i++)
        if ((PyObject *)Py_TYPE(tensor) == PyTuple_GetItem(types, i))
            return 1;
    return 0;
}

static int truth(PyObject *value)
{
    int is_true = value == NULL ? -1 : PyObject_IsTrue(value);

    Py_XDECREF(value);
    return is_true;
}

// What a tensor without memory says to being asked for it is a no.
static int no_or_failure(void)
{
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_RuntimeError))
        PyErr_Clear();
    return PyErr_Occurred() ? -1 : 0;
}

static void *data_of(const struct DLTensor *seen)
{
    return seen->data == NULL ? NULL : (char *)seen->data + seen->byte_offset;
}

static bool looks_like(const struct DLTensor *seen, const struct DLTensor *look)
{
    size_t bytes = sizeof(int64_t) * (size_t)look->ndim;

    return seen->ndim == look->ndim && seen->device.type == look->device.type &&
           seen->device.id == look->device.id &&
           seen->dtype.code == look->dtype.code &&
           seen->dtype.bits == look->dtype.bits &&
           seen->dtype.lanes == look->dtype.lanes &&
           memcmp(seen->shape, look->shape, bytes) == 0 &&
           seen->strides != NULL &&
           memcmp(seen->strides, look->strides, bytes) == 0;
}

static int fits(const Plan *plan, PyObject *tensors, void **addresses)
{
    if (*plan->session == NULL || PyList_Size(tensors) != plan->ntensors)
        return no_or_failure();
    for (Py_ssize_t i = 0; i < plan->ntensors; i++) {
        PyObject *tensor = PyList_GetItem(tensors, i);
        struct DLTensor seen;

        if (!is_one_of(tensor, plan->types) ||
            plan->exchange->look(tensor, &seen) != 0 ||
            !looks_like(&seen, &plan->looks[i]))
            return no_or_failure();
        addresses[i] = data_of(&seen);
        if (addresses[i] == NULL || (seen.device.type == HEDDLE_ON_CUDA &&
                                     (uintptr_t)addresses[i] % ALIGNED != 0))
            return 0;
    }
    return 1;
}

// Whether nothing but a run would look at tensors.
static int is_plain(const Plan *plan, PyObject *tensors)
{
    PyObject *gradient = plan->gradient;
    int refuses = gradient == Py_None ? 0
                  : gradient == Py_True
                      ? 1
                      : truth(PyObject_CallFunctionObjArgs(gradient, NULL));

    if (refuses < 0)
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_Size(plan->watching); i++)
        if (truth(PyObject_CallFunctionObjArgs(
                PyTuple_GetItem(plan->watching, i), NULL)) != 0)
            return no_or_failure();
    for (Py_ssize_t i = 0; i < PyList_Size(tensors); i++) {
        PyObject *tensor = PyList_GetItem(tensors, i);

        if (!is_one_of(tensor, plan->types) ||
            truth(PyObject_CallMethodObjArgs(tensor, negative_name, NULL)) != 0)
            return no_or_failure();
        if (refuses && truth(PyObject_GetAttr(tensor, gradient_name)) != 0)
            return no_or_failure();
    }
    return 1;
}

// --------------------------------------------------------------------- issuing

// A list, and where each lies.
static PyObject *make_results(const Plan *plan, PyObject *first,
                              void **addresses)
{
    PyObject *made = PyList_New(plan->nresults);
    PyObject *make =
        plan->nresults == 0 ? NULL : PyObject_GetAttr(first, empty_name);

    for (Py_ssize_t i = 0; made != NULL && i < plan->nresults; i++) {
        struct DLTensor seen;
        PyObject *result =
            make == NULL
                ? NULL
                : PyObject_CallObject(make, PyTuple_GetItem(plan->results, i));

        if (result == NULL || plan->exchange->look(result, &seen) != 0) {
            Py_XDECREF(result);
            Py_CLEAR(made);
            break;
        }
        addresses[i] = data_of(&seen);
        PyList_SetItem(made, i, result);
    }
    Py_XDECREF(make);
    return made;
}

// Keeps what a run reads and writes, ahead of it: an exception of a signal's
// handler may come as soon as Python goes on.
static bool keep_arrays(const Plan *plan, PyObject *tensors, PyObject *made)
{
    PyObject *arrays, *done;

    if (plan->recent == Py_None)
        return true;
    arrays = PyTuple_Pack(2, tensors, made);
    done = arrays == NULL ? NULL
                          : PyObject_CallMethodObjArgs(
                                plan->recent, append_name, arrays, NULL);
    Py_XDECREF(arrays);
    Py_XDECREF(done);
    return done != NULL;
}

static PyObject *end_refused(const Plan *plan, PyObject *made, hd_status status)
{
    if (plan->recent != Py_None)
        Py_XDECREF(PyObject_CallMethodObjArgs(plan->recent, pop_name, NULL));
    Py_DECREF(made);
    return PyErr_Occurred() ? NULL : PyLong_FromLong(status);
}

// `addresses` has those of the tensors, and room for results and arguments.
static PyObject *issue_at(const Plan *plan, PyObject *tensors, void **addresses)
{
    hd_run_options options = {.size = sizeof options};
    void **arguments = addresses + plan->ntensors + plan->nresults;
    PyObject *made;
    hd_status status;

    if (plan->looks[0].device.type == HEDDLE_ON_CUDA &&
        plan->exchange->find_stream(HEDDLE_ON_CUDA, plan->looks[0].device.id,
                                    &options.stream) != 0)
        return NULL;
    made = make_results(plan, PyList_GetItem(tensors, 0),
                        addresses + plan->ntensors);
    if (made == NULL || !keep_arrays(plan, tensors, made)) {
        Py_XDECREF(made);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < plan->n; i++)
        arguments[i] = addresses[plan->order[i]];
    // clang-format off
    Py_BEGIN_ALLOW_THREADS
    status = plan->run(*plan->session, arguments, (size_t)plan->n, &options,
                       plan->diag);
    Py_END_ALLOW_THREADS
            // clang-format on
            return status == HD_OK
        ? made
        : end_refused(plan, made, status);
}

static PyObject *plan_issue(PyObject *self, PyObject *tensors)
{
    const Plan *plan = (Plan *)self;
    size_t n = (size_t)(plan->ntensors + plan->nresults + plan->n);
    void **addresses = malloc(n * sizeof *addresses);
    int fit = addresses == NULL ? 0 : fits(plan, tensors, addresses);
    PyObject *issued = NULL;

    if (addresses == NULL)
        return PyErr_NoMemory();
    if (fit > 0)
        issued = issue_at(plan, tensors, addresses);
    free(addresses);
    if (fit == 0)
        Py_RETURN_NONE;
    return issued;
}

static PyObject *plan_issue_plain(PyObject *self, PyObject *tensors)
{
    int plain = is_plain((Plan *)self, tensors);

    if (plain < 0)
        return NULL;
    if (plain == 0)
        Py_RETURN_NONE;
    return plan_issue(self, tensors);
}

// --------------------------------------------------------------------- a
// module

static PyMethodDef plan_methods[] = {
    {"issue", plan_issue, METH_O,
     "Issues a run on a list of tensors, and returns the list of its results; "
     "None, with "
     "nothing begun, where they are not like the plan's; or the status it "
     "failed with."},
    {"issue_plain", plan_issue_plain, METH_O,
     "The same, and None too where something is watching or a gradient is "
     "needed."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot plan_slots[] = {
    {Py_tp_new, (void *)plan_new},
    {Py_tp_dealloc, (void *)plan_dealloc},
    {Py_tp_methods, plan_methods},
    {0, NULL},
};

static PyType_Spec plan_spec = {
    .name = "heddle._direct.Plan",
    .basicsize = sizeof(Plan),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = plan_slots,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "heddle._direct",
    .m_size = -1,
};

static bool intern(PyObject **name, const char *text)
{
    *name = PyUnicode_InternFromString(text);
    return *name != NULL;
}

PyMODINIT_FUNC PyInit__direct(void)
{
    PyObject *made = NULL, *type = NULL;

    if (intern(&negative_name, "is_neg") &&
        intern(&gradient_name, "requires_grad") &&
        intern(&empty_name, "new_empty_strided") &&
        intern(&append_name, "append") && intern(&pop_name, "pop") &&
        intern(&exchange_name, "__dlpack_c_exchange_api__"))
        made = PyModule_Create(&module);
    if (made != NULL)
        type = PyType_FromSpec(&plan_spec);
    if (type != NULL && PyModule_AddIntConstant(made, "ALIGNED", ALIGNED) != 0)
        Py_CLEAR(type);
    if (type == NULL || PyModule_AddObject(made, "Plan", type) != 0) {
        Py_XDECREF(type);
        Py_CLEAR(made);
    }
    return made;
}
