// Arguments that differ from the tensor program's are told before anything is
// proven. Then deadlock is looked for, under the strongest blocking: what never
// ends has no order; and once more where NCCL is to move the data, which blocks
// in its own way. Races are looked for under the weakest ordering.
#include "check/prove.h"

#include "check/alias.h"
#include "check/deadlock.h"
#include "check/evaluate.h"
#include "check/launch.h"
#include "check/nccl.h"
#include "check/provenance.h"
#include "check/race.h"
#include "check/waste.h"
#include "ir/transport.h"
#include "steps/match.h"

enum { MOST_WARNED = 1 << 16 }; // steps of all ranks

static hd_status check_deadlock(const hd_graph *graph, unsigned serial,
                                unsigned busy, hd_diag *diag)
{
    hd_replay replay;
    hd_status status = hd_replay_run(graph, serial, diag, &replay);

    HD_TRY(status);
    if (!hd_schedule_is_over(&replay.schedule))
        status = hd_deadlock_report(&replay, diag);
    hd_replay_free(&replay);
    return status == HD_OK ? hd_launch_check(graph, serial, busy, diag)
                           : status;
}

static bool may_wait(const hd_node *node)
{
    return node->kind != HD_NODE_PLAIN && node->kind != HD_NODE_FORK;
}

// The first step of a stream that may wait, NULL if there is none.
static const hd_node *find_wait(const hd_graph *graph, int rank, int stream)
{
    int64_t n = hd_graph_length(graph, rank, stream);

    for (int64_t i = 0; i < n; i++) {
        int64_t step = hd_graph_at(graph, rank, stream, i);
        const hd_node *node = hd_graph_node(graph, rank, step);

        if (may_wait(node))
            return node;
    }
    return NULL;
}

// The host runs ahead, so every stream that ever waits may do so at once. Ranks
// are on devices of their own; the first that has too many is reported.
static void count_waiting(const hd_graph *graph, int limit, hd_diag *diag)
{
    for (int rank = 0; rank < graph->nranks; rank++) {
        const hd_node *beyond = NULL;
        int n = 0;

        for (int stream = 0; stream < graph->nstreams; stream++) {
            const hd_node *node = find_wait(graph, rank, stream);

            if (node != NULL && ++n == limit + 1)
                beyond = node;
        }
        if (beyond == NULL)
            continue;
        hd_warning(
            diag, HD_E0805, beyond->op->loc,
            "%d streams of rank %d, with the caller's, may wait at once; "
            "a device may stand still with more than %d",
            n, graph->number[rank], limit);
        return;
    }
}

static hd_status prove(const hd_graph *graph, const hd_check_options *options,
                       hd_diag *diag)
{
    hd_status aliases, races;
    unsigned serial = 0, busy = 0;

    HD_TRY(hd_transports_busy(graph->module, options->transport, options->axes,
                              diag, &busy));
    HD_TRY(hd_transports_serial(graph->module, options->transport,
                                options->axes, diag, &serial));
    HD_TRY(hd_graph_match(graph, diag));
    HD_TRY(hd_nccl_check(graph, serial, diag));
    count_waiting(graph, options->waiting_streams, diag);
    HD_TRY(check_deadlock(graph, 0, busy & ~serial, diag));
    if (serial != 0)
        HD_TRY(check_deadlock(graph, serial, busy, diag));
    aliases = hd_alias_check(graph, diag);
    races = hd_race_check(graph, serial, diag, NULL);
    HD_TRY(aliases);
    HD_TRY(races);
    HD_TRY(hd_waste_check(graph, diag));
    return options->against != NULL
               ? hd_provenance_check(graph, options->against, options->seed,
                                     diag)
               : HD_OK;
}

static hd_status look_for_deadlock(const hd_graph *graph, unsigned serial,
                                   unsigned busy, hd_diag *diag)
{
    hd_replay replay;
    bool over;

    HD_TRY(hd_replay_run(graph, serial, diag, &replay));
    over = hd_schedule_is_over(&replay.schedule);
    hd_replay_free(&replay);
    if (over)
        HD_TRY(hd_launch_look(graph, serial, busy, diag, &over));
    return over ? HD_OK : HD_ERROR_INVALID;
}

static hd_status look(const hd_graph *graph, unsigned serial, unsigned busy,
                      hd_diag *diag, bool *right)
{
    bool found;

    if (!hd_graph_is_matched(graph))
        return HD_ERROR_INVALID;
    HD_TRY(hd_nccl_check(graph, serial, diag));
    HD_TRY(look_for_deadlock(graph, 0, busy & ~serial, diag));
    if (serial != 0)
        HD_TRY(look_for_deadlock(graph, serial, busy, diag));
    HD_TRY(hd_alias_check(graph, diag));
    HD_TRY(hd_race_look(graph, diag, &found));
    *right = !found;
    return HD_OK;
}

// Where sends and recvs are not issued by as many ranks at once, each rank
// along the axis has its own.
static hd_status fold(const hd_module *module, const hd_symmetry *symmetry,
                      hd_full *full, hd_diag *diag, hd_graph *graph)
{
    hd_status status = hd_graph_fold(module, symmetry, full, diag, graph);

    if (status != HD_ERROR_INVALID || full->split < 0)
        return status;
    full->apart = true;
    return hd_graph_fold(module, symmetry, full, diag, graph);
}

// What is found is not reported: it may not be wrong, as peers order, too, and
// what is wrong is said of all ranks.
static hd_status look_at_first(const hd_module *module,
                               const hd_symmetry *symmetry, hd_full *full,
                               unsigned serial, unsigned busy, hd_diag *diag,
                               hd_graph *graph, bool *right)
{
    bool muted = hd_diag_mute(diag, true);
    hd_status status = fold(module, symmetry, full, diag, graph);

    if (status == HD_OK) {
        status = look(graph, serial, busy, diag, right);
        if (!*right)
            hd_graph_free(graph);
    }
    hd_diag_mute(diag, muted);
    return status == HD_ERROR_INVALID ? HD_OK : status;
}

static hd_status warn(const hd_graph *graph, const hd_check_options *options,
                      hd_diag *diag)
{
    count_waiting(graph, options->waiting_streams, diag);
    return hd_waste_check(graph, diag);
}

// What only some ranks waste is seen on all, where these are not too many.
// Where ranks issue some of the steps each it is seen on all or not at all.
static hd_status warn_of_all(const hd_graph *first, const hd_full *full,
                             const hd_check_options *options, hd_diag *diag)
{
    int64_t steps = first->first[first->nranks] / first->nranks;
    bool many = steps > MOST_WARNED / first->module->nranks;
    hd_graph all;
    hd_status status;

    if (full->split < 0 && (many || (!full->masks && !full->empty)))
        return warn(first, options, diag);
    if (many)
        return HD_OK;
    HD_TRY(hd_graph_create(first->module, diag, &all));
    status = warn(&all, options, diag);
    hd_graph_free(&all);
    return status;
}

static hd_status prove_first(const hd_module *module,
                             const hd_symmetry *symmetry, hd_full *full,
                             const hd_check_options *options, hd_diag *diag,
                             bool *right)
{
    unsigned serial = 0, busy = 0;
    hd_graph graph;
    hd_status status;

    HD_TRY(hd_transports_busy(module, options->transport, options->axes, diag,
                              &busy));
    HD_TRY(hd_transports_serial(module, options->transport, options->axes, diag,
                                &serial));
    HD_TRY(look_at_first(module, symmetry, full, serial, busy, diag, &graph,
                         right));
    if (!*right)
        return HD_OK;
    status = warn_of_all(&graph, full, options, diag);
    hd_graph_free(&graph);
    return status;
}

static hd_status prove_by(const hd_module *module, const hd_symmetry *symmetry,
                          const hd_check_options *options, hd_diag *diag,
                          bool *right)
{
    hd_full full;
    hd_status status = hd_symmetry_full(module, symmetry, diag, &full);

    if (status == HD_ERROR_INVALID)
        return HD_OK;
    HD_TRY(status);
    status = prove_first(module, symmetry, &full, options, diag, right);
    hd_full_free(&full);
    return status;
}

// Besides the axes that turn one may be split: the first that shows it.
hd_status hd_prove_first(const hd_module *module,
                         const hd_check_options *options, hd_diag *diag,
                         bool *right)
{
    hd_symmetry turns, split;
    bool some = false;

    *right = false;
    if (options->against != NULL)
        return HD_OK;
    HD_TRY(hd_symmetry_find(module, diag, &turns));
    for (int axis = 0; axis < module->naxes && !*right; axis++) {
        some |= turns.turns[axis];
        split = turns;
        HD_TRY(hd_symmetry_split(module, axis, diag, &split));
        if (split.split >= 0)
            HD_TRY(prove_by(module, &split, options, diag, right));
    }
    return some && !*right ? prove_by(module, &turns, options, diag, right)
                           : HD_OK;
}

hd_status hd_prove_all(const hd_module *module, const hd_check_options *options,
                       hd_diag *diag)
{
    hd_graph graph;
    hd_status status;

    HD_TRY(hd_graph_create(module, diag, &graph));
    status = prove(&graph, options, diag);
    hd_graph_free(&graph);
    return status;
}

hd_status hd_prove(const hd_module *module, const hd_check_options *options,
                   hd_diag *diag)
{
    const hd_source *outer = hd_diag_source(diag, &module->source);
    bool right = false;
    hd_status status = HD_OK;

    if (options->against != NULL)
        status = hd_arguments_match(module, options->against, diag, NULL);
    if (status == HD_OK)
        status = hd_prove_first(module, options, diag, &right);
    if (status == HD_OK && !right)
        status = hd_prove_all(module, options, diag);
    hd_diag_source(diag, outer);
    return status;
}
