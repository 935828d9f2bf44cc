// What fake_cuda exports besides libcuda's own symbols: for the other fakes,
// which have to run their work on its streams, and for tests, which let calls
// fail and count what is left over. Found with dlsym.
//
// The environment says how it is to be:
//   FAKE_CUDA_DEVICES=N          so many devices (8); with 0, cuInit fails
//   FAKE_CUDA_MEMORY=BYTES       of each device (8 GiB)
//   FAKE_CUDA_STREAMS_BLOCKED=N  waits at once before all else stops (7)
//   FAKE_CUDA_CHAOS=SEED         up to 0.2 ms of delay before whatever is done
//   FAKE_CUDA_FAIL=SYMBOL:K      the K-th call fails, as by fake_cuda_fail;
//                                those of the other fakes too
//   FAKE_CUDA_VERSION=N          of CUDA that the driver is for (13000)
//   FAKE_NVRTC_CACHE=FOLDER      where compiled kernels are kept
//   FAKE_CUBLASLT_VERSION=N      (130000)
//   FAKE_CUBLASLT_PLANS=N        ways of each product (1). Of several the last
//                                but one is marked as none, and the last one is
//                                refused when it is used
//   FAKE_CUBLASLT_FASTEST=I      of them (0). Each takes 100 s more than its
//                                neighbour, by the clock of events alone;
//                                products that run are counted as calls of
//                                "plan I"
//   FAKE_CUBLASLT_KERNELS=N      that each product takes (1); up to three
//   differ FAKE_CUBLASLT_SLEEP=MS       that each product really takes on top
//   (0), by the ranks' clock FAKE_CUBLASLT_WRONG=N        results of N elements get a wrong one, but
//   for FAKE_CUBLASLT_RIGHT=N        the first ones of these (0)
//   FAKE_CUDNN_VERSION=N         (91900)
//   FAKE_CUDNN_WAYS=N            of each attention (2), of which the first
//   FAKE_CUDNN_LACKING=N         have no kernel (0)
//   FAKE_CUDNN_KERNELS=N         that each attention takes, beside a fill (1);
//   up
//                                to three differ
//   FAKE_CUDNN_WORKSPACE=N       bytes that each fills first (256); 0: no fill
//   FAKE_CUDNN_CLEARS=1          that each fills no bytes of an operand, too
//   FAKE_CUBLASMP_VERSION=N      (700)
//   FAKE_NCCL_VERSION=N          (22809)
//   FAKE_NCCL_LATE=MS            that a communicator is joined later than by
//   all
//   FAKE_NCCL_NEVER_BLOCKS=1     of those that are split, whatever is asked for
#ifndef HD_FAKE_CUDA_H
#define HD_FAKE_CUDA_H

#include <stddef.h>

#include "api.h"

extern "C" {

// What is put into streams with one of these runs in that order, whichever the
// streams are: within a capture, or outside of all.
typedef struct fake_cuda_order fake_cuda_order;
fake_cuda_order *fake_cuda_order_new(void);
void fake_cuda_order_free(fake_cuda_order *order);

// Puts fn(data) into the stream; a capture takes it and replays it any number
// of times, and release(data) follows the last. What fn returns other than 0
// fails the context for good, as a kernel's illegal access does. `order` may be
// NULL.
hd_cu_result fake_cuda_enqueue(hd_cu_stream stream, int (*fn)(void *data),
                               void *data, void (*release)(void *data),
                               fake_cuda_order *order);

// 1 if all of the range lies in one piece of memory that kernels may touch.
int fake_cuda_reaches(const void *at, size_t bytes);

// How many objects are alive, and which, as "2 streams, 1 event". A retained
// context counts once for every retain.
int fake_cuda_balance(char *out, size_t bytes);

// Calls of a symbol in this process since it started or was reset. Of what is
// put into streams, "word waits", "word writes" and "timed records", those of
// events that have times, count one by one; so does all that streams and graphs
// do, when they do it, as "work of streams".
long fake_cuda_calls(const char *symbol);

// How many pieces of memory are there that handles were made of.
int fake_cuda_exported(void);

// From now on every allocation has another number, as if all had been freed and
// made anew at the same addresses.
void fake_cuda_renumber(void);

// Lets the k-th call from now fail, once; k < 1 lets none. What destroys or
// releases does so all the same, and then reports the failure. The "work of
// streams" that is to fail kills the process.
void fake_cuda_fail(const char *symbol, long k);
void fake_cuda_reset(void);

// For the other fakes, so that their calls fail and their objects count too.
hd_cu_result fake_cuda_enter(const char *symbol);
void fake_cuda_account(const char *what, int by);

// The context of this thread, and to have it as that of another: as CUDA's
// runtime does for libraries, by no call of the driver that may fail.
hd_cu_context fake_cuda_context(void);
void fake_cuda_adopt(hd_cu_context context);

// From now on the clock of events is so much later.
void fake_cuda_spend(double seconds);

// Sets how far each kernel puts it forward, in streams at rest.
void fake_cuda_kernels_spend(double seconds);

// Memory as other allocators make it: no handle can be had of it.
hd_cu_result fake_cuda_alloc_unshared(hd_cu_ptr *out, size_t bytes);
}

#endif
