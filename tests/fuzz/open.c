// Declarations are opened in the module, where it shows whether each tensor is
// still what it was. heddle-gen, which has the public library alone, leaves
// words of the text out, and some of its programs mean another
// (tools/gen/open.c).
#include "tests/fuzz/open.h"

#include <stdlib.h>
#include <string.h>

// Whether each tensor of `module` is as long in `other`, and of its dtype.
static bool is_alike(const hd_module *module, const hd_module *other)
{
    for (const hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        const hd_buffer *o = hd_module_buffer(other, b->name, strlen(b->name));

        if (o == NULL || o->type.dtype != b->type.dtype ||
            o->type.ndims != b->type.ndims || o->by != NULL)
            return false;
        for (int d = 0; d < b->type.ndims; d++)
            if (!hd_dim_as_long(b->type.dim[d], o->type.dim[d]))
                return false;
    }
    return true;
}

// What a statement does not say, or says otherwise, is declared.
static bool says_the_same(const hd_module *module)
{
    hd_diag *diag = hd_diag_create();
    char *text = print_module(module);
    hd_module *other = NULL;
    bool same =
        hd_parse("open", text, strlen(text), NULL, 0, diag, &other) == HD_OK &&
        is_alike(module, other);

    hd_module_destroy(other);
    hd_free(text);
    hd_diag_destroy(diag);
    return same;
}

// What is left of a declaration: mostly nothing.
static unsigned draw_open(uint8_t byte)
{
    static const unsigned kinds[] = {
        HD_OPEN_DTYPE | HD_OPEN_PLACE | HD_OPEN_SHAPE,
        HD_OPEN_PLACE | HD_OPEN_SHAPE, HD_OPEN_DTYPE | HD_OPEN_SHAPE,
        HD_OPEN_SHAPE};

    if (byte % 8 == 0)
        return 0;
    return kinds[byte % 8 < 5 ? 0 : byte % 8 - 4];
}

// What a statement that is done as it stands has is where it is declared.
static bool may_open(const hd_module *module, const hd_buffer *b)
{
    bool may = b->role == HD_ROLE_TEMP && !b->on.some && b->by == NULL;

    for (const hd_stmt *s = module->body.first; s != NULL; s = s->next)
        for (int i = 0; i < s->op->nviews && may; i++)
            may = s->op->view[i].buffer != b || !hd_op_stands(module, s->op);
    return may;
}

char *open_temps(const char *text, uint64_t seed)
{
    hd_diag *diag = hd_diag_create();
    hd_module *module = NULL;
    uint8_t *byte;
    char *opened = NULL;
    bool any = false;

    must(hd_parse("generated", text, strlen(text), NULL, 0, diag, &module) ==
             HD_OK,
         "what is generated parses", hd_diag_text(diag));
    byte = malloc((size_t)module->nbuffers + 1);
    choices_fill(seed, byte, (size_t)module->nbuffers + 1);
    for (hd_buffer *b = module->buffers; b != NULL; b = b->next) {
        if (!may_open(module, b))
            continue;
        b->open = draw_open(byte[b->id]);
        if (b->open != 0 && !says_the_same(module))
            b->open = HD_OPEN_PLACE; // as one written in parts
        if (b->open != 0 && !says_the_same(module))
            b->open = 0;
        any |= b->open != 0;
    }
    if (any)
        opened = print_module(module);
    free(byte);
    hd_module_destroy(module);
    hd_diag_destroy(diag);
    return opened;
}
