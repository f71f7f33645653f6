/* data.bad_records: skip: which records are skipped, how they are counted, and that ranks, threads and a second run
 * make no difference. Known fields that are not read. */
#include "data/team.h"

#include "data/cache/file_share.h"
#include "data/record_files.h"
#include "data/sample.h"

/* The tally of a cache as text; the caller frees. */
static char *tally_of(const ndp_token_cache *c) {
    ndp_str s = {0};
    ndp_tally_write(&c->tally, &s);
    return ndp_str_detach(&s);
}

static ndp_dataset_options options(const fixture *f, const char *const *files, ndp_record_format format) {
    return (ndp_dataset_options){
        .files = files, .n_files = 1, .format = format, .cache_dir = f->folder, .tokenizer = f->t, .threads = 1};
}

static char *tally_of_file(const char *path) {
    ndp_token_cache c;
    CHECK_OK(ndp_token_cache_open(path, &c));
    char *text = tally_of(&c);
    ndp_token_cache_close(&c);
    return text;
}

/* ---- reasons ---- */

static const struct {
    const char *record, *reason, *message;
} bad[] = {
    {"{\"text\": \"cut", "not JSON", ": the JSON text ends before its value does, at byte 14"},
    {"{\"text\": \"a\"} more", "not JSON", ""},
    {"{\"text\": \"\xff\"}", "not JSON", ""},
    {"[]", "with a missing or mistyped field", ": the record is not an object"},
    {"{\"txt\": \"a\"}", "with a missing or mistyped field", ": the record has no 'text'"},
    {"{\"text\": 3}", "with a missing or mistyped field", ": 'text' is not a string"},
    {"{\"messages\":[{\"role\":\"bot\",\"content\":\"\"}]}", "with a missing or mistyped field", "the role 'bot'"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}", "with a missing or mistyped field",
     "'image'"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0.5}]}", "with a missing or mistyped field",
     "'weight': 0.5"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{}]}]}", "refused by the chat template",
     "tools"},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", "with nothing to train on",
     "no message of the assistant"},
    {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0}]}", "with nothing to train on",
     "marked as not trained on"},
};

static void each_bad_record_is_skipped(void **state) {
    const fixture *f = *state;
    for (int i = 0; i < NDP_COUNT(bad); i++) {
        ndp_str text = {0};
        ndp_str_addf(&text, "{\"text\":\"a\"}\n%s\n\n{\"text\":\"b\"}\n", bad[i].record);
        char *file = write_file(f->folder, "a.jsonl", text.data, text.length), *path = NULL, *want;
        ndp_dataset_options o = options(f, (const char *const[]){file}, (ndp_record_format){.chat = &f->plain});
        assert_true(ndp_dataset_prepare(&o, &path) == NDP_EFORMAT || ndp_dataset_prepare(&o, &path) == NDP_ENOTSUP);
        assert_null(path);
        o.format.skip = true;
        CHECK_OK(ndp_dataset_prepare(&o, &path));
        char *words = words_of(path), *tally = tally_of_file(path);
        assert_string_equal(words, "[<s>a] [<s>b] | 2");
        want = ndp_format("0 0 1 %s\n\t%s:2", bad[i].reason, file);
        if (strncmp(tally, want, strlen(want)) != 0 || !strstr(tally, bad[i].message))
            fail_msg("record %d: %s\nis not %s ... %s", i, tally, want, bad[i].message);
        free(want);
        free(words);
        free(tally);
        free(path);
        free(file);
        ndp_str_release(&text);
    }
}

static void too_large_a_record_is_skipped(void **state) {
    const fixture *f = *state;
    ndp_str text = {0};
    ndp_str_add(&text, "{\"text\":\"a\"}\n[");
    for (size_t i = 0; i <= NDP_RECORD_VALUES; i++)
        ndp_str_add(&text, "1,");
    ndp_str_add(&text, "1]\n{\"text\":\"b\"}");
    char *file = write_file(f->folder, "a.jsonl", text.data, text.length), *path;
    ndp_dataset_options o =
        options(f, (const char *const[]){file}, (ndp_record_format){.chat = &f->plain, .skip = true});
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    char *words = words_of(path), *tally = tally_of_file(path);
    assert_string_equal(words, "[<s>a] [<s>b] | 2");
    assert_non_null(strstr(tally, "0 0 1 too large\n"));
    free(words);
    free(tally);
    free(path);
    free(file);
    ndp_str_release(&text);
}

/* An error that no record caused loses no record. */
static void other_failures_stay_failures(void **state) {
    const fixture *f = *state;
    ndp_record_format skip = {.chat = &f->plain, .skip = true};
    ndp_chat none;
    CHECK_OK(ndp_chat_init(&none, f->t, f->folder, NULL, NULL));
    static const char CHAT[] = "{\"text\":\"a\"}\n{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}]}";
    check_refused(f, "a.jsonl", CHAT, strlen(CHAT), (ndp_record_format){.chat = &none, .skip = true}, NDP_ENOTSUP,
                  "has no chat template");
    check_refused(f, "a.json", "[{\"text\":\"a\"},{\"te", 18, skip, NDP_EFORMAT, "a.json");
    check_refused(f, "a.jsonl.gz", "\x1f\x8b\x08\x00 cut", 8, skip, NDP_EFORMAT, "a.jsonl.gz");
    check_refused(f, "a.txt", "a\xff", 2, skip, NDP_EFORMAT, "not valid UTF-8");
    check_refused(f, "a.jsonl", "{}\n{}\n", 6, skip, NDP_EINVAL,
                  "no record to train on: all 2 were skipped, the first for: ");
    ndp_chat_release(&none);
}

/* ---- many records ---- */

enum { RECORDS = 60000 };

/* Every 97th record is cut and every 1009th has another field, with lines of all lengths. */
static char *many(const char *folder, const char *name) {
    ndp_str s = {0};
    for (int i = 0; i < RECORDS; i++) {
        if (i % 97 == 50)
            ndp_str_addf(&s, "{\"text\":\"cut %d\n", i);
        else if (i % 1009 == 500)
            ndp_str_addf(&s, "{\"txt\":\"%d\"}\n", i);
        else
            ndp_str_addf(&s, "{\"text\":\"number %d %.*s\",\"system\":\"%s\"}\n", i, i % 70,
                         "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
                         i % 2 ? "" : "s");
    }
    char *path = write_file(folder, name, s.data, s.length);
    ndp_str_release(&s);
    return path;
}

static char *expected_tally(const char *file, int source) {
    ndp_str s = {0};
    int cut = 0, other = 0, system = 0;
    for (int i = 0; i < RECORDS; i++) {
        cut += i % 97 == 50;
        other += i % 97 != 50 && i % 1009 == 500;
        system += i % 97 != 50 && i % 1009 != 500 && i % 2 == 0;
    }
    ndp_str_addf(&s, "1 %d %d system\n0 %d %d not JSON\n", source, system, source, cut);
    for (int i = 50; i < 50 + 3 * 97; i += 97)
        ndp_str_addf(&s, "\t%s:%d: the JSON text ends before its value does, at byte %d\n", file, i + 1,
                     i < 100 ? 16 : 17);
    ndp_str_addf(&s, "0 %d %d with a missing or mistyped field\n", source, other);
    for (int i = 500; i < 500 + 3 * 1009; i += 1009)
        ndp_str_addf(&s,
                     "\t%s:%d: the record has no 'text', 'messages' or 'instruction'; it has: txt. "
                     "data.text_field: txt reads 'txt'\n",
                     file, i + 1);
    return ndp_str_detach(&s);
}

/* By ranks and threads: the same cache, byte for byte, with the same tally; then found again. */
static void ranks_and_threads_count_the_same(void **state) {
    const fixture *f = *state;
    char *files[2] = {many(f->folder, "a.jsonl"), many(f->folder, "b.jsonl")}, *first = NULL;
    char *one = expected_tally(files[0], 0), *two = expected_tally(files[1], 1), *want = ndp_format("%s%s", one, two);
    static const struct { int ranks, threads; } teams[] = {{1, 1}, {1, 3}, {2, 1}, {4, 2}, {8, 1}};
    size_t size = 0;
    for (int i = 0; i < NDP_COUNT(teams); i++) {
        char *cache = ndp_format("%s/cache-%d", f->folder, i);
        member members[TEAM_MOST] = {{0}};
        for (int again = 0; again < 2; again++) {
            for (int r = 0; r < teams[i].ranks; r++) {
                members[r].o =
                    options(f, (const char *const *)files, (ndp_record_format){.chat = &f->plain, .skip = true});
                members[r].o.n_files = 2;
                members[r].o.cache_dir = cache;
                members[r].o.threads = teams[i].threads;
            }
            team_prepare(members, teams[i].ranks);
            char *bytes, *tally;
            size_t n;
            for (int r = 0; r < teams[i].ranks; r++)
                assert_int_equal(members[r].status, NDP_OK);
            CHECK_OK(ndp_file_read(members[0].path, &bytes, &n));
            tally = tally_of_file(members[0].path);
            assert_string_equal(tally, want);
            if (!first) {
                first = bytes;
                size = n;
            } else {
                assert_int_equal(n, size);
                assert_memory_equal(bytes, first, n);
                free(bytes);
            }
            free(tally);
            for (int r = 0; r < teams[i].ranks; r++)
                free(members[r].path);
        }
        free(cache);
    }
    free(first);
    free(want);
    free(one);
    free(two);
    free(files[0]);
    free(files[1]);
}

/* The head that a dry run reads has its own counts; whether bad records are skipped is part of the cache's name. */
static void a_dry_run_counts_its_head(void **state) {
    const fixture *f = *state;
    char *file = many(f->folder, "a.jsonl"), *path = NULL;
    ndp_dataset_options o =
        options(f, (const char *const[]){file}, (ndp_record_format){.chat = &f->plain, .skip = true});
    ndp_token_cache c;
    CHECK_OK(ndp_dataset_sample(&o, &c));
    assert_int_equal(ndp_tally_count(&c.tally, NDP_TALLY_SKIPPED, 0), 1);
    assert_int_equal(ndp_tally_count(&c.tally, NDP_TALLY_UNREAD, -1), 49);
    ndp_token_cache_close(&c);
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    free(path);
    path = NULL;
    o.format.skip = false;
    CHECK_FAILS(ndp_dataset_prepare(&o, &path), NDP_EFORMAT, ", at byte 16");
    assert_null(path);
    free(file);
}

/* ---- fields that are not read ---- */

static void check_unread(const fixture *f, const char *record, ndp_record_format format, const char *want) {
    char *file = write_file(f->folder, "u.jsonl", record, strlen(record)), *path;
    ndp_dataset_options o = options(f, (const char *const[]){file}, format);
    CHECK_OK(ndp_dataset_prepare(&o, &path));
    char *tally = tally_of_file(path);
    assert_string_equal(tally ? tally : "", want);
    free(tally);
    free(path);
    free(file);
}

static void known_fields_that_are_not_read(void **state) {
    const fixture *f = *state;
    ndp_record_format plain = {.chat = &f->plain};
    check_unread(f, "{\"text\":\"a\",\"id\":3,\"url\":\"x\",\"system\":\"\",\"input\":null,\"history\":[]}", plain, "");
    check_unread(f, "{\"instruction\":\"a\",\"input\":\"b\",\"context\":\"c\",\"output\":\"d\",\"system\":\"s\"}",
                 plain, "1 0 1 context\n");
    check_unread(f, "{\"instruction\":\"a\",\"output\":\"d\",\"system\":\"s\"}",
                 ((ndp_record_format){.kind = NDP_RECORD_ALPACA}), "1 0 1 system\n");
    check_unread(
        f, "{\"instruction\":\"a\",\"input\":\"b\",\"output\":\"d\",\"text\":\"t\"}\n{\"text\":\"t\",\"output\":\"d\"}",
        plain, "1 0 1 instruction\n1 0 1 input\n1 0 2 output\n");
    check_unread(
        f,
        "{\"conversations\":[{\"from\":\"gpt\",\"value\":\"v\",\"loss\":false,\"thinking\":\"t\"}],\"system\":\"s\"}",
        (ndp_record_format){.kind = NDP_RECORD_SHAREGPT, .chat = &f->plain, .train = "learn"},
        "1 0 1 loss of a message\n");
    check_unread(f, "{\"text\":\"a\",\"images\":[\"x\"],\"tools\":[],\"loss_mask\":[1],\"label\":false}", plain,
                 "1 0 1 loss_mask\n1 0 1 images\n");
    check_unread(f, "{\"segments\":[{\"label\":true,\"text\":\"v\"}],\"prompt\":\"p\"}",
                 (ndp_record_format){.kind = NDP_RECORD_INPUT_OUTPUT, .chat = &f->plain}, "1 0 1 prompt\n");
}

/* ---- the text of a tally ---- */

static void damaged_tallies_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"0 0 1 a",
                                        "x",
                                        "0 0 1 a\n\t1\n\t2\n\t3\n\t4\n",
                                        "\tb\n",
                                        "2 0 1 a\n",
                                        "0 2 1 a\n",
                                        "0 0 -1 a\n",
                                        "0 0 1 a\rb\n",
                                        "0 0 1 a\n\tb\tc\n",
                                        "0 0 1 a\n0 0 1 a\n",
                                        "0 0 99999999999999999999 a\n"};
    ndp_tally t = {0};
    for (int i = 0; i < NDP_COUNT(texts); i++)
        CHECK_FAILS(ndp_tally_read(texts[i], strlen(texts[i]), 2, &t), NDP_EFORMAT, "damaged");
    CHECK_OK(ndp_tally_add(&t, NDP_TALLY_SKIPPED, "one\ttwo", "a\nb"));
    ndp_str s = {0};
    ndp_tally_write(&t, &s);
    assert_string_equal(s.data, "0 0 1 one two\n\ta b\n");
    ndp_tally_clear(&t);
    CHECK_OK(ndp_tally_read(s.data, s.length, 1, &t));
    assert_int_equal(t.n, 1);
    ndp_tally_clear(&t);
    ndp_str_release(&s);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {TEST(each_bad_record_is_skipped),   TEST(too_large_a_record_is_skipped),
                                       TEST(other_failures_stay_failures), TEST(ranks_and_threads_count_the_same),
                                       TEST(a_dry_run_counts_its_head),    TEST(known_fields_that_are_not_read),
                                       TEST(damaged_tallies_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
