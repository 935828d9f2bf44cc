// A fake of NVRTC: CUDA C is compiled by the host's compiler, behind a few
// words that make it C++, and in front of functions that run a kernel block
// after block, and one thread of it, beside others that it waits for. That
// finds what a kernel computes, not what a GPU's compiler thinks of it.
#include "image.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <spawn.h>
#include <string>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "link.h"

struct _nvrtcProgram {
    std::string source, log, image;
};
typedef _nvrtcProgram *hd_nvrtc_program;

extern "C" {
#define HD_NVRTC(symbol, result, name, ...) \
    __attribute__((visibility("default"))) result symbol(__VA_ARGS__);
#include "codegen/nvrtc.def"
#undef HD_NVRTC
}

extern char **environ;

namespace
{

enum {
    SUCCESS = 0,
    INVALID_INPUT = 3,
    INVALID_PROGRAM = 4,
    INVALID_OPTION = 5,
    COMPILATION = 6,
    INTERNAL_ERROR = 11,
};

const char prelude[] =
    "#define __CUDACC__ 1\n"
    "#define __CUDACC_RTC__ 1\n"
    "#define __global__ __attribute__((visibility(\"default\")))\n"
    "#define __device__\n"
    "#define __host__\n"
    "#define __constant__\n"
    "#define __forceinline__ inline\n"
    "#define __noinline__\n"
    "#define __launch_bounds__(...)\n"
    "struct fake_dim { unsigned x, y, z; };\n"
    "struct fake_state {\n"
    "    fake_dim thread, block, threads, blocks;\n"
    "    unsigned naps;\n"
    // Where the threads of a block take turns the last comes after all others.
    "    void (*meet)(void *);\n"
    "    void *of_block;\n"
    "};\n"
    // A kernel looks at these more often than at anything else, and sanitizers
    // intercept what finds a thread's variables in a library opened late: one
    // pointer is small enough for what every thread has from the start.
    "static __thread fake_state *fake_self\n"
    "    __attribute__((tls_model(\"initial-exec\")));\n"
    "#define threadIdx (fake_self->thread)\n"
    "#define blockIdx (fake_self->block)\n"
    "#define blockDim (fake_self->threads)\n"
    "#define gridDim (fake_self->blocks)\n"
    "extern \"C\" {\n"
    "#define FAKE_MATH1(name) \\\n"
    "    double name(double) noexcept; float name##f(float) noexcept;\n"
    "#define FAKE_MATH2(name) \\\n"
    "    double name(double, double) noexcept; \\\n"
    "    float name##f(float, float) noexcept;\n"
    "FAKE_MATH1(acos) FAKE_MATH1(asin) FAKE_MATH1(atan) FAKE_MATH1(ceil)\n"
    "FAKE_MATH1(cos) FAKE_MATH1(cosh) FAKE_MATH1(erf) FAKE_MATH1(exp)\n"
    "FAKE_MATH1(exp2) FAKE_MATH1(expm1) FAKE_MATH1(fabs) FAKE_MATH1(floor)\n"
    "FAKE_MATH1(log) FAKE_MATH1(log1p) FAKE_MATH1(log2) FAKE_MATH1(nearbyint)\n"
    "FAKE_MATH1(rint) FAKE_MATH1(round) FAKE_MATH1(sin) FAKE_MATH1(sinh)\n"
    "FAKE_MATH1(sqrt) FAKE_MATH1(tan) FAKE_MATH1(tanh) FAKE_MATH1(trunc)\n"
    "FAKE_MATH2(atan2) FAKE_MATH2(copysign) FAKE_MATH2(fdim)\n"
    "FAKE_MATH2(fmax) FAKE_MATH2(fmin) FAKE_MATH2(fmod) FAKE_MATH2(pow)\n"
    "double fma(double, double, double) noexcept;\n"
    "float fmaf(float, float, float) noexcept;\n"
    "double ldexp(double, int) noexcept;\n"
    "float ldexpf(float, int) noexcept;\n"
    "long long llrint(double) noexcept;\n"
    "}\n"
    "extern \"C\" int usleep(unsigned us) noexcept;\n"
    // Who has waited for long may be late.
    "struct fake_time { long s, ns; };\n"
    "extern \"C\" int clock_gettime(int, fake_time *) noexcept;\n"
    "static inline long long clock64()\n"
    "{ fake_time t; clock_gettime(1, &t); return t.s * 2000000000ll + 2 * "
    "t.ns; }\n"
    "static inline void __nanosleep(unsigned)\n"
    "{ usleep(fake_self->naps++ < 100 ? 1 : 500); }\n"
    "static inline void __threadfence_system()\n"
    "{ __atomic_thread_fence(__ATOMIC_SEQ_CST); }\n"
    "static inline void __syncthreads()\n"
    "{ if (fake_self->meet != nullptr) fake_self->meet(fake_self->of_block); "
    "}\n"
    "static inline unsigned atomicAdd(unsigned *at, unsigned n)\n"
    "{ return __atomic_fetch_add(at, n, __ATOMIC_SEQ_CST); }\n"
    "#line 1\n";

const char trampoline[] =
    "\nextern \"C\" __attribute__((visibility(\"default\"))) void\n"
    "%s_fake_run(const hd_kernel_args *args, const unsigned grid[3],\n"
    "    const unsigned block[3])\n"
    "{\n"
    "    unsigned blocks = grid[0] * grid[1] * grid[2];\n"
    "    unsigned threads = block[0] * block[1] * block[2];\n"
    "    fake_state state = {};\n"
    "    fake_self = &state;\n"
    "    gridDim = {grid[0], grid[1], grid[2]};\n"
    "    blockDim = {block[0], block[1], block[2]};\n"
    "    for (unsigned b = 0; b < blocks; b++)\n"
    "        for (unsigned t = 0; t < threads; t++) {\n"
    "            blockIdx = {b % grid[0], b / grid[0] % grid[1],\n"
    "                        b / grid[0] / grid[1]};\n"
    "            threadIdx = {t % block[0], t / block[0] % block[1],\n"
    "                         t / block[0] / block[1]};\n"
    "            %s(*args);\n"
    "        }\n"
    "}\n"
    "extern \"C\" __attribute__((visibility(\"default\"))) void\n"
    "%s_fake_thread(const hd_kernel_args *args, unsigned blocks,\n"
    "    unsigned threads, unsigned b, unsigned t, void (*meet)(void *),\n"
    "    void *block)\n"
    "{\n"
    "    fake_state state =\n"
    "        {{t, 0, 0}, {b, 0, 0}, {threads, 1, 1}, {blocks, 1, 1}, 0,\n"
    "         meet, block};\n"
    "    fake_self = &state;\n"
    "    %s(*args);\n"
    "}\n"
    "extern \"C\" __attribute__((visibility(\"default\"))) const\n"
    "unsigned long %s_fake_bytes = sizeof(hd_kernel_args);\n";

bool is_word(char c)
{
    return isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

// The name in front of the parameters that follow `at`: the word before the
// first parenthesis that holds hd_kernel_args.
std::string name_after(const std::string &source, size_t at)
{
    size_t args = source.find("hd_kernel_args", at);
    size_t open = source.rfind('(', args);
    size_t end = open, start;

    if (args == std::string::npos || open == std::string::npos || open < at)
        return "";
    while (end > at && isspace(static_cast<unsigned char>(source[end - 1])))
        end--;
    for (start = end; start > at && is_word(source[start - 1]);)
        start--;
    return source.substr(start, end - start);
}

std::string whole_text(const std::string &source)
{
    static const char mark[] = "__global__";
    std::string text = prelude + source;
    std::set<std::string> names;

    for (size_t at = source.find(mark); at != std::string::npos;
         at = source.find(mark, at + 1))
        names.insert(name_after(source, at));
    names.erase("");
    text += "\nextern \"C\" __attribute__((visibility(\"default\"))) const "
            "bool fake_waits = " +
            std::string(source.find("__nanosleep") == std::string::npos
                            ? "false;\n"
                            : "true;\n");
    text += "extern \"C\" __attribute__((visibility(\"default\"))) const "
            "bool fake_holds = " +
            std::string(source.find("bool await_words(") == std::string::npos
                            ? "false;\n"
                            : "true;\n");
    for (const std::string &name : names) {
        std::string one = trampoline;

        for (size_t at; (at = one.find("%s")) != std::string::npos;)
            one.replace(at, 2, name);
        text += one;
    }
    return text;
}

bool read_file(const std::string &path, std::string *out)
{
    FILE *file = fopen(path.c_str(), "rbe");
    char part[65536];
    size_t n;

    if (file == nullptr)
        return false;
    out->clear();
    while ((n = fread(part, 1, sizeof(part), file)) > 0)
        out->append(part, n);
    fclose(file);
    return true;
}

bool write_file(const std::string &path, const std::string &bytes)
{
    FILE *file = fopen(path.c_str(), "wbe");
    bool fine;

    if (file == nullptr)
        return false;
    fine = fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
    return fclose(file) == 0 && fine;
}

bool ends_well(pid_t child)
{
    timespec pause = {0, 2000000};
    int status;

    for (int i = 0; i < 30000; i++) {
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) && WEXITSTATUS(status) == 0;
        nanosleep(&pause, nullptr);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return false;
}

// The first of $CXX, c++ and g++ that can be started.
bool compile(const std::string &from, const std::string &to,
             const std::string &log)
{
    const char *chosen = getenv("CXX");

    for (const char *compiler : {chosen, "c++", "g++"}) {
        // Libraries are this process's own: to link them takes as long as to
        // compile a kernel.
        const char *argv[] = {
            compiler,     "-x",         "c++",     "-O0",       "-w",
            "-std=c++17", "-fPIC",      "-shared", "-nostdlib", "-o",
            to.c_str(),   from.c_str(), "-lgcc",   nullptr};
        posix_spawn_file_actions_t actions;
        pid_t child;
        int failed;

        if (compiler == nullptr || *compiler == '\0')
            continue;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 2, log.c_str(),
                                         O_WRONLY | O_CREAT | O_TRUNC, 0600);
        failed = posix_spawnp(&child, compiler, &actions, nullptr,
                              const_cast<char **>(argv), environ);
        posix_spawn_file_actions_destroy(&actions);
        if (failed == 0)
            return ends_well(child);
    }
    return false;
}

bool build(const std::string &text, std::string *object, std::string *log)
{
    const char *temporary = getenv("TMPDIR");
    std::string folder = temporary == nullptr ? "/tmp" : temporary;
    bool fine;

    folder += "/fake-nvrtc-XXXXXX";
    if (mkdtemp(&folder[0]) == nullptr)
        return false;
    fine = write_file(folder + "/kernel.cu", text) &&
           compile(folder + "/kernel.cu", folder + "/kernel.so",
                   folder + "/log") &&
           read_file(folder + "/kernel.so", object);
    if (!read_file(folder + "/log", log))
        *log = "no compiler can be started";
    for (const char *name : {"/kernel.cu", "/kernel.so", "/log"})
        unlink((folder + name).c_str());
    rmdir(folder.c_str());
    return fine;
}

std::string hash_of(const std::string &text)
{
    uint64_t a = 0xcbf29ce484222325, b = 0x9e3779b97f4a7c15;
    char out[40];

    for (char c : text) {
        a = (a ^ static_cast<unsigned char>(c)) * 0x100000001b3;
        b = (b + static_cast<unsigned char>(c)) * 0xff51afd7ed558ccd;
        b ^= b >> 29;
    }
    snprintf(out, sizeof(out), "%016llx%016llx",
             static_cast<unsigned long long>(a),
             static_cast<unsigned long long>(b));
    return out;
}

// Renamed into its place, as others may look for it at the same time.
void keep(const std::string &path, const std::string &object)
{
    std::string part = path + "." + std::to_string(getpid());

    if (!write_file(part, object) || rename(part.c_str(), path.c_str()) != 0)
        unlink(part.c_str());
}

// Ranks want the same kernels at the same time: one of them compiles, and the
// others wait for what it keeps. Whoever dies lets go of the lock.
bool build_alone(const std::string &path, const std::string &text,
                 std::string *object, std::string *log)
{
    const std::string lock = path + ".lock";
    int fd = open(lock.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    bool fine = fd >= 0 && flock(fd, LOCK_EX) == 0 && read_file(path, object);

    if (fd < 0) { // every kernel would be compiled by each who wants it
        *log = "FAKE_NVRTC_CACHE names no folder to write to: " + lock;
        return false;
    }
    if (!fine) {
        fine = build(text, object, log);
        if (fine)
            keep(path, *object);
    }
    unlink(lock.c_str());
    close(fd);
    return fine;
}

bool build_once(const std::string &text, std::string *object, std::string *log)
{
    const char *cache = getenv("FAKE_NVRTC_CACHE");
    std::string path;

    if (cache == nullptr || *cache == '\0')
        return build(text, object, log);
    path = std::string(cache) + "/" + hash_of(text);
    return read_file(path, object) || build_alone(path, text, object, log);
}

} // namespace

#define ENTER()                    \
    do {                           \
        if (fake::fails(__func__)) \
            return INTERNAL_ERROR; \
    } while (0)

int nvrtcVersion(int *major, int *minor)
{
    ENTER();
    *major = 13;
    *minor = 0;
    return SUCCESS;
}

const char *nvrtcGetErrorString(int error)
{
    switch (error) {
    case SUCCESS:
        return "NVRTC_SUCCESS";
    case INVALID_INPUT:
        return "NVRTC_ERROR_INVALID_INPUT";
    case INVALID_PROGRAM:
        return "NVRTC_ERROR_INVALID_PROGRAM";
    case INVALID_OPTION:
        return "NVRTC_ERROR_INVALID_OPTION";
    case COMPILATION:
        return "NVRTC_ERROR_COMPILATION";
    case INTERNAL_ERROR:
        return "NVRTC_ERROR_INTERNAL_ERROR";
    default:
        return "NVRTC_ERROR unknown";
    }
}

int nvrtcCreateProgram(hd_nvrtc_program *out, const char *source,
                       const char *name, int nheaders,
                       const char *const *headers, const char *const *names)
{
    (void)name;
    (void)headers;
    (void)names;
    ENTER();
    if (source == nullptr || nheaders != 0)
        return INVALID_INPUT;
    fake::account("nvrtc programs", 1);
    *out = new _nvrtcProgram;
    (*out)->source = source;
    return SUCCESS;
}

int nvrtcDestroyProgram(hd_nvrtc_program *program)
{
    bool failing = fake::fails(__func__);

    if (program == nullptr || *program == nullptr)
        return INVALID_PROGRAM;
    delete *program;
    *program = nullptr;
    fake::account("nvrtc programs", -1);
    return failing ? INTERNAL_ERROR : SUCCESS;
}

int nvrtcCompileProgram(hd_nvrtc_program program, int noptions,
                        const char *const *options)
{
    std::string object;
    fake::Image header{};

    ENTER();
    if (program == nullptr)
        return INVALID_PROGRAM;
    for (int i = 0; i < noptions; i++) {
        if (options[i][0] != '-')
            return INVALID_OPTION;
    }
    if (!build_once(whole_text(program->source), &object, &program->log))
        return COMPILATION;
    memcpy(header.magic, fake::IMAGE_MAGIC, sizeof(header.magic));
    header.bytes = object.size();
    program->image.assign(reinterpret_cast<char *>(&header), sizeof(header));
    program->image += object;
    return SUCCESS;
}

int nvrtcGetCUBINSize(hd_nvrtc_program program, size_t *out)
{
    ENTER();
    if (program == nullptr)
        return INVALID_PROGRAM;
    *out = program->image.size();
    return SUCCESS;
}

int nvrtcGetCUBIN(hd_nvrtc_program program, char *out)
{
    ENTER();
    if (program == nullptr || program->image.empty())
        return INVALID_PROGRAM;
    memcpy(out, program->image.data(), program->image.size());
    return SUCCESS;
}

int nvrtcGetProgramLogSize(hd_nvrtc_program program, size_t *out)
{
    ENTER();
    if (program == nullptr)
        return INVALID_PROGRAM;
    *out = program->log.size() + 1;
    return SUCCESS;
}

int nvrtcGetProgramLog(hd_nvrtc_program program, char *out)
{
    ENTER();
    if (program == nullptr)
        return INVALID_PROGRAM;
    memcpy(out, program->log.c_str(), program->log.size() + 1);
    return SUCCESS;
}
