// What every call of the fake begins with: is there a world, is this call to
// fail, which context is meant. And the accounts of what is alive.
#include "cuda_state.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <unistd.h>

namespace fake
{

namespace
{

struct Faults {
    std::mutex lock;
    std::atomic<pid_t> pid{getpid()};
    std::map<std::string, long, std::less<>> calls;
    std::string symbol;                // that will fail
    long left = 0;                     // at this call from now; 0: none
    std::map<std::string, int> others; // what other fakes have made
};

Faults &faults()
{
    static Faults *all = [] {
        Faults *made = new Faults;
        const char *text = getenv("FAKE_CUDA_FAIL");
        const char *colon = text == nullptr ? nullptr : strrchr(text, ':');

        if (colon != nullptr) {
            made->symbol.assign(text, colon);
            made->left = atol(colon + 1);
        }
        return made;
    }();
    return *all;
}

struct Origin {
    World *world;
    pid_t pid;
};
std::atomic<Origin *> origin{nullptr};

uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text == nullptr ? otherwise : strtoull(text, nullptr, 0);
}

bool is_named(const std::string &asked, const std::string &symbol)
{
    return asked == symbol || asked + "_v2" == symbol;
}

hd_cu_result count(const char *symbol)
{
    Faults &all = faults();
    std::lock_guard<std::mutex> guard(all.lock);

    // A child counts from 0; what was to fail in it still does.
    if (all.pid != getpid()) {
        all.pid = getpid();
        all.calls.clear();
        all.others.clear();
    }
    auto found = all.calls.find(symbol);
    if (found == all.calls.end())
        found = all.calls.emplace(symbol, 0).first;
    found->second++;
    if (all.left < 1 || !is_named(all.symbol, symbol) || --all.left > 0)
        return SUCCESS;
    if (is_named("cuMemAlloc", symbol) || is_named("cuMemHostAlloc", symbol))
        return HD_CU_OUT_OF_MEMORY;
    return UNKNOWN;
}

// What CUDA calls potentially unsafe: it asks the device for something outside
// of its streams, which a capture would not see.
bool is_unsafe(const char *symbol)
{
    static const char *const kUnsafe[] = {
        "cuMemAlloc_v2",       "cuMemFree_v2",      "cuMemHostAlloc",
        "cuMemFreeHost",       "cuIpcGetMemHandle", "cuIpcOpenMemHandle_v2",
        "cuIpcCloseMemHandle", "cuModuleLoadData",  "cuModuleUnload",
        "cuStreamSynchronize", "cuStreamQuery",     "cuEventQuery"};

    for (const char *one : kUnsafe) {
        if (strcmp(one, symbol) == 0)
            return true;
    }
    return false;
}

thread_local int capture_mode = CAPTURE_GLOBAL; // of the thread

// A capture of this thread's own forbids unless it is relaxed, another's if it
// is global; and nothing does what the thread's own mode allows.
bool forbids(const Capture &capture)
{
    if (capture_mode == HD_CU_CAPTURE_RELAXED)
        return false;
    if (capture.thread == std::this_thread::get_id())
        return capture.mode != HD_CU_CAPTURE_RELAXED;
    return capture_mode == CAPTURE_GLOBAL && capture.mode == CAPTURE_GLOBAL;
}

bool is_forbidden()
{
    Guard guard(world().lock);
    bool found = false;

    for (CUstream_st *stream : world().streams) {
        if (stream->capture != nullptr && forbids(*stream->capture))
            found = stream->capture->invalid = true;
    }
    return found;
}

bool needs_no_init(const char *symbol)
{
    return strcmp(symbol, "cuInit") == 0 ||
           strcmp(symbol, "cuDriverGetVersion") == 0 ||
           strncmp(symbol, "cuGetError", 10) == 0;
}

} // namespace

World &world()
{
    return *origin.load()->world;
}

hd_cu_result init_world()
{
    static std::mutex making;
    std::lock_guard<std::mutex> guard(making);
    World *made;

    if (origin.load() != nullptr)
        return origin.load()->pid == getpid() ? SUCCESS : NOT_INITIALIZED;
    made = new World;
    made->primary.resize(setting("FAKE_CUDA_DEVICES", 8));
    made->memory = setting("FAKE_CUDA_MEMORY", uint64_t{8} << 30);
    made->max_blocked =
        static_cast<int>(setting("FAKE_CUDA_STREAMS_BLOCKED", 7));
    made->chaos = setting("FAKE_CUDA_CHAOS", 0);
    made->nonce = static_cast<uint64_t>(now() * 1e9);
    if (made->primary.empty()) {
        delete made;
        return HD_CU_NO_DEVICE;
    }
    origin.store(new Origin{made, getpid()});
    return SUCCESS;
}

hd_cu_result enter(const char *symbol)
{
    hd_cu_result injected = count(symbol);

    if (injected != SUCCESS || needs_no_init(symbol))
        return injected;
    if (origin.load() == nullptr || origin.load()->pid != getpid())
        return NOT_INITIALIZED;
    return is_unsafe(symbol) && is_forbidden() ? CAPTURE_UNSUPPORTED : SUCCESS;
}

double now()
{
    timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return static_cast<double>(at.tv_sec) +
           1e-9 * static_cast<double>(at.tv_nsec);
}

} // namespace fake

using namespace fake;

hd_cu_result cuThreadExchangeStreamCaptureMode(int *mode)
{
    FAKE_ENTER();
    if (*mode < CAPTURE_GLOBAL || *mode > HD_CU_CAPTURE_RELAXED)
        return INVALID_VALUE;
    std::swap(*mode, capture_mode);
    return SUCCESS;
}

EXPORT long fake_cuda_calls(const char *symbol)
{
    Faults &all = faults();

    // A child has the lock as it was when it was forked: another thread's.
    if (all.pid != getpid())
        return 0;
    std::lock_guard<std::mutex> guard(all.lock);
    return all.calls[symbol];
}

EXPORT void fake_cuda_fail(const char *symbol, long k)
{
    Faults &all = faults();
    std::lock_guard<std::mutex> guard(all.lock);

    all.symbol = symbol;
    all.left = k;
}

EXPORT hd_cu_result fake_cuda_enter(const char *symbol)
{
    return count(symbol);
}

EXPORT void fake_cuda_account(const char *what, int by)
{
    Faults &all = faults();
    std::lock_guard<std::mutex> guard(all.lock);

    all.others[what] += by;
}

EXPORT void fake_cuda_reset(void)
{
    Faults &all = faults();
    std::lock_guard<std::mutex> guard(all.lock);

    all.calls.clear();
    all.left = 0;
}

namespace
{

int count_regions(Region::Kind kind)
{
    int n = 0;

    for (const auto &entry : world().regions)
        n += entry.second.kind == kind ? 1 : 0;
    return n;
}

} // namespace

EXPORT int fake_cuda_balance(char *out, size_t bytes)
{
    std::string text;
    int sum = 0, retained = 0;
    auto add = [&](int n, const char *what) {
        sum += n;
        if (n != 0)
            text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + what;
    };

    if (origin.load() != nullptr && origin.load()->pid == getpid()) {
        Guard guard(world().lock);
        World &w = world();

        for (CUctx_st *context : w.contexts)
            retained += context->retained;
        add(count_regions(Region::DEVICE), "memory");
        add(count_regions(Region::HOST), "host memory");
        add(count_regions(Region::IMPORTED), "imported handles");
        add(static_cast<int>(w.streams.size()), "streams");
        add(static_cast<int>(w.events.size()), "events");
        add(static_cast<int>(w.modules.size()), "modules");
        add(static_cast<int>(w.graphs.size()), "graphs");
        add(static_cast<int>(w.execs.size()), "graph execs");
        add(retained, "retained contexts");
    }
    {
        Faults &all = faults();
        std::lock_guard<std::mutex> guard(all.lock);

        for (const auto &entry : all.others)
            add(entry.second, entry.first.c_str());
    }
    snprintf(out, bytes, "%s", text.c_str());
    return sum;
}
