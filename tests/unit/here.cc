// The machine at hand: what was measured and kept, by what kind of machine it
// is, else the shipped one.
#include <heddle/environment.h>
#include <heddle/simulate.h>

#include <gtest/gtest.h>

#include <fstream>
#include <sys/stat.h>

#include "tests/unit/folder.h"

namespace
{

struct Here {
    hd_status status;
    hd_machine machine = HD_EMPTY(hd_machine);
    hd_machine_origin origin = HD_EMPTY(hd_machine_origin);
    std::string said;
};

Here Find(const char *device)
{
    hd_diag *diag = hd_diag_create();
    Here here = {};

    here.status = hd_machine_here(device, diag, &here.machine, &here.origin);
    here.said = hd_diag_text(diag);
    hd_diag_destroy(diag);
    return here;
}

hd_machine Shipped(const char *device)
{
    hd_machine machine = HD_EMPTY(hd_machine);

    hd_machine_shipped(device, &machine);
    return machine;
}

std::string Text(const hd_machine &machine)
{
    char *text = nullptr;
    std::string copy;

    EXPECT_EQ(hd_machine_print(&machine, nullptr, &text), HD_OK);
    copy = text;
    hd_free(text);
    return copy;
}

class MachineHere : public testing::Test
{
  protected:
    Folder top_;
    hd_env_kind kind_ = HD_EMPTY(hd_env_kind);

    void SetUp() override
    {
        setenv("HEDDLE_CACHE_DIR", top_.Path("cache").c_str(), 1);
        ASSERT_EQ(hd_environment_kind("cpu", nullptr, &kind_), HD_OK);
    }
    void TearDown() override
    {
        setenv("HEDDLE_CACHE_DIR", "off", 1);
    }
    std::string File() const
    {
        return top_.Path("cache/machines/") + kind_.key + ".json";
    }
    std::string Refusal(const hd_machine *machine) const
    {
        hd_machine_origin origin = HD_EMPTY(hd_machine_origin);
        hd_diag *diag = hd_diag_create();
        std::string said;

        EXPECT_EQ(hd_machine_keep(kind_.key, machine, diag, &origin),
                  HD_ERROR_SYSTEM);
        said = hd_diag_text(diag);
        hd_diag_destroy(diag);
        return said;
    }
};

TEST_F(MachineHere, IsTheShippedOneUntilSomethingIsKept)
{
    hd_machine machine = Shipped("cpu");
    hd_machine_origin origin = HD_EMPTY(hd_machine_origin);
    Here here = Find("cpu");

    EXPECT_EQ(here.status, HD_OK);
    EXPECT_STREQ(here.machine.name, "2 processors, shared by all ranks");
    EXPECT_STREQ(here.origin.path, "");
    // Where it would be is told, and nothing is made.
    ASSERT_EQ(hd_machine_keep(kind_.key, nullptr, nullptr, &origin), HD_OK);
    EXPECT_EQ(origin.path, File());
    EXPECT_NE(access(top_.Path("cache").c_str(), F_OK), 0);
    machine.hop = 0.125;
    ASSERT_EQ(hd_machine_keep(kind_.key, &machine, nullptr, &origin), HD_OK);
    here = Find("cpu");
    EXPECT_EQ(here.machine.hop, 0.125);
    EXPECT_EQ(here.origin.path, File());
    EXPECT_EQ(here.origin.time, origin.time);
    // Of another kind of device nothing is kept.
    EXPECT_STREQ(Find("cuda").machine.name, "8 x H200");
    ASSERT_EQ(hd_machine_keep("cpu-0-another", &machine, nullptr, &origin),
              HD_OK);
    unlink(File().c_str());
    EXPECT_STREQ(Find("cpu").origin.path, "");
    EXPECT_EQ(Find("cpu").machine.hop, Shipped("cpu").hop);
}

TEST_F(MachineHere, AWrongFileIsWarnedOfAndNotTaken)
{
    hd_machine machine = Shipped("cpu");
    hd_machine_origin origin = HD_EMPTY(hd_machine_origin);

    ASSERT_EQ(hd_machine_keep(kind_.key, &machine, nullptr, &origin), HD_OK);
    std::ofstream(File()) << "{\n\"hop\": 7}";
    Here here = Find("cpu");
    EXPECT_EQ(here.status, HD_OK);
    EXPECT_NE(here.said.find(File() + ":2: hop is 7; it lies between 0 and 1"),
              std::string::npos)
        << here.said;
    EXPECT_STREQ(here.origin.path, "");
    EXPECT_EQ(here.machine.hop, machine.hop);
}

TEST_F(MachineHere, WhatCannotBeKeptIsRefusedWithTheReason)
{
    hd_machine machine = Shipped("cpu");

    std::ofstream(top_.Path("cache")) << "a file";
    EXPECT_NE(Refusal(&machine).find(top_.Path("cache") + "/machines"),
              std::string::npos)
        << Refusal(&machine);
    EXPECT_NE(Refusal(nullptr), "");
    setenv("HEDDLE_CACHE_DIR", "off", 1);
    EXPECT_NE(Refusal(&machine).find("HEDDLE_CACHE_DIR is 'off'"),
              std::string::npos);
    EXPECT_NE(Refusal(nullptr).find("HEDDLE_CACHE_DIR is 'off'"),
              std::string::npos);
    machine.hop = -1;
    setenv("HEDDLE_CACHE_DIR", top_.Path("other").c_str(), 1);
    hd_machine_origin origin = HD_EMPTY(hd_machine_origin);
    EXPECT_EQ(hd_machine_keep(kind_.key, &machine, nullptr, &origin),
              HD_ERROR_ARGUMENT);
}

TEST_F(MachineHere, KindIsAFilesName)
{
    EXPECT_EQ(std::string(kind_.key).rfind("cpu-", 0), 0u) << kind_.key;
    EXPECT_EQ(strspn(kind_.key, "abcdefghijklmnopqrstuvwxyz0123456789-"),
              strlen(kind_.key))
        << kind_.key;
    EXPECT_GE(kind_.devices, 1);
    EXPECT_EQ(kind_.multiprocessors, 0);
}

TEST(MachineShipped, IsTheOneOfItsFile)
{
    const char *const pairs[][2] = {{"cpu", "cpu2.json"},
                                    {"cuda:1", "h200x8.json"}};

    for (const auto &pair : pairs) {
        std::ifstream file(std::string(HEDDLE_EXAMPLES "/machines/") + pair[1]);
        std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
        hd_machine machine = HD_EMPTY(hd_machine), shipped = Shipped(pair[0]);

        ASSERT_EQ(hd_machine_parse(pair[1], text.data(), text.size(), nullptr,
                                   &machine),
                  HD_OK);
        EXPECT_EQ(Text(machine), Text(shipped));
    }
}

} // namespace
