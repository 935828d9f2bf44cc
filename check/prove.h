// Proves that a complete host program neither deadlocks nor races, on all ranks
// and over two runs. docs/checking.md has the argument.
#ifndef HD_CHECK_PROVE_H
#define HD_CHECK_PROVE_H

#include "ir/module.h"

HD_BEGIN_DECLS

// HD_ERROR_INVALID if it is refuted.
hd_status hd_prove(const hd_module *module, const hd_check_options *options,
                   hd_diag *diag);

// The two halves of it, apart for tests. Of a program whose ranks turn, the
// first one may show that all are right; where it does not, or ranks differ,
// all of them are proven.
hd_status hd_prove_first(const hd_module *module,
                         const hd_check_options *options, hd_diag *diag,
                         bool *right);
hd_status hd_prove_all(const hd_module *module, const hd_check_options *options,
                       hd_diag *diag);

HD_END_DECLS

#endif
