// What a program does for nothing: data that nobody reads, records and waits
// that order nothing. Warnings, of a program that is right otherwise.
#ifndef HD_CHECK_WASTE_H
#define HD_CHECK_WASTE_H

#include "steps/graph.h"

HD_BEGIN_DECLS

// HD0811, HD0812 and HD0813, each once for a statement of which no step on any
// rank is of use.
hd_status hd_waste_check(const hd_graph *graph, hd_diag *diag);

HD_END_DECLS

#endif
