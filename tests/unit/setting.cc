// What hd_set says in place of the environment.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <heddle/environment.h>

#include "base/disk.h"
#include "base/setting.h"
#include "tests/unit/program.h"

namespace
{

// Back to the environment at the end of a test.
class Setting : public testing::Test
{
  public:
    Setting()
    {
        unsetenv("HEDDLE_SHOTS");
        unsetenv("HEDDLE_CHAOS");
    }
    ~Setting() override
    {
        for (int i = 0; hd_setting_get(i) != nullptr; i++)
            hd_setting_give(i, nullptr);
        hd_diag_destroy(diag);
    }
    std::string Refused(const char *name)
    {
        hd_diag_clear(diag);
        EXPECT_EQ(hd_set(name, "1", diag), HD_ERROR_ARGUMENT);
        return hd_diag_text(diag);
    }

    hd_diag *diag = hd_diag_create();
};

TEST_F(Setting, CountsBeforeTheEnvironmentUntilItIsGivenBack)
{
    setenv("HEDDLE_CACHE_DIR", "/environment", 1);
    EXPECT_STREQ(hd_setting("HEDDLE_CACHE_DIR"), "/environment");
    std::string value = "/told";
    EXPECT_EQ(hd_set("HEDDLE_CACHE_DIR", value.c_str(), diag), HD_OK);
    value = "/gone"; // which was copied
    EXPECT_STREQ(hd_setting("HEDDLE_CACHE_DIR"), "/told");
    EXPECT_EQ(hd_set("HEDDLE_CACHE_DIR", "/again", diag), HD_OK);
    EXPECT_STREQ(hd_setting("HEDDLE_CACHE_DIR"), "/again");
    hd_disk cache;
    hd_disk_open(&cache);
    EXPECT_STREQ(cache.folder, "/again");
    EXPECT_EQ(hd_set("HEDDLE_CACHE_DIR", nullptr, diag), HD_OK);
    EXPECT_EQ(hd_set("HEDDLE_CACHE_DIR", nullptr, diag), HD_OK);
    EXPECT_STREQ(hd_setting("HEDDLE_CACHE_DIR"), "/environment");
    unsetenv("HEDDLE_CACHE_DIR");
    EXPECT_EQ(hd_setting("HEDDLE_CACHE_DIR"), nullptr);
}

TEST_F(Setting, OfASessionIsReadByTheNext)
{
    Program program("host program p\nin %x : f32[4]\nout %y : f32[4]\n"
                    "{\n    %y = copy %x\n}\n");
    hd_oob oob = {sizeof oob, nullptr, 0, 1, nullptr};
    hd_group *group = nullptr;
    hd_session *session = nullptr;

    ASSERT_EQ(hd_group_create(&oob, 1, diag, &group), HD_OK);
    ASSERT_EQ(hd_set("HEDDLE_CHAOS", "much", diag), HD_OK);
    EXPECT_EQ(hd_session_create(group, program.module, nullptr, diag, &session),
              HD_ERROR_ARGUMENT);
    EXPECT_NE(std::string(hd_diag_text(diag)).find("HEDDLE_CHAOS is 'much'"),
              std::string::npos)
        << hd_diag_text(diag);
    ASSERT_EQ(hd_set("HEDDLE_CHAOS", nullptr, diag), HD_OK);
    EXPECT_EQ(hd_session_create(group, program.module, nullptr, diag, &session),
              HD_OK);
    hd_session_destroy(session);
    hd_group_destroy(group);
}

TEST_F(Setting, OfALauncherSaysWhereThisProcessIs)
{
    hd_place place = HD_EMPTY(hd_place);
    bool found = false;

    for (const char *name : {"RANK", "LOCAL_RANK"})
        ASSERT_EQ(hd_set(name, "1", diag), HD_OK);
    for (const char *name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE"})
        ASSERT_EQ(hd_set(name, "3", diag), HD_OK);
    ASSERT_EQ(hd_place_find(diag, &found, &place), HD_OK) << hd_diag_text(diag);
    EXPECT_TRUE(found);
    EXPECT_EQ(place.rank, 1);
    EXPECT_EQ(place.nranks, 3);
}

TEST_F(Setting, ANameThatNobodyReadsIsRefused)
{
    EXPECT_NE(Refused("HEDDLE_CACHEDIR")
                  .find("heddle reads no setting 'HEDDLE_CACHEDIR'; did you "
                        "mean 'HEDDLE_CACHE_DIR'?"),
              std::string::npos)
        << hd_diag_text(diag);
    EXPECT_EQ(Refused("something else entirely").find("did you mean"),
              std::string::npos);
    Refused("");
    Refused("heddle_shots");
    EXPECT_NE(Refused("CUDA_VISIBLE_DEVICES").find("CUDA reads"),
              std::string::npos);
}

const hd_env_variable *Find(const hd_environment *e, const std::string &name,
                            int *times)
{
    const hd_env_variable *found = nullptr;

    *times = 0;
    for (int i = 0; i < e->nvariables; i++) {
        if (e->variable[i].name != name)
            continue;
        found = &e->variable[i];
        ++*times;
    }
    return found;
}

TEST_F(Setting, IsToldWithTheEnvironment)
{
    hd_environment *e = nullptr;
    int times;

    setenv("HEDDLE_CHAOS", "1", 1);
    setenv("HEDDLE_CHAOTIC", "1", 1);
    ASSERT_EQ(hd_set("HEDDLE_CHAOS", "2", diag), HD_OK);
    ASSERT_EQ(hd_set("HEDDLE_SHOTS", "2", diag), HD_OK);
    ASSERT_EQ(hd_set("WORLD_SIZE", "2", diag), HD_OK);
    ASSERT_EQ(hd_environment_create(diag, &e), HD_OK);
    const hd_env_variable *v = Find(e, "HEDDLE_CHAOS", &times);
    ASSERT_EQ(times, 1);
    EXPECT_STREQ(v->value, "2");
    v = Find(e, "HEDDLE_SHOTS", &times);
    ASSERT_EQ(times, 1);
    EXPECT_STREQ(v->value, "2");
    EXPECT_STREQ(v->meaning, "1 or 2: how often a small all_reduce on cuda "
                             "goes over the links");
    v = Find(e, "HEDDLE_CHAOTIC", &times);
    ASSERT_EQ(times, 1);
    EXPECT_STREQ(v->meaning, "nothing: heddle knows no such variable");
    Find(e, "WORLD_SIZE", &times); // a launcher's: `place` tells
    EXPECT_EQ(times, 0);
    hd_environment_destroy(e);
    unsetenv("HEDDLE_CHAOS");
    unsetenv("HEDDLE_CHAOTIC");
}

std::vector<std::string> NamesAskedFor(const std::string &text)
{
    std::vector<std::string> names;

    for (const std::string call :
         {"getenv(\"", "hd_setting(\"", "is_set(\"", "variable(\""}) {
        for (size_t at = text.find(call); at != std::string::npos;
             at = text.find(call, at)) {
            at += call.size();
            names.push_back(text.substr(at, text.find('"', at) - at));
        }
    }
    return names;
}

// Each library's variable, and every name that the sources ask for.
TEST_F(Setting, AllThatIsReadMayBeSet)
{
    namespace fs = std::filesystem;
    hd_environment *e = nullptr;
    int found = 0;

    ASSERT_EQ(hd_environment_create(diag, &e), HD_OK);
    for (int i = 0; i < e->nlibraries; i++)
        EXPECT_EQ(hd_set(e->library[i].variable, nullptr, diag), HD_OK)
            << e->library[i].variable;
    EXPECT_EQ(hd_set(e->cuda.variable, nullptr, diag), HD_OK);
    hd_environment_destroy(e);
    for (const char *folder : {"base", "ir", "steps", "lower", "check",
                               "codegen", "simulate", "oracle", "runtime"}) {
        for (const auto &file : fs::recursive_directory_iterator(
                 fs::path(SOURCE_FOLDER) / folder)) {
            std::ifstream stream(file.path());
            std::stringstream text;

            text << stream.rdbuf();
            const std::string all = text.str();
            if (file.path().filename() != "setting.c") {
                EXPECT_EQ(all.find("getenv("), std::string::npos)
                    << file.path();
            }
            for (const std::string &name : NamesAskedFor(all)) {
                bool known = false;

                for (int i = 0; hd_setting_get(i) != nullptr; i++)
                    known |= name == hd_setting_get(i)->name;
                EXPECT_TRUE(known) << name << " in " << file.path();
                found++;
            }
        }
    }
    EXPECT_GT(found, 15);
}

} // namespace
