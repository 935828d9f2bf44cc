// The ways in which a run's transfers go: by each transport, issued or replayed
// as a graph, or counted by the device so that the caller may capture it.
#ifndef HD_TESTS_CUDA_WAY_H
#define HD_TESTS_CUDA_WAY_H

#include <gtest/gtest.h>

#include "tests/cuda/program.h"

struct Way {
    const char *name;
    hd_transport transport;
    bool graph;
    bool capturable = false;

    // Whether nobody knows which of NCCL's steps waits.
    bool IsUnnamed() const
    {
        return transport == HD_TRANSPORT_NCCL && (graph || capturable);
    }
    friend std::ostream &operator<<(std::ostream &out, const Way &way)
    {
        return out << way.name;
    }
};

const Way kWays[] = {{"copy", HD_TRANSPORT_COPY, false},
                     {"copy_graph", HD_TRANSPORT_COPY, true},
                     {"sm", HD_TRANSPORT_SM, false},
                     {"sm_graph", HD_TRANSPORT_SM, true},
                     {"nccl", HD_TRANSPORT_NCCL, false},
                     {"nccl_graph", HD_TRANSPORT_NCCL, true},
                     {"copy_capturable", HD_TRANSPORT_COPY, false, true},
                     {"sm_capturable", HD_TRANSPORT_SM, false, true},
                     {"nccl_capturable", HD_TRANSPORT_NCCL, false, true}};

inline std::vector<Way> WaysThat(bool capturable)
{
    std::vector<Way> some;

    for (const Way &way : kWays) {
        if (way.capturable == capturable)
            some.push_back(way);
    }
    return some;
}

class CudaWays : public testing::TestWithParam<Way>
{
  public:
    hd_session_options Options(double timeout = kPatience) const
    {
        hd_session_options options = CudaOptions(timeout);

        options.transport = GetParam().transport;
        options.graph = GetParam().graph;
        options.capturable = GetParam().capturable;
        return options;
    }
};

inline std::string NameOfWay(const testing::TestParamInfo<Way> &info)
{
    return info.param.name;
}

#endif
