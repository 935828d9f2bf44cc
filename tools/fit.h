// What a machine's terms are, by the times of the programs that go by them: a
// term is such that the simulator predicts what was measured.
#ifndef HD_TOOLS_FIT_H
#define HD_TOOLS_FIT_H

#include "probe.h"

typedef struct fit {
    const probe *of;      // borrowed
    hd_module *module[2]; // owned, checked: few, many
    double measured;      // s: by how much longer the second takes; 0 leaves
                          // the term as it is
    bool found;
} fit;

// Sets the modules. HD_ERROR_NO_MEMORY is all that goes wrong.
hd_status fit_open(const probe *probe, int ranks, int level, hd_diag *diag,
                   fit *out);
void fit_close(fit *fit);

// How many steps more the second has.
double fit_steps(const fit *fit);
// By how much longer the second takes, predicted.
double fit_predict(const fit *fit, const hd_machine *machine);

// Sets the terms of `n` fits in `machine`, which has what is not fitted. A term
// that the predictions hardly depend on is as it was, and not `found`.
void fit_all(fit *fits, int n, hd_machine *machine);

#endif
