/* Strict JSON, by json-c: UTF-8, depth 128, nothing after the value. Bare NaN and Infinity are accepted, since Hugging
 * Face's configurations contain them. Errors name the file, the line and the byte. */
#ifndef NDP_BASE_JSON_H
#define NDP_BASE_JSON_H

#include "base/text.h"
#include <json-c/json.h>

/* `what` names the text in messages (a path). The caller releases the object with json_object_put. */
ndp_status ndp_json_parse(const char *text, size_t size, const char *what, struct json_object **out);
/* Appends the text of an object, which ends with 0, with another value of a member. All other bytes stay, so also
 * numbers that json-c does not keep, such as 10^30; but if the member is missing or its name is written with escapes,
 * the object is written anew. NDP_EFORMAT: it is no object. */
ndp_status ndp_json_replace(const char *text, size_t size, const char *what, const char *key, struct json_object *value,
                            ndp_str *out);
/* A file of NDP_FILE_CONFIG. */
ndp_status ndp_json_read(const char *path, struct json_object **out);

/* NDP_EFORMAT: "what:line: why, at byte N of the line", for the byte at `at`. A text of one line, such as a record of a
 * .jsonl file, of which `what` names the line, is "what: why, at byte N". */
ndp_status ndp_json_fail_at(const char *text, size_t size, size_t at, const char *what, const char *why);

/* Typed members of an object. A missing or null member leaves *out unchanged. A wrong type or a value out of range is
 * NDP_EFORMAT, which names `what`, the key, the value and what was expected. */
ndp_status ndp_json_int(struct json_object *o, const char *what, const char *key, int64_t low, int64_t high,
                        int64_t *out);
ndp_status ndp_json_double(struct json_object *o, const char *what, const char *key, double *out);
ndp_status ndp_json_bool(struct json_object *o, const char *what, const char *key, bool *out);
/* Borrowed from the object. A string with a zero character, which C would truncate, is rejected as well. */
ndp_status ndp_json_string(struct json_object *o, const char *what, const char *key, const char **out);

/* The text of a string, borrowed; NULL: any other value, or a string with a zero character. */
const char *ndp_json_text(struct json_object *value);

#endif
