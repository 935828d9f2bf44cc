// What a compiler that embeds the library pays: a program from the builder and
// from a text, a program and a session that a cache has or makes, and the issue
// of a run of one step on one rank.
#include <string.h>

#include <heddle/async.h>
#include <heddle/build.h>
#include <heddle/cache.h>

#include "bench/bench.h"

enum { SAMPLES = 501, MAKES = 101 };

static const char text[] =
    "heddle 2\ntensor program step\nparam m = 64\nmesh tp=4\n"
    "in %x : f32[4@tp, m, 256]\nin %w : f32[256, 256]\n"
    "out %y : f32[4@stream, m, 256]\ntemp %g : f32[4@stream, m, 256]\n"
    "{\n    %g = set %x\n    %y = matmul %g, %w\n}\n";

static void try(hd_status status, hd_diag *diag)
{
    if (status != HD_OK)
        bench_die(hd_diag_text(diag));
}

static void report(const char *what, double *samples, size_t n)
{
    double median = bench_percentile(samples, n, 0.5);

    printf("%-36s %9.2f us  (10%% %.2f, 90%% %.2f)\n", what, median * 1e6,
           bench_percentile(samples, n, 0.1) * 1e6,
           bench_percentile(samples, n, 0.9) * 1e6);
}

static void add_buffer(hd_builder *builder, hd_role role, const char *name,
                       const char *mark, const char *rows)
{
    hd_build_buffer buffer = HD_EMPTY(hd_build_buffer);

    buffer.role = role;
    buffer.dtype = HD_DTYPE_F32;
    buffer.name = name;
    if (mark != NULL) {
        buffer.mark[0] = mark;
        buffer.extent[buffer.ndims++] = 4;
    }
    buffer.length[buffer.ndims++] = rows;
    buffer.extent[buffer.ndims++] = 256;
    hd_builder_buffer(builder, &buffer, 1);
}

static void add_op(hd_builder *builder, const char *name, const char *result,
                   const char *const *operands, size_t noperands)
{
    hd_build_op op = HD_EMPTY(hd_build_op);

    op.op = name;
    op.results = &result;
    op.nresults = 1;
    op.operands = operands;
    op.noperands = noperands;
    hd_builder_op(builder, &op, 2);
}

static hd_module *build(hd_diag *diag)
{
    const char *factors[] = {"g", "w"}, *x = "x";
    hd_builder *builder;
    hd_module *module;

    try(hd_builder_create("step", HD_STAGE_TENSOR, diag, &builder), diag);
    hd_builder_axis(builder, "tp", 4, 0);
    hd_builder_param(builder, "m", 64, 0);
    add_buffer(builder, HD_ROLE_IN, "x", "tp", "m");
    add_buffer(builder, HD_ROLE_IN, "w", NULL, "256");
    add_buffer(builder, HD_ROLE_OUT, "y", "stream", "m");
    add_buffer(builder, HD_ROLE_TEMP, "g", "stream", "m");
    add_op(builder, "set", "g", &x, 1);
    add_op(builder, "matmul", "y", factors, 2);
    try(hd_builder_finish(builder, diag, &module), diag);
    hd_builder_destroy(builder);
    return module;
}

static void measure_making(hd_diag *diag)
{
    double built[SAMPLES], parsed[SAMPLES];

    for (int i = 0; i < SAMPLES; i++) {
        hd_module *module;
        double begin = bench_now();

        module = build(diag);
        built[i] = bench_now() - begin;
        hd_module_destroy(module);
        begin = bench_now();
        try(hd_parse("step.hd", text, strlen(text), NULL, 0, diag, &module),
            diag);
        parsed[i] = bench_now() - begin;
        hd_module_destroy(module);
    }
    report("a program by the builder", built, SAMPLES);
    report("the same by a text", parsed, SAMPLES);
}

static double get(hd_cache *cache, const hd_cache_request *request,
                  hd_diag *diag)
{
    const hd_module *module;
    double begin = bench_now(), took;

    try(hd_cache_get(cache, request, diag, &module), diag);
    took = bench_now() - begin;
    hd_cache_release(cache, module);
    return took;
}

static hd_cache_request ask_for_text(const hd_define *m)
{
    hd_cache_request request = HD_EMPTY(hd_cache_request);

    request.name = "step.hd";
    request.text = text;
    request.length = strlen(text);
    request.defines = m;
    request.ndefines = 1;
    return request;
}

static void measure_cache(hd_diag *diag)
{
    double made[MAKES], chosen[MAKES], found[SAMPLES], again[SAMPLES];
    hd_define m = {.name = "m", .value = 0};
    hd_cache_request request = ask_for_text(&m);
    hd_cache_request of_module = HD_EMPTY(hd_cache_request);
    hd_module *module = build(diag);
    hd_lower_options ring = hd_lower_defaults();
    hd_cache *cache;

    ring.transfer = HD_TRANSFER_RING;
    request.lower = of_module.lower = &ring;
    of_module.module = module;
    try(hd_cache_create(NULL, diag, &cache), diag);
    for (int i = 0; i < MAKES; i++) {
        m.value = i + 1;
        made[i] = get(cache, &request, diag);
        request.lower = NULL;
        chosen[i] = get(cache, &request, diag);
        request.lower = &ring;
    }
    get(cache, &of_module, diag);
    for (int i = 0; i < SAMPLES; i++) {
        found[i] = get(cache, &request, diag);
        again[i] = get(cache, &of_module, diag);
    }
    report("a program that the cache makes", made, MAKES);
    report("one whose way it chooses", chosen, MAKES);
    report("a program of a text that it has", found, SAMPLES);
    report("a program of a module that it has", again, SAMPLES);
    hd_cache_destroy(cache);
    hd_module_destroy(module);
}

// Each sample is of 64 runs, which are waited for outside of it.
static void measure_run(hd_session *session, hd_diag *diag)
{
    float x[4] = {1, 2, 3, 4}, y[4];
    void *arguments[] = {x, y};
    double took[SAMPLES];

    for (int i = 0; i < SAMPLES; i++) {
        double begin = bench_now();

        for (int k = 0; k < 64; k++)
            try(hd_session_run(session, arguments, 2, NULL, diag), diag);
        took[i] = (bench_now() - begin) / 64;
        try(hd_session_finish(session, diag), diag);
    }
    report("hd_session_run of one step", took, SAMPLES);
}

// What bench/python.py measures of a call from Python.
static void measure_call(hd_session *session, hd_diag *diag)
{
    float x[4] = {1, 2, 3, 4}, y[4];
    void *arguments[] = {x, y};
    double took[SAMPLES];
    bool done;

    for (int i = 0; i < SAMPLES; i++) {
        double begin = bench_now();

        try(hd_session_run(session, arguments, 2, NULL, diag), diag);
        try(hd_session_wait(session, 1, diag, &done), diag);
        took[i] = bench_now() - begin;
    }
    report("the same, waited for", took, SAMPLES);
}

static void measure_session(hd_diag *diag)
{
    static const char one[] = "heddle 2\nhost program one\nin %x : f32[4]\n"
                              "out %y : f32[4]\n{\n    %y = relu %x\n}\n";
    hd_oob oob = {.size = sizeof oob, .nranks = 1};
    hd_cache_request request = HD_EMPTY(hd_cache_request);
    double found[SAMPLES];
    const hd_module *module;
    hd_session *session;
    hd_group *group;
    hd_cache *cache;

    request.name = "one.hd";
    request.text = one;
    request.length = strlen(one);
    try(hd_group_create(&oob, 1, diag, &group), diag);
    try(hd_cache_create(NULL, diag, &cache), diag);
    try(hd_cache_get(cache, &request, diag, &module), diag);
    try(hd_cache_session(cache, group, module, NULL, diag, &session), diag);
    measure_run(session, diag);
    measure_call(session, diag);
    for (int i = 0; i < SAMPLES; i++) {
        double begin = bench_now();

        try(hd_cache_session(cache, group, module, NULL, diag, &session), diag);
        found[i] = bench_now() - begin;
        hd_cache_release_session(cache, session);
    }
    report("a session that the cache has", found, SAMPLES);
    hd_cache_release_session(cache, session);
    hd_cache_release(cache, module);
    hd_cache_forget(cache, group);
    hd_cache_destroy(cache);
    hd_group_destroy(group);
}

int main(void)
{
    hd_diag *diag = hd_diag_create();

    measure_making(diag);
    measure_cache(diag);
    measure_session(diag);
    hd_diag_destroy(diag);
    return 0;
}
