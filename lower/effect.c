// Options that change nothing: a pass says so where it finds it, and the driver
// of what nobody has spoken of in the end.
#include <stdio.h>
#include <string.h>

#include "ir/options.h"
#include "lower/cliff.h"
#include "lower/pass.h"

enum { NOPTIONS = 10 };

// By bit of hd_option, as the command line spells them.
static const char *const names[NOPTIONS] = {
    "transfer",    "protocol",    "streams", "chunks", "copy-own",
    "defer-sends", "comm-stream", "wire",    NULL,     "launch",
};

// "options 'transfer' and 'chunks' have"
static void name_options(unsigned options, char out[160])
{
    int left = __builtin_popcount(options);
    size_t n = (size_t)sprintf(out, left > 1 ? "options " : "option ");
    const char *verb = left > 1 ? " have" : " has";

    for (int i = 0; i < NOPTIONS; i++)
        if ((options & 1u << i) != 0) {
            left--;
            n += (size_t)sprintf(out + n, "'%s'%s", names[i],
                                 left > 1    ? ", "
                                 : left == 1 ? " and "
                                             : verb);
        }
}

static void warn(hd_diag *diag, unsigned options, hd_loc loc, const char *where,
                 const char *reason)
{
    char text[160];

    name_options(options, text);
    hd_warning(diag, HD_E0503, loc, "%s no effect%s: %s", text, where, reason);
}

void hd_effect_none(hd_effect *effect, unsigned options, hd_diag *diag,
                    hd_loc loc, const char *reason)
{
    if ((options & HD_OPTION_TRANSFER) != 0)
        hd_cliffs_alone(effect->cliffs, loc, reason);
    options &= effect->asked;
    if (options == 0)
        return;
    effect->warned |= options;
    hd_cliffs_told(effect->cliffs, loc);
    warn(diag, options, loc, " here", reason);
}

bool hd_effect_heard(const hd_effect *effect, unsigned options, hd_loc loc)
{
    return (effect->asked & options) != 0 ||
           hd_cliffs_waits(effect->cliffs, loc);
}

hd_effect hd_effect_start(const hd_module *module,
                          const hd_lower_options *options)
{
    hd_effect effect = {.asked = hd_options_asked(options)};

    // One collective, one chunk, one stream and sums of the result's dtype are
    // what is left where there is no pipeline, unless there is one already.
    if (options->transfer == HD_TRANSFER_BULK &&
        module->stage < HD_STAGE_TRANSFER)
        effect.asked &= ~(unsigned)HD_OPTION_TRANSFER;
    if (options->chunks == 1 && module->stage < HD_STAGE_TRANSFER)
        effect.asked &= ~(unsigned)HD_OPTION_CHUNKS;
    if (options->wire == HD_WIRE_RESULT && module->stage < HD_STAGE_TRANSFER)
        effect.asked &= ~(unsigned)HD_OPTION_WIRE;
    if (options->streams == 1 && module->stage < HD_STAGE_STREAM)
        effect.asked &= ~(unsigned)HD_OPTION_STREAMS;
    return effect;
}

// Those that the passes from `start` on cannot obey any more.
static unsigned late_options(hd_stage start)
{
    return (start >= HD_STAGE_STREAM ? HD_OPTION_STREAMS : 0u) |
           (start >= HD_STAGE_TRANSFER ? HD_OPTIONS_OF_TRANSFERS : 0u) |
           (start >= HD_STAGE_EVENT ? HD_OPTION_COMM_STREAM : 0u) |
           (start >= HD_STAGE_HOST ? HD_OPTION_LAUNCH : 0u);
}

void hd_effect_finish(hd_effect *effect, hd_stage start, hd_stage end,
                      hd_diag *diag)
{
    hd_loc nowhere = {0};
    unsigned rest = effect->asked & ~effect->used & ~effect->warned;
    unsigned late = effect->asked & late_options(start);

    if (late != 0)
        warn(diag, late, nowhere, "",
             start == HD_STAGE_HOST
                 ? "the program is complete, and stays as it is written"
                 : "the program is lowered past what they decide");
    rest &= ~late;
    if (end >= HD_STAGE_TRANSFER && (rest & HD_OPTIONS_OF_TRANSFERS) != 0)
        warn(diag, rest & HD_OPTIONS_OF_TRANSFERS, nowhere, "",
             "no loop of the program transfers anything");
    rest &= ~HD_OPTIONS_OF_TRANSFERS;
    if (end >= HD_STAGE_HOST && (rest & HD_OPTION_LAUNCH) != 0)
        warn(diag, HD_OPTION_LAUNCH, nowhere, "",
             "no loop of the program multiplies while something travels");
    rest &= ~(unsigned)HD_OPTION_LAUNCH;
    if (end >= HD_STAGE_EVENT && rest != 0)
        warn(diag, rest, nowhere, "",
             "no dimension of the program became a loop over streams");
}
