// A fake of NVSHMEM: memory of the device at hand, which cuBLASMp's stand-in
// asks for by address.
#include <map>
#include <mutex>

#include "link.h"

extern "C" {
#define HD_SHMEM(symbol, result, name, ...) \
    __attribute__((visibility("default"))) result symbol(__VA_ARGS__);
#include "runtime/cuda/vendor/nvshmem.def"
#undef HD_SHMEM
// Bytes of the piece that begins there; 0 if none does.
__attribute__((visibility("default"))) size_t
fake_nvshmem_bytes(const void *at);
}

namespace
{

std::mutex lock;
std::map<const void *, size_t> pieces;

} // namespace

void *nvshmem_malloc(size_t bytes)
{
    auto *alloc =
        fake::find_in_cuda<hd_cu_result(hd_cu_ptr *, size_t)>("cuMemAlloc_v2");
    hd_cu_ptr memory = 0;

    if (fake::fails("nvshmem_malloc") || alloc == nullptr ||
        alloc(&memory, bytes) != HD_CU_SUCCESS)
        return nullptr;
    std::lock_guard<std::mutex> held(lock);
    void *at = reinterpret_cast<void *>(static_cast<uintptr_t>(memory));
    pieces[at] = bytes;
    return at;
}

void nvshmem_free(void *memory)
{
    auto *release = fake::find_in_cuda<hd_cu_result(hd_cu_ptr)>("cuMemFree_v2");

    std::lock_guard<std::mutex> held(lock);
    pieces.erase(memory);
    release(static_cast<hd_cu_ptr>(reinterpret_cast<uintptr_t>(memory)));
}

size_t fake_nvshmem_bytes(const void *at)
{
    std::lock_guard<std::mutex> held(lock);
    auto found = pieces.find(at);

    return found == pieces.end() ? 0 : found->second;
}
