// Records and waits that are left out, on lists of commands drawn at random:
// what comes after what is worked out anew by walking the graph.
#include "runtime/order.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/seed.h"

namespace
{

using Commands = std::vector<hd_order>;

hd_order Work(int stream)
{
    return {HD_ORDER_WORK, stream, 0, false};
}

hd_order Record(int stream, int event)
{
    return {HD_ORDER_RECORD, stream, event, false};
}

hd_order Wait(int stream, int event)
{
    return {HD_ORDER_WAIT, stream, event, false};
}

// Those that are kept.
Commands Reduce(Commands commands, int streams, int events)
{
    Commands kept;

    EXPECT_EQ(
        hd_order_reduce(commands.data(), int(commands.size()), streams, events),
        HD_OK);
    for (const hd_order &command : commands) {
        if (!command.needless)
            kept.push_back(command);
    }
    return kept;
}

// For each work, and for the end of stream 0, the works that it comes after,
// each by its stream and number: reachability, with no clock.
std::vector<std::vector<bool>> Before(Commands commands)
{
    commands.insert(commands.begin(), Work(0)); // what stream 0 did before
    size_t n = commands.size();
    std::vector<std::vector<bool>> after(n + 1, std::vector<bool>(n, false));
    std::vector<std::vector<bool>> found;
    std::vector<size_t> works;

    for (size_t i = 0; i <= n; i++) {
        for (size_t j = 0; j < i; j++) {
            bool follows =
                commands[j].stream == (i < n ? commands[i].stream : 0);
            bool waits = i < n && commands[i].kind == HD_ORDER_WAIT &&
                         commands[j].kind == HD_ORDER_RECORD &&
                         commands[j].event == commands[i].event;

            if (!follows && !waits)
                continue;
            after[i][j] = true;
            for (size_t k = 0; k < j; k++)
                after[i][k] = after[i][k] || after[j][k];
        }
    }
    for (size_t i = 0; i < n; i++) {
        if (commands[i].kind == HD_ORDER_WORK)
            works.push_back(i);
    }
    works.push_back(n);
    for (size_t i : works) {
        found.emplace_back();
        for (size_t j : works)
            found.back().push_back(j < n && after[i][j]);
    }
    return found;
}

Commands Draw(std::mt19937 &random, int streams, int n, int *events)
{
    Commands commands;

    *events = 0;
    for (int i = 0; i < n; i++) {
        int stream = int(random() % unsigned(streams));
        unsigned what = random() % 3;

        if (what == 0)
            commands.push_back(Work(stream));
        else if (what == 1 || *events == 0)
            commands.push_back(Record(stream, (*events)++));
        else
            commands.push_back(Wait(stream, int(random() % unsigned(*events))));
    }
    return commands;
}

TEST(Order, IsTheSameWithoutWhatIsNeedless)
{
    std::mt19937 random(Seed());
    size_t left_out = 0;

    for (int turn = 0; turn < 2000; turn++) {
        int events = 0, streams = 1 + int(random() % 5);
        Commands all = Draw(random, streams, int(random() % 60), &events);
        Commands kept = Reduce(all, streams, events);

        ASSERT_EQ(Before(all), Before(kept)) << "turn " << turn;
        left_out += all.size() - kept.size();
    }
    EXPECT_GT(left_out, 10000u);
}

// One that several others make needless together is kept; they are few.
TEST(Order, NeedsNearlyEveryWaitThatIsKept)
{
    std::mt19937 random(Seed());
    size_t tried = 0, needless = 0;

    for (int turn = 0; turn < 300; turn++) {
        int events = 0;
        Commands all = Draw(random, 4, 40, &events);
        Commands kept = Reduce(all, 4, events);

        for (size_t i = 0; i < kept.size(); i++) {
            Commands fewer = kept;

            if (kept[i].kind != HD_ORDER_WAIT)
                continue;
            fewer.erase(fewer.begin() + long(i));
            needless += Before(kept) == Before(fewer);
            tried++;
        }
    }
    EXPECT_GT(tried, 500u);
    EXPECT_LT(needless, tried / 20);
}

TEST(Order, KeepsTheLastOfWaitsThatFollowEachOther)
{
    Commands kept = Reduce({Work(1), Record(1, 0), Work(1), Record(1, 1),
                            Wait(0, 0), Wait(0, 1), Work(0)},
                           2, 2);

    ASSERT_EQ(kept.size(), 5u);
    EXPECT_EQ(kept[2].event, 1);
    EXPECT_EQ(kept[3].event, 1);
}

TEST(Order, OfAStreamBeginsWithWhatStream0DidBefore)
{
    Commands kept = Reduce(
        {Record(0, 0), Wait(1, 0), Work(1), Record(1, 1), Wait(0, 1)}, 2, 2);

    EXPECT_EQ(kept.size(), 5u);
}

TEST(Order, HasOneRecordAtOnePlace)
{
    Commands kept =
        Reduce({Work(1), Record(1, 0), Record(1, 1), Wait(0, 0), Work(0),
                Wait(2, 1), Work(2), Record(2, 2), Wait(0, 2)},
               3, 3);

    ASSERT_EQ(kept.size(), 8u);
    EXPECT_EQ(kept[4].kind, HD_ORDER_WAIT);
    EXPECT_EQ(kept[4].event, 0);
}

TEST(Order, LeavesAStreamThatDoesNothingAlone)
{
    Commands kept =
        Reduce({Work(0), Record(0, 0), Wait(1, 0), Wait(2, 0), Work(1),
                Record(1, 1), Record(2, 2), Wait(0, 2), Wait(0, 1)},
               3, 3);

    for (const hd_order &command : kept)
        EXPECT_NE(command.stream, 2);
    EXPECT_EQ(kept.size(), 6u);
}

// What a stream records where it has done nothing but wait is recorded already.
TEST(Order, OfAStreamThatOnlyHandsOnIsTheFirstOnes)
{
    Commands kept = Reduce({Record(0, 0), Wait(1, 0), Record(1, 1), Wait(2, 1),
                            Work(2), Record(2, 2), Wait(0, 2)},
                           3, 3);

    ASSERT_EQ(kept.size(), 5u);
    EXPECT_EQ(kept[1].stream, 2);
    EXPECT_EQ(kept[1].event, 0);
}

Commands Join(Commands commands, int streams, int events, int *joined)
{
    EXPECT_EQ(hd_order_join(commands.data(), int(commands.size()), streams,
                            events, joined),
              HD_OK);
    return commands;
}

TEST(Order, OfStreamsThatTakeTurnsIsOneStreams)
{
    int joined = 0;
    Commands all = {Work(0),      Record(0, 0), Wait(1, 0), Work(1),
                    Record(1, 1), Wait(0, 1),   Work(0)};
    Commands one = Join(all, 2, 2, &joined);

    EXPECT_EQ(joined, 1);
    EXPECT_EQ(Reduce(one, 2, 2).size(), 3u);
    // What they do side by side stays so, and so does what the end of stream 0
    // does not wait for.
    all.insert(all.begin() + 3, Work(0));
    Join(all, 2, 2, &joined);
    EXPECT_EQ(joined, 0);
    Join({Work(0), Record(0, 0), Wait(1, 0), Work(1)}, 2, 1, &joined);
    EXPECT_EQ(joined, 0);
}

// A wait, or a record, that works of stream 0 have nothing to do with.
TEST(Order, OfStreamsThatTakeTurnsIsNotThatOfOthers)
{
    int joined = 0;

    Join({Record(0, 0), Work(2), Record(2, 1), Wait(1, 1), Work(0),
          Record(0, 2), Wait(1, 2), Work(1), Record(1, 3), Wait(0, 3),
          Wait(2, 3)},
         3, 4, &joined);
    EXPECT_EQ(joined, 0);
}

TEST(Order, OfJoinedStreamsIsTheSame)
{
    std::mt19937 random(Seed());
    int joined = 0;

    for (int turn = 0; turn < 4000; turn++) {
        int events = 0, streams = 2 + int(random() % 3), here = 0;
        Commands all = Draw(random, streams, int(random() % 14), &events);
        // Without an end that waits for all of them nothing can be joined.
        for (int s = 1; s < streams; s++) {
            all.push_back(Record(s, events));
            all.push_back(Wait(0, events++));
        }
        Commands kept = Reduce(all, streams, events);
        Commands fewer =
            Reduce(Join(kept, streams, events, &here), streams, events);

        ASSERT_EQ(Before(all), Before(fewer)) << "turn " << turn;
        joined += here;
    }
    EXPECT_GT(joined, 50);
}

TEST(Order, OfNothingIsNothing)
{
    EXPECT_EQ(hd_order_reduce(nullptr, 0, 1, 0), HD_OK);
}

} // namespace
