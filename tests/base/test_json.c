#include "base/rng.h"
#include "check.h"
#include "strict_json.h"

#include <math.h>

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

/* What json-c parses where it is not strict. */
static const struct {
    const char *text, *words;
} lax[] = {{"[1] /* x */", "config.json: JSON has no comments, at byte 5"},
           {"{\"a\": 1, // x\n\"b\": 2}", "config.json:1: JSON has no comments, at byte 10 of the line"},
           {"{\"a\": True}", "upper and lower case matter: true, false, null, NaN, Infinity, at byte 7"},
           {"[nan]", "NaN, Infinity, at byte 2"},
           {"NULL", "NaN, Infinity, at byte 1"},
           {"[-infinity, 1]", "NaN, Infinity, at byte 2"},
           {"[0, 007]", "a number begins with a zero, at byte 5"},
           {"1e+", "a number ends in e, E, + or -, at byte 1"},
           {"[1.-]", "a number ends in e, E, + or -, at byte 2"},
           {"[1, 2, ]", "nothing follows the comma, at byte 8"},
           {"{\"a\": [1,\n], }", "config.json:2: nothing follows the comma, at byte 1 of the line"},
           {"{\"a\": 1}}", "text follows the JSON value, at byte 9"},
           {"[\"\\ud836\\udc00\", 01]", "a number begins with a zero, at byte 10"}};

static void what_only_json_c_takes_is_refused(void **state) {
    (void)state;
    for (int i = 0; i < NDP_COUNT(lax); i++) {
        struct json_object *o = NULL, *theirs = json_tokener_parse(lax[i].text);
        assert_true(theirs || !strcmp(lax[i].text, "NULL"));
        json_object_put(theirs);
        CHECK_FAILS(parse(lax[i].text, &o), NDP_EFORMAT, lax[i].words);
        assert_null(o);
    }
    struct json_object *o = NULL; /* the first of two errors */
    CHECK_FAILS(parse("[1, 2,], {]", &o), NDP_EFORMAT, "nothing follows the comma, at byte 7");
    CHECK_FAILS(parse("[1 2], // x", &o), NDP_EFORMAT, "array value separator ',' expected, at byte 4");
}

static void agree(const char *text, size_t size) {
    const char *why = strict_json_disagrees(text, size);
    if (why)
        fail_msg("%s: %.*s", why, (int)size, text);
}

/* Every sequence of up to `most` of these pieces. */
static void all_sequences(const char *const *pieces, int n, int most, char *text, size_t size) {
    agree(text, size);
    for (int i = 0; i < n && most > 0; i++) {
        strcpy(text + size, pieces[i]);
        all_sequences(pieces, n, most - 1, text, size + strlen(pieces[i]));
    }
}

static void accepts_what_strict_json_c_accepts(void **state) {
    (void)state;
    static const char *const structure[] = {"[", "]", "{", "}", ",", ":", "\"a\"", "1", "/", " ", "null", "'"},
                             *const numbers[] = {"0", "7", "-", "+", ".", "e", "E", "]", "Infinity"};
    char text[100] = "";
    all_sequences(structure, NDP_COUNT(structure), short_or_all(4, 6), text, 0);
    all_sequences(numbers, NDP_COUNT(numbers), short_or_all(4, 6), text, 0);
    text[0] = '[';
    all_sequences(numbers, NDP_COUNT(numbers), short_or_all(4, 6), text, 1);
}

/* Texts in which one to three pieces are replaced. */
static void mutated_texts_are_taken_as_strict_json_c_takes_them(void **state) {
    (void)state;
    static const char *const texts[] = {
        (" {\"a\": {\"b\": 1, \"gr\xc3\xbc\": [true, false, null]}, \"c\": [{\"a\": \":\"}, {}, [], {\"a\": "
         "\"\\\":\\\\\"}]}\n"),
        "[-1.5e3, 0, -0, 1E-2, 12, Infinity, -Infinity, NaN, [[1], [[2]]], \"/* x */\", \"it's\"]",
        "{\"\\ud836\\udc00\": \"gr\\u00df \\ud83d\\ude00 \xf0\x9f\x98\x80\", \"\\n\\/\": \"\", \"x\": 1.25}"};
    static const char *const pieces[] = {
        "",          "/",        "//", "/* x */", "'",    ",",    ",]",       ",}",      "]",
        "}",         "[",        "{",  ":",       "\"",   "\\",   "e",        "E",       "+",
        "-",         ".",        "0",  "7",       "T",    "tRUE", "null",     "nan",     "NaN",
        "-inf",      "Infinity", " ",  "\n",      "\x01", "\xff", "\xc3\xbc", "\\u0000", "\\ud836\\udc00",
        "\"a\": 1, "};
    uint64_t stream = ndp_rng_stream("mutations"), at = 0, accepted = 0, total = (uint64_t)short_or_all(60000, 2000000);
    for (uint64_t i = 0; i < total; i++) {
        char text[400];
        size_t size = strlen(strcpy(text, texts[i % NDP_COUNT(texts)]));
        for (uint64_t edits = 1 + i / 3 % 3; edits > 0; edits--) {
            const char *piece = pieces[ndp_rng_below(1, stream, at++, NDP_COUNT(pieces))];
            size_t from = ndp_rng_below(1, stream, at++, size + 1), cut = ndp_rng_below(1, stream, at++, 4),
                   n = strlen(piece);
            cut = cut < size - from ? cut : size - from;
            memmove(text + from + n, text + from + cut, size - from - cut + 1);
            memcpy(text + from, piece, n);
            size += n - cut;
        }
        agree(text, size);
        accepted += strict_json_accepts(text, size);
    }
    assert_in_range(accepted, total / 20, total / 2);
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
                                       cmocka_unit_test(what_only_json_c_takes_is_refused),
                                       cmocka_unit_test(accepts_what_strict_json_c_accepts),
                                       cmocka_unit_test(mutated_texts_are_taken_as_strict_json_c_takes_them),
                                       cmocka_unit_test(depth),
                                       cmocka_unit_test(not_terminated_text),
                                       cmocka_unit_test(real_configurations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
