// Which elements of a tensor statements have written: parts at random, beside a
// table of every element.
#include <random>

#include "tests/seed.h"
#include "tests/unit/program.h"

namespace
{

enum { ROWS = 5, COLUMNS = 4, STATEMENTS = 9, PROGRAMS = 400 };

struct Box {
    int low[2], past[2];
};

std::string Range(int low, int past)
{
    return std::to_string(low) + ".." + std::to_string(past);
}

std::string View(const Box &box)
{
    return "[" + Range(box.low[0], box.past[0]) + ", " +
           Range(box.low[1], box.past[1]) + "]";
}

std::string Element(int i, int k)
{
    return "%y[" + std::to_string(i) + ", " + std::to_string(k) + "]";
}

class Table
{
  public:
    // The first element of the box that is written, or is not; none if empty.
    std::string First(const Box &box, bool written) const
    {
        for (int i = box.low[0]; i < box.past[0]; i++)
            for (int k = box.low[1]; k < box.past[1]; k++)
                if (is_written_[i][k] == written)
                    return Element(i, k);
        return "";
    }

    void Write(const Box &box)
    {
        for (int i = box.low[0]; i < box.past[0]; i++)
            for (int k = box.low[1]; k < box.past[1]; k++)
                is_written_[i][k] = true;
    }

  private:
    bool is_written_[ROWS][COLUMNS] = {};
};

Box Draw(std::mt19937 *random)
{
    const int most[2] = {ROWS, COLUMNS};
    Box box;

    for (int d = 0; d < 2; d++) {
        int n = 1 + int((*random)() % 2);

        box.low[d] = int((*random)() % unsigned(most[d] - n + 1));
        box.past[d] = box.low[d] + n;
    }
    return box;
}

TEST(Verify, ElementsOfPartsAreWrittenOnceAndReadBehindThat)
{
    std::mt19937 random(Seed());
    int fine = 0, twice = 0, early = 0;

    for (int n = 0; n < PROGRAMS; n++) {
        std::string text = "tensor program t temp %y : u8[5, 4]\n";
        std::string body, want;
        Table table;

        for (int left = 1 + int(random() % STATEMENTS), i = 0;
             i < left && want.empty(); i++) {
            Box box = Draw(&random);

            if (random() % 4 != 0) {
                body += "%y" + View(box) + " = fill value 1\n";
                if (!table.First(box, true).empty())
                    want = " is written twice";
                twice += !want.empty();
                table.Write(box);
                continue;
            }
            want = table.First(box, false);
            early += !want.empty();
            want += want.empty() ? "" : " is read before it is written";
            std::string name = "%r" + std::to_string(i);
            text += "out " + name + " : u8[" +
                    std::to_string(box.past[0] - box.low[0]) + ", " +
                    std::to_string(box.past[1] - box.low[1]) + "]\n";
            body += name + " = copy %y" + View(box) + "\n";
        }
        if (table.First({{0, 0}, {ROWS, COLUMNS}}, true).empty())
            continue; // of what is not written at all another word is said
        Program program(text + "{\n" + body + "}");

        fine += want.empty();
        EXPECT_EQ(program.status, want.empty() ? HD_OK : HD_ERROR_INVALID)
            << body << program.Said();
        EXPECT_NE(program.Said().find(want), std::string::npos)
            << body << "wanted" << want << ", said\n"
            << program.Said();
    }
    EXPECT_GT(fine, 0);
    EXPECT_GT(twice, 0);
    EXPECT_GT(early, 0);
}

TEST(Verify, TheFirstElementOfAnOutputThatIsLeftIsNamed)
{
    std::mt19937 random(Seed());

    for (int n = 0; n < PROGRAMS; n++) {
        std::string body, want;
        Table table;
        const Box all = {{0, 0}, {ROWS, COLUMNS}};

        for (int i = 0; i < 2 * STATEMENTS; i++) {
            Box box = Draw(&random);

            if (!table.First(box, true).empty())
                continue;
            body += "%y" + View(box) + " = fill value 1\n";
            table.Write(box);
        }
        want = table.First(all, false);
        Program program("tensor program t out %y : u8[5, 4]\n{\n" + body + "}");

        EXPECT_EQ(program.status, want.empty() ? HD_OK : HD_ERROR_INVALID)
            << body;
        EXPECT_NE(program.Said().find(want), std::string::npos)
            << body << program.Said();
    }
}

} // namespace
