// Modules and kernels: shared objects that fake_nvrtc has made.
#include "image.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_state.h"

using namespace fake;

namespace
{

bool write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t wrote = write(fd, bytes, n);

        if (wrote <= 0)
            return false;
        bytes += wrote;
        n -= static_cast<size_t>(wrote);
    }
    return true;
}

void *load_image(const void *image)
{
    Image header;
    void *library = nullptr;
    int fd;

    memcpy(&header, image, sizeof(header));
    if (memcmp(header.magic, IMAGE_MAGIC, sizeof(header.magic)) != 0)
        return nullptr;
    fd = memfd_create("fake-kernel", MFD_CLOEXEC);
    if (fd < 0)
        return nullptr;
    if (write_all(fd, static_cast<const char *>(image) + sizeof(header),
                  header.bytes)) {
        std::string path = "/proc/self/fd/" + std::to_string(fd);

        library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    // The loader takes two libraries of one path for the same, so the number of
    // a descriptor that was loaded stays taken.
    if (library == nullptr)
        close(fd);
    return library;
}

using Dim = std::array<unsigned, 3>;

struct Launch {
    const CUfunc_st *function;
    Dim grid, block;
    std::vector<uint64_t> parameters;
};

// Where all threads of a block meet.
class Barrier
{
  public:
    explicit Barrier(unsigned threads)
    {
        pthread_barrier_init(&barrier_, nullptr, threads);
    }
    Barrier(const Barrier &) = delete;
    Barrier &operator=(const Barrier &) = delete;
    ~Barrier()
    {
        pthread_barrier_destroy(&barrier_);
    }
    static void Meet(void *barrier)
    {
        pthread_barrier_wait(&static_cast<Barrier *>(barrier)->barrier_);
    }

  private:
    pthread_barrier_t barrier_;
};

// Few threads that run at once: what generated kernels answer is the same on
// any grid.
void run_together(const Launch &launch)
{
    const unsigned blocks = std::min(launch.grid[0], 2u), threads = 2;
    std::vector<std::unique_ptr<Barrier>> barriers;
    std::vector<std::thread> all;

    for (unsigned b = 0; b < blocks; b++) {
        barriers.push_back(std::make_unique<Barrier>(threads));
        for (unsigned t = 0; t < threads; t++)
            all.emplace_back(launch.function->thread, launch.parameters.data(),
                             blocks, threads, b, t, Barrier::Meet,
                             barriers.back().get());
    }
    for (std::thread &thread : all)
        thread.join();
}

bool run_kernel(const Launch &launch)
{
    // What 32 bits hold is a number, and so is what is below 0.
    for (uint64_t at : launch.parameters) {
        if (at > UINT32_MAX && at <= INT64_MAX &&
            (!is_reachable(at) || !is_allowed(launch.function->context, at)))
            return false;
    }
    std::shared_lock<std::shared_mutex> some(
        launch.function->context->processors, std::defer_lock);
    std::unique_lock<std::shared_mutex> all(
        launch.function->context->processors, std::defer_lock);
    if (launch.function->holds)
        all.lock();
    else
        some.lock();
    if (launch.function->waits)
        run_together(launch);
    else
        launch.function->run(launch.parameters.data(), launch.grid.data(),
                             launch.block.data());
    return true;
}

constexpr int SHARED_MOST = 227 << 10; // bytes of dynamic shared memory
constexpr uint64_t CLUSTER_MOST = 8;   // blocks

uint64_t volume(const unsigned *dim)
{
    return uint64_t(dim[0]) * dim[1] * dim[2];
}

bool is_grid(const hd_cu_launch_config &config)
{
    return volume(config.grid) > 0 && config.grid[0] <= INT32_MAX &&
           config.grid[1] <= UINT16_MAX && config.grid[2] <= UINT16_MAX &&
           volume(config.block) > 0 && config.block[0] <= 1024 &&
           config.block[1] <= 1024 && config.block[2] <= 64 &&
           volume(config.block) <= 1024;
}

// Of all attributes a cluster is known, and an early launch, which is one in
// order here. In a graph it would be by an edge of another kind, which those
// that are asked for do not tell of: no graph has one.
hd_cu_result check_attributes(const hd_cu_launch_config &config, bool captured)
{
    for (unsigned i = 0; i < config.nattributes; i++) {
        const hd_cu_launch_attribute &attribute = config.attribute[i];
        const unsigned *cluster = attribute.value.cluster;

        if (attribute.id == HD_CU_LAUNCH_EARLY && !captured)
            continue;
        if (attribute.id != HD_CU_LAUNCH_CLUSTER || volume(cluster) == 0)
            return INVALID_VALUE;
        if (volume(cluster) > CLUSTER_MOST)
            return INVALID_CLUSTER_SIZE;
        for (int d = 0; d < 3; d++) {
            if (config.grid[d] % cluster[d] != 0)
                return INVALID_VALUE;
        }
    }
    return SUCCESS;
}

// The buffer that `extra` names, if it is all that it names and of `bytes`.
const void *find_buffer(void *const *extra, size_t bytes)
{
    const void *buffer = nullptr;
    size_t size = 0;

    for (int i = 0; i < 4 && extra[i] != nullptr; i += 2) {
        if (extra[i] == reinterpret_cast<void *>(HD_CU_LAUNCH_BUFFER))
            buffer = extra[i + 1];
        else if (extra[i] == reinterpret_cast<void *>(HD_CU_LAUNCH_BUFFER_SIZE))
            size = *static_cast<const size_t *>(extra[i + 1]);
        else
            return nullptr;
    }
    return size == bytes ? buffer : nullptr;
}

Work work_of(const Launch &launch)
{
    return [launch](Lane &) {
        bool ran = run_kernel(launch);

        fake_cuda_spend(world().kernel_seconds);
        return ran;
    };
}

CUfunc_st opaque_function;

} // namespace

Detail fake::opaque_kernel(int (*fn)(void *data))
{
    Detail detail{HD_CU_NODE_KERNEL, {}, {}, {}, {}, {}};

    detail.kernel.function = &opaque_function;
    detail.kernel.kernel = reinterpret_cast<void *>(fn);
    return detail;
}

// Loading waits for the device to be at rest, as does unloading.
hd_cu_result cuModuleLoadData(hd_cu_module *out, const void *image)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    void *library;

    {
        Guard guard(world().lock);

        quiesce(guard, context);
    }
    library = image == nullptr ? nullptr : load_image(image);
    if (library == nullptr)
        return INVALID_IMAGE;
    Guard guard(world().lock);
    *out = new CUmod_st{context, library, {}};
    world().modules.insert(*out);
    return SUCCESS;
}

hd_cu_result cuModuleUnload(hd_cu_module module)
{
    hd_cu_result injected = enter(__func__);

    if (injected == NOT_INITIALIZED)
        return injected;
    {
        Guard guard(world().lock);

        if (world().modules.count(module) == 0)
            return INVALID_HANDLE;
        quiesce(guard, module->context);
        if (world().modules.erase(module) == 0)
            return INVALID_HANDLE;
        for (auto &entry : module->functions)
            world().functions.erase(entry.second.get());
    }
    dlclose(module->library);
    delete module;
    return injected;
}

hd_cu_result cuModuleGetFunction(hd_cu_function *out, hd_cu_module module,
                                 const char *name)
{
    FAKE_ENTER();
    Guard guard(world().lock);
    void *run, *thread, *waits, *holds, *bytes;

    if (world().modules.count(module) == 0)
        return INVALID_HANDLE;
    run = dlsym(module->library, (std::string(name) + "_fake_run").c_str());
    thread =
        dlsym(module->library, (std::string(name) + "_fake_thread").c_str());
    bytes = dlsym(module->library, (std::string(name) + "_fake_bytes").c_str());
    waits = dlsym(module->library, "fake_waits");
    holds = dlsym(module->library, "fake_holds");
    if (run == nullptr || thread == nullptr || bytes == nullptr ||
        waits == nullptr)
        return NOT_FOUND;
    auto &function = module->functions[name];
    if (function == nullptr) {
        function = std::make_unique<CUfunc_st>();
        function->context = module->context;
        memcpy(&function->run, &run, sizeof(run));
        memcpy(&function->thread, &thread, sizeof(thread));
        function->waits = *static_cast<const bool *>(waits);
        // An image that was kept on disk may be older.
        function->holds = holds != nullptr && *static_cast<const bool *>(holds);
        function->bytes = *static_cast<const unsigned long *>(bytes);
        world().functions.insert(function.get());
    }
    *out = function.get();
    return SUCCESS;
}

// As the manual says of maps that are tiled and swizzled by 128 bytes. What is
// written is no more than the address, since no kernel reads it here.
hd_cu_result cuTensorMapEncodeTiled(hd_cu_tensor_map *out, int type,
                                    uint32_t rank, void *at,
                                    const uint64_t *extent,
                                    const uint64_t *stride, const uint32_t *box,
                                    const uint32_t *each, int interleave,
                                    int swizzle, int l2, int fill)
{
    FAKE_ENTER();
    const uint32_t line = box[0] * (type == HD_CU_MAP_U8 ? 1 : 2); // bytes
    bool fits = reinterpret_cast<uintptr_t>(out) % 64 == 0 &&
                reinterpret_cast<uintptr_t>(at) % 16 == 0 &&
                (type == HD_CU_MAP_U8 || type == HD_CU_MAP_F16 ||
                 type == HD_CU_MAP_BF16) &&
                rank == 3 && interleave == HD_CU_MAP_PLAIN &&
                swizzle == HD_CU_MAP_SWIZZLE_128 && l2 == HD_CU_MAP_L2_256 &&
                fill == HD_CU_MAP_ZEROS && line <= 128 && line % 16 == 0;

    for (unsigned i = 0; i < 3; i++)
        fits = fits && extent[i] > 0 && extent[i] <= UINT32_MAX && box[i] > 0 &&
               box[i] <= 256 && each[i] == 1;
    for (unsigned i = 0; i < 2; i++)
        fits = fits && stride[i] % 16 == 0 && stride[i] < uint64_t(1) << 40;
    if (!fits)
        return INVALID_VALUE;
    *out = {};
    out->opaque[0] = reinterpret_cast<uintptr_t>(at);
    return SUCCESS;
}

hd_cu_result cuFuncSetAttribute(hd_cu_function function, int attribute,
                                int value)
{
    FAKE_ENTER();
    Guard guard(world().lock);

    if (world().functions.count(function) == 0)
        return INVALID_HANDLE;
    if (attribute != HD_CU_FUNCTION_SHARED_BYTES || value < 0 ||
        value > SHARED_MOST)
        return INVALID_VALUE;
    function->shared = unsigned(value);
    return SUCCESS;
}

// Parameters come one by one, or all in one buffer: never both.
hd_cu_result cuLaunchKernelEx(const hd_cu_launch_config *config,
                              hd_cu_function function, void **parameters,
                              void **extra)
{
    FAKE_ENTER();
    if (config == nullptr ||
        (config->nattributes > 0 && config->attribute == nullptr))
        return INVALID_VALUE;
    FAKE_STREAM(config->stream, stream);
    Launch launch{function,
                  {config->grid[0], config->grid[1], config->grid[2]},
                  {config->block[0], config->block[1], config->block[2]},
                  {}};
    const void *from;
    hd_cu_result result;
    bool captured;

    {
        Guard guard(world().lock);

        captured = stream->capture != nullptr;
        if (world().functions.count(function) == 0 ||
            function->context != stream->context)
            return INVALID_HANDLE;
    }
    if (!is_grid(*config) || config->shared_bytes > function->shared ||
        (parameters == nullptr) == (extra == nullptr))
        return INVALID_VALUE;
    result = check_attributes(*config, captured);
    if (result != SUCCESS)
        return result;
    from =
        extra == nullptr ? parameters[0] : find_buffer(extra, function->bytes);
    if (from == nullptr)
        return INVALID_VALUE;
    launch.parameters.resize(function->bytes / sizeof(uint64_t));
    memcpy(launch.parameters.data(), from, function->bytes);
    Detail detail{HD_CU_NODE_KERNEL, {}, {}, {}, {}, {}};
    detail.kernel.function = function;
    memcpy(detail.kernel.grid, config->grid, sizeof(config->grid));
    memcpy(detail.kernel.block, config->block, sizeof(config->block));
    detail.kernel.shared_bytes = config->shared_bytes;
    detail.bytes.assign(static_cast<const char *>(from),
                        static_cast<const char *>(from) + function->bytes);
    return submit(stream, work_of(launch), detail);
}

// What callers launch their own kernels with: the driver has no use for it.
EXPORT hd_cu_result cuLaunchKernel(hd_cu_function function, unsigned grid_x,
                                   unsigned grid_y, unsigned grid_z,
                                   unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes,
                                   hd_cu_stream stream, void **parameters,
                                   void **extra)
{
    hd_cu_launch_config config{};

    config = {{grid_x, grid_y, grid_z},
              {block_x, block_y, block_z},
              shared_bytes,
              stream,
              nullptr,
              0};
    return cuLaunchKernelEx(&config, function, parameters, extra);
}

// The parameters stay the node's own.
hd_cu_result cuGraphKernelNodeGetParams_v2(hd_cu_node node,
                                           hd_cu_kernel_node *out)
{
    FAKE_ENTER();
    Guard guard(world().lock);

    if (find_node(node, HD_CU_NODE_KERNEL) == nullptr)
        return INVALID_VALUE;
    bool opaque = node->detail.kernel.function == &opaque_function;
    node->bytes = opaque ? sizeof(Work) : node->detail.bytes.size();
    node->extra[0] = reinterpret_cast<void *>(HD_CU_LAUNCH_BUFFER);
    node->extra[1] = opaque ? static_cast<void *>(&node->work)
                            : static_cast<void *>(node->detail.bytes.data());
    node->extra[2] = reinterpret_cast<void *>(HD_CU_LAUNCH_BUFFER_SIZE);
    node->extra[3] = &node->bytes;
    *out = node->detail.kernel;
    out->extra = node->extra;
    return SUCCESS;
}

// A kernel of the same context.
hd_cu_result cuGraphExecKernelNodeSetParams_v2(hd_cu_graph_exec exec,
                                               hd_cu_node node,
                                               const hd_cu_kernel_node *to)
{
    FAKE_ENTER();
    Launch launch{to->function,
                  {to->grid[0], to->grid[1], to->grid[2]},
                  {to->block[0], to->block[1], to->block[2]},
                  {}};
    const void *from;

    if ((to->extra == nullptr) == (to->parameters == nullptr))
        return INVALID_VALUE;
    {
        Guard guard(world().lock);

        if (find_node(node, HD_CU_NODE_KERNEL) == nullptr ||
            (to->function != &opaque_function &&
             world().functions.count(to->function) == 0))
            return INVALID_VALUE;
    }
    if (to->function == &opaque_function) {
        from = find_buffer(to->extra, sizeof(Work));
        return from == nullptr
                   ? INVALID_VALUE
                   : set_work(exec, node, *static_cast<const Work *>(from));
    }
    from = to->extra == nullptr ? to->parameters[0]
                                : find_buffer(to->extra, to->function->bytes);
    if (from == nullptr)
        return INVALID_VALUE;
    launch.parameters.resize(to->function->bytes / sizeof(uint64_t));
    memcpy(launch.parameters.data(), from, to->function->bytes);
    return set_work(exec, node, work_of(launch));
}
