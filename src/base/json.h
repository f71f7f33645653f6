/* Strict JSON by json-c: UTF-8, depth 128, nothing after the value; bare NaN and Infinity are accepted, since Hugging
 * Face's configurations hold them. Errors name the file and the line and column. */
#ifndef NDP_BASE_JSON_H
#define NDP_BASE_JSON_H

#include "base/status.h"
#include <json-c/json.h>

/* `what` names the text in messages (a path). The caller puts the object. */
ndp_status ndp_json_parse(const char *text, size_t size, const char *what, struct json_object **out);
/* A file of NDP_FILE_CONFIG. */
ndp_status ndp_json_read(const char *path, struct json_object **out);

/* Typed members of an object. A missing or null member leaves *out as it is; a wrong type or a value out of range is
 * NDP_EFORMAT and names `what`, the key, what was found and what was expected. */
ndp_status ndp_json_int(struct json_object *o, const char *what, const char *key, int64_t low, int64_t high,
                        int64_t *out);
ndp_status ndp_json_double(struct json_object *o, const char *what, const char *key, double *out);
ndp_status ndp_json_bool(struct json_object *o, const char *what, const char *key, bool *out);
/* Borrowed from the object. A string with a zero character, where C would end it, is refused as well. */
ndp_status ndp_json_string(struct json_object *o, const char *what, const char *key, const char **out);

/* The text of a string, borrowed; NULL for any other value and for a string with a zero character. */
const char *ndp_json_text(struct json_object *value);

#endif
