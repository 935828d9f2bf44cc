// All-gather + matmul on rank processes of this host, against one process that
// does the same floating-point operations with as many threads as there are
// processors. The two take turns in one run, so that a noisy machine slows
// both; what counts is the ratio of the medians.
//
//   bench_ag_matmul [RANKS [M N K [ITERATIONS]]]
//
// C = A[M, K] W[N, K]^T in f32, A sharded over rows and gathered. Two layouts:
// `whole`, in which every rank holds W and computes all of C, RANKS times the
// work in total; and `columns`, in which each rank holds N / RANKS rows of W
// and computes as many columns of C.
#include <cblas.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "heddle/heddle.h"

void openblas_set_num_threads(int n);

typedef struct job {
    int ranks;
    int m, n, k;
    int iterations;
    bool whole; // every rank holds all of W
    hd_lower_options options;
    char what[64];
} job;

static void die(const char *what)
{
    fprintf(stderr, "bench_ag_matmul: %s\n", what);
    _exit(1);
}

static float *random_floats(size_t n, unsigned seed)
{
    float *to = malloc(n * sizeof *to);

    if (to == NULL)
        die("out of memory");
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (float)(seed >> 8) * 0x1p-23f - 1.0f;
    }
    return to;
}

static hd_module *build(const job *job, hd_diag *diag)
{
    char text[1024], w[32], c[32];
    hd_module *module;
    int r = job->ranks;

    if (job->whole) {
        snprintf(w, sizeof w, "%d", job->n);
        c[0] = '\0';
    } else {
        snprintf(w, sizeof w, "%d@tp, %d", r, job->n / r);
        snprintf(c, sizeof c, "%d@tp, ", r);
    }
    snprintf(text, sizeof text,
             "heddle 1\ntensor program ag\nmesh tp=%d\n"
             "in %%a : f32[%d@tp, %d, %d]\nin %%w : f32[%s, %d]\n"
             "out %%c : f32[%s%d@stream, %d, %d]\n"
             "temp %%ag : f32[%d@stream, %d, %d]\n"
             "{\n%%ag = set %%a\n%%c = matmul %%ag, %%w tb\n}\n",
             r, r, job->m / r, job->k, w, job->k, c, r, job->m / r,
             job->whole ? job->n : job->n / r, r, job->m / r, job->k);
    if (hd_parse("bench", text, strlen(text), NULL, 0, diag, &module) !=
            HD_OK ||
        hd_lower(module, &job->options, NULL, NULL, diag) != HD_OK)
        die(hd_diag_text(diag));
    return module;
}

static double time_reference(const job *job, const float *a, const float *w,
                             float *c)
{
    double start;

    openblas_set_num_threads((int)sysconf(_SC_NPROCESSORS_ONLN));
    start = bench_now();
    for (int i = 0; i < (job->whole ? job->ranks : 1); i++)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, job->m, job->n,
                    job->k, 1.0f, a, job->k, w, job->k, 0.0f, c, job->n);
    start = bench_now() - start;
    openblas_set_num_threads(1);
    return start;
}

static void barrier(hd_group *group, hd_diag *diag)
{
    if (hd_group_allgather(group, NULL, 0, NULL, diag) != HD_OK)
        die(hd_diag_text(diag));
}

static double time_session(hd_session *session, void *const *arguments,
                           hd_diag *diag)
{
    double start = bench_now();

    if (hd_session_run(session, arguments, 3, diag) != HD_OK ||
        hd_session_finish(session, diag) != HD_OK)
        die(hd_diag_text(diag));
    return bench_now() - start;
}

static hd_status rank_main(void *context, hd_group *group)
{
    const job *job = context;
    hd_diag *diag = hd_diag_create();
    hd_module *module = build(job, diag);
    hd_session_options options = hd_session_defaults();
    hd_session *session;
    size_t m = (size_t)job->m, n = (size_t)job->n, k = (size_t)job->k;
    size_t r = (size_t)job->ranks;
    int rank = hd_group_rank(group);
    unsigned seed = (unsigned)rank * 7u + 1u;
    size_t columns = job->whole ? n : n / r;
    float *a = random_floats(m / r * k, seed),
          *w = random_floats(columns * k, ~seed);
    float *c = random_floats(m * columns, seed + 2u);
    void *arguments[] = {a, w, c};
    float *ra = NULL, *rw = NULL, *rc = NULL;
    double *ours = calloc((size_t)job->iterations, sizeof *ours);
    double *theirs = calloc((size_t)job->iterations, sizeof *theirs);
    double *all = calloc(r, sizeof *all);

    if (rank == 0) {
        ra = random_floats(m * k, 5);
        rw = random_floats(n * k, 6);
        rc = random_floats(m * n, 7);
    }
    if (hd_session_create(group, module, &options, diag, &session) != HD_OK)
        die(hd_diag_text(diag));
    for (int i = -2; i < job->iterations; i++) { // the first two warm up
        double mine, slowest = 0, reference = 0;

        if (rank == 0)
            reference = time_reference(job, ra, rw, rc);
        barrier(group, diag);
        mine = time_session(session, arguments, diag);
        if (hd_group_allgather(group, &mine, sizeof mine, all, diag) != HD_OK)
            die(hd_diag_text(diag));
        for (size_t p = 0; p < r; p++)
            slowest = all[p] > slowest ? all[p] : slowest;
        if (i >= 0) {
            ours[i] = slowest;
            theirs[i] = reference;
        }
    }
    if (rank == 0) {
        size_t count = (size_t)job->iterations;
        double o = bench_percentile(ours, count, 0.5);
        double t = bench_percentile(theirs, count, 0.5);

        printf("%-42s %8.1f ms  one process %8.1f ms  ratio %.3f\n", job->what,
               o * 1e3, t * 1e3, t / o);
    }
    hd_session_destroy(session);
    hd_module_destroy(module);
    hd_diag_destroy(diag);
    free(a), free(w), free(c), free(ra), free(rw), free(rc);
    free(ours), free(theirs), free(all);
    return HD_OK;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"bulk", "pipelined", "broadcast",
                                        "direct", "ring"};
    job job = {.ranks = 8, .m = 2048, .n = 2048, .k = 2048, .iterations = 15};
    hd_diag *diag = hd_diag_create();
    int *const fields[] = {&job.ranks, &job.m, &job.n, &job.k, &job.iterations};

    for (int i = 1; i < argc && i <= 5; i++)
        *fields[i - 1] = atoi(argv[i]);
    if (argc > 6 || job.ranks < 1 || job.iterations < 1 ||
        job.m % job.ranks != 0 || job.n % job.ranks != 0)
        die("usage: bench_ag_matmul [RANKS [M N K [ITERATIONS]]]; "
            "RANKS divides M and N");
    for (int i = 0; i < 20; i++) {
        job.options = hd_lower_defaults();
        job.whole = i < 10;
        job.options.transfer = (hd_transfer)(i % 10 / 2);
        job.options.streams = 1 + i % 2;
        snprintf(job.what, sizeof job.what, "%s: %s, %d streams, %d ranks",
                 job.whole ? "whole" : "columns", names[job.options.transfer],
                 job.options.streams, job.ranks);
        fflush(stdout);
        if (hd_launch(job.ranks, 30, 600, rank_main, &job, diag) != HD_OK)
            die(hd_diag_text(diag));
    }
    hd_diag_destroy(diag);
    return 0;
}
