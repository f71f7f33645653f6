/* The writer of JSON: what it writes is read back by the strict reader as what was meant. */
#include "base/json.h"
#include "base/json_write.h"
#include "check.h"

#include <math.h>

static void every_kind_of_value(void **state) {
    (void)state;
    ndp_json_out o = {0};
    ndp_json_open(&o, NULL, '{');
    ndp_json_put_text(&o, "text", "a\"b\\c\n\t\x01/\x7f");
    ndp_json_put_text(&o, "none", NULL);
    ndp_json_put_number(&o, "third", 1.0 / 3);
    ndp_json_put_number(&o, "nan", NAN);
    ndp_json_put_number(&o, "infinite", -INFINITY);
    ndp_json_put_int(&o, "most", INT64_MAX);
    ndp_json_put_bool(&o, "true", true);
    ndp_json_open(&o, "empty", '[');
    ndp_json_close(&o, ']');
    ndp_json_open(&o, "list", '[');
    ndp_json_put_int(&o, NULL, 1);
    ndp_json_open(&o, NULL, '{');
    ndp_json_close(&o, '}');
    ndp_json_put_null(&o, NULL);
    ndp_json_close(&o, ']');
    ndp_json_put_lines(&o, "lines", "one\ntwo\n\nfour");
    ndp_json_close(&o, '}');
    assert_string_equal(
        o.text.data, "{\"text\": \"a\\\"b\\\\c\\n\\t\\u0001/\\u007f\", \"none\": null, \"third\": 0.3333333333333333, "
                     "\"nan\": null, \"infinite\": null, \"most\": 9223372036854775807, \"true\": true, "
                     "\"empty\": [], \"list\": [1, {}, null], \"lines\": [\"one\", \"two\", \"\", \"four\"]}");
    struct json_object *read;
    CHECK_OK(ndp_json_parse(o.text.data, o.text.length, "it", &read));
    assert_string_equal(ndp_json_text(json_object_object_get(read, "text")), "a\"b\\c\n\t\x01/\x7f");
    assert_true(json_object_get_double(json_object_object_get(read, "third")) == 1.0 / 3);
    json_object_put(read);
    ndp_str_release(&o.text);
}

static void bytes_that_are_not_utf8(void **state) {
    (void)state;
    static const struct {
        const char *text, *quoted;
    } cases[] = {
        {"\xff", "\"\xef\xbf\xbd\""},
        {"a\xc3", "\"a\xef\xbf\xbd\""},
        {"\xc3\xa4\xed\xa0\x80z", "\"\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\""}, /* a surrogate */
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_str out = {0};
        ndp_json_quote(&out, cases[i].text);
        assert_string_equal(out.data, cases[i].quoted);
        ndp_str_release(&out);
    }
    ndp_str zero = {0};
    ndp_json_quote_bytes(&zero, "a\0b", 3);
    assert_string_equal(zero.data, "\"a\\u0000b\"");
    ndp_str_release(&zero);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_kind_of_value),
                                       cmocka_unit_test(bytes_that_are_not_utf8)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
