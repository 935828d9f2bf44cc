// See json.h.
#include "json.h"

#include "plain.h"
#include "tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

cJSON *json_need(cJSON *item)
{
    if (!item)
        out_of_memory();
    return item;
}

cJSON *json_put(cJSON *in, const char *name, cJSON *item)
{
    json_need(item);
    if (!(name ? cJSON_AddItemToObject(in, name, item)
               : cJSON_AddItemToArray(in, item)))
        out_of_memory();
    return item;
}

cJSON *json_object(cJSON *in, const char *name)
{
    return json_put(in, name, cJSON_CreateObject());
}

cJSON *json_array(cJSON *in, const char *name)
{
    return json_put(in, name, cJSON_CreateArray());
}

void json_number(cJSON *in, const char *name, double value)
{
    json_put(in, name, cJSON_CreateNumber(value));
}

void json_integer(cJSON *in, const char *name, int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%" PRId64, value);
    json_put(in, name, cJSON_CreateRaw(text));
}

void json_flag(cJSON *in, const char *name, bool value)
{
    json_put(in, name, cJSON_CreateBool(value));
}

void json_text(cJSON *in, const char *name, const char *value)
{
    char *text = value ? need_utf8(value) : NULL;

    json_put(in, name, text ? cJSON_CreateString(text) : cJSON_CreateNull());
    free(text);
}

char *json_format(const cJSON *item)
{
    char *text = cJSON_Print(item);

    if (!text)
        out_of_memory();
    return text;
}

void json_print(cJSON *item)
{
    char *text = json_format(item);

    puts(text);
    free(text);
    cJSON_Delete(item);
}
