// The compiler's own kernel: a call in heddle's programs, and run by itself for
// what is in none of them. CUDA is opened at run time, and not needed to build.
#pragma once

#include <dlfcn.h>
#include <heddle/call.h>
#include <math.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

// One source, for this compiler and, as a text, for CUDA's. The struct has the
// name that heddle's kernels give theirs, by which stand-ins for CUDA know it.
#define HERE_AND_THERE(...) \
    __VA_ARGS__             \
    static const char kText[] = #__VA_ARGS__;
HERE_AND_THERE(
    struct hd_kernel_args {
        float *to;
        const float *from;
        long long n;
    };
    inline void Gelu(const hd_kernel_args &args, long long i) {
        double v = args.from[i];
        double t = tanh(0.7978845608028654 * (v + 0.044715 * v * v * v));
        args.to[i] = static_cast<float>(0.5 * v * (1 + t));
    })
static const char kKernel[] =
    "extern \"C\" __global__ void gelu(const hd_kernel_args args)\n"
    "{\n"
    "    long long i = blockIdx.x * 256ll + threadIdx.x;\n"
    "    if (i < args.n) Gelu(args, i);\n"
    "}\n";

inline void *Open(const char *variable, const char *name)
{
    const char *path = std::getenv(variable);

    return dlopen(path ? path : name, RTLD_NOW);
}

// A function by its name. All that are called so return 0, or an error.
template <class... T> void Call(void *library, const char *name, T... with)
{
    auto *fn = reinterpret_cast<int (*)(T...)>(dlsym(library, name));
    int error = fn ? fn(with...) : -1;

    if (error)
        throw std::runtime_error(std::string(name) + ": error " +
                                 std::to_string(error));
}

// As frameworks have it: a context, which heddle takes where it is current, and
// a stream. They are there until the process ends.
struct Cuda {
    void *driver = Open("HEDDLE_CUDA_LIB", "libcuda.so.1");
    void *nvrtc = Open("HEDDLE_NVRTC_LIB", "libnvrtc.so");
    void *stream = nullptr, *gelu = nullptr;

    explicit Cuda(int rank)
    {
        int devices = 0, device = 0, major = 0, minor = 0;
        void *context = nullptr, *program = nullptr, *module = nullptr;
        void **none = nullptr;
        size_t bytes = 0;
        std::string text = std::string(kText) + kKernel;

        Call(driver, "cuInit", 0u);
        Call(driver, "cuDeviceGetCount", &devices);
        Call(driver, "cuDeviceGet", &device, rank % devices);
        Call(driver, "cuDevicePrimaryCtxRetain", &context, device);
        Call(driver, "cuCtxPushCurrent_v2", context);
        Call(driver, "cuStreamCreateWithPriority", &stream, 1u, 0);
        Call(driver, "cuDeviceGetAttribute", &major, 75, device);
        Call(driver, "cuDeviceGetAttribute", &minor, 76, device);
        std::string arch = "-arch=sm_" + std::to_string(10 * major + minor);
        const char *options[] = {arch.c_str(), "-default-device"};
        Call(nvrtc, "nvrtcCreateProgram", &program, text.c_str(), "gelu", 0,
             none, none);
        Call(nvrtc, "nvrtcCompileProgram", program, 2, options);
        Call(nvrtc, "nvrtcGetCUBINSize", program, &bytes);
        std::string image(bytes, 0);
        Call(nvrtc, "nvrtcGetCUBIN", program, &image[0]);
        Call(nvrtc, "nvrtcDestroyProgram", &program);
        Call(driver, "cuModuleLoadData", &module, image.data());
        Call(driver, "cuModuleGetFunction", &gelu, module, "gelu");
    }
};

// On the cpu, where there is no Cuda, at once.
inline void RunGelu(const Cuda *cuda, void *stream, hd_kernel_args args)
{
    unsigned blocks = static_cast<unsigned>((args.n + 255) / 256), one = 1;
    void *parameters[] = {&args}, **extra = nullptr;

    if (cuda)
        return Call(cuda->driver, "cuLaunchKernel", cuda->gelu, blocks, one,
                    one, 256u, one, one, 0u, stream, parameters, extra);
    for (long long i = 0; i < args.n; i++)
        Gelu(args, i);
}

// What heddle calls, on a thread of its own or, with CUDA, on the one that
// issues a run. Views are parts of larger buffers, and have strides.
inline hd_status CallGelu(void *cuda, const hd_call_site *site)
try {
    const hd_call_view &y = site->result[0], &x = site->operand[0];
    hd_kernel_args args = {static_cast<float *>(y.address),
                           static_cast<const float *>(x.address), 1};

    for (int d = y.ndims; d-- > 0; args.n *= y.extent[d])
        if (y.extent[d] > 1 && (y.stride[d] != args.n || x.stride[d] != args.n))
            throw std::runtime_error("this gelu is of dense views alone");
    RunGelu(static_cast<const Cuda *>(cuda), site->stream, args);
    return HD_OK;
} catch (const std::exception &error) {
    std::snprintf(site->why, site->nwhy, "%s", error.what());
    return HD_ERROR_SYSTEM;
}
