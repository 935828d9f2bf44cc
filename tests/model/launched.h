// Which statements may stand in a launch, in tests that make some.
#ifndef HD_TESTS_MODEL_LAUNCHED_H
#define HD_TESTS_MODEL_LAUNCHED_H

#include "ir/module.h"

inline bool MayBeLaunched(const hd_stmt *s)
{
    bool may = s->kind == HD_STMT_OP
                   ? hd_op_family(s->op) == HD_FAMILY_PRODUCT ||
                         hd_op_sync(s->op) == HD_SYNC_WAIT ||
                         hd_op_sync(s->op) == HD_SYNC_RECORD
                   : s->kind == HD_STMT_IF || s->kind == HD_STMT_FOR;

    for (const hd_block *block : {&s->body, &s->otherwise})
        for (const hd_stmt *at = block->first; at != nullptr; at = at->next)
            may = may && MayBeLaunched(at);
    return may;
}

#endif
