// How long a check and a simulation take, on one core, by number of ranks: of
// the ring all-gather + matmul on four streams as lowered, whose ranks turn, so
// that one is proven; of the same with a condition that asks for the rank, so
// that all are; of a program whose order goes by way of peers, so that the
// whole of it is replayed for every rank; of joins of many streams; and of a
// long loop.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <heddle/simulate.h>

#include "base/text.h"
#include "bench/bench.h"
#include "heddle/heddle.h"

static const char ring[] = "heddle 2\n"
                           "tensor program ag_linear\n"
                           "mesh tp=8\n"
                           "in   %a  : bf16[size tp @tp, 128, 1024]\n"
                           "in   %w  : bf16[1024, 1024]\n"
                           "out  %c  : bf16[size tp @stream, 128, 1024]\n"
                           "temp %ag : bf16[size tp @stream, 128, 1024]\n"
                           "{\n"
                           "    %ag = set %a\n"
                           "    %c = matmul %ag, %w tb\n"
                           "}\n";

static hd_module *lower_ring(int ranks, hd_diag *diag)
{
    hd_define define = {"tp", ranks};
    hd_lower_options options = hd_lower_defaults();
    hd_module *module;

    options.transfer = HD_TRANSFER_RING;
    options.streams = 4;
    if (hd_parse("ring", ring, strlen(ring), &define, 1, diag, &module) !=
            HD_OK ||
        hd_lower(module, &options, NULL, NULL, diag) != HD_OK)
        bench_die(hd_diag_text(diag));
    return module;
}

static hd_module *parse_text(const char *text, int ranks, hd_diag *diag)
{
    hd_define define = {"tp", ranks};
    hd_module *module;

    if (hd_parse("text", text, strlen(text), &define, 1, diag, &module) !=
        HD_OK)
        bench_die(hd_diag_text(diag));
    return module;
}

// Nothing happens in the condition, but the text does not say so.
static hd_module *lower_uneven_ring(int ranks, hd_diag *diag)
{
    hd_module *even = lower_ring(ranks, diag), *module;
    hd_text text = {0};
    char *printed, *body;

    if (hd_print(even, &printed) != HD_OK)
        bench_die(hd_diag_text(diag));
    body = strstr(printed, "\n{\n");
    if (body == NULL)
        bench_die(hd_diag_text(diag));
    hd_text_printf(&text, "%.*s\n{\n    if tp == 0 {\n    }\n%s",
                   (int)(body - printed), printed, body + 3);
    module = parse_text(text.bytes, ranks, diag);
    hd_text_free(&text);
    hd_free(printed);
    hd_module_destroy(even);
    return module;
}

static hd_module *parse_forks(int ranks, hd_diag *diag)
{
    return parse_text("heddle 2\nhost program forks\nmesh tp=8\nstreams 64\n"
                      "in %a : f32[4]\nout %b : f32[4]\n{\n"
                      "    if tp == 1 {\n    }\n    for i in 0..1000 {\n"
                      "        fork\n        join\n    }\n"
                      "    %b = copy %a\n}\n",
                      ranks, diag);
}

static hd_module *parse_copies(int ranks, hd_diag *diag)
{
    return parse_text("heddle 2\nhost program copies\nmesh tp=1\n"
                      "in %a : f32[4]\nout %b : f32[4]\n{\n"
                      "    for i in 0..16777216 {\n"
                      "        %b = copy %a\n    }\n}\n",
                      ranks, diag);
}

// Stream 1 overwrites %x once peers have answered that they have it.
static hd_module *parse_answers(int ranks, hd_diag *diag)
{
    hd_text text = {0};
    hd_define define = {"tp", ranks};
    hd_module *module;

    hd_text_puts(&text, "heddle 2\nhost program answers\nmesh tp=8\nstreams 4\n"
                        "in %a : f32[64]\nin %one : f32[1]\n"
                        "out %y : f32[size tp, 64] shared\n"
                        "temp %x : f32[64]\ntemp %word : f32[size tp] shared\n"
                        "{\n    %x = copy %a\n    %y[tp] = copy %a\n    fork\n"
                        "    for j in 1..size tp {\n"
                        "        let dst = (tp + j) mod size tp\n"
                        "        let src = (tp - j) mod size tp\n"
                        "        on stream j mod 2 {\n"
                        "            group {\n"
                        "                send %x to dst\n"
                        "                %y[src] = recv from src\n"
                        "            }\n"
                        "            send %one to src\n"
                        "        }\n"
                        "        on stream 2 {\n"
                        "            %word[dst] = recv from dst\n"
                        "        }\n"
                        "    }\n"
                        "    on stream 2 {\n        %x = copy %a\n    }\n"
                        "    join\n}\n");
    if (hd_parse("answers", text.bytes, text.length, &define, 1, diag,
                 &module) != HD_OK)
        bench_die(hd_diag_text(diag));
    hd_text_free(&text);
    return module;
}

typedef hd_status measured_fn(const hd_module *module, hd_diag *diag);

static hd_status check(const hd_module *module, hd_diag *diag)
{
    return hd_check(module, NULL, diag);
}

static hd_status simulate(const hd_module *module, hd_diag *diag)
{
    hd_machine machine = HD_EMPTY(hd_machine);
    hd_machine_default(&machine);
    hd_simulation *simulation;
    hd_status status = hd_simulate(module, &machine, diag, &simulation);

    if (status == HD_OK)
        hd_simulation_destroy(simulation);
    return status;
}

static void measure(const char *name, measured_fn *fn,
                    hd_module *(*make)(int, hd_diag *), int ranks, int runs,
                    double goal)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = make(ranks, diag);
    double samples[101];
    struct rusage usage;

    for (int i = 0; i < runs; i++) {
        double start = bench_now();

        if (fn(module, diag) != HD_OK)
            bench_die(hd_diag_text(diag));
        samples[i] = (bench_now() - start) * 1e3;
    }
    getrusage(RUSAGE_SELF, &usage);
    printf("%-18s %4d ranks %22.3f ms       p5 %9.3f  p95 %9.3f", name, ranks,
           bench_percentile(samples, (size_t)runs, 0.5),
           bench_percentile(samples, (size_t)runs, 0.05),
           bench_percentile(samples, (size_t)runs, 0.95));
    if (goal > 0)
        printf("  goal %g", goal);
    printf("  %ld MB\n", usage.ru_maxrss / 1024);
    hd_module_destroy(module);
    hd_diag_destroy(diag);
}

int main(void)
{
    measure("check, ring", check, lower_ring, 8, 101, 20);
    measure("check, ring", check, lower_ring, 64, 21, 50);
    measure("check, ring", check, lower_ring, 256, 7, 500);
    measure("check, ring", check, lower_ring, 1024, 3, 2000);
    measure("check, ring", check, lower_ring, 4096, 3, 3000);
    measure("check, uneven ring", check, lower_uneven_ring, 8, 101, 20);
    measure("check, uneven ring", check, lower_uneven_ring, 64, 21, 50);
    measure("check, uneven ring", check, lower_uneven_ring, 256, 7, 500);
    measure("check, uneven ring", check, lower_uneven_ring, 1024, 1, 2000);
    measure("check, forks", check, parse_forks, 4096, 1, 0);
    measure("check, copies", check, parse_copies, 1, 1, 16777);
    measure("check, answers", check, parse_answers, 8, 21, 0);
    measure("check, answers", check, parse_answers, 64, 3, 0);
    measure("simulate, ring", simulate, lower_ring, 8, 101, 0);
    measure("simulate, ring", simulate, lower_ring, 1024, 3, 10000);
    return 0;
}
