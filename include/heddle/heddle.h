// heddle: a host-IR compiler and runtime for pipelined communication.
//
// The life of a program, each arrow one call:
//
//   text -hd_parse-> module -hd_lower-> host program -hd_check-> checked
//        <-hd_print-                      |
//                                         '-hd_session_create-> session
//                                             -hd_session_run-> answers
//
// This is the core. Beside it: launch.h (processes for ranks), async.h (runs
// that end while the caller does something else), call.h (functions of the
// caller's), build.h (programs without text), cache.h (programs and sessions
// that are kept), dlpack.h (other libraries' arrays), verify.h (answers to
// compare with), simulate.h (predictions), environment.h (what there is here).
//
// Every function that can fail returns hd_status and says why in the hd_diag
// it was given (which may be NULL: then only the status is known). Other
// pointers may be NULL only where it is said: a function that returns hd_status
// refuses what must not be with HD_ERROR_ARGUMENT, as it does an enumerator
// that does not exist; for one that does not, that is a bug of the caller's,
// which debug builds assert. NULL for options or a machine is the default one.
// Objects are opaque; whoever creates one destroys it, and to destroy, free,
// release or forget NULL does nothing. A module, diag, group or session is used
// by one thread at a time; distinct objects are independent, and a `const
// hd_module` may be read by several threads at once. Groups, sessions and
// events belong to the process that created them. In a child that it forks all
// calls of them are HD_ERROR_ARGUMENT; destroying a group there closes its
// connections and does nothing else. As long as a child has them, peers learn
// of its parent's death only once it has ended or called exec as well. A
// handler of atexit may destroy them. A session that two threads use at once
// refuses the second with HD_ERROR_ARGUMENT; hd_session_destroy cannot. The
// library never exits or aborts its host, and writes to no stream of it.
#ifndef HEDDLE_HEDDLE_H
#define HEDDLE_HEDDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define HD_BEGIN_DECLS extern "C" {
#define HD_END_DECLS }
#else
#define HD_BEGIN_DECLS
#define HD_END_DECLS
#endif

#define HD_API __attribute__((visibility("default")))
#define HD_MUST_USE __attribute__((warn_unused_result))

#define HD_VERSION "0.3.0"
#define HD_FORMAT 2 // the number after the word heddle in a file's first line

#define HD_MAX_DIMS 8 // dimensions of a buffer
#define HD_MAX_AXES 8 // axes of a mesh
#define HD_MAX_MESH (1 << 20) // ranks of a mesh: a program may be checked so
#define HD_MAX_RANKS 4096     // ranks of a group, and of what is simulated

// Each struct begins with `size`, the bytes of it that the caller was compiled
// with, so that structs may grow: of options hd_..._defaults sets it, and
// HD_EMPTY(hd_argument) of what the library fills. Only hd_define and
// hd_call_view, of which there are arrays, and what an hd_environment has, have
// none, and do not grow.
#ifdef __cplusplus
extern "C++" template <class T> inline T hd_empty()
{
    T empty = T();
    empty.size = sizeof(T);
    return empty;
}
#define HD_EMPTY(type) hd_empty<type>()
#else
#define HD_EMPTY(type) ((type){.size = sizeof(type)})
#endif

HD_BEGIN_DECLS

// ---------------------------------------------------------------- status

typedef enum hd_status {
    HD_OK = 0,
    HD_ERROR_INVALID,   // the program, or a file it was read from, is wrong
    HD_ERROR_ARGUMENT,  // this call was misused: the caller's bug
    HD_ERROR_NO_MEMORY, // memory ran out; what was passed in is unchanged, but
                        // for hd_lower's module
    HD_ERROR_SYSTEM, // the operating system refused; the message has its words
    HD_ERROR_UNSUPPORTED, // well formed, but not here (no such device or
                          // library)
    HD_ERROR_PEER,        // another rank died or failed
    HD_ERROR_TIMEOUT,     // a wait passed its deadline
} hd_status;

// A short English name, such as "out of memory". Never NULL.
HD_API const char *hd_status_text(hd_status status);

// The version of the library in use: HD_VERSION of its build.
HD_API const char *hd_version(void);

// ----------------------------------------------------------- diagnostics

typedef struct hd_diag hd_diag;

typedef enum hd_severity {
    HD_SEVERITY_ERROR,
    HD_SEVERITY_WARNING,
    HD_SEVERITY_NOTE
} hd_severity;

typedef struct hd_message {
    size_t size;
    hd_severity severity;
    const char *code; // "HD0101", or "" for notes and what has no place in text
    const char *file; // "" if the message has no place in a text
    int line;         // from 1; 0 if none
    int column;       // from 1, in bytes; 0 if none
    const char *text; // without code, place or full stop
    uint64_t cookie;  // of the line of a builder (build.h) that it is about; 0
} hd_message;

// NULL if memory runs out.
HD_API hd_diag *hd_diag_create(void);
HD_API void hd_diag_destroy(hd_diag *diag);

// Messages gather in the order they were found; a note follows what it belongs
// to. After 20 errors or 20 warnings further ones are left out until
// hd_diag_clear; hd_diag_errors counts them still. `out` and what it points to
// live until the diag changes.
HD_API size_t hd_diag_count(const hd_diag *diag);
HD_API size_t hd_diag_errors(const hd_diag *diag);
HD_API bool hd_diag_message(const hd_diag *diag, size_t i, hd_message *out);
HD_API void hd_diag_clear(hd_diag *diag);

// All messages as a person reads them, with source lines and carets:
//
//   ring.hd:7:17: error[HD0201]: unknown buffer '%ga'
//       7 |     %c = matmul %ga, %b
//         |                 ^~~
//
// Never NULL; lives until the diag changes.
HD_API const char *hd_diag_text(hd_diag *diag);

// ---------------------------------------------------------------- module

typedef struct hd_module hd_module;

typedef enum hd_dtype {
    HD_DTYPE_F64,
    HD_DTYPE_F32,
    HD_DTYPE_F16,
    HD_DTYPE_BF16,
    HD_DTYPE_F8E4M3,
    HD_DTYPE_F8E5M2,
    HD_DTYPE_I64,
    HD_DTYPE_I32,
    HD_DTYPE_U8,
    HD_DTYPE_I8,
    HD_DTYPE_EVENT,
} hd_dtype;

// Sets a parameter, or the size of a mesh axis, before anything is computed
// from it: what `-D name=value` does on the command line. Of two with one name
// the last counts; a name that the program does not have is an error.
typedef struct hd_define {
    const char *name;
    int64_t value;
} hd_define;

// How far a module has been lowered. A tensor program is HD_STAGE_TENSOR; each
// pass moves it one on; a complete host program is HD_STAGE_HOST.
typedef enum hd_stage {
    HD_STAGE_TENSOR,
    HD_STAGE_RESHARD,  // communication is named
    HD_STAGE_STREAM,   // stream dimensions are loops
    HD_STAGE_TRANSFER, // each communication in a loop has its pipeline
    HD_STAGE_EVENT,    // streams are ordered
    HD_STAGE_HOST,     // buffers are placed: complete
    HD_STAGE_PLACE,    // of hd_lower_options.until alone: a tensor program each
                       // of whose operands lies as its statement needs it
} hd_stage;

// Parses and verifies `length` bytes of text; it need not end in NUL, and is
// not needed afterwards. `name` stands in messages ("-" reads as <stdin>).
// HD_ERROR_INVALID if it is wrong: up to 20 errors are reported at once.
HD_API HD_MUST_USE hd_status hd_parse(const char *name, const char *text,
                                      size_t length, const hd_define *defines,
                                      size_t ndefines, hd_diag *diag,
                                      hd_module **out);
HD_API void hd_module_destroy(hd_module *module);

// A copy that shares nothing with the module: either may be lowered, resized or
// destroyed, by another thread too, and the other is as it was. Messages about
// it point into the same text, of which it has a copy as well.
HD_API HD_MUST_USE hd_status hd_module_clone(const hd_module *module,
                                             hd_diag *diag, hd_module **out);

// The canonical text, which parses back to the same module. The caller frees
// it with hd_free.
HD_API HD_MUST_USE hd_status hd_print(const hd_module *module, char **out);
// The same as JSON, which docs/json.md describes: what `heddle dump --format
// json` prints. The caller frees it with hd_free.
HD_API HD_MUST_USE hd_status hd_print_json(const hd_module *module, char **out);

// The text as it is written by hand, with its comments and blank lines, laid
// out as docs/text-form.md says; it parses to the same module, and formatted
// again it is the same text. HD_ERROR_INVALID if it cannot be parsed. The
// caller frees it with hd_free.
HD_API HD_MUST_USE hd_status hd_format(const char *name, const char *text,
                                       size_t length, hd_diag *diag,
                                       char **out);
// The same of the newest form, as which it must be right and mean what it
// means: else HD_ERROR_INVALID, with the lines and what to write there.
HD_API HD_MUST_USE hd_status hd_upgrade(const char *name, const char *text,
                                        size_t length, hd_diag *diag,
                                        char **out);

HD_API void hd_free(void *memory);

typedef struct hd_program_info {
    size_t size;
    const char *name; // the module's
    hd_stage stage;
    int ranks;                        // product of the axes
    int streams;                      // work streams of a host program
    size_t naxes, nsizes, narguments; // for the three functions below
    // What a rank has room for: of its arguments, and of all temporaries that
    // are not names of other bytes. A session takes no memory for those that no
    // step of its rank names, and some for its transfers.
    int64_t argument_bytes, temp_bytes;
} hd_program_info;

HD_API void hd_module_info(const hd_module *module, hd_program_info *out);

// An axis of the mesh. The coordinate of a rank on it is
// `rank / stride % extent`: ranks count row-major, the last axis fastest.
typedef struct hd_axis_info {
    size_t size;
    const char *name; // the module's
    int extent;       // how many ranks a line along it has
    int stride;       // from one rank of a line to the next
} hd_axis_info;

// False if there are not so many.
HD_API bool hd_module_axis(const hd_module *module, size_t i,
                           hd_axis_info *out);

typedef enum hd_role {
    HD_ROLE_IN,
    HD_ROLE_OUT,
    HD_ROLE_INOUT,
    HD_ROLE_TEMP
} hd_role;

// An argument is a buffer that is not `temp`; they count from 0 in the order
// of declaration. Every rank passes its own shard, dense and row-major.
typedef struct hd_argument {
    size_t size;
    const char *name; // without %
    hd_role role;
    hd_dtype dtype;
    int ndims;
    int64_t extent[HD_MAX_DIMS]; // of the whole array
    // What a rank has room for: where sharded, ceil(extent / size of the axis),
    // of which the last ranks have fewer indices, from 0 on, or none.
    int64_t local[HD_MAX_DIMS];
    int axis[HD_MAX_DIMS]; // of the mesh that shards it, -1 where none does
    size_t elements;       // of the whole array
    size_t local_elements;
    size_t local_bytes; // local_elements times the size of the dtype
    // Where the argument is the counts of a grouped matmul, or of an
    // attention's sequences: how many rows the groups along its last dimension
    // have together, at most, which may be 0. Else -1.
    int64_t grouped_rows;
    // Where the argument is the indices of a take: the extent of the dimension
    // that it takes from, at most, which may be 0. Else -1.
    int64_t taken_extent;
    // Where the argument is the counts of a dimension (`[e, cap by %n, k]`):
    // its extent, of several the least. Where copies, sums, maxima or minima
    // make counts of it: what keeps these within that. Else -1.
    int64_t counted;
    // Where data says how many indices of a dimension there are: which one, and
    // the argument that has the counts; else -1, as that is of counts that are
    // no argument.
    int counted_dim, counts;
} hd_argument;

// False if there are not so many.
HD_API bool hd_module_argument(const hd_module *module, size_t i,
                               hd_argument *out);

// Where in the whole array of argument `i` what `rank` has of it lies, with the
// sizes that the module has now: of each dimension `count` indices from `first`
// on, which are the first ones that the rank has room for. Ranks may have fewer
// than others, or none. Both have room for HD_MAX_DIMS. False if there is no
// such argument or rank.
HD_API bool hd_module_shard(const hd_module *module, size_t i, int rank,
                            int64_t *first, int64_t *count);

// What runs are given (`param m in 1..4096`).
typedef struct hd_size_info {
    size_t size;
    const char *name;  // the module's
    int64_t low, high; // its least value, from 0 on, and its greatest
    int64_t now;       // with which all below works; `high` until it is set
} hd_size_info;

// False if there are not so many.
HD_API bool hd_module_size(const hd_module *module, size_t i,
                           hd_size_info *out);
// From now on hd_module_argument, hd_shard, hd_unshard and the reference take
// the program to have these sizes, one a size in their order. Sessions and
// proofs are of all sizes. HD_ERROR_ARGUMENT if one is out of its range.
HD_API HD_MUST_USE hd_status hd_module_resize(hd_module *module,
                                              const int64_t *sizes,
                                              size_t nsizes, hd_diag *diag);

// ------------------------------------------------------------- transports

// How sends, recvs and collectives travel between CUDA devices.
typedef enum hd_transport {
    HD_TRANSPORT_AUTO, // NCCL along an axis of the mesh whose ranks are on
                       // several hosts, copies along the others
    HD_TRANSPORT_COPY, // copy engines, through CUDA IPC
    HD_TRANSPORT_SM,   // kernels on few SMs, through CUDA IPC
    HD_TRANSPORT_NCCL,
} hd_transport;

// -------------------------------------------------------------- lowering

typedef enum hd_transfer {
    HD_TRANSFER_BULK,      // one collective, then compute
    HD_TRANSFER_PIPELINED, // one collective a chunk
    HD_TRANSFER_BROADCAST, // step i: rank i sends to all
    HD_TRANSFER_DIRECT,    // step i: from rank + i, to rank - i
    HD_TRANSFER_RING,      // neighbours forward
    HD_TRANSFER_FUSED,     // one launch with the matmul that it serves
    HD_TRANSFER_AUTO,      // what hd_choose predicts to be the fastest on the
                           // default machine, with what else is not asked for
} hd_transfer;

typedef enum hd_protocol {
    HD_PROTOCOL_PUT, // the sender writes into the receiver's buffer
    HD_PROTOCOL_GET, // the receiver reads from the sender's
} hd_protocol;

// The dtype in which a ring sends its partial sums on.
typedef enum hd_wire_dtype {
    HD_WIRE_RESULT, // the result's: one rounding a rank
    HD_WIRE_F32,    // f32, rounded once, by the last product
} hd_wire_dtype;

// The options of hd_lower, as bits.
typedef enum hd_option {
    HD_OPTION_TRANSFER = 1,
    HD_OPTION_PROTOCOL = 2,
    HD_OPTION_STREAMS = 4,
    HD_OPTION_CHUNKS = 8,
    HD_OPTION_COPY_OWN = 16,
    HD_OPTION_DEFER_SENDS = 32,
    HD_OPTION_COMM_STREAM = 64,
    HD_OPTION_WIRE = 128,
    HD_OPTION_CHANGED = 256, // those that differ from hd_lower_defaults
    HD_OPTION_LAUNCH = 512,
} hd_option;

typedef struct hd_lower_options {
    size_t size;
    hd_transfer transfer;
    hd_protocol protocol;
    int streams;   // work streams of a pipelined loop, 1 to 64
    int chunks;    // per shard, 1 to 4096: a pipeline has chunks times ranks
                   // steps
    bool copy_own; // copy the local shard instead of computing on it in place
    bool defer_sends; // wait for sends at the end of the loop, not in place
    bool comm_stream; // transfers on one more stream, ahead of what computes
    hd_wire_dtype wire;
    hd_transport transport; // that the program will go by. Over NCCL a send
                            // ends with its recv, so none is deferred
    const char *axes;       // NULL, or transports of some axes, "node=nccl"
    hd_stage until;         // stop after this stage
    unsigned asked; // hd_option: which of them were asked for. One that has
                    // no effect on the program is a warning, with its reason
    bool launch;    // the products of a pipeline are one launch: those of loops
                    // are on one stream, and transfers on one more
    bool why; // of a tensor program that is placed: what prints says of each
              // statement, in a comment, why it is done so and what moves
} hd_lower_options;

static inline hd_lower_options hd_lower_defaults(void)
{
    hd_lower_options options = HD_EMPTY(hd_lower_options);

    options.transfer = HD_TRANSFER_AUTO;
    options.protocol = HD_PROTOCOL_PUT;
    options.streams = 2;
    options.chunks = 1;
    options.wire = HD_WIRE_RESULT;
    options.transport = HD_TRANSPORT_COPY;
    options.until = HD_STAGE_HOST;
    options.asked = HD_OPTION_CHANGED;
    return options;
}

// Called after each pass that ran, with the module as it left it.
typedef void hd_lower_hook(void *context, const char *pass,
                           const hd_module *module);

// Runs the passes that the module still needs, in place, and verifies after
// each. A complete host program is left as it is, with a warning if options
// were asked for. After an error the module may only be destroyed. `options`
// and `hook` may be NULL.
HD_API HD_MUST_USE hd_status hd_lower(hd_module *module,
                                      const hd_lower_options *options,
                                      hd_lower_hook *hook, void *context,
                                      hd_diag *diag);

// ----------------------------------------------------------------- check

typedef struct hd_check_options {
    size_t size;
    int waiting_streams;      // of a rank, that may wait at once: beyond is a
                              // warning
    hd_transport transport;   // that the program will go by: over NCCL more
                              // programs deadlock than over copies
    const char *axes;         // NULL, or transports of some axes, "node=nccl"
    const hd_module *against; // borrowed: the tensor program that a complete
                              // host program is made from; or NULL
    uint64_t seed; // of the counts and the sizes of runs that `against` is
                   // looked at with; 0: other ones in each call
} hd_check_options;

static inline hd_check_options hd_check_defaults(void)
{
    hd_check_options options = HD_EMPTY(hd_check_options);

    options.waiting_streams = 7;
    options.transport = HD_TRANSPORT_COPY;
    return options;
}

// Everything that can be said of a program without running it. Of any program,
// that it is well formed; of a complete host program also, for all ranks and
// two back-to-back runs: indices and peers are in range, transfers match, no
// schedule deadlocks or races, nothing is read before it is written, outputs
// are written whole, and all work lies within its run. docs/checking.md says
// what exactly is proven. With `against`, and where all that holds, also that
// each element of each output is made of the same inputs by the same operations
// as in that tensor program, sums in any order. HD_ERROR_INVALID, with findings
// that point into the text that the module was parsed from, if it is wrong.
HD_API HD_MUST_USE hd_status hd_check(const hd_module *module,
                                      const hd_check_options *options,
                                      hd_diag *diag);

// ----------------------------------------------------------------- ranks

// What a rank needs from outside to find the others: every rank calls
// `allgather` the same number of times in the same order; `all` receives
// nranks times bytes, in rank order. A status other than HD_OK is what the call
// that gathers ends with on this rank.
typedef struct hd_oob {
    size_t size;
    void *context;
    int rank;
    int nranks;
    hd_status (*allgather)(void *context, const void *mine, size_t bytes,
                           void *all);
} hd_oob;

typedef struct hd_group hd_group;

// Collective over all ranks. Connects them pairwise: on one host, under one
// user, over Unix sockets with checked credentials, where nothing is named in
// the file system; between hosts over TCP, on ports that the kernel picks.
// Which ranks share a host the kernel's boot id says, or HEDDLE_HOST. `timeout`
// in seconds. `oob` is not needed afterwards. Sessions are destroyed before
// their group. Ranks may destroy theirs at different times and in any order: on
// cuda the memory of a rank that a peer has open stays until that lets go of it
// (docs/cuda.md), for which hd_group_destroy waits a tenth of a second at most.
HD_API HD_MUST_USE hd_status hd_group_create(const hd_oob *oob, double timeout,
                                             hd_diag *diag, hd_group **out);
HD_API void hd_group_destroy(hd_group *group);
// Collective over the group: one group for each colour, of the ranks that pass
// it, in the order of their keys, of equal ones in that of their ranks. A rank
// that passes a negative colour has none, and NULL in `out`. It fails on all
// ranks or on none. The groups have connections and threads of their own: they
// may be used at once with each other and with `group`, fail by themselves, and
// are destroyed in any order. Their timeout is the one that `group` has now.
HD_API HD_MUST_USE hd_status hd_group_split(hd_group *group, int color, int key,
                                            hd_diag *diag, hd_group **out);
// Ends the group from any thread, whatever others are doing in calls of the
// group and its sessions, or from a signal handler: it stores a flag and writes
// to a descriptor. Within 0.1 s every wait of this rank that belongs to the
// group ends with HD_ERROR_PEER and "rank 2 was aborted by its caller", and so
// do those of its peers, on every host. What a stream of the cpu computes at
// that moment it computes to the end of its step; hd_event_wait has a deadline
// of its own. Afterwards the group and its sessions may only be destroyed, and
// all calls of them fail at once, of sessions that have no run under way too;
// those of a peer, as soon as it has heard. What had failed the group before,
// the death of a rank for one, is told rather than the abort. A second call
// changes nothing. Whoever calls sees to it that the group is not destroyed
// meanwhile.
HD_API void hd_group_abort(hd_group *group);
HD_API int hd_group_rank(const hd_group *group);
HD_API int hd_group_size(const hd_group *group);
// How long the following collective calls of the group may wait, in seconds;
// what hd_group_create, hd_launch or hd_join was given until then. A timeout
// not above 0 changes nothing. Sessions have a timeout of their own.
HD_API void hd_group_set_timeout(hd_group *group, double timeout);
// Gives back to the system what sessions of this group have used and none that
// is alive needs: what they share stays with the group otherwise, as large as
// the largest has needed it. Local: other ranks need not call it, and runs may
// be under way. On cuda what peers have open stays, and they keep it open
// unless they call it too. It waits for nothing, but where no session is left
// on cuda as hd_group_destroy does. Called by one thread at a time, as all of a
// group.
HD_API HD_MUST_USE hd_status hd_group_trim(hd_group *group, hd_diag *diag);

// Collective. Also a barrier, with bytes = 0. `mine` may lie at its place in
// `all`. After a failure here the group may only be destroyed.
HD_API HD_MUST_USE hd_status hd_group_allgather(hd_group *group,
                                                const void *mine, size_t bytes,
                                                void *all, hd_diag *diag);

// --------------------------------------------------------------- session

typedef struct hd_session hd_session;

typedef struct hd_call hd_call; // a function of the caller's: call.h

typedef struct hd_session_options {
    size_t size;
    const char *device; // "cpu", "cuda" (of the current context, else number
                        // rank modulo devices) or "cuda:3"
    double timeout;     // seconds that any wait for a peer may take
    double *times;      // NULL, or borrowed: two for each step of this rank,
                        // its start and end in the last run, in seconds of
                        // CLOCK_MONOTONIC; read them after hd_session_finish.
                        // On cuda the first of the element-wise steps that are
                        // one kernel has the time of all of them
    hd_transport transport; // cuda only; the same on all ranks. Between hosts
                            // there is NCCL alone
    const char *axes;       // NULL, or transports of some axes of the mesh,
                            // "node=nccl,tp=sm"; the others have `transport`
    bool graph;             // cuda only; the same on all ranks: runs are
                            // launches of a CUDA graph, which is made by the
                            // first and set anew for other addresses
    bool tune;              // cuda only: times several of cuBLASLt's plans for
                            // each matmul when the session is created, and
                            // keeps the fastest on disk, where later sessions
                            // find it without this. Bits of results may then
                            // differ between ranks and between runs of a
                            // program: docs/cuda.md
    // What the program calls, by name, and perhaps more; copied. Of a name that
    // stands here twice the last counts. What one rank lacks is
    // HD_ERROR_ARGUMENT on it, and no rank has a session.
    const hd_call *calls;
    size_t ncalls;
    bool capturable; // cuda only; the same on all ranks, and not with `graph`:
                     // runs may be issued into a stream that the caller
                     // captures into a graph of its own, which is launched as
                     // often as wanted. docs/cuda.md says how that is done
    // NULL, or by argument the address that it has in every run, NULL where it
    // has others; copied. What peers read or write of such an argument they
    // touch where it lies, and not a copy of it. It is memory of
    // hd_group_alloc, on cuda of cuMemAlloc or cudaMalloc too, which outlives
    // the session: what is of cuMemAlloc or cudaMalloc that of every rank.
    void *const *fixed;
    size_t nfixed;      // as many as there are arguments, or 0
    bool deterministic; // cuda only: runs on equal inputs have equal bits also
                        // where a library is faster without: what flows back
                        // to the queries of an attention (docs/cuda.md). All
                        // else is so anyway
} hd_session_options;

static inline hd_session_options hd_session_defaults(void)
{
    hd_session_options options = HD_EMPTY(hd_session_options);

    options.device = "cpu";
    options.timeout = 30;
    options.transport = HD_TRANSPORT_AUTO;
    return options;
}

// Collective over the group. Binds a complete host program to this rank:
// allocates, exchanges handles, starts streams, plans. Memory, threads and
// streams are the group's, as large and as many as the session that needs most
// of them: a session is a plan on them, for which handles are exchanged only if
// it needs more than those before it; on the cpu once. On cuda a context
// that is no device's primary one outlives the group whose sessions work in it,
// or what the group has there is given back before, by hd_group_trim when none
// of its sessions is alive. All ranks must pass the same program and a device
// of the same kind; several may be threads of one process. It fails on all
// ranks or on none, and HD_ERROR_PEER says that another is to blame; the group
// may then be used again, unless a rank died, a wait passed its deadline, memory
// ran out for what another rank has sent or for telling how programs differ, or
// one failed in the middle of what ranks set up together by NCCL or cuBLASMp. A
// rank without a group can tell nobody: the others wait until their deadline.
// NULL for `options` is hd_session_defaults. The module and the group must
// outlive the session.
HD_API HD_MUST_USE hd_status hd_session_create(
    hd_group *group, const hd_module *module, const hd_session_options *options,
    hd_diag *diag, hd_session **out);
HD_API void hd_session_destroy(hd_session *session);

// What one run differs by from the next. NULL: nothing.
typedef struct hd_run_options {
    size_t size;
    void *stream; // a CUstream on cuda, whose work the run is in order with:
                  // NULL is the default stream. NULL on the cpu. May differ
                  // from run to run. Into one that is being captured a run is
                  // issued where the session is `capturable`, else that is
                  // HD_ERROR_ARGUMENT. Such a run happens in each launch of the
                  // graph, on these addresses and at these sizes, and counts
                  // then for all ranks: they launch and issue in one order. It
                  // is in order with what is captured; with other runs, other
                  // launches and other sessions of the group the caller orders
                  // the launch, by streams and events of its own. It is no run
                  // whose end hd_session_finish, hd_session_wait, hd_stats or
                  // `times` know of: that of the graph tells it. What fails in
                  // a launch ends within the timeout, with results that mean
                  // nothing, and later calls of the session tell it. Graphs are
                  // destroyed before the session
    const int64_t *sizes; // borrowed for the call: of a program that is given
                          // sizes (`param m in 1..4096`) one a size, in their
                          // order, the same on all ranks
    size_t nsizes;
    // Borrowed for the call. NULL, or by argument whether arguments[i] is the
    // host's memory, read before the call returns: of arguments of one element
    // that the program does not write.
    const bool *on_host;
    // Borrowed for the call. NULL, or by argument NULL, where it is dense, or
    // its strides, in elements: above 0, each beyond all that smaller ones step
    // over. The run copies what is not dense, in and out, by way of memory that
    // the first such run asks for: it is refused, unbegun, where there is none.
    const int64_t *const *strides;
} hd_run_options;

// Issues one run on this rank and returns; arguments[i] is this rank's shard of
// argument i: memory of the session's device, on cuda at a multiple of 16
// bytes. An event argument, of which there is one element, is an hd_event on
// the cpu and a CUevent on cuda. Addresses may differ from run to run without
// any cost to peers. They are read and written until hd_session_finish returns.
// What is written overlaps no other argument.
//
// Runs of all sessions of one group happen in the order in which they are
// issued, whatever streams they are on: what one writes a later one may read,
// with no hd_session_finish between. So all ranks issue them in the same order;
// what is to run at once has groups of its own (hd_group_split).
// HD_ERROR_ARGUMENT means that nothing has begun: the session is as it was,
// unless a run of it has failed before.
//
// Where there are sizes, arguments lie as if every size were its greatest: a
// dimension has its first indices there, of blocks each rank its own. What is
// made anew for sizes that have not been there lately is a list of lengths and
// offsets: nothing is allocated on the device, and no rank hears of it.
// HD_ERROR_ARGUMENT if a size is out of its range, or there are not as many as
// the program is given. Ranks that are given other sizes than each other make
// the run fail, with their names and values.
HD_API HD_MUST_USE hd_status hd_session_run(hd_session *session,
                                            void *const *arguments,
                                            size_t narguments,
                                            const hd_run_options *options,
                                            hd_diag *diag);

// Memory of the device that the session is on, for runs of any session there.
// It is freed by hd_session_free before the session is destroyed, when no run
// uses it. For what outlives sessions, or is `fixed`, see hd_group_alloc.
//
// On cuda memory is given back as cuMemFree does it, here and where sessions or
// groups end: that waits for the work of all streams, of the caller's too,
// whoever holds it up. A device on which a run of heddle's does not come to
// rest, 10 s after it failed, keeps what it has instead.
HD_API HD_MUST_USE hd_status hd_session_alloc(hd_session *session, size_t bytes,
                                              hd_diag *diag, void **out);
HD_API void hd_session_free(hd_session *session, void *memory);
// Copies between the device's memory, or within it, or to and from the host's,
// after all runs of this session issued so far; blocks until it is done.
HD_API HD_MUST_USE hd_status hd_session_copy(hd_session *session, void *to,
                                             const void *from, size_t bytes,
                                             hd_diag *diag);

// Blocks until every run issued so far is complete on this rank. After a failure
// the session may only be destroyed: after HD_ERROR_ARGUMENT too, which tells of
// a count that did not fit. The peers' sessions then are as they were, and the
// group may be used.
HD_API HD_MUST_USE hd_status hd_session_finish(hd_session *session,
                                               hd_diag *diag);

typedef struct hd_stats {
    size_t size;
    uint64_t runs;
    uint64_t steps;            // issued by the last run
    uint64_t allocations;      // of tensor memory, since creation
    uint64_t handle_exchanges; // with peers, since creation
    uint64_t host_waits;       // times that the host blocked, since creation
    uint64_t bytes_sent;       // to peers by the last run
    const char *matmul;        // what multiplies: "OpenBLAS 0.3.21 (path)"
    const char *transport;     // by axis of the mesh, "node=nccl,tp=copy"; ""
                               // on the cpu
    uint64_t plans;  // lists of what a run issues that were made, on cuda: one,
                     // and one for sizes that no run has had lately
    uint64_t graphs; // CUDA graphs of runs that were instantiated
    uint64_t patches; // updates of such a graph to other sizes or addresses
    double seconds; // that the last finished run took of those that began with
                    // none under way, as the first after hd_session_finish (of
                    // all, with options.times): from its start on the caller's
                    // stream to its end, by the clock of a GPU; 0 on the cpu
    const char *attention; // what attends on cuda: "cuDNN 9.19.0 (path)"; ""
                           // where nothing does, and on the cpu
} hd_stats;

HD_API void hd_session_stats(const hd_session *session, hd_stats *out);

HD_END_DECLS

#endif
