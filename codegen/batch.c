#include "codegen/batch.h"

#include <assert.h>
#include <stdio.h>

#include "codegen/counts.h"
#include "codegen/prelude.h"
#include "ir/causal.h"
#include "ir/counts.h"
#include "ir/signature.h"

enum { BLOCKS_AT_ONCE = 4 };

int hd_batch_dims(const hd_batch *k)
{
    return hd_op_batch(k->step->op, 0, k->step->span[0].ndims);
}

void hd_batch_number(hd_batch *k, const char *name, int64_t now, bool sized)
{
    if (sized) {
        hd_text_printf(&k->text, "#define %s ((i64)args.size[%d])\n", name,
                       k->sizes);
        k->size[k->sizes++] = now;
    } else {
        hd_text_printf(&k->text, "#define %s (%lldll)\n", name, (long long)now);
    }
}

int64_t hd_batch_length(hd_batch *k, const char *name, int view, int d)
{
    hd_length length = hd_length_of(k->step, view, d);

    hd_batch_number(k, name, length.now, length.sized);
    return length.now;
}

// B0, B1, .. of the batch, and BATCH, all of it; returns how long it is now.
static int64_t add_batch(hd_batch *k)
{
    int64_t n = 1;

    for (int d = 0; d < hd_batch_dims(k); d++) {
        char name[16];

        snprintf(name, sizeof name, "B%d", d);
        n *= hd_batch_length(k, name, 0, d);
    }
    hd_text_puts(&k->text, "#define BATCH ((i64)1");
    for (int d = 0; d < hd_batch_dims(k); d++)
        hd_text_printf(&k->text, " * B%d", d);
    hd_text_puts(&k->text, ")\n");
    return n;
}

// Of sequences; -1 if there are none.
static int sequences_of(const hd_batch *k)
{
    return hd_op_has_sequences(k->step->op)
               ? hd_op_key_view(k->step->op, HD_KEY_GROUPS)
               : -1;
}

static bool is_counts(const hd_batch *k, int view)
{
    return view == sequences_of(k) ||
           view == hd_op_key_view(k->step->op, HD_KEY_COUNTS) ||
           view == hd_op_key_view(k->step->op, HD_KEY_COUNTS_OF_KEYS);
}

// The dimension of a view that lies along dimension `d` of the batch, negative
// if none does.
static int own_dim(const hd_batch *k, int view, int d)
{
    const hd_span *span = &k->step->span[view];
    hd_length length[HD_SPACE_DIMS];
    hd_space space;

    if (!is_counts(k, view))
        return d - hd_batch_dims(k) +
               hd_op_batch(k->step->op, view, span->ndims);
    hd_length_space(k->step, &space, length);
    return space.dim[view][d];
}

// How far apart indices of dimension `d` of the batch are in a view, 0 where it
// repeats.
static int64_t stride_of(const hd_batch *k, int view, int d)
{
    const hd_span *span = &k->step->span[view];
    int own = own_dim(k, view, d);
    hd_length length;

    if (own < 0)
        return 0;
    length = hd_length_of(k->step, view, own);
    return length.now == 1 && !length.sized ? 0 : span->stride[own];
}

int64_t hd_batch_begin(hd_batch *k)
{
    const hd_step *step = k->step;
    int n = step->op->nviews;
    int64_t now = add_batch(k);

    hd_text_puts(&k->text, "#define VIEWS");
    for (int i = 0; i < n; i++) {
        const char *constant = i < step->op->noutputs ? "" : "const ";
        const char *code = hd_code_text(step->span[i].buffer->type.dtype);

        hd_text_printf(&k->text, " %s%s *v%d = (%s%s *)args.at[%d];", constant,
                       code, i, constant, code, i);
    }
    for (int d = hd_batch_dims(k) - 1; d >= 0; d--) {
        for (int i = 0; i < n; i++)
            if (stride_of(k, i, d) != 0)
                hd_text_printf(&k->text, " v%d += b %% B%d * %lld;", i, d,
                               (long long)stride_of(k, i, d));
        hd_text_printf(&k->text, " b /= B%d;", d);
    }
    hd_text_puts(&k->text, " (void)b;\n");
    return now;
}

// ------------------------------------------------------------------- counts

// Those of rows, then those of keys: how the text calls them.
static const struct {
    hd_key_code code;
    const char *name, *all;
    char letter;
} lines[] = {{HD_KEY_COUNTS, "rows", "S", 'R'},
             {HD_KEY_COUNTS_OF_KEYS, "keys", "N", 'K'}};

enum { LINES = sizeof lines / sizeof *lines };

static int counts_of(const hd_batch *k, int i)
{
    return hd_op_key_view(k->step->op, lines[i].code);
}

static int counts_dims(const hd_batch *k, int i)
{
    int view = counts_of(k, i);

    return view >= 0 ? k->step->span[view].ndims : 0;
}

// ", i64 R0, i64 R1, i64 K0": how long the counts' dimensions are.
static void add_lengths(hd_batch *k, const char *before)
{
    for (int i = 0; i < LINES; i++)
        for (int d = 0; d < counts_dims(k, i); d++)
            hd_text_printf(&k->text, ", %s%c%d", before, lines[i].letter, d);
}

// "1 * R0 * R1", how many counts there are.
static void add_number(hd_batch *k, int i)
{
    hd_text_puts(&k->text, counts_of(k, i) >= 0 ? "1" : "0");
    for (int d = 0; d < counts_dims(k, i); d++)
        hd_text_printf(&k->text, " * %c%d", lines[i].letter, d);
}

// Of the counts of rows, or of keys, that number `c` is.
static void add_load(hd_batch *k, int i)
{
    int view = counts_of(k, i);
    hd_row_counts counts = hd_row_counts_of(k->step, lines[i].code);

    if (view < 0)
        return;
    hd_text_puts(&k->text, "    if (c < ");
    add_number(k, i);
    hd_text_puts(&k->text, ") {\n");
    for (int d = counts_dims(k, i) - 1; d >= 0; d--)
        hd_text_printf(&k->text,
                       "        at += c %% %c%d * %lld;\n"
                       "        c /= %c%d;\n",
                       lines[i].letter, d,
                       (long long)k->step->span[view].stride[d],
                       lines[i].letter, d);
    hd_text_printf(&k->text,
                   "        *room = %lld;\n"
                   "        return %s[at];\n"
                   "    }\n"
                   "    c -= ",
                   (long long)counts.room, lines[i].name);
    add_number(k, i);
    hd_text_puts(&k->text, ";\n");
}

static const char count_text[] =
    "static inline i64 taken(i64 count, i64 room)\n"
    "{\n"
    "    return count < 0 ? 0 : count > room ? room : count;\n"
    "}\n";

// One that finds a count that does not fit looks at those before it, and tells
// of its own if all of them do: so one thread alone writes.
static void add_counts_functions(hd_batch *k)
{
    hd_text_puts(&k->text,
                 "static inline i64 load_count(const int *rows, const "
                 "int *keys, i64 c, i64 *room");
    add_lengths(k, "i64 ");
    hd_text_puts(&k->text, ")\n{\n    i64 at = 0;\n");
    for (int i = 0; i < LINES; i++)
        add_load(k, i);
    hd_text_puts(&k->text, "    return *room = 0;\n"
                           "}\n"
                           "static inline void tell(const int *rows, const int "
                           "*keys, i64 *told, i64 step, i64 c");
    add_lengths(k, "i64 ");
    hd_text_puts(&k->text, ")\n{\n"
                           "    i64 room, other;\n"
                           "    const i64 count = load_count(rows, keys, c, "
                           "&room");
    add_lengths(k, "");
    hd_text_puts(&k->text, ");\n"
                           "    if (taken(count, room) == count || told[0] != "
                           "0)\n"
                           "        return;\n"
                           "    for (i64 k = 0; k < c; k++) {\n"
                           "        const i64 before = load_count(rows, keys, "
                           "k, &other");
    add_lengths(k, "");
    hd_text_puts(&k->text, ");\n"
                           "        if (taken(before, other) != before)\n"
                           "            return;\n"
                           "    }\n"
                           "    told[1] = c;\n"
                           "    told[2] = count;\n"
                           "    told[3] = room;\n"
                           "    told[0] = step + 1;\n"
                           "}\n");
}

static void add_counts_check(hd_batch *k)
{
    int told = k->step->op->nviews;

    for (int i = 0; i < LINES; i++)
        for (int d = 0; d < counts_dims(k, i); d++) {
            char name[16];

            snprintf(name, sizeof name, "%c%d", lines[i].letter, d);
            hd_batch_length(k, name, counts_of(k, i), d);
        }
    hd_text_puts(&k->text, "#define CHECK_COUNTS for (i64 c = first; c < ");
    for (int i = 0; i < LINES; i++) {
        hd_text_puts(&k->text, i > 0 ? " + " : "");
        add_number(k, i);
    }
    hd_text_puts(&k->text, "; c += step) tell(");
    for (int i = 0; i < LINES; i++)
        if (counts_of(k, i) >= 0)
            hd_text_printf(&k->text, "(const int *)args.at[%d], ",
                           counts_of(k, i));
        else
            hd_text_puts(&k->text, "(const int *)0, ");
    hd_text_printf(&k->text, "(i64 *)args.at[%d], (i64)args.at[%d], c", told,
                   told + 1);
    add_lengths(k, "");
    hd_text_puts(&k->text, ");\n");
}

static void add_counts(hd_batch *k)
{
    hd_text_puts(&k->text, "#define COUNTS");
    for (int i = 0; i < LINES; i++)
        if (counts_of(k, i) >= 0)
            hd_text_printf(&k->text, " const i64 %s = taken(*v%d, %s);",
                           lines[i].name, counts_of(k, i), lines[i].all);
        else
            hd_text_printf(&k->text, " const i64 %s = %s;", lines[i].name,
                           lines[i].all);
    hd_text_puts(&k->text, "\n");
}

// ---------------------------------------------------------------- sequences

// ", i64 Q0, i64 Q1": how long the counts' dimensions are, of which the last is
// of the sequences.
static void add_sequence_lengths(hd_batch *k, const char *before)
{
    for (int d = 0; d < k->step->span[sequences_of(k)].ndims; d++)
        hd_text_printf(&k->text, ", %sQ%d", before, d);
}

// At which of the counts those begin that number `c` is of.
static void add_first(hd_batch *k, int last)
{
    const hd_span *counts = &k->step->span[sequences_of(k)];

    hd_text_puts(&k->text, "    i64 at = 0, end = 0;\n");
    for (int d = last - 1; d >= 0; d--)
        hd_text_printf(&k->text,
                       "    at += c %% Q%d * %lld;\n"
                       "    c /= Q%d;\n",
                       d, (long long)counts->stride[d], d);
}

// The first count of an element of the batch that does not fit, -1 if all do.
static void add_misfit(hd_batch *k, int last)
{
    hd_text_puts(&k->text, "static inline i64 find_misfit(const int *counts, "
                           "i64 c, i64 rows, i64 *count, i64 *left");
    add_sequence_lengths(k, "i64 ");
    hd_text_puts(&k->text, ")\n{\n");
    add_first(k, last);
    hd_text_printf(&k->text,
                   "    for (i64 i = 0; i < Q%d; i++) {\n"
                   "        *count = counts[at + i * TO_COUNT];\n"
                   "        *left = rows - end;\n"
                   "        if (taken(*count, *left) != *count)\n"
                   "            return i;\n"
                   "        end += *count;\n"
                   "    }\n"
                   "    return -1;\n"
                   "}\n",
                   last);
}

static const char sequence_text[] =
    "static inline void find_sequence(const int *counts, i64 n, i64 rows,\n"
    "    i64 row, i64 *from, i64 *past)\n"
    "{\n"
    "    i64 end = 0;\n"
    "    for (i64 i = 0; i < n && row >= end; i++) {\n"
    "        *from = end;\n"
    "        end += taken(counts[i * TO_COUNT], rows - end);\n"
    "    }\n"
    "    *past = row < end ? end : *from;\n"
    "}\n"
    "static inline i64 within(i64 number, i64 first, i64 n)\n"
    "{\n"
    "    return taken(number - first, n);\n"
    "}\n";

// Which of the rows of all sequences the step's rows and keys are: ROW0, KEY0
// and ROOM. A kernel is that of all steps that differ in these alone.
static void add_places(hd_batch *k)
{
    hd_among among = hd_step_among(k->step);

    if (!hd_causal_is_said_among(k->step->op)) {
        hd_text_puts(&k->text, "#define ROW0 0\n#define KEY0 0\n"
                               "#define ROOM S\n");
        return;
    }
    hd_batch_number(k, "ROW0", among.row, true);
    hd_batch_number(k, "KEY0", among.key, true);
    hd_batch_number(k, "ROOM", among.room, true);
}

// Who finds a count that does not fit tells of it if all elements of the batch
// before have counts that do: so one thread alone writes.
static void add_tell(hd_batch *k, int last)
{
    hd_text_puts(&k->text, "static inline void tell_sequence(const int "
                           "*counts, i64 *told, i64 step, i64 c, i64 "
                           "rows");
    add_sequence_lengths(k, "i64 ");
    hd_text_puts(&k->text,
                 ")\n{\n"
                 "    i64 count, left, other, unused;\n"
                 "    const i64 i = find_misfit(counts, c, rows, &count, "
                 "&left");
    add_sequence_lengths(k, "");
    hd_text_puts(&k->text, ");\n"
                           "    if (i < 0 || told[0] != 0)\n"
                           "        return;\n"
                           "    for (i64 k = 0; k < c; k++)\n"
                           "        if (find_misfit(counts, k, rows, &other, "
                           "&unused");
    add_sequence_lengths(k, "");
    hd_text_printf(&k->text,
                   ") >= 0)\n"
                   "            return;\n"
                   "    told[1] = c * Q%d + i;\n"
                   "    told[2] = count;\n"
                   "    told[3] = left;\n"
                   "    told[0] = step + 1;\n"
                   "}\n",
                   last);
}

// From a row, or a key, to the keys or rows that are of its sequence.
static void add_find(hd_batch *k, const char *name, const char *number,
                     const char *others)
{
    int view = sequences_of(k);

    hd_text_printf(&k->text,
                   "#define %s find_sequence(v%d, Q%d, ROOM, %s, &from, "
                   "&past); from = within(from, %s); past = within(past, "
                   "%s);\n",
                   name, view, k->step->span[view].ndims - 1, number, others,
                   others);
}

static void add_sequences_functions(hd_batch *k)
{
    hd_sequences sequences = hd_sequences_of(k->step);
    int last = sequences.counts->ndims - 1;

    add_places(k);
    hd_text_printf(&k->text, "static constexpr i64 TO_COUNT = %lld;\n",
                   (long long)sequences.counts->stride[last]);
    add_find(k, "FIND_KEYS(row)", "ROW0 + row", "KEY0, keys");
    add_find(k, "FIND_ROWS(key)", "KEY0 + key", "ROW0, rows");
    hd_text_puts(&k->text, sequence_text);
    add_misfit(k, last);
    add_tell(k, last);
}

static void add_sequences_check(hd_batch *k)
{
    int view = sequences_of(k), told = k->step->op->nviews;

    for (int d = 0; d < k->step->span[view].ndims; d++) {
        char name[16];

        snprintf(name, sizeof name, "Q%d", d);
        hd_batch_length(k, name, view, d);
    }
    hd_text_puts(&k->text,
                 "#define CHECK_COUNTS for (i64 c = first; c < (i64)1");
    for (int d = 0; d < k->step->span[view].ndims - 1; d++)
        hd_text_printf(&k->text, " * Q%d", d);
    hd_text_printf(&k->text,
                   "; c += step) tell_sequence((const int *)args.at[%d], (i64 "
                   "*)args.at[%d], (i64)args.at[%d], c, ROOM",
                   view, told, told + 1);
    add_sequence_lengths(k, "");
    hd_text_puts(&k->text, ");\n");
}

// An attention has counts of the one kind or of the other.
void hd_batch_counts(hd_batch *k)
{
    bool counted = hd_op_has_counts(k->step->op);
    bool grouped = sequences_of(k) >= 0;

    assert(!counted || !grouped);
    hd_text_printf(&k->text, "#define COUNTED %d\n#define GROUPED %d\n",
                   counted, grouped);
    hd_text_puts(&k->text, counted || grouped ? count_text : "");
    if (counted) {
        add_counts_functions(k);
        add_counts_check(k);
    } else if (grouped) {
        add_sequences_functions(k);
        add_sequences_check(k);
    } else {
        hd_text_puts(&k->text, "#define CHECK_COUNTS\n");
    }
    hd_text_puts(&k->text, grouped ? ""
                                   : "#define FIND_KEYS(row)\n"
                                     "#define FIND_ROWS(key)\n");
    add_counts(k);
}

// -------------------------------------------------------------------- text

hd_status hd_batch_end(hd_batch *k, const unsigned char *cu, int64_t threads,
                       hd_text *out, hd_kernel_grid *grid)
{
    int pointers = k->step->op->nviews +
                   (hd_kernel_tells(k->step) ? HD_COUNTS_POINTERS : 0);

    hd_prelude_add(&k->text, cu);
    HD_TRY(hd_prelude_finish(out, &k->text, pointers, k->sizes));
    *grid = hd_prelude_grid(threads, BLOCKS_AT_ONCE);
    grid->pointers = pointers;
    grid->sizes = k->sizes;
    for (int i = 0; i < k->sizes; i++)
        grid->size[i] = k->size[i];
    return HD_OK;
}
