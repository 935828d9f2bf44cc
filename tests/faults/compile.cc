// What needs one process: texts, modules, lowering, checking, the reference.
#include <heddle/simulate.h>
#include <heddle/verify.h>

#include <heddle/async.h>

#include "tests/faults/programs.h"
#include "tests/faults/sweep.h"
#include "tests/info.h"

#include <heddle/build.h>

namespace
{

// Tries with faults that pass and with memory that stays gone.
const int kMemory[] = {FAULT_MEMORY, FAULT_MEMORY | FAULT_LASTING};

hd_status ParseInto(const std::string &text, hd_diag *diag, hd_module **out)
{
    return hd_parse("test.hd", text.data(), text.size(), nullptr, 0, diag, out);
}

// A program with `n` mistakes.
std::string Broken(int n)
{
    std::string text = "heddle 2\ntensor program broken\nin %a : f32[4]\n"
                       "out %b : f32[4]\n{\n";

    for (int i = 0; i < n; i++)
        text += "    %b = copy %c" + std::to_string(i) + "\n";
    return text + "}\n";
}

// What stands where an out-parameter must stay as it was.
template <typename Type> Type *Sentinel()
{
    static char place;

    return reinterpret_cast<Type *>(&place);
}

} // namespace

TEST(DiagFaults, CreatingOneGivesNullWithoutMemory)
{
    for (int kinds : kMemory) {
        Sweep sweep = SweepFaults([&](long k) {
            fault_begin(k, kinds);
            hd_diag *diag = hd_diag_create();
            bool fired = fault_end();

            EXPECT_EQ(diag == nullptr, fired);
            hd_diag_destroy(diag);
            return fired;
        });
        EXPECT_EQ(sweep.faults, 1);
    }
}

TEST(DiagFaults, TextIsNeverNullAndErrorsAreCountedWithoutMemory)
{
    std::string text = Broken(30);

    for (int kinds : kMemory) {
        Sweep sweep = SweepFaults([&](long k) {
            hd_diag *diag = hd_diag_create();
            hd_module *module = nullptr;
            bool fired;

            EXPECT_EQ(ParseInto(text, diag, &module), HD_ERROR_INVALID);
            fault_begin(k, kinds);
            std::string said = hd_diag_text(diag);
            fired = fault_end();
            EXPECT_EQ(hd_diag_errors(diag), 30u);
            EXPECT_EQ(said.find("out of memory") != std::string::npos, fired);
            // Nothing was lost: with memory it can be said again.
            EXPECT_NE(std::string(hd_diag_text(diag)).find("'%c19'"),
                      std::string::npos);
            hd_diag_destroy(diag);
            return fired;
        });
        EXPECT_GT(sweep.requests, 3);
    }
}

TEST(ParseFaults, MemoryThatRunsOutIsSaidAndNothingIsKept)
{
    for (const std::string &text : {std::string(kByHand), Chain(400)})
        for (int kinds : kMemory) {
            Sweep sweep = SweepFaults([&](long k) {
                hd_diag *diag = hd_diag_create();
                hd_module *module = Sentinel<hd_module>();
                bool fired;

                fault_begin(k, kinds);
                hd_status status = ParseInto(text, diag, &module);
                fired = fault_end();
                ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
                if (fired) {
                    EXPECT_EQ(module, Sentinel<hd_module>());
                    EXPECT_EQ(hd_diag_errors(diag), 1u);
                } else {
                    hd_module_destroy(module);
                }
                hd_diag_destroy(diag);
                return fired;
            });
            EXPECT_GT(sweep.requests, 1);
        }
}

TEST(ParseFaults, AWrongProgramIsStillWrongWithoutMemoryForItsMessages)
{
    std::string text = Broken(25);

    for (int kinds : kMemory) {
        Sweep sweep = SweepFaults([&](long k) {
            hd_diag *diag = hd_diag_create();
            hd_module *module = Sentinel<hd_module>();
            bool fired;

            fault_begin(k, kinds);
            hd_status status = ParseInto(text, diag, &module);
            fired = fault_end();
            EXPECT_TRUE(status == HD_ERROR_INVALID ||
                        (fired && status == HD_ERROR_NO_MEMORY))
                << k << ": " << hd_status_text(status);
            // What was wrong until memory ran out stays said.
            if (status == HD_ERROR_INVALID)
                EXPECT_EQ(hd_diag_errors(diag), 25u);
            else
                EXPECT_GE(hd_diag_errors(diag), 1u);
            EXPECT_EQ(module, Sentinel<hd_module>());
            hd_diag_destroy(diag);
            return fired;
        });
        EXPECT_GT(sweep.requests, 40);
    }
}

TEST(ParseFaults, WithoutADiagTheStatusIsTheSame)
{
    SweepFaults([&](long k) {
        hd_module *module = nullptr;
        bool fired;

        fault_begin(k, FAULT_MEMORY);
        hd_status status = ParseInto(kByHand, nullptr, &module);
        fired = fault_end();
        ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
        hd_module_destroy(module);
        return fired;
    });
}

namespace
{

// Each way to print, without memory.
void ExpectWholeOrNone(decltype(hd_print) *print, const char *source, int kinds)
{
    hd_module *module = Parse(source);
    std::string want = Print(module);
    Sweep sweep = SweepFaults([&](long k) {
        char *text = Sentinel<char>();
        bool fired;

        fault_begin(k, kinds);
        hd_status status = print(module, &text);
        fired = fault_end();
        ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
        if (fired) {
            EXPECT_EQ(text, Sentinel<char>());
        } else {
            EXPECT_EQ(text == want, print == hd_print);
            hd_free(text);
        }
        EXPECT_EQ(Print(module), want);
        return fired;
    });
    EXPECT_GT(sweep.requests, 3);
    hd_module_destroy(module);
}

} // namespace

TEST(PrintFaults, TheModuleIsAsItWasAndNoTextIsGiven)
{
    for (const char *source : {kReduce, kByHand})
        for (int kinds : kMemory) {
            ExpectWholeOrNone(hd_print, source, kinds);
            ExpectWholeOrNone(hd_print_json, source, kinds);
        }
}

TEST(CloneFaults, TheModuleIsAsItWasAndNoCloneIsGiven)
{
    for (const std::string &source : {std::string(kByHand), Chain(400)})
        for (int kinds : kMemory) {
            hd_module *module = Parse(source);
            std::string want = Print(module);
            Sweep sweep = SweepFaults([&](long k) {
                hd_diag *diag = hd_diag_create();
                hd_module *clone = Sentinel<hd_module>();
                bool fired;

                fault_begin(k, kinds);
                hd_status status = hd_module_clone(module, diag, &clone);
                fired = fault_end();
                ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
                EXPECT_EQ(hd_diag_errors(diag), fired ? 1u : 0u) << k;
                if (fired) {
                    EXPECT_EQ(clone, Sentinel<hd_module>());
                } else {
                    EXPECT_EQ(Print(clone), want);
                    hd_module_destroy(clone);
                }
                EXPECT_EQ(Print(module), want);
                hd_diag_destroy(diag);
                return fired;
            });
            EXPECT_GT(sweep.requests, 1);
            hd_module_destroy(module);
        }
}

// What appending lacks memory for is told when the program is finished.
TEST(BuilderFaults, MemoryThatRunsOutIsToldInTheEnd)
{
    for (int kinds : kMemory) {
        Sweep sweep = SweepFaults([&](long k) {
            hd_diag *diag = hd_diag_create();
            hd_builder *builder = nullptr;
            hd_module *module = Sentinel<hd_module>();
            hd_build_buffer x = {};
            const char *names[] = {"x", "y"};
            hd_build_op op = {};

            x.size = sizeof x;
            x.dtype = HD_DTYPE_F32;
            x.ndims = 1;
            x.extent[0] = 4;
            op.size = sizeof op;
            op.op = "relu";
            op.results = &names[1];
            op.operands = &names[0];
            op.nresults = op.noperands = 1;
            fault_begin(k, kinds);
            hd_status status =
                hd_builder_create("p", HD_STAGE_TENSOR, diag, &builder);
            if (status == HD_OK) {
                x.name = "x";
                hd_builder_buffer(builder, &x, 1);
                x.name = "y";
                x.role = HD_ROLE_OUT;
                hd_builder_buffer(builder, &x, 2);
                hd_builder_op(builder, &op, 3);
                status = hd_builder_finish(builder, diag, &module);
            }
            bool fired = fault_end();
            ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
            EXPECT_EQ(hd_diag_errors(diag), fired ? 1u : 0u) << k;
            if (fired)
                EXPECT_EQ(module, Sentinel<hd_module>());
            else
                hd_module_destroy(module);
            hd_builder_destroy(builder);
            hd_diag_destroy(diag);
            return fired;
        });
        EXPECT_GT(sweep.requests, 8);
    }
}

TEST(PrintFaults, StepsAreGivenWholeOrNotAtAll)
{
    hd_module *module = Parse(kByHand);

    for (auto *print : {hd_print_steps, hd_print_steps_json})
        for (int kinds : kMemory) {
            Sweep sweep = SweepFaults([&](long k) {
                hd_diag *diag = hd_diag_create();
                char *text = Sentinel<char>();
                bool fired;

                fault_begin(k, kinds);
                hd_status status = print(module, 1, diag, &text);
                fired = fault_end();
                ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
                EXPECT_EQ(hd_diag_errors(diag), fired ? 1u : 0u) << k;
                if (fired)
                    EXPECT_EQ(text, Sentinel<char>());
                else
                    hd_free(text);
                hd_diag_destroy(diag);
                return fired;
            });
            EXPECT_GT(sweep.requests, 6);
        }
    hd_module_destroy(module);
}

TEST(PrintFaults, StepsOfAllRanksAreCountedOrNotAtAll)
{
    hd_module *module = Parse(kByHand);

    for (int kinds : kMemory) {
        Sweep sweep = SweepFaults([&](long k) {
            hd_diag *diag = hd_diag_create();
            std::vector<int64_t> steps(size_t(module_info(module).ranks));
            bool fired;

            fault_begin(k, kinds);
            hd_status status =
                hd_module_step_counts(module, diag, steps.data());
            fired = fault_end();
            ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
            if (!fired) {
                EXPECT_EQ(steps, std::vector<int64_t>(steps.size(), 18));
            }
            EXPECT_EQ(hd_diag_errors(diag), fired ? 1u : 0u) << k;
            hd_diag_destroy(diag);
            return fired;
        });
        EXPECT_GT(sweep.requests, 2);
    }
    hd_module_destroy(module);
}

TEST(PrintFaults, StepsAreCountedOrNotAtAll)
{
    hd_module *module = Parse(kByHand);

    for (int kinds : kMemory) {
        Sweep sweep = SweepFaults([&](long k) {
            hd_diag *diag = hd_diag_create();
            int64_t steps = -7;
            bool fired;

            fault_begin(k, kinds);
            hd_status status = hd_module_steps(module, 2, diag, &steps);
            fired = fault_end();
            ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
            EXPECT_EQ(steps, fired ? -7 : 18);
            EXPECT_EQ(hd_diag_errors(diag), fired ? 1u : 0u) << k;
            hd_diag_destroy(diag);
            return fired;
        });
        EXPECT_GT(sweep.requests, 2);
    }
    hd_module_destroy(module);
}

// After an error the module may only be destroyed: that must work, and what it
// held must be gone then.
TEST(LowerFaults, EveryTransferAndOptionRunsOutCleanly)
{
    for (const std::string &text :
         {std::string(kGather), std::string(kReduce), Chain(300)})
        for (int transfer = HD_TRANSFER_BULK; transfer <= HD_TRANSFER_FUSED;
             transfer++)
            for (int option = 0; option < 4; option++) {
                Sweep sweep = SweepFaults([&](long k) {
                    hd_lower_options options = hd_lower_defaults();
                    hd_diag *diag = hd_diag_create();
                    hd_module *module = Parse(text);
                    bool fired;

                    options.transfer = HD_TRANSFER_RING;
                    options.transfer = static_cast<hd_transfer>(transfer);
                    options.defer_sends = option == 1;
                    options.copy_own = option == 2;
                    options.chunks = option == 2 ? 2 : 1;
                    options.protocol =
                        option == 3 ? HD_PROTOCOL_GET : HD_PROTOCOL_PUT;
                    options.asked = 0; // a warning may be lost
                    fault_begin(k, kMemory[option % 2]);
                    hd_status status =
                        hd_lower(module, &options, nullptr, nullptr, diag);
                    fired = fault_end();
                    ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
                    EXPECT_EQ(hd_diag_errors(diag), fired ? 1u : 0u);
                    hd_module_destroy(module);
                    hd_diag_destroy(diag);
                    return fired;
                });
                EXPECT_GT(sweep.requests, 1);
            }
}

// Rank 0's relu is ordered with its send by the peer's answer.
const char *const kAnswered =
    "heddle 2\nhost program answered mesh tp=2 streams 2 in %a : f32[1] "
    "out %y : f32[1] temp %x : f32[1] temp %got : f32[1] shared "
    "temp %word : f32[1] shared { %x = copy %a fork if tp == 0 { "
    "on stream 0 { send %x to 1 } on stream 1 { %word = recv from 1 "
    "%x = relu %a } } else { on stream 0 { %got = recv from 0 "
    "send %got to 0 } } join %y = copy %x }";

TEST(CheckFaults, CleanProgramsRunOutCleanly)
{
    // The last one's buffers take more than what is left of its arena's block.
    std::vector<hd_module *> modules = {
        Parse(kGather),         Parse(kByHand),   ParseAndLower(kGather),
        ParseAndLower(kReduce), Parse(kAnswered), Parse(Chain(3000))};

    for (hd_module *module : modules) {
        std::string want = Print(module);
        hd_check_options options = hd_check_defaults();

        for (int kinds : kMemory)
            SweepFaults([&](long k) {
                hd_diag *diag = hd_diag_create();
                bool fired;

                fault_begin(k, kinds);
                hd_status status = hd_check(module, &options, diag);
                fired = fault_end();
                ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
                EXPECT_EQ(hd_diag_errors(diag), fired ? 1u : 0u)
                    << k << hd_diag_text(diag);
                hd_diag_destroy(diag);
                return fired;
            });
        EXPECT_EQ(Print(module), want);
        hd_module_destroy(module);
    }
}

// A program that is wrong is wrong or not judged, never right.
TEST(CheckFaults, AWrongProgramNeverPassesForWantOfMemory)
{
    hd_module *whole = ParseAndLower(kGather);
    std::string text = Print(whole);

    hd_module_destroy(whole);
    for (const char *gone : {"wait", "recv", "join", "= record"}) {
        size_t at = text.find(gone);
        std::string broken = text;

        ASSERT_NE(at, std::string::npos) << gone << " in " << text;
        at = broken.rfind('\n', at) + 1;
        broken.erase(at, broken.find('\n', at) - at);
        hd_diag *diag = hd_diag_create();
        hd_module *module = nullptr;
        hd_status parsed = ParseInto(broken, diag, &module);
        hd_status want =
            parsed == HD_OK ? hd_check(module, nullptr, diag) : parsed;

        hd_diag_destroy(diag);
        if (parsed == HD_OK)
            SweepFaults([&](long k) {
                hd_diag *fresh = hd_diag_create();

                fault_begin(k, FAULT_MEMORY);
                hd_status status = hd_check(module, nullptr, fresh);
                bool fired = fault_end();

                EXPECT_TRUE(status == want ||
                            (fired && status == HD_ERROR_NO_MEMORY))
                    << gone << ' ' << k << ": " << hd_status_text(status);
                hd_diag_destroy(fresh);
                return fired;
            });
        hd_module_destroy(module);
    }
}

namespace
{

// Whole arrays for the arguments of a module: small integers.
struct Arrays {
    std::vector<std::vector<float>> values;
    std::vector<const void *> whole;

    explicit Arrays(const hd_module *module)
    {
        hd_argument argument = HD_EMPTY(hd_argument);

        for (size_t i = 0; hd_module_argument(module, i, &argument); i++) {
            values.emplace_back(argument.elements);
            for (size_t k = 0; k < argument.elements; k++)
                values[i][k] = static_cast<float>((7 * k + i) % 5) - 2;
        }
        for (size_t i = 0; hd_module_argument(module, i, &argument); i++)
            whole.push_back(argument.role == HD_ROLE_OUT ? nullptr
                                                         : values[i].data());
    }
};

std::vector<double> Local(const hd_reference *reference,
                          const hd_module *module, size_t i)
{
    hd_argument argument = HD_EMPTY(hd_argument);
    std::vector<double> values;

    if (hd_module_argument(module, i, &argument))
        values.resize(argument.local_elements);
    hd_reference_local(reference, i, 1, values.data(), nullptr);
    return values;
}

} // namespace

TEST(ReferenceFaults, TensorAndHostProgramsRunOutCleanly)
{
    std::vector<hd_module *> modules = {Parse(kReduce), ParseAndLower(kReduce),
                                        ParseAndLower(kGather), Parse(kByHand)};

    for (hd_module *module : modules) {
        Arrays arrays(module);
        size_t last = module_info(module).narguments - 1;
        hd_reference *first = nullptr;
        std::vector<double> want;

        ASSERT_EQ(
            hd_reference_create(module, arrays.whole.data(), nullptr, &first),
            HD_OK);
        want = Local(first, module, last);
        hd_reference_destroy(first);
        Sweep sweep = SweepFaults([&](long k) {
            hd_diag *diag = hd_diag_create();
            hd_reference *reference = Sentinel<hd_reference>();
            bool fired;

            fault_begin(k, kMemory[k % 2]);
            hd_status status = hd_reference_create(module, arrays.whole.data(),
                                                   diag, &reference);
            fired = fault_end();
            ExpectOutcome(k, fired, status, HD_ERROR_NO_MEMORY);
            EXPECT_EQ(hd_diag_errors(diag), fired ? 1u : 0u) << k;
            if (fired) {
                EXPECT_EQ(reference, Sentinel<hd_reference>());
            } else {
                EXPECT_EQ(Local(reference, module, last), want);
                hd_reference_destroy(reference);
            }
            hd_diag_destroy(diag);
            return fired;
        });
        EXPECT_GT(sweep.requests, 10);
        hd_module_destroy(module);
    }
}

TEST(EventFaults, CreatingOneGivesNullWithoutMemory)
{
    Sweep sweep = SweepFaults([&](long k) {
        fault_begin(k, FAULT_MEMORY);
        hd_event *event = hd_event_create();
        bool fired = fault_end();

        EXPECT_EQ(event == nullptr, fired);
        hd_event_destroy(event);
        return fired;
    });
    EXPECT_EQ(sweep.faults, 1);
}

// What cannot fail takes no memory, and so has nothing to run out of.
TEST(NoFaults, WhatCannotFailAsksForNothing)
{
    hd_module *module = Parse(kGather);
    hd_event *event = hd_event_create();
    hd_diag *diag = hd_diag_create();
    std::vector<float> whole(96), local(32);
    std::vector<double> wide(32);
    hd_argument argument = HD_EMPTY(hd_argument);
    hd_message message = HD_EMPTY(hd_message);

    fault_begin(1, FAULT_MEMORY | FAULT_SYSTEM);
    EXPECT_STREQ(hd_status_text(HD_ERROR_PEER), "another rank failed");
    EXPECT_STREQ(hd_version(), HD_VERSION);
    EXPECT_STREQ(module_info(module).name, "gather");
    EXPECT_EQ(module_info(module).stage, HD_STAGE_TENSOR);
    EXPECT_EQ(module_info(module).ranks, 3);
    EXPECT_EQ(module_info(module).narguments, 3u);
    EXPECT_TRUE(hd_module_argument(module, 0, &argument));
    hd_shard(module, 0, 1, whole.data(), local.data());
    hd_unshard(module, 0, 1, local.data(), whole.data());
    hd_dtype_load(HD_DTYPE_F32, local.data(), 32, wide.data());
    hd_dtype_store(HD_DTYPE_F32, wide.data(), 32, local.data());
    EXPECT_EQ(hd_dtype_size(HD_DTYPE_BF16), 2u);
    EXPECT_STREQ(hd_dtype_text(HD_DTYPE_BF16), "bf16");
    EXPECT_EQ(hd_lower_defaults().streams, 2);
    EXPECT_STREQ(hd_session_defaults().device, "cpu");
    EXPECT_EQ(hd_diag_count(diag) + hd_diag_errors(diag), 0u);
    EXPECT_FALSE(hd_diag_message(diag, 0, &message));
    hd_diag_clear(diag);
    hd_event_record(event);
    EXPECT_EQ(hd_event_wait(event, 1), HD_OK);
    hd_free(nullptr);
    EXPECT_FALSE(fault_end());
    EXPECT_EQ(fault_count(), 0);
    hd_diag_destroy(diag);
    hd_event_destroy(event);
    hd_module_destroy(module);
}
