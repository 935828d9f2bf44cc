// Attention by cuDNN: that it is right where cuDNN must do it, that a generated
// kernel does what cuDNN does not take, and how often plans are made.
#include <gtest/gtest.h>

#include <random>

#include "tests/cuda/program.h"
#include "tests/draw.h"
#include "tests/seed.h"
#include "tests/unit/folder.h"

namespace
{

// B elements of a batch, G groups of Q heads, S rows, K keys, D and W wide, of
// `$`; M is a mask.
const char *const kForms[] = {
    "in %q : $[B, G * Q, S, D] in %k : $[B, G, K, D] in %v : $[B, G, K, W] "
    "out %o : $[B, G * Q, S, W] out %l : f32[B, G * Q, S] "
    "{ %o, %l = attention %q, %k, %v M }",
    // In f32, with a scale.
    "in %q : $[G * Q, S, D] in %k : $[G, K, D] in %v : $[G, K, W] "
    "out %o : f32[G * Q, S, W] out %l : f32[G * Q, S] "
    "{ %o, %l = attention %q, %k, %v scale 0.25 M }",
    // One set of keys for a batch of two dimensions, the outer of which is not
    // evenly spaced; keys that lie apart.
    "in %q : $[3, 2, G, S, D] in %k : $[1, K, 3, D] in %v : $[1, K, W] "
    "out %o : $[3, 2, G, S, W] out %l : f32[3, 2, G, S] "
    "{ %o[0..2], %l[0..2] = attention %q[1..3], %k[:, :, 2], %v M "
    "%o[2], %l[2] = attention %q[0], %k[:, :, 1], %v }",
    // Into a part, of which lse lies where cuDNN does not write.
    "in %q : $[B, G, S, D] in %k : $[B, G, K, D] in %v : $[B, G, K, W] "
    "inout %o : $[B, G, 2 * S, W] inout %l : f32[B, G, 2 * S] "
    "{ %o[:, :, S..2 * S], %l[:, :, S..2 * S] = attention %q, %k, %v M }",
    // Merged with what is there, in f32 and in the operands' dtype.
    "in %q : $[B, G, S, D] in %k : $[B, G, K, D] in %v : $[B, G, K, W] "
    "inout %o : f32[B, G, S, W] inout %l : f32[B, G, S] "
    "inout %p : $[B, G, S, W] inout %m : f32[B, G, S] "
    "{ %o, %l = attention %q, %k, %v M accumulate "
    "%p, %m = attention %q, %k, %v M accumulate }",
    // Of two parts of the keys, for each element of a batch by itself.
    "in %q : $[B, G * Q, S, D] in %k : $[G, 2 * K, D] in %v : $[G, 2 * K, W] "
    "out %o : f32[B, G * Q, S, W] out %l : f32[B, G * Q, S] "
    "{ %o, %l = attention %q, %k[:, K..2 * K], %v[:, K..2 * K] "
    "%o, %l = attention %q, %k[:, 0..K], %v[:, 0..K] M accumulate }",
    // In two and three parts, summed in a temporary that is then copied: some
    // rows may see nothing of the first, and of the last.
    "in %q : $[B, G * Q, S, D] in %k : $[B, G, 2 * K, D] "
    "in %v : $[B, G, 2 * K, W] out %o : $[B, G * Q, S, W] "
    "out %l : f32[B, G * Q, S] temp %t : f32[B, G * Q, S, W] "
    "{ %t, %l = attention %q, %k[:, :, 0..K], %v[:, :, 0..K] M "
    "%t, %l = attention %q, %k[:, :, K..2 * K], %v[:, :, K..2 * K] accumulate "
    "%o = copy %t }",
    "in %q : $[B, G, S, D] in %k : $[B, G, 3 * K, D] "
    "in %v : $[B, G, 3 * K, W] inout %o : $[2, B, G, S, W] "
    "out %l : f32[B, G, S] temp %t : f32[B, G, S, W] "
    "{ %t, %l = attention %q, %k[:, :, 0..K], %v[:, :, 0..K] "
    "%t, %l = attention %q, %k[:, :, K..2 * K], %v[:, :, K..2 * K] accumulate "
    "%t, %l = attention %q, %k[:, :, 2 * K..3 * K], %v[:, :, 2 * K..3 * K] "
    "M accumulate %o[1] = copy %t }",
};

// The same of gradients: all of them; some that are f32; with rows that lie
// apart and one set of keys; added to what there is; of two parts of the keys.
const char *const kGradients[] = {
    "in %q : $[B, G * Q, S, D] in %k : $[B, G, K, D] in %v : $[B, G, K, W] "
    "in %g : $[B, G * Q, S, W] temp %o : $[B, G * Q, S, W] "
    "temp %l : f32[B, G * Q, S] out %a : $[B, G * Q, S, D] "
    "out %b : $[B, G, K, D] out %c : $[B, G, K, W] "
    "{ %o, %l = attention %q, %k, %v M "
    "%a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g M }",
    "in %q : $[G * Q, S, D] in %k : $[G, K, D] in %v : $[G, K, W] "
    "in %g : f32[G * Q, S, W] temp %o : f32[G * Q, S, W] "
    "temp %l : f32[G * Q, S] out %a : $[G * Q, S, D] "
    "out %b : f32[G, K, D] out %c : $[G, K, W] "
    "{ %o, %l = attention %q, %k, %v M "
    "%a, %b, %c = attention_grad %q, %k, %v, %o, %l, %g scale 0.3 M }",
    "in %q : $[3, B, G, S, 2, D] in %k : $[G, K, D] in %v : $[G, K, 3, W] "
    "in %g : $[3, B, G, S, W] temp %o : $[3, B, G, S, W] "
    "temp %l : f32[3, B, G, S] out %a : $[3, B, G, S, D] "
    "out %b : f32[3, B, G, K, D] out %c : $[3, B, G, K, W] "
    "{ %o, %l = attention %q[:, :, :, :, 1], %k, %v[:, :, 1] M "
    "%a, %b, %c = attention_grad %q[:, :, :, :, 1], %k, %v[:, :, 1], %o, %l, "
    "%g M }",
    "in %q : $[B, G * Q, S, D] in %k : $[B, G, 2 * K, D] "
    "in %v : $[B, G, 2 * K, W] in %g : $[B, G * Q, S, W] "
    "temp %o : f32[B, G * Q, S, W] temp %l : f32[B, G * Q, S] "
    "inout %a : f32[B, G * Q, S, D] inout %b : f32[B, G, 2 * K, D] "
    "inout %c : f32[B, G, 2 * K, W] { %o, %l = attention %q, %k, %v M "
    "%a, %b[:, :, 0..K], %c[:, :, 0..K] = attention_grad %q, %k[:, :, 0..K], "
    "%v[:, :, 0..K], %o, %l, %g accumulate M "
    "%a, %b[:, :, K..2 * K], %c[:, :, K..2 * K] = attention_grad %q, "
    "%k[:, :, K..2 * K], %v[:, :, K..2 * K], %o, %l, %g accumulate N}",
    // Added to zeros, in blocks of keys.
    "in %q : $[B, G * Q, S, D] in %k : $[2, B, G, K, D] "
    "in %v : $[2, B, G, K, W] in %g : $[B, G * Q, S, W] "
    "temp %o : f32[B, G * Q, S, W] temp %l : f32[B, G * Q, S] "
    "out %a : f32[B, G * Q, S, D] out %b : f32[2, B, G, K, D] "
    "out %c : f32[2, B, G, K, W] { %o, %l = attention %q, %k[0], %v[0] M "
    "%o, %l = attention %q, %k[1], %v[1] accumulate N "
    "%a = fill value 0 %b = fill value 0 %c = fill value 0 "
    "%a, %b[0], %c[0] = attention_grad %q, %k[0], %v[0], %o, %l, %g "
    "accumulate M "
    "%a, %b[1], %c[1] = attention_grad %q, %k[1], %v[1], %o, %l, %g "
    "accumulate N}",
    // In a temporary that becomes the result, by halves of the batch.
    "in %q : $[2, B, G * Q, S, D] in %k : $[2, 2, B, G, K, D] "
    "in %v : $[2, 2, B, G, K, W] in %g : $[2, B, G * Q, S, W] "
    "temp %o : f32[2, B, G * Q, S, W] temp %l : f32[2, B, G * Q, S] "
    "temp %t : f32[2, B, G * Q, S, D] out %a : $[2, B, G * Q, S, D] "
    "out %b : f32[2, 2, B, G, K, D] out %c : f32[2, 2, B, G, K, W] "
    "{ %o, %l = attention %q, %k[0], %v[0] M "
    "%o, %l = attention %q, %k[1], %v[1] accumulate N "
    "%t = fill value 0 %b = fill value 0 %c = fill value 0 "
    "%t[0], %b[0, 0], %c[0, 0] = attention_grad %q[0], %k[0, 0], %v[0, 0], "
    "%o[0], %l[0], %g[0] accumulate M "
    "for i in 0..2 { %t[i], %b[1, i], %c[1, i] = attention_grad %q[i], "
    "%k[1, i], %v[1, i], %o[i], %l[i], %g[i] accumulate N} "
    "%t[1], %b[0, 1], %c[0, 1] = attention_grad %q[1], %k[0, 1], %v[0, 1], "
    "%o[1], %l[1], %g[1] accumulate M "
    "%a = copy %t }",
};

// The second of three blocks of a sequence in zigzag: half of the keys before
// it, the own block, and half of the rows by the keys behind it. What is there
// may be merged with half by half, in f32 and in the operands' dtype.
const char *const kZigzag[] = {
    "in %q : $[B, G * Q, 2 * S, D] in %k : $[3, B, G, 2 * S, D] "
    "in %v : $[3, B, G, 2 * S, W] out %o : $[B, G * Q, 2 * S, W] "
    "out %l : f32[B, G * Q, 2 * S] temp %t : f32[B, G * Q, 2 * S, W] "
    "{ for i in 0..3 { if i == 0 { "
    "%t, %l = attention %q, %k[i], %v[i] zigzag 1 - i } else { "
    "%t, %l = attention %q, %k[i], %v[i] zigzag 1 - i accumulate } } "
    "%o = copy %t }",
    "in %q : $[B, 4 * S, G, D] in %k : $[G, 2 * S, 3, D] in %v : $[G, 2 * S, "
    "W] "
    "inout %o : f32[B, G, 3 * S, W] inout %l : f32[B, G, 3 * S] "
    "inout %p : $[B, 2, G, 2 * S, W] inout %u : f32[B, G, 2 * S] "
    "temp %r : $[B, G, 4 * S, D] { %r = transpose %q dim0 1 dim1 2 "
    "%o[:, :, S..3 * S], %l[:, :, S..3 * S] = attention %r[:, :, S..3 * S], "
    "%k[:, :, 2], %v scale 0.3 zigzag -5 accumulate "
    "%p[:, 1], %u = attention %r[:, :, 0..2 * S], %k[:, :, 0], %v zigzag -1 "
    "accumulate %p[:, 1], %u = attention %r[:, :, 2 * S..4 * S], %k[:, :, 0], "
    "%v zigzag 1 accumulate }",
};

const char *const kZigzagGradients[] = {
    "in %q : $[B, G * Q, 2 * S, D] in %k : $[3, B, G, 2 * S, D] "
    "in %v : $[3, B, G, 2 * S, W] in %g : $[B, G * Q, 2 * S, W] "
    "temp %o : f32[B, G * Q, 2 * S, W] temp %l : f32[B, G * Q, 2 * S] "
    "temp %t : f32[B, G * Q, 2 * S, D] out %a : $[B, G * Q, 2 * S, D] "
    "out %b : f32[3, B, G, 2 * S, D] out %c : f32[3, B, G, 2 * S, W] "
    "{ for i in 0..3 { if i == 0 { "
    "%o, %l = attention %q, %k[i], %v[i] zigzag 1 - i } else { "
    "%o, %l = attention %q, %k[i], %v[i] zigzag 1 - i accumulate } } "
    "%t = fill value 0 %b = fill value 0 %c = fill value 0 for i in 0..3 { "
    "%t, %b[i], %c[i] = attention_grad %q, %k[i], %v[i], %o, %l, %g "
    "zigzag 1 - i accumulate } %a = copy %t }",
    "in %q : $[B, G, 2 * S, D] in %k : $[B, G, 4 * S, D] "
    "in %v : $[B, G, 2 * S, W] in %g : f32[B, G, 2 * S, W] "
    "temp %o : $[B, G, 2 * S, W] temp %l : f32[B, G, 2 * S] "
    "inout %a : f32[B, G, 2 * S, D] inout %b : f32[B, G, 4 * S, D] "
    "inout %c : f32[2, B, G, 2 * S, W] "
    "{ %o, %l = attention %q, %k[:, :, S..3 * S], %v zigzag 0 "
    "for i in 0..3 { %a, %b[:, :, S..3 * S], %c[1] = attention_grad %q, "
    "%k[:, :, S..3 * S], %v, %o, %l, %g zigzag i - 1 accumulate } }",
};

// Sums of 16 bits, which two parts of a step would round twice.
const char *const kNarrow[] = {
    "in %q : $[B, G * Q, S, D] in %k : $[B, G, 2 * K, D] "
    "in %v : $[B, G, 2 * K, W] in %g : $[B, G * Q, S, W] "
    "temp %o : f32[B, G * Q, S, W] temp %l : f32[B, G * Q, S] "
    "inout %a : f32[B, G * Q, S, D] inout %b : f32[B, G, 2 * K, D] "
    "inout %c : $[B, G, 2 * K, W] { %o, %l = attention %q, %k, %v M "
    "%a, %b[:, :, 0..K], %c[:, :, 0..K] = attention_grad %q, %k[:, :, 0..K], "
    "%v[:, :, 0..K], %o, %l, %g accumulate M "
    "%a, %b[:, :, K..2 * K], %c[:, :, K..2 * K] = attention_grad %q, "
    "%k[:, :, K..2 * K], %v[:, :, K..2 * K], %o, %l, %g accumulate N}",
};

// Rows that see as many keys as others do, or none, begin at a multiple of
// `unit`.
std::string Mask(int rows, int keys, int unit, int which, std::mt19937 &random)
{
    switch (which % 5) {
    case 0:
        return "";
    case 1:
        return "causal 0";
    case 2: // the last row sees the last key
        return "causal " + std::to_string(keys - rows);
    case 3: // some may see none, but the last
        return "causal " +
               std::to_string(-unit * Between(0, (rows - 1) / unit, random));
    default:
        return "causal " +
               std::to_string(unit * Between(0, keys / unit + 1, random));
    }
}

std::string Filled(std::string text, const std::string &dtype, int unit,
                   int which, std::mt19937 &random)
{
    int rows = unit * Between(1, 40 / unit, random);
    int keys = unit * Between(1, 60 / unit, random);
    std::string mask = Mask(rows, keys, unit, which, random);
    int offset = mask.empty() ? 0 : std::stoi(mask.substr(7));
    const std::pair<const char *, std::string> words[] = {
        {"$", dtype},
        {"B", std::to_string(Between(1, 3, random))},
        {"G", std::to_string(Between(1, 3, random))},
        {"Q", std::to_string(Between(1, 3, random))},
        {"S", std::to_string(rows)},
        {"K", std::to_string(keys)},
        {"D", std::to_string(8 * Between(1, 5, random))},
        {"W", std::to_string(8 * Between(1, 5, random))},
        {"M ", mask + " "},
        {"N", mask.empty() ? "" : "causal " + std::to_string(offset - keys)}};

    for (const auto &word : words)
        for (size_t at = 0;
             (at = text.find(word.first, at)) != std::string::npos;
             at += word.second.size())
            text.replace(at, strlen(word.first), word.second);
    return "heddle 2 host program attends mesh tp=1 " + text;
}

std::string Attends(Session &session)
{
    hd_stats stats = HD_EMPTY(hd_stats);

    hd_session_stats(session, &stats);
    return stats.attention;
}

// Two sets of memory in turns, each of which is run twice.
hd_status RunByTurns(Rank &rank, const Program &program, int which,
                     const char *by)
{
    hd_session_options options = CudaOptions();
    Session session;

    options.graph = which % 2 == 0;
    options.deterministic = which % 3 == 0;
    HD_TRY(session.Open(rank, program, options));
    RANK_EXPECT(Attends(session).find(by) == 0);
    for (int turn = 0; turn < 2; turn++) {
        Memory memory;

        HD_TRY(Fill(memory, rank, program, session, 2));
        for (auto &shards : memory)
            HD_TRY(shards->Run(rank.diag));
        for (int i = 0; i < 2; i++) {
            HD_TRY(memory[size_t(i)]->Get(rank.diag));
            HD_TRY(program.Compare(*memory[size_t(i)], 0, i));
        }
    }
    return HD_OK;
}

// With `setting` "cudnn" it does all of it, with "generated" nothing.
void Try(const std::vector<const char *> &forms, int unit,
         const char *setting = "cudnn")
{
    std::mt19937 random(Seed());
    ScopedSetting chosen("HEDDLE_ATTENTION", setting);
    const char *by = strcmp(setting, "generated") == 0 ? "generated kernels"
                                                       : "cuDNN 9.19.0 (";
    int which = 0;

    // A form is compiled anew each time.
    for (const char *form : forms)
        for (int i = 0; i < (IsQuick() ? 1 : 6); i++) {
            bool first = IsQuick() ? random() % 2 == 0 : i % 2 == 0;
            std::string text =
                Filled(form, first ? "bf16" : "f16", unit, which++, random);
            Program program(text, 2);

            SCOPED_TRACE(text);
            AllAreRight(RunRanks(1, [&](Rank &rank) {
                return RunByTurns(rank, program, which, by);
            }));
        }
}

TEST(CudaAttention, ByCudnnIsTheReferences)
{
    Try({std::begin(kForms), std::end(kForms)}, 1);
}

TEST(CudaAttention, OfGradientsByCudnnIsTheReferences)
{
    // Where rows are left out, those that are not have their lse at a multiple
    // of 16 bytes.
    Try({std::begin(kGradients), std::end(kGradients)}, 4);
}

TEST(CudaAttention, OfGradientsThatSumIn16BitsIsTheReferences)
{
    Try({std::begin(kNarrow), std::end(kNarrow)}, 4, "");
}

TEST(CudaAttention, OfASequenceInZigzagIsTheReferences)
{
    Try({std::begin(kZigzag), std::end(kZigzag)}, 1);
    Try({std::begin(kZigzagGradients), std::end(kZigzagGradients)}, 4);
    if (!IsQuick()) // of generated kernels tests/device has more
        Try({kZigzag[0], kZigzagGradients[0]}, 4, "generated");
}

// ------------------------------------------------------- what falls back

const char *const kHead = "heddle 2 host program attends mesh tp=1 ";
const char *const kPlain =
    "in %q : bf16[2, 8, 16] in %k : bf16[2, 12, 16] in %v : bf16[2, 12, 16] "
    "out %o : bf16[2, 8, 16] out %l : f32[2, 8] ";

// What attends, of a program that runs right.
std::string TextOf(const std::string &text)
{
    Program program(kHead + text);
    std::vector<Answer> answers = RunRanks(1, [&](Rank &rank) {
        Session session;

        HD_TRY(session.Open(rank, program, CudaOptions()));
        snprintf(rank.answer->said, sizeof(rank.answer->said), "%s",
                 Attends(session).c_str());
        return RunAndCompare(rank, program, session, 1);
    });

    AllAreRight(answers);
    return answers[0].said;
}

std::vector<Answer> Refused(const std::string &text)
{
    Program program(kHead + text);
    ScopedSetting demanded("HEDDLE_ATTENTION", "cudnn");

    return RunRanks(1, [&](Rank &rank) {
        Session session;

        return session.Open(rank, program, CudaOptions());
    });
}

struct Other {
    const char *text, *reason;
};

const Other kOthers[] = {
    {"in %q : f32[2, 8, 16] in %k : f32[2, 12, 16] in %v : f32[2, 12, 16] "
     "out %o : f32[2, 8, 16] out %l : f32[2, 8] "
     "{ %o, %l = attention %q, %k, %v }",
     "its operands are neither bf16 nor f16"},
    {"in %q : bf16[2, 8, 16] in %k : bf16[2, 12, 16] in %v : bf16[2, 12, 16] "
     "out %o : bf16[2, 8, 16] out %l : f32[2, 8] "
     "{ %o, %l = attention %q, %k, %v causal 4 window 3 }",
     "it has a window"},
    {"in %q : bf16[2, 8, 16] in %k : bf16[2, 12, 16] in %v : bf16[2, 12, 16] "
     "in %f : f32[1] out %o : bf16[2, 8, 16] out %l : f32[2, 8] "
     "{ %o, %l = attention %q, %k, %v scale %f }",
     "its scale is in memory"},
    {"in %q : bf16[2, 8, 12] in %k : bf16[2, 12, 12] in %v : bf16[2, 12, 16] "
     "out %o : bf16[2, 8, 16] out %l : f32[2, 8] "
     "{ %o, %l = attention %q, %k, %v }",
     "D or Dv is no multiple of 8"},
    {"in %q : bf16[2, 8, 16] in %k : bf16[2, 12, 20] in %v : bf16[2, 12, 16] "
     "out %o : bf16[2, 8, 16] out %l : f32[2, 8] "
     "{ %o, %l = attention %q, %k[:, :, 4..20], %v }",
     "do not begin at multiples of 16 bytes"},
    {"in %q : bf16[2, 8, 16] in %k : bf16[2, 12, 16] in %v : bf16[2, 12, 16] "
     "in %o : bf16[2, 8, 16] in %l : f32[2, 8] in %g : bf16[2, 8, 16] "
     "inout %a : bf16[2, 8, 16] inout %b : f32[2, 12, 16] "
     "inout %c : bf16[2, 12, 16] { %a, %b, %c = attention_grad %q, %k, %v, "
     "%o, %l, %g causal 7 accumulate }",
     "two parts of its rows add to dk or dv of 16 bits"},
};

TEST(CudaAttention, ThatCudnnDoesNotTakeIsAGeneratedKernels)
{
    for (const Other &other : kOthers) {
        SCOPED_TRACE(other.reason);
        EXPECT_NE(TextOf(other.text).find(other.reason), std::string::npos);
        std::vector<Answer> answers = Refused(other.text);

        EXPECT_EQ(answers[0].status, HD_ERROR_UNSUPPORTED);
        EXPECT_TRUE(Has(answers[0], other.reason)) << answers[0].text;
        EXPECT_TRUE(Has(answers[0], "HEDDLE_ATTENTION is cudnn"))
            << answers[0].text;
        Ended(answers[0], 0);
    }
}

TEST(CudaAttention, OfAProgramMayBeSomeOfEachKind)
{
    EXPECT_NE(TextOf(std::string(kPlain) +
                     "inout %p : bf16[2, 8, 16] inout %m : f32[2, 8] "
                     "{ %o, %l = attention %q, %k, %v "
                     "%p, %m = attention %q, %k, %v causal 2 window 3 }")
                  .find(", 1 of 2 steps; others: it has a window"),
              std::string::npos);
}

TEST(CudaAttention, IsGeneratedWhereItIsToBeAndWhereThereIsNoCudnn)
{
    const std::string text =
        std::string(kPlain) + "{ %o, %l = attention %q, %k, %v }";
    {
        ScopedSetting forbidden("HEDDLE_ATTENTION", "generated");

        EXPECT_EQ(TextOf(text),
                  "generated kernels: HEDDLE_ATTENTION is generated");
    }
    {
        ScopedSetting nonsense("HEDDLE_ATTENTION", "flash");
        Program program(kHead + text);
        std::vector<Answer> answers = RunRanks(1, [&](Rank &rank) {
            Session session;

            return session.Open(rank, program, CudaOptions());
        });

        EXPECT_EQ(answers[0].status, HD_ERROR_ARGUMENT);
        EXPECT_TRUE(Has(answers[0], "HEDDLE_ATTENTION is 'flash', not cudnn or "
                                    "generated"))
            << answers[0].text;
    }
    for (const char *library : {"/nowhere/lib.so", "libm.so.6"}) {
        std::string path = getenv("HEDDLE_CUDNN_LIB");

        setenv("HEDDLE_CUDNN_LIB", library, 1);
        EXPECT_NE(TextOf(text).find("cuDNN"), std::string::npos);
        EXPECT_NE(TextOf(text).find(library), std::string::npos);
        std::vector<Answer> answers = Refused(text);

        EXPECT_EQ(answers[0].status, HD_ERROR_UNSUPPORTED);
        EXPECT_TRUE(Has(answers[0], library)) << answers[0].text;
        setenv("HEDDLE_CUDNN_LIB", path.c_str(), 1);
    }
    {
        ScopedSetting old("FAKE_CUDNN_VERSION", "90701");

        EXPECT_NE(TextOf(text).find("it is 9.7.1, and 9.8 or newer is needed"),
                  std::string::npos);
    }
}

// ------------------------------------------------------------------ sums

// How many kernels of ours a run of attention in parts launches: one joins a
// part with those before it, and one makes f32 of a first part.
long Launches(const std::string &text, const char *by = "cudnn")
{
    Program program(kHead + text, 2);
    ScopedSetting demanded("HEDDLE_ATTENTION", by);
    std::vector<Answer> answers = RunRanks(1, [&](Rank &rank) {
        Session session;

        HD_TRY(session.Open(rank, program, CudaOptions()));
        auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        for (int i = 0; i < 2; i++) {
            Shards shards(session);

            HD_TRY(
                shards.Put(program.Inputs(i), program.Module(), 0, rank.diag));
            long before = calls("cuLaunchKernelEx");
            HD_TRY(shards.Run(rank.diag));
            rank.answer->number = calls("cuLaunchKernelEx") - before;
            HD_TRY(shards.Get(rank.diag));
            HD_TRY(program.Compare(shards, 0, i));
        }
        return HD_OK;
    });

    AllAreRight(answers);
    return answers[0].number;
}

const char *const kParts =
    "in %q : bf16[2, 8, 16] in %k : bf16[3, 2, 12, 16] "
    "in %v : bf16[3, 2, 12, 16] out %l : f32[2, 8] temp %t : f32[2, 8, 16] ";

struct Sum {
    const char *text;
    long launches;
};

void LaunchAsManyAsTheySay(const std::string &head,
                           const std::vector<Sum> &sums)
{
    for (const Sum &sum : sums) {
        SCOPED_TRACE(sum.text);
        EXPECT_EQ(Launches(head + sum.text), sum.launches);
    }
}

#define SOME(rows, i, key)                                              \
    "%t" rows ", %l" rows " = attention %q" rows ", %k[" #i "], %v[" #i \
    "] " key " "
#define ALL(i) SOME("", i, ACCUMULATE_##i)
#define LATER_ROWS(i) SOME("[:, 4..8]", i, ACCUMULATE_##i)
#define ACCUMULATE_0 ""
#define ACCUMULATE_1 "accumulate"
#define ACCUMULATE_2 "accumulate"

const Sum kSums[] = {
    // The result takes the first part as it is, and the last one's join.
    {"out %o : bf16[2, 8, 16] { %t, %l = attention %q, %k[0], %v[0] "
     "%o = copy %t }",
     0},
    {"out %o : bf16[2, 8, 16] { %t, %l = attention %q, %k[0], %v[0] "
     "%t, %l = attention %q, %k[1], %v[1] accumulate %o = copy %t }",
     1},
    {"out %o : bf16[2, 8, 16] { %t, %l = attention %q, %k[0], %v[0] "
     "%t, %l = attention %q, %k[1], %v[1] accumulate "
     "%t, %l = attention %q, %k[2], %v[2] accumulate %o = copy %t }",
     2},
    // One kernel copies two, or does something else too.
    {"temp %u : f32[2, 8, 16] out %m : f32[2, 8] out %o : bf16[2, 2, 8, 16] "
     "{ %t, %l = attention %q, %k[0], %v[0] "
     "%u, %m = attention %q, %k[1], %v[1] %o[0] = copy %t %o[1] = copy %u }",
     0},
    {"temp %u : f32[2, 8, 16] out %m : f32[2, 8] out %o : bf16[2, 8, 16] "
     "out %p : f32[2, 8, 16] { %t, %l = attention %q, %k[0], %v[0] "
     "%u, %m = attention %q, %k[1], %v[1] %o = copy %t %p = gelu %u }",
     3},
    // The copy is no copy of all of it, of another dtype, or of two kernels.
    {"out %o : bf16[2, 4, 16] { %t, %l = attention %q, %k[0], %v[0] "
     "%o = copy %t[:, 0..4] }",
     2},
    {"out %o : f16[2, 8, 16] { %t, %l = attention %q, %k[0], %v[0] "
     "%o = copy %t }",
     2},
    {"out %o : bf16[2, 8, 16] out %p : bf16[2, 8, 16] "
     "{ %t, %l = attention %q, %k[0], %v[0] %o = copy %t %p = gelu %o }",
     2},
    // The temporary, or the result, is seen by others.
    {"out %o : bf16[2, 8, 16] out %p : f32[2, 8, 1] "
     "{ %t, %l = attention %q, %k[0], %v[0] %p = copy %t[:, :, 3..4] "
     "%t, %l = attention %q, %k[1], %v[1] accumulate %o = copy %t }",
     4},
    {"inout %o : bf16[2, 8, 16] out %p : f32[2, 8] "
     "{ %t, %l = attention %q, %k[0], %v[0] %p = sum %o dim 2 %o = copy %t }",
     3},
    // The last part has rows that see nothing, which only the copy brings.
    {"out %o : bf16[2, 8, 16] { %t, %l = attention %q, %k[0], %v[0] "
     "%t, %l = attention %q, %k[1], %v[1] causal -3 accumulate "
     "%o = copy %t }",
     3},
    // What is merged with half of the first part.
    {"out %o : bf16[2, 8, 16] { " ALL(0) LATER_ROWS(1) "%o = copy %t }", 1},
    {"out %o : bf16[2, 8, 16] { " ALL(0) LATER_ROWS(1)
         LATER_ROWS(2) "%o = copy %t }",
     2},
    // Rows would be rounded between two of the parts that are merged.
    {"out %o : bf16[2, 8, 16] { " ALL(0) LATER_ROWS(1) ALL(2) "%o = copy %t }",
     4},
    {"out %o : bf16[2, 8, 16] { " ALL(0) ALL(1) LATER_ROWS(2) "%o = copy %t }",
     4},
    // Of the first part such rows are nothing.
    {"out %o : bf16[2, 8, 16] { %t, %l = attention %q, %k[0], %v[0] causal -4 "
     "%t, %l = attention %q, %k[1], %v[1] accumulate %o = copy %t }",
     2},
};

TEST(CudaAttention, InPartsGoesIntoTheResultWithoutTheTemporary)
{
    LaunchAsManyAsTheySay(kParts, {std::begin(kSums), std::end(kSums)});
}

const char *const kGradientParts =
    "in %q : bf16[2, 8, 16] in %k : bf16[3, 2, 12, 16] "
    "in %v : bf16[3, 2, 12, 16] in %o : bf16[2, 8, 16] in %l : f32[2, 8] "
    "in %g : bf16[2, 8, 16] out %a : f32[2, 8, 16] "
    "out %b : f32[3, 2, 12, 16] out %c : f32[3, 2, 12, 16] ";
#define GRADIENTS(i)                                                     \
    "%a, %b[" #i "], %c[" #i "] = attention_grad %q, %k[" #i "], %v[" #i \
    "], %o, %l, %g accumulate "

const Sum kZeros[] = {
    // One kernel a step brings what cuDNN makes to the results.
    {"{ %a = fill value 0 %b = fill value 0 %c = fill value 0 " //
     GRADIENTS(0) GRADIENTS(1) GRADIENTS(2) "}",
     3},
    // A block is touched twice.
    {"{ %a = fill value 0 %b = fill value 0 %c = fill value 0 " //
     GRADIENTS(0) GRADIENTS(1) GRADIENTS(1) GRADIENTS(2) "}",
     4},
    // One is not: it stays 0.
    {"{ %a = fill value 0 %b = fill value 0 %c = fill value 0 " //
     GRADIENTS(0) GRADIENTS(1) "}",
     2 + 1},
    // It is not filled with 0, or seen before.
    {"{ %a = fill value 1 %b = fill value 0 %c = fill value 0 " //
     GRADIENTS(0) GRADIENTS(1) GRADIENTS(2) "}",
     3 + 1},
    {"out %p : f32[2, 8] { %a = fill value 0 %p = sum %a dim 2 "
     "%b = fill value 0 %c = fill value 0 " //
     GRADIENTS(0) GRADIENTS(1) GRADIENTS(2) "}",
     3 + 2},
    // Some of what is filled is filled again.
    {"{ %a = fill value 0 %b = fill value 0 %c = fill value 0 " //
     GRADIENTS(0) "%c[1] = fill value 2 " GRADIENTS(1) GRADIENTS(2) "}",
     3 + 2},
};

TEST(CudaAttention, ThatAddsGradientsToZerosStoresThem)
{
    LaunchAsManyAsTheySay(kGradientParts,
                          {std::begin(kZeros), std::end(kZeros)});
}

// Gradients as cuDNN writes them, of some keys of a block.
const char *const kSomeKeys =
    "in %q : bf16[2, 8, 16] in %k : bf16[2, 12, 16] in %v : bf16[2, 12, 16] "
    "in %o : bf16[2, 8, 16] in %l : f32[2, 8] in %g : bf16[2, 8, 16] "
    "out %a : bf16[2, 8, 16] out %b : bf16[2, 12, 16] "
    "out %c : bf16[2, 12, 16] { %a = fill value 0 %b = fill value 0 "
    "%c = fill value 0 ";
#define OF_KEYS(keys)                                                       \
    "%a, %b[:, " keys "], %c[:, " keys "] = attention_grad %q, %k[:, " keys \
    "], %v[:, " keys "], %o, %l, %g accumulate "

const Sum kSomeZeros[] = {
    // The fill stays, of what no step adds to, and all is stored.
    {OF_KEYS("0..8") "}", 1},
    // The keys have been touched, all or some.
    {OF_KEYS("0..8") OF_KEYS("0..8") "}", 2},
    {OF_KEYS("0..8") OF_KEYS("4..12") "}", 2},
    {"%b[:, 7..9] = scale %b[:, 7..9] by 2 " OF_KEYS("0..8") "}", 3},
};

TEST(CudaAttention, OfSomeKeysStoresWhatItAddsToZeros)
{
    LaunchAsManyAsTheySay(kSomeKeys,
                          {std::begin(kSomeZeros), std::end(kSomeZeros)});
}

// Gradients of queries that are added up in a temporary of f32.
const char *const kGradientSums =
    "in %q : bf16[2, 8, 16] in %k : bf16[3, 2, 12, 16] "
    "in %v : bf16[3, 2, 12, 16] in %o : bf16[2, 8, 16] in %l : f32[2, 8] "
    "in %g : bf16[2, 8, 16] temp %t : f32[2, 8, 16] "
    "out %b : bf16[3, 2, 12, 16] out %c : bf16[3, 2, 12, 16] ";
#define ZEROS "{ %t = fill value 0 %b = fill value 0 %c = fill value 0 "
#define SUMMED(i, mask)                                                  \
    "%t, %b[" #i "], %c[" #i "] = attention_grad %q, %k[" #i "], %v[" #i \
    "], %o, %l, %g accumulate " mask
#define HALF(i, h)                                                           \
    "%t[" h "], %b[" #i ", " h "], %c[" #i ", " h "] = attention_grad %q[" h \
    "], %k[" #i ", " h "], %v[" #i ", " h "], %o[" h "], %l[" h "], %g[" h   \
    "] accumulate "

const Sum kGradients16[] = {
    // The result takes the first part as it is, and the last one's sum.
    {"out %a : bf16[2, 8, 16] " ZEROS SUMMED(0, "") SUMMED(1, "")
         SUMMED(2, "") "%a = copy %t }",
     2},
    // Each half by itself.
    {"out %a : bf16[2, 8, 16] " ZEROS HALF(0, "0..1") HALF(1, "0..1")
         HALF(1, "1..2") HALF(2, "0..1") HALF(2, "1..2") HALF(0, "1..2") //
     "%a = copy %t }",
     4},
    {"out %a : bf16[1, 2, 8, 16] " ZEROS SUMMED(0, "") SUMMED(1, "")
         SUMMED(2, "") "%a[0] = copy %t }",
     2},
    // Pieces that meet otherwise: the zeros are needed, too.
    {"out %a : bf16[2, 8, 16] " ZEROS HALF(0, "0..1") SUMMED(1, "")
         SUMMED(2, "") HALF(0, "1..2") "%a = copy %t }",
     4 + 2},
    // Some rows of a part see nothing: what it adds to keys is cleared first.
    {"out %a : bf16[2, 8, 16] " ZEROS SUMMED(0, "") SUMMED(1, "causal -4 ")
         SUMMED(2, "") "%a = copy %t }",
     3 + 1 + 1},
    // The copy is of another dtype, or of a part.
    {"out %a : f16[2, 8, 16] " ZEROS SUMMED(0, "") SUMMED(1, "")
         SUMMED(2, "") "%a = copy %t }",
     3 + 1},
    {"out %a : bf16[2, 4, 16] " ZEROS SUMMED(0, "") SUMMED(1, "")
         SUMMED(2, "") "%a = copy %t[:, 0..4] }",
     3 + 1},
    // The temporary, or the result, is seen by others.
    {"out %a : bf16[2, 8, 16] out %p : f32[2, 8] " ZEROS SUMMED(0, "")
         SUMMED(1, "") "%p = sum %t dim 2 " SUMMED(2, "") "%a = copy %t }",
     3 + 2},
    {"inout %a : bf16[2, 8, 16] out %p : f32[2, 8] " ZEROS SUMMED(0, "")
         SUMMED(1, "") SUMMED(2, "") "%p = sum %a dim 2 %a = copy %t }",
     3 + 2},
};

TEST(CudaAttention, GradientsInPartsGoIntoTheResultWithoutTheTemporary)
{
    LaunchAsManyAsTheySay(kGradientSums,
                          {std::begin(kGradients16), std::end(kGradients16)});
}

// A part of all rows, of those of one head, or of the later ones, some of which
// may see nothing.
std::string DrawnPart(bool gradients, int which, bool adds,
                      std::mt19937 &random)
{
    const std::string rows[] = {"", "[0..1]", "[1..2]", "[:, 4..8]"};
    const std::string heads[] = {"", ", 0..1", ", 1..2", ""};
    const std::string masks[] = {"", "", " causal 2", " causal -3"};
    const std::string &of = rows[which];
    std::string at =
        "[" + std::to_string(Between(0, 2, random)) + heads[which] + "]";
    std::string to = gradients ? ", %b" + at + ", %c" + at + " = attention_grad"
                               : ", %l" + of + " = attention";

    return "%t" + of + to + " %q" + of + ", %k" + at + ", %v" + at +
           (gradients ? ", %o" + of + ", %l" + of + ", %g" + of : "") +
           (adds ? " accumulate" : "") + masks[Between(0, 3, random)] + " ";
}

// Parts in any order that are added up in %t, and copied; others may look on,
// or write among them.
std::string DrawnParts(bool gradients, std::mt19937 &random)
{
    std::vector<std::string> parts;
    int first = Between(0, 1, random);
    std::string text = gradients ? kGradientSums : kParts;

    text += gradients ? "out %a : bf16[2, 8, 16] " : "out %o : bf16[2, 8, 16] ";
    text += "inout %p : f32[2, 8] { ";
    for (const char *to : {"t", "b", "c"})
        if (gradients)
            text += std::string("%") + to + " = fill value " +
                    (Between(0, 5, random) == 0 ? "1 " : "0 ");
    for (int i = 0; i <= first && !gradients; i++)
        text += DrawnPart(false, first + i, false, random);
    for (int i = Between(0, 5, random); i >= 0; i--)
        parts.push_back(DrawnPart(
            gradients, Between(0, 2, random) == 0 ? Between(1, 3, random) : 0,
            true, random));
    if (Between(0, 3, random) == 0)
        parts[random() % parts.size()] += "%p = sum %t dim 2 ";
    if (gradients && Between(0, 3, random) == 0)
        parts[random() % parts.size()] += "%b[1] = scale %b[1] by 2 ";
    for (const std::string &part : parts)
        text += part;
    return text + (gradients ? "%a = copy %t }" : "%o = copy %t }");
}

TEST(CudaAttention, OfDrawnPartsIsWhatTheySay)
{
    std::mt19937 random(Seed());

    for (int i = 0; i < (IsQuick() ? 8 : 40); i++) {
        std::string text = DrawnParts(i % 2 == 0, random);

        SCOPED_TRACE(text);
        Launches(text, i % 8 == 6 ? "generated" : "");
    }
}

// Each of whose kernels does a step, as the kernel behind cuDNN's does.
TEST(CudaAttention, ByGeneratedKernelsStoresThemToo)
{
    for (const Sum &sum : kZeros) {
        SCOPED_TRACE(sum.text);
        EXPECT_EQ(Launches(std::string(kGradientParts) + sum.text, "generated"),
                  sum.launches);
    }
}

// --------------------------------------------------------------- replays

// A ring over blocks of a sequence, forward and backward: its keys stay.
const char *const kRounds =
    "heddle 2 host program rounds mesh tp=2 streams 2 "
    "in %q : bf16[2 @tp, 2, 5, 16] in %k : bf16[2 @tp, 1, 5, 16] shared "
    "in %v : bf16[2 @tp, 1, 5, 16] shared in %g : bf16[2 @tp, 2, 5, 16] "
    "out %o : f32[2 @tp, 2, 5, 16] out %l : f32[2 @tp, 2, 5] "
    "out %a : f32[2 @tp, 2, 5, 16] out %b : f32[2, 1, 5, 16] "
    "out %c : f32[2, 1, 5, 16] temp %kp : bf16[1, 5, 16] shared "
    "temp %vp : bf16[1, 5, 16] shared temp %e : event[] "
    "{ fork on stream 0 { "
    "group { send %k[tp] to 1 - tp %kp = recv from 1 - tp "
    "send %v[tp] to 1 - tp %vp = recv from 1 - tp } %e = record } "
    "on stream 1 { "
    "%o[tp], %l[tp] = attention %q[tp], %k[tp], %v[tp] causal 0 wait %e "
    "%o[tp], %l[tp] = attention %q[tp], %kp, %vp accumulate "
    "%a[tp] = fill value 0 %b = fill value 0 %c = fill value 0 "
    "%a[tp], %b[tp], %c[tp] = attention_grad %q[tp], %k[tp], %v[tp], "
    "%o[tp], %l[tp], %g[tp] accumulate causal 0 "
    "%a[tp], %b[1 - tp], %c[1 - tp] = attention_grad %q[tp], %kp, %vp, "
    "%o[tp], %l[tp], %g[tp] accumulate } join }";

TEST(CudaAttention, OfARingIsRightInFiveHundredReplays)
{
    const int runs = 500;
    Program program(kRounds, runs);
    hd_session_options options = CudaOptions();

    options.graph = true;
    AllAreRight(RunRanks(2, [&](Rank &rank) -> hd_status {
        Session session;

        HD_TRY(session.Open(rank, program, options));
        Shards shards(session);
        HD_TRY(shards.Put(program.Inputs(), program.Module(), rank.rank,
                          rank.diag));
        auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
        for (int i = 0; i < runs; i++) {
            HD_TRY(shards.Set(program.Inputs(i), program.Module(), rank.rank,
                              rank.diag));
            HD_TRY(shards.Run(rank.diag));
            HD_TRY(shards.Get(rank.diag));
            HD_TRY(program.Compare(shards, rank.rank, i));
        }
        RANK_EXPECT(calls("cuGraphLaunch") == runs);
        RANK_EXPECT(calls("cuStreamBeginCapture_v2") == 1);
        return HD_OK;
    }));
}

// ----------------------------------------------------------------- plans

// Four of one shape, of which two merge: those write to scratch.
const char *const kFour = "inout %p : f32[2, 8, 16] inout %m : f32[2, 8] "
                          "{ %o, %l = attention %q, %k, %v causal 4 "
                          "%o, %l = attention %q, %k, %v causal 4 "
                          "%p, %m = attention %q, %k, %v causal 4 accumulate "
                          "%p, %m = attention %q, %k, %v causal 4 accumulate }";

// How many plans a session builds, and how it attends.
std::pair<long, std::string> Builds()
{
    Program program(kHead + std::string(kPlain) + kFour);
    std::vector<Answer> answers = RunRanks(1, [&](Rank &rank) {
        Session session;

        HD_TRY(session.Open(rank, program, CudaOptions()));
        rank.answer->number = Extra<decltype(fake_cuda_calls)>(
            "fake_cuda_calls")("cuDNN plans that are built");
        snprintf(rank.answer->said, sizeof(rank.answer->said), "%s",
                 Attends(session).find("cuDNN") == 0 ? "cuDNN" : "generated");
        return RunAndCompare(rank, program, session, 1);
    });

    AllAreRight(answers);
    return {answers[0].number, answers[0].said};
}

typedef std::pair<long, std::string> Built;

TEST(CudaAttention, OfOneShapeHasOnePlanWhichIsKeptOnDisk)
{
    Folder folder;

    EXPECT_EQ(Builds(), Built(1, "cuDNN")); // results lie alike in scratch
    setenv("HEDDLE_CACHE_DIR", folder.Path("cache").c_str(), 1);
    EXPECT_EQ(Builds(), Built(1, "cuDNN"));
    EXPECT_EQ(Builds(), Built(0, "cuDNN"));
    {
        ScopedSetting newer("FAKE_CUDNN_VERSION", "92000");

        EXPECT_EQ(Builds(), Built(1, "cuDNN"));
        EXPECT_EQ(Builds(), Built(0, "cuDNN"));
    }
    EXPECT_EQ(Builds(), Built(0, "cuDNN"));
    setenv("HEDDLE_CACHE_DIR", "off", 1);
}

TEST(CudaAttention, TakesTheFirstOfCudnnsWaysThatHasAKernel)
{
    {
        ScopedSetting first("FAKE_CUDNN_LACKING", "1");

        EXPECT_EQ(Builds(), Built(2, "cuDNN"));
    }
    ScopedSetting both("FAKE_CUDNN_LACKING", "2");

    EXPECT_EQ(Builds(), Built(2, "generated"));
    EXPECT_EQ(TextOf(std::string(kPlain) + kFour),
              "generated kernels: cuDNN has no way: the kernel does not fit");
}

} // namespace
