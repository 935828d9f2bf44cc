// Joins an NCCL communicator. That call waits for the peers without end, so a
// thread makes it while this one watches the group and the time. A thread that
// is given up keeps what it works with: it shares nothing with the device.
//
// NCCL connects two ranks when they first send to or receive from each other,
// and takes it that the other asks for the mirror image at the same time. Two
// ranks that both send first hand each other the sending end of a connection,
// are both given it for the receiving one, and NCCL's kernels then write where
// they must not. So the thread also has all ranks that will ever meet send and
// receive in one group, both ways, before anything runs.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/diag.h"
#include "runtime/cuda/nccl.h"

enum { GREETING = 16 }; // bytes to each peer

typedef struct joining {
    hd_nccl_api nccl;
    hd_cu_api cu;
    hd_cu_context context;
    hd_nccl_id id;
    int size, rank;
    pthread_mutex_t lock;       // held while the communicator connects
    _Atomic(hd_nccl_comm) comm; // who takes it out aborts it, or keeps it
    const char *call;           // that failed; NULL if none did
    bool of_cuda;               // it is the driver's, not NCCL's
    int error;
    atomic_bool given_up; // nobody waits for the thread any longer
    _Atomic int hands;    // in which it is: the last frees it
    bool meets[];         // by rank of the communicator
} joining;

static void drop(joining *joining)
{
    // The last sees what the other has done: each releases, and acquires.
    if (atomic_fetch_sub_explicit(&joining->hands, 1, memory_order_acq_rel) ==
        1) {
        pthread_mutex_destroy(&joining->lock);
        free(joining);
    }
}

static bool abort_comm(joining *joining)
{
    // Acquires what join_and_connect released. In one order with `given_up`.
    hd_nccl_comm comm =
        atomic_exchange_explicit(&joining->comm, NULL, memory_order_seq_cst);

    if (comm != NULL)
        joining->nccl.comm_abort(comm);
    return comm != NULL;
}

static bool fail_call(joining *joining, bool of_cuda, const char *call,
                      int error)
{
    joining->of_cuda = of_cuda;
    joining->call = call;
    joining->error = error;
    return false;
}

#define CUDA_TRY(joining, name, ...)                          \
    do {                                                      \
        int error_ = (int)(joining)->cu.name(__VA_ARGS__);    \
        if (error_ != HD_CU_SUCCESS)                          \
            return fail_call((joining), true, #name, error_); \
    } while (0)

#define NCCL_TRY(joining, name, ...)                           \
    do {                                                       \
        int error_ = (joining)->nccl.name(__VA_ARGS__);        \
        if (error_ != HD_NCCL_SUCCESS)                         \
            return fail_call((joining), false, #name, error_); \
    } while (0)

static bool exchange(joining *j, hd_nccl_comm comm, hd_cu_ptr memory,
                     hd_cu_stream stream)
{
    for (int i = 0; i < j->size; i++) {
        char *from = (char *)(uintptr_t)memory;

        if (!j->meets[i])
            continue;
        NCCL_TRY(j, send, from, GREETING, HD_NCCL_U8, i, comm, stream);
        NCCL_TRY(j, recv, from + (size_t)(1 + i) * GREETING, GREETING,
                 HD_NCCL_U8, i, comm, stream);
    }
    return true;
}

// A group that has begun is ended whatever becomes of it. The communicator is
// gone where the other thread has given up.
static bool exchange_in_group(joining *j, hd_cu_ptr memory, hd_cu_stream stream)
{
    // This thread's own store, unless the other has taken it out.
    hd_nccl_comm comm = atomic_load_explicit(&j->comm, memory_order_relaxed);
    bool fine;
    int error;

    if (comm == NULL)
        return false;
    NCCL_TRY(j, group_start, );
    fine = exchange(j, comm, memory, stream);
    error = j->nccl.group_end();
    return fine && error != HD_NCCL_SUCCESS
               ? fail_call(j, false, "group_end", error)
               : fine;
}

static bool connect_on(joining *j, hd_cu_stream stream)
{
    hd_cu_ptr memory;
    bool fine;

    CUDA_TRY(j, alloc, &memory, (size_t)(1 + j->size) * GREETING);
    pthread_mutex_lock(&j->lock);
    fine = exchange_in_group(j, memory, stream);
    pthread_mutex_unlock(&j->lock);
    if (fine) {
        int error = (int)j->cu.stream_synchronize(stream);

        fine = error == HD_CU_SUCCESS ||
               fail_call(j, true, "stream_synchronize", error);
    }
    j->cu.free(memory);
    return fine;
}

static bool connect_peers(joining *j)
{
    hd_cu_stream stream;
    bool alone = true, fine;

    for (int i = 0; i < j->size; i++)
        alone &= !j->meets[i];
    if (alone)
        return true;
    CUDA_TRY(j, stream_create, &stream, HD_CU_STREAM_NON_BLOCKING, 0);
    fine = connect_on(j, stream);
    j->cu.stream_destroy(stream);
    return fine;
}

static bool join_and_connect(joining *j)
{
    hd_nccl_comm comm = NULL;

    NCCL_TRY(j, comm_init, &comm, j->size, j->id, j->rank);
    // let_go stores and looks the other way round: with memory_order_seq_cst
    // one of both sees what the other has stored, and ends the communicator.
    atomic_store_explicit(&j->comm, comm, memory_order_seq_cst);
    return !atomic_load_explicit(&j->given_up, memory_order_seq_cst) &&
           connect_peers(j);
}

static void *join_group(void *context)
{
    joining *joining = context;
    int error = joining->cu.context_push(joining->context);

    if (error == HD_CU_SUCCESS) {
        joining->cu.capture_mode(&(int){HD_CU_CAPTURE_RELAXED});
        if (!join_and_connect(joining))
            abort_comm(joining);
        joining->cu.context_pop(&(hd_cu_context){0});
    } else {
        fail_call(joining, true, "context_push", error);
    }
    drop(joining);
    return NULL;
}

static hd_status give_up(hd_device *device, const char *axis, hd_diag *diag)
{
    hd_group *group = device->binding.group;
    char text[HD_GROUP_TEXT];
    hd_status status = HD_ERROR_TIMEOUT;

    if (hd_group_failed(group)) {
        status = hd_group_failure(group, text);
    } else {
        snprintf(text, sizeof text,
                 "rank %d waits for its peers on axis %s to join NCCL for %.1f "
                 "s",
                 device->rank, axis, device->binding.timeout);
        hd_group_fail(group, text);
    }
    return hd_fail(diag, status, "%s", text);
}

// Pairs with the release in drop.
static bool is_joining(const joining *joining)
{
    return atomic_load_explicit(&joining->hands, memory_order_acquire) > 1;
}

static bool await(hd_device *device, const joining *joining)
{
    int64_t deadline = hd_clock_after(device->binding.timeout);

    while (is_joining(joining)) {
        if (hd_group_failed(device->binding.group) || hd_clock() > deadline)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return true;
}

// Ends what the thread waits for, unless that is comm_init, which is about to
// return where a peer that is already through has failed, and else waits for
// whoever never comes. After a second the thread is left alone, and still uses
// the device until that returns. It holds the lock while NCCL connects, which
// may itself wait for a peer and which only an abort ends: so the lock is not
// waited for without end.
static void let_go(hd_device *device, joining *joining, pthread_t thread)
{
    int64_t deadline;
    bool locked, aborted;

    atomic_store_explicit(&joining->given_up, true, memory_order_seq_cst);
    locked = hd_lock_until(&joining->lock, hd_clock_after(1));
    aborted = abort_comm(joining);
    if (locked)
        pthread_mutex_unlock(&joining->lock);
    deadline = hd_clock_after(aborted ? 3 : 1);
    while (is_joining(joining) && hd_clock() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    hd_cuda_set_stuck(device, is_joining(joining));
    if (hd_cuda_is_stuck(device))
        pthread_detach(thread);
    else
        pthread_join(thread, NULL);
    drop(joining);
}

// Peers that wait in the same call do not hear of an error otherwise.
static hd_status fail_join(hd_device *device, const joining *joining,
                           hd_diag *diag)
{
    const char *why = NULL;
    char text[HD_GROUP_TEXT];

    if (!joining->of_cuda)
        why = joining->nccl.error_text(joining->error);
    else if (device->cu.error_string((hd_cu_result)joining->error, &why) !=
             HD_CU_SUCCESS)
        why = "unknown error";
    snprintf(text, sizeof text, "rank %d: %s refused '%s': %s", device->rank,
             joining->of_cuda ? "CUDA" : "NCCL", joining->call, why);
    hd_group_fail(device->binding.group, text);
    return hd_fail(diag,
                   joining->of_cuda && joining->error == HD_CU_OUT_OF_MEMORY
                       ? HD_ERROR_NO_MEMORY
                       : HD_ERROR_SYSTEM,
                   "%s", text);
}

hd_status hd_cuda_comm_join(hd_device *device, const hd_nccl_api *api,
                            const hd_nccl_id *id, int size, int rank,
                            const bool *meets, const char *axis, hd_diag *diag,
                            hd_nccl_comm *out)
{
    joining *joining =
        calloc(1, sizeof *joining + (size_t)size * sizeof *meets);
    pthread_t thread;
    hd_status status = HD_OK;

    if (joining == NULL) {
        hd_group_run_out(device->binding.group);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no memory to join NCCL");
    }
    atomic_init(&joining->hands, 2);
    pthread_mutex_init(&joining->lock, NULL);
    joining->nccl = *api;
    joining->cu = device->cu;
    joining->context = device->home->context;
    joining->id = *id;
    joining->size = size;
    joining->rank = rank;
    memcpy(joining->meets, meets, (size_t)size * sizeof *meets);
    if (pthread_create(&thread, NULL, join_group, joining) != 0) {
        drop(joining);
        drop(joining); // the thread's
        hd_group_run_out(device->binding.group);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "no thread to join NCCL");
    }
    if (!await(device, joining)) {
        status = give_up(device, axis, diag);
        let_go(device, joining, thread);
        return status;
    }
    pthread_join(thread, NULL);
    if (joining->call != NULL)
        status = fail_join(device, joining, diag);
    else
        // The thread that stored it has been joined.
        *out = atomic_load_explicit(&joining->comm, memory_order_relaxed);
    drop(joining);
    return status;
}
