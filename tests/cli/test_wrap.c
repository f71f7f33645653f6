/* Lines that fit the terminal (cli/wrap.h), over generated texts. */
#include "cli/wrap.h"

#include "base/rng.h"
#include "check.h"

static char *wrap(const char *text, int width) {
    ndp_str out = {0};
    cli_wrap(&out, text, width);
    assert_false(out.failed);
    return ndp_str_detach(&out);
}

static void expect(const char *text, int width, const char *expected) {
    char *got = wrap(text, width);
    assert_string_equal(got, expected);
    free(got);
}

static void known(void **state) {
    (void)state;
    expect("one two three", 0, "one two three");
    expect("one two three", 13, "one two three");
    expect("one two three", 12, "one two\n    three");
    expect("a line\nanother one\n", 8, "a line\nanother\n    one\n");
    expect("  indented words here", 12, "  indented\n    words\n    here");
    expect("file: /a/long/path/to/the/file.txt", 20, "file:\n    .../the/file.txt");
    expect("\xc3\xa9\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9", 6, "\xc3\xa9\xc3\xa9\xc3\xa9 \xc3\xa9\xc3\xa9");
    expect("", 10, "");
}

/* Words of up to 12 letters, so that each fits: no line is too wide, and no word is lost or cut. */
static void words_remain(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        ndp_str text = {0};
        int words = 1 + (int)ndp_rng_below(seed, 0, 0, 60), width = 20 + (int)ndp_rng_below(seed, 0, 1, 60);
        for (int i = 0; i < words; i++)
            ndp_str_addf(&text, "%s%.*s", i ? ndp_rng_below(seed, 1, (uint64_t)i, 9) ? " " : "\n" : "",
                         1 + (int)ndp_rng_below(seed, 2, (uint64_t)i, 12), "abcdefghijkl");
        char *got = wrap(text.data, width), *save_text, *save_got;
        for (const char *line = got; *line; line += strcspn(line, "\n"), line += *line == '\n')
            assert_true((int)strcspn(line, "\n") <= width);
        char *a = strtok_r(text.data, " \n", &save_text), *b = strtok_r(got, " \n", &save_got);
        for (; a && b; a = strtok_r(NULL, " \n", &save_text), b = strtok_r(NULL, " \n", &save_got))
            assert_string_equal(a, b);
        assert_true(!a && !b);
        free(got);
        ndp_str_release(&text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(known), cmocka_unit_test(words_remain)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
