// A caller with a context and streams of its own, as a framework has them: the
// driver's table, and work that holds a stream up until it is let go.
#ifndef HD_TESTS_CUDA_CALLER_H
#define HD_TESTS_CUDA_CALLER_H

#include <functional>

#include "base/library.h"
#include "tests/cuda/program.h"

enum { GLOBAL, THREAD_LOCAL, RELAXED }; // CUstreamCaptureMode

// What a rank's function ends with that has found something wrong.
inline hd_status Wrong(const Rank &rank, const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank.rank, what,
            hd_diag_text(rank.diag));
    return HD_ERROR_INVALID;
}

class Caller
{
  public:
    hd_cu_api cu{};

    // Call it before the session, which then works in this context.
    hd_status Open(const Rank &rank)
    {
        static const char *const none[] = {nullptr};
        static const hd_symbol symbols[] = {
#define HD_CU(symbol, name, ...) {#symbol, offsetof(hd_cu_api, name)},
#include "runtime/cuda/vendor/cuda.def"
#undef HD_CU
        };
        hd_library_info info{};
        hd_library library{};
        void *gate = nullptr;

        info.title = "the CUDA driver";
        info.variable = "HEDDLE_CUDA_LIB";
        info.names = info.folders = none;
        info.symbol = symbols;
        info.nsymbols = sizeof(symbols) / sizeof(*symbols);
        HD_TRY(hd_library_open(&info, &cu, rank.diag, &library));
        int devices = 0;
        if (cu.init(0) != 0 || cu.device_count(&devices) != 0 || devices < 1)
            return HD_ERROR_SYSTEM;
        device_ = rank.rank % devices;
        if (cu.primary_retain(&context_, device_) != 0 ||
            cu.context_push(context_) != 0 ||
            cu.host_alloc(&gate, 64, HD_CU_HOST_PORTABLE) != 0)
            return HD_ERROR_SYSTEM;
        gate_ = static_cast<uint32_t *>(gate);
        *gate_ = 0;
        return HD_OK;
    }
    ~Caller()
    {
        hd_cu_context popped;

        if (gate_ == nullptr)
            return;
        LetGo();
        for (hd_cu_stream stream : streams_)
            cu.stream_destroy(stream);
        for (hd_cu_event event : events_)
            cu.event_destroy(event);
        cu.host_free(gate_);
        cu.context_pop(&popped);
        cu.primary_release(device_);
    }

    hd_cu_context Context() const
    {
        return context_;
    }
    hd_cu_stream Stream()
    {
        hd_cu_stream stream = nullptr;

        if (cu.stream_create(&stream, HD_CU_STREAM_NON_BLOCKING, 0) != 0)
            abort();
        streams_.push_back(stream);
        return stream;
    }
    hd_cu_event Event()
    {
        hd_cu_event event = nullptr;

        if (cu.event_create(&event, HD_CU_EVENT_DISABLE_TIMING) != 0)
            abort();
        events_.push_back(event);
        return event;
    }

    // Fills a rank's shards by way of the stream, and reads them back so.
    hd_status Set(Shards &shards, hd_cu_stream stream, const Program &program,
                  int rank, int set)
    {
        const Arguments &inputs = program.Inputs(set);

        for (size_t i = 0; i < inputs.Count(); i++) {
            std::vector<char> local = inputs.Local(program.Module(), i, rank);

            if (cu.copy(At(shards.Address(i)), At(local.data()), local.size(),
                        stream) != 0)
                return HD_ERROR_SYSTEM;
        }
        return HD_OK;
    }
    hd_status Get(Shards &shards, hd_cu_stream stream)
    {
        for (size_t i = 0; i < shards.Count(); i++) {
            std::vector<char> &bytes = shards.Bytes(i);

            if (cu.copy(At(bytes.data()), At(shards.Address(i)), bytes.size(),
                        stream) != 0)
                return HD_ERROR_SYSTEM;
        }
        return cu.stream_synchronize(stream) == 0 ? HD_OK : HD_ERROR_SYSTEM;
    }

    // What comes into the stream from now on waits until LetGo.
    hd_status HoldUp(hd_cu_stream stream)
    {
        hd_cu_memop wait{};

        wait.word.operation = HD_CU_OP_WAIT_32;
        wait.word.address = reinterpret_cast<uintptr_t>(gate_);
        wait.word.value = 1;
        return cu.stream_words(stream, 1, &wait, 0) == 0 ? HD_OK
                                                         : HD_ERROR_SYSTEM;
    }
    void LetGo()
    {
        __atomic_store_n(gate_, 1, __ATOMIC_RELEASE);
    }

    // Within a second: an event of a stream's last command is seen a moment
    // before the command counts as done.
    bool IsIdle(hd_cu_stream stream)
    {
        for (int i = 0; i < 1000 && cu.stream_query(stream) != 0; i++)
            usleep(1000);
        return cu.stream_query(stream) == 0;
    }

  private:
    static hd_cu_ptr At(const void *memory)
    {
        return reinterpret_cast<uintptr_t>(memory);
    }

    int device_ = 0;
    hd_cu_context context_ = nullptr;
    uint32_t *gate_ = nullptr;
    std::vector<hd_cu_stream> streams_;
    std::vector<hd_cu_event> events_;
};

// All ranks have done one run; then `last` says what becomes of each, and the
// ranks must be at rest when it fails.
inline hd_status
AfterOneRun(Rank &rank, const Program &program,
            const hd_session_options &options,
            const std::function<hd_status(Session &, Shards &, Caller &)> &last)
{
    Caller caller;
    Session session;

    HD_TRY(caller.Open(rank));
    HD_TRY(session.Open(rank, program, options));
    Shards shards(session);
    HD_TRY(
        shards.Put(program.Inputs(), program.Module(), rank.rank, rank.diag));
    HD_TRY(shards.Run(rank.diag));
    HD_TRY(shards.Get(rank.diag));
    HD_TRY(program.Compare(shards, rank.rank));
    HD_TRY(Meet(rank)); // whoever fails now fails no other's first run
    hd_status status = last(session, shards, caller);
    if (status != HD_OK && !caller.IsIdle(nullptr)) {
        fprintf(stderr, "rank %d is not at rest\n", rank.rank);
        return HD_ERROR_INVALID;
    }
    return status;
}

// A run of the ranks that do one, to its end.
inline hd_status RunIf(bool runs, const Rank &rank, Shards &shards)
{
    if (!runs)
        return HD_OK;
    HD_TRY(shards.Run(rank.diag));
    return shards.Get(rank.diag);
}

// Of two ranks that have done one run the first does another, alone.
inline std::vector<Answer> RunOneAlone(const Program &program,
                                       const hd_session_options &options)
{
    return RunRanks(2, [&](Rank &rank) {
        return AfterOneRun(
            rank, program, options, [&](Session &, Shards &shards, Caller &) {
                hd_status status = RunIf(rank.rank == 0, rank, shards);

                HD_TRY(Meet(rank));
                return status;
            });
    });
}

#endif
