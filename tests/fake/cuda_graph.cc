// Capture and replay. A captured graph is a list of nodes, each with the
// earlier ones that it follows; it is replayed as chains, a thread each, since
// branches may wait for other processes.
#include <thread>

#include "cuda_state.h"

using namespace fake;

namespace
{

using Chains = std::vector<std::vector<size_t>>;

// A node goes on where one that it follows is the last so far.
Chains find_chains(const std::vector<Node> &nodes)
{
    Chains chains;

    for (size_t i = 0; i < nodes.size(); i++) {
        std::vector<size_t> *home = nullptr;

        for (std::vector<size_t> &chain : chains) {
            if (nodes[i].after.count(chain.back()) != 0) {
                home = &chain;
                break;
            }
        }
        if (home == nullptr)
            home = &chains.emplace_back();
        home->push_back(i);
    }
    return chains;
}

struct Replay {
    Nodes nodes;
    std::vector<bool> done; // guarded by the world's lock

    explicit Replay(Nodes all) : nodes(std::move(all)), done(nodes->size())
    {
    }
};

bool is_ready(const Replay &replay, size_t node)
{
    for (size_t before : (*replay.nodes)[node].after) {
        if (!replay.done[before])
            return false;
    }
    return true;
}

void run_chain(Replay &replay, Lane lane, const std::vector<size_t> &chain)
{
    World &w = world();

    for (size_t node : chain) {
        {
            Guard guard(w.lock);

            w.change.wait(guard, [&] {
                return lane.context->failed != 0 || is_ready(replay, node);
            });
        }
        execute(lane, (*replay.nodes)[node].work);
        Guard guard(w.lock);
        replay.done[node] = true;
        w.change.notify_all();
    }
}

void run_graph(Lane &lane, const Nodes &nodes)
{
    Chains chains = find_chains(*nodes);
    Replay replay(nodes);
    std::vector<std::thread> branches;

    for (size_t i = 1; i < chains.size(); i++) {
        Lane branch = lane;

        if (branch.chaos != 0)
            branch.chaos = (branch.chaos + i) | 1;
        branches.emplace_back([&replay, &chains, branch, i] {
            run_chain(replay, branch, chains[i]);
        });
    }
    if (!chains.empty())
        run_chain(replay, lane, chains[0]);
    for (std::thread &branch : branches)
        branch.join();
}

// Whether the origin's next node would follow all there is.
bool is_joined(const Capture &capture, const std::set<size_t> &tails)
{
    std::vector<bool> before(capture.nodes.size());

    for (size_t tail : tails)
        before[tail] = true;
    for (size_t i = before.size(); i-- > 0;) {
        if (!before[i])
            return false;
        for (size_t earlier : capture.nodes[i].after)
            before[earlier] = true;
    }
    return true;
}

void leave_capture(const std::shared_ptr<Capture> &capture)
{
    for (CUstream_st *stream : world().streams) {
        if (stream->capture == capture) {
            stream->capture = nullptr;
            stream->tails.clear();
        }
    }
}

} // namespace

hd_cu_result cuStreamBeginCapture_v2(hd_cu_stream handle, int mode)
{
    FAKE_ENTER();
    FAKE_STREAM(handle, stream);
    Guard guard(world().lock);

    if (mode < CAPTURE_GLOBAL || mode > HD_CU_CAPTURE_RELAXED)
        return INVALID_VALUE;
    if (stream == stream->context->ordinary || stream->capture != nullptr)
        return CAPTURE_UNSUPPORTED;
    stream->capture = std::make_shared<Capture>();
    stream->capture->origin = stream;
    stream->capture->id = ++world().nonce;
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    stream->capture->graph.reset(
        new CUgraph_st{nullptr, stream->capture.get()});
    return SUCCESS;
}

// Valid until the next call on the stream.
hd_cu_result cuStreamGetCaptureInfo_v2(hd_cu_stream handle, int *status,
                                       uint64_t *id, hd_cu_graph *graph,
                                       const hd_cu_node **last, size_t *n)
{
    static thread_local std::vector<hd_cu_node> tails;
    hd_cu_result result = cuStreamIsCapturing(handle, status);

    if (result != SUCCESS || *status != 1)
        return result;
    FAKE_STREAM(handle, stream);
    Guard guard(world().lock);

    if (id != nullptr)
        *id = stream->capture->id;
    tails.clear();
    for (size_t tail : stream->tails)
        tails.push_back(stream->capture->nodes[tail].name.get());
    *graph = stream->capture->graph.get();
    *last = tails.data();
    *n = tails.size();
    return SUCCESS;
}

hd_cu_result cuStreamIsCapturing(hd_cu_stream handle, int *out)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    {
        Guard guard(world().lock);

        if (reinterpret_cast<uintptr_t>(handle) <= 2 && is_implied(context))
            return CAPTURE_IMPLICIT;
    }
    FAKE_STREAM(handle, stream);
    Guard guard(world().lock);

    *out = stream->capture == nullptr ? 0 : stream->capture->invalid ? 2 : 1;
    return SUCCESS;
}

// Ends the capture even if it fails.
hd_cu_result cuStreamEndCapture(hd_cu_stream handle, hd_cu_graph *out)
{
    hd_cu_result injected = enter(__func__);

    if (injected == NOT_INITIALIZED)
        return injected;
    FAKE_STREAM(handle, stream);
    Guard guard(world().lock);
    std::shared_ptr<Capture> capture = stream->capture;
    bool joined;

    if (capture == nullptr)
        return INVALID_VALUE;
    if (capture->origin != stream) {
        capture->invalid = true;
        return CAPTURE_UNMATCHED;
    }
    if (capture->mode != HD_CU_CAPTURE_RELAXED &&
        capture->thread != std::this_thread::get_id())
        return CAPTURE_WRONG_THREAD;
    joined = is_joined(*capture, stream->tails);
    leave_capture(capture);
    *out = nullptr;
    if (injected != SUCCESS)
        return injected;
    if (capture->invalid || !joined) {
        hd_cu_result why =
            capture->invalid ? CAPTURE_INVALIDATED : CAPTURE_UNJOINED;

        capture->invalid = true;
        return why;
    }
    capture->invalid = true; // events that still name it lead nowhere
    capture->graph->nodes =
        std::make_shared<const std::vector<Node>>(std::move(capture->nodes));
    *out = capture->graph.release();
    world().graphs.insert(*out);
    return SUCCESS;
}

// Of a graph that is captured, too. The caller holds the lock.
static const std::vector<Node> *nodes_of(hd_cu_graph graph)
{
    if (world().graphs.count(graph) != 0)
        return graph->nodes.get();
    for (const CUstream_st *stream : world().streams) {
        if (stream->capture != nullptr && stream->capture->graph.get() == graph)
            return &stream->capture->nodes;
    }
    return nullptr;
}

// How many there are, and so many of them as there is room for.
hd_cu_result cuGraphGetNodes(hd_cu_graph graph, hd_cu_node *out, size_t *n)
{
    FAKE_ENTER();
    Guard guard(world().lock);
    const std::vector<Node> *nodes = nodes_of(graph);

    if (nodes == nullptr || n == nullptr)
        return INVALID_VALUE;
    for (size_t i = 0; out != nullptr && i < *n; i++)
        out[i] = i < nodes->size() ? (*nodes)[i].name.get() : nullptr;
    if (out == nullptr || *n > nodes->size())
        *n = nodes->size();
    return SUCCESS;
}

static bool has_node(const std::vector<Node> &nodes, hd_cu_node node)
{
    for (const Node &one : nodes) {
        if (one.name.get() == node)
            return true;
    }
    return false;
}

// The nodes of the graph that has this one, or NULL.
static const std::vector<Node> *find_home(hd_cu_node node)
{
    for (const CUgraph_st *graph : world().graphs) {
        if (has_node(*graph->nodes, node))
            return graph->nodes.get();
    }
    for (const CUstream_st *stream : world().streams) {
        if (stream->capture != nullptr &&
            has_node(stream->capture->nodes, node))
            return &stream->capture->nodes;
    }
    return nullptr;
}

CUgraphNode_st *fake::find_node(hd_cu_node node, int type)
{
    return find_home(node) != nullptr &&
                   (type == OTHER_NODE || node->detail.type == type)
               ? node
               : nullptr;
}

hd_cu_result cuGraphNodeGetType(hd_cu_node node, int *out)
{
    FAKE_ENTER();
    Guard guard(world().lock);

    if (find_node(node, OTHER_NODE) == nullptr)
        return INVALID_VALUE;
    *out = node->detail.type == OTHER_NODE ? HOST_NODE : node->detail.type;
    return SUCCESS;
}

// As many of them as there is room for.
hd_cu_result cuGraphNodeGetDependencies(hd_cu_node node, hd_cu_node *out,
                                        size_t *n)
{
    FAKE_ENTER();
    Guard guard(world().lock);
    const std::vector<Node> *nodes = find_home(node);
    size_t found = 0;

    if (nodes == nullptr || out == nullptr || n == nullptr)
        return INVALID_VALUE;
    for (const Node &one : *nodes) {
        if (one.name.get() != node)
            continue;
        for (size_t before : one.after) {
            if (found < *n)
                out[found++] = (*nodes)[before].name.get();
        }
    }
    *n = found;
    return SUCCESS;
}

hd_cu_result cuGraphMemcpyNodeGetParams(hd_cu_node node, hd_cu_copy_node *out)
{
    FAKE_ENTER();
    Guard guard(world().lock);

    if (find_node(node, HD_CU_NODE_COPY) == nullptr)
        return INVALID_VALUE;
    *out = node->detail.copy;
    return SUCCESS;
}

hd_cu_result cuGraphMemsetNodeGetParams(hd_cu_node node, hd_cu_fill_node *out)
{
    FAKE_ENTER();
    Guard guard(world().lock);

    if (find_node(node, HD_CU_NODE_FILL) == nullptr)
        return INVALID_VALUE;
    *out = node->detail.fill;
    return SUCCESS;
}

// What was launched before keeps its nodes as they were. The graph that it was
// made from must be there still, and have the node.
hd_cu_result fake::set_work(hd_cu_graph_exec exec, hd_cu_node node, Work work)
{
    Guard guard(world().lock);

    if (world().execs.count(exec) == 0 ||
        world().graphs.count(exec->graph) == 0 ||
        !has_node(*exec->graph->nodes, node))
        return INVALID_VALUE;
    if (exec->shared)
        exec->nodes = std::make_shared<std::vector<Node>>(*exec->nodes);
    exec->shared = false;
    for (const Node &one : *exec->nodes) {
        if (one.name.get() == node)
            const_cast<Node &>(one).work = std::move(work);
    }
    return SUCCESS;
}

// What the copy is that the node stands for there; NULL if it is none. The
// caller holds the lock.
static const hd_cu_copy_node *find_copy(hd_cu_graph_exec exec, hd_cu_node node)
{
    if (world().execs.count(exec) == 0 ||
        find_node(node, HD_CU_NODE_COPY) == nullptr)
        return nullptr;
    for (const Node &one : *exec->nodes) {
        if (one.name.get() == node)
            return &(one.like == nullptr ? one.name : one.like)->detail.copy;
    }
    return nullptr;
}

// Bytes in a row, of as many as before, from and to the same device's memory.
hd_cu_result cuGraphExecMemcpyNodeSetParams(hd_cu_graph_exec exec,
                                            hd_cu_node node,
                                            const hd_cu_copy_node *to,
                                            hd_cu_context context)
{
    FAKE_ENTER();
    uint64_t target = to->to.device + to->to.x;
    uint64_t source = to->from.device + to->from.x;
    size_t bytes = to->bytes;

    {
        Guard guard(world().lock);
        const hd_cu_copy_node *was = find_copy(exec, node);

        if (world().contexts.count(context) == 0 || was == nullptr ||
            to->bytes != was->bytes || to->height > 1 || to->depth > 1 ||
            to->to.memory != was->to.memory ||
            to->from.memory != was->from.memory)
            return INVALID_VALUE;
    }
    if (locate(target, bytes) != Place::DEVICE ||
        locate(source, bytes) != Place::DEVICE)
        return INVALID_VALUE;
    return set_work(exec, node,
                    [=](Lane &) { return copy_now(target, source, bytes); });
}

hd_cu_result cuGraphInstantiateWithFlags(hd_cu_graph_exec *out,
                                         hd_cu_graph graph,
                                         unsigned long long flags)
{
    FAKE_ENTER();
    FAKE_CONTEXT(context);
    Guard guard(world().lock);

    if (world().graphs.count(graph) == 0 || flags != 0)
        return INVALID_VALUE;
    *out = new CUgraphExec_st{graph, nullptr, graph->nodes};
    world().execs.insert(*out);
    return SUCCESS;
}

static bool is_alike(const Node &node, const Node &other)
{
    const Detail &a = node.name->detail, &b = other.name->detail;

    if (a.type != b.type || node.after != other.after ||
        a.words.size() != b.words.size())
        return false;
    for (size_t i = 0; i < a.words.size(); i++) {
        if (a.words[i].operation != b.words[i].operation)
            return false;
    }
    return true;
}

// Nodes keep their names. What was launched before keeps its work.
hd_cu_result cuGraphExecUpdate_v2(hd_cu_graph_exec exec, hd_cu_graph to,
                                  hd_cu_update_result *out)
{
    FAKE_ENTER();
    Guard guard(world().lock);

    if (world().execs.count(exec) == 0 || world().graphs.count(to) == 0 ||
        out == nullptr)
        return INVALID_VALUE;
    auto nodes = std::make_shared<std::vector<Node>>(*exec->nodes);

    *out = {2, nullptr, nullptr}; // the topology is another
    if (nodes->size() != to->nodes->size())
        return UPDATE_FAILURE;
    for (size_t i = 0; i < nodes->size(); i++) {
        const Node &from = (*to->nodes)[i];

        if (!is_alike((*nodes)[i], from))
            return UPDATE_FAILURE;
        (*nodes)[i].work = from.work;
        (*nodes)[i].like = from.name;
    }
    exec->nodes = nodes;
    exec->shared = false;
    *out = {0, nullptr, nullptr};
    return SUCCESS;
}

// Nothing here has to be brought to a device.
hd_cu_result cuGraphUpload(hd_cu_graph_exec graph, hd_cu_stream handle)
{
    FAKE_ENTER();
    FAKE_STREAM(handle, stream);
    Guard guard(world().lock);

    return world().execs.count(graph) == 0 || stream->capture != nullptr
               ? INVALID_VALUE
               : SUCCESS;
}

// Launches of one graph follow one another, whichever streams they are in.
hd_cu_result cuGraphLaunch(hd_cu_graph_exec graph, hd_cu_stream handle)
{
    FAKE_ENTER();
    FAKE_STREAM(handle, stream);
    auto record = std::make_shared<Record>();
    std::shared_ptr<Record> before;
    Nodes nodes;

    {
        Guard guard(world().lock);

        if (world().execs.count(graph) == 0)
            return INVALID_VALUE;
        if (stream->capture != nullptr) {
            stream->capture->invalid = true;
            return CAPTURE_UNSUPPORTED;
        }
        nodes = graph->nodes;
        graph->shared = true;
        before = graph->last;
        graph->last = record;
    }
    return submit(stream, [=](Lane &lane) {
        if (before != nullptr)
            wait_record(lane, before);
        run_graph(lane, nodes);
        finish_record(record);
        return true;
    });
}

// Its name is gone even where the call is to fail.
template <class Made>
static hd_cu_result destroy(const char *call, std::set<Made *> World::*all,
                            Made *made)
{
    hd_cu_result injected = enter(call);

    if (injected == NOT_INITIALIZED)
        return injected;
    Guard guard(world().lock);
    if ((world().*all).erase(made) == 0)
        return INVALID_VALUE;
    delete made;
    return injected;
}

hd_cu_result cuGraphDestroy(hd_cu_graph graph)
{
    return destroy(__func__, &World::graphs, graph);
}

hd_cu_result cuGraphExecDestroy(hd_cu_graph_exec graph)
{
    return destroy(__func__, &World::execs, graph);
}
