// The graph of a small compiler, and the regions of it that are handed to
// heddle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

constexpr int kRanks = 4;
constexpr int64_t kMostRows = 4096;
constexpr int64_t kRows = 0; // an extent: as many rows as a run has

// Those from `bias` on go element by element.
enum class Op {
    leaf,
    all_gather,
    matmul,
    reduce_scatter,
    all_reduce,
    bias,
    add,
    gelu
};
const char *Name(Op op);

struct Dim {
    int64_t extent;
    bool split; // each rank has its part, of rows a block, of others one
};

struct Node {
    Op op;
    std::vector<Dim> shape;
    std::vector<int> from;
};

// Nodes come after those that they use; the last one is the answer.
using Graph = std::vector<Node>;

int AppendLeaf(Graph &graph, const std::vector<Dim> &shape);
int Append(Graph &graph, Op op, const std::vector<int> &from);

// Nodes that are one program of heddle's: what goes in, and then what is made,
// in order, of which the last is the result.
struct Region {
    std::string name;
    std::vector<int> nodes;
    size_t inputs; // of the nodes
};
// Throws std::runtime_error for a node that is in no pattern.
std::vector<Region> FindRegions(const Graph &graph);
// All of the graph, as one.
Region WholeOf(const Graph &graph);
