// Arguments that are no dense memory of the device: values of the host's, and
// arrays with strides.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tests/device/options.h"
#include "tests/unit/ranks.h"

namespace
{

Module Lowered(const std::string &text, const std::string &dtype, int ranks,
               hd_transfer transfer)
{
    Module module = Parse(text, dtype, ranks);
    hd_lower_options options = OptionsOf(transfer);
    hd_diag *diag = hd_diag_create();

    EXPECT_EQ(hd_lower(module.get(), &options, nullptr, nullptr, diag), HD_OK)
        << hd_diag_text(diag);
    EXPECT_EQ(CheckHere(module.get(), diag), HD_OK) << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return module;
}

// Each rank opens a session, and `body` runs it.
void RunSession(
    const hd_module *module, int ranks,
    const std::function<hd_status(hd_session *, int, hd_diag *)> &body)
{
    AllEndWell(Launch(ranks, [&](hd_group *group, hd_diag *diag) {
        hd_session_options options = DeviceOptions();
        hd_session *session = nullptr;
        hd_status status;

        HD_TRY(hd_session_create(group, module, &options, diag, &session));
        status = body(session, hd_group_rank(group), diag);
        hd_session_destroy(session);
        return status;
    }));
}

// ------------------------------------------------------- on the host

// One that each rank reads for itself, and one of each rank's that all read.
const char *const kScalars =
    "heddle 2 tensor program scalars mesh tp=2 in %x : $[4 @tp, 6] "
    "in %s : $[1] in %a : $[size tp @tp] out %y : $[4, 6] out %b : $[size tp] "
    "temp %q : $[4 @tp, 6] { %q = mul %x, %s %y = set %q %b = set %a }";

// Which arguments of kScalars are given by value.
const bool kOnHost[] = {false, true, true, false, false};

// The run's values are gone as soon as it has been issued.
hd_status RunByValue(hd_session *session, const Shards &shards,
                     const Arguments &inputs, const hd_module *module, int rank,
                     hd_diag *diag)
{
    hd_run_options with = HD_EMPTY(hd_run_options);
    std::vector<char> value[] = {inputs.Local(module, 1, rank),
                                 inputs.Local(module, 2, rank)};
    void *address[] = {shards.Address(0), value[0].data(), value[1].data(),
                       shards.Address(3), shards.Address(4)};
    hd_status status;

    with.on_host = kOnHost;
    status = hd_session_run(session, address, 5, &with, diag);
    for (std::vector<char> &bytes : value)
        std::fill(bytes.begin(), bytes.end(), '\xff');
    return status;
}

TEST(Passing, ValuesOfTheHostAreThoseOfWhenTheRunWasIssued)
{
    const int runs = IsQuick() ? 40 : 200;

    for (const char *dtype : {"f32", "f64", "bf16"}) {
        Module module = Lowered(kScalars, dtype, 2, HD_TRANSFER_BULK);
        Expected expected(module.get(), runs, Seed());

        if (!HasDevices(2))
            return;
        RunSession(
            module.get(), 2, [&](hd_session *session, int rank, hd_diag *diag) {
                std::deque<Shards> shards;

                for (int i = 0; i < runs; i++) {
                    shards.emplace_back(session);
                    HD_TRY(shards[i].Put(expected.Inputs(i), module.get(), rank,
                                         diag));
                }
                for (int i = 0; i < runs; i++)
                    HD_TRY(RunByValue(session, shards[i], expected.Inputs(i),
                                      module.get(), rank, diag));
                for (int i = 0; i < runs; i++) {
                    HD_TRY(shards[i].Get(diag));
                    HD_TRY(Compare(shards[i], expected, expected, i, rank));
                }
                return HD_OK;
            });
    }
}

// The run is the same for the device: nothing is made anew for a value, and
// what lies in the device's memory may be in the host's in the next run.
TEST(Passing, ValuesOfTheHostMakeNothingAnew)
{
    Module module = Lowered(kScalars, "f32", 2, HD_TRANSFER_BULK);
    Expected expected(module.get(), 12, Seed());

    if (!HasDevices(2))
        return;
    RunSession(
        module.get(), 2, [&](hd_session *session, int rank, hd_diag *diag) {
            hd_stats first = HD_EMPTY(hd_stats);
            hd_stats last = HD_EMPTY(hd_stats);
            Shards shards(session);

            HD_TRY(shards.Put(expected.Inputs(0), module.get(), rank, diag));
            for (int i = 0; i < 12; i++) {
                const Arguments &inputs = expected.Inputs(i);

                HD_TRY(shards.Set(inputs, module.get(), rank, diag));
                HD_TRY(i == 6 ? shards.Run(diag)
                              : RunByValue(session, shards, inputs,
                                           module.get(), rank, diag));
                HD_TRY(shards.Get(diag));
                HD_TRY(Compare(shards, expected, expected, i, rank));
                hd_session_stats(session, i == 0 ? &first : &last);
                if (i == 5)
                    RANK_EXPECT(last.graphs == first.graphs);
            }
            RANK_EXPECT(last.allocations == first.allocations);
            return HD_OK;
        });
}

// ---------------------------------------------------------- strides

// One rank's arguments with strides drawn anew. Around and between elements lie
// NaNs, which nothing may touch.
class Strided
{
  public:
    Strided(hd_session *session, const hd_module *module, int rank,
            unsigned seed)
        : session_(session), module_(module), rank_(rank), random_(seed)
    {
    }
    Strided(const Strided &) = delete;
    ~Strided()
    {
        for (const Array &array : arrays_)
            if (array.owned)
                hd_session_free(session_, array.at);
    }

    hd_status Put(const Arguments &arguments, hd_diag *diag)
    {
        for (size_t i = 0; i < arguments.Count(); i++)
            arrays_.push_back(Draw(arguments.Info(i)));
        for (size_t i = 0; i < arguments.Count(); i++) {
            std::vector<char> dense = arguments.Local(module_, i, rank_);
            Array &array = arrays_[i];

            for (size_t k = 0; k < array.place.size(); k++)
                memcpy(&array.bytes[array.place[k]], &dense[k * array.size],
                       array.size);
            array.at = array.bytes.data();
            array.before = array.bytes;
            if (OnCpu())
                continue;
            HD_TRY(hd_session_alloc(session_, array.bytes.size(), diag,
                                    &array.at));
            array.owned = true;
            HD_TRY(hd_session_copy(session_, array.at, array.bytes.data(),
                                   array.bytes.size(), diag));
        }
        return HD_OK;
    }

    hd_status Run(const int64_t *sizes, size_t nsizes, hd_diag *diag)
    {
        hd_run_options with = HD_EMPTY(hd_run_options);
        std::vector<const int64_t *> strides;
        std::vector<void *> address;

        for (const Array &array : arrays_) {
            strides.push_back(array.dense ? nullptr : array.stride.data());
            address.push_back(static_cast<char *>(array.at) + array.offset);
        }
        with.strides = strides.data();
        with.sizes = sizes;
        with.nsizes = nsizes;
        return hd_session_run(session_, address.data(), address.size(), &with,
                              diag);
    }

    hd_status Get(hd_diag *diag)
    {
        HD_TRY(hd_session_finish(session_, diag));
        for (Array &array : arrays_)
            if (array.owned)
                HD_TRY(hd_session_copy(session_, array.bytes.data(), array.at,
                                       array.bytes.size(), diag));
        return HD_OK;
    }

    hd_status Compare(const Expected &expected, int set)
    {
        const Arguments &arguments = expected.Inputs(set);

        for (size_t i = 0; i < arrays_.size(); i++) {
            Array &array = arrays_[i];
            std::vector<char> dense(array.place.size() * array.size + 1);

            for (size_t k = 0; k < array.place.size(); k++)
                memcpy(&dense[k * array.size], &array.bytes[array.place[k]],
                       array.size);
            if (arguments.Info(i).role != HD_ROLE_IN) {
                HD_TRY(CompareLocal(expected.Reference(set),
                                    expected.Reference(set), i, rank_,
                                    arguments.Info(i), dense.data()));
                for (size_t place : array.place)
                    memcpy(&array.before[place], &array.bytes[place],
                           array.size);
            }
            if (array.bytes != array.before) {
                fprintf(stderr, "rank %d: %%%s: what lies between is written\n",
                        rank_, arguments.Info(i).name);
                return HD_ERROR_INVALID;
            }
        }
        return HD_OK;
    }

  private:
    struct Array {
        size_t size = 0; // of an element
        bool dense = false, owned = false;
        std::vector<int64_t> stride;
        std::vector<size_t> place; // of each element, in bytes
        size_t offset = 0;         // of the first
        std::vector<char> bytes, before;
        void *at = nullptr;
    };

    // Dimensions in any order, each with some room behind it.
    Array Draw(const hd_argument &info)
    {
        Array array;
        std::vector<int> order(size_t(info.ndims));
        int64_t step = 1, dense = 1;
        bool loose = random_() % 4 != 0, lies = true;

        array.size = hd_dtype_size(info.dtype);
        array.stride.resize(HD_MAX_DIMS);
        std::iota(order.begin(), order.end(), 0);
        std::reverse(order.begin(), order.end());
        if (loose && random_() % 2 == 0)
            std::shuffle(order.begin(), order.end(), random_);
        if (loose && random_() % 4 == 0)
            step = 2;
        for (int d : order) {
            array.stride[size_t(d)] = step;
            step *= info.local[d];
            if (loose)
                step += int64_t(random_() % 3);
        }
        for (int d = info.ndims - 1; d >= 0; d--) {
            lies &= info.local[d] == 1 || array.stride[size_t(d)] == dense;
            dense *= info.local[d];
        }
        // What is dense stays where it is, and lies at multiples of 16 bytes.
        array.dense = !loose;
        array.offset = lies ? 0 : array.size * (random_() % 5);
        array.place = Places(info, array);
        array.bytes.assign(array.offset + (size_t(step) + 3) * array.size,
                           '\xff');
        return array;
    }

    static std::vector<size_t> Places(const hd_argument &info,
                                      const Array &array)
    {
        std::vector<size_t> place(info.local_elements, array.offset);

        for (size_t k = 0; k < place.size(); k++) {
            size_t left = k;

            for (int d = info.ndims - 1; d >= 0; d--) {
                size_t extent = size_t(info.local[d]);

                place[k] += left % extent * size_t(array.stride[size_t(d)]) *
                            array.size;
                left /= extent;
            }
        }
        return place;
    }

    hd_session *session_;
    const hd_module *module_;
    int rank_;
    std::mt19937 random_;
    std::vector<Array> arrays_;
};

// What peers touch and what they do not, in and out and both, sizes that runs
// are given and parts of which the last ranks have less, and a buffer of more
// dimensions than one copy has.
const char *const kPrograms[] = {
    "heddle 2 tensor program gather mesh tp=2 in %x : $[7 @tp, 12] "
    "in %w : $[size tp @tp, 12, 6] out %y : $[size tp @tp, 7, 6] "
    "temp %g : $[7, 12] { %g = set %x %y = matmul %g, %w act gelu }",
    "heddle 2 tensor program scatter param m in 1..61 mesh tp=2 "
    "in %h : $[size tp @tp, m in size tp @stream, 5] "
    "in %w : $[size tp @tp, 5, 7] out %y : $[m @tp, 7] "
    "temp %p : $[size tp @tp, m in size tp @stream, 7] { "
    "%p = matmul %h, %w %y = sum %p dim 0 }",
    "heddle 2 tensor program inner param m in 1..61 mesh tp=2 "
    "in %x : $[3, m @tp, 4] out %y : $[3, m @tp, 4] out %z : $[3, m, 4] "
    "{ %y = exp %x %z = set %x }",
    "heddle 2 tensor program both mesh tp=2 in %x : $[5 @tp, 2, 3, 2, 4] "
    "inout %y : $[5 @tp, 2, 3, 2, 4] out %z : $[5, 2, 3, 2, 4] "
    "{ %y = add %y, %x %z = set %y }",
};

hd_status RunStrided(hd_session *session, hd_module *module, int rank,
                     unsigned seed, bool by_sizes, hd_diag *diag)
{
    int64_t m = 1 + seed % 61;
    size_t nsizes = by_sizes ? 1 : 0;

    if (by_sizes)
        HD_TRY(hd_module_resize(module, &m, 1, diag));
    Expected expected(module, 1, seed);
    Strided strided(session, module, rank, seed + 1000 * unsigned(rank));
    HD_TRY(strided.Put(expected.Inputs(0), diag));
    HD_TRY(strided.Run(&m, nsizes, diag));
    HD_TRY(strided.Get(diag));
    return strided.Compare(expected, 0);
}

TEST(Passing, StridedArraysGiveTheDenseAnswer)
{
    std::mt19937 random(Seed());

    for (const char *text : kPrograms)
        for (int ranks : Choose<int>({1, 2, 3}, {1 + int(random() % 3)})) {
            bool by_sizes = strstr(text, "1..61") != nullptr;
            Module module = Lowered(
                text, random() % 2 == 0 ? "f32" : "bf16", ranks,
                random() % 2 == 0 ? HD_TRANSFER_BULK : HD_TRANSFER_DIRECT);
            unsigned seed = unsigned(random());

            SCOPED_TRACE(text);
            if (!HasDevices(ranks))
                continue;
            RunSession(module.get(), ranks,
                       [&](hd_session *session, int rank, hd_diag *diag) {
                           for (unsigned i = 0; i < (IsQuick() ? 6 : 40); i++)
                               HD_TRY(RunStrided(session, module.get(), rank,
                                                 seed + i, by_sizes, diag));
                           return HD_OK;
                       });
        }
}

// Runs that are not waited for, of other strides each: what one packs, the next
// does not take for its own.
TEST(Passing, StridedRunsFollowEachOther)
{
    const int runs = 20;
    Module module = Lowered(kPrograms[3], "f32", 2, HD_TRANSFER_BULK);
    Expected expected(module.get(), runs, Seed());

    if (!HasDevices(2))
        return;
    RunSession(
        module.get(), 2, [&](hd_session *session, int rank, hd_diag *diag) {
            std::deque<Strided> all;

            for (int i = 0; i < runs; i++) {
                all.emplace_back(session, module.get(), rank, unsigned(i));
                HD_TRY(all.back().Put(expected.Inputs(i), diag));
            }
            for (Strided &each : all)
                HD_TRY(each.Run(nullptr, 0, diag));
            for (int i = 0; i < runs; i++) {
                HD_TRY(all[size_t(i)].Get(diag));
                HD_TRY(all[size_t(i)].Compare(expected, i));
            }
            return HD_OK;
        });
}

// ----------------------------------------------------------- refusals

// A run of these is refused with words, and the next is none the worse.
TEST(Passing, WhatCannotBeIsRefused)
{
    Module module = Lowered(kPrograms[3], "f32", 1, HD_TRANSFER_BULK);
    Expected expected(module.get(), 1, Seed());
    struct Refused {
        int argument;
        bool on_host;
        std::vector<int64_t> stride;
        const char *words;
    };
    const std::vector<Refused> refused = {
        {0, true, {}, "argument %x cannot be on the host: it has 240 elements"},
        {1, true, {}, "argument %y cannot be on the host: 'both' writes it"},
        {0,
         false,
         {48, 24, 0, 4, 1},
         "%x has stride 0 in dimension 2: it must"},
        {0, false, {48, 24, 8, 4, -1}, "%x has stride -1 in dimension 4"},
        {1, false, {48, 24, 8, 3, 1}, "%y has stride 3 in dimension 3: elem"},
        {1, false, {INT64_MAX, 24, 8, 4, 1}, "reach beyond all memory"},
        {1, false, {96, 24, 8, 4, 1}, "arguments %y and %x overlap"},
    };

    RunSession(
        module.get(), 1, [&](hd_session *session, int rank, hd_diag *diag) {
            Shards shards(session);
            std::vector<char> room(2 * 240 * sizeof(float));
            void *both = room.data();

            HD_TRY(shards.Put(expected.Inputs(0), module.get(), rank, diag));
            if (!OnCpu())
                HD_TRY(hd_session_alloc(session, room.size(), diag, &both));
            for (const Refused &each : refused) {
                hd_run_options with = HD_EMPTY(hd_run_options);
                hd_diag *said = hd_diag_create();
                bool on_host[3] = {};
                const int64_t *strides[3] = {};
                // The first of them begins where the second ends, if it is
                // dense.
                void *address[] = {static_cast<char *>(both) + 960, both,
                                   shards.Address(2)};
                hd_status status;

                on_host[each.argument] = each.on_host;
                if (!each.stride.empty())
                    strides[each.argument] = each.stride.data();
                with.on_host = on_host;
                with.strides = strides;
                status = hd_session_run(session, address, 3, &with, said);
                RANK_EXPECT(status == HD_ERROR_ARGUMENT);
                if (strstr(hd_diag_text(said), each.words) == nullptr)
                    return hd_fail(diag, HD_ERROR_INVALID, "'%s', not '%s'",
                                   hd_diag_text(said), each.words);
                hd_diag_destroy(said);
            }
            if (!OnCpu())
                hd_session_free(session, both);
            HD_TRY(shards.Run(diag));
            HD_TRY(shards.Get(diag));
            return Compare(shards, expected, expected, 0, rank);
        });
}

} // namespace
