// The graph of a small compiler, the regions of it that are handed to heddle,
// and what a plain loop makes of it.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

constexpr int kRanks = 4;
constexpr int64_t kMostRows = 4096; // of a run

enum class Op {
    input,
    weight,
    all_gather,
    matmul,
    reduce_scatter,
    all_reduce,
    bias,
    add,
    gelu
};
const char *Name(Op op);

// Where a value lies. Activations have M rows, as many as a run has.
enum class Layout {
    rows,   // each rank has a block of the M rows
    whole,  // each rank has all M rows
    ranks,  // each rank has M rows of its own: columns, or a part of a sum
    matrix, // each rank has a weight of its own
    own,    // each rank has one row of its own
    vector, // one row, the same on each rank
};

struct Node {
    Op op;
    Layout layout;
    int64_t rows, cols; // on a rank; rows of a matrix alone
    std::vector<int> from;
};

// Nodes come after those that they use; the last one is the answer.
using Graph = std::vector<Node>;

int Append(Graph &graph, Op op, const std::vector<int> &from);
int AppendLeaf(Graph &graph, Op op, Layout layout, int64_t rows, int64_t cols);

// Nodes that are one program of heddle's, in order; the last is its result.
struct Region {
    const char *pattern;
    std::vector<int> nodes;
};
// Throws std::runtime_error for a node that is in no pattern.
std::vector<Region> FindRegions(const Graph &graph);

// The elements that `rank` has of a node whose whole array has M rows.
struct Part {
    int64_t begin, count;
};
Part PartOf(const Node &node, int rank, int64_t m);

// Each element, and how far a correct answer in f32 may be from it.
struct Value {
    std::vector<double> value, error;
};
double Gelu(double x);
// Of one node, from `values` of those that it uses; a leaf is drawn.
Value Evaluate(const Graph &graph, int node, int64_t m,
               const std::vector<Value> &values, std::mt19937_64 &random);
