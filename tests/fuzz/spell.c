#include "tests/fuzz/spell.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <heddle/verify.h>

// --------------------------------------------------------------- functions

// Where a view has element `i` of the first result, which a call over no
// dimensions has in each.
static char *element_at(const hd_call_site *site, const hd_call_view *view,
                        int64_t i)
{
    const hd_call_view *out = &site->result[0];
    int batch = out->ndims - site->over, own = view->ndims - site->over;
    int64_t at = 0;

    for (int d = batch - 1; d >= 0; d--) {
        int k = d - (batch - own);

        if (k >= 0 && view->extent[k] > 1)
            at += i % out->extent[d] * view->stride[k];
        i /= out->extent[d];
    }
    return (char *)view->address + at * (int64_t)hd_dtype_size(view->dtype);
}

static int64_t batch_of(const hd_call_site *site)
{
    int64_t n = 1;

    for (int d = 0; d < site->result[0].ndims - site->over; d++)
        n *= site->result[0].extent[d];
    return n;
}

static double number_at(const hd_call_view *view, const char *at)
{
    double x = 0;

    hd_dtype_load(view->dtype, at, 1, &x);
    return x;
}

// What is left of 256, from 0 on of u8.
static double wrapped(hd_dtype dtype, double x)
{
    if (dtype != HD_DTYPE_U8 && dtype != HD_DTYPE_I8)
        return x;
    x = fmod(x, 256);
    x = x < 0 ? x + 256 : x;
    return dtype == HD_DTYPE_I8 && x >= 128 ? x - 256 : x;
}

typedef double number_fn(const double *x, int n);

static hd_status do_elements(void *context, const hd_call_site *site)
{
    number_fn *const *fn = context;

    for (int64_t i = 0; i < batch_of(site); i++) {
        double x[16], y;

        for (int k = 0; k < site->noperands; k++)
            x[k] = number_at(&site->operand[k],
                             element_at(site, &site->operand[k], i));
        y = wrapped(site->result[0].dtype, (*fn)(x, site->noperands));
        hd_dtype_store(site->result[0].dtype, &y, 1,
                       element_at(site, &site->result[0], i));
    }
    return HD_OK;
}

static double do_neg(const double *x, int n)
{
    return n > 0 ? -x[0] : 0;
}

static double do_abs(const double *x, int n)
{
    return n > 0 && x[0] < 0 ? -x[0] : x[0];
}

static double do_relu(const double *x, int n)
{
    return n > 0 && x[0] > 0 ? x[0] : 0;
}

static double do_relu_grad(const double *x, int n)
{
    return n > 1 && x[0] > 0 ? x[1] : 0;
}

static double do_sum(const double *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

static double do_sub(const double *x, int n)
{
    return n > 1 ? x[0] - x[1] : 0;
}

static double do_mul(const double *x, int n)
{
    return n > 1 ? x[0] * x[1] : 0;
}

static double do_max(const double *x, int n)
{
    double most = x[0];

    for (int i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static double do_min(const double *x, int n)
{
    double least = x[0];

    for (int i = 1; i < n; i++)
        least = x[i] < least ? x[i] : least;
    return least;
}

static double do_lt(const double *x, int n)
{
    return n > 1 && x[0] < x[1];
}

static double do_ge(const double *x, int n)
{
    return n > 1 && x[0] >= x[1];
}

static double do_select(const double *x, int n)
{
    return n > 2 && x[0] > 0 ? x[1] : x[2];
}

// The k greatest of a row, of equal ones those that come first.
static hd_status do_top_k(void *context, const hd_call_site *site)
{
    const hd_call_view *best = &site->result[0], *where = &site->result[1];
    const hd_call_view *x = &site->operand[0];
    int last = x->ndims - 1;
    int64_t n = x->extent[last], k = best->extent[last];
    bool *taken = malloc((size_t)n);

    (void)context;
    for (int64_t b = 0; b < batch_of(site); b++) {
        memset(taken, 0, (size_t)n);
        for (int64_t i = 0; i < k; i++) {
            int64_t at = -1;
            double most = 0, index;

            for (int64_t j = 0; j < n; j++) {
                double value =
                    number_at(x, element_at(site, x, b) +
                                     j * x->stride[last] *
                                         (int64_t)hd_dtype_size(x->dtype));

                if (!taken[j] && (at < 0 || value > most)) {
                    at = j;
                    most = value;
                }
            }
            taken[at] = true;
            index = (double)at;
            hd_dtype_store(best->dtype, &most, 1,
                           element_at(site, best, b) +
                               i * best->stride[last] *
                                   (int64_t)hd_dtype_size(best->dtype));
            hd_dtype_store(where->dtype, &index, 1,
                           element_at(site, where, b) +
                               i * where->stride[last] *
                                   (int64_t)hd_dtype_size(where->dtype));
        }
    }
    free(taken);
    return HD_OK;
}

static number_fn *const neg = do_neg, *const magnitude = do_abs,
                        *const relu = do_relu, *const relu_grad = do_relu_grad,
                        *const sum = do_sum, *const sub = do_sub,
                        *const mul = do_mul, *const most = do_max,
                        *const least = do_min, *const lt = do_lt,
                        *const ge = do_ge, *const choose = do_select;

#define ELEMENTS(name, fn)                                             \
    {                                                                  \
        sizeof(hd_call), name, do_elements, (void *)(uintptr_t) & (fn) \
    }

// By the names of the operations that they are.
const hd_call spell_table[] = {
    ELEMENTS("neg", neg),       ELEMENTS("abs", magnitude),
    ELEMENTS("relu", relu),     ELEMENTS("relu_grad", relu_grad),
    ELEMENTS("sum", sum),       ELEMENTS("add", sum),
    ELEMENTS("sub", sub),       ELEMENTS("mul", mul),
    ELEMENTS("max", most),      ELEMENTS("min", least),
    ELEMENTS("lt", lt),         ELEMENTS("ge", ge),
    ELEMENTS("select", choose), {sizeof(hd_call), "top_k", do_top_k, NULL},
};
const size_t spell_count = sizeof spell_table / sizeof *spell_table;

// ------------------------------------------------------------------- spelling

// A statement of a line: "RESULTS = OP OPERANDS".
typedef struct line {
    const char *start, *op, *operands, *end;
} line;

static bool read_line(const char *start, line *out)
{
    const char *equals = strstr(start, " = ");

    out->start = start;
    out->end = start + strcspn(start, "\n");
    if (equals == NULL || equals >= out->end ||
        start[strspn(start, " ")] != '%')
        return false;
    out->op = equals + 3;
    out->operands = out->op + strcspn(out->op, " \n");
    return *out->operands == ' ' && out->operands[1] == '%';
}

static bool has_function(const line *l)
{
    for (size_t i = 0; i < spell_count; i++)
        if (strlen(spell_table[i].name) == (size_t)(l->operands - l->op) &&
            memcmp(spell_table[i].name, l->op, strlen(spell_table[i].name)) ==
                0)
            return true;
    return false;
}

// Whether a key follows the operands: a word that no index holds.
static bool has_key(const line *l)
{
    int depth = 0;

    for (const char *at = l->operands; at < l->end; at++) {
        depth += (*at == '[') - (*at == ']');
        if (depth == 0 && *at == ' ' && at[1] != '%')
            return true;
    }
    return false;
}

static bool has_too_many(const line *l)
{
    int n = 0;

    for (const char *at = l->operands; at < l->end; at++)
        n += *at == '%';
    return n > 12;
}

// Whether a result is also read, which a call may not do in place.
static bool is_in_place(const line *l)
{
    for (const char *at = l->start; at < l->op; at++) {
        size_t length;

        if (*at != '%')
            continue;
        length = 1 + strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");
        for (const char *k = l->operands; k + length <= l->end; k++)
            if (memcmp(at, k, length) == 0 &&
                !(k[length] >= '0' && k[length] <= '9'))
                return true;
    }
    return false;
}

static bool spell_line(const line *l, uint64_t *seed, FILE *to)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    if (!has_function(l) || has_key(l) || has_too_many(l) || is_in_place(l) ||
        *seed >> 62 == 0)
        return false;
    fprintf(to, "%.*scall \"%.*s\"%.*s%s", (int)(l->op - l->start), l->start,
            (int)(l->operands - l->op), l->op, (int)(l->end - l->operands),
            l->operands, strncmp(l->op, "top_k ", 6) == 0 ? " over 1" : "");
    return true;
}

char *spell_calls(const char *text, uint64_t seed)
{
    char *spelt = NULL;
    size_t length;
    bool any = false;
    FILE *to;

    if (strstr(text, " by %") != NULL) // calls take no counts
        return NULL;
    to = open_memstream(&spelt, &length);
    must(to != NULL, "there is memory", "");
    while (*text != '\0') {
        line l;

        if (read_line(text, &l) && spell_line(&l, &seed, to))
            any = true;
        else
            fprintf(to, "%.*s", (int)strcspn(text, "\n"), text);
        text += strcspn(text, "\n");
        while (*text == '\n')
            fputc(*text++, to);
    }
    fclose(to);
    if (any)
        return spelt;
    free(spelt);
    return NULL;
}
