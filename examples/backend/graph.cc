#include "graph.h"

#include <algorithm>
#include <stdexcept>

const char *Name(Op op)
{
    static const char *const names[] = {
        "leaf",       "all_gather", "matmul", "reduce_scatter",
        "all_reduce", "bias",       "add",    "gelu"};

    return names[static_cast<int>(op)];
}

int AppendLeaf(Graph &graph, const std::vector<Dim> &shape)
{
    graph.push_back({Op::leaf, shape, {}});
    return static_cast<int>(graph.size()) - 1;
}

// A product of what is split is split by ranks: its columns, or parts of a sum.
int Append(Graph &graph, Op op, const std::vector<int> &from)
{
    std::vector<Dim> shape = graph[from[0]].shape;

    if (op == Op::matmul)
        shape = {{kRanks, true}, {kRows, false}, graph[from[1]].shape.back()};
    else if (op < Op::bias)
        shape = {{kRows, op == Op::reduce_scatter}, shape.back()};
    graph.push_back({op, shape, from});
    return static_cast<int>(graph.size()) - 1;
}

// The one node that uses `node`; -1 if there are none, or several.
static int OnlyUser(const Graph &graph, int node)
{
    int user = -1;

    for (int i = 0; i < static_cast<int>(graph.size()); i++)
        if (std::count(graph[i].from.begin(), graph[i].from.end(), node)) {
            if (user >= 0)
                return -1;
            user = i;
        }
    return user;
}

// Whether communication begins here that goes beside a product.
static bool IsPattern(const Graph &graph, int node, int user)
{
    Op first = graph[node].op, then = user < 0 ? Op::leaf : graph[user].op;

    return (first == Op::all_gather && then == Op::matmul) ||
           (first == Op::matmul &&
            (then == Op::reduce_scatter || then == Op::all_reduce));
}

// Before the nodes stands what they use of others.
static Region Close(const Graph &graph, const std::string &name,
                    const std::vector<int> &made)
{
    Region region = {name, {}, 0};

    for (int node : made)
        for (int from : graph[node].from)
            if (!std::count(made.begin(), made.end(), from) &&
                !std::count(region.nodes.begin(), region.nodes.end(), from))
                region.nodes.push_back(from);
    region.inputs = region.nodes.size();
    region.nodes.insert(region.nodes.end(), made.begin(), made.end());
    return region;
}

// What follows a pattern element by element belongs to it, as long as nobody
// else wants what is in between.
std::vector<Region> FindRegions(const Graph &graph)
{
    std::vector<Region> regions;
    std::vector<bool> taken(graph.size());

    for (int i = 0; i < static_cast<int>(graph.size()); i++) {
        int next = OnlyUser(graph, i);
        std::vector<int> made = {i};

        if (taken[i] || graph[i].op == Op::leaf)
            continue;
        if (!IsPattern(graph, i, next))
            throw std::runtime_error("node " + std::to_string(i) + " (" +
                                     Name(graph[i].op) + ") is in no pattern");
        do {
            made.push_back(next);
            next = OnlyUser(graph, next);
        } while (next >= 0 && graph[next].op >= Op::bias);
        for (int node : made)
            taken[node] = true;
        regions.push_back(Close(graph, Name(graph[made[1]].op), made));
    }
    return regions;
}

Region WholeOf(const Graph &graph)
{
    std::vector<int> made;

    for (int i = 0; i < static_cast<int>(graph.size()); i++)
        if (graph[i].op != Op::leaf)
            made.push_back(i);
    return Close(graph, "whole", made);
}
