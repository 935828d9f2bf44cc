// What runs are given otherwise than as dense memory of the device: values of
// the host's, and arrays with strides. Both have memory of the session's here,
// at one address in all runs, so that plans and graphs know nothing of them. A
// run fills it on the caller's stream before its first command and takes from
// it after its last; runs follow each other, so that one does for all.
#include "runtime/cuda/issue/pass.h"

#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "runtime/cuda/commands/plan.h"
#include "runtime/packing.h"

#define VALUE_BYTES 16                     // of memory for a value
#define PITCH_MOST (((size_t)1 << 31) - 1) // that CUDA copies with
#define COPIES_MOST 4096                   // of an argument

struct hd_cuda_passed {
    hd_cu_ptr values;  // owned: for all arguments; 0 if none can be a value
    hd_cu_ptr *packed; // owned, by argument: 0 until it is not dense
    // Of this run, borrowed for the call; NULL if all are dense.
    const hd_passing *passing;
    void *const *argument;
};

static bool may_be_value(const hd_root *root)
{
    return root->argument >= 0 && root->buffer->role == HD_ROLE_IN &&
           root->buffer->type.dtype != HD_DTYPE_EVENT &&
           hd_type_local_elements(&root->buffer->type) == 1;
}

hd_status hd_cuda_pass_open(hd_device *device, hd_diag *diag)
{
    size_t n = (size_t)device->narguments;
    hd_cuda_passed *passed = device->passed = calloc(1, sizeof *passed);
    bool any = false;

    if (passed != NULL)
        passed->packed = calloc(n + 1, sizeof *passed->packed);
    if (passed == NULL || passed->packed == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory for arguments");
    for (int i = 0; i < device->nbuffers; i++)
        any |= may_be_value(&device->buffer[i]);
    if (!any)
        return HD_OK;
    return hd_cuda_home_take(device, n * VALUE_BYTES, diag, &passed->values);
}

static const hd_root *root_of(const hd_device *device, size_t argument)
{
    const hd_root *root = device->buffer;

    while (root->argument < 0 || (size_t)root->argument != argument)
        root++;
    return root;
}

void hd_cuda_pass_close(hd_device *device)
{
    hd_cuda_passed *passed = device->passed;

    if (passed == NULL)
        return;
    for (int i = 0; passed->packed != NULL && i < device->narguments; i++) {
        if (passed->packed[i] != 0)
            hd_cuda_home_give(device->home, passed->packed[i],
                              root_of(device, (size_t)i)->bytes);
    }
    if (passed->values != 0)
        hd_cuda_home_give(device->home, passed->values,
                          (size_t)device->narguments * VALUE_BYTES);
    free(passed->packed);
    free(passed);
}

hd_status hd_cuda_pack(hd_device *device, size_t i, hd_diag *diag)
{
    const hd_root *root = root_of(device, i);
    hd_cu_ptr *packed = &device->passed->packed[i];
    hd_status status;
    int mode;

    if (*packed != 0)
        return HD_OK;
    HD_TRY(hd_cuda_enter(device, diag, &mode));
    status = hd_cuda_home_take(device, root->bytes, diag, packed);
    hd_cuda_leave(device, mode);
    if (status != HD_OK)
        hd_note(diag, (hd_loc){0}, "rank %d packs %%%s, of %zu MiB, there",
                device->rank, root->buffer->name, root->bytes >> 20);
    return status;
}

// ---------------------------------------------------------------- rows

// The dimension of rows that one copy does: the longest that CUDA takes.
static int find_pitch(const hd_packing *rows)
{
    int best = -1;

    for (int d = 0; d < rows->ndims; d++) {
        if (rows->theirs[d] <= PITCH_MOST && rows->dense[d] <= PITCH_MOST &&
            (best < 0 || rows->count[d] > rows->count[best]))
            best = d;
    }
    return best;
}

static hd_packing rows_of(const hd_cuda_plan *plan, const hd_root *root)
{
    return hd_packing_of(plan->module, root->buffer, plan->device->rank,
                         plan->device->passed->passing[root->argument].stride);
}

static hd_status check_rows(const hd_cuda_plan *plan, const hd_root *root,
                            hd_diag *diag)
{
    hd_packing rows = rows_of(plan, root);
    int pitch = find_pitch(&rows);
    size_t copies = 1;

    for (int d = 0; d < rows.ndims && copies <= COPIES_MOST; d++)
        copies *= d == pitch ? 1 : rows.count[d];
    if (copies <= COPIES_MOST)
        return HD_OK;
    return hd_fail(diag, HD_ERROR_ARGUMENT,
                   "rank %d: argument %%%s, with these strides, would be "
                   "copied in more than %d parts: make it dense first",
                   plan->device->rank, root->buffer->name, COPIES_MOST);
}

typedef struct job {
    hd_device *device;
    const hd_packing *rows;
    int pitch;
    bool in;
    hd_diag *diag;
} job;

static hd_status copy_rows(const job *job, hd_cu_ptr theirs, hd_cu_ptr ours)
{
    const hd_packing *rows = job->rows;
    hd_device *device = job->device;
    bool many = job->pitch >= 0;
    size_t far = many ? rows->theirs[job->pitch] : rows->bytes;
    size_t near = many ? rows->dense[job->pitch] : rows->bytes;
    hd_cu_copy_2d copy = {.from_memory = HD_CU_MEMORY_UNIFIED,
                          .to_memory = HD_CU_MEMORY_UNIFIED,
                          .from = job->in ? theirs : ours,
                          .to = job->in ? ours : theirs,
                          .from_pitch = job->in ? far : near,
                          .to_pitch = job->in ? near : far,
                          .bytes = rows->bytes,
                          .height = many ? rows->count[job->pitch] : 1};

    HD_CUDA_TRY(device, job->diag, copy_2d, &copy, device->stream[0].stream);
    return hd_cuda_throttle(device, 0, job->diag);
}

// Recursion is as deep as a buffer has dimensions: 8 at most.
static hd_status copy_each(const job *job, int d, hd_cu_ptr theirs,
                           hd_cu_ptr ours)
{
    const hd_packing *rows = job->rows;

    if (d == job->pitch)
        d--;
    if (d < 0)
        return copy_rows(job, theirs, ours);
    for (size_t i = 0; i < rows->count[d]; i++)
        HD_TRY(copy_each(job, d - 1, theirs + i * rows->theirs[d],
                         ours + i * rows->dense[d]));
    return HD_OK;
}

static hd_status copy_strided(const hd_cuda_plan *plan, const hd_root *root,
                              bool in, hd_diag *diag)
{
    hd_device *device = plan->device;
    int i = root->argument;
    hd_packing rows = rows_of(plan, root);
    job job = {device, &rows, find_pitch(&rows), in, diag};

    if (rows.bytes == 0)
        return HD_OK;
    return copy_each(&job, rows.ndims - 1,
                     (hd_cu_ptr)(uintptr_t)device->passed->argument[i],
                     device->passed->packed[i]);
}

// ---------------------------------------------------------------- runs

static hd_cu_ptr value_at(const hd_device *device, int argument)
{
    return device->passed->values + (size_t)argument * VALUE_BYTES;
}

// As words, which a fill has in the call itself: nothing is read later.
static hd_status fill_value(hd_device *device, const hd_root *root,
                            hd_diag *diag)
{
    size_t bytes = hd_dtype_size(root->buffer->type.dtype);
    unsigned word[2] = {0};

    memcpy(word, device->passed->argument[root->argument], bytes);
    for (size_t i = 0; i * sizeof *word < bytes; i++)
        HD_CUDA_TRY(device, diag, fill32,
                    value_at(device, root->argument) + i * sizeof *word,
                    word[i], 1, device->stream[0].stream);
    return hd_cuda_throttle(device, 0, diag);
}

hd_status hd_cuda_pass_take(const hd_cuda_plan *plan, const hd_passing *passing,
                            void *const *argument, hd_diag *diag)
{
    hd_device *device = plan->device;

    device->passed->passing = passing;
    device->passed->argument = argument;
    for (int i = 0; passing != NULL && i < device->nbuffers; i++) {
        const hd_root *root = &device->buffer[i];

        if (root->argument >= 0 && passing[root->argument].strided)
            HD_TRY(check_rows(plan, root, diag));
    }
    return HD_OK;
}

void *hd_cuda_passed_at(const hd_device *device, int argument, void *at)
{
    const hd_cuda_passed *passed = device->passed;

    if (passed->passing == NULL)
        return at;
    if (passed->passing[argument].on_host)
        return (void *)(uintptr_t)value_at(device, argument);
    return passed->passing[argument].strided
               ? (void *)(uintptr_t)passed->packed[argument]
               : at;
}

hd_status hd_cuda_pass(const hd_cuda_plan *plan, bool in, hd_diag *diag)
{
    hd_device *device = plan->device;
    const hd_passing *passing = device->passed->passing;

    for (int i = 0; passing != NULL && i < device->nbuffers; i++) {
        const hd_root *root = &device->buffer[i];
        hd_role role = root->buffer->role;

        if (root->argument < 0)
            continue;
        if (in && passing[root->argument].on_host)
            HD_TRY(fill_value(device, root, diag));
        if (passing[root->argument].strided &&
            (in ? role != HD_ROLE_OUT : role != HD_ROLE_IN))
            HD_TRY(copy_strided(plan, root, in, diag));
    }
    return HD_OK;
}
