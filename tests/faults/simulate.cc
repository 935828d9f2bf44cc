// The simulator, of programs that the checker accepts.
#include <heddle/environment.h>
#include <heddle/simulate.h>

#include "tests/faults/programs.h"
#include "tests/faults/sweep.h"
#include "tests/unit/folder.h"

TEST(SimulateFaults, ARunOutSaysSoAndKeepsNothing)
{
    static char place;
    hd_simulation *const sentinel = reinterpret_cast<hd_simulation *>(&place);
    hd_machine machine = HD_EMPTY(hd_machine);
    hd_machine_default(&machine);

    for (const char *text : {kGather, kReduce}) {
        hd_module *module = ParseAndLower(text);
        std::string want = Print(module);

        for (int kinds : {FAULT_MEMORY + 0, FAULT_MEMORY | FAULT_LASTING}) {
            Sweep sweep = SweepFaults([&](long k) {
                hd_diag *diag = hd_diag_create();
                hd_simulation *simulation = sentinel;
                hd_prediction prediction = HD_EMPTY(hd_prediction);
                bool fired;

                fault_begin(k, kinds);
                hd_status status =
                    hd_simulate(module, &machine, diag, &simulation);
                fired = fault_end();
                // Where only the words of its warning are lost, it is made.
                bool lost = fired && status == HD_OK &&
                            std::string(hd_diag_text(diag))
                                    .find("memory ran out for a message") !=
                                std::string::npos;
                ExpectOutcome(k, fired && !lost, status, HD_ERROR_NO_MEMORY);
                EXPECT_EQ(hd_diag_errors(diag), status == HD_OK ? 0u : 1u)
                    << k << hd_diag_text(diag);
                if (status != HD_OK) {
                    EXPECT_EQ(simulation, sentinel);
                } else {
                    hd_simulation_predict(simulation, &prediction);
                    EXPECT_GT(prediction.time, 0);
                    hd_simulation_destroy(simulation);
                }
                EXPECT_EQ(Print(module), want);
                hd_diag_destroy(diag);
                return fired;
            });
            EXPECT_GT(sweep.requests, 3);
        }
        hd_module_destroy(module);
    }
}

// What reads a simulation cannot fail.
TEST(SimulateFaults, ReadingOneAsksForNothing)
{
    hd_machine machine = HD_EMPTY(hd_machine);
    hd_machine_default(&machine);
    hd_module *module = ParseAndLower(kGather);
    hd_simulation *simulation = nullptr;
    hd_prediction prediction = HD_EMPTY(hd_prediction);
    hd_interval interval = HD_EMPTY(hd_interval);
    char name[8];

    ASSERT_EQ(hd_simulate(module, &machine, nullptr, &simulation), HD_OK);
    fault_begin(1, FAULT_MEMORY | FAULT_SYSTEM | FAULT_LASTING);
    hd_simulation_predict(simulation, &prediction);
    ASSERT_GT(hd_simulation_intervals(simulation), 0);
    hd_simulation_interval(simulation, 0, &interval);
    EXPECT_LE(interval.start, interval.end);
    hd_simulation_name(simulation, 0, name, sizeof name);
    EXPECT_LT(strlen(name), sizeof name);
    EXPECT_FALSE(fault_end());
    hd_simulation_destroy(simulation);
    hd_module_destroy(module);
}

TEST(ChooseFaults, AChoiceIsMadeWholeOrNotAtAll)
{
    static char place;
    hd_choice *const sentinel = reinterpret_cast<hd_choice *>(&place);
    hd_module *module = Parse(kGather);
    std::string want = Print(module);
    hd_choose_options options = hd_choose_defaults();

    options.most_streams = options.most_chunks = 1;
    Sweep sweep = SweepFaults([&](long k) {
        hd_diag *diag = hd_diag_create();
        hd_choice *choice = sentinel;

        fault_begin(k, FAULT_MEMORY);
        hd_status status = hd_choose(module, &options, diag, &choice);
        bool fired = fault_end();
        ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
        EXPECT_EQ(hd_diag_errors(diag), status == HD_OK ? 0u : 1u);
        if (status == HD_OK) {
            EXPECT_GT(hd_choice_count(choice), 3u);
            hd_choice_destroy(choice);
        } else {
            EXPECT_EQ(choice, sentinel);
        }
        EXPECT_EQ(Print(module), want);
        hd_diag_destroy(diag);
        return fired;
    });
    EXPECT_GT(sweep.requests, 20);
    hd_module_destroy(module);
}

TEST(MachineFaults, OneIsPrintedWholeOrNotAtAll)
{
    static char place;
    hd_machine machine = HD_EMPTY(hd_machine);
    hd_machine_default(&machine);

    Sweep sweep = SweepFaults([&](long k) {
        hd_diag *diag = hd_diag_create();
        char *text = &place;

        fault_begin(k, FAULT_MEMORY);
        hd_status status = hd_machine_print(&machine, diag, &text);
        bool fired = fault_end();
        ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
        if (status == HD_OK)
            hd_free(text);
        else
            EXPECT_EQ(text, &place);
        hd_diag_destroy(diag);
        return fired;
    });
    EXPECT_GT(sweep.requests, 1);
}

// Without memory to read what is kept, the shipped one is the machine at hand.
TEST(MachineFaults, WhatIsKeptIsReadWholeOrNotAtAll)
{
    Folder folder;
    hd_env_kind kind = HD_EMPTY(hd_env_kind);
    hd_machine shipped = HD_EMPTY(hd_machine), kept;
    hd_machine_origin origin = HD_EMPTY(hd_machine_origin);

    setenv("HEDDLE_CACHE_DIR", folder.Path("cache").c_str(), 1);
    ASSERT_EQ(hd_environment_kind("cpu", nullptr, &kind), HD_OK);
    hd_machine_shipped("cpu", &shipped);
    kept = shipped;
    kept.hop = 0.125;
    ASSERT_EQ(hd_machine_keep(kind.key, &kept, nullptr, &origin), HD_OK);
    std::string path = origin.path;

    for (bool whole : {true, false}) {
        if (!whole)
            std::ofstream(path) << "{ of no use";
        Sweep sweep = SweepFaults([&](long k) {
            hd_machine machine = HD_EMPTY(hd_machine);
            hd_diag *diag = hd_diag_create();

            fault_begin(k, FAULT_MEMORY | FAULT_SYSTEM);
            hd_status status = hd_machine_here("cpu", diag, &machine, &origin);
            bool fired = fault_end();
            EXPECT_EQ(status, HD_OK) << hd_diag_text(diag);
            EXPECT_EQ(machine.hop, *origin.path ? kept.hop : shipped.hop) << k;
            EXPECT_TRUE(fired || whole == (*origin.path != 0)) << k;
            hd_diag_destroy(diag);
            return fired;
        });
        EXPECT_GT(sweep.requests, 1);
    }
    setenv("HEDDLE_CACHE_DIR", "off", 1);
}
