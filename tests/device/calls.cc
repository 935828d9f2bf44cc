// Functions of a caller's, which move elements, so that the same one is the
// cpu's and, by copies on the stream, a GPU's: programs that call them are as
// those that say the same by operations, in every pipeline.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>

#include <heddle/call.h>

#include <heddle/verify.h>

#include "tests/device/options.h"

namespace
{

// What the functions of a rank's session have in common.
struct Scene {
    int rank;
    std::atomic<int> calls{0};
    std::atomic<int> failing{-1}; // the call that fails, from 0
    std::atomic<bool> wrong{false};
};

hd_status Move(const hd_call_site *site, char *to, const char *from,
               size_t bytes)
{
    using Copy = int (*)(uint64_t, uint64_t, size_t, void *);

    if (OnCpu()) {
        memcpy(to, from, bytes);
        return HD_OK;
    }
    static const auto copy = (Copy)dlsym(
        dlopen(Setting("HEDDLE_CUDA_LIB", "libcuda.so.1").c_str(), RTLD_NOW),
        "cuMemcpyAsync");
    return copy(uint64_t(to), uint64_t(from), bytes, site->stream) == 0
               ? HD_OK
               : HD_ERROR_SYSTEM;
}

// `n` elements from index `from` of a row to index `to` of another.
hd_status MoveRow(const hd_call_site *site, const hd_call_view &out,
                  char *to_row, int64_t to, const hd_call_view &in,
                  const char *from_row, int64_t from, int64_t n)
{
    size_t size = hd_dtype_size(out.dtype);
    int64_t s = out.ndims > 0 ? out.stride[out.ndims - 1] : 1;
    int64_t t = in.ndims > 0 ? in.stride[in.ndims - 1] : 1;

    if (s == 1 && t == 1)
        return Move(site, to_row + size_t(to) * size,
                    from_row + size_t(from) * size, size_t(n) * size);
    for (int64_t i = 0; i < n; i++)
        HD_TRY(Move(site, to_row + size_t((to + i) * s) * size,
                    from_row + size_t((from + i) * t) * size, size));
    return HD_OK;
}

// How many dimensions of a view are of the batch.
int Batch(const hd_call_site *site, const hd_call_view &view)
{
    return std::max(view.ndims - site->over, 0);
}

// Where a view has what belongs to an element of the batch, which is that of
// the first result.
char *At(const hd_call_site *site, const hd_call_view &view, int64_t number)
{
    const hd_call_view &out = site->result[0];
    int64_t offset = 0;
    int batch = Batch(site, out), own = Batch(site, view);

    for (int d = batch - 1; d >= 0; d--) {
        int k = d - (batch - own);

        if (k >= 0 && view.extent[k] > 1)
            offset += number % out.extent[d] * view.stride[k];
        number /= out.extent[d];
    }
    return static_cast<char *>(view.address) +
           offset * int64_t(hd_dtype_size(view.dtype));
}

int64_t BatchOf(const hd_call_site *site)
{
    int64_t n = 1;

    for (int d = 0; d < Batch(site, site->result[0]); d++)
        n *= site->result[0].extent[d];
    return n;
}

int64_t Last(const hd_call_view &view)
{
    return view.extent[view.ndims - 1];
}

hd_status Begin(void *context, const hd_call_site *site)
{
    Scene *scene = static_cast<Scene *>(context);

    if (scene->calls++ == scene->failing) {
        snprintf(site->why, site->nwhy, "no room for %d rows", 7);
        return HD_ERROR_NO_MEMORY;
    }
    if (site->rank != scene->rank || site->size < sizeof *site ||
        (OnCpu() && site->stream != nullptr) ||
        site->device != std::string(OnCpu() ? "cpu" : "cuda"))
        scene->wrong = true;
    return HD_OK;
}

// y = x with the halves of each row exchanged.
hd_status Rotate(void *context, const hd_call_site *site)
{
    const hd_call_view &y = site->result[0], &x = site->operand[0];
    int64_t n = Last(y), half = n / 2;

    HD_TRY(Begin(context, site));
    for (int64_t b = 0; b < BatchOf(site); b++) {
        HD_TRY(MoveRow(site, y, At(site, y, b), 0, x, At(site, x, b), half,
                       n - half));
        HD_TRY(MoveRow(site, y, At(site, y, b), n - half, x, At(site, x, b), 0,
                       half));
    }
    return HD_OK;
}

// y = the second operand, which may repeat.
hd_status Second(void *context, const hd_call_site *site)
{
    const hd_call_view &y = site->result[0], &x = site->operand[1];

    HD_TRY(Begin(context, site));
    for (int64_t b = 0; b < BatchOf(site); b++)
        HD_TRY(
            Move(site, At(site, y, b), At(site, x, b), hd_dtype_size(y.dtype)));
    return HD_OK;
}

// a, b = the halves of each row.
hd_status Halves(void *context, const hd_call_site *site)
{
    const hd_call_view &a = site->result[0], &b = site->result[1];
    const hd_call_view &x = site->operand[0];

    HD_TRY(Begin(context, site));
    for (int64_t i = 0; i < BatchOf(site); i++) {
        HD_TRY(
            MoveRow(site, a, At(site, a, i), 0, x, At(site, x, i), 0, Last(a)));
        HD_TRY(MoveRow(site, b, At(site, b, i), 0, x, At(site, x, i), Last(a),
                       Last(b)));
    }
    return HD_OK;
}

// The first half of each row of y becomes that of x; the others stay.
hd_status Patch(void *context, const hd_call_site *site)
{
    const hd_call_view &y = site->result[0], &x = site->operand[0];

    HD_TRY(Begin(context, site));
    RANK_EXPECT(site->keep);
    for (int64_t b = 0; b < BatchOf(site); b++)
        HD_TRY(MoveRow(site, y, At(site, y, b), 0, x, At(site, x, b), 0,
                       Last(y) / 2));
    return HD_OK;
}

using Table = std::array<hd_call, 5>;

Table TableOf(Scene *scene)
{
    return {{{sizeof(hd_call), "unused", Patch, nullptr},
             {sizeof(hd_call), "rotate", Rotate, scene},
             {sizeof(hd_call), "ns::second<>", Second, scene},
             {sizeof(hd_call), "halves", Halves, scene},
             {sizeof(hd_call), "patch", Patch, scene}}};
}

hd_session_options OptionsWith(const Table &table)
{
    hd_session_options options = DeviceOptions();

    options.calls = table.data();
    options.ncalls = table.size();
    return options;
}

// ------------------------------------------------------------- the programs

// A text with what only one of two programs has: ?called|said by operations?.
std::string Spelt(const std::string &text, bool calls)
{
    std::string out;

    for (size_t at = 0; at < text.size();) {
        if (text[at] != '?') {
            out += text[at++];
            continue;
        }
        size_t middle = text.find('|', at), end = text.find('?', at + 1);
        out += calls ? text.substr(at + 1, middle - at - 1)
                     : text.substr(middle + 1, end - middle - 1);
        at = end + 1;
    }
    return out;
}

const char kProgram[] =
    "heddle 2\ntensor program calls\nmesh tp=1\n"
    "in %x : $[size tp @tp, 8, 6]\nin %w : $[6, 4]\nin %b : $[6]\n"
    "inout %k : $[size tp @tp, 8, 6]\n"
    "temp %g : $[size tp @stream, 8, 6]\n"
    "temp %r : $[size tp @stream, 8, 6]\n"
    "temp %s : $[size tp @stream, 8, 6]\n"
    "temp %z : $[size tp @tp, 8, 6]\n"
    "out %y : $[size tp @stream, 8, 4]\n"
    "out %q : $[size tp @tp, 8, 6]\n"
    "out %h : $[size tp @tp, 8, 2]\nout %l : $[size tp @tp, 8, 4]\n"
    "out %t : $[size tp @tp, 8, 6]\n"
    "{\n    %g = set %x\n"
    "    ?%r = call \"rotate\" %g over 1|"
    "%r[:, :, 0..3] = copy %g[:, :, 3..6] %r[:, :, 3..6] = copy %g[:, :, 0..3]"
    "?\n"
    "    ?%s = call \"ns::second<>\" %b, %r|%s = copy %r?\n"
    "    %y = matmul %s, %w\n"
    "    %z = fill value 0\n"
    "    ?%q = call \"ns::second<>\" %x, %b|%q = add %z, %b?\n"
    "    ?%h, %l = call \"halves\" %x over 1|"
    "%h = copy %x[:, :, 0..2] %l = copy %x[:, :, 2..6]?\n"
    "    ?%k = call \"patch\" %x keep over 1|"
    "%k[:, :, 0..3] = copy %x[:, :, 0..3]?\n"
    // The halves of four rows of it, each as one row.
    "    %t[:, 4..8] = copy %x[:, 4..8]\n"
    "    ?%t[:, 0..4] = call \"rotate\" %x[:, 4..8] over 1|"
    "%t[:, 0..4, 0..3] = copy %x[:, 4..8, 3..6] "
    "%t[:, 0..4, 3..6] = copy %x[:, 4..8, 0..3]?\n}\n";

// The program that calls, lowered so, and proven.
Module Lowered(const std::string &text, const std::string &dtype, int ranks,
               const hd_lower_options &options)
{
    Module tensor = Parse(Spelt(text, true), dtype, ranks);
    Module host = Parse(Spelt(text, true), dtype, ranks);
    hd_check_options check = hd_check_defaults();
    hd_diag *diag = hd_diag_create();

    EXPECT_EQ(hd_lower(host.get(), &options, nullptr, nullptr, diag), HD_OK)
        << OptionText(options) << hd_diag_text(diag);
    check.against = tensor.get();
    check.transport = options.transport;
    EXPECT_EQ(hd_check(host.get(), &check, diag), HD_OK)
        << OptionText(options) << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return host;
}

std::vector<hd_lower_options> Lowerings()
{
    std::vector<hd_lower_options> all;

    for (int transfer = HD_TRANSFER_BULK; transfer <= HD_TRANSFER_RING;
         transfer++)
        for (int way = 0; way < 3; way++) {
            hd_lower_options o = OptionsOf(transfer);

            o.asked = 0;
            o.chunks = way == 0 ? 1 : 2;
            o.defer_sends = way == 1;
            o.comm_stream = way == 2;
            all.push_back(o);
        }
    return all;
}

hd_status RunCalling(hd_group *group, const Case &each, hd_diag *diag)
{
    Scene scene{hd_group_rank(group)};
    Table table = TableOf(&scene);

    HD_TRY(RunSets(group, each.module.get(), each.expected, OptionsWith(table),
                   diag));
    RANK_EXPECT(!scene.wrong);
    RANK_EXPECT(scene.calls > 0);
    return HD_OK;
}

TEST(Calls, AreInEveryPipelineWhatOperationsWouldBe)
{
    unsigned seed = Seed();

    for (int ranks : Choose<int>({1, 2, 3, 4}, {2})) {
        std::deque<Case> cases;

        if (!HasDevices(ranks))
            continue;
        for (const char *dtype : Choose<const char *>({"f32", "bf16"}, {"f32"}))
            for (const hd_lower_options &o : Lowerings())
                cases.emplace_back(
                    Lowered(kProgram, dtype, ranks, o), OptionText(o), 3,
                    seed++, [](Arguments *) {},
                    Parse(Spelt(kProgram, false), dtype, ranks));
        RunCases(cases, RunCalling, ranks);
    }
}

// ------------------------------------------------------------------- a site

const char kViews[] =
    "heddle 2\nhost program views\nmesh tp=1\nin %x : i32[3, 8, 6]\n"
    "out %y : i32[8, 4, 6]\n{\n"
    "    %y[:, 2] = call \"look\" %x[1, :, 2..5], %x[0, 0, 0..1] over 1\n"
    "    %y[:, 0] = copy %x[0]\n    %y[:, 1] = copy %x[0]\n"
    "    %y[:, 3] = copy %x[0]\n}\n";

struct Seen {
    std::vector<void *> argument;
    bool right = false;
};

hd_status Look(void *context, const hd_call_site *site)
{
    Seen *seen = static_cast<Seen *>(context);
    const int32_t *x = static_cast<int32_t *>(seen->argument[0]);
    int32_t *y = static_cast<int32_t *>(seen->argument[1]);
    const hd_call_view &r = site->result[0], &a = site->operand[0],
                       &b = site->operand[1];

    seen->right = site->nresults == 1 && site->noperands == 2 &&
                  site->over == 1 && !site->keep && site->line == 7 &&
                  site->name == std::string("look") && r.address == y + 12 &&
                  r.dtype == HD_DTYPE_I32 && r.ndims == 2 && r.extent[0] == 8 &&
                  r.extent[1] == 6 && r.stride[0] == 24 && r.stride[1] == 1 &&
                  a.address == x + 48 + 2 && a.ndims == 2 && a.extent[0] == 8 &&
                  a.extent[1] == 3 && a.stride[0] == 6 && a.stride[1] == 1 &&
                  b.address == x && b.ndims == 1 && b.extent[0] == 1;
    return HD_OK;
}

TEST(Calls, AreToldWhereEachViewLies)
{
    AllEndWell(Launch(1, [&](hd_group *group, hd_diag *diag) {
        Seen seen;
        hd_call call = {sizeof call, "look", Look, &seen};
        hd_session_options options = DeviceOptions();
        hd_session *session = nullptr;
        Module module = Read(kViews, "i32");

        options.calls = &call;
        options.ncalls = 1;
        HD_TRY(
            hd_session_create(group, module.get(), &options, diag, &session));
        {
            Shards shards(session);

            HD_TRY(
                shards.Put(Arguments(module.get(), 1), module.get(), 0, diag));
            seen.argument = {shards.Address(0), shards.Address(1)};
            HD_TRY(shards.Run(diag));
            HD_TRY(shards.Get(diag));
        }
        hd_session_destroy(session);
        RANK_EXPECT(seen.right);
        return HD_OK;
    }));
}

// ----------------------------------------------------------------- failures

const char kTwo[] = "heddle 2\nhost program two\nmesh tp=2\n"
                    "in %x : f32[2@tp, 8, 6]\nout %y : f32[2@tp, 8, 6]\n"
                    "temp %t : f32[2, 8, 6] shared\n{\n"
                    "    group {\n        send %x[tp] to 1 - tp\n"
                    "        %t[1 - tp] = recv from 1 - tp\n    }\n"
                    "    %y[tp] = call \"rotate\" %t[1 - tp] over 1\n}\n";

// A run, or the wait for it, fails, and the session is over.
hd_status EndOf(hd_session *session, Shards *shards, hd_diag *diag)
{
    hd_status status = shards->Run(diag);

    if (status == HD_OK)
        status = hd_session_finish(session, diag);
    if (status != HD_OK && shards->Run(nullptr) != HD_ERROR_ARGUMENT)
        return HD_ERROR_SYSTEM;
    return status;
}

// Rank 1's third call fails, or that which is captured; rank 0 waits for rank 1
// in the run after it.
hd_status FailOnce(hd_group *group, hd_diag *diag)
{
    Scene scene{hd_group_rank(group)};
    Table table = TableOf(&scene);
    hd_session_options options = OptionsWith(table);
    hd_session *session = nullptr;
    hd_diag *said = hd_diag_create();
    Module module = Read(kTwo, "f32");
    hd_status status = HD_OK;

    int failing = options.graph ? 0 : 2;

    scene.failing = scene.rank == 1 ? failing : -1;
    HD_TRY(hd_session_create(group, module.get(), &options, diag, &session));
    {
        Shards shards(session);

        HD_TRY(shards.Put(Arguments(module.get(), 1), module.get(), scene.rank,
                          diag));
        for (int run = 0; run < 20 && status == HD_OK; run++)
            status = EndOf(session, &shards, said);
    }
    std::string text = hd_diag_text(said);
    hd_diag_destroy(said);
    hd_session_destroy(session);
    if (text.find("rank 1: \"rotate\" failed, call at program.hd:12:") ==
            std::string::npos ||
        text.find("): out of memory: no room for 7 rows") == std::string::npos)
        return hd_fail(diag, HD_ERROR_INVALID, "'%s'", text.c_str());
    RANK_EXPECT(status ==
                (scene.rank == 1 ? HD_ERROR_NO_MEMORY : HD_ERROR_PEER));
    RANK_EXPECT(scene.rank == 0 || scene.calls == failing + 1);
    return HD_OK;
}

TEST(Calls, ThatFailEndTheSessionOnAllRanks)
{
    if (HasDevices(2))
        AllEndWell(Launch(2, FailOnce));
}

hd_status Argument(void *, const hd_call_site *)
{
    return HD_ERROR_ARGUMENT;
}

// As if nothing had begun, which is not so.
TEST(Calls, ThatFailWithArgumentHaveBegunAllTheSame)
{
    AllEndWell(Launch(1, [&](hd_group *group, hd_diag *diag) {
        hd_call call = {sizeof call, "look", Argument, nullptr};
        hd_session_options options = DeviceOptions();
        hd_session *session = nullptr;
        hd_diag *said = hd_diag_create();
        Module module = Read(kViews, "i32");
        hd_status status;

        options.calls = &call;
        options.ncalls = 1;
        HD_TRY(
            hd_session_create(group, module.get(), &options, diag, &session));
        {
            Shards shards(session);

            HD_TRY(
                shards.Put(Arguments(module.get(), 1), module.get(), 0, diag));
            status = EndOf(session, &shards, said);
        }
        hd_session_destroy(session);
        hd_diag_destroy(said);
        RANK_EXPECT(status == HD_ERROR_INVALID);
        return HD_OK;
    }));
}

// What rank `lacks` says of a table without the function; the others hear of
// it, and the group goes on.
hd_status Lack(hd_group *group, int lacks, const char *words, hd_diag *diag)
{
    Scene scene{hd_group_rank(group)};
    Table table = TableOf(&scene);
    hd_session_options options = OptionsWith(table);
    hd_session *session = nullptr;
    hd_diag *said = hd_diag_create();
    Module module = Read(kTwo, "f32");
    bool mine = lacks < 0 || lacks == scene.rank;
    hd_status status;

    if (mine)
        table[1].name = "rotates";
    status = hd_session_create(group, module.get(), &options, said, &session);
    std::string text = hd_diag_text(said);
    hd_diag_destroy(said);
    RANK_EXPECT(session == nullptr);
    RANK_EXPECT(status == (mine ? HD_ERROR_ARGUMENT : HD_ERROR_PEER));
    if (text.find(words) == std::string::npos)
        return hd_fail(diag, HD_ERROR_INVALID, "'%s'", text.c_str());
    table[1].name = "rotate";
    HD_TRY(hd_session_create(group, module.get(), &options, diag, &session));
    hd_session_destroy(session);
    return HD_OK;
}

TEST(Calls, ThatARankLacksAreNamedOnAllRanks)
{
    const char *const words =
        "program.hd:12:14: call \"rotate\": the session was given no such "
        "function; did you mean 'rotates'? It was given 'unused', 'rotates', "
        "'ns::second<>', 'halves', 'patch'";

    for (int lacks = -1; lacks < 2 && HasDevices(2); lacks++)
        AllEndWell(Launch(2, [&](hd_group *group, hd_diag *diag) {
            return Lack(group, lacks, words, diag);
        }));
}

TEST(Calls, OfATableThatIsNoneAreRefused)
{
    AllEndWell(Launch(1, [&](hd_group *group, hd_diag *diag) {
        Module module = Read(kViews, "i32");
        hd_session *session = nullptr;

        for (int wrong = 0; wrong < 5; wrong++) {
            struct {
                hd_call call;
                void *more;
            } newer = {{sizeof newer, wrong == 1 ? nullptr : "look",
                        wrong == 2 ? nullptr : Look, nullptr},
                       wrong == 4 ? &newer : nullptr};

            newer.call.size = wrong == 0 ? 0 : sizeof newer;
            hd_session_options options = DeviceOptions();

            options.calls = wrong == 3 ? nullptr : &newer.call;
            options.ncalls = 1;
            RANK_EXPECT(hd_session_create(group, module.get(), &options,
                                          nullptr,
                                          &session) == HD_ERROR_ARGUMENT);
        }
        (void)diag;
        return HD_OK;
    }));
}

// ------------------------------------------------------------------- graphs

// How often functions are called in runs on one memory, and then on another.
hd_status CountCalls(hd_group *group, hd_diag *diag)
{
    Scene scene{hd_group_rank(group)};
    Table table = TableOf(&scene);
    hd_session_options options = OptionsWith(table);
    hd_session *session = nullptr;
    Module module = Read(kTwo, "f32");
    Arguments inputs(module.get(), 1);

    HD_TRY(hd_session_create(group, module.get(), &options, diag, &session));
    {
        Shards here(session), there(session);
        Shards *at[] = {&here, &here, &there, &here, &there};
        int graph[] = {1, 1, 2, 2, 2};

        HD_TRY(here.Put(inputs, module.get(), scene.rank, diag));
        HD_TRY(there.Put(inputs, module.get(), scene.rank, diag));
        for (int run = 0; run < 5; run++) {
            HD_TRY(at[run]->Run(diag));
            HD_TRY(at[run]->Get(diag));
            RANK_EXPECT(scene.calls == (options.graph ? graph[run] : run + 1));
            RANK_EXPECT(at[run]->Bytes(1) == here.Bytes(1));
        }
    }
    hd_session_destroy(session);
    return HD_OK;
}

TEST(Calls, AreCapturedOnceForEachSetOfAddresses)
{
    if (HasDevices(2))
        AllEndWell(Launch(2, CountCalls));
}

// -------------------------------------------------------------------- sizes

const char kSized[] = "heddle 2\ntensor program sized\nparam m in 1..13\n"
                      "mesh tp=1\nin %x : f32[m@tp, 6]\n"
                      "out %y : f32[m@tp, 6]\n{\n"
                      "    %y = call \"rotate\" %x over 1\n}\n";

// A run of `m` rows: whoever has some is called for these, and writes no other.
hd_status RunSized(hd_session *session, Scene *scene, int ranks, int64_t m,
                   hd_diag *diag)
{
    int64_t room = (13 + ranks - 1) / ranks, block = (m + ranks - 1) / ranks;
    int64_t rows =
        std::max<int64_t>(0, std::min<int64_t>(block, m - scene->rank * block));
    std::vector<float> x(size_t(room * 6)), y(x.size(), -1), want(y);
    size_t bytes = x.size() * sizeof x[0];
    int before = scene->calls;
    hd_run_options with = HD_EMPTY(hd_run_options);
    void *argument[2];

    for (size_t i = 0; i < x.size(); i++)
        x[i] = float(i + 1);
    for (size_t i = 0; i < size_t(rows * 6); i++)
        want[i] = x[i / 6 * 6 + (i + 3) % 6];
    for (void *&at : argument)
        HD_TRY(hd_session_alloc(session, bytes, diag, &at));
    HD_TRY(hd_session_copy(session, argument[0], x.data(), bytes, diag));
    HD_TRY(hd_session_copy(session, argument[1], y.data(), bytes, diag));
    with.stream = OwnStream();
    with.sizes = &m;
    with.nsizes = 1;
    HD_TRY(hd_session_run(session, argument, 2, &with, diag));
    HD_TRY(hd_session_copy(session, y.data(), argument[1], bytes, diag));
    for (void *at : argument)
        hd_session_free(session, at);
    RANK_EXPECT(y == want);
    RANK_EXPECT(rows > 0 || scene->calls == before);
    return HD_OK;
}

TEST(Calls, AreOfTheRowsThatARunHas)
{
    int ranks = std::min(3, MostRanks());
    Module module = Parse(kSized, "f32", ranks);

    ASSERT_EQ(hd_lower(module.get(), nullptr, nullptr, nullptr, nullptr),
              HD_OK);
    AllEndWell(Launch(ranks, [&](hd_group *group, hd_diag *diag) {
        Scene scene{hd_group_rank(group)};
        Table table = TableOf(&scene);
        hd_session_options options = OptionsWith(table);
        hd_session *session = nullptr;

        HD_TRY(
            hd_session_create(group, module.get(), &options, diag, &session));
        for (int64_t m : {13, 1, 5, 4, 13, 2})
            HD_TRY(RunSized(session, &scene, ranks, m, diag));
        hd_session_destroy(session);
        return HD_OK;
    }));
}

// -------------------------------------------------------------- reflection

TEST(Calls, AreListedByName)
{
    Module module = Parse(Spelt(kProgram, true), "f32", 2);
    const char *const names[] = {"rotate", "ns::second<>", "halves", "patch"};
    hd_call_info info = HD_EMPTY(hd_call_info);

    ASSERT_EQ(hd_module_calls(module.get()), 4u);
    for (size_t i = 0; i < 4; i++) {
        ASSERT_TRUE(hd_module_call(module.get(), i, &info));
        EXPECT_STREQ(info.name, names[i]);
        EXPECT_EQ(info.size, sizeof info);
    }
    EXPECT_EQ(info.line, 25);
    EXPECT_FALSE(hd_module_call(module.get(), 4, &info));
}

} // namespace
