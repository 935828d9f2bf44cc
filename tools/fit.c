// See fit.h. A prediction rises or falls with a term, so halving finds it; and
// since each program goes by other terms too, though less, all are found again
// with what the others have become.
#include "fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PASSES = 4, HALVINGS = 24 };

// Of a term that matters the prediction changes by more, from one end to the
// other.
#define LEAST_CHANGE 0.02

hd_status fit_open(const probe *probe, int ranks, int level, hd_diag *diag,
                   fit *out)
{
    hd_status status = HD_OK;

    *out = (fit){.of = probe};
    for (int k = 0; k < 2 && status == HD_OK; k++) {
        status =
            probe_module(probe, ranks, level, k == 1, diag, &out->module[k]);
        if (status == HD_OK)
            status = hd_check(out->module[k], NULL, NULL);
    }
    return status;
}

void fit_close(fit *fit)
{
    for (int k = 0; k < 2; k++)
        hd_module_destroy(fit->module[k]);
}

static double predict(const hd_module *module, const hd_machine *machine)
{
    hd_prediction prediction = HD_EMPTY(hd_prediction);
    hd_simulation *simulation;

    if (hd_simulate(module, machine, NULL, &simulation) != HD_OK)
        return 0;
    hd_simulation_predict(simulation, &prediction);
    hd_simulation_destroy(simulation);
    return prediction.time;
}

static double count_steps(const hd_module *module)
{
    int64_t steps = 0;

    return hd_module_steps(module, 0, NULL, &steps) == HD_OK ? (double)steps
                                                             : 0;
}

double fit_steps(const fit *fit)
{
    return count_steps(fit->module[1]) - count_steps(fit->module[0]);
}

static void set(hd_machine *machine, size_t at, double value)
{
    memcpy((char *)machine + at, &value, sizeof value);
}

#define UNBOUND 1e17

double fit_predict(const fit *fit, const hd_machine *machine)
{
    hd_machine with = *machine;

    if (fit->of->unbound > 0)
        set(&with, fit->of->unbound, UNBOUND);
    return predict(fit->module[1], &with) - predict(fit->module[0], &with);
}

static double predict_with(const fit *fit, const hd_machine *machine,
                           double value)
{
    hd_machine with = *machine;

    set(&with, fit->of->at, value);
    return fit_predict(fit, &with);
}

// Between which it is looked for; by their ratio, so that neither is 0.
typedef struct range {
    double low, high;
} range;

static const range ranges[] = {
    [UNIT_SECONDS] = {1e-9, 0.1},
    [UNIT_BYTES] = {1e6, 1e14},
    [UNIT_OPERATIONS] = {1e6, 1e17},
    [UNIT_SHARE] = {0.001, 0.999},
};

// Beyond a point a term may not matter any more, since another one is what is
// waited for: of all values that are as good it is the first such.
static double find_target(double measured, double at_low, double at_high)
{
    double least = fmin(at_low, at_high), most = fmax(at_low, at_high);

    return fmin(fmax(measured, least * 1.002), most * 0.998);
}

static bool find(const fit *fit, hd_machine *machine)
{
    double low = ranges[fit->of->in].low;
    double high = ranges[fit->of->in].high;
    double at_low = predict_with(fit, machine, low);
    double at_high = predict_with(fit, machine, high);
    double target;

    if (fabs(at_high - at_low) <= LEAST_CHANGE * fmax(at_low, at_high))
        return false;
    target = find_target(fit->measured, at_low, at_high);
    for (int i = 0; i < HALVINGS; i++) {
        double middle = sqrt(low * high);
        bool beyond = predict_with(fit, machine, middle) > target;

        if (beyond == (at_high > at_low))
            high = middle;
        else
            low = middle;
    }
    set(machine, fit->of->at, sqrt(low * high));
    return true;
}

static bool find_term(const fit *fit, hd_machine *machine)
{
    const probe *probe = fit->of;

    if (fit->measured <= 0)
        return false;
    if (!probe->by_host)
        return find(fit, machine);
    set(machine, probe->at, fit->measured / fit_steps(fit));
    return true;
}

void fit_all(fit *fits, int n, hd_machine *machine)
{
    for (int pass = 0; pass < PASSES; pass++)
        for (int i = 0; i < n; i++)
            fits[i].found = find_term(&fits[i], machine);
}
