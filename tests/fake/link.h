// How the other fakes find fake_cuda: it is loaded, but its symbols are not
// global, as a driver opens each library for itself.
#ifndef HD_FAKE_LINK_H
#define HD_FAKE_LINK_H

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

#include "fake_cuda.h"

namespace fake
{

// NULL as long as nobody has loaded fake_cuda.
template <class Function> Function *find_in_cuda(const char *name)
{
    const char *path = getenv("HEDDLE_CUDA_LIB");
    void *library =
        path == nullptr ? RTLD_DEFAULT : dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    void *address =
        library == nullptr && path != nullptr ? nullptr : dlsym(library, name);
    Function *function = nullptr;

    static_assert(sizeof(function) == sizeof(address), "POSIX");
    memcpy(&function, &address, sizeof(address));
    return function;
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
