// What will end when.
#include "simulate/agenda.h"

#include <gtest/gtest.h>
#include <vector>

namespace
{

struct Agenda {
    hd_agenda a = {};

    ~Agenda()
    {
        hd_agenda_free(&a);
    }
    int32_t Add(double work)
    {
        return hd_agenda_add(&a, HD_TASK_DELAY, 0, 0, work);
    }
    // The next task that ends, which then is no more.
    int32_t Next()
    {
        int32_t id = hd_agenda_next(&a);

        if (id != 0)
            hd_agenda_drop(&a, id);
        return id;
    }
};

TEST(Agenda, EndsComeByTimeAndThenAsTheyWerePutIn)
{
    Agenda agenda;
    const double times[] = {5, 1, 3, 3, 1, 4, 1, 9, 2, 6};
    std::vector<int32_t> ids, want, got;

    for (double time : times) {
        ids.push_back(agenda.Add(0));
        hd_agenda_put(&agenda.a, ids.back(), time);
    }
    for (int i : {1, 4, 6, 8, 2, 3, 5, 0, 9, 7})
        want.push_back(ids[(size_t)i]);
    for (int32_t id = agenda.Next(); id != 0; id = agenda.Next())
        got.push_back(id);
    EXPECT_EQ(got, want);
    EXPECT_EQ(agenda.a.now, 9);
}

TEST(Agenda, AnotherRatePutsTheEndOff)
{
    Agenda agenda;
    int32_t slow = agenda.Add(10), other = agenda.Add(4);

    hd_agenda_rate(&agenda.a, slow, 1);
    hd_agenda_rate(&agenda.a, other, 1);
    EXPECT_EQ(agenda.Next(), other);
    hd_agenda_rate(&agenda.a, slow, 0.5); // 6 are left
    EXPECT_EQ(agenda.Next(), slow);
    EXPECT_DOUBLE_EQ(agenda.a.now, 4 + 12);
    EXPECT_EQ(agenda.Next(), 0);
}

TEST(Agenda, AnEndOfATaskThatIsNoMoreIsNotThatOfTheNextOne)
{
    Agenda agenda;
    int32_t old = agenda.Add(1);

    hd_agenda_rate(&agenda.a, old, 1);
    hd_agenda_drop(&agenda.a, old);
    EXPECT_EQ(agenda.Add(7), old); // its place is taken again
    hd_agenda_rate(&agenda.a, old, 1);
    EXPECT_EQ(agenda.Next(), old);
    EXPECT_DOUBLE_EQ(agenda.a.now, 7);
}

TEST(Agenda, AListLosesItsMembersAnywhere)
{
    Agenda agenda;
    int32_t first = 0, a = agenda.Add(0), b = agenda.Add(0), c = agenda.Add(0);

    for (int32_t id : {a, b, c})
        hd_task_link(&agenda.a, &first, id, 1);
    hd_task_unlink(&agenda.a, &first, b, 1);
    EXPECT_EQ(first, c);
    EXPECT_EQ(agenda.a.task[c].next[1], a);
    hd_task_unlink(&agenda.a, &first, c, 1);
    EXPECT_EQ(first, a);
    hd_task_unlink(&agenda.a, &first, a, 1);
    EXPECT_EQ(first, 0);
}

} // namespace
