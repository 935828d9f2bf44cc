#include "tests/second/launches.h"

#include <algorithm>
#include <limits>
#include <set>

#include "tests/model/launches.h"

namespace second
{

namespace
{

enum { MOST_STATES = 4000 };

bool HasLaunch(const std::vector<Stmt> &block)
{
    return std::any_of(block.begin(), block.end(), [](const Stmt &stmt) {
        return stmt.kind == "launch" || HasLaunch(stmt.body) ||
               HasLaunch(stmt.otherwise);
    });
}

bool Overlap(const Region &a, const Region &b)
{
    std::vector<int64_t> of_a = a.Offsets();
    std::set<int64_t> places(of_a.begin(), of_a.end());

    if (a.root != b.root)
        return false;
    for (int64_t at : b.Offsets())
        if (places.count(at))
            return true;
    return false;
}

// Whether the rank copies nothing within itself.
bool IsQuiet(const Work &work)
{
    return (work.op == "all_gather" || work.op == "broadcast") &&
           (work.reads.empty() || work.writes.empty() ||
            Overlap(work.reads[0], work.writes[0]));
}

// A rank's steps as items. Each event is the number of what records it last.
class Reader
{
  public:
    Reader(int rank, int ranks) : rank_(rank), ranks_(ranks)
    {
    }
    void Add(const Step &step);
    // Positions are chars.
    bool Fits() const
    {
        return fits_ && items.size() < 120 && transfers_ < 120;
    }

    std::vector<launches::Item> items;

  private:
    launches::Transfer TransferOf(const Work &work);

    int rank_, ranks_, transfers_ = 0, nevents_ = 0;
    bool fits_ = true;
    std::map<EventId, int> event_;
};

launches::Transfer Reader::TransferOf(const Work &work)
{
    launches::Transfer t;

    transfers_++;
    if (work.op == "send")
        t.to = work.peer;
    else if (work.op == "recv")
        t.from = work.peer;
    else
        fits_ &= work.size == ranks_; // all meet
    fits_ &= work.peer < 0 || work.peer != rank_;
    if (work.deferred)
        event_[work.event] = t.done = nevents_++;
    t.quiet = IsQuiet(work);
    return t;
}

void Reader::Add(const Step &step)
{
    launches::Item item = {launches::COMPUTE, step.stream + 1, step.launch};

    switch (step.kind) {
    case Step::FORK:
        item.kind = launches::FORK;
        break;
    case Step::JOIN:
        item.kind = launches::JOIN;
        break;
    case Step::RECORD:
        item.kind = launches::RECORD;
        item.events = {nevents_};
        for (const EventId &event : step.events)
            event_[event] = nevents_;
        nevents_++;
        break;
    case Step::WAIT: // for nothing, if the caller records
        item.kind = launches::WAIT;
        for (const EventId &event : step.events)
            if (event_.count(event))
                item.events.push_back(event_.at(event));
        break;
    case Step::WORK:
        for (const Work &work : step.work)
            if (work.transfer && !work.nothing) {
                item.kind = launches::TRANSFERS;
                item.members.push_back(TransferOf(work));
            }
        if (step.work[0].transfer && item.members.empty())
            return; // it is not issued
        break;
    }
    items.push_back(item);
}

} // namespace

Launches Explore(const Program &program)
{
    if (!HasLaunch(program.body))
        return Launches::END;
    Shape shape(program);
    launches::Job job = {static_cast<int>(shape.streams) + 1, false, {}};

    for (int rank = 0; rank < shape.ranks; rank++) {
        Reader reader(rank, shape.ranks);

        for (const Step &step : Unroll(program, shape, rank))
            reader.Add(step);
        if (!reader.Fits())
            return Launches::UNKNOWN;
        job.ranks.push_back(reader.items);
    }
    switch (launches::Model(job).Explore(MOST_STATES)) {
    case launches::Model::ENDS:
        return Launches::END;
    case launches::Model::HANGS:
        return Launches::HANG;
    case launches::Model::TOO_LARGE:
        break;
    }
    return Launches::UNKNOWN;
}

} // namespace second
