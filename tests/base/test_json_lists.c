/* Long lists of JSON read without objects: the same as json-c reads them, and as strict. */
#include "base/json_lists.h"

#include "check.h"
#include <math.h>
#include <stdlib.h>

static ndp_json_cursor cursor(const char *text) {
    return (ndp_json_cursor){.text = text, .what = "here", .end = strlen(text)};
}

static void check_string(const char *text, const char *want, size_t n) {
    ndp_json_cursor c = cursor(text);
    const char *got;
    size_t length;
    CHECK_OK(ndp_json_next_string(&c, &got, &length));
    assert_int_equal(length, n);
    assert_memory_equal(got, want, n);
    assert_int_equal(c.at, c.end);
    ndp_json_cursor_release(&c);
}

static void strings_are_decoded(void **state) {
    (void)state;
    check_string("\"\"", "", 0);
    check_string(" \n\t\"plain \xc3\xa4\"", "plain \xc3\xa4", 8);
    check_string("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8);
    check_string("\"a\\u0041\\u00e4\\u4E2d.\"", "aA\xc3\xa4\xe4\xb8\xad.", 8);
    check_string("\"\\ud83d\\ude00\"", "\xf0\x9f\x98\x80", 4);
    check_string("\"a\\u0000b\"", "a\0b", 3);
}

static void bad_strings_name_their_place(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "x",
                                      "\"",
                                      "\"a",
                                      "\"\\",
                                      "\"\\x\"",
                                      "\"\\u12\"",
                                      "\"\\u12g4\"",
                                      "\"\\ud83d\"",
                                      "\"\\ud83d\\u0041\"",
                                      "\"\\ude00\"",
                                      "\"a\nb\"",
                                      "\"\x01\"",
                                      "'a'"};
    for (int i = 0; i < NDP_COUNT(bad); i++) {
        ndp_json_cursor c = cursor(bad[i]);
        const char *got;
        size_t length;
        CHECK_FAILS(ndp_json_next_string(&c, &got, &length), NDP_EFORMAT, ", at byte ");
        ndp_json_cursor_release(&c);
    }
    ndp_json_cursor c = cursor("\n  7");
    const char *got;
    size_t length;
    CHECK_FAILS(ndp_json_next_string(&c, &got, &length), NDP_EFORMAT,
                "here:2: expected a string, at byte 3 of the line");
    ndp_json_cursor_release(&c);
}

static void numbers_are_those_of_json(void **state) {
    (void)state;
    static const char *const wholes[] = {"0", "-7", " 123456789012", "9223372036854775807"};
    static const int64_t values[] = {0, -7, 123456789012, INT64_MAX};
    for (int i = 0; i < NDP_COUNT(wholes); i++) {
        ndp_json_cursor c = cursor(wholes[i]);
        int64_t value;
        CHECK_OK(ndp_json_next_int(&c, &value));
        assert_true(value == values[i] && c.at == c.end);
    }
    static const char *const no_wholes[] = {"", "-", "+1", "01", "1.5", "1e3", "9223372036854775808", "nan", "\"1\""};
    for (int i = 0; i < NDP_COUNT(no_wholes); i++) {
        ndp_json_cursor c = cursor(no_wholes[i]);
        int64_t value;
        CHECK_FAILS(ndp_json_next_int(&c, &value), NDP_EFORMAT, "expected a whole number");
    }
    static const char *const doubles[] = {"0", "-1.5", "2e3", "2.5E-1", "-13.815510557964274"};
    static const double reals[] = {0, -1.5, 2000, 0.25, -13.815510557964274};
    for (int i = 0; i < NDP_COUNT(doubles); i++) {
        ndp_json_cursor c = cursor(doubles[i]);
        double value;
        CHECK_OK(ndp_json_next_double(&c, &value));
        assert_true(value == reals[i] && c.at == c.end);
    }
    static const char *const no_doubles[] = {"", ".5", "1.", "1e", "1e+", "--1", "1.5.5", "Infinity", "NaN"};
    for (int i = 0; i < NDP_COUNT(no_doubles); i++) {
        ndp_json_cursor c = cursor(no_doubles[i]);
        double value;
        CHECK_FAILS(ndp_json_next_double(&c, &value), NDP_EFORMAT, "expected a number");
    }
}

/* Values that `tokenizers` 0.23.3 gave for these texts: its reader drops digits and divides once. */
static void doubles_are_rounded_as_the_reference_rounds(void **state) {
    (void)state;
    static const char *const texts[] = {"-15.275492379532281",
                                        "-9.908701741838819",
                                        "-14.429688151665367",
                                        "18446744073709551616.5",
                                        "123456789012345678901234567890e-40",
                                        "-0.0",
                                        "2.5e-324",
                                        "1e-99999999999",
                                        "0e999999999999"};
    static const double values[] = {-15.27549237953228,
                                    -9.90870174183882,
                                    -14.429688151665369,
                                    0x1p64,
                                    1.2345678901234567e-11,
                                    -0.0,
                                    0x1p-1074,
                                    0,
                                    0};
    for (int i = 0; i < NDP_COUNT(texts); i++) {
        ndp_json_cursor c = cursor(texts[i]);
        double value;
        CHECK_OK(ndp_json_next_double(&c, &value));
        assert_true(value == values[i] && signbit(value) == signbit(values[i]) && c.at == c.end);
    }
    static const char *const large[] = {"1e309", "-18446744073709551615e290", "1e99999999999999999999"};
    for (int i = 0; i < NDP_COUNT(large); i++) {
        ndp_json_cursor c = cursor(large[i]);
        double value;
        CHECK_FAILS(ndp_json_next_double(&c, &value), NDP_EFORMAT, "a number that a double can hold");
    }
}

static void entries_are_parted_by_commas(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int n; /* -1: refused */
    } cases[] = {{"[]", 0},    {"[ 1 ]", 1},  {"[1, 2,3]", 3}, {"[1,]", -1},
                 {"[,1]", -1}, {"[1 2]", -1}, {"[1", -1},      {"[1}", -1}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_json_cursor c = cursor(cases[i].text);
        int n = 0;
        bool more = true;
        ndp_status st = ndp_json_expect(&c, '[');
        for (; st == NDP_OK; n++) {
            int64_t value;
            st = ndp_json_next_entry(&c, ']', n == 0, &more);
            if (st != NDP_OK || !more)
                break;
            st = ndp_json_next_int(&c, &value);
        }
        assert_int_equal(st == NDP_OK ? n : -1, cases[i].n);
    }
}

static struct json_object *parse_without(const char *text, ndp_json_part parts[2]) {
    struct json_object *root = NULL;
    parts[0] = (ndp_json_part){.key = "list"};
    parts[1] = (ndp_json_part){.key = "map"};
    CHECK_OK(ndp_json_parse_without(text, strlen(text), "here", "o", parts, 2, &root));
    return root;
}

static void check_part(const char *text, const ndp_json_part *p, const char *want) {
    assert_int_equal(p->end - p->begin, strlen(want));
    assert_memory_equal(text + p->begin, want, strlen(want));
}

static void parts_are_cut_out(void **state) {
    (void)state;
    static const char text[] =
        "{\"list\": [0], \"o\": {\"a\": {\"map\": {\"x\": 1}}, \"map\": {\"]}\\\"\": [1, {}]}, \"b\": \"}\", "
        "\"list\" : [[\"]\"], 2]}, \"c\": 3}";
    ndp_json_part parts[2];
    struct json_object *root = parse_without(text, parts);
    check_part(text, &parts[0], "[[\"]\"], 2]");
    check_part(text, &parts[1], "{\"]}\\\"\": [1, {}]}");
    assert_string_equal(json_object_to_json_string_ext(root, JSON_C_TO_STRING_PLAIN),
                        "{\"list\":[0],\"o\":{\"a\":{\"map\":{\"x\":1}},\"map\":{},\"b\":\"}\",\"list\":[]},\"c\":3}");
    json_object_put(root);
    root = parse_without("{\"o\": {\"list\": 7, \"map\": null}}", parts);
    assert_int_equal(parts[0].end, 0);
    assert_int_equal(parts[1].end, 0);
    json_object_put(root);
    root = parse_without("[{\"o\": {\"list\": []}}]", parts);
    assert_int_equal(parts[0].end, 0);
    json_object_put(root);
}

/* With the place that it has in the whole text. */
static void damage_is_told_as_of_the_whole(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {{"{\"o\": {\"list\": [\n1,\n2]},\n \"b\" 7}", "here:4:"},
                 {"{\"o\": {\"list\": [1], \"list\": [2]}}", "the same key twice"},
                 {"{\"o\": {\"list\": [1", ", at byte 18"},
                 {"{\"o\": {\"list\": [1]]}", ", at byte 19"},
                 {"{\"o\": {\"list\": [1]} \xff}", "not valid UTF-8"},
                 {"{\"o\": {\"a\\u0000\": 1}}", "a key with a zero character"},
                 {"", ", at byte 1"}};
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        struct json_object *root = NULL;
        ndp_json_part part = {.key = "list"};
        CHECK_FAILS(ndp_json_parse_without(cases[i].text, strlen(cases[i].text), "here", "o", &part, 1, &root),
                    NDP_EFORMAT, cases[i].says);
        assert_null(root);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strings_are_decoded),
        cmocka_unit_test(bad_strings_name_their_place),
        cmocka_unit_test(numbers_are_those_of_json),
        cmocka_unit_test(doubles_are_rounded_as_the_reference_rounds),
        cmocka_unit_test(entries_are_parted_by_commas),
        cmocka_unit_test(parts_are_cut_out),
        cmocka_unit_test(damage_is_told_as_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
