// See machine.h.
#include "machine.h"

#include <string.h>

#include "file.h"
#include "program.h"

// Bytes that the library takes, and one more.
enum { MACHINE_LIMIT = (1 << 20) + 1 };

outcome machine_open(const char *path, hd_machine *out)
{
    content text;
    hd_diag *diag;
    char name[sizeof out->name]; // made safe
    hd_status status;
    outcome result;

    *out = HD_EMPTY(hd_machine);
    hd_machine_default(out);
    if (!path)
        return FINE;
    TRY(content_open(path, MACHINE_LIMIT, &text));
    diag = need_diag();
    status = hd_machine_parse(path, (const char *)text.bytes, text.length, diag,
                              out);
    content_close(&text);
    result = tell(diag, status, path);
    hd_diag_destroy(diag);
    memcpy(name, out->name, sizeof name);
    show_within(name, strlen(name), out->name, sizeof out->name);
    return result;
}
