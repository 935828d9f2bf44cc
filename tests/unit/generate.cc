// Random tensor programs: what is drawn, and that it can be judged.
#include <cmath>
#include <gtest/gtest.h>
#include <regex>
#include <set>
#include <string>

#include <heddle/verify.h>

#include "ir/module.h"
#include "tests/device/arguments.h"
#include "tests/seed.h"
#include "tests/unit/generated.h"

namespace
{
enum { kPrograms = 4500, kOps = 12 };

Module Parse(uint64_t seed, bool integers)
{
    std::string text = Generate(seed, kOps, integers);
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;

    EXPECT_EQ(hd_parse("generated", text.data(), text.size(), nullptr, 0, diag,
                       &module),
              HD_OK)
        << "seed " << seed << "\n"
        << text << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return Module(module);
}

// Whether an operand is a part of a tensor.
bool HasPart(const hd_op *op)
{
    for (int i = op->noutputs; i < op->nviews; i++)
        if (op->view[i].nindex > 0)
            return true;
    return false;
}

int64_t Elements(const hd_view &view)
{
    hd_type type = hd_view_type(&view);

    return hd_type_elements(&type);
}

bool Repeats(const hd_op *op)
{
    bool repeats = false;

    for (int i = 1; i <= op->ninputs; i++)
        repeats |= Elements(op->view[i]) < Elements(op->view[0]);
    return repeats;
}

// Whether its result and its operand have counts of their own.
bool MovesCounted(const hd_op *op)
{
    const hd_buffer *to = op->view[0].buffer->by;
    const hd_buffer *from = op->nviews > 1 ? op->view[1].buffer->by : nullptr;

    return to != nullptr && from != nullptr && to != from;
}

// Whether it reduces, or takes from, a dimension that is sharded.
bool IsOverRanks(const hd_op *op)
{
    int dim = hd_op_dim(op);

    return dim >= 0 && op->ninputs > 0 &&
           hd_dim_is_sharded(hd_view_type(&op->view[1]).dim[dim]);
}

// The words of all that is drawn: an op, an op's key, an op with an operand
// that repeats or is a part, one over ranks, one from counts to others.
std::set<std::string> Drawn(bool integers, uint64_t seed)
{
    std::set<std::string> drawn;

    for (int i = 0; i < kPrograms; i++) {
        Module module = Parse(seed + uint64_t(i), integers);

        for (hd_stmt *s = module->body.first; s != nullptr; s = s->next) {
            std::string op = hd_op_info_get(s->op->code)->text;

            drawn.insert(op);
            for (int k = 0; k < s->op->nkeys; k++)
                drawn.insert(op + " " +
                             hd_key_info_get(s->op->key[k].code)->text);
            if (hd_op_is_elementwise(s->op) && Repeats(s->op))
                drawn.insert(op + " repeated");
            if (s->op->view[0].nindex > 0)
                drawn.insert(op + " into a part");
            if (HasPart(s->op))
                drawn.insert(op + " of a part");
            if (IsOverRanks(s->op))
                drawn.insert(op + " over ranks");
            if (MovesCounted(s->op))
                drawn.insert(op + " to other counts");
        }
    }
    return drawn;
}

// Whether what it makes of whole numbers is whole.
bool IsExact(const hd_op_info *info)
{
    return info->family != HD_FAMILY_ATTEND &&
           (info->numbers != HD_NUMBERS_FLOAT || info->map == HD_MAP_RELU ||
            info->map == HD_MAP_RELU_GRAD);
}

void ExpectAll(bool integers, uint64_t seed)
{
    std::set<std::string> drawn = Drawn(integers, seed);
    // What is rare may be missing from one series, not from four.
    auto expect = [&](const std::string &what) {
        for (int more = 1; more < 4 && drawn.count(what) == 0; more++)
            drawn.merge(Drawn(integers, seed + uint64_t(more) * kPrograms));
        EXPECT_TRUE(drawn.count(what) > 0) << what << " is never drawn";
    };

    for (int code = 0; code < HD_NOPS; code++) {
        const hd_op_info *info = hd_op_info_get(hd_opcode(code));
        std::string op = info->text;

        // What is drawn the fuzzers spell as calls: tests/fuzz/spell.c.
        if ((info->level & HD_LEVEL_TENSOR) == 0 || code == HD_OP_CALL ||
            (integers && !IsExact(info)))
            continue;
        expect(op);
        // Maps may be of positive numbers alone.
        if (info->map == HD_MAP_NONE && code != HD_OP_RESHAPE) {
            if (info->max_inputs > 0)
                expect(op + " of a part");
            expect(op + " into a part");
        }
        if (info->map != HD_MAP_NONE && info->max_inputs > 1)
            expect(op + " repeated");
        if (info->fold != HD_FOLD_NONE || code == HD_OP_TAKE)
            expect(op + " over ranks");
        for (int key = 0; key < HD_NKEYS; key++)
            if ((info->keys >> key & 1) != 0)
                expect(op + " " + hd_key_info_get(hd_key_code(key))->text);
    }
    for (const char *op : {"copy", "set", "max", "sum", "matmul", "transpose"})
        expect(op + std::string(" [by]")); // of counted dimensions
    for (const char *op : {"set", "transpose"})
        expect(op + std::string(" to other counts"));
}

TEST(Generate, EveryOpOfATensorProgramIsDrawn)
{
    ExpectAll(false, Seed());
}

TEST(Generate, EveryOpThatIsExactIsDrawnOfWholeNumbers)
{
    ExpectAll(true, Seed());
}

// Whether a view has some indices of what a run says the length of.
bool HasSomeOfASize(const hd_op *op)
{
    for (int i = 0; i < op->nviews; i++)
        for (int d = 0; d < op->view[i].buffer->type.ndims; d++)
            if (hd_dim_is_sized(op->view[i].buffer->type.dim[d]) &&
                (hd_view_picks(&op->view[i], d) ||
                 hd_view_range(&op->view[i], d) != nullptr))
                return true;
    return false;
}

// Of the dimension that its key names.
bool IsOverRanksOfASize(const hd_op *op)
{
    int dim = hd_op_dim(op);
    hd_type type = hd_view_type(&op->view[op->code == HD_OP_TAKE]);

    return dim >= 0 && hd_dim_is_sharded(type.dim[dim]) &&
           hd_dim_is_sized(type.dim[dim]);
}

bool HasSizedRows(const hd_op *op)
{
    hd_type type = hd_view_type(&op->view[0]);

    return hd_dim_is_sized(type.dim[type.ndims - 2]);
}

bool ReshapesASize(const hd_op *op)
{
    hd_type to = hd_view_type(&op->view[0]), from = hd_view_type(&op->view[1]);

    for (int d = 0; d < to.ndims; d++)
        for (int k = 0; k < from.ndims; k++)
            if (hd_dim_is_sized(to.dim[d]) && hd_dim_is_sized(from.dim[k]) &&
                to.dim[d].times != from.dim[k].times)
                return true;
    return false;
}

void NoteLengths(const hd_op *op, std::set<std::string> *drawn)
{
    if (HasSomeOfASize(op))
        drawn->insert("a part of a size");
    if ((op->code == HD_OP_IOTA || op->code == HD_OP_TAKE) &&
        IsOverRanksOfASize(op))
        drawn->insert(hd_op_info_get(op->code)->text +
                      std::string(" over ranks of a size"));
    if (op->code == HD_OP_ATTENTION && HasSizedRows(op))
        drawn->insert("rows of a size");
    if (op->code == HD_OP_RESHAPE && ReshapesASize(op))
        drawn->insert("a reshape of a size");
}

// What texts say, or the copies that are made where an op goes by no counts.
TEST(Generate, LengthsThatAreNotFixedAreDrawnInEachForm)
{
    const char *const words[] = {" = mean %",
                                 " = concat %",
                                 "m[0-9] @stream",
                                 "\\* (tp|dp|pp|ep|cp|node) \\* m[0-9]",
                                 "those of an operation are the same ones",
                                 "a part of dimension",
                                 "take takes from",
                                 "reshape keeps that dimension",
                                 "top_k takes none",
                                 "route takes none",
                                 "matmul contracts"};
    const char *const forms[] = {
        "a part of a size", "iota over ranks of a size",
        "take over ranks of a size", "rows of a size", "a reshape of a size"};
    std::set<std::string> drawn;

    for (unsigned i = 0; i < 4 * kPrograms &&
                         drawn.size() < std::size(words) + std::size(forms);
         i++) {
        std::string text = Generate(Seed() + i, kOps, i % 2 == 0);
        hd_diag *diag = hd_diag_create();
        hd_module *parsed = nullptr;
        hd_status status = hd_parse("generated", text.data(), text.size(),
                                    nullptr, 0, diag, &parsed);
        Module module(parsed);

        text += hd_diag_text(diag);
        hd_diag_destroy(diag);
        ASSERT_EQ(status, HD_OK) << text;
        for (const char *word : words)
            if (drawn.count(word) == 0 &&
                std::regex_search(text, std::regex(word)))
                drawn.insert(word);
        for (hd_stmt *s = module->body.first; s != nullptr; s = s->next)
            NoteLengths(s->op, &drawn);
    }
    for (const char *word : words)
        EXPECT_TRUE(drawn.count(word) > 0) << word << " is never drawn";
    for (const char *form : forms)
        EXPECT_TRUE(drawn.count(form) > 0) << form << " is never drawn";
}

TEST(Generate, MostOfWhatIsComputedHasAFiniteBound)
{
    size_t all = 0, judged = 0;

    for (unsigned i = 0; i < kPrograms / 30; i++) {
        Module module = Parse(Seed() + i, false);
        Expected expected(module.get(), 1, unsigned(Seed() + i));

        for (size_t k = 0; k < expected.Inputs(0).Count(); k++) {
            const hd_argument &a = expected.Inputs(0).Info(k);
            std::vector<double> value(a.local_elements), bound(value);

            if (a.role == HD_ROLE_IN)
                continue;
            hd_reference_local(expected.Reference(0), k, 0, value.data(),
                               bound.data());
            for (size_t e = 0; e < value.size(); e++) {
                if (bound[e] < 0) // room that the rank has no element for
                    continue;
                judged += std::isfinite(value[e]) && std::isfinite(bound[e]);
                all++;
            }
        }
    }
    EXPECT_GT(double(judged), 0.95 * double(all));
}
} // namespace
