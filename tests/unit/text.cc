// The growing text, at every length around its room.
#include "base/text.h"

#include <gtest/gtest.h>
#include <string>

#include "memory.h"

TEST(Text, GrowsToWhatIsAdded)
{
    hd_text text = {};
    std::string want;

    for (int i = 0; i < 2000; i++) {
        hd_text_printf(&text, "%d,", i);
        want += std::to_string(i) + ",";
        ASSERT_EQ(text.length, want.size());
        ASSERT_STREQ(text.bytes, want.c_str());
    }
    hd_text_puts(&text, "end");
    hd_text_add(&text, "\0!", 2);
    want += std::string("end\0!", 5);
    EXPECT_EQ(std::string(text.bytes, text.length), want);
    hd_text_free(&text);
    EXPECT_EQ(text.bytes, nullptr);
}

TEST(Text, EveryLengthAroundTheRoomFits)
{
    for (size_t length = 0; length < 300; length++) {
        hd_text text = {};
        std::string want(length, 'x');

        hd_text_printf(&text, "%s", want.c_str());
        ASSERT_STREQ(text.bytes, want.c_str());
        hd_text_puts(&text, want.c_str());
        ASSERT_EQ(text.bytes, want + want);
        hd_text_free(&text);
    }
}

TEST(Text, TakingEmptiesIt)
{
    hd_text text = {};
    char *empty = hd_text_take(&text);

    EXPECT_STREQ(empty, "");
    hd_free(empty);
    hd_text_puts(&text, "warp");
    char *taken = hd_text_take(&text);
    EXPECT_STREQ(taken, "warp");
    EXPECT_EQ(text.length, 0u);
    EXPECT_EQ(text.bytes, nullptr);
    hd_free(taken);
}

TEST(Text, RunningOutIsRemembered)
{
    HD_NEEDS_PLAIN_MALLOC();
    EXPECT_TRUE(HoldsWithoutMemory([] {
        hd_text text = {};

        hd_text_puts(&text, "before");
        ExhaustMemory();
        for (int i = 0; i < 100000; i++)
            hd_text_puts(&text, "more than there is room for");
        return text.failed && hd_text_take(&text) == nullptr && !text.failed;
    }));
}
