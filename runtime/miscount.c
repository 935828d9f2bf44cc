#include "runtime/miscount.h"

#include "base/diag.h"
#include "runtime/failure.h"

void hd_miscount_print(const hd_module *module, int rank, const hd_step *step,
                       const hd_miscount *miscount, char out[HD_GROUP_TEXT])
{
    int view = hd_op_key_view(step->op, HD_KEY_GROUPS);
    hd_line line = {out, HD_GROUP_TEXT};

    hd_line_put(&line, "rank %d: ", rank);
    hd_line_put_step(&line, module, step->op->code, step->op->loc.line,
                     step->op->loc.column, step->index, step->stream + 1, -1);
    hd_line_put(&line,
                "): group %lld of %%%s has %lld rows; it may have 0 to %lld, "
                "what the groups before it leave of %lld",
                (long long)miscount->group, step->span[view].buffer->name,
                (long long)miscount->count, (long long)miscount->left,
                (long long)step->span[1].extent[0]);
}

hd_status hd_miscount_report(const hd_module *module, int rank,
                             const hd_step *step, const hd_miscount *miscount,
                             hd_diag *diag)
{
    char text[HD_GROUP_TEXT] = "";

    hd_miscount_print(module, rank, step, miscount, text);
    return hd_fail(diag, HD_ARGUMENT, "%s", text);
}
