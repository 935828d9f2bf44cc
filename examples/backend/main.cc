// A backend of a compiler: it finds communication beside products in its graph,
// hands these regions to heddle with what follows them, and runs them on four
// ranks with any number of rows.
//
//   backend [--device cuda] [--graph] [--wrong] [ROWS..]
#include <heddle/async.h>
#include <heddle/call.h>
#include <heddle/environment.h>
#include <heddle/launch.h>
#include <heddle/verify.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "lower.h"

// ------------------------------------------------------ a kernel of its own

// Views are parts of larger buffers: they go by their strides.
static void MapGelu(const hd_call_view &y, const hd_call_view &x, int dim,
                    float *to, const float *from)
{
    if (dim == y.ndims) {
        *to = static_cast<float>(Gelu(*from));
        return;
    }
    for (int64_t i = 0; i < y.extent[dim]; i++)
        MapGelu(y, x, dim + 1, to + i * y.stride[dim],
                from + i * x.stride[dim]);
}

static hd_status CallGelu(void *, const hd_call_site *site)
{
    const hd_call_view &y = site->result[0], &x = site->operand[0];

    if (y.dtype != HD_DTYPE_F32) {
        std::snprintf(site->why, site->nwhy, "no gelu of %s here",
                      hd_dtype_text(y.dtype));
        return HD_ERROR_UNSUPPORTED;
    }
    MapGelu(y, x, 0, static_cast<float *>(y.address),
            static_cast<const float *>(x.address));
    return HD_OK;
}

// ----------------------------------------------------------------- a model

// Two layers: of the first each rank gets its rows back, of the second all get
// all rows. `wrong` gives the first a weight that does not fit.
static Graph MakeModel(bool wrong)
{
    constexpr int64_t hidden = 32, inner = 24;
    Graph g;
    int x = AppendLeaf(g, Op::input, Layout::rows, 0, hidden);

    for (bool last : {false, true}) {
        int w1 = AppendLeaf(g, Op::weight, Layout::matrix, hidden, inner);
        int b1 = AppendLeaf(g, Op::weight, Layout::own, 1, inner);
        int w2 = AppendLeaf(g, Op::weight, Layout::matrix,
                            inner + (wrong && !last), hidden);
        int b2 = AppendLeaf(g, Op::weight, Layout::vector, 1, hidden);
        int h = Append(g, Op::matmul, {Append(g, Op::all_gather, {x}), w1});

        h = Append(g, Op::gelu, {Append(g, Op::bias, {h, b1})});
        h = Append(g, Op::matmul, {h, w2});
        h = Append(g, last ? Op::all_reduce : Op::reduce_scatter, {h});
        h = Append(g, Op::bias, {h, b2});
        x = last ? h : Append(g, Op::add, {h, x});
    }
    return g;
}

// --------------------------------------------------------------------- runs

// Memory of the device for the values that regions read and write.
class Memory
{
  public:
    Memory(const std::vector<Step> &steps, size_t nodes, hd_diag *diag);
    ~Memory()
    {
        for (void *address : address_)
            hd_session_free(session_, address);
    }
    Memory(const Memory &) = delete;
    void *operator[](int node) const
    {
        return address_[node];
    }

  private:
    hd_session *session_; // the first one allocates for all
    std::vector<void *> address_;
};

Memory::Memory(const std::vector<Step> &steps, size_t nodes, hd_diag *diag)
    : session_(steps[0].session.get()), address_(nodes)
{
    for (const Step &step : steps)
        for (size_t i = 0; i < step.arguments.size(); i++) {
            void *&address = address_[step.arguments[i]];
            std::vector<float> poison(step.bytes[i] / sizeof(float), NAN);

            if (address)
                continue;
            Try(hd_session_alloc(session_, step.bytes[i], diag, &address));
            Try(hd_session_copy(session_, address, poison.data(), step.bytes[i],
                                diag));
        }
}

// Nothing waits between regions: runs of one group are in order. Whoever waits
// for the last one has done with all, and one that takes too long is ended.
static void Issue(const Backend &backend, const std::vector<Step> &steps,
                  const Memory &memory, int64_t m)
{
    hd_run_options run = HD_EMPTY(hd_run_options);
    bool done = false;

    run.sizes = &m;
    run.nsizes = 1;
    for (const Step &step : steps) {
        std::vector<void *> arguments;

        for (int node : step.arguments)
            arguments.push_back(memory[node]);
        Try(hd_session_run(step.session.get(), arguments.data(),
                           arguments.size(), &run, backend.diag));
    }
    for (const Step &step : steps) {
        hd_session *session = step.session.get();

        Try(hd_session_query(session, backend.diag, &done));
        if (!done)
            Try(hd_session_wait(session, 60, backend.diag, &done));
        if (!done)
            hd_group_abort(backend.group); // peers learn of it, too
    }
}

// The worst error of all ranks by what it may be. What they have stands in the
// place of `value`, so that what follows it is judged by itself.
static double Compare(const Backend &backend, const Node &node, int64_t m,
                      size_t room, hd_session *session, const void *address,
                      Value &value)
{
    std::vector<float> mine(room), all(room * kRanks);
    double worst = 0;

    Try(hd_session_copy(session, mine.data(), address, room * sizeof(float),
                        backend.diag));
    Try(hd_group_allgather(backend.group, mine.data(), room * sizeof(float),
                           all.data(), backend.diag));
    for (int rank = 0; rank < kRanks; rank++) {
        Part part = PartOf(node, rank, m);

        for (int64_t i = 0; i < part.count; i++) {
            double got = all[rank * room + i],
                   &want = value.value[part.begin + i];
            double off = std::fabs(got - want) / value.error[part.begin + i];

            worst = off <= worst ? worst : off; // a NaN is the worst
            if (node.layout != Layout::whole)
                want = got;
        }
    }
    if (node.layout != Layout::whole)
        value.error.assign(value.error.size(), 0);
    return worst;
}

static double RunRows(const Backend &backend, const Graph &graph,
                      const std::vector<Region> &regions, int64_t m,
                      std::mt19937_64 &random)
{
    int rank = hd_group_rank(backend.group), n = static_cast<int>(graph.size());
    std::vector<Value> values(graph.size());
    std::vector<Step> steps;
    double worst = 0;

    for (const Region &region : regions)
        steps.push_back(backend.Compile(graph, region));
    hd_session *session = steps[0].session.get();
    Memory memory(steps, graph.size(), backend.diag);

    for (int i = 0; i < n; i++)
        if (graph[i].from.empty()) {
            values[i] = Evaluate(graph, i, m, values, random);
            Part part = PartOf(graph[i], rank, m);
            auto begin = values[i].value.begin() + part.begin;
            std::vector<float> mine(begin, begin + part.count);

            Try(hd_session_copy(session, memory[i], mine.data(),
                                mine.size() * sizeof(float), backend.diag));
        }
    Issue(backend, steps, memory, m);
    for (int i = 0; i < n; i++) {
        if (graph[i].from.empty())
            continue;
        values[i] = Evaluate(graph, i, m, values, random);
        for (const Step &step : steps)
            if (step.arguments.back() == i) {
                double one = Compare(backend, graph[i], m,
                                     step.bytes.back() / sizeof(float), session,
                                     memory[i], values[i]);
                worst = one <= worst ? worst : one;
            }
    }
    return worst;
}

// ------------------------------------------------------------------- a rank

struct Arguments {
    const char *device = "cpu";
    bool graph = false, wrong = false;
    std::vector<int64_t> rows;
    uint64_t seed = std::random_device()();
};

static void RunAll(const Arguments &arguments, const Graph &graph,
                   Backend &backend)
{
    std::vector<Region> regions = FindRegions(graph);
    uint64_t seeds[kRanks];
    int rank = hd_group_rank(backend.group);

    // Ranks that a launcher has started agree on what they draw.
    Try(hd_group_allgather(backend.group, &arguments.seed, sizeof seeds[0],
                           seeds, backend.diag));
    std::mt19937_64 random(seeds[0]);
    if (rank == 0)
        std::printf("seed %llu\n%6s %9s %6s %9s %12s\n",
                    static_cast<unsigned long long>(seeds[0]), "M", "compiled",
                    "found", "sessions", "error/bound");
    for (int64_t m : arguments.rows) {
        hd_cache_stats before = HD_EMPTY(hd_cache_stats), after = before;

        hd_cache_count(backend.cache, &before);
        double worst = RunRows(backend, graph, regions, m, random);
        hd_cache_count(backend.cache, &after);
        if (rank == 0)
            std::printf(
                "%6lld %9d %6d %9d %12.3f\n", static_cast<long long>(m),
                static_cast<int>(after.misses - before.misses),
                static_cast<int>(after.hits - before.hits),
                static_cast<int>(after.session_misses - before.session_misses),
                worst);
        if (!(worst <= 1))
            throw std::runtime_error("an answer is wrong");
    }
}

static hd_status Rank(void *context, hd_group *group)
{
    const Arguments &arguments = *static_cast<const Arguments *>(context);
    Graph graph = MakeModel(arguments.wrong);
    Diag diag(hd_diag_create());
    hd_status status = HD_ERROR_INVALID;
    hd_call gelu = HD_EMPTY(hd_call);
    hd_cache *made = nullptr;

    gelu.name = "backend::gelu";
    gelu.fn = CallGelu;
    try {
        if (hd_group_size(group) != kRanks)
            throw std::runtime_error("there must be 4 ranks");
        Try(hd_cache_create(nullptr, diag.get(), &made));
        Cache cache(made);
        Backend backend = {group, made, diag.get(), hd_session_defaults()};
        backend.options.device = arguments.device;
        backend.options.graph = arguments.graph;
        backend.options.calls = &gelu;
        backend.options.ncalls = 1;
        RunAll(arguments, graph, backend);
        status = HD_OK;
    } catch (const Failure &failure) {
        status = failure.status;
        if (hd_group_rank(group) == 0)
            Report(diag.get(), graph);
    } catch (const std::exception &error) {
        if (hd_group_rank(group) == 0)
            std::fprintf(stderr, "%s\n", error.what());
    }
    std::fflush(stdout);
    return status;
}

static bool Read(int argc, char **argv, Arguments &out)
{
    for (int i = 1; i < argc; i++)
        if (!std::strcmp(argv[i], "--device") && i + 1 < argc)
            out.device = argv[++i];
        else if (!std::strcmp(argv[i], "--graph"))
            out.graph = true;
        else if (!std::strcmp(argv[i], "--wrong"))
            out.wrong = true;
        else
            out.rows.push_back(std::atoll(argv[i]));
    if (out.rows.empty())
        out.rows = {1, 17, 4096, 17};
    for (int64_t rows : out.rows)
        if (rows < 1 || rows > kMostRows)
            return false;
    return hd_is_device(out.device);
}

int main(int argc, char **argv)
{
    Arguments arguments;
    Diag diag(hd_diag_create());
    hd_place place = HD_EMPTY(hd_place);
    hd_group *group = nullptr;
    bool found = false;

    if (!Read(argc, argv, arguments)) {
        std::fputs("usage: backend [--device cuda] [--graph] [--wrong] "
                   "[ROWS..]\n",
                   stderr);
        return 2;
    }
    hd_status status = hd_place_find(diag.get(), &found, &place);
    if (status == HD_OK && !found)
        status = hd_launch(kRanks, 30, 0, Rank, &arguments, diag.get());
    if (status == HD_OK && found) {
        status = hd_group_join(&place, 30, diag.get(), &group);
        if (status == HD_OK)
            status = Rank(&arguments, group);
        if (status != HD_OK && group)
            hd_group_abort(group);
        hd_group_destroy(group);
    }
    std::fputs(hd_diag_text(diag.get()), stderr);
    return status != HD_OK;
}
