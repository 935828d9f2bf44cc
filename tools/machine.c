// See machine.h.
#include "machine.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "file.h"
#include "program.h"

// Bytes that the library takes, and one more.
enum { MACHINE_LIMIT = (1 << 20) + 1 };

// Names come from files.
static void make_safe(hd_machine *machine)
{
    char name[sizeof machine->name];

    memcpy(name, machine->name, sizeof name);
    show_within(name, strlen(name), machine->name, sizeof machine->name);
}

outcome machine_open(const char *path, hd_machine *out)
{
    content text;
    hd_diag *diag;
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
    make_safe(out);
    return result;
}

outcome machine_apart(outcome (*ask)(void *at), void *shared)
{
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0)
        _exit((int)ask(shared));
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (child < 0 || !WIFEXITED(status))
        return complain(FAILED, "cannot ask what devices there are");
    return (outcome)WEXITSTATUS(status);
}

static outcome ask_here(void *at)
{
    at_hand *here = at;
    hd_machine_origin origin = HD_EMPTY(hd_machine_origin);
    hd_diag *diag = need_diag();
    outcome result =
        tell(diag, hd_machine_here(here->device, diag, &here->machine, &origin),
             here->device);

    hd_diag_destroy(diag);
    return result;
}

static outcome find_here(at_hand *here)
{
    at_hand *shared;
    outcome result;

    if (strcmp(here->device, "cpu") == 0)
        return ask_here(here);
    shared = memory_pages(sizeof *shared, true);
    if (!shared)
        return complain(FAILED, "no memory to ask what devices there are");
    *shared = *here;
    result = machine_apart(ask_here, shared);
    *here = *shared;
    memory_free(shared, sizeof *shared);
    return result;
}

outcome machine_here(at_hand *here, hd_machine *out)
{
    if (!here->known) {
        here->machine = HD_EMPTY(hd_machine);
        hd_machine_shipped(here->device, &here->machine);
        if (!here->spread)
            TRY(find_here(here));
        make_safe(&here->machine);
        here->known = true;
    }
    *out = here->machine;
    return FINE;
}
