// The evaluator as C asks it.
#ifndef HD_TESTS_SECOND_VERDICT_H
#define HD_TESTS_SECOND_VERDICT_H

#ifdef __cplusplus
extern "C" {
#endif

// Where the host program does not compute what the tensor program does, on the
// first of so many draws of inputs, counts and sizes that shows it (judge.h):
// words, which the caller frees with free(), or NULL if nowhere. Both are texts
// as hd_print has them; programs that are too large to be executed differ
// nowhere.
char *second_difference(const char *tensor, const char *host, int draws,
                        unsigned seed);

// Whether the host program hangs by what its launches keep from starting
// (launches.h): 1, 0, or -1 where that is not known. Its text is as hd_print
// has it; its transfers meet.
int second_hangs(const char *host);

#ifdef __cplusplus
}
#endif

#endif
