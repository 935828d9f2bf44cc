#include "ir/declare.h"

#include <assert.h>
#include <stdio.h>

#include "base/text.h"
#include "ir/print.h"

enum { MAX_BUFFERS = 65536 };

typedef struct declaration {
    const hd_module *module;
    const hd_buffer *buffer;
    const hd_locs *at; // nowhere, of what a pass made
    hd_diag *diag;
} declaration;

// ------------------------------------------------------------- dimensions

hd_status hd_refuse_cut(const hd_size *size, const char *what, hd_loc loc,
                        hd_diag *diag)
{
    char cut[64] = "nowhere";
    hd_status status;

    if (size->blocks > 0)
        snprintf(cut, sizeof cut, "into %lld, of which views keep all or one",
                 (long long)size->blocks);
    status =
        hd_error(diag, HD_E0318, loc, "%s: %s, which a run says, is cut %s",
                 what, size->name, cut);
    if (size->blocks > 0)
        hd_note(diag, size->cut, "into %lld here", (long long)size->blocks);
    return status;
}

// All dimensions of a size are cut alike, or not at all: what is proven of as
// many blocks holds for each of its values.
static hd_status check_size(const declaration *d, int i)
{
    hd_dim dim = d->buffer->type.dim[i];
    const hd_size *size = &d->module->size[dim.size - 1];
    char what[32];

    if (dim.blocks > 0 ? size->blocks == dim.blocks : dim.mark != HD_STREAM)
        return HD_OK;
    snprintf(what, sizeof what, "%lld blocks", (long long)dim.blocks);
    return hd_refuse_cut(size, what, d->at->extent[i], d->diag);
}

// A host program may keep what all ranks bring to a rank's own block beside its
// own index of what it brings: in temporaries an axis shards both.
static hd_status check_sharded(const declaration *d, int i)
{
    const hd_buffer *x = d->buffer;
    hd_dim dim = x->type.dim[i];
    const hd_axis *axis = &d->module->axis[dim.mark];
    bool once = x->role != HD_ROLE_TEMP || d->module->stage == HD_STAGE_TENSOR;

    if (hd_dim_blocks(dim) != axis->size)
        return hd_error(d->diag, HD_E0205, d->at->mark[i],
                        "%lld blocks over %s, whose size is %lld: a rank has "
                        "one",
                        (long long)hd_dim_blocks(dim), axis->name,
                        (long long)axis->size);
    if (once && hd_type_axis_dim(&x->type, dim.mark) != i)
        return hd_error(d->diag, HD_E0206, x->loc, "%s shards two dimensions",
                        axis->name);
    if (x->type.dtype == HD_DTYPE_EVENT)
        return hd_error(d->diag, HD_E0206, x->loc, "events are not sharded");
    return HD_OK;
}

static hd_status check_dims(const declaration *d)
{
    const hd_type *type = &d->buffer->type;

    for (int i = 0; i < type->ndims; i++) {
        if (hd_dim_is_sharded(type->dim[i]))
            HD_TRY(check_sharded(d, i));
        if (hd_dim_is_sized(type->dim[i]))
            HD_TRY(check_size(d, i));
    }
    if (d->buffer->shapeless || hd_type_elements(type) <= HD_MAX_ELEMENTS)
        return HD_OK;
    return hd_error(d->diag, HD_E0105, d->buffer->loc,
                    "more than %lld elements", (long long)HD_MAX_ELEMENTS);
}

// ------------------------------------------------------------------ ranks

static hd_status refuse_ranks(const declaration *d, const char *why)
{
    return hd_error(d->diag, HD_E0215, d->at->on, "%%%s on %s", d->buffer->name,
                    why);
}

static hd_status refuse_coordinates(const declaration *d, const hd_axis *axis)
{
    hd_ranks on = d->buffer->on;
    char past[24] = "";

    if ((uint64_t)on.past - (uint64_t)on.low != 1)
        snprintf(past, sizeof past, "..%lld", (long long)on.past);
    return hd_error(d->diag, HD_E0215, d->at->on,
                    "%%%s on %s %lld%s: coordinates are 0 to %lld",
                    d->buffer->name, axis->name, (long long)on.low, past,
                    (long long)axis->size - 1);
}

static hd_status check_ranks(const declaration *d)
{
    const hd_buffer *x = d->buffer;
    const hd_axis *axis = &d->module->axis[x->on.axis];
    int sharded = hd_type_axis_dim(&x->type, x->on.axis);

    if (hd_ranks_are_all(x->on))
        return HD_OK;
    if (d->module->stage != HD_STAGE_TENSOR)
        return refuse_ranks(d, "some ranks of a host program, where `if` says "
                               "which rank does what");
    if (x->role != HD_ROLE_TEMP)
        return refuse_ranks(d, "some ranks: an argument is on all; `set` it "
                               "to a temp that is not");
    if (x->on.low < 0 || x->on.past <= x->on.low || x->on.past > axis->size)
        return refuse_coordinates(d, axis);
    if (sharded < 0)
        return HD_OK;
    return hd_error(d->diag, HD_E0215, d->at->on,
                    "%%%s on ranks of %s, over which its dimension %d is "
                    "sharded: all of these have a part",
                    x->name, axis->name, sharded);
}

// ----------------------------------------------------------------- counts

static hd_status refuse_counts(const declaration *d, const char *why)
{
    return hd_error(d->diag, HD_E0214, d->at->by, "by %%%s, %s",
                    d->buffer->by->name, why);
}

// Where it is not said yet where one of them lies, it will lie as the other.
static bool is_placed_alike(const hd_buffer *x, int dim)
{
    hd_dim counts = x->by->type.dim[dim], counted = x->type.dim[dim];

    return ((x->open | x->by->open) & HD_OPEN_PLACE) != 0
               ? hd_dim_as_long(counts, counted)
               : hd_dim_same(counts, counted);
}

// What counts lead with is what the buffer leads with.
static hd_status check_counts(const declaration *d)
{
    const hd_buffer *x = d->buffer;
    const hd_type *counts = &x->by->type;
    hd_dim dim = x->type.dim[x->counted];

    if (counts->dtype != HD_DTYPE_I32)
        return hd_error(d->diag, HD_E0214, d->at->by,
                        "by %%%s, which is %s: counts are i32", x->by->name,
                        hd_dtype_text(counts->dtype));
    if (x->by->by != NULL)
        return refuse_counts(d, "which has counts itself");
    if (x->type.dtype == HD_DTYPE_EVENT)
        return refuse_counts(d, "of events");
    if (dim.mark != HD_LOCAL || hd_dim_is_cut(dim) || hd_dim_is_sized(dim))
        return refuse_counts(d, "of a dimension in pieces, or of a run's "
                                "length: what is counted is local, and of a "
                                "constant extent");
    for (int i = 0; i < counts->ndims; i++)
        if (i >= x->counted || !is_placed_alike(x, i))
            return hd_error(d->diag, HD_E0214, d->at->by,
                            "by %%%s, whose dimension %d differs: counts have "
                            "the first dimensions of the buffer, placed alike, "
                            "all ahead of the one that they count",
                            x->by->name, i);
    return HD_OK;
}

// As the text has them, they may be those of a whole axis.
static hd_ranks ranks_of(const declaration *d, const hd_buffer *x)
{
    return hd_ranks_are_all(x->on)
               ? x->on
               : hd_ranks_of(d->module, x->on.axis, x->on.low, x->on.past);
}

// Who has rows has their counts.
static hd_status check_counted_ranks(const declaration *d)
{
    const hd_buffer *x = d->buffer;
    hd_text text = {0};
    hd_status status;

    if (hd_ranks_cover(ranks_of(d, x->by), ranks_of(d, x)))
        return HD_OK;
    hd_text_puts(&text, "which is on ");
    hd_ranks_print(d->module, ranks_of(d, x->by), &text);
    hd_text_printf(&text, ", and %%%s on ", x->name);
    hd_ranks_print(d->module, ranks_of(d, x), &text);
    hd_text_puts(&text, ": who has rows has their counts");
    status = refuse_counts(d, text.failed ? "on other ranks" : text.bytes);
    hd_text_free(&text);
    return status;
}

// ---------------------------------------------------------------- aliases

static hd_status refuse_alias(const declaration *d, const char *why)
{
    return hd_error(d->diag, HD_E0207, d->buffer->loc, "%%%s renames %%%s%s",
                    d->buffer->name, d->buffer->of->name, why);
}

// Bytes of one kind have one name that all others are for.
static hd_status check_renamed(const declaration *d)
{
    const hd_buffer *x = d->buffer, *of = x->of;
    const char *why;

    assert(of->id < x->id);
    if (of->of != NULL)
        why = "an alias itself";
    else if (of->type.dtype == HD_DTYPE_EVENT)
        why = "an event";
    else if (of->type.dtype != x->type.dtype)
        why = "of another dtype";
    else
        return HD_OK;
    return hd_error(d->diag, HD_E0207, x->loc,
                    "%%%s cannot rename %%%s: that is %s", x->name, of->name,
                    why);
}

// A second shape over the bytes of another buffer.
static hd_status check_of(const declaration *d)
{
    const hd_buffer *x = d->buffer, *of = x->of;
    int64_t mine = hd_type_local_elements(&x->type);
    int64_t theirs = hd_type_local_elements(&of->type);

    HD_TRY(check_renamed(d));
    if (x->role != HD_ROLE_TEMP)
        return refuse_alias(d, " and is no argument of its own; write temp");
    // A tensor is one value; its bytes are not yet anywhere.
    if (d->module->stage == HD_STAGE_TENSOR)
        return refuse_alias(d, ": only host programs have aliases");
    if (of->role != HD_ROLE_TEMP && mine == theirs &&
        !hd_type_same_room(&x->type, &of->type, hd_module_uncut(d->module)))
        return refuse_alias(d, ", of which some ranks have less than they have "
                               "room for: its dimensions in blocks must be "
                               "here too, as far from the end");
    if (!hd_type_may_rename(&x->type, &of->type, hd_module_uncut(d->module)))
        return refuse_alias(d, ": the dimensions whose length a run says must "
                               "be in both, as far from the end");
    if (of->role == HD_ROLE_TEMP ? mine <= theirs : mine == theirs)
        return HD_OK;
    return hd_error(d->diag, HD_E0207, x->loc,
                    "%%%s has %lld elements a rank, %%%s %lld", x->name,
                    (long long)mine, of->name, (long long)theirs);
}

// --------------------------------------------------------------- together

// The caller passes one event for an argument.
static hd_status check_events(const declaration *d)
{
    const hd_buffer *x = d->buffer;
    int64_t n = hd_type_elements(&x->type);

    if (x->type.dtype != HD_DTYPE_EVENT || x->role == HD_ROLE_TEMP || n == 1)
        return HD_OK;
    return hd_error(d->diag, HD_E0212, x->loc,
                    "%%%s has %lld events; an argument is one event, event[]",
                    x->name, (long long)n);
}

static hd_status check_declaration(const declaration *d)
{
    if (d->buffer->id == MAX_BUFFERS)
        return hd_error(d->diag, HD_E0105, d->buffer->loc,
                        "more than %d buffers", MAX_BUFFERS);
    HD_TRY(check_dims(d));
    HD_TRY(check_ranks(d));
    if (d->buffer->by != NULL && !d->buffer->shapeless) {
        HD_TRY(check_counts(d));
        HD_TRY(check_counted_ranks(d));
    }
    if (d->buffer->of != NULL)
        HD_TRY(check_of(d));
    return check_events(d);
}

hd_status hd_declare_verify(const hd_module *module, hd_diag *diag)
{
    static const hd_locs nowhere;
    bool failed = false;

    // The first one too many is told of alone.
    for (const hd_buffer *x = module->buffers;
         x != NULL && x->id <= MAX_BUFFERS; x = x->next) {
        const declaration d = {module, x, x->locs != NULL ? x->locs : &nowhere,
                               diag};

        failed |= check_declaration(&d) != HD_OK;
    }
    return failed ? HD_ERROR_INVALID : HD_OK;
}
