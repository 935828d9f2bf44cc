// Programs as JSON, as the library writes them. That this is what the schema
// allows, and says what the text does, tests/dump/check.py sees.
#include <heddle/simulate.h>

#include "tests/unit/program.h"

namespace
{

const char kHost[] =
    R"(host program h param k = 4 param m in 2..8 param n in 1..64 mesh tp=2
streams 1 in %x : f32[2 * m, k] inout %y : f32[2, k]
temp %g : f32[k] shared {
if tp == 0 { fork on stream 0 { send %y[0] to tp + 1 } join } else if n == 7 {
let i = 1 - tp group { %g = recv from i } }
else { %y[0] = relu %y[1] } %y = scale %y by 2 })";

// What both begin with, but for the version and the stage.
const char kHead[] =
    R"(,"ranks":2,"streams":1,"mesh":[{"name":"tp","size":2,"stride":1}],"params":[{"name":"k","value":5},{"name":"n","value":7}],"sizes":[{"name":"m","low":2,"high":8}],
"buffers":[
 {"name":"x","role":"in","dtype":"f32","dims":[{"extent":16,"size":"m","times":2,"text":"2 * m"},{"extent":5,"text":"5"}],"argument":0,"local":[16,5],"local_bytes":320,"line":6},
 {"name":"y","role":"inout","dtype":"f32","dims":[{"extent":2,"text":"2"},{"extent":5,"text":"5"}],"argument":1,"local":[2,5],"local_bytes":40,"line":7},
 {"name":"g","role":"temp","dtype":"f32","dims":[{"extent":5,"text":"5"}],"shared":true,"line":8}])";

const char kBody[] = R"(,"body":[
 {"kind":"if","condition":{"text":"tp == 0","tree":["==","tp",0]},"line":10,"body":[
  {"kind":"op","results":[],"op":"fork","family":"sync","operands":[],"keys":{},"line":11},
  {"kind":"on","stream":0,"line":12,"body":[
   {"kind":"op","results":[],"op":"send","family":"move","axis":"tp","operands":[{"buffer":"y","index":[0],"text":"%y[0]"}],"keys":{"to":{"text":"tp + 1","tree":["+","tp",1]}},"line":13}]},
  {"kind":"op","results":[],"op":"join","family":"sync","operands":[],"keys":{},"line":15}],"otherwise":[
  {"kind":"if","condition":1,"line":16,"body":[
   {"kind":"let","name":"i","value":{"text":"1 - tp","tree":["-",1,"tp"]},"line":17},
   {"kind":"group","line":18,"body":[
    {"kind":"op","results":[{"buffer":"g","index":[],"text":"%g"}],"op":"recv","family":"move","axis":"tp","operands":[],"keys":{"from":{"text":"i","tree":"i"}},"line":19}]}],"otherwise":[
   {"kind":"op","results":[{"buffer":"y","index":[0],"text":"%y[0]"}],"op":"relu","family":"map","operands":[{"buffer":"y","index":[1],"text":"%y[1]"}],"keys":{},"line":22}]}]},
 {"kind":"op","results":[{"buffer":"y","index":[],"text":"%y"}],"op":"scale","family":"map","operands":[{"buffer":"y","index":[],"text":"%y"}],"keys":{"by":2.0},"line":24}]}
)";

const char kSteps[] = R"(,
"steps":[
 {"rank":1,"steps":[
  {"step":0,"stream":-1,"results":[{"buffer":"g","index":[],"text":"%g"}],"op":"recv","family":"move","axis":"tp","operands":[],"keys":{"from":0},"peer":0},
  {"step":1,"stream":-1,"results":[{"buffer":"y","index":[],"text":"%y"}],"op":"scale","family":"map","operands":[{"buffer":"y","index":[],"text":"%y"}],"keys":{"by":2}}]}]}
)";

std::string Head(const std::string &stage)
{
    return "{\"format\":" + std::to_string(HD_FORMAT) +
           ",\"name\":\"h\",\"stage\":\"" + stage + "\"" + kHead;
}

std::string Json(const hd_module *module)
{
    char *text = nullptr;

    EXPECT_EQ(hd_print_json(module, &text), HD_OK);
    std::string result = text == nullptr ? "" : text;
    hd_free(text);
    return result;
}

std::string StepsJson(const Program &p, int rank)
{
    char *text = nullptr;

    EXPECT_EQ(hd_print_steps_json(p.module, rank, p.diag, &text), HD_OK)
        << p.Said();
    std::string result = text == nullptr ? "" : text;
    hd_free(text);
    return result;
}

struct Host : Program {
    Host() : Program(kHost, {{"k", 5}, {"n", 7}})
    {
        EXPECT_EQ(status, HD_OK) << Said();
    }
};

} // namespace

TEST(Json, HasEachStatementWithItsLineInTheText)
{
    Host p;

    EXPECT_EQ(Json(p.module), Head("host") + kBody) << p.Print();
}

TEST(Json, OfStepsIsOfOneRank)
{
    Host p;

    EXPECT_EQ(StepsJson(p, 1), Head("steps") + kSteps);
}

TEST(Json, OfACloneHasItsParameters)
{
    Host p;
    hd_module *clone = nullptr;

    ASSERT_EQ(hd_module_clone(p.module, p.diag, &clone), HD_OK);
    std::string want = Json(p.module);
    EXPECT_NE(clone->param, p.module->param);
    EXPECT_NE(clone->param[0].name, p.module->param[0].name);
    hd_module_destroy(p.module);
    p.module = nullptr;
    EXPECT_EQ(Json(clone), want);
    hd_module_destroy(clone);
}

// Its text is a difference.
TEST(Json, HasTheLeastNumberAsAnExpression)
{
    Program p("tensor program t in %q : f32[1, 2, 4] in %k : f32[1, 2, 4]"
              " in %v : f32[1, 2, 4] out %o : f32[1, 2, 4] out %l : f32[1, 2]"
              " { %o, %l = attention %q, %k, %v"
              " causal -9223372036854775807 - 1 }");

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_NE(
        Json(p.module).find(R"("causal":{"text":"-9223372036854775807 - 1",)"
                            R"("tree":["-",-9223372036854775807,1]})"),
        std::string::npos)
        << Json(p.module);
}

TEST(Json, OfStepsThatDoNotWalkIsNotGiven)
{
    Program p("host program h mesh tp=2 inout %x : f32[2] "
              "{ %x[tp * 2] = relu %x[0] }");
    char *text = nullptr;

    ASSERT_EQ(p.status, HD_OK) << p.Said();
    EXPECT_EQ(hd_print_steps_json(p.module, 1, p.diag, &text),
              HD_ERROR_INVALID);
    EXPECT_EQ(text, nullptr);
    EXPECT_EQ(hd_diag_errors(p.diag), 1u) << p.Said();
}
