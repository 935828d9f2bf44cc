// Devices and their contexts: so many alike, any two of which reach each other.
#include <cstdio>
#include <cstring>

#include "cuda_state.h"

using namespace fake;

namespace
{

thread_local std::vector<CUctx_st *> stack;

bool is_device(hd_cu_device device)
{
    return device >= 0 &&
           device < static_cast<hd_cu_device>(world().primary.size());
}

struct ErrorName {
    hd_cu_result error;
    const char *name, *text;
};

const ErrorName errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
     "peer access is already enabled"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
     "peer access has not been enabled"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
     "capture was not ended in the same stream as it began"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
     "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking "
     "stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "capture was not ended by the thread that began it"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const ErrorName *find_error(hd_cu_result error)
{
    for (const ErrorName &entry : errors) {
        if (entry.error == error)
            return &entry;
    }
    return nullptr;
}

} // namespace

hd_cu_result fake::current(CUctx_st **out)
{
    Guard guard(world().lock);

    if (stack.empty() || stack.back() == nullptr)
        return INVALID_CONTEXT;
    if (world().contexts.count(stack.back()) == 0)
        return CONTEXT_IS_DESTROYED;
    *out = stack.back();
    return stack.back()->failed;
}

hd_cu_result cuInit(unsigned flags)
{
    FAKE_ENTER();
    return flags != 0 ? INVALID_VALUE : init_world();
}

hd_cu_result cuDriverGetVersion(int *out)
{
    FAKE_ENTER();
    const char *version = getenv("FAKE_CUDA_VERSION");

    *out = version == nullptr ? 13000 : atoi(version);
    return SUCCESS;
}

hd_cu_result cuGetErrorName(hd_cu_result error, const char **out)
{
    FAKE_ENTER();
    const ErrorName *found = find_error(error);

    *out = found == nullptr ? nullptr : found->name;
    return found == nullptr ? INVALID_VALUE : SUCCESS;
}

hd_cu_result cuGetErrorString(hd_cu_result error, const char **out)
{
    FAKE_ENTER();
    const ErrorName *found = find_error(error);

    *out = found == nullptr ? nullptr : found->text;
    return found == nullptr ? INVALID_VALUE : SUCCESS;
}

hd_cu_result cuDeviceGetCount(int *out)
{
    FAKE_ENTER();
    *out = static_cast<int>(world().primary.size());
    return SUCCESS;
}

hd_cu_result cuDeviceGet(hd_cu_device *out, int ordinal)
{
    FAKE_ENTER();
    if (!is_device(ordinal))
        return INVALID_DEVICE;
    *out = ordinal;
    return SUCCESS;
}

hd_cu_result cuDeviceGetName(char *out, int bytes, hd_cu_device device)
{
    FAKE_ENTER();
    if (!is_device(device))
        return INVALID_DEVICE;
    snprintf(out, static_cast<size_t>(bytes), "Fake GPU");
    return SUCCESS;
}

hd_cu_result cuDeviceGetAttribute(int *out, int attribute, hd_cu_device device)
{
    FAKE_ENTER();
    if (!is_device(device))
        return INVALID_DEVICE;
    switch (attribute) {
    case HD_CU_SM_COUNT:
        *out = 132;
        break;
    case HD_CU_CAPABILITY_MAJOR:
        *out = 9;
        break;
    case HD_CU_CAPABILITY_MINOR:
        *out = 0;
        break;
    default: // most of the others say whether something is supported
        *out = 1;
        break;
    }
    return SUCCESS;
}

hd_cu_result cuDeviceTotalMem_v2(size_t *out, hd_cu_device device)
{
    FAKE_ENTER();
    if (!is_device(device))
        return INVALID_DEVICE;
    *out = world().memory;
    return SUCCESS;
}

hd_cu_result cuDeviceGetPCIBusId(char *out, int bytes, hd_cu_device device)
{
    FAKE_ENTER();
    if (!is_device(device))
        return INVALID_DEVICE;
    snprintf(out, static_cast<size_t>(bytes), "0000:%02x:00.0",
             static_cast<unsigned>(device) + 1);
    return SUCCESS;
}

hd_cu_result cuDeviceGetUuid_v2(hd_cu_uuid *out, hd_cu_device device)
{
    FAKE_ENTER();
    if (!is_device(device))
        return INVALID_DEVICE;
    memcpy(out->bytes, "heddle fake gpu ", sizeof(out->bytes));
    out->bytes[15] = static_cast<char>(device);
    return SUCCESS;
}

hd_cu_result cuDeviceCanAccessPeer(int *out, hd_cu_device device,
                                   hd_cu_device peer)
{
    FAKE_ENTER();
    if (!is_device(device) || !is_device(peer))
        return INVALID_DEVICE;
    *out = device != peer;
    return SUCCESS;
}

hd_cu_result cuDeviceGetP2PAttribute(int *out, int attribute, hd_cu_device from,
                                     hd_cu_device to)
{
    FAKE_ENTER();
    if (!is_device(from) || !is_device(to))
        return INVALID_DEVICE;
    if (from == to)
        return INVALID_DEVICE;
    *out = attribute == HD_CU_P2P_RANK ? 0 : 1;
    return SUCCESS;
}

hd_cu_result cuDevicePrimaryCtxRetain(hd_cu_context *out, hd_cu_device device)
{
    FAKE_ENTER();
    Guard guard(world().lock);
    World &w = world();

    if (!is_device(device))
        return INVALID_DEVICE;
    CUctx_st *&context = w.primary[static_cast<size_t>(device)];
    if (context == nullptr) {
        context = new CUctx_st;
        context->device = device;
        w.contexts.insert(context);
    }
    context->retained++;
    *out = context;
    return SUCCESS;
}

// The last release ends the context and whatever runs in it; other objects of
// it stay in the accounts. Its memory is kept: streams may still look at it.
hd_cu_result cuDevicePrimaryCtxRelease_v2(hd_cu_device device)
{
    hd_cu_result injected = enter(__func__);

    if (injected == NOT_INITIALIZED)
        return injected;
    Guard guard(world().lock);
    World &w = world();

    if (!is_device(device))
        return INVALID_DEVICE;
    CUctx_st *&context = w.primary[static_cast<size_t>(device)];
    if (context == nullptr)
        return INVALID_CONTEXT;
    if (--context->retained == 0) {
        check_end(context);
        stop_streams(context);
        w.contexts.erase(context);
        w.ended.push_back(context);
        context = nullptr;
    }
    return injected;
}

hd_cu_result cuCtxGetCurrent(hd_cu_context *out)
{
    FAKE_ENTER();
    *out = stack.empty() ? nullptr : stack.back();
    return SUCCESS;
}

hd_cu_result cuCtxGetDevice(hd_cu_device *out)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    *out = context->device;
    return SUCCESS;
}

hd_cu_result cuCtxPushCurrent_v2(hd_cu_context context)
{
    FAKE_ENTER();
    Guard guard(world().lock);

    if (context != nullptr && world().contexts.count(context) == 0)
        return INVALID_CONTEXT;
    stack.push_back(context);
    return SUCCESS;
}

EXPORT hd_cu_context fake_cuda_context(void)
{
    return stack.empty() ? nullptr : stack.back();
}

EXPORT void fake_cuda_adopt(hd_cu_context context)
{
    stack.push_back(context);
}

hd_cu_result cuCtxEnablePeerAccess(hd_cu_context peer, unsigned flags)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    Guard guard(world().lock);

    if (flags != 0)
        return INVALID_VALUE;
    if (peer == context || world().contexts.count(peer) == 0)
        return INVALID_CONTEXT;
    return context->peers.insert(peer).second ? SUCCESS : HD_CU_PEER_ENABLED;
}

hd_cu_result cuCtxDisablePeerAccess(hd_cu_context peer)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    Guard guard(world().lock);

    return context->peers.erase(peer) == 1 ? SUCCESS : PEER_NOT_ENABLED;
}

hd_cu_result cuCtxPopCurrent_v2(hd_cu_context *out)
{
    hd_cu_result injected = enter(__func__);

    if (stack.empty())
        return INVALID_CONTEXT;
    if (out != nullptr)
        *out = stack.back();
    stack.pop_back();
    return injected;
}
