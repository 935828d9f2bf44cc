// Who is told what was decided.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <heddle/environment.h>

#include "base/log.h"
#include "tests/unit/program.h"
#include "tests/unit/ranks.h"

namespace
{

struct Line {
    hd_severity severity;
    std::string text;
};

// Listens as long as it is there.
struct Listener {
    std::vector<Line> lines; // unguarded: calls come one at a time

    Listener()
    {
        hd_set_log(Hear, this);
    }
    Listener(const Listener &) = delete;
    Listener &operator=(const Listener &) = delete;
    ~Listener()
    {
        hd_set_log(nullptr, nullptr);
    }
    static void Hear(void *context, hd_severity severity, const char *text)
    {
        static_cast<Listener *>(context)->lines.push_back({severity, text});
    }
    bool Heard(hd_severity severity, const std::string &words) const
    {
        bool heard = false;

        for (const Line &line : lines)
            heard |= line.severity == severity &&
                     line.text.find(words) != std::string::npos;
        return heard;
    }
};

const char kMultiply[] = "host program m\nin %x : f32[4, 4]\n"
                         "out %y : f32[4, 4]\n{\n    %y = matmul %x, %x\n}\n";

hd_status CreateOne(hd_group *group)
{
    Program program(kMultiply);
    hd_session *session = nullptr;

    HD_TRY(
        hd_session_create(group, program.module, nullptr, nullptr, &session));
    hd_session_destroy(session);
    return HD_OK;
}

TEST(Log, TellsWhichLibraryIsOpenedOrWhyNot)
{
    Threads(1, [](hd_group *group) {
        {
            Listener listener;

            EXPECT_EQ(hd_set("HEDDLE_OPENBLAS_LIB", nullptr, nullptr), HD_OK);
            EXPECT_EQ(CreateOne(group), HD_OK);
            EXPECT_EQ(listener.lines.size(), 1u);
            EXPECT_TRUE(listener.Heard(HD_SEVERITY_NOTE, "OpenBLAS ") ||
                        listener.Heard(HD_SEVERITY_WARNING, "OpenBLAS is not"));
        }
        return HD_OK;
    });
}

TEST(Log, TellsNobodyWhereNobodyListens)
{
    {
        Listener listener;

        hd_log(HD_SEVERITY_NOTE, "%s %d", "one", 1);
        ASSERT_EQ(listener.lines.size(), 1u);
        EXPECT_EQ(listener.lines[0].text, "one 1");
        EXPECT_EQ(listener.lines[0].severity, HD_SEVERITY_NOTE);
        hd_set_log(nullptr, nullptr);
        EXPECT_FALSE(hd_log_on());
        hd_log(HD_SEVERITY_NOTE, "two");
        EXPECT_EQ(listener.lines.size(), 1u);
    }
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    hd_log(HD_SEVERITY_WARNING, "three");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Log, ALongTextIsCutOff)
{
    Listener listener;

    hd_log(HD_SEVERITY_NOTE, "%s", std::string(10000, 'x').c_str());
    ASSERT_EQ(listener.lines.size(), 1u);
    EXPECT_EQ(listener.lines[0].text, std::string(2047, 'x'));
}

// A listener needs no lock, and none is called once another is set.
TEST(Log, CallsOneAtATimeFromAnyThread)
{
    std::vector<std::thread> threads;
    std::atomic<bool> over = false;
    size_t heard = 0;

    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            while (!over)
                hd_log(HD_SEVERITY_NOTE, "a line");
        });
    }
    for (int i = 0; i < 100 || heard < 100; i++) {
        Listener listener;

        std::this_thread::yield();
        hd_set_log(nullptr, nullptr);
        heard += listener.lines.size();
    }
    over = true;
    for (std::thread &thread : threads)
        thread.join();
}

} // namespace
