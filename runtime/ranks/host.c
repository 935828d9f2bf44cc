// Which host this process is on. Two processes are on one host if they can map
// each other's memory, which is to say if they run under one kernel: that one's
// boot id tells it. Containers hide their processes from each other under one
// kernel, and so say with HEDDLE_HOST that they are hosts of their own.
#include "runtime/ranks/host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/diag.h"
#include "base/setting.h"

#define NAME_CHARACTERS          \
    "abcdefghijklmnopqrstuvwxyz" \
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

static void read_boot_id(char *out, size_t room)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (file == NULL)
        return;
    if (fgets(out, (int)room, file) == NULL)
        out[0] = '\0';
    fclose(file);
}

hd_status hd_host_find(hd_diag *diag, hd_host *out)
{
    const char *given = hd_setting("HEDDLE_HOST");
    hd_host host;

    memset(&host, 0, sizeof host); // the whole of it is compared
    if (given != NULL) {
        size_t length = strlen(given);

        if (length == 0 || length >= HD_HOST_NAME ||
            strspn(given, NAME_CHARACTERS) != length)
            return hd_fail(diag, HD_ERROR_ARGUMENT,
                           "HEDDLE_HOST is '%.80s', which is not a host's "
                           "name: 1 to %d letters, digits, '.', '-' and '_'",
                           given, HD_HOST_NAME - 1);
        snprintf(host.name, sizeof host.name, "%s", given);
        snprintf(host.id, sizeof host.id, "named %s", given);
    } else {
        if (gethostname(host.name, sizeof host.name - 1) != 0)
            snprintf(host.name, sizeof host.name, "a host");
        read_boot_id(host.id, sizeof host.id);
    }
    *out = host;
    return HD_OK;
}

bool hd_host_same(const hd_host *a, const hd_host *b)
{
    return memcmp(a->id, b->id, sizeof a->id) == 0;
}

// ---------------------------------------------------------- addresses

// False for one that means nothing beyond its own wire.
static bool take_address(const struct sockaddr *from, hd_host_address *out)
{
    memset(out, 0, sizeof *out);
    out->family = from->sa_family;
    if (from->sa_family == AF_INET) {
        const struct sockaddr_in *at = (const struct sockaddr_in *)from;

        memcpy(out->byte, &at->sin_addr, sizeof at->sin_addr);
        return true;
    }
    if (from->sa_family == AF_INET6) {
        const struct sockaddr_in6 *at = (const struct sockaddr_in6 *)from;

        memcpy(out->byte, &at->sin6_addr, sizeof at->sin6_addr);
        return !IN6_IS_ADDR_LINKLOCAL(&at->sin6_addr);
    }
    return false;
}

int hd_host_addresses(hd_host_address out[HD_HOST_ADDRESSES])
{
    struct ifaddrs *list;
    int n = 0;

    if (getifaddrs(&list) != 0)
        return 0;
    for (unsigned loopback = 0; n == 0 && loopback <= IFF_LOOPBACK;
         loopback += IFF_LOOPBACK) {
        for (struct ifaddrs *at = list; at != NULL; at = at->ifa_next) {
            if (n < HD_HOST_ADDRESSES && at->ifa_addr != NULL &&
                (at->ifa_flags & IFF_UP) != 0 &&
                (at->ifa_flags & IFF_LOOPBACK) == loopback)
                n += take_address(at->ifa_addr, &out[n]);
        }
    }
    freeifaddrs(list);
    return n;
}
