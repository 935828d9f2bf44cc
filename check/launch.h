// Whether launches, each with the processors of its rank from its beginning to
// its end, may come to where they wait for each other. Unlike all else that a
// step follows, who has the processors first is not fixed by the walk, so that
// one execution does not decide: docs/checking.md, Launches.
#ifndef HD_CHECK_LAUNCH_H
#define HD_CHECK_LAUNCH_H

#include "check/deadlock.h"

HD_BEGIN_DECLS

// Of a program that ends if its launches are taken for their steps alone.
// `busy` has a bit for each axis whose transfers take processors. Reports what
// is found as HD_ERROR_INVALID.
hd_status hd_launch_check(const hd_graph *graph, unsigned serial, unsigned busy,
                          hd_diag *diag);
// Of a rank that stands for all (hd_graph_fold): whether what it shows is
// enough to know that nothing would be found of all ranks.
hd_status hd_launch_look(const hd_graph *graph, unsigned serial, unsigned busy,
                         hd_diag *diag, bool *ends);

HD_END_DECLS

#endif
