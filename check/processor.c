// See processor.h.
#include "check/processor.h"

bool hd_processor_copies(const hd_simulation *s)
{
    return s->machine.processors > 0;
}

static hd_processor *processor_of(const hd_simulation *s, int rank)
{
    return &s->processor[hd_processor_copies(s) ? hd_simulation_host(s, rank)
                                                : rank];
}

static double compute_rate(const hd_simulation *s, int rank)
{
    const hd_activity *a = &s->activity[rank];
    int busy = processor_of(s, rank)->busy;

    if (hd_processor_copies(s))
        return busy > s->machine.processors
                   ? (double)s->machine.processors / busy
                   : 1;
    return (a->gathering[HD_NEAR] + a->gathering[HD_FAR] > 0
                ? 1 - s->machine.collective_units
                : 1) /
           busy;
}

// Brings what its tasks have done up to now.
static void catch_up(const hd_simulation *s, hd_processor *p)
{
    p->done =
        p->first != 0 ? p->done + p->rate * (s->agenda.now - p->since) : 0;
    p->since = s->agenda.now;
}

void hd_processor_share(hd_simulation *s, int rank)
{
    hd_processor *p = processor_of(s, rank);
    hd_task *task = s->agenda.task;
    double rate, left;

    if (p->first == 0)
        return;
    rate = compute_rate(s, rank);
    if (p->next == p->first && p->rate == rate)
        return;
    catch_up(s, p);
    p->rate = rate;
    if (p->next != 0 && p->next != p->first)
        task[p->next].version++; // another one ends before it
    p->next = p->first;
    left = task[p->first].left - p->done;
    hd_agenda_put(&s->agenda, p->first,
                  s->agenda.now + (left > 0 ? left / rate : 0));
}

// By the order of ends; of those that end together, behind those that are
// there.
static void insert(hd_processor *p, hd_task *task, int32_t id)
{
    int32_t before = p->last, next;

    while (before != 0 && task[before].left > task[id].left)
        before = task[before].before[0];
    next = before != 0 ? task[before].next[0] : p->first;
    task[id].before[0] = before;
    task[id].next[0] = next;
    *(before != 0 ? &task[before].next[0] : &p->first) = id;
    *(next != 0 ? &task[next].before[0] : &p->last) = id;
}

void hd_processor_start(hd_simulation *s, int rank, int64_t node,
                        double seconds, bool transfer)
{
    hd_processor *p = processor_of(s, rank);
    int32_t id =
        hd_agenda_add(&s->agenda, HD_TASK_COMPUTE, rank, node, seconds);

    if (id == 0)
        return;
    hd_simulation_settle(s, rank);
    s->activity[rank].ncompute += !transfer;
    catch_up(s, p);
    p->busy++;
    s->agenda.task[id].left += p->done;
    insert(p, s->agenda.task, id);
    hd_processor_share(s, rank);
}

void hd_processor_end(hd_simulation *s, int32_t id, bool transfer)
{
    hd_task *task = s->agenda.task;
    int rank = task[id].rank;
    hd_processor *p = processor_of(s, rank);

    hd_simulation_settle(s, rank);
    s->activity[rank].ncompute -= !transfer;
    catch_up(s, p);
    p->busy--;
    p->next = 0;
    p->first = task[id].next[0];
    *(p->first != 0 ? &task[p->first].before[0] : &p->last) = 0;
    hd_agenda_drop(&s->agenda, id);
    hd_processor_share(s, rank);
}
