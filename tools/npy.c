// numpy's .npy files: a magic word, a version, the length of the header, the
// header (a Python dictionary), the elements.
//
//     \x93NUMPY 1 0 <u16>  {'descr': '<f4', 'fortran_order': False,
//                           'shape': (8, 128), }\n
#include <heddle/verify.h>

#include "npy.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct cursor {
    const char *name; // of the file
    const char *at;
    const char *end;
} cursor;

static const struct {
    const char *descr; // without the mark of byte order
    hd_dtype dtype;
    bool opaque;
} kinds[] = {
    {"f8", HD_DTYPE_F64, false},   {"f4", HD_DTYPE_F32, false},
    {"f2", HD_DTYPE_F16, false},   {"i8", HD_DTYPE_I64, false},
    {"i4", HD_DTYPE_I32, false},   {"u1", HD_DTYPE_U8, false},
    {"i1", HD_DTYPE_I8, false},    {"V2", HD_DTYPE_BF16, true},
    {"V1", HD_DTYPE_F8E4M3, true}, {"f1", HD_DTYPE_F8E5M2, true},
};
enum { NKINDS = sizeof kinds / sizeof *kinds };

static outcome bad_header(const cursor *c, const char *what)
{
    char shown[SHOWN];
    size_t rest = (size_t)(c->end - c->at);

    return complain(WRONG, "%s: bad npy header: %s at '%s'", c->name, what,
                    show(c->at, rest < 24 ? rest : 24, shown));
}

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n'))
        c->at++;
}

static bool take(cursor *c, const char *word)
{
    size_t length = strlen(word);

    skip_space(c);
    if ((size_t)(c->end - c->at) < length || memcmp(c->at, word, length) != 0)
        return false;
    c->at += length;
    return true;
}

// A quoted string without escapes, cut to `room`.
static outcome take_string(cursor *c, char *out, size_t room)
{
    const char *start, *stop;
    size_t length;

    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
        return bad_header(c, "expected a string");
    start = c->at + 1;
    stop = memchr(start, *c->at, (size_t)(c->end - start));
    if (!stop)
        return bad_header(c, "a string that does not end");
    length = (size_t)(stop - start);
    if (memchr(start, 0, length))
        return bad_header(c, "a string that holds a NUL");
    if (length >= room)
        length = room - 1;
    memcpy(out, start, length);
    out[length] = 0;
    c->at = stop + 1;
    return FINE;
}

static outcome take_descr(cursor *c, array *out)
{
    char descr[SHOWN] = "", shown[SHOWN];
    const char *kind;

    skip_space(c);
    if (c->at < c->end && *c->at == '[')
        return complain(WRONG, "%s: structured elements are not supported",
                        c->name);
    TRY(take_string(c, descr, sizeof descr));
    if (descr[0] == '>')
        return complain(WRONG,
                        "%s: elements '%s' are big-endian, which is not "
                        "supported",
                        c->name, show(descr, strlen(descr), shown));
    kind = descr + (descr[0] && strchr("<|=", descr[0]) != NULL);
    for (int i = 0; i < NKINDS; i++)
        if (strcmp(kind, kinds[i].descr) == 0) {
            out->dtype = kinds[i].dtype;
            out->opaque = kinds[i].opaque;
            out->size = hd_dtype_size(out->dtype);
            return FINE;
        }
    return complain(WRONG, "%s: elements of type '%s' are not supported",
                    c->name, show(descr, strlen(descr), shown));
}

static outcome take_extent(cursor *c, int64_t *out)
{
    int64_t value = 0;

    skip_space(c);
    if (c->at < c->end && *c->at == '-')
        return bad_header(c, "a negative extent");
    if (c->at == c->end || *c->at < '0' || *c->at > '9')
        return bad_header(c, "expected an extent");
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *c->at - '0', &value))
            return bad_header(c, "an extent that does not fit in 64 bits");
    take(c, "L"); // as Python 2 wrote it
    *out = value;
    return FINE;
}

static outcome take_shape(cursor *c, array *out)
{
    out->ndims = 0;
    if (!take(c, "("))
        return bad_header(c, "expected a shape");
    while (!take(c, ")")) {
        if (out->ndims == HD_MAX_DIMS)
            return complain(WRONG, "%s: more than %d dimensions", c->name,
                            HD_MAX_DIMS);
        TRY(take_extent(c, &out->extent[out->ndims++]));
        if (!take(c, ",")) {
            if (!take(c, ")"))
                return bad_header(c, "expected ',' or ')'");
            break;
        }
    }
    return FINE;
}

enum { DESCR = 1, ORDER = 2, SHAPE = 4 };

static outcome take_entry(cursor *c, array *out, int *seen)
{
    char key[SHOWN];
    int entry;

    TRY(take_string(c, key, sizeof key));
    entry = strcmp(key, "descr") == 0           ? DESCR
            : strcmp(key, "fortran_order") == 0 ? ORDER
            : strcmp(key, "shape") == 0         ? SHAPE
                                                : 0;
    if (!entry || *seen & entry)
        return bad_header(c, entry ? "a key twice" : "an unknown key");
    *seen |= entry;
    if (!take(c, ":"))
        return bad_header(c, "expected ':'");
    if (entry == DESCR)
        return take_descr(c, out);
    if (entry == SHAPE)
        return take_shape(c, out);
    out->fortran = take(c, "True");
    if (!out->fortran && !take(c, "False"))
        return bad_header(c, "expected True or False");
    return FINE;
}

static outcome take_header(cursor *c, array *out)
{
    int seen = 0;

    if (!take(c, "{"))
        return bad_header(c, "expected '{'");
    while (!take(c, "}")) {
        TRY(take_entry(c, out, &seen));
        if (!take(c, ",")) {
            if (!take(c, "}"))
                return bad_header(c, "expected ',' or '}'");
            break;
        }
    }
    skip_space(c);
    if (c->at != c->end)
        return bad_header(c, "junk after the dictionary");
    if (seen != (DESCR | ORDER | SHAPE))
        return complain(WRONG,
                        "%s: bad npy header: descr, fortran_order or "
                        "shape is missing",
                        c->name);
    return FINE;
}

static outcome find_header(const array *array, cursor *c)
{
    const unsigned char *bytes = array->content.bytes;
    size_t have = array->content.length;
    size_t start, length;

    if (have < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0)
        return complain(WRONG, "%s is not an npy file", array->name);
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
        return complain(WRONG, "%s: npy version %d.%d is not supported",
                        array->name, bytes[6], bytes[7]);
    start = bytes[6] == 1 ? 10 : 12;
    if (have < start)
        return complain(WRONG, "%s is not an npy file", array->name);
    length = bytes[8] | (size_t)bytes[9] << 8;
    if (bytes[6] > 1)
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (length > have - start)
        return complain(WRONG,
                        "%s: the header claims %zu bytes, but %zu are left in "
                        "the file",
                        array->name, length, have - start);
    if (length > NPY_HEADER_LIMIT)
        return complain(WRONG, "%s: a header of %zu bytes, at most %zu",
                        array->name, length, NPY_HEADER_LIMIT);
    c->name = array->name;
    c->at = (const char *)bytes + start;
    c->end = c->at + length;
    return FINE;
}

outcome npy_parse(array *out)
{
    char shape[SHAPE_TEXT];
    cursor c = {0};
    size_t bytes, have;

    TRY(find_header(out, &c));
    out->data = (const unsigned char *)c.end;
    have = out->content.length - (size_t)(out->data - out->content.bytes);
    TRY(take_header(&c, out));
    show_shape(out->ndims, out->extent, shape);
    if (!array_bytes(out, &bytes))
        return complain(WRONG, "%s: shape %s is too large", out->name, shape);
    if (bytes != have)
        return complain(WRONG, "%s: shape %s takes %zu bytes, but %s%zu %s",
                        out->name, shape, bytes, have < bytes ? "only " : "",
                        have, "follow the header");
    return FINE;
}

static const char *descr_of(hd_dtype dtype)
{
    switch (dtype) {
    case HD_DTYPE_F64:
        return "<f8";
    case HD_DTYPE_F32:
        return "<f4";
    case HD_DTYPE_F16:
        return "<f2";
    case HD_DTYPE_BF16:
        return "<V2";
    case HD_DTYPE_I64:
        return "<i8";
    case HD_DTYPE_I32:
        return "<i4";
    case HD_DTYPE_U8:
        return "|u1";
    case HD_DTYPE_I8:
        return "|i1";
    default:
        return "|V1";
    }
}

static char *write_dictionary(const hd_argument *argument)
{
    char shape[SHAPE_TEXT] = "";
    size_t n = 0;

    for (int i = 0; i < argument->ndims; i++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%" PRId64,
                              i ? ", " : "", argument->extent[i]);
    return need_format(
        "{'descr': '%s', 'fortran_order': False, 'shape': (%s%s), }",
        descr_of(argument->dtype), shape, argument->ndims == 1 ? "," : "");
}

char *npy_header(const hd_argument *argument, size_t *length)
{
    char *dictionary = write_dictionary(argument);
    // It ends in spaces and a line break, so that the elements begin at a
    // multiple of 64.
    size_t whole = (10 + strlen(dictionary) + 1 + 63) / 64 * 64;
    int padded = (int)whole - 10;
    char *header = need_format("\x93NUMPY\1%c%c%c%-*s\n", 0, padded & 255,
                               padded >> 8, padded - 1, dictionary);

    free(dictionary);
    *length = whole;
    return header;
}
