#include "tests/fuzz/rendezvous.h"

#include <stdlib.h>
#include <string.h>

rendezvous *rendezvous_create(int ranks)
{
    static const rendezvous fresh = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                     .news = PTHREAD_COND_INITIALIZER};
    rendezvous *m = malloc(sizeof *m);

    *m = fresh;
    m->ranks = ranks;
    return m;
}

static hd_status gather(void *context, const void *mine, size_t bytes,
                        void *all)
{
    rendezvous_seat *seat = context;
    rendezvous *m = seat->rendezvous;
    uint64_t round;

    pthread_mutex_lock(&m->lock);
    round = m->round;
    must(bytes * (size_t)m->ranks <= sizeof m->data[0], "an endpoint is small",
         "");
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

hd_oob rendezvous_oob(rendezvous_seat *seat)
{
    return (hd_oob){sizeof(hd_oob), seat, seat->rank, seat->rendezvous->ranks,
                    gather};
}
