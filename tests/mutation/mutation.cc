// Mutants: what the oracle fails the checker rejects, and what it passes the
// checker accepts. HEDDLE_MUTANTS is how many (500), HEDDLE_TEST_SEED where
// they begin (1): each has a seed of its own, which a failure prints.
#include <cstdlib>
#include <map>

#include "tests/match.h"
#include "tests/mutation/cases.h"
#include "tests/mutation/mutate.h"
#include "tests/mutation/programs.h"
#include "tests/second/launches.h"
#include "tests/seed.h"
#include "tests/unit/program.h"

namespace
{

std::string Lowered(const Base &base)
{
    Program p(base.text);

    EXPECT_EQ(p.status, HD_OK) << base.name << ": " << p.Said();
    if (p.status != HD_OK)
        return "";
    if (base.lower) {
        EXPECT_EQ(hd_lower(p.module, &base.options, nullptr, nullptr, p.diag),
                  HD_OK)
            << base.name << ": " << p.Said();
    }
    std::string text = p.Print();
    return text.substr(text.find('\n') + 1); // Program adds the first line
}

std::vector<Base> AllBases()
{
    std::vector<Base> all = TensorBases(), host = HostBases();

    all.insert(all.end(), host.begin(), host.end());
    return all;
}

struct Tally {
    int unchanged = 0, early = 0, clean = 0, hang = 0, unknown = 0;
    std::map<oracle_verdict, int> failed;
};

// Empty, or how the two disagree.
std::string Compare(const std::string &text, Tally *tally)
{
    Program p(text);
    char why[200] = "";

    if (p.status != HD_OK) {
        tally->early++;
        return "";
    }
    hd_status proved = hd_check(p.module, nullptr, p.diag);
    std::string said = p.Said();
    if (match_module(p.module, nullptr) != HD_OK) {
        tally->early++;
        return proved != HD_OK ? "" : "the checker takes what does not match";
    }
    oracle_verdict verdict =
        oracle_judge(p.module, ORACLE_DELAY, 0, 0, why, sizeof why);
    // Which launches the oracle takes for their steps alone.
    second::Launches launches = second::Explore(second::Parse(p.Print()));
    if (verdict != ORACLE_CLEAN)
        tally->failed[verdict]++;
    else if (launches == second::Launches::END)
        tally->clean++;
    else if (launches == second::Launches::HANG)
        tally->hang++;
    else if (said.find("HD0706") != std::string::npos) {
        tally->unknown++;
        return "";
    }
    if ((verdict == ORACLE_CLEAN && launches != second::Launches::HANG) ==
        (proved == HD_OK))
        return "";
    return std::string("oracle: ") + oracle_text(verdict) + ": " + why +
           (launches == second::Launches::HANG ? ", a launch hangs" : "") +
           "\nchecker: " + (proved == HD_OK ? "fine" : said);
}

long Number(const char *name, long otherwise)
{
    const char *value = std::getenv(name);

    return value != nullptr ? std::atol(value) : otherwise;
}

TEST(Mutation, TheProgramsThemselvesAreClean)
{
    for (const Base &base : AllBases()) {
        Tally tally;

        EXPECT_EQ(Compare(Lowered(base), &tally), "") << base.name;
        EXPECT_EQ(tally.clean, 1) << base.name << "\n" << Lowered(base);
    }
}

TEST(Mutation, TheCheckerSeesWhatIsPlain)
{
    for (const PlainCase &c : kCases) {
        Program p(c.text);

        ASSERT_EQ(p.status, HD_OK) << p.Said();
        EXPECT_EQ(hd_check(p.module, nullptr, p.diag),
                  c.verdict == ORACLE_CLEAN ? HD_OK : HD_ERROR_INVALID)
            << c.text << "\n"
            << p.Said();
    }
}

TEST(Mutation, TheCheckerJudgesMutantsAsTheOracleDoes)
{
    std::vector<Base> bases = AllBases();
    std::vector<std::string> texts;
    long count = Number("HEDDLE_MUTANTS", 500);
    long seed = SeedFrom(1);
    Tally tally;

    for (const Base &base : bases)
        texts.push_back(Lowered(base));
    for (long done = 0; done < count; seed++) {
        std::mt19937 random(static_cast<unsigned>(seed));
        size_t which = random() % texts.size();
        Program p(texts[which]);
        std::string what = Mutate(p.module, random);

        if (random() % 4 == 0)
            what += ", " + Mutate(p.module, random);
        std::string mutant = p.Print();

        mutant = mutant.substr(mutant.find('\n') + 1);
        if (mutant == texts[which]) {
            tally.unchanged++;
            continue;
        }
        done++;
        ASSERT_EQ(Compare(mutant, &tally), "")
            << "seed " << seed << ", " << bases[which].name << ", " << what
            << "\n"
            << mutant;
    }
    printf("mutants: %ld, rejected early %d, clean %d, hang by launches %d, "
           "or perhaps %d",
           count, tally.early, tally.clean, tally.hang, tally.unknown);
    for (const auto &f : tally.failed)
        printf(", %s %d", oracle_text(f.first), f.second);
    printf("\n");
    EXPECT_GT(tally.clean, count / 20);
    EXPECT_GT(tally.hang, 0);
    EXPECT_GT(tally.failed[ORACLE_RACE], count / 20);
    for (int v = ORACLE_DEADLOCK; v < ORACLE_TOO_LARGE; v++) {
        if (v != ORACLE_LIFETIME || count >= 5000) {
            EXPECT_GT(tally.failed[static_cast<oracle_verdict>(v)], 0)
                << oracle_text(static_cast<oracle_verdict>(v));
        }
    }
}

// Every way in which one temporary may take the bytes of another.
TEST(Mutation, LifetimesAreJudgedAlike)
{
    Tally tally;

    for (const Base &base : HostBases()) {
        if (base.name == "many1") // thousands of pairs, all alike
            continue;
        std::string text = Lowered(base);
        Program whole(text);
        int n = whole.module->nbuffers;

        for (int i = 0; i < n; i++)
            for (int k = 0; k < i; k++) {
                Program p(text);
                hd_buffer *b = p.module->buffers, *other = b;

                for (int at = 0; at < i; at++)
                    b = b->next;
                for (int at = 0; at < k; at++)
                    other = other->next;
                if (b->role != HD_ROLE_TEMP || other->role == HD_ROLE_IN ||
                    other->of != nullptr || b->of == other)
                    continue;
                b->of = other;
                std::string mutant = p.Print();
                ASSERT_EQ(Compare(mutant.substr(mutant.find('\n') + 1), &tally),
                          "")
                    << mutant;
            }
    }
    EXPECT_GT(tally.clean, 0);
    EXPECT_GT(tally.failed[ORACLE_LIFETIME], 3);
}

// ------------------------------------------------------------------- waits

// Every block that holds a wait, and the statement before it.
void ListWaits(hd_block *block,
               std::vector<std::pair<hd_block *, hd_stmt *>> *out)
{
    hd_stmt *before = nullptr;

    for (hd_stmt *s = block->first; s != nullptr; before = s, s = s->next) {
        if (s->kind == HD_STMT_OP && s->op->code == HD_OP_WAIT)
            out->push_back({block, before});
        ListWaits(&s->body, out);
        ListWaits(&s->otherwise, out);
    }
}

// How many waits the program has; with `drop` >= 0 that one is deleted and the
// checker must object.
size_t TryWithout(const std::string &text, long drop)
{
    Program p(text);
    std::vector<std::pair<hd_block *, hd_stmt *>> waits;

    ListWaits(&p.module->body, &waits);
    if (drop < 0)
        return waits.size();
    hd_block *block = waits[static_cast<size_t>(drop)].first;
    hd_stmt *before = waits[static_cast<size_t>(drop)].second;
    hd_block_remove(block, before, before ? before->next : block->first);
    EXPECT_EQ(hd_check(p.module, nullptr, p.diag), HD_ERROR_INVALID)
        << "without wait " << drop << ":\n"
        << p.Print();
    return waits.size();
}

TEST(Mutation, NoWaitOfALoweredProgramCanBeLeftOut)
{
    size_t dropped = 0;

    for (Base base : TensorBases())
        for (int transfer = 0; transfer < 5; transfer++)
            for (int streams = 2; streams <= 4; streams++)
                for (int defer = 0; defer < 4; defer++) {
                    base.options.transfer = static_cast<hd_transfer>(transfer);
                    base.options.streams = streams;
                    base.options.defer_sends = defer % 2 != 0;
                    base.options.comm_stream = defer / 2 != 0;
                    std::string text = Lowered(base);
                    size_t n = TryWithout(text, -1);

                    for (size_t i = 0; i < n; i++)
                        TryWithout(text, static_cast<long>(i));
                    dropped += n;
                }
    EXPECT_GT(dropped, 100u);
}

} // namespace
