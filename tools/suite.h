// Shapes to measure, from a JSON file such as bench/suite.json.
//
//     {"world": 8, "dtype": "bf16",
//      "ag": [{"id": "A3", "M": 8192, "K": 8192, "n": 7168}],
//      "rs": [{"id": "R3", "M": 8192, "N": 8192, "k": 3584}],
//      "ar": [..as rs],
//      "cp": [{"id": "T4", "B": 1, "H": 32, "S": 16384, "D": 128}]}
//
// H heads of queries have as many of keys, or Hkv of them.
// "note", and "src" of a shape, are for people.
#ifndef HD_TOOLS_SUITE_H
#define HD_TOOLS_SUITE_H

#include "program.h"
#include "sample.h"

typedef enum shape_kind {
    SHAPE_AG, // C[M, n] = gather(A[M / ranks, K]) W[n, K]^T
    SHAPE_RS, // C[M / ranks, N] = reduce_scatter(A[M, k] W[N, k]^T)
    SHAPE_AR, // C[M, N] = all_reduce(A[M, k] W[N, k]^T)
    SHAPE_CP, // O = attention of Q, and of K and V of all ranks
    SHAPE_CZ, // the same, causal, of a sequence in zigzag
} shape_kind;

// Of one rank: n is what W has rows of there, k what A has columns of (after
// the gather). An attention has m rows of n elements.
typedef struct shape {
    char id[64];
    shape_kind kind;
    hd_dtype dtype;
    int64_t m, n, k;
    attended attention;
} shape;

typedef struct suite {
    int world;    // ranks; 0 if the file does not say
    shape *shape; // owned
    size_t n;
} suite;

// Complains with the file, the line and the value that is wrong.
outcome suite_open(const char *path, suite *out);
void suite_close(suite *suite);

// Keeps those that `ids` names, "A3-70b-gateup-8k,A5": an id, or its beginning
// up to a dash.
outcome suite_pick(suite *suite, const char *path, const char *ids);

const char *shape_kind_name(shape_kind kind);
bool shape_attends(const shape *shape);

#endif
