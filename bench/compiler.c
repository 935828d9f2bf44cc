// How long the compiler takes: the whole command on a small ring, the library
// on a program of 1,000 tensor ops, and the walker per step.
//
//   bench_compiler HEDDLE RING.hd
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "bench/bench.h"
#include "ir/walk.h"

extern char **environ;

enum { PROCESSES = 101, LIBRARY_RUNS = 21, OPS = 1000 };

static void report(const char *what, double *samples, size_t n, double limit,
                   const char *unit)
{
    double median = bench_percentile(samples, n, 0.5);

    printf("%-44s %9.3f %-8s p5 %9.3f  p95 %9.3f  goal %g\n", what, median,
           unit, bench_percentile(samples, n, 0.05),
           bench_percentile(samples, n, 0.95), limit);
}

static void time_process(const char *heddle, const char *ring)
{
    double samples[PROCESSES];
    char *argv[] = {(char *)heddle, "dump", (char *)ring, "-D",
                    "tp=8",         "-o",   "/dev/null",  NULL};

    for (int i = 0; i < PROCESSES; i++) {
        double start = bench_now();
        pid_t pid;
        int status;

        if (posix_spawn(&pid, heddle, NULL, NULL, argv, environ) != 0 ||
            waitpid(pid, &status, 0) < 0 || status != 0)
            bench_die("heddle dump failed");
        samples[i] = (bench_now() - start) * 1e3;
    }
    report("parse + lower + print, 8-rank ring, process", samples, PROCESSES,
           5.0, "ms");
}

// A chain of element-wise ops, gathers and matmuls, as a framework emits it.
static char *write_program(int nops)
{
    hd_text text = {0};

    hd_text_puts(&text, "heddle 2\ntensor program big\nmesh tp=8\n"
                        "in %x0 : bf16[8@tp, 128, 256]\n"
                        "in %w : bf16[256, 256]\n");
    for (int i = 1; i <= nops; i++) {
        const char *mark = i % 4 == 1 ? "stream" : i % 4 == 2 ? "stream" : "tp";

        hd_text_printf(&text, "%s %%x%d : bf16[8@%s, 128, 256]\n",
                       i == nops ? "out" : "temp", i, mark);
    }
    hd_text_puts(&text, "{\n");
    for (int i = 1; i <= nops; i++) {
        const char *op = i % 4 == 1   ? "set"
                         : i % 4 == 2 ? "matmul"
                         : i % 4 == 3 ? "set"
                                      : "gelu";
        hd_text_printf(&text, "    %%x%d = %s %%x%d%s\n", i, op, i - 1,
                       i % 4 == 2 ? ", %w" : "");
    }
    hd_text_puts(&text, "}\n");
    return hd_text_take(&text);
}

static void time_lowering(void)
{
    char *text = write_program(OPS);
    double lower[LIBRARY_RUNS], parse[LIBRARY_RUNS];
    hd_lower_options options = hd_lower_defaults();
    hd_diag *diag = hd_diag_create();

    options.transfer = HD_TRANSFER_RING;
    for (int i = 0; i < LIBRARY_RUNS; i++) {
        hd_module *module;
        double start = bench_now();

        if (hd_parse("big", text, strlen(text), NULL, 0, diag, &module) !=
            HD_OK)
            bench_die(hd_diag_text(diag));
        parse[i] = (bench_now() - start) * 1e3;
        start = bench_now();
        if (hd_lower(module, &options, NULL, NULL, diag) != HD_OK)
            bench_die(hd_diag_text(diag));
        lower[i] = (bench_now() - start) * 1e3;
        hd_module_destroy(module);
    }
    report("parse, 1,000 tensor ops", parse, LIBRARY_RUNS, 50.0, "ms");
    report("lower, 1,000 tensor ops", lower, LIBRARY_RUNS, 200.0, "ms");
    hd_diag_destroy(diag);
    hd_free(text);
}

static hd_status count_steps(void *context, const hd_step *steps, int n)
{
    (void)steps;
    *(long *)context += n;
    return HD_OK;
}

// A loop of 100,000 iterations with the ring's statements.
static void time_walk(void)
{
    const char *text =
        "heddle 2\nhost program loop\nmesh tp=8\nstreams 4\n"
        "in %a : bf16[8@tp, 16, 16]\nin %b : bf16[16, 16]\n"
        "out %c : bf16[8, 16, 16]\ntemp %ag : bf16[8, 16, 16] shared\n"
        "temp %hop : event[8]\n{\n    %ag[tp] = copy %a[tp]\n"
        "    %hop[0] = record\n    for j in 0..100000 {\n"
        "        on stream j mod 4 {\n            let i = (tp - j) mod 8\n"
        "            wait %hop[j mod 8]\n            group {\n"
        "                send %ag[i] to (tp + 1) mod 8\n"
        "                %ag[(i - 1) mod 8] = recv from (tp - 1) mod 8\n"
        "            }\n            %hop[(j + 1) mod 8] = record\n"
        "            %c[i] = matmul %ag[i], %b\n        }\n    }\n    "
        "join\n}\n";
    double samples[LIBRARY_RUNS];
    hd_diag *diag = hd_diag_create();
    hd_module *module;

    if (hd_parse("loop", text, strlen(text), NULL, 0, diag, &module) != HD_OK)
        bench_die(hd_diag_text(diag));
    for (int i = 0; i < LIBRARY_RUNS; i++) {
        long steps = 0;
        double start = bench_now();

        if (hd_walk(module, 3, diag, count_steps, &steps) != HD_OK)
            bench_die(hd_diag_text(diag));
        samples[i] = (bench_now() - start) * 1e6 / (double)steps;
    }
    report("walk, per step", samples, LIBRARY_RUNS, 0.3, "us");
    hd_module_destroy(module);
    hd_diag_destroy(diag);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        bench_die("usage: bench_compiler HEDDLE RING.hd");
    time_process(argv[1], argv[2]);
    time_lowering();
    time_walk();
    return 0;
}
