// The device that the suites run on, by the environment:
//
//   HEDDLE_TEST_DEVICE     cpu (the default), cuda, cuda:N
//   HEDDLE_TEST_TRANSPORT  copy (the default), sm, nccl
//   HEDDLE_TEST_GRAPH      1: runs are replays of a graph
//   HEDDLE_TEST_RANKS      processes (the default), threads: of one process,
//                          whose runs on cuda go on a stream of each
//   HEDDLE_TEST_QUICK      1: fewer numbers of ranks, dtypes and options, for
//                          devices that stand in for real ones
//
// On the cpu a rank's arguments lie in memory of the test's own, elsewhere in
// that of the session's device.
#ifndef HD_TESTS_DEVICE_DEVICE_H
#define HD_TESTS_DEVICE_DEVICE_H

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <deque>
#include <dlfcn.h>
#include <iostream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/diag.h"
#include "base/status.h"
#include "tests/device/arguments.h"
#include "tests/seed.h"
#include "tests/unit/ranks.h"

inline std::string Setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);

    return value == nullptr || *value == '\0' ? otherwise : value;
}

inline bool OnCpu()
{
    return Setting("HEDDLE_TEST_DEVICE", "cpu") == "cpu";
}

inline bool IsQuick()
{
    return Setting("HEDDLE_TEST_QUICK", "0") == "1";
}

// What each loop of a suite goes through: `quick` in their place where devices
// are slow.
template <class T>
std::vector<T> Choose(std::vector<T> all, std::vector<T> quick)
{
    return IsQuick() ? quick : all;
}

// How many CUDA devices there are. Counted in a process of its own: what has
// called CUDA cannot be forked.
inline int CountDevices()
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        void *cuda = dlopen(Setting("HEDDLE_CUDA_LIB", "libcuda.so.1").c_str(),
                            RTLD_NOW);
        auto init = (int (*)(unsigned))dlsym(cuda, "cuInit");
        auto count = (int (*)(int *))dlsym(cuda, "cuDeviceGetCount");
        int n = 0;

        _exit(init(0) == 0 && count(&n) == 0 ? n : 0);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

// How many ranks a program may have: NCCL refuses two on one device.
inline int MostRanks()
{
    static const int most =
        !OnCpu() && Setting("HEDDLE_TEST_TRANSPORT", "copy") == "nccl"
            ? CountDevices()
            : INT_MAX;

    return most;
}

// Whether a program of that many ranks runs here. What is left out is said.
inline bool HasDevices(int ranks)
{
    if (ranks > MostRanks())
        std::cout << "left out: " << ranks << " ranks over NCCL, on "
                  << MostRanks() << " devices\n";
    return ranks <= MostRanks();
}

inline hd_session_options DeviceOptions()
{
    static const std::string device = Setting("HEDDLE_TEST_DEVICE", "cpu");
    hd_session_options options = hd_session_defaults();

    options.device = device.c_str();
    std::string transport = Setting("HEDDLE_TEST_TRANSPORT", "copy");
    options.transport = transport == "nccl" ? HD_TRANSPORT_NCCL
                        : transport == "sm" ? HD_TRANSPORT_SM
                                            : HD_TRANSPORT_COPY;
    options.graph = Setting("HEDDLE_TEST_GRAPH", "0") == "1";
    return options;
}

// What a rank's runs go on: threads may share a device, and its default stream.
inline void *OwnStream()
{
    return OnCpu() || !RanksAreThreads() ? nullptr
                                         : reinterpret_cast<void *>(2);
}

// Whether the program is proven, for the transport that it is to go by.
inline hd_status CheckHere(const hd_module *module, hd_diag *diag)
{
    hd_check_options options = hd_check_defaults();

    options.transport = DeviceOptions().transport;
    return hd_check(module, &options, diag);
}

// One rank's arguments where its session takes them. What a run leaves behind
// is read back into Bytes().
class Shards
{
  public:
    explicit Shards(hd_session *session) : session_(session)
    {
    }
    Shards(const Shards &) = delete;
    Shards &operator=(const Shards &) = delete;
    ~Shards()
    {
        for (void *memory : owned_)
            hd_session_free(session_, memory);
    }

    // Takes memory, and fills it. Runs are given the greatest sizes.
    hd_status Put(const Arguments &arguments, const hd_module *module, int rank,
                  hd_diag *diag)
    {
        for (size_t i = 0; i < arguments.Count(); i++) {
            void *at;

            bytes_.push_back(arguments.Local(module, i, rank));
            at = bytes_[i].data();
            if (!OnCpu()) {
                HD_TRY(hd_session_alloc(session_, bytes_[i].size(), diag, &at));
                owned_.push_back(at);
            }
            address_.push_back(at);
        }
        hd_size_info size = HD_EMPTY(hd_size_info);
        for (size_t i = 0; hd_module_size(module, i, &size); i++)
            sizes_.push_back(size.high);
        return Set(arguments, module, rank, diag);
    }

    // Fills the memory anew, at rest.
    hd_status Set(const Arguments &arguments, const hd_module *module, int rank,
                  hd_diag *diag)
    {
        for (size_t i = 0; i < arguments.Count(); i++) {
            std::vector<char> local = arguments.Local(module, i, rank);

            std::copy(local.begin(), local.end(), bytes_[i].begin());
            if (!OnCpu())
                HD_TRY(hd_session_copy(session_, address_[i], local.data(),
                                       local.size(), diag));
        }
        return HD_OK;
    }

    // Blocks until the runs so far are over.
    hd_status Get(hd_diag *diag)
    {
        HD_TRY(hd_session_finish(session_, diag));
        for (size_t i = 0; i < bytes_.size() && !OnCpu(); i++)
            HD_TRY(hd_session_copy(session_, bytes_[i].data(), address_[i],
                                   bytes_[i].size(), diag));
        return HD_OK;
    }

    hd_status Run(hd_diag *diag)
    {
        return RunOn(OwnStream(), diag);
    }
    hd_status RunOn(void *stream, hd_diag *diag)
    {
        hd_run_options with = HD_EMPTY(hd_run_options);

        with.stream = stream;
        with.sizes = sizes_.data();
        with.nsizes = sizes_.size();
        return hd_session_run(session_, address_.data(), address_.size(), &with,
                              diag);
    }

    uint64_t Hash() const
    {
        uint64_t hash = 14695981039346656037u;

        for (const std::vector<char> &bytes : bytes_)
            for (char byte : bytes)
                hash = (hash ^ uint8_t(byte)) * 1099511628211u;
        return hash;
    }

    size_t Count() const
    {
        return bytes_.size();
    }
    void *Address(size_t i) const
    {
        return address_[i];
    }
    std::vector<char> &Bytes(size_t i)
    {
        return bytes_[i];
    }
    const std::vector<char> &Bytes(size_t i) const
    {
        return bytes_[i];
    }

  private:
    hd_session *session_;
    std::vector<std::vector<char>> bytes_;
    std::vector<void *> owned_, address_;
    std::vector<int64_t> sizes_; // of runs
};

// Whether the results are those of set `set` of `expected`, within the bounds
// of `bounds`.
inline hd_status Compare(const Shards &shards, const Expected &expected,
                         const Expected &bounds, int set, int rank)
{
    const Arguments &arguments = expected.Inputs(set);

    for (size_t i = 0; i < arguments.Count(); i++)
        if (arguments.Info(i).role != HD_ROLE_IN)
            HD_TRY(CompareLocal(expected.Reference(set), bounds.Reference(set),
                                i, rank, arguments.Info(i),
                                shards.Bytes(i).data()));
    return HD_OK;
}

// A run of one set of inputs, on memory of its own, whose results are as the
// reference has them.
inline hd_status RunAndCompare(hd_session *session, const hd_module *module,
                               const Expected &expected, int set, int rank,
                               hd_diag *diag)
{
    Shards shards(session);

    HD_TRY(shards.Put(expected.Inputs(set), module, rank, diag));
    HD_TRY(shards.Run(diag));
    HD_TRY(shards.Get(diag));
    return Compare(shards, expected, expected, set, rank);
}

// Runs of all sets one after the other, at one place, so that graphs are
// replayed as they are. `left`, if there is one, gets what each run left.
inline hd_status RunSets(hd_group *group, const hd_module *module,
                         const Expected &expected,
                         const hd_session_options &options, hd_diag *diag,
                         std::vector<uint64_t> *left = nullptr)
{
    hd_session *session = nullptr;
    int rank = hd_group_rank(group);

    HD_TRY(hd_session_create(group, module, &options, diag, &session));
    {
        Shards shards(session);

        HD_TRY(shards.Put(expected.Inputs(0), module, rank, diag));
        for (int run = 0; run < expected.Count(); run++) {
            HD_TRY(shards.Set(expected.Inputs(run), module, rank, diag));
            HD_TRY(shards.Run(diag));
            HD_TRY(shards.Get(diag));
            HD_TRY(Compare(shards, expected, expected, run, rank));
            if (left != nullptr)
                left->push_back(shards.Hash());
        }
    }
    hd_session_destroy(session);
    return HD_OK;
}

// A program, the sets of arguments that it is run with, and what it has to say.
// `tensor`, if there is one, is what it was made from and has to answer as.
struct Case {
    Case(Module program, const std::string &title, int sets, unsigned seed,
         const std::function<void(Arguments *)> &change,
         Module made_from = nullptr)
        : module(std::move(program)), tensor(std::move(made_from)), text(title),
          expected(tensor ? tensor.get() : module.get(), sets, seed, change)
    {
    }
    Module module, tensor;
    std::string text, told;
    Expected expected;
};

// All in one process a rank: on a GPU most of the time of one is its start.
template <typename Run>
void RunCases(const std::deque<Case> &cases, const Run &run, int ranks = 1)
{
    AllEndWell(Launch(ranks, [&](hd_group *group, hd_diag *diag) {
        for (const Case &each : cases) {
            hd_status status = run(group, each, diag);

            if (status != HD_OK)
                return hd_fail(diag, status, "%s", each.text.c_str());
        }
        return HD_OK;
    }));
}

inline hd_status RunSetsOf(hd_group *group, const Case &each, hd_diag *diag)
{
    return RunSets(group, each.module.get(), each.expected, DeviceOptions(),
                   diag);
}

// A run of a rank with counts that do not fit: `told` is said of them, and
// what it makes is that of the counts as they are taken. A driver that copies
// hands nothing out after the failure: there tests/unit/codegen.cc holds
// kernels to that.
inline hd_status RunMiscounted(hd_group *group, const Case &each, hd_diag *diag)
{
    hd_session_options options = DeviceOptions();
    hd_session *session = nullptr;
    hd_diag *said = hd_diag_create();
    int rank = hd_group_rank(group);
    hd_status status;

    HD_TRY(
        hd_session_create(group, each.module.get(), &options, diag, &session));
    {
        Shards shards(session);

        HD_TRY(
            shards.Put(each.expected.Inputs(0), each.module.get(), rank, diag));
        HD_TRY(shards.Run(diag));
        status = hd_session_finish(session, said);
        if (status != HD_ERROR_ARGUMENT ||
            std::string(hd_diag_text(said)).find(each.told) ==
                std::string::npos)
            return hd_fail(diag, HD_ERROR_INVALID, "%d: '%s', not '%s'",
                           int(status), hd_diag_text(said), each.told.c_str());
        if (shards.Run(said) != HD_ERROR_ARGUMENT)
            return hd_fail(diag, HD_ERROR_INVALID, "the session goes on");
        if (OnCpu())
            HD_TRY(Compare(shards, each.expected, each.expected, 0, rank));
    }
    hd_session_destroy(session);
    hd_diag_destroy(said);
    return HD_OK;
}

#endif
