// Says which buffers peers touch, and drops those that nothing uses. A put
// writes into the receiver's buffer and a get reads the sender's, so that side
// is shared; reductions read every rank's operand.
//
// Temporaries whose uses on the caller's stream do not overlap in time share
// bytes. What another stream, a peer or a deferred send touches is left alone:
// there the order of statements does not bound its life.
#include <assert.h>

#include "lower/build.h"
#include "lower/pass.h"

static void share_op(void *context, hd_op *op)
{
    int touched = hd_op_touched(op);
    bool *used = context;

    for (int i = 0; i < op->nviews; i++) {
        used[op->view[i].buffer->id] = true;
        used[hd_buffer_root(op->view[i].buffer)->id] = true;
        if (op->view[i].buffer->by != NULL) // which a transfer does not read
            used[hd_buffer_root(op->view[i].buffer->by)->id] =
                used[op->view[i].buffer->by->id] = true;
    }
    if (touched >= 0)
        hd_buffer_root(op->view[touched].buffer)->shared = true;
}

// ----------------------------------------------------------------- sharing

typedef struct life {
    int first, last; // statements of the program's body, from 1; 0 is unused
    bool fixed;      // keeps its own bytes
    hd_buffer *next; // of those that may lend their bytes
} life;

typedef struct lives {
    life *life; // by buffer id
    int now;
    bool elsewhere; // inside `on stream`
} lives;

static void note_life(void *context, hd_op *op)
{
    lives *all = context;
    bool deferred = hd_op_key(op, HD_KEY_DONE) != NULL;

    for (int i = 0; i < op->nviews; i++) {
        life *l = &all->life[hd_buffer_root(op->view[i].buffer)->id];
        bool reads = hd_op_reads(op, i);

        // What is read first holds something from elsewhere.
        l->fixed |= all->elsewhere || deferred || (l->first == 0 && reads);
        l->first = l->first == 0 ? all->now : l->first;
        l->last = all->now;
    }
}

static void find_lives(hd_module *module, lives *all)
{
    for (hd_stmt *stmt = module->body.first; stmt != NULL; stmt = stmt->next) {
        all->now++;
        all->elsewhere = hd_stmt_has_stream(stmt);
        hd_stmt_each(stmt, note_life, all);
    }
    for (hd_buffer *b = module->buffers; b != NULL; b = b->next)
        if (b->of != NULL)
            all->life[b->id].fixed = all->life[b->of->id].fixed = true;
}

static bool may_share(const lives *all, const hd_buffer *b)
{
    return b->role == HD_ROLE_TEMP && !b->shared &&
           b->type.dtype != HD_DTYPE_EVENT && !all->life[b->id].fixed;
}

// A buffer declared before `b`, big enough, and dead when `b` begins.
static hd_buffer *find_lender(const lives *all, hd_buffer *lenders,
                              const hd_buffer *b)
{
    for (hd_buffer *l = lenders; l != NULL; l = all->life[l->id].next)
        if (l->type.dtype == b->type.dtype &&
            hd_type_may_rename(&b->type, &l->type, 0) &&
            all->life[l->id].last < all->life[b->id].first &&
            hd_type_local_elements(&l->type) >=
                hd_type_local_elements(&b->type))
            return l;
    return NULL;
}

// Buffers are taken in the order of declaration, so a lender's life is extended
// by each that borrows from it.
static void share_bytes(hd_module *module, hd_arena *scratch)
{
    lives all = {.life = hd_new_array(scratch, life, module->nbuffers + 1)};
    hd_buffer *lenders = NULL;

    find_lives(module, &all);
    for (hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        hd_buffer *lender;

        if (!may_share(&all, b))
            continue;
        lender = find_lender(&all, lenders, b);
        if (lender != NULL) {
            assert(lender->of == NULL && lender->id < b->id);
            b->of = lender;
            all.life[lender->id].last = all.life[b->id].last;
            continue;
        }
        all.life[b->id].next = lenders;
        lenders = b;
    }
}

hd_status hd_pass_share(hd_module *module, const hd_lower_options *options,
                        hd_arena *scratch, hd_diag *diag, hd_effect *effect)
{
    bool *used = hd_new_array(scratch, bool, module->nbuffers + 1);

    (void)options;
    (void)diag;
    (void)effect;
    hd_block_each(&module->body, share_op, used);
    hd_module_drop_temps(module, used);
    share_bytes(module, scratch);
    return HD_OK;
}
