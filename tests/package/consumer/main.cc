// Two ranks gather each other's row and scale it, in C++.
#include <heddle/heddle.h>
#include <heddle/launch.h>

#include <cstdio>
#include <cstring>
#include <memory>

namespace
{

struct Destroy {
    void operator()(hd_module *module) const
    {
        hd_module_destroy(module);
    }
    void operator()(hd_diag *diag) const
    {
        hd_diag_destroy(diag);
    }
    void operator()(hd_session *session) const
    {
        hd_session_destroy(session);
    }
};

hd_status RunRank(void *context, hd_group *group)
{
    float mine[2] = {1, 2}, all[4] = {};
    void *arguments[] = {mine, all};
    hd_session *made = nullptr;
    hd_status status =
        hd_session_create(group, static_cast<const hd_module *>(context),
                          nullptr, nullptr, &made);
    std::unique_ptr<hd_session, Destroy> session(made);

    if (status == HD_OK)
        status = hd_session_run(made, arguments, 2, nullptr, nullptr);
    if (status == HD_OK)
        status = hd_session_finish(made, nullptr);
    if (status == HD_OK && hd_group_rank(group) == 0)
        std::printf("%g %g %g %g\n", all[0], all[1], all[2], all[3]);
    std::fflush(stdout);
    return status;
}

} // namespace

int main()
{
    static const char text[] =
        "heddle 2 tensor program doubled mesh tp=2 "
        "in %x : f32[2@tp, 2] temp %all : f32[2@stream, 2] "
        "out %y : f32[2@stream, 2] "
        "{ %all = set %x %y = scale %all by 2.0 }";
    std::unique_ptr<hd_diag, Destroy> diag(hd_diag_create());
    hd_module *made = nullptr;
    hd_status status = hd_parse("doubled", text, std::strlen(text), nullptr, 0,
                                diag.get(), &made);
    std::unique_ptr<hd_module, Destroy> module(made);

    if (status == HD_OK)
        status = hd_lower(made, nullptr, nullptr, nullptr, diag.get());
    if (status == HD_OK) {
        hd_program_info info = HD_EMPTY(hd_program_info);

        hd_module_info(made, &info);
        status = hd_launch(info.ranks, 30, 0, RunRank, made, diag.get());
    }
    if (status != HD_OK)
        std::fputs(hd_diag_text(diag.get()), stderr);
    return status != HD_OK;
}
