// What hd_lower takes, and what it refuses before it begins.
#include "tests/info.h"
#include "tests/unit/program.h"

namespace
{

const char kGather[] = "tensor program t mesh tp=2 in %a : f32[2@tp, 4] "
                       "out %b : f32[2, 4] { %b = set %a }";

std::string Refusal(const hd_lower_options &options)
{
    Program p(kGather);
    std::string before = p.Print();

    EXPECT_EQ(hd_lower(p.module, &options, nullptr, nullptr, p.diag),
              HD_ERROR_ARGUMENT);
    EXPECT_EQ(p.Print(), before);
    return p.Said();
}

std::string Warnings(const hd_lower_options &options)
{
    Program p(kGather);

    EXPECT_EQ(hd_lower(p.module, &options, nullptr, nullptr, p.diag), HD_OK);
    return p.Said();
}

void NotePass(void *context, const char *pass, const hd_module *module)
{
    *static_cast<std::string *>(context) +=
        std::string(pass) + std::to_string(module_info(module).stage) + ' ';
}

} // namespace

TEST(Options, StreamsAreOneTo64)
{
    hd_lower_options options = RingDefaults();

    options.streams = 0;
    EXPECT_NE(Refusal(options).find("0 streams; 1 to 64"), std::string::npos);
    options.streams = 65;
    EXPECT_NE(Refusal(options).find("65 streams"), std::string::npos);
}

TEST(Options, ChunksAreOneTo4096)
{
    hd_lower_options options = RingDefaults();

    options.chunks = 0;
    EXPECT_NE(Refusal(options).find("0 chunks a shard; 1 to 4096"),
              std::string::npos);
    options.chunks = 4097;
    EXPECT_NE(Refusal(options).find("4097 chunks"), std::string::npos);
}

TEST(Options, ValuesThatAreNoneAreRefused)
{
    hd_lower_options options = RingDefaults();

    options.transfer = static_cast<hd_transfer>(HD_TRANSFER_AUTO + 1);
    EXPECT_NE(Refusal(options).find("option 'transfer' has no value"),
              std::string::npos);
    options = RingDefaults();
    options.protocol = static_cast<hd_protocol>(HD_PROTOCOL_GET + 1);
    EXPECT_NE(Refusal(options).find("option 'protocol' has no value"),
              std::string::npos);
    options = RingDefaults();
    options.until = static_cast<hd_stage>(HD_STAGE_PLACE + 1);
    EXPECT_NE(Refusal(options).find("option 'until' has no value"),
              std::string::npos);
    options = RingDefaults();
    options.wire = static_cast<hd_wire_dtype>(2);
    EXPECT_NE(Refusal(options).find("option 'wire' has no value"),
              std::string::npos);
    options = RingDefaults();
    options.asked = 2 * HD_OPTION_LAUNCH;
    EXPECT_NE(Refusal(options).find("option 'asked' has no value"),
              std::string::npos);
}

TEST(Options, WhatHasNoEffectIsAWarningToThoseWhoAskedForIt)
{
    hd_lower_options options = RingDefaults();

    EXPECT_EQ(Warnings(options), "");
    options.asked = HD_OPTION_TRANSFER; // the default, by hand
    EXPECT_NE(Warnings(options).find("option 'transfer' has no effect here: "
                                     "dimension 0 of %b, which it gathers, is "
                                     "not @stream"),
              std::string::npos);
    options = RingDefaults();
    options.chunks = 2;
    options.defer_sends = true;
    options.asked = HD_OPTION_CHUNKS | HD_OPTION_DEFER_SENDS;
    EXPECT_NE(Warnings(options).find("options 'chunks' and 'defer-sends' have"),
              std::string::npos);
    options.asked = 0;
    EXPECT_EQ(Warnings(options), "");
}

// Of a pipeline that nobody asked for: the weights of the second layer could
// come beside the first.
TEST(Options, WhatMovesAloneIsToldWithTheOptionThatEndsIt)
{
    const char layers[] =
        "tensor program t mesh dp=8 in %x : bf16[8@dp, 256, 4096] "
        "in %w : bf16[4096, 4096] in %v : bf16[4096@dp, 4096] "
        "temp %g : bf16[4096, 4096] temp %h : bf16[8@dp, 256, 4096] "
        "out %y : bf16[8@dp, 256, 4096] "
        "{ %h = matmul %x, %w %g = set %v %y = matmul %h, %g }";
    hd_lower_options options = RingDefaults();

    for (bool own : {false, true}) {
        Program p(layers);

        ASSERT_EQ(p.status, HD_OK) << p.Said();
        options.comm_stream = own;
        EXPECT_EQ(hd_lower(p.module, &options, nullptr, nullptr, p.diag),
                  HD_OK);
        EXPECT_EQ(p.Said().find("HD0506") == std::string::npos, own)
            << p.Said();
        EXPECT_EQ(p.Said().find("with `--comm-stream` it goes on") ==
                      std::string::npos,
                  own);
    }
}

TEST(Options, TheHookSeesEachPassThatRan)
{
    Program p(kGather);
    hd_lower_options options = RingDefaults();
    std::string seen;

    options.until = HD_STAGE_STREAM;
    EXPECT_EQ(hd_lower(p.module, &options, NotePass, &seen, p.diag), HD_OK);
    EXPECT_EQ(seen, "place0 reshard1 stream2 ");
    options.until = HD_STAGE_HOST;
    seen.clear();
    EXPECT_EQ(hd_lower(p.module, &options, NotePass, &seen, p.diag), HD_OK);
    EXPECT_EQ(seen, "transfer3 event4 share5 ");
}

TEST(Options, LaunchesHaveAPassOfTheirOwn)
{
    Program p(kGather);
    hd_lower_options options = RingDefaults();
    std::string seen;

    options.launch = true;
    EXPECT_EQ(hd_lower(p.module, &options, NotePass, &seen, p.diag), HD_OK);
    EXPECT_EQ(seen, "place0 reshard1 stream2 transfer3 event4 share5 launch5 ");
}
