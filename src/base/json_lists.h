/* Long flat lists in a JSON text, read without creating an object per entry: vocabularies have hundreds of thousands of
 * entries. As strict as ndp_json_parse. */
#ifndef NDP_BASE_JSON_LISTS_H
#define NDP_BASE_JSON_LISTS_H

#include "base/json.h"
#include "base/text.h"

/* The range of a member's value in a text. */
typedef struct ndp_json_part {
    const char *key;
    size_t begin, end; /* both 0 if it is missing, or neither an object nor an array */
} ndp_json_part;

/* ndp_json_parse, except for some members of the top level's member `object`: their ranges are recorded in `parts`, and
 * in the tree they are empty. Their contents are not checked, except for being UTF-8. */
ndp_status ndp_json_parse_without(const char *text, size_t size, const char *what, const char *object,
                                  ndp_json_part *parts, int n, struct json_object **out);

/* Reads a value entry by entry. Anything unexpected is NDP_EFORMAT with its line and byte. */
typedef struct ndp_json_cursor {
    const char *text, *what;
    size_t at, end;
    ndp_str string; /* the last string that had escapes */
} ndp_json_cursor;
void ndp_json_cursor_release(ndp_json_cursor *c);
/* Skips white space, and then this character if it is next; returns whether it was. */
bool ndp_json_accept(ndp_json_cursor *c, char wanted);
/* The same; any other character is an error. */
ndp_status ndp_json_expect(ndp_json_cursor *c, char wanted);
/* A string, borrowed until the next one; it may contain zeros. */
ndp_status ndp_json_next_string(ndp_json_cursor *c, const char **string, size_t *length);
ndp_status ndp_json_next_int(ndp_json_cursor *c, int64_t *out);
/* Rounded as serde_json, the reader of the `tokenizers` library, rounds: at times a bit or two off the nearest double.
 * The difference decides between scores that are equal or nearly so. */
ndp_status ndp_json_next_double(ndp_json_cursor *c, double *out);

/* The text of the next value of any type, found by brackets and quotes alone; ndp_json_parse reports errors within it.
 */
ndp_status ndp_json_next_value(ndp_json_cursor *c, const char **value, size_t *length);

/* Checks that only white space follows. */
ndp_status ndp_json_end(ndp_json_cursor *c);

/* Between the entries of a list: *more is true while there is another one. `close`: the bracket that ends the list;
 * `first`: no entry was read yet. */
ndp_status ndp_json_next_entry(ndp_json_cursor *c, char close, bool first, bool *more);

#endif
