// The symbols come from cpu_blas.def; all of them or none are used.
#include "runtime/cpu_blas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 }; // of cblas.h

static bool load_symbols(hd_cpu_blas *blas, const char **missing)
{
    void *symbol;

    // ISO C has no cast from an object pointer to a function; memcpy is POSIX's
    // way round that.
#define HD_BLAS(symbol_name, result, parameters) \
    symbol = dlsym(blas->library, #symbol_name); \
    if (symbol == NULL) {                        \
        *missing = #symbol_name;                 \
        return false;                            \
    }                                            \
    memcpy(&blas->symbol_name, &symbol, sizeof symbol);
#include "runtime/cpu_blas.def"
#undef HD_BLAS
    return true;
}

// OpenBLAS 0.3.21 maps 128 MiB for each thread that multiplies, tries again for
// ever where that fails, and ends the process if it cannot start its threads as
// it is loaded. So it is left alone where the address space (ulimit -v) has a
// limit that these and a program's tensors may well reach.
static bool is_short_of_addresses(char *why, size_t room)
{
    enum { ENOUGH_GIB = 16 };
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >> 30 >= ENOUGH_GIB)
        return false;
    snprintf(why, room, "ulimit -v is %llu MiB, and it may need %d GiB",
             (unsigned long long)limit.rlim_cur >> 20, ENOUGH_GIB);
    return true;
}

static bool open_library(hd_cpu_blas *blas, const char *path, char *why,
                         size_t room)
{
    const char *missing = NULL;

    blas->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (blas->library == NULL) {
        snprintf(why, room, "%s", dlerror());
        return false;
    }
    if (load_symbols(blas, &missing))
        return true;
    snprintf(why, room, "%s lacks %s", path, missing);
    dlclose(blas->library);
    blas->library = NULL;
    return false;
}

// The version is the second word of the configuration, "OpenBLAS 0.3.21 ...".
static void describe(hd_cpu_blas *blas, const char *path)
{
    const char *config = blas->openblas_get_config();
    int length = 0;

    if (strncmp(config, "OpenBLAS ", 9) == 0)
        length = 9 + (int)strcspn(config + 9, " ");
    snprintf(blas->name, sizeof blas->name, "%.*s (%s)", length, config, path);
}

void hd_cpu_blas_open(hd_cpu_blas *out)
{
    static const char *const names[] = {"libopenblas.so.0", "libopenblas.so"};
    const char *chosen = getenv("HEDDLE_OPENBLAS_LIB");
    const char *path = chosen != NULL ? chosen : names[0];
    char why[120] = "";
    bool found;

    memset(out, 0, sizeof *out);
    found = !is_short_of_addresses(why, sizeof why) &&
            (open_library(out, path, why, sizeof why) ||
             (chosen == NULL &&
              open_library(out, path = names[1], why, sizeof why)));
    if (!found) {
        snprintf(out->name, sizeof out->name,
                 "built-in loops (no OpenBLAS: %s)", why);
        return;
    }
    out->openblas_set_num_threads(1);
    describe(out, path);
}

void hd_cpu_blas_close(hd_cpu_blas *blas)
{
    if (blas->library != NULL)
        dlclose(blas->library);
    blas->library = NULL;
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
                row[j] = g->beta == 0 ? 0 : (type)g->beta * row[j];           \
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
    if (blas->library == NULL)
        multiply_floats(gemm, a, b, c);
    else
        blas->cblas_sgemm(ROW_MAJOR, gemm->ta ? TRANS : NO_TRANS,
                          gemm->tb ? TRANS : NO_TRANS, gemm->m, gemm->n,
                          gemm->k, (float)gemm->alpha, a, gemm->lda, b,
                          gemm->ldb, (float)gemm->beta, c, gemm->ldc);
}

void hd_cpu_blas_dgemm(const hd_cpu_blas *blas, const hd_gemm *gemm,
                       const double *a, const double *b, double *c)
{
    if (blas->library == NULL)
        multiply_doubles(gemm, a, b, c);
    else
        blas->cblas_dgemm(ROW_MAJOR, gemm->ta ? TRANS : NO_TRANS,
                          gemm->tb ? TRANS : NO_TRANS, gemm->m, gemm->n,
                          gemm->k, gemm->alpha, a, gemm->lda, b, gemm->ldb,
                          gemm->beta, c, gemm->ldc);
}
