// Memory: each piece is a mapped memfd, so that another process gets at it by
// way of /proc, and an inaccessible page follows it closely. What is freed
// stays inaccessible, and its addresses are not used again.
//
//     | header page | (slack) bytes ........| inaccessible page |
//                             ^ a multiple of 256
#include <algorithm>
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_state.h"

using namespace fake;

namespace
{

constexpr size_t PAGE = 4096;
constexpr uint64_t MAGIC = 0x6b61662065736163; // of headers and handles

// At the start of the memfd, and in the handle that names it.
struct Header {
    uint64_t magic, nonce, bytes;
};

struct Handle {
    Header header;
    int32_t pid, fd;
    char rest[32];
};
static_assert(sizeof(Handle) == sizeof(hd_cu_ipc_handle), "as the real one");

size_t data_bytes(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

// Sets `map`, `map_bytes`; answers with the address of the first byte, or 0.
uintptr_t map_memory(int fd, Region &region)
{
    size_t data = data_bytes(region.bytes);
    size_t slack = data - (region.bytes + 255) / 256 * 256;
    void *place;

    region.map_bytes = PAGE + data + PAGE;
    place = mmap(nullptr, region.map_bytes, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED)
        return 0;
    region.map = place;
    if (mmap(place, PAGE + data, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             fd, 0) == MAP_FAILED) {
        munmap(place, region.map_bytes);
        return 0;
    }
    return reinterpret_cast<uintptr_t>(place) + PAGE + slack;
}

void unmap_memory(Region &region)
{
    mmap(region.map, region.map_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (region.kind == Region::IMPORTED)
        flock(region.fd, LOCK_UN); // a fork of this process has it open too
    if (region.fd >= 0)
        close(region.fd);
    region.kind = Region::DEAD;
}

uint64_t new_nonce()
{
    Guard guard(world().lock);

    return ++world().nonce * 1000003 ^ static_cast<uint64_t>(getpid()) << 40;
}

bool has_room(int device, size_t bytes)
{
    Guard guard(world().lock);
    uint64_t used = 0;

    for (const auto &entry : world().regions) {
        if (entry.second.kind == Region::DEVICE &&
            entry.second.device == device)
            used += entry.second.bytes;
    }
    return bytes <= world().memory - used;
}

// Of large memory the ends alone, since pages that nobody touches cost nothing.
// Written by way of the file: that takes no fault for each page.
bool fill_garbage(int fd, size_t bytes)
{
    constexpr size_t END = 256 << 10;
    static const std::string garbage(1 << 16, '\xCB');

    for (size_t at = 0; at < bytes;) {
        size_t n = std::min(bytes - at, garbage.size());

        if (pwrite(fd, garbage.data(), n, static_cast<off_t>(PAGE + at)) !=
            static_cast<ssize_t>(n))
            return false;
        at += n;
        if (at == END && bytes > 2 * END)
            at = bytes - END;
    }
    return true;
}

hd_cu_result make_memory(Region::Kind kind, CUctx_st *context, size_t bytes,
                         bool shareable, uintptr_t *out)
{
    Region region{};
    uintptr_t at = 0;

    region.bytes = bytes;
    region.kind = kind;
    region.context = context;
    region.device = context->device;
    region.shareable = shareable;
    region.nonce = new_nonce();
    region.fd = memfd_create("fake-gpu", MFD_CLOEXEC);
    if (region.fd >= 0 &&
        ftruncate(region.fd, static_cast<off_t>(PAGE + data_bytes(bytes))) ==
            0 &&
        fill_garbage(region.fd, data_bytes(bytes)))
        at = map_memory(region.fd, region);
    if (at == 0) {
        if (region.fd >= 0)
            close(region.fd);
        return HD_CU_OUT_OF_MEMORY;
    }
    *static_cast<Header *>(region.map) = Header{MAGIC, region.nonce, bytes};
    Guard guard(world().lock);
    world().regions[at] = region;
    *out = at;
    return SUCCESS;
}

// The piece that holds the address, or the one it is just past.
Region *find_region(uint64_t at, uintptr_t *start)
{
    auto next = world().regions.upper_bound(at);

    if (next == world().regions.begin())
        return nullptr;
    --next;
    if (at > next->first + next->second.bytes)
        return nullptr;
    *start = next->first;
    return &next->second;
}

// What can be touched at the address, which is not just past it.
Region *find_live(uint64_t at, uintptr_t *start)
{
    Region *region = find_region(at, start);

    return region == nullptr || region->kind == Region::DEAD ||
                   at == *start + region->bytes
               ? nullptr
               : region;
}

Region *find_start(uint64_t at, Region::Kind kind)
{
    auto found = world().regions.find(at);

    return found == world().regions.end() || found->second.kind != kind
               ? nullptr
               : &found->second;
}

// The process is a zombie, or on the way there (PF_EXITING), or gone.
bool is_ending(int pid)
{
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text(std::istreambuf_iterator<char>(file), {});
    size_t name = text.rfind(')');
    char state = 'Z';
    unsigned flags = 0;

    if (name == std::string::npos ||
        sscanf(text.c_str() + name + 1, " %c %*d %*d %*d %*d %*d %u", &state,
               &flags) != 2)
        return true;
    return state == 'Z' || state == 'X' || (flags & 4) != 0;
}

// Somebody who has locked the file is, or nobody has any more.
bool ends_some_holder(int fd)
{
    struct stat about;
    std::ifstream locks("/proc/locks");
    std::string line;
    bool found = false;

    if (fstat(fd, &about) != 0)
        return false;
    while (std::getline(locks, line)) {
        int pid = 0;
        unsigned long node = 0;

        if (sscanf(line.c_str(), "%*d: FLOCK %*s %*s %d %*x:%*x:%lu", &pid,
                   &node) != 2 ||
            node != about.st_ino || pid == getpid())
            continue;
        found = true;
        if (is_ending(pid))
            return true;
    }
    return !found;
}

// CUDA: "calling cuMemFree on an exported memory region before calling
// cuIpcCloseMemHandle in the importing context will result in undefined
// behavior". Whoever imports a piece has its file locked.
// A process that is killed may have let go of other files before.
bool is_open_elsewhere(const Region &region)
{
    for (int i = 0; i < 10000; i++) {
        if (flock(region.fd, LOCK_EX | LOCK_NB) == 0)
            return false;
        if (!ends_some_holder(region.fd))
            return true;
        usleep(1000);
    }
    return true;
}

void check_closed(const Region &region)
{
    if (region.kind != Region::DEVICE || !is_open_elsewhere(region))
        return;
    fprintf(stderr,
            "fake CUDA: process %d frees %zu bytes that another one "
            "has open\n",
            getpid(), region.bytes);
    abort();
}

// A device frees nothing while it works.
hd_cu_result free_memory(CUctx_st *context, uint64_t at, Region::Kind kind)
{
    Guard guard(world().lock);
    Region *region = find_start(at, kind);

    if (region == nullptr)
        return INVALID_VALUE;
    context->freeing++;
    quiesce(guard, context);
    context->freeing--;
    world().change.notify_all();
    region = find_start(at, kind);
    if (region == nullptr)
        return INVALID_VALUE;
    check_closed(*region);
    unmap_memory(*region);
    return context->failed;
}

bool overlaps_any(uint64_t at, size_t bytes)
{
    auto next = world().regions.upper_bound(at);

    return next != world().regions.end() && next->first < at + bytes;
}

} // namespace

void fake::check_end(const CUctx_st *context)
{
    for (const auto &entry : world().regions)
        if (entry.second.context == context)
            check_closed(entry.second);
}

Place fake::locate(uint64_t at, size_t bytes)
{
    Guard guard(world().lock);
    uintptr_t start;
    Region *region = find_region(at, &start);

    if (region == nullptr || at == start + region->bytes)
        return overlaps_any(at, bytes) ? Place::NOWHERE : Place::PAGEABLE;
    if (region->kind == Region::DEAD || bytes > start + region->bytes - at)
        return Place::NOWHERE;
    return region->kind == Region::HOST ? Place::HOST : Place::DEVICE;
}

bool fake::is_reachable(uint64_t at)
{
    Guard guard(world().lock);
    uintptr_t start;
    Region *region = find_region(at, &start);

    return region != nullptr && region->kind != Region::DEAD;
}

bool fake::is_allowed(const CUctx_st *context, uint64_t at)
{
    Guard guard(world().lock);
    uintptr_t start;
    Region *region = find_region(at, &start);

    return region == nullptr || region->kind != Region::DEVICE ||
           region->context == context ||
           context->peers.count(region->context) != 0;
}

EXPORT int fake_cuda_reaches(const void *at, size_t bytes)
{
    Place place = locate(reinterpret_cast<uintptr_t>(at), bytes);

    return place == Place::DEVICE || place == Place::HOST;
}

static hd_cu_result alloc_device(hd_cu_ptr *out, size_t bytes, bool shareable)
{
    FAKE_CONTEXT(context);
    uintptr_t at;
    hd_cu_result result;

    if (bytes == 0)
        return INVALID_VALUE;
    if (!has_room(context->device, bytes))
        return HD_CU_OUT_OF_MEMORY;
    result = make_memory(Region::DEVICE, context, bytes, shareable, &at);
    if (result == SUCCESS)
        *out = at;
    return result;
}

EXPORT hd_cu_result fake_cuda_alloc_unshared(hd_cu_ptr *out, size_t bytes)
{
    return alloc_device(out, bytes, false);
}

hd_cu_result cuMemAlloc_v2(hd_cu_ptr *out, size_t bytes)
{
    FAKE_ENTER();
    return alloc_device(out, bytes, true);
}

hd_cu_result cuMemFree_v2(hd_cu_ptr at)
{
    hd_cu_result injected = enter(__func__);
    CUctx_st *context = nullptr;
    hd_cu_result result;

    if (injected == NOT_INITIALIZED)
        return injected;
    result = current(&context);
    if (context == nullptr)
        return result;
    if (at != 0)
        result = free_memory(context, at, Region::DEVICE);
    return injected != SUCCESS ? injected : result;
}

hd_cu_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    Guard guard(world().lock);

    *total = *free_bytes = world().memory;
    for (const auto &entry : world().regions) {
        if (entry.second.kind == Region::DEVICE &&
            entry.second.device == context->device)
            *free_bytes -= entry.second.bytes;
    }
    return SUCCESS;
}

hd_cu_result cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    uintptr_t at;
    hd_cu_result result;

    if (bytes == 0 || flags > 7)
        return INVALID_VALUE;
    result = make_memory(Region::HOST, context, bytes, false, &at);
    if (result == SUCCESS)
        *out = reinterpret_cast<void *>(at);
    return result;
}

hd_cu_result cuMemFreeHost(void *at)
{
    hd_cu_result injected = enter(__func__);
    CUctx_st *context = nullptr;
    hd_cu_result result;

    if (injected == NOT_INITIALIZED)
        return injected;
    result = current(&context);
    if (context == nullptr)
        return result;
    result =
        free_memory(context, reinterpret_cast<uintptr_t>(at), Region::HOST);
    return injected != SUCCESS ? injected : result;
}

namespace
{

std::atomic<uint64_t> renumbered;

} // namespace

EXPORT void fake_cuda_renumber(void)
{
    renumbered++;
}

hd_cu_result cuPointerGetAttribute(void *out, int attribute, hd_cu_ptr at)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    Guard guard(world().lock);
    uintptr_t start;
    Region *region = find_live(at, &start);

    if (region == nullptr)
        return INVALID_VALUE;
    switch (attribute) {
    case HD_CU_POINTER_MEMORY_TYPE:
        *static_cast<unsigned *>(out) = region->kind == Region::HOST ? 1 : 2;
        return SUCCESS;
    case HD_CU_POINTER_DEVICE_ORDINAL:
        *static_cast<int *>(out) = region->device;
        return SUCCESS;
    case HD_CU_POINTER_BUFFER_ID: // addresses are not used again
        *static_cast<uint64_t *>(out) = start + renumbered;
        return SUCCESS;
    default:
        return NOT_SUPPORTED;
    }
}

hd_cu_result cuMemGetAddressRange_v2(hd_cu_ptr *base, size_t *bytes,
                                     hd_cu_ptr at)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    Guard guard(world().lock);
    uintptr_t start;
    Region *region = find_live(at, &start);

    if (region == nullptr)
        return NOT_FOUND;
    *base = start;
    *bytes = region->bytes;
    return SUCCESS;
}

hd_cu_result cuIpcGetMemHandle(hd_cu_ipc_handle *out, hd_cu_ptr at)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    Guard guard(world().lock);
    Region *region = find_start(at, Region::DEVICE);
    Handle handle{};

    if (region == nullptr || !region->shareable)
        return INVALID_VALUE;
    handle.header = Header{MAGIC, region->nonce, region->bytes};
    handle.pid = getpid();
    handle.fd = region->fd;
    memcpy(out, &handle, sizeof(handle));
    region->exported = true;
    return SUCCESS;
}

EXPORT int fake_cuda_exported(void)
{
    Guard guard(world().lock);
    int n = 0;

    for (const auto &entry : world().regions)
        n += entry.second.kind == Region::DEVICE && entry.second.exported;
    return n;
}

// The memfd that the handle names, if its owner has not freed it, locked; or
// -1.
static int open_handle(const Handle &handle)
{
    std::string path = "/proc/" + std::to_string(handle.pid) + "/fd/" +
                       std::to_string(handle.fd);
    Header found{};
    struct stat status;
    int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return -1;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
        pread(fd, &found, sizeof(found), 0) == sizeof(found) &&
        memcmp(&found, &handle.header, sizeof(found)) == 0 &&
        flock(fd, LOCK_SH | LOCK_NB) == 0) // else it is being freed
        return fd;
    close(fd);
    return -1;
}

static hd_cu_result import_memory(const Handle &handle, CUctx_st *context,
                                  uintptr_t *out)
{
    Region region{};
    uintptr_t at = 0;
    int fd = open_handle(handle);

    if (fd < 0)
        return INVALID_VALUE;
    region.bytes = handle.header.bytes;
    region.kind = Region::IMPORTED;
    region.context = context;
    region.device = context->device;
    region.fd = fd;
    region.nonce = handle.header.nonce;
    region.opens = 1;
    at = map_memory(fd, region);
    if (at == 0) {
        close(fd);
        return HD_CU_OUT_OF_MEMORY;
    }
    Guard guard(world().lock);
    world().regions[at] = region;
    *out = at;
    return SUCCESS;
}

// What is open already is counted once more.
static bool reopen(const Handle &handle, uintptr_t *out)
{
    Guard guard(world().lock);

    for (auto &entry : world().regions) {
        if (entry.second.kind == Region::IMPORTED &&
            entry.second.nonce == handle.header.nonce) {
            entry.second.opens++;
            *out = entry.first;
            return true;
        }
    }
    return false;
}

hd_cu_result cuIpcOpenMemHandle_v2(hd_cu_ptr *out, hd_cu_ipc_handle handle,
                                   unsigned flags)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    Handle named;
    uintptr_t at;

    memcpy(&named, &handle, sizeof(named));
    if (flags != HD_CU_IPC_LAZY_PEER_ACCESS || named.header.magic != MAGIC)
        return INVALID_VALUE;
    if (named.pid == getpid())
        return INVALID_CONTEXT;
    if (!reopen(named, &at)) {
        hd_cu_result result = import_memory(named, context, &at);

        if (result != SUCCESS)
            return result;
    }
    *out = at;
    return SUCCESS;
}

hd_cu_result cuIpcCloseMemHandle(hd_cu_ptr at)
{
    hd_cu_result injected = enter(__func__);
    CUctx_st *context = nullptr;
    hd_cu_result result;

    if (injected == NOT_INITIALIZED)
        return injected;
    result = current(&context);
    if (context == nullptr)
        return result;
    Guard guard(world().lock);
    Region *region = find_start(at, Region::IMPORTED);

    if (region == nullptr)
        return INVALID_VALUE;
    quiesce(guard, context);
    if (--region->opens == 0)
        unmap_memory(*region);
    return injected != SUCCESS ? injected : result;
}
