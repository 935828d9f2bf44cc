#include "runtime/miscount.h"

#include "base/diag.h"
#include "runtime/failure.h"

// " [2, 0]": the indices of a count among those that the step reads.
static void put_indices(hd_line *line, const hd_span *counts, int64_t i)
{
    int64_t inner = hd_span_elements(counts);

    for (int d = 0; d < counts->ndims; d++) {
        inner /= counts->extent[d];
        hd_line_put(line, "%s%lld", d == 0 ? " [" : ", ",
                    (long long)(i / inner % counts->extent[d]));
    }
    hd_line_put(line, "%s", counts->ndims > 0 ? "]" : "");
}

// A count of a dimension, in the buffer that has it. Behind those of its rows
// an attention has those of its keys.
static void put_count(hd_line *line, const hd_step *step,
                      const hd_miscount *miscount)
{
    int view = hd_op_key_view(step->op, HD_KEY_COUNTS);
    int64_t i = miscount->group, n = 0;
    const hd_buffer *of;

    if (view >= 0)
        n = hd_span_elements(&step->span[view]);
    if (i < n) {
        of = step->op->view[hd_op_counted(step->op)].buffer;
    } else {
        view = hd_op_key_view(step->op, HD_KEY_COUNTS_OF_KEYS);
        of = step->op->view[hd_op_counted_keys(step->op)].buffer;
        i -= n;
    }
    hd_line_put(line, "): count");
    put_indices(line, &step->span[view], i);
    hd_line_put(line, " of %%%s is %lld; dimension %d of %%%s has 0 to %lld",
                step->op->view[view].buffer->name, (long long)miscount->count,
                of->counted, of->name, (long long)miscount->left);
}

static void put_group(hd_line *line, const hd_step *step,
                      const hd_miscount *miscount)
{
    int view = hd_op_key_view(step->op, HD_KEY_GROUPS);

    hd_line_put(line,
                "): group %lld of %%%s has %lld rows; it may have 0 to %lld, "
                "what the groups before it leave of %lld",
                (long long)miscount->group, step->span[view].buffer->name,
                (long long)miscount->count, (long long)miscount->left,
                (long long)step->span[1].extent[0]);
}

// A count of a sequence, by its indices among all of the step's.
static void put_sequence(hd_line *line, const hd_step *step,
                         const hd_miscount *miscount)
{
    const hd_span *counts =
        &step->span[hd_op_key_view(step->op, HD_KEY_GROUPS)];

    hd_line_put(line, "): sequence");
    put_indices(line, counts, miscount->group);
    hd_line_put(line,
                " of %%%s has %lld rows; it may have 0 to %lld, what the "
                "sequences before it leave of %lld",
                counts->buffer->name, (long long)miscount->count,
                (long long)miscount->left, (long long)hd_step_among(step).room);
}

void hd_miscount_print(const hd_module *module, int rank, const hd_step *step,
                       const hd_miscount *miscount, char out[HD_GROUP_TEXT])
{
    hd_line line = {out, HD_GROUP_TEXT};

    hd_line_put(&line, "rank %d: ", rank);
    hd_line_put_step(&line, module, step->op->code, step->op->loc.line,
                     step->op->loc.column, step->index, step->stream + 1, -1);
    if (hd_op_has_counts(step->op))
        put_count(&line, step, miscount);
    else if (hd_op_has_sequences(step->op))
        put_sequence(&line, step, miscount);
    else
        put_group(&line, step, miscount);
}

hd_status hd_miscount_report(const hd_module *module, int rank,
                             const hd_step *step, const hd_miscount *miscount,
                             hd_diag *diag)
{
    char text[HD_GROUP_TEXT] = "";

    hd_miscount_print(module, rank, step, miscount, text);
    return hd_fail(diag, HD_ERROR_ARGUMENT, "%s", text);
}
