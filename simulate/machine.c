// The numbers of the default machine are those of docs/simulate.md.
#include "simulate/machine.h"

#include <math.h>

hd_machine hd_machine_default(void)
{
    hd_machine machine = {
        .name = "8 x H200",
        .ranks_per_node = 8,
        .issue = 1.5e-6,
        .launch = 2.5e-6,
        .memory = 4.1e12,
        .matmul = {[HD_F64] = 60e12,
                   [HD_F32] = 51e12,
                   [HD_F16] = 656e12,
                   [HD_BF16] = 656e12,
                   [HD_F8E4M3] = 1200e12,
                   [HD_F8E5M2] = 1200e12},
        .units = 99,
        .tile_m = 128,
        .tile_n = 128,
        .hop = 12e-6,
        .copy_latency = 2.1e-6,
        .copy_bandwidth = 392e9,
        .link = 345e9,
        .collision = 0.6,
        .collective_latency = 27e-6,
        .collective_bandwidth = 345e9,
        .collective_units = 0.1,
        .network_latency = 15e-6,
        .network_bandwidth = 47e9,
    };

    return machine;
}

static bool is_positive(double x)
{
    return isfinite(x) && x > 0;
}

static bool is_time(double x)
{
    return isfinite(x) && x >= 0;
}

hd_status hd_machine_check(const hd_machine *m, hd_diag *diag)
{
    if (m->ranks_per_node < 1 || m->processors < 0 || m->units < 0 ||
        (m->units > 0 && (m->tile_m < 1 || m->tile_n < 1)))
        return hd_fail(diag, HD_ARGUMENT,
                       "machine: ranks_per_node and tiles are at least 1, "
                       "processors and units at least 0");
    if (!is_positive(m->memory) || !is_positive(m->matmul[HD_F32]) ||
        !is_positive(m->copy_bandwidth) || !is_positive(m->link) ||
        !is_positive(m->collective_bandwidth) ||
        !is_positive(m->network_bandwidth) || !is_positive(m->collision))
        return hd_fail(diag, HD_ARGUMENT,
                       "machine: rates and bandwidths are above 0");
    if (!is_time(m->issue) || !is_time(m->launch) || !is_time(m->hop) ||
        !is_time(m->copy_latency) || !is_time(m->collective_latency) ||
        !is_time(m->network_latency) || !(m->collective_units >= 0) ||
        !(m->collective_units < 1) || m->collision > 1)
        return hd_fail(diag, HD_ARGUMENT,
                       "machine: times are at least 0, shares from 0 to 1");
    return HD_OK;
}
