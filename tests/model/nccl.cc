// What NCCL is assumed to do (docs/checking.md, Over NCCL), as a model that is
// explored over all interleavings, and what the checker says of the same
// programs. Written from that page: it shares nothing with check/.
//
//     launch   what a rank gives NCCL at once: a collective, or all that a
//              group sends and receives along one axis
//     copy     one transfer along an axis that NCCL does not serve
#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "tests/seed.h"
#include "tests/unit/program.h"

namespace
{

struct Transfer {
    int axis;
    int to;   // coordinate along it that this sends to
    int from; // or receives from; both below 0: a collective
    bool nccl;
    bool deferred = false;
    bool IsCollective() const
    {
        return to < 0 && from < 0;
    }
};

struct Group {
    int stream;
    int after; // a group of the rank that it waits for, or -1
    int sent;  // likewise one whose deferred send has to have ended
    std::vector<Transfer> members;
};

// The send of a group that its stream does not wait for, one at most.
const Transfer *Deferred(const Group &g)
{
    for (const Transfer &t : g.members)
        if (t.deferred)
            return &t;
    return nullptr;
}

enum { AXES = 3 };
const char *const kAxis[AXES] = {"dp", "tp", "pp"};

struct Job {
    int size[AXES];
    bool nccl[AXES];
    std::vector<std::vector<Group>> ranks; // as they are issued
    int Stride(int axis) const
    {
        int stride = 1;

        for (int a = axis + 1; a < AXES; a++)
            stride *= size[a];
        return stride;
    }
    int Coordinate(int rank, int axis) const
    {
        return rank / Stride(axis) % size[axis];
    }
    int At(int rank, int axis, int coordinate) const
    {
        return rank + (coordinate - Coordinate(rank, axis)) * Stride(axis);
    }
};

struct Item {
    int rank, run, group;
    int turn; // of its group: items of later turns wait; copies have the last
    bool nccl;
    bool records;           // an event at its end, by a send of its
    bool deferred;          // its stream goes on at its start
    std::vector<int> meets; // items that have to have started
};

// What the page says, or what the driver does where that is sooner: it records
// the event of a send behind the calls of its group, ahead of the copies, and
// starts deferred copies of a group ahead of its calls.
enum Rules { OF_THE_PAGE, OF_THE_DRIVER };

class Model
{
  public:
    Model(const Job &job, int runs, Rules rules = OF_THE_PAGE)
        : job_(job), rules_(rules)
    {
        for (int rank = 0; rank < static_cast<int>(job.ranks.size()); rank++)
            for (int run = 0; run < runs; run++)
                for (size_t g = 0; g < job.ranks[rank].size(); g++)
                    Add(rank, run, static_cast<int>(g));
        for (int run = 0; run < runs; run++)
            Meet(run);
    }

    enum Verdict { ENDS, HANGS, TOO_LARGE };

    // It hangs if some interleaving comes to where nothing that is promised
    // can happen any more.
    Verdict Explore(size_t most) const
    {
        std::vector<std::string> stack = {std::string(items_.size(), NOTHING)};
        std::unordered_set<std::string> seen(stack.begin(), stack.end());

        while (!stack.empty()) {
            std::string state = stack.back(), next;
            bool promised = false;

            stack.pop_back();
            for (size_t i = 0; i < items_.size(); i++) {
                bool may = false, must = false;

                if (state[i] == NOTHING)
                    LookAtStart(state, i, &may, &must);
                else if (state[i] == STARTED)
                    may = must = HasMet(state, i);
                promised |= must;
                if (!may)
                    continue;
                next = state;
                next[i]++;
                if (seen.insert(next).second)
                    stack.push_back(next);
            }
            if (!promised && state != std::string(items_.size(), ENDED))
                return HANGS;
            if (seen.size() > most)
                return TOO_LARGE;
        }
        return ENDS;
    }

  private:
    enum : char { NOTHING = '0', STARTED, ENDED };

    void Add(int rank, int run, int group)
    {
        const Group &g = job_.ranks[rank][group];
        int turn = 0;

        for (int axis = 0; axis < AXES; axis++) {
            std::vector<const Transfer *> pairs;

            for (const Transfer &t : g.members) {
                if (!t.nccl || t.axis != axis)
                    continue;
                if (t.IsCollective())
                    New(rank, run, group, turn++, {&t});
                else
                    pairs.push_back(&t);
            }
            if (!pairs.empty())
                New(rank, run, group, turn++, pairs);
        }
        for (const Transfer &t : g.members)
            if (!t.nccl)
                New(rank, run, group, turn, {&t});
    }

    void New(int rank, int run, int group, int turn,
             const std::vector<const Transfer *> &transfers)
    {
        bool nccl = transfers[0]->nccl, records = false;

        for (const Transfer *t : transfers)
            records |= t->deferred;
        items_.push_back(
            {rank, run, group, turn, nccl, records, records && !nccl, {}});
        for (const Transfer *t : transfers)
            of_[{run, t}] = static_cast<int>(items_.size()) - 1;
    }

    // The k-th from one rank to another along an axis meets the k-th that is
    // received; the k-th collective of each rank of a line meet.
    void Meet(int run)
    {
        std::map<std::vector<int>, std::vector<int>> sends, recvs, lines;

        for (int rank = 0; rank < static_cast<int>(job_.ranks.size()); rank++) {
            std::map<int, int> number;

            for (const Group &g : job_.ranks[rank])
                for (const Transfer &t : g.members) {
                    int item = of_.at({run, &t});

                    if (t.IsCollective())
                        lines[{t.axis, job_.At(rank, t.axis, 0),
                               number[t.axis]++}]
                            .push_back(item);
                    else if (t.to >= 0)
                        sends[{t.axis, rank, job_.At(rank, t.axis, t.to)}]
                            .push_back(item);
                    else
                        recvs[{t.axis, job_.At(rank, t.axis, t.from), rank}]
                            .push_back(item);
                }
        }
        for (const auto &line : lines)
            for (int item : line.second)
                items_[item].meets.insert(items_[item].meets.end(),
                                          line.second.begin(),
                                          line.second.end());
        for (const auto &pair : sends)
            for (size_t k = 0; k < pair.second.size(); k++) {
                int send = pair.second[k], recv = recvs.at(pair.first).at(k);

                items_[send].meets.push_back(recv);
                items_[recv].meets.push_back(send);
            }
    }

    // What its stream comes to first, of the same rank; it goes past what is
    // deferred once that has started. A run comes after the one before it.
    bool IsAhead(const Item &it, const Item &other) const
    {
        const std::vector<Group> &groups = job_.ranks[it.rank];

        if (other.run != it.run)
            return other.run < it.run;
        if (other.group == it.group)
            return other.turn < it.turn &&
                   (rules_ == OF_THE_PAGE || !it.deferred);
        return other.group == groups[it.group].after ||
               (other.group < it.group &&
                groups[other.group].stream == groups[it.group].stream);
    }

    // Over NCCL the event of a send is that of its group.
    bool IsHeld(const Item &it, const Item &other, char state) const
    {
        const std::vector<Group> &groups = job_.ranks[it.rank];
        int sent = groups[it.group].sent;

        if (it.run == other.run && other.group == sent &&
            (other.records || (Deferred(groups[sent])->nccl &&
                               (rules_ == OF_THE_PAGE || other.nccl))))
            return state != ENDED;
        return IsAhead(it, other) &&
               (other.deferred ? state == NOTHING : state != ENDED);
    }

    void LookAtStart(const std::string &state, size_t i, bool *may,
                     bool *must) const
    {
        const Item &it = items_[i];

        *may = *must = true;
        for (size_t k = 0; k < items_.size(); k++) {
            const Item &other = items_[k];
            bool earlier = k < i && other.rank == it.rank;

            if (other.rank == it.rank && k != i && IsHeld(it, other, state[k]))
                *may = false;
            // What NCCL has from a rank it may serve one after the other.
            if (earlier && it.nccl && other.nccl && state[k] != ENDED)
                *must = false;
            if (earlier && !it.nccl && !other.nccl && state[k] == NOTHING)
                *may = false;
        }
        *must &= *may;
    }

    bool HasMet(const std::string &state, size_t i) const
    {
        return std::all_of(items_[i].meets.begin(), items_[i].meets.end(),
                           [&](int k) { return state[k] != NOTHING; });
    }

    const Job &job_;
    Rules rules_;
    std::vector<Item> items_; // each rank's in the order of its groups
    std::map<std::pair<int, const Transfer *>, int> of_; // by run
};

// Transfers that match in themselves, in any order on each rank, often in the
// same one on all.
Job Draw(std::mt19937_64 &random)
{
    auto pick = [&](int n) {
        return static_cast<int>(random() % static_cast<unsigned>(n));
    };
    static const int kSizes[][AXES] = {
        {2, 2, 1}, {2, 1, 1}, {1, 3, 1}, {2, 1, 2}, {2, 2, 2}};
    const int *size = kSizes[pick(5)];
    Job job = {{size[0], size[1], size[2]}, {true, true, true}, {}};
    int ranks = size[0] * size[1] * size[2];
    std::vector<std::vector<Transfer>> all(ranks);
    bool shuffled = pick(3) > 0;

    for (bool &nccl : job.nccl)
        nccl = pick(3) > 0;
    for (int n = 2 + pick(5); n > 0; n--) {
        int axis = pick(AXES), rank = pick(ranks), line = pick(2);

        while (size[axis] == 1)
            axis = (axis + 1) % AXES;
        if (line == 0) {
            for (int k = 0; k < size[axis]; k++)
                all[job.At(rank, axis, k)].push_back(
                    {axis, -1, -1, job.nccl[axis]});
            continue;
        }
        int from = job.Coordinate(rank, axis),
            to = (from + 1 + pick(size[axis] - 1)) % size[axis];

        all[rank].push_back({axis, to, -1, job.nccl[axis]});
        all[job.At(rank, axis, to)].push_back({axis, -1, from, job.nccl[axis]});
    }
    for (std::vector<Transfer> &mine : all) {
        std::vector<Group> groups;

        if (shuffled)
            std::shuffle(mine.begin(), mine.end(), random);
        for (size_t i = 0; i < mine.size();) {
            size_t n = std::min<size_t>(1 + pick(3), mine.size() - i);
            Group g = {
                pick(2), -1, -1, {mine.begin() + i, mine.begin() + i + n}};

            for (size_t k = 0; k < groups.size(); k++) {
                if (groups[k].stream != g.stream && pick(4) == 0)
                    g.after = static_cast<int>(k);
                if (Deferred(groups[k]) != nullptr && pick(3) == 0)
                    g.sent = static_cast<int>(k);
            }
            for (Transfer &t : g.members)
                if (t.to >= 0 && pick(3) > 0) {
                    t.deferred = true;
                    break;
                }
            groups.push_back(g);
            i += n;
        }
        job.ranks.push_back(groups);
    }
    return job;
}

std::string EventOf(const char *name, int rank, size_t group)
{
    return std::string("%") + name + "[" +
           std::to_string(16 * rank + static_cast<int>(group)) + "] ";
}

std::string TextOf(const Job &job)
{
    std::string mesh, gathered;
    int slot = 0;

    for (int axis = 0; axis < AXES; axis++) {
        std::string size = std::to_string(job.size[axis]);

        mesh += std::string(axis > 0 ? ", " : " ") + kAxis[axis] + "=" + size;
        gathered += "temp %g" + std::to_string(axis) + " : f32[" + size +
                    ", 4] shared ";
    }
    std::string text =
        "host program calls mesh" + mesh +
        " streams 2 in %x : f32[4] temp %y : f32[64, 4] shared " + gathered +
        "temp %e : event[128] temp %d : event[128] { fork ";

    for (int rank = 0; rank < static_cast<int>(job.ranks.size()); rank++) {
        const std::vector<Group> &groups = job.ranks[rank];
        std::vector<std::string> records(groups.size());

        for (int axis = 0; axis < AXES; axis++)
            text += std::string("if ") + kAxis[axis] +
                    " == " + std::to_string(job.Coordinate(rank, axis)) + " { ";
        for (size_t i = 0; i < groups.size(); i++)
            for (size_t k = 0; k < groups.size(); k++)
                if (groups[k].after == static_cast<int>(i))
                    records[i] += EventOf("e", rank, k) + "= record ";
        for (size_t i = 0; i < groups.size(); i++) {
            const Group &g = groups[i];

            text += "on stream " + std::to_string(g.stream) + " { ";
            if (g.after >= 0)
                text += "wait " + EventOf("e", rank, i);
            if (g.sent >= 0)
                text +=
                    "wait " + EventOf("d", rank, static_cast<size_t>(g.sent));
            text += "group { ";
            for (const Transfer &t : g.members) {
                std::string axis = std::string("@") + kAxis[t.axis] + " ";

                if (t.IsCollective())
                    text += "%g" + std::to_string(t.axis) + " = all_gather" +
                            axis + "%x ";
                else if (t.to >= 0)
                    text += "send" + axis + "%x to " + std::to_string(t.to) +
                            (t.deferred ? " done " + EventOf("d", rank, i)
                                        : std::string(" "));
                else
                    text += "%y[" + std::to_string(slot++ % 64) + "] = recv" +
                            axis + "from " + std::to_string(t.from) + " ";
            }
            text += "} " + records[i] + "} ";
        }
        text += "} } } ";
    }
    return text + "join }";
}

// What the checker says over these transports.
bool IsRefused(const Job &job, const std::string &text)
{
    Program p(text);
    hd_check_options options = hd_check_defaults();
    std::string axes;

    for (int axis = 0; axis < AXES; axis++)
        axes += std::string(axis > 0 ? "," : "") + kAxis[axis] + "=" +
                (job.nccl[axis] ? "nccl" : "copy");

    EXPECT_EQ(p.status, HD_OK) << p.Said() << text;
    if (p.status != HD_OK)
        return false;
    options.axes = axes.c_str();
    hd_status status = hd_check(p.module, &options, p.diag);
    bool refused = p.Said().find("HD0708") != std::string::npos ||
                   p.Said().find("HD0706") != std::string::npos;

    EXPECT_FALSE(refused && status == HD_OK) << p.Said();
    EXPECT_EQ(p.Said().find("HD07") != std::string::npos, refused)
        << p.Said() << text;
    return refused;
}

Job ByCopies(Job job)
{
    std::fill(job.nccl, job.nccl + AXES, false);
    for (std::vector<Group> &groups : job.ranks)
        for (Group &g : groups)
            for (Transfer &t : g.members)
                t.nccl = false;
    return job;
}

// A program has to end by copies alone, too.
Model::Verdict Judge(const Job &job, int runs, Rules rules = OF_THE_PAGE)
{
    const size_t most = 100000;
    Model::Verdict verdict = Model(job, runs, rules).Explore(most);

    if (verdict != Model::ENDS)
        return verdict;
    Job copies = ByCopies(job);
    return Model(copies, runs, rules).Explore(most);
}

// The page has rank 0's event wait for the copy of its group, which ends with
// rank 1's recv, behind a send that rank 0 receives after the event. The driver
// does not, so the verdict is a careful one.
//
//     rank 0   group { send@dp done %d  send@tp }  |  wait %d  recv@tp
//     rank 1   send@tp  recv@tp
//     rank 2   recv@dp
TEST(Nccl, AnEventIsJudgedWithTheCopiesOfItsGroupThatTheDriverDoesNotWaitFor)
{
    Transfer sent = {0, 1, -1, true, true};
    Job job = {{2, 2, 1}, {true, false, true}, {}};

    job.ranks = {
        {{0, -1, -1, {sent, {1, 1, -1, false}}},
         {1, -1, 0, {{1, -1, 1, false}}}},
        {{0, -1, -1, {{1, 0, -1, false}}}, {0, -1, -1, {{1, -1, 0, false}}}},
        {{0, -1, -1, {{0, -1, 0, true}}}},
        {}};
    EXPECT_EQ(Judge(job, 1), Model::HANGS);
    EXPECT_EQ(Judge(job, 1, OF_THE_DRIVER), Model::ENDS);
    EXPECT_TRUE(IsRefused(job, TextOf(job))) << TextOf(job);
    // Apart from the copy it is judged as it is done.
    job.ranks[0].insert(job.ranks[0].begin() + 1,
                        {0, -1, -1, {job.ranks[0][0].members[1]}});
    job.ranks[0][0].members.pop_back();
    EXPECT_EQ(Judge(job, 1), Model::ENDS);
    EXPECT_FALSE(IsRefused(job, TextOf(job))) << TextOf(job);
}

// HEDDLE_NCCL_PROGRAMS is how many.
TEST(Nccl, ARandomProgramIsRefusedIfSomeInterleavingOfItsLaunchesHangs)
{
    const char *given = std::getenv("HEDDLE_NCCL_PROGRAMS");
    uint64_t n = given != nullptr ? std::strtoull(given, nullptr, 0) : 300;
    uint64_t first = Seed();
    int hang = 0, run = 0, large = 0, careful = 0;

    for (uint64_t seed = first; seed < first + n; seed++) {
        std::mt19937_64 random(seed);
        Job job = Draw(random);
        std::string text = TextOf(job);
        int runs = 1 + (seed % 4 == 0);
        Model::Verdict verdict = Judge(job, runs);

        if (verdict == Model::TOO_LARGE) {
            large++;
            continue;
        }
        ASSERT_EQ(IsRefused(job, text), verdict == Model::HANGS)
            << "HEDDLE_TEST_SEED=" << seed << "\n"
            << text;
        (verdict == Model::HANGS ? hang : run)++;
        Model::Verdict driven = Judge(job, runs, OF_THE_DRIVER);
        EXPECT_FALSE(driven == Model::HANGS && verdict == Model::ENDS)
            << "HEDDLE_TEST_SEED=" << seed << "\n"
            << text;
        careful += driven == Model::ENDS && verdict == Model::HANGS;
    }
    std::printf("%d hang, of which %d end as the driver does them, %d run, %d "
                "were too large\n",
                hang, careful, run, large);
    EXPECT_GT(hang, static_cast<int>(n / 10));
    EXPECT_GT(run, static_cast<int>(n / 10));
    EXPECT_LT(large, static_cast<int>(n / 10));
}

} // namespace
