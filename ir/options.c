// See options.h.
#include "ir/options.h"

unsigned hd_options_differ(const hd_lower_options *a, const hd_lower_options *b)
{
    return (a->transfer != b->transfer) * HD_OPTION_TRANSFER |
           (a->protocol != b->protocol) * HD_OPTION_PROTOCOL |
           (a->streams != b->streams) * HD_OPTION_STREAMS |
           (a->chunks != b->chunks) * HD_OPTION_CHUNKS |
           (a->copy_own != b->copy_own) * HD_OPTION_COPY_OWN |
           (a->defer_sends != b->defer_sends) * HD_OPTION_DEFER_SENDS |
           (a->comm_stream != b->comm_stream) * HD_OPTION_COMM_STREAM |
           (a->wire != b->wire) * HD_OPTION_WIRE |
           (a->launch != b->launch) * HD_OPTION_LAUNCH;
}

void hd_options_take(hd_lower_options *options, const hd_lower_options *from,
                     unsigned bit)
{
    switch ((hd_option)bit) {
    case HD_OPTION_TRANSFER:
        options->transfer = from->transfer;
        break;
    case HD_OPTION_PROTOCOL:
        options->protocol = from->protocol;
        break;
    case HD_OPTION_STREAMS:
        options->streams = from->streams;
        break;
    case HD_OPTION_CHUNKS:
        options->chunks = from->chunks;
        break;
    case HD_OPTION_COPY_OWN:
        options->copy_own = from->copy_own;
        break;
    case HD_OPTION_DEFER_SENDS:
        options->defer_sends = from->defer_sends;
        break;
    case HD_OPTION_COMM_STREAM:
        options->comm_stream = from->comm_stream;
        break;
    case HD_OPTION_WIRE:
        options->wire = from->wire;
        break;
    case HD_OPTION_LAUNCH:
        options->launch = from->launch;
        break;
    case HD_OPTION_CHANGED:
        break;
    }
}

unsigned hd_options_asked(const hd_lower_options *options)
{
    hd_lower_options usual = hd_lower_defaults();
    unsigned asked = options->asked;

    if ((asked & HD_OPTION_CHANGED) != 0)
        asked |= hd_options_differ(options, &usual);
    return asked & ~(unsigned)HD_OPTION_CHANGED;
}
