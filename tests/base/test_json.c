#include "base/json.h"
#include "check.h"

#include <math.h>
#include <stdlib.h>

static ndp_status parse(const char *text, struct json_object **out) {
    return ndp_json_parse(text, strlen(text), "config.json", out);
}

static void typed_members(void **state) {
    (void)state;
    struct json_object *o;
    CHECK_OK(parse("{\"heads\": 8, \"theta\": 10000.0, \"eps\": 1, \"tie\": true, \"name\": \"llama\", \"gone\": null,"
                   " \"big\": 18446744073709551615, \"cut\": \"llama\\u0000x\"}",
                   &o));
    int64_t heads = -1, missing = 17;
    double theta = 0, eps = 0;
    bool tie = false;
    const char *name = "default";
    CHECK_OK(ndp_json_int(o, "c", "heads", 1, 100, &heads));
    assert_int_equal(heads, 8);
    CHECK_OK(ndp_json_int(o, "c", "none", 1, 100, &missing));
    CHECK_OK(ndp_json_int(o, "c", "gone", 1, 100, &missing));
    assert_int_equal(missing, 17);
    CHECK_OK(ndp_json_double(o, "c", "theta", &theta));
    CHECK_OK(ndp_json_double(o, "c", "eps", &eps));
    assert_true(theta == 10000 && eps == 1);
    CHECK_OK(ndp_json_bool(o, "c", "tie", &tie));
    assert_true(tie);
    CHECK_OK(ndp_json_string(o, "c", "name", &name));
    assert_string_equal(name, "llama");

    CHECK_FAILS(ndp_json_int(o, "c", "heads", 9, 100, &heads), NDP_EFORMAT,
                "c: \"heads\" is 8, expected a whole number from 9");
    CHECK_FAILS(ndp_json_int(o, "c", "big", 0, INT64_MAX, &heads), NDP_EFORMAT, "expected a whole number from 0");
    CHECK_FAILS(ndp_json_int(o, "c", "theta", 1, 100, &heads), NDP_EFORMAT, "is 10000.0, expected a whole number");
    CHECK_FAILS(ndp_json_double(o, "c", "name", &eps), NDP_EFORMAT, "is \"llama\", expected a number");
    CHECK_FAILS(ndp_json_bool(o, "c", "heads", &tie), NDP_EFORMAT, "expected true or false");
    CHECK_FAILS(ndp_json_string(o, "c", "heads", &name), NDP_EFORMAT, "expected a string");
    CHECK_FAILS(ndp_json_string(o, "c", "cut", &name), NDP_EFORMAT,
                "\"cut\" is \"llama\\u0000x\", expected a string without zero characters");
    assert_int_equal(heads, 8);
    json_object_put(o);
}

/* json-c itself takes the last two for lone surrogates. */
static void escaped_pairs_are_characters(void **state) {
    (void)state;
    static const struct {
        const char *text, *want;
    } cases[] = {{"\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80"},
                 {"\"a\\\\ud836\\uD836\\udc00b\\ud83d\\ude00\"", "a\\ud836\xf0\x9d\xa0\x80"
                                                                 "b\xf0\x9f\x98\x80"},
                 {"\"\\ud877\\udfff\"", "\xf0\xad\xbf\xbf"}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        struct json_object *o;
        CHECK_OK(parse(cases[i].text, &o));
        assert_string_equal(json_object_get_string(o), cases[i].want);
        json_object_put(o);
    }
}

static void accepts(void **state) {
    (void)state;
    static const char *const texts[] = {"{}",
                                        " [1, 2]\n",
                                        "12",
                                        "-1.5e3",
                                        "\"x\"",
                                        "true",
                                        "null",
                                        "{\"a\":{\"b\":1},\"c\":[{\"a\":\":\"}, {\"a\":\"\\\":\\\\\"}]}",
                                        "\"gr\xc3\xbc\\u00df \\ud83d\\ude00\""};
    for (int i = 0; i < NDP_COUNT(texts); i++) {
        struct json_object *o;
        CHECK_OK(parse(texts[i], &o));
        json_object_put(o);
    }
}

static void bare_nan_and_infinity(void **state) {
    (void)state;
    struct json_object *o;
    CHECK_OK(parse("{\"a\": Infinity, \"b\": -Infinity, \"c\": NaN}", &o));
    double a = 0, b = 0, c = 0;
    CHECK_OK(ndp_json_double(o, "c", "a", &a));
    CHECK_OK(ndp_json_double(o, "c", "b", &b));
    CHECK_OK(ndp_json_double(o, "c", "c", &c));
    assert_true(a == INFINITY && b == -INFINITY && isnan(c));
    json_object_put(o);
}

static void refuses(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"", "config.json: the JSON text ends before its value does, at byte 1"},
        {"{\n  \"a\": 1,\n  \"b\" 2\n}",
         "config.json:3: object property name separator ':' expected, at byte 7 of the line"},
        {"{\"a\": 1} x", ", at byte 10"},
        {"12 13", ", at byte 4"},
        {"{\"a\": 1", "ends before its value"},
        {"\"a\nb\"", "config.json:1: a control character in JSON text, at byte 3 of the line"},
        {"\"abc", "ends before its value"},
        {"tru", ", at byte 4"},
        {"{'a': 1}", ", at byte 2"},
        {"[1, 2,]", ", at byte 7"},
        {"/* x */ 1", ", at byte 1"},
        {"\"a\xff\"", "config.json: not valid UTF-8, at byte 3"},
        {"{\"a\": 1, \"b\": {\"c\": 2, \"c\": 3}}", "same key twice"},
        {"-", ", at byte "},
        {"1e", ", at byte "},
        {"01", ", at byte "}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        struct json_object *o = NULL;
        CHECK_FAILS(parse(cases[i][0], &o), NDP_EFORMAT, cases[i][1]);
        assert_null(o);
    }
    struct json_object *o = NULL;
    CHECK_FAILS(ndp_json_parse("{}\0{}", 5, "c", &o), NDP_EFORMAT, "c: a control character in JSON text, at byte 3");
}

static void depth(void **state) {
    (void)state;
    struct json_object *o;
    char text[301];
    for (int depth = 100; depth <= 150; depth += 50) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = '\0';
        if (depth == 100) {
            CHECK_OK(parse(text, &o));
            json_object_put(o);
        } else
            CHECK_FAILS(parse(text, &o), NDP_EFORMAT, "deeper than 128");
    }
}

static void not_terminated_text(void **state) {
    (void)state;
    char *text = malloc(4);
    memcpy(text, "1234", 4);
    struct json_object *o;
    CHECK_OK(ndp_json_parse(text, 4, "c", &o));
    assert_int_equal(json_object_get_int(o), 1234);
    json_object_put(o);
    CHECK_OK(ndp_json_parse(text, 2, "c", &o));
    assert_int_equal(json_object_get_int(o), 12);
    json_object_put(o);
    free(text);
}

static void real_configurations(void **state) {
    (void)state;
    const char *data = getenv("NDP_TEST_DATA");
    if (!data) {
        print_message("NDP_TEST_DATA is not set: real configurations are not read\n");
        skip();
    }
    static const char *const names[] = {"configs/Llama-3.1-405B/config.json", "configs/DeepSeek-V3/config.json",
                                        "models/stories260K/tokenizer.json", "tokenizers/gpt2/tokenizer.json"};
    for (int i = 0; i < NDP_COUNT(names); i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", data, names[i]);
        struct json_object *o;
        CHECK_OK(ndp_json_read(path, &o));
        json_object_put(o);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(typed_members),
                                       cmocka_unit_test(escaped_pairs_are_characters),
                                       cmocka_unit_test(accepts),
                                       cmocka_unit_test(bare_nan_and_infinity),
                                       cmocka_unit_test(refuses),
                                       cmocka_unit_test(depth),
                                       cmocka_unit_test(not_terminated_text),
                                       cmocka_unit_test(real_configurations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
