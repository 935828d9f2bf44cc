// hd_environment on the fakes: it leaves nothing behind and never fails,
// whichever call of the driver does.
#include <heddle/heddle.h>

#include "children.h"

namespace
{

const char *const symbols[] = {
#define HD_CU(symbol, name, ...) #symbol,
#include "runtime/cuda/cuda.def"
#undef HD_CU
};

std::string Describe()
{
    char *text = nullptr;

    EXPECT_EQ(hd_environment(nullptr, &text), HD_OK);
    std::string said = text == nullptr ? "" : text;
    hd_free(text);
    return said;
}

size_t Count(const std::string &text, const std::string &what)
{
    size_t n = 0;

    for (size_t at = text.find(what); at != std::string::npos;
         at = text.find(what, at + 1))
        n++;
    return n;
}

TEST(Environment, LeavesTheProcessAsItWas)
{
    setenv("FAKE_CUDA_DEVICES", "3", 1);
    InChildren(1, [](Rank &r) {
        std::string before = r.Balance();
        hd_cu_context current = nullptr, other = nullptr;

        EXPECT_EQ(r.cu.primary_retain(&other, 1), 0);
        EXPECT_EQ(r.cu.peer_enable(other, 0), 0);
        std::string said = Describe();
        EXPECT_EQ(Count(said, "\"verified\":true"), 6u) << said;
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
            std::string whole = Describe();
            // What is in a context that cannot be entered goes with it.
            bool enters = strcmp(symbol, "cuCtxPushCurrent_v2") == 0;
            long n = enters ? 0 : calls(symbol);

            for (long k = 1; k <= n; k++) {
                fail(symbol, k);
                std::string said = Describe();
                differing += said != whole;
                EXPECT_EQ(said.back(), '}') << symbol << k;
                EXPECT_EQ(r.Balance(), before) << symbol << k;
                reset();
            }
        }
        EXPECT_GT(differing, 20u); // or nothing has failed
    });
    unsetenv("FAKE_CUDA_DEVICES");
}

} // namespace
