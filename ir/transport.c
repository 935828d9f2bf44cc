// See transport.h.
#include "ir/transport.h"

#include <string.h>

#include "base/diag.h"

const char *hd_transport_text(hd_transport transport)
{
    static const char *const names[] = {"auto", "copy", "sm", "nccl"};

    return names[transport];
}

static bool find_transport(const char *text, size_t length, hd_transport *out)
{
    for (int i = HD_TRANSPORT_COPY; i <= HD_TRANSPORT_NCCL; i++) {
        const char *name = hd_transport_text((hd_transport)i);

        if (strlen(name) == length && memcmp(name, text, length) == 0) {
            *out = (hd_transport)i;
            return true;
        }
    }
    return false;
}

// "tp=nccl", of `list`; a bit of `named` says which axes there have been.
static hd_status read_entry(const hd_module *module, const char *list,
                            const char *at, unsigned *named, hd_diag *diag,
                            hd_transport found[HD_MAX_AXES])
{
    size_t name = strcspn(at, "=,"), length = strcspn(at, ",");
    int axis = hd_module_axis(module, at, name);

    if (length == 0)
        return hd_fail(diag, HD_ARGUMENT,
                       "transports '%s': a comma stands between two axes",
                       list);
    if (at[name] != '=' || axis < 0)
        return hd_fail(
            diag, HD_ARGUMENT,
            "transport '%.*s': '%.*s' is no axis of the mesh of '%s'",
            (int)length, at, (int)name, at, module->name);
    if (*named & 1u << axis)
        return hd_fail(diag, HD_ARGUMENT,
                       "transports '%s': '%.*s' is there twice", list,
                       (int)name, at);
    if (!find_transport(at + name + 1, length - name - 1, &found[axis]))
        return hd_fail(diag, HD_ARGUMENT,
                       "transport '%.*s': there are copy, sm and nccl",
                       (int)length, at);
    *named |= 1u << axis;
    return HD_OK;
}

hd_status hd_transports_read(const hd_module *module, hd_transport all,
                             const char *axes, hd_diag *diag,
                             hd_transport out[HD_MAX_AXES])
{
    hd_transport found[HD_MAX_AXES];
    unsigned named = 0;

    if ((unsigned)all > HD_TRANSPORT_NCCL)
        return hd_fail(diag, HD_ARGUMENT, "there is no transport %d", (int)all);
    for (int a = 0; a < HD_MAX_AXES; a++)
        found[a] = all;
    for (const char *at = axes; at != NULL && *axes != '\0';) {
        HD_TRY(read_entry(module, axes, at, &named, diag, found));
        at += strcspn(at, ",");
        at = *at == ',' ? at + 1 : NULL;
    }
    memcpy(out, found, sizeof(found));
    return HD_OK;
}
