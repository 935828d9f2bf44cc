#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include <heddle/heddle.h>

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

} // namespace
