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

unsigned hd_options_asked(const hd_lower_options *options)
{
    hd_lower_options usual = hd_lower_defaults();
    unsigned asked = options->asked;

    if ((asked & HD_OPTION_CHANGED) != 0)
        asked |= hd_options_differ(options, &usual);
    return asked & ~(unsigned)HD_OPTION_CHANGED;
}
