// Events that a caller shares with programs. Recording by hand is issuing and
// reaching at once; a program issues when its run does, and reaches when its
// stream gets there.
#include "runtime/event.h"

#include <assert.h>
#include <stdlib.h>

hd_event *hd_event_create(void)
{
    return calloc(1, sizeof(hd_event));
}

void hd_event_destroy(hd_event *event)
{
    free(event);
}

uint64_t hd_event_issue(hd_event *event, uint64_t n)
{
    return atomic_fetch_add_explicit(&event->issued, n, memory_order_seq_cst) +
           1;
}

void hd_event_reach(hd_event *event, uint64_t number)
{
    uint64_t before =
        atomic_load_explicit(&event->reached, memory_order_relaxed);

    // Streams of several runs may get here in any order: the count only grows.
    while (before < number && !atomic_compare_exchange_weak_explicit(
                                  &event->reached, &before, number,
                                  memory_order_seq_cst, memory_order_relaxed))
        ;
    hd_doorbell_ring(&event->doorbell);
}

uint64_t hd_event_issued(const hd_event *event)
{
    return atomic_load_explicit(&event->issued, memory_order_seq_cst);
}

bool hd_event_has_reached(const hd_event *event, uint64_t number)
{
    return atomic_load_explicit(&event->reached, memory_order_seq_cst) >=
           number;
}

void hd_event_record(hd_event *event)
{
    assert(event != NULL);
    hd_event_reach(event, hd_event_issue(event, 1));
}

hd_status hd_event_wait(hd_event *event, double timeout)
{
    int64_t deadline = hd_clock_after(timeout);
    uint64_t number;

    if (event == NULL)
        return HD_ERROR_ARGUMENT;
    number = hd_event_issued(event);
    for (;;) {
        uint32_t seen = hd_doorbell_arm(&event->doorbell);
        bool reached = hd_event_has_reached(event, number);
        int64_t left = deadline - hd_clock();

        if (!reached && left > 0)
            hd_doorbell_sleep(&event->doorbell, seen, left);
        hd_doorbell_disarm(&event->doorbell);
        if (reached)
            return HD_OK;
        if (left <= 0)
            return HD_ERROR_TIMEOUT;
    }
}
