/* Writing JSON: one value after the other, with commas where they belong. What --json prints is written with it, in the
 * library and in the program. */
#ifndef NDP_BASE_JSON_WRITE_H
#define NDP_BASE_JSON_WRITE_H

#include "base/text.h"

/* `{0}` is an empty text. */
typedef struct ndp_json_out {
    ndp_str text;
    bool more; /* the innermost object or list has a value */
} ndp_json_out;

/* Begin and end an object or a list. `key`, here and below: of a member; NULL: an entry of a list, or the whole. */
void ndp_json_open(ndp_json_out *o, const char *key, char bracket);
void ndp_json_close(ndp_json_out *o, char bracket);

/* NULL: null. Bytes that are not UTF-8 become U+FFFD. */
void ndp_json_put_text(ndp_json_out *o, const char *key, const char *text);
/* null where x is not finite. */
void ndp_json_put_number(ndp_json_out *o, const char *key, double x);
void ndp_json_put_int(ndp_json_out *o, const char *key, int64_t x);
void ndp_json_put_bool(ndp_json_out *o, const char *key, bool x);
void ndp_json_put_null(ndp_json_out *o, const char *key);
/* A list of texts: the lines of a text. */
void ndp_json_put_lines(ndp_json_out *o, const char *key, const char *text);

/* Appends a text as a JSON string, in quotes. */
void ndp_json_quote(ndp_str *out, const char *text);
/* Appends n bytes as a JSON string, in quotes. Bytes that are not UTF-8 become U+FFFD. */
void ndp_json_quote_bytes(ndp_str *out, const char *text, size_t n);

#endif
