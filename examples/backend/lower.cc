#include "lower.h"

#include <algorithm>
#include <cstdio>
#include <string>

// ------------------------------------------------------------ from a graph

// A cookie of 0 is that of no line, so nodes count from 1.
static uint64_t Cookie(int node)
{
    return static_cast<uint64_t>(node) + 1;
}

class Lowering
{
  public:
    Lowering(const Graph &graph, const Region &region, bool cuda)
        : graph_(graph), region_(region), cuda_(cuda)
    {
    }
    Module Build(hd_diag *diag, std::vector<int> &arguments);

  private:
    bool Made(int node) const // in this region
    {
        return std::count(region_.nodes.begin(), region_.nodes.end(), node);
    }
    std::string NameOf(int node) const;
    void Buffer(hd_builder *, int node, hd_role role) const;
    void Statement(hd_builder *, int node) const;

    const Graph &graph_;
    const Region &region_;
    bool cuda_;
    std::vector<int> inputs_;
};

// By places in the region, not by nodes: regions that are alike have the same
// text, and so are one program of the cache's.
std::string Lowering::NameOf(int node) const
{
    const std::vector<int> &from = Made(node) ? region_.nodes : inputs_;
    auto at = std::find(from.begin(), from.end(), node) - from.begin();

    return (Made(node) ? "t" : "a") + std::to_string(at);
}

// The rows are cut into as many blocks as there are ranks. Those that are
// gathered, or go into a sum, may be made block by block: "stream".
void Lowering::Buffer(hd_builder *builder, int id, hd_role role) const
{
    const Node &node = graph_[id];
    bool streamed =
        Made(id) && (node.op == Op::all_gather || node.layout == Layout::ranks);
    std::string name = NameOf(id);
    std::string blocks = "m in " + std::to_string(kRanks);
    hd_build_buffer buffer = HD_EMPTY(hd_build_buffer);
    int &n = buffer.ndims;

    buffer.role = role;
    buffer.dtype = HD_DTYPE_F32;
    buffer.name = name.c_str();
    if (node.layout == Layout::ranks || node.layout == Layout::matrix ||
        node.layout == Layout::own) {
        buffer.mark[n] = "tp";
        buffer.extent[n++] = kRanks;
    }
    if (node.layout == Layout::rows) {
        buffer.mark[n] = "tp";
        buffer.length[n++] = "m";
    } else if (node.layout == Layout::whole || node.layout == Layout::ranks) {
        buffer.mark[n] = streamed ? "stream" : nullptr;
        buffer.length[n++] = blocks.c_str();
    } else if (node.layout != Layout::vector) {
        buffer.extent[n++] = node.layout == Layout::own ? 1 : node.rows;
    }
    buffer.extent[n++] = node.cols;
    hd_builder_buffer(builder, &buffer, Cookie(id));
}

void Lowering::Statement(hd_builder *builder, int id) const
{
    const Node &node = graph_[id];
    std::string name = NameOf(id);
    std::vector<std::string> names;
    std::vector<const char *> views;
    const char *result = name.c_str(), *over_ranks = "dim 0";
    hd_build_op op = HD_EMPTY(hd_build_op);

    for (int from : node.from)
        names.push_back(NameOf(from));
    for (const std::string &text : names)
        views.push_back(text.c_str());
    op.op = node.op == Op::all_gather ? "set"
            : node.op == Op::matmul   ? "matmul"
            : node.op == Op::gelu     ? "gelu"
            : node.op < Op::bias      ? "sum"
                                      : "add";
    if (node.op == Op::gelu && !cuda_) {
        op.op = "call";
        op.callee = "backend::gelu";
    }
    op.results = &result;
    op.nresults = 1;
    op.operands = views.data();
    op.noperands = views.size();
    op.attributes = &over_ranks;
    op.nattributes = node.op == Op::reduce_scatter || node.op == Op::all_reduce;
    hd_builder_op(builder, &op, Cookie(id));
}

Module Lowering::Build(hd_diag *diag, std::vector<int> &arguments)
{
    hd_builder *made = nullptr;
    hd_module *module = nullptr;

    for (int node : region_.nodes)
        for (int from : graph_[node].from)
            if (!Made(from) &&
                !std::count(inputs_.begin(), inputs_.end(), from))
                inputs_.push_back(from);
    Try(hd_builder_create(region_.pattern, HD_STAGE_TENSOR, diag, &made));
    std::unique_ptr<hd_builder, Destroy<hd_builder_destroy>> builder(made);
    hd_builder_axis(made, "tp", kRanks, 0);
    hd_builder_size(made, "m", 1, kMostRows, 0);
    for (int node : inputs_)
        Buffer(made, node, HD_ROLE_IN);
    for (int node : region_.nodes) {
        Buffer(made, node,
               node == region_.nodes.back() ? HD_ROLE_OUT : HD_ROLE_TEMP);
        Statement(made, node);
    }
    Try(hd_builder_finish(made, diag, &module));
    arguments = inputs_;
    arguments.push_back(region_.nodes.back());
    return Module(module);
}

// -------------------------------------------------------- from the cache

// All ranks compile the same regions in the same order, so that a cache on each
// finds what the others find.
Step Backend::Compile(const Graph &graph, const Region &region) const
{
    Step step;
    bool cuda = options.device[0] == 'c' && options.device[1] == 'u';
    Module built = Lowering(graph, region, cuda).Build(diag, step.arguments);
    hd_cache_request request = HD_EMPTY(hd_cache_request);
    hd_cache *from = cache;
    const hd_module *module = nullptr;
    hd_session *session = nullptr;
    hd_argument argument = HD_EMPTY(hd_argument);

    request.module = built.get();
    request.choose = true;  // the way that is predicted to take the least
    request.against = true; // proven to make what the region says
    Try(hd_cache_get(cache, &request, diag, &module));
    step.module = {module,
                   [from](const hd_module *m) { hd_cache_release(from, m); }};
    Try(hd_cache_session(cache, group, module, &options, diag, &session));
    step.session = {
        session, [from](hd_session *s) { hd_cache_release_session(from, s); }};
    for (size_t i = 0; hd_module_argument(module, i, &argument); i++)
        step.bytes.push_back(argument.local_bytes);
    return step;
}

void Report(const hd_diag *diag, const Graph &graph)
{
    hd_message message = HD_EMPTY(hd_message);

    for (size_t i = 0; hd_diag_message(diag, i, &message); i++) {
        if (message.cookie > 0)
            std::fprintf(stderr,
                         "node %d (%s): ", static_cast<int>(message.cookie) - 1,
                         Name(graph[message.cookie - 1].op));
        std::fprintf(stderr, "%s %s\n", message.text, message.code);
    }
}
