// What a session on cuda tells of its choices.
#include <gtest/gtest.h>

#include <heddle/environment.h>

#include "tests/cuda/way.h"
#include "tests/unit/ranks.h"

namespace
{

void Append(void *context, hd_severity severity, const char *text)
{
    std::string *all = static_cast<std::string *>(context);

    *all += severity == HD_SEVERITY_WARNING ? "warning: " : "note: ";
    *all += text;
    *all += "\n";
}

bool Says(const std::string &all, const char *words)
{
    if (all.find(words) != std::string::npos)
        return true;
    fprintf(stderr, "not told: %s\nbut: %s", words, all.c_str());
    return false;
}

TEST(CudaLog, TellsTransportsLibrariesAndTheCache)
{
    Program program(kEverything);
    auto body = [&](Rank &rank) {
        std::string all;

        HD_TRY(hd_set("HEDDLE_CACHE_DIR", "off", rank.diag));
        hd_set_log(Append, &all);
        {
            Session session;

            HD_TRY(session.Open(rank, program, CudaOptions()));
        }
        hd_set_log(nullptr, nullptr);
        std::string mine = "note: rank " + std::to_string(rank.rank) +
                           ": transfers of 'everything' go by tp=copy";
        RANK_EXPECT(Says(all, mine.c_str()));
        RANK_EXPECT(Says(all, "warning: kernels and tuned plans are not kept "
                              "on disk, but made anew by each session: "
                              "HEDDLE_CACHE_DIR is 'off'"));
        RANK_EXPECT(Says(all, "note: the CUDA driver "));
        RANK_EXPECT(Says(all, "note: cuBLASLt "));
        return HD_OK;
    };

    AllAreRight(RunRanks(2, body));
}

TEST(CudaLog, TellsWhyTransfersGoByNccl)
{
    Program program(kEverything);
    auto body = [&](Rank &rank) {
        std::string all;

        hd_set_log(Append, &all);
        {
            Session session;

            HD_TRY(session.Open(rank, program, CudaOptions()));
        }
        hd_set_log(nullptr, nullptr);
        RANK_EXPECT(Says(all, "go by tp=nccl"));
        RANK_EXPECT(Says(all, "axis tp is between hosts (rank 0 on left, rank "
                              "1 on right), where nccl alone goes"));
        return HD_OK;
    };

    AllAreRight(RunRanks(2, body, {"left", "right"}));
}

} // namespace
