// What one step costs on a machine, alone on its rank.
#ifndef HD_SIMULATE_COST_H
#define HD_SIMULATE_COST_H

#include <heddle/simulate.h>

#include "steps/graph.h"
#include "tiles/choose.h"

HD_BEGIN_DECLS

typedef struct hd_cost {
    double latency; // s, before it begins: of compute, where a GPU does it
    double seconds; // of a processor, for compute and element-wise work
    double width;   // the share of a processor that it keeps busy meanwhile
    double bytes;   // that a transfer brings to a rank
} hd_cost;

// A GPU's products of few rows fetch their operands so much more slowly than
// other kernels do: 1.15 to 1.3 times on an H200 (docs/simulate.md).
#define HD_COST_FETCH 1.2

// Tiles of the jobs that were asked for last, and how many were all in all.
enum { HD_KNOWN_JOBS = 32 };
typedef struct hd_known_tiles {
    hd_tiles_job job[HD_KNOWN_JOBS];
    hd_tiles_choice tiles[HD_KNOWN_JOBS];
    int64_t n;
} hd_known_tiles;

hd_cost hd_cost_of(const hd_graph *graph, const hd_machine *machine,
                   const hd_node *node, hd_known_tiles *known);

// The best tiles of a job, which is compared as bytes: it was cleared before it
// was filled.
const hd_tiles_choice *hd_cost_pick(const hd_machine *machine,
                                    const hd_tiles_job *job,
                                    hd_known_tiles *known);

// Operations/s of products.
double hd_cost_rate(const hd_machine *machine, hd_dtype dtype);
// Of tiles of sm_90a: what makes products faster makes them faster, so that
// HD_TILES_HERTZ goes with the rate of the default machine.
double hd_cost_hertz(const hd_machine *machine, hd_dtype dtype);
// What a product is for tiles of sm_90a; false if they do not take it.
bool hd_cost_tiles(const hd_graph *graph, const hd_node *node,
                   hd_tiles_work *out);
// Whether two products are of one kind and of the same dtypes.
bool hd_cost_alike(const hd_graph *graph, const hd_node *a, const hd_node *b);

HD_END_DECLS

#endif
