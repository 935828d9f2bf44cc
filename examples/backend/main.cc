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
#include <random>
#include <stdexcept>

#include "lower.h"

// ------------------------------------------------------ a kernel of its own

// Views are parts of larger buffers: they go by their strides.
static void MapGelu(const hd_call_view &y, const hd_call_view &x, int dim,
                    float *to, const float *from)
{
    if (dim == y.ndims) {
        double v = *from, slope = std::sqrt(2 / M_PI);

        *to = static_cast<float>(
            0.5 * v * (1 + std::tanh(slope * (v + 0.044715 * v * v * v))));
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
    constexpr Dim hidden = {32, false}, inner = {24, false}, off = {25, false};
    constexpr Dim ranks = {kRanks, true}, one = {1, false};
    Graph g;
    int x = AppendLeaf(g, {{kRows, true}, hidden});

    for (bool last : {false, true}) {
        int w1 = AppendLeaf(g, {ranks, hidden, inner});
        int b1 = AppendLeaf(g, {ranks, one, inner});
        int w2 = AppendLeaf(g, {ranks, wrong && !last ? off : inner, hidden});
        int b2 = AppendLeaf(g, {hidden});
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

// Memory of the device by node, with a NaN in each element that nobody wrote.
struct Memory {
    hd_session *owner;
    std::vector<void *> of;

    Memory(const Backend &backend, const std::vector<Step> &steps);
    ~Memory()
    {
        for (void *address : of)
            hd_session_free(owner, address);
    }
    Memory(const Memory &) = delete;
};

Memory::Memory(const Backend &backend, const std::vector<Step> &steps)
    : owner(steps[0].session.get()), of(backend.graph.size())
{
    hd_argument argument = HD_EMPTY(hd_argument);

    for (const Step &step : steps)
        for (size_t i = 0; hd_module_argument(step.module.get(), i, &argument);
             i++) {
            void *&at = of[step.arguments[i]];
            std::vector<float> poison(argument.local_elements, NAN);

            if (at)
                continue;
            Try(hd_session_alloc(owner, argument.local_bytes, backend.diag,
                                 &at));
            Try(hd_session_copy(owner, at, poison.data(), argument.local_bytes,
                                backend.diag));
        }
}

// Nothing waits between regions: runs of one group are in order. Whoever waits
// for the last one has done with all, and one that takes too long is ended.
static void Issue(Backend &backend, const std::vector<Step> &steps,
                  const Memory &memory, int64_t m)
{
    hd_run_options run = HD_EMPTY(hd_run_options);
    bool done = false;

    run.sizes = &m;
    run.nsizes = 1;
    for (const Step &step : steps) {
        std::vector<void *> arguments;

        for (int node : step.arguments)
            arguments.push_back(memory.of[node]);
        backend.at = step.region;
        Try(hd_session_run(step.session.get(), arguments.data(),
                           arguments.size(), &run, backend.diag));
    }
    for (const Step &step : steps) {
        hd_session *session = step.session.get();

        backend.at = step.region;
        Try(hd_session_query(session, backend.diag, &done));
        if (!done)
            Try(hd_session_wait(session, 60, backend.diag, &done));
        if (!done)
            hd_group_abort(backend.group); // peers learn of it, too
    }
}

// The leaves, drawn alike on all ranks, each of which takes its part; and what
// heddle's reference makes of them, all of the graph as one dense program.
class Reference
{
  public:
    Reference(const Backend &backend, const Memory &memory, int64_t m,
              std::mt19937_64 &random);
    double WorstError(const Backend &backend, const Memory &memory) const;

  private:
    Module module_;
    std::vector<int> arguments_;
    Owned<hd_reference, hd_reference_destroy> reference_;
};

Reference::Reference(const Backend &backend, const Memory &memory, int64_t m,
                     std::mt19937_64 &random)
{
    Region all = WholeOf(backend.graph);
    std::normal_distribution<float> normal;
    hd_argument argument = HD_EMPTY(hd_argument);
    std::vector<std::vector<float>> leaves;
    std::vector<const void *> whole;
    hd_reference *made = nullptr;

    module_ = backend.Build(all, false);
    arguments_ = ArgumentsOf(all);
    Try(hd_module_resize(module_.get(), &m, 1, backend.diag));
    for (size_t i = 0; i < all.inputs; i++) {
        hd_module_argument(module_.get(), i, &argument);
        std::vector<float> mine(argument.local_elements, NAN);
        leaves.emplace_back(argument.elements);
        for (float &element : leaves.back())
            element = normal(random);
        hd_shard(module_.get(), i, hd_group_rank(backend.group),
                 leaves.back().data(), mine.data());
        Try(hd_session_copy(memory.owner, memory.of[arguments_[i]], mine.data(),
                            argument.local_bytes, backend.diag));
        whole.push_back(leaves.back().data());
    }
    whole.push_back(nullptr); // of the answer
    Try(hd_reference_create(module_.get(), whole.data(), backend.diag, &made));
    reference_.reset(made);
}

// Of all ranks, by the bound that a correct answer keeps.
double Reference::WorstError(const Backend &backend, const Memory &memory) const
{
    size_t last = arguments_.size() - 1;
    hd_argument argument = HD_EMPTY(hd_argument);
    double worst = 0, of[kRanks];

    hd_module_argument(module_.get(), last, &argument);
    size_t n = argument.local_elements;
    std::vector<float> mine(n);
    std::vector<double> want(n), bound(n);

    Try(hd_session_copy(memory.owner, mine.data(), memory.of[arguments_[last]],
                        argument.local_bytes, backend.diag));
    hd_reference_local(reference_.get(), last, hd_group_rank(backend.group),
                       want.data(), bound.data());
    for (size_t i = 0; i < n; i++)
        if (bound[i] >= 0 &&
            !(std::fabs(mine[i] - want[i]) <= worst * bound[i]))
            worst = std::fabs(mine[i] - want[i]) / bound[i]; // or a NaN
    Try(hd_group_allgather(backend.group, &worst, sizeof worst, of,
                           backend.diag));
    for (double one : of)
        worst = one <= worst ? worst : one;
    return worst;
}

static double RunRows(Backend &backend, int64_t m, std::mt19937_64 &random)
{
    std::vector<Step> steps;

    for (const Region &region : backend.regions)
        steps.push_back(backend.Compile(region));
    Memory memory(backend, steps);
    Reference reference(backend, memory, m, random);
    Issue(backend, steps, memory, m);
    return reference.WorstError(backend, memory);
}

// ------------------------------------------------------------------- a rank

struct Arguments {
    const char *device = "cpu";
    bool graph = false, wrong = false;
    std::vector<int64_t> rows;
    uint64_t seed = std::random_device()();
};

static void RunAll(const Arguments &arguments, Backend &backend)
{
    uint64_t seeds[kRanks];
    bool tells = hd_group_rank(backend.group) == 0;

    if (hd_group_size(backend.group) != kRanks)
        throw std::runtime_error("there must be 4 ranks");
    backend.regions = FindRegions(backend.graph);
    // Ranks that a launcher has started agree on what they draw.
    Try(hd_group_allgather(backend.group, &arguments.seed, sizeof seeds[0],
                           seeds, backend.diag));
    std::mt19937_64 random(seeds[0]);
    if (tells)
        std::printf("seed %llu\n     M  compiled  found  sessions  "
                    "error/bound\n",
                    static_cast<unsigned long long>(seeds[0]));
    for (int64_t m : arguments.rows) {
        hd_cache_stats old = HD_EMPTY(hd_cache_stats), now = old;

        hd_cache_count(backend.cache, &old);
        double worst = RunRows(backend, m, random);
        hd_cache_count(backend.cache, &now);
        if (tells)
            std::printf(
                "%6d %9d %6d %9d %12.1e\n", static_cast<int>(m),
                static_cast<int>(now.misses - old.misses),
                static_cast<int>(now.hits - old.hits),
                static_cast<int>(now.session_misses - old.session_misses),
                worst);
        if (!(worst <= 1))
            throw std::runtime_error("an answer is wrong");
    }
}

static hd_status Rank(void *context, hd_group *group)
{
    const Arguments &arguments = *static_cast<const Arguments *>(context);
    Diag diag(hd_diag_create());
    hd_cache *made = nullptr;
    hd_status status = hd_cache_create(nullptr, diag.get(), &made);
    Owned<hd_cache, hd_cache_destroy> cache(made);
    Backend backend = {MakeModel(arguments.wrong), group, made, diag.get(),
                       hd_session_defaults()};
    hd_call gelu = HD_EMPTY(hd_call);

    gelu.name = "backend::gelu";
    gelu.fn = CallGelu;
    backend.options.device = arguments.device;
    backend.options.graph = arguments.graph;
    backend.options.calls = &gelu;
    backend.options.ncalls = !std::strcmp(arguments.device, "cpu");
    try {
        Try(status);
        RunAll(arguments, backend);
    } catch (const Failure &failure) {
        status = failure.status;
        if (hd_group_rank(group) == 0)
            backend.Report();
    } catch (const std::exception &error) {
        status = HD_ERROR_INVALID;
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
