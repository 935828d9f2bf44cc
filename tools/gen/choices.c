// One byte a choice: a fuzzer that flips it changes that choice and leaves the
// ones after it where they were.
#include "choices.h"

int choices_pick(choices *choices, int n)
{
    if (choices->at >= choices->length || n <= 1)
        return 0;
    return choices->byte[choices->at++] % n;
}

bool choices_ended(const choices *choices)
{
    return choices->at >= choices->length;
}

// SplitMix64, a byte of each number.
void choices_fill(uint64_t seed, uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);

        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        bytes[i] = (uint8_t)((z ^ (z >> 31)) >> 24);
    }
}
