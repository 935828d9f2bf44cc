// The builder: what is built is what a text would have been, and messages have
// the cookies of what they are about.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <heddle/build.h>
#include <heddle/call.h>
#include <map>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <heddle/verify.h>

#include "ir/module.h"
#include "tests/device/arguments.h"
#include "tests/seed.h"
#include "tests/unit/generated.h"
#include "tests/unit/program.h"

namespace
{
using Texts = std::vector<std::string>;

struct BuilderDeleter {
    void operator()(hd_builder *builder) const
    {
        hd_builder_destroy(builder);
    }
};
using Builder = std::unique_ptr<hd_builder, BuilderDeleter>;

Builder Create(const char *name = "p", hd_stage stage = HD_STAGE_TENSOR)
{
    hd_builder *builder = nullptr;

    EXPECT_EQ(hd_builder_create(name, stage, nullptr, &builder), HD_OK);
    return Builder(builder);
}

struct Finished {
    hd_status status;
    Module module;
    std::string said;
    std::vector<uint64_t> cookies; // of the messages
};

std::vector<uint64_t> Cookies(const hd_diag *diag)
{
    std::vector<uint64_t> cookies;
    hd_message message = HD_EMPTY(hd_message);

    for (size_t i = 0; hd_diag_message(diag, i, &message); i++)
        cookies.push_back(message.cookie);
    return cookies;
}

Finished Finish(hd_builder *builder)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;
    hd_status status = hd_builder_finish(builder, diag, &module);
    Finished finished = {status, Module(module), hd_diag_text(diag),
                         Cookies(diag)};

    hd_diag_destroy(diag);
    return finished;
}

std::vector<const char *> Pointers(const Texts &texts)
{
    std::vector<const char *> pointers;

    for (const std::string &text : texts)
        pointers.push_back(text.c_str());
    return pointers;
}

void Op(hd_builder *builder, const std::string &name, const std::string &axis,
        const Texts &results, const Texts &operands, const Texts &attributes,
        uint64_t cookie, const std::string &callee = "")
{
    auto r = Pointers(results), o = Pointers(operands),
         a = Pointers(attributes);
    hd_build_op op = {};

    op.size = sizeof op;
    op.op = name.c_str();
    op.axis = axis.empty() ? nullptr : axis.c_str();
    op.callee = callee.empty() ? nullptr : callee.c_str();
    op.results = r.data();
    op.nresults = r.size();
    op.operands = o.data();
    op.noperands = o.size();
    op.attributes = a.data();
    op.nattributes = a.size();
    hd_builder_op(builder, &op, cookie);
}

void Buffer(hd_builder *builder, hd_role role, const char *name,
            const std::vector<int64_t> &extents, uint64_t cookie,
            const char *mark = nullptr, hd_dtype dtype = HD_DTYPE_F32)
{
    hd_build_buffer buffer = {};

    buffer.size = sizeof buffer;
    buffer.role = role;
    buffer.dtype = dtype;
    buffer.name = name;
    for (int64_t extent : extents)
        buffer.extent[buffer.ndims++] = extent;
    buffer.mark[0] = mark;
    hd_builder_buffer(builder, &buffer, cookie);
}

// ------------------------------------------------ from a print, line by line

// "a, b[0, 1], c" at the commas outside of brackets.
Texts Split(const std::string &text)
{
    Texts parts;
    std::string part;
    int depth = 0;

    for (char c : text) {
        depth += c == '[' ? 1 : c == ']' ? -1 : 0;
        if (c == ',' && depth == 0) {
            parts.push_back(part);
            part.clear();
        } else if (c != ' ' || !part.empty()) {
            part += c;
        }
    }
    if (!part.empty())
        parts.push_back(part);
    return parts;
}

Texts Views(const std::string &text)
{
    Texts views = Split(text);

    for (std::string &view : views)
        view.erase(0, 1); // %
    return views;
}

const std::map<std::string, hd_role> kRoles = {{"in", HD_ROLE_IN},
                                               {"out", HD_ROLE_OUT},
                                               {"inout", HD_ROLE_INOUT},
                                               {"temp", HD_ROLE_TEMP}};

hd_dtype DtypeOf(const std::string &text)
{
    int dtype = 0;

    while (text != hd_dtype_text(static_cast<hd_dtype>(dtype)))
        dtype++;
    return static_cast<hd_dtype>(dtype);
}

void AddDims(hd_build_buffer *buffer, const std::string &dims, Texts *keep)
{
    static const std::regex kDim(R"(([^@]*?)(?:@(\w+))?(?: by %(\w+))?)");
    auto hold = [&](const std::ssub_match &text) {
        keep->push_back(text.str());
        return text.matched ? keep->back().c_str() : nullptr;
    };

    for (const std::string &dim : Split(dims)) {
        int i = buffer->ndims++;
        std::smatch m;

        ASSERT_TRUE(std::regex_match(dim, m, kDim)) << dim;
        if (m[1].str().find_first_not_of("0123456789") == std::string::npos)
            buffer->extent[i] = std::stoll(m[1].str());
        else
            buffer->length[i] = hold(m[1]);
        buffer->mark[i] = hold(m[2]);
        buffer->by[i] = hold(m[3]);
    }
}

void AddBuffer(hd_builder *b, const std::string &line, uint64_t cookie)
{
    static const std::regex kBuffer(
        R"((\w+) +%(\w+) *: (\w*)(?:\[(.*)\])?( shared)?(?: of %(\w+))?(?: on (.*))?)");
    hd_build_buffer buffer = {};
    std::smatch m;
    Texts keep;

    keep.reserve(64); // so that pointers into it stay
    ASSERT_TRUE(std::regex_match(line, m, kBuffer)) << line;
    std::string name = m[2], of = m[6], on = m[7];
    buffer.size = sizeof buffer;
    buffer.role = kRoles.at(m[1]);
    buffer.untyped = m[3].length() == 0;
    buffer.dtype = buffer.untyped ? HD_DTYPE_F32 : DtypeOf(m[3]);
    buffer.unplaced = !m[4].matched;
    buffer.name = name.c_str();
    AddDims(&buffer, m[4], &keep);
    buffer.shared = m[5].matched;
    buffer.of = m[6].matched ? of.c_str() : nullptr;
    buffer.on = m[7].matched ? on.c_str() : nullptr;
    hd_builder_buffer(b, &buffer, cookie);
}

void AddOp(hd_builder *b, const std::string &line, uint64_t cookie)
{
    static const std::regex kOp(
        R"re((?:(%.*?) = )?(\w+)(?:@(\w+))?(?: "(\w+)")?((?:,? %\w+(?:\[[^\]]*\])?)*)(?: (.+))?)re");
    std::smatch m;

    ASSERT_TRUE(std::regex_match(line, m, kOp)) << line;
    Op(b, m[2], m[3], Views(m[1]), Views(m[5]),
       m[6].matched ? Texts{m[6]} : Texts{}, cookie, m[4]);
}

void AddStatement(hd_builder *b, std::string line, uint64_t cookie)
{
    static const std::regex kFor(R"(for (\w+) in (.*?)\.\.(.*) \{)");
    std::smatch m;

    line.erase(0, line.find_first_not_of(' '));
    if (line[0] == '}') {
        hd_builder_end(b, cookie);
        line.erase(0, line.find_first_not_of("} "));
        if (line[0] == '}')
            return;
    }
    if (line.empty() || line == "}")
        return;
    if (std::regex_match(line, m, kFor))
        hd_builder_for(b, m[1].str().c_str(), m[2].str().c_str(),
                       m[3].str().c_str(), cookie);
    else if (line.back() == '{')
        hd_builder_block(b, line.substr(0, line.size() - 2).c_str(), cookie);
    else if (line.rfind("let ", 0) == 0)
        hd_builder_line(b, line.c_str(), cookie);
    else
        AddOp(b, line, cookie);
}

void AddHeader(hd_builder *b, const std::string &line, uint64_t cookie)
{
    static const std::regex kSize(R"(param (\w+) in (\d+)\.\.(\d+))");
    static const std::regex kAxis(R"((\w+)=(\d+))");
    std::smatch m;

    if (std::regex_match(line, m, kSize))
        hd_builder_size(b, m[1].str().c_str(), std::stoll(m[2]),
                        std::stoll(m[3]), cookie);
    else if (line.rfind("streams ", 0) == 0)
        hd_builder_streams(b, std::stoll(line.substr(8)), cookie);
    else if (line.rfind("mesh ", 0) == 0)
        for (std::sregex_iterator i(line.begin(), line.end(), kAxis), end;
             i != end; ++i)
            hd_builder_axis(b, (*i)[1].str().c_str(), std::stoll((*i)[2]),
                            cookie);
    else
        AddBuffer(b, line, cookie);
}

std::string Print(const hd_module *module)
{
    char *text = nullptr;

    if (module == nullptr || hd_print(module, &text) != HD_OK)
        return "";
    std::string result = text;
    hd_free(text);
    return result;
}

// What the builder makes of a canonical text; line i has the cookie 1000 + i.
Finished Rebuild(const std::string &printed, const hd_module *module)
{
    Builder builder = Create(module->name, module->stage);
    std::istringstream lines(printed);
    std::string line;
    bool body = false;

    for (uint64_t i = 1; std::getline(lines, line); i++) {
        if (line == "{" || i <= 2)
            body |= line == "{";
        else if (body && line != "}")
            AddStatement(builder.get(), line, 1000 + i);
        else if (!body)
            AddHeader(builder.get(), line, 1000 + i);
    }
    return Finish(builder.get());
}

// Its print, rebuilt and printed again, is the same.
void ExpectSame(const std::string &text, bool lower)
{
    hd_diag *diag = hd_diag_create();
    hd_lower_options options = RingDefaults();
    hd_module *parsed = nullptr;

    ASSERT_EQ(
        hd_parse("text", text.data(), text.size(), nullptr, 0, diag, &parsed),
        HD_OK)
        << text << hd_diag_text(diag);
    Module module(parsed);
    // Some programs do not fit the pipeline that is the usual one.
    if (lower && hd_lower(parsed, &options, nullptr, nullptr, diag) != HD_OK) {
        hd_diag_destroy(diag);
        return;
    }
    hd_diag_destroy(diag);
    std::string want = Print(parsed);
    Finished built = Rebuild(want, parsed);
    ASSERT_EQ(built.status, HD_OK) << want << built.said;
    EXPECT_EQ(Print(built.module.get()), want);
}

} // namespace

TEST(Builder, BuildsWhatItsTextWouldBeOfRandomPrograms)
{
    uint64_t seed = Seed();

    for (uint64_t i = 0; i < 60; i++) {
        SCOPED_TRACE("seed " + std::to_string(seed + i));
        ExpectSame(Generate(seed + i, 10, false), i % 2 == 0);
    }
}

TEST(Builder, BuildsWhatItsTextWouldBeOfEveryExample)
{
    for (const auto &entry :
         std::filesystem::directory_iterator(HEDDLE_EXAMPLES)) {
        std::stringstream text;

        if (entry.path().extension() != ".hd")
            continue;
        SCOPED_TRACE(entry.path().string());
        text << std::ifstream(entry.path()).rdbuf();
        ExpectSame(text.str(), false);
        ExpectSame(text.str(), true);
    }
}

TEST(Builder, NamesTheFunctionOfACall)
{
    Builder b = Create();
    const char *result = "y", *operand = "x";
    hd_build_op op = {};

    op.size = sizeof op;
    op.op = "call";
    op.callee = "gelu_fused";
    op.results = &result;
    op.operands = &operand;
    op.nresults = op.noperands = 1;
    Buffer(b.get(), HD_ROLE_IN, "x", {4}, 1);
    Buffer(b.get(), HD_ROLE_OUT, "y", {4}, 2);
    hd_builder_op(b.get(), &op, 3);
    Finished done = Finish(b.get());
    ASSERT_EQ(done.status, HD_OK) << done.said;
    EXPECT_NE(Print(done.module.get()).find("%y = call \"gelu_fused\" %x"),
              std::string::npos);
    hd_module *clone = nullptr;
    ASSERT_EQ(hd_module_clone(done.module.get(), nullptr, &clone), HD_OK);
    done.module.reset(); // with all names
    EXPECT_NE(Print(clone).find("%y = call \"gelu_fused\" %x"),
              std::string::npos);
    hd_module_destroy(clone);
}

TEST(Builder, TakesParametersAndTextsInThePlaceOfExtents)
{
    Builder b = Create();
    hd_build_buffer x = {};

    x.size = sizeof x;
    x.name = "x";
    x.dtype = HD_DTYPE_F32;
    x.ndims = 1;
    x.length[0] = "2 * n";
    hd_builder_buffer(b.get(), &x, 0); // before the parameter
    x.name = "y";
    x.role = HD_ROLE_OUT;
    hd_builder_buffer(b.get(), &x, 0);
    hd_builder_param(b.get(), "n", 21, 0);
    hd_builder_line(b.get(), "%y = relu %x", 0);
    Finished done = Finish(b.get());
    ASSERT_EQ(done.status, HD_OK) << done.said;
    EXPECT_NE(Print(done.module.get()).find("%x : f32[42]"), std::string::npos);
}

TEST(Builder, LeavesOpenWhatStatementsSayOfTemps)
{
    ExpectSame("heddle 2 tensor program open mesh dp=2, tp=4 "
               "in %x : bf16[8@dp, 16] in %w : bf16[12@tp, 16] "
               "temp %h : f32 temp %e : [:, :@tp] temp %g : f32[:@dp, :] temp "
               "%k : f32 "
               "out %y : f32[8@dp, 2] { %h = matmul %x, %w tb %d = copy %h "
               "%e = relu %d %f = neg %e %g = copy %f "
               "%i = reshape %g to [8, 2, 6] %j = iota dim 0 to [8, 2, 6] "
               "%k = copy %j %l = mul %i, %k %y = sum %l dim 2 }",
               false);
}

TEST(Builder, RefusesDeclarationsOfNothing)
{
    hd_build_buffer x = {};

    x.size = sizeof x;
    x.role = HD_ROLE_TEMP;
    x.name = "x";
    x.unplaced = true;
    x.ndims = 1;
    x.extent[0] = 4;
    for (bool untyped : {false, true}) {
        Builder b = Create();
        x.untyped = untyped;
        hd_builder_buffer(b.get(), &x, 7);
        Finished done = Finish(b.get());
        EXPECT_EQ(done.status, HD_ERROR_ARGUMENT);
        EXPECT_NE(done.said.find(untyped ? "nothing" : "'ndims'"),
                  std::string::npos)
            << done.said;
        x.ndims = 0;
    }
}

// ----------------------------------------------------------------- cookies

namespace
{
// A gather whose loop can be lowered, and a wrong op if `wrong` names one.
Builder Gather(std::mt19937_64 &random, const std::string &wrong,
               uint64_t *cookie)
{
    Builder b = Create("gather");

    *cookie = random() | 1;
    hd_builder_axis(b.get(), "tp", 3, random());
    Buffer(b.get(), HD_ROLE_IN, "a", {3, 4, 8}, random(), "tp");
    Buffer(b.get(), HD_ROLE_IN, "b", {8, 4}, random());
    Buffer(b.get(), HD_ROLE_OUT, "c", {3, 4, 4}, random(), "stream");
    Buffer(b.get(), HD_ROLE_TEMP, "ag", {3, 4, 8}, random(), "stream");
    Op(b.get(), "set", "", {"ag"}, {"a"}, {}, wrong == "set" ? *cookie : 7);
    Op(b.get(), "matmul", "", {"c"}, {"ag", wrong == "matmul" ? "no" : "b"}, {},
       wrong == "matmul" ? *cookie : 8);
    return b;
}
} // namespace

TEST(Builder, MessagesOfTheParserHaveTheCookieOfTheirLine)
{
    std::mt19937_64 random(Seed());
    uint64_t cookie;
    Builder b = Gather(random, "matmul", &cookie);
    Finished done = Finish(b.get());

    EXPECT_EQ(done.status, HD_ERROR_INVALID);
    ASSERT_EQ(done.cookies.size(), 1u) << done.said;
    EXPECT_EQ(done.cookies[0], cookie);
    EXPECT_EQ(done.module, nullptr);
    EXPECT_NE(done.said.find("gather:"), std::string::npos) << done.said;
    EXPECT_NE(done.said.find("unknown buffer '%no'"), std::string::npos);
}

TEST(Builder, AnExtentThatMayNotBeIsToldOfItsBuffer)
{
    for (int64_t extent : {int64_t(0), int64_t(-4), INT64_MIN}) {
        Builder b = Create();

        Buffer(b.get(), HD_ROLE_IN, "x", {4}, 1);
        Buffer(b.get(), HD_ROLE_OUT, "y", {extent}, 99);
        Op(b.get(), "relu", "", {"y"}, {"x"}, {}, 3);
        Finished done = Finish(b.get());
        EXPECT_EQ(done.status, HD_ERROR_INVALID) << extent;
        ASSERT_FALSE(done.cookies.empty());
        EXPECT_EQ(done.cookies[0], 99u) << done.said;
    }
}

// Of lowering and of the checker, of a clone too.
TEST(Builder, MessagesAboutWhatWasBuiltHaveCookies)
{
    std::mt19937_64 random(Seed());
    hd_diag *diag = hd_diag_create();
    hd_lower_options options = RingDefaults();
    hd_module *module = nullptr, *clone = nullptr;
    uint64_t cookie;
    Builder b = Gather(random, "matmul-", &cookie);

    // Chunks that do not divide 4 are lowering's to refuse.
    ASSERT_EQ(hd_builder_finish(b.get(), diag, &module), HD_OK)
        << hd_diag_text(diag);
    b.reset();
    ASSERT_EQ(hd_module_clone(module, diag, &clone), HD_OK);
    hd_module_destroy(module);
    options.chunks = 3;
    EXPECT_EQ(hd_lower(clone, &options, nullptr, nullptr, diag),
              HD_ERROR_INVALID);
    std::vector<uint64_t> cookies = Cookies(diag);
    ASSERT_FALSE(cookies.empty());
    EXPECT_TRUE(cookies[0] == 7 || cookies[0] == 8) << hd_diag_text(diag);
    hd_module_destroy(clone);
    hd_diag_destroy(diag);
}

TEST(Builder, FindingsOfTheCheckerHaveCookies)
{
    hd_diag *diag = hd_diag_create();
    Builder b = Create("stuck", HD_STAGE_HOST);

    hd_builder_axis(b.get(), "tp", 2, 1);
    Buffer(b.get(), HD_ROLE_IN, "x", {4}, 2);
    Buffer(b.get(), HD_ROLE_OUT, "y", {4}, 3);
    Op(b.get(), "copy", "", {"y"}, {"x"}, {}, 4);
    hd_builder_block(b.get(), "if tp == 0", 5);
    Op(b.get(), "send", "", {}, {"x"}, {"to 1"}, 6);
    hd_builder_end(b.get(), 7);
    hd_module *module = nullptr;
    ASSERT_EQ(hd_builder_finish(b.get(), diag, &module), HD_OK)
        << hd_diag_text(diag);
    EXPECT_EQ(hd_check(module, nullptr, diag), HD_ERROR_INVALID);
    ASSERT_FALSE(Cookies(diag).empty());
    EXPECT_EQ(Cookies(diag)[0], 6u) << hd_diag_text(diag);
    hd_module_destroy(module);
    hd_diag_destroy(diag);
}

// A builder makes no stage between, whose moves name dimensions.
TEST(Builder, AMoveOfAHostProgramThatNamesADimensionIsToldOfItsCookie)
{
    Builder b = Create("p", HD_STAGE_HOST);

    hd_builder_axis(b.get(), "tp", 2, 1);
    Buffer(b.get(), HD_ROLE_IN, "x", {3, 4}, 2);
    Buffer(b.get(), HD_ROLE_OUT, "y", {3, 8}, 3);
    Op(b.get(), "all_gather", "", {"y"}, {"x"}, {"dim 1"}, 4);
    Finished done = Finish(b.get());
    EXPECT_EQ(done.status, HD_ERROR_INVALID);
    EXPECT_NE(done.said.find("error[HD0302]: all_gather takes the key dim "
                             "until transfers have their pipelines"),
              std::string::npos)
        << done.said;
    EXPECT_EQ(done.cookies, std::vector<uint64_t>{4}) << done.said;
}

// Rows of groups that are more than there are, which a run alone can find.
TEST(Builder, FailuresOfRunsHaveCookies)
{
    hd_diag *diag = hd_diag_create();
    hd_oob oob = {sizeof oob, nullptr, 0, 1, nullptr};
    hd_group *group = nullptr;
    hd_module *module = nullptr;
    hd_session *session = nullptr;
    Builder b = Create("grouped", HD_STAGE_HOST);
    std::vector<float> x(32), w(96), y(32);
    int32_t n[2] = {3, 7};
    void *arguments[] = {x.data(), w.data(), n, y.data()};

    Buffer(b.get(), HD_ROLE_IN, "x", {4, 8}, 1);
    Buffer(b.get(), HD_ROLE_IN, "w", {2, 8, 6}, 2);
    Buffer(b.get(), HD_ROLE_IN, "n", {2}, 3, nullptr, HD_DTYPE_I32);
    Buffer(b.get(), HD_ROLE_OUT, "y", {4, 6}, 4);
    Op(b.get(), "matmul", "", {"y"}, {"x", "w"}, {"groups %n"}, 0xfeed);
    ASSERT_EQ(hd_builder_finish(b.get(), diag, &module), HD_OK)
        << hd_diag_text(diag);
    ASSERT_EQ(hd_group_create(&oob, 5, diag, &group), HD_OK);
    ASSERT_EQ(hd_session_create(group, module, nullptr, diag, &session), HD_OK)
        << hd_diag_text(diag);
    hd_status status = hd_session_run(session, arguments, 4, nullptr, diag);
    if (status == HD_OK)
        status = hd_session_finish(session, diag);
    EXPECT_EQ(status, HD_ERROR_ARGUMENT);
    ASSERT_FALSE(Cookies(diag).empty());
    EXPECT_EQ(Cookies(diag)[0], 0xfeedu) << hd_diag_text(diag);
    hd_session_destroy(session);
    hd_group_destroy(group);
    hd_module_destroy(module);
    hd_diag_destroy(diag);
}

hd_status Refuse(void *context, const hd_call_site *site)
{
    *static_cast<uint64_t *>(context) = site->cookie;
    return HD_ERROR_SYSTEM;
}

// A function that is not there, one that fails, and what it is told.
TEST(Builder, CallsHaveCookies)
{
    hd_diag *diag = hd_diag_create();
    hd_oob oob = {sizeof oob, nullptr, 0, 1, nullptr};
    hd_group *group = nullptr;
    hd_module *module = nullptr;
    hd_session *session = nullptr;
    Builder b = Create("calling", HD_STAGE_HOST);
    std::vector<float> x(32), y(32);
    void *arguments[] = {x.data(), y.data()};
    uint64_t told = 0;
    hd_call call = {sizeof call, "f", Refuse, &told};
    hd_call_info info = HD_EMPTY(hd_call_info);
    hd_session_options options = hd_session_defaults();

    Buffer(b.get(), HD_ROLE_IN, "x", {4, 8}, 1);
    Buffer(b.get(), HD_ROLE_OUT, "y", {4, 8}, 2);
    Op(b.get(), "call", "", {"y"}, {"x"}, {"over 1"}, 0xfeed, "f");
    ASSERT_EQ(hd_builder_finish(b.get(), diag, &module), HD_OK)
        << hd_diag_text(diag);
    ASSERT_TRUE(hd_module_call(module, 0, &info));
    EXPECT_EQ(info.cookie, 0xfeedu);
    ASSERT_EQ(hd_group_create(&oob, 5, diag, &group), HD_OK);
    EXPECT_EQ(hd_session_create(group, module, &options, diag, &session),
              HD_ERROR_ARGUMENT);
    EXPECT_EQ(Cookies(diag), std::vector<uint64_t>{0xfeed})
        << hd_diag_text(diag);
    hd_diag_clear(diag);
    options.calls = &call;
    options.ncalls = 1;
    ASSERT_EQ(hd_session_create(group, module, &options, diag, &session), HD_OK)
        << hd_diag_text(diag);
    hd_status status = hd_session_run(session, arguments, 2, nullptr, diag);
    if (status == HD_OK)
        status = hd_session_finish(session, diag);
    EXPECT_EQ(status, HD_ERROR_SYSTEM);
    ASSERT_FALSE(Cookies(diag).empty());
    EXPECT_EQ(Cookies(diag)[0], 0xfeedu) << hd_diag_text(diag);
    EXPECT_EQ(told, 0xfeedu);
    hd_session_destroy(session);
    hd_group_destroy(group);
    hd_module_destroy(module);
    hd_diag_destroy(diag);
}

TEST(Builder, AProgramFromATextHasNoCookies)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;

    EXPECT_EQ(hd_parse("t", "heddle 2\nx", 10, nullptr, 0, diag, &module),
              HD_ERROR_INVALID);
    EXPECT_EQ(Cookies(diag), std::vector<uint64_t>{0});
    hd_diag_destroy(diag);
}

// --------------------------------------------------------------- bad calls

TEST(Builder, SaysWhichCallWasGivenWhatItMayNotBe)
{
    struct Case {
        const char *want;
        std::function<void(hd_builder *)> call;
    } cases[] = {
        {"hd_builder_axis: name is NULL",
         [](hd_builder *b) { hd_builder_axis(b, nullptr, 2, 42); }},
        {"hd_builder_axis: name 'a b' is no name",
         [](hd_builder *b) { hd_builder_axis(b, "a b", 2, 42); }},
        {"hd_builder_param: name '' is no name",
         [](hd_builder *b) { hd_builder_param(b, "", 2, 42); }},
        {"hd_builder_size: name '9m' is no name",
         [](hd_builder *b) { hd_builder_size(b, "9m", 1, 2, 42); }},
        {"hd_builder_buffer: name '%x' is no name",
         [](hd_builder *b) { Buffer(b, HD_ROLE_IN, "%x", {4}, 42); }},
        {"hd_builder_buffer: buffer is NULL",
         [](hd_builder *b) { hd_builder_buffer(b, nullptr, 42); }},
        {"hd_builder_buffer: mark 't p' is no name",
         [](hd_builder *b) { Buffer(b, HD_ROLE_IN, "x", {4}, 42, "t p"); }},
        {"role or dtype of 'x' does not exist",
         [](hd_builder *b) {
             Buffer(b, static_cast<hd_role>(3 + HD_ROLE_IN + 1), "x", {4}, 42);
         }},
        {"hd_builder_op: op is NULL",
         [](hd_builder *b) { hd_builder_op(b, nullptr, 42); }},
        {"hd_builder_op: operand '%x' is no view",
         [](hd_builder *b) { Op(b, "relu", "", {"y"}, {"%x"}, {}, 42); }},
        {"hd_builder_op: result 'y z' is no view",
         [](hd_builder *b) { Op(b, "relu", "", {"y z"}, {"x"}, {}, 42); }},
        {"hd_builder_op: attribute '} {' has a brace",
         [](hd_builder *b) { Op(b, "relu", "", {"y"}, {"x"}, {"} {"}, 42); }},
        {"hd_builder_op: operand 'x[0 // ]' has a brace, a comment",
         [](hd_builder *b) { Op(b, "relu", "", {"y"}, {"x[0 // ]"}, {}, 42); }},
        {"hd_builder_op: operand is NULL",
         [](hd_builder *b) {
             hd_build_op op = {};
             op.size = sizeof op;
             op.op = "relu";
             op.noperands = 1;
             hd_builder_op(b, &op, 42);
         }},
        {"hd_builder_op: op has no size",
         [](hd_builder *b) {
             hd_build_op op = {};
             hd_builder_op(b, &op, 42);
         }},
        {"hd_builder_for: past is NULL",
         [](hd_builder *b) {
             hd_builder_for(b, "i", "0", nullptr, 42);
             hd_builder_end(b, 1);
         }},
        {"hd_builder_block: words 'group {?}' has a brace",
         [](hd_builder *b) {
             hd_builder_block(b, "group {\n}", 42);
             hd_builder_end(b, 1);
         }},
        {"hd_builder_line: text is NULL",
         [](hd_builder *b) { hd_builder_line(b, nullptr, 42); }},
        {"hd_builder_end: there is no block to end",
         [](hd_builder *b) { hd_builder_end(b, 42); }},
        {"hd_builder_finish: this block has no hd_builder_end",
         [](hd_builder *b) {
             hd_builder_block(b, "group", 1);
             hd_builder_for(b, "i", "0", "4", 42);
         }},
    };

    for (const Case &c : cases) {
        Builder b = Create("p", HD_STAGE_HOST);

        Buffer(b.get(), HD_ROLE_OUT, "y", {4}, 2);
        c.call(b.get());
        Finished done = Finish(b.get());
        EXPECT_EQ(done.status, HD_ERROR_ARGUMENT) << c.want;
        EXPECT_NE(done.said.find(c.want), std::string::npos)
            << "want: " << c.want << "\ngot:  " << done.said;
        ASSERT_EQ(done.cookies.size(), 1u) << done.said;
        EXPECT_EQ(done.cookies[0], 42u) << done.said;
    }
}

TEST(Builder, TellsOfEveryBadCallAtOnce)
{
    Builder b = Create();

    hd_builder_axis(b.get(), "", 2, 5);
    hd_builder_param(b.get(), nullptr, 2, 6);
    Finished done = Finish(b.get());
    EXPECT_EQ(done.status, HD_ERROR_ARGUMENT);
    EXPECT_EQ(done.cookies, (std::vector<uint64_t>{5, 6})) << done.said;
}

TEST(Builder, IsFinishedOnce)
{
    std::mt19937_64 random(Seed());
    uint64_t cookie;
    Builder b = Gather(random, "", &cookie);

    EXPECT_EQ(Finish(b.get()).status, HD_OK);
    hd_builder_line(b.get(), "%c = copy %c", 1);
    Finished again = Finish(b.get());
    EXPECT_EQ(again.status, HD_ERROR_ARGUMENT);
    EXPECT_NE(again.said.find("has been finished"), std::string::npos);
}

TEST(Builder, IsNotMadeForAStageBetweenOrANameThatIsNone)
{
    hd_builder *builder = nullptr;

    EXPECT_EQ(hd_builder_create("p", HD_STAGE_STREAM, nullptr, &builder),
              HD_ERROR_ARGUMENT);
    EXPECT_EQ(hd_builder_create(nullptr, HD_STAGE_HOST, nullptr, &builder),
              HD_ERROR_ARGUMENT);
    EXPECT_EQ(hd_builder_create("p", HD_STAGE_HOST, nullptr, nullptr),
              HD_ERROR_ARGUMENT);
    EXPECT_EQ(builder, nullptr);
    Builder b = Create("a program");
    EXPECT_EQ(Finish(b.get()).status, HD_ERROR_ARGUMENT);
}

// A struct from a newer caller says what this library would not do.
TEST(Builder, RefusesWhatItDoesNotKnow)
{
    struct {
        hd_build_op op;
        uint64_t news;
    } newer = {};

    for (uint64_t news : {uint64_t(0), uint64_t(1)}) {
        Builder b = Create("p", HD_STAGE_HOST);

        Buffer(b.get(), HD_ROLE_OUT, "y", {4}, 2);
        newer.op.size = sizeof newer;
        newer.op.op = "join";
        newer.news = news;
        hd_builder_op(b.get(), &newer.op, 9);
        Finished done = Finish(b.get());
        EXPECT_EQ(done.status == HD_ERROR_ARGUMENT, news != 0) << done.said;
    }
}
