// What expressions are on ranks of a line, and sets of such ranks, held to what
// each rank by itself says.
#include "ir/along.h"

#include <gtest/gtest.h>
#include <random>
#include <vector>

#include "tests/seed.h"
#include "tests/unit/program.h"

namespace
{

using Ranks = std::vector<bool>;

Ranks RanksOf(hd_arc arc, int size)
{
    Ranks ranks(static_cast<size_t>(size));

    for (int i = 0; i < arc.n; i++)
        ranks[static_cast<size_t>((arc.first + i) % size)] = true;
    return ranks;
}

bool Has(const Ranks &ranks, int64_t coord)
{
    return ranks[static_cast<size_t>(coord)];
}

std::vector<hd_arc> AllArcs(int size)
{
    std::vector<hd_arc> arcs;

    for (int first = 0; first < size; first++)
        for (int n = 0; n <= size; n++)
            arcs.push_back(hd_arc_of(first, n));
    return arcs;
}

bool IsArc(const Ranks &ranks, int size)
{
    for (hd_arc arc : AllArcs(size))
        if (RanksOf(arc, size) == ranks)
            return true;
    return false;
}

void CompareArcs(hd_arc a, hd_arc b, int size)
{
    Ranks x = RanksOf(a, size), y = RanksOf(b, size), both = x;
    bool meet = false, within = true;
    hd_arc joined;

    for (int c = 0; c < size; c++) {
        meet |= Has(x, c) && Has(y, c);
        within &= !Has(x, c) || Has(y, c);
        both[static_cast<size_t>(c)] = Has(x, c) || Has(y, c);
        EXPECT_EQ(hd_arc_has(a, size, c), Has(x, c));
    }
    EXPECT_EQ(hd_arc_meets(a, b, size), meet);
    EXPECT_EQ(hd_arc_within(a, b, size), within);
    EXPECT_TRUE(a.n == 0 || b.n == 0 || hd_arc_equal(a, b, size) == (x == y));
    ASSERT_EQ(hd_arc_join(a, b, size, &joined), IsArc(both, size));
    EXPECT_TRUE(!IsArc(both, size) || RanksOf(joined, size) == both);
}

TEST(Arc, IsTheSetOfItsRanks)
{
    for (int size = 1; size <= 6; size++)
        for (hd_arc a : AllArcs(size)) {
            for (hd_arc b : AllArcs(size))
                CompareArcs(a, b, size);
            for (int by = -size; by <= size; by++)
                for (int c = 0; c < size; c++)
                    EXPECT_EQ(hd_arc_has(hd_arc_turn(a, size, by), size,
                                         (c + by + size) % size),
                              hd_arc_has(a, size, c));
        }
}

enum { LOOP, LET }; // variables

// Expressions on a line of `size` ranks, of which `arc` have a let.
class Line
{
  public:
    Line(std::mt19937 &random, int size, Program *program)
        : random_(random), module_(program->module)
    {
        var_[LOOP] = static_cast<int>(random_() % 9) - 3;
        env_.coord[1] = random_() % 3;
        env_.var = var_;
        line_ = {module_, 0, size, &env_, let_};
        do
            let = Draw(2, false);
        while (!hd_along_eval(&line_, let, hd_arc_all(size), &let_[LET]));
        arc = hd_arc_of(random_() % static_cast<unsigned>(size),
                        1 + random_() % static_cast<unsigned>(size));
        EXPECT_TRUE(random() % 2 ||
                    hd_along_eval(&line_, let, arc, &let_[LET]));
    }

    hd_expr Draw(unsigned depth, bool with_let)
    {
        if (depth == 0 || random_() % 8 == 0) {
            switch (random_() % 8) {
            case 0:
                return hd_expr_of_var(module_, LOOP);
            case 1:
                return hd_expr_coord(module_, 1);
            case 2:
            case 3:
                return hd_expr_const(module_, Number());
            case 4:
                return with_let ? hd_expr_of_var(module_, LET)
                                : hd_expr_coord(module_, 0);
            default:
                return hd_expr_coord(module_, 0);
            }
        }
        unsigned kind =
            HD_EXPR_NOT + random_() % (HD_EXPR_CDIV - HD_EXPR_NOT + 1);
        hd_expr a = Draw(depth - 1, with_let);

        if (kind == HD_EXPR_NOT)
            return hd_expr_not(module_, a);
        return hd_expr_binary(
            module_, static_cast<hd_expr_kind>(kind), a,
            hd_expr_divides(static_cast<hd_expr_kind>(kind)) &&
                    random_() % 8 > 0
                ? hd_expr_const(module_, 1 + random_() % 7)
                : Draw(depth - 1, with_let));
    }

    bool Eval(hd_expr expr, hd_along *out) const
    {
        return hd_along_eval(&line_, expr, arc, out);
    }

    // What the rank has, false if it has no value.
    bool Own(hd_expr expr, int64_t coord, int64_t *out)
    {
        env_.coord[0] = coord;
        return hd_expr_eval(module_, let, &env_, &var_[LET]) &&
               hd_expr_eval(module_, expr, &env_, out);
    }

    hd_arc arc;
    hd_expr let;

  private:
    int64_t Number()
    {
        switch (random_() % 12) {
        case 0:
            return INT64_MAX - random_() % 3;
        case 1:
            return INT64_MIN + random_() % 3;
        case 2:
            return ((int64_t)1 << (28 + random_() % 33)) - random_() % 2;
        default:
            return static_cast<int64_t>(random_() % 11) - 4;
        }
    }

    std::mt19937 &random_;
    hd_module *module_;
    int64_t var_[2] = {0, 0};
    hd_along let_[2] = {};
    hd_env env_ = {};
    hd_line line_;
};

Program LineOf(int size)
{
    return Program("host program t mesh tp=" + std::to_string(size) +
                   ", dp=3 { for i in 0..1 { let u = i } }");
}

// Each coordinate of the arc, in its order.
std::vector<int64_t> Coords(hd_arc arc, int size)
{
    std::vector<int64_t> coords;

    for (int i = 0; i < arc.n; i++)
        coords.push_back((arc.first + i) % size);
    return coords;
}

void CompareValues(Line *line, hd_expr expr, const hd_along &along, int size)
{
    int64_t least = INT64_MAX, most = INT64_MIN, k = -1, turned = -1, x, y;
    int64_t first = 0, alike = 0, n = 0;
    bool turns = true;
    Ranks in = RanksOf(line->arc, size);

    for (int64_t c : Coords(line->arc, size)) {
        ASSERT_TRUE(line->Own(expr, c, &x));
        first = n == 0 ? x : first;
        alike += n++ == alike && x == first;
        ASSERT_TRUE(hd_along_value(&along, c, &y));
        ASSERT_EQ(x, y) << "on " << c << " of " << size;
        least = std::min(least, x);
        most = std::max(most, x);
        turns &= x >= 0 && x < size && (k < 0 || k == (x - c + size) % size);
        k = turns ? (x - c + size) % size : 0;
    }
    for (int64_t c = 0; c < size; c++)
        EXPECT_EQ(hd_along_value(&along, c, &y), Has(in, c));
    hd_along_bounds(&along, &x, &y);
    EXPECT_EQ(x, least);
    EXPECT_EQ(y, most);
    EXPECT_EQ(hd_along_alike(&along), alike);
    ASSERT_EQ(hd_along_turns(&along, size, &turned), turns);
    EXPECT_TRUE(!turns || turned == k);
}

bool CompareRanks(const hd_along &from, const hd_along &to, int64_t value,
                  hd_arc arc, int size)
{
    hd_arcs in, out;
    Ranks ranks(static_cast<size_t>(size)), others = ranks;
    int64_t least = INT64_MAX, most = INT64_MIN, low, high;

    if (!hd_along_between(&from, &to, value, arc, size, &in, &out))
        return false;
    for (const hd_arcs *arcs : {&in, &out})
        for (int i = 0; i < arcs->n; i++)
            for (int64_t c : Coords(arcs->of[i], size)) {
                Ranks *has = arcs == &in ? &ranks : &others;

                EXPECT_FALSE(Has(*has, c)) << "twice";
                (*has)[static_cast<size_t>(c)] = true;
            }
    for (int64_t c = 0; c < size; c++) {
        bool known = hd_arc_has(arc, size, c);
        int64_t x = 0, y = 0;
        bool is_in = known && hd_along_value(&from, c, &x) &&
                     hd_along_value(&to, c, &y) && x <= value && value < y;

        EXPECT_EQ(Has(ranks, c), is_in);
        EXPECT_EQ(Has(others, c), known && !is_in);
        least = known ? std::min(least, y - x) : least;
        most = known ? std::max(most, y - x) : most;
    }
    hd_along_gap(&from, &to, &low, &high);
    EXPECT_EQ(low, least);
    EXPECT_EQ(high, most);
    return true;
}

TEST(Along, IsWhatEachRankSays)
{
    std::mt19937 random(SeedFrom(1));
    int known = 0, told = 0, all = 0, last = 0;

    for (int i = 0; i < 20000 && !HasFailure(); i++) {
        int size = 1 + static_cast<int>(random() % (random() % 8 ? 9 : 40));
        Program program = LineOf(size);
        Line line(random, size, &program);
        hd_along a, b;
        hd_expr expr = line.Draw(1 + random() % 3, true);
        hd_expr other = line.Draw(1 + random() % 2, true);
        int64_t value;
        bool has_value = true;

        for (int64_t c : Coords(line.arc, size))
            has_value &= line.Own(expr, c, &value);
        all += has_value;
        if (!line.Eval(expr, &a))
            continue;
        known++;
        ASSERT_TRUE(has_value);
        CompareValues(&line, expr, a, size);
        if (!line.Eval(other, &b))
            continue;
        last++;
        told += CompareRanks(a, b, static_cast<int>(random() % 9) - 3, line.arc,
                             size);
    }
    printf("%d have values, %d are known, %d of %d ranges told\n", all, known,
           told, last);
    EXPECT_GT(known, all * 2 / 3);
    EXPECT_GT(told, last * 3 / 4);
}

} // namespace
