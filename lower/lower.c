// See lower.h. Verifies after each pass.
#include <assert.h>

#include "base/sized.h"
#include "ir/counts.h"
#include "ir/options.h"
#include "ir/verify.h"
#include "lower/build.h"
#include "lower/cliff.h"
#include "lower/lower.h"
#include "lower/pack.h"
#include "lower/pass.h"

typedef struct pass {
    const char *name;
    hd_stage stage; // where it leaves the module
    hd_pass_fn *run;
} pass;

static const pass passes[] = {
    {"reshard", HD_STAGE_RESHARD, hd_pass_reshard},
    {"stream", HD_STAGE_STREAM, hd_pass_stream},
    {"transfer", HD_STAGE_TRANSFER, hd_pass_transfer},
    {"event", HD_STAGE_EVENT, hd_pass_event},
    {"share", HD_STAGE_HOST, hd_pass_share},
    {"launch", HD_STAGE_HOST, hd_pass_launch},
};

static hd_status check_value(const char *option, unsigned value, unsigned most,
                             hd_diag *diag)
{
    if (value > most)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "option '%s' has no value %u; 0 to %u are possible",
                       option, value, most);
    return HD_OK;
}

hd_status hd_lower_judge(const hd_lower_options *options, hd_diag *diag)
{
    if (options->comm_stream && options->streams == 64)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "64 streams and one for transfers; 64 are possible");
    if (options->streams < 1 || options->streams > 64)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "%d streams; 1 to 64 are possible", options->streams);
    if (options->chunks < 1 || options->chunks > 4096)
        return hd_fail(diag, HD_ERROR_ARGUMENT,
                       "%d chunks a shard; 1 to 4096 are possible",
                       options->chunks);
    HD_TRY(check_value("transfer", options->transfer, HD_TRANSFER_AUTO, diag));
    HD_TRY(check_value("protocol", options->protocol, HD_PROTOCOL_GET, diag));
    HD_TRY(check_value("wire", options->wire, HD_WIRE_F32, diag));
    HD_TRY(check_value("until", options->until, HD_STAGE_PLACE, diag));
    HD_TRY(
        check_value("asked", options->asked, 2 * HD_OPTION_LAUNCH - 1, diag));
    return HD_OK;
}

// A launch is of one stream, beside which transfers go on.
static void ask_for_launches(const hd_module *module, hd_lower_options *options,
                             hd_diag *diag)
{
    options->asked = hd_options_asked(options);
    if (!options->launch)
        return;
    options->comm_stream |= module->stage < HD_STAGE_EVENT;
    if (module->stage >= HD_STAGE_STREAM)
        return;
    if ((options->asked & HD_OPTION_STREAMS) != 0 && options->streams > 1)
        hd_warning(diag, HD_E0503, (hd_loc){0},
                   "option 'streams' has no effect: the products of a launch "
                   "are on one stream");
    options->asked &= ~(unsigned)HD_OPTION_STREAMS;
    options->streams = 1;
}

// What no pass may leave, whatever the program: what the verifier does not look
// at, since no text can say it.
typedef struct strays {
    const hd_buffer **buffer; // by id, those of the module
    int nbuffers;
    bool foreign;   // a view of another buffer
    bool placeless; // an operation that findings could not point at
} strays;

static void find_strays(void *context, hd_op *op)
{
    strays *s = context;

    s->placeless |= op->loc.line == 0;
    for (int i = 0; i < op->nviews; i++) {
        const hd_buffer *x = op->view[i].buffer;

        s->foreign |= x->id >= s->nbuffers || s->buffer[x->id] != x;
        s->foreign |= x->by != NULL && s->buffer[x->by->id] != x->by;
    }
}

static void assert_sound(const hd_module *module, hd_arena *scratch)
{
    strays s = {hd_new_array(scratch, const hd_buffer *, module->nbuffers + 1),
                module->nbuffers, false, false};

    for (const hd_buffer *x = module->buffers; x != NULL; x = x->next)
        s.buffer[x->id] = x;
    hd_block_each(&module->body, find_strays, &s);
    assert(!s.foreign && "a pass drops what nothing uses alone");
    assert(!s.placeless && "a pass gives what it makes the place of its cause");
}

// A temporary that no statement names, which no pass leaves: of arguments the
// check says it.
static void tell_unused(const hd_module *module, hd_arena *scratch,
                        hd_diag *diag)
{
    int *views = hd_module_count_views(module, scratch);

    for (const hd_buffer *x = module->buffers; x != NULL; x = x->next)
        if (x->by != NULL)
            views[x->by->id]++;
    for (const hd_buffer *x = module->buffers; x != NULL; x = x->next)
        if (x->role == HD_ROLE_TEMP && views[x->id] == 0)
            hd_warning(diag, HD_E0811, x->loc, "no statement uses %%%s",
                       x->name);
}

// The first pass leaves a tensor program.
static hd_status place(hd_module *module, const hd_lower_options *options,
                       hd_lower_hook *hook, void *context, hd_arena *scratch,
                       hd_diag *diag, hd_effect *effect)
{
    bool placed = module->placed;

    HD_TRY(hd_pass_place(module, options, scratch, diag, effect));
    if (placed)
        return HD_OK;
    hd_module_add_counts(module);
    assert_sound(module, scratch);
    HD_TRY(hd_verify(module, diag));
    if (hook != NULL)
        hook(context, "place", module);
    return HD_OK;
}

static hd_status run_passes(hd_module *module, const hd_lower_options *options,
                            hd_lower_hook *hook, void *context,
                            hd_arena *scratch, hd_diag *diag)
{
    hd_effect effect = hd_effect_start(module, options);
    hd_stage start = module->stage;

    if (start == HD_STAGE_TENSOR)
        tell_unused(module, scratch, diag);
    if (start == HD_STAGE_TENSOR && options->until > HD_STAGE_TENSOR)
        HD_TRY(place(module, options, hook, context, scratch, diag, &effect));
    if (options->until == HD_STAGE_PLACE)
        return HD_OK;
    if ((start == HD_STAGE_RESHARD || start == HD_STAGE_STREAM) &&
        options->until > start)
        hd_lift_parts(module);
    if (diag != NULL && start == HD_STAGE_TENSOR)
        effect.cliffs = hd_cliffs_find(
            module,
            hd_lower_is_bulk(options) &&
                (hd_options_asked(options) & HD_OPTION_TRANSFER) != 0,
            scratch);
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++) {
        if (passes[i].stage <= start || passes[i].stage > options->until ||
            (passes[i].run == hd_pass_launch && !options->launch))
            continue;
        HD_TRY(passes[i].run(module, options, scratch, diag, &effect));
        hd_module_add_counts(module);
        module->stage = passes[i].stage;
        if (module->stage == HD_STAGE_STREAM)
            hd_cliffs_count(effect.cliffs, module, scratch);
        assert_sound(module, scratch);
        HD_TRY(hd_verify(module, diag));
        if (hook != NULL)
            hook(context, passes[i].name, module);
    }
    hd_cliffs_tell(effect.cliffs, module, diag);
    hd_effect_finish(&effect, start, options->until, diag);
    return HD_OK;
}

// Passes look at a program all of whose blocks are full: what they leave out
// because a block is empty in one run is needed in another, and by the proof.
static void fill_sizes(hd_module *module, int64_t now[HD_MAX_SIZES])
{
    for (int i = 0; i < module->nsizes; i++) {
        now[i] = module->size[i].now;
        module->size[i].now = module->size[i].room;
    }
}

// Everything that allocates from the arenas: they unwind to here.
static hd_status run_guarded(hd_module *module, const hd_lower_options *options,
                             hd_lower_hook *hook, void *context,
                             hd_arena *scratch, hd_diag *diag)
{
    jmp_buf guard;

    if (setjmp(guard) != 0)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    hd_arena_guard(module->arena, &guard);
    hd_arena_guard(scratch, &guard);
    return run_passes(module, options, hook, context, scratch, diag);
}

hd_status hd_lower_by(hd_module *module, const hd_lower_options *options,
                      hd_lower_hook *hook, void *context, hd_diag *diag)
{
    hd_lower_options with = *options;
    const hd_source *outer;
    hd_arena *scratch;
    hd_status status;
    int64_t now[HD_MAX_SIZES];

    HD_TRY(hd_lower_judge(&with, diag));
    assert(with.transfer != HD_TRANSFER_AUTO && "it is chosen by then");
    ask_for_launches(module, &with, diag);
    scratch = hd_arena_create();
    if (scratch == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    outer = hd_diag_source(diag, &module->source);
    fill_sizes(module, now);
    status = run_guarded(module, &with, hook, context, scratch, diag);
    for (int i = 0; i < module->nsizes; i++)
        module->size[i].now = now[i];
    hd_arena_guard(module->arena, NULL);
    hd_diag_source(diag, outer);
    hd_arena_destroy(scratch);
    return status;
}
