// The conformance suite: every host op on a device against the reference, which
// is computed in double precision by plain loops and comes with a bound on the
// error that a correct run may show. Any driver must pass it.
#include <algorithm>
#include <gtest/gtest.h>

#include <heddle/verify.h>

#include "base/diag.h"
#include "base/status.h"
#include "tests/device/device.h"
#include "tests/info.h"
#include "tests/unit/ranks.h"

namespace
{

const char *const kFloats[] = {"f64", "f32", "f16", "bf16"};
const char *const kIntegers[] = {"i64", "i32", "u8", "i8"};

hd_status RunOnRank(hd_group *group, const hd_module *module,
                    const Expected &expected, hd_diag *diag)
{
    int rank = hd_group_rank(group);
    hd_session *session = nullptr;
    hd_session_options options = DeviceOptions();

    HD_TRY(hd_session_create(group, module, &options, diag, &session));
    // The second run has other inputs, and finds what the first left behind.
    for (int run = 0; run < expected.Count(); run++)
        HD_TRY(RunAndCompare(session, module, expected, run, rank, diag));
    hd_session_destroy(session);
    return HD_OK;
}

void Replace(char what, const std::string &word, std::string *text)
{
    for (size_t at; (at = text->find(what)) != std::string::npos;)
        text->replace(at, 1, word);
}

// A program with each "$" and "~" replaced.
Module Parse(std::string text, const std::string &dtype,
             const std::string &op = "",
             const std::vector<hd_define> &defines = {})
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;

    Replace('$', dtype, &text);
    Replace('~', op, &text);
    EXPECT_EQ(hd_parse("conforms.hd", text.data(), text.size(), defines.data(),
                       defines.size(), diag, &module),
              HD_OK)
        << hd_diag_text(diag);
    hd_diag_destroy(diag);
    return Module(module);
}

// `text` with each "$" replaced, run on every rank of its mesh and compared.
void Conforms(const std::string &text, const std::string &dtype,
              const std::vector<hd_define> &defines = {},
              const std::function<void(Arguments *)> &change = nullptr)
{
    Module module =
        Parse("heddle 2\nhost program conforms\n" + text, dtype, "", defines);
    hd_diag *diag = hd_diag_create();

    ASSERT_NE(module, nullptr);
    ASSERT_EQ(CheckHere(module.get(), diag), HD_OK) << hd_diag_text(diag);
    hd_diag_destroy(diag);
    if (!HasDevices(module_info(module.get()).ranks))
        return;
    Expected expected(module.get(), 2, Seed(), change);
    Outcome outcome = Launch(
        module_info(module.get()).ranks, [&](hd_group *group, hd_diag *said) {
            return RunOnRank(group, module.get(), expected, said);
        });
    EXPECT_EQ(outcome.status, HD_OK) << outcome.text << dtype << "\n" << text;
}

void ConformsOnAllRanks(const std::string &text, const std::string &dtype)
{
    for (int ranks : Choose<int>({1, 2, 3, 4, 5, 8}, {1, 2, 3, 4}))
        Conforms(text, dtype, {{"tp", ranks}});
}

// ------------------------------------------------------------- compute

TEST(Conformance, Copy)
{
    for (const char *dtype : kFloats) {
        Conforms("in %x : $[3, 4, 5]\nout %y : $[3, 4, 5]\nout %z : $[4, 5]\n"
                 "{ %y = copy %x  %z = copy %x[1] }",
                 dtype);
    }
    for (const char *dtype : kIntegers) {
        Conforms("in %x : $[3, 7]\nout %y : $[3, 7]\n{ %y = copy %x }", dtype);
    }
}

TEST(Conformance, Cast)
{
    for (const char *dtype :
         {"f64", "f16", "bf16", "f8e4m3", "f8e5m2", "i32"}) {
        Conforms("in %x : f32[6, 7]\nout %y : $[6, 7]\nout %z : f32[6, 7]\n"
                 "temp %t : $[6, 7]\n"
                 "{ %y = copy %x  %t = copy %x  %z = copy %t }",
                 dtype);
    }
}

TEST(Conformance, SumAndMaxOfSeveral)
{
    for (const char *op : {"sum", "max"}) {
        for (const char *dtype : kFloats) {
            Conforms(std::string("in %a : $[4, 9]\nin %b : $[4, 9]\n"
                                 "in %c : $[4, 9]\nout %y : $[4, 9]\n{ %y = ") +
                         op + " %a, %b, %c }",
                     dtype);
        }
    }
}

TEST(Conformance, SumAndMaxOverADimension)
{
    for (const char *op : {"sum", "max"}) {
        for (const char *dtype : kFloats) {
            for (const char *dim : {"0 }", "1 }"}) {
                Conforms(std::string("in %x : $[6, 6, 5]\nout %y : $[6, 5]\n"
                                     "{ %y = ") +
                             op + " %x dim " + dim,
                         dtype);
            }
        }
    }
}

TEST(Conformance, AddAndMulRepeatTheirSecondOperand)
{
    for (const char *op : {"add", "mul"}) {
        for (const char *dtype :
             {"f64", "f32", "f16", "bf16", "i64", "i32", "u8", "i8"}) {
            Conforms(std::string("in %a : $[3, 4, 5]\nin %b : $[5]\n"
                                 "inout %y : $[3, 4, 5]\n{ %y = ") +
                         op + " %a, %b  %y = " + op + " %y, %a }",
                     dtype);
        }
    }
}

TEST(Conformance, ScaleAndActivations)
{
    for (const char *dtype : kFloats) {
        Conforms("in %x : $[5, 8]\nin %f : f32[]\nout %a : $[5, 8]\n"
                 "out %b : $[5, 8]\nout %c : $[5, 8]\nout %d : $[5, 8]\n"
                 "out %e : $[5, 8]\n"
                 "{ %a = scale %x by 0.375  %b = scale %x by %f  %c = relu %x "
                 " %d = gelu %x  %e = silu %x }",
                 dtype);
    }
}

TEST(Conformance, MapsOfOneOperand)
{
    for (const char *dtype : {"f64", "f32", "f16", "bf16", "f8e4m3"})
        Conforms("in %x : $[5, 8]\nout %p : $[5, 8]\nout %a : $[5, 8]\n"
                 "out %b : $[5, 8]\nout %c : $[5, 8]\nout %d : $[5, 8]\n"
                 "out %e : $[5, 8]\nout %f : $[5, 8]\nout %g : $[5, 8]\n"
                 "out %h : $[5, 8]\nout %i : $[5, 8]\nout %j : $[5, 8]\n"
                 "out %k : $[5, 8]\n"
                 "{ %p = abs %x  %a = neg %x  %b = exp %x  %c = log %p\n"
                 "  %d = sqrt %p  %e = rsqrt %p  %f = tanh %x\n"
                 "  %g = sigmoid %x  %h = sin %x  %i = cos %x  %j = floor %x\n"
                 "  %k = gelu_erf %x }",
                 dtype);
}

TEST(Conformance, MapsOfTwoOperands)
{
    for (const char *dtype : kFloats)
        Conforms("in %x : $[5, 8]\nin %g : $[5, 8]\nout %a : $[5, 8]\n"
                 "out %b : $[5, 8]\nout %c : $[5, 8]\nout %d : $[5, 8]\n"
                 "out %e : $[5, 8]\nout %f : $[5, 8]\nout %p : $[5, 8]\n"
                 "out %h : $[5, 8]\n"
                 "{ %a = sub %x, %g  %b = div %x, %g  %c = relu_grad %x, %g\n"
                 "  %d = gelu_grad %x, %g  %e = silu_grad %x, %g\n"
                 "  %f = gelu_erf_grad %x, %g  %p = abs %x  %h = pow %p, %g }",
                 dtype);
}

TEST(Conformance, NumbersInThePlaceOfOperands)
{
    for (const char *dtype : {"f64", "f32", "bf16", "f8e5m2", "i64", "u8"})
        Conforms("in %x : $[5, 8]\nin %m : u8[8]\nout %a : $[5, 8]\n"
                 "out %b : $[5, 8]\nout %c : $[5, 8]\nout %d : u8[5, 8]\n"
                 "out %e : $[5, 8]\n"
                 "{ %a = sub 3, %x  %b = sum %x, 2, %a  %c = max %x, 1\n"
                 "  %d = lt 2, %x  %e = select %m, %x, 6 / 2 }",
                 dtype);
}

// What no random number is: zero to divide by, and the smallest, whose negative
// is none.
TEST(Conformance, IntegersWrapAndDivideByZero)
{
    const char *const smallest[] = {"-9223372036854775808", "-2147483648", "0"};

    for (int i = 0; i < 3; i++)
        Conforms(std::string("in %x : $[5, 8]\nout %s : $[]\nout %m : $[]\n"
                             "out %z : $[5, 8]\nout %a : $[5, 8]\n"
                             "out %b : $[5, 8]\nout %c : $[]\nout %d : $[]\n"
                             "out %e : $[]\nout %f : $[5, 8]\n"
                             "out %g : $[5, 1]\n"
                             "{ %s = fill value ") +
                     smallest[i] +
                     "  %m = fill value -1  %z = sub %x, %x\n"
                     "  %a = div %x, %z  %b = div %s, %x  %c = div %s, %m\n"
                     "  %d = abs %s  %e = neg %s  %f = min %x, %s, %z\n"
                     "  %g = min %x dim 1 }",
                 kIntegers[i]);
}

TEST(Conformance, ComparisonsAndSelections)
{
    for (const char *dtype :
         {"f64", "f32", "bf16", "f8e5m2", "i64", "i32", "u8", "i8"})
        Conforms("in %x : $[4, 9]\nin %r : $[9]\nin %m : u8[4, 1]\n"
                 "out %a : u8[4, 9]\nout %b : u8[4, 9]\nout %c : u8[4, 9]\n"
                 "out %d : u8[4, 9]\nout %e : u8[4, 9]\nout %f : u8[4, 9]\n"
                 "out %s : $[4, 9]\nout %t : $[4, 9]\nout %u : u8[4, 1]\n"
                 "out %v : u8[4, 9]\nout %w : u8[4, 9]\nout %y : u8[4, 9]\n"
                 "out %z : u8[4, 1]\n"
                 "{ %a = lt %x, %r  %b = le %x, %x  %c = gt %r, %x\n"
                 "  %d = ge %x, %r  %e = eq %x, %x  %f = ne %x, %r\n"
                 "  %s = select %a, %x, %r  %u = sub %m, %m\n"
                 "  %t = select %u, %x, %r  %v = and %a, %m  %w = or %f, %m\n"
                 "  %y = xor %m, %d  %z = not %m }",
                 dtype);
}

TEST(Conformance, OperandsRepeatAlongAnyDimension)
{
    for (const char *dtype : {"f32", "bf16", "i32"})
        Conforms("in %x : $[3, 4, 5]\nout %m : $[3, 4, 1]\n"
                 "out %n : $[1, 4, 5]\nout %y : $[3, 4, 5]\n"
                 "out %z : $[3, 4, 5]\nout %s : $[3, 4, 5]\n"
                 "{ %m = max %x dim 2  %n = min %x dim 0\n"
                 "  %y = sub %x, %m  %z = sub %n, %x\n"
                 "  %s = sum %m, %n, %x }",
                 dtype);
}

TEST(Conformance, SumsTakeF32BesideANarrowerDtype)
{
    for (const char *dtype : {"f16", "bf16", "f8e4m3", "f8e5m2"})
        Conforms("in %x : $[3, 40]\nin %f : f32[3, 40]\nin %r : f32[40]\n"
                 "out %a : $[3, 40]\nout %b : $[3, 40]\n"
                 "out %c : f32[3, 40]\nout %d : f32[3, 40]\n"
                 "{ %a = sum %f, %x  %b = sum %x, %f, %r, %x\n"
                 "  %c = sum %x, %f  %d = sum %x, %x }",
                 dtype);
}

TEST(Conformance, FoldsGoToWiderDtypes)
{
    const char *const wider[][2] = {
        {"f32", "f64"},  {"f16", "f64"},    {"bf16", "f32"},
        {"bf16", "f64"}, {"f8e4m3", "f16"}, {"f8e5m2", "f32"},
        {"u8", "i32"},   {"i32", "i64"},    {"i8", "i32"}};

    for (const auto &dtype : wider) {
        std::string text = "in %x : $[6, 6, 40]\nin %y : $[40]\n"
                           "out %a : ~[6, 40]\nout %b : ~[6, 6]\n"
                           "out %c : ~[6, 40]\nout %d : ~[6, 40]\n"
                           "out %e : ~[6, 1, 40]\n"
                           "{ %a = sum %x dim 0  %b = sum %x dim 2\n"
                           "  %c = sum %x[0], %a, %y  %d = max %y, %x[1]\n"
                           "  %e = min %x dim 1 }";

        Replace('~', dtype[1], &text);
        Conforms(text, dtype[0]);
    }
}

TEST(Conformance, BiasesRepeatAlongRowsColumnsAndProducts)
{
    for (const char *dtype : {"f32", "bf16"})
        Conforms("in %a : $[2, 6, 9]\nin %b : $[2, 9, 8]\n"
                 "in %p : $[2, 1, 8]\nin %q : $[6, 1]\nin %r : $[1]\n"
                 "in %t : $[2, 6, 8]\nout %w : $[2, 6, 8]\n"
                 "out %x : $[2, 6, 8]\nout %y : $[2, 6, 8]\n"
                 "out %z : $[2, 6, 8]\n"
                 "{ %w = matmul %a, %b bias %p act gelu\n"
                 "  %x = matmul %a, %b bias %q\n"
                 "  %y = matmul %a, %b bias %r act relu\n"
                 "  %z = matmul %a, %b bias %t }",
                 dtype);
}

// Pipelines add what has arrived by the product itself. Rows of the matrix and
// of the result lie apart, between each other's, at odd places, and in pieces.
TEST(Conformance, ProductsAreAddedToMatrices)
{
    for (const char *dtype : kFloats)
        Conforms("in %a : $[2, 16, 24]\nin %b : $[2, 24, 8]\n"
                 "in %t : $[8, 24]\nin %b5 : $[24, 5]\n"
                 "in %r : $[16, 8]\nin %p : $[2, 16, 2, 8]\n"
                 "in %o : $[16, 3, 5]\n"
                 "in %u : $[2, 3, 16, 8]\n"
                 "out %c : $[16, 8]\nout %d : $[16, 3, 8]\n"
                 "out %e : $[2, 16, 8]\nout %f : $[2, 16, 8]\n"
                 "inout %g : $[16, 2, 8]\n"
                 "out %i : $[16, 5]\nout %j : $[2, 16, 8]\n"
                 "out %k : $[2, 16, 8]\n"
                 "{ %c = matmul %a[0], %b[1] bias %r\n"
                 "  %d[:, 1] = matmul %a[0], %b[0] scale -3 bias %p[1, :, 1]\n"
                 "  %d[:, 0] = matmul %a[1], %t tb bias %p[0, :, 0]\n"
                 "  %d[:, 2] = matmul %a[1], %t tb bias %r act relu\n"
                 "  %e = matmul %a, %b[0] bias %p[:, :, 1]\n"
                 "  %f = matmul %a, %b bias %r\n"
                 "  %g[:, 1] = matmul %a[1], %b[0] bias %g[:, 0]\n"
                 "  %i = matmul %a[0], %b5 bias %o[:, 1]\n"
                 "  %j = matmul %a, %b[1] bias %u[:, 1]\n"
                 "  %k = matmul %a, %b bias %u[:, 2] }",
                 dtype);
}

TEST(Conformance, Transpose)
{
    for (const char *dtype : {"f32", "bf16", "i32"}) {
        Conforms("in %x : $[3, 4, 5]\nout %y : $[3, 5, 4]\n"
                 "out %z : $[5, 4, 3]\n"
                 "{ %y = transpose %x  %z = transpose %x dim0 0 dim1 2 }",
                 dtype);
        Conforms("in %x : $[3, 4, 5]\nin %v : $[2, 1, 3, 2, 2]\n"
                 "out %y : $[5, 3, 4]\nout %z : $[2, 2, 1, 2, 3]\n"
                 "{ %y = permute %x order (2, 0, 1)  "
                 "%z = permute %v order (4, 0, 1, 3, 2) }",
                 dtype);
    }
}

// NaNs stand around what is taken from, where indices of none would find them;
// and the second run's indices are others.
TEST(Conformance, TakesByIndicesOfAllAndOfNone)
{
    const std::vector<const char *> dtypes = {"f64",    "f32",    "f16", "bf16",
                                              "f8e4m3", "f8e5m2", "i64", "i32",
                                              "u8",     "i8"};

    for (const char *dtype : dtypes)
        Conforms("in %x : $[3, 9, 16]\nin %b : $[3, 9, 16]\n"
                 "in %i : i32[3, 70]\nin %j : i32[2, 5]\n"
                 "in %k : i32[3, 9, 4]\nin %s : i32[]\n"
                 "in %n : i32[2, 7]\n"
                 "out %c : $[3, 70, 16]\nout %d : $[2, 3, 5, 5]\n"
                 "out %e : $[3, 9, 4]\nout %f : $[16]\n"
                 "out %g : $[7, 16]\nout %h : $[3, 70, 16]\n"
                 "{ %c = take %b, %i dim 1\n"
                 "  %h = take %b[:, 2..6], %i dim 1 start 3\n"
                 "  %d[:, 0] = take %x[1, :, 3..8], %j dim 0\n"
                 "  %d[:, 1] = take %x[1, 2..7, 3..8], %j dim 0\n"
                 "  %d[:, 2] = take %x[1, 8..9, 11..16], %j dim 0\n"
                 "  %e = take %b, %k dim 2\n"
                 "  %f = take %x[1], %s dim 0\n"
                 "  %g = take %x[1], %n[1] dim 0\n"
                 "}",
                 dtype, {}, [](Arguments *arguments) {
                     for (size_t i = 0; i < 144; i++) {
                         arguments->Set(0, i, NAN);
                         arguments->Set(0, 288 + i, NAN);
                     }
                 });
}

TEST(Conformance, PlacesOfElements)
{
    for (const char *dtype : {"i32", "i64"})
        Conforms("out %x : $[5, 60]\nout %y : $[3, 5, 7]\n"
                 "{ %x = iota dim 1  %y[:, 0..2] = iota dim 2 start 4\n"
                 "  %y[:, 2] = iota dim 0  %y[0..2, 3..5] = iota dim 1\n"
                 "  %y[2, 3..5] = iota dim 0 start 100 }",
                 dtype);
}

TEST(Conformance, ScalesOfIntegers)
{
    for (const char *dtype : kIntegers)
        Conforms("in %x : $[5, 60]\nout %y : $[5, 60]\nout %z : $[5, 60]\n"
                 "{ %y = scale %x by -1.5  %z = scale %x by 0.3 }",
                 dtype);
}

// Into integers they are exact, and wrap.
TEST(Conformance, MatmulOfIntegers)
{
    Conforms("in %a : i8[3, 33, 70]\nin %b : i8[3, 70, 29]\n"
             "in %w : i8[29, 70]\nin %s : f32[33, 1]\nin %t : f32[29, 1]\n"
             "in %i : i32[29]\nin %n : i32[3]\nin %o : f32[29]\n"
             "inout %c : i32[3, 33, 29]\nout %d : f32[3, 33, 29]\n"
             "out %e : f32[33, 29]\nout %f : i32[33, 29]\n"
             "out %g : f32[3, 33, 29]\nout %h : i32[70, 70]\n"
             "{ %c = matmul %a, %b bias %i accumulate\n"
             "  %d = matmul %a, %b scale 0.3 bias %o act gelu aux %g\n"
             "  %e = matmul %a[0], %w tb scale_a %s scale_b %t\n"
             "  %f = matmul %a[1], %b groups %n\n"
             "  %h = matmul %a[2], %a[2] ta }",
             "i8");
}

TEST(Conformance, Matmul)
{
    for (const char *dtype : kFloats) {
        Conforms("in %a : $[33, 17]\nin %b : $[17, 29]\nout %c : $[33, 29]\n"
                 "{ %c = matmul %a, %b }",
                 dtype);
        Conforms("in %a : $[17, 33]\nin %b : $[29, 17]\nout %c : $[33, 29]\n"
                 "{ %c = matmul %a, %b ta tb scale 0.5 }",
                 dtype);
        Conforms("in %a : $[2, 9, 17]\nin %w : $[29, 17]\nin %bias : $[29]\n"
                 "out %c : $[2, 9, 29]\nout %z : $[2, 9, 29]\n"
                 "{ %c = matmul %a, %w tb bias %bias act gelu aux %z }",
                 dtype);
        Conforms("in %a : $[3, 9, 17]\nin %b : $[3, 17, 8]\n"
                 "inout %c : $[3, 9, 8]\n"
                 "{ %c = matmul %a, %b accumulate }",
                 dtype);
        // Products of nine elements, next to each other and apart.
        Conforms("in %a : $[2, 3, 2]\nin %b : $[2, 2, 3]\n"
                 "out %c : $[2, 2, 3, 3]\n"
                 "{ %c[:, 1] = matmul %a[1], %b act gelu\n"
                 "  %c[:, 0] = matmul %a[0], %b act gelu_erf }",
                 dtype);
    }
}

// Of rows and columns, of blocks whose last ones are shorter, and of parts of
// larger tensors; around those stand NaNs.
TEST(Conformance, ScalesOfOperands)
{
    for (const char *dtype : {"f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2"})
        Conforms(
            "in %r : f32[3, 33, 1]\nin %s : f32[3, 33, 3]\n"
            "in %a : $[33, 70]\nin %b : $[70, 45]\n"
            "in %ta : $[70, 33]\nin %tb : $[45, 70]\n"
            "in %q : f32[1, 45]\nin %tq : f32[45, 1]\n"
            "in %t : f32[3, 2]\nin %tt : f32[2, 3]\n"
            "in %ts : f32[3, 33]\nin %o : f32[1]\nin %e : f32[33, 70]\n"
            "in %v : f32[45]\nin %m : f32[2, 3]\n"
            "out %c : f32[33, 45]\nout %d : f32[33, 45]\n"
            "out %f : f32[33, 45]\ninout %g : f32[33, 45]\n"
            "out %h : f32[33, 45]\nout %i : f32[33, 45]\n"
            "out %z : f32[33, 45]\n"
            "{ %c = matmul %a, %b scale_a %r[1] scale_b %q\n"
            "  %d = matmul %a, %b scale_a %s[1] scale_b %t grain 32\n"
            "  %f = matmul %ta, %tb ta tb scale_a %ts scale_b %tt grain 32\n"
            "  %g = matmul %a, %tb tb scale 0.5 scale_a %e scale_b %tq "
            "bias %v act gelu aux %z accumulate\n"
            "  %h = matmul %a, %b scale_a %m scale_b %o grain 32\n"
            "  %i = matmul %a, %b scale_b %t grain 31 }",
            dtype, {}, [](Arguments *arguments) {
                for (size_t i = 0; i < 33; i++)
                    for (size_t part : {0u, 2u}) {
                        arguments->Set(0, 33 * part + i, NAN);
                        for (size_t k = 0; k < 3; k++)
                            arguments->Set(1, 99 * part + 3 * i + k, NAN);
                    }
            });
    for (const char *dtype : {"f32", "f8e4m3"})
        Conforms("in %a : $[2, 3, 20, 30]\nin %sa : f32[2, 1, 20, 4]\n"
                 "in %w : $[2, 1, 30, 18]\nin %sw : f32[2, 1, 4, 3]\n"
                 "in %v : $[2, 30, 18]\n"
                 "in %x : $[3, 20, 30]\nin %sx : f32[3, 1, 4]\n"
                 "in %sv : f32[2, 1, 18]\n"
                 "out %c : bf16[2, 3, 20, 18]\nout %d : bf16[2, 3, 20, 18]\n"
                 "{ %c = matmul %a, %w scale_a %sa scale_b %sw grain 8\n"
                 "  %d = matmul %x, %v scale_a %sx scale_b %sv grain 8 }",
                 dtype);
}

std::string Matrix(const char *role, const std::string &name, int rows,
                   int columns)
{
    return std::string(role) + " " + name + " : $[" + std::to_string(rows) +
           ", " + std::to_string(columns) + "]\n";
}

// Rows at odd offsets, and sums so long that parts of them may be added apart.
TEST(Conformance, MatmulRoundsOnce)
{
    const int shapes[][3] = {{33, 29, 17}, {9, 9, 2},    {40, 24, 16},
                             {7, 65, 258}, {5, 6, 1000}, {16, 8, 2048}};
    std::string declared, body;
    int count = 0;

    for (auto [m, n, k] : shapes)
        for (const char *act : {"", " act relu", " act gelu"})
            for (int way = 0; way < 4; way++) {
                bool transposed = (way & 1) != 0, bias = (way & 2) != 0;
                std::string at = std::to_string(count++);

                declared += Matrix("in", "%a" + at, m, k) +
                            Matrix("in", "%b" + at, transposed ? n : k,
                                   transposed ? k : n) +
                            Matrix("in", "%v" + at, 2, n) +
                            Matrix("out", "%c" + at, m, n);
                body += "%c" + at + " = matmul %a" + at + ", %b" + at +
                        (transposed ? " tb" : "") +
                        (bias ? " bias %v" + at + "[1]" : "") + act + "\n";
            }
    for (const char *dtype : {"f16", "bf16"})
        Conforms(declared + "{\n" + body + "}", dtype);
}

// What is small in comparison is added to the old value, or to a matrix, at
// once: parts of it, one by one, would be rounded each time.
TEST(Conformance, LongSumsAreAddedToLargeValuesAtOnce)
{
    for (const char *dtype : {"f64", "f32"})
        Conforms("in %a : $[16, 4096]\nin %b : $[4096, 16]\n"
                 "inout %c : $[16, 16]\nout %d : $[16, 16]\n"
                 "temp %t : $[16, 4096]\ntemp %u : $[16, 16]\n"
                 "{ %t = scale %a by 0.0000001\n  %u = copy %c\n"
                 "  %d = matmul %t, %b bias %u\n"
                 "  %c = matmul %t, %b accumulate }",
                 dtype);
}

// Rows of the result are a multiple of 16 bytes apart, and not all of them, or
// of the matrix, begin at one.
TEST(Conformance, ProductsAreAddedToMatricesAndRoundedOnce)
{
    for (const char *dtype : {"f16", "bf16"})
        Conforms("in %a : $[300, 24]\nin %b : $[4, 24]\n"
                 "in %p : $[300, 4]\nin %q : $[300, 2, 4]\n"
                 "out %c : $[300, 2, 4]\nout %d : $[300, 2, 4]\n"
                 "out %e : $[300, 2, 4]\n"
                 "{ %c[:, 0] = matmul %a, %b tb bias %p\n"
                 "  %c[:, 1] = matmul %a, %b tb bias %q[:, 0]\n"
                 "  %d[:, 0] = matmul %a, %b tb bias %q[:, 0]\n"
                 "  %d[:, 1] = matmul %a, %b tb bias %q[:, 1]\n"
                 "  %e[:, 0] = matmul %a, %b tb bias %q[:, 1]\n"
                 "  %e[:, 1] = matmul %a, %b tb bias %p[7] }",
                 dtype);
}

// ----------------------------------------------------------- transfers

TEST(Conformance, SendAndRecv)
{
    for (const char *key : {"", " get"}) {
        std::string text =
            "mesh tp=2\n"
            "in %x : $[size tp@tp, 3, 5] shared\n"
            "out %y : $[size tp@tp, 3, 5] shared\n"
            "{ if size tp > 1 { group { send %x[tp] to (tp + 1) mod size tp" +
            std::string(key) + "  %y[tp] = recv from (tp - 1) mod size tp" +
            key + " } } else { %y[tp] = copy %x[tp] } }";

        for (const char *dtype : {"f32", "bf16", "i64", "u8"})
            ConformsOnAllRanks(text, dtype);
    }
}

// What copies bring is waited for inside where they take no processors.
TEST(Conformance, LaunchesAreTheirSteps)
{
    bool copies = DeviceOptions().transport == HD_TRANSPORT_COPY;
    std::string wait = "wait %e ";
    std::string text =
        "mesh tp=2 streams 2\n"
        "in %x : $[size tp@tp, 3, 4] in %w : $[4, 5]\n"
        "out %y : $[size tp, 3, 5] out %z : $[3, 5]\n"
        "temp %g : $[size tp, 3, 4] shared temp %e : event[] temp %f : "
        "event[]\n"
        "{ fork on stream 1 { for i in 1..size tp { group {"
        " send %x[tp] to (tp + i) mod size tp"
        " %g[(tp - i) mod size tp] = recv from (tp - i) mod size tp } }"
        " %e = record } on stream 0 { " +
        std::string(copies ? "" : wait) +
        "launch { %y[tp] = matmul %x[tp], %w act relu %f = record " +
        std::string(copies ? wait : "") +
        "for i in 0..size tp { if i != tp {"
        " %y[i] = matmul %g[i], %w act relu } } } }"
        " on stream 1 { wait %f %z = scale %y[tp] by 2 } join }";

    for (const char *dtype : {"f32", "bf16"})
        ConformsOnAllRanks(text, dtype);
}

TEST(Conformance, AllGather)
{
    for (const char *dtype : {"f32", "bf16", "u8"}) {
        ConformsOnAllRanks("mesh tp=2\nin %x : $[size tp@tp, 3, 5]\n"
                           "out %y : $[size tp, 3, 5] shared\n"
                           "{ %y = all_gather %x[tp] }",
                           dtype);
    }
}

TEST(Conformance, AllToAll)
{
    for (const char *dtype : {"f32", "bf16", "u8"}) {
        ConformsOnAllRanks("mesh tp=2\nin %x : $[size tp@tp, size tp, 7]\n"
                           "out %y : $[size tp@tp, size tp, 7] shared\n"
                           "{ %y[tp] = all_to_all %x[tp] }",
                           dtype);
    }
}

// A sum, a maximum and a minimum, each "~", of bf16 on each number of ranks and
// of every dtype, on the fakes of three, on one of them, each time another.
void Reduces(const std::string &text)
{
    const std::vector<int> ranks =
        Choose<int>({1, 2, 3, 4, 5, 8}, {1, 2, 3, 4});
    std::vector<const char *> dtypes = {"f64",    "f32",    "f16", "bf16",
                                        "f8e4m3", "f8e5m2", "i64", "i32",
                                        "u8",     "i8"};
    std::mt19937 random(Seed());

    for (const char *key : {"", " max", " min"}) {
        std::string keyed = text;

        Replace('~', key, &keyed);
        std::shuffle(dtypes.begin(), dtypes.end(), random);
        for (size_t i = 0; i < (IsQuick() ? 3 : dtypes.size()); i++)
            Conforms(keyed, dtypes[i],
                     {{"tp", ranks[random() % ranks.size()]}});
        ConformsOnAllRanks(keyed, "bf16");
    }
}

TEST(Conformance, Reductions)
{
    Reduces("mesh tp=2\nin %x : $[size tp@tp, size tp, 700] shared\n"
            "out %y : $[size tp@tp, 700]\nout %z : $[size tp, 700]\n"
            "{ %y[tp] = reduce_scatter %x[tp]~  %z = all_reduce %x[tp]~ }");
}

// One behind the other, of several sizes, along two axes, in every run.
TEST(Conformance, ReductionsFollowEachOther)
{
    for (int rows : {1, 2, 3})
        Conforms("mesh dp=2, tp=2\n"
                 "in %x : f32[size dp@dp, size tp@tp, 70] shared\n"
                 "temp %t : f32[70] shared\nout %y : f32[3, 70]\n"
                 "inout %z : f32[size dp@dp, size tp@tp, 9] shared\n"
                 "{ for i in 0..3 {\n"
                 "    %t = all_reduce@tp %x[dp, tp]\n"
                 "    %z[dp, tp] = all_reduce@dp %z[dp, tp] max\n"
                 "    %y[i] = all_reduce@dp %t } }",
                 "f32", {{"dp", rows}});
}

// The pieces lie apart, and in place too.
TEST(Conformance, ScatteredPiecesHaveGapsBetweenThem)
{
    Reduces("mesh tp=2\nin %x : $[size tp@tp, size tp, 3, 70] shared\n"
            "inout %w : $[size tp@tp, size tp, 2, 70] shared\n"
            "out %y : $[size tp@tp, 70]\n"
            "{ %y[tp] = reduce_scatter %x[tp, :, 1]~\n"
            "  %w[tp, tp, 1] = reduce_scatter %w[tp, :, 1]~ }");
}

// In turn to each rank, and in place to the last; what another rank names as
// a result stays as it was.
TEST(Conformance, ReduceToARoot)
{
    Reduces("mesh tp=2\nin %x : $[size tp@tp, size tp, 700] shared\n"
            "out %y : $[size tp@tp, 700]\ninout %z : $[size tp@tp, 700]\n"
            "inout %w : $[size tp@tp, 3] shared\n"
            "{ for r in 0..size tp {\n"
            "    if tp == r { %y[tp] = reduce %x[tp, r] root r~ }\n"
            "    else { reduce %x[tp, r] root r~ } }\n"
            "  %z[tp] = reduce %x[tp, 0] root size tp - 1~\n"
            "  %w[tp] = reduce %w[tp] root size tp - 1~ }");
}

// In each of the ways to take a maximum or minimum, `~`, of whichever rank the
// NaN is.
const char *const kExtremes =
    "heddle 2\nhost program extremes\nmesh tp=3\n"
    "in %x : $[3@tp, 3, 70] shared\n"
    "out %s : $[3@tp, 70]\nout %a : $[3, 70]\nout %o : $[3@tp, 70]\n"
    "out %d : $[3@tp, 70]\nout %e : $[3@tp, 70]\nout %r : $[3@tp, 3, 70]\n"
    "{ %s[tp] = reduce_scatter %x[tp] ~\n"
    "  %a = all_reduce %x[tp] ~\n"
    "  for i in 0..3 { %o[tp] = reduce %x[tp, i] root i ~ }\n"
    "  %d[tp] = ~ %x[tp] dim 0\n"
    "  %e[tp] = ~ %x[tp, 0], %x[tp, 1], %x[tp, 2]\n"
    "  %r[tp] = relu %x[tp] }\n";

void KeepsNans(const char *op, const std::string &dtype, std::mt19937 &random)
{
    Module module = Parse(kExtremes, dtype, op);
    std::vector<size_t> nans;

    ASSERT_NE(module, nullptr);
    Expected expected(module.get(), 2, Seed(), [&](Arguments *arguments) {
        for (size_t rank = 0; rank < 3; rank++) {
            nans.push_back(random() % 210);
            arguments->Set(0, rank * 210 + nans.back(), NAN);
        }
    });
    std::vector<double> want(210), bound(210);
    hd_reference_local(expected.Reference(0), 2, 0, want.data(), bound.data());
    for (size_t i = 0; i < 210; i++)
        EXPECT_EQ(std::isnan(want[i]),
                  i == nans[0] || i == nans[1] || i == nans[2])
            << i;
    Outcome outcome = Launch(3, [&](hd_group *group, hd_diag *said) {
        return RunOnRank(group, module.get(), expected, said);
    });
    EXPECT_EQ(outcome.status, HD_OK) << outcome.text << op << " of " << dtype;
}

TEST(Conformance, ANanOfAnyRankIsTheMaximumAndTheMinimum)
{
    std::mt19937 random(Seed());

    for (const char *op : {"max", "min"})
        for (const char *dtype : kFloats)
            KeepsNans(op, dtype, random);
}

// Whether each rank's results have the signs that `is_minus` says of a result's
// element: zeros of either sign are equal, and no bound tells them apart.
hd_status CompareSigns(hd_group *group, const hd_module *module,
                       const Expected &expected,
                       const std::function<bool(size_t, size_t)> &is_minus,
                       hd_diag *diag)
{
    const Arguments &arguments = expected.Inputs(0);
    hd_session *session = nullptr;
    hd_session_options options = DeviceOptions();

    HD_TRY(hd_session_create(group, module, &options, diag, &session));
    {
        Shards shards(session);

        HD_TRY(shards.Put(arguments, module, hd_group_rank(group), diag));
        HD_TRY(shards.Run(diag));
        HD_TRY(shards.Get(diag));
        for (size_t i = 1; i < 6; i++) { // not relu's
            const hd_argument &info = arguments.Info(i);
            std::vector<double> value(info.local_elements);

            hd_dtype_load(info.dtype, shards.Bytes(i).data(), value.size(),
                          value.data());
            for (size_t k = 0; k < value.size(); k++)
                if (value[k] != 0 || std::signbit(value[k]) != is_minus(i, k))
                    return hd_fail(diag, HD_ERROR_INVALID, "%%%s[%zu] is %g",
                                   info.name, k, value[k]);
        }
    }
    hd_session_destroy(session);
    return HD_OK;
}

void TakesTheLastZero(const char *op, const std::string &dtype,
                      std::mt19937 &random)
{
    Module module = Parse(kExtremes, dtype, op);
    std::vector<bool> minus;

    ASSERT_NE(module, nullptr);
    Expected expected(module.get(), 1, Seed(), [&](Arguments *arguments) {
        for (size_t i = 0; i < 630; i++) {
            minus.push_back(random() % 2 != 0);
            arguments->Set(0, i, minus[i] ? -0.0 : 0.0);
        }
    });
    Outcome outcome = Launch(3, [&](hd_group *group, hd_diag *said) {
        size_t rank = size_t(hd_group_rank(group));

        return CompareSigns(
            group, module.get(), expected,
            [&](size_t i, size_t k) {
                return i == 1 || i == 3
                           ? minus[420 + rank * 70 + k] // of rank 2
                       : i == 2 ? minus[420 + k]
                                : minus[rank * 210 + 140 + k];
            },
            said);
    });
    EXPECT_EQ(outcome.status, HD_OK) << outcome.text << op << " of " << dtype;
}

TEST(Conformance, OfZerosTheLastIsTheMaximumAndTheMinimum)
{
    std::mt19937 random(Seed());

    for (const char *op : {"max", "min"})
        for (const char *dtype : kFloats)
            TakesTheLastZero(op, dtype, random);
}

// Every comparison with one is false but `ne`, and a minimum is one as a
// maximum is.
const char *const kOfNans =
    "heddle 2\nhost program nans\n"
    "in %x : $[6, 35]\nin %r : $[35]\n"
    "out %a : u8[6, 35]\nout %b : u8[6, 35]\nout %c : u8[6, 35]\n"
    "out %d : u8[6, 35]\nout %e : u8[6, 35]\nout %f : u8[6, 35]\n"
    "out %m : $[35]\nout %n : $[6, 35]\nout %g : $[6, 35]\n"
    "{ %a = lt %x, %r  %b = le %x, %r  %c = gt %x, %r  %d = ge %x, %r\n"
    "  %e = eq %x, %x  %f = ne %x, %x\n"
    "  %m = min %x dim 0  %n = min %r, %x  %g = relu_grad %x, %r }\n";

void ComparesNans(const std::string &dtype, std::mt19937 &random)
{
    Module module = Parse(kOfNans, dtype);
    size_t nan = 0;

    ASSERT_NE(module, nullptr);
    Expected expected(module.get(), 2, Seed(), [&](Arguments *arguments) {
        nan = random() % 210;
        arguments->Set(0, nan, NAN);
    });
    for (size_t i = 2; i < 8; i++) { // lt, le, gt, ge, eq, ne
        std::vector<double> want(210), bound(210);

        hd_reference_local(expected.Reference(1), i, 0, want.data(),
                           bound.data());
        EXPECT_EQ(want[nan], i == 7 ? 1 : 0) << i;
        EXPECT_EQ(bound[nan], 0) << i;
    }
    Outcome outcome = Launch(1, [&](hd_group *group, hd_diag *said) {
        return RunOnRank(group, module.get(), expected, said);
    });
    EXPECT_EQ(outcome.status, HD_OK) << outcome.text << dtype;
}

TEST(Conformance, ANanIsTheMinimumAndComparesWithNothing)
{
    std::mt19937 random(Seed());

    for (const char *dtype : kFloats)
        ComparesNans(dtype, random);
}

// Results so large that a driver may have each rank reduce a part of them, in
// parts that are not alike, and in place; on one stream and on two.
TEST(Conformance, LargeReductions)
{
    const std::string head = "mesh tp=8 streams 1\n"
                             "inout %x : $[size tp@tp, 200003] shared\n"
                             "out %y : $[200003]\n";

    Conforms(head + "{ %y = all_reduce %x[tp] max\n"
                    "  %x[tp] = all_reduce %x[tp] }",
             "f64");
    Conforms(head + "{ %y = all_reduce %x[tp] max\n"
                    "  fork on stream 0 { %x[tp] = all_reduce %x[tp] } join }",
             "f64");
}

TEST(Conformance, Broadcast)
{
    for (const char *dtype : {"f32", "bf16", "u8"}) {
        ConformsOnAllRanks("mesh tp=2\nin %x : $[size tp@tp, 9]\n"
                           "out %y : $[size tp, 9] shared\n"
                           "{ for r in 0..size tp { if tp == r {\n"
                           "    %y[r] = broadcast %x[tp] root r\n"
                           "} else {\n"
                           "    %y[r] = broadcast root r\n"
                           "} } }",
                           dtype);
    }
}

TEST(Conformance, CollectivesOfTwoAxes)
{
    for (int rows : {1, 2, 4}) {
        Conforms("mesh dp=2, tp=2\n"
                 "in %x : f32[size dp@dp, size tp@tp, 6] shared\n"
                 "out %y : f32[size dp@dp, size tp, 6] shared\n"
                 "out %z : f32[size tp@tp, 6]\n"
                 "{ %y[dp] = all_gather@tp %x[dp, tp]\n"
                 "  %z[tp] = all_reduce@dp %x[dp, tp] }",
                 "f32", {{"dp", rows}});
    }
}

} // namespace
