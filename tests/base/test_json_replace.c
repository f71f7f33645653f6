/* A member of a JSON object gets another value, and every other byte stays. */
#include "base/json.h"

#include "check.h"

#include <string.h>

#define LARGE "1000000000000000019884624838656"

static void only_the_member_changes(void **state) {
    (void)state;
    static const char deep[] = "{\"a\": {\"k\": [1, \"}\"]},\n \"k\" : %s , \"n\": " LARGE ", \"k2\":[{},null]}\n";
    static const char *const values[] = {"1", "\"a \\\" } ] , \\\\\"", "[\"]\", {\"k\": {}}]", "{ }", "null", "-1.5e3"};
    struct json_object *value = json_object_new_string("new \"}");
    for (int i = 0; i < NDP_COUNT(values); i++) {
        char *text = ndp_format(deep, values[i]), *want = ndp_format(deep, "\"new \\\"}\"");
        ndp_str out = {0};
        CHECK_OK(ndp_json_replace(text, strlen(text), "text", "k", value, &out));
        assert_string_equal(out.data, want);
        ndp_str_release(&out);
        free(text);
        free(want);
    }
    json_object_put(value);
}

/* It is written with escapes, or missing; the text is no object, or has it twice. */
static void other_texts(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {{"{\"\\u006b\": 1, \"b\": 2}", "{\"k\":[],\"b\":2}"},
                 {"{ \"b\": 2 }", "{\"b\":2,\"k\":[]}"},
                 {"{}", "{\"k\":[]}"}};
    struct json_object *value = json_object_new_array();
    ndp_str out = {0};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        out.length = 0;
        CHECK_OK(ndp_json_replace(cases[i].text, strlen(cases[i].text), "text", "k", value, &out));
        assert_string_equal(out.data, cases[i].want);
    }
    CHECK_FAILS(ndp_json_replace("[1]", 3, "text", "k", value, &out), NDP_EFORMAT, "text: not a JSON object");
    CHECK_FAILS(ndp_json_replace("{\"k\": 1, \"k\": 2}", 16, "text", "k", value, &out), NDP_EFORMAT, "same key twice");
    CHECK_FAILS(ndp_json_replace("{\"k\": ", 6, "text", "k", value, &out), NDP_EFORMAT, "text");
    ndp_str_release(&out);
    json_object_put(value);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_the_member_changes), cmocka_unit_test(other_texts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
