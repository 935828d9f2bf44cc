// What launches keep from starting (docs/checking.md, Launches), as a model
// that is explored over all interleavings. Written from that page: it shares
// nothing with check/.
#ifndef HD_TESTS_MODEL_LAUNCHES_H
#define HD_TESTS_MODEL_LAUNCHES_H

#include <algorithm>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace launches
{

enum Kind { COMPUTE, RECORD, WAIT, TRANSFERS, FORK, JOIN };

// `to` and `from` are ranks; of a collective of all ranks both are -1.
struct Transfer {
    int to = -1, from = -1;
    int done = -1;      // the event of a send that its stream does not wait for
    bool quiet = false; // of a collective: no kernel does any of it
    bool gathers = false; // a collective that reduces nothing
    bool IsCollective() const
    {
        return to < 0 && from < 0;
    }
    bool IsBusy() const
    {
        return IsCollective() && !quiet;
    }
};

struct Item {
    Kind kind;
    int stream;                   // 0 is the caller's
    int launch = 0;               // which of the rank's, from 1
    std::vector<int> events = {}; // recorded, one, or waited for
    std::vector<Transfer> members = {};
};

struct Job {
    int nstreams; // with the caller's
    bool busy;    // sends and recvs take processors, too
    std::vector<std::vector<Item>> ranks;
    bool nccl = false; // transfers are calls of NCCL's (docs, Over NCCL)
    bool IsBusy(const Transfer &t) const
    {
        return busy || nccl || t.IsBusy();
    }
};

class Model
{
  public:
    enum Verdict { ENDS, HANGS, TOO_LARGE };

    explicit Model(const Job &job) : job_(job)
    {
        for (int rank = 0; rank < Ranks(); rank++)
            Add(rank);
    }

    // It hangs if some interleaving comes to where nothing can happen, and
    // something has not.
    Verdict Explore(size_t most) const
    {
        std::string begin(Ranks() * (job_.nstreams + 2), 0);
        std::vector<std::string> stack = {begin};
        std::unordered_set<std::string> seen(stack.begin(), stack.end());

        while (!stack.empty()) {
            const std::string state = stack.back();
            std::vector<std::string> next = Next(state);

            stack.pop_back();
            if (next.empty() && !IsOver(state))
                return HANGS;
            for (const std::string &s : next)
                if (seen.insert(s).second)
                    stack.push_back(s);
            if (seen.size() > most)
                return TOO_LARGE;
        }
        return ENDS;
    }

  private:
    // Of a rank's transfers, as they are issued.
    struct Part {
        const Item *item;
        int stream, place; // of its item
        const Transfer *transfer;
        std::vector<std::pair<int, int>> meets; // ranks and their transfers
    };

    int Ranks() const
    {
        return static_cast<int>(job_.ranks.size());
    }

    void Add(int rank)
    {
        std::vector<std::vector<const Item *>> streams(job_.nstreams);

        int forked = 0;

        parts_.emplace_back();
        for (const Item &item : job_.ranks[rank]) {
            int place = static_cast<int>(streams[item.stream].size());

            after_[&item] = item.stream > 0 ? forked : 0;
            if (item.kind == FORK)
                forked = place + 1;

            std::vector<const Transfer *> members;
            for (const Transfer &t : item.members)
                members.push_back(&t);
            if (job_.nccl) // its collectives are calls ahead of the others'
                std::stable_partition(
                    members.begin(), members.end(),
                    [](const Transfer *t) { return t->IsCollective(); });
            for (const Transfer *t : members)
                parts_[rank].push_back({&item, item.stream, place, t, {}});
            streams[item.stream].push_back(&item);
        }
        streams_.push_back(streams);
        if (rank + 1 == Ranks())
            Meet();
    }

    // The k-th to a rank meets the k-th that is received there from this one.
    void Meet()
    {
        std::map<std::vector<int>, std::vector<std::pair<int, int>>> met;

        for (int rank = 0; rank < Ranks(); rank++) {
            std::map<std::vector<int>, int> number;

            for (size_t i = 0; i < parts_[rank].size(); i++) {
                const Transfer &t = *parts_[rank][i].transfer;
                std::vector<int> key =
                    t.IsCollective() ? std::vector<int>{-1, -1}
                    : t.to >= 0      ? std::vector<int>{rank, t.to}
                                     : std::vector<int>{t.from, rank};

                int k = number[{key[0], key[1], t.to >= 0}]++;
                key.push_back(k);
                met[key].push_back({rank, static_cast<int>(i)});
            }
        }
        for (const auto &m : met)
            for (const auto &at : m.second)
                parts_[at.first][at.second].meets = m.second;
    }

    // Of a state: how far a stream is, how many transfers of the rank have
    // started, and which launch is under way.
    size_t At(int rank, int what) const
    {
        return static_cast<size_t>(rank) * (job_.nstreams + 2) + what;
    }
    int Started(const std::string &state, int rank) const
    {
        return state[At(rank, job_.nstreams)];
    }
    int UnderWay(const std::string &state, int rank) const
    {
        return state[At(rank, job_.nstreams + 1)];
    }

    bool HasEnded(const std::string &state, const Part &part) const
    {
        return std::all_of(part.meets.begin(), part.meets.end(),
                           [&](std::pair<int, int> at) {
                               return Started(state, at.first) > at.second;
                           });
    }

    // The last fork that was issued ahead of it.
    bool HasForked(const std::string &state, int rank, const Item &item) const
    {
        return state[At(rank, 0)] >= after_.at(&item);
    }

    bool HasCome(const std::string &state, int rank, const Part &part) const
    {
        return HasForked(state, rank, *part.item) &&
               state[At(rank, part.stream)] >= part.place;
    }

    bool IsRecorded(const std::string &state, int rank, int event) const
    {
        for (int stream = 0; stream < job_.nstreams; stream++)
            for (int i = 0; i < state[At(rank, stream)]; i++) {
                const Item &item = *streams_[rank][stream][i];

                if (item.kind == RECORD && item.events[0] == event)
                    return true;
            }
        for (const Part &p : parts_[rank])
            if (p.transfer->done == event)
                return job_.nccl ? HasEnded(state, rank, *p.item)
                                 : HasEnded(state, p);
        return false;
    }

    // But for what its stream does not wait for.
    bool HasEnded(const std::string &state, int rank, const Item &item) const
    {
        return std::all_of(parts_[rank].begin(), parts_[rank].end(),
                           [&](const Part &p) {
                               return p.item != &item ||
                                      (p.transfer->done >= 0 && !job_.nccl) ||
                                      HasEnded(state, p);
                           });
    }

    // A call of NCCL's begins when those issued ahead of it have ended.
    bool MayCall(const std::string &state, int rank, size_t at) const
    {
        const Part &part = parts_[rank][at];

        for (size_t i = 0; i < at; i++) {
            const Part &ahead = parts_[rank][i];
            bool same = ahead.item == part.item &&
                        !ahead.transfer->IsCollective() &&
                        !part.transfer->IsCollective();

            if (!same && !HasEnded(state, ahead))
                return false;
        }
        return true;
    }

    // Whether all work streams are past what was issued ahead of it.
    bool HasJoined(const std::string &state, int rank, const Item &join) const
    {
        for (int s = 1; s < job_.nstreams; s++) {
            const auto &items = streams_[rank][s];
            size_t at = static_cast<size_t>(state[At(rank, s)]);

            if (at < items.size() && items[at] < &join) // as they are issued
                return false;
        }
        return true;
    }

    // Whether the stream may go past the item that it has come to.
    bool MayPass(const std::string &state, int rank, const Item &item) const
    {
        switch (item.kind) {
        case COMPUTE:
            return UnderWay(state, rank) == item.launch;
        case FORK:
        case RECORD:
            return true;
        case WAIT:
            return std::all_of(
                item.events.begin(), item.events.end(),
                [&](int e) { return IsRecorded(state, rank, e); });
        case TRANSFERS:
            return HasEnded(state, rank, item);
        case JOIN:
            return HasJoined(state, rank, item);
        }
        return false;
    }

    void AddStream(const std::string &state, int rank, int stream,
                   std::vector<std::string> *next) const
    {
        size_t at = static_cast<size_t>(state[At(rank, stream)]);
        const auto &items = streams_[rank][stream];

        if (at == items.size() || !HasForked(state, rank, *items[at]))
            return;
        const Item &item = *items[at];
        std::string then = state;
        if (item.launch > 0 && UnderWay(state, rank) != item.launch) {
            if (UnderWay(state, rank) != 0)
                return;
            then[At(rank, job_.nstreams + 1)] = static_cast<char>(item.launch);
            next->push_back(then);
        } else if (MayPass(state, rank, item)) {
            then[At(rank, stream)]++;
            if (item.launch > 0 && (at + 1 == items.size() ||
                                    items[at + 1]->launch != item.launch))
                then[At(rank, job_.nstreams + 1)] = 0;
            next->push_back(then);
        }
    }

    void AddTransfer(const std::string &state, int rank,
                     std::vector<std::string> *next) const
    {
        size_t at = static_cast<size_t>(Started(state, rank));

        if (at == parts_[rank].size())
            return;
        const Part &part = parts_[rank][at];
        if (!HasCome(state, rank, part))
            return;
        if ((job_.IsBusy(*part.transfer) || part.item->launch > 0) &&
            UnderWay(state, rank) != part.item->launch)
            return;
        if (job_.nccl && !MayCall(state, rank, at))
            return;
        std::string then = state;
        then[At(rank, job_.nstreams)]++;
        next->push_back(then);
    }

    std::vector<std::string> Next(const std::string &state) const
    {
        std::vector<std::string> next;

        for (int rank = 0; rank < Ranks(); rank++) {
            for (int stream = 0; stream < job_.nstreams; stream++)
                AddStream(state, rank, stream, &next);
            AddTransfer(state, rank, &next);
        }
        return next;
    }

    bool IsOver(const std::string &state) const
    {
        for (int rank = 0; rank < Ranks(); rank++)
            for (int s = 0; s < job_.nstreams; s++)
                if (state[At(rank, s)] <
                    static_cast<int>(streams_[rank][s].size()))
                    return false;
        return true;
    }

    const Job &job_;
    std::map<const Item *, int> after_; // steps of the caller's stream
    std::vector<std::vector<std::vector<const Item *>>> streams_;
    std::vector<std::vector<Part>> parts_;
};

} // namespace launches

#endif
