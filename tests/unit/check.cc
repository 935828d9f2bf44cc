// The checker's parts, cells and clocks, against plain definitions of them;
// what it says of whole programs is in tests/golden/check and tests/mutation.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "check/past.h"
#include "check/race.h"
#include "steps/cells.h"
#include "tests/seed.h"
#include "tests/unit/program.h"

namespace
{

// A random shape of `elements` elements, and a statement that copies a random
// view of %name to itself by way of a scalar: only views matter here.
std::vector<int64_t> RandomShape(std::mt19937 &random, int64_t elements)
{
    std::vector<int64_t> shape;

    while (elements > 1 && shape.size() < 4) {
        std::vector<int64_t> divisors;

        for (int64_t d = 1; d <= elements; d++)
            if (elements % d == 0)
                divisors.push_back(d);
        shape.push_back(divisors[random() % divisors.size()]);
        elements /= shape.back();
    }
    if (elements > 1 || shape.empty())
        shape.push_back(elements);
    return shape;
}

std::string Joined(const std::vector<std::string> &words)
{
    std::string text;

    for (size_t i = 0; i < words.size(); i++)
        text += (i > 0 ? ", " : "") + words[i];
    return "[" + text + "]";
}

std::string Text(const std::vector<int64_t> &shape)
{
    std::vector<std::string> words;

    for (int64_t n : shape)
        words.push_back(std::to_string(n));
    return Joined(words);
}

std::string RandomView(std::mt19937 &random, const std::vector<int64_t> &shape)
{
    std::vector<std::string> words;

    for (int64_t n : shape)
        words.push_back(
            random() % 2 ? ":"
                         : std::to_string(random() % static_cast<size_t>(n)));
    return Joined(words);
}

// One root and names of it, and scale statements on random views of them.
std::string RandomProgram(std::mt19937 &random)
{
    static const int64_t sizes[] = {1, 6, 12, 16, 24, 36, 60, 210, 720};
    int64_t elements = sizes[random() % 9];
    std::vector<std::vector<int64_t>> shapes;
    std::string text = "host program parts\n", body;

    for (int i = 0; i < 3; i++) {
        shapes.push_back(
            i == 2 && random() % 2 ? shapes[0] : RandomShape(random, elements));
        text += "temp %t" + std::to_string(i) + " : f32" + Text(shapes.back()) +
                (i > 0 ? " of %t0\n" : "\n");
    }
    for (int i = 0; i < 6; i++) {
        size_t k = random() % shapes.size();
        std::string view =
            "%t" + std::to_string(k) + RandomView(random, shapes[k]);

        body += "    " + view + " = scale " + view + " by 2\n";
    }
    return text + "{\n" + body + "}\n";
}

std::set<int64_t> ElementsOf(const hd_span &span)
{
    std::set<int64_t> elements;

    for (int64_t i = 0; i < hd_span_elements(&span); i++) {
        int64_t rest = i, at = span.offset;

        for (int d = span.ndims - 1; d >= 0; d--) {
            at += rest % span.extent[d] * span.stride[d];
            rest /= span.extent[d];
        }
        elements.insert(at);
    }
    return elements;
}

bool Meet(const std::set<int64_t> &a, const std::set<int64_t> &b)
{
    for (int64_t x : a)
        if (b.count(x) > 0)
            return true;
    return false;
}

bool Includes(const std::set<int64_t> &a, const std::set<int64_t> &b)
{
    return std::includes(a.begin(), a.end(), b.begin(), b.end());
}

struct Graph {
    hd_graph graph;
    hd_diag *diag = hd_diag_create();

    explicit Graph(const hd_module *module)
    {
        EXPECT_EQ(hd_graph_create(module, diag, &graph), HD_OK)
            << hd_diag_text(diag);
    }
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;
    ~Graph()
    {
        hd_graph_free(&graph);
        hd_diag_destroy(diag);
    }
};

void AddCells(void *context, int64_t low, int64_t high)
{
    for (int64_t i = low; i < high; i++)
        EXPECT_TRUE(static_cast<std::set<int64_t> *>(context)->insert(i).second)
            << "cell " << i << " came twice";
}

// Every part of the graph, as elements, by definition.
std::vector<std::set<int64_t>> AllElements(const hd_module *module)
{
    std::vector<std::set<int64_t>> all;
    hd_steps steps;

    EXPECT_EQ(hd_steps_collect(module, 0, nullptr, &steps), HD_OK);
    for (int64_t i = 0; i < steps.nsteps; i++)
        for (int k = 0; k < steps.step[i].op->nviews; k++)
            all.push_back(ElementsOf(steps.step[i].span[k]));
    hd_steps_free(&steps);
    return all;
}

TEST(Part, OverlapIsThatOfTheElementsInAnyTwoShapes)
{
    std::mt19937 random(20261121);
    int overlaps = 0, pairs = 0;

    for (int n = 0; n < 400; n++) {
        std::string text = RandomProgram(random);
        Program p(text);

        ASSERT_EQ(p.status, HD_OK) << text << p.Said();
        Graph g(p.module);
        auto elements = AllElements(p.module);
        ASSERT_EQ(static_cast<size_t>(g.graph.nparts), elements.size());
        for (size_t i = 0; i < elements.size(); i++)
            for (size_t k = 0; k < elements.size(); k++) {
                bool meet = Meet(elements[i], elements[k]);

                EXPECT_EQ(hd_parts_overlap(g.graph.frame, &g.graph.part[i],
                                           &g.graph.part[k]),
                          meet)
                    << text << "parts " << i << " and " << k;
                overlaps += meet;
                pairs++;
            }
    }
    EXPECT_GT(overlaps, pairs / 10);
    EXPECT_LT(overlaps, pairs * 9 / 10);
}

TEST(Cells, APartIsWholeCellsAndTwoShareOneIfTheyOverlap)
{
    std::mt19937 random(20261122);
    int cut = 0;

    for (int n = 0; n < 400; n++) {
        std::string text = RandomProgram(random);
        Program p(text);
        Graph g(p.module);
        hd_cells cells;
        auto elements = AllElements(p.module);
        std::vector<std::set<int64_t>> parts(elements.size());

        ASSERT_EQ(hd_cells_create(&g.graph, nullptr, &cells), HD_OK);
        for (size_t i = 0; i < parts.size(); i++)
            hd_cells_each(&cells, &g.graph.part[i], AddCells, &parts[i]);
        for (size_t i = 0; i < parts.size(); i++)
            for (size_t k = 0; k < parts.size(); k++) {
                EXPECT_EQ(Meet(parts[i], parts[k]),
                          Meet(elements[i], elements[k]))
                    << text << "parts " << i << " and " << k;
                // A part holds all elements of another if it has its cells.
                EXPECT_EQ(Includes(parts[i], parts[k]),
                          Includes(elements[i], elements[k]))
                    << text << "parts " << i << " and " << k;
                for (int64_t cell : parts[i])
                    EXPECT_LT(cell, cells.ncells);
            }
        cut += cells.first_cut[0] >= 0;
        hd_cells_free(&cells);
    }
    EXPECT_GT(cut, 20);
    EXPECT_LT(cut, 380);
}

TEST(Cells, ADimensionThatIsNeverIndexedTakesNone)
{
    Program p("host program slots in %x : f32[4, 1000, 1000] "
              "temp %t : f32[4, 1000, 1000] { for i in 0..4 { "
              "%t[i] = relu %x[i] } }");
    Graph g(p.module);
    hd_cells cells;

    ASSERT_EQ(hd_cells_create(&g.graph, nullptr, &cells), HD_OK);
    EXPECT_EQ(cells.ncells, 8);
    hd_cells_free(&cells);
}

// Rows of 8191 and of 8193 elements have no common size, and each of the 67
// million elements would be a cell.
TEST(Cells, NamesOfOddRowsAreCutWhereRangesBeginOrEnd)
{
    Program p("host program odd in %x : f32[8191, 8193] "
              "temp %y : f32[8193, 8191] of %x temp %t : f32[8193] "
              "temp %u : f32[8191] out %c : f32[8191, 8193] { "
              "for i in 0..40 { %t = copy %x[i] %u = copy %y[8192 - i] } "
              "for i in 0..1000 { %c = copy %x } }");
    ASSERT_EQ(p.status, HD_OK) << p.Said();
    Graph g(p.module);
    hd_cells cells;

    ASSERT_EQ(hd_cells_create(&g.graph, nullptr, &cells), HD_OK) << p.Said();
    // 40 rows at either end and what is between them; %t, %u and %c.
    EXPECT_EQ(cells.ncells, 81 + 3);
    hd_text text = {};
    const hd_part_frame *x = &g.graph.frame[g.graph.part[1].buffer];
    hd_cells_print(&cells, x, cells.first[x->root] + 2, &text);
    EXPECT_STREQ(text.bytes, "%x[2, 0]");
    hd_text_free(&text);
    hd_cells_free(&cells);
    EXPECT_EQ(hd_check(p.module, nullptr, p.diag), HD_OK) << p.Said();
}

TEST(Cells, TooManyAreRefusedByName)
{
    std::string text = "host program fine in %x : f32[8192, 8193] "
                       "out %y : f32[8192, 8193] "
                       "{ %y[0, 0] = relu %x[0, 0] }";
    Program p(text);
    ASSERT_EQ(p.status, HD_OK) << p.Said();

    EXPECT_EQ(hd_check(p.module, nullptr, p.diag), HD_ERROR_INVALID);
    EXPECT_NE(p.Said().find("HD0105"), std::string::npos) << p.Said();
    EXPECT_NE(p.Said().find("%x is used in 67117056 pieces"), std::string::npos)
        << p.Said();
}

// ------------------------------------------------------------------ order

struct Seen {
    std::vector<int64_t> steps;
    std::vector<std::vector<int32_t>> clocks;
    int width;
    int ends = 0;
    hd_past *past = nullptr; // asked about all that went before
};

void See(void *context, int64_t step, const int32_t *clock)
{
    Seen *seen = static_cast<Seen *>(context);

    if (step == HD_RUN_END) {
        seen->ends++;
        return;
    }
    if (seen->past != nullptr) {
        EXPECT_EQ(hd_past_learn(seen->past, 0), HD_OK);
    }
    seen->steps.push_back(step);
    seen->clocks.emplace_back(clock, clock + seen->width);
}

const char *const kAnswer =
    "host program answer mesh tp=2 streams 2 in %a : f32[8] in %i : f32[1] "
    "temp %x : f32[8] temp %got : f32[8] shared temp %word : f32[1] shared "
    "{ %x = copy %a fork if tp == 0 { on stream 0 { send %x to 1 } "
    "on stream 1 { %word = recv from 1 %x = relu %a } } else { "
    "on stream 0 { %got = recv from 0 send %i to 0 } } join }";

TEST(Order, PeersAreAskedOnlyWhereSomeoneLearns)
{
    Program p(kAnswer);
    ASSERT_EQ(p.status, HD_OK) << p.Said();
    Graph g(p.module);
    std::vector<int32_t> loose(16);
    Seen local = {{}, {}, 3, 0, nullptr}, global = local;
    hd_watch watch = {0, 0, loose.data(), See, &local};
    hd_past past;
    int64_t visits = 0;

    EXPECT_EQ(hd_order_number_loose(&g.graph, 0, loose.data()), 0);
    ASSERT_EQ(hd_order_each(&g.graph, 2, &watch, nullptr), HD_OK);
    ASSERT_EQ(hd_past_create(&g.graph, &visits, nullptr, &past), HD_OK);
    watch.context = &global;
    global.past = &past;
    ASSERT_EQ(hd_past_each(&past, &watch), HD_OK);
    hd_past_free(&past);
    EXPECT_EQ(local.ends, 1);
    EXPECT_EQ(global.ends, 1);
    ASSERT_EQ(local.steps.size(), 12u);
    ASSERT_EQ(global.steps.size(), 12u);
    // Step 4 is the relu on stream 1; the send is the first of stream 0.
    for (size_t i = 0; i < 12; i++) {
        if (local.steps[i] == 4) {
            EXPECT_EQ(local.clocks[i], (std::vector<int32_t>{2, 0, 1}));
        }
        if (global.steps[i] == 4) {
            EXPECT_EQ(global.clocks[i], (std::vector<int32_t>{2, 1, 1}));
        }
    }
}

TEST(Order, AJoinLearnsWhatItsStreamsKnewWhenTheyPassedIt)
{
    // Stream 0 of rank 0 goes on past the join while stream 1 is still waiting
    // for the peer: the caller's stream must not learn of that.
    Program p("host program join mesh tp=2 streams 2 in %a : f32[8] "
              "temp %x : f32[8] temp %y : f32[8] temp %got : f32[8] shared "
              "{ fork on stream 0 { %x = copy %a } "
              "on stream 1 { if tp == 0 { %got = recv from 1 } "
              "else { send %a to 0 } } join on stream 0 { %y = copy %a } "
              "%y = relu %a join }");
    ASSERT_EQ(p.status, HD_OK) << p.Said();
    std::string said;

    EXPECT_EQ(hd_check(p.module, nullptr, p.diag), HD_ERROR_INVALID);
    EXPECT_NE(p.Said().find("HD0801"), std::string::npos) << p.Said();
}

TEST(Waste, WhoWaitsForASendKnowsWhatWasRecordedAheadOfIt)
{
    // Stream 0 records %r before the send: what has seen the send end has
    // seen the record, unless the two stand the other way round.
    for (bool ahead : {true, false}) {
        std::string send = "send %a to 1 - tp done %e ",
                    record = "%r = record ";
        Program p("host program p mesh tp=2 streams 2 in %a : f32[4] "
                  "out %y : f32[4] temp %t : f32[4] temp %r : event[] "
                  "temp %e : event[] temp %g : f32[4] shared {\n"
                  "fork on stream 0 { %t = copy %a " +
                  (ahead ? record + send : send + record) +
                  "%g = recv from 1 - tp }\n"
                  "on stream 1 { wait %e\nwait %r\n%y = copy %t }\n"
                  "join %y = add %y, %g }");

        EXPECT_EQ(hd_check(p.module, nullptr, p.diag), HD_OK) << p.Said();
        EXPECT_EQ(p.Said().find("test.hd:5:1: warning[HD0813]") !=
                      std::string::npos,
                  ahead)
            << p.Said();
    }
}

// Every rank's stream 1 reads what stream 0 has written once the next rank has
// answered: each needs order by way of a peer in every round. Whoever went back
// to the beginning would meet all ranks there.
std::string Echo(int ranks, int rounds)
{
    std::string n = std::to_string(rounds);

    return "host program echo mesh tp=" + std::to_string(ranks) +
           " streams 2 in %a : f32[8] out %c : f32[8] in %t : f32[1] shared "
           "temp %x : f32[" +
           n +
           ", 8] temp %u : f32[1] shared temp %v : f32[1] shared "
           "{ fork for i in 0.." +
           n +
           " { on stream 0 { %x[i] = copy %a "
           "group { send %t to (tp + 1) mod size tp "
           "%u = recv from (tp - 1) mod size tp } "
           "send %u to (tp - 1) mod size tp } "
           "on stream 1 { %v = recv from (tp + 1) mod size tp "
           "%c = relu %x[i] } } join }";
}

TEST(Race, OrderByWayOfPeersIsLookedUpWhereItIsAndNotOnceARank)
{
    for (int ranks : {8, 64})
        for (int rounds : {4, 40}) {
            Program p(Echo(ranks, rounds));
            ASSERT_EQ(p.status, HD_OK) << p.Said();
            Graph g(p.module);
            int64_t visits = 0, steps = 2 * g.graph.first[ranks];

            EXPECT_EQ(hd_race_check(&g.graph, 0, p.diag, &visits), HD_OK)
                << p.Said();
            EXPECT_GT(visits, steps) << "no peers were asked";
            EXPECT_LT(visits, 8 * steps) << ranks << " ranks";
        }
}

TEST(Race, EachPairOfPlacesIsReportedOnce)
{
    Program p("host program many mesh tp=8 streams 2 in %a : f32[8, 4] "
              "temp %x : f32[4] { fork for i in 0..8 { "
              "on stream i mod 2 { %x = relu %a[i] } } join }");
    ASSERT_EQ(p.status, HD_OK) << p.Said();

    EXPECT_EQ(hd_check(p.module, nullptr, p.diag), HD_ERROR_INVALID);
    EXPECT_EQ(hd_diag_errors(p.diag), 1u) << p.Said();
}

TEST(Check, TheLimitOfWaitingStreamsIsTheCallers)
{
    Program p("host program wide streams 3 in %a : f32[8] temp %e : event[1] "
              "out %x : f32[3, 8] { %e[0] = record for i in 0..3 { "
              "on stream i { wait %e[0] %x[i] = relu %a } } join }");
    hd_check_options options = hd_check_defaults();

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_EQ(hd_check(p.module, nullptr, p.diag), HD_OK) << p.Said();
    EXPECT_EQ(hd_diag_count(p.diag), 0u) << p.Said();
    options.waiting_streams = 3;
    EXPECT_EQ(hd_check(p.module, &options, p.diag), HD_OK) << p.Said();
    EXPECT_NE(p.Said().find("warning[HD0805]: 4 streams of rank 0"),
              std::string::npos)
        << p.Said();
}

} // namespace
