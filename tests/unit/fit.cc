// Terms of a machine that are found from times which that machine is predicted
// to take: they are what they were.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "tools/fit.h"
}
#include "tests/seed.h"

namespace
{

double Of(const hd_machine &machine, const probe *p)
{
    double value;

    memcpy(&value, reinterpret_cast<const char *>(&machine) + p->at,
           sizeof value);
    return value;
}

void Set(hd_machine *machine, const probe *p, double value)
{
    memcpy(reinterpret_cast<char *>(machine) + p->at, &value, sizeof value);
}

// All probes of a device, at sizes at which each goes by its own term.
class Fits
{
  public:
    Fits(unsigned device, int ranks)
    {
        for (const probe *p = probes; p->term; p++) {
            if (!(p->devices & device) || probe_obstacle(p, ranks))
                continue;
            fits_.push_back({});
            EXPECT_EQ(fit_open(p, ranks, p->levels - 1, nullptr, &fits_.back()),
                      HD_OK)
                << p->term;
        }
    }
    ~Fits()
    {
        for (fit &f : fits_)
            fit_close(&f);
    }
    Fits(const Fits &) = delete;
    Fits &operator=(const Fits &) = delete;

    // What would be measured of a machine.
    void Measure(const hd_machine &machine)
    {
        for (fit &f : fits_)
            f.measured = f.of->by_host ? Of(machine, f.of) * fit_steps(&f)
                                       : fit_predict(&f, &machine);
    }
    fit *Find(const std::string &term)
    {
        for (fit &f : fits_)
            if (term == f.of->term)
                return &f;
        return nullptr;
    }
    std::vector<fit> &All()
    {
        return fits_;
    }
    hd_machine Found(const hd_machine &start)
    {
        hd_machine machine = start;

        fit_all(fits_.data(), int(fits_.size()), &machine);
        return machine;
    }

  private:
    std::vector<fit> fits_;
};

hd_machine Shipped(const char *device)
{
    hd_machine machine = HD_EMPTY(hd_machine);

    hd_machine_shipped(device, &machine);
    return machine;
}

// A machine whose terms are up to twice or half the shipped ones.
hd_machine Draw(const hd_machine &shipped, Fits *fits, std::mt19937_64 &random)
{
    hd_machine machine = shipped;

    for (const fit &f : fits->All()) {
        double factor = std::pow(2, double(random() % 2001) / 1000 - 1);
        double value = Of(shipped, f.of);

        if (f.of->in == UNIT_OPERATIONS && value == 0)
            value = shipped.matmul[HD_DTYPE_F32];
        if (f.of->in == UNIT_SHARE)
            factor = std::sqrt(factor);
        Set(&machine, f.of, value * factor);
    }
    // What one copy does not need of a link nothing shows, and a reduction
    // takes no longer than any collective; nor a hop that ends before its steps
    // are issued.
    machine.attention = std::fmin(machine.attention, 0.95);
    machine.issue = std::fmin(machine.issue, machine.hop / 8);
    machine.link = std::fmin(machine.link, machine.copy_bandwidth);
    machine.reduction_latency =
        std::fmin(machine.reduction_latency, machine.collective_latency * 0.9);
    return machine;
}

void ExpectFound(const char *device, unsigned which, int ranks)
{
    std::mt19937_64 random(Seed());
    hd_machine shipped = Shipped(device);
    Fits fits(which, ranks);

    for (int i = 0; i < 3; i++) {
        hd_machine machine = Draw(shipped, &fits, random);

        fits.Measure(machine);
        hd_machine found = fits.Found(shipped);
        for (const fit &f : fits.All()) {
            EXPECT_TRUE(f.found) << f.of->term;
            EXPECT_NEAR(Of(found, f.of) / Of(machine, f.of), 1, 0.02)
                << f.of->term << " on " << device << ", " << ranks << " ranks";
        }
    }
}

TEST(Fit, TermsOfACpuAreFound)
{
    ExpectFound("cpu", PROBE_CPU, 2);
}

TEST(Fit, TermsOfGpusAreFound)
{

    ExpectFound("cuda", PROBE_CUDA, 3);
}

TEST(Fit, AWrongTimeMakesItsTermWrongAndLeavesOthers)
{
    hd_machine shipped = Shipped("cpu");
    Fits fits(PROBE_CPU, 2);

    fits.Measure(shipped);
    fits.Find("copy_bandwidth")->measured *= 1.5;
    hd_machine found = fits.Found(shipped);
    EXPECT_NEAR(found.copy_bandwidth / shipped.copy_bandwidth, 1 / 1.5, 0.02);
    EXPECT_NEAR(found.memory / shipped.memory, 1, 0.02);
    EXPECT_NEAR(found.hop / shipped.hop, 1, 0.02);
}

TEST(Fit, WhatWasNotMeasuredOrDoesNotMatterIsAsItWas)
{
    hd_machine shipped = Shipped("cpu");
    Fits fits(PROBE_CPU, 2);
    fit *copy = fits.Find("copy_bandwidth"), *hop = fits.Find("hop");

    fits.Measure(shipped);
    copy->measured = 0;
    // Where bytes are all that a program takes, no hop is seen.
    std::swap(hop->module, copy->module);
    hd_machine found = fits.Found(shipped);
    EXPECT_FALSE(copy->found);
    EXPECT_EQ(found.copy_bandwidth, shipped.copy_bandwidth);
    EXPECT_FALSE(hop->found);
    EXPECT_EQ(found.hop, shipped.hop);
}

// What takes longer than another term lets it is as good as what it lets.
TEST(Fit, OfValuesThatAreAsGoodTheFirstIsTaken)
{
    hd_machine shipped = Shipped("cpu");
    Fits fits(PROBE_CPU, 2);

    fits.Measure(shipped);
    fits.Find("reduction_latency")->measured *= 3;
    hd_machine found = fits.Found(shipped);
    EXPECT_NEAR(found.reduction_latency / shipped.collective_latency, 1, 0.02);
}

TEST(Probe, SaysHowManyRanksItTakes)
{
    for (const probe *p = probes; p->term; p++) {
        EXPECT_EQ(probe_obstacle(p, 8), nullptr) << p->term;
        EXPECT_EQ(probe_obstacle(p, 1) == nullptr, p->ranks == 1) << p->term;
        EXPECT_NE(p->devices, 0u) << p->term;
        EXPECT_LT(p->few, p->many) << p->term;
    }
}

} // namespace
