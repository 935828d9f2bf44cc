// Whether a host program computes what a tensor program does, judged by
// executing both on drawn inputs: numbers, indices, counts and sizes of runs.
#ifndef HD_TESTS_SECOND_JUDGE_H
#define HD_TESTS_SECOND_JUDGE_H

#include <random>

#include "tests/second/evaluate.h"

namespace second
{

// Arrays for all of `in` and `inout`. Numbers are from .25 to 1.75 and of both
// signs, or whole ones from -3 to 3; counts, indices and experts are what they
// may be. In draw 0 all counts are 0 and sizes the least, in draw 1 the
// greatest; then each is drawn by itself.
struct Draw {
    int number = 2;
    bool whole = false;
    bool special = false; // at times zeros, infinities, NaNs, and large ones
};
Arrays DrawInputs(const Program &program, const Draw &draw,
                  std::mt19937 &random);
// Sets what runs are given, alike in both.
void DrawSizes(Program *tensor, Program *host, const Draw &draw,
               std::mt19937 &random);

// Where the answers of the host program are not those of the tensor program,
// in words; empty if nowhere. What is undecided is not told.
std::string Difference(const Arrays &want, const Shards &have);

// Over so many draws, beginning with draw 0: the first difference.
std::string Differs(const Program &tensor, const Program &host, int draws,
                    std::mt19937 &random);
// The same of texts as hd_print has them.
std::string Differs(const std::string &tensor, const std::string &host,
                    int draws, unsigned seed);

} // namespace second

#endif
