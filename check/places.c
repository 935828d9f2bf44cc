#include "check/places.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "check/history.h"

// ------------------------------------------------------------------- values

static int compare_known(const void *x, const void *y)
{
    const hd_known *a = x, *b = y;

    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

static void find_makers(hd_places *places)
{
    int64_t n = 0;

    for (const hd_stmt *s = places->e->tensor->body.first; s != NULL;
         s = s->next) {
        n++;
        for (int i = 0; i < s->op->nviews; i++)
            if (hd_op_access(s->op, i) & HD_ACCESS_WRITE) {
                hd_maker *maker = &places->maker[s->op->view[i].buffer->id];

                *maker = (hd_maker){s->op, n,
                                    maker->parts || s->op->view[i].nindex > 0};
            }
    }
}

// A tensor gets its value when it is made; inputs are first. What counts holds
// whole numbers, which others may be by chance.
static void add_tensor(hd_places *places, const hd_buffer *b)
{
    const hd_evaluation *e = places->e;
    int64_t order = hd_module_counts_by(e->tensor, b)
                        ? INT64_MAX
                        : places->maker[b->id].order;

    places->tensor[places->ntensors++] = b;
    for (int64_t i = 0; i < e->whole.sieve[b->id].elements; i++) {
        int64_t at = e->whole.at[b->id] + i;

        places->known[places->nknown++] =
            (hd_known){e->dense.value[at], order, at};
    }
}

int64_t hd_places_find(const hd_places *places, uint64_t value)
{
    int64_t low = 0, high = places->nknown;

    if (value == 0)
        return places->zero;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (places->known[middle].value < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low < places->nknown && places->known[low].value == value
               ? places->known[low].at
               : -1;
}

// ------------------------------------------------------------------ buffers

// The last of the buffers that begins there or before.
static const hd_buffer *buffer_at(const hd_buffer *const *buffer, int64_t n,
                                  const int64_t *first, int64_t at)
{
    int64_t low = 0, high = n;

    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;

        if (first[buffer[middle]->id] <= at)
            low = middle;
        else
            high = middle;
    }
    return buffer[low];
}

const hd_buffer *hd_places_tensor(const hd_places *places, int64_t at)
{
    return buffer_at(places->tensor, places->ntensors, places->e->whole.at, at);
}

static bool makes(const hd_op *op, const hd_buffer *tensor)
{
    for (int i = 0; i < op->noutputs; i++)
        if (op->view[i].buffer == tensor)
            return true;
    return false;
}

// Of a tensor whose parts are made by several.
static const hd_op *find_maker(const hd_places *places, const hd_buffer *tensor,
                               int64_t at)
{
    const hd_op *last = NULL;

    for (const hd_stmt *s = places->e->tensor->body.first; s != NULL;
         s = s->next) {
        hd_work_item item;

        if (!makes(s->op, tensor))
            continue;
        hd_layout_op(&places->e->whole, s->op, &item);
        if (hd_compute_find(&item, at) >= 0)
            last = s->op;
    }
    return last;
}

const hd_op *hd_places_maker(const hd_places *places, int64_t at)
{
    const hd_buffer *tensor = hd_places_tensor(places, at);
    const hd_maker *maker = &places->maker[tensor->id];

    return maker->parts ? find_maker(places, tensor, at) : maker->op;
}

const hd_buffer *hd_places_root(const hd_places *places, int64_t at)
{
    return buffer_at(places->root, places->nroots, places->e->host.at,
                     at % places->e->host.share);
}

bool hd_places_belongs(const hd_places *places, int64_t at, uint64_t want)
{
    const hd_evaluation *e = places->e;
    const hd_buffer *root = hd_places_root(places, at);
    const hd_buffer *b =
        hd_module_buffer(e->tensor, root->name, strlen(root->name));
    const hd_sieve *whole, *local = &e->host.sieve[root->id];
    int64_t i = at % e->host.share - e->host.at[root->id], place;

    if (b == NULL || b->type.ndims != root->type.ndims)
        return false;
    whole = &e->whole.sieve[b->id];
    place = e->whole.at[b->id];
    for (int d = 0; d < local->ndims; d++) {
        hd_dim dim = root->type.dim[d];
        int64_t index = i / local->stride[d] % local->extent[d];

        if (hd_dim_is_sharded(dim))
            index += hd_mesh_coord(e->graph->module, hd_history_rank(e, at),
                                   dim.mark) *
                     local->extent[d];
        if (dim.extent != b->type.dim[d].extent || index >= whole->extent[d])
            return false;
        place += index * whole->stride[d];
    }
    return e->dense.value[place] == want;
}

// -------------------------------------------------------------------- words

// Whether an index says more than all that the dimension has.
static bool is_distinguished(const hd_sieve *s, int d)
{
    hd_piece first = hd_grain_piece(s->grain[d], 0);

    return first.length < s->whole[d];
}

// "[2, :, 64..128]" of element i; what a rank holds one of has its coordinate.
static void print_index(const hd_evaluation *e, const hd_sieve *s,
                        const hd_buffer *mine, int rank, int64_t i,
                        hd_text *text)
{
    int last = 0;

    for (int d = 0; d < s->ndims; d++) {
        bool own = mine != NULL && hd_dim_is_sharded(mine->type.dim[d]);

        if (own || is_distinguished(s, d))
            last = d + 1;
    }
    for (int d = 0; d < last; d++) {
        hd_piece piece =
            hd_grain_piece(s->grain[d], i / s->stride[d] % s->extent[d]);

        hd_text_puts(text, d == 0 ? "[" : ", ");
        if (mine != NULL && hd_dim_is_sharded(mine->type.dim[d]))
            hd_text_printf(text, "%lld",
                           (long long)hd_mesh_coord(e->graph->module, rank,
                                                    mine->type.dim[d].mark));
        else if (!is_distinguished(s, d) && s->whole[d] > 1)
            hd_text_puts(text, ":");
        else if (piece.length == 1)
            hd_text_printf(text, "%lld", (long long)piece.first);
        else
            hd_text_printf(text, "%lld..%lld", (long long)piece.first,
                           (long long)(piece.first + piece.length));
    }
    hd_text_puts(text, last > 0 ? "]" : "");
}

// The only dimension with an index, if each is of another rank; else -1.
static int only_shard(const hd_evaluation *e, const hd_buffer *b)
{
    const hd_sieve *s = &e->whole.sieve[b->id];
    int shard = -1;

    for (int d = 0; d < s->ndims; d++) {
        if (!is_distinguished(s, d))
            continue;
        if (shard >= 0 || !hd_dim_is_sharded(b->type.dim[d]) ||
            hd_dim_is_cut(b->type.dim[d]))
            return -1;
        shard = d;
    }
    return e->tensor->naxes == 1 ? shard : -1;
}

void hd_places_print_tensor(const hd_places *places, int64_t at, hd_text *text)
{
    const hd_evaluation *e = places->e;
    const hd_buffer *b = hd_places_tensor(places, at);
    const hd_sieve *s = &e->whole.sieve[b->id];
    int64_t i = at - e->whole.at[b->id];
    int shard = only_shard(e, b);

    hd_text_printf(text, "%%%s", b->name);
    if (shard >= 0)
        hd_text_printf(text, " of rank %lld",
                       (long long)(i / s->stride[shard] % s->extent[shard]));
    else
        print_index(e, s, NULL, 0, i, text);
}

void hd_places_print_value(const hd_places *places, uint64_t value,
                           hd_text *text)
{
    int64_t at = hd_places_find(places, value);

    if (at >= 0)
        hd_places_print_tensor(places, at, text);
    else
        hd_text_puts(text, value == 0 ? "0" : "no value of the tensor program");
}

void hd_places_print(const hd_places *places, int64_t at, hd_text *text)
{
    const hd_evaluation *e = places->e;
    const hd_buffer *b = hd_places_root(places, at);

    hd_text_printf(text, "%%%s", b->name);
    print_index(e, &e->host.sieve[b->id], b, hd_history_rank(e, at),
                at % e->host.share - e->host.at[b->id], text);
}

// -------------------------------------------------------------------- whole

static hd_status make_room(hd_places *places)
{
    const hd_evaluation *e = places->e;

    HD_TRY(hd_clear_array(e->dense.n, sizeof *places->known, e->diag,
                          (void **)&places->known));
    HD_TRY(hd_clear_array(e->tensor->nbuffers, sizeof *places->maker, e->diag,
                          (void **)&places->maker));
    HD_TRY(hd_clear_array(e->tensor->nbuffers, sizeof *places->tensor, e->diag,
                          (void **)&places->tensor));
    return hd_clear_array(e->graph->module->nbuffers, sizeof *places->root,
                          e->diag, (void **)&places->root);
}

hd_status hd_places_create(const hd_evaluation *e, hd_places *out)
{
    *out = (hd_places){.e = e, .zero = -1};
    HD_TRY(make_room(out));
    find_makers(out);
    for (const hd_buffer *b = e->tensor->buffers; b != NULL; b = b->next)
        add_tensor(out, b);
    for (const hd_buffer *b = e->graph->module->buffers; b != NULL; b = b->next)
        if (b->of == NULL && b->type.dtype != HD_DTYPE_EVENT)
            out->root[out->nroots++] = b;
    qsort(out->known, (size_t)out->nknown, sizeof *out->known, compare_known);
    return HD_OK;
}

void hd_places_free(hd_places *places)
{
    free(places->known);
    free(places->maker);
    free(places->tensor);
    free(places->root);
    *places = (hd_places){0};
}
