// See key.h. Strings have their length in front, so that no two lists of them
// are the same text.
#include "compile/key.h"

#include <string.h>

void hd_key_bytes(hd_text *key, const char *bytes, size_t length)
{
    hd_text_printf(key, "%zu:", length);
    hd_text_add(key, bytes, length);
}

void hd_key_string(hd_text *key, const char *string)
{
    hd_text_puts(key, string != NULL ? "+" : "-");
    hd_key_bytes(key, string != NULL ? string : "",
                 string != NULL ? strlen(string) : 0);
}

HD_KEY_HAS_ALL_OF(hd_lower_options, launch);
HD_KEY_HAS_ALL_OF(hd_choose_options, parts);
HD_KEY_HAS_ALL_OF(hd_machine, attention);

void hd_key_lower(hd_text *key, const hd_lower_options *o)
{
    hd_text_printf(key, "lower %d %d %d %d %d %d %d %d %d %d %u %d",
                   (int)o->transfer, (int)o->protocol, o->streams, o->chunks,
                   o->copy_own, o->defer_sends, o->comm_stream, (int)o->wire,
                   (int)o->transport, (int)o->until, o->asked, o->launch);
    hd_key_string(key, o->axes);
}

static void put_machine(hd_text *key, const hd_machine *m)
{
    hd_text_printf(key, "machine %d %d %d %d %d %d", m->ranks_per_node,
                   m->processors, m->units, m->tile_m, m->tile_n,
                   m->multiprocessors);
    for (int i = 0; i < HD_DTYPE_EVENT; i++)
        hd_text_printf(key, " %a", m->matmul[i]);
    hd_text_printf(
        key, " %a %a %a %a %a %a %a %a %a %a %a %a %a %a %a %a %a", m->issue,
        m->launch, m->memory, m->hop, m->copy_latency, m->copy_bandwidth,
        m->link, m->collision, m->collective_latency, m->collective_bandwidth,
        m->collective_units, m->network_latency, m->network_bandwidth,
        m->reduction_latency, m->event, m->run, m->attention);
}

void hd_key_choose(hd_text *key, const hd_choose_options *o)
{
    hd_text_printf(key, "choose %d %d %d", o->most_streams, o->most_chunks,
                   o->parts);
    put_machine(key, o->machine);
}
