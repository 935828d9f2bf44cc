// What each operation makes of its operands, by the words of
// docs/semantics.md, one element at a time.
#ifndef HD_TESTS_SECOND_COMPUTE_H
#define HD_TESTS_SECOND_COMPUTE_H

#include "tests/second/span.h"

namespace second
{

// A compute step on the memory of one rank, or of a tensor program.
void Compute(const Work &work, const Shape &shape, Memory *memory);

// Whether an operation that computes is known, and takes a key.
bool Computes(const std::string &op);
bool TakesKey(const std::string &op, const std::string &key);

// Families that have files of their own.
void Product(const Work &work, const Shape &shape, Memory *m); // product.cc
void Attend(const Work &work, const Shape &shape, Memory *m);  // attend.cc
void AttendGrad(const Work &work, const Shape &shape, Memory *m);
void Merge(const Work &work, Memory *memory);
void Call(const Work &work, Memory *memory); // call.cc

// What a key's expression is for an element of the batch, of an operation of
// which it matters.
int64_t KeyOr(const Work &work, const Shape &shape, const char *key,
              int64_t otherwise, const Point &batch = {});

// The counts of the first of these views that has some.
Counted CountsAmong(const std::vector<std::pair<const Seen *, Loops>> &views,
                    const std::vector<int64_t> &extents, Memory *memory);

// A number that a key names: in the text, or an element of a buffer.
Scalar Factor(const Work &work, const std::string &key, Memory *memory);

} // namespace second

#endif
