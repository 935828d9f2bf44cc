// A rank that has done its part leaves in good order while another still waits
// for a third one: that is no failure. The moment that matters lies between a
// wake-up and the next look, so the doorbell's disarming is made slow.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>

#include "tests/unit/ranks.h"

struct hd_doorbell;

static std::atomic<useconds_t> g_nap; // after each wake-up of this process

extern "C" void __real_hd_doorbell_disarm(hd_doorbell *doorbell);
extern "C" void __wrap_hd_doorbell_disarm(hd_doorbell *doorbell)
{
    __real_hd_doorbell_disarm(doorbell);
    if (g_nap > 0)
        usleep(g_nap);
}

namespace
{

const char kTwoSenders[] =
    "heddle 2\nhost program two mesh tp=3 in %a : f32[8] "
    "out %c : f32[3, 8] temp %t : f32[3, 8] shared { "
    "%t[tp] = copy %a if tp == 0 { group { %t[1] = recv from 1 "
    "%t[2] = recv from 2 } %c = copy %t } else { send %a to 0 "
    "for i in 0..3 { %c[i] = copy %a } } }";

hd_status RunOnce(hd_group *group, hd_diag *diag)
{
    hd_module *module = nullptr;
    hd_session *session = nullptr;
    hd_session_options options = hd_session_defaults();
    int rank = hd_group_rank(group);
    float mine[8], all[24];
    void *arguments[] = {mine, all};
    hd_status status = hd_parse("two", kTwoSenders, sizeof kTwoSenders - 1,
                                nullptr, 0, diag, &module);

    for (int i = 0; i < 8; i++)
        mine[i] = static_cast<float>(10 * rank + i);
    if (status == HD_OK)
        status = hd_session_create(group, module, &options, diag, &session);
    g_nap = rank == 0 ? 20000 : 0;
    usleep(rank == 1 ? 20000 : rank == 2 ? 120000 : 0);
    if (status == HD_OK)
        status = hd_session_run(session, arguments, 2, nullptr, diag);
    if (status == HD_OK)
        status = hd_session_finish(session, diag);
    hd_session_destroy(session);
    hd_module_destroy(module);
    if (status == HD_OK && rank == 0)
        for (int i = 0; i < 24; i++)
            RANK_EXPECT(all[i] == static_cast<float>(10 * (i / 8) + i % 8));
    return status;
}

TEST(Cpu, ARankThatLeavesInGoodOrderFailsNobody)
{
    for (int i = 0; i < 8; i++)
        AllEndWell(Launch(3, RunOnce));
}

} // namespace
