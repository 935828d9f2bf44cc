// A backend of a compiler: it finds communication beside products in its graph,
// hands these regions to heddle with what follows them, and runs them on four
// ranks with any number of rows.
#include <heddle/launch.h>
#include <heddle/memory.h>
#include <heddle/verify.h>

#include <iostream>
#include <random>
#include <sstream>

#include "gelu.h"
#include "lower.h"

// Two layers behind a gelu: of the first each rank gets its rows back, of the
// second all get all rows. `wrong` gives both a weight that does not fit.
static Graph MakeModel(bool wrong)
{
    const Dim block = {0, "m", "tp"}, ranks = {kRanks, nullptr, "tp"};
    const Dim rows = {0, "m in 4"};             // a block of each rank's, ..
    const Dim stream = {0, "m in 4", "stream"}; // .. made one by one
    const Dim one = {1}, inner = {24}, hidden = {kHidden};
    Graph g;
    int x = Append(g, kLeaf, {block, hidden});

    x = Append(g, kGelu, {block, hidden}, {x});
    for (bool last : {false, true}) {
        int w1 = Append(g, kLeaf, {ranks, hidden, inner});
        int b1 = Append(g, kLeaf, {ranks, one, inner});
        int w2 = Append(g, kLeaf, {ranks, wrong ? one : inner, hidden});
        int h = Append(g, kGather, {stream, hidden}, {x});
        h = Append(g, kMatmul, {ranks, stream, inner}, {h, w1});
        h = Append(g, kAdd, {ranks, stream, inner}, {h, b1});
        h = Append(g, kGelu, {ranks, stream, inner}, {h});
        h = Append(g, kMatmul, {ranks, stream, hidden}, {h, w2});
        h = Append(g, kSum, {last ? rows : block, hidden}, {h});
        x = last ? h : Append(g, kAdd, {block, hidden}, {h, x});
    }
    return g;
}

struct Backend {
    bool cuda = false, graph = false, wrong = false; // what it is asked for
    std::vector<int64_t> rows = {};
    uint64_t seed = std::random_device()();
    hd_group *group = nullptr;
    hd_diag *diag = nullptr;
    const Cuda *device = nullptr; // none on the cpu
    Graph model = {};
    std::vector<Region> regions = {};
    std::shared_ptr<hd_cache> cache = {};
    std::vector<std::shared_ptr<hd_session>> sessions = {}; // of regions
    std::vector<float *> memory = {}; // of nodes, for the most rows
    Region at = {};                   // that is being compiled or run

    void Issue(int64_t m);
    std::shared_ptr<void> Capture(int64_t m);
    double Run(int64_t m, std::mt19937_64 &random, void *captured);
    void RunAll(const hd_session_options &options);
    void Report() const;
};

// Nothing waits between regions: runs of one group are in order, and so is with
// CUDA what is on one stream. On the cpu the backend's own kernel comes first.
void Backend::Issue(int64_t m)
{
    hd_run_options run = HD_EMPTY(hd_run_options);

    run.sizes = &m;
    run.nsizes = 1;
    run.stream = device ? device->stream : nullptr;
    for (size_t i = 0; i < regions.size(); i++) {
        std::vector<void *> with;

        at = regions[i];
        for (int node : at.arguments)
            with.push_back(memory[node]);
        if (sessions[i])
            Try(hd_session_run(sessions[i].get(), with.data(), with.size(),
                               &run, diag));
        else
            RunGelu(device, run.stream,
                    {memory[at.nodes[1]], memory[at.nodes[0]],
                     kMostRows / kRanks * kHidden});
    }
}

// All of it as a CUDA graph of the backend's own: its kernel and heddle's runs.
// Whatever happens, it is destroyed before the sessions are.
std::shared_ptr<void> Backend::Capture(int64_t m)
{
    void *driver = device->driver, *stream = device->stream;
    void *captured = nullptr, *made = nullptr;

    Call(driver, "cuStreamBeginCapture_v2", stream, 0);
    Issue(m);
    Call(driver, "cuStreamEndCapture", stream, &captured);
    Call(driver, "cuGraphInstantiateWithFlags", &made, captured, 0ull);
    Call(driver, "cuGraphDestroy", captured);
    auto *destroy =
        reinterpret_cast<int (*)(void *)>(dlsym(driver, "cuGraphExecDestroy"));
    return std::shared_ptr<void>(made, destroy);
}

// Runs on leaves drawn alike on all ranks, of which each takes its part: how
// far this rank's answer is from that of heddle's reference, which has all of
// the graph as one program, by the bound that a correct one keeps.
double Backend::Run(int64_t m, std::mt19937_64 &random, void *captured)
{
    Region all = FindRegions(model).back();
    std::shared_ptr<hd_module> whole = Build(model, all, false, diag);
    std::vector<std::vector<float>> drawn(all.inputs);
    std::vector<const void *> leaves(all.arguments.size());
    std::vector<float> mine;
    std::normal_distribution<float> normal;
    hd_argument about = HD_EMPTY(hd_argument);
    hd_reference *made = nullptr;
    int rank = hd_group_rank(group);
    double worst = 0;

    Try(hd_module_resize(whole.get(), &m, 1, diag));
    for (size_t i = 0; hd_module_argument(whole.get(), i, &about); i++) {
        mine.assign(about.local_elements, NAN);
        if (i < all.inputs) {
            drawn[i].resize(about.elements);
            for (float &element : drawn[i])
                element = normal(random);
            leaves[i] = drawn[i].data();
            hd_shard(whole.get(), i, rank, leaves[i], mine.data());
        }
        Try(hd_session_copy(sessions.back().get(), memory[all.arguments[i]],
                            mine.data(), about.local_bytes, diag));
    }
    if (captured) {
        Call(device->driver, "cuGraphLaunch", captured, device->stream);
        Call(device->driver, "cuStreamSynchronize", device->stream);
    } else {
        Issue(m);
    }
    for (size_t i = 0; i < regions.size(); i++) {
        at = regions[i];
        if (sessions[i]) // which tells what failed in a launch, too
            Try(hd_session_finish(sessions[i].get(), diag));
    }
    Try(hd_session_copy(sessions.back().get(), mine.data(), memory.back(),
                        about.local_bytes, diag));
    Try(hd_reference_create(whole.get(), leaves.data(), diag, &made));
    std::vector<double> want(mine.size()), bound(mine.size());
    hd_reference_local(made, all.inputs, rank, want.data(), bound.data());
    hd_reference_destroy(made);
    for (size_t i = 0; i < mine.size(); i++)
        if (bound[i] >= 0 && !(fabs(mine[i] - want[i]) <= worst * bound[i]))
            worst = fabs(mine[i] - want[i]) / bound[i]; // or a NaN
    return worst;
}

void Backend::RunAll(const hd_session_options &options)
{
    std::mt19937_64 random(seed);
    std::ostream tell(hd_group_rank(group) ? nullptr : std::cout.rdbuf());
    hd_cache *made = nullptr;
    hd_cache_stats count = HD_EMPTY(hd_cache_stats);

    Try(hd_cache_create(nullptr, diag, &made));
    cache.reset(made, hd_cache_destroy);
    regions = FindRegions(model);
    regions.pop_back(); // all of it
    for (size_t i = 0; i < model.size(); i++) {
        void *address = nullptr; // which the group frees with itself

        Try(hd_group_alloc(group, options.device, kMostRows * kHidden * 4, diag,
                           &address));
        memory.push_back(static_cast<float *>(address));
    }
    tell << "seed " << seed << std::endl;
    for (int64_t m : rows) {
        double worst = 0;

        sessions.clear();
        for (const Region &region : regions) {
            at = region;
            sessions.push_back(
                Compile(model, region, made, group, options, diag));
        }
        std::shared_ptr<void> captured = graph ? Capture(m) : nullptr;
        for (int i = 0; i < 3 && worst <= 1; i++)
            worst = std::max(Run(m, random, captured.get()), worst);
        hd_cache_count(made, &count);
        tell << "M " << m << ": programs made " << count.misses << ", found "
             << count.hits << ", sessions made " << count.session_misses
             << ", error " << worst << " of its bound" << std::endl;
        if (!(worst <= 1))
            throw std::runtime_error("an answer is wrong");
    }
}

// What heddle said, each message at the node that it is about. All ranks say
// what they were told: the first that fails may be any of them, and the others
// are ended a second later.
void Backend::Report() const
{
    hd_message message = HD_EMPTY(hd_message);
    std::ostringstream said; // written at once

    for (size_t i = 0; hd_diag_message(diag, i, &message); i++) {
        int node = message.cookie ? at.nodes[message.cookie - 1] : -1;

        said << "rank " << hd_group_rank(group) << ": ";
        if (node >= 0)
            said << "node " << node << " (" << kNames[model[node].op] << "): ";
        said << message.text << " " << message.code << "\n";
    }
    std::cerr << said.str() << std::flush;
}

static hd_status Rank(void *context, hd_group *group)
{
    std::shared_ptr<hd_diag> diag(hd_diag_create(), hd_diag_destroy);
    std::shared_ptr<Cuda> cuda;
    Backend backend = *static_cast<const Backend *>(context);
    hd_session_options options = hd_session_defaults();

    backend.group = group;
    backend.diag = diag.get();
    backend.model = MakeModel(backend.wrong);
    try {
        if (backend.cuda)
            cuda = std::make_shared<Cuda>(hd_group_rank(group));
        hd_call gelu = {sizeof gelu, "gelu", CallGelu, cuda.get()};
        backend.device = cuda.get();
        options.device = backend.cuda ? "cuda" : "cpu";
        options.capturable = backend.graph;
        options.calls = &gelu;
        options.ncalls = 1;
        backend.RunAll(options);
        return HD_OK;
    } catch (hd_status status) {
        backend.Report();
        return status;
    } catch (const std::exception &error) {
        std::cerr << error.what() << std::endl;
        return HD_ERROR_SYSTEM;
    }
}

// False of a word that is neither an option nor a number of rows.
static bool TakeWord(const std::string &word, Backend &asked)
{
    char *end = nullptr;
    long long m = std::strtoll(word.c_str(), &end, 10);

    if (!*end && m >= 1 && m <= kMostRows)
        asked.rows.push_back(m);
    else if (word == "--graph")
        asked.cuda = asked.graph = true;
    else if (word == "--cuda")
        asked.cuda = true;
    else if (word == "--wrong")
        asked.wrong = true;
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    std::shared_ptr<hd_diag> diag(hd_diag_create(), hd_diag_destroy);
    hd_place place = HD_EMPTY(hd_place);
    bool found = false;
    Backend asked;

    for (int i = 1; i < argc; i++) {
        if (TakeWord(argv[i], asked))
            continue;
        std::cerr << "'" << argv[i] << "' is no option, and no number of rows "
                  << "from 1 to " << kMostRows
                  << "\nusage: backend [--cuda | --graph] [--wrong] [M..]\n";
        return 2;
    }
    if (asked.rows.empty())
        asked.rows = {1, 17, 4096, 17};
    hd_status status = hd_place_find(diag.get(), &found, &place);
    if (found)
        asked.seed = place.job; // the same on all ranks
    if (status == HD_OK)
        status = found ? hd_join(&place, 30, Rank, &asked, diag.get())
                       : hd_launch(kRanks, 30, 0, Rank, &asked, diag.get());
    std::cerr << hd_diag_text(diag.get());
    return status != HD_OK;
}
