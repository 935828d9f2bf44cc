// Mutants that neither race nor deadlock, and compute something else: what
// --against accepts has the tensor program's answer on random data, and what it
// rejects has another one. HEDDLE_MUTANTS and HEDDLE_TEST_SEED as for the
// other mutants.
#include <cstdlib>
#include <vector>

#include "tests/mutation/mutate.h"
#include "tests/mutation/programs.h"
#include "tests/second/judge.h"
#include "tests/seed.h"
#include "tests/unit/program.h"

namespace
{

long Number(const char *name, long otherwise)
{
    const char *value = std::getenv(name);

    return value != nullptr ? std::atol(value) : otherwise;
}

// Host programs with ranges, as a person writes them for a tensor program.
struct Written {
    const char *name, *tensor, *host;
};

const Written kWritten[] = {
    {"product",
     "tensor program t in %x : f32[4, 6] in %w : f32[6, 5] in %b : f32[5] "
     "out %y : f32[4, 5] { %y = matmul %x, %w bias %b act relu }",
     "host program t in %x : f32[4, 6] in %w : f32[6, 5] in %b : f32[5] "
     "out %y : f32[4, 5] { for i in 0..2 { "
     "%y[2 * i..2 * i + 2, 0..3] = matmul %x[2 * i..2 * i + 2], %w[:, 0..3] "
     "bias %b[0..3] act relu } "
     "%y[0..3, 3..5] = matmul %x[0..3], %w[:, 3..5] bias %b[3..5] act relu "
     "%y[3..4, 3..5] = matmul %x[3..4], %w[0..6, 3..5] bias %b[3..5] act relu "
     "}"},
    {"groups",
     "tensor program t in %x : f32[4, 3] in %w : f32[3, 3, 4] in %n : i32[3] "
     "in %b : f32[3, 4] out %y : f32[4, 4] "
     "{ %y = matmul %x, %w bias %b groups %n }",
     "host program t in %x : f32[4, 3] in %w : f32[3, 3, 4] in %n : i32[3] "
     "in %b : f32[3, 4] out %y : f32[4, 4] temp %c : f32[3, 4] { "
     "%c[0] = copy %b[0] %c[1..3] = copy %b[1..3] for i in 0..2 { "
     "%y[:, 2 * i..2 * i + 2] = matmul %x, %w[:, :, 2 * i..2 * i + 2] "
     "bias %c[:, 2 * i..2 * i + 2] groups %n } }"},
    {"scales of groups",
     "tensor program t in %x : f32[4, 3] in %w : f32[3, 3, 4] in %n : i32[3] "
     "in %s : f32[4, 2] in %v : f32[3, 1, 4] out %y : f32[4, 4] "
     "{ %y = matmul %x, %w scale_a %s scale_b %v grain 2 groups %n }",
     "host program t in %x : f32[4, 3] in %w : f32[3, 3, 4] in %n : i32[3] "
     "in %s : f32[4, 2] in %v : f32[3, 1, 4] out %y : f32[4, 4] "
     "temp %c : f32[3, 1, 4] { %c[0] = copy %v[0] %c[1..3] = copy %v[1..3] "
     "for i in 0..2 { %y[:, 2 * i..2 * i + 2] = "
     "matmul %x, %w[:, :, 2 * i..2 * i + 2] scale_a %s "
     "scale_b %c[:, :, 2 * i..2 * i + 2] grain 2 groups %n } }"},
    {"scales",
     "tensor program t in %x : f32[4, 6] in %w : f32[6, 5] in %s : f32[4, 3] "
     "in %v : f32[3, 3] out %y : f32[4, 5] "
     "{ %y = matmul %x, %w scale_a %s scale_b %v grain 2 }",
     "host program t in %x : f32[4, 6] in %w : f32[6, 5] in %s : f32[4, 3] "
     "in %v : f32[3, 3] out %y : f32[4, 5] { for i in 0..2 { "
     "%y[2 * i..2 * i + 2, 0..2] = matmul %x[2 * i..2 * i + 2], %w[:, 0..2] "
     "scale_a %s[2 * i..2 * i + 2] scale_b %v[:, 0..1] grain 2 } "
     "%y[0..3, 2..5] = matmul %x[0..3], %w[:, 2..5] scale_a %s[0..3] "
     "scale_b %v[:, 1..3] grain 2 "
     "%y[3..4, 2..5] = matmul %x[3..4, 0..4], %w[0..4, 2..5] "
     "scale_a %s[3..4, 0..2] scale_b %v[0..2, 1..3] grain 2 "
     "%y[3, 2..5] = matmul %x[3, 4..6], %w[4..6, 2..5] "
     "scale_a %s[3, 2..3] scale_b %v[2..3, 1..3] grain 2 accumulate }"},
    {"triangle",
     "tensor program t in %x : f32[4, 4] in %w : f32[4, 4] out %y : f32[4, 4] "
     "temp %e : f32[4, 4] { %e = exp %x %y = mul %e, %w }",
     "host program t in %x : f32[4, 4] in %w : f32[4, 4] out %y : f32[4, 4] "
     "temp %e : f32[4, 4] { for i in 0..4 { "
     "%e[i, 0..i + 1] = exp %x[i, 0..i + 1] "
     "%y[i, 0..i + 1] = mul %e[i, 0..i + 1], %w[i, 0..i + 1] } "
     "for i in 0..3 { %e[i..i + 1, i + 1..4] = exp %x[i..i + 1, i + 1..4] "
     "%y[i, i + 1..4] = mul %e[i, i + 1..4], %w[i, i + 1..4] } }"},
    {"rows",
     "tensor program t in %x : f32[5, 3] out %m : f32[5] out %s : f32[3] "
     "out %r : f32[3, 5] in %c : f32[3, 3, 3] out %q : f32[3, 3, 3] "
     "{ %m = max %x dim 1 %s = sum %x dim 0 "
     "%r = transpose %x %q = permute %c order (1, 2, 0) }",
     "host program t in %x : f32[5, 3] out %m : f32[5] out %s : f32[3] "
     "out %r : f32[3, 5] in %c : f32[3, 3, 3] out %q : f32[3, 3, 3] "
     "{ %q[0..2] = permute %c[:, 0..2] order (1, 2, 0) "
     "%q[2] = permute %c[:, 2] order (1, 0) %m[0..2] = max %x[0..2] dim 1 "
     "%m[2..5] = max %x[2..5] dim 1 %s[0..1] = sum %x[:, 0..1] dim 0 "
     "%s[1..3] = sum %x[0..5, 1..3] dim 0 %r[:, 0..2] = transpose %x[0..2] "
     "%r[0..2, 2..5] = transpose %x[2..5, 0..2] "
     "%r[2..3, 2..5] = transpose %x[2..5, 2..3] }"},
    {"gather",
     "tensor program t mesh tp=2 in %x : f32[2@tp, 3, 2] "
     "out %y : f32[2, 3, 2] temp %g : f32[2, 3, 2] { %g = set %x "
     "%y = tanh %g }",
     "host program t mesh tp=2 in %x : f32[2@tp, 3, 2] out %y : f32[2, 3, 2] "
     "temp %g : f32[2, 3, 2] shared temp %f : f32[12] of %g "
     "{ let p = 1 - tp let n = tp + 1 let m = p + 1 %g[tp] = copy %x[tp] "
     "group { send %g[tp, 0..n] to p %g[p, 0..m] = recv from p } "
     "group { send %g[tp, n..3] to p %g[p, m..3] = recv from p } "
     "%y[:, 1..3] = tanh %g[:, 1..3] %y[:, 0..1] = tanh %g[0..2, 0..1] }"},
    {"blocks",
     "tensor program t mesh tp=3 in %x : f32[7@tp, 2] in %w : f32[2, 2] "
     "out %y : f32[7, 2] out %z : f32[7@tp, 2] temp %g : f32[7, 2] "
     "{ %z = exp %x %g = set %x %y = matmul %g, %w }",
     "host program t mesh tp=3 in %x : f32[7@tp, 2] in %w : f32[2, 2] "
     "out %y : f32[7, 2] out %z : f32[7@tp, 2] "
     "temp %g : f32[7, 2] shared { %z[tp of 3] = exp %x[tp of 3] "
     "for i in 0..3 { if i == tp { %g[tp of 3] = copy %x[tp of 3] "
     "for j in 1..3 { send %g[tp of 3] to (tp + j) mod 3 } } else { "
     "%g[i of 3] = recv from i } } for i in 0..2 { "
     "%y[i of 2, 0 of 2] = matmul %g[i of 2], %w[:, 0 of 2] "
     "%y[i of 2, 1..2] = matmul %g[i of 2], %w[:, 1..2] } }"},
    {"even blocks",
     "tensor program t mesh tp=3 in %x : f32[10@tp, 2] in %w : f32[2, 2] "
     "out %y : f32[10, 2] out %z : f32[10@tp, 2] temp %g : f32[10, 2] "
     "{ %z = exp %x %g = set %x %y = matmul %g, %w }",
     "host program t mesh tp=3 in %x : f32[10@tp, 2] in %w : f32[2, 2] "
     "out %y : f32[10, 2] out %z : f32[10@tp, 2] "
     "temp %g : f32[10, 2] shared { %z[tp of 3] = exp %x[tp of 3] "
     "for i in 0..3 { if i == tp { %g[tp of 3] = copy %x[tp of 3] "
     "for j in 1..3 { send %g[tp of 3] to (tp + j) mod 3 } } else { "
     "%g[i of 3] = recv from i } } for i in 0..2 { "
     "%y[i of 2, 0 of 2] = matmul %g[i of 2], %w[:, 0 of 2] "
     "%y[i of 2, 1..2] = matmul %g[i of 2], %w[:, 1..2] } }"},
};

void ListOps(const hd_block *block, std::vector<hd_op *> *out)
{
    for (hd_stmt *s = block->first; s != nullptr; s = s->next) {
        if (s->kind == HD_STMT_OP)
            out->push_back(s->op);
        ListOps(&s->body, out);
        ListOps(&s->otherwise, out);
    }
}

void Shift(hd_module *module, hd_view *view, std::mt19937 &random)
{
    for (int d = 0; d < view->nindex; d++) {
        hd_dim dim = view->buffer->type.dim[d];

        if (const hd_range *range = hd_view_range(view, d)) {
            int64_t places = dim.extent - range->extent + 1;

            if (hd_dim_is_sharded(dim)) // there is the own block alone
                continue;
            if (range->block != HD_EXPR_NONE && range->blocks > 1 &&
                random() % 2) {
                hd_expr next =
                    hd_expr_binary(module, HD_EXPR_ADD, range->block,
                                   hd_expr_const(module, 1 + random() % 2));

                hd_view_keep_block(
                    module, view, d,
                    hd_expr_mod(module, next,
                                hd_expr_const(module, range->blocks)),
                    range->blocks);
                return;
            }

            if (range->extent < 0 || places < 2)
                continue;
            hd_expr low = hd_expr_mod(
                module,
                hd_expr_binary(
                    module, HD_EXPR_ADD, range->low,
                    hd_expr_const(module, 1 + random() % (places - 1))),
                hd_expr_const(module, places));
            hd_view_keep(module, view, d, low,
                         hd_expr_binary(module, HD_EXPR_ADD, low,
                                        hd_expr_const(module, range->extent)));
            return;
        }
        if (view->index[d] < 0 || hd_dim_is_sharded(dim))
            continue;
        view->index[d] =
            hd_expr_mod(module,
                        hd_expr_binary(module, HD_EXPR_ADD, view->index[d],
                                       hd_expr_const(module, 1 + random() % 2)),
                        hd_expr_const(module, dim.extent));
        return;
    }
}

// Leaves the order of steps as it is, and changes what one of them computes. No
// relu is added: of a value that is one already it changes nothing, which is no
// law of arithmetic.
std::string MutateValue(hd_module *module, std::mt19937 &random)
{
    std::vector<hd_op *> ops;

    ListOps(&module->body, &ops);
    hd_op *op = ops[random() % ops.size()];
    int inputs = op->ninputs;
    hd_view *input = &op->view[op->noutputs];
    std::string what = hd_op_info_get(op->code)->text;

    switch (random() % 5) {
    case 0:
    case 1:
        if (inputs > 0 && hd_op_has_scales(op, op->nviews - 1) &&
            random() % 2 != 0)
            Shift(module, &op->view[op->nviews - 1], random);
        else if (inputs > 0)
            Shift(module, &input[random() % static_cast<size_t>(inputs)],
                  random);
        return "index read by " + what;
    case 2:
        if (inputs > 1)
            std::swap(input[0], input[1]);
        return "operands of " + what;
    case 3:
        if (op->code == HD_OP_RELU || op->code == HD_OP_COPY)
            op->code = op->code == HD_OP_RELU ? HD_OP_GELU : HD_OP_SILU;
        else if (op->code == HD_OP_ADD || op->code == HD_OP_SUM)
            op->code = op->code == HD_OP_ADD ? HD_OP_MUL : HD_OP_MAX;
        else if (op->code == HD_OP_SUB || op->code == HD_OP_EXP)
            op->code = op->code == HD_OP_SUB ? HD_OP_ADD : HD_OP_TANH;
        else if (op->code == HD_OP_DIV)
            op->code = HD_OP_MUL;
        if (op->code == HD_OP_PERMUTE)
            std::swap(op->key[0].ints[0],
                      op->key[0].ints[random() % size_t(op->key[0].nints)]);
        for (int i = 0; i < op->nkeys; i++)
            if (op->key[i].code == HD_KEY_MAX || op->key[i].code == HD_KEY_MIN)
                op->key[i].code =
                    op->key[i].code == HD_KEY_MAX ? HD_KEY_MIN : HD_KEY_MAX;
        return "for " + what;
    default:
        if (op->nkeys > 0 && hd_op_is(op, HD_UNIT_COMPUTE))
            op->nviews -= op->key[--op->nkeys].view >= 0; // the last of them
        return "key of " + what;
    }
}

struct Found {
    int right = 0, wrong = 0;
};

// Whether the verdict on values is that of the execution. What the proof
// refuses does not count.
::testing::AssertionResult Judge(const std::string &text,
                                 const std::string &mutant,
                                 std::mt19937 &random, Found *found)
{
    Program tensor(text), host(mutant);
    hd_check_options options = hd_check_defaults();

    if (host.status != HD_OK ||
        hd_check(host.module, nullptr, host.diag) != HD_OK)
        return ::testing::AssertionSuccess();
    options.against = tensor.module;
    hd_diag_clear(host.diag);
    bool accepted = hd_check(host.module, &options, host.diag) == HD_OK;
    // On a few sets of data, since a wrong sign may be lost in a relu.
    auto is_right = [&](int draws) {
        return second::Differs(tensor.Print(), host.Print(), draws, random())
            .empty();
    };
    // In what is refused the difference may be in few elements.
    bool right = is_right(4) && (accepted || is_right(60));

    (right ? found->right : found->wrong)++;
    if (accepted == right)
        return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << (right ? "right and rejected: " : "wrong and accepted: ")
           << host.Said();
}

// Judge, of the program with an edit, or as it is.
::testing::AssertionResult JudgeEdited(const std::string &text, Program &p,
                                       bool edit, std::mt19937 &random,
                                       Found *found)
{
    std::string what = !edit               ? ""
                       : random() % 4 == 0 ? Mutate(p.module, random)
                                           : MutateValue(p.module, random);
    std::string mutant = p.Print();

    mutant = mutant.substr(mutant.find('\n') + 1);
    return Judge(text, mutant, random, found) << what << "\n" << mutant;
}

TEST(Mutation, ValuesInRangesAreJudgedAsTheExecutionShows)
{
    const size_t n = sizeof kWritten / sizeof *kWritten;
    long count = Number("HEDDLE_MUTANTS", 500);
    long seed = SeedFrom(1);
    Found found;

    for (long done = 0; done < count; done++, seed++) {
        std::mt19937 random(static_cast<unsigned>(seed));
        const Written &base = kWritten[random() % n];
        Program p(base.host);

        ASSERT_EQ(p.status, HD_OK) << p.Said();
        // The first are the programs themselves.
        ASSERT_TRUE(JudgeEdited(base.tensor, p, done >= 20, random, &found))
            << "seed " << seed << ", " << base.name;
        if (done == 19) {
            ASSERT_EQ(found.wrong, 0) << "one of the programs themselves";
        }
    }
    printf("values in ranges: %d right, %d wrong\n", found.right, found.wrong);
    EXPECT_GT(found.right, count / 50);
    EXPECT_GT(found.wrong, count / 50);
}

TEST(Mutation, ValuesAreJudgedAsTheExecutionShows)
{
    std::vector<Base> bases = TensorBases();
    long count = Number("HEDDLE_MUTANTS", 500);
    long seed = SeedFrom(1);
    Found found;

    for (long done = 0; done < count; done++, seed++) {
        std::mt19937 random(static_cast<unsigned>(seed));
        Base base = bases[random() % bases.size()];
        Program p(base.text);

        base.options.transfer = static_cast<hd_transfer>(random() % 5);
        base.options.comm_stream = random() % 2 != 0;
        ASSERT_EQ(hd_lower(p.module, &base.options, nullptr, nullptr, p.diag),
                  HD_OK)
            << p.Said();
        ASSERT_TRUE(JudgeEdited(base.text, p, true, random, &found))
            << "seed " << seed << ", " << base.name;
    }
    printf("values of mutants: %d right, %d wrong\n", found.right, found.wrong);
    EXPECT_GT(found.right, count / 50);
    EXPECT_GT(found.wrong, count / 50);
}

} // namespace
