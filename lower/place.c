// Says which buffers peers touch, and drops those that nothing uses. A put
// writes into the receiver's buffer and a get reads the sender's, so that side
// is shared; reductions read every rank's operand.
#include "lower/build.h"
#include "lower/pass.h"

static void share(const hd_view *view)
{
    hd_buffer_root(view->buffer)->shared = true;
}

static void place_op(void *context, hd_op *op)
{
    bool get = hd_op_key(op, HD_KEY_GET) != NULL;
    bool *used = context;
    const hd_view *views[HD_MAX_VIEWS];
    int n = hd_op_views(op, views);

    for (int i = 0; i < n; i++) {
        used[views[i]->buffer->id] = true;
        used[hd_buffer_root(views[i]->buffer)->id] = true;
    }
    if (!hd_op_is(op, HD_UNIT_TRANSFER))
        return;
    switch (op->code) {
    case HD_OP_SEND:
        if (get)
            share(&op->view[0]);
        break;
    case HD_OP_RECV:
        if (!get)
            share(&op->view[0]);
        break;
    case HD_OP_REDUCE_SCATTER:
    case HD_OP_ALL_REDUCE:
        share(&op->view[1]);
        break;
    default:
        if (op->noutputs > 0)
            share(&op->view[0]);
    }
}

hd_status hd_pass_place(hd_module *module, const hd_lower_options *options,
                        hd_arena *scratch, hd_diag *diag)
{
    bool *used = hd_new_array(scratch, bool, module->nbuffers + 1);
    hd_buffer *next;

    (void)options;
    (void)diag;
    hd_block_each(&module->body, place_op, used);
    for (hd_buffer *b = module->buffers; b != NULL; b = next) {
        next = b->next;
        if (b->role == HD_TEMP && !used[b->id])
            hd_module_remove_buffer(module, b);
    }
    return HD_OK;
}
