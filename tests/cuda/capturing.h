// A caller who captures runs into graphs of its own.
#ifndef HD_TESTS_CUDA_CAPTURING_H
#define HD_TESTS_CUDA_CAPTURING_H

#include "tests/cuda/caller.h"

// A graph of the caller's.
class Graph
{
  public:
    explicit Graph(Caller &caller) : caller_(caller)
    {
    }
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;
    ~Graph()
    {
        if (exec_ != nullptr)
            caller_.cu.graph_exec_destroy(exec_);
        if (graph_ != nullptr)
            caller_.cu.graph_destroy(graph_);
    }
    hd_status Begin(hd_cu_stream stream, int mode = GLOBAL)
    {
        stream_ = stream;
        return Done(caller_.cu.capture_begin(stream, mode));
    }
    hd_status End()
    {
        HD_TRY(Done(caller_.cu.capture_end(stream_, &graph_)));
        return Done(caller_.cu.graph_instantiate(&exec_, graph_, 0));
    }
    hd_status Launch(hd_cu_stream stream) const
    {
        return Done(caller_.cu.graph_launch(exec_, stream));
    }

  private:
    static hd_status Done(hd_cu_result result)
    {
        if (result != 0)
            fprintf(stderr, "CUDA says %d\n", result);
        return result == 0 ? HD_OK : HD_ERROR_SYSTEM;
    }

    Caller &caller_;
    hd_cu_stream stream_ = nullptr;
    hd_cu_graph graph_ = nullptr;
    hd_cu_graph_exec exec_ = nullptr;
};

// What a caller has who captures. Members are destroyed from the last on: the
// graphs of a test before its scene, memory before its session.
struct Scene {
    Caller caller;
    Session session;
    hd_cu_stream stream = nullptr;
    std::unique_ptr<Shards> shards;

    hd_status Open(const Rank &rank, const Program &program,
                   const hd_session_options &options)
    {
        HD_TRY(caller.Open(rank));
        HD_TRY(session.Open(rank, program, options));
        stream = caller.Stream();
        shards = std::make_unique<Shards>(session);
        return shards->Put(program.Inputs(), program.Module(), rank.rank,
                           rank.diag);
    }
    hd_status Capture(const Rank &rank, Graph &graph, int mode = GLOBAL)
    {
        HD_TRY(graph.Begin(stream, mode));
        HD_TRY(shards->RunOn(stream, rank.diag));
        return graph.End();
    }
    // Of set `set`, whose results are right.
    hd_status Replay(const Rank &rank, const Program &program,
                     const Graph &graph, int set)
    {
        HD_TRY(caller.Set(*shards, stream, program, rank.rank, set));
        HD_TRY(graph.Launch(stream));
        HD_TRY(caller.Get(*shards, stream));
        return program.Compare(*shards, rank.rank, set);
    }
    hd_status Run(const Rank &rank, const Program &program, int set)
    {
        HD_TRY(caller.Set(*shards, stream, program, rank.rank, set));
        HD_TRY(shards->RunOn(stream, rank.diag));
        HD_TRY(caller.Get(*shards, stream));
        return program.Compare(*shards, rank.rank, set);
    }
};

#endif
