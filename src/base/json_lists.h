/* Long flat lists of a JSON text, read without making an object for each of their entries: vocabularies have hundreds
 * of thousands. As strict as ndp_json_parse. */
#ifndef NDP_BASE_JSON_LISTS_H
#define NDP_BASE_JSON_LISTS_H

#include "base/json.h"
#include "base/text.h"

/* Where a member of an object stands in a text. */
typedef struct ndp_json_part {
    const char *key;
    size_t begin, end; /* both 0 when it is not there, or neither an object nor an array */
} ndp_json_part;

/* ndp_json_parse, but for some members of the whole's member `object`: where these parts stand is noted, and in the
 * tree they are empty. What is in them has not been looked at, except that it is UTF-8. */
ndp_status ndp_json_parse_without(const char *text, size_t size, const char *what, const char *object,
                                  ndp_json_part *parts, int n, struct json_object **out);

/* Reads a value entry by entry; what is not as asked for is NDP_EFORMAT with its line and column. */
typedef struct ndp_json_cursor {
    const char *text, *what;
    size_t at, end;
    ndp_str string; /* the last string, where it had escapes */
} ndp_json_cursor;
void ndp_json_cursor_release(ndp_json_cursor *c);
/* Past white space, and past this character if it is next. */
bool ndp_json_accept(ndp_json_cursor *c, char wanted);
/* The same, where nothing else may be. */
ndp_status ndp_json_expect(ndp_json_cursor *c, char wanted);
/* A string, borrowed until the next one; it may hold zeros. */
ndp_status ndp_json_next_string(ndp_json_cursor *c, const char **string, size_t *length);
ndp_status ndp_json_next_int(ndp_json_cursor *c, int64_t *out);
/* Rounded as serde_json, the reader of the `tokenizers` library, rounds it: at times a bit or two beside the nearest
 * double. Scores that tie, or nearly, tell the difference. */
ndp_status ndp_json_next_double(ndp_json_cursor *c, double *out);

/* The text of the next value, whatever it is, as far as brackets and quotes tell; ndp_json_parse says what is wrong in
 * it. */
ndp_status ndp_json_next_value(ndp_json_cursor *c, const char **value, size_t *length);

/* Nothing but white space may follow. */
ndp_status ndp_json_end(ndp_json_cursor *c);

/* Between the entries of a list that `open` began: true while there is another one, in *more. `close` ends it. */
ndp_status ndp_json_next_entry(ndp_json_cursor *c, char close, bool first, bool *more);

#endif
