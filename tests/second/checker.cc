#include "tests/second/checker.h"
#include "tests/info.h"

namespace second
{

namespace
{

const std::set<std::string> kCodes[NRULES] = {
    {"HD0601", "HD0603", "HD0604", "HD0605", "HD0606", "HD0607", "HD0608",
     "HD0609", "HD0307"},
    {"HD0701", "HD0702", "HD0703", "HD0704", "HD0705"},
    {"HD0706"},
    {"HD0707"},
    {"HD0801", "HD0802"},
    {"HD0803"},
    {"HD0804"},
    {"HD0806"},
    {"HD0807"},
    {"HD0809"}};

} // namespace

Checked::Checked(const std::string &program)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = nullptr;
    hd_message message = HD_EMPTY(hd_message);
    char *printed = nullptr;

    status = hd_parse("t.hd", program.data(), program.size(), nullptr, 0, diag,
                      &module);
    parsed = status == HD_OK && module_info(module).stage == HD_STAGE_HOST;
    if (parsed) {
        if (hd_print(module, &printed) == HD_OK)
            text = printed;
        status = hd_check(module, nullptr, diag);
    }
    for (size_t i = 0; hd_diag_message(diag, i, &message); i++)
        if (message.severity == HD_SEVERITY_ERROR)
            codes.insert(message.code);
    said = hd_diag_text(diag);
    hd_free(printed);
    hd_module_destroy(module);
    hd_diag_destroy(diag);
}

Compared::Compared(const std::string &program, const Schedules &schedules)
    : checked(program)
{
    if (checked.parsed)
        verdict = Judge(Parse(checked.text), schedules);
}

// Both must find the program right, or both wrong; and where the oracle knows
// of one mistake alone, the checker must name that one.
std::string Compared::Disagreement() const
{
    if (!checked.parsed)
        return "";
    if (!verdict.inconsistent.empty())
        return "the oracle contradicts itself: " + verdict.inconsistent;
    bool named = verdict.broken.size() != 1;
    if (!named)
        for (const std::string &code : kCodes[verdict.broken.begin()->first])
            named = named || checked.codes.count(code);
    bool refused = checked.status == HD_ERROR_INVALID;
    if (verdict.launch == Launches::UNKNOWN &&
        checked.codes == kCodes[DEADLOCK])
        return "";
    if (refused != verdict.Clean() && (refused || checked.status == HD_OK) &&
        (named || !refused))
        return "";
    return "oracle: " + verdict.Text() +
           "\nchecker: " + (checked.status == HD_OK ? "fine" : checked.said);
}

} // namespace second
