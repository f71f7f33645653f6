/* A JSON object as bytes: with another value of a member, its text means the same object with that value, and with the
 * member's own value it is the same object. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *text, size_t size, struct json_object *wanted, struct json_object *value) {
    struct json_object *o = NULL;
    ndp_str out = {0};
    json_object_object_add(wanted, "k", json_object_get(value));
    if (ndp_json_replace(text, size, "fuzz", "k", value, &out) != NDP_OK ||
        ndp_json_parse(out.data, out.length, "out", &o) != NDP_OK || !json_object_equal(o, wanted))
        abort();
    json_object_put(o);
    ndp_str_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct json_object *o = NULL, *same = NULL, *value = json_object_new_string("a \"}] \\");
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    if (ndp_json_parse(text, size, "fuzz", &o) == NDP_OK && json_object_is_type(o, json_type_object) &&
        ndp_json_parse(text, size, "fuzz", &same) == NDP_OK && json_object_equal(o, same)) { /* it has no NaN */
        check(text, size, o, json_object_object_get(o, "k"));
        check(text, size, o, value);
    }
    json_object_put(o);
    json_object_put(same);
    json_object_put(value);
    free(text);
    return 0;
}
