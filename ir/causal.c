#include "ir/causal.h"

int32_t hd_causal_of(int64_t offset)
{
    return offset > HD_SEES_ALL    ? HD_SEES_ALL
           : offset < -HD_SEES_ALL ? -HD_SEES_ALL
                                   : (int32_t)offset;
}

static bool names(const hd_module *module, hd_expr expr, int axis)
{
    const hd_expr_node *node = hd_expr_get(module, expr);

    switch (hd_expr_form_of(node->kind)) {
    case HD_FORM_CONST:
    case HD_FORM_VAR:
    case HD_FORM_SIZE:
        return false;
    case HD_FORM_COORD:
        return node->a == axis;
    case HD_FORM_NOT:
        return names(module, node->a, axis);
    case HD_FORM_BINARY:
        break;
    }
    return names(module, node->a, axis) || names(module, node->b, axis);
}

bool hd_causal_names(const hd_module *module, const hd_op *op, int axis)
{
    const hd_key *key = hd_op_key(op, HD_KEY_CAUSAL);

    return key != NULL && names(module, key->expr, axis);
}

// Of each dimension over an axis that is named the rank's own index.
static void place_view(const hd_module *module, const hd_op *op, int view,
                       const hd_env *env, int64_t index[HD_MAX_DIMS])
{
    hd_type type = hd_view_type(&op->view[view]);

    for (int d = 0; d < type.ndims; d++) {
        hd_dim dim = type.dim[d];

        index[d] =
            hd_dim_is_sharded(dim) && hd_causal_names(module, op, dim.mark)
                ? env->coord[dim.mark]
                : -1;
    }
}

bool hd_causal_place(const hd_module *module, const hd_op *op, int64_t rank,
                     hd_placed *out)
{
    const hd_key *key = hd_op_key(op, HD_KEY_CAUSAL);
    int64_t offset = HD_SEES_ALL;
    hd_env env = {0};

    for (int axis = 0; axis < module->naxes; axis++) {
        env.coord[axis] = hd_mesh_coord(module, rank, axis);
        if (env.coord[axis] > 0 && !hd_causal_names(module, op, axis))
            return false;
    }
    if (key != NULL && !hd_expr_eval(module, key->expr, &env, &offset))
        return false;
    out->causal = hd_causal_of(offset);
    for (int i = 0; i < op->nviews; i++)
        place_view(module, op, i, &env, out->index[i]);
    return true;
}
