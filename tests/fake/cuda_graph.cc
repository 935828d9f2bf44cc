// Capture and replay. A captured graph is a list of nodes, each with the
// earlier ones that it follows; it is replayed as chains, a thread each, since
// branches may wait for other processes.
#include <thread>

#include "cuda_state.h"

using namespace fake;

namespace
{

using Nodes = std::shared_ptr<const std::vector<Node>>;
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
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
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
    *out = new CUgraph_st{
        std::make_shared<const std::vector<Node>>(capture->nodes)};
    world().graphs.insert(*out);
    return SUCCESS;
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
    *out = new CUgraphExec_st{graph->nodes, nullptr};
    world().execs.insert(*out);
    return SUCCESS;
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

hd_cu_result cuGraphDestroy(hd_cu_graph graph)
{
    hd_cu_result injected = enter(__func__);

    if (injected == NOT_INITIALIZED)
        return injected;
    Guard guard(world().lock);
    if (world().graphs.erase(graph) == 0)
        return INVALID_VALUE;
    delete graph;
    return injected;
}

hd_cu_result cuGraphExecDestroy(hd_cu_graph_exec graph)
{
    hd_cu_result injected = enter(__func__);

    if (injected == NOT_INITIALIZED)
        return injected;
    Guard guard(world().lock);
    if (world().execs.erase(graph) == 0)
        return INVALID_VALUE;
    delete graph;
    return injected;
}
