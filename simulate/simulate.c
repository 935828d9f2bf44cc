// The graph of all ranks' steps under a cost model, event by event. What works
// at the same time shares: compute its rank's processor (or the node's few),
// transfers the links of both ends. simulation.h has a map.
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <heddle/simulate.h>

#include "base/sized.h"
#include "ir/transport.h"
#include "simulate/advance.h"
#include "simulate/critical.h"
#include "simulate/machine.h"
#include "simulate/overlap.h"
#include "simulate/uneven.h"

// Temps that the rank's steps name: what others have alone takes no memory.
// `by` says for each which rank, from 1, has named it last.
static double sum_temps(const hd_graph *graph, int rank, int *by)
{
    int64_t n = hd_graph_steps(graph, rank);
    double bytes = 0;

    for (int64_t i = 0; i < n; i++) {
        const hd_op *op = hd_graph_node(graph, rank, i)->op;

        for (int v = 0; v < op->nviews; v++) {
            const hd_buffer *root = hd_buffer_root(op->view[v].buffer);

            if (root->role != HD_ROLE_TEMP || by[root->id] == rank + 1)
                continue;
            by[root->id] = rank + 1;
            bytes += (double)hd_type_local_bytes(&root->type);
        }
    }
    return bytes;
}

// Of the rank that takes most.
static hd_status sum_memory(hd_simulation *s, hd_diag *diag)
{
    const hd_module *module = s->graph.module;
    int *by = calloc((size_t)module->nbuffers + 1, sizeof *by);
    double most = 0;

    if (by == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "out of memory in the simulator");
    for (int rank = 0; rank < s->graph.nranks; rank++) {
        double bytes = sum_temps(&s->graph, rank, by);

        most = bytes > most ? bytes : most;
    }
    free(by);
    for (int i = 0; i < module->narguments; i++)
        most += (double)hd_type_local_bytes(&module->argument[i]->type);
    s->prediction.memory = most;
    return HD_OK;
}

static void sum_up(hd_simulation *s)
{
    double transferring = 0, both = 0;

    for (int rank = 0; rank < s->graph.nranks; rank++) {
        transferring += s->activity[rank].transferring;
        both += s->activity[rank].both;
    }
    s->prediction.overlap = transferring > 0 ? both / transferring : 0;
    hd_critical_follow(s);
}

static hd_status simulate(hd_simulation *s, const hd_module *module,
                          const hd_simulate_options *with, hd_diag *diag)
{
    unsigned serial, busy;
    bool over;

    HD_TRY(hd_transports_serial(module, with->transport, with->axes, diag,
                                &serial));
    HD_TRY(
        hd_transports_busy(module, with->transport, with->axes, diag, &busy));
    HD_TRY(hd_simulation_open(s, module, serial, busy, diag));
    over = hd_advance(s);
    HD_TRY(s->agenda.status);
    if (!over)
        return hd_fail(diag, HD_ERROR_INVALID,
                       "%s deadlocks; hd_check shows where", module->name);
    HD_TRY(sum_memory(s, diag));
    sum_up(s);
    hd_uneven_lint(s, diag);
    return s->prediction.overlap > 0 || module->told_alone
               ? HD_OK
               : hd_overlap_lint(&s->graph, diag);
}

hd_status hd_simulate_over(const hd_module *module,
                           const hd_simulate_options *options, hd_diag *diag,
                           hd_simulation **out)
{
    const hd_source *outer;
    hd_simulation *s;
    hd_simulate_options with = hd_simulate_defaults();
    hd_machine machine = HD_EMPTY(hd_machine);
    hd_status status;

    HD_REQUIRE(diag, module);
    HD_REQUIRE(diag, out);
    if (module->stage != HD_STAGE_HOST)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "only a complete host program is simulated");
    if (module->nranks > HD_MAX_RANKS)
        return hd_error(diag, HD_E0105, (hd_loc){0},
                        "%" PRId64 " ranks; at most %d are simulated",
                        module->nranks, HD_MAX_RANKS);
    HD_TRY(
        hd_sized_read("hd_simulate_over", options, sizeof with, diag, &with));
    HD_TRY(hd_machine_read("hd_simulate", with.machine, diag, &machine));
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY,
                       "out of memory in the simulator");
    s->machine = machine;
    outer = hd_diag_source(diag, &module->source);
    status = simulate(s, module, &with, diag);
    s->agenda.diag = NULL; // the caller's, for the run alone
    hd_diag_source(diag, outer);
    if (status != HD_OK)
        hd_simulation_destroy(s);
    else
        *out = s;
    return status;
}

hd_status hd_simulate(const hd_module *module, const hd_machine *machine,
                      hd_diag *diag, hd_simulation **out)
{
    hd_simulate_options options = hd_simulate_defaults();

    options.machine = machine;
    return hd_simulate_over(module, &options, diag, out);
}

void hd_simulation_predict(const hd_simulation *s, hd_prediction *out)
{
    assert(s != NULL && out != NULL);
    hd_sized_write(&s->prediction, sizeof s->prediction, out);
}

void hd_simulation_measure(hd_simulation *s, const double *times)
{
    const hd_graph *g;
    double first;
    int64_t n;

    assert(s != NULL && times != NULL);
    g = &s->graph;
    n = g->first[g->nranks];
    first = n > 0 ? times[0] : 0;
    for (int64_t i = 0; i < n; i++)
        first = hd_simulation_least(first, times[2 * i]);
    for (int64_t i = 0; i < n; i++) {
        s->step[i].start = times[2 * i] - first;
        s->step[i].end = times[2 * i + 1] - first;
    }
    hd_critical_find(s);
}

int64_t hd_simulation_intervals(const hd_simulation *s)
{
    assert(s != NULL);
    return s->graph.first[s->graph.nranks];
}

static inline bool is_interval(const hd_simulation *s, int64_t i)
{
    return s != NULL && i >= 0 && i < s->graph.first[s->graph.nranks];
}

void hd_simulation_interval(const hd_simulation *s, int64_t i, hd_interval *out)
{
    const hd_node *node;
    hd_interval interval;
    bool point;
    int rank;

    assert(out != NULL && is_interval(s, i));
    node = hd_simulation_node(s, i);
    point = node->kind == HD_NODE_SEND || node->kind == HD_NODE_RECV;
    rank = hd_graph_rank(&s->graph, i);
    interval = (hd_interval){
        .rank = rank,
        .stream = node->stream - 1,
        .step = i - s->graph.first[rank],
        .work = node->kind >= HD_NODE_SEND            ? HD_WORK_TRANSFER
                : hd_op_is(node->op, HD_UNIT_COMPUTE) ? HD_WORK_COMPUTE
                                                      : HD_WORK_SYNC,
        .op = hd_op_info_get(node->op->code)->text,
        .start = s->step[i].start,
        .end = s->step[i].end,
        .line = (int)node->op->loc.line,
        .peer = point ? node->peer : -1,
        .meets = point ? node->partner : -1,
        .critical = s->critical[i],
        .launch = node->launch};
    hd_sized_write(&interval, sizeof interval, out);
}

void hd_simulation_name(const hd_simulation *s, int64_t i, char *out,
                        size_t size)
{
    const hd_node *node;
    const char *word;
    hd_text text = {0};

    assert((out != NULL || size == 0) && is_interval(s, i));
    node = hd_simulation_node(s, i);
    word = hd_op_info_get(node->op->code)->text;
    if (node->part < node[1].part) {
        const hd_part *part = &s->graph.part[node->part];

        hd_part_print(&s->graph.frame[part->buffer], part, &text);
    }
    snprintf(out, size, "%s%s%s", word, text.length > 0 ? " " : "",
             text.length > 0 && text.bytes != NULL ? text.bytes : "");
    hd_text_free(&text);
}
