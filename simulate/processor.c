// See processor.h.
#include <heddle/simulate.h>

#include "simulate/processor.h"

bool hd_processor_copies(const hd_simulation *s)
{
    return s->machine.processors > 0;
}

static hd_processor *processor_of(const hd_simulation *s, int rank)
{
    return &s->processor[hd_processor_copies(s) ? hd_simulation_host(s, rank)
                                                : rank];
}

// ---------------------------------------------------------------- by blocks

static double width_of(hd_simulation *s, const hd_task *task)
{
    return hd_simulation_cost(s, hd_simulation_node(s, task->node)).width;
}

// A GPU's kernels that are under way take turns in having blocks started. What
// cannot fill its share leaves it to the others: the narrowest come first.
static void share_blocks(hd_simulation *s, int rank, const hd_processor *p)
{
    const hd_activity *a = &s->activity[rank];
    double room = a->gathering[HD_NEAR] + a->gathering[HD_FAR] > 0
                      ? 1 - s->machine.collective_units
                      : 1;
    int64_t left = p->busy;

    for (int32_t id = p->first; id != 0; id = s->agenda.task[id].next[0]) {
        double width = width_of(s, &s->agenda.task[id]);
        double part = hd_simulation_least(width, room / (double)left);

        left--;
        room -= part;
        hd_agenda_rate(&s->agenda, id, part / width);
    }
}

// ------------------------------------------------------------------ equally

static double equal_rate(const hd_simulation *s, const hd_processor *p)
{
    return p->busy > s->machine.processors
               ? (double)s->machine.processors / p->busy
               : 1;
}

// Brings what its tasks have done up to now.
static void catch_up(const hd_simulation *s, hd_processor *p)
{
    p->done =
        p->first != 0 ? p->done + p->rate * (s->agenda.now - p->since) : 0;
    p->since = s->agenda.now;
}

static void share_equally(hd_simulation *s, hd_processor *p)
{
    hd_task *task = s->agenda.task;
    double rate = equal_rate(s, p), left;

    if (p->first == 0 || (p->next == p->first && p->rate == rate))
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

// ------------------------------------------------------------------ of both

void hd_processor_share(hd_simulation *s, int rank)
{
    hd_processor *p = processor_of(s, rank);

    if (hd_processor_copies(s))
        share_equally(s, p);
    else
        share_blocks(s, rank, p);
}

// Behind `before`, or first.
static void insert(hd_processor *p, hd_task *task, int32_t id, int32_t before)
{
    int32_t next = before != 0 ? task[before].next[0] : p->first;

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
    hd_task *task = s->agenda.task;
    int32_t before = p->last;

    if (id == 0)
        return;
    hd_simulation_settle(s, rank);
    s->activity[rank].ncompute += !transfer;
    if (hd_processor_copies(s)) {
        catch_up(s, p);
        task[id].left += p->done;
        while (before != 0 && task[before].left > task[id].left)
            before = task[before].before[0];
    } else {
        double width = width_of(s, &task[id]);

        while (before != 0 && width_of(s, &task[before]) > width)
            before = task[before].before[0];
    }
    p->busy++;
    insert(p, task, id, before);
    hd_processor_share(s, rank);
}

void hd_processor_end(hd_simulation *s, int32_t id, bool transfer)
{
    hd_task *task = s->agenda.task;
    int rank = task[id].rank;
    hd_processor *p = processor_of(s, rank);
    int32_t before = task[id].before[0], next = task[id].next[0];

    hd_simulation_settle(s, rank);
    s->activity[rank].ncompute -= !transfer;
    catch_up(s, p);
    p->busy--;
    p->next = 0;
    *(before != 0 ? &task[before].next[0] : &p->first) = next;
    *(next != 0 ? &task[next].before[0] : &p->last) = before;
    hd_agenda_drop(&s->agenda, id);
    hd_processor_share(s, rank);
}
