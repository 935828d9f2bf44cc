// Clones: the same program, and nothing of the one that they were made from.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <thread>

#include "ir/module.h"
#include "tests/device/arguments.h"
#include "tests/seed.h"
#include "tests/unit/generated.h"

namespace
{
hd_module *Parse(const std::string &text, hd_diag *diag)
{
    hd_module *module = nullptr;

    EXPECT_EQ(hd_parse("test.hd", text.data(), text.size(), nullptr, 0, diag,
                       &module),
              HD_OK)
        << text << hd_diag_text(diag);
    return module;
}

std::string Print(const hd_module *module)
{
    char *text = nullptr;

    EXPECT_EQ(hd_print(module, &text), HD_OK);
    std::string result = text;
    hd_free(text);
    return result;
}

// All that lowering says and makes.
std::string Lower(hd_module *module, hd_stage until)
{
    hd_lower_options options = hd_lower_defaults();
    hd_diag *diag = hd_diag_create();

    options.transfer = HD_TRANSFER_RING;
    options.asked = 0;
    options.until = until;
    hd_status status = hd_lower(module, &options, nullptr, nullptr, diag);
    std::string said = hd_diag_text(diag);
    hd_diag_destroy(diag);
    return status == HD_OK ? said + Print(module) : said;
}

// A clone that is made after `stage`, of a module that is gone, becomes what
// the module would have become.
void ExpectSame(const std::string &text, hd_stage stage)
{
    hd_diag *diag = hd_diag_create();
    hd_module *whole = Parse(text, diag), *first = Parse(text, diag);
    hd_module *clone = nullptr;

    Lower(whole, stage);
    Lower(first, stage);
    ASSERT_EQ(hd_module_clone(first, diag, &clone), HD_OK);
    EXPECT_EQ(Print(first), Print(whole)); // which cloning left alone
    hd_module_destroy(first);
    EXPECT_EQ(Print(clone), Print(whole));
    EXPECT_EQ(Lower(clone, HD_STAGE_HOST), Lower(whole, HD_STAGE_HOST)) << text;
    hd_module_destroy(clone);
    hd_module_destroy(whole);
    hd_diag_destroy(diag);
}
} // namespace

TEST(Clone, OfEveryExampleAfterEveryPassIsTheSameProgram)
{
    int n = 0;

    for (const auto &entry :
         std::filesystem::directory_iterator(HEDDLE_EXAMPLES)) {
        std::stringstream text;

        if (entry.path().extension() != ".hd")
            continue;
        text << std::ifstream(entry.path()).rdbuf();
        for (int stage = HD_STAGE_TENSOR; stage <= HD_STAGE_HOST; stage++)
            ExpectSame(text.str(), static_cast<hd_stage>(stage));
        n++;
    }
    EXPECT_GT(n, 10);
}

TEST(Clone, OfARandomProgramIsTheSameProgram)
{
    uint64_t seed = Seed();

    for (uint64_t i = 0; i < 100; i++) {
        SCOPED_TRACE("seed " + std::to_string(seed + i));
        ExpectSame(Generate(seed + i, 10, false),
                   static_cast<hd_stage>((seed + i) % (HD_STAGE_HOST + 1)));
    }
}

TEST(Clone, ChangesWithoutItsModule)
{
    Module module(Parse("heddle 2\ntensor program p\nparam m in 1..64\n"
                        "mesh tp=2\nin %x : f32[m@tp]\nout %y : f32[m]\n{\n"
                        "    %y = set %x\n}\n",
                        nullptr));
    hd_module *clone = nullptr;
    hd_size_info size = HD_EMPTY(hd_size_info);
    const int64_t seven = 7;
    std::string before = Print(module.get());

    ASSERT_EQ(hd_module_clone(module.get(), nullptr, &clone), HD_OK);
    ASSERT_EQ(hd_module_resize(clone, &seven, 1, nullptr), HD_OK);
    Lower(clone, HD_STAGE_HOST);
    EXPECT_NE(Print(clone), before);
    EXPECT_EQ(Print(module.get()), before);
    ASSERT_TRUE(hd_module_size(module.get(), 0, &size));
    EXPECT_EQ(size.now, 64);
    ASSERT_TRUE(hd_module_size(clone, 0, &size));
    EXPECT_EQ(size.now, 7);
    hd_module_destroy(clone);
}

// Names that were taken are, and those of dropped buffers stay taken.
TEST(Clone, KnowsWhichNamesAreTaken)
{
    Module module(Parse("heddle 2\nhost program p\nin %x : f32[4]\n"
                        "temp %t : f32[4]\nout %y : f32[4]\n{\n"
                        "    %y = relu %x\n}\n",
                        nullptr));
    hd_module *clone = nullptr;
    const bool used[] = {false, false, false};

    hd_module_drop_temps(module.get(), used);
    ASSERT_EQ(hd_module_clone(module.get(), nullptr, &clone), HD_OK);
    module.reset();
    EXPECT_EQ(clone->nbuffers, 2);
    EXPECT_EQ(hd_module_buffer(clone, "t", 1), nullptr);
    EXPECT_EQ(hd_module_buffer(clone, "y", 1), clone->last_buffer);
    hd_type type = {};
    EXPECT_STREQ(hd_module_add_buffer(clone, "t", HD_ROLE_TEMP, &type)->name,
                 "t_2");
    hd_module_destroy(clone);
}

TEST(Clone, PointsIntoTheTextThatIsGone)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = Parse("heddle 2\nhost program p\nmesh tp=2\n"
                              "in %x : f32[4]\nout %y : f32[4]\n{\n"
                              "    send %x to 1 - tp\n}\n",
                              diag);
    hd_module *clone = nullptr;

    ASSERT_EQ(hd_module_clone(module, diag, &clone), HD_OK);
    hd_module_destroy(module);
    EXPECT_EQ(hd_check(clone, nullptr, diag), HD_ERROR_INVALID);
    std::string said = hd_diag_text(diag);
    EXPECT_NE(said.find("test.hd:7:5"), std::string::npos) << said;
    EXPECT_NE(said.find("7 |     send %x to 1 - tp"), std::string::npos)
        << said;
    hd_module_destroy(clone);
    hd_diag_destroy(diag);
}

// A module that is only read may be cloned by several threads at once.
TEST(Clone, IsMadeBySeveralThreadsOfOneModule)
{
    Module module(Parse(Generate(Seed(), 10, false), nullptr));
    std::string want = Print(module.get());
    std::vector<std::thread> threads;

    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            for (int j = 0; j < 20; j++) {
                hd_module *clone = nullptr;

                ASSERT_EQ(hd_module_clone(module.get(), nullptr, &clone),
                          HD_OK);
                EXPECT_EQ(Print(clone), want);
                hd_module_destroy(clone);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
}
