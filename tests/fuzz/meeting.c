#include "tests/fuzz/meeting.h"

#include <stdlib.h>
#include <string.h>

meeting *meeting_create(int ranks)
{
    static const meeting fresh = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                  .news = PTHREAD_COND_INITIALIZER};
    meeting *m = malloc(sizeof(*m));

    *m = fresh;
    m->ranks = ranks;
    return m;
}

static hd_status gather(void *context, const void *mine, size_t bytes,
                        void *all)
{
    meeting_seat *seat = context;
    meeting *m = seat->meeting;
    uint64_t round;

    pthread_mutex_lock(&m->lock);
    round = m->round;
    must(bytes * (size_t)m->ranks <= sizeof(m->data[0]), "a card is small", "");
    memcpy(m->data[round % 2] + bytes * (size_t)seat->rank, mine, bytes);
    if (++m->arrived == m->ranks) {
        m->arrived = 0;
        m->round++;
        pthread_cond_broadcast(&m->news);
    }
    while (m->round == round)
        pthread_cond_wait(&m->news, &m->lock);
    memcpy(all, m->data[round % 2], bytes * (size_t)m->ranks);
    pthread_mutex_unlock(&m->lock);
    return HD_OK;
}

hd_oob meeting_oob(meeting_seat *seat)
{
    return (hd_oob){seat, seat->rank, seat->meeting->ranks, gather};
}
