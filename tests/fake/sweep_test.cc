// The real cuda driver when one call of a vendor's library fails: whichever it
// is, a run ends in time, what is made is given back, and what is not reported
// as a failure has the right answer.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

#include <heddle/heddle.h>

#include "fake_cuda.h"

namespace
{

const char program[] = "heddle 1\n"
                       "tensor program sweep\n"
                       "mesh tp=2\n"
                       "in   %a    : f32[2@tp, 8, 16]\n"
                       "in   %w    : f32[16, 8]\n"
                       "in   %bias : f32[8]\n"
                       "out  %c    : f32[2@stream, 8, 8]\n"
                       "temp %ag   : f32[2@stream, 8, 16]\n"
                       "{\n"
                       "    %ag = set %a\n"
                       "    %c = matmul %ag, %w bias %bias act silu\n"
                       "}\n";

const char *const symbols[] = {
#define HD_CU(symbol, name, ...) #symbol,
#include "runtime/cuda.def"
#undef HD_CU
#define HD_LT(symbol, result, name, ...) #symbol,
#include "runtime/cublaslt.def"
#undef HD_LT
#define HD_NCCL(symbol, result, name, ...) #symbol,
#include "runtime/nccl.def"
#undef HD_NCCL
#define HD_NVRTC(symbol, result, name, ...) #symbol,
#include "codegen/nvrtc.def"
#undef HD_NVRTC
};

struct Sweep {
    hd_session_options options;
    const hd_module *module;
    const char *fault; // of rank 0: "cuMemAlloc_v2:3", or NULL
    int report;        // where rank 0 writes how often it called what
};

template <class Function> Function *Extra(const char *name)
{
    void *library = dlopen(FAKE_CUDA_PATH, RTLD_NOW | RTLD_NOLOAD);

    return library == nullptr
               ? nullptr
               : reinterpret_cast<Function *>(dlsym(library, name));
}

std::vector<float> Values(size_t i, size_t bytes)
{
    std::vector<float> values(bytes / sizeof(float));

    for (size_t k = 0; k < values.size(); k++)
        values[k] = 0.25f * static_cast<float>((k * 7 + i * 3) % 11) - 1.1f;
    return values;
}

// Two runs of a session that is there; the answer in `out`.
hd_status Run(hd_session *session, const hd_module *module, hd_diag *diag,
              std::vector<void *> &memory, std::vector<float> &out)
{
    hd_status status = HD_OK;

    for (size_t i = 0; i < hd_module_arguments(module); i++) {
        hd_argument argument = {};

        hd_module_argument(module, i, &argument);
        std::vector<float> values = Values(i, argument.local_bytes);
        memory.push_back(nullptr);
        status = hd_session_alloc(session, argument.local_bytes, diag,
                                  &memory.back());
        if (status == HD_OK)
            status = hd_session_copy(session, memory.back(), values.data(),
                                     argument.local_bytes, diag);
        if (status != HD_OK)
            return status;
        out.resize(values.size());
    }
    for (int run = 0; run < 2; run++) {
        status = hd_session_run(session, memory.data(), memory.size(), diag);
        if (status != HD_OK)
            return status;
    }
    status = hd_session_finish(session, diag);
    if (status == HD_OK)
        status = hd_session_copy(session, out.data(), memory.back(),
                                 out.size() * sizeof(float), diag);
    return status;
}

// The sum of all of the answer, as a word for it.
double Sum(const std::vector<float> &out)
{
    double sum = 0;

    for (size_t i = 0; i < out.size(); i++)
        sum += out[i] * static_cast<double>(i % 13 + 1);
    return sum;
}

void Report(const Sweep *sweep, const std::vector<float> &out, hd_status status)
{
    auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");

    dprintf(sweep->report, "status %d\n", static_cast<int>(status));
    dprintf(sweep->report, "sum %.17g\n", Sum(out));
    for (const char *symbol : symbols) {
        if (calls != nullptr)
            dprintf(sweep->report, "%s %ld\n", symbol, calls(symbol));
    }
}

hd_status RunRank(void *context, hd_group *group)
{
    const Sweep *sweep = static_cast<const Sweep *>(context);
    hd_diag *diag = hd_diag_create();
    hd_session *session = nullptr;
    std::vector<void *> memory;
    std::vector<float> out;
    char left[512] = "";
    hd_status status;

    if (hd_group_rank(group) == 0 && sweep->fault != nullptr)
        setenv("FAKE_CUDA_FAIL", sweep->fault, 1);
    status = hd_session_create(group, sweep->module, &sweep->options, diag,
                               &session);
    if (status == HD_OK)
        status = Run(session, sweep->module, diag, memory, out);
    for (void *one : memory) {
        if (one != nullptr)
            hd_session_free(session, one);
    }
    hd_session_destroy(session);
    auto *balance = Extra<decltype(fake_cuda_balance)>("fake_cuda_balance");
    if (balance != nullptr)
        balance(left, sizeof(left));
    if (hd_group_rank(group) == 0)
        Report(sweep, out, status);
    dprintf(sweep->report, "left%d %s\n", hd_group_rank(group), left);
    if (status != HD_OK && *hd_diag_text(diag) == '\0')
        dprintf(sweep->report, "silent%d 1\n", hd_group_rank(group));
    hd_diag_destroy(diag);
    return status;
}

using Answer = std::map<std::string, std::string>;

Answer Parse(FILE *file)
{
    Answer answer;
    char line[1024], name[64];
    int length = 0;

    rewind(file);
    while (fgets(line, sizeof(line), file) != nullptr) {
        if (sscanf(line, "%63s %n", name, &length) == 1)
            answer[name] =
                std::string(line + length, strcspn(line + length, "\n"));
    }
    return answer;
}

Answer Launch(const hd_module *module, const hd_session_options &options,
              const char *fault)
{
    FILE *file = tmpfile();
    hd_diag *diag = hd_diag_create();
    Sweep sweep = {options, module, fault, fileno(file)};
    hd_status status = hd_launch(2, 20, RunRank, &sweep, diag);
    Answer answer = Parse(file);

    EXPECT_NE(status, HD_TIMEOUT) << fault << ": " << hd_diag_text(diag);
    if (fault == nullptr) {
        EXPECT_EQ(status, HD_OK) << hd_diag_text(diag);
    }
    hd_diag_destroy(diag);
    fclose(file);
    return answer;
}

void CheckFault(const hd_module *module, const hd_session_options &options,
                const Answer &fine, const std::string &fault)
{
    Answer answer = Launch(module, options, fault.c_str());

    EXPECT_EQ(answer.count("left0"), 1u) << fault << ": rank 0 did not end";
    EXPECT_EQ(answer["left0"], "") << fault;
    EXPECT_EQ(answer["left1"], "") << fault;
    EXPECT_EQ(answer.count("silent0"), 0u) << fault << ": no words";
    if (answer["status"] == "0") {
        EXPECT_EQ(answer["sum"], fine.at("sum")) << fault;
    }
}

// Each symbol's first call and its last, as a run without faults counts them.
void CheckAllFaults(hd_session_options options)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;
    hd_lower_options lower = hd_lower_defaults();
    char cache[] = "/tmp/fake-sweep-XXXXXX";
    std::string clean = "rm -r ";

    setenv("HEDDLE_CUDA_LIB", FAKE_CUDA_PATH, 1);
    setenv("HEDDLE_CUBLASLT_LIB", FAKE_CUBLASLT_PATH, 1);
    setenv("HEDDLE_NVRTC_LIB", FAKE_NVRTC_PATH, 1);
    setenv("HEDDLE_NCCL_LIB", FAKE_NCCL_PATH, 1);
    ASSERT_NE(mkdtemp(cache), nullptr);
    setenv("FAKE_NVRTC_CACHE", cache, 1);
    ASSERT_EQ(hd_parse("sweep.hd", program, strlen(program), nullptr, 0, diag,
                       &module),
              HD_OK)
        << hd_diag_text(diag);
    ASSERT_EQ(hd_lower(module, &lower, nullptr, nullptr, diag), HD_OK)
        << hd_diag_text(diag);
    options.device = "cuda";
    options.timeout = 2;
    Answer fine = Launch(module, options, nullptr);
    ASSERT_EQ(fine["status"], "0");
    for (const char *symbol : symbols) {
        long calls = atol(fine[symbol].c_str());

        if (calls > 0)
            CheckFault(module, options, fine, std::string(symbol) + ":1");
        // Who cannot enter the context at the end cannot free anything there.
        if (calls > 1 && strcmp(symbol, "cuCtxPushCurrent_v2") != 0)
            CheckFault(module, options, fine,
                       std::string(symbol) + ":" + std::to_string(calls));
    }
    EXPECT_EQ(system((clean + cache).c_str()), 0);
    hd_module_destroy(module);
    hd_diag_destroy(diag);
}

TEST(CudaFault, OfAnyCallIsReportedAndLeavesNothingBehind)
{
    CheckAllFaults(hd_session_defaults());
}

TEST(CudaFault, OfAnyCallWithAGraphLeavesNothingBehind)
{
    hd_session_options options = hd_session_defaults();

    options.graph = true;
    CheckAllFaults(options);
}

TEST(CudaFault, OfAnyCallByWayOfNcclLeavesNothingBehind)
{
    hd_session_options options = hd_session_defaults();

    options.transport = HD_TRANSPORT_NCCL;
    CheckAllFaults(options);
}

} // namespace
