// Which links between devices are believed, on a table of calls that copies as
// told, and as real ones have been seen to.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>

// Before what includes the C header of the vendors' calls.
#include "tests/fake/api.h"

#include "base/diag.h"
#include "runtime/cuda/vendor/p2p.h"

namespace
{

constexpr size_t BYTES = HD_P2P_WORDS * sizeof(uint32_t);

enum Kind { GOOD, LOST, SHIFTED, LAST_WORD, STALE, REFUSED, ENDLESS };

// Addresses of "devices" are those of these buffers.
struct Hardware {
    Kind put = GOOD, get = GOOD;
    hd_cu_result enable = HD_CU_SUCCESS;
    char buffer[2][BYTES];
    std::string pushed; // contexts, as letters
    int enabled = 0;
    bool endless = false;
} * hardware;

bool Holds(int device, hd_cu_ptr at)
{
    return at == reinterpret_cast<hd_cu_ptr>(hardware->buffer[device]);
}

hd_cu_result ErrorName(hd_cu_result, const char **out)
{
    *out = "AN_ERROR";
    return HD_CU_SUCCESS;
}

hd_cu_result Push(hd_cu_context context)
{
    hardware->pushed += *reinterpret_cast<char *>(context);
    return HD_CU_SUCCESS;
}

hd_cu_result Pop(hd_cu_context *)
{
    hardware->pushed.pop_back();
    return HD_CU_SUCCESS;
}

hd_cu_result Enable(hd_cu_context, unsigned)
{
    hardware->enabled += hardware->enable == HD_CU_SUCCESS;
    return hardware->enable;
}

hd_cu_result Disable(hd_cu_context)
{
    hardware->enabled--;
    return HD_CU_SUCCESS;
}

hd_cu_result Fill(hd_cu_ptr at, unsigned char value, size_t n, hd_cu_stream)
{
    memset(reinterpret_cast<void *>(at), value, n);
    return HD_CU_SUCCESS;
}

hd_cu_result Copy(hd_cu_ptr to, hd_cu_ptr from, size_t bytes, hd_cu_stream)
{
    char *target = reinterpret_cast<char *>(to);
    const char *source = reinterpret_cast<const char *>(from);
    Kind kind = Holds(0, from) && Holds(1, to)   ? hardware->put
                : Holds(1, from) && Holds(0, to) ? hardware->get
                                                 : GOOD;

    EXPECT_EQ(bytes, BYTES);
    switch (kind) {
    case GOOD:
        memcpy(target, source, bytes);
        break;
    case LOST:
        break;
    case SHIFTED:
        memcpy(target, source + 4, bytes - 4);
        break;
    case LAST_WORD:
        memcpy(target, source, bytes - 4);
        break;
    case STALE: // what was there before the poison
        memset(target, 0, bytes);
        break;
    case REFUSED:
        return 217;
    case ENDLESS:
        hardware->endless = true;
        break;
    }
    return HD_CU_SUCCESS;
}

hd_cu_result Query(hd_cu_stream)
{
    EXPECT_EQ(hardware->pushed.size(), 1u);
    return hardware->endless ? HD_CU_NOT_READY : HD_CU_SUCCESS;
}

class P2p : public ::testing::Test
{
  protected:
    Hardware hardware_;
    hd_cu_api cu_{};
    hd_p2p_probe probe_{};
    char name_[2] = {'a', 'b'};
    std::string said_;

    void SetUp() override
    {
        hardware = &hardware_;
        cu_.error_name = ErrorName;
        cu_.context_push = Push;
        cu_.context_pop = Pop;
        cu_.peer_enable = Enable;
        cu_.peer_disable = Disable;
        cu_.fill8 = Fill;
        cu_.copy = Copy;
        cu_.stream_query = Query;
        probe_.cu = &cu_;
        probe_.patience = 0.1;
        probe_.host = static_cast<uint32_t *>(malloc(BYTES));
    }
    void TearDown() override
    {
        free(probe_.host);
    }
    hd_status Verify()
    {
        hd_diag *diag = hd_diag_create();
        hd_p2p_end end[2];
        hd_status status;

        for (int i = 0; i < 2; i++) {
            end[i].context = reinterpret_cast<hd_cu_context>(&name_[i]);
            end[i].buffer = reinterpret_cast<hd_cu_ptr>(hardware_.buffer[i]);
            end[i].stream = nullptr;
        }
        status = hd_p2p_verify(&probe_, &end[0], &end[1], diag);
        said_ = hd_diag_text(diag);
        hd_diag_destroy(diag);
        EXPECT_EQ(hardware_.pushed, "");
        return status;
    }
};

TEST_F(P2p, WhatArrivesBothWaysIsBelieved)
{
    EXPECT_EQ(Verify(), HD_OK) << said_;
    EXPECT_EQ(hardware_.enabled, 0); // as it was
}

TEST_F(P2p, WhatDoesNotArriveIsSeenInEitherDirection)
{
    for (Kind kind : {LOST, SHIFTED, LAST_WORD, STALE, REFUSED}) {
        hardware_.put = kind;
        hardware_.get = GOOD;
        EXPECT_EQ(Verify(), HD_ERROR_SYSTEM) << kind;
        hardware_.put = GOOD;
        hardware_.get = kind;
        EXPECT_EQ(Verify(), HD_ERROR_SYSTEM) << kind;
        EXPECT_EQ(hardware_.enabled, 0);
    }
    hardware_.get = LAST_WORD;
    (void)!Verify();
    EXPECT_NE(said_.find("1 of 65536 words that it got did not arrive"),
              std::string::npos)
        << said_;
}

TEST_F(P2p, AccessThatWasEnabledStaysSo)
{
    hardware_.enable = HD_CU_PEER_ENABLED;
    hardware_.enabled = 1;
    EXPECT_EQ(Verify(), HD_OK) << said_;
    EXPECT_EQ(hardware_.enabled, 1);
    hardware_.enable = 217;
    EXPECT_EQ(Verify(), HD_ERROR_SYSTEM);
    EXPECT_NE(said_.find("CUDA refused 'peer_enable': AN_ERROR"),
              std::string::npos)
        << said_;
}

TEST_F(P2p, ACopyThatNeverEndsIsGivenUp)
{
    hardware_.put = ENDLESS;
    EXPECT_EQ(Verify(), HD_ERROR_TIMEOUT);
    EXPECT_TRUE(probe_.stuck);
    EXPECT_EQ(hardware_.enabled, 1); // to disable it could block
}

} // namespace
