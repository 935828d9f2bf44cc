// See machine.h. The table of keys is the whole format.
#include <heddle/simulate.h>

#include "machine.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "file.h"

enum { MACHINE_LIMIT = 1 << 20 };

typedef struct field {
    const char *name;
    size_t offset; // in hd_machine
    bool whole;    // an int, else a double
    double low, high;
} field;

#define FIELD(name, whole, low, high)                       \
    {                                                       \
#name, offsetof(hd_machine, name), whole, low, high \
    }

static const field fields[] = {
    FIELD(ranks_per_node, true, 1, HD_MAX_RANKS),
    FIELD(processors, true, 0, 4096),
    FIELD(issue, false, 0, 1),
    FIELD(launch, false, 0, 1),
    FIELD(memory, false, 1, 1e18),
    FIELD(units, true, 0, 1 << 20),
    FIELD(tile_m, true, 1, 1 << 20),
    FIELD(tile_n, true, 1, 1 << 20),
    FIELD(hop, false, 0, 1),
    FIELD(copy_latency, false, 0, 1),
    FIELD(copy_bandwidth, false, 1, 1e18),
    FIELD(link, false, 1, 1e18),
    FIELD(collision, false, 0.001, 1),
    FIELD(collective_latency, false, 0, 1),
    FIELD(collective_bandwidth, false, 1, 1e18),
    FIELD(collective_units, false, 0, 0.999),
    FIELD(network_latency, false, 0, 1),
    FIELD(network_bandwidth, false, 1, 1e18),
};
enum { NFIELDS = sizeof fields / sizeof *fields };

static outcome take_number(const char *path, const char *key,
                           const cJSON *value, double low, double high,
                           double *out)
{
    if (!cJSON_IsNumber(value) || !isfinite(value->valuedouble))
        return complain(WRONG, "%s: %s is not a number", path, key);
    *out = value->valuedouble;
    if (*out < low || *out > high)
        return complain(WRONG,
                        "%s: %s is %.15g; it lies between %.15g and %.15g",
                        path, key, *out, low, high);
    return FINE;
}

static outcome take_field(const char *path, const field *field,
                          const cJSON *value, hd_machine *out)
{
    char *at = (char *)out + field->offset;
    double number = 0;
    int whole;

    TRY(take_number(path, field->name, value, field->low, field->high,
                    &number));
    if (!field->whole) {
        memcpy(at, &number, sizeof number);
        return FINE;
    }
    whole = (int)number;
    if (whole != number)
        return complain(WRONG, "%s: %s is %.15g; it is a whole number", path,
                        field->name, number);
    memcpy(at, &whole, sizeof whole);
    return FINE;
}

static outcome take_matmul(const char *path, const cJSON *value,
                           hd_machine *out)
{
    const cJSON *rate;

    if (!cJSON_IsObject(value))
        return complain(WRONG, "%s: matmul is not an object of rates by dtype",
                        path);
    memset(out->matmul, 0, sizeof out->matmul);
    cJSON_ArrayForEach(rate, value)
    {
        int dtype = 0;
        char key[64];

        while (dtype < HD_DTYPE_EVENT &&
               strcmp(rate->string, hd_dtype_text((hd_dtype)dtype)) != 0)
            dtype++;
        snprintf(key, sizeof key, "matmul.%.40s", rate->string);
        if (dtype == HD_DTYPE_EVENT)
            return complain(WRONG, "%s: %s: no such dtype", path, key);
        if (out->matmul[dtype] > 0)
            return complain(WRONG, "%s: %s stands twice", path, key);
        TRY(take_number(path, key, rate, 1, 1e21, &out->matmul[dtype]));
    }
    if (!(out->matmul[HD_DTYPE_F32] > 0))
        return complain(WRONG,
                        "%s: matmul lacks f32, the rate of all dtypes "
                        "that it does not name",
                        path);
    return FINE;
}

static outcome take_name(const char *path, const cJSON *value, hd_machine *out)
{
    if (!cJSON_IsString(value))
        return complain(WRONG, "%s: name is not a string", path);
    show_within(value->valuestring, strlen(value->valuestring), out->name,
                sizeof out->name);
    return FINE;
}

static outcome take_key(const char *path, const cJSON *value, hd_machine *out)
{
    const char *names[NFIELDS + 2] = {"name", "matmul"};
    char text[SHOWN], guess[MEANT];

    if (strcmp(value->string, "name") == 0)
        return take_name(path, value, out);
    if (strcmp(value->string, "matmul") == 0)
        return take_matmul(path, value, out);
    for (int i = 0; i < NFIELDS; i++) {
        names[i + 2] = fields[i].name;
        if (strcmp(value->string, fields[i].name) == 0)
            return take_field(path, &fields[i], value, out);
    }
    show(value->string, strlen(value->string), text);
    return complain(WRONG, "%s: unknown key '%s'%s", path, text,
                    meant(value->string, names, NFIELDS + 2, guess));
}

static const cJSON *find(const cJSON *json, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(json, name);
}

static outcome take_machine(const char *path, const cJSON *json,
                            hd_machine *out)
{
    const cJSON *value;

    if (!cJSON_IsObject(json))
        return complain(WRONG, "%s: a machine is a JSON object", path);
    cJSON_ArrayForEach(value, json)
    {
        // The first of a name is found.
        if (find(json, value->string) != value)
            return complain(WRONG, "%s: %s stands twice", path, value->string);
        TRY(take_key(path, value, out));
    }
    for (int i = 0; i < NFIELDS; i++)
        if (!find(json, fields[i].name))
            return complain(WRONG, "%s: %s is missing", path, fields[i].name);
    if (!find(json, "matmul"))
        return complain(WRONG, "%s: matmul is missing", path);
    return FINE;
}

// Whether nothing but white space follows what was understood.
static bool ends_at(const content *text, size_t at)
{
    while (at < text->length && memchr(" \t\r\n", text->bytes[at], 4))
        at++;
    return at == text->length;
}

outcome machine_open(const char *path, hd_machine *out)
{
    content text;
    const char *end = NULL;
    cJSON *json;
    size_t rest;
    outcome result;

    *out = hd_machine_default();
    if (!path)
        return FINE;
    TRY(content_open(path, MACHINE_LIMIT, &text));
    if (text.length > MACHINE_LIMIT) {
        content_close(&text);
        return complain(WRONG, "%s: longer than %d bytes", path, MACHINE_LIMIT);
    }
    show_within(path, strlen(path), out->name, sizeof out->name);
    json = cJSON_ParseWithLengthOpts((const char *)text.bytes, text.length,
                                     &end, false);
    rest = end ? (size_t)(end - (const char *)text.bytes) : 0;
    if (json && ends_at(&text, rest))
        result = take_machine(path, json, out);
    else
        result = complain(WRONG, "%s: not JSON, from byte %zu on", path, rest);
    cJSON_Delete(json);
    content_close(&text);
    return result;
}
