// The programs that the sweeps use.
#ifndef HD_TESTS_FAULTS_PROGRAMS_H
#define HD_TESTS_FAULTS_PROGRAMS_H

#include <gtest/gtest.h>

#include <string>

#include <heddle/heddle.h>

// An all-gather that feeds a matmul, and an event of the caller's.
static const char kGather[] = R"(heddle 2
tensor program gather
mesh tp=3
in   %a  : f32[3@tp, 4, 8]
in   %b  : f32[8, 4]
out  %c  : f32[3@stream, 4, 4]
temp %ag : f32[3@stream, 4, 8]
{
    %ag = set %a
    %c = matmul %ag, %b
}
)";

// Matmuls that feed a reduce-scatter and an all-reduce.
static const char kReduce[] = R"(heddle 2
tensor program reduce
mesh tp=3
in   %a : f32[3@tp, 3, 4, 8]
in   %w : f32[3@tp, 1, 8, 4]
temp %p : f32[3@tp, 3, 4, 4]
temp %q : f32[3@tp, 3, 4, 4]
out  %c : f32[3@tp, 4, 4]
out  %d : f32[3, 4, 4]
{
    %p = matmul %a, %w
    %q = gelu %p
    %c = sum %p dim 0
    %d = sum %q dim 0
}
)";

// By hand: every kind of transfer, a launch, groups, events and deferred
// sends.
static const char kByHand[] = R"(heddle 2
host program by_hand
mesh tp=3
streams 2
in   %go : event[]
in   %a  : f32[3@tp, 4]
out  %b  : f32[3, 4] shared
out  %s  : f32[4] shared
out  %r  : f32[3, 4] shared
out  %f  : f32[4]
temp %m  : f32[4, 4]
temp %q  : f32[4] shared
temp %x  : f32[3, 4] shared
temp %y  : f32[4] shared
temp %e  : event[2]
temp %d  : event[]
{
    wait %go
    fork
    %b = all_gather %a[tp]
    %x = copy %b
    %s = reduce_scatter %x
    %r[tp] = copy %s
    on stream 0 {
        %e[0] = record
    }
    on stream 1 {
        wait %e[0]
    }
    join
    %m = fill value 0.5
    launch {
        %q = matmul %a[tp], %m
        %f = all_reduce %q
    }
    %y = copy %a[tp]
    send %y to (tp + 1) mod 3 done %d
    %r[(tp + 2) mod 3] = recv from (tp + 2) mod 3
    wait %d
    group {
        send %y to (tp + 2) mod 3 get
        %r[(tp + 1) mod 3] = recv from (tp + 1) mod 3 get
    }
}
)";

// A chain long enough for several blocks of an arena.
inline std::string Chain(int length)
{
    std::string text = "heddle 2\ntensor program chain\nin %x0 : f32[4]\n";
    std::string body;

    for (int i = 1; i <= length; i++) {
        std::string name = "%x" + std::to_string(i);

        text += (i < length ? "temp " : "out ") + name + " : f32[4]\n";
        body +=
            "    " + name + " = scale %x" + std::to_string(i - 1) + " by 0.5\n";
    }
    return text + "{\n" + body + "}\n";
}

// Parses, with no fault; fails the test if it is wrong.
inline hd_module *Parse(const std::string &text)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;
    hd_status status = hd_parse("test.hd", text.data(), text.size(), nullptr, 0,
                                diag, &module);

    EXPECT_EQ(status, HD_OK) << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return module;
}

inline hd_module *ParseAndLower(const std::string &text,
                                hd_transfer transfer = HD_TRANSFER_RING)
{
    hd_lower_options options = hd_lower_defaults();
    hd_module *module = Parse(text);
    hd_diag *diag = hd_diag_create();
    hd_status status;

    options.transfer = transfer;
    status = hd_lower(module, &options, nullptr, nullptr, diag);
    EXPECT_EQ(status, HD_OK) << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return module;
}

inline std::string Print(const hd_module *module)
{
    char *text = nullptr;
    std::string result;

    EXPECT_EQ(hd_print(module, &text), HD_OK);
    if (text != nullptr)
        result = text;
    hd_free(text);
    return result;
}

#endif
