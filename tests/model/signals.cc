// The signal protocol of the drivers as a model (docs/signals.md maps it to the
// code), explored over all interleavings; beside it the protocol of flags that
// one side sets and the other clears, which must be seen to fail.
#include <gtest/gtest.h>

#include "tests/model/explorer.h"

namespace
{

enum Change { // of the counters, each of which must be caught
    NONE,
    NO_CREDIT,         // the sender does not wait for "ready"
    DONE_BEFORE_DATA,  // "done" is signalled before the copy
    RESET,             // words are cleared when a run begins
    EQUAL,             // waits are for == instead of >=
    RING_FIRST,        // the doorbell rings before the word
    LOOK_FIRST,        // whoever sleeps looks at the word before arming
    REPLAY,            // all runs say and wait for the first one's number
    ONE_STREAM_WAITS,  // for "early"; the other one puts without
    ONE_RUN_WAITS,     // for "early": the first
    EARLY_IN_USE,      // memory that the run still reads is said to be free
    NO_BEGIN,          // a stream goes on to the next session's run by itself
    COMMON_WORDS,      // of two sessions, each of which numbers its own runs
    EARLY_WHEN_ISSUED, // not when the last session's run has ended
    GATE_FIRST,        // a gate's word is written ahead of the stream's wait
    GATE_ALONE,        // a kernel of the next run begins without its streams
};

struct Scenario {
    int ranks = 2, runs = 2;
    int window = 1; // slots of a receiver: so many credits are given ahead
    bool get = false, doorbells = false;
    int dies = -1; // a rank that dies at any moment
    int turns = 0; // that words hold in place of numbers
    bool flags = false;
    Change change = NONE;
};

class Builder
{
  public:
    explicit Builder(const Scenario &scenario) : s_(scenario)
    {
        m_.ranks = s_.ranks;
        m_.words = m_.data = 0;
        for (int rank = 0; rank < s_.ranks; rank++)
            m_.doorbells.push_back({NewWord(), NewWord()});
    }
    Model Finish()
    {
        for (int rank = 0; rank < s_.ranks && s_.dies >= 0; rank++) {
            Thread watch = {rank, {}, false};

            if (rank == s_.dies)
                watch.code.push_back({END_RANK, rank, 0, 0, 0, "dies"});
            else {
                watch.code.push_back(
                    {NOTICE, rank, 0, 0, 0, "notices the death"});
                Ring(&watch, rank);
            }
            m_.threads.push_back(watch);
        }
        return m_;
    }
    int NewWord()
    {
        return m_.words++;
    }
    int NewData()
    {
        return m_.data++;
    }
    size_t NewThread(int rank)
    {
        m_.threads.push_back({rank, {}, true});
        return m_.threads.size() - 1;
    }
    Thread *At(size_t thread)
    {
        return &m_.threads[thread];
    }

    // Says `value` in a word that `peer` waits on.
    void Say(size_t thread, int word, int value, int peer,
             const std::string &what)
    {
        Thread *t = At(thread);
        Instruction store = {
            STORE, word, s_.flags || s_.change == REPLAY ? 1 : Told(value),
            0,     0,    "says " + what + " " + std::to_string(value)};

        if (s_.change == RING_FIRST)
            Ring(t, peer);
        t->code.push_back(store);
        if (s_.change != RING_FIRST)
            Ring(t, peer);
    }
    void Wait(size_t thread, int word, int value, const std::string &what)
    {
        Thread *t = At(thread);
        std::string text = what + " " + std::to_string(value);
        int at = static_cast<int>(t->code.size());

        if (s_.change == REPLAY)
            value = 1;
        if (s_.flags) {
            t->code.push_back({WAIT_GE, word, 1, 0, 0, "waits for " + text});
            t->code.push_back({CLEAR, word, 0, 0, 0, "clears " + what});
        } else if (s_.turns > 0) {
            t->code.push_back({WAIT_EITHER, word, Told(value), Told(value + 1),
                               0, "waits for " + text});
        } else if (!s_.doorbells) {
            t->code.push_back({s_.change == EQUAL ? WAIT_EQ : WAIT_GE, word,
                               value, 0, 0, "waits for " + text});
        } else if (s_.change == LOOK_FIRST) {
            LookFirst(t, word, value, text);
        } else {
            t->code.push_back(
                {ARM, t->rank, 0, 0, 0, "arms the doorbell for " + text});
            t->code.push_back({SLEEP_UNLESS_GE, t->rank, word, value, at + 3,
                               "looks for " + text});
            t->code.push_back({DISARM, t->rank, at, 0, 0, "wakes for " + text});
        }
    }
    // Data is copied in two steps.
    void Write(size_t thread, int data, int message)
    {
        At(thread)->code.push_back(
            {WRITE_BEGIN, data, 0, 0, 0, "begins to write " + Name(message)});
        At(thread)->code.push_back(
            {WRITE_END, data, message, 0, 0, "has written " + Name(message)});
    }
    void Read(size_t thread, int data, int message)
    {
        At(thread)->code.push_back(
            {READ_BEGIN, data, 0, 0, 0, "begins to read " + Name(message)});
        At(thread)->code.push_back(
            {READ_END, data, message, 0, 0, "has read " + Name(message)});
    }
    void Reset(size_t thread, int word)
    {
        At(thread)->code.push_back(
            {CLEAR, word, 0, 0, 0, "resets a word for the run"});
    }
    // Each waits for the other to come to where it is now.
    void Join(size_t a, size_t b)
    {
        int at = static_cast<int>(At(a)->code.size());
        int bt = static_cast<int>(At(b)->code.size());

        At(a)->code.push_back(
            {JOIN, static_cast<int>(b), bt, 0, 0, "ends its part of the run"});
        At(b)->code.push_back(
            {JOIN, static_cast<int>(a), at, 0, 0, "ends its part of the run"});
    }
    static std::string Name(int message)
    {
        return "message " + std::to_string(message);
    }

  private:
    Scenario s_;
    Model m_;

    // 0 is what a word holds at first.
    int Told(int value) const
    {
        return s_.turns > 0 ? 1 + value % s_.turns : value;
    }

    void Ring(Thread *t, int peer)
    {
        if (!s_.doorbells)
            return;
        t->code.push_back({RING_LOOK, peer, 0, 0, 0, "looks for sleepers"});
        t->code.push_back({RING, peer, 0, 0, 0, "rings if there were any"});
    }
    // A look, and then asleep until the doorbell rings, whatever came in
    // between.
    void LookFirst(Thread *t, int word, int value, const std::string &text)
    {
        int at = static_cast<int>(t->code.size());

        t->code.push_back(
            {LOOK_GE, word, value, 0, at + 4, "looks too early for " + text});
        t->code.push_back(
            {ARM, t->rank, 0, 0, 0, "arms the doorbell for " + text});
        t->code.push_back(
            {SLEEP_UNLESS_GE, t->rank, word, 127, 0, "sleeps for " + text});
        t->code.push_back({DISARM, t->rank, at, 0, 0, "wakes for " + text});
    }
};

int Message(int run, int rank)
{
    return 1 + run * 4 + rank;
}

// Every rank sends to the next one, run after run. The two parts of a rank's
// group go on independently and the run ends when both are over; with a window
// the receiver gives credits for slots that the sender fills later.
Model Ring(const Scenario &s)
{
    Builder b(s);
    std::vector<int> ready, done;
    std::vector<std::vector<int>> slot;
    size_t n = static_cast<size_t>(s.ranks);

    for (size_t r = 0; r < n; r++) {
        ready.push_back(b.NewWord()); // at the sender r
        done.push_back(b.NewWord());  // at the receiver r
        slot.emplace_back();
        for (int w = 0; w < s.window; w++)
            slot.back().push_back(b.NewData());
    }
    std::vector<size_t> send, recv;
    for (size_t r = 0; r < n; r++) {
        send.push_back(b.NewThread(static_cast<int>(r)));
        recv.push_back(b.NewThread(static_cast<int>(r)));
    }
    auto take = [&](size_t r, int run) {
        size_t left = (r + n - 1) % n;

        b.Wait(recv[r], done[r], run + 1, "done");
        b.Read(recv[r], slot[r][static_cast<size_t>(run % s.window)],
               Message(run, static_cast<int>(left)));
    };
    for (int run = 0; run < s.runs; run++)
        for (size_t r = 0; r < n; r++) {
            size_t left = (r + n - 1) % n, right = (r + 1) % n;

            if (s.change == RESET) {
                b.Reset(recv[r], done[r]);
                b.Reset(send[r], ready[r]);
            }
            // A credit for this run's slot, then the message of the run that
            // had it last but window - 1.
            b.Say(recv[r], ready[left], run + 1, static_cast<int>(left),
                  "ready");
            if (run + 1 >= s.window)
                take(r, run + 1 - s.window);
            if (s.change != NO_CREDIT)
                b.Wait(send[r], ready[r], run + 1, "ready");
            if (s.change == DONE_BEFORE_DATA)
                b.Say(send[r], done[right], run + 1, static_cast<int>(right),
                      "done");
            b.Write(send[r], slot[right][static_cast<size_t>(run % s.window)],
                    Message(run, static_cast<int>(r)));
            if (s.change != DONE_BEFORE_DATA)
                b.Say(send[r], done[right], run + 1, static_cast<int>(right),
                      "done");
            if (s.window == 1)
                b.Join(send[r], recv[r]);
        }
    for (int run = s.runs + 1 - s.window; run < s.runs; run++)
        for (size_t r = 0; r < n && run >= 0; r++)
            take(r, run);
    return b.Finish();
}

// The same by get: the owner says that its data is there and writes it anew
// when the reader has said that it is done.
Model GetRing(const Scenario &s)
{
    Builder b(s);
    std::vector<int> ready, done, data;
    std::vector<size_t> send, recv;
    size_t n = static_cast<size_t>(s.ranks);

    for (size_t r = 0; r < n; r++) {
        ready.push_back(b.NewWord()); // at the reader r
        done.push_back(b.NewWord());  // at the owner r
        data.push_back(b.NewData());  // of the owner r
        send.push_back(b.NewThread(static_cast<int>(r)));
        recv.push_back(b.NewThread(static_cast<int>(r)));
    }
    for (int run = 0; run < s.runs; run++)
        for (size_t r = 0; r < n; r++) {
            size_t left = (r + n - 1) % n, right = (r + 1) % n;

            b.Write(send[r], data[r], Message(run, static_cast<int>(r)));
            b.Say(send[r], ready[right], run + 1, static_cast<int>(right),
                  "ready");
            if (s.change != NO_CREDIT)
                b.Wait(send[r], done[r], run + 1, "done");
            b.Wait(recv[r], ready[r], run + 1, "ready");
            b.Read(recv[r], data[left], Message(run, static_cast<int>(left)));
            b.Say(recv[r], done[left], run + 1, static_cast<int>(left), "done");
            b.Join(send[r], recv[r]);
        }
    return b.Finish();
}

// Every rank puts four messages a run to the next one by two streams. One word,
// which the receiver writes when its run begins, lets all but the second of
// them in: what that one replaces the run reads first, so it has a "ready" of
// its own. Each stream waits for "early" before the first put that it is for.
Model EarlyRing(const Scenario &s)
{
    const size_t kPuts = 4, kLate = 1, kOther = 3; // the other stream's
    Builder b(s);
    size_t n = static_cast<size_t>(s.ranks);
    std::vector<int> early, ready;
    std::vector<std::vector<int>> done(n), slot(n);
    std::vector<size_t> send, other, recv;

    for (size_t r = 0; r < n; r++) {
        early.push_back(b.NewWord()); // at the sender r
        ready.push_back(b.NewWord());
        for (size_t i = 0; i < kPuts; i++) {
            done[r].push_back(b.NewWord()); // at the receiver r
            slot[r].push_back(b.NewData());
        }
        for (auto *stream : {&send, &other, &recv})
            stream->push_back(b.NewThread(static_cast<int>(r)));
    }
    auto put = [&](size_t thread, size_t r, size_t i, int run) {
        size_t right = (r + 1) % n;

        b.Write(thread, slot[right][i], Message(run, static_cast<int>(i)));
        b.Say(thread, done[right][i], run + 1, static_cast<int>(right), "done");
    };
    for (int run = 0; run < s.runs; run++)
        for (size_t r = 0; r < n; r++) {
            size_t left = (r + n - 1) % n;
            bool waits = s.change != ONE_RUN_WAITS || run == 0;
            bool late = s.change != EARLY_IN_USE;

            b.Say(recv[r], early[left], run + 1, static_cast<int>(left),
                  "early");
            b.Read(recv[r], slot[r][kLate],
                   run == 0 ? 0 : Message(run - 1, static_cast<int>(kLate)));
            if (late)
                b.Say(recv[r], ready[left], run + 1, static_cast<int>(left),
                      "ready");
            for (size_t i = 0; i < kPuts; i++) {
                b.Wait(recv[r], done[r][i], run + 1, "done");
                if (i != kLate)
                    b.Read(recv[r], slot[r][i],
                           Message(run, static_cast<int>(i)));
            }
            if (waits)
                b.Wait(send[r], early[r], run + 1, "early");
            for (size_t i = 0; i < kOther; i++) {
                if (i == kLate && late)
                    b.Wait(send[r], ready[r], run + 1, "ready");
                put(send[r], r, i, run);
            }
            if (waits && s.change != ONE_STREAM_WAITS)
                b.Wait(other[r], early[r], run + 1, "early");
            put(other[r], r, kOther, run);
            b.Join(send[r], recv[r]);
            b.Join(other[r], recv[r]);
        }
    return b.Finish();
}

// Every rank puts two messages a run to the next one, whose kernel reads them:
// it runs from the beginning of the run, and waits for a word of each, a gate,
// which the stream that receives writes behind its own wait.
Model GateRing(const Scenario &s)
{
    const size_t kPuts = 2;
    Builder b(s);
    size_t n = static_cast<size_t>(s.ranks);
    std::vector<std::vector<int>> ready(n), done(n), gate(n), slot(n);
    std::vector<size_t> send, recv, kernel;

    for (size_t r = 0; r < n; r++) {
        for (size_t i = 0; i < kPuts; i++) {
            for (auto *words : {&ready[r], &done[r], &gate[r]})
                words->push_back(b.NewWord());
            slot[r].push_back(b.NewData());
        }
        for (auto *thread : {&send, &recv, &kernel})
            thread->push_back(b.NewThread(static_cast<int>(r)));
    }
    for (int run = 0; run < s.runs; run++)
        for (size_t r = 0; r < n; r++) {
            size_t left = (r + n - 1) % n, right = (r + 1) % n;
            auto say = [&](size_t thread, int word, size_t peer,
                           const char *what) {
                b.Say(thread, word, run + 1, static_cast<int>(peer), what);
            };

            for (size_t i = 0; i < kPuts; i++) {
                b.Wait(send[r], ready[r][i], run + 1, "ready");
                b.Write(send[r], slot[right][i],
                        Message(run, static_cast<int>(i)));
                say(send[r], done[right][i], right, "done");
                say(recv[r], ready[left][i], left, "ready");
                if (s.change == GATE_FIRST)
                    say(recv[r], gate[r][i], r, "gate");
                b.Wait(recv[r], done[r][i], run + 1, "done");
                if (s.change != GATE_FIRST)
                    say(recv[r], gate[r][i], r, "gate");
                b.Wait(kernel[r], gate[r][i], run + 1, "gate");
                b.Read(kernel[r], slot[r][i],
                       Message(run, static_cast<int>(i)));
            }
            b.Join(send[r], recv[r]);
            if (s.change != GATE_ALONE)
                b.Join(kernel[r], recv[r]);
        }
    return b.Finish();
}

// Two sessions in turns on one buffer a rank: a put to the next rank, then a
// get from the one before. Each has words of its own, and numbers its runs.
Model Sessions(const Scenario &s)
{
    Builder b(s);
    size_t n = static_cast<size_t>(s.ranks);
    std::vector<int> ready[2], done[2], data;
    std::vector<size_t> send, recv;

    for (size_t r = 0; r < n; r++) {
        for (int session = 0; session < 2; session++) {
            bool own = session == 0 || s.change != COMMON_WORDS;

            ready[session].push_back(own ? b.NewWord() : ready[0][r]);
            done[session].push_back(own ? b.NewWord() : done[0][r]);
        }
        data.push_back(b.NewData());
        send.push_back(b.NewThread(static_cast<int>(r)));
        recv.push_back(b.NewThread(static_cast<int>(r)));
    }
    for (int run = 0; run < s.runs; run++)
        for (size_t r = 0; r < n; r++) {
            size_t left = (r + n - 1) % n, right = (r + 1) % n;
            std::vector<int> &may = ready[run % 2], &is = done[run % 2];
            int number = run / 2 + 1;
            auto say = [&](size_t thread, int word, size_t peer) {
                b.Say(thread, word, number, static_cast<int>(peer), "a word");
            };

            if (run % 2 == 0) {
                say(recv[r], may[left], left);
                b.Wait(send[r], may[r], number, "ready");
                b.Write(send[r], data[right],
                        Message(run, static_cast<int>(r)));
                say(send[r], is[right], right);
                b.Wait(recv[r], is[r], number, "done");
                b.Read(recv[r], data[r], Message(run, static_cast<int>(left)));
            } else {
                b.Write(send[r], data[r], Message(run, static_cast<int>(r)));
                say(send[r], may[right], right);
                b.Wait(recv[r], may[r], number, "ready");
                b.Read(recv[r], data[left],
                       Message(run, static_cast<int>(left)));
                say(recv[r], is[left], left);
                b.Wait(send[r], is[r], number, "done");
            }
            if (s.change != NO_BEGIN)
                b.Join(send[r], recv[r]);
        }
    return b.Finish();
}

// Two sessions in turns on one buffer a rank, into which the rank before puts
// when it has heard "early". That is said behind the end of the last run, which
// was the other session's; or else when the host issues the run.
Model EarlySessions(const Scenario &s)
{
    Builder b(s);
    size_t n = static_cast<size_t>(s.ranks);
    std::vector<int> early[2], done[2], data;
    std::vector<size_t> send, recv;

    for (size_t r = 0; r < n; r++) {
        for (int session = 0; session < 2; session++) {
            early[session].push_back(b.NewWord()); // at the sender r
            done[session].push_back(b.NewWord());
        }
        data.push_back(b.NewData());
        send.push_back(b.NewThread(static_cast<int>(r)));
        recv.push_back(b.NewThread(static_cast<int>(r)));
    }
    auto say_early = [&](size_t r, int run) {
        size_t left = (r + n - 1) % n;

        if (run < s.runs)
            b.Say(recv[r], early[run % 2][left], run / 2 + 1,
                  static_cast<int>(left), "early");
    };
    for (int run = 0; run < s.runs; run++)
        for (size_t r = 0; r < n; r++) {
            size_t left = (r + n - 1) % n, right = (r + 1) % n;
            bool issued = s.change == EARLY_WHEN_ISSUED;
            int number = run / 2 + 1;

            if (!issued || run == 0)
                say_early(r, run);
            b.Wait(send[r], early[run % 2][r], number, "early");
            b.Write(send[r], data[right], Message(run, static_cast<int>(r)));
            b.Say(send[r], done[run % 2][right], number,
                  static_cast<int>(right), "done");
            b.Wait(recv[r], done[run % 2][r], number, "done");
            if (issued)
                say_early(r, run + 1);
            b.Read(recv[r], data[r], Message(run, static_cast<int>(left)));
            b.Join(send[r], recv[r]);
        }
    return b.Finish();
}

// All ranks wait for all others, so many times.
Model Barriers(const Scenario &s)
{
    Builder b(s);
    std::vector<std::vector<int>> word; // at the first, from the second
    std::vector<size_t> thread;

    for (int r = 0; r < s.ranks; r++) {
        word.emplace_back();
        for (int q = 0; q < s.ranks; q++)
            word.back().push_back(b.NewWord());
        thread.push_back(b.NewThread(r));
    }
    for (int run = 0; run < s.runs; run++)
        for (size_t r = 0; r < word.size(); r++) {
            for (size_t q = 0; q < word.size(); q++)
                if (q != r)
                    b.Say(thread[r], word[q][r], run + 1, static_cast<int>(q),
                          "here");
            for (size_t q = 0; q < word.size(); q++)
                if (q != r)
                    b.Wait(thread[r], word[r][q], run + 1, "here");
        }
    return b.Finish();
}

std::string Trace(const Verdict &v)
{
    std::string text = v.why + "\n";

    for (const std::string &line : v.trace)
        text += "  " + line + "\n";
    return text;
}

Verdict Explore(const Model &model, const std::string &name)
{
    Verdict v = Explorer(model).Run();

    printf("%s: %zu states, %s\n", name.c_str(), v.states,
           v.fine ? "no violation" : Trace(v).c_str());
    return v;
}

TEST(Signals, CountersAreSafeForPutAndGet)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        Scenario s;

        s.ranks = ranks;
        s.runs = ranks == 2 ? 4 : 2;
        std::string name = std::to_string(ranks) + " ranks, " +
                           std::to_string(s.runs) + " runs";
        EXPECT_TRUE(Explore(Ring(s), "put, " + name).fine);
        EXPECT_TRUE(Explore(GetRing(s), "get, " + name).fine);
    }
}

TEST(Signals, CreditsMayBeGivenAhead)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        Scenario s;

        s.ranks = ranks;
        s.window = 2;
        s.runs = ranks == 2 ? 5 : 3;
        EXPECT_TRUE(Explore(Ring(s), "put, two slots, " +
                                         std::to_string(ranks) + " ranks")
                        .fine);
    }
}

TEST(Signals, OneWordLetsAllPutsOfAPeerIn)
{
    Scenario s;

    s.runs = 3;
    EXPECT_TRUE(Explore(EarlyRing(s), "one early word, 2 ranks").fine);
    for (Change change :
         {ONE_STREAM_WAITS, ONE_RUN_WAITS, EARLY_IN_USE, REPLAY}) {
        s.change = change;
        EXPECT_FALSE(Explore(EarlyRing(s), "one early word, changed").fine)
            << change;
    }
}

// A word is written again only after all waits for it: the last run, this one
// and the next are all that it may say. With less to tell them by a wait takes
// the last one for the next.
TEST(Signals, TurnsDoForNumbersWhereEachTransferHasItsWords)
{
    for (int turns : {4, 3, 2}) {
        Scenario s, early;
        std::string name = std::to_string(turns) + " turns, ";

        s.turns = early.turns = turns;
        s.runs = turns + 2;
        early.runs = 3;
        EXPECT_EQ(Explore(Ring(s), name + "put").fine, turns > 2);
        EXPECT_EQ(Explore(GetRing(s), name + "get").fine, turns > 2);
        EXPECT_EQ(Explore(EarlyRing(early), name + "early").fine, turns > 2);
        s.ranks = 3;
        s.runs = 2;
        EXPECT_EQ(Explore(Ring(s), name + "put, 3 ranks").fine, turns > 2);
        EXPECT_EQ(Explore(GetRing(s), name + "get, 3 ranks").fine, turns > 2);
    }
}

TEST(Signals, DoorbellsLoseNoWakeUp)
{
    Scenario s;

    s.doorbells = true;
    EXPECT_TRUE(Explore(Ring(s), "put with doorbells, 2 ranks").fine);
    EXPECT_TRUE(Explore(GetRing(s), "get with doorbells, 2 ranks").fine);
    EXPECT_TRUE(Explore(Barriers(s), "barriers with doorbells, 2 ranks").fine);
}

TEST(Signals, ADeathEndsEveryWait)
{
    for (int dies = 0; dies < 2; dies++) {
        Scenario s;

        s.dies = dies;
        s.doorbells = true;
        s.runs = 2;
        EXPECT_TRUE(Explore(Barriers(s), "rank " + std::to_string(dies) +
                                             " dies at any moment")
                        .fine);
        s.runs = 1;
        EXPECT_TRUE(Explore(Ring(s), "put, rank " + std::to_string(dies) +
                                         " dies at any moment")
                        .fine);
    }
    Scenario s;
    s.ranks = 3;
    s.dies = 1;
    EXPECT_TRUE(Explore(Ring(s), "put, 3 ranks, one dies").fine);
}

TEST(Signals, BarriersMayFollowEachOther)
{
    Scenario s;

    s.runs = 3;
    EXPECT_TRUE(Explore(Barriers(s), "barriers, 2 ranks").fine);
    s.ranks = 3;
    EXPECT_TRUE(Explore(Barriers(s), "barriers, 3 ranks").fine);
}

// --------------------------------------------------------- counter-examples

TEST(Signals, FlagsLoseASignalWhenAWaitIsDeferred)
{
    Scenario s;

    s.flags = true;
    s.window = 2; // the second credit is given before the first was seen
    s.runs = 3;
    Verdict v = Explore(Ring(s), "flags, two slots");
    EXPECT_FALSE(v.fine);
    EXPECT_EQ(v.why, "deadlock");
}

TEST(Signals, FlagsFailWhenABarrierRunsTwice)
{
    Scenario s;

    s.flags = true;
    s.runs = 2;
    Verdict v = Explore(Barriers(s), "flags, two barriers");
    EXPECT_FALSE(v.fine);
    s.runs = 1;
    EXPECT_TRUE(Explore(Barriers(s), "flags, one barrier").fine);
}

TEST(Signals, FlagsFailWhenATransferOverlapsTheNext)
{
    Scenario s;

    s.flags = true;
    s.ranks = 2;
    s.window = 3;
    s.runs = 4;
    EXPECT_FALSE(Explore(Ring(s), "flags, three slots").fine);
}

TEST(Signals, SessionsInTurnsShareOneBufferARank)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        Scenario s;

        s.ranks = ranks;
        s.runs = ranks == 2 ? 6 : 4;
        EXPECT_TRUE(Explore(Sessions(s),
                            "two sessions, " + std::to_string(ranks) + " ranks")
                        .fine);
        for (Change change : {NO_BEGIN, COMMON_WORDS}) {
            s.change = change;
            EXPECT_FALSE(Explore(Sessions(s), change == NO_BEGIN
                                                  ? "a stream that goes on"
                                                  : "common words")
                             .fine);
        }
    }
}

TEST(Signals, SessionsInTurnsSayEarlyBehindEachOther)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        Scenario s;

        s.ranks = ranks;
        s.runs = ranks == 2 ? 6 : 4;
        EXPECT_TRUE(Explore(EarlySessions(s), "two sessions with early, " +
                                                  std::to_string(ranks) +
                                                  " ranks")
                        .fine);
        s.change = EARLY_WHEN_ISSUED;
        EXPECT_FALSE(Explore(EarlySessions(s), "early when issued").fine);
    }
}

TEST(Signals, AKernelWaitsForWordsOfItsRanksStreams)
{
    Scenario s;

    for (s.runs = 1; s.runs <= 3; s.runs++) {
        EXPECT_TRUE(Explore(GateRing(s), "gates, 2 ranks, " +
                                             std::to_string(s.runs) + " runs")
                        .fine);
    }
    for (Change change : {GATE_FIRST, GATE_ALONE, REPLAY}) {
        s.runs = 2;
        s.change = change;
        EXPECT_FALSE(Explore(GateRing(s), "gates, changed").fine) << change;
    }
    s.change = NONE;
    s.dies = 1;
    s.runs = 1;
    EXPECT_TRUE(Explore(GateRing(s), "gates, a rank dies").fine);
}

TEST(Signals, EveryChangeOfTheCountersIsCaught)
{
    struct Case {
        Change change;
        int window;
        bool doorbells, get;
        const char *name;
    };
    const Case cases[] = {
        {NO_CREDIT, 1, false, false, "put without credit"},
        {NO_CREDIT, 1, false, true, "get that does not wait for its reader"},
        {DONE_BEFORE_DATA, 1, false, false, "done before the data"},
        {RESET, 1, false, false, "words reset between runs"},
        {REPLAY, 1, false, false, "put by a graph that replays its numbers"},
        {REPLAY, 1, false, true, "get by a graph that replays its numbers"},
        {EQUAL, 2, false, false, "== in the place of >="},
        {RING_FIRST, 1, true, false, "the doorbell before the word"},
        {LOOK_FIRST, 1, true, false, "a look before arming"},
    };

    for (const Case &c : cases) {
        Scenario s;

        s.change = c.change;
        s.window = c.window;
        s.doorbells = c.doorbells;
        s.runs = 3;
        EXPECT_FALSE(Explore(c.get ? GetRing(s) : Ring(s), c.name).fine)
            << c.name;
    }
}

} // namespace
