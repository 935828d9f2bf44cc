// Random arguments of a program, and the comparison of what a rank got with the
// reference.
#ifndef HD_TESTS_DEVICE_ARGUMENTS_H
#define HD_TESTS_DEVICE_ARGUMENTS_H

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <vector>

#include <heddle/verify.h>

#include "heddle/heddle.h"
#include "tests/info.h"

// A program's arguments, whole: random, never zero but for counts of groups,
// which fit their rows, and indices, of which some are none of what they take
// from.
class Arguments
{
  public:
    Arguments(const hd_module *module, unsigned seed)
    {
        std::mt19937 random(seed);

        for (size_t i = 0; i < module_info(module).narguments; i++) {
            hd_argument argument = HD_EMPTY(hd_argument);
            std::uniform_real_distribution<double> number(0.25, 2);

            hd_module_argument(module, i, &argument);
            std::vector<double> values(argument.elements);
            std::vector<char> bytes(argument.elements *
                                    hd_dtype_size(argument.dtype));
            for (double &value : values)
                value = Draw(argument.dtype, number(random), random());
            if (argument.counted >= 0)
                for (double &value : values)
                    value = Length(argument.counted, random);
            else if (argument.grouped_rows >= 0)
                MakeCounts(argument, random, &values);
            else if (argument.taken_extent >= 0)
                MakeIndices(argument, random, &values);
            if (argument.dtype != HD_DTYPE_EVENT)
                hd_dtype_store(argument.dtype, values.data(), values.size(),
                               bytes.data());
            info_.push_back(argument);
            whole_.push_back(bytes);
        }
    }

    void Set(size_t i, size_t element, double value)
    {
        size_t size = hd_dtype_size(info_[i].dtype);

        hd_dtype_store(info_[i].dtype, &value, 1, &whole_[i][element * size]);
    }

    // For the reference: NULL where nothing goes in.
    std::vector<const void *> Whole() const
    {
        std::vector<const void *> whole;

        for (size_t i = 0; i < info_.size(); i++)
            whole.push_back(info_[i].role == HD_ROLE_OUT ? nullptr
                                                         : whole_[i].data());
        return whole;
    }

    // The shard of one rank; what only comes out is poisoned, and so is what
    // the rank has room for and no element of.
    std::vector<char> Local(const hd_module *module, size_t i, int rank) const
    {
        std::vector<char> local(info_[i].local_bytes, '\xff');

        if (info_[i].role != HD_ROLE_OUT && info_[i].dtype != HD_DTYPE_EVENT)
            hd_shard(module, i, rank, whole_[i].data(), local.data());
        return local;
    }

    size_t Count() const
    {
        return info_.size();
    }
    const hd_argument &Info(size_t i) const
    {
        return info_[i];
    }

  private:
    static void MakeCounts(const hd_argument &argument, std::mt19937 &random,
                           std::vector<double> *values)
    {
        size_t groups = size_t(argument.extent[argument.ndims - 1]);
        int64_t left = 0;

        for (size_t i = 0; i < values->size(); i++) {
            if (i % groups == 0)
                left = argument.grouped_rows;
            int64_t n = int64_t(random() % size_t(left + 1));
            (*values)[i] = double(n);
            left -= n;
        }
    }

    // Two of an extent and two are none of it.
    static void MakeIndices(const hd_argument &argument, std::mt19937 &random,
                            std::vector<double> *values)
    {
        const double odd[] = {-1, -2147483648., 2147483647.,
                              double(argument.taken_extent)};
        size_t extent = size_t(argument.taken_extent);

        for (double &value : *values) {
            size_t number = random() % (extent + 2);

            value = number < extent ? double(number) : odd[random() % 4];
        }
    }

    // None, all or some.
    static double Length(int64_t most, std::mt19937 &random)
    {
        switch (random() % 4) {
        case 0:
            return 0;
        case 1:
            return double(most);
        default:
            return double(random() % size_t(most + 1));
        }
    }

    static double Draw(hd_dtype dtype, double number, size_t random)
    {
        if (dtype == HD_DTYPE_U8)
            return double(1 + random % 100);
        if (dtype == HD_DTYPE_I8)
            return double(1 + random % 100) * (random % 2 == 0 ? 1 : -1);
        if (dtype == HD_DTYPE_I32 || dtype == HD_DTYPE_I64)
            return double(1 + random % 1000) * (random % 2 == 0 ? 1 : -1);
        return random % 2 == 0 ? number : -number;
    }

    std::vector<hd_argument> info_;
    std::vector<std::vector<char>> whole_;
};

struct ModuleDeleter {
    void operator()(hd_module *module) const
    {
        hd_module_destroy(module);
    }
};
using Module = std::unique_ptr<hd_module, ModuleDeleter>;

// Sets of random arguments of a program, and what it makes of each. The module
// outlives it.
class Expected
{
  public:
    // `change` is what is to be other than random.
    Expected(const hd_module *module, int sets, unsigned seed,
             const std::function<void(Arguments *)> &change = nullptr)
    {
        for (int i = 0; i < sets; i++) {
            hd_reference *made = nullptr;

            arguments_.emplace_back(module, seed + unsigned(i));
            if (change)
                change(&arguments_.back());
            EXPECT_EQ(hd_reference_create(module,
                                          arguments_.back().Whole().data(),
                                          nullptr, &made),
                      HD_OK);
            reference_.push_back(made);
        }
    }
    Expected(const Expected &) = delete;
    Expected &operator=(const Expected &) = delete;
    ~Expected()
    {
        for (hd_reference *made : reference_)
            hd_reference_destroy(made);
    }

    int Count() const
    {
        return int(reference_.size());
    }
    const Arguments &Inputs(int set) const
    {
        return arguments_[size_t(set)];
    }
    const hd_reference *Reference(int set) const
    {
        return reference_[size_t(set)];
    }

  private:
    std::vector<Arguments> arguments_;
    std::vector<hd_reference *> reference_;
};

inline bool IsPoisoned(const char *bytes, size_t n)
{
    return std::all_of(bytes, bytes + n, [](char c) { return c == '\xff'; });
}

// The values are those of `reference`, within the bounds that `bounds` has.
// What the rank has room for alone is as it was.
inline hd_status CompareLocal(const hd_reference *reference,
                              const hd_reference *bounds, size_t i, int rank,
                              const hd_argument &info, const void *got)
{
    std::vector<double> want(info.local_elements), bound(info.local_elements),
        value(info.local_elements);

    if (info.dtype == HD_DTYPE_EVENT)
        return HD_OK;
    hd_reference_local(bounds, i, rank, want.data(), bound.data());
    hd_reference_local(reference, i, rank, want.data(), nullptr);
    hd_dtype_load(info.dtype, got, info.local_elements, value.data());
    for (size_t k = 0; k < want.size(); k++) {
        // Infinities that are alike are no distance apart.
        double error = value[k] >= want[k] && value[k] <= want[k]
                           ? 0
                           : std::fabs(value[k] - want[k]);
        size_t size = hd_dtype_size(info.dtype);

        if (bound[k] < 0) {
            if (IsPoisoned(static_cast<const char *>(got) + k * size, size))
                continue;
            fprintf(stderr, "rank %d: %%%s[%zu], room, is written: %g\n", rank,
                    info.name, k, value[k]);
            return HD_ERROR_INVALID;
        }
        if (std::isnan(want[k]) ? !std::isnan(value[k])
                                : !(error <= bound[k])) {
            fprintf(stderr, "rank %d: %%%s[%zu] is %g, not %g +- %g\n", rank,
                    info.name, k, value[k], want[k], bound[k]);
            return HD_ERROR_INVALID;
        }
    }
    return HD_OK;
}

#endif
