// heddle env: what this machine offers, for people or as JSON.
#include <heddle/environment.h>
#include <heddle/launch.h>
#include <heddle/simulate.h>

#include "env.h"

#include "commands.h"
#include "program.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef hd_environment environment;

// What runs are predicted on where nothing else is said: of the cpu, and of
// GPUs where there are any.
typedef struct machine {
    const char *device;
    hd_machine is;
    hd_machine_origin origin;
    char date[32]; // of the file
} machine;

static outcome find_machine(const char *device, hd_diag *diag, machine *out)
{
    struct tm tm = {0};
    time_t t;
    outcome result;

    *out = (machine){.device = device,
                     .is = HD_EMPTY(hd_machine),
                     .origin = HD_EMPTY(hd_machine_origin)};
    result = tell(diag, hd_machine_here(device, diag, &out->is, &out->origin),
                  device);
    t = (time_t)out->origin.time;
    gmtime_r(&t, &tm);
    strftime(out->date, sizeof out->date, "%Y-%m-%d %H:%M UTC", &tm);
    hd_diag_clear(diag);
    return result;
}

// One without a device ends them.
static outcome find_machines(const environment *e, hd_diag *diag,
                             machine out[3])
{
    out[0] = out[1] = out[2] = (machine){.device = NULL};
    TRY(find_machine("cpu", diag, &out[0]));
    return e->cuda.usable ? find_machine("cuda", diag, &out[1]) : FINE;
}

// Text that is not known is a dash.
static const char *or_dash(const char *text)
{
    return *text ? text : "-";
}

static double gib(int64_t bytes)
{
    return (double)bytes / (1 << 30);
}

static void print_host(const environment *e)
{
    put_line(stdout, "heddle %s (text form %d) on %s: %d cores, %.1f GiB",
             hd_version(), HD_FORMAT, or_dash(e->host), e->cores,
             gib(e->memory));
}

// --------------------------------------------------------------- devices

static void print_cuda(const environment *e)
{
    if (!e->cuda.usable) {
        printf("\nno CUDA: programs run on the cpu\n");
        put_line(stdout, "  %s", or_dash(e->cuda.reason));
        return;
    }
    printf("\n");
    put_line(stdout, "CUDA %s (%s)", or_dash(e->cuda.version),
             or_dash(e->cuda.path));
    put_line(stdout, "  %-4s %-24s %10s  %-10s %4s  %-13s %s", "", "device",
             "memory", "capability", "SMs", "bus", "uuid");
    for (int i = 0; i < e->ndevices; i++) {
        const hd_env_device *d = &e->device[i];

        put_line(stdout, "  %-4d %-24s %6.1f GiB  %-10s %4d  %-13s %s", i,
                 or_dash(d->name), gib(d->memory), d->capability, d->sms,
                 or_dash(d->bus), or_dash(d->uuid));
    }
}

static void print_link(const hd_env_link *link)
{
    char cell[48];

    if (!link)
        snprintf(cell, sizeof cell, "-");
    else if (!link->access)
        snprintf(cell, sizeof cell, "none");
    else
        snprintf(cell, sizeof cell, "%s %d%s", link->verified ? "ok" : "FAILED",
                 link->performance_rank, link->atomics ? "a" : "");
    printf("  %-9s", cell);
}

static const hd_env_link *find_link(const environment *e, int from, int to)
{
    for (int i = 0; i < e->nlinks; i++)
        if (e->link[i].from == from && e->link[i].to == to)
            return &e->link[i];
    return NULL;
}

// A row a device, what it reaches; why not stands below.
static void print_links(const environment *e)
{
    int n = e->ndevices;

    if (n < 2)
        return;
    printf("\nlinks from a device (row) to another (column)\n  %-4s", "");
    for (int to = 0; to < n; to++)
        printf("  %-9d", to);
    printf("\n");
    for (int from = 0; from < n; from++) {
        printf("  %-4d", from);
        for (int to = 0; to < n; to++)
            print_link(find_link(e, from, to));
        printf("\n");
    }
    printf("  ok: what was put and got arrived; FAILED: it did not; none: no "
           "peer access;\n  the number is the driver's performance rank, 0 the "
           "best; a: native atomics\n");
    for (int i = 0; i < e->nlinks; i++)
        if (e->link[i].access && !e->link[i].verified)
            put_line(stdout, "  %d to %d: %s; use --transport nccl",
                     e->link[i].from, e->link[i].to,
                     or_dash(e->link[i].reason));
}

// ------------------------------------------------------------------ rest

static void print_library(const hd_env_library *l)
{
    if (l->usable) {
        put_line(stdout, "  %-9s %-10s %s", l->name, or_dash(l->version),
                 or_dash(l->path));
        return;
    }
    put_line(stdout, "  %-9s not usable, which is for %s", l->name, l->use);
    put_line(stdout, "  %-9s %s", "", or_dash(l->reason));
    put_line(stdout, "  %-9s %s, or set %s", "", l->install, l->variable);
}

static void print_limits(const hd_env_limits *limits)
{
    printf("\nlimits\n");
    printf("  ranks                            %d; %d on cuda through CUDA "
           "IPC\n",
           limits->ranks, limits->ranks_cuda_ipc);
    printf("  work streams                     %d\n", limits->work_streams);
    printf("  streams that may wait at once    %d: one less than "
           "CUDA_DEVICE_MAX_CONNECTIONS, %d\n",
           limits->waiting_streams, limits->connections);
    printf("  runs in flight on cuda           %d\n",
           limits->runs_in_flight_cuda);
    printf("  graphs that a session remembers  %d\n", limits->graphs);
}

static void print_cache(const hd_env_cache *cache)
{
    printf("\n");
    if (!*cache->reason) {
        put_line(stdout,
                 "cache of kernels and tuned plans: %lld entr%s, %.1f MiB; "
                 "may be deleted",
                 (long long)cache->entries, cache->entries == 1 ? "y" : "ies",
                 (double)cache->bytes / (1 << 20));
        put_line(stdout, "  %s", or_dash(cache->folder));
        return;
    }
    put_line(stdout, "no cache: kernels are compiled anew by each session");
    if (*cache->folder)
        put_line(stdout, "  %s", cache->folder);
    put_line(stdout, "  %s", cache->reason);
}

static void print_machines(const machine *m)
{
    printf("\nmachines that runs are predicted on, without --machine\n");
    for (; m->device; m++)
        if (*m->origin.path)
            put_line(stdout, "  %-5s %s; %s, of %s", m->device, m->is.name,
                     m->origin.path, m->date);
        else
            put_line(stdout,
                     "  %-5s %s, which is shipped; 'heddle calibrate --device "
                     "%s' measures this one",
                     m->device, m->is.name, m->device);
}

static void print_variables(const environment *e)
{
    char shown[SHOWN];

    printf("\nvariables%s\n",
           e->nvariables == 0 ? ": none that heddle reads" : "");
    for (int i = 0; i < e->nvariables; i++) {
        const hd_env_variable *v = &e->variable[i];

        put_line(stdout, "  %s='%s': %s", v->name,
                 show(v->value, strlen(v->value), shown), v->meaning);
    }
}

static void print_launcher(const environment *e)
{
    const hd_place *place = &e->place;

    if (*e->place_reason) {
        printf("\nlauncher: its variables are wrong\n");
        put_line(stdout, "  %s", e->place_reason);
    } else if (!e->launched) {
        printf("\nlauncher: none; heddle run forks its ranks\n");
    } else {
        printf("\nlauncher: %s: rank %d of %d", place->launcher, place->rank,
               place->nranks);
        if (place->local_size > 0)
            printf(", %d of %d on this host", place->local_rank,
                   place->local_size);
        printf("\n");
    }
}

static void print_all(const environment *e, const machine *machines)
{
    print_host(e);
    print_cuda(e);
    print_links(e);
    printf("\nlibraries\n");
    for (int i = 0; i < e->nlibraries; i++)
        print_library(&e->library[i]);
    print_limits(&e->limits);
    print_cache(&e->cache);
    print_machines(machines);
    print_variables(e);
    print_launcher(e);
}

// ------------------------------------------------------------------ json

// Empty text is null.
static void put_text(cJSON *in, const char *name, const char *text)
{
    json_text(in, name, text && *text ? text : NULL);
}

static void put_host(cJSON *root, const environment *e)
{
    cJSON *host = json_object(root, "host");

    put_text(host, "name", e->host);
    json_number(host, "cores", e->cores);
    json_integer(host, "memory_bytes", e->memory);
}

static void put_library(cJSON *in, const hd_env_library *l)
{
    json_flag(in, "usable", l->usable);
    put_text(in, "version", l->version);
    put_text(in, "path", l->path);
    put_text(in, "variable", l->variable);
}

static void put_cuda(cJSON *root, const hd_env_library *driver)
{
    cJSON *cuda = json_object(root, "cuda");

    put_library(cuda, driver);
    put_text(cuda, "reason", driver->reason);
}

static void put_devices(cJSON *root, const environment *e)
{
    cJSON *devices = json_array(root, "devices");

    for (int i = 0; i < e->ndevices; i++) {
        const hd_env_device *d = &e->device[i];
        cJSON *device = json_object(devices, NULL);

        json_number(device, "index", i);
        put_text(device, "name", d->name);
        json_integer(device, "memory_bytes", d->memory);
        put_text(device, "capability", d->capability);
        json_number(device, "sms", d->sms);
        put_text(device, "bus", d->bus);
        put_text(device, "uuid", d->uuid);
    }
}

static void put_links(cJSON *root, const environment *e)
{
    cJSON *links = json_array(root, "links");

    for (int i = 0; i < e->nlinks; i++) {
        const hd_env_link *l = &e->link[i];
        cJSON *link = json_object(links, NULL);

        json_number(link, "from", l->from);
        json_number(link, "to", l->to);
        json_flag(link, "access", l->access);
        json_flag(link, "verified", l->verified);
        json_number(link, "performance_rank", l->performance_rank);
        json_flag(link, "atomics", l->atomics);
        put_text(link, "reason", l->reason);
    }
}

void env_libraries(cJSON *in, const environment *e)
{
    cJSON *libraries = json_array(in, "libraries");

    for (int i = 0; i < e->nlibraries; i++) {
        const hd_env_library *l = &e->library[i];
        cJSON *library = json_object(libraries, NULL);

        put_text(library, "name", l->name);
        put_library(library, l);
        put_text(library, "use", l->use);
        put_text(library, "install", l->install);
        put_text(library, "reason", l->reason);
    }
}

static void put_limits(cJSON *root, const hd_env_limits *l)
{
    cJSON *limits = json_object(root, "limits");

    json_number(limits, "ranks", l->ranks);
    json_number(limits, "ranks_cuda_ipc", l->ranks_cuda_ipc);
    json_number(limits, "connections", l->connections);
    json_number(limits, "waiting_streams", l->waiting_streams);
    json_number(limits, "work_streams", l->work_streams);
    json_number(limits, "runs_in_flight_cuda", l->runs_in_flight_cuda);
    json_number(limits, "graphs", l->graphs);
}

static void put_cache(cJSON *root, const hd_env_cache *c)
{
    cJSON *cache = json_object(root, "cache");

    json_flag(cache, "usable", !*c->reason);
    put_text(cache, "folder", c->folder);
    json_integer(cache, "entries", c->entries);
    json_integer(cache, "bytes", c->bytes);
    put_text(cache, "variable", c->variable);
    put_text(cache, "reason", c->reason);
}

static void put_machines(cJSON *root, const machine *m)
{
    cJSON *machines = json_array(root, "machines");

    for (; m->device; m++) {
        cJSON *object = json_object(machines, NULL);

        put_text(object, "device", m->device);
        put_text(object, "name", m->is.name);
        put_text(object, "path", m->origin.path);
        put_text(object, "date", *m->origin.path ? m->date : "");
    }
}

static void put_variables(cJSON *root, const environment *e)
{
    cJSON *variables = json_array(root, "variables");

    for (int i = 0; i < e->nvariables; i++) {
        cJSON *variable = json_object(variables, NULL);

        put_text(variable, "name", e->variable[i].name);
        json_text(variable, "value", e->variable[i].value);
        put_text(variable, "meaning", e->variable[i].meaning);
    }
}

static void put_launcher(cJSON *root, const environment *e)
{
    cJSON *launcher = json_object(root, "launcher");

    json_flag(launcher, "found", e->launched);
    if (e->launched) {
        put_text(launcher, "name", e->place.launcher);
        json_number(launcher, "rank", e->place.rank);
        json_number(launcher, "size", e->place.nranks);
        json_number(launcher, "local_rank", e->place.local_rank);
        json_number(launcher, "local_size", e->place.local_size);
        json_text(launcher, "address", e->place.address);
    }
    put_text(launcher, "reason", e->place_reason);
}

static void print_json(const environment *e, const machine *machines)
{
    cJSON *root = json_need(cJSON_CreateObject());

    json_text(root, "heddle", hd_version());
    json_number(root, "text_form", HD_FORMAT);
    put_host(root, e);
    put_cuda(root, &e->cuda);
    put_devices(root, e);
    put_links(root, e);
    env_libraries(root, e);
    put_limits(root, &e->limits);
    put_cache(root, &e->cache);
    put_machines(root, machines);
    put_variables(root, e);
    put_launcher(root, e);
    json_print(root);
}

// --------------------------------------------------------------- command

static outcome run_env(const command *command, int argc, char **argv)
{
    bool json = false;
    hd_diag *diag = need_diag();
    environment *e = NULL;
    machine machines[3];
    outcome result;
    int n;

    result = options_take(command, argc, argv, &json, &n);
    if (result == FINE)
        result = tell(diag, hd_environment_create(diag, &e), "env");
    if (result == FINE)
        result = find_machines(e, diag, machines);
    if (result == FINE)
        (json ? print_json : print_all)(e, machines);
    hd_environment_destroy(e);
    hd_diag_destroy(diag);
    return result;
}

static const option env_options[] = {
    {FLAG, "json", NULL, "an object, on standard output", .to = 0},
    {.name = NULL},
};

const command env_command = {
    .name = "env",
    .operands = "",
    .summary = "Shows what this machine offers: devices, links, libraries.",
    .about =
        "Copies between each two devices are tried, with a pattern that is "
        "read back.\nWhat is absent is said, and is no failure.\n",
    .groups = {{env_options, 0}},
    .run = run_env,
};
