// The graph of a small compiler, and the regions of it that are one program
// each, or one kernel of the compiler's own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

// Those from kAdd on go element by element.
enum Op { kLeaf, kGather, kMatmul, kSum, kAdd, kGelu };
// What their statements in heddle's programs are called.
constexpr const char *kNames[] = {"leaf", "set", "matmul",
                                  "sum",  "add", "gelu"};

struct Dim { // as hd_build_buffer has it
    int64_t extent;
    const char *length = nullptr, *mark = nullptr;
};

struct Node {
    Op op;
    std::vector<Dim> shape;
    std::vector<int> from;
    int user = -1, users = 0; // the one that uses it; -1 if several do
};

// Nodes come after those that they use; the last one is the answer.
using Graph = std::vector<Node>;

inline int Append(Graph &graph, Op op, const std::vector<Dim> &shape,
                  const std::vector<int> &from = {})
{
    int node = static_cast<int>(graph.size());

    for (int one : from)
        graph[one].user = graph[one].users++ ? -1 : node;
    graph.push_back({op, shape, from});
    return node;
}

// What goes in, and then what is made, in order, of which the last one goes
// out.
struct Region {
    std::vector<int> nodes, arguments;
    size_t inputs; // of both
};

inline Region Close(const Graph &graph, const std::vector<int> &made)
{
    Region region;

    for (int node : made)
        for (int from : graph[node].from)
            if (!std::count(made.begin(), made.end(), from) &&
                !std::count(region.nodes.begin(), region.nodes.end(), from))
                region.nodes.push_back(from);
    region.inputs = region.nodes.size();
    region.arguments = region.nodes;
    region.arguments.push_back(made.back());
    region.nodes.insert(region.nodes.end(), made.begin(), made.end());
    return region;
}

// Communication beside a product is a pattern. What follows it element by
// element belongs to it, as long as nobody else wants what is in between.
// Another gelu is a region by itself. The last region is all of the graph.
inline std::vector<Region> FindRegions(const Graph &graph)
{
    std::vector<int> all;
    std::vector<bool> taken(graph.size());
    std::vector<Region> regions;

    for (int i = 0; i < static_cast<int>(graph.size()); i++) {
        int next = graph[i].user;
        Op op = graph[i].op, then = next < 0 ? kLeaf : graph[next].op;
        std::vector<int> made = {i};

        if (op != kLeaf)
            all.push_back(i);
        if (op == kLeaf || taken[i])
            continue;
        if ((op == kGather && then == kMatmul) ||
            (op == kMatmul && then == kSum))
            do {
                taken[next] = true;
                made.push_back(next);
                next = graph[next].user;
            } while (next >= 0 && graph[next].op >= kAdd);
        else if (op != kGelu)
            throw std::runtime_error(std::string(kNames[op]) +
                                     " is in no pattern");
        regions.push_back(Close(graph, made));
    }
    regions.push_back(Close(graph, all));
    return regions;
}
