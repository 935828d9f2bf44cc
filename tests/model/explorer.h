// Explores a small concurrent program over all interleavings. Threads are lists
// of instructions on bytes of shared memory; each instruction is atomic, and a
// copy of data is two, so that what overlaps it is seen. Breadth first, so the
// first violation has a shortest trace.
#ifndef HD_TESTS_MODEL_EXPLORER_H
#define HD_TESTS_MODEL_EXPLORER_H

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

enum Op {
    STORE,       // word a = b
    CLEAR,       // word a = 0
    WAIT_GE,     // until word a >= b
    WAIT_EQ,     // until word a == b
    WAIT_EITHER, // until word a == b or word a == c
    LOOK_GE,     // word a >= b: go on at d
    WRITE_BEGIN, // data a is being written
    WRITE_END,   // data a = message b
    READ_BEGIN,  // data a is being read
    READ_END,    // it was message b
    JOIN,        // until thread a has passed its instruction b
    RING_LOOK,   // doorbell a: does anybody sleep?
    RING,        // if so, doorbell a rings
    ARM, // doorbell a: one more sleeper, and how often it has rung is kept
    SLEEP_UNLESS_GE, // word b >= c: go on at d. Else sleep until doorbell a
                     // rings
    DISARM,   // doorbell a: one sleeper less; back to instruction b, if b >= 0
    END_RANK, // rank a dies, or fails: its threads stop
    NOTICE,   // until some rank has died; then rank a has failed
};

struct Instruction {
    Op op;
    int a, b, c, d;
    std::string text;
};

struct Thread {
    int rank;
    std::vector<Instruction> code;
    bool must_end; // or the program deadlocks
};

struct Doorbell {
    int sleepers, rings; // where in the words
};

struct Model {
    int ranks, words, data;
    std::vector<Doorbell> doorbells;
    std::vector<Thread> threads;
};

struct Verdict {
    bool fine = true;
    size_t states = 0;
    std::string why;
    std::vector<std::string> trace; // to the violation
};

class Explorer
{
  public:
    explicit Explorer(const Model &model) : m_(model)
    {
    }
    Verdict Run(size_t most = 30000000)
    {
        Verdict v;

        first_ = State(Size(), 0);
        parent_[first_] = {std::string(), -1};
        queue_.push_back(first_);
        while (!queue_.empty() && v.fine) {
            std::string state = queue_.front();

            queue_.pop_front();
            Expand(state, &v);
            if (parent_.size() > most) {
                v.fine = false;
                v.why = "too many states";
            }
        }
        v.states = parent_.size();
        return v;
    }

  private:
    // Words, data (message, writers, readers), by thread: instruction and a
    // register, by rank: dead, failed.
    typedef std::string State;
    const Model &m_;
    State first_;
    std::unordered_map<State, std::pair<State, int>> parent_;
    std::deque<State> queue_;

    size_t Size() const
    {
        return static_cast<size_t>(m_.words + 3 * m_.data + 2 * m_.ranks) +
               2 * m_.threads.size();
    }
    char &Word(State &s, int i) const
    {
        return s[static_cast<size_t>(i)];
    }
    char &Data(State &s, int i, int field) const
    {
        return s[static_cast<size_t>(m_.words + 3 * i + field)];
    }
    char &Rank(State &s, int rank, int field) const
    {
        return s[static_cast<size_t>(m_.words + 3 * m_.data + 2 * rank +
                                     field)];
    }
    char &At(State &s, size_t thread, int field) const
    {
        return s[static_cast<size_t>(m_.words + 3 * m_.data + 2 * m_.ranks) +
                 2 * thread + static_cast<size_t>(field)];
    }
    bool IsOver(State &s, size_t t) const
    {
        return static_cast<size_t>(At(s, t, 0)) >= m_.threads[t].code.size() ||
               Rank(s, m_.threads[t].rank, 0) != 0;
    }
    void Expand(const State &state, Verdict *v)
    {
        bool moved = false, over = true;

        for (size_t t = 0; t < m_.threads.size() && v->fine; t++) {
            State next = state;

            if (IsOver(next, t))
                continue;
            over = over && !m_.threads[t].must_end;
            std::string wrong;
            Op op = m_.threads[t].code[static_cast<size_t>(At(next, t, 0))].op;
            if (!Step(&next, t, &wrong))
                continue;
            moved = moved || op != END_RANK; // that one could die is no way on
            bool fresh =
                parent_
                    .emplace(next, std::make_pair(state, static_cast<int>(t)))
                    .second;
            if (fresh)
                queue_.push_back(next);
            if (!wrong.empty())
                Fail(v, wrong, state, static_cast<int>(t));
        }
        if (v->fine && !moved && !over)
            Fail(v, "deadlock", state, -1);
    }
    void Fail(Verdict *v, const std::string &why, State state, int last)
    {
        v->fine = false;
        v->why = why;
        if (last >= 0)
            v->trace.push_back(Say(state, last));
        for (;;) {
            const auto &p = parent_[state];

            if (p.second < 0)
                break;
            State before = p.first;
            v->trace.insert(v->trace.begin(), Say(before, p.second));
            state = before;
        }
    }
    std::string Say(State s, int thread) const
    {
        size_t t = static_cast<size_t>(thread);

        return "rank " + std::to_string(m_.threads[t].rank) + ": " +
               m_.threads[t].code[static_cast<size_t>(At(s, t, 0))].text;
    }
    // False if the thread must wait.
    bool Step(State *state, size_t t, std::string *wrong) const
    {
        State &s = *state;
        const Thread &thread = m_.threads[t];
        const Instruction &i = thread.code[static_cast<size_t>(At(s, t, 0))];
        int next = At(s, t, 0) + 1;

        switch (i.op) {
        case STORE:
            Word(s, i.a) = static_cast<char>(i.b);
            break;
        case CLEAR:
            Word(s, i.a) = 0;
            break;
        case WAIT_GE:
        case WAIT_EQ:
        case WAIT_EITHER:
            if (Rank(s, thread.rank, 1) != 0) // the wait ends with the failure
                next = static_cast<int>(thread.code.size());
            else if (i.op == WAIT_GE
                         ? Word(s, i.a) < i.b
                         : Word(s, i.a) != i.b &&
                               (i.op == WAIT_EQ || Word(s, i.a) != i.c))
                return false;
            break;
        case LOOK_GE:
            next = Word(s, i.a) >= i.b ? i.d : next;
            break;
        case WRITE_BEGIN:
            if (Data(s, i.a, 1) != 0 || Data(s, i.a, 2) != 0)
                *wrong = "data is overwritten while it is in use";
            Data(s, i.a, 1)++;
            break;
        case WRITE_END:
            Data(s, i.a, 1)--;
            Data(s, i.a, 0) = static_cast<char>(i.b);
            break;
        case READ_BEGIN:
            if (Data(s, i.a, 1) != 0)
                *wrong = "data is read while it is being written";
            Data(s, i.a, 2)++;
            break;
        case READ_END:
            Data(s, i.a, 2)--;
            if (Data(s, i.a, 0) != static_cast<char>(i.b))
                *wrong = "message " + std::to_string(Data(s, i.a, 0)) +
                         " is read in the place of " + std::to_string(i.b);
            break;
        case JOIN:
            if (At(s, static_cast<size_t>(i.a), 0) < i.b)
                return false;
            break;
        default:
            return StepDoorbell(&s, t, i, next);
        }
        At(s, t, 0) = static_cast<char>(next);
        return true;
    }
    bool StepDoorbell(State *state, size_t t, const Instruction &i,
                      int next) const
    {
        State &s = *state;
        const Thread &thread = m_.threads[t];
        const Doorbell *doorbell =
            i.op == END_RANK || i.op == NOTICE
                ? nullptr
                : &m_.doorbells[static_cast<size_t>(i.a)];

        switch (i.op) {
        case RING_LOOK:
            At(s, t, 1) = Word(s, doorbell->sleepers);
            break;
        case RING:
            if (At(s, t, 1) > 0)
                Word(s, doorbell->rings) =
                    static_cast<char>((Word(s, doorbell->rings) + 1) & 63);
            At(s, t, 1) = 0;
            break;
        case ARM:
            Word(s, doorbell->sleepers)++;
            At(s, t, 1) = static_cast<char>(Word(s, doorbell->rings) + 1);
            break;
        case SLEEP_UNLESS_GE:
            // Looked at in one step, then asleep: the register is negative.
            if (At(s, t, 1) > 0) {
                if (Rank(s, thread.rank, 1) != 0)
                    next = static_cast<int>(thread.code.size());
                else if (Word(s, i.b) >= i.c)
                    next = i.d;
                else {
                    At(s, t, 1) = static_cast<char>(-At(s, t, 1));
                    return true;
                }
                Word(s, doorbell->sleepers)--;
                At(s, t, 1) = 0;
                break;
            }
            if (Word(s, doorbell->rings) == -At(s, t, 1) - 1)
                return false;
            break;
        case DISARM:
            Word(s, doorbell->sleepers)--;
            At(s, t, 1) = 0;
            next = i.b >= 0 ? i.b : next;
            break;
        case END_RANK:
            Rank(s, i.a, 0) = 1;
            break;
        case NOTICE: {
            bool dead = false;

            for (int rank = 0; rank < m_.ranks; rank++)
                dead = dead || Rank(s, rank, 0) != 0;
            if (!dead)
                return false;
            Rank(s, i.a, 1) = 1;
            break;
        }
        default:
            return false;
        }
        At(s, t, 0) = static_cast<char>(next);
        return true;
    }
};

#endif
