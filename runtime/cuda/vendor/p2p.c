// A driver that says two devices reach each other is not believed: on some
// hosts the copies end without error and without the data. So each pair is
// tried with a pattern of its own, from poisoned buffers, both ways: put into
// the other's memory, and got from there.
//
//     host -> from -> to -> host    put, by a stream of `from`
//     host -> to -> from -> host    get, by the same stream
#include "runtime/cuda/vendor/p2p.h"

#include <time.h>

#include "base/diag.h"
#include "runtime/cuda/vendor/api.h"

#define BYTES (HD_P2P_WORDS * sizeof(uint32_t))
#define POISON 0xa5

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static hd_status refuse(const hd_p2p_probe *probe, hd_diag *diag,
                        const char *call, hd_cu_result result)
{
    const char *name = NULL;

    if (probe->cu->error_name(result, &name) != HD_CU_SUCCESS || name == NULL)
        name = "an unknown error";
    return hd_fail(diag, HD_ERROR_SYSTEM, "CUDA refused '%s': %s", call, name);
}

#define TRY(probe, diag, name, ...)                            \
    do {                                                       \
        hd_cu_result result_ = (probe)->cu->name(__VA_ARGS__); \
        if (result_ != HD_CU_SUCCESS)                          \
            return refuse((probe), (diag), #name, result_);    \
    } while (0)

// A copy that peers cannot make may never end, so nothing here blocks. A query
// that fails is made once more: its copy may still be under way, and what it
// works on is freed soon.
static hd_status await(hd_p2p_probe *probe, hd_cu_stream stream, hd_diag *diag)
{
    double deadline = now() + probe->patience;
    hd_cu_result failed = HD_CU_SUCCESS;

    for (;;) {
        hd_cu_result result = probe->cu->stream_query(stream);

        if (result == HD_CU_NOT_READY) {
            if (now() > deadline) {
                probe->stuck = true;
                return hd_fail(diag, HD_ERROR_TIMEOUT,
                               "a copy did not end within %.1f s",
                               probe->patience);
            }
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        } else if (result != HD_CU_SUCCESS && failed == HD_CU_SUCCESS) {
            failed = result;
        } else {
            break;
        }
    }
    return failed == HD_CU_SUCCESS
               ? HD_OK
               : refuse(probe, diag, "stream_query", failed);
}

static uint32_t word(const hd_p2p_probe *probe, uint32_t i)
{
    uint32_t x = (i + 1) * 0x9e3779b9u ^ probe->salt * 0x85ebca6bu;

    return x ^ x >> 15;
}

// Each end's own stream works in its own context.
static hd_status copy(hd_p2p_probe *probe, const hd_p2p_end *by, hd_cu_ptr to,
                      hd_cu_ptr from, hd_diag *diag)
{
    hd_cu_result result;
    hd_status status;

    TRY(probe, diag, context_push, by->context);
    result = probe->cu->copy(to, from, BYTES, by->stream);
    status = result == HD_CU_SUCCESS ? await(probe, by->stream, diag)
                                     : refuse(probe, diag, "copy", result);
    probe->cu->context_pop(&(hd_cu_context){0});
    return status;
}

static hd_status poison(hd_p2p_probe *probe, const hd_p2p_end *end,
                        hd_diag *diag)
{
    hd_cu_result result;
    hd_status status;

    TRY(probe, diag, context_push, end->context);
    result = probe->cu->fill8(end->buffer, POISON, BYTES, end->stream);
    status = result == HD_CU_SUCCESS ? await(probe, end->stream, diag)
                                     : refuse(probe, diag, "fill8", result);
    probe->cu->context_pop(&(hd_cu_context){0});
    return status;
}

// One pattern from buffer to buffer, by a stream of `by`.
static hd_status carry(hd_p2p_probe *probe, const hd_p2p_end *by,
                       const hd_p2p_end *source, const hd_p2p_end *target,
                       const char *way, hd_diag *diag)
{
    hd_cu_ptr host = (hd_cu_ptr)(uintptr_t)probe->host;
    uint32_t wrong = 0;

    probe->salt++;
    for (uint32_t i = 0; i < HD_P2P_WORDS; i++)
        probe->host[i] = word(probe, i);
    HD_TRY(poison(probe, target, diag));
    HD_TRY(copy(probe, source, source->buffer, host, diag));
    HD_TRY(copy(probe, by, target->buffer, source->buffer, diag));
    for (uint32_t i = 0; i < HD_P2P_WORDS; i++)
        probe->host[i] = 0;
    HD_TRY(copy(probe, target, host, target->buffer, diag));
    for (uint32_t i = 0; i < HD_P2P_WORDS; i++)
        wrong += probe->host[i] != word(probe, i);
    if (wrong > 0)
        return hd_fail(diag, HD_ERROR_SYSTEM,
                       "%u of %u words that it %s did not arrive", wrong,
                       HD_P2P_WORDS, way);
    return HD_OK;
}

// What is enabled already stays so.
static hd_status enable(hd_p2p_probe *probe, const hd_p2p_end *from,
                        const hd_p2p_end *to, hd_diag *diag, bool *enabled)
{
    hd_cu_result result;

    TRY(probe, diag, context_push, from->context);
    result = probe->cu->peer_enable(to->context, 0);
    probe->cu->context_pop(&(hd_cu_context){0});
    *enabled = result == HD_CU_SUCCESS;
    if (result == HD_CU_PEER_ENABLED || result == HD_CU_SUCCESS)
        return HD_OK;
    return refuse(probe, diag, "peer_enable", result);
}

static void disable(hd_p2p_probe *probe, const hd_p2p_end *from,
                    const hd_p2p_end *to)
{
    if (probe->cu->context_push(from->context) != HD_CU_SUCCESS)
        return;
    probe->cu->peer_disable(to->context);
    probe->cu->context_pop(&(hd_cu_context){0});
}

hd_status hd_p2p_verify(hd_p2p_probe *probe, const hd_p2p_end *from,
                        const hd_p2p_end *to, hd_diag *diag)
{
    bool enabled = false;
    hd_status status;

    HD_TRY(enable(probe, from, to, diag, &enabled));
    status = carry(probe, from, from, to, "put", diag);
    if (status == HD_OK)
        status = carry(probe, from, to, from, "got", diag);
    if (enabled && !probe->stuck)
        disable(probe, from, to);
    return status;
}
