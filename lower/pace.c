#include "lower/pace.h"

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// What is owed moves while something is computed.
void hd_pace_compute(hd_pace *pace, int64_t work, int64_t moves)
{
    int64_t left = work - moves;
    int64_t pays = least(pace->owed, left);

    pace->now += work;
    pace->free += left;
    pace->lent += pays;
    pace->owed -= pays;
    pace->serial += work;
}

int64_t hd_pace_hides(const hd_pace *pace, int64_t bytes, int64_t since)
{
    return least(bytes, least(pace->free, pace->now - least(since, pace->now)));
}

// It goes first: what was lent meanwhile is owed again.
int64_t hd_pace_await(hd_pace *pace, int64_t bytes, int64_t since)
{
    int64_t idle = pace->free - pace->lent;
    int64_t hidden = hd_pace_hides(pace, bytes, since);
    int64_t again = hidden > idle ? hidden - idle : 0;

    pace->free -= hidden;
    pace->lent -= again;
    pace->owed += again;
    pace->now += bytes - hidden;
    return bytes - hidden;
}

int64_t hd_pace_owe(hd_pace *pace, int64_t bytes, int64_t since)
{
    int64_t pays = least(bytes, least(pace->free - pace->lent,
                                      pace->now - least(since, pace->now)));

    pace->lent += pays;
    pace->owed += bytes - pays;
    return bytes - pays;
}

void hd_pace_wait(hd_pace *pace, int64_t when)
{
    int64_t waits = when > pace->now ? least(when - pace->now, pace->owed) : 0;

    pace->now += waits;
    pace->owed -= waits;
}

int64_t hd_pace_end(const hd_pace *pace)
{
    return pace->now + pace->owed;
}
