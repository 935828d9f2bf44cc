// Advice of the checker: a wait that is tried in the graph is what the same
// wait in the text would be, as the oracle executes that.
#include "check/repair.h"
#include "check/replay.h"
#include "ir/print.h"

#include <cstdlib>
#include <random>
#include <vector>

#include "tests/match.h"
#include "tests/mutation/cases.h"
#include "tests/mutation/mutate.h"
#include "tests/mutation/programs.h"
#include "tests/second/launches.h"
#include "tests/seed.h"
#include "tests/unit/program.h"

namespace
{

// A statement, or the group that it is a member of.
struct Place {
    hd_block *block;
    hd_stmt *before, *stmt;
    const hd_op *op;
};

void List(hd_block *block, const Place *group, std::vector<Place> *out)
{
    hd_stmt *before = nullptr;

    for (hd_stmt *s = block->first; s != nullptr; before = s, s = s->next) {
        Place here = group != nullptr ? *group : Place{block, before, s, {}};

        here.op = s->op;
        if (s->kind == HD_STMT_OP)
            out->push_back(here);
        List(&s->body, s->kind == HD_STMT_GROUP ? &here : nullptr, out);
        List(&s->otherwise, nullptr, out);
    }
}

hd_stmt *Sync(hd_module *module, hd_opcode code, hd_buffer *event)
{
    bool records = code == HD_OP_RECORD;
    hd_stmt *s = hd_stmt_op(module, code, -1, records, !records, 0, {});

    s->op->view[0] = hd_view_whole(event, {});
    return s;
}

// The text with a wait before y for a record after x.
std::string WithWait(hd_module *module, Place x, Place y)
{
    hd_type type = {};

    type.dtype = HD_DTYPE_EVENT;
    hd_buffer *event = hd_module_add_buffer(module, "new", HD_ROLE_TEMP, &type);
    // Statements that follow each other have one place between them.
    bool next = y.before == x.stmt;
    hd_stmt *record = Sync(module, HD_OP_RECORD, event);

    hd_block_insert(x.block, x.stmt, record);
    hd_block_insert(y.block, next ? record : y.before,
                    Sync(module, HD_OP_WAIT, event));
    hd_text text = {};
    hd_module_print(module, &text);
    std::string words = text.bytes;
    hd_text_free(&text);
    return words.substr(words.find('\n') + 1);
}

bool IsStuck(const hd_module *module)
{
    char why[200];

    return oracle_judge(module, ORACLE_RANDOM, 0, 0, why, sizeof why) ==
           ORACLE_DEADLOCK;
}

bool Hangs(const Program &p)
{
    return second::Explore(second::Parse(p.Print())) == second::Launches::HANG;
}

int64_t FindStep(const hd_graph &graph, int rank, const hd_op *op)
{
    for (int64_t i = 0; i < hd_graph_steps(&graph, rank); i++)
        if (hd_graph_node(&graph, rank, i)->op == op)
            return i;
    return -1;
}

// Streams that exchange with the same stream of a peer: to wait for the other
// one ahead of time stops them all.
const char *const kExchanges[] = {
    "host program both mesh tp=2 streams 2 in %x : f32[2] out %y : f32[2] "
    "temp %t : f32[2] shared { fork on stream 0 { %t = recv from 1 - tp } "
    "on stream 1 { send %x to 1 - tp } join %y = copy %t }",
    "host program ring mesh tp=3 streams 3 in %x : f32[2] out %y : f32[2] "
    "temp %t : f32[2, 2] shared { fork on stream 0 { "
    "%t[0] = recv from (tp + 2) mod 3 } on stream 1 { "
    "%t[1] = recv from (tp + 1) mod 3 } on stream 2 { "
    "send %x to (tp + 1) mod 3 send %x to (tp + 2) mod 3 } "
    "join %y = copy %t[1] }",
};

struct Tally {
    int fine = 0, stuck = 0;
};

// Tries one wait both ways.
void Try(const std::string &text, std::mt19937 &random, Tally *tally)
{
    Program p(text);
    std::vector<Place> places;
    hd_graph graph;
    bool works = false;

    if (p.status != HD_OK || match_module(p.module, nullptr) != HD_OK ||
        IsStuck(p.module) ||
        hd_graph_create(p.module, nullptr, &graph) != HD_OK)
        return;
    List(&p.module->body, nullptr, &places);
    Place a = places[random() % places.size()];
    Place b = places[random() % places.size()];
    int64_t x = FindStep(graph, 0, a.op), y = FindStep(graph, 0, b.op);
    bool tried = x >= 0 && y > x && a.stmt != b.stmt &&
                 hd_op_key(a.op, HD_KEY_DONE) == nullptr;

    if (tried) {
        ASSERT_EQ(hd_repair_try_wait(&graph, 0, 0, x, y, nullptr, &works),
                  HD_OK);
    }
    hd_graph_free(&graph);
    if (!tried)
        return;
    std::string written = WithWait(p.module, a, b);
    Program q(written);
    // A rank that lacks the record has no such wait in the graph.
    if (q.status != HD_OK || match_module(q.module, nullptr) != HD_OK)
        return;
    // It asks more of launches: that they are fine over NCCL, too.
    if (written.find("launch {") != std::string::npos)
        EXPECT_FALSE(works && (IsStuck(q.module) || Hangs(q))) << written;
    else
        EXPECT_EQ(works, !IsStuck(q.module)) << written;
    (works ? tally->fine : tally->stuck)++;
}

TEST(Repair, AWaitIsTriedAsItIsWritten)
{
    std::vector<std::string> texts;
    Tally tally;
    std::mt19937 random(SeedFrom(20261122));

    for (const char *text : kExchanges)
        texts.insert(texts.end(), 10, text);
    for (const PlainCase &c : kCases)
        texts.push_back(c.text);
    for (const Base &base : HostBases())
        if (base.text.find("for ") == std::string::npos && base.name != "many1")
            texts.push_back(base.text);
    for (int n = 0; n < 8000; n++)
        Try(texts[random() % texts.size()], random, &tally);
    printf("waits: %d let all ranks end, %d do not\n", tally.fine, tally.stuck);
    EXPECT_GT(tally.fine, 100);
    EXPECT_GT(tally.stuck, 20);
}

// What rank 0 sends along b comes, handed on by two others, to the rank below
// it. That one's next call along b, which NCCL puts behind that one, comes
// before what it sends to rank 0 along a.
const char *const kOverNccl =
    "host program t mesh b=3, a=2 streams 2 in %x : f32[2] out %y : f32[2] "
    "temp %t : f32[2, 2] shared { fork "
    "if a == 0 { if b == 0 { "
    "on stream 0 { %t[0] = recv@a from 1 } on stream 1 { send@b %x to 1 } } "
    "if b == 1 { on stream 0 { %t[0] = recv@b from 0 send@a %x to 1 } } "
    "} else { if b == 0 { on stream 0 { %t[0] = recv@b from 1 } "
    "on stream 1 { %t[1] = recv@b from 2 send@a %x to 0 } } "
    "if b == 1 { on stream 0 { %t[0] = recv@a from 0 send@b %x to 0 } } "
    "if b == 2 { on stream 0 { send@b %x to 0 } } } "
    "join %y = copy %x }";

TEST(Repair, AWaitIsTriedOverNcclToo)
{
    Program p(kOverNccl);
    hd_graph graph;
    hd_replay replay;
    bool works = false;

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    ASSERT_EQ(match_module(p.module, p.diag), HD_OK) << p.Said();
    ASSERT_EQ(hd_graph_create(p.module, nullptr, &graph), HD_OK);
    ASSERT_EQ(hd_replay_run(&graph, 1, nullptr, &replay), HD_OK);
    EXPECT_TRUE(hd_schedule_is_over(&replay.schedule));
    hd_replay_free(&replay);

    int64_t recv = 0;
    while (hd_op_move(hd_graph_node(&graph, 0, recv)->op) != HD_MOVE_RECV)
        recv++;
    for (unsigned serial : {0u, 1u}) {
        ASSERT_EQ(hd_repair_try_wait(&graph, serial, 0, recv, recv + 1, nullptr,
                                     &works),
                  HD_OK);
        EXPECT_EQ(works, serial == 0);
    }
    hd_graph_free(&graph);
}

} // namespace
