// Of ranks that only turn the first one is proven alone: what it shows must
// hold of all. Programs of every pipeline, and the text of examples and
// goldens, with other numbers and with mistakes. HEDDLE_FOLDED is how many
// mutants turn (200), HEDDLE_TEST_SEED where they begin.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "check/prove.h"
#include "ir/symmetry.h"
#include "ir/verify.h"
#include "tests/mutation/composer.h"
#include "tests/mutation/mutate.h"
#include "tests/mutation/programs.h"
#include "tests/second/module.h"
#include "tests/seed.h"

namespace
{

using second::Module;

class Maker
{
  public:
    explicit Maker(std::mt19937 &random) : random_(random)
    {
    }

    // Shards of which the last ones are shorter or empty, or whose length a run
    // says.
    std::string Tensor()
    {
        static const char *const body[] = {
            "in %a : f32[$R@tp, 2, 2] in %w : f32[2, 2] "
            "temp %g : f32[$R@stream, 2, 2] out %c : f32[$R@stream, 2, 2] "
            "{ %g = set %a %c = matmul %g, %w }",
            "in %x : f32[$r@tp, 2] in %w : f32[$N@tp, 2, 2] "
            "temp %g : f32[$r in $N@stream, 2] "
            "temp %h : f32[$N@tp, $r in $N@stream, 2] out %y : f32[$r@tp, 2] "
            "{ %g = set %x %h = matmul %g, %w %y = sum %h dim 0 }",
            "in %a : f32[$r@tp, 2] in %w : f32[2, 3] "
            "temp %g : f32[$r in $N@stream, 2] "
            "temp %h : f32[$r in $N@stream, 2] "
            "out %c : f32[$r in $N@stream, 3] out %d : f32[$r@tp, 2] "
            "{ %g = set %a %h = relu %g %c = matmul %h, %w %d = set %h }",
            "in %x : f32[2, $r@tp] temp %g : f32[2, $r in $N@stream] "
            "out %y : f32[2, $r in $N@stream] { %g = set %x %y = relu %g }",
            "in %x : f32[$N@tp, $r, 2] out %y : f32[$r@tp, 2] "
            "out %z : f32[$r, 2] { %y = sum %x dim 0 %z = max %x dim 0 }",
            "in %x : f32[$r@tp, $N, 2] out %y : f32[$r, $N@tp, 2] "
            "{ %y = set %x }",
            "in %q : f32[$N@tp, 1, $E, 2] in %k : f32[$N@tp, 1, $E, 2] "
            "temp %g : f32[$N@stream, 1, $E, 2] "
            "out %o : f32[$N@tp, 1, $E, 2] out %l : f32[$N@tp, 1, $E] "
            "{ %g = set %k %o, %l = attention %q, %g, %g blocks $M }",
            "in %q : f32[$N@tp, 1, $E, 2] in %k : f32[$N@tp, 1, $E, 2] "
            "in %d : f32[$N@tp, 1, $E, 2] in %o : f32[$N@tp, 1, $E, 2] "
            "in %l : f32[$N@tp, 1, $E] temp %g : f32[$N@stream, 1, $E, 2] "
            "out %s : f32[$N@tp, 1, $E, 2] out %t : f32[$N@tp, 1, $E, 2] "
            "out %u : f32[$N@tp, 1, $E, 2] "
            "{ %g = set %k "
            "%s, %t, %u = attention_grad %d, %q, %g, %g, %o, %l blocks $M }",
        };
        unsigned n = 2 + Below(Below(6) == 0 ? 11 : 4);
        unsigned r = 1 + Below(4 * n);
        std::string text = "heddle 2\ntensor program t ", with;
        bool sized = Below(5) == 0;

        if (sized)
            text += "param m in 1.." + std::to_string(r) + " ";
        text += "mesh tp=$N" + std::string(Below(5) == 0 ? ", dp=2 " : " ");
        text += body[Below(sizeof body / sizeof *body)];
        Put(&text, "$M", Mask());
        Put(&text, "$R", "$N");
        Put(&text, "$r", sized ? "m" : std::to_string(r));
        Put(&text, "$E", std::to_string(2 * (1 + Below(2))));
        Put(&text, "$N", std::to_string(n));
        return text;
    }

    // The numbers that a text says it may have are others, and not too large.
    std::string Other(std::string text)
    {
        for (const std::string word : {"param ", "mesh "})
            for (size_t at = text.find(word); at != std::string::npos;
                 at = text.find(word, at + 1))
                Renumber(&text, at + word.size(), word == "mesh ");
        return text;
    }

    hd_lower_options Options()
    {
        hd_lower_options o = hd_lower_defaults();

        o.transfer = static_cast<hd_transfer>(Below(HD_TRANSFER_AUTO));
        o.protocol = Below(3) == 0 ? HD_PROTOCOL_GET : HD_PROTOCOL_PUT;
        o.streams = 1 + static_cast<int>(Below(3));
        o.chunks = 1 + static_cast<int>(Below(3) == 0 ? Below(3) : 0);
        o.copy_own = Below(4) == 0;
        o.defer_sends = Below(2) == 0;
        o.comm_stream = Below(3) == 0;
        o.launch = Below(6) == 0;
        o.asked = 0;
        return o;
    }

    // A host program; "" where there is none.
    std::string Lowered(const std::string &text)
    {
        Module m(text);
        hd_lower_options options = Options();

        if (m.it == nullptr || hd_verify(m.it, nullptr) != HD_OK ||
            m.it->nranks > 16)
            return "";
        if (m.it->stage != HD_STAGE_HOST &&
            hd_lower(m.it, &options, nullptr, nullptr, nullptr) != HD_OK)
            return "";
        return m.Text();
    }

    std::string Mutant(const std::string &text)
    {
        Module m(Below(4) == 0 ? Number(text) : text);

        if (m.it == nullptr)
            return "";
        for (unsigned i = Below(4) == 0 ? 2 : Below(8) != 0; i > 0; i--)
            Mutate(m.it, random_);
        return m.Text();
    }

    unsigned Below(unsigned n)
    {
        return static_cast<unsigned>(random_() % n);
    }

  private:
    std::string Mask()
    {
        switch (Below(5)) {
        case 0:
            return "zigzag $N - 1 - tp";
        case 1:
            return "zigzag tp";
        case 2:
            return "causal tp * $E";
        case 3:
            return "causal 0 - tp";
        default:
            return "";
        }
    }

    static void Put(std::string *text, const std::string &what,
                    const std::string &by)
    {
        for (size_t at = text->find(what); at != std::string::npos;
             at = text->find(what, at + by.size()))
            text->replace(at, what.size(), by);
    }

    void Renumber(std::string *text, size_t at, bool mesh)
    {
        size_t end = text->find('\n', at);

        for (; at < end && at < text->size(); at++) {
            if ((*text)[at] != '=' || Below(2) == 0)
                continue;
            size_t from = text->find_first_not_of(' ', at + 1), past = from;
            while (past < text->size() && std::isdigit((*text)[past]))
                past++;
            if (past == from)
                continue;
            text->replace(from, past - from,
                          std::to_string(mesh ? 1 + Below(6) : 1 + Below(24)));
            end = text->find('\n', at);
        }
    }

    // One more or less, wherever the text has one number.
    std::string Number(const std::string &text)
    {
        std::string out, old = std::to_string(1 + Below(8));
        std::string by =
            std::to_string(std::stoi(old) + (Below(2) == 0 ? 1 : -1));
        size_t at = text.find('\n');

        out = text.substr(0, at);
        while (at < text.size()) {
            size_t past = at;

            while (past < text.size() &&
                   (std::isalnum(text[past]) || text[past] == '_'))
                past++;
            std::string word = text.substr(at, past > at ? past - at : 1);
            out += word == old ? by : word;
            at += word.size();
        }
        return out;
    }

    std::mt19937 &random_;
};

struct Tally {
    int turning = 0, first = 0, all = 0, wrong = 0, other = 0;
};

// As many steps as each rank has, none where one is wrong.
std::vector<int64_t> Counts(const hd_module *module)
{
    std::vector<int64_t> counts;
    hd_tally tally;

    for (int rank = 0; rank < module->nranks; rank++) {
        if (hd_walk_count(module, rank, nullptr, &tally) != HD_OK)
            return {};
        counts.push_back(tally.steps);
    }
    return counts;
}

// Empty, or how the two disagree.
std::string Compare(const std::string &text, unsigned by, Tally *tally)
{
    static const char *const axes[] = {"tp=nccl", "dp=nccl", "cp=nccl"};
    Module m(text);
    hd_check_options options = hd_check_defaults();
    hd_symmetry symmetry;
    hd_diag *one = hd_diag_create(), *every = hd_diag_create();
    bool turns = false, first = false, small = true;
    std::string said;

    if (m.it != nullptr && hd_verify(m.it, nullptr) == HD_OK &&
        m.it->stage == HD_STAGE_HOST && m.it->nranks <= 16) {
        hd_module full = hd_module_full(m.it);

        options.transport = by % 3 == 0   ? HD_TRANSPORT_NCCL
                            : by % 3 == 1 ? HD_TRANSPORT_SM
                                          : HD_TRANSPORT_COPY;
        for (const char *axis : axes)
            if (by % 5 == 0 && hd_module_find_axis(m.it, axis, 2) >= 0)
                options.axes = axis;
        EXPECT_EQ(hd_symmetry_find(&full, nullptr, &symmetry), HD_OK);
        for (int a = 0; a < full.naxes; a++) {
            EXPECT_EQ(hd_symmetry_split(&full, a, nullptr, &symmetry), HD_OK);
            turns |= symmetry.turns[a];
        }
        std::vector<int64_t> counts = Counts(&full);
        for (int64_t n : counts) {
            small &= n <= 400;
            EXPECT_TRUE(n == counts[0] || !symmetry.steps) << text;
        }
        if (turns && small) {
            EXPECT_EQ(hd_prove_first(&full, &options, one, &first), HD_OK);
            bool all = hd_prove_all(&full, &options, every) == HD_OK;

            tally->turning++;
            tally->first += first;
            tally->all += all;
            tally->wrong += !all;
            if (first && !all)
                said = hd_diag_text(every);
            if (first && all &&
                std::string(hd_diag_text(one)) != hd_diag_text(every))
                tally->other++;
        }
    }
    hd_diag_destroy(one);
    hd_diag_destroy(every);
    return said;
}

std::vector<std::string> Texts()
{
    std::vector<std::string> texts;

    for (const char *folder : {"examples", "tests/golden"})
        for (const auto &entry : std::filesystem::recursive_directory_iterator(
                 std::string(SOURCE_FOLDER "/") + folder)) {
            std::ifstream file(entry.path());
            std::stringstream text;

            if (entry.path().extension() != ".hd")
                continue;
            text << file.rdbuf();
            texts.push_back(text.str());
        }
    std::sort(texts.begin(), texts.end());
    for (const Base &base : TensorBases())
        texts.push_back("heddle 2\n" + base.text);
    for (const Base &base : HostBases())
        texts.push_back("heddle 2\n" + base.text);
    return texts;
}

TEST(Folded, WhatTheFirstRankShowsHoldsOfAll)
{
    const char *count = std::getenv("HEDDLE_FOLDED");
    int many = count != nullptr ? std::atoi(count) : 200;
    unsigned first = SeedFrom(1);
    std::vector<std::string> texts = Texts();
    Tally originals, mutants;

    for (unsigned seed = first; mutants.turning < many; seed++) {
        std::mt19937 random(seed);
        Maker make(random);
        std::string text =
            make.Below(2)
                ? make.Tensor()
                : texts[make.Below(static_cast<unsigned>(texts.size()))];
        std::string host =
            make.Lowered(make.Below(2) ? make.Other(text) : text);

        if (host.empty())
            continue;
        ASSERT_EQ(Compare(host, make.Below(30), &originals), "")
            << "HEDDLE_TEST_SEED=" << seed << "\n"
            << host;
        for (int i = 0; i < 8; i++) {
            std::string mutant = make.Mutant(host);

            ASSERT_EQ(Compare(mutant, make.Below(30), &mutants), "")
                << "HEDDLE_TEST_SEED=" << seed << "\n"
                << mutant;
        }
    }
    for (const Tally &t : {originals, mutants}) {
        EXPECT_EQ(t.other, 0); // so few steps are all warned of
        printf("turning %d, right by the first %d, right %d, wrong %d, other "
               "warnings %d\n",
               t.turning, t.first, t.all, t.wrong, t.other);
    }
    EXPECT_GT(mutants.first, many / 5);
    EXPECT_GT(mutants.wrong, many / 10);
    EXPECT_GT(mutants.first, 2 * (mutants.all - mutants.first));
}

// Programs from nothing: own blocks, blocks that turn along one axis or along
// both, that stand still, and other names of their bytes; the rest of a line is
// chance.
class Writer
{
  public:
    explicit Writer(unsigned seed)
        : random_(seed), n_(2 + Below(4)), k_(2 + Below(2)),
          two_(Below(3) == 0), sized_(Below(5) == 0), rows_(1 + Below(4 * n_)),
          columns_(1 + Below(3))
    {
    }

    std::string Text()
    {
        std::string r = sized_ ? "m" : Word(rows_), c = Word(columns_);
        std::string text = "heddle 2\nhost program t ";
        unsigned local = (rows_ + n_ - 1) / n_;
        std::string own = r + "@tp, " + c, all = r + ", " + c;
        std::string alike =
            Word((local - 1) * n_ + 1 + Below(n_)) + "@tp, " + c;
        std::string turned = Below(2) ? c + ", " + r : Word(rows_ * columns_);

        if (sized_)
            text += "param m in 1.." + Word(rows_) + " ";
        text += "mesh tp=" + Word(n_) + (two_ ? ", dp=" + Word(k_) : "") +
                " streams 2 ";
        text +=
            Buffer("inout %a", own) + Buffer("inout %x", all) +
            Buffer("inout %y", all) + Buffer("temp %t", own) +
            Name("%f", sized_ || Below(3) > 0 ? own : alike, "%t") +
            Name("%g", two_ && Below(5) == 0 ? r + "@dp, " + c : own, "%t") +
            Name("%h", sized_ ? own : Word(local) + ", " + c, "%t") +
            Buffer("temp %b", all) + Name("%v", all, "%b") +
            Name("%w", sized_ || Below(2) ? all : turned, "%b") +
            Buffer("temp %z", c + ", " + r) + "temp %e : event[" + Word(n_) +
            "] { %t[" + Own() + "] = fill value 0 %b = fill value 0 fork ";
        for (unsigned i = 1 + Below(4); i > 0; i--)
            text += Below(5) == 0 ? "join fork "
                    : Below(5) == 0
                        ? Step()
                        : "on stream " + Word(Below(2)) + " { " + Step() + "} ";
        return text + "join }";
    }

  private:
    unsigned Below(unsigned n)
    {
        return static_cast<unsigned>(random_() % n);
    }
    static std::string Word(unsigned n)
    {
        return std::to_string(n);
    }
    static std::string Buffer(const std::string &name, const std::string &dims)
    {
        return name + " : f32[" + dims + "] shared ";
    }
    std::string Name(const std::string &name, const std::string &dims,
                     const std::string &of)
    {
        return Below(2) ? "temp " + name + " : f32[" + dims + "] of " + of + " "
                        : Buffer("temp " + name, dims);
    }
    std::string Own() const
    {
        return "tp of " + Word(n_);
    }
    std::string Turn(const std::string &axis, unsigned by)
    {
        return "(" + axis + " + " + Word(by) + ") mod size " + axis;
    }
    std::string Axis()
    {
        return two_ && Below(4) == 0 ? "dp" : "tp";
    }
    std::string Block()
    {
        std::string axis = Axis(), index;
        unsigned size = axis == "dp" ? k_ : n_;

        switch (Below(8)) {
        case 0:
            index = Word(Below(size));
            break;
        case 1:
            index = "(" + Word(Below(4)) + " - " + axis + ") mod size " + axis;
            break;
        case 2:
            index = two_ ? "(tp + dp) mod size " + axis : axis;
            break;
        default:
            index = Turn(axis, Below(size));
        }
        return index + " of " + Word(size);
    }
    std::string Rows()
    {
        static const char *const own[] = {"%a", "%t", "%f", "%g"};
        static const char *const all[] = {"%x", "%y", "%v", "%w"};

        return Below(2) ? own[Below(4)] + ("[" + Own() + "]")
                        : all[Below(4)] + ("[" + Block() + "]");
    }
    std::string Any()
    {
        static const char *const whole[] = {"%x", "%y", "%v",    "%w",
                                            "%h", "%z", "%h[0]", "%x[0..2]"};

        switch (Below(4)) {
        case 0:
            return whole[Below(8)];
        case 1:
            return (Below(2) ? "%w[:, " : "%z[:, ") + Block() + "]";
        default:
            return Rows();
        }
    }
    std::string Exchange()
    {
        std::string axis = Axis(), get = Below(12) == 0 ? " get" : "";
        unsigned size = axis == "dp" ? k_ : n_, by = 1 + Below(size - 1);
        unsigned back = Below(10) == 0 ? by : size - by;
        std::string done = Below(4) == 0 ? " done %e[tp]" : "";
        std::string both = "send@" + axis + " " + (Below(4) ? Rows() : Any()) +
                           " to " + Turn(axis, by) + get + done + " " +
                           (Below(4) ? Rows() : Any()) + " = recv@" + axis +
                           " from " + Turn(axis, back) + get + " ";

        return Below(8) == 0 ? both : "group { " + both + "} ";
    }
    std::string Step()
    {
        switch (Below(9)) {
        case 0:
            return Rows() + " = copy " + Rows() + " ";
        case 1:
            return Any() + " = scale " + Any() + " by 2 ";
        case 2:
        case 3:
            return Any() + " = fill value 1 ";
        case 4:
            return Below(2) ? "%e[tp] = record " : "wait %e[tp] ";
        default:
            return Exchange();
        }
    }

    std::mt19937 random_;
    unsigned n_, k_;
    bool two_, sized_;
    unsigned rows_, columns_;
};

TEST(Folded, WhatTheFirstRankShowsOfProgramsFromNothingHoldsOfAll)
{
    const char *count = std::getenv("HEDDLE_FOLDED");
    int many = 10 * (count != nullptr ? std::atoi(count) : 200);
    Tally tally;

    for (unsigned seed = SeedFrom(1); tally.turning < many; seed++) {
        std::string text = Writer(seed).Text();

        ASSERT_EQ(Compare(text, seed % 30, &tally), "")
            << "HEDDLE_TEST_SEED=" << seed << "\n"
            << text;
    }
    printf("turning %d, right by the first %d, right %d, wrong %d\n",
           tally.turning, tally.first, tally.all, tally.wrong);
    EXPECT_GT(tally.first, many / 5);
    EXPECT_GT(tally.wrong, many / 5);
    EXPECT_GT(tally.first, 30 * (tally.all - tally.first));
}

// Every fourth one is changed by chance, too.
TEST(Folded, WhatIsShownOfStepsOfSomeRanksHoldsOfAll)
{
    const char *count = std::getenv("HEDDLE_FOLDED");
    int many = 10 * (count != nullptr ? std::atoi(count) : 200);
    Tally tally;

    for (unsigned seed = SeedFrom(1); tally.turning < many; seed++) {
        std::mt19937 random(seed);
        std::string text = Composer(seed).Text();

        if (seed % 4 == 0)
            text = Maker(random).Mutant(text);
        ASSERT_EQ(Compare(text, seed % 30, &tally), "")
            << "HEDDLE_TEST_SEED=" << seed << "\n"
            << text;
    }
    printf("turning %d, right by the first %d, right %d, wrong %d\n",
           tally.turning, tally.first, tally.all, tally.wrong);
    EXPECT_EQ(tally.other, 0);
    EXPECT_GT(tally.first, many / 4);
    EXPECT_GT(tally.wrong, many / 3);
    EXPECT_GT(tally.first, 6 * (tally.all - tally.first));
}

} // namespace
