// Which steps form a chain, and what a chain loads and stores: hand-written
// programs, each with one thing that matters.
#include "codegen/chain.h"

#include "tests/unit/program.h"

namespace
{

// The chains of rank 0 of a host program on two work streams.
class Chains
{
  public:
    explicit Chains(const std::string &body)
        : program_("host program chains mesh tp=2 streams 2\n"
                   "in %a : f32[4, 6] in %b : f32[4, 6] in %v : f32[6]\n"
                   "in %f : f32[] inout %c : f32[4, 6] out %y : f32[4, 6]\n"
                   "out %z : f32[4, 6] out %p : f32[4, 4, 6]\n"
                   "out %q : f32[8, 6] temp %t : f32[4, 6]\n"
                   "temp %u : f32[4, 6] temp %w : f32[4, 6] shared\n"
                   "temp %h : bf16[4, 6] temp %e : event[] temp %o : f32[6]\n" +
                   body)
    {
        EXPECT_EQ(program_.status, HD_OK) << program_.Said() << body;
        if (program_.status != HD_OK)
            return;
        EXPECT_EQ(hd_steps_collect(program_.module, 0, program_.diag, &steps_),
                  HD_OK)
            << program_.Said();
        EXPECT_TRUE(
            hd_chains_collect(&steps_, program_.module->nbuffers, &chains_));
    }
    Chains(const Chains &) = delete;
    Chains &operator=(const Chains &) = delete;
    ~Chains()
    {
        hd_chains_free(&chains_);
        hd_steps_free(&steps_);
    }
    hd_chain Find(int64_t start) const
    {
        hd_chain chain;

        hd_chains_find(&chains_, &steps_, start, &chain);
        return chain;
    }
    // Those of more than one step: "0 1 2, 4 5".
    std::string All() const
    {
        std::string all;

        for (int64_t i = 0; i < steps_.nsteps; i++) {
            if (chains_.joined[i])
                continue;
            hd_chain chain = Find(i);
            if (chain.nsteps > 1 && !all.empty())
                all += ", ";
            for (int k = 0; k < chain.nsteps && chain.nsteps > 1; k++)
                all +=
                    (k > 0 ? " " : "") + std::to_string(chain.step[k]->index);
        }
        return all;
    }
    // What the chain that begins with a step loads, and what it stores: "a b,
    // y". The name of a value is its buffer's.
    std::string Memory(int64_t start) const
    {
        hd_chain chain = Find(start);
        std::string loads, stores;

        for (int i = 0; i < chain.nvalues; i++) {
            std::string name = chain.value[i].span->buffer->name;

            if (chain.value[i].loaded)
                loads += (loads.empty() ? "" : " ") + name;
            if (chain.value[i].stored)
                stores += (stores.empty() ? "" : " ") + name;
        }
        return loads + " -> " + stores;
    }

  private:
    Program program_;
    hd_steps steps_ = {};
    hd_chains chains_ = {};
};

std::string All(const std::string &body)
{
    return Chains(body).All();
}

// ---------------------------------------------------------------- aliasing

TEST(Chain, AValueThatIsReadWhereItWasWrittenStaysInARegister)
{
    Chains c("{ %y = add %a, %b  %z = relu %y }");

    EXPECT_EQ(c.All(), "0 1");
    EXPECT_EQ(c.Memory(0), "b a -> y z");
}

TEST(Chain, EqualViewsAreOneValueAlsoWhenTheyAreWrittenDifferently)
{
    EXPECT_EQ(All("{ %p[1] = relu %a  %z = add %p[1], %b }"), "0 1");
    EXPECT_EQ(All("{ %p[:, 1, :] = relu %a  %z = add %p[:, 1], %b }"), "0 1");
}

TEST(Chain, AnotherViewOfWhatWasWrittenEndsIt)
{
    EXPECT_EQ(All("{ %p[:, 1] = relu %a  %z = relu %p[1] }"), "");
    EXPECT_EQ(All("{ %p[1] = relu %a  %z = relu %p[:, 1] }"), "");
    // One element, which is read for each.
    EXPECT_EQ(All("{ %y = relu %a  %z = add %a, %y[2] }"), "");
}

TEST(Chain, AWriteToWhatWasReadElsewhereEndsIt)
{
    EXPECT_EQ(All("{ %z = relu %p[1]  %p[:, 1] = relu %a }"), "");
    EXPECT_EQ(All("{ %z = add %a, %c[2]  %c = relu %b }"), "");
    EXPECT_EQ(All("{ %z = relu %p[1]  %p[1] = relu %a }"), "0 1");
}

TEST(Chain, TwoWritesToViewsThatMeetEndIt)
{
    EXPECT_EQ(All("{ %p[1] = relu %a  %p[:, 1] = relu %b }"), "");
}

TEST(Chain, ViewsThatDoNotMeetStay)
{
    EXPECT_EQ(All("{ %p[0] = relu %a  %p[1] = relu %b  %z = relu %p[2] }"),
              "0 1 2");
    EXPECT_EQ(All("{ %p[:, 0] = relu %a  %p[:, 1] = relu %b }"), "0 1");
    // Rows 0, 4, 8 .. beside rows 1, 5, 9 .., and columns likewise.
    EXPECT_EQ(All("in %k : f32[4, 4, 2] out %l : f32[4, 4, 2]"
                  "{ %l[:, :, 0] = relu %k[:, :, 0]"
                  "  %l[:, :, 1] = relu %k[:, :, 0] }"),
              "0 1");
}

// Three columns of two rows of six: 4 elements on, the first row meets the
// second; 3 on, they lie side by side.
TEST(Chain, ViewsAreComparedElementForElement)
{
    Program p("host program rows in %a : f32[2, 3] out %y : f32[4, 2, 3] "
              "{ %y[0] = relu %a  %y[1] = relu %a }");
    hd_steps steps;
    hd_chain chain;

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    ASSERT_EQ(hd_steps_collect(p.module, 0, p.diag, &steps), HD_OK);
    steps.span[0].stride[0] = steps.span[2].stride[0] = 6;
    for (int64_t apart : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12}) {
        bool meet = apart % 3 != 0 && apart < 9;

        for (int first : {0, 2}) {
            steps.span[first].offset = 0;
            steps.span[2 - first].offset = apart;
            hd_chain_find(&steps, 0, &chain);
            EXPECT_EQ(chain.nsteps, meet || apart == 6 ? 1 : 2) << apart;
        }
    }
    hd_steps_free(&steps);
}

TEST(Chain, AnotherNameOfABufferIsTheBuffer)
{
    EXPECT_EQ(All("temp %r : f32[4, 6] of %t { %t = relu %a"
                  "  %y = add %r, %b }"),
              "0 1");
    EXPECT_EQ(All("temp %r : f32[6, 4] of %t temp %s : f32[6, 4]"
                  "{ %t = relu %a  %s = relu %r }"),
              "");
    // Its rows are pairs of the other's.
    EXPECT_EQ(All("temp %k : f32[8, 6] temp %r : f32[4, 2, 6] of %k"
                  "  temp %s : f32[2, 4, 6] of %k"
                  "{ %r[:, 1] = relu %a  %y = relu %s[1] }"),
              "");
}

TEST(Chain, WhatIsWrittenOverItselfIsOneValue)
{
    Chains c("{ %c = add %c, %b  %c = relu %c  %y = mul %c, %a }");

    EXPECT_EQ(c.All(), "0 1 2");
    EXPECT_EQ(c.Memory(0), "b c a -> c y");
}

TEST(Chain, OnlyTheLastOfTwoWritesIsStored)
{
    Chains c("{ %y = relu %a  %z = relu %y  %y = add %z, %b }");

    EXPECT_EQ(c.All(), "0 1 2");
    EXPECT_EQ(c.Memory(0), "a b -> y z");
}

TEST(Chain, ARepeatedOperandOrAFactorIsAValueOfItsOwn)
{
    Chains c("{ %y = add %a, %v  %z = mul %y, %v  %t = scale %z by %f "
             "  %c = relu %t }");

    EXPECT_EQ(c.All(), "0 1 2 3");
    EXPECT_EQ(c.Memory(0), "v a f -> y z c");
    EXPECT_EQ(All("{ %o = relu %v  %y = add %a, %o  %z = add %y, %v }"), "1 2");
}

TEST(Chain, AFactorThatTheChainWritesEndsIt)
{
    EXPECT_EQ(All("{ %y = relu %a  %z = scale %b by %y[1, 2] }"), "");
    // All there is of both is one element.
    EXPECT_EQ(All("{ %o[1] = relu %v[2]  %o[2] = scale %v[1] by %o[1] }"),
              "0 1");
}

// ------------------------------------------------------------- which steps

TEST(Chain, CastsAreAPartOfIt)
{
    Chains c("{ %h = copy %a  %y = copy %h  %z = add %y, %b }");

    EXPECT_EQ(c.All(), "0 1 2");
    EXPECT_EQ(c.Memory(0), "a b -> y z");
}

TEST(Chain, OtherExtentsAndOtherOperationsEndIt)
{
    EXPECT_EQ(All("{ %y = relu %a  %o = relu %v  %z = relu %b }"), "");
    EXPECT_EQ(All("{ %y = relu %a  %z = relu %b  %o = sum %z dim 0 }"), "0 1");
    EXPECT_EQ(All("{ %o = sum %a dim 0  %o = relu %o }"), "");
    EXPECT_EQ(All("{ %y = sum %a, %b, %c  %z = max %y, %b }"), "0 1");
    EXPECT_EQ(All("{ %y = relu %a  %p[:, :, 1] = transpose %p[:, :, 0]"
                  "  %z = relu %y }"),
              "");
}

TEST(Chain, DenseCopiesAreTheCopyEnginesUnlessTheyShareElements)
{
    EXPECT_EQ(All("{ %y = copy %a  %z = copy %b }"), "");
    EXPECT_EQ(All("{ %y = copy %a  %z = copy %a }"), "");
    EXPECT_EQ(All("{ %y = copy %a  %z = relu %b }"), "");
    EXPECT_EQ(All("{ %y = relu %a  %z = copy %b }"), "");
    EXPECT_EQ(All("{ %y = relu %a  %z = copy %y }"), "0 1");
    EXPECT_EQ(All("{ %y = copy %a  %z = relu %a }"), "0 1");
    EXPECT_EQ(All("{ %p[:, 1] = copy %a  %z = relu %b }"), "0 1");
}

// ----------------------------------------------------------------- streams

TEST(Chain, ARecordOrAWaitOfTheStreamEndsIt)
{
    EXPECT_EQ(All("{ %y = relu %a  %e = record  %z = relu %y }"), "");
    EXPECT_EQ(All("{ %e = record  %y = relu %a  wait %e  %z = relu %y }"), "");
}

TEST(Chain, AForkAndAJoinEndAll)
{
    EXPECT_EQ(All("{ on stream 1 { %y = relu %a } fork"
                  "  on stream 1 { %z = relu %y } }"),
              "");
    EXPECT_EQ(All("{ on stream 0 { %y = relu %a } join"
                  "  on stream 0 { %z = relu %y } }"),
              "");
}

TEST(Chain, ATransferOrAMatmulOfTheStreamEndsIt)
{
    EXPECT_EQ(All("{ %y = relu %a  send %b to 1 - tp  %z = relu %y }"), "");
    EXPECT_EQ(All("{ %y = relu %a  group { send %b to 1 - tp"
                  "  %w = recv from 1 - tp }  %z = relu %y }"),
              "");
    EXPECT_EQ(All("in %k : f32[6, 6]"
                  "{ %y = relu %a  %p[0] = matmul %a, %k  %z = relu %y }"),
              "");
}

TEST(Chain, WhatOtherStreamsDoDoesNotEndIt)
{
    EXPECT_EQ(All("{ on stream 0 { %y = relu %a }"
                  "  on stream 1 { send %b to 1 - tp  %e = record }"
                  "  on stream 0 { %z = relu %y } }"),
              "0 3");
    // Two that are interleaved.
    EXPECT_EQ(All("{ for i in 0..3 { on stream 0 { %p[i] = relu %a }"
                  "  on stream 1 { %c = relu %c } } }"),
              "0 2 4, 1 3 5");
}

// ------------------------------------------------------------ dead values

TEST(Chain, ATemporaryThatNothingReadsFromMemoryIsNotStored)
{
    Chains c("{ %t = relu %a  %y = add %t, %b }");

    EXPECT_EQ(c.Memory(0), "a b -> y");
}

// A kernel that stores nothing is none.
TEST(Chain, WhatTheLastStepWritesIsStored)
{
    Chains c("{ %t = relu %a  %u = add %t, %b }");

    EXPECT_EQ(c.Memory(0), "a b -> u");
}

TEST(Chain, ASharedTemporaryIsStored)
{
    Chains c("{ %w = relu %a  %y = add %w, %b }");

    EXPECT_EQ(c.Memory(0), "a b -> w y");
}

TEST(Chain, ATemporaryThatALaterStepReadsIsStored)
{
    Chains later("{ %t = relu %a  %y = add %t, %b  %o = sum %t dim 0 }");
    Chains sent("{ %t = relu %a  %y = add %t, %b  send %t to 1 - tp }");
    Chains factor("{ %t = relu %a  %y = add %t, %b"
                  "  %o = scale %v by %t[1, 2] }");
    Chains other("{ %t = relu %a  %y = add %t, %b  %e = record"
                 "  on stream 1 { wait %e  %z = relu %t } }");

    for (const Chains *c : {&later, &sent, &factor, &other})
        EXPECT_EQ(c->Memory(0), "a b -> t y");
}

// The next run's step reads what this run leaves behind.
TEST(Chain, ATemporaryThatAnEarlierStepReadsIsStored)
{
    Chains c("{ %o = sum %t dim 0  %t = relu %a  %y = add %t, %b }");
    Chains inside("{ %y = add %t, %b  %t = relu %a }");

    EXPECT_EQ(c.Memory(1), "a b -> t y");
    EXPECT_EQ(inside.All(), "0 1");
    EXPECT_EQ(inside.Memory(0), "b t a -> t y");
}

// Each iteration's chain takes it from a register.
TEST(Chain, ATemporaryOfEveryIterationOfALoopIsNotStored)
{
    Chains c("{ for i in 0..3 { %t = relu %a  %p[i] = add %t, %b"
             "  %e = record } }");

    EXPECT_EQ(c.All(), "0 1, 3 4, 6 7");
    EXPECT_EQ(c.Memory(3), "a b -> p");
    EXPECT_EQ(Chains("{ for i in 0..3 { %t = relu %a  %e = record"
                     "  %p[i] = add %t, %b } }")
                  .All(),
              "2 3, 5 6");
}

TEST(Chain, ArgumentsAreStored)
{
    Chains c("{ %y = relu %a  %z = add %y, %b }");

    EXPECT_EQ(c.Memory(0), "a b -> y z");
}

// ----------------------------------------------------------------- limits

TEST(Chain, MoreStepsThanOneTakesAreSplit)
{
    std::string body = "{";

    for (int i = 0; i < 2 * HD_CHAIN_STEPS + 3; i++)
        body += " %c = relu %c";
    Chains c(body + " }");

    EXPECT_EQ(c.Find(0).nsteps, HD_CHAIN_STEPS);
    EXPECT_EQ(c.Find(HD_CHAIN_STEPS).nsteps, HD_CHAIN_STEPS);
    EXPECT_EQ(c.Find(2 * HD_CHAIN_STEPS).nsteps, 3);
}

TEST(Chain, MoreValuesThanOneTakesAreSplit)
{
    std::string buffers, body = "{";
    int per = HD_CHAIN_VALUES / 2;

    for (int i = 0; i < 2 * HD_CHAIN_VALUES; i++)
        buffers += "inout %m" + std::to_string(i) + " : f32[4, 6] ";
    for (int i = 0; i < HD_CHAIN_VALUES; i++)
        body += " %m" + std::to_string(2 * i) + " = relu %m" +
                std::to_string(2 * i + 1);
    Chains c(buffers + body + " }");

    EXPECT_EQ(c.Find(0).nsteps, per);
    EXPECT_EQ(c.Find(0).nvalues, HD_CHAIN_VALUES);
    EXPECT_EQ(c.Find(per).nsteps, per);
}

} // namespace
