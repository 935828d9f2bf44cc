#include "tests/second/verdict.h"

#include <cstring>

#include "tests/second/judge.h"
#include "tests/second/launches.h"

char *second_difference(const char *tensor, const char *host, int draws,
                        unsigned seed)
{
    std::string words;

    try {
        words = second::Differs(std::string(tensor), std::string(host), draws,
                                seed);
    } catch (const second::TooLarge &) {
    } catch (const std::exception &error) {
        words = std::string("it cannot be evaluated: ") + error.what();
    }
    return words.empty() ? nullptr : strdup(words.c_str());
}

int second_hangs(const char *host)
{
    try {
        switch (second::Explore(second::Parse(host))) {
        case second::Launches::END:
            return 0;
        case second::Launches::HANG:
            return 1;
        case second::Launches::UNKNOWN:
            break;
        }
    } catch (const std::exception &) { // it cannot be read
    }
    return -1;
}
