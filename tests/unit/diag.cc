// Messages as a person reads them, byte by byte: what is shown must point right
// and must not harm a terminal, whatever the text is.
#include "base/diag.h"

#include <cerrno>
#include <cstring>
#include <gtest/gtest.h>
#include <string>

#include "memory.h"

// A diag that points into `text` as file ring.hd.
class Diag : public testing::Test
{
  protected:
    ~Diag() override
    {
        hd_diag_destroy(diag);
    }

    void Point(const std::string &bytes)
    {
        text = bytes;
        source = {"ring.hd", text.data(), text.size(), nullptr, 0};
        hd_diag_source(diag, &source);
    }

    // The excerpt of an error at this place: the two lines below the message.
    std::string Excerpt(hd_loc loc)
    {
        hd_diag_clear(diag);
        (void)hd_error(diag, HD_E0103, loc, "here");
        std::string all = hd_diag_text(diag);
        return all.substr(all.find('\n') + 1);
    }

    hd_diag *diag = hd_diag_create();
    std::string text;
    hd_source source = {};
};

TEST_F(Diag, AnErrorShowsItsLineAndCaret)
{
    Point("heddle 2\n\n\n\n\n\n    %c = matmul %ga, %b\n");
    EXPECT_EQ(
        hd_error(diag, HD_E0103, {7, 17, 3}, "unknown buffer '%s'", "%ga"),
        HD_ERROR_INVALID);
    EXPECT_STREQ(hd_diag_text(diag),
                 "ring.hd:7:17: error[HD0103]: unknown buffer '%ga'\n"
                 "      7 |     %c = matmul %ga, %b\n"
                 "        |                 ^~~\n");
}

TEST_F(Diag, NotesAndWarningsFollowInOrder)
{
    Point("abc\ndef");
    hd_warning(diag, HD_E0101, {1, 1, 1}, "odd");
    hd_note(diag, {2, 3, 1}, "because of this");
    EXPECT_STREQ(hd_diag_text(diag), "ring.hd:1:1: warning[HD0101]: odd\n"
                                     "      1 | abc\n"
                                     "        | ^\n"
                                     "ring.hd:2:3: note: because of this\n"
                                     "      2 | def\n"
                                     "        |   ^\n");
    EXPECT_EQ(hd_diag_count(diag), 2u);
    EXPECT_EQ(hd_diag_errors(diag), 0u);
}

TEST_F(Diag, WhatHasNoPlaceSaysWhoSpeaks)
{
    EXPECT_EQ(hd_fail(diag, HD_ERROR_PEER, "rank %d died", 3), HD_ERROR_PEER);
    errno = ENOENT;
    EXPECT_EQ(hd_system_error(diag, "open '%s'", "a.npy"), HD_ERROR_SYSTEM);
    Point("abc");
    (void)hd_error(diag, HD_E0105, {0, 0, 0}, "too long");
    EXPECT_STREQ(hd_diag_text(diag),
                 "heddle: error: rank 3 died\n"
                 "heddle: error: open 'a.npy': No such file or directory\n"
                 "ring.hd: error[HD0105]: too long\n");
}

TEST_F(Diag, WhileItIsMutedOnlyFailuresAreTold)
{
    EXPECT_FALSE(hd_diag_mute(diag, true));
    EXPECT_EQ(hd_error(diag, HD_E0105, {1, 1, 1}, "wrong"), HD_ERROR_INVALID);
    hd_warning(diag, HD_E0805, {1, 1, 1}, "odd");
    hd_note(diag, {1, 1, 1}, "there");
    EXPECT_EQ(hd_diag_errors(diag), 0u);
    EXPECT_EQ(hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory"),
              HD_ERROR_NO_MEMORY);
    EXPECT_TRUE(hd_diag_mute(diag, false));
    hd_warning(diag, HD_E0805, {}, "odd");
    EXPECT_EQ(hd_diag_count(diag), 2u);
    EXPECT_FALSE(hd_diag_mute(nullptr, true));
}

TEST_F(Diag, StandardInputIsCalledSo)
{
    Point("x");
    source.name = "-";
    (void)hd_error(diag, HD_E0102, {1, 1, 1}, "bad");
    EXPECT_EQ(std::string(hd_diag_text(diag)).find("<stdin>:1:1: "), 0u);
}

TEST_F(Diag, MessagesOutliveTheText)
{
    Point("first line");
    (void)hd_error(diag, HD_E0103, {1, 7, 4}, "%s", text.c_str());
    hd_diag_source(diag, nullptr);
    text.assign(text.size(), '#');
    source.name = nullptr;
    EXPECT_STREQ(hd_diag_text(diag), "ring.hd:1:7: error[HD0103]: first line\n"
                                     "      1 | first line\n"
                                     "        |       ^~~~\n");
}

TEST_F(Diag, TheCaretStaysRightBehindTabsAndWideCharacters)
{
    Point("\t\tx y");
    EXPECT_EQ(Excerpt({1, 5, 1}), "      1 |   x y\n"
                                  "        |     ^\n");
    Point("// \xc3\xa9\xe4\xb8\xad\x65\xcc\x81 here"); // é, 中, e + accent
    EXPECT_EQ(Excerpt({1, 13, 4}),
              "      1 | // \xc3\xa9\xe4\xb8\xad\x65\xcc\x81 here\n"
              "        |         ^~~~\n");
    EXPECT_EQ(Excerpt({1, 7, 1}), // the second byte of 中 still finds it
              "      1 | // \xc3\xa9\xe4\xb8\xad\x65\xcc\x81 here\n"
              "        |     ^~\n");
}

TEST_F(Diag, NothingShownCanHarmATerminal)
{
    Point(std::string("a\0\x1b[31m\x7f\xff\xc0\xaf\xe2\x80\xae|\xed\xa0\x80",
                      18));
    std::string shown = Excerpt({1, 2, 1});
    EXPECT_EQ(shown, "      1 | a??[31m?" // NUL, escape, delete
                     "????|???\n" // ff, c0, af, turned text; a surrogate
                     "        |  ^\n");
    hd_diag_clear(diag);
    source.name = "\x1b]0;x\x07.hd";
    (void)hd_error(diag, HD_E0102, {1, 2, 1}, "character '\x1b' at\n\x9b");
    EXPECT_EQ(std::string(hd_diag_text(diag)).substr(0, 53),
              "?]0;x?.hd:1:2: error[HD0102]: character '?' at??\n    ");
}

TEST_F(Diag, LongLinesAreCutAroundTheCaret)
{
    for (size_t column : {1, 60, 81, 82, 500, 920, 921, 990, 1000, 1001}) {
        std::string line(1000, '.');

        line[column <= 1000 ? column - 1 : 999] = 'X';
        Point("first\n" + line + "\nlast");
        std::string shown = Excerpt({2, static_cast<uint32_t>(column), 1});
        size_t middle = shown.find('\n');
        std::string top = shown.substr(0, middle);
        std::string below = shown.substr(middle + 1);
        size_t caret = below.find('^');

        EXPECT_LE(top.size(), 10u + 3 + 160 + 3);
        ASSERT_NE(caret, std::string::npos);
        if (column <= 1000)
            EXPECT_EQ(top[caret], 'X') << column;
        else
            EXPECT_EQ(top[caret - 1], 'X');
    }
}

TEST_F(Diag, CuttingSparesCharacters)
{
    std::string line;

    for (int i = 0; i < 400; i++)
        line += "\xe2\x82\xac"; // three bytes
    Point(line);
    for (uint32_t column = 1; column <= line.size(); column += 7)
        EXPECT_EQ(Excerpt({1, column, 1}).find('?'), std::string::npos);
    Point(std::string(5000, '\x80')); // never begins a character
    std::string shown = Excerpt({1, 2500, 1});
    EXPECT_EQ(shown.find('^', shown.find('\n')) - shown.find('\n') - 1,
              10u + 3 + 83);
}

TEST_F(Diag, PlacesPastTheTextAreHarmless)
{
    Point("ab\r\ncd");
    EXPECT_EQ(Excerpt({1, 3, 1}), "      1 | ab\n        |   ^\n");
    EXPECT_EQ(Excerpt({2, 99, 5}), "      2 | cd\n        |   ^\n");
    EXPECT_EQ(Excerpt({2, 1, 4000000000u}), "      2 | cd\n        | ^~\n");
    EXPECT_EQ(Excerpt({3, 1, 1}), "");
    EXPECT_EQ(Excerpt({2, 0, 0}), "      2 | cd\n        | ^\n");
    Point("");
    EXPECT_EQ(Excerpt({1, 1, 1}), "      1 | \n        | ^\n");
    Point("x\n");
    EXPECT_EQ(Excerpt({2, 1, 1}), "      2 | \n        | ^\n");
}

TEST_F(Diag, AfterTwentyErrorsTheRestIsCounted)
{
    for (int i = 1; i <= 23; i++) {
        (void)hd_fail(diag, HD_ERROR_INVALID, "number %d", i);
        hd_note(diag, {0, 0, 0}, "about %d", i);
    }
    std::string all = hd_diag_text(diag);
    EXPECT_EQ(hd_diag_errors(diag), 23u);
    EXPECT_EQ(hd_diag_count(diag), 40u);
    EXPECT_NE(all.find("number 20\nheddle: note: about 20\n"),
              std::string::npos);
    EXPECT_EQ(all.find("21"), std::string::npos);
    EXPECT_NE(all.find("heddle: error: 3 more errors not shown\n"),
              std::string::npos);
}

TEST_F(Diag, MessagesAreReadOneByOne)
{
    hd_message m = HD_EMPTY(hd_message);

    Point("abc");
    (void)hd_error(diag, HD_E0102, {1, 2, 1}, "bad %d", 7);
    hd_note(diag, {0, 0, 0}, "see there");
    ASSERT_TRUE(hd_diag_message(diag, 0, &m));
    EXPECT_EQ(m.severity, HD_SEVERITY_ERROR);
    EXPECT_STREQ(m.code, "HD0102");
    EXPECT_STREQ(m.file, "ring.hd");
    EXPECT_EQ(m.line, 1);
    EXPECT_EQ(m.column, 2);
    EXPECT_STREQ(m.text, "bad 7");
    ASSERT_TRUE(hd_diag_message(diag, 1, &m));
    EXPECT_EQ(m.severity, HD_SEVERITY_NOTE);
    EXPECT_STREQ(m.code, "");
    EXPECT_EQ(m.line, 0);
    EXPECT_FALSE(hd_diag_message(diag, 2, &m));
    hd_diag_clear(diag);
    EXPECT_EQ(hd_diag_count(diag), 0u);
    EXPECT_EQ(hd_diag_errors(diag), 0u);
    EXPECT_STREQ(hd_diag_text(diag), "");
}

TEST_F(Diag, NoneAtAllIsFine)
{
    EXPECT_EQ(hd_error(nullptr, HD_E0101, {1, 1, 1}, "x"), HD_ERROR_INVALID);
    EXPECT_EQ(hd_fail(nullptr, HD_ERROR_TIMEOUT, "x"), HD_ERROR_TIMEOUT);
    EXPECT_EQ(hd_diag_source(nullptr, &source), nullptr);
    hd_note(nullptr, {1, 1, 1}, "x");
    hd_diag_destroy(nullptr);
}

TEST_F(Diag, EveryCodeHasASummary)
{
#define HD_CODE(number, summary) \
    EXPECT_STREQ(hd_code_summary(HD_E##number), summary);
#include "base/codes.def"
#undef HD_CODE
    EXPECT_STREQ(hd_code_summary(HD_CODE_NONE), "");
}

TEST_F(Diag, ErrorsAreCountedWithoutMemory)
{
    HD_NEEDS_PLAIN_MALLOC();
    Point("some text");
    (void)hd_error(diag, HD_E0101, {1, 1, 4}, "kept");
    EXPECT_TRUE(HoldsWithoutMemory([this] {
        ExhaustMemory();
        for (int i = 0; i < 5; i++)
            (void)hd_error(diag, HD_E0101, {1, 1, 4}, "lost");
        return hd_diag_errors(diag) == 6 && hd_diag_count(diag) < 6 &&
               strlen(hd_diag_text(diag)) > 0;
    }));
}

TEST(Status, EachHasItsOwnText)
{
    std::string seen;

    for (int i = HD_OK; i <= HD_ERROR_TIMEOUT; i++) {
        std::string text = hd_status_text(static_cast<hd_status>(i));
        EXPECT_EQ(seen.find("|" + text + "|"), std::string::npos) << text;
        seen += "|" + text + "|";
    }
    EXPECT_STREQ(hd_status_text(static_cast<hd_status>(99)), "unknown status");
    EXPECT_STREQ(hd_version(), HD_VERSION);
}
