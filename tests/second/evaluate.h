// What programs compute: a tensor program on whole arrays, a host program on
// the memories of all ranks, step by step.
//
// A program's sizes are what `Size::now` says. Memory begins as lost, and so is
// what is made of that; a host program that is free of races makes the same in
// every order, so any will do.
#ifndef HD_TESTS_SECOND_EVALUATE_H
#define HD_TESTS_SECOND_EVALUATE_H

#include "tests/second/number.h"
#include "tests/second/unroll.h"

namespace second
{

// Whole arrays of arguments by name, dense and row-major.
using Arrays = std::map<std::string, std::vector<Scalar>>;

// What a rank has of an argument, and where in the whole array.
struct Shard {
    std::vector<int64_t> place;
    std::vector<Scalar> value;
};
using Shards = std::vector<std::map<std::string, Shard>>; // by rank

// `given` has all of `in` and `inout`; the answers are `out` and `inout`. They
// throw Unreadable for what has no meaning, Broken for what has no value,
// Undecided where rounding leaves open what data says.
Arrays EvaluateTensor(const Program &program, const Arrays &given);
Shards EvaluateHost(const Program &program, const Arrays &given);

// Of a buffer on a rank, at most: what is more is not executed.
const int64_t kMostElements = 100000;
// Memory that nobody has written. Throws TooLarge.
std::vector<Scalar> Lost(int64_t n);

// A tensor program without its marks and blocks: one rank's, of whole arrays,
// with room for what this run is given.
Program Unmarked(const Program &program);

// Whether a host program's operation or key is known, beside those that
// compute: transfers, streams and events.
bool Executes(const std::string &op);
bool ExecutesKey(const std::string &op, const std::string &key);

} // namespace second

#endif
