// What a machine offers.
#ifndef HEDDLE_ENVIRONMENT_H
#define HEDDLE_ENVIRONMENT_H

#include <heddle/heddle.h>
#include <heddle/launch.h>

HD_BEGIN_DECLS

// "nccl"; NULL for what is none, so that a list of all ends there.
HD_API const char *hd_transport_text(hd_transport transport);

// Whether hd_session_options may name a device so. That it is there, only the
// session finds.
HD_API bool hd_is_device(const char *name);

// Sets, for this process, what the environment variable of that name would:
// "HEDDLE_CACHE_DIR", "HEDDLE_NCCL_LIB", a launcher's "RANK". What is set here
// counts before the environment; NULL gives it back to that. A value is read
// where it would be: by the next group, session or search for a library, and
// what is there already does not change. HD_ERROR_ARGUMENT for a name that
// heddle does not read, and for one that CUDA reads too. As with setenv, no
// other thread is in a call of the library meanwhile.
HD_API HD_MUST_USE hd_status hd_set(const char *name, const char *value,
                                    hd_diag *diag);

// Has `fn` told what was decided and is seen nowhere else: which libraries are
// opened, or why not; how transfers travel; that nothing can be kept on disk;
// what is done in another way than was planned. A note says what was chosen, a
// warning that it is less than might be had; no text ends in a newline. NULL,
// as at the start, tells nobody. `fn` is called on any thread, but one call at
// a time, and not any more once hd_set_log has returned with another; it calls
// nothing of the library.
typedef void hd_log_fn(void *context, hd_severity severity, const char *text);
HD_API void hd_set_log(hd_log_fn *fn, void *context);

// What this machine offers: docs/cli.md ("heddle env") says what each part
// means. Text that is not known is empty.
#define HD_REASON_TEXT 1280

typedef struct hd_env_library {
    const char *name; // "NCCL"
    bool usable;
    char version[64];
    char path[1024];
    const char *variable;        // that may name its file
    const char *use;             // what is done with it; NULL for the driver
    const char *install;         // how to come by it; NULL for the driver
    char reason[HD_REASON_TEXT]; // why it is not usable, and what is then done
} hd_env_library;

typedef struct hd_env_device {
    char name[256], capability[32], bus[32], uuid[48];
    int64_t memory; // bytes
    int sms;
} hd_env_device;

typedef struct hd_env_link {
    int from, to;
    bool access;   // the driver admits peer access
    bool verified; // what was put and got arrived
    bool atomics;
    int performance_rank;
    char reason[HD_REASON_TEXT]; // why one with access is not verified
} hd_env_link;

typedef struct hd_env_limits {
    int ranks, ranks_cuda_ipc;
    int connections;     // hardware queues of a device
    int waiting_streams; // that may wait at once
    int work_streams;    // of a pipelined loop
    int runs_in_flight_cuda;
    int graphs; // that a session remembers
} hd_env_limits;

typedef struct hd_env_cache {
    char folder[1024];
    int64_t entries, bytes;
    const char *variable;
    char reason[HD_REASON_TEXT]; // why nothing is kept; "" if it is
} hd_env_cache;

typedef struct hd_env_variable {
    char name[128];
    const char *value; // borrowed: of the process's environment or of hd_set
    char meaning[128];
} hd_env_variable;

typedef struct hd_environment {
    char host[256];
    int cores;
    int64_t memory;      // bytes
    hd_env_library cuda; // the driver; its version is the newest CUDA it takes
    hd_env_device *device;
    int ndevices;
    hd_env_link *link; // of each ordered pair of devices
    int nlinks;
    hd_env_library library[8];
    int nlibraries;
    hd_env_limits limits;
    hd_env_cache cache;
    hd_env_variable *variable;
    int nvariables;
    bool launched; // by a launcher, at `place`
    hd_place place;
    char place_reason[HD_REASON_TEXT]; // what is wrong with its variables
} hd_environment;

// What is absent is told, and is no failure. Copies between each two CUDA
// devices are tried, which starts the CUDA driver in this process: what is
// forked afterwards, by hd_launch too, cannot use it.
HD_API HD_MUST_USE hd_status hd_environment_create(hd_diag *diag,
                                                   hd_environment **out);
HD_API void hd_environment_destroy(hd_environment *environment);

// What this machine has of one kind of device, "cpu" or "cuda".
typedef struct hd_env_kind {
    size_t size;
    char key[96];        // a file's name, the same where devices are called
                         // and linked alike
    char name[64];       // "8 x NVIDIA H200"
    int devices;         // GPUs, or processors that the process may run on
    int multiprocessors; // of the first GPU; 0 of the cpu
    char capability[32]; // likewise, "9.0"; ""
} hd_env_kind;

// Nothing is tried of the devices, and no context made; but the CUDA driver is
// started. HD_ERROR_UNSUPPORTED where there is none, or no GPU.
HD_API HD_MUST_USE hd_status hd_environment_kind(const char *device,
                                                 hd_diag *diag,
                                                 hd_env_kind *out);

HD_END_DECLS

#endif
