// Choices drawn from a byte string. Whoever makes something random asks for
// numbers here, so that a fuzzer that changes bytes changes choices, and equal
// bytes make equal things.
#ifndef HD_TOOLS_GEN_CHOICES_H
#define HD_TOOLS_GEN_CHOICES_H

#include <heddle/heddle.h>

HD_BEGIN_DECLS

typedef struct choices {
    const uint8_t *byte; // borrowed
    size_t length;
    size_t at; // the next byte
} choices;

// A number from 0 to n - 1, from one byte; n is at most 256. Past the end of
// the bytes it is always 0.
int choices_pick(choices *choices, int n);
bool choices_ended(const choices *choices);

// Random bytes, the same for the same seed on every machine.
void choices_fill(uint64_t seed, uint8_t *bytes, size_t length);

HD_END_DECLS

#endif
