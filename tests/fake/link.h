// How the other fakes find fake_cuda: it is loaded, but its symbols are not
// global, as a driver opens each library for itself.
#ifndef HD_FAKE_LINK_H
#define HD_FAKE_LINK_H

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <mutex>
#include <string>
#include <unordered_map>

#include "fake_cuda.h"

namespace fake
{

// The library at path if it is loaded, else NULL. One asked for is looked up
// once: dlopen is slow beneath a sanitizer, and fakes ask at each call.
inline void *loaded(const char *path)
{
    static std::mutex mutex;
    static std::unordered_map<std::string, void *> libraries;
    std::lock_guard<std::mutex> lock(mutex);
    void *&library = libraries[path];

    if (library == nullptr)
        library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    return library;
}

// A function of the library that the setting names, or of the process where it
// names none; NULL as long as nobody has loaded that.
template <class Function>
Function *find_in(const char *setting, const char *name)
{
    const char *path = getenv(setting);
    void *library = path == nullptr ? RTLD_DEFAULT : loaded(path);
    void *address =
        library == nullptr && path != nullptr ? nullptr : dlsym(library, name);
    Function *function = nullptr;

    static_assert(sizeof(function) == sizeof(address), "POSIX");
    memcpy(&function, &address, sizeof(address));
    return function;
}

template <class Function> Function *find_in_cuda(const char *name)
{
    return find_in<Function>("HEDDLE_CUDA_LIB", name);
}

// Seconds of the clock that ranks wait by: in tests it is that of
// tests/clock.h, which slows down with them, or else who waits here would be
// late before them.
inline double clock_now()
{
    static auto *const clock =
        reinterpret_cast<int64_t (*)()>(dlsym(RTLD_DEFAULT, "__wrap_hd_clock"));
    timespec at;

    if (clock != nullptr)
        return 1e-9 * static_cast<double>(clock());
    clock_gettime(CLOCK_MONOTONIC, &at);
    return static_cast<double>(at.tv_sec) +
           1e-9 * static_cast<double>(at.tv_nsec);
}

// Counts a call; true if it is to fail.
inline bool fails(const char *symbol)
{
    auto *enter = find_in_cuda<decltype(fake_cuda_enter)>("fake_cuda_enter");

    return enter != nullptr && enter(symbol) != 0;
}

// Adds to the objects that are alive.
inline void account(const char *what, int by)
{
    auto *add = find_in_cuda<decltype(fake_cuda_account)>("fake_cuda_account");

    if (add != nullptr)
        add(what, by);
}

} // namespace fake

#endif
