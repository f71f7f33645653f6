/* libFuzzer: what the reader of lists takes, json-c takes as well and reads the same. */
#include "base/json_lists.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A list of strings and whole numbers, all of the text; compared with `want` where that is not NULL. */
static ndp_status read_list(const char *text, size_t size, struct json_object *want) {
    ndp_json_cursor c = {.text = text, .what = "fuzz", .end = size};
    bool more = true;
    ndp_status st = ndp_json_expect(&c, '[');
    for (size_t i = 0; st == NDP_OK; i++) {
        const char *string;
        size_t n;
        int64_t value = 0;
        st = ndp_json_next_entry(&c, ']', i == 0, &more);
        if (st != NDP_OK || !more)
            break;
        struct json_object *o = want ? json_object_array_get_idx(want, i) : NULL;
        bool is_string = ndp_json_accept(&c, '"');
        c.at -= is_string;
        st = is_string ? ndp_json_next_string(&c, &string, &n) : ndp_json_next_int(&c, &value);
        if (st != NDP_OK || !want)
            continue;
        if (is_string ? !json_object_is_type(o, json_type_string) || (size_t)json_object_get_string_len(o) != n ||
                            memcmp(json_object_get_string(o), string, n) != 0
                      : !json_object_is_type(o, json_type_int) || json_object_get_int64(o) != value)
            __builtin_trap();
    }
    if (st == NDP_OK && strspn(text + c.at, " \t\r\n") != size - c.at)
        st = NDP_EFORMAT;
    ndp_json_cursor_release(&c);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    struct json_object *root = NULL;
    ndp_json_part parts[2] = {{.key = "vocab"}, {.key = "merges"}};
    if (ndp_json_parse_without(text, size, "fuzz", "model", parts, 2, &root) == NDP_OK)
        json_object_put(root);
    root = NULL;
    if (ndp_utf8_valid_prefix(text, size) == size && read_list(text, size, NULL) == NDP_OK) {
        if (ndp_json_parse(text, size, "fuzz", &root) != NDP_OK)
            __builtin_trap();
        (void)!read_list(text, size, root);
        json_object_put(root);
    }
    free(text);
    return 0;
}
