// Reads the JSON header of a .safetensors file and trusts none of it.
#include "safetensors.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size; // bytes of one element
    int dtype;   // hd_dtype, or -1 if there is none
} kinds[] = {
    {"F64", 8, HD_DTYPE_F64},
    {"F32", 4, HD_DTYPE_F32},
    {"F16", 2, HD_DTYPE_F16},
    {"BF16", 2, HD_DTYPE_BF16},
    {"F8_E4M3", 1, HD_DTYPE_F8E4M3},
    {"F8_E5M2", 1, HD_DTYPE_F8E5M2},
    {"I64", 8, HD_DTYPE_I64},
    {"I32", 4, HD_DTYPE_I32},
    {"U8", 1, HD_DTYPE_U8},
    {"I16", 2, -1},
    {"I8", 1, HD_DTYPE_I8},
    {"U16", 2, -1},
    {"U32", 4, -1},
    {"U64", 8, -1},
    {"BOOL", 1, -1},
};
enum { NKINDS = sizeof kinds / sizeof *kinds };

typedef struct entry {
    const char *name; // in the JSON
    const char *kind;
    int row; // of kinds, or -1: a dtype that is younger than this reader
    int ndims;
    int64_t extent[HD_MAX_DIMS];
    int64_t begin, end;
} entry;

typedef struct header {
    const char *path;
    const char *text; // JSON, of `length` bytes
    size_t length;
    const unsigned char *data;
    size_t bytes; // of the tensors
    cJSON *json;  // owned
    entry *entry; // owned
    int nentries;
} header;

static outcome bad_tensor(const header *header, const char *name,
                          const char *what)
{
    char shown[SHOWN];

    return complain(WRONG, "%s: tensor '%s': %s", header->path,
                    show(name, strlen(name), shown), what);
}

// Integers in JSON are exact up to 2^53, which no honest file reaches.
static bool take_count(const cJSON *item, int64_t *out)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) ||
        item->valuedouble > 0x1p53 ||
        item->valuedouble != floor(item->valuedouble))
        return false;
    *out = (int64_t)item->valuedouble;
    return true;
}

static outcome take_kind(const header *header, const cJSON *item, entry *out)
{
    const cJSON *kind = cJSON_GetObjectItemCaseSensitive(item, "dtype");

    if (!cJSON_IsString(kind))
        return bad_tensor(header, out->name, "it has no dtype");
    out->kind = kind->valuestring;
    out->row = -1;
    for (int i = 0; i < NKINDS; i++)
        if (strcmp(out->kind, kinds[i].name) == 0)
            out->row = i;
    return FINE;
}

static outcome take_shape(const header *header, const cJSON *item, entry *out)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(item, "shape");
    const cJSON *extent;

    if (!cJSON_IsArray(shape))
        return bad_tensor(header, out->name, "it has no shape");
    cJSON_ArrayForEach(extent, shape)
    {
        if (out->ndims == HD_MAX_DIMS)
            return bad_tensor(header, out->name, "more than 8 dimensions");
        if (!take_count(extent, &out->extent[out->ndims++]))
            return bad_tensor(header, out->name,
                              "an extent that is not a number from 0 to 2^53");
    }
    return FINE;
}

static outcome take_offsets(const header *header, const cJSON *item, entry *out)
{
    const cJSON *pair = cJSON_GetObjectItemCaseSensitive(item, "data_offsets");

    if (!cJSON_IsArray(pair) || cJSON_GetArraySize(pair) != 2 ||
        !take_count(cJSON_GetArrayItem(pair, 0), &out->begin) ||
        !take_count(cJSON_GetArrayItem(pair, 1), &out->end) ||
        out->begin > out->end)
        return bad_tensor(header, out->name,
                          "its data_offsets are not two numbers in order");
    if ((size_t)out->end > header->bytes)
        return bad_tensor(header, out->name,
                          "its data_offsets go past the end of the file");
    return FINE;
}

static void describe(const entry *entry, array *out)
{
    out->size = kinds[entry->row].size;
    out->ndims = entry->ndims;
    memcpy(out->extent, entry->extent, sizeof out->extent);
}

static outcome take_tensor(const header *header, const cJSON *item, entry *out)
{
    array array = {0};
    size_t bytes;

    *out = (entry){.name = item->string};
    if (!cJSON_IsObject(item))
        return bad_tensor(header, out->name, "it is not a JSON object");
    TRY(take_kind(header, item, out));
    TRY(take_shape(header, item, out));
    TRY(take_offsets(header, item, out));
    if (out->row < 0)
        return FINE;
    describe(out, &array);
    if (!array_bytes(&array, &bytes) ||
        bytes != (size_t)(out->end - out->begin))
        return bad_tensor(header, out->name,
                          "its shape and dtype take other than the bytes "
                          "between its data_offsets");
    return FINE;
}

static outcome take_tensors(header *header)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, header->json)
    {
        if (strcmp(item->string, "__metadata__") == 0)
            continue;
        TRY(take_tensor(header, item, &header->entry[header->nentries]));
        header->nentries++;
    }
    return FINE;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static int by_place(const void *a, const void *b)
{
    const entry *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

// The format wants the tensors back to back, and each name once.
static outcome check_tensors(header *header)
{
    int64_t end = 0;
    entry *e = header->entry;
    int n = header->nentries;

    qsort(e, (size_t)n, sizeof *e, by_place);
    for (int i = 0; i < n; i++) {
        if (e[i].begin != end)
            return bad_tensor(header, e[i].name,
                              e[i].begin < end ? "it overlaps the one before it"
                                               : "there is a hole before it");
        end = e[i].end;
    }
    if ((size_t)end != header->bytes)
        return complain(WRONG,
                        "%s: its tensors take %" PRId64 " bytes, but %zu "
                        "follow the header",
                        header->path, end, header->bytes);
    qsort(e, (size_t)n, sizeof *e, by_name);
    for (int i = 1; i < n; i++)
        if (strcmp(e[i - 1].name, e[i].name) == 0)
            return bad_tensor(header, e[i].name, "the name stands twice");
    return FINE;
}

// A parsed item takes some 80 bytes, so that many short ones could fill the
// memory though the text is short.
static bool is_crowded(const char *json, size_t length)
{
    enum { MOST = 1 << 21 };
    size_t n = 0;

    for (size_t i = 0; i < length; i++)
        n += json[i] == ',' || json[i] == '[' || json[i] == '{';
    return n > MOST;
}

// A string that holds NUL would end there for us: "t" and "t\u0000x" would be
// one name. A backslash that is itself escaped begins nothing.
static bool holds_nul(const char *json, size_t length)
{
    for (size_t i = 0; i + 5 < length; i++) {
        if (json[i] != '\\')
            continue;
        if (memcmp(json + i, "\\u0000", 6) == 0)
            return true;
        i++;
    }
    return memchr(json, 0, length) != NULL;
}

static outcome parse_json(header *header)
{
    const char *end = header->text + header->length;
    const char *stop = NULL;
    char shown[SHOWN];
    size_t rest;

    if (is_crowded(header->text, header->length))
        return complain(WRONG, "%s: its header has too many items",
                        header->path);
    if (holds_nul(header->text, header->length))
        return complain(WRONG, "%s: its header holds a NUL", header->path);
    header->json =
        cJSON_ParseWithLengthOpts(header->text, header->length, &stop, false);
    if (!header->json) {
        rest = stop && stop < end ? (size_t)(end - stop) : 0;
        return complain(WRONG, "%s: its header is not JSON, at '%s'",
                        header->path, show(stop, rest < 24 ? rest : 24, shown));
    }
    while (stop < end && *stop == ' ') // the format pads it with spaces
        stop++;
    if (!cJSON_IsObject(header->json) || stop != end)
        return complain(WRONG, "%s: its header is not one JSON object",
                        header->path);
    return FINE;
}

static outcome find_header(const content *content, header *header)
{
    uint64_t claimed = 0;

    if (content->length < 8)
        return complain(WRONG, "%s is not a safetensors file", header->path);
    for (int i = 7; i >= 0; i--)
        claimed = claimed << 8 | content->bytes[i];
    if (claimed > content->length - 8)
        return complain(WRONG,
                        "%s: the header claims %" PRIu64
                        " bytes, but %zu are left in the file",
                        header->path, claimed, content->length - 8);
    if (claimed > SAFETENSORS_HEADER_LIMIT)
        return complain(WRONG, "%s: a header of %" PRIu64 " bytes, at most %zu",
                        header->path, claimed, SAFETENSORS_HEADER_LIMIT);
    header->text = (const char *)content->bytes + 8;
    header->length = (size_t)claimed;
    header->data = content->bytes + 8 + header->length;
    header->bytes = content->length - 8 - header->length;
    return FINE;
}

static outcome read_header(const content *content, header *header)
{
    int nitems;

    TRY(find_header(content, header));
    TRY(parse_json(header));
    nitems = cJSON_GetArraySize(header->json);
    header->entry = need((size_t)nitems, sizeof *header->entry);
    TRY(take_tensors(header));
    return check_tensors(header);
}

static outcome refuse_missing(const header *header, const char *tensor)
{
    char shown[SHOWN], other[SHOWN];
    const char *best = NULL;
    int least = 1 << 20;

    for (int i = 0; i < header->nentries; i++) {
        int distance = edit_distance(tensor, header->entry[i].name);

        if (distance < least) {
            least = distance;
            best = header->entry[i].name;
        }
    }
    show(tensor, strlen(tensor), shown);
    if (!best)
        return complain(WRONG, "%s holds no tensors, and so no '%s'",
                        header->path, shown);
    return complain(WRONG, "%s holds no tensor '%s'; the nearest of %d is '%s'",
                    header->path, shown, header->nentries,
                    show(best, strlen(best), other));
}

static outcome take_array(const header *header, const char *tensor, array *out)
{
    entry key = {.name = tensor};
    const entry *found = header->nentries ? bsearch(&key, header->entry,
                                                    (size_t)header->nentries,
                                                    sizeof key, by_name)
                                          : NULL;
    char shown[SHOWN];

    if (!found)
        return refuse_missing(header, tensor);
    if (found->row < 0 || kinds[found->row].dtype < 0)
        return complain(WRONG, "%s: elements of type '%s' are not supported",
                        out->name,
                        show(found->kind, strlen(found->kind), shown));
    describe(found, out);
    out->dtype = (hd_dtype)kinds[found->row].dtype;
    out->data = header->data + found->begin;
    return FINE;
}

outcome safetensors_parse(const char *path, const char *tensor, array *out)
{
    header header = {.path = path};
    outcome result = read_header(&out->content, &header);

    if (result == FINE)
        result = take_array(&header, tensor, out);
    free(header.entry);
    cJSON_Delete(header.json);
    return result;
}
