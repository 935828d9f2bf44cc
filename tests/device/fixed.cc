// Arguments at one place in every run, which peers read and write there: the
// answers are those of the copies that are made otherwise, bit for bit.
#include <gtest/gtest.h>

#include <random>

#include <heddle/memory.h>

#include "tests/device/options.h"
#include "tests/info.h"

namespace
{

const int kSets = 3; // of random inputs

// Every way in which peers touch arguments: written by put, read by get,
// gathered into, reduced where they are.
const char *const kTouched =
    "heddle 2\nhost program touched mesh tp=3 streams 2\n"
    "in %x : f32[size tp@tp, 4, 8] shared\n"
    "in %w : f32[8]\n"
    "inout %i : f32[size tp, 4, 8] shared\n"
    "out %y : f32[size tp@tp, 4, 8] shared\n"
    "out %z : f32[size tp@tp, 4, 8]\n"
    "out %g : f32[size tp, 4, 8] shared\n"
    "out %s : f32[4, 8]\n"
    "{ fork\n"
    "  on stream 0 {\n"
    "    group { send %x[tp] to (tp + 1) mod 3\n"
    "            %y[tp] = recv from (tp - 1) mod 3 }\n"
    "    %i = all_gather %x[tp]\n"
    "    %g = all_gather %x[tp] }\n"
    "  on stream 1 {\n"
    "    group { send %x[tp] to (tp + 1) mod 3 get\n"
    "            %z[tp] = recv from (tp - 1) mod 3 get }\n"
    "    %s = all_reduce %x[tp] }\n"
    "  join }\n";

const size_t kAhead = 256; // bytes of memory before each argument

// Memory of the group for each argument, and what is in it.
class Places
{
  public:
    explicit Places(hd_group *group) : group_(group)
    {
    }
    Places(const Places &) = delete;
    Places &operator=(const Places &) = delete;
    ~Places()
    {
        for (void *at : address_)
            hd_group_free(group_, static_cast<char *>(at) - kAhead);
    }
    hd_status Take(const hd_module *module, const char *device, hd_diag *diag)
    {
        hd_argument info = HD_EMPTY(hd_argument);

        for (size_t i = 0; hd_module_argument(module, i, &info); i++) {
            void *at = nullptr;

            HD_TRY(hd_group_alloc(group_, device, info.local_bytes + 2 * kAhead,
                                  diag, &at));
            address_.push_back(static_cast<char *>(at) + kAhead);
            bytes_.emplace_back(info.local_bytes);
        }
        return HD_OK;
    }
    hd_status Run(hd_session *session, const Arguments &arguments,
                  const hd_module *module, int rank, hd_diag *diag)
    {
        std::vector<std::vector<char>> local;

        for (size_t i = 0; i < address_.size(); i++)
            local.push_back(arguments.Local(module, i, rank));
        return RunOn(session, local, {}, diag);
    }
    // `local` by argument, whole; with sizes, if there are any.
    hd_status RunOn(hd_session *session,
                    const std::vector<std::vector<char>> &local,
                    const std::vector<int64_t> &sizes, hd_diag *diag)
    {
        hd_run_options with = HD_EMPTY(hd_run_options);

        for (size_t i = 0; i < address_.size(); i++)
            HD_TRY(hd_session_copy(session, address_[i], local[i].data(),
                                   local[i].size(), diag));
        with.stream = OwnStream();
        with.sizes = sizes.data();
        with.nsizes = sizes.size();
        HD_TRY(hd_session_run(session, address_.data(), address_.size(), &with,
                              diag));
        for (size_t i = 0; i < address_.size(); i++)
            HD_TRY(hd_session_copy(session, bytes_[i].data(), address_[i],
                                   bytes_[i].size(), diag));
        return HD_OK;
    }
    std::vector<void *> &Address()
    {
        return address_;
    }
    const std::vector<std::vector<char>> &Bytes() const
    {
        return bytes_;
    }

  private:
    hd_group *group_;
    std::vector<void *> address_;
    std::vector<std::vector<char>> bytes_;
};

// A session whose arguments are copied, and one where they are fixed, each with
// memory of its own.
struct Both {
    Places apart, here;
    hd_session *copies = nullptr, *fixed = nullptr;

    explicit Both(hd_group *group) : apart(group), here(group)
    {
    }
    Both(const Both &) = delete;
    Both &operator=(const Both &) = delete;
    ~Both()
    {
        hd_session_destroy(copies);
        hd_session_destroy(fixed);
    }
    hd_status Open(hd_group *group, const hd_module *module, hd_diag *diag)
    {
        hd_session_options options = DeviceOptions();

        HD_TRY(apart.Take(module, options.device, diag));
        HD_TRY(here.Take(module, options.device, diag));
        HD_TRY(hd_session_create(group, module, &options, diag, &copies));
        options.fixed = here.Address().data();
        options.nfixed = here.Address().size();
        return hd_session_create(group, module, &options, diag, &fixed);
    }
};

// Both are alive, and run in turns.
hd_status CompareWithCopies(hd_group *group, const Case &each, hd_diag *diag)
{
    const hd_module *module = each.module.get();
    int rank = hd_group_rank(group);
    Both both(group);

    HD_TRY(both.Open(group, module, diag));
    for (int run = 0; run < 2 * kSets; run++) {
        const Arguments &inputs = each.expected.Inputs(run % kSets);

        HD_TRY(both.apart.Run(both.copies, inputs, module, rank, diag));
        HD_TRY(both.here.Run(both.fixed, inputs, module, rank, diag));
        RANK_EXPECT(both.apart.Bytes() == both.here.Bytes());
    }
    return HD_OK;
}

void CompareAll(const std::deque<Case> &cases, int ranks)
{
    if (HasDevices(ranks))
        RunCases(cases, CompareWithCopies, ranks);
}

TEST(Fixed, ArgumentsAreTouchedWhereTheyAre)
{
    std::deque<Case> cases;
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;

    ASSERT_EQ(hd_parse("touched", kTouched, strlen(kTouched), nullptr, 0, diag,
                       &module),
              HD_OK)
        << hd_diag_text(diag);
    ASSERT_EQ(CheckHere(module, diag), HD_OK) << hd_diag_text(diag);
    cases.emplace_back(Module(module), "touched", kSets, Seed(),
                       [](Arguments *) {});
    CompareAll(cases, 3);
    hd_diag_destroy(diag);
}

const char *const kPrograms[] = {
    "heddle 2\ntensor program gather mesh tp=2\n"
    "in %a : f32[12 @tp, 8] in %b : f32[8, 6]\n"
    "out %c : f32[12 @stream, 6] temp %g : f32[12 @stream, 8]\n"
    "{ %g = set %a\n  %c = matmul %g, %b }\n",
    "heddle 2\ntensor program scatter mesh tp=2\n"
    "in %a : f32[12, 8 @tp] in %b : f32[8 @tp, 6]\n"
    "out %c : f32[12 @tp, 6] temp %p : f32[size tp @tp, 12 @stream, 6]\n"
    "{ %c = matmul %a, %b }\n"};

TEST(Fixed, ArgumentsOfEveryPipelineAreTouchedWhereTheyAre)
{
    for (hd_transfer transfer :
         {HD_TRANSFER_BULK, HD_TRANSFER_PIPELINED, HD_TRANSFER_BROADCAST,
          HD_TRANSFER_DIRECT, HD_TRANSFER_RING})
        for (hd_protocol protocol : {HD_PROTOCOL_PUT, HD_PROTOCOL_GET}) {
            std::deque<Case> cases;
            hd_lower_options lower = hd_lower_defaults();
            hd_diag *diag = hd_diag_create();
            hd_module *module = nullptr;
            const char *text = kPrograms[0];

            lower.transfer = transfer;
            lower.protocol = protocol;
            lower.asked = 0;
            lower.transport = DeviceOptions().transport;
            ASSERT_EQ(hd_parse("program", text, strlen(text), nullptr, 0, diag,
                               &module),
                      HD_OK)
                << hd_diag_text(diag);
            ASSERT_EQ(hd_lower(module, &lower, nullptr, nullptr, diag), HD_OK)
                << hd_diag_text(diag);
            cases.emplace_back(Module(module), "pipeline", kSets, Seed(),
                               [](Arguments *) {});
            CompareAll(cases, 2);
            hd_diag_destroy(diag);
        }
}

// ------------------------------------------------------------ sizes, delays

// kTouched, and a size among the dimensions of what is written by put, read by
// get, gathered and reduced.
const char *const kSized =
    "heddle 2\nhost program sized param m in 1..9 mesh tp=3 streams 2\n"
    "in %x : f32[size tp@tp, m, 8] shared\n"
    "inout %i : f32[size tp, m, 8] shared\n"
    "out %y : f32[size tp@tp, m, 8] shared\n"
    "out %z : f32[size tp@tp, m, 8]\n"
    "out %g : f32[size tp, m, 8] shared\n"
    "out %s : f32[m, 8]\n"
    "{ fork\n"
    "  on stream 0 {\n"
    "    group { send %x[tp] to (tp + 1) mod 3\n"
    "            %y[tp] = recv from (tp - 1) mod 3 }\n"
    "    %i = all_gather %x[tp]\n"
    "    %g = all_gather %x[tp] }\n"
    "  on stream 1 {\n"
    "    group { send %x[tp] to (tp + 1) mod 3 get\n"
    "            %z[tp] = recv from (tp - 1) mod 3 get }\n"
    "    %s = all_reduce %x[tp] }\n"
    "  join }\n";

const char *const kSizedPipelines[] = {
    "heddle 2\ntensor program gather param m in 1..9 mesh tp=3\n"
    "in %a : f32[m @tp, 8] in %b : f32[8, 6]\n"
    "out %c : f32[m in size tp @stream, 6]\n"
    "temp %g : f32[m in size tp @stream, 8]\n"
    "{ %g = set %a\n  %c = matmul %g, %b }\n",
    "heddle 2\ntensor program scatter param m in 1..9 mesh tp=3\n"
    "in %h : f32[size tp @tp, m in size tp @stream, 5]\n"
    "in %w : f32[size tp @tp, 5, 7] out %y : f32[m @tp, 7]\n"
    "temp %p : f32[size tp @tp, m in size tp @stream, 7]\n"
    "{ %p = matmul %h, %w\n  %y = sum %p dim 0 }\n"};

// Numbers in all of the memory, in its room too: what is copied and what is
// where it lies leave the same of it.
std::vector<std::vector<char>> DrawAll(const Places &places,
                                       std::mt19937 &random)
{
    std::vector<std::vector<char>> all;

    for (const std::vector<char> &bytes : places.Bytes()) {
        all.emplace_back(bytes.size());
        for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
            float one = float(random() % 2001) / 1000 - 1;

            memcpy(&all.back()[at], &one, sizeof one);
        }
    }
    return all;
}

// Sizes are drawn alike by all ranks, numbers by each.
hd_status CompareSizes(hd_group *group, const hd_module *module, int runs,
                       unsigned seed, hd_diag *diag)
{
    Both both(group);
    std::mt19937 size(seed), random(seed + 1 + unsigned(hd_group_rank(group)));

    HD_TRY(both.Open(group, module, diag));
    for (int run = 0; run < runs; run++) {
        std::vector<int64_t> m = {run == 0 ? 9 : 1 + int64_t(size() % 9)};
        std::vector<std::vector<char>> local = DrawAll(both.here, random);

        HD_TRY(both.apart.RunOn(both.copies, local, m, diag));
        HD_TRY(both.here.RunOn(both.fixed, local, m, diag));
        if (both.apart.Bytes() != both.here.Bytes())
            return hd_fail(diag, HD_ERROR_INVALID,
                           "rank %d: run %d, m = %d: another answer",
                           hd_group_rank(group), run, int(m[0]));
    }
    return HD_OK;
}

// kSized, or a pipeline of it.
void CompareSizesOf(const char *text, hd_transfer transfer,
                    hd_protocol protocol, int runs)
{
    Module module = Parse(text, "f32", 3);
    hd_lower_options lower = OptionsOf(transfer);
    hd_diag *diag = hd_diag_create();
    unsigned seed = Seed(); // before there are ranks

    lower.protocol = protocol;
    lower.asked = 0;
    if (text != kSized) {
        ASSERT_EQ(hd_lower(module.get(), &lower, nullptr, nullptr, diag), HD_OK)
            << hd_diag_text(diag);
    }
    ASSERT_EQ(CheckHere(module.get(), diag), HD_OK) << hd_diag_text(diag);
    hd_diag_destroy(diag);
    AllEndWell(Launch(3, [&](hd_group *group, hd_diag *said) {
        return CompareSizes(group, module.get(), runs, seed, said);
    }));
}

TEST(Fixed, ArgumentsOfOtherSizesAreTouchedWhereTheyAre)
{
    if (!HasDevices(3))
        return;
    CompareSizesOf(kSized, HD_TRANSFER_BULK, HD_PROTOCOL_PUT, 12);
    for (const char *text : kSizedPipelines)
        CompareSizesOf(text,
                       Seed() % 2 == 0 ? HD_TRANSFER_DIRECT : HD_TRANSFER_RING,
                       Seed() % 4 < 2 ? HD_PROTOCOL_PUT : HD_PROTOCOL_GET, 6);
}

// What a late rank has not taken yet no early one writes over.
TEST(Fixed, ArgumentsAreTouchedInTimeWhateverIsDelayed)
{
    if (!HasDevices(3))
        return;
    ASSERT_EQ(setenv("HEDDLE_CHAOS", std::to_string(Seed()).c_str(), 1), 0);
    CompareSizesOf(kSized, HD_TRANSFER_BULK, HD_PROTOCOL_PUT, 20);
    CompareSizesOf(kSizedPipelines[0], HD_TRANSFER_RING, HD_PROTOCOL_GET, 12);
    unsetenv("HEDDLE_CHAOS");
}

// ---------------------------------------------------------------- refusals

const char *const kPut =
    "heddle 2\nhost program put mesh tp=2 in %x : f32[64] shared\n"
    "out %y : f32[64] shared in %o : f32[64] shared\n"
    "{ group { send %x to 1 - tp get\n %y = recv from 1 - tp get } }\n";

// What each rank is told that fixes the arguments that `fix` gives.
void Refuses(const std::function<void(hd_group *, std::vector<void *> &)> &fix,
             hd_status status, const std::string &words)
{
    Module parsed = Read(kPut, "f32");
    const hd_module *module = parsed.get();

    ASSERT_NE(module, nullptr);
    AllEndWell(Launch(2, [&](hd_group *group, hd_diag *said) {
        hd_session_options options = DeviceOptions();
        hd_session *session = nullptr;
        hd_diag *told = hd_diag_create();
        {
            Places places(group);

            HD_TRY(places.Take(module, options.device, said));
            std::vector<void *> fixed = places.Address();
            fix(group, fixed);
            options.fixed = fixed.data();
            options.nfixed = fixed.size();
            hd_status got =
                hd_session_create(group, module, &options, told, &session);
            std::string text = hd_diag_text(told);
            if ((got != status && got != HD_ERROR_PEER) ||
                text.find(words) == std::string::npos)
                return hd_fail(said, HD_ERROR_INVALID, "%d: '%s', not '%s'",
                               int(got), text.c_str(), words.c_str());
        }
        hd_diag_destroy(told);
        // The group is of use still.
        return hd_group_allgather(group, nullptr, 0, nullptr, said);
    }));
}

TEST(Fixed, ArgumentsThatCannotBeAreRefusedOnAllRanks)
{
    static char host[256];

    Refuses(
        [](hd_group *group, std::vector<void *> &fixed) {
            if (hd_group_rank(group) == 1)
                fixed[0] = host;
        },
        HD_ERROR_ARGUMENT,
        OnCpu() ? "argument %x is fixed at 0x"
                : "which is no memory of a device");
    Refuses(
        [](hd_group *, std::vector<void *> &fixed) {
            fixed[0] = static_cast<char *>(fixed[0]) + 8;
        },
        HD_ERROR_ARGUMENT, "is no multiple of 16");
    // A page on the cpu, and on cuda what was asked for.
    Refuses(
        [](hd_group *, std::vector<void *> &fixed) {
            fixed[0] = static_cast<char *>(fixed[0]) - kAhead +
                       (OnCpu() ? 4096 : 256 + 2 * kAhead) - 16;
        },
        HD_ERROR_ARGUMENT, "and has 256 bytes, of which 16 are left there");
    Refuses([](hd_group *, std::vector<void *> &fixed) { fixed.pop_back(); },
            HD_ERROR_ARGUMENT, "takes 3 arguments, and 'fixed' has 2");
    Refuses(
        [](hd_group *group, std::vector<void *> &fixed) {
            fixed[1] = nullptr;
            if (hd_group_rank(group) == 1)
                fixed[2] = nullptr;
        },
        HD_ERROR_ARGUMENT, "fixed %x %o");
}

TEST(Fixed, ArgumentsOfARunAreWhereTheSessionHasThem)
{
    Module parsed = Read(kPut, "f32");
    const hd_module *module = parsed.get();

    ASSERT_NE(module, nullptr);
    AllEndWell(Launch(2, [&](hd_group *group, hd_diag *said) {
        hd_session_options options = DeviceOptions();
        hd_session *session = nullptr;
        hd_diag *told = hd_diag_create();
        {
            Places places(group), others(group);

            HD_TRY(places.Take(module, options.device, said));
            HD_TRY(others.Take(module, options.device, said));
            options.fixed = places.Address().data();
            options.nfixed = 3;
            HD_TRY(hd_session_create(group, module, &options, said, &session));
            std::vector<void *> wrong = places.Address();
            wrong[1] = others.Address()[1];
            RANK_EXPECT(hd_session_run(session, wrong.data(), 3, nullptr,
                                       told) == HD_ERROR_ARGUMENT);
            std::string text = hd_diag_text(told);
            char both[128];
            snprintf(both, sizeof both,
                     "argument %%y is at %p in this run, and the session has "
                     "it fixed at %p",
                     wrong[1], places.Address()[1]);
            RANK_EXPECT(text.find(both) != std::string::npos);
            hd_session_destroy(session);
        }
        hd_diag_destroy(told);
        return HD_OK;
    }));
}

// ------------------------------------------------------------------ memory

// It outlives sessions, is of one size or another, and goes with the group.
TEST(GroupMemory, IsThereUntilItIsFreedOrItsGroupGoes)
{
    AllEndWell(Launch(2, [&](hd_group *group, hd_diag *said) {
        std::string device = DeviceOptions().device;
        void *none = nullptr, *small = nullptr, *large = nullptr;

        HD_TRY(hd_group_alloc(group, device.c_str(), 0, said, &none));
        HD_TRY(hd_group_alloc(group, device.c_str(), 5, said, &small));
        HD_TRY(hd_group_alloc(group, device.c_str(), 1 << 20, said, &large));
        RANK_EXPECT(none != nullptr && small != none && large != small);
        RANK_EXPECT(reinterpret_cast<uintptr_t>(large) % 256 == 0);
        HD_TRY(hd_group_trim(group, said));
        if (OnCpu())
            memset(large, 1, 1 << 20);
        hd_group_free(group, small);
        hd_group_free(group, nullptr);
        RANK_EXPECT(hd_group_alloc(group, device.c_str(), SIZE_MAX - 4096,
                                   nullptr, &small) == HD_ERROR_NO_MEMORY);
        RANK_EXPECT(hd_group_alloc(group, "gpu", 1, nullptr, &small) ==
                    HD_ERROR_UNSUPPORTED);
        return HD_OK;
    }));
}

} // namespace
