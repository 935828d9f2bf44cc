// fake_nccl between processes, each against what it has to be.
#include <cstring>
#include <random>

#include "base/dtype.h"
#include "children.h"

namespace
{

constexpr size_t COUNT = 100003; // more than one piece, and no power of two

std::vector<int> Ints(int rank, size_t n)
{
    std::mt19937 random(static_cast<unsigned>(rank) + 11);
    std::vector<int> out(n);

    for (int &value : out)
        value = static_cast<int>(random()) >> 4;
    return out;
}

const void *From(hd_cu_ptr at)
{
    return reinterpret_cast<const void *>(at);
}

void *To(hd_cu_ptr at)
{
    return reinterpret_cast<void *>(at);
}

// What comes of a call, once that is known.
int Come(Rank &r, const hd_nccl_comm &comm, int result)
{
    if (result != HD_NCCL_SUCCESS && result != HD_NCCL_IN_PROGRESS)
        return result;
    do {
        usleep(100);
        EXPECT_EQ(r.nccl.async_error(comm, &result), 0);
    } while (result == HD_NCCL_IN_PROGRESS);
    return result;
}

hd_nccl_config Config(int blocking)
{
    return {sizeof(hd_nccl_config),
            HD_NCCL_CONFIG_MAGIC,
            HD_NCCL_CONFIG_VERSION,
            blocking,
            HD_NCCL_UNSAID,
            HD_NCCL_UNSAID,
            HD_NCCL_UNSAID,
            nullptr,
            HD_NCCL_UNSAID};
}

hd_nccl_comm Join(Rank &r)
{
    hd_nccl_comm comm = nullptr;
    hd_nccl_id id;

    if (r.rank == 0) {
        EXPECT_EQ(r.nccl.unique_id(&id), 0);
        memcpy(r.shared->note[0], &id, sizeof(id));
    }
    r.Meet();
    memcpy(&id, r.shared->note[0], sizeof(id));
    hd_nccl_config config = Config(0);
    EXPECT_EQ(
        Come(r, comm, r.nccl.comm_init(&comm, r.size, id, r.rank, &config)), 0);
    return comm;
}

TEST(FakeNccl, GathersAndReduces)
{
    InChildren(3, [](Rank &r) {
        hd_nccl_comm comm = Join(r);
        hd_cu_stream stream = r.Stream();
        size_t n = static_cast<size_t>(r.size), me = size_t(r.rank);
        hd_cu_ptr from = r.Put(Ints(r.rank, COUNT * n));
        hd_cu_ptr all = r.Memory(COUNT * n * 4), sum = r.Memory(COUNT * 4);
        hd_cu_ptr most = r.Memory(COUNT * 4), least = r.Memory(COUNT * 4);
        hd_cu_ptr part = r.Memory(COUNT * 4);
        hd_cu_ptr told = r.Memory(COUNT * 4);
        hd_cu_ptr own = r.Put(Ints(7 + r.rank, COUNT));
        std::vector<int> gathered, sums(COUNT), maxima(COUNT), mine(COUNT);
        std::vector<int> minima(COUNT);

        EXPECT_EQ(Come(r, comm,
                       r.nccl.all_gather(From(from), To(all), COUNT,
                                         HD_NCCL_I32, comm, stream)),
                  0);
        EXPECT_EQ(
            Come(r, comm,
                 r.nccl.all_reduce(From(from), To(sum), COUNT, HD_NCCL_I32,
                                   HD_NCCL_SUM, comm, stream)),
            0);
        EXPECT_EQ(
            Come(r, comm,
                 r.nccl.all_reduce(From(from), To(most), COUNT, HD_NCCL_I32,
                                   HD_NCCL_MAX, comm, stream)),
            0);
        EXPECT_EQ(
            Come(r, comm,
                 r.nccl.all_reduce(From(from), To(least), COUNT, HD_NCCL_I32,
                                   HD_NCCL_MIN, comm, stream)),
            0);
        EXPECT_EQ(
            Come(r, comm,
                 r.nccl.reduce_scatter(From(from), To(part), COUNT, HD_NCCL_I32,
                                       HD_NCCL_SUM, comm, stream)),
            0);
        EXPECT_EQ(Come(r, comm,
                       r.nccl.broadcast(From(from), To(told), COUNT,
                                        HD_NCCL_I32, 2, comm, stream)),
                  0);
        EXPECT_EQ(Come(r, comm,
                       r.nccl.reduce(From(from), To(own), COUNT, HD_NCCL_I32,
                                     HD_NCCL_SUM, 1, comm, stream)),
                  0);
        EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
        for (size_t rank = 0; rank < n; rank++) {
            std::vector<int> theirs = Ints(static_cast<int>(rank), COUNT * n);

            gathered.insert(gathered.end(), theirs.begin(),
                            theirs.begin() + COUNT);
            for (size_t i = 0; i < COUNT; i++) {
                sums[i] += theirs[i];
                maxima[i] =
                    rank == 0 ? theirs[i] : std::max(maxima[i], theirs[i]);
                minima[i] =
                    rank == 0 ? theirs[i] : std::min(minima[i], theirs[i]);
                mine[i] += theirs[me * COUNT + i];
            }
        }
        EXPECT_EQ(r.Get<int>(all, COUNT * n), gathered);
        EXPECT_EQ(r.Get<int>(sum, COUNT), sums);
        EXPECT_EQ(r.Get<int>(most, COUNT), maxima);
        EXPECT_EQ(r.Get<int>(least, COUNT), minima);
        EXPECT_EQ(r.Get<int>(part, COUNT), mine);
        EXPECT_EQ(r.Get<int>(told, COUNT), Ints(2, COUNT));
        EXPECT_EQ(r.Get<int>(own, COUNT),
                  r.rank == 1 ? sums : Ints(7 + r.rank, COUNT));
        for (hd_cu_ptr at : {from, all, sum, most, least, part, told, own})
            EXPECT_EQ(r.cu.free(at), 0);
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
        EXPECT_EQ(r.nccl.comm_destroy(comm), 0);
    });
}

TEST(FakeNccl, SumsHalvesInFloats)
{
    InChildren(3, [](Rank &r) {
        hd_nccl_comm comm = Join(r);
        std::vector<float> values(1000,
                                  0.001f * static_cast<float>(r.rank + 1));
        std::vector<uint16_t> codes(1000);

        hd_dtype_store_float(HD_DTYPE_BF16, values.data(), 1000, codes.data());
        hd_cu_ptr at = r.Put(codes);
        EXPECT_EQ(Come(r, comm,
                       r.nccl.all_reduce(From(at), To(at), 1000, HD_NCCL_BF16,
                                         HD_NCCL_SUM, comm, nullptr)),
                  0);
        EXPECT_EQ(r.cu.stream_synchronize(nullptr), 0);
        codes = r.Get<uint16_t>(at, 1000);
        hd_dtype_load_float(HD_DTYPE_BF16, codes.data(), 1000, values.data());
        for (float value : values)
            EXPECT_NEAR(value, 0.006f, 0.006f / 128);
        EXPECT_EQ(r.cu.free(at), 0);
        EXPECT_EQ(r.nccl.comm_destroy(comm), 0);
    });
}

// More is sent than any queue holds, so that all have to send and receive at
// once; replayed from a graph, and on two streams of one communicator.
TEST(FakeNccl, SendsAroundTheRing)
{
    InChildren(3, [](Rank &r) {
        hd_nccl_comm comm = Join(r);
        hd_cu_stream stream = r.Stream(), other = r.Stream();
        hd_cu_graph graph = nullptr;
        hd_cu_graph_exec exec = nullptr;
        int next = (r.rank + 1) % r.size, before = (r.rank + 2) % r.size;
        hd_cu_ptr from = r.Put(Ints(r.rank, COUNT));
        hd_cu_ptr to = r.Memory(COUNT * 4), last = r.Memory(COUNT * 4);
        auto ring = [&](hd_cu_ptr a, hd_cu_ptr b, hd_cu_stream in) {
            EXPECT_EQ(r.nccl.group_start(), 0);
            EXPECT_EQ(r.nccl.send(From(a), COUNT, HD_NCCL_I32, next, comm, in),
                      0);
            EXPECT_EQ(r.nccl.recv(To(b), COUNT, HD_NCCL_I32, before, comm, in),
                      0);
            EXPECT_EQ(Come(r, comm, r.nccl.group_end()), 0);
        };

        EXPECT_EQ(r.cu.capture_begin(stream, HD_CU_CAPTURE_RELAXED), 0);
        ring(from, to, stream);
        EXPECT_EQ(r.cu.capture_end(stream, &graph), 0);
        EXPECT_EQ(r.cu.graph_instantiate(&exec, graph, 0), 0);
        for (int i = 0; i < 3; i++)
            EXPECT_EQ(r.cu.graph_launch(exec, stream), 0);
        EXPECT_EQ(r.cu.stream_synchronize(stream), 0);
        EXPECT_EQ(r.Get<int>(to, COUNT), Ints(before, COUNT));
        ring(to, last, stream);
        ring(from, to, other);
        EXPECT_EQ(r.cu.stream_synchronize(other), 0);
        EXPECT_EQ(r.Get<int>(last, COUNT), Ints(next, COUNT));
        EXPECT_EQ(r.Get<int>(to, COUNT), Ints(before, COUNT));
        EXPECT_EQ(r.cu.graph_destroy(graph), 0);
        EXPECT_EQ(r.cu.graph_exec_destroy(exec), 0);
        for (hd_cu_ptr at : {from, to, last})
            EXPECT_EQ(r.cu.free(at), 0);
        EXPECT_EQ(r.cu.stream_destroy(stream), 0);
        EXPECT_EQ(r.cu.stream_destroy(other), 0);
        EXPECT_EQ(r.nccl.comm_destroy(comm), 0);
    });
}

TEST(FakeNccl, GivesUpWhenItIsAborted)
{
    InChildren(2, [](Rank &r) {
        hd_nccl_comm comm = Join(r);
        hd_cu_ptr at = r.Memory(64);
        int error = -1;

        // The first call of each connects them.
        EXPECT_EQ(
            Come(r, comm,
                 r.rank == 0
                     ? r.nccl.recv(To(at), 16, HD_NCCL_I32, 1, comm, nullptr)
                     : r.nccl.send(To(at), 16, HD_NCCL_I32, 0, comm, nullptr)),
            0);
        EXPECT_EQ(r.cu.stream_synchronize(nullptr), 0);
        if (r.rank == 0) {
            EXPECT_EQ(
                Come(r, comm,
                     r.nccl.recv(To(at), 16, HD_NCCL_I32, 1, comm, nullptr)),
                0);
            usleep(20000);
            EXPECT_EQ(r.cu.stream_query(nullptr), HD_CU_NOT_READY);
            EXPECT_EQ(r.nccl.async_error(comm, &error), 0);
            EXPECT_EQ(error, 0);
        }
        EXPECT_EQ(r.nccl.comm_abort(comm), 0);
        EXPECT_EQ(r.cu.stream_synchronize(nullptr), 0);
        EXPECT_EQ(r.cu.free(at), 0);
    });
}

// NCCL would connect the sending end of one to that of the other.
TEST(FakeNccl, RefusesToConnectTwoThatSendFirst)
{
    InChildren(2, [](Rank &r) {
        hd_nccl_comm comm = Join(r);
        hd_cu_ptr at = r.Memory(64);

        EXPECT_NE(Come(r, comm,
                       r.nccl.send(To(at), 16, HD_NCCL_I32, 1 - r.rank, comm,
                                   nullptr)),
                  0);
        EXPECT_EQ(r.nccl.comm_abort(comm), 0);
        EXPECT_EQ(r.cu.free(at), 0);
    });
}

// NCCL: "Attempt to use communicator before the previous operation returned
// ncclSuccess".
TEST(FakeNccl, RefusesACallBeforeTheLastOneIsKnownToBeDone)
{
    InChildren(2, [](Rank &r) {
        hd_nccl_comm comm = Join(r);
        hd_cu_ptr at = r.Memory(64);
        auto sum = [&] {
            return r.nccl.all_reduce(From(at), To(at), 16, HD_NCCL_I32,
                                     HD_NCCL_SUM, comm, nullptr);
        };

        EXPECT_EQ(sum(), HD_NCCL_IN_PROGRESS);
        EXPECT_EQ(sum(), 4);
        EXPECT_EQ(r.nccl.comm_destroy(comm), 4);
        EXPECT_EQ(Come(r, comm, HD_NCCL_SUCCESS), 0);
        EXPECT_EQ(Come(r, comm, sum()), 0);
        EXPECT_EQ(r.cu.stream_synchronize(nullptr), 0);
        EXPECT_EQ(r.cu.free(at), 0);
        EXPECT_EQ(r.nccl.comm_destroy(comm), 0);
    });
}

// The new one does what it is asked for before a call returns, and the two know
// nothing of each other.
TEST(FakeNccl, SplitsOneThatBlocksFromOneThatDoesNot)
{
    InChildren(2, [](Rank &r) {
        hd_nccl_comm comm = Join(r), lent = nullptr;
        hd_nccl_config config = Config(1);
        hd_cu_ptr at = r.Put(Ints(r.rank, 16));
        std::vector<int> sum = Ints(0, 16);

        EXPECT_EQ(
            Come(r, comm, r.nccl.comm_split(comm, 0, r.rank, &lent, &config)),
            0);
        EXPECT_EQ(r.nccl.all_reduce(From(at), To(at), 16, HD_NCCL_I32,
                                    HD_NCCL_SUM, lent, nullptr),
                  HD_NCCL_SUCCESS);
        EXPECT_EQ(r.cu.stream_synchronize(nullptr), 0);
        for (size_t i = 0; i < sum.size(); i++)
            sum[i] += Ints(1, 16)[i];
        EXPECT_EQ(r.Get<int>(at, 16), sum);
        EXPECT_EQ(r.cu.free(at), 0);
        EXPECT_EQ(r.nccl.comm_destroy(lent), 0);
        EXPECT_EQ(r.nccl.comm_destroy(comm), 0);
    });
}

// The first to come waits for the others, whatever they do meanwhile.
TEST(FakeNccl, EndsACommunicatorOnAllRanksTogether)
{
    InChildren(2, [](Rank &r) {
        hd_nccl_comm comm = Join(r);

        if (r.rank == 1) {
            usleep(50000);
            r.shared->note[0][200] = 1;
        }
        EXPECT_EQ(r.nccl.comm_destroy(comm), 0);
        EXPECT_EQ(r.shared->note[0][200], 1);
    });
}

TEST(FakeNccl, NoticesThatRanksDoNotDoTheSame)
{
    InChildren(2, [](Rank &r) {
        hd_nccl_comm comm = Join(r);
        hd_cu_ptr at = r.Memory(64);
        int error = -1;

        // It may have run by the time that it is known to be in the stream.
        int come =
            Come(r, comm,
                 r.nccl.all_reduce(From(at), To(at), r.rank == 0 ? 16 : 8,
                                   HD_NCCL_I32, HD_NCCL_SUM, comm, nullptr));
        EXPECT_TRUE(come == 0 || come == 5) << come;
        EXPECT_EQ(r.cu.stream_synchronize(nullptr), 0);
        EXPECT_EQ(r.nccl.async_error(comm, &error), 0);
        EXPECT_EQ(error, 5);
        EXPECT_EQ(r.nccl.recv(To(at), 1, HD_NCCL_I32, 2, comm, nullptr), 4)
            << "no such rank";
        EXPECT_EQ(r.cu.free(at), 0);
        EXPECT_EQ(r.nccl.comm_destroy(comm), 0);
    });
}

} // namespace
