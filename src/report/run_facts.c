/* Members of run.json (run_facts.h). */
#include "report/run_facts.h"

#include <math.h>

struct json_object *ndp_fact_member(struct json_object *o, const char *key, json_type type) {
    struct json_object *value = NULL;
    return json_object_is_type(o, json_type_object) && json_object_object_get_ex(o, key, &value) &&
                   json_object_is_type(value, type)
               ? value
               : NULL;
}

bool ndp_fact_is_number(struct json_object *o) {
    return json_object_is_type(o, json_type_int) || json_object_is_type(o, json_type_double);
}

double ndp_fact_number(struct json_object *o, const char *key) {
    struct json_object *value = NULL;
    return json_object_is_type(o, json_type_object) && json_object_object_get_ex(o, key, &value) &&
                   ndp_fact_is_number(value)
               ? json_object_get_double(value)
               : NAN;
}

const char *ndp_fact_word(struct json_object *o, const char *key) {
    const char *text = ndp_json_text(ndp_fact_member(o, key, json_type_string));
    return text ? text : "";
}

const char *ndp_fact_text(struct json_object *value) {
    const char *text = ndp_json_text(value);
    return text ? text : json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN);
}

struct json_object *ndp_fact_part(struct json_object *record) {
    struct json_object *parts = ndp_fact_member(record, "parts", json_type_array);
    size_t n = parts ? json_object_array_length(parts) : 0;
    return n ? json_object_array_get_idx(parts, n - 1) : NULL;
}
