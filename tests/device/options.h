// Programs under every option of lowering, for the suites of pipelines.
#ifndef HD_TESTS_DEVICE_OPTIONS_H
#define HD_TESTS_DEVICE_OPTIONS_H

#include <array>
#include <set>

#include "tests/device/device.h"

// The program on a mesh of `ranks` along tp, with `dtype` for each $.
inline Module Parse(std::string text, const std::string &dtype, int ranks)
{
    hd_define size = {"tp", ranks};
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;

    for (size_t at; (at = text.find('$')) != std::string::npos;)
        text.replace(at, 1, dtype);
    EXPECT_EQ(hd_parse("pipeline.hd", text.data(), text.size(), &size, 1, diag,
                       &module),
              HD_OK)
        << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return Module(module);
}

// A host program of one rank, with `dtype` for each $, proven.
inline Module Read(std::string text, const std::string &dtype)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;

    for (size_t at; (at = text.find('$')) != std::string::npos;)
        text.replace(at, 1, dtype);
    EXPECT_EQ(hd_parse("program.hd", text.data(), text.size(), nullptr, 0, diag,
                       &module),
              HD_OK)
        << hd_diag_text(diag);
    if (module != nullptr) {
        EXPECT_EQ(hd_check(module, nullptr, diag), HD_OK) << hd_diag_text(diag);
    }
    hd_diag_destroy(diag);
    return Module(module);
}

inline hd_lower_options OptionsOf(int transfer)
{
    hd_lower_options options = hd_lower_defaults();

    options.transfer = static_cast<hd_transfer>(transfer);
    options.transport = DeviceOptions().transport;
    return options;
}

// `host` lowered, and proven to make what `tensor`, the same program, says.
inline Module Proven(const Module &tensor, Module host, int transfer)
{
    hd_lower_options options = OptionsOf(transfer);
    hd_check_options check = hd_check_defaults();
    hd_diag *diag = hd_diag_create();

    EXPECT_EQ(hd_lower(host.get(), &options, nullptr, nullptr, diag), HD_OK)
        << hd_diag_text(diag);
    check.against = tensor.get();
    check.transport = options.transport;
    EXPECT_EQ(hd_check(host.get(), &check, diag), HD_OK) << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return host;
}

inline std::string OptionText(const hd_lower_options &o)
{
    return "transfer " + std::to_string(o.transfer) + " protocol " +
           std::to_string(o.protocol) + " streams " +
           std::to_string(o.streams) + " chunks " + std::to_string(o.chunks) +
           " copy_own " + std::to_string(o.copy_own) + " defer_sends " +
           std::to_string(o.defer_sends) + " comm_stream " +
           std::to_string(o.comm_stream) + " wire " + std::to_string(o.wire);
}

inline std::string TransferName(const testing::TestParamInfo<int> &info)
{
    static const char *const names[] = {"bulk",   "pipelined", "broadcast",
                                        "direct", "ring",      "fused"};

    return names[info.param];
}

// Every value of every option together with every value of every other one, in
// few combinations: of some drawn at random the one that has most pairs of
// values that none before it had, until there are none left.
inline std::vector<std::vector<int>> CoverPairs(const std::vector<int> &values,
                                                std::mt19937 &random)
{
    std::set<std::array<int, 4>> left;
    std::vector<std::vector<int>> rows;
    auto pairs = [&](const std::vector<int> &row, auto &&each) {
        for (int i = 0; i < int(row.size()); i++)
            for (int k = 0; k < i; k++)
                each(std::array<int, 4>{i, row[i], k, row[k]});
    };

    for (int i = 0; i < int(values.size()); i++)
        for (int k = 0; k < i; k++)
            for (int a = 0; a < values[i]; a++)
                for (int b = 0; b < values[k]; b++)
                    left.insert({i, a, k, b});
    while (!left.empty()) {
        std::vector<int> best;
        size_t most = 0;

        for (int n = 0; n < 100 || most == 0; n++) {
            std::vector<int> row;
            size_t found = 0;

            for (int value : values)
                row.push_back(int(random() % unsigned(value)));
            pairs(row, [&](auto pair) { found += left.count(pair); });
            if (found > most) {
                most = found;
                best = row;
            }
        }
        pairs(best, [&](auto pair) { left.erase(pair); });
        rows.push_back(best);
    }
    return rows;
}

#endif
