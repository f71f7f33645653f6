/* Documents of text and JSONL files, and what is wrong with files that have none. */
#include "data/corpus/source.h"

#include "check.h"
#include <stdlib.h>

/* Collects documents as "line:text|". */
static ndp_status collect(void *user, const ndp_document *d) {
    ndp_str *all = user;
    ndp_str_addf(all, "%lld:", (long long)d->line);
    ndp_str_add_bytes(all, d->text, d->n);
    ndp_str_add(all, "|");
    return NDP_OK;
}

static void check_documents(const char *path, const char *contents, const char *field, const char *want) {
    ndp_str all = {0};
    CHECK_OK(ndp_source_visit(path, contents, strlen(contents), field, collect, &all));
    assert_string_equal(all.data ? all.data : "", want);
    ndp_str_release(&all);
}

static void a_text_file_is_one_document(void **state) {
    (void)state;
    check_documents("a.txt", "one\ntwo\n", NULL, "1:one\ntwo\n|");
    check_documents("a.txt", "no line break", NULL, "1:no line break|");
    check_documents("a.txt", "x <|endoftext|>\n<|endoftext|> y\n", NULL, "1:x <|endoftext|>\n<|endoftext|> y\n|");
    check_documents("a.txt", "", NULL, "");
}

static void separator_lines_part_documents(void **state) {
    (void)state;
    check_documents("a.txt", "one\n<|endoftext|>\ntwo\n\n<|endoftext|>\nthree\n", NULL, "1:one|3:two\n|6:three|");
    check_documents("a.txt", "<|endoftext|>\none\n<|endoftext|>", NULL, "2:one|");
    check_documents("a.txt", "<|endoftext|>\n<|endoftext|>\n\n<|endoftext|>\n", NULL, "");
    check_documents("a.txt", "one\r\n<|endoftext|>\r\ntwo\r\n", NULL, "1:one|3:two|");
}

static void jsonl_records_are_documents(void **state) {
    (void)state;
    check_documents("a.jsonl", "{\"text\":\"a\\nb\"}\n\n \r\n{\"n\":1,\"text\":\"\"}\n{\"text\":\"\\u00e4\"}", NULL,
                    "1:a\nb|4:|5:\xc3\xa4|");
    check_documents("a.ndjson", "{\"body\":\"x\",\"text\":7}\n", "body", "1:x|");
}

/* Cut anywhere, a file gives what it gives as a whole. */
static void chunks_give_the_same_documents(void **state) {
    (void)state;
    static const struct {
        const char *path, *contents;
    } files[] = {{"a.txt", "one\n<|endoftext|>\ntwo\n\n<|endoftext|>\nthree\n<|endoftext|>\n\n<|endoftext|>\nlast\n"},
                 {"a.txt", "only\none\n"},
                 {"a.jsonl", "{\"text\":\"a\"}\n\n{\"text\":\"\"}\n \n{\"text\":\"b\"}\n{\"text\":\"c\"}"}};
    for (int i = 0; i < NDP_COUNT(files); i++) {
        const char *text = files[i].contents;
        size_t n = strlen(text);
        ndp_str whole = {0};
        CHECK_OK(ndp_source_visit(files[i].path, text, n, NULL, collect, &whole));
        for (size_t want = 1; want <= n; want++) {
            ndp_str all = {0};
            ndp_source_chunk c;
            int chunks = 0;
            size_t end = 0;
            CHECK_OK(ndp_source_begin(files[i].path, text, n, &c));
            for (size_t at = 0; at < n; at += want)
                if (ndp_source_cut(&c, at, at + want)) {
                    assert_true(c.begin >= at && (chunks == 0 || c.begin == end));
                    end = c.end;
                    ndp_source_count_lines(&c);
                    CHECK_OK(ndp_source_visit_chunk(&c, &(ndp_record_format){0}, collect, &all));
                    chunks++;
                }
            assert_string_equal(all.data, whole.data);
            assert_int_equal(end, n);
            assert_true(want > 1 || chunks > 1 || i == 1);
            ndp_str_release(&all);
        }
        ndp_str_release(&whole);
    }
}

static void broken_files_name_the_place(void **state) {
    (void)state;
    static const struct {
        const char *path, *contents;
        ndp_status status;
        const char *says;
    } cases[] = {
        {"a.txt", "one\ntw\xffo\n", NDP_EFORMAT, "a.txt:2: byte 6 of the file (0xff)"},
        {"a.txt", "one\n<|endoftext|>\nt\xc3", NDP_EFORMAT, "a.txt:3: byte 19 of the file (0xc3)"},
        {"a.jsonl", "{\"text\":\"a\"}\n{\"text\":\n", NDP_EFORMAT, "a.jsonl:2"},
        {"a.jsonl", "{\"text\":\"\xff\"}\n", NDP_EFORMAT, "a.jsonl:1"},
        {"a.jsonl", "{\"txt\":\"a\",\"id\":1}\n", NDP_EFORMAT, "a.jsonl:1: the record has no 'text'; it has: txt, id"},
        {"a.jsonl", "\n{\"text\":1}\n", NDP_EFORMAT, "a.jsonl:2: 'text' is not a string"},
        {"a.jsonl", "[1]\n", NDP_EFORMAT, "a.jsonl:1: the record is not an object"},
        {"a.json", "{}", NDP_EFORMAT, "a.json: not a list of records"},
        {"A.ZIP", "PK", NDP_ENOTSUP, ".zip"},
    };
    for (int i = 0; i < NDP_COUNT(cases); i++) {
        ndp_str all = {0};
        CHECK_FAILS(ndp_source_visit(cases[i].path, cases[i].contents, strlen(cases[i].contents), NULL, collect, &all),
                    cases[i].status, cases[i].says);
        ndp_str_release(&all);
    }
}

static ndp_status stop_at_once(void *user, const ndp_document *d) {
    (void)d;
    ++*(int *)user;
    return NDP_FAIL(NDP_EINTR, "enough");
}

static void a_visitor_can_stop(void **state) {
    (void)state;
    int calls = 0;
    CHECK_FAILS(ndp_source_visit("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n", 26, NULL, stop_at_once, &calls),
                NDP_EINTR, "enough");
    assert_int_equal(calls, 1);
}

/* The same stories in both forms, of the reference data. */
static void both_forms_of_a_corpus_are_equal(void **state) {
    (void)state;
    const char *root = getenv("NDP_TEST_DATA");
    if (!root) {
        print_message("SKIPPED: NDP_TEST_DATA is not set, no corpus to read\n");
        return;
    }
    ndp_str all[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        char *path = ndp_format("%s/corpora/tinystories.%s", root, i ? "jsonl" : "txt"), *text;
        size_t size;
        CHECK_OK(ndp_file_read(path, &text, &size));
        CHECK_OK(ndp_source_visit(path, text, size, NULL, collect, &all[i]));
        free(text);
        free(path);
    }
    const char *a = all[0].data, *b = all[1].data; /* equal but for the line numbers */
    int documents = 0;
    while (a && b && *a && *b) {
        a = strchr(a, ':') + 1;
        b = strchr(b, ':') + 1;
        size_t n = strcspn(a, "|");
        assert_memory_equal(a, b, n + 1);
        a += n + 1;
        b += n + 1;
        documents++;
    }
    assert_true(a && b && !*a && !*b);
    assert_int_equal(documents, 935);
    ndp_str_release(&all[0]);
    ndp_str_release(&all[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_file_is_one_document),      cmocka_unit_test(separator_lines_part_documents),
        cmocka_unit_test(jsonl_records_are_documents),      cmocka_unit_test(chunks_give_the_same_documents),
        cmocka_unit_test(broken_files_name_the_place),      cmocka_unit_test(a_visitor_can_stop),
        cmocka_unit_test(both_forms_of_a_corpus_are_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
