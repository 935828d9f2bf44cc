// A tool that reads NVTX: NVTX_INJECTION64_PATH names it. Each range that ends
// is a line of the file FAKE_NVTX_LOG: how many ranges it was in, the domain,
// the message, the payload.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <nvtx3/nvToolsExt.h>

namespace
{

struct Range {
    const std::string *message;
    unsigned long long payload;
};

thread_local std::vector<Range> open_ranges;

// Handles are the texts themselves, kept to the end.
const std::string *TextOf(const void *handle)
{
    return static_cast<const std::string *>(handle);
}

nvtxDomainHandle_t CreateDomain(const char *name)
{
    static std::vector<const std::string *> kept;

    kept.push_back(new std::string(name));
    return reinterpret_cast<nvtxDomainHandle_t>(
        const_cast<std::string *>(kept.back()));
}

nvtxStringHandle_t RegisterString(nvtxDomainHandle_t, const char *text)
{
    return reinterpret_cast<nvtxStringHandle_t>(CreateDomain(text));
}

int Push(nvtxDomainHandle_t, const nvtxEventAttributes_t *range)
{
    if (range->version != NVTX_VERSION ||
        range->messageType != NVTX_MESSAGE_TYPE_REGISTERED ||
        range->payloadType != NVTX_PAYLOAD_TYPE_UNSIGNED_INT64)
        std::abort();
    open_ranges.push_back(
        {TextOf(range->message.registered), range->payload.ullValue});
    return int(open_ranges.size()) - 1;
}

int Pop(nvtxDomainHandle_t domain)
{
    const char *log = std::getenv("FAKE_NVTX_LOG");
    int file = log != nullptr
                   ? open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)
                   : -1;

    if (open_ranges.empty() || file < 0)
        std::abort();
    Range range = open_ranges.back();
    open_ranges.pop_back();
    dprintf(file, "%zu %s: %s %llu\n", open_ranges.size(),
            TextOf(domain)->c_str(), range.message->c_str(), range.payload);
    close(file);
    return int(open_ranges.size());
}

} // namespace

extern "C" __attribute__((visibility("default"))) int
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    auto callbacks =
        static_cast<const NvtxExportTableCallbacks *>(get(NVTX_ETID_CALLBACKS));
    NvtxFunctionTable table = nullptr;
    unsigned int size = 0;

    if (callbacks == nullptr ||
        callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table,
                                          &size) == 0 ||
        size <= NVTX_CBID_CORE2_DomainCreateA)
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] =
        reinterpret_cast<NvtxFunctionPointer>(CreateDomain);
    *table[NVTX_CBID_CORE2_DomainRegisterStringA] =
        reinterpret_cast<NvtxFunctionPointer>(RegisterString);
    *table[NVTX_CBID_CORE2_DomainRangePushEx] =
        reinterpret_cast<NvtxFunctionPointer>(Push);
    *table[NVTX_CBID_CORE2_DomainRangePop] =
        reinterpret_cast<NvtxFunctionPointer>(Pop);
    return 1;
}
