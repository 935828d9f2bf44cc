#include "lower/lines.h"

#include <string.h>

#include "base/dtype.h"
#include "ir/causal.h"

enum { NONE = -1 };

// ------------------------------------------------------------------- lines

static void add_dim(hd_lines *lines, int view, int dim, int line)
{
    hd_dim d = lines->type[view].dim[dim];

    lines->at[view][dim] = (int8_t)line;
    if (line >= 0 && d.extent > lines->extent[line])
        lines->extent[line] = d.extent;
}

// Of letters of one dimension, by name.
static bool is_letter(const hd_lines *lines, int view, int dim,
                      const char *letter)
{
    const char *text = hd_letter_text(lines->bound.letter[view][dim]);

    return text != NULL && strcmp(text, letter) == 0;
}

// Rows of which each rank has a block meet keys block by block.
static bool may_have_blocks(const hd_op *op)
{
    return hd_op_meets_keys(op) && hd_op_key(op, HD_KEY_ZIGZAG) == NULL &&
           !hd_causal_is_said_among(op) && // rows are some of all
           hd_op_key(op, HD_KEY_ACCUMULATE) == NULL;
}

// Keys of which each rank has a block see the same rows on all ranks.
static bool may_merge(const hd_op *op)
{
    return hd_op_attend(op) == HD_ATTEND_ATTENTION &&
           hd_op_key(op, HD_KEY_BLOCKS) == NULL &&
           hd_op_key(op, HD_KEY_ZIGZAG) == NULL && !hd_op_has_sequences(op) &&
           (hd_op_key(op, HD_KEY_WINDOW) == NULL ||
            hd_op_key(op, HD_KEY_CAUSAL) != NULL);
}

// Heads of keys are divided as those of queries that share them, and keys as
// rows are; of rows that are merged with others none of these.
static void find_heads(hd_lines *lines)
{
    const hd_op *op = lines->op;

    if (hd_op_key(op, HD_KEY_BLOCKS) != NULL ||
        (hd_op_attend(op) == HD_ATTEND_ATTENTION &&
         hd_op_key(op, HD_KEY_ACCUMULATE) != NULL))
        return;
    for (int i = 0; i < op->noutputs + op->ninputs; i++)
        for (int d = 0; d < lines->type[i].ndims; d++) {
            if (is_letter(lines, i, d, "h"))
                lines->heads = lines->at[i][d];
            if (is_letter(lines, i, d, "s") && may_have_blocks(op))
                lines->rows = lines->at[i][d];
        }
    for (int i = 0; i < op->noutputs + op->ninputs; i++)
        for (int d = 0; d < lines->type[i].ndims; d++) {
            if (is_letter(lines, i, d, "g"))
                lines->at[i][d] = (int8_t)lines->heads;
            if (is_letter(lines, i, d, "t") && lines->rows >= 0)
                lines->at[i][d] = (int8_t)lines->rows;
        }
}

static void find_bound(hd_lines *lines)
{
    const hd_op *op = lines->op;
    bool product = hd_op_family(op) == HD_FAMILY_PRODUCT;
    int8_t(*along)[HD_MAX_DIMS] = lines->bound.along;

    lines->n = lines->bound.nlines;
    memcpy(lines->at, along, sizeof lines->at);
    if (may_merge(op)) {
        int keys = op->noutputs + 1, d = lines->type[keys].ndims - 2;

        lines->keys = along[keys][d];
        lines->extent[lines->keys] = lines->type[keys].dim[d].extent;
    }
    if (hd_op_family(op) == HD_FAMILY_ATTEND)
        find_heads(lines);
    for (int i = 0; i < op->nviews; i++)
        for (int d = 0; d < lines->type[i].ndims; d++)
            add_dim(lines, i, d, lines->at[i][d]);
    if (product && hd_op_key(op, HD_KEY_GROUPS) == NULL && !op->front)
        for (int d = 0; d < lines->type[1].ndims; d++)
            if (is_letter(lines, 1, d, "k"))
                lines->joined = along[1][d];
    if ((hd_op_family(op) == HD_FAMILY_FOLD && hd_op_dim(op) >= 0) ||
        hd_op_family(op) == HD_FAMILY_TAKE)
        lines->joined = along[1][hd_op_dim(op)];
    for (int d = 0; product && d < lines->type[1].ndims; d++)
        if (along[1][d] < lines->bound.nparallel &&
            hd_op_key(op, HD_KEY_TA) == NULL)
            lines->beside |= 1u << along[1][d];
}

// Dimensions of as many elements together are a line, along which the first of
// each side lies.
static void find_shares(hd_lines *lines)
{
    int of_out[HD_MAX_DIMS], of_in[HD_MAX_DIMS], na, nb;
    hd_type a = hd_type_without_ones(&lines->type[0], of_out);
    hd_type b = hd_type_without_ones(&lines->type[1], of_in);

    for (int i = 0, k = 0; i < a.ndims && k < b.ndims; i += na, k += nb) {
        hd_dims_factor(a.dim + i, a.ndims - i, b.dim + k, b.ndims - k, &na,
                       &nb);
        add_dim(lines, 0, of_out[i], lines->n);
        add_dim(lines, 1, of_in[k], lines->n++);
    }
}

static void find_places(hd_lines *lines)
{
    for (int d = 0; d < lines->type[0].ndims; d++) {
        add_dim(lines, 0, d, lines->n);
        add_dim(lines, 1, d, lines->n++);
    }
}

bool hd_buffer_is_narrow(const hd_buffer *buffer)
{
    return (buffer->open & HD_OPEN_DTYPE) == 0 &&
           hd_dtype_size(buffer->type.dtype) < 4;
}

// Parts of an operand are rounded to its dtype before they are added up.
bool hd_lines_may_be_parts(const hd_lines *lines, int i)
{
    const hd_view *view = &lines->op->view[i];

    return view->nindex == 0 && lines->type[i].ndims < HD_MAX_DIMS &&
           !hd_buffer_is_narrow(view->buffer) &&
           hd_dtype_holds(lines->type[0].dtype, lines->type[i].dtype);
}

// The views that are operands of a group of what the op is linear in.
static void find_groups(hd_lines *lines)
{
    const hd_op *op = lines->op;

    if (lines->fixed || op->noutputs != 1 || op->view[0].nindex > 0 ||
        lines->type[0].ndims == HD_MAX_DIMS ||
        !hd_dtype_is_float(lines->type[0].dtype) ||
        hd_dtype_is_f8(lines->type[0].dtype))
        return;
    for (int k = 0; k < HD_MAX_GROUPS; k++)
        for (int i = 0; i < hd_op_operands(op); i++) {
            int view = hd_op_operand(op, i);

            if ((hd_op_linear(op, k) >> i & 1) == 0)
                continue;
            if (view < 0 || !hd_lines_may_be_parts(lines, view)) {
                lines->group[k] = 0;
                break;
            }
            lines->group[k] |= 1u << view;
        }
}

hd_lines hd_lines_find(const hd_module *module, const hd_op *op)
{
    hd_lines lines = {
        .op = op, .joined = NONE, .heads = NONE, .rows = NONE, .keys = NONE};
    int ndims[HD_MAX_VIEWS];
    hd_misfit why;

    memset(lines.at, NONE, sizeof lines.at);
    for (int i = 0; i < op->nviews; i++) {
        hd_type type = hd_view_type(&op->view[i]);

        lines.type[i] =
            hd_placement_type(module, &type, hd_placement_nowhere());
        ndims[i] = type.ndims;
    }
    lines.fixed = hd_op_stands(module, op);
    if (op->code == HD_OP_RESHAPE)
        find_shares(&lines);
    else if (op->code == HD_OP_SET)
        find_places(&lines);
    else if (hd_bind(op, ndims, &lines.bound, &why) && !lines.bound.parts)
        find_bound(&lines);
    else
        lines.fixed = true;
    find_groups(&lines);
    return lines;
}

// ------------------------------------------------------- ranks in front

hd_type hd_type_led(const hd_module *module, const hd_type *type, int dim,
                    int axis, int ndims)
{
    int64_t n = module->axis[axis].size;
    hd_type lead = *type;
    hd_dim ranks = hd_dim_whole(n);

    ranks.mark = axis;
    if (dim >= 0)
        lead.dim[dim] = hd_dim_whole(type->dim[dim].extent / n);
    while (lead.ndims < ndims - 1)
        lead = hd_type_with(&lead, 0, hd_dim_whole(1));
    return hd_type_with(&lead, 0, ranks);
}

// Parts are of the result's dtype: one that holds less than operands do, or
// that is of 8 bits, would round each of them. What is added to a narrow result
// is rounded with it, once, and what `aux` keeps of another dtype is rounded
// from what the product is.
static bool rounds_twice(const hd_lines *lines)
{
    hd_dtype made = lines->type[0].dtype;
    bool adds = hd_op_key(lines->op, HD_KEY_ACCUMULATE) != NULL;
    int aux = hd_op_key_view(lines->op, HD_KEY_AUX);

    return !hd_dtype_holds(made, lines->type[1].dtype) ||
           hd_dtype_is_f8(made) ||
           (aux >= 0 && lines->type[aux].dtype != made) ||
           (adds && hd_dtype_is_float(made) && hd_dtype_size(made) < 4);
}

// With ranks and ones in front of an operand its batch stands where the result
// has it: not if dimensions of both stand in front of a first operand's rows.
static bool batch_stays(const hd_lines *lines, int i)
{
    int lacks = lines->type[0].ndims - lines->type[i].ndims;

    for (int d = 0; d < lines->type[i].ndims - 2; d++)
        if (lines->type[i].dim[d].extent > 1 &&
            (d + lacks < 0 || lines->at[i][d] != lines->at[0][d + lacks]))
            return false;
    return true;
}

bool hd_key_ends(hd_key_code code)
{
    return code == HD_KEY_BIAS || code == HD_KEY_ACT || code == HD_KEY_AUX ||
           code == HD_KEY_ACCUMULATE;
}

bool hd_lines_lead(const hd_module *module, const hd_lines *lines, int axis)
{
    return lines->extent[lines->joined] % module->axis[axis].size == 0;
}

bool hd_lines_make_parts(const hd_module *module, const hd_lines *lines,
                         int axis, const hd_placement *at)
{
    const hd_op *op = lines->op;
    int ndims = lines->type[0].ndims + 1;
    hd_type type[HD_MAX_VIEWS];
    hd_key key[HD_NKEYS];
    hd_op product = *op;
    hd_bound bound;

    for (int i = 0; i < 3; i++) {
        hd_placement p = at[i];

        if (i == 0)
            p.dim[axis] = HD_PLACED_NOWHERE;
        type[i] = hd_placement_type(module, &lines->type[i], p);
    }
    type[0] = hd_type_led(module, &type[0], NONE, axis, ndims);
    product.nviews = 3;
    product.key = key;
    product.nkeys = 0;
    for (int i = 0; i < op->nkeys; i++) {
        if (hd_key_ends(op->key[i].code))
            continue;
        if (op->key[i].code != HD_KEY_TA && op->key[i].code != HD_KEY_TB)
            return false;
        key[product.nkeys++] = op->key[i];
    }
    return hd_signature_fits(&product, type, true, &bound, NULL);
}

// Whether there is a product of the views with an index for each rank of `axis`
// in front, over which the contracted dimension lies. What keys read is the
// same for all these ranks, and stays as it is.
static bool may_lead(const hd_module *module, const hd_lines *lines, int axis,
                     const hd_placement at[HD_MAX_VIEWS])
{
    const hd_op *op = lines->op;
    int ndims = lines->type[0].ndims + 1;
    hd_type type[HD_MAX_VIEWS];
    hd_view view[HD_MAX_VIEWS];
    hd_key key[HD_NKEYS];
    hd_op product = *op;
    hd_bound bound;

    for (int i = 0; i < 3; i++) {
        hd_placement p = at[i];

        p.dim[axis] = HD_PLACED_NOWHERE;
        type[i] = hd_placement_type(module, &lines->type[i], p);
        if (type[i].ndims >= ndims || !batch_stays(lines, i))
            return false;
        type[i] = hd_type_led(module, &type[i], at[i].dim[axis], axis, ndims);
        view[i] = op->view[i];
    }
    product.nviews = 3;
    product.view = view;
    product.key = key;
    product.nkeys = 0;
    for (int i = 0; i < op->nkeys; i++) {
        int from = op->key[i].view, to = product.nviews;

        if (hd_key_ends(op->key[i].code))
            continue;
        key[product.nkeys] = op->key[i];
        if (from >= 0) {
            if (at[from].dim[axis] != HD_PLACED_NOWHERE)
                return false;
            type[to] = hd_placement_type(module, &lines->type[from], at[from]);
            view[to] = op->view[from];
            key[product.nkeys].view = product.nviews++;
        }
        product.nkeys++;
    }
    return hd_signature_fits(&product, type, true, &bound, NULL);
}

// Whether there is a product that makes parts, of blocks that ranks of `axis`
// have of the contracted dimension.
static bool may_contract(const hd_module *module, const hd_lines *lines,
                         int axis, const hd_placement at[HD_MAX_VIEWS])
{
    if (rounds_twice(lines) || lines->type[0].ndims == HD_MAX_DIMS)
        return false;
    return hd_lines_lead(module, lines, axis)
               ? may_lead(module, lines, axis, at)
               : hd_lines_make_parts(module, lines, axis, at);
}

// ---------------------------------------------------------------- dividing

int hd_cut_parts(hd_cut cut)
{
    for (int a = 0; a < HD_MAX_AXES; a++)
        if (cut.line[a] <= HD_LINE_OF_PARTS(0))
            return a;
    return NONE;
}

unsigned hd_lines_parts(const hd_lines *lines, hd_cut cut)
{
    int axis = hd_cut_parts(cut);

    return axis >= 0 ? lines->group[HD_LINE_OF_PARTS(cut.line[axis])] : 0;
}

// One index that all ranks have, of a line of several.
static bool repeats(const hd_lines *lines, int view, int dim)
{
    return lines->type[view].dim[dim].extent == 1 &&
           lines->extent[lines->at[view][dim]] > 1;
}

bool hd_lines_splits(const hd_lines *lines, int line)
{
    return line >= 0 && line == lines->rows;
}

bool hd_lines_merges(const hd_lines *lines, int line)
{
    return line >= 0 && line == lines->keys;
}

// Of the keys each rank has as many.
static bool divide_keys(const hd_module *module, const hd_lines *lines,
                        int axis, hd_placement at[HD_MAX_VIEWS])
{
    const hd_op *op = lines->op;

    for (int i = 0; i < op->nviews; i++) {
        int d = lines->type[i].ndims - 2;

        if (!hd_op_has_keys(op, i))
            continue;
        if (!hd_dim_splits(module, lines->type[i].dim[d], axis) ||
            hd_view_range(&op->view[i], hd_view_kept_dim(&op->view[i], d)) !=
                NULL)
            return false;
        at[i].dim[axis] = (int8_t)d;
    }
    return module->axis[axis].size > 1;
}

// Which dimension of a view a cut line divides; NONE: it has all.
static bool divide_view(const hd_module *module, const hd_lines *lines, int i,
                        int axis, int line, hd_placement *at)
{
    const hd_view *view = &lines->op->view[i];
    bool even = hd_lines_splits(lines, line);

    if (line == lines->joined && hd_op_writes(lines->op, i)) {
        at->dim[axis] = HD_PLACED_PARTS;
        return true;
    }
    for (int d = 0; d < lines->type[i].ndims; d++) {
        hd_dim dim = lines->type[i].dim[d];

        if (lines->at[i][d] != line || repeats(lines, i, d))
            continue;
        // Where blocks begin is no number of a length that a run says, and
        // which ranks have parts none either.
        if (hd_dim_is_sized(dim) &&
            (hd_op_starts(lines->op, i, d) ||
             (line == lines->joined &&
              hd_op_family(lines->op) == HD_FAMILY_PRODUCT)))
            return false;
        // A range has other indices than a rank's block.
        if (hd_view_range(view, hd_view_kept_dim(view, d)) != NULL ||
            !hd_dim_may_shard(module, dim, axis) ||
            (even && !hd_dim_splits(module, dim, axis)))
            return false;
        at->dim[axis] = (int8_t)d;
    }
    return true;
}

// Of a reshape blocks are of the same elements.
static bool share_alike(const hd_module *module, const hd_lines *lines,
                        const hd_placement *at)
{
    for (int a = 0; a < module->naxes; a++) {
        hd_dim x, y;

        if (at[0].dim[a] < 0)
            continue;
        x = lines->type[0].dim[at[0].dim[a]];
        y = lines->type[1].dim[at[1].dim[a]];
        if (!hd_dim_as_long(x, y) &&
            !(hd_dim_splits(module, x, a) && hd_dim_splits(module, y, a)))
            return false;
    }
    return true;
}

// As the verifier has it, what ranks add up, and rows and keys of which ranks
// become a dimension of the batch, aside.
static bool fits(const hd_module *module, const hd_lines *lines, hd_cut cut,
                 const hd_placement *at)
{
    hd_type type[HD_MAX_VIEWS];

    for (int i = 0; i < lines->op->nviews; i++) {
        hd_placement p = at[i];

        for (int a = 0; a < module->naxes; a++)
            if (cut.line[a] == lines->joined ||
                hd_lines_splits(lines, cut.line[a]) ||
                hd_lines_merges(lines, cut.line[a]) ||
                cut.line[a] <= HD_LINE_OF_PARTS(0))
                p.dim[a] = HD_PLACED_NOWHERE;
        type[i] = hd_placement_type(module, &lines->type[i], p);
    }
    return hd_bound_fits(&lines->bound, type, 0, true, NULL) &&
           hd_bound_heads_fit(&lines->bound, type, lines->op->noutputs);
}

// Whether one of these views has one index along a line of several.
static bool any_repeats(const hd_lines *lines, int first, int past, int line)
{
    for (int i = first; i < past; i++)
        for (int d = 0; d < lines->type[i].ndims; d++)
            if (lines->at[i][d] == line && repeats(lines, i, d))
                return true;
    return false;
}

// Of heads of keys that repeat ranks would have parts of the gradients, and of
// one key that repeats there are no blocks.
static bool may_divide(const hd_lines *lines, int line)
{
    const hd_op *op = lines->op;

    if (lines->extent[line] == 0) // no dimension lies along it
        return false;
    if (line == lines->rows)
        return !any_repeats(lines, 0, op->noutputs + op->ninputs, line);
    return line != lines->heads ||
           hd_op_attend(op) != HD_ATTEND_ATTENTION_GRAD ||
           !any_repeats(lines, 0, op->noutputs, line);
}

// Whether rows meet keys some at a time.
static bool takes_rows(const hd_lines *lines, int line)
{
    return hd_lines_splits(lines, line) || hd_lines_merges(lines, line);
}

static bool makes_parts(const hd_lines *lines, int line)
{
    return line <= HD_LINE_OF_PARTS(0) || (line >= 0 && line == lines->joined);
}

// Whether each view has room for the dimension of the batch that rows or keys
// become, and of keys for one of blocks, or of what is merged for rows.
static bool has_room(const hd_module *module, const hd_lines *lines, hd_cut cut)
{
    int more = 0;

    for (int a = 0; a < module->naxes; a++)
        if (takes_rows(lines, cut.line[a]))
            more += 2;
    for (int i = 0; i < lines->op->nviews && more > 0; i++)
        if (lines->type[i].ndims + more > HD_MAX_DIMS)
            return false;
    return true;
}

// Of operands, which are parts over one axis, and the result.
static bool divide_parts(const hd_lines *lines, hd_cut cut, int axis,
                         hd_placement at[HD_MAX_VIEWS])
{
    unsigned parts = hd_lines_parts(lines, cut);

    for (int i = 0; i < lines->op->nviews; i++)
        if (i == 0 || (parts >> i & 1) != 0)
            at[i].dim[axis] = HD_PLACED_PARTS;
    return parts != 0;
}

bool hd_lines_divide(const hd_module *module, const hd_lines *lines, hd_cut cut,
                     hd_placement at[HD_MAX_VIEWS])
{
    int joined = NONE;

    for (int i = 0; i < lines->op->nviews; i++)
        at[i] = hd_placement_nowhere();
    for (int a = 0; a < module->naxes; a++) {
        int line = cut.line[a];

        if (line == NONE)
            continue;
        for (int b = 0; b < a; b++)
            if (cut.line[b] == line ||
                (makes_parts(lines, cut.line[b]) && makes_parts(lines, line)) ||
                (takes_rows(lines, cut.line[b]) && takes_rows(lines, line)))
                return false;
        if (line <= HD_LINE_OF_PARTS(0)) {
            if (!divide_parts(lines, cut, a, at))
                return false;
            continue;
        }
        if (hd_lines_merges(lines, line)) {
            if (!divide_keys(module, lines, a, at))
                return false;
            continue;
        }
        if (!may_divide(lines, line))
            return false;
        for (int i = 0; i < lines->op->nviews; i++)
            if (!divide_view(module, lines, i, a, line, &at[i]))
                return false;
        joined = line == lines->joined ? a : joined;
    }
    if (!has_room(module, lines, cut))
        return false;
    if (lines->op->code == HD_OP_RESHAPE)
        return share_alike(module, lines, at);
    if (lines->op->code == HD_OP_SET)
        return true;
    return fits(module, lines, cut, at) &&
           (joined == NONE || hd_op_family(lines->op) != HD_FAMILY_PRODUCT ||
            may_contract(module, lines, joined, at));
}

hd_cut hd_lines_cut(const hd_module *module, const hd_lines *lines, int view,
                    hd_placement at)
{
    hd_placement places[HD_MAX_VIEWS];
    hd_cut cut;

    memset(&cut, NONE, sizeof cut);
    for (int a = 0; a < module->naxes; a++) {
        if (at.dim[a] < 0)
            continue;
        cut.line[a] = lines->at[view][at.dim[a]];
        if (!hd_lines_divide(module, lines, cut, places))
            cut.line[a] = NONE;
    }
    return cut;
}

// -------------------------------------------------------------------- work

static int64_t share(const hd_module *module, const hd_lines *lines, hd_cut cut,
                     int line)
{
    int64_t n = lines->extent[line] > 0 ? lines->extent[line] : 1;

    for (int a = 0; a < module->naxes; a++)
        if (cut.line[a] == line)
            n = hd_block_size(n, module->axis[a].size);
    return n;
}

// How many keys along dimension `d` of a view rows meet: all, wherever these
// are, if not those of a rank alone.
static int64_t share_keys(const hd_module *module, const hd_lines *lines,
                          hd_cut cut, int i, int d)
{
    return lines->keys >= 0 ? share(module, lines, cut, lines->keys)
                            : lines->type[i].dim[d].extent;
}

// Whether a dimension is how long the rows and keys of an attention are.
static bool is_depth(const hd_lines *lines, int i, int d)
{
    return hd_op_meets_keys(lines->op) &&
           (is_letter(lines, i, d, "d") || is_letter(lines, i, d, "e"));
}

// Products of what views have along all lines, each of a result once; of an
// attention pairs of a row of a head and a key.
static int64_t count_products(const hd_module *module, const hd_lines *lines,
                              hd_cut cut)
{
    bool seen[HD_MAX_LINES] = {false};
    double n = 1;

    for (int i = 0; i < lines->op->noutputs + lines->op->ninputs; i++)
        for (int d = 0; d < lines->type[i].ndims; d++) {
            int line = lines->at[i][d];

            if (is_letter(lines, i, d, "t")) {
                if (i == lines->op->noutputs + 1)
                    n *= (double)share_keys(module, lines, cut, i, d);
                continue;
            }
            if (line < 0 || seen[line] || is_depth(lines, i, d))
                continue;
            seen[line] = true;
            n *= (double)share(module, lines, cut, line);
        }
    return n < 1e18 ? (int64_t)n : (int64_t)1e18;
}

// 1 and 2 and so on up to `n`.
static double sum_to(double n)
{
    return n > 0 ? n * (n + 1) / 2 : 0;
}

// How many pairs of a row and a key there are of which key j is up to i + e.
static double count_up_to(double rows, double keys, double e)
{
    return sum_to(rows + e) - sum_to(e) - sum_to(rows + e - keys) +
           sum_to(e - keys);
}

// Into how many blocks ranks divide a line of an attention.
static int64_t blocks_of(const hd_module *module, hd_cut cut, int line)
{
    for (int a = 0; line >= 0 && a < module->naxes; a++)
        if (cut.line[a] == line)
            return module->axis[a].size;
    return 1;
}

// What a mask leaves of all pairs of a row and a key, where it is most: of the
// last block of rows, or of the first one of keys.
static double seen_share(const hd_module *module, const hd_lines *lines,
                         hd_cut cut)
{
    const hd_op *op = lines->op;
    const hd_key *causal = hd_op_key(op, HD_KEY_CAUSAL);
    const hd_key *window = hd_op_key(op, HD_KEY_WINDOW);
    const hd_type *q = &lines->type[op->noutputs], *k = q + 1;
    int64_t rank_rows = blocks_of(module, cut, lines->rows);
    int64_t rank_keys = blocks_of(module, cut, lines->keys);
    double rows, keys, most = 0;

    if (causal == NULL)
        return 1;
    if (!hd_expr_is_const(module, causal->expr) ||
        hd_op_key(op, HD_KEY_BLOCKS) != NULL)
        return .5;
    rows = (double)hd_block_size(q->dim[q->ndims - 2].extent, rank_rows);
    keys = (double)hd_block_size(k->dim[k->ndims - 2].extent, rank_keys);
    for (int64_t i = 0; i < rank_rows * rank_keys; i++) {
        double e = (double)hd_expr_value(module, causal->expr) +
                   (double)(i / rank_keys) * rows -
                   (double)(i % rank_keys) * keys;
        double n = count_up_to(rows, keys, e);

        if (window != NULL)
            n -= count_up_to(rows, keys, e - window->number);
        most = n > most ? n : most;
    }
    return rows * keys > 0 ? most / (rows * keys) : 1;
}

static int64_t count_attended(const hd_module *module, const hd_lines *lines,
                              hd_cut cut)
{
    const hd_type *q = &lines->type[lines->op->noutputs], *v = q + 2;
    int64_t columns = hd_op_attend_columns(
        lines->op, q->dim[q->ndims - 1].extent, v->dim[v->ndims - 1].extent);
    double n = (double)count_products(module, lines, cut) * (double)columns *
               seen_share(module, lines, cut);

    return n < 1e18 ? (int64_t)n : (int64_t)1e18;
}

// Of what a rank has of view `i`.
static int64_t view_bytes(const hd_module *module, const hd_lines *lines,
                          hd_cut cut, int i)
{
    double n = (double)hd_dtype_size(lines->type[i].dtype);

    for (int d = 0; d < lines->type[i].ndims; d++)
        n *= hd_op_meets_keys(lines->op) && is_letter(lines, i, d, "t")
                 ? (double)share_keys(module, lines, cut, i, d)
             : lines->at[i][d] < 0 || repeats(lines, i, d)
                 ? (double)lines->type[i].dim[d].extent
                 : (double)share(module, lines, cut, lines->at[i][d]);
    return n < 1e17 ? (int64_t)n : (int64_t)1e17;
}

static int64_t count_bytes(const hd_module *module, const hd_lines *lines,
                           hd_cut cut)
{
    int64_t bytes = 0;

    for (int i = 0; i < lines->op->nviews; i++)
        bytes += view_bytes(module, lines, cut, i);
    return bytes;
}

// What a product touches at its end, beside a result of its operands' dtype; of
// a wider one three times as much, as it takes.
static int64_t count_ends(const hd_module *module, const hd_lines *lines,
                          hd_cut cut)
{
    const hd_op *op = lines->op;
    int64_t from = (int64_t)hd_dtype_size(lines->type[1].dtype);
    int64_t to = (int64_t)hd_dtype_size(lines->type[0].dtype);
    int64_t made = view_bytes(module, lines, cut, 0);
    int64_t bytes = made - made / to * from;

    if (hd_op_key(op, HD_KEY_ACCUMULATE) != NULL)
        bytes += made;
    for (int i = op->noutputs + op->ninputs; i < op->nviews; i++)
        bytes += view_bytes(module, lines, cut, i);
    return bytes < 0 ? 0 : bytes * (to > from ? 3 : 1);
}

bool hd_lines_are_values(const hd_lines *lines, int i)
{
    const hd_view *a = &lines->op->view[i], *b = a - 1;

    return i > lines->op->noutputs && hd_op_has_keys(lines->op, i) &&
           hd_op_has_keys(lines->op, i - 1) && a->buffer == b->buffer &&
           a->nindex == 0 && b->nindex == 0;
}

hd_moves hd_lines_arrive(const hd_module *module, const hd_lines *lines,
                         hd_cut cut, const hd_placement *at)
{
    const hd_op *op = lines->op;
    hd_moves moves = {0};

    for (int a = 0; a < module->naxes; a++)
        for (int i = op->noutputs + op->ninputs; i-- > 0;) {
            hd_type type = lines->type[i];
            hd_placement all = at[i];
            bool made = hd_op_writes(op, i);

            if (cut.line[a] != lines->rows || !hd_op_has_keys(op, i) ||
                hd_lines_are_values(lines, i))
                continue;
            all.dim[a] = made ? HD_PLACED_PARTS : HD_PLACED_NOWHERE;
            if (made)
                type.dtype = lines->type[hd_op_lse(op)].dtype;
            moves = hd_moves_sum(
                moves, hd_placement_move(module, &type, made ? all : at[i],
                                         made ? at[i] : all, ~0u));
        }
    moves.beside += moves.ahead;
    moves.ahead = 0;
    return moves;
}

hd_type hd_lines_unmerged(const hd_module *module, const hd_lines *lines, int i,
                          int axis, hd_placement at)
{
    hd_type type;

    at.dim[axis] = HD_PLACED_NOWHERE;
    type = hd_placement_type(module, &lines->type[i], at);
    type.dtype = lines->type[hd_op_lse(lines->op)].dtype;
    return hd_type_led(module, &type, NONE, axis, type.ndims + 1);
}

// All results begin to move at once. What is merged is read, and half of it
// written and read again, and so on.
hd_moves hd_lines_merge(const hd_module *module, const hd_lines *lines,
                        int axis, const hd_placement *at)
{
    hd_moves moves = {0};

    for (int i = 0; i < lines->op->noutputs; i++) {
        hd_type type = hd_lines_unmerged(module, lines, i, axis, at[i]);
        hd_placement from = hd_placement_of(&type), to = from;
        hd_moves move;

        to.dim[axis] = (int8_t)(at[i].dim[axis] >= 0 ? at[i].dim[axis] + 1
                                                     : HD_PLACED_NOWHERE);
        move = hd_placement_move(module, &type, from, to, 0);
        move.work +=
            3 * hd_placement_bytes(module, &type, to) / HD_COST_TOUCHED;
        if (i > 0) {
            move.ahead -= HD_COST_MOVE;
            move.alone -= HD_COST_ALONE;
        }
        moves = hd_moves_sum(moves, move);
    }
    return moves;
}

bool hd_lines_have_flops(const hd_op *op)
{
    return hd_op_family(op) == HD_FAMILY_PRODUCT || hd_op_meets_keys(op);
}

int64_t hd_lines_flops(const hd_module *module, const hd_lines *lines,
                       hd_cut cut)
{
    hd_family family = hd_op_family(lines->op);

    if (family == HD_FAMILY_PRODUCT)
        return 2 * count_products(module, lines, cut);
    return hd_op_meets_keys(lines->op) ? 2 * count_attended(module, lines, cut)
                                       : 0;
}

int64_t hd_lines_work(const hd_module *module, const hd_lines *lines,
                      hd_cut cut)
{
    hd_family family = hd_op_family(lines->op);
    int64_t work = hd_lines_flops(module, lines, cut) / HD_COST_FLOPS;

    if (family == HD_FAMILY_PRODUCT)
        return work + count_ends(module, lines, cut) / HD_COST_TOUCHED;
    if (hd_op_meets_keys(lines->op)) {
        int64_t touched = count_bytes(module, lines, cut) / HD_COST_TOUCHED;

        return work > touched ? work : touched;
    }
    return lines->op->code == HD_OP_RESHAPE || lines->op->code == HD_OP_SET
               ? 0
               : count_bytes(module, lines, cut) / HD_COST_TOUCHED;
}
