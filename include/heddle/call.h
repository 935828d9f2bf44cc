// A caller's own functions as operations of a program:
//
//     %y = call "gelu_fused" %x, %w
//
// What a call reads, writes and may be cut along, its statement says
// (docs/semantics.md); it is ordered and proven like any other operation. What
// it computes, the function does that a session is given under that name
// (hd_session_options.calls).
#ifndef HEDDLE_CALL_H
#define HEDDLE_CALL_H

#include <heddle/heddle.h>

HD_BEGIN_DECLS

// A result or an operand, or the part of it that this call is for: element
// (i, j, ..) lies at address[i * stride[0] + j * stride[1] + ..]. Strides are
// in elements, and views need not be dense: they are parts of larger buffers. A
// dimension over ranks that the program keeps has the rank's own block, of one
// index where each rank has one.
typedef struct hd_call_view {
    void *address; // of its first element, on the session's device
    hd_dtype dtype;
    int ndims;
    int64_t extent[HD_MAX_DIMS]; // none is 0
    int64_t stride[HD_MAX_DIMS];
} hd_call_view;

// What one call is for. All of it is there until the function returns.
typedef struct hd_call_site {
    size_t size; // as the library has it
    const char *name;
    int rank;
    const char *device; // "cpu" or "cuda"
    void *stream; // cuda: the CUstream to enqueue onto, NULL the default one;
                  // cpu: NULL
    int over; // how many last dimensions belong together: 0, element by element
    bool keep;       // results are read, too
    int line;        // of the statement; 0 if it has none
    uint64_t cookie; // of that line, of a builder (build.h); else 0
    int nresults, noperands;
    const hd_call_view *result;  // to be written, all of each
    const hd_call_view *operand; // to be read; none lies over a result
    char *why; // where a function that fails may say why: `nwhy` bytes with the
    size_t nwhy; // NUL, which come with its status
} hd_call_site;

// Does what the call is for, or enqueues it, and returns. It touches nothing
// else of the session's, and calls nothing of heddle for it.
//
// On the cpu the stream's thread calls it, several at once, also of one name:
// when it returns the work is done. On cuda the thread that issues the run
// calls it, with the session's context current, and it enqueues onto the stream
// it is given: the work is ordered there, and nowhere else. It must not wait
// for the device. With `graph` what it enqueues is captured, and repeated by
// later runs without another call, for as long as the addresses of the
// arguments that the call touches are the same; other ones are captured anew.
//
// Any other status than HD_OK ends the session: the run, or whatever waits for
// it first, fails with that status (HD_ERROR_INVALID in place of
// HD_ERROR_ARGUMENT, which says that nothing was begun) and `why`, and peers
// with HD_ERROR_PEER.
typedef hd_status hd_call_fn(void *context, const hd_call_site *site);

struct hd_call {
    size_t size;      // the same in all of a table
    const char *name; // as the program has it
    hd_call_fn *fn;
    void *context; // handed to `fn`; outlives the session
};

// The functions that a program calls, each once, in the order of its text.
typedef struct hd_call_info {
    size_t size;      // set by the caller, as sizeof(hd_call_info)
    const char *name; // the module's
    int line;         // of its first call; 0 if it has none
    uint64_t cookie;  // of that line, of a builder; else 0
} hd_call_info;

HD_API size_t hd_module_calls(const hd_module *module);
// False if there are not so many.
HD_API bool hd_module_call(const hd_module *module, size_t i,
                           hd_call_info *out);

HD_END_DECLS

#endif
