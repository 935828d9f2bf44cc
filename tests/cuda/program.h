// A program with sets of random inputs and the answers to them.
#ifndef HD_TESTS_CUDA_PROGRAM_H
#define HD_TESTS_CUDA_PROGRAM_H

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/driver.h"
#include "tests/cuda/ranks.h"
#include "tests/device/device.h"
#include "tests/info.h"

// Two ranks that send, one of the sends deferred, gather, reduce, multiply with
// an epilogue, and compute element by element, on two streams.
const char *const kEverything =
    "heddle 2\n"
    "host program everything\n"
    "mesh tp=2\n"
    "streams 2\n"
    "in %x : f32[size tp@tp, 4, 8] shared\n"
    "in %w : f32[8, 6]\n"
    "in %bias : f32[6]\n"
    "out %c : f32[size tp@tp, 4, 6]\n"
    "out %g : f32[size tp, 4, 8] shared\n"
    "out %s : f32[4, 8]\n"
    "temp %t : f32[size tp, 4, 8] shared\n"
    "temp %u : f32[4, 8] shared\n"
    "temp %here : event[]\n"
    "temp %sent : event[]\n"
    "{\n"
    "    %u = gelu %x[tp]\n"
    "    fork\n"
    "    on stream 0 {\n"
    "        group { send %u to 1 - tp done %sent\n"
    "                %t[1 - tp] = recv from 1 - tp }\n"
    "        %here = record\n"
    "        %g = all_gather %x[tp]\n"
    "    }\n"
    "    on stream 1 {\n"
    "        wait %here\n"
    "        %c[tp] = matmul %t[1 - tp], %w bias %bias act silu\n"
    "        wait %sent\n"
    "        %s = all_reduce %u\n"
    "    }\n"
    "    join\n"
    "}\n";

class Program
{
  public:
    // `sets` of inputs; of one that is not right nothing is proven.
    explicit Program(const std::string &text, int sets = 1,
                     const hd_lower_options *lower = nullptr, bool right = true)
    {
        hd_diag *diag = hd_diag_create();

        for (hd_module **module : {&written_, &module_})
            Try(hd_parse("program.hd", text.data(), text.size(), nullptr, 0,
                         diag, module),
                diag);
        expected_ = std::make_unique<Expected>(written_, sets, Seed());
        if (lower != nullptr)
            Try(hd_lower(module_, lower, nullptr, nullptr, diag), diag);
        if (right)
            Try(hd_check(module_, nullptr, diag), diag);
        hd_diag_destroy(diag);
    }
    Program(const Program &) = delete;
    Program &operator=(const Program &) = delete;
    ~Program()
    {
        expected_.reset(); // it refers to what is written
        hd_module_destroy(written_);
        hd_module_destroy(module_);
    }

    const hd_module *Module() const
    {
        return module_;
    }
    int Ranks() const
    {
        return module_info(module_).ranks;
    }
    const Arguments &Inputs(int set = 0) const
    {
        return expected_->Inputs(set);
    }

    // What a rank's shards hold against the answer to a set of inputs.
    hd_status Compare(const Shards &shards, int rank, int set = 0) const
    {
        return ::Compare(shards, *expected_, *expected_, set, rank);
    }

  private:
    static void Try(hd_status status, hd_diag *diag)
    {
        if (status == HD_OK)
            return;
        fprintf(stderr, "%s\n", hd_diag_text(diag));
        abort();
    }

    hd_module *written_ = nullptr, *module_ = nullptr; // as written, lowered
    std::unique_ptr<Expected> expected_;
};

// A setting of the environment that goes away with its scope.
class ScopedSetting
{
  public:
    ScopedSetting(const char *name, const std::string &value) : name_(name)
    {
        setenv(name, value.c_str(), 1);
    }
    ScopedSetting(const ScopedSetting &) = delete;
    ScopedSetting &operator=(const ScopedSetting &) = delete;
    ~ScopedSetting()
    {
        unsetenv(name_);
    }

  private:
    const char *name_;
};

// How long a session's runs wait, of this thread's, and the cuda driver with
// runs that do.
inline thread_local double g_timeout_of_runs;

inline hd_status OpenForRuns(const hd_binding *binding, hd_diag *diag,
                             hd_device **out)
{
    hd_binding mine = *binding;

    mine.timeout = g_timeout_of_runs;
    return hd_driver_cuda.open(&mine, diag, out);
}

// A session that goes away with its scope.
class Session
{
  public:
    Session() = default;
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;
    ~Session()
    {
        hd_session_destroy(session_);
    }
    // On cuda. Its runs wait for as long as the options say, but ranks wait
    // with patience until all have made it.
    hd_status Open(const Rank &rank, const Program &program,
                   const hd_session_options &options)
    {
        static const hd_driver driver = [] {
            hd_driver patient = hd_driver_cuda;

            patient.open = OpenForRuns;
            return patient;
        }();
        hd_session_options making = options;

        making.timeout = kPatience;
        g_timeout_of_runs = options.timeout;
        return hd_session_open(rank.group, program.Module(), &making, &driver,
                               rank.diag, &session_);
    }
    // As a user does.
    hd_status Create(const Rank &rank, const Program &program,
                     const hd_session_options &options)
    {
        return hd_session_create(rank.group, program.Module(), &options,
                                 rank.diag, &session_);
    }
    hd_session *Take()
    {
        return std::exchange(session_, nullptr);
    }
    operator hd_session *() const
    {
        return session_;
    }

  private:
    hd_session *session_ = nullptr;
};

// So many runs on the same inputs, the last of which is compared.
inline hd_status RunAndCompare(const Rank &rank, const Program &program,
                               hd_session *session, int runs)
{
    Shards shards(session);

    HD_TRY(
        shards.Put(program.Inputs(), program.Module(), rank.rank, rank.diag));
    for (int run = 0; run < runs; run++)
        HD_TRY(shards.Run(rank.diag));
    HD_TRY(shards.Get(rank.diag));
    return program.Compare(shards, rank.rank);
}

// Memory for the arguments of several runs.
typedef std::vector<std::unique_ptr<Shards>> Memory;

inline hd_status Fill(Memory &memory, const Rank &rank, const Program &program,
                      hd_session *session, int n)
{
    for (int i = 0; i < n; i++) {
        memory.push_back(std::make_unique<Shards>(session));
        HD_TRY(memory.back()->Put(program.Inputs(i), program.Module(),
                                  rank.rank, rank.diag));
    }
    return HD_OK;
}

// Three ranks, each of which needs all the others: lines 7 and 8 wait for the
// neighbours, line 9 for everyone.
const char *const kRing = "heddle 2\n"
                          "host program ring mesh tp=3 streams 1\n"
                          "in %x : f32[size tp@tp, 64] shared\n"
                          "out %y : f32[size tp@tp, 64] shared\n"
                          "out %z : f32[64]\n"
                          "{ fork on stream 0 {\n"
                          "    group { send %x[tp] to (tp + 1) mod 3\n"
                          "            %y[tp] = recv from (tp - 1) mod 3 }\n"
                          "    %z = all_reduce %x[tp]\n"
                          "  } join }\n";

// Seconds that a run waits where a test waits until it does not any more, of a
// clock that stands still while a busy machine does not get round to ranks.
const double kLate = 1;

// As messages tell it.
inline std::string TextOfLate()
{
    char text[32];

    snprintf(text, sizeof(text), "%.1f s", kLate);
    return text;
}

inline hd_session_options CudaOptions(double timeout = kPatience)
{
    hd_session_options options = hd_session_defaults();

    options.device = "cuda";
    options.timeout = timeout;
    return options;
}

#endif
