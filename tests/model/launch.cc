// The model of launches, and what the checker says of the same programs.
#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "check/deadlock.h"
#include "check/launch.h"
#include "steps/match.h"
#include "tests/model/launched.h"
#include "tests/model/launches.h"
#include "tests/seed.h"
#include "tests/unit/program.h"

namespace
{

using namespace launches;

// --------------------------------------------------------------------- draws

int Below(std::mt19937_64 &random, int n)
{
    return static_cast<int>(random() % static_cast<uint64_t>(n));
}

// Computes, records and waits, of which some are launches.
void DrawOwn(std::mt19937_64 &random, const Job &job, int launches,
             std::vector<Item> *items)
{
    int n = 2 + Below(random, 5), launch = 0, stream = 0;

    for (int i = 0; i < n; i++) {
        Kind kind = static_cast<Kind>(Below(random, 3));

        if (launch == 0 || Below(random, 3) == 0) {
            stream = Below(random, job.nstreams);
            launch = Below(random, 3) > 0 ? ++launches : 0;
        }
        items->push_back({kind, stream, launch});
    }
}

// The same transfers on both ranks or all, each somewhere, not in a launch of
// others; a collective may be in one with a product. Returns which item a
// send or a recv is in.
size_t Insert(std::mt19937_64 &random, const Job &job, const Transfer &t,
              std::vector<Item> *items)
{
    size_t at = random() % (items->size() + 1);

    while (at > 0 && at < items->size() && (*items)[at].launch > 0 &&
           (*items)[at].launch == (*items)[at - 1].launch)
        at++;
    if (at > 0 && (*items)[at - 1].kind == TRANSFERS &&
        (*items)[at - 1].launch == 0 && Below(random, 2) == 0) {
        (*items)[at - 1].members.push_back(t);
        return at - 1;
    }
    std::vector<Item> added = {
        {TRANSFERS, Below(random, job.nstreams), 0, {}, {t}}};
    if (t.IsCollective() && Below(random, 2) == 0) {
        int stream = added[0].stream, launch = 1;

        for (const Item &item : *items)
            launch = std::max(launch, item.launch + 1);
        added[0].launch = launch;
        added.insert(t.gathers ? added.end() : added.begin(),
                     {COMPUTE, stream, launch});
    }
    items->insert(items->begin() + static_cast<std::ptrdiff_t>(at),
                  added.begin(), added.end());
    return at;
}

// Those of a program are alike, since each rank has them in an order of its
// own.
Transfer DrawCollective(std::mt19937_64 &random)
{
    Transfer t;

    t.gathers = Below(random, 2) == 0;
    t.quiet = t.gathers && Below(random, 2) == 0;
    return t;
}

// Events are numbered as they are recorded, and waited for behind that.
void Connect(std::mt19937_64 &random, std::vector<Item> *items)
{
    int n = 0;

    for (Item &item : *items) {
        if (item.kind == RECORD)
            item.events = {n++};
        for (Transfer &t : item.members)
            if (t.done >= 0)
                t.done = n++;
        if (item.kind == WAIT && n == 0)
            item.kind = COMPUTE;
        else if (item.kind == WAIT)
            item.events = {std::max(n - 1 - Below(random, 3), 0)};
    }
}

// Each rank receives from the one before it what that has computed, and its
// launch waits for it.
Job DrawRing(std::mt19937_64 &random)
{
    Job job = {2 + Below(random, 3), false, {}};
    int ranks = 2 + Below(random, 2);

    for (int rank = 0; rank < ranks; rank++) {
        int in = Below(random, job.nstreams), out = Below(random, job.nstreams),
            own = Below(random, job.nstreams);
        Transfer to = {(rank + 1) % ranks},
                 from = {-1, (rank + ranks - 1) % ranks};
        std::vector<Item> items = {{TRANSFERS, in, 0, {}, {from}},
                                   {RECORD, in},
                                   {COMPUTE, own, 1},
                                   {WAIT, own, 1},
                                   {COMPUTE, own, 1}};
        std::vector<Item> sends = {{COMPUTE, out, Below(random, 2) * 2},
                                   {TRANSFERS, out, 0, {}, {to}}};
        if (Below(random, 4) == 0)
            items.insert(items.begin() + 2, {WAIT, own});
        const int places[] = {0, 2, 2, static_cast<int>(items.size())};

        if (Below(random, 3) == 0)
            sends.insert(sends.begin() + Below(random, 3), {RECORD, out});
        items.insert(items.begin() + places[Below(random, 4)], sends.begin(),
                     sends.end());
        job.ranks.push_back(items);
    }
    return job;
}

Job DrawAny(std::mt19937_64 &random)
{
    Job job = {2 + Below(random, 2), Below(random, 6) == 0, {}};
    int ranks = 1 + Below(random, 3), n = ranks > 1 ? Below(random, 6) : 0;
    const Transfer collective = DrawCollective(random);

    for (int rank = 0; rank < ranks; rank++) {
        job.ranks.emplace_back();
        DrawOwn(random, job, 0, &job.ranks[rank]);
    }
    for (int i = 0; i < n; i++) {
        int from = Below(random, ranks), to = Below(random, ranks - 1);

        to += to >= from;
        if (Below(random, 4) == 0) {
            for (auto &items : job.ranks)
                Insert(random, job, collective, &items);
            continue;
        }
        Insert(random, job, {to, -1, Below(random, 4) == 0 ? 0 : -1},
               &job.ranks[from]);
        Insert(random, job, {-1, from}, &job.ranks[to]);
    }
    return job;
}

Job Draw(std::mt19937_64 &random)
{
    Job job = Below(random, 3) == 0 ? DrawRing(random) : DrawAny(random);

    for (auto &items : job.ranks) {
        Connect(random, &items);
        items.insert(items.begin(), {FORK, 0});
        items.push_back({JOIN, 0});
    }
    return job;
}

// ---------------------------------------------------------------------- text

// Of a program of all ranks that do the same, `to` and `from` are distances.
std::string PeerText(int rank, bool turned)
{
    return turned ? "(tp + " + std::to_string(rank) + ") mod 3"
                  : std::to_string(rank);
}

std::string TextOf(const Transfer &t, bool turned)
{
    std::string done =
        t.done < 0 ? "" : "done %e[" + std::to_string(t.done) + "] ";

    if (t.IsCollective())
        return t.quiet     ? "%g = all_gather %g[tp] "
               : t.gathers ? "%g = all_gather %s "
                           : "%t = all_reduce %s ";
    return t.to >= 0 ? "send %x to " + PeerText(t.to, turned) + " " + done
                     : "%t = recv from " + PeerText(t.from, turned) + " ";
}

std::string TextOf(const Item &item, bool turned)
{
    std::string event =
        item.events.empty() ? "" : "%e[" + std::to_string(item.events[0]) + "]";
    std::string text;

    switch (item.kind) {
    case COMPUTE:
        return "%y = relu %x ";
    case RECORD:
        return event + " = record ";
    case WAIT:
        return "wait " + event + " ";
    case FORK:
        return "fork ";
    case JOIN:
        return "join ";
    case TRANSFERS:
        for (const Transfer &t : item.members)
            text += TextOf(t, turned);
        return item.members.size() > 1 ? "group { " + text + "} " : text;
    }
    return "";
}

// Of a launch, what its collective reduces, or reads what that gathers.
std::string ProductText(const std::vector<Item> &items, size_t at)
{
    int launch = items[at].launch;

    if (at + 1 < items.size() && items[at + 1].launch == launch &&
        items[at + 1].kind == TRANSFERS)
        return "%s = matmul %x, %x ";
    if (at > 0 && items[at - 1].launch == launch &&
        items[at - 1].kind == TRANSFERS)
        return "%z = matmul %g, %x ";
    return "%y = matmul %x, %x ";
}

std::string TextOf(const std::vector<Item> &items, bool turned)
{
    std::string text;

    for (size_t i = 0; i < items.size(); i++) {
        bool first = i == 0 || items[i].launch != items[i - 1].launch;
        bool last =
            i + 1 == items.size() || items[i].launch != items[i + 1].launch;

        if (items[i].launch == 0)
            first = last = true;
        if (first && items[i].stream > 0)
            text += "on stream " + std::to_string(items[i].stream - 1) + " { ";
        if (first && items[i].launch > 0)
            text += "launch { ";
        text += items[i].kind == COMPUTE && items[i].launch > 0
                    ? ProductText(items, i)
                    : TextOf(items[i], turned);
        if (last)
            text += std::string(items[i].launch > 0 ? "}" : "") +
                    (items[i].stream > 0 ? "}\n" : "\n");
    }
    return text;
}

std::string HeadOf(const Job &job, size_t ranks)
{
    return "host program p mesh tp=" + std::to_string(ranks) + " streams " +
           std::to_string(job.nstreams - 1) +
           " in %x : f32[2, 2] temp %y : f32[2, 2] temp %s : f32[2, 2] shared "
           "temp %t : f32[2, 2] shared temp %e : event[32] temp %g : f32[" +
           std::to_string(ranks) + ", 2, 2] shared temp %z : f32[" +
           std::to_string(ranks) + ", 2, 2] {\n";
}

std::string TextOf(const Job &job)
{
    std::string text = HeadOf(job, job.ranks.size());

    for (size_t rank = 0; rank < job.ranks.size(); rank++)
        text += "if tp == " + std::to_string(rank) + " {\n" +
                TextOf(job.ranks[rank], false) + "}\n";
    return text + "}";
}

std::string TurnedText(const Job &one)
{
    return HeadOf(one, 3) + TextOf(one.ranks[0], true) + "}";
}

// -------------------------------------------------------------------- verdict

unsigned SerialOf(const Job &job)
{
    return job.nccl ? 1 : 0;
}

unsigned BusyOf(const Job &job)
{
    return job.busy || job.nccl ? 1 : 0;
}

// What the checker says; HANGS without launches, too, is `always`.
Model::Verdict Judge(const Job &job, const std::string &text, bool *always)
{
    Program p(text);
    hd_graph graph;
    hd_replay replay;

    *always = false;
    if (p.status != HD_OK ||
        hd_graph_create(p.module, p.diag, &graph) != HD_OK) {
        ADD_FAILURE() << p.Said() << text;
        return Model::TOO_LARGE;
    }
    EXPECT_EQ(hd_graph_match(&graph, p.diag), HD_OK) << p.Said() << text;
    EXPECT_EQ(hd_replay_run(&graph, SerialOf(job), p.diag, &replay), HD_OK);
    *always = !hd_schedule_is_over(&replay.schedule);
    hd_replay_free(&replay);
    hd_status status =
        *always ? HD_ERROR_INVALID
                : hd_launch_check(&graph, SerialOf(job), BusyOf(job), p.diag);
    hd_graph_free(&graph);
    EXPECT_TRUE(*always || status == HD_OK ||
                p.Said().find(job.nccl ? "HD0708" : "HD0706") !=
                    std::string::npos)
        << p.Said() << text;
    return status == HD_OK ? Model::ENDS : Model::HANGS;
}

// --------------------------------------------------------- lowered programs

// Of consecutive statements of a block, and of those inside, some are made
// launches.
void Wrap(hd_module *module, hd_block *block, std::mt19937_64 &random)
{
    hd_block old = *block;

    *block = {};
    for (hd_stmt *s = old.first, *next; s != nullptr; s = next) {
        next = s->next;
        if (!MayBeLaunched(s) || Below(random, 3) == 0) {
            if (s->kind != HD_STMT_GROUP && s->kind != HD_STMT_LAUNCH) {
                Wrap(module, &s->body, random);
                Wrap(module, &s->otherwise, random);
            }
            hd_block_append(block, s);
            continue;
        }
        hd_stmt *launch = block->last;
        if (launch == nullptr || launch->kind != HD_STMT_LAUNCH ||
            Below(random, 4) == 0) {
            launch = hd_stmt_new(module, HD_STMT_LAUNCH, s->loc);
            hd_block_append(block, launch);
        }
        hd_block_append(&launch->body, s);
    }
}

Item ItemOf(const hd_step &step)
{
    Item item = {COMPUTE, step.stream + 1, 0};

    switch (hd_op_sync(step.op)) {
    case HD_SYNC_FORK:
        item.kind = FORK;
        break;
    case HD_SYNC_JOIN:
        item.kind = JOIN;
        break;
    case HD_SYNC_RECORD:
        item.kind = RECORD;
        item.events = {step.index};
        break;
    case HD_SYNC_WAIT:
        item.kind = WAIT;
        for (int i = 0; i < step.op->nviews; i++)
            item.events.push_back(step.record[i].step);
        break;
    case HD_SYNC_NONE:
        break;
    }
    return item;
}

hd_status AddSteps(void *context, const hd_step *steps, int n)
{
    auto *items = static_cast<std::vector<Item> *>(context);
    Item item = ItemOf(steps[0]);
    int last = 0; // the number of the last launch, which is odd if it has a 1

    for (const Item &before : *items)
        last = std::max(last, before.launch);
    if (steps[0].launch > 0)
        item.launch = last + ((last + 1) % 2 == steps[0].launch % 2);
    if (hd_op_is(steps[0].op, HD_UNIT_TRANSFER))
        item.kind = TRANSFERS;
    for (int i = 0; i < n && item.kind == TRANSFERS; i++) {
        Transfer t;

        if (hd_op_move(steps[i].op) == HD_MOVE_SEND)
            t.to = steps[i].peer;
        if (hd_op_move(steps[i].op) == HD_MOVE_RECV)
            t.from = steps[i].peer;
        if (hd_op_key(steps[i].op, HD_KEY_DONE) != nullptr)
            t.done = steps[i].index;
        // What a rank sends to others, and what it has where all have it.
        t.quiet = steps[i].op->noutputs + steps[i].op->ninputs == 1 ||
                  (hd_op_fold(steps[i].op) == HD_FOLD_NONE &&
                   steps[i].span[0].buffer == steps[i].span[1].buffer);
        item.members.push_back(t);
    }
    items->push_back(item);
    return HD_OK;
}

const char *const kTensors[] = {
    "in %a : f32[2@tp, 4, 4] in %w : f32[4, 4] temp %g : f32[2@stream, 4, 4] "
    "out %c : f32[2@stream, 4, 4] { %g = set %a %c = matmul %g, %w }",
    "in %a : f32[2@tp, 2@stream, 4, 4] in %w : f32[2@tp, 1, 4, 4] "
    "temp %p : f32[2@tp, 2@stream, 4, 4] out %c : f32[2@tp, 4, 4] "
    "{ %p = matmul %a, %w %c = sum %p dim 0 }",
    "in %a : f32[2@tp, 4, 4] in %w : f32[4, 4] temp %g : f32[2@stream, 4, 4] "
    "out %c : f32[2@stream, 4, 4] in %b : f32[4, 4] out %d : f32[4, 4] "
    "out %e : f32[2@stream, 4, 4] { %d = matmul %b, %w %g = set %a "
    "%c = matmul %g, %w %e = scale %g by 2 }",
};

TEST(Launch, LoweredProgramsWithLaunchesAreJudgedAsTheyAre)
{
    uint64_t first = Seed();
    int hang = 0, end = 0, large = 0;

    for (uint64_t seed = first; seed < first + 400; seed++) {
        std::mt19937_64 random(seed);
        Program p(std::string("tensor program p mesh tp=2 ") +
                  kTensors[random() % 3]);
        hd_lower_options options = hd_lower_defaults();

        options.transfer = static_cast<hd_transfer>(random() % 6);
        options.streams = 1 + Below(random, 2);
        options.comm_stream = Below(random, 2) != 0;
        options.defer_sends = Below(random, 2) != 0;
        options.copy_own = Below(random, 3) == 0;
        options.asked = 0;
        ASSERT_EQ(hd_lower(p.module, &options, nullptr, nullptr, p.diag), HD_OK)
            << p.Said();
        Wrap(p.module, &p.module->body, random);

        std::string text = p.Print();
        Job job = {static_cast<int>(p.module->streams) + 1, false, {{}, {}}};
        for (int rank = 0; rank < 2; rank++)
            ASSERT_EQ(
                hd_walk(p.module, rank, p.diag, AddSteps, &job.ranks[rank]),
                HD_OK)
                << p.Said() << text;
        bool always;
        Model::Verdict said =
            Judge(job, text.substr(text.find('\n') + 1), &always);
        Model::Verdict verdict = Model(job).Explore(20000);
        if (verdict == Model::TOO_LARGE) {
            large++;
            continue;
        }
        ASSERT_EQ(said, verdict) << "HEDDLE_TEST_SEED=" << seed << "\n" << text;
        (verdict == Model::HANGS ? hang : end)++;
    }
    std::printf("%d hang, %d end, %d were too large\n", hang, end, large);
    EXPECT_GT(hang, 20);
    EXPECT_GT(end, 20);
}

// Rank 0's launch begins behind a part of rank 1's, and each keeps the copy
// from starting that the other one waits for.
//
//     rank 0   recv a, launch { wait b }, recv b   |  compute, send c
//     rank 1   launch { compute, record, wait c }  |  send a, recv c  |
//              compute, send b
TEST(Launch, OneThatIsUnderWayMayHaveLetTheOtherBegin)
{
    Transfer to_0 = {0}, to_1 = {1}, from_0 = {-1, 0}, from_1 = {-1, 1};
    Job job = {5, false, {}};
    bool always;

    job.ranks = {{{FORK, 0},
                  {TRANSFERS, 1, 0, {}, {from_1}},
                  {TRANSFERS, 2, 0, {}, {from_1}},
                  {RECORD, 2, 0, {0}},
                  {WAIT, 1, 1, {0}},
                  {COMPUTE, 1, 1},
                  {COMPUTE, 3},
                  {TRANSFERS, 3, 0, {}, {to_1}},
                  {JOIN, 0}},
                 {{FORK, 0},
                  {TRANSFERS, 2, 0, {}, {from_0}},
                  {RECORD, 2, 0, {0}},
                  {COMPUTE, 1, 1},
                  {RECORD, 1, 1, {1}},
                  {WAIT, 1, 1, {0}},
                  {COMPUTE, 1, 1},
                  {WAIT, 3, 0, {1}},
                  {TRANSFERS, 3, 0, {}, {to_0}},
                  {COMPUTE, 4},
                  {TRANSFERS, 4, 0, {}, {to_0}},
                  {JOIN, 0}}};
    EXPECT_EQ(Model(job).Explore(1000000), Model::HANGS);
    EXPECT_EQ(Judge(job, TextOf(job), &always), Model::HANGS);
    EXPECT_FALSE(always);
    // Not where rank 1's launch begins behind the copy.
    job.ranks[1].erase(job.ranks[1].begin() + 9);
    job.ranks[1].insert(job.ranks[1].begin() + 3,
                        {{COMPUTE, 4}, {RECORD, 4, 0, {2}}, {WAIT, 1, 0, {2}}});
    EXPECT_EQ(Model(job).Explore(1000000), Model::ENDS);
    EXPECT_EQ(Judge(job, TextOf(job), &always), Model::ENDS);
}

// Rank 1's launch begins ahead of the one that it waits for, where rank 0 has
// computed before it began its second launch, and rank 2 has not waited for
// that: of both launches the first step is all that is needed.
//
//     rank 0   launch { gather }, launch { gather }  |  send, compute, send
//     rank 1   launch { record }, gather  |  gather, recv, launch { wait }
//     rank 2   gather, launch { gather }  |  recv
TEST(Launch, OneOfWhichAPartIsNeededComesBehindWhatTakesProcessors)
{
    Transfer gather, to_1 = {1}, to_2 = {2}, from_0 = {-1, 0};
    bool always;

    gather.gathers = gather.quiet = true;
    Job job = {2,
               false,
               {{{FORK, 0},
                 {TRANSFERS, 0, 1, {}, {gather}},
                 {COMPUTE, 0, 1},
                 {TRANSFERS, 1, 0, {}, {to_2}},
                 {TRANSFERS, 0, 2, {}, {gather}},
                 {COMPUTE, 0, 2},
                 {COMPUTE, 1},
                 {TRANSFERS, 1, 0, {}, {to_1}},
                 {JOIN, 0}},
                {{FORK, 0},
                 {TRANSFERS, 1, 0, {}, {gather}},
                 {RECORD, 0, 1, {0}},
                 {TRANSFERS, 1, 0, {}, {from_0}},
                 {COMPUTE, 1, 2},
                 {WAIT, 1, 2, {0}},
                 {TRANSFERS, 0, 0, {}, {gather}},
                 {JOIN, 0}},
                {{FORK, 0},
                 {TRANSFERS, 0, 0, {}, {gather}},
                 {TRANSFERS, 0, 1, {}, {gather}},
                 {COMPUTE, 0, 1},
                 {TRANSFERS, 1, 0, {}, {from_0}},
                 {JOIN, 0}}}};
    EXPECT_EQ(Model(job).Explore(1000000), Model::HANGS);
    EXPECT_EQ(Judge(job, TextOf(job), &always), Model::HANGS);
    EXPECT_FALSE(always);
}

// Whether one rank shows that nothing hangs.
bool Shows(const Job &job, const std::string &text)
{
    Program p(text);
    hd_symmetry symmetry;
    hd_full full;
    hd_graph graph;
    hd_replay replay;
    bool ends = false;

    EXPECT_EQ(p.status, HD_OK) << p.Said() << text;
    EXPECT_EQ(hd_symmetry_find(p.module, p.diag, &symmetry), HD_OK);
    EXPECT_TRUE(symmetry.turns[0]) << text;
    EXPECT_EQ(hd_symmetry_full(p.module, &symmetry, p.diag, &full), HD_OK);
    hd_status status =
        hd_graph_fold(p.module, &symmetry, &full, p.diag, &graph);
    hd_full_free(&full);
    if (status != HD_OK) {
        ADD_FAILURE() << p.Said();
        return false;
    }
    EXPECT_TRUE(hd_graph_is_matched(&graph));
    EXPECT_EQ(hd_replay_run(&graph, SerialOf(job), p.diag, &replay), HD_OK);
    if (hd_schedule_is_over(&replay.schedule)) {
        EXPECT_EQ(
            hd_launch_look(&graph, SerialOf(job), BusyOf(job), p.diag, &ends),
            HD_OK);
    }
    hd_replay_free(&replay);
    hd_graph_free(&graph);
    return ends;
}

// All ranks do the same, turned: of that rank 0 shows enough if it finds that
// nothing can hang, and then nothing does.
TEST(Launch, OneRankStandsForAll)
{
    const int n = 2000;
    uint64_t first = Seed();
    int known = 0, ends = 0;

    for (uint64_t seed = first; seed < first + n; seed++) {
        std::mt19937_64 random(seed);
        bool nccl = seed % 3 == 0;
        Job one = {2 + Below(random, 2), Below(random, 8) == 0, {{}}, nccl};
        int transfers = Below(random, 4);
        const Transfer collective = DrawCollective(random);

        DrawOwn(random, one, 0, &one.ranks[0]);
        for (int i = 0; i < transfers; i++) {
            int by = 1 + Below(random, 2);

            if (Below(random, 4) == 0) {
                Insert(random, one, collective, &one.ranks[0]);
                continue;
            }
            size_t at =
                Insert(random, one, {by, -1, Below(random, 4) == 0 ? 0 : -1},
                       &one.ranks[0]);
            if (nccl) // of its own it would wait for a call that waits for it
                one.ranks[0][at].members.push_back({-1, 3 - by});
            else
                Insert(random, one, {-1, 3 - by}, &one.ranks[0]);
        }
        Connect(random, &one.ranks[0]);
        one.ranks[0].insert(one.ranks[0].begin(), {FORK, 0});
        one.ranks[0].push_back({JOIN, 0});

        Job job = {one.nstreams, one.busy, {}, one.nccl};
        for (int rank = 0; rank < 3; rank++) {
            job.ranks.push_back(one.ranks[0]);
            for (Item &item : job.ranks[rank])
                for (Transfer &t : item.members) {
                    t.to = t.to < 0 ? -1 : (rank + t.to) % 3;
                    t.from = t.from < 0 ? -1 : (rank + t.from) % 3;
                }
        }
        bool always, shown = Shows(job, TurnedText(one));
        bool fine = Judge(job, TextOf(job), &always) == Model::ENDS;

        known += shown;
        ends += fine;
        ASSERT_TRUE(!shown || fine) << "HEDDLE_TEST_SEED=" << seed << "\n"
                                    << TurnedText(one);
    }
    std::printf("%d end, of which one rank shows %d\n", ends, known);
    EXPECT_GT(known, ends / 2);
}

// HEDDLE_LAUNCH_PROGRAMS is how many.
TEST(Launch, ARandomProgramIsRefusedIfSomeInterleavingHangs)
{
    const char *given = std::getenv("HEDDLE_LAUNCH_PROGRAMS");
    uint64_t n = given != nullptr ? std::strtoull(given, nullptr, 0) : 2000;
    uint64_t first = Seed();
    int hang = 0, end = 0, always = 0, large = 0;

    for (uint64_t seed = first; seed < first + n; seed++) {
        std::mt19937_64 random(seed);
        Job job = Draw(random);
        job.nccl = seed % 5 == 0;
        std::string text = TextOf(job);
        bool anyway;
        Model::Verdict said = Judge(job, text, &anyway);

        always += anyway;
        Model::Verdict verdict = Model(job).Explore(20000);
        if (verdict == Model::TOO_LARGE) {
            large++;
            continue;
        }
        ASSERT_EQ(said, verdict)
            << "HEDDLE_TEST_SEED=" << seed << "\n"
            << (job.busy ? "busy\n" : "") << (job.nccl ? "nccl\n" : "") << text;
        (verdict == Model::HANGS ? hang : end)++;
    }
    std::printf("%d hang, of which %d do so without launches, %d end, %d were "
                "too large\n",
                hang, always, end, large);
    EXPECT_GT(hang - always, static_cast<int>(n / 20));
    EXPECT_GT(end, static_cast<int>(n / 10));
    EXPECT_LT(large, static_cast<int>(n / 10));
}

} // namespace
