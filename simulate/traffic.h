// Bytes on the way, and how fast: equal shares of the links or the networks of
// both ends.
#ifndef HD_SIMULATE_TRAFFIC_H
#define HD_SIMULATE_TRAFFIC_H

#include <heddle/simulate.h>

#include "simulate/simulation.h"

HD_BEGIN_DECLS

// Whether all members of a collective are on one node.
int hd_traffic_way(const hd_simulation *s, int64_t rendezvous);

void hd_traffic_start_flow(hd_simulation *s, int from, int64_t send,
                           double bytes);
void hd_traffic_end_flow(hd_simulation *s, int32_t id);

// Counts `by` +1 or -1 on the links and processors of all members of a
// rendezvous: while it goes on, its fixed part too.
void hd_traffic_count(hd_simulation *s, int64_t rendezvous, int by);
void hd_traffic_start_gather(hd_simulation *s, int64_t node, double bytes);
void hd_traffic_end_gather(hd_simulation *s, int32_t id);

HD_END_DECLS

#endif
