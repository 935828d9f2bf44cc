// OpenBLAS is the process's: the host may use the same copy. So it stays
// loaded, and its number of threads is 1 only while products of ours run.
#include "runtime/cpu/blas.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/diag.h"
#include "base/log.h"

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; // of cblas.h

// OpenBLAS 0.3.21 maps 128 MiB for each thread that multiplies, tries again for
// ever where that fails, and ends the process if it cannot start its threads as
// it is loaded. So it is left alone where the address space (ulimit -v) has a
// limit that these and a program's tensors may well reach.
static hd_status check_addresses(hd_diag *diag)
{
    enum { ENOUGH_GIB = 16 };
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >> 30 >= ENOUGH_GIB)
        return HD_OK;
    return hd_fail(diag, HD_ERROR_UNSUPPORTED,
                   "ulimit -v is %llu MiB, and it may need %d GiB",
                   (unsigned long long)limit.rlim_cur >> 20, ENOUGH_GIB);
}

// The second word of the configuration, "OpenBLAS 0.3.21 ...".
static bool read_version(const void *table, char out[HD_LIBRARY_VERSION])
{
    const char *config = ((const hd_cpu_blas *)table)->openblas_get_config();

    *out = '\0';
    sscanf(config, "OpenBLAS %63[^ ]", out);
    return true;
}

static const hd_symbol symbols[] = {
#define HD_BLAS(name, result, parameters) {#name, offsetof(hd_cpu_blas, name)},
#include "runtime/cpu/blas.def"
#undef HD_BLAS
};

const hd_library_info hd_blas_library = {
    .title = "OpenBLAS",
    .variable = "HEDDLE_OPENBLAS_LIB",
    .names = (const char *const[]){"libopenblas.so.0", "libopenblas.so", NULL},
    .folders = (const char *const[]){NULL},
    .symbol = symbols,
    .nsymbols = sizeof symbols / sizeof *symbols,
    .bytes = sizeof(hd_cpu_blas),
    .use = "matmul on the cpu, on one thread a stream; without it built-in "
           "loops do it, slowly",
    .install = "apt install libopenblas0",
    .instead = "built-in loops",
    .check = check_addresses,
    .version = read_version,
};

void hd_cpu_blas_open(hd_cpu_blas *out)
{
    hd_message message = {.size = sizeof message, .text = "OpenBLAS is needed"};
    hd_diag *diag = NULL;
    hd_status status;

    memset(out, 0, sizeof *out);
    // Its words cost memory, and are wanted only where there is none, or by
    // those who listen.
    status = hd_log_on()
                 ? HD_ERROR_UNSUPPORTED
                 : hd_library_open(&hd_blas_library, out, NULL, &out->library);
    if (status != HD_OK) {
        diag = hd_diag_create();
        status = hd_library_open(&hd_blas_library, out, diag, &out->library);
    }
    if (diag != NULL)
        hd_diag_message(diag, 0, &message);
    if (status == HD_OK)
        snprintf(out->name, sizeof out->name, "%s %s (%.180s)",
                 hd_blas_library.title, out->library.version,
                 out->library.path);
    else
        snprintf(out->name, sizeof out->name, "%s (%.*s)",
                 hd_blas_library.instead, (int)sizeof out->name - 32,
                 message.text);
    hd_diag_destroy(diag);
}

void hd_cpu_blas_close(hd_cpu_blas *blas)
{
    hd_library_close(&blas->library);
}

// OpenBLAS has one number of threads for the process, and streams multiply at
// once: the first of them notes the host's number and the last puts it back.
static pthread_mutex_t one_thread = PTHREAD_MUTEX_INITIALIZER;
static int one_thread_calls; // guarded by the mutex: products that run
static int host_threads;     // likewise: what the host had

static void enter(const hd_cpu_blas *blas)
{
    pthread_mutex_lock(&one_thread);
    if (one_thread_calls++ == 0) {
        host_threads = blas->openblas_get_num_threads();
        if (host_threads != 1)
            blas->openblas_set_num_threads(1);
    }
    pthread_mutex_unlock(&one_thread);
}

// What the host itself has set meanwhile stays.
static void leave(const hd_cpu_blas *blas)
{
    pthread_mutex_lock(&one_thread);
    if (--one_thread_calls == 0 && host_threads != 1 &&
        blas->openblas_get_num_threads() == 1)
        blas->openblas_set_num_threads(host_threads);
    pthread_mutex_unlock(&one_thread);
}

// The built-in loops: the middle loop runs over k, so that rows of B and C are
// read in order where B is not transposed.
#define DEFINE_LOOPS(name, type)                                              \
    static void name(const hd_gemm *g, const type *a, const type *b, type *c) \
    {                                                                         \
        for (int i = 0; i < g->m; i++) {                                      \
            type *row = c + (ptrdiff_t)i * g->ldc;                            \
                                                                              \
            for (int j = 0; j < g->n; j++)                                    \
                row[j] = 0;                                                   \
            for (int p = 0; p < g->k; p++) {                                  \
                type x =                                                      \
                    (type)g->alpha * (g->ta ? a[(ptrdiff_t)p * g->lda + i]    \
                                            : a[(ptrdiff_t)i * g->lda + p]);  \
                                                                              \
                for (int j = 0; j < g->n; j++)                                \
                    row[j] += x * (g->tb ? b[(ptrdiff_t)j * g->ldb + p]       \
                                         : b[(ptrdiff_t)p * g->ldb + j]);     \
            }                                                                 \
        }                                                                     \
    }
DEFINE_LOOPS(multiply_floats, float)
DEFINE_LOOPS(multiply_doubles, double)
#undef DEFINE_LOOPS

void hd_cpu_blas_sgemm(const hd_cpu_blas *blas, const hd_gemm *gemm,
                       const float *a, const float *b, float *c)
{
    if (blas->library.handle == NULL) {
        multiply_floats(gemm, a, b, c);
        return;
    }
    enter(blas);
    blas->cblas_sgemm(ROW_MAJOR, gemm->ta ? TRANS : NO_TRANS,
                      gemm->tb ? TRANS : NO_TRANS, gemm->m, gemm->n, gemm->k,
                      (float)gemm->alpha, a, gemm->lda, b, gemm->ldb, 0, c,
                      gemm->ldc);
    leave(blas);
}

void hd_cpu_blas_dgemm(const hd_cpu_blas *blas, const hd_gemm *gemm,
                       const double *a, const double *b, double *c)
{
    if (blas->library.handle == NULL) {
        multiply_doubles(gemm, a, b, c);
        return;
    }
    enter(blas);
    blas->cblas_dgemm(ROW_MAJOR, gemm->ta ? TRANS : NO_TRANS,
                      gemm->tb ? TRANS : NO_TRANS, gemm->m, gemm->n, gemm->k,
                      gemm->alpha, a, gemm->lda, b, gemm->ldb, 0, c, gemm->ldc);
    leave(blas);
}
