// The inside of an hd_event: two counts, of records issued and of the last one
// reached. Whoever waits takes the count of issued records when it asks, and
// waits until as many are reached; so a record made later does not hold it.
#ifndef HD_RUNTIME_EVENT_H
#define HD_RUNTIME_EVENT_H

#include <heddle/async.h>

#include "runtime/ranks/doorbell.h"

struct hd_event {
    hd_doorbell doorbell;
    _Atomic uint64_t issued;
    _Atomic uint64_t reached;
};

// Announces `n` records; returns the number of the first.
uint64_t hd_event_issue(hd_event *event, uint64_t n);
// The record of this number is reached, and with it all before.
void hd_event_reach(hd_event *event, uint64_t number);
// How many records were issued: what to wait for.
uint64_t hd_event_issued(const hd_event *event);
bool hd_event_has_reached(const hd_event *event, uint64_t number);

#endif
