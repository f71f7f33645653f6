/* Regular expressions as the reference engine reads them. Thousands of real ones are in test_conformance.c. */
#include "text/regex.h"

#include "base/clock.h"
#include "check.h"
#include <stdlib.h>

static ndp_span span(const char *text) { return (ndp_span){text, strlen(text)}; }

/* All matches of a text, separated by "|". */
static char *matches(const char *pattern, ndp_span text) {
    ndp_regex *r;
    ndp_regex_scratch scratch = {0};
    ndp_str all = {0};
    CHECK_OK(ndp_regex_create(span(pattern), "here", &r));
    ndp_regex_walk w = ndp_regex_walk_begin(r, &scratch, text);
    ndp_str_add(&all, "");
    for (int n = 0;; n++) {
        bool found;
        size_t from, to;
        CHECK_OK(ndp_regex_next(&w, &found, &from, &to));
        if (!found)
            break;
        ndp_str_add(&all, n ? "|" : "");
        ndp_str_add_bytes(&all, text.data + from, to - from);
    }
    ndp_regex_scratch_release(&scratch);
    ndp_regex_destroy(r);
    return ndp_str_detach(&all);
}

static void patterns_match_as_in_the_reference(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *text, *want;
    } cases[] = {
        {"\\s", "a\xc2\x85\xe1\xa0\x8e\xe3\x80\x80", "\xc2\x85|\xe3\x80\x80"}, /* not U+180E */
        {"\\S+",
         "a\xc2\x85"
         "b",
         "a|b"},
        {"\\w+", "a\xcc\x81_\xc2\xb2.\xe2\x91\xa0", "a\xcc\x81_\xc2\xb2"},
        {"[\\w]+", "a\xc2\xb2", "a"},
        {"[^\\W]+", "a\xc2\xb2", "a"},
        {"\\h+\\H", "beef!", "beef!"},
        {"\\p{Han}+", "\xe4\xb8\xad\xe3\x83\xbc", "\xe4\xb8\xad"}, /* the script, not its extensions */
        {"\\p{^L}", "a1", "1"},
        {"\\P{^L}", "a1", "a"},
        {"\\p{Uppercase_Letter}", "aB", "B"},
        {"a{2}+", "aaaaa", "aaaa"},
        {"a{2}?b", "aab b", "aab|b"},
        {"a{1,2}?", "aaa", "a|a|a"},
        {"a{,2}b", "aaab", "aab"},
        {"x{", "x{", "x{"},
        {"x{a}", "x{a}", "x{a}"},
        {"a++a|b", "aab", "b"},
        {"(?:ab?)*?c", "aabac", "aabac"},
        {"a(?i)b|c", "aB ac c", "aB|ac"}, /* (?i) up to the end of the group, alternatives and all */
        {"(?i:ss)|x", "\xc3\x9f SS", "\xc3\x9f|SS"},
        {"(?i:\xc3\x9f)", "ss", "ss"},
        {"(?i:fis+)", "FISS", "FISS"},
        {"(?m:a.b)", "a\nb", "a\nb"},
        {"a.b", "a\nb", ""},
        {"^b$", "a\nb\nc", "b"},
        {"\\Ab|\\Gc", "bcc", "b|c|c"},
        {"[a&&b]|[a-d&&[^b]&&c-z]", "abcd", "c|d"},
        {"[^a-c&&b-d]", "abcd", "a|d"},
        {"[a[bc]d]+", "abcde", "abcd"},
        {"[[:alpha:][:^digit:]]+", "a-1", "a-"},
        {"[]x]+", "]x", "]x"},
        {"[a-]+[-b]+[\\d-x]", "a-bx", "a-bx"},
        {"[\\b]", "\x08", "\x08"},
        {"[\\x{61}-\\u0063]+", "abcd", "abc"},
        {"\\bcat\\b", "cat concat cat", "cat|cat"},
        {"\\Bcat", "cat concat", "cat"},
        {"(a)\\1", "aab", "aa"},
        {"(?<n>a)\\k<n>", "aab", "aa"},
        {"(?<=a)b(?!c)", "abcab", "b"},
        {"(?>a|ab)c", "abc ac", "ac"},
        {"(?#words)a", "a", "a"},
        {"\\v", "\x0b\n", "\x0b"},
        {"\xc3\xa4\\\xc3\xb6", "\xc3\xa4\xc3\xb6", "\xc3\xa4\xc3\xb6"},
        {"b*", "abb", "|bb"}, /* an empty match not at the end of the one before */
        {"", "a", "|"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        char *got = matches(cases[i].pattern, span(cases[i].text));
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("%s on '%s' gives '%s', expected '%s'", cases[i].pattern, cases[i].text, got, cases[i].want);
        free(got);
    }
}

static void a_zero_character_is_one(void **state) {
    (void)state;
    ndp_regex *r;
    CHECK_OK(ndp_regex_create((ndp_span){"[\0-\x02]", 5}, "here", &r));
    ndp_regex_scratch scratch = {0};
    ndp_regex_walk w = ndp_regex_walk_begin(r, &scratch, (ndp_span){"a\0b", 3});
    bool found;
    size_t from, to;
    CHECK_OK(ndp_regex_next(&w, &found, &from, &to));
    assert_true(found && from == 1 && to == 2);
    ndp_regex_scratch_release(&scratch);
    ndp_regex_destroy(r);
}

static void what_would_be_misread_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *pattern;
        ndp_status status;
        const char *says;
    } cases[] = {
        {"(", NDP_EFORMAT, "at byte 1: a group without its end"},
        {"a)", NDP_EFORMAT, "at byte 1: a ) without its group"},
        {"[a", NDP_EFORMAT, "a class without its end"},
        {"[a&&]", NDP_EFORMAT, "an empty class"},
        {"[z-a]", NDP_EFORMAT, "ends before it begins"},
        {"*a", NDP_EFORMAT, "nothing to repeat"},
        {"a|+", NDP_EFORMAT, "nothing to repeat"},
        {"a\\", NDP_EFORMAT, "a backslash at the end"},
        {"\\x{110000}", NDP_EFORMAT, "not the number of a character"},
        {"\\ud800", NDP_EFORMAT, "not the number of a character"},
        {"\\xe4", NDP_ENOTSUP, "a byte that is not a character"},
        {"\\p{Klingon}", NDP_ENOTSUP, "a property that is not known"},
        {"\\pL", NDP_EFORMAT, "in braces"},
        {"\\g<1>", NDP_ENOTSUP, "an escape that is not supported"},
        {"\\012", NDP_ENOTSUP, "an escape that is not supported"},
        {"(?x: a)", NDP_ENOTSUP, "a kind of group that is not supported"},
        {"(?~a)", NDP_ENOTSUP, "a kind of group that is not supported"},
        {"(?<=a+)b", NDP_EFORMAT, "lookbehind assertion is not"}, /* fixed length; limited, since PCRE2 10.43 */
        {"a{70000}", NDP_EFORMAT, "too big"},
        {"a{2,1}", NDP_EFORMAT, "out of order"},
        {"\\2", NDP_EFORMAT, "non-existent"},
        {"[[:graph:]]", NDP_ENOTSUP, "a POSIX bracket that is not supported"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_regex *r = NULL;
        ndp_status st = ndp_regex_create(span(cases[i].pattern), "here", &r);
        if (st != cases[i].status || !strstr(ndp_error_message(), cases[i].says) ||
            !strstr(ndp_error_message(), "here"))
            fail_msg("%s gave %d: %s", cases[i].pattern, st, st ? ndp_error_message() : "accepted");
        assert_null(r);
    }
    char deep[400], *long_one = malloc(40001);
    memset(deep, '(', 200);
    memset(deep + 200, ')', 199);
    deep[399] = '\0';
    ndp_regex *r = NULL;
    CHECK_FAILS(ndp_regex_create(span(deep), "here", &r), NDP_EFORMAT, "nested too deeply");
    memset(long_one, 'a', 40000);
    long_one[40000] = '\0';
    CHECK_FAILS(ndp_regex_create(span(long_one), "here", &r), NDP_EFORMAT, "longer than 32768 bytes");
    free(long_one);
}

/* Patterns that try all of exponentially many ways end in an error that names them, soon. */
static void backtracking_ends(void **state) {
    (void)state;
    static const char *const patterns[] = {"(a+)+$", "(a|aa)+$", "(?:a*)*b", "(.*)*x(.*)*y", "(a?){40}a{40}$"};
    char text[64];
    memset(text, 'a', sizeof text);
    text[63] = '!';
    for (int i = 0; i < NDP_COUNT(patterns); i++) {
        ndp_regex *r;
        ndp_regex_scratch scratch = {0};
        CHECK_OK(ndp_regex_create(span(patterns[i]), "here", &r));
        ndp_regex_walk w = ndp_regex_walk_begin(r, &scratch, (ndp_span){text, sizeof text});
        bool found = true;
        size_t from, to;
        double begin = ndp_thread_now();
        ndp_status st = NDP_OK;
        while (st == NDP_OK && found)
            st = ndp_regex_next(&w, &found, &from, &to);
        if (st != NDP_OK)
            CHECK_FAILS(st, NDP_EFORMAT, patterns[i]);
        double work = ndp_thread_now() - begin;
        print_message("  %-16s %s after %.2f s of a core\n", patterns[i], st ? "given up" : "done", work);
        assert_true(work < 60);
        assert_true(st != NDP_OK || i > 1);
        ndp_regex_scratch_release(&scratch);
        ndp_regex_destroy(r);
    }
}

/* Each search is short enough, but there is one for every byte of the text: 43 s for these 100 kB, hours for 1 MB. */
static void a_pattern_that_takes_long_everywhere_ends(void **state) {
    (void)state;
    enum { N = 100000 };
    char *text = malloc(N);
    memset(text, 'a', N);
    ndp_regex *r;
    ndp_regex_scratch scratch = {0};
    ndp_str out = {0};
    CHECK_OK(ndp_regex_create(span("(?:ab?)*[cd]"), "here", &r));
    double begin = ndp_thread_now();
    CHECK_FAILS(ndp_regex_replace(r, &scratch, (ndp_span){text, N}, "x", N, &out), NDP_EFORMAT,
                "the tokenizer's regular expression '(?:ab?)*[cd]' took ");
    assert_true(ndp_thread_now() - begin < 10);
    ndp_regex_destroy(r);
    CHECK_OK(ndp_regex_create(span("[bc]|a(?=b)"), "here", &r)); /* matches far apart, across stretches */
    text[70] = 'b', text[5000] = 'c', text[N - 1] = 'b';
    CHECK_OK(ndp_regex_replace(r, &scratch, (ndp_span){text, N}, "", N, &out));
    assert_int_equal(out.length, N - 5);
    ndp_str_release(&out);
    ndp_regex_scratch_release(&scratch);
    ndp_regex_destroy(r);
    free(text);
}

/* A group for each character: more than a stack would take. An error or a match, no crash. */
static void long_repeats_of_groups_end(void **state) {
    (void)state;
    enum { N = 8 << 20 };
    char *text = malloc(N);
    memset(text, 'a', N);
    ndp_regex *r;
    ndp_regex_scratch scratch = {0};
    CHECK_OK(ndp_regex_create(span("(?:\\p{L}\\p{M}*)+"), "here", &r));
    ndp_regex_walk w = ndp_regex_walk_begin(r, &scratch, (ndp_span){text, N});
    bool found;
    size_t from, to;
    ndp_status st = ndp_regex_next(&w, &found, &from, &to);
    if (st == NDP_OK)
        assert_true(found && to == N);
    else
        CHECK_FAILS(st, NDP_EFORMAT, "break the text into shorter ones");
    ndp_regex_scratch_release(&scratch);
    ndp_regex_destroy(r);
    free(text);
}

static void replacing_keeps_to_its_limit(void **state) {
    (void)state;
    ndp_regex *r;
    ndp_regex_scratch scratch = {0};
    ndp_str out = {0};
    CHECK_OK(ndp_regex_create_literal(span("a.c"), "here", &r));
    CHECK_OK(ndp_regex_replace(r, &scratch, span("a.c abc a.ca.c"), "<$1>", 100, &out));
    assert_string_equal(out.data, "<$1> abc <$1><$1>");
    out.length = 0;
    CHECK_FAILS(ndp_regex_replace(r, &scratch, span("a.ca.ca.c"), "0123456789", 15, &out), NDP_EFORMAT, "15 bytes");
    ndp_str_release(&out);
    ndp_regex_scratch_release(&scratch);
    ndp_regex_destroy(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_as_in_the_reference),
        cmocka_unit_test(a_zero_character_is_one),
        cmocka_unit_test(what_would_be_misread_is_refused),
        cmocka_unit_test(backtracking_ends),
        cmocka_unit_test(a_pattern_that_takes_long_everywhere_ends),
        cmocka_unit_test(long_repeats_of_groups_end),
        cmocka_unit_test(replacing_keeps_to_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
