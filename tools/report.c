// Verdicts and statistics, over all ranks.
#include "report.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

outcome report_verdicts(const job *job, FILE *to)
{
    outcome result = FINE;

    for (size_t i = 0; i < job->nslots; i++) {
        verdict all = {0};

        for (int rank = 0; rank < job->ranks; rank++)
            verdict_merge(&all, &job->verdict[(size_t)rank * job->nslots + i]);
        if (all.checked + all.unbounded > 0 &&
            verdict_report(&all, &job->slot[i].about, to) != FINE)
            result = FAILED;
    }
    return result;
}

typedef struct range {
    uint64_t low, high;
} range;

// The least and the most that a rank counted, in a field of hd_stats.
static range range_of(const job *job, size_t stats, size_t field)
{
    range range = {UINT64_MAX, 0};

    for (int rank = 0; rank < job->ranks; rank++) {
        uint64_t value;

        memcpy(&value, (const char *)&job->report[rank] + stats + field,
               sizeof value);
        if (value < range.low)
            range.low = value;
        if (value > range.high)
            range.high = value;
    }
    return range;
}

static void print_range(const char *name, range range, FILE *to)
{
    fprintf(to, "%-18s%" PRIu64, name, range.low);
    if (range.high != range.low)
        fprintf(to, " to %" PRIu64, range.high);
    fputs(" a rank", to);
}

static void print_count(const job *job, const char *name, size_t field,
                        FILE *to)
{
    print_range(name, range_of(job, offsetof(report, last), field), to);
    fputc('\n', to);
}

// A count since creation, and what it grew by from the second run on.
static void print_growth(const job *job, const char *name, size_t field,
                         FILE *to)
{
    range first = range_of(job, offsetof(report, first), field);
    uint64_t most = 0;

    for (int rank = 0; rank < job->ranks; rank++) {
        const char *report = (const char *)&job->report[rank];
        uint64_t before, after;

        memcpy(&before, report + offsetof(struct report, first) + field,
               sizeof before);
        memcpy(&after, report + offsetof(struct report, last) + field,
               sizeof after);
        if (after - before > most)
            most = after - before;
    }
    print_range(name, first, to);
    if (job->iters > 1)
        fprintf(to, ", %" PRIu64 " more in the %" PRId64 " later run%s", most,
                job->iters - 1, job->iters == 2 ? "" : "s");
    fputc('\n', to);
}

typedef struct spread {
    double low, high; // of those that are numbers
    size_t numbers, nans;
} spread;

static void spread_over(spread *s, const double *value, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (isnan(value[i])) {
            s->nans++;
            continue;
        }
        s->low = s->numbers > 0 ? fmin(s->low, value[i]) : value[i];
        s->high = s->numbers > 0 ? fmax(s->high, value[i]) : value[i];
        s->numbers++;
    }
}

void report_values(const hd_argument *about, const void *data, FILE *to)
{
    enum { BATCH = 1024 };
    const char *at = data;
    char shape[SHAPE_TEXT];
    double value[BATCH];
    spread s = {0};

    for (size_t done = 0, n; done < about->elements; done += n) {
        n = about->elements - done < BATCH ? about->elements - done : BATCH;
        hd_dtype_load(about->dtype, at + done * hd_dtype_size(about->dtype), n,
                      value);
        spread_over(&s, value, n);
    }
    fprintf(to, "%%%s: %s%s", about->name, hd_dtype_text(about->dtype),
            show_shape(about->ndims, about->extent, shape));
    if (s.numbers > 0)
        fprintf(to, ", %.4g to %.4g", s.low, s.high);
    if (s.nans > 0)
        fprintf(to, ", %zu NaN%s", s.nans, s.nans == 1 ? "" : "s");
    fputc('\n', to);
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

// Of each run, in nanoseconds.
static uint64_t *times_of(const job *job)
{
    size_t n = (size_t)job->iters;
    uint64_t *time = need(n, sizeof *time);

    for (size_t i = 0; i < n; i++)
        time[i] =
            atomic_load_explicit(&job->nanoseconds[i], memory_order_relaxed);
    return time;
}

static void print_times(const job *job, FILE *to)
{
    size_t n = (size_t)job->iters;
    uint64_t *time = times_of(job);

    fprintf(to, "%-18s%.3f ms on the slowest rank\n", "first run",
            (double)time[0] * 1e-6);
    if (--n > 0) {
        uint64_t *later = time + 1;
        size_t middle = n / 2;

        qsort(later, n, sizeof *later, by_time);
        fprintf(to, "%-18s%.3f ms the median, %.3f the least, of %zu\n",
                "later runs", (double)later[middle] * 1e-6,
                (double)later[0] * 1e-6, n);
    }
    free(time);
}

void report_time(const job *job)
{
    if (isatty(STDERR_FILENO))
        print_times(job, stderr);
}

void report_stats(const job *job, FILE *to)
{
    print_count(job, "steps a run", offsetof(hd_stats, steps), to);
    print_count(job, "bytes sent a run", offsetof(hd_stats, bytes_sent), to);
    print_growth(job, "allocations", offsetof(hd_stats, allocations), to);
    print_growth(job, "handle exchanges", offsetof(hd_stats, handle_exchanges),
                 to);
    print_growth(job, "host waits", offsetof(hd_stats, host_waits), to);
    fprintf(to, "%-18s%s\n", "matmul",
            job->report[0].matmul[0] ? job->report[0].matmul : "none");
    if (job->report[0].attention[0])
        fprintf(to, "%-18s%s\n", "attention", job->report[0].attention);
    if (job->report[0].transport[0])
        fprintf(to, "%-18s%s\n", "transport", job->report[0].transport);
    print_times(job, to);
}
