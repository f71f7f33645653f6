/* Reading single values of config.json, and refusing values that are not supported. */
#include "model/read.h"

#include <math.h>

struct json_object *ndp_config_member(struct json_object *o, const char *key) {
    struct json_object *value = NULL;
    return json_object_object_get_ex(o, key, &value) ? value : NULL;
}

bool ndp_config_is_neutral(struct json_object *value, double neutral) {
    switch (json_object_get_type(value)) {
    case json_type_null:
        return true;
    case json_type_boolean:
        return json_object_get_boolean(value) == (neutral != 0);
    case json_type_int:
    case json_type_double:
        return json_object_get_double(value) == neutral;
    case json_type_array:
        return json_object_array_length(value) == 0;
    case json_type_object:
        return json_object_object_length(value) == 0;
    default:
        return false;
    }
}

ndp_status ndp_config_refuse(const char *what, const char *key, struct json_object *value, const char *way_out) {
    const char *text = json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN);
    return NDP_FAIL(NDP_ENOTSUP, "%s: \"%s\": %.80s is not supported%s", what, key, text ? text : "?", way_out);
}

ndp_status ndp_config_size(struct json_object *config, const char *what, const char *key, int64_t high, int64_t *out) {
    if (!ndp_config_member(config, key))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is missing", what, key);
    return ndp_json_int(config, what, key, 1, high, out);
}

ndp_status ndp_config_not_null(struct json_object *o, const char *what, const char *key) {
    struct json_object *value = NULL;
    return json_object_object_get_ex(o, key, &value) && !value
               ? NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is null; give a value, or leave the key out for the default", what,
                          key)
               : NDP_OK;
}

ndp_status ndp_config_bool(struct json_object *o, const char *what, const char *key, bool *out) {
    NDP_TRY(ndp_config_not_null(o, what, key));
    return ndp_json_bool(o, what, key, out);
}

ndp_status ndp_config_count(struct json_object *o, const char *what, const char *key, int64_t low, int64_t high,
                            int64_t *out) {
    NDP_TRY(ndp_config_not_null(o, what, key));
    return ndp_json_int(o, what, key, low, high, out);
}

ndp_status ndp_config_positive(struct json_object *o, const char *what, const char *key, double *out) {
    NDP_TRY(ndp_config_not_null(o, what, key));
    return ndp_config_optional(o, what, key, out);
}

ndp_status ndp_config_optional(struct json_object *o, const char *what, const char *key, double *out) {
    double v = *out;
    NDP_TRY(ndp_json_double(o, what, key, &v));
    if (!(v > 0) || !isfinite(v))
        return NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is %g, expected a positive number", what, key, v);
    *out = v;
    return NDP_OK;
}

ndp_status ndp_config_cap(struct json_object *o, const char *what, const char *key, double *out) {
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(o, key, &value))
        return NDP_OK;
    *out = 0;
    if (!value)
        return NDP_OK;
    NDP_TRY(ndp_config_optional(o, what, key, out));
    return *out >= 1e-6 && *out <= 1e6
               ? NDP_OK
               : NDP_FAIL(NDP_EFORMAT, "%s: \"%s\" is %g, expected 1e-6 to 1e6: fp32 cannot compute c tanh(x / c)",
                          what, key, *out);
}
