// Modules and kernels: shared objects that fake_nvrtc has made.
#include "image.h"

#include <array>
#include <cstring>
#include <dlfcn.h>
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

struct Args {
    std::array<uint64_t, KERNEL_ARGS / sizeof(uint64_t)> at;
};

bool run_kernel(const CUfunc_st *function, const Args &args, unsigned blocks,
                unsigned threads)
{
    // What 32 bits hold is a number.
    for (uint64_t at : args.at) {
        if (at > UINT32_MAX && !is_reachable(at))
            return false;
    }
    function->run(&args, blocks, threads);
    return true;
}

} // namespace

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
    void *run;

    if (world().modules.count(module) == 0)
        return INVALID_HANDLE;
    run = dlsym(module->library, (std::string(name) + "_fake_run").c_str());
    if (run == nullptr)
        return NOT_FOUND;
    auto &function = module->functions[name];
    if (function == nullptr) {
        function = std::make_unique<CUfunc_st>();
        function->context = module->context;
        memcpy(&function->run, &run, sizeof(run));
        world().functions.insert(function.get());
    }
    *out = function.get();
    return SUCCESS;
}

hd_cu_result cuLaunchKernel(hd_cu_function function, unsigned grid_x,
                            unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z,
                            unsigned shared_bytes, hd_cu_stream handle,
                            void **parameters, void **extra)
{
    FAKE_ENTER();
    FAKE_STREAM(handle, stream);
    Args args;

    {
        Guard guard(world().lock);

        if (world().functions.count(function) == 0 ||
            function->context != stream->context)
            return INVALID_HANDLE;
    }
    if (grid_x == 0 || grid_x > INT32_MAX || block_x == 0 || block_x > 1024 ||
        grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1 ||
        shared_bytes != 0 || parameters == nullptr || extra != nullptr)
        return INVALID_VALUE;
    memcpy(&args, parameters[0], sizeof(args));
    return submit(stream, [=](Lane &) {
        bool ran = run_kernel(function, args, grid_x, block_x);

        fake_cuda_spend(world().kernel_seconds);
        return ran;
    });
}
