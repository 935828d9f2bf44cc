// A deep copy: whatever a module points to is copied into the arena of the new
// one, and expressions and variables, which are numbers, stay what they are.
#include <string.h>

#include "ir/module.h"
#include "ir/signature.h"

typedef struct cloner {
    hd_arena *arena;    // of the copy
    hd_buffer **buffer; // of the copy, by id
} cloner;

static const char *copy_text(cloner *c, const char *text)
{
    return hd_arena_text(c->arena, text, strlen(text));
}

// `n` elements of `size` bytes; NULL stays NULL.
static void *copy_array(cloner *c, const void *from, int64_t n, size_t size)
{
    return from != NULL ? hd_arena_copy(c->arena, from, size * (size_t)n)
                        : NULL;
}

static hd_buffer *find_buffer(const cloner *c, const hd_buffer *buffer)
{
    return buffer != NULL ? c->buffer[buffer->id] : NULL;
}

static hd_op *copy_op(cloner *c, const hd_op *op)
{
    hd_op *copy;

    if (op == NULL)
        return NULL;
    copy = hd_arena_copy(c->arena, op, sizeof *op);
    copy->view = copy_array(c, op->view, op->nviews, sizeof *op->view);
    copy->key = copy_array(c, op->key, op->nkeys, sizeof *op->key);
    copy->bound = copy_array(c, op->bound, 1, sizeof(hd_bound));
    for (int i = 0; i < op->nkeys; i++) {
        hd_key *key = &copy->key[i];

        if (key->name != NULL)
            key->name = copy_text(c, key->name);
        key->scalar =
            copy_array(c, key->scalar, key->nscalars, sizeof *key->scalar);
    }
    for (int i = 0; i < op->nviews; i++) {
        hd_view *view = &copy->view[i];

        view->buffer = find_buffer(c, view->buffer);
        view->range =
            copy_array(c, view->range, HD_MAX_DIMS, sizeof *view->range);
    }
    return copy;
}

// Blocks nest as deep as the parser lets them.
static hd_block copy_block(cloner *c, const hd_block *from)
{
    hd_block to = {0};

    for (const hd_stmt *s = from->first; s != NULL; s = s->next) {
        hd_stmt *copy = hd_arena_copy(c->arena, s, sizeof *s);

        copy->next = NULL;
        copy->why = s->why != NULL ? copy_text(c, s->why) : NULL;
        copy->op = copy_op(c, s->op);
        copy->body = copy_block(c, &s->body);
        copy->otherwise = copy_block(c, &s->otherwise);
        hd_block_append(&to, copy);
    }
    return to;
}

// Each as it is, in order; then what they point to.
static void copy_buffers(cloner *c, hd_module *to)
{
    hd_buffer **end = &to->buffers;

    c->buffer = hd_new_array(c->arena, hd_buffer *, to->nbuffers + 1);
    for (const hd_buffer *b = to->buffers; b != NULL; b = b->next) {
        *end = hd_arena_copy(c->arena, b, sizeof *b);
        c->buffer[b->id] = to->last_buffer = *end;
        end = &(*end)->next;
    }
    for (hd_buffer *b = to->buffers; b != NULL; b = b->next) {
        b->said = b->said == b->name ? NULL : copy_text(c, b->said);
        b->name = copy_text(c, b->name);
        b->said = b->said == NULL ? b->name : b->said;
        b->locs = copy_array(c, b->locs, 1, sizeof *b->locs);
        b->of = find_buffer(c, b->of);
        b->by = find_buffer(c, b->by);
        b->record = copy_op(c, b->record);
    }
    to->argument =
        copy_array(c, to->argument, to->arguments_room, sizeof(hd_buffer *));
    for (int i = 0; i < to->narguments; i++)
        to->argument[i] = find_buffer(c, to->argument[i]);
}

// `buffers`: whether values are buffers, else there are none.
static void copy_names(cloner *c, hd_names *names, bool buffers)
{
    names->slot = copy_array(c, names->slot, names->room, sizeof *names->slot);
    for (uint32_t i = 0; i < names->room; i++) {
        struct hd_named *slot = &names->slot[i];

        if (slot->name != NULL)
            slot->name = copy_text(c, slot->name);
        if (buffers)
            slot->value = find_buffer(c, slot->value);
    }
}

static void copy_vars(cloner *c, hd_module *to)
{
    to->vars = copy_array(c, to->vars, to->vars_room, sizeof *to->vars);
    for (int i = 0; i < to->nvars; i++)
        to->vars[i].name = copy_text(c, to->vars[i].name);
    copy_names(c, &to->var_names, false);
}

static void copy_exprs(cloner *c, hd_module *to)
{
    to->exprs = copy_array(c, to->exprs, to->exprs_room, sizeof *to->exprs);
    to->expr_index = copy_array(c, to->expr_index, to->expr_index_room,
                                sizeof *to->expr_index);
}

static void copy_header(cloner *c, hd_module *to)
{
    hd_source *source = &to->source;

    to->name = copy_text(c, to->name);
    to->why = to->why != NULL ? copy_text(c, to->why) : NULL;
    if (source->name != NULL)
        source->name = copy_text(c, source->name);
    source->text = copy_array(c, source->text, (int64_t)source->length, 1);
    source->cookie = copy_array(c, source->cookie, (int64_t)source->ncookies,
                                sizeof *source->cookie);
    for (int i = 0; i < to->naxes; i++)
        to->axis[i].name = copy_text(c, to->axis[i].name);
    to->param = copy_array(c, to->param, to->params_room, sizeof *to->param);
    for (int i = 0; i < to->nparams; i++)
        to->param[i].name = copy_text(c, to->param[i].name);
    for (int i = 0; i < to->nsizes; i++)
        to->size[i].name = copy_text(c, to->size[i].name);
}

// `to` is what `from` is, and points to what that points to.
static void copy_all(hd_module *to)
{
    cloner c = {.arena = to->arena};

    copy_header(&c, to);
    copy_buffers(&c, to);
    copy_names(&c, &to->buffer_names, true);
    copy_vars(&c, to);
    copy_exprs(&c, to);
    to->body = copy_block(&c, &to->body);
}

hd_status hd_module_clone(const hd_module *module, hd_diag *diag,
                          hd_module **out)
{
    hd_module *clone;
    hd_arena *arena;
    jmp_buf guard;

    HD_REQUIRE(diag, module);
    HD_REQUIRE(diag, out);
    clone = hd_module_create();
    if (clone == NULL)
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    arena = clone->arena;
    if (setjmp(guard) != 0) {
        hd_arena_destroy(arena);
        return hd_fail(diag, HD_ERROR_NO_MEMORY, "out of memory");
    }
    hd_arena_guard(arena, &guard);
    *clone = *module;
    clone->arena = arena;
    copy_all(clone);
    hd_arena_guard(arena, NULL);
    *out = clone;
    return HD_OK;
}
