// What a program does, told without running it: the steps of each rank, what
// they take on a machine that is described, and which way of lowering it takes
// the least.
#ifndef HEDDLE_SIMULATE_H
#define HEDDLE_SIMULATE_H

#include <heddle/heddle.h>

HD_BEGIN_DECLS

// The steps that `rank` issues, one a line, numbers for every index.
HD_API HD_MUST_USE hd_status hd_print_steps(const hd_module *module, int rank,
                                            hd_diag *diag, char **out);
// The same as JSON (docs/json.md), behind what hd_print_json tells of the
// module: a document, in whose list of ranks this is the only one.
HD_API HD_MUST_USE hd_status hd_print_steps_json(const hd_module *module,
                                                 int rank, hd_diag *diag,
                                                 char **out);

// How many steps `rank` issues in a run. Cheaper than a check: of what is wrong
// with a step only what control flow depends on is found.
HD_API HD_MUST_USE hd_status hd_module_steps(const hd_module *module, int rank,
                                             hd_diag *diag, int64_t *out);
// The same of all ranks, out[rank]. Ranks of which the text shows that they
// issue as many are counted once. What `out` has after an error is not said.
HD_API HD_MUST_USE hd_status hd_module_step_counts(const hd_module *module,
                                                   hd_diag *diag, int64_t *out);

// What a machine costs. Seconds, bytes and operations per second.
typedef struct hd_machine {
    size_t size;
    char name[64];
    int ranks_per_node; // ranks of a node follow each other
    int processors;     // that the ranks of a node share, and that also do the
                        // copying; 0: each rank has its own, and copy engines
    double issue;       // s: the host issues one step
    double launch;      // s: a kernel's own start and end
    double memory;      // bytes/s that an element-wise kernel moves
    // Operations/s of a matmul, by hd_dtype; 0: as f32, which is above 0.
    double matmul[16];
    int units;          // tiles that fill a rank's processor: a matmul of fewer
                        // takes as long; 0: tiles do not matter
    int tile_m, tile_n; // elements of the result that a tile has
    double hop;         // s: credit and signal of one send and recv
    double copy_latency, copy_bandwidth; // of one send and recv in a node
    double link;      // bytes/s that a rank can send, and receive, in its node
    double collision; // the share of that which several peers at once get
    double collective_latency, collective_bandwidth; // bytes received a rank
    double collective_units; // share of a rank's processor that one takes
    double network_latency, network_bandwidth; // of a rank, between nodes
    double reduction_latency; // s: as collective_latency, of a reduction in a
                              // node, which is a kernel that meets its peers
    int multiprocessors; // of sm_90a: products of bf16 and f16 take what their
                         // tiles take, and a launch is one kernel; 0: by
                         // `units`, and a launch's take what they take without
    double event; // s: what waits and records in front of a kernel add to
                  // `launch`, where ranks have processors of their own
    double run;   // s: a rank's first transfer in a run takes so much longer
    double attention; // the share of a matmul's rate that attention and its
                      // gradients have; 0: all of it
} hd_machine;

// One node of eight NVIDIA H200, as measured; docs/simulate.md has the source
// of each number.
HD_API void hd_machine_default(hd_machine *out);

// Reads a machine from the `length` bytes of a JSON object, whose keys
// docs/simulate.md lists: each must be known, all but `name`,
// `reduction_latency`, which is then `collective_latency`, `multiprocessors`,
// `event`, `run` and `attention`, which are then 0, must be there, and what is
// wrong is told with its line, key, value and limits. `name` stands in
// messages, and is the machine's where the text gives it none. HD_ERROR_INVALID
// if it is wrong.
HD_API HD_MUST_USE hd_status hd_machine_parse(const char *name,
                                              const char *text, size_t length,
                                              hd_diag *diag, hd_machine *out);

// The same text, to be freed with hd_free: what is read back is this machine,
// where its numbers are within the limits that the reader has.
HD_API HD_MUST_USE hd_status hd_machine_print(const hd_machine *machine,
                                              hd_diag *diag, char **out);

// ------------------------------------------------------ the machine at hand

// The machine that comes with the library and is the nearest to this device:
// of "cpu" two processors that all ranks share, else the default one.
HD_API void hd_machine_shipped(const char *device, hd_machine *out);

// Where the numbers of a machine come from.
typedef struct hd_machine_origin {
    size_t size;
    char path[1152]; // the file; "" where it is the shipped one
    int64_t time;    // when that was written: seconds since 1970
} hd_machine_origin;

// What `heddle calibrate` has measured of a device of this machine ("cpu",
// "cuda") and kept, else the shipped one. A file that cannot be read is warned
// of, and the shipped one taken. Where something is kept of a GPU this starts
// the CUDA driver, as hd_environment_create does. Ranks that must choose alike
// ask on one of them: machines may differ.
HD_API HD_MUST_USE hd_status hd_machine_here(const char *device, hd_diag *diag,
                                             hd_machine *out,
                                             hd_machine_origin *origin);

// Keeps that for a machine with this key, hd_env_kind's, in the folder machines
// of the cache (HEDDLE_CACHE_DIR), and says where. NULL for a machine writes
// nothing, and says where it would be. HD_ERROR_SYSTEM where nothing can be
// kept.
HD_API HD_MUST_USE hd_status hd_machine_keep(const char *key,
                                             const hd_machine *machine,
                                             hd_diag *diag,
                                             hd_machine_origin *origin);

typedef enum hd_work {
    HD_WORK_COMPUTE,
    HD_WORK_TRANSFER,
    HD_WORK_SYNC
} hd_work;

// One step on the time axis.
typedef struct hd_interval {
    size_t size;
    int rank;
    int stream; // -1 is the caller's
    int64_t step;
    hd_work work;
    const char *op;    // "matmul"
    double start, end; // s from the beginning of the run
    int line;          // in the program's text; 0 if none
    int peer;          // of a send or recv: the other rank; else -1
    int64_t meets;     // its step there
    bool critical;     // on the longest chain
    int64_t launch;    // the first step of the launch that it is of; else -1
} hd_interval;

typedef struct hd_simulation hd_simulation;

typedef struct hd_prediction {
    size_t size;
    double time;           // s, until the slowest rank is done
    double compute;        // s, of the critical path
    double transfer;       // s, of the critical path
    double wait;           // s, of the critical path: for the host; of what was
                           // measured: all gaps
    double overlap;        // share of the time of transfers that is computed in
    double bytes_copied;   // within nodes, by send and recv, all ranks
    double bytes_gathered; // by collectives, all ranks
    double bytes_networked; // between nodes, all ranks
    double memory;          // bytes of arguments and temporaries of the rank
                            // that has most
    bool parts; // it has a launch that `multiprocessors` have no kernel for
} hd_prediction;

// Predicts one run of a complete host program that hd_check has accepted, from
// ranks that are idle. The module must outlive the simulation. A program whose
// transfers and compute never overlap though its data would allow it draws a
// warning.
HD_API HD_MUST_USE hd_status hd_simulate(const hd_module *module,
                                         const hd_machine *machine,
                                         hd_diag *diag, hd_simulation **out);

typedef struct hd_simulate_options {
    size_t size;
    const hd_machine *machine; // NULL is the default one
    hd_transport transport;    // that the program goes by: over NCCL transfers
                               // of a rank follow each other
    const char *axes;          // NULL, or transports of some axes, "node=nccl"
} hd_simulate_options;

static inline hd_simulate_options hd_simulate_defaults(void)
{
    hd_simulate_options options = HD_EMPTY(hd_simulate_options);

    options.transport = HD_TRANSPORT_COPY;
    return options;
}

// The same over transports of which hd_check has accepted it, too. NULL is
// hd_simulate_defaults, as which hd_simulate predicts.
HD_API HD_MUST_USE hd_status
hd_simulate_over(const hd_module *module, const hd_simulate_options *options,
                 hd_diag *diag, hd_simulation **out);
HD_API void hd_simulation_destroy(hd_simulation *simulation);
HD_API void hd_simulation_predict(const hd_simulation *simulation,
                                  hd_prediction *out);

// Puts measured times in the place of predicted ones: `times` has a start and
// an end in seconds for each interval, as hd_session_options.times has for each
// step of a rank. The critical path and its times become those of the
// measurement; the first start becomes 0.
HD_API void hd_simulation_measure(hd_simulation *simulation,
                                  const double *times);

// Intervals are ordered by rank, then as they are issued.
HD_API int64_t hd_simulation_intervals(const hd_simulation *simulation);
HD_API void hd_simulation_interval(const hd_simulation *simulation, int64_t i,
                                   hd_interval *out);
// "matmul %c[3]", cut to `size` bytes with the NUL.
HD_API void hd_simulation_name(const hd_simulation *simulation, int64_t i,
                               char *out, size_t size);

// ----------------------------------------------------------------- choice

// Called before the candidate `i` of `n` is predicted, of which some turn out
// to make the same program, or none.
typedef void hd_choose_hook(void *context, size_t i, size_t n,
                            const hd_lower_options *candidate);

typedef struct hd_choose_options {
    size_t size;
    const hd_machine *machine; // NULL is the default one
    // NULL, or options that all candidates have, those that are `asked` for or
    // not as hd_lower_defaults has them, a transfer too; and all have its
    // `transport`, `axes` and `until`, which a prediction does not heed.
    const hd_lower_options *lower;
    int most_streams, most_chunks; // the powers of two up to it are tried, of
                                   // streams no more than 4, of chunks 8
    hd_choose_hook *hook;          // NULL, or what is called
    void *context;                 // of it
    bool parts; // launches go as their parts, as in graphs: none is tried
} hd_choose_options;

// Of more ranks a choice takes seconds, and HD_TRANSFER_AUTO is a ring.
enum { HD_CHOOSE_RANKS = 64 };

static inline hd_choose_options hd_choose_defaults(void)
{
    hd_choose_options options = HD_EMPTY(hd_choose_options);

    options.most_streams = 4;
    options.most_chunks = 8;
    return options;
}

// The ways to lower a program, by what they are predicted to take, best first.
typedef struct hd_choice hd_choice;

// Lowers clones of the module with each pipeline, numbers of streams and
// chunks, with and without a stream for transfers (what sends by copies of
// engines only with one), and with launches where copies are what goes and the
// machine has `multiprocessors`, and predicts each; the module is as it was.
// Those that do not fit it are left out, those that make the same program as
// one before, and ahead of the best those that are too large to be proven. None
// rounds sums more often than `direct` does unless `wire`
// is asked for: what a ring of more than two ranks sends on of 16 bits or fewer
// is f32. The some 100 take 10 to 50 ms
// of a few statements on few ranks; of many steps only the first are tried,
// those with fewer chunks and streams. HD_ERROR_INVALID, with what is wrong
// with the options that were given, if none fits; HD_ERROR_ARGUMENT for a
// program that is complete, and for options that have no such values.
HD_API HD_MUST_USE hd_status hd_choose(const hd_module *module,
                                       const hd_choose_options *options,
                                       hd_diag *diag, hd_choice **out);
// Makes `lower` of HD_TRANSFER_AUTO the best of them, as hd_lower does; the
// `lower` of `options` is not heeded. It is a ring where the passes that are
// left make the same of any, of one rank, of more than HD_CHOOSE_RANKS where
// neither a machine nor the transfer is asked for, and where no pipeline fits,
// which hd_lower tells of then. What names a transfer stays as it is.
HD_API HD_MUST_USE hd_status hd_choose_lower(const hd_module *module,
                                             const hd_choose_options *options,
                                             hd_diag *diag,
                                             hd_lower_options *lower);
HD_API void hd_choice_destroy(hd_choice *choice);
HD_API size_t hd_choice_count(const hd_choice *choice); // at least 1
// Candidate `i`; false if there are not so many. Of `lower` is `asked` for what
// was given but for the transfer, so hd_lower makes what was predicted and
// warns of what changes nothing. It borrows what the options that were given
// borrow. `also` has a bit for each other hd_transfer that makes the same
// program. Each may be NULL.
HD_API bool hd_choice_candidate(const hd_choice *choice, size_t i,
                                hd_lower_options *lower,
                                hd_prediction *prediction, unsigned *also);

HD_END_DECLS

#endif
