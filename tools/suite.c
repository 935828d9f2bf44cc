// See suite.h. cJSON does not say where a value stands, so that is looked up in
// the text when it is wanted for a message.
#include <heddle/verify.h>

#include "suite.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"ag", "rs", "ar", "cp", "cz"};
enum { NKINDS = sizeof kinds / sizeof *kinds };

// A number of a shape.
typedef struct field {
    const char *name;
    size_t offset;
    bool optional;
} field;

enum { MOST_FIELDS = 6 };

#define FIELD(name, member)                  \
    {                                        \
        name, offsetof(shape, member), false \
    }
#define ATTENTION                                                    \
    {                                                                \
        FIELD("B", attention.batch), FIELD("H", attention.heads),    \
            FIELD("S", attention.rows), FIELD("D", attention.depth), \
        {                                                            \
            "Hkv", offsetof(shape, attention.kv_heads), true         \
        }                                                            \
    }
static const field fields[NKINDS][MOST_FIELDS] = {
    [SHAPE_AG] = {FIELD("M", m), FIELD("K", k), FIELD("n", n)},
    [SHAPE_RS] = {FIELD("M", m), FIELD("N", n), FIELD("k", k)},
    [SHAPE_AR] = {FIELD("M", m), FIELD("N", n), FIELD("k", k)},
    [SHAPE_CP] = ATTENTION,
    [SHAPE_CZ] = ATTENTION,
};
#undef ATTENTION
#undef FIELD

enum { SUITE_LIMIT = 4 << 20, MOST_SHAPES = 4096, LARGEST = 1 << 24 };

static const double MOST_ELEMENTS = 0x1p40; // of a tensor of an attention

const char *shape_kind_name(shape_kind kind)
{
    return kinds[kind];
}

bool shape_attends(const shape *shape)
{
    return shape->kind == SHAPE_CP || shape->kind == SHAPE_CZ;
}

// ------------------------------------------------------------------- places

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n,:");
}

static const char *skip_string(const char *at)
{
    for (at++; *at && *at != '"'; at++)
        at += *at == '\\' && at[1];
    return *at ? at + 1 : at;
}

// One value of text that is known to be JSON.
static const char *skip_value(const char *at)
{
    int depth = 0;

    do {
        at = skip_space(at);
        if (!*at)
            return at;
        if (*at == '"') {
            at = skip_string(at);
        } else if (strchr("[{]}", *at)) {
            depth += *at == '[' || *at == '{' ? 1 : -1;
            at++;
        } else {
            at += strcspn(at, " \t\r\n,:[]{}\"");
        }
    } while (depth > 0);
    return at;
}

// The value of `key` in the object at `at`; the object itself if it has none.
static const char *find_key(const char *object, const char *key)
{
    size_t length = strlen(key);
    const char *at = skip_space(skip_space(object) + 1);

    while (*at == '"') {
        const char *end = skip_string(at);

        if ((size_t)(end - at) == length + 2 &&
            memcmp(at + 1, key, length) == 0)
            return skip_space(end);
        at = skip_space(skip_value(end));
    }
    return object;
}

static const char *find_item(const char *array, int i)
{
    const char *at = skip_space(skip_space(array) + 1);

    while (i-- > 0)
        at = skip_space(skip_value(at));
    return at;
}

// What is being read.
typedef struct reader {
    const char *path;
    const char *text; // ends in NUL
    suite *suite;
    hd_dtype dtype;
} reader;

static int line_of(const reader *reader, const char *at)
{
    int line = 1;

    for (const char *c = reader->text; c < at && *c; c++)
        line += *c == '\n';
    return line;
}

static int line_of_key(const reader *reader, const char *key)
{
    return line_of(reader, find_key(skip_space(reader->text), key));
}

// "suite.json:7: ag[2].M": `kind` may be NULL, and so may `key`.
static char *name_place(const reader *reader, const char *kind, int i,
                        const char *key)
{
    const char *at = skip_space(reader->text);

    if (!kind)
        return need_format("%s:%d: %s", reader->path, line_of_key(reader, key),
                           key);
    at = find_item(find_key(at, kind), i);
    if (!key)
        return need_format("%s:%d: %s[%d]", reader->path, line_of(reader, at),
                           kind, i);
    at = find_key(at, key);
    return need_format("%s:%d: %s[%d].%s", reader->path, line_of(reader, at),
                       kind, i, key);
}

static outcome refuse(char *place, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Frees `place`.
static outcome refuse(char *place, const char *format, ...)
{
    va_list args;
    char *text;

    va_start(args, format);
    text = need_vformat(format, args);
    va_end(args);
    complain(WRONG, "%s%s", place, text);
    free(text);
    free(place);
    return WRONG;
}

// ------------------------------------------------------------------- values

static outcome take_extent(const reader *reader, int kind, int i,
                           const cJSON *value, int64_t *out)
{
    double number = value->valuedouble;
    char *place;

    if (cJSON_IsNumber(value) && number >= 1 && number <= LARGEST &&
        floor(number) == number) {
        *out = (int64_t)number;
        return FINE;
    }
    place = name_place(reader, kinds[kind], i, value->string);
    if (!cJSON_IsNumber(value))
        return refuse(place, " is not a number");
    return refuse(place, " is %.15g; it is a whole number from 1 to %d", number,
                  LARGEST);
}

static outcome take_id(const reader *reader, int kind, int i,
                       const cJSON *value, shape *out)
{
    const char *id = cJSON_GetStringValue(value);
    char shown[SHOWN];

    if (!id || !*id || strlen(id) >= sizeof out->id ||
        strpbrk(id, " ,\"\t\r\n"))
        return refuse(name_place(reader, kinds[kind], i, "id"),
                      " is not a name of up to %zu characters without spaces "
                      "and commas",
                      sizeof out->id - 1);
    for (size_t s = 0; s < reader->suite->n; s++)
        if (strcmp(reader->suite->shape[s].id, id) == 0)
            return refuse(name_place(reader, kinds[kind], i, "id"),
                          ": there are two shapes '%s'",
                          show(id, strlen(id), shown));
    snprintf(out->id, sizeof out->id, "%s", id);
    return FINE;
}

static outcome refuse_key(const reader *reader, const char *kind, int i,
                          const char *key, const char *const *names, size_t n)
{
    char shown[SHOWN], guess[MEANT];
    char *place =
        kind ? name_place(reader, kind, i, NULL)
             : need_format("%s:%d", reader->path, line_of_key(reader, key));

    return refuse(place, ": unknown key '%s'%s", show(key, strlen(key), shown),
                  meant(key, names, n, guess));
}

// "id", the numbers, "src": returns how many.
static size_t list_names(int kind, const char *out[MOST_FIELDS + 2])
{
    size_t n = 0;

    out[n++] = "id";
    for (const field *f = fields[kind]; f->name; f++)
        out[n++] = f->name;
    out[n++] = "src";
    return n;
}

static outcome take_value(const reader *reader, int kind, int i,
                          const cJSON *value, shape *out)
{
    const char *names[MOST_FIELDS + 2];
    size_t n = list_names(kind, names), k = 0;

    while (k < n && strcmp(value->string, names[k]) != 0)
        k++;
    if (k == n)
        return refuse_key(reader, kinds[kind], i, value->string, names, n);
    if (k == 0)
        return take_id(reader, kind, i, value, out);
    if (k == n - 1)
        return FINE;
    return take_extent(reader, kind, i, value,
                       (int64_t *)((char *)out + fields[kind][k - 1].offset));
}

static outcome find_missing(const reader *reader, int kind, int i,
                            const cJSON *object)
{
    const char *missing = NULL;

    for (const field *f = fields[kind]; f->name && !missing; f++)
        if (!f->optional && !cJSON_GetObjectItemCaseSensitive(object, f->name))
            missing = f->name;
    if (!cJSON_GetObjectItemCaseSensitive(object, "id"))
        missing = "id";
    if (!missing)
        return FINE;
    return refuse(name_place(reader, kinds[kind], i, NULL), ": %s is missing",
                  missing);
}

// Of an attention: as many heads of keys as of queries where it is not said.
static outcome complete_attention(const reader *reader, int i, shape *out)
{
    attended *attention = &out->attention;
    double elements = (double)attention->batch * (double)attention->heads *
                      (double)attention->rows * (double)attention->depth;

    attention->zigzag = out->kind == SHAPE_CZ;
    if (attention->kv_heads == 0)
        attention->kv_heads = attention->heads;
    if (attention->heads % attention->kv_heads != 0)
        return refuse(name_place(reader, kinds[out->kind], i, "Hkv"),
                      " is %" PRId64 ", which does not divide H, %" PRId64,
                      attention->kv_heads, attention->heads);
    if (elements > MOST_ELEMENTS)
        return refuse(name_place(reader, kinds[out->kind], i, NULL),
                      ": B, H, S and D make %.0f elements, more than %.0f",
                      elements, MOST_ELEMENTS);
    out->m = attention->batch * attention->heads * attention->rows;
    out->n = attention->depth;
    return FINE;
}

static outcome take_shape(const reader *reader, int kind, int i,
                          const cJSON *object)
{
    shape *out = &reader->suite->shape[reader->suite->n];
    const cJSON *value;

    if (!cJSON_IsObject(object))
        return refuse(name_place(reader, kinds[kind], i, NULL),
                      " is not an object");
    *out = (shape){.kind = (shape_kind)kind, .dtype = reader->dtype};
    cJSON_ArrayForEach(value, object)
        TRY(take_value(reader, kind, i, value, out));
    TRY(find_missing(reader, kind, i, object));
    if (shape_attends(out))
        TRY(complete_attention(reader, i, out));
    reader->suite->n++;
    return FINE;
}

static outcome take_shapes(const reader *reader, int kind, const cJSON *array)
{
    suite *suite = reader->suite;
    const cJSON *item;
    int n = cJSON_GetArraySize(array), i = 0;

    if (!cJSON_IsArray(array))
        return refuse(name_place(reader, NULL, 0, kinds[kind]),
                      " is not an array of shapes");
    if (n > MOST_SHAPES)
        return refuse(name_place(reader, NULL, 0, kinds[kind]),
                      " has %d shapes, more than %d", n, MOST_SHAPES);
    suite->shape =
        need_more(suite->shape, suite->n, (size_t)n, sizeof *suite->shape);
    cJSON_ArrayForEach(item, array) TRY(take_shape(reader, kind, i++, item));
    return FINE;
}

static outcome take_world(const reader *reader, const cJSON *value)
{
    double number = cJSON_IsNumber(value) ? value->valuedouble : 0;

    if (number < 1 || number > HD_MAX_RANKS || floor(number) != number)
        return refuse(name_place(reader, NULL, 0, "world"),
                      " is not a number of ranks from 1 to %d", HD_MAX_RANKS);
    reader->suite->world = (int)number;
    return FINE;
}

static outcome take_dtype(reader *reader, const cJSON *value)
{
    static const hd_dtype dtypes[] = {HD_DTYPE_BF16, HD_DTYPE_F16,
                                      HD_DTYPE_F32};
    const char *text = cJSON_GetStringValue(value);

    for (size_t i = 0; text && i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(text, hd_dtype_text(dtypes[i])) == 0) {
            reader->dtype = dtypes[i];
            return FINE;
        }
    return refuse(name_place(reader, NULL, 0, "dtype"),
                  " is not bf16, f16 or f32");
}

// The dtype is read before the shapes, wherever it stands.
static outcome take_suite(reader *reader, const cJSON *root)
{
    static const char *const names[] = {"ag", "rs",    "ar",    "cp",
                                        "cz", "world", "dtype", "note"};
    enum { NAMES = sizeof names / sizeof *names };
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(root, "dtype");
    const cJSON *value;

    if (!cJSON_IsObject(root))
        return complain(WRONG, "%s:1: not an object", reader->path);
    if (dtype)
        TRY(take_dtype(reader, dtype));
    cJSON_ArrayForEach(value, root)
    {
        int k = 0;

        while (k < NAMES && strcmp(value->string, names[k]) != 0)
            k++;
        if (k == NAMES)
            return refuse_key(reader, NULL, 0, value->string, names, NAMES);
        if (k < NKINDS)
            TRY(take_shapes(reader, k, value));
        else if (k == NKINDS)
            TRY(take_world(reader, value));
    }
    if (reader->suite->n == 0)
        return complain(WRONG, "%s: there are no shapes", reader->path);
    return FINE;
}

static outcome parse_suite(reader *reader)
{
    const char *end = reader->text;
    cJSON *root = cJSON_ParseWithOpts(reader->text, &end, true);
    outcome result;

    if (!root)
        return complain(WRONG, "%s:%d: not JSON", reader->path,
                        line_of(reader, end));
    result = take_suite(reader, root);
    cJSON_Delete(root);
    return result;
}

outcome suite_open(const char *path, suite *out)
{
    reader reader = {.path = path, .suite = out, .dtype = HD_DTYPE_BF16};
    content content;
    char *text;
    outcome result;

    *out = (suite){0};
    TRY(content_open(path, SUITE_LIMIT, &content));
    if (content.length > SUITE_LIMIT) {
        content_close(&content);
        return complain(WRONG, "%s is larger than %d bytes", path, SUITE_LIMIT);
    }
    text = need(content.length + 1, 1);
    memcpy(text, content.bytes, content.length);
    content_close(&content);
    reader.text = text;
    result = parse_suite(&reader);
    free(text);
    return result;
}

void suite_close(suite *suite)
{
    free(suite->shape);
    suite->shape = NULL;
}

// ------------------------------------------------------------------ picking

static bool is_meant(const char *id, const char *word, size_t length)
{
    return strncmp(id, word, length) == 0 &&
           (id[length] == 0 || id[length] == '-');
}

static outcome refuse_id(const suite *suite, const char *path, const char *word,
                         size_t length)
{
    const char **names = need(suite->n, sizeof *names);
    char *text = need_format("%.*s", (int)length, word);
    char guess[MEANT];

    for (size_t i = 0; i < suite->n; i++)
        names[i] = suite->shape[i].id;
    complain(USAGE, "--ids: %s has no shape '%s'%s", path, text,
             meant(text, names, suite->n, guess));
    free(text);
    free(names);
    return USAGE;
}

outcome suite_pick(suite *suite, const char *path, const char *ids)
{
    bool *keep = need(suite->n, sizeof *keep);
    size_t n = 0;
    outcome result = FINE;

    for (const char *at = ids; result == FINE;) {
        size_t length = strcspn(at, ",");
        bool found = false, more = false;

        for (size_t i = 0; i < suite->n && length > 0; i++)
            if (is_meant(suite->shape[i].id, at, length)) {
                found = true;
                more |= !keep[i];
                keep[i] = true;
            }
        if (!found)
            result = refuse_id(suite, path, at, length);
        else if (!more)
            result = complain(USAGE, "--ids: '%.*s' is listed twice",
                              (int)length, at);
        if (!at[length])
            break;
        at += length + 1;
    }
    for (size_t i = 0; i < suite->n; i++)
        if (keep[i])
            suite->shape[n++] = suite->shape[i];
    suite->n = n;
    free(keep);
    return result;
}
