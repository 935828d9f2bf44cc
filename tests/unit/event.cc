#include <gtest/gtest.h>

#include <cmath>

#include <heddle/async.h>
#include <heddle/heddle.h>

// Of runtime/event.h, which is C alone.
extern "C" uint64_t hd_event_issue(hd_event *event, uint64_t n);

namespace
{

TEST(Event, WithoutARecordThereIsNothingToWaitFor)
{
    hd_event *event = hd_event_create();

    EXPECT_EQ(hd_event_wait(event, 0), HD_OK);
    hd_event_record(event);
    EXPECT_EQ(hd_event_wait(event, 0), HD_OK);
    hd_event_destroy(event);
    hd_event_destroy(nullptr);
}

TEST(Event, NoTimeoutThatIsNoneWaitsForEver)
{
    hd_event *event = hd_event_create();

    hd_event_issue(event, 1);
    for (double timeout : {0.0, -1.0, -1e300, -HUGE_VAL, std::nan("")})
        EXPECT_EQ(hd_event_wait(event, timeout), HD_ERROR_TIMEOUT) << timeout;
    hd_event_destroy(event);
}

} // namespace
