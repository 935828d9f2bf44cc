// The seed of what tests draw at random: HEDDLE_TEST_SEED, where it is set.
#ifndef HD_TESTS_SEED_H
#define HD_TESTS_SEED_H

#include <cstdio>
#include <cstdlib>
#include <random>

// Where seeds that count up begin: the same each time unless it is set.
inline unsigned SeedFrom(unsigned first)
{
    const char *given = std::getenv("HEDDLE_TEST_SEED");

    return given != nullptr && *given != '\0'
               ? static_cast<unsigned>(std::strtoul(given, nullptr, 0))
               : first;
}

// Another one in every process. Printed, so that what a failed test drew can be
// drawn again.
inline unsigned Seed()
{
    static const unsigned seed = [] {
        unsigned drawn = SeedFrom(std::random_device()());

        std::printf("HEDDLE_TEST_SEED=%u\n", drawn);
        std::fflush(stdout); // or each process forked from here prints it too
        return drawn;
    }();

    return seed;
}

#endif
