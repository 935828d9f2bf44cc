// heddle env: what this machine offers. The library says it as JSON; without
// --json that is read again and laid out for people.
#include "commands.h"
#include "plain.h"
#include "program.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

static const cJSON *at(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

// Text that is not there is a dash.
static const char *text_at(const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(at(object, name));

    return text && *text ? text : "-";
}

static double number_at(const cJSON *object, const char *name)
{
    const cJSON *item = at(object, name);

    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static bool flag_at(const cJSON *object, const char *name)
{
    return cJSON_IsTrue(at(object, name));
}

static double gib(double bytes)
{
    return bytes / (1 << 30);
}

static void print_host(const cJSON *all)
{
    const cJSON *host = at(all, "host");

    printf("heddle %s (text form %.0f) on %s: %.0f cores, %.1f GiB\n",
           text_at(all, "heddle"), number_at(all, "text_form"),
           text_at(host, "name"), number_at(host, "cores"),
           gib(number_at(host, "memory_bytes")));
}

// --------------------------------------------------------------- devices

static void print_cuda(const cJSON *all)
{
    const cJSON *cuda = at(all, "cuda"), *device;

    if (!flag_at(cuda, "usable")) {
        printf("\nno CUDA: programs run on the cpu\n  %s\n",
               text_at(cuda, "reason"));
        return;
    }
    printf("\nCUDA %s (%s)\n", text_at(cuda, "version"), text_at(cuda, "path"));
    printf("  %-4s %-24s %10s  %-10s %4s  %-13s %s\n", "", "device", "memory",
           "capability", "SMs", "bus", "uuid");
    cJSON_ArrayForEach(device, at(all, "devices"))
        printf("  %-4.0f %-24s %6.1f GiB  %-10s %4.0f  %-13s %s\n",
               number_at(device, "index"), text_at(device, "name"),
               gib(number_at(device, "memory_bytes")),
               text_at(device, "capability"), number_at(device, "sms"),
               text_at(device, "bus"), text_at(device, "uuid"));
}

static const char *link_state(const cJSON *link)
{
    return !flag_at(link, "access")     ? "none"
           : !flag_at(link, "verified") ? "FAILED"
                                        : "ok";
}

static void print_link(const cJSON *link)
{
    char cell[48];

    if (!link)
        snprintf(cell, sizeof cell, "-");
    else if (!flag_at(link, "access"))
        snprintf(cell, sizeof cell, "none");
    else
        snprintf(cell, sizeof cell, "%s %.0f%s", link_state(link),
                 number_at(link, "performance_rank"),
                 flag_at(link, "atomics") ? "a" : "");
    printf("  %-9s", cell);
}

static const cJSON *find_link(const cJSON *links, int from, int to)
{
    const cJSON *link;

    cJSON_ArrayForEach(link, links)
    {
        if ((int)number_at(link, "from") == from &&
            (int)number_at(link, "to") == to)
            return link;
    }
    return NULL;
}

// A row a device, what it reaches; why not stands below.
static void print_links(const cJSON *all)
{
    const cJSON *links = at(all, "links"), *link;
    int n = cJSON_GetArraySize(at(all, "devices"));

    if (n < 2)
        return;
    printf("\nlinks from a device (row) to another (column)\n  %-4s", "");
    for (int to = 0; to < n; to++)
        printf("  %-9d", to);
    printf("\n");
    for (int from = 0; from < n; from++) {
        printf("  %-4d", from);
        for (int to = 0; to < n; to++)
            print_link(find_link(links, from, to));
        printf("\n");
    }
    printf("  ok: what was put and got arrived; FAILED: it did not; none: no "
           "peer access;\n  the number is the driver's performance rank, 0 the "
           "best; a: native atomics\n");
    cJSON_ArrayForEach(link, links)
    {
        if (flag_at(link, "access") && !flag_at(link, "verified"))
            printf("  %.0f to %.0f: %s; use --transport nccl\n",
                   number_at(link, "from"), number_at(link, "to"),
                   text_at(link, "reason"));
    }
}

// ------------------------------------------------------------------ rest

static void print_library(const cJSON *library)
{
    if (flag_at(library, "usable")) {
        printf("  %-9s %-10s %s\n", text_at(library, "name"),
               text_at(library, "version"), text_at(library, "path"));
        return;
    }
    printf("  %-9s not usable, which is for %s\n", text_at(library, "name"),
           text_at(library, "use"));
    printf("  %-9s %s\n", "", text_at(library, "reason"));
    printf("  %-9s %s, or set %s\n", "", text_at(library, "install"),
           text_at(library, "variable"));
}

static void print_limits(const cJSON *all)
{
    const cJSON *limits = at(all, "limits");

    printf("\nlimits\n");
    printf("  ranks                            %.0f; %.0f on cuda through "
           "CUDA IPC\n",
           number_at(limits, "ranks"), number_at(limits, "ranks_cuda_ipc"));
    printf("  work streams                     %.0f\n",
           number_at(limits, "work_streams"));
    printf("  streams that may wait at once    %.0f: one less than "
           "CUDA_DEVICE_MAX_CONNECTIONS, %.0f\n",
           number_at(limits, "waiting_streams"),
           number_at(limits, "connections"));
    printf("  runs in flight on cuda           %.0f\n",
           number_at(limits, "runs_in_flight_cuda"));
    printf("  graphs that a session remembers  %.0f\n",
           number_at(limits, "graphs"));
}

static void print_cache(const cJSON *all)
{
    const cJSON *cache = at(all, "cache");

    if (!flag_at(cache, "usable")) {
        printf("\nno cache: kernels are compiled anew by each session\n");
        if (cJSON_IsString(at(cache, "folder")))
            printf("  %s\n", text_at(cache, "folder"));
        printf("  %s\n", text_at(cache, "reason"));
        return;
    }
    printf("\ncache of kernels and tuned plans: %.0f entr%s, %.1f MiB; may be "
           "deleted\n  %s\n",
           number_at(cache, "entries"),
           number_at(cache, "entries") == 1 ? "y" : "ies",
           number_at(cache, "bytes") / (1 << 20), text_at(cache, "folder"));
}

static void print_variables(const cJSON *all)
{
    const cJSON *variable, *variables = at(all, "variables");
    char shown[SHOWN];

    printf("\nvariables%s\n", cJSON_GetArraySize(variables) == 0
                                  ? ": none that heddle reads"
                                  : "");
    cJSON_ArrayForEach(variable, variables)
    {
        const char *value = cJSON_GetStringValue(at(variable, "value"));

        printf("  %s='%s': %s\n", text_at(variable, "name"),
               show(value, strlen(value), shown), text_at(variable, "meaning"));
    }
}

static void print_launcher(const cJSON *all)
{
    const cJSON *launcher = at(all, "launcher");

    if (cJSON_IsString(at(launcher, "reason"))) {
        printf("\nlauncher: its variables are wrong\n  %s\n",
               text_at(launcher, "reason"));
    } else if (!flag_at(launcher, "found")) {
        printf("\nlauncher: none; heddle run forks its ranks\n");
    } else {
        printf("\nlauncher: %s: rank %.0f of %.0f", text_at(launcher, "name"),
               number_at(launcher, "rank"), number_at(launcher, "size"));
        if (number_at(launcher, "local_size") > 0)
            printf(", %.0f of %.0f on this host",
                   number_at(launcher, "local_rank"),
                   number_at(launcher, "local_size"));
        printf("\n");
    }
}

static void print_all(const cJSON *all)
{
    const cJSON *library;

    print_host(all);
    print_cuda(all);
    print_links(all);
    printf("\nlibraries\n");
    cJSON_ArrayForEach(library, at(all, "libraries")) print_library(library);
    print_limits(all);
    print_cache(all);
    print_variables(all);
    print_launcher(all);
}

// --------------------------------------------------------------- command

static outcome look_around(cJSON **out)
{
    hd_diag *diag = need_diag();
    char *text = NULL;
    hd_status status = hd_environment(diag, &text);

    TRY(tell(diag, status, "env"));
    hd_diag_destroy(diag);
    *out = cJSON_Parse(text);
    hd_free(text);
    if (!*out)
        out_of_memory();
    return FINE;
}

// Every string as a terminal may have it: names of files, devices and hosts
// are not ours.
static void make_plain(cJSON *item)
{
    for (cJSON *child = item->child; child; child = child->next)
        make_plain(child);
    if (cJSON_IsString(item)) {
        char *plain = need_plain(item->valuestring);

        if (!cJSON_SetValuestring(item, plain))
            out_of_memory();
        free(plain);
    }
}

static void print_json(const cJSON *all)
{
    char *text = cJSON_Print(all);

    if (!text)
        out_of_memory();
    puts(text);
    cJSON_free(text);
}

static outcome run_env(const command *command, int argc, char **argv)
{
    bool json = false;
    cJSON *all;
    int n;

    TRY(options_take(command, argc, argv, &json, &n));
    TRY(look_around(&all));
    if (json) {
        print_json(all);
    } else {
        make_plain(all);
        print_all(all);
    }
    cJSON_Delete(all);
    return FINE;
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
