// The numbers of the machines that are shipped are those of examples/machines/
// (docs/simulate.md).
#include <heddle/simulate.h>

#include "simulate/machine.h"

#include <assert.h>
#include <float.h>
#include <stddef.h>
#include <string.h>

#include "base/sized.h"
#include "tiles/choose.h"

void hd_machine_default(hd_machine *out)
{
    static const hd_machine machine = {
        .name = "8 x H200",
        .ranks_per_node = 8,
        .issue = 1.5e-6,
        .launch = 2.5e-6,
        .memory = 4.1e12,
        .matmul = {[HD_DTYPE_F64] = 60e12,
                   [HD_DTYPE_F32] = 51e12,
                   [HD_DTYPE_F16] = 669e12,
                   [HD_DTYPE_BF16] = 669e12,
                   [HD_DTYPE_F8E4M3] = 1200e12,
                   [HD_DTYPE_F8E5M2] = 1200e12},
        .units = 99,
        .tile_m = 128,
        .tile_n = 128,
        .hop = 9.5e-6,
        .copy_latency = 5e-6,
        .copy_bandwidth = 392e9,
        .link = 345e9,
        .collision = 0.6,
        .collective_latency = 27e-6,
        .collective_bandwidth = 345e9,
        .collective_units = 0.1,
        .network_latency = 15e-6,
        .network_bandwidth = 47e9,
        .reduction_latency = 7e-6,
        .multiprocessors = 132,
        .event = 2e-6,
        .run = 4e-6,
        .attention = 0.86,
    };

    assert(out != NULL);
    hd_sized_write(&machine, sizeof machine, out);
}

void hd_machine_shipped(const char *device, hd_machine *out)
{
    static const hd_machine cpu = {
        .name = "2 processors, shared by all ranks",
        .ranks_per_node = 64,
        .processors = 2,
        .issue = 1e-7,
        .launch = 3e-6,
        .memory = 8e9,
        .matmul = {[HD_DTYPE_F64] = 6e10, [HD_DTYPE_F32] = 1.2e11},
        .tile_m = 1,
        .tile_n = 1,
        .hop = 4e-5,
        .copy_bandwidth = 6e9,
        .link = 1e11,
        .collision = 1,
        .collective_latency = 4e-5,
        .collective_bandwidth = 6e9,
        .network_latency = 5e-5,
        .network_bandwidth = 1e9,
        .reduction_latency = 4e-5,
        .attention = 0.05,
    };

    assert(out != NULL);
    if (device != NULL && strcmp(device, "cpu") == 0)
        hd_sized_write(&cpu, sizeof cpu, out);
    else
        hd_machine_default(out);
}

typedef struct field {
    const char *name;
    size_t at; // of a double of hd_machine
    double least, most;
    const char *text; // which says the same
} field;

#define FIELD(field, ...)                                        \
    {                                                            \
        .name = #field, offsetof(hd_machine, field), __VA_ARGS__ \
    }
#define RATE DBL_MIN, DBL_MAX, "above 0"
#define TIME 0, DBL_MAX, "at least 0"

static const field fields[] = {
    FIELD(issue, TIME),
    FIELD(launch, TIME),
    FIELD(memory, RATE),
    FIELD(matmul[HD_DTYPE_F32], RATE),
    FIELD(hop, TIME),
    FIELD(copy_latency, TIME),
    FIELD(copy_bandwidth, RATE),
    FIELD(link, RATE),
    FIELD(collision, DBL_MIN, 1, "above 0 and at most 1"),
    FIELD(collective_latency, TIME),
    FIELD(collective_bandwidth, RATE),
    FIELD(collective_units, 0, 1 - DBL_EPSILON, "at least 0 and below 1"),
    FIELD(network_latency, TIME),
    FIELD(network_bandwidth, RATE),
    FIELD(reduction_latency, TIME),
    FIELD(event, TIME),
    FIELD(run, TIME),
    FIELD(attention, 0, 1, "at least 0 and at most 1"),
};

static hd_status check(const hd_machine *m, hd_diag *diag)
{
    if (m->ranks_per_node < 1 || m->processors < 0 || m->units < 0 ||
        m->multiprocessors < 0 ||
        m->multiprocessors > HD_TILES_MULTIPROCESSORS ||
        (m->units > 0 && (m->tile_m < 1 || m->tile_n < 1)))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "machine: ranks_per_node %d, processors %d, units %d, "
                       "tiles %d by %d, multiprocessors %d: ranks_per_node and "
                       "tiles are at least 1, processors, units and "
                       "multiprocessors at least 0, the last at most %d",
                       m->ranks_per_node, m->processors, m->units, m->tile_m,
                       m->tile_n, m->multiprocessors, HD_TILES_MULTIPROCESSORS);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        double x;

        memcpy(&x, (const char *)m + fields[i].at, sizeof x);
        if (!(x >= fields[i].least && x <= fields[i].most))
            return hd_fail(diag, HD_ERROR_ARGUMENT,
                           "machine: %s is %g; it is %s", fields[i].name, x,
                           fields[i].text);
    }
    return HD_OK;
}

hd_status hd_machine_read(const char *function, const hd_machine *given,
                          hd_diag *diag, hd_machine *out)
{
    hd_machine_default(out);
    HD_TRY(hd_sized_read(function, given, sizeof *out, diag, out));
    return check(out, diag);
}
