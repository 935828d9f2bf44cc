// What a peer says that is not true: where its fixed arguments begin, and what
// it offers. The other rank refuses that with words and touches nothing.
#include <gtest/gtest.h>

#include <heddle/memory.h>

#include "runtime/ranks/group.h"
#include "runtime/rendezvous.h"
#include "tests/cuda/program.h"

namespace
{

// What a rank of the cpu tells of a fixed argument, beside a descriptor.
struct CpuNote {
    uint64_t bytes, offset;
};

// What a rank of cuda tells of each argument.
struct CudaNote {
    char ipc[64];
    void *context;
    uint64_t at, offset, bytes, number;
};

enum class Lie { NONE, BEGIN, LENGTH, OFFER, WINDOW };
Lie g_lie; // of rank 1

bool Lies(const hd_exchange *exchange, Lie lie)
{
    return g_lie == lie && hd_group_rank(exchange->group) == 1;
}

} // namespace

extern "C" {
hd_status __real_hd_exchange_post(const hd_exchange *exchange, int peer,
                                  const void *data, size_t bytes, int fd);
hd_status __wrap_hd_exchange_post(const hd_exchange *exchange, int peer,
                                  const void *data, size_t bytes, int fd);
hd_status __wrap_hd_exchange_post(const hd_exchange *exchange, int peer,
                                  const void *data, size_t bytes, int fd)
{
    CpuNote note;

    if (!Lies(exchange, Lie::BEGIN) || bytes != sizeof note || fd < 0)
        return __real_hd_exchange_post(exchange, peer, data, bytes, fd);
    memcpy(&note, data, sizeof note);
    note.offset = note.bytes + 4096;
    return __real_hd_exchange_post(exchange, peer, &note, sizeof note, fd);
}

hd_status __real_hd_exchange_allgather(const hd_exchange *exchange,
                                       const void *mine, size_t bytes,
                                       void *all);
hd_status __wrap_hd_exchange_allgather(const hd_exchange *exchange,
                                       const void *mine, size_t bytes,
                                       void *all);
hd_status __wrap_hd_exchange_allgather(const hd_exchange *exchange,
                                       const void *mine, size_t bytes,
                                       void *all)
{
    CudaNote note[2];

    if ((!Lies(exchange, Lie::BEGIN) && !Lies(exchange, Lie::LENGTH)) ||
        bytes != sizeof note)
        return __real_hd_exchange_allgather(exchange, mine, bytes, all);
    memcpy(note, mine, sizeof note);
    (g_lie == Lie::BEGIN ? note[0].offset : note[0].bytes) += uint64_t(1) << 30;
    return __real_hd_exchange_allgather(exchange, note, bytes, all);
}

hd_status __real_hd_offer_fill(const hd_root *roots, const hd_step *step,
                               const hd_rendezvous *rendezvous, hd_diag *diag,
                               hd_offer *out);
hd_status __wrap_hd_offer_fill(const hd_root *roots, const hd_step *step,
                               const hd_rendezvous *rendezvous, hd_diag *diag,
                               hd_offer *out);
hd_status __wrap_hd_offer_fill(const hd_root *roots, const hd_step *step,
                               const hd_rendezvous *rendezvous, hd_diag *diag,
                               hd_offer *out)
{
    hd_status status = __real_hd_offer_fill(roots, step, rendezvous, diag, out);

    if (g_lie == Lie::OFFER && rendezvous->peer == 0)
        out->offset |= uint64_t(0xffff) << HD_FIXED_SHIFT;
    return status;
}

void __real_hd_cuda_tell(hd_device *device, int peer, hd_told *out);
void __wrap_hd_cuda_tell(hd_device *device, int peer, hd_told *out);
void __wrap_hd_cuda_tell(hd_device *device, int peer, hd_told *out)
{
    uint64_t bytes; // it begins with those of the window

    __real_hd_cuda_tell(device, peer, out);
    if (g_lie != Lie::WINDOW || peer != 0)
        return;
    memcpy(&bytes, out->bytes, sizeof bytes);
    bytes += uint64_t(1) << 30;
    memcpy(out->bytes, &bytes, sizeof bytes);
}
}

namespace
{

const char *const kTaken =
    "heddle 2\nhost program taken mesh tp=2 in %x : f32[64] shared\n"
    "out %y : f32[64] shared\n"
    "{ group { send %x to 1 - tp get\n %y = recv from 1 - tp get } }\n";

// A session whose arguments are fixed, of which rank 1 lies; and a call of the
// group afterwards.
hd_status OpenWithLiar(Rank &rank, const Program &program, const char *device,
                       Lie lie)
{
    hd_session_options options = CudaOptions(10);
    hd_session *session = nullptr;
    void *at[2] = {};
    hd_status status = HD_OK;

    options.device = device;
    options.fixed = at;
    options.nfixed = 2;
    for (void *&one : at)
        HD_TRY(hd_group_alloc(rank.group, device, 256, rank.diag, &one));
    g_lie = lie;
    status = hd_session_create(rank.group, program.Module(), &options,
                               rank.diag, &session);
    g_lie = Lie::NONE;
    hd_session_destroy(session);
    for (void *one : at)
        hd_group_free(rank.group, one);
    HD_TRY(hd_group_allgather(rank.group, nullptr, 0, nullptr, rank.diag));
    return status;
}

// With a lie rank 0 refuses what rank 1 says, in these words.
void Refuses(const char *device, Lie lie, hd_status want,
             const std::string &words)
{
    Program program(kTaken);
    std::vector<Answer> answers = RunRanks(2, [&](Rank &rank) {
        return OpenWithLiar(rank, program, device, lie);
    });

    for (int i = 0; i < 2; i++) {
        const Answer &answer = answers[size_t(i)];

        Ended(answer, i);
        EXPECT_EQ(answer.status, want)
            << device << ", rank " << i << ": " << answer.text;
        EXPECT_TRUE(Has(answer, words)) << device << ": " << answer.text;
    }
}

TEST(Liars, OfWhereAFixedArgumentBeginsAreRefused)
{
    Refuses("cpu", Lie::NONE, HD_OK, "");
    Refuses("cpu", Lie::BEGIN, HD_ERROR_PEER,
            "rank 1 says that its argument %x begins at byte 8192 of memory "
            "that has 4096");
    Refuses("cuda", Lie::NONE, HD_OK, "");
    Refuses("cuda", Lie::BEGIN, HD_ERROR_PEER,
            "rank 1 says that an argument has 256 bytes from byte 1073741824 "
            "of memory that has 256");
    Refuses("cuda", Lie::LENGTH, HD_ERROR_PEER,
            "rank 1 says that an argument has 1073742080 bytes from byte 0 of "
            "memory that has 256");
}

TEST(Liars, OfHowLargeTheirWindowIsAreRefused)
{
    Refuses("cuda", Lie::WINDOW, HD_ERROR_PEER,
            "rank 1 says that its window has");
}

// In the second run rank 1 offers what it has not, at its sizes.
hd_status RunWithLiar(Rank &rank, const Program &program)
{
    const int64_t sizes[] = {40, 41};
    hd_session_options options = hd_session_defaults();
    hd_run_options run = HD_EMPTY(hd_run_options);
    hd_session *session = nullptr;
    std::vector<float> x(64), y(64);
    void *arguments[] = {x.data(), y.data()};
    hd_status status = HD_OK;

    options.timeout = kPatience;
    HD_TRY(hd_session_create(rank.group, program.Module(), &options, rank.diag,
                             &session));
    run.nsizes = 1;
    for (int i = 0; i < 2 && status == HD_OK; i++) {
        run.sizes = &sizes[i];
        g_lie = i == 1 ? Lie::OFFER : Lie::NONE;
        status = hd_session_run(session, arguments, 2, &run, rank.diag);
        if (status == HD_OK)
            status = hd_session_finish(session, rank.diag);
    }
    hd_session_destroy(session);
    return status;
}

TEST(Liars, OfWhatARunMayTouchAreRefused)
{
    Program program("heddle 2\nhost program taken param m in 1..64 mesh tp=2\n"
                    "in %x : f32[m] shared\nout %y : f32[m] shared\n"
                    "{ group { send %x to 1 - tp get\n"
                    " %y = recv from 1 - tp get } }\n");
    std::vector<Answer> answers =
        RunRanks(2, [&](Rank &rank) { return RunWithLiar(rank, program); });

    for (int i = 0; i < 2; i++) {
        const Answer &answer = answers[size_t(i)];

        Ended(answer, i);
        EXPECT_EQ(answer.status, HD_ERROR_PEER) << answer.text;
        EXPECT_TRUE(
            Has(answer, "run 2: rank 1 offers rank 0 164 bytes from byte") &&
            Has(answer, "of memory that has 0, where 164 are moved, at or "
                        "after 'send' (step 0, line 5)"))
            << answer.text;
    }
}

TEST(Liars, OfferNoArgumentThatThereIsNot)
{
    for (const char *device : {"cpu", "cuda"})
        Refuses(device, Lie::OFFER, HD_ERROR_PEER,
                "rank 1 offers 'recv' of rank 0 (step 1, line 5) 256 bytes "
                "from byte 0 of memory that has 0");
}

} // namespace
