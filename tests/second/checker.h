// The checker as anybody may call it: text in, verdict out.
#ifndef HD_TESTS_SECOND_CHECKER_H
#define HD_TESTS_SECOND_CHECKER_H

#include <set>
#include <string>

#include "heddle/heddle.h"
#include "tests/second/model.h"

namespace second
{

struct Checked {
    bool parsed = false; // and is a host program that is lowered to its end
    hd_status status = HD_OK;
    std::set<std::string> codes; // of errors
    std::string said;            // all messages
    std::string text;            // canonical

    explicit Checked(const std::string &program);
};

// What checker and oracle say about a program, which has parsed.
struct Compared {
    Checked checked;
    Verdict verdict;

    Compared(const std::string &text, const Schedules &schedules);
    // Empty, or how the two disagree.
    std::string Disagreement() const;
};

} // namespace second

#endif
