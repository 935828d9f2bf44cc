// What sessions of one group cost: creating one of a new shape, many alive,
// many one after another, a cache that forgets the one used the longest ago;
// and issuing a run. A rank's memory is its resident set, and its proportional
// one, in which what ranks map together counts once; with `--device cuda` also
// what is taken of its device, by all who use it.
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/launch.h>

#include "bench/bench.h"

#define SHAPES 200 // alive at once
#define CACHE 4

// The ring all-gather + matmul of a rank's `rows`.
static const char ring[] = "heddle 2\n"
                           "tensor program ag_linear\n"
                           "mesh tp=4\n"
                           "in   %%a  : f32[size tp @tp, %d, 256]\n"
                           "in   %%w  : f32[256, 256]\n"
                           "out  %%c  : f32[size tp @stream, %d, 256]\n"
                           "temp %%ag : f32[size tp @stream, %d, 256]\n"
                           "{\n"
                           "    %%ag = set %%a\n"
                           "    %%c = matmul %%ag, %%w tb\n"
                           "}\n";

static const char *device_name = "cpu";

// --------------------------------------------------------------- devices

// Of rank 0's device, MiB that are not free; 0 on the cpu. The primary context
// is the calling thread's from the first call on, so that sessions work in it.
static double count_device(void)
{
    static int (*info)(size_t * left, size_t * total);
    const char *path = getenv("HEDDLE_CUDA_LIB");
    size_t left = 0, total = 0;
    void *library, *context;
    int (*init)(unsigned), (*retain)(void **, int), (*push)(void *);

    if (strncmp(device_name, "cuda", 4) != 0)
        return 0;
    if (info == NULL) {
        library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW);
        if (library == NULL)
            bench_die("there is no libcuda.so.1");
        *(void **)&init = dlsym(library, "cuInit");
        *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
        *(void **)&push = dlsym(library, "cuCtxPushCurrent_v2");
        *(void **)&info = dlsym(library, "cuMemGetInfo_v2");
        if (init(0) != 0 || retain(&context, 0) != 0 || push(context) != 0)
            bench_die("CUDA does not start");
    }
    if (info(&left, &total) != 0)
        bench_die("cuMemGetInfo fails");
    return (double)(total - left) / (1 << 20);
}

typedef struct bound {
    hd_module *module;
    hd_session *session;
} bound;

static hd_module *lower_ring(int ranks, int rows, hd_diag *diag)
{
    hd_define define = {"tp", ranks};
    hd_module *module = NULL;
    char text[1024];
    int length = snprintf(text, sizeof text, ring, rows, rows, rows);

    if (hd_parse("ring", text, (size_t)length, &define, 1, diag, &module) !=
            HD_OK ||
        hd_lower(module, NULL, NULL, NULL, diag) != HD_OK)
        bench_die(hd_diag_text(diag));
    return module;
}

// Returns the seconds that the session took, from when all ranks were there.
static double open_bound(hd_group *group, int rows, hd_diag *diag, bound *out)
{
    hd_session_options options = hd_session_defaults();
    double begin;

    options.device = device_name;
    out->module = lower_ring(hd_group_size(group), rows, diag);
    if (hd_group_allgather(group, NULL, 0, NULL, diag) != HD_OK)
        bench_die(hd_diag_text(diag));
    begin = bench_now();
    if (hd_session_create(group, out->module, &options, diag, &out->session) !=
        HD_OK)
        bench_die(hd_diag_text(diag));
    return bench_now() - begin;
}

static void close_bound(bound *bound)
{
    hd_session_destroy(bound->session);
    hd_module_destroy(bound->module);
}

// -------------------------------------------------------------- counting

// A number of a line of /proc/self/FILE, in its unit.
static long read_line(const char *file, const char *key)
{
    FILE *stream = fopen(file, "r");
    char line[256];
    long n = -1;

    while (stream != NULL && fgets(line, sizeof line, stream) != NULL)
        if (strncmp(line, key, strlen(key)) == 0)
            n = strtol(line + strlen(key), NULL, 10);
    if (stream != NULL)
        fclose(stream);
    return n;
}

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int n = -3; // this one, "." and ".."

    while (folder != NULL && readdir(folder) != NULL)
        n++;
    if (folder != NULL)
        closedir(folder);
    return n;
}

typedef struct counts {
    double resident, proportional, device; // MiB
    long threads;
    int descriptors;
} counts;

static counts count_now(void)
{
    return (counts){
        .resident = (double)read_line("/proc/self/smaps_rollup", "Rss:") / 1024,
        .proportional =
            (double)read_line("/proc/self/smaps_rollup", "Pss:") / 1024,
        .device = count_device(),
        .threads = read_line("/proc/self/status", "Threads:"),
        .descriptors = count_descriptors()};
}

// What has come since `before`, and how many threads there are, on rank 0.
static void print_counts(hd_group *group, const char *what, counts before,
                         hd_diag *diag)
{
    counts now;

    if (hd_group_allgather(group, NULL, 0, NULL, diag) != HD_OK)
        bench_die(hd_diag_text(diag));
    now = count_now();
    if (hd_group_rank(group) == 0)
        printf("%-34s %8.1f MiB %8.1f MiB %8.1f MiB %5ld threads %5d "
               "descriptors\n",
               what, now.resident - before.resident,
               now.proportional - before.proportional,
               now.device - before.device, now.threads,
               now.descriptors - before.descriptors);
    fflush(stdout);
    // Nobody goes on before all have counted.
    if (hd_group_allgather(group, NULL, 0, NULL, diag) != HD_OK)
        bench_die(hd_diag_text(diag));
}

// ------------------------------------------------------------------ rows

static int rows_of(int i)
{
    return 4 * (i * 71 % SHAPES + 1);
}

static void *take(const bound *bound, size_t bytes, hd_diag *diag)
{
    void *memory = NULL;

    if (hd_session_alloc(bound->session, bytes, diag, &memory) != HD_OK)
        bench_die(hd_diag_text(diag));
    return memory;
}

// Memory for the arguments of a ring of `rows`.
static void take_arguments(hd_group *group, const bound *bound, int rows,
                           hd_diag *diag, void **out)
{
    size_t n = (size_t)hd_group_size(group);
    size_t shard = (size_t)rows * 256 * sizeof(float);

    out[0] = take(bound, shard, diag);
    out[1] = take(bound, (size_t)256 * 256 * sizeof(float), diag);
    out[2] = take(bound, n * shard, diag);
}

static void give_arguments(const bound *bound, void **arguments)
{
    for (int i = 0; i < 3; i++)
        hd_session_free(bound->session, arguments[i]);
}

static void run_once(hd_group *group, bound *bound, int rows, hd_diag *diag)
{
    void *arguments[3];

    take_arguments(group, bound, rows, diag, arguments);
    if (hd_session_run(bound->session, arguments, 3, NULL, diag) != HD_OK ||
        hd_session_finish(bound->session, diag) != HD_OK)
        bench_die(hd_diag_text(diag));
    give_arguments(bound, arguments);
}

static void measure_alive(hd_group *group, hd_diag *diag)
{
    static bound all[SHAPES];
    double took[SHAPES];
    bound first;
    counts before;

    // The libraries, and whatever the first session opens for good.
    open_bound(group, 4, diag, &first);
    run_once(group, &first, 4, diag);
    before = count_now();
    for (int i = 0; i < SHAPES; i++)
        took[i] = open_bound(group, rows_of(i), diag, &all[i]);
    if (hd_group_rank(group) == 0) {
        double middle = bench_percentile(took, SHAPES, 0.5) * 1e3;

        printf("%-34s %8.3f ms (1%% %.3f, 90%% %.3f)\n",
               "session of a new shape, 4 ranks", middle,
               bench_percentile(took, SHAPES, 0.01) * 1e3,
               bench_percentile(took, SHAPES, 0.9) * 1e3);
    }
    print_counts(group, "200 shapes alive, created", before, diag);
    for (int i = 0; i < SHAPES; i++)
        run_once(group, &all[i], rows_of(i), diag);
    print_counts(group, "200 shapes alive, each has run", before, diag);
    for (int i = 0; i < SHAPES; i++)
        close_bound(&all[i]);
    print_counts(group, "none of them alive", before, diag);
    if (hd_group_trim(group, diag) != HD_OK)
        bench_die(hd_diag_text(diag));
    print_counts(group, "none of them alive, trimmed", before, diag);
    close_bound(&first);
}

static void measure_cache(hd_group *group, int alive, hd_diag *diag)
{
    bound cache[CACHE] = {{0}};
    counts before;
    bound first;

    open_bound(group, 4, diag, &first);
    run_once(group, &first, 4, diag);
    before = count_now();
    for (int i = 0; i < 2 * SHAPES; i++) {
        bound *oldest = &cache[i % alive];

        close_bound(oldest);
        open_bound(group, rows_of(i), diag, oldest);
        run_once(group, oldest, rows_of(i), diag);
    }
    print_counts(group,
                 alive == 1 ? "400 one after another" : "400 in a cache of 4",
                 before, diag);
    for (int i = 0; i < CACHE; i++)
        close_bound(&cache[i]);
    close_bound(&first);
}

static void measure_run(hd_group *group, hd_diag *diag)
{
    enum { RUNS = 2000 };
    void *arguments[3];
    static double took[RUNS];
    bound ring;

    open_bound(group, 4, diag, &ring);
    take_arguments(group, &ring, 4, diag, arguments);
    for (int i = 0; i < RUNS; i++) {
        double begin;

        if (i % 8 == 0 && hd_session_finish(ring.session, diag) != HD_OK)
            bench_die(hd_diag_text(diag));
        begin = bench_now();
        if (hd_session_run(ring.session, arguments, 3, NULL, diag) != HD_OK)
            bench_die(hd_diag_text(diag));
        took[i] = bench_now() - begin;
    }
    if (hd_session_finish(ring.session, diag) != HD_OK)
        bench_die(hd_diag_text(diag));
    if (hd_group_rank(group) == 0)
        printf("%-34s %8.2f us (10%% %.2f)\n", "hd_session_run, ring of 8",
               bench_percentile(took, RUNS, 0.5) * 1e6,
               bench_percentile(took, RUNS, 0.1) * 1e6);
    give_arguments(&ring, arguments);
    close_bound(&ring);
}

static hd_status measure(void *context, hd_group *group)
{
    hd_diag *diag = hd_diag_create();
    int row = *(int *)context;

    count_device();
    if (row == 0)
        measure_alive(group, diag);
    else if (row == 3)
        measure_run(group, diag);
    else
        measure_cache(group, row == 1 ? 1 : CACHE, diag);
    hd_diag_destroy(diag);
    return HD_OK;
}

// sessions [--device cpu|cuda|cuda:N]
int main(int argc, char **argv)
{
    hd_diag *diag = hd_diag_create();

    if (argc == 3 && strcmp(argv[1], "--device") == 0)
        device_name = argv[2];
    else if (argc != 1)
        bench_die("usage: sessions [--device cpu|cuda|cuda:N]");
    printf("%-34s %12s %12s %12s\n", "a rank", "resident", "proportional",
           "device");
    fflush(stdout);
    for (int row = 0; row < 4; row++)
        if (hd_launch(row == 3 ? 8 : 4, 30, 600, measure, &row, diag) != HD_OK)
            bench_die(hd_diag_text(diag));
    hd_diag_destroy(diag);
    return 0;
}
