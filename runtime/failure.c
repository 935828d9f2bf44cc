#include "runtime/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/diag.h"

void hd_line_put(hd_line *line, const char *format, ...)
{
    va_list arguments;
    int n;

    if (line->room == 0)
        return;
    va_start(arguments, format);
    n = vsnprintf(line->at, line->room, format, arguments);
    va_end(arguments);
    if (n < 0 || (size_t)n >= line->room)
        n = (int)line->room - 1;
    line->at += n;
    line->room -= (size_t)n;
}

void hd_line_put_step(hd_line *line, const hd_module *module, hd_opcode code,
                      unsigned at_line, unsigned at_column, int64_t step,
                      int stream, int helper)
{
    hd_line_put(line, "%s", hd_op_info_get(code)->text);
    if (at_line > 0 && module->source.name != NULL)
        hd_line_put(line, " at %s:%u:%u", module->source.name, at_line,
                    at_column);
    hd_line_put(line, " (step %lld, ", (long long)step);
    if (stream == 0)
        hd_line_put(line, "the caller's stream");
    else if (stream == helper)
        hd_line_put(line, "the sends' helper");
    else
        hd_line_put(line, "stream %d", stream - 1);
}

void hd_line_put_sizes(hd_line *line, const hd_module *module, uint64_t run,
                       int i, int rank, int64_t own, int peer, int64_t other)
{
    hd_line_put(line,
                "run %llu of '%s': %.40s is %lld on rank %d and %lld on rank "
                "%d; all ranks are given the same sizes",
                (unsigned long long)run, module->name, module->size[i].name,
                (long long)own, rank, (long long)other, peer);
}

bool hd_failure_set(hd_failure *failure, hd_status status, const char *text,
                    const char *notes)
{
    bool first;

    pthread_mutex_lock(&failure->lock);
    first = !atomic_load_explicit(&failure->failed, memory_order_relaxed);
    if (first) {
        failure->status = status;
        snprintf(failure->text, sizeof failure->text, "%s", text);
        snprintf(failure->notes, sizeof failure->notes, "%s", notes);
        atomic_store_explicit(&failure->failed, true, memory_order_seq_cst);
    }
    pthread_mutex_unlock(&failure->lock);
    return first;
}

// Each line with the cookie of the first place that it names.
static void report_notes(const char *notes, const hd_source *source,
                         hd_diag *diag)
{
    while (*notes != '\0') {
        char line[HD_FAILURE_NOTES];
        size_t length = strcspn(notes, "\n");

        snprintf(line, sizeof line, "%.*s", (int)length, notes);
        hd_diag_cookie(diag, hd_source_cookie_told(source, line));
        hd_note(diag, (hd_loc){0}, "%s", line);
        notes += length + (notes[length] == '\n');
    }
}

hd_status hd_failure_report(hd_failure *failure, const hd_source *source,
                            hd_diag *diag)
{
    uint64_t outer = hd_diag_cookie(diag, 0);
    hd_status status;

    pthread_mutex_lock(&failure->lock);
    hd_diag_cookie(diag, hd_source_cookie_told(source, failure->text));
    status = hd_fail(diag, failure->status, "%s", failure->text);
    report_notes(failure->notes, source, diag);
    pthread_mutex_unlock(&failure->lock);
    hd_diag_cookie(diag, outer);
    return status;
}
