#include "graph.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <stdexcept>
#include <string>

const char *Name(Op op)
{
    static const char *const names[] = {
        "input",      "weight", "all_gather", "matmul", "reduce_scatter",
        "all_reduce", "bias",   "add",        "gelu"};

    return names[static_cast<int>(op)];
}

int AppendLeaf(Graph &graph, Op op, Layout layout, int64_t rows, int64_t cols)
{
    graph.push_back({op, layout, rows, cols, {}});
    return static_cast<int>(graph.size()) - 1;
}

int Append(Graph &graph, Op op, const std::vector<int> &from)
{
    Node node = graph[from[0]];

    node.op = op;
    node.from = from;
    if (op == Op::matmul) {
        node.layout = Layout::ranks;
        node.cols = graph[from[1]].cols;
    }
    if (op == Op::all_gather || op == Op::all_reduce)
        node.layout = Layout::whole;
    if (op == Op::reduce_scatter)
        node.layout = Layout::rows;
    graph.push_back(node);
    return static_cast<int>(graph.size()) - 1;
}

// ---------------------------------------------------------------- regions

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

// The pattern that begins with a node and its only user; NULL if none does.
static const char *MatchPattern(const Graph &graph, int node, int user)
{
    Op first = graph[node].op, then = user < 0 ? Op::input : graph[user].op;

    if (first == Op::all_gather && then == Op::matmul)
        return "gather_matmul";
    if (first == Op::matmul && then == Op::reduce_scatter)
        return "matmul_scatter";
    if (first == Op::matmul && then == Op::all_reduce)
        return "matmul_reduce";
    return nullptr;
}

// What follows element by element belongs to a region, as long as nobody else
// wants what is in between.
std::vector<Region> FindRegions(const Graph &graph)
{
    std::vector<Region> regions;
    std::vector<bool> taken(graph.size());

    for (int i = 0; i < static_cast<int>(graph.size()); i++) {
        int next = OnlyUser(graph, i);
        const char *pattern = MatchPattern(graph, i, next);

        if (taken[i] || graph[i].from.empty())
            continue;
        if (!pattern)
            throw std::runtime_error("node " + std::to_string(i) + " (" +
                                     Name(graph[i].op) + ") is in no pattern");
        Region region = {pattern, {i}};
        do {
            region.nodes.push_back(next);
            next = OnlyUser(graph, next);
        } while (next >= 0 && graph[next].op >= Op::bias);
        for (int node : region.nodes)
            taken[node] = true;
        regions.push_back(region);
    }
    return regions;
}

// -------------------------------------------------------------- reference

Part PartOf(const Node &node, int rank, int64_t m)
{
    int64_t block = (m + kRanks - 1) / kRanks, begin = rank * block;

    switch (node.layout) {
    case Layout::rows:
        begin = std::min(begin, m);
        return {begin * node.cols,
                (std::min(begin + block, m) - begin) * node.cols};
    case Layout::whole:
        return {0, m * node.cols};
    case Layout::ranks:
        return {rank * m * node.cols, m * node.cols};
    case Layout::matrix:
        return {rank * node.rows * node.cols, node.rows * node.cols};
    case Layout::own:
        return {rank * node.cols, node.cols};
    case Layout::vector:
        break;
    }
    return {0, node.cols};
}

double Gelu(double x)
{
    return 0.5 * x *
           (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

constexpr double kUnit = 0x1p-24; // half of an f32's last place

// An element and its error, with that of storing it as an f32.
static void Store(Value &out, size_t i, double value, double error)
{
    out.value[i] = value;
    out.error[i] = error + kUnit * (std::fabs(value) + error) + FLT_TRUE_MIN;
}

static void Draw(Value &out, std::mt19937_64 &random)
{
    std::normal_distribution<float> normal;

    for (double &value : out.value)
        value = normal(random);
}

// Of K products in f32: 6 sqrt(K) u times the sum of their sizes, and what the
// operands' errors add (docs/numerics.md).
static void Multiply(const Node &a, const Node &b, int64_t m, const Value &x,
                     const Value &w, Value &out)
{
    for (int64_t r = 0; r < kRanks; r++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < b.cols; j++) {
                int64_t row = a.layout == Layout::ranks ? r * m + i : i;
                double sum = 0, size = 0, error = 0;

                for (int64_t k = 0; k < b.rows; k++) {
                    double f = w.value[(r * b.rows + k) * b.cols + j];
                    double g = x.value[row * a.cols + k];

                    sum += f * g;
                    size += std::fabs(f * g);
                    error += std::fabs(f) * x.error[row * a.cols + k];
                }
                Store(out, (r * m + i) * b.cols + j, sum,
                      6 * std::sqrt(b.rows) * kUnit * size + error);
            }
}

// Ranks are added in any order, each sum rounded: as many roundings as ranks,
// of no more than the sum of their sizes.
static void AddRanks(const Value &x, Value &out)
{
    size_t n = out.value.size();

    for (size_t i = 0; i < n; i++) {
        double sum = 0, size = 0, error = 0;

        for (int r = 0; r < kRanks; r++) {
            sum += x.value[r * n + i];
            error += x.error[r * n + i];
            size += std::fabs(x.value[r * n + i]) + x.error[r * n + i];
        }
        Store(out, i, sum, error + kRanks * kUnit * size);
    }
}

// gelu's slope is 1.13 at most; a device's own is within 8 u of it.
static void Map(const Node &node, int64_t m, const Value &x, const Value &y,
                Value &out)
{
    int64_t columns = m * node.cols;

    for (int64_t i = 0; i < static_cast<int64_t>(out.value.size()); i++) {
        int64_t at = node.op == Op::add ? i : i % node.cols;

        if (node.op == Op::bias && node.layout == Layout::ranks)
            at += i / columns * node.cols;
        if (node.op == Op::gelu)
            Store(out, i, Gelu(x.value[i]),
                  1.13 * x.error[i] + 8 * kUnit * std::fabs(Gelu(x.value[i])));
        else
            Store(out, i, x.value[i] + y.value[at], x.error[i] + y.error[at]);
    }
}

Value Evaluate(const Graph &graph, int id, int64_t m,
               const std::vector<Value> &values, std::mt19937_64 &random)
{
    const Node &node = graph[id];
    const std::vector<int> &from = node.from;
    Part last = PartOf(node, kRanks - 1, m);
    size_t n = last.begin + last.count;
    Value out = {std::vector<double>(n), std::vector<double>(n)};

    if (from.empty())
        Draw(out, random);
    else if (node.op == Op::matmul)
        Multiply(graph[from[0]], graph[from[1]], m, values[from[0]],
                 values[from[1]], out);
    else if (node.op == Op::all_gather)
        out = values[from[0]];
    else if (node.op < Op::bias)
        AddRanks(values[from[0]], out);
    else
        Map(node, m, values[from[0]], values[from.back()], out);
    return out;
}
