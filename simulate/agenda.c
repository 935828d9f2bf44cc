// See agenda.h. An end that was put off stays in the heap; its version tells.
#include "simulate/agenda.h"

#include <stdlib.h>

#include "base/array.h"

static bool is_earlier(const hd_task_end *a, const hd_task_end *b)
{
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

// Whether there is room for one more; running out is said once.
static bool has_room(hd_agenda *agenda, void **array, int64_t *room,
                     int64_t need, size_t size)
{
    if (agenda->status == HD_OK)
        agenda->status = hd_grow(array, room, need, size, agenda->diag);
    return agenda->status == HD_OK;
}

void hd_agenda_put(hd_agenda *agenda, int32_t id, double time)
{
    hd_task_end *heap, end;
    int64_t i = agenda->nends;

    if (!has_room(agenda, (void **)&agenda->heap, &agenda->ends_room, i + 1,
                  sizeof *agenda->heap))
        return;
    heap = agenda->heap;
    end =
        (hd_task_end){time, agenda->norders++, id, ++agenda->task[id].version};
    agenda->nends++;
    while (i > 0 && is_earlier(&end, &heap[(i - 1) / 2])) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = end;
}

static hd_task_end pop(hd_agenda *agenda)
{
    hd_task_end *heap = agenda->heap;
    hd_task_end first = heap[0], last = heap[--agenda->nends];
    int64_t i = 0;

    for (;;) {
        int64_t child = 2 * i + 1;

        if (child >= agenda->nends)
            break;
        if (child + 1 < agenda->nends &&
            is_earlier(&heap[child + 1], &heap[child]))
            child++;
        if (!is_earlier(&heap[child], &last))
            break;
        heap[i] = heap[child];
        i = child;
    }
    if (agenda->nends > 0)
        heap[i] = last;
    return first;
}

int32_t hd_agenda_next(hd_agenda *agenda)
{
    while (agenda->nends > 0 && agenda->status == HD_OK) {
        hd_task_end end = pop(agenda);

        if (agenda->task[end.task].version != end.version)
            continue;
        agenda->now = end.time;
        return end.task;
    }
    return 0;
}

int32_t hd_agenda_add(hd_agenda *agenda, hd_task_kind kind, int rank,
                      int64_t node, double work)
{
    int32_t id = (int32_t)agenda->free_task;
    int32_t version = 0;

    if (id != 0) {
        agenda->free_task = agenda->task[id].next[0];
        version = agenda->task[id].version;
    } else {
        if (!has_room(agenda, (void **)&agenda->task, &agenda->tasks_room,
                      agenda->ntasks + 2, sizeof *agenda->task))
            return 0;
        id = (int32_t)++agenda->ntasks;
    }
    agenda->task[id] = (hd_task){.kind = kind,
                                 .rank = rank,
                                 .node = node,
                                 .left = work,
                                 .since = agenda->now,
                                 .version = version};
    return id;
}

void hd_agenda_rate(hd_agenda *agenda, int32_t id, double rate)
{
    hd_task *t = &agenda->task[id];

    if (t->rate == rate && rate > 0)
        return;
    t->left -= t->rate * (agenda->now - t->since);
    t->left = t->left > 0 ? t->left : 0;
    t->since = agenda->now;
    t->rate = rate;
    if (rate > 0)
        hd_agenda_put(agenda, id, agenda->now + t->left / rate);
    else
        t->version++;
}

void hd_agenda_delay(hd_agenda *agenda, int rank, int64_t node, double seconds,
                     double then)
{
    int32_t id = hd_agenda_add(agenda, HD_TASK_DELAY, rank, node, seconds);

    if (id == 0)
        return;
    agenda->task[id].then = then;
    hd_agenda_rate(agenda, id, 1);
}

void hd_agenda_drop(hd_agenda *agenda, int32_t id)
{
    agenda->task[id].version++;
    agenda->task[id].next[0] = (int32_t)agenda->free_task;
    agenda->free_task = id;
}

void hd_agenda_free(hd_agenda *agenda)
{
    free(agenda->task);
    free(agenda->heap);
}

void hd_task_link(hd_agenda *agenda, int32_t *first, int32_t id, int k)
{
    agenda->task[id].next[k] = *first;
    if (*first != 0)
        agenda->task[*first].before[k] = id;
    *first = id;
}

void hd_task_unlink(hd_agenda *agenda, int32_t *first, int32_t id, int k)
{
    const hd_task *t = &agenda->task[id];

    if (t->before[k] != 0)
        agenda->task[t->before[k]].next[k] = t->next[k];
    else
        *first = t->next[k];
    if (t->next[k] != 0)
        agenda->task[t->next[k]].before[k] = t->before[k];
}
