// Arguments in memory of the group, at one place in every run.
#ifndef HD_TESTS_CUDA_PLACES_H
#define HD_TESTS_CUDA_PLACES_H

#include <heddle/memory.h>

#include "tests/cuda/program.h"

// Memory of the group for each argument.
class Places
{
  public:
    explicit Places(Rank &rank) : rank_(rank)
    {
    }
    Places(const Places &) = delete;
    Places &operator=(const Places &) = delete;
    ~Places()
    {
        for (void *at : address)
            hd_group_free(rank_.group, at);
    }
    hd_status Take(const Program &program)
    {
        hd_argument info = HD_EMPTY(hd_argument);

        for (size_t i = 0; hd_module_argument(program.Module(), i, &info);
             i++) {
            void *at = nullptr;

            HD_TRY(hd_group_alloc(rank_.group, "cuda", info.local_bytes,
                                  rank_.diag, &at));
            address.push_back(at);
        }
        return HD_OK;
    }

    std::vector<void *> address;

  private:
    Rank &rank_;
};

// Runs on random inputs there, and compares what they leave. `number` becomes
// the copies that were put into streams meanwhile.
inline hd_status RunThere(Rank &rank, const Program &program,
                          hd_session *session,
                          const std::vector<void *> &address, int runs)
{
    Shards shards(session);
    auto *calls = Extra<decltype(fake_cuda_calls)>("fake_cuda_calls");
    long before = 0;

    HD_TRY(
        shards.Put(program.Inputs(), program.Module(), rank.rank, rank.diag));
    for (size_t i = 0; i < address.size(); i++)
        HD_TRY(hd_session_copy(session, address[i], shards.Bytes(i).data(),
                               shards.Bytes(i).size(), rank.diag));
    before = calls("cuMemcpyAsync");
    for (int run = 0; run < runs; run++)
        HD_TRY(hd_session_run(session, address.data(), address.size(), nullptr,
                              rank.diag));
    HD_TRY(hd_session_finish(session, rank.diag));
    rank.answer->number = calls("cuMemcpyAsync") - before;
    for (size_t i = 0; i < address.size(); i++)
        HD_TRY(hd_session_copy(session, shards.Bytes(i).data(), address[i],
                               shards.Bytes(i).size(), rank.diag));
    return program.Compare(shards, rank.rank);
}

#endif
