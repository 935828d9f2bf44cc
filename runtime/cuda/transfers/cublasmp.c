// Launches of a collective and its product by cuBLASMp, in its terms of
// matrices stored by columns:
//
//   D[m, n] = A[k, m]^T B[k, n]      A is the product's second operand, B its
//                                    first, or what is gathered for that
//
//                            A        B        D
//
//   all_gather, matmul       m over   n over   m over ranks: each has rows
//
//   matmul, reduce_scatter   k over   k over   n over ranks
//
//   matmul, all_reduce       k over   k over   whole on each
//
// where m counts our columns; of a gather it counts those of all ranks, which
// need not be parts of one matrix. Its calls at opening wait for peers without
// end, so a thread makes them, which shares nothing with the device.
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/diag.h"
#include "base/dtype.h"
#include "runtime/cuda/memory/peers.h"
#include "runtime/cuda/transfers/fused.h"
#include "runtime/cuda/transfers/nccl.h"
#include "runtime/cuda/vendor/library.h"

enum { FP32 = 68 };   // cublasComputeType_t
enum { ENDING = 10 }; // s that its end may take

// What is stored by rows: those, the columns, and from one row to the next.
typedef struct flat {
    int64_t rows, columns, stride;
} flat;

// A launch, as cuBLASMp has it.
typedef struct entry {
    hd_cuda_pair pair;
    hd_move move;
    int64_t m, n, k; // of all ranks
    int64_t lda, ldb, ldd;
    int type, epilogue;
    float alpha;
    hd_mp_matrix a, b, d; // owned
    hd_mp_desc desc;      // owned
    size_t host_bytes;
    void *host; // owned
} entry;

struct hd_cuda_mp {
    hd_library library, shmem_library;
    hd_mp_api api;
    hd_shmem_api shmem;
    hd_cu_api cu;
    hd_cu_context context;
    hd_nccl_comm comm; // borrowed
    hd_cu_ptr probe;   // some memory of the device
    int size;          // ranks
    char text[HD_LIBRARY_VERSION + 16];
    hd_mp_handle handle;      // owned
    hd_mp_grid rows, columns; // owned: [size, 1] and [1, size]
    void *workspace;          // owned, of NVSHMEM's
    size_t bytes;             // of it
    entry *entry;             // owned
    int nentries;
    const char *call; // that failed in the thread; NULL if none did
    int error;        // of it; 0 if there was no memory
    int at;           // the entry that it was for, or the first
    atomic_bool done; // by the thread
};

// ------------------------------------------------------------ what is taken

// The rows of all dimensions but the last, if they are evenly spaced.
static bool flatten(const hd_span *span, flat *out)
{
    int last = span->ndims - 1, row = last - 1;

    if (last < 0 || (span->stride[last] != 1 && span->extent[last] != 1) ||
        (last > 1 && !hd_span_is_even(span, 0, last - 1)))
        return false;
    while (row > 0 && span->extent[row] == 1)
        row--;
    out->columns = span->extent[last];
    out->rows = hd_span_elements(span) / (out->columns > 0 ? out->columns : 1);
    out->stride = out->rows > 1 ? span->stride[row] : out->columns;
    return out->rows > 0 && out->columns > 0;
}

static int type_of(hd_dtype dtype)
{
    return dtype == HD_DTYPE_BF16  ? HD_LT_BF16
           : dtype == HD_DTYPE_F16 ? HD_LT_F16
                                   : -1;
}

static const char *why_not_types(const hd_cuda_pair *pair)
{
    const hd_step *step = pair->product;
    hd_dtype dtype = step->span[0].buffer->type.dtype;
    int bias = hd_op_key_view(step->op, HD_KEY_BIAS);

    if (type_of(dtype) < 0 || step->span[1].buffer->type.dtype != dtype ||
        step->span[2].buffer->type.dtype != dtype ||
        pair->move->span[0].buffer->type.dtype != dtype ||
        (bias >= 0 && step->span[bias].buffer->type.dtype != dtype))
        return "cuBLASMp is given matrices that are all f16 or all bf16";
    return NULL;
}

static const char *why_not_keys(const hd_step *step)
{
    const hd_key *act = hd_op_key(step->op, HD_KEY_ACT);
    const hd_key *scale = hd_op_key(step->op, HD_KEY_SCALE);
    int bias = hd_op_key_view(step->op, HD_KEY_BIAS);

    if (hd_op_key(step->op, HD_KEY_TB) == NULL ||
        hd_op_key(step->op, HD_KEY_TA) != NULL)
        return "cuBLASMp is given a second operand that is stored [N, K], "
               "`tb`, and a first one without `ta`";
    if (hd_op_key(step->op, HD_KEY_AUX) != NULL ||
        hd_op_key(step->op, HD_KEY_ACCUMULATE) != NULL ||
        hd_op_key(step->op, HD_KEY_GROUPS) != NULL ||
        hd_op_key(step->op, HD_KEY_SCALE_A) != NULL ||
        hd_op_key(step->op, HD_KEY_SCALE_B) != NULL ||
        (act != NULL && act->act != HD_ACT_RELU && act->act != HD_ACT_GELU))
        return "cuBLASMp does no `aux`, `accumulate`, groups, scales of "
               "operands, gelu_erf or silu";
    if (scale != NULL && scale->view >= 0)
        return "cuBLASMp is given a scale that is a number";
    if (bias >= 0 &&
        (step->span[bias].ndims != 1 || !hd_span_is_dense(&step->span[bias])))
        return "cuBLASMp adds a bias of [N]";
    return NULL;
}

// What adds a bias or bends the product does so once, before nothing is summed.
static const char *why_not_moved(const hd_cuda_pair *pair)
{
    const hd_op *move = pair->move->op, *product = pair->product->op;
    bool gathers = move->code == HD_OP_ALL_GATHER;

    if (!gathers && (hd_op_fold(move) != HD_FOLD_SUM ||
                     hd_op_key(product, HD_KEY_BIAS) != NULL ||
                     hd_op_key(product, HD_KEY_ACT) != NULL))
        return "cuBLASMp gathers a first operand, or sums a product without a "
               "bias or an activation";
    return NULL;
}

static int epilogue_of(const hd_cuda_pair *pair)
{
    const hd_key *act = hd_op_key(pair->product->op, HD_KEY_ACT);
    int epilogue = hd_op_key(pair->product->op, HD_KEY_BIAS) != NULL
                       ? HD_MP_EPILOGUE_BIAS
                       : HD_MP_EPILOGUE_DEFAULT;

    if (pair->move->op->code == HD_OP_ALL_REDUCE)
        return HD_MP_EPILOGUE_ALL_REDUCE;
    if (act != NULL)
        epilogue |=
            act->act == HD_ACT_RELU ? HD_MP_EPILOGUE_RELU : HD_MP_EPILOGUE_GELU;
    return epilogue;
}

// A, B and D as the ranks have them; false if they are no such matrices, or
// what is gathered is not what is multiplied, what is made not what is summed.
static bool read_matrices(const hd_device *device, const hd_cuda_pair *pair,
                          flat *a, flat *b, flat *c)
{
    const hd_step *move = pair->move, *product = pair->product;
    bool gathers = move->op->code == HD_OP_ALL_GATHER;
    const hd_span *made = gathers ? &move->span[0] : &product->span[0];
    const hd_span *taken = gathers ? &product->span[1] : &move->span[1];
    int64_t n = device->binding.module->axis[move->op->axis].size;
    flat between, mine;

    if (made->buffer != taken->buffer || made->offset != taken->offset ||
        !hd_span_is_dense(made) || !hd_span_is_dense(taken) ||
        !flatten(&product->span[2], b) ||
        !flatten(gathers ? &move->span[1] : &product->span[1], a) ||
        !flatten(gathers ? &product->span[0] : &move->span[0], c) ||
        !flatten(gathers ? &product->span[1] : &product->span[0], &between))
        return false;
    mine = gathers ? *a : *c;
    return b->rows == c->columns && mine.columns == between.columns &&
           between.rows == (gathers ? c->rows : a->rows) &&
           between.rows ==
               mine.rows * (move->op->code == HD_OP_ALL_REDUCE ? 1 : n) &&
           hd_span_elements(made) == hd_span_elements(taken);
}

static void number_sides(entry *e, int64_t ranks, flat a, flat b, flat c)
{
    bool gathers = e->move == HD_MOVE_ALL_GATHER;

    e->m = gathers ? c.columns * ranks : c.columns;
    e->n = gathers ? a.rows * ranks : a.rows;
    e->k = gathers ? a.columns : a.columns * ranks;
    e->lda = b.stride;
    e->ldb = a.stride;
    e->ldd = c.stride;
}

static const char *why_not(const hd_device *device, const hd_cuda_pair *pair)
{
    const char *why = why_not_types(pair);
    flat a, b, c;

    if (why == NULL)
        why = why_not_keys(pair->product);
    if (why == NULL)
        why = why_not_moved(pair);
    if (why == NULL && !read_matrices(device, pair, &a, &b, &c))
        why = "cuBLASMp is given one product of matrices whose rows are evenly "
              "spaced";
    return why;
}

static void read_pair(const hd_device *device, const hd_cuda_pair *pair,
                      entry *out)
{
    const hd_key *scale = hd_op_key(pair->product->op, HD_KEY_SCALE);
    flat a = {0}, b = {0}, c = {0};
    bool read = read_matrices(device, pair, &a, &b, &c);

    (void)read;
    assert(read && "nothing else is taken");
    out->pair = *pair;
    out->move = hd_op_move(pair->move->op);
    out->type = type_of(pair->product->span[0].buffer->type.dtype);
    out->epilogue = epilogue_of(pair);
    out->alpha = scale != NULL ? (float)scale->number : 1;
    number_sides(out, device->binding.module->axis[pair->move->op->axis].size,
                 a, b, c);
}

static hd_status read_pairs(hd_device *device, hd_cuda_mp *mp, hd_diag *diag)
{
    hd_cuda_pair pair;

    mp->entry =
        calloc((size_t)device->binding.steps->nsteps + 1, sizeof *mp->entry);
    if (mp->entry == NULL)
        return hd_cuda_no_room(device, diag);
    for (int64_t at = 0; hd_cuda_fused_next(device, &at, &pair);)
        read_pair(device, &pair, &mp->entry[mp->nentries++]);
    return HD_OK;
}

// ------------------------------------------------------------- the thread's

static bool fail_call(hd_cuda_mp *mp, const char *call, int error)
{
    mp->call = call;
    mp->error = error;
    return false;
}

#define MP_TRY(mp, name, ...)                      \
    do {                                           \
        int error_ = (mp)->api.name(__VA_ARGS__);  \
        if (error_ != HD_MP_SUCCESS)               \
            return fail_call((mp), #name, error_); \
    } while (0)

static bool make_matrices(hd_cuda_mp *mp, entry *e)
{
    bool gathers = e->move == HD_MOVE_ALL_GATHER;
    bool whole = e->move == HD_MOVE_ALL_REDUCE;
    int64_t p = mp->size;
    hd_mp_grid in = gathers ? mp->columns : mp->rows;
    hd_mp_grid out = gathers ? mp->rows : mp->columns;

    MP_TRY(mp, matrix_create, e->k, e->m, gathers ? e->k : e->k / p,
           gathers ? e->m / p : e->m, 0, 0, e->lda, e->type, in, &e->a);
    MP_TRY(mp, matrix_create, e->k, e->n, gathers ? e->k : e->k / p,
           whole ? e->n : e->n / p, 0, 0, e->ldb, e->type, in, &e->b);
    MP_TRY(mp, matrix_create, e->m, whole ? e->n * p : e->n,
           gathers ? e->m / p : e->m, whole ? e->n : e->n / p, 0, 0, e->ldd,
           e->type, out, &e->d);
    return true;
}

static bool set_desc(hd_cuda_mp *mp, const entry *e, int attribute, int value)
{
    MP_TRY(mp, desc_set, e->desc, attribute, &value, sizeof value);
    return true;
}

// A sum on all ranks does not overlap.
static bool make_entry(hd_cuda_mp *mp, entry *e)
{
    int algorithm =
        e->move == HD_MOVE_ALL_REDUCE ? HD_MP_NO_OVERLAP : HD_MP_SPLIT_P2P;
    const void *at = (const void *)(uintptr_t)mp->probe;
    void *bias = (void *)(uintptr_t)mp->probe;
    const float zero = 0;
    size_t bytes = 0;

    if (!make_matrices(mp, e))
        return false;
    MP_TRY(mp, desc_create, &e->desc, FP32);
    if (!set_desc(mp, e, HD_MP_DESC_TRANSPOSE_A, HD_LT_OP_T) ||
        !set_desc(mp, e, HD_MP_DESC_TRANSPOSE_B, HD_LT_OP_N) ||
        !set_desc(mp, e, HD_MP_DESC_ALGORITHM, algorithm) ||
        !set_desc(mp, e, HD_MP_DESC_EPILOGUE, e->epilogue))
        return false;
    if ((e->epilogue & HD_MP_EPILOGUE_BIAS) != 0)
        MP_TRY(mp, desc_set, e->desc, HD_MP_DESC_BIAS_POINTER, &bias,
               sizeof bias);
    MP_TRY(mp, matmul_size, mp->handle, e->desc, e->m, e->n, e->k, &e->alpha,
           at, 1, 1, e->a, at, 1, 1, e->b, &zero, at, 1, 1, e->d, bias, 1, 1,
           e->d, &bytes, &e->host_bytes);
    mp->bytes = bytes > mp->bytes ? bytes : mp->bytes;
    e->host = malloc(e->host_bytes + 1);
    return e->host != NULL || fail_call(mp, "malloc", 0);
}

static bool make_all(hd_cuda_mp *mp)
{
    MP_TRY(mp, create, &mp->handle, NULL);
    MP_TRY(mp, grid_create, mp->size, 1, HD_MP_COLUMN_MAJOR, mp->comm,
           &mp->rows);
    MP_TRY(mp, grid_create, 1, mp->size, HD_MP_ROW_MAJOR, mp->comm,
           &mp->columns);
    for (int i = 0; i < mp->nentries; i++) {
        mp->at = i;
        if (!make_entry(mp, &mp->entry[i]))
            return false;
    }
    if (mp->bytes > 0)
        mp->workspace = mp->shmem.alloc(mp->bytes);
    return mp->bytes == 0 || mp->workspace != NULL ||
           fail_call(mp, "nvshmem_malloc", 0);
}

static void end_all(hd_cuda_mp *mp)
{
    for (int i = 0; i < mp->nentries; i++) {
        entry *e = &mp->entry[i];

        if (e->desc != NULL)
            mp->api.desc_destroy(e->desc);
        for (int k = 0; k < 3; k++) {
            hd_mp_matrix matrix = k == 0 ? e->a : k == 1 ? e->b : e->d;

            if (matrix != NULL)
                mp->api.matrix_destroy(matrix);
        }
        free(e->host);
    }
    if (mp->workspace != NULL)
        mp->shmem.free(mp->workspace);
    if (mp->rows != NULL)
        mp->api.grid_destroy(mp->rows);
    if (mp->columns != NULL)
        mp->api.grid_destroy(mp->columns);
    if (mp->handle != NULL)
        mp->api.destroy(mp->handle);
}

static void enter(hd_cuda_mp *mp)
{
    if (mp->cu.context_push(mp->context) == HD_CU_SUCCESS)
        mp->cu.capture_mode(&(int){HD_CU_CAPTURE_RELAXED});
}

static void *run_open(void *context)
{
    hd_cuda_mp *mp = context;

    enter(mp);
    (void)make_all(mp); // `call` says whether
    // Pairs with the acquire in is_done.
    atomic_store_explicit(&mp->done, true, memory_order_release);
    return NULL;
}

static void *run_end(void *context)
{
    hd_cuda_mp *mp = context;

    enter(mp);
    end_all(mp);
    // Pairs with the acquire in is_done.
    atomic_store_explicit(&mp->done, true, memory_order_release);
    return NULL;
}

static bool is_done(const hd_cuda_mp *mp)
{
    return atomic_load_explicit(&mp->done, memory_order_acquire);
}

// False if there is no thread, and *error says why; or if it is left alone,
// with all that it works on.
static bool run_apart(hd_device *device, void *(*fn)(void *), double seconds,
                      int *error)
{
    hd_cuda_mp *mp = device->mp;
    int64_t deadline = hd_clock_after(seconds);
    pthread_t thread;

    atomic_store_explicit(&mp->done, false, memory_order_relaxed);
    *error = pthread_create(&thread, NULL, fn, mp);
    if (*error != 0)
        return false;
    while (!is_done(mp) && hd_clock() < deadline &&
           !hd_group_failed(device->binding.group))
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    if (is_done(mp)) {
        pthread_join(thread, NULL);
        return true;
    }
    pthread_detach(thread);
    hd_cuda_set_stuck(device, true);
    return false;
}

// ------------------------------------------------------------------ opening

// Its workspace is NVSHMEM's in 0.7 alone, and later ones want a later NCCL.
static hd_status open_libraries(hd_cuda_mp *mp, hd_diag *diag)
{
    HD_TRY(hd_library_open(&hd_shmem_library, &mp->shmem, diag,
                           &mp->shmem_library));
    HD_TRY(hd_library_open(&hd_mp_library, &mp->api, diag, &mp->library));
    if (strncmp(mp->library.version, "0.7.", 4) != 0)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "cuBLASMp at %s is %s; 0.7 is needed (%s), or another "
                       "--transfer",
                       mp->library.path, mp->library.version,
                       hd_mp_library.install);
    snprintf(mp->text, sizeof mp->text, "cuBLASMp %s", mp->library.version);
    return HD_OK;
}

// NVSHMEM takes a process for a rank.
static hd_status check_processes(const hd_device *device, hd_diag *diag)
{
    for (int i = 0; i < device->size; i++)
        if (i != device->rank && device->peers->peer[i].near)
            return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                           "ranks %d and %d are threads of one process, and "
                           "cuBLASMp wants one for each",
                           device->rank, i);
    return HD_OK;
}

// NCCL's communicators are its, too.
static hd_status check_nccl(hd_diag *diag)
{
    hd_library library = {0};
    hd_nccl_api api;
    hd_status status = hd_library_open(&hd_nccl_library, &api, diag, &library);

    if (status == HD_OK)
        hd_library_close(&library);
    return status;
}

static hd_status find_mp(hd_device *device, hd_diag *diag)
{
    hd_cuda_mp *mp = device->mp = calloc(1, sizeof *mp);

    if (mp == NULL)
        return hd_cuda_no_room(device, diag);
    HD_TRY(check_processes(device, diag));
    HD_TRY(check_nccl(diag));
    return open_libraries(mp, diag);
}

static hd_status report(const hd_device *device, const hd_cuda_mp *mp,
                        hd_diag *diag)
{
    if (mp->call == NULL)
        return HD_OK;
    if (mp->error != 0)
        return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                       "%s of rank %d refused '%s' (%d) for the launch of line "
                       "%u",
                       mp->text, device->rank, mp->call, mp->error,
                       mp->entry[mp->at].pair.move->op->loc.line);
    return hd_fail(diag, HD_ERROR_UNSUPPORTED, "'%s' of rank %d has no memory",
                   mp->call, device->rank);
}

static hd_status keep_comm(hd_device *device, hd_nccl_comm comm, void *context,
                           hd_diag *diag)
{
    (void)context;
    (void)diag;
    device->mp->comm = comm;
    return HD_OK;
}

static hd_status open_mp(hd_device *device, hd_diag *diag)
{
    hd_group *group = device->binding.group;
    hd_cuda_mp *mp = device->mp;
    char text[HD_GROUP_TEXT];
    int error;

    mp->cu = device->cu;
    mp->context = device->home->context;
    mp->probe = device->peers->window;
    mp->size =
        (int)device->binding.module->axis[hd_cuda_fused_axis(device)].size;
    HD_TRY(read_pairs(device, mp, diag));
    // Read when NVSHMEM starts. Not every machine grants NVLink multicast.
    setenv("NVSHMEM_DISABLE_NVLS", "1", 0);
    HD_TRY(hd_cuda_nccl_lend(device, hd_cuda_fused_axis(device), keep_comm,
                             NULL, diag));
    if (run_apart(device, run_open, device->binding.timeout, &error))
        return report(device, mp, diag);
    if (error != 0) {
        snprintf(text, sizeof text, "rank %d: no thread to open cuBLASMp: %s",
                 device->rank, strerror(error));
        hd_group_fail(group, text);
        return hd_fail(diag, HD_ERROR_SYSTEM, "%s", text);
    }
    if (hd_group_failed(group)) {
        hd_status status = hd_group_failure(group, text);

        return hd_fail(diag, status, "%s", text);
    }
    snprintf(text, sizeof text,
             "rank %d waits for its peers to open cuBLASMp for %.1f s",
             device->rank, device->binding.timeout);
    hd_group_fail(group, text);
    return hd_fail(diag, HD_ERROR_TIMEOUT, "%s", text);
}

// ------------------------------------------------------------------ running

typedef struct call {
    const hd_cuda_command *command;
    const entry *entry;
} call;

static void *at(const hd_device *device, const hd_step *step, int view)
{
    return (void *)(uintptr_t)hd_cuda_address(
        device, hd_cuda_at_span(&step->span[view]));
}

static hd_status mp_error(const hd_device *device, const hd_step *step,
                          const char *name, int error, hd_diag *diag)
{
    return hd_fail(diag, HD_ERROR_SYSTEM,
                   "rank %d: %s refused '%s' for '%s' (step %lld, line %u): %d",
                   device->rank, device->mp->text, name,
                   hd_op_info_get(step->op->code)->text, (long long)step->index,
                   step->op->loc.line, error);
}

static hd_status multiply(hd_device *device, hd_nccl_comm comm, void *context,
                          hd_diag *diag)
{
    const call *c = context;
    hd_cuda_mp *mp = device->mp;
    const entry *e = c->entry;
    const hd_step *step = e->pair.product, *move = e->pair.move;
    bool gathers = e->move == HD_MOVE_ALL_GATHER;
    int bias = hd_op_key_view(step->op, HD_KEY_BIAS);
    void *d = at(device, gathers ? step : move, 0), *row;
    void *b = at(device, gathers ? move : step, 1);
    const float zero = 0;
    int error;

    (void)comm;
    error = mp->api.stream_set(mp->handle,
                               device->stream[c->command->stream].stream);
    if (error != HD_MP_SUCCESS)
        return mp_error(device, step, "stream_set", error, diag);
    if (bias >= 0) {
        row = at(device, step, bias);
        error = mp->api.desc_set(e->desc, HD_MP_DESC_BIAS_POINTER, &row,
                                 sizeof row);
        if (error != HD_MP_SUCCESS)
            return mp_error(device, step, "desc_set", error, diag);
    }
    error = mp->api.matmul(mp->handle, e->desc, e->m, e->n, e->k, &e->alpha,
                           at(device, step, 2), 1, 1, e->a, b, 1, 1, e->b,
                           &zero, d, 1, 1, e->d, d, 1, 1, e->d, mp->workspace,
                           mp->bytes, e->host, e->host_bytes);
    return error == HD_MP_SUCCESS
               ? HD_OK
               : mp_error(device, step, "matmul", error, diag);
}

static hd_status issue_mp(hd_device *device, const hd_cuda_command *command,
                          hd_diag *diag)
{
    call call = {command, &device->mp->entry[command->first]};

    return hd_cuda_nccl_lend(device, command->step->op->axis, multiply, &call,
                             diag);
}

static const char *text_mp(const hd_device *device)
{
    return device->mp != NULL ? device->mp->text : "";
}

// Its end meets the peers', so what failed is left as it is, and so is what
// does not come to an end.
static void close_mp(hd_device *device)
{
    hd_cuda_mp *mp = device->mp;
    bool left = hd_cuda_is_stuck(device) || hd_cuda_has_failed(device);
    int error;

    if (mp == NULL || left ||
        (mp->handle != NULL && !run_apart(device, run_end, ENDING, &error)))
        return;
    hd_library_close(&mp->library);
    hd_library_close(&mp->shmem_library);
    free(mp->entry);
    free(mp);
    device->mp = NULL;
}

const hd_cuda_provider hd_cuda_cublasmp = {.name = "cuBLASMp",
                                           .find = find_mp,
                                           .why = why_not,
                                           .open = open_mp,
                                           .issue = issue_mp,
                                           .text = text_mp,
                                           .close = close_mp};
