// Each count is looked at by one thread. One that finds a count that does not
// fit looks at those before it, and tells of its own if all of them do: so one
// thread alone writes, and the count that is told is the first one.
#include "codegen/counts.h"

// In which order the step reads the counts, as an offset: a function of a
// count's number.
static void add_place(const hd_nest_counts *counts, const char *name,
                      const int64_t *stride, hd_text *text)
{
    hd_text_printf(text, "static inline i64 %s(i64 c", name);
    for (int d = 0; d < counts->span.ndims; d++)
        hd_text_printf(text, ", i64 c%d", d);
    hd_text_puts(text, ")\n{\n    i64 at = 0;\n");
    for (int d = counts->span.ndims - 1; d >= 0; d--)
        hd_text_printf(text,
                       "    at += c %% c%d * %lld;\n"
                       "    c /= c%d;\n",
                       d, (long long)stride[d], d);
    hd_text_puts(text, "    return at;\n}\n");
}

// What follows the number in a list of parameters, or of arguments.
static void add_lengths(const hd_nest_counts *counts, const char *before,
                        hd_text *text)
{
    for (int d = 0; d < counts->span.ndims; d++)
        hd_text_printf(text, ", %sc%d", before, d);
}

static void add_tell(const hd_nest_counts *counts, hd_text *text)
{
    hd_text_puts(text, "static inline void tell(const int *counts, i64 *told, "
                       "i64 step, i64 c");
    add_lengths(counts, "i64 ", text);
    hd_text_puts(text, ")\n{\n    const i64 count = counts[count_at(c");
    add_lengths(counts, "", text);
    hd_text_puts(text, ")];\n"
                       "    if (indices_of(count) == count || told[0] != 0)\n"
                       "        return;\n"
                       "    for (i64 k = 0; k < c; k++) {\n"
                       "        const i64 other = counts[count_at(k");
    add_lengths(counts, "", text);
    hd_text_puts(text, ")];\n"
                       "        if (indices_of(other) != other)\n"
                       "            return;\n"
                       "    }\n"
                       "    told[1] = number_of(c");
    add_lengths(counts, "", text);
    hd_text_printf(text,
                   ");\n"
                   "    told[2] = count;\n"
                   "    told[3] = %lld;\n"
                   "    told[0] = step + 1;\n"
                   "}\n",
                   (long long)counts->room);
}

void hd_counts_functions(const hd_nest *nest, hd_text *text)
{
    const hd_nest_counts *counts = &nest->counts;
    int64_t number[HD_MAX_DIMS], next = 1;

    if (counts->operand == 0)
        return;
    for (int d = counts->span.ndims - 1; d >= 0; d--) {
        number[d] = next;
        next *= counts->length[d].room;
    }
    hd_text_printf(text,
                   "static inline i64 indices_of(i64 count)\n"
                   "{\n"
                   "    return count < 0 ? 0 : count > %lld ? %lld : count;\n"
                   "}\n",
                   (long long)counts->room, (long long)counts->room);
    add_place(counts, "count_at", counts->span.stride, text);
    add_place(counts, "number_of", number, text);
    add_tell(counts, text);
}

void hd_counts_sizes(const hd_nest *nest, int from, hd_text *text)
{
    const hd_nest_counts *counts = &nest->counts;

    for (int d = 0; d < counts->span.ndims; d++)
        if (counts->length[d].sized)
            hd_text_printf(text, "    const i64 c%d = (i64)args.size[%d];\n", d,
                           from++);
        else
            hd_text_printf(text, "    const i64 c%d = %lld;\n", d,
                           (long long)counts->length[d].room);
}

void hd_counts_check(const hd_nest *nest, hd_text *text)
{
    const hd_nest_counts *counts = &nest->counts;
    int operand = counts->operand, at = nest->operand[operand].at;

    if (operand == 0)
        return;
    hd_text_puts(text, "    for (i64 c = (i64)first; c < 1");
    for (int d = 0; d < counts->span.ndims; d++)
        hd_text_printf(text, " * c%d", d);
    hd_text_printf(text,
                   "; c += (i64)step)\n"
                   "        tell(p%d, (i64 *)args.at[%d], (i64)args.at[%d], c",
                   operand, at + 1, at + 2);
    add_lengths(counts, "", text);
    hd_text_puts(text, ");\n");
}
