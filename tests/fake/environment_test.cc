// What a machine offers, on the fakes: it leaves nothing behind and never
// fails, whichever call of the driver does.
#include <heddle/environment.h>
#include <heddle/heddle.h>

#include <sstream>

#include "children.h"

namespace
{

const char *const symbols[] = {
#define HD_CU(symbol, name, ...) #symbol,
#include "runtime/cuda/vendor/cuda.def"
#undef HD_CU
};

// What the calls of the driver decide.
struct Found {
    std::string text;
    int verified = 0;
};

Found Describe()
{
    hd_environment *e = nullptr;
    std::stringstream text;
    Found found;

    EXPECT_EQ(hd_environment_create(nullptr, &e), HD_OK);
    text << e->cuda.usable << e->cuda.version << e->cuda.path << e->cuda.reason;
    for (int i = 0; i < e->ndevices; i++)
        text << "; " << e->device[i].name << " " << e->device[i].memory << " "
             << e->device[i].capability << " " << e->device[i].sms << " "
             << e->device[i].bus << " " << e->device[i].uuid;
    for (int i = 0; i < e->nlinks; i++) {
        const hd_env_link &link = e->link[i];

        found.verified += link.verified;
        text << "; " << link.from << link.to << link.access << link.verified
             << link.atomics << link.performance_rank << link.reason;
    }
    hd_environment_destroy(e);
    found.text = text.str();
    return found;
}

TEST(Environment, LeavesTheProcessAsItWas)
{
    setenv("FAKE_CUDA_DEVICES", "3", 1);
    InChildren(1, [](Rank &r) {
        std::string before = r.Balance();
        hd_cu_context current = nullptr, other = nullptr;

        EXPECT_EQ(r.cu.primary_retain(&other, 1), 0);
        EXPECT_EQ(r.cu.peer_enable(other, 0), 0);
        Found found = Describe();
        EXPECT_EQ(found.verified, 6) << found.text;
        // The context that was current still is, and reaches what it reached.
        EXPECT_EQ(r.cu.context_current(&current), 0);
        EXPECT_EQ(current, r.context);
        EXPECT_EQ(r.cu.peer_disable(other), 0);
        EXPECT_EQ(r.cu.primary_release(1), 0);
        EXPECT_EQ(r.Balance(), before);
    });
    unsetenv("FAKE_CUDA_DEVICES");
}

TEST(Environment, SurvivesTheFailureOfAnyCall)
{
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    InChildren(1, [](Rank &r) {
        auto *calls = r.Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        auto *fail = r.Extra<decltype(fake_cuda_fail)>("fake_cuda_fail");
        auto *reset = r.Extra<decltype(fake_cuda_reset)>("fake_cuda_reset");
        std::string before = r.Balance();
        size_t differing = 0;

        for (const char *symbol : symbols) {
            reset();
            std::string whole = Describe().text;
            // What is in a context that cannot be entered goes with it.
            bool enters = strcmp(symbol, "cuCtxPushCurrent_v2") == 0;
            long n = enters ? 0 : calls(symbol);

            for (long k = 1; k <= n; k++) {
                fail(symbol, k);
                differing += Describe().text != whole;
                EXPECT_EQ(r.Balance(), before) << symbol << k;
                reset();
            }
        }
        EXPECT_GT(differing, 20u); // or nothing has failed
    });
    unsetenv("FAKE_CUDA_DEVICES");
}

hd_env_kind Kind()
{
    hd_env_kind kind = HD_EMPTY(hd_env_kind);

    EXPECT_EQ(hd_environment_kind("cuda", nullptr, &kind), HD_OK);
    return kind;
}

// What a machine is called says how many devices it has, and how they reach
// each other.
TEST(Environment, KindsDifferInDevicesAndLinks)
{
    for (int i = 0; i < 2; i++) {
        setenv("FAKE_CUDA_DEVICES", i == 1 ? "3" : "2", 1);
        InChildren(1, [&](Rank &r) {
            auto *fail = r.Extra<decltype(fake_cuda_fail)>("fake_cuda_fail");
            std::string before = r.Balance();
            hd_env_kind kind = Kind();

            EXPECT_EQ(std::string(kind.key), Kind().key);
            EXPECT_EQ(kind.devices, i == 1 ? 3 : 2);
            EXPECT_EQ(std::string(kind.key).rfind("cuda-", 0), 0u) << kind.key;
            EXPECT_GT(kind.multiprocessors, 0);
            EXPECT_NE(std::string(kind.name).find(i == 1 ? "3 x " : "2 x "),
                      std::string::npos);
            // Without a link it is another machine.
            fail("cuDeviceCanAccessPeer", 1);
            EXPECT_NE(std::string(kind.key), Kind().key);
            EXPECT_EQ(r.Balance(), before);
            fail("cuInit", 1);
            hd_env_kind none = HD_EMPTY(hd_env_kind);
            EXPECT_EQ(hd_environment_kind("cuda:0", nullptr, &none),
                      HD_ERROR_UNSUPPORTED);
        });
    }
    unsetenv("FAKE_CUDA_DEVICES");
}

} // namespace
