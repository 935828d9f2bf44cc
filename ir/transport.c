// See transport.h.
#include "ir/transport.h"

#include <stdio.h>
#include <string.h>

#include "base/diag.h"
#include "base/dtype.h"

static const char *const names[] = {"auto", "copy", "sm", "nccl"};
enum { NNAMES = sizeof(names) / sizeof *names };

const char *hd_transport_text(hd_transport transport)
{
    return (unsigned)transport < NNAMES ? names[transport] : NULL;
}

// False, and "copy, sm and nccl" in `known`, if none is called so.
static bool find_transport(const char *text, size_t length, hd_transport *out,
                           char known[64])
{
    size_t n = 0;

    for (int i = HD_TRANSPORT_COPY; i < NNAMES; i++) {
        if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0) {
            *out = (hd_transport)i;
            return true;
        }
        n += (size_t)snprintf(known + n, 64 - n, "%s%s",
                              n == 0           ? ""
                              : i < NNAMES - 1 ? ", "
                                               : " and ",
                              names[i]);
    }
    return false;
}

// "tp=nccl", of `list`; a bit of `named` says which axes there have been.
static hd_status read_entry(const hd_module *module, const char *list,
                            const char *at, unsigned *named, hd_diag *diag,
                            hd_transport found[HD_MAX_AXES])
{
    size_t name = strcspn(at, "=,"), length = strcspn(at, ",");
    int axis = hd_module_find_axis(module, at, name);
    char known[64];

    if (length == 0)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "transports '%s': a comma stands between two axes",
                       list);
    if (at[name] != '=' || axis < 0)
        return hd_fail(
            diag, HD_ERROR_ARGUMENT,
            "transport '%.*s': '%.*s' is no axis of the mesh of '%s'",
            (int)length, at, (int)name, at, module->name);
    if (*named & 1u << axis)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "transports '%s': '%.*s' is there twice", list,
                       (int)name, at);
    if (!find_transport(at + name + 1, length - name - 1, &found[axis], known))
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "transport '%.*s': there are %s", (int)length, at,
                       known);
    *named |= 1u << axis;
    return HD_OK;
}

hd_status hd_transports_read(const hd_module *module, hd_transport all,
                             const char *axes, hd_diag *diag,
                             hd_transport out[HD_MAX_AXES])
{
    hd_transport found[HD_MAX_AXES];
    unsigned named = 0;

    if (hd_transport_text(all) == NULL)
        return hd_fail(diag, HD_ERROR_ARGUMENT, "there is no transport %d",
                       (int)all);
    for (int a = 0; a < HD_MAX_AXES; a++)
        found[a] = all;
    for (const char *at = axes; at != NULL && *axes != '\0';) {
        HD_TRY(read_entry(module, axes, at, &named, diag, found));
        at += strcspn(at, ",");
        at = *at == ',' ? at + 1 : NULL;
    }
    memcpy(out, found, sizeof found);
    return HD_OK;
}

static hd_status find_axes(const hd_module *module, hd_transport all,
                           const char *axes, unsigned transports, hd_diag *diag,
                           unsigned *out)
{
    hd_transport transport[HD_MAX_AXES];

    HD_TRY(hd_transports_read(module, all, axes, diag, transport));
    *out = 0;
    for (int a = 0; a < module->naxes; a++)
        if ((transports >> transport[a] & 1) != 0 && module->axis[a].size > 1)
            *out |= 1u << a;
    return HD_OK;
}

hd_status hd_transports_serial(const hd_module *module, hd_transport all,
                               const char *axes, hd_diag *diag, unsigned *out)
{
    return find_axes(module, all, axes, 1u << HD_TRANSPORT_NCCL, diag, out);
}

hd_status hd_transports_busy(const hd_module *module, hd_transport all,
                             const char *axes, hd_diag *diag, unsigned *out)
{
    return find_axes(module, all, axes,
                     1u << HD_TRANSPORT_NCCL | 1u << HD_TRANSPORT_SM, diag,
                     out);
}

bool hd_nccl_only_gathers(const hd_op *op)
{
    hd_fold fold = hd_op_fold(op);
    hd_dtype dtype;

    if (hd_op_move(op) == HD_MOVE_NONE || fold == HD_FOLD_NONE)
        return false;
    dtype = op->view[0].buffer->type.dtype;
    return !hd_dtype_is_integer(dtype) &&
           (fold != HD_FOLD_SUM || hd_dtype_size(dtype) == 1);
}

int hd_nccl_pieces(const hd_op *op)
{
    if (op->code == HD_OP_ALL_GATHER)
        return 0;
    return op->code == HD_OP_REDUCE_SCATTER && !hd_nccl_only_gathers(op) ? 1
                                                                         : -1;
}
