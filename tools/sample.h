// Inputs of matmuls too large for a dense reference, and the answer on a sample
// of their rows.
//
// A row of an input is a window of one pool of random numbers, at a place that
// is a hash of set, tensor and row: whole matrices of gigabytes are drawn as
// fast as memory is copied, and every process has any row at hand. The rows of
// the answer that are checked are spread over all of it, one from each of
// SAMPLE_ROWS ranges, so that a chunk that is wrong is hit.
//
//     C[m, n] = A[m, k parts] W[n, k parts]^T        k for each rank
//     O = softmax(Q K^T / sqrt(depth)) V             by blocks of rows, a
//     rank's
#ifndef HD_TOOLS_SAMPLE_H
#define HD_TOOLS_SAMPLE_H

#include "verify.h"

enum { SAMPLE_ROWS = 32 };

typedef struct pool {
    hd_dtype dtype;
    size_t starts;        // places where a window may begin
    size_t bytes;         // of all
    unsigned char *first; // owned
} pool;

// Windows are up to `width` elements. False if there is no memory.
bool pool_open(pool *pool, hd_dtype dtype, uint64_t seed, size_t width);
void pool_close(pool *pool);

// Row `row` of tensor `name` in input set `set`.
const void *pool_row(const pool *pool, int set, const char *name, int64_t row);

// Attention over sequences that ranks share: rank r has block r of each. In
// zigzag these are chunks r and 2 ranks - 1 - r, one behind the other, and rows
// see what is not behind them.
//
//     Q, O [ranks, batch, heads, rows / ranks, depth]      K, V with kv_heads
typedef struct attended {
    int64_t batch, heads, kv_heads;
    int64_t rows; // of a whole sequence
    int64_t depth;
    bool zigzag;
} attended;

// Which row of K or V, in the order of the shards, is row `row` of the same
// sequences as [batch, kv_heads, rows].
int64_t attended_row(const attended *attention, int ranks, int64_t row);
// Where row `row` of Q, in the order of the shards, is in its sequence.
int64_t attended_place(const attended *attention, int ranks, int64_t row);

// What is checked of one product, or of one attention.
typedef struct sample {
    const pool *from; // borrowed
    int set;
    int64_t m, n;
    int64_t k;                 // of one rank
    const attended *attention; // borrowed: of m rows; NULL of a product
    int ranks;
    bool split; // each rank's share of k is in tensors of its own, whose rows
                // go on where those of the rank before end; its partial result
                // is rounded before it is added to the others'
    int nrows;
    int64_t row[SAMPLE_ROWS];
    double *part; // owned: what this rank's share of k makes of the rows, then
                  // the sums of the absolute values; of an attention the rows
                  // that this rank computes, then their bounds
    double *value, *bound; // owned: of C
    double *hop_bound; // owned: of C, if each addition of the sum is rounded
    double *part_value, *part_bound; // owned: of this rank's share, if split
} sample;

// Rows to check, and room for what they are. False if there is no memory.
bool sample_open(sample *sample);
void sample_close(sample *sample);

// Doubles of `part`: every rank computes its own, and is then given those of
// all.
size_t sample_part(const sample *sample);
void sample_compute(sample *sample, int rank);
void sample_combine(sample *sample, int rank, const double *parts);

typedef enum sample_of {
    SAMPLE_OWN,  // this rank's share of k alone
    SAMPLE_SUM,  // C
    SAMPLE_HOPS, // C, whose sum went from rank to rank and was rounded at each
} sample_of;

// Compares sampled row `i`.
void sample_compare(const sample *sample, int i, sample_of of, const void *got,
                    const finding *place, verdict *verdict);

#endif
