/* Changing a member in the text of a JSON object: by its bytes, and checked by its values. */
#include "base/json.h"

#include <string.h>

/* The next two stay in the text, which ends with 0, whatever it is. */
static const char *end_of_string(const char *p) {
    for (p++; *p && *p != '"'; p++)
        p += *p == '\\' && p[1];
    return p + (*p != '\0');
}

static const char *end_of_value(const char *p) {
    int depth = 0;
    do {
        depth += (*p == '{' || *p == '[') - (*p == '}' || *p == ']');
        p = *p == '"' ? end_of_string(p) : p + (*p != '\0');
    } while (*p && (depth > 0 || !strchr(",}] \t\r\n", *p)));
    return p;
}

static void splice(const char *text, const char *key, const char *value, ndp_str *out) {
    const char *p = text + strcspn(text, "{"), *done = text;
    size_t n = strlen(key);
    for (p += *p != '\0'; *(p += strspn(p, " \t\r\n,")) == '"';) {
        const char *name = p + 1;
        p = end_of_string(p);
        bool is = (size_t)(p - name) == n + 1 && memcmp(name, key, n) == 0;
        p += strspn(p, " \t\r\n:");
        if (is) {
            ndp_str_add_bytes(out, done, (size_t)(p - done));
            ndp_str_add(out, value);
        }
        p = end_of_value(p);
        done = is ? p : done;
    }
    ndp_str_add(out, done);
}

static bool means(const ndp_str *text, struct json_object *wanted) {
    struct json_object *o = NULL;
    bool same =
        !text->failed && ndp_json_parse(text->data, text->length, "JSON", &o) == NDP_OK && json_object_equal(o, wanted);
    json_object_put(o);
    return same;
}

static ndp_status replace(const char *text, struct json_object *o, const char *key, struct json_object *value,
                          ndp_str *out) {
    static const int as_it_is = JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE;
    size_t before = out->length;
    const char *json = json_object_to_json_string_ext(value, as_it_is);
    ndp_str changed = {0};
    if (json)
        splice(text, key, json, &changed);
    json_object_object_add(o, key, json_object_get(value));
    bool fine = json && means(&changed, o);
    json = fine ? changed.data : json_object_to_json_string_ext(o, as_it_is);
    ndp_str_add(out, json ? json : "");
    ndp_str_release(&changed);
    return NDP_MEMORY(json && !out->failed && out->length > before, "for a JSON object");
}

ndp_status ndp_json_replace(const char *text, size_t size, const char *what, const char *key, struct json_object *value,
                            ndp_str *out) {
    struct json_object *o = NULL;
    NDP_TRY(ndp_json_parse(text, size, what, &o));
    ndp_status st = json_object_is_type(o, json_type_object) ? replace(text, o, key, value, out)
                                                             : NDP_FAIL(NDP_EFORMAT, "%s: not a JSON object", what);
    json_object_put(o);
    return st;
}
