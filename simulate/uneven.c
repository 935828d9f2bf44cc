// A rank that sees more keys than others keeps them waiting: a sequence in
// blocks, a rank each, leaves the last rank twice the mean.
#include "simulate/uneven.h"

#include "ir/causal.h"

static const double most_uneven = 1.25;

// What a rank attends for. `longest` is the step with a mask of its own that
// takes the longest, -1 if none has one.
static double attending(hd_simulation *s, int rank, int64_t *longest)
{
    const hd_graph *g = &s->graph;
    double total = 0, most = 0;

    *longest = -1;
    for (int64_t i = g->first[rank]; i < g->first[rank + 1]; i++) {
        double seconds;

        if (hd_op_family(g->node[i].op) != HD_FAMILY_ATTEND)
            continue;
        seconds = hd_simulation_cost(s, &g->node[i]).seconds;
        total += seconds;
        if (hd_causal_key(g->node[i].op) != NULL &&
            (*longest < 0 || seconds > most)) {
            most = seconds;
            *longest = i;
        }
    }
    return total;
}

void hd_uneven_lint(hd_simulation *s, hd_diag *diag)
{
    const hd_graph *g = &s->graph;
    double all = 0, most = 0;
    int64_t longest = -1, found;
    const hd_key *key;
    int last = 0;

    for (int rank = 0; rank < g->nranks; rank++) {
        double seconds = attending(s, rank, &found);

        all += seconds;
        if (seconds > most) {
            most = seconds;
            last = rank;
            longest = found;
        }
    }
    if (longest < 0 || !(most * g->nranks > most_uneven * all))
        return;
    key = hd_causal_key(g->node[longest].op);
    hd_warning(diag, HD_E0814, key->loc,
               "rank %d attends for %.2f times as long as ranks do on average: "
               "'%s' leaves it more keys than others, who wait",
               last, most * g->nranks / all, hd_key_info_get(key->code)->text);
}
