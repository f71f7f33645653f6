/* Texts in SVG and HTML. */
#include "base/svg.h"
#include "check.h"

static void texts_are_escaped(void **state) {
    (void)state;
    static const struct {
        const char *text, *escaped;
    } cases[] = {
        {"", ""},
        {"plain \xc3\xa4 \xe6\xbc\xa2\n\t", "plain \xc3\xa4 \xe6\xbc\xa2\n\t"},
        {"<script>alert(\"1\" & '2')</script>", "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;"},
        {"\x1b[1m\x7f\x01", "\xef\xbf\xbd[1m\xef\xbf\xbd\xef\xbf\xbd"},
        {"a\xff<\xc3", "a\xef\xbf\xbd&lt;\xef\xbf\xbd"},
        {"\xc3<b", "\xef\xbf\xbd&lt;b"}, /* half a character, then an element */
        {"\xed\xa0\x80z", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_str out = {0};
        ndp_str_add(&out, "");
        ndp_svg_escape(&out, cases[i].text);
        assert_string_equal(out.data ? out.data : "", cases[i].escaped);
        ndp_str_release(&out);
    }
}

static void a_part_has_no_style_of_its_own(void **state) {
    (void)state;
    ndp_str out = {0};
    ndp_svg_begin_part(&out, 40, 20, "a < b");
    ndp_svg_box(&out, 0, 0, 1, 1, "class=\"c\"", "\"");
    ndp_svg_end(&out);
    assert_non_null(strstr(out.data, "viewBox=\"0 0 40 20\""));
    assert_non_null(strstr(out.data, "<title>a &lt; b</title>"));
    assert_non_null(strstr(out.data, "<title>&quot;</title></rect>"));
    assert_null(strstr(out.data, "style"));
    ndp_str_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts_are_escaped),
                                       cmocka_unit_test(a_part_has_no_style_of_its_own)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
