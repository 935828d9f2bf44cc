// JSON that is written: cJSON's items, or the end of the process where there is
// no memory for one.
#ifndef HD_TOOLS_JSON_H
#define HD_TOOLS_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

cJSON *json_need(cJSON *item);

// A new member of an object; a new element of an array, whose name is NULL.
// What is returned belongs to `in`.
cJSON *json_put(cJSON *in, const char *name, cJSON *item);
cJSON *json_object(cJSON *in, const char *name);
cJSON *json_array(cJSON *in, const char *name);
void json_number(cJSON *in, const char *name, double value);
// All digits, of which a double keeps the first 15.
void json_integer(cJSON *in, const char *name, int64_t value);
void json_flag(cJSON *in, const char *name, bool value);
// Made UTF-8, since a name from outside may be none; NULL is null.
void json_text(cJSON *in, const char *name, const char *value);

// Indented; to be freed with free().
char *json_format(const cJSON *item);
// The same on standard output. Deletes the item.
void json_print(cJSON *item);

#endif
